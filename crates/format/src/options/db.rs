//! The options of a database: section `[DBOptions]`.
use super::choice::{CacheTier, Compression, FileTemperature, InfoLogLevel, WalRecoveryMode};
use super::value::{Object, Unprinted, Verbatim};

option_table! {
    /// Options of the database as a whole.
    DbOptions in Db {
        create_if_missing: bool = false, fixed, honoured, "Create the database if it does not exist";
        create_missing_column_families: bool = false, fixed, honoured, "Create column families that are opened and do not exist";
        error_if_exists: bool = false, fixed, honoured, "Refuse to open a database that already exists";
        paranoid_checks: bool = true, fixed, honoured, "Stop writes after an error of a background job";
        flush_verify_memtable_count: bool = true, fixed, honoured, "Check that a flush wrote as many entries as the memtable contains";
        compaction_verify_record_count: bool = true, fixed, honoured, "Check that a compaction read as many entries as its inputs contain";
        track_and_verify_wals_in_manifest: bool = false, fixed, honoured, "Record synced logs in the MANIFEST, and check them on opening";
        track_and_verify_wals: bool = false, fixed, honoured, "Record in each log its predecessor, and check it on opening";
        verify_sst_unique_id_in_manifest: bool = true, fixed, honoured, "Check a table's unique id against the MANIFEST when it is opened";
        env: Unprinted = Unprinted::default(), fixed, kept, "Object through which files, clock and threads are reached";
        rate_limiter_bytes_per_sec: Unprinted<u64> = Unprinted(0), fixed, kept, "Limit in bytes per second on writes of flushes and compactions";
        statistics: Unprinted = Unprinted::default(), fixed, kept, "Object that collects tickers and histograms";
        info_log_level: InfoLogLevel = InfoLogLevel::Info, fixed, honoured, "Lowest level of messages written to the info log";
        max_open_files: i32 = -1, mutable, honoured, "Maximum number of tables kept open; -1 for all", in -1..=i32::MAX;
        max_file_opening_threads: i32 = 16, fixed, honoured, "Threads that open tables when the database is opened";
        read_io_executor_threads: i32 = 1, fixed, kept, "Threads that carry out asynchronous reads in RocksDB";
        open_files_async: bool = false, fixed, honoured, "Open tables in the background after the database is opened";
        max_total_wal_size: u64 = 0, mutable, honoured, "Bytes of logs above which the oldest memtables are flushed; 0 derives it from the write buffers";
        use_fsync: bool = false, fixed, honoured, "Sync with fsync rather than fdatasync";
        db_log_dir: String = String::new(), fixed, honoured, "Directory of the info log; empty for the database's directory";
        wal_dir: String = String::new(), fixed, honoured, "Directory of the logs; empty for the database's directory";
        delete_obsolete_files_period_micros: u64 = 21_600_000_000, mutable, kept, "Microseconds between full scans for obsolete files";
        max_background_jobs: i32 = 2, mutable, honoured, "Maximum number of concurrent flushes and compactions";
        max_background_compactions: i32 = -1, mutable, honoured, "Maximum number of concurrent compactions; -1 derives it from max_background_jobs";
        max_subcompactions: u32 = 1, mutable, honoured, "Maximum number of subcompactions of one compaction";
        max_background_flushes: i32 = -1, mutable, honoured, "Maximum number of concurrent flushes; -1 derives it from max_background_jobs";
        max_log_file_size: usize = 0, fixed, honoured, "Maximum size in bytes of an info log file; 0 for no limit";
        log_file_time_to_roll: usize = 0, fixed, honoured, "Maximum age in seconds of an info log file; 0 for no limit";
        keep_log_file_num: usize = 1000, fixed, honoured, "Number of info log files kept";
        recycle_log_file_num: usize = 0, fixed, honoured, "Number of finished logs kept for reuse";
        async_wal_precreate: bool = false, fixed, kept, "Create the next log in the background";
        max_manifest_file_size: u64 = 1 << 30, mutable, honoured, "Bytes of a MANIFEST above which a new one is started";
        max_manifest_space_amp_pct: i32 = 500, mutable, honoured, "Percent by which a MANIFEST may outgrow its compacted size";
        verify_manifest_content_on_close: bool = false, mutable, honoured, "Read the MANIFEST back when the database is closed";
        optimize_manifest_for_recovery: bool = false, mutable, kept, "Write the MANIFEST so that opening takes less time";
        reuse_manifest_on_open: bool = false, fixed, kept, "Append to the MANIFEST found on opening";
        table_cache_numshardbits: i32 = 6, fixed, kept, "Shards of RocksDB's table cache as a power of two";
        wal_ttl_seconds ("WAL_ttl_seconds"): u64 = 0, fixed, honoured, "Seconds that archived logs are kept";
        wal_size_limit_mb ("WAL_size_limit_MB"): u64 = 0, fixed, honoured, "Megabytes of archived logs that are kept";
        manifest_preallocation_size: usize = 4 << 20, mutable, honoured, "Bytes preallocated for a MANIFEST";
        allow_mmap_reads: bool = false, fixed, kept, "Map tables into memory";
        allow_mmap_writes: bool = false, fixed, honoured, "Write logs through a memory mapping, without a system call; if the file system then fails, or is full and copies on write, the process ends (SIGBUS)";
        use_direct_reads: bool = false, fixed, honoured, "Read tables and blob files without the page cache";
        use_direct_io_for_compaction_reads: bool = false, fixed, honoured, "Read inputs of compactions without the page cache";
        use_direct_io_for_flush_and_compaction: bool = false, fixed, honoured, "Write tables and blob files without the page cache";
        allow_fallocate: bool = true, fixed, honoured, "Preallocate files";
        is_fd_close_on_exec: bool = true, fixed, kept, "Close files in child processes";
        stats_dump_period_sec: u32 = 600, mutable, honoured, "Seconds between dumps of statistics to the info log; 0 for never";
        stats_persist_period_sec: u32 = 600, mutable, honoured, "Seconds between samples of statistics kept in memory; 0 for never";
        persist_stats_to_disk: bool = false, fixed, kept, "Keep statistics in a column family of the database";
        stats_history_buffer_size: usize = 1 << 20, mutable, honoured, "Maximum bytes of statistics samples kept in memory";
        advise_random_on_open: bool = true, fixed, kept, "Tell the kernel that tables are read at random";
        db_write_buffer_size: usize = 0, fixed, honoured, "Maximum bytes of all memtables together; 0 for no limit";
        compaction_readahead_size: usize = 2 << 20, mutable, honoured, "Bytes that a compaction reads ahead";
        writable_file_max_buffer_size: usize = 1 << 20, mutable, honoured, "Maximum bytes of the log buffered in the process with manual_wal_flush";
        use_adaptive_mutex: bool = false, fixed, kept, "Let mutexes spin before they sleep";
        bytes_per_sync: u64 = 0, mutable, honoured, "Bytes written to a table or blob file after which writeback of them is started; 0 for never";
        wal_bytes_per_sync: u64 = 0, mutable, honoured, "Bytes written to a log after which writeback of them is started; 0 for never";
        strict_bytes_per_sync: bool = false, mutable, honoured, "Wait for the previous writeback before the next one is started";
        listeners: Verbatim = Verbatim::default(), fixed, kept, "Objects that are notified of events";
        enable_thread_tracking: bool = false, fixed, kept, "Record the operation that each thread runs";
        delayed_write_rate: u64 = 0, mutable, honoured, "Bytes per second of delayed writes; 0 takes the rate limiter's rate, or 16 MiB without one";
        enable_pipelined_write: bool = false, fixed, kept, "Overlap log writes of one group with memtable writes of the previous one";
        unordered_write: bool = false, fixed, honoured, "Let writes return before older ones are visible";
        allow_concurrent_memtable_write: bool = true, fixed, kept, "Let several threads write into one memtable";
        enable_write_thread_adaptive_yield: bool = true, fixed, kept, "Let waiting writers spin before they sleep";
        max_write_batch_group_size_bytes: u64 = 1 << 20, fixed, kept, "Maximum bytes of a group of writes that is logged together";
        write_thread_max_yield_usec: u64 = 100, fixed, kept, "Maximum microseconds that a waiting writer spins";
        write_thread_slow_yield_usec: u64 = 3, fixed, kept, "Microseconds from which on a yield counts as slow";
        skip_stats_update_on_db_open: bool = false, fixed, kept, "Do not load table properties when the database is opened";
        wal_recovery_mode: WalRecoveryMode = WalRecoveryMode::PointInTimeRecovery, fixed, honoured, "Reaction to a damaged log on opening";
        allow_2pc: bool = false, fixed, honoured, "Keep prepared transactions when the database is opened";
        wal_filter: Object = Object::NONE, fixed, kept, "Object that filters log records on opening";
        dump_malloc_stats: bool = false, fixed, kept, "Write the allocator's statistics to the info log";
        avoid_flush_during_recovery: bool = false, fixed, honoured, "Keep entries recovered from logs in memtables instead of flushing them";
        enforce_write_buffer_manager_during_recovery: bool = true, fixed, honoured, "Apply memory limits of memtables during recovery too";
        avoid_flush_during_shutdown: bool = false, mutable, honoured, "Do not flush unlogged data on closing";
        allow_ingest_behind: bool = false, fixed, honoured, "Keep the last level free for files that are ingested behind";
        two_write_queues: bool = false, fixed, honoured, "Let writes that insert nothing into memtables return before older writes are visible";
        manual_wal_flush: bool = false, fixed, honoured, "Write the log to its file only by flush_wal or when the buffer is full";
        wal_compression: Compression = Compression::None, fixed, honoured, "Compression of log records";
        background_close_inactive_wals: bool = false, fixed, kept, "Close finished logs in the background";
        atomic_flush: bool = false, fixed, honoured, "Flush all column families together";
        avoid_unnecessary_blocking_io: bool = false, fixed, kept, "Leave slow cleanup to background threads";
        prefix_seek_opt_in_only: bool = false, fixed, honoured, "Let iterators ignore prefixes unless prefix_same_as_start or auto_prefix_mode is set";
        write_dbid_to_manifest: bool = true, fixed, honoured, "Write the database's identity into the MANIFEST";
        write_identity_file: bool = true, fixed, honoured, "Write the database's identity into the IDENTITY file";
        log_readahead_size: usize = 0, fixed, kept, "Bytes that recovery reads ahead in logs and the MANIFEST";
        file_checksum_gen_factory: Object = Object::NONE, fixed, honoured, "Function that computes checksums of whole files";
        best_efforts_recovery: bool = false, fixed, honoured, "Open the latest state whose files all exist";
        max_bgerror_resume_count: i32 = i32::MAX, fixed, honoured, "Maximum number of attempts to resume after a background error";
        bgerror_resume_retry_interval: u64 = 1_000_000, fixed, honoured, "Microseconds between attempts to resume after a background error";
        allow_data_in_errors: bool = false, fixed, kept, "Include keys and values in messages";
        db_host_id: String = "__hostname__".to_owned(), fixed, honoured, "Host name recorded in tables";
        lowest_used_cache_tier: CacheTier = CacheTier::NonVolatileBlock, fixed, kept, "The lowest tier of caches in use";
        enforce_single_del_contracts: bool = true, fixed, honoured, "Fail a compaction that finds single deletes misused";
        daily_offpeak_time_utc: String = String::new(), mutable, honoured, "Daily period of low load, as HH:mm-HH:mm UTC";
        max_compaction_trigger_wakeup_seconds: u64 = 43_200, mutable, honoured, "Maximum seconds between checks for compactions that are due by age";
        follower_refresh_catchup_period_ms: u64 = 10_000, fixed, honoured, "Milliseconds between a follower's checks for changes of its leader";
        follower_catchup_retry_count: u64 = 10, fixed, honoured, "Maximum number of attempts of a follower to catch up";
        follower_catchup_retry_wait_ms: u64 = 100, fixed, honoured, "Milliseconds between a follower's attempts to catch up";
        metadata_write_temperature: FileTemperature = FileTemperature::Unknown, fixed, kept, "Temperature of MANIFEST, CURRENT and OPTIONS files";
        wal_write_temperature: FileTemperature = FileTemperature::Unknown, fixed, kept, "Temperature of logs";
        fast_sst_open: bool = false, mutable, kept, "Store with each table data by which the file system opens it faster";
    }
    retired {
        "access_hint_on_compaction_start", "allow_os_buffer", "base_background_compactions", "concurrent_prepare",
        "disableDataSync", "disable_data_sync", "experimental_allow_mempurge", "experimental_mempurge_policy",
        "experimental_mempurge_threshold", "fail_if_options_file_error", "new_table_reader_for_compaction_inputs",
        "preserve_deletes", "random_access_max_buffer_size", "rate_limiter", "seq_per_batch",
        "skip_checking_sst_file_sizes_on_db_open", "skip_log_error_on_recovery", "use_direct_writes",
    }
    aliases {}
}
