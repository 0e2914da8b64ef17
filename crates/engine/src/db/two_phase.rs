//! Two-phase commit of the database: prepare, then commit or roll back, possibly after a crash.
//!
//! In: a batch under a name. Out: after prepare it survives a crash, and has no effect until it is
//! committed. Locks and snapshots are the caller's responsibility.
//!
//! With [`Options::write_prepared`](crate::Options::write_prepared) the batch is inserted invisibly
//! when it is prepared; a commit sets the sequence number from which it is visible, and a rollback
//! rewrites the previous values. Otherwise, it is inserted when it is committed.
//! docs/decisions/write-prepared.md has the argument.
//!
//! Invariants:
//! - Each phase is logged, regardless of the write options; a commit that only the memtables hold
//!   could be repeated.
//! - A name is in the list from the beginning of its prepare until it is decided, with its current
//!   stage ([`Stage`]), so that no other caller prepares or decides under it meanwhile.
//! - The log with a prepared section is kept until that is decided, and after a commit until all
//!   entries of the section are in tables.
//! - The futures must be driven to completion. A dropped one leaves the name taken, and the log of
//!   the section kept, until the database is reopened.

use super::Db;
use super::hooks::TransactionHooks;
use crate::write_half::WriteHalf;
use karst_base::caller::Caller;
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_base::options::ReadOptions;
use karst_commit::wal::sub_batches::SubBatches;
use karst_commit::{Phase, PhaseWrite, Section, Source, WriteBatch, WriteOptions};
use karst_format::ids::ColumnFamilyId;
use karst_format::write_batch::Op;
use karst_storage::column_family::ColumnFamily;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Current step of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preparing,
    Prepared,
    Deciding,
}

/// The undecided sections by name: those being prepared, prepared, or being decided.
#[derive(Debug, Default)]
pub(super) struct Sections(BTreeMap<Vec<u8>, (Arc<Section>, Stage)>);

impl Sections {
    /// Returns the list of the sections that recovery found prepared.
    pub(super) fn found(sections: &[Arc<Section>]) -> Self {
        Self(sections.iter().map(|s| (s.name.clone(), (s.clone(), Stage::Prepared))).collect())
    }

    fn begin(&mut self, section: &Arc<Section>) -> Result<()> {
        match self.0.entry(section.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert((section.clone(), Stage::Preparing));
                Ok(())
            }
            Entry::Occupied(entry) => {
                let name = Shown(entry.key());
                Err(Error::invalid_argument(format!("a transaction {name} is prepared already")))
            }
        }
    }

    fn begin_decision(&mut self, name: &[u8]) -> Result<Arc<Section>> {
        let (section, stage) = self.0.get_mut(name).ok_or_else(|| {
            let name = Shown(name);
            Error::new(ErrorKind::NotFound, format!("no transaction {name} is prepared"))
        })?;
        match stage {
            Stage::Prepared => {
                *stage = Stage::Deciding;
                Ok(section.clone())
            }
            Stage::Preparing | Stage::Deciding => {
                let name = Shown(name);
                let text = format!("transaction {name} is being prepared, committed or rolled back");
                Err(Error::new(ErrorKind::Busy, text))
            }
        }
    }

    /// Marks a section as prepared, for the first time or again after a failed decision.
    fn set_prepared(&mut self, name: &[u8]) {
        if let Some((_, stage)) = self.0.get_mut(name) {
            *stage = Stage::Prepared;
        }
    }

    fn remove(&mut self, name: &[u8]) {
        self.0.remove(name);
    }

    /// Returns the sections that are prepared, in the order of names.
    fn prepared(&self) -> impl Iterator<Item = &Arc<Section>> {
        self.0.values().filter(|(_, stage)| *stage != Stage::Preparing).map(|(section, _)| section)
    }
}

/// A prepared, undecided transaction.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PreparedTransaction {
    /// The transaction's name.
    pub name: Vec<u8>,
    /// The batch that its commit writes.
    pub batch: WriteBatch,
}

impl TransactionHooks<'_> {
    /// Makes `batch` durable under `name`, without effect. The database must have been opened with
    /// `allow_2pc`. Keys of column families with timestamps need none yet.
    ///
    /// # Errors
    /// Those of [`Db::write`]; `InvalidArgument`: the name is in use, or `allow_2pc` is off;
    /// `NotSupported`: keys have timestamps, and prepared batches are inserted. The batch is not
    /// prepared then, except after an `Io` error of the log, which the next opening may find
    /// prepared.
    pub async fn prepare(
        self,
        by: Caller,
        options: &WriteOptions,
        name: &[u8],
        batch: WriteBatch,
    ) -> Result<()> {
        let db = self.0;
        db.check_open()?;
        if !db.options().allow_2pc {
            return Err(Error::invalid_argument("a prepared transaction needs the option allow_2pc"));
        }
        let is_inserted = db.0.read.pending.is_some();
        if is_inserted {
            self.check_no_timestamps(&batch)?;
        }
        let write = db.preparing(&batch)?;
        let numbers = is_inserted.then(|| db.numbers(&batch)).transpose()?;
        let timestamps = batch.timestamp_sizes(|family| db.0.read.families.get(family))?;
        let section = Arc::new(Section::new(name, batch, numbers).with_timestamps(timestamps));
        db.0.sections.lock().begin(&section)?;
        let outcome = phase(write, by, options, PhaseWrite::new(&section, Phase::Prepare), false).await;
        // The section is kept if it may be in memtables, because inserted entries must stay hidden
        // after an insert panicked. The log has it as prepared, so the next opening finds it.
        if outcome.is_err() && !section.may_be_inserted() {
            db.0.sections.lock().remove(name);
            db.release(write, &section);
            write.pipeline.withdraw(&section);
        } else if outcome.is_ok() {
            db.0.sections.lock().set_prepared(name);
        }
        outcome
    }

    /// Writes the batch prepared under `name`, at `timestamp` if keys have timestamps.
    ///
    /// # Errors
    /// `InvalidArgument`: keys have timestamps, and none was given, or one of another size;
    /// `NotFound` if no batch is prepared under the name; `Busy` if another caller is preparing or
    /// deciding it; otherwise those of [`Db::write`], and then it stays prepared, except after an
    /// `Io` error of the log, which the next opening may find committed.
    pub async fn commit_prepared(
        self,
        by: Caller,
        options: &WriteOptions,
        name: &[u8],
        timestamp: Option<&[u8]>,
    ) -> Result<()> {
        self.0.decide(by, options, name, Decision::Commit(timestamp)).await
    }

    /// Rolls back the batch prepared under `name`.
    ///
    /// # Errors
    /// Those of [`Self::commit_prepared`].
    pub async fn rollback_prepared(self, by: Caller, options: &WriteOptions, name: &[u8]) -> Result<()> {
        self.0.decide(by, options, name, Decision::Rollback).await
    }
}

/// Outcome of a prepared section.
#[derive(Clone, Copy, Debug)]
enum Decision<'a> {
    /// It is committed, at this timestamp if keys have timestamps.
    Commit(Option<&'a [u8]>),
    Rollback,
}

impl Db {
    async fn decide(
        &self,
        by: Caller,
        options: &WriteOptions,
        name: &[u8],
        what: Decision<'_>,
    ) -> Result<()> {
        let write = self.write_half()?;
        let section = self.0.sections.lock().begin_decision(name)?;
        let outcome = match what {
            Decision::Rollback if section.is_inserted_early() => {
                self.restore(write, by, options, &section).await
            }
            Decision::Rollback => {
                phase(write, by, options, PhaseWrite::new(&section, Phase::Rollback), true).await
            }
            Decision::Commit(timestamp) => match self.commit_of(&section, timestamp) {
                // Dropped families are skipped if the section was inserted early, because its
                // entries there are gone with the column family.
                Ok(commit) => phase(write, by, options, commit, section.is_inserted_early()).await,
                Err(refused) => Err(refused),
            },
        };
        match outcome {
            Ok(()) => {
                self.0.sections.lock().remove(name);
                // Its log stays if the sync fails, because the decision may be lost along with
                // earlier writes, and then the section is prepared again; and its inserted entries
                // must not look like a plain write.
                if !section.waits_for_sync() || self.sync_logs(write, by).await {
                    self.release(write, &section);
                }
                write.pipeline.forget_decided();
            }
            Err(_) => self.0.sections.lock().set_prepared(name),
        }
        outcome
    }

    /// Returns the commit of a section, with the timestamp of its keys if they have timestamps.
    fn commit_of(&self, section: &Arc<Section>, timestamp: Option<&[u8]>) -> Result<PhaseWrite> {
        let open = section.batch.timestamp_sizes(|family| self.0.read.families.get(family))?;
        let Some(first) = open.first() else { return Ok(PhaseWrite::new(section, Phase::Commit)) };
        let Some(timestamp) = timestamp else {
            let text = format!("a commit needs a timestamp for the keys in column family {}", first.cf);
            return Err(Error::invalid_argument(text));
        };
        let mut stamped = section.batch.clone();
        // Size 0 for a family that is not open, because it was dropped, and nothing is inserted
        // there.
        let size = |id| open.iter().find(|size| size.cf.0 == id).map_or(0, |size| usize::from(size.bytes));
        stamped.update_timestamps(timestamp, |id| Some(size(id)))?;
        Ok(PhaseWrite::stamping(section, timestamp, stamped))
    }

    async fn sync_logs(&self, write: &WriteHalf, by: Caller) -> bool {
        by.wait(self.env(), write.pipeline.flush_wal(true)).await.is_ok()
    }

    /// Returns the numbering of the operations of a batch that is inserted undecided.
    fn numbers(&self, batch: &WriteBatch) -> Result<SubBatches> {
        if batch.iter().any(|op| matches!(op, Op::DeleteRange { .. })) {
            let text = "delete_range in a transaction that is prepared under WritePrepared";
            return Err(Error::not_supported(text));
        }
        Ok(SubBatches::of(batch.iter(), self.key_order()))
    }

    /// Returns the key order of each column family.
    fn key_order(&self) -> impl Fn(ColumnFamilyId, &[u8], &[u8]) -> Ordering + use<> {
        let families = self.0.read.families.all();
        move |family, a: &[u8], b: &[u8]| match families.iter().find(|open| open.id() == family) {
            Some(family) => family.config.comparator.compare_user(a, b),
            None => a.cmp(b),
        }
    }

    /// Rolls back an inserted section by rewriting the previous values over it.
    ///
    /// The values read are the previous ones, because no reader sees the section, and no other
    /// writer changes its keys while it is prepared.
    async fn restore(
        &self,
        write: &WriteHalf,
        by: Caller,
        options: &WriteOptions,
        section: &Arc<Section>,
    ) -> Result<()> {
        let mut before = WriteBatch::new();
        let read = ReadOptions::default();
        let order = self.key_order();
        let in_order = |a: &(ColumnFamilyId, &[u8]), b: &(ColumnFamilyId, &[u8])| {
            a.0.cmp(&b.0).then_with(|| order(a.0, a.1, b.1))
        };
        let mut keys: Vec<_> =
            section.batch.iter().filter_map(|op| Some((op.column_family()?, op.key()?))).collect();
        keys.sort_by(in_order);
        // Deduplicated by the comparator, because all of it gets one sequence number, which no key
        // may have twice.
        keys.dedup_by(|a, b| in_order(a, b).is_eq());
        for (id, key) in keys {
            // Skipped, because all entries that the section wrote there are gone with the column
            // family.
            let Some(family) = self.0.read.families.get(id).map(ColumnFamily) else { continue };
            let value = match by {
                Caller::Thread => self.get_cf(&read, &family, key)?,
                Caller::Task => self.get_cf_async(&read, &family, key).await?,
            };
            match value {
                Some(value) => before.put_cf(&family, key, &value)?,
                None => before.delete_cf(&family, key)?,
            }
        }
        let options = WriteOptions { disable_wal: false, ignore_missing_column_families: true, ..*options };
        let source = Source::Phase(PhaseWrite::restoring(section, before));
        write.pipeline.write_by(by, &options, source, None).await
    }

    /// Releases the log of a section that is decided, or was not prepared.
    fn release(&self, write: &WriteHalf, section: &Section) {
        if section.log().0 > 0 {
            write.prepared_logs.release(section.log());
        }
    }

    /// Returns the prepared, undecided transactions, in the order of names.
    pub fn prepared_transactions(&self) -> Vec<PreparedTransaction> {
        // The sections are cloned out of the lock first, because copying a batch may take long, and
        // prepares and decisions wait for the lock.
        let sections: Vec<_> = self.0.sections.lock().prepared().cloned().collect();
        let listed = |section: Arc<Section>| PreparedTransaction {
            name: section.name.clone(),
            batch: section.batch.clone(),
        };
        sections.into_iter().map(listed).collect()
    }

    /// Returns the names of the prepared, undecided transactions, in order.
    pub fn prepared_names(&self) -> Vec<Vec<u8>> {
        self.0.sections.lock().prepared().map(|section| section.name.clone()).collect()
    }
}

/// Writes a phase. With `gone`, operations on column families that were dropped meanwhile are
/// skipped.
async fn phase(
    write: &WriteHalf,
    by: Caller,
    options: &WriteOptions,
    phase: PhaseWrite,
    gone: bool,
) -> Result<()> {
    let ignore = options.ignore_missing_column_families || gone;
    let options = WriteOptions { disable_wal: false, ignore_missing_column_families: ignore, ..*options };
    write.pipeline.write_by(by, &options, Source::Phase(phase), None).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_for_as_long_as_anything_is_done_to_it() {
        let mut sections = Sections::default();
        let section = |name: &str| Arc::new(Section::new(name.as_bytes(), WriteBatch::new(), None));
        let (first, second) = (section("x"), section("x"));
        let listed = |sections: &Sections| sections.prepared().cloned().collect::<Vec<_>>();
        let refused = |outcome: Result<Arc<Section>>| outcome.unwrap_err().kind();
        assert_eq!(refused(sections.begin_decision(b"x")), ErrorKind::NotFound);
        sections.begin(&first).unwrap();
        assert_eq!(sections.begin(&second).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(refused(sections.begin_decision(b"x")), ErrorKind::Busy, "it is not prepared yet");
        assert!(listed(&sections).is_empty());
        sections.set_prepared(b"x");
        for _ in 0..2 {
            assert!(Arc::ptr_eq(&sections.begin_decision(b"x").unwrap(), &first));
            assert_eq!(refused(sections.begin_decision(b"x")), ErrorKind::Busy, "it is being decided");
            // Otherwise a failed decision would replace the second by the first.
            assert_eq!(sections.begin(&second).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(listed(&sections).len(), 1, "it is not decided yet");
            // The decision failed.
            sections.set_prepared(b"x");
        }
        sections.remove(b"x");
        assert!(listed(&sections).is_empty());
        sections.begin(&second).unwrap();
    }
}
