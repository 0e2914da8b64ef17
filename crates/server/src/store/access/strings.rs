//! Strings: the value is in the key's record, so a read is one lookup.

use super::super::layout::{Body, Bytes, Head, stored_key, string_value};
use super::{Access, Key, Kind, Millis, Record, expect};
use crate::wrong::Wrong;
use karstdb::Value;

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

    /// Returns a result as that of [`string`](Self::string) for each of many names of a database,
    /// read at the same time and as of one moment.
    pub(crate) async fn each_string(
        &self,
        db: u16,
        names: impl Iterator<Item = &[u8]>,
    ) -> Vec<Result<Option<Value>, Wrong>> {
        let base = self.base(db);
        let stored: Vec<Bytes> = names.map(|name| stored_key(base, name)).collect();
        let values = self.multi_get_each(self.default_family(), &stored).await;
        let string = |(key, value): (&Bytes, karstdb::Result<Option<Value>>)| {
            let Some(value) = value? else { return Ok(None) };
            let head = Head::decode(key, &value)?;
            let record = (!head.is_expired(self.now)).then_some(Record { head, value });
            Ok(expect(record, Kind::String)?.and_then(text))
        };
        stored.iter().zip(values).map(string).collect()
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
        Body::Collection(_) => None,
    }
}
