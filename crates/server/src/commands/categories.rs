//! Groups and ACL categories of commands, by Redis' names, from the table's flags and the files of
//! the handlers.

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
    &["flushall", "flushdb", "info", "keys", "restore", "role", "sort", "sort_ro", "swapdb"];

/// Commands of a server whose category is that of connections.
const OF_CONNECTIONS: &[&str] = &["asking", "command", "readonly", "readwrite", "wait", "waitaof"];

/// Beginning of the name of the handlers' file, the group in COMMAND DOCS and the category.
const GROUPS: &[(&str, &str, &str)] = &[
    ("absent", "cluster", ""),
    ("acl", "server", ""),
    ("bits", "bitmap", "bitmap"),
    ("blocking", "list", "list"),
    ("connection", "connection", "connection"),
    ("geo", "geo", "geo"),
    ("hashes", "hash", "hash"),
    ("hyperloglog", "hyperloglog", "hyperloglog"),
    ("keys", "generic", "keyspace"),
    ("lists", "list", "list"),
    ("memory", "server", ""),
    ("pubsub", "pubsub", "pubsub"),
    ("server", "server", ""),
    ("sets", "set", "set"),
    ("strings", "string", "string"),
    ("transactions", "transactions", "transaction"),
    ("zset", "sorted-set", "sortedset"),
];

/// Group of a command in COMMAND DOCS.
pub(super) fn group(spec: &Spec) -> &'static str {
    match spec.name {
        "function" => "scripting",
        "module" => "server",
        _ => row(spec).map_or("generic", |(_, group, _)| group),
    }
}

fn row(spec: &Spec) -> Option<&'static (&'static str, &'static str, &'static str)> {
    // The file of commands that wait has those of lists and of sorted sets.
    let file = if spec.name.starts_with("bz") { "zsets" } else { spec.file };
    GROUPS.iter().find(|(prefix, ..)| file.starts_with(prefix))
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
        (is(Flags::ADMIN) && !OF_CONNECTIONS.contains(&name) && name != "client", "admin"),
        (is(Flags::FAST), "fast"),
        (!is(Flags::FAST), "slow"),
        (is(Flags::ADMIN) || DANGEROUS.contains(&name), "dangerous"),
        (OF_CONNECTIONS.contains(&name), "connection"),
        (name == "function", "scripting"),
        (spec.file == "blocking", "blocking"),
    ];
    found.extend(by_flags.into_iter().filter(|(is, _)| *is).map(|(_, name)| name));
    found.extend(row(spec).map(|(.., category)| *category).filter(|category| !category.is_empty()));
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
        assert!(of("acl").contains(&"admin") && of("acl").contains(&"dangerous"));
    }

    #[test]
    fn every_category_is_one_of_redis() {
        for spec in super::super::table::TABLE {
            assert!(of(spec).iter().all(|name| ALL.contains(name)), "{}", spec.name);
        }
    }
}
