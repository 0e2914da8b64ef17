//! Approximate sizes of key ranges, from the sizes of files and their indexes; no entry is read.
//!
//! In: ranges of user keys, a superversion. Out: bytes per range. If a file lies partly in a range,
//! its index gives the offsets at which the range begins and ends; indexes that are not in memory
//! are read concurrently, those of `TOGETHER` files at a time.

use super::View;
use karst_base::error::Result;
use karst_base::options::ReadOptions;
use karst_lsm::{FileMetadata, Version};
use karst_storage::blob::file_bytes;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::TableCache;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::drive::{self, Step};
use karst_storage::table::needs::{Needs, Stop};
use std::ops::Bound;
use std::sync::Arc;

/// Options of [`Db::approximate_sizes`](crate::Db::approximate_sizes). RocksDB's names and
/// defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeApproximationOptions {
    /// Count memtables. Off by default.
    pub include_memtables: bool,
    /// Count table files. On by default.
    pub include_files: bool,
    /// Count blob files, in the proportion in which the range covers the table files. Off by
    /// default.
    pub include_blob_files: bool,
    /// If above 0: files that lie partly in a range count half, without reading their indexes, as
    /// long as together they are no larger than this share of the files that lie wholly in it.
    /// Below 0 by default.
    pub files_size_error_margin: f64,
}

impl Default for SizeApproximationOptions {
    fn default() -> Self {
        Self {
            include_memtables: false,
            include_files: true,
            include_blob_files: false,
            files_size_error_margin: -1.0,
        }
    }
}

/// A range of user keys: the first is included, the second excluded.
pub type KeyRange<'a> = (&'a [u8], &'a [u8]);

/// A file that lies partly in a range.
struct Partial<'a> {
    range: usize,
    level: u32,
    file: &'a Arc<FileMetadata>,
    /// Internal keys at which the range begins and ends in the file, or None if it covers that end.
    edges: [Option<Vec<u8>>; 2],
    bytes: Option<u64>,
}

impl Partial<'_> {
    fn measure(&self, ctx: &ReadCtx<'_>, needs: &mut Needs) -> Result<u64, Stop> {
        let table = needs.table(ctx, self.file, self.level)?;
        let (data_bytes, file_bytes) = (table.properties().data_size, self.file.size_bytes);
        if data_bytes == 0 {
            // The file has range tombstones only.
            return Ok(file_bytes);
        }
        let mut at = |edge: &Option<Vec<u8>>, open: u64| match edge {
            Some(key) => table.offset_of(ctx, needs, key),
            None => Ok(open),
        };
        // Both ends are requested before either fails, so that their index blocks are read
        // concurrently.
        let (from, to) = (at(&self.edges[0], 0), at(&self.edges[1], data_bytes));
        let (from, to) = (from?, to?.min(data_bytes));
        // Metadata counts in proportion to the data.
        let share = u128::from(to.saturating_sub(from)) * u128::from(file_bytes);
        Ok((share / u128::from(data_bytes)) as u64)
    }
}

/// Number of files measured in one batch. Bounded because the blocks of a batch are held until its
/// last file is measured.
const TOGETHER: usize = 32;

struct Measuring<'a, 'b> {
    partial: &'b mut [Partial<'a>],
    needs: Needs,
}

impl Step for Measuring<'_, '_> {
    type Out = ();

    fn step(&mut self, ctx: &ReadCtx<'_>) -> Result<(), Stop> {
        let mut waits = false;
        for partial in self.partial.iter_mut().filter(|partial| partial.bytes.is_none()) {
            match partial.measure(ctx, &mut self.needs) {
                Ok(bytes) => partial.bytes = Some(bytes),
                Err(Stop::Need) => waits = true,
                Err(error) => return Err(error),
            }
        }
        if waits { Err(Stop::Need) } else { Ok(()) }
    }

    fn needs(&mut self) -> &mut Needs {
        &mut self.needs
    }
}

/// Returns the bytes of `superversion` in each of `ranges`.
pub(crate) async fn approximate_sizes(
    tables: &Arc<TableCache>,
    superversion: &SuperVersion,
    options: &SizeApproximationOptions,
    ranges: &[KeyRange<'_>],
) -> Result<Vec<u64>> {
    let read_options = ReadOptions::new();
    let view = View::new(tables, superversion, &read_options);
    let comparator = view.version().comparator();
    // Bytes of table files, and of memtables, per range.
    let mut sizes = vec![0_u64; ranges.len()];
    let mut in_memory = vec![0_u64; ranges.len()];
    let mut partial = Vec::new();
    for (range, (start, end)) in ranges.iter().enumerate() {
        if !comparator.compare_user(start, end).is_lt() {
            continue;
        }
        if options.include_memtables {
            let of_each = superversion.memtables().map(|memtable| memtable.estimate_between(start, end).1);
            in_memory[range] = of_each.fold(0, u64::saturating_add);
        }
        if !options.include_files && !options.include_blob_files {
            continue;
        }
        let first = partial.len();
        let (mut whole_bytes, mut partial_bytes) = (0_u64, 0_u64);
        for (level, file) in files_in(&view, (start, end)) {
            let begins_before = comparator.compare_user(file.smallest_user_key(), start).is_lt();
            let ends_behind = comparator.compare_user(file.largest_user_key(), end).is_ge();
            let edge = |cut: bool, at: &[u8]| cut.then(|| comparator.before_all_of(at));
            let edges = [edge(begins_before, start), edge(ends_behind, end)];
            if edges.iter().all(Option::is_none) {
                whole_bytes = whole_bytes.saturating_add(file.size_bytes);
            } else {
                partial_bytes = partial_bytes.saturating_add(file.size_bytes);
                partial.push(Partial { range, level, file, edges, bytes: None });
            }
        }
        sizes[range] = whole_bytes;
        if (partial_bytes as f64) < whole_bytes as f64 * options.files_size_error_margin {
            partial.truncate(first);
            sizes[range] = whole_bytes.saturating_add(partial_bytes / 2);
        }
    }
    for some in partial.chunks_mut(TOGETHER) {
        let mut needs = Needs::new();
        // Hits are held so that a block needed again after the next arrival is counted once.
        needs.hold_hits(true);
        let mut measuring = Measuring { partial: some, needs };
        drive::run(view.ctx, &mut measuring).await?;
    }
    for partial in partial {
        let bytes = partial.bytes.expect("every file was measured");
        sizes[partial.range] = sizes[partial.range].saturating_add(bytes);
    }
    let blob_share = if options.include_blob_files { blobs_per_table_byte(view.version()) } else { 0.0 };
    for (size, in_memory) in sizes.iter_mut().zip(in_memory) {
        let blobs = (*size as f64 * blob_share) as u64;
        let tables = if options.include_files { *size } else { 0 };
        *size = tables.saturating_add(in_memory).saturating_add(blobs);
    }
    Ok(sizes)
}

/// Returns the bytes of blob files per byte of table files; 0 without table files.
fn blobs_per_table_byte(version: &Version) -> f64 {
    let table_bytes: u64 = version.all_files().map(|(_, file)| file.size_bytes).sum();
    let blob_bytes: u64 = version.blob_files().values().map(|blob| file_bytes(blob)).sum();
    if table_bytes == 0 { 0.0 } else { blob_bytes as f64 / table_bytes as f64 }
}

/// Returns the files that overlap a range, with their levels.
fn files_in<'a>(
    view: &View<'a>,
    (start, end): KeyRange<'a>,
) -> impl Iterator<Item = (u32, &'a Arc<FileMetadata>)> + use<'a> {
    let version = view.version();
    let (lower, upper) = (Bound::Included(start), Bound::Excluded(end));
    version.levels().iter().flat_map(move |level| {
        let comparator = version.comparator();
        let indexes = level.overlapping(comparator, lower, upper);
        let within = move |index: &usize| level.overlaps(comparator, *index, lower, upper);
        indexes.filter(within).map(move |index| (u32::from(level.level().0), &level.files()[index]))
    })
}
