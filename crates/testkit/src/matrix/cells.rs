//! The cells: each lists its distinguishing options and the evidence that they took effect.

use super::Evidence::*;
use super::{Cell, Evidence, Family, Writer};
use crate::dataset::{KeyShape, ValueShape};
use crate::model::{Order, Prefix};

fn cell(name: &'static str, family: Family, evidence: &[Evidence]) -> Cell {
    Cell {
        name,
        db_options: Vec::new(),
        families: vec![family],
        writer: Writer::Ldb,
        ldb_flags: Vec::new(),
        delete_ranges: false,
        levels: 3,
        evidence: [&[Counted("# deletions")], evidence].concat(),
    }
}

const INDEX_BINARY: Evidence = Property("index.type: 0x00000000");
const INDEX_HASH: Evidence = Property("index.type: 0x01000000");
const INDEX_TWO_LEVEL: Evidence = Property("index.type: 0x02000000");
const INDEX_FIRST_KEY: Evidence = Property("index.type: 0x03000000");
const PARTITIONED: &[&str] =
    &["index_type=kTwoLevelIndexSearch", "partition_filters=true", "metadata_block_size=128", FULL_BLOOM];
const FULL_BLOOM: &str = "filter_policy=bloomfilter:10:false";

/// Returns every cell of the 7.8 half of the matrix.
#[must_use]
pub fn cells() -> Vec<Cell> {
    let default = || Family::new("default");
    let mut cells = vec![
        cell("plain", default().table(&["format_version=5"]), &[INDEX_BINARY, FormatVersion(5)]),
        cell(
            "first-key-index",
            default().table(&["index_type=kBinarySearchWithFirstKey", "filter_policy=bloomfilter:10:false"]),
            &[
                INDEX_FIRST_KEY,
                MetaBlock("fullfilter.rocksdb.BuiltinBloomFilter"),
                Counted("filter block size"),
            ],
        ),
        cell(
            "hash-index",
            default().prefix(Prefix::Fixed(8)).table(&["index_type=kHashSearch", "format_version=2"]),
            &[INDEX_HASH, MetaBlock("rocksdb.hashindex.prefixes"), FormatVersion(2)],
        ),
        cell(
            "partitioned-ribbon",
            default().table(PARTITIONED).table(&["filter_policy=ribbonfilter:10:0"]),
            &[
                INDEX_TWO_LEVEL,
                Property("filter policy name: ribbonfilter"),
                MetaBlock("partitionedfilter."),
                Counted("top-level index size"),
            ],
        ),
        cell(
            "partitioned-bloom-prefix",
            default().prefix(Prefix::Fixed(8)).table(PARTITIONED).table(&[
                "filter_policy=bloomfilter:12:false",
                "whole_key_filtering=false",
                "format_version=4",
            ]),
            &[
                INDEX_TWO_LEVEL,
                MetaBlock("partitionedfilter."),
                Property("whole.key.filtering: 0x30"),
                Property("prefix.filtering: 0x31"),
                FormatVersion(4),
            ],
        ),
        cell(
            "two-level-index-full-filter",
            default().table(&["index_type=kTwoLevelIndexSearch", "metadata_block_size=128"]).table(&[
                "filter_policy=bloomfilter:8:false",
                "index_block_restart_interval=8",
                "block_restart_interval=1",
            ]),
            &[INDEX_TWO_LEVEL, MetaBlock("fullfilter.")],
        ),
        cell(
            "legacy-bloom",
            default().prefix(Prefix::Capped(9)).table(&[
                "filter_policy=bloomfilter:10:false",
                "format_version=3",
                "index_block_restart_interval=4",
            ]),
            &[MetaBlock("fullfilter."), FormatVersion(3), Property("prefix.filtering: 0x31")],
        ),
        cell(
            "ribbon-prefix",
            default().prefix(Prefix::Fixed(10)).table(&["filter_policy=ribbonfilter:12:-1"]),
            &[Property("filter policy name: ribbonfilter"), Property("prefix.filtering: 0x31")],
        ),
        cell(
            "data-block-hash",
            default().table(&["data_block_index_type=kDataBlockBinaryAndHash", "block_size=4096"]),
            &[INDEX_BINARY],
        ),
        cell(
            "blocks-16k",
            default().table(&["block_size=16384"]).options(&["compression=kNoCompression"]),
            &[MeanBlockBytes(12_000)],
        ),
        cell(
            "blocks-64k",
            default().table(&["block_size=65536", "index_type=kBinarySearchWithFirstKey"]).options(&[
                "compression=kNoCompression",
                "target_file_size_base=200000",
                "max_bytes_for_level_base=100000",
                "max_bytes_for_level_multiplier=1.5",
                "write_buffer_size=262144",
            ]),
            &[MeanBlockBytes(40_000)],
        ),
        cell(
            "ragged-keys",
            default()
                .data(KeyShape::Ragged, ValueShape::Noise)
                .table(&["filter_policy=bloomfilter:10:false", "index_block_restart_interval=3"]),
            &[MetaBlock("fullfilter.")],
        ),
        cell(
            "extreme-values",
            default().data(KeyShape::Ragged, ValueShape::Extreme).options(&[
                "write_buffer_size=1048576",
                "target_file_size_base=262144",
                "max_bytes_for_level_base=524288",
            ]),
            &[],
        ),
        cell(
            "reverse-comparator",
            Family { order: Order::ReverseBytewise, ..default() }
                .data(KeyShape::Number, ValueShape::Noise)
                .table(&["filter_policy=bloomfilter:10:false"]),
            &[Property("comparator name: rocksdb.ReverseBytewiseComparator")],
        ),
        cell(
            "universal",
            default()
                .options(&["compaction_style=kCompactionStyleUniversal"])
                .table(&["filter_policy=bloomfilter:10:false"]),
            &[MetaBlock("fullfilter.")],
        ),
        cell("fifo", default().options(&["compaction_style=kCompactionStyleFIFO", "num_levels=1"]), &[]),
        cell(
            "no-compression-no-checksum",
            default().options(&["compression=kNoCompression"]).table(&["checksum=kNoChecksum"]),
            &[Property("SST file compression algo: NoCompression"), Checksum(0)],
        ),
    ];
    for cell in &mut cells {
        match cell.name {
            "fifo" => cell.levels = 1,
            "universal" => cell.levels = 2,
            _ => {}
        }
    }
    cells.extend(compressions());
    cells.extend(operations());
    cells
}

/// Cells of compressions, with and without a dictionary, combined with checksums.
fn compressions() -> Vec<Cell> {
    let dictionary = "compression_opts={max_dict_bytes=4096;}";
    let trained = "compression_opts={max_dict_bytes=4096;zstd_max_train_bytes=65536;}";
    let make = |name, options: &[&str], table: &[&str], evidence: &[Evidence]| {
        cell(name, Family::new("default").options(options).table(table), evidence)
    };
    let dict = MetaBlock("rocksdb.compression_dict");
    let algo = |name: &'static str| Property(name);
    vec![
        make(
            "snappy",
            &["compression=kSnappyCompression"],
            &["checksum=kCRC32c"],
            &[algo("compression algo: Snappy"), Checksum(1)],
        ),
        make(
            "zlib",
            &["compression=kZlibCompression"],
            &["checksum=kxxHash"],
            &[algo("compression algo: Zlib"), Checksum(2)],
        ),
        make(
            "zlib-dictionary",
            &["compression=kZlibCompression", dictionary],
            &["format_version=4"],
            &[algo("compression algo: Zlib"), dict.clone()],
        ),
        make(
            "bzip2",
            &["compression=kBZip2Compression"],
            &["checksum=kxxHash64"],
            &[algo("compression algo: BZip2"), Checksum(3)],
        ),
        make(
            "lz4",
            &["compression=kLZ4Compression"],
            &["checksum=kXXH3"],
            &[algo("compression algo: LZ4"), Checksum(4)],
        ),
        make(
            "lz4-dictionary",
            &["compression=kLZ4Compression", dictionary],
            &["format_version=2"],
            &[algo("compression algo: LZ4"), dict.clone(), FormatVersion(2)],
        ),
        make("lz4hc", &["compression=kLZ4HCCompression"], &[], &[algo("compression algo: LZ4HC")]),
        make(
            "lz4hc-dictionary",
            &["compression=kLZ4HCCompression", dictionary],
            &[],
            &[algo("compression algo: LZ4HC"), dict.clone()],
        ),
        make("zstd", &["compression=kZSTD"], &["format_version=3"], &[algo("compression algo: ZSTD")]),
        make(
            "zstd-dictionary",
            &["compression=kZSTD", dictionary],
            &[],
            &[algo("compression algo: ZSTD"), dict.clone()],
        ),
        make(
            "zstd-trained-dictionary",
            &["compression=kZSTD", trained],
            PARTITIONED,
            &[algo("compression algo: ZSTD"), dict, INDEX_TWO_LEVEL],
        ),
    ]
}

/// Cells of column families, blobs, and the operations beyond put and delete.
fn operations() -> Vec<Cell> {
    let mut families =
        cell("column-families", Family::new("default"), &[Property("column family name: second")]);
    families.families.push(
        Family::new("second").options(&["compression=kZSTD"]).table(&["filter_policy=ribbonfilter:10:0"]),
    );
    families
        .families
        .push(Family { bulk: 800, ..Family::new("third").data(KeyShape::Ragged, ValueShape::Noise) });

    let mut ranges = cell(
        "range-deletes",
        Family::new("default").table(&["filter_policy=bloomfilter:10:false"]),
        &[Counted("# range deletions"), MetaBlock("rocksdb.range_del")],
    );
    ranges.delete_ranges = true;

    // ldb takes blob options from its flags only.
    let blob_options = ["enable_blob_files=true", "min_blob_size=60", "blob_file_size=65536"];
    let blob_flags = ["--enable_blob_files", "--min_blob_size=60", "--blob_file_size=65536"];
    let mut blobs = cell("blobs", Family::new("default").options(&blob_options), &[BlobFiles(3)]);
    blobs.delete_ranges = true;
    blobs.ldb_flags = blob_flags.to_vec();
    let mut compressed =
        cell("blobs-compressed", Family::new("default").options(&blob_options), &[BlobFiles(3)]);
    compressed.families[0].options.extend(
        ["blob_compression_type=kZSTD", "enable_blob_garbage_collection=true", "compression=kNoCompression"]
            .map(String::from),
    );
    compressed.ldb_flags = blob_flags.to_vec();
    compressed.ldb_flags.extend(["--blob_compression_type=zstd", "--enable_blob_garbage_collection"]);

    let bench = |name, options: &[&str], first, last, evidence: &[Evidence]| Cell {
        writer: Writer::DbBench { first, last },
        evidence: evidence.to_vec(),
        ..cell(name, Family::new("default").options(options), &[])
    };
    let merges = bench(
        "merge-operands",
        &["merge_operator={id=StringAppendOperator;delimiter=,;}"],
        &[
            "-merge_operator=stringappend",
            "-benchmarks=fillrandom,mergerandom,deleterandom",
            "-num=4000",
            "-merge_keys=3000",
            "-value_size=80",
            "-seed=11",
        ],
        &[
            "-merge_operator=stringappend",
            "-benchmarks=mergerandom,deleterandom,mergerandom",
            "-num=1500",
            "-merge_keys=3000",
            "-value_size=40",
            "-seed=12",
        ],
        &[Counted("# merge operands"), Property("merge operator name: StringAppendOperator")],
    );
    let mut recycled = bench(
        "recycled-log-single-deletes",
        &[],
        &[
            "-benchmarks=randomreplacekeys,overwrite",
            "-use_single_deletes=true",
            "-numdistinct=400",
            "-num=9000",
            "-value_size=60",
            "-seed=12",
        ],
        &["-benchmarks=overwrite,deleterandom,overwrite", "-num=3000", "-value_size=60", "-seed=13"],
        &[Counted("# deletions"), InternalType(7), LogRecord(5)],
    );
    recycled.db_options = vec!["recycle_log_file_num=4", "wal_recovery_mode=kSkipAnyCorruptedRecords"];
    let mut compressed_log = bench(
        "compressed-log",
        &[],
        &["-benchmarks=fillrandom,deleterandom,overwrite", "-num=5000", "-value_size=100", "-seed=13"],
        &["-benchmarks=overwrite,deleterandom,overwrite", "-num=1500", "-value_size=100", "-seed=14"],
        &[LogRecord(9)],
    );
    compressed_log.db_options = vec!["wal_compression=kZSTD"];
    vec![families, ranges, blobs, compressed, merges, recycled, compressed_log]
}
