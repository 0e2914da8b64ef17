//! The checker of reads (`karst_testkit::commit_order`) detects faults: it reports violations for
//! writes that are published too early, and none for the real pipeline.

use super::*;
use crate::handoff::Fate;
use crate::wal::sub_batches::SubBatches;
use crate::{Phase, PhaseWrite, Section};
use arc_swap::ArcSwap;
use karst_base::snapshot::{ReadAt, Snapshots, pin_with_all};
use karst_testkit::commit_order::{
    self, CommitOrder, Durability, FAMILIES, Key, Part, SHARED, Store, Value, merged, never_seen,
};
use std::cell::Cell;
use std::time::Duration;

/// Inserts slowly, so that reads meet the intermediate states.
struct Slow(TestHost);

/// Sleeps on some calls, long enough for others to write and to read.
fn dawdle() {
    thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
    CALLS.set(CALLS.get() + 1);
    if CALLS.get().is_multiple_of(61) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Host for Slow {
    type Pin = Arc<MemTable>;
    fn pin(&self, family: ColumnFamilyId) -> Result<Option<Arc<MemTable>>> {
        self.0.pin(family)
    }
    fn is_overfull(&self, _: ColumnFamilyId) -> bool {
        false
    }

    fn memtable(pin: &Arc<MemTable>) -> &Arc<MemTable> {
        dawdle();
        pin
    }
    fn prepared(&self, _: FileNumber) {}
    fn applied(&self, _: ColumnFamilyId, _: &Arc<MemTable>) {
        // Delays here too, because a commit inserts nothing.
        dawdle();
    }
    fn logs_grew(&self, _: u64) {}
    fn log_failed(&self, error: &Error) {
        panic!("{error}");
    }
    fn log_synced(&self, _: FileNumber, _: u64) {}
    fn log_ended(&self, _: FileNumber) {}
}

/// The memtables of a column family, newest first.
type View = Vec<Arc<MemTable>>;

/// A pipeline and its memtables as a store. Range deletions are skipped, because every batch with
/// one puts all keys that it deletes. A merge is a put of the value read before and the operand:
/// each key has one writer at a time.
struct Memory<H: Host> {
    pipeline: Arc<Pipeline<H>>,
    /// Number of the newest log.
    last_log: Mutex<FileNumber>,
    /// Memtables that take writes.
    open: Memtables,
    /// All memtables of each column family, newest first. They are exchanged, and never flushed.
    memtables: Vec<ArcSwap<View>>,
    readers: Arc<Snapshots>,
    /// True if reads wait for acknowledged writes.
    waits: bool,
    /// True if writes are [published too early](publish_and_apply).
    hasty: bool,
    /// Number of the next transaction, if batches are prepared and then committed.
    prepares: Option<AtomicU64>,
    /// True if reads pin again when memtables were exchanged before they had a sequence number.
    pins_again: bool,
    /// True if some batches are written and reported as refused.
    leaks: bool,
    /// Held by the writer of the shared key.
    shares: Mutex<()>,
}

impl<H: Host> Memory<H> {
    fn new(rules: Rules, waits: bool, of: impl FnOnce(TestHost) -> H) -> Self {
        let files = MemoryFileSystem::new();
        files.create_dir(Path::new(DIRECTORY)).unwrap();
        let env = Env::builder().file_system(Arc::new(files)).build();
        let first: Vec<_> = (0..FAMILIES).map(|_| memtable()).collect();
        let host = TestHost::default();
        host.open.lock().extend((0..).map(ColumnFamilyId).zip(first.iter().cloned()));
        let (open, memtables) =
            (host.open.clone(), first.into_iter().map(|one| ArcSwap::from_pointee(vec![one])));
        let memtables = memtables.collect();
        let pipeline = pipeline_of(&env, Path::new(DIRECTORY), rules, of(host));
        let readers = Arc::new(Snapshots::new(pipeline.pending.clone(), false));
        let prepares = pipeline.pending.is_some().then(AtomicU64::default);
        let last_log = Mutex::new(FileNumber(1));
        Self {
            pipeline,
            last_log,
            open,
            memtables,
            readers,
            waits,
            hasty: false,
            prepares,
            pins_again: true,
            leaks: false,
            shares: Mutex::default(),
        }
    }

    /// Commits one write; with `hasty`, publishes it too early.
    fn commit(&self, options: &WriteOptions, source: Source<'_>) {
        match self.hasty {
            true => publish_and_apply(&self.pipeline, options, &source),
            false => self.pipeline.write(options, source).unwrap(),
        }
    }

    /// Returns the point at which a read that begins now reads.
    fn newest(&self) -> ReadAt {
        self.readers.newest(|| self.pipeline.read_seq()).kept()
    }

    fn pin(&self) -> Pinned {
        let pinned = self.memtables.iter().map(|view| view.load_full()).collect();
        dawdle();
        Pinned(pinned)
    }

    /// Returns the result of `read` on the pinned memtables at `at`, or at the newest point.
    fn at<T>(&self, at: Option<&ReadAt>, read: impl FnOnce(&Pinned, &ReadAt) -> T) -> T {
        let newest = || {
            let has_all_to = |pinned: &Pinned, seq| !self.pins_again || pinned.has_all_to(seq);
            pin_with_all(|| self.pin(), || Ok(self.newest()), has_all_to).unwrap()
        };
        let wait = |at: &ReadAt| {
            if self.waits {
                self.pipeline.wait_until_readable(at.seq);
            }
        };
        match at {
            Some(at) => {
                let pinned = self.pin();
                wait(at);
                read(&pinned, at)
            }
            None => {
                let (pinned, at) = newest();
                wait(&at);
                read(&pinned, &at)
            }
        }
    }

    fn now(&self, family: usize, key: &Key) -> Option<Value> {
        self.at(None, |pinned, at| pinned.find(at, family, key))
    }

    /// Exchanges the memtables of all column families.
    fn exchange(&self) {
        let exchange = |seal| {
            for ((_, open), view) in self.open.lock().iter_mut().zip(&self.memtables) {
                let old = std::mem::replace(open, memtable());
                old.seal(seal);
                let all = std::iter::once(&*open).chain(view.load().iter()).cloned().collect();
                view.store(Arc::new(all));
            }
        };
        // Lock: held throughout, so that logs come in the order of their numbers.
        let mut last_log = self.last_log.lock();
        last_log.0 += 1;
        let env = &self.pipeline.around.env;
        let log =
            NewLog::create(env.fs(), Path::new(DIRECTORY), *last_log, self.pipeline.log_options()).unwrap();
        self.pipeline.seal(&mut Some(log), exchange).unwrap().expect("there is a log");
    }

    /// Prepares a batch that no reader may see, and rolls it back.
    fn roll_back(&self, options: &WriteOptions, name: &[u8], batch: &[Part]) {
        let (mut never, mut before) = (WriteBatch::new(), WriteBatch::new());
        for part in batch {
            let Part::Put { family, key, value } = part else { continue };
            let cf = ColumnFamilyId(*family as u32);
            // A key may be missing at first, and one of two keys always is.
            let Some(there) = self.now(*family, key) else { continue };
            never.push_checked(Op::Put { cf, key, value: &never_seen(value) });
            before.push_checked(Op::Put { cf, key, value: &there });
        }
        if before.count() == 0 {
            return;
        }
        let numbers = SubBatches::of(never.iter(), |_, a, b| a.cmp(b));
        let section = Arc::new(Section::new(name, never, Some(numbers)));
        for phase in [PhaseWrite::new(&section, Phase::Prepare), PhaseWrite::restoring(&section, before)] {
            self.commit(options, Source::Phase(phase));
        }
    }
}

/// Writes in a wrong order of steps: publishes a batch and then inserts it; publishes a commit and
/// then decides its section.
fn publish_and_apply<H: Host>(pipeline: &Arc<Pipeline<H>>, options: &WriteOptions, source: &Source<'_>) {
    let mut pins = Pins::new();
    let (ordered, round) = loop {
        match pipeline.order(options, source, None, &mut pins, Lead::Here) {
            Ok(ordered) => break ordered,
            Err(NotOrdered::Refused(error)) => panic!("{error}"),
            Err(NotOrdered::Full | NotOrdered::Stopped) => std::thread::yield_now(),
        }
    };
    if let Some(round) = round {
        pipeline.lead_round(round);
    }
    let (ticket, first_seq) = (ordered.ticket, ordered.first_seq);
    while ordered.persists && pipeline.persist.fate(ticket, options.sync) == Fate::Open {
        pipeline.lead_for_others();
    }
    pipeline.apply.finish(ticket);
    source.insert::<H>(first_seq, &pins).unwrap();
    for (family, pin) in pins.drain(..) {
        pipeline.host().applied(family, &pin);
    }
    if let Some(phase) = source.phase() {
        phase.applies();
        phase.applied(first_seq);
    }
    pipeline.lead_elsewhere();
}

/// Memtables pinned by a read, by column family.
struct Pinned(Vec<Arc<View>>);

impl Pinned {
    fn has_all_to(&self, seq: SeqNo) -> bool {
        self.0.iter().all(|view| view[0].has_all_to(seq))
    }

    fn find(&self, at: &ReadAt, family: usize, key: &Key) -> Option<Value> {
        let mut seek = Vec::new();
        key::append(&mut seek, key, key::pack_trailer(at.seq, key::ValueType::FOR_SEEK));
        self.0[family].iter().find_map(|memtable| {
            let mut entries = memtable.entries_of(&seek).unwrap().map(Result::unwrap);
            let entry = entries.find(|entry| !at.hides(entry.seq))?;
            Some((entry.kind == key::ValueType::Value).then(|| memtable.value(entry.at).to_vec()))
        })?
    }
}

impl<H: Host> Store for Memory<H> {
    type Snapshot = ReadAt;

    async fn write(&self, durability: Durability, batch: &[Part]) -> bool {
        let shares = batch.iter().any(|part| matches!(part, Part::Merge { key, .. } if *key == SHARED));
        let _alone = shares.then(|| self.shares.lock());
        let mut writes = WriteBatch::new();
        for part in batch {
            match part {
                Part::Put { family, key, value } => {
                    writes.push_checked(Op::Put { cf: ColumnFamilyId(*family as u32), key, value });
                }
                Part::Merge { family, key, operand } => {
                    let value = &merged(*family, self.now(*family, key).as_ref(), operand);
                    writes.push_checked(Op::Put { cf: ColumnFamilyId(*family as u32), key, value });
                }
                Part::SingleDelete { family, key } => {
                    writes.push_checked(Op::SingleDelete { cf: ColumnFamilyId(*family as u32), key });
                }
                Part::Clear { .. } => {}
            }
        }
        let disable_wal = durability == Durability::Unlogged;
        let options = WriteOptions { disable_wal, ..WriteOptions::new() };
        let Some(names) = &self.prepares else {
            self.commit(&options, Source::Batch(&writes));
            return !self.leaks || !self.pipeline.publish.visible().0.is_multiple_of(64);
        };
        let numbers = SubBatches::of(writes.iter(), |_, a, b| a.cmp(b));
        let name = names.fetch_add(1, Ordering::Relaxed);
        if name % 4 == 3 {
            self.roll_back(&options, &name.to_be_bytes(), batch);
        }
        let name = name.to_le_bytes();
        let section = Arc::new(Section::new(&name, writes, Some(numbers)));
        for phase in [Phase::Prepare, Phase::Commit] {
            self.commit(&options, Source::Phase(PhaseWrite::new(&section, phase)));
        }
        self.pipeline.forget_decided();
        true
    }

    async fn get(&self, at: Option<&ReadAt>, family: usize, key: &Key) -> Option<Value> {
        self.at(at, |pinned, at| pinned.find(at, family, key))
    }

    async fn multi_get(&self, at: Option<&ReadAt>, keys: &[(usize, Key)]) -> Vec<Option<Value>> {
        self.at(at, |pinned, at| keys.iter().map(|(family, key)| pinned.find(at, *family, key)).collect())
    }

    async fn scan(
        &self,
        at: Option<&ReadAt>,
        family: usize,
        from: &Key,
        entries: usize,
        backward: bool,
    ) -> Vec<(Key, Value)> {
        let mut keys: Vec<Key> = commit_order::keys().collect();
        if backward {
            keys.reverse();
        }
        let from = keys.iter().position(|key| key == from).expect("a key of ours");
        self.at(at, |pinned, at| {
            let find = |key: &Key| Some((*key, pinned.find(at, family, key)?));
            keys[from..].iter().filter_map(find).take(entries).collect()
        })
    }

    fn snapshot(&self) -> ReadAt {
        self.newest()
    }

    async fn pause(&self, _: Duration) {}
}

/// Reads until `keys` keys are checked, or a violation is found.
fn violations<H: Host>(memory: &Memory<H>, durability: Durability, keys: u64) -> u64 {
    let order = CommitOrder::new(&[durability], Duration::ZERO);
    let env = memory.pipeline.around.env.clone();
    karst_io::block_on(&env, order.prepare(memory));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (order, env) = (&order, &env);
            scope.spawn(move || karst_io::block_on(env, order.write(memory, thread, 3)));
            scope.spawn(move || karst_io::block_on(env, order.read(memory, thread as u64)));
        }
        while order.violations().0 == 0 && order.checked() < keys {
            std::thread::sleep(Duration::from_millis(1));
            memory.exchange();
        }
        order.end();
    });
    order.violations().0
}

const FEW: u64 = 130_000;
/// Without a limit, other than the time of a test: some ten thousand keys suffice on a quiet
/// machine, and millions where threads of other programs run between those that have to meet.
const MANY: u64 = u64::MAX;

fn unordered() -> Rules {
    Rules { unordered: true, ..rules() }
}

fn prepared() -> Rules {
    Rules { two_queues: true, ..unordered() }
}

fn hasty(rules: Rules) -> Memory<Slow> {
    Memory { hasty: true, ..Memory::new(rules, true, Slow) }
}

#[test]
fn a_batch_that_is_published_before_it_is_inserted_is_found_out() {
    for durability in [Durability::Unlogged, Durability::Logged] {
        assert!(violations(&hasty(rules()), durability, MANY) > 0);
    }
    assert!(violations(&hasty(unordered()), Durability::Unlogged, MANY) > 0);
}

#[test]
fn a_commit_that_is_published_before_it_is_decided_is_found_out() {
    assert!(violations(&hasty(prepared()), Durability::Logged, MANY) > 0);
}

#[test]
fn a_batch_that_is_refused_and_written_all_the_same_is_found_out() {
    let memory = Memory { leaks: true, ..Memory::new(unordered(), true, Slow) };
    assert!(violations(&memory, Durability::Logged, MANY) > 0);
}

#[test]
fn reads_that_do_not_wait_for_what_is_acknowledged_are_found_out() {
    for rules in [unordered(), prepared()] {
        assert!(violations(&Memory::new(rules, false, Slow), Durability::Unlogged, MANY) > 0);
    }
}

#[test]
fn reads_that_decide_by_more_than_they_have_pinned_are_found_out() {
    let memory = Memory { pins_again: false, ..Memory::new(prepared(), true, Slow) };
    assert!(violations(&memory, Durability::Logged, MANY) > 0);
}

#[test]
fn the_pipeline_that_ships_has_no_violations() {
    for rules in [rules(), unordered(), prepared()] {
        for durability in [Durability::Unlogged, Durability::Logged] {
            assert_eq!(violations(&Memory::new(rules, true, |host| host), durability, FEW), 0);
            assert_eq!(violations(&Memory::new(rules, true, Slow), durability, FEW), 0);
        }
    }
}
