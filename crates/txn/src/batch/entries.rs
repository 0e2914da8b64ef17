//! Iterators over what a batch holds, without its database.
//!
//! In: the batch's index of a column family. Out: its operations in the order of their keys, in
//! both directions; those of one key oldest first.

use super::WriteBatchWithIndex;
use super::index::{FamilyIndex, From, Update, Updates};
use karst_engine::format::ColumnFamilyId;
use karst_engine::{ColumnFamily, Result};
use std::sync::Arc;

/// What an operation of a batch does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchEntryKind {
    /// Sets it.
    Put,
    /// Removes it.
    Delete,
    /// Removes it; it was put at most once since it was last removed.
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
    /// What it does.
    pub kind: BatchEntryKind,
    /// To which key.
    pub key: &'a [u8],
    /// The value, the operand, or the columns as RocksDB encodes them; empty where the key is
    /// removed.
    pub value: &'a [u8],
}

/// An iterator over what a batch does to a column family, as it was when the iterator was made.
/// Nothing is read, so nothing fails. Seek before anything else.
#[derive(Debug)]
pub struct BatchIterator {
    /// `None` if the batch has nothing of the family.
    index: Option<Arc<FamilyIndex>>,
    at: Option<At>,
}

#[derive(Debug)]
struct At {
    key: Arc<[u8]>,
    updates: Updates,
    /// Which of them.
    number: usize,
}

impl WriteBatchWithIndex {
    /// An iterator over what the batch does to the default column family: with `overwrite_key`, for
    /// each key what its newest operations amount to, that is the last put or removal and the
    /// operands behind it; otherwise every operation. It shows the batch as it is now, whatever is
    /// added later.
    pub fn iter(&self) -> BatchIterator {
        self.iter_of(ColumnFamilyId::DEFAULT.0)
    }

    /// The same of a column family.
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
    /// Whether the iterator stands at an operation.
    pub fn valid(&self) -> bool {
        self.at.is_some()
    }

    /// The current operation.
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

    /// Takes it to the first operation of the first key from a place on; backward, to the last of
    /// the last one.
    fn go(&mut self, from: From<'_>, forward: bool) {
        let found = self.index.as_ref().and_then(|index| index.walk(from, forward));
        self.at = found.map(|(key, updates)| At {
            key: key.bytes.clone(),
            updates: updates.clone(),
            number: if forward { 0 } else { updates.len() - 1 },
        });
    }

    /// Go to the first operation of all.
    pub fn seek_to_first(&mut self) {
        self.go(From::End, true);
    }

    /// Go to the last operation of all.
    pub fn seek_to_last(&mut self) {
        self.go(From::End, false);
    }

    /// Go to the first operation of the first key at or behind `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.go(From::At(key.as_ref()), true);
    }

    /// Go to the last operation of the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) {
        self.go(From::At(key.as_ref()), false);
    }

    /// Go to the next operation.
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

    /// Go to the previous operation.
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
