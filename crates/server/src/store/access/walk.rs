//! Walks over a part of a family in order, with the writes of the access.

use super::{Access, Changes};
use karstdb::io::yield_now;
use karstdb::{BatchDbIterator, ColumnFamily, DbIterator, ReadOptions, Result, Value};

/// Number of steps after which a walk lets other tasks of its thread run.
const STEPS: u32 = 256;

/// An end of an order: of a list, or of a part of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// The entries of a family whose keys begin with a prefix. Stands at an entry, or is at its end.
pub(super) struct Walk {
    entries: Entries,
    steps: u32,
}

enum Entries {
    Plain(Box<DbIterator>),
    Batch(Box<BatchDbIterator>),
}

impl Access {
    /// Makes a walk over the keys with this prefix, which stands nowhere: [`Walk::seek`] first.
    /// Pins a view.
    pub(super) fn walk(&self, family: &ColumnFamily, prefix: &[u8]) -> Result<Walk> {
        self.walk_within(family, prefix.to_vec(), super::layout::behind(prefix))
    }

    /// Makes a walk over the keys from `lower` on and below `upper`, if there is one; as
    /// [`walk`](Self::walk) does.
    pub(super) fn walk_within(
        &self,
        family: &ColumnFamily,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
    ) -> Result<Walk> {
        self.pin();
        let options = ReadOptions {
            iterate_lower_bound: Some(lower),
            iterate_upper_bound: upper,
            ..self.options().clone()
        };
        let db = &self.store.0.db;
        let entries = match &self.changes {
            Some(Changes { batch, .. }) if !batch.is_empty() => {
                Entries::Batch(Box::new(batch.iter_with_base_cf(db, &options, family)?))
            }
            _ => Entries::Plain(Box::new(db.iter_cf(&options, family)?)),
        };
        Ok(Walk { entries, steps: 0 })
    }
}

impl Walk {
    /// Moves to the first key at or behind `key`.
    pub(super) async fn seek(&mut self, key: &[u8]) -> Result<()> {
        match &mut self.entries {
            Entries::Plain(iter) => iter.seek_async(key).await,
            Entries::Batch(iter) => iter.seek_async(key).await,
        }
    }

    /// Moves to the first key.
    pub(super) async fn first(&mut self) -> Result<()> {
        match &mut self.entries {
            Entries::Plain(iter) => iter.seek_to_first_async().await,
            Entries::Batch(iter) => iter.seek_to_first_async().await,
        }
    }

    /// Moves to the last key.
    pub(super) async fn last(&mut self) -> Result<()> {
        match &mut self.entries {
            Entries::Plain(iter) => iter.seek_to_last_async().await,
            Entries::Batch(iter) => iter.seek_to_last_async().await,
        }
    }

    /// Moves to the next key. Stands at one before.
    pub(super) async fn next(&mut self) -> Result<()> {
        self.pause().await;
        match &mut self.entries {
            Entries::Plain(iter) => iter.next_async().await,
            Entries::Batch(iter) => iter.next_async().await,
        }
    }

    /// Moves to the previous key. Stands at one before.
    pub(super) async fn previous(&mut self) -> Result<()> {
        self.pause().await;
        match &mut self.entries {
            Entries::Plain(iter) => iter.prev_async().await,
            Entries::Batch(iter) => iter.prev_async().await,
        }
    }

    /// Moves to the key at an end.
    pub(super) async fn begin(&mut self, end: Side) -> Result<()> {
        match end {
            Side::Left => self.first().await,
            Side::Right => self.last().await,
        }
    }

    /// Moves one key on, away from an end. Stands at one before.
    pub(super) async fn leave(&mut self, end: Side) -> Result<()> {
        match end {
            Side::Left => self.next().await,
            Side::Right => self.previous().await,
        }
    }

    /// Counts a step, and lets others run after many.
    async fn pause(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) {
            yield_now().await;
        }
    }

    /// Returns the entry, or `None` at the end.
    pub(super) fn entry(&self) -> Option<(&[u8], &[u8])> {
        match &self.entries {
            Entries::Plain(iter) => iter.valid().then(|| (iter.key(), iter.value())),
            Entries::Batch(iter) => iter.valid().then(|| (iter.key(), iter.value())),
        }
    }

    /// Returns the value of the entry, which stays readable. Stands at one.
    pub(super) fn value(&self) -> Value {
        match &self.entries {
            Entries::Plain(iter) => iter.pinned_value(),
            Entries::Batch(iter) => iter.pinned_value(),
        }
    }
}
