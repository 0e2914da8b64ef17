//! The host of the commit pipeline in a database, and the sealing of memtables for flushes.
//!
//! In: the open column families, the flush triggers, the action on a log failure. Out:
//! `DatabaseHost` for the pipeline, and `Sealer`, which creates the next log ahead of the seal and
//! exchanges it together with the memtables.
//!
//! Invariants:
//! - Logs take writes in the order of their numbers, because a family's log number states that it
//!   needs none below. Therefore only one log is created at a time, and the job that creates it
//!   holds the turn to seal.
//! - No caller holds the turn while it waits, so a future that is no longer polled delays no seal.
//! - A memtable that is not sealed because it is empty gets no entries of older logs, because all
//!   writes ordered before are inserted.

use crate::flush::Triggers;
use crate::read::Gate;
use crate::sealing::{BoxFuture, HeldWriters, SealRequest, Sealed, Sealing, SealsMemtables, TakenNumbers};
use crate::versions::{Gone, Versions};
use karst_base::error::{Error, Result};
use karst_base::events::{Events, MemTableInfo};
use karst_base::options::CurrentDbOptions;
use karst_base::sync::Event;
use karst_base::sync::Guard;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_commit::wal::prepared::PreparedLogs;
use karst_commit::wal::retired::RetiredLogs;
use karst_commit::wal::writer::{LogOptions, NewLog, reserve_bytes};
use karst_commit::{HeldPipeline, Host, Pipeline, Readable};
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_io::Env;
use karst_storage::column_family::{Families, Family};
use karst_storage::memtable::MemTable;
use karst_storage::superversion::SuperVersion;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Callbacks of the pipeline into the database. Called on writers' threads; must not wait.
pub(crate) struct DatabaseHost {
    pub(crate) env: Env,
    pub(crate) families: Arc<Families>,
    pub(crate) triggers: Arc<Triggers>,
    /// Called when the log fails: reports it to `health` and begins recovery.
    pub(crate) on_log_failed: Box<dyn Fn(&Error) + Send + Sync>,
    /// Called when a finished log of this many bytes is durable.
    pub(crate) on_log_synced: Box<dyn Fn(FileNumber, u64) + Send + Sync>,
    /// Logs with prepared sections.
    pub(crate) prepared_logs: Arc<PreparedLogs>,
    /// Recycles or archives obsolete logs.
    pub(crate) retired_logs: Arc<RetiredLogs>,
}

impl Host for DatabaseHost {
    type Pin = Guard<Arc<SuperVersion>>;

    #[inline]
    fn pin(&self, family: ColumnFamilyId) -> Result<Option<Self::Pin>> {
        let Some(pin) = self.families.pin(family) else { return Ok(None) };
        pin.mem().check_takes_writes()?;
        pin.mem().touch(|| self.env.unix_time());
        Ok(Some(pin))
    }

    fn is_overfull(&self, family: ColumnFamilyId) -> bool {
        self.families.pin(family).is_some_and(|pin| pin.mem().is_overfull())
    }

    #[inline]
    fn memtable(pin: &Self::Pin) -> &Arc<MemTable> {
        pin.mem()
    }

    fn prepared(&self, log: FileNumber) {
        self.prepared_logs.hold(log);
    }

    #[inline]
    fn applied(&self, family: ColumnFamilyId, pin: &Self::Pin) {
        self.families.with(family, |family| self.triggers.inserted(family, pin.mem(), &pin.config().options));
    }

    fn logs_grew(&self, bytes: u64) {
        self.triggers.logs_grew(bytes);
    }

    fn log_failed(&self, error: &Error) {
        (self.on_log_failed)(error);
    }

    fn log_synced(&self, log: FileNumber, bytes: u64) {
        (self.on_log_synced)(log, bytes);
    }

    fn log_ended(&self, log: FileNumber) {
        self.retired_logs.ended(log);
    }
}

/// Seals the memtables of a database.
#[derive(Clone)]
pub(crate) struct Sealer {
    pipeline: Arc<Pipeline<DatabaseHost>>,
    versions: Arc<Versions>,
    /// Directory of the logs.
    wal_dir: Arc<Path>,
    options: Arc<CurrentDbOptions>,
    seals: Arc<Seals>,
    events: Arc<Events>,
}

/// Returns true if sealing the family's memtable reaches the maximum number of sealed memtables.
fn stops_when_sealed(family: &Family) -> bool {
    let most = usize::try_from(family.settings().options.max_write_buffer_number).unwrap_or(1);
    let view = family.superversion();
    !view.mem().is_untouched() && view.immutable().len() + 1 >= most
}

/// The turn to seal, and state that passes from one turn to the next.
struct Seals {
    env: Env,
    /// True while a seal is running.
    busy: AtomicBool,
    free: Event,
    /// Queued seals without a waiting future. Lock: held to add or take one.
    next: Mutex<VecDeque<SealJob>>,
    /// A created, unused log: no seal needed it, or its requester was dropped. Lock: held by the
    /// holder of the turn.
    spare: Mutex<Option<NewLog>>,
}

/// A seal that runs on a thread that may block.
type SealJob = Box<dyn FnOnce(&Env, Turn) + Send>;

/// The right to seal.
struct Turn(Arc<Seals>);

impl Turn {
    fn of(seals: &Arc<Seals>) -> Option<Turn> {
        // Ordering: both releasing the turn and failing to get it swap, so that one of the two sees
        // the other's effect: the released turn, or the queued seal.
        (!seals.busy.swap(true, Ordering::AcqRel)).then(|| Turn(seals.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.busy.swap(false, Ordering::AcqRel);
        self.0.free.notify(usize::MAX);
        Seals::begin_next(&self.0);
    }
}

impl Seals {
    fn new(env: Env) -> Arc<Seals> {
        Arc::new(Seals {
            env,
            busy: AtomicBool::new(false),
            free: Event::new(),
            next: Mutex::default(),
            spare: Mutex::default(),
        })
    }

    /// Starts the seal that has waited longest, if the turn is free.
    fn begin_next(seals: &Arc<Seals>) {
        if seals.next.lock().is_empty() {
            return;
        }
        // Nothing to do otherwise, because the holder of the turn checks the queue when it releases
        // it.
        let Some(turn) = Turn::of(seals) else { return };
        let next = seals.next.lock().pop_front();
        if let Some(job) = next {
            drop(seals.env.run_blocking(move |env| job(env, turn)));
        }
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("wal_dir", &self.wal_dir).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Creates a sealer; `wal_dir` is the directory of the logs.
    pub(crate) fn new(
        pipeline: Arc<Pipeline<DatabaseHost>>,
        versions: Arc<Versions>,
        wal_dir: PathBuf,
        options: Arc<CurrentDbOptions>,
        events: Arc<Events>,
    ) -> Self {
        let seals = Seals::new(pipeline.env().clone());
        Self { pipeline, versions, wal_dir: wal_dir.into(), options, seals, events }
    }

    async fn turn(&self) -> Turn {
        loop {
            let free = self.seals.free.listen();
            if let Some(turn) = Turn::of(&self.seals) {
                return turn;
            }
            free.await;
        }
    }

    /// Creates a spare log. The job that creates it holds the turn, and releases it.
    ///
    /// The turn is held because a log that is still being created when its caller is dropped has a
    /// smaller number than one that would be begun then, and must not be used after it.
    async fn make_spare(&self, turn: Turn) -> Result<()> {
        let this = self.clone();
        self.pipeline.env().run_blocking(move |env| this.make_spare_here(env, &turn.0)).await
    }

    /// Creates a spare log on a thread that may block.
    fn make_spare_here(&self, env: &Env, seals: &Seals) -> Result<()> {
        let now = self.options.get();
        let options = LogOptions {
            bytes_per_sync: now.wal_bytes_per_sync,
            strict: now.strict_bytes_per_sync,
            ..self.pipeline.log_options()
        };
        let options = options.reserving(self.reserve_bytes());
        let number = self.versions.new_file_number();
        let log = match self.versions.obsolete().take_spare_log() {
            Some(old) => NewLog::reuse(env.fs(), &self.wal_dir, old, number, options)
                .inspect_err(|_| self.versions.obsolete().remove([Gone::Wal(old)])),
            None => NewLog::create(env.fs(), &self.wal_dir, number, options),
        }?;
        self.versions.add_log(number);
        *seals.spare.lock() = Some(log);
        Ok(())
    }

    /// Implements [`SealsMemtables::seal`] on a thread that may block.
    fn seal_here(&self, env: &Env, turn: &Turn, which: &Sealing) -> Result<Sealed> {
        loop {
            match self.exchange(turn, which)? {
                Some(sealed) => return Ok(sealed),
                None => self.make_spare_here(env, &turn.0)?,
            }
        }
    }

    /// Exchanges the memtables that `which` names and, if it has records, the log. `None` if a
    /// spare log is required and missing.
    fn exchange(&self, turn: &Turn, which: &Sealing) -> Result<Option<Sealed>> {
        let mut spare = turn.0.spare.lock();
        if spare.is_none() && self.pipeline.needs_new_log() {
            return Ok(None);
        }
        let now = || match which {
            Sealing::Of(families) => families.clone(),
            Sealing::All => self.pipeline.host().families.all().to_vec(),
        };
        let mut sealed = Vec::with_capacity(now().len());
        // Created here, so that under the lock a memtable is only created for a family that was
        // added just now.
        let mut memtables: BTreeMap<_, _> =
            now().iter().map(|family| (family.id(), family.new_memtable())).collect();
        let stopping: Vec<_> =
            now().iter().filter(|family| stops_when_sealed(family)).map(|family| family.id()).collect();
        self.pipeline.stalls().expect_stop(stopping.iter().copied());
        let outcome = self.pipeline.seal(&mut spare, |seal| {
            let families = now();
            for family in families.iter().filter(|family| !family.pin().mem().is_untouched()) {
                let memtable = memtables.remove(&family.id()).unwrap_or_else(|| family.new_memtable());
                sealed.push((family.clone(), family.seal(seal, memtable)));
            }
            let memtables = std::mem::take(&mut sealed);
            Sealed { families, memtables, log: seal.next_log, largest_seq: seal.largest_seq }
        });
        // The caller of the seal updates the stall state of the families that were sealed.
        let sealed = outcome.as_ref().ok().and_then(Option::as_ref);
        let sealed =
            |id| sealed.is_some_and(|sealed| sealed.memtables.iter().any(|(family, _)| family.id() == id));
        let stay: Vec<_> = stopping.into_iter().filter(|id| !sealed(*id)).collect();
        self.pipeline.stalls().expect_no_stop(&stay);
        outcome
    }

    /// Notifies listeners of the sealed memtables.
    fn tell(&self, sealed: &Sealed) {
        if !self.events.has_listeners() {
            return;
        }
        for (family, memtable) in &sealed.memtables {
            let counts = (memtable.entry_count(), memtable.delete_count());
            let bytes = memtable.memory_bytes() as u64;
            let largest = memtable.sealed().map_or(0, |seal| seal.largest_seq.0);
            let seqs = (memtable.begun_behind().0, largest);
            self.events.memtable_sealed(&MemTableInfo::new(&family.config.name, counts, bytes, seqs));
        }
    }

    fn reserve_bytes(&self) -> u64 {
        if self.pipeline.health().current().is_some() {
            // On a full disk no bytes are reserved, because the space is needed for jobs that free
            // space.
            return 0;
        }
        let host = self.pipeline.host();
        let (all_logs, all_memtables) = host.triggers.budgets();
        reserve_bytes(host.families.largest_write_buffer(), all_logs, all_memtables)
    }
}

impl SealsMemtables for Sealer {
    fn seal(&self, which: Sealing) -> BoxFuture<'_, Result<Sealed>> {
        Box::pin(async move {
            loop {
                let turn = self.turn().await;
                match self.exchange(&turn, &which)? {
                    Some(sealed) => {
                        drop(turn);
                        self.tell(&sealed);
                        return Ok(sealed);
                    }
                    // A log is required. Another seal may use it before this one gets the turn
                    // again.
                    None => self.make_spare(turn).await?,
                }
            }
        })
    }

    fn seal_soon(&self, request: Box<dyn SealRequest>) {
        let this = self.clone();
        let job = move |env: &Env, turn: Turn| {
            let Some(which) = request.which() else { return };
            let outcome = this.seal_here(env, &turn, &which);
            request.ended(outcome.as_ref().map_err(Clone::clone));
            drop(turn);
            if let Ok(sealed) = outcome {
                this.tell(&sealed);
                request.told();
            }
        };
        self.seals.next.lock().push_back(Box::new(job));
        Seals::begin_next(&self.seals);
    }

    fn sync_logs(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.pipeline.flush_wal(true).await })
    }

    fn sync_decisions(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.pipeline.sync_decisions().await })
    }

    fn has_unlogged(&self) -> bool {
        self.pipeline.has_unlogged()
    }

    fn installed(&self) {
        self.pipeline.release_logs(self.versions.min_log_number());
    }

    fn log_has_failed(&self) -> bool {
        self.pipeline.is_failed()
    }

    fn check_resumable(&self) -> Result<()> {
        match self.log_has_failed() && self.versions.prepared_logs().oldest().is_some() {
            // The failed log may have the decision on a prepared transaction, or a part of it, and
            // only an opening reads it.
            true => Err(Error::invalid_argument(
                "the log failed while transactions are prepared: their outcome is known only after the database is reopened",
            )),
            false => Ok(()),
        }
    }

    fn resume(&self, first_log: FileNumber) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.pipeline.resume(first_log))
    }

    fn hold(&self) -> BoxFuture<'_, Result<Box<dyn HeldWriters>>> {
        Box::pin(async move {
            let held: Box<dyn HeldWriters> = Box::new(self.pipeline.hold().await?);
            Ok(held)
        })
    }

    fn wait_published(&self, seq: SeqNo) -> BoxFuture<'_, ()> {
        // Limited to assigned numbers, because a table from another database may have a number that
        // was never assigned here.
        let given = SeqNo(self.pipeline.next_seq().0 - 1);
        Box::pin(self.pipeline.wait_until_visible(seq.min(given)))
    }

    fn wait_visible(&self, seq: SeqNo) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.pipeline.wait_until_visible(seq).await;
            // Called here, because a job treats the listed sections as undecided.
            self.pipeline.forget_decided();
            self.pipeline.check_inserts()
        })
    }
}

impl HeldWriters for HeldPipeline<DatabaseHost> {
    fn next_seq(&self) -> SeqNo {
        HeldPipeline::next_seq(self)
    }

    fn take_to(&self, last: SeqNo) -> Result<TakenNumbers> {
        Ok(TakenNumbers::new(HeldPipeline::take_to(self, last)?))
    }
}

impl Gate for Readable<DatabaseHost> {
    fn wait(&self) {
        self.wait_here();
    }
}
