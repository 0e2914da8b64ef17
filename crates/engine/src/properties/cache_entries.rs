//! `rocksdb.block-cache-entry-stats`: the contents of the block cache, by role.
//!
//! In: the cache, which is walked, and the time. Out: RocksDB's text and map.
//! Compat: the result of a walk is reused for a while, as in RocksDB. Charges of memory outside of
//! the cache count as in RocksDB, in entries of 256 KiB. The top level of a partitioned filter
//! counts as an index block, and the cache holds no dictionary blocks.

use karst_base::sync::Mutex;
use karst_mem::{BlockCache, ChargeKind};
use karst_storage::block::CachedBlock;
use karst_storage::budget;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// RocksDB's roles of entries, with their names in texts and in maps.
const ROLES: [(&str, &str); 14] = [
    ("DataBlock", "data-block"),
    ("FilterBlock", "filter-block"),
    ("FilterMetaBlock", "filter-meta-block"),
    ("DeprecatedFilterBlock", "deprecated-filter-block"),
    ("IndexBlock", "index-block"),
    ("OtherBlock", "other-block"),
    ("WriteBuffer", "write-buffer"),
    ("CompressionDictionaryBuildingBuffer", "compression-dictionary-building-buffer"),
    ("FilterConstruction", "filter-construction"),
    ("BlockBasedTableReader", "block-based-table-reader"),
    ("FileMetadata", "file-metadata"),
    ("BlobValue", "blob-value"),
    ("BlobCache", "blob-cache"),
    ("Misc", "misc"),
];
const DATA: usize = 0;
const FILTER: usize = 1;
const INDEX: usize = 4;
const WRITE_BUFFER: usize = 6;
const TABLE_READER: usize = 9;
const BLOB_VALUE: usize = 11;
const MISC: usize = 13;

/// Bytes of memory outside of the cache that RocksDB counts as one entry.
const CHARGED_ENTRY_BYTES: usize = 256 << 10;

/// Maximum age of the result that a caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Current, or a moment old.
    Now,
    /// Cheap to get: `rocksdb.fast-block-cache-entry-stats`.
    Fast,
}

impl Asks {
    /// Returns the time after which the cache is walked again, if a walk takes `took`.
    fn patience(self, took: Duration) -> Duration {
        match self {
            Asks::Now => Duration::from_secs(10).max(took.saturating_mul(10)),
            Asks::Fast => Duration::from_secs(180).max(took.saturating_mul(500)),
        }
    }
}

/// The last walk. Lock: its own, held during a walk, so that concurrent callers wait for it and
/// share its result.
#[derive(Debug, Default)]
pub(crate) struct CacheEntries(Mutex<Option<Walk>>);

#[derive(Clone, Debug)]
struct Walk {
    id: String,
    capacity_bytes: usize,
    usage_bytes: usize,
    slots: usize,
    entries: usize,
    count: [usize; ROLES.len()],
    bytes: [usize; ROLES.len()],
    /// Number of walks, including this one.
    walks: u64,
    took: Duration,
    ended_at: Duration,
}

impl CacheEntries {
    /// Returns the last walk, or a new one if it is too old for `asks`. `now` returns the time
    /// since a fixed point.
    fn walk(&self, cache: &Arc<BlockCache<CachedBlock>>, asks: Asks, now: impl Fn() -> Duration) -> Walk {
        let mut last = self.0.lock();
        let begun_at = now();
        let is_new = |walk: &&Walk| begun_at.saturating_sub(walk.ended_at) < asks.patience(walk.took);
        if let Some(walk) = last.as_ref().filter(is_new) {
            return walk.clone();
        }
        let (mut count, mut bytes) = ([0; ROLES.len()], [0; ROLES.len()]);
        cache.for_each(|block, charge| {
            let role = match block {
                CachedBlock::Data(_) => DATA,
                CachedBlock::Index(_) => INDEX,
                CachedBlock::Filter(_) => FILTER,
                CachedBlock::Blob(_) => BLOB_VALUE,
            };
            count[role] += 1;
            bytes[role] += charge;
        });
        let charged = [
            (WRITE_BUFFER, budget::MEMTABLES),
            (TABLE_READER, budget::TABLES),
            (MISC, budget::READS),
            (MISC, budget::JOBS),
            (MISC, ChargeKind(0)),
        ];
        for (role, kind) in charged {
            let charged = cache.charged_bytes(kind);
            count[role] += charged.div_ceil(CHARGED_ENTRY_BYTES);
            bytes[role] += charged;
        }
        let ended_at = now();
        let walk = Walk {
            id: format!("BlockCache@{:p}", Arc::as_ptr(cache)),
            capacity_bytes: cache.capacity_bytes(),
            usage_bytes: cache.usage_bytes(),
            slots: cache.slot_count(),
            entries: cache.entry_count(),
            count,
            bytes,
            walks: last.as_ref().map_or(0, |walk| walk.walks) + 1,
            took: ended_at.saturating_sub(begun_at),
            ended_at,
        };
        *last = Some(walk.clone());
        walk
    }

    /// Returns the property as text.
    pub(super) fn text(
        &self,
        cache: &Arc<BlockCache<CachedBlock>>,
        asks: Asks,
        now: impl Fn() -> Duration,
    ) -> String {
        let walk = self.walk(cache, asks, &now);
        let mut text = format!(
            "Block cache {} capacity: {} usage: {} table_size: {} occupancy: {} collections: {} last_copies: 0 last_secs: {} secs_since: {}\n\
             Block cache entry stats(count,size,portion):",
            walk.id,
            human_bytes(walk.capacity_bytes),
            human_bytes(walk.usage_bytes),
            walk.slots,
            walk.entries,
            walk.walks,
            walk.took.as_micros() as f64 / 1e6,
            now().saturating_sub(walk.ended_at).as_secs()
        );
        for (role, (name, _)) in ROLES.iter().enumerate().filter(|(role, _)| walk.count[*role] > 0) {
            let (count, bytes) = (walk.count[role], human_bytes(walk.bytes[role]));
            // No error is possible when writing to a string.
            let _ = write!(text, " {name}({count},{bytes},{:.6}%)", walk.percent(role));
        }
        text + "\n"
    }

    /// Returns the property as a map.
    pub(super) fn map(
        &self,
        cache: &Arc<BlockCache<CachedBlock>>,
        asks: Asks,
        now: impl Fn() -> Duration,
    ) -> BTreeMap<String, String> {
        let walk = self.walk(cache, asks, &now);
        let mut map = BTreeMap::from([
            ("id".to_owned(), walk.id.clone()),
            ("capacity".to_owned(), walk.capacity_bytes.to_string()),
            ("secs_for_last_collection".to_owned(), format!("{:.6}", walk.took.as_secs_f64())),
            (
                "secs_since_last_collection".to_owned(),
                now().saturating_sub(walk.ended_at).as_secs().to_string(),
            ),
        ]);
        for (role, (_, name)) in ROLES.iter().enumerate() {
            map.insert(format!("count.{name}"), walk.count[role].to_string());
            map.insert(format!("bytes.{name}"), walk.bytes[role].to_string());
            map.insert(format!("percent.{name}"), format!("{:.6}", walk.percent(role)));
        }
        map
    }
}

impl Walk {
    fn percent(&self, role: usize) -> f64 {
        100.0 * self.bytes[role] as f64 / self.capacity_bytes.max(1) as f64
    }
}

fn human_bytes(bytes: usize) -> String {
    let (mut size, mut unit) = (bytes as f64 / 1024.0, 0);
    while size >= 1024.0 && unit < 3 {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    format!("{size:.2} {}", ["KB", "MB", "GB", "TB"][unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_mem::{CacheKey, CacheOptions, Priority};
    use std::cell::Cell;

    fn blob(cache: &BlockCache<CachedBlock>, number: u64) {
        let value = CachedBlock::Blob(vec![0; 1000].into_boxed_slice());
        drop(cache.insert(CacheKey(1, number), value, 1000, Priority::Low));
    }

    #[test]
    fn a_walk_serves_those_who_ask_soon_behind_it() {
        let options = CacheOptions { capacity_bytes: 1 << 20, ..CacheOptions::default() };
        let (cache, entries) = (Arc::new(BlockCache::new(options)), CacheEntries::default());
        let clock = Cell::new(Duration::ZERO);
        // A walk takes two seconds, because the clock advances by two each time it is read.
        let now = || clock.replace(clock.get() + Duration::from_secs(2));
        let blobs = |asks| entries.map(&cache, asks, now)["count.blob-value"].clone();
        blob(&cache, 1);
        assert_eq!(blobs(Asks::Fast), "1");
        blob(&cache, 2);
        assert_eq!(blobs(Asks::Now), "1", "it is new enough");
        clock.set(Duration::from_secs(25));
        assert_eq!(blobs(Asks::Fast), "1");
        assert_eq!(blobs(Asks::Now), "2", "ten times as long as it took, and more");
        blob(&cache, 3);
        clock.set(Duration::from_secs(900));
        assert_eq!(blobs(Asks::Fast), "2", "not five hundred times");
        clock.set(Duration::from_secs(1100));
        assert_eq!(blobs(Asks::Fast), "3");
        let text = entries.text(&cache, Asks::Fast, now);
        assert!(text.contains(" collections: 3 last_copies: 0 last_secs: 2 secs_since: "), "{text}");
    }

    #[test]
    fn all_roles_have_names_and_charges_count() {
        let options = CacheOptions { capacity_bytes: 1 << 20, ..CacheOptions::default() };
        let (cache, entries) = (Arc::new(BlockCache::new(options)), CacheEntries::default());
        let _memtables = cache.reserve(budget::MEMTABLES, 300 << 10);
        blob(&cache, 1);
        let map = entries.map(&cache, Asks::Now, || Duration::ZERO);
        assert_eq!(map.len(), 4 + 3 * 14);
        assert_eq!((&map["count.write-buffer"][..], &map["bytes.write-buffer"][..]), ("2", "307200"));
        assert_eq!(map["percent.write-buffer"], "29.296875");
        let bytes: usize =
            ROLES.iter().map(|(_, name)| map[&format!("bytes.{name}")].parse::<usize>().unwrap()).sum();
        assert_eq!(bytes, cache.usage_bytes());
        let text = entries.text(&cache, Asks::Now, || Duration::ZERO);
        assert!(text.contains(" capacity: 1.00 MB usage: "), "{text}");
        assert!(
            text.contains("(count,size,portion): WriteBuffer(2,300.00 KB,29.296875%) BlobValue(1,"),
            "{text}"
        );
    }
}
