//! Any bytes as a log file, read in every recovery mode; and as records to write, which must be
//! read back.
#![no_main]

use karst_format::checksum::mask_crc;
use karst_format::ids::FileNumber;
use karst_format::log::{LogEvent, LogReader, LogWriter, RecoveryMode};
use karst_format::write_batch::BatchReader;
use libfuzzer_sys::fuzz_target;

const MODES: [RecoveryMode; 4] = [
    RecoveryMode::TolerateCorruptedTailRecords,
    RecoveryMode::AbsoluteConsistency,
    RecoveryMode::PointInTimeRecovery,
    RecoveryMode::SkipAnyCorruptedRecords,
];

fn read(data: &[u8], mode: RecoveryMode) {
    let mut reader = LogReader::new(data, FileNumber(1), mode).with_max_record_bytes(1 << 24);
    let mut events = 0;
    while let Some(event) = reader.next_event() {
        match event {
            LogEvent::Record(record) => {
                assert!(record.offset < record.end && record.end <= data.len() as u64);
                let _ = BatchReader::parse(record.bytes).map(|batch| batch.ops().count());
            }
            LogEvent::Damage(damage) => assert!(damage.corruption.offset <= data.len() as u64),
            LogEvent::OldRecord { offset } => assert!(offset < data.len() as u64),
            LogEvent::Predecessor(_) => {}
        }
        events += 1;
        assert!(events <= data.len() + 1);
    }
}

/// Builds a log from physical records with correct checksums; type, length and payload are the
/// fuzzer's.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    let mut rest = data;
    while let Some((&[kind, length], behind)) = rest.split_first_chunk() {
        let (payload, behind) = behind.split_at(behind.len().min(usize::from(length)));
        let start = log.len();
        log.extend_from_slice(&[0, 0, 0, 0, payload.len() as u8, 0, kind]);
        if matches!(kind, 5..=8 | 11 | 131) {
            log.extend_from_slice(&1u32.to_le_bytes());
        }
        log.extend_from_slice(payload);
        let crc = mask_crc(crc32c::crc32c(&log[start + 6..]));
        log[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        rest = behind;
    }
    log
}

fuzz_target!(|data: &[u8]| {
    let built = with_checksums(data);
    for mode in MODES {
        read(data, mode);
        read(&built, mode);
    }

    let Some((&choice, rest)) = data.split_first() else { return };
    let mut out = Vec::new();
    let mut writer = LogWriter::new(FileNumber(1), choice & 1 != 0);
    if choice & 2 != 0 {
        writer.compress_with_zstd(&mut out).expect("ZSTD sets up");
    }
    // Repeated, so that records cross blocks.
    let records: Vec<Vec<u8>> = rest.chunks(7).map(|r| r.repeat(1 << (r[0] % 14))).collect();
    records.iter().for_each(|r| writer.append(r, &mut out).expect("compresses"));
    let mut reader = LogReader::new(&out, FileNumber(1), RecoveryMode::AbsoluteConsistency);
    for record in &records {
        assert_eq!(reader.next_record().expect("a record").expect("undamaged").bytes, &record[..]);
    }
    assert!(reader.next_record().is_none());
});
