//! Reads at full speed, each checked against the order of commits.
//!
//! In: a [`Store`] and how much to do. Out: how many keys were read and checked, and every violation. What is checked is cheap, so that reads are not held up by it: millions a second.
//!
//! Keys stand in *groups*. A group has one writer; each of its batches puts the same number, one more than the last, under all keys of the group, in all column families. So a
//! read of a group knows which batch it sees. With the number goes a *witness*: some other group, and a number of it that had been seen when the batch began.
//!
//! What every read is checked for:
//! - *Atomicity*: all keys of a group that are read together have one number, and none is missing.
//! - *Recency*: the number is not below any that was acknowledged, or returned by any read, before this one began; so reads are monotonic, over all threads.
//! - *No invention*: the number is not above that of the last batch that had begun when the read ended, nor that of a batch that was refused, before or after.
//! - *Order*: what a batch has witnessed is seen by who sees the batch.
//! - *Immutability*: a snapshot, however old, shows what it showed.

use crate::random::Random;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Groups of keys.
pub const GROUPS: usize = 64;
/// Keys of a group in each column family.
pub const KEYS: usize = 4;
/// Column families.
pub const FAMILIES: usize = 2;
/// Snapshots that a reader keeps at a time.
const SNAPSHOTS: usize = 3;
/// How many violations are told in words.
const TOLD: usize = 5;

/// A key: group and number in it, big-endian.
pub type Key = [u8; 8];
/// A value: number, witnessed group, witnessed number; little-endian.
pub type Value = [u8; 24];

/// How a batch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Not logged.
    Unlogged,
    /// Logged.
    Logged,
    /// Logged and synced.
    Synced,
}

/// A part of a batch.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Sets a key.
    Put {
        /// Number of the column family.
        family: usize,
        /// The key.
        key: Key,
        /// Its value.
        value: Value,
    },
    /// Deletes all keys of a group as one range.
    Clear {
        /// Number of the column family.
        family: usize,
        /// The group.
        group: usize,
    },
}

/// What is checked. Every call panics on an error.
#[allow(async_fn_in_trait, reason = "for tests, which know their executors")]
pub trait Store {
    /// A moment to read at.
    type Snapshot;

    /// Writes a batch. False if it was refused: then nothing of it may ever be seen.
    async fn write(&self, durability: Durability, batch: &[Part]) -> bool;
    /// The value of a key, now or as of a snapshot.
    async fn get(&self, at: Option<&Self::Snapshot>, family: usize, key: &Key) -> Option<Value>;
    /// The values of keys of several column families, as of one moment.
    async fn multi_get(&self, at: Option<&Self::Snapshot>, keys: &[(usize, Key)]) -> Vec<Option<Value>>;
    /// So many entries from `from` on, in key order or against it.
    async fn scan(
        &self,
        at: Option<&Self::Snapshot>,
        family: usize,
        from: &Key,
        entries: usize,
        backward: bool,
    ) -> Vec<(Key, Value)>;
    /// The store as it is now.
    fn snapshot(&self) -> Self::Snapshot;
    /// Lets others go on for a while; for no time at all those of the same thread.
    async fn pause(&self, span: Duration);
}

/// The key of a number in a group.
#[must_use]
pub fn key(group: usize, number: usize) -> Key {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&(group as u32).to_be_bytes());
    key[4..].copy_from_slice(&(number as u32).to_be_bytes());
    key
}

/// All keys, which are the same in every column family, in order.
pub fn keys() -> impl Iterator<Item = Key> {
    (0..GROUPS).flat_map(|group| (0..KEYS).map(move |number| key(group, number)))
}

fn group_of(key: &Key) -> usize {
    u32::from_be_bytes(key[..4].try_into().expect("four bytes")) as usize
}

/// A value in parts: number, witnessed group, witnessed number.
fn parse(value: &Value) -> (u64, usize, u64) {
    let part = |i: usize| u64::from_le_bytes(value[8 * i..8 * i + 8].try_into().expect("eight bytes"));
    (part(0), part(1) as usize, part(2))
}

/// The value that a batch writes of which nothing is to be seen ever: its number is never begun, so whoever reads it finds a violation.
#[must_use]
pub fn never_seen(value: &Value) -> Value {
    let mut value = *value;
    value[7] = 0x40;
    value
}

/// A group on its own cache line, as its writer and its readers go for it at full speed.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Group {
    /// The last batch that has begun.
    begun: AtomicU64,
    /// The last batch that was acknowledged or seen.
    floor: AtomicU64,
    /// The last batch that was refused.
    last_refused: AtomicU64,
    /// All that were.
    refused: Mutex<HashSet<u64>>,
}

/// What was written and seen so far.
#[derive(Debug)]
pub struct CommitOrder {
    groups: Vec<Group>,
    /// Calls that read.
    reads: AtomicU64,
    /// Keys read and checked.
    checked: AtomicU64,
    batches: AtomicU64,
    violations: AtomicU64,
    told: Mutex<Vec<String>>,
    ended: AtomicBool,
    writer_takes: Vec<Durability>,
    longest_pause: Duration,
}

/// What a reader keeps between its reads.
struct Reader<S: Store> {
    random: Random,
    snapshots: Vec<(S::Snapshot, Vec<u64>)>,
}

/// The numbers below which the groups must not be, as of the beginning of a read.
type Floors = [u64; GROUPS];

/// Calls that read, and the keys that were checked.
type Count = (u64, usize);

impl CommitOrder {
    /// Nothing is written yet. Writers choose evenly from `writer_takes`, and pause for up to `longest_pause` between bursts of batches.
    #[must_use]
    pub fn new(writer_takes: &[Durability], longest_pause: Duration) -> Self {
        Self {
            groups: (0..GROUPS).map(|_| Group::default()).collect(),
            reads: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            violations: AtomicU64::new(0),
            told: Mutex::default(),
            ended: AtomicBool::new(false),
            writer_takes: writer_takes.to_vec(),
            longest_pause,
        }
    }

    /// Calls so far that read what was checked: a `get`, a `multi_get` or a scan is one.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Keys read and checked so far.
    pub fn checked(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    /// Batches acknowledged so far.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// How many violations there were, and the first few in words.
    pub fn violations(&self) -> (u64, Vec<String>) {
        let told = self.told.lock().expect("nobody panics with it").clone();
        (self.violations.load(Ordering::Relaxed), told)
    }

    /// Has writers and readers come to their end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn violation(&self, text: impl FnOnce() -> String) {
        if self.violations.fetch_add(1, Ordering::Relaxed) < TOLD as u64 {
            self.told.lock().expect("nobody panics with it").push(text());
        }
    }

    /// Writes the first batch of every group. Before anyone reads.
    pub async fn prepare(&self, store: &impl Store) {
        let mut random = Random::new(1);
        for group in 0..GROUPS {
            self.write_next(store, group, &mut random).await;
        }
    }

    /// One of `of` writers: batch after batch for its share of the groups.
    pub async fn write(&self, store: &impl Store, writer: usize, of: usize) {
        let mut random = Random::new(writer as u64 + 100);
        let own: Vec<usize> = (0..GROUPS).filter(|group| group % of == writer).collect();
        while !self.has_ended() {
            for _ in 0..=random.below(64) {
                let group = own[random.below(own.len() as u64) as usize];
                self.write_next(store, group, &mut random).await;
            }
            let span = random.below(self.longest_pause.as_micros() as u64 + 1);
            store.pause(Duration::from_micros(span)).await;
        }
    }

    async fn write_next(&self, store: &impl Store, group: usize, random: &mut Random) {
        while !self.try_next(store, group, random).await {}
    }

    /// Writes the next batch of a group; false if it was refused.
    async fn try_next(&self, store: &impl Store, group: usize, random: &mut Random) -> bool {
        let number = self.groups[group].begun.load(Ordering::Relaxed) + 1;
        self.groups[group].begun.store(number, Ordering::SeqCst);
        let witnessed = random.below(GROUPS as u64) as usize;
        let floor = self.groups[witnessed].floor.load(Ordering::SeqCst);
        let mut value = [0; 24];
        value[..8].copy_from_slice(&number.to_le_bytes());
        value[8..16].copy_from_slice(&(witnessed as u64).to_le_bytes());
        value[16..].copy_from_slice(&floor.to_le_bytes());
        let mut batch = Vec::with_capacity(FAMILIES * KEYS + 1);
        if random.below(512) == 0 {
            batch.push(Part::Clear { family: random.below(FAMILIES as u64) as usize, group });
        }
        for number in 0..KEYS {
            let key = key(group, number);
            batch.extend((0..FAMILIES).map(|family| Part::Put { family, key, value }));
        }
        let durability = self.writer_takes[random.below(self.writer_takes.len() as u64) as usize];
        // Why so rarely: a sync takes as long as thousands of batches.
        let durability = match durability {
            Durability::Synced if random.below(64) > 0 => Durability::Logged,
            durability => durability,
        };
        if !store.write(durability, &batch).await {
            self.refuse(group, number);
            return false;
        }
        self.groups[group].floor.fetch_max(number, Ordering::SeqCst);
        self.batches.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A batch was refused, and not seen before.
    fn refuse(&self, group: usize, number: u64) {
        let Group { floor, last_refused, refused, .. } = &self.groups[group];
        refused.lock().expect("nobody panics with it").insert(number);
        last_refused.store(number, Ordering::SeqCst);
        // Ordering: whoever sees the batch raises the floor, and then looks whether it was refused; here it is the other way round. One of the two finds out.
        if floor.load(Ordering::SeqCst) >= number {
            self.violation(|| format!("batch {number} of group {group} was seen, and refused"));
        }
    }

    fn is_refused(&self, group: usize, number: u64) -> bool {
        let Group { last_refused, refused, .. } = &self.groups[group];
        // Why first: mostly none is, or all that were are older.
        number <= last_refused.load(Ordering::SeqCst)
            && refused.lock().expect("nobody panics with it").contains(&number)
    }

    /// A reader: reads of every kind until the end.
    pub async fn read<S: Store>(&self, store: &S, seed: u64) {
        let mut reader = Reader { random: Random::new(seed), snapshots: Vec::new() };
        while !self.has_ended() {
            for _ in 0..16 {
                self.read_some(store, &mut reader).await;
            }
            store.pause(Duration::ZERO).await;
        }
    }

    async fn read_some<S: Store>(&self, store: &S, reader: &mut Reader<S>) {
        let group = reader.random.below(GROUPS as u64) as usize;
        let (reads, checked) = match reader.random.below(32) {
            0..16 => self.get(store, group, &mut reader.random).await,
            16..24 => self.multi_get(store, group, &mut reader.random).await,
            24..28 => self.scan(store, &mut reader.random).await,
            28..30 => self.take_snapshot(store, reader).await,
            _ => self.look_again(store, reader).await,
        };
        self.reads.fetch_add(reads, Ordering::Relaxed);
        self.checked.fetch_add(checked as u64, Ordering::Relaxed);
    }

    /// Three keys of a group, one after the other: each is at least as new as the one before.
    async fn get(&self, store: &impl Store, group: usize, random: &mut Random) -> Count {
        for _ in 0..3 {
            let (family, number) = (random.below(FAMILIES as u64), random.below(KEYS as u64));
            let floor = self.floor(group);
            let found = store.get(None, family as usize, &key(group, number as usize)).await;
            self.check(group, floor, found.as_ref(), "get");
        }
        (3, 3)
    }

    /// All keys of two groups, in all column families, of which one has witnessed the other if chance has it.
    async fn multi_get(&self, store: &impl Store, group: usize, random: &mut Random) -> Count {
        let other = (group + 1 + random.below(GROUPS as u64 - 1) as usize) % GROUPS;
        let floors = self.floors();
        let keys = keys_of([group, other]);
        let found = store.multi_get(None, &keys).await;
        self.check_together(&floors, keys.iter().map(|(_, key)| group_of(key)).zip(found), "multi_get");
        (1, keys.len())
    }

    /// A run of entries of one column family, whole groups of it.
    async fn scan(&self, store: &impl Store, random: &mut Random) -> Count {
        let groups = 1 + random.below(8) as usize;
        let first = random.below((GROUPS - groups + 1) as u64) as usize;
        let (family, backward) = (random.below(FAMILIES as u64) as usize, random.below(2) == 1);
        let from = if backward { key(first + groups - 1, KEYS - 1) } else { key(first, 0) };
        let floors = self.floors();
        let entries = store.scan(None, family, &from, groups * KEYS, backward).await;
        let mut expected: Vec<Key> =
            (first..first + groups).flat_map(|g| (0..KEYS).map(move |n| key(g, n))).collect();
        if backward {
            expected.reverse();
        }
        let found = entries.iter().map(|(key, _)| *key);
        if !found.eq(expected.iter().copied()) {
            self.violation(|| {
                format!(
                    "a scan of {groups} groups from {first} on found {} entries, or others",
                    entries.len()
                )
            });
        }
        let what = if backward { "backward scan" } else { "forward scan" };
        let entries = entries.into_iter().map(|(key, value)| (group_of(&key), Some(value)));
        self.check_together(&floors, entries, what);
        (1, groups * KEYS)
    }

    /// A new snapshot, read in one form or another, and kept.
    async fn take_snapshot<S: Store>(&self, store: &S, reader: &mut Reader<S>) -> Count {
        let floors = self.floors();
        let snapshot = store.snapshot();
        let cut = self.cut(store, &snapshot, &floors, &mut reader.random).await;
        if reader.snapshots.len() == SNAPSHOTS {
            let dropped = reader.random.below(SNAPSHOTS as u64) as usize;
            reader.snapshots.swap_remove(dropped);
        }
        reader.snapshots.push((snapshot, cut));
        (1, GROUPS * KEYS)
    }

    /// A snapshot of before shows what it showed, in all ways to read.
    async fn look_again<S: Store>(&self, store: &S, reader: &mut Reader<S>) -> Count {
        if reader.snapshots.is_empty() {
            return (0, 0);
        }
        let index = reader.random.below(reader.snapshots.len() as u64) as usize;
        let (snapshot, cut) = &reader.snapshots[index];
        let group = reader.random.below(GROUPS as u64) as usize;
        let keys = keys_of([group]);
        let found = store.multi_get(Some(snapshot), &keys).await;
        let one = store.get(Some(snapshot), group % FAMILIES, &key(group, 0)).await;
        for value in found.iter().chain([&one]) {
            let number = value.as_ref().map(|value| parse(value).0);
            if number != Some(cut[group]) {
                self.violation(|| {
                    format!("a snapshot showed batch {} of group {group} and now {number:?}", cut[group])
                });
            }
        }
        (2, keys.len() + 1)
    }

    /// The numbers of all groups in a snapshot, from one column family.
    async fn cut<S: Store>(
        &self,
        store: &S,
        snapshot: &S::Snapshot,
        floors: &Floors,
        random: &mut Random,
    ) -> Vec<u64> {
        let (family, backward) = (random.below(FAMILIES as u64) as usize, random.below(2) == 1);
        let from = if backward { key(GROUPS - 1, KEYS - 1) } else { key(0, 0) };
        let entries = store.scan(Some(snapshot), family, &from, GROUPS * KEYS, backward).await;
        if entries.len() != GROUPS * KEYS {
            self.violation(|| format!("a snapshot shows {} entries", entries.len()));
        }
        let mut cut = vec![0; GROUPS];
        for (key, value) in &entries {
            cut[group_of(key)] = parse(value).0;
        }
        let entries = entries.into_iter().map(|(key, value)| (group_of(&key), Some(value)));
        self.check_together(floors, entries, "snapshot");
        cut
    }

    /// One read of everything, without writers.
    pub async fn check_all(&self, store: &impl Store) {
        for group in 0..GROUPS {
            let (floors, keys) = (self.floors(), keys_of([group]));
            let found = store.multi_get(None, &keys).await;
            self.check_together(&floors, keys.iter().map(|_| group).zip(found), "read of everything");
        }
    }

    fn floor(&self, group: usize) -> u64 {
        self.groups[group].floor.load(Ordering::SeqCst)
    }

    fn floors(&self) -> Floors {
        std::array::from_fn(|group| self.floor(group))
    }

    /// Checks one value, and that it will be there from now on.
    fn check(&self, group: usize, floor: u64, found: Option<&Value>, what: &str) -> u64 {
        let number = found.map_or(0, |value| parse(value).0);
        let begun = self.groups[group].begun.load(Ordering::SeqCst);
        if number < floor || number > begun {
            self.violation(|| {
                format!("{what}: group {group} has {number}, of {floor} acknowledged or seen before and {begun} begun")
            });
        } else if number > floor {
            self.groups[group].floor.fetch_max(number, Ordering::SeqCst);
        }
        if self.is_refused(group, number) {
            self.violation(|| format!("{what}: group {group} has {number}, which was refused"));
        }
        number
    }

    /// Checks what one read has found.
    fn check_together(
        &self,
        floors: &Floors,
        found: impl Iterator<Item = (usize, Option<Value>)>,
        what: &str,
    ) {
        let mut seen = [None::<Value>; GROUPS];
        for (group, value) in found {
            match &seen[group] {
                Some(first) if Some(*first) == value => {}
                Some(first) => self.violation(|| {
                    let other = value.as_ref().map(|value| parse(value).0);
                    format!("{what}: group {group} has {} and {other:?} at once", parse(first).0)
                }),
                None => {
                    self.check(group, floors[group], value.as_ref(), what);
                    seen[group] = Some(value.unwrap_or([0; 24]));
                }
            }
        }
        for (group, value) in seen.iter().enumerate() {
            let Some((number, witnessed, least)) = value.as_ref().map(parse) else { continue };
            let Some((other, ..)) = seen[witnessed].as_ref().map(parse) else { continue };
            if other < least {
                self.violation(|| {
                    format!("{what}: batch {number} of group {group} had seen {least} of group {witnessed}, which has {other}")
                });
            }
        }
    }
}

fn keys_of<const N: usize>(groups: [usize; N]) -> Vec<(usize, Key)> {
    let of = |group| (0..FAMILIES).flat_map(move |family| (0..KEYS).map(move |n| (family, key(group, n))));
    groups.into_iter().flat_map(of).collect()
}
