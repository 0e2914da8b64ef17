//! Power failures at every change of the disk while a backup is restored: elsewhere, in place, with
//! the logs in a directory of their own, in each mode. Every resulting state has the previous
//! database, the restored one or none; a second restore gives the restored one; and neither the
//! backups nor another database has lost anything.

use crate::copies::{key, options, prefix};
use karst_engine::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, FlushOptions, Options, RestoreMode,
    RestoreOptions, WriteOptions,
};
use karst_io::{CrashStates, FileSystem, Simulation};
use karst_testkit::asked::{long, seeds};
use std::path::Path;

/// The short form opens one in this many states.
const SHARE: u64 = 11;
const BACKED_UP: u64 = 40;
const ALL: u64 = 60;

fn indifferent(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
}

/// Target and options of a restore.
#[derive(Clone, Copy, Debug)]
struct Restoring {
    db: &'static str,
    wal: &'static str,
    how: RestoreOptions,
}

impl Restoring {
    /// Returns the number of keys in the restored database.
    fn keys(&self) -> u64 {
        if self.how.keep_log_files { ALL } else { BACKED_UP }
    }

    fn run(&self, env: &karst_io::Env) {
        let engine = BackupEngine::open(&BackupEngineOptions::new("/backups"), env).unwrap();
        engine.verify_backup(1, true).unwrap();
        engine.restore_db_from_backup(1, self.db, self.wal, &self.how).unwrap();
    }
}

/// Numbers of crash states by the database that they hold.
#[derive(Debug, Default)]
struct Found {
    before: usize,
    none: usize,
    restored: usize,
}

fn crash_everywhere(more: &str, restoring: Restoring, seed: u64) -> Found {
    let simulation = Simulation::new(seed);
    let (env, disk) = (simulation.env().clone(), simulation.fs().clone());
    disk.record();
    let all = options(
        &env,
        &format!("enable_blob_files=true;min_blob_size=200;avoid_flush_during_shutdown=true;{more}"),
    );
    let made = simulation.run(async {
        let db = Db::open("/db", &all).unwrap();
        let put = |number: u64| {
            db.put(key(number), vec![number as u8; 100 + (number % 2 * 200) as usize]).unwrap();
        };
        (0..20).for_each(put);
        db.flush(&FlushOptions::default()).unwrap();
        (20..BACKED_UP).for_each(put);
        let mut engine = BackupEngine::open(&BackupEngineOptions::new("/backups"), &env).unwrap();
        engine.create_new_backup_async(&db, &CreateBackupOptions::default()).await.unwrap();
        (BACKED_UP..ALL - 1).for_each(put);
        let synced = WriteOptions { sync: true, ..WriteOptions::new() };
        db.put_opt(&synced, key(ALL - 1), "last").unwrap();
        db.close().unwrap();
        drop(db);
        let begun = disk.recorded();
        let to = (Path::new(restoring.db), Path::new(restoring.wal));
        engine.restore_db_from_backup_async(1, to.0, to.1, &restoring.how).await.unwrap();
        (begun, disk.recorded())
    });
    let (begun, done) = made.expect("the power is on");
    let journal = disk.take_journal().expect("it was recorded");
    let mut states = CrashStates::new(&journal, indifferent);
    let mut found = Found::default();
    loop {
        let at = states.boundary();
        if at >= begun {
            let point = states.point(seed);
            for state in 0..point.len() {
                if !long() && !point.hash(state).is_multiple_of(SHARE) && at != done {
                    continue;
                }
                let what = format!(
                    "{more:?}, {restoring:?}, seed {seed}, boundary {at} after {}: {}",
                    states.last_change(),
                    point.what(state)
                );
                let machine = Simulation::with_image(&point.image(state), seed);
                let env = machine.env().clone();
                let is_there = machine.fs().exists(&Path::new(restoring.db).join("CURRENT")).unwrap();
                let count = |path: &str| {
                    let again = Options::new().env(env.clone());
                    let db = Db::open(path, &again).unwrap_or_else(|e| panic!("{path}: {what}: {e}"));
                    db.verify_checksum().unwrap_or_else(|e| panic!("{path}: {what}: {e}"));
                    let keys = prefix(&db, "default");
                    db.close().unwrap();
                    keys
                };
                machine
                    .run(async {
                        let in_place = restoring.db == "/db";
                        if !in_place {
                            assert_eq!(count("/db"), ALL, "{what}");
                        }
                        match is_there.then(|| count(restoring.db)) {
                            Some(keys) if keys == restoring.keys() => found.restored += 1,
                            Some(keys) => {
                                assert!(in_place && keys == ALL && at < done, "{keys} keys: {what}");
                                found.before += 1;
                            }
                            None => {
                                assert!(at < done, "a database that was restored is gone: {what}");
                                found.none += 1;
                            }
                        }
                        if !is_there {
                            restoring.run(&env);
                            assert_eq!(count(restoring.db), restoring.keys(), "{what}");
                        }
                        if !in_place {
                            assert_eq!(count("/db"), ALL, "{what}");
                        }
                    })
                    .expect("the power is on");
            }
        }
        if !states.advance() {
            return found;
        }
    }
}

fn in_each_mode(more: &str, db: &'static str, wal: &'static str, keep_log_files: bool) {
    for seed in seeds(1, 3) {
        for mode in
            [RestoreMode::PurgeAllFiles, RestoreMode::VerifyChecksum, RestoreMode::KeepLatestDbSessionIdFiles]
        {
            let how = RestoreOptions { keep_log_files, mode };
            let found = crash_everywhere(more, Restoring { db, wal, how }, seed);
            println!("{more:?}, {db}, {wal}, {how:?}: {found:?}");
            assert!(found.none > 3 && found.restored > 0, "nothing was tried: {found:?}");
        }
    }
}

#[test]
fn a_backup_is_restored_elsewhere_or_not_at_all() {
    in_each_mode("", "/restored", "/restored", false);
}

#[test]
fn a_backup_is_restored_elsewhere_with_its_logs_apart_or_not_at_all() {
    in_each_mode("wal_dir=/logs", "/restored", "/its_logs", false);
}

#[test]
fn a_backup_is_restored_in_place_or_there_is_no_database() {
    in_each_mode("", "/db", "/db", false);
}

#[test]
fn a_backup_is_restored_in_place_with_its_logs_apart_or_there_is_no_database() {
    in_each_mode("wal_dir=/logs", "/db", "/logs", false);
}

#[test]
fn a_backup_is_restored_in_place_and_the_logs_stay() {
    in_each_mode("", "/db", "/db", true);
    in_each_mode("wal_dir=/logs", "/db", "/logs", true);
}
