//! Target of a workload's writes: the database itself, or one with transactions on top.
//!
//! Input: `--transaction_db`, `--optimistic_transaction_db` and the options. Output: a [`Front`].
//! The choices that db_bench makes silently are made here and printed to stderr.

use super::flags::Flags;
use crate::output::note;
use karst_engine::{Db, Options, Result, WriteBatch, WriteOptions};
use karstdb::{
    OptimisticTransactionDb, OptimisticTransactionDbOptions, TransactionDb, TransactionDbOptions, WritePolicy,
};
use std::path::Path;

/// Target of writes.
#[derive(Clone)]
pub(crate) enum Front {
    Plain(Db),
    /// Plain writes lock their keys.
    Locking(TransactionDb),
    /// Plain writes are the database's own; transactions see them.
    Optimistic(OptimisticTransactionDb),
}

/// Kind of database that the flags select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DbKind {
    Plain,
    Locking,
    Optimistic,
}

impl DbKind {
    pub(crate) fn of(flags: &Flags) -> DbKind {
        match (flags.optimistic_transaction_db, flags.transaction_db) {
            (true, _) => DbKind::Optimistic,
            (false, true) => DbKind::Locking,
            (false, false) => DbKind::Plain,
        }
    }
}

/// Returns true if these options make db_bench choose WritePrepared.
pub(crate) fn write_prepared(kind: DbKind, options: &[(String, String)]) -> bool {
    let last = options.iter().rev().find(|(name, _)| name == "unordered_write");
    kind == DbKind::Locking && last.is_some_and(|(_, value)| value == "true")
}

/// Prints the effects of the transaction flags that are not obvious.
pub(crate) fn say_choices(flags: &Flags) {
    if flags.optimistic_transaction_db && flags.transaction_db {
        note!(
            "karstdb bench: flag --transaction_db has no effect beside --optimistic_transaction_db, as in db_bench"
        );
    }
    if write_prepared(DbKind::of(flags), &flags.options) {
        note!(
            "karstdb bench: --transaction_db with --unordered_write chooses, as db_bench does without a word: write_policy=WritePrepared, two_write_queues=true, skip_concurrency_control=true"
        );
    }
}

impl Front {
    /// Opens the database for writing. `write_prepared` is the result of [`write_prepared`].
    pub(crate) fn open(kind: DbKind, path: &Path, options: &Options, write_prepared: bool) -> Result<Front> {
        let mut transactions = TransactionDbOptions::default();
        if write_prepared {
            transactions.write_policy = WritePolicy::WritePrepared;
            transactions.skip_concurrency_control = true;
        }
        Ok(match kind {
            DbKind::Plain => Front::Plain(Db::open(path, options)?),
            DbKind::Locking => Front::Locking(TransactionDb::open(path, options, &transactions)?),
            DbKind::Optimistic => {
                let transactions = OptimisticTransactionDbOptions::default();
                Front::Optimistic(OptimisticTransactionDb::open(path, options, &transactions)?)
            }
        })
    }

    /// Returns the underlying database, for all operations other than writes.
    pub(crate) fn db(&self) -> &Db {
        match self {
            Front::Plain(db) => db,
            Front::Locking(db) => db.db(),
            Front::Optimistic(db) => db.db(),
        }
    }

    /// Writes a batch.
    pub(crate) fn write(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        match self {
            Front::Plain(db) => db.write(options, batch),
            Front::Locking(db) => db.write(options, batch),
            Front::Optimistic(db) => db.write(options, batch),
        }
    }
}
