//! Statistics by RocksDB's names.

use crate::error::InvalidArgument;
use karstdb::{HistogramKind, StatsLevel, Ticker};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// Tickers and histograms of the databases opened with this object:
/// `open(path, statistics=statistics)`.
#[pyclass(frozen, module = "karstdb")]
pub struct Statistics(pub Arc<karstdb::Statistics>);

fn unknown(name: &str) -> PyErr {
    InvalidArgument::new_err(format!("there is no statistic {name}"))
}

fn shown<'py>(py: Python<'py>, of: &karstdb::Histogram) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    for (name, value) in [("count", of.count()), ("sum", of.sum()), ("min", of.min()), ("max", of.max())] {
        told.set_item(name, value)?;
    }
    told.set_item("average", of.average())?;
    for (name, percent) in [("median", 50.0), ("p95", 95.0), ("p99", 99.0)] {
        told.set_item(name, of.percentile(percent))?;
    }
    Ok(told)
}

#[pymethods]
impl Statistics {
    #[new]
    #[pyo3(signature = (level="except_detailed_timers"))]
    fn new(level: &str) -> PyResult<Self> {
        let level = match level {
            "disable_all" => StatsLevel::DisableAll,
            "except_histogram_or_timers" => StatsLevel::ExceptHistogramOrTimers,
            "except_timers" => StatsLevel::ExceptTimers,
            "except_detailed_timers" => StatsLevel::ExceptDetailedTimers,
            "except_time_for_mutex" => StatsLevel::ExceptTimeForMutex,
            "all" => StatsLevel::All,
            _ => {
                return Err(PyValueError::new_err(
                    "a level is disable_all, except_histogram_or_timers, except_timers, except_detailed_timers, \
                     except_time_for_mutex or all",
                ));
            }
        };
        Ok(Statistics(Arc::new(karstdb::Statistics::new(level))))
    }

    /// Returns a count by RocksDB's name, such as `"rocksdb.block.cache.hit"`.
    fn ticker(&self, name: &str) -> PyResult<u64> {
        Ok(self.0.ticker(Ticker::from_name(name).ok_or_else(|| unknown(name))?))
    }

    /// Returns all counts by their names.
    fn tickers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        Ticker::all().try_for_each(|ticker| told.set_item(ticker.name(), self.0.ticker(ticker)))?;
        Ok(told)
    }

    /// Returns a histogram by RocksDB's name, such as `"rocksdb.db.get.micros"`: count, sum, min,
    /// max, average, median, p95 and p99.
    fn histogram<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let kind = HistogramKind::from_name(name).ok_or_else(|| unknown(name))?;
        shown(py, &self.0.histogram(kind))
    }

    /// Returns all histograms that are not empty, by their names.
    fn histograms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        for kind in HistogramKind::all() {
            let histogram = self.0.histogram(kind);
            if histogram.count() > 0 {
                told.set_item(kind.name(), shown(py, &histogram)?)?;
            }
        }
        Ok(told)
    }

    /// Resets all counts and histograms.
    fn reset(&self) {
        self.0.reset();
    }
}
