//! `rocksdb.cfstats`: RocksDB's table of levels with what flushes and compactions have done.
//!
//! Compat: the interval is the time since the database was opened, since nothing dumps statistics
//! on its own.

use std::fmt::Write as _;
use std::time::Duration;

use super::tree::{blob_totals, human_bytes};
use karst_base::pacing::StallCounts;
use karst_base::stats::level_jobs::{FamilyJobs, JobSums};
use karst_storage::superversion::SuperVersion;

const MIB: f64 = 1048576.0;
const GIB: f64 = MIB * 1024.0;

/// Columns behind the size.
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

/// What the table shows beside the tree itself.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// What jobs have done.
    pub(super) jobs: FamilyJobs,
    /// How often the family held writers up.
    pub(super) stalls: StallCounts,
    /// How urgent each level's compaction is.
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
    /// What write amplification is counted against.
    ingested_bytes: u64,
}

fn write_row(text: &mut String, row: &Row<'_>, sums: &JobSums) {
    let read = sums.read_above_bytes + sums.read_level_bytes + sums.read_blob_bytes;
    let written = sums.written_bytes + sums.written_blob_bytes;
    let seconds = (sums.micros + 1) as f64 / 1e6;
    let gib = |bytes: u64| bytes as f64 / GIB;
    let amplification =
        if row.ingested_bytes == 0 { 0.0 } else { written as f64 / row.ingested_bytes as f64 };
    let average = if sums.count == 0 { 0.0 } else { sums.micros as f64 / 1e6 / sums.count as f64 };
    let _ = writeln!(
        text,
        "{:>4} {:6}/{:<3} {:>10} {:5.1} {:8.1} {:7.1} {:8.1} {:9.1} {:9.1} {:8.1} {:9.1} {:5.1} {:8.1} {:8.1} {:9.2} {:17.2} {:9} {:8.3} {:>7} {:>6} {:9.1} {:9.1}",
        row.name,
        row.files,
        row.being_compacted,
        human_bytes(row.bytes),
        row.score,
        gib(read),
        gib(sums.read_above_bytes),
        gib(sums.read_level_bytes),
        gib(sums.written_bytes),
        gib(sums.raw_bytes),
        (sums.written_bytes as f64 - sums.read_level_bytes as f64) / GIB,
        gib(sums.moved_bytes),
        amplification,
        read as f64 / MIB / seconds,
        written as f64 / MIB / seconds,
        sums.micros as f64 / 1e6,
        sums.cpu_micros as f64 / 1e6,
        sums.count,
        average,
        human_count(sums.input_records),
        human_count(sums.dropped_records),
        gib(sums.read_blob_bytes),
        gib(sums.written_blob_bytes),
    );
}

/// `rocksdb.cfstats`.
pub(super) fn family_stats(view: &SuperVersion, activity: &Activity, uptime: Duration) -> String {
    let version = view.version();
    let mut text = header(&view.config().name, "Level");
    let FamilyJobs { levels: by_level, priorities, flushed_bytes: flushed } = &activity.jobs;
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
        write_row(&mut text, &row, &sums);
    }
    let sum = Row {
        name: "Sum",
        files: version.file_count(),
        being_compacted: activity.being_compacted.iter().sum(),
        bytes: version.size_bytes(),
        score: 0.0,
        ingested_bytes: *flushed,
    };
    write_row(&mut text, &sum, &total);
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

/// `rocksdb.cf-write-stall-stats`.
pub(super) fn stall_text(stalls: &StallCounts) -> String {
    let (stops, delays) = stalls.totals();
    let counts = [
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
    ];
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name}: {count}")).collect();
    let interval = match stops + delays {
        0 => String::new(),
        all => format!("interval: {all} total count\n"),
    };
    format!("Write Stall (count): {}\n{interval}", counts.join(", "))
}

/// A number as RocksDB shows it to people.
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
