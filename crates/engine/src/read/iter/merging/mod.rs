//! The merging iterator: merges memtables, L0 files and levels into one sequence of internal keys.
//!
//! In: seeks and moves. Out: the current entry, and the range tombstones of every table entered. A
//! seek places all children before it waits, so their reads are fetched in one round; a move
//! touches only the first child.
//!
//! Invariants:
//! - Once `settle` has returned, `order` holds exactly the children that are at an entry, in the
//!   order of the iteration.
//! - Two children never hold equal internal keys (sequence numbers are unique), except in a damaged
//!   database; then either may come first.

#[cfg(test)]
mod tests;

use crate::read::iter::index_position::To;
use crate::read::iter::level_cursor::LevelCursor;
use crate::read::iter::readahead::ReadaheadLimits;
use crate::read::iter::table_cursor::TableCursor;
use crate::read::iter::{Bounds, PrefixFilter};
use karst_base::error::{Error, Result};
use karst_base::perf_context::{self, PerfMetric};
use karst_format::comparator::Comparator;
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{self, SeqNo};
use karst_lsm::LevelFiles;
use karst_lsm::pick::CompactionInput;
use karst_lsm::range_del::Aggregate;
use karst_mem::skiplist::{Position, Sweep};
use karst_storage::memtable::MemTable;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::Table;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::value::Value;
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Debug)]
struct MemtableCursor {
    memtable: Arc<MemTable>,
    position: Option<Position>,
    /// Progress of a walk over all entries, for a job.
    sweep: Option<Box<Sweep>>,
    /// Error of the last seek: an entry is damaged, or the memtable as a whole.
    failed: Option<Error>,
}

impl MemtableCursor {
    fn new(memtable: &Arc<MemTable>) -> Self {
        Self { memtable: memtable.clone(), position: None, sweep: None, failed: None }
    }

    /// Creates the cursor of a job, which walks over all entries.
    fn of_job(memtable: &Arc<MemTable>) -> Self {
        Self { sweep: Some(Box::default()), ..Self::new(memtable) }
    }

    fn begin(&mut self, to: To, target: &[u8]) {
        if let (Some(sweep), To::First) = (&mut self.sweep, to) {
            **sweep = Sweep::default();
            self.failed = self.memtable.check_whole().err();
            self.position = if self.failed.is_none() { self.memtable.sweep(sweep) } else { None };
            return;
        }
        self.sweep = None;
        let sought = self.seek(to, target);
        self.position = sought.as_ref().copied().unwrap_or_default();
        self.failed = sought.err();
    }

    fn seek(&self, to: To, target: &[u8]) -> Result<Option<Position>> {
        let memtable = &self.memtable;
        memtable.check_whole()?;
        if matches!(to, To::AtOrAfter | To::AtOrBefore) {
            perf_context::count(PerfMetric::SeekOnMemtableCount, 1);
        }
        Ok(match to {
            To::First => memtable.first(),
            To::Last => memtable.last(),
            To::AtOrAfter => memtable.seek_ge(target)?,
            // The equal entry needs no special care, because no caller seeks backward for a key
            // that exists exactly.
            To::AtOrBefore => match memtable.seek_ge(target)? {
                Some(position) if memtable.key(position) == target => Some(position),
                _ => memtable.seek_lt(target),
            },
        })
    }

    #[inline]
    fn begin_next(&mut self) -> Result<()> {
        let next = match (&mut self.sweep, self.position) {
            (Some(sweep), _) => self.memtable.sweep(sweep),
            (None, Some(position)) => {
                perf_context::count(PerfMetric::NextOnMemtableCount, 1);
                self.memtable.next_of_many(position)
            }
            (None, None) => None,
        };
        if let (Some(before), Some(next)) = (self.position, next) {
            self.memtable.check_step(before, next)?;
        }
        self.move_to(next)
    }

    #[inline]
    fn begin_prev(&mut self) -> Result<()> {
        perf_context::count(PerfMetric::PrevOnMemtableCount, 1);
        let previous = self.position.and_then(|position| self.memtable.prev(position));
        if let (Some(previous), Some(position)) = (previous, self.position) {
            self.memtable.check_step(previous, position)?;
        }
        self.move_to(previous)
    }

    #[inline]
    fn move_to(&mut self, position: Option<Position>) -> Result<()> {
        self.position = position;
        position.map_or(Ok(()), |position| self.memtable.check(position))
    }

    /// Returns the error of the last seek or of the current entry, if any.
    fn settle(&self) -> Result<()> {
        match (&self.failed, self.position) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(position)) => self.memtable.check(position),
            (None, None) => Ok(()),
        }
    }
}

#[derive(Debug)]
enum Child {
    Memtable(MemtableCursor),
    Table(Box<TableCursor>),
    Level(Box<LevelCursor>),
}

impl Child {
    /// The smallest and the largest user key of the child's files; None for a memtable.
    fn boundaries(&self) -> Option<[&[u8]; 2]> {
        match self {
            Child::Memtable(_) => None,
            Child::Table(cursor) => {
                Some([cursor.file().smallest_user_key(), cursor.file().largest_user_key()])
            }
            Child::Level(cursor) => Some(cursor.boundaries()),
        }
    }

    fn begin(&mut self, to: To, target: &[u8], needs: &mut Needs) {
        match self {
            Child::Memtable(cursor) => cursor.begin(to, target),
            Child::Table(cursor) => cursor.begin(to, target, needs),
            Child::Level(cursor) => cursor.begin(to, target, needs),
        }
    }

    #[inline]
    fn begin_next(&mut self) -> Result<()> {
        match self {
            Child::Memtable(cursor) => cursor.begin_next(),
            Child::Table(cursor) => cursor.begin_next(),
            Child::Level(cursor) => cursor.begin_next(),
        }
    }

    #[inline]
    fn begin_prev(&mut self) -> Result<()> {
        match self {
            Child::Memtable(cursor) => cursor.begin_prev(),
            Child::Table(cursor) => cursor.begin_prev(),
            Child::Level(cursor) => cursor.begin_prev(),
        }
    }

    /// Returns true if the child is at an entry and has nothing left to do.
    #[inline]
    fn is_at_entry(&self) -> bool {
        match self {
            Child::Memtable(cursor) => cursor.position.is_some(),
            Child::Table(cursor) => cursor.is_settled() && cursor.valid(),
            Child::Level(cursor) => cursor.is_at_entry(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Child::Memtable(cursor) => cursor.memtable.key(cursor.position.expect("it stands at an entry")),
            Child::Table(cursor) => cursor.key(),
            Child::Level(cursor) => cursor.table().key(),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self {
            Child::Memtable(cursor) => {
                let position = cursor.position.expect("it stands at an entry");
                cursor.memtable.value(cursor.memtable.value_at(position))
            }
            Child::Table(cursor) => cursor.value(),
            Child::Level(cursor) => cursor.table().value(),
        }
    }

    /// The current key and value.
    #[inline]
    fn entry(&self) -> (&[u8], &[u8]) {
        match self {
            Child::Memtable(cursor) => {
                let position = cursor.position.expect("it stands at an entry");
                (cursor.memtable.key(position), cursor.memtable.value(cursor.memtable.value_at(position)))
            }
            Child::Table(cursor) => cursor.entry(),
            Child::Level(cursor) => cursor.table().entry(),
        }
    }

    fn pin_value(&self) -> Value {
        match self {
            Child::Memtable(cursor) => {
                let position = cursor.position.expect("it stands at an entry");
                Value::in_memtable(cursor.memtable.clone(), cursor.memtable.value_at(position))
            }
            Child::Table(cursor) => cursor.pin_value(),
            Child::Level(cursor) => cursor.table().pin_value(),
        }
    }
}

/// A child at an entry, with a part of its user key that decides most comparisons.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    /// Eight bytes of the user key behind the shared prefix, as a number that does not decrease in
    /// the direction of the iteration; 0 if the order is not bytewise.
    start: u64,
    child: u32,
}

/// Digest of a child's key: in bytewise order, sixteen bytes of the user key behind the shared
/// prefix, and the fields that decide between keys with equal bytes.
///
/// Invariant: in bytewise order a smaller user key has no larger `start` and `rest.more`, also
/// among keys that do not begin with the prefix.
#[derive(Clone, Copy, Debug)]
struct Noted {
    start: u64,
    rest: Rest,
}

/// Tie-breaker between keys of equal `start`.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// The second eight bytes behind the prefix.
    more: u64,
    /// Length of the user key behind the prefix, if the sixteen bytes hold all of it; otherwise
    /// [`Rest::LONG`].
    len: u32,
    trailer: u64,
}

impl Rest {
    /// Number of bytes behind the prefix that a digest holds.
    const BYTES: usize = 16;
    /// `len` of a key that is longer than its digest.
    const LONG: u32 = u32::MAX;
    const UNKNOWN: Rest = Rest { more: 0, len: Rest::LONG, trailer: 0 };

    /// Returns the order of the internal keys, or None if the digests do not decide it.
    #[inline]
    fn order(&self, other: &Rest) -> Option<Ordering> {
        if self.more != other.more {
            return Some(self.more.cmp(&other.more));
        }
        if self.len == Rest::LONG || other.len == Rest::LONG {
            return None;
        }
        Some(self.len.cmp(&other.len).then_with(|| other.trailer.cmp(&self.trailer)))
    }
}

/// Maximum number of children put in order without branches that depend on keys. The processor
/// cannot predict which of several runs comes next, and a misprediction costs more than comparing
/// with all of them.
const FEW: usize = 16;

/// Common prefix of all user keys, as far as the boundaries of files show.
#[derive(Debug, Default)]
struct SharedPrefix(Vec<u8>);

impl SharedPrefix {
    /// Computes the prefix from pairs of boundaries. Keys of memtables are not considered.
    fn of<'a>(mut boundaries: impl Iterator<Item = &'a [u8]>) -> Self {
        let Some(first) = boundaries.next() else { return SharedPrefix::default() };
        let same = |key: &[u8]| first.iter().zip(key).take_while(|(a, b)| a == b).count();
        let shared = boundaries.fold(first.len(), |shared, key| shared.min(same(key)));
        SharedPrefix(first[..shared].to_vec())
    }

    /// Returns the digest of an internal key.
    fn note(&self, internal_key: &[u8]) -> Noted {
        let user_key = key::user_key(internal_key);
        if user_key.starts_with(&self.0) {
            return self.note_within(internal_key);
        }
        let start = if user_key < &*self.0 { 0 } else { u64::MAX };
        Noted { start, rest: Rest { more: start, ..Rest::UNKNOWN } }
    }

    /// Returns the digest of a key between the boundaries, which begins with the prefix.
    #[inline]
    fn note_within(&self, internal_key: &[u8]) -> Noted {
        let (user_key, trailer) = key::split(internal_key);
        let prefix = self.0.len();
        let len = user_key.len().saturating_sub(prefix);
        Noted {
            start: number_at(internal_key, prefix, len),
            rest: Rest {
                more: number_at(internal_key, prefix + 8, len.saturating_sub(8)),
                len: if len <= Rest::BYTES { len as u32 } else { Rest::LONG },
                trailer,
            },
        }
    }
}

/// Returns eight bytes of an internal key from `at` on as a number; the first `len` are of the user
/// key, the others count as zeros.
#[inline]
fn number_at(internal_key: &[u8], at: usize, len: usize) -> u64 {
    // Reads the internal key, because the trailer behind the user key makes eight bytes readable at
    // any position in it.
    let Some(bytes) = internal_key.get(at..).and_then(|bytes| bytes.first_chunk::<8>()) else { return 0 };
    let number = u64::from_be_bytes(*bytes);
    if len < 8 { number & !(u64::MAX >> (8 * len)) } else { number }
}

/// Work left until the first child in order is at the iterator's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsettled {
    Nothing,
    /// Every child has started a move.
    All,
    /// The first child has started a move.
    First,
}

/// All entries of a column family in the order of internal keys.
#[derive(Debug)]
pub(super) struct Merging {
    comparator: Comparator,
    bytewise: bool,
    children: Vec<Child>,
    /// Children at an entry, in order. A sorted list instead of a heap, because there are few
    /// children, and while the first stays first it is compared with the second only.
    order: Vec<Ranked>,
    /// Tie-breakers of the children at an entry, by child.
    rests: Vec<Rest>,
    shared_prefix: SharedPrefix,
    forward: bool,
    unsettled: Unsettled,
    pub(super) tombstones: Aggregate,
    /// Files whose tombstones are in `tombstones`; few have any.
    entered: Vec<FileNumber>,
}

impl Merging {
    pub(super) fn new(
        superversion: &SuperVersion,
        read_seq: SeqNo,
        bounds: &Bounds,
        readahead: ReadaheadLimits,
        with_tombstones: bool,
    ) -> Self {
        let version = superversion.version();
        let comparator = version.comparator().clone();
        let mut tombstones = Aggregate::new(comparator.clone(), read_seq);
        let mut children = Vec::new();
        for memtable in superversion.memtables() {
            if memtable.is_empty() {
                continue;
            }
            if with_tombstones {
                for fragments in memtable.range_tombstone_parts() {
                    tombstones.add(fragments);
                }
            }
            children.push(Child::Memtable(MemtableCursor::new(memtable)));
        }
        for file in version.files(Level(0)) {
            let outside = bounds.upper_excludes(&comparator, file.smallest_user_key())
                || bounds.lower_excludes(&comparator, file.largest_user_key());
            if !outside {
                children.push(Child::Table(Box::new(TableCursor::new(file.clone(), 0, readahead))));
            }
        }
        for level in version.levels().iter().skip(1).filter(|level| !level.is_empty()) {
            children.push(Child::Level(Box::new(LevelCursor::new(level, &comparator, readahead))));
        }
        Merging::of(comparator, children, tombstones)
    }

    /// Creates an iterator over the entries of the given memtables and files only, with all
    /// versions. Each L0 file is a child of its own.
    pub(super) fn of_inputs(
        comparator: &Comparator,
        memtables: &[Arc<MemTable>],
        inputs: &[CompactionInput],
        readahead: ReadaheadLimits,
    ) -> Self {
        let mut children = Vec::new();
        for memtable in memtables {
            children.push(Child::Memtable(MemtableCursor::of_job(memtable)));
        }
        for input in inputs.iter().filter(|input| !input.files.is_empty()) {
            if input.level == Level(0) {
                let cursors = input.files.iter().map(|file| TableCursor::new(file.clone(), 0, readahead));
                children.extend(cursors.map(|cursor| Child::Table(Box::new(cursor))));
            } else {
                let files = Arc::new(LevelFiles::new(input.level, input.files.clone(), comparator));
                children.push(Child::Level(Box::new(LevelCursor::new(&files, comparator, readahead))));
            }
        }
        Merging::of(comparator.clone(), children, Aggregate::new(comparator.clone(), SeqNo::MAX))
    }

    fn of(comparator: Comparator, children: Vec<Child>, tombstones: Aggregate) -> Self {
        let boundaries = children.iter().flat_map(Child::boundaries).flatten();
        Merging {
            bytewise: matches!(comparator, Comparator::Bytewise),
            comparator,
            order: Vec::with_capacity(children.len()),
            rests: vec![Rest::UNKNOWN; children.len()],
            shared_prefix: SharedPrefix::of(boundaries),
            children,
            forward: true,
            unsettled: Unsettled::Nothing,
            tombstones,
            entered: Vec::new(),
        }
    }

    /// Starts a move of every child to `to`.
    pub(super) fn begin(&mut self, to: To, target: &[u8], needs: &mut Needs) {
        self.forward = to.is_forward();
        self.order.clear();
        if matches!(to, To::AtOrAfter | To::AtOrBefore) {
            perf_context::count(PerfMetric::SeekChildSeekCount, self.children.len() as u64);
        }
        for child in &mut self.children {
            child.begin(to, target, needs);
        }
        self.unsettled = Unsettled::All;
    }

    /// The number of the child with the current entry.
    pub(super) fn first_child(&self) -> u32 {
        self.order[0].child
    }

    /// Returns the table cursor of a child that is at an entry of a table, or None.
    pub(super) fn table_at_entry(&mut self, child: u32) -> Option<&mut TableCursor> {
        let child = &mut self.children[child as usize];
        if !child.is_at_entry() {
            return None;
        }
        match child {
            Child::Memtable(_) => None,
            Child::Table(cursor) => Some(cursor),
            Child::Level(cursor) => Some(cursor.table_mut()),
        }
    }

    /// Starts a move to the next entry in the direction of the last `begin`.
    #[inline]
    pub(super) fn begin_advance(&mut self) -> Result<()> {
        debug_assert!(self.unsettled == Unsettled::Nothing && !self.order.is_empty());
        let child = &mut self.children[self.order[0].child as usize];
        if self.forward {
            child.begin_next()?
        } else {
            child.begin_prev()?
        }
        self.unsettled = Unsettled::First;
        Ok(())
    }

    /// Runs `begin_advance`, and settles if the next entry is in memory; returns true if it is.
    /// Otherwise the iterator remains to be settled.
    #[inline]
    pub(super) fn advance_at_once(&mut self) -> Result<bool> {
        self.begin_advance()?;
        let at_entry = self.children[self.order[0].child as usize].is_at_entry();
        if at_entry {
            self.first_has_moved();
        }
        Ok(at_entry)
    }

    /// Completes the move that the last `begin` or `begin_advance` started.
    #[inline]
    pub(super) fn settle(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        match self.unsettled {
            Unsettled::Nothing => Ok(()),
            Unsettled::First if self.children[self.order[0].child as usize].is_at_entry() => {
                self.first_has_moved();
                Ok(())
            }
            Unsettled::First => self.settle_first(ctx, needs, prefix, bounds),
            Unsettled::All => self.settle_all(ctx, needs, prefix, bounds),
        }
    }

    fn settle_first(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let first = self.order[0].child;
        self.settle_child(first as usize, ctx, needs, prefix, bounds)?;
        if self.children[first as usize].is_at_entry() {
            self.first_has_moved();
            return Ok(());
        }
        self.order.remove(0);
        self.unsettled = Unsettled::Nothing;
        Ok(())
    }

    /// Moves the first child, whose entry has changed, to its place in the order.
    #[inline]
    fn first_has_moved(&mut self) {
        self.unsettled = Unsettled::Nothing;
        let Some(second) = self.order.get(1) else { return };
        let second = second.start;
        let child = self.order[0].child;
        let moving = Ranked { start: self.note(child), child };
        if moving.start < second {
            self.order[0] = moving;
            return;
        }
        let others = &self.order[1..];
        let (before, ties) = if others.len() <= FEW {
            let before: usize = others.iter().map(|r| usize::from(r.start < moving.start)).sum();
            (before, others.iter().map(|r| usize::from(r.start == moving.start)).sum())
        } else {
            let before = others.partition_point(|r| r.start < moving.start);
            (before, others[before..].partition_point(|r| r.start == moving.start))
        };
        let mut place = before;
        if ties > 0 {
            let behind = |r: &Ranked| self.order_of_ties(r.child, moving.child).is_lt();
            // Check the last tie first: of entries of one user key the newest moved first, so most
            // children that reach the next key come behind all ties.
            place += match others[before..before + ties].split_last() {
                Some((last, rest)) if !behind(last) => rest.partition_point(behind),
                _ => ties,
            };
        }
        if others.len() > FEW {
            self.order.copy_within(1..=place, 0);
            self.order[place] = moving;
            return;
        }
        let last = self.order.len() - 1;
        for index in 0..last {
            let here = if index == place { moving } else { self.order[index] };
            self.order[index] = if index < place { self.order[index + 1] } else { here };
        }
        if place == last {
            self.order[last] = moving;
        }
    }

    #[cold]
    fn settle_all(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let mut waiting = false;
        for index in 0..self.children.len() {
            match self.settle_child(index, ctx, needs, prefix, bounds) {
                Ok(()) => {}
                Err(Stop::Need) => waiting = true,
                Err(error) => return Err(error),
            }
            // Stop here, because with one read at a time a request for the next child's block would
            // only queue.
            if waiting && !ctx.options.async_io {
                break;
            }
        }
        if waiting {
            return Err(Stop::Need);
        }
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        for index in 0..self.children.len() {
            if self.children[index].is_at_entry() {
                let child = index as u32;
                order.push(Ranked { start: self.note(child), child });
            }
        }
        // Sorted by keys, because digests of a damaged file's keys need not agree with them, and
        // sorting requires a total order.
        order.sort_unstable_by(|a, b| {
            a.start.cmp(&b.start).then_with(|| self.order_by_keys(a.child, b.child))
        });
        self.order = order;
        self.unsettled = Unsettled::Nothing;
        Ok(())
    }

    fn settle_child(
        &mut self,
        index: usize,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        prefix: &PrefixFilter,
        bounds: &Bounds,
    ) -> Result<(), Stop> {
        let (tombstones, entered) = (&mut self.tombstones, &mut self.entered);
        let mut opened = |table: &Arc<Table>, cursor: &TableCursor| {
            if let Some(fragments) = table.range_tombstones()
                && !ctx.options.ignore_range_deletions
                && !entered.contains(&table.number())
            {
                entered.push(table.number());
                let file = cursor.file();
                // A range tombstone's end that closes the file is not part of its range.
                let included = file.largest_trailer() != key::RANGE_TOMBSTONE_SENTINEL;
                tombstones.add_clipped(
                    fragments.clone(),
                    Some(file.smallest_user_key()),
                    Some((file.largest_user_key(), included)),
                );
            }
        };
        match &mut self.children[index] {
            Child::Memtable(cursor) => Ok(cursor.settle()?),
            Child::Table(cursor) => {
                cursor.settle(ctx, needs, prefix, bounds)?;
                if let Some(table) = cursor.table() {
                    opened(table, cursor);
                }
                Ok(())
            }
            Child::Level(cursor) => cursor.settle(ctx, needs, prefix, bounds, &mut opened),
        }
    }

    /// Returns true if the iterator is at an entry. It must be settled.
    #[inline]
    pub(super) fn valid(&self) -> bool {
        debug_assert!(self.unsettled == Unsettled::Nothing);
        !self.order.is_empty()
    }

    /// The internal key of the entry.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.children[self.order[0].child as usize].key()
    }

    /// Returns true if a range tombstone hides the entry.
    pub(super) fn hides_entry(&mut self) -> bool {
        let internal = self.children[self.order[0].child as usize].key();
        let (user_key, trailer) = key::split(internal);
        self.tombstones.hides(user_key, SeqNo(trailer >> 8))
    }

    /// The value of the entry, as it is stored.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        self.children[self.order[0].child as usize].value()
    }

    /// The internal key of the entry, and its value as it is stored.
    #[inline]
    pub(super) fn entry(&self) -> (&[u8], &[u8]) {
        self.children[self.order[0].child as usize].entry()
    }

    /// The value of the entry, with a pin on its memory.
    pub(super) fn pin_value(&self) -> Value {
        self.children[self.order[0].child as usize].pin_value()
    }

    /// Stores the digest of a child's key and returns its start, as in [`Ranked`].
    #[inline]
    fn note(&mut self, child: u32) -> u64 {
        if !self.bytewise || self.children.len() < 2 {
            return 0;
        }
        let of = &self.children[child as usize];
        let noted = match of {
            Child::Memtable(_) => self.shared_prefix.note(of.key()),
            Child::Table(_) | Child::Level(_) => self.shared_prefix.note_within(of.key()),
        };
        self.rests[child as usize] = noted.rest;
        if self.forward { noted.start } else { !noted.start }
    }

    /// The order of two children's keys with equal start, in the direction of the iteration.
    fn order_of_ties(&self, a: u32, b: u32) -> Ordering {
        match self.rests[a as usize].order(&self.rests[b as usize]) {
            Some(order) if self.forward => order,
            Some(order) => order.reverse(),
            None => self.order_by_keys(a, b),
        }
    }

    /// The order of two children's keys in the direction of the iteration.
    fn order_by_keys(&self, a: u32, b: u32) -> Ordering {
        let (a, b) = (self.children[a as usize].key(), self.children[b as usize].key());
        let order = self.comparator.compare_internal(a, b);
        if self.forward { order } else { order.reverse() }
    }
}
