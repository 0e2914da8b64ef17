//! Arguments from Python: keys, values and paths.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A key or a value. `bytes` are held by reference because they never change; any other buffer is
/// copied, because another thread may write to it while the interpreter's lock is released. A
/// buffer with gaps, or of items other than bytes, is converted like `memoryview.tobytes`.
pub struct Given(PyBackedBytes);

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Given {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyBytes>() {
            return Ok(Given(object.extract()?));
        }
        let view = PyMemoryView::from(&object).map_err(|_| {
            let given = object.get_type();
            PyTypeError::new_err(format!("keys and values are bytes or buffers, not {given}"))
        })?;
        Ok(Given(view.call_method0("tobytes")?.extract()?))
    }
}

/// Keys: anything that can be iterated over.
pub struct Keys(Vec<Given>);

impl Keys {
    pub fn into_vec(self) -> Vec<Given> {
        self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Keys {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let keys = object.try_iter()?.map(|key| key?.extract::<Given>());
        Ok(Keys(keys.collect::<PyResult<_>>()?))
    }
}

/// A path: `str`, `bytes`, or an object with `__fspath__`.
#[derive(Clone)]
pub struct GivenPath(PathBuf);

impl Deref for GivenPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for GivenPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl From<GivenPath> for PathBuf {
    fn from(given: GivenPath) -> PathBuf {
        given.0
    }
}

impl<'py> FromPyObject<'_, 'py> for GivenPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = object.py().import("os")?.call_method1("fsdecode", (object,))?;
        Ok(GivenPath(text.extract()?))
    }
}
