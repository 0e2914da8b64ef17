//! Functions that are not implemented: each fails through `errptr` if it has one, else returns null
//! or 0, and reports itself once on stderr.
//!
//! A row has the name, the class of the returned type (`word`: a pointer, a number or nothing;
//! `double`), the number of arguments before `errptr`, and for the header the types in C, which
//! `cargo xtask peers` compares with RocksDB's.
//!
//! Arguments are words because in the calling conventions of x86-64 and aarch64 Linux a pointer or
//! whole number of any width takes a word's place, and a floating-point number none, so a function
//! that only needs `errptr` need not know the types.

use crate::boundary::{ErrPtr, attempt, not_supported, say_once};
use karstdb::Error;

fn refuse(name: &'static str) -> Error {
    say_once(name, "not supported; see docs/c-api.md");
    not_supported(name)
}

/// A refused function, with its types in C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) name: &'static str,
    pub(crate) returned: &'static str,
    pub(crate) arguments: &'static str,
}

macro_rules! refused {
    ($($name:ident $what:ident $($error:ident $place:tt)? $returned:literal $arguments:literal;)*) => {
        $( refused!(@one $name $what $($error $place)?); )*
        /// All refused functions.
        pub(crate) const REFUSED: &[Refused] =
            &[$( Refused { name: stringify!($name), returned: $returned, arguments: $arguments } ),*];
    };
    (@one $name:ident word) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> usize {
            crate::boundary::guard(stringify!($name), || { refuse(stringify!($name)); 0 })
        }
    };
    (@one $name:ident double) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> f64 {
            crate::boundary::guard(stringify!($name), || { refuse(stringify!($name)); 0.0 })
        }
    };
    (@one $name:ident word error 1) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 2) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 3) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 4) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 5) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 6) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 7) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 8) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 9) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
    (@one $name:ident word error 10) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, _: usize, errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
        }
    };
}

refused! {
    rocksdb_block_based_options_set_user_defined_index_factory_from_string word error 3 "void" "rocksdb_block_based_table_options_t*, const char*, size_t, char**";
    rocksdb_block_cache_trace_options_create word "rocksdb_block_cache_trace_options_t*" "void";
    rocksdb_block_cache_trace_options_destroy word "void" "rocksdb_block_cache_trace_options_t*";
    rocksdb_block_cache_trace_options_get_sampling_frequency word "uint64_t" "rocksdb_block_cache_trace_options_t*";
    rocksdb_block_cache_trace_options_set_sampling_frequency word "void" "rocksdb_block_cache_trace_options_t*, uint64_t";
    rocksdb_block_cache_trace_writer_options_create word "rocksdb_block_cache_trace_writer_options_t*" "void";
    rocksdb_block_cache_trace_writer_options_destroy word "void" "rocksdb_block_cache_trace_writer_options_t*";
    rocksdb_block_cache_trace_writer_options_get_max_trace_file_size word "uint64_t" "rocksdb_block_cache_trace_writer_options_t*";
    rocksdb_block_cache_trace_writer_options_set_max_trace_file_size word "void" "rocksdb_block_cache_trace_writer_options_t*, uint64_t";
    rocksdb_cache_get_table_address_count word "size_t" "const rocksdb_cache_t*";
    rocksdb_compaction_service_options_override_add_event_listener word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_eventlistener_t*";
    rocksdb_compaction_service_options_override_add_table_properties_collector_factory word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_table_properties_collector_factory_t*";
    rocksdb_compaction_service_options_override_create word "rocksdb_compaction_service_options_override_t*" "void";
    rocksdb_compaction_service_options_override_create_from_options word "rocksdb_compaction_service_options_override_t*" "rocksdb_options_t*";
    rocksdb_compaction_service_options_override_destroy word "void" "rocksdb_compaction_service_options_override_t*";
    rocksdb_compaction_service_options_override_set_block_based_table_factory word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_block_based_table_options_t*";
    rocksdb_compaction_service_options_override_set_compaction_filter word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_compactionfilter_t*";
    rocksdb_compaction_service_options_override_set_compaction_filter_factory word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_compactionfilterfactory_t*";
    rocksdb_compaction_service_options_override_set_comparator word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_comparator_t*";
    rocksdb_compaction_service_options_override_set_cuckoo_table_factory word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_cuckoo_table_options_t*";
    rocksdb_compaction_service_options_override_set_env word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_env_t*";
    rocksdb_compaction_service_options_override_set_file_checksum_gen_factory word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_file_checksum_gen_factory_t*";
    rocksdb_compaction_service_options_override_set_info_log word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_logger_t*";
    rocksdb_compaction_service_options_override_set_merge_operator word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_mergeoperator_t*";
    rocksdb_compaction_service_options_override_set_option word "void" "rocksdb_compaction_service_options_override_t*, const char*, const char*";
    rocksdb_compaction_service_options_override_set_prefix_extractor word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_slicetransform_t*";
    rocksdb_compaction_service_options_override_set_sst_partitioner_factory word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_sst_partitioner_factory_t*";
    rocksdb_compaction_service_options_override_set_statistics word "void" "rocksdb_compaction_service_options_override_t*, rocksdb_options_t*";
    rocksdb_compactionservice_create word "rocksdb_compactionservice_t*" "void*, void (*)(void*), rocksdb_compaction_service_schedule_cb, const char*, rocksdb_compaction_service_wait_cb, rocksdb_compaction_service_cancel_awaiting_jobs_cb, rocksdb_compaction_service_on_installation_cb";
    rocksdb_compactionservice_jobinfo_t_get_base_input_level word "int" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_get_cf_id word "uint32_t" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_get_cf_name word "const char*" "const rocksdb_compactionservice_jobinfo_t*, size_t*";
    rocksdb_compactionservice_jobinfo_t_get_compaction_reason word "int" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_get_db_id word "const char*" "const rocksdb_compactionservice_jobinfo_t*, size_t*";
    rocksdb_compactionservice_jobinfo_t_get_db_name word "const char*" "const rocksdb_compactionservice_jobinfo_t*, size_t*";
    rocksdb_compactionservice_jobinfo_t_get_db_session_id word "const char*" "const rocksdb_compactionservice_jobinfo_t*, size_t*";
    rocksdb_compactionservice_jobinfo_t_get_job_id word "uint64_t" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_get_output_level word "int" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_get_priority word "int" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_is_bottommost_level word "unsigned char" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_is_full_compaction word "unsigned char" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_jobinfo_t_is_manual_compaction word "unsigned char" "const rocksdb_compactionservice_jobinfo_t*";
    rocksdb_compactionservice_scheduleresponse_create word error 2 "rocksdb_compactionservice_scheduleresponse_t*" "const char*, int, char**";
    rocksdb_compactionservice_scheduleresponse_create_with_status word error 1 "rocksdb_compactionservice_scheduleresponse_t*" "int, char**";
    rocksdb_compactionservice_scheduleresponse_get_scheduled_job_id word "const char*" "const rocksdb_compactionservice_scheduleresponse_t*, size_t*";
    rocksdb_compactionservice_scheduleresponse_getstatus word "int" "const rocksdb_compactionservice_scheduleresponse_t*";
    rocksdb_compactionservice_scheduleresponse_t_destroy word "void" "rocksdb_compactionservice_scheduleresponse_t*";
    rocksdb_create_backup_options_set_exclude_files_callback word "void" "rocksdb_create_backup_options_t*, void*, rocksdb_create_backup_options_exclude_files_cb";
    rocksdb_end_block_cache_trace word error 1 "void" "rocksdb_t*, char**";
    rocksdb_envoptions_set_rate_limiter word "void" "rocksdb_envoptions_t*, rocksdb_ratelimiter_t*";
    rocksdb_open_and_compact word error 6 "char*" "const char*, const char*, const char*, size_t, size_t*, const rocksdb_compaction_service_options_override_t*, char**";
    rocksdb_open_and_compact_canceled_create word "unsigned char*" "void";
    rocksdb_open_and_compact_canceled_destroy word "void" "unsigned char*";
    rocksdb_open_and_compact_canceled_set word "void" "unsigned char*, unsigned char";
    rocksdb_open_and_compact_options_create word "rocksdb_open_and_compact_options_t*" "void";
    rocksdb_open_and_compact_options_destroy word "void" "rocksdb_open_and_compact_options_t*";
    rocksdb_open_and_compact_options_get_allow_resumption word "unsigned char" "rocksdb_open_and_compact_options_t*";
    rocksdb_open_and_compact_options_set_allow_resumption word "void" "rocksdb_open_and_compact_options_t*, unsigned char";
    rocksdb_open_and_compact_options_set_canceled word "void" "rocksdb_open_and_compact_options_t*, unsigned char*";
    rocksdb_open_and_compact_with_options word error 7 "char*" "const rocksdb_open_and_compact_options_t*, const char*, const char*, const char*, size_t, size_t*, const rocksdb_compaction_service_options_override_t*, char**";
    rocksdb_options_add_table_properties_collector_factory word "void" "rocksdb_options_t*, rocksdb_table_properties_collector_factory_t*";
    rocksdb_options_clear_wal_filter word "void" "rocksdb_options_t*";
    rocksdb_options_set_compaction_service word "void" "rocksdb_options_t*, rocksdb_compactionservice_t*";
    rocksdb_options_set_plain_table_factory word "void" "rocksdb_options_t*, uint32_t, int, double, size_t, size_t, char, unsigned char, unsigned char";
    rocksdb_options_set_row_cache word "void" "rocksdb_options_t*, rocksdb_cache_t*";
    rocksdb_options_set_wal_filter word "void" "rocksdb_options_t*, rocksdb_walfilter_t*";
    rocksdb_readoptions_set_table_index_factory_from_string word error 3 "void" "rocksdb_readoptions_t*, const char*, size_t, char**";
    rocksdb_start_block_cache_trace word error 5 "void" "rocksdb_t*, rocksdb_env_t*, const rocksdb_envoptions_t*, const rocksdb_trace_options_t*, const char*, char**";
    rocksdb_start_block_cache_trace_with_options word error 6 "void" "rocksdb_t*, rocksdb_env_t*, const rocksdb_envoptions_t*, const rocksdb_block_cache_trace_options_t*, const rocksdb_block_cache_trace_writer_options_t*, const char*, char**";
    rocksdb_table_properties_collector_factory_destroy word "void" "rocksdb_table_properties_collector_factory_t*";
    rocksdb_table_properties_uncompressed_data_size word "uint64_t" "const rocksdb_table_properties_t*";
    rocksdb_walfilter_create word "rocksdb_walfilter_t*" "void*, void (*)(void*), rocksdb_walfilter_column_family_log_number_map_cb, rocksdb_walfilter_log_record_found_cb, const char* (*)(void*)";
    rocksdb_walfilter_destroy word "void" "rocksdb_walfilter_t*";
}
