//! Model of all writes to a column family with timestamps, in order. Checks that every form of
//! reading agrees with it at each timestamp and snapshot.

use karst_engine::{ColumnFamily, Db, ReadOptions, Result, Snapshot, WriteBatch};
use karst_testkit::random::Random;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Merge,
    Delete,
    SingleDelete,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Number of writes before this one.
    pub(crate) order: usize,
    pub(crate) at: u64,
    kind: Kind,
    value: String,
}

/// All writes of a test. The merge operator joins operands with a comma.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllWrites {
    /// Entries by key, oldest first.
    pub(crate) entries: BTreeMap<String, Vec<Entry>>,
    pub(crate) count: usize,
}

/// A value and the timestamp of the newest entry that it is made of, or `None`.
type Found = Option<(u64, String)>;

impl AllWrites {
    /// Adds a write to the model and returns it as a batch for `family`.
    pub(crate) fn write(
        &mut self,
        family: &ColumnFamily,
        random: &mut Random,
        (key, at, kind): (&str, u64, Kind),
    ) -> WriteBatch {
        let value = match kind {
            Kind::Put | Kind::Merge => format!("{}{}", self.count, "v".repeat(random.index(40))),
            Kind::Delete | Kind::SingleDelete => String::new(),
        };
        let (mut batch, ts) = (WriteBatch::new(), at.to_le_bytes());
        match kind {
            Kind::Put => batch.put_cf_with_ts(family, key, ts, &value),
            Kind::Merge => batch.merge_cf_with_ts(family, key, ts, &value),
            Kind::Delete => batch.delete_cf_with_ts(family, key, ts),
            Kind::SingleDelete => batch.single_delete_cf_with_ts(family, key, ts),
        }
        .unwrap();
        let entry = Entry { order: self.count, at, kind, value };
        self.entries.entry(key.to_owned()).or_default().push(entry);
        self.count += 1;
        batch
    }

    /// Adds a random write to one of twelve keys. Timestamps of a key never decrease, and most
    /// entries repeat the timestamp of the one before.
    pub(crate) fn write_any(&mut self, family: &ColumnFamily, random: &mut Random) -> WriteBatch {
        let key = random.below(12);
        // A single deletion removes exactly one put, so keys with single deletions have only these
        // two kinds.
        let (key, single) = (format!("key{key:02}"), key.is_multiple_of(4));
        let last = self.entries.get(&key).and_then(|entries| entries.last());
        let at = last.map_or(1, |last| last.at) + u64::from(random.one_in(4));
        let kind = match (single, last.map(|last| last.kind)) {
            (true, Some(Kind::Put)) => Kind::SingleDelete,
            (true, _) => Kind::Put,
            (false, _) => [Kind::Put, Kind::Merge, Kind::Merge, Kind::Merge, Kind::Delete][random.index(5)],
        };
        self.write(family, random, (&key, at, kind))
    }

    /// Returns the latest timestamp; 0 without writes.
    pub(crate) fn latest(&self) -> u64 {
        self.entries.values().flatten().map(|entry| entry.at).max().unwrap_or(0)
    }

    /// Returns the keys with their timestamps and values after the first `count` writes, as of
    /// `at`.
    pub(crate) fn shown(&self, count: usize, at: u64) -> Vec<(String, u64, String)> {
        let shown = |key: &String| self.get(key, count, at).map(|(at, value)| (key.clone(), at, value));
        self.entries.keys().filter_map(shown).collect()
    }

    /// Returns the value of a key after the first `count` writes, as of `at`.
    fn get(&self, key: &str, count: usize, at: u64) -> Found {
        let visible = |entry: &&Entry| entry.order < count && entry.at <= at;
        let mut parts = Vec::new();
        let mut newest = None;
        for entry in self.entries.get(key)?.iter().rev().filter(visible) {
            if matches!(entry.kind, Kind::Delete | Kind::SingleDelete) {
                break;
            }
            newest = newest.or(Some(entry.at));
            parts.push(entry.value.as_str());
            if entry.kind == Kind::Put {
                break;
            }
        }
        parts.reverse();
        Some((newest?, parts.join(",")))
    }

    /// Compares all forms of reading `family` at a timestamp with the first `count` writes, which
    /// `snapshot` sees.
    ///
    /// # Errors
    /// A read failed.
    pub(crate) async fn check(
        &self,
        (db, family): (&Db, &ColumnFamily),
        (snapshot, count): (Option<&Snapshot>, usize),
        at: u64,
        what: &str,
    ) -> Result<()> {
        let options = &ReadOptions {
            snapshot: snapshot.cloned(),
            timestamp: Some(at.to_le_bytes().to_vec()),
            ..ReadOptions::new()
        };
        let what = format!("{what}, at {at}, after {count} writes");
        let keys: Vec<&String> = self.entries.keys().collect();
        let wanted: Vec<Found> = keys.iter().map(|key| self.get(key, count, at)).collect();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let number = |ts: &[u8]| u64::from_le_bytes(ts.try_into().expect("eight bytes"));
        let many = db.multi_get_cf_async(options, family, &keys).await;
        for ((key, wanted), many) in keys.iter().zip(&wanted).zip(many) {
            let got = db.get_cf_with_ts_async(options, family, key).await?;
            assert_eq!(&got.map(|(value, ts)| (number(&ts), text(&value))), wanted, "get {key}, {what}");
            let wanted = wanted.as_ref().map(|(_, value)| value);
            assert_eq!(many?.map(|value| text(&value)).as_ref(), wanted, "multi_get {key}, {what}");
        }
        let shown = self.shown(count, at);
        let mut iter = db.iter_cf(options, family)?;
        let mut got = Vec::new();
        iter.seek_to_first_async().await?;
        while iter.valid() {
            got.push((text(iter.key()), number(iter.timestamp()), text(iter.value())));
            iter.next_async().await?;
        }
        assert_eq!(got, shown, "forward, {what}");
        got.clear();
        iter.seek_to_last_async().await?;
        while iter.valid() {
            got.push((text(iter.key()), number(iter.timestamp()), text(iter.value())));
            iter.prev_async().await?;
        }
        got.reverse();
        assert_eq!(got, shown, "backward, {what}");
        Ok(())
    }
}
