//! Verification of stored data by checksums, without trusting data in memory.

use super::Db;
use karst_base::error::Result;
use karst_lsm::Version;
use karst_storage::column_family::Family;
use karst_storage::table::cache::TableCache;
use karst_storage::table::verify;
use std::sync::Arc;

impl Db {
    /// Reads all table and blob files of all column families, and verifies the checksum of every
    /// block and of every blob record. Blocks the calling thread; the current files are kept until
    /// it is done.
    ///
    /// The bytes read are counted in the ticker `rocksdb.verify_checksum.read.bytes`. Unlike
    /// RocksDB's call of this name, it reads blob files too. The headers of blob files and the
    /// footers of tables before format_version 6 have no checksum and are only checked for
    /// plausibility. Memtables and logs are not verified. Without `use_direct_reads` the operating
    /// system may answer from its cache, which hides errors of the device.
    ///
    /// # Errors
    /// The first file that cannot be read, or a part of which differs from what was written:
    /// `Corruption`, with the file and the offset.
    pub fn verify_checksum(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.verify_checksum_async())
    }

    /// The asynchronous form of [`Db::verify_checksum`].
    ///
    /// # Errors
    /// Those of [`Db::verify_checksum`].
    pub async fn verify_checksum_async(&self) -> Result<()> {
        for (tables, version) in self.trees()? {
            for (_, file) in version.all_files() {
                verify::table(&tables, file).await?;
            }
            for blob in version.blob_files().values() {
                tables.blobs.verify(blob).await?;
            }
        }
        Ok(())
    }

    /// Verifies all table and blob files of all column families that were written with a checksum
    /// of the whole file (`file_checksum_gen_factory`). Returns the number of verified files.
    /// Blocks the calling thread.
    ///
    /// # Errors
    /// The first file that cannot be read, or differs from what was written: `Corruption`, with its
    /// name. `InvalidArgument`: its checksum was made by a function that is neither RocksDB's
    /// `FileChecksumCrc32c` nor known to the [factory](crate::Options::file_checksum_gen_factory)
    /// that the database was opened with.
    pub fn verify_file_checksums(&self) -> Result<u64> {
        karst_io::block_on(self.env(), self.verify_file_checksums_async())
    }

    /// The asynchronous form of [`Db::verify_file_checksums`].
    ///
    /// # Errors
    /// Those of [`Db::verify_file_checksums`].
    pub async fn verify_file_checksums_async(&self) -> Result<u64> {
        let mut verified = 0;
        for (tables, version) in self.trees()? {
            for (_, file) in version.all_files() {
                let Some(checksum) = file.checksum.as_ref().filter(|checksum| checksum.is_known()) else {
                    continue;
                };
                let opened = verify::open_table(&tables, file).await?;
                verify::whole_file(&tables.shared, &opened, (&checksum.function, &checksum.value)).await?;
                verified += 1;
            }
            for blob in version.blob_files().values() {
                let (function, value) = (&blob.file.checksum_method, &blob.file.checksum_value);
                if value.is_empty() {
                    continue;
                }
                let (opened, _) = tables.blobs.open_file(blob.number()).await?;
                verify::whole_file(&tables.shared, &opened, (function, value)).await?;
                verified += 1;
            }
        }
        Ok(verified)
    }

    /// Returns the table cache and the current version of every column family.
    fn trees(&self) -> Result<Vec<(Arc<TableCache>, Arc<Version>)>> {
        self.check_open()?;
        let families = self.0.read.families.all();
        let tree = |family: &Arc<Family>| (family.tables.clone(), family.superversion().version().clone());
        Ok(families.iter().map(tree).collect())
    }
}
