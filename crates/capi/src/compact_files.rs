//! Compactions of named files.

use crate::boundary::*;
use crate::call_options::CompactionSettings;
use crate::family::{Family, family_or_default};
use crate::handle::Database;
use karstdb::io::{block_on, sleep};
use karstdb::{CompactionInfo, Db, Error, ErrorKind};
use libc::{c_char, c_int, c_uchar};
use std::future::{Future, poll_fn};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Interval at which a compaction checks its cancel flag.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns the flag that cancels compactions, if `options` has one; the caller owns it.
unsafe fn flag<'a>(options: *const CompactionSettings) -> Option<&'a AtomicBool> {
    unsafe { options.as_ref()?.canceled.cast::<AtomicBool>().as_ref() }
}

/// Returns the file number of a table's name, which may begin with directories.
fn number(name: &str) -> karstdb::Result<u64> {
    let file = Path::new(name).file_stem().and_then(|stem| stem.to_str());
    let number = file.and_then(|stem| stem.parse().ok());
    number.ok_or_else(|| invalid(format!("{name:?} is no name of a table")))
}

/// Runs `work` to its end; returns `None` if the flag is set before that.
async fn unless_cancelled<T>(db: &Db, flag: &AtomicBool, work: impl Future<Output = T>) -> Option<T> {
    let is_set = || flag.load(Ordering::Acquire);
    if is_set() {
        return None;
    }
    let (mut work, mut wait) = (pin!(work), Box::pin(sleep(db.env(), LOOK_EVERY)));
    poll_fn(|context| {
        while wait.as_mut().poll(context).is_ready() {
            if is_set() {
                return Poll::Ready(None);
            }
            wait = Box::pin(sleep(db.env(), LOOK_EVERY));
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Waits until the cancelled job has released these files, as RocksDB's call does.
async fn until_free(db: &Db, files: &[u64]) {
    while db.live_files().iter().any(|file| file.being_compacted && files.contains(&file.number)) {
        sleep(db.env(), LOOK_EVERY).await;
    }
}

unsafe fn compact(
    db: &Db,
    family: *const Family,
    options: *const CompactionSettings,
    files: &[*const c_char],
    (level, path): (c_int, c_int),
) -> karstdb::Result<CompactionInfo> {
    let family = unsafe { family_or_default(db, family) };
    let files = files.iter().map(|file| number(unsafe { text(*file)? }));
    let files = files.collect::<karstdb::Result<Vec<_>>>()?;
    let level = usize::try_from(level).map_err(|_| invalid(format!("the output level is {level}")))?;
    let mut how = unsafe { options.as_ref() }.map(|options| options.options).unwrap_or_default();
    // Compat: a negative path lets RocksDB choose, which takes the only path.
    how.output_path_id =
        u8::try_from(path.max(0)).map_err(|_| invalid(format!("there is no path {path}")))?;
    let work = async { Ok(db.compact_files_with_info_async(&how, family, &files, level).await?.1) };
    let Some(flag) = (unsafe { flag(options) }) else { return block_on(db.env(), work) };
    block_on(db.env(), async {
        if let Some(done) = unless_cancelled(db, flag, work).await {
            return done;
        }
        until_free(db, &files).await;
        Err(Error::new(ErrorKind::Incomplete, "Manual compaction paused: the caller has cancelled it"))
    })
}

unsafe fn compact_files(
    db: *const Database,
    family: *const Family,
    options: *const CompactionSettings,
    files: &[*const c_char],
    to: (c_int, c_int),
    (names, count): (*mut *mut *mut c_char, *mut usize),
    info: *mut CompactionInfo,
) -> karstdb::Result<()> {
    let db = unsafe { &of(db)?.db };
    let told = unsafe { compact(db, family, options, files, to)? };
    let made: Vec<_> = match names.is_null() {
        // Compat: RocksDB returns the count only together with the names.
        true => Vec::new(),
        false => told.output_paths.iter().map(|path| bytes_out(path.as_os_str().as_bytes())).collect(),
    };
    unsafe {
        put(count, made.len());
        put(names, if made.is_empty() { std::ptr::null_mut() } else { array_out(&made) });
        if let Some(info) = info.as_mut() {
            *info = told;
        }
    }
    Ok(())
}

capi! {
    attempt rocksdb_compact_files(db: *const Database, options: *const CompactionSettings, files: *const *const c_char, count: usize, output_level: c_int, output_path_id: c_int, output_names: *mut *mut *mut c_char, output_count: *mut usize, info: *mut CompactionInfo) {
        compact_files(db, std::ptr::null(), options, list(files, count), (output_level, output_path_id), (output_names, output_count), info)
    }
    attempt rocksdb_compact_files_cf(db: *const Database, family: *const Family, options: *const CompactionSettings, files: *const *const c_char, count: usize, output_level: c_int, output_path_id: c_int, output_names: *mut *mut *mut c_char, output_count: *mut usize, info: *mut CompactionInfo) {
        compact_files(db, family, options, list(files, count), (output_level, output_path_id), (output_names, output_count), info)
    }
    call rocksdb_compact_files_output_file_names_destroy(names: *mut *mut c_char, count: usize) {
        for name in list(names, count) { libc::free((*name).cast()) }
        libc::free(names.cast());
    }
    call rocksdb_compaction_options_canceled_create() -> *mut c_uchar { give(AtomicBool::new(false)).cast() }
    call rocksdb_compaction_options_canceled_destroy(canceled: *mut c_uchar) { end(canceled.cast::<AtomicBool>()); }
    call rocksdb_compaction_options_canceled_set(canceled: *const c_uchar, value: c_uchar) {
        if let Some(flag) = canceled.cast::<AtomicBool>().as_ref() { flag.store(value != 0, Ordering::Release) }
    }
    call rocksdb_compaction_options_set_canceled(options: *mut CompactionSettings, canceled: *mut c_uchar) {
        if let Some(options) = options.as_mut() { options.canceled = canceled }
    }
}
