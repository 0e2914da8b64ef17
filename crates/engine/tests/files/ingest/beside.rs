//! Calls that are concurrent with an ingestion: taking snapshots, reading several families, pausing
//! background work, writing without waiting, dropping the family.

use super::*;
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, block_on};
use karst_engine::{
    ColumnFamily, ErrorKind, FlushOptions, IngestExternalFileArg, IngestExternalFileOptions, WriteOptions,
};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Waker};
use std::time::Duration;

/// Blocks one write to a file of the database whose name contains `at`: to the `which`-th such file
/// that is written to.
#[derive(Debug)]
struct HeldUp {
    at: &'static str,
    which: usize,
    /// The current MANIFEST. The removal of the previous one in the background is a write too, but
    /// must not be blocked.
    manifest: Mutex<String>,
    files: Mutex<BTreeSet<PathBuf>>,
    armed: AtomicBool,
    told: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Disturb for HeldUp {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !path.starts_with("/db") || !name.contains(self.at) || !self.armed.load(Ordering::SeqCst) {
            return Ok(());
        }
        if name.starts_with("MANIFEST") && *name != **self.manifest.lock().unwrap() {
            return Ok(());
        }
        let is_it = {
            let mut files = self.files.lock().unwrap();
            files.insert(path.to_owned());
            files.len() == self.which
        };
        if is_it && self.armed.swap(false, Ordering::SeqCst) {
            self.told.send(()).unwrap();
            // An error is ignored, because the sender is dropped when the test fails.
            let _ = self.go_on.lock().unwrap().recv();
        }
        Ok(())
    }
}

/// A database of which one write is blocked, once armed.
struct Held {
    how: Options,
    db: Db,
    held_up: Arc<HeldUp>,
    told: Receiver<()>,
    release: SyncSender<()>,
}

fn held(at: &'static str, which: usize) -> Held {
    let (tell, told) = sync_channel(1);
    let (release, go_on) = sync_channel(1);
    let (files, armed, go_on) = (Mutex::default(), AtomicBool::new(false), Mutex::new(go_on));
    let manifest = Mutex::default();
    let held_up = HeldUp { at, which, manifest, files, armed, told: tell, go_on };
    let files = DisturbedFileSystem::new(Arc::new(MemoryFileSystem::new()), held_up);
    let held_up = files.between().clone();
    let env = Env::builder().file_system(Arc::new(files)).build();
    let how = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    let db = Db::open("/db", &how).unwrap();
    Held { how, db, held_up, told, release }
}

impl Held {
    fn arm(&self) {
        let (names, _) = self.db.live_file_names();
        let manifest = names.into_iter().find(|name| name.starts_with("MANIFEST")).unwrap();
        *self.held_up.manifest.lock().unwrap() = manifest;
        self.held_up.files.lock().unwrap().clear();
        self.held_up.armed.store(true, Ordering::SeqCst);
    }
}

/// Options with which the entries of files keep the sequence number 0.
fn unnumbered() -> IngestExternalFileOptions {
    IngestExternalFileOptions { allow_global_seqno: false, ..Default::default() }
}

#[test]
fn a_snapshot_that_is_taken_while_an_unnumbered_file_is_installed_does_not_change() {
    let held = held("MANIFEST", 1);
    let (db, how) = (&held.db, &held.how);
    write_file(how, "/file.sst", &[("key", "ingested")]);
    std::thread::scope(|scope| {
        held.arm();
        let ingesting = scope.spawn(|| db.ingest_external_file(&unnumbered(), ["/file.sst"]));
        held.told.recv().unwrap();
        let (tell, seen) = sync_channel(1);
        let reading = scope.spawn(move || {
            let at = ReadOptions { snapshot: Some(db.snapshot()), ..ReadOptions::new() };
            tell.send(all_at(db, &at)).unwrap();
            at
        });
        // The snapshot waits, or was taken before the installation.
        let early = seen.recv_timeout(Duration::from_millis(100)).ok();
        held.release.send(()).unwrap();
        ingesting.join().unwrap().unwrap();
        let at = reading.join().unwrap();
        let first = early.unwrap_or_else(|| seen.recv().unwrap());
        assert_eq!(all_at(db, &at), first);
    });
    let snapshot = db.snapshot();
    write_file(how, "/later.sst", &[("later", "ingested")]);
    let error = db.ingest_external_file(&unnumbered(), ["/later.sst"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    drop(snapshot);
    db.ingest_external_file(&unnumbered(), ["/later.sst"]).unwrap();
    assert_eq!(all(db), entries(&[("key", "ingested"), ("later", "ingested")]));
}

#[test]
fn unnumbered_files_for_several_families_come_at_once() {
    const FAMILIES: usize = 12;
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    let families: Vec<ColumnFamily> =
        (0..FAMILIES).map(|n| db.create_column_family(&format!("{n}"), &how).unwrap()).collect();
    let round = AtomicU64::new(0);
    let options = IngestExternalFileOptions { snapshot_consistency: false, ..unnumbered() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20 {
                write_file(&how, "/file.sst", &[(&format!("{number:03}"), "ingested")]);
                let arg = |family| IngestExternalFileArg::new(family, ["/file.sst"], options);
                db.ingest_external_files(&families.iter().map(arg).collect::<Vec<_>>()).unwrap();
                round.store(number + 1, Ordering::SeqCst);
            }
        });
        for reader in 0..2 {
            let (db, round, families) = (&db, &round, &families);
            scope.spawn(move || {
                let named: Vec<&ColumnFamily> = families.iter().collect();
                loop {
                    let number = round.load(Ordering::SeqCst);
                    if number == 20 {
                        break;
                    }
                    let key = format!("{number:03}");
                    if reader == 0 {
                        let found = db.multi_get_cfs(&ReadOptions::new(), &named, &[&key; FAMILIES]);
                        let found: Vec<_> = found.into_iter().map(|v| v.unwrap().is_some()).collect();
                        assert!(found.iter().all(|there| *there == found[0]), "{found:?}");
                    } else {
                        let get = |family| db.get_cf(&ReadOptions::new(), family, &key).unwrap().is_some();
                        let [first, last] = [named[0], named[FAMILIES - 1]].map(get);
                        assert!(last || !first, "in the first family, and later not in the last one");
                    }
                }
            });
        }
    });
}

/// Two families of which one gets a file with a sequence number of its own, and a third one that
/// gets tables of another database. In each, some numbers are older than the newest of this
/// database and some are newer.
#[test]
fn files_that_keep_their_numbers_come_at_once_with_those_that_get_some() {
    const ROUNDS: u64 = 200;
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    let still = how.clone().column_families(|family| family.disable_auto_compactions = true);
    let source = Db::open("/source", &still).unwrap();
    let [second, third] = ["second", "third"].map(|name| db.create_column_family(name, &how).unwrap());
    let first = db.default_column_family();
    let numbered = IngestExternalFileOptions { snapshot_consistency: false, ..Default::default() };
    let unnumbered = IngestExternalFileOptions { snapshot_consistency: false, ..unnumbered() };
    let kept = IngestExternalFileOptions { allow_db_generated_files: true, ..numbered };
    let round = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..ROUNDS {
                let key = |end: &str| format!("{number:03}{end}");
                write_file(&how, "/file.sst", &[(&key("a"), "ingested")]);
                let arg = |family, options| IngestExternalFileArg::new(family, ["/file.sst"], options);
                db.ingest_external_files(&[arg(first, unnumbered), arg(&second, numbered)]).unwrap();
                source.put(key("a"), "ingested").unwrap();
                while db.latest_sequence_number() < source.latest_sequence_number() {
                    db.put("z", "takes a number").unwrap();
                }
                while source.latest_sequence_number() < db.latest_sequence_number() {
                    source.put(key("aa"), "takes a number").unwrap();
                }
                source.put(key("b"), "ingested").unwrap();
                source.flush(&FlushOptions::default()).unwrap();
                let table = source.live_files().iter().map(|file| file.number).max().unwrap();
                let tables = [format!("/source/{table:06}.sst")];
                db.ingest_external_files(&[IngestExternalFileArg::new(&third, tables, kept)]).unwrap();
                round.store(number + 1, Ordering::SeqCst);
            }
        });
        for families in [[first, &second], [&third, &third]] {
            let (db, round) = (&db, &round);
            scope.spawn(move || {
                let ends = if families[0].name() == "third" { ["a", "b"] } else { ["a", "a"] };
                loop {
                    let number = round.load(Ordering::SeqCst);
                    if number == ROUNDS {
                        break;
                    }
                    let keys = ends.map(|end| format!("{number:03}{end}"));
                    let found = db.multi_get_cfs(&ReadOptions::new(), &families, &keys);
                    let found: Vec<_> = found.into_iter().map(|v| v.unwrap().is_some()).collect();
                    assert_eq!(found[0], found[1], "{keys:?} of {:?}", families.map(|family| family.name()));
                }
            });
        }
    });
}

#[test]
fn writers_go_on_when_background_work_is_paused_during_an_ingestion() {
    // The ingested file is the first, the flushed one the second.
    let held = held(".sst", 2);
    let (db, how) = (&held.db, &held.how);
    write_file(how, "/file.sst", &[("a", "ingested"), ("z", "ingested")]);
    db.put("m", "old").unwrap();
    // The get inserts the entry into the memtable, so that it is not left for a later call.
    assert!(db.get("m").unwrap().is_some());
    std::thread::scope(|scope| {
        held.arm();
        let options = IngestExternalFileOptions::default();
        let ingesting = scope.spawn(move || db.ingest_external_file(&options, ["/file.sst"]));
        // The first flush is running; a later write to the range needs a second one.
        held.told.recv().unwrap();
        db.put("n", "newer").unwrap();
        // The pause is requested before the first flush ends, and waits for it.
        let mut paused = pin!(db.pause_background_work_async());
        let waits = paused.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
        held.release.send(()).unwrap();
        assert!(waits, "a flush is under way");
        block_on(db.env(), paused).unwrap();
        let (tell, written) = sync_channel(1);
        scope.spawn(move || {
            for number in 0..50 {
                db.put(format!("o{number}"), "newest").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            tell.send(()).unwrap();
        });
        let outcome = written.recv_timeout(Duration::from_secs(300));
        assert!(!ingesting.is_finished(), "it needs a flush");
        db.continue_background_work().unwrap();
        outcome.expect("writers wait for whoever has paused background work");
        ingesting.join().unwrap().unwrap();
    });
    let found = all(db);
    assert_eq!((found.len(), &*found["m"], &*found["n"]), (54, "old", "newer"));
}

#[test]
fn a_write_that_would_not_wait_does_not_wait_for_an_ingestion() {
    let held = held("MANIFEST", 1);
    let (db, how) = (&held.db, &held.how);
    write_file(how, "/file.sst", &[("key", "ingested")]);
    std::thread::scope(|scope| {
        held.arm();
        let ingesting =
            scope.spawn(|| db.ingest_external_file(&IngestExternalFileOptions::default(), ["/file.sst"]));
        held.told.recv().unwrap();
        let (tell, outcome) = sync_channel(1);
        scope.spawn(move || {
            let at_once = WriteOptions { no_slowdown: true, ..WriteOptions::new() };
            let _ = tell.send(db.put_cf(&at_once, db.default_column_family(), "key", "written"));
        });
        let refused = outcome.recv_timeout(Duration::from_secs(300));
        held.release.send(()).unwrap();
        ingesting.join().unwrap().unwrap();
        let error = refused.expect("it waits").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incomplete, "{error}");
    });
    db.put("key", "written").unwrap();
    assert_eq!(all(db), entries(&[("key", "written")]));
}

#[test]
fn an_ingestion_into_a_family_that_is_dropped_meanwhile_says_so() {
    let held = held("MANIFEST", 1);
    let (db, how) = (&held.db, &held.how);
    for round in 0..2 {
        let family = db.create_column_family("family", how).unwrap();
        db.put_cf(&WriteOptions::new(), &family, "in memory", "old").unwrap();
        db.flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
        write_file(how, "/file.sst", &[("key", "ingested")]);
        std::thread::scope(|scope| {
            held.arm();
            let dropping = {
                let family = family.clone();
                scope.spawn(move || db.drop_column_family(&family))
            };
            held.told.recv().unwrap();
            let arg = IngestExternalFileArg::new(&family, ["/file.sst"], Default::default());
            let ingesting = scope.spawn(move || db.ingest_external_files(&[arg]));
            // Time for the ingestion to wait for its turn at the MANIFEST; the result is the same
            // however far it gets.
            std::thread::sleep(Duration::from_millis(100));
            held.release.send(()).unwrap();
            dropping.join().unwrap().unwrap();
            let error = ingesting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "round {round}: {error}");
        });
    }
    db.put("the database", "goes on").unwrap();
}
