//! Conversion of a script's writes to a batch of KarstDB. Also compiled by other suites and by the
//! judge of RocksDB 11.8.

use karst_engine::{ColumnFamily, Result, WriteBatch};
use karst_testkit::script::Write;

/// Returns a batch of these changes; their family numbers are indexes into `families`.
pub(crate) fn batch(families: &[ColumnFamily], changes: &[Write]) -> Result<WriteBatch> {
    let mut batch = WriteBatch::new();
    changes.iter().try_for_each(|change| add(&mut batch, families, change))?;
    Ok(batch)
}

fn add(batch: &mut WriteBatch, families: &[ColumnFamily], change: &Write) -> Result<()> {
    match change {
        Write::Put { family, key, value } => batch.put_cf(&families[*family], key, value),
        Write::Delete { family, key } => batch.delete_cf(&families[*family], key),
        Write::SingleDelete { family, key } => batch.single_delete_cf(&families[*family], key),
        Write::DeleteRange { family, begin, end } => batch.delete_range_cf(&families[*family], begin, end),
        Write::Merge { family, key, operand } => batch.merge_cf(&families[*family], key, operand),
    }
}
