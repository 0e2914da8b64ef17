//! Sorted sets: the score of each member, and an index of the members by score.
//!
//! In: members and scores. Out: scores, ranges by score, by member and by rank, and changes of both
//! entries of a member and of the count in the key's record.
//!
//! Invariants:
//! - A member has one entry by its name, with its score, and one in the index with that score. This
//!   file is the only writer of both.
//! - A score is not NaN, and zero is not negative.
//!
//! Ranks are not stored. A rank is counted from the end that is nearer to it, so it costs as many
//! steps of a walk as there are members between.

use super::super::layout::{
    Collection, ELEMENTS, Head, collection_value, corrupt, name_key, names_prefix, order_of, score_key,
    score_value, scores_prefix, split_score, split_scored,
};
use super::collections::collection_of;
use super::walk::{Side, Walk};
use super::{Access, Key, Kind, expect};
use crate::wrong::Wrong;
use karstdb::io::yield_now;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

const SORTED: Kind = Kind::SortedSet;
/// Number of members up to which a set that loses all has its entries deleted one by one; those of
/// a larger one are left to compactions.
const SMALL: u64 = 128;
/// Members that are written before other tasks run.
const AT_ONCE: usize = 256;

/// Maximum number of members that one removal of a range takes, unless it takes all: each is held
/// in memory, and two deletions of it.
const REMOVED_AT_MOST: u64 = 4 << 20;

/// A member with its score.
pub(crate) type Scored = (Vec<u8>, f64);

/// Members of a sorted set between two limits.
#[derive(Clone, Debug)]
pub(crate) enum SortedRange {
    /// Those whose scores, which are not NaN, are between these; in the order of the scores.
    Scores(Bound<f64>, Bound<f64>),
    /// Members whose bytes are between these, in the order of the bytes and not of the scores.
    Names(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

/// Places in [`order_of`]'s order of the first scores of a range, and behind its last ones.
fn places(low: &Bound<f64>, high: &Bound<f64>) -> Range<u64> {
    let low = match low {
        Bound::Included(score) => order_of(*score),
        Bound::Excluded(score) => order_of(*score) + 1,
        Bound::Unbounded => 0,
    };
    let high = match high {
        Bound::Included(score) => order_of(*score) + 1,
        Bound::Excluded(score) => order_of(*score),
        Bound::Unbounded => u64::MAX,
    };
    low..high
}

impl SortedRange {
    /// The first key of the entries of a set in the range, and the one behind them. Entries of
    /// removed members before those of the set are left out, because a walk would step over them.
    fn limits(&self, set: &Collection) -> (Vec<u8>, Vec<u8>) {
        let version = set.version;
        let (lower, upper) = match self {
            Self::Scores(low, high) => {
                let Range { start, end } = places(low, high);
                (score_key(version, start.max(set.first), &[]), score_key(version, end, &[]))
            }
            Self::Names(low, high) => {
                let key = |name: &[u8]| name_key(SORTED, version, name);
                // No bytes are between these and the same with a zero behind them.
                let behind = |name: &[u8]| {
                    let mut key = key(name);
                    key.push(0);
                    key
                };
                let low = match low {
                    Bound::Included(name) => key(name),
                    Bound::Excluded(name) => behind(name),
                    Bound::Unbounded => names_prefix(SORTED, version),
                };
                let high = match high {
                    Bound::Included(name) => behind(name),
                    Bound::Excluded(name) => key(name),
                    Bound::Unbounded => scores_prefix(version),
                };
                (low, high)
            }
        };
        (lower.to_vec(), upper.to_vec())
    }

    /// The limits of all entries of the kind that the range has.
    fn whole(&self, set: &Collection) -> (Vec<u8>, Vec<u8>) {
        match self {
            Self::Scores(..) => Self::Scores(Bound::Unbounded, Bound::Unbounded).limits(set),
            Self::Names(..) => Self::Names(Bound::Unbounded, Bound::Unbounded).limits(set),
        }
    }

    /// True if every member of a set is within.
    fn is_all_of(&self, set: &Collection) -> bool {
        match self {
            Self::Scores(low, high) => {
                let places = places(low, high);
                places.start <= set.first && places.end > order_of(f64::INFINITY)
            }
            Self::Names(low, high) => (low, high) == (&Bound::Unbounded, &Bound::Unbounded),
        }
    }
}

const ALL: SortedRange = SortedRange::Scores(Bound::Unbounded, Bound::Unbounded);

/// Condition and manner of a change of scores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScoreRule {
    /// The member must be there, or must not.
    pub(crate) is_there: Option<bool>,
    /// Order in which the new score of a present member must be to its old one.
    pub(crate) order: Option<Ordering>,
    /// The number is added to the score of a present member.
    pub(crate) adds: bool,
}

impl ScoreRule {
    /// Returns the new score; `None` if the member stays as it is.
    fn apply(self, old: Option<f64>, given: f64) -> Result<Option<f64>, Wrong> {
        if self.is_there.is_some_and(|is_there| is_there != old.is_some()) {
            return Ok(None);
        }
        let score = match old {
            Some(old) if self.adds => old + given,
            _ => given,
        };
        if score.is_nan() {
            return Err(Wrong::err("resulting score is not a number (NaN)"));
        }
        let is_refused = |(old, order): (f64, Ordering)| score.partial_cmp(&old) != Some(order);
        // The sum with zero makes a negative zero positive.
        Ok((!old.zip(self.order).is_some_and(is_refused)).then_some(score + 0.0))
    }
}

/// Result of [`Access::put_scores`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ScoresPut {
    /// Number of members that were added.
    pub(crate) added: u64,
    /// Number of changes of scores of members that were there.
    pub(crate) changed: u64,
    /// New score of the last member; `None` if the rule left it as it was.
    pub(crate) last: Option<f64>,
}

/// Score of a member before a change and after it.
#[derive(Default)]
struct Change {
    before: Option<f64>,
    after: Option<f64>,
}

impl Access {
    /// Returns the scores of members, in the order of `names`.
    ///
    /// # Errors
    /// `WRONGTYPE`, as for all calls here.
    pub(crate) async fn scores(&self, key: &Key, names: &[Vec<u8>]) -> Result<Vec<Option<f64>>, Wrong> {
        let values = self.elements(key, SORTED, names).await?;
        values.into_iter().map(|value| value.map(|value| score_of(&value)).transpose()).collect()
    }

    /// Returns up to `take` members of a range from an end of it on, without the first `skip`.
    pub(crate) async fn sorted_range(
        &self,
        key: &Key,
        range: &SortedRange,
        end: Side,
        skip: u64,
        take: u64,
    ) -> Result<Vec<Scored>, Wrong> {
        match self.collection(key, SORTED).await? {
            Some(set) => self.read_sorted(range.limits(&set), end, skip, take).await,
            None => Ok(Vec::new()),
        }
    }

    /// Calls `each` with the members whose scores are in a range, in their order, until it returns
    /// false. Returns false then.
    pub(crate) async fn visit_scores(
        &self,
        key: &Key,
        scores: Range<f64>,
        mut each: impl FnMut(&[u8], f64) -> bool,
    ) -> Result<bool, Wrong> {
        let Some(set) = self.collection(key, SORTED).await? else { return Ok(true) };
        let range = SortedRange::Scores(Bound::Included(scores.start), Bound::Excluded(scores.end));
        let walk = self.walk_sorted(range.limits(&set), Side::Left).await?;
        let Some(mut walk) = walk else { return Ok(true) };
        while let Some((key, value)) = walk.entry() {
            let (member, score) = split_scored(key, value)?;
            if !each(member, score) {
                return Ok(false);
            }
            walk.next().await?;
        }
        Ok(true)
    }

    /// Returns the members with these ranks, in the order of their scores.
    pub(crate) async fn sorted_ranks(&self, key: &Key, ranks: Range<u64>) -> Result<Vec<Scored>, Wrong> {
        match self.collection(key, SORTED).await? {
            Some(set) => self.read_ranks(&set, ranks).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the number of members of a range. Takes as many steps as there are members in the
    /// range or outside of it, whichever are fewer.
    pub(crate) async fn count_sorted(&self, key: &Key, range: &SortedRange) -> Result<u64, Wrong> {
        let Some(set) = self.collection(key, SORTED).await? else { return Ok(0) };
        self.count_between(&set, range.limits(&set), range.whole(&set)).await
    }

    /// Returns the rank of a member from an end on, and its score.
    pub(crate) async fn sorted_rank(
        &self,
        key: &Key,
        member: &[u8],
        end: Side,
    ) -> Result<Option<(u64, f64)>, Wrong> {
        let Some(set) = self.collection(key, SORTED).await? else { return Ok(None) };
        let Some(score) = self.lookup(SORTED, set.version, &[member]).await?.pop().flatten() else {
            return Ok(None);
        };
        let score = score_of(&score)?;
        let (first, behind) = ALL.limits(&set);
        let place = score_key(set.version, order_of(score), member).to_vec();
        let lower = self.count_between(&set, (first.clone(), place), (first, behind)).await?;
        match end {
            Side::Left => Ok(Some((lower, score))),
            Side::Right => Ok(Some((set.count.saturating_sub(lower + 1), score))),
        }
    }

    async fn read_sorted(
        &self,
        limits: (Vec<u8>, Vec<u8>),
        end: Side,
        skip: u64,
        take: u64,
    ) -> Result<Vec<Scored>, Wrong> {
        let (mut found, mut skipped) = (Vec::new(), 0);
        if take == 0 {
            return Ok(found);
        }
        let Some(mut walk) = self.walk_sorted(limits, end).await? else { return Ok(found) };
        while let Some((key, value)) = walk.entry() {
            if skipped < skip {
                skipped += 1;
            } else {
                let (member, score) = split_scored(key, value)?;
                found.push((member.to_vec(), score));
                if found.len() as u64 == take {
                    break;
                }
            }
            walk.leave(end).await?;
        }
        Ok(found)
    }

    /// Makes a walk that stands at an end; `None` if the limits have nothing between them.
    async fn walk_sorted(
        &self,
        (lower, upper): (Vec<u8>, Vec<u8>),
        end: Side,
    ) -> Result<Option<Walk>, Wrong> {
        if lower >= upper {
            return Ok(None);
        }
        let mut walk = self.walk_within(&self.store.0.elements, lower, Some(upper))?;
        walk.begin(end).await?;
        Ok(Some(walk))
    }

    async fn read_ranks(&self, set: &Collection, ranks: Range<u64>) -> Result<Vec<Scored>, Wrong> {
        let ranks = ranks.start..ranks.end.min(set.count);
        if ranks.is_empty() {
            return Ok(Vec::new());
        }
        let (behind, take) = (set.count - ranks.end, ranks.end - ranks.start);
        let (end, skip) =
            if ranks.start <= behind { (Side::Left, ranks.start) } else { (Side::Right, behind) };
        let mut found = self.read_sorted(ALL.limits(set), end, skip, take).await?;
        if found.len() as u64 != take {
            return Err(corrupt(ELEMENTS, &scores_prefix(set.version)).into());
        }
        if end == Side::Right {
            found.reverse();
        }
        Ok(found)
    }

    /// Returns the number of entries between two keys, which are within those of the whole set. The
    /// entries within and those without are counted in turns, until either count is complete.
    async fn count_between(
        &self,
        set: &Collection,
        (lower, upper): (Vec<u8>, Vec<u8>),
        (first, behind): (Vec<u8>, Vec<u8>),
    ) -> Result<u64, Wrong> {
        let mut without = vec![(upper.clone(), behind), (first, lower.clone())];
        let Some(mut within) = self.walk_sorted((lower, upper), Side::Left).await? else { return Ok(0) };
        let (mut inside, mut outside) = (0, 0u64);
        while let Some(limits) = without.pop() {
            let Some(mut walk) = self.walk_sorted(limits, Side::Left).await? else { continue };
            while walk.entry().is_some() {
                if within.entry().is_none() {
                    return Ok(inside);
                }
                (inside, outside) = (inside + 1, outside + 1);
                within.next().await?;
                walk.next().await?;
            }
        }
        Ok(set.count.saturating_sub(outside))
    }

    /// Adds absent members with their scores and changes the scores of present ones, one after the
    /// other by a rule.
    ///
    /// # Errors
    /// A score would be NaN; nothing is changed then.
    pub(crate) async fn put_scores(
        &mut self,
        key: &Key,
        pairs: &[Scored],
        rule: ScoreRule,
    ) -> Result<ScoresPut, Wrong> {
        let before = self.sorted_to_write(key).await?;
        let mut changes: BTreeMap<&[u8], Change> = BTreeMap::new();
        if let Some((_, set)) = &before {
            let names: Vec<&[u8]> = pairs.iter().map(|(member, _)| &member[..]).collect();
            let found = self.lookup(SORTED, set.version, &names).await?;
            for (name, value) in names.into_iter().zip(found) {
                let score = value.map(|value| score_of(&value)).transpose()?;
                changes.insert(name, Change { before: score, after: score });
            }
        }
        let mut put = ScoresPut::default();
        for (member, given) in pairs {
            let change = changes.entry(member).or_default();
            put.last = rule.apply(change.after, *given)?;
            match (change.after, put.last) {
                (None, Some(_)) => put.added += 1,
                (Some(old), Some(new)) if old != new => put.changed += 1,
                _ => {}
            }
            change.after = put.last.or(change.after);
        }
        if put.added + put.changed > 0 {
            self.write_scores(key, before, &changes, put.added).await?;
        }
        Ok(put)
    }

    async fn write_scores(
        &mut self,
        key: &Key,
        before: Option<(Head, Collection)>,
        changes: &BTreeMap<&[u8], Change>,
        added: u64,
    ) -> Result<(), Wrong> {
        let set = match before {
            Some((_, set)) => set,
            None => self.new_collection(key.db).await?,
        };
        let store = self.store.clone();
        // The first places of members before and after the changes.
        let (mut left, mut lowest) = (u64::MAX, u64::MAX);
        for (number, (member, change)) in changes.iter().enumerate() {
            if number % AT_ONCE == AT_ONCE - 1 {
                yield_now().await;
            }
            let Some(score) = change.after.filter(|_| change.after != change.before) else { continue };
            let (batch, elements) = (&mut self.changes()?.batch, &store.0.elements);
            if let Some(old) = change.before {
                left = left.min(order_of(old));
                batch.delete_cf(elements, score_key(set.version, order_of(old), member))?;
            }
            lowest = lowest.min(order_of(score));
            batch.put_cf(elements, name_key(SORTED, set.version, member), score_value(score))?;
            batch.put_cf(elements, score_key(set.version, order_of(score), member), [])?;
        }
        let first = match before {
            None => lowest,
            Some(_) if left <= set.first => self.first_place(&set, set.first.min(lowest)).await?,
            Some(_) => set.first.min(lowest),
        };
        if added == 0 && first == set.first {
            return self.touch(key);
        }
        let set = Collection { count: set.count + added, first, ..set };
        self.put_sorted(key, before.map(|(head, _)| head), set)
    }

    /// Returns the place of the first member of a set, which is `from` or behind it. Writes of this
    /// access count.
    async fn first_place(&self, set: &Collection, from: u64) -> Result<u64, Wrong> {
        let walk = self.walk_sorted(ALL.limits(&Collection { first: from, ..*set }), Side::Left).await?;
        match walk.as_ref().and_then(Walk::entry) {
            Some((key, value)) => Ok(order_of(split_scored(key, value)?.1)),
            None => Ok(from),
        }
    }

    /// Removes members, and the key with the last. Returns the number of those that were there.
    pub(crate) async fn remove_scored(&mut self, key: &Key, names: &[Vec<u8>]) -> Result<u64, Wrong> {
        let Some((head, set)) = self.sorted_to_write(key).await? else { return Ok(0) };
        let found = self.lookup(SORTED, set.version, names).await?;
        let mut gone = BTreeMap::new();
        for (name, value) in names.iter().zip(found) {
            if let Some(value) = value {
                gone.insert(name.clone(), score_of(&value)?);
            }
        }
        let gone: Vec<Scored> = gone.into_iter().collect();
        self.drop_scored(key, &head, &set, &gone, set.first).await?;
        Ok(gone.len() as u64)
    }

    /// Removes all members of a range. Returns their number.
    pub(crate) async fn remove_range(&mut self, key: &Key, range: &SortedRange) -> Result<u64, Wrong> {
        let Some((head, set)) = self.sorted_to_write(key).await? else { return Ok(0) };
        if range.is_all_of(&set) && set.count > SMALL {
            self.remove(key, &head)?;
            return Ok(set.count);
        }
        let gone = self.read_sorted(range.limits(&set), Side::Left, 0, REMOVED_AT_MOST + 1).await?;
        refuse_many(&gone)?;
        let from = match (range, gone.last()) {
            // The members before the last one that goes are those that go, or have gone.
            (SortedRange::Scores(low, high), Some((_, last))) if places(low, high).start <= set.first => {
                order_of(*last)
            }
            _ => set.first,
        };
        self.drop_scored(key, &head, &set, &gone, from).await?;
        Ok(gone.len() as u64)
    }

    /// Removes the members with these ranks. Returns their number.
    pub(crate) async fn remove_ranks(&mut self, key: &Key, ranks: Range<u64>) -> Result<u64, Wrong> {
        let Some((head, set)) = self.sorted_to_write(key).await? else { return Ok(0) };
        if ranks.start == 0 && ranks.end >= set.count && set.count > SMALL {
            self.remove(key, &head)?;
            return Ok(set.count);
        }
        let ranks = ranks.start..ranks.end.min(ranks.start.saturating_add(REMOVED_AT_MOST + 1));
        let gone = self.read_ranks(&set, ranks.clone()).await?;
        refuse_many(&gone)?;
        let last = gone.last().filter(|_| ranks.start == 0);
        let from = last.map_or(set.first, |(_, last)| order_of(*last));
        self.drop_scored(key, &head, &set, &gone, from).await?;
        Ok(gone.len() as u64)
    }

    /// Removes up to `count` members from an end, and the key with the last. Returns them from that
    /// end on.
    pub(crate) async fn pop_scored(
        &mut self,
        key: &Key,
        end: Side,
        count: u64,
    ) -> Result<Vec<Scored>, Wrong> {
        let Some((head, set)) = self.sorted_to_write(key).await? else { return Ok(Vec::new()) };
        let gone = self.read_sorted(ALL.limits(&set), end, 0, count).await?;
        let last = gone.last().filter(|_| end == Side::Left);
        let from = last.map_or(set.first, |(_, last)| order_of(*last));
        self.drop_scored(key, &head, &set, &gone, from).await?;
        Ok(gone)
    }

    /// Removes members of a set, which are all there and different. The first member that stays has
    /// the place `from` or one behind it.
    async fn drop_scored(
        &mut self,
        key: &Key,
        head: &Head,
        set: &Collection,
        gone: &[Scored],
        from: u64,
    ) -> Result<(), Wrong> {
        let removed = gone.len() as u64;
        if removed == 0 {
            return Ok(());
        }
        if removed >= set.count && removed > SMALL {
            return self.remove(key, head);
        }
        let store = self.store.clone();
        for (number, (member, score)) in gone.iter().enumerate() {
            if number % AT_ONCE == AT_ONCE - 1 {
                yield_now().await;
            }
            let (batch, elements) = (&mut self.changes()?.batch, &store.0.elements);
            batch.delete_cf(elements, name_key(SORTED, set.version, member))?;
            batch.delete_cf(elements, score_key(set.version, order_of(*score), member))?;
        }
        if removed >= set.count {
            // No entry is left, so the version needs no record of its death.
            self.unlink(key, head)?;
            return self.touch(key);
        }
        let takes_first = gone.iter().any(|(_, score)| order_of(*score) <= set.first);
        let first = if takes_first { self.first_place(set, from).await? } else { set.first.max(from) };
        self.put_sorted(key, Some(*head), Collection { count: set.count - removed, first, ..*set })
    }

    async fn sorted_to_write(&mut self, key: &Key) -> Result<Option<(Head, Collection)>, Wrong> {
        let head = expect(self.live_to_write(key).await?, SORTED)?.map(|record| record.head);
        Ok(head.and_then(|head| Some((head, collection_of(&head)?))))
    }

    fn put_sorted(&mut self, key: &Key, before: Option<Head>, set: Collection) -> Result<(), Wrong> {
        let expiry = before.and_then(|head| head.expiry);
        self.put_head(key, before.as_ref(), expiry, &collection_value(SORTED, expiry, set))
    }
}

/// Refuses to remove more members than [`REMOVED_AT_MOST`].
fn refuse_many(gone: &[Scored]) -> Result<(), Wrong> {
    match gone.len() as u64 > REMOVED_AT_MOST {
        true => Err(Wrong::err("more than 4194304 members are in the range; remove them in parts")),
        false => Ok(()),
    }
}

/// Decodes the score that is the value of a sorted set's element.
pub(crate) fn score_of(value: &[u8]) -> Result<f64, Wrong> {
    split_score(value).ok_or_else(|| Wrong::storage("a score of no layout of this store"))
}
