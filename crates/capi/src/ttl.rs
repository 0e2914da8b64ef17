//! Databases whose entries expire: RocksDB's `DBWithTTL`.
//!
//! In: a database that was opened with a time to live. Out: each value and merge operand with the
//! time of its write behind it, which readers do not see; compactions drop what is older than the
//! family's time to live. Until then it is read.
//!
//! Compat: the time is a 32-bit number of seconds, so RocksDB's utility reads and goes on with
//! such a database, and the other way round.

use crate::boundary::{invalid, not_supported};
use crate::handle::{Database, Pinned};
use karstdb::compaction_filter::{FilterContext, FilterDecision, FilterInput};
use karstdb::format::Op;
use karstdb::merge_operator::{MergeFailed, Merged};
use karstdb::{
    CompactionFilter, CompactionFilterFactory, Error, ErrorKind, MergeOperator, Value, WriteBatch,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

/// The bytes of a time.
pub(crate) const STAMP: usize = 4;
/// What is older was not written with a time: when RocksDB's utility appeared.
const FIRST: i32 = 1_368_146_402;

fn now() -> i32 {
    let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    i32::try_from(since).unwrap_or(i32::MAX)
}

fn stamped(value: &[u8]) -> Vec<u8> {
    [value, &now().to_le_bytes()].concat()
}

/// The value and its time, if it has one.
fn parts(stored: &[u8]) -> Option<(&[u8], [u8; STAMP])> {
    let (value, stamp) = stored.split_last_chunk::<STAMP>()?;
    (i32::from_le_bytes(*stamp) >= FIRST).then_some((value, *stamp))
}

impl Database {
    /// A value as it is stored.
    pub(crate) fn stored<'v>(&self, value: &'v [u8]) -> Cow<'v, [u8]> {
        if self.stamps { stamped(value).into() } else { value.into() }
    }

    /// A batch as it is written.
    pub(crate) fn stored_batch<'b>(&self, batch: &'b WriteBatch) -> karstdb::Result<Cow<'b, WriteBatch>> {
        if !self.stamps {
            return Ok(Cow::Borrowed(batch));
        }
        let families = self.db.column_families();
        let family = |id: u32| {
            let found = families.iter().find(|family| family.id() == id);
            let missing = || invalid(format!("the batch names column family {id}, which is not open"));
            match found.ok_or_else(missing)? {
                // Why: a batch does not tell keys that have their timestamp from those that lack
                // it.
                family if family.comparator().timestamp_size() > 0 => {
                    Err(not_supported("a batch of keys with timestamps in a database with a TTL"))
                }
                family => Ok(family),
            }
        };
        let mut written = WriteBatch::new();
        for op in batch.iter() {
            match op {
                Op::Put { cf, key, value } => written.put_cf(family(cf.0)?, key, stamped(value))?,
                Op::Merge { cf, key, operand } => written.merge_cf(family(cf.0)?, key, stamped(operand))?,
                Op::Delete { cf, key } => written.delete_cf(family(cf.0)?, key)?,
                Op::SingleDelete { cf, key } => written.single_delete_cf(family(cf.0)?, key)?,
                Op::DeleteRange { cf, begin, end } => written.delete_range_cf(family(cf.0)?, begin, end)?,
                Op::LogData(data) => written.put_log_data(data)?,
                Op::Noop => {}
                _ => {
                    return Err(invalid(
                        "the batch has an operation that a database with a TTL does not take",
                    ));
                }
            }
        }
        Ok(Cow::Owned(written))
    }

    /// A value as it is read.
    pub(crate) fn shown(&self, found: Option<Value>) -> karstdb::Result<Option<Pinned>> {
        let Some(value) = found else { return Ok(None) };
        if !self.stamps {
            return Ok(Some(Pinned::whole(value)));
        }
        match parts(&value) {
            Some((shown, _)) => {
                let length = shown.len();
                Ok(Some(Pinned { value, length }))
            }
            None => {
                Err(Error::new(ErrorKind::Corruption, "a value has no time behind it, and the TTL wants one"))
            }
        }
    }
}

/// A user's operator over values with times.
#[derive(Debug)]
pub(crate) struct StampedMerge(pub(crate) Arc<dyn MergeOperator>);

fn without_stamp(stored: &[u8]) -> Result<&[u8], MergeFailed> {
    parts(stored)
        .map(|(value, _)| value)
        .ok_or_else(|| MergeFailed("an operand has no time behind it".into()))
}

impl MergeOperator for StampedMerge {
    fn name(&self) -> &str {
        "Merge By TTL"
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        let existing = existing.map(without_stamp).transpose()?;
        let operands =
            operands.iter().map(|operand| without_stamp(operand)).collect::<Result<Vec<_>, _>>()?;
        let merged = match self.0.full_merge(key, existing, &operands)? {
            Merged::Bytes(bytes) => stamped(&bytes),
            Merged::Operand(index) => match operands.get(index) {
                Some(operand) => stamped(operand),
                None => return Ok(Merged::Operand(index)),
            },
            Merged::Existing => match existing {
                Some(value) => stamped(value),
                None => return Ok(Merged::Existing),
            },
        };
        Ok(Merged::Bytes(merged))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let operands =
            operands.iter().map(|operand| without_stamp(operand).ok()).collect::<Option<Vec<_>>>()?;
        self.0.partial_merge(key, &operands).map(|merged| stamped(&merged))
    }

    fn allow_single_operand(&self) -> bool {
        self.0.allow_single_operand()
    }
}

/// Drops what has expired, and asks the user's filter about the rest.
#[derive(Debug)]
pub(crate) struct Expiring {
    pub(crate) ttl_s: i32,
    pub(crate) user: Option<Arc<dyn CompactionFilter>>,
}

impl CompactionFilter for Expiring {
    fn name(&self) -> &str {
        "TtlCompactionFilter"
    }

    fn ignore_snapshots(&self) -> bool {
        self.user.as_ref().is_none_or(|user| user.ignore_snapshots())
    }

    fn filter(&self, level: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        let FilterInput::Value(stored) = entry else { return FilterDecision::Keep };
        let Some((value, stamp)) = parts(stored) else { return FilterDecision::Keep };
        let written = i64::from(i32::from_le_bytes(stamp));
        if self.ttl_s > 0 && written + i64::from(self.ttl_s) < i64::from(now()) {
            return FilterDecision::Remove;
        }
        let Some(user) = &self.user else { return FilterDecision::Keep };
        match user.filter(level, key, FilterInput::Value(value)) {
            // Compat: a changed value is as old as the one before it.
            FilterDecision::ChangeValue(new) => FilterDecision::ChangeValue([&new[..], &stamp].concat()),
            decision => decision,
        }
    }
}

/// Makes such filters, over those of a user's factory.
#[derive(Debug)]
pub(crate) struct ExpiringFactory {
    pub(crate) ttl_s: i32,
    pub(crate) user: Option<Arc<dyn CompactionFilterFactory>>,
}

impl CompactionFilterFactory for ExpiringFactory {
    fn name(&self) -> &str {
        "TtlCompactionFilterFactory"
    }

    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        let user = self.user.as_ref().and_then(|user| user.create(context)).map(Arc::from);
        Some(Box::new(Expiring { ttl_s: self.ttl_s, user }))
    }
}
