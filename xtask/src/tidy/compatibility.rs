//! Checks of docs/compatibility.md against the repository: the tests that it names exist, its
//! counts of options are those of the option tables, and its cells are short.
//!
//! In: the tracked paths, the document, the sources with the tables. Out: a path that does not
//! exist, a count that differs, a row of counts that is missing, a cell that is too long.

use super::Tree;

const DOCUMENT: &str = "docs/compatibility.md";
/// Maximum length of a cell in characters; longer text belongs into a footnote.
const LONGEST_CELL: usize = 100;
const TABLES: &str = "crates/format/src/options/";
/// The document's name of a struct of options, and the tables that it counts.
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
    for row in document.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        // The first cell is the empty text before the row. A table of counts has no tests.
        let shown_by = if cells.len() == 5 { cells[4] } else { "" };
        for named in shown_by.split('`').skip(1).step_by(2).filter(|code| !is_source(code)) {
            if !is_there(tree, named) {
                found.push(format!("{DOCUMENT}: `{named}` is not there"));
            }
        }
        if let Some(cell) = cells.iter().find(|cell| shown_text(cell).chars().count() > LONGEST_CELL) {
            found.push(format!("{DOCUMENT}: a cell of over {LONGEST_CELL} characters: {cell}"));
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

/// True for a path from the root.
fn is_source(code: &str) -> bool {
    code.ends_with(".rs") && ["crates/", "judge/", "xtask/"].iter().any(|folder| code.starts_with(folder))
}

/// True if the short name of a test, `crate/test`, is a source, a test program of the crate, or a
/// module of one of its test programs.
fn is_there(tree: &Tree, named: &str) -> bool {
    let (folder, test) = named.split_once('/').unwrap_or((named, ""));
    let tests = format!("crates/{folder}/tests/");
    let program = [format!("crates/{named}"), format!("{tests}{test}.rs"), format!("{tests}{test}/main.rs")];
    program.iter().any(|path| tree.text(path).is_some())
        || tree.sources().any(|(path, _)| {
            let module = path.strip_prefix(&tests).and_then(|path| path.split_once('/'));
            module.is_some_and(|(_, module)| {
                module.strip_prefix(test).is_some_and(|end| end == ".rs" || end == "/mod.rs")
            })
        })
}

/// Returns a cell's displayed text: links without their targets.
fn shown_text(cell: &str) -> String {
    let mut parts = cell.split("](");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest))
}

/// Returns the number of a table's options that are honoured, and of those kept without effect.
fn count(tables: &str, name: &str) -> (usize, usize) {
    let head = format!("    {name} in ");
    let rows = tables.lines().skip_while(|line| !line.starts_with(&head)).take_while(|line| *line != "    }");
    rows.fold((0, 0), |(honoured, kept), line| {
        let has = |word| usize::from(line.contains(word));
        (honoured + has(", honoured, \""), kept + has(", kept, \""))
    })
}

/// Returns the numbers in the row of a name: known, honoured, without effect, refused.
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
        said(
            super::check,
            &[
                (&path, &tables),
                ("judge/src/main.rs", ""),
                ("crates/x/tests/here.rs", ""),
                ("crates/x/tests/dir/main.rs", ""),
                ("crates/x/tests/dir/module.rs", ""),
                ("crates/x/tests/dir/parts/mod.rs", ""),
                ("crates/x/src/a.rs", ""),
                (DOCUMENT, document),
            ],
        )
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
        let good = "| `Get` | done | `Db::get` | `judge/src/main.rs`, `x/here`, `x/dir`, `x/module`, `x/parts`, `x/src/a.rs` |\n";
        assert_eq!(found(&(right.clone() + good)), Vec::<String>::new());
        assert_eq!(found(&(right.clone() + "`judge/src/main.rs`, `Db::get`")), Vec::<String>::new());
        assert_eq!(
            found(&(right.clone() + "`crates/x/tests/gone.rs`")),
            ["docs/compatibility.md: `crates/x/tests/gone.rs` is not there"]
        );
        assert_eq!(
            found(&(right.clone() + "| `Get` | done |  | `x/gone` |\n")),
            ["docs/compatibility.md: `x/gone` is not there"]
        );
        let long = "x".repeat(101);
        assert_eq!(
            found(&(right + &format!("| `Get` | done | [y]({long}) {long} | |\n"))),
            [format!("docs/compatibility.md: a cell of over 100 characters: [y]({long}) {long}")]
        );
        assert_eq!(
            found(&rows("| `DBOptions` | 2 | 2 | 0 | 0 |\n")),
            ["docs/compatibility.md: `DBOptions`: 1 are honoured and 1 are not"]
        );
        assert_eq!(found(&rows("")), ["docs/compatibility.md: no counts of `DBOptions`"]);
    }
}
