//! Databases whose entries expire: RocksDB's `DBWithTTL`.
//!
//! In: a database that is opened with a time to live. Out: the calls of [`Db`] over values that
//! have the time of their write behind them, which readers do not see. Compactions drop what is
//! older than the family's time to live; until then it is read.
//!
//! The times, and what drops by them, are in `karst_base::ttl`. Flushes, compactions, snapshots and
//! whatever else does not look at values is done through [`DbWithTtl::db`].

mod iter;

pub use iter::TtlIterator;

use crate::db::Db;
use crate::open::Options;
use karst_base::error::{Error, ErrorKind, Named, Result};
use karst_base::options::ReadOptions;
use karst_base::ttl::{self, TimeToLive};
use karst_commit::{WriteBatch, WriteOptions};
use karst_format::write_batch::Op;
use karst_storage::column_family::ColumnFamily;
use karst_storage::value::Value;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An open database whose entries expire.
///
/// Each column family has a time to live, in whole seconds; zero stands for ever. What is older is
/// dropped when it is compacted, and is read until then. A value that operands are merged with is
/// as young as the merge; operands that nothing was merged with yet do not expire.
///
/// The user's compaction filter is asked about what has not expired, and neither it nor the merge
/// operator sees a time. The time to live is given at every opening: no file has it.
///
/// Each value takes four bytes more. A database that has values without a time, as it was opened
/// with [`Db::open`] before, answers `Corruption` where it finds one. Opened so afterwards it shows
/// the times behind the values.
///
/// ```
/// # use karst_engine as karstdb;
/// use karstdb::{DbWithTtl, Options};
/// use std::time::Duration;
/// # let directory = tempfile::tempdir()?;
/// let options = Options::new().db(|db| db.create_if_missing = true);
/// let db = DbWithTtl::open(directory.path(), &options, Duration::from_secs(3600))?;
/// db.put("session", "open")?;
/// assert_eq!(db.get("session")?.unwrap(), "open");
/// let of_users = db.create_column_family("users", &Options::new(), Duration::ZERO)?; // for ever
/// db.set_ttl(&of_users, Duration::from_secs(86_400))?;
/// db.db().close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DbWithTtl(Db);

pub(crate) fn has_no_time() -> Error {
    Error::new(ErrorKind::Corruption, "a value has no time behind it, and the TTL wants one")
}

/// The options with a time to live for each of these families, or for all.
fn with_ttls<'a>(options: &Options, ttls: impl IntoIterator<Item = (Option<&'a str>, Duration)>) -> Options {
    let env = options.environment();
    let one = |options: Options, (family, ttl)| options.time_to_live(family, TimeToLive::new(&env, ttl));
    ttls.into_iter().fold(options.clone().env(env.clone()), one)
}

fn each<'a>(families: &[(&'a str, Duration)]) -> impl Iterator<Item = (Option<&'a str>, Duration)> {
    families.iter().map(|(name, ttl)| (Some(*name), *ttl))
}

impl DbWithTtl {
    /// How many bytes the time behind a value takes.
    #[doc(hidden)]
    pub const STAMP_BYTES: usize = ttl::STAMP_BYTES;

    /// Opens for writing with all column families, whose entries live as long as `ttl` says.
    /// Otherwise as [`Db::open`].
    ///
    /// # Errors
    /// As [`Db::open`].
    pub fn open(path: impl AsRef<Path>, options: &Options, ttl: Duration) -> Result<DbWithTtl> {
        Db::open(path, &with_ttls(options, [(None, ttl)])).map(DbWithTtl)
    }

    /// The same with the column families named, each with a time to live of its own. Those that
    /// are not named, as the default one need not be, live for ever. Otherwise as [`Db::open_cf`].
    ///
    /// # Errors
    /// As [`Db::open_cf`].
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[(&str, Duration)],
    ) -> Result<DbWithTtl> {
        let names: Vec<_> = families.iter().map(|(name, _)| *name).collect();
        let ttls = [(None, Duration::ZERO)].into_iter().chain(each(families));
        Db::open_cf(path, &with_ttls(options, ttls), &names).map(DbWithTtl)
    }

    /// The asynchronous form of [`DbWithTtl::open`].
    pub fn open_async(
        path: impl AsRef<Path>,
        options: &Options,
        ttl: Duration,
    ) -> impl Future<Output = Result<DbWithTtl>> + Send + 'static {
        let (path, options) = (path.as_ref().to_owned(), with_ttls(options, [(None, ttl)]));
        async move { Db::open_async(path, &options).await.map(DbWithTtl) }
    }

    /// Opens for reading, as [`Db::open_read_only`]. Nothing expires meanwhile.
    ///
    /// # Errors
    /// As [`Db::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<DbWithTtl> {
        Db::open_read_only(path, &with_ttls(options, [(None, Duration::ZERO)])).map(DbWithTtl)
    }

    /// The same with some column families only, as [`Db::open_cf_read_only`].
    ///
    /// # Errors
    /// As [`Db::open_cf_read_only`].
    pub fn open_cf_read_only(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[&str],
    ) -> Result<DbWithTtl> {
        let options = with_ttls(options, [(None, Duration::ZERO)]);
        Db::open_cf_read_only(path, &options, families).map(DbWithTtl)
    }

    /// The database as it is stored: its values have their times behind them. For what does not
    /// look at values.
    pub fn db(&self) -> &Db {
        &self.0
    }

    /// Creates a column family whose entries live as long as `ttl` says.
    ///
    /// # Errors
    /// As [`Db::create_column_family`].
    pub fn create_column_family(&self, name: &str, options: &Options, ttl: Duration) -> Result<ColumnFamily> {
        self.0.create_column_family(name, &self.new_family_options(options, ttl))
    }

    /// The options that such a column family is created with.
    #[doc(hidden)]
    pub fn new_family_options(&self, options: &Options, ttl: Duration) -> Options {
        let options = options.clone().env(self.0.env().clone());
        with_ttls(&options, [(None, ttl)])
    }

    fn time_to_live<'a>(&self, family: &'a ColumnFamily) -> Result<&'a Arc<TimeToLive>> {
        let family = self.0.family(family)?;
        family.config.ttl.as_ref().ok_or_else(|| {
            let name = Named(&family.config.name);
            Error::invalid_argument(format!("column family {name:?} was not created with a TTL"))
        })
    }

    /// How long the entries of a column family live now.
    ///
    /// # Errors
    /// The database is closed; the column family is of another one, or was created through
    /// [`DbWithTtl::db`] and has no time to live.
    pub fn get_ttl(&self, family: &ColumnFamily) -> Result<Duration> {
        self.time_to_live(family).map(|ttl| ttl.get())
    }

    /// Changes how long the entries of a column family live, also those that are there. It counts
    /// from the next entry that a compaction comes to, and until the database is closed.
    ///
    /// # Errors
    /// As [`DbWithTtl::get_ttl`].
    pub fn set_ttl(&self, family: &ColumnFamily, ttl: Duration) -> Result<()> {
        self.time_to_live(family).map(|own| own.set(ttl))
    }

    /// A value as it is stored.
    #[doc(hidden)]
    pub fn stored(&self, value: &[u8]) -> Vec<u8> {
        ttl::stamped_at(self.0.env(), value)
    }

    /// A value as it is read.
    #[doc(hidden)]
    pub fn shown(&self, stored: Value) -> Result<Value> {
        let length = ttl::parts(&stored).map(|(value, _)| value.len()).ok_or_else(has_no_time)?;
        Ok(stored.slice(0..length))
    }

    fn found(&self, found: Result<Option<Value>>) -> Result<Option<Value>> {
        found?.map(|stored| self.shown(stored)).transpose()
    }

    fn all_found(&self, found: Vec<Result<Option<Value>>>) -> Vec<Result<Option<Value>>> {
        found.into_iter().map(|found| self.found(found)).collect()
    }

    /// A batch as it is written.
    #[doc(hidden)]
    pub fn stored_batch(&self, batch: &WriteBatch) -> Result<WriteBatch> {
        let families = self.0.column_families();
        let family = |id: u32| {
            let found = families.iter().find(|family| family.id() == id);
            let missing =
                || Error::invalid_argument(format!("the batch names column family {id}, which is not open"));
            match found.ok_or_else(missing)? {
                // Why: a batch does not tell keys that have their timestamp from those that lack
                // it.
                family if family.comparator().timestamp_size() > 0 => Err(Error::not_supported(
                    "a batch of keys with timestamps in a database with a TTL".to_owned(),
                )),
                family => Ok(family),
            }
        };
        let mut written = WriteBatch::new();
        for op in batch.iter() {
            match op {
                Op::Put { cf, key, value } => written.put_cf(family(cf.0)?, key, self.stored(value))?,
                Op::Merge { cf, key, operand } => {
                    written.merge_cf(family(cf.0)?, key, self.stored(operand))?;
                }
                Op::Delete { cf, key } => written.delete_cf(family(cf.0)?, key)?,
                Op::SingleDelete { cf, key } => written.single_delete_cf(family(cf.0)?, key)?,
                Op::DeleteRange { cf, begin, end } => written.delete_range_cf(family(cf.0)?, begin, end)?,
                Op::LogData(data) => written.put_log_data(data)?,
                Op::Noop => {}
                _ => {
                    return Err(Error::invalid_argument(
                        "the batch has an operation that a database with a TTL does not take",
                    ));
                }
            }
        }
        Ok(written)
    }

    /// The value of `key` in the default column family.
    ///
    /// # Errors
    /// As [`Db::get`]; `Corruption`: the value has no time behind it.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.found(self.0.get(key))
    }

    /// The same with options, in a column family.
    ///
    /// # Errors
    /// As [`Db::get_cf`] and [`DbWithTtl::get`].
    pub fn get_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.found(self.0.get_cf(options, family, key))
    }

    /// The asynchronous form of [`DbWithTtl::get`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_async(&self, key: &(impl AsRef<[u8]> + ?Sized + Sync)) -> Result<Option<Value>> {
        self.found(self.0.get_async(key.as_ref()).await)
    }

    /// The asynchronous form of [`DbWithTtl::get_cf`].
    ///
    /// # Errors
    /// As there.
    pub async fn get_cf_async(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &(impl AsRef<[u8]> + ?Sized + Sync),
    ) -> Result<Option<Value>> {
        self.found(self.0.get_cf_async(options, family, key.as_ref()).await)
    }

    /// The values of `keys` in the default column family, as [`Db::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get(keys))
    }

    /// The same with options, in a column family.
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get_cf(options, family, keys))
    }

    /// The values of `keys`, each in its own column family, all as of the same moment.
    ///
    /// # Panics
    /// When there are not as many column families as keys.
    pub fn multi_get_cfs<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        families: &[&ColumnFamily],
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get_cfs(options, families, keys))
    }

    /// The asynchronous form of [`DbWithTtl::multi_get_cf`].
    pub async fn multi_get_cf_async<K: AsRef<[u8]> + Sync>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get_cf_async(options, family, keys).await)
    }

    /// An iterator over the default column family. Seek before anything else.
    ///
    /// # Errors
    /// As [`Db::iter`].
    pub fn iter(&self, options: &ReadOptions) -> Result<TtlIterator> {
        self.0.iter(options).map(TtlIterator::new)
    }

    /// The same over a column family.
    ///
    /// # Errors
    /// As [`Db::iter_cf`].
    pub fn iter_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<TtlIterator> {
        self.0.iter_cf(options, family).map(TtlIterator::new)
    }

    /// Writes a batch, each value with the time of now: all of it or nothing.
    ///
    /// # Errors
    /// As [`Db::write`]; the batch has an operation that is not of plain keys and values
    /// (`InvalidArgument`), or keys with timestamps (`NotSupported`).
    pub fn write(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        self.0.write(options, &self.stored_batch(batch)?)
    }

    /// The asynchronous form of [`DbWithTtl::write`].
    ///
    /// # Errors
    /// As there.
    pub async fn write_async(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        let batch = self.stored_batch(batch)?;
        self.0.write_async(options, &batch).await
    }
}

/// The forms of a call that writes one operation.
macro_rules! calls_with_ttl {
    ($($(#[$doc:meta])* $plain:ident $cf:ident $plain_async:ident $cf_async:ident ($($key:ident),* $(; $value:ident)?);)*) => {
        impl DbWithTtl {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("As [`Db::", stringify!($plain), "`].")]
                pub fn $plain(&self, $($key: impl AsRef<[u8]>,)* $($value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.0.$plain($($key,)* $(self.stored($value.as_ref()))?)
                }

                /// The same with options, in a column family.
                ///
                /// # Errors
                #[doc = concat!("As [`Db::", stringify!($cf), "`].")]
                pub fn $cf(&self, options: &WriteOptions, family: &ColumnFamily, $($key: impl AsRef<[u8]>,)* $($value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.0.$cf(options, family, $($key,)* $(self.stored($value.as_ref()))?)
                }

                #[doc = concat!("The asynchronous form of [`DbWithTtl::", stringify!($plain), "`].")]
                ///
                /// # Errors
                /// As there.
                pub async fn $plain_async(&self, $($key: &(impl AsRef<[u8]> + ?Sized + Sync),)* $($value: &(impl AsRef<[u8]> + ?Sized + Sync))?) -> Result<()> {
                    $(let $value = &self.stored($value.as_ref());)?
                    self.0.$plain_async($($key.as_ref(),)* $($value)?).await
                }

                #[doc = concat!("The asynchronous form of [`DbWithTtl::", stringify!($cf), "`].")]
                ///
                /// # Errors
                /// As there.
                pub async fn $cf_async(&self, options: &WriteOptions, family: &ColumnFamily, $($key: &(impl AsRef<[u8]> + ?Sized + Sync),)* $($value: &(impl AsRef<[u8]> + ?Sized + Sync))?) -> Result<()> {
                    $(let $value = &self.stored($value.as_ref());)?
                    self.0.$cf_async(options, family, $($key.as_ref(),)* $($value)?).await
                }
            )*
        }
    };
}

calls_with_ttl! {
    /// Sets `key` to `value`, written now.
    put put_cf put_async put_cf_async (key; value);
    /// Adds a merge operand to `key`, written now.
    merge merge_cf merge_async merge_cf_async (key; operand);
    /// Removes `key`. No error if it is not there.
    delete delete_cf delete_async delete_cf_async (key);
    /// Removes `key`, which was put at most once.
    single_delete single_delete_cf single_delete_async single_delete_cf_async (key);
    /// Removes all keys from `begin` up to, not including, `end`.
    delete_range delete_range_cf delete_range_async delete_range_cf_async (begin, end);
}
