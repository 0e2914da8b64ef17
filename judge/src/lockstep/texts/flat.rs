//! Printed options as one value for each name, so that the engines' forms compare: nested options
//! are taken apart, and an option at its default compares equal with the other's default.

use super::parse::Kind;
use karst_format::options::text::{split, split_list};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Values by name; those of nested options have the names of both, with a point between.
#[derive(Clone, Debug, Default)]
pub(super) struct Flat(BTreeMap<String, String>);

impl Flat {
    /// Takes printed options apart; the lines of a text are of a database and of a family.
    pub(super) fn of(kind: Kind, printed: &str) -> Result<Flat, String> {
        let mut flat = Flat::default();
        let sections = match kind {
            Kind::Database => ["db"].as_slice(),
            Kind::Family => &["cf"],
            Kind::Table => &["cf.table_factory"],
            Kind::Both | Kind::File => &["db", "cf"],
        };
        for (section, text) in sections.iter().zip(printed.split('\n')) {
            flat.take(section, text).map_err(|e| format!("{text:?}: {e}"))?;
        }
        Ok(flat)
    }

    fn take(&mut self, path: &str, text: &str) -> Result<(), String> {
        for (name, value) in split(text).map_err(|e| e.to_string())? {
            self.put(&format!("{path}.{name}"), value)?;
        }
        Ok(())
    }

    fn put(&mut self, path: &str, value: &str) -> Result<(), String> {
        let inside = value.strip_prefix('{').and_then(|v| v.strip_suffix('}')).map(str::trim);
        match inside {
            Some(inside) if inside.contains('=') && !inside.starts_with('{') => self.take(path, inside),
            // Structs of a list have their fields in the order of their names.
            Some(inside) if inside.starts_with('{') => {
                let mut items = String::new();
                for item in split_list(inside) {
                    let mut fields = split(item).map_err(|e| e.to_string())?;
                    fields.sort_unstable();
                    let _ = write!(items, "{fields:?}");
                }
                self.0.insert(path.to_owned(), items);
                Ok(())
            }
            // An object without properties is its name.
            Some(inside) if inside.is_empty() => Ok(()),
            _ => {
                let path = path.strip_suffix(".id").unwrap_or(path);
                let value = inside.filter(|inside| !inside.contains(['{', ':'])).unwrap_or(value);
                self.0.insert(path.to_owned(), number(value));
                Ok(())
            }
        }
    }
}

/// Prints a number in one form, and the absence of an object as nothing.
fn number(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(number) if value.contains('.') => format!("{number:.6}"),
        _ if value == "nullptr" => String::new(),
        _ => value.to_owned(),
    }
}

/// Returns the first options that differ, if any; of each pair RocksDB's are first.
pub(super) fn differing(flat: &[Flat; 2], defaults: &[Flat; 2]) -> Option<String> {
    let names: BTreeSet<&String> = flat.iter().flat_map(|flat| flat.0.keys()).collect();
    let differs = |name: &&String| {
        let [rocks, karst] = [0, 1].map(|at| flat[at].0.get(*name).map_or("", String::as_str));
        let [rocks_default, karst_default] =
            [0, 1].map(|at| defaults[at].0.get(*name).map_or("", String::as_str));
        let unchanged = rocks == rocks_default && karst == karst_default;
        (rocks != karst && !unchanged).then(|| format!("{name}: RocksDB {rocks:?}, KarstDB {karst:?}"))
    };
    let all: Vec<String> = names.iter().filter_map(differs).take(3).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
