//! What transactions need from the database: whether a key was written since some moment, and
//! writes that depend on keys not having been written.
//!
//! In: keys with the sequence numbers from which on nobody may have written them. Out: the write in
//! its place in the order, or `Busy`. Both forms of each call run the same code ([`Caller`]).
//! docs/decisions/transactions.md says why nothing slips through.

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
    /// It must not have been written with a larger sequence number than this.
    pub since: u64,
}

impl TransactionHooks<'_> {
    /// From now on takes note of the keys of every write, in so many buckets, so that writes can
    /// depend on keys: [`Self::write_if_unchanged`]. A second time does nothing.
    ///
    /// # Errors
    /// The database is open for reading only. `NotSupported`: with
    /// [`Options::write_prepared`](crate::Options::write_prepared) a commit makes visible what was
    /// written before, and no key would tell of it.
    pub fn track_conflicts(self, buckets: u32) -> Result<()> {
        self.0.write_half()?.pipeline.track_conflicts(buckets)
    }

    /// Whether `key`, or a range that it is in, was written by somebody whose write `snapshot` does
    /// not see, be it that it was inserted before and decided since; or, with `timestamp`, whether
    /// the newest entry of the key has a later one. The caller holds the snapshot.
    ///
    /// # Errors
    /// `InvalidArgument`: the column family has no timestamps, or of another size, or keeps no
    /// history of `timestamp`; it is of another database; what had to be read could not be.
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
        // Why: so that what is acknowledged has been inserted.
        db.readable(by, db.newest_seq()).await;
        let since = snapshot.map_or_else(|| ReadAt::all_to(SeqNo::MAX), Snapshot::read_at);
        db.inserted_since(by, family, key, &since, timestamp).await
    }

    /// Writes a batch if none of `keys` was written since the sequence number that comes with it,
    /// by whomever; the two are one step. The caller holds a snapshot at or below all of these
    /// numbers.
    ///
    /// # Errors
    /// `Busy` if one was written: then the batch was not. Otherwise as [`Db::write`].
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
            // Invariant: first this, then the look, which finds everything up to here.
            let seen = db.newest_seq();
            db.readable(by, seen).await;
            for Unchanged { family, key, since } in keys {
                if db.inserted_since(by, family, key, &ReadAt::all_to(SeqNo(*since)), None).await? {
                    return Err(busy(family, key));
                }
            }
            if batch.is_empty() {
                // Why enough: as of `seen`, nothing that was read had changed.
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
    /// The same of what has been inserted.
    async fn inserted_since(
        &self,
        by: Caller,
        family: &ColumnFamily,
        key: &[u8],
        since: &ReadAt,
        timestamp: Option<&[u8]>,
    ) -> Result<bool> {
        let family = self.family(family)?;
        // Why whatever the key: no entry of such a file tells when it came. Few ingest so beside
        // transactions, and those that began before have to begin anew.
        if family.unnumbered_through() > since.seq {
            return Ok(true);
        }
        let superversion = family.superversion();
        if let Some(timestamp) = timestamp {
            // Why: a deletion that is later than it may be gone, and nothing else tells of the key.
            check_kept(family, timestamp)?;
        }
        let key = stored(family, key);
        let search = newest::written_since(&family.tables, &superversion, &key, since, timestamp);
        by.wait(self.env(), search).await
    }

    /// Waits until everything up to `seq` can be read.
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

/// The key's bytes, if no other bytes are the same key.
fn spelled_one_way(Unchanged { family, key, .. }: &Unchanged) -> Option<&[u8]> {
    (!family.comparator().different_bytes_may_be_equal()).then_some(key)
}

fn busy(family: &ColumnFamily, key: &[u8]) -> Error {
    let (name, key) = (Named(family.name()), Shown(key));
    Error::new(ErrorKind::Busy, format!("key {key} of column family {name:?} was written meanwhile"))
}
