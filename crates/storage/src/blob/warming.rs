//! Insertion of blob values into the blob cache as they are written (`prepopulate_blob_cache`), so
//! that the first read of a new file hits.
//!
//! Invariant: a file number is used once, so values of a failed job are never looked up, and are
//! evicted like others.

use super::BlobFiles;
use crate::block::CachedBlock;
use karst_base::stats::Ticker;
use karst_format::ids::FileNumber;
use karst_format::options::choice::PrepopulateBlobCache;
use karst_mem::{CacheKey, Priority};
use std::sync::Arc;

/// Inserts the values of a flush into the blob cache.
#[derive(Clone, Debug)]
pub struct BlobWarming(Arc<BlobFiles>);

impl BlobWarming {
    /// Returns `None` if the option excludes flushes, or if there is no blob cache.
    pub fn of_flush(files: &Arc<BlobFiles>, option: PrepopulateBlobCache) -> Option<BlobWarming> {
        let warms = option == PrepopulateBlobCache::FlushOnly && files.cache.is_some();
        warms.then(|| BlobWarming(files.clone()))
    }

    /// Inserts an uncompressed value at `offset` of a file.
    pub(crate) fn take(&self, number: FileNumber, offset: u64, value: &[u8]) {
        let (files, stats) = (&self.0, &self.0.shared.stats);
        let Some(cache) = &files.cache else { return };
        let value = CachedBlock::Blob(value.into());
        let charge = value.charge_bytes();
        stats.tick(Ticker::BlobDbCacheAdd);
        stats.record(Ticker::BlobDbCacheBytesWrite, charge as u64);
        drop(cache.insert(CacheKey(files.shared.file_id(number), offset), value, charge, Priority::Bottom));
    }
}
