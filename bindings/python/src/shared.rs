//! What Python's objects have of the engine, and who may let go of it.
//!
//! Invariants:
//! - In a fork nothing of the engine is called, nor dropped: the threads that it would wait for are
//!   not there, and a lock that one of them held stays locked.
//! - What may wait is dropped with the interpreter's lock released, as threads of the engine may
//!   need that lock to end their work: they call Python's operators and filters.
//! - With a mutex of this crate locked no Python code runs, so nothing of Python's is dropped, no
//!   text of an exception is made and the interpreter's lock is not waited for; but for the mutexes
//!   of a cursor, of a writer of tables and of an operation, which are waited for with the
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

/// Locks; what a panic of another thread left behind is used as it is.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks what a call of the engine works with. An operator that is called in that call is refused,
/// as it would wait for itself.
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
    /// Number of Python's operators, filters and comparators that this thread is in.
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

/// Something of the engine's that belongs to this process; left alone in its forks.
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

    /// Refuses to go on in a process that was forked from the one that `what` was opened in.
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
        // SAFETY: nobody has the field after this.
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

/// Every database that is open, for [`close_all`].
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    pub fn new(kind: Kind) -> Arc<Self> {
        let shared = Arc::new(Shared { opened: Owned::new(kind), failures: Mutex::default() });
        let mut open = lock(&OPEN);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        shared
    }

    /// Refuses to go on in a process that was forked from the one that opened the database.
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

    /// Has a column family with these filters.
    pub fn watch(&self, failures: impl IntoIterator<Item = Arc<FilterFailure>>) {
        lock(&self.failures).extend(failures);
    }

    /// What a filter raised since somebody asked.
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

/// Closes what is still open when the interpreter ends, so that no thread of the engine calls
/// Python from then on.
#[pyfunction]
pub fn _close_all(py: Python<'_>) {
    // It is locked with the interpreter's lock held only, so never while a process is forked.
    let open = std::mem::take(&mut *lock(&OPEN));
    let open: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
    py.detach(|| {
        for shared in open.iter().filter(|shared| shared.here().is_ok()) {
            // It may be closed already, and nobody is left to be told of anything else.
            let _ = unless_it_panics(|| shared.db().close());
        }
    });
}
