//! The archive of logs that the database no longer needs (`WAL_ttl_seconds`, `WAL_size_limit_MB`),
//! in the directory `archive` beside the logs.
//!
//! Logs are moved there, and removed when they are too old or take too much space.
//!
//! Compat: RocksDB's rules. An archived log is removed once its last write is older than the time
//! to live. Under a size limit, empty logs are removed, and as many of the oldest as exceed the
//! limit if all were as large as the largest. The rules are applied when logs are retired, at most
//! once in ten minutes, or in half the time to live if that is shorter.

use karst_base::options::DbOptions;
use karst_base::sync::Mutex;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_io::{Env, Result, report};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the directory.
const DIRECTORY: &str = "archive";
/// Longest interval between two purges, in seconds.
const LOOK_EVERY_S: u64 = 600;

/// The archive of a database's logs.
#[derive(Debug)]
pub struct Archive {
    wal_path: PathBuf,
    directory: PathBuf,
    /// Time to live in seconds; 0: no limit.
    ttl_s: u64,
    /// Size limit in bytes; 0: no limit.
    limit_bytes: u64,
    /// Time of the last purge. Lock: held to read or set it.
    looked: Mutex<Option<Duration>>,
}

impl Archive {
    /// Returns the archive of a database whose logs are in `wal_path`, if the options ask for one.
    pub fn of(options: &DbOptions, wal_path: &Path) -> Option<Archive> {
        let (ttl_s, limit_bytes) =
            (options.wal_ttl_seconds, options.wal_size_limit_mb.saturating_mul(1 << 20));
        (ttl_s > 0 || limit_bytes > 0).then(|| Archive {
            wal_path: wal_path.to_owned(),
            directory: archive_of(wal_path),
            ttl_s,
            limit_bytes,
            looked: Mutex::new(None),
        })
    }

    /// Creates the directory. Blocks.
    pub fn prepare(&self, env: &Env) -> Result<()> {
        env.fs().create_dir_durably(&self.directory)
    }

    /// Moves a log that is no longer needed into the archive. Blocks.
    pub fn take(&self, env: &Env, log: FileNumber) -> Result<()> {
        let name = FileName::Wal(log).to_string();
        env.fs().rename(&self.wal_path.join(&name), &self.directory.join(&name))
    }

    /// Removes logs that are too old or exceed the size limit, if a purge is due. Failures are
    /// retried at the next purge. Blocks.
    pub fn purge(&self, env: &Env) {
        if self.is_time(env.unix_time())
            && let Err(error) = self.purge_now(env)
        {
            report!(warn, directory = %self.directory.display(), %error, "archived logs could not be listed or removed");
        }
    }

    fn is_time(&self, now: Duration) -> bool {
        let every_s = if self.ttl_s > 0 { (self.ttl_s / 2).clamp(1, LOOK_EVERY_S) } else { LOOK_EVERY_S };
        let mut looked = self.looked.lock();
        let due = looked.is_none_or(|then| now.saturating_sub(then) >= Duration::from_secs(every_s));
        if due {
            *looked = Some(now);
        }
        due
    }

    fn purge_now(&self, env: &Env) -> Result<()> {
        let fs = env.fs();
        let now = env.unix_time();
        let (mut count, mut largest, mut kept) = (0, 0, Vec::new());
        for log in archived(env, &self.wal_path)? {
            let path = self.directory.join(FileName::Wal(log).to_string());
            let found = fs.metadata(&path)?;
            let written = found.modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            // A modification time that is unknown or in the future counts as age 0, so the log is
            // kept.
            let age = written.and_then(|written| now.checked_sub(written)).unwrap_or_default();
            let too_old = self.ttl_s > 0 && age > Duration::from_secs(self.ttl_s);
            if too_old || (self.limit_bytes > 0 && found.len == 0) {
                fs.remove(&path)?;
                continue;
            }
            (count, largest) = (count + 1, found.len.max(largest));
            kept.push(path);
        }
        if self.limit_bytes > 0 && largest > 0 {
            let most = self.limit_bytes / largest;
            for path in kept.iter().take(usize::try_from(count - most.min(count)).unwrap_or(0)) {
                fs.remove(path)?;
            }
        }
        Ok(())
    }
}

/// Returns the archive directory of logs in `wal_path`.
pub fn archive_of(wal_path: &Path) -> PathBuf {
    wal_path.join(DIRECTORY)
}

/// Returns the numbers of the archived logs, ascending. Blocks.
pub fn archived(env: &Env, wal_path: &Path) -> Result<Vec<FileNumber>> {
    logs_in(env, &archive_of(wal_path))
}

/// Returns the numbers of the logs in a directory, ascending; none if it does not exist. Blocks.
pub fn logs_in(env: &Env, directory: &Path) -> Result<Vec<FileNumber>> {
    let names = match env.fs().list_dir(directory) {
        Ok(names) => names,
        Err(e) if e.is_not_found() => Vec::new(),
        Err(e) => return Err(e),
    };
    let mut logs: Vec<FileNumber> = names
        .iter()
        .filter_map(|name| match FileName::parse(name) {
            Some(FileName::Wal(number)) => Some(number),
            _ => None,
        })
        .collect();
    logs.sort_unstable();
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_io::Simulation;

    /// Archives ten logs of `kilobytes` KiB (the fifth is empty), written 100 seconds apart, and
    /// returns the numbers of those left after a purge at second 1000.
    fn left(ttl_s: u64, limit_mb: u64, kilobytes: usize) -> Vec<u64> {
        let simulation = Simulation::new(1);
        let env = simulation.env().clone();
        let options =
            DbOptions { wal_ttl_seconds: ttl_s, wal_size_limit_mb: limit_mb, ..DbOptions::default() };
        let path = Path::new("/logs");
        simulation
            .run(async {
                let archive = Archive::of(&options, path).unwrap();
                archive.prepare(&env).unwrap();
                for log in 1..=10u64 {
                    let file = path.join(FileName::Wal(FileNumber(log)).to_string());
                    let bytes = if log == 5 { 0 } else { kilobytes * 1024 };
                    env.fs().create(&file).unwrap().append(&vec![1; bytes]).unwrap();
                    archive.take(&env, FileNumber(log)).unwrap();
                    karst_io::sleep(&env, Duration::from_secs(100)).await;
                }
                archive.purge(&env);
                let first = archived(&env, path).unwrap();
                archive.purge(&env);
                assert_eq!(archived(&env, path).unwrap(), first, "it is not yet time again");
                first.into_iter().map(|log| log.0).collect()
            })
            .unwrap()
    }

    #[test]
    fn what_is_too_old_or_too_much_goes() {
        assert_eq!(left(450, 0, 1), [7, 8, 9, 10], "written 400, 300, 200 and 100 s ago");
        assert_eq!(left(0, 1, 300), [8, 9, 10]);
        assert_eq!(left(0, 1, 1), [1, 2, 3, 4, 6, 7, 8, 9, 10], "empty ones go under a limit on size");
        assert_eq!(left(250, 1, 300), [9, 10]);
        assert_eq!(left(0, 1, 2000), Vec::<u64>::new(), "one alone is too much");
        assert!(Archive::of(&DbOptions::default(), Path::new("/logs")).is_none());
    }
}
