//! The live state of a database open for writing: file numbers, column families, their trees, and
//! the MANIFEST that records every change.
//!
//! In: [`Change`]s of flushes, compactions, and the creation and drop of column families. Out: each
//! change durable in the MANIFEST and then published to its [`Family`]; obsolete files removed.
//!
//! Order of an install: stage (the whole group, in memory) - sync the directories of new files -
//! append to the MANIFEST and sync - publish - retire files that left the trees - notify callers.
//! Changes queued while the MANIFEST is written form the next group.
//!
//! Invariants:
//! - Published state is durable. A failed change has changed nothing in memory; the next install
//!   begins a new MANIFEST. If the failed edit may be on storage, no file is removed until CURRENT
//!   names that MANIFEST. It cannot be on storage if the failure came before the edit was appended,
//!   or before CURRENT named the MANIFEST that has it.
//! - Only the one running install changes trees; it works on a copy, so the state's lock is not
//!   held while anything is built or written.
//!
//! Lock: `state`, then a family's exchange. Never held while waiting or writing.
//! The install is a job of its own and not the first caller's future, because a future may never be
//! polled again, and other callers wait for the install.

mod change;
mod manifest;
mod obsolete;
mod staged;
#[cfg(test)]
mod tests;

pub(crate) use change::{Change, Installed};
pub(crate) use manifest::{write_current, write_synced};
pub(crate) use obsolete::{FileGuard, Gone, Hold, JobFiles, ObsoleteFiles};

use change::Request;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::health::BackgroundErrorReason;
use karst_base::stats::{HistogramKind, Ticker};
use karst_base::sync::ArcSwap;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicU64, Ordering};
use karst_commit::wal::prepared::PreparedLogs;
use karst_format::Corruption;
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::LogReader;
use karst_format::version_edit::VersionEdit;
use karst_io::{Env, report};
use karst_lsm::{Reaper, StoredId, StoredKind, TreeOptions, Version, VersionSet};
use karst_storage::blob;
use karst_storage::column_family::{Families, Family};
use karst_storage::memtable::MemTable;
use karst_storage::open_files::Shared;
use karst_storage::table::writer::Identity;
use manifest::{ManifestFile, NotWritten, Writing};
pub(crate) use staged::left;
use staged::{Described, FamilyState, ManifestState, Staged};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

/// Callback for a failed MANIFEST write, or a flush that has reached the space limit.
pub(crate) type OnFailure = Box<dyn Fn(&Error, BackgroundErrorReason) + Send + Sync>;

/// Options of the MANIFEST.
#[derive(Clone, Debug)]
pub(crate) struct ManifestOptions {
    /// Size in bytes above which a new MANIFEST is begun (`max_manifest_file_size`).
    pub(crate) max_file_bytes: u64,
    /// Percentage by which it may outgrow its initial snapshot, regardless of that one's size
    /// (`max_manifest_space_amp_pct`).
    pub(crate) growth_percent: u64,
    /// Bytes of space to reserve at a time (`manifest_preallocation_size`, `allow_fallocate`); 0
    /// for no reservation.
    pub(crate) reserve_bytes: u64,
    /// Syncs with `fsync` (`use_fsync`).
    pub(crate) fsync: bool,
    /// Records the database's id (`write_dbid_to_manifest`).
    pub(crate) writes_db_id: bool,
    /// Records logs and their synced sizes (`track_and_verify_wals_in_manifest`).
    pub(crate) tracks_wals: bool,
    /// The database's `allow_ingest_behind`.
    pub(crate) allow_ingest_behind: bool,
    /// Reads the MANIFEST back when the database is closed (`verify_manifest_content_on_close`).
    pub(crate) verifies_on_close: bool,
}

/// The live state of a database open for writing.
pub(crate) struct Versions {
    path: PathBuf,
    options: ArcSwap<ManifestOptions>,
    identity: Arc<Identity>,
    families: Arc<Families>,
    obsolete: Arc<ObsoleteFiles>,
    shared: Arc<Shared>,
    next_file: AtomicU64,
    newest_family: Mutex<ColumnFamilyId>,
    on_failure: Mutex<Option<OnFailure>>,
    state: Mutex<State>,
    /// Logs with sections of prepared transactions.
    prepared_logs: Arc<PreparedLogs>,
}

struct State {
    manifest: ManifestState,
    next_epochs: BTreeMap<ColumnFamilyId, u64>,
    /// Logs in the directory that are not known to be obsolete.
    logs: BTreeSet<FileNumber>,
    queue: VecDeque<Request>,
    installing: bool,
    closed: bool,
    /// Calls of `close` that wait for the end of installing; empty until the state is closed.
    closing: Vec<Request>,
    /// The open MANIFEST; `None` before the first install, after a failure, and while the running
    /// install owns it.
    file: Option<ManifestFile>,
    /// The MANIFEST that CURRENT names and its size in bytes, as last known.
    named: (FileNumber, u64),
    /// Number of changes with ingested files.
    ingestions: u64,
}

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The database as recorded in its MANIFEST at one moment.
#[derive(Debug)]
pub(crate) struct Moment {
    /// The MANIFEST and the number of its bytes that record this state.
    pub(crate) manifest: (FileNumber, u64),
    /// All families with their trees.
    pub(crate) trees: Vec<(Arc<Family>, Arc<Version>)>,
    /// Logs with entries that are not in the trees.
    pub(crate) logs: BTreeSet<FileNumber>,
    /// Number of changes with ingested files so far.
    ingestions: u64,
}

impl Moment {
    /// Returns true if logs examined between this moment and `later` complete its trees: they have
    /// no entry of a family that it lacks, and none written behind files ingested in between.
    pub(crate) fn goes_with_logs(&self, later: &Moment) -> bool {
        self.ingestions == later.ingestions && self.has_families_of(later)
    }

    /// Returns true if it has all families of `other`.
    fn has_families_of(&self, other: &Moment) -> bool {
        let has = |(family, _): &(Arc<Family>, _)| self.trees.iter().any(|(own, _)| Arc::ptr_eq(own, family));
        other.trees.iter().all(has)
    }
}

/// State from which [`Versions`] begin.
pub(crate) struct Start {
    pub(crate) path: PathBuf,
    pub(crate) options: ManifestOptions,
    pub(crate) identity: Arc<Identity>,
    /// State replayed from the MANIFEST; every family is open.
    pub(crate) set: VersionSet,
    pub(crate) families: Arc<Families>,
    pub(crate) obsolete: Arc<ObsoleteFiles>,
    pub(crate) shared: Arc<Shared>,
    /// A file number above all in the directory.
    pub(crate) next_file: FileNumber,
    /// The logs in the directory.
    pub(crate) logs: BTreeSet<FileNumber>,
    /// The MANIFEST that was replayed, and its size in bytes.
    pub(crate) manifest: (FileNumber, u64),
}

impl Versions {
    /// Continues from the replayed state. The first install begins a new MANIFEST.
    pub(crate) fn new(start: Start) -> Arc<Versions> {
        let Start { path, options, identity, set, families, obsolete, shared, .. } = start;
        let allow_ingest_behind = options.allow_ingest_behind;
        let state_of = |state: &karst_lsm::ColumnFamilyState| {
            let family = families.get(state.id).expect("every family is open");
            FamilyState {
                tree: tree_options(&family, allow_ingest_behind),
                family,
                log_number: state.log_number,
                version: state.version.clone(),
                full_history_ts_low: state.full_history_ts_low.clone(),
            }
        };
        let states = set.column_families.values();
        let manifest = ManifestState {
            families: states.clone().map(|state| (state.id, state_of(state))).collect(),
            last_sequence: set.last_sequence,
            max_family: set.max_column_family,
            min_log: set.min_log_number(),
            wals: if options.tracks_wals { set.wals.clone() } else { BTreeMap::new() },
        };
        let state = State {
            manifest,
            next_epochs: states.map(|state| (state.id, state.next_epoch_number)).collect(),
            logs: start.logs,
            queue: VecDeque::new(),
            installing: false,
            closed: false,
            closing: Vec::new(),
            file: None,
            named: start.manifest,
            ingestions: 0,
        };
        Arc::new(Versions {
            next_file: AtomicU64::new(start.next_file.0),
            newest_family: Mutex::new(set.max_column_family),
            on_failure: Mutex::new(None),
            state: Mutex::new(state),
            path,
            options: ArcSwap::from_pointee(options),
            identity,
            families,
            obsolete,
            shared,
            prepared_logs: Arc::default(),
        })
    }

    /// Logs with sections of prepared transactions.
    pub(crate) fn prepared_logs(&self) -> &Arc<PreparedLogs> {
        &self.prepared_logs
    }

    /// Returns the oldest log that prepared transactions need: those undecided, or committed and in
    /// a memtable not in `flushed`.
    fn log_of_prepared(&self, flushed: &[Arc<MemTable>]) -> Option<FileNumber> {
        // Invariant: undecided ones are read first; see `PreparedLogs`.
        let undecided = self.prepared_logs.oldest();
        let families = self.families.all();
        let in_memory = families.iter().filter_map(|family| {
            let superversion = family.superversion();
            let stays = |mem: &&Arc<MemTable>| !flushed.iter().any(|gone| Arc::ptr_eq(gone, mem));
            superversion.memtables().filter(stays).filter_map(|mem| mem.needed_log()).min()
        });
        in_memory.chain(undecided).min()
    }

    /// Changes the options of the MANIFEST, from the next write on.
    pub(crate) fn change_options(&self, change: impl Fn(&mut ManifestOptions)) {
        self.options.rcu(|options| {
            let mut options = ManifestOptions::clone(options);
            change(&mut options);
            options
        });
    }

    /// The environment.
    pub(crate) fn env(&self) -> &Env {
        &self.shared.env
    }

    /// Sets the hook for failed MANIFEST writes, and for flushes with which files reach the space
    /// limit. It is called on the thread that installs.
    pub(crate) fn on_failure(&self, hook: OnFailure) {
        *self.on_failure.lock() = Some(hook);
    }

    /// Returns an unused file number.
    pub(crate) fn new_file_number(&self) -> FileNumber {
        // Ordering: a number only; no other data is published with it.
        FileNumber(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a guard with a number for a table to be written into directory `path_id`; the guard
    /// removes the file unless it is installed.
    pub(crate) fn new_table(&self, path_id: u8) -> FileGuard {
        let id = StoredId { kind: StoredKind::Table, number: self.new_file_number(), path_id };
        FileGuard::new(id, self.obsolete.clone())
    }

    /// Returns a guard with a number for a blob file, like [`new_table`](Self::new_table).
    pub(crate) fn new_blob_file(&self) -> FileGuard {
        let id = StoredId { kind: StoredKind::Blob, number: self.new_file_number(), path_id: 0 };
        FileGuard::new(id, self.obsolete.clone())
    }

    /// Returns the numbers and guards for a job that writes tables into directory `path_id`.
    pub(crate) fn job_files(self: &Arc<Self>, path_id: u8) -> Arc<JobFiles> {
        JobFiles::new(self.clone(), path_id)
    }

    /// Returns an unused column family id. Ids are never reused.
    ///
    /// # Errors
    /// `LimitReached`: all ids are used.
    pub(crate) fn new_family_id(&self) -> Result<ColumnFamilyId> {
        let mut newest = self.newest_family.lock();
        let next = newest
            .0
            .checked_add(1)
            .ok_or_else(|| Error::new(ErrorKind::LimitReached, "the ids of column families are used up"))?;
        *newest = ColumnFamilyId(next);
        Ok(*newest)
    }

    /// Reserves all ids up to `to`.
    ///
    /// Needed because logs may refer to families that the MANIFEST lacks, for example if a backup
    /// is restored and newer logs stay. If they are replayed again, their records must not go to a
    /// family created since.
    pub(crate) fn pass_family_ids(&self, to: ColumnFamilyId) {
        let mut newest = self.newest_family.lock();
        *newest = to.max(*newest);
    }

    /// Returns the epoch number of the family's next L0 file. Must be called in the order that the
    /// files will have in L0.
    pub(crate) fn new_epoch(&self, family: ColumnFamilyId) -> u64 {
        let mut state = self.state.lock();
        let next = state.next_epochs.entry(family).or_insert(1);
        *next += 1;
        *next - 1
    }

    /// Identity of the database, recorded in the tables that it writes.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// The files to remove.
    pub(crate) fn obsolete(&self) -> &Arc<ObsoleteFiles> {
        &self.obsolete
    }

    /// Returns the MANIFEST in force and its size in bytes.
    pub(crate) fn manifest(&self) -> (FileName, u64) {
        let (number, bytes) = self.state.lock().named;
        (FileName::Manifest(number), bytes)
    }

    /// Returns the state recorded in the MANIFEST, and its size. To copy the files that it names,
    /// [hold](ObsoleteFiles::hold) them first.
    pub(crate) fn moment(&self) -> Moment {
        let state = self.state.lock();
        let families = state.manifest.families.values();
        Moment {
            manifest: state.named,
            trees: families.map(|family| (family.family.clone(), family.version.clone())).collect(),
            logs: state.logs.clone(),
            ingestions: state.ingestions,
        }
    }

    /// Returns the family's log number; `None` if it was dropped.
    pub(crate) fn log_number(&self, family: ColumnFamilyId) -> Option<FileNumber> {
        self.state.lock().manifest.families.get(&family).map(|state| state.log_number)
    }

    /// Returns the oldest log that may be needed.
    pub(crate) fn min_log_number(&self) -> FileNumber {
        self.state.lock().manifest.min_log
    }

    /// Returns the largest sequence number recorded in the MANIFEST.
    #[cfg(test)]
    pub(crate) fn last_sequence(&self) -> SeqNo {
        self.state.lock().manifest.last_sequence
    }

    /// Adds a new log. It is removed once every family's log number is above its own.
    pub(crate) fn add_log(&self, number: FileNumber) {
        self.state.lock().logs.insert(number);
    }

    /// Returns the logs in the directory that are still needed, ascending.
    pub(crate) fn logs(&self) -> Vec<FileNumber> {
        self.state.lock().logs.iter().copied().collect()
    }

    /// Raises the family's log number: everything it has in memory is in logs from `log` on, or it
    /// has nothing in memory and writes go to `log`. Recorded with the next install.
    ///
    /// Needed because a family without writes would otherwise keep every log that others fill.
    pub(crate) fn advance_log_number(&self, family: ColumnFamilyId, log: FileNumber) {
        if let Some(state) = self.state.lock().manifest.families.get_mut(&family) {
            state.log_number = state.log_number.max(log);
        }
    }

    /// Installs `change`: durable in the MANIFEST, then published. This call queues it, and it
    /// continues if the future is dropped.
    ///
    /// Changes are installed in the order of these calls; concurrent ones share one sync.
    ///
    /// # Errors
    /// `NotFound`: the column family was dropped. `InvalidArgument`, `Corruption`: the change does
    /// not fit. `Io`: the MANIFEST could not be written; the change is not applied, but may be
    /// found applied after a crash. `Closed`: the database is closed.
    pub(crate) fn install(self: &Arc<Self>, change: Change) -> Installed {
        let (request, installed) = Request::new(change);
        self.queue([request]);
        installed
    }

    /// Installs each of `changes` like [`install`](Self::install); all are queued together.
    pub(crate) fn install_together(
        self: &Arc<Self>,
        changes: impl IntoIterator<Item = Change>,
    ) -> Vec<Installed> {
        let (requests, installs): (Vec<_>, Vec<_>) = changes.into_iter().map(Request::new).unzip();
        self.queue(requests);
        installs
    }

    fn queue(self: &Arc<Self>, requests: impl IntoIterator<Item = Request>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            let closed = || Error::new(ErrorKind::Closed, "the database is closed");
            return requests.into_iter().for_each(|request| request.complete(Err(closed())));
        }
        state.queue.extend(requests);
        if !state.installing && !state.queue.is_empty() {
            state.installing = true;
            let this = self.clone();
            drop(state);
            drop(self.shared.env.run_blocking(move |_| this.install_all()));
        }
    }

    /// Refuses further changes. The future ends when those already queued are installed, after
    /// which nothing is written. `None` if no install is running.
    pub(crate) fn close(&self) -> Option<Installed> {
        let mut state = self.state.lock();
        state.closed = true;
        if !state.installing {
            return None;
        }
        // Not queued as a change, because the install completes its callers while it still runs,
        // and a second `close` at that point would add a change that is written after the MANIFEST
        // was ended and the lock released.
        let (request, installed) = Request::new(Change::default());
        state.closing.push(request);
        Some(installed)
    }

    /// Returns true while changes are being installed.
    #[cfg(test)]
    fn is_installing(&self) -> bool {
        self.state.lock().installing
    }

    /// Returns true if a group of changes was taken, and further changes wait for the next one.
    #[cfg(test)]
    fn is_writing(&self) -> bool {
        let state = self.state.lock();
        state.installing && state.queue.is_empty()
    }

    /// Returns the number of changes that wait for the next group.
    #[cfg(test)]
    fn queued(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Reads the MANIFEST back, if `verifies_on_close`. A damaged one is written anew, and read
    /// back as well. Blocks. Must be called before [`close`](Self::close).
    ///
    /// # Errors
    /// The MANIFEST cannot be read, or the new one cannot be written or is damaged too.
    pub(crate) fn verify_manifest(self: &Arc<Self>) -> Result<()> {
        if !self.options.load().verifies_on_close {
            return Ok(());
        }
        let Some(damage) = self.damage_of_manifest()? else { return Ok(()) };
        report!(warn, error = %damage, "the MANIFEST is written anew");
        // Taken away, so that the next change begins a new MANIFEST.
        self.end_manifest();
        karst_io::block_on(self.env(), self.install(Change::default()))?;
        self.damage_of_manifest()?.map_or(Ok(()), Err)
    }

    /// Returns the damage of the MANIFEST, or `None`, also while none is open.
    fn damage_of_manifest(&self) -> Result<Option<Error>> {
        let (number, size_bytes) = {
            let state = self.state.lock();
            if state.closed || state.file.is_none() {
                return Ok(None);
            }
            state.named
        };
        let path = self.path.join(FileName::Manifest(number).to_string());
        let mut bytes = self.env().fs().read_file(&path)?;
        bytes.truncate(usize::try_from(size_bytes).unwrap_or(usize::MAX));
        let mut reader = LogReader::manifest(&bytes);
        let mut end = 0;
        let damage = loop {
            match reader.next_record() {
                None => break (end < size_bytes).then(|| Corruption::new("it ends too early", end)),
                Some(Err(damage)) => break Some(damage.corruption),
                Some(Ok(record)) => match VersionEdit::decode(record.bytes) {
                    Ok(_) => end = record.end,
                    Err(error) => break Some(Corruption::new(error.what, record.offset)),
                },
            }
        };
        if damage.is_some() {
            self.shared.stats.tick(Ticker::ManifestValidationFailureCount);
        }
        Ok(damage.map(|damage| Error::in_file(&path, 0, damage)))
    }

    /// Releases unused reserved space of the MANIFEST. Must be called when no install runs. Blocks.
    pub(crate) fn end_manifest(&self) {
        let file = self.state.lock().file.take();
        if let Some(file) = file {
            file.end();
        }
    }

    /// Sets `uncache_aggressiveness` on tables that are being removed.
    fn mark_leaving(&self, requests: &[Request]) {
        for edit in requests.iter().flat_map(|request| &request.change.edits) {
            let Some(family) = self.families.get(edit.column_family) else { continue };
            let superversion = family.superversion();
            let aggressiveness = superversion.config().options.uncache_aggressiveness;
            if aggressiveness == 0 || edit.deleted_files.is_empty() {
                continue;
            }
            // Not those that move to another level, because they keep their blocks.
            let staying: BTreeSet<_> = edit.new_files.iter().map(|(_, file)| file.number).collect();
            let leaving: BTreeSet<_> = edit
                .deleted_files
                .iter()
                .map(|(_, number)| *number)
                .filter(|number| !staying.contains(number))
                .collect();
            for (_, file) in
                superversion.version().all_files().filter(|(_, file)| leaving.contains(&file.number))
            {
                let table = family.tables.opened(file).cloned().or_else(|| family.tables.lookup(file));
                table.into_iter().for_each(|table| table.mark_leaving(&self.shared.cache, aggressiveness));
            }
        }
    }

    /// Installs the queued changes, group by group.
    fn install_all(&self) {
        let running = Running(self);
        loop {
            let (group, base, file) = {
                let mut state = self.state.lock();
                if state.queue.is_empty() {
                    // Lock: cleared within, so that a change queued later starts another run.
                    state.installing = false;
                    let closing = std::mem::take(&mut state.closing);
                    drop(state);
                    std::mem::forget(running);
                    return closing.into_iter().for_each(|request| request.complete(Ok(())));
                }
                (std::mem::take(&mut state.queue), state.manifest.clone(), state.file.take())
            };
            self.install_group(group.into(), base, file);
        }
    }

    fn install_group(&self, group: Vec<Request>, base: ManifestState, file: Option<ManifestFile>) {
        let mut staged = Staged::new(base);
        let (mut fitting, mut misfits) = (Vec::new(), Misfits::default());
        for request in group {
            let tree_of = |family: &Family| tree_options(family, self.options.load().allow_ingest_behind);
            match staged.apply(&request.change, tree_of) {
                Ok(()) => fitting.push(request),
                Err(error) => misfits.0.push((request, error)),
            }
        }
        if fitting.is_empty() {
            self.state.lock().file = file;
            return;
        }
        let described = Described {
            db_id: Some(self.identity.db_id.clone().into_bytes())
                .filter(|_| self.options.load().writes_db_id),
            tracks_wals: self.options.load().tracks_wals,
        };
        let flushed = fitting.iter().flat_map(|request: &Request| &request.change.flushed);
        let flushed: Vec<_> = flushed.flat_map(|(_, memtables)| memtables.iter().cloned()).collect();
        staged.finish(self.next_number_unused(), &described, self.log_of_prepared(&flushed));
        if file.is_some() && staged.records.is_empty() {
            self.state.lock().file = file;
            fitting.into_iter().for_each(|request| request.complete(Ok(())));
            return;
        }
        match self.write(&staged, &described, file) {
            Ok(file) => self.publish(staged, fitting, file),
            Err(not_written) => self.fail(not_written, fitting),
        }
    }

    fn next_number_unused(&self) -> FileNumber {
        FileNumber(self.next_file.load(Ordering::Relaxed))
    }

    /// Makes the staged records durable, in the open MANIFEST or in a new one.
    fn write(
        &self,
        staged: &Staged,
        described: &Described,
        file: Option<ManifestFile>,
    ) -> Result<ManifestFile, NotWritten> {
        let fs = self.shared.env.fs();
        // Invariant: the names of new files are durable before the MANIFEST names them.
        for directory in &staged.written {
            let synced = fs.sync_dir(directory);
            synced.map_err(|error| NotWritten { error: error.into(), may_count: false })?;
        }
        match file {
            Some(mut file) if file.size_bytes() < self.most_bytes(&file) && staged.may_be_appended() => {
                let written = file.append(&staged.records).and_then(|()| {
                    let began = self.shared.start_timer();
                    let synced = file.sync();
                    self.shared.measure_since(HistogramKind::ManifestFileSyncMicros, began);
                    synced
                });
                written.map(|()| file).map_err(|error| NotWritten { error, may_count: true })
            }
            outgrown => {
                let (number, temporary) = (self.new_file_number(), self.new_file_number());
                let snapshot = staged.state.snapshot(self.next_number_unused(), described);
                let how = {
                    let options = self.options.load();
                    Writing { reserve_bytes: options.reserve_bytes, fsync: options.fsync }
                };
                let begun = ManifestFile::begin(fs.as_ref(), &self.path, number, temporary, &snapshot, how);
                if let Some(outgrown) = outgrown {
                    outgrown.end();
                }
                if begun.as_ref().is_err_and(|not_written| not_written.may_count) {
                    let names = [FileName::Manifest(number), FileName::Temp(temporary)];
                    // Invariant: CURRENT may name it already, so it is removed only after CURRENT
                    // names another.
                    self.obsolete.uncertain();
                    self.obsolete.remove(names.map(Gone::Named));
                }
                begun
            }
        }
    }

    /// Returns the size in bytes at which a new MANIFEST is begun.
    ///
    /// It depends on the initial snapshot, because a state larger than the limit would otherwise
    /// begin a new file with every change.
    fn most_bytes(&self, file: &ManifestFile) -> u64 {
        let begun = file.begun_bytes();
        let growth = u128::from(begun) * u128::from(self.options.load().growth_percent) / 100;
        self.options
            .load()
            .max_file_bytes
            .max(begun.saturating_add(u64::try_from(growth).unwrap_or(u64::MAX)))
    }

    fn publish(&self, staged: Staged, mut requests: Vec<Request>, file: ManifestFile) {
        let Staged { state: new, leaving, mut changed, dropped, old_versions, .. } = staged;
        // Flushed families change too, because a flush of entries that all hid each other adds no
        // table.
        changed.extend(requests.iter().flat_map(|request| &request.change.flushed).map(|(id, _)| *id));
        // Counted before publishing, because from then on a file may become obsolete.
        self.count_space(&new, &requests);
        let mut gone = Vec::new();
        {
            let mut state = self.state.lock();
            let now = (file.number(), file.size_bytes());
            let before = std::mem::replace(&mut state.named, now);
            if before.0 != now.0 {
                gone.push(Gone::Named(FileName::Manifest(before.0)));
            }
            state.file = Some(file);
            let ingestions = requests.iter().filter(|request| request.change.ingested.is_some());
            state.ingestions += ingestions.count() as u64;
            let needed = state.logs.split_off(&new.min_log);
            gone.extend(std::mem::replace(&mut state.logs, needed).into_iter().map(Gone::Wal));
            let old = std::mem::replace(&mut state.manifest, new);
            // Log numbers may have been advanced while the MANIFEST was written.
            for (id, family) in old.families {
                if let Some(new) = state.manifest.families.get_mut(&id) {
                    new.log_number = new.log_number.max(family.log_number);
                    if let Some(history) = new.family.history() {
                        // Set before the tree is published, because the tree may lack older
                        // timestamps.
                        history.set_full_history_ts_low(new.full_history_ts_low.clone());
                    }
                }
            }
        }
        let versions: Vec<_> = {
            let state = self.state.lock();
            let published = changed.iter().filter_map(|id| state.manifest.families.get(id));
            published.map(|state| (state.family.clone(), state.version.clone())).collect()
        };
        for request in &mut requests {
            let Some(taken) = request.change.at_once.take() else { continue };
            for id in request.change.edits.iter().map(|edit| edit.column_family) {
                // A reader that has pinned the old tree of one of these families and not read yet,
                // or pins it from here on, pins again until the new tree is published.
                if let Some((family, _)) = versions.iter().find(|(family, _)| family.id() == id) {
                    family.superversion().lacks_from(SeqNo::ZERO);
                }
            }
            // Dropped between the two steps, because readers of a new tree must read at these
            // numbers.
            drop(taken);
        }
        self.mark_leaving(&requests);
        for (family, version) in versions {
            let flushed = requests.iter().flat_map(|request| &request.change.flushed);
            let flushed = flushed.filter(|(id, _)| *id == family.id());
            let flushed: Vec<_> = flushed.flat_map(|(_, memtables)| memtables.iter().cloned()).collect();
            // Passed before publishing, because a picker weighs the new version's files by these
            // counts.
            requests.iter().for_each(|request| request.tell_counts(&version));
            let ingested = requests.iter().filter_map(|request| request.ingests_into(family.id())).min();
            family.install(version, &flushed, ingested);
        }
        for family in dropped {
            self.families.remove(family.id());
        }
        for stored in leaving {
            stored.retire(self.obsolete.clone() as Arc<dyn Reaper>);
        }
        drop(old_versions);
        self.obsolete.certain();
        self.obsolete.remove(gone);
        for mut request in requests {
            if let Some(family) = request.change.created.take() {
                self.families.add(family);
            }
            request.keep_files();
            request.complete(Ok(()));
        }
    }

    /// Counts the files that enter the trees in the `SstFileManager`, if set, and calls the hook if
    /// a flush has reached the space limit.
    fn count_space(&self, new: &ManifestState, requests: &[Request]) {
        let Some(space) = &self.shared.space else { return };
        for edit in requests.iter().flat_map(|request| &request.change.edits) {
            let Some(state) = new.families.get(&edit.column_family) else { continue };
            let shared = &state.family.tables.shared;
            for (_, file) in &edit.new_files {
                if let Ok(path) = shared.table_path(file.number, file.path_id) {
                    space.add(path, file.size_bytes);
                }
            }
            for file in &edit.blob_file_additions {
                space.add(shared.blob_path(file.number), blob::added_bytes(file));
            }
        }
        // Compat: the flush is kept; writes fail from now on. Checked before publishing, because a
        // caller that waits for the flush returns once it is published, and must find writes
        // refused.
        let flushes = requests.iter().any(|request| !request.change.flushed.is_empty());
        if flushes
            && let Err(error) = space.check()
            && let Some(hook) = &*self.on_failure.lock()
        {
            hook(&error, BackgroundErrorReason::Flush);
        }
    }

    fn fail(&self, NotWritten { error, may_count }: NotWritten, requests: Vec<Request>) {
        if may_count {
            self.obsolete.uncertain();
        }
        report!(error, database = %self.path.display(), %error, "the MANIFEST could not be written");
        if let Some(hook) = &*self.on_failure.lock() {
            hook(&error, BackgroundErrorReason::ManifestWrite);
        }
        let error = error.in_context("writing the MANIFEST");
        for request in requests {
            request.complete(Err(error.clone()));
        }
    }
}

/// Changes that did not fit. Their callers are notified on drop, at the end of the group.
///
/// Not earlier, because the cause, such as a family that the group drops, is not published before,
/// and the caller looks for it.
#[derive(Default)]
struct Misfits(Vec<(Request, Error)>);

impl Drop for Misfits {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(request, error)| request.complete(Err(error)));
    }
}

/// Ends an install that panics: notifies waiting callers, and the next install begins a new
/// MANIFEST.
struct Running<'a>(&'a Versions);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.obsolete.uncertain();
        let mut state = self.0.state.lock();
        state.installing = false;
        let waiting = (std::mem::take(&mut state.queue), std::mem::take(&mut state.closing));
        drop(state);
        drop(waiting);
    }
}

fn tree_options(family: &Family, allow_ingest_behind: bool) -> TreeOptions {
    let options = &family.config.options;
    TreeOptions {
        comparator: family.config.comparator.clone(),
        level_count: usize::try_from(options.num_levels).unwrap_or(1),
        allow_ingest_behind: allow_ingest_behind || options.cf_allow_ingest_behind,
        check_consistency: options.force_consistency_checks,
    }
}
