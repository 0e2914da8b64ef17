//! Every public call of a closed database returns an error and changes no file. The lists below are
//! compared with the sources, so no call can be left out.

use karst_engine::caller::{Caller, finish};
use karst_engine::io::testing::foreign_block_on as wait;
use karst_engine::io::{Disturb, Disturbance, DisturbedFileSystem, Env, FileSystem, MemoryFileSystem};
use karst_engine::{
    Checkpoint, CompactFilesOptions, CompactRangeOptions, Db, Direction, Error, ErrorKind, FileTraceReader,
    FileTraceWriter, FlushOptions, IngestExternalFileArg, IngestExternalFileOptions,
    LiveFilesStorageInfoOptions, Options, ReadOptions, Replayer, Result, SizeApproximationOptions, Snapshot,
    TraceOptions, TransactionHooks, Unchanged, Value, WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const PATH: &str = "/db";

fn options(env: &Env) -> Options {
    let options = Options::new().env(env.clone()).db(|db| {
        db.create_if_missing = true;
        db.create_missing_column_families = true;
    });
    options.set("merge_operator", "StringAppendOperator").unwrap()
}

/// A call's result, reduced to its error.
trait Told {
    fn error(self) -> Option<Error>;
}

impl<T> Told for Result<T> {
    fn error(self) -> Option<Error> {
        self.err()
    }
}

impl<T> Told for Vec<Result<T>> {
    fn error(self) -> Option<Error> {
        assert_eq!(self.len(), 2, "one for each key");
        self.into_iter().map(Result::err).reduce(|a, b| a.and(b)).flatten()
    }
}

/// Calls that must fail on a closed database, with their names.
macro_rules! calls {
    ($($name:ident $call:expr;)*) => { vec![$((stringify!($name), Told::error($call))),*] };
}

fn of_database(db: &Db, before: &Snapshot) -> Vec<(&'static str, Option<Error>)> {
    let (read, write, flush) = (ReadOptions::new(), WriteOptions::new(), FlushOptions::default());
    let then = ReadOptions { snapshot: Some(before.clone()), ..ReadOptions::new() };
    let range = CompactRangeOptions::default();
    let files = CompactFilesOptions::default();
    let wait_for = WaitForCompactOptions::default();
    let sizes = SizeApproximationOptions::default();
    let family = &db.default_column_family().clone();
    let keys = ["a", "b"];
    let of_keys = [family, family];
    let ranges = [(&b"a"[..], &b"z"[..])];
    let mut batch = WriteBatch::new();
    batch.put_cf(family, "a", "1").unwrap();
    let unchanged = [Unchanged { family: family.clone(), key: b"a".to_vec(), since: 0 }];
    let thread = Caller::Thread;
    let hooks = TransactionHooks::of(db);
    let ingest = IngestExternalFileOptions::default();
    let ingested = [IngestExternalFileArg::new(family, ["/file.sst"], ingest)];
    let storage = LiveFilesStorageInfoOptions::default();
    calls! {
        get db.get("a");
        get_opt db.get_opt(&then, "a");
        get_cf db.get_cf(&read, family, "a");
        get_async wait(db.get_async(b"a"));
        get_opt_async wait(db.get_opt_async(&then, b"a"));
        get_cf_async wait(db.get_cf_async(&read, family, b"a"));
        multi_get db.multi_get(&keys);
        multi_get_cf db.multi_get_cf(&then, family, &keys);
        multi_get_cfs db.multi_get_cfs(&read, &of_keys, &keys);
        multi_get_async wait(db.multi_get_async(&keys));
        multi_get_cf_async wait(db.multi_get_cf_async(&read, family, &keys));
        multi_get_cfs_async wait(db.multi_get_cfs_async(&then, &of_keys, &keys));
        iter db.iter(&read);
        iter_cf db.iter_cf(&then, family);
        iter_cfs db.iter_cfs(&then, &of_keys);
        internal_iter db.internal_iter(&read, family);
        cf db.cf("other");
        range db.range(..);
        prefix db.prefix("a");
        cf_of db.cf_of(family).get("a");
        check_open db.check_open();
        try_catch_up_with_primary db.try_catch_up_with_primary();
        try_catch_up_with_primary_async wait(db.try_catch_up_with_primary_async());
        flush db.flush(&flush);
        flush_cfs db.flush_cfs(&flush, &of_keys);
        flush_async wait(db.flush_async(&flush));
        flush_cfs_async wait(db.flush_cfs_async(&flush, &of_keys));
        resume db.resume();
        resume_async wait(db.resume_async());
        pause_background_work db.pause_background_work();
        pause_background_work_async wait(db.pause_background_work_async());
        continue_background_work db.continue_background_work();
        cancel_all_background_work db.cancel_all_background_work(true);
        cancel_all_background_work_async wait(db.cancel_all_background_work_async(true));
        wait_for_compact db.wait_for_compact(&wait_for);
        wait_for_compact_async wait(db.wait_for_compact_async(&wait_for));
        enable_auto_compaction db.enable_auto_compaction(&of_keys);
        disable_auto_compaction db.disable_auto_compaction(&of_keys);
        disable_manual_compaction db.disable_manual_compaction();
        disable_manual_compaction_async wait(db.disable_manual_compaction_async());
        enable_manual_compaction db.enable_manual_compaction();
        abort_all_compactions db.abort_all_compactions();
        abort_all_compactions_async wait(db.abort_all_compactions_async());
        resume_all_compactions db.resume_all_compactions();
        compact_range db.compact_range(&range, None, None);
        compact_range_cf db.compact_range_cf(&range, family, None, None);
        compact_range_async wait(db.compact_range_async(&range, None, None));
        compact_range_cf_async wait(db.compact_range_cf_async(&range, family, None, None));
        suggest_compact_range db.suggest_compact_range(family, None, None);
        delete_files_in_ranges db.delete_files_in_ranges(family, &[(None, None)], true);
        delete_files_in_ranges_async wait(db.delete_files_in_ranges_async(family, &[(None, None)], true));
        clip_column_family db.clip_column_family(family, "a", "b");
        clip_column_family_async wait(db.clip_column_family_async(family, b"a", b"b"));
        compact_files db.compact_files(&files, family, &[1], 1);
        compact_files_async wait(db.compact_files_async(&files, family, &[1], 1));
        compact_files_with_info_async wait(db.compact_files_with_info_async(&files, family, &[1], 1));
        create_column_family db.create_column_family("new", &options(db.env()));
        create_column_family_async wait(db.create_column_family_async("new", &options(db.env())));
        drop_column_family_async wait(db.drop_column_family_async(&db.column_family("other").unwrap()));
        create_column_families db.create_column_families(&["one", "two"], &options(db.env()));
        drop_column_family db.drop_column_family(&db.column_family("other").unwrap());
        get_options db.get_options(family);
        set_options db.set_options(family, &[("write_buffer_size", "123456")]);
        set_db_options db.set_db_options(&[("max_background_jobs", "3")]);
        set_options_async wait(db.set_options_async(family, &[("write_buffer_size", "123456")]));
        set_db_options_async wait(db.set_db_options_async(&[("max_background_jobs", "3")]));
        approximate_sizes db.approximate_sizes(&ranges);
        approximate_sizes_cf db.approximate_sizes_cf(&sizes, family, &ranges);
        approximate_sizes_cf_async wait(db.approximate_sizes_cf_async(&sizes, family, &ranges));
        approximate_memtable_stats_cf db.approximate_memtable_stats_cf(family, ranges[0]);
        key_may_exist db.key_may_exist("a");
        key_may_exist_cf db.key_may_exist_cf(&read, family, "a");
        prepare finish(hooks.prepare(thread, &write, b"two", batch.clone()));
        commit_prepared finish(hooks.commit_prepared(thread, &write, b"one", None));
        rollback_prepared finish(hooks.rollback_prepared(thread, &write, b"one"));
        track_conflicts hooks.track_conflicts(16);
        check_no_timestamps hooks.check_no_timestamps(&batch);
        written_since finish(hooks.written_since(thread, family, b"a", Some(before), None));
        write_if_unchanged finish(hooks.write_if_unchanged(thread, &write, &batch, &unchanged));
        properties_of_all_tables db.properties_of_all_tables(family);
        properties_of_all_tables_async wait(db.properties_of_all_tables_async(family));
        properties_of_tables_in_range db.properties_of_tables_in_range(family, &ranges);
        properties_of_tables_in_range_async wait(db.properties_of_tables_in_range_async(family, &ranges));
        column_family_metadata db.column_family_metadata(family);
        column_family_metadata_in_range db.column_family_metadata_in_range(family, (None, None), None);
        verify_checksum db.verify_checksum();
        verify_checksum_async wait(db.verify_checksum_async());
        verify_file_checksums db.verify_file_checksums();
        verify_file_checksums_async wait(db.verify_file_checksums_async());
        get_sorted_wal_files db.get_sorted_wal_files();
        get_current_wal_file db.get_current_wal_file();
        get_updates_since db.get_updates_since(1);
        put db.put("a", "2");
        put_opt db.put_opt(&write, "a", "2");
        put_cf db.put_cf(&write, family, "a", "2");
        put_async wait(db.put_async(b"a", b"2"));
        put_opt_async wait(db.put_opt_async(&write, b"a", b"2"));
        put_cf_async wait(db.put_cf_async(&write, family, b"a", b"2"));
        delete db.delete("a");
        delete_opt db.delete_opt(&write, "a");
        delete_cf db.delete_cf(&write, family, "a");
        delete_async wait(db.delete_async(b"a"));
        delete_opt_async wait(db.delete_opt_async(&write, b"a"));
        delete_cf_async wait(db.delete_cf_async(&write, family, b"a"));
        single_delete db.single_delete("a");
        single_delete_opt db.single_delete_opt(&write, "a");
        single_delete_cf db.single_delete_cf(&write, family, "a");
        single_delete_async wait(db.single_delete_async(b"a"));
        single_delete_opt_async wait(db.single_delete_opt_async(&write, b"a"));
        single_delete_cf_async wait(db.single_delete_cf_async(&write, family, b"a"));
        merge db.merge("a", "2");
        merge_opt db.merge_opt(&write, "a", "2");
        merge_cf db.merge_cf(&write, family, "a", "2");
        merge_async wait(db.merge_async(b"a", b"2"));
        merge_opt_async wait(db.merge_opt_async(&write, b"a", b"2"));
        merge_cf_async wait(db.merge_cf_async(&write, family, b"a", b"2"));
        delete_range db.delete_range("a", "b");
        delete_range_opt db.delete_range_opt(&write, "a", "b");
        delete_range_cf db.delete_range_cf(&write, family, "a", "b");
        delete_range_async wait(db.delete_range_async(b"a", b"b"));
        delete_range_opt_async wait(db.delete_range_opt_async(&write, b"a", b"b"));
        delete_range_cf_async wait(db.delete_range_cf_async(&write, family, b"a", b"b"));
        get_cf_with_ts db.get_cf_with_ts(&read, family, "a");
        get_cf_with_ts_async wait(db.get_cf_with_ts_async(&read, family, "a"));
        multi_get_cf_with_ts db.multi_get_cf_with_ts(&read, family, &["a"]).remove(0);
        full_history_ts_low db.full_history_ts_low(family);
        increase_full_history_ts_low db.increase_full_history_ts_low(family, "ts");
        increase_full_history_ts_low_async wait(db.increase_full_history_ts_low_async(family, "ts"));
        put_with_ts db.put_with_ts("a", "ts", "2");
        put_cf_with_ts db.put_cf_with_ts(&write, family, "a", "ts", "2");
        put_with_ts_async wait(db.put_with_ts_async(b"a", b"ts", b"2"));
        put_cf_with_ts_async wait(db.put_cf_with_ts_async(&write, family, b"a", b"ts", b"2"));
        delete_with_ts db.delete_with_ts("a", "ts");
        delete_cf_with_ts db.delete_cf_with_ts(&write, family, "a", "ts");
        delete_with_ts_async wait(db.delete_with_ts_async(b"a", b"ts"));
        delete_cf_with_ts_async wait(db.delete_cf_with_ts_async(&write, family, b"a", b"ts"));
        single_delete_with_ts db.single_delete_with_ts("a", "ts");
        single_delete_cf_with_ts db.single_delete_cf_with_ts(&write, family, "a", "ts");
        single_delete_with_ts_async wait(db.single_delete_with_ts_async(b"a", b"ts"));
        single_delete_cf_with_ts_async wait(db.single_delete_cf_with_ts_async(&write, family, b"a", b"ts"));
        write db.write(&write, &batch);
        write_async wait(db.write_async(&write, &batch));
        flush_wal db.flush_wal(true);
        flush_wal_async wait(db.flush_wal_async(false));
        ingest_external_file db.ingest_external_file(&ingest, ["/file.sst"]);
        ingest_external_file_async wait(db.ingest_external_file_async(&ingest, ["/file.sst"]));
        ingest_external_files db.ingest_external_files(&ingested);
        ingest_external_files_async wait(db.ingest_external_files_async(&ingested));
        disable_file_deletions db.disable_file_deletions();
        disable_file_deletions_async wait(db.disable_file_deletions_async());
        enable_file_deletions db.enable_file_deletions();
        enable_file_deletions_async wait(db.enable_file_deletions_async());
        wait_for_info_log db.wait_for_info_log();
        lock_wal db.lock_wal();
        lock_wal_async wait(db.lock_wal_async());
        unlock_wal db.unlock_wal();
        live_files_storage_info db.live_files_storage_info(&storage);
        live_files_storage_info_async wait(db.live_files_storage_info_async(&storage));
        checkpoint Checkpoint::new(db);
        sync_wal db.sync_wal();
        sync_wal_async wait(db.sync_wal_async());
        start_trace db.start_trace(TraceOptions::default(), Box::new(FileTraceWriter::create(db.env(), "/trace").unwrap()));
        end_trace db.end_trace();
        start_io_trace db.start_io_trace(TraceOptions::default(), Box::new(FileTraceWriter::create(db.env(), "/trace").unwrap()));
        end_io_trace db.end_io_trace();
        end_io_trace_async wait(db.end_io_trace_async());
        end_trace_async wait(db.end_trace_async());
        replayer Replayer::new(db, std::slice::from_ref(family), Box::new(FileTraceReader::open(db.env(), "/trace").unwrap()));
    }
}

/// Functions that need no open database, infallible ones that report state in memory, and those
/// that are tested apart below.
const OTHERS: &[&str] = &[
    "open_read_only",
    "open_read_only_async",
    "open_as_secondary",
    "open_cf_as_secondary",
    "open_as_secondary_async",
    "open_as_follower",
    "open_as_follower_async",
    "open_cf_read_only",
    "open",
    "open_async",
    "open_cf",
    "open_cf_async",
    "open_and_trim_history",
    "open_and_trim_history_async",
    "list_column_families",
    "destroy",
    "close",
    "close_async",
    "snapshot",
    "latest_sequence_number",
    "default_column_family",
    "column_family",
    "column_families",
    "unopened_column_families",
    "live_files",
    "live_file_names",
    "statistics",
    "stats_history",
    "env",
    "path",
    "options",
    "log_numbers",
    "log_damage",
    "log_duplicates",
    "identity",
    "background_error",
    "plain_value_of",
    "prepared_transactions",
    "prepared_names",
    "property",
    "property_cf",
    "int_property",
    "int_property_cf",
    "map_property",
    "map_property_cf",
    "aggregated_int_property",
    "refresh",
    // Hooks of transactions, whose calls are above.
    "of",
    "has_taken",
    // Functions of `Cf`; its other calls are those of `Db`.
    "db",
    "name",
    "with_read_options",
    "with_write_options",
];

/// Returns the names of the public functions in sources of the engine, including those of the macro
/// `calls!`.
fn public_functions(sources: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let name_of =
        |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    for source in sources {
        for line in source.lines().map(str::trim_start) {
            let after = ["pub fn ", "pub async fn "].into_iter().find_map(|start| line.strip_prefix(start));
            found.extend(after.map(name_of));
            // A line of names of one operation:
            // `put put_opt ... (key, value) = |cf, key, value| Op::Put ..`.
            if let Some((names, _)) = line.split_once(" (").filter(|(_, rest)| rest.contains(") = |cf, ")) {
                found.extend(names.split(' ').map(str::to_owned));
            }
        }
    }
    found.remove("");
    found
}

fn sources_of(directory: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let inner = std::fs::read_dir(root.join(directory)).unwrap();
    let mut paths: Vec<_> = inner.map(|entry| entry.unwrap().path()).collect();
    paths.push(root.join(format!("{directory}.rs")));
    paths.retain(|path| path.is_file());
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn contents(files: &MemoryFileSystem) -> BTreeMap<String, Vec<u8>> {
    let names = files.list_dir(Path::new(PATH)).unwrap();
    names
        .into_iter()
        .map(|name| (name.clone(), files.read_file(&Path::new(PATH).join(name)).unwrap()))
        .collect()
}

fn filled(env: &Env) -> Db {
    let options = options(env).db(|db| db.allow_2pc = true);
    let db = Db::open_cf(PATH, &options, &["default", "other"]).unwrap();
    for n in 0..100 {
        db.put(format!("{n:03}"), "x".repeat(1000)).unwrap();
    }
    db.flush(&FlushOptions::default()).unwrap();
    db.put("in memory", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("prepared", "1").unwrap();
    finish(TransactionHooks::of(&db).prepare(Caller::Thread, &WriteOptions::new(), b"one", batch)).unwrap();
    db
}

#[test]
fn every_call_of_a_closed_database_says_so_and_touches_no_file() {
    let files = Arc::new(MemoryFileSystem::new());
    let env = Env::builder().file_system(files.clone()).build();
    let db = filled(&env);
    let before = db.snapshot();
    db.close().unwrap();
    db.close().expect("closing twice is no error");
    // Another handle opens the directory.
    let other =
        Db::open_cf(PATH, &options(&env).db(|db| db.allow_2pc = true), &["default", "other"]).unwrap();
    // Obsolete files are removed in the background, which would change the directory.
    other.disable_file_deletions().unwrap();
    let unlike_log = |files: &MemoryFileSystem| {
        let mut all = contents(files);
        all.retain(|name, _| name != "LOG");
        all
    };
    let now = unlike_log(&files);
    let told = of_database(&db, &before);
    for (name, error) in &told {
        let error = error.as_ref().unwrap_or_else(|| panic!("{name} went well"));
        assert_eq!(error.kind(), ErrorKind::Closed, "{name}: {error}");
    }
    for name in ["rocksdb.stats", "rocksdb.num-files-at-level0", "rocksdb.estimate-num-keys"] {
        assert_eq!(db.property(name), None);
        assert_eq!(db.property_cf(db.default_column_family(), name), None);
        assert_eq!(db.int_property(name), None);
        assert_eq!(db.aggregated_int_property(name), None);
        assert_eq!(db.int_property_cf(db.default_column_family(), name), None);
    }
    assert_eq!(db.map_property("rocksdb.cfstats"), None);
    assert!(unlike_log(&files) == now, "files have changed");
    other.enable_file_deletions().unwrap();
    other.put("key", "value").unwrap();
    other.close().unwrap();

    let listed: BTreeSet<String> =
        told.iter().map(|(name, _)| *name).chain(OTHERS.iter().copied()).map(str::to_owned).collect();
    let mut sources = sources_of("db");
    sources.iter_mut().for_each(|source| source.truncate(source.find("mod tests {").unwrap_or(source.len())));
    let mut public = public_functions(&sources.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(public.len() > 100, "the sources were not understood: {public:?}");
    public.retain(|name| !listed.contains(name));
    assert!(public.is_empty(), "public calls that are in no list of this test: {public:?}");
}

#[test]
fn a_database_open_for_reading_is_closed_too() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    filled(&env).close().unwrap();
    let db = Db::open_read_only(PATH, &options(&env)).unwrap();
    let before = db.snapshot();
    db.close().unwrap();
    for (name, error) in of_database(&db, &before) {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Closed), "{name}");
    }
}

fn closed<T>(outcome: Result<T>) {
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::Closed));
}

#[test]
fn iterators_end_with_their_database() {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    let db = filled(&env);
    let new = || db.iter(&ReadOptions::new()).unwrap();
    let at_first = || {
        let mut iter = new();
        iter.seek_to_first().unwrap();
        iter
    };
    let (mut fresh, mut standing, mut refreshed) = (new(), at_first(), at_first());
    let mut entries = at_first();
    let moves: Vec<_> = (0..12).map(|_| at_first()).collect();
    let mut internal = db.internal_iter(&ReadOptions::new(), db.default_column_family()).unwrap();
    internal.seek_to_first().unwrap();
    let kept: Value = standing.pinned_value();
    let mut updates = {
        let plain = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let plain = Db::open(PATH, &options(&plain)).unwrap();
        plain.put("a", "1").unwrap();
        plain.put("b", "1").unwrap();
        let mut updates = plain.get_updates_since(1).unwrap();
        updates.next().unwrap().unwrap();
        plain.close().unwrap();
        updates
    };
    db.close().unwrap();
    closed(updates.next().unwrap());

    assert_eq!((standing.key(), standing.value()), (&b"000"[..], &[b'x'; 1000][..]), "it stands there still");
    assert!(kept.iter().all(|byte| *byte == b'x'));
    closed(standing.next());
    assert!(!standing.valid());
    closed(standing.status());
    closed(standing.next());
    closed(fresh.seek_to_first());
    closed(fresh.check_open());
    closed(db.refresh(&mut refreshed, db.default_column_family(), None));
    let mut moves = moves.into_iter();
    let mut next = || moves.next().unwrap();
    closed(next().seek_to_first());
    closed(next().seek_to_last());
    closed(next().seek("000"));
    closed(next().seek_for_prev("000"));
    closed(next().next());
    closed(next().prev());
    closed(wait(next().seek_to_first_async()));
    closed(wait(next().seek_to_last_async()));
    closed(wait(next().seek_async("000")));
    closed(wait(next().seek_for_prev_async("000")));
    closed(wait(next().next_async()));
    closed(wait(next().prev_async()));
    closed(internal.next());
    assert!(!internal.valid());
    closed(internal.seek("000"));
    closed(internal.seek_to_first());
    let mut of_entries = entries.entries(Direction::Forward);
    of_entries.next().unwrap().expect("where it stands");
    closed(of_entries.next().unwrap());

    let sources = sources_of("read/iter");
    let public = public_functions(&sources.iter().map(String::as_str).collect::<Vec<_>>());
    let moves = public.iter().filter(|name| {
        let still = [
            "valid",
            "key",
            "value",
            "timestamp",
            "trailer",
            "is_deletion",
            "pinned_value",
            "status",
            "into_stream",
            "entries",
            "keys",
            "values",
            "new",
            "check_open",
        ];
        !still.contains(&name.as_str())
    });
    assert_eq!(moves.count(), 12, "moves that are in no list of this test: {public:?}");
}

/// Blocks a rename to an OPTIONS file until `go_on` receives.
#[derive(Debug)]
struct AtOptions {
    told: SyncSender<()>,
    go_on: Mutex<Option<Receiver<()>>>,
}

impl Disturb for AtOptions {
    fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
        None
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        if path.to_string_lossy().contains("dbtmp")
            && let Some(go_on) = self.go_on.lock().unwrap().take()
        {
            self.told.send(()).unwrap();
            go_on.recv().unwrap();
        }
        Ok(())
    }
}

#[test]
fn closing_waits_for_who_writes_options_before_it_gives_the_lock_back() {
    let files: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let plain = Env::builder().file_system(files.clone()).build();
    Db::open(PATH, &options(&plain)).unwrap().close().unwrap();
    let (tell, told) = sync_channel(1);
    let (release, go_on) = sync_channel(1);
    let between = AtOptions { told: tell, go_on: Mutex::default() };
    let disturbed = DisturbedFileSystem::new(files, between);
    let between = disturbed.between().clone();
    let env = Env::builder().file_system(Arc::new(disturbed)).build();
    let db = Db::open(PATH, &options(&env)).unwrap();
    *between.go_on.lock().unwrap() = Some(go_on);
    std::thread::scope(|scope| {
        let changing =
            scope.spawn(|| db.set_options(db.default_column_family(), &[("write_buffer_size", "123456")]));
        // Moved into the scope, so that a failed assertion drops it and the blocked thread
        // continues.
        let release = release;
        told.recv().unwrap();
        let closing = scope.spawn(|| db.close());
        while db.check_open().is_ok() {
            assert!(!closing.is_finished(), "it is closed, and takes calls");
            std::thread::yield_now();
        }
        // Long enough for a close that does not wait. A close that waits passes after any time.
        for _ in 0..20 {
            assert!(!closing.is_finished(), "it is closed while OPTIONS is being written");
            std::thread::sleep(Duration::from_millis(10));
        }
        closed(db.set_db_options(&[("max_background_jobs", "3")]));
        closed(db.get("a"));
        release.send(()).unwrap();
        changing.join().unwrap().unwrap();
        closing.join().unwrap().unwrap();
    });
    let db = Db::open(PATH, &options(&plain)).unwrap();
    assert_eq!(db.get_options(db.default_column_family()).unwrap().write_buffer_size, 123_456);
}
