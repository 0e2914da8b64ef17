//! Opening a database: from a directory to column families that can be read and, if requested,
//! written.
//!
//! In: a directory and [`Options`]. Out: the state that [`Db`](crate::Db) keeps, or an error that
//! names the file, the offset and the expected content.
//!
//! | file | holds |
//! |---|---|
//! | `load` | reading a directory, common to all openings |
//! | `wanted` | the column families to open |
//! | `find_options` | finding the options: the OPTIONS file's, or its replacement's, changed by the caller |
//! | this one | opening for reading: nothing is written, not even LOCK, so that a database may be read while another process has it open |
//! | `secondary` | opening a database that another process writes, and following it |
//! | `read_write` | opening for writing: recovery, new MANIFEST, removal of leftovers |
//! | `ownership` | a writer's ownership of the directory: LOCK, trees, OPTIONS |
//! | `create` | creating a database, and destroying one |
//! | `column_families` | creating and dropping families while the database is open |
//! | `change_options` | changing options while the database is open |
//! | `check_options` | contradictory or unsupported options |
//! | `option_rules` | options of a column family that RocksDB refuses |
//!
//! Invariant: opening for reading leaves the directory byte for byte unchanged. Later writes of
//! another process are not seen.

mod cache;
mod change_options;
pub(crate) mod check_options;
mod column_families;
mod create;
mod directory;
pub(crate) mod find_options;
pub(crate) mod identity;
mod load;
pub(crate) mod manifest;
mod option_rules;
mod options;
mod ownership;
mod read_write;
mod readable_by;
mod recovery;
mod secondary;
pub(crate) mod wanted;

pub use cache::BlockCache;

pub(crate) use change_options::{change_db_options, change_family_options};
pub(crate) use column_families::{
    column_family_to_be, create_column_families, drop_column_family, options_behind_change,
};
pub(crate) use create::{destroy, list_column_families, write_identity};
pub(crate) use options::new_family_options;
pub use options::{DamagedOptions, DbPath, Options};
pub(crate) use ownership::{Ownership, take_lock};
pub(crate) use read_write::{LogRecovery, manifest_options, read_write, read_write_locked};
pub(crate) use secondary::{Secondary, SecondaryView, open_secondary};

pub(crate) use directory::{Directory, check_path};
use find_options::Purpose;
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_base::life::Life;
use karst_base::options::CurrentDbOptions;
use karst_base::stats::Statistics;
use karst_commit::Section;
use karst_commit::wal::recovery::Recovered;
use karst_commit::wal::replay::Undecided;
use karst_commit::wal::replay_duplicates::Passed;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_io::{Env, FileObserver, report};
use karst_mem::PendingRanges;
use karst_storage::column_family::Families;
use karst_storage::open_files::Shared;
use load::{Loaded, load};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wanted::Wanted;

/// The half of an open database that reads: its files as found, and its column families.
#[derive(Debug)]
pub(crate) struct ReadHalf {
    pub(crate) env: Env,
    pub(crate) path: PathBuf,
    pub(crate) db_options: Arc<CurrentDbOptions>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) life: Arc<Life>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) families: Arc<Families>,
    /// Column families that exist but were not opened.
    pub(crate) unopened: Vec<String>,
    pub(crate) last_seq: SeqNo,
    pub(crate) manifest: FileName,
    pub(crate) manifest_bytes: u64,
    pub(crate) options_file: Option<FileName>,
    pub(crate) logs: Vec<FileNumber>,
    /// Place at which point-in-time recovery stopped because of damage, or None.
    pub(crate) log_damage: Option<String>,
    /// Log entries that were skipped because tables have them, or None.
    pub(crate) log_duplicates: Option<String>,
    pub(crate) min_log_number: FileNumber,
    pub(crate) db_id: Option<String>,
    /// Inserted, undecided entries, if the database has any or may get any.
    pub(crate) pending: Option<Arc<PendingRanges>>,
    /// Notifies listeners of operations on files while the database is open.
    _observer: Option<Arc<dyn FileObserver>>,
    /// State of a secondary instance, or None.
    pub(crate) secondary: Option<Arc<Secondary>>,
}

impl ReadHalf {
    /// Returns the loaded state, its logs not replayed.
    fn of(loaded: Loaded, path: &Path) -> ReadHalf {
        let set = loaded.set;
        ReadHalf {
            path: path.to_owned(),
            families: Arc::new(Families::new(loaded.families)),
            unopened: set.unopened.values().cloned().collect(),
            options_file: loaded.directory.newest_options(),
            log_damage: None,
            log_duplicates: None,
            min_log_number: set.min_log_number(),
            env: loaded.env,
            db_options: CurrentDbOptions::new(loaded.db_options),
            statistics: loaded.statistics,
            life: Arc::new(Life::new(false)),
            shared: loaded.shared,
            last_seq: set.last_sequence,
            manifest: loaded.manifest,
            manifest_bytes: loaded.manifest_bytes,
            logs: loaded.logs.numbers,
            db_id: loaded.db_id,
            pending: None,
            _observer: loaded.observer,
            secondary: None,
        }
    }

    /// Records the result of replaying the logs.
    fn replayed(&mut self, recovered: Recovered) {
        self.last_seq = self.last_seq.max(SeqNo(recovered.next_seq.0.saturating_sub(1)));
        let damage = recovered.stopped.filter(|stopped| !stopped.is_plain_end());
        self.log_damage = damage.map(|stopped| stopped.to_string());
        let of_family = |passed: &Passed| {
            let family = self.families.get(passed.column_family);
            let name = Named(family.as_ref().map_or("", |family| &family.config.name));
            let (entries, through) = (passed.entries, passed.through);
            format!("column family {name:?}: {entries} entries up to sequence number {through}")
        };
        let told: Vec<String> = recovered.passed.iter().map(of_family).collect();
        self.log_duplicates = (!told.is_empty()).then(|| told.join("; "));
    }
}

/// Result of an opening.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) read: ReadHalf,
    /// `None` if the database is open for reading only.
    pub(crate) ownership: Option<Ownership>,
    /// Prepared, undecided transactions.
    pub(crate) prepared: Vec<Arc<Section>>,
    /// Notes about the options for LOG.
    pub(crate) notes: Vec<String>,
}

impl Opened {
    /// Returns the loaded state, its logs not replayed.
    fn of(mut loaded: Loaded, path: &Path) -> Opened {
        let notes = std::mem::take(&mut loaded.notes);
        Opened { read: ReadHalf::of(loaded, path), ownership: None, prepared: Vec::new(), notes }
    }
}

/// Opens the database in `path` for reading. `wanted` names the column families to open, the
/// default one always included; `None` opens all.
///
/// If another process changes the files while they are read, the opening is retried a bounded
/// number of times.
pub(crate) fn read_only(path: &Path, options: &Options, wanted: Option<&[&str]>) -> Result<Opened> {
    check_path(path)?;
    let env = options.environment();
    let options = &options.spelled_once(&env, path);
    let wanted = wanted.map_or(Wanted::All, Wanted::Named);
    again_if_moved(&env, path, || load_and_replay(&env, path, options, wanted))
}

/// Maximum number of attempts to read while another process changes the files.
const ATTEMPTS: usize = 10;

/// Calls `read`, and again, a bounded number of times, if it failed and the database's files have
/// changed.
fn again_if_moved<T>(env: &Env, path: &Path, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let before = Moment::of(env, path);
        match read() {
            // Compared, because an error in a directory that does not change is permanent.
            Err(e) if may_have_moved(e.kind()) && Moment::of(env, path) != before => {
                report!(debug, error = %e, "the database changed while it was read; starting over");
                last = Some(e);
            }
            done => return done,
        }
    }
    let what =
        format!("{}: the database changed during each of {ATTEMPTS} attempts to read it", path.display());
    Err(match last {
        Some(last) => Error::with_source(ErrorKind::TryAgain, format!("{what}; at last: {last}"), last),
        None => Error::new(ErrorKind::TryAgain, what),
    })
}

/// Reads the database, with all entries of its logs in memory.
fn load_and_replay(env: &Env, path: &Path, options: &Options, wanted: Wanted<'_>) -> Result<Opened> {
    let loaded = load(env, path, options, wanted, Purpose::Reading)?;
    // Without a limit, because no table may be written.
    let recovered = loaded.logs.replay(env, &loaded.families)?;
    let mut opened = Opened::of(loaded, path);
    // Their inserted entries may be in tables, and must be invisible.
    let ranges: Vec<_> = recovered.undecided.iter().filter_map(Undecided::range).collect();
    if !ranges.is_empty() {
        let pending = PendingRanges::new();
        ranges.iter().for_each(|(first, count)| drop(pending.add(first.0, u64::from(*count), 0)));
        opened.read.pending = Some(Arc::new(pending));
    }
    opened.read.replayed(recovered);
    Ok(opened)
}

fn may_have_moved(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Io | ErrorKind::TryAgain)
}

/// State of a directory that changes when another process writes to the database.
#[derive(PartialEq)]
struct Moment {
    names: Option<Vec<String>>,
    current: Option<Vec<u8>>,
    manifest_bytes: Option<u64>,
}

impl Moment {
    fn of(env: &Env, path: &Path) -> Moment {
        let fs = env.fs();
        let manifest = Directory::list(env, path)
            .and_then(|directory| Ok(directory.file(directory.current_manifest()?)));
        Moment {
            names: fs.list_dir(path).ok(),
            current: fs.read_file(&path.join(FileName::Current.to_string())).ok(),
            manifest_bytes: manifest
                .ok()
                .and_then(|path| fs.metadata(&path).ok())
                .map(|metadata| metadata.len),
        }
    }
}

/// Error of write calls on a database that is open for reading only.
#[cold]
pub(crate) fn open_for_reading() -> Error {
    Error::invalid_argument("the database is open for reading only")
}
