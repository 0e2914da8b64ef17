//! Texts of options, from the tables that declare them: each option by its type, with values in and
//! out of range, and the syntax around it in many forms.

use super::parse::Kind;
use super::pools::{BOOLS, DOUBLES, INTEGERS, STRINGS, choices, fields, objects};
use karst_format::options::{BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, OptionInfo, OptionSet};
use karst_testkit::random::Random;
use std::fmt::Write as _;

/// One drawn option.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) name: String,
    pub(super) value: String,
    /// The option's type; empty for an unknown name.
    pub(super) kind: &'static str,
}

/// One drawn text.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) kind: Kind,
    /// Options of the database, of the family, and of tables for a file; the first of all for
    /// others.
    pub(super) parts: [Vec<Assignment>; 3],
    /// The text, with its syntax.
    whole: String,
    pub(super) ignore_unknown: bool,
    /// Release that wrote the file.
    pub(super) version: [u32; 3],
}

impl Text {
    pub(super) fn whole(&self) -> String {
        self.whole.clone()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Assignment> {
        self.parts.iter().flatten()
    }

    pub(super) fn names(&self) -> String {
        self.all().map(|one| one.name.as_str()).collect::<Vec<_>>().join("+")
    }
}

/// Returns the text of an OPTIONS file.
pub(super) fn file(
    [major, minor, patch]: [u32; 3],
    db: &[Assignment],
    family: &[Assignment],
    table: &[Assignment],
) -> String {
    let mut text =
        format!("[Version]\n  rocksdb_version={major}.{minor}.{patch}\n  options_file_version=1.1\n");
    let sections = [
        ("[DBOptions]", db),
        ("[CFOptions \"default\"]", family),
        ("[TableOptions/BlockBasedTable \"default\"]", table),
    ];
    for (title, options) in sections {
        let _ = writeln!(text, "\n{title}");
        for Assignment { name, value, .. } in options {
            let _ = writeln!(text, "  {name}={value}");
        }
    }
    text
}

pub(super) struct Drawing {
    random: Random,
}

impl Drawing {
    pub(super) fn new(random: Random) -> Self {
        Self { random }
    }

    fn of<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random.index(from.len())]
    }

    fn value(&mut self, name: &str, kind: &str) -> String {
        let listed = matches!(
            name,
            "compression_per_level"
                | "num_levels"
                | "max_bytes_for_level_multiplier_additional"
                | "file_temperature_age_thresholds"
        );
        if listed {
            return self.of(objects(name)).to_owned();
        }
        let names = choices(kind);
        if !names.is_empty() {
            return match self.random.below(8) {
                0 => self.of(&["kNoSuch", "", "0", "1"]).to_owned(),
                _ => self.of(&names).to_owned(),
            };
        }
        let parts = fields(kind);
        if !parts.is_empty() {
            return self.nested(kind, &parts);
        }
        let pool = match kind {
            "bool" => BOOLS,
            "uint8" | "int" | "uint32" | "int64" | "uint64" | "size" => INTEGERS,
            "double" => DOUBLES,
            "string" => STRINGS,
            _ => objects(name),
        };
        self.of(pool).to_owned()
    }

    fn nested(&mut self, kind: &str, parts: &[&'static OptionInfo]) -> String {
        let old: &[&str] = match kind {
            "CompressionOptions" => &[
                "4:5:6",
                "4:5:6:7",
                "4:5:6:7:8",
                "4:5:6:7:8:true",
                "4:5:6:7:8:2:true",
                "4:5",
                "4:5:x",
                "-14:-1:0:0:0:1:false:4096:true",
                "1:2:3:4:5:6:7:8:9:10",
            ],
            "FifoOptions" => &["1M", "1000"],
            _ => &["5"],
        };
        match self.random.below(10) {
            0 => self.of(old).to_owned(),
            1 => self.of(&["{}", "", "{ }", "{nosuch=1}", "{=1}", "{level}", "{;}"]).to_owned(),
            _ => {
                let mut text = String::from("{");
                for _ in 0..=self.random.below(2) {
                    let part = parts[self.random.index(parts.len())];
                    let value = self.value(part.name, part.kind);
                    let _ = write!(text, "{}={value};", part.name);
                }
                text.push('}');
                text
            }
        }
    }

    fn option<S: OptionSet>(&mut self) -> Assignment {
        let table = S::table();
        match self.random.below(40) {
            0 => Assignment { name: "no_such_option".into(), value: "1".into(), kind: "" },
            1 if !S::RETIRED.is_empty() => {
                let name = self.of(S::RETIRED);
                Assignment {
                    name: name.into(),
                    value: self.of(&["1", "", "x", "{}"]).into(),
                    kind: "retired",
                }
            }
            2 if !S::ALIASES.is_empty() => {
                let (alias, own) = S::ALIASES[self.random.index(S::ALIASES.len())];
                let kind = S::info(own).expect("aliases name options").kind;
                let value = self.value(alias, kind);
                Assignment { name: alias.into(), value, kind }
            }
            3 | 4 => {
                // A field by its path.
                let nested: Vec<_> =
                    table.iter().filter(|entry| !fields(entry.info.kind).is_empty()).collect();
                let Some(entry) = (!nested.is_empty()).then(|| nested[self.random.index(nested.len())])
                else {
                    return self.option::<S>();
                };
                let parts = fields(entry.info.kind);
                let part = parts[self.random.index(parts.len())];
                let value = self.value(part.name, part.kind);
                Assignment { name: format!("{}.{}", entry.info.name, part.name), value, kind: part.kind }
            }
            _ => {
                let info = &table[self.random.index(table.len())].info;
                let value = self.value(info.name, info.kind);
                Assignment { name: info.name.into(), value, kind: info.kind }
            }
        }
    }

    fn options<S: OptionSet>(&mut self) -> Vec<Assignment> {
        let count = if self.random.one_in(4) { 1 + self.random.below(4) } else { 1 };
        let mut all: Vec<_> = (0..count).map(|_| self.option::<S>()).collect();
        if self.random.one_in(12) {
            // The option twice: the later value counts.
            let mut again = all[0].clone();
            again.value = self.value(&again.name.clone(), again.kind);
            all.push(again);
        }
        all
    }

    /// Writes an option string in one of many forms.
    fn write(&mut self, options: &[Assignment]) -> String {
        let mut text = String::new();
        for (at, Assignment { name, value, .. }) in options.iter().enumerate() {
            if at > 0 {
                text.push_str(self.of(&[";", ";", "; ", " ; ", "\n;"]));
            }
            let between = self.of(&["=", "=", "=", "=", " = ", "\t= "]);
            let _ = match self.random.below(20) {
                0 if !value.starts_with('{') => write!(text, "{name}{between}{{{value}}}"),
                _ => write!(text, "{name}{between}{value}"),
            };
        }
        match self.random.below(30) {
            0 => format!("{{{text}}}"),
            1 => format!(" {{ {text} }} "),
            2 => format!("{text};;"),
            3 => format!("={text}"),
            4 => format!("{text};a"),
            5 => format!("{{{text}"),
            6 => format!("{text}}}"),
            7 => format!(";{text}"),
            8 | 9 | 10 => format!("{text};"),
            11 => format!(" {text} "),
            12 => format!("{text}; "),
            _ => text,
        }
    }

    /// Draws a text.
    pub(super) fn text(&mut self) -> Text {
        let kind = Kind::ALL[self.random.index(Kind::ALL.len())];
        let mut text = Text {
            kind,
            parts: Default::default(),
            whole: String::new(),
            ignore_unknown: false,
            version: [11, 8, 1],
        };
        match kind {
            Kind::Database => text.parts[0] = self.options::<DbOptions>(),
            Kind::Family => text.parts[0] = self.options::<ColumnFamilyOptions>(),
            Kind::Table => text.parts[0] = self.options::<BlockBasedTableOptions>(),
            Kind::Both => {
                text.parts[0] = self.options::<DbOptions>();
                text.parts[1] = self.options::<ColumnFamilyOptions>();
            }
            Kind::File => {
                text.ignore_unknown = self.random.one_in(2);
                let versions = [[11, 8, 1], [11, 8, 1], [7, 8, 3], [11, 9, 0], [12, 0, 0], [11, 8, 2]];
                text.version = versions[self.random.index(versions.len())];
                match self.random.below(3) {
                    0 => text.parts[0] = self.options::<DbOptions>(),
                    1 => text.parts[1] = self.options::<ColumnFamilyOptions>(),
                    _ => text.parts[2] = self.options::<BlockBasedTableOptions>(),
                }
                text.parts.iter_mut().flatten().for_each(|one| one.value = one.value.replace('\n', " "));
            }
        }
        text.whole = match kind {
            Kind::File => file(text.version, &text.parts[0], &text.parts[1], &text.parts[2]),
            _ => {
                let all: Vec<Assignment> = text.all().cloned().collect();
                self.write(&all)
            }
        };
        text
    }

    /// Draws options to open a database with: each alone is one that both engines may take.
    pub(super) fn opened(&mut self) -> Text {
        let mut text = Text {
            kind: Kind::Both,
            parts: Default::default(),
            whole: String::new(),
            ignore_unknown: false,
            version: [11, 8, 1],
        };
        text.parts[1] = self.options::<ColumnFamilyOptions>();
        if self.random.one_in(2) {
            text.parts[0] = self.options::<DbOptions>();
        }
        if self.random.one_in(3) {
            let table = self.options::<BlockBasedTableOptions>();
            let inside: String = table.iter().map(|one| format!("{}={};", one.name, one.value)).collect();
            let value = format!("{{{inside}}}");
            text.parts[1].push(Assignment {
                name: "block_based_table_factory".into(),
                value,
                kind: "table factory",
            });
        }
        text.whole = text.all().fold(String::new(), |all, one| format!("{all}{}={};", one.name, one.value));
        text
    }
}
