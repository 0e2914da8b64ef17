//! OPTIONS files: parsing and printing a database's options as text.
//!
//! ```text
//! [Version]
//!   rocksdb_version=11.8.1
//!   options_file_version=1.1
//!
//! [DBOptions]
//!   name=value
//!
//! [CFOptions "default"]
//!   name=value
//!
//! [TableOptions/BlockBasedTable "default"]
//!   name=value
//! ```
//!
//! In: the file's bytes. Out: an [`OptionsFile`], or an [`OptionError`] with the line. And back.
//!
//! Invariants: `default` is the first column family; no section occurs twice; a table section
//! follows that of its column family.
//!
//! Compat: `#` starts a comment unless a backslash precedes it. An option that no table has is an
//! error, unless the file was written by a newer RocksDB than this crate knows, or the caller
//! passes [`UnknownOptions::Keep`]; it is then kept in `unknown`.
use super::block_based::BlockBasedTableOptions;
use super::column_family::{BLOCK_BASED_TABLE, ColumnFamilyOptions};
use super::db::DbOptions;
use super::error::{OptionError, OptionErrorKind};
use super::table::{Assigned, OptionSet};
use super::text;
use crate::file_name::FileName;
use std::collections::{HashMap, HashSet};

/// The RocksDB release whose options the tables contain; files of newer releases may have unknown
/// options.
pub const KNOWN_VERSION: [u32; 3] = [11, 8, 1];

/// Name of the column family whose section is first.
const DEFAULT: &str = "default";

const DB_TITLE: &str = "[DBOptions]";

/// Policy for options that no table has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownOptions {
    /// Reject them, unless a newer RocksDB wrote the file.
    #[default]
    RefuseUnlessNewer,
    /// Keep them as text.
    Keep,
}

/// The options of one column family of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedColumnFamily {
    /// The family's name.
    pub name: String,
    /// The family's options, including those of its tables.
    pub options: ColumnFamilyOptions,
}

/// An option that no table has, kept as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOption {
    /// The section that contains it, with its argument.
    pub section: String,
    /// Its name.
    pub name: String,
    /// Its text.
    pub value: String,
    /// Its line, counted from 1.
    pub line: u32,
}

/// An OPTIONS file.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionsFile {
    /// The release that wrote the file.
    pub rocksdb_version: [u32; 3],
    /// The version of the file's format.
    pub options_file_version: [u32; 2],
    /// The database's options.
    pub db: DbOptions,
    /// The column families' options, `default` first.
    pub column_families: Vec<NamedColumnFamily>,
    /// Options that no table has and that were kept. They are not printed.
    pub unknown: Vec<UnknownOption>,
}

impl OptionsFile {
    /// Returns a file of this release with these options.
    pub fn new(db: DbOptions, column_families: Vec<NamedColumnFamily>) -> OptionsFile {
        OptionsFile {
            rocksdb_version: KNOWN_VERSION,
            options_file_version: [1, 1],
            db,
            column_families,
            unknown: Vec::new(),
        }
    }

    /// Returns the options of the column family with this name.
    pub fn column_family(&self, name: &str) -> Option<&ColumnFamilyOptions> {
        self.column_families.iter().find(|family| family.name == name).map(|family| &family.options)
    }

    /// Parses a file's bytes.
    ///
    /// # Errors
    /// If the text is no OPTIONS file, sections are missing or repeated, or options are unknown,
    /// malformed or out of range. The error has the line.
    pub fn parse(bytes: &[u8], unknown: UnknownOptions) -> Result<OptionsFile, OptionError> {
        let mut parser = Parser {
            file: OptionsFile::new(DbOptions::default(), Vec::new()),
            policy: unknown,
            section: Part::Outside,
            title: String::new(),
            seen: HashSet::new(),
            named: HashSet::new(),
            families: HashMap::new(),
        };
        parser.file.rocksdb_version = [0; 3];
        for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
            let Ok(line) = std::str::from_utf8(line) else {
                return Err(syntax("the line is not UTF-8").within("", number));
            };
            parser.line(strip_comment(line).trim(), number)?;
        }
        parser.finish()
    }

    /// Returns the file's text.
    pub fn print(&self) -> String {
        let mut out = self.head();
        print_section(&mut out, DB_TITLE, &self.db.lines());
        for family in &self.column_families {
            print_family(&mut out, family, |options| options.lines(), |options| options.lines());
        }
        out
    }

    fn head(&self) -> String {
        let mut out = String::from("# This is a RocksDB option file.\n#\n# Written by KarstDB.\n#\n\n");
        let [major, minor, patch] = self.rocksdb_version;
        out += &format!("[Version]\n  rocksdb_version={major}.{minor}.{patch}\n");
        let [major, minor] = self.options_file_version;
        out += &format!("  options_file_version={major}.{minor}\n\n");
        out
    }
}

/// Returns the head of a file that contains only options that differ from the defaults;
/// [`changed_sections`] of each column family follow, `default` first.
///
/// Compat: RocksDB rejects an OPTIONS file with a name that it does not know, also within braces,
/// and each release knows more names than the last. An omitted option has the reader's default.
/// Therefore a file with only the changed options is readable by the most releases.
pub fn changed_head(db: &DbOptions) -> String {
    let mut out = OptionsFile::new(db.clone(), Vec::new()).head();
    print_section(&mut out, DB_TITLE, &changed_lines(db));
    out
}

/// Returns the sections of one column family in such a file.
pub fn changed_sections(family: &NamedColumnFamily) -> String {
    let mut out = String::new();
    print_family(&mut out, family, changed_lines, changed_lines);
    out
}

fn print_family(
    out: &mut String,
    family: &NamedColumnFamily,
    lines: impl Fn(&ColumnFamilyOptions) -> Vec<String>,
    table_lines: impl Fn(&BlockBasedTableOptions) -> Vec<String>,
) {
    let name = text::escape(&family.name);
    print_section(out, &format!("[CFOptions \"{name}\"]"), &lines(&family.options));
    let tables = &family.options.table_factory;
    if tables.is_block_based() {
        let title = format!("[TableOptions/{BLOCK_BASED_TABLE} \"{name}\"]");
        print_section(out, &title, &table_lines(&tables.block_based));
    }
}

/// Returns the printed options that differ from the defaults; of values in braces only the fields
/// that differ.
fn changed_lines<O: OptionSet>(options: &O) -> Vec<String> {
    let default = O::default();
    let changes = options.changes_from(&default).filter(|(info, ..)| info.printed);
    changes.map(|(info, value, default)| format!("{}={}", info.name, changed_part(value, &default))).collect()
}

/// Returns `value`, reduced to the fields that differ from `default` if it is in braces.
fn changed_part(value: String, default: &str) -> String {
    let Some(changed) = text::differing_fields(&value, default) else { return value };
    let text: String = changed.iter().map(|(name, value)| format!("{name}={value};")).collect();
    format!("{{{text}}}")
}

/// Returns the name of the current OPTIONS file among the names in a database's directory: the one
/// with the largest number.
pub fn latest_options_file<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let numbered = names.into_iter().filter_map(|name| match FileName::parse(name) {
        Some(FileName::Options(number)) => Some((number, name)),
        _ => None,
    });
    numbered.max().map(|(_, name)| name)
}

fn print_section(out: &mut String, title: &str, lines: &[String]) {
    *out += title;
    out.push('\n');
    for line in lines {
        *out += "  ";
        *out += line;
        out.push('\n');
    }
    out.push('\n');
}

fn syntax(what: impl Into<String>) -> OptionError {
    OptionError::new(OptionErrorKind::Syntax, "", what)
}

/// Returns the line up to its comment.
fn strip_comment(line: &str) -> &str {
    let bytes = line.as_bytes();
    let comment = (0..bytes.len()).find(|&at| bytes[at] == b'#' && (at == 0 || bytes[at - 1] != b'\\'));
    &line[..comment.unwrap_or(line.len())]
}

/// The section that a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Outside,
    Version,
    Db,
    /// Section of the family at this index.
    Family(usize),
    Tables(usize),
    /// Section of an unknown table format, whose options are kept as unknown ones.
    OtherTables,
}

struct Parser {
    file: OptionsFile,
    policy: UnknownOptions,
    section: Part,
    /// The title of `section`, as printed between brackets.
    title: String,
    /// The titles seen so far.
    seen: HashSet<String>,
    /// The options of `section` so far.
    named: HashSet<String>,
    /// Index of each family in `file.column_families`, by name.
    families: HashMap<String, usize>,
}

impl Parser {
    fn line(&mut self, line: &str, number: u32) -> Result<(), OptionError> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(title) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            return self.start_section(title.trim()).map_err(|error| error.within(title, number));
        }
        let Some((name, value)) = line.split_once('=') else {
            let error = syntax(format!("expected name=value, found {line:?}"));
            return Err(error.within(&*self.title, number));
        };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() {
            return Err(syntax("a value has no name").within(&*self.title, number));
        }
        // Compat: of several values of one name the first counts, unlike in option strings.
        if !self.named.insert(name.to_owned()) {
            return Ok(());
        }
        self.set(name, value, number).map_err(|error| error.within(&*self.title, number))
    }

    fn start_section(&mut self, title: &str) -> Result<(), OptionError> {
        if self.seen.contains(title) {
            return Err(syntax("the section comes a second time"));
        }
        let (kind, argument) = match title.split_once('"') {
            Some((kind, argument)) => {
                let argument = argument.strip_suffix('"').ok_or_else(|| syntax("a quote is not closed"))?;
                (kind.trim(), text::unescape(argument))
            }
            None => (title, String::new()),
        };
        self.section = match kind {
            "Version" => Part::Version,
            "DBOptions" => Part::Db,
            "CFOptions" => self.start_family(argument)?,
            _ => match kind.strip_prefix("TableOptions/") {
                Some(format) => self.start_tables(format, &argument)?,
                None => return Err(syntax("unknown section")),
            },
        };
        title.clone_into(&mut self.title);
        self.seen.insert(title.to_owned());
        self.named.clear();
        Ok(())
    }

    fn start_family(&mut self, name: String) -> Result<Part, OptionError> {
        let index = self.file.column_families.len();
        if (index == 0) != (name == DEFAULT) {
            return Err(syntax("column family \"default\" must come first, and once"));
        }
        self.families.insert(name.clone(), index);
        self.file.column_families.push(NamedColumnFamily { name, options: ColumnFamilyOptions::default() });
        Ok(Part::Family(index))
    }

    fn start_tables(&mut self, format: &str, family: &str) -> Result<Part, OptionError> {
        let Some(&index) = self.families.get(family) else {
            return Err(syntax(format!("table options of {family:?} come before its column family")));
        };
        Ok(if format == BLOCK_BASED_TABLE { Part::Tables(index) } else { Part::OtherTables })
    }

    fn set(&mut self, name: &str, value: &str, line: u32) -> Result<(), OptionError> {
        let result = match self.section {
            Part::Outside => return Err(syntax("an option stands before the first section")),
            Part::Version => return self.set_version(name, value),
            Part::Db => self.file.db.set(name, value),
            Part::Family(index) => self.file.column_families[index].options.set(name, value),
            Part::Tables(index) => {
                self.file.column_families[index].options.table_factory.block_based.set(name, value)
            }
            Part::OtherTables => Err(OptionError::new(OptionErrorKind::Unknown, name, "")),
        };
        match result {
            Ok(Assigned::Set(_) | Assigned::Retired) => Ok(()),
            Err(error) if error.kind == OptionErrorKind::Unknown && self.keeps_unknown() => {
                let section = self.title.clone();
                let (name, value) = (name.to_owned(), value.to_owned());
                self.file.unknown.push(UnknownOption { section, name, value, line });
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn keeps_unknown(&self) -> bool {
        self.policy == UnknownOptions::Keep
            || self.section == Part::OtherTables
            || self.file.rocksdb_version > KNOWN_VERSION
    }

    fn set_version(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        match name {
            "rocksdb_version" => self.file.rocksdb_version = parse_version(name, value)?,
            "options_file_version" => {
                self.file.options_file_version = parse_version(name, value)?;
                if self.file.options_file_version[0] != 1 {
                    let what = format!("format {value} is not known, only 1.x");
                    return Err(OptionError::new(OptionErrorKind::Invalid, name, what));
                }
            }
            // Compat: RocksDB ignores all other names in this section.
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<OptionsFile, OptionError> {
        if !self.seen.contains("DBOptions") {
            return Err(syntax("the file has no section [DBOptions]"));
        }
        if self.file.column_families.is_empty() {
            return Err(syntax("the file has no section [CFOptions \"default\"]"));
        }
        Ok(self.file)
    }
}

/// Parses a version of up to `N` numbers separated by points.
fn parse_version<const N: usize>(name: &str, value: &str) -> Result<[u32; N], OptionError> {
    let wrong = || OptionError::new(OptionErrorKind::Invalid, name, format!("{value:?} is no version"));
    let mut version = [0; N];
    for (at, number) in value.split('.').enumerate() {
        *version.get_mut(at).ok_or_else(wrong)? = number.parse().map_err(|_| wrong())?;
    }
    Ok(version)
}
