//! Databases whose entries expire, in virtual time: when entries are dropped, the values that
//! users' filters and operators see, and every way of reading and writing.

use karst_engine::compaction_filter::{FilterDecision, FilterInput};
use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, CompactionFilter, Db, DbWithTtl, Direction,
    ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions,
};
use karst_io::{Env, Simulation, sleep};
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const FOR_EVER: Duration = Duration::ZERO;

fn options(env: &Env) -> Options {
    let options = Options::new().env(env.clone()).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    options.set("merge_operator", "StringAppendOperator").unwrap()
}

/// Flushes and compacts all entries, into the last level too.
async fn compact(db: &DbWithTtl, family: &ColumnFamily) {
    let all = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
        ..CompactRangeOptions::default()
    };
    db.db().compact_range_cf_async(&all, family, None, None).await.unwrap();
}

async fn keys(db: &DbWithTtl, family: &ColumnFamily) -> Vec<String> {
    let mut iter = db.iter_cf(&ReadOptions::new(), family).unwrap();
    iter.seek_to_first_async().await.unwrap();
    let mut found = Vec::new();
    while iter.valid() {
        found.push(String::from_utf8_lossy(iter.key()).into_owned());
        iter.next_async().await.unwrap();
    }
    found
}

#[test]
fn entries_expire_as_their_family_says_and_as_that_changes() {
    let simulation = Simulation::new(3);
    let env = simulation.env().clone();
    simulation.run(async {
        let families = [("default", HOUR), ("day", 24 * HOUR), ("ever", FOR_EVER)];
        let db = DbWithTtl::open_cf("/db", &options(&env), &families).unwrap();
        let all = families.map(|(name, _)| db.db().column_family(name).unwrap());
        let write = WriteOptions::new();
        for (family, (_, ttl)) in all.iter().zip(families) {
            assert_eq!(db.get_ttl(family).unwrap(), ttl);
            db.put_cf_async(&write, family, "old", "1").await.unwrap();
        }
        sleep(&env, HOUR / 2).await;
        for family in &all {
            db.put_cf_async(&write, family, "new", "2").await.unwrap();
            compact(&db, family).await;
            assert_eq!(keys(&db, family).await, ["new", "old"], "too early");
        }
        sleep(&env, HOUR * 3 / 4).await;
        // Expired entries are readable until they are compacted.
        assert_eq!(keys(&db, &all[0]).await, ["new", "old"]);
        for family in &all {
            compact(&db, family).await;
        }
        assert_eq!(keys(&db, &all[0]).await, ["new"]);
        assert_eq!(keys(&db, &all[1]).await, ["new", "old"]);
        db.set_ttl(&all[1], HOUR).unwrap();
        assert_eq!(db.get_ttl(&all[1]).unwrap(), HOUR);
        // A change of other options keeps the TTL.
        db.db().set_options_async(&all[1], &[("write_buffer_size", "1000000")]).await.unwrap();
        compact(&db, &all[1]).await;
        assert_eq!(keys(&db, &all[1]).await, ["new"]);
        db.set_ttl(&all[1], FOR_EVER).unwrap();
        sleep(&env, HOUR * 1000).await;
        for family in &all {
            compact(&db, family).await;
        }
        assert!(keys(&db, &all[0]).await.is_empty());
        assert_eq!(keys(&db, &all[1]).await, ["new"]);
        assert_eq!(keys(&db, &all[2]).await, ["new", "old"]);

        let late = db.create_column_family("late", &options(&env), HOUR).unwrap();
        db.put_cf_async(&write, &late, "key", "value").await.unwrap();
        sleep(&env, HOUR * 2).await;
        compact(&db, &late).await;
        assert!(keys(&db, &late).await.is_empty());
        let plain = db.db().create_column_family("plain", &options(&env)).unwrap();
        assert_eq!(db.get_ttl(&plain).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(db.set_ttl(&plain, HOUR).unwrap_err().kind(), ErrorKind::InvalidArgument);
        db.db().close().unwrap();
        assert_eq!(db.get_ttl(&late).unwrap_err().kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_change_of_one_familys_time_to_live_is_not_one_of_the_others() {
    let simulation = Simulation::new(7);
    let env = simulation.env().clone();
    simulation.run(async {
        let db = DbWithTtl::open("/db", &options(&env), HOUR).unwrap();
        db.create_column_family("other", &options(&env), HOUR).unwrap();
        db.db().close().unwrap();
        // Opens with one TTL for all families.
        let db = DbWithTtl::open("/db", &options(&env), HOUR).unwrap();
        let families = ["default", "other"].map(|name| db.db().column_family(name).unwrap());
        db.set_ttl(&families[0], FOR_EVER).unwrap();
        assert_eq!(db.get_ttl(&families[0]).unwrap(), FOR_EVER);
        assert_eq!(db.get_ttl(&families[1]).unwrap(), HOUR);
        for family in &families {
            db.put_cf_async(&WriteOptions::new(), family, "key", "value").await.unwrap();
        }
        sleep(&env, HOUR * 2).await;
        for family in &families {
            compact(&db, family).await;
        }
        assert_eq!(keys(&db, &families[0]).await, ["key"]);
        assert!(keys(&db, &families[1]).await.is_empty());
        db.db().close().unwrap();
    });
}

#[test]
fn every_form_of_reading_shows_what_every_form_of_writing_wrote() {
    let env = Env::posix();
    let directory = tempfile::tempdir().unwrap();
    let db = wait(DbWithTtl::open_async(directory.path(), &options(&env), HOUR)).unwrap();
    let other = db.create_column_family("other", &options(&env), HOUR).unwrap();
    let (read, write) = (ReadOptions::new(), WriteOptions::new());
    db.put("a", "1").unwrap();
    wait(db.put_async("b", "")).unwrap();
    db.put_cf(&write, &other, "a", "other").unwrap();
    wait(db.put_cf_async(&write, &other, "b", "2")).unwrap();
    db.merge("c", "x").unwrap();
    wait(db.merge_async("c", "y")).unwrap();
    db.merge_cf(&write, &other, "a", "z").unwrap();
    wait(db.merge_cf_async(&write, &other, "a", "w")).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("d", "4").unwrap();
    batch.merge("c", "z").unwrap();
    batch.put_cf(&other, "e", "5").unwrap();
    batch.put("gone", "1").unwrap();
    batch.delete("gone").unwrap();
    db.write(&write, &batch).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("f", "6").unwrap();
    batch.put("g", "7").unwrap();
    batch.put("h", "8").unwrap();
    batch.put("i", "9").unwrap();
    wait(db.write_async(&write, &batch)).unwrap();
    db.delete("f").unwrap();
    wait(db.single_delete_async("g")).unwrap();
    db.delete_range("h", "i").unwrap();

    let expected = [("a", "1"), ("b", ""), ("c", "x,y,z"), ("d", "4"), ("i", "9")];
    let check = |db: &DbWithTtl, other: &ColumnFamily| {
        for (key, value) in expected {
            assert_eq!(db.get(key).unwrap().unwrap(), value);
            assert_eq!(wait(db.get_async(key)).unwrap().unwrap(), value);
        }
        assert_eq!(db.get("gone").unwrap(), None);
        assert_eq!(db.get_cf(&read, other, "a").unwrap().unwrap(), "other,z,w");
        assert_eq!(wait(db.get_cf_async(&read, other, "b")).unwrap().unwrap(), "2");
        let found = db.multi_get(&["a", "gone", "c"]);
        let found: Vec<_> = found.into_iter().map(|one| one.unwrap()).collect();
        assert!(found[0].as_ref().unwrap() == "1" && found[1].is_none());
        assert_eq!(found[2].as_ref().unwrap(), "x,y,z");
        for found in [
            db.multi_get_cf(&read, other, &["e"]),
            wait(db.multi_get_cf_async(&read, other, &["e"])),
            db.multi_get_cfs(&read, &[other], &["e"]),
        ] {
            assert_eq!(found.into_iter().next().unwrap().unwrap().unwrap(), "5");
        }
        let mut iter = db.iter(&read).unwrap();
        iter.seek_to_last().unwrap();
        for (key, value) in expected.iter().rev() {
            assert_eq!((iter.key(), iter.value()), (key.as_bytes(), value.as_bytes()));
            assert_eq!(iter.pinned_value(), *value);
            let age = db.db().env().unix_time() - iter.written_at();
            assert!(age < HOUR, "{age:?}");
            iter.prev().unwrap();
        }
        assert!(!iter.valid());
        iter.seek_for_prev("cc").unwrap();
        assert_eq!(iter.key(), b"c");
        wait(iter.seek_async("d")).unwrap();
        wait(iter.prev_async()).unwrap();
        wait(iter.next_async()).unwrap();
        assert_eq!(iter.value(), b"4");
        let mut stream = std::pin::pin!(db.iter(&read).unwrap().into_stream(Direction::Forward));
        let next = std::future::poll_fn(|cx| futures_core::Stream::poll_next(stream.as_mut(), cx));
        let (key, value) = wait(next).unwrap().unwrap();
        assert!(*key == *b"a" && value == "1");
    };
    check(&db, &other);
    for family in [db.db().default_column_family(), &other] {
        db.db().compact_range_cf(&CompactRangeOptions::default(), family, None, None).unwrap();
    }
    check(&db, &other);
    db.db().close().unwrap();
    // OPTIONS names the user's operator inside of the one that handles timestamps.
    let reopened = Options::new().env(env.clone());
    for db in [
        DbWithTtl::open_read_only(directory.path(), &reopened).unwrap(),
        DbWithTtl::open_cf_read_only(directory.path(), &reopened, &["other"]).unwrap(),
        DbWithTtl::open(directory.path(), &reopened, HOUR).unwrap(),
    ] {
        check(&db, &db.db().column_family("other").unwrap());
        db.db().close().unwrap();
    }
    let raw = Db::open_read_only(directory.path(), &reopened).unwrap();
    assert_eq!(raw.get("a").unwrap().unwrap().len(), 1 + 4, "the time is behind the value");
}

#[test]
fn values_without_a_time_are_an_error_wherever_they_are_read() {
    let env = Env::posix();
    let directory = tempfile::tempdir().unwrap();
    let plain = Db::open(directory.path(), &options(&env)).unwrap();
    plain.put("key", "long ago, without a time\0\0\0\0").unwrap();
    plain.put("short", "\u{7f}\u{7f}\u{7f}").unwrap();
    plain.close().unwrap();
    let db = DbWithTtl::open(directory.path(), &options(&env), HOUR).unwrap();
    db.put("other", "1").unwrap();
    assert_eq!(db.get("key").unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(db.multi_get(&["key"]).remove(0).unwrap_err().kind(), ErrorKind::Corruption);
    let mut iter = db.iter(&ReadOptions::new()).unwrap();
    assert_eq!(iter.seek_to_first().unwrap_err().kind(), ErrorKind::Corruption);
    assert!(!iter.valid());
    assert_eq!(iter.status().unwrap_err().kind(), ErrorKind::Corruption);
    iter.seek("other").unwrap();
    assert_eq!(iter.value(), b"1");
    iter.status().unwrap();
    assert_eq!(iter.next().unwrap_err().kind(), ErrorKind::Corruption);
    let beyond = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| iter.next()));
    assert!(beyond.is_err(), "the iterator is not valid");
    assert_eq!(db.get("short").unwrap_err().kind(), ErrorKind::Corruption);
    db.db().compact_range(&CompactRangeOptions::default(), None, None).unwrap();
    for key in ["key", "short"] {
        assert_eq!(db.get(key).unwrap_err().kind(), ErrorKind::Corruption, "nobody has dropped it");
    }
}

/// Filter that removes the value `go` and changes others to upper case.
#[derive(Debug)]
struct Users;

impl CompactionFilter for Users {
    fn name(&self) -> &str {
        "Users"
    }

    fn filter(&self, _: u32, _: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        match entry {
            FilterInput::Value(b"go") => FilterDecision::Remove,
            FilterInput::Value(value) => FilterDecision::ChangeValue(value.to_ascii_uppercase()),
            _ => FilterDecision::Keep,
        }
    }
}

#[test]
fn a_users_filter_is_asked_about_values_without_times() {
    let simulation = Simulation::new(5);
    let env = simulation.env().clone();
    simulation.run(async {
        let with_filter = options(&env).compaction_filter(None, Arc::new(Users));
        let db = DbWithTtl::open("/db", &with_filter, HOUR).unwrap();
        let family = db.db().default_column_family().clone();
        db.put_async("a", "go").await.unwrap();
        db.put_async("b", "stays").await.unwrap();
        sleep(&env, HOUR / 2).await;
        compact(&db, &family).await;
        assert_eq!(db.get_async("a").await.unwrap(), None);
        assert_eq!(db.get_async("b").await.unwrap().unwrap(), "STAYS");
        // A changed value keeps the age of the original.
        sleep(&env, HOUR * 3 / 4).await;
        compact(&db, &family).await;
        assert_eq!(db.get_async("b").await.unwrap(), None);
        db.db().close().unwrap();
    });
}
