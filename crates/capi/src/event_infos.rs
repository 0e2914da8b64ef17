//! Structs that listeners' callbacks receive, with RocksDB's getters.
//!
//! The handles are the engine's own values, valid during the call; texts and parts lie in them. For
//! a null handle every number is 0, and every pointer null.
//!
//! Some of RocksDB's numbers are not recorded and always 0; their functions say so.

use crate::boundary::*;
use karstdb::format::TableProperties;
use karstdb::{
    BlobFileAdditionInfo, BlobFileGarbageInfo, CompactionFileInfo, CompactionInfo, CompactionStats,
    ExternalFileIngestionInfo, FlushInfo, FlushReason, MemTableInfo, SubcompactionInfo, WriteStallCondition,
    WriteStallInfo,
};
use libc::{c_char, c_int, c_uchar};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null;
use std::sync::{Arc, LazyLock};

/// `rocksdb_writestallcondition_t`: RocksDB's number, as users read it.
pub type StallCondition = c_int;

fn condition(condition: WriteStallCondition) -> *const StallCondition {
    const DELAYED: &StallCondition = &0;
    const STOPPED: &StallCondition = &1;
    const NORMAL: &StallCondition = &2;
    match condition {
        WriteStallCondition::Delayed => DELAYED,
        WriteStallCondition::Stopped => STOPPED,
        _ => NORMAL,
    }
}

/// Returns RocksDB's number; 0 for a reason that RocksDB does not have.
fn flush_number(reason: FlushReason) -> u32 {
    match reason {
        FlushReason::GetLiveFiles => 1,
        FlushReason::ShutDown => 2,
        FlushReason::ExternalFileIngestion => 3,
        FlushReason::ManualCompaction => 4,
        FlushReason::WriteBufferManager => 5,
        FlushReason::WriteBufferFull => 6,
        FlushReason::ManualFlush => 10,
        FlushReason::ErrorRecovery => 11,
        FlushReason::WalFull => 13,
        _ => 0,
    }
}

/// Returns the calling thread's id, which within a callback is the job's.
fn this_thread() -> u64 {
    // SAFETY: `pthread_self` has no preconditions.
    unsafe { libc::pthread_self() as u64 }
}

/// Returns the default properties, for a table that does not exist yet.
fn none() -> *const TableProperties {
    static NONE: LazyLock<TableProperties> = LazyLock::new(TableProperties::default);
    &raw const *NONE
}

/// Returns a text of a struct.
unsafe fn text_of<T>(info: *const T, size: *mut usize, of: impl FnOnce(&T) -> &[u8]) -> *const c_char {
    unsafe { maybe_text_of(info, size, |info| Some(of(info))) }
}

/// Returns an optional text of a struct; null for `None`.
unsafe fn maybe_text_of<T>(
    info: *const T,
    size: *mut usize,
    of: impl FnOnce(&T) -> Option<&[u8]>,
) -> *const c_char {
    unsafe { lend_or_null(info.as_ref().and_then(of), size) }
}

fn path(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Returns one of a struct's parts by its index; null behind the last.
unsafe fn part_at<T, P>(info: *const T, at: usize, of: impl FnOnce(&T) -> &[P]) -> *const P {
    let part = unsafe { info.as_ref() }.and_then(|info| of(info).get(at));
    part.map_or(null(), std::ptr::from_ref)
}

/// Returns the properties of a compaction's tables by index, input tables first.
fn properties_at(info: &CompactionInfo, at: usize) -> Option<(&PathBuf, &Arc<TableProperties>)> {
    info.input_table_properties.iter().chain(&info.table_properties).nth(at)
}

macro_rules! getters {
    ($( $(#[doc = $about:literal])* $name:ident($info:ident: $handle:ident) -> $returned:ident { $value:expr } )*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(info: *const $handle) -> $returned {
                guard(stringify!($name), || unsafe { info.as_ref() }.map(|$info| $value).unwrap_or_default())
            }
        )*
        /// The getters of numbers.
        pub(crate) const FIELDS: &[$crate::signature::Signature] = &[$( $crate::signature::Signature {
            about: &[$($about),*],
            head: concat!("call ", stringify!($name)),
            arguments: &[("info", concat!("*const ", stringify!($handle)))],
            returned: stringify!($returned),
        } ),*];
    };
}

getters! {
    rocksdb_flushjobinfo_cf_id(info: FlushInfo) -> u32 { info.column_family_id }
    /// 0 before the flush ends, because the number is taken only when the table is begun.
    rocksdb_flushjobinfo_file_number(info: FlushInfo) -> u64 { info.table.unwrap_or(0) }
    rocksdb_flushjobinfo_oldest_blob_file_number(info: FlushInfo) -> u64 { info.oldest_blob_file.unwrap_or(0) }
    /// The calling thread's id: within a callback the job's.
    rocksdb_flushjobinfo_thread_id(_info: FlushInfo) -> u64 { this_thread() }
    rocksdb_flushjobinfo_job_id(info: FlushInfo) -> c_int { info.job as c_int }
    rocksdb_flushjobinfo_triggered_writes_slowdown(info: FlushInfo) -> c_uchar { info.slows_writes.into() }
    rocksdb_flushjobinfo_triggered_writes_stop(info: FlushInfo) -> c_uchar { info.stops_writes.into() }
    /// 0 before the flush ends.
    rocksdb_flushjobinfo_smallest_seqno(info: FlushInfo) -> u64 { info.seqs.map_or(0, |seqs| seqs.0) }
    /// 0 before the flush ends.
    rocksdb_flushjobinfo_largest_seqno(info: FlushInfo) -> u64 { info.seqs.map_or(0, |seqs| seqs.1) }
    rocksdb_flushjobinfo_flush_reason(info: FlushInfo) -> u32 { flush_number(info.reason) }
    rocksdb_flushjobinfo_blob_compression_type(info: FlushInfo) -> u32 { info.blob_compression.number().into() }
    rocksdb_flushjobinfo_blob_file_addition_infos_count(info: FlushInfo) -> usize { info.blob_files.len() }
    rocksdb_compactionjobinfo_cf_id(info: CompactionInfo) -> u32 { info.column_family_id }
    /// The calling thread's id: within a callback the job's.
    rocksdb_compactionjobinfo_thread_id(_info: CompactionInfo) -> u64 { this_thread() }
    rocksdb_compactionjobinfo_job_id(info: CompactionInfo) -> c_int { info.job as c_int }
    rocksdb_compactionjobinfo_num_l0_files(info: CompactionInfo) -> c_int { info.l0_files as c_int }
    rocksdb_compactionjobinfo_base_input_level(info: CompactionInfo) -> c_int { info.base_level as c_int }
    rocksdb_compactionjobinfo_output_level(info: CompactionInfo) -> c_int { info.output_level as c_int }
    rocksdb_compactionjobinfo_compaction_reason(info: CompactionInfo) -> u32 { info.reason_number }
    rocksdb_compactionjobinfo_compression(info: CompactionInfo) -> u32 { info.compression.number().into() }
    rocksdb_compactionjobinfo_blob_compression_type(info: CompactionInfo) -> u32 { info.blob_compression.number().into() }
    /// 0: nothing aborts all compactions.
    rocksdb_compactionjobinfo_aborted(_info: CompactionInfo) -> c_uchar { 0 }
    rocksdb_compactionjobinfo_input_files_count(info: CompactionInfo) -> usize { info.input_paths.len() }
    rocksdb_compactionjobinfo_output_files_count(info: CompactionInfo) -> usize { info.output_paths.len() }
    rocksdb_compactionjobinfo_elapsed_micros(info: CompactionInfo) -> u64 { info.stats.micros }
    /// 0: a compaction that meets a damaged key fails.
    rocksdb_compactionjobinfo_num_corrupt_keys(_info: CompactionInfo) -> u64 { 0 }
    rocksdb_compactionjobinfo_input_records(info: CompactionInfo) -> u64 { info.stats.input_entries }
    rocksdb_compactionjobinfo_output_records(info: CompactionInfo) -> u64 { info.stats.output_entries }
    rocksdb_compactionjobinfo_total_input_bytes(info: CompactionInfo) -> u64 { info.stats.input_bytes }
    rocksdb_compactionjobinfo_total_output_bytes(info: CompactionInfo) -> u64 { info.stats.output_bytes }
    rocksdb_compactionjobinfo_num_input_files(info: CompactionInfo) -> usize { info.stats.input_files }
    rocksdb_compactionjobinfo_num_input_files_at_output_level(info: CompactionInfo) -> usize { info.stats.input_files_at_output_level }
    rocksdb_compactionjobinfo_input_file_infos_count(info: CompactionInfo) -> usize { info.input_infos.len() }
    rocksdb_compactionjobinfo_output_file_infos_count(info: CompactionInfo) -> usize { info.output_infos.len() }
    /// 0 before the compaction ends.
    rocksdb_compactionjobinfo_table_properties_count(info: CompactionInfo) -> usize { info.input_table_properties.len() + info.table_properties.len() }
    rocksdb_compactionjobinfo_blob_file_addition_infos_count(info: CompactionInfo) -> usize { info.blob_files.len() }
    rocksdb_compactionjobinfo_blob_file_garbage_infos_count(info: CompactionInfo) -> usize { info.blob_garbage.len() }
    rocksdb_subcompactionjobinfo_cf_id(info: SubcompactionInfo) -> u32 { info.column_family_id }
    /// The calling thread's id: within a callback the job's.
    rocksdb_subcompactionjobinfo_thread_id(_info: SubcompactionInfo) -> u64 { this_thread() }
    rocksdb_subcompactionjobinfo_job_id(info: SubcompactionInfo) -> c_int { info.job as c_int }
    rocksdb_subcompactionjobinfo_subcompaction_job_id(info: SubcompactionInfo) -> c_int { info.subcompaction as c_int }
    rocksdb_subcompactionjobinfo_base_input_level(info: SubcompactionInfo) -> c_int { info.base_level as c_int }
    rocksdb_subcompactionjobinfo_output_level(info: SubcompactionInfo) -> c_int { info.output_level as c_int }
    rocksdb_subcompactionjobinfo_compaction_reason(info: SubcompactionInfo) -> u32 { info.reason_number }
    rocksdb_subcompactionjobinfo_compression(info: SubcompactionInfo) -> u32 { info.compression.number().into() }
    rocksdb_subcompactionjobinfo_blob_compression_type(info: SubcompactionInfo) -> u32 { info.blob_compression.number().into() }
    rocksdb_externalfileingestioninfo_global_seqno(info: ExternalFileIngestionInfo) -> u64 { info.global_seqno }
    /// 0: the first entry's number is not recorded.
    rocksdb_memtableinfo_first_seqno(_info: MemTableInfo) -> u64 { 0 }
    /// Every entry of the memtable is newer; 0 for the first memtable of an open database.
    rocksdb_memtableinfo_earliest_seqno(info: MemTableInfo) -> u64 { info.earliest_seq }
    rocksdb_memtableinfo_num_entries(info: MemTableInfo) -> u64 { info.entries }
    rocksdb_memtableinfo_num_deletes(info: MemTableInfo) -> u64 { info.deletions }
    rocksdb_compaction_file_info_level(info: CompactionFileInfo) -> c_int { info.level as c_int }
    rocksdb_compaction_file_info_file_number(info: CompactionFileInfo) -> u64 { info.number }
    rocksdb_compaction_file_info_oldest_blob_file_number(info: CompactionFileInfo) -> u64 { info.oldest_blob_file.unwrap_or(0) }
    rocksdb_blob_file_addition_info_blob_file_number(info: BlobFileAdditionInfo) -> u64 { info.number }
    rocksdb_blob_file_addition_info_total_blob_count(info: BlobFileAdditionInfo) -> u64 { info.total_blob_count }
    rocksdb_blob_file_addition_info_total_blob_bytes(info: BlobFileAdditionInfo) -> u64 { info.total_blob_bytes }
    rocksdb_blob_file_garbage_info_blob_file_number(info: BlobFileGarbageInfo) -> u64 { info.number }
    rocksdb_blob_file_garbage_info_garbage_blob_count(info: BlobFileGarbageInfo) -> u64 { info.garbage_blob_count }
    rocksdb_blob_file_garbage_info_garbage_blob_bytes(info: BlobFileGarbageInfo) -> u64 { info.garbage_blob_bytes }
    rocksdb_compaction_job_stats_elapsed_micros(info: CompactionStats) -> u64 { info.micros }
    rocksdb_compaction_job_stats_cpu_micros(info: CompactionStats) -> u64 { info.cpu_micros }
    rocksdb_compaction_job_stats_num_input_records(info: CompactionStats) -> u64 { info.input_entries }
    rocksdb_compaction_job_stats_num_blobs_read(info: CompactionStats) -> u64 { info.blobs_read }
    rocksdb_compaction_job_stats_num_input_files(info: CompactionStats) -> usize { info.input_files }
    rocksdb_compaction_job_stats_num_input_files_trivially_moved(info: CompactionStats) -> usize { info.moved_files }
    rocksdb_compaction_job_stats_num_input_files_at_output_level(info: CompactionStats) -> usize { info.input_files_at_output_level }
    rocksdb_compaction_job_stats_num_output_records(info: CompactionStats) -> u64 { info.output_entries }
    rocksdb_compaction_job_stats_num_output_files(info: CompactionStats) -> usize { info.output_files }
    rocksdb_compaction_job_stats_num_output_files_blob(info: CompactionStats) -> usize { info.output_blob_files }
    rocksdb_compaction_job_stats_total_input_bytes(info: CompactionStats) -> u64 { info.input_bytes }
    rocksdb_compaction_job_stats_total_blob_bytes_read(info: CompactionStats) -> u64 { info.blob_bytes_read }
    rocksdb_compaction_job_stats_total_output_bytes(info: CompactionStats) -> u64 { info.output_bytes }
    rocksdb_compaction_job_stats_total_output_bytes_blob(info: CompactionStats) -> u64 { info.output_blob_bytes }
    rocksdb_compaction_job_stats_num_records_replaced(info: CompactionStats) -> u64 { info.replaced }
    rocksdb_compaction_job_stats_total_input_raw_key_bytes(info: CompactionStats) -> u64 { info.input_key_bytes }
    rocksdb_compaction_job_stats_total_input_raw_value_bytes(info: CompactionStats) -> u64 { info.input_value_bytes }
    rocksdb_compaction_job_stats_num_input_deletion_records(info: CompactionStats) -> u64 { info.input_deletions }
    rocksdb_compaction_job_stats_num_expired_deletion_records(info: CompactionStats) -> u64 { info.expired_deletions }
    rocksdb_compaction_job_stats_num_single_del_fallthru(info: CompactionStats) -> u64 { info.single_deletes_without_entry }
    rocksdb_compaction_job_stats_num_single_del_mismatch(info: CompactionStats) -> u64 { info.single_deletes_mismatched }
    /// 1: every entry is counted.
    rocksdb_compaction_job_stats_has_accurate_num_input_records(_info: CompactionStats) -> c_uchar { 1 }
    rocksdb_compaction_job_stats_is_full_compaction(info: CompactionStats) -> c_uchar { info.is_full.into() }
    rocksdb_compaction_job_stats_is_manual_compaction(info: CompactionStats) -> c_uchar { info.is_manual.into() }
    /// 0: there is no remote worker.
    rocksdb_compaction_job_stats_is_remote_compaction(_info: CompactionStats) -> c_uchar { 0 }
    /// 0: no input file is left out.
    rocksdb_compaction_job_stats_num_filtered_input_files(_info: CompactionStats) -> usize { 0 }
    /// 0: no input file is left out.
    rocksdb_compaction_job_stats_num_filtered_input_files_at_output_level(_info: CompactionStats) -> usize { 0 }
    /// 0: no input file is left out.
    rocksdb_compaction_job_stats_total_skipped_input_bytes(_info: CompactionStats) -> u64 { 0 }
    /// 0: a compaction that meets a damaged key fails.
    rocksdb_compaction_job_stats_num_corrupt_keys(_info: CompactionStats) -> u64 { 0 }
    /// 0: the times of single operations are not summed up.
    rocksdb_compaction_job_stats_file_write_nanos(_info: CompactionStats) -> u64 { 0 }
    /// 0: the times of single operations are not summed up.
    rocksdb_compaction_job_stats_file_range_sync_nanos(_info: CompactionStats) -> u64 { 0 }
    /// 0: the times of single operations are not summed up.
    rocksdb_compaction_job_stats_file_fsync_nanos(_info: CompactionStats) -> u64 { 0 }
    /// 0: the times of single operations are not summed up.
    rocksdb_compaction_job_stats_file_prepare_write_nanos(_info: CompactionStats) -> u64 { 0 }
}

capi! {
    call rocksdb_flushjobinfo_cf_name(info: *const FlushInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| info.column_family.as_bytes()) }
    /// Empty before the flush ends.
    call rocksdb_flushjobinfo_file_path(info: *const FlushInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| info.table_path.as_deref().map(path).unwrap_or_default()) }
    /// All at their defaults before the flush ends.
    call rocksdb_flushjobinfo_table_properties(info: *const FlushInfo) -> *const TableProperties {
        info.as_ref().map_or(null(), |info| info.table_properties.as_ref().map_or_else(none, Arc::as_ptr))
    }
    call rocksdb_flushjobinfo_blob_file_addition_info_at(info: *const FlushInfo, at: usize) -> *const BlobFileAdditionInfo { part_at(info, at, |info| &info.blob_files) }
    call rocksdb_compactionjobinfo_create() -> *mut CompactionInfo { give(CompactionInfo::default()) }
    call rocksdb_compactionjobinfo_destroy(info: *mut CompactionInfo) { end(info); }
    call rocksdb_compactionjobinfo_cf_name(info: *const CompactionInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| info.column_family.as_bytes()) }
    attempt rocksdb_compactionjobinfo_status(info: *const CompactionInfo) { match &of(info)?.error { Some(error) => Err(error.clone()), None => Ok(()) } }
    call rocksdb_compactionjobinfo_input_file_at(info: *const CompactionInfo, at: usize, size: *mut usize) -> *const c_char { maybe_text_of(info, size, |info| info.input_paths.get(at).map(|file| path(file))) }
    call rocksdb_compactionjobinfo_output_file_at(info: *const CompactionInfo, at: usize, size: *mut usize) -> *const c_char { maybe_text_of(info, size, |info| info.output_paths.get(at).map(|file| path(file))) }
    call rocksdb_compactionjobinfo_stats(info: *const CompactionInfo) -> *const CompactionStats { info.as_ref().map_or(null(), |info| &raw const info.stats) }
    call rocksdb_compactionjobinfo_input_file_info_at(info: *const CompactionInfo, at: usize) -> *const CompactionFileInfo { part_at(info, at, |info| &info.input_infos) }
    call rocksdb_compactionjobinfo_output_file_info_at(info: *const CompactionInfo, at: usize) -> *const CompactionFileInfo { part_at(info, at, |info| &info.output_infos) }
    call rocksdb_compactionjobinfo_table_properties_key_at(info: *const CompactionInfo, at: usize, size: *mut usize) -> *const c_char { maybe_text_of(info, size, |info| properties_at(info, at).map(|(file, _)| path(file))) }
    call rocksdb_compactionjobinfo_table_properties_value_at(info: *const CompactionInfo, at: usize) -> *const TableProperties {
        info.as_ref().and_then(|info| properties_at(info, at)).map_or(null(), |(_, table)| Arc::as_ptr(table))
    }
    call rocksdb_compactionjobinfo_table_properties_for_file(info: *const CompactionInfo, name: *const c_char, size: usize) -> *const TableProperties {
        let file = Path::new(OsStr::from_bytes(bytes(name, size)));
        let found = |info: &CompactionInfo| info.table_properties.get(file).or_else(|| info.input_table_properties.get(file)).map(Arc::as_ptr);
        info.as_ref().and_then(found).unwrap_or(null())
    }
    call rocksdb_compactionjobinfo_blob_file_addition_info_at(info: *const CompactionInfo, at: usize) -> *const BlobFileAdditionInfo { part_at(info, at, |info| &info.blob_files) }
    call rocksdb_compactionjobinfo_blob_file_garbage_info_at(info: *const CompactionInfo, at: usize) -> *const BlobFileGarbageInfo { part_at(info, at, |info| &info.blob_garbage) }
    call rocksdb_subcompactionjobinfo_cf_name(info: *const SubcompactionInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| info.column_family.as_bytes()) }
    attempt rocksdb_subcompactionjobinfo_status(info: *const SubcompactionInfo) { match &of(info)?.error { Some(error) => Err(error.clone()), None => Ok(()) } }
    call rocksdb_subcompactionjobinfo_stats(info: *const SubcompactionInfo) -> *const CompactionStats { info.as_ref().map_or(null(), |info| &raw const info.stats) }
    call rocksdb_externalfileingestioninfo_cf_name(info: *const ExternalFileIngestionInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| info.column_family.as_bytes()) }
    call rocksdb_externalfileingestioninfo_external_file_path(info: *const ExternalFileIngestionInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| path(&info.external_file_path)) }
    call rocksdb_externalfileingestioninfo_internal_file_path(info: *const ExternalFileIngestionInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| path(&info.internal_file_path)) }
    call rocksdb_externalfileingestioninfo_table_properties(info: *const ExternalFileIngestionInfo) -> *const TableProperties { info.as_ref().map_or(null(), |info| Arc::as_ptr(&info.table_properties)) }
    call rocksdb_memtableinfo_cf_name(info: *const MemTableInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| info.column_family.as_bytes()) }
    /// Empty: the newest timestamp of a memtable is not recorded.
    call rocksdb_memtableinfo_newest_udt(info: *const MemTableInfo, size: *mut usize) -> *const c_char { text_of(info, size, |_| &[]) }
    call rocksdb_writestallinfo_cf_name(info: *const WriteStallInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| info.column_family.as_bytes()) }
    /// Points to an int: 0 slowed down, 1 stopped, 2 neither.
    call rocksdb_writestallinfo_cur(info: *const WriteStallInfo) -> *const StallCondition { info.as_ref().map_or(null(), |info| condition(info.now)) }
    /// Points to an int like rocksdb_writestallinfo_cur.
    call rocksdb_writestallinfo_prev(info: *const WriteStallInfo) -> *const StallCondition { info.as_ref().map_or(null(), |info| condition(info.before)) }
    call rocksdb_blob_file_addition_info_blob_file_path(info: *const BlobFileAdditionInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| path(&info.path)) }
    call rocksdb_blob_file_garbage_info_blob_file_path(info: *const BlobFileGarbageInfo, size: *mut usize) -> *const c_char { text_of(info, size, |info| path(&info.path)) }
    call rocksdb_compaction_job_stats_smallest_output_key_prefix(info: *const CompactionStats, size: *mut usize) -> *const c_char { text_of(info, size, |info| &info.smallest_output_prefix) }
    call rocksdb_compaction_job_stats_largest_output_key_prefix(info: *const CompactionStats, size: *mut usize) -> *const c_char { text_of(info, size, |info| &info.largest_output_prefix) }
}
