//! Write-ahead logs of RocksDB 7.8: every record read here equals the one that `ldb dump_wal`
//! prints, in logs that are legacy, compressed, recycled, and left by a killed process; and
//! `ldb dump_wal` reads the logs that are written here.
//!
//! Needs Debian's rocksdb-tools, like the other tests against RocksDB.

use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_format::log::{
    BLOCK_BYTES, HEADER_BYTES, LogEvent, LogReader, LogWriter, RECYCLABLE_HEADER_BYTES, RecoveryMode,
};
use karst_format::write_batch::{BatchReader, Op, PrepareKind, WriteBatch};
use karst_testkit::rocksdb_tools::{Killed, db_bench, run};
use karst_testkit::{eventually, hex};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A record as `ldb dump_wal` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    seq: u64,
    count: u32,
    bytes: usize,
    offset: u64,
    operations: String,
}

fn dumped(log: &Path) -> Vec<Row> {
    let text = run("ldb", &["dump_wal", "--header", &format!("--walfile={}", log.display())], b"").unwrap();
    // The length depends on the log: seven bytes at the end of a block can hold a legacy header,
    // and thus the beginning of a record, but no recyclable one.
    let (_, recyclable) = kind(log);
    let header_bytes = if recyclable { RECYCLABLE_HEADER_BYTES } else { HEADER_BYTES };
    let rows = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    rows.map(|line| {
        let mut fields = line.splitn(5, ',');
        let mut number = || fields.next().unwrap().trim().parse::<u64>().unwrap();
        let (seq, count, bytes, mut offset) = (number(), number(), number(), number());
        // ldb prints the offset before it skips the last bytes of a block.
        let left = BLOCK_BYTES as u64 - offset % BLOCK_BYTES as u64;
        if left < header_bytes as u64 {
            offset += left;
        }
        let operations = fields.next().unwrap_or_default().trim().to_owned();
        Row { seq, count: count as u32, bytes: bytes as usize, offset, operations }
    })
    .collect()
}

/// Returns the operations as `ldb dump_wal` prints them.
fn printed(batch: &BatchReader<'_>) -> String {
    let mut text = String::new();
    for op in batch.ops() {
        let key = |key: &[u8]| format!("0x{}", hex(key).to_uppercase());
        let cf = |cf: ColumnFamilyId| cf.0;
        text += &match op.unwrap() {
            Op::Put { cf: c, key: k, .. } => format!("PUT({}) : {} ", cf(c), key(k)),
            Op::Delete { cf: c, key: k } => format!("DELETE({}) : {} ", cf(c), key(k)),
            Op::SingleDelete { cf: c, key: k } => format!("SINGLE_DELETE({}) : {} ", cf(c), key(k)),
            Op::DeleteRange { cf: c, begin, end } => {
                format!("DELETE_RANGE({}) : {} {} ", cf(c), key(begin), key(end))
            }
            Op::Merge { cf: c, key: k, .. } => format!("MERGE({}) : {} ", cf(c), key(k)),
            other => format!("{other:?} "),
        };
    }
    text.trim().to_owned()
}

fn number_of(log: &Path) -> FileNumber {
    FileName::parse(log.file_name().unwrap().to_str().unwrap()).unwrap().number().unwrap()
}

/// Returns all records of a log, read by this crate, and the damage as text.
fn read(log: &Path, mode: RecoveryMode) -> (Vec<Row>, Vec<String>) {
    let bytes = fs::read(log).unwrap();
    let mut reader = LogReader::new(&bytes, number_of(log), mode);
    let (mut rows, mut damage) = (Vec::new(), Vec::new());
    while let Some(event) = reader.next_event() {
        match event {
            LogEvent::Record(record) => {
                let batch = BatchReader::parse(record.bytes).unwrap();
                rows.push(Row {
                    seq: batch.seq().0,
                    count: batch.count(),
                    bytes: record.bytes.len(),
                    offset: record.offset,
                    operations: printed(&batch),
                });
            }
            LogEvent::Damage(d) => damage.push(d.corruption.to_string()),
            LogEvent::OldRecord { .. } | LogEvent::Predecessor(_) => {}
        }
    }
    (rows, damage)
}

fn logs(db: &Path) -> Vec<PathBuf> {
    let mut logs: Vec<_> = fs::read_dir(db)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    assert!(!logs.is_empty(), "{} holds no log", db.display());
    logs
}

fn options_file(dir: &Path, db_options: &str) -> String {
    let path = dir.join("options.ini");
    let text = format!(
        "[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n[DBOptions]\n  create_if_missing=true\n{db_options}\n\
         [CFOptions \"default\"]\n  write_buffer_size=131072\n  merge_operator=put\n[TableOptions/BlockBasedTable \"default\"]\n"
    );
    fs::write(&path, text).unwrap();
    format!("-options_file={}", path.display())
}

const RECYCLE: &str = "  recycle_log_file_num=4\n  wal_recovery_mode=kSkipAnyCorruptedRecords\n";
const COMPRESS: &str = "  wal_compression=kZSTD\n";

/// Returns true if the log is compressed, and true if its records are recyclable, by the types of
/// its first records.
fn kind(log: &Path) -> (bool, bool) {
    let bytes = fs::read(log).unwrap();
    let type_at = |at: usize| bytes.get(at).copied().unwrap_or_default();
    let compressed = type_at(6) == 9;
    (compressed, type_at(if compressed { 11 + 6 } else { 6 }) >= 5)
}

#[test]
fn every_record_is_what_ldb_prints() {
    for (db_options, compressed, recyclable) in [
        ("", false, false),
        (COMPRESS, true, false),
        (RECYCLE, false, true),
        (&[RECYCLE, COMPRESS].concat(), true, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        let options = options_file(dir.path(), db_options);
        // Batches of one operation up to more than a block of the log.
        for (batch, value, benchmark) in [
            ("-batch_size=1", "-value_size=100", "-benchmarks=fillrandom"),
            ("-batch_size=700", "-value_size=300", "-benchmarks=fillrandom"),
            ("-batch_size=3", "-value_size=20", "-benchmarks=mergerandom"),
        ] {
            db_bench(&db, &[&options, batch, value, benchmark, "-num=4000", "-merge_operator=put"]).unwrap();
            for log in logs(&db) {
                assert_eq!(kind(&log), (compressed, recyclable), "{db_options}: {}", log.display());
                let expected = dumped(&log);
                assert!(!expected.is_empty());
                for mode in [RecoveryMode::AbsoluteConsistency, RecoveryMode::TolerateCorruptedTailRecords] {
                    let (rows, damage) = read(&log, mode);
                    assert_eq!(damage, [""; 0], "{db_options}: {}", log.display());
                    assert_eq!(rows.len(), expected.len());
                    for (row, expected) in rows.iter().zip(&expected) {
                        assert_eq!(row, expected);
                    }
                }
            }
        }
    }
}

#[test]
fn logs_of_a_killed_process() {
    for db_options in ["", COMPRESS, RECYCLE, &[RECYCLE, COMPRESS].concat()] {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        let options = options_file(dir.path(), db_options);
        let started = Command::new("db_bench")
            .args([format!("-db={}", db.display()), options])
            .args(["-benchmarks=fillrandom", "-num=100000000", "-value_size=200", "-batch_size=2"])
            .args(["-duration=600", "-benchmark_write_rate_limit=3000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child =
            Killed(started.expect("db_bench is missing; install it with: apt-get install rocksdb-tools"));
        // The process is killed at an arbitrary point, after it has used several logs.
        eventually(true, || {
            let names = fs::read_dir(&db).into_iter().flatten().flatten().map(|entry| entry.path());
            let logs = names.filter(|path| path.extension().is_some_and(|e| e == "log"));
            logs.filter_map(|path| path.file_stem()?.to_str()?.parse::<u32>().ok()).any(|number| number > 30)
        });
        drop(child);
        for log in logs(&db) {
            let (rows, _) = read(&log, RecoveryMode::TolerateCorruptedTailRecords);
            let expected = dumped(&log);
            assert_eq!(rows.len(), expected.len(), "{db_options}: {}", log.display());
            assert!(rows == expected, "{db_options}: {}", log.display());
            // A crash damages only the tail.
            let (skipping, _) = read(&log, RecoveryMode::SkipAnyCorruptedRecords);
            assert!(skipping.starts_with(&rows));
        }
    }
}

#[test]
fn ldb_reads_what_is_written_here() {
    let dir = tempfile::tempdir().unwrap();
    for (number, recyclable, compress) in
        [(3, false, false), (4, true, false), (5, false, true), (6, true, true)]
    {
        let mut out = Vec::new();
        let mut writer = LogWriter::new(FileNumber(number), recyclable);
        if compress {
            writer.compress_with_zstd(&mut out).unwrap();
        }
        let mut expected = Vec::new();
        let mut seq = 1;
        for n in 0..300u32 {
            let mut batch = WriteBatch::new();
            batch.set_seq(SeqNo(seq));
            for i in 0..n % 7 {
                let key = format!("key-{n}-{i}");
                let value = vec![n as u8; (n as usize * 37) % 9000 + (n as usize % 97 / 96) * 100_000];
                batch.put(key.as_bytes(), &value);
            }
            batch.push(Op::LogData(b"log data"));
            batch.delete(b"gone");
            batch.push(Op::SingleDelete { cf: ColumnFamilyId(0), key: b"once" });
            batch.merge(b"more", b"operand");
            batch.delete_range(b"a", b"b");
            writer.append(batch.as_bytes(), &mut out).unwrap();
            expected.push((seq, batch.count(), batch.as_bytes().to_vec()));
            seq += u64::from(batch.count());
        }
        let log = dir.path().join(FileName::Wal(FileNumber(number)).to_string());
        fs::write(&log, &out).unwrap();
        let rows = dumped(&log);
        assert_eq!(rows.len(), expected.len());
        let ours = read(&log, RecoveryMode::AbsoluteConsistency);
        assert_eq!(ours.1, [""; 0]);
        for ((row, ours), (seq, count, bytes)) in rows.iter().zip(&ours.0).zip(&expected) {
            assert_eq!((row.seq, row.count, row.bytes), (*seq, *count, bytes.len()));
            assert_eq!(
                (row.seq, row.count, row.bytes, row.offset),
                (ours.seq, ours.count, ours.bytes, ours.offset)
            );
        }
    }
}

#[test]
fn ldb_prints_prepared_transactions_written_here() {
    let dir = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let mut writer = LogWriter::new(FileNumber(7), false);
    let mut batch = WriteBatch::new();
    batch.set_seq(SeqNo(10));
    batch.push(Op::BeginPrepare(PrepareKind::Committed));
    batch.put(b"k", b"v");
    batch.push(Op::EndPrepare { xid: b"tx" });
    writer.append(batch.as_bytes(), &mut out).unwrap();
    batch.clear();
    batch.set_seq(SeqNo(11));
    batch.push(Op::Commit { xid: b"tx" });
    writer.append(batch.as_bytes(), &mut out).unwrap();
    batch.clear();
    batch.push(Op::Rollback { xid: b"ty" });
    writer.append(batch.as_bytes(), &mut out).unwrap();
    let log = dir.path().join("000007.log");
    fs::write(&log, &out).unwrap();
    let rows = dumped(&log);
    let said: Vec<_> = rows.iter().map(|r| r.operations.as_str()).collect();
    let hex = |s: &[u8]| format!("0x{}", hex(s).to_uppercase());
    assert_eq!(
        said,
        [
            format!("BEGIN_PREPARE(false) PUT(0) : {} END_PREPARE({})", hex(b"k"), hex(b"tx")),
            format!("COMMIT({})", hex(b"tx")),
            format!("ROLLBACK({})", hex(b"ty")),
        ]
    );
}
