//! Resources left by closed and dropped databases: no descriptor and no thread in the process, and
//! a bounded number of files in the directory after any number of openings.

use karst_engine::{Db, Options};
use karst_io::{Crash, Env, MemoryFileSystem, Simulation};
use karst_testkit::eventually;
use karst_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// Serializes the tests of this file, because they count resources of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // Poisoning is ignored, because a failed test must not fail the others.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn open(directory: &Path, number: usize) -> Db {
    let options = Options::new().db(|db| db.create_if_missing = true);
    let db = Db::open(directory.join(number.to_string()), &options).unwrap();
    db.put("key", "value").unwrap();
    db
}

/// Reads a table, which creates the calling thread's ring.
fn read(db: &Db) {
    db.flush(&Default::default()).unwrap();
    assert!(db.get("key").unwrap().is_some());
}

#[test]
fn dropped_databases_leave_no_descriptors_and_no_threads() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path(), 0));
    let before = (descriptors(), threads());
    let databases: Vec<Db> = (1..20).map(|number| open(directory.path(), number)).collect();
    databases.iter().for_each(read);
    assert!(descriptors() > before.0 + 40, "each has its rings");
    drop(databases);
    // Not equal, because threads of earlier tests may end too.
    eventually(true, || descriptors() <= before.0 && threads() <= before.1);
}

#[test]
fn a_thread_lets_go_of_databases_that_others_dropped_when_it_reads_again() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let stays = open(directory.path(), 0);
    std::thread::scope(|scope| {
        let (ask, asked) = mpsc::channel::<Vec<Arc<Db>>>();
        let (answer, answered) = mpsc::channel();
        let stays = &stays;
        scope.spawn(move || {
            while let Ok(databases) = asked.recv() {
                databases.iter().for_each(|db| read(db));
                drop(databases);
                read(stays);
                answer.send(()).unwrap();
            }
        });
        let reads = |databases: Vec<Arc<Db>>| {
            ask.send(databases).unwrap();
            answered.recv().unwrap();
        };
        reads(Vec::new());
        let before = descriptors();
        let databases: Vec<_> = (1..10).map(|number| Arc::new(open(directory.path(), number))).collect();
        reads(databases.clone());
        drop(databases);
        reads(Vec::new());
        eventually(true, || descriptors() <= before);
        drop(ask);
    });
}

/// Returns the number of files of each kind in the directory: names without digits.
fn kinds(env: &Env, path: &Path) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for name in env.fs().list_dir(path).unwrap() {
        *kinds.entry(name.replace(|c: char| c.is_ascii_digit(), "")).or_default() += 1;
    }
    kinds
}

#[test]
fn opening_and_closing_leaves_so_many_files_however_often() {
    let _alone = alone();
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let options = Options::new()
        .env(env.clone())
        .db(|db| db.create_if_missing = true)
        .set("keep_log_file_num", "4")
        .unwrap();
    let path = Path::new("/db");
    let mut after = Vec::new();
    for round in 0..60u64 {
        let db = Db::open(path, &options).unwrap();
        db.put("key", round.to_be_bytes()).unwrap();
        // Waits, because closing cancels running compactions, and a session may be shorter than any
        // of them.
        db.wait_for_compact(&Default::default()).unwrap();
        db.close().unwrap();
        drop(db);
        after.push(kinds(&env, path));
    }
    let files = |kind: &str| after.iter().map(|kinds| kinds.get(kind).copied().unwrap_or(0)).max();
    assert_eq!(files("LOG.old."), Some(3), "keep_log_file_num counts LOG too");
    assert_eq!(files("OPTIONS-"), Some(2));
    assert_eq!(files("MANIFEST-"), Some(1));
    assert_eq!(files(".log"), Some(1));
    // Each opening flushes the log to a table, and a few tables are compacted into one.
    assert!(files(".sst") <= Some(8), "{after:?}");
    let others = ["CURRENT", "IDENTITY", "LOCK", "LOG"];
    assert!(others.iter().all(|name| files(name) == Some(1)));
    assert_eq!(after.last().unwrap().len(), 5 + others.len(), "{:?}", after.last());
}

const KEYS: u64 = 200;
const VALUE_BYTES: usize = 2_000;

/// A database of blob files with garbage collection, that is opened and closed over and over.
struct Blobs {
    simulation: Simulation,
    random: Random,
    versions: Vec<u64>,
}

impl Blobs {
    fn options(&self) -> Options {
        Options::new()
            .env(self.simulation.env().clone())
            .db(|db| db.create_if_missing = true)
            .column_families(|cf| {
                cf.write_buffer_size = 64 << 10;
                (cf.enable_blob_files, cf.min_blob_size) = (true, 100);
                cf.enable_blob_garbage_collection = true;
                cf.blob_garbage_collection_age_cutoff = 0.5;
                cf.blob_file_size = 128 << 10;
            })
            .set("compression", "kNoCompression")
            .unwrap()
    }

    fn put(&mut self, db: &Db) {
        let key = self.random.below(KEYS);
        self.versions[key as usize] += 1;
        let value = [&self.versions[key as usize].to_be_bytes()[..], &[7; VALUE_BYTES]].concat();
        db.put(key.to_be_bytes(), value).unwrap();
        karst_io::block_on(
            self.simulation.env(),
            karst_io::sleep(self.simulation.env(), Duration::from_micros(200)),
        );
    }

    fn check(&self, db: &Db) {
        for (key, version) in self.versions.iter().enumerate().filter(|(_, version)| **version > 0) {
            let found = db.get((key as u64).to_be_bytes()).unwrap().unwrap();
            assert_eq!(found[..8], version.to_be_bytes(), "key {key}");
        }
    }

    /// Bytes of all files of the directory.
    fn bytes(&self) -> u64 {
        let fs = self.simulation.env().fs();
        let names = fs.list_dir(Path::new("/db")).unwrap();
        names.iter().map(|name| fs.metadata(&Path::new("/db").join(name)).unwrap().len).sum()
    }

    /// Files that neither the database's MANIFEST nor its list of logs names, and that are none of
    /// those that each database has.
    fn unnamed(&self, db: &Db) -> Vec<String> {
        let (live, _) = db.live_file_names();
        let named: BTreeSet<String> = live
            .iter()
            .map(|name| name.trim_start_matches('/').to_owned())
            .chain(db.log_numbers().iter().map(|number| format!("{number:06}.log")))
            .chain(["IDENTITY", "LOCK", "LOG"].map(str::to_owned))
            .collect();
        let mut names = self.simulation.env().fs().list_dir(Path::new("/db")).unwrap();
        // OPTIONS from before is kept, and so are LOGs.
        names.retain(|name| !named.contains(name) && !name.starts_with("LOG.old."));
        let options = names.iter().filter(|name| name.starts_with("OPTIONS-")).count();
        assert!(options <= 1, "{names:?}");
        names.retain(|name| !name.starts_with("OPTIONS-"));
        names
    }
}

/// Readers of all kinds open and close meanwhile, and stay open beyond the writer's end; some
/// sessions end in a crash, also within compactions. Files that were in use or half
/// written then are removed by the next opening.
#[test]
fn a_database_that_is_opened_again_and_again_keeps_no_file_that_nothing_names() {
    let seed = karst_testkit::asked::seed();
    let (mut most, mut least) = (0, u64::MAX);
    let simulation = Simulation::new(seed);
    let mut blobs = Blobs { simulation, random: Random::new(seed), versions: vec![0; KEYS as usize] };
    for session in 0..60u64 {
        let options = blobs.options();
        let db = Db::open("/db", &options).unwrap();
        blobs.check(&db);
        // What the opening removes, it removes beside what else goes on.
        db.pause_background_work().unwrap();
        db.enable_file_deletions().unwrap();
        assert_eq!(blobs.unnamed(&db), Vec::<String>::new(), "session {session}, opened");
        db.continue_background_work().unwrap();
        let mut readers = Vec::new();
        let puts = blobs.random.below(800);
        for i in 0..puts {
            blobs.put(&db);
            if i % 97 == 5 {
                readers.push(Db::open_read_only("/db", &options).unwrap());
            }
            if i % 131 == 7 {
                readers.push(Db::open_as_secondary("/db", format!("/secondary{i}"), &options).unwrap());
            }
            if readers.len() > 3 {
                readers.remove(0);
            }
        }
        if blobs.random.below(3) == 0 {
            drop((readers, db));
            let (random, versions) = (blobs.random, blobs.versions);
            blobs = Blobs { simulation: blobs.simulation.restart(Crash::Process, session), random, versions };
        } else {
            if blobs.random.below(2) == 0 {
                db.wait_for_compact(&Default::default()).unwrap();
                let bytes = blobs.bytes();
                (most, least) = (most.max(bytes), least.min(bytes));
            }
            db.close().unwrap();
            assert_eq!(blobs.unnamed(&db), Vec::<String>::new(), "session {session}, closed");
        }
    }
    let live = KEYS * VALUE_BYTES as u64;
    println!("{live} bytes of values took {least} to {most} bytes when all was compacted");
    assert!(most < 10 * live, "{most} bytes for {live}");
}
