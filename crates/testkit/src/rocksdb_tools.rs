//! Debian's `ldb`, `sst_dump` and `db_bench` (package rocksdb-tools, RocksDB 7.8) as functions:
//! they judge KarstDB's reads, and write the databases it reads in the default test command.
//!
//! Every call runs one process to its end. A tool that is missing or fails is an error with the
//! tool's output; nothing is skipped.

use crate::{Entry, hex};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Runs a tool with these arguments and this standard input; returns its standard output.
pub fn run(tool: &str, args: &[&str], input: &[u8]) -> Result<String, String> {
    let mut child = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{tool} is missing; install it with: apt-get install rocksdb-tools")
            }
            _ => format!("cannot run {tool}: {e}"),
        })?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let input = input.to_vec();
    // A thread, because a tool that prints while it reads would block on a full pipe, and this
    // process too.
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().map_err(|e| format!("{tool}: {e}"))?;
    let fed = feeder.join().map_err(|_| format!("{tool}: its feeder panicked"))?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    // ldb reports some failures in words only, with an exit status of zero.
    let failed = !output.status.success() || fed.is_err() || (tool == "ldb" && out.starts_with("Failed"));
    if failed {
        let tail =
            |s: &str| s.chars().rev().take(2000).collect::<Vec<_>>().into_iter().rev().collect::<String>();
        return Err(format!("{tool} {} ({}):\n{}{}", args.join(" "), output.status, tail(&out), tail(&err)));
    }
    Ok(out)
}

fn db_flag(db: &Path) -> Result<String, String> {
    Ok(format!("--db={}", db.to_str().ok_or("the database's path is not UTF-8")?))
}

/// Runs `ldb --db=DB ...`.
pub fn ldb(db: &Path, args: &[&str], input: &[u8]) -> Result<String, String> {
    let db = db_flag(db)?;
    let mut all = vec![db.as_str()];
    all.extend(args);
    run("ldb", &all, input)
}

/// Returns every entry of a column family, from `ldb scan` (it opens read-only and changes
/// nothing).
pub fn ldb_scan(db: &Path, column_family: &str) -> Result<Vec<Entry>, String> {
    let family = format!("--column_family={column_family}");
    let out = ldb(db, &["--hex", &family, "scan"], b"")?;
    out.lines()
        .map(|line| {
            let (key, value) =
                line.split_once(" : ").or_else(|| line.strip_suffix(" :").map(|k| (k, "0x"))).ok_or_else(
                    || format!("ldb scan printed a line that is no entry: {}", &line[..line.len().min(80)]),
                )?;
            Ok((unhex(key)?, unhex(value)?))
        })
        .collect()
}

/// Puts entries with one `ldb load`.
pub fn ldb_load(db: &Path, column_family: &str, flags: &[&str], entries: &[Entry]) -> Result<(), String> {
    let mut input = String::new();
    for (key, value) in entries {
        input.push_str(&format!("0x{} ==> 0x{}\n", hex(key), hex(value)));
    }
    let family = format!("--column_family={column_family}");
    let mut args = vec!["--hex", family.as_str()];
    args.extend(flags);
    args.push("load");
    ldb(db, &args, input.as_bytes()).map(drop)
}

/// Deletes keys in one process, through `ldb query`.
pub fn ldb_delete(db: &Path, column_family: &str, flags: &[&str], keys: &[Vec<u8>]) -> Result<(), String> {
    let script: String = keys.iter().map(|key| format!("delete 0x{}\n", hex(key))).collect();
    let family = format!("--column_family={column_family}");
    let mut args = vec!["--hex", family.as_str()];
    args.extend(flags);
    args.push("query");
    let out = ldb(db, &args, script.as_bytes())?;
    let done = out.matches("Successfully deleted").count();
    if done == keys.len() { Ok(()) } else { Err(format!("ldb query deleted {done} of {} keys", keys.len())) }
}

/// Deletes a range of keys with one `ldb deleterange`.
pub fn ldb_delete_range(
    db: &Path,
    column_family: &str,
    flags: &[&str],
    from: &[u8],
    to: &[u8],
) -> Result<(), String> {
    let (from, to) = (format!("0x{}", hex(from)), format!("0x{}", hex(to)));
    let family = format!("--column_family={column_family}");
    let mut args = vec!["--hex", family.as_str()];
    args.extend(flags);
    args.extend(["deleterange", &from, &to]);
    ldb(db, &args, b"").map(drop)
}

/// Lets RocksDB compact in the background for a while: `ldb query` held open with automatic
/// compaction on.
pub fn ldb_compact_in_background(db: &Path, time: Duration) -> Result<(), String> {
    let db = db_flag(db)?;
    let mut child = Command::new("ldb")
        .args([db.as_str(), "--auto_compaction=true", "query"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot run ldb: {e}"))?;
    std::thread::sleep(time);
    drop(child.stdin.take());
    let status = child.wait().map_err(|e| format!("ldb: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("ldb query: {status}")) }
}

/// A process that is killed on drop, so that it never outlives its test.
#[derive(Debug)]
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Ignored because the process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `db_bench -db=DB ...`.
pub fn db_bench(db: &Path, args: &[&str]) -> Result<String, String> {
    let db = db_flag(db)?;
    let mut all = vec![db.as_str()];
    all.extend(args);
    run("db_bench", &all, b"")
}

/// Returns the number of live table files on each level of a column family, and of its live blob
/// files.
pub fn live_files(db: &Path, column_family: &str) -> Result<(Vec<usize>, usize), String> {
    let out = ldb(db, &["list_live_files_metadata"], b"")?;
    let (mut levels, mut blobs) = (Vec::new(), 0);
    let mut here = false;
    for line in out.lines() {
        if let Some(name) = line.strip_prefix("===== Column Family: ") {
            here = name.trim_end_matches(" =====") == column_family;
        } else if here && line.starts_with("---------- level ") {
            levels.push(0);
        } else if here && line.ends_with(".sst") {
            *levels.last_mut().ok_or("a table file outside any level")? += 1;
        } else if here && line.contains(".blob") {
            blobs += 1;
        }
    }
    if levels.is_empty() {
        return Err(format!("ldb lists no levels for column family {column_family}:\n{out}"));
    }
    Ok((levels, blobs))
}

/// Returns the output of `sst_dump --show_properties` for every table file in a folder.
pub fn table_properties(db: &Path) -> Result<String, String> {
    let file = format!("--file={}", db.to_str().ok_or("the database's path is not UTF-8")?);
    run("sst_dump", &[&file, "--show_properties", "--command=none"], b"")
}

/// Runs `sst_dump --command=verify` on every table file in a folder: each must be valid.
pub fn verify_tables(db: &Path) -> Result<(), String> {
    let file = format!("--file={}", db.to_str().ok_or("the database's path is not UTF-8")?);
    let said = run("sst_dump", &[&file, "--command=verify"], b"")?;
    let (tables, good) = (said.matches("Process ").count(), said.matches("The file is ok").count());
    if tables > 0 && tables == good {
        Ok(())
    } else {
        Err(format!("sst_dump --command=verify said:\n{said}"))
    }
}

fn unhex(text: &str) -> Result<Vec<u8>, String> {
    let digits = text.strip_prefix("0x").ok_or_else(|| format!("no 0x before {text}"))?;
    if digits.len() % 2 != 0 {
        return Err("an odd number of hex digits".into());
    }
    let digit = |b: u8| (b as char).to_digit(16).ok_or_else(|| format!("no hex digit: {}", b as char));
    digits.as_bytes().chunks(2).map(|pair| Ok((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
}
