//! Tests of installs: published state, records in the MANIFEST, state after failures, and removal
//! of files.

use super::{Change, Versions};
use crate::open::{self, Opened, Options, Ownership};
use karst_base::error::ErrorKind;
use karst_format::file_name::{self, FileName};
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::key::{self, SeqNo, ValueType};
use karst_format::log::LogReader;
use karst_format::version_edit::{BlobFileAddition, BlobFileGarbage, NewFile, VersionEdit};
use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem, block_on};
use karst_lsm::{FileCounts, ManifestReplay, TreeOptions, VersionSet};
use karst_storage::column_family::Family;
use karst_storage::table::writer::NewFiles;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Fails one change of a file, or none; counts all of them.
#[derive(Debug, Default)]
struct FailOnce {
    seen: AtomicU64,
    /// The change that fails, counted from 1; 0 is none.
    fails: AtomicU64,
    /// Changes of MANIFESTs.
    of_manifests: AtomicU64,
    /// Locked to block all changes of files.
    gate: Mutex<()>,
}

impl FailOnce {
    /// Makes the change after `more` others fail.
    fn fail_after(&self, more: u64) {
        self.fails.store(self.seen.load(Ordering::Relaxed) + more + 1, Ordering::Relaxed);
    }
}

impl Disturb for FailOnce {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        drop(self.gate.lock());
        if path.to_string_lossy().contains("MANIFEST") {
            self.of_manifests.fetch_add(1, Ordering::Relaxed);
        }
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        match number == self.fails.load(Ordering::Relaxed) {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

/// An empty database in memory.
struct Database {
    memory: MemoryFileSystem,
    between: Arc<FailOnce>,
    opened: Opened,
}

impl Database {
    fn new(change: impl Fn(&mut crate::DbOptions) + Send + Sync + 'static) -> Database {
        let memory = MemoryFileSystem::new();
        let disturbed = DisturbedFileSystem::new(Arc::new(memory.clone()), FailOnce::default());
        let between = disturbed.between().clone();
        let env = Env::builder().file_system(Arc::new(disturbed)).build();
        let options = Options::new().env(env).db(move |db| {
            db.create_if_missing = true;
            change(db);
        });
        let opened = open::read_write(Path::new("/db"), &options, None).unwrap();
        Database { memory, between, opened }
    }

    fn ownership(&self) -> &Ownership {
        self.opened.ownership.as_ref().unwrap()
    }

    fn versions(&self) -> &Arc<Versions> {
        &self.ownership().versions
    }

    fn install(&self, change: Change) -> crate::Result<()> {
        block_on(&self.opened.read.env, self.versions().install(change))
    }

    fn names(&self) -> BTreeSet<FileName> {
        let names = self.memory.list_dir(Path::new("/db")).unwrap();
        names.iter().filter_map(|name| FileName::parse(name)).collect()
    }

    /// Waits until all files that may be removed are removed.
    fn settle(&self) {
        while self.versions().obsolete().is_removing() {
            std::thread::yield_now();
        }
    }

    fn has_table(&self, number: FileNumber) -> bool {
        self.names().contains(&FileName::Table(number))
    }

    /// Returns a change that adds a table, and the table's number.
    fn adds_table(&self) -> (Change, FileNumber) {
        let files = self.versions().job_files(0);
        let number = files.new_table();
        self.memory
            .write_file(&Path::new("/db").join(FileName::Table(number).to_string()), vec![1; 9])
            .unwrap();
        let epoch = self.versions().new_epoch(ColumnFamilyId::DEFAULT);
        let edit =
            VersionEdit { new_files: vec![(Level(0), table(number, epoch))], ..VersionEdit::default() };
        (Change { files: files.take(), ..Change::edit(edit) }, number)
    }

    fn live(&self) -> BTreeSet<FileNumber> {
        let family = self.opened.read.families.named("default").unwrap();
        let version = family.superversion().version().clone();
        version.all_files().map(|(_, file)| file.number).collect()
    }

    /// Replays the MANIFEST that CURRENT names.
    fn replayed(&self) -> VersionSet {
        let read = |name: &str| self.memory.read_file(&Path::new("/db").join(name)).unwrap();
        let manifest = file_name::parse_current(&read("CURRENT")).expect("CURRENT names a MANIFEST");
        let bytes = read(&manifest.to_string());
        let (mut replay, mut reader) = (ManifestReplay::new(), LogReader::manifest(&bytes));
        while let Some(record) = reader.next_record() {
            replay.add(VersionEdit::decode(record.unwrap().bytes).unwrap()).unwrap();
        }
        replay.finish(|_| Ok(Some(TreeOptions::default()))).unwrap()
    }

    fn replayed_tables(&self) -> BTreeSet<FileNumber> {
        let set = self.replayed();
        let families = set.column_families.values();
        families.flat_map(|family| family.version.all_files()).map(|(_, file)| file.number).collect()
    }
}

fn table(number: FileNumber, epoch: u64) -> NewFile {
    let user_key = format!("{number:>20}").into_bytes();
    let mut internal = Vec::new();
    key::append(&mut internal, &user_key, key::pack_trailer(SeqNo(number.0), ValueType::Value));
    let mut file = NewFile::new(number, 9, internal.clone(), internal, SeqNo(number.0), SeqNo(number.0));
    file.epoch_number = epoch;
    file
}

fn deletes(numbers: &[FileNumber]) -> Change {
    let deleted_files = numbers.iter().map(|number| (Level(0), *number)).collect();
    Change::edit(VersionEdit { deleted_files, ..VersionEdit::default() })
}

#[test]
fn changes_that_come_together_share_writes_and_all_are_carried_out() {
    let database = Database::new(|_| {});
    let before = database.between.of_manifests.load(Ordering::Relaxed);
    let begun: Vec<_> = (0..200).map(|_| database.adds_table()).collect();
    let numbers: BTreeSet<_> = begun.iter().map(|(_, number)| *number).collect();
    let waiting: Vec<_> = begun.into_iter().map(|(change, _)| database.versions().install(change)).collect();
    for installed in waiting {
        block_on(&database.opened.read.env, installed).unwrap();
    }
    assert_eq!((database.live(), database.replayed_tables()), (numbers.clone(), numbers.clone()));
    assert_eq!(database.versions().last_sequence(), SeqNo(numbers.last().unwrap().0));
    let set = database.replayed();
    assert_eq!(set.last_sequence, database.versions().last_sequence());
    assert!(set.next_file_number > *numbers.last().unwrap());
    let writes = database.between.of_manifests.load(Ordering::Relaxed) - before;
    assert!(writes < 2 * 200, "{writes} writes and syncs for 200 changes");
}

#[test]
fn a_change_that_does_not_fit_fails_alone() {
    let database = Database::new(|_| {});
    let ((first, a), (second, b)) = (database.adds_table(), database.adds_table());
    let versions = database.versions();
    let waiting = [
        versions.install(first),
        versions.install(deletes(&[FileNumber(4711)])),
        versions.install(Change::edit(VersionEdit {
            column_family: ColumnFamilyId(9),
            log_number: Some(FileNumber(1)),
            ..VersionEdit::default()
        })),
        versions.install(second),
    ];
    let outcomes =
        waiting.map(|installed| block_on(&database.opened.read.env, installed).map_err(|e| e.kind()));
    assert_eq!(outcomes, [Ok(()), Err(ErrorKind::Corruption), Err(ErrorKind::NotFound), Ok(())]);
    assert_eq!(database.replayed_tables(), BTreeSet::from([a, b]));
}

#[test]
fn an_install_goes_on_when_nobody_waits_for_it() {
    let database = Database::new(|_| {});
    let (change, number) = database.adds_table();
    drop(database.versions().install(change));
    database.install(Change::default()).unwrap();
    database.settle();
    assert!(database.has_table(number) && database.replayed_tables().contains(&number));
}

#[test]
fn a_file_stays_while_anyone_can_reach_it() {
    let database = Database::new(|_| {});
    let (change, number) = database.adds_table();
    database.install(change).unwrap();
    let family = database.opened.read.families.named("default").unwrap();
    let reader = family.superversion();
    // The file moves with a change of its metadata; then it leaves.
    let mut moved = table(number, 1);
    moved.marked_for_compaction = true;
    let mut change = deletes(&[number]);
    change.edits[0].new_files.push((Level(3), moved));
    database.install(change).unwrap();
    database.settle();
    assert!(database.has_table(number), "it only moved");
    let leaves = VersionEdit { deleted_files: vec![(Level(3), number)], ..VersionEdit::default() };
    database.install(Change::edit(leaves)).unwrap();
    database.settle();
    assert!(database.live().is_empty() && database.has_table(number), "a reader has it");
    let hold = block_on(&database.opened.read.env, database.versions().obsolete().hold());
    drop(reader);
    database.settle();
    assert!(database.has_table(number), "files are held");
    assert_eq!(database.versions().obsolete().waiting().len(), 1);
    drop(hold);
    database.settle();
    assert!(!database.has_table(number));
}

#[test]
fn files_of_a_job_that_fails_are_removed_and_those_it_did_not_need() {
    let database = Database::new(|_| {});
    let files = database.versions().job_files(0);
    let (used, unused, blob) = (files.new_table(), files.new_table(), files.new_blob_file());
    let path = |name: FileName| Path::new("/db").join(name.to_string());
    for name in [FileName::Table(used), FileName::Table(unused), FileName::Blob(blob)] {
        database.memory.write_file(&path(name), vec![0; 9]).unwrap();
    }
    let edit = VersionEdit { new_files: vec![(Level(0), table(used, 1))], ..VersionEdit::default() };
    database.install(Change { files: files.take(), ..Change::edit(edit) }).unwrap();
    database.settle();
    assert!(database.has_table(used) && !database.has_table(unused));
    assert!(!database.names().contains(&FileName::Blob(blob)));
    let (change, failed) = database.adds_table();
    drop(change);
    database.settle();
    assert!(!database.has_table(failed));
}

#[test]
fn a_blob_file_goes_with_its_last_blob() {
    let database = Database::new(|_| {});
    let files = database.versions().job_files(0);
    let (number, blob) = (files.new_table(), files.new_blob_file());
    let path = |name: FileName| Path::new("/db").join(name.to_string());
    database.memory.write_file(&path(FileName::Table(number)), vec![0; 9]).unwrap();
    database.memory.write_file(&path(FileName::Blob(blob)), vec![0; 9]).unwrap();
    let mut file = table(number, 1);
    file.oldest_blob_file = Some(blob);
    let edit = VersionEdit {
        new_files: vec![(Level(0), file)],
        blob_file_additions: vec![BlobFileAddition {
            number: blob,
            total_count: 2,
            total_bytes: 9,
            ..BlobFileAddition::default()
        }],
        ..VersionEdit::default()
    };
    database.install(Change { files: files.take(), ..Change::edit(edit) }).unwrap();
    let half = BlobFileGarbage { number: blob, count: 1, bytes: 4 };
    let garbage = VersionEdit { blob_file_garbages: vec![half], ..VersionEdit::default() };
    database.install(Change::edit(garbage)).unwrap();
    database.settle();
    assert!(database.names().contains(&FileName::Blob(blob)));
    let mut last = deletes(&[number]);
    last.edits[0].blob_file_garbages.push(BlobFileGarbage { number: blob, count: 1, bytes: 5 });
    database.install(last).unwrap();
    database.settle();
    assert!(!database.names().contains(&FileName::Blob(blob)) && !database.has_table(number));
}

#[test]
fn logs_go_when_no_family_needs_them() {
    let database = Database::new(|db| db.track_and_verify_wals_in_manifest = true);
    let versions = database.versions();
    let logs: Vec<FileNumber> = (0..3).map(|_| versions.new_file_number()).collect();
    for log in &logs {
        database.memory.write_file(&Path::new("/db").join(FileName::Wal(*log).to_string()), vec![]).unwrap();
        versions.add_log(*log);
    }
    let (read, ownership) = (&database.opened.read, database.ownership());
    let other = open::create_column_families(read, ownership, &["other"], &Options::new()).unwrap().remove(0);
    let log_number =
        |family, log| VersionEdit { column_family: family, log_number: Some(log), ..VersionEdit::default() };
    database.install(Change::edit(log_number(ColumnFamilyId::DEFAULT, logs[2]))).unwrap();
    database.settle();
    assert_eq!(versions.logs(), logs, "the other family may have entries in them");
    versions.advance_log_number(other.id(), logs[1]);
    database.install(Change::edit(log_number(ColumnFamilyId::DEFAULT, logs[2]))).unwrap();
    database.settle();
    assert_eq!((versions.logs(), versions.min_log_number()), (logs[1..].to_vec(), logs[1]));
    assert!(!database.names().contains(&FileName::Wal(logs[0])));
    assert_eq!(database.replayed().min_log_number_to_keep, logs[1]);
    open::drop_column_family(read, ownership, &other).unwrap();
    database.settle();
    assert_eq!(versions.logs(), logs[2..]);
}

/// A waker that records if a family was dropped when it is woken.
struct SeesDropped(Arc<Family>, AtomicBool);

impl Wake for SeesDropped {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0.is_dropped(), Ordering::Release);
    }
}

#[test]
fn a_change_to_a_family_that_its_group_drops_fails_when_the_family_is_dropped() {
    let database = Database::new(|_| {});
    let versions = database.versions();
    let other = open::create_column_families(
        &database.opened.read,
        database.ownership(),
        &["other"],
        &Options::new(),
    )
    .unwrap()
    .remove(0);
    let column_family = other.id();
    let held_up = database.between.gate.lock();
    // The first change is being written while the others gather in a group.
    let first = versions.install(database.adds_table().0);
    while !versions.is_writing() {
        std::thread::yield_now();
    }
    let drops = VersionEdit { column_family, column_family_drop: true, ..VersionEdit::default() };
    let dropped = versions.install(Change::edit(drops));
    let late = VersionEdit { column_family, log_number: Some(FileNumber(1)), ..VersionEdit::default() };
    let mut late = versions.install(Change::edit(late));
    let sees = Arc::new(SeesDropped(other, AtomicBool::new(false)));
    let waker = Waker::from(sees.clone());
    assert!(Pin::new(&mut late).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held_up);
    let outcomes = [first, dropped].map(|installed| block_on(&database.opened.read.env, installed));
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    database.install(Change::default()).unwrap();
    let Poll::Ready(Err(error)) = Pin::new(&mut late).poll(&mut Context::from_waker(&waker)) else {
        panic!("a change to a family that is gone was made");
    };
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(sees.1.load(Ordering::Acquire), "whoever was told found the family there");
}

#[test]
fn a_family_that_is_created_begins_with_the_oldest_log_of_the_moment_when_that_is_staged() {
    let database = Database::new(|_| {});
    let versions = database.versions();
    let held_up = database.between.gate.lock();
    let first = versions.install(database.adds_table().0);
    while !versions.is_writing() {
        std::thread::yield_now();
    }
    // Recovery raises the log numbers, and a family is created behind it, in one group.
    let log = versions.new_file_number();
    let recovered = versions.install(Change { first_log: Some(log), ..Change::default() });
    let (read, ownership) = (&database.opened.read, database.ownership());
    std::thread::scope(|scope| {
        let created =
            scope.spawn(|| open::create_column_families(read, ownership, &["late"], &Options::new()));
        while versions.queued() < 2 {
            std::thread::yield_now();
        }
        drop(held_up);
        created.join().unwrap().unwrap();
    });
    let outcomes = [first, recovered].map(|installed| block_on(&read.env, installed));
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let replayed = database.replayed();
    let logs: Vec<_> = replayed.column_families.values().map(|family| family.log_number).collect();
    assert_eq!((logs, versions.min_log_number()), (vec![log, log], log));
}

#[test]
fn a_large_manifest_gives_way_to_a_new_one() {
    let database = Database::new(|db| {
        db.max_manifest_file_size = 1;
        db.max_manifest_space_amp_pct = 100;
    });
    let mut manifests = BTreeSet::new();
    for _ in 0..30 {
        database.install(database.adds_table().0).unwrap();
        manifests.insert(database.versions().manifest().0);
        database.settle();
        let names = database.names();
        let found: Vec<_> = names.iter().filter(|name| matches!(name, FileName::Manifest(_))).collect();
        assert_eq!(found, [&database.versions().manifest().0]);
        assert_eq!(database.replayed_tables(), database.live());
    }
    assert!((3..25).contains(&manifests.len()), "{manifests:?}: it grows to twice its beginning first");
}

/// Fails each change of a file in turn, in a history of installs with new MANIFESTs in between.
#[test]
fn after_a_failed_write_memory_is_as_before_and_nothing_that_may_be_named_is_removed() {
    let (mut failures, mut removed) = (0, 0);
    for fails_after in 0..600 {
        let database = Database::new(|db| {
            db.max_manifest_file_size = 600;
            db.max_manifest_space_amp_pct = 10;
        });
        let told = Arc::new(AtomicU64::new(0));
        let counter = told.clone();
        database.versions().on_failure(Box::new(move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        database.between.fail_after(fails_after);
        let mut failed = 0;
        for round in 0..12 {
            let before = database.live();
            let (mut change, number) = database.adds_table();
            let oldest = before.first().copied().filter(|_| round % 3 == 2);
            change.edits[0].deleted_files.extend(oldest.map(|number| (Level(0), number)));
            let outcome = database.install(change);
            let (now, replayed) = (database.live(), database.replayed_tables());
            let mut after = before.clone();
            after.insert(number);
            after.retain(|number| Some(*number) != oldest);
            let at = format!("failure after {fails_after} changes, round {round}");
            match outcome {
                Ok(()) => assert_eq!((&now, &replayed), (&after, &after), "{at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{at}: {error}");
                    failed += 1;
                    assert_eq!(now, before, "{at}");
                    assert!(replayed == before || replayed == after, "{at}: {replayed:?}");
                    // Files named by either outcome exist. Files of an outcome that certainly did
                    // not happen may be gone.
                    database.settle();
                    for number in before.union(&replayed) {
                        assert!(database.has_table(*number), "{at}: {number}");
                    }
                    removed += u32::from(!database.has_table(number));
                }
            }
        }
        let reached =
            database.between.seen.load(Ordering::Relaxed) >= database.between.fails.load(Ordering::Relaxed);
        database.between.fails.store(0, Ordering::Relaxed);
        database.install(database.adds_table().0).unwrap();
        database.settle();
        assert!(database.versions().obsolete().waiting().is_empty());
        assert_eq!(told.load(Ordering::Relaxed), failed);
        let live: BTreeSet<FileName> = database.live().into_iter().map(FileName::Table).collect();
        let tables =
            |name: &FileName| matches!(name, FileName::Table(_) | FileName::Manifest(_) | FileName::Temp(_));
        let mut left: BTreeSet<FileName> = database.names().into_iter().filter(tables).collect();
        assert!(left.remove(&database.versions().manifest().0));
        // A failed removal is retried with the next one, so at most one file is left.
        assert!(left.difference(&live).count() <= 1 && live.is_subset(&left), "{left:?} {live:?}");
        failures += failed;
        if !reached {
            assert!(failures > 20 && removed > 0 && u64::from(removed) < failures, "{failures} {removed}");
            return;
        }
    }
    panic!("it never ends");
}

/// The first change of a file makes the new table's name durable. Without that the MANIFEST must
/// not name it.
#[test]
fn a_change_fails_whose_files_have_names_that_are_not_durable() {
    let database = Database::new(|_| {});
    let (change, number) = database.adds_table();
    database.settle();
    let before = database.between.of_manifests.load(Ordering::Relaxed);
    database.between.fail_after(0);
    assert_eq!(database.install(change).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(database.between.of_manifests.load(Ordering::Relaxed), before, "the MANIFEST was written");
    assert!(!database.live().contains(&number) && !database.replayed_tables().contains(&number));
}

#[test]
fn a_log_number_that_advances_while_the_manifest_is_written_is_kept() {
    let database = Database::new(|_| {});
    let versions = database.versions();
    let later = FileNumber(versions.new_file_number().0 + 100);
    let held = database.between.gate.lock();
    let installed = versions.install(database.adds_table().0);
    while !versions.is_writing() {
        std::thread::yield_now();
    }
    versions.advance_log_number(ColumnFamilyId::DEFAULT, later);
    drop(held);
    block_on(&database.opened.read.env, installed).unwrap();
    assert_eq!(versions.log_number(ColumnFamilyId::DEFAULT), Some(later));
    // It is recorded with the next change, and from then on no older log is needed.
    database.install(database.adds_table().0).unwrap();
    assert_eq!(versions.min_log_number(), later);
}

#[test]
fn each_file_is_told_its_own_counts() {
    let database = Database::new(|_| {});
    let [(mut change, first), (other, second)] = [database.adds_table(), database.adds_table()];
    change.edits[0].new_files.extend(other.edits[0].new_files.iter().cloned());
    change.files.extend(other.files);
    let counts = |entries| FileCounts { entries, ..FileCounts::default() };
    change.counts = vec![(first, counts(1)), (second, counts(2))];
    database.install(change).unwrap();
    let family = database.opened.read.families.named("default").unwrap();
    let version = family.superversion().version().clone();
    let found: BTreeSet<_> =
        version.all_files().map(|(_, file)| (file.number, file.counts().map(|c| c.entries))).collect();
    assert_eq!(found, [(first, Some(1)), (second, Some(2))].into());
}

/// Memtables that recovery flushes were sealed with a log that may have failed since, or may never
/// have been written.
#[test]
fn a_change_that_needs_no_log_before_one_says_so_of_families_that_it_flushes_too() {
    let database = Database::new(|_| {});
    let versions = database.versions();
    let (sealed_with, first) = (versions.new_file_number(), versions.new_file_number());
    let (mut change, _) = database.adds_table();
    change.edits[0].log_number = Some(sealed_with);
    change.first_log = Some(first);
    database.install(change).unwrap();
    assert_eq!(versions.log_number(ColumnFamilyId::DEFAULT), Some(first));
    assert_eq!(database.replayed().column_families[&ColumnFamilyId::DEFAULT].log_number, first);
}

/// A waker that closes again during the notification of an install's end.
struct ClosesAgain(Arc<Versions>);

impl Wake for ClosesAgain {
    fn wake(self: Arc<Self>) {
        drop(self.0.close());
        self.0.end_manifest();
        drop(self.0.close());
    }
}

#[test]
fn a_second_closing_writes_nothing() {
    let db = Database::new(|_| {});
    let versions = db.versions().clone();
    let before = versions.manifest().0;
    let held = db.between.gate.lock();
    let mut installed = std::pin::pin!(versions.install(db.adds_table().0));
    let waker = Waker::from(Arc::new(ClosesAgain(versions.clone())));
    assert!(installed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held);
    // Polled instead of awaited, because awaiting would replace the waker.
    while versions.is_installing() {
        std::thread::yield_now();
    }
    assert!(versions.close().is_none() && block_on(&db.opened.read.env, installed).is_ok());
    assert_eq!(versions.manifest().0, before);
    db.settle();
    let names = db.names();
    assert_eq!(names.iter().filter(|name| matches!(name, FileName::Manifest(_))).count(), 1, "{names:?}");
}
