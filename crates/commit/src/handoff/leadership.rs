//! Leadership: one leader at a time writes and syncs the log for all writers.
//!
//! Writers ask for tickets to be written, or also synced. A leader handles all that was asked for
//! before its round, leaves, and checks again.
//!
//! Invariants:
//! - Requests never lie idle: a writer that asks leads if no one does, and a leader that leaves
//!   checks again.
//! - After a failure no state changes until [`recover`](Leadership::recover).
//!
//! Ordering: a writer stores its goal, fences, and checks for a leader; a leader that leaves stores
//! that, fences, and checks the goals.

use karst_mem::sync::{AtomicBool, AtomicU64, Ordering, fence};

/// State of a ticket's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The record is written, and synced if asked for.
    Persisted,
    /// The record never will be persisted.
    Failed,
    /// The record is not persisted yet.
    Open,
}

/// End of the tickets to be written, and of those to be synced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goals {
    written: u64,
    synced: u64,
}

/// Leader flag, requests and progress of the log.
#[derive(Debug)]
pub(crate) struct Leadership {
    /// True while a leader is at work.
    leading: AtomicBool,
    /// Tickets below this one are to be written.
    goal: AtomicU64,
    /// Tickets below this one are to be synced.
    sync_goal: AtomicU64,
    /// A round was asked for without a ticket.
    log_switched: AtomicBool,
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
            log_switched: AtomicBool::new(false),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }
}

impl Leadership {
    /// Asks that `ticket` and all before it are written, and synced if `sync`. Called under the
    /// lock that assigns tickets.
    #[inline]
    pub(crate) fn ask(&self, ticket: u64, sync: bool) {
        if self.goal.load(Ordering::Relaxed) <= ticket {
            self.goal.store(ticket + 1, Ordering::Release);
        }
        if sync && self.sync_goal.load(Ordering::Relaxed) <= ticket {
            self.sync_goal.store(ticket + 1, Ordering::Release);
        }
    }

    /// Asks for a round even if there is nothing to write. Called under the same lock.
    pub(crate) fn ask_for_switched_log(&self) {
        self.log_switched.store(true, Ordering::Release);
    }

    /// Returns the current goals. Called under the same lock.
    #[inline]
    pub(crate) fn goals(&self) -> Goals {
        Goals { written: self.goal.load(Ordering::Relaxed), synced: self.sync_goal.load(Ordering::Relaxed) }
    }

    /// Returns true if these goals were reached, or never will be.
    #[inline]
    pub(crate) fn is_past(&self, goals: Goals) -> bool {
        let reached = |reached: &AtomicU64, goal| reached.load(Ordering::Acquire) >= goal;
        (reached(&self.written, goals.written) && reached(&self.synced, goals.synced))
            || self.failed.load(Ordering::Acquire)
    }

    /// Returns true if a leader would have work.
    #[inline]
    pub(super) fn needs_leader(&self) -> bool {
        !self.failed.load(Ordering::Acquire)
            && (self.goal.load(Ordering::Relaxed) > self.written.load(Ordering::Acquire)
                || self.sync_goal.load(Ordering::Relaxed) > self.synced.load(Ordering::Acquire)
                || self.log_switched.load(Ordering::Relaxed))
    }

    /// Takes the leadership if it is free and there is work. The caller then does a round, possibly
    /// finds no work left, and [leaves](Self::leave).
    #[inline]
    pub(crate) fn try_lead(&self) -> bool {
        // Tried twice: a writer that still finds a leader behind the fence is seen by that leader
        // when it leaves.
        self.needs_leader() && self.try_take()
    }

    /// Takes the leadership if it is free, even without work.
    pub(crate) fn try_take(&self) -> bool {
        self.take() || self.take_behind_fence()
    }

    #[inline]
    fn take(&self) -> bool {
        // Read first, because many writers come while a leader works, and the cache line stays
        // shared.
        !self.leading.load(Ordering::Relaxed)
            && self.leading.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn take_behind_fence(&self) -> bool {
        fence(Ordering::SeqCst);
        self.take()
    }

    /// Gives up the leadership. The caller checks again with [`try_lead`](Self::try_lead) before it
    /// waits for others.
    #[inline]
    pub(crate) fn leave(&self) {
        self.leading.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Returns true if a leader is at work. The result may be stale.
    pub(crate) fn is_led(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    /// Begins a round that handles all requests so far. Returns the first ticket that is not
    /// written, and true if it must sync. Called by the leader, under the lock that assigns
    /// tickets. `None` if the previous leader failed before the caller took over.
    #[inline]
    pub(crate) fn begin_round(&self) -> Option<(u64, bool)> {
        if self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.log_switched.store(false, Ordering::Relaxed);
        let sync = self.sync_goal.load(Ordering::Relaxed) > self.synced.load(Ordering::Relaxed);
        Some((self.written.load(Ordering::Relaxed), sync))
    }

    /// Returns true if a round that begins now must sync. Called under the lock that assigns
    /// tickets.
    pub(crate) fn wants_sync(&self) -> bool {
        self.sync_goal.load(Ordering::Relaxed) > self.synced.load(Ordering::Acquire)
    }

    /// Records that tickets below `end` are written. Called by the leader.
    #[inline]
    pub(crate) fn reach_written(&self, end: u64) {
        debug_assert!(!self.failed.load(Ordering::Relaxed), "nothing moves after a failure");
        self.written.store(end, Ordering::Release);
    }

    /// Records that tickets below `end` are synced. Called by the leader.
    pub(crate) fn reach_synced(&self, end: u64) {
        self.synced.store(end, Ordering::Release);
    }

    /// Fails all tickets not reached yet. Called by the leader, which reaches no more.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns the fate of a ticket that was asked for with the same `sync`. Valid until
    /// [`recover`](Self::recover).
    #[inline]
    pub(crate) fn fate(&self, ticket: u64, sync: bool) -> Fate {
        // Loaded first: no ticket is reached after a failure.
        let failed = self.failed.load(Ordering::Acquire);
        let reached = if sync { self.synced() } else { self.written() };
        match reached > ticket {
            true => Fate::Persisted,
            false if failed => Fate::Failed,
            false => Fate::Open,
        }
    }

    /// Returns the end of the written tickets.
    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns the end of the synced tickets.
    #[inline]
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Restarts at ticket `next` after a failure. Called by the leader, while no writer asks.
    pub(crate) fn recover(&self, next: u64) {
        for reached in [&self.goal, &self.sync_goal, &self.written, &self.synced] {
            reached.store(next, Ordering::Release);
        }
        self.log_switched.store(false, Ordering::Release);
        self.failed.store(false, Ordering::Release);
    }
}
