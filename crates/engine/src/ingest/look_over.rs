//! Iteration over the entries of an external table, before it becomes part of a database.
//!
//! In: a table. Out: its entries in sequence, checked for order, or only the first and the last
//! one.

use crate::read::iter::job_input::{InputOptions, JobInput};
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_format::comparator::Comparator;
use karst_format::ids::Level;
use karst_format::key::{SeqNo, ValueType, user_key};
use karst_format::wide_column;
use karst_lsm::FileMetadata;
use karst_lsm::pick::CompactionInput;
use karst_storage::table::Table;
use karst_storage::table::cache::TableCache;
use std::sync::Arc;

/// Bytes of readahead when all entries are read.
const READAHEAD_BYTES: u64 = 1 << 20;

/// The largest sequence number allowed in a table of another database, which leaves half of all
/// numbers for writes.
///
/// Numbers are never reused, and no database uses up half of them by writing.
pub(crate) const MOST_SEQ: SeqNo = SeqNo(SeqNo::MAX.0 >> 1);

/// Parameters of the iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookOver {
    /// Read every entry, not only the first and the last one.
    pub(crate) all: bool,
    /// Insert the blocks read into the block cache.
    pub(crate) fill_cache: bool,
}

/// Passes entries of `table` to `each` in order, as internal key and stored value, without range
/// tombstones: all of them, or the first and the last, which may be the same.
///
/// # Errors
/// `Corruption`: they are not in order, a key is shorter than a timestamp, or a block is damaged.
/// The file cannot be read; errors of `each`.
pub(crate) async fn look_over(
    tables: &Arc<TableCache>,
    (table, file): (&Table, &Arc<FileMetadata>),
    how: LookOver,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let comparator = &tables.configuration.comparator;
    let input = || {
        let inputs = [CompactionInput { level: Level(0), files: vec![file.clone()] }];
        let readahead_bytes = if how.all { READAHEAD_BYTES } else { 0 };
        let options = InputOptions { readahead_bytes, verify_checksums: true, lower: None, upper: None };
        JobInput::new(tables.clone(), &[], &inputs, options).filling_cache(how.fill_cache)
    };
    let mut each = |internal_key: &[u8], value: &[u8]| {
        check_length(comparator, user_key(internal_key))?;
        each(internal_key, value)
    };
    let mut first = input();
    first.start().await?;
    if !first.valid() {
        return Ok(());
    }
    if !how.all {
        let mut last = input();
        last.start_at_last().await?;
        let ends = [first.entry(), last.entry()];
        let keys = ends.map(|(internal_key, _)| internal_key);
        if keys[0] != keys[1] && comparator.compare_internal(keys[0], keys[1]).is_ge() {
            return Err(out_of_order(keys[1], keys[0]));
        }
        return ends.into_iter().try_for_each(|(internal_key, value)| each(internal_key, value));
    }
    let mut before: Vec<u8> = Vec::new();
    while first.valid() {
        let (internal_key, value) = first.entry();
        // Two orders, because all entries of an ingested file get one sequence number, so no key
        // may occur twice in it.
        let in_order = match (before.is_empty(), table.global_seqno()) {
            (true, _) => true,
            (false, None) => comparator.compare_internal(&before, internal_key).is_lt(),
            (false, Some(_)) => {
                let keys = [&before[..], internal_key].map(user_key);
                comparator.compare_user(keys[0], keys[1]).is_lt()
            }
        };
        if !in_order {
            return Err(out_of_order(internal_key, &before));
        }
        each(internal_key, value)?;
        before.clear();
        before.extend_from_slice(internal_key);
        if !first.advance()? {
            first.arrive().await?;
        }
    }
    Ok(())
}

/// Returns an error for a key that is shorter than the comparator's timestamps.
///
/// # Errors
/// `Corruption`: it is.
pub(crate) fn check_length(comparator: &Comparator, user_key: &[u8]) -> Result<()> {
    let bytes = comparator.timestamp_size();
    if user_key.len() >= bytes {
        return Ok(());
    }
    let text = format!("key {} is shorter than a timestamp, which has {bytes} bytes", Shown(user_key));
    Err(Error::new(ErrorKind::Corruption, text))
}

/// Returns true if an entry is, or has, a value in a blob file, which is invalid in another
/// database.
///
/// # Errors
/// `Corruption`: its columns cannot be parsed.
pub(crate) fn is_in_blob_file(kind: ValueType, value: &[u8]) -> Result<bool> {
    match kind {
        ValueType::BlobIndex => Ok(true),
        ValueType::WideColumnEntity => wide_column::has_blobs(value)
            .map_err(|c| Error::new(ErrorKind::Corruption, format!("columns of an entry: {c}"))),
        _ => Ok(false),
    }
}

fn out_of_order(internal_key: &[u8], before: &[u8]) -> Error {
    let [key, before] = [internal_key, before].map(|key| Shown(user_key(key)));
    let text = format!("key {key} follows {before}: the file is not sorted");
    Error::new(ErrorKind::Corruption, text)
}
