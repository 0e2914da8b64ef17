//! The database, write batches and snapshots.

use crate::bytes::Given;
use crate::error::{detached, raised};
use crate::iter::{Cursor, RdictIter};
use crate::operation::{Operation, Outcome};
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
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A snapshot: the database as it was.
#[pyclass(frozen, module = "karstdb")]
pub struct Snapshot(Owned<karstdb::Snapshot>, Arc<Shared>);

impl Snapshot {
    pub fn of(taken: karstdb::Snapshot, shared: Arc<Shared>) -> Self {
        Snapshot(Owned::new(taken), shared)
    }

    /// For the options of a read.
    pub fn taken(&self) -> karstdb::Snapshot {
        karstdb::Snapshot::clone(&self.0)
    }
}

#[pymethods]
impl Snapshot {
    /// The sequence number that it sees up to.
    #[getter]
    fn sequence_number(&self) -> PyResult<u64> {
        self.1.here()?;
        Ok(self.0.sequence_number())
    }
}

/// Writes that are seen all at once. The column family of an entry is that of the `Rdict` given.
#[pyclass(frozen, module = "karstdb")]
pub struct WriteBatch(Mutex<karstdb::WriteBatch>);

impl WriteBatch {
    fn with(&self, call: impl FnOnce(&mut karstdb::WriteBatch) -> Result<()>) -> PyResult<()> {
        let outcome = call(&mut lock(&self.0));
        outcome.map_err(raised)
    }

    fn copied(&self, py: Python<'_>) -> karstdb::WriteBatch {
        py.detach(|| lock(&self.0).clone())
    }
}

#[pymethods]
impl WriteBatch {
    #[new]
    fn new() -> Self {
        WriteBatch(Mutex::new(karstdb::WriteBatch::new()))
    }

    /// Sets a key.
    #[pyo3(signature = (key, value, column_family=None))]
    fn put(&self, key: Given, value: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        self.with(|batch| match column_family {
            Some(of) => batch.put_cf(&of.family, &key, &value),
            None => batch.put(&key, &value),
        })
    }

    /// Removes a key.
    #[pyo3(signature = (key, column_family=None))]
    fn delete(&self, key: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        self.with(|batch| match column_family {
            Some(of) => batch.delete_cf(&of.family, &key),
            None => batch.delete(&key),
        })
    }

    /// Removes the keys from `begin` on and before `end`.
    #[pyo3(signature = (begin, end, column_family=None))]
    fn delete_range(&self, begin: Given, end: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        self.with(|batch| match column_family {
            Some(of) => batch.delete_range_cf(&of.family, &begin, &end),
            None => batch.delete_range(&begin, &end),
        })
    }

    /// Adds a merge operand to a key.
    #[pyo3(signature = (key, operand, column_family=None))]
    fn merge(&self, key: Given, operand: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        self.with(|batch| match column_family {
            Some(of) => batch.merge_cf(&of.family, &key, &operand),
            None => batch.merge(&key, &operand),
        })
    }

    /// Empties the batch.
    fn clear(&self) {
        *lock(&self.0) = karstdb::WriteBatch::new();
    }
}

/// A database, or one of its column families, used as a dict of bytes.
#[pyclass(frozen, subclass, module = "karstdb")]
pub struct Rdict {
    pub shared: Arc<Shared>,
    pub family: Owned<ColumnFamily>,
}

/// A write, which in a database of transactions that lock takes locks.
macro_rules! written {
    ($self:ident, $py:ident, $call:ident($($given:expr),*)) => {{
        $self.shared.here()?;
        detached($py, || match $self.shared.kind() {
            Kind::Locking(db) => db.$call($($given),*),
            _ => $self.shared.db().$call($($given),*),
        })
    }};
}

impl Rdict {
    /// Opens a database; one that is written to gets the column families that it lacks.
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
        // What cannot be listed is missing, or opening says what is wrong with it.
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
            // As it will be opened.
            Ok((name, own.over(settings.clone().over(Options::new())?)?))
        });
        let new: Vec<_> = new.collect::<PyResult<_>>()?;
        let shared = Shared::new(detached(py, || Ok(open(&options)))??);
        shared.watch(failures);
        for (name, own) in new {
            shared.run(py, |db| db.create_column_family(&name, &own).map(|_| ()))?;
        }
        let family = Owned::new(shared.db().default_column_family().clone());
        Ok(Rdict { shared, family })
    }

    /// Calls with the database, the interpreter's lock released.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Db, &ColumnFamily) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.shared.run(py, |db| call(db, &self.family))
    }

    /// Makes a checkpoint in a task.
    pub fn checkpoint(&self, path: PathBuf, log_size_for_flush: u64) -> PyResult<Operation> {
        let (shared, _) = self.kept()?;
        Ok(Operation::new(async move {
            let checkpoint = Checkpoint::new(shared.db())?;
            checkpoint.create_checkpoint_async(&path, log_size_for_flush).await?;
            Ok(Outcome::Nothing)
        }))
    }

    /// What a future takes along, so that it outlives the Python object.
    pub fn kept(&self) -> PyResult<(Arc<Shared>, ColumnFamily)> {
        self.shared.here()?;
        Ok((self.shared.clone(), ColumnFamily::clone(&self.family)))
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

/// How something is written. `timeout` is in seconds: how long the write may wait where writes are
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
        path: PathBuf,
        options: Settings,
        column_families: Families,
        mode: &str,
        secondary_path: Option<PathBuf>,
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

    /// Closes the database, for all its column families, cursors and transactions.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |db, _| db.close())
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

    /// The values of keys, `None` for those that are not there. What has to be read is read at
    /// once.
    #[pyo3(signature = (keys, snapshot=None, **read))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Given>,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = read_options(&self.shared, Read::MultiGet, snapshot, read)?;
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
        written!(self, py, put_cf(&options, &self.family, key, value))
    }

    /// Removes a key, whether it is there or not.
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
        written!(self, py, delete_cf(&options, &self.family, key))
    }

    /// Removes the keys from `begin` on and before `end`.
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
        batch.delete_range_cf(&self.family, begin, end).map_err(raised)?;
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
        written!(self, py, merge_cf(&options, &self.family, key, operand))
    }

    /// Writes a batch: all of it, seen at once, or nothing.
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
        written!(self, py, write(&options, &batch))
    }

    /// Writes what is in memory to tables, and returns when that is done.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |db, family| db.flush_cfs(&FlushOptions::default(), &[family]))
    }

    /// Has the operating system have what was logged; with `sync` it is on the device.
    #[pyo3(signature = (sync=true))]
    fn flush_wal(&self, py: Python<'_>, sync: bool) -> PyResult<()> {
        self.run(py, |db, _| db.flush_wal(sync))
    }

    /// Compacts a range of keys, or all of them.
    #[pyo3(signature = (begin=None, end=None, *, bottommost_level_compaction="if_have_compaction_filter"))]
    fn compact_range(
        &self,
        py: Python<'_>,
        begin: Option<Given>,
        end: Option<Given>,
        bottommost_level_compaction: &str,
    ) -> PyResult<()> {
        let options = compaction(bottommost_level_compaction)?;
        self.run(py, |db, family| {
            let (begin, end) = (begin.as_ref().map(AsRef::as_ref), end.as_ref().map(AsRef::as_ref));
            db.compact_range_cf(&options, family, begin, end)
        })?;
        self.shared.filtered()
    }

    /// About how many bytes the files have of the keys from `begin` on and before `end`.
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

    /// `False` if the key is certainly not there, as far as memory tells; nothing is read.
    fn key_may_exist(&self, py: Python<'_>, key: Given) -> PyResult<bool> {
        let options = ReadOptions::new();
        self.run(py, |db, family| Ok(db.key_may_exist_cf(&options, family, key)?.0))
    }

    /// Takes in files of `SstFileWriter`, all of them at one moment or none. The options are flags:
    /// `move_files`, `link_files`, `snapshot_consistency`, `allow_global_seqno`,
    /// `allow_blocking_flush`, `ingest_behind`, `verify_checksums_before_ingest`,
    /// `fail_if_not_bottommost_level` and `allow_db_generated_files`.
    #[pyo3(signature = (paths, **options))]
    fn ingest_external_file(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
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

    /// Reads every table and blob file, and raises `Corruption` if one is damaged.
    fn verify_checksum(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |db, _| db.verify_checksum())
    }

    /// The directory of the database.
    fn path(&self) -> PathBuf {
        self.shared.db().path().clone()
    }

    /// The database as it is now, to be given to reads.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let taken = self.run(py, |db, _| db.check_open().map(|()| db.snapshot()))?;
        Ok(Snapshot::of(taken, self.shared.clone()))
    }

    /// One of RocksDB's properties as text, or `None` if there is none of this name.
    fn property_value(&self, py: Python<'_>, name: &str) -> PyResult<Option<String>> {
        self.run(py, |db, family| db.check_open().map(|()| db.property_cf(family, name)))
    }

    /// One of RocksDB's properties that are numbers, or `None`.
    fn property_int_value(&self, py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
        self.run(py, |db, family| db.check_open().map(|()| db.int_property_cf(family, name)))
    }

    /// The number of the last write that is visible.
    fn latest_sequence_number(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |db, _| db.check_open().map(|()| db.latest_sequence_number()))
    }

    /// Has a secondary see what the primary has written until now.
    fn try_catch_up_with_primary(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |db, _| db.try_catch_up_with_primary())
    }

    /// Makes a copy of the database, with hard links; see `Checkpoint`.
    fn create_checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |db, _| Checkpoint::new(db)?.create_checkpoint(path, 0))
    }

    /// Makes a column family; what is returned reads and writes it.
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
        Ok(Rdict { shared: self.shared.clone(), family: Owned::new(family) })
    }

    /// A column family, which is used as the database is.
    fn get_column_family(&self, py: Python<'_>, name: &str) -> PyResult<Rdict> {
        let family = self.run(py, |db, _| db.cf(name).map(|cf| cf.column_family().clone()))?;
        Ok(Rdict { shared: self.shared.clone(), family: Owned::new(family) })
    }

    /// Removes a column family and all that is in it.
    fn drop_column_family(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |db, _| db.drop_column_family(db.cf(name)?.column_family()))
    }

    /// A cursor, which sees the database as it is now. It has to be sent somewhere first.
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
        keys: Vec<Given>,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (shared, family) = self.kept()?;
        let options = read_options(&shared, Read::MultiGet, snapshot, read)?;
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
        paths: Vec<PathBuf>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Operation> {
        let (shared, family) = self.kept()?;
        let arg = IngestExternalFileArg::new(&family, paths, ingest_options(options)?);
        Ok(Operation::new(async move {
            shared.db().ingest_external_files_async(&[arg]).await?;
            Ok(Outcome::Nothing)
        }))
    }

    fn _create_checkpoint_operation(&self, path: PathBuf) -> PyResult<Operation> {
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

    /// Raises what a compaction filter raised since somebody asked.
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
        let (shared, _) = self.kept()?;
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
