//! The checker of reads (`karst_testkit::commit_order`) finds what it looks for: pointed at a publish step that is broken it reports violations, at the one that ships none.

use super::*;
use std::time::Duration;
use karst_testkit::commit_order::{self, CommitOrder, Durability, FAMILIES, Key, Part, Store, Value};

/// Publishes a batch, then inserts it.
struct Hasty(TestHost);

impl Host for Hasty {
    type Pin = Arc<MemTable>;
    const PUBLISHES_TOO_EARLY: bool = true;
    fn pin(&self, family: ColumnFamilyId) -> Option<Arc<MemTable>> {
        self.0.pin(family)
    }
    fn memtable(pin: &Arc<MemTable>) -> &Arc<MemTable> {
        pin
    }
    fn applied(&self, _: ColumnFamilyId, _: &Arc<MemTable>) {}
    fn logs_grew(&self, _: u64) {}
    fn log_failed(&self, error: &Error) {
        panic!("{error}");
    }
    fn log_synced(&self, _: FileNumber, _: u64) {}
    fn log_ended(&self, _: FileNumber) {}
}

/// A pipeline and its memtables as a store. Range deletions are passed over: every batch with one puts all that it deletes.
struct Memory<H: Host> {
    pipeline: Arc<Pipeline<H>>,
    memtables: Vec<Arc<MemTable>>,
    /// Whether reads wait for what is acknowledged.
    waits: bool,
}

impl<H: Host> Memory<H> {
    fn new(unordered: bool, waits: bool, of: impl FnOnce(TestHost) -> H) -> Self {
        let files = MemoryFileSystem::new();
        files.create_dir(Path::new(DIRECTORY)).unwrap();
        let env = Env::builder().file_system(Arc::new(files)).build();
        let memtables: Vec<_> = (0..FAMILIES).map(|_| memtable()).collect();
        let host = TestHost::default();
        let families = (0..).map(ColumnFamilyId).zip(memtables.iter().cloned());
        host.open.lock().extend(families);
        let rules = Rules { unordered, ..rules() };
        let pipeline = pipeline_of(&env, Path::new(DIRECTORY), rules, of(host));
        Self { pipeline, memtables, waits }
    }

    /// Where a read reads.
    fn seq(&self, at: Option<&SeqNo>) -> SeqNo {
        let seq = at.copied().unwrap_or_else(|| self.pipeline.read_seq());
        if self.waits {
            self.pipeline.wait_until_readable(seq);
        }
        seq
    }

    fn find(&self, seq: SeqNo, family: usize, key: &Key) -> Option<Value> {
        let mut seek = Vec::new();
        key::append(&mut seek, key, key::pack_trailer(seq, key::ValueType::FOR_SEEK));
        let entry = self.memtables[family].entries_of(&seek).unwrap().next()?.unwrap();
        Some(self.memtables[family].value(entry.at).try_into().expect("a value of ours"))
    }
}

impl<H: Host> Store for Memory<H> {
    type Snapshot = SeqNo;

    async fn write(&self, durability: Durability, batch: &[Part]) {
        let mut writes = WriteBatch::new();
        for part in batch {
            if let Part::Put { family, key, value } = part {
                let cf = ColumnFamilyId(*family as u32);
                writes.push_checked(Op::Put { cf, key, value });
            }
        }
        let disable_wal = durability == Durability::Unlogged;
        let options = WriteOptions { disable_wal, ..WriteOptions::new() };
        self.pipeline.write(&options, Source::Batch(&writes)).unwrap();
    }

    async fn get(&self, at: Option<&SeqNo>, family: usize, key: &Key) -> Option<Value> {
        self.find(self.seq(at), family, key)
    }

    async fn multi_get(&self, at: Option<&SeqNo>, keys: &[(usize, Key)]) -> Vec<Option<Value>> {
        let seq = self.seq(at);
        keys.iter().map(|(family, key)| self.find(seq, *family, key)).collect()
    }

    async fn scan(
        &self,
        at: Option<&SeqNo>,
        family: usize,
        from: &Key,
        entries: usize,
        backward: bool,
    ) -> Vec<(Key, Value)> {
        let seq = self.seq(at);
        let mut keys: Vec<Key> = commit_order::keys().collect();
        if backward {
            keys.reverse();
        }
        let from = keys.iter().position(|key| key == from).expect("a key of ours");
        let find = |key: &Key| Some((*key, self.find(seq, family, key)?));
        keys[from..].iter().take(entries).filter_map(find).collect()
    }

    fn snapshot(&self) -> SeqNo {
        self.pipeline.read_seq()
    }

    async fn pause(&self, _: Duration) {}
}

/// Reads until so many keys are checked, or anything is found.
fn violations<H: Host>(memory: &Memory<H>, durability: Durability, keys: u64) -> u64 {
    let order = CommitOrder::new(&[durability], Duration::ZERO);
    let env = memory.pipeline.env.clone();
    karst_io::block_on(&env, order.prepare(memory));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (order, env) = (&order, &env);
            scope.spawn(move || karst_io::block_on(env, order.write(memory, thread, 3)));
            scope.spawn(move || karst_io::block_on(env, order.read(memory, thread as u64)));
        }
        while order.violations().0 == 0 && order.checked() < keys {
            std::thread::sleep(Duration::from_millis(1));
        }
        order.end();
    });
    order.violations().0
}

const FEW: u64 = 200_000;
/// Mostly a thousandth of it is enough.
const MANY: u64 = 20_000_000;

#[test]
fn a_batch_that_is_published_before_it_is_inserted_is_found_out() {
    for durability in [Durability::Unlogged, Durability::Logged] {
        assert!(violations(&Memory::new(false, true, Hasty), durability, MANY) > 0);
    }
    assert!(violations(&Memory::new(true, true, Hasty), Durability::Unlogged, MANY) > 0);
}

#[test]
fn reads_that_do_not_wait_for_what_is_acknowledged_are_found_out() {
    assert!(violations(&Memory::new(true, false, |host| host), Durability::Unlogged, MANY) > 0);
}

#[test]
fn the_pipeline_that_ships_has_no_violations() {
    for unordered in [false, true] {
        for durability in [Durability::Unlogged, Durability::Logged] {
            assert_eq!(violations(&Memory::new(unordered, true, |host| host), durability, FEW), 0);
        }
    }
}
