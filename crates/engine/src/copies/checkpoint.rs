//! [`Checkpoint`]: a copy of the database in another directory, which shares tables by hard links.
//!
//! In: an open database and a name. Out: a directory of that name that is a database.
//!
//! Invariants:
//! - The directory gets its name only once everything in it is durable; a failed or abandoned
//!   checkpoint leaves no files behind. A crash may leave a directory whose name ends in `.tmp`,
//!   which the next attempt removes.
//! - Only immutable files are linked. Logs and MANIFEST are copied, because the database appends to
//!   them.

use super::copying::{self, Halt, Staging};
use super::live_files::{DatabaseFile, DatabaseFileKind, HeldFiles, LiveFilesStorageInfoOptions, held_files};
use crate::db::Db;
use karst_base::error::{Error, ErrorKind, Result};
use karst_commit::wal::log_chain::is_only_a_note;
use karst_format::ids::FileNumber;
use karst_io::{Env, block_on};
use std::path::Path;

/// Creates checkpoints of a database. Cheap; may be used by several threads concurrently.
///
/// ```
/// # use karst_engine as karstdb;
/// use karstdb::{Checkpoint, Db, Options};
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("db");
/// let db = Db::open(&path, &Options::new().db(|db| db.create_if_missing = true))?;
/// db.put("apple", "ripe")?;
/// # let copy = directory.path().join("copy");
/// Checkpoint::new(&db)?.create_checkpoint(&copy, 0)?;
/// db.put("apple", "rotten")?;
///
/// let copy = Db::open(&copy, &Options::new())?;
/// assert_eq!(copy.get("apple")?.as_deref(), Some(&b"ripe"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint<'a> {
    pub(super) db: &'a Db,
}

impl<'a> Checkpoint<'a> {
    /// Returns a handle that creates checkpoints of `db`.
    ///
    /// # Errors
    /// The database is open for reading only or closed.
    pub fn new(db: &'a Db) -> Result<Checkpoint<'a>> {
        db.write_half()?;
        Ok(Checkpoint { db })
    }

    /// Creates a copy of the database in `directory`, which must not exist and whose parent must.
    /// Waits on the calling thread until it is durable.
    ///
    /// The copy has everything that was acknowledged before this call, and of concurrent writes a
    /// part that a crash could leave. Tables and blob files are hard links, or copies if the
    /// directory is on another file system; MANIFEST, OPTIONS and logs are copies, all in that one
    /// directory, and `wal_dir` in the copied OPTIONS file is adjusted. Prepared, undecided
    /// transactions are prepared in the copy too.
    ///
    /// Memtables are flushed first if the logs have at least `log_size_for_flush` bytes in total: 0
    /// for always, `u64::MAX` for never. Without a flush the logs are copied, and entries that were
    /// written with `disable_wal` and are not in tables are missing.
    ///
    /// # Errors
    /// `InvalidArgument`: the directory exists. `Locked`: another caller is creating it.
    /// `NotFound`: it has no parent. `Io`, `NoSpace`: a file could not be read or written. No files
    /// are left behind then, and the database is unchanged.
    pub fn create_checkpoint(&self, directory: impl AsRef<Path>, log_size_for_flush: u64) -> Result<()> {
        self.create_blocking(directory.as_ref(), log_size_for_flush)
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn create_blocking(&self, directory: &Path, log_size_for_flush: u64) -> Result<()> {
        block_on(self.db.env(), self.create_checkpoint_async(directory, log_size_for_flush))
    }

    /// The asynchronous form of [`create_checkpoint`](Self::create_checkpoint). If it is dropped,
    /// its files are removed soon, unless the checkpoint was already complete.
    ///
    /// # Errors
    /// Those of [`create_checkpoint`](Self::create_checkpoint).
    pub async fn create_checkpoint_async(&self, directory: &Path, log_size_for_flush: u64) -> Result<()> {
        let (env, directory) = (self.db.env(), directory.to_owned());
        let told = |error: Error| error.in_context(format!("making the checkpoint {}", directory.display()));
        let to = directory.clone();
        // Checked first, so that memtables are not flushed for a checkpoint that is refused.
        env.run_blocking(move |env| copying::refuse_existing(env, &to)).await.map_err(told)?;
        let options = LiveFilesStorageInfoOptions {
            wal_size_for_flush: log_size_for_flush,
            ..LiveFilesStorageInfoOptions::default()
        };
        let held = held_files(self.db, &options).await.map_err(told)?;
        let options = self.db.options();
        let logs = Logs {
            are_own: options.wal_dir.is_empty(),
            // False if logs are tracked, because the MANIFEST may record the length of a log.
            may_be_empty: !options.track_and_verify_wals_in_manifest
                && held.files.iter().filter(|file| file.kind == DatabaseFileKind::Wal).count() == 1,
        };
        let to = directory.clone();
        copying::run(env, Halt::default(), move |env, stop| make(env, &held, &to, logs, stop))
            .await
            .map_err(told)
    }
}

/// Properties of the database's logs.
#[derive(Clone, Copy)]
struct Logs {
    /// True if they are in the database's directory.
    are_own: bool,
    /// True if there is one log, and its copy may lack the note that a log begins with.
    may_be_empty: bool,
}

/// Maximum size in bytes of a log that has only the note at its beginning.
const NOTE_BYTES: u64 = 512;

/// Creates the directory from the files.
fn make(env: &Env, held: &HeldFiles, directory: &Path, logs: Logs, stop: &Halt) -> Result<()> {
    let staging = Staging::begin(env, directory)?;
    for file in &held.files {
        stop.check()?;
        let to = staging.path(&file.name);
        put(env, file, &to, logs.are_own, stop)?;
        // Compat: after a flush RocksDB's checkpoint has an empty log.
        if file.kind == DatabaseFileKind::Wal
            && logs.may_be_empty
            && file.size_bytes <= NOTE_BYTES
            && is_only_a_note(&env.fs().read_file(&to)?, FileNumber(file.number))
        {
            copying::write(env, &to, &[])?;
        }
    }
    staging.finish()
}

fn put(env: &Env, file: &DatabaseFile, to: &Path, own_logs: bool, stop: &Halt) -> Result<()> {
    let from = file.path();
    match (&file.replacement_contents, file.kind) {
        (Some(contents), _) => copying::write(env, to, contents.as_bytes()),
        (None, DatabaseFileKind::Options) if !own_logs => {
            let text = env.fs().read_file(&from)?;
            copying::write(env, to, &with_wal_dir(&text, "")?)
        }
        (None, _) if file.trim_to_size => {
            copying::copy(env, &from, to, Some(file.size_bytes), stop, |_| {}).map(drop)
        }
        (None, _) => copying::link_or_copy(env, &from, to, stop),
    }
}

/// Returns the text of an OPTIONS file with `wal_dir` set; empty is the database's directory.
///
/// Otherwise a copy that is opened with the original's directory of logs would replay these, and
/// write there.
pub(super) fn with_wal_dir(text: &[u8], wal_dir: &str) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(text)
        .map_err(|e| Error::with_source(ErrorKind::Corruption, "the OPTIONS file is not UTF-8", e))?;
    let mut changed = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.trim_start().strip_prefix("wal_dir=") {
            Some(_) => changed.extend(["  wal_dir=", wal_dir, "\n"]),
            None => changed.push_str(line),
        }
    }
    Ok(changed.into_bytes())
}
