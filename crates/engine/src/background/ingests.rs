//! Files that are ingested: from the moment at which all are in the directory and verified, which
//! `ingest/prepare` sees to, to the one at which readers see them.
//!
//! | step | what may be in its way |
//! |---|---|
//! | what the memtables have of the files' ranges is flushed, with writers at work | `allow_blocking_flush` |
//! | writers are held; what came into the ranges meanwhile is flushed | the same |
//! | logs are synced, so that a crash leaves nothing older out | the log |
//! | levels are chosen, and kept from compactions | `fail_if_not_bottommost_level`, `ingest_behind` |
//! | sequence numbers are taken | `allow_global_seqno` |
//! | one change to the MANIFEST adds all files of all families | the MANIFEST |
//! | the sequence numbers are published, and writers let go | |
//!
//! Invariants:
//! - Whoever reads sees all files of one ingest or none, and none before what was written before
//!   it.
//! - A file with a number of its own is hidden from whoever reads at an older one, so it may be in
//!   the tree before it is published. A file without one (it has 0, or the numbers that it came
//!   with) is seen at once by every reader, whatever number it reads at. So only a file that has
//!   nothing below or above it goes in without one. If snapshots must not see it, no snapshot is
//!   taken until it is there. If it comes with files for other families, nobody reads these
//!   families while they are exchanged one after the other (`Change::at_once`).
//! - All of it, preparing included, is one job of the database. Once begun it runs to its end, even
//!   if its caller no longer waits, and closing waits for it.

use super::{Background, FlushOptions, State};
use crate::sealing::{HeldWriters, Sealing};
use crate::versions::{Change, FileGuard};
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_base::events::{ExternalFileIngestionInfo, FlushReason, LogLevel};
use karst_base::pacing::{Raced, race};
use karst_base::snapshot::HeldOff;
use karst_base::stats::{HistogramKind, micros};
use karst_format::comparator::Comparator;
use karst_format::ids::Level;
use karst_format::key::{self, SeqNo, ValueType};
use karst_format::properties::TableProperties;
use karst_format::version_edit::{NewFile, VersionEdit};
use karst_lsm::pick::{NotBehind, RunningId, place_behind, place_ingested};
use karst_lsm::range_del::Fragments;
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::file_counts;
use std::path::PathBuf;
use std::sync::Arc;

/// How files are ingested. RocksDB's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestExternalFileOptions {
    /// Give the files a second name in the database and take the first one away once they are
    /// ingested, instead of copying them. Default false.
    pub move_files: bool,
    /// The same, but leave the first name: a file is then the database's and yours, and must not be
    /// changed. Default false.
    pub link_files: bool,
    /// Copy a file that cannot be linked, as it is on another device. Default true.
    pub failed_move_fall_back_to_copy: bool,
    /// Snapshots that were taken before do not see what is ingested. Default true.
    pub snapshot_consistency: bool,
    /// Give the entries of the files a new sequence number. Without it a file is refused that has
    /// to be newer than something: than what is in its range, or than a snapshot. A file that keeps
    /// the number 0 prevents `ingest_behind` in its range. Default true.
    pub allow_global_seqno: bool,
    /// Flush what the memtables have of the files' ranges, rather than refuse the files. Default
    /// true.
    pub allow_blocking_flush: bool,
    /// The files are older than all that the column family has: they go to its last level, with
    /// sequence number 0. The column family must have had `cf_allow_ingest_behind`, or the database
    /// `allow_ingest_behind`, from the beginning. A file is refused if the last level has something
    /// in its range, or if a table above has entries of sequence number 0 there. Keys must have no
    /// timestamps. Default false.
    pub ingest_behind: bool,
    /// Read each file through before: every block against its checksum, and every entry. Without
    /// it, a file is read where it begins and ends. Default false.
    pub verify_checksums_before_ingest: bool,
    /// With `file_checksum_gen_factory`, make the checksum of each whole file and compare it with
    /// the one that [`IngestExternalFileArg`](crate::IngestExternalFileArg) has, if it has one;
    /// without, believe that one. Default true.
    pub verify_file_checksum: bool,
    /// Refuse a file (`Incomplete`) that cannot go to the last level. Default false.
    pub fail_if_not_bottommost_level: bool,
    /// The files are tables of a database, whatever its column family: their entries keep their
    /// sequence numbers, and they may have nothing in their ranges. They may overlap each other if
    /// later ones are newer. Default false.
    pub allow_db_generated_files: bool,
    /// What is read of the files goes into the block cache. Default true.
    pub fill_cache: bool,
}

impl Default for IngestExternalFileOptions {
    fn default() -> Self {
        Self {
            move_files: false,
            link_files: false,
            failed_move_fall_back_to_copy: true,
            snapshot_consistency: true,
            allow_global_seqno: true,
            allow_blocking_flush: true,
            ingest_behind: false,
            verify_checksums_before_ingest: false,
            verify_file_checksum: true,
            fail_if_not_bottommost_level: false,
            allow_db_generated_files: false,
            fill_cache: true,
        }
    }
}

/// One end of a file: a user key, and what of it the file has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileEnd {
    /// An entry, or the beginning of a range tombstone. The number is the one that it has in the
    /// file.
    Entry(Vec<u8>, SeqNo, ValueType),
    /// Where a range tombstone ends, this key not included.
    TombstoneEnd(Vec<u8>),
}

impl FileEnd {
    /// Where a range tombstone begins, with the number of its newest version, and where it ends.
    pub(crate) fn of_tombstone(tombstones: &Fragments, at: usize) -> [FileEnd; 2] {
        let newest = tombstones.seqs(at).iter().copied().max().unwrap_or_default();
        let start = FileEnd::Entry(tombstones.start(at).to_vec(), newest, ValueType::RangeDeletion);
        [start, FileEnd::TombstoneEnd(tombstones.end(at).to_vec())]
    }

    pub(crate) fn user_key(&self) -> &[u8] {
        match self {
            FileEnd::Entry(key, ..) | FileEnd::TombstoneEnd(key) => key,
        }
    }

    /// The internal key, with `number` as sequence number if there is one.
    pub(crate) fn internal_key(&self, number: Option<SeqNo>) -> Vec<u8> {
        let (key, trailer) = match self {
            FileEnd::Entry(key, seq, kind) => (key, key::pack_trailer(number.unwrap_or(*seq), *kind)),
            FileEnd::TombstoneEnd(key) => (key, key::RANGE_TOMBSTONE_SENTINEL),
        };
        let mut internal = Vec::with_capacity(key.len() + key::TRAILER_BYTES);
        key::append(&mut internal, key, trailer);
        internal
    }
}

/// A file that is in the directory and was found to be right.
#[derive(Debug)]
pub(crate) struct PreparedFile {
    /// Removes it unless it is installed.
    pub(crate) guard: FileGuard,
    /// Where it came from, and where it is.
    pub(crate) external_path: PathBuf,
    pub(crate) internal_path: PathBuf,
    /// As the MANIFEST is to have it, but for what its sequence number decides.
    pub(crate) file: NewFile,
    pub(crate) smallest: FileEnd,
    pub(crate) largest: FileEnd,
    pub(crate) properties: Arc<TableProperties>,
}

impl PreparedFile {
    /// Whether the two have a part of the key space in common.
    pub(crate) fn overlaps(&self, other: &PreparedFile, comparator: &Comparator) -> bool {
        self.begins_within(other, comparator) && other.begins_within(self, comparator)
    }

    /// Whether it begins before `other` ends.
    fn begins_within(&self, other: &PreparedFile, comparator: &Comparator) -> bool {
        let order = comparator.compare_user(self.smallest.user_key(), other.largest.user_key());
        match other.largest {
            FileEnd::Entry(..) => order.is_le(),
            FileEnd::TombstoneEnd(_) => order.is_lt(),
        }
    }

    /// Whether a memtable has anything in its range.
    fn meets(&self, mem: &MemTable) -> Result<bool> {
        let comparator = mem.comparator();
        let is_behind = |user_key: &[u8]| {
            let order = comparator.compare_user(user_key, self.largest.user_key());
            order.is_gt() || order.is_eq() && matches!(self.largest, FileEnd::TombstoneEnd(_))
        };
        let from = self.smallest.user_key();
        let next = mem.seek_ge(&comparator.before_all_of(from))?;
        if next.is_some_and(|at| !is_behind(key::user_key(mem.key(at)))) {
            return Ok(true);
        }
        Ok(mem.range_tombstone_parts().iter().any(|tombstones| {
            let at = tombstones.overlapping(comparator, Some(from), None);
            at.start < at.end && !is_behind(tombstones.start(at.start))
        }))
    }
}

/// What is ingested into one column family.
#[derive(Debug)]
pub(crate) struct FamilyIngest {
    pub(crate) family: Arc<Family>,
    /// The later ones are newer where they overlap.
    pub(crate) files: Vec<PreparedFile>,
    pub(crate) options: IngestExternalFileOptions,
    /// Whether any two of the files overlap.
    pub(crate) overlap: bool,
}

impl FamilyIngest {
    /// Whether `view` has anything in memory that must be flushed first.
    fn meets(&self, view: &SuperVersion) -> Result<bool> {
        if self.options.ingest_behind {
            // Why not: what is in memory is newer.
            return Ok(false);
        }
        for mem in view.memtables() {
            for file in &self.files {
                if file.meets(mem)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn name(&self) -> Named<'_> {
        Named(&self.family.config.name)
    }
}

/// Where a file goes: its level, and how many numbers behind the first one its own is; `None` for
/// the one that it has.
type Placed = (Level, Option<u64>);

/// Where all files go, and what is held until they are there.
struct Places {
    /// For each family, where each of its files goes.
    of_families: Vec<Vec<Placed>>,
    reservations: Reservations,
    /// If there must be no snapshot until then.
    no_snapshots: Option<HeldOff>,
}

/// Levels kept from compactions.
struct Reservations {
    background: Arc<Background>,
    held: Vec<(Arc<Family>, RunningId)>,
}

impl Drop for Reservations {
    fn drop(&mut self) {
        let mut state = self.background.state.lock();
        for (family, id) in self.held.drain(..) {
            if let Some(jobs) = state.families.get_mut(&family.id()) {
                jobs.running.release(id);
            }
        }
        drop(state);
        self.background.notify();
    }
}

impl Background {
    /// Adds all files that `preparing` brings, for each family once, in one change, and then takes
    /// those in `moved` away. All of it, `preparing` too, is one [job](Self::job).
    ///
    /// # Errors
    /// That of `preparing`; the options or a background error are in the way, or came; the database
    /// is closed. Nothing has changed then.
    pub(crate) async fn ingest(
        self: &Arc<Self>,
        preparing: impl Future<Output = Result<Vec<FamilyIngest>>> + Send + 'static,
        moved: Vec<PathBuf>,
    ) -> Result<()> {
        let this = self.clone();
        self.job("an ingestion", async move {
            this.ingest_now(preparing.await?).await?;
            this.remove_moved(moved).await;
            Ok(())
        })
        .await
    }

    /// Takes the first names of files away that have a second one now.
    pub(crate) async fn remove_moved(&self, moved: Vec<PathBuf>) {
        for path in moved {
            let at = path.clone();
            if let Err(error) = self.env().run_blocking(move |env| env.fs().remove(&at)).await {
                // No error, because the file is in the tree, and a caller would bring it again.
                let text = format_args!("{}: in the tree, but not removed: {error}", path.display());
                self.parts.flush.events.log(LogLevel::Warn, text);
            }
        }
    }

    async fn ingest_now(self: &Arc<Self>, ingests: Vec<FamilyIngest>) -> Result<()> {
        let began = self.env().now();
        let job = self.parts.flush.events.next_job();
        let held = self.hold_flushed(&ingests).await?;
        self.parts.flush.pipeline.sync_logs().await?;
        if let Some(gone) = ingests.iter().find(|ingest| ingest.family.is_dropped()) {
            let text = format!("column family {:?} was dropped", gone.name());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let Places { of_families, reservations, no_snapshots } = self.place(&ingests)?;
        let infos = self.install_ingested(ingests, &of_families, held.as_ref()).await?;
        // Why in this order: whoever waits to take a snapshot waits for the writers' turn.
        drop((reservations, no_snapshots, held));
        self.parts.flush.pipeline.installed();
        let took = self.env().now().saturating_sub(began);
        if self.parts.flush.stats.timers_enabled() {
            let micros = micros(took);
            self.parts.flush.stats.measure(HistogramKind::IngestExternalFileRunTime, micros);
        }
        for (family, level, info) in &infos {
            self.parts.flush.events.external_file_ingested(info, job, *level, took);
            self.look_at(family);
        }
        Ok(())
    }

    /// Holds writers up, when the memtables have nothing of the files' ranges.
    ///
    /// Why they go on when background work is paused: whoever has paused it may be about to write,
    /// and would never come to end the pause.
    async fn hold_flushed(self: &Arc<Self>, ingests: &[FamilyIngest]) -> Result<Box<dyn HeldWriters>> {
        loop {
            self.flush_before(ingests).await?;
            // Why no longer: whoever has locked the log need not unlock it any more then, and
            // closing waits for this job.
            let held = self.while_open(self.parts.flush.pipeline.hold()).await?;
            let paused = Box::pin(self.wait_for(|| self.state.lock().is_paused().then_some(())));
            match race(Box::pin(self.flush_before(ingests)), paused).await {
                Raced::First(flushed) => return flushed.map(|()| held),
                Raced::Second(()) => drop(held),
            }
            // Why before the next flush: each one seals a memtable, and writers stop where there
            // are too many of them, which nobody flushes now.
            self.wait_for(|| (!self.state.lock().is_paused()).then_some(())).await;
        }
    }

    /// Flushes what the memtables have of the files' ranges.
    async fn flush_before(self: &Arc<Self>, ingests: &[FamilyIngest]) -> Result<()> {
        self.parts.health.check_writes()?;
        let mut meeting = Vec::new();
        for ingest in ingests {
            if !ingest.meets(&ingest.family.superversion())? {
                continue;
            }
            if !ingest.options.allow_blocking_flush {
                let text = format!(
                    "column family {:?} has entries of the files' ranges in memory, and `allow_blocking_flush` is not set",
                    ingest.name()
                );
                return Err(Error::invalid_argument(text));
            }
            meeting.push(ingest.family.clone());
        }
        if meeting.is_empty() {
            return Ok(());
        }
        let at_once = FlushOptions::AT_ONCE;
        self.flush_families(Sealing::Of(meeting), at_once, FlushReason::ExternalFileIngestion).await
    }

    /// Chooses where each file goes, and keeps compactions from there.
    ///
    /// Lock: all of it under one, so that no compaction begins between the look and the
    /// reservation.
    fn place(self: &Arc<Self>, ingests: &[FamilyIngest]) -> Result<Places> {
        let mut reservations = Reservations { background: self.clone(), held: Vec::new() };
        // Why only for these: a file with a number of its own is hidden from older snapshots, and
        // one that is ingested behind everything changes them whenever it comes.
        let must_not_be_seen = |ingest: &FamilyIngest| {
            let options = &ingest.options;
            let has_own = options.allow_global_seqno && !options.allow_db_generated_files;
            options.snapshot_consistency && !has_own && !options.ingest_behind
        };
        let holds_off = ingests.iter().any(must_not_be_seen);
        let no_snapshots = holds_off.then(|| self.parts.flush.snapshots.hold_off()).flatten();
        let has_snapshots = holds_off && no_snapshots.is_none();
        let mut state = self.state.lock();
        let mut places = Vec::with_capacity(ingests.len());
        for ingest in ingests {
            let needs_number = ingest.options.snapshot_consistency && has_snapshots;
            // Why also the second: readers of several families would otherwise see the files of one
            // before those of the others. Why also the third: snapshots are taken until the files
            // are published.
            let wants_number = needs_number || ingests.len() > 1 || ingest.options.snapshot_consistency;
            match self.place_family(&mut state, ingest, needs_number, wants_number, &mut reservations.held) {
                Ok(placed) => places.push(placed),
                Err(error) => {
                    // Lock: what gives the reservations back takes it.
                    drop(state);
                    return Err(error);
                }
            }
        }
        drop(state);
        Ok(Places { of_families: places, reservations, no_snapshots })
    }

    fn place_family(
        &self,
        state: &mut State,
        ingest: &FamilyIngest,
        needs_number: bool,
        wants_number: bool,
        held: &mut Vec<(Arc<Family>, RunningId)>,
    ) -> Result<Vec<Placed>> {
        let IngestExternalFileOptions { allow_global_seqno, allow_db_generated_files, .. } = ingest.options;
        let family = &ingest.family;
        let comparator = &family.config.comparator;
        let mut placed: Vec<Placed> = Vec::with_capacity(ingest.files.len());
        for (index, file) in ingest.files.iter().enumerate() {
            let refuse = |what: &str| {
                let path = file.external_path.display();
                Err(Error::invalid_argument(format!("{path}: {what}")))
            };
            let ends = [&file.smallest, &file.largest].map(|end| end.internal_key(None));
            let bounds = (&ends[0][..], &ends[1][..]);
            let jobs = state.jobs(&self.options(), family);
            let earlier = ingest.files[..index].iter().zip(&placed);
            let under: Vec<Placed> =
                earlier.filter(|(other, _)| file.overlaps(other, comparator)).map(|(_, at)| *at).collect();
            let above = under.iter().map(|(level, _)| *level).min();
            let (level, number) = if ingest.options.ingest_behind {
                match self.with_context(jobs, family, |context| place_behind(context, bounds)) {
                    Ok(level) => (level, None),
                    Err(NotBehind::NoLevel) => {
                        return refuse("the last level is not kept free for files that are ingested behind");
                    }
                    Err(NotBehind::Occupied) => {
                        return refuse("there is something on the last level in its range");
                    }
                    Err(NotBehind::Unnumbered(number)) => {
                        return refuse(&format!(
                            "table file {number} has entries of sequence number 0 in its range, which cannot be told from older ones; such files come from `allow_global_seqno=false` and from compactions without `allow_ingest_behind`"
                        ));
                    }
                }
            } else {
                let place = self.with_context(jobs, family, |context| place_ingested(context, bounds, above));
                if allow_db_generated_files && (place.overlaps || needs_number) {
                    return refuse(
                        "a table of another database cannot be made newer than what is in its range, or than a snapshot",
                    );
                }
                if !allow_global_seqno && (place.overlaps || needs_number || ingest.overlap) {
                    return refuse(
                        "it has to be newer than what is in its range, or than a snapshot, and `allow_global_seqno` is not set",
                    );
                }
                // A file of number 0 would keep others from being ingested behind it.
                let has_reserved = jobs.options.reserved_level().is_some();
                let wants = wants_number || place.overlaps || ingest.overlap || has_reserved;
                let number = (wants && allow_global_seqno && !allow_db_generated_files).then(|| {
                    under.iter().filter_map(|(_, number)| *number).max().map_or(0, |newest| newest + 1)
                });
                (place.level, number)
            };
            let jobs = state.jobs(&self.options(), family);
            let last = jobs.options.level_count() - 1;
            if ingest.options.fail_if_not_bottommost_level && level.index() != last {
                let path = file.external_path.display();
                let text =
                    format!("{path}: it would go to level {}, not to the last one, {last}", level.index());
                return Err(Error::new(ErrorKind::Incomplete, text));
            }
            if number.is_some() && file.properties.external_file_version() == Some(1) {
                return refuse("a file of version 1 has no place for a sequence number");
            }
            placed.push((level, number));
        }
        // Why not before: one file of a call is not in the way of another.
        let running = &mut state.jobs(&self.options(), family).running;
        for (file, (level, _)) in ingest.files.iter().zip(&placed).filter(|(_, (level, _))| level.index() > 0)
        {
            let range = [&file.smallest, &file.largest].map(FileEnd::user_key);
            held.push((family.clone(), running.reserve(*level, range[0], range[1])));
        }
        Ok(placed)
    }

    /// Adds the files where they go, and publishes their sequence numbers. Returns what to tell of
    /// each.
    async fn install_ingested(
        self: &Arc<Self>,
        ingests: Vec<FamilyIngest>,
        places: &[Vec<Placed>],
        held: &dyn HeldWriters,
    ) -> Result<Vec<(Arc<Family>, Level, ExternalFileIngestionInfo)>> {
        let versions = &self.parts.flush.versions;
        let first = held.next_seq();
        let numbers = places.iter().flatten().filter_map(|(_, number)| *number);
        // Those that keep their numbers, such as a table of a newer database, are published with
        // what is written next.
        let kept = ingests.iter().flat_map(|ingest| &ingest.files).map(|file| file.file.largest_seq.0);
        // Why one at least: whoever depends on nobody having written since a number has to see that
        // somebody has.
        let last = numbers.map(|number| first.0 + number).chain(kept).fold(first.0, u64::max);
        let taken = held.take_to(SeqNo(last))?;
        for (ingest, placed) in ingests.iter().zip(places) {
            if placed.iter().any(|(_, number)| number.is_none()) {
                ingest.family.note_unnumbered(SeqNo(last));
            }
        }
        let now_s = self.env().unix_time().as_secs();
        let has_unnumbered = places.iter().flatten().any(|(_, number)| number.is_none());
        let (at_once, taken) = if has_unnumbered { (Some(taken), None) } else { (None, Some(taken)) };
        let mut change = Change { ingested: Some(first), at_once, ..Change::default() };
        let mut infos = Vec::new();
        for (ingest, placed) in ingests.into_iter().zip(places) {
            let family = &ingest.family;
            let mut edit = VersionEdit {
                column_family: family.id(),
                // Why: whoever follows the logs finds by it why they leave numbers out.
                last_sequence: Some(SeqNo(last)),
                ..VersionEdit::default()
            };
            for (prepared, (level, number)) in ingest.files.into_iter().zip(placed) {
                let number = number.map(|number| SeqNo(first.0 + number));
                let mut file = prepared.file;
                file.smallest = prepared.smallest.internal_key(number).into();
                file.largest = prepared.largest.internal_key(number).into();
                if let Some(number) = number {
                    (file.smallest_seq, file.largest_seq) = (number, number);
                }
                // Compat: the smallest number is for what is older than all else.
                file.epoch_number =
                    if ingest.options.ingest_behind { 1 } else { versions.new_epoch(family.id()) };
                (file.oldest_ancestor_time_s, file.creation_time_s) = (now_s, now_s);
                change.counts.push((file.number, file_counts(&prepared.properties)));
                infos.push((
                    family.clone(),
                    *level,
                    ExternalFileIngestionInfo::new(
                        family.config.name.clone(),
                        (prepared.external_path, prepared.internal_path),
                        number.unwrap_or_default().0,
                        prepared.properties,
                    ),
                ));
                change.files.push(prepared.guard);
                edit.new_files.push((*level, file));
            }
            change.edits.push(edit);
        }
        versions.install(change).await?;
        drop(taken);
        Ok(infos)
    }
}
