//! Creating a database in a directory, listing its column families, and destroying a database.
//!
//! In: a directory. Out: IDENTITY, a first MANIFEST and CURRENT, which is written last, because
//! without it the directory is no database. The next attempt overwrites files that a crash leaves
//! before that.
//!
//! Invariant: a directory that has lost its CURRENT but holds data is never treated as empty.

use super::directory::{Directory, check_path};
use super::manifest::Manifest;
use super::ownership::take_lock;
use super::{identity, options::Options};
use crate::claims::Claimant;
use crate::versions::{write_current, write_synced};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::DbOptions;
use karst_commit::wal::archive::archive_of;
use karst_format::file_name::{FileName, is_trash};
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::log::LogWriter;
use karst_format::version_edit::VersionEdit;
use karst_io::{Env, report};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Content of the directory.
pub(super) enum InDirectory {
    Database,
    Nothing,
}

/// Looks for a database, and checks that it may or must exist. Changes nothing.
///
/// # Errors
/// `InvalidArgument` if it exists and must not, or the reverse; `Corruption` if CURRENT is missing
/// beside data.
pub(super) fn find(env: &Env, path: &Path, choices: &DbOptions) -> Result<InDirectory> {
    let fs = env.fs();
    if fs.exists(&path.join(FileName::Current.to_string()))? {
        return match choices.error_if_exists {
            true => {
                Err(Error::invalid_argument(format!("{}: exists (error_if_exists is true)", path.display())))
            }
            false => Ok(InDirectory::Database),
        };
    }
    let names = if fs.exists(path)? { fs.list_dir(path)? } else { Vec::new() };
    let is_data = |name: &&String| {
        use FileName::{Blob, LevelDbTable, Manifest, Table, Wal};
        match FileName::parse(name) {
            Some(Table(_) | LevelDbTable(_) | Blob(_) | Wal(_)) => true,
            Some(Manifest(number)) => number != FIRST_MANIFEST,
            _ => false,
        }
    };
    let is_manifest = |name: &String| matches!(FileName::parse(name), Some(FileName::Manifest(_)));
    if choices.best_efforts_recovery && names.iter().any(is_manifest) {
        return Ok(InDirectory::Database);
    }
    if let Some(data) = names.iter().find(is_data) {
        return Err(Error::new(
            ErrorKind::Corruption,
            format!(
                "{}: missing, although the directory has data such as {data}; no database is created in it",
                path.join(FileName::Current.to_string()).display()
            ),
        ));
    }
    if !choices.create_if_missing {
        return Err(Error::invalid_argument(format!(
            "{}: does not exist (create_if_missing is false)",
            path.join(FileName::Current.to_string()).display()
        )));
    }
    Ok(InDirectory::Nothing)
}

const FIRST_MANIFEST: FileNumber = FileNumber(1);
const FIRST_TEMPORARY: FileNumber = FileNumber(2);

/// Creates an empty database in the locked directory.
pub(super) fn create(env: &Env, path: &Path, options: &DbOptions) -> Result<()> {
    let fs = env.fs();
    let identity = FileName::Identity.to_string();
    let db_id = match fs.read_file(&path.join(identity)) {
        Ok(bytes) if !bytes.is_empty() => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Ok(_) => identity::new_db_id(env),
        Err(e) if e.is_not_found() => identity::new_db_id(env),
        Err(e) => return Err(e.into()),
    };
    if options.write_identity_file {
        write_identity(env, path, &db_id)?;
    }
    let edit = VersionEdit {
        db_id: options.write_dbid_to_manifest.then(|| db_id.into_bytes()),
        log_number: Some(FileNumber(0)),
        next_file_number: Some(FileNumber(FIRST_TEMPORARY.0 + 1)),
        last_sequence: Some(SeqNo::ZERO),
        ..VersionEdit::default()
    };
    let mut bytes = Vec::new();
    LogWriter::new(FileNumber(0), false)
        .append(&edit.encode(), &mut bytes)
        .map_err(|e| Error::with_source(ErrorKind::Io, "writing the MANIFEST", e))?;
    let name = FileName::Manifest(FIRST_MANIFEST);
    write_synced(fs.as_ref(), &path.join(name.to_string()), &bytes)?;
    fs.sync_dir(path)?;
    write_current(fs.as_ref(), path, name, FIRST_TEMPORARY)
}

/// Writes IDENTITY.
pub(crate) fn write_identity(env: &Env, path: &Path, db_id: &str) -> Result<()> {
    let fs = env.fs();
    // No other file of the database has this number while IDENTITY is missing.
    let temporary = path.join(FileName::Temp(FileNumber(0)).to_string());
    write_synced(fs.as_ref(), &temporary, db_id.as_bytes())?;
    fs.rename(&temporary, &path.join(FileName::Identity.to_string()))?;
    Ok(fs.sync_dir(path)?)
}

/// Returns the names of the column families of the database in `path`, ordered by id.
pub(crate) fn list_column_families(path: &Path, options: &Options) -> Result<Vec<String>> {
    check_path(path)?;
    let directory = Directory::list(&options.environment(), path)?;
    let manifest = Manifest::read(&directory)?;
    Ok(manifest.replay.column_families().map(|found| found.name.to_owned()).collect())
}

/// Removes the database in `path`: every file with a name of database files, archived logs
/// included, then the directories if they are empty. Succeeds if there is no database.
///
/// # Errors
/// The database is open (`Locked`), or a file could not be removed; the others are removed.
pub(crate) fn destroy(path: &Path, options: &Options) -> Result<()> {
    check_path(path)?;
    let env = options.environment();
    let fs = env.fs();
    if !fs.exists(path)? {
        return Ok(());
    }
    let directory = Directory::list(&env, path)?;
    if directory.is_empty() {
        return Ok(());
    }
    let lock = take_lock(&env, path)?;
    // Again, because the database may have been open until the lock was taken.
    let directory = Directory::list(&env, path)?;
    let wal_path = destroyed_wal_path(&directory, options)?;
    let failed = RefCell::new(None);
    let remove = |file: PathBuf| match fs.remove(&file) {
        Err(e) if !e.is_not_found() => _ = failed.borrow_mut().get_or_insert(Error::from(e)),
        _ => {}
    };
    let remove_those = |place: &Path, is_ours: &dyn Fn(&str) -> bool| {
        let names = fs.list_dir(place).unwrap_or_default();
        names.iter().filter(|name| is_ours(name)).for_each(|name| remove(place.join(name)));
    };
    let identity = directory.read(FileName::Identity).unwrap_or_default();
    let id = Some(String::from_utf8_lossy(&identity).trim_end().to_owned()).filter(|id| !id.is_empty());
    let claimant = Claimant { path, id: id.as_deref() };
    let tables: Vec<PathBuf> = options.all_directories(path).into_iter().map(|(_, place)| place).collect();
    let mut outside = Vec::new();
    for place in claimant.outside(&env, tables.iter().cloned().chain(wal_path.clone())) {
        if !fs.exists(&place)? {
            continue;
        }
        match claimant.hold(&env, &place) {
            Ok(lock) => outside.push((place, lock)),
            // No error, because the other database's files stay, and this database is removed.
            Err(error) if error.kind() == ErrorKind::InvalidArgument => {
                report!(warn, %error, "a directory of the removed database is kept, because another database owns it");
            }
            Err(error) => return Err(error),
        }
    }
    // First, because without CURRENT the rest is no database, if the removal is interrupted.
    remove(path.join(FileName::Current.to_string()));
    let is_one = |a: &Path, b: &Path| fs.canonical(a) == fs.canonical(b);
    let mut places = Vec::new();
    for place in std::iter::once(path).chain(outside.iter().map(|(place, _)| &**place)) {
        let is_own = is_one(place, path);
        let has_logs = is_own || wal_path.as_ref().is_some_and(|logs| is_one(place, logs));
        let has_tables = is_own || tables.iter().any(|tables| is_one(place, tables));
        let is_ours = |name: &str| match FileName::parse(name) {
            Some(FileName::Lock) => false,
            Some(FileName::Wal(_)) => has_logs,
            Some(FileName::Table(_) | FileName::LevelDbTable(_) | FileName::Blob(_)) => has_tables,
            Some(_) => is_own,
            None => is_trash(name),
        };
        remove_those(place, &is_ours);
        places.push(place.to_owned());
        if has_logs {
            let archive = archive_of(place);
            remove_those(&archive, &|name| matches!(FileName::parse(name), Some(FileName::Wal(_))));
            places.push(archive);
        }
    }
    for (place, lock) in outside {
        // Before the lock is dropped, because the next one would be on a file without a name.
        remove(place.join(FileName::Lock.to_string()));
        drop(lock);
    }
    drop(lock);
    // Compat: after the release, as in RocksDB. An opener that takes the lock in between holds a
    // lock on a file without a name.
    remove(path.join(FileName::Lock.to_string()));
    failed.into_inner().map_or(Ok(()), Err)?;
    for place in places.iter().rev() {
        // Ignored, because foreign files stay, and their directory with them.
        let _ = fs.remove_dir(place);
    }
    Ok(())
}

/// Returns the directory of the logs, if it is separate.
fn destroyed_wal_path(directory: &Directory, options: &Options) -> Result<Option<PathBuf>> {
    let file = match directory.newest_options().filter(|_| options.reads_options_file()) {
        // Errors are ignored, because a database is removed even if its OPTIONS cannot be read.
        Some(name) => {
            directory.read(name).ok().and_then(|b| options.parse_file(&directory.file(name), &b).ok())
        }
        None => None,
    };
    let wal_dir = options.db_options(file.map(|file| file.db).unwrap_or_default())?.wal_dir;
    Ok(Some(PathBuf::from(&wal_dir)).filter(|_| !wal_dir.is_empty()))
}
