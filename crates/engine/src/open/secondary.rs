//! A secondary instance: a database that another process writes, read as it was at the last
//! catch-up.
//!
//! In: the primary's CURRENT, MANIFEST and logs, whenever somebody asks to catch up. Out: a
//! [`SecondaryView`] of all column families, put in place of the one before in one step.
//!
//! A catch-up reads what was appended to the MANIFEST, then what was appended to the logs, each
//! from where it ended. Then it looks at the MANIFEST once more. If that says now that a log which
//! was read is needed no more, the log may have been removed, or its file used for another one
//! (`recycle_log_file_num`), while it was read: nothing of it is shown, and the reading starts
//! over. So it does if the logs left sequence numbers out that the MANIFEST has now: they are of a
//! file that was ingested meanwhile, before the records behind it were written.
//!
//! | found | what it means |
//! |---|---|
//! | the end of the MANIFEST or of the newest log is torn, zeroed, or another log's | more is to come |
//! | the end of a log behind which another one has begun | read once more: it is whole now |
//! | a new MANIFEST needs logs again that the one before did not | an edit was not durable, and is undone: everything is read anew |
//! | a file is gone, a log is shorter than it was, something does not decode | everything is read anew, with new memtables; if that finds the same and the directory has not changed, it is an error |
//!
//! Invariants:
//! - What is shown is a state that the primary had: the MANIFEST is read before the logs, so no
//!   table has anything that the logs did not bring, and records count up to the first that is
//!   missing.
//! - A view never changes. What a catch-up adds to its memtables has larger numbers than it is read
//!   at; where that cannot be told, the entries go to new memtables.
//! - Each memtable has entries of one log, so that it is dropped when the log is needed no more.
//! - A catch-up that fails leaves the view as it was.
//! - Nothing is written into the primary's directory, not even LOCK.
//!
//! Lock: `follow`; held by whoever catches up, during its I/O. Readers take none.

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

/// What a secondary instance has besides.
#[derive(Debug)]
pub(crate) struct Secondary {
    /// Where it writes its LOG.
    pub(crate) events: Events,
    /// Told when it is closed.
    pub(crate) closing: Event,
    view: ArcSwap<SecondaryView>,
    follow: Mutex<Follow>,
    forget: Arc<Forget>,
}

/// All column families at one moment.
#[derive(Debug)]
pub(crate) struct SecondaryView {
    /// Where it is read.
    pub(crate) at: ReadAt,
    /// By id.
    families: Vec<(ColumnFamilyId, Arc<SuperVersion>)>,
    /// The MANIFEST and how much of it says this.
    pub(crate) manifest: (FileName, u64),
    /// Logs that were read for it.
    pub(crate) logs: Vec<FileNumber>,
    pub(crate) min_log_number: FileNumber,
    pub(crate) options_file: Option<FileName>,
}

impl SecondaryView {
    /// The family as it was; every family of the database is in it.
    pub(crate) fn of(&self, family: &Family) -> Arc<SuperVersion> {
        match self.families.binary_search_by_key(&family.id(), |(id, _)| *id) {
            Ok(index) => self.families[index].1.clone(),
            Err(_) => family.superversion(),
        }
    }
}

/// How far the primary was followed.
struct Follow {
    manifest: Option<Manifest>,
    /// The trees are those that the MANIFEST has, as far as it was read.
    is_built: bool,
    /// The MANIFEST, and how long it was, when they were built.
    built_from: (FileName, u64),
    /// The last sequence number that it has.
    last_seq: SeqNo,
    first_needed: FileNumber,
    families: Vec<Followed>,
    wal_directory: PathBuf,
    /// Where replay is; `None` where everything has to be read anew.
    replay: Option<Recovery>,
    /// The logs that were read, those that nobody needs left out.
    logs: BTreeMap<FileNumber, Place>,
    /// The log whose entries the memtables at hand take.
    current: FileNumber,
    /// How much of the log that was read last was written, zeroes behind that left out.
    log_bytes: u64,
    /// Damage at the end of the newest log, which may have been a record on its way: where, and how
    /// long the log was.
    suspect: Option<(FileNumber, u64, u64)>,
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follow")
            .field("manifest", &self.manifest.as_ref().map(|m| m.name))
            .finish_non_exhaustive()
    }
}

/// A column family that is followed.
struct Followed {
    family: Arc<Family>,
    version: Arc<Version>,
    log_number: FileNumber,
    /// The log of each memtable, the oldest first.
    memtables: Vec<(FileNumber, Arc<MemTable>)>,
    /// The primary has dropped it: it stays as it is.
    is_dropped: bool,
}

/// Lets go of files that left the tree once nobody reads them.
#[derive(Debug)]
struct Forget(Arc<OpenFiles>);

impl Reaper for Forget {
    fn unreachable(&self, file: StoredId) {
        self.0.forget(file.number);
    }
}

/// How an attempt to catch up ended.
enum Outcome {
    Done,
    /// The primary has taken away what was being read.
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
        let text = format!("{}: a secondary writes into a directory of its own", secondary_path.display());
        return Err(Error::invalid_argument(text));
    }
    env.fs().create_dir_durably(secondary_path)?;
    // Why: the primary's LOG may be there.
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
    /// The database as it is shown now.
    pub(crate) fn view(&self) -> Arc<SecondaryView> {
        self.view.load_full()
    }

    /// Shows what the primary has written meanwhile. Blocks.
    ///
    /// # Errors
    /// What is shown is what was shown before.
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
                // Why once more even if nothing has changed: what could not be gone on with may be
                // read from its beginning.
                Err(_) => {}
            }
        }
        let text = format!(
            "{}: the primary removes its logs faster than they can be read; try again",
            read.path.display()
        );
        Err(Error::new(ErrorKind::TryAgain, text))
    }

    /// Catches up once. Where that came to no end, everything is read anew the next time.
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
        // Why taken out: whatever fails from here on may leave it half-way.
        let mut replay = follow.replay.take().expect("it has begun");
        replay.watch(follow.last_seq);
        let (from, missing) = follow.read_logs(read, &mut replay)?;
        if anew {
            replay.replay_mut().end()?;
            replay.replay_mut().follow(follow.last_seq);
        }
        if follow.has_moved(read, from, replay.missing())? {
            // Why it may go on then: what was not read of logs that are gone is in tables by now,
            // unless what came behind it was left out for that.
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

    /// Puts what was read in place of the view.
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
        // Why only now: whoever has the views before keeps their files open.
        leaving.into_iter().for_each(|stored| stored.retire(self.forget.clone() as Arc<dyn Reaper>));
        Ok(())
    }

    /// Ends it: nobody catches up any more. Blocks until whoever does has ended.
    pub(crate) fn close(&self, env: &Env) {
        self.closing.notify(usize::MAX);
        drop(self.follow.lock());
        block_on(env, self.events.written());
    }
}

impl Follow {
    /// Reads on in the MANIFEST, or reads the one that CURRENT names by now, and builds the trees
    /// if they have changed.
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
        // Where the primary could not sync an edit that was read here, it begins a MANIFEST without
        // it.
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
                // Why now: so they can be read when the primary has removed them.
                block_on(env, family.tables.open_all(&state.version, opened_together(&db_options)))?;
                for blob in state.version.blob_files().values() {
                    block_on(env, family.tables.blobs.hold_open(blob))?;
                }
            }
            if let Some(history) = family.history() {
                // Why before the tree is shown: it may lack what was before.
                history.set_full_history_ts_low(state.full_history_ts_low.clone());
            }
            goes_back |= state.log_number < followed.log_number;
            (followed.version, followed.log_number) = (state.version.clone(), state.log_number);
        }
        let needed = first_needed(&db_options, &set);
        if goes_back || needed < self.first_needed {
            // Why: what was in memory of those logs was let go of.
            self.replay = None;
        }
        self.last_seq = set.last_sequence;
        self.first_needed = needed;
        self.is_built = true;
        Ok(())
    }

    /// Begins to replay the logs into new memtables.
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

    /// Lets go of what is in tables by now.
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
            // Why the newest stays: entries go to it, if its log is needed.
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

    /// Reads what the logs have that was not read yet. Says which was the oldest log that something
    /// was to be read of, and the path of a log that should be there and is not.
    ///
    /// A log is whole once a younger one has a record; before that record counts, all older ones
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

    /// What a log has behind what was read of it, and where that begins in the file.
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
            // Why: records that are held back until tables were looked at are the last log's.
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

    /// Refuses damage: what is missing behind it has not been shown, and never will be.
    fn check_end(&mut self, replay: &Recovery) -> Result<()> {
        let Some(stopped) = replay.stopped() else {
            self.suspect = None;
            return Ok(());
        };
        let damaged = |stopped: &Stopped| {
            let error = Error::in_file(&stopped.path, 0, stopped.corruption.clone());
            Err(error.in_context("a log cannot be followed behind damage"))
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
            // Why: whoever writes goes on behind a record only once that is whole. Why so much
            // more: the record may be long, and seen twice while it is written.
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

    /// Whether the primary may have taken away a log, from `from` on, before it was read or
    /// meanwhile; or tables have the sequence number `missing` by now, which the logs left out:
    /// that of an ingested file, which came into the tree before the records behind it were
    /// written.
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

/// Whether a log has a record of its own at its beginning.
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
