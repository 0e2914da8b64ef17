//! Going on after a background error: by itself as often as the options have it, or because the user asks.
//!
//! Invariant: writes are accepted again only after everything that was in memory is in tables, in one change, and the MANIFEST needs no log that was written to before;
//! so it does not matter where a torn log ends.

use super::{Background, closed, given_up};
use crate::column_family::Family;
use crate::error::{ErrorKind, Result};
use crate::events::{FlushReason, LogLevel};
use crate::flush::{FamilyFlush, Phase, Sealed, Sealing};
use crate::health::{BackgroundError, BackgroundErrorReason, Reaction, Recovery, Severity};
use crate::pacing::race;
use crate::stats::{HistogramKind, Ticker};
use karst_format::ids::FileNumber;
use karst_io::Priority;
use std::sync::Arc;
use std::time::Duration;

impl Background {
    /// An error was reported, by whomever. Does not wait.
    pub(super) fn failed(self: &Arc<Self>, error: &BackgroundError, reaction: Reaction) {
        let stats = &self.parts.flush.stats;
        stats.tick(Ticker::ErrorHandlerBgErrorCount);
        if error.error.kind().is_io() {
            stats.tick(Ticker::ErrorHandlerBgIoErrorCount);
            if reaction == Reaction::Recover && error.error.kind() != ErrorKind::NoSpace {
                stats.tick(Ticker::ErrorHandlerBgRetryableIoErrorCount);
            }
        }
        self.parts.flush.events.background_error(error);
        self.notify();
        let Some(attempts) = self.attempts().filter(|_| reaction == Reaction::Recover) else { return };
        {
            let mut state = self.state.lock();
            if state.recovering || state.closing {
                return;
            }
            state.recovering = true;
        }
        let mut slot = RecoverySlot(Some(self.clone()));
        let this = self.clone();
        drop(self.env().spawn(Priority::High, async move {
            let mut next = Some(attempts);
            while let Some(attempts) = next {
                let recovered = this.recover_by_itself(attempts).await;
                next = if recovered { slot.give_back_unless_failed_again() } else { None };
            }
            drop(slot);
            this.schedule();
        }));
    }

    /// How often a recovery tries that nobody asked for; `None` if there is none.
    fn attempts(&self) -> Option<u32> {
        u32::try_from(self.options().max_bgerror_resume_count).ok().filter(|attempts| *attempts > 0)
    }

    /// Returns whether it has succeeded.
    async fn recover_by_itself(self: &Arc<Self>, attempts: u32) -> bool {
        let (tries, recovered) = self.try_to_recover(attempts).await;
        self.parts.flush.stats.measure(HistogramKind::ErrorHandlerAutoresumeRetryCount, u64::from(tries));
        recovered
    }

    /// Returns how often it has tried, and whether that helped.
    async fn try_to_recover(self: &Arc<Self>, attempts: u32) -> (u32, bool) {
        let pause = Duration::from_micros(self.options().bgerror_resume_retry_interval);
        self.parts.flush.stats.tick(Ticker::ErrorHandlerAutoresumeCount);
        for attempt in 0..attempts {
            // Why no attempt at once where there is no space: nothing has had the time to free any.
            let full =
                self.parts.health.current().is_some_and(|error| error.error.kind() == ErrorKind::NoSpace);
            if (attempt > 0 || full) && !self.sleep(pause).await {
                return (attempt, false);
            }
            while full && !self.may_have_space().await {
                if !self.sleep(pause).await {
                    return (attempt, false);
                }
            }
            self.parts.flush.stats.tick(Ticker::ErrorHandlerAutoresumeRetryTotalCount);
            match self.resume().await {
                Ok(()) => {
                    self.parts.flush.stats.tick(Ticker::ErrorHandlerAutoresumeSuccessCount);
                    return (attempt + 1, true);
                }
                Err(error) => {
                    let text = format_args!("attempt {} to resume failed: {error}", attempt + 1);
                    self.parts.flush.events.log(LogLevel::Warn, text);
                }
            }
            if self.parts.health.current().is_some_and(|error| error.severity >= Severity::Fatal) {
                return (attempt + 1, false);
            }
        }
        (attempts, false)
    }

    /// Whether there is room for what is in memory, as far as can be told.
    async fn may_have_space(&self) -> bool {
        let memory = |family: &Arc<Family>| {
            family.superversion().memtables().map(|memtable| memtable.memory_bytes() as u64).sum::<u64>()
        };
        let needed: u64 = self.parts.families.all().iter().map(memory).sum();
        let Some(path) = self.parts.flush.shared.directories.first().cloned() else { return true };
        // Why not an error: what cannot be told is found out by trying.
        let free = self.env().run_blocking(move |env| env.fs().free_bytes(&path)).await;
        free.ok().flatten().is_none_or(|free| free >= needed)
    }

    /// Sleeps; `false` if the database is being closed.
    pub(super) async fn sleep(&self, span: Duration) -> bool {
        let until = self.env().now() + span;
        loop {
            let changed = self.changed.listen();
            if self.state.lock().closing {
                return false;
            }
            let now = self.env().now();
            if now >= until {
                return true;
            }
            race(changed, karst_io::sleep(self.env(), until - now)).await;
        }
    }

    /// Goes on after a background error; nothing to do if there is none. If a recovery runs, its
    /// outcome counts. One that was begun goes on if this is dropped.
    ///
    /// # Errors
    /// The error is not one that can be overcome, or it, or another, came again.
    pub(crate) async fn resume(self: &Arc<Self>) -> Result<()> {
        let recovery = loop {
            let changed = self.changed.listen();
            let ended = self.parts.health.listen();
            if self.parts.health.current().is_none() {
                return Ok(());
            }
            match self.parts.health.begin_recovery()? {
                Some(recovery) => break recovery,
                None => drop(race(changed, ended).await),
            }
        };
        let slot = self.asked_slot().ok_or_else(closed)?;
        let this = self.clone();
        // Why a job of its own: a flush that ended with its caller would leave a change on its way
        // into the MANIFEST, and the next recovery would flush the same memtables once more.
        let task = self.env().spawn(Priority::High, async move {
            let outcome = this.recover(recovery).await;
            drop(slot);
            outcome
        });
        task.await.unwrap_or_else(|error| Err(given_up("a recovery", &error)))
    }

    async fn recover(self: &Arc<Self>, recovery: Recovery) -> Result<()> {
        let error = recovery.error().cloned();
        self.make_good(recovery).await?;
        if let Some(error) = error {
            self.parts.flush.events.recovered(&error);
        }
        self.parts.stalls.wake();
        self.notify();
        self.schedule();
        Ok(())
    }

    fn check_resumable(&self) -> Result<()> {
        let checked = self.parts.flush.pipeline.check_resumable();
        if let Err(error) = &checked {
            // Why reported: it is fatal, so nobody tries again.
            self.parts.health.report(error, BackgroundErrorReason::WriteCallback);
        }
        checked
    }

    async fn make_good(self: &Arc<Self>, recovery: Recovery) -> Result<()> {
        let _hurry = self.hurry();
        let from = recovery.error().map(|error| (error.severity, error.reason));
        if from != Some((Severity::Soft, BackgroundErrorReason::Compaction)) {
            self.check_resumable()?;
            let first_log = self.flush_everything().await?;
            // Why again: writes that were under way when something else failed may have met a log that fails, too.
            self.check_resumable()?;
            self.parts.flush.pipeline.resume(first_log).await?;
        }
        recovery.succeed()
    }

    /// Flushes all memtables of all families in one change that needs no log before the one it returns.
    async fn flush_everything(self: &Arc<Self>) -> Result<FileNumber> {
        let Sealed { families, log, largest_seq } = self.parts.flush.pipeline.seal(Sealing::All).await?;
        let (flushes, slot) = self
            .wait_for(|| {
                let mut state = self.state.lock();
                let busy = families.iter().any(|family| state.jobs(&self.options(), family).flushing);
                if busy || state.is_paused() {
                    return None;
                }
                // Why no further: a batch that is sealed later may have a part in a family that is
                // not among these.
                let flush = |family| FamilyFlush::of(&self.parts.flush.versions, family, Some(largest_seq));
                let flushes: Vec<FamilyFlush> = families.iter().filter_map(flush).collect();
                let slot = self.flush_slot(&mut state, &flushes);
                Some((flushes, slot))
            })
            .await;
        let outcome = self.parts.flush.run(flushes, Some(log), FlushReason::ErrorRecovery).await;
        drop(slot);
        for family in &families {
            self.look_at(family);
        }
        let gone = families.iter().any(|family| family.is_dropped());
        if matches!(&outcome, Err((Phase::Install, error)) if gone && error.kind() == ErrorKind::NotFound) {
            // Why: the change came behind the end of a family, and the others still need it.
            return Box::pin(self.flush_everything()).await;
        }
        outcome.map(|_| log).map_err(|(phase, error)| {
            if phase == Phase::Write {
                // Why reported: what it is now may be worse than what it was.
                self.parts.health.report(&error, BackgroundErrorReason::Flush);
            }
            error
        })
    }
}

/// The place of a recovery that runs by itself; there is one such place. It is empty once it is back.
struct RecoverySlot(Option<Arc<Background>>);

impl RecoverySlot {
    /// Gives the place back after a recovery that has succeeded. If an error has come since, it
    /// keeps the place and returns how often to try anew.
    ///
    /// Lock: it looks for an error and gives the place back under one lock, `state`.
    /// [`Background::failed`] looks at the place under the same lock, after its error was noted. So
    /// either this sees the error, or whoever reports it finds the place free.
    fn give_back_unless_failed_again(&mut self) -> Option<u32> {
        let background = self.0.as_ref()?;
        let attempts = background.attempts();
        let mut state = background.state.lock();
        let error = background.parts.health.current().filter(|error| error.severity < Severity::Fatal);
        if attempts.is_some() && error.is_some() && !state.closing {
            return attempts;
        }
        state.recovering = false;
        drop(state);
        background.notify();
        self.0 = None;
        None
    }
}

impl Drop for RecoverySlot {
    fn drop(&mut self) {
        if let Some(background) = self.0.take() {
            background.state.lock().recovering = false;
            background.notify();
        }
    }
}
