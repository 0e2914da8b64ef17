//! Iterators.

use crate::bytes::Given;
use crate::db::Shared;
use crate::error::raised;
use crate::operation::{Operation, Outcome};
use karstdb::{DbIterator, Error, ErrorKind, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, PoisonError};

/// A cursor, with the names that `rocksdict` has. It is of one thread at a time: a call while
/// another is under way waits for it.
#[pyclass(frozen, module = "karstdb")]
pub struct RdictIter {
    pub cursor: Arc<Mutex<Option<DbIterator>>>,
    pub shared: Arc<Shared>,
}

impl RdictIter {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut DbIterator) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.shared.here()?;
        py.detach(|| {
            let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            call(cursor.as_mut().ok_or_else(gone)?)
        })
        .map_err(raised)
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the iterator is closed, or another task is at it or was cancelled")
}

#[pymethods]
impl RdictIter {
    fn seek_to_first(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, DbIterator::seek_to_first)
    }

    fn seek_to_last(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, DbIterator::seek_to_last)
    }

    fn seek(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.with(py, |cursor| cursor.seek(key))
    }

    fn seek_for_prev(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.with(py, |cursor| cursor.seek_for_prev(key))
    }

    /// Moves on, unless the cursor is at the end already.
    fn next(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| if cursor.valid() { cursor.next() } else { Ok(()) })
    }

    fn prev(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |cursor| if cursor.valid() { cursor.prev() } else { Ok(()) })
    }

    fn valid(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |cursor| Ok(cursor.valid()))
    }

    /// `None` where the cursor is not valid.
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = self.with(py, |cursor| Ok(cursor.valid().then(|| cursor.key().to_vec())))?;
        Ok(key.map(|key| PyBytes::new(py, &key)))
    }

    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.with(py, |cursor| Ok(cursor.valid().then(|| cursor.pinned_value())))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// Lets go of what the cursor pins.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.cursor.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }

    /// The next entries, at most `count`, and moves past them.
    fn _entries<'py>(&self, py: Python<'py>, count: usize, backwards: bool) -> PyResult<Bound<'py, PyAny>> {
        let entries = self.with(py, |cursor| {
            let mut entries = Vec::new();
            while entries.len() < count && cursor.valid() {
                entries.push((cursor.key().to_vec(), cursor.pinned_value()));
                if backwards { cursor.prev()? } else { cursor.next()? }
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
            let taken = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut cursor = taken.ok_or_else(gone)?;
            match (first, &start, backwards) {
                (false, ..) => {}
                (true, None, false) => cursor.seek_to_first_async().await?,
                (true, None, true) => cursor.seek_to_last_async().await?,
                (true, Some(key), false) => cursor.seek_async(key).await?,
                (true, Some(key), true) => cursor.seek_for_prev_async(key).await?,
            }
            let mut entries = Vec::new();
            while entries.len() < count && cursor.valid() {
                entries.push((cursor.key().to_vec(), cursor.pinned_value()));
                if backwards { cursor.prev_async().await? } else { cursor.next_async().await? }
            }
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(cursor);
            Ok(Outcome::Entries(entries))
        }))
    }
}
