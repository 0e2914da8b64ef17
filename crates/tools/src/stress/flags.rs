//! The command line of `karst stress`: db_stress's names where a flag means the same, and
//! crash_test.py's `-duration` and `-interval`.
//!
//! In: the arguments. Out: [`Flags`], with the options of the database that the user wants in every
//! life.

use crate::bench::{info, translate};
use crate::command_line::{Given, Span, boolean_text, flags, next_flag};
use karst_format::options::nearest;
use std::time::Duration;

flags! {
    /// The database. Without one, a database is made in a temporary directory, and removed if all
    /// was right.
    db: String = String::new();
    /// Where the expected state is kept; the database's name with `.expected` behind it if none is
    /// given.
    expected_values_dir: String = String::new();
    /// Remove the database and its expected state first. Otherwise a run goes on with what the one
    /// before has left.
    destroy_db_initially: bool = false;
    /// How long it goes on: 90, 90s, 15m, 2h.
    duration: Span = Span(Duration::from_secs(60));
    /// How long the database's process lives before it is killed, on average; 0: it is never
    /// killed.
    interval: Span = Span(Duration::from_secs(10));
    /// Of so many lives one ends in order, with the database closed, rather than by SIGKILL; 0:
    /// none.
    close_one_in: u64 = 6;
    /// Of so many lives one is killed in the first moments, while it opens the database; 0: none.
    kill_in_opening_one_in: u64 = 8;
    /// Seed of options and operations; 0: by the clock.
    seed: u64 = 0;
    /// Operations of each thread in a life, shared by its futures; 0: as many as there is time for.
    ops_per_thread: u64 = 0;
    /// Threads.
    threads: u64 = 4;
    /// Of those, how many drive many operations at a time by the asynchronous calls.
    async_threads: u64 = 1;
    /// Operations in flight on each of them.
    async_jobs: u64 = 16;
    /// Keys of each column family, about.
    max_key: u64 = 20_000;
    /// Column families. Every second one has counters, the others lists.
    column_families: u64 = 4;
    /// Of 100 operations, how many are gets and multi_gets.
    readpercent: u64 = 20;
    /// Of 100 operations, how many are scans of a prefix.
    prefixpercent: u64 = 5;
    /// Of 100 operations, how many are other scans, and sums of all accounts.
    iterpercent: u64 = 10;
    /// Of 100 operations, how many are batches that put, merge and delete singly.
    writepercent: u64 = 45;
    /// Of 100 operations, how many are batches of deletes.
    delpercent: u64 = 10;
    /// Of 100 operations, how many delete a range.
    delrangepercent: u64 = 3;
    /// Of 100 operations, how many move an amount from one account to another.
    transferpercent: u64 = 7;
    /// Of 100 writes, how many are transactions, in lives with a database that has them.
    txnpercent: u64 = 30;
    /// Of 100 lives, how many have a database with transactions: that locks, that locks and has the
    /// policy WritePrepared, or optimistic.
    txn_lives_percent: u64 = 60;
    /// One write in so many is synced; 0: none.
    sync_one_in: u64 = 50;
    /// One write in so many goes past the log, and is flushed before it counts; 0: none.
    disable_wal_one_in: u64 = 500;
    /// One operation in so many is followed by a flush of one family or of all; 0: none.
    flush_one_in: u64 = 2000;
    /// One operation in so many is followed by a compaction of a range; 0: none.
    compact_range_one_in: u64 = 10_000;
    /// One operation in so many is followed by a compaction of some files; 0: none.
    compact_files_one_in: u64 = 10_000;
    /// One operation in so many is followed by a change of options; 0: none.
    set_options_one_in: u64 = 3000;
    /// One operation in so many is followed by a snapshot that is read at once and again later; 0:
    /// none.
    acquire_snapshot_one_in: u64 = 300;
    /// Operations of its lane for which a snapshot is held.
    snapshot_hold_ops: u64 = 200;
    /// One operation in so many of the first thread is followed by the making, filling or dropping
    /// of a further column family; 0: none.
    clear_column_family_one_in: u64 = 500;
    /// One operation in so many is followed by pausing background work for some milliseconds; 0:
    /// none.
    pause_background_one_in: u64 = 20_000;
    /// One operation in so many is followed by a question for a property; 0: none.
    get_property_one_in: u64 = 2000;
    /// One operation in so many is followed by a sync of the log; 0: none.
    sync_wal_one_in: u64 = 2000;
    /// One operation in so many is followed by a checkpoint, which is opened and looked into; 0:
    /// none.
    checkpoint_one_in: u64 = 2000;
    /// One operation in so many is followed by a backup, which is restored and looked into; 0:
    /// none.
    backup_one_in: u64 = 5000;
    /// Of so many lives one begins with a backup of the whole database, which is kept, and with a
    /// copy that is verified wholly; 0: none.
    whole_copy_one_in: u64 = 5;
    /// Of so many lives one begins with that backup restored in the database's place; 0: none.
    restore_in_place_one_in: u64 = 5;
    /// One operation in so many of the first thread is followed by the export and import of a
    /// further column family, or by dropping what was imported; 0: none.
    import_column_family_one_in: u64 = 1000;
    /// One operation in so many of the first thread is followed by clipping the imported column
    /// family; 0: none.
    clip_column_family_one_in: u64 = 2000;
    /// Bytes of the timestamps of one more column family of a new database: 8, or 0, which is no
    /// such family. Unless it is given, every second seed has none. With it no life has the policy
    /// WritePrepared.
    user_timestamp_size: u64 = 8;
    /// One operation in so many of the first thread is followed by a write to it, and by reads at a
    /// timestamp; 0: none.
    timestamped_write_one_in: u64 = 50;
    /// One operation in so many of the first thread is followed by a batch or a file for one more
    /// column family, which takes files behind all that it has; 0: none.
    ingest_behind_one_in: u64 = 300;
    /// One operation in so many of the first thread is followed by a bulk load of another database,
    /// which is looked into; 0: none.
    bulk_load_one_in: u64 = 5000;
    /// One write in so many is ingested as files; 0: none.
    ingest_external_file_one_in: u64 = 200;
    /// Draw the options of each life. Otherwise they are the defaults and what the command line
    /// says.
    random_options: bool = true;
    /// A life in which no operation ends for so long hangs.
    hang_after: Span = Span(Duration::from_secs(120));
    /// How often to say how far it is; 0: never. Unless it is given, only a terminal is told.
    progress_every: Span = Span(Duration::from_secs(5));
    /// Print the report as one line of JSON.
    json: bool = false;
    /// For its own use: live the life of this number in this process.
    life: i64 = -1;
    /// For its own use: a life that verifies, and changes nothing.
    check_only: bool = false;
}

/// Parse the arguments after `karst stress`; `None` if help was asked for.
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

/// Flags, and options of the database by their own names.
fn kind_of(name: &str) -> Option<bool> {
    Flags::is_boolean(name).or_else(|| Some(info(name)?.kind == "bool"))
}

fn unknown(name: &str) -> String {
    match nearest(name, Flags::names()) {
        Some(near) => format!("unknown flag --{name}; did you mean --{near}?"),
        None => format!("unknown flag --{name}; `karst stress --help` lists them"),
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

/// How many streams of operations there are.
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
