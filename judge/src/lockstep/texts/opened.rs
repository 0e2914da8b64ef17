//! Options that a database is opened with: both engines must take them, or both refuse them.
//! OPTIONS files are not compared, as RocksDB's has the values that opening made of the options,
//! and KarstDB's those that were set.

use super::draw::Text;
use super::known::Counts;
use super::parse::{ENDED, apart};
use karst_engine::{Db, Options};
use std::path::Path;

/// Options that no walk opens with: paths and hosts, and numbers that make threads, memory or
/// files.
const LEFT_OUT: &[&str] = &[
    "db_log_dir",
    "enable_blob_direct_write",
    "wal_dir",
    "db_host_id",
    "max_background",
    "table_cache_numshardbits",
    "max_file_opening_threads",
    "read_io_executor_threads",
    "num_levels",
    "preallocation",
    "buffer_size",
    "readahead",
    "arena_block_size",
    "huge_page",
    "create_",
    "error_if_exists",
    "cache=",
    "bucket_count",
    "prefix_hash",
    "hash_linkedlist",
    "HashSkipList",
    "HashLinkList",
    "vector",
    "VectorRep",
    "write_buffer",
    "best_efforts",
    "max_subcompactions",
    "parallel_threads",
    "stats_",
    "inplace_update_num_locks",
    "bloom_size_ratio",
    "max_open_files",
];

fn rocks(text: &str, directory: &Path) -> Result<String, String> {
    apart(|| {
        let db = rocksdb::DB::open(&crate::rocks::options(text)?, directory).map_err(|e| e.to_string())?;
        drop(db);
        Ok(String::new())
    })
}

fn karst(text: &str, directory: &Path) -> Result<String, String> {
    let told = |e: karst_engine::Error| e.to_string();
    let options = Options::new().set_all(text).map_err(told)?;
    Db::open(directory, &options).map_err(told)?.close().map_err(told)?;
    Ok(String::new())
}

/// Opens a new database of each engine with one text; returns the difference, if any.
pub(super) fn difference(
    text: &Text,
    folder: &Path,
    counts: &mut Counts,
) -> Result<Option<(String, String)>, String> {
    let whole = text.whole();
    if LEFT_OUT.iter().any(|part| whole.contains(part)) || !whole.is_ascii() {
        return Ok(None);
    }
    std::fs::write(folder.join("last"), format!("opened {whole}")).map_err(|e| e.to_string())?;
    let opened = format!("create_if_missing=true;{whole}");
    let [a, b] = ["rocks", "karst"].map(|name| folder.join(name));
    let (rocks, karst) = (rocks(&opened, &a), karst(&opened, &b));
    for directory in [a, b] {
        // It may not be there, as neither engine opened it.
        let _ = std::fs::remove_dir_all(directory);
    }
    counts.opened += 1;
    let what = match (&rocks, &karst) {
        (Err(error), _) if error.starts_with(ENDED) => error.clone(),
        (Err(_), Err(_)) => return Ok(None),
        (Ok(_), Err(error)) => format!("RocksDB opens with it, KarstDB: {error}"),
        (Err(error), Ok(_)) => format!("KarstDB opens with it, RocksDB: {error}"),
        (Ok(_), Ok(_)) => return Ok(None),
    };
    if counts.explains(text, &rocks, &karst) {
        return Ok(None);
    }
    let signature = format!("opened {} {}", text.names(), what.chars().take(24).collect::<String>());
    Ok(Some((signature, format!("opened with {whole:?}\n    {what}"))))
}
