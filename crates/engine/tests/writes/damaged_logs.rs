//! Logs that are torn, damaged, emptied, missing or another database's, in every recovery mode,
//! with and without the options that verify logs, with the logs in the database's directory or in
//! another one, and in recycled files.
//!
//! The opened database holds a prefix of the batches, equal in all column families, or opening
//! fails with an error that names the file; and no verifying option opens a database that is
//! refused without it. `kSkipAnyCorruptedRecords` recovers every readable record and may leave
//! holes.

use karst_engine::{Db, FlushOptions, Options, ReadOptions, Result, WriteBatch, WriteOptions};
use std::path::{Path, PathBuf};

const MODES: [&str; 4] = [
    "kTolerateCorruptedTailRecords",
    "kAbsoluteConsistency",
    "kPointInTimeRecovery",
    "kSkipAnyCorruptedRecords",
];
const VERIFYING: [&str; 3] = ["", "track_and_verify_wals=true;", "track_and_verify_wals_in_manifest=true;"];
const FAMILIES: [&str; 2] = ["default", "flushed"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Plain,
    /// `wal_dir` is set.
    Elsewhere,
    /// Log files are recycled.
    Recycled,
}

/// A database whose last four logs are needed, because only the family `flushed` is flushed between
/// them.
struct Written {
    directory: tempfile::TempDir,
    /// Paths of the logs, the oldest first.
    logs: Vec<PathBuf>,
    /// Number of batches written.
    batches: u64,
}

fn options(path: &Path, place: Place, text: &str) -> Options {
    let mut options = Options::new()
        .set_all(&format!("create_if_missing=true;create_missing_column_families=true;{text}"))
        .unwrap();
    if place == Place::Elsewhere {
        options = options.set("wal_dir", path.join("logs").to_str().unwrap()).unwrap();
    }
    options
}

fn logs_of(path: &Path, place: Place) -> Vec<PathBuf> {
    let directory = if place == Place::Elsewhere { path.join("logs") } else { path.to_owned() };
    let mut logs: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    logs
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn write(db: &Db, number: u64, padding: usize) {
    let mut batch = WriteBatch::new();
    for name in FAMILIES {
        let family = db.column_family(name).unwrap();
        batch.put_cf(&family, format!("key{number:03}"), number.to_string()).unwrap();
        batch.put_cf(&family, "padding", vec![b'p'; padding]).unwrap();
    }
    db.write(&WriteOptions::synced(), &batch).unwrap();
}

impl Written {
    /// Writes the database. `padding` makes the logs of two databases differ in size.
    fn new(place: Place, text: &str, padding: usize) -> Written {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let recycled = if place == Place::Recycled { "recycle_log_file_num=2;" } else { "" };
        let options = options(&source, place, &format!("{text}{recycled}"));
        let db = Db::open_cf(&source, &options, &FAMILIES).unwrap();
        let flush = |names: &[&str]| {
            let families: Vec<_> = names.iter().map(|name| db.column_family(name).unwrap()).collect();
            db.flush_cfs(&FlushOptions::default(), &families.iter().collect::<Vec<_>>()).unwrap();
        };
        let mut batches = 0;
        let mut more = |count: u64| {
            (0..count).for_each(|_| {
                batches += 1;
                write(&db, batches, padding);
            });
        };
        // Older logs for recycling.
        for _ in 0..3 {
            more(4);
            flush(&FAMILIES);
        }
        for count in [1, 2, 2] {
            more(count);
            flush(&FAMILIES[1..]);
        }
        more(2);
        // The copy is of one moment: no file is removed or renamed while it is made.
        db.disable_file_deletions().unwrap();
        copy(&source, &directory.path().join("copy"));
        db.close().unwrap();
        let logs = logs_of(&directory.path().join("copy"), place);
        let logs: Vec<PathBuf> =
            logs.iter().filter(|log| std::fs::metadata(log).unwrap().len() > 0).cloned().collect();
        assert!(logs.len() >= 4, "{logs:?}");
        let logs = logs.iter().map(|log| log.strip_prefix(directory.path().join("copy")).unwrap().to_owned());
        Written {
            logs: logs.collect::<Vec<_>>().split_off(logs_above(&directory, place)),
            directory,
            batches,
        }
    }

    fn copied(&self) -> PathBuf {
        let path = self.directory.path().join("tried");
        let _ = std::fs::remove_dir_all(&path);
        copy(&self.directory.path().join("copy"), &path);
        path
    }
}

/// Returns the number of logs older than the last four.
fn logs_above(directory: &tempfile::TempDir, place: Place) -> usize {
    let logs = logs_of(&directory.path().join("copy"), place);
    logs.iter().filter(|log| std::fs::metadata(log).unwrap().len() > 0).count() - 4
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Torn(usize),
    Middle(usize),
    Missing(usize),
    Emptied(usize),
    Foreign(usize),
}

/// Damage to the oldest, a middle one and the newest of four logs.
const DAMAGES: [Damage; 12] = [
    Damage::Torn(0),
    Damage::Torn(1),
    Damage::Torn(3),
    Damage::Middle(1),
    Damage::Middle(3),
    Damage::Missing(0),
    Damage::Missing(1),
    Damage::Missing(3),
    Damage::Emptied(0),
    Damage::Emptied(2),
    Damage::Emptied(3),
    Damage::Foreign(2),
];

impl Damage {
    fn inflict(self, path: &Path, written: &Written, other: &Written) {
        let (Damage::Torn(index)
        | Damage::Middle(index)
        | Damage::Missing(index)
        | Damage::Emptied(index)
        | Damage::Foreign(index)) = self;
        let log = path.join(&written.logs[index]);
        let mut bytes = std::fs::read(&log).unwrap();
        match self {
            Damage::Torn(_) => bytes.truncate(bytes.len() - 5),
            Damage::Middle(_) => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x55;
            }
            Damage::Missing(_) => return std::fs::remove_file(&log).unwrap(),
            Damage::Emptied(_) => bytes.clear(),
            Damage::Foreign(_) => {
                bytes = std::fs::read(other.directory.path().join("copy").join(&other.logs[index])).unwrap();
            }
        }
        std::fs::write(&log, bytes).unwrap();
    }
}

/// Returns the number of batches that the database holds. Panics if one in between is missing, or
/// if the column families hold different numbers.
fn shown(db: &Db, when: &str) -> u64 {
    let counts = FAMILIES.map(|name| {
        let mut iter = db.iter_cf(&ReadOptions::new(), &db.column_family(name).unwrap()).unwrap();
        let mut count = 0;
        iter.seek("key").unwrap();
        while iter.valid() && iter.key().starts_with(b"key") {
            count += 1;
            assert_eq!(iter.key(), format!("key{count:03}").as_bytes(), "{when}: a hole in {name}");
            assert_eq!(iter.value(), count.to_string().as_bytes(), "{when}");
            iter.next().unwrap();
        }
        count
    });
    assert_eq!(counts[0], counts[1], "{when}: families of different times");
    counts[0]
}

fn all_opened(outcome: Result<Db>, prefix: bool, when: &str) -> Option<u64> {
    match outcome {
        Ok(db) if prefix => Some(shown(&db, when)),
        Ok(_) => Some(0),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(".log"), "{when}: the error names no log: {text}");
            None
        }
    }
}

/// Opens the database read-only, as a secondary and for writing. Returns the number of batches that
/// the last of them holds, or `None` if it was refused.
fn open(written: &Written, damage: Option<Damage>, other: &Written, how: (Place, &str, &str)) -> Option<u64> {
    let (place, verifying, mode) = how;
    let path = written.copied();
    if let Some(damage) = damage {
        damage.inflict(&path, written, other);
    }
    let when = format!("{place:?}, {verifying:?}, {mode}, {damage:?}");
    let text = format!("{verifying}wal_recovery_mode={mode};");
    let options = options(&path, place, &text);
    let prefix = mode != "kSkipAnyCorruptedRecords";
    let read_only = Db::open_cf_read_only(&path, &options, &FAMILIES);
    let read_only = all_opened(read_only, prefix, &format!("{when}, read-only"));
    let beside = written.directory.path().join("secondary");
    let secondary = Db::open_cf_as_secondary(&path, beside, &options, &FAMILIES);
    let secondary = all_opened(secondary, prefix, &format!("{when}, as a secondary"));
    if damage.is_none() {
        assert_eq!(secondary, read_only, "{when}: as a secondary and for reading");
    }
    let opened = all_opened(Db::open_cf(&path, &options, &FAMILIES), prefix, &when);
    assert_eq!(read_only, opened, "{when}: for reading and for writing");
    if damage.is_none() {
        assert_eq!(opened, Some(if prefix { written.batches } else { 0 }), "{when}");
    }
    opened
}

fn every_damage(place: Place) {
    let cases: Vec<Option<Damage>> = [None].into_iter().chain(DAMAGES.map(Some)).collect();
    let mut without = Vec::new();
    for verifying in VERIFYING {
        let (written, other) = (Written::new(place, verifying, 10), Written::new(place, verifying, 30));
        let all = MODES.iter().flat_map(|mode| cases.iter().map(|damage| (*mode, *damage)));
        let opened: Vec<Option<u64>> = all
            .clone()
            .map(|(mode, damage)| open(&written, damage, &other, (place, verifying, mode)))
            .collect();
        if verifying.is_empty() {
            without = opened;
            continue;
        }
        for (((mode, damage), with), without) in all.zip(opened).zip(&without) {
            let is_no_weaker = with.is_none() || with <= *without;
            assert!(
                is_no_weaker,
                "{place:?}, {mode}, {damage:?}: {verifying} opens {with:?}, without {without:?}"
            );
        }
    }
}

#[test]
fn logs_beside_the_tables() {
    every_damage(Place::Plain);
}

#[test]
fn logs_in_another_directory() {
    every_damage(Place::Elsewhere);
}

#[test]
fn logs_in_recycled_files() {
    every_damage(Place::Recycled);
}
