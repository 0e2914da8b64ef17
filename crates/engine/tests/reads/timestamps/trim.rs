//! Databases that are opened without the entries after a timestamp (trimmed history).

use crate::timestamps::history::{Random, TIMES, check, entries, options, write};
use crate::timestamps::model::{Model, put, read_at};
use karst_engine::format::Comparator;
use karst_engine::io::{Env, block_on};
use karst_engine::{CompactRangeOptions, Db, ErrorKind, FlushOptions, Options};

/// Writes entries of all times to the logs and to several levels. Returns their model.
fn filled(directory: &std::path::Path, options: &Options, reversed: bool) -> Model {
    let (mut model, mut random) = (Model { reversed, ..Model::default() }, Random(11));
    let db = Db::open(directory, options).unwrap();
    for flushed in [true, true, false] {
        write(&db, &mut model, &mut random, 400);
        if flushed {
            db.flush(&FlushOptions::default()).unwrap();
        }
    }
    db.close().unwrap();
    model
}

#[test]
fn what_is_later_is_as_if_it_had_never_been() {
    let (bytewise, reverse) = (Comparator::BytewiseU64Ts, Comparator::ReverseBytewiseU64Ts);
    for (comparator, text) in [
        (&bytewise, ""),
        (&reverse, "compaction_style=kCompactionStyleUniversal"),
        (
            &bytewise,
            "num_levels=1;level_compaction_dynamic_level_bytes=false;compaction_style=kCompactionStyleUniversal",
        ),
        (&reverse, "enable_blob_files=true;min_blob_size=60;max_subcompactions=4"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = options(comparator, text);
        let mut model = filled(dir.path(), &options, comparator.name().contains("Reverse"));
        for last in [TIMES, 25, 24, 9, 0] {
            model.entries.values_mut().for_each(|entries| entries.retain(|at, _| *at <= last));
            let ts = last.to_le_bytes();
            let db = match last {
                24 => {
                    let opening = Db::open_and_trim_history_async(dir.path(), &options, &["default"], ts);
                    block_on(&Env::posix(), opening).unwrap()
                }
                _ => Db::open_and_trim_history(dir.path(), &options, &["default"], ts).unwrap(),
            };
            check(&db, &model, 0);
            let left = model.entries.values().map(|entries| entries.len()).sum();
            assert!(entries(&db) >= left, "an entry may be there more than once");
            // The database then works like any other, and its compactions drop nothing more.
            let family = db.default_column_family();
            put(&db, family, b"behind", last + 1, b"v");
            db.flush(&FlushOptions::default()).unwrap();
            db.compact_range(&Default::default(), None, None).unwrap();
            assert!(db.get_cf(&read_at(last + 1), family, "behind").unwrap().is_some());
            model.write(b"behind", last + 1, Some(b"v"));
            check(&db, &model, 0);
            db.close().unwrap();
        }
        let db = Db::open(dir.path(), &options).unwrap();
        assert_eq!(entries(&db), model.entries.values().map(|entries| entries.len()).sum::<usize>());
    }
}

#[test]
fn the_only_table_of_a_universal_tree_is_trimmed() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&Comparator::BytewiseU64Ts, "compaction_style=kCompactionStyleUniversal");
    let db = Db::open(dir.path(), &options).unwrap();
    let mut model = Model::default();
    for at in 1..=5_u64 {
        put(&db, db.default_column_family(), b"a", at, b"value");
        model.write(b"a", at, Some(b"value"));
    }
    db.close().unwrap();
    drop(db);
    let db = Db::open_and_trim_history(dir.path(), &options, &["default"], 3_u64.to_le_bytes()).unwrap();
    model.entries.values_mut().for_each(|entries| entries.retain(|at, _| *at <= 3));
    check(&db, &model, 0);
    assert_eq!(entries(&db), 3);
    // The entry is on the deepest level now. Another one goes to L0, and history is trimmed.
    put(&db, db.default_column_family(), b"b", 1, b"value");
    db.flush(&FlushOptions::default()).unwrap();
    let given_up = CompactRangeOptions {
        full_history_ts_low: Some(3_u64.to_le_bytes().to_vec()),
        ..CompactRangeOptions::default()
    };
    db.compact_range(&given_up, None, None).unwrap();
    assert_eq!(entries(&db), 3, "of each key the newest before the timestamp is left");
}

#[test]
fn history_of_the_only_table_of_a_universal_tree_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&Comparator::BytewiseU64Ts, "compaction_style=kCompactionStyleUniversal");
    let db = Db::open(dir.path(), &options).unwrap();
    for at in 1..=5_u64 {
        put(&db, db.default_column_family(), b"a", at, b"value");
    }
    let given_up = CompactRangeOptions {
        full_history_ts_low: Some(5_u64.to_le_bytes().to_vec()),
        ..CompactRangeOptions::default()
    };
    db.compact_range(&given_up, None, None).unwrap();
    assert_eq!(entries(&db), 2, "the newest before the timestamp is left");
}

#[test]
fn families_without_timestamps_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&Comparator::BytewiseU64Ts, "create_missing_column_families=true")
        .comparator(Some("plain"), Comparator::Bytewise);
    let names = ["default", "plain"];
    let db = Db::open_cf(dir.path(), &options, &names).unwrap();
    put(&db, db.default_column_family(), b"k", 1, b"one");
    put(&db, db.default_column_family(), b"k", 3, b"three");
    let plain = db.column_family("plain").unwrap();
    db.put_cf(&Default::default(), &plain, "k", "v").unwrap();
    db.close().unwrap();
    let trimmed = |ts: &[u8]| Db::open_and_trim_history(dir.path(), &options, &names, ts);
    let at_9 = |db: &Db| db.get_cf(&read_at(9), db.default_column_family(), "k").unwrap().unwrap().to_vec();
    assert_eq!(trimmed(&[1; 3]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    // An empty timestamp means no limit.
    assert_eq!(at_9(&trimmed(&[]).unwrap()), b"three");
    let db = trimmed(&2_u64.to_le_bytes()).unwrap();
    assert_eq!(at_9(&db), b"one");
    let plain = db.column_family("plain").unwrap();
    assert_eq!(db.get_cf(&Default::default(), &plain, "k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn what_cannot_be_trimmed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let early = options(&Comparator::BytewiseU64Ts, "avoid_flush_during_recovery=true");
    let ts = 2_u64.to_le_bytes();
    let refused = Db::open_and_trim_history(dir.path(), &early, &["default"], ts).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert!(!dir.path().join("CURRENT").exists(), "it was not made");

    let fifo = options(&Comparator::BytewiseU64Ts, "compaction_style=kCompactionStyleFIFO;num_levels=1");
    let db = Db::open(dir.path(), &fifo).unwrap();
    put(&db, db.default_column_family(), b"k", 3, b"three");
    db.close().unwrap();
    let refused = Db::open_and_trim_history(dir.path(), &fifo, &["default"], ts).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotSupported, "{refused}");
    // The failed opening closed the database again.
    let db = Db::open(dir.path(), &fifo).unwrap();
    assert!(db.get_cf(&read_at(3), db.default_column_family(), "k").unwrap().is_some());
}
