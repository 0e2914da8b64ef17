//! A database with optimistic transactions.

use super::options::{OptimisticTransactionDbOptions, OptimisticTransactionOptions};
use super::transaction::OptimisticTransaction;
use karst_engine::{Db, Options, Result, TransactionHooks, WriteOptions};
use std::ops::Deref;
use std::path::Path;

/// A database with optimistic transactions. Everything else is the [`Db`] that it dereferences to:
/// plain writes are seen by transactions as any others.
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
/// db.put("level", "9")?; // somebody else is faster
/// assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Busy);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OptimisticTransactionDb {
    db: Db,
}

impl OptimisticTransactionDb {
    /// Opens the database in `path`, as [`Db::open`] does.
    ///
    /// # Errors
    /// As [`Db::open`], and as [`over`](Self::over).
    pub fn open(
        path: impl AsRef<Path>,
        options: &Options,
        transactions: &OptimisticTransactionDbOptions,
    ) -> Result<Self> {
        Self::over(Db::open(path, options)?, transactions)
    }

    /// Opens the database in `path`, as [`Db::open_cf`] does.
    ///
    /// # Errors
    /// As [`Db::open_cf`], and as [`over`](Self::over).
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        transactions: &OptimisticTransactionDbOptions,
        families: &[&str],
    ) -> Result<Self> {
        Self::over(Db::open_cf(path, options, families)?, transactions)
    }

    /// Adds transactions to a database that is open for writing. The number of buckets is that of
    /// the first time.
    ///
    /// # Errors
    /// It is open for reading only. `NotSupported`: it is open under the write policy
    /// WritePrepared.
    pub fn over(db: Db, transactions: &OptimisticTransactionDbOptions) -> Result<Self> {
        TransactionHooks::of(&db).track_conflicts(transactions.occ_lock_buckets)?;
        Ok(Self { db })
    }

    /// Begins a transaction, which commits with these write options.
    pub fn begin(
        &self,
        write_options: &WriteOptions,
        options: &OptimisticTransactionOptions,
    ) -> OptimisticTransaction {
        OptimisticTransaction::new(self.db.clone(), *write_options, options)
    }

    /// The database.
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
