//! Copies of an open database: checkpoints, backups, exports, imports.
//!
//! In: an open database. Out: its files as of one moment, held while they are copied, and the
//! copies themselves.
//!
//! | file | holds |
//! |---|---|
//! | `live_files` | holding deletions, locking the log, and the files that make up the database |
//! | `copying` | copying and linking files; creating directories atomically |
//! | `checkpoint` | the database in another directory, with hard links |
//! | `export` | exporting a column family for import into another database |
//! | `import` | importing a column family from exported tables |
//! | `backup` | backups that share files, in RocksDB's layout |
//!
//! Every copy is made in the same order: files are held, memtables are flushed if requested, the
//! MANIFEST is read, and only then the logs. Therefore the logs reach at least as far as the trees,
//! and a copy is a state that a crash could have left: its content is a prefix of the writes.

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
