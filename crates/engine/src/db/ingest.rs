//! Ingestion of table files. Each call has a blocking form and an asynchronous one, over the same
//! code.

use super::Db;
use crate::background::IngestExternalFileOptions;
use crate::ingest::{IngestExternalFileArg, ingest};
use karst_base::error::Result;
use karst_io::block_on;
use std::path::PathBuf;

impl Db {
    /// Atomically ingests tables that were written by an [`SstFileWriter`](crate::SstFileWriter),
    /// or RocksDB's, into the default column family. Their entries are newer than all earlier
    /// writes, and a reader sees all of them or none.
    ///
    /// The files are checked before anything changes; memtables that overlap them are flushed; then
    /// writers wait while logs and MANIFEST are synced. When it returns, the entries are durable,
    /// and so is everything that was logged before. Blocks; may be called from any thread,
    /// concurrently with any other call.
    ///
    /// ```no_run
    /// # use karst_engine::{Db, IngestExternalFileOptions, Options, SstFileWriter};
    /// # let db = Db::open("/tmp/db", &Options::new())?;
    /// let mut writer = SstFileWriter::create(&Options::new())?;
    /// writer.open("/tmp/fruit.sst")?;
    /// writer.put("apple", "ripe")?;
    /// writer.finish()?;
    /// let options = IngestExternalFileOptions { move_files: true, ..Default::default() };
    /// db.ingest_external_file(&options, ["/tmp/fruit.sst"])?;
    /// assert_eq!(db.get("apple")?.as_deref(), Some(&b"ripe"[..]));
    /// # Ok::<(), karst_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// Nothing has changed, and no file is left behind: `InvalidArgument`: a file has another
    /// comparator or column family, was not written for ingestion, or has no entry; the options do
    /// not allow the steps that ingesting it takes. `Corruption`: a file is damaged, truncated,
    /// unsorted, or does not match the given checksum. `NotSupported`: a file has content that
    /// KarstDB cannot read. `NotFound`: a file does not exist. `Io`, `NoSpace`: a file could not be
    /// read, linked or copied, or the log not be synced. `Incomplete`: a file does not fit on the
    /// last level, which the options require. `Closed`. If the MANIFEST could not be written, the
    /// files are not ingested, but may be found ingested after a crash.
    pub fn ingest_external_file<P: Into<PathBuf>>(
        &self,
        options: &IngestExternalFileOptions,
        files: impl IntoIterator<Item = P>,
    ) -> Result<()> {
        let arg = IngestExternalFileArg::new(self.default_column_family(), files, *options);
        self.ingest_external_files(&[arg])
    }

    /// Ingests files into several column families atomically: after a crash, too, all files are
    /// ingested or none.
    ///
    /// # Errors
    /// Those of [`Db::ingest_external_file`]; a column family is named twice or belongs to another
    /// database. `NotFound`: one was dropped.
    pub fn ingest_external_files(&self, args: &[IngestExternalFileArg]) -> Result<()> {
        block_on(self.env(), self.ingest_external_files_async(args))
    }

    /// The asynchronous form of [`Db::ingest_external_file`]. Once polled, it continues even if it
    /// is dropped.
    ///
    /// # Errors
    /// Those of [`Db::ingest_external_file`].
    pub async fn ingest_external_file_async<P: Into<PathBuf>>(
        &self,
        options: &IngestExternalFileOptions,
        files: impl IntoIterator<Item = P>,
    ) -> Result<()> {
        let arg = IngestExternalFileArg::new(self.default_column_family(), files, *options);
        self.ingest_external_files_async(&[arg]).await
    }

    /// The asynchronous form of [`Db::ingest_external_files`]. Once polled, it continues even if it
    /// is dropped.
    ///
    /// # Errors
    /// Those of [`Db::ingest_external_files`].
    pub async fn ingest_external_files_async(&self, args: &[IngestExternalFileArg]) -> Result<()> {
        let write = self.write_half()?;
        let versions = &write.ownership.versions;
        let mut of_families = Vec::with_capacity(args.len());
        for arg in args {
            of_families.push((self.family(&arg.column_family)?.clone(), arg.clone()));
        }
        let options = self.0.read.db_options.get();
        ingest(&write.background, versions, options, of_families).await
    }
}
