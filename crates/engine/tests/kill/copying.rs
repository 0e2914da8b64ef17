//! Checkpoints, backups, and families that are exported, imported and clipped until the process is
//! killed, with the checks of those it leaves.

use crate::{cut_of, families, options, same_entries};
use karst_engine::io::Env;
use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, ImportColumnFamilyOptions,
    ReadOptions, RestoreOptions,
};
use karst_testkit::chronicle::{Chronicle, Cut};
use karst_testkit::random::Random;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const COPY: &str = "copy-";
const UNFINISHED: &str = ".tmp";
/// Prefix of the names of imported families, and number of the family that is exported for them.
const IMPORTED: &str = "imported";
const SOURCE: usize = 1;

fn backups(db: &Path) -> BackupEngineOptions {
    BackupEngineOptions::new(db.with_file_name("backups"))
}

/// Returns the numbers of the checkpoints beside a database: finished or unfinished ones.
fn checkpoints(db: &Path, unfinished: bool) -> Vec<u64> {
    let names = std::fs::read_dir(db.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut numbers: Vec<u64> = names
        .filter_map(|name| {
            let name = name.to_str()?.strip_prefix(COPY)?;
            match (name.strip_suffix(UNFINISHED), unfinished) {
                (Some(number), true) => number.parse().ok(),
                (None, false) => name.parse().ok(),
                _ => None,
            }
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

fn path_of(db: &Path, number: u64) -> PathBuf {
    db.with_file_name(format!("{COPY}{number}"))
}

/// Runs in the process that is killed. Prints the begin and the end of each checkpoint (`c`, `d`),
/// backup (`p`, `q`), import (`i`, `j`), clip (`k`, `l`) and drop of a family (`m`, `n`).
pub(crate) fn copy_until_killed(db: &Db, directory: &Path, seed: u64, say: &dyn Fn(char, usize, u64)) -> ! {
    let mut random = Random::new(seed);
    let mut engine = BackupEngine::open(&backups(directory), db.env()).unwrap();
    for number in 0.. {
        std::thread::sleep(Duration::from_millis(random.below(40)));
        if random.one_in(3) {
            import(db, directory, number, &mut random, say);
        } else if random.one_in(2) {
            let least = [0, 10_000, u64::MAX][random.index(3)];
            say('c', 0, number);
            let checkpoint = Checkpoint::new(db).unwrap();
            checkpoint.create_checkpoint(path_of(directory, number), least).unwrap();
            say('d', 0, number);
        } else {
            let how = CreateBackupOptions { flush_before_backup: random.one_in(2), ..Default::default() };
            say('p', 0, 0);
            let id = engine.create_new_backup(db, &how).unwrap();
            say('q', 0, u64::from(id));
            if random.one_in(4) {
                engine.purge_old_backups(1 + random.index(3)).unwrap();
            }
        }
    }
    unreachable!("numbers do not end")
}

/// The range to which an imported family is clipped: all keys of the second writer.
const INSIDE: (&[u8], &[u8]) = (b"w1", b"w2");

fn import(db: &Db, directory: &Path, number: u64, random: &mut Random, say: &dyn Fn(char, usize, u64)) {
    let export = directory.with_file_name("export");
    if export.exists() {
        std::fs::remove_dir_all(&export).unwrap();
    }
    let checkpoint = Checkpoint::new(db).unwrap();
    let metadata = checkpoint.export_column_family(&families(db)[SOURCE], &export).unwrap();
    if metadata.files.is_empty() {
        return;
    }
    say('i', 0, number);
    let how = ImportColumnFamilyOptions { move_files: random.one_in(2) };
    let name = format!("{IMPORTED}{number}");
    let family = db.create_column_family_with_import(&name, &options(0), &how, &metadata).unwrap();
    say('j', 0, number);
    if random.one_in(2) {
        say('k', 0, number);
        db.clip_column_family(&family, INSIDE.0, INSIDE.1).unwrap();
        say('l', 0, number);
    }
    if random.one_in(2) {
        say('m', 0, number);
        db.drop_column_family(&family).unwrap();
        say('n', 0, number);
    }
}

/// Returns the names of the imported families that a database has.
pub(crate) fn imported(db: &Path, seed: u64) -> Vec<String> {
    let mut names = Db::list_column_families(db, &options(seed)).unwrap_or_default();
    names.retain(|name| name.starts_with(IMPORTED));
    names
}

/// Checks that each imported family has the entries that its source had at some time, clipped if
/// the clip ended, or is absent if it may be; then drops it.
pub(crate) fn check_imported(db: &Db, told: &Told, chronicle: &Chronicle) {
    for (number, stage) in &told.imports {
        let name = format!("{IMPORTED}{number}");
        let Some(family) = db.column_family(&name) else {
            assert!(matches!(stage, 'i' | 'm' | 'n'), "{name} is missing, the last word of it was {stage}");
            continue;
        };
        assert!(*stage != 'n', "{name} was dropped");
        let mut cursor = db.iter_cf(&ReadOptions::default(), &family).unwrap();
        let mut entries = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
            cursor.next().unwrap();
        }
        let whole = chronicle.check_old_state(SOURCE, &entries);
        let of_clipped = entries.iter().find(|(key, _)| key == INSIDE.0).map(|(_, value)| &value[..]);
        let seen = karst_testkit::chronicle::marked(of_clipped).unwrap();
        let clipped = chronicle.entries(SOURCE, &Cut(vec![0, seen, 0, 0])) == entries;
        let right = match stage {
            'i' | 'j' => whole.is_ok(),
            'l' => clipped,
            _ => whole.is_ok() || clipped,
        };
        assert!(right, "{name}, the last word of it was {stage}: {:?}", whole.err());
    }
    for family in db.column_families().iter().filter(|family| family.name().starts_with(IMPORTED)) {
        db.drop_column_family(family).unwrap();
    }
}

/// Copies of one life, from the lines that its process printed.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Batches acknowledged when the last checkpoint, and the last backup, began.
    begun: [Cut; 2],
    checkpoints: Vec<(u64, Cut, Cut)>,
    /// The last backup.
    backup: Option<(u64, Cut, Cut)>,
    /// Letter of the last line about each import.
    imports: BTreeMap<u64, char>,
}

impl Told {
    /// Returns the number of imports that were begun.
    pub(crate) fn imports(&self) -> usize {
        self.imports.len()
    }

    pub(crate) fn hear(&mut self, what: &str, number: u64, chronicle: &Chronicle) {
        match what {
            "c" => self.begun[0] = chronicle.acknowledged(),
            "p" => self.begun[1] = chronicle.acknowledged(),
            "d" => self.checkpoints.push((number, self.begun[0].clone(), chronicle.begun())),
            "q" => self.backup = Some((number, self.begun[1].clone(), chronicle.begun())),
            "i" | "j" | "k" | "l" | "m" | "n" => {
                self.imports.extend(what.chars().map(|stage| (number, stage)));
            }
            what => panic!("{what}: nobody says so"),
        }
    }
}

/// Checks all copies that a process has left, and removes them except for backups.
pub(crate) fn check(db: &Path, seed: u64, told: &Told, chronicle: &Chronicle) {
    let there = checkpoints(db, false);
    for (number, ..) in &told.checkpoints {
        assert!(there.contains(number), "checkpoint {number} is missing");
    }
    for number in there {
        let known = told.checkpoints.iter().find(|(told, ..)| *told == number);
        let known = known.map(|(_, before, after)| (before.clone(), after.clone()));
        // A checkpoint whose end was not printed is the last that was begun.
        let (before, after) = known.unwrap_or_else(|| (told.begun[0].clone(), chronicle.begun()));
        same(&path_of(db, number), seed, Some((&before, &after)), chronicle);
        std::fs::remove_dir_all(path_of(db, number)).unwrap();
    }
    if !db.with_file_name("backups").exists() {
        return;
    }
    let mut engine = BackupEngine::open(&backups(db), &Env::posix()).unwrap();
    assert!(engine.get_corrupted_backups().is_empty());
    let all: Vec<u32> = engine.get_backup_info().iter().map(|info| info.backup_id).collect();
    all.iter().for_each(|id| engine.verify_backup(*id, true).unwrap());
    let names = |part: &str| {
        let found = std::fs::read_dir(db.with_file_name("backups").join(part)).unwrap();
        let mut names: Vec<String> = found.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_by_key(|name| name.parse::<u32>().unwrap_or(0));
        names
    };
    let ids: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!((names("meta"), names("private")), (ids.clone(), ids), "nothing is left of unfinished ones");
    let Some(newest) = all.last() else {
        assert!(told.backup.is_none(), "{told:?} is missing");
        return;
    };
    let known = told.backup.as_ref().filter(|(id, ..)| *id == u64::from(*newest));
    assert!(told.backup.as_ref().is_none_or(|(id, ..)| *id <= u64::from(*newest)), "{told:?} is missing");
    // Otherwise it is the last that was begun, or one of an earlier life, in whose batches no order
    // is known here.
    let between = known.map(|(_, before, after)| (before, after));
    let restored = db.with_file_name("restored");
    engine.restore_db_from_latest_backup(&restored, &restored, &RestoreOptions::default()).unwrap();
    same(&restored, seed, between, chronicle);
    engine.purge_old_backups(2).unwrap();
}

/// Checks that a copy opens, and that it equals the database at some moment, if `between` is known
/// at one between its two cuts.
fn same(copy: &Path, seed: u64, between: Option<(&Cut, &Cut)>, chronicle: &Chronicle) {
    let options = options(seed).db(|db| {
        db.create_if_missing = false;
        db.create_missing_column_families = false;
    });
    let db = Db::open(copy, &options).unwrap();
    let cut = cut_of(&db);
    let checked = between.map(|(before, after)| chronicle.check_copy(&cut, before, after, true));
    checked.unwrap_or(Ok(())).unwrap_or_else(|e| panic!("{}: {e}", copy.display()));
    for (number, family) in families(&db).iter().enumerate() {
        same_entries(&db, family, &chronicle.entries(number, &cut));
    }
    db.close().unwrap();
}

/// Checks that an unfinished checkpoint does not prevent the next one of its name.
pub(crate) fn check_unfinished(db: &Db, directory: &Path) {
    for number in checkpoints(directory, true) {
        Checkpoint::new(db).unwrap().create_checkpoint(path_of(directory, number), 0).unwrap();
        assert!(!checkpoints(directory, true).contains(&number), "something is left of {number}");
        std::fs::remove_dir_all(path_of(directory, number)).unwrap();
    }
}
