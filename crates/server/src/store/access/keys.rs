//! Operations on keys of all types: existence, type, expiry, deletion, renaming, copying; whole
//! databases.

use super::super::layout::{
    Body, Collection, StreamRecord, collection_value, element_key, element_of, expiry_key, split_element,
    stream_value, string_value,
};
use super::{Access, Key, Kind, Mapping, Millis};
use crate::wrong::Wrong;

impl Access {
    /// Returns the type of a key.
    pub(crate) async fn kind(&self, key: &Key) -> Result<Option<Kind>, Wrong> {
        Ok(self.live(key).await?.map(|record| record.head.kind))
    }

    /// Returns the types of many keys, read at the same time (EXISTS, TOUCH).
    pub(crate) async fn kinds(&self, keys: &[Key]) -> Result<Vec<Option<Kind>>, Wrong> {
        let records = self.live_many(keys).await?;
        Ok(records.into_iter().map(|record| record.map(|record| record.head.kind)).collect())
    }

    /// Returns the expiry of a key: `None` if there is no key, `Some(None)` if it has no expiry.
    pub(crate) async fn expiry(&self, key: &Key) -> Result<Option<Option<Millis>>, Wrong> {
        Ok(self.live(key).await?.map(|record| record.head.expiry))
    }

    /// Sets or removes the expiry of a key; a time that has come deletes the key. Returns false if
    /// there is no key.
    pub(crate) async fn set_expiry(&mut self, key: &Key, at: Option<Millis>) -> Result<bool, Wrong> {
        let Some(record) = self.live_to_write(key).await? else { return Ok(false) };
        let head = record.head;
        if at.is_some_and(|at| at <= self.now) {
            self.remove(key, &head)?;
            return Ok(true);
        }
        if at.is_none() && head.expiry.is_none() {
            return Ok(true);
        }
        let value = match head.body {
            Body::String { begins } => string_value(at, &record.value[begins..]),
            Body::Collection(collection) => collection_value(head.kind, at, collection),
            Body::Stream(stream) => stream_value(at, &stream),
        };
        self.put_head(key, Some(&head), at, &value)?;
        Ok(true)
    }

    /// Deletes a key of any type, in constant time. Returns false if there is no key.
    pub(crate) async fn delete(&mut self, key: &Key) -> Result<bool, Wrong> {
        let Some(record) = self.live_to_write(key).await? else { return Ok(false) };
        self.remove(key, &record.head)?;
        Ok(true)
    }

    /// Gives `from` the name `to`, in place of what is there, with its expiry. Takes constant time
    /// within a database; into another (MOVE) a collection's elements are copied. Returns false if
    /// there is no key `from`. Nothing happens if both are one key.
    pub(crate) async fn rename(&mut self, from: &Key, to: &Key) -> Result<bool, Wrong> {
        let Some(record) = self.live_to_write(from).await? else { return Ok(false) };
        if from == to {
            return Ok(true);
        }
        let head = record.head;
        if from.db != to.db && head.version().is_some() {
            self.copy(from, to).await?;
            return self.delete(from).await;
        }
        let before = self.live_to_write(to).await?.map(|record| record.head);
        self.unlink(from, &head)?;
        self.touch(from)?;
        self.replace(to, before.as_ref(), head.expiry, &record.value)?;
        Ok(true)
    }

    /// Copies `from` to `to`, in place of what is there, with its expiry. Returns false if there is
    /// no key `from`. Nothing happens if both are one key.
    pub(crate) async fn copy(&mut self, from: &Key, to: &Key) -> Result<bool, Wrong> {
        let Some(record) = self.live(from).await? else { return Ok(false) };
        if from == to {
            return Ok(true);
        }
        let head = record.head;
        let before = self.live_to_write(to).await?.map(|record| record.head);
        let Some(copied) = head.version() else {
            self.replace(to, before.as_ref(), head.expiry, &record.value)?;
            return Ok(true);
        };
        let version = self.new_version(to.db).await?;
        let store = self.store.clone();
        let mut walk = self.walk(&store.0.elements, &copied.to_be_bytes())?;
        walk.first().await?;
        while let Some((key, value)) = walk.entry() {
            let element = element_of(key)?;
            let copied = element_key(version, element);
            self.changes()?.batch.put_cf(&store.0.elements, copied, value)?;
            if head.expiring_version().is_some() {
                let (_, expiry) = split_element(head.kind, key, value)?;
                self.move_field(version, element, None, expiry)?;
            }
            walk.next().await?;
        }
        let value = match head.body {
            Body::Collection(collection) => {
                collection_value(head.kind, head.expiry, Collection { version, ..collection })
            }
            Body::Stream(stream) => stream_value(head.expiry, &StreamRecord { version, ..stream }),
            Body::String { .. } => record.value.to_vec(),
        };
        self.replace(to, before.as_ref(), head.expiry, &value)?;
        Ok(true)
    }

    /// Deletes the entry of a base's key in `expiries` for the time `at`, which has come. `key` is
    /// that key if the base is a database's; it is deleted if it has expired.
    pub(in super::super) async fn expire(
        &mut self,
        at: Millis,
        stored: &[u8],
        key: Option<&Key>,
    ) -> Result<(), Wrong> {
        if let Some(key) = key {
            self.live_to_write(key).await?;
        }
        let store = self.store.clone();
        Ok(self.changes()?.batch.delete_cf(&store.0.expiries, expiry_key(at, stored))?)
    }

    /// Removes all keys of a database, in constant time. Needs [`Store::change_all`].
    ///
    /// [`Store::change_all`]: super::super::Store::change_all
    pub(crate) async fn flush(&mut self, db: u16) -> Result<(), Wrong> {
        self.changes()?.is_flush = true;
        if self.size(db) == 0 {
            return Ok(());
        }
        let databases = &self.store.0.databases;
        let also: Vec<_> = self.changes.iter().flat_map(|it| &it.flushed).map(|(_, it)| it.clone()).collect();
        let fresh = databases.fresh(&self.mapping, &also)?;
        let mut mapping = self.mapping.to_vec();
        let before = std::mem::replace(&mut mapping[usize::from(db)], fresh);
        self.changes()?.flushed.push((db, before));
        self.mapping = Mapping::new(mapping);
        Ok(())
    }

    /// Exchanges two databases, in constant time. Needs [`Store::change_all`].
    ///
    /// [`Store::change_all`]: super::super::Store::change_all
    pub(crate) async fn swap(&mut self, one: u16, other: u16) -> Result<(), Wrong> {
        if one == other {
            return Ok(());
        }
        // A watched key has changed if it was in either of the databases, and the clients that wait
        // for a key are signalled by the same condition.
        let store = self.store.clone();
        for (here, there) in [(one, other), (other, one)] {
            for key in store.0.locks.watched_in(here).into_iter().chain(store.0.waiters.keys_in(here)) {
                let moved = Key { db: there, name: key.name.clone() };
                if self.live(&key).await?.is_some() || self.live(&moved).await?.is_some() {
                    self.touch(&key)?;
                }
            }
        }
        self.changes()?.swapped = true;
        let mut mapping = self.mapping.to_vec();
        mapping.swap(usize::from(one), usize::from(other));
        self.mapping = Mapping::new(mapping);
        Ok(())
    }
}
