//! The database, write batches and snapshots.

use crate::bytes::{Given, GivenPath, Keys};
use crate::error::{Closed, detached, raised};
use crate::iter::{Cursor, RdictIter};
use crate::operation::{Operation, Outcome, waited_for};
use crate::options::{Families, NamedTexts, Settings};
use crate::reads::{Read, bounds, did_you_mean, read_options};
use crate::shared::{Kind, Owned, Shared, lock};
use karstdb::{
    BottommostLevelCompaction, Checkpoint, ColumnFamily, CompactRangeOptions, Db, FlushOptions,
    IngestExternalFileArg, IngestExternalFileOptions, Options, ReadOptions, Result, SizeApproximationOptions,
};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A write, which takes locks in a `TransactionDB`.
macro_rules! written {
    ($self:ident, $py:ident, $call:ident($($given:expr),*)) => {{
        $self.shared.here()?;
        detached($py, || match $self.shared.kind() {
            Kind::Locking(db) => db.$call($($given),*),
            _ => $self.shared.db().$call($($given),*),
        })
    }};
}

/// A snapshot: the database at one moment. Leaving a `with` block releases it.
#[pyclass(frozen, module = "karstdb")]
pub struct Snapshot {
    taken: Mutex<Option<Owned<karstdb::Snapshot>>>,
    shared: Arc<Shared>,
    /// Column family of its own reads.
    family: Owned<ColumnFamily>,
}

impl Snapshot {
    pub fn of(taken: karstdb::Snapshot, shared: Arc<Shared>, family: ColumnFamily) -> Self {
        Snapshot { taken: Mutex::new(Some(Owned::new(taken))), shared, family: Owned::new(family) }
    }

    /// Returns the snapshot for the options of a read.
    pub fn taken(&self) -> PyResult<karstdb::Snapshot> {
        self.shared.here()?;
        let taken = lock(&self.taken).as_ref().map(|taken| karstdb::Snapshot::clone(taken));
        taken.ok_or_else(|| Closed::new_err("the snapshot is closed"))
    }

    fn family<'a>(&'a self, given: Option<&'a Rdict>) -> PyResult<&'a ColumnFamily> {
        given.map_or_else(|| Ok(&*self.family), Rdict::family)
    }
}

#[pymethods]
impl Snapshot {
    /// The last sequence number that it sees.
    #[getter]
    fn sequence_number(&self) -> PyResult<u64> {
        Ok(self.taken()?.sequence_number())
    }

    #[pyo3(signature = (key, read, column_family))]
    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: Given,
        read: Option<&Bound<'_, PyDict>>,
        column_family: Option<&Rdict>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let options = read_options(&self.shared, Read::Get, Some(self), read)?;
        let family = self.family(column_family)?;
        let value = self.shared.run(py, |db| db.get_cf(&options, family, key))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let found = self._get(py, key.extract()?, None, None)?;
        found.ok_or_else(|| PyKeyError::new_err(key.unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: Given) -> PyResult<bool> {
        Ok(self._get(py, key, None, None)?.is_some())
    }

    /// Returns a cursor over the snapshot, which must be positioned before its first use.
    #[pyo3(signature = (column_family=None, *, lower=None, upper=None, **read))]
    fn iter(
        &self,
        py: Python<'_>,
        column_family: Option<&Rdict>,
        lower: Option<Given>,
        upper: Option<Given>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<RdictIter> {
        let options = bounds(read_options(&self.shared, Read::Iter, Some(self), read)?, lower, upper);
        let family = self.family(column_family)?;
        let cursor = self.shared.run(py, |db| db.iter_cf(&options, family))?;
        Ok(RdictIter::over(Cursor::Database(cursor), &self.shared))
    }

    /// Releases the snapshot. Its cursors remain valid.
    fn close(&self) {
        // The snapshot is dropped after the mutex is unlocked, with the interpreter's lock
        // released.
        let taken = lock(&self.taken).take();
        drop(taken);
    }

    /// `True` if the snapshot was released or the database is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        if lock(&self.taken).is_none() {
            return Ok(true);
        }
        self.shared.run(py, |db| Ok(db.check_open().is_err()))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        match self.taken() {
            Ok(taken) => format!("<karstdb.Snapshot of sequence number {}>", taken.sequence_number()),
            Err(_) => "<karstdb.Snapshot, closed>".to_owned(),
        }
    }
}

/// Writes that become visible together. The column family of an entry is that of the `Rdict` given
/// with it, or with the batch. Leaving a `with` block writes a batch that has a database, and
/// empties every batch; a block that raised writes nothing.
#[pyclass(frozen, module = "karstdb")]
pub struct WriteBatch {
    batch: Mutex<karstdb::WriteBatch>,
    into: Option<(Py<Rdict>, karstdb::WriteOptions)>,
}

impl WriteBatch {
    fn with(&self, call: impl FnOnce(&mut karstdb::WriteBatch) -> Result<()>) -> PyResult<()> {
        let outcome = call(&mut lock(&self.batch));
        outcome.map_err(raised)
    }

    fn copied(&self, py: Python<'_>) -> karstdb::WriteBatch {
        py.detach(|| lock(&self.batch).clone())
    }

    fn family<'a>(&'a self, given: Option<&'a Rdict>) -> PyResult<Option<&'a ColumnFamily>> {
        let into = self.into.as_ref().map(|(into, _)| into.get());
        given.or(into).map(Rdict::family).transpose()
    }
}

#[pymethods]
impl WriteBatch {
    #[new]
    #[pyo3(signature = (db=None, *, sync=false, disable_wal=false, write_opt=None))]
    fn new(db: Option<Py<Rdict>>, sync: bool, disable_wal: bool, write_opt: Option<&WriteOptions>) -> Self {
        let into = db.map(|db| (db, write_options(sync, disable_wal, write_opt)));
        WriteBatch { batch: Mutex::new(karstdb::WriteBatch::new()), into }
    }

    /// Sets a key.
    #[pyo3(signature = (key, value, column_family=None))]
    fn put(&self, key: Given, value: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        let family = self.family(column_family)?;
        self.with(|batch| match family {
            Some(family) => batch.put_cf(family, &key, &value),
            None => batch.put(&key, &value),
        })
    }

    /// Removes a key.
    #[pyo3(signature = (key, column_family=None))]
    fn delete(&self, key: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        let family = self.family(column_family)?;
        self.with(|batch| match family {
            Some(family) => batch.delete_cf(family, &key),
            None => batch.delete(&key),
        })
    }

    /// Removes the keys from `begin` up to `end`, exclusive.
    #[pyo3(signature = (begin, end, column_family=None))]
    fn delete_range(&self, begin: Given, end: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        let family = self.family(column_family)?;
        self.with(|batch| match family {
            Some(family) => batch.delete_range_cf(family, &begin, &end),
            None => batch.delete_range(&begin, &end),
        })
    }

    /// Adds a merge operand to a key.
    #[pyo3(signature = (key, operand, column_family=None))]
    fn merge(&self, key: Given, operand: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        let family = self.family(column_family)?;
        self.with(|batch| match family {
            Some(family) => batch.merge_cf(family, &key, &operand),
            None => batch.merge(&key, &operand),
        })
    }

    /// Empties the batch.
    fn clear(&self) {
        *lock(&self.batch) = karstdb::WriteBatch::new();
    }

    fn __len__(&self) -> usize {
        lock(&self.batch).count() as usize
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyAny>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let batch = std::mem::take(&mut *lock(&self.batch));
        match &self.into {
            Some((into, options)) if kind.is_none() => {
                let into = into.get();
                into.family()?;
                written!(into, py, write(options, &batch))
            }
            _ => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<karstdb.WriteBatch of {} operations>", self.__len__())
    }
}

/// A database, or one of its column families, used as a dict of bytes.
#[pyclass(frozen, subclass, module = "karstdb")]
pub struct Rdict {
    pub shared: Arc<Shared>,
    column_family: Owned<ColumnFamily>,
    /// True if it is a handle of one column family, which is closed alone.
    is_handle: bool,
    /// True if this handle was closed.
    closed: AtomicBool,
}

impl Rdict {
    /// Opens a database. With `writing`, creates the missing column families.
    pub fn open(
        py: Python<'_>,
        path: &Path,
        settings: Settings,
        families: Families,
        writing: bool,
        open: impl FnOnce(&Options) -> PyResult<Kind> + Send,
    ) -> PyResult<Self> {
        let failures: Vec<_> = settings.failures().chain(families.failures()).collect();
        let options =
            if writing { settings.clone().for_writing()? } else { settings.clone().over(Options::new())? };
        // An error means that the database is missing, or opening reports it.
        let existing = match writing && !families.0.is_empty() {
            true => py.detach(|| Db::list_column_families(path, &options)).unwrap_or_default(),
            false => Vec::new(),
        };
        let (old, new): (Vec<_>, Vec<_>) = families
            .0
            .into_iter()
            .partition(|(name, _)| !writing || name == "default" || existing.contains(name));
        let options = Families(old).set(options)?;
        let new = new.into_iter().map(|(name, own)| {
            // The options with which it will be opened.
            Ok((name, own.over(settings.clone().over(Options::new())?)?))
        });
        let new: Vec<_> = new.collect::<PyResult<_>>()?;
        let shared = Shared::new(detached(py, || Ok(open(&options)))??);
        shared.watch(failures);
        for (name, own) in new {
            shared.run(py, |db| db.create_column_family(&name, &own).map(|_| ()))?;
        }
        let column_family = Owned::new(shared.db().default_column_family().clone());
        Ok(Rdict { shared, column_family, is_handle: false, closed: AtomicBool::new(false) })
    }

    /// Returns a handle of another column family of the database.
    fn handle(&self, family: ColumnFamily) -> Rdict {
        let column_family = Owned::new(family);
        Rdict { shared: self.shared.clone(), column_family, is_handle: true, closed: AtomicBool::new(false) }
    }

    /// Returns the column family for reads and writes, or an error if it is closed.
    pub fn family(&self) -> PyResult<&ColumnFamily> {
        self.shared.here()?;
        if self.closed.load(Ordering::Relaxed) {
            return Err(Closed::new_err("the handle of the column family is closed"));
        }
        Ok(&self.column_family)
    }

    /// Calls `call` with the database, with the interpreter's lock released.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Db, &ColumnFamily) -> Result<T> + Send,
    ) -> PyResult<T> {
        let family = self.family()?;
        self.shared.run(py, |db| call(db, family))
    }

    /// Returns the operation of a checkpoint.
    pub fn checkpoint(&self, path: GivenPath, log_size_for_flush: u64) -> PyResult<Operation> {
        let (shared, _) = self.kept()?;
        Ok(Operation::new(async move {
            let checkpoint = Checkpoint::new(shared.db())?;
            checkpoint.create_checkpoint_async(&path, log_size_for_flush).await?;
            Ok(Outcome::Nothing)
        }))
    }

    /// Returns the database and the column family for a future, which may outlive the Python
    /// object.
    pub fn kept(&self) -> PyResult<(Arc<Shared>, ColumnFamily)> {
        let family = self.family()?.clone();
        Ok((self.shared.clone(), family))
    }
}

/// The options of a compaction of a range.
fn compaction(bottommost_level: &str) -> PyResult<CompactRangeOptions> {
    let bottommost_level_compaction = match bottommost_level {
        "skip" => BottommostLevelCompaction::Skip,
        "if_have_compaction_filter" => BottommostLevelCompaction::IfHaveCompactionFilter,
        "force" => BottommostLevelCompaction::Force,
        "force_optimized" => BottommostLevelCompaction::ForceOptimized,
        _ => {
            return Err(PyValueError::new_err(
                "bottommost_level_compaction is skip, if_have_compaction_filter, force or force_optimized",
            ));
        }
    };
    Ok(CompactRangeOptions { bottommost_level_compaction, ..Default::default() })
}

/// The options of an ingestion: all are flags.
fn ingest_options(named: Option<&Bound<'_, PyDict>>) -> PyResult<IngestExternalFileOptions> {
    type Flag = fn(&mut IngestExternalFileOptions) -> &mut bool;
    const FLAGS: &[(&str, Flag)] = &[
        ("move_files", |options| &mut options.move_files),
        ("link_files", |options| &mut options.link_files),
        ("snapshot_consistency", |options| &mut options.snapshot_consistency),
        ("allow_global_seqno", |options| &mut options.allow_global_seqno),
        ("allow_blocking_flush", |options| &mut options.allow_blocking_flush),
        ("ingest_behind", |options| &mut options.ingest_behind),
        ("verify_checksums_before_ingest", |options| &mut options.verify_checksums_before_ingest),
        ("fail_if_not_bottommost_level", |options| &mut options.fail_if_not_bottommost_level),
        ("allow_db_generated_files", |options| &mut options.allow_db_generated_files),
    ];
    let mut options = IngestExternalFileOptions::default();
    for (name, value) in named.into_iter().flat_map(|named| named.iter()) {
        let name: String = name.extract()?;
        let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == name) else {
            let meant = did_you_mean(value.py(), &name, FLAGS.iter().map(|(known, _)| *known));
            return Err(PyTypeError::new_err(format!("an ingestion has no option {name}{meant}")));
        };
        *flag(&mut options) = value.extract()?;
    }
    Ok(options)
}

pub fn write_options(sync: bool, disable_wal: bool, given: Option<&WriteOptions>) -> karstdb::WriteOptions {
    let given = given.map_or_else(karstdb::WriteOptions::new, |given| given.0);
    karstdb::WriteOptions { sync: given.sync || sync, disable_wal: given.disable_wal || disable_wal, ..given }
}

/// Options of writes. `timeout` is the maximum time in seconds that a write waits while writes are
/// slowed down or stopped.
#[pyclass(frozen, module = "karstdb")]
pub struct WriteOptions(karstdb::WriteOptions);

#[pymethods]
impl WriteOptions {
    #[new]
    #[pyo3(signature = (
        *, sync=false, disable_wal=false, no_slowdown=false, timeout=None, low_pri=false,
        ignore_missing_column_families=false
    ))]
    fn new(
        sync: bool,
        disable_wal: bool,
        no_slowdown: bool,
        timeout: Option<f64>,
        low_pri: bool,
        ignore_missing_column_families: bool,
    ) -> PyResult<Self> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        Ok(WriteOptions(karstdb::WriteOptions {
            sync,
            disable_wal,
            no_slowdown,
            timeout: timeout.map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?,
            low_pri,
            ignore_missing_column_families,
            ..karstdb::WriteOptions::new()
        }))
    }
}

#[pymethods]
impl Rdict {
    #[new]
    #[pyo3(signature = (
        path, options=Settings::default(), column_families=Families::default(), *, mode="rw",
        secondary_path=None, **named
    ))]
    fn new(
        py: Python<'_>,
        path: GivenPath,
        options: Settings,
        column_families: Families,
        mode: &str,
        secondary_path: Option<GivenPath>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let settings = options.and(named)?;
        let open = |options: &Options| match (mode, &secondary_path) {
            ("rw", None) => Db::open(&path, options).map(Kind::Plain).map_err(raised),
            ("r", None) => Db::open_read_only(&path, options).map(Kind::Plain).map_err(raised),
            ("secondary", Some(own)) => {
                Db::open_as_secondary(&path, own, options).map(Kind::Plain).map_err(raised)
            }
            _ => Err(PyValueError::new_err("mode is rw, r, or secondary with a secondary_path")),
        };
        Rdict::open(py, &path, settings, column_families, mode == "rw", open)
    }

    /// Closes the database, with all its column families, cursors and transactions. A handle from
    /// `get_column_family` or `create_column_family` is closed alone.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_handle {
            self.shared.here()?;
            self.closed.store(true, Ordering::Relaxed);
            return Ok(());
        }
        self.shared.run(py, |db| db.close())
    }

    /// `True` if the database, or this handle of a column family, is closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        if self.closed.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.shared.run(py, |db| Ok(db.check_open().is_err()))
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        let (rdict, kind) = (this.get(), this.get_type().name()?);
        if rdict.shared.here().is_err() {
            return Ok(format!("<karstdb.{kind}, opened before a fork>"));
        }
        let path = rdict.shared.db().path().display().to_string();
        let family = match rdict.is_handle {
            true => format!(", column family {:?}", rdict.column_family.name()),
            false => String::new(),
        };
        let closed = if rdict.closed(this.py())? { ", closed" } else { "" };
        Ok(format!("<karstdb.{kind} {path:?}{family}{closed}>"))
    }

    /// Counts the keys by reading all of them. `list(db)` calls this, `list(db.keys())` does not.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, |db, family| {
            let mut cursor = db.iter_cf(&ReadOptions { fill_cache: false, ..ReadOptions::new() }, family)?;
            let mut count = 0;
            cursor.seek_to_first()?;
            while cursor.valid() {
                count += 1;
                cursor.next()?;
            }
            Ok(count)
        })
    }

    /// `True` if the column family has a key.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, |db, family| {
            let mut cursor = db.iter_cf(&ReadOptions::new(), family)?;
            cursor.seek_to_first()?;
            Ok(cursor.valid())
        })
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    #[pyo3(signature = (key, snapshot, read))]
    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: Given,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let options = read_options(&self.shared, Read::Get, snapshot, read)?;
        let value = self.run(py, |db, family| db.get_cf(&options, family, key))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Returns the values of keys, `None` for those that do not exist. Reads from storage run
    /// concurrently.
    #[pyo3(signature = (keys, snapshot=None, **read))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Keys,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = read_options(&self.shared, Read::MultiGet, snapshot, read)?;
        let keys = keys.into_vec();
        let values = self.run(py, |db, family| Ok(db.multi_get_cf(&options, family, &keys)))?;
        Outcome::Values(values).into_python(py)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let found = self._get(py, key.extract()?, None, None)?;
        found.ok_or_else(|| PyKeyError::new_err(key.unbind()))
    }

    fn __setitem__(&self, py: Python<'_>, key: Given, value: Given) -> PyResult<()> {
        self.put(py, key, value, false, false, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.delete(py, key, false, false, None)
    }

    fn __contains__(&self, py: Python<'_>, key: Given) -> PyResult<bool> {
        let options = ReadOptions::new();
        self.run(py, |db, family| Ok(db.get_cf(&options, family, key)?.is_some()))
    }

    /// Sets a key.
    #[pyo3(signature = (key, value, *, sync=false, disable_wal=false, write_opt=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Given,
        value: Given,
        sync: bool,
        disable_wal: bool,
        write_opt: Option<&WriteOptions>,
    ) -> PyResult<()> {
        let options = write_options(sync, disable_wal, write_opt);
        let family = self.family()?;
        written!(self, py, put_cf(&options, family, key, value))
    }

    /// Removes a key, which need not exist.
    #[pyo3(signature = (key, *, sync=false, disable_wal=false, write_opt=None))]
    fn delete(
        &self,
        py: Python<'_>,
        key: Given,
        sync: bool,
        disable_wal: bool,
        write_opt: Option<&WriteOptions>,
    ) -> PyResult<()> {
        let options = write_options(sync, disable_wal, write_opt);
        let family = self.family()?;
        written!(self, py, delete_cf(&options, family, key))
    }

    /// Removes the keys from `begin` up to `end`, exclusive.
    #[pyo3(signature = (begin, end, *, sync=false, disable_wal=false, write_opt=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        begin: Given,
        end: Given,
        sync: bool,
        disable_wal: bool,
        write_opt: Option<&WriteOptions>,
    ) -> PyResult<()> {
        let options = write_options(sync, disable_wal, write_opt);
        let mut batch = karstdb::WriteBatch::new();
        batch.delete_range_cf(self.family()?, begin, end).map_err(raised)?;
        written!(self, py, write(&options, &batch))
    }

    /// Adds a merge operand to a key.
    #[pyo3(signature = (key, operand, *, sync=false, disable_wal=false, write_opt=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Given,
        operand: Given,
        sync: bool,
        disable_wal: bool,
        write_opt: Option<&WriteOptions>,
    ) -> PyResult<()> {
        let options = write_options(sync, disable_wal, write_opt);
        let family = self.family()?;
        written!(self, py, merge_cf(&options, family, key, operand))
    }

    /// Writes a batch atomically.
    #[pyo3(signature = (batch, *, sync=false, disable_wal=false, write_opt=None))]
    fn write(
        &self,
        py: Python<'_>,
        batch: &WriteBatch,
        sync: bool,
        disable_wal: bool,
        write_opt: Option<&WriteOptions>,
    ) -> PyResult<()> {
        let options = write_options(sync, disable_wal, write_opt);
        let batch = batch.copied(py);
        self.family()?;
        written!(self, py, write(&options, &batch))
    }

    /// Writes the memtables to tables, and returns when that is done.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |db, family| db.flush_cfs(&FlushOptions::default(), &[family]))
    }

    /// Writes the buffered log to the operating system; with `sync` to the device.
    #[pyo3(signature = (sync=true))]
    fn flush_wal(&self, py: Python<'_>, sync: bool) -> PyResult<()> {
        self.run(py, |db, _| db.flush_wal(sync))
    }

    /// Compacts a range of keys, or all of them. Ctrl-C ends it; finished parts stay compacted.
    #[pyo3(signature = (begin=None, end=None, *, bottommost_level_compaction="if_have_compaction_filter"))]
    fn compact_range(
        &self,
        py: Python<'_>,
        begin: Option<Given>,
        end: Option<Given>,
        bottommost_level_compaction: &str,
    ) -> PyResult<()> {
        let options = compaction(bottommost_level_compaction)?;
        let family = self.family()?;
        let (begin, end) = (begin.as_ref().map(AsRef::as_ref), end.as_ref().map(AsRef::as_ref));
        waited_for(py, self.shared.db().compact_range_cf_async(&options, family, begin, end))?;
        self.shared.filtered()
    }

    /// Returns the approximate bytes in files of the keys from `begin` up to `end`, exclusive.
    #[pyo3(signature = (begin, end, *, include_memtables=false, include_files=true))]
    fn approximate_size(
        &self,
        py: Python<'_>,
        begin: Given,
        end: Given,
        include_memtables: bool,
        include_files: bool,
    ) -> PyResult<u64> {
        let options = SizeApproximationOptions { include_memtables, include_files, ..Default::default() };
        let range = (begin.as_ref(), end.as_ref());
        let sizes = self.run(py, |db, family| db.approximate_sizes_cf(&options, family, &[range]))?;
        Ok(sizes.into_iter().sum())
    }

    /// Returns `False` if memory alone shows that the key does not exist; reads no file.
    fn key_may_exist(&self, py: Python<'_>, key: Given) -> PyResult<bool> {
        let options = ReadOptions::new();
        self.run(py, |db, family| Ok(db.key_may_exist_cf(&options, family, key)?.0))
    }

    /// Ingests files of `SstFileWriter` atomically. The options are flags:
    /// `move_files`, `link_files`, `snapshot_consistency`, `allow_global_seqno`,
    /// `allow_blocking_flush`, `ingest_behind`, `verify_checksums_before_ingest`,
    /// `fail_if_not_bottommost_level` and `allow_db_generated_files`.
    #[pyo3(signature = (paths, **options))]
    fn ingest_external_file(
        &self,
        py: Python<'_>,
        paths: Vec<GivenPath>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let options = ingest_options(options)?;
        self.run(py, |db, family| {
            db.ingest_external_files(&[IngestExternalFileArg::new(family, paths, options)])
        })
    }

    /// Changes options of the column family while the database is open:
    /// `{"write_buffer_size": "1M"}`.
    fn set_options(&self, py: Python<'_>, options: NamedTexts) -> PyResult<()> {
        let given = options.pairs();
        self.run(py, |db, family| db.set_options(family, &given))
    }

    /// Changes options of the database while it is open.
    fn set_db_options(&self, py: Python<'_>, options: NamedTexts) -> PyResult<()> {
        let given = options.pairs();
        self.run(py, |db, _| db.set_db_options(&given))
    }

    /// Reads every table and blob file, and raises `Corruption` if one is damaged. Ctrl-C ends it.
    fn verify_checksum(&self, py: Python<'_>) -> PyResult<()> {
        self.family()?;
        waited_for(py, self.shared.db().verify_checksum_async())
    }

    /// The directory of the database.
    fn path(&self) -> PathBuf {
        self.shared.db().path().clone()
    }

    /// Takes a snapshot of the database for reads.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let taken = self.run(py, |db, _| db.check_open().map(|()| db.snapshot()))?;
        Ok(Snapshot::of(taken, self.shared.clone(), self.family()?.clone()))
    }

    /// Returns one of RocksDB's properties as text, or `None` for an unknown name.
    fn property_value(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        self.run(py, |db, family| db.check_open().map(|()| db.property_cf(family, name)))
    }

    /// Returns one of RocksDB's integer properties, or `None` for an unknown name.
    fn property_int_value(&self, py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
        self.run(py, |db, family| db.check_open().map(|()| db.int_property_cf(family, name)))
    }

    /// Returns the sequence number of the last visible write.
    fn latest_sequence_number(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |db, _| db.check_open().map(|()| db.latest_sequence_number()))
    }

    /// Advances a secondary to the primary's present state.
    fn try_catch_up_with_primary(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |db, _| db.try_catch_up_with_primary())
    }

    /// Makes a copy of the database, with hard links; see `Checkpoint`.
    fn create_checkpoint(&self, py: Python<'_>, path: GivenPath) -> PyResult<()> {
        self.run(py, |db, _| Checkpoint::new(db)?.create_checkpoint(path, 0))
    }

    /// Creates a column family and returns its handle.
    #[pyo3(signature = (name, options=Settings::default(), **named))]
    fn create_column_family(
        &self,
        py: Python<'_>,
        name: &str,
        options: Settings,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Rdict> {
        let options = options.and(named)?;
        self.shared.watch(options.failures());
        let options = options.over(Options::new())?;
        let family = self.run(py, |db, _| db.create_column_family(name, &options))?;
        Ok(self.handle(family))
    }

    /// Returns the handle of a column family, which is used like the database.
    fn get_column_family(&self, py: Python<'_>, name: &str) -> PyResult<Rdict> {
        let family = self.run(py, |db, _| db.cf(name).map(|cf| cf.column_family().clone()))?;
        Ok(self.handle(family))
    }

    /// Removes a column family with its contents.
    fn drop_column_family(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |db, _| db.drop_column_family(db.cf(name)?.column_family()))
    }

    /// Returns a cursor over the present state, which must be positioned before its first use.
    #[pyo3(signature = (*, snapshot=None, lower=None, upper=None, **read))]
    fn iter(
        &self,
        py: Python<'_>,
        snapshot: Option<&Snapshot>,
        lower: Option<Given>,
        upper: Option<Given>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<RdictIter> {
        let options = bounds(read_options(&self.shared, Read::Iter, snapshot, read)?, lower, upper);
        let cursor = self.run(py, |db, family| db.iter_cf(&options, family))?;
        Ok(RdictIter::over(Cursor::Database(cursor), &self.shared))
    }

    #[pyo3(signature = (key, snapshot, read))]
    fn _get_operation(
        &self,
        key: Given,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (shared, family) = self.kept()?;
        let options = read_options(&shared, Read::Get, snapshot, read)?;
        Ok(Operation::new(async move {
            Ok(Outcome::Value(shared.db().get_cf_async(&options, &family, &key).await?))
        }))
    }

    #[pyo3(signature = (keys, snapshot, read))]
    fn _multi_get_operation(
        &self,
        keys: Keys,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (shared, family) = self.kept()?;
        let options = read_options(&shared, Read::MultiGet, snapshot, read)?;
        let keys = keys.into_vec();
        Ok(Operation::new(async move {
            Ok(Outcome::Values(shared.db().multi_get_cf_async(&options, &family, &keys).await))
        }))
    }

    fn _write_operation(
        &self,
        py: Python<'_>,
        batch: &WriteBatch,
        sync: bool,
        disable_wal: bool,
        write_opt: Option<&WriteOptions>,
    ) -> PyResult<Operation> {
        let (shared, _) = self.kept()?;
        let batch = batch.copied(py);
        let options = write_options(sync, disable_wal, write_opt);
        Ok(Operation::new(async move {
            match shared.kind() {
                Kind::Locking(db) => db.write_async(&options, batch).await?,
                _ => shared.db().write_async(&options, &batch).await?,
            }
            Ok(Outcome::Nothing)
        }))
    }

    #[pyo3(signature = (paths, options))]
    fn _ingest_operation(
        &self,
        paths: Vec<GivenPath>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (shared, family) = self.kept()?;
        let arg = IngestExternalFileArg::new(&family, paths, ingest_options(options)?);
        Ok(Operation::new(async move {
            shared.db().ingest_external_files_async(&[arg]).await?;
            Ok(Outcome::Nothing)
        }))
    }

    fn _create_checkpoint_operation(&self, path: GivenPath) -> PyResult<Operation> {
        self.checkpoint(path, 0)
    }

    #[pyo3(signature = (begin, end, bottommost_level_compaction))]
    fn _compact_range_operation(
        &self,
        begin: Option<Given>,
        end: Option<Given>,
        bottommost_level_compaction: &str,
    ) -> PyResult<Operation> {
        let (shared, family) = self.kept()?;
        let options = compaction(bottommost_level_compaction)?;
        Ok(Operation::new(async move {
            let (begin, end) = (begin.as_ref().map(AsRef::as_ref), end.as_ref().map(AsRef::as_ref));
            shared.db().compact_range_cf_async(&options, &family, begin, end).await?;
            Ok(Outcome::Nothing)
        }))
    }

    /// Raises the first exception of a compaction filter since the last call.
    fn _filtered(&self) -> PyResult<()> {
        self.shared.filtered()
    }

    fn _verify_checksum_operation(&self) -> PyResult<Operation> {
        let (shared, _) = self.kept()?;
        Ok(Operation::new(async move {
            shared.db().verify_checksum_async().await?;
            Ok(Outcome::Nothing)
        }))
    }

    fn _close_operation(&self) -> PyResult<Operation> {
        self.shared.here()?;
        let shared = self.shared.clone();
        if self.is_handle {
            self.closed.store(true, Ordering::Relaxed);
            return Ok(Operation::new(async { Ok(Outcome::Nothing) }));
        }
        Ok(Operation::new(async move {
            shared.db().close_async().await?;
            Ok(Outcome::Nothing)
        }))
    }

    fn _flush_operation(&self) -> PyResult<Operation> {
        let (shared, family) = self.kept()?;
        Ok(Operation::new(async move {
            shared.db().flush_cfs_async(&FlushOptions::default(), &[&family]).await?;
            Ok(Outcome::Nothing)
        }))
    }
}
