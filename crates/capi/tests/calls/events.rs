//! Arguments of a listener's callbacks in C, read by every getter of every struct.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

type OfJob = Option<unsafe extern "C" fn(H, H, H)>;
type OfPart = Option<unsafe extern "C" fn(H, H)>;
type OfError = Option<unsafe extern "C" fn(H, u32, H)>;

api! {
    fn rocksdb_eventlistener_create(s: H, d: Option<unsafe extern "C" fn(H)>, fb: OfJob, fc: OfJob, cb: OfJob, cc: OfJob, sb: OfPart, sc: OfPart, i: OfJob, e: OfError, w: OfPart, m: OfPart) -> H;
    fn rocksdb_eventlistener_destroy(l: H);
    fn rocksdb_options_add_eventlistener(o: H, l: H);
    fn rocksdb_options_create_copy(o: H) -> H;
    fn rocksdb_options_set_enable_blob_files(o: H, v: c_uchar);
    fn rocksdb_options_set_min_blob_size(o: H, v: u64);
    fn rocksdb_options_set_blob_compression_type(o: H, v: c_int);
    fn rocksdb_options_set_level0_file_num_compaction_trigger(o: H, v: c_int);
    fn rocksdb_options_set_level0_slowdown_writes_trigger(o: H, v: c_int);
    fn rocksdb_options_set_level0_stop_writes_trigger(o: H, v: c_int);
    fn rocksdb_options_set_disable_auto_compactions(o: H, v: c_int);
    fn rocksdb_ingest_external_file(db: H, fs: *const B, n: usize, o: H, e: E);
    fn rocksdb_ingestexternalfileoptions_create() -> H;
    fn rocksdb_ingestexternalfileoptions_destroy(o: H);
    fn rocksdb_reset_status(s: H);
    fn rocksdb_status_ptr_get_error(s: H, e: E);
    fn rocksdb_flushjobinfo_table_properties(i: H) -> H;
    fn rocksdb_flushjobinfo_blob_file_addition_info_at(i: H, at: usize) -> H;
    fn rocksdb_compactionjobinfo_create() -> H;
    fn rocksdb_compactionjobinfo_destroy(i: H);
    fn rocksdb_compactionjobinfo_status(i: H, e: E);
    fn rocksdb_compactionjobinfo_stats(i: H) -> H;
    fn rocksdb_compactionjobinfo_input_file_at(i: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_compactionjobinfo_output_file_at(i: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_compactionjobinfo_input_file_info_at(i: H, at: usize) -> H;
    fn rocksdb_compactionjobinfo_output_file_info_at(i: H, at: usize) -> H;
    fn rocksdb_compactionjobinfo_table_properties_key_at(i: H, at: usize, n: *mut usize) -> B;
    fn rocksdb_compactionjobinfo_table_properties_value_at(i: H, at: usize) -> H;
    fn rocksdb_compactionjobinfo_table_properties_for_file(i: H, f: B, n: usize) -> H;
    fn rocksdb_compactionjobinfo_blob_file_addition_info_at(i: H, at: usize) -> H;
    fn rocksdb_compactionjobinfo_blob_file_garbage_info_at(i: H, at: usize) -> H;
    fn rocksdb_subcompactionjobinfo_status(i: H, e: E);
    fn rocksdb_subcompactionjobinfo_stats(i: H) -> H;
    fn rocksdb_externalfileingestioninfo_table_properties(i: H) -> H;
    fn rocksdb_writestallinfo_cur(i: H) -> *const c_int;
    fn rocksdb_writestallinfo_prev(i: H) -> *const c_int;
}

/// Contents of a struct: its kind, the numbers and texts by their getters.
#[derive(Clone, Debug, Default)]
struct Told {
    kind: &'static str,
    numbers: BTreeMap<&'static str, u64>,
    texts: BTreeMap<&'static str, String>,
    /// Further texts: paths and errors.
    lines: Vec<String>,
    /// Nested structs.
    parts: Vec<Told>,
}

impl Told {
    fn new(kind: &'static str) -> Told {
        Told { kind, ..Told::default() }
    }

    fn number(&self, getter: &str) -> u64 {
        *self.numbers.get(getter).unwrap_or_else(|| panic!("{getter}: {self:?}"))
    }

    fn text(&self, getter: &str) -> &str {
        self.texts.get(getter).unwrap_or_else(|| panic!("{getter}: {self:?}"))
    }

    fn part(&self, kind: &str) -> &Told {
        self.parts.iter().find(|part| part.kind == kind).unwrap_or_else(|| panic!("{kind}: {self:?}"))
    }

    fn numbers<const N: usize>(&self, getters: [&str; N]) -> [u64; N] {
        getters.map(|getter| self.number(getter))
    }
}

/// Returns the text of a getter.
unsafe fn lent(text: B, length: usize) -> String {
    assert!(!text.is_null());
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Defines a function that reads a struct by all its getters of numbers and texts.
macro_rules! reader {
    ($kind:ident { $($number:ident $type:ty;)* } { $($text:ident;)* }) => {
        unsafe fn $kind(info: H) -> Told {
            unsafe extern "C" {
                $(fn $number(info: H) -> $type;)*
                $(fn $text(info: H, length: *mut usize) -> B;)*
            }
            let mut told = Told::new(stringify!($kind));
            $(told.numbers.insert(stringify!($number), unsafe { $number(info) } as u64);)*
            $({
                let mut length = 0;
                let text = unsafe { $text(info, &mut length) };
                told.texts.insert(stringify!($text), unsafe { lent(text, length) });
            })*
            // On a null handle the getters return 0 and null.
            $(assert_eq!(unsafe { $number(null_mut()) } as u64, 0, stringify!($number));)*
            $({
                let mut length = 7;
                assert!(unsafe { $text(null_mut(), &mut length) }.is_null() && length == 0, stringify!($text));
            })*
            told
        }
    };
}

reader! {
    flush {
        rocksdb_flushjobinfo_cf_id u32;
        rocksdb_flushjobinfo_file_number u64;
        rocksdb_flushjobinfo_oldest_blob_file_number u64;
        rocksdb_flushjobinfo_thread_id u64;
        rocksdb_flushjobinfo_job_id c_int;
        rocksdb_flushjobinfo_triggered_writes_slowdown c_uchar;
        rocksdb_flushjobinfo_triggered_writes_stop c_uchar;
        rocksdb_flushjobinfo_smallest_seqno u64;
        rocksdb_flushjobinfo_largest_seqno u64;
        rocksdb_flushjobinfo_flush_reason u32;
        rocksdb_flushjobinfo_blob_compression_type u32;
        rocksdb_flushjobinfo_blob_file_addition_infos_count usize;
    } {
        rocksdb_flushjobinfo_cf_name;
        rocksdb_flushjobinfo_file_path;
    }
}

reader! {
    compaction {
        rocksdb_compactionjobinfo_cf_id u32;
        rocksdb_compactionjobinfo_thread_id u64;
        rocksdb_compactionjobinfo_job_id c_int;
        rocksdb_compactionjobinfo_num_l0_files c_int;
        rocksdb_compactionjobinfo_base_input_level c_int;
        rocksdb_compactionjobinfo_output_level c_int;
        rocksdb_compactionjobinfo_compaction_reason u32;
        rocksdb_compactionjobinfo_compression u32;
        rocksdb_compactionjobinfo_blob_compression_type u32;
        rocksdb_compactionjobinfo_aborted c_uchar;
        rocksdb_compactionjobinfo_input_files_count usize;
        rocksdb_compactionjobinfo_output_files_count usize;
        rocksdb_compactionjobinfo_elapsed_micros u64;
        rocksdb_compactionjobinfo_num_corrupt_keys u64;
        rocksdb_compactionjobinfo_input_records u64;
        rocksdb_compactionjobinfo_output_records u64;
        rocksdb_compactionjobinfo_total_input_bytes u64;
        rocksdb_compactionjobinfo_total_output_bytes u64;
        rocksdb_compactionjobinfo_num_input_files usize;
        rocksdb_compactionjobinfo_num_input_files_at_output_level usize;
        rocksdb_compactionjobinfo_input_file_infos_count usize;
        rocksdb_compactionjobinfo_output_file_infos_count usize;
        rocksdb_compactionjobinfo_table_properties_count usize;
        rocksdb_compactionjobinfo_blob_file_addition_infos_count usize;
        rocksdb_compactionjobinfo_blob_file_garbage_infos_count usize;
    } {
        rocksdb_compactionjobinfo_cf_name;
    }
}

reader! {
    part {
        rocksdb_subcompactionjobinfo_cf_id u32;
        rocksdb_subcompactionjobinfo_thread_id u64;
        rocksdb_subcompactionjobinfo_job_id c_int;
        rocksdb_subcompactionjobinfo_subcompaction_job_id c_int;
        rocksdb_subcompactionjobinfo_base_input_level c_int;
        rocksdb_subcompactionjobinfo_output_level c_int;
        rocksdb_subcompactionjobinfo_compaction_reason u32;
        rocksdb_subcompactionjobinfo_compression u32;
        rocksdb_subcompactionjobinfo_blob_compression_type u32;
    } {
        rocksdb_subcompactionjobinfo_cf_name;
    }
}

reader! {
    ingestion {
        rocksdb_externalfileingestioninfo_global_seqno u64;
    } {
        rocksdb_externalfileingestioninfo_cf_name;
        rocksdb_externalfileingestioninfo_external_file_path;
        rocksdb_externalfileingestioninfo_internal_file_path;
    }
}

reader! {
    memtable {
        rocksdb_memtableinfo_first_seqno u64;
        rocksdb_memtableinfo_earliest_seqno u64;
        rocksdb_memtableinfo_num_entries u64;
        rocksdb_memtableinfo_num_deletes u64;
    } {
        rocksdb_memtableinfo_cf_name;
        rocksdb_memtableinfo_newest_udt;
    }
}

reader! {
    stall {
    } {
        rocksdb_writestallinfo_cf_name;
    }
}

reader! {
    file {
        rocksdb_compaction_file_info_level c_int;
        rocksdb_compaction_file_info_file_number u64;
        rocksdb_compaction_file_info_oldest_blob_file_number u64;
    } {
    }
}

reader! {
    blob_file {
        rocksdb_blob_file_addition_info_blob_file_number u64;
        rocksdb_blob_file_addition_info_total_blob_count u64;
        rocksdb_blob_file_addition_info_total_blob_bytes u64;
    } {
        rocksdb_blob_file_addition_info_blob_file_path;
    }
}

reader! {
    garbage {
        rocksdb_blob_file_garbage_info_blob_file_number u64;
        rocksdb_blob_file_garbage_info_garbage_blob_count u64;
        rocksdb_blob_file_garbage_info_garbage_blob_bytes u64;
    } {
        rocksdb_blob_file_garbage_info_blob_file_path;
    }
}

reader! {
    stats {
        rocksdb_compaction_job_stats_elapsed_micros u64;
        rocksdb_compaction_job_stats_cpu_micros u64;
        rocksdb_compaction_job_stats_num_input_records u64;
        rocksdb_compaction_job_stats_num_blobs_read u64;
        rocksdb_compaction_job_stats_num_input_files usize;
        rocksdb_compaction_job_stats_num_input_files_trivially_moved usize;
        rocksdb_compaction_job_stats_num_input_files_at_output_level usize;
        rocksdb_compaction_job_stats_num_output_records u64;
        rocksdb_compaction_job_stats_num_output_files usize;
        rocksdb_compaction_job_stats_num_output_files_blob usize;
        rocksdb_compaction_job_stats_total_input_bytes u64;
        rocksdb_compaction_job_stats_total_blob_bytes_read u64;
        rocksdb_compaction_job_stats_total_output_bytes u64;
        rocksdb_compaction_job_stats_total_output_bytes_blob u64;
        rocksdb_compaction_job_stats_num_records_replaced u64;
        rocksdb_compaction_job_stats_total_input_raw_key_bytes u64;
        rocksdb_compaction_job_stats_total_input_raw_value_bytes u64;
        rocksdb_compaction_job_stats_num_input_deletion_records u64;
        rocksdb_compaction_job_stats_num_expired_deletion_records u64;
        rocksdb_compaction_job_stats_num_single_del_fallthru u64;
        rocksdb_compaction_job_stats_num_single_del_mismatch u64;
        rocksdb_compaction_job_stats_has_accurate_num_input_records c_uchar;
        rocksdb_compaction_job_stats_is_full_compaction c_uchar;
        rocksdb_compaction_job_stats_is_manual_compaction c_uchar;
        rocksdb_compaction_job_stats_is_remote_compaction c_uchar;
        rocksdb_compaction_job_stats_num_filtered_input_files usize;
        rocksdb_compaction_job_stats_num_filtered_input_files_at_output_level usize;
        rocksdb_compaction_job_stats_total_skipped_input_bytes u64;
        rocksdb_compaction_job_stats_num_corrupt_keys u64;
        rocksdb_compaction_job_stats_file_write_nanos u64;
        rocksdb_compaction_job_stats_file_range_sync_nanos u64;
        rocksdb_compaction_job_stats_file_fsync_nanos u64;
        rocksdb_compaction_job_stats_file_prepare_write_nanos u64;
    } {
        rocksdb_compaction_job_stats_smallest_output_key_prefix;
        rocksdb_compaction_job_stats_largest_output_key_prefix;
    }
}

/// The state of a listener.
#[derive(Default)]
struct Heard {
    told: Mutex<Vec<Told>>,
    destroyed: AtomicUsize,
    /// True if the callback clears errors.
    resets: AtomicBool,
}

impl Heard {
    fn push(&self, kind: &'static str, told: Told) {
        self.told.lock().unwrap().push(Told { kind, ..told });
    }

    fn all(&self, kind: &str) -> Vec<Told> {
        self.told.lock().unwrap().iter().filter(|told| told.kind == kind).cloned().collect()
    }

    /// Returns the only struct of its kind.
    fn one(&self, kind: &str) -> Told {
        let all = self.all(kind);
        assert_eq!(all.len(), 1, "{kind}: {all:?}");
        all[0].clone()
    }

    /// Waits for `count` calls on other threads.
    fn wait_for(&self, kind: &str, count: usize) -> Vec<Told> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let all = self.all(kind);
            if all.len() >= count {
                return all;
            }
            assert!(Instant::now() < end, "{kind}: {all:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn state(&self) -> H {
        (&raw const *self).cast_mut().cast()
    }

    /// Adds a listener with all callbacks to the options.
    fn listens(&self, options: H) {
        unsafe { rocksdb_options_add_eventlistener(options, self.listener()) }
    }

    fn listener(&self) -> H {
        unsafe {
            rocksdb_eventlistener_create(
                self.state(),
                Some(destroyed),
                Some(on_flush_begin),
                Some(on_flush_completed),
                Some(on_compaction_begin),
                Some(on_compaction_completed),
                Some(on_part_begin),
                Some(on_part_completed),
                Some(on_ingested),
                Some(on_error),
                Some(on_stall),
                Some(on_sealed),
            )
        }
    }
}

fn heard<'a>(state: H) -> &'a Heard {
    unsafe { &*state.cast::<Heard>() }
}

unsafe extern "C" fn destroyed(state: H) {
    heard(state).destroyed.fetch_add(1, Ordering::SeqCst);
}

unsafe fn flush_with_parts(info: H) -> Told {
    unsafe {
        let mut told = flush(info);
        let table = rocksdb_flushjobinfo_table_properties(info);
        told.numbers.insert("entries", rocksdb_table_properties_num_entries(table));
        let count = told.number("rocksdb_flushjobinfo_blob_file_addition_infos_count") as usize;
        for at in 0..count {
            told.parts.push(blob_file(rocksdb_flushjobinfo_blob_file_addition_info_at(info, at)));
        }
        assert!(rocksdb_flushjobinfo_blob_file_addition_info_at(info, count).is_null());
        assert_eq!(told.number("rocksdb_flushjobinfo_thread_id"), libc::pthread_self() as u64);
        told
    }
}

unsafe extern "C" fn on_flush_begin(state: H, db: H, info: H) {
    assert!(db.is_null());
    heard(state).push("flush begins", unsafe { flush_with_parts(info) });
}

unsafe extern "C" fn on_flush_completed(state: H, db: H, info: H) {
    assert!(db.is_null());
    heard(state).push("flush", unsafe { flush_with_parts(info) });
}

unsafe fn compaction_with_parts(info: H) -> Told {
    unsafe {
        let mut told = compaction(info);
        told.parts.push(stats(rocksdb_compactionjobinfo_stats(info)));
        let count = |getter: &str| told.number(getter) as usize;
        let (mut parts, mut lines, mut length) = (Vec::new(), Vec::new(), 0);
        let inputs = count("rocksdb_compactionjobinfo_input_files_count");
        assert_eq!(inputs, count("rocksdb_compactionjobinfo_input_file_infos_count"));
        for at in 0..inputs {
            let path = rocksdb_compactionjobinfo_input_file_at(info, at, &mut length);
            lines.push(format!("in {}", lent(path, length)));
            parts.push(Told { kind: "in", ..file(rocksdb_compactionjobinfo_input_file_info_at(info, at)) });
        }
        assert!(rocksdb_compactionjobinfo_input_file_at(info, inputs, &mut length).is_null());
        assert!(rocksdb_compactionjobinfo_input_file_info_at(info, inputs).is_null());
        let outputs = count("rocksdb_compactionjobinfo_output_files_count");
        assert_eq!(outputs, count("rocksdb_compactionjobinfo_output_file_infos_count"));
        for at in 0..outputs {
            let path = rocksdb_compactionjobinfo_output_file_at(info, at, &mut length);
            lines.push(format!("out {}", lent(path, length)));
            parts.push(Told { kind: "out", ..file(rocksdb_compactionjobinfo_output_file_info_at(info, at)) });
        }
        assert!(rocksdb_compactionjobinfo_output_file_at(info, outputs, &mut length).is_null());
        assert!(rocksdb_compactionjobinfo_output_file_info_at(info, outputs).is_null());
        let tables = count("rocksdb_compactionjobinfo_table_properties_count");
        for at in 0..tables {
            let path = rocksdb_compactionjobinfo_table_properties_key_at(info, at, &mut length);
            let table = rocksdb_compactionjobinfo_table_properties_value_at(info, at);
            let found = rocksdb_compactionjobinfo_table_properties_for_file(info, path, length);
            assert_eq!(found, table);
            let entries = rocksdb_table_properties_num_entries(table);
            lines.push(format!("{entries} entries {}", lent(path, length)));
        }
        assert!(rocksdb_compactionjobinfo_table_properties_key_at(info, tables, &mut length).is_null());
        assert!(rocksdb_compactionjobinfo_table_properties_value_at(info, tables).is_null());
        assert!(rocksdb_compactionjobinfo_table_properties_for_file(info, at(b"none"), 4).is_null());
        let blobs = count("rocksdb_compactionjobinfo_blob_file_addition_infos_count");
        for at in 0..blobs {
            parts.push(blob_file(rocksdb_compactionjobinfo_blob_file_addition_info_at(info, at)));
        }
        assert!(rocksdb_compactionjobinfo_blob_file_addition_info_at(info, blobs).is_null());
        let gone = count("rocksdb_compactionjobinfo_blob_file_garbage_infos_count");
        for at in 0..gone {
            parts.push(garbage(rocksdb_compactionjobinfo_blob_file_garbage_info_at(info, at)));
        }
        assert!(rocksdb_compactionjobinfo_blob_file_garbage_info_at(info, gone).is_null());
        lines.extend(error_of(|e| rocksdb_compactionjobinfo_status(info, e)));
        told.parts.extend(parts);
        told.lines = lines;
        told
    }
}

/// Returns the error of a status as a line.
fn error_of(call: impl FnOnce(E)) -> Option<String> {
    let mut error = null_mut();
    call(&mut error);
    if error.is_null() {
        return None;
    }
    let text = unsafe { CStr::from_ptr(error) }.to_str().unwrap().to_owned();
    unsafe { rocksdb_free(error.cast()) };
    Some(text)
}

unsafe extern "C" fn on_compaction_begin(state: H, db: H, info: H) {
    assert!(db.is_null());
    heard(state).push("compaction begins", unsafe { compaction_with_parts(info) });
}

unsafe extern "C" fn on_compaction_completed(state: H, db: H, info: H) {
    assert!(db.is_null());
    heard(state).push("compaction", unsafe { compaction_with_parts(info) });
}

unsafe fn part_with_stats(info: H) -> Told {
    unsafe {
        let mut told = part(info);
        told.parts.push(stats(rocksdb_subcompactionjobinfo_stats(info)));
        told.lines.extend(error_of(|e| rocksdb_subcompactionjobinfo_status(info, e)));
        told
    }
}

unsafe extern "C" fn on_part_begin(state: H, info: H) {
    heard(state).push("part begins", unsafe { part_with_stats(info) });
}

unsafe extern "C" fn on_part_completed(state: H, info: H) {
    heard(state).push("part", unsafe { part_with_stats(info) });
}

unsafe extern "C" fn on_ingested(state: H, db: H, info: H) {
    assert!(db.is_null());
    unsafe {
        let mut told = ingestion(info);
        let table = rocksdb_externalfileingestioninfo_table_properties(info);
        told.numbers.insert("entries", rocksdb_table_properties_num_entries(table));
        heard(state).push("ingestion", told);
    }
}

unsafe extern "C" fn on_error(state: H, reason: u32, status: H) {
    let heard = heard(state);
    let mut told = Told::new("error");
    told.numbers.insert("reason", reason.into());
    told.lines.extend(error_of(|e| unsafe { rocksdb_status_ptr_get_error(status, e) }));
    if heard.resets.load(Ordering::SeqCst) {
        unsafe { rocksdb_reset_status(status) };
        assert_eq!(error_of(|e| unsafe { rocksdb_status_ptr_get_error(status, e) }), None);
    }
    heard.push("error", told);
}

unsafe extern "C" fn on_stall(state: H, info: H) {
    unsafe {
        let mut told = stall(info);
        told.numbers.insert("now", *rocksdb_writestallinfo_cur(info) as u64);
        told.numbers.insert("before", *rocksdb_writestallinfo_prev(info) as u64);
        heard(state).push("stall", told);
    }
}

unsafe extern "C" fn on_sealed(state: H, info: H) {
    heard(state).push("memtable", unsafe { memtable(info) });
}

fn flush_all(db: H) {
    unsafe {
        let flush = rocksdb_flushoptions_create();
        ok(|e| rocksdb_flush(db, flush, e));
        rocksdb_flushoptions_destroy(flush);
    }
}

#[test]
fn a_listener_hears_of_memtables_and_flushes() {
    let (heard, setup) = (Box::new(Heard::default()), Setup::new());
    heard.listens(setup.options);
    unsafe {
        rocksdb_options_set_enable_blob_files(setup.options, 1);
        rocksdb_options_set_min_blob_size(setup.options, 100);
        rocksdb_options_set_blob_compression_type(setup.options, 4);
        let db = setup.open();
        setup.put(db, b"a", b"1");
        setup.put(db, b"b", &[b'x'; 1000]);
        ok(|e| rocksdb_delete(db, setup.write, at(b"c"), 1, e));
        flush_all(db);
        heard.wait_for("flush", 1);
        setup.put(db, b"d", b"4");
        flush_all(db);
        rocksdb_close(db);
    }
    let memtables = heard.all("memtable");
    let [first, second] = &memtables[..] else { panic!("{memtables:?}") };
    assert_eq!(first.text("rocksdb_memtableinfo_cf_name"), "default");
    assert_eq!(first.text("rocksdb_memtableinfo_newest_udt"), "");
    let of_memtable = [
        "rocksdb_memtableinfo_num_entries",
        "rocksdb_memtableinfo_num_deletes",
        "rocksdb_memtableinfo_earliest_seqno",
        "rocksdb_memtableinfo_first_seqno",
    ];
    assert_eq!((first.numbers(of_memtable), second.numbers(of_memtable)), ([3, 1, 0, 0], [1, 0, 3, 0]));
    let begun = &heard.all("flush begins")[0];
    assert_eq!(begun.text("rocksdb_flushjobinfo_file_path"), "");
    assert_eq!((begun.number("rocksdb_flushjobinfo_file_number"), begun.number("entries")), (0, 0));
    let flushes = heard.all("flush");
    assert_eq!(flushes.len(), 2);
    let ended = &flushes[0];
    for told in [begun, ended] {
        assert_eq!(told.text("rocksdb_flushjobinfo_cf_name"), "default");
        let fixed = told.numbers([
            "rocksdb_flushjobinfo_cf_id",
            "rocksdb_flushjobinfo_flush_reason",
            "rocksdb_flushjobinfo_blob_compression_type",
            "rocksdb_flushjobinfo_triggered_writes_slowdown",
            "rocksdb_flushjobinfo_triggered_writes_stop",
        ]);
        assert_eq!(fixed, [0, 10, 4, 0, 0]);
    }
    assert_eq!(begun.number("rocksdb_flushjobinfo_job_id"), ended.number("rocksdb_flushjobinfo_job_id"));
    let seqs = ["rocksdb_flushjobinfo_smallest_seqno", "rocksdb_flushjobinfo_largest_seqno", "entries"];
    assert_eq!((ended.numbers(seqs), flushes[1].numbers(seqs)), ([1, 3, 3], [4, 4, 1]));
    let number = ended.number("rocksdb_flushjobinfo_file_number");
    let path = setup.directory.path().join(format!("db/{number:06}.sst"));
    assert_eq!(ended.text("rocksdb_flushjobinfo_file_path"), path.to_str().unwrap());
    let blob = ended.part("blob_file");
    let blob_number = blob.number("rocksdb_blob_file_addition_info_blob_file_number");
    assert_eq!(ended.number("rocksdb_flushjobinfo_oldest_blob_file_number"), blob_number);
    assert_eq!(blob.number("rocksdb_blob_file_addition_info_total_blob_count"), 1);
    let path = setup.directory.path().join(format!("db/{blob_number:06}.blob"));
    assert_eq!(blob.text("rocksdb_blob_file_addition_info_blob_file_path"), path.to_str().unwrap());
    let bytes = blob.number("rocksdb_blob_file_addition_info_total_blob_bytes");
    assert!(bytes > 30 && bytes <= std::fs::metadata(path).unwrap().len(), "{bytes}");
    assert!(flushes[1].parts.is_empty());
}

#[test]
fn a_listener_hears_of_compactions_and_their_parts() {
    let (heard, setup) = (Box::new(Heard::default()), Setup::new());
    heard.listens(setup.options);
    unsafe {
        rocksdb_options_set_disable_auto_compactions(setup.options, 1);
        rocksdb_options_set_enable_blob_files(setup.options, 1);
        rocksdb_options_set_min_blob_size(setup.options, 100);
        rocksdb_options_set_compression(setup.options, 4);
        let db = setup.open();
        for value in [b'1', b'2'] {
            setup.put(db, b"a key that is long", &[value; 200]);
            setup.put(db, b"z", &[value]);
            flush_all(db);
        }
        ok(|e| rocksdb_delete(db, setup.write, at(b"z"), 1, e));
        flush_all(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        rocksdb_close(db);
    }
    let (begun, ended) = (&heard.all("compaction begins")[0], &heard.all("compaction")[0]);
    for told in [begun, ended] {
        assert_eq!(told.text("rocksdb_compactionjobinfo_cf_name"), "default");
        let fixed = told.numbers([
            "rocksdb_compactionjobinfo_cf_id",
            "rocksdb_compactionjobinfo_base_input_level",
            "rocksdb_compactionjobinfo_compaction_reason",
            "rocksdb_compactionjobinfo_blob_compression_type",
            "rocksdb_compactionjobinfo_aborted",
            "rocksdb_compactionjobinfo_num_corrupt_keys",
            "rocksdb_compactionjobinfo_num_input_files",
            "rocksdb_compactionjobinfo_num_input_files_at_output_level",
        ]);
        assert_eq!(fixed, [0, 0, 9, 0, 0, 0, 3, 0]);
        assert!(told.number("rocksdb_compactionjobinfo_thread_id") != 0);
        assert!(told.number("rocksdb_compactionjobinfo_total_input_bytes") > 500);
        let of_stats = told.part("stats").numbers([
            "rocksdb_compaction_job_stats_is_full_compaction",
            "rocksdb_compaction_job_stats_is_manual_compaction",
            "rocksdb_compaction_job_stats_is_remote_compaction",
            "rocksdb_compaction_job_stats_has_accurate_num_input_records",
            "rocksdb_compaction_job_stats_num_input_files",
            "rocksdb_compaction_job_stats_num_input_files_at_output_level",
            "rocksdb_compaction_job_stats_num_input_files_trivially_moved",
        ]);
        assert_eq!(of_stats, [1, 1, 0, 1, 3, 0, 0]);
    }
    let both = ["rocksdb_compactionjobinfo_job_id", "rocksdb_compactionjobinfo_output_level"];
    assert_eq!(begun.numbers(both), ended.numbers(both));
    assert_eq!(ended.number("rocksdb_compactionjobinfo_compression"), 4);
    let l0 = "rocksdb_compactionjobinfo_num_l0_files";
    assert_eq!((begun.number(l0), ended.number(l0)), (3, 0));
    let stats = ended.part("stats");
    let of_stats = stats.numbers([
        "rocksdb_compaction_job_stats_num_input_records",
        "rocksdb_compaction_job_stats_num_input_deletion_records",
        "rocksdb_compaction_job_stats_num_records_replaced",
        "rocksdb_compaction_job_stats_num_expired_deletion_records",
        "rocksdb_compaction_job_stats_num_output_records",
        "rocksdb_compaction_job_stats_num_output_files",
        "rocksdb_compaction_job_stats_num_output_files_blob",
        "rocksdb_compaction_job_stats_num_single_del_fallthru",
        "rocksdb_compaction_job_stats_num_single_del_mismatch",
        "rocksdb_compaction_job_stats_total_input_raw_key_bytes",
    ]);
    // Each key has eight bytes of sequence number and type behind it.
    assert_eq!(of_stats, [5, 1, 3, 1, 1, 1, 0, 0, 0, 2 * (18 + 8) + 3 * 9]);
    let of_compaction = ended.numbers([
        "rocksdb_compactionjobinfo_input_records",
        "rocksdb_compactionjobinfo_output_records",
        "rocksdb_compactionjobinfo_total_output_bytes",
        "rocksdb_compactionjobinfo_elapsed_micros",
    ]);
    let [output_bytes, micros] = stats.numbers([
        "rocksdb_compaction_job_stats_total_output_bytes",
        "rocksdb_compaction_job_stats_elapsed_micros",
    ]);
    assert_eq!(of_compaction, [5, 1, output_bytes, micros]);
    assert!(output_bytes > 100 && micros > 0);
    for prefix in ["smallest", "largest"] {
        let prefix = format!("rocksdb_compaction_job_stats_{prefix}_output_key_prefix");
        assert_eq!((begun.part("stats").text(&prefix), stats.text(&prefix)), ("", "a key th"));
    }
    // At its start a compaction has no outputs and no blob garbage.
    assert!(!begun.parts.iter().any(|part| ["out", "garbage"].contains(&part.kind)), "{begun:?}");
    assert_eq!(begun.number("rocksdb_compactionjobinfo_table_properties_count"), 0);
    let inputs: Vec<_> = ended.parts.iter().filter(|part| part.kind == "in").collect();
    let flushes = heard.all("flush");
    assert_eq!((inputs.len(), flushes.len()), (3, 3));
    for flush in &flushes {
        let number = flush.number("rocksdb_flushjobinfo_file_number");
        let of_file = |part: &&&Told| part.number("rocksdb_compaction_file_info_file_number") == number;
        let input = inputs.iter().find(of_file).unwrap();
        assert_eq!(input.number("rocksdb_compaction_file_info_level"), 0);
        let oldest = input.number("rocksdb_compaction_file_info_oldest_blob_file_number");
        assert_eq!(oldest, flush.number("rocksdb_flushjobinfo_oldest_blob_file_number"));
        let (path, entries) = (flush.text("rocksdb_flushjobinfo_file_path"), flush.number("entries"));
        assert!(begun.lines.contains(&format!("in {path}")), "{begun:?}");
        assert!(ended.lines.contains(&format!("{entries} entries {path}")), "{ended:?}");
    }
    let output = ended.part("out");
    let level = ended.number("rocksdb_compactionjobinfo_output_level");
    assert_eq!(output.number("rocksdb_compaction_file_info_level"), level);
    let number = output.number("rocksdb_compaction_file_info_file_number");
    let path = setup.directory.path().join(format!("db/{number:06}.sst"));
    assert!(ended.lines.contains(&format!("out {}", path.display())), "{ended:?}");
    assert!(ended.lines.contains(&format!("1 entries {}", path.display())), "{ended:?}");
    let gone = ended.part("garbage");
    let oldest = flushes[0].number("rocksdb_flushjobinfo_oldest_blob_file_number");
    assert_eq!(gone.number("rocksdb_blob_file_garbage_info_blob_file_number"), oldest);
    assert_eq!(gone.number("rocksdb_blob_file_garbage_info_garbage_blob_count"), 1);
    assert!(gone.number("rocksdb_blob_file_garbage_info_garbage_blob_bytes") > 200);
    let path = setup.directory.path().join(format!("db/{oldest:06}.blob"));
    assert_eq!(gone.text("rocksdb_blob_file_garbage_info_blob_file_path"), path.to_str().unwrap());

    let (part_begun, part) = (&heard.all("part begins")[0], &heard.all("part")[0]);
    for told in [part_begun, part] {
        assert_eq!(told.text("rocksdb_subcompactionjobinfo_cf_name"), "default");
        let fixed = told.numbers([
            "rocksdb_subcompactionjobinfo_cf_id",
            "rocksdb_subcompactionjobinfo_job_id",
            "rocksdb_subcompactionjobinfo_subcompaction_job_id",
            "rocksdb_subcompactionjobinfo_base_input_level",
            "rocksdb_subcompactionjobinfo_output_level",
            "rocksdb_subcompactionjobinfo_compaction_reason",
            "rocksdb_subcompactionjobinfo_compression",
            "rocksdb_subcompactionjobinfo_blob_compression_type",
        ]);
        let job = begun.number("rocksdb_compactionjobinfo_job_id");
        assert_eq!(fixed, [0, job, 0, 0, level, 9, 4, 0]);
        assert!(told.number("rocksdb_subcompactionjobinfo_thread_id") != 0 && told.lines.is_empty());
    }
    let records = "rocksdb_compaction_job_stats_num_input_records";
    assert_eq!((part_begun.part("stats").number(records), part.part("stats").number(records)), (0, 5));
}

#[test]
fn tables_that_move_and_blob_files_of_a_compaction_are_told() {
    let (heard, setup) = (Box::new(Heard::default()), Setup::new());
    heard.listens(setup.options);
    unsafe {
        rocksdb_options_set_disable_auto_compactions(setup.options, 1);
        let db = setup.open();
        setup.put(db, b"a", b"1");
        setup.put(db, b"b", b"1");
        flush_all(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        rocksdb_close(db);
        let moved = heard.one("compaction");
        let of_stats = moved.part("stats").numbers([
            "rocksdb_compaction_job_stats_num_input_files_trivially_moved",
            "rocksdb_compaction_job_stats_num_output_files",
            "rocksdb_compaction_job_stats_num_input_records",
        ]);
        assert_eq!(of_stats, [1, 0, 0]);
        let number = "rocksdb_compaction_file_info_file_number";
        assert_eq!(moved.part("in").number(number), moved.part("out").number(number));
        assert_eq!(moved.number("rocksdb_compactionjobinfo_table_properties_count"), 1);
        assert!(heard.all("part").is_empty());

        // The value of `b` moves from its table to a blob file.
        rocksdb_options_set_enable_blob_files(setup.options, 1);
        rocksdb_options_set_blob_compression_type(setup.options, 4);
        let db = setup.open();
        setup.put(db, b"a", b"2");
        flush_all(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        rocksdb_close(db);
        let merged = &heard.all("compaction")[1];
        let blob = merged.part("blob_file");
        let bytes = blob.number("rocksdb_blob_file_addition_info_total_blob_bytes");
        assert_eq!(blob.number("rocksdb_blob_file_addition_info_total_blob_count"), 1);
        let of_stats = merged.part("stats").numbers([
            "rocksdb_compaction_job_stats_num_input_files",
            "rocksdb_compaction_job_stats_num_input_files_at_output_level",
            "rocksdb_compaction_job_stats_num_output_files",
            "rocksdb_compaction_job_stats_num_output_files_blob",
        ]);
        assert_eq!(of_stats, [2, 1, 1, 1]);
        let written = merged.part("stats").number("rocksdb_compaction_job_stats_total_output_bytes_blob");
        assert!(bytes > 32 && written >= bytes, "{written} {bytes}");
        assert_eq!(merged.number("rocksdb_compactionjobinfo_blob_compression_type"), 4);
        let of_part = heard.one("part");
        assert_eq!(of_part.number("rocksdb_subcompactionjobinfo_blob_compression_type"), 4);
    }
}

#[test]
fn a_listener_hears_of_files_that_are_ingested() {
    let (heard, setup) = (Box::new(Heard::default()), Setup::new());
    heard.listens(setup.options);
    unsafe {
        let path = setup.path("made.sst");
        let writer = rocksdb_sstfilewriter_create(null_mut(), setup.options);
        ok(|e| rocksdb_sstfilewriter_open(writer, path.as_ptr(), e));
        for key in [b"a", b"b"] {
            ok(|e| rocksdb_sstfilewriter_put(writer, at(key), 1, at(b"v"), 1, e));
        }
        ok(|e| rocksdb_sstfilewriter_finish(writer, e));
        rocksdb_sstfilewriter_destroy(writer);
        let db = setup.open();
        setup.put(db, b"a", b"older");
        flush_all(db);
        let options = rocksdb_ingestexternalfileoptions_create();
        ok(|e| rocksdb_ingest_external_file(db, &path.as_ptr(), 1, options, e));
        rocksdb_ingestexternalfileoptions_destroy(options);
        let told = &heard.wait_for("ingestion", 1)[0];
        assert_eq!(told.text("rocksdb_externalfileingestioninfo_cf_name"), "default");
        let external = told.text("rocksdb_externalfileingestioninfo_external_file_path");
        assert_eq!(external, path.to_str().unwrap());
        let internal = told.text("rocksdb_externalfileingestioninfo_internal_file_path");
        assert!(internal.starts_with(setup.path("db").to_str().unwrap()) && internal.ends_with(".sst"));
        assert!(std::fs::metadata(internal).is_ok(), "{internal}");
        let numbers = told.numbers(["rocksdb_externalfileingestioninfo_global_seqno", "entries"]);
        assert_eq!(numbers, [2, 2]);
        assert_eq!(setup.get(db, b"a").unwrap(), b"v");
        rocksdb_close(db);
    }
}

#[test]
fn a_listener_hears_of_writers_that_are_slowed_down_and_let_go() {
    let (heard, setup) = (Box::new(Heard::default()), Setup::new());
    heard.listens(setup.options);
    unsafe {
        rocksdb_options_set_level0_file_num_compaction_trigger(setup.options, 2);
        rocksdb_options_set_level0_slowdown_writes_trigger(setup.options, 2);
        rocksdb_options_set_level0_stop_writes_trigger(setup.options, 3);
        let db = setup.open();
        for value in [b"1", b"2"] {
            setup.put(db, b"a", value);
            flush_all(db);
        }
        let told = heard.wait_for("stall", 2);
        assert_eq!(told[0].text("rocksdb_writestallinfo_cf_name"), "default");
        let changes: Vec<_> = told[..2].iter().map(|told| told.numbers(["before", "now"])).collect();
        assert_eq!(changes, [[2, 0], [0, 2]]);
        rocksdb_close(db);
        let held =
            ["rocksdb_flushjobinfo_triggered_writes_slowdown", "rocksdb_flushjobinfo_triggered_writes_stop"];
        let flushes = heard.all("flush");
        assert_eq!((flushes[0].numbers(held), flushes[1].numbers(held)), ([0, 0], [1, 0]));
        let by_itself = &heard.all("compaction")[0];
        assert_eq!(by_itself.number("rocksdb_compactionjobinfo_compaction_reason"), 1);
        let manual = "rocksdb_compaction_job_stats_is_manual_compaction";
        assert_eq!(by_itself.part("stats").number(manual), 0);
    }
}

unsafe extern "C" fn refusing_name(_: H) -> B {
    c"refuses".as_ptr()
}

#[test]
fn a_listener_takes_the_error_of_a_job_away_or_leaves_it() {
    let (heard, setup) = (Box::new(Heard::default()), Setup::new());
    heard.listens(setup.options);
    unsafe {
        let operator = rocksdb_mergeoperator_create(
            null_mut(),
            None,
            Some(as_rocksdb::merges_nothing),
            None,
            None,
            refusing_name,
        );
        rocksdb_options_set_merge_operator(setup.options, operator);
        rocksdb_options_set_disable_auto_compactions(setup.options, 1);
        let db = setup.open();
        // A second key, because tables that overlap nothing else are moved without a merge.
        setup.put(db, b"a", b"1");
        setup.put(db, b"z", b"1");
        flush_all(db);
        setup.put(db, b"z", b"2");
        ok(|e| rocksdb_merge(db, setup.write, at(b"a"), 1, at(b"x"), 1, e));
        flush_all(db);
        heard.resets.store(true, Ordering::SeqCst);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        let told = heard.one("error");
        assert_eq!(told.number("reason"), 1);
        assert!(told.lines[0].starts_with("Corruption: "), "{told:?}");
        for kind in ["compaction", "part"] {
            let failed = heard.one(kind);
            assert!(failed.lines.iter().any(|line| line.starts_with("Corruption: ")), "{failed:?}");
        }
        setup.put(db, b"b", b"goes on");
        heard.resets.store(false, Ordering::SeqCst);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        assert_eq!(heard.all("error").len(), 2, "each error is shown once");
        failed(|e| rocksdb_put(db, setup.write, at(b"c"), 1, at(b"v"), 1, e));
        rocksdb_close(db);
    }
}

#[test]
fn a_listener_without_callbacks_is_destroyed_once_nobody_has_it() {
    let heard = Box::new(Heard::default());
    let count = || heard.destroyed.load(Ordering::SeqCst);
    unsafe {
        rocksdb_eventlistener_destroy(heard.listener());
        assert_eq!(count(), 1, "nobody was given it");
        rocksdb_eventlistener_destroy(null_mut());
        let setup = Setup::new();
        let options = rocksdb_options_create_copy(setup.options);
        let quiet = rocksdb_eventlistener_create(
            heard.state(),
            Some(destroyed),
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
        );
        rocksdb_options_add_eventlistener(options, quiet);
        rocksdb_options_add_eventlistener(options, null_mut());
        let without_end = rocksdb_eventlistener_create(
            null_mut(),
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            None,
        );
        rocksdb_options_add_eventlistener(options, without_end);
        let copy = rocksdb_options_create_copy(options);
        let db = ok(|e| rocksdb_open(options, setup.path("db").as_ptr(), e));
        rocksdb_options_destroy(options);
        rocksdb_options_destroy(copy);
        assert_eq!(count(), 1, "the database has it");
        setup.put(db, b"a", b"1");
        flush_all(db);
        rocksdb_compact_range(db, null(), 0, null(), 0);
        rocksdb_close(db);
        assert_eq!(count(), 2);
    }
}

#[test]
fn an_empty_compaction_has_nothing() {
    unsafe {
        let info = rocksdb_compactionjobinfo_create();
        let told = compaction_with_parts(info);
        let known = ["rocksdb_compactionjobinfo_thread_id"];
        let all_else = told.numbers.iter().filter(|(name, _)| !known.contains(name));
        assert!(all_else.clone().all(|(_, number)| *number == 0), "{told:?}");
        assert!(told.lines.is_empty() && told.parts.len() == 1);
        rocksdb_compactionjobinfo_destroy(info);
        rocksdb_compactionjobinfo_destroy(null_mut());
        failed(|e| rocksdb_compactionjobinfo_status(null_mut(), e));
        failed(|e| rocksdb_subcompactionjobinfo_status(null_mut(), e));
        failed(|e| rocksdb_status_ptr_get_error(null_mut(), e));
        rocksdb_reset_status(null_mut());
        assert!(rocksdb_compactionjobinfo_stats(null_mut()).is_null());
        assert!(rocksdb_writestallinfo_cur(null_mut()).is_null());
    }
}
