//! Background work under the user's control: flush, pause, wait, resume. Each call that waits has a
//! blocking form and an asynchronous one.

use super::Db;
use crate::background::{FlushOptions, WaitForCompactOptions};
use crate::open::open_for_reading;
use crate::sealing::Sealing;
use crate::write_half::WriteHalf;
use karst_base::error::Result;
use karst_base::events::FlushReason;
use karst_base::health::BackgroundError;
use karst_storage::column_family::{ColumnFamily, Family};
use std::sync::Arc;

impl Db {
    /// Returns the half of the database that writes.
    ///
    /// # Errors
    /// The database is closed, or open for reading only.
    pub(crate) fn write_half(&self) -> Result<&WriteHalf> {
        self.check_open()?;
        self.0.write.as_ref().ok_or_else(open_for_reading)
    }

    fn families_of(&self, families: &[&ColumnFamily]) -> Result<Vec<Arc<Family>>> {
        families.iter().map(|family| self.family(family).cloned()).collect()
    }

    /// Flushes the memtables of the default column family to a table on L0.
    ///
    /// # Errors
    /// The database is open for reading only or closed, or there is a background error, an earlier
    /// one or a new one.
    pub fn flush(&self, options: &FlushOptions) -> Result<()> {
        karst_io::block_on(self.env(), self.flush_async(options))
    }

    /// Flushes these column families; with `atomic_flush`, all of them in one change.
    ///
    /// # Errors
    /// Those of [`Db::flush`]; a column family belongs to another database.
    pub fn flush_cfs(&self, options: &FlushOptions, families: &[&ColumnFamily]) -> Result<()> {
        karst_io::block_on(self.env(), self.flush_cfs_async(options, families))
    }

    /// The asynchronous form of [`Db::flush`]. The flush continues if the future is dropped, unless
    /// it is still waiting until a flush would not slow writers down.
    ///
    /// # Errors
    /// Those of [`Db::flush`].
    pub async fn flush_async(&self, options: &FlushOptions) -> Result<()> {
        self.flush_cfs_async(options, &[self.default_column_family()]).await
    }

    /// The asynchronous form of [`Db::flush_cfs`].
    ///
    /// # Errors
    /// Those of [`Db::flush_cfs`].
    pub async fn flush_cfs_async(&self, options: &FlushOptions, families: &[&ColumnFamily]) -> Result<()> {
        let families = self.families_of(families)?;
        let which = Sealing::Of(families);
        self.write_half()?.background.flush_families(which, *options, FlushReason::ManualFlush).await
    }

    /// Recovers from a background error: flushes all memtables and accepts writes again. Succeeds
    /// if there is no background error.
    ///
    /// # Errors
    /// The error can only be overcome by reopening the database, or its cause persists.
    pub fn resume(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.resume_async())
    }

    /// The asynchronous form of [`Db::resume`]. Once polled it continues even if it is dropped.
    ///
    /// # Errors
    /// Those of [`Db::resume`].
    pub async fn resume_async(&self) -> Result<()> {
        self.write_half()?.background.resume().await
    }

    /// Returns the current background error, or None.
    pub fn background_error(&self) -> Option<BackgroundError> {
        self.0.write.as_ref().and_then(|write| write.health.current())
    }

    /// Waits until no flush or compaction runs, and starts none until
    /// [`Db::continue_background_work`]. Calls nest.
    ///
    /// # Errors
    /// The database is open for reading only.
    pub fn pause_background_work(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.pause_background_work_async())
    }

    /// The asynchronous form of [`Db::pause_background_work`]. If it is dropped before it ends,
    /// nothing stays paused and no `continue_background_work` is due.
    ///
    /// # Errors
    /// Those of [`Db::pause_background_work`].
    pub async fn pause_background_work_async(&self) -> Result<()> {
        self.write_half()?.background.pause().await;
        Ok(())
    }

    /// Undoes one [`Db::pause_background_work`]. Does not wait.
    ///
    /// # Errors
    /// Background work is not paused, or the database is open for reading only.
    pub fn continue_background_work(&self) -> Result<()> {
        self.write_half()?.background.unpause()
    }

    /// Cancels background work permanently, so that closing is quick: entries that are in no log
    /// are flushed first unless `avoid_flush_during_shutdown` is set; then no flush or compaction
    /// begins any more, and the running ones stop. With `wait` none runs when this returns.
    ///
    /// Reads continue, and so do writes until they would have to wait for a job; then they fail
    /// with `Closed`. Calls that need a job fail likewise, including those that already wait for
    /// one: a flush, a manual compaction, waiting for compactions, resuming. Only closing and
    /// reopening the database undoes this. Closing still reports entries in no log, written since,
    /// that are lost.
    ///
    /// # Errors
    /// Entries in no log could not be flushed; everything else has been done regardless. The
    /// database is open for reading only.
    pub fn cancel_all_background_work(&self, wait: bool) -> Result<()> {
        karst_io::block_on(self.env(), self.cancel_all_background_work_async(wait))
    }

    /// The asynchronous form of [`Db::cancel_all_background_work`]. If it is dropped before it
    /// ends, everything has been cancelled, or nothing yet.
    ///
    /// # Errors
    /// Those of [`Db::cancel_all_background_work`].
    pub async fn cancel_all_background_work_async(&self, wait: bool) -> Result<()> {
        self.write_half()?.background.cancel_all(wait).await
    }

    /// Waits until no flush and no automatic compaction is pending.
    ///
    /// # Errors
    /// A background error; the database was closed meanwhile; `TimedOut`; with `abort_on_pause`,
    /// `Incomplete` if background work is paused. With `close_db`, the errors of closing.
    pub fn wait_for_compact(&self, options: &WaitForCompactOptions) -> Result<()> {
        karst_io::block_on(self.env(), self.settled(options))?;
        if options.close_db { self.close() } else { Ok(()) }
    }

    /// The asynchronous form of [`Db::wait_for_compact`].
    ///
    /// # Errors
    /// Those of [`Db::wait_for_compact`].
    pub async fn wait_for_compact_async(&self, options: &WaitForCompactOptions) -> Result<()> {
        self.settled(options).await?;
        if options.close_db { self.close_async().await } else { Ok(()) }
    }

    async fn settled(&self, options: &WaitForCompactOptions) -> Result<()> {
        self.write_half()?.background.wait_for_compact(*options).await
    }

    /// Enables automatic compactions of these column families: sets `disable_auto_compactions` to
    /// false. Blocks like [`Db::set_options`].
    ///
    /// # Errors
    /// Those of [`Db::set_options`], for the first family that fails.
    pub fn enable_auto_compaction(&self, families: &[&ColumnFamily]) -> Result<()> {
        families
            .iter()
            .try_for_each(|family| self.set_options(family, &[(DISABLE_AUTO_COMPACTIONS, "false")]))
    }

    /// Disables automatic compactions of these column families. Running ones continue. Blocks like
    /// [`Db::set_options`].
    ///
    /// # Errors
    /// Those of [`Db::enable_auto_compaction`].
    pub fn disable_auto_compaction(&self, families: &[&ColumnFamily]) -> Result<()> {
        families.iter().try_for_each(|family| self.set_options(family, &[(DISABLE_AUTO_COMPACTIONS, "true")]))
    }
}

const DISABLE_AUTO_COMPACTIONS: &str = "disable_auto_compactions";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransactionHooks;
    use crate::background::race_hook;
    use crate::open::Options;
    use karst_base::caller::Caller;
    use karst_base::events::{EventListener, FlushInfo};
    use karst_base::sync::Mutex;
    use karst_commit::{WriteBatch, WriteOptions};
    use karst_io::{Disturb, Disturbance, DisturbedFileSystem, Env, MemoryFileSystem};
    use karst_testkit::eventually;
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Drops the family on another thread, and sends true if that succeeded.
    fn dropping(db: &Db, family: &ColumnFamily) -> (impl FnOnce() + use<>, mpsc::Receiver<bool>) {
        let (dropper, dropped) = (db.clone(), family.clone());
        let (tell, told) = mpsc::channel();
        let between = move || {
            std::thread::spawn(move || tell.send(dropper.drop_column_family(&dropped).is_ok()));
            // The drop may have to wait for the end of the check; otherwise it is done long before.
            std::thread::sleep(Duration::from_millis(100));
        };
        (between, told)
    }

    #[test]
    fn a_family_that_is_dropped_while_it_is_looked_at_stops_nobody() {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new()
            .env(env)
            .db(|db| db.create_if_missing = true)
            .column_families(|family| family.max_write_buffer_number = 2);
        let db = Db::open("/db", &options).unwrap();
        let full = db.create_column_family("full", &options).unwrap();
        db.pause_background_work().unwrap();
        for _ in 0..2 {
            db.put_cf(&WriteOptions::default(), &full, b"key", b"value").unwrap();
            let at_once = FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() };
            db.flush_cfs(&at_once, &[&full]).unwrap();
        }
        let write = db.write_half().unwrap();
        assert!(write.stalls.held().0, "writers are not stopped: the test shows nothing");
        let (between, told) = dropping(&db, &full);
        race_hook::ACTION.set(Some(Box::new(between)));
        write.background.look_at(&full.0);
        assert!(told.recv_timeout(Duration::from_secs(60)).unwrap(), "it was dropped");
        assert!(!write.stalls.held().0, "a family that is gone stops all writers");
    }

    #[test]
    fn nothing_is_kept_of_families_that_come_and_go() {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new().env(env).db(|db| db.create_if_missing = true);
        let db = Db::open("/db", &options).unwrap();
        for _ in 0..20 {
            let family = db.create_column_family("comes and goes", &options).unwrap();
            db.put_cf(&WriteOptions::default(), &family, b"key", b"value").unwrap();
            db.flush_cfs(&FlushOptions::default(), &[&family]).unwrap();
            db.drop_column_family(&family).unwrap();
        }
        let known = db.write_half().unwrap().background.known_families();
        // A job of the last family may have been running.
        assert!(known <= 2, "{known} families are known, and one is open");
    }

    /// The family with the most to flush is chosen, and dropped before its memtables are read.
    #[test]
    fn a_family_that_is_dropped_when_it_is_chosen_keeps_no_other_from_being_flushed() {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new()
            .env(env)
            .db(|db| db.create_if_missing = true)
            .column_families(|family| family.max_write_buffer_number = 4);
        let db = Db::open("/db", &options).unwrap();
        let full = db.create_column_family("full", &options).unwrap();
        db.pause_background_work().unwrap();
        for families in [vec![db.default_column_family(), &full], vec![&full]] {
            for family in &families {
                db.put_cf(&WriteOptions::default(), family, b"key", b"value").unwrap();
            }
            let at_once = FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() };
            db.flush_cfs(&at_once, &families).unwrap();
        }
        let (between, told) = dropping(&db, &full);
        race_hook::ACTION.set(Some(Box::new(between)));
        db.continue_background_work().unwrap();
        assert!(told.recv_timeout(Duration::from_secs(60)).unwrap(), "it was dropped");
        eventually(Some(0), || db.int_property("rocksdb.num-immutable-mem-table"));
    }

    #[test]
    fn a_flush_of_what_hides_each_other_makes_no_table_and_lets_go_of_its_memtable() {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let options = Options::new().env(env).db(|db| db.create_if_missing = true);
        let db = Db::open("/db", &options).unwrap();
        db.put("key", "value").unwrap();
        db.single_delete("key").unwrap();
        db.flush(&FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() }).unwrap();
        eventually(Some(0), || db.int_property("rocksdb.num-immutable-mem-table"));
        assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"));
    }

    /// Number of entries in each flush of a family.
    #[derive(Debug, Default)]
    struct Flushed(Mutex<Vec<u64>>);

    impl EventListener for Flushed {
        fn flush_completed(&self, flush: &FlushInfo) {
            self.0.lock().push(flush.entries);
        }
    }

    /// A family that was examined before it was sealed would be flushed without the sealed
    /// memtable, and a batch that went to both families would be flushed in part.
    #[test]
    fn what_is_sealed_while_an_atomic_flush_is_chosen_is_left_to_the_next() {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let flushed = Arc::new(Flushed::default());
        let options = Options::new()
            .env(env)
            .event_listener(flushed.clone())
            .db(|db| (db.create_if_missing, db.atomic_flush) = (true, true))
            .column_families(|family| family.max_write_buffer_number = 4);
        let db = Db::open("/db", &options).unwrap();
        let other = db.create_column_family("other", &options).unwrap();
        let write = |db: &Db, other: &ColumnFamily, key: &str| {
            let mut batch = WriteBatch::new();
            batch.put(key, "1").unwrap();
            batch.put_cf(other, key, "1").unwrap();
            db.write(&WriteOptions::default(), &batch).unwrap();
        };
        let at_once = FlushOptions { wait: false, allow_write_stall: true, ..FlushOptions::default() };
        db.pause_background_work().unwrap();
        write(&db, &other, "before");
        db.flush(&at_once).unwrap();
        let between = {
            let (db, other) = (db.clone(), other.clone());
            move || {
                write(&db, &other, "meanwhile");
                db.write_half().unwrap().background.seal_untold().unwrap();
            }
        };
        race_hook::ACTION.set(Some(Box::new(between)));
        db.continue_background_work().unwrap();
        db.flush(&at_once).unwrap();
        eventually(4, || flushed.0.lock().iter().sum::<u64>());
        assert_eq!(*flushed.0.lock(), [1; 4]);
    }

    /// A disk on which files with this name ending cannot be changed or synced.
    #[derive(Debug, Default)]
    struct Loses(Mutex<Option<String>>);

    impl Disturb for Loses {
        fn read(&self, _: &Path, _: u64, _: usize) -> Option<Disturbance> {
            None
        }
        fn write(&self, path: &Path) -> std::io::Result<()> {
            let lost = self.0.lock().as_ref().is_some_and(|end| path.to_string_lossy().ends_with(end));
            if lost { Err(std::io::Error::other("it is lost")) } else { Ok(()) }
        }
    }

    /// Records that the log may lose are a hole for a family that, by the MANIFEST, needs no log
    /// before the next one, and the next change of the MANIFEST may record that.
    #[test]
    fn a_family_without_anything_in_memory_needs_its_log_until_that_is_synced() {
        let disk = DisturbedFileSystem::new(Arc::new(MemoryFileSystem::new()), Loses::default());
        let options = Options::new()
            .env(Env::builder().file_system(Arc::new(disk.clone())).build())
            .db(|db| (db.create_if_missing, db.max_bgerror_resume_count) = (true, 0));
        let db = Db::open("/db", &options).unwrap();
        let idle = db.create_column_family("idle", &options).unwrap();
        db.put("key", "value").unwrap();
        let versions = &db.write_half().unwrap().ownership.versions;
        let needs = || versions.log_number(idle.0.id());
        let before = needs();
        let log = db.log_numbers().pop().unwrap();
        *disk.between().0.lock() = Some(format!("{log:06}.log"));
        let told = db.flush(&FlushOptions::default()).unwrap_err();
        assert!(told.to_string().contains("sync"), "{told}");
        assert_eq!(needs(), before);
    }

    /// Makes the log fail as soon as a flush has begun.
    #[derive(Debug)]
    struct FailsLog {
        db: Mutex<Option<Db>>,
        disk: Arc<Loses>,
    }

    impl EventListener for FailsLog {
        fn flush_begun(&self, _: &FlushInfo) {
            let Some(db) = self.db.lock().take() else { return };
            *self.disk.0.lock() = Some(".log".into());
            db.flush_wal(true).unwrap_err();
            *self.disk.0.lock() = None;
        }
    }

    /// The next opening needs that log for the prepared section, and finds its torn end; no table
    /// may hold entries written after it.
    #[test]
    fn a_recovery_puts_nothing_into_tables_when_the_log_that_prepared_sections_need_has_failed() {
        let disk = DisturbedFileSystem::new(Arc::new(MemoryFileSystem::new()), Loses::default());
        let fails = Arc::new(FailsLog { db: Mutex::default(), disk: disk.between().clone() });
        let options = Options::new()
            .env(Env::builder().file_system(Arc::new(disk)).build())
            .event_listener(fails.clone())
            .db(|db| {
                (db.create_if_missing, db.allow_2pc, db.max_bgerror_resume_count) = (true, true, 0);
            });
        let db = Db::open("/db", &options).unwrap();
        let mut batch = WriteBatch::new();
        batch.put("prepared", "value").unwrap();
        let write = WriteOptions::default();
        let prepared = TransactionHooks::of(&db).prepare(Caller::Thread, &write, b"name", batch);
        karst_io::block_on(db.env(), prepared).unwrap();
        db.put("key", "value").unwrap();
        *fails.disk.0.lock() = Some(".sst".into());
        db.flush(&FlushOptions::default()).unwrap_err();
        *fails.disk.0.lock() = None;
        *fails.db.lock() = Some(db.clone());
        let told = db.resume().unwrap_err();
        assert!(fails.db.lock().is_none(), "no flush has begun: {told}");
        assert_eq!(db.property("rocksdb.num-files-at-level0").as_deref(), Some("0"), "{told}");
    }
}
