//! What transactions ask of a database and users do not.
//!
//! Invariant: the handle has no state, so it is made anew for each call.

use super::Db;
use karst_base::error::Result;
use karst_base::snapshot::Snapshot;
use std::ops::Range;

/// The calls of a database that the crate `karst-txn` is built on: writes that depend on keys, and
/// writes in two phases. They take no locks and know no transactions; whoever makes them keeps what
/// is said of each.
///
/// Why not calls of [`Db`]: they are of no use without what `karst-txn` does around them, and take
/// types that the facade `karstdb` does not have.
#[derive(Clone, Copy, Debug)]
pub struct TransactionHooks<'a>(pub(super) &'a Db);

impl<'a> TransactionHooks<'a> {
    /// Those of `db`.
    pub fn of(db: &'a Db) -> Self {
        Self(db)
    }

    /// What a plain read returns of a wide-column entity as a batch has it: a part of its bytes.
    ///
    /// # Errors
    /// `Corruption`: it is no entity, or refers to blobs.
    pub fn plain_value_of(entity: &[u8]) -> Result<Range<usize>> {
        karst_commit::plain_value_of(entity)
    }

    /// Whether the snapshot is of this database.
    pub fn has_taken(&self, snapshot: &Snapshot) -> bool {
        snapshot.belongs_to(&self.0.0.snapshots)
    }
}
