//! Secondary instances and followers: read access to databases that another process writes.
//!
//! In: the primary's directory. Out: its state at the last catch-up, one for all column families;
//! `open/secondary.rs` documents how it is built.

use super::lifecycle_async::apart;
use super::{Db, Inner};
use crate::open::{self, Options, Secondary, SecondaryView};
use karst_base::error::{Error, Result};
use karst_base::options::ReadOptions;
use karst_base::pacing::race;
use karst_io::{Env, Priority, sleep};
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Db {
    /// Opens the database in `path` as a secondary instance, with all its column families: for
    /// reading, while another process, the primary, writes to it.
    ///
    /// It shows the database's state at the opening, until
    /// [`try_catch_up_with_primary`](Db::try_catch_up_with_primary) is called. It takes no lock and
    /// writes nothing in `path`; its LOG is in `secondary_path`, which is created if missing and
    /// must not be used by another instance. Any number of instances may be open, with or without
    /// the primary.
    ///
    /// The column families are those that exist now. With `max_open_files = -1`, which is the
    /// default, tables and blob files are opened here and at each catch-up, so that they can be
    /// read after the primary has removed them; with a limit a read may fail because its file is
    /// gone.
    ///
    /// Blocks the calling thread.
    ///
    /// # Errors
    /// Those of [`Db::open_read_only`]; `secondary_path` cannot be written or equals `path`; a log
    /// is damaged before its end; `TryAgain`: the primary removes its logs faster than they can be
    /// read.
    pub fn open_as_secondary(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
    ) -> Result<Db> {
        Self::open_secondary(path.as_ref(), secondary_path.as_ref(), options, None)
    }

    /// Opens some of the column families as a secondary instance; the default one is always open.
    ///
    /// # Errors
    /// Those of [`Db::open_as_secondary`]; a named column family does not exist.
    pub fn open_cf_as_secondary(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
        families: &[&str],
    ) -> Result<Db> {
        Self::open_secondary(path.as_ref(), secondary_path.as_ref(), options, Some(families))
    }

    fn open_secondary(
        path: &Path,
        secondary_path: &Path,
        options: &Options,
        families: Option<&[&str]>,
    ) -> Result<Db> {
        Self::new(open::open_secondary(path, secondary_path, options, families)?, options)
    }

    /// The asynchronous form of [`Db::open_as_secondary`].
    pub fn open_as_secondary_async(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
    ) -> impl Future<Output = Result<Db>> + Send + 'static {
        let (path, secondary_path) = (path.as_ref().to_owned(), secondary_path.as_ref().to_owned());
        let options = options.clone();
        apart(options.environment(), "karst-open", move || {
            Db::open_as_secondary(path, secondary_path, &options)
        })
    }

    /// Opens the database in `path` as a secondary instance that catches up automatically, every
    /// `follower_refresh_catchup_period_ms`. A failed catch-up is retried up to
    /// `follower_catchup_retry_count` times, `follower_catchup_retry_wait_ms` apart, and then at
    /// the next period; failures are written to its LOG. It may also catch up on request like any
    /// secondary. Closing it, or dropping the last handle, stops it.
    ///
    /// Blocks the calling thread.
    ///
    /// # Errors
    /// Those of [`Db::open_as_secondary`]; its thread cannot be created (`Io`).
    pub fn open_as_follower(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
    ) -> Result<Db> {
        Self::follow_primary(Self::open_as_secondary(path, secondary_path, options)?)
    }

    fn follow_primary(db: Db) -> Result<Db> {
        let env = db.env().clone();
        env.ensure_threads().map_err(Error::from)?;
        drop(env.spawn(Priority::Low, follow(env.clone(), Arc::downgrade(&db.0))));
        Ok(db)
    }

    /// The asynchronous form of [`Db::open_as_follower`].
    pub fn open_as_follower_async(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
    ) -> impl Future<Output = Result<Db>> + Send + 'static {
        let (path, secondary_path) = (path.as_ref().to_owned(), secondary_path.as_ref().to_owned());
        let options = options.clone();
        apart(options.environment(), "karst-open", move || {
            Db::open_as_follower(path, secondary_path, &options)
        })
    }

    /// Makes a secondary instance show the primary's writes since it was opened or last caught up:
    /// all that were in the primary's MANIFEST and logs when this call began. Reads that have
    /// begun, iterators and snapshots keep their state. Column families that the primary has
    /// created meanwhile are not shown; those that it has dropped stay unchanged. Blocks; of
    /// several concurrent calls one does the work and the others wait for it.
    ///
    /// # Errors
    /// `InvalidArgument`: the database is no secondary instance. `NotFound`, `Corruption`, `Io`: a
    /// required file is gone, damaged or cannot be read; the error names it. `TryAgain`: the
    /// primary removes its logs faster than they can be read; try again. In each case the database
    /// keeps its state, and a later call may succeed.
    pub fn try_catch_up_with_primary(&self) -> Result<()> {
        self.check_open()?;
        self.0.catch_up()
    }

    /// The asynchronous form of [`Db::try_catch_up_with_primary`]. Once polled it completes, even
    /// if it is dropped.
    pub fn try_catch_up_with_primary_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let db = self.clone();
        apart(self.env().clone(), "karst-catch-up", move || db.try_catch_up_with_primary())
    }

    /// Returns the state to read with these options.
    pub(super) fn secondary_view(
        &self,
        secondary: &Secondary,
        options: &ReadOptions,
    ) -> Result<Arc<SecondaryView>> {
        match &options.snapshot {
            None => Ok(secondary.view()),
            Some(snapshot) => {
                let own = snapshot.belongs_to(&self.0.snapshots);
                let state = own.then(|| snapshot.state::<SecondaryView>()).flatten();
                state.ok_or_else(|| Error::invalid_argument("the snapshot is of another database"))
            }
        }
    }
}

impl Inner {
    fn catch_up(&self) -> Result<()> {
        let secondary = self.read.secondary.as_ref();
        let secondary = secondary.ok_or_else(|| {
            Error::invalid_argument("the database is no secondary instance; open it with open_as_secondary")
        })?;
        secondary.catch_up(&self.read)
    }
}

/// Catches up periodically until the database is closed or dropped.
async fn follow(env: Env, db: Weak<Inner>) {
    let mut failures = 0;
    loop {
        let wait_ms = {
            let Some(db) = db.upgrade() else { return };
            let options = db.read.db_options.get();
            match failures {
                0 => options.follower_refresh_catchup_period_ms,
                _ => options.follower_catchup_retry_wait_ms,
            }
        };
        let closing = {
            let Some(secondary) = db.upgrade().and_then(|db| db.read.secondary.clone()) else { return };
            secondary.closing.listen()
        };
        // At least 1 ms, because a period of 0 would make a loop without a pause.
        race(closing, sleep(&env, Duration::from_millis(wait_ms.max(1)))).await;
        let Some(db) = db.upgrade() else { return };
        if db.read.life.check().is_err() {
            return;
        }
        let most = db.read.db_options.get().follower_catchup_retry_count;
        let caught = env.run_blocking(move |_| db.catch_up()).await;
        failures = if caught.is_err() && failures < most { failures + 1 } else { 0 };
    }
}
