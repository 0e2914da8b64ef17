//! Repair of databases with tables in several directories (`db_paths`, `cf_paths`): files lost in
//! each of them, and files found only through the options.

use crate::repair::*;
use karst_engine::{
    CompactRangeOptions, DbPath, ErrorKind, IngestExternalFileArg, IngestExternalFileOptions, LiveFile,
    SstFileWriter,
};
use std::collections::BTreeSet;

/// Two families share the last directory, and the second family lists the first of its own twice.
const PLACES: [&str; 4] = ["/db", "/big", "/own/first", "/own/last"];

fn with_paths(env: &Env) -> Options {
    options(env, "")
        .db_paths([DbPath::new("/db", 1_000), DbPath::new("/big", 0)])
        .cf_paths(
            Some("second"),
            [
                DbPath::new("/own/first", 20_000),
                DbPath::new("/own/first", 20_000),
                DbPath::new("/own/last", 0),
            ],
        )
        .cf_paths(Some("third"), [DbPath::new("/own/last", 0)])
}

struct Spread {
    files: Arc<MemoryFileSystem>,
    options: Options,
    there: BTreeMap<String, Contents>,
    live: Vec<LiveFile>,
}

fn spread() -> Spread {
    let (env, files) = memory();
    let options = with_paths(&env);
    fill(Path::new("/db"), &options, 9);
    // Compacts into the last paths, and writes newer entries to the first ones.
    let db = Db::open_cf("/db", &options, &FAMILIES).unwrap();
    for (name, target_path_id) in [("default", 1), ("second", 2)] {
        let family = db.column_family(name).unwrap();
        let range = CompactRangeOptions { target_path_id, ..Default::default() };
        db.compact_range_cf(&range, &family, None, None).unwrap();
        for number in 0..40 {
            db.put_cf(&WriteOptions::new(), &family, key(number * 10), [b'n'; 150]).unwrap();
        }
        db.flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
    }
    db.put("in the log", "only").unwrap();
    let there = all(&db);
    db.close().unwrap();
    drop(db);
    let db = Db::open_read_only("/db", &options).unwrap();
    let live: Vec<LiveFile> = db.live_files();
    let used: BTreeSet<&Path> = live.iter().map(|file| file.directory.as_path()).collect();
    assert_eq!(used, PLACES.map(Path::new).into(), "each has something");
    Spread { files, options, there, live }
}

impl Spread {
    fn copy(&self) -> Spread {
        let files = Arc::new(self.files.copy());
        let options = with_paths(&Env::builder().file_system(files.clone()).build());
        Spread { files, options, there: self.there.clone(), live: self.live.clone() }
    }

    fn damaged(&self) -> Vec<PathBuf> {
        let report = Db::verify_files("/db", &self.options, None, |_| {}).unwrap();
        report.damaged.into_iter().map(|file| file.path).collect()
    }

    /// Returns all tables and blob files in all directories.
    fn stored(&self) -> BTreeSet<PathBuf> {
        let ends = [".sst", ".blob"].into_iter();
        ends.flat_map(|end| PLACES.map(|place| named(&*self.files, place, end))).flatten().collect()
    }

    /// Returns all entries before and after a compaction, and asserts that the directories hold
    /// only needed files.
    fn all(&self) -> BTreeMap<String, Contents> {
        let db = Db::open("/db", &self.options).unwrap();
        db.verify_checksum().unwrap();
        let found = all(&db);
        for family in FAMILIES.map(|name| db.column_family(name).unwrap()) {
            db.put_cf(&WriteOptions::new(), &family, "zzz", [0; 8]).unwrap();
            db.delete_cf(&WriteOptions::new(), &family, "zzz").unwrap();
            db.compact_range_cf(&Default::default(), &family, None, None).unwrap();
        }
        assert_eq!(all(&db), found, "compacted");
        db.close().unwrap();
        let needed: BTreeSet<PathBuf> =
            db.live_files().into_iter().map(|file| file.directory.join(file.name)).collect();
        assert_eq!(self.stored(), needed);
        assert_eq!(self.damaged(), Vec::<PathBuf>::new());
        found
    }
}

#[test]
fn what_is_sound_stays_as_it_is() {
    let mut sound = spread();
    // A missing directory of a family that does not exist yet.
    sound.options = sound.options.cf_paths(Some("later"), [DbPath::new("/later", 0)]);
    assert_eq!(sound.damaged(), Vec::<PathBuf>::new());
    let before = sound.stored();
    let report = Db::repair("/db", &sound.options).unwrap();
    assert_eq!((&report.lost, &report.missing, &report.renumbered), (&vec![], &vec![], &vec![]), "{report}");
    assert_eq!(report.trees_made_anew, None);
    assert!(before.is_subset(&sound.stored()), "the tables stay where they are");
    assert_eq!(sound.all(), sound.there);
}

#[test]
fn a_file_that_is_lost_or_damaged_costs_its_own_family_only() {
    let sound = spread();
    for place in PLACES {
        let here = sound.live.iter().filter(|file| file.directory == Path::new(place));
        let mut tried = BTreeSet::new();
        for lost in here {
            // One file of each family and kind.
            if !tried.insert((&lost.column_family, lost.level.is_some())) {
                continue;
            }
            let path = Path::new(place).join(&lost.name);
            for damages in [false, true] {
                let what = format!("{}, damaged: {damages}", path.display());
                let less = sound.copy();
                match damages {
                    true => flip(&*less.files, &path, 20),
                    false => less.files.remove(&path).unwrap(),
                }
                assert_eq!(less.damaged(), std::slice::from_ref(&path), "{what}");
                let report = Db::repair("/db", &less.options).unwrap_or_else(|e| panic!("{what}: {e}"));
                // A damaged blob file is found only by reads.
                if lost.level.is_none() && damages {
                    continue;
                }
                match damages {
                    true => {
                        let [kept] = &report.lost[..] else { panic!("{what}: {report}") };
                        assert_eq!((&kept.path, &kept.lost), (&path, &lost_of(&path)), "{what}");
                        assert!(less.files.exists(&kept.lost).unwrap(), "{what}");
                    }
                    false => assert_eq!(report.missing, std::slice::from_ref(&path), "{what}: {report}"),
                }
                if lost.level.is_none() {
                    continue;
                }
                let found = less.all();
                for (family, expected) in &sound.there {
                    assert_eq!(found[family] == *expected, *family != lost.column_family, "{what}: {family}");
                }
            }
        }
        assert!(!tried.is_empty(), "{place}");
    }
}

fn lost_of(path: &Path) -> PathBuf {
    path.parent().unwrap().join("lost").join(path.file_name().unwrap())
}

#[test]
fn where_the_manifest_is_lost_the_options_say_where_tables_are() {
    let sound = spread();
    for parts in [&["MANIFEST"][..], &["MANIFEST", "CURRENT", "OPTIONS", "IDENTITY"]] {
        let less = sound.copy();
        let gone: Vec<PathBuf> = parts.iter().flat_map(|part| named(&*less.files, "/db", part)).collect();
        gone.iter().for_each(|path| less.files.remove(path).unwrap());
        let report = Db::repair("/db", &less.options).unwrap();
        assert!(report.trees_made_anew.is_some(), "{report}");
        assert_eq!((&report.missing, &report.renumbered), (&vec![], &vec![]), "{report}");
        assert_eq!(less.all(), sound.there, "without {parts:?}: {report}");
    }
    // A table in a directory that its family does not have is reported, and no file is changed.
    let less = sound.copy();
    named(&*less.files, "/db", "MANIFEST").iter().for_each(|path| less.files.remove(path).unwrap());
    let of_third = sound.live.iter().find(|file| file.column_family == "third").unwrap();
    let moved = Path::new("/big").join(&of_third.name);
    let before = less.stored();
    less.files.rename(&of_third.directory.join(&of_third.name), &moved).unwrap();
    let refused = Db::repair("/db", &less.options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert!(refused.to_string().contains(moved.to_str().unwrap()), "{refused}");
    less.files.rename(&moved, &of_third.directory.join(&of_third.name)).unwrap();
    assert_eq!(less.stored(), before);
    Db::repair("/db", &less.options).unwrap();
    assert_eq!(less.all(), sound.there);
}

/// A copy of a database with several paths has one directory for all path ids.
#[test]
fn one_directory_may_stand_for_all_path_ids() {
    for family in [false, true] {
        let (env, files) = memory();
        let paths =
            [("/db", 30_000), ("/db", 60_000), ("/db", 0)].map(|(path, size)| DbPath::new(path, size));
        let options = match family {
            true => options(&env, "").cf_paths(None, paths),
            false => options(&env, "").db_paths(paths),
        };
        let there = fill(Path::new("/db"), &options, 9);
        for without_manifest in [false, true] {
            if without_manifest {
                named(&*files, "/db", "MANIFEST").iter().for_each(|path| files.remove(path).unwrap());
            }
            let report = Db::repair("/db", &options).unwrap();
            assert_eq!((&report.missing, &report.renumbered), (&vec![], &vec![]), "{report}");
            let db = Db::open("/db", &options).unwrap();
            assert_eq!(all(&db), there);
            db.close().unwrap();
            assert_eq!(Db::verify_files("/db", &options, None, |_| {}).unwrap().damaged, vec![]);
        }
    }
}

#[test]
fn a_copy_of_a_table_elsewhere_takes_its_place_from_none() {
    let sound = spread();
    for file in sound.live.iter().filter(|file| file.level.is_some()) {
        for place in PLACES.map(Path::new).into_iter().filter(|place| *place != file.directory) {
            let more = sound.copy();
            let bytes = more.files.read_file(&file.directory.join(&file.name)).unwrap();
            rewrite(&*more.files, &place.join(&file.name), &bytes);
            let report = Db::repair("/db", &more.options).unwrap();
            assert_eq!(report.trees_made_anew, None, "{report}");
            let lost: Vec<&Path> = report.lost.iter().map(|lost| &*lost.path).collect();
            assert_eq!(lost, [place.join(&file.name)], "{report}");
            assert_eq!(more.all(), sound.there, "{report}");
        }
    }
}

#[test]
fn a_table_that_was_moved_to_another_path_of_its_family_is_found_there() {
    let sound = spread();
    let moved = sound.copy();
    for file in &sound.live {
        if file.level.is_some() && file.directory == Path::new("/own/first") {
            let to = Path::new("/own/last").join(&file.name);
            moved.files.rename(&file.directory.join(&file.name), &to).unwrap();
        }
    }
    assert!(Db::open("/db", &moved.options).is_err());
    let report = Db::repair("/db", &moved.options).unwrap();
    assert!(report.lost.is_empty() && report.missing.is_empty(), "{report}");
    assert_eq!(moved.all(), sound.there);
}

/// Ingested tables name no family, or one of another database.
#[test]
fn ingested_tables_are_of_the_family_that_has_them() {
    let sound = spread();
    let env = Env::builder().file_system(sound.files.clone()).build();
    let mut writer = SstFileWriter::create(&options(&env, "")).unwrap();
    writer.open("/outside.sst").unwrap();
    (0..30).for_each(|number| writer.put(key(number * 7), [b'i'; 50]).unwrap());
    writer.finish().unwrap();
    let db = Db::open("/db", &sound.options).unwrap();
    for name in ["default", "second"] {
        let family = db.column_family(name).unwrap();
        let how = IngestExternalFileOptions::default();
        db.ingest_external_files(&[IngestExternalFileArg::new(&family, ["/outside.sst"], how)]).unwrap();
    }
    let there = all(&db);
    db.close().unwrap();
    drop(db);
    for _ in 0..2 {
        let report = Db::repair("/db", &sound.options).unwrap();
        assert!(report.lost.is_empty() && report.missing.is_empty(), "{report}");
        assert_eq!(report.trees_made_anew, None);
        assert_eq!(sound.all(), there);
    }
}

/// Missing tables of a dropped family need no repair.
#[test]
fn tables_of_a_dropped_family_are_no_reason_for_doubt() {
    let (env, files) = memory();
    let options = options(&env, "");
    let mut there = fill(Path::new("/db"), &options, 9);
    there.remove("third");
    let db = Db::open("/db", &options).unwrap();
    // From here on, the options lack those of the dropped family.
    let options = plain(&env, "");
    db.drop_column_family(&db.column_family("third").unwrap()).unwrap();
    let table = db.live_files().into_iter().find(|file| file.level.is_some()).unwrap();
    db.close().unwrap();
    drop(db);
    // A table like one that a compaction leaves when a crash ends it.
    let bytes = files.read_file(&table.directory.join(&table.name)).unwrap();
    rewrite(&*files, Path::new("/db/900000.sst"), &bytes);
    let report = Db::repair("/db", &options).unwrap();
    assert_eq!(report.trees_made_anew, None, "{report}");
    let db = Db::open("/db", &options).unwrap();
    for (name, expected) in &there {
        assert_eq!(contents(&db, name), *expected, "{name}");
    }
}
