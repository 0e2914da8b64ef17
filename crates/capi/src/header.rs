//! The C headers: `karst.h`, and one in the place of `rocksdb/c.h`.
//!
//! In: the signatures that the macros record beside each exported function. Out: text of C, which
//! therefore always agrees with the functions' sources. The built library writes the headers when
//! `cargo xtask capi` calls `karst_write_headers`. A tool that reads sources would not see the
//! functions, because macros generate them.

use crate::async_calls::{self, Status};
use crate::boundary::{ErrPtr, attempt, invalid, text};
use crate::observe::METRICS;
use crate::refused::{REFUSED, Refused};
use crate::signature::Signature;
use libc::c_char;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// Returns a function's declaration in C, with its documentation.
fn declared(signature: &Signature) -> Result<String, String> {
    let mut text = String::new();
    for line in signature.about {
        let _ = writeln!(text, "//{line}");
    }
    let mut arguments = Vec::new();
    for (name, rust) in signature.arguments {
        let name = name.trim_matches('_');
        // Keywords of C++.
        let name = if matches!(name, "new" | "operator") { &format!("{name}_") } else { name };
        arguments.push(format!("{} {name}", c_type(rust)?));
    }
    // Split at any white space, because the compiler breaks the line before a long name.
    if signature.head.split_whitespace().next() == Some("attempt") {
        arguments.push("char** errptr".into());
    }
    let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(", ") };
    let returned = if signature.returned.is_empty() { "void".into() } else { c_type(signature.returned)? };
    let _ = writeln!(text, "extern {returned} {}({arguments});", signature.name());
    Ok(text)
}

/// Handles of RocksDB's API: type in Rust and in C.
const HANDLES: &[(&str, &str)] = &[
    ("Allocator", "rocksdb_memory_allocator_t"),
    ("Batch", "rocksdb_writebatch_t"),
    ("BackupSettings", "rocksdb_backup_engine_options_t"),
    ("BlobFileAdditionInfo", "rocksdb_blob_file_addition_info_t"),
    ("BlobFileGarbageInfo", "rocksdb_blob_file_garbage_info_t"),
    ("Cache", "rocksdb_cache_t"),
    ("CacheSettings", "rocksdb_lru_cache_options_t"),
    ("CheckpointHandle", "rocksdb_checkpoint_t"),
    ("Compaction", "rocksdb_compactoptions_t"),
    ("CompactionSettings", "rocksdb_compaction_options_t"),
    ("ChecksumHandle", "rocksdb_file_checksum_gen_factory_t"),
    ("CompactionFileInfo", "rocksdb_compaction_file_info_t"),
    ("CompactionInfo", "rocksdb_compactionjobinfo_t"),
    ("CompactionStats", "rocksdb_compaction_job_stats_t"),
    ("ComparatorHandle", "rocksdb_comparator_t"),
    ("Consumers", "rocksdb_memory_consumers_t"),
    ("ContextHandle", "rocksdb_compactionfiltercontext_t"),
    ("CreateBackup", "rocksdb_create_backup_options_t"),
    ("CuckooHandle", "rocksdb_cuckoo_table_options_t"),
    ("Database", "rocksdb_t"),
    ("DbPath", "rocksdb_dbpath_t"),
    ("Engine", "rocksdb_backup_engine_t"),
    ("EnvOptions", "rocksdb_envoptions_t"),
    ("Environment", "rocksdb_env_t"),
    ("Exports", "rocksdb_export_import_files_metadata_t"),
    ("ExternalFileIngestionInfo", "rocksdb_externalfileingestioninfo_t"),
    ("FactoryHandle", "rocksdb_compactionfilterfactory_t"),
    ("Family", "rocksdb_column_family_handle_t"),
    ("FamilyMetadata", "rocksdb_column_family_metadata_t"),
    ("FifoHandle", "rocksdb_fifo_compaction_options_t"),
    ("FileManager", "rocksdb_sst_file_manager_t"),
    ("FilterHandle", "rocksdb_compactionfilter_t"),
    ("FilterPolicy", "rocksdb_filterpolicy_t"),
    ("Flush", "rocksdb_flushoptions_t"),
    ("FlushInfo", "rocksdb_flushjobinfo_t"),
    ("HyperClockSettings", "rocksdb_hyper_clock_cache_options_t"),
    ("HistogramData", "rocksdb_statistics_histogram_data_t"),
    ("Import", "rocksdb_import_column_family_options_t"),
    ("IndexedBatch", "rocksdb_writebatch_wi_t"),
    ("Infos", "rocksdb_backup_engine_info_t"),
    ("Ingest", "rocksdb_ingestexternalfileoptions_t"),
    ("Iter", "rocksdb_iterator_t"),
    ("LevelMetadata", "rocksdb_level_metadata_t"),
    ("Limiter", "rocksdb_ratelimiter_t"),
    ("Live", "rocksdb_livefile_t"),
    ("ListenerHandle", "rocksdb_eventlistener_t"),
    ("LiveFiles", "rocksdb_livefiles_t"),
    ("LockBuckets", "rocksdb_optimistictransactiondb_lock_buckets_t"),
    ("LockingDatabase", "rocksdb_transactiondb_t"),
    ("LockingSettings", "rocksdb_transactiondb_options_t"),
    ("Log", "rocksdb_wal_file_t"),
    ("LoggerHandle", "rocksdb_logger_t"),
    ("Logs", "rocksdb_wal_files_t"),
    ("MemTableInfo", "rocksdb_memtableinfo_t"),
    ("MemoryUsage", "rocksdb_memory_usage_t"),
    ("MergeHandle", "rocksdb_mergeoperator_t"),
    ("MetadataSettings", "rocksdb_column_family_metadata_options_t"),
    ("OptimisticDatabase", "rocksdb_optimistictransactiondb_t"),
    ("OptimisticDbSettings", "rocksdb_optimistictransactiondb_options_t"),
    ("OptimisticSettings", "rocksdb_optimistictransaction_options_t"),
    ("OptionsHandle", "rocksdb_options_t"),
    ("PartitionerHandle", "rocksdb_sst_partitioner_factory_t"),
    ("PerfContext", "rocksdb_perfcontext_t"),
    ("Pinned", "rocksdb_pinnableslice_t"),
    ("PinnedHandle", "rocksdb_pinnable_handle_t"),
    ("PrefixHandle", "rocksdb_slicetransform_t"),
    ("Read", "rocksdb_readoptions_t"),
    ("ReplaySettings", "rocksdb_replay_options_t"),
    ("ReplayerHandle", "rocksdb_replayer_t"),
    ("Restore", "rocksdb_restore_options_t"),
    ("SizeApproximation", "rocksdb_size_approximation_options_t"),
    ("SnapshotHandle", "rocksdb_snapshot_t"),
    ("StallCondition", "rocksdb_writestallcondition_t"),
    ("StatusPtr", "rocksdb_status_ptr_t"),
    ("StorageInfo", "rocksdb_livefiles_storage_info_t"),
    ("StorageInfoSettings", "rocksdb_livefiles_storage_info_options_t"),
    ("SubcompactionInfo", "rocksdb_subcompactionjobinfo_t"),
    ("TableHandle", "rocksdb_block_based_table_options_t"),
    ("TableMetadata", "rocksdb_sst_file_metadata_t"),
    ("TableProperties", "rocksdb_table_properties_t"),
    ("TraceReaderHandle", "rocksdb_trace_reader_t"),
    ("TraceSettings", "rocksdb_trace_options_t"),
    ("TransactionHandle", "rocksdb_transaction_t"),
    ("TransactionSettings", "rocksdb_transaction_options_t"),
    ("UniversalHandle", "rocksdb_universal_compaction_options_t"),
    ("Wait", "rocksdb_wait_for_compact_options_t"),
    ("WalFlush", "rocksdb_flushwaloptions_t"),
    ("WalIter", "rocksdb_wal_iterator_t"),
    ("WalRead", "rocksdb_wal_readoptions_t"),
    ("Write", "rocksdb_writeoptions_t"),
    ("WriteBuffers", "rocksdb_write_buffer_manager_t"),
    ("WriteStallInfo", "rocksdb_writestallinfo_t"),
    ("Writer", "rocksdb_sstfilewriter_t"),
];

/// Handles of `karst.h`. They are reference-counted with locks inside: no `const` in C.
const COUNTED: &[(&str, &str)] = &[
    ("Cursor", "karst_iterator_t"),
    ("Op", "karst_op_t"),
    ("Queue", "karst_completion_queue_t"),
    ("Runner", "karst_reactor_t"),
];

const PLAIN: &[(&str, &str)] = &[
    ("Completion", "karst_completion_t"),
    ("Notify", "karst_notify_t"),
    ("Slice", "rocksdb_slice_t"),
    ("bool", "bool"),
    ("c_char", "char"),
    ("c_int", "int"),
    ("c_uint", "unsigned int"),
    ("c_uchar", "unsigned char"),
    ("c_void", "void"),
    ("f64", "double"),
    ("i32", "int32_t"),
    ("i64", "int64_t"),
    ("u16", "uint16_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("u8", "unsigned char"),
    ("unsafe extern \"C\" fn(*mut c_void)", "karst_destructor_fn"),
    ("usize", "size_t"),
];

/// Types of callbacks: name in Rust, name in C, and declaration.
const CALLBACKS: &[(&str, &str, &str)] = &[
    ("Compare", "karst_compare_fn", "int (*%)(void*, const char*, size_t, const char*, size_t)"),
    (
        "CompareBare",
        "karst_compare_without_ts_fn",
        "int (*%)(void*, const char*, size_t, unsigned char, const char*, size_t, unsigned char)",
    ),
    (
        "CreateFilter",
        "karst_create_filter_fn",
        "rocksdb_compactionfilter_t* (*%)(void*, rocksdb_compactionfiltercontext_t*)",
    ),
    ("DeleteValue", "karst_delete_value_fn", "void (*%)(void*, const char*, size_t)"),
    ("Destructor", "karst_destructor_fn", "void (*%)(void*)"),
    (
        "Filter",
        "karst_filter_fn",
        "unsigned char (*%)(void*, int, const char*, size_t, const char*, size_t, char**, size_t*, unsigned char*)",
    ),
    (
        "FullMerge",
        "karst_full_merge_fn",
        "char* (*%)(void*, const char*, size_t, const char*, size_t, const char* const*, const size_t*, int, unsigned char*, size_t*)",
    ),
    ("InDomain", "karst_in_domain_fn", "unsigned char (*%)(void*, const char*, size_t)"),
    ("LogLine", "karst_log_fn", "void (*%)(void*, unsigned int, char*, size_t)"),
    ("Name", "karst_name_fn", "const char* (*%)(void*)"),
    ("OnBackgroundError", "on_background_error_cb", "void (*%)(void*, uint32_t, rocksdb_status_ptr_t*)"),
    (
        "OnCompactionBegin",
        "on_compaction_begin_cb",
        "void (*%)(void*, rocksdb_t*, const rocksdb_compactionjobinfo_t*)",
    ),
    (
        "OnCompactionCompleted",
        "on_compaction_completed_cb",
        "void (*%)(void*, rocksdb_t*, const rocksdb_compactionjobinfo_t*)",
    ),
    (
        "OnExternalFileIngested",
        "on_external_file_ingested_cb",
        "void (*%)(void*, rocksdb_t*, const rocksdb_externalfileingestioninfo_t*)",
    ),
    ("OnFlushBegin", "on_flush_begin_cb", "void (*%)(void*, rocksdb_t*, const rocksdb_flushjobinfo_t*)"),
    (
        "OnFlushCompleted",
        "on_flush_completed_cb",
        "void (*%)(void*, rocksdb_t*, const rocksdb_flushjobinfo_t*)",
    ),
    ("OnMemtableSealed", "on_memtable_sealed_cb", "void (*%)(void*, const rocksdb_memtableinfo_t*)"),
    (
        "OnStallConditionsChanged",
        "on_stall_conditions_changed_cb",
        "void (*%)(void*, const rocksdb_writestallinfo_t*)",
    ),
    (
        "OnSubcompactionBegin",
        "on_subcompaction_begin_cb",
        "void (*%)(void*, const rocksdb_subcompactionjobinfo_t*)",
    ),
    (
        "OnSubcompactionCompleted",
        "on_subcompaction_completed_cb",
        "void (*%)(void*, const rocksdb_subcompactionjobinfo_t*)",
    ),
    (
        "PartialMerge",
        "karst_partial_merge_fn",
        "char* (*%)(void*, const char*, size_t, const char* const*, const size_t*, int, unsigned char*, size_t*)",
    ),
    (
        "TableFilter",
        "rocksdb_readoptions_table_filter_cb",
        "unsigned char (*%)(void*, const rocksdb_table_properties_t*)",
    ),
    ("TimestampSize", "karst_timestamp_size_fn", "size_t (*%)(void*, uint32_t)"),
    ("Transform", "karst_transform_fn", "char* (*%)(void*, const char*, size_t, size_t*)"),
    ("Visit1", "karst_visit_key_fn", "void (*%)(void*, const char*, size_t)"),
    ("Visit2", "karst_visit_entry_fn", "void (*%)(void*, const char*, size_t, const char*, size_t)"),
    ("VisitCf1", "karst_visit_cf_key_fn", "void (*%)(void*, uint32_t, const char*, size_t)"),
    (
        "VisitCf2",
        "karst_visit_cf_entry_fn",
        "void (*%)(void*, uint32_t, const char*, size_t, const char*, size_t)",
    ),
];

/// Types in no function's signature: only callbacks get them, or RocksDB keeps the name of a
/// removed type.
const OTHER_TYPES: [&str; 5] = [
    "rocksdb_compactionservice_jobinfo_t",
    "rocksdb_filelock_t",
    "rocksdb_randomfile_t",
    "rocksdb_seqfile_t",
    "rocksdb_writablefile_t",
];

/// Types of callbacks that only refused functions take, or that RocksDB names beside the functions,
/// under RocksDB's names.
const CALLBACKS_OF_REFUSED: &[&str] = &[
    "void (*rocksdb_compaction_service_cancel_awaiting_jobs_cb)(void*)",
    "void (*rocksdb_compaction_service_on_installation_cb)(void*, const char*, int)",
    "rocksdb_compactionservice_scheduleresponse_t* (*rocksdb_compaction_service_schedule_cb)(void*, const rocksdb_compactionservice_jobinfo_t*, const char*, size_t)",
    "int (*rocksdb_compaction_service_wait_cb)(void*, const char*, char**, size_t*)",
    "unsigned char (*rocksdb_create_backup_options_exclude_files_cb)(void*, const char*, size_t)",
    "void (*rocksdb_create_backup_options_progress_cb)(void*)",
    "void (*rocksdb_logger_logv_cb)(void*, uint32_t, const char*)",
    "void (*rocksdb_walfilter_column_family_log_number_map_cb)(void*, const uint32_t*, const uint64_t*, size_t, const char* const*, const size_t*, const uint32_t*, size_t)",
    "int (*rocksdb_walfilter_log_record_found_cb)(void*, unsigned long long, const char*, size_t, const rocksdb_writebatch_t*, rocksdb_writebatch_t*, unsigned char*)",
];

/// Returns the C name of a Rust type.
fn c_type(rust: &str) -> Result<String, String> {
    // Tokens that went through two macros have other spaces.
    let spaced = rust.trim().replace("* mut ", "*mut ").replace("* const ", "*const ");
    let rust = spaced.as_str();
    // A callback that may be null.
    let rust = rust.strip_prefix("Option<").and_then(|rust| rust.strip_suffix('>')).unwrap_or(rust);
    if let Some(to) = rust.strip_prefix("*mut ") {
        return Ok(format!("{}*", c_type(to)?));
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        let inner = c_type(to)?;
        let counted = COUNTED.iter().any(|(name, _)| *name == to);
        return Ok(match to.starts_with('*') {
            _ if counted => format!("{inner}*"),
            true => format!("{inner} const*"),
            false => format!("const {inner}*"),
        });
    }
    let name = rust.rsplit("::").next().unwrap_or(rust);
    let known = PLAIN.iter().chain(HANDLES).chain(COUNTED).find(|(known, _)| *known == name);
    let callback = || CALLBACKS.iter().find(|(known, ..)| *known == name).map(|(_, c, _)| *c);
    let found = known.map(|(_, c)| *c).or_else(callback);
    found.map(str::to_owned).ok_or_else(|| format!("no type in C is known for `{rust}`"))
}

/// Constants of RocksDB's enumerations.
const CHOICES: &[&[(&str, i32)]] = &[
    &[
        ("rocksdb_size_approximation_flags_none", 0),
        ("rocksdb_size_approximation_flags_include_memtable", 1),
        ("rocksdb_size_approximation_flags_include_files", 2),
        ("rocksdb_size_approximation_flags_include_blob_files", 4),
    ],
    &[("rocksdb_wal_file_type_archived_log", 0), ("rocksdb_wal_file_type_alive_log", 1)],
    &[
        ("rocksdb_block_based_table_index_block_search_type_binary", 0),
        ("rocksdb_block_based_table_index_block_search_type_interpolation", 1),
        ("rocksdb_block_based_table_index_block_search_type_auto", 2),
    ],
    &[
        ("rocksdb_block_based_k_fallback_pinning_tier", 0),
        ("rocksdb_block_based_k_none_pinning_tier", 1),
        ("rocksdb_block_based_k_flush_and_similar_pinning_tier", 2),
        ("rocksdb_block_based_k_all_pinning_tier", 3),
    ],
    &[
        ("rocksdb_statistics_level_disable_all", 0),
        ("rocksdb_statistics_level_except_tickers", 0),
        ("rocksdb_statistics_level_except_histogram_or_timers", 1),
        ("rocksdb_statistics_level_except_timers", 2),
        ("rocksdb_statistics_level_except_detailed_timers", 3),
        ("rocksdb_statistics_level_except_time_for_mutex", 4),
        ("rocksdb_statistics_level_all", 5),
    ],
    &[("rocksdb_prepopulate_blob_disable", 0), ("rocksdb_prepopulate_blob_flush_only", 1)],
    &[
        ("rocksdb_k_by_compensated_size_compaction_pri", 0),
        ("rocksdb_k_oldest_largest_seq_first_compaction_pri", 1),
        ("rocksdb_k_oldest_smallest_seq_first_compaction_pri", 2),
        ("rocksdb_k_min_overlapping_ratio_compaction_pri", 3),
        ("rocksdb_k_round_robin_compaction_pri", 4),
    ],
    &[
        ("rocksdb_uninitialized", 0),
        ("rocksdb_disable", 1),
        ("rocksdb_enable_count", 2),
        ("rocksdb_enable_time_except_for_mutex", 3),
        ("rocksdb_enable_time", 4),
        ("rocksdb_out_of_bounds", 5),
    ],
    &[
        ("rocksdb_wal_filter_continue_processing", 0),
        ("rocksdb_wal_filter_ignore_current_record", 1),
        ("rocksdb_wal_filter_stop_replay", 2),
        ("rocksdb_wal_filter_corrupted_record", 3),
    ],
    &[
        ("rocksdb_trace_filter_none", 0),
        ("rocksdb_trace_filter_get", 1),
        ("rocksdb_trace_filter_write", 2),
        ("rocksdb_trace_filter_iterator_seek", 4),
        ("rocksdb_trace_filter_iterator_seek_for_prev", 8),
        ("rocksdb_trace_filter_multi_get", 16),
    ],
    &[
        ("rocksdb_compactionservice_jobstatus_success", 0),
        ("rocksdb_compactionservice_jobstatus_failure", 1),
        ("rocksdb_compactionservice_jobstatus_aborted", 2),
        ("rocksdb_compactionservice_jobstatus_use_local", 3),
    ],
    &[
        ("rocksdb_block_based_table_index_type_binary_search", 0),
        ("rocksdb_block_based_table_index_type_hash_search", 1),
        ("rocksdb_block_based_table_index_type_two_level_index_search", 2),
    ],
    &[
        ("rocksdb_block_based_table_data_block_index_type_binary_search", 0),
        ("rocksdb_block_based_table_data_block_index_type_binary_search_and_hash", 1),
    ],
    &[
        ("rocksdb_no_compression", 0),
        ("rocksdb_snappy_compression", 1),
        ("rocksdb_zlib_compression", 2),
        ("rocksdb_bz2_compression", 3),
        ("rocksdb_lz4_compression", 4),
        ("rocksdb_lz4hc_compression", 5),
        ("rocksdb_xpress_compression", 6),
        ("rocksdb_zstd_compression", 7),
    ],
    &[("rocksdb_level_compaction", 0), ("rocksdb_universal_compaction", 1), ("rocksdb_fifo_compaction", 2)],
    &[("rocksdb_similar_size_compaction_stop_style", 0), ("rocksdb_total_size_compaction_stop_style", 1)],
    &[
        ("rocksdb_tolerate_corrupted_tail_records_recovery", 0),
        ("rocksdb_absolute_consistency_recovery", 1),
        ("rocksdb_point_in_time_recovery", 2),
        ("rocksdb_skip_any_corrupted_records_recovery", 3),
    ],
    &[
        ("rocksdb_txndb_write_policy_write_committed", 0),
        ("rocksdb_txndb_write_policy_write_prepared", 1),
        ("rocksdb_txndb_write_policy_write_unprepared", 2),
    ],
];

fn enumeration<'a>(values: impl Iterator<Item = (&'a str, i32)>) -> String {
    let values: Vec<_> = values.map(|(name, number)| format!("  {name} = {number}")).collect();
    format!("enum {{\n{}\n}};\n\n", values.join(",\n"))
}

const BEGIN: &str = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
const END: &str = "\n#ifdef __cplusplus\n}\n#endif\n";
const MADE: &str = "/* Made by `cargo xtask capi --table` from the sources of crates/capi.\n   SPDX-License-Identifier: Apache-2.0 */\n#pragma once\n\n";

/// Returns the names of the asynchronous functions, in the order of `karst.h`.
pub fn asynchronous() -> Vec<&'static str> {
    async_calls::NAMES.iter().flat_map(|file| file.iter()).map(Signature::name).collect()
}

/// Returns the text of `karst.h`.
///
/// # Errors
/// A function has an argument of a type that is not known in C.
pub fn karst_header() -> Result<String, String> {
    const TYPES: &str = r"/* Asynchronous calls of KarstDB, beside those of rocksdb/c.h.

   A call names a reactor, which runs it, and a karst_notify_t, which says where it is completed: in
   a queue, or by a callback. It returns an operation, which is completed exactly once, and which
   whoever gets the completion ends by karst_op_release. A call returns null only if it is given no
   reactor, one that is being destroyed, or nowhere to complete; whatever else is wrong is the
   completion's status.

   Memory: when a call has returned, its options, keys and the karst_notify_t can be freed; the queue
   lives as long as it is used. What a completion points to is valid until its operation is released.
   Threads: every function may be called from any thread, and handles may be shared, but for a
   reactor without threads, which is polled and destroyed by the thread that created it. No handle
   is destroyed while another thread calls a function on it.
   Callbacks are called on the reactor's thread, never before the call that they belong to has been
   taken in by it, and hold up its other operations for as long as they take. They may begin, cancel
   and release operations and call any function of rocksdb/c.h. */

typedef struct karst_reactor_t karst_reactor_t;
typedef struct karst_completion_queue_t karst_completion_queue_t;
typedef struct karst_op_t karst_op_t;
typedef struct karst_iterator_t karst_iterator_t;

/* The end of an operation. */
typedef struct karst_completion_t {
  karst_op_t* op;        /* to be released */
  void* user_data;       /* that of the karst_notify_t */
  int status;            /* KARST_OK or another of the numbers below */
  const char* message;   /* what went wrong; null if nothing did */
  const char* key;       /* the key an iterator is on; null if on none */
  size_t key_length;
  const char* value;     /* the value that was found, or an iterator's; null if there is none */
  size_t value_length;
  size_t count;          /* how many keys were asked for: see karst_op_result */
} karst_completion_t;

/* Where an operation is completed: in `queue`, or where that is null by `callback`. */
typedef struct karst_notify_t {
  karst_completion_queue_t* queue;
  void (*callback)(const karst_completion_t*);
  void* user_data;
} karst_notify_t;

/* How an operation has ended. The numbers up to 13 are those of RocksDB's Status::Code. */
";
    let mut text = format!("{MADE}#include <rocksdb/c.h>\n{BEGIN}{TYPES}");
    text += &enumeration(Status::ALL.iter().map(|(name, status)| (*name, *status as i32)));
    for signature in async_calls::NAMES.iter().flat_map(|file| file.iter()) {
        text += &declared(signature)?;
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    Ok(text + "\n" + END)
}

/// Returns the text of the header in the place of `rocksdb/c.h`: all its functions, types and
/// constants. Refused functions are declared too, so that a program written for RocksDB's header
/// compiles with this one and gets the same answers.
///
/// # Errors
/// A function has an argument of a type that is not known in C.
pub fn rocksdb_header() -> Result<String, String> {
    let mut text = format!("{MADE}{BEGIN}");
    let refused = REFUSED.iter().flat_map(|function| [function.returned, function.arguments]);
    let words = refused.flat_map(|types| types.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()));
    let of_refused = words.filter(|word| word.starts_with("rocksdb_") && word.ends_with("_t"));
    let all: BTreeSet<&str> =
        HANDLES.iter().map(|(_, name)| *name).chain(of_refused).chain(OTHER_TYPES).collect();
    for name in all {
        let _ = writeln!(text, "typedef struct {name} {name};");
    }
    text += "\ntypedef struct rocksdb_slice_t {\n  const char* data;\n  size_t size;\n} rocksdb_slice_t;\n\n";
    for (_, name, declaration) in CALLBACKS {
        let _ = writeln!(text, "typedef {};", declaration.replace('%', name));
    }
    for declaration in CALLBACKS_OF_REFUSED {
        let _ = writeln!(text, "typedef {declaration};");
    }
    text.push('\n');
    let metrics: Vec<String> = METRICS.iter().map(|name| format!("rocksdb_{name}")).collect();
    text +=
        &enumeration(metrics.iter().map(String::as_str).zip(0..).chain([("rocksdb_total_metric_count", 86)]));
    for choice in CHOICES {
        text += &enumeration(choice.iter().copied());
    }
    let mut all = Vec::new();
    for signature in crate::table::signatures() {
        all.push((signature.name(), declared(signature)?));
    }
    all.extend(REFUSED.iter().map(|Refused { name, returned, arguments }| {
        (*name, format!("// Refused: fails as not implemented, or returns nothing.\nextern {returned} {name}({arguments});\n"))
    }));
    all.sort();
    text.extend(all.into_iter().map(|(_, declaration)| declaration));
    Ok(text + END)
}

/// Writes `karst.h` and `rocksdb/c.h` into a directory, which is created if missing. No header
/// declares this function: installation of the library calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn karst_write_headers(directory: *const c_char, errptr: ErrPtr) {
    let write = || {
        let directory = Path::new(unsafe { text(directory) }?);
        let failed = |path: &Path, e: std::io::Error| invalid(format!("{}: {e}", path.display()));
        let of_rocksdb = directory.join("rocksdb");
        std::fs::create_dir_all(&of_rocksdb).map_err(|e| failed(&of_rocksdb, e))?;
        let headers =
            [(directory.join("karst.h"), karst_header()), (of_rocksdb.join("c.h"), rocksdb_header())];
        for (path, header) in headers {
            std::fs::write(&path, header.map_err(invalid)?).map_err(|e| failed(&path, e))?;
        }
        Ok(())
    };
    unsafe { attempt("karst_write_headers", errptr, write) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString};
    use std::ptr::null_mut;

    /// Writes the headers, and returns the error.
    fn written(directory: &Path) -> Option<String> {
        let (path, mut error) = (CString::new(directory.to_str().unwrap()).unwrap(), null_mut());
        // SAFETY: both live as long as the call; the error is freed once.
        unsafe {
            karst_write_headers(path.as_ptr(), &mut error);
            let said = (!error.is_null()).then(|| CStr::from_ptr(error).to_str().unwrap().to_owned());
            libc::free(error.cast());
            said
        }
    }

    #[test]
    fn the_headers_are_written_and_what_prevents_it_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let include = directory.path().join("new/include");
        for _ in 0..2 {
            assert_eq!(written(&include), None);
            let read = |name: &str| std::fs::read_to_string(include.join(name)).unwrap();
            assert_eq!(
                (read("karst.h"), read("rocksdb/c.h")),
                (karst_header().unwrap(), rocksdb_header().unwrap())
            );
        }
        let said = written(&include.join("karst.h")).expect("a file is no directory");
        assert!(said.contains("karst.h"), "{said}");
    }
}
