//! Range tombstones of a memtable: a growing list, and its fragments, which readers update.
//!
//! The fragments are in parts, each of a run of the list, and each of more than [`MERGE_FACTOR`]
//! times as many tombstones as the next. A reader that finds tombstones without fragments builds a
//! part of them, merged with as many of the last parts as keeps this true. The number of times a
//! tombstone is cut, and the number of parts a lookup searches, therefore grow with the logarithm
//! of the number of tombstones, for any interleaving of writes and reads.
//!
//! Invariant: a reader gets every tombstone whose `add` returned before its call. While no
//! tombstone exists, or none is added, a reader takes no lock. A writer never reads earlier
//! tombstones. Lock: `list` is held to add one tombstone, or by one reader to cut fragments.

use super::protection::{Protection, pair};
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_base::sync::ArcSwapOption;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicUsize, Ordering};
use karst_format::comparator::Comparator;
use karst_format::filter::hash64;
use karst_format::key::SeqNo;
use karst_lsm::range_del::{Fragments, RangeTombstone};
use std::sync::Arc;

/// A part has more tombstones than this factor times those of the next part. A smaller factor makes
/// more parts, all of which a lookup searches; a larger one cuts each tombstone more often.
const MERGE_FACTOR: usize = 4;

/// Returns a tombstone's checksum from that of its start and end.
fn checksum_of(pair: u64, seq: SeqNo) -> u64 {
    pair ^ hash64(&seq.0.to_le_bytes())
}

#[derive(Debug, Default)]
pub(super) struct Tombstones {
    list: Mutex<List>,
    protection: Protection,
    /// Number of tombstones added. Ordering: Release after the push to the list, Acquire before the
    /// fragments are checked, so that a reader never takes older fragments for complete.
    count: AtomicUsize,
    /// Memory of the list and of the fragments in bytes, written under the lock. Kept as counters
    /// because every writer reads them.
    list_bytes: AtomicUsize,
    cut_bytes: AtomicUsize,
    cut: ArcSwapOption<Cut>,
}

#[derive(Debug, Default)]
struct List {
    all: Vec<RangeTombstone>,
    /// Full checksum of each tombstone in `all`, if protected.
    checksums: Vec<u64>,
    /// Number of cuts so far, summed over tombstones.
    #[cfg(test)]
    cut: usize,
}

/// Fragments of the first `count` tombstones.
#[derive(Debug, Default)]
struct Cut {
    count: usize,
    parts: Vec<Part>,
}

/// Fragments of the tombstones from the previous part's end up to, not including, `end`.
#[derive(Clone, Debug)]
struct Part {
    end: usize,
    fragments: Arc<Fragments>,
}

impl Cut {
    #[inline]
    fn covering_seq(&self, comparator: &Comparator, user_key: &[u8], read_seq: SeqNo) -> SeqNo {
        let of_each =
            self.parts.iter().map(|part| part.fragments.covering_seq(comparator, user_key, read_seq));
        of_each.max().unwrap_or(SeqNo::ZERO)
    }

    /// Returns the list index at which the part at `index` begins.
    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.parts[before].end)
    }

    fn fragments(&self) -> Vec<Arc<Fragments>> {
        self.parts.iter().map(|part| part.fragments.clone()).collect()
    }
}

impl Tombstones {
    pub(super) fn new(protection: Protection) -> Self {
        Self { protection, ..Self::default() }
    }

    /// `checksum` is that of its start and its end; ignored without protection.
    pub(super) fn add(&self, tombstone: RangeTombstone, checksum: u64) {
        let bytes = tombstone.start.len() + tombstone.end.len() + size_of::<RangeTombstone>();
        let mut list = self.list.lock();
        if self.protection.is_on() {
            list.checksums.push(checksum_of(checksum, tombstone.seq));
        }
        list.all.push(tombstone);
        // Ordering: the size is an estimate.
        self.list_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.store(list.all.len(), Ordering::Release);
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn covering_seq(&self, comparator: &Comparator, user_key: &[u8], read_seq: SeqNo) -> SeqNo {
        let count = self.count();
        if count == 0 {
            return SeqNo::ZERO;
        }
        let cut = self.cut.load();
        match cut.as_deref().filter(|cut| cut.count >= count) {
            Some(cut) => cut.covering_seq(comparator, user_key, read_seq),
            None => self.renew(comparator).covering_seq(comparator, user_key, read_seq),
        }
    }

    /// Returns the fragments of all tombstones, in parts that may overlap; empty without
    /// tombstones.
    pub(super) fn parts(&self, comparator: &Comparator) -> Vec<Arc<Fragments>> {
        let count = self.count();
        if count == 0 {
            return Vec::new();
        }
        let cut = self.cut.load();
        match cut.as_deref().filter(|cut| cut.count >= count) {
            Some(cut) => cut.fragments(),
            None => self.renew(comparator).fragments(),
        }
    }

    /// Returns the fragments of all tombstones in one part; `None` without tombstones.
    pub(super) fn whole(&self, comparator: &Comparator) -> Option<Arc<Fragments>> {
        if self.count() == 0 {
            return None;
        }
        let mut list = self.list.lock();
        let cut = self.cut.load();
        let part = cut.as_deref().and_then(|cut| cut.parts.first()).filter(|part| part.end == list.all.len());
        let whole = match part {
            Some(part) => part.fragments.clone(),
            None => self.cut_from(&mut list, comparator, Vec::new()).parts[0].fragments.clone(),
        };
        Some(whole)
    }

    /// Compares each tombstone with its checksum, if protected, and the fragments with a fresh
    /// build.
    pub(super) fn check(&self, comparator: &Comparator) -> Result<()> {
        if !self.protection.is_on() || self.count() == 0 {
            return Ok(());
        }
        let damaged = |what: String| Err(Error::new(ErrorKind::Corruption, what));
        let list = self.list.lock();
        for (tombstone, checksum) in list.all.iter().zip(&list.checksums) {
            let RangeTombstone { start, end, seq } = tombstone;
            if checksum_of(pair(start, end), *seq) != *checksum {
                let (start, end) = (Shown(start), Shown(end));
                return damaged(format!(
                    "range tombstone in memory, {start} to {end}, sequence number {seq}: does not match its checksum"
                ));
            }
        }
        let cut = self.cut.load();
        let Some(cut) = cut.as_deref() else { return Ok(()) };
        for (index, part) in cut.parts.iter().enumerate() {
            let run = &list.all[cut.start(index)..part.end];
            if *part.fragments != Fragments::build(comparator, run.iter().collect()) {
                let count = run.len();
                return damaged(format!(
                    "fragments in memory of {count} range tombstones: not what these make"
                ));
            }
        }
        Ok(())
    }

    /// Updates the fragments.
    #[cold]
    fn renew(&self, comparator: &Comparator) -> Arc<Cut> {
        let mut list = self.list.lock();
        let cut = self.cut.load_full().unwrap_or_default();
        if cut.count == list.all.len() {
            return cut;
        }
        let mut kept = cut.parts.len();
        while kept > 0 {
            let (start, end) = (cut.start(kept - 1), cut.parts[kept - 1].end);
            if end - start > MERGE_FACTOR * (list.all.len() - end) {
                break;
            }
            kept -= 1;
        }
        self.cut_from(&mut list, comparator, cut.parts[..kept].to_vec())
    }

    /// Builds one part of all tombstones that are not in `parts`.
    fn cut_from(&self, list: &mut List, comparator: &Comparator, mut parts: Vec<Part>) -> Arc<Cut> {
        let start = parts.last().map_or(0, |part| part.end);
        let run = &list.all[start..];
        #[cfg(test)]
        {
            list.cut += run.len();
        }
        let fragments = Arc::new(Fragments::build(comparator, run.iter().collect()));
        parts.push(Part { end: list.all.len(), fragments });
        let cut = Arc::new(Cut { count: list.all.len(), parts });
        let bytes = cut.parts.iter().map(|part| part.fragments.memory_bytes()).sum();
        self.cut_bytes.store(bytes, Ordering::Relaxed);
        self.cut.store(Some(cut.clone()));
        cut
    }

    #[inline]
    pub(super) fn memory_bytes(&self) -> usize {
        self.list_bytes.load(Ordering::Relaxed) + self.cut_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORDER: Comparator = Comparator::Bytewise;

    fn tombstone(number: u64, width: u64) -> RangeTombstone {
        // Not in key order.
        let first = number * 7919 % 10_007;
        RangeTombstone::new(&first.to_be_bytes(), &(first + width).to_be_bytes(), SeqNo(number + 1))
    }

    #[test]
    fn a_tombstone_is_cut_a_few_times_however_writes_and_reads_alternate() {
        const COUNT: u64 = 3000;
        let tombstones = Tombstones::default();
        for number in 0..COUNT {
            tombstones.add(tombstone(number, 3), 0);
            let first = number * 7919 % 10_007;
            assert_eq!(tombstones.covering_seq(&ORDER, &first.to_be_bytes(), SeqNo::MAX), SeqNo(number + 1));
        }
        let cut = tombstones.list.lock().cut;
        assert!(cut <= 20 * COUNT as usize, "{COUNT} tombstones were cut {cut} times");
        let parts = tombstones.parts(&ORDER).len();
        assert!(parts <= 7, "{parts} parts");
        // Nothing is cut again without additions, and `whole` cuts once.
        assert_eq!(tombstones.list.lock().cut, cut);
        for _ in 0..2 {
            assert_eq!(tombstones.whole(&ORDER).unwrap().tombstone_count() as u64, COUNT);
            assert_eq!(tombstones.list.lock().cut, cut + COUNT as usize);
        }
        assert_eq!(tombstones.parts(&ORDER).len(), 1);
    }

    #[test]
    fn the_size_is_known_without_a_look_at_the_tombstones() {
        let tombstones = Tombstones::default();
        assert_eq!(tombstones.memory_bytes(), 0);
        for number in 0..100 {
            tombstones.add(tombstone(number, 1), 0);
        }
        let listed = 100 * (16 + size_of::<RangeTombstone>());
        {
            // Takes no lock because every writer calls it.
            let _held = tombstones.list.lock();
            assert_eq!(tombstones.memory_bytes(), listed);
        }
        let whole = tombstones.whole(&ORDER).unwrap();
        assert_eq!(tombstones.memory_bytes(), listed + whole.memory_bytes());
    }

    proptest! {
        #[test]
        fn parts_and_whole_agree_with_looking_at_every_tombstone(
            adds in proptest::collection::vec((0u8..20, 0u8..20, proptest::bool::ANY), 1..60),
            read in 0u64..60,
        ) {
            let tombstones = Tombstones::new(Protection::of(8));
            let mut all: Vec<RangeTombstone> = Vec::new();
            for (number, (start, end, asks)) in adds.into_iter().enumerate() {
                let added = RangeTombstone::new(&[start], &[end], SeqNo(number as u64 + 1));
                tombstones.add(added.clone(), pair(&[start], &[end]));
                all.push(added);
                if !asks {
                    continue;
                }
                for key in 0u8..20 {
                    let over = all.iter().filter(|t| t.start[0] <= key && key < t.end[0] && t.seq.0 <= read);
                    let expected = over.map(|t| t.seq).max().unwrap_or(SeqNo::ZERO);
                    prop_assert_eq!(tombstones.covering_seq(&ORDER, &[key], SeqNo(read)), expected);
                    let parts = tombstones.parts(&ORDER);
                    let of_parts = parts.iter().map(|part| part.covering_seq(&ORDER, &[key], SeqNo(read)));
                    prop_assert_eq!(of_parts.max(), Some(expected));
                }
                tombstones.check(&ORDER).unwrap();
            }
            let whole = tombstones.whole(&ORDER).unwrap();
            prop_assert_eq!(&*whole, &Fragments::build(&ORDER, all));
            tombstones.check(&ORDER).unwrap();
        }
    }
}
