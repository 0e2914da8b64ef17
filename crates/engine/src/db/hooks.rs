//! Database calls that only transactions use.
//!
//! Invariant: the handle has no state, so each call creates a new one.

use super::Db;
use karst_base::error::Result;
use karst_base::snapshot::Snapshot;
use std::ops::Range;

/// The calls of a database that the crate `karst-txn` is built on: writes that depend on keys, and
/// two-phase writes. They take no locks and know no transactions; callers must keep the conditions
/// that each call states.
///
/// They are not calls of [`Db`], because they are of no use without `karst-txn`, and take types
/// that the facade `karstdb` does not have.
#[derive(Clone, Copy, Debug)]
pub struct TransactionHooks<'a>(pub(super) &'a Db);

impl<'a> TransactionHooks<'a> {
    /// Returns the hooks of `db`.
    pub fn of(db: &'a Db) -> Self {
        Self(db)
    }

    /// Returns the range of the bytes of an encoded entity that a plain read returns.
    ///
    /// # Errors
    /// `Corruption`: the bytes are no entity, or refer to blobs.
    pub fn plain_value_of(entity: &[u8]) -> Result<Range<usize>> {
        karst_commit::plain_value_of(entity)
    }

    /// Returns true if the snapshot is of this database.
    pub fn has_taken(&self, snapshot: &Snapshot) -> bool {
        snapshot.belongs_to(&self.0.0.snapshots)
    }
}
