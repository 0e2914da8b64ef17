//! Workload randomtransaction: each transaction adds one number to a random key of each of
//! `--transaction_sets` sets, so the sums of all sets stay equal, for any mix of commits, failures
//! and rollbacks. [`verify`] checks the sums.
//!
//! Half of the keys are read for update, as in db_bench; nine in ten locking transactions are
//! prepared first; one in twenty of all is rolled back. Without transactions these reads and writes
//! are done with a batch, and the sums are not equal.
//!
//! Differences to db_bench: an optimistic transaction has a snapshot from its beginning, without
//! which another transaction could change a key between its read and its write, and that sum would
//! be lost; `--transaction_sleep` is slept, which db_bench forgets; nothing is added to a batch at
//! commit.

use super::flags::Flags;
use super::front::Front;
use super::key::{Keys, Random};
use super::report::{OpKind, Ops, Until};
use super::writes::Writing;
use crate::output::{Fault, say};
use karst_engine::{Db, Error, ErrorKind, ReadOptions, Result, Value, WriteBatch};
use karstdb::{OptimisticTransaction, OptimisticTransactionOptions, Transaction, TransactionOptions};
use std::time::Duration;

/// End of a transaction without an unexpected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Committed, or rolled back as planned.
    Done,
    /// Aborted by a conflict with another transaction.
    Aborted,
}

/// The keys that one transaction changes, and the increment.
struct Plan {
    /// For each set, in the order of the changes: its number, the key, and true if the key is read
    /// for update.
    changes: Vec<(u64, Vec<u8>, bool)>,
    increment: u64,
    prepare: bool,
    roll_back: bool,
}

/// Random decisions of one thread.
struct Draws {
    random: Random,
    sets: u64,
    num: u64,
    sleep_us: u64,
}

impl Draws {
    fn one_in(&mut self, n: u64) -> bool {
        self.random.next().is_multiple_of(n)
    }

    fn plan(&mut self) -> Plan {
        let mut sets: Vec<u64> = (0..self.sets).collect();
        for i in (1..sets.len()).rev() {
            sets.swap(i, (self.random.next() % (i as u64 + 1)) as usize);
        }
        let increment = self.random.next() % 100 + 1;
        let draw =
            |set: u64| (set, key(set, self.random.next() % self.num), self.random.next().is_multiple_of(2));
        let changes = sets.into_iter().map(draw).collect();
        Plan { changes, increment, prepare: !self.one_in(10), roll_back: self.one_in(20) }
    }

    /// Sleeps up to `--transaction_sleep`, between a read and the following write.
    fn sleep(&mut self) {
        if self.sleep_us > 0 {
            std::thread::sleep(Duration::from_micros(self.random.next() % (self.sleep_us + 1)));
        }
    }
}

/// Returns the key of a number in a set: four digits of the set, then the number.
fn key(set: u64, number: u64) -> Vec<u8> {
    format!("{:04}{number}", set + 1).into_bytes()
}

/// Returns the number stored in a value; 0 for an absent key.
fn number(key: &[u8], value: Option<&[u8]>) -> Result<u64> {
    let Some(value) = value else { return Ok(0) };
    let text = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    text.filter(|number| *number > 0).ok_or_else(|| {
        let (key, value) = (key.escape_ascii(), value.escape_ascii());
        Error::invalid_argument(format!("key {key} is to hold a number above 0, and holds {value}"))
    })
}

/// Runs the workload on one thread.
pub(crate) fn random_transaction(w: &Writing<'_>, keys: &mut Keys, ops: &mut Ops) -> Result<()> {
    let flags = w.target.flags;
    let mut draws = Draws {
        random: Random::new(keys.raw()),
        sets: flags.transaction_sets,
        num: flags.num as u64,
        sleep_us: flags.transaction_sleep,
    };
    let mut until = Until::new(flags, w.target.readwrites());
    let thread = keys.raw();
    while !until.done(1) {
        let plan = draws.plan();
        ops.bytes += plan.changes.iter().map(|(_, key, _)| key.len() as u64 + 1).sum::<u64>();
        let outcome = match w.target.front {
            Front::Plain(_) => batch(w, &plan, &mut draws)?,
            Front::Locking(db) => {
                let options = TransactionOptions {
                    lock_timeout: flags.transaction_lock_timeout as i64,
                    set_snapshot: flags.transaction_set_snapshot,
                    ..TransactionOptions::default()
                };
                let mut transaction = db.begin(&w.options, &options);
                transaction.set_name(format!("txn{thread:x}-{}", ops.done))?;
                locking(w, &plan, &mut draws, &mut transaction)?
            }
            Front::Optimistic(db) => {
                let options = OptimisticTransactionOptions { set_snapshot: true };
                let mut transaction = db.begin(&w.options, &options);
                optimistic(w, &plan, &mut draws, &mut transaction)?
            }
        };
        ops.aborts += u64::from(outcome == Outcome::Aborted);
        ops.finished(OpKind::Other, 1);
    }
    Ok(())
}

/// Makes the changes without a transaction.
fn batch(w: &Writing<'_>, plan: &Plan, draws: &mut Draws) -> Result<Outcome> {
    let mut batch = WriteBatch::new();
    for (_, key, _) in &plan.changes {
        let value = w.target.db.get_opt(w.target.options, key)?;
        let sum = number(key, value.as_deref())? + plan.increment;
        draws.sleep();
        batch.put(key, sum.to_string())?;
    }
    w.target.front.write(&w.options, &batch)?;
    Ok(Outcome::Done)
}

/// Returns true if the error means a conflict with another transaction.
fn met_another(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::Deadlock | ErrorKind::Expired)
}

/// Returns `Ok(None)` for a conflict with another transaction.
fn unless_met<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if met_another(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn locking(
    w: &Writing<'_>,
    plan: &Plan,
    draws: &mut Draws,
    transaction: &mut Transaction,
) -> Result<Outcome> {
    let mut options = w.target.options.clone();
    if transaction.snapshot().is_none() || draws.one_in(2) {
        transaction.set_snapshot()?;
        options.snapshot = transaction.snapshot().cloned();
    }
    for (set, key, for_update) in &plan.changes {
        let read = |transaction: &mut Transaction| -> Result<Option<Value>> {
            match for_update {
                true => transaction.get_for_update(&options, key),
                false => transaction.get(&options, key),
            }
        };
        let Some(value) = unless_met(read(transaction))? else { return abort(transaction) };
        let sum = number(key, value.as_deref())? + plan.increment;
        draws.sleep();
        let deleted =
            if set.is_multiple_of(4) { transaction.delete(key) } else { transaction.single_delete(key) };
        // A key that was read for update is locked, so neither locking nor validation can fail any
        // more.
        let deleted = if *for_update { deleted.map(Some) } else { unless_met(deleted) };
        if deleted?.is_none() {
            return abort(transaction);
        }
        transaction.put(key, sum.to_string())?;
    }
    if plan.prepare {
        transaction.prepare()?;
    }
    match plan.roll_back {
        true => transaction.rollback()?,
        false => transaction.commit()?,
    }
    Ok(Outcome::Done)
}

fn abort(transaction: &mut Transaction) -> Result<Outcome> {
    transaction.rollback()?;
    Ok(Outcome::Aborted)
}

fn optimistic(
    w: &Writing<'_>,
    plan: &Plan,
    draws: &mut Draws,
    transaction: &mut OptimisticTransaction,
) -> Result<Outcome> {
    let options = w.target.options;
    for (set, key, for_update) in &plan.changes {
        let value = match for_update {
            true => transaction.get_for_update(options, key)?,
            false => transaction.get(options, key)?,
        };
        let sum = number(key, value.as_deref())? + plan.increment;
        draws.sleep();
        match set.is_multiple_of(4) {
            true => transaction.delete(key)?,
            false => transaction.single_delete(key)?,
        }
        transaction.put(key, sum.to_string())?;
    }
    if plan.roll_back {
        transaction.rollback()?;
        return Ok(Outcome::Done);
    }
    Ok(if unless_met(transaction.commit())?.is_some() { Outcome::Done } else { Outcome::Aborted })
}

/// Returns the text of the result line after the counts.
pub(crate) fn message(front: &Front, threads: &[Ops]) -> String {
    let (done, aborts) = threads.iter().fold((0, 0), |(d, a), t| (d + t.done, a + t.aborts));
    match front {
        Front::Plain(_) => format!("( batches:{done} )"),
        _ => format!("( transactions:{done} aborts:{aborts})"),
    }
}

/// Checks that the sums of all sets are equal, and prints the result. Without transactions there is
/// nothing to verify.
///
/// # Errors
/// The sums differ, or a value is not a number.
pub(crate) fn verify(front: &Front, flags: &Flags) -> std::result::Result<(), Fault> {
    if matches!(front, Front::Plain(_)) {
        return Ok(());
    }
    let sums: Result<Vec<u64>> = (0..flags.transaction_sets).map(|set| sum_of(front.db(), set)).collect();
    let outcome = match sums {
        Ok(sums) => match sums.iter().enumerate().find(|(_, sum)| **sum != sums[0]) {
            None => Ok(()),
            Some((set, sum)) => {
                Err(format!("the sum of set 1 is {}, that of set {} is {sum}", sums[0], set + 1))
            }
        },
        Err(error) => Err(error.to_string()),
    };
    if !flags.json {
        say!("RandomTransactionVerify {}", if outcome.is_ok() { "Success." } else { "FAILED!!" })?;
    }
    Ok(outcome?)
}

fn sum_of(db: &Db, set: u64) -> Result<u64> {
    let prefix = format!("{:04}", set + 1);
    let mut iter = db.iter(&ReadOptions { total_order_seek: true, ..ReadOptions::default() })?;
    iter.seek(&prefix)?;
    let mut sum = 0;
    while iter.valid() && iter.key().starts_with(prefix.as_bytes()) {
        sum += number(iter.key(), Some(iter.value()))?;
        iter.next()?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_engine::{Options, WriteOptions};

    fn flags(sets: u64) -> Flags {
        Flags { transaction_sets: sets, ..Flags::default() }
    }

    #[test]
    fn sums_that_differ_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().db(|db| db.create_if_missing = true);
        let front =
            Front::open(super::super::front::DbKind::Optimistic, directory.path(), &options, false).unwrap();
        let put = |key: &[u8], value: &str| front.db().put(key, value).unwrap();
        put(&key(0, 3), "5");
        put(&key(0, 17), "2");
        put(&key(1, 4), "7");
        put(b"0003", "no set of these");
        verify(&front, &flags(2)).unwrap();
        put(&key(1, 4), "8");
        let wrong = |text: &str| match verify(&front, &flags(2)) {
            Err(Fault::Failed(message)) => message.contains(text),
            _ => false,
        };
        assert!(wrong("set 1 is 7, that of set 2 is 8"));
        let mut batch = WriteBatch::new();
        batch.put(key(1, 4), "seven").unwrap();
        front.write(&WriteOptions::default(), &batch).unwrap();
        assert!(wrong("holds seven"));
    }

    #[test]
    fn a_plan_has_a_key_of_every_set() {
        let mut draws = Draws { random: Random::new(5), sets: 7, num: 10, sleep_us: 0 };
        let (mut prepared, mut rolled_back) = (0, 0);
        for _ in 0..1000 {
            let plan = draws.plan();
            let mut sets: Vec<u64> = plan.changes.iter().map(|(set, ..)| *set).collect();
            for (set, key, _) in &plan.changes {
                assert!(key.starts_with(format!("{:04}", set + 1).as_bytes()) && key.len() == 5);
            }
            sets.sort_unstable();
            assert_eq!(sets, (0..7).collect::<Vec<_>>());
            assert!((1..=100).contains(&plan.increment));
            prepared += u64::from(plan.prepare);
            rolled_back += u64::from(plan.roll_back);
        }
        assert!(
            (860..940).contains(&prepared) && (25..80).contains(&rolled_back),
            "{prepared} {rolled_back}"
        );
    }
}
