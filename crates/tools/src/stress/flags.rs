//! The command line of `karstdb stress`: db_stress's flag names where a flag has the same meaning,
//! and crash_test.py's `-duration` and `-interval`.
//!
//! In: the arguments. Out: [`Flags`], with the database options that the user sets for every life.

use crate::bench::{info, translate};
use crate::command_line::{Given, Span, boolean_text, flags, next_flag};
use karst_format::options::nearest;
use std::time::Duration;

flags! {
    /// Directory of the database. Without it, the database is made in a temporary directory, which
    /// is removed if the run finds no error.
    db: String = String::new();
    /// Directory of the expected state; by default the database's path with `.expected` appended.
    expected_values_dir: String = String::new();
    /// Remove the database and its expected state first. Otherwise the run continues with those of
    /// the run before.
    destroy_db_initially: bool = false;
    /// Duration of the run: 90, 90s, 15m, 2h.
    duration: Span = Span(Duration::from_secs(60));
    /// Average time until the database's process is killed; 0: never.
    interval: Span = Span(Duration::from_secs(10));
    /// One in N lives (processes) closes the database and exits, rather than being killed by
    /// SIGKILL; 0: none.
    close_one_in: u64 = 6;
    /// One in N lives is killed within 120 ms, often while it opens the database; 0: none.
    kill_in_opening_one_in: u64 = 8;
    /// Seed of the options and operations; 0: taken from the clock.
    seed: u64 = 0;
    /// Operations of each thread in a life, divided among its futures; 0: unlimited.
    ops_per_thread: u64 = 0;
    /// Number of threads.
    threads: u64 = 4;
    /// Number of those threads that run many operations at a time through the asynchronous calls.
    async_threads: u64 = 1;
    /// Operations in flight on each asynchronous thread.
    async_jobs: u64 = 16;
    /// Approximate number of keys in each column family.
    max_key: u64 = 20_000;
    /// Number of column families. They alternate between counters (uint64add) and lists (string
    /// append).
    column_families: u64 = 4;
    /// Percentage of operations that are gets and multi_gets.
    readpercent: u64 = 20;
    /// Percentage of operations that are scans of a prefix.
    prefixpercent: u64 = 5;
    /// Percentage of operations that are other scans, or sums of all accounts.
    iterpercent: u64 = 10;
    /// Percentage of operations that are batches of puts, merges and single deletions.
    writepercent: u64 = 45;
    /// Percentage of operations that are batches of deletions.
    delpercent: u64 = 10;
    /// Percentage of operations that delete a range.
    delrangepercent: u64 = 3;
    /// Percentage of operations that move an amount from one account to another.
    transferpercent: u64 = 7;
    /// Percentage of writes that are transactions, in lives whose database supports them.
    txnpercent: u64 = 30;
    /// Percentage of lives whose database supports transactions: pessimistic ones with write policy
    /// WriteCommitted or WritePrepared, or optimistic ones.
    txn_lives_percent: u64 = 60;
    /// One in N writes is synced; 0: none.
    sync_one_in: u64 = 50;
    /// One in N writes skips the log, and is acknowledged only after a flush; 0: none.
    disable_wal_one_in: u64 = 500;
    /// One in N operations is followed by a flush of one or all column families; 0: none.
    flush_one_in: u64 = 2000;
    /// One in N operations is followed by a compaction of a key range; 0: none.
    compact_range_one_in: u64 = 10_000;
    /// One in N operations is followed by a compaction of up to 3 files; 0: none.
    compact_files_one_in: u64 = 10_000;
    /// One in N operations is followed by a change of an option; 0: none.
    set_options_one_in: u64 = 3000;
    /// One in N operations is followed by a snapshot, which is read at once and again later; 0:
    /// none.
    acquire_snapshot_one_in: u64 = 300;
    /// Maximum number of operations of its thread or future for which a snapshot is held.
    snapshot_hold_ops: u64 = 200;
    /// One in N operations of the first thread is followed by the next of three steps on an extra
    /// column family: create, fill, drop; 0: none.
    clear_column_family_one_in: u64 = 500;
    /// One in N operations is followed by a pause of background work for up to 30 ms; 0: none.
    pause_background_one_in: u64 = 20_000;
    /// One in N operations is followed by reads of properties; 0: none.
    get_property_one_in: u64 = 2000;
    /// One in N operations is followed by a sync of the log; 0: none.
    sync_wal_one_in: u64 = 2000;
    /// One in N operations is followed by a checkpoint, which is opened and compared with the
    /// expected state; 0: none.
    checkpoint_one_in: u64 = 2000;
    /// One in N operations is followed by a backup, which is restored elsewhere and compared with
    /// the expected state; 0: none.
    backup_one_in: u64 = 5000;
    /// One in N lives begins with a backup of the whole database, which is kept, and a copy, all
    /// keys of which are verified; 0: none.
    whole_copy_one_in: u64 = 5;
    /// One in N lives begins by restoring that backup in place of the database; 0: none.
    restore_in_place_one_in: u64 = 5;
    /// One in N operations of the first thread is followed by the export and import of the extra
    /// column family, or by dropping the imported one; 0: none.
    import_column_family_one_in: u64 = 1000;
    /// One in N operations of the first thread is followed by clipping the imported column family;
    /// 0: none.
    clip_column_family_one_in: u64 = 2000;
    /// Size in bytes of user timestamps in an additional column family of a new database: 8, or 0
    /// for no such family. By default every second seed has one. With it, no life uses write policy
    /// WritePrepared.
    user_timestamp_size: u64 = 8;
    /// One in N operations of the first thread is followed by a write to the column family with
    /// timestamps, and by reads at a timestamp; 0: none.
    timestamped_write_one_in: u64 = 50;
    /// One in N operations of the first thread is followed by a batch or a file for a column family
    /// with cf_allow_ingest_behind; 0: none.
    ingest_behind_one_in: u64 = 300;
    /// One in N operations of the first thread is followed by a bulk load of another database,
    /// which is verified; 0: none.
    bulk_load_one_in: u64 = 5000;
    /// One in N writes is ingested as files; 0: none.
    ingest_external_file_one_in: u64 = 200;
    /// Draw random options for each life. Otherwise options have their defaults or the command
    /// line's values.
    random_options: bool = true;
    /// Time without a finished operation after which a life counts as hung.
    hang_after: Span = Span(Duration::from_secs(120));
    /// Interval of the progress lines; 0: none. Unless it is given, progress is shown only on a
    /// terminal.
    progress_every: Span = Span(Duration::from_secs(5));
    /// Print the report as one line of JSON.
    json: bool = false;
    /// Internal: run the life of this number in this process.
    life: i64 = -1;
    /// Internal: a life that verifies and changes nothing.
    check_only: bool = false;
}

/// Parses the arguments after `karstdb stress`; returns `None` if help was requested.
pub(crate) fn parse(args: &[String]) -> Result<Option<Flags>, String> {
    let (mut flags, mut rest) = (Flags::default(), args.iter());
    while let Some(given) = next_flag(&mut rest, kind_of, unknown) {
        let Given { name, value } = given?;
        if name == "help" {
            return Ok(None);
        }
        if Flags::is_boolean(&name).is_some() {
            flags.set(&name, &value)?;
            continue;
        }
        let value = boolean_text(kind_of(&name) == Some(true), &value)?;
        flags.options.extend(translate(&name, &value).transpose()?.unwrap_or_default());
    }
    check(&flags)?;
    Ok(Some(flags))
}

/// Returns `Some(true)` for a boolean flag or database option, `None` for an unknown name.
fn kind_of(name: &str) -> Option<bool> {
    Flags::is_boolean(name).or_else(|| Some(info(name)?.kind == "bool"))
}

fn unknown(name: &str) -> String {
    match nearest(name, Flags::names()) {
        Some(near) => format!("unknown flag --{name}; did you mean --{near}?"),
        None => format!("unknown flag --{name}; `karstdb stress --help` lists them"),
    }
}

fn check(f: &Flags) -> Result<(), String> {
    let percents = [
        f.readpercent,
        f.prefixpercent,
        f.iterpercent,
        f.writepercent,
        f.delpercent,
        f.delrangepercent,
        f.transferpercent,
    ];
    let sum: u64 = percents.iter().fold(0, |sum, percent| sum.saturating_add(*percent));
    if sum != 100 {
        return Err(format!(
            "readpercent, prefixpercent, iterpercent, writepercent, delpercent, delrangepercent and transferpercent come to {sum}, not to 100"
        ));
    }
    let between = |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(format!("flag --{name}: {value} is not between {least} and {most}")),
    };
    between("threads", f.threads, 1, 256)?;
    between("async_threads", f.async_threads, 0, f.threads)?;
    between("async_jobs", f.async_jobs, 1, 256)?;
    between("column_families", f.column_families, 1, 64)?;
    between("max_key", f.max_key, 1, 100_000_000)?;
    between("txnpercent", f.txnpercent, 0, 100)?;
    between("txn_lives_percent", f.txn_lives_percent, 0, 100)?;
    between("snapshot_hold_ops", f.snapshot_hold_ops, 1, 1_000_000)?;
    if ![0, 8].contains(&f.user_timestamp_size) {
        return Err(format!("flag --user_timestamp_size: {} is neither 0 nor 8", f.user_timestamp_size));
    }
    between("threads and futures", lanes(f), 1, 999)
}

/// Returns the number of lanes (streams of operations): one a blocking thread, `async_jobs` an
/// asynchronous thread.
pub(crate) fn lanes(f: &Flags) -> u64 {
    f.threads - f.async_threads + f.async_threads * f.async_jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Flags>, String> {
        parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn flags_and_options_of_the_database() {
        let line = "-duration=2m --interval 500ms -threads=8 -async_threads=2 -write_buffer_size=65536 -nounordered_write";
        let flags = parsed(line).unwrap().unwrap();
        assert_eq!((flags.duration.0.as_secs(), flags.interval.0.as_millis()), (120, 500));
        assert_eq!(lanes(&flags), 6 + 2 * 16);
        let option = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(flags.options, [option("write_buffer_size", "65536"), option("unordered_write", "false")]);
        assert!(parsed("-help").unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (line, said) in [
            ("-readpercent=30", "come to 110"),
            ("-threads=0", "not between 1"),
            ("-user_timestamp_size=4", "neither 0 nor 8"),
            ("-async_threads=9", "not between 0 and 4"),
            ("-nosuch=1", "unknown flag --nosuch"),
            ("-duration=soon", "a time"),
            ("-threads=200 -async_threads=200", "threads and futures"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
