//! Directories that belong to another database: its own, its `wal_dir`, its `db_paths`. Each call
//! that removes or truncates files is tried on them, with that database open and closed, and must
//! leave all of its files.

use crate::copies::{memory, options};
use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, DbPath, ErrorKind, FlushOptions,
    Options, RestoreMode, RestoreOptions, WriteOptions,
};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Temporary name under which a checkpoint named `/original` is made.
const ORIGINAL: &str = "/original.tmp";
/// All directories of the original.
const PLACES: [&str; 3] = [ORIGINAL, "/wal", "/more"];
const PLAIN: RestoreOptions = RestoreOptions { keep_log_files: false, mode: RestoreMode::PurgeAllFiles };

fn text(db: &Db, key: &str) -> Option<String> {
    db.get(key).unwrap().map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// Returns options that name the original's other directories: for its logs and for its tables.
fn like_original(env: &Env) -> Options {
    let options = options(env, "avoid_flush_during_shutdown=true;wal_dir=/wal");
    options.db_paths([DbPath::new("/more", 0)])
}

/// Returns every file in the directories of the original, except for LOCK and LOG, with its bytes.
fn files_of_original(files: &MemoryFileSystem) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for place in PLACES {
        for name in files.list_dir(Path::new(place)).unwrap() {
            let path = Path::new(place).join(&name);
            if !name.starts_with("LO") && !files.metadata(&path).unwrap().is_dir {
                all.insert(path.clone(), files.read_file(&path).unwrap());
            }
        }
    }
    all
}

/// Copies the files of a directory to another one.
fn copy_all(files: &MemoryFileSystem, from: &str, to: &str) {
    for name in files.list_dir(Path::new(from)).unwrap() {
        let path = Path::new(from).join(&name);
        if !files.metadata(&path).unwrap().is_dir {
            files.write_file(&Path::new(to).join(&name), files.read_file(&path).unwrap()).unwrap();
        }
    }
}

fn put(db: &Db, key: &str, value: &str) {
    db.put_opt(&WriteOptions { sync: true, ..WriteOptions::new() }, key, value).unwrap();
}

/// Creates the original, with a table in `/more` and a key that is only in its log. Returns it with
/// the id of a backup from before that key.
fn original(env: &Env, files: &MemoryFileSystem) -> (Db, u32) {
    let db = Db::open(ORIGINAL, &like_original(env)).unwrap();
    put(&db, "a", "backed up");
    db.flush(&FlushOptions::default()).unwrap();
    let mut engine = BackupEngine::open(&BackupEngineOptions::new("/backups"), env).unwrap();
    let id = engine.create_new_backup(&db, &CreateBackupOptions::default()).unwrap();
    let names = files.list_dir(Path::new("/more")).unwrap();
    assert!(names.iter().any(|name| name.ends_with(".sst")), "{names:?}");
    put(&db, "b", "written since");
    // The MANIFEST before the last one is removed behind the opening.
    db.disable_file_deletions().unwrap();
    db.enable_file_deletions().unwrap();
    (db, id)
}

struct Attempt {
    what: &'static str,
    /// True if the call must fail; otherwise it must only leave the original unchanged.
    refused: bool,
    run: fn(&Env) -> karst_engine::Result<()>,
}

fn backups(env: &Env) -> BackupEngine {
    BackupEngine::open_read_only(&BackupEngineOptions::new("/backups"), env).unwrap()
}

fn restore(env: &Env, db: &str, wal: &str, how: RestoreOptions) -> karst_engine::Result<()> {
    backups(env).restore_db_from_backup(1, db, wal, &how)
}

const KEEP: RestoreOptions = RestoreOptions { keep_log_files: true, ..PLAIN };

fn with_wal_dir(env: &Env, wal_dir: &str) -> Options {
    options(env, &format!("wal_dir={wal_dir}"))
}

const ATTEMPTS: &[Attempt] = &[
    Attempt {
        what: "open a copy",
        refused: true,
        run: |env| Db::open("/copy", &like_original(env)).map(drop),
    },
    Attempt {
        what: "open a copy with its own OPTIONS",
        refused: true,
        run: |env| {
            let paths = [DbPath::new("/more", 0)];
            Db::open("/copy", &Options::new().env(env.clone()).db_paths(paths)).map(drop)
        },
    },
    Attempt {
        what: "read a copy",
        refused: true,
        run: |env| Db::open_read_only("/copy", &like_original(env)).map(drop),
    },
    Attempt {
        what: "repair a copy",
        refused: true,
        run: |env| Db::repair("/copy", &like_original(env)).map(drop),
    },
    Attempt { what: "destroy a copy", refused: false, run: |env| Db::destroy("/copy", &like_original(env)) },
    Attempt {
        what: "open a new one with the logs",
        refused: true,
        run: |env| Db::open("/new", &with_wal_dir(env, "/wal")).map(drop),
    },
    Attempt {
        what: "open a new one with its logs in the original",
        refused: true,
        run: |env| Db::open("/new", &with_wal_dir(env, ORIGINAL)).map(drop),
    },
    Attempt {
        what: "open a new one with the tables",
        refused: true,
        run: |env| {
            let paths = [DbPath::new("/new", 0), DbPath::new("/more", 0)];
            Db::open("/new", &options(env, "").db_paths(paths)).map(drop)
        },
    },
    Attempt {
        what: "open a new one with its tables in the original",
        refused: true,
        run: |env| {
            let paths = [DbPath::new("/new", 0), DbPath::new(ORIGINAL, 0)];
            Db::open("/new", &options(env, "").db_paths(paths)).map(drop)
        },
    },
    Attempt {
        what: "make a family with the tables",
        refused: true,
        run: |env| {
            let with = options(env, "").cf_paths(Some("f"), [DbPath::new("/more", 0)]);
            Db::open("/third", &options(env, ""))?.create_column_family("f", &with).map(drop)
        },
    },
    Attempt {
        what: "make a database in the logs",
        refused: true,
        run: |env| Db::open("/wal", &options(env, "")).map(drop),
    },
    Attempt {
        what: "make a database in the tables",
        refused: true,
        run: |env| Db::open("/more", &options(env, "")).map(drop),
    },
    Attempt { what: "destroy the logs", refused: true, run: |env| Db::destroy("/wal", &options(env, "")) },
    Attempt { what: "destroy the tables", refused: true, run: |env| Db::destroy("/more", &options(env, "")) },
    Attempt {
        what: "destroy one with its logs in the original",
        refused: false,
        run: |env| Db::destroy("/other", &with_wal_dir(env, ORIGINAL)),
    },
    Attempt {
        what: "repair the logs",
        refused: true,
        run: |env| Db::repair("/wal", &options(env, "")).map(drop),
    },
    Attempt {
        what: "repair the tables",
        refused: true,
        run: |env| Db::repair("/more", &options(env, "")).map(drop),
    },
    Attempt {
        what: "remove a table of the tables",
        refused: true,
        run: |env| Db::unsafe_remove_sst_file("/more", &options(env, ""), 9),
    },
    Attempt { what: "restore with the logs", refused: true, run: |env| restore(env, "/new", "/wal", PLAIN) },
    Attempt {
        what: "restore with the logs, and keep them",
        refused: true,
        run: |env| restore(env, "/new", "/wal", KEEP),
    },
    Attempt { what: "restore over the logs", refused: true, run: |env| restore(env, "/wal", "/wal", PLAIN) },
    Attempt {
        what: "restore over the tables",
        refused: true,
        run: |env| restore(env, "/more", "/more", PLAIN),
    },
    Attempt {
        what: "restore with logs in the original",
        refused: true,
        run: |env| restore(env, "/new", ORIGINAL, PLAIN),
    },
    Attempt { what: "restore elsewhere", refused: false, run: |env| restore(env, "/new", "/new", PLAIN) },
    Attempt {
        what: "open what was restored elsewhere",
        refused: false,
        run: |env| {
            restore(env, "/new", "/new", PLAIN)?;
            let copy = Db::open("/new", &options(env, ""))?;
            assert_eq!((text(&copy, "a"), text(&copy, "b")), (Some("backed up".into()), None));
            copy.close()
        },
    },
    Attempt {
        what: "destroy what was restored elsewhere",
        refused: false,
        run: |env| {
            restore(env, "/new", "/new/logs", PLAIN)?;
            Db::destroy("/new", &Options::new().env(env.clone()))
        },
    },
    Attempt {
        what: "repair what was restored elsewhere",
        refused: false,
        run: |env| {
            restore(env, "/new", "/new_logs", PLAIN)?;
            Db::repair("/new", &Options::new().env(env.clone())).map(drop)
        },
    },
    Attempt {
        what: "make a checkpoint under its name",
        refused: true,
        run: |env| {
            let other = Db::open("/third", &options(env, ""))?;
            Checkpoint::new(&other)?.create_checkpoint("/original", 0)
        },
    },
    Attempt {
        what: "keep backups in it",
        refused: false,
        run: |env| {
            let mut engine = BackupEngine::open(&BackupEngineOptions::new(ORIGINAL), env)?;
            engine.purge_old_backups(0)?;
            engine.garbage_collect()
        },
    },
];

#[test]
fn nothing_of_another_database_is_removed() {
    for attempt in ATTEMPTS {
        for is_open in [true, false] {
            let what =
                format!("{}, with the original {}", attempt.what, if is_open { "open" } else { "closed" });
            let (env, files) = memory();
            let (db, _) = original(&env, &files);
            copy_all(&files, ORIGINAL, "/copy");
            Db::open("/other", &options(&env, "")).unwrap().close().unwrap();
            let db = if is_open { Some(db) } else { db.close().map(|()| drop(db)).map(|()| None).unwrap() };
            let before = files_of_original(&files);
            let done = (attempt.run)(&env);
            assert_eq!(done.is_err(), attempt.refused, "{what}: {done:?}");
            if let Err(error) = &done {
                let kinds = [
                    ErrorKind::InvalidArgument,
                    ErrorKind::Locked,
                    ErrorKind::Corruption,
                    ErrorKind::NotFound,
                ];
                assert!(kinds.contains(&error.kind()), "{what}: {error}");
            }
            let after = files_of_original(&files);
            for (path, bytes) in &before {
                assert_eq!(after.get(path), Some(bytes), "{what}: {}", path.display());
            }
            let db = db.unwrap_or_else(|| {
                Db::open(ORIGINAL, &like_original(&env)).unwrap_or_else(|e| panic!("{what}: {e}"))
            });
            put(&db, "c", "later");
            db.close().unwrap_or_else(|e| panic!("{what}: {e}"));
            drop(db);
            let db = Db::open(ORIGINAL, &like_original(&env)).unwrap_or_else(|e| panic!("{what}: {e}"));
            let found = ["a", "b", "c"].map(|key| text(&db, key).unwrap_or_default());
            assert_eq!(found, ["backed up", "written since", "later"], "{what}");
        }
    }
}

#[test]
fn a_restored_database_has_logs_of_its_own() {
    for (wal, expected) in [("/restored", ""), ("/its_logs", "/its_logs")] {
        let (env, files) = memory();
        let (db, id) = original(&env, &files);
        backups(&env).restore_db_from_backup(id, "/restored", wal, &PLAIN).unwrap();
        let copy = Db::open("/restored", &Options::new().env(env.clone())).unwrap();
        assert_eq!(copy.options().wal_dir, expected);
        assert_eq!((text(&copy, "a"), text(&copy, "b")), (Some("backed up".into()), None));
        put(&copy, "c", "the copy's");
        copy.close().unwrap();
        assert_eq!((text(&db, "b"), text(&db, "c")), (Some("written since".into()), None));
        db.close().unwrap();
    }
}

#[test]
fn a_database_is_restored_in_place_with_its_logs_elsewhere() {
    let (env, files) = memory();
    let (db, id) = original(&env, &files);
    db.close().unwrap();
    drop(db);
    let restored = |how: RestoreOptions| {
        backups(&env).restore_db_from_backup(id, ORIGINAL, "/wal", &how).unwrap();
        let db = Db::open(ORIGINAL, &Options::new().env(env.clone())).unwrap();
        assert_eq!(db.options().wal_dir, "/wal");
        let found = ["a", "b"].map(|key| text(&db, key));
        db.close().unwrap();
        found
    };
    assert_eq!(restored(KEEP), [Some("backed up".into()), Some("written since".into())]);
    assert_eq!(restored(PLAIN), [Some("backed up".into()), None]);
}

/// RocksDB writes no LOCK next to logs, and ignores one.
#[test]
fn logs_without_a_sign_of_their_database_are_those_of_the_one_that_names_them() {
    let (env, files) = memory();
    let unmarked = || drop(files.remove(Path::new("/wal/LOCK")));
    let (db, id) = original(&env, &files);
    db.close().unwrap();
    drop(db);
    unmarked();
    let refused = restore(&env, "/new", "/wal", PLAIN).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let db = Db::open(ORIGINAL, &like_original(&env)).unwrap();
    assert_eq!(text(&db, "b").as_deref(), Some("written since"));
    db.close().unwrap();
    drop(db);
    unmarked();
    // The OPTIONS of this database names the logs' directory.
    backups(&env).restore_db_from_backup(id, ORIGINAL, "/wal", &PLAIN).unwrap();
    let db = Db::open(ORIGINAL, &with_wal_dir(&env, "/wal")).unwrap();
    assert_eq!(text(&db, "b"), None);
    db.close().unwrap();
    drop(db);
    unmarked();
    Db::destroy(ORIGINAL, &like_original(&env)).unwrap();
    for place in PLACES {
        assert!(!files.exists(Path::new(place)).unwrap(), "{place}");
    }
}

/// LOCK is copied with the logs, and names the original.
#[test]
fn a_copy_with_its_logs_opens_beside_the_original() {
    let (env, files) = memory();
    let (db, _) = original(&env, &files);
    db.close().unwrap();
    drop(db);
    for (from, to) in [(ORIGINAL, "/copy"), ("/wal", "/wal_copy"), ("/more", "/more_copy")] {
        copy_all(&files, from, to);
    }
    let before = files_of_original(&files);
    let copied = with_wal_dir(&env, "/wal_copy").db_paths([DbPath::new("/more_copy", 0)]);
    for reads_only in [true, false] {
        let copy = if reads_only { Db::open_read_only("/copy", &copied) } else { Db::open("/copy", &copied) };
        let copy = copy.unwrap();
        assert_eq!(text(&copy, "a").as_deref(), Some("backed up"));
        assert_eq!(text(&copy, "b").as_deref(), Some("written since"));
        copy.close().unwrap();
    }
    assert_eq!(files_of_original(&files), before);
}

#[test]
fn a_database_that_was_moved_keeps_its_directories() {
    let (env, files) = memory();
    let (db, _) = original(&env, &files);
    db.close().unwrap();
    drop(db);
    files.rename(Path::new(ORIGINAL), Path::new("/moved")).unwrap();
    let db = Db::open("/moved", &like_original(&env)).unwrap();
    assert_eq!(text(&db, "b").as_deref(), Some("written since"));
    db.close().unwrap();
    drop(db);
    // A new database at the old path has another identity, and cannot use these logs.
    let refused = Db::open(ORIGINAL, &with_wal_dir(&env, "/wal")).unwrap_err();
    assert!(refused.to_string().contains("/moved"), "{refused}");
    files.rename(Path::new("/moved"), Path::new("/again")).unwrap();
    let db = Db::open("/again", &like_original(&env)).unwrap();
    assert_eq!(text(&db, "b").as_deref(), Some("written since"));
    db.close().unwrap();
}

#[test]
fn a_new_database_does_not_take_the_logs_of_one_that_was_in_its_place() {
    let (env, files) = memory();
    let (db, _) = original(&env, &files);
    db.close().unwrap();
    drop(db);
    files.rename(Path::new(ORIGINAL), Path::new("/moved")).unwrap();
    let refused = Db::open(ORIGINAL, &with_wal_dir(&env, "/wal")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let db = Db::open("/moved", &like_original(&env)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(text(&db, "b").as_deref(), Some("written since"));
    db.close().unwrap();
}

/// A directory of backups may contain foreign files.
#[test]
fn backups_that_go_leave_files_that_are_not_theirs() {
    let (env, files): (_, Arc<MemoryFileSystem>) = memory();
    let (db, _) = original(&env, &files);
    db.close().unwrap();
    let own = [
        "/backups/private/letters/to_a_friend.txt",
        "/backups/private/007/000007.log",
        "/backups/private/1/notes.txt",
        "/backups/private/.letters.tmp",
        "/backups/shared/report.sst",
        "/backups/shared/.report.tmp",
        "/backups/shared_checksum/holiday_1.jpg",
        "/backups/meta/draft.tmp",
        "/backups/meta/.draft.tmp",
    ];
    for path in own {
        files.write_file(Path::new(path), vec![1]).unwrap();
    }
    // Files of unfinished backups.
    let left = [
        "/backups/private/9/000007.log",
        "/backups/private/8.tmp/MANIFEST-000007",
        "/backups/shared/000009.sst",
        "/backups/shared_checksum/.000009_sX_9.sst.tmp",
        "/backups/meta/.9.tmp",
    ];
    for path in left {
        files.write_file(Path::new(path), vec![1]).unwrap();
    }
    let mut engine = BackupEngine::open(&BackupEngineOptions::new("/backups"), &env).unwrap();
    engine.purge_old_backups(0).unwrap();
    for path in own {
        assert!(files.exists(Path::new(path)).unwrap(), "{path}");
    }
    for path in left {
        assert!(!files.exists(Path::new(path)).unwrap(), "{path}");
    }
    assert!(!files.exists(Path::new("/backups/private/1/CURRENT")).unwrap());
    assert!(!files.exists(Path::new("/backups/private/9")).unwrap());
}
