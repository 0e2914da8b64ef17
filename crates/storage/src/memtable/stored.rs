//! The value type under which an entry is stored.

use karst_format::comparator::Comparator;
use karst_format::key::ValueType;

/// Returns the kind under which memtables and tables with this comparator store an entry of kind
/// `kind`.
///
/// Compat: RocksDB marks deletions of keys with timestamps in memtables and tables, but not in
/// batches and logs.
#[inline]
pub fn stored_kind(order: &Comparator, kind: ValueType) -> ValueType {
    match kind {
        ValueType::Deletion if order.timestamp_size() > 0 => ValueType::DeletionWithTimestamp,
        kind => kind,
    }
}
