//! Copies of a database that is open for writing: what they are made from.
//!
//! In: an open database. Out: its files as of one moment, kept as long as somebody copies them, and
//! the copies themselves.
//!
//! | file | holds |
//! |---|---|
//! | `live_files` | deletions held back, the log locked, and the files that make up the database |
//! | `copying` | files that are copied or linked; directories that are there whole or not at all |
//! | `checkpoint` | the database in another directory, with hard links |
//! | `export` | a column family that another database imports |
//! | `import` | a column family of tables that were exported |
//! | `backup` | copies that share what they have in common, in RocksDB's layout |
//!
//! Every copy is made in the same order: files are held, memtables are flushed if that is wanted,
//! the MANIFEST is looked at, and only then the logs. So the logs reach at least as far as the
//! trees, and a copy is a state that a crash could have left: what it has is a prefix of what was
//! written.

mod backup;
mod checkpoint;
pub(crate) mod copying;
mod export;
mod import;
mod live_files;

pub use backup::{
    BackupEngine, BackupEngineOptions, BackupInfo, BackupProgress, CreateBackupOptions, RestoreMode,
    RestoreOptions, ShareFilesNaming, StopBackup,
};
pub use checkpoint::Checkpoint;
pub use export::{ExportImportFilesMetaData, ExportedFile};
pub use import::ImportColumnFamilyOptions;
pub use live_files::{DatabaseFile, DatabaseFileKind, LiveFilesStorageInfoOptions};
