//! Tests of statistics through the public API: sums over threads, levels, resets, the printed
//! lines.

use super::*;
use std::sync::Arc;

#[test]
fn names_are_found_both_ways() {
    assert_eq!(Ticker::BlockCacheMiss.name(), "rocksdb.block.cache.miss");
    assert_eq!(Ticker::from_name("rocksdb.l2andup.hit"), Some(Ticker::GetHitL2AndUp));
    assert_eq!(Ticker::from_name("rocksdb.nonsense"), None);
    assert_eq!(HistogramKind::from_name("rocksdb.db.get.micros"), Some(HistogramKind::DbGet));
    for ticker in Ticker::all() {
        assert_eq!(Ticker::from_name(ticker.name()), Some(ticker));
    }
    assert_eq!(Ticker::all().last(), Some(Ticker::FileSubmitAsyncReadFallback));
}

#[test]
fn nothing_is_lost_over_more_threads_than_slots() {
    let stats = Arc::new(Statistics::default());
    std::thread::scope(|scope| {
        for _ in 0..OWNED * 2 {
            scope.spawn(|| {
                for i in 0..1000 {
                    stats.tick(Ticker::BlockCacheHit);
                    stats.measure(HistogramKind::DbGet, i);
                }
            });
        }
    });
    let samples = OWNED as u64 * 2 * 1000;
    assert_eq!(stats.ticker(Ticker::BlockCacheHit), samples);
    let histogram = stats.histogram(HistogramKind::DbGet);
    assert_eq!((histogram.count(), histogram.min(), histogram.max()), (samples, 0, 999));
    assert_eq!(histogram.sum(), samples / 1000 * (999 * 1000 / 2));
}

#[test]
fn levels_decide_what_is_collected() {
    let stats = Statistics::new(StatsLevel::DisableAll);
    stats.tick(Ticker::BytesRead);
    stats.recorder().tick(Ticker::BytesRead);
    assert_eq!(stats.ticker(Ticker::BytesRead), 0);
    stats.set_level(StatsLevel::ExceptHistogramOrTimers);
    stats.tick(Ticker::BytesRead);
    stats.measure(HistogramKind::BytesPerRead, 10);
    stats.recorder().measure(HistogramKind::BytesPerRead, 10);
    assert_eq!(stats.ticker(Ticker::BytesRead), 1);
    assert_eq!(stats.histogram(HistogramKind::BytesPerRead).count(), 0);
    assert!(!stats.timers_enabled());
    stats.set_level(StatsLevel::All);
    stats.recorder().measure(HistogramKind::BytesPerRead, 10);
    assert_eq!(stats.histogram(HistogramKind::BytesPerRead).sum(), 10);
    assert!(stats.timers_enabled() && stats.detailed_timers_enabled());
}

#[test]
fn a_reset_counts_from_zero() {
    let stats = Statistics::default();
    stats.record(Ticker::BytesRead, 41);
    stats.measure(HistogramKind::DbGet, 1_000_000);
    stats.reset();
    assert_eq!(stats.ticker(Ticker::BytesRead), 0);
    assert_eq!(stats.histogram(HistogramKind::DbGet).count(), 0);
    stats.record(Ticker::BytesRead, 1);
    stats.measure(HistogramKind::DbGet, 3);
    let after = stats.histogram(HistogramKind::DbGet);
    assert_eq!(stats.ticker(Ticker::BytesRead), 1);
    assert_eq!((after.count(), after.sum(), after.min(), after.max()), (1, 3, 3, 3));
}

#[test]
fn the_text_is_rocksdb_s() {
    let stats = Statistics::default();
    stats.record(Ticker::BlockCacheMiss, 7);
    stats.measure(HistogramKind::DbGet, 100);
    let text = stats.to_string();
    assert!(text.starts_with("rocksdb.block.cache.miss COUNT : 7\nrocksdb.block.cache.hit COUNT : 0\n"));
    let line = "rocksdb.db.get.micros P50 : 100.000000 P95 : 100.000000 P99 : 100.000000 P100 : 100.000000 COUNT : 1 SUM : 100\n";
    assert!(text.contains(line), "{text}");
    assert_eq!(text.lines().count(), Ticker::COUNT + HistogramKind::COUNT);
}
