//! Strings: the value is in the key's record, so a read is one lookup.

use super::super::layout::{Body, Bytes, stored_key, string_value};
use super::{Access, Key, Kind, Millis, Record, expect};
use crate::wrong::Wrong;
use karstdb::{ErrorKind, Value};

/// Bytes of records that [`Access::prefetch`] holds at the same time.
const PREFETCHED_AT_MOST: u64 = 1 << 20;

/// Expiry of a string that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// None.
    Forever,
    /// Until this time. A time that has come deletes the key instead.
    Until(Millis),
    /// The expiry that the key had.
    Keep,
}

impl Access {
    /// Returns the value of a string.
    ///
    /// # Errors
    /// `WRONGTYPE`.
    pub(crate) async fn string(&self, key: &Key) -> Result<Option<Value>, Wrong> {
        let record = expect(self.live(key).await?, Kind::String)?;
        Ok(record.and_then(text))
    }

    /// Returns the values of many strings, read at the same time and as of one moment; `None` also
    /// for other types.
    pub(crate) async fn strings(&self, keys: &[Key]) -> Result<Vec<Option<Value>>, Wrong> {
        let records = self.live_many(keys).await?;
        Ok(records.into_iter().map(|record| record.and_then(text)).collect())
    }

    /// Returns results as those of [`string`](Self::string) for many names of a database, read at
    /// the same time and as of one moment, in a view. The first values that are together longer
    /// than `at_most` bytes end the results, which are therefore those of the first names, one at
    /// least.
    pub(crate) async fn each_string(
        &self,
        db: u16,
        names: impl Iterator<Item = &[u8]>,
        at_most: usize,
    ) -> Vec<Result<Option<Value>, Wrong>> {
        let base = self.base(db);
        let stored: Vec<Bytes> = names.map(|name| stored_key(base, name)).collect();
        let note_miss = |stored: &Bytes| {
            if let Some((_, name)) = stored.split_first_chunk::<2>() {
                self.note_miss(&Key { db, name: name.to_vec() });
            }
        };
        let values = self.records_within(&stored, at_most as u64).await;
        let string = |(key, value): (&Bytes, karstdb::Result<Option<Value>>)| {
            let record = self.live_record(key, value?)?;
            self.store.0.counts.note_lookup(record.is_some());
            if record.is_none() {
                note_miss(key);
            }
            Ok(expect(record, Kind::String)?.and_then(text))
        };
        stored.iter().zip(values).take_while(|(_, value)| !is_beyond(value)).map(string).collect()
    }

    /// Brings the records of keys into memory, in one round trip: those that come first until they
    /// are 1 MiB. An error comes again when the key is read.
    pub(crate) async fn prefetch(&self, keys: &[Key]) {
        let stored: Vec<Bytes> = keys.iter().map(|key| self.stored(key)).collect();
        let _only_read = self.records_within(&stored, PREFETCHED_AT_MOST).await;
    }

    /// Sets a key to a string, in place of a value of any type.
    pub(crate) async fn set_string(
        &mut self,
        key: &Key,
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<(), Wrong> {
        let before = self.live_to_write(key).await?.map(|record| record.head);
        let expiry = match lifetime {
            Lifetime::Forever => None,
            Lifetime::Until(at) => Some(at),
            Lifetime::Keep => before.and_then(|head| head.expiry),
        };
        match before {
            Some(head) if expiry.is_some_and(|at| at <= self.now) => return self.remove(key, &head),
            None if expiry.is_some_and(|at| at <= self.now) => return Ok(()),
            _ => {}
        }
        self.replace(key, before.as_ref(), expiry, &string_value(expiry, value))
    }
}

/// Returns the user's bytes of a string's record; nothing is copied.
fn text(Record { head, value }: Record) -> Option<Value> {
    match head.body {
        Body::String { begins } => Some(value.slice(begins..value.len())),
        Body::Collection(_) | Body::Stream(_) => None,
    }
}

/// True if a value was not read because those before it were too long.
fn is_beyond(value: &karstdb::Result<Option<Value>>) -> bool {
    matches!(value, Err(error) if error.kind() == ErrorKind::LimitReached)
}
