//! The pipeline's host in a real database, and how flushes have memtables sealed.
//!
//! In: the open column families, the flush triggers, what to do when a log fails. Out: [`DatabaseHost`] for the pipeline, and [`Sealer`], which makes the next log before anyone
//! waits for it and exchanges it together with the memtables.
//!
//! Invariants:
//! - Logs take writes in the order of their numbers, since a family's log number says that it needs none below; so there is one seal at a time, from the new number on.
//! - A memtable that is left alone because it is empty gets nothing that is in an older log: no write ordered before is on its way to it.

use super::host::Host;
use super::pipeline::Pipeline;
use crate::column_family::{Families, Family};
use crate::error::{Error, Result};
use crate::flush::{BoxFuture, Sealed, SealsMemtables, Triggers};
use crate::memtable::MemTable;
use crate::options::CurrentDbOptions;
use crate::superversion::SuperVersion;
use crate::versions::{Gone, Versions};
use crate::wal::prepared::PreparedLogs;
use crate::wal::retired::RetiredLogs;
use crate::wal::writer::{LogOptions, NewLog, reserve_bytes};
use arc_swap::Guard;
use event_listener::Event;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is done with the news that the host gets. Called from writers' threads; must not wait.
pub(crate) struct DatabaseHost {
    pub(crate) families: Arc<Families>,
    pub(crate) triggers: Arc<Triggers>,
    /// The log failed: report it to `health` and begin recovery.
    pub(crate) on_log_failed: Box<dyn Fn(&Error) + Send + Sync>,
    /// A finished log is durable, with so many bytes.
    pub(crate) on_log_synced: Box<dyn Fn(FileNumber, u64) + Send + Sync>,
    /// Logs with prepared sections.
    pub(crate) prepared_logs: Arc<PreparedLogs>,
    /// Who has a use for logs that nobody needs.
    pub(crate) retired_logs: Arc<RetiredLogs>,
}

impl Host for DatabaseHost {
    type Pin = Guard<Arc<SuperVersion>>;

    #[inline]
    fn pin(&self, family: ColumnFamilyId) -> Option<Self::Pin> {
        let pin = self.families.pin(family)?;
        pin.mem().touch();
        Some(pin)
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

/// Seals memtables of a database.
pub(crate) struct Sealer {
    pipeline: Arc<Pipeline<DatabaseHost>>,
    versions: Arc<Versions>,
    /// Where logs are.
    wal_dir: PathBuf,
    options: Arc<CurrentDbOptions>,
    /// A log that was made and not put to use yet, because whoever wanted it gave up.
    /// Lock: held to put it there or take it.
    ready: Arc<Mutex<Option<NewLog>>>,
    /// Whether a seal is under way.
    busy: AtomicBool,
    free: Event,
}

/// The right to seal.
struct Turn<'a>(&'a Sealer);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
        self.0.free.notify(usize::MAX);
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("wal_dir", &self.wal_dir).finish_non_exhaustive()
    }
}

impl Sealer {
    /// `wal_dir` is where logs are.
    pub(crate) fn new(
        pipeline: Arc<Pipeline<DatabaseHost>>,
        versions: Arc<Versions>,
        wal_dir: PathBuf,
        options: Arc<CurrentDbOptions>,
    ) -> Self {
        let (ready, busy, free) = (Arc::default(), AtomicBool::new(false), Event::new());
        Self { pipeline, versions, wal_dir, options, ready, busy, free }
    }

    async fn turn(&self) -> Turn<'_> {
        loop {
            let free = self.free.listen();
            if !self.busy.swap(true, Ordering::Acquire) {
                return Turn(self);
            }
            free.await;
        }
    }

    /// A new log, if the present one has anything in it or failed.
    async fn next_log(&self) -> Result<Option<NewLog>> {
        let pipeline = &self.pipeline;
        let (_, _, has_records) = pipeline.current_log();
        if !has_records && !pipeline.is_failed() {
            return Ok(None);
        }
        if self.ready.lock().is_none() {
            let (directory, versions) = (self.wal_dir.clone(), self.versions.clone());
            let now = self.options.get();
            let options = LogOptions {
                bytes_per_sync: now.wal_bytes_per_sync,
                strict: now.strict_bytes_per_sync,
                ..pipeline.log_options()
            };
            let options = options.reserving(self.reserve_bytes());
            let ready = self.ready.clone();
            let make = move |env: &karst_io::Env| -> Result<()> {
                let number = versions.new_file_number();
                let log = match versions.obsolete().retired_logs().take() {
                    Some(old) => NewLog::reuse(env.fs(), &directory, old, number, options)
                        .inspect_err(|_| versions.obsolete().remove([Gone::Wal(old)])),
                    None => NewLog::create(env.fs(), &directory, number, options),
                }?;
                versions.add_log(number);
                *ready.lock() = Some(log);
                Ok(())
            };
            // Why not its result: if nobody waits any more, the log is there for the next one who wants it, and no other gets a larger number before it.
            pipeline.env.run_blocking(make).await?;
        }
        Ok(self.ready.lock().take())
    }

    fn reserve_bytes(&self) -> u64 {
        let host = &self.pipeline.host;
        let (all_logs, all_memtables) = host.triggers.budgets();
        reserve_bytes(host.families.largest_write_buffer(), all_logs, all_memtables)
    }
}

impl SealsMemtables for Sealer {
    fn seal<'a>(&'a self, families: &'a [Arc<Family>]) -> BoxFuture<'a, Result<Sealed>> {
        Box::pin(async move {
            let _turn = self.turn().await;
            let log = self.next_log().await?;
            let memtables: Vec<_> = families.iter().map(|family| (family, family.new_memtable())).collect();
            self.pipeline.seal(log, |seal| {
                for (family, memtable) in memtables {
                    if !family.pin().mem().is_untouched() {
                        family.seal(seal, memtable);
                    }
                }
                Sealed { log: seal.next_log, largest_seq: seal.largest_seq }
            })
        })
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
            // Why: the failed log may have the decision on a prepared transaction, or a part of it. Only an opening, which reads it, can tell.
            true => Err(Error::invalid_argument(
                "the log failed while transactions are prepared: what became of them is found out when the database is opened anew",
            )),
            false => Ok(()),
        }
    }

    fn resume(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.pipeline.resume())
    }

    fn wait_visible(&self, seq: SeqNo) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.pipeline.wait_until_visible(seq).await;
            // Why here: a job takes what is in the list for undecided.
            self.pipeline.forget_decided();
            self.pipeline.check_inserts()
        })
    }
}
