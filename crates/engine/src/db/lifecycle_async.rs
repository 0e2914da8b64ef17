//! The asynchronous forms of calls that read and write many files in sequence: opening, closing,
//! column families and options. Each runs the blocking form on a separate thread.

use super::Db;
use crate::open::Options;
use karst_base::error::{Error, Result};
use karst_io::Env;
use karst_storage::column_family::ColumnFamily;
use std::future::Future;
use std::path::Path;

/// Runs `job` on a separate thread, starting at the first poll.
pub(super) async fn apart<T: Send + 'static>(
    env: Env,
    what: &'static str,
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    env.run_apart_async(what, job).map_err(Error::from)?.await
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect()
}

/// These futures never block. Their work begins at the first poll, and completes even if they are
/// dropped after that; a database whose opening is dropped is closed again. They borrow nothing. In
/// addition to the named errors, creating the thread may fail (`Io`).
impl Db {
    /// The asynchronous form of [`Db::open`].
    ///
    /// ```
    /// # use karst_engine::{Db, Options};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().to_owned();
    /// # karst_engine::io::block_on(&karst_engine::io::Env::posix(), async {
    /// let db = Db::open_async(&path, &Options::new().db(|db| db.create_if_missing = true)).await?;
    /// db.put_async("key", "value").await?;
    /// db.close_async().await?;
    /// # Ok::<(), karst_engine::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_async(
        path: impl AsRef<Path>,
        options: &Options,
    ) -> impl Future<Output = Result<Db>> + Send + 'static {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        apart(options.environment(), "karst-open", move || Db::open(path, &options))
    }

    /// The asynchronous form of [`Db::open_cf`].
    pub fn open_cf_async(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[&str],
    ) -> impl Future<Output = Result<Db>> + Send + 'static {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        let families: Vec<String> = families.iter().map(|&name| name.to_owned()).collect();
        apart(options.environment(), "karst-open", move || {
            let families: Vec<&str> = families.iter().map(String::as_str).collect();
            Db::open_cf(path, &options, &families)
        })
    }

    /// The asynchronous form of [`Db::open_read_only`].
    pub fn open_read_only_async(
        path: impl AsRef<Path>,
        options: &Options,
    ) -> impl Future<Output = Result<Db>> + Send + 'static {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        apart(options.environment(), "karst-open", move || Db::open_read_only(path, &options))
    }

    /// The asynchronous form of [`Db::close`]. Await it before the last handle is dropped, because
    /// dropping an open one closes the database on the dropping thread.
    pub fn close_async(&self) -> impl Future<Output = Result<()>> + Send + 'static {
        let db = self.clone();
        apart(self.env().clone(), "karst-close", move || db.close())
    }

    /// The asynchronous form of [`Db::create_column_family`].
    pub fn create_column_family_async(
        &self,
        name: &str,
        options: &Options,
    ) -> impl Future<Output = Result<ColumnFamily>> + Send + 'static {
        let (db, name, options) = (self.clone(), name.to_owned(), options.clone());
        apart(self.env().clone(), "karst-create", move || db.create_column_family(&name, &options))
    }

    /// The asynchronous form of [`Db::drop_column_family`].
    pub fn drop_column_family_async(
        &self,
        family: &ColumnFamily,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (db, family) = (self.clone(), family.clone());
        apart(self.env().clone(), "karst-drop", move || db.drop_column_family(&family))
    }

    /// The asynchronous form of [`Db::set_options`].
    pub fn set_options_async(
        &self,
        family: &ColumnFamily,
        options: &[(&str, &str)],
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (db, family, options) = (self.clone(), family.clone(), owned(options));
        apart(self.env().clone(), "karst-options", move || db.set_options(&family, &borrowed(&options)))
    }

    /// The asynchronous form of [`Db::set_db_options`].
    pub fn set_db_options_async(
        &self,
        options: &[(&str, &str)],
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (db, options) = (self.clone(), owned(options));
        apart(self.env().clone(), "karst-options", move || db.set_db_options(&borrowed(&options)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use karst_io::{MemoryFileSystem, block_on};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    fn options() -> Options {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        Options::new().env(env).db(|db| db.create_if_missing = true)
    }

    #[test]
    fn each_form_does_what_the_blocking_one_does() {
        let options = options();
        let env = options.environment();
        block_on(&env, async {
            let missing = Db::open_async("/db", &options.clone().set("create_if_missing", "false").unwrap());
            assert_eq!(missing.await.unwrap_err().kind(), ErrorKind::InvalidArgument);
            let db = Db::open_async("/db", &options).await.unwrap();
            let own = db.create_column_family_async("own", &options).await.unwrap();
            db.create_column_family_async("other", &options).await.unwrap();
            db.set_options_async(&own, &[("max_write_buffer_number", "7")]).await.unwrap();
            assert_eq!(db.get_options(&own).unwrap().max_write_buffer_number, 7);
            db.set_db_options_async(&[("max_background_jobs", "3")]).await.unwrap();
            assert_eq!(db.options().max_background_jobs, 3);
            db.drop_column_family_async(&own).await.unwrap();
            assert!(db.column_family("own").is_none());
            db.put_async("key", "value").await.unwrap();
            db.close_async().await.unwrap();
            assert_eq!(db.get("key").unwrap_err().kind(), ErrorKind::Closed);
            let unnamed = Db::open_cf_async("/db", &options, &["default"]).await.unwrap_err();
            assert!(unnamed.to_string().contains("other"), "{unnamed}");
            let db = Db::open_cf_async("/db", &options, &["default", "other"]).await.unwrap();
            db.close_async().await.unwrap();
            let db = Db::open_read_only_async("/db", &options).await.unwrap();
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        });
    }

    /// A dropped opening does not prevent the next one.
    #[test]
    fn an_opening_that_is_given_up_closes_the_database_again() {
        let options = options();
        {
            let mut opening = pin!(Db::open_async("/db", &options));
            let first = opening.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            // It may have finished already; then this thread closes the database.
            assert!(matches!(first, Poll::Pending | Poll::Ready(Ok(_))));
        }
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            match Db::open("/db", &options) {
                Ok(db) => return db.close().unwrap(),
                Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
