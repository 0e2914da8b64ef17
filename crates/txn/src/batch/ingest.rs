//! Ingestion of a batch with its index, without a log.
//!
//! Compat: `DB::IngestWriteBatchWithIndex`, with RocksDB's conditions on the batch and on the write
//! options. RocksDB turns the index into a memtable; here the operations are inserted into the
//! current memtable, so `unordered_write` and pipelined writes need not be refused.

use super::WriteBatchWithIndex;
use karst_engine::{Db, Error, ErrorKind, Result, Ticker, WriteOptions};

impl WriteBatchWithIndex {
    /// Writes the whole batch into `db` atomically, without a log. The write is lost with the
    /// process unless the memtables are flushed afterwards (`Db::flush`). Blocks like
    /// [`Db::write`].
    ///
    /// # Errors
    /// `NotSupported`: `options` would log the write (`disable_wal` is false), or the batch was
    /// made without `overwrite_key`. Otherwise those of [`Db::write`]; no operation is written
    /// then.
    pub fn ingest(&self, db: &Db, options: &WriteOptions) -> Result<()> {
        self.check_ingestion(options)?;
        db.write(options, &self.batch)?;
        db.statistics().tick(Ticker::NumberWbwiIngest);
        Ok(())
    }

    /// The asynchronous form of [`ingest`](Self::ingest). Dropping the future before its first poll
    /// writes nothing; dropping it later leaves the batch written whole or not at all.
    ///
    /// # Errors
    /// Those of [`ingest`](Self::ingest).
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
