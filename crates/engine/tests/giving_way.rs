//! Background threads run at low priority until their backlog grows or a caller waits for them.
//!
//! A single test, because it looks at all threads of the process.

use karst_engine::{Db, Options};
use karst_io::{Env, Priority};
use std::time::{Duration, Instant};

/// Returns the nice values of the threads of a name, which may be empty.
fn niceness(name: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() == name {
            // After the name in parentheses come the state, fifteen numbers and then the nice
            // value.
            let stat = read("stat");
            found.extend(
                stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(16)?.parse::<i32>().ok()),
            );
        }
    }
    found
}

/// Waits until all threads of a name have this nice value. Panics after five minutes.
fn wait_for(name: &str, nice: i32) {
    let end = Instant::now() + Duration::from_secs(300);
    loop {
        let found = niceness(name);
        if !found.is_empty() && found.iter().all(|found| *found == nice) {
            return;
        }
        assert!(Instant::now() < end, "{name}: {found:?}, not {nice}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns true if nice values in this process may be lowered again, tried on a temporary thread.
fn may_go_back() -> bool {
    let try_it = || {
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let thread = thread.file_name().unwrap().to_string_lossy().into_owned();
        let renice = |nice: &str| {
            let done = std::process::Command::new("renice").args(["-n", nice, "-p", &thread]).output();
            done.is_ok_and(|output| output.status.success())
        };
        renice("1") && renice("0")
    };
    std::thread::spawn(try_it).join().unwrap()
}

fn compactions_give_way_where_nothing_is_said(ordinary: i32) {
    let folder = tempfile::tempdir().unwrap();
    let options =
        Options::new().set_all("create_if_missing=true;level0_file_num_compaction_trigger=2").unwrap();
    let db = Db::open(folder.path(), &options.env(Env::builder().build())).unwrap();
    for _ in 0..2 {
        db.put("k", "v").unwrap();
        db.flush(&Default::default()).unwrap();
    }
    db.wait_for_compact(&Default::default()).unwrap();
    wait_for("karst-high", ordinary);
    wait_for("karst-low", 19);
    db.close().unwrap();
}

#[test]
fn jobs_give_way_until_their_backlog_presses() {
    let own = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ordinary: i32 = own.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap().parse().unwrap();
    if ordinary > 9 || !may_go_back() {
        eprintln!("not tried: this process may not raise its threads' priorities");
        return;
    }
    compactions_give_way_where_nothing_is_said(ordinary);
    let folder = tempfile::tempdir().unwrap();
    let options = "create_if_missing=true;max_write_buffer_number=6;level0_file_num_compaction_trigger=2;\
                   level0_slowdown_writes_trigger=8;level0_stop_writes_trigger=100;write_buffer_size=65536";
    let env = Env::builder().jobs_give_way(&Priority::ALL).build();
    let db = Db::open(folder.path(), &Options::new().set_all(options).unwrap().env(env)).unwrap();
    db.put("k", "v").unwrap();
    db.flush(&Default::default()).unwrap();
    wait_for("karst-high", ordinary + 10);

    db.pause_background_work().unwrap();
    let sealed = |db: &Db| db.property("rocksdb.num-immutable-mem-table").unwrap().parse::<u32>().unwrap();
    let fill = |until: u32| {
        let mut number = 0;
        while sealed(&db) < until {
            db.put(format!("{number:06}"), [7; 1000]).unwrap();
            number += 1;
        }
    };
    fill(1);
    wait_for("karst-high", ordinary + 10);
    fill(2);
    wait_for("karst-high", ordinary);
    db.continue_background_work().unwrap();
    db.wait_for_compact(&Default::default()).unwrap();
    wait_for("karst-high", ordinary + 10);
    wait_for("karst-low", 19);

    // Five files in L0 that wait for a compaction are more than half of eight.
    db.set_options(db.default_column_family(), &[("disable_auto_compactions", "true")]).unwrap();
    for _ in 0..5 {
        db.put("k", "v").unwrap();
        db.flush(&Default::default()).unwrap();
    }
    wait_for("karst-low", 19);
    db.pause_background_work().unwrap();
    db.set_options(db.default_column_family(), &[("disable_auto_compactions", "false")]).unwrap();
    wait_for("karst-low", ordinary);
    db.continue_background_work().unwrap();
    db.wait_for_compact(&Default::default()).unwrap();
    wait_for("karst-low", 19);
    db.close().unwrap();
}
