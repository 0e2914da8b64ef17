//! Known differences and failures, each with its reason and a count of its occurrences.
//!
//! [`RULES`] replace drawn options with which one engine fails or that only one engine refuses.
//! [`DIFFERENCES`] are answers that may differ. No other part of the driver tolerates a difference;
//! docs/decisions/lockstep.md lists the options and operations that it does not draw.

use super::engine::{Answer, Op, Policy};
use super::life::agree;
use super::options::Lines;
use std::collections::BTreeMap;

/// Number of occurrences of each entry, by name.
pub(super) type Tally = BTreeMap<&'static str, u64>;

/// Options as they were drawn.
struct Drawn<'a> {
    database: &'a Lines,
    /// Options of the family and of its tables; None while the rules of the database apply.
    family: Option<(&'a Lines, &'a Lines)>,
    policy: Option<Policy>,
    /// True if logs were recycled in an earlier life.
    recycled: bool,
}

impl Drawn<'_> {
    fn has(&self, name: &str, value: &str) -> bool {
        self.database.get(name).is_some_and(|v| v == value)
    }

    fn family(&self, name: &str) -> &str {
        self.family.and_then(|(family, _)| family.get(name)).map_or("", String::as_str)
    }

    fn table(&self, name: &str) -> &str {
        self.family.and_then(|(_, table)| table.get(name)).map_or("", String::as_str)
    }
}

/// A combination of options, or an option, that is not used.
struct Rule {
    name: &'static str,
    /// The reason: the effect of these options.
    why: &'static str,
    applies: fn(&Drawn<'_>) -> bool,
    /// Option and the value that replaces the drawn one; an empty value leaves the option out.
    instead: (&'static str, &'static str),
}

const RULES_OF_DATABASE: &[Rule] = &[
    Rule {
        name: "manual_wal_flush with unordered_write",
        why: "RocksDB 11.8 takes the mutex of its log a second time on the thread that has it (`ConcurrentWriteGroupToWAL`, then `WriteToWAL`), and never goes on, unless there are two queues",
        applies: |o| o.has("unordered_write", "true") && o.has("two_write_queues", "false"),
        instead: ("manual_wal_flush", "false"),
    },
    Rule {
        name: "unordered_write with WriteCommitted",
        why: "RocksDB refuses to open transactions of this policy so; KarstDB's reads keep their promises with it",
        applies: |o| o.policy == Some(Policy::WriteCommitted),
        instead: ("unordered_write", "false"),
    },
    Rule {
        name: "unordered_write with WritePrepared and one queue",
        why: "RocksDB refuses it",
        applies: |o| o.policy == Some(Policy::WritePrepared) && o.has("two_write_queues", "false"),
        instead: ("unordered_write", "false"),
    },
    Rule {
        name: "two_write_queues with enable_pipelined_write",
        why: "RocksDB opens, and then refuses every write (`pipelined_writes is not compatible with concurrent prepares`); KarstDB refuses to open",
        applies: |o| o.has("two_write_queues", "true"),
        instead: ("enable_pipelined_write", "false"),
    },
    Rule {
        name: "open_files_async",
        why: "RocksDB refuses it with FIFO compaction, which a family may have; KarstDB takes it",
        applies: |_| true,
        instead: ("open_files_async", "false"),
    },
    Rule {
        name: "enable_pipelined_write with WritePrepared",
        why: "RocksDB opens, and then refuses every write (`pipelined_writes is not compatible with seq_per_batch`); KarstDB writes the same with and without it",
        applies: |o| o.policy == Some(Policy::WritePrepared),
        instead: ("enable_pipelined_write", "false"),
    },
    Rule {
        name: "kAbsoluteConsistency behind recycled logs",
        why: "what is left of an older log behind the end of a recycled one may look like half a record, which this mode does not excuse, in either engine",
        applies: |o| o.recycled && o.has("wal_recovery_mode", "kAbsoluteConsistency"),
        instead: ("wal_recovery_mode", "kPointInTimeRecovery"),
    },
    Rule {
        name: "allow_mmap_writes without allow_fallocate",
        why: "RocksDB extends no file that it maps then, and ends with a bus error in its first flush",
        applies: |o| o.has("allow_mmap_writes", "true"),
        instead: ("allow_fallocate", "true"),
    },
];

const RULES: &[Rule] = &[
    Rule {
        name: "partition_filters without kTwoLevelIndexSearch",
        why: "RocksDB ends with a segmentation fault in its first flush (`PartitionedFilterBlockBuilder::OnDataBlockFinalized`) if they are set by strings; its documentation says that they are ignored then, as KarstDB does",
        applies: |o| o.table("index_type") != "kTwoLevelIndexSearch",
        instead: ("partition_filters", "false"),
    },
    Rule {
        name: "kHashSearch with index_block_restart_interval",
        why: "RocksDB means to take it for 1, but not where options are set by strings, and then cannot read its own tables (`bad entry in block`)",
        applies: |o| o.table("index_type") == "kHashSearch",
        instead: ("index_block_restart_interval", "1"),
    },
    Rule {
        name: "hashed memtables with keys that have no prefix",
        why: "RocksDB takes the prefix of every key, also of those too short to have one, whose bytes then go on into the sequence number",
        applies: |o| {
            !o.family("prefix_extractor").starts_with("rocksdb.CappedPrefix")
                && ["prefix_hash", "hash_linkedlist"].contains(&o.family("memtable_factory"))
        },
        instead: ("memtable_factory", "SkipListFactory"),
    },
    Rule {
        name: "memtables without a skip list, with WritePrepared",
        why: "RocksDB refuses those that hold no key twice; KarstDB has a skip list whatever is asked for",
        applies: |o| o.policy == Some(Policy::WritePrepared),
        instead: ("memtable_factory", "SkipListFactory"),
    },
    Rule {
        name: "memtables without a skip list, with concurrent inserts",
        why: "both refuse it, so it would hardly ever be seen at work",
        applies: |o| o.has("allow_concurrent_memtable_write", "true"),
        instead: ("memtable_factory", "SkipListFactory"),
    },
    Rule {
        name: "memtable_verify_per_key_checksum_on_seek without a skip list",
        why: "RocksDB's other memtables refuse to seek then (`SeekAndValidate() not implemented`)",
        applies: |o| o.family("memtable_factory") != "SkipListFactory",
        instead: ("memtable_verify_per_key_checksum_on_seek", "false"),
    },
    Rule {
        name: "block_align with compression",
        why: "both refuse it, so it would hardly ever be seen at work",
        applies: |o| {
            o.family("compression") != "kNoCompression" || o.family("bottommost_compression") == "kZSTD"
        },
        instead: ("block_align", "false"),
    },
    Rule {
        name: "preclude_last_level_data_seconds",
        why: "RocksDB's compactions fail with it where values are in blob files, which an operation may turn on at any time: \"while stat a file for size\" of an output that came out empty; then the database takes no more writes",
        applies: |_| true,
        instead: ("preclude_last_level_data_seconds", "0"),
    },
    Rule {
        name: "preserve_internal_time_seconds",
        why: "RocksDB leaves the sequence numbers of the last level as they are with it, and therefore compacts the level's files for ever (`BottommostFiles`); `WaitForCompact` never returns",
        applies: |_| true,
        instead: ("preserve_internal_time_seconds", "0"),
    },
    Rule {
        name: "bottommost_file_compaction_delay with WritePrepared",
        why: "RocksDB compacts files of the last level for ever (`BottommostFiles`) that have entries of a transaction still undecided, as it cannot make their sequence numbers 0; `WaitForCompact` never returns",
        applies: |o| o.policy == Some(Policy::WritePrepared),
        instead: ("bottommost_file_compaction_delay", "3600"),
    },
    Rule {
        name: "no_block_cache with metadata in the block cache",
        why: "both refuse it when they open, but RocksDB does not look when a family is created",
        applies: |o| {
            o.table("cache_index_and_filter_blocks") == "true"
                || o.table("pin_l0_filter_and_index_blocks_in_cache") == "true"
        },
        instead: ("no_block_cache", "false"),
    },
    Rule {
        name: "max_successive_merges with unordered_write",
        why: "both refuse it",
        applies: |o| o.has("unordered_write", "true"),
        instead: ("max_successive_merges", "0"),
    },
    Rule {
        name: "kHashSearch with keys that have no prefix",
        why: "RocksDB takes the prefix of every key there too, and a get does not find those too short to have one; without any extractor both refuse it",
        applies: |o| {
            !o.family("prefix_extractor").starts_with("rocksdb.CappedPrefix")
                && o.table("index_type") == "kHashSearch"
        },
        instead: ("index_type", "kBinarySearch"),
    },
    Rule {
        name: "kInterpolation with another order than bytewise",
        why: "both refuse it",
        applies: |o| o.family("comparator") != "leveldb.BytewiseComparator",
        instead: ("index_block_search_type", "kBinary"),
    },
];

/// Answers that may differ.
struct Difference {
    name: &'static str,
    why: &'static str,
    explains: fn(&Met<'_>) -> bool,
}

/// The answers to one operation, not all equal.
pub(super) struct Met<'a> {
    pub(super) op: &'a Op,
    pub(super) karst: &'a Answer,
    pub(super) rocks: &'a Answer,
    pub(super) model: &'a Answer,
    pub(super) policy: Option<Policy>,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "a secondary of RocksDB shows another state",
        why: "it misses entries, on the directory of RocksDB's primary as well as of KarstDB's; seen with logs that are recycled, compressed or mapped, and with entries that are not logged. KarstDB's secondary must show the state of the last catch-up, whichever engine the primary is of",
        explains: |met| matches!(met.op, Op::ReadSecondary { .. }) && agree(met.karst, met.model),
    },
    Difference {
        name: "key_may_exist tells of an empty value",
        why: "where an index or filter is not in the cache, RocksDB says that the key may be there and that its value was found, and leaves the value empty",
        explains: |met| {
            matches!(met.op, Op::MayExist { .. })
                && matches!(met.rocks, Answer::May(true, Some(value)) if value.is_empty())
                && agree(met.karst, met.model)
        },
    },
    Difference {
        name: "num-snapshots counts what iterators hold",
        why: "under WritePrepared RocksDB's iterators take snapshots, and it counts them",
        explains: |met| {
            let is_asked = matches!(met.op, Op::Property { name: "rocksdb.num-snapshots", .. });
            let more = matches!((met.rocks, met.model), (Answer::Number(Some(rocks)), Answer::Number(Some(model))) if rocks > model);
            is_asked && met.policy == Some(Policy::WritePrepared) && more && agree(met.karst, met.model)
        },
    },
];

fn take_back(rules: &[Rule], drawn: &Drawn<'_>, tally: &mut Tally) -> Vec<(&'static str, &'static str)> {
    let mut all = Vec::new();
    for rule in rules.iter().filter(|rule| (rule.applies)(drawn)) {
        let (option, value) = rule.instead;
        let has = [Some(drawn.database), drawn.family.map(|(f, _)| f), drawn.family.map(|(_, t)| t)]
            .into_iter()
            .flatten()
            .find_map(|lines| lines.get(option));
        if has.is_some_and(|has| has != value) {
            *tally.entry(rule.name).or_default() += 1;
            all.push(rule.instead);
        }
    }
    all
}

fn change(lines: &mut Lines, (name, value): (&'static str, &'static str)) {
    if !lines.contains_key(name) {
        return;
    }
    match value {
        "" => lines.remove(name),
        _ => lines.insert(name, value.into()),
    };
}

/// Applies the rules to the options of a database.
pub(super) fn take_back_of_database(
    database: &mut Lines,
    (policy, recycled): (Option<Policy>, bool),
    tally: &mut Tally,
) {
    let drawn = Drawn { database, family: None, policy, recycled };
    for instead in take_back(RULES_OF_DATABASE, &drawn, tally) {
        change(database, instead);
    }
}

/// Applies the rules to the options of a family.
pub(super) fn take_back_of_family(
    family: &mut Lines,
    table: &mut Lines,
    (database, policy): (&Lines, Option<Policy>),
    tally: &mut Tally,
) {
    let drawn = Drawn { database, family: Some((family, table)), policy, recycled: false };
    for instead in take_back(RULES, &drawn, tally) {
        change(family, instead);
        change(table, instead);
    }
}

/// Returns the reason of an entry.
pub(super) fn why(name: &str) -> &'static str {
    let rules = RULES_OF_DATABASE.iter().chain(RULES).map(|rule| (rule.name, rule.why));
    let differences = DIFFERENCES.iter().map(|difference| (difference.name, difference.why));
    rules.chain(differences).find(|(other, _)| *other == name).map_or("", |(_, why)| why)
}

/// Returns true, and counts the entry, if the list explains the difference.
pub(super) fn explains(met: &Met<'_>, tally: &mut Tally) -> bool {
    let explained = DIFFERENCES.iter().find(|difference| (difference.explains)(met));
    if let Some(difference) = explained {
        *tally.entry(difference.name).or_default() += 1;
    }
    explained.is_some()
}
