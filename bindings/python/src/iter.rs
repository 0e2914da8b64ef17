//! Iterators.

use crate::bytes::Given;
use crate::error::detached;
use crate::operation::{Operation, Outcome};
use crate::shared::{Owned, Shared, lock, lock_for_call};
use karstdb::{BatchDbIterator, DbIterator, Error, ErrorKind, Result, Value};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex};

/// Over a column family, or over one as a transaction sees it.
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

    /// Where it is valid.
    fn entry(&self) -> (Vec<u8>, Value) {
        either!(self, it => (it.key().to_vec(), it.pinned_value()))
    }

    fn step(&mut self, backwards: bool) -> Result<()> {
        either!(self, it => if backwards { it.prev() } else { it.next() })
    }

    async fn step_async(&mut self, backwards: bool) -> Result<()> {
        either!(self, it => if backwards { it.prev_async().await } else { it.next_async().await })
    }

    /// To `start`, or to the end that comes first.
    async fn begin_async(&mut self, start: Option<&[u8]>, backwards: bool) -> Result<()> {
        either!(self, it => match (start, backwards) {
            (None, false) => it.seek_to_first_async().await,
            (None, true) => it.seek_to_last_async().await,
            (Some(key), false) => it.seek_async(key).await,
            (Some(key), true) => it.seek_for_prev_async(key).await,
        })
    }
}

/// A cursor, with the names that `rocksdict` has. It is of one thread at a time: a call while
/// another is under way waits for it.
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
    /// To the first key.
    fn seek_to_first(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek_to_first()))
    }

    /// To the last key.
    fn seek_to_last(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek_to_last()))
    }

    /// To the first key that is not before `key`.
    fn seek(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek(key)))
    }

    /// To the last key that is not behind `key`.
    fn seek_for_prev(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.with(py, |cursor| either!(cursor, it => it.seek_for_prev(key)))
    }

    /// Moves on, unless the cursor is at the end already.
    fn next(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| if cursor.valid() { cursor.step(false) } else { Ok(()) })
    }

    /// Moves back, unless the cursor is at the end already.
    fn prev(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| if cursor.valid() { cursor.step(true) } else { Ok(()) })
    }

    /// Whether it is at an entry.
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

    /// Lets go of what the cursor pins.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // In a fork nobody is there who would let go of the lock.
        if self.shared.here().is_err() {
            return Ok(());
        }
        detached(py, || {
            let cursor = lock_for_call(&self.cursor)?.take();
            drop(cursor);
            Ok(())
        })
    }

    /// The next entries, at most `count`, and moves past them.
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

    /// The same as an operation; with `first`, a seek to the first entry or to `start` comes
    /// before.
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
            // The cursor goes with the future; one that is dropped half-way takes it along.
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
