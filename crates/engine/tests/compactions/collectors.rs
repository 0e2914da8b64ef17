//! Table properties collectors: the entries passed to them, the properties they add to tables, and
//! tables whose collector panics or fails.

use karst_engine::format::ValueType;
use karst_engine::table_properties_collector::{
    CollectedEntry, TablePropertiesCollectorContext, UserCollectedProperties,
};
use karst_engine::{
    BottommostLevelCompaction, CompactRangeOptions, Db, Error, FlushOptions, Options, Result, SstFileWriter,
    TablePropertiesCollector, TablePropertiesCollectorFactory, WaitForCompactOptions,
};
use karst_testkit::rocksdb_tools::{table_properties, verify_tables};
use std::sync::{Arc, Mutex};

/// Context that a collector was created with, and the entries passed to it.
type Shown = (TablePropertiesCollectorContext, Vec<(Vec<u8>, Vec<u8>, ValueType, u64)>);

/// Collector factory that counts and records entries.
#[derive(Debug, Default)]
struct Counts {
    seen: Arc<Mutex<Vec<Shown>>>,
    /// Number of entries from which on a table asks for its compaction.
    asks_at: Option<usize>,
}

impl TablePropertiesCollectorFactory for Counts {
    fn name(&self) -> &str {
        "test.Counts"
    }

    fn create(&self, context: &TablePropertiesCollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        let shown = (*context, Vec::new());
        Some(Box::new(Counting { all: self.seen.clone(), shown, asks_at: self.asks_at, file_bytes: 0 }))
    }
}

struct Counting {
    all: Arc<Mutex<Vec<Shown>>>,
    shown: Shown,
    asks_at: Option<usize>,
    file_bytes: u64,
}

impl TablePropertiesCollector for Counting {
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()> {
        assert!(entry.file_bytes >= self.file_bytes);
        self.file_bytes = entry.file_bytes;
        self.shown.1.push((entry.key.to_vec(), entry.value.to_vec(), entry.entry_type, entry.seq));
        Ok(())
    }

    fn finish(&mut self) -> Result<UserCollectedProperties> {
        self.all.lock().unwrap().push(self.shown.clone());
        let count = self.shown.1.len().to_string().into_bytes();
        let binary = vec![0, 0xff];
        Ok([(b"test.count".to_vec(), count), (b"test.binary".to_vec(), binary)].into())
    }

    fn need_compact(&self) -> bool {
        self.asks_at.is_some_and(|at| self.shown.1.len() >= at)
    }
}

/// Fault of a collector.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bad {
    PanicsAtCreation,
    PanicsAtAdd,
    PanicsAtFinish,
    PanicsWhenAsked,
    FailsAtAdd,
    FailsAtFinish,
    TakesNames,
    IsNone,
}

impl TablePropertiesCollectorFactory for Bad {
    fn name(&self) -> &str {
        "test.Bad"
    }

    fn create(&self, _: &TablePropertiesCollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        assert!(*self != Bad::PanicsAtCreation, "a panic on purpose");
        (*self != Bad::IsNone).then(|| Box::new(*self) as Box<dyn TablePropertiesCollector>)
    }
}

impl TablePropertiesCollector for Bad {
    fn add(&mut self, _: &CollectedEntry<'_>) -> Result<()> {
        assert!(*self != Bad::PanicsAtAdd, "a panic on purpose");
        match self {
            Bad::FailsAtAdd => Err(Error::invalid_argument("on purpose")),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<UserCollectedProperties> {
        assert!(*self != Bad::PanicsAtFinish, "a panic on purpose");
        let name: &[u8] = match self {
            Bad::FailsAtFinish => return Err(Error::invalid_argument("on purpose")),
            // A table with this property would be refused.
            Bad::TakesNames => b"rocksdb.embedded.blob.stats",
            _ => b"test.bad",
        };
        Ok([(name.to_vec(), b"1".to_vec())].into())
    }

    fn need_compact(&self) -> bool {
        assert!(*self != Bad::PanicsWhenAsked, "a panic on purpose");
        false
    }
}

fn options(text: &str) -> Options {
    // Format 5, because Debian's sst_dump knows no later one.
    let all = "create_if_missing=true;level_compaction_dynamic_level_bytes=false;merge_operator=put;block_based_table_factory={format_version=5}";
    Options::new().set_all(all).unwrap().set_all(text).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn collectors_see_every_entry_and_what_they_say_stands_in_the_table() {
    let directory = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::default());
    let counts = Arc::new(Counts { seen: seen.clone(), asks_at: None });
    let rule = karst_engine::CompactOnDeletion::default();
    let options = options("num_levels=5;enable_blob_files=true;min_blob_size=1000")
        .compact_on_deletion(rule)
        .table_properties_collector_factory(None, counts)
        .table_properties_collector_factory(None, Arc::new(Bad::IsNone));
    let db = Db::open(directory.path(), &options).unwrap();
    db.put("a", "1").unwrap();
    db.delete("b").unwrap();
    db.single_delete("c").unwrap();
    db.merge("d", "2").unwrap();
    db.put("e", "x".repeat(2000)).unwrap();
    db.delete_range("x", "y").unwrap();
    // Options that are changed by name later keep the collectors.
    db.set_options(db.default_column_family(), &[("write_buffer_size", "1000000")]).unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let (context, shown) = seen.lock().unwrap().pop().unwrap();
    assert_eq!((context.column_family_id, context.level_at_creation, context.num_levels), (0, Some(0), 5));
    let kinds: Vec<_> = shown.iter().map(|(key, _, kind, seq)| (text(key), *kind, *seq)).collect();
    let wanted = [
        ("a", ValueType::Value, 1),
        ("b", ValueType::Deletion, 2),
        ("c", ValueType::SingleDeletion, 3),
        ("d", ValueType::Merge, 4),
        ("e", ValueType::BlobIndex, 5),
        ("x", ValueType::RangeDeletion, 6),
    ];
    assert_eq!(kinds, wanted.map(|(key, kind, seq)| (key.to_owned(), kind, seq)));
    let values = [0, 3, 5].map(|at| text(&shown[at].1));
    assert_eq!(values, ["1", "2", "y"]);
    let check = |entries: &str, size: usize| {
        let all = db.properties_of_all_tables(db.default_column_family()).unwrap();
        assert_eq!(all.len(), 1);
        let (path, properties) = all.iter().next().unwrap();
        assert_eq!(properties.user_collected[&b"test.count"[..]], entries.as_bytes());
        assert_eq!(properties.user_collected[&b"test.binary"[..]], [0, 0xff]);
        assert_eq!(properties.property_collectors_names, "[CompactOnDeletionCollector,test.Counts,test.Bad]");
        assert_eq!(entries.parse::<usize>().unwrap(), size);
        let theirs = table_properties(path).unwrap();
        assert!(theirs.contains(&format!("test.count: 0x{}", hex(entries))), "{theirs}");
        assert!(theirs.contains("test.binary: 0x00FF"), "{theirs}");
        assert!(theirs.contains("[CompactOnDeletionCollector,test.Counts,test.Bad]"), "{theirs}");
    };
    check("6", 6);
    db.put("a", "3").unwrap();
    let all = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&all, None, None).unwrap();
    let (context, shown) = seen.lock().unwrap().pop().unwrap();
    assert_eq!(context.level_at_creation, Some(1));
    check(&shown.len().to_string(), 3);
    drop(db);
    // A table that is made by replaying a log has the properties too.
    let db = Db::open(directory.path(), &options).unwrap();
    db.put("in the log", "1").unwrap();
    drop(db);
    let _db = Db::open(directory.path(), &options).unwrap();
    let (_, shown) = seen.lock().unwrap().pop().unwrap();
    assert_eq!(shown.iter().map(|(key, ..)| text(key)).collect::<Vec<_>>(), ["in the log"]);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02X}")).collect()
}

#[test]
fn a_table_to_be_ingested_has_collectors_too() {
    let directory = tempfile::tempdir().unwrap();
    let seen = Arc::new(Mutex::default());
    let counts = Arc::new(Counts { seen: seen.clone(), asks_at: None });
    let options = options("").table_properties_collector_factory(None, counts);
    let path = directory.path().join("file.sst");
    let mut writer = SstFileWriter::create(&options).unwrap();
    writer.open(&path).unwrap();
    writer.put("a", "1").unwrap();
    writer.finish().unwrap();
    let (context, shown) = seen.lock().unwrap().pop().unwrap();
    assert_eq!((context.level_at_creation, shown.len()), (None, 1));
    assert!(table_properties(&path).unwrap().contains("test.count: 0x31"));
}

#[test]
fn a_table_whose_collector_asks_is_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let counts = Arc::new(Counts { asks_at: Some(10), ..Counts::default() });
    let options = options("level0_file_num_compaction_trigger=10")
        .table_properties_collector_factory(Some("default"), counts);
    let db = Db::open(directory.path(), &options).unwrap();
    let in_l0 = || db.live_files().iter().filter(|file| file.level == Some(0)).count();
    for (entries, left) in [(9, 1), (10, 0)] {
        (0..entries).for_each(|n| db.put(format!("{n}"), "v").unwrap());
        db.flush(&FlushOptions::default()).unwrap();
        db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
        assert_eq!(in_l0(), left, "{entries}");
    }
}

#[test]
fn a_collector_that_fails_or_panics_is_left_out_and_the_table_is_whole() {
    for bad in [
        Bad::PanicsAtCreation,
        Bad::PanicsAtAdd,
        Bad::PanicsAtFinish,
        Bad::PanicsWhenAsked,
        Bad::FailsAtAdd,
        Bad::FailsAtFinish,
        Bad::TakesNames,
        Bad::IsNone,
    ] {
        let directory = tempfile::tempdir().unwrap();
        let options = options("")
            .table_properties_collector_factory(None, Arc::new(bad))
            .table_properties_collector_factory(None, Arc::new(Counts::default()));
        let db = Db::open(directory.path(), &options).unwrap();
        db.put("a", "1").unwrap();
        db.put("b", "1").unwrap();
        db.delete_range("c", "d").unwrap();
        db.flush(&FlushOptions::default()).unwrap_or_else(|error| panic!("{bad:?}: {error}"));
        assert!(db.background_error().is_none(), "{bad:?}");
        let all = db.properties_of_all_tables(db.default_column_family()).unwrap();
        let found = &all.values().next().unwrap().user_collected;
        assert_eq!(found[&b"test.count"[..]], b"3", "{bad:?}: the other one goes on");
        // Compat: the properties of a collector that failed for an entry are written anyway.
        let heard = matches!(bad, Bad::FailsAtAdd | Bad::PanicsWhenAsked);
        assert_eq!(found.contains_key(&b"test.bad"[..]), heard, "{bad:?}");
        drop(db);
        verify_tables(directory.path()).unwrap();
        let theirs = table_properties(directory.path()).unwrap();
        assert!(theirs.contains("test.count") && !theirs.contains("embedded"), "{bad:?}: {theirs}");
        let db = Db::open(directory.path(), &options).unwrap();
        assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"1"[..]), "{bad:?}");
        db.verify_checksum().unwrap();
    }
}
