//! Options from Python: a mapping of RocksDB's names, or an option string.

use crate::callables::{Filter, FilterFailure, Operator, comparator_of};
use crate::error::raised;
use crate::shared::lock;
use crate::stats::Statistics;
use karstdb::format::Comparator;
use karstdb::{
    BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, Error, ErrorKind, OptionSet, Options, Result,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyMapping, PyString};
use std::sync::{Arc, Mutex};

/// One option as given.
#[derive(Clone)]
enum Part {
    Named(String, String),
    Text(String),
    Operator(Arc<Operator>),
    Filter(Arc<Filter>),
    Comparator(Comparator),
    Statistics(Arc<karstdb::Statistics>),
}

impl Part {
    fn of(name: String, value: &Bound<'_, PyAny>) -> PyResult<Part> {
        match &*name {
            "merge_operator" => {
                if let Some(operator) = Operator::of(value)? {
                    return Ok(Part::Operator(Arc::new(operator)));
                }
            }
            "compaction_filter" => {
                if let Some(filter) = Filter::of(value)? {
                    return Ok(Part::Filter(Arc::new(filter)));
                }
            }
            "comparator" => return comparator_of(value).map(Part::Comparator),
            "statistics" => {
                let statistics = value.cast::<Statistics>().map_err(|_| {
                    let given = value.get_type();
                    PyTypeError::new_err(format!("statistics are a Statistics, not {given}"))
                })?;
                return Ok(Part::Statistics(statistics.get().0.clone()));
            }
            _ => {}
        }
        let text = text_of(&name, value)?;
        Ok(Part::Named(name, text))
    }

    /// Sets the option for a column family, or for all.
    fn set(self, options: Options, family: Option<&str>) -> Result<Options> {
        match (self, family) {
            (Part::Named(name, value), None) => options.set(&name, &value),
            (Part::Text(text), None) => options.set_all(&text),
            (Part::Operator(operator), family) => Ok(options.merge_operator(family, operator)),
            (Part::Filter(filter), family) => Ok(options.compaction_filter(family, filter)),
            (Part::Comparator(comparator), family) => Ok(options.comparator(family, comparator)),
            (Part::Named(name, value), Some(family)) => {
                // An invalid option fails here.
                Options::new().set(&name, &value)?;
                if DbOptions::entry(&name).is_some() {
                    let what = format!("{name} is an option of the database, not of a column family");
                    return Err(Error::new(ErrorKind::InvalidArgument, what));
                }
                Ok(options.column_family(family, move |all| {
                    if ColumnFamilyOptions::entry(&name).is_some() {
                        let _ = all.set(&name, &value);
                    } else {
                        let _ = all.table_factory.block_based.set(&name, &value);
                    }
                }))
            }
            (Part::Statistics(statistics), None) => Ok(options.statistics(statistics)),
            (Part::Statistics(_), Some(_)) => Err(Error::new(
                ErrorKind::InvalidArgument,
                "statistics are of the database, not of a column family",
            )),
            (Part::Text(_), Some(_)) => Err(Error::new(
                ErrorKind::InvalidArgument,
                "options of a column family are given by name, not as an option string",
            )),
        }
    }
}

/// Options in the order in which they were given.
#[derive(Clone, Default)]
pub struct Settings(Vec<Part>);

impl Settings {
    /// Options of a database that is opened for writing: `create_if_missing` is true unless given.
    pub fn for_writing(self) -> PyResult<Options> {
        self.over(Options::new().db(|db| db.create_if_missing = true))
    }

    pub fn over(self, options: Options) -> PyResult<Options> {
        self.0.into_iter().try_fold(options, |options, part| part.set(options, None)).map_err(raised)
    }

    /// Sets them for one column family.
    pub fn of_family(self, options: Options, family: &str) -> PyResult<Options> {
        self.0.into_iter().try_fold(options, |options, part| part.set(options, Some(family))).map_err(raised)
    }

    /// Appends the options given by keyword.
    pub fn and(mut self, named: Option<&Bound<'_, PyDict>>) -> PyResult<Settings> {
        if let Some(named) = named {
            self.0.append(&mut named.extract::<Settings>()?.0);
        }
        Ok(self)
    }

    /// Returns the places of its filters' exceptions.
    pub fn failures(&self) -> impl Iterator<Item = Arc<FilterFailure>> {
        self.0.iter().filter_map(|part| match part {
            Part::Filter(filter) => Some(filter.failure.clone()),
            _ => None,
        })
    }
}

impl<'py> FromPyObject<'_, 'py> for Settings {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Settings::default());
        }
        if let Ok(options) = object.cast::<PyOptions>() {
            return Ok(options.get().settings());
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
            parts.push(Part::of(name, &value)?);
        }
        Ok(Settings(parts))
    }
}

/// Options by name that are changed while a database is open.
pub struct NamedTexts(Vec<(String, String)>);

impl NamedTexts {
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

impl<'py> FromPyObject<'_, 'py> for NamedTexts {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut pairs = Vec::new();
        for item in object.cast::<PyMapping>()?.items()?.iter() {
            let (name, value): (String, Bound<'py, PyAny>) = item.extract()?;
            let text = text_of(&name, &value)?;
            pairs.push((name, text));
        }
        Ok(NamedTexts(pairs))
    }
}

/// The settings of column families, by their names.
#[derive(Clone, Default)]
pub struct Families(pub Vec<(String, Settings)>);

impl Families {
    pub fn set(self, options: Options) -> PyResult<Options> {
        self.0.into_iter().try_fold(options, |options, (name, own)| own.of_family(options, &name))
    }

    pub fn failures(&self) -> impl Iterator<Item = Arc<FilterFailure>> {
        self.0.iter().flat_map(|(_, own)| own.failures())
    }
}

impl<'py> FromPyObject<'_, 'py> for Families {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Families::default());
        }
        let Ok(given) = object.cast::<PyMapping>() else {
            let given = object.get_type();
            return Err(PyTypeError::new_err(format!(
                "column families are a mapping of names to options, not {given}"
            )));
        };
        given.items()?.iter().map(|item| item.extract()).collect::<PyResult<_>>().map(Families)
    }
}

/// Options by RocksDB's names, checked when they are set: `Options(max_open_files=500)`,
/// `Options("max_open_files=500")`, `options["max_open_files"] = 500`, or as in `rocksdict`,
/// `options.set_max_open_files(500)`.
#[pyclass(frozen, name = "Options", module = "karstdb")]
pub struct PyOptions(Mutex<Settings>);

impl PyOptions {
    fn settings(&self) -> Settings {
        lock(&self.0).clone()
    }
}

#[pymethods]
impl PyOptions {
    #[new]
    #[pyo3(signature = (options=Settings::default(), /, **named))]
    fn new(options: Settings, named: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let settings = options.and(named)?;
        settings.clone().over(Options::new())?;
        Ok(PyOptions(Mutex::new(settings)))
    }

    /// Sets an option, which replaces an earlier one of that name.
    fn set(&self, name: String, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let part = Part::of(name, value)?;
        Settings(vec![part.clone()]).over(Options::new())?;
        lock(&self.0).0.push(part);
        Ok(())
    }

    fn __setitem__(&self, name: String, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(name, value)
    }

    /// Returns `True` if an option of this name exists.
    #[staticmethod]
    fn _knows(name: &str) -> bool {
        let name = name.split('.').next().unwrap_or(name);
        name == "statistics"
            || DbOptions::entry(name).is_some()
            || ColumnFamilyOptions::entry(name).is_some()
            || BlockBasedTableOptions::entry(name).is_some()
    }

    fn __repr__(&self) -> String {
        let shown: Vec<String> = self
            .settings()
            .0
            .iter()
            .map(|part| match part {
                Part::Named(name, value) => format!("{name}={value}"),
                Part::Text(text) => text.clone(),
                Part::Operator(operator) => {
                    format!("merge_operator={}", karstdb::MergeOperator::name(&**operator))
                }
                Part::Comparator(comparator) => format!("comparator={}", comparator.name()),
                Part::Statistics(_) => "statistics=Statistics".into(),
                Part::Filter(filter) => {
                    format!("compaction_filter={}", karstdb::CompactionFilter::name(&**filter))
                }
            })
            .collect();
        format!("Options({:?})", shown.join(";"))
    }
}

/// Returns the text of a value in the form of OPTIONS files.
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
