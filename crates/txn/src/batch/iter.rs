//! Iterators over a batch merged with its database.
//!
//! An iterator merges an iterator over a column family of the database with the batch's index of
//! that family. It yields keys in order, in both directions, as if the batch had been written.
//!
//! Invariants:
//! - Going forward, both sides are at or behind the current key; going back, at or before it.
//!   `next` and `prev` first turn a side that moves in the other direction.
//! - Keys that the batch removes are skipped on both sides. A move that failed, or was dropped,
//!   leaves the iterator not valid.

use super::WriteBatchWithIndex;
use super::index::{Amount, FamilyIndex, From, Updates, amount, merged};
use karst_engine::caller::{Caller, finish};
use karst_engine::{ColumnFamily, Db, DbIterator, Error, ReadOptions, Result, Streamed, Value};
use std::cmp::Ordering;
use std::sync::Arc;

/// An iterator over a batch merged with its database, both as they were when it was made. Seek
/// before any other call.
pub struct BatchDbIterator {
    base: DbIterator,
    family: ColumnFamily,
    /// `None` if the batch has no operations in the family.
    delta: Option<Arc<FamilyIndex>>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    forward: bool,
    /// Current key of the batch's side, with its updates.
    at: Option<(Arc<[u8]>, Updates)>,
    current: Current,
    status: Result<()>,
}

enum Current {
    Nowhere,
    Base,
    /// The batch's key with its value; `both` is true if the database's side is at the same key.
    Delta {
        value: Value,
        both: bool,
    },
}

/// A move of the base.
#[derive(Clone, Copy)]
enum Move<'a> {
    First,
    Last,
    Seek(&'a [u8]),
    SeekForPrev(&'a [u8]),
    Next,
    Prev,
}

impl WriteBatchWithIndex {
    /// Returns an iterator over a column family as it would be if the batch had been written.
    /// Operations added to the batch later do not show.
    ///
    /// # Errors
    /// Those of [`Db::iter_cf`]; `prefix_same_as_start` and `iter_start_ts` are not supported here.
    pub fn iter_with_base_cf(
        &self,
        db: &Db,
        options: &ReadOptions,
        family: &ColumnFamily,
    ) -> Result<BatchDbIterator> {
        self.check(family)?;
        if options.prefix_same_as_start {
            return Err(Error::not_supported("prefix_same_as_start in an iterator over a batch"));
        }
        if options.iter_start_ts.is_some() {
            // The batch's entry for a key would have to stand beside each of the key's timestamps.
            return Err(Error::not_supported("iter_start_ts in an iterator over a batch"));
        }
        let bounds = (options.iterate_lower_bound.clone(), options.iterate_upper_bound.clone());
        self.iter_over(db.iter_cf(options, family)?, family, bounds)
    }

    /// Returns an iterator that merges the batch over `base`, an iterator over this column family.
    /// `base` may be anywhere; it must not be restricted to a prefix or follow new writes. `lower`
    /// and `upper` bound the keys of the batch; `base` keeps its own bounds.
    ///
    /// # Errors
    /// The column family is of another database than the batch.
    pub fn iter_over(
        &self,
        base: DbIterator,
        family: &ColumnFamily,
        (lower, upper): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> Result<BatchDbIterator> {
        self.check(family)?;
        self.check_readable()?;
        Ok(BatchDbIterator {
            base,
            family: family.clone(),
            delta: self.families.get(&family.id()).cloned(),
            lower,
            upper,
            forward: true,
            at: None,
            current: Current::Nowhere,
            status: Ok(()),
        })
    }

    /// Returns an iterator over the default column family as it would be if the batch had been
    /// written.
    ///
    /// # Errors
    /// Those of [`iter_with_base_cf`](Self::iter_with_base_cf).
    pub fn iter_with_base(&self, db: &Db, options: &ReadOptions) -> Result<BatchDbIterator> {
        self.iter_with_base_cf(db, options, self.default_of(db))
    }
}

impl BatchDbIterator {
    /// Returns true if the iterator is at an entry.
    pub fn valid(&self) -> bool {
        !matches!(self.current, Current::Nowhere)
    }

    /// Returns the current key.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn key(&self) -> &[u8] {
        match &self.current {
            Current::Nowhere => panic!("key() of an iterator that is not valid"),
            Current::Base => self.base.key(),
            Current::Delta { .. } => &self.at.as_ref().expect("it stands there").0,
        }
    }

    /// Returns the current value.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn value(&self) -> &[u8] {
        match &self.current {
            Current::Nowhere => panic!("value() of an iterator that is not valid"),
            Current::Base => self.base.value(),
            Current::Delta { value, .. } => value,
        }
    }

    /// Returns the current value, which stays readable after the next move because it holds its
    /// buffer.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn pinned_value(&self) -> Value {
        match &self.current {
            Current::Nowhere => panic!("pinned_value() of an iterator that is not valid"),
            Current::Base => self.base.pinned_value(),
            Current::Delta { value, .. } => value.clone(),
        }
    }

    /// Returns the timestamp of the current entry: empty in a column family without timestamps, and
    /// for an entry of the batch, which has no timestamp yet.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn timestamp(&self) -> &[u8] {
        match &self.current {
            Current::Nowhere => panic!("timestamp() of an iterator that is not valid"),
            Current::Base => self.base.timestamp(),
            Current::Delta { .. } => &[],
        }
    }

    /// Returns true if the iterator was ever moved; false if it is not valid because it is new.
    pub(super) fn was_sent(&self) -> bool {
        // Every move moves the database's side first.
        Streamed::was_sent(&self.base)
    }

    /// Returns the error of the last move, if it failed.
    ///
    /// # Errors
    /// That error.
    pub fn status(&self) -> Result<()> {
        self.status.clone()
    }

    async fn base(&mut self, by: Caller, to: Move<'_>) -> Result<()> {
        let base = &mut self.base;
        match (by, to) {
            (Caller::Thread, Move::First) => base.seek_to_first(),
            (Caller::Thread, Move::Last) => base.seek_to_last(),
            (Caller::Thread, Move::Seek(key)) => base.seek(key),
            (Caller::Thread, Move::SeekForPrev(key)) => base.seek_for_prev(key),
            (Caller::Thread, Move::Next) => base.next(),
            (Caller::Thread, Move::Prev) => base.prev(),
            (Caller::Task, Move::First) => base.seek_to_first_async().await,
            (Caller::Task, Move::Last) => base.seek_to_last_async().await,
            (Caller::Task, Move::Seek(key)) => base.seek_async(key).await,
            (Caller::Task, Move::SeekForPrev(key)) => base.seek_for_prev_async(key).await,
            (Caller::Task, Move::Next) => base.next_async().await,
            (Caller::Task, Move::Prev) => base.prev_async().await,
        }
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        self.family.comparator().compare_bare(a, b)
    }

    /// Moves the batch's side to its first key from `from` on, within the bounds.
    fn delta(&mut self, from: From<'_>) {
        self.at = None;
        let Some(delta) = self.delta.clone() else { return };
        // A start outside the bound at which the walk begins is replaced by that bound.
        let from = match (from, self.forward) {
            (From::End, true) => self.lower.as_deref().map_or(From::End, From::At),
            (From::End, false) => self.upper.as_deref().map_or(From::End, From::Beyond),
            (From::At(key) | From::Beyond(key), true) => match self.lower.as_deref() {
                Some(lower) if delta.order().compare_bare(key, lower).is_lt() => From::At(lower),
                _ => from,
            },
            (From::At(key) | From::Beyond(key), false) => match self.upper.as_deref() {
                Some(upper) if delta.order().compare_bare(key, upper).is_ge() => From::Beyond(upper),
                _ => from,
            },
        };
        let found = delta.walk(from, self.forward);
        let within = |key: &[u8]| match self.forward {
            true => self.upper.as_deref().is_none_or(|upper| delta.order().compare_bare(key, upper).is_lt()),
            false => self.lower.as_deref().is_none_or(|lower| delta.order().compare_bare(key, lower).is_ge()),
        };
        let found = found.filter(|(key, _)| within(&key.bytes));
        self.at = found.map(|(key, updates)| (key.bytes.clone(), updates.clone()));
    }

    /// Moves the batch's side one key on.
    fn advance_delta(&mut self) {
        if let Some((key, _)) = self.at.take() {
            self.delta(From::Beyond(&key));
        }
    }

    fn onward(&self) -> Move<'static> {
        if self.forward { Move::Next } else { Move::Prev }
    }

    /// Moves both sides on to the first key that is not removed.
    async fn settle(&mut self, by: Caller) -> Result<()> {
        loop {
            let Some((key, updates)) = &self.at else {
                self.current = if self.base.valid() { Current::Base } else { Current::Nowhere };
                return Ok(());
            };
            let ahead = match self.base.valid() {
                true => match self.forward {
                    true => self.compare(self.base.key(), key),
                    false => self.compare(key, self.base.key()),
                },
                false => Ordering::Greater,
            };
            if ahead.is_lt() {
                self.current = Current::Base;
                return Ok(());
            }
            let both = ahead.is_eq();
            let value = match amount(Some(&self.family), key, updates)? {
                Amount::Value(value) => Some(Value::from(value)),
                Amount::Deleted => None,
                Amount::Operands(operands) => {
                    let existing = both.then(|| self.base.pinned_value());
                    Some(merged(&self.family, key, existing, &operands)?)
                }
            };
            if let Some(value) = value {
                self.current = Current::Delta { value, both };
                return Ok(());
            }
            self.advance_delta();
            if both {
                self.base(by, self.onward()).await?;
            }
        }
    }

    async fn seek_by(&mut self, by: Caller, to: Move<'_>) -> Result<()> {
        self.current = Current::Nowhere;
        self.status = Ok(());
        let outcome = self.try_seek(by, to).await;
        self.told(outcome)
    }

    async fn try_seek(&mut self, by: Caller, to: Move<'_>) -> Result<()> {
        self.forward = matches!(to, Move::First | Move::Seek(_));
        self.base(by, to).await?;
        self.delta(match to {
            Move::Seek(key) | Move::SeekForPrev(key) => From::At(key),
            _ => From::End,
        });
        self.settle(by).await
    }

    async fn step_by(&mut self, by: Caller, forward: bool) -> Result<()> {
        if let Err(closed) = self.base.check_open() {
            return self.told(Err(closed));
        }
        assert!(self.valid(), "a move of an iterator that is not valid");
        let outcome = self.try_step(by, forward).await;
        self.told(outcome)
    }

    async fn try_step(&mut self, by: Caller, forward: bool) -> Result<()> {
        if forward != self.forward {
            let key = self.key().to_vec();
            self.current = Current::Nowhere;
            self.forward = forward;
            self.base(by, if forward { Move::Seek(&key) } else { Move::SeekForPrev(&key) }).await?;
            if self.base.valid() && self.compare(self.base.key(), &key).is_eq() {
                self.base(by, self.onward()).await?;
            }
            self.delta(From::Beyond(&key));
        } else {
            match std::mem::replace(&mut self.current, Current::Nowhere) {
                Current::Nowhere => unreachable!("it is valid"),
                Current::Base => self.base(by, self.onward()).await?,
                Current::Delta { both, .. } => {
                    self.advance_delta();
                    if both {
                        self.base(by, self.onward()).await?;
                    }
                }
            }
        }
        self.settle(by).await
    }

    fn told(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            self.current = Current::Nowhere;
            self.status = Err(error.clone());
        }
        outcome
    }
}

/// Defines the blocking and the asynchronous form of every move.
macro_rules! moves {
    ($($(#[$doc:meta])* $plain:ident $asynchronous:ident ($($key:ident)?) = |$it:ident, $by:ident| $move:expr;)*) => {
        impl BatchDbIterator {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// A read failed, the merge operator failed, or the database is closed. The
                /// iterator is not valid then.
                pub fn $plain(&mut self $(, $key: impl AsRef<[u8]>)?) -> Result<()> {
                    $(let $key = $key.as_ref();)?
                    let ($it, $by) = (self, Caller::Thread);
                    finish($move)
                }

                #[doc = concat!("The asynchronous form of [`", stringify!($plain), "`](Self::", stringify!($plain), ").")]
                ///
                /// # Errors
                /// Those of the blocking form.
                pub async fn $asynchronous(&mut self $(, $key: &[u8])?) -> Result<()> {
                    let ($it, $by) = (self, Caller::Task);
                    $move.await
                }
            )*
        }
    };
}

moves! {
    /// Moves to the first key.
    seek_to_first seek_to_first_async () = |it, by| it.seek_by(by, Move::First);
    /// Moves to the last key.
    seek_to_last seek_to_last_async () = |it, by| it.seek_by(by, Move::Last);
    /// Moves to the first key at or after `key`.
    seek seek_async (key) = |it, by| it.seek_by(by, Move::Seek(key));
    /// Moves to the last key at or before `key`.
    seek_for_prev seek_for_prev_async (key) = |it, by| it.seek_by(by, Move::SeekForPrev(key));
    /// Moves to the next key.
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[allow(clippy::should_implement_trait, reason = "the field's name for it")]
    next next_async () = |it, by| it.step_by(by, true);
    /// Moves to the previous key.
    ///
    /// # Panics
    /// When the iterator is not valid.
    prev prev_async () = |it, by| it.step_by(by, false);
}

impl std::fmt::Debug for BatchDbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchDbIterator").field("valid", &self.valid()).finish_non_exhaustive()
    }
}
