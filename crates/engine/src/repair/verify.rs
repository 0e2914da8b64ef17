//! Verifies all files of a database, also if some are so damaged that it cannot be opened.
//!
//! In: a directory, which is neither changed nor locked. Out: every damaged or missing file, each
//! with its first error.
//!
//! Compat: `Db::verify_checksum` and RocksDB's `VerifyChecksum` end at the first error, and need an
//! open database.

use super::{Work, look_at_log, tables};
use crate::copies::copying;
use crate::db::Db;
use crate::open::{Directory, Options, check_path};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::pacing::{IoPriority, RateLimiter};
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::SeqNo;
use karst_io::{Env, block_on};
use karst_lsm::FileMetadata;
use karst_storage::table::cache::TableCache;
use karst_storage::table::verify;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Progress of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Number of files verified.
    pub files: u64,
    /// Number of all files.
    pub all_files: u64,
    /// Bytes of the files verified.
    pub bytes: u64,
    /// Bytes of all files.
    pub all_bytes: u64,
}

/// A damaged or missing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// The file's path.
    pub path: PathBuf,
    /// Its first error, with the place.
    pub error: String,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of files examined.
    pub files: u64,
    /// Bytes of the files examined.
    pub bytes: u64,
    /// The damaged or missing files.
    pub damaged: Vec<DamagedFile>,
}

/// A file to verify.
enum Part {
    /// A table of a family.
    Table(ColumnFamilyId, Arc<FileMetadata>),
    /// A blob file of a family.
    Blob(ColumnFamilyId, Arc<karst_lsm::BlobFileMetadata>),
    Log(FileNumber),
    /// A MANIFEST, OPTIONS or CURRENT file, which was read and checked before.
    Other,
}

impl Db {
    /// Verifies all files that the database in `path` needs: its MANIFEST, its tables and blob
    /// files, and its logs; and that its OPTIONS file can be parsed. Damage does not stop it, and
    /// nothing is changed. Blocks. The database should not be written to meanwhile, because files
    /// that it removes would be reported as missing. If the MANIFEST is damaged, the tables in the
    /// directories are verified instead of those in its trees, and no blob files.
    ///
    /// `limiter` bounds the average read rate, file by file; `progress` is called before each file
    /// and at the end.
    ///
    /// # Errors
    /// `NotFound`: there is no database. `Io`: the directory cannot be listed. `NotSupported`,
    /// `InvalidArgument`: the options cannot work. Damage of a file is in the report and no error.
    pub fn verify_files(
        path: impl AsRef<Path>,
        options: &Options,
        limiter: Option<&RateLimiter>,
        progress: impl FnMut(&VerifyProgress),
    ) -> Result<VerifyReport> {
        let path = path.as_ref();
        verify_files(path, options, limiter, progress)
            .map_err(|error| error.in_context(format!("verifying {}", path.display())))
    }
}

fn verify_files(
    path: &Path,
    options: &Options,
    limiter: Option<&RateLimiter>,
    mut progress: impl FnMut(&VerifyProgress),
) -> Result<VerifyReport> {
    check_path(path)?;
    let env = options.environment();
    let options = options.clone().env(env.clone());
    let mut report = VerifyReport::default();
    let mut damaged = |path: &Path, error: String| {
        report.damaged.push(DamagedFile { path: path.to_owned(), error });
    };
    let mut work = Work::look(&env, path, &options)?;
    if work.salvaged.name.is_none() && work.directory.manifests().is_empty() {
        let text = "the directory has no MANIFEST, so it is no database";
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    if let Err(error) = work.directory.current_manifest() {
        damaged(&work.directory.file(FileName::Current), error.to_string());
    }
    for (name, what) in &work.salvaged.damaged {
        damaged(&work.directory.file(*name), what.clone());
    }
    if let Some(name) = work.directory.newest_options()
        && let Err(error) =
            work.directory.read(name).and_then(|bytes| options.parse_file(&work.directory.file(name), &bytes))
    {
        damaged(&work.directory.file(name), error.to_string());
    }
    work.find_options()?;
    // With a damaged MANIFEST, all tables in the directories are verified.
    let whole = work.salvaged.doubt.is_none();
    let mut parts: Vec<(PathBuf, u64, Part)> = Vec::new();
    for name in [work.salvaged.name, work.directory.newest_options(), Some(FileName::Current)] {
        let there = name.filter(|name| work.directory.contains(*name));
        parts.extend(there.map(|name| (work.directory.file(name), 0, Part::Other)));
    }
    if whole {
        let set = work.trees_of_manifest()?;
        for (id, family) in &set.column_families {
            let Some(tables) = work.caches.get(id) else { continue };
            for (_, file) in family.version.all_files() {
                let path = tables.shared.table_path(file.number, file.path_id)?;
                parts.push((path, file.size_bytes, Part::Table(*id, file.clone())));
            }
            for (number, blob) in family.version.blob_files() {
                let path = work.blob_path(*id, *number);
                parts.push((path, blob.file_bytes(), Part::Blob(*id, blob.clone())));
            }
        }
    } else {
        work.list_tables()?;
        let any = work.any_tables()?;
        for table in &work.found {
            let properties = match tables::properties(&any[copying::parent(&table.path)], table) {
                Ok(properties) => properties,
                Err(error) => {
                    damaged(&table.path, error.to_string());
                    continue;
                }
            };
            let id = work.family_of(table, &properties);
            if !work.caches.contains_key(&id) {
                continue;
            }
            let Some(path_id) = work.path_id_of(id, table) else {
                damaged(&table.path, work.elsewhere(id, table).to_string());
                continue;
            };
            let part = Part::Table(id, tables::unknown(&table.in_path(path_id), SeqNo::ZERO));
            parts.push((table.path.clone(), table.size_bytes, part));
        }
    }
    let wal_path = work.wal_path();
    let logs = Directory::list(&env, &wal_path).map(|directory| directory.logs()).unwrap_or_default();
    for number in logs {
        let path = wal_path.join(FileName::Wal(number).to_string());
        parts.push((path, 0, Part::Log(number)));
    }
    for (path, bytes, _) in &mut parts {
        *bytes = env.fs().metadata(path).map_or(*bytes, |metadata| metadata.len);
    }
    let all_bytes = parts.iter().map(|(_, bytes, _)| bytes).sum();
    let mut now = VerifyProgress { all_files: parts.len() as u64, all_bytes, ..Default::default() };
    for (path, bytes, part) in &parts {
        progress(&now);
        if let Some(limiter) = limiter {
            throttle(&env, limiter, *bytes);
        }
        if let Err(error) = work.verify(path, part) {
            damaged(path, error.to_string());
        }
        now.files += 1;
        now.bytes += bytes;
    }
    progress(&now);
    (report.files, report.bytes) = (now.files, now.bytes);
    Ok(report)
}

fn throttle(env: &Env, limiter: &RateLimiter, mut bytes: u64) {
    let burst = limiter.single_burst_bytes().max(1);
    while bytes > 0 {
        let asked = bytes.min(burst);
        block_on(env, limiter.request(env, asked, IoPriority::Low));
        bytes -= asked;
    }
}

impl Work {
    fn verify(&self, path: &Path, part: &Part) -> Result<()> {
        let cache = |id: &ColumnFamilyId| -> Result<&Arc<TableCache>> {
            let missing = || Error::invalid_argument(format!("column family {id} is not known"));
            self.caches.get(id).ok_or_else(missing)
        };
        match part {
            Part::Table(id, file) => block_on(&self.env, verify::table(cache(id)?, file)),
            Part::Blob(id, blob) => block_on(&self.env, cache(id)?.blobs.verify(blob)),
            Part::Log(number) => {
                let looked = look_at_log(&self.env.fs().read_file(path)?, *number, |_| true);
                looked.damage.map_or(Ok(()), |what| {
                    Err(Error::new(ErrorKind::Corruption, format!("{}, {what}", path.display())))
                })
            }
            Part::Other => Ok(()),
        }
    }
}
