//! What one write consists of: a batch, or one operation that needs no batch of its own.
//!
//! In: borrowed operations. Out: the record for the log, and the inserts. Invariant: both say the
//! same.

use super::batch::{WriteBatch, check_sizes};
use super::host::{Host, Pins};
use super::two_phase::{Numbering, PhaseWrite};
use crate::wal::replay;
use karst_base::error::{Error, Result};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::{SeqNo, ValueType};
use karst_format::write_batch::{self, HEADER_BYTES, Op};
use karst_storage::memtable::{DuplicateEntry, PointEntry};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Entries that go to a memtable together.
const GROUP: usize = 16;
type Group<'a> = SmallVec<[PointEntry<'a>; GROUP]>;

/// The entry that an operation adds, if it is a point entry whose value is stored as it is.
#[inline]
fn point(seq: SeqNo, op: Op<'_>) -> Option<PointEntry<'_>> {
    Some(match op {
        Op::Put { key, value, .. } => (seq, ValueType::Value, key, value),
        Op::Delete { key, .. } => (seq, ValueType::Deletion, key, b""),
        Op::SingleDelete { key, .. } => (seq, ValueType::SingleDeletion, key, b""),
        Op::Merge { key, operand, .. } => (seq, ValueType::Merge, key, operand),
        _ => return None,
    })
}

/// Entries that a write may leave to be inserted together with those of others; more are a group of
/// their own.
const FEW: usize = 4;

/// What is written.
#[derive(Debug)]
pub enum Source<'a> {
    /// A batch in its writer's hands.
    Batch(&'a WriteBatch),
    /// A batch whose writer has gone.
    Owned(Box<WriteBatch>),
    /// A phase of a transaction: what is logged and what is inserted differ.
    Phase(PhaseWrite),
    /// One operation.
    One {
        /// What it does.
        op: Op<'a>,
        /// The column family that it writes to.
        family: ColumnFamilyId,
        /// Of what the record has behind its header.
        body_bytes: usize,
    },
}

impl<'a> Source<'a> {
    /// One operation, which writes to a column family.
    ///
    /// # Errors
    /// The key or the value is too large.
    pub fn one(op: Op<'a>) -> Result<Self> {
        check_sizes(&op)?;
        let family = op.column_family().unwrap_or(ColumnFamilyId::DEFAULT);
        let mut body_bytes = 0;
        op.encode(&mut |part| body_bytes += part.len());
        Ok(Source::One { op, family, body_bytes })
    }

    /// Column families that it touches.
    pub(super) fn families(&self) -> &[ColumnFamilyId] {
        match self {
            Source::Batch(batch) => batch.families(),
            Source::Owned(batch) => batch.families(),
            Source::Phase(phase) => phase.families(),
            Source::One { family, .. } => std::slice::from_ref(family),
        }
    }

    /// How many sequence numbers it takes.
    pub(super) fn count(&self) -> u32 {
        match self {
            Source::Batch(batch) => batch.count(),
            Source::Owned(batch) => batch.count(),
            Source::Phase(phase) => phase.count(),
            Source::One { .. } => 1,
        }
    }

    /// What the header of its record counts.
    pub(super) fn logged_count(&self) -> u32 {
        match self {
            Source::Phase(phase) => phase.logged_count(),
            _ => self.count(),
        }
    }

    /// Whether it removes a range and does something else too.
    pub(super) fn mixes_ranges(&self) -> bool {
        match self {
            Source::Batch(batch) => batch.mixes_ranges(),
            Source::Owned(batch) => batch.mixes_ranges(),
            Source::Phase(_) | Source::One { .. } => false,
        }
    }

    /// The record behind its header, with a mark before each range that is removed: there RocksDB
    /// goes on with the next number.
    #[cold]
    pub(super) fn with_ranges_apart(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.bytes() + 16);
        self.each_op(|op| {
            if matches!(op, Op::DeleteRange { .. }) {
                Op::Noop.encode(&mut |part| body.extend_from_slice(part));
            }
            op.encode(&mut |part| body.extend_from_slice(part));
        });
        body
    }

    /// The phase of a transaction that it is, if it is one.
    pub(super) fn phase(&self) -> Option<&PhaseWrite> {
        match self {
            Source::Phase(phase) => Some(phase),
            _ => None,
        }
    }

    /// Appends the record behind its header.
    #[inline]
    pub(super) fn put_body(&self, record: &mut Vec<u8>) {
        match self {
            Source::One { op, .. } => op.encode(&mut |part| record.extend_from_slice(part)),
            Source::Batch(batch) => record.extend_from_slice(&batch.as_bytes()[HEADER_BYTES..]),
            Source::Owned(batch) => record.extend_from_slice(&batch.as_bytes()[HEADER_BYTES..]),
            Source::Phase(phase) => phase.encode(&mut |part| record.extend_from_slice(part)),
        }
    }

    /// Calls `each` with every operation in order.
    pub(super) fn each_op<'s>(&'s self, each: impl FnMut(Op<'s>)) {
        match self {
            Source::Batch(batch) => batch.iter().for_each(each),
            Source::Owned(batch) => batch.iter().for_each(each),
            Source::Phase(phase) => phase.inserted().into_iter().flat_map(WriteBatch::iter).for_each(each),
            Source::One { op, .. } => std::iter::once(*op).for_each(each),
        }
    }

    /// Bytes of its record.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Source::One { body_bytes, .. } => HEADER_BYTES + body_bytes,
            Source::Batch(batch) => batch.as_bytes().len(),
            Source::Owned(batch) => batch.as_bytes().len(),
            Source::Phase(phase) => HEADER_BYTES + phase.body_bytes(),
        }
    }

    /// Checks it against its checksums, if it has any.
    pub(super) fn verify(&self) -> Result<()> {
        match self {
            Source::Batch(batch) => batch.verify(),
            Source::Owned(batch) => batch.verify(),
            Source::Phase(_) | Source::One { .. } => Ok(()),
        }
    }

    /// The same, with a checksum on each operation.
    ///
    /// # Errors
    /// It is a phase of a transaction.
    pub(super) fn to_protected(&self) -> Result<Source<'static>> {
        let batch = match self {
            Source::Batch(batch) => batch.to_protected(),
            Source::Owned(batch) => batch.to_protected(),
            Source::One { op, .. } => {
                let mut batch = WriteBatch::protected();
                batch.push_checked(*op);
                batch
            }
            Source::Phase(_) => {
                return Err(Error::not_supported(
                    "protection_bytes_per_key for what a transaction prepares or commits",
                ));
            }
        };
        Ok(Source::Owned(Box::new(batch)))
    }

    /// The same, for when the writer's own is about to go.
    pub(super) fn to_owned(&self) -> Source<'static> {
        match self {
            Source::Batch(batch) => Source::Owned(Box::new((*batch).clone())),
            Source::Owned(batch) => Source::Owned(batch.clone()),
            Source::Phase(phase) => Source::Phase(phase.clone()),
            Source::One { op, .. } => {
                let mut batch = WriteBatch::new();
                batch.push_checked(*op);
                Source::Owned(Box::new(batch))
            }
        }
    }

    /// Whether its entries are few, all point entries, and of one column family.
    #[inline]
    pub(super) fn has_few(&self) -> bool {
        let batch = match self {
            Source::One { op, .. } => return point(SeqNo::ZERO, *op).is_some(),
            Source::Phase(_) => return false,
            Source::Batch(batch) => batch,
            Source::Owned(batch) => &**batch,
        };
        // Why not protected ones: their checksums go with them into the memtable.
        batch.count() as usize <= FEW
            && !batch.is_protected()
            && batch.families().len() == 1
            && batch.iter().all(|op| op.column_family().is_none() || point(SeqNo::ZERO, op).is_some())
    }

    /// Calls `each` with its point entries, the first with number `seq`. For those of which there
    /// [are few](Self::has_few).
    #[inline]
    pub(super) fn each_point(&self, mut seq: SeqNo, mut each: impl FnMut(&PointEntry<'_>)) {
        self.each_op(|op| {
            if let Some(entry) = point(seq, op) {
                each(&entry);
                seq = SeqNo(seq.0 + 1);
            }
        });
    }

    /// What it inserts, as a batch. `None` if it inserts nothing.
    #[cold]
    pub(super) fn inserted(&self) -> Option<Cow<'_, [u8]>> {
        Some(match self {
            Source::Batch(batch) => Cow::Borrowed(batch.as_bytes()),
            Source::Owned(batch) => Cow::Borrowed(batch.as_bytes()),
            Source::Phase(phase) => Cow::Borrowed(phase.inserted()?.as_bytes()),
            Source::One { op, .. } => {
                let mut batch = write_batch::WriteBatch::new();
                batch.push(*op);
                Cow::Owned(batch.as_bytes().to_vec())
            }
        })
    }

    /// Whether it inserts nothing.
    pub(super) fn only_logs(&self) -> bool {
        matches!(self, Source::Phase(phase) if phase.inserted().is_none())
    }

    /// Inserts it, its first operation with number `first`. Operations on families without a pin
    /// are passed over, and take their numbers.
    pub(super) fn insert<H: Host>(&self, first: SeqNo, pins: &Pins<H::Pin>) -> Result<(), DuplicateEntry> {
        let mut numbering = Numbering::Each;
        let batch = match self {
            Source::One { op, .. } => {
                return pins.first().map_or(Ok(()), |(_, pin)| replay::add(H::memtable(pin), first, *op));
            }
            Source::Phase(phase) => match phase.inserted() {
                Some(batch) => {
                    numbering = phase.numbering();
                    batch
                }
                None => return Ok(()),
            },
            Source::Batch(batch) => batch,
            Source::Owned(batch) => &**batch,
        };
        if batch.is_protected() {
            return insert_protected::<H>(batch, numbering, first, pins);
        }
        let mut group: Group<'_> = Group::new();
        let mut of = ColumnFamilyId::DEFAULT;
        let pin_of = |family| pins.iter().find(|(of, _)| *of == family).map(|(_, pin)| H::memtable(pin));
        let add = |family, group: &mut Group<'_>| match pin_of(family).filter(|_| !group.is_empty()) {
            Some(memtable) => memtable.add_many(group).map(|()| group.clear()),
            None => {
                group.clear();
                Ok(())
            }
        };
        let mut index = 0;
        for op in batch.iter() {
            let Some(family) = op.column_family() else { continue };
            let seq = numbering.of(first, index);
            index += 1;
            if family != of || group.len() == GROUP {
                add(of, &mut group)?;
                of = family;
            }
            match point(seq, op) {
                Some(entry) => group.push(entry),
                None => {
                    // Why first the group: so the memtable gets entries in their order where that
                    // is cheap.
                    add(of, &mut group)?;
                    pin_of(family).map_or(Ok(()), |memtable| replay::add(memtable, seq, op))?;
                }
            }
        }
        add(of, &mut group)?;
        Ok(())
    }
}

/// Inserts a batch whose operations carry checksums, which the memtables go on with.
fn insert_protected<H: Host>(
    batch: &WriteBatch,
    numbering: Numbering<'_>,
    first: SeqNo,
    pins: &Pins<H::Pin>,
) -> Result<(), DuplicateEntry> {
    let with_family = batch.iter_protected().filter_map(|(op, pair)| Some((op.column_family()?, op, pair)));
    for (index, (family, op, pair)) in with_family.enumerate() {
        let Some((_, pin)) = pins.iter().find(|(of, _)| *of == family) else { continue };
        let (memtable, seq) = (H::memtable(pin), numbering.of(first, index));
        match op {
            Op::DeleteRange { begin, end, .. } => {
                memtable.add_with_checksum(&(seq, ValueType::RangeDeletion, begin, end), pair)?;
            }
            op => match point(seq, op) {
                Some(entry) => memtable.add_with_checksum(&entry, pair)?,
                // Why not with its checksum: what is inserted is not what was written.
                None => replay::add(memtable, seq, op)?,
            },
        }
    }
    Ok(())
}
