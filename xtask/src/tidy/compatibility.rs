//! Compares docs/compatibility.md with the repository: the tests that it names exist, and its
//! counts of options are those of the option tables.
//!
//! In: the paths that git knows, the document, the sources with the tables. Out: a path that is not
//! there, a count that differs, a row of counts that is missing.

use super::Tree;

const DOCUMENT: &str = "docs/compatibility.md";
const TABLES: &str = "crates/format/src/options/";
/// What the document calls a struct of options, and the tables that it counts.
const COUNTED: [(&str, &[&str]); 7] = [
    ("DBOptions", &["DbOptions"]),
    ("ColumnFamilyOptions", &["ColumnFamilyOptions"]),
    ("BlockBasedTableOptions", &["BlockBasedTableOptions"]),
    ("CompressionOptions", &["CompressionOptions"]),
    ("CompactionOptionsFIFO", &["FifoOptions", "FileTemperatureAge"]),
    ("CompactionOptionsUniversal", &["UniversalOptions"]),
    ("MetadataCacheOptions", &["MetadataCacheOptions"]),
];

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    let document = tree.text(DOCUMENT).unwrap_or_default();
    for named in document.split('`').skip(1).step_by(2).filter(|code| is_source(code)) {
        if tree.text(named).is_none() {
            found.push(format!("{DOCUMENT}: `{named}` is not there"));
        }
    }
    let sources = tree.sources().filter(|(path, _)| path.starts_with(TABLES));
    let all: String = sources.map(|(_, text)| text).collect();
    for (name, tables) in COUNTED {
        let counts = tables.iter().map(|table| count(&all, table));
        let (honoured, kept) = counts.fold((0, 0), |(a, b), (honoured, kept)| (a + honoured, b + kept));
        match row(document, name) {
            None => found.push(format!("{DOCUMENT}: no counts of `{name}`")),
            Some([known, says, without, refused])
                if (known, says, without + refused) != (honoured + kept, honoured, kept) =>
            {
                found.push(format!("{DOCUMENT}: `{name}`: {honoured} are honoured and {kept} are not"));
            }
            Some(_) => {}
        }
    }
}

fn is_source(code: &str) -> bool {
    code.ends_with(".rs") && ["crates/", "judge/", "xtask/"].iter().any(|folder| code.starts_with(folder))
}

/// How many options of a table are honoured, and how many are kept without effect.
fn count(tables: &str, name: &str) -> (usize, usize) {
    let head = format!("    {name} in ");
    let rows = tables.lines().skip_while(|line| !line.starts_with(&head)).take_while(|line| *line != "    }");
    rows.fold((0, 0), |(honoured, kept), line| {
        let has = |word| usize::from(line.contains(word));
        (honoured + has(", honoured, \""), kept + has(", kept, \""))
    })
}

/// The numbers behind a name: known, honoured, without effect, refused.
fn row(document: &str, name: &str) -> Option<[usize; 4]> {
    let head = format!("| `{name}`");
    let line = document.lines().find(|line| line.starts_with(&head))?;
    let numbers: Vec<usize> = line.split('|').filter_map(|cell| cell.trim().parse().ok()).collect();
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::{COUNTED, DOCUMENT, TABLES};

    fn found(document: &str) -> Vec<String> {
        let tables = COUNTED.iter().flat_map(|(_, tables)| *tables).map(|table| {
            format!(
                "    {table} in Db {{\n        a: u8 = 0, fixed, honoured, \"\";\n        b: u8 = 0, fixed, kept, \"\";\n    }}\n"
            )
        });
        let (path, tables) = (format!("{TABLES}db.rs"), tables.collect::<String>());
        said(super::check, &[(&path, &tables), ("judge/src/main.rs", ""), (DOCUMENT, document)])
    }

    #[test]
    fn sees_tests_that_are_gone_and_counts_that_differ() {
        let rows = |first: &str| {
            let rest = COUNTED[1..].iter().map(|(name, tables)| {
                let n = tables.len();
                format!("| `{name}` | {} | {n} | {n} | 0 |\n", 2 * n)
            });
            first.to_string() + &rest.collect::<String>()
        };
        let right = rows("| `DBOptions` | 2 | 1 | 0 | 1 |\n");
        assert_eq!(found(&(right.clone() + "`judge/src/main.rs`, `Db::get`")), Vec::<String>::new());
        assert_eq!(
            found(&(right + "`crates/x/tests/gone.rs`")),
            ["docs/compatibility.md: `crates/x/tests/gone.rs` is not there"]
        );
        assert_eq!(
            found(&rows("| `DBOptions` | 2 | 2 | 0 | 0 |\n")),
            ["docs/compatibility.md: `DBOptions`: 1 are honoured and 1 are not"]
        );
        assert_eq!(found(&rows("")), ["docs/compatibility.md: no counts of `DBOptions`"]);
    }
}
