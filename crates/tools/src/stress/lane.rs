//! A lane: one stream of operations on the open database, each of which is verified.
//!
//! In: the state that the lanes of a life share ([`Shared`]). Out: nothing, or the first mismatch
//! or failure. Writes are recorded in the expected state before and after; reads are compared with
//! it, including those of other lanes' rows as far as these do not change meanwhile.

use super::calls::{Calls, Found, met_another, number_of};
use super::counts::{Count, Counts};
use super::expected::{Expected, Judgement, Row};
use super::extras::Extras;
use super::flags::Flags;
use super::options::{Drawn, change};
use super::place::beside;
use super::plan::{Abilities, Account, Change, Draws, Operation, Walk, WriteForm};
use super::rows::{ACCOUNT, BLOCK_PREFIX, Key, Place, counts, family_name};
use super::wrong::{Wrong, shown};
use crate::random::Random;
use karst_engine::{Error, ReadOptions, Result as DbResult, Snapshot, WriteBatch, WriteOptions};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum number of snapshots that a lane holds, and number of rows read in each.
const HELD_AT_MOST: usize = 3;
const ROWS_OF_A_SNAPSHOT: usize = 12;
/// Time that a transaction waits for a lock, in milliseconds.
const LOCK_TIMEOUT_MS: i64 = 100;

/// State that the lanes of a life share.
pub(crate) struct Shared {
    pub(crate) expected: Expected,
    pub(crate) flags: Flags,
    pub(crate) drawn: Drawn,
    pub(crate) counts: Counts,
    /// All rows in the order of their keys: key, lane, row.
    pub(crate) ordered: Vec<(Key, usize, usize)>,
    pub(crate) life: u64,
    /// True once lanes must begin no more operations.
    pub(crate) over: AtomicBool,
}

/// Returns the mismatch of one row.
pub(crate) fn mismatch(
    way: &str,
    place: Place,
    key: &[u8],
    expected: &[Option<Vec<u8>>],
    found: Option<&[u8]>,
) -> Wrong {
    let expected: Vec<String> = expected.iter().map(|text| shown(text.as_deref())).collect();
    Wrong::Mismatch(format!(
        "by {way}: column family {}, key {} (row {} of lane {}): expected {}, found {}",
        family_name(place.family),
        key.escape_ascii(),
        place.row,
        place.lane,
        expected.join(" or "),
        shown(found)
    ))
}

/// A snapshot with the values that were read in it.
struct Held {
    snapshot: Snapshot,
    until: u64,
    family: usize,
    /// Positions of the rows in the order of keys.
    rows: Vec<usize>,
    found: Vec<Option<Vec<u8>>>,
    /// Positions of the first and the last row of the scan, both included.
    range: (usize, usize),
    walked: Vec<Found>,
}

/// A lane, with its source of random numbers and the snapshots that it holds.
pub(crate) struct Lane {
    pub(super) shared: Arc<Shared>,
    pub(super) calls: Calls,
    pub(super) lane: usize,
    pub(super) random: Random,
    held: VecDeque<Held>,
    extras: Option<Extras>,
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, calls: Calls, lane: usize, extras: Option<Extras>) -> Lane {
        let random = Random::of(&[shared.expected.shape.seed, 3, shared.life, lane as u64]);
        Lane { shared, calls, lane, random, held: VecDeque::new(), extras }
    }

    /// Returns a function that reports an error of the call `what` as a failure.
    pub(super) fn failed(what: &str) -> impl Fn(Error) -> Wrong + '_ {
        move |error| Wrong::Failed(format!("{what}: {error}"))
    }

    pub(super) fn count(&self, what: Count) {
        self.shared.counts.add(what, 1);
    }

    /// Runs at most `operations`, or until the life is over.
    pub(crate) async fn run(mut self, operations: Option<u64>) -> Result<(), Wrong> {
        let shared = self.shared.clone();
        let front = shared.drawn.front;
        let abilities = Abilities {
            transactions: front != super::options::FrontKind::Plain,
            two_phases: front.locks(),
            unlogged: shared.drawn.unlogged,
        };
        let draws = self.random.clone();
        let mut draws = Draws::new(shared.expected.shape, &shared.flags, abilities, self.lane, draws);
        // A second stream for everything beside operations, so that it does not affect which
        // operations are drawn.
        self.random = Random::of(&[self.random.next(), 4]);
        let first = shared.expected.head(self.lane).ended + 1;
        for number in first.. {
            if shared.over.load(Ordering::Relaxed) || operations.is_some_and(|most| number - first >= most) {
                break;
            }
            let (lane, expected) = (self.lane, &shared.expected);
            let operation = draws.draw(number, &|place| {
                debug_assert_eq!(place.lane, lane);
                expected.row(place).now
            });
            self.carry_out(number, operation).await?;
            self.count(Count::Operations);
            self.aside(number).await?;
            self.read_again(number).await?;
        }
        self.read_again(u64::MAX).await
    }

    async fn carry_out(&mut self, number: u64, operation: Operation) -> Result<(), Wrong> {
        match operation {
            Operation::Get { family, row } => self.get(family, row).await,
            Operation::MultiGet { family, rows } => self.multi_get(family, &rows).await,
            Operation::Scan { family, first, count, walk } => self.scan(family, first, count, walk).await,
            Operation::Prefix { family, row } => self.prefix(family, row).await,
            Operation::Sum => self.sum().await,
            Operation::Write { changes, form } => self.write(number, &changes, None, form).await,
            Operation::Transfer { from, to, amount, mark, form } => {
                self.count(Count::Transfers);
                self.write(number, &[mark], Some((from, to, amount)), form).await
            }
        }
    }

    pub(super) fn place(&self, family: usize, at: usize) -> (Key, Place) {
        let (key, lane, row) = self.shared.ordered[at];
        (key, Place { lane, family, row })
    }

    /// Compares a value with the states that the row can have had since it was `before`.
    fn check(&self, way: &str, at: (Key, Place), before: &Row, found: Option<&[u8]>) -> Result<(), Wrong> {
        match self.shared.expected.judge(at.1, before, found) {
            Judgement::Right => self.count(Count::Checked),
            Judgement::Undecided => self.count(Count::Undecided),
            Judgement::Wrong(texts) => return Err(mismatch(way, at.1, &at.0, &texts, found)),
        }
        Ok(())
    }

    async fn get(&mut self, family: usize, row: usize) -> Result<(), Wrong> {
        self.count(Count::Gets);
        let at = self.place(family, row);
        let before = self.shared.expected.row(at.1);
        let found =
            self.calls.get(&ReadOptions::default(), family, &at.0).await.map_err(Self::failed("get"))?;
        self.check("get", at, &before, found.as_deref())
    }

    async fn multi_get(&mut self, family: usize, rows: &[usize]) -> Result<(), Wrong> {
        self.count(Count::MultiGets);
        let all: Vec<(Key, Place)> = rows.iter().map(|row| self.place(family, *row)).collect();
        let keys: Vec<Key> = all.iter().map(|(key, _)| *key).collect();
        let before: Vec<Row> = all.iter().map(|(_, place)| self.shared.expected.row(*place)).collect();
        let o = ReadOptions { optimize_multiget_for_io: self.random.one_in(2), ..ReadOptions::default() };
        let found = self.calls.multi_get(&o, family, &keys).await.map_err(Self::failed("multi_get"))?;
        for ((at, before), found) in all.into_iter().zip(&before).zip(&found) {
            self.check("multi_get", at, before, found.as_deref())?;
        }
        Ok(())
    }

    /// Compares the entries of a walk, in the order of keys, with the rows of its range.
    fn check_walk(
        &self,
        way: &str,
        rows: &[(Key, Place)],
        before: &[Row],
        found: &[Found],
        family: usize,
    ) -> Result<(), Wrong> {
        let mut entries = found.iter().peekable();
        let nobodys = |key: &[u8], value: &[u8]| {
            Wrong::Mismatch(format!(
                "by {way}: column family {}, key {}: expected nothing here, found {}",
                family_name(family),
                key.escape_ascii(),
                shown(Some(value))
            ))
        };
        for (at, before) in rows.iter().zip(before) {
            let value = match entries.peek() {
                Some((key, _)) if key[..] < at.0[..] => {
                    return Err(nobodys(key, &entries.next().expect("it was looked at").1));
                }
                Some((key, _)) if key[..] == at.0[..] => entries.next().map(|(_, value)| &value[..]),
                _ => None,
            };
            self.check(way, *at, before, value)?;
        }
        entries.next().map_or(Ok(()), |(key, value)| Err(nobodys(key, value)))
    }

    async fn scan(&mut self, family: usize, first: usize, count: usize, walk: Walk) -> Result<(), Wrong> {
        self.count(Count::Scans);
        let rows: Vec<(Key, Place)> = (first..first + count).map(|at| self.place(family, at)).collect();
        let before: Vec<Row> = rows.iter().map(|(_, place)| self.shared.expected.row(*place)).collect();
        let (from, to) = (rows[0].0, rows[count - 1].0);
        let o = ReadOptions {
            total_order_seek: !walk.readahead,
            auto_prefix_mode: walk.readahead,
            readahead_size: if walk.readahead { 40_000 } else { 0 },
            iterate_lower_bound: walk.bounds.then(|| from.to_vec()),
            iterate_upper_bound: walk.bounds.then(|| [&to[..], &[0]].concat()),
            snapshot: walk.compared.then(|| self.calls.store.db().snapshot()),
            ..ReadOptions::default()
        };
        let (calls, failed) = (&self.calls, Self::failed("a scan"));
        let mut found = calls.walk(&o, family, &from, &to, walk.backward).await.map_err(&failed)?;
        if walk.backward {
            found.reverse();
        }
        let way = if walk.backward { "an iterator that goes backward" } else { "an iterator" };
        self.check_walk(way, &rows, &before, &found, family)?;
        if !walk.compared {
            return Ok(());
        }
        let mut other = calls.walk(&o, family, &from, &to, !walk.backward).await.map_err(&failed)?;
        if !walk.backward {
            other.reverse();
        }
        let keys: Vec<Key> = rows.iter().map(|(key, _)| *key).collect();
        let values = calls.multi_get(&o, family, &keys).await.map_err(Self::failed("multi_get"))?;
        let by_keys = keys.iter().zip(values).filter_map(|(key, value)| Some((key.to_vec(), value?)));
        let by_keys: Vec<Found> = by_keys.collect();
        for (other, named) in [(other, "an iterator the other way"), (by_keys, "multi_get")] {
            if let Some(text) = difference(&found, &other) {
                return Err(Wrong::Mismatch(format!(
                    "in one snapshot: column family {}, {text} by {way} and then by {named}",
                    family_name(family)
                )));
            }
        }
        Ok(())
    }

    /// Scans all rows that share the block prefix of this row's key.
    async fn prefix(&mut self, family: usize, row: usize) -> Result<(), Wrong> {
        self.count(Count::PrefixScans);
        let (key, ordered) = (self.shared.ordered[row].0, &self.shared.ordered);
        let prefix = &key[..BLOCK_PREFIX];
        let first = ordered.partition_point(|(key, ..)| key[..BLOCK_PREFIX] < *prefix);
        let count = ordered[first..].partition_point(|(key, ..)| key[..BLOCK_PREFIX] == *prefix);
        let rows: Vec<(Key, Place)> = (first..first + count).map(|at| self.place(family, at)).collect();
        let before: Vec<Row> = rows.iter().map(|(_, place)| self.shared.expected.row(*place)).collect();
        let (from, to) = (rows[0].0, rows[count - 1].0);
        // The length of the user's own prefixes is not known here.
        let by_prefix = !self.shared.flags.options.iter().any(|(name, _)| name == "prefix_extractor");
        let o = ReadOptions {
            prefix_same_as_start: by_prefix,
            total_order_seek: !by_prefix,
            ..ReadOptions::default()
        };
        let found = self
            .calls
            .walk(&o, family, &from, &to, false)
            .await
            .map_err(Self::failed("a scan of a prefix"))?;
        self.check_walk("an iterator over a prefix", &rows, &before, &found, family)
    }

    /// Checks the sum of all accounts in one snapshot.
    async fn sum(&mut self) -> Result<(), Wrong> {
        self.count(Count::Sums);
        let snapshot = self.calls.store.db().snapshot();
        let families = self.shared.expected.shape.families;
        sum_of_accounts(&self.calls, &snapshot, families, self.random.one_in(2)).await
    }

    async fn write(
        &mut self,
        number: u64,
        changes: &[Change],
        transfer: Option<(Account, Account, u64)>,
        form: WriteForm,
    ) -> Result<(), Wrong> {
        let shared = self.shared.clone();
        let states: Vec<(Place, u64)> = changes.iter().flat_map(Change::states).collect();
        shared.expected.begin(number, &states)?;
        let bytes = |(place, next): &(Place, u64)| {
            12 + shared.expected.shape.text(*place, *next).map_or(0, |text| text.len() as u64)
        };
        shared.counts.add(Count::Bytes, states.iter().map(bytes).sum());
        let kept = match form {
            WriteForm::Transaction { sync, prepare, roll_back, save_point } => {
                let sync = WriteOptions { sync, ..WriteOptions::default() };
                let end = Ending { prepare, roll_back, save_point };
                self.transaction(number, changes, transfer, &sync, end).await?
            }
            WriteForm::Batch { sync } => self.batch(changes, transfer, sync, false).await?,
            WriteForm::Unlogged => self.batch(changes, transfer, false, true).await?,
            WriteForm::Ingested => self.ingest(changes).await?,
        };
        shared.expected.end(self.lane, number, kept, states.into_iter().map(|(place, _)| place))?;
        Ok(())
    }

    /// Writes changes as a batch, or by the single call for one entry. Returns `Ok(false)` after a
    /// conflict with another lane, which only a database that locks reports.
    async fn batch(
        &mut self,
        changes: &[Change],
        transfer: Option<(Account, Account, u64)>,
        sync: bool,
        unlogged: bool,
    ) -> Result<bool, Wrong> {
        let shape = self.shared.expected.shape;
        let ranges = changes.iter().any(|change| matches!(change, Change::DeleteRange(_)));
        self.count(match (ranges, unlogged) {
            (true, _) => Count::RangeDeletions,
            (_, true) => Count::Unlogged,
            _ => Count::Batches,
        });
        let protection_bytes_per_key = if self.random.one_in(4) { 8 } else { 0 };
        let o =
            WriteOptions { sync, disable_wal: unlogged, protection_bytes_per_key, ..WriteOptions::default() };
        let one = match (changes, transfer) {
            ([change], None) if self.random.one_in(2) => self.calls.write_one(&o, &shape, change).await,
            _ => None,
        };
        let written = match one {
            Some(written) => written,
            None => {
                let mut batch = WriteBatch::new();
                let locks = self.shared.drawn.front.locks();
                let added =
                    changes.iter().try_for_each(|change| self.calls.add(&mut batch, &shape, change, !locks));
                let added = added.and_then(|()| match transfer {
                    None => Ok(()),
                    Some((from, to, amount)) => self
                        .calls
                        .add_to_account(&mut batch, from, amount.wrapping_neg())
                        .and_then(|()| self.calls.add_to_account(&mut batch, to, amount)),
                });
                added.map_err(Self::failed("a batch"))?;
                self.calls.write(&o, batch).await
            }
        };
        match written {
            Err(error) if self.shared.drawn.front.locks() && met_another(&error) => {
                self.count(Count::Conflicts);
                return Ok(false);
            }
            written => written.map_err(Self::failed("write"))?,
        }
        if unlogged {
            let family = changes[0].states()[0].0.family;
            self.calls.flush(&[family]).await.map_err(Self::failed("flush"))?;
        } else {
            self.out_of_memory().await?;
        }
        Ok(true)
    }

    /// Ingests the changes as files. Always returns `Ok(true)`, because nothing else writes a
    /// lane's rows.
    async fn ingest(&mut self, changes: &[Change]) -> Result<bool, Wrong> {
        self.count(Count::Ingested);
        let move_files = self.random.one_in(2);
        let shape = self.shared.expected.shape;
        let folder = beside(self.calls.store.db().path(), &format!(".copy-of-lane-{}", self.lane));
        let ingested = self.calls.ingest(&shape, changes, &folder, move_files).await;
        ingested.map_err(Self::failed("an ingestion"))?;
        Ok(true)
    }

    /// With `manual_wal_flush`, flushes the log: a write counts as acknowledged only after it has
    /// left the process.
    async fn out_of_memory(&self) -> Result<(), Wrong> {
        match self.shared.drawn.manual_wal_flush {
            true => self.calls.flush_wal(false).await.map_err(Self::failed("flush_wal")),
            false => Ok(()),
        }
    }

    async fn transaction(
        &mut self,
        number: u64,
        changes: &[Change],
        transfer: Option<(Account, Account, u64)>,
        o: &WriteOptions,
        end: Ending,
    ) -> Result<bool, Wrong> {
        let (deadlocks, snapshot) = (self.random.one_in(2), self.random.one_in(3));
        let Some(mut txn) = self.calls.begin(o, LOCK_TIMEOUT_MS, deadlocks, snapshot) else {
            return self.batch(changes, transfer, o.sync, false).await;
        };
        let failed = Self::failed("a transaction");
        if end.prepare {
            txn.set_name(&name_of(self.lane, number)).map_err(&failed)?;
        }
        match self.fill(&mut txn, changes, transfer, end.save_point).await? {
            Err(error) if met_another(&error) => {
                self.count(Count::Conflicts);
                txn.rollback(&self.calls).await.map_err(&failed)?;
                return Ok(false);
            }
            filled => filled.map_err(&failed)?,
        }
        let expected = &self.shared.expected;
        if end.prepare {
            txn.prepare(&self.calls).await.map_err(Self::failed("prepare"))?;
            self.out_of_memory().await?;
            expected.prepared(self.lane, number)?;
            self.count(Count::Prepares);
            expected.deciding(self.lane, number, !end.roll_back)?;
        }
        if end.roll_back {
            txn.rollback(&self.calls).await.map_err(Self::failed("rollback"))?;
            self.count(Count::RollBacks);
        } else {
            match txn.commit(&self.calls).await {
                Err(error) if !self.shared.drawn.front.locks() && met_another(&error) => {
                    self.count(Count::Conflicts);
                    return Ok(false);
                }
                committed => committed.map_err(Self::failed("commit"))?,
            }
            self.count(Count::Commits);
        }
        self.out_of_memory().await?;
        Ok(!end.roll_back)
    }

    /// Makes a transaction's changes and checks that the transaction sees them.
    async fn fill(
        &self,
        txn: &mut super::calls::Txn,
        changes: &[Change],
        transfer: Option<(Account, Account, u64)>,
        save_point: bool,
    ) -> Result<DbResult<()>, Wrong> {
        let shape = self.shared.expected.shape;
        let made: DbResult<()> = async {
            for change in changes {
                txn.change(&self.calls, &shape, change).await?;
            }
            if save_point {
                txn.set_save_point()?;
                for (place, _) in changes.iter().flat_map(Change::states) {
                    txn.put_nonsense(&self.calls, &shape, place).await?;
                }
                txn.rollback_to_save_point()?;
            }
            if let Some((from, to, amount)) = transfer {
                txn.add_to_account(&self.calls, from, amount.wrapping_neg()).await?;
                txn.add_to_account(&self.calls, to, amount).await?;
            }
            Ok(())
        }
        .await;
        if let Err(error) = made {
            return Ok(Err(error));
        }
        for (place, next) in changes.iter().flat_map(Change::states) {
            let found = match txn.get(&self.calls, &shape, place).await {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
            let right = shape.text(place, next);
            if found != right {
                let key = shape.key(place.lane, place.row);
                return Err(mismatch("the transaction itself", place, &key, &[right], found.as_deref()));
            }
        }
        Ok(Ok(()))
    }

    /// Runs flushes, compactions, copies and other calls beside operations, each with the
    /// probability of its flag.
    async fn aside(&mut self, number: u64) -> Result<(), Wrong> {
        let shared = self.shared.clone();
        let (flags, families) = (&shared.flags, shared.expected.shape.families);
        let family = self.random.index(families);
        if self.random.one_in(flags.flush_one_in) {
            self.count(Count::Flushes);
            let all: Vec<usize> = (0..families).collect();
            let some = if self.random.one_in(2) { all } else { vec![family] };
            self.calls.flush(&some).await.map_err(Self::failed("flush"))?;
        }
        if self.random.one_in(flags.compact_range_one_in) {
            self.count(Count::Compactions);
            let ordered = &shared.ordered;
            let mut ends = [0; 2].map(|_| ordered[self.random.index(ordered.len())].0);
            ends.sort_unstable();
            let compacted = self.calls.compact_range(family, &ends[0], &ends[1]).await;
            compacted.map_err(Self::failed("compact_range"))?;
        }
        if self.random.one_in(flags.compact_files_one_in) {
            self.compact_files(family).await?;
        }
        if self.random.one_in(flags.set_options_one_in) {
            self.set_options()?;
        }
        if self.random.one_in(flags.sync_wal_one_in) {
            self.count(Count::Other);
            self.calls.flush_wal(true).await.map_err(Self::failed("flush_wal"))?;
        }
        if self.random.one_in(flags.get_property_one_in) {
            self.count(Count::Other);
            let db = self.calls.store.db();
            for name in ["rocksdb.stats", "rocksdb.estimate-num-keys", "rocksdb.levelstats"] {
                if db.property_cf(&self.calls.store.families[family], name).is_none() {
                    return Err(Wrong::Failed(format!("property {name} is not there")));
                }
            }
        }
        // Only blocking lanes pause, because the pause would hold up all futures of a thread.
        if !self.calls.asynchronous && self.random.one_in(flags.pause_background_one_in) {
            self.count(Count::Other);
            let db = self.calls.store.db();
            db.pause_background_work().map_err(Self::failed("pause_background_work"))?;
            std::thread::sleep(Duration::from_millis(self.random.below(30)));
            db.continue_background_work().map_err(Self::failed("continue_background_work"))?;
        }
        if !self.calls.asynchronous && self.random.one_in(flags.checkpoint_one_in) {
            self.checkpoint().await?;
        }
        if !self.calls.asynchronous && self.random.one_in(flags.backup_one_in) {
            self.back_up().await?;
        }
        if self.random.one_in(flags.acquire_snapshot_one_in) {
            self.hold(number).await?;
        }
        if let Some(extras) = &mut self.extras {
            let (store, random) = (&self.calls.store, &mut self.random);
            extras.step(store, &shared.flags, &shared.drawn, &shared.counts, random)?;
        }
        Ok(())
    }

    async fn compact_files(&mut self, family: usize) -> Result<(), Wrong> {
        let name = family_name(family);
        let mut files: Vec<_> = self
            .calls
            .store
            .db()
            .live_files()
            .into_iter()
            .filter(|file| file.column_family == name)
            .collect();
        files.retain(|file| file.level.is_some());
        if files.is_empty() {
            return Ok(());
        }
        self.count(Count::Compactions);
        let level = files[self.random.index(files.len())].level.expect("they have one");
        files.retain(|file| file.level == Some(level));
        let first = self.random.index(files.len());
        let numbers: Vec<u64> = files[first..].iter().take(3).map(|file| file.number).collect();
        let output = (level as usize + self.random.index(2)).max(1);
        match self.calls.compact_files(family, &numbers, output).await {
            // A file is gone or being compacted by now, or the level is not possible.
            Err(error) if !error.kind().is_io() && error.kind() != karst_engine::ErrorKind::Corruption => {
                Ok(())
            }
            done => done.map_err(Self::failed("compact_files")),
        }
    }

    fn set_options(&mut self) -> Result<(), Wrong> {
        self.count(Count::OptionChanges);
        let store = &self.calls.store;
        let (family, name, value) = change(&mut self.random, store.families.len());
        match family {
            Some(family) => store.db().set_options(&store.families[family], &[(name, value)]),
            None => store.db().set_db_options(&[(name, value)]),
        }
        .map_err(Self::failed("set_options"))
    }

    /// Takes a snapshot and reads in it.
    async fn hold(&mut self, number: u64) -> Result<(), Wrong> {
        if self.held.len() >= HELD_AT_MOST {
            return Ok(());
        }
        let ordered = self.shared.ordered.len();
        let family = self.random.index(self.shared.expected.shape.families);
        let rows: Vec<usize> = (0..ROWS_OF_A_SNAPSHOT).map(|_| self.random.index(ordered)).collect();
        let count = (1 + self.random.index(60)).min(ordered);
        let first = self.random.index(ordered - count + 1);
        let range = (first, first + count - 1);
        let keys: Vec<Key> = rows.iter().map(|row| self.shared.ordered[*row].0).collect();
        let before: Vec<Row> =
            rows.iter().map(|row| self.shared.expected.row(self.place(family, *row).1)).collect();
        let snapshot = self.calls.store.db().snapshot();
        let o = ReadOptions {
            snapshot: Some(snapshot.clone()),
            total_order_seek: true,
            ..ReadOptions::default()
        };
        let failed = Self::failed("reading in a snapshot");
        let found = self.calls.multi_get(&o, family, &keys).await.map_err(&failed)?;
        for ((row, before), found) in rows.iter().zip(&before).zip(&found) {
            self.check("multi_get in a snapshot", self.place(family, *row), before, found.as_deref())?;
        }
        let (from, to) = (self.shared.ordered[range.0].0, self.shared.ordered[range.1].0);
        let walked = self.calls.walk(&o, family, &from, &to, false).await.map_err(&failed)?;
        let until = number + 1 + self.random.below(self.shared.flags.snapshot_hold_ops);
        self.held.push_back(Held { snapshot, until, family, rows, found, range, walked });
        Ok(())
    }

    /// Reads again, in other ways, in snapshots that are due; the results must be unchanged.
    async fn read_again(&mut self, number: u64) -> Result<(), Wrong> {
        while let Some(at) = self.held.iter().position(|held| held.until <= number) {
            let held = self.held.remove(at).expect("it is there");
            self.count(Count::Snapshots);
            let o = ReadOptions {
                snapshot: Some(held.snapshot),
                total_order_seek: true,
                ..ReadOptions::default()
            };
            let failed = Self::failed("reading in a snapshot again");
            for (row, before) in held.rows.iter().zip(&held.found) {
                let (key, place) = self.place(held.family, *row);
                let found = self.calls.get(&o, held.family, &key).await.map_err(&failed)?;
                if found != *before {
                    let expected = [before.clone()];
                    return Err(mismatch(
                        "get in a snapshot, later",
                        place,
                        &key,
                        &expected,
                        found.as_deref(),
                    ));
                }
            }
            let (from, to) = (self.shared.ordered[held.range.0].0, self.shared.ordered[held.range.1].0);
            let mut walked = self.calls.walk(&o, held.family, &from, &to, true).await.map_err(&failed)?;
            walked.reverse();
            if let Some(text) = difference(&held.walked, &walked) {
                return Err(Wrong::Mismatch(format!(
                    "in a snapshot: column family {}, {text} by an iterator forward and later by one backward",
                    family_name(held.family)
                )));
            }
        }
        Ok(())
    }
}

/// Steps of a transaction after its changes.
#[derive(Clone, Copy)]
struct Ending {
    prepare: bool,
    roll_back: bool,
    save_point: bool,
}

/// Returns the name of a two-phase transaction, which holds its lane and operation.
pub(crate) fn name_of(lane: usize, operation: u64) -> String {
    format!("lane-{lane}-{operation}")
}

pub(crate) fn named(name: &[u8]) -> Option<(usize, u64)> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix("lane-")?;
    let (lane, operation) = text.split_once('-')?;
    Some((lane.parse().ok()?, operation.parse().ok()?))
}

/// Returns the first difference between two results as text.
fn difference(one: &[Found], other: &[Found]) -> Option<String> {
    if one == other {
        return None;
    }
    let at = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (a, b) = (one.get(at), other.get(at));
    let key = a.into_iter().chain(b).map(|(key, _)| key).min().expect("they differ");
    let value =
        |found: Option<&Found>| shown(found.filter(|(other, _)| other == key).map(|(_, value)| &value[..]));
    Some(format!("key {}: found {} and {}", key.escape_ascii(), value(a), value(b)))
}

/// Checks that the sum of all accounts is 0.
pub(crate) async fn sum_of_accounts(
    calls: &Calls,
    snapshot: &Snapshot,
    families: usize,
    backward: bool,
) -> Result<(), Wrong> {
    let (first, behind) = (vec![ACCOUNT], vec![ACCOUNT + 1]);
    let o = ReadOptions {
        snapshot: Some(snapshot.clone()),
        total_order_seek: true,
        iterate_lower_bound: Some(first.clone()),
        iterate_upper_bound: Some(behind.clone()),
        ..ReadOptions::default()
    };
    let (mut sum, mut all) = (0u64, Vec::new());
    for family in (0..families).filter(|family| counts(*family)) {
        let found = calls.walk(&o, family, &first, &behind, backward).await;
        let found = found.map_err(|e| Wrong::Failed(format!("a sum: {e}")))?;
        let part = found.iter().fold(0u64, |sum, (_, value)| sum.wrapping_add(number_of(value)));
        sum = sum.wrapping_add(part);
        all.push(format!("{} {part}", family_name(family)));
    }
    match sum {
        0 => Ok(()),
        _ => Err(Wrong::Mismatch(format!(
            "of the sum of all accounts, which every transfer leaves at 0: it is {sum} ({})",
            all.join(", ")
        ))),
    }
}
