//! File operations reported to listeners that ask for them: operation, file and database, and no
//! report to any other listener.

use karst_engine::io::Env;
use karst_engine::{
    Db, EventListener, FileOperation, FileOperationInfo, FlushOptions, Options, WriteOptions,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number, bytes and duration of operations by kind of file and operation.
type ByKind = BTreeMap<(String, &'static str), (u64, u64, Duration)>;

/// Listener that sums up file operations.
#[derive(Debug, Default)]
struct Sums {
    wants: bool,
    sums: Mutex<ByKind>,
}

impl Sums {
    fn add(&self, operation: &FileOperationInfo<'_>, wanted: FileOperation, called: &'static str) {
        assert_eq!(operation.operation, wanted);
        assert!(operation.error.is_none(), "{operation:?}");
        let name = operation.path.file_name().unwrap().to_string_lossy().into_owned();
        let kind = name.rsplit_once('.').map_or_else(
            || name.split('-').next().unwrap().to_owned(),
            |(_, extension)| extension.to_owned(),
        );
        let mut sums = self.sums.lock().unwrap();
        let sum = sums.entry((kind, called)).or_default();
        *sum = (sum.0 + 1, sum.1 + operation.length, sum.2 + operation.duration);
    }

    fn of(&self, kind: &str, called: &'static str) -> (u64, u64) {
        let sums = self.sums.lock().unwrap();
        sums.get(&(kind.to_owned(), called)).map_or((0, 0), |sum| (sum.0, sum.1))
    }
}

impl EventListener for Sums {
    fn should_be_notified_on_file_io(&self) -> bool {
        self.wants
    }
    fn file_read_finished(&self, operation: &FileOperationInfo<'_>) {
        self.add(operation, FileOperation::Read, "read");
    }
    fn file_write_finished(&self, operation: &FileOperationInfo<'_>) {
        self.add(operation, FileOperation::Write, "write");
    }
    fn file_sync_finished(&self, operation: &FileOperationInfo<'_>) {
        self.add(operation, FileOperation::Sync, "sync");
    }
    fn file_close_finished(&self, operation: &FileOperationInfo<'_>) {
        self.add(operation, FileOperation::Close, "close");
    }
}

fn opened(env: &Env, path: &Path, listener: &Arc<Sums>) -> Db {
    let options = Options::new().env(env.clone()).db(|db| db.create_if_missing = true);
    Db::open(path, &options.event_listener(listener.clone()).block_cache_bytes(0)).unwrap()
}

fn work(db: &Db) {
    for number in 0..100 {
        db.put(format!("{number:03}"), [b'x'; 1000]).unwrap();
    }
    db.put_opt(&WriteOptions::synced(), "synced", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    assert!(db.get("050").unwrap().is_some());
    karst_engine::io::block_on(db.env(), async { assert!(db.get_async("051").await.unwrap().is_some()) });
}

#[test]
fn who_wants_to_know_is_told_of_every_kind_of_file() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::posix();
    let (told, silent) = (Arc::new(Sums { wants: true, ..Sums::default() }), Arc::new(Sums::default()));
    let db = opened(&env, &directory.path().join("told"), &told);
    let other = opened(&env, &directory.path().join("silent"), &silent);
    work(&db);
    let table = db.live_files()[0].clone();
    db.close().unwrap();
    let (writes, bytes) = told.of("log", "write");
    assert!(writes >= 101 && bytes > 100_000, "{writes} {bytes}");
    assert!(told.of("log", "sync").0 >= 1);
    assert_eq!(told.of("sst", "write").1, table.size_bytes);
    assert_eq!((told.of("sst", "sync").0, told.of("sst", "close").0), (1, 1));
    assert!(told.of("sst", "read").1 > 0, "blocks are read, without a cache");
    assert!(told.of("MANIFEST", "write").0 >= 2 && told.of("MANIFEST", "sync").0 >= 1);
    // Operations of another database in this environment are reported to neither listener.
    let before = told.sums.lock().unwrap().clone();
    work(&other);
    other.close().unwrap();
    assert_eq!(*told.sums.lock().unwrap(), before);
    assert!(silent.sums.lock().unwrap().is_empty());
    // A dropped database reports nothing any more.
    drop((db, other));
    let reads = told.of("sst", "read");
    let db = Db::open_read_only(directory.path().join("told"), &Options::new().env(env)).unwrap();
    assert!(db.get("050").unwrap().is_some());
    assert_eq!(told.of("sst", "read"), reads);
}
