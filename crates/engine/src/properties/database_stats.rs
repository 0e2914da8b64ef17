//! `rocksdb.dbstats`: counts of writes and logs, since the database was opened and since the last
//! query.
//!
//! In: counts that the commit pipeline and write-stall control keep. Out: RocksDB's text.
//! Compat: a "commit group" is one turn of a leader at the log, with all batches that it wrote;
//! RocksDB counts the leaders.

use super::family_stats::human_count;
use karst_base::stats::write_counts::WriteCounts;
use karst_base::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

const MIB: f64 = 1048576.0;
const GIB: f64 = MIB * 1024.0;

/// Uptime and counts at the last query: the start of the interval.
#[derive(Debug, Default)]
pub(crate) struct LastAsked(Mutex<(Duration, WriteCounts)>);

/// Returns `rocksdb.dbstats`. `now` returns the database's uptime and its write counts.
pub(super) fn database_stats(
    last: &LastAsked,
    now: impl FnOnce() -> (Duration, WriteCounts),
    budget_stops: u64,
) -> String {
    let ((then, earlier), (uptime, counts)) = {
        let mut last = last.0.lock();
        // Read under the lock, so that of two concurrent queries the second has the later counts.
        let now = now();
        (std::mem::replace(&mut *last, now), now)
    };
    let interval = uptime.saturating_sub(then);
    let mut text = format!(
        "\n** DB Stats **\nUptime(secs): {:.1} total, {:.1} interval\n",
        uptime.as_secs_f64(),
        interval.as_secs_f64()
    );
    write_counts(&mut text, "Cumulative", &counts, uptime, ("GB", GIB));
    write_counts(&mut text, "Interval", &counts.since(&earlier), interval, ("MB", MIB));
    text.push_str(&stall_text(budget_stops));
    text
}

/// RocksDB's name of the stall that blocks the writers of all column families.
const BUDGET_STOPS: &str = "write-buffer-manager-limit-stops";

/// Returns `rocksdb.db-write-stall-stats`.
pub(super) fn stall_text(budget_stops: u64) -> String {
    format!("Write Stall (count): {BUDGET_STOPS}: {budget_stops}\n")
}

/// Returns `rocksdb.db-write-stall-stats` as a map.
pub(super) fn stall_map(budget_stops: u64) -> BTreeMap<String, String> {
    BTreeMap::from([(BUDGET_STOPS.to_owned(), budget_stops.to_string())])
}

/// Returns `rocksdb.dbstats` as a map: counts since the database was opened.
pub(super) fn database_map(uptime: Duration, c: &WriteCounts, budget_stops: u64) -> BTreeMap<String, String> {
    let counts = [
        ("db.user_bytes_written", c.bytes),
        ("db.user_keys_written", c.keys),
        ("db.user_writes_by_self", c.groups),
        ("db.user_writes_by_other", c.writes.saturating_sub(c.groups)),
        ("db.user_writes_with_wal", c.logged),
        ("db.wal_bytes_written", c.log_bytes),
        ("db.wal_syncs", c.log_syncs),
        ("db.user_write_stall_micros", c.stall_micros),
        (BUDGET_STOPS, budget_stops),
    ];
    let counts = counts.map(|(name, count)| (name.to_owned(), count.to_string()));
    let uptime = ("db.uptime".to_owned(), format!("{:.6}", uptime.as_secs_f64()));
    counts.into_iter().chain([uptime]).collect()
}

fn write_counts(text: &mut String, which: &str, c: &WriteCounts, span: Duration, unit: (&str, f64)) {
    let seconds = span.as_secs_f64().max(0.001);
    let per = |n: u64, of: u64| n as f64 / of.max(1) as f64;
    let _ = writeln!(
        text,
        "{which} writes: {} writes, {} keys, {} commit groups, {:.1} writes per commit group, ingest: {:.2} {}, {:.2} MB/s",
        human_count(c.writes),
        human_count(c.keys),
        human_count(c.groups),
        per(c.writes, c.groups),
        c.bytes as f64 / unit.1,
        unit.0,
        c.bytes as f64 / MIB / seconds
    );
    let _ = writeln!(
        text,
        "{which} WAL: {} writes, {} syncs, {:.2} writes per sync, written: {:.2} GB, {:.2} MB/s",
        human_count(c.logged),
        human_count(c.log_syncs),
        per(c.logged, c.log_syncs),
        c.log_bytes as f64 / GIB,
        c.log_bytes as f64 / MIB / seconds
    );
    let _ = writeln!(
        text,
        "{which} stall: {}, {:.1} percent",
        clock(c.stall_micros),
        c.stall_micros as f64 / 10_000.0 / seconds
    );
}

/// Formats a time span in RocksDB's fixed format.
fn clock(micros: u64) -> String {
    let minutes = micros / 60_000_000;
    let seconds = (micros % 60_000_000) as f64 / 1e6;
    format!("{:02}:{:02}:{seconds:05.3} H:M:S", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_begins_where_somebody_last_asked() {
        let last = LastAsked::default();
        let first = WriteCounts {
            writes: 30_000,
            keys: 60_000,
            bytes: 3 << 30,
            logged: 20_000,
            groups: 10_000,
            task_groups: 100,
            log_bytes: 2 << 30,
            log_syncs: 10,
            stall_micros: 3_723_004_000,
        };
        let text = database_stats(&last, || (Duration::from_secs(10), first), 7);
        assert_eq!(
            text,
            "\n** DB Stats **\nUptime(secs): 10.0 total, 10.0 interval\n\
             Cumulative writes: 30K writes, 60K keys, 10K commit groups, 3.0 writes per commit group, ingest: 3.00 GB, 307.20 MB/s\n\
             Cumulative WAL: 20K writes, 10 syncs, 2000.00 writes per sync, written: 2.00 GB, 204.80 MB/s\n\
             Cumulative stall: 01:02:3.004 H:M:S, 37230.0 percent\n\
             Interval writes: 30K writes, 60K keys, 10K commit groups, 3.0 writes per commit group, ingest: 3072.00 MB, 307.20 MB/s\n\
             Interval WAL: 20K writes, 10 syncs, 2000.00 writes per sync, written: 2.00 GB, 204.80 MB/s\n\
             Interval stall: 01:02:3.004 H:M:S, 37230.0 percent\n\
             Write Stall (count): write-buffer-manager-limit-stops: 7\n"
        );
        let map = database_map(Duration::from_millis(1500), &first, 7);
        let expected = [
            ("db.uptime", "1.500000"),
            ("db.user_bytes_written", "3221225472"),
            ("db.user_keys_written", "60000"),
            ("db.user_write_stall_micros", "3723004000"),
            ("db.user_writes_by_other", "20000"),
            ("db.user_writes_by_self", "10000"),
            ("db.user_writes_with_wal", "20000"),
            ("db.wal_bytes_written", "2147483648"),
            ("db.wal_syncs", "10"),
            ("write-buffer-manager-limit-stops", "7"),
        ];
        let map: Vec<_> = map.iter().map(|(name, text)| (&**name, &**text)).collect();
        assert_eq!(map, expected);
        let second = WriteCounts { writes: 30_001, bytes: (3 << 30) + (1 << 20), ..first };
        let text = database_stats(&last, || (Duration::from_secs(12), second), 7);
        assert!(text.contains("Uptime(secs): 12.0 total, 2.0 interval\n"), "{text}");
        assert!(
            text.contains("Interval writes: 1 writes, 0 keys, 0 commit groups, 1.0 writes per commit group, ingest: 1.00 MB, 0.50 MB/s\n"),
            "{text}"
        );
    }
}
