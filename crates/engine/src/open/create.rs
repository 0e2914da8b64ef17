//! A new database in a directory, its column families by name, and the removal of a database.
//!
//! In: a directory. Out: IDENTITY, a first MANIFEST and CURRENT, which is written last: without it
//! the directory is no database. What a crash leaves before that is overwritten by the next
//! attempt.
//!
//! Invariant: a directory that has lost its CURRENT but holds data is never taken for an empty one.

use super::directory::{Directory, check_path};
use super::manifest::Manifest;
use super::ownership::take_lock;
use super::{identity, options::Options};
use crate::versions::{write_current, write_synced};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::DbOptions;
use karst_format::file_name::{FileName, is_trash};
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_format::log::LogWriter;
use karst_format::version_edit::VersionEdit;
use karst_io::Env;
use std::path::{Path, PathBuf};

/// What is in the directory.
pub(super) enum InDirectory {
    Database,
    Nothing,
}

/// Looks for a database, and whether it may be there or not. Changes nothing.
///
/// # Errors
/// `InvalidArgument` if there is one and must not be, or the other way round; `Corruption` if
/// CURRENT is missing beside data.
pub(super) fn find(env: &Env, path: &Path, choices: &DbOptions) -> Result<InDirectory> {
    let fs = env.fs();
    if fs.exists(&path.join(FileName::Current.to_string()))? {
        return match choices.error_if_exists {
            true => Err(Error::invalid_argument(format!(
                "{}: there is a database already, and error_if_exists is set",
                path.display()
            ))),
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
                "{}: missing, though there is data such as {data}; a database is not made over it",
                path.join(FileName::Current.to_string()).display()
            ),
        ));
    }
    if !choices.create_if_missing {
        return Err(Error::invalid_argument(format!(
            "{}: there is no database (CURRENT is missing), and create_if_missing is not set",
            path.display()
        )));
    }
    Ok(InDirectory::Nothing)
}

const FIRST_MANIFEST: FileNumber = FileNumber(1);
const FIRST_TEMPORARY: FileNumber = FileNumber(2);

/// Makes an empty database in the locked directory.
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
pub(super) fn write_identity(env: &Env, path: &Path, db_id: &str) -> Result<()> {
    let fs = env.fs();
    // Why this number: no other file of the database has it while IDENTITY is missing.
    let temporary = path.join(FileName::Temp(FileNumber(0)).to_string());
    write_synced(fs.as_ref(), &temporary, db_id.as_bytes())?;
    fs.rename(&temporary, &path.join(FileName::Identity.to_string()))?;
    Ok(fs.sync_dir(path)?)
}

/// Names of the column families of the database in `path`, by id.
pub(crate) fn list_column_families(path: &Path, options: &Options) -> Result<Vec<String>> {
    check_path(path)?;
    let directory = Directory::list(&options.environment(), path)?;
    let manifest = Manifest::read(&directory)?;
    Ok(manifest.replay.column_families().map(|found| found.name.to_owned()).collect())
}

/// Removes the database in `path`: every file whose name says that it is a database's, archived
/// logs included, then the directories if they are empty. No error if there is none.
///
/// # Errors
/// It is open (`Locked`), or a file could not be removed; the others are.
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
    let wal_path = destroyed_wal_path(&directory, options)?;
    let lock = take_lock(&env, path)?;
    let mut outcome = Ok(());
    let mut remove = |file: PathBuf| {
        if let Err(e) = fs.remove(&file)
            && !e.is_not_found()
            && outcome.is_ok()
        {
            outcome = Err(Error::from(e));
        }
    };
    // Why first: without CURRENT the rest is no database, should this be cut short.
    remove(path.join(FileName::Current.to_string()));
    let mut places = vec![path.to_owned()];
    places.extend(wal_path);
    places.extend(options.all_directories(path).into_iter().map(|(_, directory)| directory));
    places.extend(places.clone().iter().map(|place| place.join("archive")));
    for place in &places {
        let Ok(names) = fs.list_dir(place) else { continue };
        let is_ours = |name: &str| match FileName::parse(name) {
            Some(file) => file != FileName::Lock,
            None => is_trash(name),
        };
        let ours = names.iter().filter(|name| is_ours(name));
        ours.for_each(|name| remove(place.join(name)));
    }
    drop(lock);
    remove(path.join(FileName::Lock.to_string()));
    outcome?;
    for place in places.iter().rev() {
        // Why ignored: files that are not the database's stay, and their directory with them.
        let _ = fs.remove_dir(place);
    }
    Ok(())
}

/// Where the logs are, if not with the rest.
fn destroyed_wal_path(directory: &Directory, options: &Options) -> Result<Option<PathBuf>> {
    let file = match directory.newest_options().filter(|_| options.reads_options_file()) {
        // Why ignored: a database is removed also if its OPTIONS cannot be read.
        Some(name) => {
            directory.read(name).ok().and_then(|b| options.parse_file(&directory.file(name), &b).ok())
        }
        None => None,
    };
    let wal_dir = options.db_options(file.map(|file| file.db).unwrap_or_default())?.wal_dir;
    Ok(Some(PathBuf::from(&wal_dir)).filter(|_| !wal_dir.is_empty()))
}
