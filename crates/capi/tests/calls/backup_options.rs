//! Options of backups and of restoring, each tested by its effect.

use super::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn rocksdb_backup_engine_options_create(d: B) -> H;
    fn rocksdb_backup_engine_options_destroy(o: H);
    fn rocksdb_backup_engine_options_set_backup_rate_limit(o: H, v: u64);
    fn rocksdb_backup_engine_options_get_backup_rate_limit(o: H) -> u64;
    fn rocksdb_backup_engine_options_set_restore_rate_limit(o: H, v: u64);
    fn rocksdb_backup_engine_options_get_restore_rate_limit(o: H) -> u64;
    fn rocksdb_backup_engine_options_set_sync(o: H, v: c_uchar);
    fn rocksdb_backup_engine_options_get_sync(o: H) -> c_uchar;
    fn rocksdb_backup_engine_options_set_max_valid_backups_to_open(o: H, v: c_int);
    fn rocksdb_backup_engine_options_get_max_valid_backups_to_open(o: H) -> c_int;
    fn rocksdb_backup_engine_options_set_io_buffer_size(o: H, v: u64);
    fn rocksdb_backup_engine_options_get_io_buffer_size(o: H) -> u64;
    fn rocksdb_backup_engine_options_set_schema_version(o: H, v: c_int);
    fn rocksdb_backup_engine_options_get_schema_version(o: H) -> c_int;
    fn rocksdb_backup_engine_options_set_share_files_with_checksum_naming(o: H, v: c_int);
    fn rocksdb_backup_engine_options_get_share_files_with_checksum_naming(o: H) -> c_int;
    fn rocksdb_backup_engine_options_set_callback_trigger_interval_size(o: H, v: u64);
    fn rocksdb_backup_engine_open_opts(o: H, env: H, e: E) -> H;
    fn rocksdb_backup_engine_restore_db_from_latest_backup(b: H, d: B, w: B, o: H, e: E);
    fn rocksdb_backup_engine_create_new_backup_with_options(b: H, db: H, o: H, id: *mut u32, e: E);
    fn rocksdb_restore_options_create() -> H;
    fn rocksdb_restore_options_destroy(o: H);
    fn rocksdb_restore_options_set_mode(o: H, v: c_int);
    fn rocksdb_restore_options_get_mode(o: H) -> c_int;
    fn rocksdb_create_backup_options_create() -> H;
    fn rocksdb_create_backup_options_destroy(o: H);
    fn rocksdb_create_backup_options_set_background_thread_cpu_priority(o: H, v: c_int);
    fn rocksdb_create_backup_options_get_background_thread_cpu_priority(o: H) -> c_int;
    fn rocksdb_create_backup_options_set_decrease_background_thread_cpu_priority(o: H, v: c_uchar);
    fn rocksdb_create_backup_options_get_decrease_background_thread_cpu_priority(o: H) -> c_uchar;
    fn rocksdb_create_backup_options_set_progress_callback(
        o: H,
        state: H,
        callback: Option<unsafe extern "C" fn(H)>,
    );
}

impl Setup {
    /// Opens a database with a table of some 200 KB.
    fn with_table(&self) -> H {
        unsafe { rocksdb_options_set_compression(self.options, 0) };
        let db = self.open();
        (0..200_u8).for_each(|n| self.put(db, &[n], &[n; 1000]));
        self.flush(db);
        db
    }

    /// Opens a backup engine with these settings and creates a backup.
    fn back_up(&self, db: H, settings: H) -> H {
        unsafe {
            let engine = ok(|e| rocksdb_backup_engine_open_opts(settings, null_mut(), e));
            ok(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
            engine
        }
    }

    fn restore(&self, engine: H, mode: c_int) {
        unsafe {
            let to = self.path("restored");
            let options = rocksdb_restore_options_create();
            assert_eq!(rocksdb_restore_options_get_mode(options), 0xffff);
            rocksdb_restore_options_set_mode(options, mode);
            assert_eq!(rocksdb_restore_options_get_mode(options), mode);
            ok(|e| {
                rocksdb_backup_engine_restore_db_from_latest_backup(
                    engine,
                    to.as_ptr(),
                    to.as_ptr(),
                    options,
                    e,
                )
            });
            rocksdb_restore_options_destroy(options);
        }
    }

    /// Returns the files of a directory with `part` in their path.
    fn named(&self, directory: &str, part: &str) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.directory.path().join(directory)).unwrap();
        all.map(|file| file.unwrap().path()).filter(|path| path.to_str().unwrap().contains(part)).collect()
    }
}

#[test]
fn what_a_backup_is_called_and_how_fast_it_is_made_is_set() {
    let setup = Setup::new();
    let db = setup.with_table();
    unsafe {
        let settings = rocksdb_backup_engine_options_create(setup.path("backups").as_ptr());
        assert_eq!(rocksdb_backup_engine_options_get_backup_rate_limit(settings), 0);
        assert_eq!(rocksdb_backup_engine_options_get_restore_rate_limit(settings), 0);
        assert_eq!(rocksdb_backup_engine_options_get_sync(settings), 1);
        assert_eq!(rocksdb_backup_engine_options_get_max_valid_backups_to_open(settings), c_int::MAX);
        assert_eq!(rocksdb_backup_engine_options_get_io_buffer_size(settings), 0);
        assert_eq!(rocksdb_backup_engine_options_get_schema_version(settings), 1);
        let usual = rocksdb_backup_engine_options_get_share_files_with_checksum_naming(settings);
        assert_eq!(usual, 2 | c_int::MIN);
        for limit in [
            rocksdb_backup_engine_options_set_backup_rate_limit,
            rocksdb_backup_engine_options_set_restore_rate_limit,
        ] {
            limit(settings, 600_000);
        }
        assert_eq!(rocksdb_backup_engine_options_get_backup_rate_limit(settings), 600_000);
        assert_eq!(rocksdb_backup_engine_options_get_restore_rate_limit(settings), 600_000);
        rocksdb_backup_engine_options_set_io_buffer_size(settings, 10_000);
        assert_eq!(rocksdb_backup_engine_options_get_io_buffer_size(settings), 10_000);
        rocksdb_backup_engine_options_set_sync(settings, 0);
        assert_eq!(rocksdb_backup_engine_options_get_sync(settings), 0);
        rocksdb_backup_engine_options_set_schema_version(settings, 2);
        assert_eq!(rocksdb_backup_engine_options_get_schema_version(settings), 2);
        // Compat: without effect, because C has only engines for all purposes, which read all
        // backups.
        rocksdb_backup_engine_options_set_max_valid_backups_to_open(settings, 1);
        assert_eq!(rocksdb_backup_engine_options_get_max_valid_backups_to_open(settings), 1);
        let begin = Instant::now();
        let engine = setup.back_up(db, settings);
        assert!(begin.elapsed() > Duration::from_millis(150), "{:?}", begin.elapsed());
        let begin = Instant::now();
        setup.restore(engine, 0xffff);
        assert!(begin.elapsed() > Duration::from_millis(150), "{:?}", begin.elapsed());
        let text = std::fs::read_to_string(setup.directory.path().join("backups/meta/1")).unwrap();
        assert!(text.starts_with("schema_version 2.1\n"), "{text}");
        rocksdb_backup_engine_close(engine);
        rocksdb_backup_engine_options_set_backup_rate_limit(settings, 0);
        for (naming, parts) in [(1, 3), (2, 2), (usual, 3)] {
            rocksdb_backup_engine_options_set_share_files_with_checksum_naming(settings, naming);
            let told = rocksdb_backup_engine_options_get_share_files_with_checksum_naming(settings);
            assert_eq!(told, naming);
            std::fs::remove_dir_all(setup.directory.path().join("backups")).unwrap();
            let engine = setup.back_up(db, settings);
            ok(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
            let infos = rocksdb_backup_engine_get_backup_info(engine);
            assert_eq!(rocksdb_backup_engine_info_count(infos), 2);
            rocksdb_backup_engine_info_destroy(infos);
            let tables = setup.named("backups/shared_checksum", ".sst");
            assert_eq!(tables.len(), 1, "{tables:?}");
            let name = tables[0].file_name().unwrap().to_str().unwrap();
            assert_eq!(name.split('_').count(), parts, "{name}");
            assert_eq!(name.contains("_s"), naming != 1, "{name}");
            rocksdb_backup_engine_close(engine);
        }
        rocksdb_backup_engine_options_set_schema_version(settings, 3);
        let engine = ok(|e| rocksdb_backup_engine_open_opts(settings, null_mut(), e));
        let refused = failed(|e| rocksdb_backup_engine_create_new_backup(engine, db, e));
        assert!(refused.starts_with("Not implemented"), "{refused}");
        rocksdb_backup_engine_close(engine);
        rocksdb_backup_engine_options_destroy(settings);
        rocksdb_close(db);
    }
}

#[test]
fn restoring_leaves_what_its_mode_says() {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &Path| std::fs::metadata(path).unwrap().ino();
    let setup = Setup::new();
    let db = setup.with_table();
    unsafe {
        let settings = rocksdb_backup_engine_options_create(setup.path("backups").as_ptr());
        let engine = setup.back_up(db, settings);
        setup.restore(engine, 0xffff);
        let table = setup.named("restored", ".sst").remove(0);
        let bytes = std::fs::read(&table).unwrap();
        // A second link keeps the inode number from being reused.
        let keep = |at: &str| std::fs::hard_link(&table, setup.directory.path().join(at)).unwrap();
        for (mode, damaged, stays) in
            [(1, false, true), (1, true, true), (2, true, false), (2, false, true), (0xffff, false, false)]
        {
            if damaged {
                let mut other = bytes.clone();
                other[50] ^= 1;
                std::fs::write(&table, other).unwrap();
            }
            keep(&format!("kept {mode} {damaged}"));
            let before = file(&table);
            setup.restore(engine, mode);
            assert_eq!(file(&table) == before, stays, "{mode} {damaged}");
            assert_eq!(std::fs::read(&table).unwrap() == bytes, !damaged || !stays);
        }
        rocksdb_backup_engine_close(engine);
        rocksdb_backup_engine_options_destroy(settings);
        rocksdb_close(db);
    }
}

/// Highest and lowest niceness of the copying threads, and number of callbacks.
static COPYING: Mutex<(c_int, c_int, usize)> = Mutex::new((c_int::MAX, c_int::MIN, 0));

unsafe extern "C" fn note_niceness(_: H) {
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t) };
    let mut found = COPYING.lock().unwrap();
    *found = (found.0.min(own), found.1.max(own), found.2 + 1);
}

#[test]
fn threads_that_copy_get_a_lower_priority_and_tell_of_each_buffer() {
    let setup = Setup::new();
    let db = setup.with_table();
    unsafe {
        let settings = rocksdb_backup_engine_options_create(setup.path("backups").as_ptr());
        rocksdb_backup_engine_options_set_callback_trigger_interval_size(settings, 1000);
        rocksdb_backup_engine_options_set_io_buffer_size(settings, 1000);
        let engine = ok(|e| rocksdb_backup_engine_open_opts(settings, null_mut(), e));
        let create = rocksdb_create_backup_options_create();
        assert_eq!(rocksdb_create_backup_options_get_background_thread_cpu_priority(create), 2);
        assert_eq!(rocksdb_create_backup_options_get_decrease_background_thread_cpu_priority(create), 0);
        rocksdb_create_backup_options_set_background_thread_cpu_priority(create, 1);
        assert_eq!(rocksdb_create_backup_options_get_background_thread_cpu_priority(create), 1);
        rocksdb_create_backup_options_set_progress_callback(create, null_mut(), Some(note_niceness));
        let ordinary = libc::getpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t);
        let make = || {
            *COPYING.lock().unwrap() = (c_int::MAX, c_int::MIN, 0);
            ok(|e| rocksdb_backup_engine_create_new_backup_with_options(engine, db, create, null_mut(), e));
            *COPYING.lock().unwrap()
        };
        let (least, most, calls) = make();
        assert_eq!((least, most), (ordinary, ordinary));
        assert!(calls > 200, "the table has more than 200 buffers: {calls}");
        rocksdb_create_backup_options_set_decrease_background_thread_cpu_priority(create, 1);
        assert_eq!(rocksdb_create_backup_options_get_decrease_background_thread_cpu_priority(create), 1);
        (0..9_u8).for_each(|n| setup.put(db, &[n], &[n; 1000]));
        let (least, most, _) = make();
        assert_eq!((least, most), (19, 19));
        rocksdb_create_backup_options_destroy(create);
        rocksdb_backup_engine_close(engine);
        rocksdb_backup_engine_options_destroy(settings);
        rocksdb_close(db);
    }
}
