//! The command line of `karstdb bench`: db_bench's flags.
//!
//! Input: the arguments. Output: [`Flags`], typed and with db_bench's defaults; the database
//! options that flags stand for ([`database_options`]); the names of db_bench's flags that this
//! program does not honour.

use super::database_options;
use super::known_flags::KNOWN;
use crate::command_line::{Given, boolean_text, flags, next_flag};
use karst_format::options::nearest;

/// Maximum number of sets of a transaction: their numbers have four digits in the keys.
const MOST_SETS: u64 = 9999;

flags! {
    /// The workloads to run, in order, separated by commas. The suffix `[X3]` repeats one three
    /// times, `[W1]` first runs it as a warm-up.
    benchmarks: String = "filluniquerandom,readrandom,multireadrandom,seekrandom,readseq,readreverse".to_string();
    /// The database. Without one, a database is made in a temporary directory and removed
    /// afterwards.
    db: String = String::new();
    /// Use the database that --db names as it is. Otherwise it is destroyed and created anew.
    use_existing_db: bool = false;
    /// Open read-only, which writes nothing to the directory; also done whenever no workload
    /// writes.
    readonly: bool = false;
    /// Number of keys in the database; random keys are drawn from them.
    num: i64 = 1_000_000;
    /// Number of reads a thread; --num if negative.
    reads: i64 = -1;
    /// Number of writes a thread; --num if negative.
    writes: i64 = -1;
    /// Number of deletes a thread; --num if negative.
    deletes: i64 = -1;
    /// Directory of the backups for backup and restore; `backup` in the database's directory if
    /// empty.
    backup_dir: String = String::new();
    /// Maximum bytes that backup copies per second; 0: no limit.
    backup_rate_limit: u64 = 0;
    /// Directory in which restore makes a database from the latest backup; `restore` in the
    /// database's directory if empty.
    restore_dir: String = String::new();
    /// Maximum bytes that restore copies per second; 0: no limit.
    restore_rate_limit: u64 = 0;
    /// Files that ingestexternalfile ingests by one call, of --num keys each.
    ingest_external_file_batch_size: i32 = 10;
    /// Number of calls that ingestexternalfile makes.
    ingest_external_file_num_batches: i32 = 1;
    /// Insert the blocks that ingestexternalfile reads of the files into the block cache.
    ingest_external_file_fill_cache: bool = true;
    /// Sync the log with each write.
    sync: bool = false;
    /// Write no log.
    disable_wal: bool = false;
    /// Bytes of checksum that protect each entry of a batch: 0 or 8.
    write_batch_protection_bytes_per_key: u64 = 0;
    /// Maximum bytes per second that the writers of a workload write together; 0: no limit.
    benchmark_write_rate_limit: u64 = 0;
    /// Percentage of the operations of readrandomwriterandom that are reads.
    readwritepercent: i32 = 90;
    /// Percentage of the operations of readrandommergerandom that are merges.
    mergereadpercent: i32 = 70;
    /// Keys that merges are spread over; --num if negative.
    merge_keys: i64 = -1;
    /// Keys that the writer of a ...while... workload draws from; 0: --num.
    bgwriter_num: i64 = 0;
    /// The writer of a ...while... workload continues until it has done --writes.
    finish_after_writes: bool = false;
    /// Number of writes between deleted ranges; 0: no range is deleted.
    writes_per_range_tombstone: i64 = 0;
    /// Writes before the first range is deleted.
    writes_before_delete_range: i64 = 0;
    /// Keys in a range that is deleted.
    range_tombstone_width: i64 = 100;
    /// Maximum number of ranges that a thread deletes.
    max_num_range_tombstones: i64 = 0;
    /// Delete the keys of a range one by one instead.
    expand_range_tombstones: bool = false;
    /// Seconds that a workload runs; 0 means that --reads ends it.
    duration: i32 = 0;
    /// Number of operations between checks of the clock for --duration.
    ops_between_duration_checks: i32 = 1000;
    /// Threads that run the workload at the same time.
    threads: i32 = 1;
    /// Jobs in flight on each thread of the coroutine workloads.
    coro_jobs_per_thread: i32 = 1;
    /// Bytes of a key.
    key_size: i32 = 16;
    /// Bytes of a value.
    value_size: i32 = 100;
    /// Size of compressed values, as a fraction of their length.
    compression_ratio: f64 = 0.5;
    /// Lengths of values: fixed (--value_size), uniform or normal (--value_size_min to
    /// --value_size_max).
    value_size_distribution_type: String = "fixed".to_string();
    /// Bytes of the smallest value.
    value_size_min: i32 = 100;
    /// Bytes of the largest value.
    value_size_max: i32 = 102_400;
    /// Percentage of values that are equal.
    same_value_percentage: i32 = 0;
    /// Keys that share one prefix.
    keys_per_prefix: i64 = 0;
    /// Bytes of a key's prefix; also the length of the prefix extractor. 0: none.
    prefix_size: i32 = 0;
    /// Keys in one multi_get, or entries in one write.
    batch_size: i64 = 1;
    /// Distance between the keys of one multi_get; 0 means random keys.
    multiread_stride: i64 = 0;
    /// Kept for db_bench's command lines: multi_get is always batched here.
    multiread_batched: bool = false;
    /// Draw keys from an exponential distribution of this range; 0 means uniformly.
    read_random_exp_range: f64 = 0.0;
    /// Seed of the random generators; 0 means from the clock.
    seed: i64 = 0;
    /// Entries read after each seek.
    seek_nexts: i32 = 0;
    /// Upper bound of each scan of seekrandom, in keys after its start; 0: no bound.
    max_scan_distance: i64 = 0;
    /// seekrandom reads backwards.
    reverse_iterator: bool = false;
    /// Seek whole keys, not within a prefix.
    total_order_seek: bool = false;
    /// An iterator ends with the prefix of its seek key.
    prefix_same_as_start: bool = false;
    /// Choose total order or prefix seek by the upper bound.
    auto_prefix_mode: bool = false;
    /// Bytes of the block cache; -1 means 8 MiB.
    cache_size: i64 = 32 << 20;
    /// Share of the cache kept for metadata.
    cache_high_pri_pool_ratio: f64 = 0.0;
    /// Verify block checksums.
    verify_checksum: bool = true;
    /// Bytes of readahead of scans; 0 means adaptive.
    readahead_size: i32 = 0;
    /// Keep the readahead of a scan across files.
    adaptive_readahead: bool = false;
    /// Read many blocks at a time; false means one at a time. (db_bench defaults to false; here it
    /// costs nothing.)
    async_io: bool = true;
    /// multi_get reads all levels at a time; false means one level after the other.
    optimize_multiget_for_io: bool = true;
    /// Bits per key in the filters of new tables; negative means the options' value, 0 none.
    bloom_bits: f64 = -1.0;
    /// Filters of new tables are Ribbon filters.
    use_ribbon_filter: bool = false;
    /// Column families; a key's number says which one it is in.
    num_column_families: i32 = 1;
    /// Count and print statistics.
    statistics: bool = false;
    /// Print a histogram of latencies.
    histogram: bool = false;
    /// Perf context: 1 disabled, 2 counts, 3 and above counts and times.
    perf_level: i32 = 1;
    /// Number of operations of a thread between reports of progress; 0 means growing steps.
    stats_interval: i64 = 0;
    /// Seconds between reports of progress.
    stats_interval_seconds: i64 = 0;
    /// With --stats_interval: show rocksdb.stats with each report of the first thread, if above 0.
    stats_per_interval: i32 = 0;
    /// Report progress. Without a flag of progress, it is reported only to a terminal.
    progress_reports: bool = true;
    /// Seconds between lines of operations per second in --report_file; 0: no report.
    report_interval_seconds: i64 = 0;
    /// File for --report_interval_seconds.
    report_file: String = "report.csv".to_string();
    /// Trace each workload except replay to this file, which the next one truncates; replay replays
    /// it.
    trace_file: String = String::new();
    /// Speed of replay relative to the traced one; above 0.
    trace_replay_fast_forward: f64 = 1.0;
    /// Threads that replay.
    trace_replay_threads: i32 = 1;
    /// Writes and transactions go through a database that locks keys. With --unordered_write it has
    /// the policy WritePrepared, two write queues, and takes no locks.
    transaction_db: bool = false;
    /// Transactions are validated when they commit.
    optimistic_transaction_db: bool = false;
    /// Keys that a transaction of randomtransaction changes, one in each set; at most 9999.
    transaction_sets: u64 = 2;
    /// Each transaction has a snapshot from its beginning.
    transaction_set_snapshot: bool = false;
    /// Maximum microseconds that randomtransaction sleeps between reading and writing a value.
    transaction_sleep: u64 = 0;
    /// Milliseconds after which a transaction stops waiting for a lock.
    transaction_lock_timeout: u64 = 100;
    /// Action if the newest OPTIONS file cannot be used: refuse, use_older or ignore, a KarstDB
    /// addition.
    damaged_options: String = "refuse".to_string();
    /// Print the CPU time that each workload took, a KarstDB addition.
    cpu: bool = true;
    /// Print one line of JSON for each run of a workload instead of text, a KarstDB addition.
    json: bool = false;
}

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) flags: Flags,
    /// Flags that db_bench knows and that have no effect here, each once, in order of appearance.
    /// Those that are database options are also in `flags.options`.
    pub(crate) not_honoured: Vec<String>,
    pub(crate) help: bool,
}

/// Parses the arguments after `karstdb bench`.
pub(crate) fn parse(args: &[String]) -> Result<Parsed, String> {
    let mut parsed = Parsed { flags: Flags::default(), not_honoured: Vec::new(), help: false };
    let mut rest = args.iter();
    while let Some(given) = next_flag(&mut rest, boolean_kind, unknown) {
        let Given { name, value } = given?;
        let name = name.as_str();
        if name == "help" {
            parsed.help = true;
            continue;
        }
        let boolean = boolean_kind(name) == Some(true);
        if Flags::is_boolean(name).is_some() {
            parsed.flags.set(name, &value)?;
            continue;
        }
        let options = database_options::translate(name, &boolean_text(boolean, &value)?).transpose()?;
        let honoured = options.as_ref().is_some_and(|options| {
            options.iter().all(|(option, _)| database_options::info(option).is_some_and(|info| info.honoured))
        });
        parsed.flags.options.extend(options.unwrap_or_default());
        if !honoured && !parsed.not_honoured.iter().any(|n| n == name) {
            parsed.not_honoured.push(name.to_string());
        }
    }
    check_ranges(&parsed.flags)?;
    Ok(parsed)
}

/// Returns true for a boolean flag, false for one with a value, `None` for an unknown name.
fn boolean_kind(name: &str) -> Option<bool> {
    Flags::is_boolean(name)
        .or_else(|| KNOWN.binary_search_by_key(&name, |(n, _)| n).ok().map(|i| !KNOWN[i].1))
}

fn unknown(name: &str) -> String {
    match nearest(name, Flags::names().chain(KNOWN.iter().map(|(name, _)| *name))) {
        Some(near) => format!("unknown flag --{name}; did you mean --{near}?"),
        None => format!("unknown flag --{name}; `karstdb bench --help` lists them"),
    }
}

fn check_ranges(f: &Flags) -> Result<(), String> {
    let at_least = |name: &str, value: i64, least: i64| {
        if value >= least { Ok(()) } else { Err(format!("flag --{name}: {value} is less than {least}")) }
    };
    at_least("num", f.num, 1)?;
    at_least("threads", f.threads.into(), 1)?;
    at_least("coro_jobs_per_thread", f.coro_jobs_per_thread.into(), 1)?;
    at_least("batch_size", f.batch_size, 1)?;
    at_least("ingest_external_file_batch_size", f.ingest_external_file_batch_size.into(), 1)?;
    at_least("ingest_external_file_num_batches", f.ingest_external_file_num_batches.into(), 1)?;
    at_least("key_size", f.key_size.into(), 1)?;
    at_least("value_size", f.value_size.into(), 0)?;
    at_least("prefix_size", f.prefix_size.into(), 0)?;
    at_least("duration", f.duration.into(), 0)?;
    at_least("ops_between_duration_checks", f.ops_between_duration_checks.into(), 1)?;
    at_least("multiread_stride", f.multiread_stride, 0)?;
    at_least("readahead_size", f.readahead_size.into(), 0)?;
    at_least("readwritepercent", f.readwritepercent.into(), 0)?;
    at_least("value_size_min", f.value_size_min.into(), 0)?;
    at_least("writes_per_range_tombstone", f.writes_per_range_tombstone, 0)?;
    at_least("range_tombstone_width", f.range_tombstone_width, 1)?;
    at_least("max_num_range_tombstones", f.max_num_range_tombstones, 0)?;
    at_least("seek_nexts", f.seek_nexts.into(), 0)?;
    at_least("trace_replay_threads", f.trace_replay_threads.into(), 1)?;
    if f.trace_replay_fast_forward.is_nan() || f.trace_replay_fast_forward <= 0.0 {
        let given = f.trace_replay_fast_forward;
        return Err(format!("flag --trace_replay_fast_forward: {given} is not above 0"));
    }
    at_least("num_column_families", f.num_column_families.into(), 1)?;
    if ![0, 8].contains(&f.write_batch_protection_bytes_per_key) {
        let given = f.write_batch_protection_bytes_per_key;
        return Err(format!("flag --write_batch_protection_bytes_per_key: {given} is neither 0 nor 8"));
    }
    if !(1..=MOST_SETS).contains(&f.transaction_sets) {
        let given = f.transaction_sets;
        return Err(format!("flag --transaction_sets: {given} is not between 1 and {MOST_SETS}"));
    }
    if i64::try_from(f.transaction_lock_timeout).is_err() {
        return Err(format!("flag --transaction_lock_timeout: {} is too long", f.transaction_lock_timeout));
    }
    if f.readwritepercent > 100 || f.mergereadpercent > 100 || f.same_value_percentage > 100 {
        return Err("a flag that is a percentage is above 100".into());
    }
    if f.value_size_max < f.value_size_min {
        let (min, max) = (f.value_size_min, f.value_size_max);
        return Err(format!("flag --value_size_max: {max} is less than --value_size_min {min}"));
    }
    if !["fixed", "uniform", "normal"].contains(&f.value_size_distribution_type.as_str()) {
        let given = &f.value_size_distribution_type;
        return Err(format!(
            "flag --value_size_distribution_type: {given} is none of fixed, uniform, normal"
        ));
    }
    if f.prefix_size > f.key_size {
        return Err(format!(
            "flag --prefix_size: {} is longer than --key_size {}",
            f.prefix_size, f.key_size
        ));
    }
    if f.multiread_stride > 0 && f.batch_size.saturating_mul(f.multiread_stride) > f.num {
        return Err(format!(
            "flag --multiread_stride: {} keys {} apart do not fit into --num {}",
            f.batch_size, f.multiread_stride, f.num
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn every_form_of_a_flag() {
        let p = parse(&args("-db=/x --num 5000000 -statistics --noasync_io -use_direct_reads=true")).unwrap();
        assert_eq!((p.flags.db.as_str(), p.flags.num), ("/x", 5_000_000));
        assert!(p.flags.statistics && !p.flags.async_io);
        assert_eq!(p.flags.options, [("use_direct_reads".to_string(), "true".to_string())]);
        assert!(p.not_honoured.is_empty());
    }

    #[test]
    fn a_known_flag_is_named_once_and_an_unknown_one_refused() {
        let p = parse(&args("-enable_numa -enable_numa=false -mmap_read -sync")).unwrap();
        assert_eq!(p.not_honoured, ["enable_numa", "mmap_read"]);
        // Also inside of nested options.
        let nested =
            parse(&args("-fifo_age_for_warm=9 -compression_level=3 -universal_max_merge_width=4")).unwrap();
        assert_eq!(nested.not_honoured, ["fifo_age_for_warm"]);
        assert_eq!(p.flags.options, [("allow_mmap_reads".to_string(), "true".to_string())]);
        assert!(p.flags.sync);
        assert!(parse(&args("-nosuchflag=1")).unwrap_err().contains("unknown flag --nosuchflag"));
        assert!(parse(&args("-num=ten")).unwrap_err().contains("not a whole number"));
        assert!(parse(&args("-threads=0")).unwrap_err().contains("less than 1"));
        assert!(parse(&args("-num")).unwrap_err().contains("needs a value"));
    }

    #[test]
    fn the_known_names_are_sorted() {
        assert!(KNOWN.is_sorted_by_key(|(n, _)| n));
    }
}
