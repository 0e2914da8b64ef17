//! Metadata of a database: live files and logs. The caller can also build descriptions of files, to
//! import those that were exported elsewhere.

use crate::batch::Batch;
use crate::boundary::*;
use crate::call_options::WalRead;
use crate::handle::Database;
use karstdb::{Db, Error, ExportedFile, LiveFile, WalFile, WalUpdates, WriteBatch};
use libc::{c_char, c_int, c_uchar};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `rocksdb_livefiles_t`: tables, with their texts as C strings.
#[derive(Debug, Default)]
pub struct LiveFiles(pub(crate) Vec<Live>);

/// `rocksdb_livefile_t`: one table.
#[derive(Clone, Debug, Default)]
pub struct Live {
    name: CString,
    family: CString,
    directory: CString,
    level: c_int,
    size: usize,
    smallest_key: Vec<u8>,
    largest_key: Vec<u8>,
    smallest_seq: u64,
    largest_seq: u64,
    entries: u64,
    deletions: u64,
    /// Fields of an exported file that C has no setters for.
    exported: Exported,
}

#[derive(Clone, Debug, Default)]
struct Exported {
    smallest: Vec<u8>,
    largest: Vec<u8>,
    epoch_number: u64,
    checksum: Option<(Vec<u8>, String)>,
}

fn c_bytes(text: &[u8]) -> CString {
    CString::new(text.iter().copied().filter(|byte| *byte != 0).collect::<Vec<_>>()).unwrap_or_default()
}

fn c_path(path: &Path) -> CString {
    c_bytes(path.as_os_str().as_bytes())
}

/// Returns the name in RocksDB's form for live files, which begins with a slash.
fn name_of(file: &str) -> CString {
    c_bytes(format!("/{file}").as_bytes())
}

/// Returns the user key of an internal key.
fn user_key(internal: &[u8]) -> Vec<u8> {
    internal[..internal.len().saturating_sub(8)].to_vec()
}

impl Live {
    fn new(file: LiveFile) -> Live {
        Live {
            name: name_of(&file.name),
            family: c_bytes(file.column_family.as_bytes()),
            directory: c_path(&file.directory),
            level: file.level.map_or(0, |level| level as c_int),
            size: file.size_bytes as usize,
            smallest_key: file.smallest_key,
            largest_key: file.largest_key,
            smallest_seq: file.smallest_seq,
            largest_seq: file.largest_seq,
            entries: file.num_entries.unwrap_or(0),
            deletions: file.num_deletions.unwrap_or(0),
            exported: Exported::default(),
        }
    }

    /// Describes an exported file. Compat: RocksDB returns neither its family nor its number of
    /// entries.
    pub(crate) fn exported(file: ExportedFile) -> Live {
        Live {
            name: name_of(&file.name),
            directory: c_path(&file.directory),
            level: file.level as c_int,
            size: file.size_bytes as usize,
            smallest_key: user_key(&file.smallest),
            largest_key: user_key(&file.largest),
            smallest_seq: file.smallest_seq,
            largest_seq: file.largest_seq,
            exported: Exported {
                smallest: file.smallest,
                largest: file.largest,
                epoch_number: file.epoch_number,
                checksum: file.checksum,
            },
            ..Live::default()
        }
    }

    /// Converts the description to that of an import.
    pub(crate) fn to_exported(&self) -> karstdb::Result<ExportedFile> {
        let name = self.name.to_str().map_err(|_| invalid(format!("{:?} is not UTF-8", self.name)))?;
        let level = u32::try_from(self.level);
        Ok(ExportedFile {
            name: name.trim_start_matches('/').to_owned(),
            directory: Path::new(OsStr::from_bytes(self.directory.to_bytes())).to_owned(),
            level: level.map_err(|_| invalid(format!("{name} has level {}", self.level)))?,
            size_bytes: self.size as u64,
            smallest: self.exported.smallest.clone(),
            largest: self.exported.largest.clone(),
            smallest_seq: self.smallest_seq,
            largest_seq: self.largest_seq,
            epoch_number: self.exported.epoch_number,
            checksum: self.exported.checksum.clone(),
        })
    }
}

/// Returns the tables of all families with the counts of their properties. Opens those that are
/// closed.
pub(crate) fn tables(db: &Db) -> Vec<LiveFile> {
    let mut tables: Vec<LiveFile> = db.live_files().into_iter().filter(|file| file.level.is_some()).collect();
    if tables.iter().all(|table| table.num_entries.is_some()) {
        return tables;
    }
    for family in db.column_families() {
        let properties = db.properties_of_all_tables(&family);
        let Some(properties) = or_say("rocksdb_livefiles", properties) else { continue };
        for table in tables.iter_mut().filter(|table| table.num_entries.is_none()) {
            if let Some(found) = properties.get(&table.directory.join(&table.name)) {
                table.num_entries = Some(found.num_entries);
                table.num_deletions = Some(found.num_deletions);
            }
        }
    }
    tables
}

unsafe fn live<'a>(files: *const LiveFiles, at: c_int) -> Option<&'a Live> {
    unsafe { files.as_ref() }?.0.get(usize::try_from(at).ok()?)
}

/// `rocksdb_wal_iterator_t`.
#[derive(Debug)]
pub struct WalIter {
    updates: WalUpdates,
    current: Option<(u64, WriteBatch)>,
    failed: Option<Error>,
}

impl WalIter {
    fn advance(&mut self) {
        self.current = None;
        match self.updates.next() {
            Some(Ok(update)) => self.current = Some((update.sequence, update.batch)),
            Some(Err(error)) => self.failed = Some(error),
            None => {}
        }
    }
}

/// `rocksdb_wal_files_t`, and one file of it as `rocksdb_wal_file_t`.
#[derive(Debug)]
pub struct Logs(Vec<Log>);

/// `rocksdb_wal_file_t`.
#[derive(Debug)]
pub struct Log {
    name: CString,
    file: WalFile,
}

impl Log {
    fn new(file: WalFile) -> Log {
        Log { name: c_bytes(file.name.as_bytes()), file }
    }
}

unsafe fn text_in(text: *const c_char) -> CString {
    if text.is_null() { CString::default() } else { unsafe { CStr::from_ptr(text) }.to_owned() }
}

capi! {
    call rocksdb_livefiles(db: *const Database) -> *mut LiveFiles {
        db.as_ref().map_or(std::ptr::null_mut(), |db| give(LiveFiles(tables(&db.db).into_iter().map(Live::new).collect())))
    }
    call rocksdb_livefiles_entries(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).map_or(0, |live| live.entries) }
    call rocksdb_livefiles_deletions(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).map_or(0, |live| live.deletions) }
    call rocksdb_livefiles_count(files: *const LiveFiles) -> c_int { files.as_ref().map_or(0, |files| files.0.len() as c_int) }
    call rocksdb_livefiles_column_family_name(files: *const LiveFiles, at: c_int) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| live.family.as_ptr()) }
    call rocksdb_livefiles_name(files: *const LiveFiles, at: c_int) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| live.name.as_ptr()) }
    call rocksdb_livefiles_directory(files: *const LiveFiles, at: c_int) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| live.directory.as_ptr()) }
    call rocksdb_livefiles_level(files: *const LiveFiles, at: c_int) -> c_int { live(files, at).map_or(0, |live| live.level) }
    call rocksdb_livefiles_size(files: *const LiveFiles, at: c_int) -> usize { live(files, at).map_or(0, |live| live.size) }
    call rocksdb_livefiles_smallestkey(files: *const LiveFiles, at: c_int, size: *mut usize) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| lend(&live.smallest_key, size)) }
    call rocksdb_livefiles_largestkey(files: *const LiveFiles, at: c_int, size: *mut usize) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| lend(&live.largest_key, size)) }
    call rocksdb_livefiles_smallest_seqno(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).map_or(0, |live| live.smallest_seq) }
    call rocksdb_livefiles_largest_seqno(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).map_or(0, |live| live.largest_seq) }
    call rocksdb_livefiles_destroy(files: *mut LiveFiles) { end(files); }
    call rocksdb_livefiles_create() -> *mut LiveFiles { give(LiveFiles::default()) }
    call rocksdb_livefile_create() -> *mut Live { give(Live::default()) }
    call rocksdb_livefile_destroy(file: *mut Live) { end(file); }
    call rocksdb_livefile_set_column_family_name(file: *mut Live, name: *const c_char) { if let Some(file) = file.as_mut() { file.family = text_in(name) } }
    call rocksdb_livefile_set_directory(file: *mut Live, directory: *const c_char) { if let Some(file) = file.as_mut() { file.directory = text_in(directory) } }
    call rocksdb_livefile_set_name(file: *mut Live, name: *const c_char) { if let Some(file) = file.as_mut() { file.name = text_in(name) } }
    call rocksdb_livefile_set_level(file: *mut Live, level: c_int) { if let Some(file) = file.as_mut() { file.level = level } }
    call rocksdb_livefile_set_size(file: *mut Live, size: usize) { if let Some(file) = file.as_mut() { file.size = size } }
    call rocksdb_livefile_set_smallest_key(file: *mut Live, key: *const c_char, keylen: usize) { if let Some(file) = file.as_mut() { file.smallest_key = bytes(key, keylen).to_vec() } }
    call rocksdb_livefile_set_largest_key(file: *mut Live, key: *const c_char, keylen: usize) { if let Some(file) = file.as_mut() { file.largest_key = bytes(key, keylen).to_vec() } }
    call rocksdb_livefile_set_smallest_seqno(file: *mut Live, number: u64) { if let Some(file) = file.as_mut() { file.smallest_seq = number } }
    call rocksdb_livefile_set_largest_seqno(file: *mut Live, number: u64) { if let Some(file) = file.as_mut() { file.largest_seq = number } }
    call rocksdb_livefile_set_num_entries(file: *mut Live, count: u64) { if let Some(file) = file.as_mut() { file.entries = count } }
    call rocksdb_livefile_set_num_deletions(file: *mut Live, count: u64) { if let Some(file) = file.as_mut() { file.deletions = count } }
    // The call destroys the handle of the file.
    call rocksdb_livefiles_add(files: *mut LiveFiles, file: *mut Live) {
        let file = take(file);
        if let Some(files) = files.as_mut() { files.0.extend(file) }
    }

    attempt rocksdb_get_sorted_wal_files(db: *const Database) -> *mut Logs {
        Ok(give(Logs(of(db)?.db.get_sorted_wal_files()?.into_iter().map(Log::new).collect())))
    }
    attempt rocksdb_get_current_wal_file(db: *const Database) -> *mut Log { Ok(give(Log::new(of(db)?.db.get_current_wal_file()?))) }
    call rocksdb_wal_files_count(logs: *const Logs) -> usize { logs.as_ref().map_or(0, |logs| logs.0.len()) }
    // `rocksdb_wal_files_destroy` destroys the returned file.
    call rocksdb_wal_files_get_wal_file(logs: *const Logs, at: usize) -> *const Log {
        logs.as_ref().and_then(|logs| logs.0.get(at)).map_or(std::ptr::null(), std::ptr::from_ref)
    }
    call rocksdb_wal_files_destroy(logs: *mut Logs) { end(logs); }
    call rocksdb_wal_file_path_name(log: *const Log) -> *const c_char { log.as_ref().map_or(std::ptr::null(), |log| log.name.as_ptr()) }
    call rocksdb_wal_file_log_number(log: *const Log) -> u64 { log.as_ref().map_or(0, |log| log.file.number) }
    // 0 for an archived log, 1 for a live one.
    call rocksdb_wal_file_type(log: *const Log) -> c_int { log.as_ref().map_or(0, |log| (!log.file.archived).into()) }
    call rocksdb_wal_file_start_sequence(log: *const Log) -> u64 { log.as_ref().map_or(0, |log| log.file.start_sequence) }
    call rocksdb_wal_file_size_file_bytes(log: *const Log) -> u64 { log.as_ref().map_or(0, |log| log.file.size_bytes) }
    call rocksdb_wal_file_destroy(log: *mut Log) { end(log); }

    attempt rocksdb_get_updates_since(db: *const Database, sequence: u64, _options: *const WalRead) -> *mut WalIter {
        let mut iter = WalIter { updates: of(db)?.db.get_updates_since(sequence)?, current: None, failed: None };
        iter.advance();
        Ok(give(iter))
    }
    call rocksdb_wal_iter_next(iter: *mut WalIter) { if let Some(iter) = iter.as_mut() { iter.advance() } }
    call rocksdb_wal_iter_valid(iter: *const WalIter) -> c_uchar { iter.as_ref().is_some_and(|iter| iter.current.is_some()).into() }
    attempt rocksdb_wal_iter_status(iter: *const WalIter) {
        match &of(iter)?.failed { Some(error) => Err(error.clone()), None => Ok(()) }
    }
    call rocksdb_wal_iter_get_batch(iter: *const WalIter, sequence: *mut u64) -> *mut Batch {
        let Some((first, batch)) = iter.as_ref().and_then(|iter| iter.current.as_ref()) else { return std::ptr::null_mut() };
        put(sequence, *first);
        give(Batch { batch: batch.clone() })
    }
    call rocksdb_wal_iter_destroy(iter: *mut WalIter) { end(iter); }
}
