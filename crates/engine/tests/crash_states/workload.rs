//! The recorded runs: writers that own their keys, and a task that flushes, compacts, syncs,
//! changes options and creates and drops column families, in two lives of a database. Each known
//! fact is noted with the number of changes of the disk by then.

use crate::writing::batch;
use karst_engine::{ColumnFamily, CompactRangeOptions, Db, FlushOptions, Options, WriteOptions};
use karst_io::{Crash, Env, Journal, Priority, SimulatedFileSystem, Simulation, Task, sleep};
use karst_testkit::chronicle::{Chronicle, Cut};
use karst_testkit::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const DIRECTORY: &str = "/db";
/// Families that all writers use.
const NAMES: [&str; 2] = ["default", "second"];
/// Number of batches of each writer in each life.
const BATCHES: u64 = 26;
const LIVES: u64 = 2;

/// Settings that differ between runs.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) options: &'static str,
    pub(crate) families: usize,
    pub(crate) writers: usize,
    /// True if writer 0 logs nothing.
    pub(crate) unlogged: bool,
    /// True if writes are acknowledged while the log is still buffered in the process.
    pub(crate) buffers_log: bool,
    /// True if the process of the first life is killed after all writes, without closing the
    /// database.
    pub(crate) killed: bool,
}

impl Plan {
    pub(crate) fn options(&self, env: &Env) -> Options {
        let text = "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;ttl=0;\
                    periodic_compaction_seconds=0;write_buffer_size=6000;target_file_size_base=4000;\
                    max_bytes_for_level_base=12000;level0_file_num_compaction_trigger=2;block_size=500;\
                    compression=kLZ4Compression;max_manifest_file_size=1500;max_manifest_space_amp_pct=50;\
                    merge_operator={id=StringAppendOperator;delimiter=,;};";
        let all = format!("{text}{}", self.options);
        let options = Options::new().set_all(&all).unwrap_or_else(|e| panic!("{all}: {e}"));
        options.env(env.clone()).block_cache_bytes(20_000)
    }

    /// Returns true if recovery refuses torn logs.
    pub(crate) fn bears_no_damage(&self) -> bool {
        self.options.contains("kAbsoluteConsistency")
    }

    pub(crate) fn names(&self) -> &[&'static str] {
        &NAMES[..self.families]
    }

    /// Opens the database with all of its families, and creates missing ones of `names`.
    pub(crate) fn open(&self, options: &Options) -> karst_engine::Result<Db> {
        let found = Db::list_column_families(DIRECTORY, options).unwrap_or_default();
        let mut names = self.names().to_vec();
        names.extend(found.iter().map(|name| &**name).filter(|name| !NAMES.contains(name)));
        Db::open_cf(DIRECTORY, options, &names)
    }

    pub(crate) fn families(&self, db: &Db) -> Vec<ColumnFamily> {
        self.names().iter().map(|name| db.column_family(name).expect("it was made")).collect()
    }
}

/// Column families that come and go, each with the number of its keys.
pub(crate) type Passing = BTreeMap<String, u64>;

/// Required and allowed content at some moment.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) chronicle: Chronicle,
    pub(crate) passing: Passing,
    /// Alternative to `passing` while a change of it is under way.
    pub(crate) under_way: Option<Passing>,
}

/// A run: the changes of the disk, and the facts known after each number of them.
pub(crate) struct Run {
    pub(crate) journal: Journal,
    /// In order, beginning before all changes: number of changes, strength (a number that grows
    /// whenever more must survive), and the facts.
    known: Vec<(usize, usize, Arc<Known>)>,
    /// Number of writes and syncs of the log that tasks carried.
    pub(crate) carried: u64,
}

impl Run {
    /// Returns the last facts known after `changes` changes, and their strength.
    pub(crate) fn known(&self, changes: usize) -> (usize, &Arc<Known>) {
        let count = self.known.partition_point(|(at, _, _)| *at <= changes);
        let (_, strength, known) = &self.known[count - 1];
        (*strength, known)
    }
}

struct World {
    plan: Plan,
    disk: SimulatedFileSystem,
    state: Mutex<State>,
    /// Number of writers that are not done in this life.
    writing: AtomicUsize,
}

struct State {
    known: Known,
    history: Vec<(usize, usize, Arc<Known>)>,
}

impl World {
    /// Records a new fact. With `must`, more has to survive from now on.
    fn note<T>(&self, must: bool, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut state = self.state.lock().unwrap();
        let out = change(&mut state.known);
        let strength = state.history.last().map_or(0, |(_, strength, _)| *strength) + usize::from(must);
        let known = Arc::new(state.known.clone());
        state.history.push((self.disk.recorded(), strength, known));
        out
    }

    fn acknowledged(&self) -> Cut {
        self.state.lock().unwrap().known.chronicle.acknowledged()
    }

    fn durable(&self, cut: &Cut, with_unlogged: bool) {
        let mut cut = cut.clone();
        if self.plan.unlogged && !with_unlogged {
            cut.0[0] = 0;
        }
        self.note(true, |known| known.chronicle.make_durable(&cut));
    }
}

/// Runs and records a plan with a seed.
pub(crate) fn record(plan: &Plan, seed: u64) -> Run {
    let mut simulation = Simulation::new(seed);
    simulation.set_most_steps(20_000_000);
    let disk = simulation.fs().clone();
    disk.record();
    let mut chronicle = Chronicle::new(plan.families, plan.writers);
    if plan.unlogged {
        chronicle.set_unlogged(0);
    }
    let known = Known { chronicle, passing: Passing::new(), under_way: None };
    let history = vec![(0, 0, Arc::new(known.clone()))];
    let state = Mutex::new(State { known, history });
    let world = Arc::new(World { plan: plan.clone(), disk, state, writing: AtomicUsize::new(0) });
    let mut random = Random::new(seed);
    let mut carried = 0;
    for life in 0..LIVES {
        let live = live(world.clone(), simulation.env().clone(), random.fork(), life);
        let is_over = simulation.run(live).is_none();
        carried += simulation.env().io_stats().writes;
        if is_over {
            assert!(plan.killed && life == 0, "the power is on");
            simulation = simulation.restart(Crash::Process, seed);
        }
    }
    let journal = world.disk.take_journal().expect("it was recorded");
    let history = std::mem::take(&mut world.state.lock().unwrap().history);
    Run { journal, known: history, carried }
}

async fn live(world: Arc<World>, env: Env, mut random: Random, life: u64) {
    let db = world.plan.open(&world.plan.options(&env)).expect("open");
    let families = world.plan.families(&db);
    if world.plan.killed && life > 0 {
        let cut = world.acknowledged();
        world.note(false, |known| known.chronicle.survive(&cut, false)).expect("nothing is lost");
    }
    world.writing.store(world.plan.writers, Ordering::Relaxed);
    let mut tasks: Vec<Task<()>> = Vec::new();
    for writer in 0..world.plan.writers {
        let own =
            User { world: world.clone(), db: db.clone(), families: families.clone(), random: random.fork() };
        tasks.push(env.spawn(Priority::Low, own.write(writer)));
    }
    let own = User { world: world.clone(), db: db.clone(), families, random: random.fork() };
    // Not a task, because blocking calls of a task may wait for a task suspended below it on the
    // stack.
    own.maintain(life).await;
    for task in tasks {
        task.await.unwrap_or_else(|e| panic!("{e}"));
    }
    if world.plan.killed && life == 0 {
        world.disk.lose_power_now();
        return;
    }
    let cut = world.acknowledged();
    db.close().expect("close");
    if world.plan.unlogged {
        // The close flushed the unlogged writes.
        world.durable(&Cut([&cut.0[..1], &vec![0; cut.0.len() - 1]].concat()), true);
    }
}

struct User {
    world: Arc<World>,
    db: Db,
    families: Vec<ColumnFamily>,
    random: Random,
}

impl User {
    async fn pause(&mut self, at_most_us: u64) {
        sleep(self.db.env(), Duration::from_micros(self.random.below(at_most_us))).await;
    }

    async fn write(mut self, writer: usize) {
        let unlogged = self.world.plan.unlogged && writer == 0;
        for _ in 0..BATCHES {
            let mut numbers = vec![0];
            if !unlogged {
                numbers.extend((1..self.families.len()).filter(|_| self.random.one_in(2)));
            }
            let begin = |known: &mut Known| known.chronicle.begin(writer, &numbers, &mut self.random);
            let (number, changes) = self.world.note(false, begin);
            let sync = !unlogged && self.random.one_in(4);
            let options = WriteOptions { sync, disable_wal: unlogged, ..WriteOptions::default() };
            self.db.write_async(&options, &batch(&self.families, &changes).unwrap()).await.expect("write");
            self.world.note(true, |known| known.chronicle.acknowledge(writer, number, sync));
            if self.random.one_in(3) {
                self.pause(1_000).await;
            }
        }
        self.world.writing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Performs all other operations that change files, until the writers are done.
    async fn maintain(mut self, life: u64) {
        let mut step = 0;
        while self.world.writing.load(Ordering::Relaxed) > 0 {
            self.pause(6_000).await;
            step += 1;
            match self.random.below(10) {
                0 | 1 => {
                    let cut = self.world.acknowledged();
                    let all: Vec<_> = self.families.iter().collect();
                    self.db.flush_cfs_async(&FlushOptions::default(), &all).await.expect("flush");
                    self.world.durable(&cut, true);
                }
                2 => {
                    let one = &self.families[self.random.index(self.families.len())];
                    self.db.flush_cfs_async(&FlushOptions::default(), &[one]).await.expect("flush");
                }
                3 | 4 => {
                    let cut = self.world.acknowledged();
                    self.db.flush_wal_async(true).await.expect("sync");
                    self.world.durable(&cut, false);
                }
                5 => {
                    let one = &self.families[self.random.index(self.families.len())];
                    let options = CompactRangeOptions::default();
                    self.db.compact_range_cf_async(&options, one, None, None).await.expect("compact");
                }
                6 => {
                    let size = 6_000 + 10 * step;
                    let set = [("write_buffer_size", &*size.to_string())];
                    self.db.set_options(&self.families[0], &set).expect("set options");
                }
                _ => self.pass(&format!("passing{life}{step}")),
            }
        }
    }

    /// Creates a family, or writes to or drops an existing one.
    fn pass(&mut self, name: &str) {
        let there: Vec<String> = self.world.state.lock().unwrap().known.passing.keys().cloned().collect();
        let chosen = if there.is_empty() { None } else { Some(&there[self.random.index(there.len())]) };
        let options = self.world.plan.options(self.db.env());
        match chosen {
            Some(one) if self.random.one_in(3) => {
                self.begin(|passing| passing.retain(|name, _| name != one));
                let family = self.db.column_family(one).expect("it is there");
                self.db.drop_column_family(&family).expect("drop");
            }
            Some(one) if self.random.one_in(2) => {
                self.begin(|passing| *passing.get_mut(one).expect("it is there") += 1);
                let family = self.db.column_family(one).expect("it is there");
                let key = passing_key(self.world.state.lock().unwrap().known.passing[one]);
                self.db.put_cf(&WriteOptions::synced(), &family, key, name).expect("put");
            }
            _ => {
                self.begin(|passing| passing.extend([(name.to_owned(), 0)]));
                self.db.create_column_family(name, &options).expect("create");
            }
        }
        self.world.note(true, |known| known.passing = known.under_way.take().expect("it was begun"));
    }

    fn begin(&self, change: impl FnOnce(&mut Passing)) {
        self.world.note(false, |known| {
            let mut after = known.passing.clone();
            change(&mut after);
            known.under_way = Some(after);
        });
    }
}

/// Returns the `number`-th key of a column family that comes and goes.
pub(crate) fn passing_key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}
