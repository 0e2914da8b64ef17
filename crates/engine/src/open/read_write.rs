//! Opening a database for writing.
//!
//! In: a directory and [`Options`]. Out: [`Opened`] with its [`Writable`] half; the caller makes
//! the commit pipeline, which creates the first log.
//!
//! Order: options checked; CURRENT looked for, the database made if it is missing and that is
//! asked; LOCK; everything read, as for reading; then written: what the logs held goes to tables of
//! L0, a new MANIFEST with the state behind that, missing column families, OPTIONS; and what a
//! crash left behind is removed.
//!
//! Invariants:
//! - Until everything was read and understood, nothing is changed but LOCK, and tables that nothing
//!   refers to; these are removed if the opening fails. What fails later leaves the old state or
//!   the new one: one change to the MANIFEST brings all tables of all families.
//! - While logs are replayed, no family has more in memory than a memtable that takes writes may
//!   have; on a full disk all together no more than their memtables may have.
//! - No hole is followed by a new log: where recovery stopped at damage, all that was recovered is
//!   in tables before the new log is used, whatever `avoid_flush_during_recovery` says, and no log
//!   from before is needed any more. The same holds where tables had entries of the logs, because
//!   later nothing may show that they do.

use super::cache::charged;
use super::directory::check_path;
use super::find_options::Purpose;
use super::load::{Loaded, Logs, load};
use super::options::Options;
use super::ownership::{OptionsInForce, Ownership, take_lock, write_options};
use super::wanted::{DEFAULT, Wanted};
use super::{Opened, ReadHalf, check_options, column_families, create, identity};
use crate::claims::{Claimant, Claims};
use crate::compact::read_back;
use crate::versions::{Change, FileGuard, Gone, JobFiles, ManifestOptions, ObsoleteFiles, Start, Versions};
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
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::log::RecoveryMode;
use karst_format::version_edit::{Temperature, VersionEdit};
use karst_io::{Env, FileLock, block_on, report};
use karst_storage::blob;
use karst_storage::column_family::Family;
use karst_storage::memtable::{MemTable, Seal};
use karst_storage::table::writer::{
    Identity, NeverCut, Outputs, RunFiles, RunWriter, TablePlace, host_id, writer_options,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the database in `path` for writing. `families` names its column families, all of them;
/// `None` opens what there is.
pub(crate) fn read_write(path: &Path, options: &Options, families: Option<&[&str]>) -> Result<Opened> {
    check_path(path)?;
    let env = options.environment();
    // Why first: without them nothing that is started goes on, and whoever waits for it waits for
    // ever.
    env.ensure_threads()?;
    // Compat: what is to be done with a missing or existing database is the caller's choice, never
    // the OPTIONS file's.
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
    // Why before the lock: where there is nothing to open, nothing is left behind.
    if let create::InDirectory::Nothing = create::find(&env, path, &choices)? {
        check_new(&choices, options, names.iter().copied().chain([DEFAULT]))?;
        // Why durably: what is durable in a directory is lost with its name.
        env.fs().create_dir_durably(path)?;
    }
    let lock = take_lock(&env, path)?;
    // Why again: somebody else may have made it, or removed it, before the lock was ours.
    if let create::InDirectory::Nothing = create::find(&env, path, &choices)? {
        create::create(&env, path, &choices)?;
    }
    let wanted = match choices.create_missing_column_families {
        true => Wanted::AllAnd(names),
        false if families.is_some() => Wanted::Named(names),
        false => Wanted::All,
    };
    read_write_locked(path, options, (families, names, wanted), &choices, lock, How::AsEver)
}

/// How the logs of a database are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// As its options say.
    AsEver,
    /// All that can be read of them, prepared transactions as well; none is needed any more when
    /// the database was opened.
    ForRepair,
}

/// The same of a database that is there and locked. `families` names its column families as for
/// [`read_write`]; with them come those that are made where they are missing, and which are opened.
pub(crate) fn read_write_locked(
    path: &Path,
    options: &Options,
    (families, names, wanted): (Option<&[&str]>, &[&str], Wanted<'_>),
    choices: &DbOptions,
    lock: Box<dyn FileLock>,
    how: How,
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
    if how == How::ForRepair {
        loaded.logs.mode = RecoveryMode::SkipAnyCorruptedRecords;
        loaded.logs.two_phases = true;
    }
    begin(path, options, loaded, lock, &missing, how)
}

/// Refuses options of column families that are to be made. Before anything is.
fn check_new<'n>(db: &DbOptions, options: &Options, names: impl Iterator<Item = &'n str>) -> Result<()> {
    for name in names {
        column_families::new_config(db, ColumnFamilyId::DEFAULT, name, options)?;
    }
    Ok(())
}

/// Refuses to write to a database of which not all column families are open.
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

/// Refuses prepared transactions that this opening has no use for.
fn check_decided(path: &Path, recovered: &Recovered, allow_2pc: bool, write_prepared: bool) -> Result<()> {
    let refused = |what: &str| Err(Error::not_supported(format!("{}: {what}", path.display())));
    let undecided = &recovered.undecided;
    if !undecided.is_empty() && !allow_2pc {
        let count = undecided.len();
        return refused(&format!(
            "{count} transactions are prepared and neither committed nor rolled back; open the database as a TransactionDb to decide them"
        ));
    }
    for undecided in undecided {
        match (&undecided.policy, write_prepared) {
            (Policy::Committed, false) | (Policy::Prepared { .. }, true) => {}
            (Policy::Committed, true) => {
                return refused(
                    "transactions were prepared under the write policy WriteCommitted; decide them under that first",
                );
            }
            (Policy::Prepared { .. }, false) => {
                return refused(
                    "transactions were prepared under the write policy WritePrepared; decide them under that first",
                );
            }
            (Policy::Unprepared, _) => {
                return refused(
                    "transactions were prepared under the write policy WriteUnprepared; decide them with RocksDB's TransactionDB",
                );
            }
        }
    }
    Ok(())
}

/// Logs prepared transactions anew, in log `number`, durably, so that no log from before is needed
/// for them. Whatever a log from before says of them counts no more behind this one.
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

/// Makes the database writable, now that all of it was read.
fn begin(
    path: &Path,
    options: &Options,
    mut loaded: Loaded,
    lock: Box<dyn FileLock>,
    missing: &[&str],
    how: How,
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
    // Before logs are replayed, because the directories can be another database's.
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
    // Why: when an error is told, the lock has been given back.
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
    // Invariant: below the first log, as decisions that go there come later.
    let allow_2pc = read.db_options.get().allow_2pc || how == How::ForRepair;
    read.pending = write_prepared.then(Arc::default);
    let log_of_prepared = allow_2pc.then(|| versions.new_file_number());
    let first_log = versions.new_file_number();
    let write_buffers = memtable_budget(options, &read);
    let room = Room::look(&read, &logs)?;
    let cramped = how == How::AsEver && room.is_cramped(&read);
    let replayed = replay(&read, &versions, &logs, &write_buffers, cramped);
    let (recovered, tables) = replayed.map_err(|error| room.explain(error))?;
    versions.pass_family_ids(recovered.largest_family);
    check_decided(path, &recovered, allow_2pc, write_prepared)?;
    if let Some(log) = log_of_prepared.filter(|_| !recovered.undecided.is_empty()) {
        // Why: should the power fail now, what is logged anew must not be there without what was
        // read before it.
        sync_logs(&env, &wal_path, &logs.numbers)?;
        prepared = prepare_again(&read, &versions, &wal_path, log, &recovered)?;
    }
    let sound =
        all_counts && recovered.stopped.is_none() && recovered.passed.is_empty() && !recovered.skipped;
    read.replayed(recovered);
    let db_id = versions.identity().db_id.clone();
    if !has_identity && read.db_options.get().write_identity_file {
        create::write_identity(&env, path, &db_id)?;
    }
    read.db_id = Some(db_id);
    // Compat: what was written in part is written as a whole, as RocksDB has it; the logs cannot be
    // needed in part.
    // Why not with anything inserted that is undecided: it was logged anew, and a family's log
    // number has to say that it has it from before.
    let undecided = read.pending.as_ref().is_some_and(|pending| !pending.now().is_empty());
    let avoids = read.db_options.get().avoid_flush_during_recovery || cramped;
    // Why not after a repair: its options may not replay the logs in the same way again.
    let keeps = avoids && how == How::AsEver && sound && tables.is_empty() && !undecided;
    if keeps {
        sync_logs(&env, &wal_path, &logs.numbers)?;
    }
    if !all_counts {
        keep_left_out(&read, path, &all)?;
    }
    install_recovered(&read, &versions, first_log, tables, keeps).map_err(|error| room.explain(error))?;
    read.logs = versions.logs();
    let options_file = Arc::new(Mutex::new(read.options_file));
    let ownership =
        Ownership { versions, first_log, options_file, changing_options: Arc::default(), write_buffers };
    column_families::create(&read, &ownership, missing, options)?;
    write_options(&read, &ownership, &OptionsInForce::default())?;
    remove_leftovers(&read, &ownership.versions, &all);
    ownership.versions.obsolete().remove_trash(trash);
    closes.disarm();
    Ok(Opened { read, ownership: Some(ownership), prepared, notes })
}

/// The room for tables of what the logs hold, and how much those may take.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Bytes that are free where tables go, on the file system that has fewest; `None` if that
    /// cannot be told.
    free: Option<u64>,
    logs: u64,
}

impl Room {
    fn look(read: &ReadHalf, logs: &Logs) -> Result<Room> {
        let families = read.families.all();
        let first: BTreeSet<_> = families.iter().map(|family| &family.tables.shared.directories[0]).collect();
        let mut free = None;
        for directory in first {
            free = read.env.fs().free_bytes(directory)?.into_iter().chain(free).min();
        }
        let logs = if free.is_some() { logs.bytes(&read.env)? } else { 0 };
        Ok(Room { free, logs })
    }

    /// Whether there is no room for tables of what the logs hold, but in memory: then it stays in
    /// the logs, and the database opens on a full disk.
    fn is_cramped(self, read: &ReadHalf) -> bool {
        let memtables = |family: &Arc<Family>| {
            let options = &family.config.options;
            options.write_buffer_size as u64 * u64::try_from(options.max_write_buffer_number).unwrap_or(1)
        };
        let memory = read.families.all().iter().map(memtables).fold(0, u64::saturating_add);
        self.free.is_some_and(|free| free < self.logs && self.logs <= memory)
    }

    /// Says with an error for want of room how much is wanted.
    fn explain(self, error: Error) -> Error {
        match self.free {
            Some(free) if error.kind() == ErrorKind::NoSpace => {
                let lacking = self.logs.saturating_sub(free);
                error.in_context(format!(
                    "opening makes tables of {} bytes of logs, and {free} bytes are free: it lacks {lacking} bytes, less what compression saves, and some for the MANIFEST",
                    self.logs
                ))
            }
            _ => error,
        }
    }
}

/// The budget of the memtables of a database that is being opened.
fn memtable_budget(options: &Options, read: &ReadHalf) -> WriteBufferManager {
    let limit_bytes = read.db_options.get().db_write_buffer_size;
    options.write_buffers().unwrap_or_else(|| match (options.has_one_memory_budget(), limit_bytes) {
        (true, 0) => WriteBufferManager::part_of_cache(charged(&read.shared.cache)),
        (true, limit) => WriteBufferManager::with_cache(limit, charged(&read.shared.cache), true),
        (false, limit) => WriteBufferManager::new(limit, false),
    })
}

/// Replays the logs into the families' memtables; full ones become tables, unless the disk is
/// `cramped`.
fn replay(
    read: &ReadHalf,
    versions: &Arc<Versions>,
    logs: &Logs,
    write_buffers: &WriteBufferManager,
    cramped: bool,
) -> Result<(Recovered, RecoveredTables)> {
    let mut tables = RecoveredTables::default();
    let families = read.families.all();
    let most_bytes =
        |family: &Family| if cramped { usize::MAX } else { family.config.options.write_buffer_size };
    let enforces = !cramped && read.db_options.get().enforce_write_buffer_manager_during_recovery;
    let budget = Some(write_buffers).filter(|budget| enforces && budget.limit_bytes() > 0).cloned();
    let recovered = logs.replay(&read.env, &families, most_bytes, budget, &mut |target| {
        let family = read.families.get(target.cf).expect("targets are the families");
        block_on(&read.env, tables.write(read, versions, &family, &target.memtable))?;
        target.memtable = family.new_memtable();
        family.replace_memtable(target.memtable.clone());
        Ok(())
    })?;
    Ok((recovered, tables))
}

/// Gives the lock back unless the database was opened.
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

/// Makes durable what was replayed.
///
/// Why: whoever wrote these logs may not have synced them. A later write that is synced, in a log
/// of its own, would survive a loss of power that takes their ends away, and leave a hole in the
/// history.
fn sync_logs(env: &Env, wal_path: &Path, logs: &[FileNumber]) -> Result<()> {
    for number in logs {
        env.fs().append(&wal_path.join(FileName::Wal(*number).to_string()))?.sync()?;
    }
    Ok(env.fs().sync_dir(wal_path)?)
}

/// Tables made of what the logs held, by family; nothing refers to them yet.
#[derive(Default)]
struct RecoveredTables {
    edits: BTreeMap<ColumnFamilyId, VersionEdit>,
    files: Vec<FileGuard>,
}

impl RecoveredTables {
    fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Writes a memtable's entries.
    async fn write(
        &mut self,
        read: &ReadHalf,
        versions: &Arc<Versions>,
        family: &Arc<Family>,
        memtable: &MemTable,
    ) -> Result<()> {
        let files = versions.job_files(0);
        let written = write_level0(read, versions, family, memtable, &files).await?;
        self.files.append(&mut files.take());
        let column_family = family.id();
        let new = || VersionEdit { column_family, ..VersionEdit::default() };
        let edit = self.edits.entry(column_family).or_insert_with(new);
        edit.new_files.extend(written.tables.into_iter().map(|table| (Level(0), table.file)));
        edit.blob_file_additions.extend(written.blob_files);
        Ok(())
    }
}

/// Writes what of the logs is still in memory to tables, unless it is kept there and in them, and a
/// new MANIFEST behind that.
fn install_recovered(
    read: &ReadHalf,
    versions: &Arc<Versions>,
    first_log: FileNumber,
    mut tables: RecoveredTables,
    keeps: bool,
) -> Result<()> {
    let mut change = Change::default();
    for family in read.families.all().iter() {
        let mem = family.superversion().mem().clone();
        if !mem.is_empty() {
            if keeps {
                continue;
            }
            block_on(&read.env, tables.write(read, versions, family, &mem))?;
            let seal = Seal { largest_seq: read.last_seq, next_log: first_log };
            family.seal(seal, family.new_memtable());
            change.flushed.push((family.id(), vec![mem]));
        }
        let mut edit = tables.edits.remove(&family.id()).unwrap_or_default();
        edit.column_family = family.id();
        edit.log_number = Some(first_log);
        change.edits.push(edit);
    }
    change.files = tables.files;
    if let Some(first) = change.edits.first_mut() {
        first.last_sequence = Some(read.last_seq);
    }
    block_on(&read.env, versions.install(change))
}

/// Writes all of a memtable to a table of L0.
///
/// Why all, hidden entries too: there are few of them after a crash, and the first compaction drops
/// them.
async fn write_level0(
    read: &ReadHalf,
    versions: &Arc<Versions>,
    family: &Arc<Family>,
    mem: &MemTable,
    files: &Arc<JobFiles>,
) -> Result<RunFiles> {
    let now_s = read.env.unix_time().as_secs();
    let directory = &family.tables.shared.directories[0];
    let outputs = Outputs {
        env: read.env.clone(),
        config: family.config.clone(),
        identity: versions.identity().clone(),
        new_files: files.clone(),
        table_directory: directory.clone(),
        path_id: 0,
        temperature: Temperature::Unknown,
        blob_directory: directory.clone(),
        place: TablePlace::flush(),
        epoch: versions.new_epoch(family.id()),
        oldest_ancestor_time_s: now_s,
        oldest_key_time_s: now_s,
        newest_key_time_s: now_s,
        throttle: None,
        writing: writer_options(&read.db_options.get()),
        // Compat: recovery is no flush.
        warming: None,
        blob_warming: None,
        memory: Some(read.shared.clone()),
        file_checksums: read.shared.file_checksums.clone(),
        creations: None,
        space: None,
        stats: read.statistics.clone(),
    };
    mem.check_tombstones()?;
    let mut writer = RunWriter::new(outputs, NeverCut, mem.range_tombstones(), (None, None))?;
    let mut at = mem.first();
    while let Some(position) = at {
        mem.check(position)?;
        writer.add(mem.key(position), mem.value(mem.value_at(position)))?;
        if writer.needs_room() {
            writer.make_room().await?;
        }
        at = mem.next(position);
    }
    let files = writer.finish().await?.0;
    read_back::check(&family.tables, Level(0), &files.tables).await?;
    Ok(files)
}

/// A file of the database, and where it is.
struct FoundFile {
    name: FileName,
    in_directory: Place,
    path: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Own,
    Wal,
    /// A directory of tables. There are blob files in it if it is a first one.
    Tables {
        first: bool,
    },
}

impl FoundFile {
    /// Whether it may be of a tree.
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

/// The files of the database in all its directories; and what was on its way out of them.
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
    // Why each once: a copy has one directory for all path ids.
    let mut listed = BTreeSet::new();
    for (_, directory) in table_paths {
        if listed.insert(directory) {
            let first = table_paths.iter().any(|(path_id, of)| *path_id == 0 && of == directory);
            list(directory, Place::Tables { first })?;
        }
    }
    Ok((found, trash.into_iter().collect()))
}

/// Gives what best-efforts recovery leaves out a second name, in `lost` beside where it is: tables,
/// blob files and logs that are in no tree now, and leave the database when it was opened.
///
/// Why a second name: if the opening fails, the database is what it was.
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
    report!(warn, path = %path.display(), "what best_efforts_recovery leaves out is in `lost`");
    Ok(())
}

/// The files of all trees, where they are.
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

/// Has the manager of files, if there is one, count those of all trees.
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

/// Removes what a crash left: tables and blob files that no tree has, logs that nobody needs,
/// temporary files, old MANIFESTs. Other names stay.
///
/// `before` are the files that were there before this opening wrote any.
fn remove_leftovers(read: &ReadHalf, versions: &Versions, before: &[FoundFile]) {
    let live = live_files(read);
    let gone = before.iter().filter_map(|found| match (found.name, found.in_directory) {
        (FileName::Table(_) | FileName::Blob(_), Place::Tables { .. }) => {
            (found.is_stored() && !live.contains(&found.path)).then(|| Gone::Left(found.path.clone()))
        }
        (FileName::Wal(number), Place::Wal) => {
            (number < versions.min_log_number()).then_some(Gone::Wal(number))
        }
        (name @ FileName::Manifest(_), Place::Own) => {
            (name != versions.manifest().0).then_some(Gone::Named(name))
        }
        (name @ (FileName::Temp(_) | FileName::TempOptions(_)), Place::Own) => Some(Gone::Named(name)),
        _ => None,
    });
    versions.obsolete().remove(gone.collect::<Vec<_>>());
}
