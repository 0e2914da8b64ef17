//! Work that is due only because time passes: files that are too old are compacted, statistics are
//! written to the LOG file. Time is virtual.

use karst_engine::{
    Checkpoint, CompactRangeOptions, Db, FlushOptions, ImportColumnFamilyOptions, Options, Statistics,
    Ticker, WaitForCompactOptions,
};
use karst_io::{Env, Simulation, sleep};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn options(env: &Env, more: &str) -> Options {
    let text =
        format!("create_if_missing=true;ttl=0;periodic_compaction_seconds=0;stats_dump_period_sec=0;{more}");
    Options::new().env(env.clone()).set_all(&text).unwrap()
}

/// Returns names and levels, because a file that is too old may be moved instead of rewritten.
fn tables(db: &Db) -> Vec<(String, Option<u32>)> {
    db.live_files().into_iter().map(|file| (file.name, file.level)).collect()
}

async fn fill(db: &Db) {
    for n in 0..100 {
        db.put_async(format!("key{n:03}").as_bytes(), b"value").await.unwrap();
    }
    db.flush_async(&FlushOptions::default()).await.unwrap();
    db.wait_for_compact_async(&WaitForCompactOptions::default()).await.unwrap();
}

/// Without writes, reads or flushes, the file is rewritten soon after it has reached its age, and
/// not before.
#[test]
fn files_are_compacted_for_their_age_alone() {
    for more in [
        "periodic_compaction_seconds=1000",
        "compaction_style=kCompactionStyleUniversal;periodic_compaction_seconds=1000",
        "compaction_style=kCompactionStyleFIFO;ttl=1000",
    ] {
        let simulation = Simulation::new(7);
        let env = simulation.env().clone();
        simulation.run(async {
            let db = Db::open("/db", &options(&env, more)).unwrap();
            fill(&db).await;
            let before = tables(&db);
            assert_eq!(before.len(), 1, "{more}");
            sleep(&env, Duration::from_secs(950)).await;
            assert_eq!(tables(&db), before, "{more}: too early");
            sleep(&env, Duration::from_secs(200)).await;
            db.wait_for_compact_async(&WaitForCompactOptions::default()).await.unwrap();
            assert_ne!(tables(&db), before, "{more}: overdue");
            assert_eq!(tables(&db).is_empty(), more.contains("FIFO"), "{more}");
            db.close().unwrap();
        });
    }
}

/// FIFO with `allow_compaction` keeps merging small files. Each entry stays for `ttl` at least and
/// is dropped some time after, even if the database is reopened and does not open its tables.
#[test]
fn merged_files_stay_until_their_newest_entry_is_old() {
    let simulation = Simulation::new(23);
    let env = simulation.env().clone();
    simulation.run(async {
        let fifo = "compaction_style=kCompactionStyleFIFO;ttl=1000;level0_file_num_compaction_trigger=2;max_open_files=100;skip_stats_update_on_db_open=true;compaction_options_fifo={allow_compaction=true;max_table_files_size=1000000000}";
        let options = options(&env, fifo);
        let mut db = Db::open("/db", &options).unwrap();
        let mut written = Vec::new();
        let mut merged = false;
        for n in 0..60 {
            let key = format!("key{n:03}");
            written.push((env.unix_time(), key.clone()));
            db.put_async(key.as_bytes(), b"value").await.unwrap();
            db.flush_async(&FlushOptions::default()).await.unwrap();
            db.wait_for_compact_async(&WaitForCompactOptions::default()).await.unwrap();
            merged |= tables(&db).len() < n + 1;
            for (at, key) in &written {
                let age = env.unix_time() - *at;
                let found = db.get_async(key.as_bytes()).await.unwrap().is_some();
                assert!(found || age >= Duration::from_secs(1000), "{key} is gone at the age of {age:?}");
            }
            if n % 20 == 7 {
                db.close().unwrap();
                drop(db);
                db = Db::open("/db", &options).unwrap();
            }
            sleep(&env, Duration::from_secs(50)).await;
        }
        assert!(merged);
        sleep(&env, Duration::from_secs(2000)).await;
        db.wait_for_compact_async(&WaitForCompactOptions::default()).await.unwrap();
        assert_eq!(tables(&db), []);
        db.close().unwrap();
    });
}

/// A table's properties hold the time when its oldest data was written, as far back as that is
/// known, and the time when the table was created.
#[test]
fn tables_say_when_their_oldest_entry_came_and_when_they_were_made() {
    let simulation = Simulation::new(29);
    let env = simulation.env().clone();
    simulation.run(async {
        let db = Db::open("/db", &options(&env, "disable_auto_compactions=true")).unwrap();
        let hour = |hours: u64| sleep(&env, Duration::from_secs(hours * 3600));
        let began_s = env.unix_time().as_secs();
        let times = || {
            let hours = |time_s: u64| time_s.saturating_sub(began_s) / 3600;
            let files = db.live_files().into_iter();
            files
                .map(|file| (hours(file.oldest_ancester_time), hours(file.file_creation_time)))
                .collect::<Vec<_>>()
        };
        hour(1).await;
        db.put_async(b"a", b"first").await.unwrap();
        hour(1).await;
        db.put_async(b"b", b"second").await.unwrap();
        hour(1).await;
        db.flush_async(&FlushOptions::default()).await.unwrap();
        assert_eq!(times(), [(1, 3)]);
        db.put_async(b"a", b"third").await.unwrap();
        db.put_async(b"b", b"fourth").await.unwrap();
        hour(1).await;
        db.flush_async(&FlushOptions::default()).await.unwrap();
        hour(1).await;
        db.compact_range_async(&CompactRangeOptions::default(), None, None).await.unwrap();
        assert_eq!(times(), [(1, 5)]);
        // An imported file starts with new times.
        let checkpoint = Checkpoint::new(&db).unwrap();
        let exported = checkpoint.export_column_family(db.default_column_family(), "/export").unwrap();
        db.delete_range_async(b"a", b"z").await.unwrap();
        db.compact_range_async(&CompactRangeOptions::default(), None, None).await.unwrap();
        assert_eq!(times(), []);
        hour(1).await;
        let (import, all) = (ImportColumnFamilyOptions::default(), options(&env, ""));
        db.create_column_family_with_import("imported", &all, &import, &exported).unwrap();
        assert_eq!(times(), [(6, 6)]);
        db.close().unwrap();
    });
}

/// During off-peak hours, files that become due before the next off-peak hours are already
/// rewritten.
#[test]
fn files_are_compacted_ahead_of_their_age_while_the_database_is_little_used() {
    const DAY_S: u64 = 86_400;
    for (used, ahead) in [(true, false), (false, true)] {
        let simulation = Simulation::new(17);
        let env = simulation.env().clone();
        simulation.run(async {
            let db = Db::open("/db", &options(&env, "periodic_compaction_seconds=172800")).unwrap();
            fill(&db).await;
            let before = tables(&db);
            let now_s = env.unix_time().as_secs();
            // Off-peak hours: two a day, which begin in ten hours.
            let begin_s = (now_s + 36_000) % DAY_S;
            let time = |s: u64| format!("{:02}:{:02}", s % DAY_S / 3600, s % 3600 / 60);
            let offpeak =
                if used { String::new() } else { format!("{}-{}", time(begin_s), time(begin_s + 7200)) };
            db.set_db_options(&[("daily_offpeak_time_utc", &offpeak)]).unwrap();
            // A time after the second off-peak hours; the file is due in another 12 hours, before
            // the third.
            sleep(&env, Duration::from_secs(9 * 3600)).await;
            assert_eq!(tables(&db), before);
            sleep(&env, Duration::from_secs(27 * 3600)).await;
            db.wait_for_compact_async(&WaitForCompactOptions::default()).await.unwrap();
            assert_eq!(tables(&db) != before, ahead, "{offpeak}");
            let nonsense = db.set_db_options(&[("daily_offpeak_time_utc", "7 to 8")]).unwrap_err();
            assert!(nonsense.to_string().contains("daily_offpeak_time_utc"), "{nonsense}");
            db.close().unwrap();
        });
    }
}

/// A maximum age that is set while the database is open applies from then on.
#[test]
fn an_age_that_is_set_later_counts_too() {
    let simulation = Simulation::new(8);
    let env = simulation.env().clone();
    simulation.run(async {
        let db = Db::open("/db", &options(&env, "")).unwrap();
        fill(&db).await;
        let before = tables(&db);
        sleep(&env, Duration::from_secs(100_000)).await;
        assert_eq!(tables(&db), before, "nothing is ever due");
        let family = db.column_family("default").unwrap();
        db.set_options(&family, &[("periodic_compaction_seconds", "200000")]).unwrap();
        sleep(&env, Duration::from_secs(150_000)).await;
        db.wait_for_compact_async(&WaitForCompactOptions::default()).await.unwrap();
        assert_ne!(tables(&db), before);
        db.close().unwrap();
    });
}

#[test]
fn statistics_are_written_to_the_log_file_every_so_often() {
    let simulation = Simulation::new(9);
    let env = simulation.env().clone();
    let dumps = |env: &Env| {
        let log = env.fs().read_file(Path::new("/db/LOG")).unwrap();
        String::from_utf8_lossy(&log).matches("------- DUMPING STATS -------").count()
    };
    simulation.run(async {
        let db = Db::open("/db", &options(&env, "stats_dump_period_sec=600")).unwrap();
        fill(&db).await;
        sleep(&env, Duration::from_secs(500)).await;
        assert_eq!(dumps(&env), 0);
        sleep(&env, Duration::from_secs(3 * 600)).await;
        assert_eq!(dumps(&env), 3);
        let text = env.fs().read_file(Path::new("/db/LOG")).unwrap();
        assert!(String::from_utf8_lossy(&text).contains("Compaction Stats [default]"));
        db.set_db_options(&[("stats_dump_period_sec", "0")]).unwrap();
        sleep(&env, Duration::from_secs(6000)).await;
        assert_eq!(dumps(&env), 3);
        db.set_db_options(&[("stats_dump_period_sec", "60")]).unwrap();
        sleep(&env, Duration::from_secs(65)).await;
        assert!(dumps(&env) > 3);
        db.close().unwrap();
    });
}

/// The counts of each period are kept as long as the history buffer has room.
#[test]
fn statistics_are_kept_by_period() {
    let simulation = Simulation::new(10);
    let env = simulation.env().clone();
    simulation.run(async {
        let statistics = Arc::new(Statistics::default());
        let options = options(&env, "stats_persist_period_sec=100").statistics(statistics.clone());
        let db = Db::open("/db", &options).unwrap();
        let begun_s = env.unix_time().as_secs();
        let put = Ticker::NumberKeysWritten.name();
        let written = |db: &Db, times: std::ops::Range<u64>| -> Vec<(u64, u64)> {
            let slices = db.stats_history(times);
            slices.iter().map(|slice| (slice.time_s - begun_s, slice.tickers[put])).collect()
        };
        db.put_async(b"before", b"the first look").await.unwrap();
        sleep(&env, Duration::from_secs(110)).await;
        assert_eq!(written(&db, 0..u64::MAX), [], "the first look is what is counted from");
        for n in 1..=4 {
            for _ in 0..n {
                db.put_async(b"key", b"value").await.unwrap();
            }
            sleep(&env, Duration::from_secs(100)).await;
        }
        let all = written(&db, 0..u64::MAX);
        assert_eq!(all.iter().map(|(_, written)| *written).collect::<Vec<_>>(), [1, 2, 3, 4], "{all:?}");
        assert!(all.iter().zip([200, 300, 400, 500]).all(|((at, _), due)| at.abs_diff(due) < 5), "{all:?}");
        let from = begun_s + all[1].0;
        assert_eq!(written(&db, from..from + all[2].0 - all[1].0), all[1..2]);
        assert_eq!(statistics.ticker(Ticker::NumberKeysWritten), 11);
        // Room for two periods.
        let bytes = Ticker::all().map(|ticker| ticker.name().len() + 8).sum::<usize>() + 8;
        db.set_db_options(&[("stats_history_buffer_size", &(bytes * 2 + bytes / 2).to_string())]).unwrap();
        sleep(&env, Duration::from_secs(100)).await;
        let left = written(&db, 0..u64::MAX);
        assert_eq!(left.iter().map(|(_, written)| *written).collect::<Vec<_>>(), [4, 0]);
        db.set_db_options(&[("stats_persist_period_sec", "0")]).unwrap();
        sleep(&env, Duration::from_secs(1000)).await;
        assert_eq!(written(&db, 0..u64::MAX), left);
        db.close().unwrap();
    });
}
