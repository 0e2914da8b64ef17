//! Backups.

use crate::boundary::*;
use crate::cache::{Environment, Limiter};
use crate::call_options::{BackupSettings, CreateBackup, Restore};
use crate::handle::Database;
use crate::options::OptionsHandle;
use karstdb::io::Env;
use karstdb::{BackupEngine, BackupEngineOptions, BackupInfo, CreateBackupOptions};
use libc::{c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// `rocksdb_backup_engine_t`.
#[derive(Debug)]
pub struct Engine(BackupEngine);

/// `rocksdb_backup_engine_info_t`.
#[derive(Debug)]
pub struct Infos(Vec<BackupInfo>);

/// The user's state, passed to the user's callback on the thread that copies.
#[derive(Clone, Copy)]
struct State(*mut c_void);
// SAFETY: the user protects the state, as with RocksDB.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    fn call(self, callback: unsafe extern "C" fn(*mut c_void)) {
        // SAFETY: the user's function with the user's state.
        unsafe { callback(self.0) }
    }
}

/// Returns true if both environments access the same files.
fn is_one(a: &Env, b: &Env) -> bool {
    Arc::ptr_eq(a.fs(), b.fs()) || (a.fs().is_posix() && b.fs().is_posix())
}

unsafe fn create(
    engine: *mut Engine,
    db: *const Database,
    options: &CreateBackupOptions,
) -> karstdb::Result<u32> {
    unsafe { of_mut(engine)?.0.create_new_backup(&of(db)?.db, options) }
}

/// Returns the options of a handle; the defaults if it is null.
unsafe fn given(options: *const CreateBackup) -> CreateBackupOptions {
    unsafe { options.as_ref() }.map_or_else(CreateBackupOptions::default, |handle| handle.options.clone())
}

unsafe fn info<'a>(infos: *const Infos, at: c_int) -> Option<&'a BackupInfo> {
    unsafe { infos.as_ref() }?.0.get(usize::try_from(at).ok()?)
}

capi! {
    attempt rocksdb_backup_engine_open(options: *const OptionsHandle, dir: *const c_char) -> *mut Engine {
        let options = of(options)?;
        let engine = BackupEngine::open(&BackupEngineOptions::new(path(dir)?), &options.environment())?;
        Ok(give(Engine(engine)))
    }
    attempt rocksdb_backup_engine_open_opts(options: *const BackupSettings, env: *const Environment) -> *mut Engine {
        let (settings, env) = (of(options)?, OptionsHandle::env_of(env));
        if settings.env.as_ref().is_some_and(|own| !is_one(own, &env)) {
            return Err(not_supported("a backup engine with backups in another environment than databases"));
        }
        Ok(give(Engine(BackupEngine::open(&settings.options, &env)?)))
    }
    call rocksdb_backup_engine_close(engine: *mut Engine) { end(engine); }
    call rocksdb_create_backup_options_set_flush_before_backup(options: *mut CreateBackup, flush: c_uchar) {
        if let Some(options) = options.as_mut() { options.options.flush_before_backup = flush != 0 }
    }
    call rocksdb_create_backup_options_get_flush_before_backup(options: *const CreateBackup) -> c_uchar {
        options.as_ref().is_some_and(|options| options.options.flush_before_backup).into()
    }
    call rocksdb_create_backup_options_set_atomic_flush(options: *mut CreateBackup, value: c_uchar) {
        if let Some(options) = options.as_mut() { options.options.atomic_flush = value != 0 }
    }
    call rocksdb_create_backup_options_get_atomic_flush(options: *const CreateBackup) -> c_uchar {
        options.as_ref().is_some_and(|options| options.options.atomic_flush).into()
    }
    call rocksdb_create_backup_options_set_progress_callback(options: *mut CreateBackup, state: *mut c_void, callback: Option<unsafe extern "C" fn(*mut c_void)>) {
        let state = State(state);
        if let Some(options) = options.as_mut() {
            options.options.progress_callback = callback.map(|callback| Arc::new(move || state.call(callback)) as karstdb::BackupProgress);
        }
    }
    attempt rocksdb_backup_engine_create_new_backup(engine: *mut Engine, db: *const Database) {
        create(engine, db, &CreateBackupOptions::default()).map(drop)
    }
    attempt rocksdb_backup_engine_create_new_backup_flush(engine: *mut Engine, db: *const Database, flush: c_uchar) {
        create(engine, db, &CreateBackupOptions { flush_before_backup: flush != 0, ..Default::default() }).map(drop)
    }
    attempt rocksdb_backup_engine_create_new_backup_with_options(engine: *mut Engine, db: *const Database, options: *const CreateBackup, id: *mut u32) {
        let made = create(engine, db, &given(options))?;
        put(id, made);
        Ok(())
    }
    attempt rocksdb_backup_engine_create_new_backup_with_metadata(engine: *mut Engine, db: *const Database, options: *const CreateBackup, metadata: *const c_char, length: usize, id: *mut u32) {
        let options = given(options);
        let made = create(engine, db, &CreateBackupOptions { app_metadata: bytes(metadata, length).to_vec(), ..options })?;
        put(id, made);
        Ok(())
    }
    attempt rocksdb_backup_engine_purge_old_backups(engine: *mut Engine, keep: u32) { of_mut(engine)?.0.purge_old_backups(keep as usize) }
    attempt rocksdb_backup_engine_verify_backup(engine: *const Engine, id: u32) { of(engine)?.0.verify_backup(id, false) }
    attempt rocksdb_backup_engine_restore_db_from_latest_backup(engine: *const Engine, dir: *const c_char, wal_dir: *const c_char, options: *const Restore) {
        of(engine)?.0.restore_db_from_latest_backup(path(dir)?, path(wal_dir)?, &options.as_ref().map(|restore| restore.options).unwrap_or_default())
    }
    attempt rocksdb_backup_engine_restore_db_from_backup(engine: *const Engine, dir: *const c_char, wal_dir: *const c_char, options: *const Restore, id: u32) {
        of(engine)?.0.restore_db_from_backup(id, path(dir)?, path(wal_dir)?, &options.as_ref().map(|restore| restore.options).unwrap_or_default())
    }
    call rocksdb_backup_engine_get_backup_info(engine: *const Engine) -> *mut Infos {
        engine.as_ref().map_or(std::ptr::null_mut(), |engine| give(Infos(engine.0.get_backup_info())))
    }
    call rocksdb_backup_engine_info_count(infos: *const Infos) -> c_int { infos.as_ref().map_or(0, |infos| infos.0.len() as c_int) }
    call rocksdb_backup_engine_info_timestamp(infos: *const Infos, at: c_int) -> i64 { info(infos, at).map_or(0, |info| info.timestamp as i64) }
    call rocksdb_backup_engine_info_backup_id(infos: *const Infos, at: c_int) -> u32 { info(infos, at).map_or(0, |info| info.backup_id) }
    call rocksdb_backup_engine_info_size(infos: *const Infos, at: c_int) -> u64 { info(infos, at).map_or(0, |info| info.size) }
    call rocksdb_backup_engine_info_number_files(infos: *const Infos, at: c_int) -> u32 { info(infos, at).map_or(0, |info| info.number_files as u32) }
    call rocksdb_backup_engine_info_app_metadata(infos: *const Infos, at: c_int, length: *mut usize) -> *const c_char {
        info(infos, at).map_or(std::ptr::null(), |info| lend(&info.app_metadata, length))
    }
    call rocksdb_backup_engine_info_destroy(infos: *mut Infos) { end(infos); }
    call rocksdb_backup_engine_stop_backup(engine: *const Engine) { if let Some(engine) = engine.as_ref() { engine.0.stopper().stop_backup() } }

    call rocksdb_backup_engine_options_create(dir: *const c_char) -> *mut BackupSettings {
        or_say("rocksdb_backup_engine_options_create", path(dir)).map_or(std::ptr::null_mut(), |dir| give(BackupSettings::in_folder(BackupEngineOptions::new(dir))))
    }
    call rocksdb_backup_engine_options_destroy(options: *mut BackupSettings) { end(options); }
    call rocksdb_backup_engine_options_set_backup_dir(options: *mut BackupSettings, dir: *const c_char) {
        let dir = or_say("rocksdb_backup_engine_options_set_backup_dir", path(dir));
        if let (Some(options), Some(dir)) = (options.as_mut(), dir) { options.options.backup_dir = dir.to_owned() }
    }
    call rocksdb_backup_engine_options_get_backup_dir(options: *const BackupSettings, length: *mut usize) -> *const c_char {
        options.as_ref().map_or(std::ptr::null(), |options| lend(options.options.backup_dir.as_os_str().as_bytes(), length))
    }
    call rocksdb_backup_engine_options_set_env(options: *mut BackupSettings, env: *const Environment) {
        if let Some(options) = options.as_mut() { options.env = env.as_ref().map(|env| env.0.clone()) }
    }
    call rocksdb_backup_engine_options_set_backup_rate_limiter(options: *mut BackupSettings, limiter: *const Limiter) {
        if let Some(options) = options.as_mut() { options.options.backup_rate_limiter = limiter.as_ref().map(|limiter| limiter.0.clone()) }
    }
    call rocksdb_backup_engine_options_set_restore_rate_limiter(options: *mut BackupSettings, limiter: *const Limiter) {
        if let Some(options) = options.as_mut() { options.options.restore_rate_limiter = limiter.as_ref().map(|limiter| limiter.0.clone()) }
    }
    call rocksdb_restore_options_create() -> *mut Restore { give(Restore::default()) }
    call rocksdb_restore_options_destroy(options: *mut Restore) { end(options); }
    call rocksdb_restore_options_set_keep_log_files(options: *mut Restore, keep: c_int) {
        if let Some(options) = options.as_mut() { options.options.keep_log_files = keep != 0 }
    }
    call rocksdb_restore_options_get_keep_log_files(options: *const Restore) -> c_uchar {
        options.as_ref().is_some_and(|options| options.options.keep_log_files).into()
    }
}
