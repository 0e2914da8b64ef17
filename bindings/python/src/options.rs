//! Options as Python gives them: a mapping of RocksDB's names, or an option string.

use crate::error::raised;
use karstdb::Options;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyMapping, PyString};

/// One thing that was given.
enum Part {
    Named(String, String),
    Text(String),
}

/// What was given, in its order.
#[derive(Default)]
pub struct Settings(Vec<Part>);

impl Settings {
    /// Those of a database that may be written to: it is made if it is missing, unless they say
    /// otherwise.
    pub fn for_writing(self) -> PyResult<Options> {
        self.over(Options::new().db(|db| db.create_if_missing = true))
    }

    pub fn over(self, options: Options) -> PyResult<Options> {
        self.0
            .into_iter()
            .try_fold(options, |options, part| match part {
                Part::Named(name, value) => options.set(&name, &value),
                Part::Text(text) => options.set_all(&text),
            })
            .map_err(raised)
    }
}

impl<'py> FromPyObject<'_, 'py> for Settings {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Settings::default());
        }
        if object.is_instance_of::<PyString>() {
            return Ok(Settings(vec![Part::Text(object.extract()?)]));
        }
        let Ok(given) = object.cast::<PyMapping>() else {
            let given = object.get_type();
            return Err(PyTypeError::new_err(format!("options are a mapping or a str, not {given}")));
        };
        let mut parts = Vec::new();
        for item in given.items()?.iter() {
            let (name, value): (String, Bound<'py, PyAny>) = item.extract()?;
            let text = text_of(&name, &value)?;
            parts.push(Part::Named(name, text));
        }
        Ok(Settings(parts))
    }
}

/// The text of a value, as OPTIONS has it.
fn text_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyBool>() {
        return Ok(if value.extract()? { "true" } else { "false" }.into());
    }
    if value.is_none() {
        return Ok("nullptr".into());
    }
    if value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
    {
        return Ok(value.str()?.to_string());
    }
    let given = value.get_type();
    Err(PyTypeError::new_err(format!("the option {name} is a str, a number or a bool, not {given}")))
}
