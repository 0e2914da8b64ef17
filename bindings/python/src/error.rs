//! The exceptions: one for each kind of error, all of them `karstdb.Error`.

use crate::callables::{cause_of, failed};
use karstdb::{ErrorKind, Result};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

create_exception!(karstdb, Error, PyException, "Base class of KarstDB's exceptions.");
create_exception!(
    karstdb,
    CallbackFailed,
    Error,
    "A merge operator, compaction filter or comparator raised; `__cause__` is its exception."
);

/// Declares an exception for each kind of error, and maps errors to them.
macro_rules! kinds {
    ($($kind:ident: $base:ident, $text:literal;)*) => {
        $(create_exception!(karstdb, $kind, $base, $text);)*

        /// Returns the exception for an error.
        pub fn raised(error: karstdb::Error) -> PyErr {
            let text = error.to_string();
            let of_callable =
                Python::attach(|py| cause_of(py, &text).map(|cause| failed(py, &text, cause)));
            of_callable.unwrap_or_else(|| match error.kind() {
                $(ErrorKind::$kind => $kind::new_err(text),)*
                _ => Error::new_err(text),
            })
        }

        pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            let py = module.py();
            module.add("Error", py.get_type::<Error>())?;
            module.add("CallbackFailed", py.get_type::<CallbackFailed>())?;
            $(module.add(stringify!($kind), py.get_type::<$kind>())?;)*
            Ok(())
        }
    };
}

kinds! {
    Corruption: Error, "The data on disk is damaged.";
    Io: Error, "The operating system or the device failed the operation.";
    NoSpace: Io, "The disk is full.";
    InvalidArgument: Error, "An argument or an option is invalid.";
    NotSupported: Error, "KarstDB does not support the operation.";
    NotFound: Error, "A database, a file or a column family does not exist.";
    Incomplete: Error, "The answer is not in the cache, and the read options forbid reads of storage.";
    LimitReached: Error, "The operation reached a limit that the caller set.";
    TimedOut: Error, "The operation took longer than its timeout.";
    Busy: Error, "Another transaction or write conflicts with the call.";
    Locked: Error, "Another process has the database open.";
    TryAgain: Error, "Another operation changed or holds a resource; the same call may succeed later.";
    Deadlock: Error, "Transactions wait for each other in a cycle.";
    Expired: Error, "The transaction has expired.";
    Closed: Error, "The database is closed.";
    Panicked: Error, "KarstDB panicked: a defect, or a comparator that raised during a write.";
}

/// Calls the engine, and turns a panic, such as of a comparator that raised, into an error.
pub fn unless_it_panics<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // Unwind safe, because the engine itself refuses the use of damaged state.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
        Err(karstdb::Error::new(ErrorKind::Panicked, text.to_owned()))
    })
}

/// Calls the engine with the interpreter's lock released.
pub fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| unless_it_panics(call)).map_err(raised)
}
