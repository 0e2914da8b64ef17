//! Disk space of databases' tables and blob files: its limit, and the rate at which obsolete files
//! are deleted.
//!
//! In: files as they are added and become obsolete; compactions about to begin. Out: refusals when
//! the limit is reached; files removed at once, or gradually under another name.
//!
//! Invariants:
//! - A file counts until it is removed, also as trash.
//! - One job at a time removes trash and ends with the manager; the rest is removed when its
//!   database is reopened.
//! - A file with another hard link, for example from a checkpoint, is never truncated.
//!
//! Lock: its own; never held during file operations or while waiting. `Inner::changed` signals a
//! change of the rate.

use crate::error::{Error, ErrorKind, Result};
use crate::pacing::race;
use crate::stats::{Statistics, Ticker};
use crate::sync::{Event, Mutex};
use karst_format::file_name::{TRASH_EXTENSION, is_trash};
use karst_io::{Env, FileSystem, Priority, report};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Tracks the tables and blob files of databases: limits their total size and the rate at which
/// obsolete ones are removed. RocksDB's `SstFileManager`. Clones share it, and several databases
/// may share it through `Options::sst_file_manager`. All calls are cheap, thread-safe, and affect
/// open databases immediately.
///
/// **Limit.** If [`max_allowed_space_usage`](Self::set_max_allowed_space_usage) is reached at the
/// end of a flush or by the outputs of a compaction, the database gets a background error of kind
/// [`ErrorKind::SpaceLimit`]: writes are refused with it, the flush stays complete, the compaction
/// is discarded. A compaction that could pass the limit is not started. Once there is room again,
/// because the limit was raised or data was removed, the database resumes by itself, or with
/// `Db::resume`.
///
/// **Trash.** With a [delete rate](Self::set_delete_rate_bytes_per_second) an obsolete table, blob
/// file or log is renamed to `NAME.trash` and removed in the background at that rate at most, so
/// that discards do not saturate the device. Logs are included only if they are stored beside the
/// tables and not archived. Removal continues after a database is closed, while the manager lives;
/// the rest is removed when the database is next opened for writing.
#[derive(Clone)]
pub struct SstFileManager(Arc<Inner>);

struct Inner {
    bytes_max_delete_chunk: u64,
    state: Mutex<State>,
    changed: Event,
}

struct State {
    /// Tracked files with their sizes in bytes.
    files: BTreeMap<PathBuf, u64>,
    total_bytes: u64,
    /// Bytes that running compactions may add.
    reserved_bytes: u64,
    max_allowed_bytes: u64,
    compaction_buffer_bytes: u64,
    delete_rate: u64,
    max_trash_db_ratio: f64,
    /// Trash to be removed, in order. The first is being removed while `removing`.
    trash: VecDeque<Trash>,
    /// Trash whose removal failed; retried with the next removals.
    failed: Vec<Trash>,
    trash_bytes: u64,
    removing: bool,
}

#[derive(Clone)]
struct Trash {
    env: Env,
    stats: Arc<Statistics>,
    path: PathBuf,
    bytes: u64,
}

impl Default for SstFileManager {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SstFileManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.state.lock();
        f.debug_struct("SstFileManager")
            .field("total_size", &state.total_bytes)
            .field("total_trash_size", &state.trash_bytes)
            .field("max_allowed_space_usage", &state.max_allowed_bytes)
            .field("delete_rate_bytes_per_second", &state.delete_rate)
            .finish_non_exhaustive()
    }
}

impl SstFileManager {
    /// Creates a manager without a limit that removes obsolete files at once.
    pub fn new() -> Self {
        Self::with_bytes_max_delete_chunk(64 << 20)
    }

    /// Creates a manager with the number of bytes by which a larger trash file is truncated at a
    /// time before it is removed, unless it has another hard link; 0 for never. Default: 64 MiB, as
    /// in RocksDB.
    ///
    /// Use 0 if other processes, such as secondary instances, may still read obsolete files,
    /// because truncation would break their reads.
    pub fn with_bytes_max_delete_chunk(bytes: u64) -> Self {
        let state = State {
            files: BTreeMap::new(),
            total_bytes: 0,
            reserved_bytes: 0,
            max_allowed_bytes: 0,
            compaction_buffer_bytes: 0,
            delete_rate: 0,
            max_trash_db_ratio: 0.25,
            trash: VecDeque::new(),
            failed: Vec::new(),
            trash_bytes: 0,
            removing: false,
        };
        Self(Arc::new(Inner {
            bytes_max_delete_chunk: bytes,
            state: Mutex::new(state),
            changed: Event::new(),
        }))
    }

    /// Sets the maximum total size of all files, in bytes; 0, the default, for no limit.
    pub fn set_max_allowed_space_usage(&self, bytes: u64) {
        self.0.state.lock().max_allowed_bytes = bytes;
    }

    /// Sets the bytes to be left free besides those that running compactions may add: a compaction
    /// that would use them is not started. Default 0.
    pub fn set_compaction_buffer_size(&self, bytes: u64) {
        self.0.state.lock().compaction_buffer_bytes = bytes;
    }

    /// Returns true if the files' total size has reached the limit.
    pub fn is_max_allowed_space_reached(&self) -> bool {
        self.0.state.lock().reaches(0)
    }

    /// Returns true if the limit would be reached if every running compaction added as much as it
    /// reads.
    pub fn is_max_allowed_space_reached_including_compactions(&self) -> bool {
        let state = self.0.state.lock();
        state.reaches(state.reserved_bytes)
    }

    /// Returns the size of all tables and blob files, including trash, in bytes.
    pub fn total_size(&self) -> u64 {
        self.0.state.lock().total_bytes
    }

    /// Returns the size of the trash, including logs, in bytes.
    pub fn total_trash_size(&self) -> u64 {
        self.0.state.lock().trash_bytes
    }

    /// Returns all files with their sizes in bytes.
    pub fn tracked_files(&self) -> BTreeMap<PathBuf, u64> {
        self.0.state.lock().files.clone()
    }

    /// Returns the delete rate in bytes per second; 0 if files are removed at once.
    pub fn delete_rate_bytes_per_second(&self) -> u64 {
        self.0.state.lock().delete_rate
    }

    /// Sets the delete rate in bytes per second; 0, the default, removes files at once. Applies to
    /// existing trash too.
    pub fn set_delete_rate_bytes_per_second(&self, rate: u64) {
        self.0.state.lock().delete_rate = rate;
        self.0.changed.notify(usize::MAX);
    }

    /// Returns the maximum size of the trash, as a share of all files.
    pub fn max_trash_db_ratio(&self) -> f64 {
        self.0.state.lock().max_trash_db_ratio
    }

    /// Sets the maximum size of the trash, as a share of all files: while it is exceeded, obsolete
    /// files are removed at once. Default 0.25.
    pub fn set_max_trash_db_ratio(&self, ratio: f64) {
        self.0.state.lock().max_trash_db_ratio = ratio;
    }
}

impl SstFileManager {
    /// Starts tracking a file, or updates its size.
    #[doc(hidden)]
    pub fn add(&self, path: PathBuf, bytes: u64) {
        self.0.state.lock().add(path, bytes);
    }

    /// Stops tracking a closed database's files in these directories, except trash.
    #[doc(hidden)]
    pub fn forget(&self, directories: &[PathBuf]) {
        let mut state = self.0.state.lock();
        let is_theirs = |path: &Path| {
            let trash = path.file_name().is_some_and(|name| is_trash(&name.to_string_lossy()));
            !trash && path.parent().is_some_and(|parent| directories.iter().any(|of| of == parent))
        };
        let gone: Vec<PathBuf> = state.files.keys().filter(|path| is_theirs(path)).cloned().collect();
        gone.iter().for_each(|path| state.forget(path));
    }

    /// Returns an error if the limit is reached.
    ///
    /// # Errors
    /// `SpaceLimit`: the limit is reached.
    #[doc(hidden)]
    pub fn check(&self) -> Result<()> {
        let state = self.0.state.lock();
        if !state.reaches(0) {
            return Ok(());
        }
        let text = format!(
            "tables and blob files have {} bytes, and the SstFileManager allows {}",
            state.total_bytes, state.max_allowed_bytes
        );
        Err(Error::new(ErrorKind::SpaceLimit, text))
    }

    /// Reserves space for a compaction that reads `bytes`, until the reservation is dropped.
    ///
    /// # Errors
    /// `SpaceLimit`: the space does not suffice.
    #[doc(hidden)]
    pub fn reserve(&self, bytes: u64) -> Result<SpaceReservation> {
        let mut state = self.0.state.lock();
        let taken = state.total_bytes.saturating_add(state.reserved_bytes);
        let needed = taken.saturating_add(bytes).saturating_add(state.compaction_buffer_bytes);
        if state.max_allowed_bytes > 0 && needed > state.max_allowed_bytes {
            let text = format!(
                "a compaction may add {bytes} bytes to {taken}, and the SstFileManager allows {} and keeps {} of them free",
                state.max_allowed_bytes, state.compaction_buffer_bytes
            );
            return Err(Error::new(ErrorKind::SpaceLimit, text));
        }
        state.reserved_bytes += bytes;
        Ok(SpaceReservation { manager: self.clone(), bytes })
    }

    /// Removes an obsolete file, or renames it to trash. Blocks.
    ///
    /// # Errors
    /// The file could not be removed and keeps its name.
    #[doc(hidden)]
    pub fn remove(&self, env: &Env, stats: &Arc<Statistics>, path: &Path) -> karst_io::Result<()> {
        let at_once = self.0.state.lock().removes_at_once();
        let trash = if at_once { None } else { self.make_trash(env, stats, path) };
        if let Some(trash) = trash {
            stats.tick(Ticker::FilesMarkedTrash);
            let mut state = self.0.state.lock();
            if state.files.contains_key(path) {
                state.forget(path);
                state.add(trash.path.clone(), trash.bytes);
            }
            self.queue(&mut state, trash);
            return Ok(());
        }
        let removed = env.fs().remove(path);
        if removed.as_ref().err().is_none_or(karst_io::Error::is_not_found) {
            self.0.state.lock().forget(path);
        }
        removed?;
        stats.tick(Ticker::FilesDeletedImmediately);
        Ok(())
    }

    /// Queues trash left from an earlier run.
    #[doc(hidden)]
    pub fn adopt(&self, env: &Env, stats: &Arc<Statistics>, path: PathBuf) {
        let Ok(metadata) = env.fs().metadata(&path) else { return };
        let mut state = self.0.state.lock();
        let known = state.trash.iter().chain(&state.failed).any(|trash| trash.path == path);
        if !known {
            state.add(path.clone(), metadata.len);
            let (env, stats) = (env.clone(), stats.clone());
            self.queue(&mut state, Trash { env, stats, path, bytes: metadata.len });
        }
    }

    /// Renames the file to a trash name. `None` if that fails.
    fn make_trash(&self, env: &Env, stats: &Arc<Statistics>, path: &Path) -> Option<Trash> {
        let fs = env.fs();
        let bytes = fs.metadata(path).ok()?.len;
        let mut to = path.as_os_str().to_owned();
        to.push(TRASH_EXTENSION);
        // A file of this name may exist, left from before or from a recycled log.
        for again in 1u32.. {
            if !fs.exists(Path::new(&to)).ok()? {
                break;
            }
            to = path.as_os_str().to_owned();
            to.push(format!("{again}{TRASH_EXTENSION}"));
        }
        let to = PathBuf::from(to);
        if let Err(error) = fs.rename(path, &to) {
            report!(warn, %error, "an obsolete file cannot be renamed, and is removed at once");
            return None;
        }
        Some(Trash { env: env.clone(), stats: stats.clone(), path: to, bytes })
    }

    fn queue(&self, state: &mut State, trash: Trash) {
        state.trash_bytes += trash.bytes;
        state.trash.push_back(trash);
        let failed = std::mem::take(&mut state.failed);
        state.trash.extend(failed);
        if !std::mem::replace(&mut state.removing, true) {
            let env = state.trash[0].env.clone();
            let removing = Removing(Some(Arc::downgrade(&self.0)));
            drop(env.spawn(Priority::Low, empty_trash(removing)));
        }
    }
}

/// Space reserved for a compaction.
#[derive(Debug)]
#[doc(hidden)]
pub struct SpaceReservation {
    manager: SstFileManager,
    bytes: u64,
}

impl Drop for SpaceReservation {
    fn drop(&mut self) {
        self.manager.0.state.lock().reserved_bytes -= self.bytes;
    }
}

impl State {
    fn reaches(&self, more_bytes: u64) -> bool {
        self.max_allowed_bytes > 0 && self.total_bytes.saturating_add(more_bytes) >= self.max_allowed_bytes
    }

    fn removes_at_once(&self) -> bool {
        // Compat: RocksDB's condition.
        self.delete_rate == 0 || self.trash_bytes as f64 > self.total_bytes as f64 * self.max_trash_db_ratio
    }

    fn add(&mut self, path: PathBuf, bytes: u64) {
        self.total_bytes += bytes;
        self.total_bytes -= self.files.insert(path, bytes).unwrap_or(0);
    }

    fn forget(&mut self, path: &Path) {
        self.total_bytes -= self.files.remove(path).unwrap_or(0);
    }

    /// Records the removal of the first trash file or of a part of it; returns the bytes removed.
    fn removed(&mut self, outcome: Result<Removed, karst_io::Error>) -> u64 {
        let Some(mut trash) = self.trash.pop_front() else { return 0 };
        let (bytes, left) = match outcome {
            Ok(Removed::All) => (trash.bytes, None),
            Ok(Removed::Part { left }) => (trash.bytes.saturating_sub(left), Some(left)),
            Err(error) => {
                report!(warn, file = %trash.path.display(), %error, "trash could not be removed");
                self.failed.push(trash);
                return 0;
            }
        };
        self.trash_bytes -= bytes;
        match left {
            Some(left) => {
                if self.files.contains_key(&trash.path) {
                    self.add(trash.path.clone(), left);
                }
                trash.bytes = trash.bytes.min(left);
                self.trash.push_front(trash);
            }
            None => {
                trash.stats.tick(Ticker::FilesDeletedFromTrashQueue);
                self.forget(&trash.path);
            }
        }
        bytes
    }
}

/// The part of a file that was removed.
enum Removed {
    All,
    /// The end of the file; `left` bytes remain.
    Part {
        left: u64,
    },
}

/// Removes a file, or the end of one that is longer than `chunk` and has no other hard link.
fn remove_some(fs: &dyn FileSystem, path: &Path, chunk: u64) -> karst_io::Result<Removed> {
    // An error is not reported because removing the whole file reports the same one.
    if let Ok(Some(left)) = cut(fs, path, chunk) {
        return Ok(Removed::Part { left });
    }
    match fs.remove(path) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(Removed::All),
    }
}

/// Truncates a file by `chunk` bytes. Returns the remaining size; `None` if it should be removed as
/// a whole.
fn cut(fs: &dyn FileSystem, path: &Path, chunk: u64) -> karst_io::Result<Option<u64>> {
    let bytes = fs.metadata(path)?.len;
    if chunk == 0 || bytes <= chunk || fs.link_count(path)? != Some(1) {
        return Ok(None);
    }
    let file = fs.open_positional(path)?;
    file.truncate(bytes - chunk)?;
    file.sync_all()?;
    Ok(Some(bytes - chunk))
}

/// The slot of the single job that removes trash. Empty after it was released.
struct Removing(Option<Weak<Inner>>);

impl Removing {
    fn manager(&self) -> Option<Arc<Inner>> {
        self.0.as_ref()?.upgrade()
    }

    /// Returns the next file to remove. Releases the slot if there is no trash.
    fn next(&mut self) -> Option<Trash> {
        let manager = self.manager()?;
        let mut state = manager.state.lock();
        let next = state.trash.front().cloned();
        if next.is_none() {
            state.removing = false;
            self.0 = None;
        }
        next
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        if let Some(manager) = self.manager() {
            manager.state.lock().removing = false;
        }
    }
}

/// Removes trash at the current rate until none is left or the manager is dropped.
async fn empty_trash(mut removing: Removing) {
    // The rate, the time since which it applies, and the bytes removed since.
    let mut paced: Option<(u64, Duration, u64)> = None;
    while let Some(Trash { env, path, .. }) = removing.next() {
        let Some(manager) = removing.manager() else { return };
        let rate = manager.state.lock().delete_rate;
        let (rate, since, before) = match paced {
            Some(paced) if paced.0 == rate => paced,
            _ => (rate, env.now(), 0),
        };
        let chunk = manager.bytes_max_delete_chunk;
        let outcome = env.run_blocking(move |env| remove_some(env.fs().as_ref(), &path, chunk)).await;
        let bytes = before.saturating_add(manager.state.lock().removed(outcome));
        drop(manager);
        paced = Some((rate, since, bytes));
        if rate == 0 {
            continue;
        }
        let micros = u128::from(bytes) * 1_000_000 / u128::from(rate);
        let until = since.saturating_add(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)));
        loop {
            let Some(manager) = removing.manager() else { return };
            let changed = manager.changed.listen();
            let same = manager.state.lock().delete_rate == rate;
            drop(manager);
            let now = env.now();
            if now >= until || !same {
                break;
            }
            race(changed, karst_io::sleep(&env, until - now)).await;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Wakes the job that waits to remove the next file, so that it ends at once.
        self.changed.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::StatsLevel;
    use karst_io::MemoryFileSystem;

    struct Files {
        env: Env,
        stats: Arc<Statistics>,
        manager: SstFileManager,
    }

    impl Files {
        fn new(manager: SstFileManager) -> Files {
            let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
            env.ensure_threads().unwrap();
            env.fs().create_dir(Path::new("/db")).unwrap();
            Files { env, stats: Arc::new(Statistics::new(StatsLevel::ExceptHistogramOrTimers)), manager }
        }

        fn make(&self, name: &str, bytes: usize) -> PathBuf {
            let path = Path::new("/db").join(name);
            self.env.fs().create(&path).unwrap().append(&vec![7; bytes]).unwrap();
            self.manager.add(path.clone(), bytes as u64);
            path
        }

        fn names(&self) -> Vec<String> {
            self.env.fs().list_dir(Path::new("/db")).unwrap()
        }

        fn remove(&self, path: &Path) {
            self.manager.remove(&self.env, &self.stats, path).unwrap();
        }

        fn wait_until_empty(&self) {
            self.wait_until(|| self.manager.total_trash_size() == 0);
        }

        fn wait_until(&self, holds: impl Fn() -> bool) {
            let begun = std::time::Instant::now();
            while !holds() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", self.names());
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn the_limit_counts_files_reservations_and_the_buffer() {
        let manager = SstFileManager::new();
        manager.add("/db/1.sst".into(), 60);
        manager.add("/db/1.sst".into(), 50);
        assert_eq!(manager.total_size(), 50);
        assert!(!manager.is_max_allowed_space_reached());
        manager.set_max_allowed_space_usage(100);
        manager.set_compaction_buffer_size(10);
        let taken = manager.reserve(40).unwrap();
        assert_eq!(manager.reserve(1).unwrap_err().kind(), ErrorKind::SpaceLimit);
        assert!(!manager.is_max_allowed_space_reached_including_compactions());
        manager.add("/db/2.sst".into(), 10);
        assert!(manager.is_max_allowed_space_reached_including_compactions());
        assert!(!manager.is_max_allowed_space_reached());
        manager.check().unwrap();
        drop(taken);
        assert!(!manager.is_max_allowed_space_reached_including_compactions());
        manager.add("/db/3.sst".into(), 40);
        assert!(manager.is_max_allowed_space_reached());
        assert_eq!(manager.check().unwrap_err().kind(), ErrorKind::SpaceLimit);
        manager.forget(&["/db".into()]);
        assert_eq!((manager.total_size(), manager.tracked_files().len()), (0, 0));
    }

    #[test]
    fn without_a_rate_files_are_removed_at_once() {
        let files = Files::new(SstFileManager::new());
        let path = files.make("000001.sst", 100);
        files.remove(&path);
        assert_eq!((files.names().len(), files.manager.total_size()), (0, 0));
        assert_eq!(files.stats.ticker(Ticker::FilesDeletedImmediately), 1);
    }

    #[test]
    fn trash_goes_at_the_rate_and_counts_until_then() {
        let files = Files::new(SstFileManager::new());
        files.manager.set_delete_rate_bytes_per_second(1);
        files.manager.set_max_trash_db_ratio(1.0);
        files.make("000009.sst", 1000);
        for number in 1..=4 {
            let path = files.make(&format!("00000{number}.sst"), 100);
            files.remove(&path);
        }
        // The first is removed, and the job then waits for a long time.
        for name in ["000002.sst.trash", "000003.sst.trash", "000004.sst.trash"] {
            assert!(files.names().contains(&name.into()), "{:?}", files.names());
        }
        assert!(files.manager.total_size() >= 1300);
        let begun = std::time::Instant::now();
        files.manager.set_delete_rate_bytes_per_second(1000);
        files.wait_until_empty();
        // The job waits a tenth of a second after the second and after the third.
        assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
        assert_eq!(files.names(), ["000009.sst"]);
        assert_eq!(files.manager.total_size(), 1000);
        assert_eq!(files.stats.ticker(Ticker::FilesMarkedTrash), 4);
        assert_eq!(files.stats.ticker(Ticker::FilesDeletedFromTrashQueue), 4);
    }

    #[test]
    fn more_trash_than_the_ratio_allows_is_removed_at_once() {
        let files = Files::new(SstFileManager::new());
        files.manager.set_delete_rate_bytes_per_second(1);
        files.make("000009.sst", 100);
        let (first, second) = (files.make("000001.sst", 100), files.make("000002.sst", 100));
        let third = files.make("000003.sst", 100);
        // The first is removed, and the job waits; the second stays; the third exceeds the ratio.
        [first, second, third].iter().for_each(|path| files.remove(path));
        assert!(!files.names().contains(&"000003.sst.trash".into()), "{:?}", files.names());
        assert_eq!(files.stats.ticker(Ticker::FilesDeletedImmediately), 1);
        assert_eq!(files.stats.ticker(Ticker::FilesMarkedTrash), 2);
        // A new rate applies at once to existing trash.
        files.manager.set_delete_rate_bytes_per_second(0);
        files.wait_until_empty();
        assert_eq!(files.names(), ["000009.sst"]);
    }

    #[test]
    fn large_files_are_cut_unless_they_have_another_name() {
        let files = Files::new(SstFileManager::with_bytes_max_delete_chunk(100));
        files.manager.set_delete_rate_bytes_per_second(1);
        files.manager.set_max_trash_db_ratio(10.0);
        files.make("000009.sst", 10_000);
        let (cut, linked) = (files.make("000001.sst", 450), files.make("000002.sst", 450));
        files.env.fs().link(&linked, Path::new("/db/copy")).unwrap();
        files.remove(&cut);
        files.remove(&linked);
        // The file is truncated once, and the job then waits.
        files.wait_until(|| files.manager.tracked_files()[Path::new("/db/000001.sst.trash")] == 350);
        assert_eq!(files.env.fs().metadata(Path::new("/db/000001.sst.trash")).unwrap().len, 350);
        files.manager.set_delete_rate_bytes_per_second(0);
        files.wait_until_empty();
        assert_eq!(files.env.fs().metadata(Path::new("/db/copy")).unwrap().len, 450);
        assert_eq!(files.names(), ["000009.sst", "copy"]);
        assert_eq!(files.manager.total_size(), 10_000);
    }

    #[test]
    fn what_was_left_is_adopted_once_and_names_that_are_taken_are_passed_over() {
        let files = Files::new(SstFileManager::new());
        files.manager.set_delete_rate_bytes_per_second(1);
        files.manager.set_max_trash_db_ratio(10.0);
        let old = Path::new("/db/000001.sst.trash");
        files.env.fs().create(old).unwrap().append(b"old").unwrap();
        let path = files.make("000001.sst", 10);
        // The first is removed, so that the others wait.
        let first = files.make("000002.sst", 1000);
        files.remove(&first);
        for _ in 0..2 {
            files.manager.adopt(&files.env, &files.stats, old.into());
        }
        files.remove(&path);
        assert!(files.names().contains(&"000001.sst1.trash".into()), "{:?}", files.names());
        files.manager.set_delete_rate_bytes_per_second(0);
        files.wait_until_empty();
        assert_eq!(files.names(), Vec::<String>::new());
        assert_eq!(files.manager.total_size(), 0);
    }

    /// The job ends with the manager and leaves the remaining trash unchanged.
    #[test]
    fn nothing_is_removed_without_a_manager() {
        let mut files = Files::new(SstFileManager::new());
        files.manager.set_delete_rate_bytes_per_second(1);
        files.manager.set_max_trash_db_ratio(10.0);
        files.make("000009.sst", 1000);
        let (first, second) = (files.make("000001.sst", 1000), files.make("000002.sst", 10));
        files.remove(&first);
        files.remove(&second);
        let inner = Arc::downgrade(&files.manager.0);
        files.manager = SstFileManager::new();
        let begun = std::time::Instant::now();
        while inner.strong_count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(files.names().contains(&"000002.sst.trash".into()), "{:?}", files.names());
    }
}
