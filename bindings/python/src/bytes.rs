//! Keys and values as Python gives them.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// A key or a value: `bytes` by reference, as they do not change; any other buffer copied, as
/// another thread may write to it while the interpreter's lock is released.
pub enum Given {
    Bytes(PyBackedBytes),
    Copied(Vec<u8>),
}

impl AsRef<[u8]> for Given {
    fn as_ref(&self) -> &[u8] {
        match self {
            Given::Bytes(bytes) => bytes,
            Given::Copied(bytes) => bytes,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Given {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyBytes>() {
            return Ok(Given::Bytes(object.extract()?));
        }
        let buffer = PyBuffer::<u8>::get(&object).map_err(|_| {
            let given = object.get_type();
            PyTypeError::new_err(format!("keys and values are bytes or buffers of bytes, not {given}"))
        })?;
        Ok(Given::Copied(buffer.to_vec(object.py())?))
    }
}
