//! Reads back the tables that a job has written, before they are installed (`paranoid_file_checks`;
//! for compactions also `verify_output_flags`).
//!
//! In: written tables, each with a hash of the entries passed to it. Out: nothing, or an error that
//! names the table whose entries differ. It detects errors that block checksums cannot: entries
//! that were wrong before the checksum was computed.
//!
//! Invariant: the tables are complete and synced, and not yet visible to any other reader.

use crate::read::iter::job_input::{InputOptions, JobInput};
use karst_base::error::{Error, ErrorKind, Result};
use karst_format::ids::Level;
use karst_lsm::FileMetadata;
use karst_lsm::pick::CompactionInput;
use karst_storage::table::cache::TableCache;
use karst_storage::table::verify;
use karst_storage::table::writer::{EntryHash, WrittenTable};
use std::sync::Arc;

/// Bytes read ahead.
const READAHEAD_BYTES: u64 = 2 << 20;

/// Bits of `verify_output_flags`.
const BLOCK_CHECKSUMS: u32 = 1;
const FILE_CHECKSUM: u32 = 4;
const LOCAL_COMPACTIONS: u32 = 1 << 10;

/// Runs the checks of a compaction's tables that `verify_output_flags` select, except the check of
/// entries, which is made by their hash.
///
/// # Errors
/// `Corruption`: a block, or a file as a whole, does not match its checksum. `Io`: it cannot be
/// read.
pub(crate) async fn check_output(
    tables: &Arc<TableCache>,
    flags: u32,
    written: &[WrittenTable],
) -> Result<()> {
    let asked = |bit| flags & LOCAL_COMPACTIONS != 0 && flags & bit != 0;
    for table in written {
        let file = FileMetadata::new(table.file.clone());
        if asked(BLOCK_CHECKSUMS) {
            verify::table(tables, &file).await?;
        }
        if let Some(checksum) =
            file.checksum.as_ref().filter(|checksum| asked(FILE_CHECKSUM) && checksum.is_known())
        {
            let opened = verify::open_table(tables, &file).await?;
            verify::whole_file(&tables.shared, &opened, (&checksum.function, &checksum.value)).await?;
        }
    }
    Ok(())
}

/// Reads the tables that have a hash, and compares it with that of their entries.
///
/// # Errors
/// `Corruption`: a table's entries differ from those passed to it, or it is damaged. `Io`: it
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
