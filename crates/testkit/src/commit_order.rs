//! Reads at full speed, each checked against the order of commits.
//!
//! In: a [`Store`], and the number of writers and readers. Out: the number of keys read and
//! checked, and every violation. The checks are cheap enough for millions of reads per second.
//!
//! Keys form *groups*. A group has one writer, and each of its batches does the same in all column
//! families:
//! - It puts its *mark*: the number of the group's batches so far, including this one, and a
//!   *witness*, some other group and a count of it that had been seen when the batch began.
//! - It merges: one is added to a counter in the first family and subtracted from one in the
//!   second, so that the sum of the two stays zero; in the third its count is appended to a list.
//! - It puts one of two further keys, and removes the other, which the batch before has put, with a
//!   single deletion.
//!
//! Some batches also add to and subtract from two counters that all groups share. The values of all
//! keys of a group therefore follow from its mark alone, and the shared counters from all marks:
//! the counters give the number of applied batches, so that a batch applied twice, or partially, is
//! detected.
//!
//! Every read is checked for:
//! - *Atomicity*: all keys of a group that are read together agree with one mark, and those of all
//!   groups with their marks together.
//! - *Recency*: the count is not below any that was acknowledged, or returned by any read, before
//!   this one began; reads are therefore monotonic, over all threads.
//! - *No invention*: the count is not above that of the last batch that had begun when the read
//!   ended, and the batch was never refused, before or after.
//! - *Order*: a reader that sees a batch also sees what the batch has witnessed.
//! - *Immutability*: a snapshot of any age returns the same data every time, by `get`, `multi_get`
//!   and iterators in both directions.

use crate::random::Random;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Number of groups.
pub const GROUPS: usize = 64;
/// Number of keys of a group in each column family: its mark, its tally, and two of which one is
/// present at a time.
pub const KEYS: usize = 4;
/// Number of them that are present at a time.
const PRESENT: usize = 3;
/// Number of column families.
pub const FAMILIES: usize = 3;
/// Merge operators of the families. The last has lists, the others counters.
pub const OPERATORS: [&str; FAMILIES] = ["uint64add", "uint64add", "{id=StringAppendOperator;delimiter=,;}"];
const LISTS: usize = FAMILIES - 1;
/// Index of the mark's key in a group.
const MARK: usize = 0;
const TALLY: usize = 1;
/// Number of batches that append to a list before it is restarted.
const IN_A_LIST: u64 = 16;
/// The key of the counters that all groups share, greater than all others.
pub const SHARED: Key = [0, 0, 0, GROUPS as u8, 0, 0, 0, 0];
/// Maximum number of snapshots that a reader keeps.
const SNAPSHOTS: usize = 3;
/// Number of violations that are described.
const TOLD: usize = 5;

/// A key: group and index in it, big-endian.
pub type Key = [u8; 8];
/// A value: a mark, a counter, a list or a count.
pub type Value = Vec<u8>;

/// The durability of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Not logged.
    Unlogged,
    /// Logged.
    Logged,
    /// Logged and synced.
    Synced,
}

/// An operation of a batch.
#[derive(Clone, Debug)]
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
    /// Merges into a key, with the operator of its family ([`merged`]).
    Merge {
        /// Number of the column family.
        family: usize,
        /// The key.
        key: Key,
        /// The operand.
        operand: Value,
    },
    /// Deletes a key that was put once.
    SingleDelete {
        /// Number of the column family.
        family: usize,
        /// The key.
        key: Key,
    },
    /// Deletes all keys of a group as one range.
    Clear {
        /// Number of the column family.
        family: usize,
        /// The group.
        group: usize,
    },
}

/// The store under test. Every call panics on an error.
#[allow(async_fn_in_trait, reason = "for tests, which know their executors")]
pub trait Store {
    /// A snapshot to read at.
    type Snapshot;

    /// Writes a batch. Returns false if it was refused: then no part of it may ever be visible.
    async fn write(&self, durability: Durability, batch: &[Part]) -> bool;
    /// Returns the value of a key, now or at a snapshot.
    async fn get(&self, at: Option<&Self::Snapshot>, family: usize, key: &Key) -> Option<Value>;
    /// Returns the values of keys of several column families, read at one moment.
    async fn multi_get(&self, at: Option<&Self::Snapshot>, keys: &[(usize, Key)]) -> Vec<Option<Value>>;
    /// Returns up to `entries` entries from `from` on, in key order or reverse.
    async fn scan(
        &self,
        at: Option<&Self::Snapshot>,
        family: usize,
        from: &Key,
        entries: usize,
        backward: bool,
    ) -> Vec<(Key, Value)>;
    /// Takes a snapshot of the current state.
    fn snapshot(&self) -> Self::Snapshot;
    /// Yields for a time; if zero, to others on the same thread.
    async fn pause(&self, span: Duration);
}

/// Returns the key with this index in a group.
#[must_use]
pub fn key(group: usize, number: usize) -> Key {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&(group as u32).to_be_bytes());
    key[4..].copy_from_slice(&(number as u32).to_be_bytes());
    key
}

/// Returns all keys that may be present, equal in every column family, in order.
pub fn keys() -> impl Iterator<Item = Key> {
    (0..GROUPS).flat_map(|group| (0..KEYS).map(move |number| key(group, number))).chain([SHARED])
}

/// Returns group and index of a key.
fn place(key: &Key) -> (usize, usize) {
    let part = |at: usize| u32::from_be_bytes(key[at..at + 4].try_into().expect("four bytes")) as usize;
    (part(0), part(4))
}

/// A batch's description of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Number of the group's batches written, including this one.
    count: u64,
    /// Number of batches tried, including this one, so that refused batches have numbers of their
    /// own.
    number: u64,
    witnessed: usize,
    /// The count of the witnessed group.
    least: u64,
    /// Number of the group's batches so far, including this one, that changed the shared counters.
    shared: u64,
}

impl Mark {
    fn value(&self) -> Value {
        [self.count, self.number, self.witnessed as u64, self.least, self.shared]
            .map(u64::to_le_bytes)
            .concat()
    }

    /// Parses a mark; `None` if it is invalid.
    fn parse(value: &[u8]) -> Option<Self> {
        let (parts, rest) = value.as_chunks::<8>();
        let &[count, number, witnessed, least, shared] = parts else { return None };
        let [count, number, witnessed, least, shared] =
            [count, number, witnessed, least, shared].map(u64::from_le_bytes);
        let witnessed = usize::try_from(witnessed).ok().filter(|group| *group < GROUPS && rest.is_empty())?;
        Some(Self { count, number, witnessed, least, shared })
    }
}

/// Returns a counter's value after `count` batches, by its family.
fn counted(family: usize, count: u64) -> Value {
    let count = if family == 0 { count } else { count.wrapping_neg() };
    count.to_le_bytes().to_vec()
}

/// Returns a group's tally after `count` batches.
fn tally(family: usize, count: u64) -> Value {
    if family != LISTS {
        return counted(family, count);
    }
    let first = (count - count % IN_A_LIST).max(1);
    let all: Vec<String> = (first..=count).map(|count| count.to_string()).collect();
    all.join(",").into_bytes()
}

/// Returns the index of the key that a batch puts besides mark and tally.
fn further(count: u64) -> usize {
    TALLY + 1 + (count % 2) as usize
}

/// Returns the expected value of a group's key under this mark.
fn right(family: usize, number: usize, mark: &Mark) -> Option<Value> {
    match number {
        MARK => Some(mark.value()),
        TALLY => Some(tally(family, mark.count)),
        _ => (number == further(mark.count)).then(|| mark.count.to_le_bytes().to_vec()),
    }
}

/// Derives a batch's mark from the value of one key: at least the count. `None` if no batch leaves
/// this value.
fn alone(family: usize, number: usize, value: &[u8]) -> Option<Mark> {
    let count = match (number, family) {
        (MARK, _) => return Mark::parse(value),
        (TALLY, LISTS) => {
            let last = value.rsplit(|byte| *byte == b',').next()?;
            std::str::from_utf8(last).ok()?.parse().ok()?
        }
        _ => {
            let count = u64::from_le_bytes(value.try_into().ok()?);
            if (number, family) == (TALLY, 1) { count.wrapping_neg() } else { count }
        }
    };
    let mark = Mark { count, ..Mark::default() };
    (right(family, number, &mark).as_deref() == Some(value)).then_some(mark)
}

/// Returns the merge of a value and an operand by a family's operator.
#[must_use]
pub fn merged(family: usize, value: Option<&Value>, operand: &Value) -> Value {
    let number = |bytes: &Value| u64::from_le_bytes(bytes[..].try_into().expect("a counter"));
    match value {
        None => operand.clone(),
        Some(value) if family == LISTS => [value, &b","[..], operand].concat(),
        Some(value) => number(value).wrapping_add(number(operand)).to_le_bytes().to_vec(),
    }
}

/// Returns a value for a batch that must never become visible: its count is never begun, so that
/// any read of it is a violation.
#[must_use]
pub fn never_seen(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(byte) = value.get_mut(7) {
        *byte = 0x40;
    }
    value
}

/// A group on its own cache line, because its writer and its readers access it at full speed.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Group {
    /// The count of the last batch begun.
    begun: AtomicU64,
    /// The count of the last batch acknowledged or seen.
    floor: AtomicU64,
    /// Number of batches tried, and the last mark written. Used by its writer only.
    tried: AtomicU64,
    written: Mutex<Mark>,
    /// Number of the last refused batch.
    last_refused: AtomicU64,
    /// Numbers of all refused batches.
    refused: Mutex<HashSet<u64>>,
}

/// All batches written and seen so far.
#[derive(Debug)]
pub struct CommitOrder {
    groups: Vec<Group>,
    /// Number of read calls.
    reads: AtomicU64,
    /// Number of keys read and checked.
    checked: AtomicU64,
    batches: AtomicU64,
    violations: AtomicU64,
    told: Mutex<Vec<String>>,
    ended: AtomicBool,
    writer_takes: Vec<Durability>,
    longest_pause: Duration,
}

/// A reader's state between its reads.
struct Reader<S: Store> {
    random: Random,
    snapshots: Vec<(S::Snapshot, Marks)>,
}

/// Each group's mark as seen by one read.
type Marks = [Option<Mark>; GROUPS];

/// Minimum counts of the groups, as of the beginning of a read.
type Floors = [u64; GROUPS];

/// Number of read calls, and of keys checked.
type Count = (u64, usize);

impl CommitOrder {
    /// Starts without batches. Writers choose evenly from `writer_takes`, and pause for up to
    /// `longest_pause` between bursts of batches.
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

    /// Returns the number of read calls so far: a `get`, a `multi_get` or a scan is one.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the number of keys read and checked so far.
    pub fn checked(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    /// Returns the number of batches acknowledged so far.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Returns the number of violations, and descriptions of the first few.
    pub fn violations(&self) -> (u64, Vec<String>) {
        let told = self.told.lock().expect("nobody panics with it").clone();
        (self.violations.load(Ordering::Relaxed), told)
    }

    /// Makes writers and readers end.
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

    /// Writes the first batch of every group. Called before any reads.
    pub async fn prepare(&self, store: &impl Store) {
        let mut random = Random::new(1);
        for group in 0..GROUPS {
            self.write_next(store, group, &mut random).await;
        }
    }

    /// Runs one of `of` writers, which writes batches for its share of the groups.
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

    /// Writes the next batch of a group; returns false if it was refused.
    async fn try_next(&self, store: &impl Store, group: usize, random: &mut Random) -> bool {
        let own = &self.groups[group];
        let last = *own.written.lock().expect("nobody panics with it");
        let count = last.count + 1;
        let number = own.tried.fetch_add(1, Ordering::Relaxed) + 1;
        own.begun.store(count, Ordering::SeqCst);
        let witnessed = random.below(GROUPS as u64) as usize;
        let least = self.floor(witnessed);
        let clears = random.one_in(512).then(|| random.index(FAMILIES));
        // Not with a range, because batches that change shared counters are written under a lock in
        // stores that have locks.
        let shares = clears.is_none() && random.one_in(8);
        let mark = Mark { count, number, witnessed, least, shared: last.shared + u64::from(shares) };
        let batch = batch(group, &mark, clears, shares);
        let durability = self.writer_takes[random.below(self.writer_takes.len() as u64) as usize];
        // Rare, because a sync takes as long as thousands of batches.
        let durability = match durability {
            Durability::Synced if random.below(64) > 0 => Durability::Logged,
            durability => durability,
        };
        if !store.write(durability, &batch).await {
            self.refuse(group, &mark);
            return false;
        }
        *own.written.lock().expect("nobody panics with it") = mark;
        own.floor.fetch_max(count, Ordering::SeqCst);
        self.batches.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Records that a batch was refused; a violation if it was seen before.
    fn refuse(&self, group: usize, Mark { count, number, .. }: &Mark) {
        let Group { floor, last_refused, refused, .. } = &self.groups[group];
        refused.lock().expect("nobody panics with it").insert(*number);
        last_refused.store(*number, Ordering::SeqCst);
        // Ordering: a reader that sees the batch raises the floor and then checks for a refusal;
        // here the order is reversed. One of the two detects it.
        if floor.load(Ordering::SeqCst) >= *count {
            self.violation(|| format!("batch {number} of group {group} was seen, and refused"));
        }
    }

    fn is_refused(&self, group: usize, number: u64) -> bool {
        let Group { last_refused, refused, .. } = &self.groups[group];
        // Checked first because usually no batch is refused, or all refused ones are older.
        number <= last_refused.load(Ordering::SeqCst)
            && refused.lock().expect("nobody panics with it").contains(&number)
    }

    /// Runs a reader, with reads of every kind until the end.
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

    /// Reads three keys of a group in sequence: each is at least as new as the one before.
    async fn get(&self, store: &impl Store, group: usize, random: &mut Random) -> Count {
        for _ in 0..3 {
            let (family, number) = (random.index(FAMILIES), random.index(KEYS));
            let floor = self.floor(group);
            match store.get(None, family, &key(group, number)).await {
                // One of two is present at a time.
                None if number > TALLY => {}
                value => match value.as_ref().and_then(|value| alone(family, number, value)) {
                    Some(mark) => self.check(group, floor, &mark, "get"),
                    None => self.violation(|| {
                        format!("get: group {group}, family {family}, key {number}: {}", text(value.as_ref()))
                    }),
                },
            }
        }
        (3, 3)
    }

    /// Reads all keys of two groups, in all column families; one may have witnessed the other.
    async fn multi_get(&self, store: &impl Store, group: usize, random: &mut Random) -> Count {
        let other = (group + 1 + random.below(GROUPS as u64 - 1) as usize) % GROUPS;
        let (floors, keys) = (self.floors(), keys_of([group, other]));
        let found = store.multi_get(None, &keys).await;
        self.check_together(&floors, &with_keys(keys, found), "multi_get");
        (1, 2 * FAMILIES * KEYS)
    }

    /// Scans the entries of several whole groups in one column family.
    async fn scan(&self, store: &impl Store, random: &mut Random) -> Count {
        let groups = 1 + random.below(8) as usize;
        let first = random.below((GROUPS - groups + 1) as u64) as usize;
        let (family, backward) = (random.index(FAMILIES), random.one_in(2));
        let floors = self.floors();
        let found = scan(store, None, family, (first, groups), backward).await;
        self.check_scan(&floors, &found, (first, groups), backward);
        (1, groups * PRESENT)
    }

    /// Takes a snapshot, reads it in one way, and keeps it.
    async fn take_snapshot<S: Store>(&self, store: &S, reader: &mut Reader<S>) -> Count {
        let floors = self.floors();
        let snapshot = store.snapshot();
        let random = &mut reader.random;
        let (family, backward) = (random.index(FAMILIES), random.one_in(2));
        let marks = self.check_snapshot(store, Some(&snapshot), &floors, family, backward).await;
        if reader.snapshots.len() == SNAPSHOTS {
            let dropped = reader.random.below(SNAPSHOTS as u64) as usize;
            reader.snapshots.swap_remove(dropped);
        }
        reader.snapshots.push((snapshot, marks));
        (2, GROUPS * PRESENT + 1)
    }

    /// Reads an earlier snapshot in all ways, which must return the same data.
    async fn look_again<S: Store>(&self, store: &S, reader: &mut Reader<S>) -> Count {
        if reader.snapshots.is_empty() {
            return (0, 0);
        }
        let index = reader.random.below(reader.snapshots.len() as u64) as usize;
        let (snapshot, marks) = &reader.snapshots[index];
        let (group, family) = (reader.random.index(GROUPS), reader.random.index(FAMILIES));
        let mark = marks[group].unwrap_or_default();
        let of_family = || (0..KEYS).map(|number| (family, key(group, number)));
        let all = keys_of([group]);
        let many = store.multi_get(Some(snapshot), &all).await;
        let mut ones = Vec::with_capacity(KEYS);
        for (family, key) in of_family() {
            ones.push(store.get(Some(snapshot), family, &key).await);
        }
        let [forward, backward] = [scan(store, Some(snapshot), family, (group, 1), false).await, {
            let mut found = scan(store, Some(snapshot), family, (group, 1), true).await;
            found.reverse();
            found
        }];
        let there = |keys: Vec<(usize, Key)>, found: Vec<Option<Value>>| -> Found {
            with_keys(keys, found).into_iter().filter(|(_, _, value)| value.is_some()).collect()
        };
        let expected = |keys: Vec<(usize, Key)>| {
            let values = keys.iter().map(|(family, key)| right(*family, place(key).1, &mark)).collect();
            there(keys, values)
        };
        let of_family = || of_family().collect::<Vec<_>>();
        let ways = [
            ("multi_get", there(all.clone(), many), expected(all)),
            ("get", there(of_family(), ones), expected(of_family())),
            ("an iterator", forward, expected(of_family())),
            ("an iterator backward", backward, expected(of_family())),
        ];
        for (way, found, expected) in ways {
            if found != expected {
                self.violation(|| {
                    format!("a snapshot showed {mark:?} of group {group}, {way} now {}", texts(&found))
                });
            }
        }
        (3 + KEYS as u64, FAMILIES * KEYS + KEYS + 2 * PRESENT)
    }

    /// Reads all groups in a snapshot, in one column family, and the shared counters.
    async fn check_snapshot<S: Store>(
        &self,
        store: &S,
        snapshot: Option<&S::Snapshot>,
        floors: &Floors,
        family: usize,
        backward: bool,
    ) -> Marks {
        let found = scan(store, snapshot, family, (0, GROUPS), backward).await;
        let marks = self.check_scan(floors, &found, (0, GROUPS), backward);
        let of = family % LISTS;
        let shared = store.get(snapshot, of, &SHARED).await;
        let sum = marks.iter().flatten().map(|mark| mark.shared).sum();
        let expected = (sum > 0).then(|| counted(of, sum));
        if shared != expected {
            self.violation(|| {
                let [found, expected] = [&shared, &expected].map(|value| text(value.as_ref()));
                format!("a snapshot: what groups share in family {of} is {found}, not {expected}")
            });
        }
        marks
    }

    /// Reads everything once, in all ways, without concurrent writers.
    pub async fn check_all(&self, store: &impl Store) {
        let floors = self.floors();
        for group in 0..GROUPS {
            let keys = keys_of([group]);
            let found = store.multi_get(None, &keys).await;
            self.check_together(&floors, &with_keys(keys.clone(), found), "multi_get of everything");
            let mut found = Vec::with_capacity(keys.len());
            for (family, key) in &keys {
                found.push(store.get(None, *family, key).await);
            }
            self.check_together(&floors, &with_keys(keys, found), "get of everything");
        }
        for family in 0..FAMILIES {
            for backward in [false, true] {
                let marks = self.check_snapshot(store, None, &floors, family, backward).await;
                let written =
                    |group: usize| *self.groups[group].written.lock().expect("nobody panics with it");
                if (0..GROUPS).any(|group| marks[group] != Some(written(group))) {
                    self.violation(|| format!("what was written last is not there: {marks:?}"));
                }
            }
            // No other entry is present.
            let entries = store.scan(None, family, &key(0, 0), usize::MAX, false).await;
            let shared = entries.iter().filter(|(key, _)| *key == SHARED).count();
            if entries.len() != GROUPS * PRESENT + shared {
                self.violation(|| format!("there are {} entries in family {family}", entries.len()));
            }
        }
    }

    fn floor(&self, group: usize) -> u64 {
        self.groups[group].floor.load(Ordering::SeqCst)
    }

    fn floors(&self) -> Floors {
        std::array::from_fn(|group| self.floor(group))
    }

    /// Checks one group's mark, and raises the group's floor.
    fn check(&self, group: usize, floor: u64, Mark { count, number, .. }: &Mark, what: &str) {
        let begun = self.groups[group].begun.load(Ordering::SeqCst);
        if *count < floor || *count > begun {
            self.violation(|| {
                format!("{what}: group {group} has {count}, of {floor} acknowledged or seen before and {begun} begun")
            });
        } else if *count > floor {
            self.groups[group].floor.fetch_max(*count, Ordering::SeqCst);
        }
        if self.is_refused(group, *number) {
            self.violation(|| format!("{what}: group {group} has batch {number}, which was refused"));
        }
    }

    /// Checks the keys found by one read, which include the marks of its groups.
    fn check_together(&self, floors: &Floors, found: &Found, what: &str) -> Marks {
        let mut marks = [None; GROUPS];
        for (_, key, value) in found {
            let (group, number) = place(key);
            if number == MARK && group < GROUPS && marks[group].is_none() {
                let mark = value.as_ref().and_then(|value| Mark::parse(value)).unwrap_or_default();
                self.check(group, floors[group], &mark, what);
                marks[group] = Some(mark);
            }
        }
        for (family, key, value) in found {
            let (group, number) = place(key);
            let mark = marks.get(group).copied().flatten();
            if mark.is_none_or(|mark| right(*family, number, &mark) != *value) {
                self.violation(|| {
                    let value = text(value.as_ref());
                    format!(
                        "{what}: group {group}, family {family}, key {number}: {value} at once with {mark:?}"
                    )
                });
            }
        }
        for (group, mark) in marks.iter().enumerate() {
            let Some(Mark { number, witnessed, least, .. }) = *mark else { continue };
            let Some(Mark { count, .. }) = marks[witnessed] else { continue };
            if count < least {
                self.violation(|| {
                    format!("{what}: batch {number} of group {group} had seen {least} of group {witnessed}, which has {count}")
                });
            }
        }
        marks
    }

    /// Checks a scan of whole groups.
    fn check_scan(
        &self,
        floors: &Floors,
        found: &Found,
        (first, groups): (usize, usize),
        backward: bool,
    ) -> Marks {
        let what = if backward { "backward scan" } else { "forward scan" };
        let marks = self.check_together(floors, found, what);
        let is_there = |group: usize, number: usize| {
            number <= TALLY || marks[group].is_some_and(|mark| number == further(mark.count))
        };
        let mut expected: Vec<Key> = (first..first + groups)
            .flat_map(|group| (0..KEYS).map(move |number| (group, number)))
            .filter(|(group, number)| is_there(*group, *number))
            .map(|(group, number)| key(group, number))
            .collect();
        if backward {
            expected.reverse();
        }
        if !found.iter().map(|(_, key, _)| key).eq(&expected) {
            self.violation(|| {
                format!("{what} of {groups} groups from {first} on: {} entries, or others", found.len())
            });
        }
        marks
    }
}

/// Returns a batch's operations in all column families; in family `clears` it first deletes the
/// group's range.
fn batch(group: usize, mark: &Mark, clears: Option<usize>, shares: bool) -> Vec<Part> {
    let count = mark.count;
    let mut batch = Vec::with_capacity(FAMILIES * (PRESENT + 1) + 3);
    for family in 0..FAMILIES {
        let key = |number| key(group, number);
        if clears == Some(family) {
            batch.push(Part::Clear { family, group });
        }
        batch.push(Part::Put { family, key: key(MARK), value: mark.value() });
        batch.push(match family {
            _ if clears == Some(family) => Part::Put { family, key: key(TALLY), value: tally(family, count) },
            LISTS if count.is_multiple_of(IN_A_LIST) => {
                Part::Put { family, key: key(TALLY), value: tally(family, count) }
            }
            LISTS => Part::Merge { family, key: key(TALLY), operand: count.to_string().into_bytes() },
            _ => Part::Merge { family, key: key(TALLY), operand: counted(family, 1) },
        });
        let value = count.to_le_bytes().to_vec();
        batch.push(Part::Put { family, key: key(further(count)), value });
        if count > 1 {
            batch.push(Part::SingleDelete { family, key: key(further(count - 1)) });
        }
        if shares && family != LISTS {
            batch.push(Part::Merge { family, key: SHARED, operand: counted(family, 1) });
        }
    }
    batch
}

/// Families, keys and the values found.
type Found = Vec<(usize, Key, Option<Value>)>;

fn with_keys(keys: Vec<(usize, Key)>, found: Vec<Option<Value>>) -> Found {
    keys.into_iter().zip(found).map(|((family, key), value)| (family, key, value)).collect()
}

/// Scans the entries of `groups` groups in one column family.
async fn scan<S: Store>(
    store: &S,
    at: Option<&S::Snapshot>,
    family: usize,
    (first, groups): (usize, usize),
    backward: bool,
) -> Found {
    let from = if backward { key(first + groups - 1, KEYS - 1) } else { key(first, 0) };
    let entries = store.scan(at, family, &from, groups * PRESENT, backward).await;
    entries.into_iter().map(|(key, value)| (family, key, Some(value))).collect()
}

fn text(value: Option<&Value>) -> String {
    value.map_or("nothing".into(), |value| crate::show(value))
}

fn texts(found: &Found) -> String {
    let one = |(family, key, value): &(usize, Key, Option<Value>)| {
        format!("{family}/{} {}", place(key).1, text(value.as_ref()))
    };
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn keys_of<const N: usize>(groups: [usize; N]) -> Vec<(usize, Key)> {
    let of = |group| (0..FAMILIES).flat_map(move |family| (0..KEYS).map(move |n| (family, key(group, n))));
    groups.into_iter().flat_map(of).collect()
}
