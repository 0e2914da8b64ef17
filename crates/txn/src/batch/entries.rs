//! Iterators over the operations of a batch, without its database.
//!
//! An iterator walks the batch's index of one column family in key order, in both directions; the
//! operations of one key come oldest first.

use super::WriteBatchWithIndex;
use super::index::{FamilyIndex, From, Update, Updates};
use karst_engine::format::ColumnFamilyId;
use karst_engine::{ColumnFamily, Result};
use std::sync::Arc;

/// Effect of an operation of a batch on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchEntryKind {
    /// Sets the key.
    Put,
    /// Removes the key.
    Delete,
    /// Removes the key, which was put at most once since it was last removed.
    SingleDelete,
    /// Adds a merge operand.
    Merge,
    /// Sets it to an entity of named columns.
    PutEntity,
}

/// An operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchEntry<'a> {
    /// Effect on the key.
    pub kind: BatchEntryKind,
    /// Key that is written.
    pub key: &'a [u8],
    /// The value, the operand, or the columns as RocksDB encodes them; empty where the key is
    /// removed.
    pub value: &'a [u8],
}

/// An iterator over the operations of a batch in one column family, as they were when the iterator
/// was made. It performs no reads, so no call fails. Seek before any other call.
#[derive(Debug)]
pub struct BatchIterator {
    /// `None` if the batch has no operations in the family.
    index: Option<Arc<FamilyIndex>>,
    at: Option<At>,
}

#[derive(Debug)]
struct At {
    key: Arc<[u8]>,
    updates: Updates,
    /// Index of the current operation in `updates`.
    number: usize,
}

impl WriteBatchWithIndex {
    /// Returns an iterator over the batch's operations in the default column family. With
    /// `overwrite_key` each key shows only its last put or removal and the merge operands behind
    /// it; otherwise every operation. Operations added later do not show.
    pub fn iter(&self) -> BatchIterator {
        self.iter_of(ColumnFamilyId::DEFAULT.0)
    }

    /// Returns an iterator over the batch's operations in a column family; see
    /// [`iter`](Self::iter).
    ///
    /// # Errors
    /// The column family is of another database.
    pub fn iter_cf(&self, family: &ColumnFamily) -> Result<BatchIterator> {
        self.check(family)?;
        Ok(self.iter_of(family.id()))
    }

    fn iter_of(&self, family: u32) -> BatchIterator {
        BatchIterator { index: self.families.get(&family).cloned(), at: None }
    }
}

impl BatchIterator {
    /// Returns true if the iterator is at an operation.
    pub fn valid(&self) -> bool {
        self.at.is_some()
    }

    /// Returns the current operation.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn entry(&self) -> BatchEntry<'_> {
        let At { key, updates, number } = self.at.as_ref().expect("entry() of an iterator that is not valid");
        let (kind, value): (_, &[u8]) = match &updates[*number] {
            Update::Put(value) => (BatchEntryKind::Put, value),
            Update::Delete => (BatchEntryKind::Delete, &[]),
            Update::SingleDelete => (BatchEntryKind::SingleDelete, &[]),
            Update::Merge(operand) => (BatchEntryKind::Merge, operand),
            Update::Entity { entity, .. } => (BatchEntryKind::PutEntity, entity),
        };
        BatchEntry { kind, key, value }
    }

    /// Moves to the first operation of the first key from `from` on; backward, to the last
    /// operation of the last key.
    fn go(&mut self, from: From<'_>, forward: bool) {
        let found = self.index.as_ref().and_then(|index| index.walk(from, forward));
        self.at = found.map(|(key, updates)| At {
            key: key.bytes.clone(),
            updates: updates.clone(),
            number: if forward { 0 } else { updates.len() - 1 },
        });
    }

    /// Moves to the first operation of the first key.
    pub fn seek_to_first(&mut self) {
        self.go(From::End, true);
    }

    /// Moves to the last operation of the last key.
    pub fn seek_to_last(&mut self) {
        self.go(From::End, false);
    }

    /// Moves to the first operation of the first key at or after `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.go(From::At(key.as_ref()), true);
    }

    /// Moves to the last operation of the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) {
        self.go(From::At(key.as_ref()), false);
    }

    /// Moves to the next operation.
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[allow(clippy::should_implement_trait, reason = "the field's name for it")]
    pub fn next(&mut self) {
        let at = self.at.as_mut().expect("a move of an iterator that is not valid");
        if at.number + 1 < at.updates.len() {
            at.number += 1;
        } else {
            let key = at.key.clone();
            self.go(From::Beyond(&key), true);
        }
    }

    /// Moves to the previous operation.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn prev(&mut self) {
        let at = self.at.as_mut().expect("a move of an iterator that is not valid");
        if at.number > 0 {
            at.number -= 1;
        } else {
            let key = at.key.clone();
            self.go(From::Beyond(&key), false);
        }
    }
}
