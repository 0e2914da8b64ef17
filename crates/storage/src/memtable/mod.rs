//! Memtables: the newest entries of a column family, sorted, in memory.
//!
//! In: entries (from WAL replay; from writers). Out: for a lookup all entries of a key visible to a
//! reader, newest first; positions for iterators; range tombstones, stored separately in fragments;
//! sizes for the properties.
//!
//! Invariants:
//! - Entries are ordered as in tables: by user key, then from new to old. No two have the same key
//!   and sequence number.
//! - Entries are never changed or removed. Readers take no lock; writers may add concurrently. A
//!   reader at sequence number `s` sees the same entries throughout its life if everything up to
//!   `s` was added before `s` was published.
//! - With `memtable_protection_bytes_per_key` each entry has a checksum after its value, and an
//!   entry that does not match it is never returned.
//! - If an insert panics, for example in a comparator, readers get an error from then on, because
//!   entries, even acknowledged ones, may be missing or out of place. A reader that already has a
//!   position continues.
//! - An entry's bytes stay in place until the memtable is dropped, so a value may be returned as a
//!   position and an `Arc<MemTable>`.

mod checks;
mod filter;
mod protection;
mod seal;
mod stored;
#[cfg(test)]
mod tests;
mod tombstones;

use filter::Filter;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::FamilyConfig;
use karst_base::pacing::{Charge, WriteBufferManager};
use karst_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use karst_format::comparator::Comparator;
use karst_format::ids::FileNumber;
use karst_format::key::{self, SeqNo, ValueType};
use karst_lsm::range_del::{Fragments, RangeTombstone};
pub use karst_mem::skiplist::LANES;
use karst_mem::skiplist::{KeyOrder, Position, SkipList, Sweep, Unlinked};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tombstones::Tombstones;

pub use protection::{Protection, pair as pair_checksum};
pub use seal::Seal;
pub use stored::stored_kind;

/// Number of entries from which a memtable is larger than a processor's own caches.
const WARMED_FROM: usize = 8192;

/// Orders internal keys by a comparator.
#[derive(Clone, Debug)]
struct InternalOrder(Comparator);

impl KeyOrder for InternalOrder {
    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        self.0.compare_internal(a, b)
    }
}

/// The newest entries of a column family.
pub struct MemTable {
    comparator: Comparator,
    list: SkipList<InternalOrder>,
    /// Filter of the keys in `list`.
    filter: Option<Filter>,
    protection: Protection,
    /// True if searches verify every entry they pass.
    checks_searches: bool,
    /// True if readers check that each entry is greater than the one before
    /// (`paranoid_memory_checks`).
    checks_order: bool,
    /// True if the family accepts no writes (`disallow_memtable_writes`).
    refuses_writes: bool,
    tombstones: Tombstones,
    counts: Counts,
    sealed: OnceLock<Seal>,
    /// See `begins_behind`.
    begun_behind: OnceLock<SeqNo>,
    /// The memtable's share of the memory budget, set at the first charge.
    charge: OnceLock<Charge>,
    /// True if a caller was asked to have it sealed.
    asked: AtomicBool,
    /// True if it grew past its size limit before it was sealed.
    overfull: AtomicBool,
    /// True if a write was ordered into it; its insert may be pending.
    touched: AtomicBool,
    /// Time of that write, Unix time in seconds; 0 if there was none.
    first_written_s: AtomicU64,
    /// The oldest log with entries that a commit marker in a later log inserted here; `u64::MAX` if
    /// none.
    needed_log: AtomicU64,
    /// True if an insert panicked.
    broken: AtomicBool,
}

/// Guard of an insert; its drop runs only if the insert panics.
struct Inserting<'a>(&'a MemTable);

impl Drop for Inserting<'_> {
    fn drop(&mut self) {
        // Counted so that the memtable is not skipped as empty.
        self.0.count(1, 0);
        // Ordering: the writer publishes visibility after this store, and a reader has loaded
        // visibility before it checks.
        self.0.mark_broken();
    }
}

#[derive(Debug, Default)]
struct Counts {
    entries: AtomicU64,
    deletes: AtomicU64,
}

impl std::fmt::Debug for MemTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemTable")
            .field("entries", &self.entry_count())
            .field("range_tombstones", &self.tombstones.count())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}

/// An entry to be added: sequence number, kind, user key, value.
pub type PointEntry<'a> = (SeqNo, ValueType, &'a [u8], &'a [u8]);

/// An entry found by a lookup.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The entry's sequence number.
    pub seq: SeqNo,
    /// The entry's type.
    pub kind: ValueType,
    /// Location of its value, to be returned together with the memtable.
    pub at: ValueAt,
}

/// Location of a value, or of a part of one, in a memtable. Only valid with that memtable:
/// [`MemTable::value`] of another one panics.
#[derive(Clone, Copy, Debug)]
pub struct ValueAt {
    position: Position,
    start: u32,
    end: u32,
}

impl ValueAt {
    /// Returns the location of a part of the value.
    ///
    /// # Panics
    /// If `part` exceeds the value.
    pub fn slice(self, part: Range<usize>) -> Self {
        let len = (self.end - self.start) as usize;
        assert!(part.start <= part.end && part.end <= len, "{part:?} of {len} bytes");
        Self { start: self.start + part.start as u32, end: self.start + part.end as u32, ..self }
    }
}

/// The error for two entries with equal user key and sequence number: the writer's numbering is
/// broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateEntry;

impl MemTable {
    /// Creates an empty memtable for a column family, with the filter and checksums set by its
    /// options.
    pub fn of(config: &FamilyConfig) -> Self {
        let options = &config.options;
        let protection = Protection::of(options.memtable_protection_bytes_per_key);
        // Small in proportion to the buffer, because allocated memory counts towards the buffer's
        // size even if unused.
        let block_bytes = match options.arena_block_size {
            0 => options.write_buffer_size / 16,
            asked => asked,
        };
        Self {
            list: SkipList::with_block_bytes(InternalOrder(config.comparator.clone()), block_bytes),
            filter: Filter::of(config),
            protection,
            checks_searches: protection.is_on() && options.memtable_verify_per_key_checksum_on_seek,
            checks_order: options.paranoid_memory_checks,
            refuses_writes: options.disallow_memtable_writes,
            tombstones: Tombstones::new(protection),
            ..Self::new(config.comparator.clone())
        }
    }

    /// Creates an empty memtable without filter and checksums.
    pub fn new(comparator: Comparator) -> Self {
        Self {
            list: SkipList::new(InternalOrder(comparator.clone())),
            filter: None,
            protection: Protection::default(),
            checks_searches: false,
            checks_order: false,
            refuses_writes: false,
            tombstones: Tombstones::default(),
            comparator,
            counts: Counts::default(),
            sealed: OnceLock::new(),
            begun_behind: OnceLock::new(),
            charge: OnceLock::new(),
            asked: AtomicBool::new(false),
            overfull: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            first_written_s: AtomicU64::new(0),
            needed_log: AtomicU64::new(u64::MAX),
            broken: AtomicBool::new(false),
        }
    }

    /// Marks the memtable as flushed or discarded: writers no longer wait for its memory.
    pub fn flushed(&self) {
        if let Some(charge) = self.charge.get() {
            charge.seal();
            charge.flushed();
        }
    }

    /// Updates its charge to `budget`: it now has `memory_bytes`.
    #[inline]
    pub fn follow_budget(&self, budget: &WriteBufferManager, memory_bytes: usize) {
        self.charge.get_or_init(|| budget.charge()).follow(memory_bytes);
    }

    /// Records that a write is ordered into it; `now` is the time since 1970. Called under the lock
    /// that orders writes.
    #[inline]
    pub fn touch(&self, now: impl FnOnce() -> Duration) {
        // Ordering: written and, where it matters, read under one lock. Stored only once because
        // all writers share the cache line.
        if !self.touched.load(Ordering::Relaxed) {
            self.first_written_s.store(now().as_secs(), Ordering::Relaxed);
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the Unix time in seconds of its first write, if any; entries recovered from logs do
    /// not count. Called once it is sealed.
    pub fn first_written_s(&self) -> Option<u64> {
        Some(self.first_written_s.load(Ordering::Relaxed)).filter(|time| *time != 0)
    }

    /// Records that a commit inserts entries prepared in `log`. Called under the lock that orders
    /// writes.
    pub fn need_log(&self, log: FileNumber) {
        self.needed_log.fetch_min(log.0, Ordering::AcqRel);
    }

    /// Returns the oldest log with a prepared section whose commit inserted entries here.
    pub fn needed_log(&self) -> Option<FileNumber> {
        Some(FileNumber(self.needed_log.load(Ordering::Acquire))).filter(|log| log.0 != u64::MAX)
    }

    /// Returns true if it is empty and no write is ordered into it. Called under the lock that
    /// orders writes.
    pub fn is_untouched(&self) -> bool {
        !self.touched.load(Ordering::Relaxed) && self.is_empty()
    }

    /// Returns the number of range tombstones.
    #[inline]
    pub fn range_tombstone_count(&self) -> usize {
        self.tombstones.count()
    }

    /// Adds a point entry, or for `RangeDeletion` a tombstone from `user_key` up to, not including,
    /// `value`. `user_key` ends in its timestamp if the comparator has timestamps.
    ///
    /// Compat: a range deletion whose end is not greater than its start is not added, because it
    /// deletes nothing.
    pub fn add(
        &self,
        seq: SeqNo,
        kind: ValueType,
        user_key: &[u8],
        value: &[u8],
    ) -> Result<(), DuplicateEntry> {
        let checksum = if self.protection.is_on() { pair_checksum(user_key, value) } else { 0 };
        self.add_with_checksum(&(seq, kind, user_key, value), checksum)
    }

    /// Adds an entry with the known checksum `pair` ([`pair_checksum`]), which a memtable without
    /// checksums ignores.
    pub fn add_with_checksum(&self, entry: &PointEntry<'_>, pair: u64) -> Result<(), DuplicateEntry> {
        let &(seq, kind, user_key, value) = entry;
        if kind == ValueType::RangeDeletion {
            let inserting = Inserting(self);
            let is_none = self.comparator.compare_user(user_key, value).is_ge();
            std::mem::forget(inserting);
            if is_none {
                return Ok(());
            }
            self.tombstones.add(RangeTombstone::new(user_key, value, seq), pair);
        } else {
            let made =
                if self.protection.is_on() { self.make_protected(entry, pair) } else { self.make(entry) };
            self.link(std::iter::once(made))?;
        }
        self.count(1, u64::from(kind.is_deletion()));
        Ok(())
    }

    #[inline]
    fn make(&self, entry: &PointEntry<'_>) -> Unlinked {
        let (seq, kind, user_key, value) = entry;
        if self.protection.is_on() {
            return self.make_protected(entry, pair_checksum(user_key, value));
        }
        if let Some(filter) = &self.filter {
            filter.add(self.comparator.bare(user_key));
        }
        let trailer = key::pack_trailer(*seq, stored_kind(&self.comparator, *kind));
        self.list.prepare(user_key, &trailer.to_le_bytes(), value)
    }

    // Separate so that inserts without protection do not include it.
    #[inline(never)]
    fn make_protected(&self, (seq, kind, user_key, value): &PointEntry<'_>, pair: u64) -> Unlinked {
        if let Some(filter) = &self.filter {
            filter.add(self.comparator.bare(user_key));
        }
        let trailer = key::pack_trailer(*seq, stored_kind(&self.comparator, *kind));
        let checksum = self.protection.checksum(pair, trailer);
        let checksum = &checksum[..self.protection.bytes()];
        self.list.prepare_parts([user_key, &trailer.to_le_bytes()], [value, checksum])
    }

    /// Marks the memtable after an insert into it panicked. Called before that write becomes
    /// visible.
    #[cold]
    pub fn mark_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Returns an error after an insert has panicked.
    ///
    /// # Errors
    /// `Panicked`.
    #[inline]
    pub fn check_whole(&self) -> Result<()> {
        if self.broken.load(Ordering::Relaxed) { Err(broken()) } else { Ok(()) }
    }

    fn count(&self, entries: u64, deletes: u64) {
        self.counts.entries.fetch_add(entries, Ordering::Relaxed);
        if deletes > 0 {
            self.counts.deletes.fetch_add(deletes, Ordering::Relaxed);
        }
    }

    /// Stores a point entry, not a range deletion. It counts from now on, and is found once it is
    /// [linked](Self::link).
    pub fn prepare(&self, entry: &PointEntry<'_>) -> Unlinked {
        debug_assert!(entry.1 != ValueType::RangeDeletion, "tombstones are kept apart");
        self.count(1, u64::from(entry.1.is_deletion()));
        self.make(entry)
    }

    /// Makes prepared entries visible to searches.
    pub fn link(&self, prepared: impl IntoIterator<Item = Unlinked>) -> Result<(), DuplicateEntry> {
        let inserting = Inserting(self);
        let duplicates = self.list.link_all(prepared);
        std::mem::forget(inserting);
        match duplicates {
            0 => Ok(()),
            _ => Err(DuplicateEntry),
        }
    }

    /// Adds several point entries, none of them a range deletion. Faster than adding one by one,
    /// because their searches overlap memory latencies.
    pub fn add_many(&self, entries: &[PointEntry<'_>]) -> Result<(), DuplicateEntry> {
        debug_assert!(entries.iter().all(|e| e.1 != ValueType::RangeDeletion), "tombstones are kept apart");
        self.link(entries.iter().map(|entry| self.make(entry)))?;
        self.count(entries.len() as u64, entries.iter().filter(|e| e.1.is_deletion()).count() as u64);
        Ok(())
    }

    /// Returns the entries of one user key, newest first, from the internal key `seek_key` on (the
    /// user key with the reader's sequence number and `ValueType::FOR_SEEK`), without range
    /// tombstones; see [`covering_tombstone`](Self::covering_tombstone).
    ///
    /// # Errors
    /// Those of [`check_whole`](Self::check_whole). With
    /// `memtable_verify_per_key_checksum_on_seek`, the search passed an entry that does not match
    /// its checksum; with `paranoid_memory_checks`, one out of order. An item is an error if the
    /// entry does not match its checksum.
    #[inline]
    pub fn entries_of<'a>(&'a self, seek_key: &'a [u8]) -> Result<Entries<'a>> {
        self.check_whole()?;
        let user_key = key::user_key(seek_key);
        let may_hold =
            self.filter.as_ref().is_none_or(|filter| filter.may_hold(self.comparator.bare(user_key)));
        let next = if may_hold { self.seek_ge(seek_key)? } else { None };
        Ok(Entries { memtable: self, user_key, next })
    }

    /// Returns true if [`warm`](Self::warm) saves time: not in a small memtable, which the caches
    /// hold, nor with a filter, which ends most searches. False if searches check entries.
    #[inline]
    pub fn gains_from_warming(&self) -> bool {
        let is_checked = self.checks_searches || self.checks_order || self.check_whole().is_err();
        self.filter.is_none() && self.list.len() >= WARMED_FROM && !is_checked
    }

    /// Brings into the processor's caches, for up to [`LANES`] internal keys at the same time, what
    /// [`entries_of`](Self::entries_of) reads for each.
    pub fn warm(&self, seek_keys: &[&[u8]]) {
        let _only_read = self.list.seek_ge_together(seek_keys);
    }

    /// Returns the sequence number of the newest range tombstone over `user_key` that is visible at
    /// `read_seq`; 0 if none is.
    #[inline]
    pub fn covering_tombstone(&self, user_key: &[u8], read_seq: SeqNo) -> SeqNo {
        self.tombstones.covering_seq(&self.comparator, user_key, read_seq)
    }

    /// Compares range tombstones with their checksums, and their fragments with them. For flushes.
    pub fn check_tombstones(&self) -> Result<()> {
        self.tombstones.check(&self.comparator)
    }

    /// Returns all range tombstones in one list of fragments, for a table; `None` without
    /// tombstones.
    pub fn range_tombstones(&self) -> Option<Arc<Fragments>> {
        self.tombstones.whole(&self.comparator)
    }

    /// Returns all range tombstones for lookups, in parts with some of them each.
    pub fn range_tombstone_parts(&self) -> Vec<Arc<Fragments>> {
        self.tombstones.parts(&self.comparator)
    }

    /// Estimates the entries with user keys from `start` (included) to `end` (excluded): their
    /// number and their memory in bytes, with a share of the unused arena block. Range tombstones
    /// are not counted.
    pub fn estimate_between(&self, start: &[u8], end: &[u8]) -> (u64, u64) {
        let (start, end) = (self.comparator.before_all_of(start), self.comparator.before_all_of(end));
        let all = self.list.len() as u64;
        let entries = (self.list.estimate_between(&start, &end) as u64).min(all);
        let bytes = u128::from(entries) * self.list.memory_usage() as u128 / u128::from(all.max(1));
        (entries, bytes as u64)
    }

    /// Returns the position of the smallest entry.
    pub fn first(&self) -> Option<Position> {
        self.list.first()
    }

    /// Returns the position of the largest entry.
    pub fn last(&self) -> Option<Position> {
        self.list.last()
    }

    /// Returns the smallest entry at or after an internal key.
    ///
    /// # Errors
    /// With `memtable_verify_per_key_checksum_on_seek`, an entry passed does not match its
    /// checksum; with `paranoid_memory_checks`, it is out of order.
    #[inline]
    pub fn seek_ge(&self, internal_key: &[u8]) -> Result<Option<Position>> {
        if self.checks_searches || self.checks_order {
            return self.checked_seek_ge(internal_key);
        }
        Ok(self.list.seek_ge(internal_key))
    }

    /// Returns the largest entry before an internal key.
    pub fn seek_lt(&self, internal_key: &[u8]) -> Option<Position> {
        self.list.seek_lt(internal_key)
    }

    /// Returns the entry after this one.
    #[inline]
    pub fn next(&self, position: Position) -> Option<Position> {
        self.list.next(position)
    }

    /// Returns the entry after this one, optimized for scans.
    #[inline]
    pub fn next_of_many(&self, position: Position) -> Option<Position> {
        self.list.next_of_many(position)
    }

    /// Returns the next entry of a sweep over all entries.
    #[inline]
    pub fn sweep(&self, sweep: &mut Sweep) -> Option<Position> {
        self.list.sweep(sweep)
    }

    /// Returns the entry before this one. Takes a search.
    pub fn prev(&self, position: Position) -> Option<Position> {
        self.list.prev(position)
    }

    /// Returns an entry's internal key.
    #[inline]
    pub fn key(&self, position: Position) -> &[u8] {
        self.list.key(position)
    }

    /// Returns the location of an entry's value.
    #[inline]
    pub fn value_at(&self, position: Position) -> ValueAt {
        // Invariant: the list refuses values of 4 GiB and more, and a protected one ends in its
        // checksum.
        let end = self.list.value(position).len() - self.protection.bytes();
        ValueAt { position, start: 0, end: end as u32 }
    }

    /// Returns the user key, with its timestamp, of the entry that has the value.
    pub fn user_key_of(&self, at: ValueAt) -> &[u8] {
        key::user_key(self.list.key(at.position))
    }

    /// Returns the bytes of a value.
    #[inline]
    pub fn value(&self, at: ValueAt) -> &[u8] {
        &self.list.value(at.position)[at.start as usize..at.end as usize]
    }

    /// Returns true if it has neither entries nor range tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0
    }

    /// Returns the number of entries, range tombstones included.
    #[inline]
    pub fn entry_count(&self) -> u64 {
        self.counts.entries.load(Ordering::Relaxed)
    }

    /// Returns the number of point deletions among them.
    pub fn delete_count(&self) -> u64 {
        self.counts.deletes.load(Ordering::Relaxed)
    }

    /// Returns the memory in use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::memory_bytes);
        self.list.memory_usage() + filter + self.tombstones.memory_bytes()
    }

    /// Returns the comparator of its user keys.
    pub fn comparator(&self) -> &Comparator {
        &self.comparator
    }
}

#[cold]
fn broken() -> Error {
    let text = "a memtable cannot be read, as an insert into it panicked; acknowledged writes are in the log, and are recovered when the database is opened anew";
    Error::new(ErrorKind::Panicked, text)
}

/// Iterator over the entries of one user key, newest first.
#[derive(Debug)]
pub struct Entries<'a> {
    memtable: &'a MemTable,
    user_key: &'a [u8],
    next: Option<Position>,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry>;

    #[inline]
    fn next(&mut self) -> Option<Result<Entry>> {
        let position = self.next?;
        // Checked before the key is compared, because a changed key would belong to another user
        // key and end the search without an error.
        if let Err(error) = self.memtable.check(position) {
            self.next = None;
            return Some(Err(error));
        }
        let (user_key, trailer) = key::split(self.memtable.key(position));
        if self.memtable.comparator.compare_user(user_key, self.user_key).is_ne() {
            self.next = None;
            return None;
        }
        self.next = self.memtable.next(position);
        if let Some(Err(error)) = self.next.map(|next| self.memtable.check_step(position, next)) {
            self.next = None;
            return Some(Err(error));
        }
        // Invariant: `add` only accepts value types that exist.
        let kind = ValueType::from_u8(trailer as u8).expect("a memtable holds known value types");
        let at = self.memtable.value_at(position);
        Some(Ok(Entry { seq: SeqNo(trailer >> 8), kind, at }))
    }
}
