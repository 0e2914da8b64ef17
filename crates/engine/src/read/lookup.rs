//! One point lookup: finds the newest visible entry of a key, or merges its operands.
//!
//! In: a key, the sequence number to read at, a superversion. Out: a value that pins its block or
//! memtable, or nothing. The lookup is plain code that may be called repeatedly: it stops where
//! something has to be fetched ([`Stop::Need`]) and, after the fetch, continues from the start of
//! its phase in the current file.
//!
//! Search order, as in RocksDB: memtables from new to old, L0 from new to old, then level by
//! level. In a file: its range tombstones, then its filter, then the index, then entries from new
//! to old.
//!
//! Invariant: nothing is applied twice. Taking a merge operand also moves the sought key behind it
//! (to the next lower sequence number), so that a repeated step begins with the entry after it; the
//! stage separates tombstones and filters from entries.
//!
//! Each memtable and each table is searched from the snapshot on, regardless of the entries taken
//! from newer ones. In a sound database an older source has nothing newer. A database whose logs
//! were replayed beside tables that already had their entries (`wal/replay_duplicates.rs`) may have
//! newer entries in an older source, and none may be lost. The result then equals that of an
//! iterator, which meets entries in the order of their numbers: operands down to the newest base,
//! and duplicates counted twice.

use crate::read::found_value::{Base, existing_value, read_blob, without_packed_seqno};
use crate::read::sought_key::{SoughtKey, Timestamp};
use crate::read::{View, merge};
use karst_base::error::{Error, Result, Shown};
use karst_base::options::{ReadOptions, ReadTier};
use karst_base::perf_context::{self, LevelMetric, PerfMetric};
use karst_base::stats::Ticker;
use karst_format::block::BlockCursor;
use karst_format::handle::BlockHandle;
use karst_format::key::{SeqNo, ValueType, pack_trailer};
use karst_lsm::SearchPosition;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::table::{KeyHash, Odds, Table};
use karst_storage::value::Value;
use std::sync::Arc;

/// Largest filter, in bytes, that is requested for a file that a lookup has not reached, because
/// reading more takes about as long as one more wait.
const LIKELY_BYTES: u64 = 64 << 10;

/// The lookup's stage in the current file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Tombstones,
    Filter,
    Entries,
}

#[derive(Debug)]
enum Phase {
    Memtables,
    Tables,
    Resolve(Base),
}

/// The effect of one entry on the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Not visible; the search continues with older entries.
    Skip,
    /// A merge operand; the search continues with older entries.
    Operand,
    /// A deletion of the key, or an entry under a range tombstone; the search is over.
    Nothing,
    /// The entry's value, direct or indirect; the search is over.
    Value,
    Timed,
    Blob,
    Entity,
}

impl Verdict {
    /// Returns the end of the search for this verdict and the entry's value.
    #[inline]
    fn base(self, value: Value) -> Result<Base> {
        Ok(match self {
            Verdict::Value => Base::Value(value),
            Verdict::Blob => Base::Blob(value),
            Verdict::Entity => Base::Entity(value),
            Verdict::Timed => Base::Value(without_packed_seqno(&value)?),
            Verdict::Nothing => Base::Nothing,
            Verdict::Skip | Verdict::Operand => unreachable!("the search goes on"),
        })
    }
}

/// The state of one point lookup. Lives on the caller's stack until the first miss.
#[derive(Debug)]
pub(crate) struct Lookup {
    key: SoughtKey,
    snapshot: SeqNo,
    phase: Phase,
    position: SearchPosition,
    /// Level and index of the current file.
    file: Option<(u8, u32)>,
    stage: Stage,
    /// The data block that the current file's index leads to, once the index was searched.
    located: Option<BlockHandle>,
    /// An entry of the key was found in the current file.
    matched: bool,
    /// A range tombstone deletes entries older than this sequence number.
    covered_below: SeqNo,
    /// Merge operands found so far, newest first.
    operands: Vec<Value>,
    /// The sequence number of each operand.
    operand_seqs: Vec<SeqNo>,
    hash: KeyHash,
    pub(crate) needs: Needs,
}

impl Lookup {
    /// Creates a lookup of `user_key` as of `snapshot` and the options' timestamp, if set.
    #[inline]
    pub(crate) fn new(user_key: &[u8], options: &ReadOptions, snapshot: SeqNo) -> Self {
        Lookup {
            key: SoughtKey::new(user_key, options, snapshot),
            snapshot,
            phase: Phase::Memtables,
            position: SearchPosition::START,
            file: None,
            stage: Stage::Tombstones,
            located: None,
            matched: false,
            covered_below: SeqNo::ZERO,
            operands: Vec::new(),
            operand_seqs: Vec::new(),
            hash: KeyHash::default(),
            needs: Needs::new(),
        }
    }

    /// Continues as far as data in memory allows.
    #[inline]
    pub(crate) fn step(&mut self, view: &View<'_>) -> Result<Option<Value>, Stop> {
        if let Phase::Memtables = self.phase {
            let timer = view.ctx.thread_timer();
            let found = self.in_memtables(view);
            view.ctx.stop(timer, PerfMetric::GetFromMemtableTime);
            self.phase = match found? {
                Some(base) => Phase::Resolve(base),
                None if view.ctx.options.read_tier == ReadTier::Memtable => Phase::Resolve(Base::Nothing),
                None => Phase::Tables,
            };
        }
        if let Phase::Tables = self.phase {
            // Once the lookup waits, the waiting loop's timer covers the search and all that
            // follows.
            let timer = (!self.needs.is_in_use()).then(|| view.ctx.thread_timer());
            let found = self.in_tables(view);
            if let Some(timer) = timer {
                view.ctx.stop(timer, PerfMetric::GetFromOutputFilesTime);
            }
            self.phase = Phase::Resolve(found?.unwrap_or(Base::Nothing));
        }
        self.resolve(view)
    }

    #[inline]
    fn in_memtables(&mut self, view: &View<'_>) -> Result<Option<Base>> {
        for memtable in view.superversion.memtables() {
            if memtable.is_empty() {
                continue;
            }
            if self.covered_below > SeqNo::ZERO {
                return Ok(Some(Base::Nothing));
            }
            perf_context::count(PerfMetric::GetFromMemtableCount, 1);
            if !view.ctx.options.ignore_range_deletions {
                let seq = memtable.covering_tombstone(self.key.user_key(), self.snapshot);
                self.covered_below = self.covered_below.max(seq);
            }
            if !self.operands.is_empty() {
                self.key.move_to_start(view.ctx.options, self.snapshot);
            }
            // A copy of the key, because taking an operand moves the key during the walk.
            let key = self.key.clone();
            for entry in memtable.entries_of(&key)? {
                let entry = entry?;
                let value = || Value::in_memtable(memtable.clone(), entry.at);
                let verdict = self.judge(view, entry.seq, entry.kind)?;
                if verdict != Verdict::Skip && view.ctx.options.timestamp.is_some() {
                    self.key.take(memtable.user_key_of(entry.at), view.ctx.options);
                }
                match verdict {
                    Verdict::Skip => continue,
                    Verdict::Operand if !self.take_operand(view, entry.seq, value())? => continue,
                    _ => self.end_at(verdict, entry.seq, entry.kind),
                }
                view.ctx.stats().tick(Ticker::MemtableHit);
                return Ok(Some(match verdict {
                    Verdict::Nothing | Verdict::Operand => Base::Nothing,
                    found => found.base(value())?,
                }));
            }
        }
        view.ctx.stats().tick(Ticker::MemtableMiss);
        Ok(None)
    }

    #[inline]
    fn in_tables(&mut self, view: &View<'_>) -> Result<Option<Base>, Stop> {
        let version = view.version();
        loop {
            let (level, index) = match self.file {
                Some(file) => file,
                None => {
                    // Files come from new to old, so a tombstone found in one file covers all
                    // entries of the next.
                    if self.covered_below > SeqNo::ZERO {
                        return Ok(None);
                    }
                    // The search in a level compares timestamps, and the search in the last file
                    // moved the key, so the key moves back before the next file is chosen.
                    self.key.move_to_start(view.ctx.options, self.snapshot);
                    let user_key = self.key.user_key();
                    let Some(next) = version.next_candidate(user_key, self.snapshot, &mut self.position)
                    else {
                        return Ok(None);
                    };
                    let next = (next.level.0, next.index as u32);
                    self.located = None;
                    self.stage = Stage::Tombstones;
                    self.matched = false;
                    *self.file.insert(next)
                }
            };
            if let Some(base) = self.in_file(view, level, index as usize)? {
                return Ok(Some(base));
            }
            self.file = None;
        }
    }

    // Always inlined, because the compiler otherwise moves the result of its one caller twice.
    #[inline(always)]
    fn in_file(&mut self, view: &View<'_>, level: u8, index: usize) -> Result<Option<Base>, Stop> {
        let file = &view.version().levels()[usize::from(level)].files()[index];
        let table = self.needs.table(&view.ctx, file, u32::from(level))?;
        let found = self.in_table(view, &table, level);
        if let Err(Stop::Need) = found
            && view.ctx.cache().is_overcommitted()
        {
            table.keep_metadata_in_hand(&view.ctx, &mut self.needs);
        }
        found
    }

    #[inline]
    fn in_table(&mut self, view: &View<'_>, table: &Arc<Table>, level: u8) -> Result<Option<Base>, Stop> {
        if self.stage == Stage::Tombstones {
            if let Some(tombstones) = table.range_tombstones()
                && !view.ctx.options.ignore_range_deletions
            {
                let seq = tombstones.covering_seq(table.comparator(), self.key.user_key(), self.snapshot);
                self.covered_below = self.covered_below.max(seq);
            }
            self.stage = Stage::Filter;
        }
        if self.stage == Stage::Filter {
            if !view.superversion.skips_filter(level) {
                let may_match = table.key_may_match(&view.ctx, &mut self.needs, &self.key, &mut self.hash);
                if let Err(Stop::Need) = may_match {
                    self.ask_for_the_likely(view, table, level);
                }
                if let Some(may_match) = may_match? {
                    table.count_filter(&view.ctx, may_match, level);
                    if self.needs.is_in_use() {
                        view.ctx.tables.filter_history.note(level, may_match);
                    }
                    if !may_match {
                        return Ok(None);
                    }
                }
            }
            self.stage = Stage::Entries;
        }
        self.entries(view, table, level)
    }

    #[inline]
    fn entries(&mut self, view: &View<'_>, table: &Arc<Table>, level: u8) -> Result<Option<Base>, Stop> {
        let has_timestamps = view.ctx.options.timestamp.is_some();
        // `searched` is the last block that was searched to its end. `behind` is true while the
        // current block comes from `locate_behind`.
        let (mut searched, mut behind) = (None, false);
        loop {
            let handle = match self.located {
                Some(handle) => handle,
                None => {
                    let mut found = table.locate(&view.ctx, &mut self.needs, &self.key)?;
                    if has_timestamps && found.is_some() && found == searched {
                        // The index key of the block may equal the sought key; entries of the key
                        // with earlier timestamps then follow in the next block.
                        found = table.locate_behind(&view.ctx, &mut self.needs, &self.key)?;
                        behind = true;
                    }
                    let Some(handle) = found else { return Ok(None) };
                    if searched == Some(handle) {
                        self.note_absence(table);
                        return Ok(None);
                    }
                    *self.located.insert(handle)
                }
            };
            let block = table.data_block(&view.ctx, &mut self.needs, handle)?;
            self.located = None;
            let mut cursor = BlockCursor::new();
            let mut at_entry = table.seek_point(&mut cursor, block.as_data(), &self.key, handle)?;
            let mut none_here = true;
            while at_entry {
                let entry = table.entry(&cursor, block.as_data(), handle)?;
                if !table.comparator().equal_user(entry.user_key, self.key.user_key()) {
                    self.note_absence(table);
                    return Ok(None);
                }
                none_here = false;
                if !self.matched {
                    self.matched = true;
                    self.note_passed(table, true);
                    table.count_true_positive(&view.ctx, level);
                }
                let (seq, kind) = (entry.seq, entry.kind);
                let verdict = self.judge(view, seq, kind)?;
                if has_timestamps {
                    // A skipped entry moves the key too, because the search continues behind it.
                    let user_key = entry.user_key;
                    match verdict {
                        Verdict::Skip => self.key.move_to_timestamp_of(user_key),
                        _ => self.key.take(user_key, view.ctx.options),
                    }
                }
                match verdict {
                    // The key moves so that, if the block ends here, the next block is located
                    // behind this entry.
                    Verdict::Skip => self.key.move_behind(seq),
                    Verdict::Nothing => {
                        self.end_at(verdict, seq, kind);
                        return Ok(Some(Base::Nothing));
                    }
                    Verdict::Operand => {
                        let operand = Value::in_block(block.clone(), cursor.value_range());
                        if self.take_operand(view, seq, operand)? {
                            return Ok(Some(Base::Nothing));
                        }
                    }
                    found => {
                        self.end_at(verdict, seq, kind);
                        count_hit(&view.ctx, level);
                        let range = cursor.value_range();
                        return found.base(Value::in_block(block, range)).map(Some).map_err(Stop::Error);
                    }
                }
                if (table.global_seqno().is_some() || seq == SeqNo::ZERO) && !has_timestamps {
                    // Such a file has one entry per key, and sequence number 0 has nothing older.
                    // With timestamps it has one entry per timestamp.
                    return Ok(None);
                }
                at_entry = table.next_entry(&mut cursor, block.as_data(), handle)?;
            }
            if none_here && (behind || !has_timestamps) {
                self.note_absence(table);
                return Ok(None);
            }
            (searched, behind) = (Some(handle), false);
            // Every entry from the sought one to the end of the block was of this key. Older
            // entries are in the next block, which the moved key leads to.
        }
    }

    /// Records that the filter was wrong if the file had no entry of the key at all.
    #[inline]
    fn note_absence(&self, table: &Table) {
        if !self.matched {
            self.note_passed(table, false);
        }
    }

    /// Records in `table` if a key that passed its filter was in it. Only lookups that waited
    /// record this, because a cache hit has no time to spare and nothing to gain.
    #[inline]
    fn note_passed(&self, table: &Table, found: bool) {
        if self.needs.is_in_use() {
            table.note_passed(found);
        }
    }

    /// Returns the effect of an entry of the key, as RocksDB decides it.
    #[inline]
    fn judge(&self, view: &View<'_>, seq: SeqNo, kind: ValueType) -> Result<Verdict> {
        if view.hides(seq, self.snapshot) {
            return Ok(Verdict::Skip);
        }
        if self.covered_below > seq {
            return Ok(Verdict::Nothing);
        }
        Ok(match kind {
            ValueType::Value => Verdict::Value,
            kind if kind.is_deletion() => Verdict::Nothing,
            ValueType::Merge => Verdict::Operand,
            ValueType::BlobIndex => Verdict::Blob,
            ValueType::WideColumnEntity => Verdict::Entity,
            ValueType::ValuePreferredSeqno => Verdict::Timed,
            other => return Err(self.unknown_kind(other)),
        })
    }

    #[cold]
    fn unknown_kind(&self, kind: ValueType) -> Error {
        Error::not_supported(format!("key {} has an entry of type {kind:?}", Shown(self.key.user_key())))
    }

    /// Takes a merge operand and moves the key behind it. Returns true if the operator needs no
    /// more operands.
    #[cold]
    fn take_operand(&mut self, view: &View<'_>, seq: SeqNo, value: Value) -> Result<bool> {
        let operator = view.superversion.config().merge_operator()?;
        perf_context::count(PerfMetric::InternalMergePointLookupCount, 1);
        // Newest first; operands arrive in this order, unless an older source has a newer entry.
        let place = match self.key.has_taken() {
            false => self.operand_seqs.partition_point(|taken| *taken >= seq),
            true => self.operands.len(),
        };
        self.operands.insert(place, value);
        self.operand_seqs.insert(place, seq);
        self.key.move_behind(seq);
        Ok(merge::suffices(&**operator, &self.operands))
    }

    /// Ends the search at this entry: drops operands that sort behind it.
    #[inline]
    fn end_at(&mut self, verdict: Verdict, seq: SeqNo, kind: ValueType) {
        if !self.operands.is_empty() && verdict != Verdict::Operand {
            self.drop_operands_behind(seq, kind);
        }
    }

    /// Drops operands that sort behind this entry in internal key order.
    #[cold]
    fn drop_operands_behind(&mut self, seq: SeqNo, kind: ValueType) {
        let end = pack_trailer(seq, kind);
        if self.key.has_taken() {
            // With timestamps the order is by timestamp first, which is the order of arrival.
            return;
        }
        self.operand_seqs.retain(|taken| pack_trailer(*taken, ValueType::Merge) > end);
        self.operands.truncate(self.operand_seqs.len());
    }

    /// Takes the timestamp of the entry found, in a column family with timestamps.
    pub(crate) fn take_timestamp(&mut self) -> Option<Timestamp> {
        self.key.take_timestamp()
    }

    /// Turns the end of the search into the answer.
    #[inline]
    fn resolve(&mut self, view: &View<'_>) -> Result<Option<Value>, Stop> {
        let Phase::Resolve(base) = &mut self.phase else { unreachable!("the search is over") };
        match base {
            Base::Nothing if self.operands.is_empty() => Ok(None),
            Base::Value(value) if self.operands.is_empty() => Ok(Some(value.take())),
            _ => self.resolve_indirect(view),
        }
    }

    #[cold]
    fn resolve_indirect(&mut self, view: &View<'_>) -> Result<Option<Value>, Stop> {
        // An older source may have a range tombstone that is newer than operands already taken.
        let covered = self.covered_below;
        if covered > SeqNo::ZERO {
            self.operands.truncate(self.operand_seqs.partition_point(|seq| *seq >= covered));
        }
        let Phase::Resolve(base) = &self.phase else { unreachable!("the search is over") };
        let user_key = self.key.user_key();
        let existing =
            existing_value(view, user_key, base, |need| read_blob(&view.ctx, &mut self.needs, need))?;
        if self.operands.is_empty() {
            return Ok(existing);
        }
        let bare = view.version().comparator().bare(user_key);
        Ok(Some(merge::full(view, bare, existing, &self.operands)?))
    }

    /// Requests the probable next read while the current file's filter is being read, by the
    /// history of the level's filters. If they mostly pass keys, that is the index; if those of L0
    /// mostly reject keys, the filters of its other files.
    ///
    /// Filters below L0 are not requested, because they are larger, and reading them is wasted if
    /// the key is in L0 after all.
    ///
    /// Invariant: that of [`look_ahead`](Self::look_ahead).
    #[cold]
    fn ask_for_the_likely(&mut self, view: &View<'_>, table: &Arc<Table>, level: u8) {
        let odds = view.ctx.tables.filter_history.odds(level);
        if !view.ctx.options.async_io || odds == Odds::Open {
            return;
        }
        self.needs.hold_hits(true);
        if odds == Odds::Passes {
            // Filter and index are adjacent in the file, unless they are partitioned: one read.
            let _ = table.locate(&view.ctx, &mut self.needs, &self.key);
        } else if level == 0 {
            let (version, mut position) = (view.version(), self.position);
            let user_key = self.key.user_key();
            while let Some(next) = version.next_candidate(user_key, self.snapshot, &mut position)
                && next.level.0 == 0
                && let Some(table) = view.ctx.tables.opened(next.file)
                && table.filter_bytes() <= LIKELY_BYTES
            {
                let _ = table.key_may_match(&view.ctx, &mut self.needs, &self.key, &mut self.hash);
            }
        }
        self.needs.hold_hits(false);
    }

    /// Requests the blocks that the lookup will need beyond the one it waits for: tables, filter
    /// and index partitions of every file that may hold the key, and the data block of the newest
    /// of these files (of all, once there is an operand; of older ones too while the filter that
    /// passed the key is often wrong).
    ///
    /// Invariant: only records needs; the lookup's progress does not change, and errors are left to
    /// the step that meets them.
    pub(crate) fn look_ahead(&mut self, view: &View<'_>) {
        if !matches!(self.phase, Phase::Tables) {
            return;
        }
        self.needs.hold_hits(true);
        let version = view.version();
        let mut position = self.position;
        let mut next = self.file;
        let mut newest_unknown = true;
        // The key for files after the current one.
        let mut start = self.key.clone();
        start.move_to_start(view.ctx.options, self.snapshot);
        loop {
            let (level, index) = match next.take() {
                Some(file) => file,
                None => {
                    let user_key = start.user_key();
                    match version.next_candidate(user_key, self.snapshot, &mut position) {
                        Some(candidate) => (candidate.level.0, candidate.index as u32),
                        None => break,
                    }
                }
            };
            let file = &version.levels()[usize::from(level)].files()[index as usize];
            let Ok(table) = self.needs.table(&view.ctx, file, u32::from(level)) else {
                newest_unknown = false;
                continue;
            };
            let wants_data = newest_unknown || !self.operands.is_empty();
            if !wants_data && table.metadata_is_held() {
                continue;
            }
            let in_hand = self.file == Some((level, index));
            let may_match =
                if view.superversion.skips_filter(level) || (in_hand && self.stage == Stage::Entries) {
                    Ok(None)
                } else {
                    table.key_may_match(&view.ctx, &mut self.needs, &self.key, &mut self.hash)
                };
            if let Ok(Some(false)) = may_match {
                continue;
            }
            let located = match self.located.filter(|_| in_hand) {
                Some(handle) => Ok(Some(handle)),
                None => {
                    let key = if in_hand { &self.key } else { &start };
                    table.locate(&view.ctx, &mut self.needs, key)
                }
            };
            if may_match.is_ok()
                && wants_data
                && let Ok(Some(handle)) = located
            {
                let _ = table.data_block(&view.ctx, &mut self.needs, handle);
            }
            // This is the newest file that may have the key, even if its block is not located yet.
            newest_unknown &= table.filter_is_often_wrong();
        }
        self.needs.hold_hits(false);
    }
}

#[inline]
fn count_hit(ctx: &ReadCtx<'_>, level: u8) {
    ctx.stats().tick(match level {
        0 => Ticker::GetHitL0,
        1 => Ticker::GetHitL1,
        _ => Ticker::GetHitL2AndUp,
    });
    perf_context::count_at_level(LevelMetric::UserKeyReturnCount, u32::from(level), 1);
}
