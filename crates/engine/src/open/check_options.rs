//! Checks that refuse contradictory or unsupported options before anything is changed.
//!
//! In: the options of a database or of a column family. Out: an error that names the options.

use super::option_rules::{self, OptionsToCheck};
use super::options::new_family_options;
use super::wanted::DEFAULT;
use karst_base::error::{Error, Named, Result};
use karst_base::options::{ColumnFamilyOptions, DbOptions, FamilyConfig, NamedCollectors};
use karst_format::comparator::Comparator;
use karst_format::log::RecoveryMode;
use karst_format::table_builder::TableIdentity;
use karst_io::report;
use karst_storage::memtable::Protection;
use karst_storage::table::writer::{TablePlace, table_options};

/// Checks the options of a database that is opened for writing.
pub(crate) fn database(options: &DbOptions) -> Result<()> {
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
    if let Some(what) = option_rules::wrong_of_database(options) {
        return Err(Error::invalid_argument(format!("option {what}")));
    }
    if let Some(what) = option_rules::not_built_in_of_database(options) {
        return Err(Error::not_supported(what));
    }
    Ok(())
}

/// Turns off options that other options do not allow, like RocksDB: not an error, but a note, and
/// OPTIONS shows the effective values.
pub(super) fn settle(options: &mut DbOptions) -> Vec<String> {
    let mut notes = Vec::new();
    let mode = options.wal_recovery_mode.name();
    if options.recycle_log_file_num > 0 && !allows_recycled_logs(options) {
        notes.push(format!(
            "recycle_log_file_num is taken for 0: logs are not recycled with wal_recovery_mode {mode}, nor where they are archived"
        ));
        options.recycle_log_file_num = 0;
    }
    // A memory-mapped log is longer than its records, and a process that ends in the middle of a
    // record leaves zeros after the incomplete record. Modes that do not treat zeros as the end of
    // the log report damage.
    if options.allow_mmap_writes && recovery_mode(options) != RecoveryMode::PointInTimeRecovery {
        notes.push(format!(
            "allow_mmap_writes is taken for false: logs are not written in memory with wal_recovery_mode {mode}"
        ));
        options.allow_mmap_writes = false;
    }
    if options.allow_2pc && options.avoid_flush_during_recovery {
        notes.push(
            "avoid_flush_during_recovery is taken for false with allow_2pc: prepared transactions are logged anew"
                .to_owned(),
        );
        options.avoid_flush_during_recovery = false;
    }
    notes.iter().for_each(|note| report!(warn, "{note}"));
    notes
}

fn recovery_mode(options: &DbOptions) -> RecoveryMode {
    RecoveryMode::from_name(options.wal_recovery_mode.name()).unwrap_or_default()
}

/// Compat: RocksDB 11.8's rule. 7.8 allows it with `kSkipAnyCorruptedRecords` only, because its
/// point-in-time recovery could not distinguish a hole from a log's end.
///
/// Not allowed in the two other modes, because the end of the newest log of a database that was not
/// closed looks like damage, which they do not tolerate.
fn allows_recycled_logs(options: &DbOptions) -> bool {
    let tells_the_end = matches!(
        recovery_mode(options),
        RecoveryMode::PointInTimeRecovery | RecoveryMode::SkipAnyCorruptedRecords
    );
    tells_the_end && options.wal_ttl_seconds == 0 && options.wal_size_limit_mb == 0
}

/// Checks a column family's options for the block cache, which all families of the database share.
pub(super) fn block_cache(default: &FamilyConfig, config: &FamilyConfig) -> Result<()> {
    let cache = |config: &FamilyConfig| config.options.table_factory.block_based.block_cache.clone();
    let asked = cache(config);
    if asked.capacity_bytes.is_none() || asked == cache(default) {
        return Ok(());
    }
    let text = "option block_cache: all column families share one, which the default column family's options may describe";
    Err(Error::invalid_argument(format!("column family {:?}: {text}", Named(&config.name))))
}

/// Checks the options of a new column family; `asked` are the caller's options, with its changes to
/// the defaults.
pub(crate) fn new_family(
    database: &DbOptions,
    asked: &ColumnFamilyOptions,
    config: &FamilyConfig,
) -> Result<()> {
    given(&new_family_options(), asked, config)?;
    column_family(database, config)
}

/// Checks the column family options that a caller sets: those of `asked` that differ from `before`,
/// which come from a file or the defaults.
///
/// Only those, because a database whose OPTIONS name missing objects can still be read, and LOG
/// reports what is missing; but a name given by the caller must exist.
pub(super) fn given(
    before: &ColumnFamilyOptions,
    asked: &ColumnFamilyOptions,
    config: &FamilyConfig,
) -> Result<()> {
    let collectors = (&before.table_properties_collectors.0, &asked.table_properties_collectors.0);
    let collectors_known = NamedCollectors::in_option_text(collectors.1).unknown.is_empty();
    let named = [
        ("merge_operator", &before.merge_operator, &asked.merge_operator, config.merge_operator.is_some()),
        (
            "prefix_extractor",
            &before.prefix_extractor,
            &asked.prefix_extractor,
            config.prefix_extractor.is_some(),
        ),
        (
            "compaction_filter",
            &before.compaction_filter,
            &asked.compaction_filter,
            config.compaction_filter.is_some(),
        ),
        (
            "compaction_filter_factory",
            &before.compaction_filter_factory,
            &asked.compaction_filter_factory,
            config.compaction_filter_factory.is_some(),
        ),
        (
            "sst_partitioner_factory",
            &before.sst_partitioner_factory,
            &asked.sst_partitioner_factory,
            config.sst_partitioner_factory.is_some(),
        ),
    ];
    let named = named.map(|(option, before, asked, known)| (option, before.text(), asked.text(), known));
    let unknown = named.into_iter().chain([(
        "table_properties_collectors",
        Some(collectors.0.as_str()),
        Some(collectors.1.as_str()),
        collectors_known,
    )]);
    for (option, before, asked, known) in unknown {
        if let Some(asked) = asked.filter(|_| asked != before && !known) {
            return Err(Error::invalid_argument(format!(
                "column family {:?}: option {option}: {asked:?} is not built in and not supplied",
                Named(&config.name)
            )));
        }
    }
    Ok(())
}

/// Checks the options of a column family of a database that is opened for writing.
pub(super) fn column_family(database: &DbOptions, config: &FamilyConfig) -> Result<()> {
    let (name, options) = (Named(&config.name), &config.options);
    let refused = |what: &str| Err(Error::invalid_argument(format!("column family {name:?}: option {what}")));
    if !Protection::SUPPORTED.contains(&options.memtable_protection_bytes_per_key) {
        return refused("memtable_protection_bytes_per_key: must be 0, 1, 2, 4 or 8");
    }
    if options.disallow_memtable_writes && config.name == DEFAULT {
        return refused("disallow_memtable_writes: not for the default column family");
    }
    if database.unordered_write && options.max_successive_merges > 0 {
        return refused("max_successive_merges: does not go with unordered_write");
    }
    if let Some(filter) = config.compaction_filter.as_ref().filter(|filter| !filter.ignore_snapshots()) {
        let name = filter.name();
        return refused(&format!("compaction_filter: {name:?} with ignore_snapshots() = false"));
    }
    // Compat: the default name also stands in options that were not set.
    let asked = options.comparator.id().filter(|asked| *asked != Comparator::Bytewise.name());
    if let Some(asked) = asked.filter(|asked| *asked != config.comparator.name()) {
        let is = config.comparator.name();
        return refused(&format!("comparator: {asked:?}, but the column family is ordered by {is:?}"));
    }
    let checked = OptionsToCheck {
        db: database,
        family: options,
        comparator: config.comparator.name(),
        has_prefixes: config.prefix_extractor.is_some(),
    };
    if let Some(what) = option_rules::wrong(&checked) {
        return refused(&what);
    }
    if let Some(what) = option_rules::not_built_in(options) {
        return Err(Error::not_supported(format!("column family {name:?}: {what}")));
    }
    // Checked now, because options that no table can have should be refused before files are
    // written.
    let of_table = table_options(config, &TablePlace::flush(), TableIdentity::default())?;
    of_table.check().or_else(|e| refused(&e.to_string()))
}
