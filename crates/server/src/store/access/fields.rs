//! Expiries of the fields of hashes.
//!
//! In: fields and times. Out: the values of fields with their expiries, and an entry of the family
//! `fields` for each, which the maintenance finds when its time comes. Reads leave out fields whose
//! time has come; the number of elements in the key's record counts them until they are deleted.

use super::super::layout::{
    Collection, Head, collection_value, element_value, field_key, name_key, name_of, names_prefix,
};
use super::collections::{collection_of, text};
use super::{Access, Classes, Expiring, Key, Kind, Millis, expect};
use crate::wrong::Wrong;
use karstdb::Value;
use std::collections::BTreeMap;

const HASH: Kind = Kind::Hash;

/// An element as it is stored: the user's bytes, and the expiry of a field.
pub(super) type Element = (Value, Option<Millis>);

/// Effect of a command on a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldChange {
    /// There is no such field.
    Missing,
    /// The condition does not hold for its expiry.
    Refused,
    /// Its expiry is another.
    Done,
    /// It was deleted, because its time has come.
    Deleted,
}

impl Access {
    /// True if the time of an element has come.
    pub(super) fn is_over(&self, element: Option<&Element>) -> bool {
        element.and_then(|(_, expiry)| *expiry).is_some_and(|at| at <= self.now)
    }

    /// Returns the user's bytes of an element; `None` if its time has come.
    pub(super) fn live_text(&self, kind: Kind, key: &[u8], value: Value) -> karstdb::Result<Option<Value>> {
        let element = text(kind, key, value)?;
        Ok(if self.is_over(Some(&element)) { None } else { Some(element.0) })
    }

    /// Reads many elements at the same time, also those whose time has come.
    pub(super) async fn stored_elements<N: AsRef<[u8]>>(
        &self,
        kind: Kind,
        version: u64,
        names: &[N],
    ) -> Result<Vec<Option<Element>>, Wrong> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(super::collections::AT_ONCE) {
            let stored: Vec<_> = names.iter().map(|name| name_key(kind, version, name.as_ref())).collect();
            let values = self.multi_get(&self.store.0.elements, &stored).await?;
            for (key, value) in stored.iter().zip(values) {
                found.push(value.map(|value| text(kind, key, value)).transpose()?);
            }
        }
        Ok(found)
    }

    /// Returns the values of fields with their expiries, read at the same time.
    ///
    /// # Errors
    /// `WRONGTYPE`, as for all calls here.
    pub(crate) async fn fields(&self, key: &Key, names: &[Vec<u8>]) -> Result<Vec<Option<Element>>, Wrong> {
        let Some(hash) = self.collection(key, HASH).await? else { return Ok(vec![None; names.len()]) };
        let found = self.stored_elements(HASH, hash.version, names).await?;
        Ok(found.into_iter().map(|found| found.filter(|element| !self.is_over(Some(element)))).collect())
    }

    /// Returns all fields with their values and expiries, in the order of their bytes.
    pub(crate) async fn all_fields(&self, key: &Key) -> Result<Vec<(Vec<u8>, Element)>, Wrong> {
        let mut all = Vec::new();
        let Some(hash) = self.collection(key, HASH).await? else { return Ok(all) };
        let mut walk = self.walk(&self.store.0.elements, &names_prefix(HASH, hash.version))?;
        walk.first().await?;
        while let Some((key, _)) = walk.entry() {
            let element = text(HASH, key, walk.value())?;
            if !self.is_over(Some(&element)) {
                all.push((name_of(HASH, key)?.to_vec(), element));
            }
            walk.next().await?;
        }
        Ok(all)
    }

    /// True if fields of a hash may have expiries.
    pub(crate) async fn fields_expire(&self, key: &Key) -> Result<bool, Wrong> {
        Ok(self.collection(key, HASH).await?.is_some_and(|hash| hash.fields_expire))
    }

    /// Sets or removes the expiry of fields, one after the other, where `allows` holds for the one
    /// of before. A time that has come deletes the field.
    pub(crate) async fn set_field_expiries(
        &mut self,
        key: &Key,
        names: &[Vec<u8>],
        at: Option<Millis>,
        allows: impl Fn(Option<Millis>) -> bool,
    ) -> Result<Vec<FieldChange>, Wrong> {
        let head = expect(self.live_to_write(key).await?, HASH)?.map(|record| record.head);
        let Some((head, hash)) = head.and_then(|head| Some((head, collection_of(&head)?))) else {
            return Ok(vec![FieldChange::Missing; names.len()]);
        };
        let found = self.stored_elements(HASH, hash.version, names).await?;
        // The fields before and behind the changes; a name may come twice.
        let mut fields: BTreeMap<&Vec<u8>, (Element, Option<Element>)> = BTreeMap::new();
        for (name, found) in names.iter().zip(found) {
            if let Some(element) = found.filter(|element| !self.is_over(Some(element))) {
                fields.insert(name, (element.clone(), Some(element)));
            }
        }
        let mut changes = Vec::with_capacity(names.len());
        for name in names {
            let after = fields.get_mut(name).map(|(_, after)| after);
            changes.push(match after {
                None | Some(None) => FieldChange::Missing,
                Some(Some((_, expiry))) if !allows(*expiry) => FieldChange::Refused,
                Some(after) if at.is_some_and(|at| at <= self.now) => {
                    *after = None;
                    FieldChange::Deleted
                }
                Some(Some((_, expiry))) => {
                    *expiry = at;
                    FieldChange::Done
                }
            });
        }
        let (store, mut hash, mut deleted) = (self.store.clone(), hash, 0);
        for (name, (before, after)) in &fields {
            match after {
                None => {
                    self.drop_element(HASH, hash.version, name, before.1)?;
                    deleted += 1;
                }
                Some((value, expiry)) if *expiry != before.1 => {
                    let value = element_value(HASH, *expiry, value);
                    let stored = name_key(HASH, hash.version, name);
                    self.changes()?.batch.put_cf(&store.0.elements, stored, value)?;
                    self.move_field(hash.version, name, before.1, *expiry)?;
                    hash.fields_expire |= expiry.is_some();
                }
                Some(_) => {}
            }
        }
        if deleted > 0 || Some(hash) != collection_of(&head) {
            self.put_count(key, &head, hash, deleted)?;
        } else if changes.contains(&FieldChange::Done) {
            self.touch(key)?;
        }
        Ok(changes)
    }

    /// Deletes the entry of a field for the time `at`, which has come. `key` is the key of the hash
    /// with this version, as far as there is one; the field is deleted if it has expired.
    pub(in super::super) async fn expire_field(
        &mut self,
        (at, version, field): (Millis, u64, &[u8]),
        key: Option<&Key>,
    ) -> Result<(), Wrong> {
        if let Some(key) = key
            && let Some(record) = self.live_to_write(key).await?
            && let Some(hash) = collection_of(&record.head).filter(|hash| hash.version == version)
            && let Some(Some(element)) = self.stored_elements(HASH, version, &[field]).await?.pop()
            && element.1 == Some(at)
        {
            self.drop_element(HASH, version, field, element.1)?;
            self.event_once(Classes::HASH, "hexpired", key);
            if hash.count == 1 {
                self.event(Classes::GENERIC, "del", key);
            }
            return self.put_count(key, &record.head, hash, 1);
        }
        let store = self.store.clone();
        Ok(self.changes()?.batch.delete_cf(&store.0.fields, field_key(at, version, field))?)
    }

    /// Puts the entry of a field for its expiry in place of that for the one before.
    pub(super) fn move_field(
        &mut self,
        version: u64,
        field: &[u8],
        before: Option<Millis>,
        expiry: Option<Millis>,
    ) -> Result<(), Wrong> {
        if before == expiry {
            return Ok(());
        }
        let store = self.store.clone();
        let changes = self.changes()?;
        if let Some(at) = before {
            changes.batch.delete_cf(&store.0.fields, field_key(at, version, field))?;
        }
        if let Some(at) = expiry {
            changes.batch.put_cf(&store.0.fields, field_key(at, version, field), [])?;
            let due = &mut changes.due[Expiring::Fields as usize];
            *due = at.min(*due);
        }
        Ok(())
    }

    /// Removes an existing element, but not from the number of elements.
    pub(super) fn drop_element(
        &mut self,
        kind: Kind,
        version: u64,
        name: &[u8],
        expiry: Option<Millis>,
    ) -> Result<(), Wrong> {
        let store = self.store.clone();
        self.changes()?.batch.delete_cf(&store.0.elements, name_key(kind, version, name))?;
        self.move_field(version, name, expiry, None)
    }

    /// Writes the record of a hash or a set from which this number of elements was removed; removes
    /// it with the last.
    pub(super) fn put_count(
        &mut self,
        key: &Key,
        head: &Head,
        collection: Collection,
        removed: u64,
    ) -> Result<(), Wrong> {
        if removed >= collection.count {
            // Not buried: no element of the version stays.
            self.unlink(key, head)?;
            return self.touch(key);
        }
        if removed == 0 && Some(collection) == collection_of(head) {
            return Ok(());
        }
        let collection = Collection { count: collection.count - removed, ..collection };
        let value = collection_value(head.kind, head.expiry, collection);
        self.put_head(key, Some(head), head.expiry, &value)
    }
}
