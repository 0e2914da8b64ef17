//! Merge operators, compaction filters and comparators written in Python.
//!
//! The engine calls them from any thread. They take the interpreter's lock, so no call of the
//! engine is made while one holds it; an exception becomes an error, and no thread of the engine
//! unwinds through Python. A comparator has no error to return: it unwinds, and the call into the
//! engine ends that ([`unless_it_panics`](crate::error::unless_it_panics)).
//!
//! An exception is dropped, and its text is made, with no mutex locked: both may run Python code.

use crate::error::{CallbackFailed, InvalidArgument};
use crate::shared::{call_python, lock};
use karstdb::compaction_filter::{FilterDecision, FilterInput};
use karstdb::format::{Comparator, UserComparator};
use karstdb::merge_operator::{MergeFailed, Merged};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyList, PyString};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

/// Exceptions of operators, by their text in the engine's error. At most [`KEPT`] are kept, because
/// some are never fetched.
///
/// Only threads that hold the interpreter's lock lock it, so that it is not locked while a process
/// is forked.
static RAISED: Mutex<VecDeque<(String, PyErr)>> = Mutex::new(VecDeque::new());
const KEPT: usize = 16;

/// Keeps an exception for [`cause_of`], and returns its text for the engine's error.
fn noted(py: Python<'_>, exception: PyErr) -> String {
    let what = exception.value(py).repr().ok().map(|text| text.to_string());
    // Not an empty text, because every error contains it.
    let what = what.filter(|text| !text.is_empty()).unwrap_or_else(|| "an exception".into());
    let mut kept = lock(&RAISED);
    let forgotten = if kept.len() == KEPT { kept.pop_front() } else { None };
    kept.push_back((what.clone(), exception));
    drop(kept);
    drop(forgotten);
    what
}

/// Removes and returns the exception that caused the engine's error.
pub fn cause_of(_py: Python<'_>, error: &str) -> Option<PyErr> {
    let mut kept = lock(&RAISED);
    let at = kept.iter().rposition(|(what, _)| error.contains(what.as_str()))?;
    kept.remove(at).map(|(_, exception)| exception)
}

/// Calls Python; returns an error if the interpreter has ended.
fn called<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, String> {
    call_python(|py| call(py).map_err(|exception| noted(py, exception)))
        .unwrap_or_else(|| Err("Python has ended".into()))
}

fn name_of(callable: &Bound<'_, PyAny>) -> PyResult<String> {
    if !callable.is_callable() {
        let given = callable.get_type();
        return Err(PyTypeError::new_err(format!("a function is needed, not {given}")));
    }
    let named = callable.getattr("__qualname__").unwrap_or_else(|_| callable.get_type().into_any());
    Ok(named.str()?.to_string())
}

/// Combines merge operands: `full_merge(key, existing, operands)` returns the value, and the
/// optional `partial_merge(key, operands)` returns several operands as one, or `None`.
///
/// `existing` is `None` for a key without a value. The name is stored with the database, which must
/// be opened with an operator of that name. Both functions are called from any thread, must be
/// deterministic, and must not use the database.
#[pyclass(frozen, module = "karstdb")]
pub struct MergeOperator {
    name: String,
    full_merge: Py<PyAny>,
    partial_merge: Option<Py<PyAny>>,
}

#[pymethods]
impl MergeOperator {
    #[new]
    #[pyo3(signature = (name, full_merge, partial_merge=None))]
    fn new(
        name: String,
        full_merge: Bound<'_, PyAny>,
        partial_merge: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        name_of(&full_merge)?;
        partial_merge.as_ref().map(name_of).transpose()?;
        Ok(MergeOperator {
            name,
            full_merge: full_merge.unbind(),
            partial_merge: partial_merge.map(Bound::unbind),
        })
    }

    /// The name that the database keeps.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }
}

/// A [`MergeOperator`] as an operator of the engine.
pub struct Operator(Py<MergeOperator>);

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Operator").field(&self.0.get().name).finish()
    }
}

impl Operator {
    /// Converts an argument; `None` if it is a name. A function gets its own name.
    pub fn of(given: &Bound<'_, PyAny>) -> PyResult<Option<Operator>> {
        if given.is_instance_of::<PyString>() || given.is_none() {
            return Ok(None);
        }
        if let Ok(operator) = given.cast::<MergeOperator>() {
            return Ok(Some(Operator(operator.clone().unbind())));
        }
        let operator =
            MergeOperator { name: name_of(given)?, full_merge: given.clone().unbind(), partial_merge: None };
        Ok(Some(Operator(Py::new(given.py(), operator)?)))
    }
}

fn bytes_of(returned: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let given: crate::bytes::Given = returned.extract()?;
    Ok(given.as_ref().to_vec())
}

fn list<'py>(py: Python<'py>, operands: &[&[u8]]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, operands.iter().map(|operand| PyBytes::new(py, operand)))
}

impl karstdb::MergeOperator for Operator {
    fn name(&self) -> &str {
        &self.0.get().name
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        called(|py| {
            let existing = existing.map(|value| PyBytes::new(py, value));
            let given = (PyBytes::new(py, key), existing, list(py, operands)?);
            bytes_of(&self.0.get().full_merge.bind(py).call1(given)?)
        })
        .map(Merged::Bytes)
        .map_err(MergeFailed)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let partial = self.0.get().partial_merge.as_ref()?;
        // A partial merge that fails is ignored, and the full merge decides.
        called(|py| {
            let merged = partial.bind(py).call1((PyBytes::new(py, key), list(py, operands)?))?;
            if merged.is_none() { Ok(None) } else { bytes_of(&merged).map(Some) }
        })
        .unwrap_or(None)
    }
}

/// Filters the entries of compactions: `filter(level, key, value)` returns `False` or `None` to
/// keep an entry, `True` to remove it, or bytes that replace the value.
///
/// Merge operands and wide-column entities are kept without a call. The filter is called from
/// background threads and must not use the database. An entry on which it raises is kept.
#[pyclass(frozen, module = "karstdb")]
pub struct CompactionFilter {
    name: String,
    filter: Py<PyAny>,
}

#[pymethods]
impl CompactionFilter {
    #[new]
    fn new(name: String, filter: Bound<'_, PyAny>) -> PyResult<Self> {
        name_of(&filter)?;
        Ok(CompactionFilter { name, filter: filter.unbind() })
    }

    /// The name that the database keeps.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }
}

/// The first exception of a database's filter since the last [`FilterFailure::take`].
#[derive(Default)]
pub struct FilterFailure(Mutex<Option<PyErr>>);

impl FilterFailure {
    /// Keeps an exception, if it is the first.
    fn note(&self, exception: PyErr) {
        let mut noted = Some(exception);
        let mut first = lock(&self.0);
        if first.is_none() {
            *first = noted.take();
        }
        drop(first);
        drop(noted);
    }

    /// Removes the exception and returns it as the error of a compaction.
    pub fn take(&self) -> PyResult<()> {
        let first = lock(&self.0).take();
        match first {
            None => Ok(()),
            Some(cause) => {
                Python::attach(|py| Err(failed(py, "a compaction filter failed; it kept the entry", cause)))
            }
        }
    }
}

/// The error of an operation whose callable raised.
pub fn failed(py: Python<'_>, what: &str, cause: PyErr) -> PyErr {
    let error = CallbackFailed::new_err(format!("{what}: {cause}"));
    error.set_cause(py, Some(cause));
    error
}

/// A [`CompactionFilter`] as a filter of the engine.
pub struct Filter {
    filter: Py<CompactionFilter>,
    pub failure: Arc<FilterFailure>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Filter").field(&self.filter.get().name).finish()
    }
}

impl Filter {
    /// Converts an argument; `None` if it is a name. A function gets its own name.
    pub fn of(given: &Bound<'_, PyAny>) -> PyResult<Option<Filter>> {
        if given.is_instance_of::<PyString>() || given.is_none() {
            return Ok(None);
        }
        let filter = match given.cast::<CompactionFilter>() {
            Ok(filter) => filter.clone().unbind(),
            Err(_) => {
                let filter = CompactionFilter { name: name_of(given)?, filter: given.clone().unbind() };
                Py::new(given.py(), filter)?
            }
        };
        Ok(Some(Filter { filter, failure: Arc::default() }))
    }
}

impl karstdb::CompactionFilter for Filter {
    fn name(&self) -> &str {
        &self.filter.get().name
    }

    fn filter(&self, level: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        let FilterInput::Value(value) = entry else { return FilterDecision::Keep };
        let decided = call_python(|py| {
            let given = (level, PyBytes::new(py, key), PyBytes::new(py, value));
            let outcome = self.filter.get().filter.bind(py).call1(given).and_then(|said| {
                Ok(if said.is_none() {
                    FilterDecision::Keep
                } else if said.is_instance_of::<PyBool>() {
                    if said.extract()? { FilterDecision::Remove } else { FilterDecision::Keep }
                } else {
                    FilterDecision::ChangeValue(bytes_of(&said)?)
                })
            });
            outcome.unwrap_or_else(|exception| {
                self.failure.note(exception);
                FilterDecision::Keep
            })
        });
        decided.unwrap_or(FilterDecision::Keep)
    }
}

/// The order of the keys of a column family: `compare(a, b)` returns a negative number if `a` comes
/// before `b`, 0 if they are the same key, and a positive number otherwise.
///
/// The name is kept with the column family, which opens with a comparator of that name only. The
/// order must be total and must never change. It is called from any thread and must not use the
/// database.
#[pyclass(frozen, name = "Comparator", module = "karstdb")]
pub struct PyComparator {
    name: String,
    compare: Py<PyAny>,
}

impl PyComparator {
    fn named(name: String, compare: &Bound<'_, PyAny>) -> PyResult<Self> {
        if name.is_empty() || Comparator::from_name(&name).is_some() {
            let what = format!("a comparator has a name of its own, not {name:?}");
            return Err(PyValueError::new_err(what));
        }
        Ok(PyComparator { name, compare: compare.clone().unbind() })
    }
}

#[pymethods]
impl PyComparator {
    #[new]
    fn new(name: String, compare: &Bound<'_, PyAny>) -> PyResult<Self> {
        name_of(compare)?;
        PyComparator::named(name, compare)
    }

    /// The name that the column family keeps.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }
}

/// A [`PyComparator`] as a comparator of the engine.
struct Order(Py<PyComparator>);

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Order").field(&self.0.get().name).finish()
    }
}

/// Converts an argument to a comparator: one written in Python, a function, which gets its own
/// name, or the name of a built-in one.
pub fn comparator_of(given: &Bound<'_, PyAny>) -> PyResult<Comparator> {
    if given.is_instance_of::<PyString>() {
        let built_in = Comparator::lookup(&given.extract::<String>()?);
        return built_in.map_err(|unknown| InvalidArgument::new_err(unknown.to_string()));
    }
    let order = match given.cast::<PyComparator>() {
        Ok(comparator) => comparator.clone().unbind(),
        Err(_) => Py::new(given.py(), PyComparator::named(name_of(given)?, given)?)?,
    };
    Ok(Comparator::Custom(Arc::new(Order(order))))
}

impl UserComparator for Order {
    fn name(&self) -> &str {
        &self.0.get().name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let compared = called(|py| {
            let said = self.0.get().compare.bind(py).call1((PyBytes::new(py, a), PyBytes::new(py, b)))?;
            // A bool is refused, because with `a < b` as the result no comparison would be
            // negative.
            if !said.is_instance_of::<PyInt>() || said.is_instance_of::<PyBool>() {
                let what = format!("a comparator returns an int, not {}", said.get_type());
                return Err(PyTypeError::new_err(what));
            }
            said.compare(0)
        });
        // A failed comparison unwinds, because any result may be wrong and would place the key
        // wrongly. The engine then neither reads the memtable nor installs the table in progress.
        compared.unwrap_or_else(|what| {
            let name = &self.0.get().name;
            resume_unwind(Box::new(format!("the comparator {name} failed: {what}")))
        })
    }
}
