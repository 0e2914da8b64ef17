//! Conflict checks for transactions: whether a key was written since some moment, and writes that
//! depend on keys being unchanged.
//!
//! In: keys with the sequence numbers since which they must be unchanged. Out: the write in its
//! place in the order, or `Busy`. Both forms of each call run the same code ([`Caller`]).
//! docs/decisions/transactions.md shows that no conflict is missed.

use super::Db;
use super::hooks::TransactionHooks;
use super::timestamps::{check_kept, check_size, stored};
use crate::read::newest;
use karst_base::caller::Caller;
use karst_base::error::{Error, ErrorKind, Named, Result, Shown};
use karst_base::snapshot::{ReadAt, Snapshot};
use karst_commit::{Claim, WriteBatch, WriteOptions};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_storage::column_family::ColumnFamily;

/// A key that a write depends on.
#[derive(Clone, Debug)]
pub struct Unchanged {
    /// The key's column family.
    pub family: ColumnFamily,
    /// The key.
    pub key: Vec<u8>,
    /// The key must not have been written with a larger sequence number than this.
    pub since: u64,
}

impl TransactionHooks<'_> {
    /// Starts recording the keys of every write, in `buckets` buckets, so that writes can depend on
    /// keys: [`Self::write_if_unchanged`]. Repeated calls do nothing.
    ///
    /// # Errors
    /// The database is open for reading only. `NotSupported`: with
    /// [`Options::write_prepared`](crate::Options::write_prepared) a commit makes earlier inserts
    /// visible without recording their keys.
    pub fn track_conflicts(self, buckets: u32) -> Result<()> {
        self.0.write_half()?.pipeline.track_conflicts(buckets)
    }

    /// Returns true if `key`, or a range that covers it, was written by a write that `snapshot`
    /// does not see, including one that was inserted before and decided since; or, with
    /// `timestamp`, if the newest entry of the key has a later one. The caller holds the snapshot.
    ///
    /// # Errors
    /// `InvalidArgument`: the column family has no timestamps, or of another size, or keeps no
    /// history of `timestamp`; it belongs to another database; a file could not be read.
    pub async fn written_since(
        self,
        by: Caller,
        family: &ColumnFamily,
        key: &[u8],
        snapshot: Option<&Snapshot>,
        timestamp: Option<&[u8]>,
    ) -> Result<bool> {
        let db = self.0;
        db.check_open()?;
        if let Some(timestamp) = timestamp {
            check_size(db.family(family)?, timestamp)?;
        }
        // Waits until all acknowledged entries have been inserted.
        db.readable(by, db.newest_seq()).await;
        let since = snapshot.map_or_else(|| ReadAt::all_to(SeqNo::MAX), Snapshot::read_at);
        db.inserted_since(by, family, key, &since, timestamp).await
    }

    /// Writes a batch if none of `keys` was written, by any writer, since the sequence number given
    /// with it; check and write are atomic. The caller holds a snapshot at or below all of these
    /// numbers.
    ///
    /// # Errors
    /// `Busy` if one was written: then the batch was not. Otherwise those of [`Db::write`].
    pub async fn write_if_unchanged(
        self,
        by: Caller,
        options: &WriteOptions,
        batch: &WriteBatch,
        keys: &[Unchanged],
    ) -> Result<()> {
        let db = self.0;
        let (write, _) = db.batch_source(batch)?;
        let pipeline = &write.pipeline;
        loop {
            // Invariant: `seen` is taken before the lookups, which find everything up to it.
            let seen = db.newest_seq();
            db.readable(by, seen).await;
            for Unchanged { family, key, since } in keys {
                if db.inserted_since(by, family, key, &ReadAt::all_to(SeqNo(*since)), None).await? {
                    return Err(busy(family, key));
                }
            }
            if batch.is_empty() {
                // Sufficient, because as of `seen` no key had changed.
                return Ok(());
            }
            let named = keys.iter().map(|k| (ColumnFamilyId(k.family.id()), spelled_one_way(k)));
            let claim: Claim = pipeline.claim(named, seen)?;
            let (_, source) = db.batch_source(batch)?;
            let outcome = pipeline.write_by(by, options, source, Some(&claim)).await;
            match claim.overtaken() {
                None => return outcome,
                Some(seq) => by.wait(db.env(), pipeline.wait_until_visible(seq)).await,
            }
        }
    }
}

impl Db {
    /// Returns true if the key was inserted since `since`; checks inserted entries only.
    async fn inserted_since(
        &self,
        by: Caller,
        family: &ColumnFamily,
        key: &[u8],
        since: &ReadAt,
        timestamp: Option<&[u8]>,
    ) -> Result<bool> {
        let family = self.family(family)?;
        // A conflict for every key, because entries of such a file have no sequence numbers that
        // tell when they came. Ingesting so beside transactions is rare, and transactions that
        // began before must restart.
        if family.unnumbered_through() > since.seq {
            return Ok(true);
        }
        let superversion = family.superversion();
        if let Some(timestamp) = timestamp {
            // Fails for a timestamp that is too old, because a later deletion may have been dropped
            // without a trace of the key.
            check_kept(family, timestamp)?;
        }
        let key = stored(family, key);
        let search = newest::written_since(&family.tables, &superversion, &key, since, timestamp);
        by.wait(self.env(), search).await
    }

    /// Waits until everything up to `seq` is readable.
    async fn readable(&self, by: Caller, seq: SeqNo) {
        match by {
            Caller::Thread => self.wait_until_readable(seq),
            Caller::Task => {
                if let Some(gate) = self.gate(seq) {
                    gate.await;
                }
            }
        }
    }
}

/// Returns the key's bytes, unless other bytes may be the same key.
fn spelled_one_way(Unchanged { family, key, .. }: &Unchanged) -> Option<&[u8]> {
    (!family.comparator().different_bytes_may_be_equal()).then_some(key)
}

fn busy(family: &ColumnFamily, key: &[u8]) -> Error {
    let (name, key) = (Named(family.name()), Shown(key));
    Error::new(ErrorKind::Busy, format!("key {key} of column family {name:?} was written meanwhile"))
}
