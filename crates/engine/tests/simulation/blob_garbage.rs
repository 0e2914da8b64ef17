//! Checks the MANIFEST's count of garbage in blob files: it must equal all values of a file minus
//! those that table entries refer to.

use karst_engine::{ColumnFamily, Db, Result};
use karst_testkit::blob_references::BlobReferences;

/// Compares the garbage that the MANIFEST counts in a family's blob files with the references in
/// its tables.
pub(crate) async fn check_blob_garbage(db: &Db, family: &ColumnFamily) -> Result<()> {
    db.disable_file_deletions_async().await?;
    let tree = db.column_family_metadata(family)?;
    let mut live = BlobReferences::default();
    let fs = db.env().fs();
    for table in tree.levels.iter().flat_map(|level| &level.files) {
        let bytes = fs.read_file(&table.directory.join(table.name.trim_start_matches('/')))?;
        live.add_table(&bytes).unwrap_or_else(|e| panic!("{}: {e}", table.name));
    }
    db.enable_file_deletions_async().await?;
    for file in &tree.blob_files {
        let (count, bytes) = live.0.remove(&file.number).unwrap_or_default();
        assert!(
            file.total_blob_count == file.garbage_blob_count + count
                && file.total_blob_bytes == file.garbage_blob_bytes + bytes,
            "{}: {count} values of {bytes} bytes are referred to: {file:?}",
            family.name()
        );
        assert!(count > 0, "{}: nothing refers to {file:?}", family.name());
    }
    assert!(live.0.is_empty(), "{}: values in files that are not there: {live:?}", family.name());
    Ok(())
}
