//! What all column families of a database share for reading files, and the files that it keeps
//! open.
//!
//! In: open files by number. Out: the same again, unless they were closed meanwhile.
//!
//! With `max_open_files = -1` (the default) every file stays open with its metadata, where it is
//! found without a map or a lock: a table for as long as a version has the file, a blob file for as
//! long as anything describes it. With a limit both are kept here, and the ones not used lately are
//! closed; a read that uses one keeps it open.

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

/// Bits of a file's id that hold its number; the rest tells databases of one process apart.
const FILE_NUMBER_BITS: u32 = 40;

/// What all column families of a database share for reading files.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Reads and opens the files.
    pub env: Env,
    /// The cache of blocks.
    pub cache: Arc<BlockCache<CachedBlock>>,
    /// What is counted.
    pub stats: Arc<Statistics>,
    /// What is written down of what is asked.
    pub tracer: Arc<Tracer>,
    /// Directories of table files, by path id. Never empty. A column family with paths of its own
    /// has a `Shared` of its own.
    pub directories: Vec<PathBuf>,
    /// Those of all column families.
    places: Arc<RwLock<BTreeSet<(u8, PathBuf)>>>,
    /// How many bytes each of them should hold. Empty: all go to the first.
    pub path_target_sizes: Vec<u64>,
    /// Files are read with O_DIRECT.
    pub use_direct_reads: bool,
    /// Where the file system refuses that, they are read without.
    pub(crate) may_read_buffered: bool,
    /// A table must have the unique id that the MANIFEST says, if it says any.
    pub(crate) verify_unique_ids: bool,
    /// Another process writes to the database, and removes what it needs no more.
    pub is_secondary: bool,
    /// Iterators ask prefix filters only where their options say so.
    pub prefix_seek_opt_in_only: bool,
    /// Tables, reads and iterators count against the cache.
    pub(crate) charges_memory: bool,
    /// Makes checksums of whole files that are written, and of those that are verified.
    pub file_checksums: Option<Arc<dyn FileChecksumGenFactory>>,
    /// What watches how much room the files take, if anything does.
    pub space: Option<SstFileManager>,
    /// The files that stay open.
    pub open_files: Arc<OpenFiles>,
    instance: u64,
}

impl Shared {
    /// As `options` have it.
    pub fn new(
        env: Env,
        cache: Arc<BlockCache<CachedBlock>>,
        stats: Arc<Statistics>,
        directories: Vec<PathBuf>,
        options: &DbOptions,
        charges_memory: bool,
    ) -> Self {
        let instance = cache.new_user();
        // Compat: a negative number stands for no limit.
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

    /// The same for a column family with other directories, which should hold so many bytes.
    #[must_use]
    pub fn in_directories(&self, directories: Vec<PathBuf>, path_target_sizes: Vec<u64>) -> Shared {
        note_places(&self.places, &directories);
        Shared { directories, path_target_sizes, ..self.clone() }
    }

    /// The directories of all column families that were open, each with a path id that one of them
    /// has it under.
    pub fn all_places(&self) -> Vec<(u8, PathBuf)> {
        self.places.read().iter().cloned().collect()
    }

    /// The same files in the same cache, read with O_DIRECT where that is to be had. What it opens
    /// stays open with the metadata that it is opened by.
    pub fn reading_directly(&self) -> Shared {
        Shared {
            use_direct_reads: true,
            may_read_buffered: true,
            open_files: Arc::new(OpenFiles::unlimited()),
            ..self.clone()
        }
    }

    /// The time, if times are collected; else the clock is not read.
    #[inline]
    pub fn start_timer(&self) -> Option<Duration> {
        self.stats.start_timer(&self.env)
    }

    /// Adds the time since `began` to a histogram, if times are collected.
    #[inline]
    pub fn measure_since(&self, kind: HistogramKind, began: Option<Duration>) {
        self.stats.measure_since(&self.env, &[kind], began);
    }

    /// Does a decompression and takes its time, if anybody wants to know.
    #[inline]
    pub(crate) fn time_decompression<R>(&self, work: impl FnOnce() -> R) -> R {
        let counts = self.stats.detailed_timers_enabled();
        let (result, nanos) = perf_context::timed(&self.env, PerfMetric::BlockDecompressTime, counts, work);
        if counts {
            self.stats.measure(HistogramKind::DecompressionTimesNanos, nanos);
        }
        result
    }

    /// Names a file within the process: the first half of the cache keys of its blocks.
    ///
    /// Why not from the file's unique id: a counter cannot collide, needs no read, and lasts over
    /// closing and reopening the file.
    pub(crate) fn file_id(&self, number: FileNumber) -> u64 {
        (self.instance << FILE_NUMBER_BITS) | (number.0 & ((1 << FILE_NUMBER_BITS) - 1))
    }

    /// What is said of a file that the MANIFEST names and that is not there.
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

    /// The path of a table file.
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

    /// True if a table or a blob file of the database may be at `path`: its directory is one of
    /// them, as it is spelled, and its name is that of such a file.
    pub fn has_place_of(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| FileName::parse(&name.to_string_lossy()));
        let is_stored = matches!(name, Some(FileName::Table(_) | FileName::Blob(_)));
        is_stored && self.all_places().iter().any(|(_, directory)| path.parent() == Some(directory))
    }

    /// The path of a blob file.
    pub fn blob_path(&self, number: FileNumber) -> PathBuf {
        self.directories[0].join(FileName::Blob(number).to_string())
    }
}

fn note_places(places: &RwLock<BTreeSet<(u8, PathBuf)>>, directories: &[PathBuf]) {
    // Compat: a MANIFEST tells four apart.
    places.write().extend((0..=u8::MAX).zip(directories.iter().cloned()));
}

/// An open file of whatever kind; a number has one kind.
type Opened = Arc<dyn Any + Send + Sync>;

/// The files that a database keeps open under a limit; without one they stay open with their
/// metadata, and this is empty.
#[derive(Debug)]
pub struct OpenFiles(Option<Limited>);

impl OpenFiles {
    pub(crate) fn unlimited() -> Self {
        OpenFiles(None)
    }

    /// At most so many, with those that a database needs besides.
    pub(crate) fn limited(max_open_files: usize) -> Self {
        OpenFiles(Some(Limited::new(max_open_files)))
    }

    /// Whether files are closed that were not used lately.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps at most so many files open from now on, if there is a limit at all.
    pub fn set_limit(&self, max_open_files: usize) {
        if let Some(files) = &self.0 {
            files.set_limit(max_open_files);
        }
    }

    /// The file with this number, if it is kept here.
    pub fn get<T: Any + Send + Sync>(&self, number: FileNumber) -> Option<Arc<T>> {
        self.0.as_ref()?.get(number)?.downcast().ok()
    }

    /// Keeps a file open, if there is a limit; returns the one that is kept, which may be another
    /// reader's.
    pub fn keep<T: Any + Send + Sync>(&self, number: FileNumber, file: Arc<T>) -> Arc<T> {
        let Some(files) = &self.0 else { return file };
        files.keep(number, file.clone()).downcast().unwrap_or(file)
    }

    /// Closes a file that is about to be removed, once no read uses it any more.
    pub fn forget(&self, number: FileNumber) {
        // Why first taken out and then dropped: closing is no work for under a lock.
        let forgotten = self.0.as_ref().and_then(|files| files.forget(number));
        drop(forgotten);
    }
}

/// Open files under a limit. Second chance: a file used since it was last considered is considered
/// again later.
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

/// Files that a database needs besides tables: logs, MANIFEST, lock. RocksDB keeps as many back.
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

    /// Takes a file out; it is closed when the last read that uses it ends.
    fn forget(&self, number: FileNumber) -> Option<Opened> {
        let mut inner = self.inner.lock();
        let (file, _) = inner.files.remove(&number)?;
        inner.order.retain(|other| *other != number);
        Some(file)
    }

    /// Keeps `file` unless one is kept under this number already; returns the one that is.
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
