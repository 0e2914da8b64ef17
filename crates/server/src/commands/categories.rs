//! ACL categories of commands, by Redis' names, from the table's flags and the files of the
//! handlers.

use super::table::{Flags, Spec};

/// All categories, in the order of ACL CAT.
pub(super) const ALL: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands that take the time of the whole database, or change or tell much of it.
const DANGEROUS: &[&str] =
    &["flushall", "flushdb", "info", "keys", "lastsave", "restore", "role", "sort", "sort_ro", "swapdb"];

/// Commands of a server whose category is that of connections.
const OF_CONNECTIONS: &[&str] = &["asking", "command", "readonly", "readwrite", "wait", "waitaof"];

/// Beginning of the name of the handlers' file, and the category of its commands.
const GROUPS: &[(&str, &str)] = &[
    ("bits", "bitmap"),
    ("blocking", "list"),
    ("connection", "connection"),
    ("functions", "scripting"),
    ("geo", "geo"),
    ("hashes", "hash"),
    ("hyperloglog", "hyperloglog"),
    ("keys", "keyspace"),
    ("lists", "list"),
    ("pubsub", "pubsub"),
    ("sets", "set"),
    ("stream", "stream"),
    ("strings", "string"),
    ("transactions", "transaction"),
    ("zset", "sortedset"),
];

/// Subcommands that are not for operators, of containers that are.
const OF_ANY: &[(&str, &[&str])] = &[
    ("acl", &["cat", "genpass", "whoami"]),
    (
        "client",
        &[
            "caching",
            "getname",
            "getredir",
            "id",
            "info",
            "no-touch",
            "reply",
            "setinfo",
            "setname",
            "tracking",
            "trackinginfo",
        ],
    ),
];

/// Subcommands that read no key, of containers that do.
const WITHOUT_KEY: &[(&str, &[&str])] = &[("memory", &["doctor", "malloc-stats", "purge", "stats"])];

/// Category of the file that a command's handler is in, if it has one.
fn of_file(spec: &Spec) -> Option<&'static str> {
    // The file of commands that wait has those of lists and of sorted sets.
    let file = if spec.name.starts_with("bz") { "zsets" } else { spec.file };
    GROUPS.iter().find(|(prefix, _)| file.starts_with(prefix)).map(|(_, category)| *category)
}

/// Categories of a command.
pub(super) fn of(spec: &Spec) -> Vec<&'static str> {
    let name = spec.name;
    let is = |flag| spec.flags.has(flag);
    let mut found = Vec::new();
    let keyspace = ["dbsize", "flushall", "flushdb", "swapdb"].contains(&name);
    let by_flags = [
        (keyspace, "keyspace"),
        (is(Flags::READONLY), "read"),
        (is(Flags::WRITE), "write"),
        (is(Flags::ADMIN) && !OF_CONNECTIONS.contains(&name) || name == "lastsave", "admin"),
        (is(Flags::FAST), "fast"),
        (!is(Flags::FAST), "slow"),
        (is(Flags::ADMIN) || DANGEROUS.contains(&name), "dangerous"),
        (OF_CONNECTIONS.contains(&name), "connection"),
        (spec.file == "blocking" || is(Flags::BLOCKING), "blocking"),
    ];
    found.extend(by_flags.into_iter().filter(|(is, _)| *is).map(|(_, name)| name));
    found.extend(of_file(spec));
    found
}

/// Categories of a subcommand, `help` among them.
pub(super) fn of_sub(spec: &Spec, sub: &str) -> Vec<&'static str> {
    let is_in = |rows: &[(&str, &[&str])]| {
        rows.iter().any(|(container, names)| *container == spec.name && names.contains(&sub))
    };
    let mut found = of(spec);
    if sub == "help" || is_in(OF_ANY) {
        found.retain(|name| !["admin", "dangerous"].contains(name));
    }
    if sub == "help" || is_in(WITHOUT_KEY) {
        found.retain(|name| !["read", "write"].contains(name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::table::find;
    use super::*;

    #[test]
    fn categories_come_from_flags_and_files() {
        let of = |name: &str| of(find(name.as_bytes()).unwrap());
        assert_eq!(of("get"), ["read", "fast", "string"]);
        assert_eq!(of("hset"), ["write", "fast", "hash"]);
        assert_eq!(of("keys"), ["read", "slow", "dangerous", "keyspace"]);
        assert_eq!(of("multi"), ["fast", "transaction"]);
        assert_eq!(of("blpop"), ["write", "slow", "blocking", "list"]);
        assert_eq!(of("bzpopmin"), ["write", "fast", "blocking", "sortedset"]);
        assert_eq!(of("xread"), ["read", "slow", "blocking", "stream"]);
        assert!(of("acl").contains(&"admin") && of("acl").contains(&"dangerous"));
    }

    #[test]
    fn subcommands_have_categories_of_their_own() {
        let of = |name: &str, sub: &str| of_sub(find(name.as_bytes()).unwrap(), sub);
        assert_eq!(of("acl", "setuser"), ["admin", "slow", "dangerous"]);
        assert_eq!((of("acl", "whoami"), of("config", "help")), (vec!["slow"], vec!["slow"]));
        assert_eq!(of("client", "id"), ["slow", "connection"]);
        assert_eq!(of("client", "kill"), ["admin", "slow", "dangerous", "connection"]);
        assert_eq!((of("memory", "usage"), of("memory", "stats")), (vec!["read", "slow"], vec!["slow"]));
    }

    #[test]
    fn every_category_is_one_of_redis() {
        for spec in super::super::table::TABLE {
            assert!(of(spec).iter().all(|name| ALL.contains(name)), "{}", spec.name);
        }
    }
}
