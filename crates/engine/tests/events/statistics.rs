//! Statistics and the perf context: numbers of events and bytes, and that the counts are
//! consistent.

use karst_engine::perf_context::{self, LevelMetric, PerfLevel, PerfMetric};
use karst_engine::{
    BlockCache, CompactRangeOptions, Db, FlushOptions, HistogramKind, Options, RateLimiter, ReadOptions,
    Statistics, StatsLevel, Ticker, WriteBatch, WriteOptions,
};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

const KEYS: u32 = 2000;

fn key(number: u32) -> String {
    format!("{:02}key{number:05}", number % 50)
}

struct Store {
    db: Db,
    statistics: Arc<Statistics>,
    folder: tempfile::TempDir,
}

fn opened(folder: tempfile::TempDir, more: &str, with: impl FnOnce(Options) -> Options) -> Store {
    let statistics = Arc::new(Statistics::new(StatsLevel::All));
    let all =
        format!("disable_auto_compactions=true;filter_policy=bloomfilter:10:false;block_size=1K;{more}");
    let options = Options::new()
        .set_all(&all)
        .unwrap()
        .statistics(statistics.clone())
        .block_cache(BlockCache::new(64 << 20))
        .db(|db| db.create_if_missing = true);
    let db = Db::open(folder.path(), &with(options)).unwrap();
    Store { db, statistics, folder }
}

fn new(more: &str) -> Store {
    opened(tempfile::tempdir().unwrap(), more, |options| options)
}

impl Store {
    fn fill(&self) {
        for number in 0..KEYS {
            self.db.put(key(number), [number as u8; 100]).unwrap();
        }
        self.db.flush(&FlushOptions::default()).unwrap();
    }

    /// Reopens the directory with an empty cache and all counts zero.
    fn reopened(self, more: &str) -> Store {
        let Store { db, folder, .. } = self;
        db.close().unwrap();
        opened(folder, more, |options| options)
    }

    fn ticker(&self, ticker: Ticker) -> u64 {
        self.statistics.ticker(ticker)
    }

    fn samples(&self, kind: HistogramKind) -> u64 {
        self.statistics.histogram(kind).count()
    }
}

/// Returns the counts that `work` adds to the perf context at `level`.
fn perf(level: PerfLevel, work: impl FnOnce()) -> fn(PerfMetric) -> u64 {
    perf_context::reset();
    perf_context::set_level(level);
    work();
    perf_context::set_level(PerfLevel::Disable);
    perf_context::get
}

fn assert_took(got: &impl Fn(PerfMetric) -> u64, times: &[PerfMetric]) {
    times.iter().for_each(|time| assert!(got(*time) > 0, "{}", time.name()));
}

#[test]
fn moves_of_iterators_and_what_they_came_to() {
    let store = new("");
    store.fill();
    let got = perf(PerfLevel::EnableTime, || {
        let mut iter = store.db.iter(&ReadOptions::new()).unwrap();
        iter.seek(key(0)).unwrap();
        iter.next().unwrap();
        iter.next().unwrap();
        iter.prev().unwrap();
        iter.seek_to_first().unwrap();
        iter.seek("zzz").unwrap();
        assert!(!iter.valid());
        iter.seek_to_last().unwrap();
        iter.next().unwrap();
        assert!(!iter.valid());
        assert_eq!(store.ticker(Ticker::NoIteratorDeleted), 0);
    });
    let counts = [
        (Ticker::NumberDbSeek, 4),
        (Ticker::NumberDbSeekFound, 3),
        (Ticker::NumberDbNext, 3),
        (Ticker::NumberDbNextFound, 2),
        (Ticker::NumberDbPrev, 1),
        (Ticker::NumberDbPrevFound, 1),
        (Ticker::NoIteratorCreated, 1),
        (Ticker::NoIteratorDeleted, 1),
        (Ticker::IterBytesRead, 6 * (key(0).len() as u64 + 100)),
    ];
    for (ticker, expected) in counts {
        assert_eq!(store.ticker(ticker), expected, "{}", ticker.name());
    }
    assert_eq!(
        [PerfMetric::IterSeekCount, PerfMetric::IterNextCount, PerfMetric::IterPrevCount].map(&got),
        [4, 3, 1]
    );
    assert_eq!(got(PerfMetric::IterReadBytes), store.ticker(Ticker::IterBytesRead));
    assert!(got(PerfMetric::SeekInternalSeekTime) > 0 && got(PerfMetric::FindNextUserEntryTime) > 0);
}

#[test]
fn what_an_iterator_passes_by() {
    let store = new("");
    store.fill();
    (0..10).for_each(|number| store.db.delete(key(number * 50)).unwrap());
    let got = perf(PerfLevel::EnableCount, || {
        let mut iter = store.db.iter(&ReadOptions::new()).unwrap();
        iter.seek(key(0)).unwrap();
        assert_eq!(iter.key(), key(500).as_bytes());
    });
    assert!(store.ticker(Ticker::NumberIterSkip) >= 10);
    assert_eq!(store.ticker(Ticker::NumberIterSkip), got(PerfMetric::InternalKeySkippedCount));
    assert_eq!(got(PerfMetric::InternalDeleteSkippedCount), 10);
    assert_eq!(got(PerfMetric::SeekOnMemtableCount), 1);
    assert_eq!(got(PerfMetric::SeekChildSeekCount), 2, "the memtable and a file of L0");
    assert!((9..=10).contains(&got(PerfMetric::NextOnMemtableCount)));
}

#[test]
fn blocks_that_were_read_and_blocks_that_were_there() {
    let partitioned = "index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=512;cache_index_and_filter_blocks=true";
    let store = new(partitioned);
    store.fill();
    store.db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>).unwrap();
    let store = store.reopened(partitioned);
    let read = || {
        perf(PerfLevel::EnableTime, || {
            perf_context::set_by_level(true);
            (0..KEYS).for_each(|number| assert!(store.db.get(key(number)).unwrap().is_some()));
        })
    };
    let added_at_open = store.ticker(Ticker::BlockCacheAdd);
    let got = read();
    let [data, index, filter, metadata] = [
        PerfMetric::DataBlockReadByte,
        PerfMetric::IndexBlockReadByte,
        PerfMetric::FilterBlockReadByte,
        PerfMetric::MetadataBlockReadByte,
    ]
    .map(&got);
    assert!(data > 0 && index > 0 && filter > 0, "{data} {index} {filter}");
    assert_eq!(got(PerfMetric::BlockReadByte), data + index + filter + metadata);
    assert_eq!(got(PerfMetric::BlockReadCount), store.ticker(Ticker::BlockCacheAdd) - added_at_open);
    assert!(store.ticker(Ticker::BlockChecksumComputeCount) >= got(PerfMetric::BlockReadCount));
    let decompressed = got(PerfMetric::BlockDecompressCount);
    assert!(decompressed > 100, "{decompressed}");
    assert!(store.ticker(Ticker::NumberBlockDecompressed) >= decompressed);
    assert_eq!(
        store.samples(HistogramKind::DecompressionTimesNanos),
        store.ticker(Ticker::NumberBlockDecompressed)
    );
    assert!(store.ticker(Ticker::BytesDecompressedTo) > store.ticker(Ticker::BytesDecompressedFrom));
    assert_took(
        &got,
        &[
            PerfMetric::BlockReadTime,
            PerfMetric::BlockChecksumTime,
            PerfMetric::BlockDecompressTime,
            PerfMetric::GetFromOutputFilesTime,
        ],
    );
    assert!(store.samples(HistogramKind::PollWaitMicros) > 0);
    // All entries are on the last level.
    assert_eq!(store.ticker(Ticker::NonLastLevelReadBytes), 0);
    assert!(store.ticker(Ticker::LastLevelReadBytes) >= data);

    let got = read();
    assert_eq!((got(PerfMetric::BlockReadCount), got(PerfMetric::BlockReadTime)), (0, 0));
    let hits = got(PerfMetric::BlockCacheHitCount);
    let [index, filter] =
        [PerfMetric::BlockCacheIndexHitCount, PerfMetric::BlockCacheFilterHitCount].map(&got);
    assert_eq!(hits, u64::from(KEYS) + index + filter, "a block of data each");
    assert!(index >= u64::from(KEYS) && filter >= u64::from(KEYS), "{index} {filter}");
    assert!(
        got(PerfMetric::BlockCacheReadByte)
            > got(PerfMetric::BlockCacheIndexReadByte) + got(PerfMetric::BlockCacheFilterReadByte)
    );
    assert_eq!(got(PerfMetric::BloomSstHitCount), u64::from(KEYS));
    assert_eq!(perf_context::get_at_level(LevelMetric::BlockCacheHitCount, 6), hits);
    assert_eq!(perf_context::get_at_level(LevelMetric::BlockCacheMissCount, 6), 0);
    perf_context::set_by_level(false);
}

#[test]
fn filters_that_iterators_asked() {
    let store = new("prefix_extractor=fixed:2");
    for number in (0..KEYS).filter(|number| number % 2 == 0) {
        store.db.put(key(number), b"value").unwrap();
    }
    store.db.flush(&FlushOptions::default()).unwrap();
    let got = perf(PerfLevel::EnableCount, || {
        for number in 0..50 {
            let mut iter = store.db.iter(&ReadOptions::new()).unwrap();
            iter.seek(key(number)).unwrap();
        }
    });
    let [filtered, matched] =
        [Ticker::NonLastLevelSeekFiltered, Ticker::NonLastLevelSeekFilterMatch].map(|t| store.ticker(t));
    assert_eq!(filtered + matched, 50);
    assert!(filtered > 20 && matched >= 25, "{filtered} {matched}");
    assert_eq!([PerfMetric::BloomSstMissCount, PerfMetric::BloomSstHitCount].map(got), [filtered, matched]);
}

#[test]
fn where_the_time_of_writes_goes() {
    let store = new("");
    let parts = [
        PerfMetric::WriteWalTime,
        PerfMetric::WriteMemtableTime,
        PerfMetric::WriteDelayTime,
        PerfMetric::WriteThreadWaitNanos,
        PerfMetric::WritePreAndPostProcessTime,
    ];
    let write = || {
        for number in 0..200 {
            let mut batch = WriteBatch::new();
            (0..20).for_each(|more| batch.put(key(number * 20 + more), b"value").unwrap());
            store.db.write(&WriteOptions::new(), &batch).unwrap();
        }
    };
    let begun = Instant::now();
    let got = perf(PerfLevel::EnableTime, write);
    let wall = begun.elapsed().as_nanos() as u64;
    let times = parts.map(got);
    assert!(times[0] > 0 && times[1] > 0 && times[4] > 0, "{times:?}");
    assert_eq!((times[2], times[3]), (0, 0), "nobody held it up: {times:?}");
    assert!(times.iter().sum::<u64>() <= wall, "{times:?} of {wall}");
    let times = parts.map(perf(PerfLevel::EnableWait, write));
    assert!(times[0] == 0 && times[1] > 0 && times[4] == 0, "only what is waited for: {times:?}");
    assert_eq!(parts.map(perf(PerfLevel::EnableCount, write)), [0; 5]);
}

#[test]
fn merges_take_their_time() {
    let store = opened(tempfile::tempdir().unwrap(), "merge_operator=stringappend", |options| options);
    (0..3).for_each(|_| store.db.merge(key(1), b"more").unwrap());
    let got = perf(PerfLevel::EnableTime, || {
        assert_eq!(*store.db.get(key(1)).unwrap().unwrap(), *b"more,more,more");
    });
    assert!(got(PerfMetric::MergeOperatorTimeNanos) > 0);
    assert_eq!(store.ticker(Ticker::MergeOperationTotalTime), got(PerfMetric::MergeOperatorTimeNanos));
    assert!(got(PerfMetric::GetFromMemtableTime) > 0);
}

#[test]
fn what_a_flush_writes_and_what_it_leaves() {
    let store = new("");
    for _ in 0..2 {
        (0..KEYS).for_each(|number| store.db.put(key(number), [7; 100]).unwrap());
    }
    store.db.flush(&FlushOptions::default()).unwrap();
    let payload = u64::from(KEYS) * 2 * (key(0).len() as u64 + 8 + 100);
    assert_eq!(store.ticker(Ticker::MemtablePayloadBytesAtFlush), payload);
    assert_eq!(store.ticker(Ticker::MemtableGarbageBytesAtFlush), payload / 2);
    assert_eq!(store.ticker(Ticker::FlushReasonWriteBufferFull), 0, "it was asked for");
    for kind in [
        HistogramKind::SstWriteMicros,
        HistogramKind::FileWriteFlushMicros,
        HistogramKind::TableSyncMicros,
        HistogramKind::ManifestFileSyncMicros,
        HistogramKind::FlushMemtableMemoryBytes,
    ] {
        assert!(store.samples(kind) > 0, "{}", kind.name());
    }
    assert_eq!(store.samples(HistogramKind::FileWriteCompactionMicros), 0);
    let ahead = store.ticker(Ticker::PrefetchBytes);
    store.fill();
    store.db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>).unwrap();
    assert!(store.samples(HistogramKind::FileWriteCompactionMicros) > 0);
    assert!(store.samples(HistogramKind::CompactionPrefetchBytes) > 0);
    assert_eq!(store.ticker(Ticker::PrefetchBytes), ahead, "no scan of a user's");
}

#[test]
fn what_scans_read_ahead_and_used() {
    let store = new("compression=kNoCompression");
    store.fill();
    let store = store.reopened("");
    let mut iter = store.db.iter(&ReadOptions::new()).unwrap();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        iter.next().unwrap();
    }
    let [ahead, used, hits] = [Ticker::PrefetchBytes, Ticker::PrefetchBytesUseful, Ticker::PrefetchHits]
        .map(|ticker| store.ticker(ticker));
    assert!(used > 100_000 && used <= ahead, "{used} of {ahead}");
    assert!(hits > 100, "{hits}");
    assert_eq!(store.ticker(Ticker::LastLevelReadBytes), 0);
    assert!(store.ticker(Ticker::NonLastLevelReadBytes) >= ahead);
    assert!(store.samples(HistogramKind::TableOpenPrefetchTailReadBytes) > 0);
}

#[test]
fn blob_values_that_were_read() {
    let store = new("enable_blob_files=true;min_blob_size=50;blob_compression_type=kLZ4Compression");
    store.fill();
    let got = perf(PerfLevel::EnableTime, || {
        (0..100).for_each(|number| assert!(store.db.get(key(number)).unwrap().is_some()));
    });
    assert_eq!(got(PerfMetric::BlobReadCount), 100);
    assert_took(
        &got,
        &[PerfMetric::BlobReadTime, PerfMetric::BlobChecksumTime, PerfMetric::BlobDecompressTime],
    );
    assert_eq!(store.samples(HistogramKind::BlobDbBlobFileReadMicros), 100);
    assert_eq!(store.samples(HistogramKind::BlobDbDecompressionMicros), 100);
    assert!(store.samples(HistogramKind::BlobDbBlobFileWriteMicros) > 0);
}

#[test]
fn writes_that_the_rate_limiter_held_up() {
    let limiter = RateLimiter::with_periods(200_000, std::time::Duration::from_millis(20), 10);
    let store = opened(tempfile::tempdir().unwrap(), "compression=kNoCompression", |options| {
        options.rate_limiter(limiter)
    });
    (0..500).for_each(|number| store.db.put(key(number), [1; 100]).unwrap());
    store.db.flush(&FlushOptions::default()).unwrap();
    assert!(store.ticker(Ticker::RateLimiterBytesWrite) > 50_000);
    assert!(store.ticker(Ticker::RateLimiterDelayedRequestsWrite) > 0);
    assert!(store.ticker(Ticker::NumberRateLimiterDrains) > 5);
    assert!(store.ticker(Ticker::RateLimiterTotalWaitMicrosWrite) > 50_000);
}

/// Runs a future that waits for nothing but storage.
fn wait<F: Future>(store: &Store, future: F) -> F::Output {
    karst_io::block_on(store.db.env(), future)
}

#[test]
fn asynchronous_calls_and_batches_count_alike() {
    let store = new("");
    store.fill();
    let store = store.reopened("");
    let keys: Vec<String> = (0..64).map(|number| key(number * 31)).collect();
    let got = perf(PerfLevel::EnableTime, || {
        assert!(wait(&store, store.db.get_async(keys[0].as_bytes())).unwrap().is_some());
        assert!(wait(&store, store.db.multi_get_async(&keys)).iter().all(|value| value.is_ok()));
        wait(&store, async {
            let mut iter = store.db.iter(&ReadOptions::new()).unwrap();
            iter.seek_for_prev_async(&keys[1]).await.unwrap();
            iter.prev_async().await.unwrap();
            iter.next_async().await.unwrap();
        });
    });
    assert_took(
        &got,
        &[
            PerfMetric::BlockReadTime,
            PerfMetric::GetFromOutputFilesTime,
            PerfMetric::SeekInternalSeekTime,
            PerfMetric::FindNextUserEntryTime,
        ],
    );
    let moves = [Ticker::NumberDbSeekFound, Ticker::NumberDbPrevFound, Ticker::NumberDbNextFound];
    assert_eq!(moves.map(|ticker| store.ticker(ticker)), [1, 1, 1]);
    assert_eq!(got(PerfMetric::BloomSstHitCount), 65);
    assert_eq!(got(PerfMetric::BlockReadCount), store.ticker(Ticker::BlockCacheAdd));
}

#[test]
fn what_is_read_ahead_takes_none_of_the_thread_s_time() {
    // Ever longer idle times, until one is long compared with the waits of this machine.
    let times: Vec<_> = [2, 10, 50]
        .map(Duration::from_secs)
        .into_iter()
        .map_while(|idle| {
            let waited = while_idle(idle);
            (waited >= idle / 2).then_some(waited)
        })
        .collect();
    assert!(times.len() < 3, "{times:?}");
}

/// Returns the time that a thread waits for reads of blocks or blobs if it scans, idles and scans
/// again.
fn while_idle(idle: Duration) -> Duration {
    let store = new("compression=kNoCompression;enable_blob_files=true;min_blob_size=50");
    store.fill();
    let store = store.reopened("");
    let got = perf(PerfLevel::EnableTime, || {
        let mut iter = store.db.iter(&ReadOptions::new()).unwrap();
        iter.seek_to_first().unwrap();
        for _ in 0..500 {
            iter.next().unwrap();
        }
        // Reads in flight now complete during the sleep.
        std::thread::sleep(idle);
        for _ in 0..500 {
            iter.next().unwrap();
        }
    });
    assert!(store.ticker(Ticker::PrefetchHits) > 500);
    assert_eq!(got(PerfMetric::BlobReadCount), 1001);
    let [blocks, blobs] = [PerfMetric::BlockReadTime, PerfMetric::BlobReadTime].map(got);
    Duration::from_nanos(blocks.max(blobs))
}

#[test]
fn a_time_ends_with_the_level_that_it_was_taken_at() {
    let store = new("");
    store.fill();
    let store = store.reopened("");
    perf_context::reset();
    perf_context::set_level(PerfLevel::EnableTime);
    let key = key(3);
    let mut get = store.db.get_async(key.as_bytes());
    let mut before = None;
    let found = wait(
        &store,
        std::future::poll_fn(|cx| {
            let polled = std::pin::Pin::new(&mut get).poll(cx);
            if before.is_none() {
                assert!(polled.is_pending(), "its block is not in memory");
                perf_context::set_level(PerfLevel::Disable);
                before = Some(perf_context::to_text(true));
            }
            polled
        }),
    );
    assert!(found.unwrap().is_some());
    assert_eq!(Some(perf_context::to_text(true)), before);
}

#[test]
fn blob_values_of_families_lie_in_the_cache_they_were_given() {
    let (own, common) = (BlockCache::new(1 << 20), BlockCache::new(2 << 20));
    let caches =
        |options: Options| options.blob_cache(Some("own"), own.clone()).blob_cache(None, common.clone());
    let blobs = "enable_blob_files=true;min_blob_size=50";
    let Store { db, folder, .. } = opened(tempfile::tempdir().unwrap(), blobs, caches);
    for name in ["own", "other"] {
        db.create_column_family(name, &caches(Options::new().set_all(blobs).unwrap())).unwrap();
    }
    let read_all = |db: &Db| {
        for family in db.column_families() {
            for number in 0..10 {
                let value = db.get_cf(&ReadOptions::new(), &family, key(number)).unwrap().unwrap();
                assert_eq!(value[..], [number as u8; 100]);
            }
        }
        [&own, &common].map(BlockCache::entry_count)
    };
    for family in db.column_families() {
        for number in 0..10 {
            db.put_cf(&WriteOptions::new(), &family, key(number), [number as u8; 100]).unwrap();
        }
        db.flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
    }
    assert_eq!(read_all(&db), [10, 20], "those of created families and of the default one");
    db.close().unwrap();
    let store = opened(folder, blobs, caches);
    assert_eq!(read_all(&store.db), [10, 20], "the files are the same ones");
    assert_eq!(store.ticker(Ticker::BlobDbCacheHit), 30);
    assert_eq!(store.db.int_property("rocksdb.blob-cache-capacity"), Some(2 << 20));
}

#[test]
fn blob_values_come_from_their_cache_the_second_time() {
    let blobs = "enable_blob_files=true;min_blob_size=50";
    let store = new(blobs);
    store.fill();
    let store = store.reopened(&format!("{blobs};blob_cache={{capacity=1M}}"));
    for (hits, misses) in [(0, 100), (100, 100)] {
        (0..100).for_each(|number| {
            let value = store.db.get(key(number)).unwrap().unwrap();
            assert_eq!(value[..], [number as u8; 100]);
        });
        let counted = [Ticker::BlobDbCacheHit, Ticker::BlobDbCacheMiss].map(|ticker| store.ticker(ticker));
        assert_eq!(counted, [hits, misses]);
    }
    assert_eq!(store.db.int_property("rocksdb.blob-cache-capacity"), Some(1 << 20));
    assert!(store.db.int_property("rocksdb.blob-cache-usage").unwrap() >= 100 * 100);
}
