//! A simulated file's bytes: as processes see them, as the device has them, and the unsynced
//! changes between the two.
//!
//! After a power failure the seed chooses the bytes from all that a device may do with unsynced
//! changes: lose them, keep them, keep the first and a part of the next, or keep any of their
//! sectors.
//! Invariant: bytes covered by a successful sync are in every outcome.

use crate::random::Random;
use std::sync::Arc;
use std::time::Duration;

/// Unit in bytes that a device writes completely or not at all.
pub(super) const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) id: u64,
    /// The bytes that processes see. Shared with the image that they come from until they are
    /// changed.
    pub(super) current: Arc<Vec<u8>>,
    /// The bytes after a power failure that loses all it may.
    durable: Arc<Vec<u8>>,
    /// The changes since `durable`, in order.
    unsynced: Vec<Change>,
    pub(super) modified: Duration,
    /// Number of bytes from the beginning for which room is reserved.
    pub(super) reserved: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: usize, data: Arc<[u8]> },
    Cut(usize),
}

impl Change {
    /// Applies the first `portion` bytes of the change.
    pub(super) fn apply(&self, bytes: &mut Vec<u8>, portion: usize) {
        match self {
            Self::Cut(size) => bytes.resize(*size, 0),
            Self::Write { offset, data } => {
                let data = &data[..portion.min(data.len())];
                let end = offset + data.len();
                if !data.is_empty() && bytes.len() < end {
                    bytes.resize(end, 0);
                }
                if !data.is_empty() {
                    bytes[*offset..end].copy_from_slice(data);
                }
            }
        }
    }
}

impl Inode {
    pub(super) fn new(id: u64, modified: Duration) -> Self {
        Self { id, modified, ..Self::default() }
    }

    /// Returns a file with this content, durable.
    pub(super) fn with(id: u64, content: Arc<Vec<u8>>) -> Self {
        Self { id, current: content.clone(), durable: content, ..Self::default() }
    }

    /// Returns the number of bytes of the device that the file takes.
    pub(super) fn taken_bytes(&self) -> usize {
        self.current.len().max(self.reserved)
    }

    /// Returns true if a power failure would lose nothing of the file.
    pub(super) fn is_synced(&self) -> bool {
        self.unsynced.is_empty()
    }

    pub(super) fn change(&mut self, change: Change) {
        change.apply(Arc::make_mut(&mut self.current), usize::MAX);
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        if self.unsynced.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        for change in self.unsynced.drain(..) {
            change.apply(durable, usize::MAX);
        }
        debug_assert!(self.durable == self.current || self.durable.len() == self.current.len());
    }

    /// Fails a sync: the system forgets which pages were dirty. Some have reached the device; the
    /// others never will, even with later syncs, although processes continue to see them.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.durable = Arc::new(self.some_sectors(random, self.current.len()));
        self.unsynced.clear();
    }

    /// Restarts the machine after a power failure.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        if !self.unsynced.is_empty() {
            match random.below(10) {
                0..3 => {}
                3..5 => self.sync(),
                5..8 => self.tear(random),
                _ => {
                    let (a, b) = (self.durable.len(), self.current.len());
                    let between = a.min(b) + random.below((a.max(b) - a.min(b)) as u64 + 1) as usize;
                    let len = [a, b, between][random.below(3) as usize];
                    self.durable = Arc::new(self.some_sectors(random, len));
                }
            }
        }
        self.unsynced.clear();
        self.current = self.durable.clone();
    }

    /// Keeps the first changes and a part of the next.
    fn tear(&mut self, random: &mut Random) {
        let whole = random.below(self.unsynced.len() as u64) as usize;
        let durable = Arc::make_mut(&mut self.durable);
        for change in &self.unsynced[..whole] {
            change.apply(durable, usize::MAX);
        }
        if let Change::Write { offset, data } = &self.unsynced[whole] {
            let mut portion = random.below(data.len() as u64) as usize;
            if random.chance(0.5) {
                let end = (offset + portion) / SECTOR * SECTOR;
                portion = end.saturating_sub(*offset);
            }
            self.unsynced[whole].apply(durable, portion);
        }
    }

    /// Returns the content in which each written sector is either old or new.
    fn some_sectors(&self, random: &mut Random, len: usize) -> Vec<u8> {
        let mut image = self.durable.to_vec();
        image.resize(len, 0);
        for change in &self.unsynced {
            let Change::Write { offset, data } = change else { continue };
            for sector in offset / SECTOR..(offset + data.len()).div_ceil(SECTOR) {
                let end = ((sector + 1) * SECTOR).min(len).min(self.current.len());
                let start = (sector * SECTOR).min(end);
                if random.chance(0.5) {
                    image[start..end].copy_from_slice(&self.current[start..end]);
                }
            }
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Synced bytes survive everything, and each possible outcome of a device occurs.
    #[test]
    fn power_failures_lose_only_what_was_not_synced() {
        let (mut lost, mut kept, mut torn, mut mixed) = (0, 0, 0, 0);
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let mut inode = Inode::default();
            inode.change(Change::Write { offset: 0, data: [1; 3000].into() });
            inode.sync();
            inode.change(Change::Write { offset: 3000, data: [2; 2000].into() });
            inode.change(Change::Write { offset: 5000, data: [3; 2000].into() });
            inode.lose_power(&mut random);
            let bytes = &inode.current;
            assert_eq!(bytes[..3000], [1; 3000]);
            let rest = &bytes[3000..];
            let prefix = rest.iter().enumerate().all(|(i, b)| *b == if i < 2000 { 2 } else { 3 });
            match rest.len() {
                0 => lost += 1,
                4000 if prefix => kept += 1,
                _ if prefix => torn += 1,
                _ => mixed += 1,
            }
            assert!(rest.iter().all(|b| [0, 2, 3].contains(b)));
        }
        assert!([lost, kept, torn, mixed].iter().all(|n| *n > 100), "{lost} {kept} {torn} {mixed}");
    }

    #[test]
    fn what_a_failed_sync_lost_no_later_sync_brings_back() {
        let mut lost = 0;
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut inode = Inode::default();
            inode.change(Change::Write { offset: 0, data: [7; 512].into() });
            inode.fail_sync(&mut random);
            assert_eq!(inode.current[..], [7; 512]);
            inode.sync();
            inode.lose_power(&mut random);
            lost += u32::from(inode.current[0] == 0);
        }
        assert!((20..80).contains(&lost), "{lost}");
    }
}
