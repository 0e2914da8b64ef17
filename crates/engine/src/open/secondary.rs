//! A secondary instance: a read view of a database that another process writes, as of the last
//! catch-up.
//!
//! In: the primary's CURRENT, MANIFEST and logs, at each catch-up. Out: a [`SecondaryView`] of all
//! column families, which replaces the previous one atomically.
//!
//! A catch-up reads the records appended to the MANIFEST, then those appended to the logs, each
//! from its previous end. Then it reads the MANIFEST again. If a log that was read is obsolete by
//! then, it may have been removed, or its file reused for another one (`recycle_log_file_num`),
//! while it was read: none of it is shown, and the reading starts over. It also starts over if the
//! logs lack sequence numbers that the MANIFEST has by then: these belong to a file that was
//! ingested meanwhile, before the following records were written.
//!
//! | found | meaning |
//! |---|---|
//! | the end of the MANIFEST or of the newest log is torn, zeroed, or another log's | more records will follow |
//! | the end of a log after which another one has begun | the log is complete now, and is read again |
//! | a new MANIFEST needs logs again that the one before did not | an edit was not durable, and is undone: everything is read anew |
//! | a file is gone, a log is shorter than before, a record does not decode | everything is read anew, with new memtables; if that has the same result and the directory has not changed, it is an error |
//!
//! Invariants:
//! - The view is a state that the primary had: the MANIFEST is read before the logs, so no table
//!   has entries that the logs lack, and records are used up to the first missing one.
//! - A view never changes. Entries that a catch-up adds to its memtables have larger numbers than
//!   the view's; if that is uncertain, the entries go to new memtables.
//! - Each memtable has entries of one log, so that it is dropped when that log becomes obsolete.
//! - A failed catch-up leaves the view unchanged.
//! - No file is written in the primary's directory, not even LOCK.
//!
//! Lock: `follow`; held by the running catch-up, during its I/O. Readers take no lock.

use super::directory::{Directory, check_path, read_from};
use super::find_options::Purpose;
use super::load::{FamilyTables, build_trees, first_needed, load};
use super::manifest::Manifest;
use super::options::Options;
use super::wanted::Wanted;
use super::{ATTEMPTS, Opened, ReadHalf, again_if_moved, may_have_moved};
use crate::versions::left;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::events::{Events, InfoLog, LogLevel};
use karst_base::options::DbOptions;
use karst_base::snapshot::{ReadAt, Snapshots};
use karst_base::sync::{ArcSwap, Mutex};
use karst_commit::wal::recovery::{Place, Recovery, Stopped};
use karst_commit::wal::replay::Target;
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::{BLOCK_BYTES, LogEvent, LogReader, RecoveryMode};
use karst_io::{Env, Event, block_on};
use karst_lsm::{Reaper, StoredId, Version};
use karst_mem::PendingRanges;
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use karst_storage::open_files::OpenFiles;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::opened_together;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// State of a secondary instance in addition to [`ReadHalf`].
#[derive(Debug)]
pub(crate) struct Secondary {
    /// Writes the instance's LOG.
    pub(crate) events: Events,
    /// Notified when it is closed.
    pub(crate) closing: Event,
    view: ArcSwap<SecondaryView>,
    follow: Mutex<Follow>,
    forget: Arc<Forget>,
}

/// The state of all column families at one moment.
#[derive(Debug)]
pub(crate) struct SecondaryView {
    /// Read point of the view.
    pub(crate) at: ReadAt,
    /// Superversions, ordered by family id.
    families: Vec<(ColumnFamilyId, Arc<SuperVersion>)>,
    /// The MANIFEST, and the bytes of it that describe this view.
    pub(crate) manifest: (FileName, u64),
    /// Logs that were read for this view.
    pub(crate) logs: Vec<FileNumber>,
    pub(crate) min_log_number: FileNumber,
    pub(crate) options_file: Option<FileName>,
}

impl SecondaryView {
    /// Returns the family's state in this view, which has every family of the database.
    pub(crate) fn of(&self, family: &Family) -> Arc<SuperVersion> {
        match self.families.binary_search_by_key(&family.id(), |(id, _)| *id) {
            Ok(index) => self.families[index].1.clone(),
            Err(_) => family.superversion(),
        }
    }
}

/// Progress of following the primary.
struct Follow {
    manifest: Option<Manifest>,
    /// True if the trees match the MANIFEST, as far as it was read.
    is_built: bool,
    /// The MANIFEST that the trees were built from, and its length then.
    built_from: (FileName, u64),
    /// Last sequence number in the MANIFEST.
    last_seq: SeqNo,
    first_needed: FileNumber,
    families: Vec<Followed>,
    wal_directory: PathBuf,
    /// State of the replay; `None` if everything must be read anew.
    replay: Option<Recovery>,
    /// The logs that were read, without obsolete ones.
    logs: BTreeMap<FileNumber, Place>,
    /// The log whose entries go to the current memtables.
    current: FileNumber,
    /// Written bytes of the log that was read last, without trailing zeros.
    log_bytes: u64,
    /// Damage at the end of the newest log, which may be an incomplete record: log, offset, and
    /// length of the log.
    suspect: Option<(FileNumber, u64, u64)>,
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follow")
            .field("manifest", &self.manifest.as_ref().map(|m| m.name))
            .finish_non_exhaustive()
    }
}

/// A followed column family.
struct Followed {
    family: Arc<Family>,
    version: Arc<Version>,
    log_number: FileNumber,
    /// Log and memtable, oldest first.
    memtables: Vec<(FileNumber, Arc<MemTable>)>,
    /// True if the primary has dropped it; its state no longer changes.
    is_dropped: bool,
}

/// Releases files that left the tree once no reader holds them.
#[derive(Debug)]
struct Forget(Arc<OpenFiles>);

impl Reaper for Forget {
    fn unreachable(&self, file: StoredId) {
        self.0.forget(file.number);
    }
}

/// Result of an attempt to catch up.
enum Outcome {
    Done,
    /// The primary has removed files that were being read.
    Moved,
}

/// Opens the database in `path`, which another process may be writing, as a secondary instance.
/// `wanted` names the column families to open, the default one always included; `None` opens all.
pub(crate) fn open_secondary(
    path: &Path,
    secondary_path: &Path,
    options: &Options,
    wanted: Option<&[&str]>,
) -> Result<Opened> {
    check_path(path)?;
    check_path(secondary_path)?;
    let env = options.environment();
    let options = &options.spelled_once(&env, path);
    let wanted = wanted.map_or(Wanted::All, Wanted::Named);
    let loaded = again_if_moved(&env, path, || load(&env, path, options, wanted, Purpose::Following))?;
    let db_options = &loaded.db_options;
    if path == secondary_path {
        let text =
            format!("{}: a secondary needs a directory of its own to write to", secondary_path.display());
        return Err(Error::invalid_argument(text));
    }
    env.fs().create_dir_durably(secondary_path)?;
    // In the instance's own directory, because the primary's LOG may be in `db_log_dir`.
    let log_options = DbOptions { db_log_dir: String::new(), ..db_options.clone() };
    let log = options.users_log().unwrap_or_else(|| InfoLog::open(&env, secondary_path, &log_options));
    let events = Events::new(Some(log), options.event_listeners());
    events.opened(path, db_options);
    events.opened_families(loaded.families.iter().map(|family| family.settings()));
    let followed = |family: &Arc<Family>| Followed {
        family: family.clone(),
        version: family.superversion().version().clone(),
        log_number: FileNumber(0),
        memtables: Vec::new(),
        is_dropped: false,
    };
    let follow = Follow {
        manifest: None,
        is_built: false,
        built_from: (loaded.manifest, loaded.manifest_bytes),
        last_seq: SeqNo::ZERO,
        first_needed: FileNumber(0),
        families: loaded.families.iter().map(followed).collect(),
        wal_directory: loaded.logs.directory.clone(),
        replay: None,
        logs: BTreeMap::new(),
        current: FileNumber(0),
        log_bytes: 0,
        suspect: None,
    };
    let view = SecondaryView {
        at: ReadAt::all_to(SeqNo::ZERO),
        families: Vec::new(),
        manifest: (loaded.manifest, loaded.manifest_bytes),
        logs: Vec::new(),
        min_log_number: FileNumber(0),
        options_file: None,
    };
    let forget = Arc::new(Forget(loaded.shared.open_files.clone()));
    let mut opened = Opened::of(loaded, path);
    let secondary = Arc::new(Secondary {
        events,
        closing: Event::new(),
        view: ArcSwap::from_pointee(view),
        follow: Mutex::new(follow),
        forget,
    });
    secondary.catch_up(&opened.read)?;
    opened.read.secondary = Some(secondary);
    Ok(opened)
}

impl Secondary {
    /// Returns the current view.
    pub(crate) fn view(&self) -> Arc<SecondaryView> {
        self.view.load_full()
    }

    /// Updates the view to the primary's current state. Blocks.
    ///
    /// # Errors
    /// The view is unchanged then.
    pub(crate) fn catch_up(&self, read: &ReadHalf) -> Result<()> {
        let mut follow = self.follow.lock();
        read.life.check()?;
        let before = self.view();
        let caught = self.caught_up(&mut follow, read);
        match &caught {
            Ok(()) => {
                let (was, is) = (before.at.seq, self.view().at.seq);
                if was != is {
                    let text = format_args!("[secondary] caught up from sequence number {was} to {is}");
                    self.events.log(LogLevel::Info, text);
                }
            }
            Err(error) => {
                let text = format_args!("[secondary] not caught up: {error}");
                self.events.log(LogLevel::Warn, text);
            }
        }
        caught
    }

    fn caught_up(&self, follow: &mut Follow, read: &ReadHalf) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let anew = follow.replay.is_none();
            let outcome = match anew {
                true => again_if_moved(&read.env, &read.path, || self.attempt(follow, read)),
                false => self.attempt(follow, read),
            };
            match outcome {
                Ok(Outcome::Done) => return Ok(()),
                Ok(Outcome::Moved) => {}
                Err(error) if anew || !may_have_moved(error.kind()) => return Err(error),
                // Retried even if the directory has not changed, because state that cannot be
                // continued may be readable from the beginning.
                Err(_) => {}
            }
        }
        let text = format!(
            "{}: the primary removes its logs faster than they can be read; try again",
            read.path.display()
        );
        Err(Error::new(ErrorKind::TryAgain, text))
    }

    /// Catches up once. After an error, everything is read anew the next time.
    fn attempt(&self, follow: &mut Follow, read: &ReadHalf) -> Result<Outcome> {
        let outcome = self.go(follow, read);
        if outcome.is_err() {
            (follow.replay, follow.manifest) = (None, None);
        }
        outcome
    }

    fn go(&self, follow: &mut Follow, read: &ReadHalf) -> Result<Outcome> {
        let view = self.view();
        let directory = Directory::list(&read.env, &read.path)?;
        follow.read_manifest(read, &directory)?;
        let anew = follow.replay.is_none();
        match anew {
            true => follow.begin(read),
            false => follow.go_on(&view),
        }
        // Taken out, because an error from here on may leave it in an intermediate state.
        let mut replay = follow.replay.take().expect("it has begun");
        replay.watch(follow.last_seq);
        let (from, missing) = follow.read_logs(read, &mut replay)?;
        if anew {
            replay.replay_mut().end()?;
            replay.replay_mut().follow(follow.last_seq);
        }
        if follow.has_moved(read, from, replay.missing())? {
            // The replay may continue then, because unread entries of removed logs are in tables by
            // now, unless the replay stopped at damage.
            follow.replay = Some(replay).filter(|replay| replay.stopped().is_none());
            return Ok(Outcome::Moved);
        }
        if let Some(missing) = missing {
            let text = format!("{}: the log is gone, though the MANIFEST needs it", missing.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        follow.check_end(&replay)?;
        if replay.replay_mut().has_unprepared() {
            return Err(Error::not_supported("a secondary of a database with write-unprepared transactions"));
        }
        self.show(follow, &mut replay, read, &directory, &view)?;
        follow.replay = Some(replay);
        Ok(Outcome::Done)
    }

    /// Replaces the view by the state that was read.
    fn show(
        &self,
        follow: &mut Follow,
        replay: &mut Recovery,
        read: &ReadHalf,
        directory: &Directory,
        before: &SecondaryView,
    ) -> Result<()> {
        let replay = replay.replay_mut();
        let seq = follow.last_seq.max(SeqNo(replay.next_seq().0.saturating_sub(1)));
        if seq < before.at.seq {
            let text = format!(
                "{}: the database has gone back from sequence number {} to {seq}; it was replaced or has lost writes, so the secondary has to be opened anew",
                read.path.display(),
                before.at.seq
            );
            return Err(Error::new(ErrorKind::Corruption, text));
        }
        let pending = PendingRanges::new();
        let mut any = false;
        for (first, count) in replay.undecided_ranges() {
            pending.add(first.0, u64::from(count), 0);
            any = true;
        }
        let at = Snapshots::new(any.then(|| Arc::new(pending)), false).newest(|| seq).kept();
        let mut families = Vec::with_capacity(follow.families.len());
        let mut leaving = Vec::new();
        for followed in &follow.families {
            let family = &followed.family;
            if !followed.is_dropped {
                let mut newest_first = followed.memtables.iter().rev().map(|(_, mem)| mem.clone());
                let mem = newest_first.next().expect("a family has a memtable");
                let old = family.superversion();
                leaving.extend(left(old.version(), &followed.version));
                family.replace(mem, newest_first.collect(), followed.version.clone());
            }
            families.push((family.id(), family.superversion()));
        }
        families.sort_unstable_by_key(|(id, _)| *id);
        self.view.store(Arc::new(SecondaryView {
            at,
            families,
            manifest: follow.built_from,
            logs: follow.logs.keys().copied().collect(),
            min_log_number: follow.first_needed,
            options_file: directory.newest_options(),
        }));
        // Only now, because the holders of earlier views keep their files open.
        leaving.into_iter().for_each(|stored| stored.retire(self.forget.clone() as Arc<dyn Reaper>));
        Ok(())
    }

    /// Closes the instance: no further catch-ups. Blocks until a running one has ended.
    pub(crate) fn close(&self, env: &Env) {
        self.closing.notify(usize::MAX);
        drop(self.follow.lock());
        block_on(env, self.events.written());
    }
}

impl Follow {
    /// Reads further records of the MANIFEST, or the MANIFEST that CURRENT names by now, and builds
    /// the trees if they have changed.
    fn read_manifest(&mut self, read: &ReadHalf, directory: &Directory) -> Result<()> {
        let env = &read.env;
        let current = directory.current_manifest()?;
        let changed = match &mut self.manifest {
            Some(manifest) if manifest.name == current => manifest.read_on(env)?,
            manifest => {
                *manifest = Some(Manifest::read(directory)?);
                true
            }
        };
        self.is_built &= !changed;
        if self.is_built {
            return Ok(());
        }
        let manifest = self.manifest.clone().expect("it was read");
        self.built_from = (manifest.name, manifest.size_bytes);
        let configs = self.families.iter().filter(|followed| !followed.is_dropped);
        let configs = configs.map(|followed| (followed.family.id(), followed.family.config.clone()));
        let db_options = read.db_options.get();
        let set = build_trees(manifest, &configs.collect(), &db_options)?;
        let own = read.db_id.as_deref();
        if let (Some(now), Some(own)) = (&set.db_id, own)
            && String::from_utf8_lossy(now).trim_end() != own
        {
            let text = format!(
                "{}: another database is there now: its identity is not {own:?} any more",
                read.path.display()
            );
            return Err(Error::new(ErrorKind::Corruption, text));
        }
        // If the primary could not sync an edit that was read here, its next MANIFEST lacks that
        // edit.
        let mut goes_back = false;
        for followed in self.families.iter_mut().filter(|followed| !followed.is_dropped) {
            let family = &followed.family;
            let state = set.column_families.get(&family.id());
            let Some(state) = state.filter(|state| state.name == family.config.name) else {
                followed.is_dropped = true;
                family.set_dropped();
                if let Some(replay) = &mut self.replay {
                    replay.replay_mut().forget_family(family.id());
                }
                continue;
            };
            if db_options.max_open_files < 0 {
                // Opened now, so that they can be read after the primary has removed them.
                block_on(env, family.tables.open_all(&state.version, opened_together(&db_options)))?;
                for blob in state.version.blob_files().values() {
                    block_on(env, family.tables.blobs.hold_open(blob))?;
                }
            }
            if let Some(history) = family.history() {
                // Before the tree is shown, because it may lack older history.
                history.set_full_history_ts_low(state.full_history_ts_low.clone());
            }
            goes_back |= state.log_number < followed.log_number;
            (followed.version, followed.log_number) = (state.version.clone(), state.log_number);
        }
        let needed = first_needed(&db_options, &set);
        if goes_back || needed < self.first_needed {
            // Everything is read anew, because the entries of those logs were dropped from memory.
            self.replay = None;
        }
        self.last_seq = set.last_sequence;
        self.first_needed = needed;
        self.is_built = true;
        Ok(())
    }

    /// Starts to replay the logs into new memtables.
    fn begin(&mut self, read: &ReadHalf) {
        self.logs.clear();
        self.current = FileNumber(0);
        let target = |followed: &mut Followed| {
            let memtable = followed.family.new_memtable();
            followed.memtables = vec![(FileNumber(0), memtable.clone())];
            Target {
                cf: followed.family.id(),
                log_number: followed.log_number,
                memtable,
                memory_bytes: usize::MAX,
                tables: FamilyTables::of_version(&read.env, &followed.family, followed.version.clone()),
            }
        };
        let families = self.families.iter_mut().filter(|followed| !followed.is_dropped);
        let (targets, behind) = (families.map(target).collect(), (self.last_seq, self.first_needed));
        let two_phases = read.db_options.get().allow_2pc;
        self.replay = Some(Recovery::new(RecoveryMode::PointInTimeRecovery, targets, behind, two_phases));
    }

    /// Drops memtables whose entries are in tables by now, and continues the replay.
    fn go_on(&mut self, view: &SecondaryView) {
        let Some(replay) = &mut self.replay else { return };
        let read_to = self.logs.iter().rfind(|(_, place)| place.end > 0).map(|(log, _)| *log);
        if read_to.is_some_and(|log| log < self.first_needed) {
            replay.jump();
        }
        replay.needs_from(self.first_needed);
        let overtaken = replay.expected().is_none_or(|next| next <= view.at.seq);
        self.logs = self.logs.split_off(&self.first_needed);
        let replay = replay.replay_mut();
        replay.follow(self.last_seq);
        for followed in self.families.iter_mut().filter(|followed| !followed.is_dropped) {
            let (family, log_number) = (&followed.family, followed.log_number);
            // The newest is kept if its log is needed, because new entries go to it.
            let newest = followed.memtables.pop();
            followed.memtables.retain(|(log, _)| *log >= log_number);
            let mut fresh = newest.filter(|(log, _)| *log >= log_number);
            if fresh.as_ref().is_none_or(|(_, mem)| overtaken && !mem.is_untouched()) {
                followed.memtables.extend(fresh.take());
                fresh = Some((self.current, family.new_memtable()));
            }
            followed.memtables.extend(fresh);
            let target = replay.targets_mut().iter_mut().find(|target| target.cf == family.id());
            if let (Some(target), Some((_, mem))) = (target, followed.memtables.last()) {
                (target.log_number, target.memtable) = (log_number, mem.clone());
            }
        }
    }

    /// Reads the unread parts of the logs. Returns the oldest log that was to be read, and the path
    /// of a required log that does not exist.
    ///
    /// A log is complete once a newer one has a record; before that record is used, all older logs
    /// are read to their ends.
    fn read_logs(&mut self, read: &ReadHalf, replay: &mut Recovery) -> Result<(FileNumber, Option<PathBuf>)> {
        let env = &read.env;
        let listed = Directory::list(env, &self.wal_directory)?.logs();
        let begun = self.logs.iter().rfind(|(_, place)| place.end > 0).map(|(log, _)| *log);
        let from = begun.unwrap_or(self.first_needed).max(self.first_needed);
        let mut not_whole: Vec<FileNumber> = Vec::new();
        for number in listed.range(from..).copied() {
            let bytes = self.read_log(env, number)?;
            let place = self.logs.entry(number).or_default();
            if place.end == 0 && !begins_with_record(number, &bytes.1) {
                not_whole.push(number);
                continue;
            }
            for older in not_whole.drain(..) {
                let bytes = self.read_log(env, older)?;
                self.replay_log(older, &bytes, replay)?;
            }
            self.replay_log(number, &bytes, replay)?;
            not_whole.push(number);
        }
        let missing = begun.filter(|begun| *begun >= self.first_needed && !listed.contains(begun));
        Ok((from, missing.map(|log| self.path_of(log))))
    }

    fn path_of(&self, log: FileNumber) -> PathBuf {
        self.wal_directory.join(FileName::Wal(log).to_string())
    }

    /// Returns the unread part of a log, and its offset in the file.
    fn read_log(&self, env: &Env, number: FileNumber) -> Result<(u64, Vec<u8>)> {
        let (path, place) = (self.path_of(number), self.logs.get(&number).copied().unwrap_or_default());
        let base = place.read_from();
        let bytes = read_from(env, &path, base)?;
        let size = base + bytes.len() as u64;
        if size < place.end {
            let what = format!("the log has {size} bytes, and had {} before", place.end);
            return Err(Error::corruption_at(&path, size, what));
        }
        Ok((base, bytes))
    }

    fn replay_log(
        &mut self,
        number: FileNumber,
        bytes: &(u64, Vec<u8>),
        replay: &mut Recovery,
    ) -> Result<()> {
        if number != self.current {
            self.current = number;
            // Records that are held back until tables are checked belong to the previous log.
            replay.replay_mut().end()?;
            for followed in self.families.iter_mut().filter(|followed| !followed.is_dropped) {
                let newest = followed.memtables.last_mut().expect("a family has a memtable");
                if newest.1.is_untouched() {
                    newest.0 = number;
                    continue;
                }
                let mem = followed.family.new_memtable();
                followed.memtables.push((number, mem.clone()));
                let id = followed.family.id();
                if let Some(target) = replay.replay_mut().targets_mut().iter_mut().find(|t| t.cf == id) {
                    target.memtable = mem;
                }
            }
        }
        let place = self.logs.get(&number).copied().unwrap_or_default();
        let part = (bytes.0, &bytes.1[..]);
        let place = replay.log_from(number, &self.path_of(number), part, place, &mut |_| Ok(()))?;
        self.logs.insert(number, place);
        self.log_bytes = bytes.0 + bytes.1.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
        Ok(())
    }

    /// Returns an error for damage, because entries after it are missing from the view, and always
    /// will be.
    fn check_end(&mut self, replay: &Recovery) -> Result<()> {
        let Some(stopped) = replay.stopped() else {
            self.suspect = None;
            return Ok(());
        };
        let damaged = |stopped: &Stopped| {
            let error = Error::in_file(&stopped.path, 0, stopped.corruption.clone());
            Err(error.in_context("a log cannot be followed past damage"))
        };
        let newest = self.logs.iter().rfind(|(_, place)| place.end > 0).map(|(log, _)| *log);
        if stopped.left_out || newest.is_some_and(|newest| stopped.log < newest) {
            return damaged(stopped);
        }
        if stopped.is_plain_end() {
            return Ok(());
        }
        let place = (stopped.log, stopped.corruption.offset);
        match self.suspect {
            // It is damage once the log has grown by more than two blocks since, because the writer
            // appends after a record only once that is complete. The margin is large, because a
            // long record may be seen twice while it is written.
            Some((log, offset, bytes)) if (log, offset) == place => {
                match self.log_bytes > bytes + 2 * BLOCK_BYTES as u64 {
                    true => damaged(stopped),
                    false => Ok(()),
                }
            }
            _ => {
                self.suspect = Some((place.0, place.1, self.log_bytes));
                Ok(())
            }
        }
    }

    /// Returns true if the primary may have removed a log, from `from` on, before or while it was
    /// read; or if tables have the sequence number `missing` by now, which the logs lacked: that of
    /// an ingested file, which entered the tree before the following records were written.
    fn has_moved(&mut self, read: &ReadHalf, from: FileNumber, missing: Option<SeqNo>) -> Result<bool> {
        let directory = Directory::list(&read.env, &read.path)?;
        let manifest = self.manifest.as_mut().expect("it was read");
        if directory.current_manifest()? != manifest.name {
            return Ok(true);
        }
        if !manifest.read_on(&read.env)? {
            return Ok(false);
        }
        self.is_built = false;
        let configs = self.families.iter().filter(|followed| !followed.is_dropped);
        let configs = configs.map(|followed| (followed.family.id(), followed.family.config.clone()));
        let db_options = read.db_options.get();
        let set = build_trees(manifest.clone(), &configs.collect(), &db_options)?;
        let has_missing = missing.is_some_and(|missing| missing <= set.last_sequence);
        Ok(has_missing || from < first_needed(&db_options, &set))
    }
}

/// Returns true if a log begins with a record of its own.
fn begins_with_record(number: FileNumber, bytes: &[u8]) -> bool {
    let mut reader = LogReader::new(bytes, number, RecoveryMode::PointInTimeRecovery);
    loop {
        match reader.next_event() {
            Some(LogEvent::Record(_)) => return true,
            Some(LogEvent::Predecessor(_)) => {}
            Some(LogEvent::Damage(_) | LogEvent::OldRecord { .. }) | None => return false,
        }
    }
}
