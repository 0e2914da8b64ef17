//! The range tombstones of a memtable: a list that grows, and its fragments, made anew when a
//! reader finds them out of date.
//!
//! Invariant: what a reader gets holds every tombstone whose `add` returned before the reader
//! asked. While there is none, and while none is added, a reader takes no lock. Lock: `all` is held
//! to add one tombstone, or by one reader to cut all of them anew.

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

/// From the checksum of start and end.
fn checksum_of(pair: u64, seq: SeqNo) -> u64 {
    pair ^ hash64(&seq.0.to_le_bytes())
}

#[derive(Debug, Default)]
pub(super) struct Tombstones {
    all: Mutex<Vec<RangeTombstone>>,
    protection: Protection,
    /// Of each in `all` its checksum, whole, if they are protected. Taken after `all`.
    checksums: Mutex<Vec<u64>>,
    /// How many were added. Ordering: Release after the list has it, Acquire before the fragments
    /// are judged, so that a reader never takes older fragments for complete.
    count: AtomicUsize,
    cut: ArcSwapOption<Cut>,
}

/// Fragments of the first `count` tombstones.
#[derive(Debug)]
struct Cut {
    count: usize,
    fragments: Arc<Fragments>,
}

impl Tombstones {
    pub(super) fn new(protection: Protection) -> Self {
        Self { protection, ..Self::default() }
    }

    /// `checksum` is that of its start and its end; without protection it does not matter.
    pub(super) fn add(&self, tombstone: RangeTombstone, checksum: u64) {
        let mut all = self.all.lock();
        if self.protection.is_on() {
            self.checksums.lock().push(checksum_of(checksum, tombstone.seq));
        }
        all.push(tombstone);
        self.count.store(all.len(), Ordering::Release);
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
            Some(cut) => cut.fragments.covering_seq(comparator, user_key, read_seq),
            None => self.renew(comparator).covering_seq(comparator, user_key, read_seq),
        }
    }

    pub(super) fn fragments(&self, comparator: &Comparator) -> Option<Arc<Fragments>> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let cut = self.cut.load();
        let current = cut.as_deref().filter(|cut| cut.count >= count).map(|cut| cut.fragments.clone());
        Some(current.unwrap_or_else(|| self.renew(comparator)))
    }

    /// Compares each with its checksum, if they are protected, and the fragments with those that
    /// would be made of them now.
    pub(super) fn check(&self, comparator: &Comparator) -> Result<()> {
        if !self.protection.is_on() || self.count() == 0 {
            return Ok(());
        }
        let damaged = |what: String| Err(Error::new(ErrorKind::Corruption, what));
        let all = self.all.lock();
        for (tombstone, checksum) in all.iter().zip(&*self.checksums.lock()) {
            let RangeTombstone { start, end, seq } = tombstone;
            if checksum_of(pair(start, end), *seq) != *checksum {
                let (start, end) = (Shown(start), Shown(end));
                return damaged(format!(
                    "range tombstone in memory, {start} to {end}, sequence number {seq}: does not match its checksum"
                ));
            }
        }
        match self.cut.load().as_deref() {
            Some(cut) if *cut.fragments != Fragments::build(comparator, all[..cut.count].to_vec()) => {
                damaged(format!("fragments in memory of {} range tombstones: not what these make", cut.count))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn renew(&self, comparator: &Comparator) -> Arc<Fragments> {
        let all = self.all.lock();
        if let Some(cut) = self.cut.load().as_deref().filter(|cut| cut.count == all.len()) {
            return cut.fragments.clone();
        }
        let fragments = Arc::new(Fragments::build(comparator, all.clone()));
        self.cut.store(Some(Arc::new(Cut { count: all.len(), fragments: fragments.clone() })));
        fragments
    }

    pub(super) fn memory_bytes(&self) -> usize {
        if self.count() == 0 {
            return 0;
        }
        let listed: usize =
            self.all.lock().iter().map(|t| t.start.len() + t.end.len() + size_of::<RangeTombstone>()).sum();
        listed + self.cut.load().as_deref().map_or(0, |cut| cut.fragments.memory_bytes())
    }
}
