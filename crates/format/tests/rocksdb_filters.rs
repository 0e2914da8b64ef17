//! Filters of RocksDB 7.8, of every kind that it writes: no key is denied, false positives are
//! within the policy's rate, and filters built here from the same keys have equal bits.
//!
//! Needs Debian's rocksdb-tools, like the other tests against RocksDB.

mod support;

use karst_format::filter::policy::FilterContext;
use karst_format::filter::{FilterBitsBuilder, FilterBuilder, FilterPolicy, FilterReader, hash64};
use karst_format::key;
use karst_format::slice_transform::PrefixExtractor;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use support::Table;

/// A filter policy and the other options that affect the filter.
struct Case {
    policy: &'static str,
    format_version: u32,
    /// Lines of `[CFOptions]` and of the table options.
    cf_options: &'static str,
    table_options: &'static str,
    /// Kind of the filter, as [`FilterReader::describe`] returns it.
    kind: &'static str,
    /// Maximum number of a thousand foreign keys that match.
    false_positives: f64,
}

const PARTITIONED: &str =
    "  index_type=kTwoLevelIndexSearch\n  partition_filters=true\n  metadata_block_size=1024\n";
// The first eight bytes of the keys are a counter: 256 keys share a prefix of seven bytes, all
// prefixes of eight differ.
const PREFIX: &str = "  prefix_extractor=rocksdb.FixedPrefix.7\n";
const LONG_PREFIX: &str = "  prefix_extractor=capped:8\n";

const CASES: &[Case] = &[
    Case {
        policy: "bloomfilter:10:false",
        format_version: 5,
        cf_options: "",
        table_options: "",
        kind: "fast local Bloom, 6 probes",
        false_positives: 11.5,
    },
    Case {
        policy: "bloomfilter:4.5:false",
        format_version: 5,
        cf_options: "",
        table_options: "",
        kind: "fast local Bloom, 3 probes",
        false_positives: 150.0,
    },
    Case {
        policy: "bloomfilter:20:false",
        format_version: 5,
        cf_options: "",
        table_options: "  optimize_filters_for_memory=true\n",
        kind: "fast local Bloom",
        false_positives: 1.0,
    },
    Case {
        policy: "bloomfilter:10:false",
        format_version: 4,
        cf_options: "",
        table_options: "",
        kind: "legacy Bloom, 6 probes",
        false_positives: 15.0,
    },
    Case {
        policy: "bloomfilter:7:false",
        format_version: 2,
        cf_options: "",
        table_options: "",
        kind: "legacy Bloom, 4 probes",
        false_positives: 60.0,
    },
    Case {
        policy: "ribbonfilter:10:-1",
        format_version: 5,
        cf_options: "",
        table_options: "",
        kind: "Standard128 Ribbon",
        false_positives: 11.5,
    },
    Case {
        policy: "ribbonfilter:17.5:-1",
        format_version: 5,
        cf_options: "",
        table_options: "",
        kind: "Standard128 Ribbon",
        false_positives: 1.0,
    },
    Case {
        policy: "bloomfilter:10:false",
        format_version: 5,
        cf_options: PREFIX,
        table_options: "",
        kind: "fast local Bloom, 6 probes",
        false_positives: 11.5,
    },
    Case {
        policy: "bloomfilter:10:false",
        format_version: 4,
        cf_options: LONG_PREFIX,
        table_options: "  whole_key_filtering=false\n",
        kind: "legacy Bloom, 6 probes",
        false_positives: 20.0,
    },
    Case {
        policy: "ribbonfilter:10:-1",
        format_version: 5,
        cf_options: PREFIX,
        table_options: "",
        kind: "Standard128 Ribbon",
        false_positives: 11.5,
    },
    Case {
        policy: "bloomfilter:10:false",
        format_version: 5,
        cf_options: PREFIX,
        table_options: PARTITIONED,
        kind: "",
        false_positives: 11.5,
    },
    Case {
        policy: "ribbonfilter:10:-1",
        format_version: 5,
        cf_options: "",
        table_options: PARTITIONED,
        kind: "",
        false_positives: 12.5,
    },
    Case {
        policy: "bloomfilter:10:false",
        format_version: 3,
        cf_options: "",
        table_options: PARTITIONED,
        kind: "",
        false_positives: 16.0,
    },
];

fn make(dir: &Path, case: &Case) -> Vec<Table> {
    let db = dir.join("db");
    let options = dir.join("options.ini");
    let text = format!(
        "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n[DBOptions]\n  create_if_missing=true\n\
         [CFOptions \"default\"]\n  disable_auto_compactions=true\n{}\n\
         [TableOptions/BlockBasedTable \"default\"]\n  filter_policy={}\n  format_version={}\n{}\n",
        case.cf_options, case.policy, case.format_version, case.table_options
    );
    fs::write(&options, text).unwrap();
    let flags = [format!("-db={}", db.display()), format!("-options_file={}", options.display())];
    // Keys are the number in eight bytes, big-endian, followed by "00000000".
    let run = ["-benchmarks=fillrandom,flush", "-num=30000", "-value_size=8", "-seed=7"];
    let all: Vec<&str> = flags.iter().map(String::as_str).chain(run).collect();
    support::tool("db_bench", &all);
    let mut tables = Vec::new();
    for entry in fs::read_dir(&db).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".sst") {
            tables.push(Table::open(&path));
        }
        if name.starts_with("OPTIONS-") {
            // The option string that RocksDB prints parses to an equal policy here.
            let text = fs::read_to_string(&path).unwrap();
            let line = text.lines().find_map(|l| l.trim().strip_prefix("filter_policy=")).unwrap();
            assert_eq!(
                FilterPolicy::from_option_string(line).unwrap(),
                FilterPolicy::from_option_string(case.policy).unwrap(),
                "{line}"
            );
        }
    }
    assert!(!tables.is_empty());
    tables
}

#[test]
fn filters_of_every_kind() {
    for case in CASES {
        let about = format!(
            "{} in format_version {}, {:?} {:?}",
            case.policy, case.format_version, case.cf_options, case.table_options
        );
        let dir = tempfile::tempdir().unwrap();
        for table in make(dir.path(), case) {
            let entries = table.scan().unwrap();
            let mut keys: Vec<&[u8]> = entries.iter().map(|(k, _)| key::user_key(k)).collect();
            keys.dedup();
            assert!(keys.len() > 10_000, "{about}");
            assert_eq!(table.footer.format_version, case.format_version);
            let policy = FilterPolicy::from_option_string(case.policy).unwrap().unwrap();
            assert_eq!(table.properties.filter_policy_name, policy.property_name(), "{about}");

            let whole_keys = table.properties.whole_key_filtering();
            let prefixes = PrefixExtractor::from_name(&table.properties.prefix_extractor_name)
                .filter(|_| table.properties.prefix_filtering());
            assert_eq!(whole_keys, !case.table_options.contains("whole_key_filtering=false"));
            assert_eq!(prefixes.is_some(), !case.cf_options.is_empty(), "{about}");
            let asked = |key: &[u8]| table.may_contain(key).unwrap().unwrap();
            let Some(block) = table.full_filter().unwrap() else {
                assert!(case.table_options.contains("partition_filters"), "{about}");
                assert!(table.properties.index_partitions > 3, "{about}");
                assert!(!whole_keys || keys.iter().all(|k| asked(k)), "{about}");
                let passed = foreign(&keys).into_iter().filter(|k| asked(k)).count();
                assert!(passed as f64 / 30.0 < case.false_positives, "{about}: {passed} in 30000");
                continue;
            };

            let filter = FilterReader::parse(&block);
            assert!(filter.describe().starts_with(case.kind), "{about}: {}", filter.describe());
            assert!(!whole_keys || keys.iter().all(|k| filter.may_match_key(k) && asked(k)), "{about}");
            if let Some(prefixes) = &prefixes {
                assert!(keys.iter().all(|k| filter.may_match_key(prefixes.transform(k))), "{about}");
            }
            let passed = foreign(&keys).into_iter().filter(|k| filter.may_match_key(k)).count();
            assert!(passed as f64 / 30.0 < case.false_positives, "{about}: {passed} in 30000");
            assert!(passed as f64 / 30.0 > case.false_positives / 10.0, "{about}: {passed} in 30000");

            let context = FilterContext { format_version: case.format_version, level: Some(-1) };
            let bits = policy.builder(context).unwrap();
            let mut builder = FilterBuilder::new(bits.clone(), prefixes.clone(), whole_keys);
            keys.iter().for_each(|k| builder.add(k));
            let mut old_order = bits;
            add_as_release_7(&mut old_order, &keys, prefixes.as_ref(), whole_keys);
            let entries = table.properties.num_filter_entries;
            assert_eq!(entries, old_order.len() as u64, "{about}");
            assert_eq!(entries, builder.entries() as u64 + u64::from(!whole_keys), "{about}");
            let built = old_order.finish();
            let new_order = FilterReader::parse(&builder.finish().unwrap());
            assert!(!whole_keys || keys.iter().all(|k| new_order.may_match_key(k)), "{about}");
            if let Some(prefixes) = &prefixes {
                assert!(keys.iter().all(|k| new_order.may_match_key(prefixes.transform(k))), "{about}");
            }
            if !case.table_options.contains("optimize_filters_for_memory") {
                assert_eq!(built.len(), block.len(), "{about}");
                assert!(*built == *block, "{about}: the bits differ");
            }
        }
    }
}

/// Adds keys in the order of release 7.8, which determines a Ribbon's seed: a key before its
/// prefix. (Release 11.8, like the builder here, adds the prefix first.) Without whole keys 7.8
/// adds an empty prefix behind the first one.
fn add_as_release_7(
    bits: &mut FilterBitsBuilder,
    keys: &[&[u8]],
    prefixes: Option<&PrefixExtractor>,
    whole_keys: bool,
) {
    let mut last: Option<&[u8]> = None;
    for key in keys {
        if whole_keys {
            bits.add_key(key);
        }
        let Some(prefixes) = prefixes else { continue };
        let prefix = prefixes.transform(key);
        if last.replace(prefix) != Some(prefix) {
            bits.add_key(prefix);
        }
        if !whole_keys && bits.len() == 1 {
            bits.add_key(b"");
        }
    }
}

/// Returns thirty thousand keys of the same form that are not among `keys`.
fn foreign(keys: &[&[u8]]) -> Vec<[u8; 16]> {
    let present: HashSet<&[u8]> = keys.iter().copied().collect();
    let mut foreign = Vec::new();
    for n in 0u64.. {
        let mut key = *b"000000000000000\0";
        key[..8].copy_from_slice(&(hash64(&n.to_le_bytes()) % 30_000).to_be_bytes());
        key[8..].copy_from_slice(&n.to_be_bytes());
        if !present.contains(&key[..]) {
            foreign.push(key);
        }
        if foreign.len() == 30_000 {
            break;
        }
    }
    foreign
}
