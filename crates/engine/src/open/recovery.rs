//! Replay of the logs at an open for writing: into tables, or into memory.
//!
//! In: the logs and the families with empty memtables. Out: tables that no version refers to yet,
//! or the entries in memory while they stay in the logs.
//!
//! | course | full memtables | after each log | at the end |
//! |---|---|---|---|
//! | `Tables` | become tables | | one change adds all tables; no older log is needed |
//! | `Memory` | fail the course | | all entries stay in memory and in the logs |
//! | `Steps` | become tables | a change adds the tables, and the log is removed | like `Tables` |
//!
//! `Tables` is the usual course. If space does not suffice for it, the leftovers of a crash are
//! removed and `Memory` is tried, which needs little more space than MANIFEST and OPTIONS. If the
//! entries may not stay in memory, `Steps` is tried, which needs the space of one log's entries.
//!
//! Invariants:
//! - `Memory` holds at most one memtable of a family more than its options allow. It is not taken
//!   with two-phase commit.
//! - A step is taken only if every entry read so far is replayed and decided, and none was in an
//!   older table. Therefore a failure after it leaves a state that a crash after a flush could
//!   leave.
//! - Before the first step all logs were read once, because only a later log may show that one has
//!   lost its end. If that is damage, nothing has changed; no log from the damage on is removed.
//! - No log is removed that the replay has not read, even if no family needs it: it may have
//!   sections of transactions that later logs decide.
//! - No file is removed before the MANIFEST that does not name it is durable.

use super::ReadHalf;
use super::load::{Logs, TakesLogs};
use crate::compact::read_back;
use crate::versions::{Change, FileGuard, JobFiles, Versions};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::pacing::WriteBufferManager;
use karst_commit::wal::recovery::{Recovered, Recovery};
use karst_commit::wal::replay::{Policy, Target};
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::key::SeqNo;
use karst_format::version_edit::{Temperature, VersionEdit};
use karst_io::{Env, block_on, report};
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use karst_storage::table::writer::{NeverCut, Outputs, RunFiles, RunWriter, TablePlace, writer_options};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The logs of a database, and the courses that their replay may take.
pub(super) struct Recovering<'a> {
    pub(super) read: &'a ReadHalf,
    pub(super) versions: &'a Arc<Versions>,
    pub(super) logs: &'a Logs,
    pub(super) write_buffers: &'a WriteBufferManager,
    /// True if another course may be taken when space runs out, and entries may stay in the logs.
    pub(super) adapts: bool,
    /// True if the database may have prepared transactions.
    pub(super) allow_2pc: bool,
    pub(super) write_prepared: bool,
    /// Removes the files that a crash left behind, and no log that the replay reads.
    pub(super) remove_leftovers: &'a dyn Fn(),
}

/// Result of a replay.
pub(super) struct Replayed {
    pub(super) recovered: Recovered,
    /// Tables of the entries that are not in memory.
    pub(super) tables: RecoveredTables,
    /// The replayed logs, except those that steps have removed.
    pub(super) logs: Vec<FileNumber>,
    /// True if the entries stay in memory and in the logs.
    pub(super) keeps: bool,
}

/// Destination of the replayed entries; the table of the module describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Tables,
    Memory,
    Steps,
}

impl Course {
    /// Returns the course to take if space does not suffice for this one.
    fn next(self) -> Option<Course> {
        match self {
            Course::Tables => Some(Course::Memory),
            Course::Memory => Some(Course::Steps),
            Course::Steps => None,
        }
    }
}

impl Recovering<'_> {
    /// Replays the logs, on the first course that has enough space.
    ///
    /// # Errors
    /// `NoSpace`: no course has enough space.
    pub(super) fn run(&self) -> Result<Replayed> {
        let mut course = if self.adapts && self.is_cramped()? { Course::Memory } else { Course::Tables };
        loop {
            if course != Course::Tables {
                self.make_room()?;
            }
            match self.take(course) {
                Err(error) if error.kind() == ErrorKind::NoSpace && self.adapts => {
                    let Some(next) = course.next() else { return Err(error) };
                    report!(info, %error, "recovery continues in a form that needs less space: {next:?}");
                    self.empty_memtables();
                    course = next;
                }
                outcome => return outcome,
            }
        }
    }

    fn take(&self, course: Course) -> Result<Replayed> {
        if course == Course::Memory && self.allow_2pc {
            // Like `avoid_flush_during_recovery`, which is off then.
            return Err(no_room(
                "with allow_2pc the entries of the logs have to be written to tables".to_owned(),
            ));
        }
        let stops_in = if course == Course::Steps { self.survey()? } else { None };
        let (tables, kept_from) = (RecoveredTables::default(), FileNumber(0));
        let mut taker = Taker { recovering: self, course, stops_in, kept_from, tables };
        let recovered = self.replay(course, &mut taker)?;
        let families = self.read.families.all();
        let Taker { mut tables, kept_from, .. } = taker;
        let logs: Vec<_> = self.logs.numbers.iter().copied().filter(|log| *log >= kept_from).collect();
        let keeps = kept_from == FileNumber(0) && self.keeps(course, &recovered, &tables);
        if keeps {
            return Ok(Replayed { recovered, tables, logs, keeps });
        }
        if course == Course::Memory {
            return Err(no_room("the entries of the logs have to be written to tables".to_owned()));
        }
        for family in families.iter() {
            let mem = family.superversion().mem().clone();
            if !mem.is_empty() {
                self.write(&mut tables, family, &mem)?;
                family.replace_memtable(family.new_memtable());
            }
        }
        let rest = bytes_of_rest(self.read, self.versions);
        let free = free_bytes(self.read).filter(|_| self.adapts && course == Course::Tables);
        if let Some(free) = free.filter(|free| *free < rest) {
            // Reported now, because no other course can be taken once the change to the MANIFEST
            // has begun.
            return Err(no_room(format!("{free} bytes are left for MANIFEST and OPTIONS")));
        }
        Ok(Replayed { recovered, tables, logs, keeps })
    }

    /// Replays all logs into memtables of the course's size, and takes these to `taker`.
    fn replay(&self, course: Course, taker: &mut dyn TakesLogs) -> Result<Recovered> {
        let families = self.read.families.all();
        let most_bytes = |family: &Family| {
            let options = &family.config.options;
            match course {
                Course::Memory => {
                    let memtables = usize::try_from(options.max_write_buffer_number).unwrap_or(1).max(1);
                    options.write_buffer_size.saturating_mul(memtables.saturating_add(1))
                }
                Course::Tables | Course::Steps => options.write_buffer_size,
            }
        };
        let enforces = self.read.db_options.get().enforce_write_buffer_manager_during_recovery;
        let enforces = enforces && course != Course::Memory && self.write_buffers.limit_bytes() > 0;
        let budget = enforces.then(|| self.write_buffers.clone());
        let recovered = self.logs.replay_by(&self.read.env, &families, most_bytes, budget, taker)?;
        check_decided(&self.read.path, &recovered, self.allow_2pc, self.write_prepared)?;
        Ok(recovered)
    }

    /// Replays all logs into memtables that are dropped, and changes nothing. Returns the log in
    /// which the replay stops because of damage, if it does.
    ///
    /// Needed before a log is removed, because only a later log may show that it has lost its end.
    ///
    /// # Errors
    /// Those of the replay: damage that the recovery mode does not permit, undecided transactions.
    fn survey(&self) -> Result<Option<FileNumber>> {
        let recovered = self.replay(Course::Steps, &mut Surveyor { read: self.read })?;
        self.empty_memtables();
        Ok(recovered.stopped.map(|stopped| stopped.log))
    }

    fn empty_memtables(&self) {
        for family in self.read.families.all().iter() {
            family.replace_memtable(family.new_memtable());
        }
    }

    /// Returns true if the course or the options ask for entries to stay in the logs, and they may.
    ///
    /// Compat: as in RocksDB, once some entries are in tables, all go to tables: the logs are
    /// needed as a whole or not at all.
    fn keeps(&self, course: Course, recovered: &Recovered, tables: &RecoveredTables) -> bool {
        let wanted = course == Course::Memory || self.read.db_options.get().avoid_flush_during_recovery;
        let sound = recovered.stopped.is_none() && recovered.passed.is_empty() && !recovered.skipped;
        // Not with prepared sections, decided or not: a committed one may be in an older log than
        // its commit, and log numbers say which logs families need, but not which ones commits
        // need. The log of a section may also be older than every family's log number.
        let oldest = self.versions.min_log_number();
        let two_phases = recovered.two_phases || self.logs.numbers.iter().any(|log| *log < oldest);
        // Not after a repair (`adapts` is false), because its options may replay the logs
        // differently.
        wanted && self.adapts && sound && tables.is_empty() && !two_phases
    }

    /// Returns true if the logs have more bytes than are free for tables.
    fn is_cramped(&self) -> Result<bool> {
        let Some(free) = free_bytes(self.read) else { return Ok(false) };
        Ok(free < self.logs.bytes(&self.read.env)?)
    }

    /// Removes the leftovers of a crash, and releases the space reserved for logs.
    fn make_room(&self) -> Result<()> {
        let (fs, path) = (self.read.env.fs(), &self.read.path);
        // Synced first, because its writer may not have synced it, and a power failure must not
        // bring back a state that needs the removed files.
        fs.append(&path.join(self.versions.manifest().0.to_string()))?.sync()?;
        fs.sync_dir(path)?;
        (self.remove_leftovers)();
        for number in &self.logs.numbers {
            let log = self.logs.directory.join(FileName::Wal(*number).to_string());
            // A missing log must not be created, because the replay would take it for an empty one.
            if !fs.exists(&log).unwrap_or(false) {
                continue;
            }
            // Ignored, because on an error the space stays reserved and nothing else has changed.
            let _ = fs.append(&log).and_then(|mut file| {
                let size = file.size();
                file.truncate(size)
            });
        }
        block_on(&self.read.env, self.versions.obsolete().removed());
        Ok(())
    }

    /// Writes a memtable's entries to tables.
    fn write(&self, tables: &mut RecoveredTables, family: &Arc<Family>, mem: &MemTable) -> Result<()> {
        let free = free_bytes(self.read);
        let written = block_on(&self.read.env, tables.write(self.read, self.versions, family, mem));
        let wanted = mem.memory_bytes() as u64 + bytes_of_rest(self.read, self.versions);
        written.map_err(|error| lacking(self.read, error, free, wanted))
    }
}

/// Returns the bytes free for tables, the minimum over their file systems; `None` if unknown,
/// because a file system does not support the question, or fails to answer it.
fn free_bytes(read: &ReadHalf) -> Option<u64> {
    let families = read.families.all();
    let first: BTreeSet<_> = families.iter().map(|family| &family.tables.shared.directories[0]).collect();
    let free = first.into_iter().filter_map(|directory| {
        let asked = read.env.fs().free_bytes(directory);
        let failed = |error: &_| report!(warn, %error, "the free space is unknown");
        asked.inspect_err(failed).ok().flatten()
    });
    free.min()
}

/// Estimates the bytes of a new MANIFEST, CURRENT and OPTIONS.
fn bytes_of_rest(read: &ReadHalf, versions: &Versions) -> u64 {
    versions.manifest().1 + (16 << 10) + read.families.all().len() as u64 * (8 << 10)
}

/// Adds to a `NoSpace` error the bytes needed for everything except tables.
pub(super) fn explain(read: &ReadHalf, versions: &Versions, error: Error) -> Error {
    let free = free_bytes(read);
    lacking(read, error, free, bytes_of_rest(read, versions))
}

/// Adds to a `NoSpace` error that `wanted` bytes were needed and `free` bytes were free.
fn lacking(read: &ReadHalf, error: Error, free: Option<u64>, wanted: u64) -> Error {
    match free {
        Some(free) if error.kind() == ErrorKind::NoSpace => {
            let (path, lacking) = (read.path.display(), wanted.saturating_sub(free));
            error.in_context(format!(
                "{path}: opening needs up to {wanted} bytes for the entries of the logs, MANIFEST and OPTIONS, and {free} bytes are free: {lacking} bytes are lacking"
            ))
        }
        _ => error,
    }
}

/// Fails if prepared transactions cannot be decided under the options of this open.
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

fn no_room(what: String) -> Error {
    Error::new(ErrorKind::NoSpace, what)
}

/// Drops memtables as the replay fills them.
struct Surveyor<'a> {
    read: &'a ReadHalf,
}

impl TakesLogs for Surveyor<'_> {
    fn full(&mut self, target: &mut Target) -> Result<()> {
        let family = self.read.families.get(target.cf).expect("targets are the families");
        renew(&family, target);
        Ok(())
    }

    fn behind(&mut self, _: FileNumber, _: &mut Recovery) -> Result<()> {
        Ok(())
    }
}

/// Receives memtables as the replay fills them.
struct Taker<'a> {
    recovering: &'a Recovering<'a>,
    course: Course,
    /// Log in which the replay will stop because of damage; it and later ones are not removed by
    /// steps.
    stops_in: Option<FileNumber>,
    /// Steps have removed the logs below this number; 0 if none was taken.
    kept_from: FileNumber,
    tables: RecoveredTables,
}

impl TakesLogs for Taker<'_> {
    fn full(&mut self, target: &mut Target) -> Result<()> {
        if self.course == Course::Memory {
            return Err(no_room("the logs hold more than memtables may".to_owned()));
        }
        let family = self.recovering.read.families.get(target.cf).expect("targets are the families");
        self.recovering.write(&mut self.tables, &family, &target.memtable)?;
        renew(&family, target);
        Ok(())
    }

    fn behind(&mut self, log: FileNumber, recovery: &mut Recovery) -> Result<()> {
        let whole = recovery.is_whole();
        let last_seq = SeqNo(recovery.replay_mut().next_seq().0.saturating_sub(1));
        let targets = recovery.replay_mut().targets_mut();
        let in_memory: usize = targets.iter().map(|target| target.memtable.memory_bytes()).sum();
        let little = in_memory < self.recovering.read.families.largest_write_buffer() / 2;
        let (read, versions) = (self.recovering.read, self.recovering.versions);
        let next = FileNumber(log.0 + 1);
        // A change to the MANIFEST says that no log below the families' log numbers is needed,
        // so all of them must have been replayed: sections in them may be undecided until then.
        let replayed_older = next >= versions.min_log_number();
        let damaged = self.stops_in.is_some_and(|stops_in| log >= stops_in);
        let steps = self.course == Course::Steps && whole && replayed_older && !damaged;
        if !steps || self.tables.is_empty() && little {
            return Ok(());
        }
        let free = free_bytes(read);
        for target in targets.iter_mut().filter(|target| !target.memtable.is_empty()) {
            let family = read.families.get(target.cf).expect("targets are the families");
            self.recovering.write(&mut self.tables, &family, &target.memtable)?;
            renew(&family, target);
        }
        let tables = std::mem::take(&mut self.tables);
        let wanted = in_memory as u64 + bytes_of_rest(read, versions);
        let installed = tables.install(read, versions, |_| Some(next), last_seq);
        installed.map_err(|error| lacking(read, error, free, wanted))?;
        self.kept_from = next;
        // Waited for, because the next table needs the space of this log.
        block_on(&read.env, versions.obsolete().removed());
        Ok(())
    }
}

fn renew(family: &Family, target: &mut Target) {
    target.memtable = family.new_memtable();
    family.replace_memtable(target.memtable.clone());
}

/// Syncs the replayed logs, which must exist.
///
/// Their writer may not have synced them. A later write that is synced in a new log would survive a
/// power failure in which their ends are lost, and leave a gap in the history.
pub(super) fn sync_logs(env: &Env, wal_path: &Path, logs: &[FileNumber]) -> Result<()> {
    for number in logs {
        let log = wal_path.join(FileName::Wal(*number).to_string());
        // A missing log is an error, because opening it for appending would create an empty one.
        env.fs().metadata(&log)?;
        env.fs().append(&log)?.sync()?;
    }
    Ok(env.fs().sync_dir(wal_path)?)
}

/// Tables of replayed entries, by column family; no version refers to them yet.
#[derive(Default)]
pub(super) struct RecoveredTables {
    edits: BTreeMap<ColumnFamilyId, VersionEdit>,
    files: Vec<FileGuard>,
}

impl RecoveredTables {
    fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Writes a memtable's entries to tables.
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

    /// Installs all tables with one change, which records for each family the first log that it
    /// needs; a family for which `first_log` returns `None` is left out.
    pub(super) fn install(
        mut self,
        read: &ReadHalf,
        versions: &Arc<Versions>,
        first_log: impl Fn(&Family) -> Option<FileNumber>,
        last_seq: SeqNo,
    ) -> Result<()> {
        let mut change = Change::default();
        for family in read.families.all().iter() {
            let Some(first_log) = first_log(family) else { continue };
            let mut edit = self.edits.remove(&family.id()).unwrap_or_default();
            edit.column_family = family.id();
            edit.log_number = Some(first_log).max(versions.log_number(family.id()));
            change.edits.push(edit);
        }
        change.files = self.files;
        if let Some(first) = change.edits.first_mut() {
            first.last_sequence = Some(last_seq);
        }
        block_on(&read.env, versions.install(change))
    }
}

/// Writes all entries of a memtable to tables of L0: hidden ones too, because few exist after a
/// crash, and the first compaction drops them.
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
        // Compat: recovery does not count as a flush.
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
