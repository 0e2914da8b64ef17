//! An ordered map from byte strings to byte strings into which any number of threads insert while any
//! number read, without locks. Nothing is ever removed or moved: it grows until it is dropped.
//!
//! In: keys and values, copied into the list's arena. Out: [`Position`]s (small `Copy` values that stay
//! valid for the life of the list) and the bytes they stand for, borrowed from the list.
//!
//! Invariants:
//! - Level 0 links every node in strictly ascending order; each higher level links a subset of the one below.
//! - A node's bytes and its height are written before it is linked and never after.
//! - A node is in the list from the moment the compare-and-swap on level 0 succeeds; that instant orders
//!   two inserts of equal keys, and the second one fails.
//!
//! A node in memory (the tower grows towards lower addresses, so that the links used most, the header and
//! the key share a cache line):
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | -8 * (level + 1) | 8 | link to the next node on `level` |
//! | 0 | 4 | key length |
//! | 4 | 4 | value length |
//! | 8 | key length | key |
//! | 8 + key length | value length | value |
//!
//! Why no links back: they would need a second compare-and-swap per insert, and going back is rare enough
//! to pay for a search (as every RocksDB memtable does).
//! Why heights come from a hash of the key and not from a random source: the same contents give the same
//! structure in every run, and threads share no generator.

use crate::arena::{ALIGN, Arena};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};
use std::cmp;
use std::fmt;
use std::ptr::{self, NonNull};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// Levels a tower may have: with one node in four rising a level, enough for 4^12 nodes.
const MAX_HEIGHT: usize = if cfg!(loom) { 2 } else { 12 };
/// log2 of how many nodes share one that rises to the next level.
const RISE_BITS: u32 = if cfg!(loom) { 1 } else { 2 };

/// The order of the keys of a [`SkipList`]. It must be total and must not change over time.
pub trait KeyOrder: Send + Sync {
    /// Where `a` stands relative to `b`.
    fn compare(&self, a: &[u8], b: &[u8]) -> cmp::Ordering;
}

impl<F: Fn(&[u8], &[u8]) -> cmp::Ordering + Send + Sync> KeyOrder for F {
    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> cmp::Ordering {
        self(a, b)
    }
}

/// An entry of one [`SkipList`]; valid for as long as that list lives.
///
/// Using it with another list panics.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Position {
    node: NonNull<Node>,
    list: u64,
}

// SAFETY: a position is an address and a number; only a live list with that very number follows the
// address, and what it finds there is never written again (but for atomic links).
unsafe impl Send for Position {}
// SAFETY: as above.
unsafe impl Sync for Position {}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position({:p} of list {})", self.node, self.list)
    }
}

type Link = AtomicPtr<Node>;

#[repr(C)]
struct Node {
    key_len: u32,
    value_len: u32,
}

/// Why: a 64-bit word of the list must hold a link, the header and be what the arena aligns to.
const _: () = assert!(align_of::<Link>() <= ALIGN && align_of::<Node>() <= ALIGN && size_of::<Node>() == 8);
const LINK_BYTES: usize = size_of::<Link>();
const _: () = assert!(LINK_BYTES.is_multiple_of(ALIGN));

/// The links of one node, or of the list's head: level 0 at the address, each level above one word below it.
#[derive(Clone, Copy)]
struct Tower(*const Link);

impl Tower {
    fn of(node: *mut Node) -> Self {
        Self(node.cast::<Link>().wrapping_sub(1))
    }

    /// # Safety
    /// The node must belong to a list that outlives `'a`, and have a link on `level`.
    unsafe fn link<'a>(self, level: usize) -> &'a Link {
        // SAFETY: the caller's promise; a link was initialised when its node was made.
        unsafe { &*self.0.sub(level) }
    }

    /// # Safety
    /// As for [`link`](Self::link).
    unsafe fn next(self, level: usize) -> *mut Node {
        // Ordering: Acquire pairs with the Release that linked the node, so that its bytes are seen.
        // SAFETY: the caller's promise.
        unsafe { self.link(level) }.load(Ordering::Acquire)
    }
}

/// # Safety
/// `node` must be a node of a list that outlives `'a`, made by `new_node`.
unsafe fn key_of<'a>(node: *mut Node) -> &'a [u8] {
    // SAFETY: the header and the key lie in the node's memory, initialised, and never change.
    unsafe { std::slice::from_raw_parts(node.add(1).cast(), (*node).key_len as usize) }
}

/// # Safety
/// As for [`key_of`].
unsafe fn value_of<'a>(node: *mut Node) -> &'a [u8] {
    // SAFETY: the value follows the key in the node's memory; neither ever changes.
    unsafe {
        let value = node.add(1).cast::<u8>().add((*node).key_len as usize);
        std::slice::from_raw_parts(value, (*node).value_len as usize)
    }
}

/// Concurrent sorted map of byte strings over an arena. See the module's head.
///
/// All methods take `&self`, never block on another thread (but for a short lock when the arena needs
/// a new block) and may be called from any number of threads at once. A read sees every insert that
/// returned before the read began.
pub struct SkipList<C> {
    order: C,
    arena: Arena,
    /// Links to the first node of each level, laid out like a node's tower: level 0 last.
    head: [Link; MAX_HEIGHT],
    /// Levels in use; grows only.
    height: AtomicUsize,
    entries: AtomicUsize,
    id: u64,
}

/// The nodes around a key on each level: the tower that must link to it, and what that links to now.
struct Neighbours {
    before: [Tower; MAX_HEIGHT],
    after: [*mut Node; MAX_HEIGHT],
}

impl<C: KeyOrder> SkipList<C> {
    /// An empty list ordered by `order`. Allocates nothing until the first insert.
    pub fn new(order: C) -> Self {
        // Why std's atomic: a process-wide number is no part of what loom explores.
        static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self {
            order,
            arena: Arena::new(),
            head: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            height: AtomicUsize::new(1),
            entries: AtomicUsize::new(0),
            id: NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        }
    }

    /// The order given at creation.
    pub fn order(&self) -> &C {
        &self.order
    }

    /// Add `key` with `value`; `false`, and no change, if an equal key is there already.
    ///
    /// # Panics
    /// If the key or the value is 4 GiB long or longer.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> bool {
        let height = height_for(key);
        // Ordering: Relaxed; a search that starts too low on the towers only takes longer.
        let searched = self.height.load(Ordering::Relaxed).max(height);
        let mut around = self.neighbours(key, searched);
        if self.is_key(around.after[0], key) {
            return false;
        }
        let node = self.new_node(key, value, height);
        if searched == height {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
        for level in 0..height {
            loop {
                // SAFETY: `node` has a link on each level below `height`; on this one it is not linked yet, so
                // no other thread reads or writes the link.
                unsafe { Tower::of(node).link(level) }.store(around.after[level], Ordering::Relaxed);
                // SAFETY: a tower that the search found on this level.
                let link = unsafe { around.before[level].link(level) };
                // Ordering: Release publishes the node's bytes and links; readers load links with Acquire.
                if link
                    .compare_exchange(around.after[level], node, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
                {
                    break;
                }
                // Another insert came in between: search on from the node before, which is still before.
                (around.before[level], around.after[level]) = self.advance(around.before[level], level, key);
                if level == 0 && self.is_key(around.after[0], key) {
                    // The node's memory stays unused in the arena: rare, and bounded by the race.
                    return false;
                }
            }
        }
        // Ordering: Release, so that who reads the count finds the entries.
        self.entries.fetch_add(1, Ordering::Release);
        true
    }

    /// The entry with an equal key.
    pub fn get(&self, key: &[u8]) -> Option<Position> {
        self.seek_ge(key).filter(|p| self.order.compare(self.key(*p), key).is_eq())
    }

    /// The smallest entry.
    pub fn first(&self) -> Option<Position> {
        // SAFETY: the head has every level.
        self.position(unsafe { self.head().next(0) })
    }

    /// The largest entry. Costs a search.
    pub fn last(&self) -> Option<Position> {
        self.last_where(|_| true)
    }

    /// The smallest entry whose key is `key` or larger.
    pub fn seek_ge(&self, key: &[u8]) -> Option<Position> {
        let mut before = self.head();
        let mut larger = ptr::null_mut();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                // SAFETY: `before` was reached on this level or one above.
                let next = unsafe { before.next(level) };
                // Why: the node that ended the level above ends this one too; no need to compare again.
                if next.is_null() || next == larger {
                    break;
                }
                // SAFETY: a linked node of this list.
                match self.order.compare(unsafe { key_of(next) }, key) {
                    cmp::Ordering::Less => before = Tower::of(next),
                    cmp::Ordering::Equal => return self.position(next),
                    cmp::Ordering::Greater => {
                        larger = next;
                        break;
                    }
                }
            }
        }
        self.position(larger)
    }

    /// The largest entry whose key is smaller than `key`.
    pub fn seek_lt(&self, key: &[u8]) -> Option<Position> {
        self.last_where(|k| self.order.compare(k, key).is_lt())
    }

    /// The largest entry whose key is `key` or smaller.
    pub fn seek_le(&self, key: &[u8]) -> Option<Position> {
        self.last_where(|k| self.order.compare(k, key).is_le())
    }

    /// The entry after `position`.
    ///
    /// # Panics
    /// If `position` is of another list.
    pub fn next(&self, position: Position) -> Option<Position> {
        let node = self.check(position);
        // SAFETY: a node of this list; every node has level 0.
        self.position(unsafe { Tower::of(node).next(0) })
    }

    /// The entry before `position`. Costs a search.
    ///
    /// # Panics
    /// If `position` is of another list.
    pub fn prev(&self, position: Position) -> Option<Position> {
        self.seek_lt(self.key(position))
    }

    /// The key at `position`.
    ///
    /// # Panics
    /// If `position` is of another list.
    #[inline]
    pub fn key(&self, position: Position) -> &[u8] {
        // SAFETY: a node of this list, borrowed for no longer than the list.
        unsafe { key_of(self.check(position)) }
    }

    /// The value at `position`.
    ///
    /// # Panics
    /// If `position` is of another list.
    #[inline]
    pub fn value(&self, position: Position) -> &[u8] {
        // SAFETY: a node of this list, borrowed for no longer than the list.
        unsafe { value_of(self.check(position)) }
    }

    /// How many entries have been inserted, at least; an insert that is still running may or may not count.
    pub fn len(&self) -> usize {
        self.entries.load(Ordering::Acquire)
    }

    /// Whether nothing has been inserted.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Bytes of memory that the list holds, the unused rest of its newest block included.
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>() + self.arena.allocated_bytes()
    }

    #[inline]
    fn check(&self, position: Position) -> *mut Node {
        // Invariant: the number of a list is never used again, so an equal number means this very list, which
        // has never freed a node.
        assert!(position.list == self.id, "a position of list {} used with list {}", position.list, self.id);
        position.node.as_ptr()
    }

    #[inline]
    fn position(&self, node: *mut Node) -> Option<Position> {
        NonNull::new(node).map(|node| Position { node, list: self.id })
    }

    #[inline]
    fn head(&self) -> Tower {
        Tower(self.head.as_ptr().wrapping_add(MAX_HEIGHT - 1))
    }

    fn is_key(&self, node: *mut Node, key: &[u8]) -> bool {
        // SAFETY: null or a linked node of this list.
        !node.is_null() && self.order.compare(unsafe { key_of(node) }, key).is_eq()
    }

    /// From `before`, which stands before `key`, the last such tower on `level` and what it links to.
    fn advance(&self, mut before: Tower, level: usize, key: &[u8]) -> (Tower, *mut Node) {
        loop {
            // SAFETY: `before` was reached on this level or one above.
            let next = unsafe { before.next(level) };
            // SAFETY: a linked node of this list.
            if next.is_null() || self.order.compare(unsafe { key_of(next) }, key).is_ge() {
                return (before, next);
            }
            before = Tower::of(next);
        }
    }

    fn neighbours(&self, key: &[u8], height: usize) -> Neighbours {
        let mut around =
            Neighbours { before: [self.head(); MAX_HEIGHT], after: [ptr::null_mut(); MAX_HEIGHT] };
        let mut before = self.head();
        for level in (0..height).rev() {
            (before, around.after[level]) = self.advance(before, level, key);
            around.before[level] = before;
        }
        around
    }

    /// The last entry of the prefix of the list for which `holds` is true.
    fn last_where(&self, holds: impl Fn(&[u8]) -> bool) -> Option<Position> {
        let mut found = ptr::null_mut();
        let mut before = self.head();
        let mut beyond = ptr::null_mut();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                // SAFETY: `before` was reached on this level or one above.
                let next = unsafe { before.next(level) };
                if next.is_null() || next == beyond {
                    break;
                }
                // SAFETY: a linked node of this list.
                if !holds(unsafe { key_of(next) }) {
                    beyond = next;
                    break;
                }
                found = next;
                before = Tower::of(next);
            }
        }
        self.position(found)
    }

    /// A node with its bytes in place and its links null, not linked from anywhere.
    fn new_node(&self, key: &[u8], value: &[u8], height: usize) -> *mut Node {
        let key_len = u32::try_from(key.len()).expect("a key of 4 GiB or more");
        let value_len = u32::try_from(value.len()).expect("a value of 4 GiB or more");
        let links = height * LINK_BYTES;
        let memory = self.arena.allocate(links + size_of::<Node>() + key.len() + value.len()).as_ptr();
        // SAFETY: the arena handed out this many bytes, aligned, to this thread alone: first `height` links,
        // then the header, then the key and the value.
        unsafe {
            for level in 0..height {
                memory.cast::<Link>().add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
            let node = memory.add(links).cast::<Node>();
            node.write(Node { key_len, value_len });
            let bytes = node.add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(key.as_ptr(), key.len());
            bytes.add(key.len()).copy_from_nonoverlapping(value.as_ptr(), value.len());
            node
        }
    }
}

impl<C> fmt::Debug for SkipList<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SkipList")
            .field("entries", &self.entries.load(Ordering::Relaxed))
            .field("allocated_bytes", &self.arena.allocated_bytes())
            .finish()
    }
}

/// Levels for a node of this key: 1, and one more with probability 1/4 each.
fn height_for(key: &[u8]) -> usize {
    const M: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = key.len() as u64 ^ M;
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        hash = (hash ^ word).wrapping_mul(M).rotate_left(29);
    }
    let mut rest = [0; 8];
    rest[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    hash = (hash ^ u64::from_le_bytes(rest)).wrapping_mul(M);
    hash = (hash ^ (hash >> 32)).wrapping_mul(M);
    hash ^= hash >> 29;
    (1 + (hash.trailing_zeros() / RISE_BITS) as usize).min(MAX_HEIGHT)
}
