//! The features that integrate other crates: `bytes` and `serde`.

use karstdb::{Db, FlushOptions, Options, Statistics, StatsLevel, Ticker};
use std::sync::Arc;

#[test]
fn a_value_becomes_bytes_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &Options::new().db(|db| db.create_if_missing = true)).unwrap();
    db.put("key", "v".repeat(1000)).unwrap();
    for round in ["memtable", "table"] {
        let value = db.get("key").unwrap().unwrap();
        let place = value.as_ptr();
        let bytes = bytes::Bytes::from(value);
        assert_eq!(bytes.as_ptr(), place, "{round}: it was copied");
        let part = bytes.slice(10..20);
        drop(bytes);
        db.flush(&FlushOptions::default()).unwrap();
        assert_eq!(part, "v".repeat(10), "{round}");
    }
    let last = bytes::Bytes::from(db.get("key").unwrap().unwrap());
    db.close().unwrap();
    drop(db);
    assert_eq!(last.len(), 1000, "it outlives the database");
}

#[test]
fn statistics_and_files_are_serialized() {
    let directory = tempfile::tempdir().unwrap();
    let statistics = Arc::new(Statistics::new(StatsLevel::All));
    let options = Options::new().db(|db| db.create_if_missing = true).statistics(statistics.clone());
    let db = Db::open(directory.path(), &options).unwrap();
    db.put("key", "value").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let json = serde_json::to_value(&*statistics).unwrap();
    let written = statistics.ticker(Ticker::NumberKeysWritten);
    assert_eq!((written, &json[Ticker::NumberKeysWritten.name()]), (1, &serde_json::json!(1)));
    assert_eq!(json["rocksdb.db.write.micros"]["count"], 1, "{json}");
    let files = serde_json::to_value(db.live_files()).unwrap();
    assert_eq!(files[0]["level"], 0, "{files}");
    assert_eq!(files[0]["smallest_key"], serde_json::json!(b"key"));
}
