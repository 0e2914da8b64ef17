//! Creation of a backup.
//!
//! In: an open database, the existing backups. Out: a new backup, for which only files that they do
//! not have were copied.
//!
//! Order: shared files, each under a temporary name until it is durable; private files; the names
//! of all of them; `meta/N`, renamed into place.

use super::meta::{BackupFile, Meta, PRIVATE, SHARED, SHARED_CHECKSUM, SchemaVersion};
use super::{
    BackupEngine, CreateBackupOptions, META, Pace, ShareFilesNaming, check_crc, check_size, has_same_end,
    session_for_name,
};
use crate::copies::copying::{self, Copied, Halt, Manner};
use crate::copies::live_files::{
    DatabaseFile, DatabaseFileKind, HeldFiles, LiveFilesStorageInfoOptions, held_files,
};
use crate::db::Db;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::sync::Mutex;
use karst_format::ids::FileNumber;
use karst_format::log::{LogReader, LogWriter};
use karst_format::version_edit::VersionEdit;
use karst_io::{Env, block_on};
use karst_storage::file_checksum::{FileChecksumGenFactory, RunningChecksum};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file to back up: its destination, and its properties there.
struct Piece {
    file: DatabaseFile,
    path: String,
    /// True if the file is shared, under a name of its own, and may exist already.
    shared: bool,
    /// CRC32c of the file, if a backup records it already.
    known: Option<u32>,
    /// True if it is the MANIFEST of a backup without logs.
    without_logs: bool,
}

impl BackupEngine {
    /// Creates a backup of a database that stays open for reads and writes, and returns its number.
    /// Only tables and blob files that no backup has are copied. Waits on the calling thread until
    /// the backup is durable.
    ///
    /// It holds everything that was acknowledged before this call, as
    /// [`Checkpoint`](crate::Checkpoint) documents. Without `flush_before_backup` and with
    /// `backup_log_files`, the default, logs are copied.
    ///
    /// # Errors
    /// `InvalidArgument`: the database, or the engine, is open for reading only, or
    /// `schema_version` is invalid; `NotSupported`: it is a later version. `Incomplete`: the backup
    /// was stopped. `Corruption`: a file of the database differs from its MANIFEST, or a file of a
    /// backup is damaged. `Io`, `NoSpace`: a file could not be read or written. The backup does not
    /// exist then, and its number is not used again.
    pub fn create_new_backup(&mut self, db: &Db, options: &CreateBackupOptions) -> Result<u32> {
        let env = self.env.clone();
        block_on(&env, self.create_new_backup_async(db, options))
    }

    /// The asynchronous form of [`create_new_backup`](Self::create_new_backup). If it is dropped,
    /// its jobs end soon; the next call that writes removes the copied files, or finds the backup
    /// if it was complete.
    ///
    /// # Errors
    /// Those of [`create_new_backup`](Self::create_new_backup).
    pub async fn create_new_backup_async(&mut self, db: &Db, options: &CreateBackupOptions) -> Result<u32> {
        self.check_writable()?;
        self.stop.check()?;
        let schema = SchemaVersion::of(self.options.schema_version)?;
        if options.decrease_background_thread_cpu_priority {
            self.cpu_priority = self.cpu_priority.min(options.background_thread_cpu_priority);
        }
        self.workers.wait().await;
        // Reads the directory again, because a backup whose caller was dropped at the end may be
        // complete.
        self.look(usize::MAX)?;
        let next = self.last_id.checked_add(1);
        let id = next.ok_or_else(|| Error::new(ErrorKind::LimitReached, "the numbers are used up"))?;
        self.last_id = id;
        let made = self.make(db, options, (id, schema)).await;
        match made {
            Ok(meta) => {
                self.backups.insert(id, meta);
                Ok(id)
            }
            Err(error) => {
                // The outcome of the cleanup is ignored, because the first error is returned.
                let _ = self.garbage_collect();
                Err(error.in_context(format!("making backup {id} of {}", db.path().display())))
            }
        }
    }

    async fn make(
        &self,
        db: &Db,
        options: &CreateBackupOptions,
        (id, schema): (u32, SchemaVersion),
    ) -> Result<Meta> {
        let list = LiveFilesStorageInfoOptions {
            include_checksum_info: true,
            wal_size_for_flush: if options.flush_before_backup { 0 } else { u64::MAX },
            atomic_flush: options.atomic_flush,
        };
        let held = Arc::new(held_files(db, &list).await?);
        let sequence = db.latest_sequence_number();
        let sessions = sessions(&held).await?;
        let mut pieces = Vec::new();
        let (with_logs, tracks) =
            (self.options.backup_log_files, db.options().track_and_verify_wals_in_manifest);
        for file in &held.files {
            // An empty log is copied if the MANIFEST can track it, because it must exist then.
            let left_out =
                file.kind == DatabaseFileKind::Wal && (!with_logs || file.size_bytes == 0 && !tracks);
            if !left_out {
                pieces.push(self.piece(file, sessions.get(&file.number), (id, !with_logs))?);
            }
        }
        let private = self.path(PRIVATE).join(id.to_string());
        let pace = Pace {
            progress: options.progress_callback.clone(),
            every: self.options.callback_trigger_interval_size.max(1),
            ..Pace::of(self.options.backup_rate_limiter.as_ref())
        };
        let made = Arc::new(Mutex::new(Vec::new()));
        let (directory, files) = (self.options.backup_dir.clone(), made.clone());
        let checksums = db.0.read.shared.file_checksums.clone();
        let (new, manner) = (private.clone(), self.options.manner());
        self.env.run_blocking(move |env| env.fs().create_dir(&new)).await?;
        let copy = move |env: &Env, piece: &Piece, stop: &Halt| {
            // Held here too, because the files must stay while any thread copies them.
            let _held = &held;
            let crc32c = piece.put(env, &directory, checksums.as_ref(), (stop, &pace, manner))?;
            files.lock().push(BackupFile { path: piece.path.clone(), crc32c: Some(crc32c), size: None });
            Ok(())
        };
        self.in_parallel(self.stop.clone(), pieces, copy).await?;
        let mut files = std::mem::take(&mut *made.lock());
        files.sort_unstable_by(|a, b| b.path.cmp(&a.path));
        let meta = Meta {
            timestamp: self.env.unix_time().as_secs(),
            sequence,
            app_metadata: options.app_metadata.clone(),
            files,
        };
        let (text, to) = (meta.encode(schema), self.meta_path(id));
        let temporary = self.path(META).join(format!(".{id}.tmp"));
        let directories =
            [private, self.path(PRIVATE), self.path(SHARED), self.path(SHARED_CHECKSUM), self.path(META)];
        let (stop, at_work) = (self.stop.clone(), self.workers.enter(self.lock.clone()));
        self.env
            .run_blocking(move |env| {
                let _at_work = at_work;
                let fs = env.fs();
                let (meta, files) = directories.split_last().expect("there are five");
                for directory in files.iter().filter(|_| manner.sync) {
                    fs.sync_dir(directory)?;
                }
                copying::write_in(env, &temporary, text.as_bytes(), manner)?;
                stop.check()?;
                // Invariant: renamed after all files that it names are durable. A `meta` file with
                // its final name is a backup.
                fs.rename(&temporary, &to)?;
                let synced = if manner.sync { fs.sync_dir(meta) } else { Ok(()) };
                if synced.is_err() {
                    // Removed, because this call fails, and a failed backup must not exist.
                    let _ = fs.remove(&to);
                }
                Ok(synced?)
            })
            .await
            .map(|()| meta)
    }

    /// Returns the destination of a file, and its properties there.
    fn piece(
        &self,
        file: &DatabaseFile,
        session: Option<&String>,
        (id, without_logs): (u32, bool),
    ) -> Result<Piece> {
        let stored = matches!(file.kind, DatabaseFileKind::Table | DatabaseFileKind::Blob);
        let shared = stored && self.options.share_table_files;
        let (stem, extension) = file.name.rsplit_once('.').unwrap_or((&file.name, ""));
        let named = |told: String| format!("{SHARED_CHECKSUM}/{stem}_{told}.{extension}");
        let size = file.size_bytes;
        let by_session = session.and_then(|session| match self.options.share_files_with_checksum_naming {
            ShareFilesNaming::UseDbSessionId { include_file_size: false } => {
                Some(named(format!("s{session}")))
            }
            ShareFilesNaming::UseDbSessionId { include_file_size: true } => {
                Some(named(format!("s{session}_{size}")))
            }
            ShareFilesNaming::LegacyCrc32cAndFileSize => None,
        });
        let path = match (shared, self.options.share_files_with_checksum) {
            (false, _) => format!("{PRIVATE}/{id}/{}", file.name),
            (true, false) => format!("{SHARED}/{}", file.name),
            (true, true) => match by_session {
                Some(path) if !self.has_another(&path, file)? => path,
                // Compat: blob files and tables without a session always have these names.
                _ => named(format!("{}_{size}", self.crc_of(file)?)),
            },
        };
        let known = self.known(&path).and_then(|other| other.crc32c);
        let without_logs = without_logs && file.kind == DatabaseFileKind::Manifest;
        Ok(Piece { file: file.clone(), path, shared, known, without_logs })
    }

    /// Returns the file that the backups have under this path, or None.
    fn known(&self, path: &str) -> Option<&BackupFile> {
        self.backups.values().flat_map(|meta| &meta.files).find(|other| other.path == path)
    }

    /// True if the backups have another table under this path: RocksDB and older releases named
    /// ingested and imported tables by their sessions.
    fn has_another(&self, path: &str, file: &DatabaseFile) -> Result<bool> {
        if self.known(path).is_none() {
            return Ok(false);
        }
        let same = has_same_end(&self.env, &self.path(path), &file.path());
        // A missing file is no error here, because the check of the backup's files reports it.
        same.map(|same| !same).or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(false) } else { Err(e) })
    }

    fn crc_of(&self, file: &DatabaseFile) -> Result<u32> {
        let read = copying::read(&self.env, &file.path(), Some(file.size_bytes), &self.stop, |_| Ok(()));
        Ok(read?.crc32c)
    }
}

impl Piece {
    /// Copies the file to its destination, unless it exists. Returns its checksum. Blocks.
    fn put(
        &self,
        env: &Env,
        directory: &Path,
        checksums: Option<&Arc<dyn FileChecksumGenFactory>>,
        (stop, pace, manner): (&Halt, &Pace, Manner),
    ) -> Result<u32> {
        let to = directory.join(&self.path);
        if let Some(contents) = &self.file.replacement_contents {
            copying::write_in(env, &to, contents.as_bytes(), manner)?;
            return Ok(crc32c::crc32c(contents.as_bytes()));
        }
        if self.without_logs {
            let mut bytes = Vec::new();
            copying::read(env, &self.file.path(), Some(self.file.size_bytes), stop, |chunk| {
                bytes.extend_from_slice(chunk);
                Ok(())
            })?;
            pace.moves(env, bytes.len() as u64);
            forget_logs(&self.file.path(), &mut bytes)?;
            copying::write_in(env, &to, &bytes, manner)?;
            return Ok(crc32c::crc32c(&bytes));
        }
        let described =
            BackupFile { path: self.path.clone(), crc32c: self.known, size: Some(self.file.size_bytes) };
        if let Some(crc32c) = self.known.filter(|_| self.shared) {
            check_size(env, &to, &described)?;
            if self.path.starts_with("shared/") {
                // Read in full, because the name does not show that it is the same file.
                let from = self.file.path();
                let read = copying::read(env, &from, Some(self.file.size_bytes), stop, |_| Ok(()))?;
                check_crc(&from, read.crc32c, crc32c)?;
            }
            return Ok(crc32c);
        }
        let copied = match self.shared {
            false => self.copy(env, &to, checksums, (stop, pace, manner))?,
            true => {
                let name = to.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let temporary: PathBuf = to.with_file_name(format!(".{name}.tmp"));
                let copied = self.copy(env, &temporary, checksums, (stop, pace, manner))?;
                env.fs().rename(&temporary, &to)?;
                copied
            }
        };
        Ok(copied.crc32c)
    }

    fn copy(
        &self,
        env: &Env,
        to: &Path,
        checksums: Option<&Arc<dyn FileChecksumGenFactory>>,
        (stop, pace, manner): (&Halt, &Pace, Manner),
    ) -> Result<Copied> {
        let from = self.file.path();
        let bytes = Some(self.file.size_bytes);
        let known = self.file.checksum.as_ref();
        // An unknown function is no error, because the backup is then as good as the database.
        let mut running = known.and_then(|(_, function)| {
            RunningChecksum::by_function(checksums, &from, function.as_bytes()).ok()
        });
        let copied = copying::copy_in(env, &from, to, bytes, (stop, manner), |chunk| {
            running.iter_mut().for_each(|running| running.update(chunk));
            pace.moves(env, chunk.len() as u64);
        })?;
        if let (Some(running), Some((value, _))) = (running, known)
            && running.finish().is_none_or(|found| *found.value != **value)
        {
            let text = "the checksum of the whole file is not the MANIFEST's";
            return Err(Error::corruption_at(&from, 0, text));
        }
        Ok(copied)
    }
}

/// Adds a record to a MANIFEST that marks the logs it tracks as gone, if it tracks any.
///
/// A backup without logs lacks them, and a database is not opened without the logs that its
/// MANIFEST tracks.
fn forget_logs(path: &Path, bytes: &mut Vec<u8>) -> Result<()> {
    let mut newest = None;
    let mut reader = LogReader::manifest(bytes);
    while let Some(record) = reader.next_record() {
        let record = record.map_err(|damage| Error::in_file(path, 0, damage.corruption))?;
        let edit = VersionEdit::decode(record.bytes).map_err(|c| Error::in_file(path, record.offset, c))?;
        newest = edit.wal_additions.iter().map(|log| log.number).chain(newest).max();
    }
    if let Some(newest) = newest {
        let wal_deletion = Some(FileNumber(newest.0.saturating_add(1)));
        let edit = VersionEdit { wal_deletion, ..VersionEdit::default() };
        LogWriter::resume(FileNumber(0), bytes.len() as u64)
            .append(&edit.encode(), bytes)
            .map_err(|e| Error::with_source(ErrorKind::Io, "writing the MANIFEST", e))?;
    }
    Ok(())
}

/// Returns the sessions that the names of tables may contain, by table number.
async fn sessions(held: &HeldFiles) -> Result<BTreeMap<u64, String>> {
    let mut sessions = BTreeMap::new();
    for (family, version) in &held.moment.trees {
        for (level, file) in version.all_files() {
            let table =
                family.tables.clone().open(file, u32::from(level.0)).await.map_err(|e| match e.kind() {
                    ErrorKind::NotFound => e.in_context("a table of the database is missing"),
                    _ => e,
                })?;
            if let Some(session) = session_for_name(table.properties(), file.number) {
                sessions.insert(file.number.0, session.clone());
            }
        }
    }
    Ok(sessions)
}
