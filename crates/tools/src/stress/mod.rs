//! `karstdb stress`, the counterpart of RocksDB's db_stress: writes a database on the user's own
//! disk through every form of the API, kills the process at random moments, reopens the database
//! with other options, verifies all of it, and repeats.
//!
//! [`flags`] parses the command line. [`watch`] is the process that the user starts: it starts
//! lives (child processes) and kills them. [`life`] is the process that is killed: [`options`] are
//! drawn for it, [`verify`] compares the database with the [`expected`] state, then every [`lane`]
//! executes what its [`plan`] draws through [`calls`] in both forms, with futures on a reactor or
//! on an [`executor`]. [`extras`] are column families that one lane alone handles: [`further`] ones
//! are created and dropped, [`imports`] of them are clipped, one is [`stamped`], and one ingests
//! files [`behind`] its entries. [`copies`] are compared with the expected state, [`whole_copies`]
//! are verified and restored in place. [`rows`] defines keys and values, [`counts`] and [`report`]
//! the results, [`place`] the paths.

mod behind;
mod blob_garbage;
mod calls;
mod copies;
mod counts;
mod executor;
mod expected;
mod extras;
mod flags;
mod further;
mod imports;
mod lane;
mod life;
mod loads;
mod memtables;
mod options;
mod outcomes;
mod place;
mod plan;
mod report;
mod rows;
mod stamped;
mod verify;
mod watch;
mod whole_copies;
mod wrong;

use crate::output::{Fault, note, say};
use crate::random::Random;
use flags::Flags;
use place::Site;
use rows::{CYCLE, Shape};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const HELP: &str = "karstdb stress [--FLAG[=VALUE] ...]

Writes, reads, flushes and compacts a database with many threads and futures, kills the process (SIGKILL) at random moments, opens the
database again with other random options, verifies every key, and starts over. The expected state is kept in files outside of the
database: after a kill every acknowledged write must be found, and every write in progress must be found whole or not at all.

  karstdb stress -db=/mnt/disk/stress -duration=2h     on your own disk
  karstdb stress -duration=10m -seed=7 -json           repeats the draws of seed 7, and reports in JSON

A run in the directory of an earlier run continues with its database. A run ends with a report. If a check failed, the exit code is 1,
and the report names the key and the column family, the expected and the found value, and the command that verifies again; the run then
removes nothing.
";

/// Runs the program with the arguments after `stress`.
pub(crate) fn run(args: &[String]) -> Result<(), Fault> {
    let Some(flags) = flags::parse(args).map_err(Fault::Usage)? else {
        return say!(
            "{HELP}\nFlags, by db_stress's names where they mean the same, with their defaults:\n{}  \
             and every option of the database by its own name, such as --write_buffer_size: it holds in every life",
            Flags::help()
        );
    };
    let made = flags.db.is_empty();
    let db = if made { temporary() } else { PathBuf::from(&flags.db) };
    let expected = match flags.expected_values_dir.as_str() {
        "" => place::beside(&db, ".expected"),
        given => PathBuf::from(given),
    };
    let place = Site { db, expected };
    if let Ok(life) = u64::try_from(flags.life) {
        return Ok(life::live(flags, &place, life)?);
    }
    let seed = prepare(&flags, &place)?;
    note!(
        "karstdb stress: seed {seed}, database {}, expected state {}",
        place.db.display(),
        place.expected.display()
    );
    let report = watch::Run { flags: &flags, place: &place, args, seed }.run()?;
    match flags.json {
        true => say!("{}", report.json())?,
        false => say!("{}", report.text().trim_end())?,
    }
    if report.failure.is_some() {
        return Err(Fault::Failed("the database differs from its expected state; see the report".into()));
    }
    if made {
        remove(&place.db)?;
        remove(&place.expected)?;
        copies::remove_all(&place.db).map_err(|e| Fault::Failed(e.to_string()))?;
    }
    Ok(())
}

/// Prepares a new place or takes over an existing one; returns the seed.
fn prepare(flags: &Flags, place: &Site) -> Result<u64, String> {
    let error = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    if flags.destroy_db_initially {
        // The database and its expected state are removed together, because one without the other
        // would be taken for damage.
        if place.exists() {
            remove(&place.expected)?;
        }
        copies::remove_all(&place.db).map_err(|e| error(&place.db, e))?;
        karst_engine::Db::destroy(&place.db, &karst_engine::Options::new()).map_err(|e| e.to_string())?;
    }
    let lanes = flags::lanes(flags) as usize;
    let rows = (flags.max_key as usize).div_ceil(lanes).next_multiple_of(CYCLE);
    let families = flags.column_families as usize;
    if place.exists() {
        let shape = place.shape()?;
        let wanted =
            Shape { seed: if flags.seed == 0 { shape.seed } else { flags.seed }, families, lanes, rows };
        if wanted != shape {
            return Err(format!(
                "{}: the database was made with -seed={}, {} column families, {} threads and futures, {} keys; continue with these, or start over with -destroy_db_initially",
                place.db.display(),
                shape.seed,
                shape.families,
                shape.lanes,
                shape.rows * shape.lanes
            ));
        }
        let _ = std::fs::remove_file(place.failure());
        return Ok(shape.seed);
    }
    let is_empty = std::fs::read_dir(&place.db).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty {
        return Err(format!(
            "{}: the directory is not empty, and {} holds no expected state for it; give another -db, or -destroy_db_initially to remove the database",
            place.db.display(),
            place.expected.display()
        ));
    }
    std::fs::create_dir_all(&place.db).map_err(|e| error(&place.db, e))?;
    let seed = if flags.seed == 0 { clock_seed() } else { flags.seed };
    let chosen = flags.given.contains("user_timestamp_size") || Random::of(&[seed, 18]).one_in(2);
    if flags.user_timestamp_size > 0 && chosen {
        place.note_timestamps().map_err(|e| error(&place.expected, e))?;
    }
    place.note_shape(&Shape { seed, families, lanes, rows }).map_err(|e| error(&place.expected, e))?;
    Ok(seed)
}

fn remove(path: &Path) -> Result<(), String> {
    std::fs::remove_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn temporary() -> PathBuf {
    std::env::temp_dir().join(format!("karst-stress-{}-{:x}", std::process::id(), clock_seed()))
}

/// Returns a seed from the clock, of at most 10 digits so that it can be typed.
fn clock_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    1 + now % 1_000_000_007
}
