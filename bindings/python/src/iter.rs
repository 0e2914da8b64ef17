//! Iterators.

use crate::bytes::Given;
use crate::error::detached;
use crate::operation::{Operation, Outcome};
use crate::shared::{Owned, Shared, lock, lock_for_call};
use karstdb::{BatchDbIterator, DbIterator, Error, ErrorKind, Result, Value};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex};

/// An iterator over a column family, or over a transaction's view of one.
pub enum Cursor {
    Database(DbIterator),
    Transaction(BatchDbIterator),
}

macro_rules! either {
    ($cursor:expr, $it:ident => $call:expr) => {
        match $cursor {
            Cursor::Database($it) => $call,
            Cursor::Transaction($it) => $call,
        }
    };
}

impl Cursor {
    fn valid(&self) -> bool {
        either!(self, it => it.valid())
    }

    /// Returns the current entry; the cursor must be valid.
    fn entry(&self) -> (Vec<u8>, Value) {
        either!(self, it => (it.key().to_vec(), it.pinned_value()))
    }

    fn step(&mut self, backwards: bool) -> Result<()> {
        either!(self, it => if backwards { it.prev() } else { it.next() })
    }

    async fn step_async(&mut self, backwards: bool) -> Result<()> {
        either!(self, it => if backwards { it.prev_async().await } else { it.next_async().await })
    }

    /// Moves to `start`, or without it to the first entry in the direction of the iteration.
    async fn begin_async(&mut self, start: Option<&[u8]>, backwards: bool) -> Result<()> {
        either!(self, it => match (start, backwards) {
            (None, false) => it.seek_to_first_async().await,
            (None, true) => it.seek_to_last_async().await,
            (Some(key), false) => it.seek_async(key).await,
            (Some(key), true) => it.seek_for_prev_async(key).await,
        })
    }
}

/// A cursor, with the method names of `rocksdict`. Only one call runs at a time; others wait.
#[pyclass(frozen, module = "karstdb")]
pub struct RdictIter {
    cursor: Arc<Mutex<Option<Owned<Cursor>>>>,
    shared: Arc<Shared>,
}

impl RdictIter {
    pub fn over(cursor: Cursor, shared: &Arc<Shared>) -> Self {
        RdictIter { cursor: Arc::new(Mutex::new(Some(Owned::new(cursor)))), shared: shared.clone() }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Cursor) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.shared.here()?;
        detached(py, || {
            let mut cursor = lock_for_call(&self.cursor)?;
            call(cursor.as_mut().ok_or_else(gone)?)
        })
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the iterator is closed, or another task is at it or was cancelled")
}

#[pymethods]
impl RdictIter {
    /// Moves to the first key.
    fn seek_to_first(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek_to_first()))
    }

    /// Moves to the last key.
    fn seek_to_last(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek_to_last()))
    }

    /// Moves to the first key that is not before `key`.
    fn seek(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek(key)))
    }

    /// Moves to the last key that is not after `key`.
    fn seek_for_prev(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek_for_prev(key)))
    }

    /// Moves to the next entry, unless the cursor is not valid.
    fn next(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| if cursor.valid() { cursor.step(false) } else { Ok(()) })
    }

    /// Moves to the previous entry, unless the cursor is not valid.
    fn prev(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| if cursor.valid() { cursor.step(true) } else { Ok(()) })
    }

    /// `True` if the cursor is at an entry.
    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |cursor| Ok(cursor.valid()))
    }

    /// `None` where the cursor is not valid.
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key =
            self.with(py, |cursor| Ok(cursor.valid().then(|| either!(cursor, it => it.key().to_vec()))))?;
        Ok(key.map(|key| PyBytes::new(py, &key)))
    }

    /// `None` where the cursor is not valid.
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value =
            self.with(py, |cursor| Ok(cursor.valid().then(|| either!(cursor, it => it.pinned_value()))))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Closes the cursor, which releases the memory and files that it pins.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // In a fork the lock may be held by a thread that does not exist here.
        if self.shared.here().is_err() {
            return Ok(());
        }
        detached(py, || {
            let cursor = lock_for_call(&self.cursor)?.take();
            drop(cursor);
            Ok(())
        })
    }

    /// Returns the next entries, at most `count`, and moves past them.
    fn _entries<'py>(&self, py: Python<'py>, count: usize, backwards: bool) -> PyResult<Bound<'py, PyAny>> {
        let entries = self.with(py, |cursor| {
            let mut entries = Vec::new();
            while entries.len() < count && cursor.valid() {
                entries.push(cursor.entry());
                cursor.step(backwards)?;
            }
            Ok(entries)
        })?;
        Outcome::Entries(entries).into_python(py)
    }

    /// Returns the operation of [`RdictIter::_entries`]; with `first`, it first seeks to `start` or
    /// to the first entry.
    fn _entries_operation(
        &self,
        count: usize,
        backwards: bool,
        first: bool,
        start: Option<Given>,
    ) -> PyResult<Operation> {
        self.shared.here()?;
        let slot = self.cursor.clone();
        Ok(Operation::new(async move {
            // The future owns the cursor; a future dropped before its end drops it too.
            let taken = lock(&slot).take();
            let mut cursor = taken.ok_or_else(gone)?;
            if first {
                cursor.begin_async(start.as_ref().map(AsRef::as_ref), backwards).await?;
            }
            let mut entries = Vec::new();
            while entries.len() < count && cursor.valid() {
                entries.push(cursor.entry());
                cursor.step_async(backwards).await?;
            }
            *lock(&slot) = Some(cursor);
            Ok(Outcome::Entries(entries))
        }))
    }
}
