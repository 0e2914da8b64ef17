//! Inserts into a [`SkipList`]: nodes are made first ([`SkipList::prepare`]), then linked, several
//! at once ([`SkipList::link_all`]).
//!
//! Takes keys and values; the result is nodes linked in the list, and the number of those refused
//! because an equal key exists. Called on any number of threads.
//!
//! The place of a node is found in two ways. Along the *finger*, the neighbours of the node linked
//! last: two comparisons, if the new node is next to it, as when keys are written in order. Or by a
//! search from the head; several searches take turns waiting for memory.
//!
//! Invariant: a node is linked on a level by a compare-and-swap of the link of a tower before its
//! key, from a node behind it. The starting point, even an old finger, only determines the length
//! of the rest of the search.

use super::KeyOrder;
use super::{
    LINK_BYTES, Link, MAX_HEIGHT, Node, RISE_BITS, SEARCHED, SkipList, Tower, fetch_below, key_of, prefetch,
};
use crate::sync::{AtomicPtr, MutexGuard, Ordering};
use std::ptr::{self, NonNull};

/// Number of searches that take turns in [`SkipList::link_all`].
const LANES: usize = 8;

/// Number of groups linked away from the finger in a row after which the finger is tried only for
/// [`LOOKED_AT`] entries of every [`OF_ENTRIES`], because concurrent writers whose keys have no
/// order would move its cache line between them for nothing.
pub(super) const STRAYED: usize = 16;
pub(super) const LOOKED_AT: usize = 64;
pub(super) const OF_ENTRIES: usize = 1024;

/// An entry that is allocated in a list's memory, and enters the list once it is linked. Dropping
/// it leaves its memory unused.
#[derive(Debug)]
pub struct Unlinked {
    node: NonNull<Node>,
    height: usize,
    list: u64,
}

// SAFETY: as for `Position`: an address and numbers, followed only by the live list of that number;
// and this node has no other owner.
unsafe impl Send for Unlinked {}
// SAFETY: as for `Send`; a shared reference allows no access.
unsafe impl Sync for Unlinked {}

/// The nodes around a key on each level: the tower that must link to it, and the node that the
/// tower links to now.
struct Neighbours {
    before: [Tower; MAX_HEIGHT],
    after: [*mut Node; MAX_HEIGHT],
}

impl Neighbours {
    fn of_nothing(head: Tower) -> Self {
        Self { before: [head; MAX_HEIGHT], after: [ptr::null_mut(); MAX_HEIGHT] }
    }
}

/// The neighbours of the place right behind the node linked last.
///
/// Invariant: on each level `before` is before `after`; where `before` is the head or `after` is
/// null, the level is open on that side.
pub(super) struct Finger(Neighbours);

// SAFETY: addresses of nodes of the list that has the finger; the holder of the lock follows them
// while the list lives.
unsafe impl Send for Finger {}

/// One of the searches of [`SkipList::link_all`].
struct Lane {
    node: *mut Node,
    height: usize,
    level: usize,
    /// A tower before the key, reached on `level` or above.
    before: Tower,
    /// The node that `before` links to on `level`; not compared yet.
    next: *mut Node,
    /// The node that ended the level above.
    beyond: *mut Node,
    around: Neighbours,
    found: bool,
}

impl Lane {
    fn idle(head: Tower) -> Self {
        Self {
            node: ptr::null_mut(),
            height: 0,
            level: 0,
            before: head,
            next: ptr::null_mut(),
            beyond: ptr::null_mut(),
            around: Neighbours::of_nothing(head),
            found: false,
        }
    }
}

impl<C: KeyOrder> SkipList<C> {
    /// Adds `key` with `value`; returns `false`, without a change, if an equal key exists.
    ///
    /// # Panics
    /// The key or the value is 4 GiB long or longer.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> bool {
        self.link_all(std::iter::once(self.prepare(key, &[], value))) == 0
    }

    /// Makes an entry whose key is `key` followed by `suffix`. It enters the list once it is
    /// [linked](Self::link_all).
    ///
    /// # Panics
    /// The key or the value is 4 GiB long or longer.
    #[inline]
    pub fn prepare(&self, key: &[u8], suffix: &[u8], value: &[u8]) -> Unlinked {
        self.make([key, suffix], [value, &[]])
    }

    /// Makes an entry like [`prepare`](Self::prepare) of a key and a value in two parts each.
    ///
    /// # Panics
    /// The key or the value is 4 GiB long or longer.
    pub fn prepare_parts(&self, key: [&[u8]; 2], value: [&[u8]; 2]) -> Unlinked {
        self.make(key, value)
    }

    // Always inlined, because an empty second part of a value then costs nothing.
    #[inline(always)]
    fn make(&self, [key, suffix]: [&[u8]; 2], [value, tail]: [&[u8]; 2]) -> Unlinked {
        let height = height_for(key, suffix);
        let key_len = u32::try_from(key.len() + suffix.len()).expect("a key of 4 GiB or more");
        let value_len = u32::try_from(value.len() + tail.len()).expect("a value of 4 GiB or more");
        let links = height * LINK_BYTES;
        let bytes = links + size_of::<Node>() + key.len() + suffix.len() + value.len() + tail.len();
        let memory = self.arena.allocate(bytes).as_ptr();
        // SAFETY: the arena handed out this many bytes, aligned, to this thread alone: first
        // `height` links, then the header, then the key and the value in their two parts.
        let node = unsafe {
            for level in 0..height {
                memory.cast::<Link>().add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
            let node = memory.add(links).cast::<Node>();
            node.write(Node { key_len, value_len });
            let mut at = node.add(1).cast::<u8>();
            for part in [key, suffix, value, tail] {
                at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                at = at.add(part.len());
            }
            NonNull::new_unchecked(node)
        };
        Unlinked { node, height, list: self.id }
    }

    /// Links entries into the list. Returns the number refused because an equal key exists.
    ///
    /// Several together, because a search is a chain of cache misses, each of which depends on the
    /// one before. Here the searches of a few keys take turns, and while one waits for memory the
    /// others continue.
    ///
    /// # Panics
    /// An entry was made by another list.
    pub fn link_all(&self, entries: impl IntoIterator<Item = Unlinked>) -> usize {
        let mut entries = entries.into_iter();
        let mut finger = self.finger();
        let (mut linked, mut refused) = (0, 0);
        loop {
            let mut group: [Option<Unlinked>; LANES] = [const { None }; LANES];
            let mut len = 0;
            while len < LANES
                && let Some(entry) = entries.next()
            {
                assert!(entry.list == self.id, "an entry of list {} linked to list {}", entry.list, self.id);
                if len == 0
                    && let Some(finger) = finger.as_mut().and_then(|finger| finger.as_mut())
                    && self.is_next(finger, &entry)
                {
                    let done = self.link(entry.node.as_ptr(), entry.height, &mut finger.0);
                    self.followed();
                    (linked, refused) = (linked + usize::from(done), refused + usize::from(!done));
                    continue;
                }
                group[len] = Some(entry);
                len += 1;
            }
            let Some(last) = self.link_searched(&mut group[..len], &mut linked, &mut refused) else { break };
            if let Some(finger) = finger.as_mut() {
                self.strayed();
                match &mut **finger {
                    Some(finger) => finger.0 = last,
                    none => *none = Some(Box::new(Finger(last))),
                }
            }
        }
        // Ordering: Release; a thread that reads the count finds the entries.
        self.entries.fetch_add(linked, Ordering::Release);
        refused
    }

    /// Returns the finger, if it is worth trying and free.
    #[inline]
    fn finger(&self) -> Option<MutexGuard<'_, Option<Box<Finger>>>> {
        // Ordering: Relaxed for both numbers, because they are hints.
        let strays = self.strayed.load(Ordering::Relaxed) == STRAYED
            && self.entries.load(Ordering::Relaxed) % OF_ENTRIES >= LOOKED_AT;
        // `try_lock`, because the holder inserts elsewhere, and a search costs less than moving the
        // lock's cache line.
        if strays { None } else { self.finger.try_lock() }
    }

    /// Called after an entry was linked along the finger, with its lock held.
    #[inline]
    fn followed(&self) {
        if self.strayed.load(Ordering::Relaxed) > 0 {
            self.strayed.store(0, Ordering::Relaxed);
        }
    }

    /// Called after a group was linked elsewhere, with the finger's lock held.
    #[inline]
    fn strayed(&self) {
        let strayed = self.strayed.load(Ordering::Relaxed);
        if strayed < STRAYED {
            self.strayed.store(strayed + 1, Ordering::Relaxed);
        }
    }

    /// Returns true if an entry's place is right behind the finger, and the finger is current
    /// there.
    #[inline]
    fn is_next(&self, finger: &Finger, entry: &Unlinked) -> bool {
        let around = &finger.0;
        // SAFETY: an unlinked node of this list.
        let key = unsafe { key_of(entry.node.as_ptr()) };
        let (before, after) = (around.before[0], around.after[0]);
        // SAFETY: a tower is the head's or a linked node's, and those have nodes.
        let follows =
            before.0 == self.head().0 || unsafe { self.order.compare(key_of(before.node()), key) }.is_lt();
        follows
            // SAFETY: null or a linked node of this list.
            && (after.is_null() || unsafe { self.order.compare(key, key_of(after)) }.is_lt())
            // Checked, because from an old finger the way could be as long as the list.
            // SAFETY: `before` on a level was reached there.
            && (0..entry.height).all(|level| unsafe { around.before[level].next(level) } == around.after[level])
    }

    /// Links up to [`LANES`] entries, each after a search from the head. Returns the neighbours of
    /// the last of them; `None` for an empty group.
    fn link_searched(
        &self,
        group: &mut [Option<Unlinked>],
        linked: &mut usize,
        refused: &mut usize,
    ) -> Option<Neighbours> {
        let mut count = |done: bool| match done {
            true => *linked += 1,
            false => *refused += 1,
        };
        if let [only] = group {
            let entry = only.take().expect("a group is full up to its length");
            // SAFETY: an unlinked node of this list.
            let key = unsafe { key_of(entry.node.as_ptr()) };
            let mut around = self.neighbours(key, self.searched(entry.height));
            count(self.link(entry.node.as_ptr(), entry.height, &mut around));
            return Some(around);
        }
        // Checked first, because the lanes are kilobytes to fill.
        if group.is_empty() {
            return None;
        }
        let mut lanes: [Lane; LANES] = std::array::from_fn(|_| Lane::idle(self.head()));
        let lanes = &mut lanes[..group.len()];
        for (lane, entry) in lanes.iter_mut().zip(group) {
            let entry = entry.take().expect("a group is full up to its length");
            (lane.node, lane.height) = (entry.node.as_ptr(), entry.height);
            lane.level = self.searched(lane.height) - 1;
            // SAFETY: the head has every level.
            lane.next = unsafe { lane.before.next(lane.level) };
            prefetch(lane.next, SEARCHED);
        }
        let mut open = lanes.len();
        while open > 0 {
            for lane in lanes.iter_mut().filter(|lane| !lane.found) {
                if self.step(lane) {
                    lane.found = true;
                    open -= 1;
                }
            }
        }
        for lane in lanes.iter_mut() {
            count(self.link(lane.node, lane.height, &mut lane.around));
        }
        lanes.last_mut().map(|lane| std::mem::replace(&mut lane.around, Neighbours::of_nothing(self.head())))
    }

    /// Returns the number of levels that a search for the place of a node visits.
    #[inline]
    fn searched(&self, height: usize) -> usize {
        // Ordering: Relaxed; a search that starts on too low a level only takes longer.
        self.height.load(Ordering::Relaxed).max(height)
    }

    /// Does one step of a search, up to the next access to memory that may have to wait. Returns
    /// `true` when the search has ended.
    #[inline(always)]
    fn step(&self, lane: &mut Lane) -> bool {
        // SAFETY: a node of this list that is not linked yet, and a linked one.
        if !lane.next.is_null() && unsafe { self.order.compare(key_of(lane.next), key_of(lane.node)) }.is_lt()
        {
            lane.before = Tower::of(lane.next);
            // SAFETY: `next` was reached on this level.
            lane.next = unsafe { lane.before.next(lane.level) };
            if !lane.next.is_null() && lane.next != lane.beyond {
                prefetch(lane.next, SEARCHED);
                return false;
            }
        }
        loop {
            lane.around.before[lane.level] = lane.before;
            lane.around.after[lane.level] = lane.next;
            if lane.level == 0 {
                return true;
            }
            lane.level -= 1;
            lane.beyond = lane.next;
            // SAFETY: `before` was reached on a level above.
            lane.next = unsafe { lane.before.next(lane.level) };
            // Skipped, because the node that ended the level above ends this one too.
            if !lane.next.is_null() && lane.next != lane.beyond {
                prefetch(lane.next, SEARCHED);
                return false;
            }
        }
    }

    /// Links a node on its levels between its neighbours, which become those of the place right
    /// behind it. Returns `false` if an equal key exists.
    fn link(&self, node: *mut Node, height: usize, around: &mut Neighbours) -> bool {
        // SAFETY: a node of this list.
        let key = unsafe { key_of(node) };
        if self.is_key(around.after[0], key) {
            return false;
        }
        if self.height.load(Ordering::Relaxed) < height {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
        for level in 0..height {
            loop {
                // SAFETY: `node` has a link on each level below `height`; on this one it is not
                // linked yet, so no other thread reads or writes the link.
                unsafe { Tower::of(node).link(level) }.store(around.after[level], Ordering::Relaxed);
                // SAFETY: a tower that the search found on this level.
                let link = unsafe { around.before[level].link(level) };
                // Ordering: Release publishes the node's bytes and links; readers load links with
                // Acquire.
                if link
                    .compare_exchange(around.after[level], node, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
                {
                    around.before[level] = Tower::of(node);
                    break;
                }
                // Another insert came in between: search on from the tower before, which is still
                // before.
                (around.before[level], around.after[level]) =
                    self.advance_to(around.before[level], level, key, ptr::null_mut());
                if level == 0 && self.is_key(around.after[0], key) {
                    // The node's memory stays unused in the arena: rare, and bounded by the race.
                    return false;
                }
            }
        }
        true
    }

    #[inline]
    fn is_key(&self, node: *mut Node, key: &[u8]) -> bool {
        // SAFETY: null or a linked node of this list.
        !node.is_null() && self.order.compare(unsafe { key_of(node) }, key).is_eq()
    }

    /// Returns, from `before`, which is before `key`, the last such tower on `level`, and the node
    /// it links to. `beyond`, if not null, is known not to be before `key`.
    #[inline]
    fn advance_to(
        &self,
        mut before: Tower,
        level: usize,
        key: &[u8],
        beyond: *mut Node,
    ) -> (Tower, *mut Node) {
        loop {
            // SAFETY: `before` was reached on this level or one above.
            let next = unsafe { before.next(level) };
            // SAFETY: as above.
            unsafe { fetch_below(before, level) };
            // Compared by address first, because the node that ended the level above ends this one
            // too, without a comparison of keys.
            // SAFETY: a linked node of this list.
            if next.is_null() || next == beyond || self.order.compare(unsafe { key_of(next) }, key).is_ge() {
                return (before, next);
            }
            before = Tower::of(next);
        }
    }

    fn neighbours(&self, key: &[u8], height: usize) -> Neighbours {
        let mut around = Neighbours::of_nothing(self.head());
        let mut before = self.head();
        let mut beyond = ptr::null_mut();
        for level in (0..height).rev() {
            (before, beyond) = self.advance_to(before, level, key, beyond);
            around.before[level] = before;
            around.after[level] = beyond;
        }
        around
    }

    /// Returns true if the finger is right behind a linked entry, for tests.
    #[cfg(test)]
    pub(super) fn finger_stands_behind(&self, position: super::Position) -> bool {
        let finger = self.finger.lock();
        finger.as_ref().is_some_and(|finger| finger.0.before[0].0 == Tower::of(position.node.as_ptr()).0)
    }
}

/// Returns the number of levels of a node of this key: 1, and one more with probability 1/2 each.
pub(super) fn height_for(key: &[u8], suffix: &[u8]) -> usize {
    const M: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (key.len() + suffix.len()) as u64 ^ M;
    for part in [key, suffix] {
        let mut chunks = part.chunks_exact(8);
        for chunk in &mut chunks {
            let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            hash = (hash ^ word).wrapping_mul(M).rotate_left(29);
        }
        if !chunks.remainder().is_empty() {
            let mut rest = [0; 8];
            rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
            hash = (hash ^ u64::from_le_bytes(rest)).wrapping_mul(M).rotate_left(29);
        }
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(M);
    hash ^= hash >> 29;
    (1 + (hash.trailing_zeros() / RISE_BITS) as usize).min(MAX_HEIGHT)
}
