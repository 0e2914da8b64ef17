//! What an entry is stored as.

use karst_format::comparator::Comparator;
use karst_format::key::ValueType;

/// The kind under which memtables and tables in this order store an entry of kind `kind`.
///
/// Compat: in memtables and tables RocksDB marks deletions of keys with timestamps; in batches and
/// logs it does not.
#[inline]
pub fn stored_kind(order: &Comparator, kind: ValueType) -> ValueType {
    match kind {
        ValueType::Deletion if order.timestamp_size() > 0 => ValueType::DeletionWithTimestamp,
        kind => kind,
    }
}
