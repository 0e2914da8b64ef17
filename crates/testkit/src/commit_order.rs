//! Reads at full speed, each checked against the order of commits.
//!
//! In: a [`Store`] and how much to do. Out: how many keys were read and checked, and every
//! violation. What is checked is cheap, so that reads are not held up by it: millions a second.
//!
//! Keys stand in *groups*. A group has one writer, and each of its batches does the same in all
//! column families:
//! - It puts its *mark*: how many of the group's were written, with this one, and a *witness*, some
//!   other group and a count of it that had been seen when the batch began.
//! - It merges: one is added to a counter in the first family and taken from one in the second, so
//!   that the sum of the two stays zero; in the third its count is appended to a list.
//! - It puts one of two further keys, and removes the other, which the batch before has put, with a
//!   single deletion.
//!
//! Some batches also add to and take from two counters that all groups share. So what all keys of a
//! group hold follows from its mark alone, and what the shared counters hold from all marks: the
//! counters say how many batches were applied, so one that is applied twice, or by halves, is seen.
//!
//! What every read is checked for:
//! - *Atomicity*: all keys of a group that are read together are what one mark says, no more and no
//!   less, and those of all groups what their marks say together.
//! - *Recency*: the count is not below any that was acknowledged, or returned by any read, before
//!   this one began; so reads are monotonic, over all threads.
//! - *No invention*: the count is not above that of the last batch that had begun when the read
//!   ended, and the batch is none that was refused, before or after.
//! - *Order*: what a batch has witnessed is seen by who sees the batch.
//! - *Immutability*: a snapshot, however old, shows what it showed, by `get`, `multi_get` and
//!   iterators in both directions.

use crate::random::Random;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Groups of keys.
pub const GROUPS: usize = 64;
/// Keys of a group in each column family: its mark, its tally, and two of which one is there at a
/// time.
pub const KEYS: usize = 4;
/// How many of them are there at a time.
const PRESENT: usize = 3;
/// Column families.
pub const FAMILIES: usize = 3;
/// Their merge operators. The last has lists, the others counters.
pub const OPERATORS: [&str; FAMILIES] = ["uint64add", "uint64add", "{id=StringAppendOperator;delimiter=,;}"];
const LISTS: usize = FAMILIES - 1;
/// Numbers of keys in a group.
const MARK: usize = 0;
const TALLY: usize = 1;
/// Batches that append to a list before it is begun anew.
const IN_A_LIST: u64 = 16;
/// The key of the counters that all groups share, behind all others.
pub const SHARED: Key = [0, 0, 0, GROUPS as u8, 0, 0, 0, 0];
/// Snapshots that a reader keeps at a time.
const SNAPSHOTS: usize = 3;
/// How many violations are told in words.
const TOLD: usize = 5;

/// A key: group and number in it, big-endian.
pub type Key = [u8; 8];
/// A value: a mark, a counter, a list or a count.
pub type Value = Vec<u8>;

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
    /// Merges into a key, by the operator of its family ([`merged`]).
    Merge {
        /// Number of the column family.
        family: usize,
        /// The key.
        key: Key,
        /// What it is merged with.
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

/// All keys that may be there, the same in every column family, in order.
pub fn keys() -> impl Iterator<Item = Key> {
    (0..GROUPS).flat_map(|group| (0..KEYS).map(move |number| key(group, number))).chain([SHARED])
}

/// Group and number of a key.
fn place(key: &Key) -> (usize, usize) {
    let part = |at: usize| u32::from_be_bytes(key[at..at + 4].try_into().expect("four bytes")) as usize;
    (part(0), part(4))
}

/// What a batch says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// How many batches of the group were written, with this one.
    count: u64,
    /// How many were tried, with this one, so that those that were refused have numbers of their
    /// own.
    number: u64,
    witnessed: usize,
    /// The count of the witnessed group.
    least: u64,
    /// How many batches of the group, with this one, have counted for all groups too.
    shared: u64,
}

impl Mark {
    fn value(&self) -> Value {
        [self.count, self.number, self.witnessed as u64, self.least, self.shared]
            .map(u64::to_le_bytes)
            .concat()
    }

    /// `None` if it is not one.
    fn parse(value: &[u8]) -> Option<Self> {
        let (parts, rest) = value.as_chunks::<8>();
        let &[count, number, witnessed, least, shared] = parts else { return None };
        let [count, number, witnessed, least, shared] =
            [count, number, witnessed, least, shared].map(u64::from_le_bytes);
        let witnessed = usize::try_from(witnessed).ok().filter(|group| *group < GROUPS && rest.is_empty())?;
        Some(Self { count, number, witnessed, least, shared })
    }
}

/// What a counter holds after so many batches, by its family.
fn counted(family: usize, count: u64) -> Value {
    let count = if family == 0 { count } else { count.wrapping_neg() };
    count.to_le_bytes().to_vec()
}

/// What the tally of a group is after so many batches.
fn tally(family: usize, count: u64) -> Value {
    if family != LISTS {
        return counted(family, count);
    }
    let first = (count - count % IN_A_LIST).max(1);
    let all: Vec<String> = (first..=count).map(|count| count.to_string()).collect();
    all.join(",").into_bytes()
}

/// The number of the key that a batch puts beside mark and tally.
fn further(count: u64) -> usize {
    TALLY + 1 + (count % 2) as usize
}

/// What a key of a group holds if its mark is this one.
fn right(family: usize, number: usize, mark: &Mark) -> Option<Value> {
    match number {
        MARK => Some(mark.value()),
        TALLY => Some(tally(family, mark.count)),
        _ => (number == further(mark.count)).then(|| mark.count.to_le_bytes().to_vec()),
    }
}

/// What the value of a key alone says of its batch: at least the count. `None` if no batch leaves
/// it so.
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

/// What the operator of a family makes of a value and an operand.
#[must_use]
pub fn merged(family: usize, value: Option<&Value>, operand: &Value) -> Value {
    let number = |bytes: &Value| u64::from_le_bytes(bytes[..].try_into().expect("a counter"));
    match value {
        None => operand.clone(),
        Some(value) if family == LISTS => [value, &b","[..], operand].concat(),
        Some(value) => number(value).wrapping_add(number(operand)).to_le_bytes().to_vec(),
    }
}

/// The value that a batch writes of which nothing is to be seen ever: its count is never begun, so
/// whoever reads it finds a violation.
#[must_use]
pub fn never_seen(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(byte) = value.get_mut(7) {
        *byte = 0x40;
    }
    value
}

/// A group on its own cache line, as its writer and its readers go for it at full speed.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Group {
    /// The count of the last batch that has begun.
    begun: AtomicU64,
    /// The count of the last batch that was acknowledged or seen.
    floor: AtomicU64,
    /// How many batches were tried, and what the last mark says that was written. Its writer's own.
    tried: AtomicU64,
    written: Mutex<Mark>,
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
    snapshots: Vec<(S::Snapshot, Marks)>,
}

/// What one read has seen of each group.
type Marks = [Option<Mark>; GROUPS];

/// The counts below which the groups must not be, as of the beginning of a read.
type Floors = [u64; GROUPS];

/// Calls that read, and the keys that were checked.
type Count = (u64, usize);

impl CommitOrder {
    /// Nothing is written yet. Writers choose evenly from `writer_takes`, and pause for up to
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
        let own = &self.groups[group];
        let last = *own.written.lock().expect("nobody panics with it");
        let count = last.count + 1;
        let number = own.tried.fetch_add(1, Ordering::Relaxed) + 1;
        own.begun.store(count, Ordering::SeqCst);
        let witnessed = random.below(GROUPS as u64) as usize;
        let least = self.floor(witnessed);
        let clears = random.one_in(512).then(|| random.index(FAMILIES));
        // Why not with a range: what is shared is written under a lock where there are locks.
        let shares = clears.is_none() && random.one_in(8);
        let mark = Mark { count, number, witnessed, least, shared: last.shared + u64::from(shares) };
        let batch = batch(group, &mark, clears, shares);
        let durability = self.writer_takes[random.below(self.writer_takes.len() as u64) as usize];
        // Why so rarely: a sync takes as long as thousands of batches.
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

    /// A batch was refused, and not seen before.
    fn refuse(&self, group: usize, Mark { count, number, .. }: &Mark) {
        let Group { floor, last_refused, refused, .. } = &self.groups[group];
        refused.lock().expect("nobody panics with it").insert(*number);
        last_refused.store(*number, Ordering::SeqCst);
        // Ordering: whoever sees the batch raises the floor, and then looks whether it was refused;
        // here it is the other way round. One of the two finds out.
        if floor.load(Ordering::SeqCst) >= *count {
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
            let (family, number) = (random.index(FAMILIES), random.index(KEYS));
            let floor = self.floor(group);
            match store.get(None, family, &key(group, number)).await {
                // One of two is there at a time.
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

    /// All keys of two groups, in all column families, of which one has witnessed the other if
    /// chance has it.
    async fn multi_get(&self, store: &impl Store, group: usize, random: &mut Random) -> Count {
        let other = (group + 1 + random.below(GROUPS as u64 - 1) as usize) % GROUPS;
        let (floors, keys) = (self.floors(), keys_of([group, other]));
        let found = store.multi_get(None, &keys).await;
        self.check_together(&floors, &with_keys(keys, found), "multi_get");
        (1, 2 * FAMILIES * KEYS)
    }

    /// A run of entries of one column family, whole groups of it.
    async fn scan(&self, store: &impl Store, random: &mut Random) -> Count {
        let groups = 1 + random.below(8) as usize;
        let first = random.below((GROUPS - groups + 1) as u64) as usize;
        let (family, backward) = (random.index(FAMILIES), random.one_in(2));
        let floors = self.floors();
        let found = scan(store, None, family, (first, groups), backward).await;
        self.check_scan(&floors, &found, (first, groups), backward);
        (1, groups * PRESENT)
    }

    /// A new snapshot, read in one form or another, and kept.
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

    /// A snapshot of before shows what it showed, in all ways to read.
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

    /// All groups in a snapshot, by one column family, and what they share.
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

    /// One read of everything, in all ways, without writers.
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
            // Nothing is there besides.
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

    /// Checks what was seen of one group, which will be there from now on.
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

    /// Checks what one read has found, the marks of each of its groups among it.
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

    /// The same of a scan of so many groups, which have to be there whole.
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

/// What a batch does in all column families: in one of them it may delete what was there first.
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

/// Families, keys and what was found under them.
type Found = Vec<(usize, Key, Option<Value>)>;

fn with_keys(keys: Vec<(usize, Key)>, found: Vec<Option<Value>>) -> Found {
    keys.into_iter().zip(found).map(|((family, key), value)| (family, key, value)).collect()
}

/// The entries of so many groups in one column family.
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
