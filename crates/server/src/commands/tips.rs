//! Tips of COMMAND INFO: how a client of a cluster sends a command to its parts and puts their
//! replies together, and whether the same request may have another reply.

/// Tips, and the commands and subcommands that have them.
const TIPS: &[(&[&str], &[&str])] = &[
    (
        &["nondeterministic_output"],
        &[
            "acl|genpass",
            "acl|log",
            "client|info",
            "client|list",
            "dump",
            "hrandfield",
            "hscan",
            "lastsave",
            "object|encoding",
            "object|freq",
            "object|idletime",
            "object|refcount",
            "pttl",
            "spop",
            "srandmember",
            "sscan",
            "time",
            "ttl",
            "zrandmember",
            "zscan",
        ],
    ),
    (
        &["nondeterministic_output_order"],
        &["command", "command|docs", "command|info", "command|list", "hgetall", "hkeys", "hvals", "sdiff"],
    ),
    (&["nondeterministic_output_order"], &["sinter", "smembers", "sunion"]),
    (
        &["request_policy:all_nodes", "response_policy:all_succeeded"],
        &[
            "acl|deluser",
            "acl|load",
            "acl|save",
            "acl|setuser",
            "client|setinfo",
            "client|setname",
            "config|resetstat",
            "config|rewrite",
            "config|set",
            "latency|reset",
            "script|flush",
            "script|load",
            "slowlog|reset",
        ],
    ),
    (
        &["request_policy:all_shards", "response_policy:all_succeeded"],
        &["flushall", "flushdb", "function|delete", "function|flush", "ping", "script|kill"],
    ),
    (&["request_policy:all_shards", "response_policy:agg_sum"], &["dbsize"]),
    (&["request_policy:all_nodes", "response_policy:agg_sum"], &["slowlog|len"]),
    (&["request_policy:all_nodes", "nondeterministic_output"], &["slowlog|get"]),
    (&["request_policy:all_shards", "nondeterministic_output_order"], &["keys"]),
    (&["request_policy:all_shards", "nondeterministic_output"], &["randomkey"]),
    (&["nondeterministic_output", "request_policy:special"], &["scan"]),
    (
        &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        &["info", "memory|doctor", "memory|malloc-stats", "memory|stats"],
    ),
    (
        &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        &["latency|doctor", "latency|graph", "latency|histogram", "latency|history", "latency|latest"],
    ),
    (&["request_policy:multi_shard", "response_policy:agg_sum"], &["del", "exists", "touch", "unlink"]),
    (&["request_policy:multi_shard"], &["mget"]),
    (&["request_policy:multi_shard", "response_policy:all_succeeded"], &["mset"]),
    (&["request_policy:multi_shard", "response_policy:agg_min"], &["msetnx"]),
    (&["request_policy:all_shards", "response_policy:agg_min"], &["wait", "waitaof"]),
];

/// The tips of a command, or of a subcommand by its full name.
pub(super) fn of(name: &str) -> &'static [&'static str] {
    TIPS.iter().find(|(_, names)| names.contains(&name)).map_or(&[], |(tips, _)| tips)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_command_has_one_row() {
        let names: Vec<_> = TIPS.iter().flat_map(|(_, names)| *names).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_eq!(of("del"), ["request_policy:multi_shard", "response_policy:agg_sum"]);
        assert!(of("get").is_empty() && of("config|set").len() == 2);
    }
}
