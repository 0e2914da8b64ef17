//! Limits of the files of a cached get and of a put, which ARCHITECTURE.md lists.
//!
//! In: the list after each of these sentences, and the files. Out: a list that is missing or too
//! long; a file that does not exist or has too many lines.

use super::Tree;

const DOCUMENT: &str = "ARCHITECTURE.md";
/// Sentence before each list.
const LISTS: [&str; 2] =
    ["Whoever reads these files has read a cached get:", "Whoever reads these files has read a put:"];
const FILES_AT_MOST: usize = 12;
const LINES_AT_MOST: usize = 600;

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    let document = tree.text(DOCUMENT).unwrap_or_default();
    for list in LISTS {
        let files: Vec<&str> = listed(document, list).collect();
        if files.is_empty() || files.len() > FILES_AT_MOST {
            let files = files.len();
            found.push(format!("{DOCUMENT}: `{list}` lists {files} files; 1 to {FILES_AT_MOST} it is"));
        }
        for file in files {
            match tree.text(file).map(|text| text.lines().count()) {
                None => found.push(format!("{DOCUMENT}: `{file}` is not there")),
                Some(lines) if lines > LINES_AT_MOST => found
                    .push(format!("{file}: {lines} lines; {LINES_AT_MOST} at most, as {DOCUMENT} lists it")),
                Some(_) => {}
            }
        }
    }
}

/// Returns the files of a list.
fn listed<'a>(document: &'a str, list: &str) -> impl Iterator<Item = &'a str> {
    let behind = document.split_once(list).map_or("", |(_, behind)| behind);
    let items = behind.trim_start().lines().map_while(|line| line.strip_prefix("- "));
    items.map(|item| item.trim_matches('`'))
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    #[test]
    fn a_file_that_is_gone_or_long_and_a_list_that_is_missing_or_long_are_found() {
        let long = "\n".repeat(LINES_AT_MOST + 1);
        let document = format!("{}\n\n- `a.rs`\n- `b.rs`\n- `gone.rs`\n\n- `other.rs`\n", LISTS[0]);
        let files = [(DOCUMENT, document.as_str()), ("a.rs", ""), ("b.rs", long.as_str())];
        assert_eq!(
            said(check, &files),
            [
                "b.rs: 601 lines; 600 at most, as ARCHITECTURE.md lists it".to_string(),
                "ARCHITECTURE.md: `gone.rs` is not there".to_string(),
                format!("ARCHITECTURE.md: `{}` lists 0 files; 1 to 12 it is", LISTS[1]),
            ]
        );
        let many = format!("{}\n\n{}", LISTS[0], "- `a.rs`\n".repeat(FILES_AT_MOST + 1));
        let files = [(DOCUMENT, many.as_str()), ("a.rs", "")];
        assert!(said(check, &files)[0].contains("lists 13 files"));
    }
}
