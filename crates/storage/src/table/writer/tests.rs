//! Tests of runs of small files: cut points, properties, and failures of the file system.

use super::run::WrittenTable;
use super::*;
use crate::file_checksum::FileChecksumGenCrc32cFactory;
use karst_base::options::ColumnFamilyOptions;
use karst_format::comparator::Comparator;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::{self, InternalKey, SeqNo, ValueType};
use karst_format::options::OptionSet;
use karst_lsm::OpenOutput;
use karst_lsm::range_del::{Fragments, RangeTombstone};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
struct Numbers(AtomicU64);

impl NewFiles for Numbers {
    fn new_table(&self) -> FileNumber {
        FileNumber(self.0.fetch_add(1, Ordering::Relaxed))
    }
    fn new_blob_file(&self) -> FileNumber {
        self.new_table()
    }
}

fn outputs(directory: &Path, options: &str) -> Outputs {
    let mut family = ColumnFamilyOptions::default();
    family.table_factory.block_based.format_version = 6;
    family.set_all(options).unwrap();
    let config =
        FamilyConfig::resolve(ColumnFamilyId(0), "default", family, None, Default::default()).unwrap();
    Outputs {
        env: Env::posix(),
        config: Arc::new(config),
        identity: Arc::new(Identity { db_id: "db".into(), session_id: "S".repeat(20), host_id: "".into() }),
        new_files: Arc::new(Numbers(AtomicU64::new(10))),
        table_directory: directory.to_owned(),
        path_id: 0,
        temperature: Default::default(),
        blob_directory: directory.to_owned(),
        place: TablePlace::in_level(1),
        epoch: 7,
        oldest_ancestor_time_s: 1000,
        oldest_key_time_s: 900,
        newest_key_time_s: 0,
        throttle: None,
        writing: Default::default(),
        warming: None,
        blob_warming: None,
        memory: None,
        file_checksums: Some(Arc::new(FileChecksumGenCrc32cFactory)),
        space: None,
        stats: Default::default(),
        creations: None,
    }
}

/// Cuts before each key that ends in the digit; returns true for all entries of the key.
struct BeforeDigit(u8);

impl CutPolicy for BeforeDigit {
    fn cut_before(&mut self, internal_key: &[u8], _: bool, _: Option<OpenOutput>) -> bool {
        key::user_key(internal_key).last() == Some(&self.0)
    }

    fn needs_size(&self, _: &[u8], _: OpenOutput) -> bool {
        false
    }
}

fn internal(user_key: &str, seq: u64) -> Vec<u8> {
    InternalKey { user_key: user_key.as_bytes(), seq: SeqNo(seq), kind: ValueType::Value }.to_vec()
}

fn block_on<T>(future: impl Future<Output = T> + Send) -> T {
    karst_io::block_on(&Env::posix(), future)
}

#[test]
fn files_are_cut_between_user_keys_and_tombstones_with_them() {
    let directory = tempfile::tempdir().unwrap();
    let outputs = outputs(directory.path(), "compression=kNoCompression");
    let tombstones =
        vec![RangeTombstone::new(b"a0", b"a25", SeqNo(50)), RangeTombstone::new(b"a7", b"z", SeqNo(60))];
    let fragments = Arc::new(Fragments::build(&Comparator::Bytewise, tombstones));
    let mut run = RunWriter::new(outputs, BeforeDigit(b'5'), Some(fragments), (None, Some(b"k"))).unwrap();
    for i in 10..30 {
        for seq in [9, 8, 7] {
            run.add(&internal(&format!("a{i}"), seq), b"v").unwrap();
            if run.needs_room() {
                block_on(run.make_room()).unwrap();
            }
        }
    }
    let files = block_on(run.finish()).unwrap().0;
    let shown: Vec<_> = files
        .tables
        .iter()
        .map(|t| {
            let part = |k: &[u8]| {
                let (user, trailer) = key::split(k);
                format!(
                    "{}@{}",
                    user.escape_ascii(),
                    if trailer >> 8 == SeqNo::MAX.0 { "end".into() } else { (trailer >> 8).to_string() }
                )
            };
            format!(
                "{} {}..{} {}",
                t.file.number,
                part(&t.file.smallest),
                part(&t.file.largest),
                t.properties.num_range_deletions
            )
        })
        .collect();
    assert_eq!(
        shown,
        ["#10 a0@50..a15@end 1", "#11 a15@50..a25@end 1", "#12 a25@9..k@end 1"],
        "each file reaches up to the next, the last to the end of the run"
    );
    for table in &files.tables {
        let bytes = std::fs::read(directory.path().join(format!("{:06}.sst", table.file.number.0))).unwrap();
        assert_eq!(bytes.len() as u64, table.file.size_bytes);
        let checksum = table.file.checksum.as_ref().unwrap();
        assert_eq!(*checksum.value, crc32c::crc32c(&bytes).to_be_bytes());
        assert_eq!((table.file.epoch_number, table.file.oldest_ancestor_time_s), (7, 1000));
        assert_eq!(table.properties.oldest_key_time, 900);
        assert!(table.file.tail_size_bytes > 0 && table.file.tail_size_bytes < table.file.size_bytes);
        assert!(table.file.unique_id.is_some() && table.file.oldest_blob_file.is_none());
    }
}

#[test]
fn nothing_makes_no_file_and_tombstones_alone_make_one() {
    let directory = tempfile::tempdir().unwrap();
    let run = RunWriter::new(outputs(directory.path(), ""), NeverCut, None, (None, None)).unwrap();
    assert!(block_on(run.finish()).unwrap().0.tables.is_empty());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let fragments = vec![RangeTombstone::new(b"b", b"d", SeqNo(5))];
    let fragments = Arc::new(Fragments::build(&Comparator::Bytewise, fragments));
    let run = |range| RunWriter::new(outputs(directory.path(), ""), NeverCut, Some(fragments.clone()), range);
    assert!(block_on(run((Some(b"d"), None)).unwrap().finish()).unwrap().0.tables.is_empty());
    let files = block_on(run((Some(b"c"), None)).unwrap().finish()).unwrap().0;
    assert_eq!(files.tables[0].file.smallest_user_key(), b"c");
    assert_eq!(files.tables[0].file.largest_user_key(), b"d");
}

#[test]
fn large_values_go_to_blob_files() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        "enable_blob_files=true;min_blob_size=100;blob_file_size=10000;blob_compression_type=kLZ4Compression";
    let mut run = RunWriter::new(outputs(directory.path(), options), NeverCut, None, (None, None)).unwrap();
    let large = |i: usize| (0..1000).map(|j| (i * 7 + j * j % 251) as u8).collect::<Vec<_>>();
    for i in 0..100usize {
        let value = if i % 2 == 0 { large(i) } else { b"small".to_vec() };
        run.add(&internal(&format!("k{i:03}"), 5), &value).unwrap();
        if run.needs_room() {
            block_on(run.make_room()).unwrap();
        }
    }
    let (table_bytes, blob_bytes) = run.written_bytes();
    assert!(blob_bytes > 1000 && table_bytes < 10_000, "{table_bytes} {blob_bytes}");
    let files = block_on(run.finish()).unwrap().0;
    assert_eq!(files.tables.len(), 1);
    assert!(files.blob_files.len() > 1);
    assert_eq!(files.tables[0].file.oldest_blob_file, Some(files.blob_files[0].number));
    assert_eq!(files.blob_files.iter().map(|file| file.total_count).sum::<u64>(), 50);
    for file in &files.blob_files {
        let bytes = std::fs::read(directory.path().join(format!("{:06}.blob", file.number.0))).unwrap();
        assert_eq!(bytes.len() as u64, file.total_bytes + 62, "header, records, footer");
        assert_eq!(file.checksum_value, crc32c::crc32c(&bytes).to_be_bytes());
    }
}

#[test]
fn an_error_of_the_file_system_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut outputs = outputs(directory.path(), "compression=kNoCompression");
    outputs.table_directory = directory.path().join("missing");
    let mut run = RunWriter::new(outputs, NeverCut, None, (None, None)).unwrap();
    let mut failed = None;
    for i in 0..100_000 {
        run.add(&internal(&format!("k{i:06}"), 5), &[b'v'; 100]).unwrap();
        if run.needs_room()
            && let Err(error) = block_on(run.make_room())
        {
            failed = Some((i, error.to_string()));
            break;
        }
    }
    let (at, error) = failed.expect("the second piece meets the error of the first");
    assert!(error.contains("missing") && at < 30_000, "{at} {error}");
}

/// Cuts at a size.
struct AtSize(u64);

impl CutPolicy for AtSize {
    fn cut_before(&mut self, _: &[u8], _: bool, open: Option<OpenOutput>) -> bool {
        open.is_some_and(|open| open.file_bytes + open.tail_bytes >= self.0)
    }

    fn needs_size(&self, _: &[u8], at_most: OpenOutput) -> bool {
        at_most.file_bytes + at_most.tail_bytes >= self.0
    }
}

/// Writes a run of fixed entries with these options; returns the data blocks and properties of all
/// files, and the number of blocks whose compression was rejected.
fn files_of(options: &str, at_size: u64) -> (Vec<Vec<u8>>, u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut outputs = outputs(directory.path(), options);
    outputs.stats = Arc::new(karst_base::stats::Statistics::default());
    let stats = outputs.stats.clone();
    let mut run = RunWriter::new(outputs, AtSize(at_size), None, (None, None)).unwrap();
    let mut state = 1u64;
    for i in 0..20_000u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Sequences of blocks that compress well, badly and not at all.
        let value: Vec<u8> = match i / 500 % 3 {
            0 => vec![b'v'; 90],
            1 => (0..90).map(|j| (state >> (j % 57)) as u8 & 0x1f).collect(),
            _ => (0..90u64).map(|j| (state.wrapping_mul(j * 2 + 1) >> 29) as u8).collect(),
        };
        run.add(&internal(&format!("key{i:06}"), 5), &value).unwrap();
        if run.needs_room() {
            block_on(run.make_room()).unwrap();
        }
    }
    let files = block_on(run.finish()).unwrap().0;
    let read = |table: &WrittenTable| {
        std::fs::read(directory.path().join(format!("{:06}.sst", table.file.number.0))).unwrap()
    };
    let rejected = stats.ticker(karst_base::stats::Ticker::NumberBlockCompressionRejected);
    // Data and properties are compared separately because the properties include the file's
    // creation time.
    let parts = |table: &WrittenTable| {
        let mut bytes = read(table);
        bytes.truncate(table.properties.tail_start_offset as usize);
        let mut properties = table.properties.clone();
        properties.file_creation_time = 0;
        bytes.extend(format!("{properties:?}").into_bytes());
        bytes
    };
    (files.tables.iter().map(parts).collect(), rejected)
}

#[test]
fn threads_that_compress_change_no_byte() {
    for (options, at_size) in [
        ("compression=kZSTD", 100_000),
        ("compression=kLZ4Compression", u64::MAX),
        ("compression=kZSTD;compression_opts={max_dict_bytes=2048;max_dict_buffer_bytes=60000;", 150_000),
        ("compression=kZSTD;compression_opts={max_dict_bytes=2048;", u64::MAX),
        (
            "compression=kZlibCompression;block_based_table_factory={block_size=1024;index_type=kTwoLevelIndexSearch;partition_filters=true;filter_policy=bloomfilter:10:false;format_version=5}",
            90_000,
        ),
        ("compression=kNoCompression", 300_000),
    ] {
        // Format 5 because from 6 on, checksums depend on the file's creation time.
        let options = match options.contains("block_based_table_factory") {
            true => options.to_owned(),
            false => format!("block_based_table_factory={{format_version=5}};{options}"),
        };
        let with = |threads: u32| match options
            .strip_suffix(';')
            .filter(|text| text.contains("compression_opts={"))
        {
            Some(open) => files_of(&format!("{open};parallel_threads={threads}}}"), at_size),
            None => files_of(&format!("{options};compression_opts={{parallel_threads={threads}}}"), at_size),
        };
        let (serial, rejected) = with(1);
        assert!(at_size == u64::MAX || serial.len() > 3, "{options}: {}", serial.len());
        assert!(options.contains("kNo") || rejected > 10, "{options}: {rejected}");
        for threads in [2, 5] {
            let (parallel, rejected_too) = with(threads);
            assert_eq!(serial.len(), parallel.len(), "{options}");
            for (i, (a, b)) in serial.iter().zip(&parallel).enumerate() {
                assert!(
                    a == b,
                    "{options}, {threads} threads: file {i} differs, {} and {} bytes",
                    a.len(),
                    b.len()
                );
            }
            assert_eq!(rejected, rejected_too);
        }
    }
}

#[test]
fn a_run_that_is_dropped_leaves_its_helpers_nothing_to_wait_for() {
    let directory = tempfile::tempdir().unwrap();
    let outputs = outputs(directory.path(), "compression=kZSTD;compression_opts={parallel_threads=4}");
    let mut run = RunWriter::new(outputs, NeverCut, None, (None, None)).unwrap();
    for i in 0..5_000 {
        run.add(&internal(&format!("k{i:06}"), 5), &[b'v'; 100]).unwrap();
    }
    drop(run);
}

#[test]
fn filters_are_partitioned_only_as_the_index_is() {
    for (index, partitioned) in [("kTwoLevelIndexSearch", true), ("kBinarySearch", false)] {
        let tables = "partition_filters=true;filter_policy=bloomfilter:10:false";
        let text = format!("block_based_table_factory={{index_type={index};{tables}}}");
        let directory = tempfile::tempdir().unwrap();
        let outputs = outputs(directory.path(), &text);
        let options = table_options(&outputs.config, &outputs.place, TableIdentity::default()).unwrap();
        assert_eq!(options.partition_filters, partitioned);
        let mut run = RunWriter::new(outputs, NeverCut, None, (None, None)).unwrap();
        run.add(&internal("key", 5), b"value").unwrap();
        assert_eq!(block_on(run.finish()).unwrap().0.tables.len(), 1);
    }
}
