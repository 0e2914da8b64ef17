//! Transaction database with pessimistic locks: opening, plain writes, names of transactions.
//!
//! Invariants:
//! - A name belongs to one transaction from when it is set until the transaction has ended.
//! - A prepared transaction whose handle is dropped keeps its locks and its name, and can be
//!   retrieved by name.

use super::options::{TransactionDbOptions, TransactionOptions, WritePolicy};
use super::timestamps::Timestamps;
use super::transaction::{Parts, Transaction};
use crate::completion::complete;
use crate::holder::Holder;
use crate::lock::{DeadlockPath, LockStatus, Locks, Request};
use karst_engine::caller::{Caller, finish};
use karst_engine::{
    ColumnFamily, Db, Error, ErrorKind, Options, PreparedTransaction, Result, Shown, TransactionHooks,
    WriteBatch, WriteOptions,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State of a named transaction's handle.
#[derive(Debug)]
enum Named {
    /// The caller holds the handle.
    InHand,
    /// The transaction is prepared, and its handle was dropped or not retrieved yet.
    Parked(Box<Parts>),
}

/// State that a transaction database and its transactions share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) db: Db,
    pub(super) options: TransactionDbOptions,
    pub(super) locks: Locks,
    next_id: AtomicU64,
    names: Mutex<HashMap<Vec<u8>, Named>>,
}

/// Converts an option in milliseconds; negative values mean no limit.
pub(super) fn milliseconds(count: i64) -> Option<Duration> {
    u64::try_from(count).ok().map(Duration::from_millis)
}

impl Shared {
    pub(super) fn new_holder(&self, expiration: Option<Duration>) -> Arc<Holder> {
        // Ordering: `Relaxed`, because the id only has to be unique.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::new(Holder::new(id, expiration.map(|span| self.db.env().now().saturating_add(span))))
    }

    /// Refuses a column family whose timestamps transactions do not support.
    pub(super) fn check_family(&self, family: &ColumnFamily) -> Result<()> {
        Timestamps::check_family(family, &self.options)
    }

    /// Reserves `name` for a transaction.
    pub(super) fn register(&self, name: &[u8]) -> Result<()> {
        match self.names.lock().entry(name.to_vec()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Named::InHand);
                Ok(())
            }
            Entry::Occupied(_) => {
                let name = Shown(name);
                Err(Error::invalid_argument(format!("a transaction named {name} exists already")))
            }
        }
    }

    /// Keeps a prepared transaction whose handle is dropped.
    pub(super) fn park(&self, name: &[u8], parts: Box<Parts>) {
        self.names.lock().insert(name.to_vec(), Named::Parked(parts));
    }

    /// Restores a prepared transaction of an earlier process, with its locks.
    fn recover(&self, prepared: PreparedTransaction) -> Result<()> {
        let PreparedTransaction { name, batch, .. } = prepared;
        let parts = Box::new(Parts::recovered(self, name.clone(), &batch)?);
        for (family, key) in parts.work.tracked.iter() {
            // Beside other holders, because two prepared transactions that took no locks may have
            // written one key.
            self.locks.hold(&parts.holder, family, key);
        }
        self.park(&name, parts);
        Ok(())
    }

    pub(super) fn unregister(&self, name: &[u8]) {
        self.names.lock().remove(name);
    }
}

/// Locks of one plain write, released when dropped.
struct Granted {
    shared: Arc<Shared>,
    holder: Arc<Holder>,
    keys: Vec<(u32, Vec<u8>)>,
}

impl Drop for Granted {
    fn drop(&mut self) {
        for (family, key) in &self.keys {
            self.shared.locks.unlock(&self.holder, *family, key);
        }
    }
}

/// A database whose transactions and plain writes lock the keys that they write.
///
/// ```
/// # use karst_engine::{Options, ReadOptions, WriteOptions, ErrorKind};
/// # use karst_txn::{TransactionDb, TransactionDbOptions, TransactionOptions};
/// # let directory = tempfile::tempdir()?;
/// let options = Options::new().db(|db| db.create_if_missing = true);
/// let transactions = TransactionDbOptions { default_lock_timeout: 0, ..TransactionDbOptions::default() };
/// let db = TransactionDb::open(directory.path(), &options, &transactions)?;
/// let mut transaction = db.begin(&WriteOptions::new(), &TransactionOptions::default());
/// transaction.put("level", "3")?;
/// assert_eq!(db.put("level", "9").unwrap_err().kind(), ErrorKind::TimedOut); // it is locked
/// transaction.commit()?;
/// assert_eq!(db.db().get("level")?.as_deref(), Some(&b"3"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TransactionDb {
    shared: Arc<Shared>,
}

impl TransactionDb {
    /// Opens the database in `path` like [`Db::open`], with `allow_2pc`. Transactions that were
    /// prepared and not decided are restored as prepared, with their locks; see
    /// [`get_all_prepared_transactions`](Self::get_all_prepared_transactions).
    ///
    /// # Errors
    /// Those of [`Db::open`]. `NotSupported`: the write policy is not supported, or column families
    /// have timestamps and the policy is not WriteCommitted. `InvalidArgument`: timestamps are not
    /// of 8 bytes.
    pub fn open(
        path: impl AsRef<Path>,
        options: &Options,
        transactions: &TransactionDbOptions,
    ) -> Result<Self> {
        check(transactions)?;
        Self::over(Db::open(path, &with_two_phases(options, transactions))?, transactions)
    }

    /// Opens the database in `path` like [`Db::open_cf`]; see [`open`](Self::open).
    ///
    /// # Errors
    /// Those of [`Db::open_cf`] and of [`open`](Self::open).
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        transactions: &TransactionDbOptions,
        families: &[&str],
    ) -> Result<Self> {
        check(transactions)?;
        Self::over(Db::open_cf(path, &with_two_phases(options, transactions), families)?, transactions)
    }

    fn over(db: Db, transactions: &TransactionDbOptions) -> Result<Self> {
        let most = u64::try_from(transactions.max_num_locks).ok().filter(|most| *most > 0);
        let kept = transactions.max_num_deadlocks as usize;
        let shared = Arc::new(Shared {
            locks: Locks::new(db.env().clone(), transactions.num_stripes, most, kept),
            db,
            options: transactions.clone(),
            next_id: AtomicU64::new(1),
            names: Mutex::default(),
        });
        shared.db.column_families().iter().try_for_each(|family| shared.check_family(family))?;
        for prepared in shared.db.prepared_transactions() {
            shared.recover(prepared)?;
        }
        Ok(Self { shared })
    }

    /// Returns the names, in order, of all transactions that are prepared and not decided, with or
    /// without a handle.
    pub fn get_all_prepared_transactions(&self) -> Vec<Vec<u8>> {
        self.shared.db.prepared_names()
    }

    /// Returns the handle of a prepared transaction that was recovered, or whose handle was
    /// dropped.
    ///
    /// # Errors
    /// `NotFound`: no transaction has this name; `Busy`: its handle is in use; `Closed`: the
    /// database is closed.
    pub fn get_transaction_by_name(&self, name: impl AsRef<[u8]>) -> Result<Transaction> {
        self.shared.db.check_open()?;
        let name = name.as_ref();
        let mut names = self.shared.names.lock();
        let shown = Shown(name);
        match names.get_mut(name) {
            None => Err(Error::new(ErrorKind::NotFound, format!("no transaction is named {shown}"))),
            Some(named) => match std::mem::replace(named, Named::InHand) {
                Named::InHand => Err(Error::new(
                    ErrorKind::Busy,
                    format!("transaction {shown} is in use through another handle"),
                )),
                Named::Parked(parts) => Ok(Transaction { shared: self.shared.clone(), parts: Some(parts) }),
            },
        }
    }

    /// Begins a transaction that commits with `write_options`.
    pub fn begin(&self, write_options: &WriteOptions, options: &TransactionOptions) -> Transaction {
        Transaction::begin(self.shared.clone(), *write_options, options)
    }

    /// Returns the underlying database, for flushes, compactions, column families, properties and
    /// the like. **Not for writes**: writes through it take no locks, and transactions do not
    /// detect them as conflicts.
    pub fn db(&self) -> &Db {
        &self.shared.db
    }

    /// Returns the locks that are held.
    pub fn lock_status(&self) -> Vec<LockStatus> {
        self.shared.locks.status()
    }

    /// Returns the most recent deadlocks, newest first.
    pub fn get_deadlock_info_buffer(&self) -> Vec<DeadlockPath> {
        self.shared.locks.deadlocks()
    }

    /// Sets the maximum number of deadlocks kept.
    pub fn set_deadlock_info_buffer_size(&self, most: usize) {
        self.shared.locks.keep_deadlocks(most);
    }

    /// Locks every key of `batch` in sorted order, which all callers share.
    async fn lock_all(&self, by: Caller, batch: &WriteBatch) -> Result<Granted> {
        // Checked here too because holders of the locks may never release them once the database is
        // closed.
        self.shared.db.check_open()?;
        let mut keys = keys_of(batch)?;
        keys.sort_unstable();
        keys.dedup();
        let shared = &self.shared;
        let holder = shared.new_holder(None);
        let mut granted = Granted { shared: shared.clone(), holder, keys: Vec::new() };
        let timeout = milliseconds(shared.options.default_lock_timeout);
        for (family, key) in keys {
            let request = Request { family, key: &key, exclusive: true, timeout, detect_depth: None };
            shared.locks.lock(by, &granted.holder, request).await?;
            granted.keys.push((family, key));
        }
        Ok(granted)
    }

    /// Writes a batch atomically, and visible to readers all at once. Waits for locks on all its
    /// keys, and holds them until it is written.
    ///
    /// # Errors
    /// Those of [`Db::write`]; `TimedOut` after `default_lock_timeout`, `LimitReached`;
    /// `NotSupported`: the batch removes ranges, or keys have timestamps, which only transactions
    /// write.
    pub fn write(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        self.written(options, batch, self.locks_batches())
    }

    fn written(&self, options: &WriteOptions, batch: &WriteBatch, locks: bool) -> Result<()> {
        TransactionHooks::of(&self.shared.db).check_no_timestamps(batch)?;
        let _granted = locks.then(|| finish(self.lock_all(Caller::Thread, batch))).transpose()?;
        self.shared.db.write(options, batch)
    }

    /// Returns true if batches lock their keys; writes of single keys always do.
    fn locks_batches(&self) -> bool {
        !self.shared.options.skip_concurrency_control
    }

    /// The asynchronous form of [`write`](Self::write). After its first poll the write completes
    /// even if it is dropped.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub async fn write_async(&self, options: &WriteOptions, batch: WriteBatch) -> Result<()> {
        self.written_async(options, batch, self.locks_batches()).await
    }

    async fn written_async(&self, options: &WriteOptions, batch: WriteBatch, locks: bool) -> Result<()> {
        TransactionHooks::of(&self.shared.db).check_no_timestamps(&batch)?;
        let (this, options) = (self.clone(), *options);
        let env = self.shared.db.env().clone();
        let work = async move {
            let _granted = match locks {
                true => Some(this.lock_all(Caller::Task, &batch).await?),
                false => None,
            };
            this.shared.db.write_async(&options, &batch).await
        };
        complete(&env, work).await
    }
}

fn with_two_phases(options: &Options, transactions: &TransactionDbOptions) -> Options {
    let write_prepared = transactions.write_policy == WritePolicy::WritePrepared;
    options.clone().db(|db| db.allow_2pc = true).write_prepared(write_prepared)
}

fn check(options: &TransactionDbOptions) -> Result<()> {
    match options.write_policy {
        WritePolicy::WriteCommitted | WritePolicy::WritePrepared => Ok(()),
        WritePolicy::WriteUnprepared => Err(Error::not_supported("write policy WriteUnprepared")),
    }
}

/// Returns the keys that a batch writes, with their column families.
fn keys_of(batch: &WriteBatch) -> Result<Vec<(u32, Vec<u8>)>> {
    let mut keys = Vec::new();
    for op in batch.iter() {
        let Some(family) = op.column_family() else { continue };
        let Some(key) = op.key() else {
            return Err(Error::not_supported(
                "delete_range in a transaction database: ranges are not locked",
            ));
        };
        keys.push((family.0, key.to_vec()));
    }
    Ok(keys)
}

/// Defines the forms of every call that writes one key.
macro_rules! writes {
    ($($(#[$doc:meta])* $plain:ident $cf:ident $plain_async:ident $cf_async:ident ($($value:ident)?);)*) => {
        impl TransactionDb {
            $(
                $(#[$doc])*
                ///
                /// In the default column family, with default options. Waits for a lock on the key.
                ///
                /// # Errors
                /// Those of [`write`](Self::write).
                pub fn $plain(&self, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.$cf(&WriteOptions::default(), self.db().default_column_family(), key $(, $value)?)
                }

                /// Performs the write in a column family, with options.
                ///
                /// # Errors
                /// Those of [`write`](Self::write).
                pub fn $cf(&self, options: &WriteOptions, family: &ColumnFamily, key: impl AsRef<[u8]> $(, $value: impl AsRef<[u8]>)?) -> Result<()> {
                    let mut batch = WriteBatch::new();
                    batch.$cf(family, key.as_ref() $(, $value.as_ref())?)?;
                    self.written(options, &batch, true)
                }

                #[doc = concat!("The asynchronous form of [`", stringify!($plain), "`](Self::", stringify!($plain), ").")]
                ///
                /// # Errors
                /// Those of [`write`](Self::write).
                pub async fn $plain_async(&self, key: &[u8] $(, $value: &[u8])?) -> Result<()> {
                    self.$cf_async(&WriteOptions::default(), self.db().default_column_family(), key $(, $value)?).await
                }

                #[doc = concat!("The asynchronous form of [`", stringify!($cf), "`](Self::", stringify!($cf), ").")]
                ///
                /// # Errors
                /// Those of [`write`](Self::write).
                pub async fn $cf_async(&self, options: &WriteOptions, family: &ColumnFamily, key: &[u8] $(, $value: &[u8])?) -> Result<()> {
                    let mut batch = WriteBatch::new();
                    batch.$cf(family, key $(, $value)?)?;
                    self.written_async(options, batch, true).await
                }
            )*
        }
    };
}

writes! {
    /// Sets `key` to `value`.
    put put_cf put_async put_cf_async (value);
    /// Removes `key`.
    delete delete_cf delete_async delete_cf_async ();
    /// Removes `key`, which was put at most once since it was last removed.
    single_delete single_delete_cf single_delete_async single_delete_cf_async ();
    /// Adds a merge operand to `key`.
    merge merge_cf merge_async merge_cf_async (operand);
}
