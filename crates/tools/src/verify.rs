//! `karstdb verify DB`: checks that all files of a database have the content that was written.
//!
//! Input: a database directory, which is only read and need not be openable. Output: a line for
//! each damaged file, with the error and its offset; with `--json` one object per round. The exit
//! code is 1 if any file is damaged. With `--schedule` rounds follow each other until one finds
//! damage.

use crate::command_line::{FlagValue, Span};
use crate::output::{Fault, is_watched, note, say};
use crate::paths::with_paths;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use karst_engine::pacing::RateLimiter;
use karst_engine::{Db, Options, VerifyProgress, VerifyReport};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ABOUT: &str = "Read all files of a database and verify their checksums";
const HELP: &str = "\
Reads MANIFEST, OPTIONS, tables, blob files and logs, and verifies every checksum in them. The program
changes no file, and works on databases that cannot be opened. No process should write to the database
meanwhile. The exit code is 1 if a file is damaged or missing; each such file is printed with the offset
of the damage.

With --schedule the files are read again each PERIOD, until a round finds damage. A process may then
write to the database: a round that finds damage is repeated, and only damage that both rounds found is
reported. A file that the database removed between them is missing in the first round only.";

/// Returns the definition of the command line.
pub(crate) fn command() -> Command {
    let db = Arg::new("DB").value_parser(value_parser!(PathBuf)).help("The database's directory");
    let named = db
        .clone()
        .id("db")
        .long("db")
        .value_name("DB")
        .help("The database's directory, as an option like ldb's");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
    let of = |name: &'static str, alias: &'static str, value: &'static str| {
        Arg::new(name).long(name).alias(alias).value_name(value)
    };
    let limit = of("rate-limit", "rate_limit", "BYTES");
    Command::new("verify")
        .about(ABOUT)
        .long_about(HELP)
        .arg(db.required_unless_present("db").conflicts_with("db"))
        .arg(named)
        .arg(json.help("Print the report as one JSON object on standard output"))
        .arg(
            Arg::new("schedule")
                .long("schedule")
                .value_name("PERIOD")
                .value_parser(Span::parse_flag)
                .help("Verify again each PERIOD (such as 30s, 15m or 24h), until a round finds damage"),
        )
        .arg(of("db-paths", "db_paths", "DIRECTORY,...").help("Directories of tables besides DB"))
        .arg(
            of("cf-paths", "cf_paths", "FAMILY=DIRECTORY,...;...")
                .help("Directories of tables, by column family"),
        )
        .arg(
            limit
                .value_parser(value_parser!(u64).range(1..))
                .help("Limit on the average number of bytes read per second"),
        )
}

/// Runs the program.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Fault> {
    let path = |name: &str| matches.get_one::<PathBuf>(name);
    let db = path("DB").or(path("db")).expect("clap asks for one of both");
    let limiter = matches.get_one::<u64>("rate-limit").map(|bytes| RateLimiter::new(*bytes));
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let options = with_paths(Options::new(), text("db-paths"), text("cf-paths"))?;
    let in_json = matches.get_flag("json");
    let look = || look(db, &options, limiter.as_ref());
    let Some(Span(period)) = matches.get_one::<Span>("schedule").copied() else {
        return tell(db, &look()?, in_json);
    };
    loop {
        let begun = Instant::now();
        let mut report = look()?;
        if !report.damaged.is_empty() {
            report = in_both(&report, look()?);
        }
        tell(db, &report, in_json)?;
        std::thread::sleep(period.saturating_sub(begun.elapsed()));
    }
}

/// Runs one round.
fn look(db: &Path, options: &Options, limiter: Option<&RateLimiter>) -> Result<VerifyReport, Fault> {
    let watched = is_watched();
    let mut told: Option<Instant> = None;
    let report = Db::verify_files(db, options, limiter, |now| {
        let is_due = told.is_none_or(|last| last.elapsed() >= Duration::from_millis(200));
        if watched && (is_due || now.files == now.all_files) {
            told = Some(Instant::now());
            crate::output::to_stderr(format_args!("\r{}", progress_text(now)));
        }
    });
    if watched && told.is_some() {
        note!("");
    }
    Ok(report?)
}

/// Returns the second of two reports, with only the damage that the first one has too.
fn in_both(first: &VerifyReport, mut second: VerifyReport) -> VerifyReport {
    second.damaged.retain(|file| first.damaged.iter().any(|before| before.path == file.path));
    second
}

/// Prints the results of a round; damage is a fault.
fn tell(db: &Path, report: &VerifyReport, in_json: bool) -> Result<(), Fault> {
    if in_json {
        say!("{}", json_of(report))?;
    } else {
        for file in &report.damaged {
            say!("{}", line_of(&file.path.display().to_string(), &file.error))?;
        }
        let (files, bytes, damaged) = (report.files, report.bytes, report.damaged.len());
        say!("{files} files of {bytes} bytes verified, {damaged} damaged or missing")?;
    }
    match report.damaged.len() {
        0 => Ok(()),
        damaged => Err(Fault::Failed(format!("{}: {damaged} files are damaged or missing", db.display()))),
    }
}

fn progress_text(now: &VerifyProgress) -> String {
    let percent = (now.bytes * 100).checked_div(now.all_bytes).unwrap_or(100);
    format!("verifying: {} of {} files, {percent} %", now.files, now.all_files)
}

/// Returns the error, preceded by the file's name unless it has it.
fn line_of(path: &str, error: &str) -> String {
    if error.contains(path) { error.to_owned() } else { format!("{path}: {error}") }
}

/// Returns the offset that an error names; `None` without one.
fn offset_of(error: &str) -> Option<u64> {
    let (_, rest) = error.split_once("offset ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn json_of(report: &VerifyReport) -> serde_json::Value {
    let damaged = report.damaged.iter().map(|file| {
        let (path, offset) = (file.path.display().to_string(), offset_of(&file.error));
        serde_json::json!({ "file": path, "offset": offset, "error": file.error })
    });
    let damaged: Vec<_> = damaged.collect();
    serde_json::json!({ "files": report.files, "bytes": report.bytes, "damaged": damaged })
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_engine::DamagedFile;

    #[test]
    fn json_has_names_and_offsets() {
        let error = "corruption: /db/\"x\".sst, offset 4096: checksum mismatch\n".to_owned();
        let damaged = vec![
            DamagedFile { path: "/db/\"x\".sst".into(), error },
            DamagedFile { path: "/db/000004.blob".into(), error: "missing".into() },
        ];
        let report = VerifyReport { files: 3, bytes: 99, damaged };
        let parsed = json_of(&report);
        assert_eq!(parsed["files"], 3);
        assert_eq!(parsed["damaged"][0]["file"], "/db/\"x\".sst");
        assert_eq!(parsed["damaged"][0]["offset"], 4096);
        assert!(parsed["damaged"][1]["offset"].is_null());
    }

    #[test]
    fn what_only_one_of_two_rounds_missed_is_no_damage() {
        let report = |names: &[&str]| {
            let damaged = |name: &&str| DamagedFile { path: name.into(), error: "missing".into() };
            VerifyReport { damaged: names.iter().map(damaged).collect(), ..VerifyReport::default() }
        };
        assert_eq!(in_both(&report(&["1.sst", "2.sst"]), report(&["2.sst", "3.sst"])), report(&["2.sst"]));
    }

    #[test]
    fn the_file_is_named_once() {
        assert_eq!(
            line_of("/db/1.sst", "corruption: /db/1.sst, offset 3"),
            "corruption: /db/1.sst, offset 3"
        );
        assert_eq!(line_of("/db/1.sst", "missing"), "/db/1.sst: missing");
    }
}
