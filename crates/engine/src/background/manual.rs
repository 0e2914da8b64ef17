//! Manual compactions: of a range of keys, or of named files.
//!
//! In: a call of the user. Out: a sequence of compactions. `lsm` chooses them step by step, and
//! each waits until no other job is in its way.
//!
//! Invariant: dropping a call cancels its running compaction, which releases its files soon after.

use super::aborts::aborted;
use super::{Background, FlushOptions, Reserved, cancelled, closed};
use crate::compact::job::CompactionSummary;
use crate::compact::progress::Progress;
use crate::sealing::Sealing;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::events::{CompactionInfo, FlushReason};
use karst_base::health::Health;
use karst_base::stats::Ticker;
use karst_format::ids::FileNumber;
use karst_lsm::pick::{
    CompactFilesOptions, CompactRangeOptions, Compaction, ManualCompaction, ManualStep, PickContext, Refused,
    UserKeyRange, compact_files, delete_files_in_ranges, suggest_range,
};
use karst_storage::column_family::Family;
use std::sync::Arc;

/// Next step of a manual compaction.
enum Next {
    Run(Reserved),
    Done,
    Failed(Error),
}

/// Cancels a job whose caller no longer waits.
struct CancelOnDrop(Option<Arc<Progress>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(progress) = self.0.take() {
            progress.cancel();
        }
    }
}

/// Entry of a manual compaction in the list of running ones.
struct ManualSlot {
    background: Arc<Background>,
    progress: Arc<Progress>,
}

impl Drop for ManualSlot {
    fn drop(&mut self) {
        let manual = &mut self.background.state.lock().manual;
        manual.running.retain(|running| !Arc::ptr_eq(running, &self.progress));
        self.background.notify();
    }
}

/// The running manual compactions, and the count of disabling calls.
#[derive(Debug, Default)]
pub(super) struct ManualCompactions {
    running: Vec<Arc<Progress>>,
    /// Number of disabling calls that were not undone.
    disabled: u64,
}

impl ManualCompactions {
    fn check(&self) -> Result<()> {
        if self.disabled > 0 {
            return Err(Error::new(ErrorKind::Incomplete, "manual compactions are disabled"));
        }
        Ok(())
    }
}

/// Purpose of a reservation by [`Background::reserve_manual`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Compact,
    /// The job only frees space.
    DeleteFiles,
}

fn refused(refused: &Refused) -> Error {
    let kind = if refused.busy { ErrorKind::TryAgain } else { ErrorKind::InvalidArgument };
    Error::new(kind, format!("manual compaction: {refused}"))
}

impl Background {
    /// Compacts the user keys from `begin` to `end`, both included; `None` is unbounded.
    ///
    /// # Errors
    /// `InvalidArgument`: the options are invalid. `Incomplete`: it was cancelled. Otherwise the
    /// error of a flush or a compaction.
    pub(crate) async fn compact_range(
        self: &Arc<Self>,
        family: &Arc<Family>,
        options: CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        {
            let state = self.state.lock();
            state.manual.check()?;
            if state.aborted > 0 {
                return Err(aborted());
            }
        }
        // Compat: entries in memory take part, so they are flushed first.
        let flush = FlushOptions { allow_write_stall: options.allow_write_stall, ..FlushOptions::default() };
        self.flush_families(Sealing::Of(vec![family.clone()]), flush, FlushReason::ManualCompaction).await?;
        let next_file = self.parts.flush.versions.new_file_number();
        let mut manual = {
            let mut state = self.state.lock();
            let jobs = state.jobs(&self.options(), family);
            ManualCompaction::new(begin, end, options, &jobs.options, next_file)
                .map_err(|why| refused(&why))?
        };
        loop {
            match self.wait_for(|| self.next_manual(family, &mut manual)).await {
                Next::Run(reserved) => self.run_manual(reserved).await.map(drop)?,
                Next::Done => return Ok(()),
                Next::Failed(error) => return Err(error),
            }
        }
    }

    /// Returns the next step; `None` while another job is in the way.
    fn next_manual(self: &Arc<Self>, family: &Arc<Family>, manual: &mut ManualCompaction) -> Option<Next> {
        let mut other = None;
        let reserved =
            self.reserve_manual(family, Purpose::Compact, |context| match manual.next(context) {
                ManualStep::Run(compaction) => Some(*compaction),
                step => {
                    other = Some(step);
                    None
                }
            })?;
        match (reserved, other) {
            (Err(error), _) => Some(Next::Failed(error)),
            (Ok(Some(reserved)), _) => Some(Next::Run(reserved)),
            (Ok(None), Some(ManualStep::Wait)) => None,
            (Ok(None), Some(ManualStep::Refused(why))) => Some(Next::Failed(refused(&why))),
            (Ok(None), _) => Some(Next::Done),
        }
    }

    /// Makes `choose` pick a compaction, if the background errors allow it to begin; `None` while
    /// background work is paused.
    ///
    /// Lock: all of it under one, so that no job begins after a pause, or a closing, has checked
    /// that none runs.
    fn reserve_manual(
        self: &Arc<Self>,
        family: &Arc<Family>,
        purpose: Purpose,
        choose: impl FnOnce(PickContext<'_>) -> Option<Compaction>,
    ) -> Option<Result<Option<Reserved>>> {
        let mut state = self.state.lock();
        if state.closing {
            return Some(Err(closed()));
        }
        if state.cancelled && purpose == Purpose::Compact {
            return Some(Err(cancelled()));
        }
        if family.is_dropped() {
            return Some(Err(Error::new(ErrorKind::NotFound, "the column family was dropped")));
        }
        let allowed = match purpose {
            Purpose::Compact => Health::allows_compaction,
            Purpose::DeleteFiles => Health::allows_flush,
        };
        if let Some(error) = self.parts.health.current().filter(|_| !allowed(&self.parts.health)) {
            return Some(Err(error.error.in_context("manual compaction")));
        }
        if purpose == Purpose::Compact && state.aborted > 0 {
            return Some(Err(aborted()));
        }
        if purpose == Purpose::Compact
            && let Err(error) = state.manual.check()
        {
            return Some(Err(error));
        }
        if state.is_paused() {
            return None;
        }
        let reserved = match self.reserve_in(&mut state, family, choose) {
            Ok(reserved) => reserved,
            Err(error) => {
                self.parts.flush.stats.tick(Ticker::CompactionCancelled);
                return Some(Err(error.in_context("manual compaction")));
            }
        };
        if purpose == Purpose::Compact
            && let Some(reserved) = &reserved
        {
            state.manual.running.push(reserved.progress.clone());
        }
        Some(Ok(reserved))
    }

    /// Compacts these files, and those that must be compacted with them, to `output_level`. Returns
    /// the summary, and the info passed to listeners.
    ///
    /// # Errors
    /// `InvalidArgument`: a file is not in the tree, or the level is invalid. `TryAgain`: a file is
    /// being compacted. `Incomplete`: it was cancelled.
    pub(crate) async fn compact_files(
        self: &Arc<Self>,
        family: &Arc<Family>,
        options: CompactFilesOptions,
        files: &[FileNumber],
        output_level: usize,
    ) -> Result<(CompactionSummary, CompactionInfo)> {
        let mut why = None;
        let choose = || {
            self.reserve_manual(family, Purpose::Compact, |context| {
                let chosen = compact_files(context, files, output_level, &options);
                chosen.map_err(|refusal| why = Some(refusal)).ok()
            })
        };
        match self.wait_for(choose).await? {
            Some(reserved) => self.run_manual(reserved).await,
            None => Err(why.as_ref().map_or_else(closed, refused)),
        }
    }

    /// Deletes the tables that lie within one of the ranges, except those of L0.
    ///
    /// # Errors
    /// The database is being closed, or the MANIFEST could not be written.
    pub(crate) async fn delete_files_in_ranges(
        self: &Arc<Self>,
        family: &Arc<Family>,
        ranges: &[UserKeyRange<'_>],
        include_end: bool,
    ) -> Result<()> {
        let within = |context: PickContext<'_>| delete_files_in_ranges(context, ranges, include_end);
        // Allowed while compactions wait for space too, because it needs none, and frees some.
        let choose = || self.reserve_manual(family, Purpose::DeleteFiles, within);
        match self.wait_for(choose).await? {
            Some(reserved) => self.run_manual(reserved).await.map(drop),
            None => Ok(()),
        }
    }

    /// Cancels the running manual compactions, and refuses others until
    /// [`enable_manual_compaction`](Self::enable_manual_compaction). None runs when it returns.
    pub(crate) async fn disable_manual_compaction(self: &Arc<Self>) {
        {
            let manual = &mut self.state.lock().manual;
            manual.disabled += 1;
            manual.running.iter().for_each(|progress| progress.cancel());
        }
        // Wakes compactions that wait for another job to end.
        self.notify();
        self.wait_for(|| self.state.lock().manual.running.is_empty().then_some(())).await;
    }

    /// Undoes one [`disable_manual_compaction`](Self::disable_manual_compaction).
    ///
    /// # Errors
    /// Manual compactions are not disabled.
    pub(crate) fn enable_manual_compaction(&self) -> Result<()> {
        let manual = &mut self.state.lock().manual;
        manual.disabled = manual
            .disabled
            .checked_sub(1)
            .ok_or_else(|| Error::invalid_argument("manual compactions are not disabled"))?;
        Ok(())
    }

    /// Marks the tables that overlap the range for compaction before others.
    pub(crate) fn suggest_compact_range(self: &Arc<Self>, family: &Arc<Family>, range: UserKeyRange<'_>) {
        if suggest_range(family.superversion().version(), range) > 0 {
            self.schedule();
        }
    }

    /// Runs a compaction on the threads of its priority, and waits for it.
    async fn run_manual(self: &Arc<Self>, reserved: Reserved) -> Result<(CompactionSummary, CompactionInfo)> {
        let _hurry = self.hurry();
        let mut guard = CancelOnDrop(Some(reserved.progress.clone()));
        let this = self.clone();
        let slot = ManualSlot { background: self.clone(), progress: reserved.progress.clone() };
        let task = self.env().spawn(reserved.priority(), async move {
            let slot = slot;
            let outcome = this.run_reserved(&reserved).await;
            let family = reserved.family.clone();
            // Not after `NoSpace`, because the caller gets that error and the compaction is not
            // retried, so no other job should wait for its space.
            if let Err(error) = &outcome
                && error.kind() != ErrorKind::NoSpace
            {
                this.compaction_failed(&reserved, error);
            }
            drop((reserved, slot));
            this.look_at(&family);
            this.schedule();
            outcome
        });
        let outcome = task.await;
        guard.0 = None;
        match outcome.unwrap_or_else(|error| Err(Error::of_task("a compaction", &error))) {
            Err(error) if error.kind() == ErrorKind::Incomplete && self.state.lock().cancelled => {
                Err(cancelled())
            }
            outcome => outcome,
        }
    }
}
