//! SORT and SORT_RO: the elements of a list, a set or a sorted set in the order of their numbers or
//! texts, of other keys' values, or as they are.

use super::Call;
use super::acl;
use super::pace::Pace;
use super::table::sort_target;
use super::zsets::score_argument;
use crate::numbers::integer_argument;
use crate::store::{Classes, Key, Kind};
use crate::wrong::Wrong;
use karstdb::Value;
use std::ops::Range;

/// Maximum number of results of the patterns of GET.
const FOUND_AT_MOST: usize = 16 << 20;

/// Number of elements that are added to a list in one call.
const AT_ONCE: usize = 1024;

/// Pattern of BY or GET.
enum Pattern<'a> {
    /// `#`: the element.
    Element,
    /// Names have the element in place of the star.
    Name { before: &'a [u8], behind: &'a [u8], field: Option<&'a [u8]> },
    /// There is no star, so no key has such a name.
    None,
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Self::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else { return Self::None };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        let arrow = behind.windows(2).position(|two| two == b"->");
        match arrow.map(|arrow| behind.split_at(arrow)) {
            Some((behind, field)) if field.len() > 2 => {
                Self::Name { before, behind, field: Some(&field[2..]) }
            }
            _ => Self::Name { before, behind, field: None },
        }
    }

    /// The value for an element; `None` if there is no such key, or if it is of another type.
    async fn value(&self, call: &Call<'_>, element: &Value) -> Result<Option<Value>, Wrong> {
        let Self::Name { before, behind, field } = self else {
            return Ok(matches!(self, Self::Element).then(|| element.clone()));
        };
        let key = call.session.key(&[before, &element[..], behind].concat());
        let found = match field {
            Some(field) => call.access.element(&key, Kind::Hash, field).await,
            None => call.access.string(&key).await,
        };
        match found {
            Err(wrong) if !wrong.is_of_store() => Ok(None),
            found => found,
        }
    }
}

struct Options<'a> {
    by: Option<Pattern<'a>>,
    get: Vec<Pattern<'a>>,
    limit: Option<(i64, i64)>,
    descends: bool,
    is_alpha: bool,
}

impl<'a> Options<'a> {
    fn parse(args: &'a [Vec<u8>], may_store: bool) -> Result<Self, Wrong> {
        let mut options = Self { by: None, get: Vec::new(), limit: None, descends: false, is_alpha: false };
        let mut rest = args.get(2..).unwrap_or_default();
        while let [word, behind @ ..] = rest {
            rest = match (&*super::lower(word), behind) {
                ("asc", _) => {
                    options.descends = false;
                    behind
                }
                ("desc", _) => {
                    options.descends = true;
                    behind
                }
                ("alpha", _) => {
                    options.is_alpha = true;
                    behind
                }
                ("limit", [first, count, behind @ ..]) => {
                    options.limit = Some((integer_argument(first)?, integer_argument(count)?));
                    behind
                }
                // The table has found it.
                ("store", [_, behind @ ..]) if may_store => behind,
                ("by", [pattern, behind @ ..]) => {
                    // Without a star there is no order to make, also of the elements by themselves.
                    let has_star = pattern.contains(&b'*');
                    options.by = Some(if has_star { Pattern::parse(pattern) } else { Pattern::None });
                    behind
                }
                ("get", [pattern, behind @ ..]) => {
                    options.get.push(Pattern::parse(pattern));
                    behind
                }
                _ => return Err(Wrong::syntax()),
            };
        }
        Ok(options)
    }

    /// The places of `length` elements that are wanted.
    fn places(&self, length: usize) -> Range<usize> {
        let Some((first, count)) = self.limit else { return 0..length };
        let first = usize::try_from(first.max(0)).unwrap_or(usize::MAX).min(length);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        first..first.saturating_add(count).min(length)
    }
}

/// An element and what it is sorted by.
struct Weighed {
    element: Value,
    number: f64,
    /// Text of another key.
    text: Option<Value>,
}

/// Checks that the client may read the keys of the patterns, which the request does not name.
///
/// # Errors
/// It may not.
async fn check_patterns(call: &Call<'_>, options: &Options<'_>) -> Result<(), Wrong> {
    let is_name = |pattern: &Pattern<'_>| matches!(pattern, Pattern::Name { .. });
    let option = match options {
        Options { by: Some(by), .. } if is_name(by) => "BY",
        Options { get, .. } if get.iter().any(is_name) => "GET",
        _ => return Ok(()),
    };
    let is_allowed = match super::find(&call.args[0]) {
        Some(spec) => acl::may_read_all(call.session, spec, call.args).await,
        None => false,
    };
    match is_allowed {
        true => Ok(()),
        false => Err(Wrong::err(format_args!(
            "{option} option of SORT denied due to insufficient ACL permissions."
        ))),
    }
}

pub(super) async fn sort(call: &mut Call<'_>) -> Result<(), Wrong> {
    let options = Options::parse(call.args, true)?;
    check_patterns(call, &options).await?;
    let target = sort_target(call.args).map(|at| call.key(at));
    let found = sorted(call, options, target.is_some()).await?;
    match target {
        None => tell(call, found).await,
        Some(target) => store(call, &target, found).await?,
    }
    Ok(())
}

pub(super) async fn sort_read(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.access.pin();
    let options = Options::parse(call.args, false)?;
    check_patterns(call, &options).await?;
    let found = sorted(call, options, false).await?;
    tell(call, found).await;
    Ok(())
}

async fn tell(call: &mut Call<'_>, found: Vec<Option<Value>>) {
    let mut pace = Pace::default();
    call.out.array(found.len());
    for value in found {
        call.out.optional_bulk(value);
        pace.step().await;
    }
}

async fn store(call: &mut Call<'_>, target: &Key, found: Vec<Option<Value>>) -> Result<(), Wrong> {
    let mut pace = Pace::default();
    let was_there = call.access.delete(target).await?;
    for values in found.chunks(AT_ONCE) {
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_ref().map_or(&[][..], |it| it)).collect();
        call.access.list_push(target, crate::store::Side::Right, &values).await?;
        pace.steps(values.len()).await;
    }
    call.access.event_of_store(Classes::LIST, "sortstore", target, found.len(), was_there);
    call.out.count(found.len());
    Ok(())
}

/// The values of a SORT, in their order.
async fn sorted(
    call: &mut Call<'_>,
    mut options: Options<'_>,
    is_stored: bool,
) -> Result<Vec<Option<Value>>, Wrong> {
    let key = call.key(1);
    let kind = call.access.kind(&key).await?;
    let mut elements: Vec<Value> = match kind {
        None => Vec::new(),
        Some(Kind::List) => call.access.list_range(&key, 0..u64::MAX).await?,
        Some(Kind::Set) => {
            let all = call.access.all_elements(&key, Kind::Set).await?;
            all.into_iter().map(|(member, _)| Value::from(member)).collect()
        }
        // In the order of scores, which is kept where nothing else is asked for.
        Some(Kind::SortedSet) => {
            let all = call.access.sorted_ranks(&key, 0..u64::MAX).await?;
            all.into_iter().map(|(member, _)| Value::from(member)).collect()
        }
        Some(_) => return Err(Wrong::wrong_type()),
    };
    let mut is_as_it_is = matches!(options.by, Some(Pattern::None));
    if is_as_it_is && is_stored && kind == Some(Kind::Set) {
        // A set has no order that a list could keep.
        (is_as_it_is, options.by, options.is_alpha) = (false, None, true);
    }
    match is_as_it_is {
        false => elements = order(call, &options, elements).await?,
        true if options.descends && kind != Some(Kind::Set) => elements.reverse(),
        true => {}
    }
    let (places, mut pace) = (options.places(elements.len()), Pace::default());
    if places.len().saturating_mul(options.get.len()) > FOUND_AT_MOST {
        return Err(Wrong::err("the patterns of GET and the elements have more than 16777216 results"));
    }
    let mut found = Vec::new();
    for element in elements.drain(places) {
        if options.get.is_empty() {
            found.push(Some(element));
            continue;
        }
        for pattern in &options.get {
            found.push(pattern.value(call, &element).await?);
            pace.step().await;
        }
    }
    Ok(found)
}

async fn order(call: &Call<'_>, options: &Options<'_>, elements: Vec<Value>) -> Result<Vec<Value>, Wrong> {
    let (mut weighed, mut pace, mut is_number) = (Vec::new(), Pace::default(), true);
    for element in elements {
        let text = match &options.by {
            Some(by) => by.value(call, &element).await?,
            None => Some(element.clone()),
        };
        let mut number = 0.0;
        if let (false, Some(text)) = (options.is_alpha, &text) {
            match score(text) {
                Some(parsed) => number = parsed,
                None => is_number = false,
            }
        }
        weighed.push(Weighed { element, number, text });
        pace.step().await;
    }
    if !is_number {
        return Err(Wrong::err("One or more scores can't be converted into double"));
    }
    let compare = |a: &Weighed, b: &Weighed| {
        let ordering = match options.is_alpha {
            true => a.text.as_deref().cmp(&b.text.as_deref()),
            false => a.number.total_cmp(&b.number).then_with(|| a.element[..].cmp(&b.element[..])),
        };
        if options.descends { ordering.reverse() } else { ordering }
    };
    let ordered = pace.sort(weighed, compare).await;
    Ok(ordered.into_iter().map(|weighed| weighed.element).collect())
}

/// The number that a text says; nothing says 0. Spaces may stand before it, as in C.
fn score(text: &[u8]) -> Option<f64> {
    let number = match text.trim_ascii_start() {
        [] => Some(0.0),
        text => score_argument(text).ok(),
    };
    // Zeros have no order among themselves.
    number.map(|number| number + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_numbers_as_c_reads_them() {
        for (text, number) in [("", 0.0), (" 5", 5.0), ("-1e3", -1000.0), ("inf", f64::INFINITY), ("-0", 0.0)]
        {
            let parsed = score(text.as_bytes()).unwrap();
            assert!(parsed.total_cmp(&number).is_eq(), "{text}");
        }
        for text in ["x", "5 ", "1e999", "nan", "1.5x"] {
            assert_eq!(score(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn limits_are_within_the_elements() {
        let places = |first, count| {
            let args = ["sort", "k", "limit", first, count].map(|word| word.as_bytes().to_vec());
            Options::parse(&args, true).unwrap().places(10)
        };
        assert_eq!((places("0", "3"), places("8", "5"), places("-1", "-1")), (0..3, 8..10, 0..10));
        assert_eq!((places("4", "0"), places("10", "1")), (4..4, 10..10));
        assert_eq!(places("9223372036854775807", "9223372036854775807"), 10..10);
    }
}
