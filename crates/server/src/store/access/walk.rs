//! Walks over a part of a family in order, with the writes of the access.

use super::{Access, Changes};
use karstdb::io::yield_now;
use karstdb::{BatchDbIterator, ColumnFamily, DbIterator, ReadOptions, Result, Value};

/// Number of steps after which a walk lets other tasks of its thread run.
const STEPS: u32 = 256;

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
        self.pin();
        let options = ReadOptions {
            iterate_lower_bound: Some(prefix.to_vec()),
            iterate_upper_bound: super::layout::behind(prefix),
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
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) {
            yield_now().await;
        }
        match &mut self.entries {
            Entries::Plain(iter) => iter.next_async().await,
            Entries::Batch(iter) => iter.next_async().await,
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
