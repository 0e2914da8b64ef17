//! Hashes and sets: an entry for each element, with the collection's version before it. Reads here
//! are for sorted sets too, whose values are scores.
//!
//! In: fields and members. Out: their values, and changes of entries and of the count in the key's
//! record. A set's element has no value.
//!
//! Invariant: reads of a view take a snapshot before they read the key's record, because
//! compactions drop the elements of a deleted collection once no snapshot from before is left.

use super::super::layout::{
    Body, Collection, Head, collection_value, element_value, name_key, name_of, names_prefix, split_element,
};
use super::walk::Walk;
use super::{Access, Classes, Key, Kind, Lifetime, Millis, expect};
use crate::wrong::Wrong;
use karstdb::Value;
use karstdb::io::yield_now;
use std::collections::{HashMap, HashSet};

/// Number of elements up to which all are read to choose from, or returned by one call of a scan.
const SMALL: u64 = 128;
/// Maximum number of elements that one round of lookups reads.
pub(super) const AT_ONCE: usize = 1024;
/// Maximum number of random elements that are each looked for. The time for them grows with the
/// square of their number, because those known already are stepped over.
const SOUGHT_AT_MOST: u64 = 64;
/// Maximum number of steps from the random place that a random element is looked for at.
const STEPS: u64 = 16;

impl Access {
    /// Returns the number of elements; 0 if there is no key.
    ///
    /// # Errors
    /// `WRONGTYPE`, as for all calls here.
    pub(crate) async fn length(&self, key: &Key, kind: Kind) -> Result<u64, Wrong> {
        let record = expect(self.live(key).await?, kind)?;
        Ok(record.and_then(|record| collection_of(&record.head)).map_or(0, |collection| collection.count))
    }

    /// Returns the value of an element (empty in a set); `None` if there is no such element or key.
    pub(crate) async fn element(&self, key: &Key, kind: Kind, name: &[u8]) -> Result<Option<Value>, Wrong> {
        let Some(collection) = self.collection(key, kind).await? else { return Ok(None) };
        let stored = name_key(kind, collection.version, name);
        let value = self.get(&self.store.0.elements, &stored).await?;
        Ok(value.map(|value| self.live_text(kind, &stored, value)).transpose()?.flatten())
    }

    /// Returns the values of many elements, read at the same time, in the order of `names`.
    pub(crate) async fn elements(
        &self,
        key: &Key,
        kind: Kind,
        names: &[Vec<u8>],
    ) -> Result<Vec<Option<Value>>, Wrong> {
        match self.collection(key, kind).await? {
            None => Ok(vec![None; names.len()]),
            Some(collection) => self.lookup(kind, collection.version, names).await,
        }
    }

    pub(super) async fn lookup<N: AsRef<[u8]>>(
        &self,
        kind: Kind,
        version: u64,
        names: &[N],
    ) -> Result<Vec<Option<Value>>, Wrong> {
        let mut found = Vec::with_capacity(names.len());
        for names in names.chunks(AT_ONCE) {
            let stored: Vec<_> = names.iter().map(|name| name_key(kind, version, name.as_ref())).collect();
            let values = self.multi_get(&self.store.0.elements, &stored).await?;
            for (key, value) in stored.iter().zip(values) {
                found.push(value.map(|value| self.live_text(kind, key, value)).transpose()?.flatten());
            }
        }
        Ok(found)
    }

    /// Returns all elements with their values, in the order of their bytes.
    pub(crate) async fn all_elements(&self, key: &Key, kind: Kind) -> Result<Vec<(Vec<u8>, Value)>, Wrong> {
        let mut all = Vec::new();
        let Some(collection) = self.collection(key, kind).await? else { return Ok(all) };
        let mut walk = self.walk(&self.store.0.elements, &names_prefix(kind, collection.version))?;
        walk.first().await?;
        while let Some((key, _)) = walk.entry() {
            if let Some(value) = self.live_text(kind, key, walk.value())? {
                all.push((name_of(kind, key)?.to_vec(), value));
            }
            walk.next().await?;
        }
        Ok(all)
    }

    /// Returns about `count` elements from `cursor` on, and the cursor to go on with; see
    /// [`scan`](Self::scan). A small collection comes in one piece.
    pub(crate) async fn scan_elements(
        &self,
        key: &Key,
        kind: Kind,
        cursor: u64,
        count: usize,
    ) -> Result<(u64, Vec<(Vec<u8>, Value)>), Wrong> {
        let Some(collection) = self.collection(key, kind).await? else { return Ok((0, Vec::new())) };
        let prefix = names_prefix(kind, collection.version);
        let mut walk = self.walk(&self.store.0.elements, &prefix)?;
        let position = if cursor == 0 { Vec::new() } else { self.store.0.cursors.lock().position(cursor) };
        walk.seek(&[&prefix[..], &position].concat()).await?;
        let mut found = Vec::new();
        while let Some((key, _)) = walk.entry() {
            let element = name_of(kind, key)?;
            if found.len() >= count && collection.count > SMALL {
                return Ok((self.cursor(element).await?, found));
            }
            if let Some(value) = self.live_text(kind, key, walk.value())? {
                found.push((element.to_vec(), value));
            }
            walk.next().await?;
        }
        Ok((0, found))
    }

    /// Returns `count` elements by chance, all different, or all elements if there are not as many.
    /// In a large collection those behind wide gaps in the order come more often.
    pub(crate) async fn random_elements(
        &self,
        key: &Key,
        kind: Kind,
        count: u64,
    ) -> Result<Vec<(Vec<u8>, Value)>, Wrong> {
        let Some(collection) = self.collection(key, kind).await? else { return Ok(Vec::new()) };
        let prefix = names_prefix(kind, collection.version);
        if collection.count <= SMALL || count > SOUGHT_AT_MOST || count >= collection.count / 4 {
            return self.sample(&prefix, kind, count).await;
        }
        let mut walk = self.walk(&self.store.0.elements, &prefix)?;
        let (mut found, mut known) = (Vec::new(), HashSet::new());
        while (found.len() as u64) < count {
            self.anywhere(&mut walk, prefix.len()).await?;
            // A round finds another, unless all others have expired.
            while (known.len() as u64) < collection.count {
                let Some((key, _)) = walk.entry() else {
                    walk.first().await?;
                    if walk.entry().is_none() {
                        return Ok(found);
                    }
                    continue;
                };
                let element = name_of(kind, key)?;
                if known.insert(element.to_vec())
                    && let Some(value) = self.live_text(kind, key, walk.value())?
                {
                    found.push((element.to_vec(), value));
                    break;
                }
                walk.next().await?;
            }
            if known.len() as u64 >= collection.count {
                break;
            }
        }
        Ok(found)
    }

    /// Returns `count` elements by chance, all different and in any order, of those with this
    /// prefix; reads each once.
    async fn sample(&self, prefix: &[u8], kind: Kind, count: u64) -> Result<Vec<(Vec<u8>, Value)>, Wrong> {
        let mut walk = self.walk(&self.store.0.elements, prefix)?;
        let (mut found, mut seen) = (Vec::new(), 0u64);
        walk.first().await?;
        while let Some((key, _)) = walk.entry() {
            let Some(value) = self.live_text(kind, key, walk.value())? else {
                walk.next().await?;
                continue;
            };
            seen += 1;
            // The element has come to one of `seen` places, of which the first ones are kept.
            let place = self.below(seen) as usize;
            if seen <= count {
                found.push((name_of(kind, key)?.to_vec(), value));
                let last = found.len() - 1;
                found.swap(place, last);
            } else if let Some(there) = found.get_mut(place) {
                *there = (name_of(kind, key)?.to_vec(), value);
            }
            walk.next().await?;
        }
        Ok(found)
    }

    /// Draws `count` elements by chance, each from all. Returns elements, and the places of the
    /// drawn ones among them.
    pub(crate) async fn draw_elements(
        &self,
        key: &Key,
        kind: Kind,
        count: u64,
    ) -> Result<(Vec<(Vec<u8>, Value)>, Vec<usize>), Wrong> {
        let Some(collection) = self.collection(key, kind).await? else { return Ok(Default::default()) };
        if collection.count > SMALL && count <= STEPS {
            let mut drawn = Vec::new();
            for _ in 0..count {
                drawn.extend(self.random_elements(key, kind, 1).await?);
            }
            let places = (0..drawn.len()).collect();
            return Ok((drawn, places));
        }
        let all = self.all_elements(key, kind).await?;
        let mut places = Vec::new();
        while (places.len() as u64) < count && !all.is_empty() {
            places.push(self.below(all.len() as u64) as usize);
            if places.len().is_multiple_of(AT_ONCE) {
                yield_now().await;
            }
        }
        Ok((all, places))
    }

    /// Puts elements, each with its value (ignored in a set), in place of those of these names.
    /// Returns the number of those that were not there. The fields of a hash have no expiry then.
    pub(crate) async fn put_elements<'a>(
        &mut self,
        key: &Key,
        kind: Kind,
        elements: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<u64, Wrong> {
        self.put_elements_for(key, kind, elements, Lifetime::Forever).await
    }

    /// [`put_elements`](Self::put_elements) with the expiry of a hash's fields, which has not come.
    pub(crate) async fn put_elements_for<'a>(
        &mut self,
        key: &Key,
        kind: Kind,
        elements: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        lifetime: Lifetime,
    ) -> Result<u64, Wrong> {
        let elements = elements.map(|(name, value)| (name, value, lifetime));
        self.put_elements_each(key, kind, elements).await
    }

    /// [`put_elements_for`](Self::put_elements_for) with the lifetime of each. Of a name that comes
    /// twice the last one counts.
    pub(crate) async fn put_elements_each<'a>(
        &mut self,
        key: &Key,
        kind: Kind,
        elements: impl Iterator<Item = (&'a [u8], &'a [u8], Lifetime)>,
    ) -> Result<u64, Wrong> {
        debug_assert_ne!(kind, Kind::SortedSet, "its index would not follow");
        let before = expect(self.live_to_write(key).await?, kind)?.map(|record| record.head);
        let (names, values): (Vec<_>, Vec<(&[u8], Lifetime)>) =
            elements.map(|(name, value, lifetime)| (name.to_vec(), (value, lifetime))).unzip();
        if names.is_empty() {
            return Ok(0);
        }
        let (old, found) = match before.as_ref().and_then(collection_of) {
            Some(collection) => (collection, self.stored_elements(kind, collection.version, &names).await?),
            None => (self.new_collection(key.db).await?, vec![None; names.len()]),
        };
        let (store, mut seen, mut added, mut new) = (self.store.clone(), HashMap::new(), 0, old);
        for ((name, (value, lifetime)), found) in names.iter().zip(values).zip(found) {
            let put_before: Option<Option<Millis>> = seen.get(name).copied();
            let (is_first, is_over) = (put_before.is_none(), self.is_over(found.as_ref()));
            let is_over = is_first && is_over;
            let expiry_before = put_before.unwrap_or_else(|| found.as_ref().and_then(|(_, expiry)| *expiry));
            let expiry = match lifetime {
                Lifetime::Forever => None,
                Lifetime::Until(at) => Some(at),
                Lifetime::Keep => expiry_before.filter(|_| !is_over),
            };
            new.fields_expire |= matches!(lifetime, Lifetime::Until(_));
            seen.insert(name, expiry);
            self.move_field(new.version, name, expiry_before, expiry)?;
            if is_first {
                new.count += u64::from(found.is_none());
                added += u64::from(found.is_none() || is_over);
                if is_over {
                    self.event_once(Classes::HASH, "hexpired", key);
                }
            }
            if kind == Kind::Set && (found.is_some() || !is_first) {
                continue;
            }
            let value = element_value(kind, expiry, value);
            let changes = self.changes()?;
            changes.batch.put_cf(&store.0.elements, name_key(kind, new.version, name), value)?;
        }
        match kind {
            _ if new != old => {
                let expiry = before.and_then(|head| head.expiry);
                self.put_head(key, before.as_ref(), expiry, &collection_value(kind, expiry, new))?;
            }
            Kind::Hash => self.touch(key)?,
            _ => {}
        }
        Ok(added)
    }

    /// Removes elements, and the key with the last. Returns the number of those that were there.
    pub(crate) async fn delete_elements(
        &mut self,
        key: &Key,
        kind: Kind,
        names: &[Vec<u8>],
    ) -> Result<u64, Wrong> {
        debug_assert_ne!(kind, Kind::SortedSet, "its index would not follow");
        let Some(record) = expect(self.live_to_write(key).await?, kind)? else { return Ok(0) };
        let Some(collection) = collection_of(&record.head) else { return Ok(0) };
        let found = self.stored_elements(kind, collection.version, names).await?;
        let (mut gone, mut removed) = (HashSet::new(), 0);
        for (name, found) in names.iter().zip(found) {
            if let Some(element) = found
                && gone.insert(name)
            {
                let is_over = self.is_over(Some(&element));
                removed += u64::from(!is_over);
                if is_over {
                    self.event_once(Classes::HASH, "hexpired", key);
                }
                self.drop_element(kind, collection.version, name, element.1)?;
            }
        }
        // Callers tell of an end that what they have removed is a part of.
        if removed == 0 && !gone.is_empty() && gone.len() as u64 >= collection.count {
            self.event(Classes::GENERIC, "del", key);
        }
        self.put_count(key, &record.head, collection, gone.len() as u64)?;
        Ok(removed)
    }

    /// Reads the record of a collection; what follows sees the same state.
    pub(super) async fn collection(&self, key: &Key, kind: Kind) -> Result<Option<Collection>, Wrong> {
        self.pin();
        let record = expect(self.live(key).await?, kind)?;
        Ok(record.and_then(|record| collection_of(&record.head)))
    }

    /// Moves a walk to a place by chance: behind a random name between the first and the last. Keys
    /// are compared behind their first `prefix` bytes.
    pub(super) async fn anywhere(&self, walk: &mut Walk, prefix: usize) -> Result<(), Wrong> {
        walk.last().await?;
        let Some((key, _)) = walk.entry() else { return Ok(()) };
        let last = key.to_vec();
        walk.first().await?;
        let Some((key, _)) = walk.entry() else { return Ok(()) };
        let mut place = key.to_vec();
        let common = prefix.max(place.iter().zip(&last).take_while(|(a, b)| a == b).count());
        let (low, high) = (place.get(common).copied().unwrap_or(0), last.get(common).copied().unwrap_or(0));
        place.truncate(common);
        place.push(low + self.below(u64::from(high.saturating_sub(low)) + 1) as u8);
        // Bytes of text are the most likely, and other bytes only make wider steps.
        place.extend((0..8).map(|_| b' ' + self.below(95) as u8));
        walk.seek(&place).await?;
        for _ in 0..self.below(STEPS) {
            match walk.entry() {
                Some(_) => walk.next().await?,
                None => walk.first().await?,
            }
        }
        if walk.entry().is_none() {
            walk.first().await?;
        }
        Ok(())
    }

    /// Returns a random number below `end`, which is not 0.
    pub(super) fn below(&self, end: u64) -> u64 {
        self.store.random() % end
    }
}

pub(super) fn collection_of(head: &Head) -> Option<Collection> {
    match head.body {
        Body::Collection(collection) => Some(collection),
        Body::String { .. } | Body::Stream(_) => None,
    }
}

/// Returns the user's bytes of an element's value, with the expiry of a field; nothing is copied.
pub(super) fn text(kind: Kind, key: &[u8], value: Value) -> karstdb::Result<(Value, Option<Millis>)> {
    let (begins, expiry) = split_element(kind, key, &value)?;
    Ok((value.slice(begins..value.len()), expiry))
}
