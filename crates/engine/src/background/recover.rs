//! Recovery from background errors: automatically, as often as the options allow, or on request of
//! the user.
//!
//! Invariant: writes are accepted again only after all entries that were in memory are in tables,
//! in one change, and the MANIFEST needs no log that was written before; therefore the position of
//! a torn log's end is irrelevant.

use super::{Background, cancelled, closed};
use crate::flush::{FamilyFlush, Phase};
use crate::sealing::{Sealed, Sealing};
use crate::versions::Change;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::events::{FlushReason, LogLevel};
use karst_base::health::{BackgroundError, BackgroundErrorReason, Reaction, Recovery, Severity};
use karst_base::pacing::race;
use karst_base::sst_file_manager::SstFileManager;
use karst_base::stats::{HistogramKind, Ticker};
use karst_format::ids::FileNumber;
use karst_io::{Env, Priority};
use karst_storage::column_family::Family;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Minimum pause between two checks for space.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Maximum pause between attempts, unless the option is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Returns the pause before the next attempt to recover, after `vain_attempts` failed ones: first
/// the option's, then twice as long each time.
fn pause_after(vain_attempts: u32, pause: Duration) -> Duration {
    let factor = 1u32.checked_shl(vain_attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    pause.saturating_mul(factor).min(LONGEST_PAUSE.max(pause))
}

impl Background {
    /// Called when an error was reported. Does not wait.
    pub(super) fn failed(self: &Arc<Self>, error: &BackgroundError, reaction: Reaction) {
        let stats = &self.parts.flush.stats;
        stats.tick(Ticker::ErrorHandlerBgErrorCount);
        if error.error.kind().is_io() {
            stats.tick(Ticker::ErrorHandlerBgIoErrorCount);
            if reaction == Reaction::Recover && !error.error.kind().lacks_space() {
                stats.tick(Ticker::ErrorHandlerBgRetryableIoErrorCount);
            }
        }
        self.parts.flush.events.background_error(error);
        self.notify();
        let Some(attempts) = self.attempts().filter(|_| reaction == Reaction::Recover) else { return };
        {
            let mut state = self.state.lock();
            if state.recovering || state.closing || state.cancelled {
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

    /// Returns the maximum number of attempts of an automatic recovery, or None if it is disabled.
    fn attempts(&self) -> Option<u32> {
        u32::try_from(self.options().max_bgerror_resume_count).ok().filter(|attempts| *attempts > 0)
    }

    /// Runs an automatic recovery. Returns true if it has succeeded.
    async fn recover_by_itself(self: &Arc<Self>, attempts: u32) -> bool {
        let (tries, recovered) = self.try_to_recover(attempts).await;
        self.parts.flush.stats.measure(HistogramKind::ErrorHandlerAutoresumeRetryCount, u64::from(tries));
        recovered
    }

    /// Returns the number of attempts, and true if one succeeded.
    async fn try_to_recover(self: &Arc<Self>, attempts: u32) -> (u32, bool) {
        // At least this long, because without a pause this would keep a thread busy.
        let pause = Duration::from_micros(self.options().bgerror_resume_retry_interval).max(SHORTEST_PAUSE);
        self.parts.flush.stats.tick(Ticker::ErrorHandlerAutoresumeCount);
        for attempt in 0..attempts {
            let vain = self.state.lock().vain_attempts;
            // No immediate attempt without space, because no job had time to free any.
            let waits = vain > 0 || self.lacks_space().is_some();
            if waits && !self.rest(pause_after(vain, pause), pause).await {
                return (attempt, false);
            }
            // Read again each time, because a worse error may have come, which needs less space.
            let mut vain_looks = 0;
            while let Some(error) = self.lacks_space()
                && !self.has_room_for(&error).await
            {
                // A longer pause each time after an error of the MANIFEST, because that check
                // writes a MANIFEST, and the others write nothing.
                vain_looks += u32::from(error.reason.is_of_manifest());
                if !self.rest(pause_after(vain_looks, pause), pause).await {
                    return (attempt, false);
                }
            }
            self.state.lock().vain_attempts = vain.saturating_add(1);
            self.parts.flush.stats.tick(Ticker::ErrorHandlerAutoresumeRetryTotalCount);
            match self.resume().await {
                Ok(()) => {
                    self.parts.flush.stats.tick(Ticker::ErrorHandlerAutoresumeSuccessCount);
                    if self.compactions_go_on(pause).await {
                        return (attempt + 1, true);
                    }
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

    /// Pauses before the next attempt; if space is lacking, only until some has been freed, checked
    /// each `interval`. `false` like [`sleep`](Self::sleep).
    ///
    /// Not the full pause then, because it has grown while the disk was full, and is unrelated to
    /// the time at which space is freed.
    async fn rest(&self, span: Duration, interval: Duration) -> bool {
        let until = self.env().now() + span;
        // After the first interval, because the output of a failed attempt is still being removed.
        let mut free_then = None;
        loop {
            let left = until.saturating_sub(self.env().now());
            if left.is_zero() {
                return true;
            }
            if !self.sleep(left.min(interval)).await {
                return false;
            }
            if self.lacks_space().is_none() || left <= interval {
                continue;
            }
            let free = self.free_bytes().await;
            let memory = self.in_memory();
            let has_grown =
                |then: &[u64]| then.iter().zip(&free).any(|(then, now)| *now >= then.saturating_add(memory));
            match &free_then {
                None => free_then = Some(free),
                Some(then) if has_grown(then) => return true,
                Some(_) => {}
            }
        }
    }

    /// Returns the bytes of all memtables.
    fn in_memory(&self) -> u64 {
        let memory = |family: &Arc<Family>| {
            family.superversion().memtables().map(|memtable| memtable.memory_bytes() as u64).sum::<u64>()
        };
        self.parts.families.all().iter().map(memory).sum()
    }

    /// Returns the directories that flushes write to.
    fn first_directories(&self) -> Vec<PathBuf> {
        let mut first: Vec<_> = self.parts.families.all().iter().map(first_directory).collect();
        first.sort_unstable();
        first.dedup();
        first
    }

    /// Returns the free bytes of the directories that flushes and logs are written to, where known.
    async fn free_bytes(&self) -> Vec<u64> {
        let mut directories = self.first_directories();
        directories
            .extend(Some(PathBuf::from(&self.options().wal_dir)).filter(|path| path.parent().is_some()));
        let free = move |env: &Env| {
            let free = |path: &PathBuf| env.fs().free_bytes(path).ok().flatten().unwrap_or_default();
            directories.iter().map(free).collect()
        };
        self.env().run_blocking(free).await
    }

    /// Returns the current error if it is one of lacking space.
    fn lacks_space(&self) -> Option<BackgroundError> {
        self.parts.health.current().filter(|error| error.error.kind().lacks_space())
    }

    /// Waits for the space that compactions need, while all other work continues. `false` if
    /// another error came first.
    async fn compactions_go_on(self: &Arc<Self>, pause: Duration) -> bool {
        loop {
            let Some(wanted) = self.state.lock().room_wanted.clone() else { return true };
            if self.parts.health.current().is_some() {
                return false;
            }
            if self.has_room(wanted.directory.clone(), wanted.bytes).await {
                self.state.lock().room_wanted = None;
                return true;
            }
            if !self.sleep(pause).await {
                return true;
            }
        }
    }

    /// Returns true if there seems to be space for the failed job: for the compaction, or for the
    /// memtables.
    async fn has_room_for(&self, failed: &BackgroundError) -> bool {
        if failed.reason.is_of_manifest() {
            // While the files named by the MANIFEST are uncertain, none is removed, not even the
            // output of the failed job. A new MANIFEST, which is small, resolves that. The outcome
            // is ignored, because the recovery writes another one.
            let _ = self.parts.flush.versions.install(Change::default()).await;
        }
        if failed.error.kind() == ErrorKind::SpaceLimit {
            return self.check_space().is_ok();
        }
        if failed.reason == BackgroundErrorReason::Compaction {
            let wanted = self.state.lock().room_wanted.clone();
            return match wanted {
                Some(wanted) => self.has_room(wanted.directory.clone(), wanted.bytes).await,
                None => true,
            };
        }
        let bytes = self.in_memory();
        for directory in self.first_directories() {
            if !self.has_room(directory, bytes).await {
                return false;
            }
        }
        true
    }

    /// Returns an error while the files have reached the space limit.
    fn check_space(&self) -> Result<()> {
        self.parts.flush.shared.space.as_ref().map_or(Ok(()), SstFileManager::check)
    }

    /// Returns true if this many bytes are free in the directory, or if that is unknown.
    async fn has_room(&self, path: PathBuf, bytes: u64) -> bool {
        // Unknown counts as free, because the attempt will show it.
        let free = self.env().run_blocking(move |env| env.fs().free_bytes(&path)).await;
        free.ok().flatten().is_none_or(|free| free >= bytes)
    }

    /// Sleeps; `false` if the database is being closed, or its jobs were cancelled.
    pub(super) async fn sleep(&self, span: Duration) -> bool {
        let until = self.env().now() + span;
        loop {
            let changed = self.changed.listen();
            if self.check_works().is_err() {
                return false;
            }
            let now = self.env().now();
            if now >= until {
                return true;
            }
            race(changed, karst_io::sleep(self.env(), until - now)).await;
        }
    }

    /// Recovers from a background error; does nothing without one. If a recovery runs, waits for
    /// its outcome. A started recovery continues if this is dropped.
    ///
    /// # Errors
    /// The error cannot be overcome, or it, or another, occurred again.
    pub(crate) async fn resume(self: &Arc<Self>) -> Result<()> {
        let recovery = loop {
            let changed = self.changed.listen();
            let ended = self.parts.health.listen();
            if self.parts.health.current().is_none() {
                return Ok(());
            }
            self.check_works()?;
            match self.parts.health.begin_recovery()? {
                Some(recovery) => break recovery,
                None => drop(race(changed, ended).await),
            }
        };
        let slot = self.asked_slot().ok_or_else(closed)?;
        let this = self.clone();
        // In its own job, because a flush that ended with its caller would leave a change on its
        // way into the MANIFEST, and the next recovery would flush the same memtables again.
        let task = self.env().spawn(Priority::High, async move {
            let outcome = this.recover(recovery).await;
            drop(slot);
            outcome
        });
        task.await.unwrap_or_else(|error| Err(Error::of_task("a recovery", &error)))
    }

    async fn recover(self: &Arc<Self>, recovery: Recovery) -> Result<()> {
        let error = recovery.error().cloned();
        let events = &self.parts.flush.events;
        if let Some(error) = &error {
            events.error_recovery_begun(error);
        }
        let outcome = self.make_good(recovery).await;
        if let Some(error) = &error {
            events.error_recovery_ended(error, outcome.as_ref().err());
        }
        outcome?;
        if let Some(error) = error {
            self.attempt_succeeded(error.reason);
            self.parts.flush.events.recovered(&error);
        }
        self.parts.stalls.wake();
        self.notify();
        self.schedule();
        Ok(())
    }

    fn attempt_succeeded(&self, from: BackgroundErrorReason) {
        let mut state = self.state.lock();
        let compacts = from == BackgroundErrorReason::Compaction;
        if !compacts {
            // Not after an error of a compaction, because the compaction has yet to succeed.
            state.vain_attempts = 0;
        }
        // Not during an automatic recovery otherwise, because that checks for the compactions'
        // space.
        if compacts || !state.recovering {
            state.room_wanted = None;
        }
    }

    fn check_resumable(&self) -> Result<()> {
        let checked = self.parts.flush.pipeline.check_resumable();
        if let Err(error) = &checked {
            // Reported, because it is fatal, so no further attempt follows.
            self.parts.health.report(error, BackgroundErrorReason::WriteCallback);
        }
        checked
    }

    async fn make_good(self: &Arc<Self>, recovery: Recovery) -> Result<()> {
        let _hurry = self.hurry();
        if recovery.error().is_some_and(|error| error.error.kind() == ErrorKind::SpaceLimit) {
            self.check_space()?;
        }
        let from = recovery.error().map(|error| (error.severity, error.reason));
        if from != Some((Severity::Soft, BackgroundErrorReason::Compaction)) {
            self.check_resumable()?;
            let first_log = self.flush_everything().await?;
            // Checked again, because writes that were in progress when another job failed may also
            // have met a failing log.
            self.check_resumable()?;
            self.parts.flush.pipeline.resume(first_log).await?;
        }
        recovery.succeed()
    }

    /// Flushes all memtables of all families in one change that needs no log before the returned
    /// one.
    async fn flush_everything(self: &Arc<Self>) -> Result<FileNumber> {
        let Sealed { families, log, largest_seq, .. } = self.parts.flush.pipeline.seal(Sealing::All).await?;
        // At once, because the seal has stopped writers until the stalls of its families are
        // known, and the flush below may have to wait.
        families.iter().for_each(|family| self.look_at(family));
        let (flushes, slot) = self
            .wait_for(|| {
                let mut state = self.state.lock();
                if state.cancelled {
                    return Some(Err(cancelled()));
                }
                let busy = families.iter().any(|family| state.jobs(&self.options(), family).flushing);
                if busy || state.is_paused() {
                    return None;
                }
                // Only up to `largest_seq`, because a batch that is sealed later may have a part in
                // a family that is not among these.
                let flush = |family| FamilyFlush::of(&self.parts.flush.versions, family, Some(largest_seq));
                let flushes: Vec<FamilyFlush> = families.iter().filter_map(flush).collect();
                let slot = self.flush_slot(&mut state, &flushes);
                Some(Ok((flushes, slot)))
            })
            .await?;
        let outcome = self.parts.flush.run(flushes, Some(log), FlushReason::ErrorRecovery).await;
        drop(slot);
        if outcome.is_ok() {
            self.flush_succeeded(&families);
        }
        for family in &families {
            self.look_at(family);
        }
        let gone = families.iter().any(|family| family.is_dropped());
        if matches!(&outcome, Err((Phase::Install, error)) if gone && error.kind() == ErrorKind::NotFound) {
            // The change came after a family was dropped, and the other families still need it.
            return Box::pin(self.flush_everything()).await;
        }
        outcome.map(|_| log).map_err(|(phase, error)| {
            if phase == Phase::Write {
                // Reported, because the new error may be more severe than the previous one.
                self.parts.health.report(&error, BackgroundErrorReason::Flush);
            }
            error
        })
    }
}

/// Returns the directory that a family's flushes write to.
fn first_directory(family: &Arc<Family>) -> PathBuf {
    family.tables.shared.directories[0].clone()
}

/// The single place for an automatic recovery. None once it is released.
struct RecoverySlot(Option<Arc<Background>>);

impl RecoverySlot {
    /// Releases the place after a recovery that has succeeded. If an error has come since, keeps
    /// the place and returns the number of further attempts.
    ///
    /// Lock: checks for an error and releases the place under one lock, `state`.
    /// [`Background::failed`] checks the place under the same lock, after its error was recorded.
    /// Therefore either this sees the error, or the reporter finds the place free.
    fn give_back_unless_failed_again(&mut self) -> Option<u32> {
        let background = self.0.as_ref()?;
        let attempts = background.attempts();
        let mut state = background.state.lock();
        let error = background.parts.health.current().filter(|error| error.severity < Severity::Fatal);
        if attempts.is_some() && error.is_some() && !state.closing && !state.cancelled {
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
