//! Ingestion of files that `ingest/prepare` has placed in the directory and verified, up to the
//! moment at which they are visible.
//!
//! | step | may fail because of |
//! |---|---|
//! | memtables that overlap the files are flushed, while writers run | `allow_blocking_flush` |
//! | writers are held; overlapping entries written meanwhile are flushed | `allow_blocking_flush` |
//! | logs are synced, so that a crash loses no older entries | the log |
//! | levels are chosen, and reserved against compactions | `fail_if_not_bottommost_level`, `ingest_behind` |
//! | sequence numbers are taken | `allow_global_seqno` |
//! | one change to the MANIFEST adds all files of all families | the MANIFEST |
//! | the sequence numbers are published, and writers released | |
//!
//! Invariants:
//! - A reader sees all files of one ingestion or none, and none without all earlier writes.
//! - A file with a sequence number of its own is hidden from readers at an older one, so it may be
//!   in the tree before it is published. A file without one (it has 0, or its original numbers) is
//!   visible at once to every reader, at any number. Therefore only a file without overlapping
//!   older or newer entries is added without one. If snapshots must not see it, no snapshot is
//!   taken until it is added. If it comes with files for other families, reads of these families
//!   are blocked while the families are exchanged one after the other (`Change::at_once`).
//! - All of it, including the preparation, is one job of the database. Once begun it runs to its
//!   end, even if its caller no longer waits, and closing waits for it.

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

/// Options of an ingestion, with RocksDB's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngestExternalFileOptions {
    /// Link the files into the database and remove their original names once they are ingested,
    /// instead of copying them. Default false.
    pub move_files: bool,
    /// Link the files, but keep their original names: such a file belongs to both the database and
    /// the caller, and must not be changed. Default false.
    pub link_files: bool,
    /// Copy a file that cannot be linked, for example because it is on another device. Default
    /// true.
    pub failed_move_fall_back_to_copy: bool,
    /// Hide the ingested entries from existing snapshots. Default true.
    pub snapshot_consistency: bool,
    /// Give the entries of the files a new sequence number. If false, a file is refused that must
    /// be newer than overlapping entries or than a snapshot. A file that keeps the number 0
    /// prevents `ingest_behind` in its range. Default true.
    pub allow_global_seqno: bool,
    /// Flush memtables that overlap the files, instead of refusing the files. Default true.
    pub allow_blocking_flush: bool,
    /// Ingest the files as older than all other entries of the column family: they go to its last
    /// level, with sequence number 0. The column family must have had `cf_allow_ingest_behind`, or
    /// the database `allow_ingest_behind`, from the beginning. A file is refused if the last level
    /// overlaps it, or if a table above has entries of sequence number 0 in its range. Keys must
    /// have no timestamps. Default false.
    pub ingest_behind: bool,
    /// Verify each file first: the checksum of every block, and every entry. If false, only the
    /// beginning and the end of a file are read. Default false.
    pub verify_checksums_before_ingest: bool,
    /// With `file_checksum_gen_factory`, compute the checksum of each whole file and compare it
    /// with the one in [`IngestExternalFileArg`](crate::IngestExternalFileArg), if any; if false,
    /// trust that one. Default true.
    pub verify_file_checksum: bool,
    /// Refuse a file (`Incomplete`) that does not fit on the last level. Default false.
    pub fail_if_not_bottommost_level: bool,
    /// Accept tables of any database and column family: their entries keep their sequence numbers,
    /// and must not overlap existing entries. They may overlap each other if later ones are newer.
    /// Default false.
    pub allow_db_generated_files: bool,
    /// Insert the blocks read into the block cache. Default true.
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

/// A bound of a file: a user key, and the kind of entry there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileEnd {
    /// An entry, or the start of a range tombstone, with its sequence number in the file.
    Entry(Vec<u8>, SeqNo, ValueType),
    /// Exclusive end of a range tombstone.
    TombstoneEnd(Vec<u8>),
}

impl FileEnd {
    /// Returns the start of a range tombstone, with the number of its newest version, and its end.
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

    /// Returns the internal key, with `number` as sequence number if it is not None.
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

/// A validated file in the directory.
#[derive(Debug)]
pub(crate) struct PreparedFile {
    /// Removes the file unless it is installed.
    pub(crate) guard: FileGuard,
    /// Path of the external file, and path in the database.
    pub(crate) external_path: PathBuf,
    pub(crate) internal_path: PathBuf,
    /// The file's MANIFEST entry, without the fields that depend on its sequence number.
    pub(crate) file: NewFile,
    pub(crate) smallest: FileEnd,
    pub(crate) largest: FileEnd,
    pub(crate) properties: Arc<TableProperties>,
}

impl PreparedFile {
    /// Returns true if the key ranges of the two files overlap.
    pub(crate) fn overlaps(&self, other: &PreparedFile, comparator: &Comparator) -> bool {
        self.begins_within(other, comparator) && other.begins_within(self, comparator)
    }

    /// Returns true if the file begins before `other` ends.
    fn begins_within(&self, other: &PreparedFile, comparator: &Comparator) -> bool {
        let order = comparator.compare_user(self.smallest.user_key(), other.largest.user_key());
        match other.largest {
            FileEnd::Entry(..) => order.is_le(),
            FileEnd::TombstoneEnd(_) => order.is_lt(),
        }
    }

    /// Returns true if a memtable has an entry in the file's range.
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

/// Files to ingest into one column family.
#[derive(Debug)]
pub(crate) struct FamilyIngest {
    pub(crate) family: Arc<Family>,
    /// The files. If they overlap, later ones are newer.
    pub(crate) files: Vec<PreparedFile>,
    pub(crate) options: IngestExternalFileOptions,
    /// True if any two of the files overlap.
    pub(crate) overlap: bool,
}

impl FamilyIngest {
    /// Returns true if `view` has entries in memory that must be flushed first.
    fn meets(&self, view: &SuperVersion) -> Result<bool> {
        if self.options.ingest_behind {
            // No flush is needed, because entries in memory are newer.
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

/// Destination of a file: its level, and the offset of its sequence number from the first one
/// taken; `None` if it keeps its own.
type Placed = (Level, Option<u64>);

/// Destinations of all files, and the reservations until they are installed.
struct Places {
    /// Destinations of the files of each family.
    of_families: Vec<Vec<Placed>>,
    reservations: Reservations,
    /// Holds snapshots off until then, if required.
    no_snapshots: Option<HeldOff>,
}

/// Key ranges of levels reserved against compactions.
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
    /// Adds all files that `preparing` returns, each family once, in one change, and then removes
    /// the original files in `moved`. All of it, including `preparing`, is one [job](Self::job).
    ///
    /// # Errors
    /// Those of `preparing`; the options do not allow it; there is a background error; the database
    /// is closed. No file was ingested then.
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

    /// Removes the original names of files that were linked.
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
        // In this order, because a caller that waits to take a snapshot waits for the writers'
        // turn.
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

    /// Holds writers, once the memtables do not overlap the files.
    ///
    /// Writers are released when background work is paused, because the caller that paused it may
    /// be about to write, and would never end the pause.
    async fn hold_flushed(self: &Arc<Self>, ingests: &[FamilyIngest]) -> Result<Box<dyn HeldWriters>> {
        loop {
            self.flush_before(ingests).await?;
            // Gives up at closing, because the log may stay locked then, and closing waits for this
            // job.
            let held = self.while_open(self.parts.flush.pipeline.hold()).await?;
            let paused = Box::pin(self.wait_for(|| self.state.lock().is_paused().then_some(())));
            match race(Box::pin(self.flush_before(ingests)), paused).await {
                Raced::First(flushed) => return flushed.map(|()| held),
                Raced::Second(()) => drop(held),
            }
            // Waits before the next flush, because each one seals a memtable, and too many of them,
            // unflushed during the pause, stop writers.
            self.wait_for(|| (!self.state.lock().is_paused()).then_some(())).await;
        }
    }

    /// Flushes memtables that overlap the files.
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

    /// Chooses the destination of each file, and reserves it against compactions.
    ///
    /// Lock: all of it under one, so that no compaction begins between the choice and the
    /// reservation.
    fn place(self: &Arc<Self>, ingests: &[FamilyIngest]) -> Result<Places> {
        let mut reservations = Reservations { background: self.clone(), held: Vec::new() };
        // Only for these files, because a file with its own number is hidden from older snapshots,
        // and a file that is ingested behind everything changes them at any time.
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
            // Several families need one, because their readers would otherwise see the files of one
            // before those of the others. `snapshot_consistency` needs one, because snapshots are
            // taken until the files are published.
            let wants_number = needs_number || ingests.len() > 1 || ingest.options.snapshot_consistency;
            match self.place_family(&mut state, ingest, needs_number, wants_number, &mut reservations.held) {
                Ok(placed) => places.push(placed),
                Err(error) => {
                    // Lock: releasing the reservations takes it.
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
                        return refuse("the last level is not reserved for files that are ingested behind");
                    }
                    Err(NotBehind::Occupied) => {
                        return refuse("the last level has tables in the file's range");
                    }
                    Err(NotBehind::Unnumbered(number)) => {
                        return refuse(&format!(
                            "table file {number} has entries of sequence number 0 in the file's range, which cannot be distinguished from older ones; such files come from `allow_global_seqno=false` and from compactions without `allow_ingest_behind`"
                        ));
                    }
                }
            } else {
                let place = self.with_context(jobs, family, |context| place_ingested(context, bounds, above));
                if allow_db_generated_files && (place.overlaps || needs_number) {
                    return refuse(
                        "a table of another database cannot be made newer than existing entries in its range, or than a snapshot",
                    );
                }
                if !allow_global_seqno && (place.overlaps || needs_number || ingest.overlap) {
                    return refuse(
                        "the file has to be newer than existing entries in its range, or than a snapshot, and `allow_global_seqno` is not set",
                    );
                }
                // A file of number 0 would prevent others from being ingested behind it.
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
                let text = format!(
                    "{path}: the file would be placed on level {}, not on the last, {last}",
                    level.index()
                );
                return Err(Error::new(ErrorKind::Incomplete, text));
            }
            if number.is_some() && file.properties.external_file_version() == Some(1) {
                return refuse("a file of version 1 has no place for a sequence number");
            }
            placed.push((level, number));
        }
        // Reserved only now, because files of one call do not conflict with each other.
        let running = &mut state.jobs(&self.options(), family).running;
        for (file, (level, _)) in ingest.files.iter().zip(&placed).filter(|(_, (level, _))| level.index() > 0)
        {
            let range = [&file.smallest, &file.largest].map(FileEnd::user_key);
            held.push((family.clone(), running.reserve(*level, range[0], range[1])));
        }
        Ok(placed)
    }

    /// Installs the files at their destinations, and publishes their sequence numbers. Returns the
    /// infos for listeners.
    async fn install_ingested(
        self: &Arc<Self>,
        ingests: Vec<FamilyIngest>,
        places: &[Vec<Placed>],
        held: &dyn HeldWriters,
    ) -> Result<Vec<(Arc<Family>, Level, ExternalFileIngestionInfo)>> {
        let versions = &self.parts.flush.versions;
        let first = held.next_seq();
        let numbers = places.iter().flatten().filter_map(|(_, number)| *number);
        // Kept numbers larger than the current one, such as those of a newer database's table, are
        // published with the next write.
        let kept = ingests.iter().flat_map(|ingest| &ingest.files).map(|file| file.file.largest_seq.0);
        // At least one number is taken, because a caller that depends on keys being unchanged since
        // a number must see that there was a write.
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
                // Followers of the logs need it to explain the gap in their sequence numbers.
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
                // Compat: the smallest epoch number marks files older than all others.
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
