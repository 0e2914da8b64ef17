//! Snapshots: sequence numbers to read at, kept in a list while readers use them.
//!
//! In: the sequence number that was visible when the snapshot was taken. Out: a handle for
//! `ReadOptions`, and, for jobs that drop old entries, the list of sequence numbers in use.
//!
//! If transactions insert when they are prepared (docs/decisions/write-prepared.md), a sequence
//! number alone does not determine visibility: a read takes it together with the ranges that were
//! inserted but undecided at that time (`ReadAt`), and keeps both.
//!
//! Lock: the list's own; held to add, remove or copy, never while waiting.

use crate::error::Result;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use karst_format::key::SeqNo;
use karst_lsm::SnapshotList;
use karst_mem::PendingRanges;
use karst_mem::pending::{Pinned, Ranges};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The visibility of a read: all entries up to a sequence number, except ranges that were inserted
/// but undecided when it was taken.
#[derive(Debug)]
pub struct ReadAt {
    /// The sequence number.
    pub seq: SeqNo,
    pending: Option<Pinned<Ranges>>,
}

impl ReadAt {
    /// Makes all entries up to `seq` visible.
    #[inline]
    pub fn all_to(seq: SeqNo) -> Self {
        Self { seq, pending: None }
    }

    /// Sequence number ranges that a reader must ignore, or None.
    #[inline]
    pub fn pending(&self) -> Option<&Ranges> {
        self.pending.as_ref().map(|pinned| &***pinned)
    }

    /// Returns true if an entry with this sequence number is not visible.
    #[inline]
    pub fn hides(&self, seq: SeqNo) -> bool {
        hides(self.pending(), self.seq, seq)
    }

    /// Returns the largest sequence number up to which every entry is visible.
    pub fn all_seen_to(&self) -> SeqNo {
        let first = self.pending().and_then(Ranges::first);
        SeqNo(first.map_or(self.seq.0, |first| self.seq.0.min(first - 1)))
    }

    /// Returns a copy that owns its ranges instead of borrowing a guard.
    pub fn again(&self) -> Self {
        let again = |pinned: &Pinned<Ranges>| Pinned::from_inner(Arc::clone(pinned));
        Self { pending: self.pending.as_ref().map(again), ..*self }
    }

    /// Converts it into a form that owns its ranges instead of borrowing a guard.
    #[inline]
    pub fn kept(self) -> Self {
        Self { pending: self.pending.map(|pinned| Pinned::from_inner(Pinned::into_inner(pinned))), ..self }
    }
}

/// Calls `pin`, then `read_at`; repeats both while the read's sequence number is beyond the pinned
/// state. `db/read_at.rs` gives the reason.
#[inline]
pub fn pin_with_all<P>(
    pin: impl Fn() -> P,
    read_at: impl Fn() -> Result<ReadAt>,
    has_all_to: impl Fn(&P, SeqNo) -> bool,
) -> Result<(P, ReadAt)> {
    loop {
        let pinned = pin();
        let at = read_at()?;
        if has_all_to(&pinned, at.seq) {
            return Ok((pinned, at));
        }
    }
}

/// Returns true if the entry with sequence number `seq` is invisible to a read at `at` that must
/// ignore the ranges in `pending`.
#[inline]
pub fn hides(pending: Option<&Ranges>, at: SeqNo, seq: SeqNo) -> bool {
    seq > at || pending.is_some_and(|pending| pending.hides(seq.0, at.0))
}

/// The sequence numbers that readers use, as seen by a job.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    /// Every sequence number in use.
    pub snapshots: Vec<SeqNo>,
    /// Ranges inserted by transactions that some readers do not see, or do not see from their own
    /// number on: the first number, the end (exclusive), and the number of the decision (`None` if
    /// undecided, as far as jobs are concerned). Ascending.
    pub pending: Vec<(SeqNo, SeqNo, Option<SeqNo>)>,
    /// True if transactions insert when they are prepared, now or at an earlier open, so that
    /// entries of rolled-back transactions may exist, with the entries that the rollback restored.
    pub may_have_rolled_back: bool,
}

/// A database state kept by a snapshot; its creator knows the type.
pub type KeptState = Arc<dyn Any + Send + Sync>;

/// The snapshots of one database.
#[derive(Debug, Default)]
pub struct Snapshots {
    held: Mutex<HeldList>,
    /// Ranges inserted but undecided, if this database has transactions that insert when prepared.
    pending: Option<Arc<PendingRanges>>,
    /// See [`Readers`].
    may_have_rolled_back: bool,
    /// A snapshot was released, and no reader reads below this number; see
    /// [`Snapshots::released_below`].
    released_below: AtomicU64,
}

#[derive(Debug, Default)]
struct HeldList {
    sequences: SnapshotList,
    /// Range lists kept by snapshots, keyed by address, with the number of snapshots that keep
    /// each.
    pending: BTreeMap<usize, (Arc<Ranges>, usize)>,
    /// True while taking snapshots is refused.
    closed: bool,
}

fn place_of(list: &Arc<Ranges>) -> usize {
    Arc::as_ptr(list).addr()
}

impl Snapshots {
    /// Creates an empty list; `pending` is given if transactions insert when prepared.
    /// `two_phases`: the database has or had two-phase transactions, of any policy.
    ///
    /// Both matter because entries left by a rollback stay in tables after a change of policy, and
    /// then only `allow_2pc`, which OPTIONS records, indicates them.
    pub fn new(pending: Option<Arc<PendingRanges>>, two_phases: bool) -> Self {
        let may_have_rolled_back = two_phases || pending.is_some();
        Self { pending, may_have_rolled_back, ..Self::default() }
    }

    /// Returns the visibility of a read that begins now; `newest` returns the largest readable
    /// number.
    #[inline]
    pub fn newest(&self, newest: impl Fn() -> SeqNo) -> ReadAt {
        match &self.pending {
            None => ReadAt::all_to(newest()),
            Some(pending) => {
                let (seq, pending) = pending.pin(|| newest().0);
                ReadAt { seq: SeqNo(seq), pending }
            }
        }
    }

    /// Takes a snapshot at `newest()`, which is called under the lock with which jobs copy the
    /// list, because a job that copies the list in between could drop the entries of a number taken
    /// before the lock.
    ///
    /// Returns `None` while snapshots are [held off](Self::hold_off), unless `regardless`.
    pub fn take(
        self: &Arc<Self>,
        newest: impl Fn() -> SeqNo,
        now_s: u64,
        regardless: bool,
    ) -> Option<Snapshot> {
        let mut held = self.held.lock();
        if held.closed && !regardless {
            return None;
        }
        let ReadAt { seq, pending } = self.newest(newest);
        let pending = pending.map(Pinned::into_inner);
        held.sequences.acquire(seq, now_s);
        if let Some(list) = &pending {
            held.pending.entry(place_of(list)).or_insert_with(|| (list.clone(), 0)).1 += 1;
        }
        Some(Snapshot(Arc::new(Held { seq, pending, state: None, list: self.clone() })))
    }

    /// Takes a snapshot of a state that is kept as a whole and read at `at`.
    ///
    /// A secondary instance needs this because it does not decide which parts of the state the
    /// primary keeps.
    pub fn take_state(self: &Arc<Self>, at: &ReadAt, state: KeptState, now_s: u64) -> Snapshot {
        let mut held = self.held.lock();
        let pending = at.again().pending.map(Pinned::into_inner);
        held.sequences.acquire(at.seq, now_s);
        if let Some(list) = &pending {
            held.pending.entry(place_of(list)).or_insert_with(|| (list.clone(), 0)).1 += 1;
        }
        Snapshot(Arc::new(Held { seq: at.seq, pending, state: Some(state), list: self.clone() }))
    }

    /// Prevents snapshots until the result is dropped; `None` if any exist, or if they are already
    /// held off.
    pub fn hold_off(self: &Arc<Self>) -> Option<HeldOff> {
        let mut held = self.held.lock();
        if held.closed || !held.sequences.is_empty() {
            return None;
        }
        held.closed = true;
        Some(HeldOff(self.clone()))
    }

    /// Returns the number of snapshots held, and the time of the oldest (Unix time in seconds).
    pub fn count_and_oldest_s(&self) -> (usize, Option<u64>) {
        let held = &self.held.lock().sequences;
        (held.len(), held.oldest_time_s())
    }

    /// Returns the sequence numbers in use. Jobs call it once all their input is visible.
    ///
    /// Ranges still pending count as undecided even if decided, because they leave that list only
    /// when every new reader sees them; until then a job must assume that some reader does not.
    /// Computed under the lock because a snapshot taken later needs no entry of the job's input
    /// that the current list does not need.
    pub fn readers(&self) -> Readers {
        let held = self.held.lock();
        let snapshots = held.sequences.sequences().collect();
        let may_have_rolled_back = self.may_have_rolled_back;
        let Some(pending) = &self.pending else {
            return Readers { snapshots, may_have_rolled_back, ..Readers::default() };
        };
        let now = pending.now();
        let kept: Vec<Arc<Ranges>> = held.pending.values().map(|(list, _)| list.clone()).collect();
        drop(held);
        let mut all = BTreeMap::new();
        for range in kept.iter().flat_map(|list| list.iter()) {
            all.insert(SeqNo(range.first()), (SeqNo(range.end()), range.decided_at().map(SeqNo)));
        }
        for range in now.iter() {
            all.insert(SeqNo(range.first()), (SeqNo(range.end()), None));
        }
        let pending = all.into_iter().map(|(first, (end, decided))| (first, end, decided)).collect();
        Readers { snapshots, pending, may_have_rolled_back }
    }

    /// Returns a number below which no reader reads since a snapshot was released; 0 if none was.
    /// Files written while it was held may contain entries that are obsolete now.
    pub fn released_below(&self) -> SeqNo {
        // Ordering: advice for pickers only.
        let released = self.released_below.load(Ordering::Relaxed);
        let Some(pending) = self.pending.as_ref().filter(|_| released > 0) else { return SeqNo(released) };
        // Limited to the pending ranges because their entries are kept with their numbers, and
        // files that have them would be picked again and again.
        let now = pending.now();
        let held = self.held.lock();
        let lists = held.pending.values().map(|(list, _)| list).chain([&now]);
        SeqNo(lists.filter_map(|list| list.first()).fold(released, u64::min))
    }

    /// Returns the smallest sequence number in use.
    pub fn oldest(&self) -> Option<SeqNo> {
        self.held.lock().sequences.oldest()
    }
}

/// Prevents snapshots while it lives.
#[derive(Debug)]
#[must_use = "snapshots are taken again when it is dropped"]
pub struct HeldOff(Arc<Snapshots>);

impl Drop for HeldOff {
    fn drop(&mut self) {
        self.0.held.lock().closed = false;
    }
}

/// The database's state at one moment. Cloning is cheap; the state is kept while any clone, or any
/// read made with one, lives.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Held>);

#[derive(Debug)]
struct Held {
    seq: SeqNo,
    pending: Option<Arc<Ranges>>,
    /// The state kept as a whole, if a sequence number alone does not keep it.
    state: Option<KeptState>,
    list: Arc<Snapshots>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.list.held.lock();
        held.sequences.release(self.seq);
        if let Some(place) = self.pending.as_ref().map(place_of) {
            let (_, keepers) =
                held.pending.get_mut(&place).expect("a list is there while a snapshot keeps it");
            *keepers -= 1;
            if *keepers == 0 {
                held.pending.remove(&place);
            }
        }
        let below = held.sequences.oldest().unwrap_or(self.seq);
        self.list.released_below.fetch_max(below.0, Ordering::Relaxed);
    }
}

impl Snapshot {
    /// Returns the sequence number it reads at.
    pub fn sequence_number(&self) -> u64 {
        self.0.seq.0
    }

    /// Returns the visibility of its reads.
    #[doc(hidden)]
    #[inline]
    pub fn read_at(&self) -> ReadAt {
        ReadAt { seq: self.0.seq, pending: self.0.pending.clone().map(Pinned::from_inner) }
    }

    /// Returns the state kept as a whole, if any.
    #[doc(hidden)]
    pub fn state<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.state.clone()?.downcast().ok()
    }

    /// Returns true if it was taken from the database that owns `list`.
    #[doc(hidden)]
    pub fn belongs_to(&self, list: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.0.list, list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_held_while_any_clone_lives() {
        let list = Arc::new(Snapshots::default());
        let a = list.take(|| SeqNo(7), 100, false).unwrap();
        let b = a.clone();
        let c = list.take(|| SeqNo(9), 200, false).unwrap();
        assert_eq!(list.count_and_oldest_s(), (2, Some(100)));
        drop(a);
        assert_eq!(list.released_below(), SeqNo::ZERO);
        assert_eq!((list.oldest(), b.sequence_number()), (Some(SeqNo(7)), 7));
        drop(b);
        assert_eq!((list.oldest(), list.count_and_oldest_s()), (Some(SeqNo(9)), (1, Some(200))));
        assert!(c.belongs_to(&list) && !c.belongs_to(&Arc::default()));
        assert_eq!(list.released_below(), SeqNo(9));
        drop(c);
        assert_eq!(list.oldest(), None);
    }
    #[test]
    fn what_is_pending_is_kept_by_those_who_do_not_see_it_and_jobs_know_it() {
        let pending = Arc::new(PendingRanges::new());
        let list = Arc::new(Snapshots::new(Some(pending.clone()), false));
        let before = list.take(|| SeqNo(7), 0, false).unwrap();
        let range = pending.add(8, 2, 7);
        let during = list.take(|| SeqNo(9), 0, false).unwrap();
        assert_eq!((during.read_at().all_seen_to(), before.read_at().all_seen_to()), (SeqNo(7), SeqNo(7)));
        assert!(during.read_at().hides(SeqNo(9)) && !during.read_at().hides(SeqNo(7)));
        assert_eq!(list.readers().pending, [(SeqNo(8), SeqNo(10), None)]);
        range.decide(10);
        assert_eq!(list.readers().pending, [(SeqNo(8), SeqNo(10), None)]);
        pending.remove_decided(10);
        assert!(!list.newest(|| SeqNo(10)).hides(SeqNo(9)));
        assert!(during.read_at().hides(SeqNo(9)), "a snapshot changed");
        assert_eq!(list.readers().pending, [(SeqNo(8), SeqNo(10), Some(SeqNo(10)))]);
        drop(before);
        assert_eq!(list.released_below(), SeqNo(8));
        drop(during);
        assert_eq!((list.readers().pending, list.released_below()), (Vec::new(), SeqNo(9)));
    }
}
