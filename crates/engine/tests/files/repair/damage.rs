//! Files of each kind lost, cut short or changed.

use crate::copies::export_of_cut_tombstones;
use crate::repair::*;
use karst_engine::{ErrorKind, RepairReport};

/// A database in memory, with its entries.
struct Subject {
    env: Env,
    files: Arc<MemoryFileSystem>,
    options: Options,
    there: BTreeMap<String, Contents>,
}

fn subject(more: &str) -> Subject {
    let (env, files) = memory();
    let options = options(&env, more);
    let there = fill(Path::new("/db"), &options, 9);
    Subject { env, files, options, there }
}

impl Subject {
    /// Returns a copy with separate files.
    fn copy(&self) -> Subject {
        let files = Arc::new(self.files.copy());
        let env = Env::builder().file_system(files.clone()).build();
        let options = options(&env, "");
        Subject { env, files, options, there: self.there.clone() }
    }

    fn named(&self, part: &str) -> Vec<PathBuf> {
        named(&*self.files, "/db", part)
    }

    fn repair(&self) -> RepairReport {
        Db::repair("/db", &self.options).unwrap()
    }

    fn open(&self) -> Db {
        Db::open("/db", &self.options).unwrap()
    }

    /// Repairs the database and asserts that it has all of its entries.
    fn has_all(&self, what: &str) -> RepairReport {
        let report = Db::repair("/db", &self.options).unwrap_or_else(|e| panic!("{what}: {e}"));
        let db = Db::open("/db", &self.options).unwrap_or_else(|e| panic!("{what}: {e}\n{report}"));
        db.verify_checksum().unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = all(&db);
        for (family, expected) in &self.there {
            let found = &found[family];
            for (key, value) in expected {
                assert_eq!(found.get(key), Some(value), "{what}: {family}, {}\n{report}", key.escape_ascii());
            }
            assert_eq!(found.len(), expected.len(), "{what}: {family}\n{report}");
        }
        db.put("later", "written").unwrap();
        db.compact_range(&Default::default(), None, None).unwrap();
        assert_eq!(contents(&db, "second"), self.there["second"], "{what}, compacted");
        assert_eq!(contents(&db, "third"), self.there["third"], "{what}, compacted");
        db.close().unwrap();
        report
    }
}

#[test]
fn what_is_sound_stays_as_it_is() {
    let sound = subject("");
    let tables = sound.named(".sst");
    let report = sound.has_all("sound");
    assert_eq!(report.trees_made_anew, None, "{report}");
    assert_eq!((&report.lost, &report.missing), (&vec![], &vec![]), "{report}");
    assert!(report.options.is_some() && report.manifest.is_some() && report.logs > 0, "{report}");
    assert_eq!(report.column_families.len(), 3);
    assert!(tables.len() > 5, "it has several levels: {tables:?}");
    assert!(named(&*sound.files, "/db", "lost").is_empty());
    let again = sound.repair();
    assert_eq!((again.lost, again.trees_made_anew), (vec![], None));
}

#[test]
fn the_manifest_current_and_options_may_be_lost() {
    let sound = subject("");
    for parts in [
        &["MANIFEST"][..],
        &["CURRENT"],
        &["MANIFEST", "CURRENT"],
        &["OPTIONS"],
        &["MANIFEST", "CURRENT", "OPTIONS", "IDENTITY"],
    ] {
        let damaged = sound.copy();
        for part in parts {
            damaged.named(part).iter().for_each(|path| damaged.files.remove(path).unwrap());
        }
        let report = damaged.has_all(&format!("without {parts:?}"));
        let anew = parts.contains(&"MANIFEST");
        assert_eq!(report.trees_made_anew.is_some(), anew, "{parts:?}: {report}");
        assert_eq!(report.options.is_none(), parts.contains(&"OPTIONS"), "{parts:?}: {report}");
        let again = damaged.repair();
        assert_eq!((again.lost, again.trees_made_anew), (vec![], None), "{parts:?}");
    }
}

/// Returns the ends of the records of a file shorter than a block: each has a header of 7 bytes,
/// with the length of its data after the checksum.
fn ends_of_records(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let next = move |at: &usize| {
        let length = bytes.get(at + 4..at + 6)?;
        Some(at + 7 + usize::from(u16::from_le_bytes([length[0], length[1]])))
    };
    std::iter::successors(next(&0), next)
}

#[test]
fn a_manifest_that_is_cut_short_or_changed_anywhere_costs_nothing() {
    let sound = subject("");
    let manifest = sound.named("MANIFEST").pop().unwrap();
    let bytes = sound.files.read_file(&manifest).unwrap();
    let step = if karst_testkit::asked::long() { 7 } else { bytes.len() / 24 };
    // Cuts between records too, because nothing there shows that a record is missing.
    let ends: Vec<usize> = ends_of_records(&bytes).filter(|end| *end < bytes.len()).collect();
    assert!(ends.len() > 10, "{ends:?}");
    for at in (0..bytes.len()).step_by(step).chain(ends) {
        let cut = sound.copy();
        rewrite(&*cut.files, &manifest, &bytes[..at]);
        cut.has_all(&format!("MANIFEST cut at {at} of {}", bytes.len()));
        let changed = sound.copy();
        flip(&*changed.files, &manifest, at);
        changed.has_all(&format!("MANIFEST changed at {at}"));
    }
}

#[test]
fn a_current_of_other_bytes_is_no_hindrance() {
    let sound = subject("");
    for bytes in [&b""[..], b"MANIFEST-", b"MANIFEST-999999\n", b"\xff\0\n", b"000005.sst\n"] {
        let damaged = sound.copy();
        rewrite(&*damaged.files, Path::new("/db/CURRENT"), bytes);
        let report = damaged.has_all(&format!("CURRENT {}", bytes.escape_ascii()));
        assert_eq!(report.trees_made_anew, None, "{report}");
    }
}

#[test]
fn a_table_that_cannot_be_read_is_in_lost_and_all_others_are_there() {
    let sound = subject("");
    for without_manifest in [false, true] {
        for (index, table) in sound.named(".sst").into_iter().enumerate() {
            let damaged = sound.copy();
            let bytes = damaged.files.read_file(&table).unwrap();
            match index % 4 {
                0 => flip(&*damaged.files, &table, bytes.len() / 3),
                1 => rewrite(&*damaged.files, &table, &bytes[..bytes.len() / 2]),
                2 => rewrite(&*damaged.files, &table, &[]),
                _ => flip(&*damaged.files, &table, bytes.len() - 5),
            }
            let left = damaged.files.read_file(&table).unwrap();
            if without_manifest {
                damaged.named("MANIFEST").iter().for_each(|path| damaged.files.remove(path).unwrap());
            }
            let report = damaged.repair();
            let lost: Vec<_> = report.lost.iter().filter(|file| file.path == table).collect();
            assert_eq!(lost.len(), 1, "{report}");
            assert_eq!(damaged.files.read_file(&lost[0].lost).unwrap(), left);
            assert!(!damaged.files.exists(&table).unwrap());
            // Without a MANIFEST, a family whose only table is lost becomes unknown.
            let db = Db::open_cf("/db", &damaged.options, &FAMILIES).unwrap();
            db.verify_checksum().unwrap();
            let found = all(&db);
            // Entries in other tables and in the log are recovered.
            let most = sound.there["default"].len();
            let found_of =
                |name: &str| found[name].keys().filter(|key| sound.there[name].contains_key(*key)).count();
            assert!(found_of("default") > most / 4, "{report}");
            db.close().unwrap();
        }
    }
}

#[test]
fn a_table_that_is_gone_is_told() {
    let sound = subject("");
    for table in sound.named(".sst") {
        let damaged = sound.copy();
        damaged.files.remove(&table).unwrap();
        assert_eq!(Db::open("/db", &damaged.options).unwrap_err().kind(), ErrorKind::Corruption);
        let report = damaged.repair();
        assert_eq!(report.missing, [table], "{report}");
        damaged.open().close().unwrap();
    }
}

#[test]
fn logs_are_replayed_as_far_as_they_can_be_read_and_kept_if_they_are_damaged() {
    let sound = subject("");
    let log = sound.named(".log").pop().unwrap();
    let bytes = sound.files.read_file(&log).unwrap();
    assert!(bytes.len() > 1000);
    for at in (0..bytes.len()).step_by(bytes.len() / 12) {
        let damaged = sound.copy();
        flip(&*damaged.files, &log, at);
        let left = damaged.files.read_file(&log).unwrap();
        let report = damaged.repair();
        let lost: Vec<_> = report.lost.iter().filter(|file| file.path == log).collect();
        assert_eq!(lost.len(), 1, "changed at {at}: {report}");
        assert_eq!(damaged.files.read_file(&lost[0].lost).unwrap(), left);
        let db = damaged.open();
        // Entries before the damage are recovered, and those after the damaged block of the log.
        let found = contents(&db, "default");
        let differ =
            sound.there["default"].iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
        let most = 150 * (bytes.len() - at) / bytes.len() + 15;
        assert!(differ <= most, "changed at {at}: {differ}, at most {most}");
        db.close().unwrap();
    }
}

#[test]
fn families_of_which_nothing_is_known_are_told_and_their_log_is_kept() {
    let (env, files) = memory();
    let options = options(&env, "");
    let db = Db::open_cf("/db", &options, &FAMILIES).unwrap();
    let third = db.column_family("third").unwrap();
    db.put("a", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.put_cf(&WriteOptions::new(), &third, "b", "2").unwrap();
    db.put("c", "3").unwrap();
    db.close().unwrap();
    named(&*files, "/db", "MANIFEST").iter().for_each(|path| files.remove(path).unwrap());
    let plain = Options::new().env(env.clone());
    let report = Db::repair("/db", &plain).unwrap();
    assert_eq!(report.entries_of_unknown_families, 1, "{report}");
    assert_eq!(report.lost.len(), 1, "{report}");
    let db = Db::open("/db", &plain).unwrap();
    assert_eq!(contents(&db, "default"), [("a", "1"), ("c", "3")].map(|(k, v)| (k.into(), v.into())).into());
}

#[test]
fn families_that_were_dropped_stay_dropped() {
    let sound = subject("");
    let db = sound.open();
    let held = db.column_family("second").unwrap();
    let tables: Vec<_> = named(&*sound.files, "/db", ".sst");
    let copies: Vec<_> = tables.iter().map(|path| (path, sound.files.read_file(path).unwrap())).collect();
    db.drop_column_family(&held).unwrap();
    drop(held);
    db.close().unwrap();
    // Restores the tables of the dropped family, like a crash before they were removed.
    copies.iter().for_each(|(path, bytes)| sound.files.write_file(path, bytes.clone()).unwrap());
    sound.files.remove(Path::new("/db/CURRENT")).unwrap();
    let report = sound.repair();
    let db = Db::open("/db", &Options::new().env(sound.env.clone())).unwrap();
    assert!(db.column_family("second").is_none(), "{report}");
    assert_eq!(contents(&db, "default"), sound.there["default"], "{report}");
    assert!(!report.lost.is_empty(), "{report}");
}

#[test]
fn blob_files_are_registered_again_and_damaged_ones_are_kept_aside() {
    let sound = subject("");
    let blobs = sound.named(".blob");
    assert!(blobs.len() > 1, "{blobs:?}");
    for without_manifest in [false, true] {
        let damaged = sound.copy();
        let size = damaged.files.read_file(&blobs[0]).unwrap().len();
        flip(&*damaged.files, &blobs[0], size - 3);
        damaged.files.remove(&blobs[1]).unwrap();
        if without_manifest {
            damaged.named("MANIFEST").iter().for_each(|path| damaged.files.remove(path).unwrap());
        }
        let report = damaged.repair();
        assert!(report.lost.iter().any(|file| file.path == blobs[0]), "{report}");
        assert_eq!(report.missing, [blobs[1].clone()], "{report}");
        let db = damaged.open();
        assert_eq!(contents(&db, "default"), sound.there["default"]);
        let second = db.column_family("second").unwrap();
        let read = |key: &[u8]| db.get_cf(&ReadOptions::new(), &second, key);
        let readable = sound.there["second"]
            .iter()
            .filter(|(key, value)| read(key).is_ok_and(|found| found.as_deref() == Some(&value[..])));
        assert!(readable.count() > 0, "{report}");
        db.close().unwrap();
    }
}

#[test]
fn two_tables_of_one_number_are_both_kept() {
    let (env, files) = memory();
    let options = plain(&env, "");
    for directory in ["/db", "/other"] {
        let db = Db::open("/db", &options).unwrap();
        db.put(directory, "value").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        db.close().unwrap();
        if directory == "/db" {
            let table = named(&*files, "/db", ".sst").pop().unwrap();
            files.write_file(Path::new("/table"), files.read_file(&table).unwrap()).unwrap();
            Db::destroy("/db", &options).unwrap();
        }
    }
    let table = named(&*files, "/db", ".sst").pop().unwrap();
    let bytes = files.read_file(Path::new("/table")).unwrap();
    files.write_file(&table.with_extension("ldb"), bytes).unwrap();
    named(&*files, "/db", "MANIFEST").iter().for_each(|path| files.remove(path).unwrap());
    let report = Db::repair("/db", &options).unwrap();
    assert_eq!(report.renumbered.len(), 1, "{report}");
    let db = Db::open("/db", &options).unwrap();
    let found: Vec<_> = contents(&db, "default").into_keys().collect();
    assert_eq!(found, [b"/db".to_vec(), b"/other".to_vec()], "{report}");
}

#[test]
fn of_two_tables_the_newer_entry_wins_whatever_the_largest_number_of_each_is() {
    // One database makes a table with the newer "k", another one a table with the older "k" and the
    // largest sequence number of all.
    let (env, files) = memory();
    let options = plain(&env, "");
    let db = Db::open("/db", &options).unwrap();
    db.put("filler", "").unwrap();
    db.put("filler", "").unwrap();
    db.put("k", "newer").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    db.close().unwrap();
    let newer = named(&*files, "/db", ".sst").pop().unwrap();
    let newer_bytes = files.read_file(&newer).unwrap();
    Db::destroy("/db", &options).unwrap();
    let db = Db::open("/db", &options).unwrap();
    db.put("k", "older").unwrap();
    (0..5).for_each(|_| db.put("m", "newest").unwrap());
    db.flush(&FlushOptions::default()).unwrap();
    db.close().unwrap();
    files.write_file(Path::new("/db/000999.sst"), newer_bytes).unwrap();
    named(&*files, "/db", "MANIFEST").iter().for_each(|path| files.remove(path).unwrap());
    let report = Db::repair("/db", &options).unwrap();
    assert_eq!(report.column_families[0].merged, 2, "{report}");
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"newer"[..]), "{report}");
    assert_eq!(db.get("m").unwrap().as_deref(), Some(&b"newest"[..]));
}

#[test]
fn what_is_not_there_or_is_open_is_not_repaired() {
    let (env, files) = memory();
    let options = plain(&env, "");
    assert_eq!(Db::repair("/none", &options).unwrap_err().kind(), ErrorKind::NotFound);
    files.create_dir(Path::new("/empty")).unwrap();
    assert_eq!(Db::repair("/empty", &options).unwrap_err().kind(), ErrorKind::NotFound);
    let db = Db::open("/db", &options).unwrap();
    db.put("a", "1").unwrap();
    let error = Db::repair("/db", &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    db.close().unwrap();
    karst_io::block_on(&env, Db::repair_async("/db", &options)).unwrap();
}

#[test]
fn whatever_bytes_there_are_a_repair_ends_and_the_database_opens() {
    let sound = subject("");
    let mut seed = 7u64;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let rounds = if karst_testkit::asked::long() { 2000 } else { 40 };
    for round in 0..rounds {
        let damaged = sound.copy();
        let mut told = Vec::new();
        for _ in 0..1 + draw(5) {
            let names = damaged.files.list_dir(Path::new("/db")).unwrap();
            let files: Vec<_> =
                names.into_iter().filter(|name| name != "LOCK" && name != "archive").collect();
            let path = Path::new("/db").join(&files[draw(files.len())]);
            let mut bytes = damaged.files.read_file(&path).unwrap();
            let at = draw(bytes.len().max(1));
            match draw(4) {
                0 => damaged.files.remove(&path).unwrap(),
                1 => rewrite(&*damaged.files, &path, &bytes[..at.min(bytes.len())]),
                2 if !bytes.is_empty() => flip(&*damaged.files, &path, at),
                _ => {
                    let end = (at + 64).min(bytes.len());
                    bytes[at.min(end)..end].iter_mut().for_each(|byte| *byte = draw(256) as u8);
                    rewrite(&*damaged.files, &path, &bytes);
                }
            }
            told.push(format!("{} at {at}", path.display()));
        }
        let report = Db::repair("/db", &damaged.options).unwrap_or_else(|e| panic!("{round}, {told:?}: {e}"));
        // Opens by names, because a column family becomes unknown if its last table and the
        // MANIFEST are lost. Its number of tables depends on when compactions ran.
        let db = Db::open_cf("/db", &damaged.options, &FAMILIES)
            .unwrap_or_else(|e| panic!("{round}, {told:?}: {e}\n{report}"));
        // Blob files are only read on access.
        if let Err(error) = db.verify_checksum() {
            assert!(error.to_string().contains(".blob"), "{round}, {told:?}: {error}\n{report}");
        }
        let found = contents(&db, "default");
        // Every value found is one that was written.
        assert!(found.values().all(|value| value.iter().all(u8::is_ascii_lowercase)), "{told:?}");
        db.close().unwrap();
        let again = damaged.repair();
        assert_eq!(again.trees_made_anew, None, "{told:?}: {again}");
    }
}

#[test]
fn verifying_names_each_damaged_file_and_changes_nothing() {
    let sound = subject("");
    let verify = |subject: &Subject| {
        let mut last = karst_engine::VerifyProgress::default();
        let report = Db::verify_files("/db", &subject.options, None, |now| last = now.clone()).unwrap();
        assert_eq!((last.files, last.bytes), (last.all_files, last.all_bytes));
        report
    };
    let report = verify(&sound);
    assert_eq!(report.damaged, [], "it is sound");
    let bytes = |path: &PathBuf| sound.files.read_file(path).unwrap().len() as u64;
    let stored: u64 =
        [".sst", ".blob", ".log"].iter().flat_map(|part| sound.named(part)).map(|p| bytes(&p)).sum();
    assert!(report.bytes >= stored, "{report:?}");
    for part in [".sst", ".blob", ".log", "MANIFEST", "OPTIONS"] {
        let damaged = sound.copy();
        let path = damaged.named(part).pop().unwrap();
        let size = damaged.files.read_file(&path).unwrap().len();
        match part {
            "OPTIONS" => rewrite(&*damaged.files, &path, b"[nothing"),
            // After the header, whose flags have no checksum.
            _ => flip(&*damaged.files, &path, (size / 2).max(40)),
        }
        let before = damaged.files.read_file(&path).unwrap();
        let report = verify(&damaged);
        assert!(report.damaged.iter().any(|file| file.path == path), "{part}: {report:?}");
        assert!(part == "MANIFEST" || report.damaged.len() == 1, "{part}: {report:?}");
        assert!(part == "OPTIONS" || report.damaged[0].error.contains("offset"), "{part}: {report:?}");
        assert_eq!(damaged.files.read_file(&path).unwrap(), before);
        let gone = sound.copy();
        gone.files.remove(&path).unwrap();
        if [".sst", ".blob"].contains(&part) {
            let report = verify(&gone);
            assert_eq!(report.damaged.iter().map(|file| &file.path).collect::<Vec<_>>(), [&path]);
        }
    }
    assert_eq!(verify(&sound).damaged, []);
}

#[test]
fn a_table_is_taken_out_of_the_tree_by_its_number() {
    let sound = subject("");
    let table = sound.named(".sst").pop().unwrap();
    sound.files.remove(&table).unwrap();
    assert!(Db::open("/db", &sound.options).is_err());
    let number: u64 = table.file_stem().unwrap().to_string_lossy().parse().unwrap();
    let missing = Db::unsafe_remove_sst_file("/db", &sound.options, 999_999).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    Db::unsafe_remove_sst_file("/db", &sound.options, number).unwrap();
    let db = sound.open();
    db.verify_checksum().unwrap();
    let beside = Db::unsafe_remove_sst_file("/db", &sound.options, number).unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Locked, "{beside}");
    db.close().unwrap();
    let again = Db::unsafe_remove_sst_file("/db", &sound.options, number).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotFound, "{again}");
}

/// Bounds in a MANIFEST that is readable up to the table's entry cut its tombstones in the new tree
/// too; a tombstone that counted to its end would delete entries of older tables.
#[test]
fn tombstones_end_at_the_bounds_that_a_damaged_manifest_has() {
    let (env, files) = memory();
    let all = plain(&env, "create_missing_column_families=true;disable_auto_compactions=true");
    let db = Db::open("/db", &all).unwrap();
    let metadata = export_of_cut_tombstones(&db, "/export");
    let import = |name| db.create_column_family_with_import(name, &all, &Default::default(), &metadata);
    import("second").unwrap();
    let expected = contents(&db, "second");
    assert_eq!(expected.keys().collect::<Vec<_>>(), [b"a", b"e", b"m"]);
    import("third").unwrap();
    db.close().unwrap();
    drop(db);
    // The last edit is damaged, which is that of the other family.
    let manifest = named(&*files, "/db", "MANIFEST").pop().unwrap();
    let length = files.metadata(&manifest).unwrap().len as usize;
    flip(&*files, &manifest, length - 1);
    let report = Db::repair("/db", &all).unwrap();
    assert!(report.trees_made_anew.is_some(), "{report}");
    assert_eq!(contents(&Db::open("/db", &all).unwrap(), "second"), expected, "{report}");
}
