//! Snapshots: a sequence number to read at, kept in a list while anyone reads at it.
//!
//! In: the sequence number that was visible when the snapshot was taken. Out: a handle to put into
//! `ReadOptions`, and for jobs that drop old entries the list of numbers still read at.
//!
//! Where transactions insert when they are prepared (docs/decisions/write-prepared.md), a sequence
//! number alone does not say what is visible: a read takes it together with the list of what was
//! inserted and not decided then (`ReadAt`), and keeps both.
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

/// Where a read reads: everything up to a sequence number, but for what was inserted and not
/// decided when it was taken.
#[derive(Debug)]
pub struct ReadAt {
    /// The sequence number.
    pub seq: SeqNo,
    pending: Option<Pinned<Ranges>>,
}

impl ReadAt {
    /// Everything up to `seq`.
    #[inline]
    pub fn all_to(seq: SeqNo) -> Self {
        Self { seq, pending: None }
    }

    /// What may not count, if there is anything.
    #[inline]
    pub fn pending(&self) -> Option<&Ranges> {
        self.pending.as_ref().map(|pinned| &***pinned)
    }

    /// Whether an entry with this number is not seen.
    #[inline]
    pub fn hides(&self, seq: SeqNo) -> bool {
        hides(self.pending(), self.seq, seq)
    }

    /// Everything at or below this number is seen.
    pub fn all_seen_to(&self) -> SeqNo {
        let first = self.pending().and_then(Ranges::first);
        SeqNo(first.map_or(self.seq.0, |first| self.seq.0.min(first - 1)))
    }

    /// The same once more, to be kept for long.
    pub fn again(&self) -> Self {
        let again = |pinned: &Pinned<Ranges>| Pinned::from_inner(Arc::clone(pinned));
        Self { pending: self.pending.as_ref().map(again), ..*self }
    }

    /// The same, to be kept for long.
    #[inline]
    pub fn kept(self) -> Self {
        Self { pending: self.pending.map(|pinned| Pinned::from_inner(Pinned::into_inner(pinned))), ..self }
    }
}

/// Pins something, then takes where to read; once more for as long as that is beyond what was
/// pinned. `db/read_at.rs` says why.
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

/// Whether a read at `at`, for which `pending` may not count, does not see an entry with the number
/// `seq`.
#[inline]
pub fn hides(pending: Option<&Ranges>, at: SeqNo, seq: SeqNo) -> bool {
    seq > at || pending.is_some_and(|pending| pending.hides(seq.0, at.0))
}

/// What jobs know of who reads.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    /// Every sequence number read at.
    pub snapshots: Vec<SeqNo>,
    /// What was inserted by transactions that not every reader sees, or does not see from its own
    /// number on: first number, the one behind the last, and where it was decided (`None`: it is
    /// not yet, as far as jobs are concerned). Ascending.
    pub pending: Vec<(SeqNo, SeqNo, Option<SeqNo>)>,
    /// Transactions insert when they are prepared, or did so when the database was open before, so
    /// there may be entries of some that were rolled back, and what that put there again.
    pub may_have_rolled_back: bool,
}

/// A state of a database that a snapshot keeps; whoever made it knows its type.
pub type KeptState = Arc<dyn Any + Send + Sync>;

/// The snapshots of one database.
#[derive(Debug, Default)]
pub struct Snapshots {
    held: Mutex<HeldList>,
    /// What was inserted and is not decided, if this database has transactions that do so.
    pending: Option<Arc<PendingRanges>>,
    /// As in [`Readers`].
    may_have_rolled_back: bool,
    /// Below it nobody reads any more, though somebody did; see [`Snapshots::released_below`].
    released_below: AtomicU64,
}

#[derive(Debug, Default)]
struct HeldList {
    sequences: SnapshotList,
    /// The lists that snapshots keep, by where they are in memory, with how many keep them.
    pending: BTreeMap<usize, (Arc<Ranges>, usize)>,
    /// Nobody takes one.
    closed: bool,
}

fn place_of(list: &Arc<Ranges>) -> usize {
    Arc::as_ptr(list).addr()
}

impl Snapshots {
    /// No snapshots; `pending` is given where transactions insert when they are prepared.
    /// `two_phases`: the database has or had transactions of two phases, of whichever policy.
    ///
    /// Why both count: what a rollback leaves stays in tables when the policy is another one, and
    /// `allow_2pc`, which OPTIONS keeps, is all that tells then that there may be such.
    pub fn new(pending: Option<Arc<PendingRanges>>, two_phases: bool) -> Self {
        let may_have_rolled_back = two_phases || pending.is_some();
        Self { pending, may_have_rolled_back, ..Self::default() }
    }

    /// Where a read that begins now reads; `newest` says the largest number that may be read at.
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

    /// Takes a snapshot of what `newest()` allows to be read, which is asked under the lock with
    /// which jobs copy the list.
    /// Why: a number taken before the lock could be dropped by a job that copies the list in
    /// between.
    ///
    /// `None` while somebody [holds them off](Self::hold_off), unless it is taken regardless.
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

    /// A snapshot of a state that is kept as a whole and read where `at` says.
    ///
    /// Why: who follows another process does not decide what of the state is kept.
    pub fn take_state(self: &Arc<Self>, at: &ReadAt, state: KeptState, now_s: u64) -> Snapshot {
        let mut held = self.held.lock();
        let pending = at.again().pending.map(Pinned::into_inner);
        held.sequences.acquire(at.seq, now_s);
        if let Some(list) = &pending {
            held.pending.entry(place_of(list)).or_insert_with(|| (list.clone(), 0)).1 += 1;
        }
        Snapshot(Arc::new(Held { seq: at.seq, pending, state: Some(state), list: self.clone() }))
    }

    /// Has nobody take a snapshot until the result is dropped; `None` if there are any, or somebody
    /// does so already.
    pub fn hold_off(self: &Arc<Self>) -> Option<HeldOff> {
        let mut held = self.held.lock();
        if held.closed || !held.sequences.is_empty() {
            return None;
        }
        held.closed = true;
        Some(HeldOff(self.clone()))
    }

    /// How many snapshots are held, and when the oldest was taken (Unix time in seconds).
    pub fn count_and_oldest_s(&self) -> (usize, Option<u64>) {
        let held = &self.held.lock().sequences;
        (held.len(), held.oldest_time_s())
    }

    /// Who reads at what. For jobs, which ask once everything that they read is visible.
    ///
    /// Why what is pending now counts as undecided, decided or not: it leaves that list only once
    /// everybody who comes sees it, and a job must not go by less. Why under the lock: a snapshot
    /// that is taken later keeps nothing, of what the job reads, that is not in the list now.
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

    /// A sequence number below which nobody reads any more since a snapshot was released; 0 while
    /// none was. Files that were written while it was held may keep entries for it in vain.
    pub fn released_below(&self) -> SeqNo {
        // Ordering: advice for pickers only.
        let released = self.released_below.load(Ordering::Relaxed);
        let Some(pending) = self.pending.as_ref().filter(|_| released > 0) else { return SeqNo(released) };
        // Why not above what is pending: its entries are kept with their numbers, and a file that
        // has them would be looked at again and again.
        let now = pending.now();
        let held = self.held.lock();
        let lists = held.pending.values().map(|(list, _)| list).chain([&now]);
        SeqNo(lists.filter_map(|list| list.first()).fold(released, u64::min))
    }

    /// The smallest sequence number read at.
    pub fn oldest(&self) -> Option<SeqNo> {
        self.held.lock().sequences.oldest()
    }
}

/// While it lives there is no snapshot.
#[derive(Debug)]
#[must_use = "snapshots are taken again when it is dropped"]
pub struct HeldOff(Arc<Snapshots>);

impl Drop for HeldOff {
    fn drop(&mut self) {
        self.0.held.lock().closed = false;
    }
}

/// The database as it was at one moment. Cloning is cheap; the moment is kept while any clone, or
/// any read made with one, lives.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Held>);

#[derive(Debug)]
struct Held {
    seq: SeqNo,
    pending: Option<Arc<Ranges>>,
    /// The state that it keeps, if a number alone does not.
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
    /// The sequence number it reads at.
    pub fn sequence_number(&self) -> u64 {
        self.0.seq.0
    }

    /// Where it reads.
    #[doc(hidden)]
    #[inline]
    pub fn read_at(&self) -> ReadAt {
        ReadAt { seq: self.0.seq, pending: self.0.pending.clone().map(Pinned::from_inner) }
    }

    /// The state that it keeps as a whole, if it does.
    #[doc(hidden)]
    pub fn state<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.state.clone()?.downcast().ok()
    }

    /// Whether it was taken from the database that has this list.
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
