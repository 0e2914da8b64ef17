//! Ranges of sorted sets: by rank, by score and by member.

use super::Call;
use super::lists::range_of;
use super::zsets::{OF_SORTED, reply_scored};
use crate::numbers::{float_argument, integer_argument};
use crate::store::{Access, Key, Kind, ScoreRule, Scored, Side, SortedRange};
use crate::wrong::Wrong;
use std::ops::Bound;

/// Meaning of the limits of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Name,
}

/// The members that a command asks for.
enum Selection {
    /// Those from one rank to another; negative ones count from the other end.
    Ranks(i64, i64),
    Range(SortedRange),
}

/// Arguments of the relatives of ZRANGE.
struct Query {
    selection: Selection,
    /// End at which the order begins.
    end: Side,
    /// Number of members that are left out; negative: all.
    skip: i64,
    /// Maximum number of members; negative: no limit.
    take: i64,
    with_scores: bool,
}

/// Form of a command: the parts that it fixes, which its options do not choose.
#[derive(Clone, Copy)]
struct Form {
    by: Option<By>,
    end: Option<Side>,
    /// The members are stored, and so the first argument is another key.
    stores: bool,
}

const ANY: Form = Form { by: None, end: None, stores: false };

impl Query {
    fn parse(call: &Call<'_>, form: Form) -> Result<Self, Wrong> {
        let first = if form.stores { 3 } else { 2 };
        let (mut by, mut end, mut limit, mut with_scores) = (form.by, form.end, None, false);
        let mut at = first + 2;
        while at < call.args.len() {
            match &*call.word(at) {
                "withscores" if !form.stores => with_scores = true,
                "limit" if at + 2 < call.args.len() => {
                    let number = |at: usize| integer_argument(&call.args[at]);
                    limit = Some((number(at + 1)?, number(at + 2)?));
                    at += 2;
                }
                "rev" if form.end.is_none() && end.is_none() => end = Some(Side::Right),
                "byscore" if by.is_none() => by = Some(By::Score),
                "bylex" if by.is_none() => by = Some(By::Name),
                _ => return Err(Wrong::syntax()),
            }
            at += 1;
        }
        let (by, end) = (by.unwrap_or(By::Rank), end.unwrap_or(Side::Left));
        let (skip, take) = limit.unwrap_or((0, -1));
        if by == By::Rank && take != -1 {
            let why = "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(Wrong::err(why));
        }
        if by == By::Name && with_scores {
            return Err(Wrong::err("syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (one, other) = (&call.args[first], &call.args[first + 1]);
        let selection = match (by, end) {
            (By::Rank, _) => Selection::Ranks(integer_argument(one)?, integer_argument(other)?),
            (_, Side::Left) => Selection::Range(range(by, one, other)?),
            (_, Side::Right) => Selection::Range(range(by, other, one)?),
        };
        Ok(Self { selection, end, skip, take, with_scores })
    }

    /// Reads the members in the order that is asked for.
    async fn read(&self, access: &Access, key: &Key) -> Result<Vec<Scored>, Wrong> {
        access.pin();
        let range = match &self.selection {
            Selection::Range(range) => range,
            Selection::Ranks(start, stop) => return self.read_ranks(access, key, *start, *stop).await,
        };
        let take = u64::try_from(self.take).unwrap_or(u64::MAX);
        match u64::try_from(self.skip) {
            Ok(skip) => access.sorted_range(key, range, self.end, skip, take).await,
            Err(_) => access.sorted_range(key, range, self.end, 0, 0).await,
        }
    }

    async fn read_ranks(
        &self,
        access: &Access,
        key: &Key,
        start: i64,
        stop: i64,
    ) -> Result<Vec<Scored>, Wrong> {
        let length = access.length(key, Kind::SortedSet).await?;
        let ranks = range_of(start, stop, length);
        if self.end == Side::Left || ranks.is_empty() {
            return access.sorted_ranks(key, ranks).await;
        }
        let mut found = access.sorted_ranks(key, length - ranks.end..length - ranks.start).await?;
        found.reverse();
        Ok(found)
    }
}

/// Parses the limits of a range by score or by member.
fn range(by: By, low: &[u8], high: &[u8]) -> Result<SortedRange, Wrong> {
    match by {
        By::Name => match (name_limit(low, b'-')?, name_limit(high, b'+')?) {
            (Some(low), Some(high)) => Ok(SortedRange::Names(low, high)),
            _ => Ok(SortedRange::Names(Bound::Excluded(Vec::new()), Bound::Excluded(Vec::new()))),
        },
        By::Rank | By::Score => Ok(SortedRange::Scores(score_limit(low)?, score_limit(high)?)),
    }
}

fn score_limit(text: &[u8]) -> Result<Bound<f64>, Wrong> {
    // As `strtod` parses it in Redis: spaces may precede the number, and no text is 0.
    let number = |text: &[u8]| match text.trim_ascii_start() {
        _ if text.is_empty() => Ok(0.0),
        text => float_argument(text).map_err(|_| Wrong::err("min or max is not a float")),
    };
    match text.strip_prefix(b"(") {
        Some(rest) => Ok(Bound::Excluded(number(rest)?)),
        None => Ok(Bound::Included(number(text)?)),
    }
}

/// Parses a limit by member. `open` is the sign for no limit at this end; `None` is that of the
/// other end, with which no member is in the range.
fn name_limit(text: &[u8], open: u8) -> Result<Option<Bound<Vec<u8>>>, Wrong> {
    match text {
        [b'(', rest @ ..] => Ok(Some(Bound::Excluded(rest.to_vec()))),
        [b'[', rest @ ..] => Ok(Some(Bound::Included(rest.to_vec()))),
        [sign] if *sign == open => Ok(Some(Bound::Unbounded)),
        [b'-' | b'+'] => Ok(None),
        _ => Err(Wrong::err("min or max not valid string range item")),
    }
}

async fn reply(call: &mut Call<'_>, form: Form) -> Result<(), Wrong> {
    let query = Query::parse(call, form)?;
    let found = query.read(call.access, &call.key(1)).await?;
    reply_scored(call.out, &found, query.with_scores).await;
    Ok(())
}

pub(super) async fn range_of_any(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, ANY).await
}

pub(super) async fn reverse_range(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Form { by: Some(By::Rank), end: Some(Side::Right), ..ANY }).await
}

pub(super) async fn by_score(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Form { by: Some(By::Score), end: Some(Side::Left), ..ANY }).await
}

pub(super) async fn reverse_by_score(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Form { by: Some(By::Score), end: Some(Side::Right), ..ANY }).await
}

pub(super) async fn by_name(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Form { by: Some(By::Name), end: Some(Side::Left), ..ANY }).await
}

pub(super) async fn reverse_by_name(call: &mut Call<'_>) -> Result<(), Wrong> {
    reply(call, Form { by: Some(By::Name), end: Some(Side::Right), ..ANY }).await
}

pub(super) async fn store(call: &mut Call<'_>) -> Result<(), Wrong> {
    let query = Query::parse(call, Form { stores: true, ..ANY })?;
    let found = query.read(call.access, &call.key(2)).await?;
    replace(call, 1, &found, "zrangestore").await
}

/// Puts members in place of the value of any type of the key that an argument names, and replies
/// with their number. Tells of it by an event's name.
pub(super) async fn replace(
    call: &mut Call<'_>,
    at: usize,
    members: &[Scored],
    event: &'static str,
) -> Result<(), Wrong> {
    let to = call.key(at);
    if members.iter().any(|(_, score)| score.is_nan()) {
        return Err(Wrong::err("resulting score is not a number (NaN)"));
    }
    let was_there = call.access.delete(&to).await?;
    call.access.put_scores(&to, members, ScoreRule::default()).await?;
    call.access.event_of_store(OF_SORTED, event, &to, members.len(), was_there);
    call.out.count(members.len());
    Ok(())
}

/// The range of the second and third argument.
fn range_of_call(call: &Call<'_>, by: By) -> Result<SortedRange, Wrong> {
    range(by, &call.args[2], &call.args[3])
}

async fn count(call: &mut Call<'_>, by: By) -> Result<(), Wrong> {
    let range = range_of_call(call, by)?;
    let count = call.access.count_sorted(&call.key(1), &range).await?;
    call.out.integer(count.cast_signed());
    Ok(())
}

pub(super) async fn count_scores(call: &mut Call<'_>) -> Result<(), Wrong> {
    count(call, By::Score).await
}

pub(super) async fn count_names(call: &mut Call<'_>) -> Result<(), Wrong> {
    count(call, By::Name).await
}

async fn remove(call: &mut Call<'_>, by: By) -> Result<(), Wrong> {
    let range = range_of_call(call, by)?;
    let key = call.key(1);
    let removed = call.access.remove_range(&key, &range).await?;
    if removed > 0 {
        let event = if by == By::Name { "zremrangebylex" } else { "zremrangebyscore" };
        call.access.event_of_removal(OF_SORTED, event, &key).await?;
    }
    call.out.integer(removed.cast_signed());
    Ok(())
}

pub(super) async fn remove_scores(call: &mut Call<'_>) -> Result<(), Wrong> {
    remove(call, By::Score).await
}

pub(super) async fn remove_names(call: &mut Call<'_>) -> Result<(), Wrong> {
    remove(call, By::Name).await
}

pub(super) async fn remove_ranks(call: &mut Call<'_>) -> Result<(), Wrong> {
    let (start, stop) = (integer_argument(&call.args[2])?, integer_argument(&call.args[3])?);
    let key = call.key(1);
    let length = call.access.length(&key, Kind::SortedSet).await?;
    let removed = call.access.remove_ranks(&key, range_of(start, stop, length)).await?;
    if removed > 0 {
        call.access.event_of_removal(OF_SORTED, "zremrangebyrank", &key).await?;
    }
    call.out.integer(removed.cast_signed());
    Ok(())
}
