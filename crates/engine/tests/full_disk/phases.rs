//! Each kind of file without space, on the simulated machine, where errors are deterministic and
//! time costs nothing.

use super::{Entries, all, key, options, value};
use karst_engine::{
    BackgroundErrorReason, BottommostLevelCompaction, CompactRangeOptions, CompactionInfo, Db, ErrorKind,
    EventListener, FlushOptions, Options, Severity, Statistics, Ticker, WaitForCompactOptions, WriteOptions,
};
use karst_io::{Env, FileSystem, Simulation, block_on, sleep};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit of the time until a write returns its error.
const TOLD: Duration = Duration::from_millis(10_100);
/// Limit of the time until writing resumes if the free space is unknown, and attempts are up to 30
/// seconds apart.
const GOES_ON: Duration = Duration::from_secs(31);

/// A kind of file that finds no space, and the effect on writes.
struct Phase {
    name: &'static str,
    full: fn(&Path) -> bool,
    change: fn(Options) -> Options,
    /// Reason of the error that refuses writes; `None` if none is refused.
    refused_for: Option<BackgroundErrorReason>,
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

thread_local! {
    /// Logs with larger numbers find no space.
    static LAST_LOG: Cell<u64> = const { Cell::new(u64::MAX) };
}

fn log_number(path: &Path) -> Option<u64> {
    name(path).strip_suffix(".log")?.parse().ok()
}

const PHASES: [Phase; 9] = [
    Phase {
        name: "log",
        full: |path| log_number(path).is_some(),
        change: |options| options,
        refused_for: Some(BackgroundErrorReason::WriteCallback),
    },
    Phase {
        name: "memtable switch",
        full: |path| log_number(path).is_some_and(|number| number > LAST_LOG.get()),
        change: |options| options,
        refused_for: Some(BackgroundErrorReason::WriteCallback),
    },
    Phase {
        name: "flush",
        full: |path| name(path).ends_with(".sst"),
        change: |options| options,
        refused_for: Some(BackgroundErrorReason::Flush),
    },
    Phase {
        name: "flush of what is in no log",
        full: |path| name(path).ends_with(".sst"),
        change: |options| options,
        refused_for: Some(BackgroundErrorReason::Flush),
    },
    Phase {
        name: "blob files",
        full: |path| name(path).ends_with(".blob"),
        change: |options| {
            options.column_families(|cf| (cf.enable_blob_files, cf.min_blob_size) = (true, 500))
        },
        refused_for: Some(BackgroundErrorReason::Flush),
    },
    Phase {
        name: "MANIFEST",
        full: |path| name(path).starts_with("MANIFEST"),
        change: |options| options,
        refused_for: Some(BackgroundErrorReason::ManifestWrite),
    },
    Phase {
        name: "CURRENT",
        full: |path| name(path).ends_with(".dbtmp") && !name(path).starts_with("OPTIONS"),
        // Every change begins a new MANIFEST, and CURRENT names it.
        change: |options| {
            options.db(|db| (db.max_manifest_file_size, db.max_manifest_space_amp_pct) = (1, 0))
        },
        refused_for: Some(BackgroundErrorReason::ManifestWrite),
    },
    Phase {
        name: "OPTIONS",
        full: |path| name(path).starts_with("OPTIONS"),
        change: |options| options,
        refused_for: None,
    },
    Phase { name: "LOG", full: |path| name(path) == "LOG", change: |options| options, refused_for: None },
];

struct Machine {
    // The first field, so that the database is closed before the simulation is dropped.
    db: Db,
    simulation: Simulation,
    env: Env,
    options: Options,
    model: Entries,
    next: u64,
    write: WriteOptions,
}

impl Machine {
    fn new(seed: u64, write: WriteOptions, change: impl FnOnce(Options) -> Options) -> Self {
        let simulation = Simulation::new(seed);
        let env = simulation.env().clone();
        let options = change(options(&env).column_families(|cf| cf.write_buffer_size = 64 << 10));
        let db = Db::open("/db", &options).unwrap();
        let mut machine = Self { simulation, env, options, db, model: Entries::new(), next: 0, write };
        machine.puts(100);
        machine
    }

    /// Leaves this many bytes free.
    fn leave_room(&self, bytes: u64) {
        let fs = self.simulation.fs();
        fs.set_capacity(Some(1 << 40));
        let used = (1 << 40) - fs.free_bytes(Path::new("/db")).unwrap().unwrap();
        fs.set_capacity(Some(used + bytes));
    }

    fn pause(&self, span: Duration) {
        block_on(&self.env, sleep(&self.env, span));
    }

    fn put(&mut self) -> karst_engine::Result<()> {
        let (key, value) = (key(self.next), value(self.next, 1000));
        self.next += 1;
        self.pause(Duration::from_micros(500));
        self.db.put_opt(&self.write, &key, &value)?;
        self.model.insert(key, value);
        Ok(())
    }

    fn puts(&mut self, count: u64) {
        (0..count).for_each(|_| self.put().unwrap());
    }

    /// Makes at most `most` writes; returns the error of the first that is refused, and its delay.
    fn until_refused(&mut self, most: u64) -> Option<(karst_engine::Error, Duration)> {
        (0..most).find_map(|_| {
            let began = self.env.now();
            self.put().err().map(|error| (error, self.env.now() - began))
        })
    }

    /// Writes until writers are stopped. Before that a write may be refused at once, while a
    /// compaction has taken the last of the space; then writing resumes.
    fn until_stopped(&mut self) -> (karst_engine::Error, Duration) {
        loop {
            let told = self.until_refused(20_000).expect("there is room for everything");
            assert_eq!(told.0.kind(), ErrorKind::NoSpace, "{}", told.0);
            if self.db.int_property("rocksdb.is-write-stopped") == Some(1) {
                return told;
            }
            println!(
                "compaction: {} after {:.2?}, and then it goes on after {:.2?}",
                told.0,
                told.1,
                self.until_it_goes_on()
            );
        }
    }

    /// Waits until writes are accepted; returns how long.
    fn until_it_goes_on(&mut self) -> Duration {
        let began = self.env.now();
        while let Err(error) = self.put() {
            assert!(error.kind() == ErrorKind::NoSpace && self.env.now() - began < 2 * GOES_ON, "{error}");
            self.pause(Duration::from_millis(50));
        }
        self.env.now() - began
    }

    /// Returns the files with the suffix of tables, blob files and temporary files that the
    /// database does not need.
    fn leftovers(&self) -> Vec<String> {
        let (live, _) = self.db.live_file_names();
        let mut names = self.env.fs().list_dir(Path::new("/db")).unwrap();
        names.retain(|name| {
            let stored = name.ends_with(".sst") || name.ends_with(".blob") || name.ends_with(".dbtmp");
            stored && !live.iter().any(|live| live.trim_start_matches('/') == name)
        });
        names
    }

    fn check(&self, when: &str) {
        assert!(all(&self.db) == self.model, "{when}: not what was written");
    }

    fn logged(&self) -> bool {
        !self.write.disable_wal
    }
}

fn run(phase: &Phase, opened_anew: bool) {
    let unlogged = phase.name == "flush of what is in no log";
    let write = if unlogged { WriteOptions::unlogged() } else { WriteOptions::default() };
    let mut machine = Machine::new(1, write, phase.change);
    LAST_LOG.set(machine.db.log_numbers().last().copied().unwrap_or_default());
    machine.simulation.fs().set_full(Some(phase.full));
    let told = machine.until_refused(2_000);
    let when = format!("{}, opened anew: {opened_anew}", phase.name);
    match (&told, phase.refused_for) {
        (Some((error, after)), Some(reason)) => {
            println!("{}: after {after:.2?} a write returned {error}", phase.name);
            assert!(error.kind() == ErrorKind::NoSpace && *after < TOLD, "{when}: {error} after {after:?}");
            let stands = machine.db.background_error().unwrap();
            assert_eq!((stands.severity, stands.reason), (Severity::Hard, reason), "{when}");
        }
        (None, None) => println!("{}: no write is refused", phase.name),
        (told, _) => panic!("{when}: {told:?}"),
    }
    if phase.name == "OPTIONS" {
        let family = machine.db.default_column_family();
        let error = machine.db.set_options(family, &[("write_buffer_size", "70000")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!(machine.db.get_options(family).unwrap().write_buffer_size, 64 << 10);
    }
    machine.check(&when);
    machine.pause(Duration::from_millis(500));
    // No table is removed while it is unknown which ones the MANIFEST names.
    if phase.refused_for != Some(BackgroundErrorReason::ManifestWrite) {
        assert_eq!(machine.leftovers(), Vec::<String>::new(), "{when}");
    }
    if machine.logged() {
        let read_only = Db::open_read_only("/db", &machine.options).unwrap();
        assert!(all(&read_only) == machine.model, "{when}: reading only finds something else");
    }
    if opened_anew && machine.logged() {
        open_anew(&mut machine, phase);
    } else {
        machine.simulation.fs().set_full(None);
        let after = machine.until_it_goes_on();
        println!("{}: with room again it goes on after {after:.2?}", phase.name);
        assert!(after < GOES_ON, "{when}: {after:?}");
    }
    machine.puts(200);
    machine.check(&when);
    machine.pause(Duration::from_secs(1));
    assert_eq!(machine.leftovers(), Vec::<String>::new(), "{when}");
    machine.db.close().unwrap();
    machine.db = Db::open("/db", &machine.options).unwrap();
    machine.check(&when);
}

/// Closes the database and opens it while there is no space; then once there is.
fn open_anew(machine: &mut Machine, phase: &Phase) {
    machine.db.close().unwrap();
    let names = || {
        let mut names = machine.env.fs().list_dir(Path::new("/db")).unwrap();
        names.retain(|name| !name.starts_with("LOG.old"));
        names
    };
    for attempt in 0..4 {
        let earlier = names();
        match Db::open("/db", &machine.options) {
            Ok(db) => {
                println!("{}: opens", phase.name);
                db.close().unwrap();
            }
            Err(error) => {
                println!("{}: opening returned {error}", phase.name);
                assert!(
                    error.kind() == ErrorKind::NoSpace && error.to_string().contains("for reading"),
                    "{error}"
                );
                // The first attempt may have made tables of the logs' entries, which is progress.
                let now = names();
                let grows = attempt > 0 && now.len() > earlier.len();
                assert!(!grows, "{}: openings leave more and more: {earlier:?} {now:?}", phase.name);
            }
        }
    }
    machine.simulation.fs().set_full(None);
    machine.db = Db::open("/db", &machine.options).unwrap();
}

#[test]
fn every_phase_is_told_and_goes_on_by_itself() {
    PHASES.iter().for_each(|phase| run(phase, false));
}

#[test]
fn every_phase_survives_opening_on_the_full_disk() {
    PHASES.iter().for_each(|phase| run(phase, true));
}

/// Returns a machine with a tree of some megabytes, and space for L0 to grow but not to be
/// compacted.
fn cramped(statistics: &Arc<Statistics>, change: impl FnOnce(Options) -> Options) -> Machine {
    let mut machine =
        Machine::new(3, WriteOptions::default(), |options| change(options.statistics(statistics.clone())));
    machine.puts(4_000);
    machine.pause(Duration::from_secs(5));
    machine.leave_room(2 << 20);
    machine
}

#[test]
fn writers_that_a_compaction_without_room_has_stopped_are_told() {
    let statistics = Arc::new(Statistics::default());
    let mut machine = cramped(&statistics, |options| options);
    let (error, after) = machine.until_stopped();
    println!("compaction: after {after:.2?} a write returned {error}");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("writers are stopped"), "{error}");
    assert!((Duration::from_secs(10)..TOLD).contains(&after), "{after:?}");
    machine.check("stopped");
    assert_eq!(machine.leftovers(), Vec::<String>::new());
    // The write's own timeout takes precedence.
    for timeout in [Duration::ZERO, Duration::from_secs(3), Duration::from_secs(60)] {
        machine.write.timeout = Some(timeout);
        let (error, after) = machine.until_refused(1).unwrap();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!((timeout..timeout + Duration::from_millis(10)).contains(&after), "{after:?}");
    }
    machine.write = WriteOptions { no_slowdown: true, ..WriteOptions::default() };
    assert_eq!(machine.put().unwrap_err().kind(), ErrorKind::Incomplete);
    machine.write = WriteOptions::default();
    // Without space no attempt is made, not even one in ten minutes.
    let tried = || statistics.ticker(Ticker::ErrorHandlerAutoresumeRetryTotalCount);
    let before = tried();
    machine.pause(Duration::from_secs(600));
    assert_eq!(tried(), before);
    let waited = machine.db.wait_for_compact(&WaitForCompactOptions::default()).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::NoSpace, "{waited}");
    machine.simulation.fs().set_capacity(None);
    let after = machine.until_it_goes_on();
    assert!(after < Duration::from_secs(3), "{after:?}");
    machine.puts(1_000);
    machine.check("with room again");
}

#[test]
fn tables_that_are_deleted_make_room_on_a_full_disk() {
    let mut machine = cramped(&Arc::default(), |options| options);
    machine.until_stopped();
    let everything = [(None, None)];
    machine.db.delete_files_in_ranges(machine.db.default_column_family(), &everything, true).unwrap();
    let after = machine.until_it_goes_on();
    assert!(after < Duration::from_secs(3), "{after:?}");
    machine.puts(1_000);
}

#[test]
fn the_database_says_how_long_writers_wait_for_what_fails() {
    let mut machine =
        cramped(&Arc::default(), |options| options.stopped_write_timeout(Duration::from_secs(2)));
    let (error, after) = machine.until_stopped();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!((Duration::from_secs(2)..Duration::from_millis(2_100)).contains(&after), "{after:?}");
}

#[test]
fn a_write_with_a_timeout_does_not_wait_longer_for_what_succeeds_either() {
    let mut machine = Machine::new(4, WriteOptions::default(), |options| options);
    machine.db.pause_background_work().unwrap();
    machine.write.timeout = Some(Duration::from_secs(1));
    let (error, after) = machine.until_refused(20_000).expect("writers are stopped");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!((Duration::from_secs(1)..Duration::from_millis(1_010)).contains(&after), "{after:?}");
    machine.db.continue_background_work().unwrap();
    machine.puts(100);
}

#[test]
fn attempts_to_go_on_grow_rarer_where_nobody_can_tell_how_much_room_there_is() {
    let statistics = Arc::new(Statistics::default());
    let mut machine =
        Machine::new(5, WriteOptions::default(), |options| options.statistics(statistics.clone()));
    machine.simulation.fs().set_full(Some(|path| name(path).ends_with(".sst")));
    machine.until_refused(2_000).expect("the flush has no room");
    machine.pause(Duration::from_secs(300));
    // Attempts come after 1, 2, 4, 8, 16 and then every 30 seconds.
    let tried = statistics.ticker(Ticker::ErrorHandlerAutoresumeRetryTotalCount);
    assert!((10..=15).contains(&tried), "{tried} attempts in 300 seconds");
    machine.simulation.fs().set_full(None);
    assert!(machine.until_it_goes_on() < GOES_ON);
    // After a success the next error begins with short pauses again.
    machine.simulation.fs().set_full(Some(|path| name(path).ends_with(".sst")));
    machine.until_refused(2_000).expect("the flush has no room");
    machine.simulation.fs().set_full(None);
    let after = machine.until_it_goes_on();
    assert!(after < Duration::from_secs(3), "{after:?}");
}

#[test]
fn what_the_logs_hold_stays_there_when_a_database_opens_without_room_for_tables_of_it() {
    let mut machine = Machine::new(6, WriteOptions::default(), |options| options);
    machine.db.flush(&FlushOptions::default()).unwrap();
    machine.puts(45);
    machine.db.close().unwrap();
    machine.leave_room(20 << 10);
    let logs = machine.db.log_numbers();
    machine.db = Db::open("/db", &machine.options).unwrap();
    assert!(machine.db.log_numbers().starts_with(&logs), "{logs:?} {:?}", machine.db.log_numbers());
    machine.check("opened without room");
    machine.until_refused(100).expect("there is room for everything");
    machine.check("refused");
    machine.simulation.fs().set_capacity(None);
    machine.until_it_goes_on();
    machine.puts(100);
    assert!(!machine.db.log_numbers().contains(&logs[0]));
    machine.db.close().unwrap();
    machine.db = Db::open("/db", &machine.options).unwrap();
    machine.check("opened again");
}

#[test]
fn compactions_that_wait_for_room_go_on_when_asked_where_nothing_does_by_itself() {
    let mut machine = cramped(&Arc::default(), |options| options.db(|db| db.max_bgerror_resume_count = 0));
    let stopped = |machine: &Machine| machine.db.int_property("rocksdb.is-write-stopped") == Some(1);
    while !stopped(&machine) {
        machine.until_refused(20_000).expect("there is room for everything");
        if !stopped(&machine) {
            machine.db.resume().unwrap();
        }
    }
    machine.pause(Duration::from_secs(100));
    assert!(stopped(&machine));
    machine.simulation.fs().set_capacity(None);
    machine.pause(Duration::from_secs(100));
    assert!(stopped(&machine));
    machine.db.resume().unwrap();
    assert!(machine.until_it_goes_on() < Duration::from_secs(1));
    machine.puts(1_000);
    machine.check("resumed");
}

/// Without `paranoid_checks` no error stands, because a flush that fails is tried again without
/// end.
#[test]
fn without_paranoid_checks_whoever_waits_for_a_flush_is_told_and_closing_ends() {
    for waits in [false, true] {
        let careless = |options: Options| options.db(|db| db.paranoid_checks = false);
        let mut machine = Machine::new(8, WriteOptions::unlogged(), careless);
        machine.db.flush(&FlushOptions::default()).unwrap();
        let kept = machine.model.clone();
        machine.simulation.set_most_steps(1_000_000);
        machine.simulation.fs().set_full(Some(|path| name(path).ends_with(".sst")));
        machine.puts(10);
        if waits {
            let told = machine.db.flush(&FlushOptions::default()).unwrap_err();
            assert!(told.kind() == ErrorKind::NoSpace && told.to_string().contains(".sst"), "{told}");
            assert!(machine.db.background_error().is_none());
            machine.puts(10);
            machine.check("after a flush without room");
        }
        let told = machine.db.close().unwrap_err();
        assert!(told.kind() == ErrorKind::NoSpace && told.to_string().contains(".sst"), "{told}");
        machine.simulation.fs().set_full(None);
        machine.db = Db::open("/db", &machine.options).unwrap();
        assert!(all(&machine.db) == kept, "what was in no log and in no table is lost, the rest is there");
    }
}

thread_local! {
    /// MANIFEST files that found no space.
    static MANIFESTS: RefCell<BTreeSet<PathBuf>> = const { RefCell::new(BTreeSet::new()) };
}

/// The pauses between attempts have grown to half a minute by then, whether or not there is space.
#[test]
fn room_that_somebody_makes_ends_the_pause_before_the_next_attempt() {
    let mut machine = Machine::new(6, WriteOptions::default(), |options| options);
    // Free space is reported, so each look is followed by an attempt.
    machine.leave_room(8 << 20);
    machine.simulation.fs().set_full(Some(|path| name(path).ends_with(".sst")));
    machine.until_refused(2_000).expect("the flush has no room");
    // Attempts come after 1, 3, 7, 15, 31, 61, 91 and 121 seconds.
    machine.pause(Duration::from_secs(95));
    machine.simulation.fs().set_full(None);
    machine.leave_room(16 << 20);
    let after = machine.until_it_goes_on();
    assert!(after < Duration::from_secs(4), "{after:?}");
    machine.check("with room again");
}

#[test]
fn attempts_to_write_a_manifest_without_room_grow_rarer_too() {
    let mut machine = Machine::new(9, WriteOptions::default(), |options| options);
    machine.simulation.fs().set_full(Some(|path| {
        let full = name(path).starts_with("MANIFEST");
        if full {
            MANIFESTS.with_borrow_mut(|manifests| manifests.insert(path.to_owned()));
        }
        full
    }));
    machine.until_refused(2_000).expect("the MANIFEST has no room");
    // There is no space for the memtables either, so the only attempts are at the MANIFEST.
    machine.leave_room(0);
    let before = MANIFESTS.with_borrow(BTreeSet::len);
    machine.pause(Duration::from_secs(300));
    let tried = MANIFESTS.with_borrow(BTreeSet::len) - before;
    // Attempts come after 1, 2, 4, 8, 16 and then every 30 seconds, each made at most twice.
    assert!((10..=30).contains(&tried), "{tried} attempts in 300 seconds");
    machine.simulation.fs().set_full(None);
    machine.simulation.fs().set_capacity(None);
    assert!(machine.until_it_goes_on() < GOES_ON);
    machine.puts(200);
    machine.check("with room again");
}

/// Counts the compactions of the default family that have begun.
#[derive(Debug, Default)]
struct Begun(AtomicU64);

impl EventListener for Begun {
    fn compaction_begun(&self, compaction: &CompactionInfo) {
        self.0.fetch_add(u64::from(compaction.column_family == "default"), Ordering::Relaxed);
    }
}

/// There is always space for the other family's compactions.
#[test]
fn a_compaction_of_another_family_does_not_have_one_without_room_tried_again() {
    let begun = Arc::new(Begun::default());
    // Space reserved for a file and given back would count as space for the other compaction.
    let machine_options =
        |options: Options| options.event_listener(begun.clone()).db(|db| db.allow_fallocate = false);
    let mut machine = cramped(&Arc::default(), machine_options);
    // With much less space the error would still stand when writers are stopped, and would refuse
    // manual compactions.
    machine.leave_room(3 << 20);
    let small = machine.db.create_column_family("small", &machine.options).unwrap();
    machine.db.put_cf(&WriteOptions::default(), &small, "key", "value").unwrap();
    machine.db.flush_cfs(&FlushOptions::default(), &[&small]).unwrap();
    machine.until_stopped();
    // Memtables sealed until then take some of it, and less remains than the other compaction
    // needs.
    machine.leave_room(400 << 10);
    let before = begun.0.load(Ordering::Relaxed);
    let rewrites = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    for _ in 0..30 {
        machine.db.compact_range_cf(&rewrites, &small, None, None).unwrap();
        machine.pause(Duration::from_secs(10));
    }
    let tried = begun.0.load(Ordering::Relaxed) - before;
    assert_eq!(tried, 0, "compactions without room were tried again");
    machine.simulation.fs().set_capacity(None);
    assert!(machine.until_it_goes_on() < GOES_ON);
    machine.check("with room again");
}

/// The caller of the compaction gets the error, and it is not tried again.
#[test]
fn a_manual_compaction_without_room_holds_up_no_other() {
    let manual = |options: Options| options.column_families(|cf| cf.disable_auto_compactions = true);
    let mut machine = Machine::new(9, WriteOptions::default(), manual);
    machine.puts(1_000);
    machine.db.flush(&FlushOptions::default()).unwrap();
    let small = machine.options.clone().column_families(|cf| cf.disable_auto_compactions = false);
    let small = machine.db.create_column_family("small", &small).unwrap();
    machine.leave_room(600 << 10);
    let told = machine.db.compact_range(&CompactRangeOptions::default(), None, None).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::NoSpace, "{told}");
    machine.pause(Duration::from_secs(1));
    for _ in 0..4 {
        machine.db.put_cf(&WriteOptions::default(), &small, "key", "value").unwrap();
        machine.db.flush_cfs(&FlushOptions::default(), &[&small]).unwrap();
    }
    machine.db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    let files = machine.db.property_cf(&small, "rocksdb.num-files-at-level0");
    assert_eq!(files.as_deref(), Some("0"), "they have been compacted");
    machine.check("with room for small ones");
}
