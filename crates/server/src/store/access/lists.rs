//! Lists: elements at neighbouring positions, the first of which is in the key's record.
//!
//! Both ends grow and shrink in constant time, and an element is found by its index with one
//! lookup. Changes in the middle write all elements behind it again.

use super::super::layout::{Collection, Head, collection_value, element_key};
use super::collections::{collection_of, text};
use super::walk::Side;
use super::{Access, Key, Kind, expect};
use crate::wrong::Wrong;
use karstdb::Value;
use std::ops::Range;

/// Position of the first element of a new list: in the middle, because lists grow at both ends.
const MIDDLE: u64 = 1 << 63;

const LIST: Kind = Kind::List;

impl Access {
    /// Returns the elements with these indexes, as far as there are any.
    ///
    /// # Errors
    /// `WRONGTYPE`, as for all calls here.
    pub(crate) async fn list_range(&self, key: &Key, wanted: Range<u64>) -> Result<Vec<Value>, Wrong> {
        match self.collection(key, LIST).await? {
            Some(collection) => self.read_list(&collection, wanted).await,
            None => Ok(Vec::new()),
        }
    }

    async fn read_list(&self, list: &Collection, wanted: Range<u64>) -> Result<Vec<Value>, Wrong> {
        let wanted = wanted.start..wanted.end.min(list.count);
        let mut found = Vec::new();
        if wanted.is_empty() {
            return Ok(found);
        }
        let mut walk = self.walk(&self.store.0.elements, &list.version.to_be_bytes())?;
        walk.seek(&position_key(list, wanted.start)).await?;
        for index in wanted {
            match walk.entry() {
                Some((stored, _)) if *stored == *position_key(list, index) => {
                    found.push(text(LIST, stored, walk.value())?.0);
                }
                _ => return Err(super::layout::corrupt("elements", &position_key(list, index)).into()),
            }
            walk.next().await?;
        }
        Ok(found)
    }

    /// Adds elements, of which there is one at least, one after the other at an end. Returns the
    /// number of elements of the list.
    pub(crate) async fn list_push<V: AsRef<[u8]>>(
        &mut self,
        key: &Key,
        side: Side,
        values: &[V],
    ) -> Result<u64, Wrong> {
        let before = self.list_to_write(key).await?;
        let mut list = match &before {
            Some((_, list)) => *list,
            None => Collection { first: MIDDLE, ..self.new_collection(key.db).await? },
        };
        let added = values.len() as u64;
        let first = if side == Side::Left { list.first.checked_sub(added) } else { Some(list.first) };
        let count = list.count + added;
        let first = first.filter(|first| first.checked_add(count).is_some());
        list.first = first.ok_or(Wrong::err("the list has no position left"))?;
        for (number, value) in (0..added).zip(values) {
            let index = if side == Side::Left { added - 1 - number } else { list.count + number };
            self.put_element(&list, index, value.as_ref())?;
        }
        self.put_list(key, before.as_ref(), Collection { count, ..list })?;
        Ok(count)
    }

    /// Removes up to `count` elements from an end, and the list with the last. Returns them from
    /// that end on.
    pub(crate) async fn list_pop(&mut self, key: &Key, side: Side, count: u64) -> Result<Vec<Value>, Wrong> {
        let Some((head, list)) = self.list_to_write(key).await? else { return Ok(Vec::new()) };
        let count = count.min(list.count);
        let (gone, kept) = match side {
            Side::Left => (0..count, count..list.count),
            Side::Right => (list.count - count..list.count, 0..list.count - count),
        };
        let mut values = self.read_list(&list, gone).await?;
        if side == Side::Right {
            values.reverse();
        }
        self.keep(key, (head, list), kept)?;
        Ok(values)
    }

    /// Removes all elements but those with these indexes.
    pub(crate) async fn list_trim(&mut self, key: &Key, kept: Range<u64>) -> Result<(), Wrong> {
        let Some((head, list)) = self.list_to_write(key).await? else { return Ok(()) };
        let kept = kept.start.min(list.count)..kept.end.min(list.count);
        self.keep(key, (head, list), kept)
    }

    /// Replaces an element. Returns false if the index is out of range.
    pub(crate) async fn list_set(&mut self, key: &Key, index: u64, value: &[u8]) -> Result<bool, Wrong> {
        let list = self.list_to_write(key).await?.filter(|(_, list)| index < list.count);
        let Some((_, list)) = list else { return Ok(false) };
        self.put_element(&list, index, value)?;
        self.touch(key)?;
        Ok(true)
    }

    /// Replaces all elements from `from` on, which is at most their number. Removes the list if
    /// none is left.
    pub(crate) async fn list_replace<V: AsRef<[u8]>>(
        &mut self,
        key: &Key,
        from: u64,
        values: &[V],
    ) -> Result<(), Wrong> {
        let Some((head, list)) = self.list_to_write(key).await? else { return Ok(()) };
        let count = from + values.len() as u64;
        if count == 0 {
            return self.remove(key, &head);
        }
        for (index, value) in (from..).zip(values) {
            self.put_element(&list, index, value.as_ref())?;
        }
        self.delete_positions(&list, count.min(list.count)..list.count)?;
        self.put_list(key, Some(&(head, list)), Collection { count, ..list })
    }

    async fn list_to_write(&mut self, key: &Key) -> Result<Option<(Head, Collection)>, Wrong> {
        let head = expect(self.live_to_write(key).await?, LIST)?.map(|record| record.head);
        Ok(head.and_then(|head| Some((head, collection_of(&head)?))))
    }

    fn put_element(&mut self, list: &Collection, index: u64, value: &[u8]) -> Result<(), Wrong> {
        let store = self.store.clone();
        Ok(self.changes()?.batch.put_cf(&store.0.elements, position_key(list, index), value)?)
    }

    fn delete_positions(&mut self, list: &Collection, gone: Range<u64>) -> Result<(), Wrong> {
        let store = self.store.clone();
        let changes = self.changes()?;
        for index in gone {
            changes.batch.delete_cf(&store.0.elements, position_key(list, index))?;
        }
        Ok(())
    }

    /// Removes all elements of a list but those with these indexes.
    fn keep(&mut self, key: &Key, before: (Head, Collection), kept: Range<u64>) -> Result<(), Wrong> {
        let list = before.1;
        if kept.is_empty() {
            return self.remove(key, &before.0);
        }
        if kept == (0..list.count) {
            return Ok(());
        }
        self.delete_positions(&list, 0..kept.start)?;
        self.delete_positions(&list, kept.end..list.count)?;
        let (first, count) = (list.first + kept.start, kept.end - kept.start);
        self.put_list(key, Some(&before), Collection { first, count, ..list })
    }

    fn put_list(
        &mut self,
        key: &Key,
        before: Option<&(Head, Collection)>,
        list: Collection,
    ) -> Result<(), Wrong> {
        let head = before.map(|(head, _)| head);
        let expiry = head.and_then(|head| head.expiry);
        self.put_head(key, head, expiry, &collection_value(LIST, expiry, list))
    }
}

/// Key of the element with an index, which is at most the list's number of elements.
fn position_key(list: &Collection, index: u64) -> super::layout::Bytes {
    element_key(list.version, &list.first.wrapping_add(index).to_be_bytes())
}
