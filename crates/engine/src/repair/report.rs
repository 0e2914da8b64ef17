//! The report of a repair.

use karst_format::file_name::FileName;
use std::fmt;
use std::path::PathBuf;

/// Result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The column families that the database has now.
    pub column_families: Vec<RepairedFamily>,
    /// The authoritative MANIFEST, if one could be read.
    pub manifest: Option<PathBuf>,
    /// Reason why the trees were rebuilt from the tables; `None` if they are those of the MANIFEST.
    pub trees_made_anew: Option<String>,
    /// The OPTIONS file that the options come from; `None` if they are the caller's.
    pub options: Option<PathBuf>,
    /// Files that were moved to `lost`, or copied there because they are damaged in part.
    pub lost: Vec<LostFile>,
    /// Files that the database needs and that do not exist.
    pub missing: Vec<PathBuf>,
    /// Tables renumbered because another had the same number: old path and new path.
    pub renumbered: Vec<(PathBuf, PathBuf)>,
    /// Number of logs read.
    pub logs: u64,
    /// Entries in logs that belong to unknown column families.
    pub entries_of_unknown_families: u64,
}

/// A column family after a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairedFamily {
    /// The family's id.
    pub id: u32,
    /// The family's name.
    pub name: String,
    /// Number of its tables, including those made from logs.
    pub tables: u64,
    /// Bytes of its tables.
    pub bytes: u64,
    /// Number of its blob files.
    pub blob_files: u64,
    /// Tables merged into others, because only their entries show which is newer.
    pub merged: u64,
}

/// A file that a repair has moved or copied into `lost`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostFile {
    /// Its original path.
    pub path: PathBuf,
    /// Its path in `lost`.
    pub lost: PathBuf,
    /// Reason why it was moved or copied.
    pub reason: String,
}

impl RepairReport {
    /// The number of tables and blob files that left the database, including those whose entries
    /// are in other tables.
    pub fn tables_put_away(&self) -> usize {
        let is_stored = |file: &&LostFile| {
            use FileName::{Blob, LevelDbTable, Table};
            let name = file.path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
            matches!(name, Some(Table(_) | LevelDbTable(_) | Blob(_)))
        };
        self.lost.iter().filter(is_stored).count()
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.manifest, &self.trees_made_anew) {
            (Some(manifest), None) => writeln!(f, "trees: those of {}", manifest.display())?,
            (manifest, why) => {
                let of = manifest.as_ref().map_or("MANIFEST".into(), |path| path.display().to_string());
                let why = why.as_deref().unwrap_or_default();
                writeln!(f, "trees: rebuilt from the tables; {of}: {why}")?;
            }
        }
        match &self.options {
            Some(path) => writeln!(f, "options: {}", path.display())?,
            None => writeln!(f, "options: the caller's; no OPTIONS file can be used")?,
        }
        for family in &self.column_families {
            let RepairedFamily { id, name, tables, bytes, blob_files, merged } = family;
            write!(f, "column family {id} {name:?}: {tables} tables of {bytes} bytes")?;
            if *blob_files > 0 {
                write!(f, ", {blob_files} blob files")?;
            }
            if *merged > 0 {
                write!(f, "; {merged} tables were merged into others")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "logs: {}", self.logs)?;
        for (from, to) in &self.renumbered {
            writeln!(f, "renumbered: {} is {} now", from.display(), to.display())?;
        }
        for file in &self.lost {
            writeln!(f, "lost: {}: {}", file.lost.display(), file.reason)?;
        }
        for path in &self.missing {
            writeln!(f, "missing: {}", path.display())?;
        }
        if self.entries_of_unknown_families > 0 {
            let entries = self.entries_of_unknown_families;
            writeln!(f, "logs have {entries} entries of unknown column families")?;
        }
        Ok(())
    }
}
