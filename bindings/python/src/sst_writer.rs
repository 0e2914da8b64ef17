//! Table files that are written outside of a database and ingested.

use crate::bytes::{Given, GivenPath};
use crate::db::Rdict;
use crate::error::detached;
use crate::options::Settings;
use crate::shared::{Owned, lock_for_call};
use karstdb::{Options, Result};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Mutex;

/// Writes a table file of ordered keys, for `Rdict.ingest_external_file`.
#[pyclass(frozen, module = "karstdb")]
pub struct SstFileWriter(Owned<Mutex<karstdb::SstFileWriter>>);

impl SstFileWriter {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut karstdb::SstFileWriter) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.0.here("it")?;
        detached(py, || call(&mut *lock_for_call(&self.0)?))
    }
}

/// Description of a finished file.
#[pyclass(frozen, get_all, module = "karstdb")]
pub struct ExternalSstFileInfo {
    /// Path of the file.
    file_path: PathBuf,
    /// Its first key.
    smallest_key: Vec<u8>,
    /// Its last key.
    largest_key: Vec<u8>,
    /// Size of the file in bytes.
    file_size: u64,
    /// Number of entries without removed ranges.
    num_entries: u64,
    /// Number of removed ranges.
    num_range_del_entries: u64,
}

#[pymethods]
impl SstFileWriter {
    /// Creates a writer for any column family with these options, or for `column_family`.
    #[new]
    #[pyo3(signature = (options=Settings::default(), column_family=None))]
    fn new(py: Python<'_>, options: Settings, column_family: Option<&Rdict>) -> PyResult<Self> {
        let options = options.over(Options::new())?;
        let family = column_family.map(Rdict::family).transpose()?;
        let writer = detached(py, || match family {
            Some(family) => karstdb::SstFileWriter::for_column_family(&options, family),
            None => karstdb::SstFileWriter::create(&options),
        })?;
        Ok(SstFileWriter(Owned::new(Mutex::new(writer))))
    }

    /// Begins a file, replacing an existing one.
    fn open(&self, py: Python<'_>, path: GivenPath) -> PyResult<()> {
        self.with(py, |writer| writer.open(path))
    }

    /// Sets a key, which must sort after the keys before it.
    fn put(&self, py: Python<'_>, key: Given, value: Given) -> PyResult<()> {
        self.with(py, |writer| writer.put(key, value))
    }

    /// Adds a merge operand to a key, which must sort after the keys before it.
    fn merge(&self, py: Python<'_>, key: Given, operand: Given) -> PyResult<()> {
        self.with(py, |writer| writer.merge(key, operand))
    }

    /// Removes a key, which must sort after the keys before it.
    fn delete(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.with(py, |writer| writer.delete(key))
    }

    /// Removes the keys from `begin` up to `end`, exclusive; in any order relative to other calls.
    fn delete_range(&self, py: Python<'_>, begin: Given, end: Given) -> PyResult<()> {
        self.with(py, |writer| writer.delete_range(begin, end))
    }

    fn __setitem__(&self, py: Python<'_>, key: Given, value: Given) -> PyResult<()> {
        self.put(py, key, value)
    }

    fn __delitem__(&self, py: Python<'_>, key: Given) -> PyResult<()> {
        self.delete(py, key)
    }

    /// Returns the approximate size of the file so far, in bytes.
    fn file_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |writer| Ok(writer.file_size()))
    }

    /// Finishes the file, which can then be ingested.
    fn finish(&self, py: Python<'_>) -> PyResult<ExternalSstFileInfo> {
        let info = self.with(py, |writer| writer.finish())?;
        Ok(ExternalSstFileInfo {
            file_path: info.file_path,
            smallest_key: info.smallest_key,
            largest_key: info.largest_key,
            file_size: info.file_size,
            num_entries: info.num_entries,
            num_range_del_entries: info.num_range_del_entries,
        })
    }
}
