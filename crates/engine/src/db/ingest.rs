//! Ingesting files, as the user asks for it. Each call has a blocking form and an asynchronous one,
//! over the same code.

use super::Db;
use crate::background::IngestExternalFileOptions;
use crate::ingest::{IngestExternalFileArg, ingest};
use karst_base::error::Result;
use karst_io::block_on;
use std::path::PathBuf;

impl Db {
    /// Takes tables that an [`SstFileWriter`](crate::SstFileWriter), or RocksDB's, made into the
    /// default column family, all at once. Their entries are newer than all that was written
    /// before, and whoever reads sees all of them or none.
    ///
    /// The files are looked at before anything changes; what the memtables have of their ranges is
    /// flushed; then writers wait for as long as it takes to sync logs and MANIFEST. When it
    /// returns, the entries are durable, and so is everything that was logged before. Blocks; may
    /// be called from any thread, and at the same time as anything else.
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
    /// Nothing has changed, and no file is left behind: `InvalidArgument`: a file is of another
    /// comparator or column family, was not made to be ingested, or has no entry; the options do
    /// not allow what it takes to ingest it. `Corruption`: a file is damaged, cut off, unsorted, or
    /// not of the checksum that was given. `NotSupported`: a file has what KarstDB cannot read.
    /// `NotFound`: a file is not there. `Io`, `NoSpace`: a file could not be read, linked or
    /// copied, or the log not be synced. `Incomplete`: it cannot go to the last level, though the
    /// options want it. `Closed`. If the MANIFEST could not be written, the files are not ingested,
    /// but may be found ingested after a crash.
    pub fn ingest_external_file<P: Into<PathBuf>>(
        &self,
        options: &IngestExternalFileOptions,
        files: impl IntoIterator<Item = P>,
    ) -> Result<()> {
        let arg = IngestExternalFileArg::new(self.default_column_family(), files, *options);
        self.ingest_external_files(&[arg])
    }

    /// The same for several column families, all of it at once: a crash, too, leaves all files
    /// ingested or none.
    ///
    /// # Errors
    /// As [`Db::ingest_external_file`]; a column family is named twice or is of another database.
    /// `NotFound`: one was dropped.
    pub fn ingest_external_files(&self, args: &[IngestExternalFileArg]) -> Result<()> {
        block_on(self.env(), self.ingest_external_files_async(args))
    }

    /// The asynchronous form of [`Db::ingest_external_file`]. Once polled, it goes on though it is
    /// dropped.
    ///
    /// # Errors
    /// As [`Db::ingest_external_file`].
    pub async fn ingest_external_file_async<P: Into<PathBuf>>(
        &self,
        options: &IngestExternalFileOptions,
        files: impl IntoIterator<Item = P>,
    ) -> Result<()> {
        let arg = IngestExternalFileArg::new(self.default_column_family(), files, *options);
        self.ingest_external_files_async(&[arg]).await
    }

    /// The asynchronous form of [`Db::ingest_external_files`], as
    /// [`Db::ingest_external_file_async`].
    ///
    /// # Errors
    /// As [`Db::ingest_external_files`].
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
