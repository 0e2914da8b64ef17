//! The calls of a lane to the open database: blocking for a lane that has a thread, asynchronous
//! for one that is a future among many.
//!
//! In: a request, with column families by number. Out: copies of what was found. The future of a
//! lane with a thread is ready at its first poll, because its calls block ([`run_blocking`]).

use super::options::FrontKind;
use super::plan::{Account, Change};
use super::rows::{Place, Shape, account};
use super::wrong::Wrong;
use crate::bench::Front;
use karst_engine::{
    ColumnFamily, CompactFilesOptions, CompactRangeOptions, Db, DbIterator, Error, ErrorKind, FlushOptions,
    IngestExternalFileArg, IngestExternalFileOptions, Options, ReadOptions, Result, SstFileWriter,
    WriteBatch, WriteOptions,
};
use karstdb::{
    OptimisticTransaction, OptimisticTransactionDb, OptimisticTransactionDbOptions,
    OptimisticTransactionOptions, Transaction, TransactionDb, TransactionDbOptions, TransactionOptions,
    WritePolicy,
};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Key and value of an entry that was found.
pub(crate) type Found = (Vec<u8>, Vec<u8>);

/// Makes a call in the lane's form, blocking or asynchronous.
macro_rules! call {
    ($calls:expr, $blocking:expr, $asynchronous:expr) => {
        if $calls.asynchronous { $asynchronous.await } else { $blocking }
    };
}

/// The database, open for writing.
pub(crate) struct Store {
    pub(crate) front: Front,
    pub(crate) families: Vec<ColumnFamily>,
}

/// Returns a column family that must exist.
pub(crate) fn family_named(db: &Db, name: &str) -> Result<ColumnFamily, Wrong> {
    let lost = || Wrong::Mismatch(format!("of column family {name}: expected to be there, it is not"));
    db.column_family(name).ok_or_else(lost)
}

impl Store {
    /// Opens the database with all families that it has, and creates those of `names` and `more`
    /// that are missing. `families` of the result are those of `names`.
    pub(crate) fn open(
        path: &Path,
        options: &Options,
        kind: FrontKind,
        names: &[String],
        more: &[&str],
    ) -> Result<Store> {
        let mut all: Vec<String> = names.to_vec();
        all.extend(more.iter().map(ToString::to_string));
        // An error is ignored because there may be no database yet.
        let present = Db::list_column_families(path, options).unwrap_or_default();
        let others: Vec<String> = present.into_iter().filter(|name| !all.contains(name)).collect();
        all.extend(others);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let front = match kind {
            FrontKind::Plain => Front::Plain(Db::open_cf(path, options, &all)?),
            FrontKind::Optimistic => {
                let transactions = OptimisticTransactionDbOptions::default();
                Front::Optimistic(OptimisticTransactionDb::open_cf(path, options, &transactions, &all)?)
            }
            FrontKind::Locking | FrontKind::WritePrepared => {
                let write_policy = match kind {
                    FrontKind::WritePrepared => WritePolicy::WritePrepared,
                    _ => WritePolicy::WriteCommitted,
                };
                let transactions = TransactionDbOptions { write_policy, ..TransactionDbOptions::default() };
                Front::Locking(TransactionDb::open_cf(path, options, &transactions, &all)?)
            }
        };
        let family = |name: &String| {
            let missing = || Error::new(ErrorKind::NotFound, format!("column family {name} is not there"));
            front.db().column_family(name).ok_or_else(missing)
        };
        let families = names.iter().map(family).collect::<Result<_>>()?;
        Ok(Store { front, families })
    }

    pub(crate) fn db(&self) -> &Db {
        self.front.db()
    }
}

/// Returns true for the conflicts with other transactions that make a transaction give up.
pub(crate) fn met_another(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::Deadlock | ErrorKind::Expired)
}

/// Runs a lane that makes blocking calls.
pub(crate) fn run_blocking<F: Future>(lane: F) -> F::Output {
    match pin!(lane).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a call that blocks has returned"),
    }
}

/// Calls in blocking or asynchronous form.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) store: Arc<Store>,
    pub(crate) asynchronous: bool,
}

impl Calls {
    fn db(&self) -> &Db {
        self.store.db()
    }

    fn family(&self, family: usize) -> &ColumnFamily {
        &self.store.families[family]
    }

    pub(crate) async fn get(&self, o: &ReadOptions, family: usize, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (db, family) = (self.db(), self.family(family));
        let value = call!(self, db.get_cf(o, family, key), db.get_cf_async(o, family, key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    pub(crate) async fn multi_get<K: AsRef<[u8]> + Sync>(
        &self,
        o: &ReadOptions,
        family: usize,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let (db, family) = (self.db(), self.family(family));
        let found = call!(self, db.multi_get_cf(o, family, keys), db.multi_get_cf_async(o, family, keys));
        found.into_iter().map(|value| Ok(value?.map(|value| value.to_vec()))).collect()
    }

    /// Returns all entries from `first` to `last`, both included, in the order of the walk.
    pub(crate) async fn walk(
        &self,
        o: &ReadOptions,
        family: usize,
        first: &[u8],
        last: &[u8],
        backward: bool,
    ) -> Result<Vec<Found>> {
        let mut iter: DbIterator = self.db().iter_cf(o, self.family(family))?;
        let bounded = o.iterate_upper_bound.is_some();
        match (backward, bounded) {
            (false, true) => call!(self, iter.seek_to_first(), iter.seek_to_first_async())?,
            (false, false) => call!(self, iter.seek(first), iter.seek_async(first))?,
            (true, true) => call!(self, iter.seek_to_last(), iter.seek_to_last_async())?,
            (true, false) => call!(self, iter.seek_for_prev(last), iter.seek_for_prev_async(last))?,
        }
        let mut found = Vec::new();
        while iter.valid() && (first..=last).contains(&iter.key()) {
            found.push((iter.key().to_vec(), iter.value().to_vec()));
            match backward {
                false => call!(self, iter.next(), iter.next_async())?,
                true => call!(self, iter.prev(), iter.prev_async())?,
            }
        }
        if bounded && iter.valid() {
            // An entry beyond the bound is a mismatch, and is reported as an unexpected entry.
            found.push((iter.key().to_vec(), iter.value().to_vec()));
        }
        Ok(found)
    }

    pub(crate) async fn write(&self, o: &WriteOptions, batch: WriteBatch) -> Result<()> {
        match &self.store.front {
            Front::Locking(db) => call!(self, db.write(o, &batch), db.write_async(o, batch)),
            front => call!(self, front.write(o, &batch), front.db().write_async(o, &batch)),
        }
    }

    /// Writes one entry by its single call. Returns `None` for a range, and for a database that
    /// locks, because the call would bypass the locks.
    pub(crate) async fn write_one(
        &self,
        o: &WriteOptions,
        shape: &Shape,
        change: &Change,
    ) -> Option<Result<()>> {
        if matches!(self.store.front, Front::Locking(_)) {
            return None;
        }
        let db = self.db();
        let of = |place: &Place| (self.family(place.family), shape.key(place.lane, place.row));
        Some(match change {
            Change::Put(place, next) => {
                let ((family, key), value) = (of(place), shape.text(*place, *next).unwrap_or_default());
                call!(self, db.put_cf(o, family, key, value), db.put_cf_async(o, family, &key, &value))
            }
            Change::Delete(place, _) => {
                let (family, key) = of(place);
                call!(self, db.delete_cf(o, family, key), db.delete_cf_async(o, family, &key))
            }
            Change::SingleDelete(place) => {
                let (family, key) = of(place);
                call!(self, db.single_delete_cf(o, family, key), db.single_delete_cf_async(o, family, &key))
            }
            Change::Merge(place, _, operand) => {
                let (family, key) = of(place);
                call!(self, db.merge_cf(o, family, key, operand), db.merge_cf_async(o, family, &key, operand))
            }
            Change::DeleteRange(_) => return None,
        })
    }

    /// Adds a change to a batch. With `ranges`, a range is one range deletion rather than one
    /// deletion a key.
    pub(crate) fn add(
        &self,
        batch: &mut WriteBatch,
        shape: &Shape,
        change: &Change,
        ranges: bool,
    ) -> Result<()> {
        let of = |place: &Place| (self.family(place.family), shape.key(place.lane, place.row));
        match change {
            Change::Put(place, next) => {
                let (family, key) = of(place);
                batch.put_cf(family, key, shape.text(*place, *next).unwrap_or_default())
            }
            Change::Delete(place, _) => {
                let (family, key) = of(place);
                batch.delete_cf(family, key)
            }
            Change::SingleDelete(place) => {
                let (family, key) = of(place);
                batch.single_delete_cf(family, key)
            }
            Change::Merge(place, _, operand) => {
                let (family, key) = of(place);
                batch.merge_cf(family, key, operand)
            }
            Change::DeleteRange(places) if ranges => {
                let (first, last) =
                    (places.first().expect("a range has rows"), places.last().expect("it has"));
                let (family, begin) = of(first);
                // The least key after the last.
                let end = [&of(last).1[..], &[0]].concat();
                batch.delete_range_cf(family, begin, end)
            }
            Change::DeleteRange(places) => places.iter().try_for_each(|place| {
                let (family, key) = of(place);
                batch.delete_cf(family, key)
            }),
        }
    }

    /// Makes the changes by files that are written in `folder` and ingested all at once. A file of
    /// a family takes changes until a key repeats; a range deletion has a file of its own.
    pub(crate) async fn ingest(
        &self,
        shape: &Shape,
        changes: &[Change],
        folder: &Path,
        move_files: bool,
    ) -> Result<()> {
        // An error is ignored because the next write there reports it.
        let _ = std::fs::create_dir_all(folder);
        let mut args = Vec::new();
        for (number, family) in self.store.families.iter().enumerate() {
            let mut files: Vec<BTreeMap<Vec<u8>, &Change>> = Vec::new();
            let of_family = |change: &&Change| change.states()[0].0.family == number;
            for change in changes.iter().filter(of_family) {
                let place = change.states()[0].0;
                let key = shape.key(place.lane, place.row).to_vec();
                let is_range = |change: &Change| matches!(change, Change::DeleteRange(_));
                let fits = |file: &&mut BTreeMap<Vec<u8>, &Change>| {
                    !is_range(change)
                        && !file.contains_key(&key)
                        && !file.values().any(|other| is_range(other))
                };
                match files.last_mut().filter(fits) {
                    Some(file) => drop(file.insert(key, change)),
                    None => files.push(BTreeMap::from([(key, change)])),
                }
            }
            let mut paths = Vec::new();
            for (at, file) in files.iter().enumerate() {
                let path = folder.join(format!("{number}-{at}.sst"));
                let mut writer = SstFileWriter::for_column_family(&Options::new(), family)?;
                writer.open(&path)?;
                for (key, change) in file {
                    match change {
                        Change::Put(place, next) => {
                            writer.put(key, shape.text(*place, *next).unwrap_or_default())?;
                        }
                        Change::Merge(_, _, operand) => writer.merge(key, operand)?,
                        Change::Delete(..) | Change::SingleDelete(_) => writer.delete(key)?,
                        Change::DeleteRange(places) => {
                            let last = places.last().expect("a range has rows");
                            let end = [&shape.key(last.lane, last.row)[..], &[0]].concat();
                            writer.delete_range(key, end)?;
                        }
                    }
                }
                call!(self, writer.finish(), writer.finish_async())?;
                paths.push(path);
            }
            let options = IngestExternalFileOptions { move_files, ..Default::default() };
            if !paths.is_empty() {
                args.push(IngestExternalFileArg::new(family, paths, options));
            }
        }
        call!(self, self.db().ingest_external_files(&args), self.db().ingest_external_files_async(&args))
    }

    /// Adds the merge that adds to an account.
    pub(crate) fn add_to_account(&self, batch: &mut WriteBatch, at: Account, amount: u64) -> Result<()> {
        batch.merge_cf(self.family(at.family), account(at.number), amount.to_le_bytes())
    }

    pub(crate) async fn flush(&self, families: &[usize]) -> Result<()> {
        let (db, o) = (self.db(), FlushOptions::default());
        let families: Vec<&ColumnFamily> = families.iter().map(|family| self.family(*family)).collect();
        call!(self, db.flush_cfs(&o, &families), db.flush_cfs_async(&o, &families))
    }

    pub(crate) async fn flush_wal(&self, sync: bool) -> Result<()> {
        call!(self, self.db().flush_wal(sync), self.db().flush_wal_async(sync))
    }

    pub(crate) async fn compact_range(&self, family: usize, begin: &[u8], end: &[u8]) -> Result<()> {
        let (db, o, family) = (self.db(), CompactRangeOptions::default(), self.family(family));
        call!(
            self,
            db.compact_range_cf(&o, family, Some(begin), Some(end)),
            db.compact_range_cf_async(&o, family, Some(begin), Some(end))
        )
    }

    pub(crate) async fn compact_files(&self, family: usize, files: &[u64], level: usize) -> Result<()> {
        let (db, o, family) = (self.db(), CompactFilesOptions::default(), self.family(family));
        call!(
            self,
            db.compact_files(&o, family, files, level),
            db.compact_files_async(&o, family, files, level)
        )
        .map(drop)
    }

    /// Begins a transaction; returns `None` if the database has none.
    pub(crate) fn begin(
        &self,
        o: &WriteOptions,
        timeout_ms: i64,
        deadlock_detect: bool,
        snapshot: bool,
    ) -> Option<Txn> {
        match &self.store.front {
            Front::Plain(_) => None,
            Front::Optimistic(db) => {
                let options = OptimisticTransactionOptions { set_snapshot: snapshot };
                Some(Txn::Optimistic(Box::new(db.begin(o, &options))))
            }
            Front::Locking(db) => {
                let options = TransactionOptions {
                    set_snapshot: snapshot,
                    lock_timeout: timeout_ms,
                    deadlock_detect,
                    ..TransactionOptions::default()
                };
                Some(Txn::Locking(db.begin(o, &options)))
            }
        }
    }
}

/// A transaction of either kind.
pub(crate) enum Txn {
    Optimistic(Box<OptimisticTransaction>),
    Locking(Transaction),
}

/// Makes a call that both kinds of transaction have in both forms.
macro_rules! in_both {
    ($calls:expr, $txn:expr, $t:ident => $blocking:expr, $asynchronous:expr) => {
        match $txn {
            Txn::Optimistic($t) => call!($calls, $blocking, $asynchronous),
            Txn::Locking($t) => call!($calls, $blocking, $asynchronous),
        }
    };
}

/// Makes a call that is asynchronous only in a pessimistic transaction; an optimistic one does not
/// wait in it.
macro_rules! in_locking {
    ($calls:expr, $txn:expr, $t:ident => $blocking:expr, $asynchronous:expr) => {
        match $txn {
            Txn::Optimistic($t) => $blocking,
            Txn::Locking($t) => call!($calls, $blocking, $asynchronous),
        }
    };
}

impl Txn {
    pub(crate) async fn change(&mut self, calls: &Calls, shape: &Shape, change: &Change) -> Result<()> {
        let of = |place: &Place| (calls.family(place.family).clone(), shape.key(place.lane, place.row));
        match change {
            Change::Put(place, next) => {
                let ((f, key), value) = (of(place), shape.text(*place, *next).unwrap_or_default());
                in_locking!(calls, self, t => t.put_cf(&f, key, &value), t.put_cf_async(&f, &key, &value))
            }
            Change::Delete(place, _) => {
                let (f, key) = of(place);
                in_locking!(calls, self, t => t.delete_cf(&f, key), t.delete_cf_async(&f, &key))
            }
            Change::SingleDelete(place) => {
                let (f, key) = of(place);
                in_locking!(calls, self, t => t.single_delete_cf(&f, key), t.single_delete_cf_async(&f, &key))
            }
            Change::Merge(place, _, operand) => {
                let (f, key) = of(place);
                in_locking!(calls, self, t => t.merge_cf(&f, key, operand), t.merge_cf_async(&f, &key, operand))
            }
            Change::DeleteRange(_) => Err(Error::not_supported("transactions delete no ranges")),
        }
    }

    /// Sets a key to a value that no row holds, before a rollback to a save point.
    pub(crate) async fn put_nonsense(&mut self, calls: &Calls, shape: &Shape, place: Place) -> Result<()> {
        let (f, key) = (calls.family(place.family).clone(), shape.key(place.lane, place.row));
        in_locking!(calls, self, t => t.put_cf(&f, key, b"nonsense"), t.put_cf_async(&f, &key, b"nonsense"))
    }

    pub(crate) fn set_save_point(&mut self) -> Result<()> {
        match self {
            Txn::Optimistic(t) => t.set_save_point(),
            Txn::Locking(t) => t.set_save_point(),
        }
    }

    pub(crate) fn rollback_to_save_point(&mut self) -> Result<()> {
        match self {
            Txn::Optimistic(t) => t.rollback_to_save_point(),
            Txn::Locking(t) => t.rollback_to_save_point(),
        }
    }

    /// Returns the row's value as the transaction sees it.
    pub(crate) async fn get(
        &mut self,
        calls: &Calls,
        shape: &Shape,
        place: Place,
    ) -> Result<Option<Vec<u8>>> {
        let (f, key, o) =
            (calls.family(place.family).clone(), shape.key(place.lane, place.row), ReadOptions::default());
        let value = in_both!(calls, self, t => t.get_cf(&o, &f, key), t.get_cf_async(&o, &f, &key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Adds to an account by reading it for update and putting the sum.
    pub(crate) async fn add_to_account(&mut self, calls: &Calls, at: Account, amount: u64) -> Result<()> {
        let (f, key, o) = (calls.family(at.family).clone(), account(at.number), ReadOptions::default());
        let found = match self {
            Txn::Optimistic(t) => {
                call!(calls, t.get_for_update_cf(&o, &f, &key), t.get_for_update_cf_async(&o, &f, &key))
            }
            Txn::Locking(t) => call!(
                calls,
                t.get_for_update_cf(&o, &f, &key, true, true),
                t.get_for_update_cf_async(&o, &f, &key, true, true)
            ),
        }?;
        let before = found.map_or(0, |value| number_of(&value));
        let after = before.wrapping_add(amount).to_le_bytes();
        in_locking!(calls, self, t => t.put_cf(&f, &key, after), t.put_cf_async(&f, &key, &after))
    }

    pub(crate) fn set_name(&mut self, name: &str) -> Result<()> {
        match self {
            Txn::Optimistic(_) => Err(Error::not_supported("optimistic transactions have no names")),
            Txn::Locking(t) => t.set_name(name),
        }
    }

    pub(crate) async fn prepare(&mut self, calls: &Calls) -> Result<()> {
        match self {
            Txn::Optimistic(_) => Err(Error::not_supported("optimistic transactions have one phase")),
            Txn::Locking(t) => call!(calls, t.prepare(), t.prepare_async()),
        }
    }

    pub(crate) async fn commit(&mut self, calls: &Calls) -> Result<()> {
        in_both!(calls, self, t => t.commit(), t.commit_async())
    }

    pub(crate) async fn rollback(&mut self, calls: &Calls) -> Result<()> {
        in_locking!(calls, self, t => t.rollback(), t.rollback_async())
    }
}

/// Decodes a counter; a value of another length counts as 0, and the sum shows it.
pub(crate) fn number_of(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_le_bytes)
}
