//! The OPTIONS file of a new database: only what differs from the defaults.
//!
//! Compat: RocksDB refuses an OPTIONS file with a name that it does not know, also inside of braces, and each release knows more names than the last. An
//! option that is left out has the reader's default. So a file that names only what was chosen is read by the most releases.

use crate::options::{ColumnFamilyOptions, DbOptions};
use karst_format::options::text;
use karst_format::options::{NamedColumnFamily, OptionsFile};

/// The file's text.
pub(crate) fn options_text(db: &DbOptions, families: Vec<NamedColumnFamily>) -> String {
    let default = |family: &NamedColumnFamily| NamedColumnFamily {
        name: family.name.clone(),
        options: ColumnFamilyOptions::default(),
    };
    let defaults = OptionsFile::new(DbOptions::default(), families.iter().map(default).collect()).print();
    let full = OptionsFile::new(db.clone(), families).print();
    let mut section = "";
    let mut out = String::new();
    for line in full.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let kept = match line.strip_prefix("  ").and_then(|option| option.split_once('=')) {
            Some((name, value)) if section != "[Version]" => {
                let default = default_of(&defaults, section, name);
                let Some(value) = changed_part(value, default) else { continue };
                format!("  {name}={value}")
            }
            _ => line.to_owned(),
        };
        out.push_str(&kept);
        out.push('\n');
    }
    out
}

/// An option's value in the text of another file.
fn default_of<'t>(file: &'t str, section: &str, name: &str) -> Option<&'t str> {
    let lines = file.lines().skip_while(|line| *line != section).skip(1);
    let options = lines.take_while(|line| !line.starts_with('['));
    options
        .filter_map(|line| line.trim_start().split_once('='))
        .find(|(n, _)| *n == name)
        .map(|(_, value)| value)
}

/// What of `value` is not `default`; of values in braces only the fields that differ.
fn changed_part(value: &str, default: Option<&str>) -> Option<String> {
    if default == Some(value) {
        return None;
    }
    let fields = |value: &str| -> Option<Vec<(String, String)>> {
        let inside = value.strip_prefix('{')?.strip_suffix('}')?;
        let pairs = text::split(inside).ok()?;
        Some(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    };
    match (fields(value), default.and_then(fields)) {
        (Some(fields), Some(defaults)) => {
            let changed = fields.into_iter().filter(|field| !defaults.contains(field));
            let text: String = changed.map(|(name, value)| format!("{name}={value};")).collect();
            Some(format!("{{{text}}}"))
        }
        _ => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_format::options::{OptionSet, UnknownOptions};

    #[test]
    fn only_what_was_chosen_is_named_and_it_reads_back() {
        let db = DbOptions { max_open_files: 77, ..DbOptions::default() };
        let mut options = ColumnFamilyOptions::default();
        options.set_all("compression_opts={level=3;max_dict_bytes=100};prefix_extractor=fixed:3").unwrap();
        options.table_factory.block_based.block_size = 999;
        let families = ["default", "other [CFOptions]"].map(|name| NamedColumnFamily {
            name: name.to_owned(),
            options: if name == "default" { options.clone() } else { ColumnFamilyOptions::default() },
        });
        let text = options_text(&db, families.to_vec());
        let named: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  ")).skip(2).collect();
        assert_eq!(
            named,
            [
                "max_open_files=77",
                "compression_opts={level=3;max_dict_bytes=100;}",
                "prefix_extractor=fixed:3",
                "block_size=999"
            ],
            "{text}"
        );
        let back = OptionsFile::parse(text.as_bytes(), UnknownOptions::RefuseUnlessNewer).unwrap();
        assert_eq!((back.db, back.column_families), (db, families.to_vec()));
    }
}
