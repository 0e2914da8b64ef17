//! Background work as the user directs it: flush, pause, wait, resume. Each call that waits has a
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
    /// The half that writes.
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

    /// Writes what the default column family has in memory to a table of L0.
    ///
    /// # Errors
    /// The database is open for reading only or closed, or a background error stands in the way or
    /// came.
    pub fn flush(&self, options: &FlushOptions) -> Result<()> {
        karst_io::block_on(self.env(), self.flush_async(options))
    }

    /// The same for these column families; with `atomic_flush`, for all of them in one change.
    ///
    /// # Errors
    /// As [`Db::flush`], and if a column family is of another database.
    pub fn flush_cfs(&self, options: &FlushOptions, families: &[&ColumnFamily]) -> Result<()> {
        karst_io::block_on(self.env(), self.flush_cfs_async(options, families))
    }

    /// The asynchronous form of [`Db::flush`]. Dropped on the way it goes on, unless it still waits
    /// until a flush would not slow writers down.
    ///
    /// # Errors
    /// As [`Db::flush`].
    pub async fn flush_async(&self, options: &FlushOptions) -> Result<()> {
        self.flush_cfs_async(options, &[self.default_column_family()]).await
    }

    /// The asynchronous form of [`Db::flush_cfs`].
    ///
    /// # Errors
    /// As [`Db::flush_cfs`].
    pub async fn flush_cfs_async(&self, options: &FlushOptions, families: &[&ColumnFamily]) -> Result<()> {
        let families = self.families_of(families)?;
        let which = Sealing::Of(families);
        self.write_half()?.background.flush_families(which, *options, FlushReason::ManualFlush).await
    }

    /// Goes on after a background error: everything in memory is flushed, and writes are accepted
    /// again. No error if there is nothing to overcome.
    ///
    /// # Errors
    /// It is an error that only opening the database anew overcomes, or what went wrong goes wrong
    /// still.
    pub fn resume(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.resume_async())
    }

    /// The asynchronous form of [`Db::resume`]. Once it was polled it goes on if it is dropped.
    ///
    /// # Errors
    /// As [`Db::resume`].
    pub async fn resume_async(&self) -> Result<()> {
        self.write_half()?.background.resume().await
    }

    /// The background error that stands, if there is one.
    pub fn background_error(&self) -> Option<BackgroundError> {
        self.0.write.as_ref().and_then(|write| write.health.current())
    }

    /// Waits until no flush and no compaction runs, and starts none until
    /// [`Db::continue_background_work`]. Calls add up.
    ///
    /// # Errors
    /// The database is open for reading only.
    pub fn pause_background_work(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.pause_background_work_async())
    }

    /// The asynchronous form of [`Db::pause_background_work`]. Dropped before it ends, it does not
    /// count, and there is nothing to take back.
    ///
    /// # Errors
    /// As [`Db::pause_background_work`].
    pub async fn pause_background_work_async(&self) -> Result<()> {
        self.write_half()?.background.pause().await;
        Ok(())
    }

    /// Takes one [`Db::pause_background_work`] back. Does not wait.
    ///
    /// # Errors
    /// Background work is not paused, or the database is open for reading only.
    pub fn continue_background_work(&self) -> Result<()> {
        self.write_half()?.background.unpause()
    }

    /// Cancels background work for good, so that closing takes no time: what is in no log is
    /// flushed first unless `avoid_flush_during_shutdown` says otherwise, then no flush and no
    /// compaction begins any more, and those that run end. With `wait` none runs when this returns.
    ///
    /// Reads go on, and so do writes until they would have to wait for a job; then they fail with
    /// `Closed`. So do calls that need a job, those that wait for one already included: a flush, a
    /// compaction by hand, waiting for compactions, resuming. Only closing the database and opening
    /// it again takes that back. Closing still tells of entries in no log, written since, that are
    /// lost.
    ///
    /// # Errors
    /// What is in no log could not be flushed; everything else has happened all the same. The
    /// database is open for reading only.
    pub fn cancel_all_background_work(&self, wait: bool) -> Result<()> {
        karst_io::block_on(self.env(), self.cancel_all_background_work_async(wait))
    }

    /// The asynchronous form of [`Db::cancel_all_background_work`]. Dropped before it ends, it has
    /// cancelled everything, or nothing yet.
    ///
    /// # Errors
    /// As [`Db::cancel_all_background_work`].
    pub async fn cancel_all_background_work_async(&self, wait: bool) -> Result<()> {
        self.write_half()?.background.cancel_all(wait).await
    }

    /// Waits until nothing is left to flush or to compact by itself.
    ///
    /// # Errors
    /// A background error; the database is closed meanwhile; `TimedOut`; with `abort_on_pause`,
    /// `Incomplete` where background work is paused. With `close_db`, what closing fails with.
    pub fn wait_for_compact(&self, options: &WaitForCompactOptions) -> Result<()> {
        karst_io::block_on(self.env(), self.settled(options))?;
        if options.close_db { self.close() } else { Ok(()) }
    }

    /// The asynchronous form of [`Db::wait_for_compact`].
    ///
    /// # Errors
    /// As [`Db::wait_for_compact`].
    pub async fn wait_for_compact_async(&self, options: &WaitForCompactOptions) -> Result<()> {
        self.settled(options).await?;
        if options.close_db { self.close_async().await } else { Ok(()) }
    }

    async fn settled(&self, options: &WaitForCompactOptions) -> Result<()> {
        self.write_half()?.background.wait_for_compact(*options).await
    }

    /// Lets compactions of these column families start by themselves: sets
    /// `disable_auto_compactions`. Blocks, as [`Db::set_options`] does.
    ///
    /// # Errors
    /// As [`Db::set_options`], at the first family that it fails for.
    pub fn enable_auto_compaction(&self, families: &[&ColumnFamily]) -> Result<()> {
        families
            .iter()
            .try_for_each(|family| self.set_options(family, &[(DISABLE_AUTO_COMPACTIONS, "false")]))
    }

    /// Lets no compaction of these column families start by itself. Those that run go on. Blocks,
    /// as [`Db::set_options`] does.
    ///
    /// # Errors
    /// As [`Db::enable_auto_compaction`].
    pub fn disable_auto_compaction(&self, families: &[&ColumnFamily]) -> Result<()> {
        families.iter().try_for_each(|family| self.set_options(family, &[(DISABLE_AUTO_COMPACTIONS, "true")]))
    }
}

const DISABLE_AUTO_COMPACTIONS: &str = "disable_auto_compactions";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransactionHooks;
    use crate::background::overtaken;
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

    /// Drops the family on another thread, and tells whether that went well.
    fn dropping(db: &Db, family: &ColumnFamily) -> (impl FnOnce() + use<>, mpsc::Receiver<bool>) {
        let (dropper, dropped) = (db.clone(), family.clone());
        let (tell, told) = mpsc::channel();
        let between = move || {
            std::thread::spawn(move || tell.send(dropper.drop_column_family(&dropped).is_ok()));
            // It may have to wait for the end of the look; otherwise it is through long before.
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
        overtaken::BETWEEN.set(Some(Box::new(between)));
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
        // Of the last one a job may have been under way.
        assert!(known <= 2, "{known} families are known, and one is open");
    }

    /// The family with most to flush is chosen, and dropped before it is asked what it has.
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
        overtaken::BETWEEN.set(Some(Box::new(between)));
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

    /// How many entries each flush of a family had.
    #[derive(Debug, Default)]
    struct Flushed(Mutex<Vec<u64>>);

    impl EventListener for Flushed {
        fn flush_completed(&self, flush: &FlushInfo) {
            self.0.lock().push(flush.entries);
        }
    }

    /// A family that was looked at before it was sealed would be flushed without it, and a batch
    /// that went to both in part.
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
        overtaken::BETWEEN.set(Some(Box::new(between)));
        db.continue_background_work().unwrap();
        db.flush(&at_once).unwrap();
        eventually(4, || flushed.0.lock().iter().sum::<u64>());
        assert_eq!(*flushed.0.lock(), [1; 4]);
    }

    /// A disk on which no file whose name ends so can be changed or synced.
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

    /// What the log may lose is a hole for whoever is said to need none before the next one, and
    /// the next change of the MANIFEST may say so.
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

    /// Has the log fail as soon as a flush has begun.
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

    /// The next opening needs that log for what is prepared, and finds its torn end; no table may
    /// have what came behind.
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
