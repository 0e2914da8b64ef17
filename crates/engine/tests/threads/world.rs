//! Environment of a scenario: files in memory, among which logs may fail, and threads of shuttle;
//! the ledger of begun and acknowledged batches; and checks of a database against it.

use crate::reading::Reading;
use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{ColumnFamily, Db, OptionSet, Options, ReadOptions, Result, WriteBatch, WriteOptions};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, TransportKind};
use karst_testkit::random::Random;
use karst_testkit::subject::{Move, ReadSettings, Subject};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const PATH: &str = "/db";
/// Names of the families of counters and of lists.
pub(crate) const COUNTS: &str = "default";
pub(crate) const LISTS: &str = "lists";
/// Key of the counter that all writers share.
const SUM: &str = "sum";
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Maximum size of a value; a few of these fill a memtable.
const LONGEST_VALUE: usize = 40 << 10;

/// Number of changes of logs that fail from now on.
#[derive(Debug, Default)]
struct BadLogs(AtomicU64);

impl Disturb for BadLogs {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        let one_less = |left: u64| left.checked_sub(1);
        match is_log && self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            true => Err(io::Error::other("a log that fails")),
            false => Ok(()),
        }
    }
}

/// Files and threads of databases.
#[derive(Clone)]
pub(crate) struct World {
    disk: MemoryFileSystem,
    bad_logs: Arc<BadLogs>,
    pub(crate) env: Env,
}

impl World {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self::on(MemoryFileSystem::new(), random.next_u64())
    }

    fn on(disk: MemoryFileSystem, seed: u64) -> Self {
        let files = DisturbedFileSystem::new(Arc::new(disk.clone()), BadLogs::default());
        let bad_logs = files.between().clone();
        let env = Env::builder()
            .file_system(Arc::new(files))
            .transport(TransportKind::Threads)
            .threads(2)
            .jobs_give_way(&[])
            .seed(seed)
            .build();
        Self { disk, bad_logs, env }
    }

    /// Makes the next `changes` changes of logs fail.
    pub(crate) fn fail_logs(&self, changes: u64) {
        self.bad_logs.0.store(changes, Ordering::Relaxed);
    }

    /// Returns the files that would be found if the process were killed now.
    pub(crate) fn crashed(&self) -> Self {
        Self::on(self.disk.copy(), 0)
    }
}

/// Random options of a database.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    unordered: bool,
    atomic: bool,
    recycled: usize,
    compressed: &'static str,
    jobs: i32,
}

impl Drawn {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            unordered: random.one_in(2),
            atomic: random.one_in(3),
            recycled: random.index(2),
            compressed: ["kNoCompression", "kZSTD"][random.index(2)],
            jobs: if random.one_in(2) { 2 } else { 4 },
        }
    }

    /// Adapts the options to writers that log nothing.
    pub(crate) fn be_unlogged(&mut self) {
        self.atomic = true;
        self.recycled = 0;
    }

    pub(crate) fn on(&self, world: &World) -> Options {
        let drawn = self.clone();
        Options::new()
            .env(world.env.clone())
            .block_cache_bytes(16 << 10)
            .db(move |db| {
                db.create_if_missing = true;
                db.create_missing_column_families = true;
                db.unordered_write = drawn.unordered;
                db.atomic_flush = drawn.atomic;
                db.recycle_log_file_num = drawn.recycled;
                db.max_background_jobs = drawn.jobs;
                db.avoid_flush_during_recovery = true;
                db.stats_dump_period_sec = 0;
                // As short as possible, because no thread here wakes from a long pause.
                db.bgerror_resume_retry_interval = 10_000;
            })
            .column_families(|family| {
                family.write_buffer_size = WRITE_BUFFER_BYTES;
                family.level0_file_num_compaction_trigger = 2;
            })
            .set_all(&format!("merge_operator=uint64add;wal_compression={}", self.compressed))
            .unwrap()
            .column_family(LISTS, |family| {
                family.set_all("merge_operator=stringappend").unwrap();
            })
    }

    /// Creates a database.
    pub(crate) fn create(&self, world: &World) -> Result<Db> {
        Db::open_cf(PATH, &self.on(world), &[COUNTS, LISTS])
    }

    /// Opens the existing database with all its families.
    pub(crate) fn open(&self, world: &World, path: &str) -> Result<Db> {
        Db::open(path, &self.on(world))
    }
}

/// Batches that the writers of a schedule have begun and know to be done. Lock: no other lock is
/// taken under it, and shuttle does not know it.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<usize, Account>>);

#[derive(Debug, Default)]
struct Account {
    begun: u64,
    /// Acknowledged batches.
    done: BTreeSet<u64>,
    /// Acknowledged batches that survive although they are in no log.
    kept: BTreeSet<u64>,
}

/// By writer: the batches that must exist, and the number of the last one that may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known(BTreeMap<usize, (BTreeSet<u64>, u64)>);

impl Known {
    /// Returns the batches that must exist by `self`, with the last allowed numbers of `later`.
    pub(crate) fn up_to(mut self, later: &Self) -> Self {
        for (writer, (_, last)) in &later.0 {
            self.0.entry(*writer).or_default().1 = *last;
        }
        self
    }
}

impl Ledger {
    fn begin(&self, writer: usize) -> u64 {
        let mut accounts = self.0.lock().unwrap();
        let account = accounts.entry(writer).or_default();
        account.begun += 1;
        account.begun
    }

    fn done(&self, writer: usize, number: u64) {
        self.0.lock().unwrap().entry(writer).or_default().done.insert(number);
    }

    /// Returns the batches that `which` selects of each account, as those that must exist now.
    fn known_by(&self, which: impl Fn(&Account) -> &BTreeSet<u64>) -> Known {
        let accounts = self.0.lock().unwrap();
        Known(accounts.iter().map(|(writer, of)| (*writer, (which(of).clone(), of.begun))).collect())
    }

    pub(crate) fn known(&self) -> Known {
        self.known_by(|account| &account.done)
    }

    pub(crate) fn known_to_survive(&self, logged: bool) -> Known {
        self.known_by(|account| if logged { &account.done } else { &account.kept })
    }

    /// Records that the batches known `then` are in tables now.
    pub(crate) fn keep(&self, then: &Known) {
        let mut accounts = self.0.lock().unwrap();
        for (writer, (done, _)) in &then.0 {
            accounts.entry(*writer).or_default().kept.extend(done);
        }
    }

    /// Writes the next batch of a writer: increments its counter and the shared one, appends the
    /// batch's number to its list, and adds perhaps a value of random length and the entries of
    /// `batch`.
    pub(crate) fn write(
        &self,
        db: &Db,
        random: &mut Random,
        writer: usize,
        logged: bool,
        mut batch: WriteBatch,
    ) -> Result<()> {
        let (counts, lists) = families(db);
        let number = self.begin(writer);
        batch.merge_cf(&counts, SUM, 1u64.to_le_bytes())?;
        batch.merge_cf(&counts, counter(writer), 1u64.to_le_bytes())?;
        batch.merge_cf(&lists, list(writer), number.to_string())?;
        if random.one_in(2) {
            let (family, key) = if random.one_in(2) { (&counts, counter(99)) } else { (&lists, list(99)) };
            let value = vec![number as u8; 8 * random.index(LONGEST_VALUE / 8)];
            batch.put_cf(family, key, value)?;
        }
        let options = WriteOptions { disable_wal: !logged, ..WriteOptions::default() };
        db.write(&options, &batch)?;
        self.done(writer, number);
        Ok(())
    }
}

fn families(db: &Db) -> (ColumnFamily, ColumnFamily) {
    (db.default_column_family().clone(), db.column_family(LISTS).expect("it is open"))
}

fn counter(writer: usize) -> String {
    format!("count{writer}")
}

fn list(writer: usize) -> String {
    format!("list{writer}")
}

/// Returns all entries of a column family; four ways of reading it must agree.
pub(crate) fn contents(db: &Db, options: &ReadOptions, family: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let reading = Reading { db, options: options.clone() };
    let walk = |first: Move, next: Move| {
        let mut cursor = reading.cursor(family, &ReadSettings::default()).unwrap();
        cursor.apply(&first).unwrap();
        let mut found = Vec::new();
        while let Some((key, value)) = cursor.current() {
            found.push((key.to_vec(), value.to_vec()));
            cursor.apply(&next).unwrap();
        }
        found
    };
    let forward = walk(Move::First, Move::Next);
    let mut backward = walk(Move::Last, Move::Prev);
    backward.reverse();
    assert_eq!(forward, backward, "{family}: an iterator forward, and one backward");
    let keys: Vec<Vec<u8>> = forward.iter().map(|(key, _)| key.clone()).collect();
    let values: Vec<_> = forward.iter().map(|(_, value)| Some(value.clone())).collect();
    let one_by_one: Vec<_> = keys.iter().map(|key| reading.get(family, key).unwrap()).collect();
    assert_eq!(values, one_by_one, "{family}: an iterator, and get");
    assert_eq!(values, reading.multi_get(family, &keys).unwrap(), "{family}: an iterator, and multi_get");
    forward.into_iter().collect()
}

fn number(value: Option<&Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().expect("a counter has eight bytes")))
}

/// Numbers of the batches found, by writer.
pub(crate) type Found = BTreeMap<usize, Vec<u64>>;

/// Returns the batches of each writer that a reader finds. Each must be there once and completely,
/// or not at all.
pub(crate) fn batches(db: &Db, options: &ReadOptions, when: &str) -> Found {
    let (counts, lists) = (contents(db, options, COUNTS), contents(db, options, LISTS));
    let mut found = BTreeMap::new();
    for writer in 0..4 {
        let listed = lists.get(list(writer).as_bytes()).map_or("", |text| std::str::from_utf8(text).unwrap());
        let listed: Vec<u64> = listed.split_terminator(',').map(|number| number.parse().unwrap()).collect();
        assert!(listed.is_sorted_by(|a, b| a < b), "{when}: writer {writer} has the list {listed:?}");
        let counted = number(counts.get(counter(writer).as_bytes()));
        assert_eq!(counted, listed.len() as u64, "{when}: writer {writer} has the list {listed:?}, counted");
        found.insert(writer, listed);
    }
    let sum = found.values().map(|listed| listed.len() as u64).sum::<u64>();
    assert_eq!(number(counts.get(SUM.as_bytes())), sum, "{when}: the sum of {found:?}");
    found
}

/// Asserts that a database has each required batch once, and no batch that was not begun.
pub(crate) fn check(db: &Db, known: &Known, when: &str) -> Found {
    let found = batches(db, &ReadOptions::default(), when);
    for (writer, listed) in &found {
        let (must, last) = known.0.get(writer).cloned().unwrap_or_default();
        let missing: Vec<_> = must.iter().filter(|number| !listed.contains(number)).collect();
        assert!(missing.is_empty(), "{when}: writer {writer} has {listed:?}, without {missing:?}");
        assert!(listed.last() <= Some(&last), "{when}: writer {writer} has {listed:?}, and began {last}");
    }
    found
}
