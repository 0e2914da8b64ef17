//! Jobs that closing waits for; waiting for background work, pausing it, ending it.

use super::aborts::aborted;
use super::flushes::AskedSlot;
use super::{Background, State, cancelled, closed};
use crate::sealing::Sealing;
use karst_base::error::{Error, ErrorKind, Result, caught};
use karst_base::events::FlushReason;
use karst_base::pacing::{Raced, race};
use karst_base::sync::atomic::Ordering;
use karst_io::Priority;
use karst_storage::column_family::Family;
use karst_storage::memtable::MemTable;
use std::sync::Arc;
use std::time::Duration;

/// Options of a manual flush, with RocksDB's names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushOptions {
    /// Return when the entries are in tables, instead of when the flush is scheduled. Default true.
    pub wait: bool,
    /// Begin at once even if this slows writers down. Default false.
    pub allow_write_stall: bool,
    /// Flush all families of the call as of one moment and in one change, regardless of
    /// `atomic_flush`. Default false.
    pub force_atomic_flush: bool,
    /// With `wait`, also wait until listeners have been notified of the flush. Default false.
    pub listener_wait: bool,
}

impl FlushOptions {
    /// The defaults, with `allow_write_stall`.
    pub(crate) const AT_ONCE: FlushOptions =
        FlushOptions { allow_write_stall: true, ..FlushOptions::DEFAULT };

    const DEFAULT: FlushOptions = FlushOptions {
        wait: true,
        allow_write_stall: false,
        force_atomic_flush: false,
        listener_wait: false,
    };
}

impl Default for FlushOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Options of waiting for compactions, with RocksDB's names and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitForCompactOptions {
    /// Fail instead of waiting if background work is paused. Default false.
    pub abort_on_pause: bool,
    /// Flush all memtables first. Default false.
    pub flush: bool,
    /// Close the database afterwards, unless waiting has failed. Entries in no log are flushed
    /// first, like in closing. Default false.
    pub close_db: bool,
    /// Maximum time to wait; zero for no limit. Default zero.
    pub timeout: Duration,
}

impl Background {
    /// Counts a call that creates files in the directory on its caller's thread: closing waits
    /// until the result is dropped.
    ///
    /// # Errors
    /// `Closed`: the database is being closed.
    pub(crate) fn counted(self: &Arc<Self>) -> Result<AskedSlot> {
        self.asked_slot().ok_or_else(closed)
    }

    /// Runs `work`, called `what` in errors, as a job of the database: it continues if the result
    /// is dropped, and closing waits for it.
    ///
    /// Files in the directory are created by such jobs, because closing does not wait for a
    /// caller's future, and once the database is closed the directory may belong to another opener.
    ///
    /// # Errors
    /// `Closed`: the database is being closed. `Panicked`: the work did. Otherwise those of `work`.
    pub(crate) async fn job<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let slot = self.counted()?;
        let this = self.clone();
        let task = self.env().spawn(Priority::High, async move {
            // Invariant: leftover files are removed, or handed to their remover, before the slot is
            // released.
            let outcome = caught(what, work).await;
            drop(slot);
            this.schedule();
            outcome
        });
        task.await.unwrap_or_else(|error| Err(Error::of_task(what, &error)))
    }

    /// Flushes the current memtables of the families that `which` names.
    ///
    /// # Errors
    /// There is a background error, an earlier one or a new one; the database is closed.
    pub(crate) async fn flush_families(
        self: &Arc<Self>,
        which: Sealing,
        options: FlushOptions,
        reason: FlushReason,
    ) -> Result<()> {
        self.check_works()?;
        self.parts.health.check_writes()?;
        let _hurry = options.wait.then(|| self.hurry());
        if let (Sealing::Of(families), false) = (&which, options.allow_write_stall) {
            for family in families {
                self.wait_until_flush_would_not_stall(family).await?;
            }
        }
        let failed_before = self.state.lock().failed_flushes;
        let sealed = self.seal(which, reason, options.force_atomic_flush).await?;
        let events = &self.parts.flush.events;
        if reason == FlushReason::ManualFlush && events.has_listeners() {
            let names: Vec<String> = sealed.iter().map(|(family, _)| family.config.name.clone()).collect();
            events.manual_flush_scheduled(&names);
        }
        if !options.wait {
            return Ok(());
        }
        self.wait_flushed(&sealed, failed_before).await?;
        if options.listener_wait {
            self.wait_told(&sealed).await;
        }
        Ok(())
    }

    /// Waits until the begun flushes of these families have ended, including their notifications.
    async fn wait_told(self: &Arc<Self>, sealed: &[(Arc<Family>, Vec<Arc<MemTable>>)]) {
        let begun: Vec<_> = {
            let state = self.state.lock();
            let jobs = sealed
                .iter()
                .filter_map(|(family, _)| Some((family.id(), state.families.get(&family.id())?)));
            jobs.map(|(id, jobs)| (id, jobs.flushes_begun)).collect()
        };
        self.wait_for(|| {
            let state = self.state.lock();
            let ended = |id, begun| state.families.get(&id).is_none_or(|jobs| jobs.flushes_ended >= begun);
            begun.iter().all(|(id, begun)| ended(*id, *begun)).then_some(())
        })
        .await;
    }

    async fn wait_until_flush_would_not_stall(self: &Arc<Self>, family: &Arc<Family>) -> Result<()> {
        self.wait_for(|| {
            if let Err(error) = self.check_works().and_then(|()| self.parts.health.check_writes()) {
                return Some(Err(error));
            }
            // The second condition, because without a job the wait would never end.
            let hopeless = !self.works_for(family);
            (family.is_dropped() || hopeless || !self.flush_would_stall(family)).then_some(Ok(()))
        })
        .await
    }

    /// Returns true if a job that reduces the family's backlog runs, or is about to.
    fn works_for(&self, family: &Arc<Family>) -> bool {
        let mut state = self.state.lock();
        let busy = state.flushes > 0 || state.compactions > 0 || state.asked > 0;
        let jobs = state.jobs(&self.options(), family);
        busy || jobs.flushing || !jobs.running.is_empty()
    }

    /// Waits until these memtables are in tables. A failed flush ends the wait, although it is
    /// retried: with `paranoid_checks=false` that may go on forever.
    async fn wait_flushed(
        self: &Arc<Self>,
        sealed: &[(Arc<Family>, Vec<Arc<MemTable>>)],
        failed_before: u64,
    ) -> Result<()> {
        self.wait_for(|| {
            let is_left = |(family, memtables): &&(Arc<Family>, Vec<Arc<MemTable>>)| {
                let view = family.superversion();
                let holds = |memtable| view.immutable().iter().any(|held| Arc::ptr_eq(held, memtable));
                !family.is_dropped() && memtables.iter().any(holds)
            };
            let mut left = sealed.iter().filter(is_left).peekable();
            if left.peek().is_none() {
                return Some(Ok(()));
            }
            let state = self.state.lock();
            let jobs: Vec<_> = left.filter_map(|(family, _)| state.families.get(&family.id())).collect();
            let failed = jobs.iter().find_map(|jobs| {
                let (number, error) = jobs.flush_failure.as_ref()?;
                (*number > failed_before).then(|| error.clone())
            });
            let runs = jobs.iter().any(|jobs| jobs.flushing);
            drop(state);
            // Not every error, because a soft one leaves flushes running. A running flush is
            // awaited in any case, because it may be the one that has reached the space limit.
            let stopped = match runs || self.parts.health.allows_flush() {
                true => None,
                false => self.parts.health.current(),
            };
            let error = stopped.map(|stopped| stopped.error).or(failed);
            error.map(|error| Err(error.in_context("flush"))).or_else(|| self.check_works().err().map(Err))
        })
        .await
    }

    /// Returns an error if the database is being closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.state.lock().closing { Err(closed()) } else { Ok(()) }
    }

    /// Returns an error if the database is being closed, or its jobs were cancelled.
    pub(super) fn check_works(&self) -> Result<()> {
        let state = self.state.lock();
        match (state.closing, state.cancelled) {
            (true, _) => Err(closed()),
            (false, true) => Err(cancelled()),
            (false, false) => Ok(()),
        }
    }

    /// Returns the output of `future`, which is dropped as soon as the database is being closed.
    ///
    /// # Errors
    /// Those of `future`; the database is being closed.
    pub(crate) async fn while_open<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let closing = Box::pin(self.wait_for(|| self.check_open().err()));
        match race(Box::pin(future), closing).await {
            Raced::First(outcome) => outcome,
            Raced::Second(closed) => Err(closed),
        }
    }

    /// Lets running jobs end and starts no others until [`unpause`](Self::unpause). Calls nest. A
    /// call that is dropped before it ends has no effect.
    pub(crate) async fn pause(self: &Arc<Self>) {
        self.state.lock().paused += 1;
        let mut counts = UnpauseOnDrop(Some(self.clone()));
        let _hurry = self.hurry();
        self.notify();
        self.wait_for(|| self.state.lock().has_no_job().then_some(())).await;
        counts.0 = None;
    }

    /// Undoes one [`pause`](Self::pause).
    ///
    /// # Errors
    /// Background work is not paused.
    pub(crate) fn unpause(self: &Arc<Self>) -> Result<()> {
        {
            let mut state = self.state.lock();
            if state.paused == 0 {
                return Err(Error::invalid_argument("background work is not paused"));
            }
            state.paused -= 1;
        }
        self.notify();
        self.schedule();
        Ok(())
    }

    /// Waits until no flush and no automatic compaction is pending.
    ///
    /// # Errors
    /// A background error, the end of the database, `TimedOut`, or with `abort_on_pause` a pause of
    /// background work.
    pub(crate) async fn wait_for_compact(self: &Arc<Self>, options: WaitForCompactOptions) -> Result<()> {
        if options.abort_on_pause && self.state.lock().is_paused() {
            // Checked first, because a flush would wait for the end of the pause.
            return Err(paused());
        }
        if options.flush {
            self.flush_families(Sealing::All, FlushOptions::AT_ONCE, FlushReason::ManualFlush).await?;
        } else if options.close_db {
            // Flushed first, because compactions that it makes due are waited for.
            self.flush_unlogged().await?;
        }
        let _hurry = self.hurry();
        self.schedule();
        let waiting = Box::pin(self.wait_for(|| self.settled(options.abort_on_pause)));
        if options.timeout.is_zero() {
            return waiting.await;
        }
        match race(waiting, karst_io::sleep(self.env(), options.timeout)).await {
            Raced::First(outcome) => outcome,
            Raced::Second(_) => Err(Error::new(ErrorKind::TimedOut, "compactions have not ended in time")),
        }
    }

    fn settled(self: &Arc<Self>, abort_on_pause: bool) -> Option<Result<()>> {
        if let Err(error) = self.check_works() {
            return Some(Err(error));
        }
        if let Some(error) = self.parts.health.current() {
            return Some(Err(error.error));
        }
        let mut state = self.state.lock();
        if let Some(wanted) = &state.room_wanted {
            return Some(Err(wanted.error.clone()));
        }
        let mut waiting = state.families.values().filter_map(|jobs| jobs.no_room.as_ref());
        if let Some(error) = waiting.next() {
            return Some(Err(error.clone()));
        }
        if state.is_paused() {
            return abort_on_pause.then(|| Err(paused()));
        }
        if state.aborted > 0 {
            return Some(Err(aborted()));
        }
        let resting = state.families.values().any(|jobs| self.env().now() < jobs.rests_until);
        let idle = state.is_idle() && !resting && !self.parts_pending(&mut state);
        idle.then_some(Ok(()))
    }

    /// Returns true if a sealed memtable is due to be flushed.
    fn parts_pending(&self, state: &mut State) -> bool {
        self.parts.families.all().iter().any(|family| {
            let sealed = family.superversion().immutable().len();
            let fewest =
                usize::try_from(family.settings().options.min_write_buffer_number_to_merge).unwrap_or(1);
            let wanted = state.jobs(&self.options(), family).flush_wanted.is_some();
            sealed > 0 && (wanted || sealed >= fewest) && !family.is_dropped()
        })
    }

    /// Starts no flush, compaction or recovery any more, and cancels the running ones. Entries in
    /// no log are flushed first unless the options disable that. With `wait` no job runs when it
    /// returns. Writers continue until they would have to wait for a job.
    ///
    /// # Errors
    /// Entries in no log could not be flushed; jobs are cancelled regardless.
    pub(crate) async fn cancel_all(self: &Arc<Self>, wait: bool) -> Result<()> {
        let flushed = self.flush_unlogged().await;
        {
            let mut state = self.state.lock();
            state.cancelled = true;
            state.families.values().flat_map(|jobs| &jobs.progress).for_each(|progress| progress.cancel());
        }
        self.parts.flush.cancelled.store(true, Ordering::Release);
        self.parts.stalls.abandon();
        self.notify();
        if wait {
            let _hurry = self.hurry();
            self.wait_for(|| {
                let state = self.state.lock();
                (state.has_no_job() && state.settling == 0 && !state.recovering).then_some(())
            })
            .await;
        }
        flushed
    }

    /// Flushes entries in no log unless the options disable that. Those written during the closing
    /// may be lost, which `disable_wal` permits.
    async fn flush_unlogged(self: &Arc<Self>) -> Result<()> {
        let flushes = !self.options().avoid_flush_during_shutdown;
        if flushes && self.check_open().is_ok() && self.parts.flush.pipeline.has_unlogged() {
            self.flush_families(Sealing::All, FlushOptions::AT_ONCE, FlushReason::ShutDown).await?;
        }
        Ok(())
    }

    /// Ends background work: no job begins any more, running ones are cancelled, and writers are
    /// refused. The contents of the log stay there; entries in no log are flushed first unless the
    /// options disable that.
    ///
    /// # Errors
    /// Entries in no log could not be flushed; everything has ended regardless.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        let _hurry = self.hurry();
        // Set first, because the flush would otherwise wait for the end of a pause.
        self.state.lock().ending = true;
        let outcome = self.flush_unlogged().await;
        {
            let mut state = self.state.lock();
            state.closing = true;
            state.families.values().flat_map(|jobs| &jobs.progress).for_each(|progress| progress.cancel());
        }
        // Jobs that can be cancelled are not awaited, because their entries are in the log, where
        // the next opening finds them.
        self.parts.flush.cancelled.store(true, Ordering::Release);
        self.parts.stalls.shut();
        self.notify();
        self.wait_for(|| {
            let state = self.state.lock();
            (state.is_idle() && !state.keeps_time && !state.opens_files).then_some(())
        })
        .await;
        self.parts.flush.events.written().await;
        outcome
    }

    /// Returns the numbers of running flushes and running compactions.
    pub(crate) fn running(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.flushes, state.compactions)
    }

    /// Returns true if a flush of the family is due or requested.
    pub(crate) fn flush_pending(&self, family: &Family) -> bool {
        let sealed = family.superversion().immutable().len();
        let fewest =
            usize::try_from(family.settings().options.min_write_buffer_number_to_merge).unwrap_or(1).max(1);
        let mut state = self.state.lock();
        let wanted = state.jobs(&self.options(), family).flush_wanted.is_some();
        sealed >= fewest || (sealed > 0 && wanted)
    }
}

fn paused() -> Error {
    Error::new(ErrorKind::Incomplete, "background work is paused")
}

/// Undoes a pause whose caller no longer waits for it.
struct UnpauseOnDrop(Option<Arc<Background>>);

impl Drop for UnpauseOnDrop {
    fn drop(&mut self) {
        if let Some(background) = self.0.take() {
            // Ignored, because another caller may have undone it already.
            let _ = background.unpause();
        }
    }
}
