//! KarstDB in the loop of kills: one life of a database, and the check of what it left. Also
//! compiled by the judge of RocksDB 11.8, where lives of both engines take turns on one directory.

use crate::reading::Reading;
use crate::writing::batch;
use karst_engine::{
    Checkpoint, ColumnFamily, CompactRangeOptions, Db, FlushOptions, OptionSet, Options, ReadOptions,
    WriteBatch, WriteOptions,
};
use karst_testkit::chronicle::Cut;
use karst_testkit::kills::{self, Life, Living, PASSING};
use karst_testkit::random::Random;
use karst_testkit::script::Write;
use karst_testkit::subject::Subject;
use karst_testkit::tally::Tally;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::Thread;

/// Prefix of the names of checkpoints.
const COPY: &str = "checkpoint-";

/// The open database of a life.
pub(crate) struct Karst {
    db: Db,
    /// Families that exist for the whole life of the database.
    families: Vec<ColumnFamily>,
    /// Options of families that are created and dropped at run time.
    passing: Options,
}

fn text(error: karst_engine::Error) -> String {
    error.to_string()
}

/// Returns the options of a life, without those of its writers, and the names of its families.
fn options(life: &Life) -> Result<(Options, Vec<String>), String> {
    let (chosen, mut names) = (life.options(), Vec::new());
    let mut options = Options::new().set_all(&chosen.database).map_err(text)?;
    // An error is ignored because there may be no database yet.
    let there = Db::list_column_families(&life.path, &options).unwrap_or_default();
    for (name, lines) in kills::families(&chosen, &there) {
        options = options.column_family(&name, move |cf| {
            cf.set_all(&lines).unwrap_or_else(|e| panic!("{lines}: {e}"));
        });
        names.push(name);
    }
    Ok((options, names))
}

/// Checks the database that a life has left, without changing it.
pub(crate) fn check(life: &Life, at_least: &Cut, at_most: &Cut) -> Result<Cut, String> {
    let db = Db::open_read_only(&life.path, &options(life)?.0).map_err(|e| format!("read-only: {e}"))?;
    let reading = Reading { db: &db, options: ReadOptions::default() };
    life.tally().check(&reading, at_least, at_most)
}

impl Karst {
    pub(crate) fn open(life: &Life) -> Result<Self, String> {
        let (options, names) = options(life)?;
        remove_copies(&life.path);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let db = Db::open_cf(&life.path, &options, &names).map_err(text)?;
        let family = |name: &&str| db.column_family(name).expect("it is open");
        let (left, stay): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.starts_with(PASSING));
        for name in &left {
            db.drop_column_family(&family(name)).map_err(text)?;
        }
        let families = stay.iter().map(family).collect();
        let passing = Options::new().set_all(&kills::passing(&life.options())).map_err(text)?;
        Ok(Self { db, families, passing })
    }

    /// Creates a family, counts in it, and drops it. A life that is killed meanwhile leaves it.
    fn pass(&self, random: &mut Random, together: bool) -> Result<(), String> {
        let name = format!("{PASSING}{}", random.next_u64());
        let family = self.db.create_column_family(&name, &self.passing).map_err(text)?;
        let count = 1 + random.below(40);
        for _ in 0..count {
            let options = WriteOptions::default();
            self.db.merge_cf(&options, &family, "count", 1u64.to_le_bytes()).map_err(text)?;
            if !together && random.one_in(16) {
                self.db.flush_cfs(&FlushOptions::default(), &[&family]).map_err(text)?;
            }
        }
        let found = self.db.get_cf(&ReadOptions::default(), &family, "count").map_err(text)?;
        if found.as_deref() != Some(&count.to_le_bytes()[..]) {
            return Err(format!("{name}: {found:?} of {count}"));
        }
        self.db.drop_column_family(&family).map_err(text)
    }

    /// Takes a checkpoint, opens it and removes it. A life that is killed meanwhile leaves all or a
    /// part of it.
    fn copy(&self, random: &mut Random) -> Result<(), String> {
        let path = self.db.path().with_file_name(format!("{COPY}{:x}", random.next_u64()));
        let least = [0, 20_000, u64::MAX][random.index(3)];
        let told = |e: karst_engine::Error| format!("a checkpoint: {e}");
        Checkpoint::new(&self.db).and_then(|by| by.create_checkpoint(&path, least)).map_err(told)?;
        let copy = Db::open_read_only(&path, &Options::new()).map_err(told)?;
        copy.verify_checksum().map_err(told)?;
        drop(copy);
        std::fs::remove_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Begins a write and drops its future after `polls` polls. The write is then applied wholly,
    /// once, or not at all, which is known after the next write. Returns true if it was applied.
    fn give_up_write(
        &self,
        options: &WriteOptions,
        (batch, changes): (&WriteBatch, &[Write]),
        polls: u64,
    ) -> Result<bool, String> {
        if let Some(written) = given_up(self.db.write_async(options, batch), polls) {
            return written.map(|()| true).map_err(text);
        }
        let (family, key, value) = Tally::mark_of(changes).ok_or("a batch without a mark")?;
        let mut behind = WriteBatch::new();
        behind.put_cf(&self.families[0], key, value).map_err(text)?;
        self.db.write(&WriteOptions { sync: false, ..*options }, &behind).map_err(text)?;
        let found = self.db.get_cf(&ReadOptions::default(), &self.families[family], key).map_err(text)?;
        Ok(found.as_deref() == Some(value))
    }
}

impl Living for Karst {
    fn write(&self, changes: &[Write], sync: bool, unlogged: bool) -> Result<(), String> {
        let batch = batch(&self.families, changes).map_err(text)?;
        let options = WriteOptions { sync, disable_wal: unlogged, ..WriteOptions::default() };
        // The form follows from the batch's size and count, so all forms are used with any options.
        let size = batch.as_bytes().len() as u64;
        if size.is_multiple_of(8) && self.give_up_write(&options, (&batch, changes), size / 8 % 5)? {
            return Ok(());
        }
        match batch.count() % 2 {
            0 => self.db.write(&options, &batch),
            _ => foreign_block_on(self.db.write_async(&options, &batch)),
        }
        .map_err(text)
    }

    fn flush_wal(&self) -> Result<(), String> {
        self.db.flush_wal(false).map_err(text)
    }

    fn flush_all(&self) -> Result<(), String> {
        let all: Vec<&ColumnFamily> = self.families.iter().collect();
        self.db.flush_cfs(&FlushOptions::default(), &all).map_err(text)
    }

    fn maintain(&self, random: &mut Random, together: bool) -> Result<(), String> {
        let one = &self.families[random.index(self.families.len())];
        let all: Vec<&ColumnFamily> = self.families.iter().collect();
        let some = if together || random.one_in(2) { all } else { vec![one] };
        let options = FlushOptions::default();
        match random.below(16) {
            6 => return self.pass(random, together),
            7 => return self.copy(random),
            0 => self.db.compact_range_cf(&CompactRangeOptions::default(), one, None, None),
            1..=4 => self.db.flush_cfs(&options, &some),
            5 => self.db.flush_wal(random.one_in(4)),
            _ => given_up(self.db.flush_cfs_async(&options, &some), random.below(6)).unwrap_or(Ok(())),
        }
        .map_err(text)
    }

    fn has_snapshots(&self) -> bool {
        true
    }

    fn look(&self, at: &mut dyn FnMut(&dyn Subject) -> Result<(), String>) -> Result<(), String> {
        let options = ReadOptions { snapshot: Some(self.db.snapshot()), ..ReadOptions::default() };
        at(&Reading { db: &self.db, options })
    }

    fn close(&self) -> Result<(), String> {
        // Closes while a flush is under way whose future was dropped.
        let all: Vec<&ColumnFamily> = self.families.iter().collect();
        let polls = self.db.latest_sequence_number() % 4;
        let flushed = given_up(self.db.flush_cfs_async(&FlushOptions::default(), &all), polls);
        flushed.unwrap_or(Ok(())).map_err(text)?;
        self.db.close().map_err(text)?;
        let (live, _) = self.db.live_file_names();
        let names = self.db.env().fs().list_dir(self.db.path()).map_err(|e| e.to_string())?;
        let leaked = names.iter().filter(|name| {
            let is_data = name.ends_with(".sst") || name.ends_with(".blob") || name.ends_with(".dbtmp");
            is_data && !live.iter().any(|l| l.trim_start_matches('/') == *name)
        });
        let leaked: Vec<&String> = leaked.collect();
        if leaked.is_empty() { Ok(()) } else { Err(format!("files that nobody needs: {leaked:?}")) }
    }
}

/// Removes checkpoints left by lives that were killed.
fn remove_copies(db: &Path) {
    let beside = db.parent().and_then(|parent| std::fs::read_dir(parent).ok());
    for entry in beside.into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(COPY) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Polls a future at most `polls` times, with pauses, and then drops it; returns its output if it
/// was ready.
fn given_up<T>(future: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        std::thread::sleep(std::time::Duration::from_micros(50 << polls));
    }
    None
}

struct Unpark(Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

fn foreign_block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
