//! Backups, checkpoints, and operations on databases that are not open.

use crate::bytes::GivenPath;
use crate::db::Rdict;
use crate::error::{detached, raised, unless_it_panics};
use crate::operation::{Operation, Outcome};
use crate::options::Settings;
use crate::shared::Owned;
use crate::turns::{Place, TakesTurns};
use karstdb::{
    BackupEngineOptions, CreateBackupOptions, Db, Error, ErrorKind, Options, RestoreOptions, Result,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// Makes checkpoints: copies of a database in a directory that can be opened, with hard links on
/// the same file system.
#[pyclass(frozen, module = "karstdb")]
pub struct Checkpoint(Py<Rdict>);

#[pymethods]
impl Checkpoint {
    #[new]
    fn new(db: Py<Rdict>) -> Self {
        Checkpoint(db)
    }

    /// Makes the directory, which must not exist. Memtables are flushed if the logs are larger than
    /// `log_size_for_flush`; 0 for always.
    #[pyo3(signature = (path, log_size_for_flush=0))]
    fn create_checkpoint(&self, py: Python<'_>, path: GivenPath, log_size_for_flush: u64) -> PyResult<()> {
        self.0
            .get()
            .shared
            .run(py, |db| karstdb::Checkpoint::new(db)?.create_checkpoint(path, log_size_for_flush))
    }

    fn _create_checkpoint_operation(&self, path: GivenPath, log_size_for_flush: u64) -> PyResult<Operation> {
        self.0.get().checkpoint(path, log_size_for_flush)
    }
}

/// Description of a backup.
#[pyclass(frozen, get_all, module = "karstdb")]
pub struct BackupInfo {
    /// Its number.
    backup_id: u32,
    /// Time of the backup in seconds since 1970.
    timestamp: u64,
    /// Sequence number of its last write.
    sequence_number: u64,
    /// Bytes of its files, shared ones included.
    size: u64,
    /// Number of its files.
    number_files: usize,
    /// Metadata that the application stored with it.
    app_metadata: Vec<u8>,
}

#[pymethods]
impl BackupInfo {
    fn __repr__(&self) -> String {
        let BackupInfo { backup_id, timestamp, size, number_files, .. } = self;
        format!(
            "BackupInfo(backup_id={backup_id}, timestamp={timestamp}, size={size}, number_files={number_files})"
        )
    }
}

/// A backup engine; None after it was closed.
struct Backups(Option<karstdb::BackupEngine>);

impl TakesTurns for Backups {
    const NAME: &'static str = "backup engine";
}

impl Backups {
    fn engine(&mut self) -> Result<&mut karstdb::BackupEngine> {
        self.0.as_mut().ok_or_else(|| Error::new(ErrorKind::Closed, "the backup engine is closed"))
    }
}

/// Backups in a directory, which share equal files. Calls take turns; a blocking call does not wait
/// for the call of a task, and raises `Busy`.
#[pyclass(frozen, module = "karstdb")]
pub struct BackupEngine(Owned<Arc<Place<Backups>>>);

impl BackupEngine {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut karstdb::BackupEngine) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.0.here("it")?;
        let outcome = py.detach(|| {
            let mut turn = self.0.turn()?;
            PyResult::Ok(unless_it_panics(|| call(turn.held().engine()?)))
        })?;
        outcome.map_err(raised)
    }

    /// Returns the engine for an operation.
    fn place(&self) -> PyResult<Arc<Place<Backups>>> {
        self.0.here("it")?;
        Ok(Arc::clone(&self.0))
    }
}

#[pymethods]
impl BackupEngine {
    #[new]
    #[pyo3(signature = (
        backup_dir, *, read_only=false, share_table_files=true, share_files_with_checksum=true,
        backup_log_files=true, destroy_old_data=false, max_background_operations=1
    ))]
    #[allow(clippy::too_many_arguments, reason = "the options are RocksDB's")]
    fn new(
        py: Python<'_>,
        backup_dir: GivenPath,
        read_only: bool,
        share_table_files: bool,
        share_files_with_checksum: bool,
        backup_log_files: bool,
        destroy_old_data: bool,
        max_background_operations: usize,
    ) -> PyResult<Self> {
        let options = BackupEngineOptions {
            share_table_files,
            share_files_with_checksum,
            backup_log_files,
            destroy_old_data,
            max_background_operations,
            ..BackupEngineOptions::new(backup_dir)
        };
        let engine = py.detach(|| {
            let env = karstdb::io::Env::posix();
            match read_only {
                true => karstdb::BackupEngine::open_read_only(&options, &env),
                false => karstdb::BackupEngine::open(&options, &env),
            }
        });
        Ok(BackupEngine(Owned::new(Place::of(Backups(Some(engine.map_err(raised)?))))))
    }

    /// Backs up a database, to which others may write meanwhile, and returns the backup's number.
    #[pyo3(signature = (db, *, flush_before_backup=false, app_metadata=Vec::new()))]
    fn create_new_backup(
        &self,
        py: Python<'_>,
        db: &Rdict,
        flush_before_backup: bool,
        app_metadata: Vec<u8>,
    ) -> PyResult<u32> {
        db.shared.here()?;
        let options =
            CreateBackupOptions { flush_before_backup, app_metadata, ..CreateBackupOptions::default() };
        self.with(py, |engine| engine.create_new_backup(db.shared.db(), &options))
    }

    /// Returns the backups, oldest first.
    fn get_backup_info(&self, py: Python<'_>) -> PyResult<Vec<BackupInfo>> {
        let backups = self.with(py, |engine| Ok(engine.get_backup_info()))?;
        let shown = backups.into_iter().map(|info| BackupInfo {
            backup_id: info.backup_id,
            timestamp: info.timestamp,
            sequence_number: info.sequence_number,
            size: info.size,
            number_files: info.number_files,
            app_metadata: info.app_metadata,
        });
        Ok(shown.collect())
    }

    /// Returns the backups that cannot be used, with their errors.
    fn get_corrupted_backups(&self, py: Python<'_>) -> PyResult<Vec<(u32, String)>> {
        let corrupted = self.with(py, |engine| Ok(engine.get_corrupted_backups()))?;
        Ok(corrupted.into_iter().map(|(id, error)| (id, error.to_string())).collect())
    }

    /// Checks that the files of a backup exist and have their size, and with `verify_with_checksum`
    /// also their checksums.
    #[pyo3(signature = (backup_id, verify_with_checksum=true))]
    fn verify_backup(&self, py: Python<'_>, backup_id: u32, verify_with_checksum: bool) -> PyResult<()> {
        self.with(py, |engine| engine.verify_backup(backup_id, verify_with_checksum))
    }

    /// Removes all backups but the newest ones.
    fn purge_old_backups(&self, py: Python<'_>, keep: usize) -> PyResult<()> {
        self.with(py, |engine| engine.purge_old_backups(keep))
    }

    /// Removes a backup, and the files that no other backup uses.
    fn delete_backup(&self, py: Python<'_>, backup_id: u32) -> PyResult<()> {
        self.with(py, |engine| engine.delete_backup(backup_id))
    }

    /// Removes the remains of unfinished backups.
    fn garbage_collect(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |engine| engine.garbage_collect())
    }

    /// Restores a backup into `db_dir`, where no database may be open.
    #[pyo3(signature = (backup_id, db_dir, wal_dir=None, *, keep_log_files=false))]
    fn restore_db_from_backup(
        &self,
        py: Python<'_>,
        backup_id: u32,
        db_dir: GivenPath,
        wal_dir: Option<GivenPath>,
        keep_log_files: bool,
    ) -> PyResult<()> {
        let options = RestoreOptions { keep_log_files, ..RestoreOptions::default() };
        let wal_dir = wal_dir.unwrap_or_else(|| db_dir.clone());
        self.with(py, |engine| engine.restore_db_from_backup(backup_id, db_dir, wal_dir, &options))
    }

    /// Restores the newest backup into `db_dir`, where no database may be open.
    #[pyo3(signature = (db_dir, wal_dir=None, *, keep_log_files=false))]
    fn restore_db_from_latest_backup(
        &self,
        py: Python<'_>,
        db_dir: GivenPath,
        wal_dir: Option<GivenPath>,
        keep_log_files: bool,
    ) -> PyResult<()> {
        let options = RestoreOptions { keep_log_files, ..RestoreOptions::default() };
        let wal_dir = wal_dir.unwrap_or_else(|| db_dir.clone());
        self.with(py, |engine| engine.restore_db_from_latest_backup(db_dir, wal_dir, &options))
    }

    /// Closes the backup engine, which releases the directory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.0.is_here() {
            return Ok(());
        }
        py.detach(|| {
            self.0.turn()?.held().0 = None;
            Ok(())
        })
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn _create_new_backup_operation(
        &self,
        db: &Rdict,
        flush_before_backup: bool,
        app_metadata: Vec<u8>,
    ) -> PyResult<Operation> {
        let (place, (shared, _)) = (self.place()?, db.kept()?);
        let options =
            CreateBackupOptions { flush_before_backup, app_metadata, ..CreateBackupOptions::default() };
        Ok(Operation::new(async move {
            let mut turn = place.turn_async().await;
            let made = turn.held().engine()?.create_new_backup_async(shared.db(), &options).await?;
            Ok(Outcome::Number(made))
        }))
    }

    fn _verify_backup_operation(&self, backup_id: u32, verify_with_checksum: bool) -> PyResult<Operation> {
        let place = self.place()?;
        Ok(Operation::new(async move {
            let mut turn = place.turn_async().await;
            turn.held().engine()?.verify_backup_async(backup_id, verify_with_checksum).await?;
            Ok(Outcome::Nothing)
        }))
    }

    /// Returns the operation of a restore; `backup_id` `None` means the newest backup.
    #[pyo3(signature = (backup_id, db_dir, wal_dir, keep_log_files))]
    fn _restore_operation(
        &self,
        backup_id: Option<u32>,
        db_dir: GivenPath,
        wal_dir: Option<GivenPath>,
        keep_log_files: bool,
    ) -> PyResult<Operation> {
        let place = self.place()?;
        let options = RestoreOptions { keep_log_files, ..RestoreOptions::default() };
        let wal_dir = wal_dir.unwrap_or_else(|| db_dir.clone());
        Ok(Operation::new(async move {
            let mut turn = place.turn_async().await;
            let engine = turn.held().engine()?;
            let newest = || engine.get_backup_info().last().map(|info| info.backup_id);
            let id = backup_id.or_else(newest);
            let id = id.ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no backup"))?;
            engine.restore_db_from_backup_async(id, &db_dir, &wal_dir, &options).await?;
            Ok(Outcome::Nothing)
        }))
    }
}

/// Removes a database that is not open: its files and no others.
#[pyfunction]
#[pyo3(signature = (path, options=Settings::default(), **named))]
pub fn destroy(
    py: Python<'_>,
    path: GivenPath,
    options: Settings,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let options = options.and(named)?.over(Options::new())?;
    detached(py, || Db::destroy(path, &options))
}

/// Repairs a damaged database that is not open, and returns the losses: the paths of files with the
/// reasons, and the missing files.
#[pyfunction]
#[pyo3(signature = (path, options=Settings::default(), **named))]
pub fn repair<'py>(
    py: Python<'py>,
    path: GivenPath,
    options: Settings,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = options.and(named)?.over(Options::new())?;
    let report = detached(py, || Db::repair(path, &options))?;
    let told = PyDict::new(py);
    let families = PyDict::new(py);
    for family in report.column_families {
        families.set_item(family.name, family.tables)?;
    }
    told.set_item("column_families", families)?;
    let lost: Vec<_> = report.lost.into_iter().map(|lost| (lost.path, lost.reason)).collect();
    told.set_item("lost", lost)?;
    told.set_item("missing", report.missing)?;
    told.set_item("trees_made_anew", report.trees_made_anew)?;
    Ok(told)
}

/// Returns the names of the column families of a database that is not open.
#[pyfunction]
#[pyo3(signature = (path, options=Settings::default(), **named))]
pub fn list_cf(
    py: Python<'_>,
    path: GivenPath,
    options: Settings,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<String>> {
    let options = options.and(named)?.over(Options::new())?;
    detached(py, || Db::list_column_families(path, &options))
}
