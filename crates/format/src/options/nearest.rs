//! Suggestions for mistyped names.

/// Returns the candidate with the smallest edit distance from `name`, if that is small enough for a
/// typing error.
///
/// Up to a third of the name's characters may be missing, superfluous, different, or swapped with a
/// neighbour. Of equally near candidates the first is returned.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Limited because the text may be hostile, and the work grows with its length.
    const LONGEST: usize = 100;
    let name: Vec<char> = name.chars().take(LONGEST + 1).collect();
    if name.len() > LONGEST {
        return None;
    }
    let rated = candidates.into_iter().map(|candidate| (distance(&name, candidate), candidate));
    let (least, best) = rated.min_by_key(|(distance, _)| *distance)?;
    (least <= name.len().max(3) / 3).then_some(best)
}

/// Returns the end of the error message about an unknown option: the nearest of `names`, if one is
/// near. Of a name that leads into a nested option (`compression_opts.level`), the part before the
/// dot is compared.
pub fn did_you_mean<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let (outer, rest) = name.split_at(name.find('.').unwrap_or(name.len()));
    match nearest(outer, names) {
        Some(near) => format!("; did you mean `{near}{rest}`?"),
        None => String::new(),
    }
}

/// Returns the number of single edits from `from` to `to`: a character that is inserted, removed or
/// replaced, or two neighbours that are swapped.
fn distance(from: &[char], to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    // `last[j]` is the distance of the characters of `from` up to here from the first `j`
    // characters of `to`; `before` is `last` of the previous character.
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut least = replaced.min(last[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_near_one_and_another_word_is_not() {
        let names = ["scan", "dump", "list_column_families", "write_buffer_size"];
        assert_eq!(nearest("scna", names), Some("scan"));
        assert_eq!(nearest("list_columnfamilies", names), Some("list_column_families"));
        assert_eq!(nearest("write_bufer_size", names), Some("write_buffer_size"));
        for other in ["xyzzy", "", "s", &"scan".repeat(100)] {
            assert_eq!(nearest(other, names), None, "{other}");
        }
        assert_eq!(nearest("scan", []), None);
    }

    #[test]
    fn edits_are_counted() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("abc", "axc", 1),
            ("abc", "ac", 1),
            ("ac", "abc", 1),
            ("kitten", "sitting", 3),
            ("größe", "grosse", 3),
        ];
        for (from, to, edits) in cases {
            let from: Vec<char> = from.chars().collect();
            assert_eq!(distance(&from, to), edits, "{from:?} {to}");
        }
    }
}
