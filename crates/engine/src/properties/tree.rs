//! Properties computed from the tree's metadata: counts, sizes, key ranges. Nothing is read.

use karst_format::key::{InternalKey, user_key};
use karst_lsm::{BlobFileMetadata, FileMetadata, Version};
use karst_storage::blob;
use karst_storage::superversion::SuperVersion;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

const MIB: f64 = 1048576.0;

/// Returns `rocksdb.levelstats`.
pub(super) fn level_stats(version: &Version) -> String {
    let mut text = String::from("Level Files Size(MB)\n--------------------\n");
    for level in version.levels() {
        let (at, files) = (level.level().0, level.len());
        let _ = writeln!(text, "{at:3} {files:8} {:8.0}", level.size_bytes() as f64 / MIB);
    }
    text
}

/// Returns `rocksdb.sstables`.
pub(super) fn tables(view: &SuperVersion) -> String {
    let version = view.version();
    let number = view.number();
    let mut text = String::new();
    for level in version.levels() {
        let _ = write!(text, "--- level {} --- version# {number}", level.level().0);
        if let Some(cursor) = version.compact_cursors().get(&level.level()) {
            let _ = write!(text, " --- compact_cursor: {}", key_text(cursor));
        }
        text.push_str(" ---\n");
        for file in level.files() {
            let _ = write!(
                text,
                " {}:{}[{} .. {}][{} .. {}]",
                file.number.0,
                file.size_bytes,
                file.smallest_seq,
                file.largest_seq,
                key_text(&file.smallest),
                key_text(&file.largest)
            );
            if let Some(blob) = file.oldest_blob_file {
                let _ = write!(text, " blob_file:{}", blob.0);
            }
            // Compat: the number of times RocksDB sampled the file; KarstDB does not sample.
            text.push_str("(0)\n");
        }
    }
    if !version.blob_files().is_empty() {
        let _ = writeln!(text, "--- blob files --- version# {number} ---");
        for blob in version.blob_files().values() {
            let _ = writeln!(text, "{}", blob_text(blob));
        }
    }
    text
}

/// Formats an internal key like RocksDB's debug texts, the user key in hexadecimal.
fn key_text(internal_key: &[u8]) -> String {
    match InternalKey::parse(internal_key) {
        Ok(key) => format!("'{}' seq:{}, type:{}", hex(key.user_key), key.seq, key.kind as u8),
        Err(_) => format!("(bad){}", hex(internal_key)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn blob_text(blob: &BlobFileMetadata) -> String {
    let file = &blob.file;
    let linked: String = blob.linked_tables.iter().map(|number| format!(" {}", number.0)).collect();
    format!(
        "blob_file_number: {} total_blob_count: {} total_blob_bytes: {} checksum_method: {} checksum_value: {} linked_ssts: {{{linked} }} garbage_blob_count: {} garbage_blob_bytes: {}",
        file.number.0,
        file.total_count,
        file.total_bytes,
        String::from_utf8_lossy(&file.checksum_method),
        hex(&file.checksum_value),
        blob.garbage_count,
        blob.garbage_bytes
    )
}

/// Returns the bytes of the tables of all these versions, each counted once.
pub(super) fn all_table_bytes(versions: &[Arc<Version>]) -> u64 {
    let files = versions.iter().flat_map(|version| version.all_files());
    files.map(|(_, file)| (file.number, file.size_bytes)).collect::<BTreeMap<_, _>>().values().sum()
}

/// Returns the bytes of the blob files of all these versions, each counted once.
pub(super) fn all_blob_bytes(versions: &[Arc<Version>]) -> u64 {
    let files = versions.iter().flat_map(|version| version.blob_files());
    files.map(|(number, blob)| (*number, blob::file_bytes(blob))).collect::<BTreeMap<_, _>>().values().sum()
}

/// Returns the bytes of the tables that were written with a temperature.
pub(super) fn table_bytes_at_temperature(version: &Version, temperature: u8) -> u64 {
    let files = version.all_files().filter(|(_, file)| file.temperature as u8 == temperature);
    files.map(|(_, file)| file.size_bytes).sum()
}

/// Sums over the blob files.
pub(super) struct BlobTotals {
    pub(super) file_bytes: u64,
    pub(super) garbage_bytes: u64,
}

impl BlobTotals {
    pub(super) fn space_amplification(&self) -> f64 {
        if self.file_bytes <= self.garbage_bytes {
            return 0.0;
        }
        self.file_bytes as f64 / (self.file_bytes - self.garbage_bytes) as f64
    }
}

pub(super) fn blob_totals(version: &Version) -> BlobTotals {
    let blobs = version.blob_files().values();
    blobs.fold(BlobTotals { file_bytes: 0, garbage_bytes: 0 }, |sum, blob| BlobTotals {
        file_bytes: sum.file_bytes.saturating_add(blob::file_bytes(blob)),
        garbage_bytes: sum.garbage_bytes.saturating_add(blob.garbage_bytes),
    })
}

/// Returns `rocksdb.blob-stats`.
pub(super) fn blob_stats(version: &Version) -> String {
    let totals = blob_totals(version);
    format!(
        "Number of blob files: {}\nTotal size of blob files: {}\nTotal size of garbage in blob files: {}\nBlob file space amplification: {}\n",
        version.blob_files().len(),
        totals.file_bytes,
        totals.garbage_bytes,
        totals.space_amplification()
    )
}

/// Estimates the bytes left after a full compaction: tables from the last level upwards that do not
/// overlap one taken before, and blobs that are not garbage.
pub(super) fn estimate_live_data_bytes(version: &Version) -> u64 {
    let comparator = version.comparator();
    // Sorted by largest key, disjoint.
    let mut taken: Vec<&Arc<FileMetadata>> = Vec::new();
    let mut bytes = 0;
    for file in version.levels().iter().rev().flat_map(|level| level.files()) {
        let (smallest, largest) = (user_key(&file.smallest), user_key(&file.largest));
        let at = taken
            .partition_point(|t| comparator.compare_user(user_key(&t.largest), smallest) == Ordering::Less);
        let overlaps = taken.get(at).is_some_and(|next| {
            comparator.compare_user(user_key(&next.smallest), largest) != Ordering::Greater
        });
        if !overlaps {
            taken.insert(at, file);
            bytes += file.size_bytes;
        }
    }
    let blobs = version.blob_files().values();
    blobs.fold(bytes, |sum, blob| sum + blob.file.total_bytes.saturating_sub(blob.garbage_bytes))
}

/// Formats a size in RocksDB's short form.
pub(super) fn human_bytes(bytes: u64) -> String {
    let mut size = bytes as f64 / 1024.0;
    for unit in ["KB", "MB", "GB"] {
        if size < 1024.0 {
            return format!("{size:.2} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.2} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_rocksdb_prints_them() {
        assert_eq!(human_bytes(0), "0.00 KB");
        assert_eq!(human_bytes(1536), "1.50 KB");
        assert_eq!(human_bytes(3 << 20), "3.00 MB");
        assert_eq!(human_bytes(5 << 40), "5.00 TB");
        assert_eq!(human_bytes(5 << 50), "5120.00 TB");
    }

    #[test]
    fn keys_are_shown_in_hexadecimal() {
        let key = InternalKey {
            user_key: b"k\xff",
            seq: karst_format::key::SeqNo(7),
            kind: karst_format::key::ValueType::Value,
        };
        assert_eq!(key_text(&key.to_vec()), "'6BFF' seq:7, type:1");
        assert_eq!(key_text(b"xy"), "(bad)7879");
    }
}
