//! Databases with transactions, and transactions.

use crate::bytes::{Given, GivenPath, Keys};
use crate::db::{Rdict, Snapshot, write_options};
use crate::error::{raised, unless_it_panics};
use crate::iter::{Cursor, RdictIter};
use crate::operation::{Operation, Outcome};
use crate::options::{Families, Settings};
use crate::reads::{Read, bounds, read_options};
use crate::shared::{Kind, Shared};
use crate::turns::{Place, TakesTurns};
use karstdb::{
    ColumnFamily, Error, ErrorKind, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions, ReadOptions, Result, TransactionDb, TransactionDbOptions,
    TransactionOptions, TransactionState, WritePolicy,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

/// A database whose transactions, and plain writes, lock the keys that they write.
#[pyclass(frozen, extends = Rdict, name = "TransactionDB", module = "karstdb")]
pub struct TransactionDB;

impl TransactionDB {
    fn locking<'a>(this: &'a PyRef<'_, Self>) -> (&'a Arc<Shared>, &'a TransactionDb) {
        let shared = &this.as_super().shared;
        match shared.kind() {
            Kind::Locking(db) => (shared, db),
            _ => unreachable!("it was opened as one"),
        }
    }
}

#[pymethods]
impl TransactionDB {
    #[new]
    #[pyo3(signature = (
        path, options=Settings::default(), column_families=Families::default(), *, max_num_locks=-1, max_num_deadlocks=5, num_stripes=16,
        transaction_lock_timeout=1000, default_lock_timeout=1000, write_policy="write_committed",
        skip_concurrency_control=false, **named
    ))]
    #[allow(clippy::too_many_arguments, reason = "the options are RocksDB's")]
    fn new(
        py: Python<'_>,
        path: GivenPath,
        options: Settings,
        column_families: Families,
        max_num_locks: i64,
        max_num_deadlocks: u32,
        num_stripes: usize,
        transaction_lock_timeout: i64,
        default_lock_timeout: i64,
        write_policy: &str,
        skip_concurrency_control: bool,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let write_policy = match write_policy {
            "write_committed" => WritePolicy::WriteCommitted,
            "write_prepared" => WritePolicy::WritePrepared,
            _ => return Err(PyValueError::new_err("write_policy is write_committed or write_prepared")),
        };
        let own = TransactionDbOptions {
            max_num_locks,
            max_num_deadlocks,
            num_stripes,
            transaction_lock_timeout,
            default_lock_timeout,
            write_policy,
            skip_concurrency_control,
            ..TransactionDbOptions::default()
        };
        let db = Rdict::open(py, &path, options.and(named)?, column_families, true, |options| {
            TransactionDb::open(&path, options, &own).map(Kind::Locking).map_err(raised)
        })?;
        Ok(PyClassInitializer::from(db).add_subclass(TransactionDB))
    }

    /// Begins a transaction. Times are in milliseconds; `lock_timeout` is -1 for the database's own
    /// and 0 for not waiting at all.
    #[pyo3(signature = (
        *, sync=false, disable_wal=false, set_snapshot=false, lock_timeout=-1, expiration=-1,
        deadlock_detect=false, deadlock_detect_depth=50, max_write_batch_size=0,
        skip_concurrency_control=false, skip_prepare=true
    ))]
    #[allow(clippy::too_many_arguments, reason = "the options are RocksDB's")]
    fn begin(
        this: PyRef<'_, Self>,
        py: Python<'_>,
        sync: bool,
        disable_wal: bool,
        set_snapshot: bool,
        lock_timeout: i64,
        expiration: i64,
        deadlock_detect: bool,
        deadlock_detect_depth: i64,
        max_write_batch_size: usize,
        skip_concurrency_control: bool,
        skip_prepare: bool,
    ) -> PyResult<Transaction> {
        let (shared, db) = Self::locking(&this);
        let options = TransactionOptions {
            set_snapshot,
            deadlock_detect,
            lock_timeout,
            expiration,
            deadlock_detect_depth,
            max_write_batch_size,
            skip_concurrency_control,
            skip_prepare,
        };
        let begun = shared.run(py, |opened| {
            opened.check_open()?;
            Ok(db.begin(&write_options(sync, disable_wal, None), &options))
        })?;
        Ok(Transaction::over(Engine::Locking(begun), shared))
    }

    /// Returns the names of all prepared and undecided transactions, in order.
    fn get_all_prepared_transactions<'py>(
        this: PyRef<'_, Self>,
        py: Python<'py>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let (shared, db) = Self::locking(&this);
        let names = shared.run(py, |opened| {
            opened.check_open()?;
            Ok(db.get_all_prepared_transactions())
        })?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    /// Returns a prepared transaction without an owner: a recovered one, or one whose object was
    /// dropped.
    fn get_transaction_by_name(this: PyRef<'_, Self>, py: Python<'_>, name: Given) -> PyResult<Transaction> {
        let (shared, db) = Self::locking(&this);
        let found = shared.run(py, |_| db.get_transaction_by_name(name))?;
        Ok(Transaction::over(Engine::Locking(found), shared))
    }
}

/// A database whose transactions are validated when they commit.
#[pyclass(frozen, extends = Rdict, name = "OptimisticTransactionDB", module = "karstdb")]
pub struct OptimisticTransactionDB;

#[pymethods]
impl OptimisticTransactionDB {
    #[new]
    #[pyo3(signature = (
        path, options=Settings::default(), column_families=Families::default(), *,
        occ_lock_buckets=1 << 20, **named
    ))]
    fn new(
        py: Python<'_>,
        path: GivenPath,
        options: Settings,
        column_families: Families,
        occ_lock_buckets: u32,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let own = OptimisticTransactionDbOptions { occ_lock_buckets };
        let db = Rdict::open(py, &path, options.and(named)?, column_families, true, |options| {
            OptimisticTransactionDb::open(&path, options, &own).map(Kind::Optimistic).map_err(raised)
        })?;
        Ok(PyClassInitializer::from(db).add_subclass(OptimisticTransactionDB))
    }

    /// Begins a transaction, which commits with these write options.
    #[pyo3(signature = (*, sync=false, disable_wal=false, set_snapshot=false))]
    fn begin(
        this: PyRef<'_, Self>,
        py: Python<'_>,
        sync: bool,
        disable_wal: bool,
        set_snapshot: bool,
    ) -> PyResult<Transaction> {
        let shared = &this.as_super().shared;
        let Kind::Optimistic(db) = shared.kind() else { unreachable!("it was opened as one") };
        let options = OptimisticTransactionOptions { set_snapshot };
        let begun = shared.run(py, |opened| {
            opened.check_open()?;
            Ok(db.begin(&write_options(sync, disable_wal, None), &options))
        })?;
        Ok(Transaction::over(Engine::Optimistic(Box::new(begun)), shared))
    }
}

/// A transaction of either kind.
enum Engine {
    Locking(karstdb::Transaction),
    Optimistic(Box<karstdb::OptimisticTransaction>),
}

struct Held {
    engine: Engine,
    /// True if it was committed or rolled back.
    ended: bool,
    /// True if a call panicked in it, for example in a comparator, so that its writes may be
    /// incomplete.
    broken: bool,
}

macro_rules! both {
    ($held:expr, $it:ident => $call:expr) => {
        match &mut $held.engine {
            Engine::Locking($it) => $call,
            Engine::Optimistic($it) => $call,
        }
    };
}

impl TakesTurns for Held {
    const NAME: &'static str = "transaction";

    fn panicked(&mut self) {
        self.broken = true;
    }
}

impl Held {
    fn check_whole(&self) -> Result<()> {
        if !self.broken {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Panicked, "a call of the transaction panicked: roll it back"))
    }

    fn commit(&mut self) -> Result<()> {
        self.check_whole()?;
        both!(self, it => it.commit())?;
        self.ended = true;
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        both!(self, it => it.rollback())?;
        self.ended = true;
        Ok(())
    }

    /// Returns the locking transaction, or an error for an optimistic one.
    fn locking(&mut self) -> Result<&mut karstdb::Transaction> {
        match &mut self.engine {
            Engine::Locking(it) => Ok(it),
            Engine::Optimistic(_) => Err(Error::new(
                ErrorKind::NotSupported,
                "optimistic transactions have no locks, names and two phases; those of TransactionDB have",
            )),
        }
    }

    fn is_prepared(&mut self) -> bool {
        self.locking().is_ok_and(|it| it.state() == Some(TransactionState::Prepared))
    }

    /// Carries out a request of a task.
    async fn answer(&mut self, asked: Asked, family: &ColumnFamily) -> Result<Outcome> {
        match asked {
            Asked::Get(key, options) => {
                return Ok(Outcome::Value(
                    both!(self, it => it.get_cf_async(&options, family, key.as_ref()).await)?,
                ));
            }
            Asked::MultiGet(keys, options) => {
                return Ok(Outcome::Values(
                    both!(self, it => it.multi_get_cf_async(&options, family, &keys).await),
                ));
            }
            Asked::GetForUpdate(key, options, exclusive) => {
                return Ok(Outcome::Value(match &mut self.engine {
                    Engine::Locking(it) => {
                        it.get_for_update_cf_async(&options, family, key.as_ref(), exclusive, true).await?
                    }
                    Engine::Optimistic(it) => {
                        it.get_for_update_cf_async(&options, family, key.as_ref()).await?
                    }
                }));
            }
            Asked::Put(key, value) => match &mut self.engine {
                Engine::Locking(it) => it.put_cf_async(family, key.as_ref(), value.as_ref()).await?,
                Engine::Optimistic(it) => it.put_cf(family, key, value)?,
            },
            Asked::Delete(key) => match &mut self.engine {
                Engine::Locking(it) => it.delete_cf_async(family, key.as_ref()).await?,
                Engine::Optimistic(it) => it.delete_cf(family, key)?,
            },
            Asked::Merge(key, operand) => match &mut self.engine {
                Engine::Locking(it) => it.merge_cf_async(family, key.as_ref(), operand.as_ref()).await?,
                Engine::Optimistic(it) => it.merge_cf(family, key, operand)?,
            },
            Asked::Prepare => self.locking()?.prepare_async().await?,
            Asked::Commit => {
                both!(self, it => it.commit_async().await)?;
                self.ended = true;
            }
            Asked::Rollback => {
                match &mut self.engine {
                    Engine::Locking(it) => it.rollback_async().await?,
                    Engine::Optimistic(it) => it.rollback()?,
                }
                self.ended = true;
            }
        }
        Ok(Outcome::Nothing)
    }
}

enum Asked {
    Get(Given, ReadOptions),
    MultiGet(Vec<Given>, ReadOptions),
    GetForUpdate(Given, ReadOptions, bool),
    Put(Given, Given),
    Delete(Given),
    Merge(Given, Given),
    Prepare,
    Commit,
    Rollback,
}

/// Reads and writes that take effect together, or not at all.
#[pyclass(frozen, module = "karstdb")]
pub struct Transaction {
    place: Arc<Place<Held>>,
    shared: Arc<Shared>,
}

impl Transaction {
    fn over(engine: Engine, shared: &Arc<Shared>) -> Self {
        let place = Place::of(Held { engine, ended: false, broken: false });
        Transaction { place, shared: shared.clone() }
    }

    /// Calls with the transaction, the interpreter's lock released.
    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut Held) -> Result<T> + Send) -> PyResult<T> {
        self.with_any(py, |held| {
            held.check_whole()?;
            call(held)
        })
    }

    /// Like [`Transaction::with`], but also for a transaction that a panic has broken.
    fn with_any<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Held) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.shared.here()?;
        let outcome = py.detach(|| {
            let mut turn = self.place.turn()?;
            PyResult::Ok(unless_it_panics(move || call(turn.held())))
        })?;
        outcome.map_err(raised)
    }

    fn family<'a>(&'a self, given: Option<&'a Rdict>) -> PyResult<&'a ColumnFamily> {
        given.map_or_else(|| Ok(self.shared.db().default_column_family()), Rdict::family)
    }

    fn ask(&self, asked: Asked, family: Option<&Rdict>) -> PyResult<Operation> {
        self.shared.here()?;
        let (place, shared) = (self.place.clone(), self.shared.clone());
        let family = self.family(family)?.clone();
        Ok(Operation::new(async move {
            // The operation keeps the database alive until its end.
            let _shared = shared;
            let mut turn = place.turn_async().await;
            let held = turn.held();
            if !matches!(asked, Asked::Rollback) {
                held.check_whole()?;
            }
            held.answer(asked, &family).await
        }))
    }
}

#[pymethods]
impl Transaction {
    #[pyo3(signature = (key, snapshot, read, column_family))]
    fn _get<'py>(
        &self,
        py: Python<'py>,
        key: Given,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
        column_family: Option<&Rdict>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let options = read_options(&self.shared, Read::Get, snapshot, read)?;
        let family = self.family(column_family)?;
        let value = self.with(py, |held| both!(held, it => it.get_cf(&options, family, key)))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Returns the values of keys as the transaction sees them, `None` for those that do not exist.
    #[pyo3(signature = (keys, column_family=None, *, snapshot=None, **read))]
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: Keys,
        column_family: Option<&Rdict>,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = read_options(&self.shared, Read::MultiGet, snapshot, read)?;
        let (family, keys) = (self.family(column_family)?, keys.into_vec());
        let values = self.with(py, |held| Ok(both!(held, it => it.multi_get_cf(&options, family, &keys))))?;
        Outcome::Values(values).into_python(py)
    }

    /// Returns the value of a key. A locking transaction holds the key's lock from now on; the
    /// commit of an optimistic one fails if another writer changes the key.
    #[pyo3(signature = (key, column_family=None, *, exclusive=true, snapshot=None, **read))]
    fn get_for_update<'py>(
        &self,
        py: Python<'py>,
        key: Given,
        column_family: Option<&Rdict>,
        exclusive: bool,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let options = read_options(&self.shared, Read::Get, snapshot, read)?;
        let family = self.family(column_family)?;
        let value = self.with(py, |held| match &mut held.engine {
            Engine::Locking(it) => it.get_for_update_cf(&options, family, key, exclusive, true),
            Engine::Optimistic(it) => it.get_for_update_cf(&options, family, key),
        })?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn __setitem__(&self, py: Python<'_>, key: Given, value: Given) -> PyResult<()> {
        self.put(py, key, value, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.delete(py, key, None)
    }

    fn __contains__(&self, py: Python<'_>, key: Given) -> PyResult<bool> {
        Ok(self._get(py, key, None, None, None)?.is_some())
    }

    /// Sets a key, which is locked as by `get_for_update`.
    #[pyo3(signature = (key, value, column_family=None))]
    fn put(&self, py: Python<'_>, key: Given, value: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        let family = self.family(column_family)?;
        self.with(py, |held| both!(held, it => it.put_cf(family, key, value)))
    }

    /// Removes a key, which is locked as by `get_for_update`.
    #[pyo3(signature = (key, column_family=None))]
    fn delete(&self, py: Python<'_>, key: Given, column_family: Option<&Rdict>) -> PyResult<()> {
        let family = self.family(column_family)?;
        self.with(py, |held| both!(held, it => it.delete_cf(family, key)))
    }

    /// Adds a merge operand to a key, which is locked as by `get_for_update`.
    #[pyo3(signature = (key, operand, column_family=None))]
    fn merge(
        &self,
        py: Python<'_>,
        key: Given,
        operand: Given,
        column_family: Option<&Rdict>,
    ) -> PyResult<()> {
        let family = self.family(column_family)?;
        self.with(py, |held| both!(held, it => it.merge_cf(family, key, operand)))
    }

    /// Commits the transaction atomically. An optimistic transaction fails with `Busy` if others
    /// have written keys that it depends on; it can then only be rolled back.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Held::commit)
    }

    /// Discards all writes and releases the locks.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.with_any(py, Held::rollback)
    }

    /// Marks the present state for `rollback_to_save_point`. Save points nest.
    fn set_save_point(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |held| both!(held, it => it.set_save_point()))
    }

    /// Undoes all changes since the last save point, and removes that save point.
    fn rollback_to_save_point(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |held| both!(held, it => it.rollback_to_save_point()))
    }

    /// Removes the last save point and keeps the changes since.
    fn pop_save_point(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |held| both!(held, it => it.pop_save_point()))
    }

    /// Takes a snapshot: keys locked from now on must not have been written by others since.
    fn set_snapshot(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |held| both!(held, it => it.set_snapshot()))
    }

    /// Removes the snapshot.
    fn clear_snapshot(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |held| {
            both!(held, it => it.clear_snapshot());
            Ok(())
        })
    }

    /// Returns the snapshot, or `None` if none was set.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Option<Snapshot>> {
        let taken = self.with(py, |held| Ok(both!(held, it => it.snapshot().cloned())))?;
        Ok(taken.map(|taken| {
            Snapshot::of(taken, self.shared.clone(), self.shared.db().default_column_family().clone())
        }))
    }

    /// Sets a name of 1 to 512 bytes, which `prepare` needs.
    fn set_name(&self, py: Python<'_>, name: Given) -> PyResult<()> {
        self.with(py, |held| held.locking()?.set_name(name))
    }

    /// Its name, or `None`.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let name =
            self.with(py, |held| Ok(held.locking().ok().and_then(|it| it.name().map(<[u8]>::to_vec))))?;
        Ok(name.map(|name| PyBytes::new(py, &name)))
    }

    /// Prepares the transaction, the first of two phases: its writes survive a crash, and can be
    /// committed or rolled back afterwards.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |held| held.locking()?.prepare())
    }

    /// Sets the time that it waits for a lock in milliseconds: negative without a limit, 0 for not
    /// waiting.
    fn set_lock_timeout(&self, py: Python<'_>, milliseconds: i64) -> PyResult<()> {
        self.with(py, |held| held.locking()?.set_lock_timeout(milliseconds))
    }

    /// Returns a cursor over a column family as the transaction sees it now. It takes no locks.
    #[pyo3(signature = (column_family=None, *, snapshot=None, lower=None, upper=None, **read))]
    fn iter(
        &self,
        py: Python<'_>,
        column_family: Option<&Rdict>,
        snapshot: Option<&Snapshot>,
        lower: Option<Given>,
        upper: Option<Given>,
        read: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<RdictIter> {
        let options = bounds(read_options(&self.shared, Read::Iter, snapshot, read)?, lower, upper);
        let family = self.family(column_family)?;
        let cursor = self.with(py, |held| both!(held, it => it.iter_cf(&options, family)))?;
        Ok(RdictIter::over(Cursor::Transaction(cursor), &self.shared))
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Commits, or rolls back if the block raised or the commit fails; nothing if it has ended.
    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyAny>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let failed = kind.is_some();
        self.with_any(py, |held| {
            if held.ended {
                return Ok(());
            }
            if failed {
                // A failed rollback matters only for a prepared transaction, which remains.
                let prepared = held.is_prepared();
                return if prepared { held.rollback() } else { held.rollback().or(Ok(())) };
            }
            held.commit().inspect_err(|_| {
                // The commit's error is returned, not the rollback's.
                let _ = held.rollback();
            })
        })
    }

    /// `True` if it was committed or rolled back.
    #[getter]
    fn ended(&self, py: Python<'_>) -> PyResult<bool> {
        self.with_any(py, |held| Ok(held.ended))
    }

    #[pyo3(signature = (key, snapshot, read, column_family))]
    fn _get_operation(
        &self,
        key: Given,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
        column_family: Option<&Rdict>,
    ) -> PyResult<Operation> {
        let options = read_options(&self.shared, Read::Get, snapshot, read)?;
        self.ask(Asked::Get(key, options), column_family)
    }

    #[pyo3(signature = (keys, snapshot, read, column_family))]
    fn _multi_get_operation(
        &self,
        keys: Keys,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
        column_family: Option<&Rdict>,
    ) -> PyResult<Operation> {
        let options = read_options(&self.shared, Read::MultiGet, snapshot, read)?;
        self.ask(Asked::MultiGet(keys.into_vec(), options), column_family)
    }

    #[pyo3(signature = (key, exclusive, snapshot, read, column_family))]
    fn _get_for_update_operation(
        &self,
        key: Given,
        exclusive: bool,
        snapshot: Option<&Snapshot>,
        read: Option<&Bound<'_, PyDict>>,
        column_family: Option<&Rdict>,
    ) -> PyResult<Operation> {
        let options = read_options(&self.shared, Read::Get, snapshot, read)?;
        self.ask(Asked::GetForUpdate(key, options, exclusive), column_family)
    }

    #[pyo3(signature = (key, value, column_family))]
    fn _put_operation(&self, key: Given, value: Given, column_family: Option<&Rdict>) -> PyResult<Operation> {
        self.ask(Asked::Put(key, value), column_family)
    }

    #[pyo3(signature = (key, column_family))]
    fn _delete_operation(&self, key: Given, column_family: Option<&Rdict>) -> PyResult<Operation> {
        self.ask(Asked::Delete(key), column_family)
    }

    #[pyo3(signature = (key, operand, column_family))]
    fn _merge_operation(
        &self,
        key: Given,
        operand: Given,
        column_family: Option<&Rdict>,
    ) -> PyResult<Operation> {
        self.ask(Asked::Merge(key, operand), column_family)
    }

    fn _prepare_operation(&self) -> PyResult<Operation> {
        self.ask(Asked::Prepare, None)
    }

    fn _commit_operation(&self) -> PyResult<Operation> {
        self.ask(Asked::Commit, None)
    }

    fn _rollback_operation(&self) -> PyResult<Operation> {
        self.ask(Asked::Rollback, None)
    }
}
