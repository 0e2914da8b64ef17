//! Errors of the files that a secondary reads: reported with the file, never shown as a value.

use super::{Pair, shown};
use karst_engine::{CompactRangeOptions, Db, ErrorKind, ReadOptions};
use std::path::PathBuf;

fn newest(pair: &Pair, ending: &str) -> PathBuf {
    let names = super::names(&pair.path());
    let name = names.iter().rfind(|(name, _)| name.ends_with(ending)).unwrap();
    pair.path().join(&name.0)
}

#[test]
fn tables_that_were_removed_are_read_on_if_open_and_an_error_if_not() {
    for open in [-1, 1] {
        let mut pair = Pair::new("disable_auto_compactions=true");
        pair.options = pair.options.clone().set("max_open_files", &open.to_string()).unwrap();
        for number in 1..=4 {
            pair.step(number);
            pair.primary.flush(&Default::default()).unwrap();
        }
        pair.primary.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        for number in 5..=30 {
            pair.step(number);
            pair.primary.flush(&Default::default()).unwrap();
        }
        // Written here, so that the table has not been read yet when `max_open_files` is limited.
        pair.primary.put("a", 4u64.to_le_bytes()).unwrap();
        pair.primary.flush(&Default::default()).unwrap();
        pair.primary.put("z", "z").unwrap();
        pair.primary.flush(&Default::default()).unwrap();
        let db = pair.secondary("second");
        pair.primary.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        // Tables are removed in the background.
        let tables = || super::names(&pair.path()).iter().filter(|(n, _)| n.ends_with(".sst")).count();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while tables() > pair.primary.live_files().len() {
            assert!(std::time::Instant::now() < until, "no table is removed");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let got = db.get("a");
        match open {
            -1 => assert_eq!(super::as_number(got.unwrap()), 4),
            _ => {
                let error = got.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                let text = error.to_string();
                assert!(text.contains(".sst") && text.contains("try_catch_up_with_primary"), "{text}");
            }
        }
        db.try_catch_up_with_primary().unwrap();
        assert_eq!(shown(&db, &ReadOptions::new()), 30);
    }
}

#[test]
fn a_primary_that_vanishes_or_goes_back_is_an_error_and_what_was_shown_stays() {
    let pair = Pair::new("");
    (1..=5).for_each(|number| pair.step(number));
    pair.primary.close().unwrap();
    let db = pair.secondary("second");
    let log = newest(&pair, ".log");
    let bytes = std::fs::read(&log).unwrap();
    let still = |what: &str| {
        let error = db.try_catch_up_with_primary().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(shown(&db, &ReadOptions::new()), 5);
        error.kind()
    };
    // The log is cut short, or replaced by noise.
    std::fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(still("gone back from sequence number"), ErrorKind::Corruption);
    std::fs::write(&log, vec![b'x'; bytes.len()]).unwrap();
    assert_eq!(still("gone back from sequence number"), ErrorKind::Corruption);
    std::fs::write(&log, &bytes).unwrap();
    db.try_catch_up_with_primary().unwrap();
    // The MANIFEST is cut short, CURRENT is missing, all files are missing.
    let manifest = pair
        .path()
        .join(&super::names(&pair.path()).iter().find(|(n, _)| n.starts_with("MANIFEST")).unwrap().0);
    let edits = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &edits[..10]).unwrap();
    still("MANIFEST");
    std::fs::write(&manifest, &edits).unwrap();
    let current = std::fs::read(pair.path().join("CURRENT")).unwrap();
    std::fs::remove_file(pair.path().join("CURRENT")).unwrap();
    assert_eq!(still("CURRENT"), ErrorKind::NotFound);
    std::fs::write(pair.path().join("CURRENT"), current).unwrap();
    db.try_catch_up_with_primary().unwrap();
    // Another database is in its place.
    let aside = pair.directory.path().join("aside");
    std::fs::rename(pair.path(), &aside).unwrap();
    assert_eq!(still("db"), ErrorKind::NotFound);
    let other = Db::open_cf(pair.path(), &pair.options, &["default", "other"]).unwrap();
    (1..=50).for_each(|number| super::step(&other, number, &Default::default()).unwrap());
    assert_eq!(still("another database"), ErrorKind::Corruption);
    other.close().unwrap();
    std::fs::remove_dir_all(pair.path()).unwrap();
    std::fs::rename(&aside, pair.path()).unwrap();
    db.try_catch_up_with_primary().unwrap();
    assert_eq!(shown(&db, &ReadOptions::new()), 5);
}

#[test]
fn damage_in_the_middle_of_a_log_is_an_error_and_not_the_end() {
    let pair = Pair::new("");
    (1..=3).for_each(|number| pair.step(number));
    let db = pair.secondary("second");
    let log = newest(&pair, ".log");
    let good = std::fs::metadata(&log).unwrap().len();
    (4..=6).for_each(|number| pair.step(number));
    let bytes = std::fs::read(&log).unwrap();
    let mut damaged = bytes.clone();
    damaged[good as usize + 20] ^= 1;
    let end = (good as usize + bytes.len()) / 2;
    std::fs::write(&log, &damaged[..end]).unwrap();
    db.try_catch_up_with_primary().unwrap();
    assert_eq!(shown(&db, &ReadOptions::new()), 3, "it may have been on its way");
    std::fs::write(&log, &damaged).unwrap();
    db.try_catch_up_with_primary().unwrap();
    pair.primary.put("long", vec![b'l'; 100_000]).unwrap();
    let error = db.try_catch_up_with_primary().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains(".log"), "{error}");
    assert_eq!(shown(&db, &ReadOptions::new()), 3);
    let mut mended = std::fs::read(&log).unwrap();
    mended[..bytes.len()].copy_from_slice(&bytes);
    std::fs::write(&log, &mended).unwrap();
    db.try_catch_up_with_primary().unwrap();
    assert_eq!(shown(&db, &ReadOptions::new()), 6);
    assert_eq!(db.get("long").unwrap().map_or(0, |value| value.len()), 100_000);
}
