//! Where a read reads: the sequence number that it takes when it begins, and what it has to wait for.
//!
//! In: read options. Out: a sequence number with what does not count up to it, and whether everything up to it is in the memtables yet. It always is unless the database has `unordered_write` set and a write
//! is being inserted right now; then the blocking calls wait on the calling thread and the asynchronous ones as futures.
//!
//! Invariants:
//! - First the superversion is pinned, then the sequence number is taken, then waited for, and the pinned superversion is read at that number. Why not pinned anew after the
//!   wait: a job may have dropped meanwhile what is read at the number.
//! - What is pinned has everything up to the number. Where memtables were exchanged between the two, both are taken again. Otherwise the read would end at the exchange, while what was decided about
//!   prepared transactions behind it would count already: one that was rolled back would be seen, without what its rollback had brought back.

use super::Db;
use crate::column_family::{ColumnFamily, Family};
use crate::error::{Error, Result};
use crate::options::ReadOptions;
use crate::read::Gate;
use crate::snapshot::ReadAt;
use crate::superversion::SuperVersion;
use crate::table::drive::Attempt;
use arc_swap::Guard;
use karst_format::key::SeqNo;
use std::sync::Arc;

/// Pins something, then takes where to read; once more for as long as that is beyond what was pinned.
#[inline]
pub(super) fn pin_with_all<P>(
    pin: impl Fn() -> P,
    read_at: impl Fn() -> Result<ReadAt>,
    has_all_to: impl Fn(&P, SeqNo) -> bool,
) -> Result<(P, ReadAt)> {
    loop {
        let pinned = pin();
        let at = read_at()?;
        if has_all_to(&pinned, at.seq) {
            return Ok((pinned, at));
        }
    }
}

/// A family, what was pinned of it, and where that is read.
type View<'a> = (&'a Arc<Family>, Guard<Arc<SuperVersion>>, ReadAt);

impl Db {
    /// Pins a column family and says where to read it. Wait for that sequence number before reading.
    #[inline]
    pub(super) fn view<'a>(&self, options: &ReadOptions, family: &'a ColumnFamily) -> Result<View<'a>> {
        let family = self.family(family)?;
        let has_all_to = |pinned: &Guard<Arc<SuperVersion>>, seq| pinned.has_all_to(seq);
        let (superversion, at) = pin_with_all(|| family.pin(), || self.read_at(options), has_all_to)?;
        Ok((family, superversion, at))
    }

    /// Everything that is visible or acknowledged now has at most this sequence number.
    #[inline]
    pub(super) fn newest_seq(&self) -> SeqNo {
        match &self.0.live {
            Some(live) => live.pipeline.read_seq(),
            None => self.0.last_seq,
        }
    }

    /// Where to read what was pinned before; for [`pin_with_all`].
    #[inline]
    pub(super) fn read_at(&self, options: &ReadOptions) -> Result<ReadAt> {
        match &options.snapshot {
            None => Ok(self.0.snapshots.newest(|| self.newest_seq())),
            Some(snapshot) if snapshot.belongs_to(&self.0.snapshots) => Ok(snapshot.read_at()),
            Some(_) => Err(Error::invalid_argument("the snapshot is of another database")),
        }
    }

    #[inline]
    fn is_readable(&self, seq: SeqNo) -> bool {
        self.0.live.as_ref().is_none_or(|live| live.pipeline.is_readable(seq))
    }

    /// Blocks the calling thread until everything up to `seq` can be read.
    #[inline]
    pub(super) fn wait_until_readable(&self, seq: SeqNo) {
        if let Some(live) = self.0.live.as_ref().filter(|live| !live.pipeline.is_readable(seq)) {
            live.pipeline.wait_until_readable(seq);
        }
    }

    /// What has to be waited for before reading at `seq`, if anything.
    #[inline]
    pub(super) fn gate(&self, seq: SeqNo) -> Option<Box<dyn Gate>> {
        let live = self.0.live.as_ref().filter(|live| !live.pipeline.is_readable(seq))?;
        Some(Box::new(live.pipeline.readable(seq)))
    }

    /// `read`, at once if `seq` can be read, and otherwise when it can. `read` borrows nothing that a wait must not hold.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlushOptions;
    use crate::caller::Caller;
    use crate::open::Options;
    use crate::read::iter::DbIterator;
    use crate::write::{WriteBatch, WriteOptions};
    use karst_io::{Env, MemoryFileSystem, block_on};
    use std::cell::Cell;

    /// What an iterator shows that pins, and takes where to read after `meanwhile` has happened to a transaction that is prepared already and puts "k".
    fn shown(meanwhile: impl Fn(&Db)) -> Vec<(Vec<u8>, Vec<u8>)> {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new().env(env).write_prepared(true).db(|db| {
            db.create_if_missing = true;
            db.allow_2pc = true;
        });
        let db = Db::open("/db", &options).unwrap();
        db.put("k", "before").unwrap();
        let mut batch = WriteBatch::new();
        batch.put("k", "prepared").unwrap();
        block_on(db.env(), db.prepare(Caller::Thread, &WriteOptions::new(), b"one", batch)).unwrap();
        let (calls, read, family) = (Cell::new(0), ReadOptions::new(), &db.0.default_family.0);
        let read_at = || {
            if calls.replace(calls.get() + 1) == 0 {
                db.flush(&FlushOptions::default()).unwrap();
                meanwhile(&db);
            }
            db.read_at(&read)
        };
        let (view, at) =
            pin_with_all(|| family.superversion(), read_at, |view, seq| view.has_all_to(seq)).unwrap();
        let gate = db.gate(at.seq);
        let mut iter = DbIterator::new(family.tables.clone(), view, at, read.clone(), gate).unwrap();
        iter.seek_to_first().unwrap();
        let mut shown = Vec::new();
        while iter.valid() {
            shown.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next().unwrap();
        }
        db.close().unwrap();
        shown
    }

    #[test]
    fn a_rollback_in_newer_memtables_than_were_pinned_is_seen_whole() {
        let shown = shown(|db| {
            let options = WriteOptions::new();
            block_on(db.env(), db.rollback_prepared(Caller::Thread, &options, b"one")).unwrap();
        });
        assert_eq!(shown, [(b"k".to_vec(), b"before".to_vec())]);
    }

    #[test]
    fn a_commit_is_not_seen_without_what_was_written_before_it_to_newer_memtables() {
        let shown = shown(|db| {
            db.put("earlier", "yes").unwrap();
            block_on(db.env(), db.commit_prepared(Caller::Thread, &WriteOptions::new(), b"one")).unwrap();
        });
        let expected = [("earlier", "yes"), ("k", "prepared")];
        assert_eq!(shown, expected.map(|(key, value)| (key.into(), value.into())));
    }
}
