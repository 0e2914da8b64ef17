//! Asynchronous gets, writes and commits.

use super::op::{Found, Op};
use super::reactor::Runner;
use super::start::{Notify, start};
use super::status::Verdict;
use crate::batch::Batch;
use crate::boundary::*;
use crate::call_options::{Read, Write, reading};
use crate::db::{families_of, writing};
use crate::family::{Family, family_or_default};
use crate::handle::Database;
use crate::transaction::{Kind, TransactionHandle, committing, ready};
use karstdb::{ColumnFamily, Db, ReadOptions};
use libc::c_char;
use std::future::Future;
use std::sync::Mutex;

type Outcome = karstdb::Result<Found>;

unsafe fn get(
    db: *const Database,
    options: *const Read,
    family: *const Family,
    key: &[u8],
) -> karstdb::Result<impl Future<Output = Outcome> + Send + use<>> {
    let db = unsafe { without_ttl(db)? }.clone();
    let (options, family) = unsafe { (reading(options), family_or_default(&db, family).clone()) };
    let key = key.to_vec();
    Ok(async move { db.get_cf_async(&options, &family, &key).await.map(Found::Value) })
}

async fn multi_get(db: Db, options: ReadOptions, families: Families, keys: Vec<Vec<u8>>) -> Outcome {
    let found = match &families {
        Families::One(family) => db.multi_get_cf_async(&options, family, &keys).await,
        Families::Each(families) => {
            let families: Vec<_> = families.iter().collect();
            db.multi_get_cfs_async(&options, &families, &keys).await
        }
    };
    let answers = found.into_iter().map(|answer| match answer {
        Ok(value) => (Verdict::OK, value),
        Err(error) => (Verdict::of(&error), None),
    });
    Ok(Found::Many(answers.collect()))
}

enum Families {
    One(ColumnFamily),
    Each(Vec<ColumnFamily>),
}

/// Returns the database of a handle; fails for one opened with a TTL, whose stored values have a
/// time behind them.
pub(super) unsafe fn without_ttl<'a>(db: *const Database) -> karstdb::Result<&'a Db> {
    let db = unsafe { of(db)? };
    if db.ttl.is_some() {
        return Err(not_supported("an asynchronous call on a database that was opened with a TTL"));
    }
    Ok(&db.db)
}

async fn commit(mut inner: Kind, handle: TransactionHandle) -> Outcome {
    let outcome = match &mut inner {
        Kind::Locking(transaction) => transaction.commit_async().await,
        Kind::Optimistic(transaction) => transaction.commit_async().await,
        Kind::Committing => Err(committing()),
    };
    Ok(match outcome {
        Ok(()) => Found::Nothing,
        Err(error) => Found::NotCommitted(error, Mutex::new(Some(handle.holding(inner)))),
    })
}

capi! {
    /// rocksdb_get_cf: the completion's value is the key's, or null if the key is absent. `cf` may
    /// be null for the default column family, and `options` for the defaults.
    call karst_get_async(reactor: *const Runner, db: *const Database, options: *const Read, cf: *const Family, key: *const c_char, key_length: usize, notify: *const Notify) -> *const Op {
        start(reactor, notify, || get(db, options, cf, bytes(key, key_length)))
    }
    /// rocksdb_multi_get_cf: the completion has the number of keys, and karst_op_result the answer
    /// for each. `cfs` is a column family for each key, or null for the default one.
    call karst_multi_get_async(reactor: *const Runner, db: *const Database, options: *const Read, cfs: *const *const Family, count: usize, keys: *const *const c_char, key_lengths: *const usize, notify: *const Notify) -> *const Op {
        start(reactor, notify, || {
            let db = without_ttl(db)?;
            let families = match cfs.is_null() {
                true => Families::One(db.default_column_family().clone()),
                false => Families::Each(families_of(cfs, count)?),
            };
            let keys: Vec<_> = byte_lists(keys, key_lengths, count).into_iter().map(<[u8]>::to_vec).collect();
            if keys.len() < count { return Err(invalid("an array of keys is null")) }
            Ok(multi_get(db.clone(), reading(options), families, keys))
        })
    }
    /// rocksdb_write. The operations move out of the batch, which is empty when the call returns
    /// and can be used again.
    call karst_write_async(reactor: *const Runner, db: *const Database, options: *const Write, batch: *mut Batch, notify: *const Notify) -> *const Op {
        start(reactor, notify, || {
            let (plain, locking, options) = (without_ttl(db)?.clone(), of(db)?.locking.clone(), writing(options));
            let batch = std::mem::take(&mut of_mut(batch)?.batch);
            Ok(async move {
                match locking {
                    Some(db) => db.write_async(&options, batch).await?,
                    None => plain.write_async(&options, &batch).await?,
                }
                Ok(Found::Nothing)
            })
        })
    }
    /// rocksdb_transaction_commit. The transaction moves into the operation; its handle refuses all
    /// calls from then on and can be destroyed at any time. If the commit fails,
    /// karst_op_take_transaction returns the transaction; one that is not taken is rolled back by
    /// the operation's release. A cancelled commit was applied as a whole or not at all, and its
    /// transaction is gone.
    call karst_transaction_commit_async(reactor: *const Runner, transaction: *mut TransactionHandle, notify: *const Notify) -> *const Op {
        start(reactor, notify, || {
            let handle = ready(transaction)?;
            match std::mem::replace(&mut handle.inner, Kind::Committing) {
                Kind::Committing => Err(committing()),
                inner => Ok(commit(inner, handle.same())),
            }
        })
    }
}
