//! Patterns of KEYS, SCAN and CONFIG GET: `*`, `?`, `[a-z]`, `[^a]` and `\` before a character that
//! stands for itself, over bytes.
//!
//! In: a pattern and a text of a client, both of any length. Out: whether all of the text matches.
//!
//! Invariants: a match takes steps in proportion to the product of both lengths at most, because
//! only the last star is tried again; it can be interrupted after any number of steps, and lets
//! other tasks of its thread run after [`STEPS`]. A class counts its bytes as steps, and is looked
//! at without an interruption: [`LENGTH_AT_MOST`] bounds it.

use crate::wrong::Wrong;
use karstdb::io::yield_now;

/// Maximum length of a pattern in bytes.
const LENGTH_AT_MOST: usize = 1 << 20;
/// Steps after which a match lets other tasks of its thread run: some 100 microseconds.
const STEPS: usize = 1 << 16;
/// Steps that a match may take where it cannot be interrupted.
const STEPS_AT_ONCE: usize = 1 << 10;

/// A pattern that many texts are compared with.
pub(crate) struct Pattern<'a> {
    pattern: &'a [u8],
    /// Steps until other tasks run.
    left: usize,
}

impl<'a> Pattern<'a> {
    /// # Errors
    /// The pattern has more than 1 MiB.
    pub(crate) fn new(pattern: &'a [u8]) -> Result<Self, Wrong> {
        match pattern.len() {
            ..=LENGTH_AT_MOST => Ok(Self { pattern, left: STEPS }),
            _ => Err(Wrong::err("pattern is too long")),
        }
    }

    /// The literal bytes that every match begins with.
    pub(crate) fn prefix(&self) -> &'a [u8] {
        let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        &self.pattern[..self.pattern.iter().position(special).unwrap_or(self.pattern.len())]
    }

    /// Returns true if all of `text` matches.
    pub(crate) async fn matches(&mut self, text: &[u8]) -> bool {
        let mut comparison = Comparison::new(self.pattern, text);
        loop {
            if let Some(is_match) = comparison.go_on(&mut self.left) {
                return is_match;
            }
            yield_now().await;
            self.left = STEPS;
        }
    }

    /// Returns whether all of `text` matches, or `None` if that takes more than a few steps.
    pub(crate) fn matches_at_once(&self, text: &[u8]) -> Option<bool> {
        if self.pattern.len() > STEPS_AT_ONCE {
            return None; // its first class could take more
        }
        Comparison::new(self.pattern, text).go_on(&mut { STEPS_AT_ONCE })
    }

    /// Keeps those of `found` whose text matches.
    pub(crate) async fn retain<T>(&mut self, found: &mut Vec<T>, text: impl Fn(&T) -> &[u8]) {
        let mut kept = Vec::new();
        for one in std::mem::take(found) {
            if self.matches(text(&one)).await {
                kept.push(one);
            }
        }
        *found = kept;
    }
}

/// A comparison under way.
struct Comparison<'a> {
    pattern: &'a [u8],
    text: &'a [u8],
    /// Pattern behind the last star, and the text that the star has not swallowed yet.
    retry: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> Comparison<'a> {
    fn new(pattern: &'a [u8], text: &'a [u8]) -> Self {
        Self { pattern, text, retry: None }
    }

    /// Goes on until the result is known, or `left` steps are used up: `None`.
    fn go_on(&mut self, left: &mut usize) -> Option<bool> {
        loop {
            if *left == 0 {
                return None;
            }
            *left -= 1;
            if let [b'*', rest @ ..] = self.pattern {
                if rest.is_empty() {
                    return Some(true);
                }
                self.retry = Some((rest, self.text));
                self.pattern = rest;
                continue;
            }
            let Some((&byte, behind)) = self.text.split_first() else {
                return Some(self.pattern.is_empty());
            };
            let (is_match, rest) = one(self.pattern, byte);
            *left = left.saturating_sub(self.pattern.len() - rest.len());
            if is_match {
                (self.pattern, self.text) = (rest, behind);
                continue;
            }
            // The last star swallows one byte more.
            match self.retry {
                Some((rest, [_, behind @ ..])) => {
                    (self.pattern, self.text) = (rest, behind);
                    self.retry = Some((rest, behind));
                }
                _ => return Some(false),
            }
        }
    }
}

/// Matches one byte against the front of the pattern; returns what follows that.
fn one(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    match pattern {
        [] => (false, pattern),
        [b'?', rest @ ..] => (true, rest),
        [b'[', class @ ..] => in_class(class, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte, rest),
    }
}

/// Looks for a byte in the class whose text begins behind `[`; returns what follows the class.
fn in_class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_not, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    loop {
        match rest {
            [] => return (found != is_not, rest),
            [b']', behind @ ..] => return (found != is_not, behind),
            [b'\\', literal, behind @ ..] => {
                found |= *literal == byte;
                rest = behind;
            }
            [from, b'-', to, behind @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = behind;
            }
            [literal, behind @ ..] => {
                found |= *literal == byte;
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares in portions of `steps`; returns the result and the number of portions.
    fn compare(pattern: &[u8], text: &[u8], steps: usize) -> (bool, usize) {
        let mut comparison = Comparison::new(pattern, text);
        let portions = 1..;
        let results = portions.map(|portion| (comparison.go_on(&mut { steps }), portion));
        let mut known = results.filter_map(|(result, portion)| Some((result?, portion)));
        known.next().expect("it comes to an end")
    }

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("*a*b*c", "xxaxxbxxbxxc", true),
            ("*a*b*c", "xxaxxbxxbxx", false),
            ("a[", "a", false),
            ("[]", "a", false),
            ("*?", "", false),
            ("foo*", "foo", true),
        ];
        for (pattern, text, is_match) in cases {
            for steps in [1, 2, usize::MAX] {
                let (result, _) = compare(pattern.as_bytes(), text.as_bytes(), steps);
                assert_eq!(result, is_match, "{pattern} {text} in portions of {steps}");
            }
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = [&b"a*".repeat(200)[..], b"b"].concat();
        let (is_match, portions) = compare(&pattern, &[b'a'; 20_000], 1);
        assert!(!is_match && portions < 2 * pattern.len() * 20_000, "{portions} steps");
    }

    #[test]
    fn a_long_comparison_is_interrupted() {
        let pattern = [b"*", &b"a".repeat(1000)[..], b"b"].concat();
        let text = vec![b'a'; 2000];
        let (is_match, portions) = compare(&pattern, &text, 1000);
        assert!(!is_match && portions > 1000, "{portions} portions");
        // A class counts with its length.
        let class = [b"*[", &b"x".repeat(1000)[..], b"]b"].concat();
        assert!(compare(&class, &text, 1000).1 >= text.len());
        let pattern = Pattern::new(&pattern).unwrap();
        assert_eq!((pattern.matches_at_once(&text), pattern.matches_at_once(b"a")), (None, Some(false)));
        assert!(Pattern::new(&vec![b'a'; LENGTH_AT_MOST + 1]).is_err());
    }

    #[test]
    fn the_prefix_ends_before_what_is_special() {
        for (pattern, prefix) in [("user:*", "user:"), ("a\\b", "a"), ("all", "all")] {
            assert_eq!(Pattern::new(pattern.as_bytes()).unwrap().prefix(), prefix.as_bytes());
        }
    }
}
