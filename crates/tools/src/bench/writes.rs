//! The write workloads: one function per kind of loop, run by each thread on its own [`Ops`].
//!
//! Writes take the path of an application's: a [`WriteBatch`] and [`WriteOptions`].

use super::flags::Flags;
use super::key::{Keys, Order, Sequence};
use super::rate::Pace;
use super::reads::Target;
use super::report::{OpKind, Ops, Until};
use super::values::Values;
use super::workload::Filling;
use karst_engine::{ColumnFamily, Error, Result, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicUsize, Ordering};

/// State that the threads of a write workload share.
pub(crate) struct Writing<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) options: WriteOptions,
    pub(crate) pace: Option<Pace>,
    /// Number of threads that still read while another one writes.
    pub(crate) readers: AtomicUsize,
}

/// Parameters of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) order: Order,
    /// Upper bound of key numbers; also the number of writes unless --writes is given.
    pub(crate) num: u64,
    pub(crate) writes: u64,
    /// Bytes of every value, replacing the flags'.
    pub(crate) value_bytes: Option<usize>,
    pub(crate) batch: u64,
}

impl Fill {
    /// Returns the parameters from the workload and the flags.
    pub(crate) fn new(filling: &Filling, flags: &Flags) -> Fill {
        let num = if filling.short { (flags.num / 1000).max(1) } else { flags.num } as u64;
        Fill {
            order: filling.order,
            num,
            // Compat: a short fill draws from a thousandth of the keys but writes as often as any
            // other.
            writes: if flags.writes < 0 { flags.num } else { flags.writes } as u64,
            value_bytes: filling.value_bytes,
            batch: filling.batch.unwrap_or(flags.batch_size as u64),
        }
    }
}

impl Writing<'_> {
    /// Returns an empty batch, with checksums if the flags ask for them.
    fn batch(&self) -> WriteBatch {
        match self.flags().write_batch_protection_bytes_per_key {
            0 => WriteBatch::new(),
            _ => WriteBatch::protected(),
        }
    }

    fn flags(&self) -> &Flags {
        self.target.flags
    }

    /// Returns the family of a key number; `None` means the default one, which needs no id in the
    /// log.
    fn family(&self, number: u64) -> Option<&ColumnFamily> {
        let families = self.target.families;
        (families.len() > 1).then(|| &families[(number % families.len() as u64) as usize])
    }

    fn values(&self, fill: Option<&Fill>) -> Values {
        match fill.and_then(|fill| fill.value_bytes) {
            Some(bytes) => Values::fixed(self.flags(), bytes),
            None => Values::new(self.flags()),
        }
    }

    fn commit(&self, batch: &mut WriteBatch) -> Result<()> {
        self.target.front.write(&self.options, batch)?;
        batch.clear();
        Ok(())
    }

    fn put(&self, batch: &mut WriteBatch, number: u64, key: &[u8], value: &[u8]) -> Result<()> {
        match self.family(number) {
            Some(family) => batch.put_cf(family, key, value),
            None => batch.put(key, value),
        }
    }

    fn merge(&self, batch: &mut WriteBatch, number: u64, key: &[u8], operand: &[u8]) -> Result<()> {
        match self.family(number) {
            Some(family) => batch.merge_cf(family, key, operand),
            None => batch.merge(key, operand),
        }
    }
}

/// Workloads fillseq, fillrandom, overwrite and similar ones: batches of puts, and deleted ranges
/// in between if enabled.
pub(crate) fn fill(w: &Writing<'_>, fill: &Fill, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let flags = w.flags();
    let ranges = flags.max_num_range_tombstones as u64;
    let mut numbers =
        Sequence::new(fill.order, fill.num + ranges, keys.raw()).map_err(Error::invalid_argument)?;
    let mut values = w.values(Some(fill));
    let (mut batch, mut key, mut deletions) = (w.batch(), Vec::new(), RangeDeletions::new(flags));
    // A duration applies only to random keys; the other orders end when every key is written.
    let mut until = if fill.order == Order::Random {
        Until::new(flags, fill.writes)
    } else {
        Until::operations(fill.writes)
    };
    until.total().into_iter().for_each(|total| ops.expect(total));
    while !until.done(fill.batch) {
        let mut bytes = 0;
        for _ in 0..fill.batch {
            let number = numbers.next();
            keys.encode(number, &mut key);
            let value = values.next();
            w.put(&mut batch, number, &key, value)?;
            bytes += key.len() + value.len();
            if deletions.due() {
                deletions.add(w, numbers.next(), keys, &mut batch)?;
            }
        }
        if let Some(pace) = &w.pace {
            pace.wait(bytes);
            ops.restart_operation();
        }
        w.commit(&mut batch)?;
        ops.bytes += bytes as u64;
        ops.finished(OpKind::Write, fill.batch);
    }
    if deletions.done > 0 {
        ops.message = format!("(range deletions:{})", deletions.done);
    }
    Ok(())
}

/// State of --writes_per_range_tombstone.
struct RangeDeletions {
    every: u64,
    after: u64,
    at_most: u64,
    width: u64,
    one_by_one: bool,
    written: u64,
    done: u64,
}

impl RangeDeletions {
    fn new(flags: &Flags) -> RangeDeletions {
        RangeDeletions {
            every: flags.writes_per_range_tombstone as u64,
            after: flags.writes_before_delete_range.max(0) as u64,
            at_most: flags.max_num_range_tombstones as u64,
            width: flags.range_tombstone_width as u64,
            one_by_one: flags.expand_range_tombstones,
            written: 0,
            done: 0,
        }
    }

    /// Counts one written entry. Returns true if a range is to be deleted now.
    fn due(&mut self) -> bool {
        self.written += 1;
        let Some(since) = self.written.checked_sub(self.after) else { return false };
        let now = since > 0 && self.every > 0 && since.is_multiple_of(self.every) && self.done < self.at_most;
        self.done += u64::from(now);
        now
    }

    fn add(&self, w: &Writing<'_>, first: u64, keys: &Keys, batch: &mut WriteBatch) -> Result<()> {
        let (mut begin, mut end) = (Vec::new(), Vec::new());
        keys.encode(first, &mut begin);
        if self.one_by_one {
            for number in first..first + self.width {
                keys.encode(number, &mut begin);
                match w.family(first) {
                    Some(family) => batch.delete_cf(family, &begin)?,
                    None => batch.delete(&begin)?,
                }
            }
            return Ok(());
        }
        keys.encode(first + self.width, &mut end);
        match w.family(first) {
            Some(family) => batch.delete_range_cf(family, &begin, &end),
            None => batch.delete_range(&begin, &end),
        }
    }
}

/// Workloads deleteseq and deleterandom: batches of deletes.
pub(crate) fn delete(w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops, sequential: bool) -> Result<()> {
    let flags = w.flags();
    let deletes = if flags.deletes < 0 { flags.num as u64 } else { flags.deletes as u64 };
    let size = flags.batch_size as u64;
    let mut until = if sequential { Until::operations(deletes) } else { Until::new(flags, deletes) };
    let (mut batch, mut key, mut next) = (w.batch(), Vec::new(), 0);
    while !until.done(size) {
        for _ in 0..size {
            let number = if sequential { next } else { keys.below(flags.num as u64) };
            next += 1;
            keys.encode(number, &mut key);
            batch.delete(&key)?;
        }
        w.commit(&mut batch)?;
        ops.finished(OpKind::Delete, size);
    }
    Ok(())
}

/// Workload updaterandom: a get, then a put of that key.
pub(crate) fn update_random(w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let (t, mut values) = (&w.target, w.values(None));
    let (mut batch, mut key) = (w.batch(), Vec::new());
    let mut until = Until::new(t.flags, t.readwrites());
    while !until.done(1) {
        let number = keys.below(t.flags.num as u64);
        keys.encode(number, &mut key);
        if let Some(value) = t.db.get_cf(t.options, t.default_family(), &key)? {
            ops.found += 1;
            ops.bytes += (key.len() + value.len()) as u64;
        }
        let value = values.next();
        if let Some(pace) = &w.pace {
            pace.wait(key.len() + value.len());
        }
        batch.put(&key, value)?;
        ops.bytes += (key.len() + value.len()) as u64;
        w.commit(&mut batch)?;
        ops.finished(OpKind::Update, 1);
    }
    ops.message = format!("( updates:{} found:{})", ops.done, ops.found);
    Ok(())
}

/// Workload mergerandom: operands for keys below --merge_keys.
pub(crate) fn merge_random(w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let (t, mut values) = (&w.target, w.values(None));
    let (mut batch, mut key) = (w.batch(), Vec::new());
    let mut until = Until::new(t.flags, t.readwrites());
    while !until.done(1) {
        let number = keys.below(t.merge_keys());
        keys.encode(number, &mut key);
        let operand = values.next();
        w.merge(&mut batch, number, &key, operand)?;
        ops.bytes += (key.len() + operand.len()) as u64;
        w.commit(&mut batch)?;
        ops.finished(OpKind::Merge, 1);
    }
    ops.message = format!("( updates:{})", ops.done);
    Ok(())
}

/// Workload readrandomwriterandom: of each 100 operations, first --readwritepercent gets, then
/// puts.
pub(crate) fn read_random_write_random(w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let (t, mut values) = (&w.target, w.values(None));
    let (mut batch, mut key) = (w.batch(), Vec::new());
    let (mut place, mut writes) = (0, 0_u64);
    let mut until = Until::new(t.flags, t.readwrites());
    while !until.done(1) {
        let number = keys_below(keys, t);
        keys.encode(number, &mut key);
        if place < t.flags.readwritepercent {
            ops.read += 1;
            ops.found += u64::from(t.db.get_cf(t.options, t.default_family(), &key)?.is_some());
            ops.finished(OpKind::Read, 1);
        } else {
            batch.put(&key, values.next())?;
            w.commit(&mut batch)?;
            writes += 1;
            ops.finished(OpKind::Write, 1);
        }
        place = (place + 1) % 100;
    }
    ops.message = format!("( reads:{} writes:{writes} total:{} found:{})", ops.read, ops.done, ops.found);
    Ok(())
}

fn keys_below(keys: &mut Keys, t: &Target<'_>) -> u64 {
    keys.below(t.flags.num as u64)
}

/// Workload readrandommergerandom: random merges and gets of keys below --merge_keys.
pub(crate) fn read_random_merge_random(w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let (t, mut values) = (&w.target, w.values(None));
    let (mut batch, mut key) = (w.batch(), Vec::new());
    let (mut merges, mut longest) = (0_u64, 0);
    let mut until = Until::new(t.flags, t.readwrites());
    while !until.done(1) {
        let number = keys.below(t.merge_keys());
        keys.encode(number, &mut key);
        if (keys.below(100) as i32) < t.flags.mergereadpercent {
            batch.merge(&key, values.next())?;
            w.commit(&mut batch)?;
            merges += 1;
            ops.finished(OpKind::Merge, 1);
        } else {
            ops.read += 1;
            if let Some(value) = t.db.get_cf(t.options, t.default_family(), &key)? {
                ops.found += 1;
                longest = longest.max(value.len());
            }
            ops.finished(OpKind::Read, 1);
        }
    }
    ops.message = format!(
        "(reads:{} merges:{merges} total:{} hits:{} maxlength:{longest})",
        ops.read, ops.done, ops.found
    );
    Ok(())
}

/// The writer of readwhilewriting and similar workloads: writes until the readers are done.
pub(crate) fn write_beside(w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops, merges: bool) -> Result<()> {
    let (t, mut values) = (&w.target, w.values(None));
    let space = if t.flags.bgwriter_num > 0 { t.flags.bgwriter_num } else { t.flags.num } as u64;
    let at_most = t.flags.finish_after_writes.then(|| t.writes());
    let (mut batch, mut key, mut deletions) = (w.batch(), Vec::new(), RangeDeletions::new(t.flags));
    ops.aside = true;
    loop {
        let over = match at_most {
            Some(at_most) => ops.done >= at_most,
            // Ordering: no other data depends on this count.
            None => w.readers.load(Ordering::Relaxed) == 0,
        };
        if over {
            return Ok(());
        }
        let number = keys.below(space);
        keys.encode(number, &mut key);
        let value = values.next();
        if merges {
            batch.merge(&key, value)?;
        } else {
            batch.put(&key, value)?;
        }
        let bytes = key.len() + value.len();
        w.commit(&mut batch)?;
        ops.bytes += bytes as u64;
        ops.finished(OpKind::Write, 1);
        if let Some(pace) = &w.pace {
            pace.wait(bytes);
        }
        if deletions.due() {
            let first = keys_below(keys, t);
            deletions.add(w, first, keys, &mut batch)?;
            w.commit(&mut batch)?;
        }
    }
}
