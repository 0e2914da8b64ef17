//! Limits the turns of phrase in comments and documents that withhold the subject of a sentence.
//!
//! In: the comments of all sources, and all Markdown. Out: every hit, if there are more than
//! [`LIMIT`] in 1,000 lines of either kind. A hit is a place to look at: a sentence that is good
//! English in its place stays, which is why the limit is not zero.

use super::Tree;

/// Maximum number of hits in 1,000 lines of comments, and in 1,000 lines of Markdown.
const LIMIT: usize = 10;

/// First words of a doc comment that begins with a clause in place of its subject.
const OPENINGS: [&str; 12] = [
    "What ",
    "Whether ",
    "How ",
    "Where ",
    "Who ",
    "Whoever ",
    "Whatever ",
    "The same",
    "As ",
    "So ",
    "See the module",
    "Also ",
];

/// Words and phrases that stand for a thing without its name, in lower case.
const PHRASES: [&str; 32] = [
    "whoever",
    "whomever",
    "whatever",
    "somebody",
    "nobody",
    "so many",
    "so much",
    "so long",
    "go by",
    "goes by",
    "gone by",
    "by and by",
    "once more",
    "all the same",
    "is told",
    "are told",
    "say of",
    "says of",
    "is said",
    "asked of",
    "that is there",
    "that are there",
    "there is none",
    "there are none",
    "if there is any",
    "if there are any",
    "why also",
    "why the",
    "why not",
    "why so",
    "why no",
    "why it",
];

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    let mut comments = Counts::default();
    let mut documents = Counts::default();
    for (path, text) in &tree.files {
        for (number, line) in (1..).zip(text.lines()) {
            if path.ends_with(".md") {
                documents.add(path, number, line, "");
            } else if path.ends_with(".rs")
                && let Some(comment) = comment_of(line)
            {
                comments.add(path, number, comment, comment);
            }
        }
    }
    comments.report("comments", found);
    documents.report("Markdown", found);
}

/// The comment in a line of a source, with its slashes.
fn comment_of(line: &str) -> Option<&str> {
    let at = line.find("//")?;
    // The slashes of a URL begin no comment.
    (!line[..at].ends_with(':')).then(|| &line[at..])
}

#[derive(Default)]
struct Counts {
    lines: usize,
    hits: Vec<String>,
}

impl Counts {
    /// Counts a line. `doc` is the line if it may begin a doc comment.
    fn add(&mut self, path: &str, number: usize, line: &str, doc: &str) {
        self.lines += 1;
        if let Some(phrase) = phrase_in(line).or_else(|| opening_of(doc)) {
            self.hits.push(format!("{path}:{number}: `{}` withholds its subject", phrase.trim()));
        }
    }

    fn report(self, kind: &str, found: &mut Vec<String>) {
        let allowed = LIMIT * self.lines / 1000;
        if self.hits.len() > allowed {
            let (hits, lines) = (self.hits.len(), self.lines);
            found.extend(self.hits);
            found.push(format!(
                "{hits} such phrases in {lines} lines of {kind}: at most {allowed} are allowed"
            ));
        }
    }
}

fn opening_of(line: &str) -> Option<&'static str> {
    let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "))?;
    OPENINGS.into_iter().find(|opening| text.starts_with(opening))
}

/// A phrase that stands in the line as whole words.
fn phrase_in(line: &str) -> Option<&'static str> {
    let line = line.to_lowercase();
    PHRASES.into_iter().find(|phrase| {
        line.match_indices(phrase).any(|(at, _)| {
            let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
            is_end(line[..at].chars().next_back()) && is_end(line[at + phrase.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::LIMIT;

    #[test]
    fn phrases_beyond_the_limit_are_named_and_those_below_are_not() {
        let plain = "/// Number of files measured in one batch.\n".repeat(1000);
        let with =
            |count: usize| plain.clone() + &"/// So many files are looked at together.\n".repeat(count);
        let found = said(super::check, &[("crates/a/src/lib.rs", &with(LIMIT))]);
        assert!(found.is_empty(), "{found:?}");
        let found = said(super::check, &[("crates/a/src/lib.rs", &with(LIMIT + 1))]);
        assert_eq!(found.len(), LIMIT + 2, "{found:?}");
        assert_eq!(found[0], "crates/a/src/lib.rs:1001: `so many` withholds its subject");
    }

    #[test]
    fn openings_count_in_doc_comments_and_words_as_a_whole() {
        let text = |line: &str| said(super::check, &[("crates/a/src/lib.rs", line)]);
        for hit in [
            "/// What goes on.",
            "//! Whether it holds.",
            "// whoever reads",
            "let a = 1; // there is none",
            "/// Why not: it is slow.",
        ] {
            assert_eq!(text(hit).len(), 2, "{hit}");
        }
        for good in [
            "// What goes on.",
            "/// Whatsoever.",
            "// one's own",
            "let url = \"http://nobody\";",
            "nobody();",
        ] {
            assert!(text(good).is_empty(), "{good}");
        }
        assert_eq!(said(super::check, &[("docs/a.md", "It is told.\n")]).len(), 2);
    }
}
