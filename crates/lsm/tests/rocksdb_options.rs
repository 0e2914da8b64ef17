//! OPTIONS files between KarstDB and RocksDB 7.8: RocksDB reads the files printed here, and the
//! files that it then writes have equal options.
//!
//! In this crate because the format's own tests do not link the testkit. Needs Debian's
//! rocksdb-tools.
use karst_format::options::choice::{CompactionStyle, Compression, IndexType};
use karst_format::options::file::latest_options_file;
use karst_format::options::{OptionSet, OptionsFile, UnknownOptions};
use karst_testkit::rocksdb_tools::db_bench;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn options_path(db: &Path) -> PathBuf {
    let names: Vec<String> =
        fs::read_dir(db).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    db.join(latest_options_file(names.iter().map(String::as_str)).expect("an OPTIONS file"))
}

fn parse(path: &Path) -> OptionsFile {
    OptionsFile::parse(&fs::read(path).unwrap(), UnknownOptions::RefuseUnlessNewer).unwrap()
}

/// Splits a line into the option's name and the fields in its braces, if any.
fn split_line(line: &str) -> Option<(&str, Vec<&str>)> {
    let (name, value) = line.trim().split_once('=')?;
    let fields = value.strip_prefix('{').and_then(|value| value.strip_suffix(";}"));
    Some((name, fields.map_or(Vec::new(), |fields| fields.split(';').collect())))
}

fn field_name<'l>(option: &'l str, field: &'l str) -> String {
    format!("{option}.{}", field.split('=').next().unwrap_or_default())
}

/// Returns the names that a file sets, including nested fields as `option.field`.
fn names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (name, fields) in text.lines().filter_map(split_line) {
        names.extend(fields.iter().map(|field| field_name(name, field)));
        names.insert(name.to_owned());
    }
    names
}

/// Returns the printed file without the options that 7.8 does not have, because it rejects them.
fn without_later_options(printed: &str, known: &BTreeSet<String>) -> String {
    let mut out = String::new();
    for line in printed.lines() {
        match split_line(line) {
            Some((name, _)) if !known.contains(name) => {}
            Some((name, fields)) if !fields.is_empty() => {
                let kept: Vec<&str> =
                    fields.into_iter().filter(|field| known.contains(&field_name(name, field))).collect();
                out += &format!("{name}={{{};}}\n", kept.join(";"));
            }
            _ => out += &format!("{line}\n"),
        }
    }
    out
}

#[test]
fn rocksdb_reads_what_is_printed_and_writes_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    db_bench(&first, &["-benchmarks=fillseq", "-num=10", "-num_column_families=2", "-bloom_bits=10"])
        .unwrap();
    let path = options_path(&first);
    let mut file = parse(&path);
    let original = fs::read_to_string(&path).unwrap();
    assert_eq!(file.column_families.len(), 2);

    file.db.set_all("max_open_files=77;bytes_per_sync=1M;WAL_ttl_seconds=5;wal_compression=kZSTD").unwrap();
    let family = &mut file.column_families[0].options;
    family
        .set_all(
            "compaction_style=kCompactionStyleUniversal;num_levels=5;compression_per_level=kNoCompression:kZSTD;\
             compression_opts={level=3;max_dict_bytes=4K};compaction_options_universal={size_ratio=9};\
             compaction_options_fifo.max_table_files_size=12345;prefix_extractor=rocksdb.FixedPrefix.4;\
             merge_operator={id=StringAppendOperator;delimiter=,;};periodic_compaction_seconds=2592000;max_bytes_for_level_multiplier_additional=1:2:3;\
             block_based_table_factory={block_size=16K;index_type=kTwoLevelIndexSearch;partition_filters=true;\
             metadata_cache_options={unpartitioned_pinning=kAll};checksum=kCRC32c;filter_policy=ribbonfilter:10:-1}",
        )
        .unwrap();
    let ours = dir.path().join("ours");
    let mut known = names(&original);
    // Empty by default, and therefore not in the file.
    known.extend(
        ["compression_per_level", "merge_operator.id", "merge_operator.delimiter"].map(str::to_owned),
    );
    fs::write(&ours, without_later_options(&file.print(), &known)).unwrap();

    db_bench(&second, &["-benchmarks=fillseq", "-num=10", &format!("-options_file={}", ours.display())])
        .unwrap();
    let theirs = parse(&options_path(&second));
    assert_eq!(
        (theirs.db.max_open_files, theirs.db.bytes_per_sync, theirs.db.wal_ttl_seconds),
        (77, 1 << 20, 5)
    );
    assert_eq!(theirs.db.wal_compression, Compression::Zstd);
    let theirs = theirs.column_family("default").unwrap();
    assert_eq!(theirs.compaction_style, CompactionStyle::Universal);
    assert_eq!(theirs.table_factory.block_based.index_type, IndexType::TwoLevelIndexSearch);
    assert_eq!(theirs.table_factory.block_based.filter_policy.id(), Some("ribbonfilter:10:-1"));
    let ours = &file.column_families[0].options;
    let mut differ = Vec::new();
    for entry in karst_format::options::ColumnFamilyOptions::table() {
        let name = entry.info.name;
        if ours.get(name) != theirs.get(name) {
            differ.push((name, ours.get(name).unwrap_or_default(), theirs.get(name).unwrap_or_default()));
        }
    }
    for entry in karst_format::options::BlockBasedTableOptions::table() {
        let name = entry.info.name;
        let (ours, theirs) = (&ours.table_factory.block_based, &theirs.table_factory.block_based);
        if ours.get(name) != theirs.get(name) {
            differ.push((name, ours.get(name).unwrap_or_default(), theirs.get(name).unwrap_or_default()));
        }
    }
    assert_eq!(differ, []);
}
