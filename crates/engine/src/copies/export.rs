//! Exporting a column family into a directory of tables, which another database imports.
//!
//! In: a column family. Out: a directory, and the metadata of its files: tables keep their levels
//! and sequence numbers.
//!
//! Compat: RocksDB's `ExportColumnFamily`. Families with blob files are refused here, because it
//! does not export these.

use super::checkpoint::Checkpoint;
use super::copying::{self, Halt, Staging};
use crate::background::FlushOptions;
use crate::db::Db;
use crate::sealing::Sealing;
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_base::events::FlushReason;
use karst_format::file_name::FileName;
use karst_io::block_on;
use karst_storage::column_family::ColumnFamily;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table of an exported column family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// File name, such as `000123.sst`.
    pub name: String,
    /// Directory of the export.
    pub directory: PathBuf,
    /// Level of the table in its tree.
    pub level: u32,
    /// Size in bytes; with 0 an import uses the size of the file.
    pub size_bytes: u64,
    /// The smallest internal key: the user key and eight bytes. If this and the largest one are
    /// empty, an import takes both from the table.
    pub smallest: Vec<u8>,
    /// The largest internal key.
    pub largest: Vec<u8>,
    /// The smallest sequence number.
    pub smallest_seq: u64,
    /// The largest sequence number.
    pub largest_seq: u64,
    /// The order in which files reached L0; 0 if unknown.
    pub epoch_number: u64,
    /// The checksum of the whole file and the name of its function, if recorded.
    pub checksum: Option<(Vec<u8>, String)>,
}

/// Metadata of an exported column family. Programs that move the files may take it apart, and
/// reassemble it at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportImportFilesMetaData {
    /// Name of the comparator that orders the keys.
    pub db_comparator_name: String,
    /// The exported tables.
    pub files: Vec<ExportedFile>,
}

impl Checkpoint<'_> {
    /// Exports the tables of a column family into `directory`, which must not exist and whose
    /// parent must: hard links, or copies if links are not supported. Memtables are flushed first.
    /// Waits on the calling thread until the directory is durable.
    ///
    /// # Errors
    /// Those of [`create_checkpoint`](Checkpoint::create_checkpoint). `NotSupported`: the family
    /// has blob files, or the database has the write policy WritePrepared, whose tables may have
    /// undecided entries. `InvalidArgument`: the family belongs to another database. `NotFound`: it
    /// was dropped.
    pub fn export_column_family(
        &self,
        family: &ColumnFamily,
        directory: impl AsRef<Path>,
    ) -> Result<ExportImportFilesMetaData> {
        self.export_blocking(family, directory.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn export_blocking(&self, family: &ColumnFamily, directory: &Path) -> Result<ExportImportFilesMetaData> {
        block_on(self.db.env(), self.export_column_family_async(family, directory))
    }

    /// The asynchronous form of [`export_column_family`](Self::export_column_family). If it is
    /// dropped, its files are removed soon.
    ///
    /// # Errors
    /// Those of [`export_column_family`](Self::export_column_family).
    pub async fn export_column_family_async(
        &self,
        family: &ColumnFamily,
        directory: &Path,
    ) -> Result<ExportImportFilesMetaData> {
        let told = |error: Error| {
            let name = Named(family.name());
            error.in_context(format!("exporting column family {name:?} to {}", directory.display()))
        };
        export(self.db, family, directory).await.map_err(told)
    }
}

async fn export(db: &Db, family: &ColumnFamily, directory: &Path) -> Result<ExportImportFilesMetaData> {
    let (env, write, to) = (db.env(), db.write_half()?, directory.to_owned());
    let ownership = &write.ownership;
    db.family(family)?;
    if db.0.read.pending.is_some() {
        return Err(Error::not_supported(
            "exporting from a database whose tables may hold undecided transactions",
        ));
    }
    env.run_blocking({
        let to = to.clone();
        move |env| copying::refuse_existing(env, &to)
    })
    .await?;
    let hold = ownership.versions.obsolete().hold().await;
    let which = Sealing::Of(vec![family.0.clone()]);
    write.background.flush_families(which, FlushOptions::default(), FlushReason::GetLiveFiles).await?;
    let trees = ownership.versions.moment().trees;
    let tree = trees.into_iter().find(|(other, _)| Arc::ptr_eq(other, &family.0));
    let (_, version) =
        tree.ok_or_else(|| Error::new(ErrorKind::NotFound, "the column family was dropped"))?;
    if !version.blob_files().is_empty() {
        return Err(Error::not_supported("the column family has blob files"));
    }
    let mut files = Vec::new();
    for (level, table) in version.all_files() {
        let from = family.0.tables.shared.table_path(table.number, table.path_id)?;
        let checksum = table.checksum.as_ref();
        let exported = ExportedFile {
            name: FileName::Table(table.number).to_string(),
            directory: to.clone(),
            level: u32::from(level.0),
            size_bytes: table.size_bytes,
            smallest: table.smallest.to_vec(),
            largest: table.largest.to_vec(),
            smallest_seq: table.smallest_seq.0,
            largest_seq: table.largest_seq.0,
            epoch_number: table.epoch_number,
            checksum: checksum.map(|c| (c.value.to_vec(), String::from_utf8_lossy(&c.function).into_owned())),
        };
        files.push((from, exported));
    }
    let db_comparator_name = family.0.config.comparator.name().to_owned();
    copying::run(env, Halt::default(), move |env, stop| {
        // Held here, so that the files stay while this job runs, even if the caller is gone.
        let (_hold, _version) = (hold, version);
        let staging = Staging::begin(env, &to)?;
        for (from, file) in &files {
            stop.check()?;
            copying::link_or_copy(env, from, &staging.path(&file.name), stop)?;
        }
        // Without LOCK, because an export is no database, and is never locked.
        staging.finish_without_lock()?;
        let files = files.into_iter().map(|(_, file)| file).collect();
        Ok(ExportImportFilesMetaData { db_comparator_name, files })
    })
    .await
}
