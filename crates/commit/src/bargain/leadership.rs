//! One leader at a time does the work that everybody has asked for.
//!
//! In: tickets to be written, or also synced. Out: who does it, and which are done. A leader does
//! all that was asked for before its round, leaves, and looks again.
//!
//! Invariants:
//! - What was asked for never lies idle: who asks leads if nobody does, and who leaves looks again.
//! - After a failure nothing moves until [`recover`](Leadership::recover).
//!
//! Ordering: who asks stores a goal, fences, and looks whether anybody leads; who leaves stores
//! that, fences, and looks at the goals.

use karst_mem::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// Whether a ticket's record is where it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is.
    Persisted,
    /// It never will be.
    Failed,
    /// It is not yet.
    Open,
}

/// The tickets below which records are to be written, and those below which they are to be synced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goals {
    written: u64,
    synced: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Leadership {
    /// Whether there is a leader.
    leading: AtomicBool,
    /// Tickets below this one are to be written.
    goal: AtomicU64,
    /// Tickets below this one are to be synced.
    sync_goal: AtomicU64,
    /// Whether there is something to do without a ticket.
    errand: AtomicBool,
    written: AtomicU64,
    synced: AtomicU64,
    /// Set after the last store to `written` and `synced`.
    failed: AtomicBool,
}

impl Default for Leadership {
    fn default() -> Self {
        Self {
            leading: AtomicBool::new(false),
            goal: AtomicU64::new(0),
            sync_goal: AtomicU64::new(0),
            errand: AtomicBool::new(false),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }
}

impl Leadership {
    /// Wants `ticket` and all before it written, and synced if asked. Under the lock that gives out
    /// tickets.
    #[inline]
    pub(crate) fn ask(&self, ticket: u64, sync: bool) {
        if self.goal.load(Ordering::Relaxed) <= ticket {
            self.goal.store(ticket + 1, Ordering::Release);
        }
        if sync && self.sync_goal.load(Ordering::Relaxed) <= ticket {
            self.sync_goal.store(ticket + 1, Ordering::Release);
        }
    }

    /// Wants a leader to come, whatever there is to write. Under the same lock.
    pub(crate) fn ask_errand(&self) {
        self.errand.store(true, Ordering::Release);
    }

    /// What was asked for so far. Under the same lock.
    #[inline]
    pub(crate) fn goals(&self) -> Goals {
        Goals { written: self.goal.load(Ordering::Relaxed), synced: self.sync_goal.load(Ordering::Relaxed) }
    }

    /// Whether nobody waits for these any more: they were reached, or never will be.
    #[inline]
    pub(crate) fn is_past(&self, goals: Goals) -> bool {
        let reached = |reached: &AtomicU64, goal| reached.load(Ordering::Acquire) >= goal;
        (reached(&self.written, goals.written) && reached(&self.synced, goals.synced))
            || self.failed.load(Ordering::Acquire)
    }

    /// Whether a leader would have something to do.
    #[inline]
    pub(super) fn needs_leader(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
            && (self.goal.load(Ordering::Relaxed) > self.written.load(Ordering::Acquire)
                || self.sync_goal.load(Ordering::Relaxed) > self.synced.load(Ordering::Acquire)
                || self.errand.load(Ordering::Relaxed))
    }

    /// Takes the leadership if it is free and there is something to do. Who gets it does a round,
    /// or finds that there is none to do any more, and [leaves](Self::leave).
    #[inline]
    pub(crate) fn try_lead(&self) -> bool {
        // Why twice: who finds a leader behind the fence is seen by that leader when it leaves.
        self.needs_leader() && (self.take() || self.take_behind_fence())
    }

    #[inline]
    fn take(&self) -> bool {
        // Why looked at first: many come while somebody leads, and the line stays theirs.
        !self.leading.load(Ordering::Relaxed)
            && self.leading.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn take_behind_fence(&self) -> bool {
        fence(Ordering::SeqCst);
        self.take()
    }

    /// Gives the leadership back. The caller looks again after this, with
    /// [`try_lead`](Self::try_lead), before it waits for others.
    #[inline]
    pub(crate) fn leave(&self) {
        self.leading.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Whether somebody leads. What it says may be old.
    pub(crate) fn is_led(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    /// A round begins that does all that was asked for so far: the first ticket that is not
    /// written, and whether to sync. By the leader, under the lock that gives out tickets. `None`
    /// if the leader before has failed, behind the back of who has this leadership.
    #[inline]
    pub(crate) fn begin_round(&self) -> Option<(u64, bool)> {
        if self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.errand.store(false, Ordering::Relaxed);
        let sync = self.sync_goal.load(Ordering::Relaxed) > self.synced.load(Ordering::Relaxed);
        Some((self.written.load(Ordering::Relaxed), sync))
    }

    /// Tickets below `end` are written. By the leader.
    #[inline]
    pub(crate) fn reach_written(&self, end: u64) {
        debug_assert!(!self.failed.load(Ordering::Relaxed), "nothing moves after a failure");
        self.written.store(end, Ordering::Release);
    }

    /// Tickets below `end` are synced. By the leader.
    pub(crate) fn reach_synced(&self, end: u64) {
        self.synced.store(end, Ordering::Release);
    }

    /// What is not reached never will be. By the leader, which reaches nothing more.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// What became of a ticket that was asked for with the same `sync`. It is told until
    /// [`recover`](Self::recover).
    #[inline]
    pub(crate) fn fate(&self, ticket: u64, sync: bool) -> Fate {
        // Why first: nothing moves after a failure, so what is not there then never will be.
        let failed = self.failed.load(Ordering::Acquire);
        let reached = if sync { self.synced() } else { self.written() };
        match reached > ticket {
            true => Fate::Persisted,
            false if failed => Fate::Failed,
            false => Fate::Open,
        }
    }

    /// Every ticket below this is written.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Every ticket below this is synced.
    #[inline]
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Starts over behind ticket `next`, after a failure. Nobody leads, and nobody asks meanwhile.
    pub(crate) fn recover(&self, next: u64) {
        for reached in [&self.goal, &self.sync_goal, &self.written, &self.synced] {
            reached.store(next, Ordering::Release);
        }
        self.errand.store(false, Ordering::Release);
        self.failed.store(false, Ordering::Release);
    }
}
