//! The exceptions: one for each kind of error, all of them `karstdb.Error`.

use crate::callables::{cause_of, failed};
use karstdb::{ErrorKind, Result};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

create_exception!(karstdb, Error, PyException, "KarstDB failed; the base of the others.");
create_exception!(
    karstdb,
    CallbackFailed,
    Error,
    "An operator, a filter or a comparator raised; `__cause__` is what."
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
    InvalidArgument: Error, "A call or an option that makes no sense.";
    NotSupported: Error, "KarstDB does not have it.";
    NotFound: Error, "A database, a file or a column family that is not there.";
    Incomplete: Error, "The answer is not in the cache, and storage was not to be read.";
    LimitReached: Error, "A limit that was asked for was reached.";
    TimedOut: Error, "It took longer than was allowed.";
    Busy: Error, "Something else is at it.";
    Locked: Error, "Another process has the database open.";
    TryAgain: Error, "It may work when tried again.";
    Deadlock: Error, "Transactions wait for each other.";
    Expired: Error, "The transaction has expired.";
    Closed: Error, "The database is closed.";
    Panicked: Error, "A defect in KarstDB, or a write that a comparator raised on.";
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
