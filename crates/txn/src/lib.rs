//! Transactions: several reads and writes that take effect atomically, isolated from other writers.
//!
//! | | |
//! |---|---|
//! | [`WriteBatchWithIndex`] | a write batch that can be read, alone or over the database |
//! | [`OptimisticTransactionDb`] | transactions without locks; a commit fails if another writer changed a key that the transaction depends on |
//! | [`TransactionDb`] | transactions that lock the keys they write or read for update, plain writes that lock too, two-phase commit |
//!
//! Every call on a transaction that may wait has two forms over one implementation: the plain form
//! may block the calling thread; the `_async` form never blocks and returns a future for any
//! executor. Opening blocks. docs/decisions/transactions.md has the guarantees and the argument.
//!
//! Loom checks the shared state of locks in every interleaving of small scenarios (`cargo xtask ci`
//! runs it):
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p karst-txn --lib
//! loom`
#![forbid(unsafe_code)]

mod batch;
mod completion;
mod holder;
mod lock;
mod optimistic;
mod pessimistic;
mod reads;
mod sync;
mod tracked;
mod undo;
mod workspace;

pub use batch::{
    BatchDbIterator, BatchEntry, BatchEntryKind, BatchEntryStream, BatchIterator, BatchParams, InBatch,
    WriteBatchWithIndex,
};
pub use holder::TransactionState;
pub use lock::{DeadlockInfo, DeadlockPath, LockStatus};
pub use optimistic::{
    OptimisticTransaction, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions,
};
pub use pessimistic::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
