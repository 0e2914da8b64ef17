//! The contents of one write: a batch, one operation without a batch of its own, or a phase of a
//! transaction.
//!
//! Provides the record for the log, and the inserts. Invariant: both have the same operations,
//! except for a phase.

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

/// Maximum number of entries inserted into a memtable together.
const GROUP: usize = 16;
type Group<'a> = SmallVec<[PointEntry<'a>; GROUP]>;

/// Returns the entry that an operation adds, if it is a point entry whose value is stored as given.
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

/// Maximum number of entries of a write that may be gathered with those of other writes.
const FEW: usize = 4;

/// Contents of one write.
#[derive(Debug)]
pub enum Source<'a> {
    /// A batch borrowed from its writer.
    Batch(&'a WriteBatch),
    /// A batch separated from its writer.
    Owned(Box<WriteBatch>),
    /// A phase of a transaction, whose logged and inserted operations differ.
    Phase(PhaseWrite),
    /// One operation.
    One {
        /// The operation.
        op: Op<'a>,
        /// Column family that it writes to.
        family: ColumnFamilyId,
        /// Bytes of the record after its header.
        body_bytes: usize,
    },
}

impl<'a> Source<'a> {
    /// Creates a source of one operation on a column family.
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

    /// Returns the column families that it touches.
    pub(super) fn families(&self) -> &[ColumnFamilyId] {
        match self {
            Source::Batch(batch) => batch.families(),
            Source::Owned(batch) => batch.families(),
            Source::Phase(phase) => phase.families(),
            Source::One { family, .. } => std::slice::from_ref(family),
        }
    }

    /// Returns the number of sequence numbers that it takes.
    pub(super) fn count(&self) -> u32 {
        match self {
            Source::Batch(batch) => batch.count(),
            Source::Owned(batch) => batch.count(),
            Source::Phase(phase) => phase.count(),
            Source::One { .. } => 1,
        }
    }

    /// Returns the count in the header of its record.
    pub(super) fn logged_count(&self) -> u32 {
        match self {
            Source::Phase(phase) => phase.logged_count(),
            _ => self.count(),
        }
    }

    /// Returns true if it removes a range and has other operations too.
    pub(super) fn mixes_ranges(&self) -> bool {
        match self {
            Source::Batch(batch) => batch.mixes_ranges(),
            Source::Owned(batch) => batch.mixes_ranges(),
            Source::Phase(_) | Source::One { .. } => false,
        }
    }

    /// Returns the record after its header, with a mark before each removed range, at which
    /// RocksDB's replay takes the next sequence number.
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

    /// Returns the phase of a transaction, if it is one.
    pub(super) fn phase(&self) -> Option<&PhaseWrite> {
        match self {
            Source::Phase(phase) => Some(phase),
            _ => None,
        }
    }

    /// Appends the record after its header.
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

    /// Returns the bytes of its record.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Source::One { body_bytes, .. } => HEADER_BYTES + body_bytes,
            Source::Batch(batch) => batch.as_bytes().len(),
            Source::Owned(batch) => batch.as_bytes().len(),
            Source::Phase(phase) => HEADER_BYTES + phase.body_bytes(),
        }
    }

    /// Compares the operations with their checksums, if they have any.
    pub(super) fn verify(&self) -> Result<()> {
        match self {
            Source::Batch(batch) => batch.verify(),
            Source::Owned(batch) => batch.verify(),
            Source::Phase(_) | Source::One { .. } => Ok(()),
        }
    }

    /// Returns a copy with a checksum on each operation.
    ///
    /// # Errors
    /// `NotSupported`: it is a phase of a transaction.
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
                    "protection_bytes_per_key for the batch of a transaction that is prepared or committed",
                ));
            }
        };
        Ok(Source::Owned(Box::new(batch)))
    }

    /// Returns a copy that does not borrow from the writer.
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

    /// Returns true if its entries are few, all point entries, and of one column family.
    #[inline]
    pub(super) fn has_few(&self) -> bool {
        let batch = match self {
            Source::One { op, .. } => return point(SeqNo::ZERO, *op).is_some(),
            Source::Phase(_) => return false,
            Source::Batch(batch) => batch,
            Source::Owned(batch) => &**batch,
        };
        // Protected batches are excluded because their checksums go into the memtable.
        batch.count() as usize <= FEW
            && !batch.is_protected()
            && batch.families().len() == 1
            && batch.iter().all(|op| op.column_family().is_none() || point(SeqNo::ZERO, op).is_some())
    }

    /// Calls `each` with its point entries, the first at number `seq`. For writes of which
    /// [`has_few`](Self::has_few) is true.
    #[inline]
    pub(super) fn each_point(&self, mut seq: SeqNo, mut each: impl FnMut(&PointEntry<'_>)) {
        self.each_op(|op| {
            if let Some(entry) = point(seq, op) {
                each(&entry);
                seq = SeqNo(seq.0 + 1);
            }
        });
    }

    /// Returns the inserted operations as an encoded batch. `None` if it inserts nothing.
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

    /// Returns true if it inserts nothing.
    pub(super) fn only_logs(&self) -> bool {
        matches!(self, Source::Phase(phase) if phase.inserted().is_none())
    }

    /// Inserts its operations, the first at number `first`. Operations on families without a pin
    /// are skipped, and take their numbers.
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
                    // The group is added first, so that the memtable gets entries in order where
                    // that is cheap.
                    add(of, &mut group)?;
                    pin_of(family).map_or(Ok(()), |memtable| replay::add(memtable, seq, op))?;
                }
            }
        }
        add(of, &mut group)?;
        Ok(())
    }
}

/// Inserts a batch whose operations carry checksums, which the memtables keep.
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
                // Without its checksum, because the inserted value differs from the written one.
                None => replay::add(memtable, seq, op)?,
            },
        }
    }
    Ok(())
}
