//! Opening with `best_efforts_recovery`: recovers the newest state of each column family whose
//! files all exist, and keeps the files that the state leaves out.

use karst_engine::{Db, DbPath, ErrorKind, FlushOptions, Options, ReadOptions, WriteOptions};
use karst_testkit::rocksdb_tools::{ldb, ldb_scan};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn plain(more: &str) -> Options {
    let all = "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;format_version=5;disable_auto_compactions=true";
    Options::new().set_all(all).unwrap().set_all(more).unwrap()
}

fn best_efforts(more: &str) -> Options {
    plain("create_if_missing=false;best_efforts_recovery=true").set_all(more).unwrap()
}

fn contents(db: &Db, family: &str) -> Contents {
    let family = db.column_family(family).unwrap();
    let mut iterator = db.iter_cf(&ReadOptions::new(), &family).unwrap();
    let mut found = Contents::new();
    iterator.seek_to_first().unwrap();
    while iterator.valid() {
        found.insert(iterator.key().to_vec(), iterator.value().to_vec());
        iterator.next().unwrap();
    }
    iterator.status().unwrap();
    found
}

/// Writes one round per table and one that stays in the log. Returns the states of both families
/// after each round.
fn fill(path: &Path, how: &Options) -> Vec<[Contents; 2]> {
    let db = Db::open_cf(path, how, &["default", "other"]).unwrap();
    let other = db.column_family("other").unwrap();
    let mut states = vec![[Contents::new(), Contents::new()]];
    for round in 0..5u32 {
        for number in 0..50u32 {
            let value = format!("round {round}").repeat(30);
            db.put(format!("{:03}", (number * 3 + round) % 80), &value).unwrap();
            db.put_cf(&WriteOptions::default(), &other, format!("o{:03}", number + round), &value).unwrap();
        }
        db.delete(format!("{:03}", round * 5)).unwrap();
        if round < 4 {
            let both = [db.default_column_family(), &other];
            db.flush_cfs(&FlushOptions::default(), &both).unwrap();
        }
        states.push(["default", "other"].map(|family| contents(&db, family)));
    }
    drop(other);
    db.close().unwrap();
    states
}

fn files(path: &Path, part: &str) -> Vec<PathBuf> {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        names.filter(|path| path.file_name().unwrap().to_string_lossy().contains(part)).collect();
    found.sort();
    found
}

/// Returns the tables of a family, oldest first.
fn tables(path: &Path, family: &str) -> Vec<PathBuf> {
    let db = Db::open_read_only(path, &Options::new()).unwrap();
    let mut found: Vec<PathBuf> = db
        .live_files()
        .into_iter()
        .filter(|file| file.column_family == family && file.level.is_some())
        .map(|file| file.directory.join(file.name))
        .collect();
    found.sort();
    found
}

#[test]
fn nothing_is_missing_and_nothing_is_left_out() {
    for current in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let states = fill(&path, &plain("track_and_verify_wals_in_manifest=true"));
        if !current {
            std::fs::remove_file(path.join("CURRENT")).unwrap();
            assert!(Db::open(&path, &plain("")).is_err());
        }
        let read = Db::open_read_only(&path, &best_efforts("")).unwrap();
        // The log is replayed too, because no earlier file is missing.
        assert_eq!(contents(&read, "default"), states[5][0]);
        drop(read);
        let db = Db::open(&path, &best_efforts("")).unwrap();
        for (at, family) in ["default", "other"].into_iter().enumerate() {
            assert_eq!(contents(&db, family), states[5][at]);
        }
        db.close().unwrap();
        drop(db);
        assert!(!path.join("lost").exists());
        assert_eq!(contents(&Db::open(&path, &plain("")).unwrap(), "other"), states[5][1]);
    }
}

#[test]
fn a_family_is_set_back_to_where_its_tables_are_all_there() {
    for (missing, shortened) in [(1, false), (3, false), (3, true), (0, false)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let states = fill(&path, &plain("avoid_flush_during_recovery=true"));
        let of_default = tables(&path, "default");
        assert_eq!(of_default.len(), 4);
        let gone = &of_default[missing];
        let bytes = std::fs::read(gone).unwrap();
        match shortened {
            true => std::fs::write(gone, &bytes[..bytes.len() - 1]).unwrap(),
            false => std::fs::remove_file(gone).unwrap(),
        }
        assert_eq!(Db::open(&path, &plain("")).unwrap_err().kind(), ErrorKind::Corruption);
        let expected = [states[missing][0].clone(), states[4][1].clone()];
        let read = Db::open_read_only(&path, &best_efforts("")).unwrap();
        assert_eq!(contents(&read, "default"), expected[0]);
        drop(read);
        let logs = files(&path, ".log");
        let db = Db::open(&path, &best_efforts("")).unwrap();
        for (at, family) in ["default", "other"].into_iter().enumerate() {
            assert_eq!(contents(&db, family), expected[at], "{family}, table {missing}");
        }
        db.put("zzz", "later").unwrap();
        db.close().unwrap();
        drop(db);
        // From then on it opens normally, also in RocksDB.
        let db = Db::open(&path, &plain("")).unwrap();
        assert_eq!(contents(&db, "default").len(), expected[0].len() + 1);
        db.close().unwrap();
        drop(db);
        assert_eq!(ldb(&path, &["checkconsistency"], b"").unwrap().trim(), "OK");
        assert_eq!(ldb_scan(&path, "other").unwrap().into_iter().collect::<Contents>(), expected[1]);
        // Files that were left out are kept in `lost`.
        let kept = path.join("lost");
        for file in of_default[missing + 1..].iter().chain(&logs) {
            assert!(kept.join(file.file_name().unwrap()).exists(), "{}", file.display());
            assert!(!file.exists(), "{}", file.display());
        }
        if !shortened {
            std::fs::write(gone, bytes).unwrap();
        }
    }
}

#[test]
fn a_table_in_another_familys_directory_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let (path, own) = (directory.path().join("db"), directory.path().join("own"));
    let paths = |options: Options| options.cf_paths(Some("other"), [DbPath::new(&own, 0)]);
    let states = fill(&path, &paths(plain("avoid_flush_during_recovery=true")));
    let newest = files(&own, ".sst").pop().unwrap();
    std::fs::rename(&newest, path.join(newest.file_name().unwrap())).unwrap();
    assert_eq!(Db::open(&path, &paths(plain(""))).unwrap_err().kind(), ErrorKind::Corruption);
    let db = Db::open(&path, &paths(best_efforts(""))).unwrap();
    let found = ["default", "other"].map(|family| contents(&db, family));
    assert_eq!(found, [states[4][0].clone(), states[3][1].clone()]);
    db.close().unwrap();
}

#[test]
fn atomic_flushes_are_there_for_all_families_or_for_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let states = fill(&path, &plain("atomic_flush=true"));
    std::fs::remove_file(&tables(&path, "other")[2]).unwrap();
    let db = Db::open(&path, &best_efforts("atomic_flush=true")).unwrap();
    for (at, family) in ["default", "other"].into_iter().enumerate() {
        assert_eq!(contents(&db, family), states[2][at], "{family}");
    }
}

#[test]
fn blob_files_are_files_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let states = fill(&path, &plain("enable_blob_files=true;min_blob_size=50"));
    let blobs = files(&path, ".blob");
    assert_eq!(blobs.len(), 8);
    // Blob files of the two families alternate in the order of the flushes.
    let db = Db::open_read_only(&path, &Options::new()).unwrap();
    let of_default = |name: &PathBuf| {
        let name = name.file_name().unwrap().to_string_lossy().into_owned();
        db.live_files().iter().any(|file| file.column_family == "default" && file.name == name)
    };
    let third = blobs.iter().filter(|name| of_default(name)).nth(2).unwrap();
    std::fs::remove_file(third).unwrap();
    drop(db);
    let db = Db::open(&path, &best_efforts("")).unwrap();
    assert_eq!(contents(&db, "default"), states[2][0]);
    assert_eq!(contents(&db, "other"), states[4][1]);
}

#[test]
fn a_manifest_counts_up_to_where_it_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let states = fill(&path, &plain(""));
    let manifest = files(&path, "MANIFEST").pop().unwrap();
    let whole = std::fs::read(&manifest).unwrap();
    let mut seen = 0;
    for at in (0..whole.len()).step_by(97) {
        let copy = directory.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for file in files(&path, "") {
            if file.is_file() {
                std::fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
            }
        }
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(copy.join(manifest.file_name().unwrap()), bytes).unwrap();
        match Db::open(&copy, &best_efforts("")) {
            Ok(db) => {
                seen += 1;
                let found = contents(&db, "default");
                assert!(states.iter().any(|state| state[0] == found), "byte {at}: no state it ever had");
            }
            // There is no state if the records that begin every MANIFEST are unreadable.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}: {error}"),
        }
        std::fs::remove_dir_all(&copy).unwrap();
    }
    assert!(seen > 3, "{seen}");
}

/// CURRENT names a missing MANIFEST, and an older one exists.
#[test]
fn an_older_manifest_is_taken_where_the_one_in_force_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let states = fill(&path, &plain(""));
    let manifest = files(&path, "MANIFEST").pop().unwrap();
    std::fs::copy(&manifest, path.join("MANIFEST-000001")).unwrap();
    // A MANIFEST that was begun and not finished has no state.
    let bytes = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &bytes[..20]).unwrap();
    assert!(Db::open(&path, &plain("")).is_err());
    let read = Db::open_read_only(&path, &best_efforts("")).unwrap();
    assert_eq!(contents(&read, "default"), states[5][0]);
    drop(read);
    std::fs::remove_file(&manifest).unwrap();
    assert!(Db::open(&path, &plain("")).is_err());
    let db = Db::open(&path, &best_efforts("")).unwrap();
    assert_eq!(contents(&db, "default"), states[5][0]);
    assert_eq!(contents(&db, "other"), states[5][1]);
    db.close().unwrap();
    drop(db);
    assert_eq!(contents(&Db::open(&path, &plain("")).unwrap(), "default"), states[5][0]);
}

#[test]
fn without_any_manifest_nothing_is_made_over_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    fill(&path, &plain(""));
    for file in files(&path, "MANIFEST").into_iter().chain(files(&path, "CURRENT")) {
        std::fs::remove_file(file).unwrap();
    }
    let before = files(&path, "");
    for how in [best_efforts(""), best_efforts("create_if_missing=true")] {
        let error = Db::open(&path, &how).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert_eq!(
            files(&path, ".sst"),
            before.iter().filter(|f| f.to_string_lossy().ends_with(".sst")).cloned().collect::<Vec<_>>()
        );
    }
    let secondary = directory.path().join("secondary");
    fill(&directory.path().join("two"), &plain(""));
    let error =
        Db::open_as_secondary(directory.path().join("two"), secondary, &best_efforts("")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
}
