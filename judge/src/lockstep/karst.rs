//! KarstDB in lockstep.

use super::engine::{Answer, Change, Engine, Failure, Op, Opening, Outcome, Policy, Read, copy_again};
use super::follow::{self, KarstSecondary};
use super::{ingest, transfer};
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, DbIterator, ErrorKind, FlushOptions,
    OptionSet, Options, ReadOptions, Snapshot, Value, WaitForCompactOptions, WriteBatch, WriteOptions,
};
use karst_testkit::script::Write;
use karst_testkit::subject::Move;
use karst_txn::{Transaction, TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An open database and the objects created from it.
pub(super) struct Karst {
    db: Db,
    transaction_db: Option<TransactionDb>,
    /// Column families, dropped ones included.
    families: BTreeMap<usize, ColumnFamily>,
    snapshots: BTreeMap<usize, Snapshot>,
    iterators: BTreeMap<usize, DbIterator>,
    transactions: BTreeMap<usize, Transaction>,
    secondary: Option<KarstSecondary>,
    /// Directories of KarstDB and of RocksDB.
    directories: [PathBuf; 2],
}

pub(super) fn failure(error: karst_engine::Error) -> Failure {
    let kind = match error.kind() {
        ErrorKind::Corruption => "corruption",
        ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::Locked => "I/O",
        ErrorKind::InvalidArgument => "invalid argument",
        ErrorKind::NotSupported => "not supported",
        ErrorKind::NotFound => "not found",
        ErrorKind::Incomplete => "incomplete",
        ErrorKind::TimedOut => "timed out",
        ErrorKind::Busy | ErrorKind::TryAgain => "busy",
        _ => "another",
    };
    Failure { kind, text: error.to_string() }
}

fn owned(value: karst_engine::Result<Option<Value>>) -> Outcome<Option<Vec<u8>>> {
    value.map(|v| v.map(|v| v.to_vec())).map_err(failure)
}

fn options(opening: &Opening) -> Outcome<Options> {
    let mut options = Options::new()
        .ignore_options_file(opening.ignore_options_file)
        .set_all(&opening.database)
        .map_err(failure)?;
    for (_, name, lines) in &opening.families {
        options = family_options(options, name, lines);
    }
    Ok(options)
}

pub(super) fn family_options(options: Options, name: &str, lines: &str) -> Options {
    let lines = lines.to_owned();
    options.column_family(name, move |cf| {
        cf.set_all(&lines).unwrap_or_else(|e| panic!("{lines}: {e}"));
    })
}

impl Karst {
    pub(super) fn open(path: &Path, opening: &Opening) -> Outcome<Box<dyn Engine>> {
        let options = options(opening)?;
        let names: Vec<&str> = opening.families.iter().map(|(_, name, _)| name.as_str()).collect();
        let (db, transaction_db) = match opening.transactions {
            None => (Db::open_cf(path, &options, &names).map_err(failure)?, None),
            Some(policy) => {
                let write_policy = match policy {
                    Policy::WriteCommitted => WritePolicy::WriteCommitted,
                    Policy::WritePrepared => WritePolicy::WritePrepared,
                };
                let transactions = TransactionDbOptions {
                    default_lock_timeout: 1,
                    transaction_lock_timeout: 1,
                    write_policy,
                    ..TransactionDbOptions::default()
                };
                let db = TransactionDb::open_cf(path, &options, &transactions, &names).map_err(failure)?;
                (db.db().clone(), Some(db))
            }
        };
        let family = |name: &str| db.column_family(name).expect("it was opened with the database");
        let families = opening.families.iter().map(|(number, name, _)| (*number, family(name))).collect();
        let mut transactions = BTreeMap::new();
        if let Some(db) = &transaction_db {
            for (number, name) in &opening.prepared {
                transactions.insert(*number, db.get_transaction_by_name(name).map_err(failure)?);
            }
        }
        Ok(Box::new(Self {
            db,
            transaction_db,
            families,
            snapshots: BTreeMap::new(),
            iterators: BTreeMap::new(),
            transactions,
            secondary: None,
            directories: opening.directories.clone(),
        }))
    }

    fn read(&self, read: &Read) -> ReadOptions {
        ReadOptions {
            snapshot: read.snapshot.map(|number| self.snapshots[&number].clone()),
            iterate_lower_bound: read.settings.lower_bound.clone(),
            iterate_upper_bound: read.settings.upper_bound.clone(),
            prefix_same_as_start: read.settings.prefix_same_as_start,
            total_order_seek: read.total_order,
            auto_prefix_mode: read.auto_prefix,
            fill_cache: !read.no_fill,
            readahead_size: read.readahead,
            async_io: !read.no_async,
            ..ReadOptions::default()
        }
    }

    fn batch(&self, changes: &[Change]) -> karst_engine::Result<WriteBatch> {
        let mut batch = WriteBatch::new();
        for change in changes {
            let family = &self.families[&change.family()];
            match change {
                Change::Plain(Write::Put { key, value, .. }) => batch.put_cf(family, key, value),
                Change::Plain(Write::Delete { key, .. }) => batch.delete_cf(family, key),
                Change::Plain(Write::SingleDelete { key, .. }) => batch.single_delete_cf(family, key),
                Change::Plain(Write::DeleteRange { begin, end, .. }) => {
                    batch.delete_range_cf(family, begin, end)
                }
                Change::Plain(Write::Merge { key, operand, .. }) => batch.merge_cf(family, key, operand),
                Change::Entity { key, columns, .. } => {
                    let columns: Vec<(&[u8], &[u8])> =
                        columns.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                    batch.put_entity(Some(family), key, &columns)
                }
            }?;
        }
        Ok(batch)
    }

    fn write(&self, changes: &[Change], sync: bool, unlogged: bool) -> karst_engine::Result<()> {
        let batch = self.batch(changes)?;
        let options = WriteOptions { sync, disable_wal: unlogged, ..WriteOptions::default() };
        match (&self.transaction_db, &changes) {
            // Batches with ranges are written without locks, because ranges cannot be locked.
            (Some(db), _) if !changes.iter().any(is_range) => db.write(&options, &batch),
            (None, [Change::Plain(Write::Put { key, value, .. })]) => {
                self.db.put_cf(&options, &self.families[&changes[0].family()], key, value)
            }
            _ => self.db.write(&options, &batch),
        }
    }

    fn change(
        transaction: &mut Transaction,
        family: &ColumnFamily,
        change: &Change,
    ) -> karst_engine::Result<()> {
        match change {
            Change::Plain(Write::Put { key, value, .. }) => transaction.put_cf(family, key, value),
            Change::Plain(Write::Delete { key, .. }) => transaction.delete_cf(family, key),
            Change::Plain(Write::SingleDelete { key, .. }) => transaction.single_delete_cf(family, key),
            Change::Plain(Write::Merge { key, operand, .. }) => transaction.merge_cf(family, key, operand),
            Change::Plain(Write::DeleteRange { .. }) | Change::Entity { .. } => {
                unreachable!("none is drawn inside transactions")
            }
        }
    }

    fn secondary(&self) -> &KarstSecondary {
        self.secondary.as_ref().expect("it is open")
    }

    fn close_secondary(&mut self) -> Outcome<()> {
        self.secondary.take().map_or(Ok(()), KarstSecondary::close)?;
        follow::remove(&self.directories[0], follow::KARST)
    }

    fn attempt(&mut self, op: &Op) -> Outcome<Answer> {
        let done = |result: karst_engine::Result<()>| result.map(|()| Answer::Done).map_err(failure);
        match op {
            Op::Write { changes, sync, unlogged } => done(self.write(changes, *sync, *unlogged)),
            Op::Get { family, key, read } => {
                owned(self.db.get_cf(&self.read(read), &self.families[family], &**key)).map(Answer::Value)
            }
            Op::MultiGet { keys, read } => {
                let (read, first) = (self.read(read), keys[0].0);
                let found = if keys.iter().all(|(family, _)| *family == first) {
                    let keys: Vec<&[u8]> = keys.iter().map(|(_, key)| &key[..]).collect();
                    self.db.multi_get_cf(&read, &self.families[&first], &keys)
                } else {
                    let families: Vec<&ColumnFamily> =
                        keys.iter().map(|(family, _)| &self.families[family]).collect();
                    let keys: Vec<&[u8]> = keys.iter().map(|(_, key)| &key[..]).collect();
                    self.db.multi_get_cfs(&read, &families, &keys)
                };
                found.into_iter().map(owned).collect::<Outcome<_>>().map(Answer::Values)
            }
            Op::MayExist { family, key, read } => {
                let may = self.db.key_may_exist_cf(&self.read(read), &self.families[family], &**key);
                may.map(|(may, value)| Answer::May(may, value.map(|v| v.to_vec()))).map_err(failure)
            }
            Op::OpenIterator { number, family, read } => {
                let iterator = self.db.iter_cf(&self.read(read), &self.families[family]).map_err(failure)?;
                self.iterators.insert(*number, iterator);
                Ok(Answer::Done)
            }
            Op::Walk { number, moves } => {
                let iterator = self.iterators.get_mut(number).expect("it is open");
                let mut walked = Vec::new();
                for step in &moves.0 {
                    match step {
                        Move::First => iterator.seek_to_first(),
                        Move::Last => iterator.seek_to_last(),
                        Move::Seek(key) => iterator.seek(key),
                        Move::SeekForPrev(key) => iterator.seek_for_prev(key),
                        Move::Next if iterator.valid() => iterator.next(),
                        Move::Prev if iterator.valid() => iterator.prev(),
                        // The iterator is not valid although the model's is, and the answer shows
                        // that.
                        Move::Next | Move::Prev => Ok(()),
                    }
                    .map_err(failure)?;
                    let at = iterator.valid().then(|| (iterator.key().to_vec(), iterator.value().to_vec()));
                    walked.push(at);
                }
                Ok(Answer::Walked(walked))
            }
            Op::CloseIterator { number } => {
                self.iterators.remove(number);
                Ok(Answer::Done)
            }
            Op::Snapshot { number } => {
                self.snapshots.insert(*number, self.db.snapshot());
                Ok(Answer::Done)
            }
            Op::Release { number } => {
                self.snapshots.remove(number);
                Ok(Answer::Done)
            }
            Op::CreateFamily { number, name, options } => {
                let options = family_options(Options::new(), name, options);
                let family = self.db.create_column_family(name, &options).map_err(failure)?;
                self.families.insert(*number, family);
                Ok(Answer::Done)
            }
            Op::DropFamily { number } => done(self.db.drop_column_family(&self.families[number])),
            Op::Flush { families } => {
                let families: Vec<&ColumnFamily> = families.iter().map(|f| &self.families[f]).collect();
                done(self.db.flush_cfs(&FlushOptions::default(), &families))
            }
            Op::Compact { family, begin, end, force, exclusive } => {
                let mut options =
                    CompactRangeOptions { exclusive_manual_compaction: *exclusive, ..Default::default() };
                if *force {
                    options.bottommost_level_compaction = BottommostLevelCompaction::Force;
                }
                let family = &self.families[family];
                done(self.db.compact_range_cf(&options, family, begin.as_deref(), end.as_deref()))
            }
            Op::SetOptions { family, name, value } => {
                done(self.db.set_options(&self.families[family], &[(name, value)]))
            }
            Op::FlushWal { sync } => done(self.db.flush_wal(*sync)),
            Op::OpenSecondary { swapped, families } => {
                let primary = &self.directories[usize::from(*swapped)];
                self.secondary = Some(KarstSecondary::open(primary, families)?);
                Ok(Answer::Done)
            }
            Op::CatchUp => self.secondary().catch_up().map(|()| Answer::Done),
            Op::ReadSecondary { family, keys } => self.secondary().read(*family, keys),
            Op::CloseSecondary => self.close_secondary().map(|()| Answer::Done),
            Op::Export { family, number } => {
                let family = &self.families[family];
                transfer::export_karst(&self.db, family, &self.directories[0], *number).map(|()| Answer::Done)
            }
            Op::Import { export, number, name, options, of_rocksdb, .. } => {
                let from = &self.directories[usize::from(*of_rocksdb)];
                let family = transfer::import_karst(&self.db, (name, options), from, *export)?;
                self.families.insert(*number, family);
                Ok(Answer::Done)
            }
            Op::WriteFile { number, options, entries, .. } => {
                let file = ingest::path(&self.directories[0], *number);
                ingest::write_karst(options, &file, entries).map(|()| Answer::Done)
            }
            Op::Ingest { family, number, ways, swapped, .. } => {
                let file = ingest::path(&self.directories[usize::from(*swapped)], *number);
                let family = &self.families[family];
                ingest::ingest_karst(&self.db, family, &file, *ways).map(|()| Answer::Done)
            }
            Op::Settle => done(self.db.wait_for_compact(&WaitForCompactOptions::default())),
            Op::Property { family, name } => {
                Ok(Answer::Number(self.db.int_property_cf(&self.families[family], name)))
            }
            Op::Begin { number, name, snapshot } => {
                let options = TransactionOptions { set_snapshot: *snapshot, ..TransactionOptions::default() };
                let db = self.transaction_db.as_ref().expect("it has transactions");
                let mut transaction = db.begin(&WriteOptions::new(), &options);
                transaction.set_name(name).map_err(failure)?;
                self.transactions.insert(*number, transaction);
                Ok(Answer::Done)
            }
            Op::Change { transaction, change } => {
                let transaction = self.transactions.get_mut(transaction).expect("it is there");
                done(Self::change(transaction, &self.families[&change.family()], change))
            }
            Op::GetInside { transaction, family, key, for_update } => {
                let transaction = self.transactions.get_mut(transaction).expect("it is there");
                let (family, read) = (&self.families[family], ReadOptions::default());
                let found = if *for_update {
                    transaction.get_for_update_cf(&read, family, &**key, true, true)
                } else {
                    transaction.get_cf(&read, family, &**key)
                };
                owned(found).map(Answer::Value)
            }
            Op::SavePoint { transaction } => {
                done(self.transactions.get_mut(transaction).expect("it is there").set_save_point())
            }
            Op::RollbackToSavePoint { transaction } => {
                done(self.transactions.get_mut(transaction).expect("it is there").rollback_to_save_point())
            }
            Op::Prepare { transaction } => {
                done(self.transactions.get_mut(transaction).expect("it is there").prepare())
            }
            Op::Commit { transaction } => {
                done(self.transactions.remove(transaction).expect("it is there").commit())
            }
            Op::Rollback { transaction } => {
                done(self.transactions.remove(transaction).expect("it is there").rollback())
            }
        }
    }
}

pub(super) fn is_range(change: &Change) -> bool {
    matches!(change, Change::Plain(Write::DeleteRange { .. }))
}

impl Engine for Karst {
    fn apply(&mut self, op: &Op) -> Answer {
        self.attempt(op).into()
    }

    fn prepared(&self) -> Vec<String> {
        let names = self.transaction_db.iter().flat_map(TransactionDb::get_all_prepared_transactions);
        let mut names: Vec<String> = names.map(|n| String::from_utf8_lossy(&n).into_owned()).collect();
        names.sort();
        names
    }

    fn copy_as_killed(&mut self, from: &Path, to: &Path) -> Result<(), String> {
        self.db.pause_background_work().map_err(|e| e.to_string())?;
        copy_again(from, to)?;
        self.db.continue_background_work().map_err(|e| e.to_string())
    }

    fn close(mut self: Box<Self>) -> Outcome<()> {
        self.close_secondary()?;
        // Prepared transactions stay prepared; others are rolled back.
        self.transactions.clear();
        self.iterators.clear();
        self.snapshots.clear();
        self.families.clear();
        self.transaction_db = None;
        self.db.close().map_err(failure)
    }
}
