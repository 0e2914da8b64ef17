//! Ingesting a batch with its index, without a log.
//!
//! Compat: `DB::IngestWriteBatchWithIndex`, with the conditions that RocksDB has on the batch and
//! on the write. RocksDB takes the index for a memtable; here its operations are inserted into the
//! memtable there is, so that `unordered_write` and pipelined writes need not be refused.

use super::WriteBatchWithIndex;
use karst_engine::{Db, Error, ErrorKind, Result, Ticker, WriteOptions};

impl WriteBatchWithIndex {
    /// Writes the whole batch into `db` at once, without a log. It is lost with the process unless
    /// the memtables are flushed afterwards (`Db::flush`); then all of it is in tables. Blocks like
    /// [`Db::write`].
    ///
    /// # Errors
    /// `NotSupported`: `options` would log the write (`disable_wal` is false), or the batch was
    /// made without `overwrite_key`. Otherwise as [`Db::write`]; nothing is written then.
    pub fn ingest(&self, db: &Db, options: &WriteOptions) -> Result<()> {
        self.check_ingestion(options)?;
        db.write(options, &self.batch)?;
        db.statistics().tick(Ticker::NumberWbwiIngest);
        Ok(())
    }

    /// The asynchronous form of [`ingest`](Self::ingest). Dropping it before its first poll writes
    /// nothing; after that the batch is written whole or not at all.
    ///
    /// # Errors
    /// As [`ingest`](Self::ingest).
    pub async fn ingest_async(&self, db: &Db, options: &WriteOptions) -> Result<()> {
        self.check_ingestion(options)?;
        db.write_async(options, &self.batch).await?;
        db.statistics().tick(Ticker::NumberWbwiIngest);
        Ok(())
    }

    fn check_ingestion(&self, options: &WriteOptions) -> Result<()> {
        let text = match (options.disable_wal, self.overwrite_key) {
            (true, true) => return Ok(()),
            (false, _) => "ingesting a batch with its index needs `disable_wal`",
            (true, false) => "ingesting a batch with its index needs `overwrite_key`",
        };
        Err(Error::new(ErrorKind::NotSupported, text))
    }
}
