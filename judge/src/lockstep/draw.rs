//! The operations, drawn from the seed and the model's contents; never from an engine's answers.

use super::engine::{Change, Key, Moves, Op, Policy, Read};
use super::ingest::Ways;
use super::known::Tally;
use super::options::{CHANGES, FamilyChoice, Lines, Nature};
use super::state::State;
use karst_testkit::model::{Order, Prefix};
use karst_testkit::random::Random;
use karst_testkit::script::{Merging, Write};
use karst_testkit::subject::{Move, ReadSettings};
use std::collections::VecDeque;

/// Number of keys of a family, small enough for operations to meet on a key.
const KEYS: u64 = 300;
/// Number of keys that are put once and then deleted singly. They form one range apart from all
/// others.
const SINGLES: u64 = 24;
const SNAPSHOTS_AT_MOST: usize = 4;
const ITERATORS_AT_MOST: usize = 6;
const TRANSACTIONS_AT_MOST: usize = 4;
const FAMILIES_AT_MOST: usize = 5;
/// Maximum number of changes of a key in one WritePrepared transaction, because RocksDB 11.8
/// forgets at recovery which key began a sub-batch, and then shows undecided entries.
const TIMES_PREPARED: usize = 2;

/// Settings of a life that restrict its operations.
pub(super) struct Limits<'a> {
    pub(super) database: &'a Lines,
    pub(super) policy: Option<Policy>,
    /// Some writes are not logged.
    pub(super) unlogged: bool,
}

/// Draws operations.
pub(super) struct Draw {
    pub(super) random: Random,
    /// Next number for an iterator, snapshot, transaction or value.
    next: usize,
    /// Operations that come before any that is drawn.
    pub(super) queue: VecDeque<Op>,
    /// Name, nature and options of the family that was drawn last.
    pub(super) created: Option<(String, Nature, FamilyChoice)>,
}

impl Draw {
    pub(super) fn new(random: Random) -> Self {
        Self { random, next: 0, queue: VecDeque::new(), created: None }
    }

    fn number(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.index(all.len())]
    }

    fn one_of_two<T>(&mut self, one: T, other: T) -> T {
        if self.random.one_in(2) { one } else { other }
    }

    /// Draws a key that is shorter than, as long as, or longer than prefixes.
    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(KEYS);
        let mut key = format!("{:02}/{:02}", number / 25, number % 25).into_bytes();
        match number % 16 {
            0 => key.truncate(2),
            1 => key.push(0xff),
            2 => key.extend([b'x'; 80]),
            3 => key.truncate(3),
            4 => key.push(0),
            _ => {}
        }
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(20) {
            0 => 0,
            1 => self.random.index(3000),
            2..=5 => self.random.index(300),
            _ => self.random.index(20),
        };
        let number = self.number();
        let mut value = format!("{number}.").into_bytes();
        value.resize(length, b'a' + (number % 26) as u8);
        value
    }

    fn merge_operand(&mut self, merging: &Merging) -> Vec<u8> {
        match merging {
            // A few operands are not 8 bytes long, and count as 0.
            Merging::Add if !self.random.one_in(20) => self.random.below(1000).to_le_bytes().to_vec(),
            _ => {
                let length = 1 + self.random.index(12);
                let letter = b'A' + self.random.index(26) as u8;
                vec![letter; length]
            }
        }
    }

    fn ends(&mut self, order: Order) -> [Vec<u8>; 2] {
        let begin = self.key();
        let mut ends = if self.random.one_in(10) {
            [begin, self.key()]
        } else {
            // Narrow range: both ends have the same first bytes.
            let mut end = begin[..begin.len().min(4)].to_vec();
            end.push(b'0' + self.random.index(10) as u8);
            [begin, end]
        };
        ends.sort_by(|a, b| order.compare(a, b));
        ends
    }

    /// Draws one change, or None if the drawn key is locked.
    fn change(&mut self, state: &State, limits: &Limits<'_>, inside: bool) -> Option<Change> {
        let family = self.one_of(&state.live());
        let nature = state.families[family].nature.clone();
        let key = self.key();
        // RocksDB implements no range deletions and entities under WritePrepared.
        let prepares = limits.policy == Some(Policy::WritePrepared);
        let change = match self.random.below(100) {
            0..=14 => Change::Plain(Write::Delete { family, key }),
            15..=36 => {
                let operand = self.merge_operand(&nature.merging);
                Change::Plain(Write::Merge { family, key, operand })
            }
            37..=42 if !inside && !prepares => {
                let mut names: Vec<Vec<u8>> = vec![Vec::new(), b"a".to_vec(), b"column".to_vec()];
                if self.random.one_in(3) {
                    names.remove(0);
                }
                let columns = names.into_iter().map(|name| (name, self.value())).collect();
                Change::Entity { family, key, columns }
            }
            // RocksDB drops ranges although files may be ingested behind them.
            43..=46 if !inside && !prepares && !nature.behind => {
                let [begin, end] = self.ends(nature.order);
                let order = nature.order;
                let covers =
                    |key: &Vec<u8>| order.compare(key, &begin).is_ge() && order.compare(key, &end).is_lt();
                if state.locked(family).iter().any(covers) {
                    return None;
                }
                return Some(Change::Plain(Write::DeleteRange { family, begin, end }));
            }
            47..=54 if !inside => {
                let key = format!("~{:02}", self.random.below(SINGLES)).into_bytes();
                return Some(Change::Plain(match state.contents(family).find(&key) {
                    Some(_) => Write::SingleDelete { family, key },
                    None => Write::Put { family, key, value: self.value() },
                }));
            }
            _ => {
                let value = match nature.merging {
                    Merging::Add if !self.random.one_in(8) => self.random.below(1000).to_le_bytes().to_vec(),
                    _ => self.value(),
                };
                Change::Plain(Write::Put { family, key, value })
            }
        };
        let locked = state.is_locked(change.family(), change.key(), inside);
        (!locked).then_some(change)
    }

    fn write(&mut self, state: &State, limits: &Limits<'_>) -> Option<Op> {
        let count = if self.random.one_in(20) { 40 } else { 1 + self.random.index(5) };
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..count {
            let Some(change) = self.change(state, limits, false) else { continue };
            // A key deleted singly is not drawn twice in a batch, because the choice between put
            // and deletion comes from the contents before the batch.
            let is_single = change.key().starts_with(b"~");
            let again = changes.iter().any(|c| c.family() == change.family() && c.key() == change.key());
            if !(is_single && again) {
                changes.push(change);
            }
        }
        // Entities come last, because RocksDB's side appends them to the batch.
        changes.sort_by_key(|change| matches!(change, Change::Entity { .. }));
        let unlogged = limits.unlogged && self.random.one_in(3);
        let sync = !unlogged && self.random.one_in(30);
        (!changes.is_empty()).then_some(Op::Write { changes, sync, unlogged })
    }

    /// Draws the read options of a get.
    fn reading(&mut self, state: &State) -> Read {
        let snapshots: Vec<usize> = state.snapshots.keys().copied().collect();
        let snapshot = (!snapshots.is_empty() && self.random.one_in(2)).then(|| self.one_of(&snapshots));
        Read { snapshot, no_fill: self.random.one_in(4), ..Read::default() }
    }

    fn open_iterator(&mut self, state: &State, family: usize) -> Op {
        let order = state.families[family].nature.order;
        let mut bounds = [self.key(), self.key()];
        bounds.sort_by(|a, b| order.compare(a, b));
        let [lower, upper] = bounds;
        let mut read = self.reading(state);
        read.settings = ReadSettings {
            lower_bound: self.random.one_in(4).then_some(lower),
            upper_bound: self.random.one_in(4).then_some(upper),
            prefix_same_as_start: false,
        };
        read.readahead = if self.random.one_in(6) { 20_000 } else { 0 };
        read.no_async = self.random.one_in(2);
        read.pin = self.random.one_in(6);
        match self.random.below(10) {
            0..=1 => {}
            2 | 3 if state.families[family].choice.prefix.is_some() => {
                read.settings.prefix_same_as_start = true
            }
            4 => read.auto_prefix = true,
            _ => read.total_order = true,
        }
        Op::OpenIterator { number: self.number(), family, read }
    }

    /// Draws moves of an iterator: next and prev only where it is valid, and in prefix mode only
    /// forward, to keys that have a prefix.
    fn walk(&mut self, state: &State, number: usize) -> Op {
        let length = 1 + self.random.index(12);
        let mut moves = Vec::new();
        let forward = self.random.one_in(2);
        let mut iterating = state.iterators[&number].clone();
        for _ in 0..length {
            let key = self.key();
            let prefix = iterating.by_prefix();
            let stands = iterating.stands();
            let step = match (prefix, self.random.below(10)) {
                (None, 0..=6) if stands && forward => Move::Next,
                (None, 0..=6) if stands => Move::Prev,
                (None, 7) if stands => self.one_of_two(Move::Next, Move::Prev),
                (None, 8) => self.one_of_two(Move::First, Move::Last),
                (None, _) => self.one_of_two(Move::Seek(key.clone()), Move::SeekForPrev(key)),
                (Some(_), 0..=7) if stands => Move::Next,
                (Some(prefix), _) => Move::Seek(with_prefix(prefix, key)),
            };
            iterating.apply(&step);
            moves.push(step);
        }
        Op::Walk { number, moves: Moves(moves) }
    }

    /// Queues a scan of a family, forward and backward.
    pub(super) fn scan(&mut self, state: &State, family: usize, snapshot: Option<usize>) {
        let read = Read { total_order: true, snapshot, ..Read::default() };
        let number = self.number();
        let length = state.contents(family).entries.len();
        let walk = |first: Move, then: Move| {
            let moves = std::iter::once(first).chain(std::iter::repeat_n(then, length)).collect();
            Op::Walk { number, moves: Moves(moves) }
        };
        self.queue.push_back(Op::OpenIterator { number, family, read });
        self.queue.push_back(walk(Move::First, Move::Next));
        self.queue.push_back(walk(Move::Last, Move::Prev));
        self.queue.push_back(Op::CloseIterator { number });
    }

    /// Returns the next operation.
    pub(super) fn next(&mut self, state: &State, limits: &Limits<'_>, tally: &mut Tally) -> Op {
        loop {
            if let Some(op) = self.queue.pop_front() {
                return op;
            }
            if let Some(op) = self.any(state, limits, tally) {
                return op;
            }
        }
    }

    fn any(&mut self, state: &State, limits: &Limits<'_>, tally: &mut Tally) -> Option<Op> {
        let live = state.live();
        let family = self.one_of(&live);
        // RocksDB throws an exception, and then hangs, when it recovers a log with entries of a
        // dropped family.
        let drops_nothing = limits.policy == Some(Policy::WritePrepared);
        // Dropped families can still be read.
        let readable = self.one_of(&state.readable());
        Some(match self.random.below(1000) {
            0..=399 => return self.write(state, limits),
            400..=579 => Op::Get { family: readable, key: Key(self.any_key()), read: self.reading(state) },
            580..=639 => {
                let (many, read) = (1 + self.random.index(20), self.reading(state));
                let over_all = self.random.one_in(3);
                let keys = (0..many)
                    .map(|_| (if over_all { self.one_of(&live) } else { readable }, Key(self.any_key())))
                    .collect();
                Op::MultiGet { keys, read }
            }
            640..=659 => {
                Op::MayExist { family: readable, key: Key(self.any_key()), read: self.reading(state) }
            }
            660..=689 if state.iterators.len() < ITERATORS_AT_MOST => self.open_iterator(state, readable),
            690..=859 if !state.iterators.is_empty() => {
                let all: Vec<usize> = state.iterators.keys().copied().collect();
                let number = self.one_of(&all);
                self.walk(state, number)
            }
            860..=884 if !state.iterators.is_empty() => {
                let all: Vec<usize> = state.iterators.keys().copied().collect();
                Op::CloseIterator { number: self.one_of(&all) }
            }
            885..=899 if state.snapshots.len() < SNAPSHOTS_AT_MOST => Op::Snapshot { number: self.number() },
            900..=914 if !state.snapshots.is_empty() => {
                let all: Vec<usize> = state.snapshots.keys().copied().collect();
                let number = self.one_of(&all);
                let held = |read: &Read| read.snapshot == Some(number);
                if state.iterators.values().any(|iterating| held(&iterating.read)) {
                    return None;
                }
                Op::Release { number }
            }
            915..=918 => {
                let some: Vec<usize> = live.into_iter().filter(|_| self.random.one_in(2)).collect();
                if some.is_empty() {
                    return None;
                }
                Op::Flush { families: some }
            }
            919..=920 => self.compact(state, limits, family),
            921..=923 => {
                let (name, values) = self.one_of(CHANGES);
                // RocksDB accepts compression with block_align here, and then every flush fails.
                let aligned =
                    state.families[family].choice.table.get("block_align").is_some_and(|v| v == "true");
                if aligned && name.contains("compression") {
                    return None;
                }
                Op::SetOptions { family, name: name.into(), value: self.one_of(values).into() }
            }
            924..=927 => Op::FlushWal { sync: self.random.one_in(2) },
            928 if !self.random.one_in(3) => return None,
            928 => {
                // The property depends on pending background jobs, so they finish first.
                self.queue.push_back(Op::Property { family, name: "rocksdb.is-write-stopped" });
                Op::Settle
            }
            929..=932 => {
                let names = ["rocksdb.num-snapshots", "rocksdb.background-errors"];
                Op::Property { family, name: self.one_of(&names) }
            }
            933 => self.create_family(state, limits, tally),
            934 if !drops_nothing && (live.len() > 2 || self.random.one_in(4)) => {
                Op::DropFamily { number: self.droppable(state, family)? }
            }
            935..=999 if limits.policy.is_some() => return self.transaction(state, limits),
            935..=944 => return self.secondary(state, limits),
            948..=951 => return self.ingest(state, family),
            945..=947 => return self.transfer(state, limits, family, tally),
            _ => return None,
        })
    }

    /// Draws a file and its ingestion, behind all entries where the family allows that. In front of
    /// them RocksDB may give a file the number 0 there, and then takes none behind it any more.
    fn ingest(&mut self, state: &State, family: usize) -> Option<Op> {
        let nature = state.families[family].nature.clone();
        // Snapshots older than the family would show entries behind all others, too.
        if nature.behind && state.snapshots.values().any(|families| families.len() <= family) {
            return None;
        }
        let mut entries: Vec<Change> = Vec::new();
        // A few keys that are near each other, because files behind all entries must not overlap.
        let most = if nature.behind { 6 } else { 30 };
        let near = format!("{:02}/", self.random.below(KEYS / 25)).into_bytes();
        for _ in 0..=self.random.index(most) {
            let key = self.key();
            if nature.behind && !key.starts_with(&near) {
                continue;
            }
            let write = match self.random.below(8) {
                0 => Write::Delete { family, key },
                1 => Write::Merge { family, key, operand: self.merge_operand(&nature.merging) },
                _ => Write::Put { family, key, value: self.value() },
            };
            entries.push(Change::Plain(write));
        }
        if entries.is_empty() && nature.behind {
            let key = [near, b"0".to_vec()].concat();
            entries.push(Change::Plain(Write::Put { family, key, value: self.value() }));
        }
        let order = nature.order;
        entries.sort_by(|a, b| order.compare(a.key(), b.key()));
        entries.dedup_by(|a, b| a.key() == b.key());
        if !nature.behind && self.random.one_in(3) {
            let [begin, end] = self.ends(order);
            entries.push(Change::Plain(Write::DeleteRange { family, begin, end }));
        }
        let [moved, verified, swapped] = [(); 3].map(|()| self.random.one_in(2));
        let (number, ways) = (self.number(), Ways { behind: nature.behind, moved, verified });
        let options = state.families[family].choice.text();
        self.queue.push_back(Op::Ingest { family, number, entries: entries.clone(), ways, swapped });
        Some(Op::WriteFile { number, options, entries })
    }

    /// Draws an export and the import of it. Neither engine exports blob files, both refuse an
    /// import of no files, and the numbers of imported entries may be as low as a snapshot's.
    fn transfer(
        &mut self,
        state: &State,
        limits: &Limits<'_>,
        source: usize,
        tally: &mut Tally,
    ) -> Option<Op> {
        let (family, live) = (&state.families[source], state.live());
        let is_empty = state.contents(source).entries.is_empty();
        if family.blobs
            || family.nature.behind
            || is_empty
            || !state.snapshots.is_empty()
            || live.len() >= FAMILIES_AT_MOST
        {
            return None;
        }
        let nature = family.nature.clone();
        let choice = nature.options(&mut self.random, (limits.database, limits.policy), tally);
        let (export, of_rocksdb) = (self.number(), self.random.one_in(2));
        let (name, options) = (format!("family{export}"), choice.text());
        self.created = Some((name.clone(), nature, choice));
        let number = state.families.len();
        self.queue.push_back(Op::Import { export, source, number, name, options, of_rocksdb });
        Some(Op::Export { family: source, number: export })
    }

    /// Draws an operation of a secondary. The primary's buffered log is written out first.
    fn secondary(&mut self, state: &State, limits: &Limits<'_>) -> Option<Op> {
        let written = match limits.unlogged {
            true => Op::Flush { families: state.live() },
            false => Op::FlushWal { sync: false },
        };
        if state.secondary.is_none() {
            let live = state.live().into_iter().map(|number| (number, &state.families[number]));
            let families = live.map(|(n, family)| (n, family.name.clone(), family.choice.text())).collect();
            self.queue.push_back(Op::OpenSecondary { swapped: self.random.one_in(2), families });
            return Some(written);
        }
        // RocksDB documents that a secondary leaves out families created after it was opened, but
        // it does not catch up then ("MANIFEST record referencing unknown column family").
        let followed = state.followed();
        if followed != state.live() || self.random.one_in(12) {
            return Some(Op::CloseSecondary);
        }
        let keys = (0..self.random.index(8)).map(|_| Key(self.any_key())).collect();
        let read = Op::ReadSecondary { family: self.one_of(&followed), keys };
        if self.random.one_in(4) {
            return Some(read);
        }
        self.queue.extend([Op::CatchUp, read]);
        Some(written)
    }

    /// Draws a key, in one of eight cases from those deleted singly.
    fn any_key(&mut self) -> Vec<u8> {
        match self.random.one_in(8) {
            true => format!("~{:02}", self.random.below(SINGLES)).into_bytes(),
            false => self.key(),
        }
    }

    fn compact(&mut self, state: &State, limits: &Limits<'_>, family: usize) -> Op {
        let order = state.families[family].nature.order;
        let exclusive = self.random.one_in(2);
        if self.random.one_in(2) {
            let mut ends = [self.key(), self.key()];
            ends.sort_by(|a, b| order.compare(a, b));
            let [begin, end] = ends.map(|key| (!self.random.one_in(4)).then_some(Key(key)));
            return Op::Compact { family, begin, end, force: self.random.one_in(3), exclusive };
        }
        // Under WritePrepared no iterator may be open either, because RocksDB's iterators hold
        // snapshots there.
        let nothing_held = state.snapshots.is_empty()
            && (limits.policy != Some(Policy::WritePrepared) || state.iterators.is_empty())
            && state.transactions.is_empty();
        if nothing_held && state.families[family].nature.drops_what_is_hidden() {
            self.queue.push_back(Op::Property { family, name: "rocksdb.estimate-num-keys" });
        }
        Op::Compact { family, begin: None, end: None, force: true, exclusive }
    }

    fn create_family(&mut self, state: &State, limits: &Limits<'_>, tally: &mut Tally) -> Op {
        let live = state.live();
        let nature = Nature::draw(&mut self.random);
        let choice = nature.options(&mut self.random, (limits.database, limits.policy), tally);
        let exists = live.len() >= FAMILIES_AT_MOST || self.random.one_in(6);
        let number = self.number();
        let name = match exists {
            true => state.families[self.one_of(&live)].name.clone(),
            false => format!("family{number}"),
        };
        let options = choice.text();
        self.created = Some((name.clone(), nature, choice));
        Op::CreateFamily { number: state.families.len(), name, options }
    }

    /// Returns `family` if no transaction has locked a key of it, so that it may be dropped.
    fn droppable(&self, state: &State, family: usize) -> Option<usize> {
        state.locked(family).is_empty().then_some(family)
    }

    fn transaction(&mut self, state: &State, limits: &Limits<'_>) -> Option<Op> {
        let all: Vec<usize> = state.transactions.keys().copied().collect();
        if all.is_empty() || (all.len() < TRANSACTIONS_AT_MOST && self.random.one_in(8)) {
            let number = self.number();
            return Some(Op::Begin { number, name: format!("transaction{number}"), snapshot: false });
        }
        let number = self.one_of(&all);
        let transaction = &state.transactions[&number];
        let decided = self.random.one_in(3);
        if transaction.prepared {
            return decided.then(|| match self.random.one_in(3) {
                true => Op::Rollback { transaction: number },
                false => Op::Commit { transaction: number },
            });
        }
        Some(match self.random.below(40) {
            0..=21 => {
                let change = self.change(state, limits, true)?;
                let prepares = limits.policy == Some(Policy::WritePrepared);
                if prepares && transaction.times(change.family(), change.key()) >= TIMES_PREPARED {
                    return None;
                }
                Op::Change { transaction: number, change }
            }
            22..=30 => {
                let (family, key) = (self.one_of(&state.live()), Key(self.key()));
                let for_update = self.random.one_in(3);
                if for_update && state.is_locked(family, &key, true) {
                    return None;
                }
                Op::GetInside { transaction: number, family, key, for_update }
            }
            31..=32 => Op::SavePoint { transaction: number },
            33..=34 if transaction.has_save_point() || self.random.one_in(4) => {
                Op::RollbackToSavePoint { transaction: number }
            }
            // RocksDB's pipelined writes do not record which log holds a prepared transaction. The
            // next flush removes that log, and a crash then loses the transaction although it was
            // committed.
            35..=37 if limits.database["enable_pipelined_write"] == "true" => return None,
            35..=37 => Op::Prepare { transaction: number },
            38 => Op::Commit { transaction: number },
            39 => Op::Rollback { transaction: number },
            _ => return None,
        })
    }
}

/// Returns `key`, padded to a length that has a prefix.
fn with_prefix(prefix: Prefix, mut key: Vec<u8>) -> Vec<u8> {
    let (Prefix::Fixed(length) | Prefix::Capped(length)) = prefix;
    if key.len() < length {
        key.resize(length, b'/');
    }
    key
}
