//! Values that go into the blob cache as they are written (`prepopulate_blob_cache`), so that the
//! first read of a new file finds them there.
//!
//! Invariant: a file number is used once, so what a job that failed has put there is asked for by
//! nobody, and leaves the cache as others do.

use super::BlobFiles;
use crate::block::CachedBlock;
use karst_base::stats::Ticker;
use karst_format::ids::FileNumber;
use karst_format::options::choice::PrepopulateBlobCache;
use karst_mem::{CacheKey, Priority};
use std::sync::Arc;

/// Puts the values of a flush into the blob cache.
#[derive(Clone, Debug)]
pub struct BlobWarming(Arc<BlobFiles>);

impl BlobWarming {
    /// `None` if the option keeps what a flush writes out of the cache, or there is none.
    pub fn of_flush(files: &Arc<BlobFiles>, option: PrepopulateBlobCache) -> Option<BlobWarming> {
        let warms = option == PrepopulateBlobCache::FlushOnly && files.cache.is_some();
        warms.then(|| BlobWarming(files.clone()))
    }

    /// Takes a value, uncompressed, that lies at `offset` of a file.
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
