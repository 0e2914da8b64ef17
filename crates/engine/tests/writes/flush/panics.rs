//! Inserts that panic while their memtable is about to be flushed.

use super::{all, memory, options};
use karst_engine::format::{Comparator, UserComparator};
use karst_engine::{Db, FlushOptions, WriteBatch, WriteOptions};
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Bytewise comparator. While armed, it blocks at the key "boom" until it may continue, and then
/// panics.
#[derive(Debug, Default)]
struct Fragile {
    armed: AtomicBool,
    reached: AtomicBool,
    goes_on: AtomicBool,
}

impl UserComparator for Fragile {
    fn name(&self) -> &str {
        "tests.Fragile"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if (a == b"boom" || b == b"boom") && self.armed.load(SeqCst) {
            self.reached.store(true, SeqCst);
            until(|| self.goes_on.load(SeqCst));
            panic!("the comparator's own");
        }
        a.cmp(b)
    }
}

fn until(holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "it does not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_flush_that_waits_for_an_insert_that_panics_installs_nothing() {
    let (env, fragile) = (memory(), Arc::new(Fragile::default()));
    let options = options(&env).comparator(None, Comparator::Custom(fragile.clone()));
    let db = Db::open("/db", &options).unwrap();
    db.put("a", "1").unwrap();
    assert_eq!(all(&db).len(), 1, "it is inserted");
    // The batch has more entries than may be left for another thread to insert. The key comes
    // first, so that no uncounted entry is inserted: the flush would notice those in another way.
    let mut batch = WriteBatch::new();
    batch.put("boom", "2").unwrap();
    (0..40).for_each(|n| batch.put(format!("b{n:02}"), "2").unwrap());
    fragile.armed.store(true, SeqCst);
    std::thread::scope(|scope| {
        let write = || catch_unwind(AssertUnwindSafe(|| db.write(&WriteOptions::default(), &batch)));
        let writer = scope.spawn(write);
        until(|| fragile.reached.load(SeqCst));
        db.flush(&FlushOptions { wait: false, ..FlushOptions::default() }).unwrap();
        until(|| db.int_property("rocksdb.num-running-flushes") == Some(1));
        fragile.goes_on.store(true, SeqCst);
        assert!(writer.join().unwrap().is_err(), "it does not panic");
    });
    until(|| db.int_property("rocksdb.num-running-flushes") == Some(0));
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
    for refused in [db.put("c", "3"), db.flush(&FlushOptions::default())] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("panicked") && refused.contains("opened anew"), "{refused}");
    }
    db.close().unwrap();
    drop(db);
    fragile.armed.store(false, SeqCst);
    let found = all(&Db::open("/db", &options).unwrap());
    assert_eq!(found.len(), 42, "the batch is torn: {found:?}");
}

/// Small writes are left for another thread to insert, here for the flush.
#[test]
fn a_flush_whose_own_insert_panics_fails_and_installs_nothing() {
    let (env, fragile) = (memory(), Arc::new(Fragile::default()));
    let options = options(&env).comparator(None, Comparator::Custom(fragile.clone()));
    let db = Db::open("/db", &options).unwrap();
    fragile.goes_on.store(true, SeqCst);
    fragile.armed.store(true, SeqCst);
    ["a", "boom", "c"].iter().for_each(|key| db.put(key, "1").unwrap());
    assert!(!fragile.reached.load(SeqCst), "it is inserted");
    db.flush(&FlushOptions::default()).unwrap_err();
    until(|| db.int_property("rocksdb.num-running-flushes") == Some(0));
    assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
    let refused = db.put("d", "2").unwrap_err().to_string();
    assert!(refused.contains("panicked") && refused.contains("opened anew"), "{refused}");
    db.close().unwrap();
    drop(db);
    fragile.armed.store(false, SeqCst);
    let found = all(&Db::open("/db", &options).unwrap());
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [&b"a"[..], b"boom", b"c"]);
}
