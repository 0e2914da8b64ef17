//! KarstDB in the loop that kills: a life of a database, and what it left. Also compiled by the
//! judge of RocksDB 11.8, where lives of both engines take turns on one directory.

use crate::reading::Reading;
use karst_engine::{
    ColumnFamily, CompactRangeOptions, Db, FlushOptions, OptionSet, Options, ReadOptions, WriteBatch,
    WriteOptions,
};
use karst_testkit::chronicle::Cut;
use karst_testkit::kills::{Life, Living, families};
use karst_testkit::random::Random;
use karst_testkit::script::Write;
use karst_testkit::subject::Subject;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread::Thread;

/// What a life does with its database.
pub(crate) struct Karst {
    db: Db,
    families: Vec<ColumnFamily>,
}

fn text(error: karst_engine::Error) -> String {
    error.to_string()
}

/// A life's options, without what is for its writers alone.
fn options(life: &Life) -> Result<Options, String> {
    let chosen = life.options();
    let mut options = Options::new().set_all(&chosen.database).map_err(text)?;
    for (name, lines) in families(&chosen) {
        options = options.column_family(&name, move |cf| {
            cf.set_all(&lines).unwrap_or_else(|e| panic!("{lines}: {e}"));
        });
    }
    Ok(options)
}

/// What a life has left, read without changing it.
pub(crate) fn check(life: &Life, at_least: &Cut, at_most: &Cut) -> Result<Cut, String> {
    let db = Db::open_read_only(&life.path, &options(life)?).map_err(|e| format!("read-only: {e}"))?;
    let reading = Reading { db: &db, options: ReadOptions::default() };
    life.tally().check(&reading, at_least, at_most)
}

impl Karst {
    pub(crate) fn open(life: &Life) -> Result<Self, String> {
        let all = families(&life.options());
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let db = Db::open_cf(&life.path, &options(life)?, &names).map_err(text)?;
        let families = names.iter().map(|name| db.column_family(name).expect("it is open")).collect();
        Ok(Self { db, families })
    }

    fn batch(&self, changes: &[Write]) -> karst_engine::Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        for change in changes {
            match change {
                Write::Put { family, key, value } => batch.put_cf(&self.families[*family], key, value),
                Write::Delete { family, key } => batch.delete_cf(&self.families[*family], key),
                Write::SingleDelete { family, key } => batch.single_delete_cf(&self.families[*family], key),
                Write::DeleteRange { family, begin, end } => {
                    batch.delete_range_cf(&self.families[*family], begin, end)
                }
                Write::Merge { family, key, operand } => {
                    batch.merge_cf(&self.families[*family], key, operand)
                }
            }?;
        }
        Ok(batch)
    }
}

impl Living for Karst {
    fn write(&self, changes: &[Write], sync: bool, unlogged: bool) -> Result<(), String> {
        let batch = self.batch(changes).map_err(text)?;
        let options = WriteOptions { sync, disable_wal: unlogged, ..WriteOptions::default() };
        // Both forms, whatever is drawn.
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
            0 => self.db.compact_range_cf(&CompactRangeOptions::default(), one, None, None),
            1..=4 => self.db.flush_cfs(&options, &some),
            5 => self.db.flush_wal(random.one_in(4)),
            _ => return given_up(self.db.flush_cfs_async(&options, &some), random.below(6)),
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

/// Polls a future so many times, with pauses, and then drops it.
fn given_up(future: impl Future<Output = karst_engine::Result<()>>, polls: u64) -> Result<(), String> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done.map_err(text);
        }
        std::thread::sleep(std::time::Duration::from_micros(50 << polls));
    }
    Ok(())
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
