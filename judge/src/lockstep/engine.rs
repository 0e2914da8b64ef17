//! Operations and answers: the interface through which KarstDB and RocksDB are driven, with answers
//! that can be compared.

use super::ingest::Ways;
use karst_testkit::kills::copy;
use karst_testkit::script::Write;
use karst_testkit::subject::{Move, ReadSettings};
use karst_testkit::{Entry, show};
use std::fmt;
use std::path::{Path, PathBuf};

/// An error: its kind is compared, its text is for people.
#[derive(Clone)]
pub(super) struct Failure {
    pub(super) kind: &'static str,
    pub(super) text: String,
}

impl Failure {
    /// True if the engine refused the request.
    pub(super) fn is_refusal(&self) -> bool {
        ["invalid argument", "not supported"].contains(&self.kind)
    }
}

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.text)
    }
}

pub(super) type Outcome<T> = Result<T, Failure>;

/// Result of an operation.
#[derive(Clone, PartialEq)]
pub(super) enum Answer {
    Done,
    Value(Option<Vec<u8>>),
    Values(Vec<Option<Vec<u8>>>),
    /// Entry at the iterator after each of its moves; None if it is not valid.
    Walked(Vec<Option<Entry>>),
    /// Answer of key_may_exist, and the value if it returned one.
    May(bool, Option<Vec<u8>>),
    Number(Option<u64>),
    Failed(Failure),
}

impl From<Outcome<Answer>> for Answer {
    fn from(outcome: Outcome<Answer>) -> Self {
        outcome.unwrap_or_else(Answer::Failed)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |v: &Option<Vec<u8>>| v.as_ref().map_or("nothing".into(), |v| show(v));
        match self {
            Answer::Done => f.write_str("done"),
            Answer::Value(found) => f.write_str(&value(found)),
            Answer::Values(found) => f.debug_list().entries(found.iter().map(value)).finish(),
            Answer::Walked(steps) => {
                let step = |at: &Option<Entry>| match at {
                    Some((key, value)) => format!("{}={}", show(key), show(value)),
                    None => "nowhere".into(),
                };
                f.debug_list().entries(steps.iter().map(step)).finish()
            }
            Answer::May(may, with) => write!(f, "may be there: {may}, with {}", value(with)),
            Answer::Number(number) => write!(f, "{number:?}"),
            Answer::Failed(failure) => write!(f, "{failure:?}"),
        }
    }
}

/// Options of a read. Families, snapshots, iterators and transactions have numbers given by the
/// driver.
#[derive(Clone, Default)]
pub(super) struct Read {
    pub(super) snapshot: Option<usize>,
    pub(super) settings: ReadSettings,
    pub(super) total_order: bool,
    pub(super) auto_prefix: bool,
    pub(super) no_fill: bool,
    pub(super) readahead: usize,
    pub(super) no_async: bool,
    pub(super) pin: bool,
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.snapshot.iter().map(|s| format!("snapshot {s}")).collect();
        let bound =
            |name: &str, key: &Option<Vec<u8>>| key.as_ref().map(|key| format!("{name} {}", show(key)));
        parts.extend(bound("from", &self.settings.lower_bound));
        parts.extend(bound("to", &self.settings.upper_bound));
        let flags = [
            ("same prefix", self.settings.prefix_same_as_start),
            ("total order", self.total_order),
            ("auto prefix", self.auto_prefix),
            ("no fill", self.no_fill),
            ("readahead", self.readahead > 0),
            ("no async", self.no_async),
            ("pin", self.pin),
        ];
        parts.extend(flags.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_string()));
        write!(f, "({})", parts.join(", "))
    }
}

/// A change to the contents.
#[derive(Clone)]
pub(super) enum Change {
    Plain(Write),
    /// Columns by name, sorted.
    Entity {
        family: usize,
        key: Vec<u8>,
        columns: Vec<(Vec<u8>, Vec<u8>)>,
    },
}

impl Change {
    pub(super) fn family(&self) -> usize {
        match self {
            Change::Plain(
                Write::Put { family, .. }
                | Write::Delete { family, .. }
                | Write::SingleDelete { family, .. }
                | Write::DeleteRange { family, .. }
                | Write::Merge { family, .. },
            )
            | Change::Entity { family, .. } => *family,
        }
    }

    /// The key, or the begin of a range.
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Change::Plain(
                Write::Put { key, .. }
                | Write::Delete { key, .. }
                | Write::SingleDelete { key, .. }
                | Write::DeleteRange { begin: key, .. }
                | Write::Merge { key, .. },
            )
            | Change::Entity { key, .. } => key,
        }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.family())?;
        match self {
            Change::Plain(Write::Put { key, value, .. }) => write!(f, "put {}={}", show(key), show(value)),
            Change::Plain(Write::Delete { key, .. }) => write!(f, "delete {}", show(key)),
            Change::Plain(Write::SingleDelete { key, .. }) => write!(f, "single {}", show(key)),
            Change::Plain(Write::DeleteRange { begin, end, .. }) => {
                write!(f, "range {}..{}", show(begin), show(end))
            }
            Change::Plain(Write::Merge { key, operand, .. }) => {
                write!(f, "merge {}+{}", show(key), show(operand))
            }
            Change::Entity { key, columns, .. } => {
                let columns: Vec<String> =
                    columns.iter().map(|(name, value)| format!("{}={}", show(name), show(value))).collect();
                write!(f, "entity {}={{{}}}", show(key), columns.join(" "))
            }
        }
    }
}

/// A key whose debug form is text where it is printable.
#[derive(Clone, PartialEq)]
pub(super) struct Key(pub(super) Vec<u8>);

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(&self.0))
    }
}

/// A sequence of moves of an iterator.
#[derive(Clone)]
pub(super) struct Moves(pub(super) Vec<Move>);

impl fmt::Debug for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = |step: &Move| match step {
            Move::Seek(key) => format!("seek {}", show(key)),
            Move::SeekForPrev(key) => format!("seek for prev {}", show(key)),
            other => format!("{other:?}").to_lowercase(),
        };
        f.write_str(&self.0.iter().map(step).collect::<Vec<_>>().join(", "))
    }
}

/// A family to open: the driver's number, its name and its complete options.
pub(super) type FamilyToOpen = (usize, String, String);

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Write {
        changes: Vec<Change>,
        sync: bool,
        unlogged: bool,
    },
    Get {
        family: usize,
        key: Key,
        read: Read,
    },
    /// By the call for one family if all keys belong to one.
    MultiGet {
        keys: Vec<(usize, Key)>,
        read: Read,
    },
    MayExist {
        family: usize,
        key: Key,
        read: Read,
    },
    /// Opens an iterator under `number`.
    OpenIterator {
        number: usize,
        family: usize,
        read: Read,
    },
    Walk {
        number: usize,
        moves: Moves,
    },
    CloseIterator {
        number: usize,
    },
    Snapshot {
        number: usize,
    },
    Release {
        number: usize,
    },
    CreateFamily {
        number: usize,
        name: String,
        options: String,
    },
    DropFamily {
        number: usize,
    },
    Flush {
        families: Vec<usize>,
    },
    /// With `force` the last level is rewritten too.
    Compact {
        family: usize,
        begin: Option<Key>,
        end: Option<Key>,
        force: bool,
        exclusive: bool,
    },
    SetOptions {
        family: usize,
        name: String,
        value: String,
    },
    FlushWal {
        sync: bool,
    },
    /// Opens a secondary; with `swapped` its primary is the other engine's database.
    OpenSecondary {
        swapped: bool,
        families: Vec<FamilyToOpen>,
    },
    CatchUp,
    /// Reads all entries of a family in both directions, and some keys.
    ReadSecondary {
        family: usize,
        keys: Vec<Key>,
    },
    CloseSecondary,
    /// Exports a family's tables under a number.
    Export {
        family: usize,
        number: usize,
    },
    /// Imports an export of `source` as a new family: RocksDB's export, or KarstDB's.
    Import {
        export: usize,
        source: usize,
        number: usize,
        name: String,
        options: String,
        of_rocksdb: bool,
    },
    /// Writes a file of ascending entries outside of the database.
    WriteFile {
        number: usize,
        options: String,
        entries: Vec<Change>,
    },
    /// Ingests a file; with `swapped` the one that the other engine wrote.
    Ingest {
        family: usize,
        number: usize,
        entries: Vec<Change>,
        ways: Ways,
        swapped: bool,
    },
    Settle,
    Property {
        family: usize,
        name: &'static str,
    },
    Begin {
        number: usize,
        name: String,
        snapshot: bool,
    },
    Change {
        transaction: usize,
        change: Change,
    },
    GetInside {
        transaction: usize,
        family: usize,
        key: Key,
        for_update: bool,
    },
    SavePoint {
        transaction: usize,
    },
    RollbackToSavePoint {
        transaction: usize,
    },
    Prepare {
        transaction: usize,
    },
    Commit {
        transaction: usize,
    },
    Rollback {
        transaction: usize,
    },
}

impl Op {
    /// Name of its kind, for counts and `--without`.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Op::Write { .. } => "write",
            Op::Get { .. } => "get",
            Op::MultiGet { .. } => "multi_get",
            Op::MayExist { .. } => "key_may_exist",
            Op::OpenIterator { .. } => "iterator",
            Op::Walk { .. } => "walk",
            Op::CloseIterator { .. } => "close_iterator",
            Op::Snapshot { .. } => "snapshot",
            Op::Release { .. } => "release",
            Op::CreateFamily { .. } => "create_family",
            Op::DropFamily { .. } => "drop_family",
            Op::Flush { .. } => "flush",
            Op::Compact { .. } => "compact_range",
            Op::SetOptions { .. } => "set_options",
            Op::FlushWal { .. } => "flush_wal",
            Op::OpenSecondary { .. } => "open_secondary",
            Op::CatchUp => "catch_up",
            Op::ReadSecondary { .. } => "read_secondary",
            Op::CloseSecondary => "close_secondary",
            Op::Export { .. } => "export",
            Op::Import { .. } => "import",
            Op::WriteFile { .. } => "write_file",
            Op::Ingest { ways, .. } if ways.behind => "ingest_behind",
            Op::Ingest { .. } => "ingest",
            Op::Settle => "wait_for_compact",
            Op::Property { .. } => "property",
            Op::Begin { .. } => "begin",
            Op::Change { .. } => "change",
            Op::GetInside { .. } => "get_inside",
            Op::SavePoint { .. } => "save_point",
            Op::RollbackToSavePoint { .. } => "rollback_to_save_point",
            Op::Prepare { .. } => "prepare",
            Op::Commit { .. } => "commit",
            Op::Rollback { .. } => "rollback",
        }
    }
}

/// Write policy of a database with transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    WriteCommitted,
    WritePrepared,
}

/// Arguments of opening a database.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) database: String,
    /// Directories of KarstDB and of RocksDB.
    pub(super) directories: [PathBuf; 2],
    /// The existing families.
    pub(super) families: Vec<FamilyToOpen>,
    pub(super) transactions: Option<Policy>,
    /// Ignores the database's own OPTIONS file.
    pub(super) ignore_options_file: bool,
    /// Prepared transactions by number and name.
    pub(super) prepared: Vec<(usize, String)>,
}

/// An open database of one engine.
pub(super) trait Engine {
    /// Carries out one operation to its end.
    fn apply(&mut self, op: &Op) -> Answer;
    /// The names of prepared transactions, sorted.
    fn prepared(&self) -> Vec<String>;
    /// Copies the directory in the state in which a kill of the process would leave it now.
    fn copy_as_killed(&mut self, from: &Path, to: &Path) -> Result<(), String>;
    /// Closes the database. Prepared transactions stay prepared.
    fn close(self: Box<Self>) -> Outcome<()>;
}

/// Copies a directory, again from the start if a file was removed meanwhile.
pub(super) fn copy_again(from: &Path, to: &Path) -> Result<(), String> {
    loop {
        match copy(from, to) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            copied => return copied.map_err(|e| format!("{}: {e}", from.display())),
        }
    }
}
