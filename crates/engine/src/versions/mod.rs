//! The live state of a database open for writing: file numbers, column families, their trees, and
//! the MANIFEST that records every change.
//!
//! In: [`Change`]s of flushes, compactions, and of those who create and drop column families. Out:
//! each change durable in the MANIFEST and then published to its [`Family`]; files that nobody
//! needs any more removed.
//!
//! Order of an install: stage (all of a group, in memory) - sync the directories of new files -
//! append to the MANIFEST and sync - publish - retire what left the trees - tell the callers.
//! Changes that come while the MANIFEST is written form the next group.
//!
//! Invariants:
//! - What is published is durable. What failed has changed nothing in memory; the next install
//!   begins a new MANIFEST, and where the failed edit may or may not be on storage no file is
//!   removed until CURRENT names that. It is not where the failure came before the edit was
//!   appended, or before CURRENT named the MANIFEST that has it.
//! - Only the one running install changes trees; it works on a copy, so the state's lock is not
//!   held while anything is built or written.
//!
//! Lock: `state`, then a family's exchange. Never held while waiting or writing.
//! Why a job of its own and not the first caller's future: a future may never be polled again, and
//! others wait for what it leads.

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

/// Is told of a failed MANIFEST write, or that a flush has reached the limit of space.
pub(crate) type OnFailure = Box<dyn Fn(&Error, BackgroundErrorReason) + Send + Sync>;

/// How the MANIFEST is kept.
#[derive(Clone, Debug)]
pub(crate) struct ManifestOptions {
    /// Bytes above which a new MANIFEST is begun (`max_manifest_file_size`).
    pub(crate) max_file_bytes: u64,
    /// Percent by which it may outgrow what it began with, however large that is
    /// (`max_manifest_space_amp_pct`).
    pub(crate) growth_percent: u64,
    /// Bytes of space to reserve for it at a time (`manifest_preallocation_size`,
    /// `allow_fallocate`); 0 for none.
    pub(crate) reserve_bytes: u64,
    /// It is synced with `fsync` (`use_fsync`).
    pub(crate) fsync: bool,
    /// `write_dbid_to_manifest`.
    pub(crate) writes_db_id: bool,
    /// `track_and_verify_wals_in_manifest`.
    pub(crate) tracks_wals: bool,
    /// `allow_ingest_behind` of the database.
    pub(crate) allow_ingest_behind: bool,
    /// It is read back when the database is closed (`verify_manifest_content_on_close`).
    pub(crate) verifies_on_close: bool,
}

/// The live state of a database; see the module.
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
    /// Logs with prepared sections.
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
    /// Those who wait for the end of installing; there are some only once it is closed.
    closing: Vec<Request>,
    /// The file; `None` before the first install, after a failure, and while the running install
    /// has it.
    file: Option<ManifestFile>,
    /// The MANIFEST that CURRENT names and its size in bytes, as last known.
    named: (FileNumber, u64),
    /// How many changes brought ingested files.
    ingestions: u64,
}

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The database as its MANIFEST has it at one moment.
#[derive(Debug)]
pub(crate) struct Moment {
    /// The MANIFEST and how many of its bytes say this.
    pub(crate) manifest: (FileNumber, u64),
    /// All families with their trees.
    pub(crate) trees: Vec<(Arc<Family>, Arc<Version>)>,
    /// Logs with what is not in the trees.
    pub(crate) logs: BTreeSet<FileNumber>,
    /// How many changes have brought files that were ingested.
    ingestions: u64,
}

impl Moment {
    /// Whether logs that were looked at after this moment and before `later` bring all that is not
    /// in the trees: nothing of a family that they do not have, nor anything that came behind files
    /// that were ingested since.
    pub(crate) fn goes_with_logs(&self, later: &Moment) -> bool {
        self.ingestions == later.ingestions && self.has_families_of(later)
    }

    /// Whether it has all families that another one has.
    fn has_families_of(&self, other: &Moment) -> bool {
        let has = |(family, _): &(Arc<Family>, _)| self.trees.iter().any(|(own, _)| Arc::ptr_eq(own, family));
        other.trees.iter().all(has)
    }
}

/// What a database is made of when its [`Versions`] begin.
pub(crate) struct Start {
    pub(crate) path: PathBuf,
    pub(crate) options: ManifestOptions,
    pub(crate) identity: Arc<Identity>,
    /// As the MANIFEST has it; every family is open.
    pub(crate) set: VersionSet,
    pub(crate) families: Arc<Families>,
    pub(crate) obsolete: Arc<ObsoleteFiles>,
    pub(crate) shared: Arc<Shared>,
    /// Above every number in the directory.
    pub(crate) next_file: FileNumber,
    /// The logs in the directory.
    pub(crate) logs: BTreeSet<FileNumber>,
    /// The MANIFEST that was replayed, and its size in bytes.
    pub(crate) manifest: (FileNumber, u64),
}

impl Versions {
    /// Goes on from what was replayed. The first install begins a new MANIFEST.
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

    /// Logs with prepared sections.
    pub(crate) fn prepared_logs(&self) -> &Arc<PreparedLogs> {
        &self.prepared_logs
    }

    /// The oldest log that is needed for what was prepared in it: not decided, or committed and in
    /// a memtable that `flushed` does not name.
    fn log_of_prepared(&self, flushed: &[Arc<MemTable>]) -> Option<FileNumber> {
        // Invariant: first those that are undecided; see `PreparedLogs`.
        let undecided = self.prepared_logs.oldest();
        let families = self.families.all();
        let in_memory = families.iter().filter_map(|family| {
            let superversion = family.superversion();
            let stays = |mem: &&Arc<MemTable>| !flushed.iter().any(|gone| Arc::ptr_eq(gone, mem));
            superversion.memtables().filter(stays).filter_map(|mem| mem.needed_log()).min()
        });
        in_memory.chain(undecided).min()
    }

    /// How the MANIFEST is kept from now on.
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

    /// Has `hook` told of failed MANIFEST writes, and of flushes with which the files have as many
    /// bytes as they may; on the thread that installs.
    pub(crate) fn on_failure(&self, hook: OnFailure) {
        *self.on_failure.lock() = Some(hook);
    }

    /// An unused file number.
    pub(crate) fn new_file_number(&self) -> FileNumber {
        // Ordering: a number only; nothing is published with it.
        FileNumber(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for a table about to be written into the directory `path_id`, and the guard that
    /// removes the file unless it is installed.
    pub(crate) fn new_table(&self, path_id: u8) -> FileGuard {
        let id = StoredId { kind: StoredKind::Table, number: self.new_file_number(), path_id };
        FileGuard::new(id, self.obsolete.clone())
    }

    /// The same for a blob file.
    pub(crate) fn new_blob_file(&self) -> FileGuard {
        let id = StoredId { kind: StoredKind::Blob, number: self.new_file_number(), path_id: 0 };
        FileGuard::new(id, self.obsolete.clone())
    }

    /// Numbers for the files of a job that writes tables into the directory `path_id`.
    pub(crate) fn job_files(self: &Arc<Self>, path_id: u8) -> Arc<JobFiles> {
        JobFiles::new(self.clone(), path_id)
    }

    /// An unused column family id. Ids are never given twice.
    ///
    /// # Errors
    /// `LimitReached`: there is none.
    pub(crate) fn new_family_id(&self) -> Result<ColumnFamilyId> {
        let mut newest = self.newest_family.lock();
        let next = newest
            .0
            .checked_add(1)
            .ok_or_else(|| Error::new(ErrorKind::LimitReached, "the ids of column families are used up"))?;
        *newest = ColumnFamilyId(next);
        Ok(*newest)
    }

    /// Gives no id up to this one any more.
    ///
    /// Why: logs may be about families that the MANIFEST knows nothing of, as when a backup is
    /// restored and newer logs stay. Should they be replayed once more, their records must not go
    /// to a family that has been made since.
    pub(crate) fn pass_family_ids(&self, to: ColumnFamilyId) {
        let mut newest = self.newest_family.lock();
        *newest = to.max(*newest);
    }

    /// The epoch number of the family's next file of L0. Taken in the order in which files are to
    /// lie in L0.
    pub(crate) fn new_epoch(&self, family: ColumnFamilyId) -> u64 {
        let mut state = self.state.lock();
        let next = state.next_epochs.entry(family).or_insert(1);
        *next += 1;
        *next - 1
    }

    /// Who the database is, for the tables it writes.
    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Files that nobody needs any more.
    pub(crate) fn obsolete(&self) -> &Arc<ObsoleteFiles> {
        &self.obsolete
    }

    /// The MANIFEST in force and its size in bytes.
    pub(crate) fn manifest(&self) -> (FileName, u64) {
        let (number, bytes) = self.state.lock().named;
        (FileName::Manifest(number), bytes)
    }

    /// What the MANIFEST says now, and in how many of its bytes. To copy the files that this names,
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

    /// The family's log number; `None` if it was dropped.
    pub(crate) fn log_number(&self, family: ColumnFamilyId) -> Option<FileNumber> {
        self.state.lock().manifest.families.get(&family).map(|state| state.log_number)
    }

    /// Logs below this number hold nothing that anyone needs.
    pub(crate) fn min_log_number(&self) -> FileNumber {
        self.state.lock().manifest.min_log
    }

    /// The largest sequence number that the MANIFEST knows.
    #[cfg(test)]
    pub(crate) fn last_sequence(&self) -> SeqNo {
        self.state.lock().manifest.last_sequence
    }

    /// A log was created. It is removed once every family's log number is above its own.
    pub(crate) fn add_log(&self, number: FileNumber) {
        self.state.lock().logs.insert(number);
    }

    /// Logs in the directory that are still needed, ascending.
    pub(crate) fn logs(&self) -> Vec<FileNumber> {
        self.state.lock().logs.iter().copied().collect()
    }

    /// Says that everything the family has in memory is in logs from `log` on, or that it has
    /// nothing in memory and writes go to `log`. Recorded with the next install.
    ///
    /// Why: a family without writes would otherwise keep every log that others fill.
    pub(crate) fn advance_log_number(&self, family: ColumnFamilyId, log: FileNumber) {
        if let Some(state) = self.state.lock().manifest.families.get_mut(&family) {
            state.log_number = state.log_number.max(log);
        }
    }

    /// Carries out `change`: durable in the MANIFEST, then published. It is begun by this call and
    /// goes on if the future is dropped.
    ///
    /// Changes are carried out in the order of these calls; those that come together share one
    /// sync.
    ///
    /// # Errors
    /// `NotFound`: the column family was dropped. `InvalidArgument`, `Corruption`: the change does
    /// not fit. `Io`: the MANIFEST could not be written; the change has not happened, but may be
    /// found done after a crash. `Closed`: the database is closed.
    pub(crate) fn install(self: &Arc<Self>, change: Change) -> Installed {
        let (request, installed) = Request::new(change);
        self.queue([request]);
        installed
    }

    /// As [`install`](Self::install), for each of `changes`; all of them come together.
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

    /// Refuses further changes. Those that were begun are carried out; the future ends when they
    /// are, and nothing is written from then on. `None` if nothing is being installed.
    pub(crate) fn close(&self) -> Option<Installed> {
        let mut state = self.state.lock();
        state.closed = true;
        if !state.installing {
            return None;
        }
        // Why not queued behind the others: whoever installs tells their end while it still
        // installs, and a second closing then would be one more change, written when the MANIFEST
        // is ended and the lock given back.
        let (request, installed) = Request::new(Change::default());
        state.closing.push(request);
        Some(installed)
    }

    /// Whether changes are being carried out.
    #[cfg(test)]
    fn is_installing(&self) -> bool {
        self.state.lock().installing
    }

    /// Whether a group of changes was taken, and others have to wait for the next one.
    #[cfg(test)]
    fn is_writing(&self) -> bool {
        let state = self.state.lock();
        state.installing && state.queue.is_empty()
    }

    /// Changes that wait for the next group.
    #[cfg(test)]
    fn queued(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Reads the MANIFEST back, if that is asked for; one that is damaged is written anew, which is
    /// read back as well. Blocks. To be called before [`close`](Self::close).
    ///
    /// # Errors
    /// It cannot be read, or the new one cannot be written or is damaged too.
    pub(crate) fn verify_manifest(self: &Arc<Self>) -> Result<()> {
        if !self.options.load().verifies_on_close {
            return Ok(());
        }
        let Some(damage) = self.damage_of_manifest()? else { return Ok(()) };
        report!(warn, error = %damage, "the MANIFEST is written anew");
        // Why taken away: without it the next change begins another.
        self.end_manifest();
        karst_io::block_on(self.env(), self.install(Change::default()))?;
        self.damage_of_manifest()?.map_or(Ok(()), Err)
    }

    /// What is wrong with the MANIFEST; `None` also while there is none at hand.
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

    /// Gives back the space that the MANIFEST does not use, once nothing is installed any more.
    /// Blocks.
    pub(crate) fn end_manifest(&self) {
        let file = self.state.lock().file.take();
        if let Some(file) = file {
            file.end();
        }
    }

    /// Says of tables that are about to leave how hard their blocks are to leave the cache.
    fn mark_leaving(&self, requests: &[Request]) {
        for edit in requests.iter().flat_map(|request| &request.change.edits) {
            let Some(family) = self.families.get(edit.column_family) else { continue };
            let superversion = family.superversion();
            let aggressiveness = superversion.config().options.uncache_aggressiveness;
            if aggressiveness == 0 || edit.deleted_files.is_empty() {
                continue;
            }
            // Why not those that come back: they go to another level, with the blocks they have.
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

    /// Carries out what is queued, group by group.
    fn install_all(&self) {
        let running = Running(self);
        loop {
            let (group, base, file) = {
                let mut state = self.state.lock();
                if state.queue.is_empty() {
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

    /// Makes the staged records durable, in the MANIFEST at hand or in a new one.
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
            Some(mut file) if file.size_bytes() < self.most_bytes(&file) => {
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
                    // Invariant: CURRENT may name it already; it is removed only after CURRENT
                    // names another.
                    self.obsolete.uncertain();
                    self.obsolete.remove(names.map(Gone::Named));
                }
                begun
            }
        }
    }

    /// The size in bytes at which a MANIFEST gives way to a new one.
    ///
    /// Why it depends on its beginning: a state larger than the limit would begin a new file with
    /// every change.
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
        // Why these too: a flush of entries that all hid each other adds no table.
        changed.extend(requests.iter().flat_map(|request| &request.change.flushed).map(|(id, _)| *id));
        // Why before it is published: from then on a file may become obsolete.
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
            // Why: log numbers may have been advanced while the MANIFEST was written.
            for (id, family) in old.families {
                if let Some(new) = state.manifest.families.get_mut(&id) {
                    new.log_number = new.log_number.max(family.log_number);
                    if let Some(history) = new.family.history() {
                        // Why before the tree: it may lack what was before.
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
                // Why: whoever pins the old tree of any of them from here on, or has pinned it and
                // not looked yet, pins again until the new one is there.
                if let Some((family, _)) = versions.iter().find(|(family, _)| family.id() == id) {
                    family.superversion().lacks_from(SeqNo::ZERO);
                }
            }
            // Why between: who pins a new tree has to read at these numbers.
            drop(taken);
        }
        self.mark_leaving(&requests);
        for (family, version) in versions {
            let flushed = requests.iter().flat_map(|request| &request.change.flushed);
            let flushed = flushed.filter(|(id, _)| *id == family.id());
            let flushed: Vec<_> = flushed.flat_map(|(_, memtables)| memtables.iter().cloned()).collect();
            // Why before: whoever picks a compaction from the new version weighs its files by them.
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

    /// Has the manager of files, if there is one, count those that enter the trees, and tells if
    /// those of a flush are too many.
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
        // Compat: what was flushed stays so; writers are told. Why before it is published: whoever
        // waits for the flush returns as soon as it is, and finds writes refused.
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

/// Changes that did not fit. They are told when this is dropped, at the end of their group.
///
/// Why not at once: what they did not fit for, such as a family that the group drops, is not
/// published before, and whoever is told looks for it.
#[derive(Default)]
struct Misfits(Vec<(Request, Error)>);

impl Drop for Misfits {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(request, error)| request.complete(Err(error)));
    }
}

/// Ends an install that panics: whoever waits is told, and the next install begins a new MANIFEST.
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
