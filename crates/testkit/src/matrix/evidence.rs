//! Evidence in a database's files of the options they were written with: the table properties as
//! `sst_dump` prints them, the names in the metaindex, the footers, the record types of the logs.

use crate::rocksdb_tools as tools;
use std::fs;
use std::path::Path;

/// A fact that must be found in the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// This text, anywhere in the output of `sst_dump --show_properties`.
    Property(&'static str),
    /// A table property with this name and a value above zero, such as `# range deletions`.
    Counted(&'static str),
    /// A meta block of this name in some table.
    MetaBlock(&'static str),
    /// This format version in every table's footer.
    FormatVersion(u32),
    /// This checksum type in every table's footer.
    Checksum(u8),
    /// At least this many bytes on average in the data blocks of some table.
    MeanBlockBytes(u64),
    /// A record of this type in a nonempty live log.
    LogRecord(u8),
    /// An internal key of this value type, tables and memtables together (7 is a single delete).
    InternalType(u8),
    /// At least this many live blob files.
    BlobFiles(usize),
}

/// The data gathered from a database's files.
pub(super) struct Seen {
    properties: String,
    tables: Vec<Vec<u8>>,
    logs: Vec<Vec<u8>>,
    blob_files: usize,
    internal: String,
}

const BLOCK_BASED_MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
const FOOTER_LEN: usize = 53;
const LOG_BLOCK: usize = 32768;
const RECYCLABLE_FULL: u8 = 5;
const RECYCLABLE_LAST: u8 = 8;
const RECYCLABLE_TIMESTAMP_SIZE: u8 = 11;
const RECYCLABLE_PREDECESSOR: u8 = 131;

impl Seen {
    pub(super) fn gather(path: &Path, blob_files: usize) -> Result<Self, String> {
        let read = |suffix: &str| -> std::io::Result<Vec<Vec<u8>>> {
            let mut found = Vec::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().ends_with(suffix) {
                    found.push(fs::read(entry.path())?);
                }
            }
            Ok(found)
        };
        let tables = read(".sst").map_err(|e| e.to_string())?;
        let logs = read(".log").map_err(|e| e.to_string())?;
        let internal = tools::ldb(path, &["--hex", "idump"], b"")?;
        Ok(Seen { properties: tools::table_properties(path)?, tables, logs, blob_files, internal })
    }

    pub(super) fn prove(&self, wanted: &Evidence) -> Result<(), String> {
        let seen = match wanted {
            Evidence::Property(text) => self.properties.contains(text),
            Evidence::Counted(name) => self.numbers(name).any(|n| n > 0.0),
            Evidence::MetaBlock(name) => {
                self.tables.iter().any(|t| t.windows(name.len()).any(|w| w == name.as_bytes()))
            }
            Evidence::FormatVersion(version) => {
                self.tables.iter().all(|t| footer(t).map(|f| f.0) == Some(*version))
            }
            Evidence::Checksum(kind) => self.tables.iter().all(|t| footer(t).map(|f| f.1) == Some(*kind)),
            Evidence::MeanBlockBytes(least) => self
                .numbers("data block size")
                .zip(self.numbers("# data blocks"))
                .any(|(bytes, blocks)| bytes >= blocks * *least as f64),
            Evidence::LogRecord(kind) => self.logs.iter().any(|log| record_types(log).contains(kind)),
            Evidence::InternalType(kind) => self.internal.contains(&format!(", type:{kind} =>")),
            Evidence::BlobFiles(least) => self.blob_files >= *least,
        };
        if seen && !self.tables.is_empty() {
            Ok(())
        } else {
            Err(format!("the files do not show {wanted:?}"))
        }
    }

    fn numbers(&self, name: &str) -> impl Iterator<Item = f64> {
        let start = format!("{name}:");
        let lines = self
            .properties
            .lines()
            .filter_map(move |l| l.trim_start().strip_prefix(&start)?.trim().parse().ok());
        lines.collect::<Vec<f64>>().into_iter()
    }
}

/// Parses format version and checksum type of a table of format version 1 to 5.
fn footer(table: &[u8]) -> Option<(u32, u8)> {
    let footer = table.get(table.len().checked_sub(FOOTER_LEN)?..)?;
    let magic = u64::from_le_bytes(footer[45..].try_into().ok()?);
    let version = u32::from_le_bytes(footer[41..45].try_into().ok()?);
    (magic == BLOCK_BASED_MAGIC).then_some((version, footer[0]))
}

/// Returns the types of a log's records, in order, up to the first invalid header.
#[must_use]
pub fn record_types(log: &[u8]) -> Vec<u8> {
    let (mut at, mut types) = (0, Vec::new());
    while let Some(header) = log.get(at..at + 7) {
        let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let kind = header[6];
        if kind == 0 {
            break;
        }
        types.push(kind);
        let recyclable = (RECYCLABLE_FULL..=RECYCLABLE_LAST).contains(&kind)
            || [RECYCLABLE_TIMESTAMP_SIZE, RECYCLABLE_PREDECESSOR].contains(&kind);
        at += len + if recyclable { 11 } else { 7 };
        let left = LOG_BLOCK - at % LOG_BLOCK;
        if left < 7 {
            at += left;
        }
    }
    types
}
