//! `rocksdb.cfstats`: RocksDB's table of levels with what flushes and compactions have done.
//!
//! Compat: the interval is the time since the database was opened; neither queries nor dumps of
//! statistics restart it.

use super::tree::{blob_totals, human_bytes};
use karst_base::pacing::StallCounts;
use karst_base::stats::level_jobs::{FamilyJobs, JobSums};
use karst_lsm::Version;
use karst_storage::superversion::SuperVersion;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

const MIB: f64 = 1048576.0;
const GIB: f64 = MIB * 1024.0;

/// Columns after the size.
const COLUMNS: &[&str] = &[
    "Score",
    "Read(GB)",
    "Rn(GB)",
    "Rnp1(GB)",
    "Write(GB)",
    "WPreComp(GB)",
    "Wnew(GB)",
    "Moved(GB)",
    "W-Amp",
    "Rd(MB/s)",
    "Wr(MB/s)",
    "Comp(sec)",
    "CompMergeCPU(sec)",
    "Comp(cnt)",
    "Avg(sec)",
    "KeyIn",
    "KeyDrop",
    "Rblob(GB)",
    "Wblob(GB)",
];

/// Data of the table in addition to the tree itself.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Sums of flushes and compactions.
    pub(super) jobs: FamilyJobs,
    /// Number of times the family stalled writers, by reason.
    pub(super) stalls: StallCounts,
    /// Compaction score of each level.
    pub(super) scores: Vec<f64>,
    /// Files being compacted, by level.
    pub(super) being_compacted: Vec<usize>,
    pub(super) pending_bytes: u64,
}

struct Row<'a> {
    name: &'a str,
    files: usize,
    being_compacted: usize,
    bytes: u64,
    score: f64,
    /// Bytes that entered the level from above: the denominator of write amplification.
    ingested_bytes: u64,
}

/// The values of a row, in the order of its columns.
struct Figures {
    read_gib: f64,
    read_above_gib: f64,
    read_level_gib: f64,
    written_gib: f64,
    raw_gib: f64,
    new_gib: f64,
    moved_gib: f64,
    amplification: f64,
    read_rate: f64,
    write_rate: f64,
    seconds: f64,
    cpu_seconds: f64,
    average_seconds: f64,
    read_blob_gib: f64,
    written_blob_gib: f64,
}

impl Figures {
    fn of(row: &Row<'_>, sums: &JobSums) -> Figures {
        let read = sums.read_above_bytes + sums.read_level_bytes + sums.read_blob_bytes;
        let written = sums.written_bytes + sums.written_blob_bytes;
        let seconds = (sums.micros + 1) as f64 / 1e6;
        let gib = |bytes: u64| bytes as f64 / GIB;
        let per = |n: f64, of: u64| if of == 0 { 0.0 } else { n / of as f64 };
        Figures {
            read_gib: gib(read),
            read_above_gib: gib(sums.read_above_bytes),
            read_level_gib: gib(sums.read_level_bytes),
            written_gib: gib(sums.written_bytes),
            raw_gib: gib(sums.raw_bytes),
            new_gib: (sums.written_bytes as f64 - sums.read_level_bytes as f64) / GIB,
            moved_gib: gib(sums.moved_bytes),
            amplification: per(written as f64, row.ingested_bytes),
            read_rate: read as f64 / MIB / seconds,
            write_rate: written as f64 / MIB / seconds,
            seconds: sums.micros as f64 / 1e6,
            cpu_seconds: sums.cpu_micros as f64 / 1e6,
            average_seconds: per(sums.micros as f64 / 1e6, sums.count),
            read_blob_gib: gib(sums.read_blob_bytes),
            written_blob_gib: gib(sums.written_blob_bytes),
        }
    }
}

fn write_row(text: &mut String, row: &Row<'_>, sums: &JobSums) {
    let f = Figures::of(row, sums);
    let _ = writeln!(
        text,
        "{:>4} {:6}/{:<3} {:>10} {:5.1} {:8.1} {:7.1} {:8.1} {:9.1} {:9.1} {:8.1} {:9.1} {:5.1} {:8.1} {:8.1} {:9.2} {:17.2} {:9} {:8.3} {:>7} {:>6} {:9.1} {:9.1}",
        row.name,
        row.files,
        row.being_compacted,
        human_bytes(row.bytes),
        row.score,
        f.read_gib,
        f.read_above_gib,
        f.read_level_gib,
        f.written_gib,
        f.raw_gib,
        f.new_gib,
        f.moved_gib,
        f.amplification,
        f.read_rate,
        f.write_rate,
        f.seconds,
        f.cpu_seconds,
        sums.count,
        f.average_seconds,
        human_count(sums.input_records),
        human_count(sums.dropped_records),
        f.read_blob_gib,
        f.written_blob_gib,
    );
}

/// Adds the row to the map, under RocksDB's names.
fn put_row(map: &mut BTreeMap<String, String>, row: &Row<'_>, sums: &JobSums) {
    let f = Figures::of(row, sums);
    let all = [
        ("NumFiles", row.files as f64),
        ("CompactedFiles", row.being_compacted as f64),
        ("SizeBytes", row.bytes as f64),
        ("Score", row.score),
        ("ReadGB", f.read_gib),
        ("RnGB", f.read_above_gib),
        ("Rnp1GB", f.read_level_gib),
        ("WriteGB", f.written_gib),
        ("WPreCompGB", f.raw_gib),
        ("WnewGB", f.new_gib),
        ("MovedGB", f.moved_gib),
        ("WriteAmp", f.amplification),
        ("ReadMBps", f.read_rate),
        ("WriteMBps", f.write_rate),
        ("CompSec", f.seconds),
        ("CompMergeCPU", f.cpu_seconds),
        ("CompCount", sums.count as f64),
        ("AvgSec", f.average_seconds),
        ("KeyIn", sums.input_records as f64),
        ("KeyDrop", sums.dropped_records as f64),
        ("RblobGB", f.read_blob_gib),
        ("WblobGB", f.written_blob_gib),
    ];
    map.extend(all.map(|(name, n)| (format!("compaction.{}.{name}", row.name), format!("{n:.6}"))));
}

/// Calls `each` for every level that has files or has had jobs, then for their sum, which it
/// returns with its row.
fn rows<'v>(
    version: &'v Version,
    activity: &Activity,
    mut each: impl FnMut(&Row<'_>, &JobSums),
) -> (Row<'v>, JobSums) {
    let FamilyJobs { levels: by_level, flushed_bytes: flushed, .. } = &activity.jobs;
    let mut total = JobSums::default();
    for level in version.levels() {
        let index = level.level().index();
        let sums = by_level.get(index).copied().unwrap_or_default();
        total.add(&sums);
        if level.is_empty() && sums == JobSums::default() {
            continue;
        }
        let row = Row {
            name: &format!("L{index}"),
            files: level.len(),
            being_compacted: activity.being_compacted.get(index).copied().unwrap_or(0),
            bytes: level.size_bytes(),
            score: activity.scores.get(index).copied().unwrap_or(0.0),
            ingested_bytes: if index == 0 { *flushed } else { sums.read_above_bytes + sums.read_blob_bytes },
        };
        each(&row, &sums);
    }
    let sum = Row {
        name: "Sum",
        files: version.file_count(),
        being_compacted: activity.being_compacted.iter().sum(),
        bytes: version.size_bytes(),
        score: 0.0,
        ingested_bytes: *flushed,
    };
    each(&sum, &total);
    (sum, total)
}

/// Returns `rocksdb.cfstats` as a map.
pub(super) fn family_stats_map(view: &SuperVersion, activity: &Activity) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    rows(view.version(), activity, |row, sums| put_row(&mut map, row, sums));
    map.extend(stall_map(&activity.stalls));
    map
}

/// Returns `rocksdb.cfstats`.
pub(super) fn family_stats(view: &SuperVersion, activity: &Activity, uptime: Duration) -> String {
    let version = view.version();
    let mut text = header(&view.config().name, "Level");
    let FamilyJobs { priorities, flushed_bytes: flushed, .. } = &activity.jobs;
    let (sum, total) = rows(version, activity, |row, sums| write_row(&mut text, row, sums));
    let nothing = Row { name: "Int", files: 0, being_compacted: 0, bytes: 0, ..sum };
    write_row(&mut text, &nothing, &total);
    text.push_str(&header(&view.config().name, "Priority"));
    for (name, sums) in ["Bottom", "Low", "High"].into_iter().zip(priorities) {
        if sums.micros > 0 {
            write_row(&mut text, &Row { name, ingested_bytes: 0, ..nothing }, sums);
        }
    }
    let blobs = blob_totals(version);
    let _ = writeln!(
        text,
        "\nBlob file count: {}, total size: {:.1} GB, garbage size: {:.1} GB, space amp: {:.1}\n",
        version.blob_files().len(),
        blobs.file_bytes as f64 / GIB,
        blobs.garbage_bytes as f64 / GIB,
        blobs.space_amplification()
    );
    let seconds = uptime.as_secs_f64();
    let _ = writeln!(text, "Uptime(secs): {seconds:.1} total, {seconds:.1} interval");
    let flushed = *flushed as f64 / GIB;
    let _ = writeln!(text, "Flush(GB): cumulative {flushed:.3}, interval {flushed:.3}");
    text.push_str("AddFile(GB): cumulative 0.000, interval 0.000\n");
    text.push_str(
        "AddFile(Total Files): cumulative 0, interval 0\nAddFile(L0 Files): cumulative 0, interval 0\n",
    );
    text.push_str("AddFile(Keys): cumulative 0, interval 0\n");
    let read = total.read_above_bytes + total.read_level_bytes + total.read_blob_bytes;
    let written = total.written_bytes + total.written_blob_bytes;
    let rate = |bytes: u64| bytes as f64 / MIB / seconds.max(0.001);
    for which in ["Cumulative", "Interval"] {
        let _ = writeln!(
            text,
            "{which} compaction: {:.2} GB write, {:.2} MB/s write, {:.2} GB read, {:.2} MB/s read, {:.1} seconds",
            written as f64 / GIB,
            rate(written),
            read as f64 / GIB,
            rate(read),
            total.micros as f64 / 1e6
        );
    }
    let _ = writeln!(text, "Estimated pending compaction bytes: {}", activity.pending_bytes);
    text.push_str(&stall_text(&activity.stalls));
    text
}

fn header(family: &str, group_by: &str) -> String {
    let columns = format!("{group_by}    Files   Size     {}\n", COLUMNS.join(" "));
    format!("\n** Compaction Stats [{family}] **\n{columns}{}\n", "-".repeat(columns.len()))
}

/// Returns the number of write stalls of a column family, by RocksDB's names of the reasons.
fn stall_counts(stalls: &StallCounts) -> [(&'static str, u64); 10] {
    let (stops, delays) = stalls.totals();
    [
        ("cf-l0-file-count-limit-delays-with-ongoing-compaction", stalls.l0_delays_compacting),
        ("cf-l0-file-count-limit-stops-with-ongoing-compaction", stalls.l0_stops_compacting),
        ("l0-file-count-limit-delays", stalls.l0_delays),
        ("l0-file-count-limit-stops", stalls.l0_stops),
        ("memtable-limit-delays", stalls.memtable_delays),
        ("memtable-limit-stops", stalls.memtable_stops),
        ("pending-compaction-bytes-delays", stalls.pending_delays),
        ("pending-compaction-bytes-stops", stalls.pending_stops),
        ("total-delays", delays),
        ("total-stops", stops),
    ]
}

/// Returns `rocksdb.cf-write-stall-stats` as a map.
pub(super) fn stall_map(stalls: &StallCounts) -> BTreeMap<String, String> {
    stall_counts(stalls).map(|(name, count)| (name.to_owned(), count.to_string())).into()
}

/// Returns `rocksdb.cf-write-stall-stats`.
pub(super) fn stall_text(stalls: &StallCounts) -> String {
    let (stops, delays) = stalls.totals();
    let counts = stall_counts(stalls).map(|(name, count)| format!("{name}: {count}"));
    let interval = match stops + delays {
        0 => String::new(),
        all => format!("interval: {all} total count\n"),
    };
    format!("Write Stall (count): {}\n{interval}", counts.join(", "))
}

/// Formats a number in RocksDB's short form.
pub(super) fn human_count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{}K", n / 1000),
        10_000_000..10_000_000_000 => format!("{}M", n / 1_000_000),
        _ => format!("{}G", n / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_rocksdb_prints_them() {
        let shown = [9_999, 10_000, 9_999_999, 10_000_000, 20_000_000_000].map(human_count);
        assert_eq!(shown, ["9999", "10K", "9999K", "10M", "20G"]);
    }

    #[test]
    fn a_row_lines_up_with_rocksdbs() {
        let mut text = String::new();
        let row = Row {
            name: "L1",
            files: 3,
            being_compacted: 1,
            bytes: 3 << 20,
            score: 0.5,
            ingested_bytes: 1 << 30,
        };
        let sums = JobSums {
            count: 2,
            micros: 999_999,
            cpu_micros: 250_000,
            read_above_bytes: 1 << 30,
            written_bytes: 2 << 30,
            input_records: 12_345,
            ..JobSums::default()
        };
        write_row(&mut text, &row, &sums);
        assert_eq!(
            text,
            "  L1      3/1      3.00 MB   0.5      1.0     1.0      0.0       2.0       0.0      2.0       0.0   2.0   1024.0   2048.0      1.00              0.25         2    0.500     12K      0       0.0       0.0\n"
        );
    }
}
