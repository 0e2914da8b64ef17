//! The sequence number that a read takes when it begins, and the wait until it is readable.
//!
//! In: read options. Out: a sequence number with the ranges below it that are ignored, and whether
//! all entries up to it are in the memtables. They always are unless `unordered_write` is set and a
//! write is being inserted; then the blocking calls wait on the calling thread and the asynchronous
//! ones as futures.
//!
//! Invariants:
//! - A read pins the superversion, then takes the sequence number, then waits for it, and reads
//!   the pinned superversion at that number. It does not pin anew after the wait, because a job may
//!   have dropped entries meanwhile that are visible at the number.
//! - The pinned superversion has everything up to the number. If the memtables were exchanged
//!   between the two steps, both are repeated. Otherwise the read would end at the exchange, while
//!   decisions behind it about prepared transactions would count already: a rolled back transaction
//!   would be visible, without the values that its rollback restored.

use super::Db;
use crate::read::Gate;
use karst_base::error::{Error, Result};
use karst_base::options::ReadOptions;
use karst_base::snapshot::{ReadAt, pin_with_all};
use karst_base::sync::Guard;
use karst_format::key::SeqNo;
use karst_storage::column_family::{ColumnFamily, Family};
use karst_storage::superversion::SuperVersion;
use karst_storage::table::drive::Attempt;
use std::sync::Arc;

/// A family, its pinned superversion, and the read point.
type View<'a> = (&'a Arc<Family>, Guard<Arc<SuperVersion>>, ReadAt);

impl Db {
    /// Pins a column family and returns its read point. The caller waits for that sequence number
    /// before reading.
    #[inline]
    pub(super) fn view<'a>(&self, options: &ReadOptions, family: &'a ColumnFamily) -> Result<View<'a>> {
        let family = self.family(family)?;
        if let Some(secondary) = &self.0.read.secondary {
            let view = self.secondary_view(secondary, options)?;
            let pinned = view.of(family);
            Self::check_timestamps(options, family)?;
            return Ok((family, Guard::from_inner(pinned), view.at.again()));
        }
        let has_all_to = |pinned: &Guard<Arc<SuperVersion>>, seq| pinned.has_all_to(seq);
        let (superversion, at) = pin_with_all(|| family.pin(), || self.read_at(options), has_all_to)?;
        Self::check_timestamps(options, family)?;
        Ok((family, superversion, at))
    }

    /// Returns the largest sequence number of any entry that is visible or acknowledged now.
    #[inline]
    pub(super) fn newest_seq(&self) -> SeqNo {
        match &self.0.write {
            Some(write) => write.pipeline.read_seq(),
            None => match &self.0.read.secondary {
                Some(secondary) => secondary.view().at.seq,
                None => self.0.read.last_seq,
            },
        }
    }

    /// Returns the read point for a superversion pinned before; for `pin_with_all`.
    #[inline]
    pub(super) fn read_at(&self, options: &ReadOptions) -> Result<ReadAt> {
        #[cfg(test)]
        race_hook::run();
        match &options.snapshot {
            None => Ok(self.0.snapshots.newest(|| self.newest_seq())),
            Some(snapshot) if snapshot.belongs_to(&self.0.snapshots) => Ok(snapshot.read_at()),
            Some(_) => Err(Error::invalid_argument("the snapshot is of another database")),
        }
    }

    #[inline]
    fn is_readable(&self, seq: SeqNo) -> bool {
        self.0.write.as_ref().is_none_or(|write| write.pipeline.is_readable(seq))
    }

    /// Blocks the calling thread until everything up to `seq` is readable.
    #[inline]
    pub(super) fn wait_until_readable(&self, seq: SeqNo) {
        if let Some(write) = self.0.write.as_ref().filter(|write| !write.pipeline.is_readable(seq)) {
            write.pipeline.wait_until_readable(seq);
        }
    }

    /// Returns the wait required before reading at `seq`, or None.
    #[inline]
    pub(super) fn gate(&self, seq: SeqNo) -> Option<Box<dyn Gate>> {
        let write = self.0.write.as_ref().filter(|write| !write.pipeline.is_readable(seq))?;
        Some(Box::new(write.pipeline.readable(seq)))
    }

    /// Runs `read`, at once if `seq` is readable, otherwise when it becomes so. `read` must not
    /// borrow anything that must not be held during a wait.
    #[inline]
    pub(super) fn attempt_at<'a, T: Send + 'a>(
        &self,
        seq: SeqNo,
        read: impl FnOnce() -> Attempt<'a, T> + Send + 'a,
    ) -> Attempt<'a, T> {
        if self.is_readable(seq) { read() } else { self.attempt_later(seq, read) }
    }

    #[cold]
    fn attempt_later<'a, T: Send + 'a>(
        &self,
        seq: SeqNo,
        read: impl FnOnce() -> Attempt<'a, T> + Send + 'a,
    ) -> Attempt<'a, T> {
        let gate = self.gate(seq);
        Attempt::Waiting(Box::pin(async move {
            if let Some(gate) = gate {
                gate.await;
            }
            match read() {
                Attempt::Done(value) => value,
                Attempt::Waiting(rest) => rest.await,
            }
        }))
    }
}

/// Test hook that runs between pinning a superversion and taking the read point.
#[cfg(test)]
mod race_hook {
    use std::cell::RefCell;

    thread_local! {
        /// Action that overtakes the next read of this thread.
        pub(super) static ACTION: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    pub(super) fn run() {
        // Taken before the call, because the action may read too.
        if let Some(between) = ACTION.take() {
            between();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::race_hook::ACTION;
    use super::*;
    use crate::ingest::{IngestExternalFileArg, SstFileWriter};
    use crate::open::Options;
    use crate::read::iter::DbIterator;
    use crate::{FlushOptions, TransactionHooks};
    use karst_base::caller::Caller;
    use karst_commit::{WriteBatch, WriteOptions};
    use karst_io::{Env, MemoryFileSystem, block_on};
    use karst_storage::value::Value;

    /// Keys with the values that a read finds.
    type Found = Vec<(&'static str, Option<Vec<u8>>)>;

    fn found<const N: usize>(keys: [&'static str; N], values: Vec<Result<Option<Value>>>) -> Found {
        assert_eq!(values.len(), N);
        keys.into_iter().zip(values).map(|(key, value)| (key, value.unwrap().map(|v| v.to_vec()))).collect()
    }

    fn shown(mut iter: DbIterator) -> Found {
        let mut get = |key: &'static str| {
            iter.seek(key).unwrap();
            (key, (iter.valid() && iter.key() == key.as_bytes()).then(|| iter.value().to_vec()))
        };
        vec![get("a"), get("k")]
    }

    /// A way to read a family, and for some also the other one, in which only "k" was written.
    type Read = fn(&Db, &ColumnFamily, &ColumnFamily) -> Found;
    const READS: [Read; 9] = [
        |db, family, _| found(["k"], vec![db.get_cf(&ReadOptions::new(), family, "k")]),
        |db, family, _| {
            let read = ReadOptions::new();
            found(["k"], vec![block_on(db.env(), db.get_cf_async(&read, family, b"k"))])
        },
        |db, family, _| found(["a", "k"], db.multi_get_cf(&ReadOptions::new(), family, &["a", "k"])),
        |db, family, _| {
            let read = ReadOptions::new();
            found(["a", "k"], block_on(db.env(), db.multi_get_cf_async(&read, family, &["a", "k"])))
        },
        |db, family, other| {
            let (families, keys) = ([other, family, family], ["k", "a", "k"]);
            found(keys, db.multi_get_cfs(&ReadOptions::new(), &families, &keys))
        },
        |db, family, other| {
            let (read, families, keys) = (ReadOptions::new(), [other, family, family], ["k", "a", "k"]);
            found(keys, block_on(db.env(), db.multi_get_cfs_async(&read, &families, &keys)))
        },
        |db, family, _| shown(db.iter_cf(&ReadOptions::new(), family).unwrap()),
        |db, family, _| {
            let between = ACTION.take();
            let mut iter = db.iter_cf(&ReadOptions::new(), family).unwrap();
            ACTION.set(between);
            db.refresh(&mut iter, family, None).unwrap();
            shown(iter)
        },
        |db, family, other| {
            let mut iters = db.iter_cfs(&ReadOptions::new(), &[other, family]).unwrap();
            let mut found = shown(iters.remove(1));
            found.extend(shown(iters.remove(0)).pop());
            found
        },
    ];

    /// Runs every kind of read, overtaken by new memtables for one of two families, a plain write
    /// to them, and then the decision about a transaction that was prepared before.
    fn overtaken(decide: fn(&Db), k: &str) {
        let wanted = |key: &str| Some(if key == "a" { "first" } else { k }.as_bytes().to_vec());
        for (number, read) in READS.into_iter().enumerate() {
            let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
            let options = Options::new().env(env).write_prepared(true).db(|db| {
                db.create_if_missing = true;
                db.create_missing_column_families = true;
                db.allow_2pc = true;
            });
            let db = Db::open_cf("/db", &options, &["default", "second"]).unwrap();
            let families = ["default", "second"].map(|name| db.column_family(name).unwrap());
            let mut batch = WriteBatch::new();
            for family in &families {
                db.put_cf(&WriteOptions::new(), family, "k", "before").unwrap();
                batch.put_cf(family, "k", "prepared").unwrap();
            }
            block_on(
                db.env(),
                TransactionHooks::of(&db).prepare(Caller::Thread, &WriteOptions::new(), b"one", batch),
            )
            .unwrap();
            let [other, family] = families;
            let (of, exchanged) = (db.clone(), family.clone());
            ACTION.set(Some(Box::new(move || {
                of.flush_cfs(&FlushOptions::default(), &[&exchanged]).unwrap();
                of.put_cf(&WriteOptions::new(), &exchanged, "a", "first").unwrap();
                decide(&of);
            })));
            for (key, value) in read(&db, &family, &other) {
                assert_eq!(value, wanted(key), "key {key} by way {number}");
            }
            assert!(ACTION.take().is_none());
            db.close().unwrap();
        }
    }

    #[test]
    fn who_sees_what_was_written_behind_an_ingested_file_sees_the_file() {
        for (number, read) in READS.into_iter().enumerate() {
            let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
            let options = Options::new().env(env).db(|db| {
                db.create_if_missing = true;
                db.create_missing_column_families = true;
            });
            let db = Db::open_cf("/db", &options, &["default", "second"]).unwrap();
            let [other, family] = ["default", "second"].map(|name| db.column_family(name).unwrap());
            db.put_cf(&WriteOptions::new(), &other, "k", "later").unwrap();
            let mut writer = SstFileWriter::create(&options).unwrap();
            writer.open("/file.sst").unwrap();
            writer.put("a", "ingested").unwrap();
            writer.finish().unwrap();
            let (of, exchanged) = (db.clone(), family.clone());
            ACTION.set(Some(Box::new(move || {
                let arg = IngestExternalFileArg::new(&exchanged, ["/file.sst"], Default::default());
                of.ingest_external_files(&[arg]).unwrap();
                of.put_cf(&WriteOptions::new(), &exchanged, "k", "later").unwrap();
            })));
            let wanted = |key: &str| Some(if key == "a" { &b"ingested"[..] } else { &b"later"[..] }.to_vec());
            for (key, value) in read(&db, &family, &other) {
                assert_eq!(value, wanted(key), "key {key} by way {number}");
            }
            assert!(ACTION.take().is_none());
            db.close().unwrap();
        }
    }

    #[test]
    fn iterators_over_several_families_have_one_state() {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new().env(env).db(|db| {
            db.create_if_missing = true;
            db.create_missing_column_families = true;
        });
        let db = Db::open_cf("/db", &options, &["default", "second"]).unwrap();
        let families = ["default", "second"].map(|name| db.column_family(name).unwrap());
        let write = {
            let (db, families) = (db.clone(), families.clone());
            move |value: &'static str| {
                let mut batch = WriteBatch::new();
                families.iter().for_each(|family| batch.put_cf(family, "k", value).unwrap());
                db.write(&WriteOptions::new(), &batch).unwrap();
            }
        };
        write("before");
        // Runs between the first iterator and the second, if each took its own sequence number.
        ACTION.set(Some(Box::new(move || ACTION.set(Some(Box::new(move || write("after")))))));
        let iterators = db.iter_cfs(&ReadOptions::new(), &families.each_ref()).unwrap();
        ACTION.take();
        let values = iterators.into_iter().map(|mut iterator| {
            iterator.seek_to_first().unwrap();
            iterator.value().to_vec()
        });
        assert_eq!(values.collect::<Vec<_>>(), [b"before", b"before"]);
        db.close().unwrap();
    }

    #[test]
    fn a_rollback_in_newer_memtables_than_were_pinned_is_seen_whole() {
        let rollback = |db: &Db| {
            block_on(
                db.env(),
                TransactionHooks::of(db).rollback_prepared(Caller::Thread, &WriteOptions::new(), b"one"),
            )
            .unwrap();
        };
        overtaken(rollback, "before");
    }

    #[test]
    fn a_commit_is_not_seen_without_what_was_written_before_it_to_newer_memtables() {
        let commit = |db: &Db| {
            block_on(
                db.env(),
                TransactionHooks::of(db).commit_prepared(Caller::Thread, &WriteOptions::new(), b"one", None),
            )
            .unwrap();
        };
        overtaken(commit, "prepared");
    }
}
