//! Backups restored over an existing database by a process that is killed at a random moment.
//! Afterwards the directory has the old database or the backup, each with all of its entries; or it
//! has no database, and opening returns an error. Then a restore of any backup, itself killed now
//! and then, gives that backup.

use crate::{FAMILIES, families, options, same_entries};
use karst_engine::io::Env;
use karst_engine::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, Error, ErrorKind, FlushOptions, ReadOptions,
    RestoreMode, RestoreOptions, Result, WriteBatch, WriteOptions,
};
use karst_testkit::Entry;
use karst_testkit::random::Random;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable for the process that is killed: the backup's id, the restore mode and the
/// directory of the database.
const DIRECTORY: &str = "KARST_RESTORED_DIR";
const TEST: &str = "a_restore_that_is_killed_leaves_a_whole_database_or_none";
const MODES: [RestoreMode; 3] =
    [RestoreMode::PurgeAllFiles, RestoreMode::VerifyChecksum, RestoreMode::KeepLatestDbSessionIdFiles];
const KEYS: u64 = 600;
/// Maximum number of rounds, more than it takes to meet each outcome.
const MOST: u64 = 5000;

fn backups(db: &Path) -> Result<BackupEngine> {
    BackupEngine::open(&BackupEngineOptions::new(db.with_file_name("backups")), &Env::posix())
}

fn restore(db: &Path, id: u32, mode: usize) -> Result<()> {
    let how = RestoreOptions { mode: MODES[mode], ..RestoreOptions::default() };
    backups(db)?.restore_db_from_backup(id, db, db, &how)
}

/// Restores and exits if this process is the one that is killed; otherwise returns.
pub(crate) fn restore_if_asked() {
    let Some(asked) = std::env::var_os(DIRECTORY) else { return };
    let asked = asked.into_string().unwrap();
    let mut parts = asked.splitn(3, ' ');
    let mut number = || parts.next().unwrap().parse::<u32>().unwrap();
    let (id, mode) = (number(), number());
    println!("\nbegun");
    restore(Path::new(parts.next().unwrap()), id, mode as usize).unwrap();
    std::process::exit(0);
}

/// Restores in a process of its own that is killed after a while, unless it has ended before.
fn restore_and_kill(db: &Path, id: u32, mode: usize, after: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, format!("{id} {mode} {}", db.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "begun")), "it ended before it began");
    std::thread::sleep(after);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(status.code().is_none_or(|code| code == 0), "the restore failed: {status}");
}

/// Returns all entries of a family in the database's state of this number.
fn entries(seed: u64, state: u64, family: usize) -> Vec<Entry> {
    let mut random = Random::new(seed + 1000 * state + family as u64);
    let mut entries = Vec::new();
    for number in 0..KEYS {
        if random.one_in(3) {
            continue;
        }
        let len = [20, 300, 1500][random.index(3)];
        entries.push((format!("key{number:05}").into_bytes(), random.bytes(len)));
    }
    entries
}

/// Brings the database into a state: some of it in tables, the rest in the log.
fn write_state(db: &Db, seed: u64, state: u64, random: &mut Random) {
    for (number, family) in families(db).iter().enumerate() {
        let mut batch = WriteBatch::new();
        batch.delete_range_cf(family, "key", "kez").unwrap();
        for (key, value) in entries(seed, state, number) {
            batch.put_cf(family, key, value).unwrap();
        }
        db.write(&WriteOptions::default(), &batch).unwrap();
        if random.one_in(2) {
            db.flush_cfs(&FlushOptions::default(), &[family]).unwrap();
        }
    }
}

/// Opens the database; does not create a missing one.
fn open(path: &Path, seed: u64) -> Result<Db> {
    let options = options(seed).db(|db| {
        db.create_if_missing = false;
        db.create_missing_column_families = false;
    });
    Db::open_cf(path, &options, &FAMILIES)
}

/// Returns the number of the database's state, which must be one of `possible`, with all of its
/// entries.
fn state_of(db: &Db, seed: u64, possible: &[u64]) -> u64 {
    let mut first = db.iter_cf(&ReadOptions::default(), &families(db)[1]).unwrap();
    first.seek_to_first().unwrap();
    let shown = first.valid().then(|| (first.key().to_vec(), first.value().to_vec()));
    let is_it = |state: &&u64| entries(seed, **state, 1).first() == shown.as_ref();
    let state =
        *possible.iter().find(is_it).unwrap_or_else(|| panic!("{shown:?} is of none of {possible:?}"));
    for (number, family) in families(db).iter().enumerate() {
        same_entries(db, family, &entries(seed, state, number));
    }
    state
}

/// Checks that opening a directory without a database fails, and that no database is created there
/// while files of one are left.
fn check_refusal(path: &Path, seed: u64, error: &Error) {
    assert!(!path.join("CURRENT").exists(), "{error}");
    let has_text = |error: &Error, parts: &[&str]| parts.iter().all(|part| error.to_string().contains(part));
    let named = path.to_string_lossy();
    let is_right = match error.kind() {
        ErrorKind::Corruption => {
            has_text(error, &[&*named, "CURRENT: missing, although the directory has data"])
        }
        kind => kind == ErrorKind::InvalidArgument && has_text(error, &[&*named, "does not exist"]),
    };
    assert!(is_right, "{:?}: {error}", error.kind());
    let mut names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    let is_data =
        |name: &str| name.starts_with("MANIFEST") || name.ends_with(".sst") || name.ends_with(".blob");
    if names.any(|name| is_data(&name.to_string_lossy())) {
        let made = Db::open_cf(path, &options(seed), &FAMILIES).map(drop);
        assert!(made.is_err(), "a database was made over what a restore has left");
    }
}

/// Number of times that each outcome was met.
#[derive(Debug, Default)]
struct Outcomes {
    before: u64,
    none: u64,
    restored: u64,
}

/// Kills restores until each outcome was met `each` times.
pub(crate) fn kill_restores(folder: &Path, seed: u64, each: u64) {
    let (path, mut random) = (folder.join("db"), Random::new(seed));
    let mut outcomes = Outcomes::default();
    // Numbers of the backups, each with its state; the newest last.
    let mut made: Vec<(u32, u64)> = Vec::new();
    // Approximate duration of a restore.
    let mut takes = Duration::ZERO;
    for state in 1.. {
        if outcomes.before >= each && outcomes.none >= each && outcomes.restored >= each {
            break;
        }
        assert!(state < MOST, "seed {seed}: {outcomes:?}");
        let db = match state {
            1 => Db::open_cf(&path, &options(seed), &FAMILIES),
            _ => open(&path, seed),
        };
        let db = db.unwrap_or_else(|e| panic!("seed {seed}, state {state}: {e}"));
        write_state(&db, seed, state, &mut random);
        if made.len() < 2 || random.one_in(3) {
            let mut engine = backups(&path).unwrap();
            let how = CreateBackupOptions { flush_before_backup: random.one_in(2), ..Default::default() };
            made.push((engine.create_new_backup(&db, &how).unwrap(), state));
            engine.purge_old_backups(3).unwrap();
            made.drain(..made.len().saturating_sub(3));
        }
        write_state(&db, seed, state + MOST, &mut random);
        db.close().unwrap();
        drop(db);
        let mut possible = vec![state + MOST];
        loop {
            let (id, backed_up) = made[random.index(made.len())];
            let mode = random.index(MODES.len());
            // The first restore is not killed, because it measures the duration.
            if state == 1 || (possible.is_empty() && random.one_in(2)) {
                let begun = Instant::now();
                restore(&path, id, mode).unwrap_or_else(|e| panic!("seed {seed}, state {state}: {e}"));
                takes = begun.elapsed();
                let db = open(&path, seed).unwrap_or_else(|e| panic!("seed {seed}, state {state}: {e}"));
                state_of(&db, seed, &[backed_up]);
                db.close().unwrap();
                break;
            }
            // Also far sooner and later, because the process that restores and this one may have a
            // processor at other times than when the duration was measured.
            let scale = [0.0, 0.1, 1.0, 4.0][random.index(4)];
            let after = takes.mul_f64(scale * random.below(1200) as f64 / 1000.0);
            restore_and_kill(&path, id, mode, after);
            possible.push(backed_up);
            match open(&path, seed) {
                Ok(db) => {
                    match state_of(&db, seed, &possible) == backed_up {
                        true => outcomes.restored += 1,
                        false => outcomes.before += 1,
                    }
                    db.close().unwrap();
                    break;
                }
                Err(error) => {
                    check_refusal(&path, seed, &error);
                    outcomes.none += 1;
                    possible.clear();
                }
            }
        }
    }
    println!("seed {seed}: {outcomes:?}");
}
