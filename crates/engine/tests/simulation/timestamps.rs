//! A column family with timestamps: one writer, and beside it tasks that flush, compact, raise
//! `full_history_ts_low`, read in snapshots, take checkpoints, and export and import the family.
//! Meanwhile the power fails and processes end. Each read is compared with the list of all writes.
//!
//! The database has no writes but those of the list, one sequence number each, so a sequence number
//! is a number of writes.

use crate::all_writes::AllWrites;
use crate::blob_garbage::check_blob_garbage;
use crate::{each_seed, torn_manifest};
use karst_engine::format::Comparator;
use karst_engine::{
    BottommostLevelCompaction, Checkpoint, CompactFilesOptions, CompactRangeOptions, Db, ErrorKind,
    FlushOptions, ImportColumnFamilyOptions, Options, ReadOptions, Result, Snapshot, WaitForCompactOptions,
    WriteBatch, WriteOptions,
};
use karst_io::{Crash, Env, FileSystem, Priority, SimulatedFileSystem, Simulation, sleep};
use karst_testkit::random::Random;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The state of the model across crashes.
#[derive(Default)]
struct Written {
    writes: AllWrites,
    /// Number of writes up to the last one that was acknowledged.
    acknowledged: usize,
    /// Number of writes up to the last one that was acknowledged as durable.
    durable: usize,
    /// History before this timestamp may have been dropped.
    low: u64,
    /// True once the writer of this life has ended.
    over: bool,
    /// The power has failed since the database was last open.
    power_failed: bool,
    reads: u64,
    imports: u64,
}

impl Written {
    /// Records that all writes were acknowledged; with `durable`, that they survive a power
    /// failure.
    fn acknowledge(&mut self, durable: bool) {
        self.acknowledged = self.writes.count;
        if durable {
            self.durable = self.acknowledged;
        }
    }

    /// Forgets all but the first `count` writes.
    fn truncate(&mut self, count: usize) {
        let writes = &mut self.writes;
        writes.entries.values_mut().for_each(|entries| entries.retain(|entry| entry.order < count));
        writes.entries.retain(|_, entries| !entries.is_empty());
        writes.count = count;
    }

    /// Returns a timestamp at which reads are allowed, most often the low end of the history or the
    /// latest one.
    fn any_time(&self, random: &mut Random) -> u64 {
        let latest = self.writes.latest().max(self.low);
        match random.below(4) {
            0 => self.low,
            1 => latest,
            _ => self.low + random.below(latest + 1 - self.low),
        }
    }
}

#[derive(Clone)]
struct World {
    written: Arc<Mutex<Written>>,
    disk: SimulatedFileSystem,
    options: Options,
}

impl World {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the result of a call that fails only with the power.
    async fn ok<T>(&self, what: &str, result: Result<T>) -> T {
        match result {
            _ if self.disk.is_off() => std::future::pending().await,
            Ok(value) => value,
            Err(e) => panic!("{what}: {e}"),
        }
    }

    /// Waits for the result of a call that raises the low end of the history; `InvalidArgument` is
    /// allowed if it was raised further meanwhile.
    async fn raised(&self, what: &str, to: Option<u64>, result: Result<()>) {
        match result {
            Err(e)
                if e.kind() == ErrorKind::InvalidArgument && to.is_some_and(|to| to < self.written().low) => {
            }
            result => self.ok(what, result).await,
        }
    }

    /// Compares all forms of reading the default family of `db` with the list of writes. A read
    /// before the low end of the history may be refused, if that was raised meanwhile.
    async fn check(&self, db: &Db, snapshot: Option<&Snapshot>, (count, at): (usize, u64), what: &str) {
        let writes = self.written().writes.clone();
        let checked = writes.check((db, db.default_column_family()), (snapshot, count), at, what).await;
        self.written().reads += 1;
        match checked {
            Err(e) if e.kind() == ErrorKind::InvalidArgument && at < self.written().low => {}
            checked => self.ok(what, checked).await,
        }
    }
}

fn options(env: &Env, random: &mut Random) -> Options {
    let mut text = String::from(
        "create_if_missing=true;stats_dump_period_sec=0;ttl=0;periodic_compaction_seconds=0;num_levels=5;\
        merge_operator={id=StringAppendOperator;delimiter=,;};min_blob_size=30;\
        enable_blob_garbage_collection=true;",
    );
    let mut set = |name: &str, values: &[&str]| {
        text += &format!("{name}={};", values[random.index(values.len())]);
    };
    set("write_buffer_size", &["4000", "20000"]);
    set("target_file_size_base", &["200", "1000"]);
    set("max_bytes_for_level_base", &["3000", "20000"]);
    set("level0_file_num_compaction_trigger", &["2", "4"]);
    set("compaction_style", &["kCompactionStyleLevel", "kCompactionStyleUniversal"]);
    set("level_compaction_dynamic_level_bytes", &["true", "false"]);
    set("block_size", &["64", "300"]);
    set("max_subcompactions", &["1", "3"]);
    set("max_open_files", &["-1", "5"]);
    set("enable_blob_files", &["false", "true"]);
    set("avoid_flush_during_recovery", &["false", "true"]);
    set("unordered_write", &["false", "true"]);
    set("disable_auto_compactions", &["false", "false", "true"]);
    let cache_bytes = [0, 20_000][random.index(2)];
    let options = Options::new().set_all(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
    options.comparator(None, Comparator::BytewiseU64Ts).env(env.clone()).block_cache_bytes(cache_bytes)
}

async fn pause(env: &Env, random: &mut Random, at_most_us: u64) {
    sleep(env, Duration::from_micros(random.below(at_most_us))).await;
}

async fn write(world: World, db: Db, mut random: Random) {
    let family = db.default_column_family();
    for _ in 0..40 + random.below(160) {
        let batch = world.written().writes.write_any(family, &mut random);
        let options = WriteOptions { sync: random.one_in(8), ..WriteOptions::default() };
        world.ok("write", db.write_async(&options, &batch).await).await;
        world.written().acknowledge(options.sync);
        if random.one_in(8) {
            pause(db.env(), &mut random, 3_000).await;
        }
    }
    world.written().over = true;
}

/// Reads in the newest state, and in snapshots that are held for a while.
async fn read(world: World, db: Db, mut random: Random) {
    while !world.written().over {
        let least = world.written().acknowledged;
        let snapshot = db.snapshot();
        // A write that fails, as it does once the power is off, has taken its number and left
        // nothing. The snapshot is not read then.
        world.ok("a snapshot", Ok(())).await;
        let count = snapshot.sequence_number() as usize;
        let begun = world.written().writes.count;
        assert!(count >= least && count <= begun, "{count} writes are seen: {least} to {begun}");
        for _ in 0..1 + random.below(4) {
            let at = world.written().any_time(&mut random);
            world.check(&db, Some(&snapshot), (count, at), "in a snapshot").await;
            pause(db.env(), &mut random, 20_000).await;
        }
    }
}

async fn maintain(world: World, db: Db, mut random: Random) {
    let family = db.default_column_family();
    while !world.written().over {
        pause(db.env(), &mut random, 6_000).await;
        match random.below(8) {
            6.. => sink(&world, &db, &mut random).await,
            0..3 => {
                let before = world.written().acknowledged;
                world.ok("flush", db.flush_async(&FlushOptions::default()).await).await;
                let mut written = world.written();
                written.durable = written.durable.max(before);
            }
            3 => {
                let forced = BottommostLevelCompaction::Force;
                let low = random.one_in(2).then(|| raise(&world, &mut random));
                let options = CompactRangeOptions {
                    full_history_ts_low: low.map(|low| low.to_le_bytes().to_vec()),
                    bottommost_level_compaction: forced,
                    ..CompactRangeOptions::default()
                };
                let compacted = db.compact_range_async(&options, None, None).await;
                world.raised("compact_range", low, compacted).await;
            }
            4 => {
                let low = raise(&world, &mut random);
                let raised = db.increase_full_history_ts_low_async(family, low.to_le_bytes()).await;
                world.raised("increase_full_history_ts_low", Some(low), raised).await;
            }
            _ => {}
        }
    }
}

/// Moves the tables of one level to some level below it.
async fn sink(world: &World, db: &Db, random: &mut Random) {
    let family = db.default_column_family();
    let tree = world.ok("metadata", db.column_family_metadata(family)).await;
    let filled: Vec<_> = tree.levels.iter().filter(|level| !level.files.is_empty()).collect();
    if filled.is_empty() {
        return;
    }
    let level = filled[random.index(filled.len())];
    let files: Vec<u64> = level.files.iter().map(|file| file.number).collect();
    let first = level.level.max(1) as usize;
    let to = first + random.index(tree.levels.len() - first);
    match db.compact_files_async(&CompactFilesOptions::default(), family, &files, to).await {
        // Some tables are being compacted, or gone.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::TryAgain) => {}
        sunk => drop(world.ok("compact_files", sunk).await),
    }
}

/// Raises the low end of the history in the model; returns it.
fn raise(world: &World, random: &mut Random) -> u64 {
    let mut written = world.written();
    written.low = written.any_time(random);
    written.low
}

/// Takes a checkpoint, or exports the family and imports it into a database of its own, and
/// compares the copy with the list of writes.
async fn copy(world: &World, db: &Db, random: &mut Random) {
    let number = random.next_u64();
    let mut directory = format!("/copy-{number:x}");
    let least = world.written().acknowledged;
    let checkpoint = world.ok("a checkpoint", Checkpoint::new(db)).await;
    let copy = if random.one_in(2) {
        let made = checkpoint.create_checkpoint_async(Path::new(&directory), u64::MAX).await;
        world.ok("a checkpoint", made).await;
        let opened = Db::open_read_only(&directory, &world.options);
        let copy = world.ok("opening a checkpoint", opened).await;
        let count = copy.latest_sequence_number() as usize;
        let begun = world.written().writes.count;
        assert!(count >= least && count <= begun, "{count} writes are copied: {least} to {begun}");
        let at = world.written().any_time(random);
        world.check(&copy, None, (count, at), "a checkpoint").await;
        copy
    } else {
        let exported =
            checkpoint.export_column_family_async(db.default_column_family(), Path::new(&directory)).await;
        // A family with blob files cannot be exported.
        if matches!(&exported, Err(e) if e.kind() == ErrorKind::NotSupported) {
            return;
        }
        let exported = world.ok("exporting", exported).await;
        let count = exported.files.iter().map(|file| file.largest_seq).max().unwrap_or(0) as usize;
        let other = world.options.clone().set("create_if_missing", "true").unwrap();
        let to = format!("/imported-{number:x}");
        let import = ImportColumnFamilyOptions { move_files: random.one_in(2) };
        let importing = async {
            let target = Db::open(&to, &other)?;
            drop(target.create_column_family_with_import("imported", &other, &import, &exported)?);
            Ok(target)
        };
        let target = world.ok("importing", importing.await).await;
        remove(&world.disk, &directory);
        directory = to;
        let family = target.column_family("imported").expect("it was imported");
        let (writes, at) = {
            let written = world.written();
            (written.writes.clone(), written.any_time(random))
        };
        // The exact number is not known, because the newest entries may have left no trace.
        assert!(count <= writes.count, "{count} writes of {} are imported", writes.count);
        let most = writes.count;
        let states = (least.min(count)..=most).map(|count| writes.shown(count, at)).collect::<Vec<_>>();
        let read = ReadOptions { timestamp: Some(at.to_le_bytes().to_vec()), ..ReadOptions::new() };
        let mut iter = world.ok("iterator", target.iter_cf(&read, &family)).await;
        world.ok("iterator", iter.seek_to_first_async().await).await;
        let mut found = Vec::new();
        while iter.valid() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let ts = u64::from_le_bytes(iter.timestamp().try_into().expect("eight bytes"));
            found.push((text(iter.key()), ts, text(iter.value())));
            world.ok("iterator", iter.next_async().await).await;
        }
        assert!(states.contains(&found), "imported, at {at}: {found:?} was never there");
        world.written().imports += 1;
        drop((iter, family));
        target
    };
    drop(copy);
    remove(&world.disk, &directory);
}

/// Removes a directory, as far as the power allows, because files that are left make each sync
/// slower.
fn remove(disk: &SimulatedFileSystem, directory: &str) {
    let directory = Path::new(directory);
    for name in disk.list_dir(directory).unwrap_or_default() {
        let _ = disk.remove(&directory.join(name));
    }
    let _ = disk.sync_dir(directory);
    let _ = disk.remove_dir(directory);
    let _ = disk.sync_dir(Path::new("/"));
}

/// Runs a life from opening to a power failure, or to closing.
async fn live(world: World, env: Env, mut random: Random) {
    let power_failed = world.written().power_failed;
    let opening = || Db::open("/db", &world.options);
    let db = world.ok("opening", torn_manifest::open(&world.disk, "/db", power_failed, opening)).await;
    let there = db.latest_sequence_number() as usize;
    {
        let mut written = world.written();
        let least = if power_failed { written.durable } else { written.acknowledged };
        assert!(
            there >= least && there <= written.writes.count,
            "{there} writes are there, {least} at least"
        );
        written.truncate(there);
        (written.acknowledged, written.over, written.power_failed) = (there, false, false);
        if power_failed {
            written.durable = there;
        }
    }
    let (low, latest) = {
        let written = world.written();
        (written.low, written.writes.latest().max(written.low))
    };
    for at in (low..=latest).rev().take(12) {
        world.check(&db, None, (there, at), "opened").await;
    }
    let mut tasks = vec![env.spawn(Priority::Low, write(world.clone(), db.clone(), random.fork()))];
    for _ in 0..2 {
        tasks.push(env.spawn(Priority::Low, read(world.clone(), db.clone(), random.fork())));
        tasks.push(env.spawn(Priority::Low, maintain(world.clone(), db.clone(), random.fork())));
    }
    // Copies are made here and not in a task, because an import blocks: on the stack of a task that
    // leads the log, an import that waits for the log would deadlock.
    while !world.written().over {
        pause(db.env(), &mut random, 6_000).await;
        copy(&world, &db, &mut random).await;
    }
    for task in tasks {
        if let Err(e) = task.await {
            panic!("{e}");
        }
    }
    let (count, low, latest) = {
        let written = world.written();
        (written.writes.count, written.low, written.writes.latest().max(written.low))
    };
    for at in low..=latest {
        world.check(&db, None, (count, at), "at the end").await;
    }
    world.ok("counting garbage", check_blob_garbage(&db, db.default_column_family()).await).await;
    world.ok("closing", db.close()).await;
}

/// Returns the numbers of writes, of checks, of imports, and of lives that ended with a crash.
fn run(seed: u64) -> [u64; 4] {
    let mut random = Random::new(seed);
    let written = Arc::new(Mutex::new(Written::default()));
    let (mut simulation, mut crashes) = (Simulation::new(seed), 0);
    for life in 0..5 {
        simulation.set_most_steps(3_000_000);
        if life < 4 && !random.one_in(4) {
            simulation.fs().lose_power_after(random.below(1500));
        }
        let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
        let options = options(&env, &mut Random::new(seed));
        let world = World { written: written.clone(), disk, options };
        let lived = simulation.run(live(world, env, random.fork()));
        crashes += u64::from(lived.is_none());
        let crash = if random.one_in(3) { Crash::Process } else { Crash::Power };
        written.lock().unwrap().power_failed |= crash == Crash::Power;
        simulation = simulation.restart(crash, random.next_u64());
    }
    let written = written.lock().unwrap();
    [written.writes.count as u64, written.reads, written.imports, crashes]
}

#[test]
fn entries_with_timestamps_are_read_as_they_were_written_whatever_crashes() {
    let name = "entries_with_timestamps_are_read_as_they_were_written_whatever_crashes";
    let mut total = [0; 4];
    each_seed(name, 8, 400, |seed| {
        total.iter_mut().zip(run(seed)).for_each(|(total, count)| *total += count);
    });
    let [writes, reads, imports, crashes] = total;
    println!("{writes} writes, {reads} checks, {imports} imports, {crashes} crashes");
    let one_seed = crate::number("KARST_SEED").is_some() || crate::number("KARST_SEEDS").is_some();
    assert!(
        one_seed || (writes > 500 && reads > 500 && imports > 0 && crashes > 3),
        "nothing was tried: {total:?}"
    );
}

/// Entries keep their sequence numbers while their history is readable, so compactions that try to
/// set the numbers to 0 would never end.
#[test]
fn a_table_is_not_rewritten_for_numbers_that_it_has_to_keep() {
    let simulation = Simulation::new(1);
    simulation.set_most_steps(100_000);
    let text = "create_if_missing=true;stats_dump_period_sec=0;merge_operator=stringappend";
    let options = Options::new().set_all(text).unwrap().env(simulation.env().clone());
    let options = options.comparator(None, Comparator::BytewiseU64Ts);
    let files = simulation.run(async {
        let db = Db::open("/db", &options)?;
        let family = db.default_column_family();
        for at in 1..4_u64 {
            db.put_with_ts("key", at.to_le_bytes(), "value")?;
        }
        let mut batch = WriteBatch::new();
        batch.merge_cf_with_ts(family, "key", 4_u64.to_le_bytes(), "operand")?;
        db.write(&WriteOptions::default(), &batch)?;
        db.flush_async(&FlushOptions::default()).await?;
        db.compact_range_async(&CompactRangeOptions::default(), None, None).await?;
        // Old entries keep their numbers too, if they are operands.
        db.increase_full_history_ts_low_async(family, 9_u64.to_le_bytes()).await?;
        db.put_with_ts("other", 9_u64.to_le_bytes(), "value")?;
        let before = db.live_files();
        drop(db.snapshot());
        db.flush_async(&FlushOptions::default()).await?;
        db.wait_for_compact_async(&WaitForCompactOptions::default()).await?;
        let after = db.live_files();
        db.close()?;
        Ok::<_, karst_engine::Error>((before, after))
    });
    let (before, after) = files.expect("it comes to an end").unwrap();
    assert_eq!(before.len(), 1);
    assert!(after.iter().any(|file| file.name == before[0].name), "{before:?} was rewritten: {after:?}");
}
