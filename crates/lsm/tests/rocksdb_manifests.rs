//! MANIFESTs that RocksDB 7.8 wrote: the state replayed here equals the output of
//! `ldb manifest_dump`, every record encodes to the bytes it was decoded from, RocksDB reads a
//! MANIFEST of encoded edits, and damage of any kind ends in a result or an error.
//!
//! Needs Debian's rocksdb-tools, like the other tests against RocksDB.
use karst_format::comparator::Comparator;
use karst_format::file_name::parse_current;
use karst_format::ids::FileNumber;
use karst_format::key::InternalKey;
use karst_format::log::{LogReader, LogWriter};
use karst_format::version_edit::VersionEdit;
use karst_lsm::{ColumnFamilyState, Inconsistent, ManifestReplay, TreeOptions, VersionSet};
use karst_testkit::hex;
use karst_testkit::rocksdb_tools::{db_bench, ldb, run};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn manifest_path(db: &Path) -> PathBuf {
    let current = fs::read(db.join("CURRENT")).unwrap();
    let name = parse_current(&current).expect("CURRENT names a MANIFEST");
    db.join(name.to_string())
}

fn records(manifest: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = LogReader::manifest(manifest);
    let mut records = Vec::new();
    while let Some(record) = reader.next_record() {
        records.push(record.expect("an undamaged MANIFEST").bytes.to_vec());
    }
    records
}

fn replay<'r>(records: impl IntoIterator<Item = &'r Vec<u8>>) -> Result<VersionSet, Inconsistent> {
    let mut replay = ManifestReplay::new();
    for record in records {
        let edit =
            VersionEdit::decode(record).map_err(|corruption| Inconsistent::new(corruption.to_string()))?;
        replay.add(edit)?;
    }
    replay.finish(|found| {
        let comparator = found.comparator.and_then(Comparator::from_name).unwrap_or_default();
        Ok(Some(TreeOptions { comparator, ..TreeOptions::default() }))
    })
}

fn dump(manifest: &Path) -> String {
    run("ldb", &["manifest_dump", "--hex", &format!("--path={}", manifest.display())], b"").unwrap()
}

/// Returns the lines of a dump without level headers and empty lines.
fn lines(dump: &str) -> Vec<String> {
    let said =
        dump.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(" --- version# "));
    said.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Damage may leave a boundary without a known value type; decoding checks only its length.
fn show_key(key: &[u8]) -> String {
    match InternalKey::parse(key) {
        Ok(key) => format!("'{}' seq:{}, type:{}", hex(key.user_key), key.seq, key.kind as u8),
        Err(_) => format!("(bad){}", hex(key)),
    }
}

/// Formats a column family as `ldb manifest_dump` prints it.
fn show_family(out: &mut String, family: &ColumnFamilyState) {
    let comparator = family.version.comparator().name();
    let (name, id, log) = (&family.name, family.id, family.log_number.0);
    let rule = "---------------";
    let _ = writeln!(out, "{rule} Column family \"{name}\" (ID {id}) {}", &rule[1..]);
    let _ = writeln!(out, "log number: {log}\ncomparator: {comparator}");
    for (_, file) in family.version.all_files() {
        let (smallest, largest) = (show_key(&file.smallest), show_key(&file.largest));
        let (from, to) = (file.smallest_seq, file.largest_seq);
        let blob = file.oldest_blob_file.map_or(String::new(), |blob| format!(" blob_file:{}", blob.0));
        let _ = writeln!(
            out,
            "{}:{}[{from} .. {to}][{smallest} .. {largest}]{blob}",
            file.number.0, file.size_bytes
        );
    }
    for blob in family.version.blob_files().values() {
        let file = &blob.file;
        let links: String = blob.linked_tables.iter().map(|table| format!("{} ", table.0)).collect();
        let _ = writeln!(
            out,
            "blob_file_number: {} total_blob_count: {} total_blob_bytes: {} checksum_method: checksum_value: \
             linked_ssts: {{ {links}}} garbage_blob_count: {} garbage_blob_bytes: {}",
            file.number.0, file.total_count, file.total_bytes, blob.garbage_count, blob.garbage_bytes
        );
    }
}

fn show(state: &VersionSet) -> String {
    let mut out = String::new();
    state.column_families.values().for_each(|family| show_family(&mut out, family));
    let _ = writeln!(
        out,
        "next_file_number {} last_sequence {} prev_log_number {} max_column_family {} min_log_number_to_keep {}",
        state.next_file_number.0,
        state.last_sequence,
        state.prev_log_number.0,
        state.max_column_family,
        state.min_log_number_to_keep.0
    );
    out
}

/// Runs all checks of this file on one database.
fn check(db: &Path) -> VersionSet {
    let path = manifest_path(db);
    let records = records(&fs::read(&path).unwrap());
    let state = replay(&records).unwrap();
    let expected = lines(&dump(&path));
    assert_eq!(lines(&show(&state)), expected);

    let mut again = Vec::new();
    let mut writer = LogWriter::new(FileNumber(1), false);
    for record in &records {
        let encoded = VersionEdit::decode(record).unwrap().encode();
        assert_eq!(&encoded, record, "RocksDB's own bytes");
        writer.append(&encoded, &mut again).unwrap();
    }
    let rewritten = db.join("MANIFEST-999999");
    fs::write(&rewritten, again).unwrap();
    assert_eq!(lines(&dump(&rewritten)), expected);
    fs::remove_file(rewritten).unwrap();
    state
}

fn fresh() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    (dir, db)
}

const SMALL: [&str; 4] = [
    "-value_size=100",
    "-write_buffer_size=300000",
    "-target_file_size_base=200000",
    "-max_bytes_for_level_base=400000",
];

fn bench(db: &Path, args: &[&str]) {
    let mut all = SMALL.to_vec();
    all.extend(args);
    db_bench(db, &all).unwrap();
}

#[test]
fn a_leveled_tree_with_blob_files_and_garbage() {
    let (_dir, db) = fresh();
    bench(
        &db,
        &[
            "-benchmarks=fillrandom,compact,overwrite,waitforcompaction",
            "-num=15000",
            "-enable_blob_files=true",
            "-min_blob_size=90",
            "-blob_file_size=300000",
            "-enable_blob_garbage_collection=true",
            "-blob_garbage_collection_age_cutoff=0.5",
        ],
    );
    let state = check(&db);
    let version = &state.column_family("default").unwrap().version;
    assert!(version.blob_files().values().any(|blob| blob.garbage_count > 0), "no garbage in {version:?}");
    assert!(
        version
            .blob_files()
            .values()
            .any(|blob| blob.linked_tables.len() > 1 || blob.linked_tables.is_empty())
    );
}

/// `atomic_flush` has no flag, so db_bench gets it, and all other options, from an options file.
const FLUSHED_TOGETHER: &str = "
[Version]
  rocksdb_version=7.8.3
  options_file_version=1.1
[DBOptions]
  create_if_missing=true
  create_missing_column_families=true
  atomic_flush=true
  track_and_verify_wals_in_manifest=true
[CFOptions \"default\"]
  compaction_style=kCompactionStyleUniversal
  write_buffer_size=300000
  target_file_size_base=200000
  max_write_buffer_number=4
[TableOptions/BlockBasedTable \"default\"]
  block_size=4096
";

#[test]
fn a_universal_tree_of_several_column_families_flushed_together() {
    let (dir, db) = fresh();
    let options = dir.path().join("options");
    fs::write(&options, FLUSHED_TOGETHER).unwrap();
    let options = format!("-options_file={}", options.display());
    bench(&db, &["-benchmarks=fillrandom,overwrite", "-num=20000", "-num_column_families=4", &options]);
    let edits: Vec<VersionEdit> = records(&fs::read(manifest_path(&db)).unwrap())
        .iter()
        .map(|record| VersionEdit::decode(record).unwrap())
        .collect();
    let has = |what: fn(&VersionEdit) -> bool| edits.iter().any(what);
    assert!(has(|edit| edit.remaining_in_atomic_group.is_some_and(|remaining| remaining > 0)));
    assert!(has(|edit| edit.wal_additions.iter().any(|wal| wal.synced_size_bytes.is_some())));
    assert!(has(|edit| edit.wal_deletion.is_some()));
    let state = check(&db);
    assert_eq!(state.column_families.len(), 4);
    assert!(state.column_families.values().all(|family| family.version.file_count() > 0));
}

#[test]
fn a_fifo_tree() {
    let (_dir, db) = fresh();
    bench(
        &db,
        &[
            "-benchmarks=fillrandom",
            "-num=30000",
            "-compaction_style=2",
            "-fifo_compaction_max_table_files_size_mb=1",
            // With more memtables, those that wait would be flushed to one table, which might hold
            // all the data.
            "-max_write_buffer_number=2",
        ],
    );
    let state = check(&db);
    assert!(state.column_family("default").unwrap().version.files(karst_format::ids::Level(0)).len() > 1);
}

#[test]
fn range_tombstones_at_the_edges_of_files() {
    let (_dir, db) = fresh();
    bench(
        &db,
        &[
            "-benchmarks=fillrandom,compact",
            "-num=10000",
            "-writes_per_range_tombstone=100",
            "-range_tombstone_width=2000",
            "-max_num_range_tombstones=90",
        ],
    );
    check(&db);
}

#[test]
fn column_families_created_and_dropped_by_ldb() {
    let (_dir, db) = fresh();
    ldb(&db, &["--create_if_missing", "put", "a", "1"], b"").unwrap();
    for family in ["one", "two", "three"] {
        ldb(&db, &["create_column_family", family], b"").unwrap();
        ldb(&db, &[&format!("--column_family={family}"), "put", "b", "2"], b"").unwrap();
    }
    ldb(&db, &["drop_column_family", "two"], b"").unwrap();
    let state = check(&db);
    let names: Vec<&str> = state.column_families.values().map(|family| &*family.name).collect();
    assert_eq!(names, ["default", "one", "three"]);
    assert_eq!(state.max_column_family.0, 3);
}

#[test]
fn damage_of_any_record_ends_in_an_answer() {
    let (_dir, db) = fresh();
    bench(&db, &["-benchmarks=fillrandom", "-num=5000", "-enable_blob_files=true", "-num_column_families=2"]);
    let records = records(&fs::read(manifest_path(&db)).unwrap());
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut pick = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let (mut refused, mut accepted) = (0, 0);
    for _ in 0..3000 {
        let mut damaged = records.clone();
        let at = pick(damaged.len());
        match pick(4) {
            0 => drop(damaged.remove(at)),
            1 => {
                let other = pick(damaged.len());
                damaged.swap(at, other);
            }
            2 => {
                let kept = pick(damaged[at].len() + 1);
                damaged[at].truncate(kept);
            }
            _ if damaged[at].is_empty() => {}
            _ => {
                let byte = pick(damaged[at].len());
                damaged[at][byte] ^= 1 << pick(8);
            }
        }
        match replay(&damaged) {
            Ok(state) => {
                accepted += 1;
                show(&state);
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(refused > 100 && accepted > 100, "{refused} refused, {accepted} accepted");
}
