//! Files that are being copied into the directory while the database is closed, or after the future
//! was dropped.

use super::*;
use karst_engine::io::testing::{foreign_block_on, poll_times};
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, FileSystem};
use karst_engine::{ErrorKind, IngestExternalFileOptions, WaitForCompactOptions};
use karst_testkit::eventually;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Waker};
use std::time::Duration;

const PIECES: usize = 24;

/// Blocks the second write to a table of the database, and counts all of them.
#[derive(Debug)]
struct AtTable {
    writes: AtomicUsize,
    told: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Disturb for AtTable {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        if path.starts_with("/db")
            && path.extension().is_some_and(|extension| extension == "sst")
            && self.writes.fetch_add(1, Ordering::SeqCst) == 1
        {
            self.told.send(()).unwrap();
            // An error is ignored, because the sender is dropped when the test fails.
            let _ = self.go_on.lock().unwrap().recv();
        }
        Ok(())
    }
}

#[test]
fn closing_waits_for_a_copy_which_ends_and_leaves_nothing() {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let (tell, told) = sync_channel(1);
    let (release, go_on) = sync_channel(1);
    let between = AtTable { writes: AtomicUsize::new(0), told: tell, go_on: Mutex::new(go_on) };
    let disturbed = DisturbedFileSystem::new(files.clone(), between);
    let between = disturbed.between().clone();
    let env = Env::builder().file_system(Arc::new(disturbed)).build();
    let how = Options::new().env(env).db(|db| db.create_if_missing = true);
    let how = how.set("compression", "kNoCompression").unwrap();
    let value = "x".repeat(1 << 20);
    let keys: Vec<String> = (0..PIECES).map(|i| format!("{i:02}")).collect();
    write_file(&how, "/file.sst", &keys.iter().map(|key| (&**key, &*value)).collect::<Vec<_>>());
    let db = Db::open("/db", &how).unwrap();
    let tables = || {
        let names = files.list_dir("/db".as_ref()).unwrap();
        names.into_iter().filter(|name| name.ends_with(".sst")).count()
    };
    std::thread::scope(|scope| {
        let ingesting =
            scope.spawn(|| db.ingest_external_file(&IngestExternalFileOptions::default(), ["/file.sst"]));
        // Moved into the scope, so that a failed assertion drops it and the blocked thread
        // continues.
        let release = release;
        told.recv().unwrap();
        // This future waits while background work is paused, and ends with an error at the close.
        db.pause_background_work().unwrap();
        let options = WaitForCompactOptions::default();
        let mut ends = pin!(db.wait_for_compact_async(&options));
        assert!(ends.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let closing = scope.spawn(|| db.close());
        assert_eq!(foreign_block_on(ends).unwrap_err().kind(), ErrorKind::Closed);
        // Long enough for a close that does not wait. A close that waits passes after any time.
        for _ in 0..20 {
            assert!(!closing.is_finished(), "it is closed while a table is being made");
            std::thread::sleep(Duration::from_millis(10));
        }
        release.send(()).unwrap();
        closing.join().unwrap().unwrap();
        let writes = between.writes.load(Ordering::SeqCst);
        assert!(writes < PIECES, "{writes}: the copy has gone on");
        assert_eq!(tables(), 0);
        let error = ingesting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((between.writes.load(Ordering::SeqCst), tables()), (writes, 0));
    });
    assert!(all(&Db::open("/db", &how).unwrap()).is_empty());
}

#[test]
fn an_ingestion_that_nobody_waits_for_ends() {
    let how = in_memory();
    let db = Db::open("/db", &how).unwrap();
    let options = IngestExternalFileOptions { move_files: true, ..Default::default() };
    // Several rounds, because the ingestion may end before its future is dropped.
    for round in 0.. {
        write_file(&how, "/file.sst", &[("key", &round.to_string())]);
        let ended = {
            let mut ingested = pin!(db.ingest_external_file_async(&options, ["/file.sst"]));
            foreign_block_on(poll_times(ingested.as_mut(), 1))
        };
        eventually(entries(&[("key", &round.to_string())]), || all(&db));
        eventually(false, || db.env().fs().exists(Path::new("/file.sst")).unwrap());
        match ended {
            Some(ended) => ended.unwrap(),
            None => return,
        }
        assert!(round < 1_000, "it was waited for each time");
    }
}
