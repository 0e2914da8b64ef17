//! The cells of the 11.8 half: features of newer RocksDB releases, features that the tools cannot
//! write, and the cells of the 7.8 half in the format versions that 7.8 does not know.

use karst_testkit::dataset::{KeyShape, ValueShape};
use karst_testkit::matrix::{Family, Writer, cells as cells_of_7_8};
use karst_testkit::model::{Order, Prefix};

/// One database.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) db_options: Vec<String>,
    pub(crate) families: Vec<Family>,
    /// Number of levels, L0 included, that must hold files.
    pub(crate) levels: usize,
    pub(crate) merges: bool,
    pub(crate) delete_ranges: bool,
    pub(crate) single_deletes: bool,
    pub(crate) entities: bool,
    pub(crate) timed_puts: bool,
    pub(crate) ingest: bool,
    pub(crate) two_phase: bool,
}

fn cell(name: &str, family: Family) -> Cell {
    Cell {
        name: name.into(),
        db_options: Vec::new(),
        families: vec![family],
        levels: 3,
        merges: false,
        delete_ranges: false,
        single_deletes: false,
        entities: false,
        timed_puts: false,
        ingest: false,
        two_phase: false,
    }
}

const PARTITIONED: &[&str] =
    &["index_type=kTwoLevelIndexSearch", "partition_filters=true", "metadata_block_size=128", BLOOM];
const BLOOM: &str = "filter_policy=bloomfilter:10:false";
// Tables that hold blob references are small, so their levels are small too.
const BLOBS: &[&str] = &[
    "enable_blob_files=true",
    "min_blob_size=60",
    "blob_file_size=65536",
    "max_bytes_for_level_base=8192",
    "target_file_size_base=4096",
];

/// Every cell.
pub(crate) fn cells() -> Vec<Cell> {
    let mut cells = repeated();
    cells.extend(formats());
    cells.extend(operations());
    cells
}

/// The cells that ldb writes for 7.8, alternating between format versions 6 and 7 where they name
/// none.
fn repeated() -> Vec<Cell> {
    let mut cells = Vec::new();
    let written_by_ldb = cells_of_7_8().into_iter().filter(|c| c.writer == Writer::Ldb);
    for (number, old) in written_by_ldb.enumerate() {
        let mut new = cell(old.name, old.families[0].clone());
        new.families = old.families;
        for family in &mut new.families {
            if !family.table.iter().any(|l| l.starts_with("format_version=")) {
                family.table.push(format!("format_version={}", 6 + number % 2));
            }
        }
        new.levels = old.levels;
        new.delete_ranges = old.delete_ranges;
        new.db_options = old.db_options.iter().map(|o| (*o).to_string()).collect();
        cells.push(new);
    }
    cells
}

/// Table formats that 7.8 does not write.
fn formats() -> Vec<Cell> {
    let default = || Family::new("default").table(&["format_version=7", BLOOM]);
    let mut cells = vec![
        cell("separated-values", default().table(&["separate_key_value_in_data_block=true"])),
        cell(
            "separated-values-hash-index",
            default().table(&[
                "separate_key_value_in_data_block=true",
                "data_block_index_type=kDataBlockBinaryAndHash",
                "block_size=8192",
            ]),
        ),
        cell(
            "uniform-index",
            default()
                .table(&["uniform_cv_threshold=10.0", "index_block_search_type=kAuto", "block_size=256"])
                .data(KeyShape::Number, ValueShape::Noise),
        ),
        cell("partitioned-decoupled", default().table(PARTITIONED).table(&["decouple_partitioned_filters=true"])),
        cell(
            "super-block-aligned",
            default()
                .options(&["compression=kNoCompression"])
                .table(&["super_block_alignment_size=16384", "block_size=4096"]),
        ),
        cell("block-aligned", default().options(&["compression=kNoCompression"]).table(&["block_align=true"])),
        cell("index-not-compressed", default().table(&["enable_index_compression=false"]).options(&["compression=kZSTD"])),
        cell("no-delta-encoding", default().table(&["use_delta_encoding=false"])),
        cell("index-not-shortened", default().table(&["index_shortening=kNoShortening"])),
        cell("index-shortened-successor", default().table(&["index_shortening=kShortenSeparatorsAndSuccessor"])),
        cell(
            "checksum-xxh3-context-6",
            default().table(&["format_version=6", "checksum=kXXH3"]).table(PARTITIONED),
        ),
        cell("checksum-crc-context-7", default().table(&["checksum=kCRC32c"])),
        cell("checksum-xxhash-context-6", default().table(&["format_version=6", "checksum=kxxHash"])),
        cell("checksum-none-7", default().table(&["checksum=kNoChecksum"])),
        cell(
            "filters-optimized-for-memory",
            default().table(&["optimize_filters_for_memory=true", "filter_policy=ribbonfilter:9.5:1"]),
        ),
        cell("filters-not-on-last-level", default().options(&["optimize_filters_for_hits=true"])),
        cell(
            "capped-prefix-partitioned",
            default().prefix(Prefix::Capped(8)).table(PARTITIONED).table(&["whole_key_filtering=false"]),
        ),
        cell(
            "reverse-partitioned",
            Family { order: Order::ReverseBytewise, ..default() }
                .table(PARTITIONED)
                .data(KeyShape::Ragged, ValueShape::Noise),
        ),
        cell(
            "compressed-parallel",
            default().options(&["compression=kZSTD", "compression_opts={parallel_threads=3;max_dict_bytes=2048;}"]),
        ),
        cell(
            "compression-per-level",
            default().options(&[
                "compression_per_level=kNoCompression:kSnappyCompression:kLZ4Compression:kZSTD:kZlibCompression",
            ]),
        ),
    ];
    let mut rows = cell("memtable-protected", default().options(&["block_protection_bytes_per_key=8"]));
    rows.db_options.push("verify_sst_unique_id_in_manifest=true".into());
    cells.push(rows);
    cells
}

/// Operations beyond put and delete, logs, and ways for files to arrive.
fn operations() -> Vec<Cell> {
    let default = || Family::new("default").table(&[BLOOM]);
    let mut cells = Vec::new();

    let operators = [
        ("append", "{id=StringAppendOperator;delimiter=,;}", ValueShape::Phrases),
        ("append-test", "{id=StringAppendTESTOperator;delimiter=:;}", ValueShape::Phrases),
        ("add", "uint64add", ValueShape::Counter),
        ("max", "max", ValueShape::Noise),
        ("put", "put", ValueShape::Noise),
        ("xor", "bytesxor", ValueShape::Noise),
    ];
    for (number, (name, operator, values)) in operators.into_iter().enumerate() {
        let operator = format!("merge_operator={operator}");
        let mut merges =
            cell(&format!("merge-{name}"), default().data(KeyShape::Text, values).options(&[&operator]));
        merges.merges = true;
        merges.delete_ranges = number % 2 == 0;
        if values == ValueShape::Counter {
            // Values have eight bytes, so more entries are needed to fill several levels.
            merges.families[0].options.push("compression=kNoCompression".into());
            merges.families[0].bulk = 9000;
        }
        cells.push(merges);
    }
    let mut blobs = cell(
        "merge-blobs",
        default().options(BLOBS).options(&["merge_operator={id=StringAppendOperator;delimiter=<>;}"]),
    );
    blobs.merges = true;
    cells.push(blobs);

    let mut singles = cell("single-deletes", default());
    singles.single_deletes = true;
    singles.delete_ranges = true;
    cells.push(singles);

    for (name, blobs) in [("entities", &[][..]), ("entities-blobs", BLOBS)] {
        let mut entities = cell(name, default().options(blobs));
        entities.entities = true;
        entities.families.push(Family::new("second").table(PARTITIONED));
        cells.push(entities);
    }
    let mut entities = cell(
        "entities-merged",
        default().options(&["merge_operator={id=StringAppendOperator;delimiter=+;}"]),
    );
    (entities.entities, entities.merges) = (true, true);
    cells.push(entities);

    let mut timed = cell("timed-puts", default().options(&["preclude_last_level_data_seconds=1000"]));
    timed.timed_puts = true;
    cells.push(timed);

    let mut ingest = cell("ingested", default());
    (ingest.ingest, ingest.delete_ranges) = (true, true);
    cells.push(ingest);

    let mut two_phase = cell("two-phase", default());
    two_phase.two_phase = true;
    two_phase.db_options.push("allow_2pc=true".into());
    cells.push(two_phase);

    let logs = [
        ("log-compressed", "wal_compression=kZSTD"),
        ("log-tracked", "track_and_verify_wals=true"),
        ("log-recycled", "recycle_log_file_num=3;wal_recovery_mode=kSkipAnyCorruptedRecords"),
        (
            "log-recycled-compressed-tracked",
            "recycle_log_file_num=3;wal_recovery_mode=kSkipAnyCorruptedRecords;wal_compression=kZSTD;\
             track_and_verify_wals=true",
        ),
    ];
    for (name, options) in logs {
        let mut log = cell(name, default());
        log.db_options = vec![options.into()];
        log.families.push(Family { bulk: 900, ..Family::new("second") });
        cells.push(log);
    }
    let mut atomic = cell("atomic-flush", default());
    atomic.db_options = vec!["atomic_flush=true;write_dbid_to_manifest=true".into()];
    atomic.families.push(Family::new("second"));
    cells.push(atomic);

    let mut universal = cell(
        "universal-blobs",
        default().options(BLOBS).options(&[
            "compaction_style=kCompactionStyleUniversal",
            "blob_compression_type=kLZ4Compression",
            "enable_blob_garbage_collection=true",
            "blob_file_starting_level=1",
        ]),
    );
    universal.levels = 2;
    cells.push(universal);
    cells
}
