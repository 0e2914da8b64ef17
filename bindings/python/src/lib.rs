//! The Python module `karstdb._karstdb`. The package `karstdb` adds the parts in Python: coroutines
//! over [`Operation`].
//!
//! No call waits with the interpreter's lock held. KarstDB's threads take it only to call an
//! operator, a filter or a comparator written in Python: a waker writes to a socket that the event
//! loop listens to ([`Ready`]).

mod bytes;
mod callables;
mod copies;
mod db;
mod error;
mod iter;
mod operation;
mod options;
mod reads;
mod shared;
mod sst_writer;
mod stats;
mod transaction;
mod turns;

use pyo3::prelude::*;

#[pymodule]
fn _karstdb(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<db::Rdict>()?;
    module.add_class::<transaction::TransactionDB>()?;
    module.add_class::<transaction::OptimisticTransactionDB>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<options::PyOptions>()?;
    module.add_class::<callables::MergeOperator>()?;
    module.add_class::<callables::CompactionFilter>()?;
    module.add_class::<callables::PyComparator>()?;
    module.add_class::<stats::Statistics>()?;
    module.add_class::<copies::Checkpoint>()?;
    module.add_class::<copies::BackupEngine>()?;
    module.add_class::<copies::BackupInfo>()?;
    module.add_class::<sst_writer::SstFileWriter>()?;
    module.add_class::<sst_writer::ExternalSstFileInfo>()?;
    module.add_function(wrap_pyfunction!(copies::destroy, module)?)?;
    module.add_function(wrap_pyfunction!(copies::repair, module)?)?;
    module.add_function(wrap_pyfunction!(copies::list_cf, module)?)?;
    module.add_class::<db::WriteOptions>()?;
    module.add_class::<db::WriteBatch>()?;
    module.add_class::<db::Snapshot>()?;
    module.add_class::<iter::RdictIter>()?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<operation::Ready>()?;
    module.add_function(wrap_pyfunction!(shared::_close_all, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::register(module)
}
