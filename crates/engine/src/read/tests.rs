//! What reads leave in the statistics.

use std::sync::Arc;

use crate::ingest::BulkLoader;
use crate::stats::{HistogramKind, Statistics, StatsLevel};
use crate::{Db, Options, ReadOptions};

#[test]
fn times_are_measured_where_the_level_says_so_and_only_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut loader = BulkLoader::create(directory.path(), &Options::new()).unwrap();
    for i in 0..100_u32 {
        loader.put(&i.to_be_bytes(), &[b'v'; 100]).unwrap();
    }
    loader.finish().unwrap();
    for level in [StatsLevel::DisableAll, StatsLevel::ExceptTimers, StatsLevel::ExceptDetailedTimers] {
        let statistics = Arc::new(Statistics::new(level));
        let options = Options::new().statistics(statistics.clone());
        let db = Db::open_read_only(directory.path(), &options).unwrap();
        for key in [1_u32, 2, 3, 1000] {
            db.get(key.to_be_bytes()).unwrap();
        }
        assert!(db.multi_get(&[5_u32.to_be_bytes(), 6_u32.to_be_bytes()]).into_iter().all(|r| r.is_ok()));
        let mut iter = db.iter(&ReadOptions::default()).unwrap();
        iter.seek(50_u32.to_be_bytes()).unwrap();
        iter.next().unwrap();
        iter.seek_for_prev(20_u32.to_be_bytes()).unwrap();
        iter.seek_to_last().unwrap();
        let timed = u64::from(level > StatsLevel::ExceptTimers);
        let count = |kind: HistogramKind| statistics.histogram(kind).count();
        for (kind, calls) in [
            (HistogramKind::DbGet, 4),
            (HistogramKind::DbMultiget, 1),
            (HistogramKind::DbSeek, 3),
            (HistogramKind::TableOpenIoMicros, 1),
            // The one block that both get and multi_get look into.
            (HistogramKind::FileReadGetMicros, 1),
            (HistogramKind::FileReadMultigetMicros, 0),
        ] {
            assert_eq!(count(kind), calls * timed, "{} {level:?}", kind.name());
        }
        let by_iterator = count(HistogramKind::FileReadDbIteratorMicros);
        assert_eq!(by_iterator > 0, timed > 0, "{level:?}");
        assert_eq!(count(HistogramKind::SstReadMicros), timed + by_iterator, "{level:?}");
    }
}
