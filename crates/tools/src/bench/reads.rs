//! The synchronous read workloads: one function per workload, run by each thread on its own
//! [`Ops`].

use super::flags::Flags;
use super::front::Front;
use super::key::Keys;
use super::report::{OpKind, Ops, Until};
use super::reporter::Watch;
use karst_engine::{ColumnFamily, Db, ReadOptions, Result};

/// State that the threads of a workload share.
pub(crate) struct Target<'a> {
    pub(crate) front: &'a Front,
    /// The underlying database, for reads.
    pub(crate) db: &'a Db,
    /// Key `k` lives in family `k % families.len()`, as db_bench spreads them.
    pub(crate) families: &'a [ColumnFamily],
    pub(crate) flags: &'a Flags,
    pub(crate) options: &'a ReadOptions,
    pub(crate) watch: &'a Watch,
}

impl Target<'_> {
    fn family(&self, number: u64) -> &ColumnFamily {
        &self.families[(number % self.families.len() as u64) as usize]
    }

    pub(crate) fn default_family(&self) -> &ColumnFamily {
        &self.families[0]
    }

    /// Returns the number of writes of each thread without --duration.
    pub(crate) fn writes(&self) -> u64 {
        if self.flags.writes < 0 { self.flags.num as u64 } else { self.flags.writes as u64 }
    }

    /// Returns the number of operations of a thread that reads and writes: the larger of --reads
    /// and --writes, or --num without either.
    pub(crate) fn readwrites(&self) -> u64 {
        let given = self.flags.reads.max(self.flags.writes);
        if given < 0 { self.flags.num as u64 } else { given as u64 }
    }

    /// Returns the number of keys that merges use.
    pub(crate) fn merge_keys(&self) -> u64 {
        if self.flags.merge_keys <= 0 { self.flags.num as u64 } else { self.flags.merge_keys as u64 }
    }

    /// Returns the number of reads of each thread without --duration.
    pub(crate) fn reads(&self) -> u64 {
        if self.flags.reads < 0 { self.flags.num as u64 } else { self.flags.reads as u64 }
    }
}

/// Workload readrandom: one get after the other.
pub(crate) fn read_random(t: &Target<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let stride = if t.flags.batch_size > 1 { t.flags.multiread_stride as u64 } else { 0 };
    let (mut key, mut number, mut in_batch) = (Vec::new(), 0, t.flags.batch_size - 1);
    let mut until = Until::new(t.flags, t.reads());
    while !until.done(1) {
        if stride == 0 {
            number = keys.draw();
        } else {
            in_batch += 1;
            if in_batch == t.flags.batch_size {
                in_batch = 0;
                number = keys.batch_start();
            } else {
                number += stride;
            }
        }
        keys.encode(number, &mut key);
        ops.read += 1;
        if let Some(value) = t.db.get_cf(t.options, t.family(number), &key)? {
            ops.found += 1;
            ops.bytes += (key.len() + value.len()) as u64;
        }
        ops.finished(OpKind::Read, 1);
    }
    Ok(())
}

/// Workload readmissing: gets of absent keys within the range (one byte longer than existing keys).
pub(crate) fn read_missing(t: &Target<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let mut key = Vec::new();
    let mut until = Until::new(t.flags, t.reads());
    while !until.done(1) {
        let number = keys.draw();
        keys.encode(number, &mut key);
        key.push(b'0');
        ops.read += 1;
        if t.db.get_cf(t.options, t.family(number), &key)?.is_some() {
            ops.found += 1;
        }
        ops.finished(OpKind::Read, 1);
    }
    Ok(())
}

/// Workload multireadrandom: batches of --batch_size keys, --multiread_stride apart or random.
pub(crate) fn multi_read_random(t: &Target<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let size = t.flags.batch_size as u64;
    let mut batch = vec![Vec::new(); size as usize];
    let mut until = Until::new(t.flags, t.reads());
    while !until.done(size) {
        keys.next_batch(&mut batch);
        ops.read += size;
        for (value, key) in t.db.multi_get_cf(t.options, &t.families[0], &batch).into_iter().zip(&batch) {
            if let Some(value) = value? {
                ops.found += 1;
                ops.bytes += (key.len() + value.len()) as u64;
            }
        }
        ops.finished(OpKind::Read, size);
    }
    Ok(())
}

/// Workload seekrandom: a new iterator, a seek, then --seek_nexts entries in either direction.
pub(crate) fn seek_random(t: &Target<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let (mut key, mut bound) = (Vec::new(), Vec::new());
    let mut options = t.options.clone();
    let num = t.flags.num as u64;
    let distance = t.flags.max_scan_distance.max(0) as u64;
    let mut until = Until::new(t.flags, t.reads());
    let mut sample = 0u64;
    while !until.done(1) {
        let number = keys.below(num);
        keys.encode(number, &mut key);
        if distance > 0 {
            if t.flags.reverse_iterator {
                keys.encode(number.saturating_sub(distance), &mut bound);
                options.iterate_lower_bound = Some(bound.as_slice().into());
            } else {
                keys.encode((number + distance).min(num), &mut bound);
                options.iterate_upper_bound = Some(bound.as_slice().into());
            }
        }
        let mut iter = t.db.iter_cf(&options, t.family(number))?;
        iter.seek(&key)?;
        ops.read += 1;
        if iter.valid() && iter.key() == key {
            ops.found += 1;
        }
        let mut left = t.flags.seek_nexts;
        while left > 0 && iter.valid() {
            left -= 1;
            let value = iter.value();
            sample = sample.wrapping_add(u64::from(value.first().copied().unwrap_or(0)));
            ops.bytes += (iter.key().len() + value.len()) as u64;
            if t.flags.reverse_iterator {
                iter.prev()?;
            } else {
                iter.next()?;
            }
        }
        ops.finished(OpKind::Seek, 1);
    }
    std::hint::black_box(sample);
    Ok(())
}

/// Workloads readseq and readreverse: each thread scans from one end until --reads entries are
/// read.
pub(crate) fn read_sequential(t: &Target<'_>, ops: &mut Ops, forward: bool) -> Result<()> {
    let mut until = Until::new(t.flags, t.reads());
    let mut iter = t.db.iter_cf(t.options, &t.families[0])?;
    if forward {
        iter.seek_to_first()?;
    } else {
        iter.seek_to_last()?;
    }
    while iter.valid() && !until.done(1) {
        ops.bytes += (iter.key().len() + iter.value().len()) as u64;
        ops.finished(OpKind::Read, 1);
        if forward {
            iter.next()?;
        } else {
            iter.prev()?;
        }
    }
    Ok(())
}

/// Workloads verifychecksum and verifyfilechecksums: one operation per thread, which reads all
/// files.
pub(crate) fn verify(t: &Target<'_>, ops: &mut Ops, whole_files: bool) -> Result<()> {
    if whole_files {
        let files = t.db.verify_file_checksums()?;
        ops.message.push_str(&format!("({files} files with a checksum)"));
    } else {
        t.db.verify_checksum()?;
        ops.bytes += t.db.live_files().iter().map(|file| file.size_bytes).sum::<u64>();
    }
    ops.finished(OpKind::Other, 1);
    Ok(())
}

/// Workload readtocache: one scan of all entries, to fill the block cache and the page cache.
pub(crate) fn read_to_cache(t: &Target<'_>, ops: &mut Ops) -> Result<()> {
    for family in t.families {
        let mut iter = t.db.iter_cf(t.options, family)?;
        iter.seek_to_first()?;
        while iter.valid() {
            ops.bytes += (iter.key().len() + iter.value().len()) as u64;
            ops.finished(OpKind::Read, 1);
            iter.next()?;
        }
    }
    Ok(())
}
