//! Options that cannot work: refused by opening, by creating a column family and by `set_options`;
//! but corrected if an OPTIONS file has them, so that no database is kept from opening by its own
//! file. RocksDB reads every resulting file.

use karst_engine::format::{Comparator, PrefixExtractor, SliceTransform, UserComparator};
use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::options::{BlockBasedTableOptions, ColumnFamilyOptions, IndexType, OptionSet};
use karst_engine::{
    BottommostLevelCompaction, CompactRangeOptions, Db, ErrorKind, FlushOptions, IngestExternalFileArg,
    Options, SstFileWriter, WriteOptions,
};
use karst_testkit::rocksdb_tools::ldb;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn in_memory() -> Env {
    Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build()
}

fn options(env: &Env) -> Options {
    Options::new().env(env.clone()).set_all("create_if_missing=true;format_version=5").unwrap()
}

/// Options of column families, and the name that the error must contain.
const OF_FAMILIES: [(&str, &str); 24] = [
    ("format_version=0", "format_version"),
    ("format_version=1", "format_version"),
    ("index_type=kHashSearch", "index_type"),
    ("memtable=nosuch", "memtable_factory"),
    ("memtable=vector", "allow_concurrent_memtable_write"),
    ("prefix_extractor=fixed:-1", "prefix_extractor"),
    ("filter_policy=bloomfilter:-1", "filter_policy"),
    ("filter_policy=my.Filter", "filter_policy"),
    ("blob_garbage_collection_age_cutoff=7", "blob_garbage_collection_age_cutoff"),
    ("blob_garbage_collection_force_threshold=-0.5", "blob_garbage_collection_force_threshold"),
    ("merge_operator=my.Operator", "merge_operator"),
    ("compaction_filter=my.Filter", "compaction_filter"),
    ("compaction_filter_factory=my.Factory", "compaction_filter_factory"),
    ("sst_partitioner_factory=my.Partitioner", "sst_partitioner_factory"),
    ("table_properties_collectors={id=my.Collector}", "table_properties_collectors"),
    ("no_block_cache=true;cache_index_and_filter_blocks=true", "no_block_cache"),
    ("no_block_cache=true;pin_l0_filter_and_index_blocks_in_cache=true", "no_block_cache"),
    ("block_align=true", "block_align"),
    ("compression=kNoCompression;block_align=true;block_size=5000", "block_align"),
    ("compression=kXpressCompression", "compression"),
    ("compression_per_level=kNoCompression:kXpressCompression", "compression_per_level"),
    ("blob_compression_type=kXpressCompression", "blob_compression_type"),
    ("data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0", "util_ratio"),
    ("inplace_update_support=true", "inplace_update_support"),
];

#[test]
fn opening_refuses_them_before_anything_is_made() {
    let of_database = [
        ("daily_offpeak_time_utc=at night", "daily_offpeak_time_utc"),
        ("read_io_executor_threads=0", "read_io_executor_threads"),
        (
            "use_direct_io_for_flush_and_compaction=true;writable_file_max_buffer_size=0",
            "writable_file_max_buffer_size",
        ),
    ];
    for (text, named) in OF_FAMILIES.into_iter().chain(of_database) {
        let env = in_memory();
        let error = Db::open("/db", &options(&env).set_all(text).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}: {error}");
        assert!(error.to_string().contains(named), "{text}: {error}");
        assert!(!env.fs().exists(Path::new("/db/CURRENT")).unwrap(), "{text}");
    }
}

#[test]
fn so_do_an_opening_of_what_is_there_and_the_creation_of_a_family() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    for (text, named) in OF_FAMILIES {
        let error = db.create_column_family("new", &options(&env).set_all(text).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}: {error}");
        assert!(error.to_string().contains(named), "{text}: {error}");
    }
    assert_eq!(db.column_families().len(), 1);
    db.close().unwrap();
    drop(db);
    for (text, named) in OF_FAMILIES {
        let given = options(&env).set_all(text).unwrap();
        let error = Db::open("/db", &given).unwrap_err().to_string();
        assert!(error.contains(named) && !error.contains("damaged_options"), "{text}: {error}");
        let missing = given.set("create_missing_column_families", "true").unwrap();
        assert!(Db::open_cf("/db", &missing, &["new"]).is_err(), "{text}");
    }
    assert_eq!(Db::list_column_families("/db", &options(&env)).unwrap(), ["default"]);
    Db::open("/db", &options(&env)).unwrap();
}

#[test]
fn set_options_refuses_them_and_the_next_flush_goes_on() {
    let env = in_memory();
    let db = Db::open("/db", &options(&env)).unwrap();
    let family = db.default_column_family();
    let before = db.get_options(family).unwrap();
    let files = || env.fs().list_dir(Path::new("/db")).unwrap();
    let names = files();
    for (name, value, named) in [
        ("block_based_table_factory", "{format_version=0}", "format_version"),
        ("block_based_table_factory", "{format_version=1}", "format_version"),
        ("block_based_table_factory", "{index_type=kHashSearch}", "index_type"),
        ("block_based_table_factory", "{block_align=true}", "block_align"),
        (
            "block_based_table_factory",
            "{no_block_cache=true;cache_index_and_filter_blocks=true}",
            "no_block_cache",
        ),
        ("blob_garbage_collection_age_cutoff", "7", "blob_garbage_collection_age_cutoff"),
        ("compression", "kXpressCompression", "compression"),
        ("prefix_extractor", "fixed:-1", "prefix_extractor"),
        ("compaction_options_universal", "{max_read_amp=-7}", "max_read_amp"),
    ] {
        let error = db.set_options(family, &[("write_buffer_size", "77777"), (name, value)]).unwrap_err();
        assert!(error.to_string().contains(named), "{name}={value}: {error}");
    }
    let error = db.set_db_options(&[("daily_offpeak_time_utc", "5-6")]).unwrap_err().to_string();
    assert!(error.contains("daily_offpeak_time_utc"), "{error}");
    assert_eq!((db.get_options(family).unwrap(), files()), (before, names));
    db.put("k", "v").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put("k", "w").unwrap();
}

/// Bytewise order under another name.
#[derive(Debug)]
struct OwnOrder;

impl UserComparator for OwnOrder {
    fn name(&self) -> &str {
        "own.Order"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }
}

/// Writes, flushes, compacts and reopens with the options. Returns false if opening refuses them.
fn is_usable(options: &Options, what: &str) -> bool {
    let db = match Db::open("/db", options) {
        Ok(db) => db,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
            return false;
        }
    };
    for value in ["v", "w"] {
        let write = WriteOptions { no_slowdown: true, ..WriteOptions::new() };
        for key in ["a", "b", "c"] {
            let family = db.default_column_family();
            db.put_cf(&write, family, key, value).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        db.flush(&FlushOptions::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let all = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&all, None, None).unwrap_or_else(|e| panic!("{what}: {e}"));
    db.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(db);
    let db = Db::open("/db", options).unwrap_or_else(|e| panic!("{what}, opened again: {e}"));
    assert_eq!(db.get("b").unwrap().unwrap(), b"w", "{what}");
    db.close().unwrap();
    true
}

/// Each honoured table option with each of many values, with a custom comparator and with bytewise
/// order and prefixes: refused by opening, or usable for flushes, compactions and reopening.
#[test]
fn options_of_tables_that_opening_takes_work() {
    let values = [
        "0",
        "3",
        "4294967295",
        "-1",
        "true",
        "false",
        "kHashSearch",
        "kTwoLevelIndexSearch",
        "kBinarySearchWithFirstKey",
        "kDataBlockBinaryAndHash",
        "kInterpolation",
        "kNoChecksum",
        "kCRC32c",
        "kxxHash64",
        "kNoShortening",
        "kShortenSeparatorsAndSuccessor",
        "kFlushOnly",
        "bloomfilter:10",
        "bloomfilter:0",
        "ribbonfilter:10:-1",
        "ribbonfilter:0.1",
        "nullptr",
    ];
    let orders =
        [(Comparator::custom(Arc::new(OwnOrder)), ""), (Comparator::Bytewise, "prefix_extractor=fixed:1")];
    let mut usable = 0;
    for (entry, value) in
        BlockBasedTableOptions::table().iter().flat_map(|entry| values.map(|value| (entry, value)))
    {
        let name = entry.info.name;
        if !entry.info.honoured {
            continue;
        }
        let Ok(given) = Options::new().set(name, value) else { continue };
        let is_a_choice = value.starts_with('k');
        for (order, prefixes) in &orders[..if is_a_choice { 2 } else { 1 }] {
            let given = given.clone().comparator(None, order.clone()).env(in_memory());
            let given = given.set_all(&format!("create_if_missing=true;{prefixes}")).unwrap();
            usable += usize::from(is_usable(&given, &format!("{name}={value} by {}", order.name())));
        }
    }
    assert!(usable > 50, "{usable}");
}

/// Regression test: such a database refused its first flush, because its comparator does not allow
/// what its OPTIONS ask for.
#[test]
fn a_hash_index_in_data_blocks_is_left_out_where_equal_keys_may_differ() {
    let env = in_memory();
    let given = options(&env).comparator(None, Comparator::custom(Arc::new(OwnOrder)));
    let given = given.set("data_block_index_type", "kDataBlockBinaryAndHash").unwrap();
    assert!(is_usable(&given, "kDataBlockBinaryAndHash"));
    // OPTIONS of the database has the option too.
    let plain = options(&env).comparator(None, Comparator::custom(Arc::new(OwnOrder)));
    assert!(is_usable(&plain, "what OPTIONS say"));

    let mut writer = SstFileWriter::create(&given).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put("d", "v").unwrap();
    writer.finish().unwrap();
    let db = Db::open("/db", &given).unwrap();
    let arg = IngestExternalFileArg::new(db.default_column_family(), ["/file.sst"], Default::default());
    db.ingest_external_files(&[arg]).unwrap();
    assert_eq!(db.get("d").unwrap().unwrap(), b"v");
    db.verify_checksum().unwrap();
}

/// Extractor whose prefix is the first byte of a key.
#[derive(Debug)]
struct FirstByte;

impl SliceTransform for FirstByte {
    fn name(&self) -> &str {
        "my.FirstByte"
    }
    fn in_domain(&self, key: &[u8]) -> bool {
        !key.is_empty()
    }
    fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[..1]
    }
}

fn newest_options(path: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().contains("/OPTIONS-"));
    files.sort();
    files.pop().unwrap()
}

/// Lines that an earlier release or another engine has left in OPTIONS.
#[test]
fn what_a_file_says_already_keeps_nobody_from_opening() {
    let collectors = "{{{{id=CompactOnDeletionCollector;window_size=128;deletion_trigger=50;}}}}";
    let collectors = format!("table_properties_collectors={collectors}");
    let of_family = [
        ("memtable_factory=nosuch", Some("memtable_factory")),
        ("prefix_extractor=fixed:-1", Some("prefix_extractor")),
        ("blob_garbage_collection_age_cutoff=7.000000", Some("blob_garbage_collection_age_cutoff")),
        ("merge_operator=my.Operator", Some("merge_operator")),
        ("compaction_filter=my.Filter", Some("compaction_filter")),
        ("compaction_filter_factory=my.Factory", Some("compaction_filter_factory")),
        ("sst_partitioner_factory=my.Partitioner", Some("sst_partitioner_factory")),
        ("inplace_update_support=true", Some("inplace_update_support")),
        (&*collectors, None),
    ];
    let of_tables = [
        "format_version=1",
        "index_type=kHashSearch",
        "filter_policy=bloomfilter:-1",
        "block_align=true",
        "no_block_cache=true\n  cache_index_and_filter_blocks=true",
    ];
    let cases = of_family.map(|(line, said)| ("[CFOptions \"default\"]", line, said)).into_iter();
    let of_tables =
        of_tables.map(|line| ("[TableOptions/BlockBasedTable \"default\"]", line, line.split('=').next()));
    let of_database = [("[DBOptions]", "daily_offpeak_time_utc=at night", Some("daily_offpeak_time_utc"))];
    for (section, line, said) in cases.chain(of_tables).chain(of_database) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let env = Env::posix();
        let plain = Options::new().env(env.clone());
        let db = Db::open(path, &options(&env)).unwrap();
        db.put("a", "1").unwrap();
        db.close().unwrap();
        drop(db);
        let file = newest_options(path);
        let whole = std::fs::read_to_string(&file).unwrap();
        let changed = match line.starts_with("format_version") {
            true => whole.replacen("  format_version=5\n", "", 1),
            false => whole,
        };
        let changed = changed.replacen(&format!("{section}\n"), &format!("{section}\n  {line}\n"), 1);
        std::fs::write(&file, changed).unwrap();
        let read_only = Db::open_read_only(path, &plain).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(read_only.get("a").unwrap().as_deref(), Some(&b"1"[..]), "{line}");
        drop(read_only);
        let db = Db::open(path, &plain).unwrap_or_else(|e| panic!("{line}: {e}"));
        db.put("b", "2").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        db.close().unwrap();
        drop(db);
        if let Some(said) = said {
            let log = std::fs::read_to_string(path.join("LOG")).unwrap();
            let said = log.lines().any(|line| line.contains("[WARN]") && line.contains(said));
            assert!(said, "{line}: {log}");
        }
        // RocksDB reads the resulting file, and KarstDB reads RocksDB's. Compat: 7.8 does not know
        // the option of the collectors.
        let unknown = line.contains("collectors").then_some("--ignore_unknown_options");
        let flags: Vec<&str> = ["--try_load_options"].into_iter().chain(unknown).collect();
        let put = ldb(path, &[&flags[..], &["put", "c", "3"]].concat(), b"");
        put.unwrap_or_else(|e| {
            panic!("{line}: {e}\n{}", std::fs::read_to_string(newest_options(path)).unwrap())
        });
        let db = Db::open(path, &plain).unwrap_or_else(|e| panic!("{line}, after RocksDB: {e}"));
        for (key, value) in [("a", "1"), ("b", "2"), ("c", "3")] {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_bytes()), "{line}");
        }
    }
}

/// A hash index depends on the extractor that the caller supplies, under any name in the file.
#[test]
fn an_index_by_hash_stays_where_there_are_prefixes_and_goes_where_there_are_none() {
    let own = || PrefixExtractor::Custom(Arc::new(FirstByte));
    let index_of =
        |db: &Db| db.get_options(db.default_column_family()).unwrap().table_factory.block_based.index_type;
    // Extractor in the file, one supplied by the caller, and options that the caller sets.
    for (named, supplied, set, stays) in [
        ("my.FirstByte", false, "", false),
        ("my.FirstByte", true, "", true),
        ("nullptr", true, "", true),
        ("nullptr", false, "prefix_extractor=fixed:3", true),
        ("nullptr", false, "", false),
    ] {
        let when = format!("{named} in the file, supplied: {supplied}, set: {set:?}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let db = Db::open(path, &options(&Env::posix())).unwrap();
        db.put("key", "1").unwrap();
        db.close().unwrap();
        drop(db);
        let file = newest_options(path);
        let mut text = std::fs::read_to_string(&file).unwrap();
        for (section, line) in [
            ("[CFOptions \"default\"]", format!("prefix_extractor={named}")),
            ("[TableOptions/BlockBasedTable \"default\"]", "index_type=kHashSearch".into()),
        ] {
            text = text.replacen(section, &format!("{section}\n  {line}"), 1);
        }
        std::fs::write(&file, text).unwrap();
        let plain = Options::new().set_all(set).unwrap();
        let given = if supplied { plain.prefix_extractor(None, own()) } else { plain };
        let db = Db::open(path, &given).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert_eq!(index_of(&db) == IndexType::HashSearch, stays, "{when}");
        db.put("key", "2").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"2"[..]), "{when}");
        db.close().unwrap();
        drop(db);
        Db::open(path, &given).unwrap_or_else(|e| panic!("{when}, and once more: {e}"));
    }
}

/// Forms that RocksDB cannot read are not written, and its old names are accepted.
#[test]
fn what_is_accepted_leaves_a_file_that_rocksdb_opens() {
    for text in [
        "filter_policy=rocksdb.internal.DeprecatedBlockBasedBloomFilter:10",
        "filter_policy=rocksdb.internal.LegacyBloomFilter:10",
        "table_properties_collectors={{id=CompactOnDeletionCollector;window_size=128;deletion_trigger=50;}}",
        "table_properties_collectors={{{{id=CompactOnDeletionCollector;window_size=128;deletion_trigger=50;}}}}",
        "compression=kNoCompression;block_align=true;block_size=8192",
        "no_block_cache=true",
        "prefix_extractor=fixed:2;index_type=kHashSearch",
        "memtable=skip_list",
        "daily_offpeak_time_utc=23\\:30-04\\:30",
        "recycle_log_file_num=2",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let db = Db::open(path, &options(&Env::posix()).set_all(text).unwrap());
        let db = db.unwrap_or_else(|e| panic!("{text}: {e}"));
        db.put("key", "value").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        db.close().unwrap();
        drop(db);
        let got = ldb(path, &["--try_load_options", "--ignore_unknown_options", "get", "key"], b"");
        assert_eq!(got.as_deref(), Ok("value\n"), "{text}");
        Db::open(path, &Options::new()).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
}

/// Treatment of an object that an option names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The object is available.
    Served,
    /// The database is opened, and LOG names the option.
    Told,
    /// Like `Told` if a file names it. A caller that sets it is refused.
    RefusedWhenSet,
}

/// The objects that RocksDB creates from text itself, and those of its utilities that it creates
/// once their library is registered (`Cassandra`, `Ttl`).
const BUILT_IN: &[(&str, &[&str], Fate)] = &[
    (
        "comparator",
        &[
            "leveldb.BytewiseComparator",
            "rocksdb.ReverseBytewiseComparator",
            "leveldb.BytewiseComparator.u64ts",
            "rocksdb.ReverseBytewiseComparator.u64ts",
        ],
        Fate::Served,
    ),
    (
        "merge_operator",
        &[
            "nullptr",
            "StringAppendOperator",
            "stringappend",
            "{id=StringAppendOperator;delimiter=|;}",
            "StringAppendTESTOperator",
            "stringappendtest",
            "MergeSortOperator",
            "sortlist",
            "BytesXOR",
            "{id=bytesxor}",
            "UInt64AddOperator",
            "uint64add",
            "MaxOperator",
            "max",
            "PutOperator",
            "put",
            "put_v1",
        ],
        Fate::Served,
    ),
    ("merge_operator", &["CassandraValueMergeOperator", "TtlMergeOperator"], Fate::RefusedWhenSet),
    (
        "compaction_filter",
        &["nullptr", "RemoveEmptyValueCompactionFilter", "{id=RemoveEmptyValueCompactionFilter;}"],
        Fate::Served,
    ),
    ("compaction_filter", &["CassandraCompactionFilter", "TtlCompactionFilter"], Fate::RefusedWhenSet),
    (
        "compaction_filter_factory",
        &["CassandraCompactionFilterFactory", "TtlCompactionFilterFactory"],
        Fate::RefusedWhenSet,
    ),
    (
        "prefix_extractor",
        &[
            "nullptr",
            "fixed:4",
            "capped:4",
            "rocksdb.FixedPrefix.4",
            "rocksdb.CappedPrefix.4",
            "rocksdb.Noop",
            "{id=rocksdb.FixedPrefix.4;}",
            "{id=capped:4}",
        ],
        Fate::Served,
    ),
    ("memtable_factory", &["SkipListFactory"], Fate::Served),
    (
        "memtable_factory",
        &[
            "skip_list",
            "skip_list:16",
            "{id=SkipListFactory;lookahead=8;}",
            "vector",
            "VectorRepFactory:100",
            "{id=VectorRepFactory;count=100;}",
            "prefix_hash",
            "prefix_hash:1000",
            "{id=HashSkipListRepFactory;bucket_count=1000;}",
            "hash_linkedlist",
            "hash_linkedlist:1000",
            "{id=HashLinkListRepFactory;threshold=64;}",
        ],
        Fate::Told,
    ),
    ("memtable_insert_with_hint_prefix_extractor", &["fixed:3", "rocksdb.CappedPrefix.3"], Fate::Told),
    (
        "sst_partitioner_factory",
        &[
            "nullptr",
            "SstPartitionerFixedPrefixFactory",
            "{id=SstPartitionerFixedPrefixFactory;length=3;}",
            "{id=SstPartitionerFixedPrefix;length=3;}",
        ],
        Fate::Served,
    ),
    (
        "table_properties_collectors",
        &[
            "nullptr",
            "CompactOnDeletionCollector",
            "{id=CompactOnDeletionCollector;window_size=128;deletion_trigger=50;}",
            "{{id=CompactOnDeletionCollector;window_size=128}:{id=CompactOnDeletionCollector;deletion_ratio=0.5}}",
        ],
        Fate::Served,
    ),
    (
        "table_properties_collectors",
        &[
            "CompactForTieringCollector",
            "{id=CompactForTieringCollector;compaction_trigger_ratio=0.1;}",
            "{{id=CompactOnDeletionCollector;window_size=128}:{id=CompactForTieringCollector}}",
        ],
        Fate::Told,
    ),
    ("compression_manager", &["nullptr"], Fate::Served),
    ("compression_manager", &["BuiltinV2"], Fate::Told),
    ("blob_cache", &["nullptr", "1M", "{id=LRUCache;capacity=1M}"], Fate::Served),
    ("blob_cache", &["{id=HyperClockCache;capacity=1M;num_shard_bits=4}"], Fate::Told),
    (
        "block_cache",
        &[
            "nullptr",
            "1M",
            "capacity=1M",
            "{id=LRUCache;capacity=1M;strict_capacity_limit=false;high_pri_pool_ratio=0.5;}",
        ],
        Fate::Served,
    ),
    (
        "block_cache",
        &[
            "{id=LRUCache;capacity=1M;num_shard_bits=4;low_pri_pool_ratio=0.1}",
            "{id=HyperClockCache;capacity=1M}",
            "{id=FixedHyperClockCache;capacity=1M;estimated_entry_charge=8192}",
            "{id=AutoHyperClockCache;capacity=1M;min_avg_entry_charge=450}",
        ],
        Fate::Told,
    ),
    (
        "filter_policy",
        &[
            "nullptr",
            "rocksdb.BuiltinBloomFilter",
            "bloomfilter:10",
            "bloomfilter:10:false",
            "bloomfilter:10:true",
            "{id=bloomfilter:10:false;}",
            "rocksdb.BloomFilter:10",
            "ribbonfilter:10",
            "ribbonfilter:10:-1",
            "rocksdb.RibbonFilter:10:2",
            "{id=ribbonfilter:10:-1;bloom_before_level=-1;}",
            "rocksdb.internal.LegacyBloomFilter:10",
            "rocksdb.internal.FastLocalBloomFilter:10",
            "rocksdb.internal.Standard128RibbonFilter:10",
        ],
        Fate::Served,
    ),
    ("flush_block_policy_factory", &["FlushBlockBySizePolicyFactory"], Fate::Served),
    ("flush_block_policy_factory", &["FlushBlockEveryKeyPolicyFactory"], Fate::Told),
    ("user_defined_index_factory", &["trie_index"], Fate::Told),
    (
        "file_checksum_gen_factory",
        &["nullptr", "FileChecksumGenCrc32cFactory", "{id=FileChecksumGenCrc32cFactory;}"],
        Fate::Served,
    ),
    ("statistics", &["BasicStatistics", "{id=BasicStatistics;}"], Fate::Told),
    ("rate_limiter_bytes_per_sec", &["1048576"], Fate::Told),
    ("env", &["PosixEnv", "{id=CompositeEnv;}"], Fate::Told),
];

/// Returns the section of OPTIONS that an option belongs to.
fn section_of(option: &str) -> &'static str {
    if BlockBasedTableOptions::entry(option).is_some() {
        "[TableOptions/BlockBasedTable \"default\"]"
    } else if ColumnFamilyOptions::entry(option).is_some() {
        "[CFOptions \"default\"]"
    } else {
        "[DBOptions]"
    }
}

/// Returns the text of OPTIONS with an option set, replacing its old line if it had one.
fn with_line(options: &str, option: &str, value: &str) -> String {
    let section = section_of(option);
    let mut inside = false;
    let mut lines = Vec::new();
    for line in options.lines() {
        inside = if line.starts_with('[') { line == section } else { inside };
        if !(inside && line.trim_start().starts_with(&format!("{option}="))) {
            lines.push(line.to_owned());
        }
        if line == section {
            lines.push(format!("  {option}={value}"));
        }
    }
    lines.join("\n") + "\n"
}

/// Each object that RocksDB builds in, in an option string and in an OPTIONS file: none keeps a
/// database from opening, and LOG names those without effect.
#[test]
fn objects_that_rocksdb_builds_in_are_served_or_told() {
    let named = BUILT_IN
        .iter()
        .flat_map(|(option, texts, fate)| texts.iter().map(move |text| (*option, *text, *fate)));
    for (option, text, fate) in named {
        let case = format!("{option}={text}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let plain =
            Options::new().set_all("create_if_missing=true;allow_concurrent_memtable_write=false").unwrap();
        let given = plain.clone().set_all(&case).unwrap_or_else(|e| panic!("{case}: {e}"));
        let is_told = || {
            let log = std::fs::read_to_string(path.join("LOG")).unwrap();
            let told = log.lines().any(|line| line.contains("[WARN]") && line.contains(option));
            assert_eq!(told, fate != Fate::Served, "{case}: {log}");
        };
        let use_it = |db: Db| {
            let family = db.default_column_family();
            let said = db.get_options(family).unwrap();
            if !said.comparator.id().is_some_and(|name| name.ends_with(".u64ts")) {
                db.put("key", "12345678").unwrap();
                db.flush(&FlushOptions::default()).unwrap();
                if fate == Fate::Served && said.merge_operator.text().is_some() {
                    db.merge("key", "12345678").unwrap();
                }
                assert!(db.get("key").unwrap().is_some(), "{case}");
                let all = CompactRangeOptions::default();
                db.compact_range(&all, None, None).unwrap_or_else(|e| panic!("{case}: {e}"));
            }
            db.close().unwrap();
        };
        match Db::open(path, &given) {
            Ok(db) => {
                assert_ne!(fate, Fate::RefusedWhenSet, "{case}");
                use_it(db);
                is_told();
            }
            Err(error) => {
                assert_eq!(fate, Fate::RefusedWhenSet, "{case}: {error}");
                assert!(error.to_string().contains(option), "{case}: {error}");
                use_it(Db::open(path, &plain).unwrap());
            }
        }
        let file = newest_options(path);
        let whole = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, with_line(&whole, option, text)).unwrap();
        use_it(Db::open(path, &Options::new()).unwrap_or_else(|e| panic!("{case}, in OPTIONS: {e}")));
        is_told();
    }
}

#[test]
fn a_family_that_is_not_there_is_told_with_the_calls_that_create_it() {
    let env = in_memory();
    drop(Db::open("/db", &options(&env)).unwrap());
    let named = options(&env).column_family("users", |family| family.write_buffer_size = 1 << 20);
    for error in
        [Db::open("/db", &named).unwrap_err(), Db::open_cf("/db", &options(&env), &["users"]).unwrap_err()]
    {
        let text = error.to_string();
        for part in ["found: users;", "create_column_family", "create_missing_column_families"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
