//! Tests of the log: writer against reader at every block boundary, damage in all recovery modes,
//! hostile bytes. Logs written by RocksDB's own tools are read in tests/rocksdb_logs.rs.

use super::record_type as t;
use super::*;
use proptest::prelude::*;

const MODES: [RecoveryMode; 4] = [
    RecoveryMode::TolerateCorruptedTailRecords,
    RecoveryMode::AbsoluteConsistency,
    RecoveryMode::PointInTimeRecovery,
    RecoveryMode::SkipAnyCorruptedRecords,
];

fn record(n: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i / 7) as u8).wrapping_mul(31) ^ n as u8).collect()
}

fn write(log: u64, recyclable: bool, compress: bool, records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = LogWriter::new(FileNumber(log), recyclable);
    if compress {
        writer.compress_with_zstd(&mut out).unwrap();
    }
    records.iter().for_each(|r| writer.append(r, &mut out).unwrap());
    out
}

#[derive(Debug, PartialEq)]
enum Seen {
    Record(Vec<u8>),
    Damage(u64),
    Old,
}

/// Returns all events, and checks the invariants that hold for any file.
fn read(data: &[u8], log: u64, mode: RecoveryMode) -> Vec<Seen> {
    let mut reader = LogReader::new(data, FileNumber(log), mode).with_max_record_bytes(1 << 22);
    let mut seen = Vec::new();
    let mut last_end = 0;
    while let Some(event) = reader.next_event() {
        match event {
            LogEvent::Record(r) => {
                assert!(r.offset >= last_end && r.end > r.offset && r.end <= data.len() as u64);
                last_end = r.end;
                seen.push(Seen::Record(r.bytes.to_vec()));
            }
            LogEvent::Damage(d) => {
                assert!(d.corruption.offset <= data.len() as u64);
                seen.push(Seen::Damage(d.corruption.offset));
            }
            LogEvent::OldRecord { offset } => {
                assert!(offset < data.len() as u64);
                seen.push(Seen::Old);
            }
            LogEvent::Predecessor(_) => {}
        }
        assert!(seen.len() <= data.len() + 1, "the reader does not come to an end");
    }
    assert!(reader.next_event().is_none(), "the end is the end");
    seen
}

fn records(data: &[u8], log: u64, mode: RecoveryMode) -> Vec<Vec<u8>> {
    read(data, log, mode)
        .into_iter()
        .filter_map(|s| if let Seen::Record(r) = s { Some(r) } else { None })
        .collect()
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let near_block = (BLOCK_BYTES - 40)..(BLOCK_BYTES + 40);
    proptest::collection::vec(prop_oneof![0usize..200, near_block, 60_000usize..140_000], 0..6)
}

#[test]
#[should_panic(expected = "a record is as long as was said")]
fn a_record_of_another_length_than_was_said_is_refused() {
    let put = |out: &mut Vec<u8>| out.extend_from_slice(b"four");
    let _ = LogWriter::new(FileNumber(9), false).append_with(5, put, &mut Vec::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_written_is_read(lengths in lengths(), recyclable: bool, compress: bool, log in 1u64..u64::MAX) {
        let written: Vec<_> = lengths.iter().enumerate().map(|(n, l)| record(n, *l)).collect();
        let data = write(log, recyclable, compress, &written);
        for mode in MODES {
            let seen = read(&data, log, mode);
            prop_assert_eq!(seen.len(), written.len());
            for (seen, written) in seen.into_iter().zip(&written) {
                prop_assert_eq!(seen, Seen::Record(written.clone()));
            }
        }
    }

    #[test]
    fn a_record_in_two_parts_is_written_as_one(lengths in lengths(), cut in 0usize..70_000, recyclable: bool, compress: bool) {
        let records: Vec<_> = lengths.iter().enumerate().map(|(n, l)| record(n, *l)).collect();
        let mut out = Vec::new();
        let mut writer = LogWriter::new(FileNumber(9), recyclable);
        if compress {
            writer.compress_with_zstd(&mut out).unwrap();
        }
        for r in &records {
            let (head, tail) = r.split_at(cut.min(r.len()));
            let put = |out: &mut Vec<u8>| [head, tail].iter().for_each(|part| out.extend_from_slice(part));
            writer.append_with(r.len(), put, &mut out).unwrap();
        }
        prop_assert_eq!(out, write(9, recyclable, compress, &records));
    }

    #[test]
    fn a_torn_tail_loses_the_last_records_only(lengths in lengths(), recyclable: bool, compress: bool, cut in 0usize..200_000) {
        let written: Vec<_> = lengths.iter().enumerate().map(|(n, l)| record(n, *l)).collect();
        let data = write(9, recyclable, compress, &written);
        let cut = cut.min(data.len());
        for mode in MODES {
            let seen = read(&data[..cut], 9, mode);
            let whole = records(&data[..cut], 9, mode);
            prop_assert_eq!(&whole[..], &written[..whole.len()]);
            let damaged = seen.iter().any(|s| matches!(s, Seen::Damage(_)));
            // A cut between two records is no damage in any mode; a cut inside a record is damage
            // in two modes.
            prop_assert!(!damaged || mode.reports_torn_tail());
            prop_assert!(!damaged || matches!(seen.last(), Some(Seen::Damage(_))));
        }
    }

    #[test]
    fn a_flipped_bit_is_never_a_wrong_record(lengths in lengths(), recyclable: bool, compress: bool, at in 0usize..200_000, bit in 0u8..8) {
        let written: Vec<_> = lengths.iter().enumerate().map(|(n, l)| record(n, *l)).collect();
        let mut data = write(9, recyclable, compress, &written);
        prop_assume!(!data.is_empty());
        let at = at % data.len();
        data[at] ^= 1 << bit;
        for mode in MODES {
            // Every record returned was written, in this order. (An empty record equals other empty
            // ones.)
            let mut rest = written.iter();
            for record in records(&data, 9, mode) {
                prop_assert!(rest.any(|w| *w == record));
            }
        }
    }

    #[test]
    fn hostile_bytes_come_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..300), zeros in 0usize..3, log in 0u64..3) {
        let mut data = bytes.clone();
        data.resize(data.len() + zeros * BLOCK_BYTES, 0);
        data.extend_from_slice(&bytes);
        for mode in MODES { read(&data, log, mode); }
    }

    #[test]
    fn hostile_records_with_good_checksums_come_to_an_end(kinds in proptest::collection::vec((prop_oneof![0u8..12, 126u8..134], proptest::collection::vec(any::<u8>(), 0..40)), 0..30)) {
        let mut data = Vec::new();
        for (kind, payload) in &kinds { raw(*kind, 1, payload, &mut data); }
        for mode in MODES { read(&data, 1, mode); }
    }
}

/// Appends a physical record of any type.
fn raw(kind: u8, log: u32, payload: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    out.push(kind);
    if t::is_recyclable(kind) {
        out.extend_from_slice(&log.to_le_bytes());
    }
    out.extend_from_slice(payload);
    let crc = crate::checksum::mask_crc(crc32c::crc32c(&out[start + 6..]));
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn the_last_bytes_of_a_block_stay_zero() {
    for spare in 0..RECYCLABLE_HEADER_BYTES + 2 {
        let first = record(1, BLOCK_BYTES - HEADER_BYTES - spare);
        let data = write(1, false, false, &[first.clone(), b"next".to_vec()]);
        assert_eq!(
            read(&data, 1, RecoveryMode::AbsoluteConsistency),
            [Seen::Record(first), Seen::Record(b"next".to_vec())]
        );
        if spare < HEADER_BYTES {
            assert_eq!(data.len(), BLOCK_BYTES + HEADER_BYTES + 4);
            assert!(data[BLOCK_BYTES - spare..BLOCK_BYTES].iter().all(|b| *b == 0));
        }
    }
}

#[test]
fn damage_in_the_middle_costs_the_rest_of_its_block() {
    let written: Vec<_> = (0..100).map(|n| record(n, 1000)).collect();
    let mut data = write(1, false, false, &written);
    data[2000] ^= 1;
    for mode in MODES {
        let seen = read(&data, 1, mode);
        assert_eq!(seen[0], Seen::Record(written[0].clone()));
        assert_eq!(seen[1], Seen::Damage(1007), "{mode:?}");
        // The record that crosses the block's end lost its beginning.
        assert!(matches!(seen[2], Seen::Damage(32768)));
        assert_eq!(seen[3], Seen::Record(written[33].clone()));
        assert_eq!(*seen.last().unwrap(), Seen::Record(written[99].clone()));
    }
}

#[test]
fn a_recycled_file_ends_where_its_former_life_begins() {
    let old: Vec<_> = (0..40).map(|n| record(n, 3000)).collect();
    let new: Vec<_> = (0..11).map(|n| record(n + 100, 2500)).collect();
    let mut data = write(7, true, false, &old);
    let fresh = write(8, true, false, &new);
    data[..fresh.len()].copy_from_slice(&fresh);
    // The bytes behind the new records begin inside an old record, so their checksum is wrong.
    assert_eq!(records(&data, 8, RecoveryMode::TolerateCorruptedTailRecords), new);
    let seen = read(&data, 8, RecoveryMode::TolerateCorruptedTailRecords);
    assert_eq!(seen.len(), new.len(), "a recycled tail is no damage");
    assert!(matches!(
        read(&data, 8, RecoveryMode::PointInTimeRecovery)[new.len()],
        Seen::Damage(_) | Seen::Old
    ));
    // Old records that begin exactly at the end of the new ones.
    let mut exact = write(8, true, false, &new[..3]);
    exact.extend_from_slice(&write(7, true, false, &old[..2])[..]);
    for mode in MODES {
        let seen = read(&exact, 8, mode);
        assert_eq!(records(&exact, 8, mode), new[..3]);
        let expected_old = mode == RecoveryMode::PointInTimeRecovery;
        assert_eq!(seen.contains(&Seen::Old), expected_old, "{mode:?}");
        assert!(!seen.iter().any(|s| matches!(s, Seen::Damage(_))));
    }
}

#[test]
fn types_of_the_future() {
    let mut data = Vec::new();
    raw(t::FULL, 1, b"a", &mut data);
    raw(0x90, 1, b"ignore me", &mut data);
    raw(t::FULL, 1, b"b", &mut data);
    raw(42, 1, b"do not ignore me", &mut data);
    raw(t::FULL, 1, b"c", &mut data);
    let seen = read(&data, 1, RecoveryMode::AbsoluteConsistency);
    assert_eq!(
        seen,
        [
            Seen::Record(b"a".to_vec()),
            Seen::Record(b"b".to_vec()),
            Seen::Damage(8 + 16 + 8),
            Seen::Record(b"c".to_vec())
        ]
    );
}

#[test]
fn records_out_of_order() {
    let mut data = Vec::new();
    raw(t::MIDDLE, 1, b"a", &mut data); // no start
    raw(t::LAST, 1, b"a", &mut data); // no start
    raw(t::FIRST, 1, b"x", &mut data); // no end
    raw(t::FULL, 1, b"b", &mut data);
    raw(t::FIRST, 1, b"", &mut data); // empty, as old writers left them
    raw(t::FIRST, 1, b"c", &mut data);
    raw(t::MIDDLE, 1, b"d", &mut data);
    raw(t::LAST, 1, b"e", &mut data);
    raw(t::RECYCLABLE_FULL, 1, b"f", &mut data); // recyclable type in a legacy log
    let expected = [
        Seen::Damage(0),
        Seen::Damage(8),
        Seen::Damage(16),
        Seen::Record(b"b".to_vec()),
        Seen::Record(b"cde".to_vec()),
        Seen::Damage(16 + 8 + 8 + 7 + 24),
    ];
    assert_eq!(read(&data, 1, RecoveryMode::SkipAnyCorruptedRecords), expected);
}

#[test]
fn preallocated_space_is_not_damage() {
    let written = vec![record(1, 100), record(2, 200)];
    let mut data = write(1, false, false, &written);
    data.resize(3 * BLOCK_BYTES + 17, 0);
    for mode in MODES {
        assert_eq!(read(&data, 1, mode).len(), 2, "{mode:?}");
    }
}

#[test]
fn side_records() {
    for recyclable in [false, true] {
        let sizes = [
            TimestampSize { cf: ColumnFamilyId(1), bytes: 8 },
            TimestampSize { cf: ColumnFamilyId(5), bytes: 16 },
        ];
        let before = Predecessor { log: FileNumber(3), size_bytes: 12345, last_seq: SeqNo(77) };
        let mut out = Vec::new();
        let mut writer = LogWriter::new(FileNumber(4), recyclable);
        writer.compress_with_zstd(&mut out).unwrap();
        writer.append_predecessor(&before, &mut out);
        writer.append(&record(0, BLOCK_BYTES), &mut out).unwrap();
        writer.append_timestamp_sizes(&sizes[..1], &mut out);
        writer.append_timestamp_sizes(&sizes, &mut out);
        writer.append(b"after", &mut out).unwrap();
        let mut reader = LogReader::new(&out, FileNumber(4), RecoveryMode::AbsoluteConsistency);
        assert_eq!(reader.next_event(), Some(LogEvent::Predecessor(before)));
        let first = reader.next_record().map(|r| r.map(|r| r.bytes.to_vec()));
        assert_eq!(first, Some(Ok(record(0, BLOCK_BYTES))));
        assert_eq!(reader.timestamp_sizes(), []);
        assert_eq!(reader.next_record().unwrap().unwrap().bytes, b"after");
        assert_eq!(reader.timestamp_sizes(), sizes);
        assert_eq!(reader.next_event(), None);
        assert_eq!(reader.position(), out.len() as u64);
    }
}

#[test]
fn bad_side_records() {
    for (kind, payload, ok) in [
        (t::SET_COMPRESSION, &b"\x07\0\0\0"[..], true),
        (t::SET_COMPRESSION, b"\0\0\0\0", true),
        (t::SET_COMPRESSION, b"\x01\0\0\0", false),
        (t::SET_COMPRESSION, b"\x07\0\0", false),
        (t::TIMESTAMP_SIZES, b"\x01\0\0\0\x08\0", true),
        (t::TIMESTAMP_SIZES, b"\x01\0\0\0\x08", false),
        (t::TIMESTAMP_SIZES, b"\x01\0\0\0\0\0", false),
        (t::TIMESTAMP_SIZES, b"\x01\0\0\0\x08\0\x01\0\0\0\x08\0", false),
        (t::PREDECESSOR, &[0; 24], true),
        (t::PREDECESSOR, &[0; 23], false),
    ] {
        let mut data = Vec::new();
        raw(kind, 1, payload, &mut data);
        assert_eq!(read(&data, 1, RecoveryMode::AbsoluteConsistency).is_empty(), ok, "{kind} {payload:?}");
    }
    let mut data = Vec::new();
    raw(t::SET_COMPRESSION, 1, b"\x07\0\0\0", &mut data);
    raw(t::SET_COMPRESSION, 1, b"\x07\0\0\0", &mut data);
    raw(t::FULL, 1, b"not a frame", &mut data);
    assert_eq!(read(&data, 1, RecoveryMode::SkipAnyCorruptedRecords), [Seen::Damage(11), Seen::Damage(22)]);
}

#[test]
fn a_record_that_decompresses_to_too_much_is_refused() {
    let data = write(1, false, true, &[vec![0; 1 << 20], b"next".to_vec()]);
    assert!(data.len() < 1000);
    let mut reader = LogReader::new(&data, FileNumber(1), RecoveryMode::AbsoluteConsistency)
        .with_max_record_bytes(1 << 19);
    assert!(matches!(reader.next_event(), Some(LogEvent::Damage(_))));
    assert!(matches!(reader.next_event(), Some(LogEvent::Record(r)) if r.bytes == b"next"));
}

#[test]
fn appending_goes_on_where_the_file_ended() {
    let mut out = Vec::new();
    let mut writer = LogWriter::new(FileNumber(0), false);
    writer.append(&record(1, 40_000), &mut out).unwrap();
    let mut writer = LogWriter::resume(FileNumber(0), out.len() as u64);
    writer.append(&record(2, 40_000), &mut out).unwrap();
    let mut reader = LogReader::manifest(&out);
    for n in 1..3 {
        assert_eq!(reader.next_record().unwrap().unwrap().bytes, record(n, 40_000));
    }
    assert!(reader.next_record().is_none());
}

/// A power failure may leave the length of a MANIFEST without the last sectors of its last edit.
/// That edit was never acknowledged; other damage is not excused.
#[test]
fn a_manifest_may_lack_the_last_sectors_of_its_last_record() {
    let mut out = Vec::new();
    let mut writer = LogWriter::new(FileNumber(0), false);
    writer.append(&record(1, 300), &mut out).unwrap();
    let first = out.len();
    writer.append(&[7; 900], &mut out).unwrap();
    let read = |bytes: &[u8]| {
        let mut reader = LogReader::manifest(bytes);
        assert_eq!(reader.next_record().unwrap().unwrap().bytes, record(1, 300));
        reader.next_record().map(|record| record.is_ok())
    };
    assert_eq!(read(&out), Some(true));
    // From 1,100 on less than a sector is zero, which a torn write cannot produce.
    for (from, expected) in [(512, None), (1024, None), (1100, Some(false))] {
        let mut torn = out.clone();
        torn[from..].fill(0);
        assert_eq!(read(&torn), expected, "zeroes from {from} on");
        torn.push(1);
        assert_eq!(read(&torn), Some(false), "something is behind it");
    }
    let mut damaged = out.clone();
    damaged[first + 500] ^= 1;
    assert_eq!(read(&damaged), Some(false));
    let mut log = out.clone();
    log[1024..].fill(0);
    let mut reader = LogReader::new(&log, FileNumber(0), RecoveryMode::TolerateCorruptedTailRecords);
    assert!(reader.next_record().unwrap().is_ok());
    assert!(reader.next_record().unwrap().is_err(), "a log of writes is no manifest");
}

#[test]
fn mode_names() {
    for (n, mode) in MODES.into_iter().enumerate() {
        assert_eq!(mode as usize, n);
        assert_eq!(RecoveryMode::from_name(mode.name()), Some(mode));
    }
    assert_eq!(RecoveryMode::from_name("kSomething"), None);
}
