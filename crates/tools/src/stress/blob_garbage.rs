//! Checks the MANIFEST's count of garbage in blob files: it must equal all values of a file minus
//! those that table entries refer to.

use super::wrong::Wrong;
use crate::table_file::TableFile;
use karst_engine::{ColumnFamily, Db, Error};
use karst_format::blob::{BlobIndex, RECORD_HEADER_BYTES};
use karst_format::key::{self, ValueType};
use std::collections::BTreeMap;

/// Number of values and bytes of their records, by the number of the blob file.
type References = BTreeMap<u64, (u64, u64)>;

/// Compares the garbage that the MANIFEST counts in a family's blob files with the references in
/// its tables. Blocks.
///
/// Entities are not looked into for blob references, because no lane writes entities.
pub(crate) fn check(db: &Db, family: &ColumnFamily) -> Result<(), Wrong> {
    let failed = |error: Error| Wrong::Failed(format!("garbage of {}: {error}", family.name()));
    db.disable_file_deletions().map_err(failed)?;
    let checked = count(db, family);
    db.enable_file_deletions().map_err(failed)?;
    checked
}

fn count(db: &Db, family: &ColumnFamily) -> Result<(), Wrong> {
    let tree = db.column_family_metadata(family).map_err(|e| Wrong::Failed(e.to_string()))?;
    let mut live = References::new();
    for table in tree.levels.iter().flat_map(|level| &level.files) {
        let path = table.directory.join(table.name.trim_start_matches('/'));
        let table = TableFile::open(&path).map_err(Wrong::Failed)?;
        for row in table.index_rows().map_err(Wrong::Failed)? {
            let entry = |key: &[u8], value: &[u8]| add(&mut live, key, value).map(|()| true);
            table.block_entries(row.handle, entry).map_err(Wrong::Failed)?;
        }
    }
    for file in &tree.blob_files {
        let (count, bytes) = live.remove(&file.number).unwrap_or_default();
        let (total, garbage) = (file.total_blob_count, file.garbage_blob_count);
        if total != garbage + count || file.total_blob_bytes != file.garbage_blob_bytes + bytes {
            return Err(Wrong::Mismatch(format!(
                "of garbage: {} of column family {} has {total} values of {} bytes, of which {garbage} of {} bytes count as garbage and tables refer to {count} of {bytes} bytes",
                file.name,
                family.name(),
                file.total_blob_bytes,
                file.garbage_blob_bytes
            )));
        }
    }
    match live.first_key_value() {
        None => Ok(()),
        Some((number, _)) => Err(Wrong::Mismatch(format!(
            "of blob files: tables of column family {} refer to {number:06}.blob, which is not there",
            family.name()
        ))),
    }
}

fn add(live: &mut References, internal_key: &[u8], value: &[u8]) -> Result<(), String> {
    if internal_key[internal_key.len() - key::TRAILER_BYTES] != ValueType::BlobIndex as u8 {
        return Ok(());
    }
    if let BlobIndex::Stored { file, size, .. } = BlobIndex::decode(value).map_err(|e| e.to_string())? {
        let (count, bytes) = live.entry(file.0).or_default();
        *count += 1;
        *bytes += (RECORD_HEADER_BYTES + key::user_key(internal_key).len()) as u64 + size;
    }
    Ok(())
}
