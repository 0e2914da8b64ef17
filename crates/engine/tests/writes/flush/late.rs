//! A writer that finds its memtable full after it was sealed does not seal the next one, which is
//! almost empty.

use super::{Told, memory, options};
use karst_engine::format::{Comparator, UserComparator};
use karst_engine::{Db, FlushOptions, WaitForCompactOptions, WriteBatch, WriteOptions};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Blocks the insert of the key "slow" until `open` is set.
#[derive(Debug, Default)]
struct Gate {
    reached: AtomicBool,
    open: AtomicBool,
}

impl UserComparator for Gate {
    fn name(&self) -> &str {
        "tests.Gate"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        if a == b"slow" || b == b"slow" {
            self.reached.store(true, SeqCst);
            while !self.open.load(SeqCst) {
                std::thread::yield_now();
            }
        }
        a.cmp(b)
    }
}

#[test]
fn a_memtable_is_not_sealed_because_the_one_before_was_full() {
    let (env, told, gate) = (memory(), Arc::new(Told::default()), Arc::new(Gate::default()));
    let options =
        options(&env).event_listener(told.clone()).comparator(None, Comparator::Custom(gate.clone()));
    let db = Db::open("/db", &options).unwrap();
    db.put("first", "value").unwrap();
    std::thread::scope(|scope| {
        // The batch exceeds a memtable's size and has too many entries to be left for others, so
        // this writer inserts it itself.
        scope.spawn(|| {
            let mut batch = WriteBatch::new();
            batch.put("slow", vec![1; 1 << 10]).unwrap();
            (0..100).for_each(|n| batch.put(format!("key{n}"), vec![1; 1 << 10]).unwrap());
            db.write(&WriteOptions::new(), &batch).unwrap();
        });
        karst_testkit::eventually(true, || gate.reached.load(SeqCst));
        let sealed = FlushOptions { wait: false, ..FlushOptions::default() };
        db.flush(&sealed).unwrap();
        // The entry is in the next memtable and waits until all earlier writes are visible.
        scope.spawn(|| db.put("next", "value").unwrap());
        let counts = || db.int_property("rocksdb.num-entries-active-mem-table");
        karst_testkit::eventually(Some(1), counts);
        gate.open.store(true, SeqCst);
    });
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(db.int_property("rocksdb.num-entries-active-mem-table"), Some(1));
    db.close().unwrap();
    assert_eq!(*told.0.lock().unwrap(), ["begun default 102", "completed default 102 true"]);
}
