//! Callbacks of listeners: their order and the correctness of their information.

use karst_engine::io::{Env, MemoryFileSystem, Simulation};
use karst_engine::{
    BackgroundError, BlobFileCreationInfo, BottommostLevelCompaction, CompactRangeOptions, CompactionInfo,
    Db, Error, EventListener, FileCreationInfo, FileDeletionInfo, FlushInfo, FlushOptions, MemTableInfo,
    Options, TableFileCreationInfo, TableFileCreationReason,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
enum Told {
    Sealed(MemTableInfo),
    Scheduled(Vec<String>),
    FlushBegun(FlushInfo),
    FlushCompleted(FlushInfo),
    CompactionBegun(CompactionInfo),
    CompactionCompleted(CompactionInfo),
    TableStarted(FileCreationInfo),
    Table(TableFileCreationInfo),
    TableDeleted(FileDeletionInfo),
    BlobStarted(FileCreationInfo),
    Blob(BlobFileCreationInfo),
    BlobDeleted(FileDeletionInfo),
    RecoveryBegun,
    RecoveryEnded(bool),
    Recovered,
}

#[derive(Debug, Default)]
struct Listens(Mutex<Vec<Told>>);

impl Listens {
    fn hears(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Waits for `count` callbacks that another thread makes.
    fn wait_for(&self, wanted: impl Fn(&Told) -> bool, count: usize) -> Vec<Told> {
        for _ in 0..60_000 {
            let told = self.0.lock().unwrap();
            if told.iter().filter(|told| wanted(told)).count() >= count {
                return told.clone();
            }
            drop(told);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("nobody is told: {:?}", self.0.lock().unwrap());
    }
}

impl EventListener for Listens {
    fn memtable_sealed(&self, memtable: &MemTableInfo) {
        self.hears(Told::Sealed(memtable.clone()));
    }
    fn manual_flush_scheduled(&self, families: &[String]) {
        self.hears(Told::Scheduled(families.to_vec()));
    }
    fn flush_begun(&self, flush: &FlushInfo) {
        self.hears(Told::FlushBegun(flush.clone()));
    }
    fn flush_completed(&self, flush: &FlushInfo) {
        self.hears(Told::FlushCompleted(flush.clone()));
    }
    fn compaction_begun(&self, compaction: &CompactionInfo) {
        self.hears(Told::CompactionBegun(compaction.clone()));
    }
    fn compaction_completed(&self, compaction: &CompactionInfo) {
        self.hears(Told::CompactionCompleted(compaction.clone()));
    }
    fn table_file_creation_started(&self, file: &FileCreationInfo) {
        self.hears(Told::TableStarted(file.clone()));
    }
    fn table_file_created(&self, table: &TableFileCreationInfo) {
        self.hears(Told::Table(table.clone()));
    }
    fn table_file_deleted(&self, file: &FileDeletionInfo) {
        self.hears(Told::TableDeleted(file.clone()));
    }
    fn blob_file_creation_started(&self, file: &FileCreationInfo) {
        self.hears(Told::BlobStarted(file.clone()));
    }
    fn blob_file_created(&self, file: &BlobFileCreationInfo) {
        self.hears(Told::Blob(file.clone()));
    }
    fn blob_file_deleted(&self, file: &FileDeletionInfo) {
        self.hears(Told::BlobDeleted(file.clone()));
    }
    fn error_recovery_begun(&self, _: &BackgroundError) {
        self.hears(Told::RecoveryBegun);
    }
    fn error_recovery_ended(&self, _: &BackgroundError, failed: Option<&Error>) {
        self.hears(Told::RecoveryEnded(failed.is_none()));
    }
    fn recovered(&self, _: &BackgroundError) {
        self.hears(Told::Recovered);
    }
}

fn opened(text: &str) -> (Db, Arc<Listens>, Arc<MemoryFileSystem>) {
    let files = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files.clone()).build();
    let listens = Arc::new(Listens::default());
    let all =
        "create_if_missing=true;disable_auto_compactions=true;level_compaction_dynamic_level_bytes=false";
    let options = Options::new().env(env).set_all(all).unwrap().set_all(text).unwrap();
    (Db::open("/db", &options.event_listener(listens.clone())).unwrap(), listens, files)
}

#[test]
fn a_flush_is_told_from_the_sealed_memtable_to_the_table_with_its_properties() {
    let (db, listens, _) = opened("enable_blob_files=true;min_blob_size=100");
    db.put("a", "1").unwrap();
    db.put("b", "x".repeat(1000)).unwrap();
    db.delete("c").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    let mut told = listens.wait_for(|told| matches!(told, Told::FlushCompleted(_)), 1);
    // The flushing call may continue as soon as the flush begins, so `Scheduled` comes at any
    // place.
    let scheduled = told.iter().position(|told| matches!(told, Told::Scheduled(_))).unwrap();
    let Told::Scheduled(names) = told.remove(scheduled) else { unreachable!() };
    assert_eq!(names, ["default"]);
    let [
        Told::Sealed(memtable),
        Told::FlushBegun(begun),
        Told::TableStarted(table_started),
        Told::BlobStarted(blob_started),
        rest @ ..,
    ] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!((memtable.entries, memtable.deletions, memtable.largest_seq), (3, 1, 3));
    assert_eq!(memtable.earliest_seq, 0);
    assert!(memtable.memory_bytes > 1000 && memtable.column_family == "default");
    assert!(begun.table_path.is_none() && begun.table_properties.is_none());
    assert_eq!((table_started.job, table_started.reason), (begun.job, TableFileCreationReason::Flush));
    let (mut table, mut blob, mut completed) = (None, None, None);
    for one in rest {
        match one {
            Told::Table(info) => assert!(table.replace(info).is_none()),
            Told::Blob(info) => assert!(blob.replace(info).is_none()),
            Told::FlushCompleted(info) => completed = Some(info),
            other => panic!("{other:?}"),
        }
    }
    let (table, blob, completed) = (table.unwrap(), blob.unwrap(), completed.unwrap());
    assert!(matches!(rest.last(), Some(Told::FlushCompleted(_))), "{rest:?}");
    let live = db.live_files();
    let on_disk = |level: Option<u32>| {
        let file = live.iter().find(|file| file.level == level).unwrap();
        (file.directory.join(&file.name), file.size_bytes)
    };
    assert_eq!((table.file.path.clone(), table.size_bytes), on_disk(Some(0)));
    assert_eq!((&table.file.path, &*table.file.column_family), (&table_started.path, "default"));
    assert_eq!((table.table_properties.num_entries, table.table_properties.num_deletions), (3, 1));
    assert!(table.error.is_none() && blob.error.is_none());
    assert_eq!((&blob.file.path, blob.total_blob_count), (&blob_started.path, 1));
    assert!(blob.total_blob_bytes > 1000 && blob.file.path == on_disk(None).0);
    assert_eq!(completed.table_path.as_ref(), Some(&table.file.path));
    assert_eq!(completed.table_properties.as_deref(), Some(&*table.table_properties));
    let [added] = &completed.blob_files[..] else { panic!("{completed:?}") };
    assert_eq!((&added.path, added.total_blob_count), (&blob.file.path, 1));
    assert_eq!(added.total_blob_bytes, blob.total_blob_bytes);
    assert!(added.path.ends_with(format!("{:06}.blob", added.number)), "{added:?}");
    assert_eq!(completed.oldest_blob_file, Some(added.number));
    assert_eq!((completed.column_family_id, completed.slows_writes), (0, false));
    assert_eq!((completed.seqs, completed.job), (Some((1, 3)), begun.job));
}

#[test]
fn a_compaction_is_told_with_its_files_and_so_are_those_that_go() {
    let (db, listens, files) = opened("enable_blob_files=true;min_blob_size=100");
    for value in ["1", "2"] {
        for key in ["a", "z"] {
            db.put(key, value.repeat(if key == "a" { 200 } else { 1 })).unwrap();
        }
        db.flush(&FlushOptions::default()).unwrap();
    }
    let inputs: Vec<PathBuf> = db
        .live_files()
        .iter()
        .filter(|file| file.level == Some(0))
        .map(|file| file.directory.join(&file.name))
        .collect();
    assert_eq!(inputs.len(), 2);
    listens.take();
    let all = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&all, None, None).unwrap();
    let completed = |told: &Told| matches!(told, Told::CompactionCompleted(_));
    // One of two values of `a` is dropped, and so is its blob file.
    let gone = |told: &Told| matches!(told, Told::BlobDeleted(_));
    listens.wait_for(gone, 1);
    let told = listens.wait_for(|told| matches!(told, Told::TableDeleted(_)), 2);
    let Some(Told::CompactionBegun(begun)) = told.iter().find(|t| matches!(t, Told::CompactionBegun(_)))
    else {
        panic!("{told:?}")
    };
    let mut begun_inputs = begun.input_paths.clone();
    begun_inputs.sort();
    let mut wanted = inputs.clone();
    wanted.sort();
    assert_eq!(begun_inputs, wanted);
    assert!(begun.output_paths.is_empty() && begun.table_properties.is_empty());
    let Some(Told::CompactionCompleted(first)) = told.iter().find(|told| completed(told)) else {
        panic!("{told:?}")
    };
    assert_eq!((first.job, first.output_paths.len(), first.subcompactions), (begun.job, 1, 1));
    let output = &first.output_paths[0];
    assert_eq!(first.table_properties[output].num_entries, 2);
    let created = told.iter().find_map(|told| match told {
        Told::Table(table) if table.file.path == *output => Some(table),
        _ => None,
    });
    let created = created.unwrap();
    assert_eq!((created.file.job, created.file.reason), (first.job, TableFileCreationReason::Compaction));
    assert_eq!(*created.table_properties, *first.table_properties[output]);
    let merged: Vec<_> = first.input_table_properties.keys().cloned().collect();
    assert_eq!(merged, wanted);
    assert!(first.input_table_properties.values().all(|table| table.num_entries == 2));
    assert_eq!((begun.l0_files, first.l0_files), (2, 0));
    assert_eq!((first.reason.as_str(), first.reason_number), ("ManualCompaction", 9));
    let levels: Vec<_> = first.input_infos.iter().map(|file| (file.level, file.oldest_blob_file)).collect();
    assert!(levels.iter().all(|(level, blobs)| *level == 0 && blobs.is_some()), "{levels:?}");
    let [written] = &first.output_infos[..] else { panic!("{first:?}") };
    assert!(output.ends_with(format!("{:06}.sst", written.number)), "{written:?}");
    let [garbage] = &first.blob_garbage[..] else { panic!("{first:?}") };
    assert_eq!((written.level, garbage.garbage_blob_count), (first.output_level, 1));
    assert!(told.iter().any(|t| matches!(t, Told::BlobDeleted(f) if f.path == garbage.path)), "{told:?}");
    assert!(first.blob_files.is_empty() && garbage.garbage_blob_bytes > 200, "{first:?}");
    assert!(begun.stats.is_manual && begun.stats.input_files == 2 && begun.stats.input_entries == 0);
    let stats = &first.stats;
    assert_eq!((stats.input_entries, stats.output_entries, stats.replaced), (4, 2, 2));
    assert_eq!((stats.input_files, stats.output_files, stats.input_bytes), (2, 1, first.input_bytes));
    assert_eq!((&stats.smallest_output_prefix[..], &stats.largest_output_prefix[..]), (&b"a"[..], &b"z"[..]));
    assert_eq!((stats.output_bytes, stats.moved_files), (first.output_bytes, 0));
    // For each entry, one byte of user key and eight of sequence number and type.
    assert_eq!(stats.input_key_bytes, 4 * 9);
    for one in &told {
        if let Told::TableDeleted(file) | Told::BlobDeleted(file) = one {
            assert!(file.error.is_none());
            assert!(!karst_engine::io::FileSystem::exists(&*files, &file.path).unwrap(), "{file:?}");
        }
    }
    let deleted = |path: &PathBuf| told.iter().any(|t| matches!(t, Told::TableDeleted(f) if f.path == *path));
    assert!(inputs.iter().all(deleted), "{told:?}");
}

#[test]
fn a_file_that_moves_is_told_where_it_is_and_no_file_is_made() {
    let (db, listens, _) = opened("");
    db.put("a", "1").unwrap();
    db.flush(&FlushOptions::default()).unwrap();
    listens.wait_for(|told| matches!(told, Told::FlushCompleted(_)), 1);
    listens.take();
    let to = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Skip,
        ..CompactRangeOptions::default()
    };
    db.compact_range(&to, None, None).unwrap();
    let told = listens.take();
    let [Told::CompactionBegun(begun), Told::CompactionCompleted(completed)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((begun.input_paths.len(), &completed.output_paths), (1, &begun.input_paths));
    assert!(completed.table_properties.is_empty());
    let told: Vec<_> = completed.input_table_properties.keys().collect();
    assert_eq!(told, completed.input_paths.iter().collect::<Vec<_>>());
    assert!(completed.input_table_properties.values().all(|table| table.num_entries == 1));
    assert_eq!((completed.stats.moved_files, completed.stats.output_files), (1, 0));
    assert_eq!(completed.output_infos[0].number, completed.input_infos[0].number);
}

#[test]
fn a_table_that_does_not_get_written_and_the_way_back_are_told() {
    let simulation = Simulation::new(7);
    let (env, fs) = (simulation.env().clone(), simulation.fs());
    let listens = Arc::new(Listens::default());
    let options = Options::new()
        .env(env)
        .set_all("create_if_missing=true;max_bgerror_resume_count=0")
        .unwrap()
        .event_listener(listens.clone());
    let db = Db::open("/db", &options).unwrap();
    db.put("a", "x".repeat(100_000)).unwrap();
    fs.set_full(Some(|path: &Path| path.extension().is_some_and(|end| end == "sst")));
    fs.set_capacity(Some(0));
    assert!(db.flush(&FlushOptions::default()).is_err());
    let told = listens.take();
    let failed = told.iter().find_map(|told| match told {
        Told::Table(table) => Some(table),
        _ => None,
    });
    assert!(failed.unwrap().error.is_some(), "{told:?}");
    assert!(!told.iter().any(|told| matches!(told, Told::FlushCompleted(_))));
    assert!(db.resume().is_err());
    fs.set_capacity(None);
    fs.set_full(None);
    db.resume().unwrap();
    let told = listens.take();
    let recovery: Vec<_> = told
        .iter()
        .filter(|told| matches!(told, Told::RecoveryBegun | Told::RecoveryEnded(_) | Told::Recovered))
        .collect();
    let [
        Told::RecoveryBegun,
        Told::RecoveryEnded(false),
        Told::RecoveryBegun,
        Told::RecoveryEnded(true),
        Told::Recovered,
    ] = recovery[..]
    else {
        panic!("{recovery:?}")
    };
    let whole = |told: &Told| matches!(told, Told::Table(table) if table.error.is_none());
    assert_eq!(told.iter().filter(|told| whole(told)).count(), 1, "{told:?}");
    db.close().unwrap();
}
