//! Ownership of the engine's objects by Python's, and the rules for dropping them.
//!
//! Invariants:
//! - In a fork no function of the engine is called and no object of it dropped, because its threads
//!   do not exist there, and a lock that one of them held stays locked.
//! - Objects whose drop may wait are dropped with the interpreter's lock released, because threads
//!   of the engine may need that lock to end their work: they call Python's operators and filters.
//! - While a mutex of this crate is locked no Python code runs: no Python object is dropped, no
//!   text of an exception is made and the interpreter's lock is not waited for. Exceptions are the
//!   mutexes of a cursor, of a table writer and of an operation, which are waited for with the
//!   interpreter's lock released.

use crate::callables::FilterFailure;
use crate::error::{detached, unless_it_panics};
use karstdb::{Db, Error, ErrorKind, OptimisticTransactionDb, Result, TransactionDb};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// Locks a mutex, also one poisoned by a panic of another thread.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks an object for a call of the engine. Returns an error in an operator that such a call has
/// called, because it would wait for itself.
pub fn lock_for_call<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    if CALLABLES.get() == 0 {
        return Ok(lock(mutex));
    }
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::new(ErrorKind::Busy, "another call is under way")),
    }
}

thread_local! {
    /// Number of Python's operators, filters and comparators that are running on this thread.
    static CALLABLES: Cell<u32> = const { Cell::new(0) };
}

/// Calls an operator, a filter or a comparator; `None` if Python has ended.
pub fn call_python<T>(call: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            CALLABLES.set(CALLABLES.get() - 1);
        }
    }
    CALLABLES.set(CALLABLES.get() + 1);
    let _inside = Inside;
    Python::try_attach(call)
}

/// An object of the engine that belongs to this process; in a fork it is never dropped.
pub struct Owned<T: Send> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T: Send> Owned<T> {
    pub fn new(value: T) -> Self {
        Owned { value: ManuallyDrop::new(value), process: std::process::id() }
    }

    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns an error in a fork of the process that opened `what`.
    pub fn here(&self, what: &str) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let told = format!("{what} was opened before this process was forked: open it here");
        Err(PyRuntimeError::new_err(told))
    }
}

impl<T: Send> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Send> DerefMut for Owned<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Send> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // SAFETY: the field is not used after this.
        let mut value = Some(unsafe { ManuallyDrop::take(&mut self.value) });
        Python::try_attach(|py| py.detach(|| drop(value.take())));
    }
}

/// The kinds of database. All but the writes of `Locking` go to the [`Db`].
pub enum Kind {
    Plain(Db),
    Locking(TransactionDb),
    Optimistic(OptimisticTransactionDb),
}

/// An open database.
pub struct Shared {
    opened: Owned<Kind>,
    failures: Mutex<Vec<Arc<FilterFailure>>>,
}

/// All open databases, for [`_close_all`].
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    pub fn new(kind: Kind) -> Arc<Self> {
        let shared = Arc::new(Shared { opened: Owned::new(kind), failures: Mutex::default() });
        let mut open = lock(&OPEN);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        shared
    }

    /// Returns an error in a fork of the process that opened the database.
    pub fn here(&self) -> PyResult<()> {
        self.opened.here("the database")
    }

    pub fn kind(&self) -> &Kind {
        &self.opened
    }

    pub fn db(&self) -> &Db {
        match self.kind() {
            Kind::Plain(db) => db,
            Kind::Locking(db) => db.db(),
            Kind::Optimistic(db) => db.db(),
        }
    }

    /// Adds the exceptions of a column family's filters to [`Shared::filtered`].
    pub fn watch(&self, failures: impl IntoIterator<Item = Arc<FilterFailure>>) {
        lock(&self.failures).extend(failures);
    }

    /// Returns the first exception of a filter since the last call as an error.
    pub fn filtered(&self) -> PyResult<()> {
        let failures = lock(&self.failures).clone();
        failures.iter().try_for_each(|failure| failure.take())
    }

    /// Calls with the database, the interpreter's lock released.
    pub fn run<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Db) -> Result<T> + Send) -> PyResult<T> {
        self.here()?;
        detached(py, || call(self.db()))
    }
}

/// Closes all open databases when the interpreter ends, so that no thread of the engine calls
/// Python from then on.
#[pyfunction]
pub fn _close_all(py: Python<'_>) {
    // The list is locked only with the interpreter's lock held, so never while a process is forked.
    let open = std::mem::take(&mut *lock(&OPEN));
    let open: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
    py.detach(|| {
        for shared in open.iter().filter(|shared| shared.here().is_ok()) {
            // Errors are ignored: the database may be closed already, and no caller is left to
            // report others to.
            let _ = unless_it_panics(|| shared.db().close());
        }
    });
}
