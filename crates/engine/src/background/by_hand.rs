//! Compactions that somebody asks for: of a range of keys, or of named files.
//!
//! In: a call of the user. Out: compactions, one after the other. `lsm` chooses them step by step,
//! and each waits until nothing is in its way any more.
//!
//! Invariant: a call that is given up cancels what it runs, and its files are free again soon
//! after.

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

/// What a look at the tree has led to.
enum Next {
    Run(Reserved),
    Done,
    Failed(Error),
}

/// Cancels a job that nobody waits for any more.
struct CancelOnDrop(Option<Arc<Progress>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(progress) = self.0.take() {
            progress.cancel();
        }
    }
}

/// The place of a compaction by hand among those that run.
struct ByHandSlot {
    background: Arc<Background>,
    progress: Arc<Progress>,
}

impl Drop for ByHandSlot {
    fn drop(&mut self) {
        let by_hand = &mut self.background.state.lock().by_hand;
        by_hand.running.retain(|running| !Arc::ptr_eq(running, &self.progress));
        self.background.notify();
    }
}

/// The compactions by hand that run, and whether any may.
#[derive(Debug, Default)]
pub(super) struct ByHand {
    running: Vec<Arc<Progress>>,
    /// How often they were disabled, and not enabled again.
    disabled: u64,
}

impl ByHand {
    fn check(&self) -> Result<()> {
        if self.disabled > 0 {
            return Err(Error::new(ErrorKind::Incomplete, "compactions by hand are disabled"));
        }
        Ok(())
    }
}

/// What [`Background::reserve_by_hand`] reserves for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Compact,
    /// It only makes room.
    DeleteFiles,
}

fn refused(refused: &Refused) -> Error {
    let kind = if refused.busy { ErrorKind::TryAgain } else { ErrorKind::InvalidArgument };
    Error::new(kind, format!("compaction by hand: {refused}"))
}

impl Background {
    /// Compacts the user keys from `begin` to `end`, both included; `None` is open.
    ///
    /// # Errors
    /// `InvalidArgument`: the options do not fit. `Incomplete`: it was cancelled. Else what a flush
    /// or a compaction failed with.
    pub(crate) async fn compact_range(
        self: &Arc<Self>,
        family: &Arc<Family>,
        options: CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        {
            let state = self.state.lock();
            state.by_hand.check()?;
            if state.aborted > 0 {
                return Err(aborted());
            }
        }
        // Compat: entries in memory take part, so they go to tables first.
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
            match self.wait_for(|| self.next_by_hand(family, &mut manual)).await {
                Next::Run(reserved) => self.run_by_hand(reserved).await.map(drop)?,
                Next::Done => return Ok(()),
                Next::Failed(error) => return Err(error),
            }
        }
    }

    /// Asks what comes next; `None` while something is in the way.
    fn next_by_hand(self: &Arc<Self>, family: &Arc<Family>, manual: &mut ManualCompaction) -> Option<Next> {
        let mut other = None;
        let reserved =
            self.reserve_by_hand(family, Purpose::Compact, |context| match manual.next(context) {
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

    /// Has `choose` pick a compaction, if the background errors allow what it is to begin; `None`
    /// while background work is paused.
    ///
    /// Lock: all of it under one, so that nothing begins behind a pause, or a closing, that has
    /// looked whether a job runs.
    fn reserve_by_hand(
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
            return Some(Err(error.error.in_context("compaction by hand")));
        }
        if purpose == Purpose::Compact && state.aborted > 0 {
            return Some(Err(aborted()));
        }
        if purpose == Purpose::Compact
            && let Err(error) = state.by_hand.check()
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
                return Some(Err(error.in_context("compaction by hand")));
            }
        };
        if purpose == Purpose::Compact
            && let Some(reserved) = &reserved
        {
            state.by_hand.running.push(reserved.progress.clone());
        }
        Some(Ok(reserved))
    }

    /// Compacts these files, and those that have to go along, to `output_level`. Returns what came
    /// of it, and what listeners were told.
    ///
    /// # Errors
    /// `InvalidArgument`: a file is not in the tree, or the level cannot be. `TryAgain`: a file is
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
            self.reserve_by_hand(family, Purpose::Compact, |context| {
                let chosen = compact_files(context, files, output_level, &options);
                chosen.map_err(|refusal| why = Some(refusal)).ok()
            })
        };
        match self.wait_for(choose).await? {
            Some(reserved) => self.run_by_hand(reserved).await,
            None => Err(why.as_ref().map_or_else(closed, refused)),
        }
    }

    /// Deletes the tables that lie within one of the ranges, but for those of L0.
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
        // Why also while compactions wait for room: it needs none, and makes some.
        let choose = || self.reserve_by_hand(family, Purpose::DeleteFiles, within);
        match self.wait_for(choose).await? {
            Some(reserved) => self.run_by_hand(reserved).await.map(drop),
            None => Ok(()),
        }
    }

    /// Cancels the compactions by hand, and refuses others until
    /// [`enable_manual_compaction`](Self::enable_manual_compaction). When it returns, none runs.
    pub(crate) async fn disable_manual_compaction(self: &Arc<Self>) {
        {
            let by_hand = &mut self.state.lock().by_hand;
            by_hand.disabled += 1;
            by_hand.running.iter().for_each(|progress| progress.cancel());
        }
        // Why: those that wait for something to end are told.
        self.notify();
        self.wait_for(|| self.state.lock().by_hand.running.is_empty().then_some(())).await;
    }

    /// Takes one [`disable_manual_compaction`](Self::disable_manual_compaction) back.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn enable_manual_compaction(&self) -> Result<()> {
        let by_hand = &mut self.state.lock().by_hand;
        by_hand.disabled = by_hand
            .disabled
            .checked_sub(1)
            .ok_or_else(|| Error::invalid_argument("compactions by hand are not disabled"))?;
        Ok(())
    }

    /// Has the tables that overlap the range compacted before others, some time.
    pub(crate) fn suggest_compact_range(self: &Arc<Self>, family: &Arc<Family>, range: UserKeyRange<'_>) {
        if suggest_range(family.superversion().version(), range) > 0 {
            self.schedule();
        }
    }

    /// Runs a compaction on the threads of its priority and waits for it.
    async fn run_by_hand(
        self: &Arc<Self>,
        reserved: Reserved,
    ) -> Result<(CompactionSummary, CompactionInfo)> {
        let _hurry = self.hurry();
        let mut guard = CancelOnDrop(Some(reserved.progress.clone()));
        let this = self.clone();
        let slot = ByHandSlot { background: self.clone(), progress: reserved.progress.clone() };
        let task = self.env().spawn(reserved.priority(), async move {
            let slot = slot;
            let outcome = this.run_reserved(&reserved).await;
            let family = reserved.family.clone();
            // Why not for want of room: whoever asked is told, and nobody tries it again. So
            // nothing is to wait until there is room for this one.
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
