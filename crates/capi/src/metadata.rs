//! What a database consists of: live files and logs.

use crate::batch::Batch;
use crate::boundary::*;
use crate::handle::Database;
use karstdb::{Db, Error, LiveFile, WalUpdates, WriteBatch};
use libc::{c_char, c_int, c_uchar, c_void};
use std::ffi::CString;

/// `rocksdb_wal_readoptions_t`, of which there is none but null.
pub type WalRead = c_void;

/// `rocksdb_livefiles_t`: tables, with their texts as C has them.
#[derive(Debug)]
pub struct LiveFiles(Vec<Live>);

#[derive(Debug)]
struct Live {
    file: LiveFile,
    name: CString,
    family: CString,
    directory: CString,
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

impl Live {
    fn new(file: LiveFile) -> Live {
        // Compat: RocksDB's names of live files begin with a slash.
        let (name, family) = (c_text(&format!("/{}", file.name)), c_text(&file.column_family));
        let directory = c_text(&file.directory.to_string_lossy());
        Live { file, name, family, directory }
    }
}

/// The tables of all families, with what their properties say. Opens those that are not open.
fn tables(db: &Db) -> Vec<LiveFile> {
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

capi! {
    call rocksdb_livefiles(db: *const Database) -> *mut LiveFiles {
        db.as_ref().map_or(std::ptr::null_mut(), |db| give(LiveFiles(tables(&db.db).into_iter().map(Live::new).collect())))
    }
    call rocksdb_livefiles_entries(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).and_then(|live| live.file.num_entries).unwrap_or(0) }
    call rocksdb_livefiles_deletions(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).and_then(|live| live.file.num_deletions).unwrap_or(0) }
    call rocksdb_livefiles_count(files: *const LiveFiles) -> c_int { files.as_ref().map_or(0, |files| files.0.len() as c_int) }
    call rocksdb_livefiles_column_family_name(files: *const LiveFiles, at: c_int) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| live.family.as_ptr()) }
    call rocksdb_livefiles_name(files: *const LiveFiles, at: c_int) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| live.name.as_ptr()) }
    call rocksdb_livefiles_directory(files: *const LiveFiles, at: c_int) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| live.directory.as_ptr()) }
    call rocksdb_livefiles_level(files: *const LiveFiles, at: c_int) -> c_int { live(files, at).and_then(|live| live.file.level).map_or(0, |level| level as c_int) }
    call rocksdb_livefiles_size(files: *const LiveFiles, at: c_int) -> usize { live(files, at).map_or(0, |live| live.file.size_bytes as usize) }
    call rocksdb_livefiles_smallestkey(files: *const LiveFiles, at: c_int, size: *mut usize) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| lend(&live.file.smallest_key, size)) }
    call rocksdb_livefiles_largestkey(files: *const LiveFiles, at: c_int, size: *mut usize) -> *const c_char { live(files, at).map_or(std::ptr::null(), |live| lend(&live.file.largest_key, size)) }
    call rocksdb_livefiles_smallest_seqno(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).map_or(0, |live| live.file.smallest_seq) }
    call rocksdb_livefiles_largest_seqno(files: *const LiveFiles, at: c_int) -> u64 { live(files, at).map_or(0, |live| live.file.largest_seq) }
    call rocksdb_livefiles_destroy(files: *mut LiveFiles) { end(files); }

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
