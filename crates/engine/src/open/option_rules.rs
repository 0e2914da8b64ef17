//! Rules for options of a column family or a database that are invalid: alone, with each other, or
//! with those of the database. RocksDB refuses them too, so it cannot open a database whose OPTIONS
//! file has them.
//!
//! In: options. Out: errors that name the options; or corrected options.
//!
//! Both callers use one table: [`wrong`] refuses a caller's options, before anything is written.
//! [`mend`] corrects the options of a file, so that a database that was opened once can be opened
//! again.

use karst_base::options::{
    BlockBasedTableOptions, ColumnFamilyOptions, CompactionStyle, Compression, DataBlockIndexType, DbOptions,
    IndexBlockSearchType, IndexType, Object,
};
use karst_format::comparator::Comparator;
use karst_format::compression::CompressionType;
use karst_format::filter::{self, FilterPolicy};
use karst_lsm::pick::Offpeak;

/// The options to check.
pub(super) struct OptionsToCheck<'a> {
    pub(super) db: &'a DbOptions,
    pub(super) family: &'a ColumnFamilyOptions,
    /// Name of the comparator.
    pub(super) comparator: &'a str,
    /// True if there is a prefix extractor.
    pub(super) has_prefixes: bool,
}

impl OptionsToCheck<'_> {
    fn tables(&self) -> &BlockBasedTableOptions {
        &self.family.table_factory.block_based
    }
}

/// A rule for invalid options.
struct Rule {
    wrong: fn(&OptionsToCheck<'_>) -> Option<String>,
    /// Compat: corrects the options with the smallest change: one without effect here, or one that
    /// RocksDB would make.
    mend: fn(&mut ColumnFamilyOptions),
}

fn when(wrong: bool, what: &str) -> Option<String> {
    wrong.then(|| what.to_owned())
}

const RULES: &[Rule] = &[
    Rule {
        wrong: |options| {
            let version = options.tables().format_version;
            (version < LEAST_FORMAT_VERSION).then(|| {
                format!("format_version: {version}; tables are written from {LEAST_FORMAT_VERSION} on")
            })
        },
        mend: |family| family.table_factory.block_based.format_version = LEAST_FORMAT_VERSION,
    },
    Rule {
        wrong: |options| {
            let hashed = options.tables().index_type == IndexType::HashSearch;
            when(hashed && !options.has_prefixes, "index_type: kHashSearch needs a prefix_extractor")
        },
        mend: |family| family.table_factory.block_based.index_type = IndexType::BinarySearch,
    },
    Rule {
        wrong: |options| {
            let tables = options.tables();
            let wants = [
                ("cache_index_and_filter_blocks", tables.cache_index_and_filter_blocks),
                ("pin_l0_filter_and_index_blocks_in_cache", tables.pin_l0_filter_and_index_blocks_in_cache),
            ];
            let (option, _) = wants.iter().find(|(_, wants)| *wants && tables.no_block_cache)?;
            Some(format!("{option}: does not go with no_block_cache"))
        },
        mend: |family| family.table_factory.block_based.no_block_cache = false,
    },
    Rule {
        wrong: |options| {
            let compressed =
                |choice: &Compression| !matches!(choice, Compression::None | Compression::Disable);
            let (family, tables) = (options.family, options.tables());
            let all = [
                ("compression", compressed(&family.compression)),
                ("bottommost_compression", compressed(&family.bottommost_compression)),
                ("compression_per_level", family.compression_per_level.iter().any(compressed)),
            ];
            let (option, _) = all.iter().find(|(_, compressed)| *compressed && tables.block_align)?;
            Some(format!("block_align: does not go with compressed blocks, which {option} asks for"))
        },
        mend: |family| family.table_factory.block_based.block_align = false,
    },
    Rule {
        wrong: |options| {
            let tables = options.tables();
            when(
                tables.block_align && !tables.block_size.is_power_of_two(),
                "block_align: block_size must be a power of two",
            )
        },
        mend: |family| family.table_factory.block_based.block_align = false,
    },
    Rule {
        wrong: |options| {
            let size = options.tables().block_size;
            when(u32::try_from(size).is_err(), "block_size: must be below 4 GiB")
        },
        mend: |family| family.table_factory.block_based.block_size = u64::from(u32::MAX),
    },
    Rule {
        wrong: |options| {
            let size = options.tables().super_block_alignment_size;
            let fits = size == 0 || (size.is_power_of_two() && u32::try_from(size).is_ok());
            when(!fits, "super_block_alignment_size: must be 0 or a power of two below 4 GiB")
        },
        mend: |family| family.table_factory.block_based.super_block_alignment_size = 0,
    },
    Rule {
        wrong: |options| {
            let ratio = options.tables().super_block_alignment_space_overhead_ratio;
            when(
                (1..4).contains(&ratio),
                "super_block_alignment_space_overhead_ratio: must be 0 or at least 4",
            )
        },
        mend: |family| family.table_factory.block_based.super_block_alignment_space_overhead_ratio = 4,
    },
    Rule {
        wrong: |options| {
            let tables = options.tables();
            let hashed = tables.data_block_index_type == DataBlockIndexType::BinaryAndHash;
            when(
                hashed && tables.data_block_hash_table_util_ratio <= 0.0,
                "data_block_hash_table_util_ratio: must be above 0 with kDataBlockBinaryAndHash",
            )
        },
        mend: |family| family.table_factory.block_based.data_block_hash_table_util_ratio = 0.75,
    },
    Rule {
        wrong: |options| {
            let interpolates =
                options.tables().index_block_search_type == IndexBlockSearchType::Interpolation;
            when(
                interpolates && options.comparator != Comparator::Bytewise.name(),
                "index_block_search_type: kInterpolation needs the bytewise comparator",
            )
        },
        mend: |family| {
            family.table_factory.block_based.index_block_search_type = IndexBlockSearchType::Binary
        },
    },
    Rule {
        wrong: |options| {
            let tables = options.tables();
            when(
                tables.use_udi_as_primary_index && tables.user_defined_index_factory.text().is_none(),
                "use_udi_as_primary_index: needs a user_defined_index_factory",
            )
        },
        mend: |family| family.table_factory.block_based.use_udi_as_primary_index = false,
    },
    Rule {
        wrong: |options| {
            let text = options.tables().filter_policy.text()?;
            let error = FilterPolicy::from_option_string(text).err()?;
            Some(format!("filter_policy: {}", error.what))
        },
        // Not disabled, because existing filters in tables are still worth reading.
        mend: |family| {
            family.table_factory.block_based.filter_policy = Object::new(filter::COMPATIBILITY_NAME);
        },
    },
    Rule {
        wrong: |options| {
            let family = options.family;
            let per_level =
                family.compression_per_level.iter().map(|choice| ("compression_per_level", *choice));
            let one = [
                ("compression", family.compression),
                ("blob_compression_type", family.blob_compression_type),
                // `Disable` defers to the other options.
                ("bottommost_compression", without_disable(family.bottommost_compression)),
            ];
            let (option, choice) =
                one.into_iter().chain(per_level).find(|(_, choice)| !is_written(*choice))?;
            Some(format!("{option}: {} cannot be written", choice.name()))
        },
        mend: |family| {
            let mend = |choice: &mut Compression, instead| {
                if !is_written(without_disable(*choice)) {
                    *choice = instead;
                }
            };
            mend(&mut family.bottommost_compression, Compression::Disable);
            let single = [&mut family.compression, &mut family.blob_compression_type];
            for choice in single.into_iter().chain(&mut family.compression_per_level) {
                if !is_written(*choice) {
                    *choice = Compression::None;
                }
            }
        },
    },
    Rule {
        wrong: |options| {
            let trains = options.family.compression_opts.zstd_max_train_bytes > 0;
            when(
                trains && options.family.compression_opts.max_dict_bytes == 0,
                "compression_opts: zstd_max_train_bytes needs max_dict_bytes",
            )
        },
        mend: |family| family.compression_opts.zstd_max_train_bytes = 0,
    },
    Rule {
        wrong: |options| {
            let parts = [
                ("blob_garbage_collection_age_cutoff", options.family.blob_garbage_collection_age_cutoff),
                (
                    "blob_garbage_collection_force_threshold",
                    options.family.blob_garbage_collection_force_threshold,
                ),
            ];
            let (option, part) = parts.iter().find(|(_, part)| !(0.0..=1.0).contains(part))?;
            Some(format!("{option}: {part}; must be between 0 and 1"))
        },
        mend: |family| {
            let parts = [
                &mut family.blob_garbage_collection_age_cutoff,
                &mut family.blob_garbage_collection_force_threshold,
            ];
            parts.into_iter().for_each(|part| *part = part.clamp(0.0, 1.0));
        },
    },
    Rule {
        wrong: |options| {
            let bytes = options.family.block_protection_bytes_per_key;
            when(
                !matches!(bytes, 0 | 1 | 2 | 4 | 8),
                "block_protection_bytes_per_key: must be 0, 1, 2, 4 or 8",
            )
        },
        mend: |family| family.block_protection_bytes_per_key = 0,
    },
    Rule {
        wrong: |options| {
            let threshold = options.family.read_triggered_compaction_threshold;
            when(threshold < 0.0, "read_triggered_compaction_threshold: must not be negative")
        },
        mend: |family| family.read_triggered_compaction_threshold = 0.0,
    },
    Rule {
        wrong: |options| {
            let thresholds = &options.family.compaction_options_fifo.file_temperature_age_thresholds;
            let fifo =
                options.family.compaction_style == CompactionStyle::Fifo && options.family.num_levels == 1;
            let ascend = thresholds.windows(2).all(|two| two[0].age < two[1].age);
            when(
                !(thresholds.is_empty() || fifo && ascend),
                "compaction_options_fifo: file_temperature_age_thresholds need kCompactionStyleFIFO, one level and ages that ascend",
            )
        },
        mend: |family| family.compaction_options_fifo.file_temperature_age_thresholds.clear(),
    },
    Rule {
        wrong: |options| {
            let most = options.family.compaction_options_universal.max_read_amp;
            when(most < -1, "compaction_options_universal: max_read_amp must be at least -1")
        },
        mend: |family| family.compaction_options_universal.max_read_amp = -1,
    },
    Rule {
        wrong: |options| {
            let at_once = options.db.allow_concurrent_memtable_write;
            when(
                at_once && options.family.inplace_update_support,
                "inplace_update_support: does not go with allow_concurrent_memtable_write",
            )
        },
        mend: |family| family.inplace_update_support = false,
    },
    Rule {
        wrong: |options| {
            let named = options.family.memtable_factory.text().unwrap_or_default();
            let id = options.family.memtable_factory.id().unwrap_or_default();
            let id = id.split_once(':').map_or(id, |(id, _)| id);
            match id {
                SKIP_LIST | "skip_list" => None,
                "VectorRepFactory"
                | "vector"
                | "HashSkipListRepFactory"
                | "prefix_hash"
                | "HashLinkListRepFactory"
                | "hash_linkedlist" => when(
                    options.db.allow_concurrent_memtable_write,
                    "memtable_factory: only SkipListFactory goes with allow_concurrent_memtable_write",
                ),
                _ => Some(format!("memtable_factory: {named:?} is not known")),
            }
        },
        mend: |family| family.memtable_factory = Object::new(SKIP_LIST),
    },
];

/// A rule for options of the database.
struct DbRule {
    wrong: fn(&DbOptions) -> Option<String>,
    mend: fn(&mut DbOptions),
}

const DB_RULES: &[DbRule] = &[
    DbRule {
        wrong: |db| when(db.read_io_executor_threads < 1, "read_io_executor_threads: must be at least 1"),
        mend: |db| db.read_io_executor_threads = 1,
    },
    DbRule {
        wrong: |db| {
            when(
                db.use_direct_io_for_flush_and_compaction && db.writable_file_max_buffer_size == 0,
                "writable_file_max_buffer_size: must be above 0 with use_direct_io_for_flush_and_compaction",
            )
        },
        mend: |db| db.writable_file_max_buffer_size = DbOptions::default().writable_file_max_buffer_size,
    },
    DbRule {
        wrong: |db| {
            when(
                db.open_files_async && !db.skip_stats_update_on_db_open,
                "open_files_async: needs skip_stats_update_on_db_open",
            )
        },
        mend: |db| db.open_files_async = false,
    },
    DbRule {
        wrong: |db| {
            let text = db.daily_offpeak_time_utc.as_str();
            Offpeak::parse(text).err().map(|what| format!("daily_offpeak_time_utc: {text:?} {what}"))
        },
        mend: |db| db.daily_offpeak_time_utc.clear(),
    },
];

const SKIP_LIST: &str = "SkipListFactory";

/// The oldest format version that is written.
const LEAST_FORMAT_VERSION: u32 = 2;

fn is_written(choice: Compression) -> bool {
    CompressionType::from_u8(choice.number()).is_ok()
}

/// Returns the first option that requests a compression missing from this build, with the reason.
pub(super) fn not_built_in(options: &ColumnFamilyOptions) -> Option<String> {
    let one = [
        ("compression", options.compression),
        ("blob_compression_type", options.blob_compression_type),
        ("bottommost_compression", options.bottommost_compression),
    ];
    let per_level = options.compression_per_level.iter().map(|choice| ("compression_per_level", *choice));
    one.into_iter().chain(per_level).find_map(|(option, choice)| missing(option, choice))
}

/// Returns the compression of the database's logs if it is missing from this build.
pub(super) fn not_built_in_of_database(db: &DbOptions) -> Option<String> {
    missing("wal_compression", db.wal_compression)
}

fn missing(option: &str, choice: Compression) -> Option<String> {
    let refused = CompressionType::from_u8(choice.number()).ok()?.check_built_in().err()?;
    Some(format!("option {option}: {}", refused.what))
}

fn without_disable(choice: Compression) -> Compression {
    if choice == Compression::Disable { Compression::None } else { choice }
}

/// Returns the first violation.
pub(super) fn wrong(options: &OptionsToCheck<'_>) -> Option<String> {
    RULES.iter().find_map(|rule| (rule.wrong)(options))
}

/// Returns the first violation in options of the database.
pub(super) fn wrong_of_database(db: &DbOptions) -> Option<String> {
    DB_RULES.iter().find_map(|rule| (rule.wrong)(db))
}

/// Corrects the database options of a file, and returns the violations.
pub(super) fn mend_database(db: &mut DbOptions) -> Vec<String> {
    let mut found = Vec::new();
    for rule in DB_RULES {
        if let Some(what) = (rule.wrong)(db) {
            (rule.mend)(db);
            found.push(what);
        }
    }
    found
}

/// Corrects the column family options of a file, and returns the violations. `has_prefixes` depends
/// on the prefix extractor that the caller supplies.
pub(super) fn mend(db: &DbOptions, family: &mut ColumnFamilyOptions, has_prefixes: bool) -> Vec<String> {
    let mut found = Vec::new();
    for rule in RULES {
        let options = OptionsToCheck {
            db,
            family,
            comparator: family.comparator.id().unwrap_or_default(),
            has_prefixes,
        };
        if let Some(what) = (rule.wrong)(&options) {
            (rule.mend)(family);
            found.push(what);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_base::options::OptionSet;

    /// Each rule detects its case, and the corrected options pass all rules.
    #[test]
    fn what_is_wrong_is_named_and_can_be_made_good() {
        let cases = [
            ("block_based_table_factory={format_version=1}", "format_version"),
            ("block_based_table_factory={index_type=kHashSearch}", "index_type"),
            (
                "block_based_table_factory={no_block_cache=true;cache_index_and_filter_blocks=true}",
                "cache_index_and_filter_blocks",
            ),
            (
                "block_based_table_factory={no_block_cache=true;pin_l0_filter_and_index_blocks_in_cache=true}",
                "pin_l0_filter_and_index_blocks_in_cache",
            ),
            ("block_based_table_factory={block_align=true}", "block_align"),
            (
                "compression=kNoCompression;compression_per_level=kNoCompression:kZSTD;table_factory.block_align=true",
                "compression_per_level",
            ),
            (
                "compression=kNoCompression;block_based_table_factory={block_align=true;block_size=5000}",
                "block_size",
            ),
            ("table_factory.block_size=4G", "block_size"),
            ("table_factory.super_block_alignment_size=3", "super_block_alignment_size"),
            (
                "table_factory.super_block_alignment_space_overhead_ratio=3",
                "super_block_alignment_space_overhead_ratio",
            ),
            (
                "block_based_table_factory={data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0}",
                "data_block_hash_table_util_ratio",
            ),
            (
                "comparator=rocksdb.ReverseBytewiseComparator;table_factory.index_block_search_type=kInterpolation",
                "index_block_search_type",
            ),
            ("table_factory.use_udi_as_primary_index=true", "use_udi_as_primary_index"),
            ("table_factory.filter_policy=bloomfilter:-1", "filter_policy"),
            ("table_factory.filter_policy=my.Filter", "filter_policy"),
            ("compression=kXpressCompression", "compression"),
            ("compression=kDisableCompressionOption", "compression"),
            ("bottommost_compression=kXpressCompression", "bottommost_compression"),
            ("compression_per_level=kNoCompression:kXpressCompression", "compression_per_level"),
            ("blob_compression_type=kXpressCompression", "blob_compression_type"),
            ("compression_opts={zstd_max_train_bytes=1000}", "zstd_max_train_bytes"),
            ("blob_garbage_collection_age_cutoff=7", "blob_garbage_collection_age_cutoff"),
            ("blob_garbage_collection_force_threshold=-1", "blob_garbage_collection_force_threshold"),
            ("block_protection_bytes_per_key=3", "block_protection_bytes_per_key"),
            ("read_triggered_compaction_threshold=-1", "read_triggered_compaction_threshold"),
            (
                "compaction_options_fifo={file_temperature_age_thresholds={{temperature=kWarm;age=5;}}}",
                "file_temperature_age_thresholds",
            ),
            ("compaction_options_universal={max_read_amp=-2}", "max_read_amp"),
            ("inplace_update_support=true", "inplace_update_support"),
            ("memtable=nosuch", "memtable_factory: \"nosuch\""),
            ("memtable=vector", "allow_concurrent_memtable_write"),
        ];
        let db = DbOptions::default();
        let mut found = std::collections::BTreeSet::new();
        for (text, named) in cases {
            let mut family = ColumnFamilyOptions::default();
            family.set_all(text).unwrap();
            let options = OptionsToCheck {
                db: &db,
                family: &family,
                comparator: family.comparator.id().unwrap(),
                has_prefixes: false,
            };
            found.extend(RULES.iter().position(|rule| (rule.wrong)(&options).is_some()));
            let what = wrong(&options).unwrap_or_else(|| panic!("{text} is accepted"));
            assert!(what.contains(named), "{text}: {what}");
            assert_eq!(mend(&db, &mut family, false)[0], what);
            assert_eq!(mend(&db, &mut family, false), Vec::<String>::new(), "{text}");
        }
        assert_eq!(found.len(), RULES.len(), "each rule has a case");
    }

    #[test]
    fn options_of_the_database_too() {
        for (text, named) in [
            ("read_io_executor_threads=0", "read_io_executor_threads"),
            (
                "use_direct_io_for_flush_and_compaction=true;writable_file_max_buffer_size=0",
                "writable_file_max_buffer_size",
            ),
            ("open_files_async=true", "open_files_async"),
            ("daily_offpeak_time_utc=04\\:30-04\\:30", "daily_offpeak_time_utc"),
            ("daily_offpeak_time_utc=at night", "daily_offpeak_time_utc"),
            ("daily_offpeak_time_utc=24\\:00-04\\:30", "daily_offpeak_time_utc"),
        ] {
            let mut db = DbOptions::default();
            db.set_all(text).unwrap();
            assert!(wrong_of_database(&db).unwrap().contains(named), "{text}");
            assert_eq!(mend_database(&mut db).len(), 1, "{text}");
            assert_eq!(wrong_of_database(&db), None, "{text}");
        }
        let mut db = DbOptions::default();
        db.set_all("daily_offpeak_time_utc=23\\:30-04\\:30").unwrap();
        assert_eq!(wrong_of_database(&db), None);
    }

    #[test]
    fn what_can_be_is_left_alone() {
        let mut db = DbOptions::default();
        for text in [
            "",
            "prefix_extractor=fixed:3;table_factory.index_type=kHashSearch",
            "compression=kNoCompression;block_based_table_factory={block_align=true;block_size=8K}",
            "memtable={id=SkipListFactory;lookahead=5}",
            "memtable=skip_list:16",
            "bottommost_compression=kZSTD",
            "block_based_table_factory={no_block_cache=true;format_version=2}",
        ] {
            let mut family = ColumnFamilyOptions::default();
            family.set_all(text).unwrap();
            assert_eq!(mend(&db, &mut family, true), Vec::<String>::new(), "{text}");
        }
        db.allow_concurrent_memtable_write = false;
        let mut family = ColumnFamilyOptions::default();
        family.set_all("memtable=vector;inplace_update_support=true").unwrap();
        assert_eq!(mend(&db, &mut family, true), Vec::<String>::new());
    }
}
