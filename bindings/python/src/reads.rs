//! Options of reads, which Python passes by keyword.

use crate::bytes::Given;
use crate::db::Snapshot;
use crate::shared::Shared;
use karstdb::{ReadOptions, ReadTier};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Duration;

/// Kind of a read, which determines its options.
#[derive(Clone, Copy, PartialEq)]
pub enum Read {
    Get,
    MultiGet,
    Iter,
}

type Set = fn(&mut ReadOptions, &Bound<'_, PyAny>) -> PyResult<()>;

const EVERY: &[Read] = &[Read::Get, Read::MultiGet, Read::Iter];

/// The options, the reads that have them, and the functions that set them.
const OPTIONS: &[(&str, &[Read], Set)] = &[
    ("read_tier", EVERY, |options, given| {
        options.read_tier = match given.extract::<String>()?.as_str() {
            "all" => ReadTier::All,
            "block_cache" => ReadTier::BlockCache,
            "memtable" => ReadTier::Memtable,
            _ => return Err(PyValueError::new_err("it is all, block_cache or memtable")),
        };
        Ok(())
    }),
    ("verify_checksums", EVERY, |options, given| set(&mut options.verify_checksums, given)),
    ("fill_cache", EVERY, |options, given| set(&mut options.fill_cache, given)),
    ("ignore_range_deletions", EVERY, |options, given| set(&mut options.ignore_range_deletions, given)),
    ("async_io", EVERY, |options, given| set(&mut options.async_io, given)),
    ("deadline", EVERY, |options, given| set_time(&mut options.deadline, given)),
    ("io_timeout", EVERY, |options, given| set_time(&mut options.io_timeout, given)),
    ("optimize_multiget_for_io", &[Read::MultiGet], |options, given| {
        set(&mut options.optimize_multiget_for_io, given)
    }),
    ("value_size_soft_limit", &[Read::MultiGet], |options, given| {
        set(&mut options.value_size_soft_limit, given)
    }),
    ("readahead_size", &[Read::Iter], |options, given| set(&mut options.readahead_size, given)),
    ("max_skippable_internal_keys", &[Read::Iter], |options, given| {
        set(&mut options.max_skippable_internal_keys, given)
    }),
    ("total_order_seek", &[Read::Iter], |options, given| set(&mut options.total_order_seek, given)),
    ("auto_prefix_mode", &[Read::Iter], |options, given| set(&mut options.auto_prefix_mode, given)),
    ("prefix_same_as_start", &[Read::Iter], |options, given| set(&mut options.prefix_same_as_start, given)),
    ("adaptive_readahead", &[Read::Iter], |options, given| set(&mut options.adaptive_readahead, given)),
    ("auto_readahead_size", &[Read::Iter], |options, given| set(&mut options.auto_readahead_size, given)),
];

fn set<T>(option: &mut T, given: &Bound<'_, PyAny>) -> PyResult<()>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    *option = given.extract()?;
    Ok(())
}

fn set_time(option: &mut Option<Duration>, given: &Bound<'_, PyAny>) -> PyResult<()> {
    let time = Duration::try_from_secs_f64(given.extract()?);
    *option = Some(time.map_err(|error| PyValueError::new_err(error.to_string()))?);
    Ok(())
}

/// Returns the options of a read of the database.
pub fn read_options(
    shared: &Shared,
    read: Read,
    snapshot: Option<&Snapshot>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<ReadOptions> {
    let mut options =
        ReadOptions { snapshot: snapshot.map(Snapshot::taken).transpose()?, ..ReadOptions::new() };
    let Some(named) = named.filter(|named| !named.is_empty()) else { return Ok(options) };
    shared.here()?;
    for (name, value) in named.iter() {
        let name: String = name.extract()?;
        let Some((_, _, set)) = OPTIONS.iter().find(|(known, of, _)| *known == name && of.contains(&read))
        else {
            return Err(unknown(named.py(), read, &name));
        };
        if value.is_none() {
            continue;
        }
        set(&mut options, &value).map_err(|error| {
            let text = format!("{name}: {}", error.value(named.py()));
            match error.is_instance_of::<PyTypeError>(named.py()) {
                true => PyTypeError::new_err(text),
                false => PyValueError::new_err(text),
            }
        })?;
    }
    // The given deadline is relative to now.
    options.deadline = options.deadline.and_then(|left| shared.db().env().now().checked_add(left));
    Ok(options)
}

/// Returns the `TypeError` for an unknown keyword, with a suggestion.
fn unknown(py: Python<'_>, read: Read, name: &str) -> PyErr {
    let what = match read {
        Read::Get => "a get",
        Read::MultiGet => "a multi_get",
        Read::Iter => "an iteration",
    };
    if OPTIONS.iter().any(|(known, ..)| *known == name) {
        return PyTypeError::new_err(format!("{what} has no option {name}; other reads have"));
    }
    let known = OPTIONS.iter().filter(|(_, of, _)| of.contains(&read)).map(|(known, ..)| *known);
    let meant = match name {
        "iterate_lower_bound" => "; did you mean lower?".to_owned(),
        "iterate_upper_bound" => "; did you mean upper?".to_owned(),
        _ => did_you_mean(py, name, known.chain(["snapshot", "lower", "upper"])),
    };
    PyTypeError::new_err(format!("{what} has no option {name}{meant}"))
}

/// Returns a question to append to a message if a name resembles a known one.
pub fn did_you_mean<'a>(py: Python<'_>, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.collect();
    let near = py.import("difflib").and_then(|it| it.call_method1("get_close_matches", (name, known)));
    let near = near.and_then(|near| near.get_item(0)?.extract::<String>());
    near.map(|near| format!("; did you mean {near}?")).unwrap_or_default()
}

pub fn bounds(options: ReadOptions, lower: Option<Given>, upper: Option<Given>) -> ReadOptions {
    ReadOptions {
        iterate_lower_bound: lower.map(|key| key.as_ref().to_vec()),
        iterate_upper_bound: upper.map(|key| key.as_ref().to_vec()),
        ..options
    }
}
