//! One interface to both engines' databases with transactions: batches written through them, and
//! transactions that read, write and commit.

use super::load::{BatchWriter, Target};
use super::store::{
    Durability, Engine, karst_options, karst_write_options, rocks_options, rocks_write_options,
};
use crate::rocks;
use karst_engine::{ErrorKind, ReadOptions, WriteBatch, WriteOptions};
use karst_txn::{
    OptimisticTransactionDb, OptimisticTransactionDbOptions, OptimisticTransactionOptions, TransactionDb,
    TransactionDbOptions, TransactionOptions, WritePolicy,
};
use librocksdb_sys as ffi;
use rocksdb::AsRawPtr;
use std::ffi::CString;
use std::path::Path;
use std::ptr;

/// Concurrency control of transactions, and when their writes reach the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Locks; writes reach the database at commit.
    Committed,
    /// Writes reach the database at prepare, or at once for plain batches. Two write queues, and no
    /// locks for batches if `locks` is off, which is db_bench's choice for `unordered_write`.
    Prepared { locks: bool },
    /// Validated when they commit.
    Optimistic,
}

/// An open database with transactions.
pub(super) enum TransactionStore {
    Rocks(*mut ffi::rocksdb_transactiondb_t),
    RocksOptimistic(*mut ffi::rocksdb_optimistictransactiondb_t),
    Karst(TransactionDb),
    KarstOptimistic(OptimisticTransactionDb),
}

// SAFETY: RocksDB's databases take calls from any thread at the same time.
unsafe impl Sync for TransactionStore {}

impl TransactionStore {
    /// Opens the database in `path` like [`super::store::Store::open`], with the policy's own
    /// options added.
    pub(super) fn open(
        engine: Engine,
        policy: Policy,
        path: &Path,
        options: &str,
    ) -> Result<TransactionStore, String> {
        let queues = if matches!(policy, Policy::Prepared { .. }) { "two_write_queues=true;" } else { "" };
        let options = format!("create_if_missing=true;{queues}{options}");
        match engine {
            Engine::RocksDb => open_rocks(policy, path, &options),
            Engine::KarstDb => open_karst(policy, path, &options),
        }
    }

    pub(super) fn close(self) -> Result<(), String> {
        match self {
            // SAFETY: the database is open, and unused from here on, because the store is owned.
            TransactionStore::Rocks(db) => unsafe { ffi::rocksdb_transactiondb_close(db) },
            // SAFETY: as above.
            TransactionStore::RocksOptimistic(db) => unsafe {
                ffi::rocksdb_optimistictransactiondb_close(db)
            },
            TransactionStore::Karst(db) => db.db().close().map_err(|e| e.to_string())?,
            TransactionStore::KarstOptimistic(db) => db.db().close().map_err(|e| e.to_string())?,
        }
        Ok(())
    }

    /// Returns one thread's session of transactions. With `prepare` each is prepared before it
    /// commits.
    pub(super) fn session(&self, thread: usize, durability: Durability, prepare: bool) -> Session<'_> {
        let name = format!("t{thread}");
        match self {
            TransactionStore::Karst(_) | TransactionStore::KarstOptimistic(_) => {
                Session::Karst { store: self, options: karst_write_options(durability), prepare, name }
            }
            // SAFETY: the calls only allocate; the session frees the objects.
            TransactionStore::Rocks(_) | TransactionStore::RocksOptimistic(_) => unsafe {
                Session::Rocks(RocksSession {
                    store: self,
                    options: rocks_write_options(durability),
                    read: ffi::rocksdb_readoptions_create(),
                    locking: ffi::rocksdb_transaction_options_create(),
                    optimistic: ffi::rocksdb_optimistictransaction_options_create(),
                    transaction: ptr::null_mut(),
                    prepare,
                    name,
                })
            },
        }
    }
}

fn open_rocks(policy: Policy, path: &Path, options: &str) -> Result<TransactionStore, String> {
    let options = rocks_options(options)?;
    let path = CString::new(path.to_string_lossy().into_owned()).map_err(|e| e.to_string())?;
    let mut error = ptr::null_mut();
    // SAFETY: the options and the path outlive the call, which copies them; RocksDB sets the error
    // to null or to a string of its own, and without an error the returned pointer is an open
    // database.
    unsafe {
        if policy == Policy::Optimistic {
            let db =
                ffi::rocksdb_optimistictransactiondb_open(options.as_raw_ptr(), path.as_ptr(), &mut error);
            return rocks::said(error).map(|()| TransactionStore::RocksOptimistic(db));
        }
        let transactions = ffi::rocksdb_transactiondb_options_create();
        if let Policy::Prepared { locks } = policy {
            let prepared = ffi::rocksdb_txndb_write_policy_write_prepared;
            ffi::rocksdb_transactiondb_options_set_write_policy(transactions, prepared as i32);
            ffi::rocksdb_transactiondb_options_set_skip_concurrency_control(transactions, u8::from(!locks));
        }
        let db =
            ffi::rocksdb_transactiondb_open(options.as_raw_ptr(), transactions, path.as_ptr(), &mut error);
        ffi::rocksdb_transactiondb_options_destroy(transactions);
        rocks::said(error).map(|()| TransactionStore::Rocks(db))
    }
}

fn open_karst(policy: Policy, path: &Path, options: &str) -> Result<TransactionStore, String> {
    let error = |e: karst_engine::Error| e.to_string();
    let options = karst_options(options)?;
    let mut transactions = TransactionDbOptions::default();
    match policy {
        Policy::Committed => {}
        Policy::Prepared { locks } => {
            transactions.write_policy = WritePolicy::WritePrepared;
            transactions.skip_concurrency_control = !locks;
        }
        Policy::Optimistic => {
            let transactions = OptimisticTransactionDbOptions::default();
            let db = OptimisticTransactionDb::open(path, &options, &transactions).map_err(error)?;
            return Ok(TransactionStore::KarstOptimistic(db));
        }
    }
    TransactionDb::open(path, &options, &transactions).map(TransactionStore::Karst).map_err(error)
}

impl Target for TransactionStore {
    type Writer<'a> = TransactionWriter<'a>;

    fn writer(&self, _worker: usize, durability: Durability) -> TransactionWriter<'_> {
        match self {
            TransactionStore::Karst(_) | TransactionStore::KarstOptimistic(_) => TransactionWriter::Karst {
                store: self,
                options: karst_write_options(durability),
                batch: WriteBatch::new(),
            },
            // SAFETY: the calls only allocate; the writer frees the objects.
            TransactionStore::Rocks(_) | TransactionStore::RocksOptimistic(_) => unsafe {
                TransactionWriter::Rocks {
                    store: self,
                    options: rocks_write_options(durability),
                    batch: ffi::rocksdb_writebatch_create(),
                }
            },
        }
    }
}

/// One thread's batch, which is reused.
pub(super) enum TransactionWriter<'a> {
    Rocks {
        store: &'a TransactionStore,
        options: *mut ffi::rocksdb_writeoptions_t,
        batch: *mut ffi::rocksdb_writebatch_t,
    },
    Karst {
        store: &'a TransactionStore,
        options: WriteOptions,
        batch: WriteBatch,
    },
}

impl BatchWriter for TransactionWriter<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match self {
            // SAFETY: the batch is ours; RocksDB copies both slices.
            TransactionWriter::Rocks { batch, .. } => unsafe {
                ffi::rocksdb_writebatch_put(
                    *batch,
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr().cast(),
                    value.len(),
                );
                Ok(())
            },
            TransactionWriter::Karst { batch, .. } => batch.put(key, value).map_err(|e| e.to_string()),
        }
    }

    fn commit(&mut self) -> Result<(), String> {
        match self {
            TransactionWriter::Rocks { store, options, batch } => {
                let mut error = ptr::null_mut();
                // SAFETY: database, options and batch are alive, and RocksDB sets the error to null
                // or to a string of its own.
                unsafe {
                    match store {
                        TransactionStore::Rocks(db) => {
                            ffi::rocksdb_transactiondb_write(*db, *options, *batch, &mut error);
                        }
                        TransactionStore::RocksOptimistic(db) => {
                            ffi::rocksdb_optimistictransactiondb_write(*db, *options, *batch, &mut error);
                        }
                        _ => unreachable!("the writer is RocksDB's"),
                    }
                    ffi::rocksdb_writebatch_clear(*batch);
                }
                rocks::said(error)
            }
            TransactionWriter::Karst { store, options, batch } => {
                let written = match store {
                    TransactionStore::Karst(db) => db.write(options, batch),
                    TransactionStore::KarstOptimistic(db) => db.db().write(options, &*batch),
                    _ => unreachable!("the writer is KarstDB's"),
                };
                batch.clear();
                written.map_err(|e| e.to_string())
            }
        }
    }
}

impl Drop for TransactionWriter<'_> {
    fn drop(&mut self) {
        if let TransactionWriter::Rocks { options, batch, .. } = self {
            // SAFETY: both were created with the writer, which owns them.
            unsafe {
                ffi::rocksdb_writebatch_destroy(*batch);
                ffi::rocksdb_writeoptions_destroy(*options);
            }
        }
    }
}

/// One thread's transactions, one after the other.
pub(super) enum Session<'a> {
    Rocks(RocksSession<'a>),
    Karst { store: &'a TransactionStore, options: WriteOptions, prepare: bool, name: String },
}

impl Session<'_> {
    /// Reads each key for update, writes it, and commits. Returns false if the transaction met a
    /// conflict.
    pub(super) fn update(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<bool, String> {
        match self {
            Session::Rocks(session) => session.update(keys, value).or_else(|error| {
                let met = ["Resource busy", "Operation timed out", "Operation failed. Try again"];
                if met.iter().any(|start| error.starts_with(start)) { Ok(false) } else { Err(error) }
            }),
            Session::Karst { store, options, prepare, name } => {
                karst_update(store, options, prepare.then_some(name.as_str()), keys, value).or_else(|error| {
                    let met =
                        matches!(error.kind(), ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::Deadlock);
                    if met { Ok(false) } else { Err(error.to_string()) }
                })
            }
        }
    }
}

fn karst_update(
    store: &TransactionStore,
    options: &WriteOptions,
    prepared_as: Option<&str>,
    keys: &[[u8; 16]],
    value: &[u8],
) -> karst_engine::Result<bool> {
    let read = ReadOptions::new();
    match store {
        TransactionStore::Karst(db) => {
            let mut transaction = db.begin(options, &TransactionOptions::default());
            for key in keys {
                transaction.get_for_update(&read, key)?;
                transaction.put(key, value)?;
            }
            if let Some(name) = prepared_as {
                transaction.set_name(name)?;
                transaction.prepare()?;
            }
            transaction.commit()?;
        }
        TransactionStore::KarstOptimistic(db) => {
            let mut transaction = db.begin(options, &OptimisticTransactionOptions::default());
            for key in keys {
                transaction.get_for_update(&read, key)?;
                transaction.put(key, value)?;
            }
            transaction.commit()?;
        }
        _ => unreachable!("the session is KarstDB's"),
    }
    Ok(true)
}

pub(super) struct RocksSession<'a> {
    store: &'a TransactionStore,
    options: *mut ffi::rocksdb_writeoptions_t,
    read: *mut ffi::rocksdb_readoptions_t,
    locking: *mut ffi::rocksdb_transaction_options_t,
    optimistic: *mut ffi::rocksdb_optimistictransaction_options_t,
    /// The last transaction, which is reused as in db_bench.
    transaction: *mut ffi::rocksdb_transaction_t,
    prepare: bool,
    name: String,
}

impl RocksSession<'_> {
    fn update(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<bool, String> {
        self.begin();
        let outcome = self.work(keys, value);
        if outcome.is_err() {
            let mut error = ptr::null_mut();
            // SAFETY: the transaction is alive; the error is null or RocksDB's.
            unsafe { ffi::rocksdb_transaction_rollback(self.transaction, &mut error) };
            rocks::said(error)?;
        }
        outcome.map(|()| true)
    }

    fn begin(&mut self) {
        // SAFETY: database and options are alive; the old transaction is null or ours, and is taken
        // over by the new one.
        self.transaction = unsafe {
            match self.store {
                TransactionStore::Rocks(db) => {
                    ffi::rocksdb_transaction_begin(*db, self.options, self.locking, self.transaction)
                }
                TransactionStore::RocksOptimistic(db) => ffi::rocksdb_optimistictransaction_begin(
                    *db,
                    self.options,
                    self.optimistic,
                    self.transaction,
                ),
                _ => unreachable!("the session is RocksDB's"),
            }
        };
    }

    fn work(&mut self, keys: &[[u8; 16]], value: &[u8]) -> Result<(), String> {
        for key in keys {
            let (mut error, mut length) = (ptr::null_mut(), 0);
            // SAFETY: transaction, options and key are alive; the result is null, or pinned memory
            // that is ours to release.
            unsafe {
                let found = ffi::rocksdb_transaction_get_for_update(
                    self.transaction,
                    self.read,
                    key.as_ptr().cast(),
                    key.len(),
                    &mut length,
                    1,
                    &mut error,
                );
                if !found.is_null() {
                    ffi::rocksdb_free(found.cast());
                }
            }
            rocks::said(error)?;
            self.call(|transaction, error| {
                // SAFETY: the transaction is alive; RocksDB copies both slices.
                unsafe {
                    ffi::rocksdb_transaction_put(
                        transaction,
                        key.as_ptr().cast(),
                        key.len(),
                        value.as_ptr().cast(),
                        value.len(),
                        error,
                    );
                }
            })?;
        }
        if self.prepare {
            let name = self.name.clone();
            self.call(|transaction, error| {
                // SAFETY: the transaction is alive; RocksDB copies the name.
                unsafe {
                    ffi::rocksdb_transaction_set_name(transaction, name.as_ptr().cast(), name.len(), error)
                }
            })?;
            // SAFETY: the transaction is alive.
            self.call(|transaction, error| unsafe { ffi::rocksdb_transaction_prepare(transaction, error) })?;
        }
        // SAFETY: the transaction is alive.
        self.call(|transaction, error| unsafe { ffi::rocksdb_transaction_commit(transaction, error) })
    }

    fn call(
        &self,
        work: impl FnOnce(*mut ffi::rocksdb_transaction_t, *mut *mut libc::c_char),
    ) -> Result<(), String> {
        let mut error = ptr::null_mut();
        work(self.transaction, &mut error);
        rocks::said(error)
    }
}

impl Drop for RocksSession<'_> {
    fn drop(&mut self) {
        // SAFETY: all were created with the session or by it, and the session owns them.
        unsafe {
            if !self.transaction.is_null() {
                ffi::rocksdb_transaction_destroy(self.transaction);
            }
            ffi::rocksdb_transaction_options_destroy(self.locking);
            ffi::rocksdb_optimistictransaction_options_destroy(self.optimistic);
            ffi::rocksdb_readoptions_destroy(self.read);
            ffi::rocksdb_writeoptions_destroy(self.options);
        }
    }
}
