//! Opening a database for writing.
//!
//! In: a directory and [`Options`]. Out: [`Opened`] with its [`Writable`] half; the caller creates
//! the commit pipeline, which creates the first log.
//!
//! Order: the options are checked; CURRENT is looked up, and a missing database created if
//! requested; LOCK is taken; everything is read, like for reading; then written: entries of the
//! logs go to tables of L0, a new MANIFEST holds the resulting state, missing column families are
//! created, OPTIONS is written; finally leftovers of a crash are removed.
//!
//! Invariants:
//! - Until everything was read and validated, nothing is changed except LOCK and unreferenced
//!   tables, which are removed if the opening fails. A later error leaves the old state or the new
//!   one: one change to the MANIFEST adds all tables of all families. With little free space the
//!   leftovers of a crash are removed before that, and entries may be added log by log; see
//!   `recovery`. An error then leaves a state that a crash after a flush could leave.
//! - While logs are replayed, no family uses more memory than a memtable that takes writes may; on
//!   a full disk all together use no more than their memtables may.
//! - No hole is followed by a new log: if recovery stopped at damage, all recovered entries are in
//!   tables before the new log is used, regardless of `avoid_flush_during_recovery`, and no earlier
//!   log is needed any more. This also holds if tables had entries of the logs, because later that
//!   may no longer be detectable.

use super::cache::charged;
use super::directory::check_path;
use super::find_options::Purpose;
use super::load::{Loaded, load};
use super::options::Options;
use super::ownership::{OptionsInForce, Ownership, take_lock, write_options};
use super::recovery::{Recovering, Replayed, explain, sync_logs};
use super::wanted::{DEFAULT, Wanted};
use super::{Opened, ReadHalf, check_options, column_families, create, identity};
use crate::claims::{Claimant, Claims};
use crate::versions::{Gone, ManifestOptions, ObsoleteFiles, Start, Versions};
use karst_base::error::{Error, ErrorKind, Result, unquoted};
use karst_base::life::Life;
use karst_base::options::DbOptions;
use karst_base::pacing::WriteBufferManager;
use karst_base::sync::Mutex;
use karst_commit::wal::recovery::Recovered;
use karst_commit::wal::replay::Policy;
use karst_commit::wal::retired::RetiredLogs;
use karst_commit::wal::writer::{LogOptions, NewLog};
use karst_commit::{PhaseWrite, Section, batch_of};
use karst_format::file_name::{FileName, is_trash};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::log::RecoveryMode;
use karst_io::{Env, FileLock, block_on, report};
use karst_storage::blob;
use karst_storage::column_family::Family;
use karst_storage::table::writer::{Identity, host_id};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the database in `path` for writing. `families` names all of its column families; `None`
/// opens the existing ones.
pub(crate) fn read_write(path: &Path, options: &Options, families: Option<&[&str]>) -> Result<Opened> {
    check_path(path)?;
    let env = options.environment();
    // First, because without threads no job makes progress, and callers would wait forever.
    env.ensure_threads()?;
    // Compat: only the caller decides about a missing or existing database, never the OPTIONS file.
    let choices = options.db_options(DbOptions::default())?;
    check_options::database(&choices)?;
    options.file_checksums(&choices)?;
    let named_by_options: Vec<&str> = options.named_families().collect();
    // Compat: RocksDB opens families by descriptors, each a name with options.
    let names: &[&str] = match families {
        Some(names) => names,
        None if choices.create_missing_column_families => &named_by_options,
        None => &[],
    };
    // Before the lock, so that an opening without a database leaves no files behind.
    if let create::InDirectory::Nothing = create::find(&env, path, &choices)? {
        check_new(&choices, options, names.iter().copied().chain([DEFAULT]))?;
        // Durably, because a durable file in a directory is lost if the directory's name is.
        env.fs().create_dir_durably(path)?;
    }
    let lock = take_lock(&env, path)?;
    // Again, because another process may have created or removed it before the lock was taken.
    if let create::InDirectory::Nothing = create::find(&env, path, &choices)? {
        create::create(&env, path, &choices)?;
    }
    let wanted = match choices.create_missing_column_families {
        true => Wanted::AllAnd(names),
        false if families.is_some() => Wanted::Named(names),
        false => Wanted::All,
    };
    read_write_locked(path, options, (families, names, wanted), &choices, lock, LogRecovery::ByOptions)
}

/// Mode of log recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRecovery {
    /// Follow the database's options.
    ByOptions,
    /// Recover all readable records, including prepared transactions; no log is needed any more
    /// once the database is open.
    ForRepair,
}

/// Opens an existing, locked database. `families` names its column families like in [`read_write`];
/// `names` are created if missing, and opened.
pub(crate) fn read_write_locked(
    path: &Path,
    options: &Options,
    (families, names, wanted): (Option<&[&str]>, &[&str], Wanted<'_>),
    choices: &DbOptions,
    lock: Box<dyn FileLock>,
    recovery: LogRecovery,
) -> Result<Opened> {
    let env = options.environment();
    let options = &options.spelled_once(&env, path);
    let mut loaded = load(&env, path, options, wanted, Purpose::Writing)?;
    loaded.db_options.create_if_missing = choices.create_if_missing;
    loaded.db_options.create_missing_column_families = choices.create_missing_column_families;
    loaded.db_options.error_if_exists = choices.error_if_exists;
    loaded.db_options.best_efforts_recovery = choices.best_efforts_recovery;
    check(path, &loaded, families)?;
    let mut known: BTreeSet<&str> =
        loaded.families.iter().map(|family| family.config.name.as_str()).collect();
    let missing: Vec<&str> = names.iter().copied().filter(|name| known.insert(name)).collect();
    check_new(&loaded.db_options, options, missing.iter().copied())?;
    loaded.notes.extend(check_options::settle(&mut loaded.db_options));
    if recovery == LogRecovery::ForRepair {
        loaded.logs.mode = RecoveryMode::SkipAnyCorruptedRecords;
        loaded.logs.two_phases = true;
    }
    begin(path, options, loaded, lock, &missing, recovery)
}

/// Returns an error for invalid options of column families to create, before any is created.
fn check_new<'n>(db: &DbOptions, options: &Options, names: impl Iterator<Item = &'n str>) -> Result<()> {
    for name in names {
        column_families::new_config(db, ColumnFamilyId::DEFAULT, name, options)?;
    }
    Ok(())
}

/// Returns an error if not all column families of the database are opened.
fn check(path: &Path, loaded: &Loaded, named: Option<&[&str]>) -> Result<()> {
    let named: Option<BTreeSet<&str>> = named.map(|named| named.iter().copied().collect());
    let unnamed = |family: &&str| named.as_ref().is_some_and(|named| !named.contains(family));
    let mut missing: Vec<&str> = loaded.set.unopened.values().map(String::as_str).collect();
    let open = loaded.families.iter().map(|family| family.config.name.as_str());
    missing.extend(open.filter(|name| *name != DEFAULT).filter(unnamed));
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        return Err(Error::invalid_argument(format!(
            "Column families not opened: {}; {} is opened for writing with all its column families",
            unquoted(&missing),
            path.display()
        )));
    }
    Ok(())
}

/// Logs prepared transactions again, durably in log `number`, so that they need no earlier log.
/// Decisions in earlier logs do not apply to this copy.
fn prepare_again(
    read: &ReadHalf,
    versions: &Arc<Versions>,
    wal_path: &Path,
    number: FileNumber,
    recovered: &Recovered,
) -> Result<Vec<Arc<Section>>> {
    let options = LogOptions::of(&read.db_options.get())?;
    let NewLog { mut framing, mut file, head: mut bytes } =
        NewLog::create(read.env.fs(), wal_path, number, options)?;
    versions.add_log(number);
    let mut sections = Vec::new();
    for undecided in &recovered.undecided {
        let (numbers, range) = match (&undecided.policy, &read.pending) {
            (Policy::Prepared { first, numbers }, Some(pending)) => {
                let range = pending.add(first.0, u64::from(numbers.count()), 0);
                (Some(numbers.clone()), Some(range))
            }
            _ => (None, None),
        };
        let batch = batch_of(&undecided.ops);
        let timestamps = batch.timestamp_sizes(|family| read.families.get(family))?;
        let section = Section::new(&undecided.name, batch, numbers).with_timestamps(timestamps);
        let section = section.found(number, range);
        framing.name_timestamps(section.timestamps(), &mut bytes);
        let (record, seq, count) = PhaseWrite::again(&section, recovered.next_seq);
        let record = (record.len(), |out: &mut Vec<u8>| out.extend_from_slice(&record));
        framing.append(seq, count, record, &mut bytes).map_err(|e| {
            Error::with_source(ErrorKind::Io, format!("framing a record of log {number}: {e}"), e)
        })?;
        versions.prepared_logs().hold(number);
        sections.push(Arc::new(section));
    }
    file.write(&bytes)?;
    file.end()?;
    file.sync()?;
    Ok(sections)
}

/// Makes the database writable, after all of it was read.
fn begin(
    path: &Path,
    options: &Options,
    mut loaded: Loaded,
    lock: Box<dyn FileLock>,
    missing: &[&str],
    recovery: LogRecovery,
) -> Result<Opened> {
    let env = loaded.env.clone();
    let wal_path = match loaded.db_options.wal_dir.as_str() {
        "" => path.to_owned(),
        elsewhere => PathBuf::from(elsewhere),
    };
    if wal_path != path {
        env.fs().create_dir_durably(&wal_path)?;
    }
    let elsewhere = loaded.shared.all_places().into_iter().map(|(_, directory)| directory);
    for directory in elsewhere.clone().filter(|directory| directory != path).collect::<BTreeSet<_>>() {
        env.fs().create_dir_durably(&directory)?;
    }
    let identity = identity_of(&loaded);
    let claimant = Claimant { path, id: Some(&identity.db_id) };
    let claims = Claims::default();
    // Before logs are replayed, because the directories may belong to another database.
    claims.add(&env, claimant, elsewhere.chain([wal_path.clone()]))?;
    let set = loaded.set.clone();
    let logs = std::mem::take(&mut loaded.logs);
    let all_counts = loaded.left_out.is_empty();
    let write_prepared = options.is_write_prepared();
    let manifest = (loaded.manifest.number().unwrap_or_default(), loaded.manifest_bytes);
    let has_identity = loaded.directory.contains(FileName::Identity);
    let (all, trash) = all_files(&env, path, &wal_path, &loaded.shared.all_places())?;
    let Opened { mut read, notes, mut prepared, .. } = Opened::of(loaded, path);
    read.life = Arc::new(Life::new(true));
    let retired_logs = Arc::new(RetiredLogs::new(&read.db_options.get(), &wal_path));
    if let Some(archive) = &retired_logs.archive {
        archive.prepare(&env)?;
    }
    let locks = (lock, claims);
    let obsolete =
        ObsoleteFiles::new(read.shared.clone(), path.to_owned(), wal_path.clone(), retired_logs, locks);
    // Releases the lock before an error is returned.
    let closes = CloseOnError { env: env.clone(), obsolete: Some(obsolete.clone()) };
    let used = all.iter().filter_map(|found| found.name.number()).max().unwrap_or_default();
    let versions = Versions::new(Start {
        path: path.to_owned(),
        options: manifest_options(&read.db_options.get()),
        identity: Arc::new(identity),
        next_file: set.next_file_number.max(FileNumber(used.0 + 1)),
        set,
        families: read.families.clone(),
        obsolete,
        shared: read.shared.clone(),
        logs: all.iter().filter_map(FoundFile::log).collect(),
        manifest,
    });
    count_space(&read);
    // Invariant: smaller than the number of the first log, because decisions that go there come
    // later.
    let allow_2pc = read.db_options.get().allow_2pc || recovery == LogRecovery::ForRepair;
    read.pending = write_prepared.then(Arc::default);
    let log_of_prepared = allow_2pc.then(|| versions.new_file_number());
    let first_log = versions.new_file_number();
    let write_buffers = memtable_budget(options, &read);
    let leave_nothing = || {
        versions.obsolete().remove_at_once(true);
        versions.obsolete().remove_trash_at_once(&trash);
        remove_leftovers(&read, &versions, &all, logs.first_needed);
    };
    let recovering = Recovering {
        read: &read,
        versions: &versions,
        logs: &logs,
        write_buffers: &write_buffers,
        adapts: recovery == LogRecovery::ByOptions && all_counts,
        allow_2pc,
        write_prepared,
        remove_leftovers: &leave_nothing,
    };
    let Replayed { recovered, tables, logs: replayed, keeps } = recovering.run()?;
    versions.pass_family_ids(recovered.largest_family);
    if let Some(log) = log_of_prepared.filter(|_| !recovered.undecided.is_empty()) {
        // Synced first, because after a power failure the prepared sections must not exist in the
        // new log without the entries read before them.
        sync_logs(&env, &wal_path, &replayed)?;
        prepared = prepare_again(&read, &versions, &wal_path, log, &recovered)?;
    }
    read.replayed(recovered);
    let db_id = versions.identity().db_id.clone();
    if !has_identity && read.db_options.get().write_identity_file {
        create::write_identity(&env, path, &db_id)?;
    }
    read.db_id = Some(db_id);
    if keeps {
        sync_logs(&env, &wal_path, &replayed)?;
    }
    if !all_counts {
        keep_left_out(&read, path, &all)?;
    }
    // A family keeps the logs from before as long as what they hold is in memory alone.
    let first_log_of =
        |family: &Family| (!keeps || family.superversion().mem().is_empty()).then_some(first_log);
    tables
        .install(&read, &versions, first_log_of, read.last_seq)
        .map_err(|error| explain(&read, &versions, error))?;
    read.logs = versions.logs();
    let options_file = Arc::new(Mutex::new(read.options_file));
    let ownership =
        Ownership { versions, first_log, options_file, changing_options: Arc::default(), write_buffers };
    column_families::create(&read, &ownership, missing, options)?;
    let mut written = write_options(&read, &ownership, &OptionsInForce::default());
    remove_leftovers(&read, &ownership.versions, &all, first_log);
    if written.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
        // Why again: the room of logs and of the MANIFEST from before may be needed for it.
        block_on(&env, ownership.versions.obsolete().removed());
        written = write_options(&read, &ownership, &OptionsInForce::default());
    }
    written.map_err(|error| explain(&read, &ownership.versions, error))?;
    ownership.versions.obsolete().remove_at_once(false);
    ownership.versions.obsolete().remove_trash(trash);
    closes.disarm();
    Ok(Opened { read, ownership: Some(ownership), prepared, notes })
}

/// Returns the budget of the memtables of a database that is being opened.
fn memtable_budget(options: &Options, read: &ReadHalf) -> WriteBufferManager {
    let limit_bytes = read.db_options.get().db_write_buffer_size;
    options.write_buffers().unwrap_or_else(|| match (options.has_one_memory_budget(), limit_bytes) {
        (true, 0) => WriteBufferManager::part_of_cache(charged(&read.shared.cache)),
        (true, limit) => WriteBufferManager::with_cache(limit, charged(&read.shared.cache), true),
        (false, limit) => WriteBufferManager::new(limit, false),
    })
}

/// Releases the lock unless the opening succeeded.
struct CloseOnError {
    env: Env,
    obsolete: Option<Arc<ObsoleteFiles>>,
}

impl CloseOnError {
    fn disarm(mut self) {
        self.obsolete = None;
    }
}

impl Drop for CloseOnError {
    fn drop(&mut self) {
        if let Some(obsolete) = self.obsolete.take() {
            block_on(&self.env, obsolete.close());
        }
    }
}

pub(crate) fn manifest_options(options: &DbOptions) -> ManifestOptions {
    ManifestOptions {
        max_file_bytes: options.max_manifest_file_size,
        growth_percent: u64::try_from(options.max_manifest_space_amp_pct).unwrap_or(0),
        reserve_bytes: if options.allow_fallocate { options.manifest_preallocation_size as u64 } else { 0 },
        fsync: options.use_fsync,
        writes_db_id: options.write_dbid_to_manifest,
        tracks_wals: options.track_and_verify_wals_in_manifest,
        allow_ingest_behind: options.allow_ingest_behind,
        verifies_on_close: options.verify_manifest_content_on_close,
    }
}

fn identity_of(loaded: &Loaded) -> Identity {
    let env = &loaded.env;
    Identity {
        db_id: loaded.db_id.clone().unwrap_or_else(|| identity::new_db_id(env)),
        session_id: identity::new_session_id(env),
        host_id: host_id(env, &loaded.db_options),
    }
}

/// A file of the database, and its path.
struct FoundFile {
    name: FileName,
    in_directory: Place,
    path: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Own,
    Wal,
    /// A directory of tables. It may hold blob files if it is a first one.
    Tables {
        first: bool,
    },
}

impl FoundFile {
    /// Returns true if the file may belong to a tree.
    fn is_stored(&self) -> bool {
        match (self.name, self.in_directory) {
            (FileName::Table(_), Place::Tables { .. }) => true,
            (FileName::Blob(_), Place::Tables { first }) => first,
            _ => false,
        }
    }

    fn log(&self) -> Option<FileNumber> {
        match self.name {
            FileName::Wal(number) if self.in_directory == Place::Wal => Some(number),
            _ => None,
        }
    }
}

/// Returns the files of the database in all its directories, and those that were being removed.
fn all_files(
    env: &Env,
    path: &Path,
    wal_path: &Path,
    table_paths: &[(u8, PathBuf)],
) -> Result<(Vec<FoundFile>, Vec<PathBuf>)> {
    let (mut found, mut trash) = (Vec::new(), BTreeSet::new());
    let mut list = |directory: &Path, in_directory: Place| -> Result<()> {
        for name in env.fs().list_dir(directory)? {
            if let Some(name) = FileName::parse(&name) {
                found.push(FoundFile { name, in_directory, path: directory.join(name.to_string()) });
            } else if is_trash(&name) {
                trash.insert(directory.join(name));
            }
        }
        Ok(())
    };
    list(path, Place::Own)?;
    list(wal_path, Place::Wal)?;
    // Each directory once, because a copy has one directory for all path ids.
    let mut listed = BTreeSet::new();
    for (_, directory) in table_paths {
        if listed.insert(directory) {
            let first = table_paths.iter().any(|(path_id, of)| *path_id == 0 && of == directory);
            list(directory, Place::Tables { first })?;
        }
    }
    Ok((found, trash.into_iter().collect()))
}

/// Creates hard links to the files that best-efforts recovery leaves out, in a directory `lost`
/// beside each: tables, blob files and logs that are in no tree now, and are removed once the
/// database is open.
///
/// Hard links, so that the database is unchanged if the opening fails.
fn keep_left_out(read: &ReadHalf, path: &Path, all: &[FoundFile]) -> Result<()> {
    let fs = read.env.fs();
    let live = live_files(read);
    for found in all {
        let left_out = found.is_stored() && !live.contains(&found.path);
        if !left_out && found.log().is_none() {
            continue;
        }
        let Some(directory) = found.path.parent() else { continue };
        let lost = directory.join("lost");
        fs.create_dir_durably(&lost)?;
        let name = found.name.to_string();
        let mut to = lost.join(&name);
        for again in 1.. {
            if !fs.exists(&to)? {
                break;
            }
            to = lost.join(format!("{name}.{again}"));
        }
        fs.link(&found.path, &to)?;
        fs.sync_dir(&lost)?;
    }
    report!(warn, path = %path.display(), "files that best_efforts_recovery left out are in `lost`");
    Ok(())
}

/// Returns the paths of the files of all trees.
fn live_files(read: &ReadHalf) -> BTreeSet<PathBuf> {
    let mut live = BTreeSet::new();
    for family in read.families.all().iter() {
        let (version, shared) = (family.superversion().version().clone(), &family.tables.shared);
        let tables = version.all_files();
        live.extend(tables.filter_map(|(_, file)| shared.table_path(file.number, file.path_id).ok()));
        live.extend(version.blob_files().keys().map(|number| shared.blob_path(*number)));
    }
    live
}

/// Adds the files of all trees to the space manager, if there is one.
fn count_space(read: &ReadHalf) {
    let Some(space) = &read.shared.space else { return };
    for family in read.families.all().iter() {
        let (version, shared) = (family.superversion().version().clone(), &family.tables.shared);
        for (_, file) in version.all_files() {
            if let Ok(path) = shared.table_path(file.number, file.path_id) {
                space.add(path, file.size_bytes);
            }
        }
        for (number, described) in version.blob_files() {
            space.add(shared.blob_path(*number), blob::file_bytes(described));
        }
    }
}

/// Removes leftovers of a crash: tables and blob files that are in no tree, obsolete logs,
/// temporary files, old MANIFESTs. Files with other names stay.
///
/// `before` are the files that existed before this opening wrote any. Logs from `first_needed` on
/// stay, because the replay may not have read them yet.
fn remove_leftovers(read: &ReadHalf, versions: &Versions, before: &[FoundFile], first_needed: FileNumber) {
    let live = live_files(read);
    let obsolete_below = versions.min_log_number().min(first_needed);
    let gone = before.iter().filter_map(|found| match (found.name, found.in_directory) {
        (FileName::Table(_) | FileName::Blob(_), Place::Tables { .. }) => {
            (found.is_stored() && !live.contains(&found.path)).then(|| Gone::Left(found.path.clone()))
        }
        (FileName::Wal(number), Place::Wal) => (number < obsolete_below).then_some(Gone::Wal(number)),
        (name @ FileName::Manifest(_), Place::Own) => {
            (name != versions.manifest().0).then_some(Gone::Named(name))
        }
        (name @ (FileName::Temp(_) | FileName::TempOptions(_)), Place::Own) => Some(Gone::Named(name)),
        _ => None,
    });
    versions.obsolete().remove(gone.collect::<Vec<_>>());
}
