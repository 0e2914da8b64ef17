//! Logs of a pipeline that takes writes: exchanged together with memtables, flushed and synced,
//! locked, closed, and taken into use again after one has failed.
//!
//! In: new logs, made before anyone waits for them; requests of jobs and users. Out: what is
//! durable, and which logs there are.
//!
//! Lock: as in the module above. Whoever resumes has the files, which no leader has then, and the
//! order lock.

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
    /// Ends the memtables, and the log that takes writes now if it has any record or has failed;
    /// then `spare` takes its place. `exchange` is called under the order lock with the seal for
    /// every memtable that it exchanges; it calls `Family::seal` for each and does nothing else.
    /// Writes ordered before go to the old ones, writes ordered later to the new ones. A log
    /// without records goes on, the seal names it, and `spare` stays where it is.
    ///
    /// Returns `None`, and has done nothing, if a new log is needed and `spare` has none.
    ///
    /// A sealed memtable may be flushed once `visible_seq` has reached `largest_seq`:
    /// [`wait_until_visible`](Self::wait_until_visible).
    ///
    /// Invariant: whether a log is needed is decided here, under the order lock, and nowhere else.
    /// A seal names a log that has nothing of what is sealed, or recovery would replay it a second
    /// time.
    ///
    /// # Errors
    /// The pipeline is closed; the beginning of the new log could not be framed; its number is not
    /// above that of the present one, and recovery reads logs in the order of their numbers.
    /// Nothing was exchanged.
    pub fn seal<T>(
        self: &Arc<Self>,
        spare: &mut Option<NewLog>,
        exchange: impl FnOnce(Seal) -> T,
    ) -> Result<Option<T>> {
        let mut line = self.order.lock();
        let Some(switches) = line.switch(spare)? else { return Ok(None) };
        if switches {
            self.persist.ask_errand();
        }
        let outcome = exchange(Seal { largest_seq: line.last_seq(), next_log: line.log() });
        let refused = line.refused().is_some();
        drop(line);
        // Why: writes wait for a memtable that was overfull to be sealed.
        self.publish.ring_room();
        if switches && !refused {
            // Why: what gathered for the old log under `manual_wal_flush` has no other way out, and
            // the old file can be let go.
            self.lead_elsewhere();
        }
        Ok(Some(outcome))
    }

    /// Whether a [`seal`](Self::seal) would need a new log now. A hint: the seal itself decides.
    pub fn needs_new_log(&self) -> bool {
        self.order.lock().needs_new_log()
    }

    /// Whether any write went to a memtable without a record.
    pub fn has_unlogged(&self) -> bool {
        self.order.lock().has_unlogged()
    }

    /// How new logs are written; for [`NewLog::create`].
    pub fn log_options(&self) -> LogOptions {
        self.rules.log
    }

    /// Has all that was ordered so far leave the process, and with `sync` reach the device; all
    /// older logs that are still needed too.
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

    /// Orders nothing from now on, until the lock is given back as often as it was taken. What was
    /// ordered before has left the process when this returns, and is visible.
    ///
    /// # Errors
    /// As [`flush_wal`](Self::flush_wal); it is not locked then.
    pub async fn lock_wal(self: &Arc<Self>) -> Result<()> {
        self.order.lock().lock_wal();
        let locked = LockedWal(self);
        // Why first: what is being ingested takes its numbers from here.
        self.wait_until_not_held().await;
        let last_seq = self.order.lock().last_seq();
        self.flush_wal(false).await?;
        self.wait_until_visible(last_seq).await;
        std::mem::forget(locked);
        Ok(())
    }

    /// Gives the lock on the log back.
    ///
    /// # Errors
    /// It is not locked.
    pub fn unlock_wal(&self) -> Result<()> {
        self.order.lock().unlock_wal()?;
        self.publish.ring_room();
        Ok(())
    }

    /// The newest log when one failed last.
    pub fn failed_log(&self) -> FileNumber {
        self.order.lock().failed_log()
    }

    /// The logs that are open for writing or were since the database was opened and are needed,
    /// each with how many of its bytes have left the process; the last is the newest. Those are
    /// whole records.
    ///
    /// # Errors
    /// The database is closed.
    pub async fn written_logs(&self) -> Result<Vec<(FileNumber, u64)>> {
        // Invariant: nobody writes while this has the files, so no log is seen in the middle of a
        // round. Why only tried: a leader has them while it writes.
        let files = loop {
            self.persist.wait_for_leader().await;
            // Why: closing has the files while it ends the log, and leads nobody.
            self.order.lock().check_open()?;
            match self.persist.try_files() {
                Some(files) => break files,
                // Why: who has just led may have them still, and need the processor to let go.
                None => let_others_run(),
            }
        };
        let newest = files.newest();
        let mut logs = self.order.lock().older_logs().to_vec();
        logs.retain(|(number, _)| *number < newest.0);
        logs.push(newest);
        Ok(logs)
    }

    /// Has every decision that was ordered so far about what was inserted undecided reach the
    /// device. Without such a decision it does nothing.
    ///
    /// # Errors
    /// As [`flush_wal`](Self::flush_wal).
    pub async fn sync_decisions(self: &Arc<Self>) -> Result<()> {
        if self.persist.decisions_are_synced() { Ok(()) } else { self.flush_wal(true).await }
    }

    /// Says that logs below `number` are needed no more: their files are closed unsynced.
    pub fn release_logs(&self, number: FileNumber) {
        self.order.lock().release_logs(number);
        self.persist.release(number);
    }

    /// Takes no more writes, has all that was ordered leave the process, and gives back the space
    /// that the log does not use. When this returns, with an error too, nobody writes to a log any
    /// more.
    ///
    /// # Errors
    /// The log failed now. What failed before was told before.
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
        self.persist.wait_for_leader().await;
        written.map_err(|()| Error::new(ErrorKind::Io, "the log failed while the database was closed"))?;
        let pipeline = self.clone();
        self.around.env.run_blocking(move |_| pipeline.persist.files().end()).await
    }

    /// Whether the log failed and the pipeline takes no writes.
    pub fn is_failed(&self) -> bool {
        self.order.lock().refused().is_some()
    }

    /// Takes writes again after a failure. Before it, every memtable was sealed with the new log
    /// `first_log` ([`seal`](Self::seal)) and flushed, and the MANIFEST needs no log before that:
    /// the sequence numbers of failed writes are a hole at which recovery would end.
    ///
    /// # Errors
    /// That log, or one behind it, has failed as well, or no new log took its place; the pipeline
    /// is closed.
    pub async fn resume(self: &Arc<Self>, first_log: FileNumber) -> Result<()> {
        self.wait_for_room(|pipeline| {
            pipeline.apply.settle();
            pipeline.has_published_all()
        })
        .await;
        if !self.is_failed() {
            return Ok(());
        }
        // Why: a leader has the files for as long as it writes and syncs. None writes behind it
        // while writes are refused.
        self.persist.wait_for_leader().await;
        {
            let mut files = self.persist.files();
            let mut line = self.order.lock();
            let logs = match line.resume(first_log)? {
                Resumed::NothingFailed => return Ok(()),
                Resumed::Behind(logs) => logs,
            };
            self.persist.recover(&mut files, logs, line.next_ticket());
            if line.has_switched() {
                // Why: a seal has replaced `first_log` meanwhile, but it is needed, and recovery
                // goes on behind it only if it has its beginning.
                self.persist.ask_errand();
            }
        }
        self.lead_elsewhere();
        self.publish.ring_room();
        Ok(())
    }
}

/// Gives the lock on the log back where whoever took it fails or is given up.
struct LockedWal<'a, H: Host>(&'a Pipeline<H>);

impl<H: Host> Drop for LockedWal<'_, H> {
    fn drop(&mut self) {
        drop(self.0.unlock_wal());
    }
}
