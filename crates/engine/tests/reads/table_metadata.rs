//! Table properties, and the metadata of a column family's files.

use karst_engine::compaction_filter::{FilterDecision, FilterInput};
use karst_engine::io::{Env, MemoryFileSystem, block_on};
use karst_engine::{CompactRangeOptions, Db, FlushOptions, Options, ReadOptions};
use std::path::Path;
use std::sync::Arc;

fn options() -> Options {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    Options::new()
        .env(env)
        .set_all("create_if_missing=true;create_missing_column_families=true;disable_auto_compactions=true")
        .unwrap()
}

/// Writes three tables to the family `other`: keys 0 to 9, 10 to 19 and 20 to 29, the first of each
/// deleted.
fn filled(options: &Options) -> Db {
    let db = Db::open_cf("/db", options, &["default", "other"]).unwrap();
    let other = db.cf("other").unwrap();
    for table in 0..3 {
        for n in 0..10 {
            other.put(format!("{:02}", table * 10 + n), "value").unwrap();
        }
        other.delete(format!("{:02}", table * 10)).unwrap();
        other.flush(&FlushOptions::default()).unwrap();
    }
    db
}

#[test]
fn properties_come_by_path_for_all_tables_and_for_ranges() {
    let options = options();
    let db = filled(&options);
    let other = db.column_family("other").unwrap();
    let all = db.properties_of_all_tables(&other).unwrap();
    assert_eq!(all.len(), 3);
    for (path, properties) in &all {
        assert_eq!(path.parent(), Some(Path::new("/db")));
        assert_eq!((properties.num_entries, properties.num_deletions), (10, 1), "{path:?}");
        assert_eq!(properties.column_family_name, "other");
    }
    assert!(db.properties_of_all_tables(db.default_column_family()).unwrap().is_empty());
    let paths: Vec<_> = all.keys().cloned().collect();
    let within = |ranges: &[(&[u8], &[u8])]| -> Vec<_> {
        db.properties_of_tables_in_range(&other, ranges).unwrap().into_keys().collect()
    };
    assert_eq!(within(&[(b"00", b"05")]), paths[..1]);
    assert_eq!(within(&[(b"05", b"10")]), paths[..2], "the end of the range counts");
    assert_eq!(within(&[(b"05", b"06"), (b"29", b"31")]), [paths[0].clone(), paths[2].clone()]);
    assert!(within(&[(b"095", b"099"), (b"3", b"4")]).is_empty() && within(&[]).is_empty());
    // On a level whose files do not overlap, with tables that are not open.
    db.compact_range_cf(&CompactRangeOptions::default(), &other, None, None).unwrap();
    drop(db);
    let db = Db::open_cf_read_only("/db", &options, &["default", "other"]).unwrap();
    let other = db.column_family("other").unwrap();
    let all = block_on(db.env(), db.properties_of_all_tables_async(&other)).unwrap();
    assert_eq!(all.values().map(|properties| properties.num_entries).collect::<Vec<_>>(), [10; 3], "moved");
    let within = |start: &'static [u8], end: &'static [u8]| {
        block_on(db.env(), db.properties_of_tables_in_range_async(&other, &[(start, end)])).unwrap().len()
    };
    assert_eq!([within(b"0", b"00"), within(b"29", b"4"), within(b"3", b"4")], [1, 1, 0]);
}

#[test]
fn metadata_lists_levels_tables_and_blob_files() {
    let options = options().set_all("enable_blob_files=true;min_blob_size=100").unwrap();
    let db = filled(&options);
    let other = db.column_family("other").unwrap();
    db.cf("other").unwrap().put("05", "x".repeat(1000)).unwrap();
    db.flush_cfs(&FlushOptions::default(), &[&other]).unwrap();
    let of = db.column_family_metadata(&other).unwrap();
    assert_eq!((&*of.name, of.file_count, of.levels.len(), of.blob_files.len()), ("other", 4, 7, 1));
    assert!(of.levels.iter().zip(0..).all(|(level, number)| level.level == number));
    assert_eq!(of.levels[0].files.len(), 4);
    assert_eq!(of.size_bytes, of.levels.iter().map(|level| level.size_bytes).sum::<u64>());
    assert_eq!(of.size_bytes, of.levels[0].files.iter().map(|file| file.size_bytes).sum::<u64>());
    let (newest, oldest) = (&of.levels[0].files[0], &of.levels[0].files[3]);
    assert_eq!((&*newest.smallest_key, newest.num_entries), (&b"05"[..], Some(1)));
    assert_eq!(newest.oldest_blob_file_number, Some(of.blob_files[0].number));
    assert_eq!((&*oldest.smallest_key, &*oldest.largest_key), (&b"00"[..], &b"09"[..]));
    assert_eq!((oldest.smallest_seq, oldest.largest_seq), (2, 11));
    assert_eq!((oldest.num_entries, oldest.num_deletions), (Some(10), Some(1)));
    assert!(!oldest.being_compacted && oldest.oldest_blob_file_number.is_none());
    let blob = &of.blob_files[0];
    assert_eq!((blob.total_blob_count, blob.garbage_blob_count), (1, 0));
    assert!(blob.total_blob_bytes > 1000 && blob.size_bytes == of.blob_file_size_bytes);
    assert_eq!(blob.size_bytes, blob.total_blob_bytes + 62, "header and footer");
    assert_eq!(db.live_files().len(), 5);
    let empty = db.column_family_metadata(db.default_column_family()).unwrap();
    assert_eq!((empty.file_count, empty.size_bytes, empty.levels.len()), (0, 0, 7));
}

/// Compaction filter that reads, during a compaction, the metadata of the files being compacted.
#[derive(Debug, Default)]
struct Looks(std::sync::OnceLock<Db>, std::sync::Mutex<Vec<bool>>);

impl karst_engine::CompactionFilter for Looks {
    fn name(&self) -> &str {
        "test.Looks"
    }

    fn filter(&self, _: u32, _: &[u8], _: FilterInput<'_>) -> FilterDecision {
        if let Some(db) = self.0.get() {
            let of = db.column_family_metadata(db.default_column_family()).unwrap();
            let files = of.levels.iter().flat_map(|level| &level.files);
            self.1.lock().unwrap().extend(files.map(|file| file.being_compacted));
        }
        FilterDecision::Keep
    }
}

#[test]
fn files_of_a_compaction_under_way_are_marked() {
    let looks = Arc::new(Looks::default());
    let db = Db::open("/db", &options().compaction_filter(None, looks.clone())).unwrap();
    db.put("a", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let before = db.column_family_metadata(db.default_column_family()).unwrap();
    assert!(!before.levels[0].files[0].being_compacted);
    // The filter's handle must not keep the database open.
    assert!(looks.0.set(db.clone()).is_ok());
    let all = CompactRangeOptions {
        bottommost_level_compaction: karst_engine::BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&all, None, None).unwrap();
    let seen = looks.1.lock().unwrap().clone();
    assert!(!seen.is_empty() && seen.iter().all(|marked| *marked), "{seen:?}");
    db.close().unwrap();
}

#[test]
fn numbers_are_summed_over_families_and_the_block_cache_counts_once() {
    let options = options();
    let db = filled(&options);
    db.put("a", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    assert_eq!(db.aggregated_int_property("rocksdb.total-sst-files-size"), {
        let sizes = db.live_files().iter().map(|file| file.size_bytes).sum::<u64>();
        Some(sizes)
    });
    let names = ["rocksdb.estimate-num-keys", "rocksdb.cur-size-all-mem-tables"];
    for name in names {
        let other = db.int_property_cf(&db.column_family("other").unwrap(), name).unwrap();
        let sum = db.int_property(name).unwrap() + other;
        assert_eq!(db.aggregated_int_property(name), Some(sum));
    }
    let cache = "rocksdb.block-cache-capacity";
    assert_eq!(db.aggregated_int_property(cache), db.int_property(cache));
    assert_eq!(db.aggregated_int_property("rocksdb.levelstats"), None);
    let stalls = db.map_property("rocksdb.cf-write-stall-stats").unwrap();
    assert_eq!((stalls.len(), &*stalls["total-stops"]), (10, "0"));
    let of_database = db.map_property("rocksdb.db-write-stall-stats").unwrap();
    assert_eq!(of_database.len(), 1);
    assert_eq!(of_database["write-buffer-manager-limit-stops"], "0");
    assert_eq!(db.get_opt(&ReadOptions::new(), "a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Returns the properties of the one table that 2,000 keys make under these options, compacted into
/// the last level.
fn in_the_last_level(more: &str) -> Arc<karst_engine::format::TableProperties> {
    let db = Db::open("/db", &options().set_all(more).unwrap()).unwrap();
    for n in 0..2000_u32 {
        // Digits that compress better at higher compression levels.
        let value: String = (0..20).map(|i| format!("{:03}", (n * 7 + i * i) % 500)).collect();
        db.put(format!("key{n:05}"), value).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    let all = CompactRangeOptions {
        bottommost_level_compaction: karst_engine::BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&all, None, None).unwrap();
    let tables = db.properties_of_all_tables(db.default_column_family()).unwrap();
    assert_eq!(tables.len(), 1);
    for n in 0..2000 {
        assert!(db.get(format!("key{n:05}")).unwrap().is_some());
    }
    tables.into_values().next().unwrap()
}

#[test]
fn the_last_level_has_no_filters_where_keys_are_expected_to_be_there() {
    let filter = |hits: &str| {
        in_the_last_level(&format!("filter_policy=bloomfilter:10:false;optimize_filters_for_hits={hits}"))
            .filter_size
    };
    assert!(filter("false") > 2000);
    assert_eq!(filter("true"), 0);
}

#[test]
fn the_last_level_is_compressed_by_options_of_its_own() {
    let size = |more: &str| in_the_last_level(&format!("compression=kZSTD;{more}")).data_size;
    let plain = size("compression_opts={level=1}");
    let unused = size("compression_opts={level=1};bottommost_compression_opts={level=19}");
    assert_eq!(plain, unused, "they count only if they are enabled");
    let best = size("compression_opts={level=1};bottommost_compression_opts={level=19;enabled=true}");
    assert!(best < plain, "{best} {plain}");
}

#[test]
fn a_block_ends_early_if_it_is_nearly_full() {
    let blocks = |deviation: u32| {
        let more = format!("compression=kNoCompression;block_size=300;block_size_deviation={deviation}");
        in_the_last_level(&more).num_data_blocks
    };
    // An entry is about 80 bytes, so three of them fit in half of a block, but not in a tenth.
    assert!(blocks(10) < blocks(50), "{} {}", blocks(10), blocks(50));
}

#[test]
fn the_block_cache_says_what_its_entries_are_for() {
    let options = options()
        .set_all("cache_index_and_filter_blocks=true;filter_policy=bloomfilter:10:false;block_size=256;enable_blob_files=true;min_blob_size=1000")
        .unwrap()
        .block_cache_bytes(1 << 20);
    let db = Db::open("/db", &options).unwrap();
    for n in 0..100 {
        db.put(format!("{n:04}"), [b'v'; 100]).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    for n in 0..100 {
        assert!(db.get(format!("{n:04}")).unwrap().is_some());
    }
    let properties = db.properties_of_all_tables(db.default_column_family()).unwrap();
    let blocks: u64 = properties.values().map(|properties| properties.num_data_blocks).sum();
    assert!(blocks > 10);
    for name in ["rocksdb.block-cache-entry-stats", "rocksdb.fast-block-cache-entry-stats"] {
        let map = db.map_property(name).unwrap();
        let counts = ["data-block", "index-block", "filter-block", "blob-value", "other-block"]
            .map(|role| map[&format!("count.{role}")].parse::<u64>().unwrap());
        assert_eq!(counts, [blocks, 1, 1, 0, 0], "{map:?}");
        assert_eq!(map["capacity"], "1048576");
        let of_bytes = map.keys().filter(|key| key.starts_with("bytes."));
        let bytes: u64 = of_bytes.map(|key| map[key].parse::<u64>().unwrap()).sum();
        assert_eq!(Some(bytes), db.int_property("rocksdb.block-cache-usage"));
        let text = db.property(name).unwrap();
        assert!(text.contains(&format!(" occupancy: {} collections: 1 ", blocks + 2)), "{text}");
        assert!(text.contains(&format!("(count,size,portion): DataBlock({blocks},")), "{text}");
        assert_eq!((db.int_property(name), db.aggregated_int_property(name)), (None, None));
    }
}

#[test]
fn tables_tell_the_host_unless_they_are_told_another() {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (given, expected) in [("__hostname__", host.trim_end()), ("elsewhere", "elsewhere"), ("", "")] {
        let db = filled(&options().db(|db| db.db_host_id = given.to_owned()));
        let all = db.properties_of_all_tables(&db.column_family("other").unwrap()).unwrap();
        assert!(all.values().all(|of| of.db_host_id == expected), "{given}");
    }
}

#[test]
fn a_family_is_told_by_range_and_level() {
    let options = options();
    let db = filled(&options);
    let other = db.column_family("other").unwrap();
    let told = |start: Option<&str>, end: Option<&str>, level| {
        let range = (start.map(str::as_bytes), end.map(str::as_bytes));
        let found = db.column_family_metadata_in_range(&other, range, level).unwrap();
        let size: u64 = found.levels.iter().flat_map(|of| &of.files).map(|file| file.size_bytes).sum();
        assert_eq!(found.size_bytes, size);
        assert_eq!(found.levels.iter().map(|of| of.size_bytes).sum::<u64>(), size);
        let levels = found.levels.iter().map(|of| {
            let firsts: Vec<_> = of.files.iter().map(|file| file.smallest_key.clone()).collect();
            (of.level, firsts.concat())
        });
        let levels: Vec<_> = levels.collect();
        assert_eq!(found.file_count, levels.iter().map(|(_, firsts)| firsts.len() / 2).sum::<usize>());
        levels
    };
    // L0, newest first.
    assert_eq!(told(None, None, None), [(0, b"201000".to_vec())]);
    assert_eq!(told(Some("09"), Some("10"), None), [(0, b"1000".to_vec())], "both ends count");
    assert_eq!(told(Some("20"), None, Some(0)), [(0, b"20".to_vec())]);
    assert_eq!(told(None, Some("195"), Some(0)), [(0, b"1000".to_vec())]);
    assert!(told(None, None, Some(1)).is_empty() && told(Some("3"), None, None).is_empty());
    // An L0 table that overlaps an included L0 table is included too.
    let cf = db.cf("other").unwrap();
    cf.put("08", "value").unwrap();
    cf.put("11", "value").unwrap();
    cf.flush(&FlushOptions::default()).unwrap();
    assert_eq!(told(Some("00"), Some("01"), None), [(0, b"081000".to_vec())]);
    assert_eq!(told(Some("20"), Some("21"), None), [(0, b"20".to_vec())]);
    db.compact_range_cf(&CompactRangeOptions::default(), &other, None, None).unwrap();
    let [(level, _)] = told(None, None, None)[..] else { panic!("one level has all") };
    assert!(level > 0 && told(None, None, Some(0)).is_empty());
    assert_eq!(told(Some("05"), Some("05"), Some(level)).len(), 1);
}
