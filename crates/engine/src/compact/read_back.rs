//! Reading back what a job has written, before anybody refers to it (`paranoid_file_checks`).
//!
//! In: written tables with a hash of the entries that were handed to each. Out: nothing, or an
//! error that names the table whose entries are others now. What it finds is what block checksums
//! cannot: entries that were wrong before the checksum was made.
//!
//! Invariant: the tables are complete and synced, and nobody else knows them.

use crate::read::iter::job_input::{InputOptions, JobInput};
use karst_base::error::{Error, ErrorKind, Result};
use karst_format::ids::Level;
use karst_lsm::FileMetadata;
use karst_lsm::pick::CompactionInput;
use karst_storage::table::cache::TableCache;
use karst_storage::table::writer::{EntryHash, WrittenTable};
use std::sync::Arc;

/// Bytes read ahead.
const READAHEAD_BYTES: u64 = 2 << 20;

/// Reads the tables that have a hash, and compares.
///
/// # Errors
/// `Corruption`: a table does not have the entries that it was given, or is damaged. `Io`: it
/// cannot be read.
pub(crate) async fn check(tables: &Arc<TableCache>, level: Level, written: &[WrittenTable]) -> Result<()> {
    for table in written {
        let Some(expected) = table.entries else { continue };
        let file = Arc::new(FileMetadata::new(table.file.clone()));
        let inputs = [CompactionInput { level, files: vec![file] }];
        let options = InputOptions {
            readahead_bytes: READAHEAD_BYTES,
            verify_checksums: true,
            lower: None,
            upper: None,
        };
        let mut input = JobInput::new(tables.clone(), &[], &inputs, options);
        let mut found = EntryHash::default();
        input.start().await?;
        while input.valid() {
            let (internal_key, value) = input.entry();
            found.add(internal_key, value);
            if !input.advance()? {
                input.arrive().await?;
            }
        }
        if found != expected {
            let text = format!(
                "table {} read back after it was written: {} entries, {} were written, or they differ",
                table.file.number, found.entries, expected.entries
            );
            return Err(Error::new(ErrorKind::Corruption, text));
        }
    }
    Ok(())
}
