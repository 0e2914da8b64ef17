//! State shared by all column families of a database for reading files, and the database's open
//! files.
//!
//! In: open files by number. Out: the open file, unless it was closed meanwhile.
//!
//! With `max_open_files = -1` (the default) every file stays open with its metadata and is found
//! without a map or a lock: a table while a version has the file, a blob file while any metadata
//! describes it. With a limit both are kept here, and files not used recently are closed; a read
//! keeps its file open.

use crate::block::CachedBlock;
use crate::file_checksum::FileChecksumGenFactory;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::DbOptions;
use karst_base::perf_context::{self, PerfMetric};
use karst_base::sst_file_manager::SstFileManager;
use karst_base::stats::{HistogramKind, Statistics};
use karst_base::sync::atomic::{AtomicUsize, Ordering};
use karst_base::sync::{Mutex, RwLock};
use karst_base::trace::{TraceForm, Tracer};
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_io::Env;
use karst_mem::BlockCache;
use std::any::Any;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bits of a file's id that hold its number; the rest distinguishes databases of one process.
const FILE_NUMBER_BITS: u32 = 40;

/// State shared by all column families of a database for reading files.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Opens and reads the files.
    pub env: Env,
    /// The block cache.
    pub cache: Arc<BlockCache<CachedBlock>>,
    /// The database's statistics.
    pub stats: Arc<Statistics>,
    /// The query trace.
    pub tracer: Arc<Tracer>,
    /// Directories of table files, by path id. Never empty. A column family with its own paths has
    /// its own `Shared`.
    pub directories: Vec<PathBuf>,
    /// Directories of all column families.
    places: Arc<RwLock<BTreeSet<(u8, PathBuf)>>>,
    /// Target size of each directory in bytes. If empty, all tables go to the first.
    pub path_target_sizes: Vec<u64>,
    /// True if files are read with O_DIRECT.
    pub use_direct_reads: bool,
    /// True if files are read buffered where the file system refuses O_DIRECT.
    pub(crate) may_read_buffered: bool,
    /// True if a table's unique id must match that in the MANIFEST, if recorded.
    pub(crate) verify_unique_ids: bool,
    /// True if another process writes to the database and removes obsolete files.
    pub is_secondary: bool,
    /// True if iterators use prefix filters only if their options request it.
    pub prefix_seek_opt_in_only: bool,
    /// True if tables, reads and iterators are charged to the cache.
    pub(crate) charges_memory: bool,
    /// Factory for checksums of whole files, written or verified.
    pub file_checksums: Option<Arc<dyn FileChecksumGenFactory>>,
    /// Tracks the space that files take, if set.
    pub space: Option<SstFileManager>,
    /// The files kept open.
    pub open_files: Arc<OpenFiles>,
    instance: u64,
}

impl Shared {
    /// Creates the state for a database with `options`.
    pub fn new(
        env: Env,
        cache: Arc<BlockCache<CachedBlock>>,
        stats: Arc<Statistics>,
        directories: Vec<PathBuf>,
        options: &DbOptions,
        charges_memory: bool,
    ) -> Self {
        let instance = cache.new_user();
        // Compat: a negative number means no limit.
        let limit = usize::try_from(options.max_open_files).ok();
        let places = Arc::default();
        note_places(&places, &directories);
        Shared {
            tracer: Tracer::new(env.clone(), TraceForm::Queries),
            env,
            cache,
            stats,
            directories,
            places,
            path_target_sizes: Vec::new(),
            use_direct_reads: options.use_direct_reads,
            may_read_buffered: false,
            verify_unique_ids: options.verify_sst_unique_id_in_manifest,
            is_secondary: false,
            prefix_seek_opt_in_only: options.prefix_seek_opt_in_only,
            charges_memory,
            file_checksums: None,
            space: None,
            open_files: Arc::new(limit.map_or_else(OpenFiles::unlimited, OpenFiles::limited)),
            instance,
        }
    }

    /// Returns a copy for a column family with other directories and target sizes in bytes.
    #[must_use]
    pub fn in_directories(&self, directories: Vec<PathBuf>, path_target_sizes: Vec<u64>) -> Shared {
        note_places(&self.places, &directories);
        Shared { directories, path_target_sizes, ..self.clone() }
    }

    /// Returns the directories of all column families opened so far, each with a path id under
    /// which one of them has it.
    pub fn all_places(&self) -> Vec<(u8, PathBuf)> {
        self.places.read().iter().cloned().collect()
    }

    /// Returns a copy for the same files and cache that reads with O_DIRECT if available. Files it
    /// opens stay open with the metadata they are opened through.
    pub fn reading_directly(&self) -> Shared {
        Shared {
            use_direct_reads: true,
            may_read_buffered: true,
            open_files: Arc::new(OpenFiles::unlimited()),
            ..self.clone()
        }
    }

    /// Returns the time if times are collected; otherwise the clock is not read.
    #[inline]
    pub fn start_timer(&self) -> Option<Duration> {
        self.stats.start_timer(&self.env)
    }

    /// Adds the time since `began` to a histogram, if times are collected.
    #[inline]
    pub fn measure_since(&self, kind: HistogramKind, began: Option<Duration>) {
        self.stats.measure_since(&self.env, &[kind], began);
    }

    /// Runs a decompression and times it if times are collected.
    #[inline]
    pub(crate) fn time_decompression<R>(&self, work: impl FnOnce() -> R) -> R {
        let counts = self.stats.detailed_timers_enabled();
        let (result, nanos) = perf_context::timed(&self.env, PerfMetric::BlockDecompressTime, counts, work);
        if counts {
            self.stats.measure(HistogramKind::DecompressionTimesNanos, nanos);
        }
        result
    }

    /// Returns a file's id within the process: the first half of the cache keys of its blocks.
    ///
    /// Not derived from the file's unique id because a counter cannot collide, needs no read, and
    /// survives closing and reopening the file.
    pub(crate) fn file_id(&self, number: FileNumber) -> u64 {
        (self.instance << FILE_NUMBER_BITS) | (number.0 & ((1 << FILE_NUMBER_BITS) - 1))
    }

    /// Returns the error for a file that the MANIFEST names and that does not exist.
    pub(crate) fn missing(&self, path: &Path, what: &str, error: karst_io::Error) -> Error {
        if self.is_secondary {
            let text = format!(
                "{}: the primary has removed this {what}; call try_catch_up_with_primary, and read again",
                path.display()
            );
            return Error::with_source(ErrorKind::NotFound, text, error);
        }
        let text = format!("{}: the MANIFEST names this {what}, but it is missing", path.display());
        Error::with_source(ErrorKind::Corruption, text, error)
    }

    /// Returns the path of a table file.
    pub fn table_path(&self, number: FileNumber, path_id: u8) -> Result<PathBuf> {
        let directory = self.directories.get(usize::from(path_id)).ok_or_else(|| {
            Error::invalid_argument(format!(
                "table file {} is in path {path_id}, but only {} paths are configured",
                number.0,
                self.directories.len()
            ))
        })?;
        Ok(directory.join(FileName::Table(number).to_string()))
    }

    /// Returns true if a table or blob file of the database may be at `path`: its directory is one
    /// of the database's, compared literally, and its name is that of such a file.
    pub fn has_place_of(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| FileName::parse(&name.to_string_lossy()));
        let is_stored = matches!(name, Some(FileName::Table(_) | FileName::Blob(_)));
        is_stored && self.all_places().iter().any(|(_, directory)| path.parent() == Some(directory))
    }

    /// Returns the path of a blob file.
    pub fn blob_path(&self, number: FileNumber) -> PathBuf {
        self.directories[0].join(FileName::Blob(number).to_string())
    }
}

fn note_places(places: &RwLock<BTreeSet<(u8, PathBuf)>>, directories: &[PathBuf]) {
    // Compat: a MANIFEST distinguishes four.
    places.write().extend((0..=u8::MAX).zip(directories.iter().cloned()));
}

/// An open file of any kind; each number has one kind.
type Opened = Arc<dyn Any + Send + Sync>;

/// The files that a database keeps open under a limit. Empty without a limit, because files then
/// stay open with their metadata.
#[derive(Debug)]
pub struct OpenFiles(Option<Limited>);

impl OpenFiles {
    pub(crate) fn unlimited() -> Self {
        OpenFiles(None)
    }

    /// Keeps at most `max_open_files` files open, including those reserved for the database's other
    /// needs.
    pub(crate) fn limited(max_open_files: usize) -> Self {
        OpenFiles(Some(Limited::new(max_open_files)))
    }

    /// Returns true if files not used recently are closed.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Changes the maximum number of open files, if there is a limit.
    pub fn set_limit(&self, max_open_files: usize) {
        if let Some(files) = &self.0 {
            files.set_limit(max_open_files);
        }
    }

    /// Returns the file with this number, if kept here.
    pub fn get<T: Any + Send + Sync>(&self, number: FileNumber) -> Option<Arc<T>> {
        self.0.as_ref()?.get(number)?.downcast().ok()
    }

    /// Keeps a file open if there is a limit; returns the kept one, which may be another reader's.
    pub fn keep<T: Any + Send + Sync>(&self, number: FileNumber, file: Arc<T>) -> Arc<T> {
        let Some(files) = &self.0 else { return file };
        files.keep(number, file.clone()).downcast().unwrap_or(file)
    }

    /// Closes a file that is about to be removed, after the last read that uses it.
    pub fn forget(&self, number: FileNumber) {
        // Taken out first and dropped afterwards, because closing must not happen under the lock.
        let forgotten = self.0.as_ref().and_then(|files| files.forget(number));
        drop(forgotten);
    }
}

/// Open files under a limit. Second chance: a file used since it was last considered for closing is
/// skipped once.
#[derive(Debug)]
pub struct Limited {
    capacity: AtomicUsize,
    /// Lock: held for a map operation only, never while a file is opened or dropped.
    inner: Mutex<LimitedInner>,
}

#[derive(Debug, Default)]
struct LimitedInner {
    files: HashMap<FileNumber, (Opened, bool)>,
    order: VecDeque<FileNumber>,
}

/// Number of files reserved for logs, MANIFEST and lock, as in RocksDB.
const RESERVED_FILES: usize = 10;

impl Limited {
    fn new(max_open_files: usize) -> Self {
        let files = Limited { capacity: AtomicUsize::new(0), inner: Mutex::default() };
        files.set_limit(max_open_files);
        files
    }

    /// Files beyond a lowered limit are closed when others are opened.
    fn set_limit(&self, max_open_files: usize) {
        let capacity = max_open_files.saturating_sub(RESERVED_FILES).max(1);
        // Ordering: a number only.
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    fn get(&self, number: FileNumber) -> Option<Opened> {
        let mut inner = self.inner.lock();
        let (file, used) = inner.files.get_mut(&number)?;
        *used = true;
        Some(file.clone())
    }

    /// Takes a file out of the set; it is closed when the last read that uses it ends.
    fn forget(&self, number: FileNumber) -> Option<Opened> {
        let mut inner = self.inner.lock();
        let (file, _) = inner.files.remove(&number)?;
        inner.order.retain(|other| *other != number);
        Some(file)
    }

    /// Keeps `file` unless one is kept under this number already; returns the kept one.
    fn keep(&self, number: FileNumber, file: Opened) -> Opened {
        let mut dropped = Vec::new();
        let mut inner = self.inner.lock();
        if let Some((kept, used)) = inner.files.get_mut(&number) {
            *used = true;
            return kept.clone();
        }
        while inner.files.len() >= self.capacity.load(Ordering::Relaxed)
            && let Some(candidate) = inner.order.pop_front()
        {
            match inner.files.get_mut(&candidate) {
                Some((_, used)) if *used => {
                    *used = false;
                    inner.order.push_back(candidate);
                }
                _ => dropped.push(inner.files.remove(&candidate)),
            }
        }
        inner.files.insert(number, (file.clone(), false));
        inner.order.push_back(number);
        drop(inner);
        drop(dropped);
        file
    }
}
