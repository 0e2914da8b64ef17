//! Options that contradict each other or ask for what is not done: refused before anything is changed.
//!
//! In: the options of a database or of a column family. Out: an error that names the options.

use crate::error::{Error, Result};
use crate::memtable::Protection;
use crate::options::{DbOptions, FamilyConfig};
use crate::table::writer::{TablePlace, file_checksums, table_options};
use karst_format::comparator::Comparator;
use karst_format::log::RecoveryMode;
use karst_format::table_builder::TableIdentity;

/// Checks the options of a database that is to be written.
pub(super) fn database(options: &DbOptions) -> Result<()> {
    let refused = |what: &str| Err(Error::invalid_argument(format!("options contradict each other: {what}")));
    if options.keep_log_file_num == 0 {
        return Err(Error::invalid_argument("option keep_log_file_num: must be at least 1"));
    }
    if options.unordered_write && !options.allow_concurrent_memtable_write {
        return refused("unordered_write needs allow_concurrent_memtable_write");
    }
    if options.unordered_write && options.enable_pipelined_write {
        return refused("unordered_write and enable_pipelined_write");
    }
    if options.two_write_queues && options.enable_pipelined_write {
        return refused("two_write_queues and enable_pipelined_write");
    }
    if options.atomic_flush && options.enable_pipelined_write {
        return refused("atomic_flush and enable_pipelined_write");
    }
    if options.use_direct_reads && options.allow_mmap_reads {
        return refused("use_direct_reads and allow_mmap_reads");
    }
    if options.use_direct_io_for_compaction_reads && options.allow_mmap_reads {
        return refused("use_direct_io_for_compaction_reads and allow_mmap_reads");
    }
    if options.use_direct_io_for_flush_and_compaction && options.allow_mmap_writes {
        return refused("use_direct_io_for_flush_and_compaction and allow_mmap_writes");
    }
    if !options.write_dbid_to_manifest && !options.write_identity_file {
        return refused("neither write_dbid_to_manifest nor write_identity_file");
    }
    if options.best_efforts_recovery {
        return Err(Error::not_supported("option best_efforts_recovery"));
    }
    file_checksums(options).map(drop)
}

/// Gives up what other options do not allow, as RocksDB does: not an error, but said, and what is in effect shows in OPTIONS.
pub(super) fn settle(options: &mut DbOptions) {
    if options.recycle_log_file_num > 0 && !allows_recycled_logs(options) {
        tracing::warn!(
            wal_recovery_mode = options.wal_recovery_mode.name(),
            "recycle_log_file_num is taken for 0: logs are not recycled in this recovery mode, nor where they are archived"
        );
        options.recycle_log_file_num = 0;
    }
    // Why: a log in memory is longer than what was put there, and a process that ends in the middle of a record leaves zeros behind its half. To those who do not take that for the end of the log it is damage.
    if options.allow_mmap_writes && recovery_mode(options) != RecoveryMode::PointInTimeRecovery {
        tracing::warn!(
            wal_recovery_mode = options.wal_recovery_mode.name(),
            "allow_mmap_writes is taken for false: logs are not written in memory in this recovery mode"
        );
        options.allow_mmap_writes = false;
    }
    if options.allow_2pc && options.avoid_flush_during_recovery {
        tracing::warn!(
            "avoid_flush_during_recovery is taken for false with allow_2pc: prepared transactions are logged anew"
        );
        options.avoid_flush_during_recovery = false;
    }
}

fn recovery_mode(options: &DbOptions) -> RecoveryMode {
    RecoveryMode::from_name(options.wal_recovery_mode.name()).unwrap_or_default()
}

/// Compat: RocksDB 11.8's rule. 7.8 allows it with `kSkipAnyCorruptedRecords` only, as its point-in-time recovery could not tell a hole from a log's end.
///
/// Why not in the two other modes: the end of the newest log of a database that was not closed looks like damage, which they do not excuse.
fn allows_recycled_logs(options: &DbOptions) -> bool {
    let tells_the_end = matches!(
        recovery_mode(options),
        RecoveryMode::PointInTimeRecovery | RecoveryMode::SkipAnyCorruptedRecords
    );
    tells_the_end && options.wal_ttl_seconds == 0 && options.wal_size_limit_mb == 0
}

/// Checks what a column family's options say of the block cache, which the database has one of.
pub(super) fn block_cache(default: &FamilyConfig, config: &FamilyConfig) -> Result<()> {
    let cache = |config: &FamilyConfig| config.options.table_factory.block_based.block_cache;
    let asked = cache(config);
    if asked.capacity_bytes.is_none() || asked == cache(default) {
        return Ok(());
    }
    let text = "option block_cache: all column families share one, which the default column family's options may describe";
    Err(Error::invalid_argument(format!("column family {:?}: {text}", config.name)))
}

/// Checks the options of a column family of a database that is to be written.
pub(super) fn column_family(database: &DbOptions, config: &FamilyConfig) -> Result<()> {
    let (name, options) = (&config.name, &config.options);
    let refused = |what: &str| Err(Error::invalid_argument(format!("column family {name:?}: option {what}")));
    if options.num_levels < 1 {
        return refused("num_levels: must be at least 1");
    }
    if options.max_write_buffer_number < 1 {
        return refused("max_write_buffer_number: must be at least 1");
    }
    if !Protection::SUPPORTED.contains(&options.memtable_protection_bytes_per_key) {
        return refused("memtable_protection_bytes_per_key: must be 0, 1, 2, 4 or 8");
    }
    // Why refused: whoever sets them relies on them, and would not notice that nothing is checked.
    let unsafe_to_ignore = [
        ("disallow_memtable_writes", options.disallow_memtable_writes),
        ("paranoid_memory_checks", options.paranoid_memory_checks),
    ];
    if let Some((option, _)) = unsafe_to_ignore.iter().find(|(_, set)| *set) {
        let text = format!("column family {name:?}: option {option}: KarstDB writes no such column family");
        return Err(Error::not_supported(text));
    }
    if database.unordered_write && options.max_successive_merges > 0 {
        return refused("max_successive_merges: does not go with unordered_write");
    }
    if options.level0_slowdown_writes_trigger > options.level0_stop_writes_trigger {
        return refused("level0_slowdown_writes_trigger: above level0_stop_writes_trigger");
    }
    if let Some(filter) = config.compaction_filter.as_ref().filter(|filter| !filter.ignore_snapshots()) {
        let name = filter.name();
        return refused(&format!("compaction_filter: {name:?} with ignore_snapshots() = false"));
    }
    // Compat: the default name is also what options have that say nothing.
    let asked = options.comparator.id().filter(|asked| *asked != Comparator::Bytewise.name());
    if let Some(asked) = asked.filter(|asked| *asked != config.comparator.name()) {
        let is = config.comparator.name();
        return refused(&format!("comparator: {asked:?}, but the column family is ordered by {is:?}"));
    }
    // Why now: options that no table can have are better refused before anything is written.
    table_options(config, &TablePlace::flush(), TableIdentity::default()).map(drop)
}
