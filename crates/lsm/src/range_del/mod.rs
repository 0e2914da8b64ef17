//! Range tombstones: `delete_range` hides every older entry of a range of keys.
//!
//! In: tombstones of a memtable or of one table. Out: [`Fragments`], in which point lookups search
//! the newest tombstone over a key, and [`Aggregate`], in which iterators search it over several
//! memtables and tables.
//!
//! Invariant: a tombstone hides an entry of a key in `[start, end)` if its sequence number is
//! larger than the entry's and not larger than the reader's. In a level, tombstones of a table are
//! valid only within the table's boundaries; code that adds a table's fragments to an aggregate
//! must clip them.

mod aggregate;
mod fragments;
#[cfg(test)]
mod tests;

pub use aggregate::Aggregate;
pub use fragments::{Fragments, RangeTombstone};
