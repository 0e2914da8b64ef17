//! Transactions: several reads and writes that take effect together or not at all, whoever else
//! writes meanwhile.
//!
//! | | |
//! |---|---|
//! | [`WriteBatchWithIndex`] | a write batch that can be read, alone or over the database |
//! | [`OptimisticTransactionDb`] | transactions that take no locks; whether anybody wrote what they depend on is checked when they commit |
//! | [`TransactionDb`] | transactions that lock the keys they write or read for update, and plain writes that do; two-phase commit |
//!
//! Every call on a transaction that may wait has two forms over one implementation: the plain one
//! may block the calling thread, the `_async` one never does, and returns a future for any
//! executor. Opening blocks. docs/decisions/transactions.md has the guarantees and the argument.
//!
//! What locks share is checked in every interleaving of small scenarios, with loom
//! (`cargo xtask ci` runs it):
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
