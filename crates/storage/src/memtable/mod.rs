//! Memtables: the newest entries of a column family, sorted, in memory.
//!
//! In: entries (from WAL replay; from writers). Out: for a lookup all entries of a key that a
//! reader may see, newest first; positions for iterators; range tombstones, kept apart in
//! fragments; sizes for the properties.
//!
//! Invariants:
//! - Entries are ordered as in tables: by user key, then from new to old. No two have the same key
//!   and sequence number.
//! - Entries are never changed or removed. Readers take no lock; writers may add at the same time.
//!   A reader at sequence number `s` sees the same for as long as it lives if everything up to `s`
//!   was added before `s` was published.
//! - With `memtable_protection_bytes_per_key` an entry has a checksum behind its value, and nobody
//!   is given an entry that does not match it.
//! - If an insert panics, as a comparator may, readers get an error from then on, because entries,
//!   acknowledged ones too, may be missing or out of place. A reader that has its place goes on.
//! - An entry's bytes stay where they are until the memtable is dropped, so a value may be handed
//!   out as a position and an `Arc<MemTable>`.

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
use karst_mem::skiplist::{KeyOrder, Position, SkipList, Sweep, Unlinked};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tombstones::Tombstones;

pub use protection::{Protection, pair as pair_checksum};
pub use seal::Seal;
pub use stored::stored_kind;

/// Internal keys in a comparator's order.
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
    /// Tells which keys are not in `list`.
    filter: Option<Filter>,
    protection: Protection,
    /// Searches check every entry that they pass.
    checks_searches: bool,
    /// Readers check that each entry is behind the one that they come from
    /// (`paranoid_memory_checks`).
    checks_order: bool,
    /// Its family takes no writes (`disallow_memtable_writes`).
    refuses_writes: bool,
    tombstones: Tombstones,
    counts: Counts,
    sealed: OnceLock<Seal>,
    /// See `begins_behind`.
    begun_behind: OnceLock<SeqNo>,
    /// Its part of the budget of all memtables, once a writer follows it.
    charge: OnceLock<Charge>,
    /// Somebody was told that it should be sealed.
    asked: AtomicBool,
    /// It grew past its size before it was sealed.
    overfull: AtomicBool,
    /// Whether a write was ordered into it; its insert may be still to come.
    touched: AtomicBool,
    /// When that write came, in seconds of Unix time; 0 if there was none.
    first_written_s: AtomicU64,
    /// The oldest log that has what a commit marker of a later one brought here; `u64::MAX` if
    /// there is none.
    needed_log: AtomicU64,
    /// Whether an insert panicked.
    broken: AtomicBool,
}

/// An insert. Dropped if that panics.
struct Inserting<'a>(&'a MemTable);

impl Drop for Inserting<'_> {
    fn drop(&mut self) {
        // Why counted: nobody shall pass it over for an empty one.
        self.0.count(1, 0);
        // Ordering: who inserts publishes what is visible behind this, and who reads has taken that
        // before.
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

/// An entry as a lookup finds it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its sequence number.
    pub seq: SeqNo,
    /// What it is.
    pub kind: ValueType,
    /// Where its value is, for handing it out together with the memtable.
    pub at: ValueAt,
}

/// Where a value, or a part of one, is in a memtable. Bound to that memtable: with another,
/// [`MemTable::value`] panics.
#[derive(Clone, Copy, Debug)]
pub struct ValueAt {
    position: Position,
    start: u32,
    end: u32,
}

impl ValueAt {
    /// A part of it.
    ///
    /// # Panics
    /// When `part` reaches beyond it.
    pub fn slice(self, part: Range<usize>) -> Self {
        let len = (self.end - self.start) as usize;
        assert!(part.start <= part.end && part.end <= len, "{part:?} of {len} bytes");
        Self { start: self.start + part.start as u32, end: self.start + part.end as u32, ..self }
    }
}

/// Two entries of one user key with the same sequence number: the writer's numbering is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateEntry;

impl MemTable {
    /// An empty memtable for a column family, with the filter and the checksums that its options
    /// ask for.
    pub fn of(config: &FamilyConfig) -> Self {
        let options = &config.options;
        let protection = Protection::of(options.memtable_protection_bytes_per_key);
        // Why so small where the buffer is: it is full when its memory is allocated, used or not.
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

    /// An empty memtable without a filter and without checksums.
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

    /// Says that it is in tables, or never will be: no writer waits for its memory any more.
    pub fn flushed(&self) {
        if let Some(charge) = self.charge.get() {
            charge.seal();
            charge.flushed();
        }
    }

    /// Charges `budget` with `memory_bytes`, which it has now.
    #[inline]
    pub fn follow_budget(&self, budget: &WriteBufferManager, memory_bytes: usize) {
        self.charge.get_or_init(|| budget.charge()).follow(memory_bytes);
    }

    /// Says that a write goes to it; `now` is the time since 1970. Called under the lock that
    /// orders writes.
    #[inline]
    pub fn touch(&self, now: impl FnOnce() -> Duration) {
        // Ordering: written and, where it matters, read under one lock. Why not stored always: the
        // line is every writer's.
        if !self.touched.load(Ordering::Relaxed) {
            self.first_written_s.store(now().as_secs(), Ordering::Relaxed);
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    /// When the first write came to it, in seconds of Unix time, if one did; what was recovered
    /// from logs does not count. Asked once it is sealed.
    pub fn first_written_s(&self) -> Option<u64> {
        Some(self.first_written_s.load(Ordering::Relaxed)).filter(|time| *time != 0)
    }

    /// Says that a commit writes to it what was prepared in `log`. Called under the lock that
    /// orders writes.
    pub fn need_log(&self, log: FileNumber) {
        self.needed_log.fetch_min(log.0, Ordering::AcqRel);
    }

    /// The oldest log with a prepared section whose commit wrote to it.
    pub fn needed_log(&self) -> Option<FileNumber> {
        Some(FileNumber(self.needed_log.load(Ordering::Acquire))).filter(|log| log.0 != u64::MAX)
    }

    /// Whether it holds nothing and no write goes to it. Asked under the lock that orders writes.
    pub fn is_untouched(&self) -> bool {
        !self.touched.load(Ordering::Relaxed) && self.is_empty()
    }

    /// How many range tombstones it holds.
    #[inline]
    pub fn range_tombstone_count(&self) -> usize {
        self.tombstones.count()
    }

    /// Adds a point entry, or for `RangeDeletion` a tombstone from `user_key` up to, not including,
    /// `value`. `user_key` ends in its timestamp where the comparator has them.
    ///
    /// Compat: a range deletion whose end is not behind its start is kept out, as it deletes
    /// nothing.
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

    /// The same, of what had the checksum `pair` ([`pair_checksum`]) before it came here. A
    /// memtable without checksums takes no notice of it.
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

    // Why apart: what is not protected has nothing to do with it.
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

    /// An insert of something that it should have has panicked. Before that is visible.
    #[cold]
    pub fn mark_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Refuses to be searched once an insert has panicked.
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

    /// Takes in a point entry, not a range deletion. It counts from now on, and is found once it is
    /// [linked](Self::link).
    pub fn prepare(&self, entry: &PointEntry<'_>) -> Unlinked {
        debug_assert!(entry.1 != ValueType::RangeDeletion, "tombstones are kept apart");
        self.count(1, u64::from(entry.1.is_deletion()));
        self.make(entry)
    }

    /// Lets prepared entries be found.
    pub fn link(&self, prepared: impl IntoIterator<Item = Unlinked>) -> Result<(), DuplicateEntry> {
        let inserting = Inserting(self);
        let duplicates = self.list.link_all(prepared);
        std::mem::forget(inserting);
        match duplicates {
            0 => Ok(()),
            _ => Err(DuplicateEntry),
        }
    }

    /// Adds several point entries, none of them a range deletion. Faster than one after the other,
    /// as their searches take turns in waiting for memory.
    pub fn add_many(&self, entries: &[PointEntry<'_>]) -> Result<(), DuplicateEntry> {
        debug_assert!(entries.iter().all(|e| e.1 != ValueType::RangeDeletion), "tombstones are kept apart");
        self.link(entries.iter().map(|entry| self.make(entry)))?;
        self.count(entries.len() as u64, entries.iter().filter(|e| e.1.is_deletion()).count() as u64);
        Ok(())
    }

    /// The entries of one user key, newest first, from the internal key `seek_key` on (the user key
    /// with the reader's sequence number and `ValueType::FOR_SEEK`). Range tombstones are not among
    /// them; see [`covering_tombstone`](Self::covering_tombstone).
    ///
    /// # Errors
    /// As [`check_whole`](Self::check_whole); `memtable_verify_per_key_checksum_on_seek`: the
    /// search passed an entry that does not match its checksum; `paranoid_memory_checks`: it passed
    /// one that is not in its place. As items: an entry does not match
    /// its own.
    #[inline]
    pub fn entries_of<'a>(&'a self, seek_key: &'a [u8]) -> Result<Entries<'a>> {
        self.check_whole()?;
        let user_key = key::user_key(seek_key);
        let may_hold =
            self.filter.as_ref().is_none_or(|filter| filter.may_hold(self.comparator.bare(user_key)));
        let next = if may_hold { self.seek_ge(seek_key)? } else { None };
        Ok(Entries { memtable: self, user_key, next })
    }

    /// The sequence number of the newest range tombstone over `user_key` that a reader at
    /// `read_seq` sees; 0 if there is none.
    #[inline]
    pub fn covering_tombstone(&self, user_key: &[u8], read_seq: SeqNo) -> SeqNo {
        self.tombstones.covering_seq(&self.comparator, user_key, read_seq)
    }

    /// Compares range tombstones with their checksums, and their fragments with them. For flushes.
    pub fn check_tombstones(&self) -> Result<()> {
        self.tombstones.check(&self.comparator)
    }

    /// All range tombstones in one list of fragments, for a table; `None` without tombstones.
    pub fn range_tombstones(&self) -> Option<Arc<Fragments>> {
        self.tombstones.whole(&self.comparator)
    }

    /// All range tombstones for lookups, in parts with some of them each.
    pub fn range_tombstone_parts(&self) -> Vec<Arc<Fragments>> {
        self.tombstones.parts(&self.comparator)
    }

    /// About how many entries the user keys from `start` on and before `end` have, and how much
    /// memory they take, in bytes, with their share of what the newest block of the arena has left.
    /// Range tombstones do not count.
    pub fn estimate_between(&self, start: &[u8], end: &[u8]) -> (u64, u64) {
        let (start, end) = (self.comparator.before_all_of(start), self.comparator.before_all_of(end));
        let all = self.list.len() as u64;
        let entries = (self.list.estimate_between(&start, &end) as u64).min(all);
        let bytes = u128::from(entries) * self.list.memory_usage() as u128 / u128::from(all.max(1));
        (entries, bytes as u64)
    }

    /// The smallest entry.
    pub fn first(&self) -> Option<Position> {
        self.list.first()
    }

    /// The largest entry.
    pub fn last(&self) -> Option<Position> {
        self.list.last()
    }

    /// The smallest entry at or behind an internal key.
    ///
    /// # Errors
    /// With `memtable_verify_per_key_checksum_on_seek`, an entry on the way does not match its
    /// checksum; with `paranoid_memory_checks`, it is not in its place.
    #[inline]
    pub fn seek_ge(&self, internal_key: &[u8]) -> Result<Option<Position>> {
        if self.checks_searches || self.checks_order {
            return self.checked_seek_ge(internal_key);
        }
        Ok(self.list.seek_ge(internal_key))
    }

    /// The largest entry before an internal key.
    pub fn seek_lt(&self, internal_key: &[u8]) -> Option<Position> {
        self.list.seek_lt(internal_key)
    }

    /// The entry after this one.
    #[inline]
    pub fn next(&self, position: Position) -> Option<Position> {
        self.list.next(position)
    }

    /// The entry after this one, for who goes through them.
    #[inline]
    pub fn next_of_many(&self, position: Position) -> Option<Position> {
        self.list.next_of_many(position)
    }

    /// The next entry for who goes through all of them.
    #[inline]
    pub fn sweep(&self, sweep: &mut Sweep) -> Option<Position> {
        self.list.sweep(sweep)
    }

    /// The entry before this one. Takes a search.
    pub fn prev(&self, position: Position) -> Option<Position> {
        self.list.prev(position)
    }

    /// The internal key of an entry.
    #[inline]
    pub fn key(&self, position: Position) -> &[u8] {
        self.list.key(position)
    }

    /// Where the value of an entry is.
    #[inline]
    pub fn value_at(&self, position: Position) -> ValueAt {
        // Invariant: the list refuses values of 4 GiB and more, and a protected one ends in its
        // checksum.
        let end = self.list.value(position).len() - self.protection.bytes();
        ValueAt { position, start: 0, end: end as u32 }
    }

    /// The user key of the entry that has a value, with its timestamp.
    pub fn user_key_of(&self, at: ValueAt) -> &[u8] {
        key::user_key(self.list.key(at.position))
    }

    /// The bytes of a value.
    #[inline]
    pub fn value(&self, at: ValueAt) -> &[u8] {
        &self.list.value(at.position)[at.start as usize..at.end as usize]
    }

    /// Whether it holds nothing, neither entries nor range tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entry_count() == 0
    }

    /// How many entries it holds, range tombstones included.
    #[inline]
    pub fn entry_count(&self) -> u64 {
        self.counts.entries.load(Ordering::Relaxed)
    }

    /// How many of them are deletions of single keys.
    pub fn delete_count(&self) -> u64 {
        self.counts.deletes.load(Ordering::Relaxed)
    }

    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::memory_bytes);
        self.list.memory_usage() + filter + self.tombstones.memory_bytes()
    }

    /// The order of its user keys.
    pub fn comparator(&self) -> &Comparator {
        &self.comparator
    }
}

#[cold]
fn broken() -> Error {
    let text = "a memtable cannot be read, as an insert into it panicked; what was acknowledged is in the log, and found when the database is opened anew";
    Error::new(ErrorKind::Panicked, text)
}

/// The entries of one user key, newest first.
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
        // Why before its key is looked at: a key that changed is another's, and ends the search as
        // if there were nothing.
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
        // Invariant: `add` only takes value types that exist.
        let kind = ValueType::from_u8(trailer as u8).expect("a memtable holds known value types");
        let at = self.memtable.value_at(position);
        Some(Ok(Entry { seq: SeqNo(trailer >> 8), kind, at }))
    }
}
