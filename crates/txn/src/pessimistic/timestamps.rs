//! Read and commit timestamps of a transaction.
//!
//! The read timestamp bounds the newest timestamp of a validated key, and goes into the options of
//! reads for update. The commit timestamp is written to every key of a column family that has
//! timestamps.
//!
//! Compat: the rules and their errors are those of RocksDB's `WriteCommittedTxn`, where `u64::MAX`
//! stands for "none", including in the arguments of the setters.

use super::options::{TransactionDbOptions, WritePolicy};
use karst_engine::{ColumnFamily, Error, Named, ReadOptions, Result, WriteBatch};
use std::borrow::Cow;

type Bytes = [u8; size_of::<u64>()];

/// Timestamps of one transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timestamps {
    read: Option<u64>,
    commit: Option<u64>,
}

impl Timestamps {
    /// Refuses a column family whose timestamps transactions do not support.
    ///
    /// Compat: timestamps of transactions are 64-bit integers, and supported only under
    /// WriteCommitted. RocksDB checks when a column family is opened or created; one that is
    /// created through [`TransactionDb::db`](super::TransactionDb::db) is checked here at its first
    /// use.
    pub(super) fn check_family(family: &ColumnFamily, options: &TransactionDbOptions) -> Result<()> {
        let (size, name) = (family.comparator().timestamp_size(), Named(family.name()));
        if size == 0 {
            return Ok(());
        }
        if options.write_policy != WritePolicy::WriteCommitted {
            let text =
                format!("column family {name:?}, whose keys have timestamps, with the policy WritePrepared");
            return Err(Error::not_supported(text));
        }
        if size != size_of::<Bytes>() {
            let text =
                format!("timestamps of transactions have 8 bytes; those of column family {name:?} {size}");
            return Err(Error::invalid_argument(text));
        }
        Ok(())
    }

    /// Returns the largest timestamp that a locked key of this column family may have, if limited.
    pub(super) fn validated(self, family: &ColumnFamily, options: &TransactionDbOptions) -> Option<Bytes> {
        let counts = options.enable_udt_validation && family.comparator().timestamp_size() > 0;
        self.read.filter(|_| counts).map(u64::to_le_bytes)
    }

    /// Returns the commit timestamp.
    pub(super) fn commit(self) -> Option<u64> {
        self.commit
    }

    /// Returns the commit timestamp in its stored encoding.
    pub(super) fn commit_bytes(self) -> Option<Bytes> {
        self.commit.map(u64::to_le_bytes)
    }

    /// Sets the read timestamp.
    pub(super) fn set_read(&mut self, timestamp: u64) -> Result<()> {
        if let Some(before) = self.read.filter(|before| timestamp < *before) {
            let text = format!("the timestamp to read at is {before} already, and cannot become {timestamp}");
            return Err(Error::invalid_argument(text));
        }
        self.read = Some(timestamp).filter(|timestamp| *timestamp != u64::MAX);
        Ok(())
    }

    /// Sets the commit timestamp.
    pub(super) fn set_commit(&mut self, timestamp: u64, options: &TransactionDbOptions) -> Result<()> {
        let validated = self.read.filter(|_| options.enable_udt_validation);
        if let Some(read) = validated.filter(|read| timestamp <= *read) {
            let text = format!(
                "the commit timestamp {timestamp} is not above {read}, the timestamp that the transaction reads at"
            );
            return Err(Error::invalid_argument(text));
        }
        self.commit = Some(timestamp).filter(|timestamp| *timestamp != u64::MAX);
        Ok(())
    }

    /// Refuses a commit that needs a timestamp and has none.
    pub(super) fn check_commit(self, batch: &WriteBatch) -> Result<()> {
        if batch.needs_timestamps() && self.commit.is_none() {
            return Err(Error::invalid_argument(
                "the transaction has written keys with timestamps, and needs one to commit at",
            ));
        }
        Ok(())
    }

    /// Returns the options of a read for update, with the read timestamp if the family has
    /// timestamps.
    pub(super) fn for_update<'a>(
        self,
        options: &'a ReadOptions,
        family: &ColumnFamily,
        validate: bool,
        of_db: &TransactionDbOptions,
    ) -> Result<Cow<'a, ReadOptions>> {
        if family.comparator().timestamp_size() == 0 {
            return Ok(Cow::Borrowed(options));
        }
        let what = match (of_db.enable_udt_validation, validate, self.read) {
            (false, _, Some(_)) => {
                "the transaction has a timestamp to read at, without enable_udt_validation"
            }
            (true, false, Some(_)) => {
                "the transaction has a timestamp to read at, and the read is not validated"
            }
            (true, true, None) => "a read that is validated needs a timestamp, and the transaction has none",
            _ => "",
        };
        if !what.is_empty() {
            return Err(Error::invalid_argument(what));
        }
        let timestamp = self.read.unwrap_or(u64::MAX).to_le_bytes();
        match &options.timestamp {
            Some(own) if own[..] == timestamp => Ok(Cow::Borrowed(options)),
            Some(_) => Err(Error::invalid_argument(
                "the options have another timestamp than the one that the transaction reads at",
            )),
            None => Ok(Cow::Owned(ReadOptions { timestamp: Some(timestamp.to_vec()), ..options.clone() })),
        }
    }
}
