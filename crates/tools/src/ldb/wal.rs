//! `ldb dump_wal`: the write batches of a log, one line each, in RocksDB's format.

use crate::output::Fault;
use crate::text::{Form, write_bytes};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::log::{LogEvent, LogReader, RecoveryMode};
use karst_format::write_batch::{BatchReader, Op, PrepareKind};
use std::io::{self, Write};
use std::path::Path;

/// Writes the batches of the log at `path`. A damaged record ends the dump with an error, after the
/// batches before it.
pub(crate) fn dump(out: &mut impl Write, path: &Path, header: bool, values: bool) -> Result<(), Fault> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let failed = |e: io::Error| Fault::of_output(&e);
    if header {
        out.write_all(b"Sequence,Count,ByteSize,Physical Offset,Key(s)").map_err(failed)?;
        out.write_all(if values { b" : value \n" } else { b"\n" }).map_err(failed)?;
    }
    let mut reader =
        LogReader::new(&bytes, FileNumber(log_number(path)), RecoveryMode::TolerateCorruptedTailRecords);
    while let Some(event) = reader.next_event() {
        let record = match event {
            LogEvent::Record(record) => record,
            LogEvent::Damage(damage) => {
                return Err(format!("{}: {}", path.display(), damage.corruption).into());
            }
            LogEvent::OldRecord { .. } | LogEvent::Predecessor(_) => continue,
        };
        let at = |e| format!("{}: record at offset {}: {e}", path.display(), record.offset);
        let batch = BatchReader::parse(record.bytes).map_err(at)?;
        let (seq, count, bytes) = (batch.seq(), batch.count(), record.bytes.len());
        write!(out, "{seq},{count},{bytes},{},", record.offset).map_err(failed)?;
        for op in batch.ops() {
            write_op(out, &op.map_err(at)?, values).map_err(failed)?;
        }
        out.write_all(b"\n").map_err(failed)?;
    }
    Ok(())
}

/// Returns the number in the log's name; a log of another name is read like one that was never
/// recycled.
fn log_number(path: &Path) -> u64 {
    path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse().ok()).unwrap_or(0)
}

fn write_op(out: &mut impl Write, op: &Op<'_>, values: bool) -> io::Result<()> {
    let mut key_value = |name: &str, cf: ColumnFamilyId, key: &[u8], value: Option<&[u8]>| {
        write!(out, "{name}({}) : ", cf.0)?;
        write_bytes(out, key, Form::Hex)?;
        if let Some(value) = value.filter(|_| values) {
            out.write_all(b" : ")?;
            write_bytes(out, value, Form::Hex)?;
        }
        out.write_all(b" ")
    };
    match *op {
        Op::Put { cf, key, value } => key_value("PUT", cf, key, Some(value)),
        Op::Merge { cf, key, operand } => key_value("MERGE", cf, key, Some(operand)),
        Op::PutBlobIndex { cf, key, index } => key_value("PUT_BLOB_INDEX", cf, key, Some(index)),
        Op::PutEntity { cf, key, entity } => key_value("PUT_ENTITY", cf, key, Some(entity)),
        Op::TimedPut { cf, key, value, .. } => key_value("TIMED_PUT", cf, key, Some(value)),
        Op::Delete { cf, key } => key_value("DELETE", cf, key, None),
        Op::SingleDelete { cf, key } => key_value("SINGLE_DELETE", cf, key, None),
        Op::DeleteRange { cf, begin, end } => {
            write!(out, "DELETE_RANGE({}) : ", cf.0)?;
            write_bytes(out, begin, Form::Hex)?;
            out.write_all(b" ")?;
            write_bytes(out, end, Form::Hex)?;
            out.write_all(b" ")
        }
        Op::Noop => out.write_all(b"NOOP "),
        Op::LogData(_) => Ok(()),
        Op::BeginPrepare(kind) => write!(out, "BEGIN_PREPARE({}) ", kind == PrepareKind::Unprepared),
        Op::EndPrepare { xid } => marker(out, "END_PREPARE", &[xid]),
        Op::Commit { xid } => marker(out, "COMMIT", &[xid]),
        Op::CommitWithTimestamp { xid, timestamp } => marker(out, "COMMIT_WITH_TIMESTAMP", &[xid, timestamp]),
        Op::Rollback { xid } => marker(out, "ROLLBACK", &[xid]),
    }
}

fn marker(out: &mut impl Write, name: &str, arguments: &[&[u8]]) -> io::Result<()> {
    write!(out, "{name}(")?;
    for (i, argument) in arguments.iter().enumerate() {
        if i > 0 {
            out.write_all(b", ")?;
        }
        write_bytes(out, argument, Form::Hex)?;
    }
    out.write_all(b") ")
}
