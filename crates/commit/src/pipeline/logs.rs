//! Logs of a running pipeline: switched with memtables, flushed, synced, locked, closed, and
//! replaced after a failure.
//!
//! New logs are created before a writer needs them. Jobs and users ask for switches and syncs, and
//! for the list of logs.
//!
//! Lock: as in the module above. Closing and resumption lead while they hold the files.

use super::Pipeline;
use crate::host::Host;
use crate::order::Resumed;
use crate::wal::writer::{LogOptions, NewLog};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::sync::let_others_run;
use karst_format::ids::FileNumber;
use karst_storage::memtable::Seal;
use std::sync::Arc;

impl<H: Host> Pipeline<H> {
    /// Seals the memtables, and switches to the log `spare` if the current log has a record or has
    /// failed. `exchange` is called under the order lock with the seal for every memtable that it
    /// exchanges; it calls `Family::seal` for each and does nothing else. Writes ordered before go
    /// to the old memtables, writes ordered later to the new ones. A log without records stays
    /// current, the seal names it, and `spare` is untouched.
    ///
    /// Returns `None`, without effect, if a new log is needed and `spare` has none.
    ///
    /// A sealed memtable may be flushed once `visible_seq` has reached `largest_seq`:
    /// [`wait_until_visible`](Self::wait_until_visible).
    ///
    /// Invariant: the need for a new log is decided here only, under the order lock. The log that a
    /// seal names has no records of the sealed memtables; otherwise recovery would replay them a
    /// second time.
    ///
    /// # Errors
    /// The pipeline is closed. The beginning of the new log could not be framed. Its number is not
    /// above the current log's, although recovery reads logs in the order of their numbers. Nothing
    /// was exchanged.
    pub fn seal<T>(
        self: &Arc<Self>,
        spare: &mut Option<NewLog>,
        exchange: impl FnOnce(Seal) -> T,
    ) -> Result<Option<T>> {
        let mut line = self.order.lock();
        let Some(switches) = line.switch(spare)? else { return Ok(None) };
        if switches {
            self.persist.ask_for_switched_log();
        }
        let outcome = exchange(Seal { largest_seq: line.last_seq(), next_log: line.log() });
        let refused = line.refused().is_some();
        drop(line);
        // Writers wait for an overfull memtable to be sealed.
        self.publish.ring_room();
        if switches && !refused {
            // Under `manual_wal_flush` the records gathered for the old log are only written by a
            // round, which also ends the old file.
            self.lead_elsewhere();
        }
        Ok(Some(outcome))
    }

    /// Returns true if a [`seal`](Self::seal) would need a new log now. A hint, because the seal
    /// itself decides.
    pub fn needs_new_log(&self) -> bool {
        self.order.lock().needs_new_log()
    }

    /// Returns true if any write went to a memtable without a record.
    pub fn has_unlogged(&self) -> bool {
        self.order.lock().has_unlogged()
    }

    /// Returns the options of new logs, for [`NewLog::create`].
    pub fn log_options(&self) -> LogOptions {
        self.rules.log
    }

    /// Waits until all ordered records have left the process, and with `sync` are on the device;
    /// older logs that are still needed included.
    ///
    /// # Errors
    /// The log failed, now or before.
    pub async fn flush_wal(self: &Arc<Self>, sync: bool) -> Result<()> {
        let end = {
            let line = self.order.lock();
            line.check()?;
            if let Some(last) = line.last_ticket() {
                self.persist.ask(last, sync);
            }
            line.next_ticket()
        };
        self.lead_elsewhere();
        self.persist.wait(end, sync).await.map_err(|()| self.refusal())
    }

    /// Stops ordering until [`unlock_wal`](Self::unlock_wal) was called as often as this.
    /// Everything ordered before has left the process when this returns, and is visible.
    ///
    /// # Errors
    /// Those of [`flush_wal`](Self::flush_wal); the log is not locked then.
    pub async fn lock_wal(self: &Arc<Self>) -> Result<()> {
        self.order.lock().lock_wal();
        let locked = LockedWal(self);
        // Waited for first, because an ingestion takes sequence numbers while writers are held up.
        self.wait_until_not_held().await;
        let last_seq = self.order.lock().last_seq();
        self.flush_wal(false).await?;
        self.wait_until_visible(last_seq).await;
        std::mem::forget(locked);
        Ok(())
    }

    /// Releases one lock on the log.
    ///
    /// # Errors
    /// It is not locked.
    pub fn unlock_wal(&self) -> Result<()> {
        self.order.lock().unlock_wal()?;
        self.publish.ring_room();
        Ok(())
    }

    /// Returns the newest log at the time of the last failure.
    pub fn failed_log(&self) -> FileNumber {
        self.order.lock().failed_log()
    }

    /// Returns the logs opened for writing since the database was opened and still needed, oldest
    /// first, each with the number of bytes that have left the process. These bytes end with a
    /// whole record.
    ///
    /// # Errors
    /// The database is closed.
    pub async fn written_logs(&self) -> Result<Vec<(FileNumber, u64)>> {
        // Invariant: no leader writes while this holds the files, so no log is seen in the middle
        // of a round. The lock is only tried, because a leader holds it while it writes.
        let files = loop {
            self.persist.wait_for_leader().await;
            self.order.lock().check_open()?;
            match self.persist.try_files() {
                Some(files) => break files,
                // A former leader may still hold the files, and needs the processor to release
                // them.
                None => let_others_run(),
            }
        };
        let newest = files.newest();
        let mut logs = self.order.lock().older_logs().to_vec();
        logs.retain(|(number, _)| *number < newest.0);
        logs.push(newest);
        Ok(logs)
    }

    /// Waits until every decision on a section inserted at prepare that was ordered so far is on
    /// the device. Without such a decision it does nothing.
    ///
    /// # Errors
    /// Those of [`flush_wal`](Self::flush_wal).
    pub async fn sync_decisions(self: &Arc<Self>) -> Result<()> {
        if self.persist.decisions_are_synced() { Ok(()) } else { self.flush_wal(true).await }
    }

    /// Releases the logs below `number`, which are no longer needed: their files are closed
    /// unsynced.
    pub fn release_logs(&self, number: FileNumber) {
        self.order.lock().release_logs(number);
        self.persist.release(number);
    }

    /// Refuses further writes, waits until all ordered records have left the process, and releases
    /// the log's unused space. No log is written any more when this returns, even with an error.
    ///
    /// # Errors
    /// The log failed during this call. Earlier failures were reported before.
    pub async fn close_log(self: &Arc<Self>) -> Result<()> {
        let (end, had_failed) = {
            let mut line = self.order.lock();
            let had_failed = line.close();
            if !had_failed && let Some(last) = line.last_ticket() {
                self.persist.ask(last, false);
            }
            (line.next_ticket(), had_failed)
        };
        self.publish.ring_room();
        if had_failed {
            self.persist.wait_for_leader().await;
            return Ok(());
        }
        self.lead_elsewhere();
        let written = self.persist.wait(end, false).await;
        let leader = self.lead_alone().await;
        written.map_err(|()| Error::new(ErrorKind::Io, "the log failed while the database was closed"))?;
        self.around.env.run_blocking(move |_| leader.files().end()).await
    }

    /// Returns true if the log failed and writes are refused.
    pub fn is_failed(&self) -> bool {
        self.order.lock().refused().is_some()
    }

    /// Accepts writes again after a failure. The caller has sealed every memtable with the new log
    /// `first_log` ([`seal`](Self::seal)) and flushed it, and the MANIFEST needs no earlier log,
    /// because the sequence numbers of failed writes are a gap at which recovery would end.
    ///
    /// # Errors
    /// That log or a later one has failed too, no new log has replaced it, or the pipeline is
    /// closed.
    pub async fn resume(self: &Arc<Self>, first_log: FileNumber) -> Result<()> {
        self.wait_for_room(|pipeline| {
            pipeline.apply.settle();
            pipeline.has_published_all()
        })
        .await;
        if !self.is_failed() {
            return Ok(());
        }
        let leader = self.lead_alone().await;
        {
            let mut files = leader.files();
            let mut line = self.order.lock();
            let logs = match line.resume(first_log)? {
                Resumed::NothingFailed => return Ok(()),
                Resumed::Behind(logs) => logs,
            };
            self.persist.recover(&mut files, logs, line.next_ticket());
            if line.has_switched() {
                // A seal has replaced `first_log` meanwhile, but that log is needed, and recovery
                // continues after it only if its beginning was written.
                self.persist.ask_for_switched_log();
            }
        }
        drop(leader); // which has the log led
        self.publish.ring_room();
        Ok(())
    }
}

/// Releases the lock on the log if locking it fails or is dropped.
struct LockedWal<'a, H: Host>(&'a Pipeline<H>);

impl<H: Host> Drop for LockedWal<'_, H> {
    fn drop(&mut self) {
        drop(self.0.unlock_wal());
    }
}
