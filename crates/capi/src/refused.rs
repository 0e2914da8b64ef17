//! The functions that are not served: each fails through `errptr` where it has one, else returns
//! null or 0; and each says so once on stderr.
//!
//! A row has the name, what is returned (`word`: a pointer, a number or nothing; `double`; `slice`)
//! and how many arguments stand before `errptr`.
//! Why arguments are words: in the calling conventions of x86-64 and aarch64 Linux a pointer or
//! whole number of any width takes a word's place, and one in floating point none, so a function
//! that only needs `errptr` need not know the types.

use crate::boundary::{ErrPtr, attempt, not_supported, say_once};
use karstdb::Error;

fn refuse(name: &'static str) -> Error {
    say_once(name, "not supported; see docs/c-api.md");
    not_supported(name)
}

macro_rules! refused {
    ($($name:ident $what:ident $($error:ident $place:tt)?;)*) => {
        $( refused!(@one $name $what $($error $place)?); )*
        /// The functions that are refused.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
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
    (@one $name:ident word error 0) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(errptr: ErrPtr) -> usize {
            unsafe { attempt(stringify!($name), errptr, || Err(refuse(stringify!($name)))) }
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
    rocksdb_approximate_sizes_cf_with_options word error 9;
    rocksdb_approximate_sizes_with_options word error 8;
    rocksdb_backup_engine_options_get_backup_dir word;
    rocksdb_backup_engine_options_set_backup_dir word;
    rocksdb_backup_engine_options_set_env word;
    rocksdb_batched_multi_get_cf_slice word;
    rocksdb_blob_file_addition_info_blob_file_number word;
    rocksdb_blob_file_addition_info_blob_file_path word;
    rocksdb_blob_file_addition_info_total_blob_bytes word;
    rocksdb_blob_file_addition_info_total_blob_count word;
    rocksdb_blob_file_garbage_info_blob_file_number word;
    rocksdb_blob_file_garbage_info_blob_file_path word;
    rocksdb_blob_file_garbage_info_garbage_blob_bytes word;
    rocksdb_blob_file_garbage_info_garbage_blob_count word;
    rocksdb_block_based_options_clear_user_defined_index_factory word;
    rocksdb_block_based_options_get_user_defined_index_factory_name word;
    rocksdb_block_based_options_set_user_defined_index_factory_from_string word error 3;
    rocksdb_block_cache_trace_options_create word;
    rocksdb_block_cache_trace_options_destroy word;
    rocksdb_block_cache_trace_options_get_sampling_frequency word;
    rocksdb_block_cache_trace_options_set_sampling_frequency word;
    rocksdb_block_cache_trace_writer_options_create word;
    rocksdb_block_cache_trace_writer_options_destroy word;
    rocksdb_block_cache_trace_writer_options_get_max_trace_file_size word;
    rocksdb_block_cache_trace_writer_options_set_max_trace_file_size word;
    rocksdb_cache_disown_data word;
    rocksdb_cache_get_table_address_count word;
    rocksdb_checkpoint_export_column_family word error 3;
    rocksdb_column_family_metadata_get_level_count word;
    rocksdb_column_family_metadata_get_level_metadata word;
    rocksdb_column_family_metadata_options_create word;
    rocksdb_column_family_metadata_options_destroy word;
    rocksdb_column_family_metadata_options_get_end_key word;
    rocksdb_column_family_metadata_options_get_level word;
    rocksdb_column_family_metadata_options_get_start_key word;
    rocksdb_column_family_metadata_options_set_end_key word;
    rocksdb_column_family_metadata_options_set_level word;
    rocksdb_column_family_metadata_options_set_start_key word;
    rocksdb_compact_files word error 9;
    rocksdb_compact_files_cf word error 10;
    rocksdb_compact_files_output_file_names_destroy word;
    rocksdb_compaction_file_info_file_number word;
    rocksdb_compaction_file_info_level word;
    rocksdb_compaction_file_info_oldest_blob_file_number word;
    rocksdb_compaction_job_stats_cpu_micros word;
    rocksdb_compaction_job_stats_elapsed_micros word;
    rocksdb_compaction_job_stats_file_fsync_nanos word;
    rocksdb_compaction_job_stats_file_prepare_write_nanos word;
    rocksdb_compaction_job_stats_file_range_sync_nanos word;
    rocksdb_compaction_job_stats_file_write_nanos word;
    rocksdb_compaction_job_stats_has_accurate_num_input_records word;
    rocksdb_compaction_job_stats_is_full_compaction word;
    rocksdb_compaction_job_stats_is_manual_compaction word;
    rocksdb_compaction_job_stats_is_remote_compaction word;
    rocksdb_compaction_job_stats_largest_output_key_prefix word;
    rocksdb_compaction_job_stats_num_blobs_read word;
    rocksdb_compaction_job_stats_num_corrupt_keys word;
    rocksdb_compaction_job_stats_num_expired_deletion_records word;
    rocksdb_compaction_job_stats_num_filtered_input_files word;
    rocksdb_compaction_job_stats_num_filtered_input_files_at_output_level word;
    rocksdb_compaction_job_stats_num_input_deletion_records word;
    rocksdb_compaction_job_stats_num_input_files word;
    rocksdb_compaction_job_stats_num_input_files_at_output_level word;
    rocksdb_compaction_job_stats_num_input_files_trivially_moved word;
    rocksdb_compaction_job_stats_num_input_records word;
    rocksdb_compaction_job_stats_num_output_files word;
    rocksdb_compaction_job_stats_num_output_files_blob word;
    rocksdb_compaction_job_stats_num_output_records word;
    rocksdb_compaction_job_stats_num_records_replaced word;
    rocksdb_compaction_job_stats_num_single_del_fallthru word;
    rocksdb_compaction_job_stats_num_single_del_mismatch word;
    rocksdb_compaction_job_stats_smallest_output_key_prefix word;
    rocksdb_compaction_job_stats_total_blob_bytes_read word;
    rocksdb_compaction_job_stats_total_input_bytes word;
    rocksdb_compaction_job_stats_total_input_raw_key_bytes word;
    rocksdb_compaction_job_stats_total_input_raw_value_bytes word;
    rocksdb_compaction_job_stats_total_output_bytes word;
    rocksdb_compaction_job_stats_total_output_bytes_blob word;
    rocksdb_compaction_job_stats_total_skipped_input_bytes word;
    rocksdb_compaction_options_canceled_create word;
    rocksdb_compaction_options_canceled_destroy word;
    rocksdb_compaction_options_canceled_set word;
    rocksdb_compaction_options_create word;
    rocksdb_compaction_options_destroy word;
    rocksdb_compaction_options_get_allow_trivial_move word;
    rocksdb_compaction_options_get_compression word;
    rocksdb_compaction_options_get_max_subcompactions word;
    rocksdb_compaction_options_get_output_file_size_limit word;
    rocksdb_compaction_options_get_output_temperature_override word;
    rocksdb_compaction_options_set_allow_trivial_move word;
    rocksdb_compaction_options_set_canceled word;
    rocksdb_compaction_options_set_compression word;
    rocksdb_compaction_options_set_max_subcompactions word;
    rocksdb_compaction_options_set_output_file_size_limit word;
    rocksdb_compaction_options_set_output_temperature_override word;
    rocksdb_compaction_service_options_override_add_event_listener word;
    rocksdb_compaction_service_options_override_add_table_properties_collector_factory word;
    rocksdb_compaction_service_options_override_create word;
    rocksdb_compaction_service_options_override_create_from_options word;
    rocksdb_compaction_service_options_override_destroy word;
    rocksdb_compaction_service_options_override_set_block_based_table_factory word;
    rocksdb_compaction_service_options_override_set_compaction_filter word;
    rocksdb_compaction_service_options_override_set_compaction_filter_factory word;
    rocksdb_compaction_service_options_override_set_comparator word;
    rocksdb_compaction_service_options_override_set_cuckoo_table_factory word;
    rocksdb_compaction_service_options_override_set_env word;
    rocksdb_compaction_service_options_override_set_file_checksum_gen_factory word;
    rocksdb_compaction_service_options_override_set_info_log word;
    rocksdb_compaction_service_options_override_set_merge_operator word;
    rocksdb_compaction_service_options_override_set_option word;
    rocksdb_compaction_service_options_override_set_prefix_extractor word;
    rocksdb_compaction_service_options_override_set_sst_partitioner_factory word;
    rocksdb_compaction_service_options_override_set_statistics word;
    rocksdb_compactionjobinfo_aborted word;
    rocksdb_compactionjobinfo_base_input_level word;
    rocksdb_compactionjobinfo_blob_compression_type word;
    rocksdb_compactionjobinfo_blob_file_addition_info_at word;
    rocksdb_compactionjobinfo_blob_file_addition_infos_count word;
    rocksdb_compactionjobinfo_blob_file_garbage_info_at word;
    rocksdb_compactionjobinfo_blob_file_garbage_infos_count word;
    rocksdb_compactionjobinfo_cf_id word;
    rocksdb_compactionjobinfo_cf_name word;
    rocksdb_compactionjobinfo_compaction_reason word;
    rocksdb_compactionjobinfo_compression word;
    rocksdb_compactionjobinfo_create word;
    rocksdb_compactionjobinfo_destroy word;
    rocksdb_compactionjobinfo_elapsed_micros word;
    rocksdb_compactionjobinfo_input_file_at word;
    rocksdb_compactionjobinfo_input_file_info_at word;
    rocksdb_compactionjobinfo_input_file_infos_count word;
    rocksdb_compactionjobinfo_input_files_count word;
    rocksdb_compactionjobinfo_input_records word;
    rocksdb_compactionjobinfo_job_id word;
    rocksdb_compactionjobinfo_num_corrupt_keys word;
    rocksdb_compactionjobinfo_num_input_files word;
    rocksdb_compactionjobinfo_num_input_files_at_output_level word;
    rocksdb_compactionjobinfo_num_l0_files word;
    rocksdb_compactionjobinfo_output_file_at word;
    rocksdb_compactionjobinfo_output_file_info_at word;
    rocksdb_compactionjobinfo_output_file_infos_count word;
    rocksdb_compactionjobinfo_output_files_count word;
    rocksdb_compactionjobinfo_output_level word;
    rocksdb_compactionjobinfo_output_records word;
    rocksdb_compactionjobinfo_stats word;
    rocksdb_compactionjobinfo_status word error 1;
    rocksdb_compactionjobinfo_table_properties_count word;
    rocksdb_compactionjobinfo_table_properties_for_file word;
    rocksdb_compactionjobinfo_table_properties_key_at word;
    rocksdb_compactionjobinfo_table_properties_value_at word;
    rocksdb_compactionjobinfo_thread_id word;
    rocksdb_compactionjobinfo_total_input_bytes word;
    rocksdb_compactionjobinfo_total_output_bytes word;
    rocksdb_compactionservice_create word;
    rocksdb_compactionservice_jobinfo_t_get_base_input_level word;
    rocksdb_compactionservice_jobinfo_t_get_cf_id word;
    rocksdb_compactionservice_jobinfo_t_get_cf_name word;
    rocksdb_compactionservice_jobinfo_t_get_compaction_reason word;
    rocksdb_compactionservice_jobinfo_t_get_db_id word;
    rocksdb_compactionservice_jobinfo_t_get_db_name word;
    rocksdb_compactionservice_jobinfo_t_get_db_session_id word;
    rocksdb_compactionservice_jobinfo_t_get_job_id word;
    rocksdb_compactionservice_jobinfo_t_get_output_level word;
    rocksdb_compactionservice_jobinfo_t_get_priority word;
    rocksdb_compactionservice_jobinfo_t_is_bottommost_level word;
    rocksdb_compactionservice_jobinfo_t_is_full_compaction word;
    rocksdb_compactionservice_jobinfo_t_is_manual_compaction word;
    rocksdb_compactionservice_scheduleresponse_create word error 2;
    rocksdb_compactionservice_scheduleresponse_create_with_status word error 1;
    rocksdb_compactionservice_scheduleresponse_get_scheduled_job_id word;
    rocksdb_compactionservice_scheduleresponse_getstatus word;
    rocksdb_compactionservice_scheduleresponse_t_destroy word;
    rocksdb_compactoptions_set_full_history_ts_low word;
    rocksdb_comparator_with_ts_create word;
    rocksdb_create_backup_options_get_atomic_flush word;
    rocksdb_create_backup_options_get_background_thread_cpu_priority word;
    rocksdb_create_backup_options_get_decrease_background_thread_cpu_priority word;
    rocksdb_create_backup_options_set_atomic_flush word;
    rocksdb_create_backup_options_set_background_thread_cpu_priority word;
    rocksdb_create_backup_options_set_decrease_background_thread_cpu_priority word;
    rocksdb_create_backup_options_set_exclude_files_callback word;
    rocksdb_create_column_family_with_import word error 5;
    rocksdb_create_dir_if_missing word error 2;
    rocksdb_delete_cf_with_ts word error 7;
    rocksdb_delete_with_ts word error 6;
    rocksdb_disable_manual_compaction word;
    rocksdb_enable_manual_compaction word;
    rocksdb_end_block_cache_trace word error 1;
    rocksdb_end_io_trace word error 1;
    rocksdb_end_trace word error 1;
    rocksdb_env_join_all_threads word;
    rocksdb_env_lower_high_priority_thread_pool_cpu_priority word;
    rocksdb_env_lower_high_priority_thread_pool_io_priority word;
    rocksdb_env_lower_thread_pool_cpu_priority word;
    rocksdb_env_lower_thread_pool_io_priority word;
    rocksdb_envoptions_create word;
    rocksdb_envoptions_destroy word;
    rocksdb_envoptions_get_allow_fallocate word;
    rocksdb_envoptions_get_bytes_per_sync word;
    rocksdb_envoptions_get_compaction_readahead_size word;
    rocksdb_envoptions_get_fallocate_with_keep_size word;
    rocksdb_envoptions_get_fd_cloexec word;
    rocksdb_envoptions_get_strict_bytes_per_sync word;
    rocksdb_envoptions_get_use_direct_reads word;
    rocksdb_envoptions_get_use_direct_writes word;
    rocksdb_envoptions_get_use_mmap_reads word;
    rocksdb_envoptions_get_use_mmap_writes word;
    rocksdb_envoptions_get_writable_file_max_buffer_size word;
    rocksdb_envoptions_set_allow_fallocate word;
    rocksdb_envoptions_set_bytes_per_sync word;
    rocksdb_envoptions_set_compaction_readahead_size word;
    rocksdb_envoptions_set_fallocate_with_keep_size word;
    rocksdb_envoptions_set_fd_cloexec word;
    rocksdb_envoptions_set_rate_limiter word;
    rocksdb_envoptions_set_strict_bytes_per_sync word;
    rocksdb_envoptions_set_use_direct_reads word;
    rocksdb_envoptions_set_use_direct_writes word;
    rocksdb_envoptions_set_use_mmap_reads word;
    rocksdb_envoptions_set_use_mmap_writes word;
    rocksdb_envoptions_set_writable_file_max_buffer_size word;
    rocksdb_eventlistener_create word;
    rocksdb_eventlistener_destroy word;
    rocksdb_export_import_files_metadata_create word;
    rocksdb_export_import_files_metadata_destroy word;
    rocksdb_export_import_files_metadata_get_db_comparator_name word;
    rocksdb_export_import_files_metadata_get_files word;
    rocksdb_export_import_files_metadata_set_db_comparator_name word;
    rocksdb_export_import_files_metadata_set_files word;
    rocksdb_externalfileingestioninfo_cf_name word;
    rocksdb_externalfileingestioninfo_external_file_path word;
    rocksdb_externalfileingestioninfo_global_seqno word;
    rocksdb_externalfileingestioninfo_internal_file_path word;
    rocksdb_externalfileingestioninfo_table_properties word;
    rocksdb_flush_wal_with_options word error 2;
    rocksdb_flushjobinfo_blob_compression_type word;
    rocksdb_flushjobinfo_blob_file_addition_info_at word;
    rocksdb_flushjobinfo_blob_file_addition_infos_count word;
    rocksdb_flushjobinfo_cf_id word;
    rocksdb_flushjobinfo_cf_name word;
    rocksdb_flushjobinfo_file_number word;
    rocksdb_flushjobinfo_file_path word;
    rocksdb_flushjobinfo_flush_reason word;
    rocksdb_flushjobinfo_job_id word;
    rocksdb_flushjobinfo_largest_seqno word;
    rocksdb_flushjobinfo_oldest_blob_file_number word;
    rocksdb_flushjobinfo_smallest_seqno word;
    rocksdb_flushjobinfo_table_properties word;
    rocksdb_flushjobinfo_thread_id word;
    rocksdb_flushjobinfo_triggered_writes_slowdown word;
    rocksdb_flushjobinfo_triggered_writes_stop word;
    rocksdb_flushwaloptions_create word;
    rocksdb_flushwaloptions_destroy word;
    rocksdb_flushwaloptions_get_rate_limiter_priority word;
    rocksdb_flushwaloptions_get_sync word;
    rocksdb_flushwaloptions_set_rate_limiter_priority word;
    rocksdb_flushwaloptions_set_sync word;
    rocksdb_get_cf_with_ts word error 8;
    rocksdb_get_column_family_metadata_cf_with_options word;
    rocksdb_get_column_family_metadata_with_options word;
    rocksdb_get_current_wal_file word error 1;
    rocksdb_get_full_history_ts_low word error 3;
    rocksdb_get_into_buffer word error 8;
    rocksdb_get_into_buffer_cf word error 9;
    rocksdb_get_livefiles_storage_info word error 2;
    rocksdb_get_pinned_cf_v2 word error 5;
    rocksdb_get_pinned_v2 word error 4;
    rocksdb_get_sorted_wal_files word error 1;
    rocksdb_get_with_ts word error 7;
    rocksdb_hyper_clock_cache_options_set_memory_allocator word;
    rocksdb_hyper_clock_cache_options_set_num_shard_bits word;
    rocksdb_import_column_family_options_create word;
    rocksdb_import_column_family_options_destroy word;
    rocksdb_import_column_family_options_get_move_files word;
    rocksdb_import_column_family_options_set_move_files word;
    rocksdb_increase_full_history_ts_low word error 4;
    rocksdb_jemalloc_nodump_allocator_create word error 0;
    rocksdb_level_metadata_destroy word;
    rocksdb_level_metadata_get_file_count word;
    rocksdb_level_metadata_get_level word;
    rocksdb_level_metadata_get_size word;
    rocksdb_level_metadata_get_sst_file_metadata word;
    rocksdb_livefile_create word;
    rocksdb_livefile_destroy word;
    rocksdb_livefile_set_column_family_name word;
    rocksdb_livefile_set_directory word;
    rocksdb_livefile_set_largest_key word;
    rocksdb_livefile_set_largest_seqno word;
    rocksdb_livefile_set_level word;
    rocksdb_livefile_set_name word;
    rocksdb_livefile_set_num_deletions word;
    rocksdb_livefile_set_num_entries word;
    rocksdb_livefile_set_size word;
    rocksdb_livefile_set_smallest_key word;
    rocksdb_livefile_set_smallest_seqno word;
    rocksdb_livefiles_add word;
    rocksdb_livefiles_create word;
    rocksdb_livefiles_storage_info_count word;
    rocksdb_livefiles_storage_info_destroy word;
    rocksdb_livefiles_storage_info_directory word;
    rocksdb_livefiles_storage_info_file_checksum word;
    rocksdb_livefiles_storage_info_file_checksum_func_name word;
    rocksdb_livefiles_storage_info_file_number word;
    rocksdb_livefiles_storage_info_file_type word;
    rocksdb_livefiles_storage_info_options_create word;
    rocksdb_livefiles_storage_info_options_destroy word;
    rocksdb_livefiles_storage_info_options_get_atomic_flush word;
    rocksdb_livefiles_storage_info_options_get_include_checksum_info word;
    rocksdb_livefiles_storage_info_options_get_wal_size_for_flush word;
    rocksdb_livefiles_storage_info_options_set_atomic_flush word;
    rocksdb_livefiles_storage_info_options_set_include_checksum_info word;
    rocksdb_livefiles_storage_info_options_set_wal_size_for_flush word;
    rocksdb_livefiles_storage_info_relative_filename word;
    rocksdb_livefiles_storage_info_replacement_contents word;
    rocksdb_livefiles_storage_info_size word;
    rocksdb_livefiles_storage_info_temperature word;
    rocksdb_livefiles_storage_info_trim_to_size word;
    rocksdb_logger_create_callback_logger word;
    rocksdb_logger_create_stderr_logger word;
    rocksdb_logger_destroy word;
    rocksdb_lru_cache_options_set_memory_allocator word;
    rocksdb_lru_cache_options_set_num_shard_bits word;
    rocksdb_memory_allocator_destroy word;
    rocksdb_memtableinfo_cf_name word;
    rocksdb_memtableinfo_earliest_seqno word;
    rocksdb_memtableinfo_first_seqno word;
    rocksdb_memtableinfo_newest_udt word;
    rocksdb_memtableinfo_num_deletes word;
    rocksdb_memtableinfo_num_entries word;
    rocksdb_multi_get_cf_with_ts word;
    rocksdb_multi_get_with_ts word;
    rocksdb_new_default_replayer word error 6;
    rocksdb_open_and_compact word error 6;
    rocksdb_open_and_compact_canceled_create word;
    rocksdb_open_and_compact_canceled_destroy word;
    rocksdb_open_and_compact_canceled_set word;
    rocksdb_open_and_compact_options_create word;
    rocksdb_open_and_compact_options_destroy word;
    rocksdb_open_and_compact_options_get_allow_resumption word;
    rocksdb_open_and_compact_options_set_allow_resumption word;
    rocksdb_open_and_compact_options_set_canceled word;
    rocksdb_open_and_compact_with_options word error 7;
    rocksdb_open_and_trim_history word error 8;
    rocksdb_optimistictransactiondb_lock_buckets_approximate_memory_usage word;
    rocksdb_optimistictransactiondb_lock_buckets_create word;
    rocksdb_optimistictransactiondb_lock_buckets_destroy word;
    rocksdb_optimistictransactiondb_open_column_families_with_otxn_db_options word error 7;
    rocksdb_optimistictransactiondb_open_with_otxn_db_options word error 3;
    rocksdb_optimistictransactiondb_options_create word;
    rocksdb_optimistictransactiondb_options_destroy word;
    rocksdb_optimistictransactiondb_options_get_occ_lock_buckets word;
    rocksdb_optimistictransactiondb_options_get_validate_policy word;
    rocksdb_optimistictransactiondb_options_set_occ_lock_buckets word;
    rocksdb_optimistictransactiondb_options_set_shared_lock_buckets word;
    rocksdb_optimistictransactiondb_options_set_validate_policy word;
    rocksdb_options_add_eventlistener word;
    rocksdb_options_add_table_properties_collector_factory word;
    rocksdb_options_calculate_sst_write_lifetime_hint_set_add word;
    rocksdb_options_calculate_sst_write_lifetime_hint_set_clear word;
    rocksdb_options_calculate_sst_write_lifetime_hint_set_contains word;
    rocksdb_options_calculate_sst_write_lifetime_hint_set_count word;
    rocksdb_options_calculate_sst_write_lifetime_hint_set_remove word;
    rocksdb_options_checksum_handoff_file_types_add word;
    rocksdb_options_checksum_handoff_file_types_clear word;
    rocksdb_options_checksum_handoff_file_types_contains word;
    rocksdb_options_checksum_handoff_file_types_count word;
    rocksdb_options_checksum_handoff_file_types_remove word;
    rocksdb_options_clear_wal_filter word;
    rocksdb_options_get_daily_offpeak_time_utc word;
    rocksdb_options_get_db_host_id word;
    rocksdb_options_get_info_log word;
    rocksdb_options_set_blob_cache word;
    rocksdb_options_set_compaction_service word;
    rocksdb_options_set_daily_offpeak_time_utc word;
    rocksdb_options_set_db_host_id word;
    rocksdb_options_set_hash_skip_list_rep word;
    rocksdb_options_set_info_log word;
    rocksdb_options_set_memtable_vector_rep word;
    rocksdb_options_set_plain_table_factory word;
    rocksdb_options_set_row_cache word;
    rocksdb_options_set_wal_filter word;
    rocksdb_pinnable_handle_destroy word;
    rocksdb_pinnable_handle_get_value word;
    rocksdb_put_cf_with_ts word error 9;
    rocksdb_put_with_ts word error 8;
    rocksdb_ratelimiter_create_auto_tuned word;
    rocksdb_ratelimiter_create_with_mode word;
    rocksdb_readoptions_clear_merge_operand_count_threshold word;
    rocksdb_readoptions_clear_request_id word;
    rocksdb_readoptions_clear_table_index_factory word;
    rocksdb_readoptions_get_request_id word;
    rocksdb_readoptions_get_table_index_factory_name word;
    rocksdb_readoptions_has_merge_operand_count_threshold word;
    rocksdb_readoptions_set_iter_start_ts word;
    rocksdb_readoptions_set_request_id word;
    rocksdb_readoptions_set_table_index_factory_from_string word error 3;
    rocksdb_readoptions_set_timestamp word;
    rocksdb_replay_options_create word;
    rocksdb_replay_options_destroy word;
    rocksdb_replay_options_get_fast_forward double;
    rocksdb_replay_options_get_num_threads word;
    rocksdb_replay_options_set_fast_forward word;
    rocksdb_replay_options_set_num_threads word;
    rocksdb_replayer_destroy word;
    rocksdb_replayer_get_header_timestamp word;
    rocksdb_replayer_prepare word error 1;
    rocksdb_replayer_replay word error 2;
    rocksdb_reset_status word;
    rocksdb_singledelete_cf_with_ts word error 7;
    rocksdb_singledelete_with_ts word error 6;
    rocksdb_size_approximation_options_create word;
    rocksdb_size_approximation_options_destroy word;
    rocksdb_size_approximation_options_get_files_size_error_margin double;
    rocksdb_size_approximation_options_get_include_blob_files word;
    rocksdb_size_approximation_options_get_include_files word;
    rocksdb_size_approximation_options_get_include_memtables word;
    rocksdb_size_approximation_options_set_files_size_error_margin word;
    rocksdb_size_approximation_options_set_include_blob_files word;
    rocksdb_size_approximation_options_set_include_files word;
    rocksdb_size_approximation_options_set_include_memtables word;
    rocksdb_sst_file_metadata_destroy word;
    rocksdb_sst_file_metadata_get_directory word;
    rocksdb_sst_file_metadata_get_largestkey word;
    rocksdb_sst_file_metadata_get_relative_filename word;
    rocksdb_sst_file_metadata_get_size word;
    rocksdb_sst_file_metadata_get_smallestkey word;
    rocksdb_sstfilewriter_create_with_comparator word;
    rocksdb_sstfilewriter_delete_with_ts word error 5;
    rocksdb_sstfilewriter_put_with_ts word error 7;
    rocksdb_start_block_cache_trace word error 5;
    rocksdb_start_block_cache_trace_with_options word error 6;
    rocksdb_start_io_trace word error 5;
    rocksdb_start_trace word error 5;
    rocksdb_status_ptr_get_error word error 1;
    rocksdb_subcompactionjobinfo_base_input_level word;
    rocksdb_subcompactionjobinfo_blob_compression_type word;
    rocksdb_subcompactionjobinfo_cf_id word;
    rocksdb_subcompactionjobinfo_cf_name word;
    rocksdb_subcompactionjobinfo_compaction_reason word;
    rocksdb_subcompactionjobinfo_compression word;
    rocksdb_subcompactionjobinfo_job_id word;
    rocksdb_subcompactionjobinfo_output_level word;
    rocksdb_subcompactionjobinfo_stats word;
    rocksdb_subcompactionjobinfo_status word error 1;
    rocksdb_subcompactionjobinfo_subcompaction_job_id word;
    rocksdb_subcompactionjobinfo_thread_id word;
    rocksdb_table_properties_collector_factory_destroy word;
    rocksdb_table_properties_external_sst_file_global_seqno_offset word;
    rocksdb_table_properties_readable_properties_count word;
    rocksdb_table_properties_readable_properties_key_at word;
    rocksdb_table_properties_readable_properties_value_at word;
    rocksdb_table_properties_uncompressed_data_size word;
    rocksdb_trace_options_create word;
    rocksdb_trace_options_destroy word;
    rocksdb_trace_options_get_filter word;
    rocksdb_trace_options_get_max_trace_file_size word;
    rocksdb_trace_options_get_preserve_write_order word;
    rocksdb_trace_options_get_sampling_frequency word;
    rocksdb_trace_options_set_filter word;
    rocksdb_trace_options_set_max_trace_file_size word;
    rocksdb_trace_options_set_preserve_write_order word;
    rocksdb_trace_options_set_sampling_frequency word;
    rocksdb_trace_reader_close word error 1;
    rocksdb_trace_reader_create word error 3;
    rocksdb_trace_reader_destroy word;
    rocksdb_trace_reader_read word error 2;
    rocksdb_trace_reader_reset word error 1;
    rocksdb_transaction_get_writebatch_wi word;
    rocksdb_transaction_rebuild_from_writebatch_wi word error 2;
    rocksdb_transaction_set_commit_timestamp word;
    rocksdb_transaction_set_read_timestamp_for_validation word;
    rocksdb_transactiondb_flush_wal_with_options word error 2;
    rocksdb_verify_checksum_with_options word error 2;
    rocksdb_verify_file_checksums_with_options word error 2;
    rocksdb_wal_file_destroy word;
    rocksdb_wal_file_log_number word;
    rocksdb_wal_file_path_name word;
    rocksdb_wal_file_size_file_bytes word;
    rocksdb_wal_file_start_sequence word;
    rocksdb_wal_file_type word;
    rocksdb_wal_files_count word;
    rocksdb_wal_files_destroy word;
    rocksdb_wal_files_get_wal_file word;
    rocksdb_wal_readoptions_create word;
    rocksdb_wal_readoptions_destroy word;
    rocksdb_wal_readoptions_get_verify_checksums word;
    rocksdb_wal_readoptions_set_verify_checksums word;
    rocksdb_walfilter_create word;
    rocksdb_walfilter_destroy word;
    rocksdb_write_buffer_manager_dummy_entries_in_cache_usage word;
    rocksdb_write_buffer_manager_set_allow_stall word;
    rocksdb_write_writebatch_wi word error 3;
    rocksdb_writebatch_delete_cf_with_ts word;
    rocksdb_writebatch_put_cf_with_ts word;
    rocksdb_writebatch_singledelete_cf_with_ts word;
    rocksdb_writebatch_update_timestamps word error 5;
    rocksdb_writebatch_wi_clear word;
    rocksdb_writebatch_wi_count word;
    rocksdb_writebatch_wi_create word;
    rocksdb_writebatch_wi_create_iterator_with_base word;
    rocksdb_writebatch_wi_create_iterator_with_base_cf word;
    rocksdb_writebatch_wi_create_iterator_with_base_cf_readopts word;
    rocksdb_writebatch_wi_create_iterator_with_base_readopts word;
    rocksdb_writebatch_wi_create_with_params word;
    rocksdb_writebatch_wi_data word;
    rocksdb_writebatch_wi_delete word;
    rocksdb_writebatch_wi_delete_cf word;
    rocksdb_writebatch_wi_delete_range word;
    rocksdb_writebatch_wi_delete_range_cf word;
    rocksdb_writebatch_wi_delete_rangev word;
    rocksdb_writebatch_wi_delete_rangev_cf word;
    rocksdb_writebatch_wi_deletev word;
    rocksdb_writebatch_wi_deletev_cf word;
    rocksdb_writebatch_wi_destroy word;
    rocksdb_writebatch_wi_get_from_batch word error 5;
    rocksdb_writebatch_wi_get_from_batch_and_db word error 6;
    rocksdb_writebatch_wi_get_from_batch_and_db_cf word error 7;
    rocksdb_writebatch_wi_get_from_batch_cf word error 6;
    rocksdb_writebatch_wi_get_pinned_from_batch_and_db word error 5;
    rocksdb_writebatch_wi_get_pinned_from_batch_and_db_cf word error 6;
    rocksdb_writebatch_wi_iterate word;
    rocksdb_writebatch_wi_merge word;
    rocksdb_writebatch_wi_merge_cf word;
    rocksdb_writebatch_wi_mergev word;
    rocksdb_writebatch_wi_mergev_cf word;
    rocksdb_writebatch_wi_put word;
    rocksdb_writebatch_wi_put_cf word;
    rocksdb_writebatch_wi_put_log_data word;
    rocksdb_writebatch_wi_putv word;
    rocksdb_writebatch_wi_putv_cf word;
    rocksdb_writebatch_wi_rollback_to_save_point word error 1;
    rocksdb_writebatch_wi_set_save_point word;
    rocksdb_writebatch_wi_singledelete word;
    rocksdb_writebatch_wi_singledelete_cf word;
    rocksdb_writebatch_wi_update_timestamps word error 5;
    rocksdb_writestallinfo_cf_name word;
    rocksdb_writestallinfo_cur word;
    rocksdb_writestallinfo_prev word;
}
