//! A database with optimistic transactions.

use super::options::{OptimisticTransactionDbOptions, OptimisticTransactionOptions};
use super::transaction::OptimisticTransaction;
use karst_engine::{Db, Options, Result, TransactionHooks, WriteOptions};
use std::ops::Deref;
use std::path::Path;

/// A database with optimistic transactions. Dereferences to [`Db`] for all other calls; plain
/// writes conflict with transactions like any other writes.
///
/// ```
/// # use karst_engine::{Options, ReadOptions, WriteOptions, ErrorKind};
/// # use karst_txn::{OptimisticTransactionDb, OptimisticTransactionDbOptions, OptimisticTransactionOptions};
/// # let directory = tempfile::tempdir()?;
/// let options = Options::new().db(|db| db.create_if_missing = true);
/// let db = OptimisticTransactionDb::open(directory.path(), &options, &OptimisticTransactionDbOptions::default())?;
/// db.put("level", "3")?;
/// let mut transaction = db.begin(&WriteOptions::new(), &OptimisticTransactionOptions::default());
/// transaction.get_for_update(&ReadOptions::new(), "level")?;
/// transaction.put("level", "4")?;
/// db.put("level", "9")?; // a plain write comes first
/// assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Busy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OptimisticTransactionDb {
    db: Db,
}

impl OptimisticTransactionDb {
    /// Opens the database in `path` like [`Db::open`].
    ///
    /// # Errors
    /// Those of [`Db::open`] and of [`over`](Self::over).
    pub fn open(
        path: impl AsRef<Path>,
        options: &Options,
        transactions: &OptimisticTransactionDbOptions,
    ) -> Result<Self> {
        Self::over(Db::open(path, options)?, transactions)
    }

    /// Opens the database in `path` like [`Db::open_cf`].
    ///
    /// # Errors
    /// Those of [`Db::open_cf`] and of [`over`](Self::over).
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        transactions: &OptimisticTransactionDbOptions,
        families: &[&str],
    ) -> Result<Self> {
        Self::over(Db::open_cf(path, options, families)?, transactions)
    }

    /// Adds transactions to a database that is open for writing. The first call for a database
    /// decides the number of buckets.
    ///
    /// # Errors
    /// The database is open for reading only. `NotSupported`: it is open under the write policy
    /// WritePrepared.
    pub fn over(db: Db, transactions: &OptimisticTransactionDbOptions) -> Result<Self> {
        TransactionHooks::of(&db).track_conflicts(transactions.occ_lock_buckets)?;
        Ok(Self { db })
    }

    /// Begins a transaction that commits with `write_options`.
    pub fn begin(
        &self,
        write_options: &WriteOptions,
        options: &OptimisticTransactionOptions,
    ) -> OptimisticTransaction {
        OptimisticTransaction::new(self.db.clone(), *write_options, options)
    }

    /// Returns the underlying database.
    pub fn db(&self) -> &Db {
        &self.db
    }
}

impl Deref for OptimisticTransactionDb {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}
