//! Union, intersection and difference of several sorted sets. A set counts as a sorted set whose
//! scores are all 1.

use super::Call;
use super::collections::card_limit;
use super::pace::{KEYS_AT_ONCE, Pace};
use super::zset_ranges::replace;
use super::zsets::{reply_scored, score_argument};
use crate::numbers::integer_argument;
use crate::store::{Access, Key, Kind, Scored, score_of};
use crate::wrong::Wrong;
use karstdb::Value;
use std::collections::BTreeMap;

/// A sorted set of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    Union,
    Intersection,
    Difference,
}

/// Use of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Reply,
    Store,
    Count,
}

/// Score of a member that several sets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => not_nan(one + other),
            Self::Min => one.min(other),
            Self::Max => one.max(other),
        }
    }
}

/// The number, or 0 if it is none: of infinities of both signs, or of one times zero.
fn not_nan(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number }
}

/// One of the sets.
struct Operand {
    key: Key,
    /// `None`: there is no such key.
    kind: Option<Kind>,
    weight: f64,
}

impl Operand {
    /// Weighted score of a member, by its value in the set. It can be NaN.
    fn score(&self, value: &Value) -> Result<f64, Wrong> {
        let score = if self.kind == Some(Kind::SortedSet) { score_of(value)? } else { 1.0 };
        Ok(self.weight * score)
    }

    async fn length(&self, access: &Access) -> Result<u64, Wrong> {
        match self.kind {
            Some(kind) => access.length(&self.key, kind).await,
            None => Ok(0),
        }
    }

    /// Reads all members with their weighted scores.
    async fn read(&self, access: &Access) -> Result<Vec<Scored>, Wrong> {
        let Some(kind) = self.kind else { return Ok(Vec::new()) };
        let (mut found, mut pace) = (Vec::new(), Pace::default());
        for (member, value) in access.all_elements(&self.key, kind).await? {
            found.push((member, not_nan(self.score(&value)?)));
            pace.step().await;
        }
        Ok(found)
    }

    /// Looks members up, all at the same time.
    async fn find(&self, access: &Access, members: &[Vec<u8>]) -> Result<Vec<Option<Value>>, Wrong> {
        match self.kind {
            Some(kind) => access.elements(&self.key, kind, members).await,
            None => Ok(vec![None; members.len()]),
        }
    }
}

/// Arguments of one of the commands.
struct Question {
    operands: Vec<Operand>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Maximum of the number that is asked for; 0: none.
    limit: usize,
}

impl Question {
    async fn parse(call: &Call<'_>, combination: Combination, used: Use) -> Result<Self, Wrong> {
        let at = if used == Use::Store { 2 } else { 1 };
        let count = integer_argument(&call.args[at])?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        let too_few = || format!("at least 1 input key is needed for '{}' command", call.word(0));
        let count = count.ok_or_else(|| Wrong::err(too_few()))?;
        let first = at + 1;
        if count > call.args.len() - first {
            return Err(Wrong::syntax());
        }
        call.access.pin();
        let kinds = call.kinds(first..first + count).await?;
        if kinds.iter().flatten().any(|kind| !matches!(kind, Kind::Set | Kind::SortedSet)) {
            return Err(Wrong::wrong_type());
        }
        let operand = |(key, kind)| Operand { key, kind, weight: 1.0 };
        let operands = call.keys(first..first + count).into_iter().zip(kinds).map(operand).collect();
        let question = Self { operands, aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
        question.with_options(call, first + count, combination, used)
    }

    fn with_options(
        mut self,
        call: &Call<'_>,
        mut at: usize,
        combination: Combination,
        used: Use,
    ) -> Result<Self, Wrong> {
        let weighs = combination != Combination::Difference && used != Use::Count;
        while let Some(rest) = call.args.get(at + 1..) {
            at += match &*call.word(at) {
                "weights" if weighs && rest.len() >= self.operands.len() => {
                    for (operand, weight) in self.operands.iter_mut().zip(rest) {
                        let weight = score_argument(weight);
                        operand.weight = weight.map_err(|_| Wrong::err("weight value is not a float"))?;
                    }
                    self.operands.len() + 1
                }
                "aggregate" if weighs && !rest.is_empty() => {
                    self.aggregate = match &*call.word(at + 1) {
                        "sum" => Aggregate::Sum,
                        "min" => Aggregate::Min,
                        "max" => Aggregate::Max,
                        _ => return Err(Wrong::syntax()),
                    };
                    2
                }
                "withscores" if used == Use::Reply => {
                    self.with_scores = true;
                    1
                }
                "limit" if used == Use::Count && !rest.is_empty() => {
                    self.limit = card_limit(&rest[0])?;
                    2
                }
                _ => return Err(Wrong::syntax()),
            };
        }
        Ok(self)
    }

    /// Computes the members, in the order of their scores.
    async fn answer(mut self, access: &Access, combination: Combination) -> Result<Vec<Scored>, Wrong> {
        if combination != Combination::Difference {
            // The smallest comes first, because its members are looked up in the others. The order
            // also decides how sums are rounded.
            let mut lengths = Vec::with_capacity(self.operands.len());
            for operand in self.operands {
                lengths.push((operand.length(access).await?, operand));
            }
            lengths.sort_by_key(|(length, _)| *length);
            self.operands = lengths.into_iter().map(|(_, operand)| operand).collect();
        }
        let found = match combination {
            Combination::Union => self.union(access).await?,
            Combination::Intersection | Combination::Difference => self.filter(access, combination).await?,
        };
        let order = |(a, x): &Scored, (b, y): &Scored| x.total_cmp(y).then_with(|| a.cmp(b));
        Ok(Pace::default().sort(found, order).await)
    }

    async fn union(&self, access: &Access) -> Result<Vec<Scored>, Wrong> {
        let (mut all, mut pace) = (BTreeMap::new(), Pace::default());
        for operand in &self.operands {
            for (member, score) in operand.read(access).await? {
                let sum = all.entry(member).and_modify(|sum| *sum = self.aggregate.of(*sum, score));
                // The sum with zero makes a negative zero positive.
                *sum.or_insert(score) += 0.0;
                pace.step().await;
            }
            pace.step().await;
        }
        Ok(all.into_iter().collect())
    }

    /// Computes the members of the first set that are in all others, or in no other.
    async fn filter(&self, access: &Access, combination: Combination) -> Result<Vec<Scored>, Wrong> {
        let Some((first, others)) = self.operands.split_first() else { return Ok(Vec::new()) };
        let (mut left, mut pace) = (first.read(access).await?, Pace::default());
        for other in others {
            let mut kept = Vec::new();
            for chunk in left.chunks_mut(KEYS_AT_ONCE) {
                let names: Vec<Vec<u8>> = chunk.iter_mut().map(|(name, _)| std::mem::take(name)).collect();
                let values = other.find(access, &names).await?;
                pace.steps(names.len()).await;
                for ((name, (_, score)), value) in names.into_iter().zip(chunk).zip(values) {
                    match (combination, value) {
                        (Combination::Difference, None) => kept.push((name, *score)),
                        (Combination::Difference, Some(_)) | (_, None) => {}
                        (_, Some(value)) => {
                            // NaN makes the sum 0, and is neither less nor greater.
                            kept.push((name, self.aggregate.of(*score, other.score(&value)?)));
                        }
                    }
                }
            }
            left = kept;
            pace.step().await;
        }
        left.iter_mut().for_each(|(_, score)| *score += 0.0);
        Ok(left)
    }
}

async fn reply(call: &mut Call<'_>, combination: Combination) -> Result<(), Wrong> {
    let question = Question::parse(call, combination, Use::Reply).await?;
    let with_scores = question.with_scores;
    let found = question.answer(call.access, combination).await?;
    reply_scored(call.out, &found, with_scores).await;
    Ok(())
}

async fn store(call: &mut Call<'_>, combination: Combination) -> Result<(), Wrong> {
    let question = Question::parse(call, combination, Use::Store).await?;
    let found = question.answer(call.access, combination).await?;
    let event = match combination {
        Combination::Union => "zunionstore",
        Combination::Intersection => "zinterstore",
        Combination::Difference => "zdiffstore",
    };
    replace(call, 1, &found, event).await
}

pub(super) async fn union(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Combination::Union).await
}

pub(super) async fn inter(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Combination::Intersection).await
}

pub(super) async fn diff(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Combination::Difference).await
}

pub(super) async fn union_store(call: &mut Call<'_>) -> Result<(), Wrong> {
    store(call, Combination::Union).await
}

pub(super) async fn inter_store(call: &mut Call<'_>) -> Result<(), Wrong> {
    store(call, Combination::Intersection).await
}

pub(super) async fn diff_store(call: &mut Call<'_>) -> Result<(), Wrong> {
    store(call, Combination::Difference).await
}

pub(super) async fn inter_card(call: &mut Call<'_>) -> Result<(), Wrong> {
    let question = Question::parse(call, Combination::Intersection, Use::Count).await?;
    let limit = question.limit;
    let found = question.answer(call.access, Combination::Intersection).await?.len();
    call.out.count(if limit == 0 { found } else { found.min(limit) });
    Ok(())
}
