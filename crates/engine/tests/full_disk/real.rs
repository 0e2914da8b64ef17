//! Writers on small file systems until a write is refused, phase by phase. Each phase prints the
//! error, its delay, and the time until writing resumed once there was space.

use super::small::Small;
use super::{Entries, all, key, options, value};
use karst_engine::{Db, Error, ErrorKind, FlushOptions, Options, WriteOptions};
use std::path::PathBuf;
use std::time::Duration;

/// Longer than the longest pause between two attempts to resume in such a short run.
const SOON: Duration = Duration::from_secs(20);
/// Generous limit for steps that are quick on a quiet machine. Exact times are checked on a
/// simulated one (`phases.rs`).
const FOREVER: Duration = Duration::from_secs(300);

/// A database on a disk that becomes full.
struct Writer<'a> {
    disk: &'a Small,
    phase: &'static str,
    path: PathBuf,
    options: Options,
    db: Db,
    model: Entries,
    next: u64,
}

impl<'a> Writer<'a> {
    fn new(disk: &'a Small, phase: &'static str, change: impl FnOnce(Options) -> Options) -> Self {
        let path = disk.root.join(phase);
        let options = options(&disk.env).db(|db| db.bgerror_resume_retry_interval = 100_000);
        let options = change(options);
        let db = Db::open(&path, &options).unwrap();
        Self { disk, phase, path, options, db, model: Entries::new(), next: 0 }
    }

    fn put(&mut self, write: &WriteOptions) -> Result<(), Error> {
        let (key, value) = (key(self.next), value(self.next, 1000));
        self.next += 1;
        self.disk.breathe();
        self.db.put_opt(write, &key, &value)?;
        self.model.insert(key, value);
        Ok(())
    }

    fn puts(&mut self, count: u64) {
        (0..count).for_each(|_| self.put(&WriteOptions::default()).unwrap());
    }

    /// Writes until a write is refused, which must be for lack of space; returns the delay. No
    /// acknowledged write may be missing then, here or in a database opened for reading.
    fn until_refused(&mut self, write: &WriteOptions) -> Duration {
        let (error, after) = loop {
            let began = self.disk.env.now();
            if let Err(error) = self.put(write) {
                break (error, self.disk.env.now() - began);
            }
            assert!(self.next < 1_000_000, "there is room for everything");
        };
        println!(
            "{}, {}: write {} returned after {after:.2?}: {error}",
            self.disk.name, self.phase, self.next
        );
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(all(&self.db) == self.model, "{}: something is lost", self.phase);
        self.read_only();
        after
    }

    /// Writes until writers are stopped; returns how long the last write waited. Before that a
    /// write may be refused at once, while a compaction has taken the last of the space; then
    /// writing resumes. Returns `None` if the log took the last of the space before L0 had too many
    /// files: then memtables cannot be flushed, and nothing resumes.
    fn until_stopped(&mut self, write: &WriteOptions, told_after: Duration) -> Option<Duration> {
        loop {
            let after = self.until_refused(write);
            if after >= told_after {
                return Some(after);
            }
            match self.until_taken() {
                Ok(after) => println!("{}, {}: it goes on after {after:.2?}", self.disk.name, self.phase),
                Err(error) => {
                    let memory = self.in_memory();
                    assert!(self.disk.free() < memory, "there is room for {memory} bytes: {error}");
                    return None;
                }
            }
        }
    }

    /// Returns the size of all memtables in bytes.
    fn in_memory(&self) -> u64 {
        self.db.int_property("rocksdb.size-all-mem-tables").unwrap()
    }

    /// Waits until writes are accepted; returns how long. Returns the error after `SOON` if
    /// memtables have no space to be flushed, and after `FOREVER` in any case.
    fn until_taken(&mut self) -> Result<Duration, Error> {
        let began = self.disk.env.now();
        while let Err(error) = self.put(&WriteOptions::default()) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            let waited = self.disk.env.now() - began;
            if waited >= FOREVER || waited >= SOON && self.disk.free() < self.in_memory() {
                return Err(error);
            }
            karst_io::block_on(&self.disk.env, karst_io::sleep(&self.disk.env, Duration::from_millis(10)));
        }
        Ok(self.disk.env.now() - began)
    }

    /// Checks that a database opened for reading has all acknowledged entries; it may have others
    /// that were not acknowledged.
    fn read_only(&self) {
        let found = all(&Db::open_read_only(&self.path, &self.options).unwrap());
        let missing = self.model.iter().find(|(key, value)| found.get(*key) != Some(*value));
        assert!(missing.is_none(), "{}: {missing:?} is not found by reading only", self.phase);
    }

    /// Frees space and checks that writing resumes.
    fn until_it_goes_on(mut self) {
        self.disk.clear();
        let after = self.until_taken().unwrap();
        println!("{}, {}: with room again it goes on after {after:.2?}", self.disk.name, self.phase);
        self.puts(1000);
        assert!(all(&self.db) == self.model, "{}: something is lost", self.phase);
        self.db.close().unwrap();
        drop(self.db);
        let db = Db::open(&self.path, &self.options).unwrap();
        let found = all(&db);
        let missing = self.model.iter().find(|(key, value)| found.get(*key) != Some(*value));
        assert!(missing.is_none(), "{}: {missing:?} is lost", self.phase);
        db.close().unwrap();
        Db::destroy(&self.path, &self.options).unwrap();
    }
}

/// Fills the disk until compactions find no space, then L0 until writers are stopped.
fn compaction(disk: &Small, write: &WriteOptions, told_after: Duration) {
    // If flushes are late the log may take the last of the space first; then the phase is repeated.
    let (mut writer, after) = (0..5)
        .find_map(|_| {
            disk.fill(28 << 20);
            let mut writer = Writer::new(disk, "compaction", |options| options);
            match writer.until_stopped(write, told_after) {
                Some(after) => Some((writer, after)),
                None => {
                    println!("{}, {}: the log was faster than L0", disk.name, writer.phase);
                    writer.until_it_goes_on();
                    None
                }
            }
        })
        .expect("L0 is full before the log is, once in five");
    assert!(after < told_after + FOREVER, "{after:?}");
    // Closed and opened again while the disk is full.
    writer.db.close().unwrap();
    let db = Db::open(&writer.path, &writer.options);
    match db {
        Ok(db) => {
            println!("{}, opening on the full disk: open", disk.name);
            writer.db = db;
        }
        Err(error) => {
            println!("{}, opening on the full disk: {error}", disk.name);
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            writer.read_only();
            disk.clear();
            writer.db = Db::open(&writer.path, &writer.options).unwrap();
        }
    }
    assert!(all(&writer.db) == writer.model, "something is lost by opening");
    writer.until_it_goes_on();
}

fn log(disk: &Small) {
    let mut writer = Writer::new(disk, "log", |options| options);
    writer.puts(20);
    disk.fill(0);
    assert!(writer.until_refused(&WriteOptions::default()) < FOREVER);
    // The log's file system stays full, so closing and opening have to cope with that.
    writer.db.close().unwrap();
    match Db::open(&writer.path, &writer.options) {
        Ok(db) => {
            println!("{}, opening on the full disk: open", disk.name);
            writer.db = db;
            writer.until_refused(&WriteOptions::default());
        }
        Err(error) => {
            println!("{}, opening on the full disk: {error}", disk.name);
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            writer.read_only();
            disk.clear();
            writer.db = Db::open(&writer.path, &writer.options).unwrap();
            writer.puts(20);
            disk.fill(0);
            writer.until_refused(&WriteOptions::default());
        }
    }
    writer.until_it_goes_on();
}

fn memtable_switch(disk: &Small) {
    let mut writer = Writer::new(disk, "memtable switch", |options| options);
    writer.puts(20);
    if disk.use_up_inodes() {
        assert!(writer.until_refused(&WriteOptions::default()) < FOREVER);
    }
    writer.until_it_goes_on();
}

fn logs_elsewhere(disk: &Small, phase: &'static str) -> impl FnOnce(Options) -> Options {
    let wal_dir = disk.elsewhere.join(phase);
    disk.env.fs().create_dir(&wal_dir).unwrap();
    let wal_dir = wal_dir.to_str().expect("names are text").to_owned();
    move |options| options.db(move |db| db.wal_dir.clone_from(&wal_dir))
}

fn flush(disk: &Small, phase: &'static str, change: impl FnOnce(Options) -> Options) {
    let elsewhere = logs_elsewhere(disk, phase);
    let mut writer = Writer::new(disk, phase, |options| change(elsewhere(options)));
    disk.fill(64 << 10);
    assert!(writer.until_refused(&WriteOptions::default()) < FOREVER);
    writer.until_it_goes_on();
}

fn manifest_and_options(disk: &Small) {
    let phase = "MANIFEST and OPTIONS";
    let elsewhere = logs_elsewhere(disk, phase);
    let mut writer =
        Writer::new(disk, phase, |options| elsewhere(options).db(|db| db.allow_fallocate = false));
    writer.puts(20);
    disk.fill(0);
    let default = writer.db.default_column_family().clone();
    let error = writer.db.set_options(&default, &[("write_buffer_size", "300000")]).unwrap_err();
    println!("{}, OPTIONS: set_options returned {error}", disk.name);
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    // A failed write of OPTIONS does not refuse writes if the log is on another file system.
    if disk.name != "simulated" {
        writer.puts(5);
    }
    // A family adds some bytes to the MANIFEST; its OPTIONS fail each time.
    for i in 0..100 {
        if writer.db.background_error().is_some() {
            break;
        }
        let name = format!("{i:0200}");
        assert_eq!(
            writer.db.create_column_family(&name, &writer.options).unwrap_err().kind(),
            ErrorKind::NoSpace
        );
    }
    assert!(writer.until_refused(&WriteOptions::default()) < FOREVER);
    writer.until_it_goes_on();
}

fn blobs(options: Options) -> Options {
    options.column_families(|cf| (cf.enable_blob_files, cf.min_blob_size) = (true, 500))
}

/// Checks the error of a manual flush.
fn flush_manually(disk: &Small) {
    let elsewhere = logs_elsewhere(disk, "manual");
    let mut writer = Writer::new(disk, "manual", elsewhere);
    writer.puts(100);
    disk.fill(0);
    let began = disk.env.now();
    let error = writer.db.flush(&FlushOptions::default()).unwrap_err();
    println!("{}, a manual flush returned after {:.2?}: {error}", disk.name, disk.env.now() - began);
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    writer.until_it_goes_on();
}

fn phases(disk: &Small) {
    log(disk);
    memtable_switch(disk);
    flush(disk, "flush", |options| options);
    flush(disk, "blob files", blobs);
    flush_manually(disk);
    manifest_and_options(disk);
}

#[test]
fn a_tmpfs_that_is_full_phase_by_phase() {
    phases(&Small::tmpfs());
}

#[test]
fn an_ext4_that_is_full_phase_by_phase() {
    phases(&Small::ext4());
}

#[test]
fn a_writer_on_a_tmpfs_that_fills_up_is_told_after_ten_seconds() {
    compaction(&Small::tmpfs(), &WriteOptions::default(), Duration::from_secs(10));
}

#[test]
fn a_writer_on_an_ext4_that_fills_up_is_told_when_it_wants_to_be() {
    let timeout = Duration::from_secs(2);
    compaction(&Small::ext4(), &WriteOptions { timeout: Some(timeout), ..WriteOptions::default() }, timeout);
}

/// A log reserves as many bytes as a memtable has, which is more than is free, and ext4 gives a
/// file that asks for too much all that it has.
#[test]
fn large_memtables_leave_room_for_tables_on_an_ext4_with_12_mb() {
    let disk = Small::ext4();
    let large = |options: Options| options.column_families(|cf| cf.write_buffer_size = 64 << 20);
    let mut writer = Writer::new(&disk, "large memtables", large);
    writer.puts(4_000);
    writer.db.close().unwrap();
    disk.fill(12 << 20);
    writer.db = Db::open(&writer.path, &writer.options).unwrap();
    assert!(disk.free() > 1 << 20, "{} bytes are free of 12 MB", disk.free());
    writer.puts(500);
    writer.db.flush(&FlushOptions::default()).unwrap();
    assert!(all(&writer.db) == writer.model, "something is lost by opening");
    writer.until_it_goes_on();
}
