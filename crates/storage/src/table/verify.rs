//! Verification of stored files by their checksums, without using cached data.
//!
//! In: a file as recorded in the MANIFEST. Out: success, or an error that names file and offset.
//! Indexes are read first, then everything else in file order, each block once: a few reads of 512
//! KiB at the same time (`spans.rs`), or a single read for a larger block. Besides these reads,
//! memory holds the handles of the table's blocks, 16 bytes each, or the current blob record. The
//! block cache and open tables are neither used nor filled.

use crate::block::BlockKind;
use crate::file_checksum::RunningChecksum;
use crate::open_files::Shared;
use crate::spans::{SPAN_BYTES, read_spans, spans};
use crate::table::add_handles_in;
use crate::table::cache::TableCache;
use crate::table::decode::{Layout, Storage};
use crate::table::open::{Head, MIN_TAIL_BYTES, Opening, open_file};
use karst_base::error::{Error, Result};
use karst_base::stats::Ticker;
use karst_format::Corruption;
use karst_format::handle::{BLOCK_TRAILER_BYTES, BlockHandle};
use karst_format::metaindex::FilterKind;
use karst_format::properties::TableProperties;
use karst_format::version_edit::FileChecksum;
use karst_io::RandomAccessFile;
use karst_lsm::FileMetadata;
use std::sync::Arc;

/// Maximum gap in bytes (padding or another block) that is read together with the blocks around it.
const GAP_BYTES: u64 = 4 << 10;

/// Verifies footer, metaindex and properties of a table, and the checksum of every block that the
/// metaindex and the indexes name.
///
/// # Errors
/// The file cannot be read, or a part of it is damaged.
pub async fn table(tables: &Arc<TableCache>, file: &FileMetadata) -> Result<()> {
    let opening = Opening { tables, meta: file, level: 0, file: open_table(tables, file).await? };
    let (mut tail, head) = opening.head(MIN_TAIL_BYTES).await?;
    opening.bring(&mut tail, &[head.parts.properties]).await?;
    let properties = opening.properties(&tail, &head)?;
    let layout =
        Layout::new(&properties, file.largest_seq).map_err(|c| opening.corrupt(head.parts.properties, c))?;
    drop(tail);

    let blocks = Blocks { opening: &opening, storage: head.storage, layout };
    let Head { metaindex, parts, .. } = head;
    // The filter type is taken from the metaindex, because a filter of an unknown policy has
    // partitions too.
    let filter = match metaindex.filter() {
        Some((FilterKind::Partitioned, _, handle)) => Some(handle),
        _ => None,
    };
    let mut named = blocks.named_by(vec![parts.index], BlockKind::Index).await?;
    if layout.index_is_partitioned {
        named = blocks.named_by(named, BlockKind::IndexPartition).await?;
    }
    if let Some(filter) = filter {
        named.append(&mut blocks.named_by(vec![filter], BlockKind::FilterIndex).await?);
    }
    // Verified already. The properties block's checksum may date from before a sequence number was
    // written into it at ingestion.
    let seen = [Some(parts.properties), Some(parts.index), filter];
    named.extend(metaindex.iter().map(|(_, handle)| handle).filter(|handle| !seen.contains(&Some(*handle))));
    let verify = |handle, bytes: &[u8]| head.storage.verify(&tables.shared, handle, bytes).map(drop);
    blocks.each(named, verify).await
}

/// Returns the properties of a table, even if its comparator or unique id differs from that
/// expected by `tables`: the path to them is verified, and nothing else is read.
///
/// # Errors
/// The file cannot be read, its end is damaged, or its format is unknown.
pub async fn properties(tables: &Arc<TableCache>, file: &FileMetadata) -> Result<TableProperties> {
    let opening = Opening { tables, meta: file, level: 0, file: open_table(tables, file).await? };
    let (mut tail, head) = opening.head(MIN_TAIL_BYTES).await?;
    opening.bring(&mut tail, &[head.parts.properties]).await?;
    opening.properties_of_any(&tail, &head)
}

/// Verifies the checksum of a whole file, computed with the function of this name.
///
/// # Errors
/// The file cannot be read or is damaged. The function is unknown.
pub async fn whole_file(
    shared: &Shared,
    file: &Arc<dyn RandomAccessFile>,
    (function, value): (&[u8], &[u8]),
) -> Result<()> {
    let running = RunningChecksum::by_function(shared.file_checksums.as_ref(), file.path(), function)?;
    let found = file_checksum(shared, file, running).await?;
    match found.as_ref().is_some_and(|found| *found.value == *value) {
        true => Ok(()),
        false => {
            let found = found.map(|found| found.value).unwrap_or_default();
            let text =
                format_args!("checksum of the whole file: {found:02x?}, the MANIFEST says {value:02x?}");
            Err(Error::corruption_at(file.path(), 0, text))
        }
    }
}

/// Computes the checksum of a whole file. `None` as in [`RunningChecksum::finish`].
///
/// # Errors
/// The file cannot be read.
pub async fn file_checksum(
    shared: &Shared,
    file: &Arc<dyn RandomAccessFile>,
    mut running: RunningChecksum,
) -> Result<Option<FileChecksum>> {
    read_spans(shared, file, spans(0, file.size()), |_, bytes| {
        running.update(bytes);
        Ok(())
    })
    .await?;
    Ok(running.finish())
}

/// Opens the file of a table without opening the table.
pub async fn open_table(tables: &Arc<TableCache>, file: &FileMetadata) -> Result<Arc<dyn RandomAccessFile>> {
    let opened = open_file(tables, &tables.shared.table_path(file.number, file.path_id)?).await?;
    tables.shared.stats.tick(Ticker::NoFileOpens);
    Ok(opened)
}

/// The blocks of a table being verified.
struct Blocks<'a> {
    opening: &'a Opening<'a>,
    storage: Storage,
    layout: Layout,
}

impl Blocks<'_> {
    /// Returns the handles in these index blocks.
    async fn named_by(&self, indexes: Vec<BlockHandle>, kind: BlockKind) -> Result<Vec<BlockHandle>> {
        let (opening, mut named) = (self.opening, Vec::new());
        let (shared, size) = (&opening.tables.shared, opening.file.size());
        let collect = |handle, bytes: &[u8]| {
            let contents = self.storage.unpack(shared, handle, bytes, None, true, Vec::with_capacity)?;
            add_handles_in(&self.layout.parse(kind, contents)?, size, &mut named)
        };
        self.each(indexes, collect).await?;
        Ok(named)
    }

    /// Reads blocks in file order and passes each to `visit`, with its trailer.
    async fn each(
        &self,
        mut handles: Vec<BlockHandle>,
        mut visit: impl FnMut(BlockHandle, &[u8]) -> Result<(), Corruption>,
    ) -> Result<()> {
        let opening = self.opening;
        handles.iter().try_for_each(|handle| opening.check(*handle))?;
        handles.sort_unstable_by_key(|handle| (handle.offset, handle.size));
        handles.dedup();
        // Overlaps are refused because a damaged index could make one place be read any number of
        // times.
        if let Some(pair) = handles.windows(2).find(|pair| pair[1].offset < end(&pair[0])) {
            let text = "a block that begins inside the one before it";
            return Err(Error::corruption_at(opening.path(), pair[1].offset, text));
        }
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for handle in &handles {
            match spans.last_mut() {
                Some((start, stop))
                    if end(handle) - *start <= SPAN_BYTES && handle.offset - *stop <= GAP_BYTES =>
                {
                    *stop = end(handle);
                }
                _ => spans.push((handle.offset, end(handle))),
            }
        }
        let mut left = handles.iter().peekable();
        read_spans(&opening.tables.shared, &opening.file, spans, |start, bytes| {
            let stop = start + bytes.len() as u64;
            while let Some(handle) = left.next_if(|handle| end(handle) <= stop) {
                let block = &bytes[(handle.offset - start) as usize..(end(handle) - start) as usize];
                visit(*handle, block).map_err(|c| opening.corrupt(*handle, c))?;
            }
            Ok(())
        })
        .await
    }
}

/// Returns the end offset of a block that lies inside its file, trailer included.
fn end(handle: &BlockHandle) -> u64 {
    handle.offset + handle.size + BLOCK_TRAILER_BYTES as u64
}
