//! The databases of the benchmark: made once, kept in a folder outside the repository.
//!
//! * `tree`: RocksDB's published four-level tree, made by Debian's db_bench.
//! * `values-full`, `values-partitioned`, `blobs-full`, `blobs-partitioned`: 4 KB values in random
//!   order, leveled, without compression; in blob files or not; with full or partitioned index and
//!   filters.

use crate::rocks;
use karst_testkit::random::Random;
use karst_testkit::rocksdb_tools;
use rocksdb::{DB, WaitForCompactOptions, WriteBatch, WriteOptions};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Entries of each database of 4 KB values.
pub(super) const VALUES: u64 = 800_000;
pub(super) const VALUE_LEN: usize = 4096;
/// Entries of the published tree.
pub(super) const TREE_ENTRIES: u64 = 5_000_000;
pub(super) const TREE_KEY_LEN: usize = 32;
pub(super) const VALUE_KEY_LEN: usize = 16;

/// db_bench's key number `number`: eight big-endian bytes and zeros as text.
pub(super) fn key(number: u64, len: usize) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.resize(len, b'0');
    key
}

/// The folder of the benchmark's databases.
pub(super) struct Data {
    pub(super) folder: PathBuf,
}

/// Layout of a database of 4 KB values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) blobs: bool,
    pub(super) partitioned: bool,
}

impl Layout {
    pub(super) const ALL: [Layout; 4] = [
        Layout { blobs: false, partitioned: false },
        Layout { blobs: false, partitioned: true },
        Layout { blobs: true, partitioned: false },
        Layout { blobs: true, partitioned: true },
    ];

    pub(super) fn name(self) -> String {
        let (values, metadata) = (
            if self.blobs { "blobs" } else { "values" },
            if self.partitioned { "partitioned" } else { "full" },
        );
        format!("{values}-{metadata}")
    }

    /// Table options that a reader must repeat.
    pub(super) fn table_options(self) -> &'static str {
        if self.partitioned {
            "index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:10:false;"
        } else {
            "filter_policy=bloomfilter:10:false;"
        }
    }
}

impl Data {
    /// Path of the published tree, which is built if it is missing and read once.
    pub(super) fn tree(&self) -> Result<PathBuf, String> {
        self.made("tree", |path| {
            let out = rocksdb_tools::db_bench(
                path,
                &[
                    "-benchmarks=fillseqdeterministic",
                    "-key_size=32",
                    "-value_size=512",
                    "-num=5000000",
                    "-num_levels=4",
                    "-disable_auto_compactions=true",
                    "-compaction_style=1",
                    "-bloom_bits=10",
                ],
            )?;
            if out.contains("fillseqdeterministic") { Ok(()) } else { Err(format!("db_bench said:\n{out}")) }
        })
    }

    /// Path of a database of 4 KB values, which is built if it is missing and read once.
    pub(super) fn values(&self, layout: Layout) -> Result<PathBuf, String> {
        self.made(&layout.name(), |path| write_values(path, layout))
    }

    fn made(&self, name: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        let mark = self.folder.join(format!("{name}.made"));
        if !mark.exists() {
            eprintln!("making {}", path.display());
            let io = |e: std::io::Error| format!("{}: {e}", path.display());
            if path.exists() {
                fs::remove_dir_all(&path).map_err(io)?;
            }
            fs::create_dir_all(&self.folder).map_err(io)?;
            make(&path)?;
            fs::write(&mark, "").map_err(io)?;
        }
        read_through(&path)?;
        Ok(path)
    }
}

/// Reads every file of a folder once, because otherwise slow first reads would be measured as the
/// engine's: a virtual disk may fetch blocks that were not read lately at a tenth of its usual
/// rate, and the page cache may have dropped files that a mount serves.
pub(super) fn read_through(folder: &Path) -> Result<(), String> {
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut buffer = vec![0; 1 << 20];
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_type().map_err(io)?.is_file() {
            let mut file = fs::File::open(entry.path()).map_err(io)?;
            while file.read(&mut buffer).map_err(io)? > 0 {}
        }
    }
    Ok(())
}

fn write_values(path: &Path, layout: Layout) -> Result<(), String> {
    let error = |e: rocksdb::Error| e.to_string();
    let mut text = format!(
        "create_if_missing=true;max_background_jobs=4;write_buffer_size=67108864;max_write_buffer_number=4;\
         target_file_size_base=67108864;max_bytes_for_level_base=268435456;compression=kNoCompression;\
         block_based_table_factory={{{}block_size=4096;}};",
        layout.table_options()
    );
    if layout.blobs {
        text.push_str("enable_blob_files=true;min_blob_size=1024;blob_file_size=268435456;");
    }
    let db = DB::open(&rocks::options(&text)?, path).map_err(error)?;
    let mut quick = WriteOptions::default();
    quick.disable_wal(true);
    // An odd step walks through all of them in an order that is random enough for compaction.
    let step = 499_979_u64;
    for start in (0..VALUES).step_by(64) {
        let mut batch = WriteBatch::default();
        for i in start..(start + 64).min(VALUES) {
            let number = i * step % VALUES;
            batch.put(key(number, VALUE_KEY_LEN), value(number));
        }
        db.write_opt(batch, &quick).map_err(error)?;
    }
    db.flush().map_err(error)?;
    db.wait_for_compact(&WaitForCompactOptions::default()).map_err(error)
}

/// The value of a key: its number, then noise that does not compress.
pub(super) fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.extend(Random::new(number).bytes(VALUE_LEN - 8));
    value
}
