//! Tests of the option tables against OPTIONS files of RocksDB, and of the syntax around them.
use super::choice::{Compression, IndexType, WalRecoveryMode};
use super::nested::CompressionOptions;
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

/// Checks that names, aliases and retired names of a table are unique, and that every row prints
/// the value it parses.
fn check_table<S: OptionSet + PartialEq + std::fmt::Debug>() {
    let mut names = HashSet::new();
    for entry in S::table() {
        assert!(names.insert(entry.info.name), "{} is declared twice", entry.info.name);
        assert!(!entry.info.meaning.is_empty());
        assert_eq!(entry.info.section, S::SECTION);
    }
    for (alias, own) in S::ALIASES {
        assert!(names.insert(alias), "{alias} is an alias and a name");
        assert!(S::entry(own).is_some(), "{own} is not declared");
    }
    for retired in S::RETIRED {
        assert!(names.insert(retired), "{retired} is retired and a name");
    }
    let mut copy = S::default();
    for entry in S::table().iter().filter(|entry| entry.info.kind != "object without text") {
        let text = copy.get(entry.info.name).unwrap();
        copy.set(entry.info.name, &text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    }
    assert_eq!(copy, S::default());
    copy.set_all(&S::default().to_text()).unwrap();
    assert_eq!(copy, S::default());
    assert!(copy.changed().is_empty());
}

#[test]
fn what_has_no_effect_is_named_inside_of_nested_options_too() {
    let (before, mut now) = (ColumnFamilyOptions::default(), ColumnFamilyOptions::default());
    now.set_all("compression_opts={level=5;checksum=true};bloom_locality=1;num_levels=5").unwrap();
    now.set("compaction_options_fifo.age_for_warm", "7").unwrap();
    now.set("compaction_options_universal.size_ratio", "7").unwrap();
    let mut names = now.changed_without_effect(&before);
    names.sort();
    assert_eq!(
        names,
        ["bloom_locality", "compaction_options_fifo.age_for_warm", "compression_opts.checksum"]
    );
    assert_eq!(now.changed_without_effect(&now), Vec::<String>::new());
}

#[test]
fn every_row_prints_what_it_reads() {
    check_table::<DbOptions>();
    check_table::<ColumnFamilyOptions>();
    check_table::<BlockBasedTableOptions>();
    check_table::<CompressionOptions>();
    check_table::<nested::FifoOptions>();
    check_table::<nested::UniversalOptions>();
    check_table::<nested::MetadataCacheOptions>();
    check_table::<nested::FileTemperatureAge>();
}

#[test]
fn numbers_take_suffixes_and_keep_their_range() {
    let mut options = ColumnFamilyOptions::default();
    for (text, bytes) in
        [("4k", 4usize << 10), ("64M", 64 << 20), ("2G", 2 << 30), ("1T", 1 << 40), (" 7 ", 7)]
    {
        options.set("write_buffer_size", text).unwrap();
        assert_eq!(options.write_buffer_size, bytes);
    }
    for text in ["", "k", "-1", "12x", "1.5", "99999999999999999999", "16777216T", "0x10"] {
        let error = options.set("write_buffer_size", text).unwrap_err();
        assert_eq!((error.kind, &*error.option), (OptionErrorKind::Invalid, "write_buffer_size"), "{text:?}");
    }
    assert_eq!(options.write_buffer_size, 7);
    options.set("ttl", "18446744073709551614").unwrap();
    assert_eq!(options.ttl, u64::MAX - 1);
    assert!(options.set("block_protection_bytes_per_key", "256").is_err());
    assert!(options.set("num_levels", "257").is_err());
    assert_eq!(options.num_levels, 7);
    options.set("num_levels", "{ 4 }").unwrap();
    assert_eq!(options.num_levels, 4);
    let strategy = "blob_direct_write_partition_strategy";
    assert!(["", "nullptr", "my.Strategy"].iter().all(|text| options.set(strategy, text).is_err()));
    // Of several values the last counts in a string, and the first in a file.
    options
        .set_all("ttl=x;num_levels=3;ttl=7;compression_opts={level=4};compression_opts={strategy=1}")
        .unwrap();
    assert_eq!((options.ttl, options.num_levels), (7, 3));
    assert_eq!(
        (options.compression_opts.level, options.compression_opts.strategy),
        (CompressionOptions::DEFAULT_LEVEL, 1)
    );
    let text = "[Version]\nrocksdb_version=11.8.1\noptions_file_version=1.1\n[DBOptions]\n\
                max_open_files=5\nmax_open_files=x\n[CFOptions \"default\"]\n";
    let file = OptionsFile::parse(text.as_bytes(), UnknownOptions::default()).unwrap();
    assert_eq!(file.db.max_open_files, 5);
    let mut db = DbOptions::default();
    assert!(db.set("max_open_files", "-2").unwrap_err().to_string().contains("-2 is not in"));
    db.set("rate_limiter_bytes_per_sec", "1M").unwrap();
    assert_eq!(db.rate_limiter_bytes_per_sec.0, 1 << 20);
    assert!(db.set("rate_limiter_bytes_per_sec", "many").is_err());
}

#[test]
fn choices_lists_and_strings() {
    let mut options = ColumnFamilyOptions::default();
    options.set("compression_per_level", "kNoCompression:kZSTD").unwrap();
    assert_eq!(options.compression_per_level, [Compression::None, Compression::Zstd]);
    assert_eq!(options.get("compression_per_level").unwrap(), "kNoCompression:kZSTD");
    options.set("compression_per_level", "").unwrap();
    assert!(options.compression_per_level.is_empty());
    let error = options.set("compression", "kBest").unwrap_err();
    assert!(error.to_string().contains("kSnappyCompression"), "{error}");
    options
        .set(
            "compaction_options_fifo",
            "{file_temperature_age_thresholds={{temperature=kWarm;age=5;}:{temperature=kCold;age=9}};}",
        )
        .unwrap();
    let thresholds = &options.compaction_options_fifo.file_temperature_age_thresholds;
    assert_eq!(thresholds.iter().map(|step| step.age).collect::<Vec<_>>(), [5, 9]);
    let printed = options.to_text();
    let mut copy = ColumnFamilyOptions::default();
    copy.set_all(&printed).unwrap();
    assert_eq!(copy, options);
    let mut db = DbOptions::default();
    db.set("wal_dir", r"a\:b\#c\\d").unwrap();
    assert_eq!(db.wal_dir, r"a:b#c\d");
    assert_eq!(db.get("wal_dir").unwrap(), r"a\:b\#c\\d");
    db.set("WAL_ttl_seconds", "3").unwrap();
    assert_eq!(db.wal_ttl_seconds, 3);
}

#[test]
fn a_cache_is_a_size_or_properties_and_nothing_else() {
    let mut options = BlockBasedTableOptions::default();
    let mut asked = |text: &str| {
        options
            .set("block_cache", text)
            .map(|_| (options.block_cache.clone(), options.get("block_cache").unwrap()))
    };
    let of = |bytes| Cache { capacity_bytes: Some(bytes), ..Cache::default() };
    for (text, expected) in [
        ("64M", of(64 << 20)),
        ("0", of(0)),
        ("{capacity=8K}", of(8192)),
        ("capacity=8K;id=LRUCache", of(8192)),
        ("nullptr", Cache::default()),
        (
            "{capacity=1M;strict_capacity_limit=true;high_pri_pool_ratio=0.25}",
            Cache { strict_capacity: true, metadata_fraction: Some(0.25), ..of(1 << 20) },
        ),
        (
            "{id=HyperClockCache;capacity=1M;num_shard_bits=-1;min_avg_entry_charge=450}",
            Cache {
                without_effect: vec![
                    ("id", "HyperClockCache".into()),
                    ("num_shard_bits", "-1".into()),
                    ("min_avg_entry_charge", "450".into()),
                ],
                ..of(1 << 20)
            },
        ),
    ] {
        let (cache, printed) = asked(text).unwrap();
        assert_eq!(cache, expected, "{text}");
        assert_eq!(asked(&printed).unwrap().0, expected, "{printed}");
    }
    for (text, what) in [
        ("lots", "\"lots\""),
        ("LRUCache", "LRUCache"),
        ("32MB", "32MB"),
        ("-1", "-1"),
        ("{capacity=many}", "capacity"),
        ("{id=LRUCache}", "needs its capacity"),
        ("{capacity=1M;high_pri_pool_ratio=2}", "high_pri_pool_ratio"),
        ("{capacity=1M;num_shard_bits=four}", "num_shard_bits"),
        ("{capacity=1M;num_shards=4}", "num_shards"),
        ("{id=my.Cache;capacity=1M}", "my.Cache"),
        ("{capacity=1M", "1M"),
    ] {
        let error = asked(text).unwrap_err().to_string();
        assert!(error.contains("block_cache") && error.contains(what), "{text}: {error}");
    }
}

#[test]
fn what_a_cache_of_rocksdb_has_besides_is_said_to_have_no_effect() {
    let before = BlockBasedTableOptions::default();
    let mut options = before.clone();
    for (text, named) in [
        ("64M", &[][..]),
        ("{id=LRUCache;capacity=1M;high_pri_pool_ratio=0.5}", &[][..]),
        ("{id=LRUCache;capacity=1M;num_shard_bits=4}", &["block_cache.num_shard_bits"][..]),
        (
            "{id=AutoHyperClockCache;capacity=1M;estimated_entry_charge=0}",
            &["block_cache.id", "block_cache.estimated_entry_charge"][..],
        ),
    ] {
        options.set("block_cache", text).unwrap();
        assert_eq!(options.changed_without_effect(&before), named, "{text}");
    }
}

#[test]
fn nested_structs_keep_what_a_text_does_not_name() {
    let mut options = ColumnFamilyOptions::default();
    options.set("compression_opts", "{level=3;max_dict_bytes=4K}").unwrap();
    options.set("compression_opts.strategy", "2").unwrap();
    options.set("compression_opts", "enabled=true").unwrap();
    let expected = CompressionOptions {
        level: 3,
        max_dict_bytes: 4096,
        strategy: 2,
        enabled: true,
        ..CompressionOptions::default()
    };
    assert_eq!(options.compression_opts, expected);
    assert!(options.set("compression_opts", "{level=3;levle=4}").is_err());
    assert!(options.set("compression_opts.levle", "4").is_err());
    assert!(options.set("num_levels.x", "4").is_err());
    assert_eq!(options.compression_opts, expected);
    options.set("bottommost_compression_opts", "4:5:6:7").unwrap();
    let bottom = &options.bottommost_compression_opts;
    assert_eq!((bottom.window_bits, bottom.level, bottom.strategy, bottom.max_dict_bytes), (4, 5, 6, 7));
    options.set("bottommost_compression_opts", "4:5:6:7:8:true").unwrap();
    assert!(options.bottommost_compression_opts.enabled);
    assert!(options.set("bottommost_compression_opts", "4:5").is_err());
    options.set("compaction_options_fifo", "23").unwrap();
    assert_eq!(options.compaction_options_fifo.max_table_files_size, 23);
}

#[test]
fn table_options_are_reached_through_their_factory() {
    let mut options = ColumnFamilyOptions::default();
    options.set("block_based_table_factory", "{block_size=16k;index_type=kTwoLevelIndexSearch}").unwrap();
    options.set("table_factory.filter_policy", "bloomfilter:10:false").unwrap();
    let tables = &options.table_factory.block_based;
    assert_eq!((tables.block_size, tables.index_type), (16 << 10, IndexType::TwoLevelIndexSearch));
    assert_eq!(tables.filter_policy.id(), Some("bloomfilter:10:false"));
    assert_eq!(options.get("table_factory").unwrap(), "BlockBasedTable");
    options.set("table_factory", "{id=PlainTable}").unwrap();
    assert!(!options.table_factory.is_block_based());
    assert!(options.set("table_factory", "{id=BlockBasedTable;block_sise=1}").is_err());
}

#[test]
fn objects_have_names_and_properties() {
    let mut options = ColumnFamilyOptions::default();
    assert_eq!(options.comparator.id(), Some("leveldb.BytewiseComparator"));
    assert_eq!(options.merge_operator.id(), None);
    options.set("merge_operator", "{id=StringAppendOperator;delimiter=,;}").unwrap();
    assert_eq!(options.merge_operator.id(), Some("StringAppendOperator"));
    assert_eq!(options.merge_operator.property("delimiter"), Some(","));
    options.set("merge_operator", "nullptr").unwrap();
    assert_eq!(options.merge_operator, Object::NONE);
    options.set("prefix_extractor", "rocksdb.FixedPrefix.8").unwrap();
    assert_eq!(options.prefix_extractor.id(), Some("rocksdb.FixedPrefix.8"));
}

#[test]
fn unknown_and_retired_names_are_told_apart() {
    let mut db = DbOptions::default();
    assert_eq!(db.set("no_such_option", "1").unwrap_err().kind, OptionErrorKind::Unknown);
    assert!(matches!(db.set("access_hint_on_compaction_start", "NORMAL").unwrap(), Assigned::Retired));
    assert_eq!(db.get("access_hint_on_compaction_start").unwrap(), "NORMAL");
    assert!(!db.to_text().contains("access_hint"));
    assert!(db.get("no_such_option").is_none());
    db.set("statistics", "Statistics").unwrap();
    assert!(!db.to_text().contains("statistics="));
}

#[test]
fn an_unknown_name_brings_the_nearest_known_one_to_mind() {
    let mut db = DbOptions::default();
    let mut family = ColumnFamilyOptions::default();
    let mut tables = BlockBasedTableOptions::default();
    let errors = [
        (db.set("max_open_flies", "1"), "not an option of DBOptions; did you mean `max_open_files`?"),
        (db.set("wal_ttl_seconds", "1"), "not an option of DBOptions; did you mean `WAL_ttl_seconds`?"),
        (db.set("colour", "1"), "not an option of DBOptions"),
        (family.set("compresion_opts.level", "1"), "did you mean `compression_opts.level`?"),
        (family.set("compression_opts.levle", "1"), "did you mean `level`?"),
        (family.set("compression_opts", "{levle=1}"), "did you mean `level`?"),
        (family.set("table_factory", "{id=BlockBasedTable;block_sise=1}"), "did you mean `block_size`?"),
        (family.set("block_based_table_factroy", "{}"), "did you mean `block_based_table_factory`?"),
        (tables.set("format_verison", "6"), "did you mean `format_version`?"),
    ];
    for (outcome, near) in errors {
        let error = outcome.unwrap_err().to_string();
        assert!(error.ends_with(near), "{error}");
    }
    let error = db.set_all("max_open_files=5;max_open_file=6").unwrap_err().to_string();
    assert!(error.ends_with("did you mean `max_open_files`?"), "{error}");
    let text = b"[DBOptions]\n  max_open_flies=1\n";
    let error = OptionsFile::parse(text, UnknownOptions::RefuseUnlessNewer).unwrap_err().to_string();
    let expected =
        "line 2: [DBOptions] max_open_flies: not an option of DBOptions; did you mean `max_open_files`?";
    assert_eq!(error, expected);
}

#[test]
fn a_bad_option_string_changes_nothing() {
    let mut db = DbOptions::default();
    for text in [
        "max_open_files=5;bogus=1",
        "max_open_files=5;use_fsync=maybe",
        "max_open_files=5;=3",
        "max_open_files=5;wal_filter={a=b",
        "max_open_files=5;wal_filter={a=b}c",
        "max_open_files=5;}",
        "max_open_files",
    ] {
        assert!(db.set_all(text).is_err(), "{text}");
        assert_eq!(db, DbOptions::default());
    }
    db.set_all("{ max_open_files = 5 ; wal_filter={id=x;y={z=1}}; wal_dir=a=b }").unwrap();
    assert_eq!((db.max_open_files, &*db.wal_dir), (5, "a=b"));
    assert_eq!(db.wal_filter.property("y"), Some("{z=1}"));
}

const DEBIAN: &[u8] = include_bytes!("testdata/OPTIONS-7.8");

#[test]
fn a_file_of_rocksdb_7_8_reads_and_prints_back() {
    let file = OptionsFile::parse(DEBIAN, UnknownOptions::RefuseUnlessNewer).unwrap();
    assert_eq!((file.rocksdb_version, file.options_file_version), ([7, 8, 3], [1, 1]));
    assert_eq!(file.db.wal_recovery_mode, WalRecoveryMode::PointInTimeRecovery);
    assert_eq!(file.db.delayed_write_rate, 8_388_608);
    assert_eq!(file.column_families.len(), 2);
    let second = file.column_family("column_family_name_000001").unwrap();
    assert!(second.enable_blob_files);
    assert_eq!(second.ttl, 2_592_000);
    assert_eq!(second.table_factory.block_based.format_version, 5);
    assert_eq!(second.get("max_write_buffer_number_to_maintain").as_deref(), Some("0"));
    assert!(file.unknown.is_empty());
    // Every option of the file is also in the printed file, in its section, unless RocksDB has
    // dropped it.
    let printed = file.print();
    let again = OptionsFile::parse(printed.as_bytes(), UnknownOptions::RefuseUnlessNewer).unwrap();
    let retired: HashSet<&str> =
        DbOptions::RETIRED.iter().chain(ColumnFamilyOptions::RETIRED).copied().collect();
    let lines = |text: &str| {
        let mut section = String::new();
        let mut found = HashSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once('=') {
                None => section = line.to_owned(),
                // Structs have gained fields since 7.8 and print in another order.
                Some((name, value)) if value.starts_with('{') && name != "listeners" => {}
                Some((name, _)) if retired.contains(name) => {}
                Some(_) => assert!(found.insert(format!("{section} {line}"))),
            }
        }
        found
    };
    let (before, after) = (lines(std::str::from_utf8(DEBIAN).unwrap()), lines(&printed));
    assert_eq!(before.difference(&after).collect::<Vec<_>>(), Vec::<&String>::new());
    let forget = |mut file: OptionsFile| {
        file.db.retired.clear();
        file.column_families.iter_mut().for_each(|family| family.options.retired.clear());
        file
    };
    assert_eq!(forget(again), forget(file));
}

#[test]
fn only_what_was_chosen_is_named_and_it_reads_back() {
    let db = DbOptions { max_open_files: 77, ..DbOptions::default() };
    let mut options = ColumnFamilyOptions::default();
    options.set_all("compression_opts={level=3;max_dict_bytes=100};prefix_extractor=fixed:3").unwrap();
    options.table_factory.block_based.block_size = 999;
    let families = ["default", "other [CFOptions]"].map(|name| NamedColumnFamily {
        name: name.to_owned(),
        options: if name == "default" { options.clone() } else { ColumnFamilyOptions::default() },
    });
    let text = changed_head(&db) + &families.iter().map(changed_sections).collect::<String>();
    let named: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).skip(2).collect();
    assert_eq!(
        named,
        [
            "max_open_files=77",
            "compression_opts={level=3;max_dict_bytes=100;}",
            "prefix_extractor=fixed:3",
            "block_size=999"
        ],
        "{text}"
    );
    let back = OptionsFile::parse(text.as_bytes(), UnknownOptions::RefuseUnlessNewer).unwrap();
    assert_eq!((back.db, back.column_families), (db, families.to_vec()));
}

#[test]
fn errors_name_section_option_and_line() {
    let cases = [
        ("[DBOptions]\n max_open_files=x\n", "line 2: [DBOptions] max_open_files: \"x\" is no int"),
        ("[DBOptions]\n\n bogus=x\n", "line 3: [DBOptions] bogus: not an option of DBOptions"),
        ("max_open_files=1\n", "line 1: an option stands before the first section"),
        ("[DBOptions]\n[DBOptions]\n", "line 2: [DBOptions] the section comes a second time"),
        (
            "[CFOptions \"a\"]\n",
            "line 1: [CFOptions \"a\"] column family \"default\" must come first, and once",
        ),
        ("[Bogus]\n", "line 1: [Bogus] unknown section"),
        ("[DBOptions]\nbogus\n", "line 2: [DBOptions] expected name=value, found \"bogus\""),
        ("[DBOptions]\n", "the file has no section [CFOptions \"default\"]"),
        ("", "the file has no section [DBOptions]"),
        (
            "[Version]\nrocksdb_version=1.2.3.4\n",
            "line 2: [Version] rocksdb_version: \"1.2.3.4\" is no version",
        ),
        (
            "[Version]\noptions_file_version=2.0\n",
            "line 2: [Version] options_file_version: format 2.0 is not known, only 1.x",
        ),
        (
            "[DBOptions]\n[TableOptions/BlockBasedTable \"default\"]\n",
            "line 2: [TableOptions/BlockBasedTable \"default\"] table options of \"default\" come before its column family",
        ),
    ];
    for (text, message) in cases {
        let error = OptionsFile::parse(text.as_bytes(), UnknownOptions::RefuseUnlessNewer).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = OptionsFile::parse(b"[DBOptions]\n\xff=1\n", UnknownOptions::Keep).unwrap_err();
    assert_eq!(error.to_string(), "line 2: the line is not UTF-8");
}

#[test]
fn options_of_a_newer_release_are_kept_as_text() {
    let body = "[DBOptions]\n  from_the_future=1 # and a comment\n[CFOptions \"default\"]\n[TableOptions/Foreign \"default\"]\n x=y\n";
    let newer = format!("[Version]\nrocksdb_version=12.0.0\n{body}");
    let file = OptionsFile::parse(newer.as_bytes(), UnknownOptions::RefuseUnlessNewer).unwrap();
    let kept: Vec<_> =
        file.unknown.iter().map(|option| (&*option.name, &*option.value, option.line)).collect();
    assert_eq!(kept, [("from_the_future", "1", 4), ("x", "y", 7)]);
    let older = format!("[Version]\nrocksdb_version=11.8.1\n{body}");
    assert!(OptionsFile::parse(older.as_bytes(), UnknownOptions::RefuseUnlessNewer).is_err());
    assert!(OptionsFile::parse(older.as_bytes(), UnknownOptions::Keep).is_ok());
}

proptest! {
    #[test]
    fn hostile_files_and_strings_end(bytes in proptest::collection::vec(
        prop_oneof![
            Just(b"[DBOptions]\n".to_vec()), Just(b"[CFOptions \"default\"]\n".to_vec()), Just(b"{".to_vec()),
            Just(b"}".to_vec()), Just(b"=".to_vec()), Just(b";".to_vec()), Just(b"\n".to_vec()), Just(b"\"".to_vec()),
            Just(b"compression_opts".to_vec()), Just(b"listeners".to_vec()), any::<[u8; 3]>().prop_map(|b| b.to_vec()),
        ], 0..40))
    {
        let bytes = bytes.concat();
        let _ = OptionsFile::parse(&bytes, UnknownOptions::Keep);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = DbOptions::default().set_all(text);
            let _ = ColumnFamilyOptions::default().set_all(text);
        }
    }

    #[test]
    fn strings_survive_escaping(text in any::<String>()) {
        prop_assert_eq!(text::unescape(&text::escape(&text)), text);
    }
}
