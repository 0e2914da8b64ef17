//! A database on a simulated machine, through all its lives, and the tasks that use it: writers,
//! readers, holders of snapshots and iterators, and tasks that flush, compact and make copies. All
//! reads are compared with the chronicle.
//!
//! In foul weather the disk also fails now and then, at any change: then writes and flushes may
//! fail, writers retry until the database has recovered, and reads must still be right.

use crate::blob_garbage::check_blob_garbage;
use crate::copying;
use crate::importing::{self, Imported};
use crate::ingesting::ingest;
use crate::memtables::Memtables;
use crate::reading::Reading;
use crate::setting_back;
use crate::store::{self, Families, Plan};
use crate::torn_manifest;
use crate::writing::batch;
use karst_engine::{
    ColumnFamily, CompactRangeOptions, Db, DbIterator, Error, ErrorKind, FlushOptions, Options, ReadOptions,
    Severity, Snapshot, WriteOptions,
};
use karst_io::{Crash, Env, FileSystem, Priority, SimulatedFileSystem, Simulation, Task, Trouble, sleep};
use karst_testkit::chronicle::{Chronicle, Cut, mark, marked};
use karst_testkit::random::Random;
use karst_testkit::show;
use karst_testkit::tally::Tally;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

/// Maximum number of lines of earlier lives' traces that a panic prints.
const TRACE_SHOWN: usize = 4000;

/// Returns true if the file's name ends with one of `ends`.
pub(crate) fn ends_with(path: &Path, ends: &[&str]) -> bool {
    path.file_name().is_some_and(|name| ends.iter().any(|end| name.to_string_lossy().ends_with(end)))
}

/// State that all lives of a machine share.
pub(crate) struct World {
    chronicle: Mutex<Chronicle>,
    tally: Tally,
    pub(crate) plan: Plan,
    disk: SimulatedFileSystem,
    /// Number of operations of all kinds so far.
    operations: AtomicU64,
    pub(crate) weather: Weather,
    /// True in a life in which the disk fails now and then, until the weather clears up.
    foul: AtomicBool,
    /// Number of operations that failed because the disk did.
    pub(crate) failed: AtomicU64,
    /// Tells all tasks to end.
    over: AtomicBool,
    /// True from a power failure until the surviving entries are checked, which may take several
    /// lives, because a life may crash before.
    power_failed: AtomicBool,
    /// Number of crashes after which the database was checked, and of acknowledged batches lost in
    /// them.
    pub(crate) crashes: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Number of checks of a secondary instance.
    pub(crate) followed: AtomicU64,
    /// Number of copies with lost files that were recovered to a state that was not empty.
    pub(crate) set_back: AtomicU64,
    /// A backup, with the batches that it has.
    pub(crate) backup: Mutex<Option<(u32, Cut)>>,
    /// True while a backup is restored in place, also after a power failure until it is restored
    /// again.
    pub(crate) restoring: AtomicBool,
    /// Number of backups restored in place.
    pub(crate) restored: AtomicU64,
    /// Imported families, by name.
    pub(crate) imported: Mutex<BTreeMap<String, Imported>>,
    /// Number of families imported, and of those that a later life found and clipped.
    pub(crate) imports: AtomicU64,
    pub(crate) clipped: AtomicU64,
    pub(crate) memtables: Memtables,
    /// Trace of all lives that have ended, if traces are kept.
    pub(crate) trace: Mutex<Vec<String>>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let trace = self.trace.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            trace.retain(|line| !line.contains(" run "));
            let from = trace.len().saturating_sub(TRACE_SHOWN);
            eprintln!("{:?}\nearlier lives:", self.plan);
            trace[from..].iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

impl World {
    pub(crate) fn new(plan: Plan, weather: Weather, disk: SimulatedFileSystem) -> Arc<Self> {
        let mut chronicle = Chronicle::new(plan.families, plan.writers);
        chronicle.keep_history();
        if plan.unlogged_writer {
            chronicle.set_unlogged(0);
        }
        Arc::new(Self {
            chronicle: Mutex::new(chronicle),
            tally: Tally::new(1, plan.writers, plan.families),
            plan,
            disk,
            operations: AtomicU64::new(0),
            weather,
            foul: AtomicBool::new(false),
            failed: AtomicU64::new(0),
            over: AtomicBool::new(false),
            power_failed: AtomicBool::new(false),
            crashes: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            set_back: AtomicU64::new(0),
            backup: Mutex::default(),
            restoring: AtomicBool::new(false),
            restored: AtomicU64::new(0),
            imported: Mutex::default(),
            imports: AtomicU64::new(0),
            clipped: AtomicU64::new(0),
            memtables: Memtables::default(),
            trace: Mutex::default(),
        })
    }

    pub(crate) fn chronicle(&self) -> MutexGuard<'_, Chronicle> {
        // Poison is ignored because a panic already fails the test, and shall not be hidden by
        // others.
        self.chronicle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    pub(crate) fn is_off(&self) -> bool {
        self.disk.is_off()
    }

    /// Returns the value of the engine's result, which must be no error while the machine is on.
    /// Never returns if the power is off, because then neither an error nor a success counts: a log
    /// that is mapped into memory still reports success when its data went nowhere.
    pub(crate) async fn ok<T>(&self, what: &str, result: karst_engine::Result<T>) -> T {
        match result {
            _ if self.disk.is_off() => std::future::pending().await,
            Ok(value) => value,
            Err(e) => panic!("{what}: {e}"),
        }
    }

    fn keep_trace(&self, lines: Vec<String>, end: End) {
        let mut trace = self.trace.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        trace.extend(lines);
        trace.push(format!("{end:?}"));
    }

    /// Returns the value of the engine's result; `None` for an I/O error in foul weather.
    pub(crate) async fn unless_foul<T>(&self, what: &str, result: karst_engine::Result<T>) -> Option<T> {
        match result {
            Err(e) if self.foul.load(Ordering::Relaxed) && !self.disk.is_off() => {
                assert!(e.kind().is_io(), "{what}: {e}");
                self.failed.fetch_add(1, Ordering::Relaxed);
                None
            }
            result => Some(self.ok(what, result).await),
        }
    }

    /// Makes the disk fail with drawn probabilities, or never if `None`.
    fn set_foul(&self, random: Option<&mut Random>) {
        let trouble = random.map(|random| {
            self.foul.store(true, Ordering::Relaxed);
            let mut chance = || [0.0, 0.002, 0.02, 0.3][random.index(4)];
            Trouble {
                read_error: 0.0,
                write_error: chance(),
                sync_error: chance(),
                name_error: chance(),
                no_space: chance() * 3.0,
            }
        });
        self.disk.set_trouble(trouble.unwrap_or_default());
    }

    /// Returns the paths of all files in the directories of tables and logs.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let directories = self.plan.directories();
        let in_each = directories.iter().flat_map(|directory| {
            let names = self.disk.list_dir(directory).unwrap_or_default();
            names.into_iter().map(move |name| directory.join(name))
        });
        in_each.collect()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Counts an operation; ends the life once it has made enough of them.
    fn count(&self, until: u64) {
        if self.operations.fetch_add(1, Ordering::Relaxed) + 1 >= until {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the value of a secondary's result; `None` for `TryAgain` as well.
    async fn unless_busy<T>(&self, what: &str, result: karst_engine::Result<T>) -> Option<T> {
        match result {
            Err(e) if e.kind() == ErrorKind::TryAgain && !self.disk.is_off() => None,
            result => self.unless_foul(what, result).await,
        }
    }

    /// Returns the batches acknowledged so far.
    pub(crate) fn acknowledged(&self) -> Cut {
        self.chronicle().acknowledged()
    }

    /// Records that the logs were synced after the batches of `cut` were acknowledged.
    fn synced(&self, cut: &Cut) {
        let unlogged = usize::from(self.plan.unlogged_writer);
        let logged = cut.0.iter().enumerate().map(|(writer, n)| if writer < unlogged { 0 } else { *n });
        self.chronicle().make_durable(&Cut(logged.collect()));
    }

    /// Returns true if a writer also writes to the tally. One whose batches are in no log does so
    /// only where all families are flushed together, because otherwise flushes may tear its
    /// batches.
    fn counts(&self, writer: usize) -> bool {
        let whole = writer > 0 || !self.plan.unlogged_writer || self.plan.atomic_flush;
        self.plan.counts && whole
    }

    /// Checks that the tally has the batches of the cut, in all ways of reading.
    async fn check_tally(&self, db: &Db, options: &ReadOptions, cut: &Cut) {
        if !self.plan.counts {
            return;
        }
        let counted = cut.0.iter().enumerate().map(|(writer, n)| if self.counts(writer) { *n } else { 0 });
        let cut = Cut(counted.collect());
        match self.tally.check(&Reading { db, options: options.clone() }, &cut, &cut) {
            Err(_) if self.disk.is_off() => std::future::pending().await,
            checked => drop(checked.unwrap_or_else(|e| panic!("{e}"))),
        }
    }

    pub(crate) fn begun(&self) -> Cut {
        self.chronicle().begun()
    }
}

/// The reliability of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    Foul,
}

/// Ends of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The machine stopped during the life.
    Crashed,
    /// The handle was dropped, or the database closed first.
    Left { closed: bool },
}

/// Runs one life of the database: opens it, checks its entries, uses it for this many operations,
/// leaves it.
pub(crate) async fn live(
    world: Arc<World>,
    env: Env,
    seed: u64,
    operations: u64,
    after: Option<Crash>,
) -> End {
    let mut random = Random::new(seed);
    world.over.store(false, Ordering::Relaxed);
    world.foul.store(false, Ordering::Relaxed);
    world.set_foul(None);
    let until = world.operations() + operations;
    let options = world.plan.options(&env);
    let opening = match after.is_some() && random.one_in(4) {
        true => options.clone().set("best_efforts_recovery", "true").unwrap(),
        false => options.clone(),
    };
    let restored = copying::restore_in_place(&world, &env, &mut random).await;
    let after = after.filter(|_| !restored);
    if after.is_some() {
        let power = world.power_failed.load(Ordering::Relaxed);
        setting_back::check(&world, &env, &mut random, power).await;
    }
    let db = open(&world, &opening, &mut random, after).await;
    let families = Families::of(&db, &world.plan);
    check_survivors(&world, &db, &families, after).await;
    importing::check_left(&world, &db, restored, &mut random).await;
    pass(&world, &db, &options, &mut random).await;
    User::new(&world, &db, &families, random.fork(), until).check_left().await;
    let mut tasks: Vec<Task<()>> = Vec::new();
    for writer in 0..world.plan.writers {
        let user = User::new(&world, &db, &families, random.fork(), until);
        tasks.push(env.spawn(Priority::Low, user.write(writer)));
    }
    for _ in 0..2 {
        let user = User::new(&world, &db, &families, random.fork(), until);
        tasks.push(env.spawn(Priority::Low, user.read()));
        let user = User::new(&world, &db, &families, random.fork(), until);
        tasks.push(env.spawn(Priority::Low, user.hold()));
    }
    // Two tasks, so that one continues where the other dropped a call.
    for _ in 0..2 {
        let user = User::new(&world, &db, &families, random.fork(), until);
        tasks.push(env.spawn(Priority::Low, user.maintain()));
    }
    if world.weather == Weather::Foul {
        let user = User::new(&world, &db, &families, random.fork(), until);
        tasks.push(env.spawn(Priority::Low, user.spoil()));
    }
    if random.one_in(2) {
        let user = User::new(&world, &db, &families, random.fork(), until);
        tasks.push(env.spawn(Priority::Low, user.follow()));
    }
    User::new(&world, &db, &families, random.fork(), until).import().await;
    for task in tasks {
        if let Err(e) = task.await {
            panic!("{e}");
        }
    }
    clear_up(&world, &db).await;
    let cut = world.acknowledged();
    check_all(&world, &db, &families, &cut).await;
    check_numbers(&world, &db, &families).await;
    for family in &families.0 {
        world.ok("counting garbage", check_blob_garbage(&db, family).await).await;
    }
    let closed = random.one_in(2);
    if closed {
        world.ok("closing", db.close()).await;
        if world.plan.unlogged_writer {
            world.chronicle().make_durable(&Cut(vec![cut.0[0]]));
        }
        if !world.disk.is_off() {
            check_files(&world, &db);
            if world.weather == Weather::Fair && operations == 0 {
                check_trash_goes(&world, &env).await;
            }
        }
    }
    drop((families, db));
    End::Left { closed }
}

/// Opens the database; in foul weather some attempts may fail.
async fn open(world: &World, options: &Options, random: &mut Random, after: Option<Crash>) -> Db {
    let what = format!("opening after {after:?}");
    let power_failed = world.power_failed.load(Ordering::Relaxed);
    let open = || {
        let opening = || store::open(options, &world.plan);
        torn_manifest::open(&world.disk, store::DIRECTORY, power_failed, opening)
    };
    if world.weather == Weather::Foul {
        for _ in 0..random.below(4) {
            world.set_foul(Some(random));
            let opened = world.unless_foul(&what, open()).await;
            world.set_foul(None);
            if let Some(db) = opened {
                return db;
            }
        }
    }
    world.ok(&what, open()).await
}

/// Drops the passing families that earlier lives left, then creates one and writes to it. It may
/// stay for the next life.
async fn pass(world: &World, db: &Db, options: &Options, random: &mut Random) {
    for family in db.column_families().iter().filter(|family| family.name().starts_with(store::PASSING)) {
        world.ok("dropping a family", db.drop_column_family(family)).await;
    }
    if random.one_in(2) {
        return;
    }
    let name = format!("{}{}", store::PASSING, random.below(1000));
    let family = world.ok("creating a family", db.create_column_family(&name, options)).await;
    let mut right = String::new();
    for number in 0..1 + random.below(20) {
        let operand = number.to_string();
        let merged = db.merge_cf_async(&WriteOptions::default(), &family, b"list", operand.as_bytes()).await;
        world.ok("merge", merged).await;
        right += if right.is_empty() { "" } else { "," };
        right += &operand;
        if random.one_in(8) {
            let flushed = db.flush_cfs_async(&FlushOptions::default(), &[&family]).await;
            world.ok("flush", flushed).await;
        }
    }
    let found = world.ok("get", db.get_cf_async(&ReadOptions::default(), &family, b"list").await).await;
    assert_eq!(found.as_deref(), Some(right.as_bytes()), "{name}");
    if random.one_in(2) {
        world.ok("dropping a family", db.drop_column_family(&family)).await;
    }
}

/// Ends the foul weather: the database has recovered, or does so in `resume`.
async fn clear_up(world: &World, db: &Db) {
    world.set_foul(None);
    if let Some(error) = db.background_error() {
        assert!(error.severity < Severity::Fatal, "the disk's failures are not fatal: {error:?}");
    }
    for attempt in 0.. {
        let resumed = db.resume_async().await;
        // `resume` may return an error of an earlier failure.
        match resumed {
            Err(_) if attempt < 3 && !world.disk.is_off() => {}
            resumed => {
                world.ok("resume", resumed).await;
                break;
            }
        }
    }
    world.foul.store(false, Ordering::Relaxed);
}

/// Returns the batches that a snapshot sees.
pub(crate) async fn cut_of(world: &World, db: &Db, families: &Families, snapshot: &Snapshot) -> Cut {
    let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::default() };
    let mut seen = Vec::new();
    for writer in 0..world.plan.writers {
        let got = world.ok("get", db.get_cf_async(&options, &families.0[0], &mark(writer)).await).await;
        seen.push(marked(got.as_deref()).unwrap());
    }
    Cut(seen)
}

/// Checks after opening that the entries are a possible outcome of the crash.
async fn check_survivors(world: &World, db: &Db, families: &Families, after: Option<Crash>) {
    let snapshot = db.snapshot();
    let cut = cut_of(world, db, families, &snapshot).await;
    drop(snapshot);
    if let Some(crash) = after {
        let before = world.acknowledged();
        world.crashes.fetch_add(1, Ordering::Relaxed);
        world.lost.fetch_add(
            before.0.iter().zip(&cut.0).map(|(a, b)| a.saturating_sub(*b)).sum(),
            Ordering::Relaxed,
        );
        let power = world.power_failed.load(Ordering::Relaxed);
        let survived = world.chronicle().survive(&cut, power);
        survived.unwrap_or_else(|e| panic!("after {crash:?}, power failed: {power}: {e}"));
        // The backup is forgotten if it has batches that were lost, because other batches get their
        // numbers.
        let lost = |backup: &mut (u32, Cut)| backup.1.0.iter().zip(&cut.0).any(|(had, has)| had > has);
        world.backup.lock().unwrap().take_if(lost);
    }
    if !world.plan.keeps_logs {
        // Opening has written the entries of the logs to tables.
        world.chronicle().make_durable(&cut);
    }
    let lost = world.acknowledged().0.iter().zip(&cut.0).any(|(acknowledged, seen)| acknowledged != seen);
    assert!(!lost, "{cut:?} is there, {:?} was acknowledged", world.acknowledged());
    check_all(world, db, families, &cut).await;
    world.power_failed.store(false, Ordering::Relaxed);
}

/// Checks that the database has exactly the batches of the cut, in all ways of reading.
pub(crate) async fn check_all(world: &World, db: &Db, families: &Families, cut: &Cut) {
    for (number, family) in families.0[..world.plan.families].iter().enumerate() {
        let expected = world.chronicle().entries(number, cut);
        let mut cursor = world.ok("iterator", db.iter_cf(&ReadOptions::default(), family)).await;
        world.ok("iterator", cursor.seek_to_first_async().await).await;
        for entry in &expected {
            if cursor.valid() && cursor.value() != entry.1 {
                show_versions(db, family, &entry.0);
            }
            same(number, &cursor, Some(entry));
            world.ok("iterator", cursor.next_async().await).await;
        }
        same(number, &cursor, None);
        world.ok("iterator", cursor.seek_to_last_async().await).await;
        for entry in expected.iter().rev() {
            same(number, &cursor, Some(entry));
            world.ok("iterator", cursor.prev_async().await).await;
        }
        same(number, &cursor, None);
        let keys: Vec<&[u8]> = expected.iter().map(|(key, _)| &key[..]).collect();
        let many = db.multi_get_cf_async(&ReadOptions::default(), family, &keys).await;
        for ((key, value), many) in expected.iter().zip(many) {
            let many = world.ok("multi_get", many).await;
            let one = world.ok("get", db.get_cf_async(&ReadOptions::default(), family, key).await).await;
            for (way, found) in [("get", one), ("multi_get", many)] {
                let found = found.as_deref();
                assert!(found == Some(value), "family {number}, {}: {way} {:?}", show(key), found.map(show));
            }
        }
    }
    world.check_tally(db, &ReadOptions::default(), cut).await;
}

/// Checks that no two entries of a key have the same sequence number.
async fn check_numbers(world: &World, db: &Db, families: &Families) {
    for family in &families.0 {
        let mut all = world.ok("iterator", db.internal_iter(&ReadOptions::default(), family)).await;
        world.ok("iterator", all.seek_to_first()).await;
        let mut before: Option<Vec<u8>> = None;
        while all.valid() {
            let at = all.key().len() - 8;
            // The lowest byte of the trailer, the type, is left out.
            let numbered = [&all.key()[..at], &all.key()[at + 1..]].concat();
            let shown = show(&all.key()[..at]);
            assert!(before.as_ref() != Some(&numbered), "{shown} has two entries with one sequence number");
            before = Some(numbered);
            world.ok("iterator", all.next()).await;
        }
    }
}

/// Prints all entries of a key, hidden ones too, to explain a failure.
fn show_versions(db: &Db, family: &ColumnFamily, key: &[u8]) {
    let Ok(mut all) = db.internal_iter(&ReadOptions::default(), family) else { return };
    if all.seek(key).is_err() {
        return;
    }
    while all.valid() && all.key().starts_with(key) {
        let at = all.key().len() - 8;
        let trailer = u64::from_le_bytes(all.key()[at..].try_into().unwrap());
        eprintln!("{}@{} of kind {}: {}", show(key), trailer >> 8, trailer as u8, show(all.value()));
        if all.next().is_err() {
            return;
        }
    }
}

fn same(family: usize, cursor: &DbIterator, expected: Option<&karst_testkit::Entry>) {
    let text = |entry: Option<(&[u8], &[u8])>| match entry {
        Some((key, value)) => format!("{} = {}", show(key), show(value)),
        None => "the end".into(),
    };
    let got = cursor.valid().then(|| (cursor.key(), cursor.value()));
    let expected = expected.map(|(key, value)| (&**key, &**value));
    assert!(got == expected, "family {family}: the cursor is at {}, not at {}", text(got), text(expected));
}

/// Checks after closing that no directory has a table or blob file that the database does not need.
fn check_files(world: &World, db: &Db) {
    let live: BTreeSet<PathBuf> =
        db.live_files().into_iter().map(|file| file.directory.join(file.name)).collect();
    let left: BTreeSet<PathBuf> =
        world.files().into_iter().filter(|path| ends_with(path, &[".sst", ".blob"])).collect();
    let leaked: Vec<_> = left.difference(&live).collect();
    let lost = world.files().into_iter().find(|path| ends_with(path, &["lost"]));
    assert!(lost.is_none(), "nothing was missing, and {lost:?} is there");
    assert!(leaked.is_empty(), "files that nobody needs: {leaked:?}; needed: {live:?}");
    let trash = world.files().into_iter().filter(|path| ends_with(path, &[".trash"])).collect::<Vec<_>>();
    assert!(trash.is_empty() || world.plan.has_trash(), "trash without a manager: {trash:?}");
}

/// Waits until the trash of all lives is removed, while the last life's manager still exists.
async fn check_trash_goes(world: &World, env: &Env) {
    for _ in 0..100_000 {
        let trash = world.files().into_iter().find(|path| ends_with(path, &[".trash"]));
        if trash.is_none() || world.disk.is_off() {
            return;
        }
        sleep(env, Duration::from_millis(100)).await;
    }
    panic!("trash stays: {:?}", world.files());
}

/// A task's access to the database for the length of a life.
pub(crate) struct User {
    pub(crate) world: Arc<World>,
    pub(crate) db: Db,
    pub(crate) env: Env,
    pub(crate) families: Families,
    pub(crate) random: Random,
    until: u64,
}

impl User {
    fn new(world: &Arc<World>, db: &Db, families: &Families, random: Random, until: u64) -> Self {
        let (world, db, families) = (world.clone(), db.clone(), families.clone());
        Self { world, env: db.env().clone(), db, families, random, until }
    }

    /// Follows the database as a secondary instance on the same disk: each state that it shows is
    /// one that the database had, with at least the batches acknowledged before it caught up.
    async fn follow(mut self) {
        let (world, options) = (self.world.clone(), self.world.plan.options(&self.env));
        // With a limit the secondary may miss files that were removed before it opened them.
        let options = options.set("max_open_files", "-1").unwrap();
        let mut secondary = None;
        let mut last = Cut(vec![0; world.plan.writers]);
        while !world.is_over() {
            sleep(&self.env, Duration::from_millis(self.random.below(30))).await;
            let at_least = world.acknowledged();
            let db = match secondary.take() {
                Some(db) => {
                    let db: Db = db;
                    let caught = db.try_catch_up_with_primary_async().await;
                    // A write that was in the log and could not be synced is undone, with its
                    // sequence number if it was the newest.
                    let taken_back =
                        |e: &Error| e.kind() == ErrorKind::Corruption && e.to_string().contains("gone back");
                    if world.weather == Weather::Foul && caught.as_ref().is_err_and(taken_back) {
                        continue;
                    }
                    world.unless_busy("catching up", caught).await.map(|()| db)
                }
                None => {
                    let own = format!("/secondary{}", self.random.below(3));
                    let opened = Db::open_as_secondary_async(store::DIRECTORY, own, &options).await;
                    world.unless_busy("opening a secondary", opened).await
                }
            };
            let Some(db) = db else { continue };
            let families = Families::of(&db, &world.plan);
            let snapshot = db.snapshot();
            let cut = cut_of(&world, &db, &families, &snapshot).await;
            let begun = world.begun();
            for writer in 0..world.plan.writers {
                let unlogged = writer == 0 && world.plan.unlogged_writer;
                let mut least = if unlogged { 0 } else { at_least.0[writer] };
                // In foul weather a write that was in the log and could not be synced is undone, so
                // the cut may shrink.
                if world.weather != Weather::Foul {
                    least = least.max(last.0[writer]);
                }
                let seen = cut.0[writer];
                assert!(
                    seen >= least && seen <= begun.0[writer],
                    "{seen} of writer {writer}, {least} at least"
                );
            }
            check_all(&world, &db, &families, &cut).await;
            last = cut;
            world.followed.fetch_add(1, Ordering::Relaxed);
            // Now and then the secondary is replaced by another one.
            secondary = Some(db).filter(|_| !self.random.one_in(8));
        }
    }

    /// Returns the families to flush: one, or all if [`Plan::flushes_all_together`].
    fn some_families(&mut self) -> Vec<ColumnFamily> {
        match self.world.plan.flushes_all_together() || self.random.one_in(3) {
            true => self.families.0.clone(),
            false => vec![self.families.0[self.random.index(self.families.0.len())].clone()],
        }
    }

    pub(crate) async fn pause(&mut self, at_most_us: u64) {
        let span = Duration::from_micros(self.random.below(at_most_us));
        sleep(&self.env, span).await;
    }

    async fn write(mut self, writer: usize) {
        let unlogged = self.world.plan.unlogged_writer && writer == 0;
        while !self.world.is_over() {
            let mut numbers = vec![0];
            if !unlogged {
                numbers.extend((1..self.world.plan.families).filter(|_| self.random.one_in(2)));
            }
            let (number, mut changes) = self.world.chronicle().begin(writer, &numbers, &mut self.random);
            if self.world.counts(writer) {
                changes.extend(self.world.tally.batch(writer, number));
            }
            let batch = batch(&self.families.0, &changes).unwrap();
            self.world.memtables.note(&batch);
            // Unlogged batches are not ingested, because they would be durable before earlier ones.
            let ingests = !unlogged && self.random.one_in(12);
            let mut sync = !unlogged && (ingests || self.random.one_in(self.world.plan.sync_one_in));
            let options = WriteOptions { sync, disable_wal: unlogged, ..WriteOptions::default() };
            loop {
                // Writes are not dropped in foul weather, because the write after a dropped one may
                // fail too; ingestions are not, because they continue and their end is not known.
                let gives_up = !ingests && self.world.weather == Weather::Fair && self.random.one_in(12);
                let polls = if gives_up { self.random.below(6) } else { u64::MAX };
                let written = if ingests {
                    let name = format!("/ingest-{writer}");
                    let (db, families) = (self.db.clone(), self.families.0.clone());
                    Some(ingest(&db, &families, &changes, &name, &mut self.random).await)
                } else {
                    given_up(self.db.write_async(&options, &batch), polls).await
                };
                let is_there = match written {
                    Some(written) => self.world.unless_foul("write", written).await.is_some(),
                    None => {
                        // The dropped write may not have been synced.
                        sync = false;
                        self.is_there(writer, number, &options).await
                    }
                };
                if is_there {
                    break;
                }
                // A dropped write is finished first: otherwise it would stay begun, and the next
                // life may follow no crash.
                if self.world.is_over() && !gives_up {
                    return;
                }
                // The batch is written again: once another write succeeds, no part of a failed one
                // remains.
                self.pause(20_000).await;
            }
            self.world.chronicle().acknowledge(writer, number, sync);
            self.world.memtables.check(&self.world, &self.db, &self.families);
            self.world.count(self.until);
            if self.random.one_in(3) {
                self.pause(400).await;
            }
        }
    }

    /// Returns true if a write whose future was dropped was applied. It is applied wholly, once, or
    /// not at all, which is known after the next write.
    async fn is_there(&self, writer: usize, number: u64, options: &WriteOptions) -> bool {
        let behind = self.families.0.last().expect("there is one for it");
        let options = WriteOptions { sync: false, ..*options };
        let put = self.db.put_cf_async(&options, behind, &mark(writer), b"").await;
        self.world.ok("put", put).await;
        let read = ReadOptions::default();
        let got = self.db.get_cf_async(&read, &self.families.0[0], &mark(writer)).await;
        marked(self.world.ok("get", got).await.as_deref()) == Ok(number)
    }

    /// Reads the newest state.
    async fn read(mut self) {
        while !self.world.is_over() {
            let family = self.random.index(self.world.plan.families);
            let handle = self.families.0[family].clone();
            let before = self.world.acknowledged();
            let options = ReadOptions::default();
            let count = if self.random.one_in(3) { 1 + self.random.index(12) } else { 1 };
            let keys: Vec<_> = (0..count).map(|_| self.world.chronicle().any_key(&mut self.random)).collect();
            let got: Vec<Option<Vec<u8>>> = if let [key] = &keys[..] {
                let value = self.world.ok("get", self.db.get_cf_async(&options, &handle, key).await).await;
                vec![value.map(|v| v.to_vec())]
            } else {
                let values = self.db.multi_get_cf_async(&options, &handle, &keys).await;
                let values: karst_engine::Result<Vec<_>> = values.into_iter().collect();
                let values = self.world.ok("multi_get", values).await;
                values.into_iter().map(|v| v.map(|v| v.to_vec())).collect()
            };
            let after = self.world.begun();
            for (key, value) in keys.iter().zip(got) {
                let checked =
                    self.world.chronicle().check_read(family, key, value.as_deref(), &before, &after);
                checked.unwrap_or_else(|e| panic!("{e}"));
            }
            self.world.count(self.until);
            if self.random.one_in(2) {
                self.pause(300).await;
            }
        }
    }

    /// Holds snapshots, and iterators over them, for a while and checks that they never change.
    async fn hold(mut self) {
        while !self.world.is_over() {
            let before = self.world.acknowledged();
            let snapshot = self.db.snapshot();
            let after = self.world.begun();
            let cut = cut_of(&self.world, &self.db, &self.families, &snapshot).await;
            let checked = self.world.chronicle().check_cut(&cut, &before, &after);
            checked.unwrap_or_else(|e| panic!("a snapshot: {e}"));
            let family = self.random.index(self.world.plan.families);
            let expected = self.world.chronicle().entries(family, &cut);
            let options = ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() };
            self.world.check_tally(&self.db, &options, &cut).await;
            let made = self.db.iter_cf(&options, &self.families.0[family]);
            let mut cursor = self.world.ok("iterator", made).await;
            // Some iterators outlive the other uses of their snapshot.
            for _ in 0..1 + self.random.below(6) {
                self.pause(20_000).await;
                self.look_around(family, &mut cursor, &expected).await;
                let key = self.world.chronicle().any_key(&mut self.random);
                let got = self.db.get_cf_async(&options, &self.families.0[family], &key).await;
                let got = self.world.ok("get in a snapshot", got).await;
                let chronicle = self.world.chronicle();
                let right = chronicle.value(family, &key, &cut);
                assert!(
                    got.as_deref() == right,
                    "family {family}, {} in a snapshot of {cut:?}: {:?}, not {:?}",
                    show(&key),
                    got.as_deref().map(show),
                    right.map(show)
                );
                drop(chronicle);
                self.world.count(self.until);
                if self.world.is_over() {
                    return;
                }
            }
        }
    }

    /// Seeks to a random key and moves some steps.
    async fn look_around(
        &mut self,
        family: usize,
        cursor: &mut DbIterator,
        expected: &[karst_testkit::Entry],
    ) {
        let key = self.world.chronicle().any_key(&mut self.random);
        let steps = self.random.index(30);
        if self.random.one_in(2) {
            self.world.ok("iterator", cursor.seek_async(&key).await).await;
            let from = expected.partition_point(|(k, _)| *k < key);
            for at in from..from + steps {
                same(family, cursor, expected.get(at));
                if !cursor.valid() {
                    break;
                }
                self.world.ok("iterator", cursor.next_async().await).await;
            }
        } else {
            self.world.ok("iterator", cursor.seek_for_prev_async(&key).await).await;
            let mut before = expected.partition_point(|(k, _)| *k <= key);
            for _ in 0..steps {
                same(family, cursor, before.checked_sub(1).map(|at| &expected[at]));
                if !cursor.valid() {
                    break;
                }
                self.world.ok("iterator", cursor.prev_async().await).await;
                before -= 1;
            }
        }
    }

    /// Makes the weather change between fair and foul.
    async fn spoil(mut self) {
        while !self.world.is_over() {
            self.world.set_foul(Some(&mut self.random));
            self.pause(10_000).await;
            self.world.set_foul(None);
            self.pause(60_000).await;
        }
    }

    async fn maintain(mut self) {
        while !self.world.is_over() {
            let pause = if self.random.one_in(3) { 1_000 } else { 120_000 };
            self.pause(pause).await;
            match self.random.below(10) {
                0 | 1 => {
                    let cut = self.world.acknowledged();
                    let families: Vec<_> = self.families.0.iter().collect();
                    let flushed = self.db.flush_cfs_async(&FlushOptions::default(), &families).await;
                    if self.world.unless_foul("flush", flushed).await.is_some() {
                        self.world.chronicle().make_durable(&cut);
                    }
                }
                2 => {
                    let some = self.some_families();
                    let some: Vec<_> = some.iter().collect();
                    let flushed = self.db.flush_cfs_async(&FlushOptions::default(), &some).await;
                    self.world.unless_foul("flush", flushed).await;
                }
                3 => {
                    let cut = self.world.acknowledged();
                    let synced = self.db.flush_wal_async(true).await;
                    if self.world.unless_foul("sync", synced).await.is_some() {
                        self.world.synced(&cut);
                    }
                }
                4 => {
                    let family = &self.families.0[self.random.index(self.world.plan.families)];
                    let mut ends = [(); 2].map(|()| self.world.chronicle().any_key(&mut self.random));
                    ends.sort();
                    let (begin, end) = (&ends[0][..], &ends[1][..]);
                    let all = self.random.one_in(3);
                    let range = if all { (None, None) } else { (Some(begin), Some(end)) };
                    let options = CompactRangeOptions::default();
                    let compacted = self.db.compact_range_cf_async(&options, family, range.0, range.1).await;
                    self.world.unless_foul("compact_range", compacted).await;
                }
                // Several calls, so that one begins while the job of a dropped one is still under
                // way.
                5..8 => {
                    for _ in 0..1 + self.random.below(4) {
                        self.give_up().await;
                    }
                }
                8 => self.copy().await,
                _ => {}
            }
            self.world.count(self.until);
        }
    }

    /// Begins a flush or compaction and drops its future at one of its first polls.
    async fn give_up(&mut self) {
        let some = self.some_families();
        let some: Vec<_> = some.iter().collect();
        let polls = if self.random.one_in(2) { 1 + self.random.below(3) } else { self.random.below(20) };
        let (flush, compact) = (FlushOptions::default(), CompactRangeOptions::default());
        let done = match self.random.below(4) {
            0 => given_up(self.db.compact_range_cf_async(&compact, some[0], None, None), polls).await,
            _ => given_up(self.db.flush_cfs_async(&flush, &some), polls).await,
        };
        if let Some(done) = done {
            self.world.unless_foul("what was to be given up", done).await;
        }
    }
}

/// Returns a future's result, or drops it and returns `None` after `polls` polls.
pub(crate) async fn given_up<T>(future: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        let Some(rest) = left.checked_sub(1) else { return Poll::Ready(None) };
        left = rest;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Runs a machine by `seed`: lives until `operations` are done, each ended by a crash or by
/// leaving; the last one is checked and closed.
pub(crate) fn run(seed: u64, weather: Weather, operations: u64, trace: bool) -> (Arc<World>, Simulation) {
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random);
    let mut simulation = Simulation::new(seed);
    let world = World::new(plan, weather, simulation.fs().clone());
    let mut after = None;
    loop {
        let is_last = world.operations() >= operations;
        let in_life = if is_last { 0 } else { 50 + random.below(operations / 2) };
        simulation.set_most_steps(20_000_000);
        // A machine that was left and not restarted may still have a power failure scheduled.
        simulation.fs().lose_power_after(u64::from(u32::MAX));
        if !is_last && random.below(4) > 0 {
            let at_most = if random.one_in(4) { 60 } else { 3000 };
            simulation.fs().lose_power_after(random.below(at_most));
        }
        if trace {
            simulation.keep_trace();
        }
        let env = simulation.env().clone();
        let life = live(world.clone(), env, random.next_u64(), in_life, after);
        let end = simulation.run(life).unwrap_or(End::Crashed);
        world.keep_trace(simulation.take_trace(), end);
        if is_last {
            assert!(matches!(end, End::Left { .. }), "the last life crashed");
            return (world, simulation);
        }
        let crash = match end {
            End::Crashed => Some(if random.one_in(3) { Crash::Process } else { Crash::Power }),
            // A closed database is as durable as after a loss of power; one that was only dropped
            // is closed too.
            End::Left { .. } => random.one_in(2).then_some(Crash::Process),
        };
        // A failed write may survive after all when the database is opened again, as after a crash.
        after = match weather {
            Weather::Fair => crash,
            Weather::Foul => crash.or(Some(Crash::Process)),
        };
        if after == Some(Crash::Power) {
            world.power_failed.store(true, Ordering::Relaxed);
        }
        simulation = match after {
            Some(crash) => simulation.restart(crash, random.next_u64()),
            None => simulation,
        };
    }
}
