//! Sorted sets: members and their scores. Ranges are in `zset_ranges`, and what is computed of
//! several sets in `zset_algebra`.

use super::collections::{ManyPop, choose, many_pop, pop_count, scan};
use super::pace::Pace;
use super::{Call, lower};
use crate::numbers::float_argument;
use crate::resp::{Encoder, Protocol};
use crate::store::{Classes, Key, Kind, ScoreRule, Scored, Side, score_of};
use crate::wrong::Wrong;
use std::cmp::Ordering;

const SORTED: Kind = Kind::SortedSet;
/// Class of the events.
pub(super) const OF_SORTED: Classes = Classes::SORTED_SET;

/// Parses a score: a number that is not NaN and fits in 64 bits, or an infinity by its name.
pub(super) fn score_argument(text: &[u8]) -> Result<f64, Wrong> {
    let score = float_argument(text)?;
    match score.is_infinite() && text.iter().any(u8::is_ascii_digit) {
        true => Err(Wrong::not_a_float()),
        false => Ok(score),
    }
}

/// Adds an array of members. With their scores: of pairs in RESP3, of both in turns in RESP2.
pub(super) async fn reply_scored(out: &mut Encoder, found: &[Scored], with_scores: bool) {
    let (has_pairs, mut pace) = (with_scores && out.protocol() == Protocol::Three, Pace::default());
    out.array(if with_scores && !has_pairs { 2 * found.len() } else { found.len() });
    for (member, score) in found {
        if has_pairs {
            out.array(2);
        }
        out.bulk(member);
        if with_scores {
            out.double(*score);
        }
        pace.step().await;
    }
}

/// Options of ZADD and GEOADD.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AddOptions {
    pub(super) nx: bool,
    pub(super) xx: bool,
    gt: bool,
    lt: bool,
    pub(super) ch: bool,
    incr: bool,
}

impl AddOptions {
    /// Parses the options from the second argument on. Returns them with the number of the argument
    /// behind them.
    pub(super) fn parse(args: &[Vec<u8>]) -> (Self, usize) {
        let (mut options, mut at) = (Self::default(), 2);
        for argument in args.iter().skip(2) {
            let option = match argument.to_ascii_lowercase().as_slice() {
                b"nx" => &mut options.nx,
                b"xx" => &mut options.xx,
                b"gt" => &mut options.gt,
                b"lt" => &mut options.lt,
                b"ch" => &mut options.ch,
                b"incr" => &mut options.incr,
                _ => break,
            };
            *option = true;
            at += 1;
        }
        (options, at)
    }

    /// True for options that GEOADD does not have.
    pub(super) fn are_of_scores(&self) -> bool {
        self.gt || self.lt || self.incr
    }

    /// Checks the options for this number of pairs. Returns the rule that they make.
    pub(super) fn rule(&self, pairs: usize) -> Result<ScoreRule, Wrong> {
        if self.nx && self.xx {
            return Err(Wrong::err("XX and NX options at the same time are not compatible"));
        }
        if self.nx && (self.gt || self.lt) || self.gt && self.lt {
            return Err(Wrong::err("GT, LT, and/or NX options at the same time are not compatible"));
        }
        if self.incr && pairs > 1 {
            return Err(Wrong::err("INCR option supports a single increment-element pair"));
        }
        let is_there = if self.nx { Some(false) } else { self.xx.then_some(true) };
        let order = if self.gt { Some(Ordering::Greater) } else { self.lt.then_some(Ordering::Less) };
        Ok(ScoreRule { is_there, order, adds: self.incr })
    }
}

pub(super) async fn add(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (options, at) = AddOptions::parse(call.args);
    let (given, rest) = call.args[at..].as_chunks();
    if given.is_empty() || !rest.is_empty() {
        return Err(Wrong::syntax());
    }
    let rule = options.rule(given.len())?;
    let (mut pairs, mut pace) = (Vec::new(), Pace::default());
    for [score, member] in given {
        pairs.push((member.clone(), score_argument(score)?));
        pace.step().await;
    }
    let key = call.key(1);
    let put = call.access.put_scores(&key, &pairs, rule).await?;
    if put.added + put.changed > 0 {
        call.event(OF_SORTED, if options.incr { "zincr" } else { "zadd" }, &key);
    }
    match (options.incr, put.last) {
        (true, Some(score)) => call.out.double(score),
        (true, None) => call.out.null(),
        (false, _) => {
            let number = if options.ch { put.added + put.changed } else { put.added };
            call.out.integer(number.cast_signed());
        }
    }
    Ok(())
}

pub(super) async fn incr_by(call: &mut Call<'_>) -> Result<(), Wrong> {
    let pair = (call.args[3].clone(), score_argument(&call.args[2])?);
    let rule = ScoreRule { adds: true, ..ScoreRule::default() };
    let key = call.key(1);
    let put = call.access.put_scores(&key, &[pair], rule).await?;
    if put.added + put.changed > 0 {
        call.event(OF_SORTED, "zincr", &key);
    }
    put.last.into_iter().for_each(|score| call.out.double(score));
    Ok(())
}

pub(super) async fn remove(call: &mut Call<'_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let removed = call.access.remove_scored(&key, &call.args[2..]).await?;
    if removed > 0 {
        call.access.event_of_removal(OF_SORTED, "zrem", &key).await?;
    }
    call.out.integer(removed.cast_signed());
    Ok(())
}

pub(super) async fn length(call: &mut Call<'_>) -> Result<(), Wrong> {
    let length = call.access.length(&call.key(1), SORTED).await?;
    call.out.integer(length.cast_signed());
    Ok(())
}

fn reply_score(out: &mut Encoder, score: Option<f64>) {
    match score {
        Some(score) => out.double(score),
        None => out.null(),
    }
}

pub(super) async fn score(call: &mut Call<'_>) -> Result<(), Wrong> {
    let scores = call.access.scores(&call.key(1), &call.args[2..]).await?;
    reply_score(call.out, scores.into_iter().next().flatten());
    Ok(())
}

pub(super) async fn many_scores(call: &mut Call<'_>) -> Result<(), Wrong> {
    let scores = call.access.scores(&call.key(1), &call.args[2..]).await?;
    call.out.array(scores.len());
    scores.into_iter().for_each(|score| reply_score(call.out, score));
    Ok(())
}

pub(super) async fn rank(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply_rank(call, Side::Left).await
}

pub(super) async fn reverse_rank(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply_rank(call, Side::Right).await
}

async fn reply_rank(call: &mut Call<'_>, end: Side) -> Result<(), Wrong> {
    let with_score = match call.args.len() {
        3 => false,
        4 if call.is(3, "withscore") => true,
        4 => return Err(Wrong::syntax()),
        _ => return Err(Wrong::arity(&call.word(0))),
    };
    match (call.access.sorted_rank(&call.key(1), &call.args[2], end).await?, with_score) {
        (Some((rank, _)), false) => call.out.integer(rank.cast_signed()),
        (Some((rank, score)), true) => {
            call.out.array(2);
            call.out.integer(rank.cast_signed());
            call.out.double(score);
        }
        (None, false) => call.out.null(),
        (None, true) => call.out.null_array(),
    }
    Ok(())
}

pub(super) async fn pop_min(call: &mut Call<'_>) -> Result<(), Wrong> {
    pop(call, Side::Left).await
}

pub(super) async fn pop_max(call: &mut Call<'_>) -> Result<(), Wrong> {
    pop(call, Side::Right).await
}

/// Pops members, and tells of it.
pub(super) async fn pop_and_tell(
    call: &mut Call<'_>,
    key: &Key,
    end: Side,
    count: u64,
) -> Result<Vec<Scored>, Wrong> {
    let popped = call.access.pop_scored(key, end, count).await?;
    if !popped.is_empty() {
        let event = if end == Side::Left { "zpopmin" } else { "zpopmax" };
        call.access.event_of_removal(OF_SORTED, event, key).await?;
    }
    Ok(popped)
}

async fn pop(call: &mut Call<'_>, end: Side) -> Result<(), Wrong> {
    let count = match call.args {
        [_, _] => None,
        [_, _, count] => Some(pop_count(count)?),
        _ => return Err(Wrong::syntax()),
    };
    let popped = pop_and_tell(call, &call.key(1), end, count.unwrap_or(1)).await?;
    match (count, popped.first()) {
        // One pair, which is not in an array of pairs.
        (None, Some((member, score))) => {
            call.out.array(2);
            call.out.bulk(member);
            call.out.double(*score);
        }
        _ => reply_scored(call.out, &popped, true).await,
    }
    Ok(())
}

/// Pops up to `most` members from an end of the first of `keys` that exists. Returns the place of
/// the key, and the members.
async fn pop_first(
    call: &mut Call<'_>,
    keys: &[Key],
    end: Side,
    most: u64,
) -> Result<Option<(usize, Vec<Scored>)>, Wrong> {
    let mut pace = Pace::default();
    for (place, key) in keys.iter().enumerate() {
        let popped = pop_and_tell(call, key, end, most).await?;
        if !popped.is_empty() {
            return Ok(Some((place, popped)));
        }
        pace.step().await;
    }
    Ok(None)
}

/// Parses the name of an end.
pub(super) fn end(word: &[u8]) -> Result<Side, Wrong> {
    match &*lower(word) {
        "min" => Ok(Side::Left),
        "max" => Ok(Side::Right),
        _ => Err(Wrong::syntax()),
    }
}

pub(super) async fn pop_many(call: &mut Call<'_>) -> Result<(), Wrong> {
    let ManyPop { keys, end, most } = many_pop(call.args, 1, end)?;
    let keys = call.keys(keys);
    match pop_first(call, &keys, end, most).await? {
        Some((place, popped)) => reply_popped(call.out, &call.args[2 + place], &popped),
        None => call.out.null_array(),
    }
    Ok(())
}

/// Adds the reply of ZMPOP and BZMPOP: the key, and an array of pairs in both protocols.
pub(super) fn reply_popped(out: &mut Encoder, name: &[u8], popped: &[Scored]) {
    out.array(2);
    out.bulk(name);
    out.array(popped.len());
    for (member, score) in popped {
        out.array(2);
        out.bulk(member);
        out.double(*score);
    }
}

pub(super) async fn scan_members(call: &mut Call<'_>) -> Result<(), Wrong> {
    scan(call, SORTED).await
}

pub(super) async fn random_member(call: &mut Call<'_>) -> Result<(), Wrong> {
    let with_scores = match call.args {
        [_, _] => {
            let chosen = call.access.random_elements(&call.key(1), SORTED, 1).await?;
            call.out.optional_bulk(chosen.into_iter().next().map(|(member, _)| member));
            return Ok(());
        }
        [_, _, _] => false,
        [_, _, _, _] if call.is(3, "withscores") => true,
        _ => return Err(Wrong::syntax()),
    };
    let chosen = choose(call, SORTED, &call.args[2]).await?;
    let (mut members, mut is_damaged) = (Vec::with_capacity(chosen.len()), None);
    let each = |member: &[u8], value: &karstdb::Value| match score_of(value) {
        Ok(score) => members.push((member.to_vec(), score)),
        Err(wrong) => is_damaged = Some(wrong),
    };
    chosen.each(each).await;
    if let Some(wrong) = is_damaged {
        return Err(wrong);
    }
    reply_scored(call.out, &members, with_scores).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::*;

    #[test]
    fn scores_are_numbers_or_infinities() {
        for (text, score) in
            [("1", 1.0), ("-1.5e3", -1500.0), ("+inf", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)]
        {
            assert_eq!(score_argument(text.as_bytes()), Ok(score));
        }
        for text in ["", "nan", "x", "1e400", " 1", "1 ", "--1"] {
            assert_eq!(score_argument(text.as_bytes()), Err(Wrong::not_a_float()), "{text}");
        }
    }

    #[test]
    fn options_of_zadd_end_at_the_first_score() {
        let (options, at) = AddOptions::parse(&words("ZADD k XX ch 1 nx"));
        assert_eq!((at, options), (4, AddOptions { xx: true, ch: true, ..AddOptions::default() }));
        let rule = |line: &str, pairs| AddOptions::parse(&words(line)).0.rule(pairs);
        for line in ["zadd k nx xx", "zadd k nx gt", "zadd k lt nx", "zadd k gt lt"] {
            assert!(rule(line, 1).is_err(), "{line}");
        }
        assert!(rule("zadd k incr", 2).is_err() && rule("zadd k incr xx gt", 1).is_ok());
    }
}
