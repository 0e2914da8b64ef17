//! Examples in the documentation name the crate `karstdb`, which users depend on.
//!
//! In: the sources of the crates. Out: visible lines of code blocks in `///` and `//!` that name
//! another crate of the workspace. A hidden line (`# use karst_engine as karstdb;`) gives the crate
//! that name where the example is compiled.

use super::{Tree, is_test_file};

/// A file whose example is for developers of the crate: it uses items that `karstdb` does not
/// export, and `karstdb`'s documentation does not include the page.
const NOT_SHOWN: &str = "crates/io/src/simulation/mod.rs";

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, text) in tree
        .sources()
        .filter(|(path, _)| path.starts_with("crates/") && !is_test_file(path) && *path != NOT_SHOWN)
    {
        found.extend(lines(text).map(|(line, name)| {
            format!(
                "{path}:{line}: an example names {name}, which users do not have: `use karstdb::..`, \
                 with a hidden `# use {name} as karstdb;` above"
            )
        }));
    }
}

/// Returns the lines that name another crate, each with its number from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            in_code = false;
            return None;
        };
        let doc = doc.trim_start();
        if doc.starts_with("```") {
            in_code = !in_code;
            return None;
        }
        let is_hidden = doc == "#" || doc.starts_with("# ");
        let name = named(doc).filter(|_| in_code && !is_hidden)?;
        Some((index + 1, name))
    })
}

/// Returns the crate `karst_..` that a line has a path of, if any.
fn named(line: &str) -> Option<&str> {
    line.split("::").take(line.matches("::").count()).find_map(|before| {
        let begin = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
        Some(&before[begin..]).filter(|name| name.starts_with("karst_"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::said;

    #[test]
    fn examples_that_users_cannot_compile_are_found() {
        let text = "/// See [`Db`](karst_engine::Db).\n\
            /// ```\n/// # use karst_engine as karstdb;\n/// # let a = karst_engine::b();\n\
            /// use karstdb::Db;\n/// ```\n/// karst_engine::Db\n\
            /// ```\n/// use karst_engine::Options;\n/// ```\nfn f() { karst_io::g() }\n\
            //! ```no_run\n//! let c = crate::d(karst_txn::e());\n//! ```\n";
        let found = said(check, &[("crates/engine/src/a.rs", text), ("xtask/src/b.rs", text)]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/engine/src/a.rs:9:") && found[0].contains("karst_engine"));
        assert!(found[1].starts_with("crates/engine/src/a.rs:13:") && found[1].contains("karst_txn"));
    }
}
