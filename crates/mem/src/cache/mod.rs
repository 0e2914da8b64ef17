//! The block cache: a hash table of weighted, pin-counted entries like RocksDB's HyperClockCache.
//! It maps keys to values of any type with a charge in bytes; lookups and inserts return
//! [`Handle`]s, which pin.
//!
//! - A hit is one hash, one look at the tags of seven slots (a byte for each slot, which keeps them
//!   in the processor's caches), and one access to main memory: the slot, which holds state, key
//!   and value together. It pins by one atomic add and releases by another. No lock, no list, no
//!   allocation. `cache/table.rs` has the search and `cache/slot.rs` the protocol.
//! - Eviction is a clock: a hand passes over the slots, lowers the count of entries not used since
//!   its last round, and evicts those whose count has run out. Each insert that needs room moves
//!   the hand itself.
//! - Priorities: an entry survives a number of unused rounds by priority (High 3, Low 2, Bottom 1);
//!   use raises any entry to 3. Beyond that, entries of High priority (index, filter) age only in
//!   every eighth round while all of them together take no more than `metadata_fraction` of the
//!   capacity. A scan of data blocks therefore does not evict metadata, and unused metadata is
//!   evicted in the end.
//! - Entries of any size: the table starts small and doubles when it is three quarters full,
//!   regardless of the estimated size, which means that small entries are never evicted for lack of
//!   slots. The old table takes no more inserts; every insert (and every hit in the old table)
//!   moves a few of its entries over, and pinned ones stay until they are released. An empty old
//!   table returns its memory to the system; its address range stays mapped, because a late search
//!   may still read it. Every entry is charged for its slot too, which bounds the table by the
//!   capacity. Large entries leave the table sparse; the hand passes free slots seven at a time.
//! - A value that does not fit (capacity 0, or all is pinned and `strict_capacity` is set) is
//!   returned in a standalone handle: fully usable, charged while it lives, found by other lookups
//!   while it is pinned, and dropped with the last handle (`cache/in_use.rs`).
//!
//! The table does not move entries in place when it grows, because a pinned value cannot move, and
//! chains through the slots (RocksDB's AutoHyperClockCache) make every lookup follow a link.
//!
//! Invariants: tables form a chain from `current` through `older`; only `current` takes inserts;
//! the chain only grows, at the front, under `migration`. A search may miss an entry that is just
//! being moved or placed, which costs a cache one read; it never returns a wrong value.

mod account;
mod handle;
mod in_use;
mod key;
mod lookup_counts;
mod options;
mod slot;
mod slots;
mod table;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use account::{Charge, ChargeKind};
pub use handle::Handle;
pub use key::CacheKey;
pub use options::{CacheCounters, CacheOptions, Priority};

use crate::sync::{Arc, AtomicPtr, AtomicUsize, Mutex, Ordering};
use account::Account;
use in_use::InUse;
use lookup_counts::LookupCounts;
use slot::{Entry, RELEASED_ONE, Slot};
use std::fmt;
use std::ptr;
use table::{Swept, Table};

/// Maximum number of slots of a cache's first table.
const FIRST_SLOTS: usize = if cfg!(loom) {
    7
} else if cfg!(miri) {
    14
} else {
    1 << 13
};
/// Minimum number of slots of a table.
const SLOTS_AT_LEAST: usize = if cfg!(loom) { 7 } else { 14 };
/// Slots of the old table whose entries an insert moves.
const DRAIN_SLOTS: usize = if cfg!(loom) { 7 } else { 28 };
/// Entries of High priority within their fraction age in one of this many rounds.
const HIGH_AGES_EVERY: usize = 8;
/// Rounds after which any unpinned entry has aged out: first those that are not spared, then, after
/// one round that finds none of them, the others.
const ROUNDS_AT_MOST: usize = 2 * slot::COUNT_AT_MOST as usize + 3;
/// Maximum number of pinned entries seen for each evicted one before an insert gives up looking for
/// room. Without it, concurrent lookups that pin more than the cache holds made each insert visit
/// all of their entries, a cache miss each.
const PINNED_PER_EVICTED_AT_MOST: usize = 16;

/// Returns the number of slots that the hand passes, beside free ones, between two checks of the
/// free bytes: several in a large table, which lets threads meet less often at the hand; one in a
/// small one, which evicts no entry too many.
fn sweep_slots(table_slots: usize) -> usize {
    if table_slots <= 4096 { 1 } else { 4 }
}

/// Returns the number of stretches of the hand between two checks of pins, of the share of metadata
/// and of older tables. Those checks cost more than a stretch; in a small table several stretches
/// would be a round.
fn sweeps_at_once(table_slots: usize) -> usize {
    (table_slots / 64).clamp(1, 8)
}

/// A concurrent cache of values by key, bounded by the sum of their charges. See the module
/// documentation.
///
/// Shared by reference between any number of threads. No method blocks, except on a short lock
/// while the table grows or an entry is erased.
pub struct BlockCache<V> {
    /// Invariant: never null; valid until the cache is dropped, as are all tables in the chain
    /// behind it.
    current: AtomicPtr<Table<V>>,
    counts: LookupCounts,
    account: Arc<Account>,
    /// Pinned values that found no room.
    in_use: Arc<InUse<V>>,
    strict_capacity: bool,
    metadata_fraction: f64,
    /// Number of slots that the hand passes before it spares High priority again.
    unspared_slots: AtomicUsize,
    /// Lock: held to grow the table, to move entries between tables, and to erase (which must not
    /// miss a moving entry).
    migration: Mutex<()>,
    /// Number of users that were given a number.
    users: AtomicUsize,
}

// SAFETY: values are shared between threads and dropped on any; all other state is atomic or
// locked.
unsafe impl<V: Send + Sync> Send for BlockCache<V> {}
// SAFETY: as for `Send`.
unsafe impl<V: Send + Sync> Sync for BlockCache<V> {}

impl<V> BlockCache<V> {
    /// Bytes charged for each entry beyond its own charge: its slot.
    pub const ENTRY_OVERHEAD_BYTES: usize = size_of::<Slot<V>>();

    /// Returns an empty cache.
    ///
    /// # Panics
    /// The system has no memory for the smallest table.
    pub fn new(options: CacheOptions) -> Self {
        let estimated_entry_bytes = match options.estimated_entry_bytes {
            0 => 4 << 10,
            bytes => bytes,
        };
        let slots = Self::slots_for(options.capacity_bytes, estimated_entry_bytes).min(FIRST_SLOTS);
        let table = Table::new(slots, ptr::null_mut()).expect("no memory for the first table of a cache");
        Self {
            current: AtomicPtr::new(table),
            counts: LookupCounts::new(),
            account: Arc::new(Account::new(options.capacity_bytes)),
            in_use: Arc::new(InUse::new()),
            strict_capacity: options.strict_capacity,
            metadata_fraction: options.metadata_fraction.clamp(0.0, 1.0),
            unspared_slots: AtomicUsize::new(0),
            migration: Mutex::new(()),
            users: AtomicUsize::new(0),
        }
    }

    /// Returns a number unique among the calls on this cache, from 1: users that share the cache
    /// distinguish their keys by it. It depends only on earlier calls, which makes evictions
    /// independent of other caches of the process.
    pub fn new_user(&self) -> u64 {
        // Ordering: Relaxed, because the number publishes nothing.
        self.users.fetch_add(1, Ordering::Relaxed) as u64 + 1
    }

    /// Returns the number of slots that entries of the estimated size leave three fifths full.
    fn slots_for(capacity_bytes: usize, entry_bytes: usize) -> usize {
        let entries = capacity_bytes / (entry_bytes + Self::ENTRY_OVERHEAD_BYTES);
        (entries / 3 * 5).max(SLOTS_AT_LEAST)
    }

    /// Returns the value of `key`, pinned. Lock-free; no allocation.
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<Handle<V>> {
        let (key, hash) = (key.words(), key::hash(key.words()));
        let table = self.current();
        match table.find(hash, key) {
            Some(slot) => {
                self.counts.hit();
                Some(Handle::from_pinned(slot))
            }
            None => self.get_older(table, hash, key),
        }
    }

    /// Prefetches the memory that [`get`](Self::get) of this key will read. Pays off for keys that
    /// are looked up a little later, as in a batch: each `get` waits for memory, and its atomic add
    /// keeps the processor from starting the next one meanwhile.
    #[inline]
    pub fn prefetch(&self, key: CacheKey) {
        self.current().prefetch(key::hash(key.words()));
    }

    #[cfg(all(test, not(loom)))]
    fn groups_searched(&self, key: CacheKey) -> usize {
        self.current().groups_searched(key::hash(key.words()))
    }

    /// The rest of [`get`](Self::get) when the current table does not have the key.
    #[cold]
    fn get_older(&self, table: &Table<V>, hash: u64, key: [u64; 2]) -> Option<Handle<V>> {
        match self.find_older(table, hash, key) {
            Some(slot) => {
                self.counts.hit();
                let handle = Handle::from_pinned(slot);
                // Moves entries here too, because without inserts only hits bring them to the table
                // in which they are found faster.
                self.help_migration();
                Some(handle)
            }
            None => {
                let held = Handle::of_listed(key, &self.in_use);
                if held.is_some() {
                    self.counts.hit()
                } else {
                    self.counts.miss()
                }
                held
            }
        }
    }

    fn find_older<'a>(&'a self, table: &'a Table<V>, hash: u64, key: [u64; 2]) -> Option<&'a Slot<V>> {
        self.older_tables(table).find_map(|t| t.find(hash, key))
    }

    /// Adds a value and returns it pinned. If an entry with the same key exists, returns its handle
    /// and drops `value`. If no room is left (see [`CacheOptions`]), the handle is standalone:
    /// other lookups find the value while it is pinned.
    ///
    /// The entry is charged `charge_bytes` and
    /// [`ENTRY_OVERHEAD_BYTES`](Self::ENTRY_OVERHEAD_BYTES). Two inserts of one key at the same
    /// instant may both stay in the table, each found by some lookups; both age out.
    pub fn insert(&self, key: CacheKey, value: V, charge_bytes: usize, priority: Priority) -> Handle<V> {
        self.insert_or_refuse(key, value, charge_bytes, priority)
            .unwrap_or_else(|value| self.standalone(key, value, charge_bytes))
    }

    /// Adds a value like [`insert`](Self::insert), but returns it if the capacity is strict and no
    /// room is left.
    pub fn try_insert(
        &self,
        key: CacheKey,
        value: V,
        charge_bytes: usize,
        priority: Priority,
    ) -> Result<Handle<V>, V> {
        match self.insert_or_refuse(key, value, charge_bytes, priority) {
            Err(value) if !self.strict_capacity => Ok(self.standalone(key, value, charge_bytes)),
            result => result,
        }
    }

    fn standalone(&self, key: CacheKey, value: V, charge_bytes: usize) -> Handle<V> {
        self.account.standalone_inserts.fetch_add(1, Ordering::Relaxed);
        let bytes = charge_bytes.saturating_add(Self::ENTRY_OVERHEAD_BYTES);
        self.account.usage_bytes.fetch_add(bytes, Ordering::Relaxed);
        let charge = Charge::admitted(ChargeKind(0), bytes, &self.account);
        Handle::listed(value, charge, key.words(), &self.in_use)
    }

    fn insert_or_refuse(
        &self,
        key: CacheKey,
        value: V,
        charge_bytes: usize,
        priority: Priority,
    ) -> Result<Handle<V>, V> {
        let (key, hash) = (key.words(), key::hash(key.words()));
        let table = self.current();
        if let Some(slot) = table.find(hash, key).or_else(|| self.find_older(table, hash, key)) {
            return Ok(Handle::from_pinned(slot));
        }
        if let Some(held) = Handle::of_listed(key, &self.in_use) {
            return Ok(held);
        }
        let charge = charge_bytes.saturating_add(Self::ENTRY_OVERHEAD_BYTES);
        if charge > self.capacity_bytes() || !self.admit(charge, self.strict_capacity) {
            return Err(value);
        }
        let entry = Entry { key, value, charge, priority, count: priority.rounds_unused() - 1 };
        match self.place(hash, entry, 1) {
            Ok(slot) => {
                let handle = Handle::from_pinned(slot);
                self.account.entry_added(charge, priority);
                self.account.inserts.fetch_add(1, Ordering::Relaxed);
                self.help_migration();
                Ok(handle)
            }
            Err(entry) => {
                self.account.usage_bytes.fetch_sub(charge, Ordering::Relaxed);
                Err(entry.value)
            }
        }
    }

    /// Puts an entry into the current table, which grows first if it is crowded.
    fn place(&self, hash: u64, mut entry: Entry<V>, pins: u64) -> Result<&Slot<V>, Entry<V>> {
        loop {
            let mut table = self.current();
            if table.is_crowded() {
                self.grow(table);
                table = self.current();
            }
            match table.place(hash, entry, pins) {
                Ok(slot) => return Ok(slot),
                // The table is full and could not grow.
                Err(refused) if ptr::eq(table, self.current()) => return Err(refused),
                Err(refused) => entry = refused,
            }
        }
    }

    /// Counts `bytes` against the capacity, evicting to make room. Returns `false`, with nothing
    /// counted, if `strict` and too much is pinned.
    fn admit(&self, bytes: usize, strict: bool) -> bool {
        let used = self.account.usage_bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let excess = used.saturating_sub(self.capacity_bytes());
        if excess != 0 && self.evict(excess) < excess && strict {
            self.account.usage_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Charges memory outside of the cache against its capacity, evicting to make room. Always
    /// granted, even beyond the capacity.
    pub fn reserve(&self, kind: ChargeKind, bytes: usize) -> Charge {
        self.admit(bytes, false);
        Charge::admitted(kind, bytes, &self.account)
    }

    /// Charges memory like [`reserve`](Self::reserve), but returns `None` if the capacity is strict
    /// and no room is left.
    pub fn try_reserve(&self, kind: ChargeKind, bytes: usize) -> Option<Charge> {
        self.admit(bytes, self.strict_capacity).then(|| Charge::admitted(kind, bytes, &self.account))
    }

    /// Returns the bytes of reservations of one kind; for kind 0 including those of standalone
    /// handles.
    pub fn charged_bytes(&self, kind: ChargeKind) -> usize {
        self.account.charged_bytes[usize::from(kind.0)].load(Ordering::Relaxed)
    }

    /// Removes the entry of `key`; returns true if one was found. Handles to it stay valid, and its
    /// charge counts until it is unpinned and the eviction hand passes it.
    pub fn erase(&self, key: CacheKey) -> bool {
        let (key, hash) = (key.words(), key::hash(key.words()));
        let _lock = self.migration.lock();
        let mut found = false;
        for table in self.tables() {
            found |= table.erase(hash, key, &mut |entry| self.removed(entry));
        }
        found | self.in_use.erase(key)
    }

    /// Returns the maximum bytes of charges.
    pub fn capacity_bytes(&self) -> usize {
        self.account.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Sets the capacity. If more is used, evicts unpinned entries, on this thread; later inserts
    /// evict the rest.
    pub fn set_capacity(&self, bytes: usize) {
        self.account.capacity_bytes.store(bytes, Ordering::Relaxed);
        loop {
            let excess = self.usage_bytes().saturating_sub(bytes);
            if excess == 0 || self.evict(excess) == 0 {
                return;
            }
        }
    }

    /// Returns the bytes of all charges: of entries, of standalone handles, of reservations.
    pub fn usage_bytes(&self) -> usize {
        self.account.usage_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory: all charges, and the uncharged part of the tables. Much of that
    /// part in a table that grew large is reserved and was never written.
    pub fn memory_bytes(&self) -> usize {
        let current = self.current();
        let tables = std::iter::once(current).chain(self.older_tables(current));
        self.usage_bytes() + tables.map(Table::uncharged_bytes).sum::<usize>()
    }

    /// Returns true if the charges exceed the capacity; then entries leave the cache when they are
    /// released.
    pub fn is_overcommitted(&self) -> bool {
        self.usage_bytes() > self.capacity_bytes()
    }

    /// Returns the charges of pinned memory: entries with a handle, standalone handles,
    /// reservations.
    ///
    /// Visits every entry: some ten milliseconds per million.
    pub fn pinned_bytes(&self) -> usize {
        let charged = self.account.all_charged_bytes();
        charged + self.tables().map(Table::pinned_bytes).sum::<usize>()
    }

    /// Calls `show` for every entry with its charge in bytes, its slot included. May skip or repeat
    /// entries that are added or removed meanwhile. No entry counts as used.
    ///
    /// Visits every entry: some ten milliseconds per million.
    pub fn for_each(&self, mut show: impl FnMut(&V, usize)) {
        self.tables().for_each(|table| table.for_each(&mut show));
    }

    /// Returns the number of entries in the tables.
    pub fn entry_count(&self) -> usize {
        self.tables().map(Table::live).sum()
    }

    /// Returns the number of slots for entries, in use or not.
    pub fn slot_count(&self) -> usize {
        self.tables().map(Table::len).sum()
    }

    /// Returns all counters. Each is exact once no other thread uses the cache; together they are
    /// not a snapshot of one instant.
    pub fn counters(&self) -> CacheCounters {
        let account = &*self.account;
        let entry_bytes = |p: Priority| account.entry_bytes[p as usize].load(Ordering::Relaxed);
        CacheCounters {
            hits: self.counts.hits(),
            misses: self.counts.misses(),
            inserts: account.inserts.load(Ordering::Relaxed),
            standalone_inserts: account.standalone_inserts.load(Ordering::Relaxed),
            evictions: account.evictions.load(Ordering::Relaxed),
            entries: self.entry_count(),
            usage_bytes: self.usage_bytes(),
            charged_bytes: account.all_charged_bytes(),
            high_bytes: entry_bytes(Priority::High),
            low_bytes: entry_bytes(Priority::Low),
            bottom_bytes: entry_bytes(Priority::Bottom),
        }
    }

    #[inline(always)]
    fn current(&self) -> &Table<V> {
        // Ordering: Acquire pairs with the Release of `grow`.
        // SAFETY: never null, and tables live as long as the cache.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Returns the current table and those it replaced that still have entries.
    fn tables(&self) -> impl Iterator<Item = &Table<V>> {
        let current = self.current();
        std::iter::once(current).chain(self.older_tables(current))
    }

    fn older_tables<'a>(&'a self, table: &'a Table<V>) -> impl Iterator<Item = &'a Table<V>> {
        // SAFETY: null or a table of the chain, which lives as long as the cache.
        let older = |t: &&'a Table<V>| unsafe { t.older.as_ref() };
        std::iter::successors(older(&table), older).filter(|t| t.live() != 0)
    }

    /// Evicts until `bytes` are free, or until it is clear that too much is pinned. Returns the
    /// bytes freed.
    fn evict(&self, bytes: usize) -> usize {
        let tables = || self.tables().filter(|t| t.live() != 0);
        let slots: usize = tables().map(Table::len).sum();
        let mut freed = 0;
        let mut evicted = 0;
        let mut all = Swept::default();
        while freed < bytes && all.slots < slots * ROUNDS_AT_MOST {
            let spares_high = self.spares_high();
            let mut stretch = Swept::default();
            for table in tables() {
                for _ in 0..sweeps_at_once(table.len()) {
                    stretch += table.sweep(sweep_slots(table.len()), spares_high, &mut |entry| {
                        freed += entry.charge;
                        evicted += 1;
                        self.removed(entry);
                    });
                    if freed >= bytes {
                        break;
                    }
                }
            }
            all += stretch;
            let mostly_pinned = all.pinned > PINNED_PER_EVICTED_AT_MOST * (evicted + 1);
            if spares_high {
                if mostly_pinned || (all.slots >= slots && all.aged + evicted == 0) {
                    // Only metadata is left to evict: for the next rounds it ages like the rest.
                    self.unspared_slots.store(slots * slot::COUNT_AT_MOST as usize, Ordering::Relaxed);
                    all.pinned = 0;
                }
            } else {
                // Ordering: Relaxed and not exact, because it need only reach 0 at some time.
                let unspared = self.unspared_slots.load(Ordering::Relaxed);
                self.unspared_slots.store(unspared.saturating_sub(stretch.slots), Ordering::Relaxed);
                if mostly_pinned {
                    break;
                }
            }
            if stretch.slots == 0 {
                break;
            }
        }
        self.account.evictions.fetch_add(evicted as u64, Ordering::Relaxed);
        freed
    }

    fn spares_high(&self) -> bool {
        let high = self.account.entry_bytes[Priority::High as usize].load(Ordering::Relaxed);
        high as f64 <= self.capacity_bytes() as f64 * self.metadata_fraction
            && self.unspared_slots.load(Ordering::Relaxed) == 0
    }

    fn removed(&self, entry: Entry<V>) {
        self.account.entry_removed(entry.charge, entry.priority);
    }

    /// Replaces `table` by a larger one, if it is still the current one.
    #[cold]
    fn grow(&self, table: &Table<V>) {
        // `try_lock`, because the holder of the lock is growing or moving; this insert can continue
        // without.
        let Some(_lock) = self.migration.try_lock() else { return };
        if ptr::eq(table, self.current()) {
            self.grow_locked();
        }
    }

    /// Replaces the current table by a larger one.
    ///
    /// Lock: `migration`.
    fn grow_locked(&self) {
        let current = self.current.load(Ordering::Relaxed);
        let table = self.current();
        if let Some(larger) = Table::new(table.len() * 2, current) {
            // Ordering: Release publishes the new table. The old one is retired after it is
            // replaced, because an insert that it refuses must find the new one.
            self.current.store(larger, Ordering::Release);
            table.retire();
        }
    }

    /// Moves some entries from the tables that the current one replaced.
    fn help_migration(&self) {
        if self.older_tables(self.current()).next().is_none() {
            return;
        }
        // `try_lock`, because one thread at a time is enough, and no thread need wait for it.
        let Some(_lock) = self.migration.try_lock() else { return };
        for table in self.older_tables(self.current()) {
            table.drain(DRAIN_SLOTS, &mut |entry, visible| {
                if visible { self.move_locked(entry) } else { self.removed(entry) }
            });
        }
    }

    /// Puts an entry of an older table into the current one.
    ///
    /// Lock: `migration`.
    fn move_locked(&self, entry: Entry<V>) {
        let hash = key::hash(entry.key);
        let (charge, priority) = (entry.charge, entry.priority);
        if self.current().is_crowded() {
            // Grows here too, because entries that were pinned in the old table arrive late, when
            // the new one is in use.
            self.grow_locked();
        }
        let current = self.current();
        if let Some(slot) = current.find(hash, entry.key) {
            slot.word.fetch_add(RELEASED_ONE, Ordering::Release);
            self.removed(entry);
        } else if current.place(hash, entry, 0).is_err() {
            // The system has no memory for a larger table: the entry is evicted.
            self.account.evictions.fetch_add(1, Ordering::Relaxed);
            self.account.entry_removed(charge, priority);
        }
    }
}

impl<V> Drop for BlockCache<V> {
    fn drop(&mut self) {
        let mut table = self.current.load(Ordering::Acquire);
        while !table.is_null() {
            // SAFETY: a table of the chain, alive until closed below; `&mut self` excludes lookups
            // in progress.
            let older = unsafe { (*table).older };
            // SAFETY: as above; only handles may still use it.
            unsafe { Table::close(table) };
            table = older;
        }
    }
}

impl<V> fmt::Debug for BlockCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity_bytes", &self.capacity_bytes())
            .field("strict_capacity", &self.strict_capacity)
            .field("counters", &self.counters())
            .finish()
    }
}
