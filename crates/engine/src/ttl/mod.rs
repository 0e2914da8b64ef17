//! Databases whose entries expire: RocksDB's `DBWithTTL`.
//!
//! In: a database that is opened with a time to live. Out: the calls of [`Db`], over values that
//! store their write time as a suffix, which readers do not see. Compactions drop entries older
//! than the family's time to live; until then they are readable.
//!
//! Write times, and the filter that drops entries, are in `karst_base::ttl`. Flushes, compactions,
//! snapshots and all other calls that do not read values are made through [`DbWithTtl::db`].

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
/// Each column family has a time to live, in whole seconds; zero means that entries never expire.
/// Older entries are dropped when they are compacted, and are readable until then. The result of a
/// merge gets the time of the merge; operands not merged yet do not expire.
///
/// The user's compaction filter sees only entries that have not expired, and neither it nor the
/// merge operator sees a write time. The time to live must be passed at every opening, because no
/// file stores it.
///
/// Each value takes four more bytes. If a database has values without a write time, because it was
/// opened with [`Db::open`] before, reading one returns `Corruption`. Conversely [`Db::open`] shows
/// the write times at the end of values.
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
    Error::new(ErrorKind::Corruption, "a value does not end with a write time, which the TTL needs")
}

/// Returns the options with a time to live for each of these families, or for all.
fn with_ttls<'a>(options: &Options, ttls: impl IntoIterator<Item = (Option<&'a str>, Duration)>) -> Options {
    let env = options.environment();
    let one = |options: Options, (family, ttl)| options.time_to_live(family, TimeToLive::new(&env, ttl));
    ttls.into_iter().fold(options.clone().env(env.clone()), one)
}

fn each<'a>(families: &[(&'a str, Duration)]) -> impl Iterator<Item = (Option<&'a str>, Duration)> {
    families.iter().map(|(name, ttl)| (Some(*name), *ttl))
}

impl DbWithTtl {
    /// Size in bytes of the write time at the end of a value.
    #[doc(hidden)]
    pub const STAMP_BYTES: usize = ttl::STAMP_BYTES;

    /// Opens for writing with all column families, whose entries live for `ttl`. Otherwise like
    /// [`Db::open`].
    ///
    /// # Errors
    /// Those of [`Db::open`].
    pub fn open(path: impl AsRef<Path>, options: &Options, ttl: Duration) -> Result<DbWithTtl> {
        Db::open(path, &with_ttls(options, [(None, ttl)])).map(DbWithTtl)
    }

    /// Opens for writing with the named column families, each with its own time to live. Entries of
    /// families that are not named never expire; the default family need not be named. Otherwise
    /// like [`Db::open_cf`].
    ///
    /// # Errors
    /// Those of [`Db::open_cf`].
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[(&str, Duration)],
    ) -> Result<DbWithTtl> {
        let names: Vec<_> = families.iter().map(|(name, _)| *name).collect();
        let ttls = [(None, Duration::ZERO)].into_iter().chain(each(families));
        Db::open_cf(path, &with_ttls(options, ttls), &names).map(DbWithTtl)
    }

    /// Asynchronous form of [`DbWithTtl::open`].
    pub fn open_async(
        path: impl AsRef<Path>,
        options: &Options,
        ttl: Duration,
    ) -> impl Future<Output = Result<DbWithTtl>> + Send + 'static {
        let (path, options) = (path.as_ref().to_owned(), with_ttls(options, [(None, ttl)]));
        async move { Db::open_async(path, &options).await.map(DbWithTtl) }
    }

    /// Opens for reading, like [`Db::open_read_only`]. Nothing expires while it is open.
    ///
    /// # Errors
    /// Those of [`Db::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<DbWithTtl> {
        Db::open_read_only(path, &with_ttls(options, [(None, Duration::ZERO)])).map(DbWithTtl)
    }

    /// Opens some column families for reading, like [`Db::open_cf_read_only`].
    ///
    /// # Errors
    /// Those of [`Db::open_cf_read_only`].
    pub fn open_cf_read_only(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[&str],
    ) -> Result<DbWithTtl> {
        let options = with_ttls(options, [(None, Duration::ZERO)]);
        Db::open_cf_read_only(path, &options, families).map(DbWithTtl)
    }

    /// Returns the underlying database, whose values end with their write times, for calls that do
    /// not read values.
    pub fn db(&self) -> &Db {
        &self.0
    }

    /// Creates a column family whose entries live for `ttl`.
    ///
    /// # Errors
    /// Those of [`Db::create_column_family`].
    pub fn create_column_family(&self, name: &str, options: &Options, ttl: Duration) -> Result<ColumnFamily> {
        self.0.create_column_family(name, &self.new_family_options(options, ttl))
    }

    /// Returns the options that a column family with `ttl` is created with.
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

    /// Returns the current time to live of a column family.
    ///
    /// # Errors
    /// The database is closed; the column family belongs to another one, or was created through
    /// [`DbWithTtl::db`] and has no time to live.
    pub fn get_ttl(&self, family: &ColumnFamily) -> Result<Duration> {
        self.time_to_live(family).map(|ttl| ttl.get())
    }

    /// Changes the time to live of a column family, also for existing entries. It applies from the
    /// next entry that a compaction reads, until the database is closed.
    ///
    /// # Errors
    /// Those of [`DbWithTtl::get_ttl`].
    pub fn set_ttl(&self, family: &ColumnFamily, ttl: Duration) -> Result<()> {
        self.time_to_live(family).map(|own| own.set(ttl))
    }

    /// Returns the value with the current time appended, as it is stored.
    #[doc(hidden)]
    pub fn stored(&self, value: &[u8]) -> Vec<u8> {
        ttl::stamped_at(self.0.env(), value)
    }

    /// Returns the stored value without its write time.
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

    /// Returns the batch with the current time appended to its values, as it is written.
    #[doc(hidden)]
    pub fn stored_batch(&self, batch: &WriteBatch) -> Result<WriteBatch> {
        let families = self.0.column_families();
        let family = |id: u32| {
            let found = families.iter().find(|family| family.id() == id);
            let missing =
                || Error::invalid_argument(format!("the batch names column family {id}, which is not open"));
            match found.ok_or_else(missing)? {
                // A batch does not tell keys with a timestamp from keys that still lack it.
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

    /// Returns the value of `key` in the default column family.
    ///
    /// # Errors
    /// Those of [`Db::get`]; `Corruption`: the value has no write time.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.found(self.0.get(key))
    }

    /// Returns the value of `key` in a column family, read with options.
    ///
    /// # Errors
    /// Those of [`Db::get_cf`] and [`DbWithTtl::get`].
    pub fn get_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.found(self.0.get_cf(options, family, key))
    }

    /// Asynchronous form of [`DbWithTtl::get`].
    ///
    /// # Errors
    /// Those of [`DbWithTtl::get`].
    pub async fn get_async(&self, key: &(impl AsRef<[u8]> + ?Sized + Sync)) -> Result<Option<Value>> {
        self.found(self.0.get_async(key.as_ref()).await)
    }

    /// Asynchronous form of [`DbWithTtl::get_cf`].
    ///
    /// # Errors
    /// Those of [`DbWithTtl::get_cf`].
    pub async fn get_cf_async(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: &(impl AsRef<[u8]> + ?Sized + Sync),
    ) -> Result<Option<Value>> {
        self.found(self.0.get_cf_async(options, family, key.as_ref()).await)
    }

    /// Returns the values of `keys` in the default column family, like [`Db::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get(keys))
    }

    /// Returns the values of `keys` in a column family, read with options.
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get_cf(options, family, keys))
    }

    /// Returns the values of `keys`, each in its own column family, all as of one moment.
    ///
    /// # Panics
    /// When the numbers of column families and keys differ.
    pub fn multi_get_cfs<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        families: &[&ColumnFamily],
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get_cfs(options, families, keys))
    }

    /// Asynchronous form of [`DbWithTtl::multi_get_cf`].
    pub async fn multi_get_cf_async<K: AsRef<[u8]> + Sync>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.all_found(self.0.multi_get_cf_async(options, family, keys).await)
    }

    /// Creates an iterator over the default column family. Seek before anything else.
    ///
    /// # Errors
    /// Those of [`Db::iter`].
    pub fn iter(&self, options: &ReadOptions) -> Result<TtlIterator> {
        self.0.iter(options).map(TtlIterator::new)
    }

    /// Creates an iterator over a column family. Seek before anything else.
    ///
    /// # Errors
    /// Those of [`Db::iter_cf`].
    pub fn iter_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<TtlIterator> {
        self.0.iter_cf(options, family).map(TtlIterator::new)
    }

    /// Writes a batch atomically, with the current time appended to each value.
    ///
    /// # Errors
    /// Those of [`Db::write`]; the batch has an operation other than those on plain keys and values
    /// (`InvalidArgument`), or keys with timestamps (`NotSupported`).
    pub fn write(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        self.0.write(options, &self.stored_batch(batch)?)
    }

    /// Asynchronous form of [`DbWithTtl::write`].
    ///
    /// # Errors
    /// Those of [`DbWithTtl::write`].
    pub async fn write_async(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        let batch = self.stored_batch(batch)?;
        self.0.write_async(options, &batch).await
    }
}

/// Defines the four forms of a call that writes one operation.
macro_rules! calls_with_ttl {
    ($($(#[$doc:meta])* $plain:ident $cf:ident $plain_async:ident $cf_async:ident ($($key:ident),* $(; $value:ident)?);)*) => {
        impl DbWithTtl {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("Those of [`Db::", stringify!($plain), "`].")]
                pub fn $plain(&self, $($key: impl AsRef<[u8]>,)* $($value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.0.$plain($($key,)* $(self.stored($value.as_ref()))?)
                }

                /// The form of the call with options, in a column family.
                ///
                /// # Errors
                #[doc = concat!("Those of [`Db::", stringify!($cf), "`].")]
                pub fn $cf(&self, options: &WriteOptions, family: &ColumnFamily, $($key: impl AsRef<[u8]>,)* $($value: impl AsRef<[u8]>)?) -> Result<()> {
                    self.0.$cf(options, family, $($key,)* $(self.stored($value.as_ref()))?)
                }

                #[doc = concat!("The asynchronous form of [`DbWithTtl::", stringify!($plain), "`].")]
                ///
                /// # Errors
                /// Those of that call.
                pub async fn $plain_async(&self, $($key: &(impl AsRef<[u8]> + ?Sized + Sync),)* $($value: &(impl AsRef<[u8]> + ?Sized + Sync))?) -> Result<()> {
                    $(let $value = &self.stored($value.as_ref());)?
                    self.0.$plain_async($($key.as_ref(),)* $($value)?).await
                }

                #[doc = concat!("The asynchronous form of [`DbWithTtl::", stringify!($cf), "`].")]
                ///
                /// # Errors
                /// Those of that call.
                pub async fn $cf_async(&self, options: &WriteOptions, family: &ColumnFamily, $($key: &(impl AsRef<[u8]> + ?Sized + Sync),)* $($value: &(impl AsRef<[u8]> + ?Sized + Sync))?) -> Result<()> {
                    $(let $value = &self.stored($value.as_ref());)?
                    self.0.$cf_async(options, family, $($key.as_ref(),)* $($value)?).await
                }
            )*
        }
    };
}

calls_with_ttl! {
    /// Sets `key` to `value`, with the current time.
    put put_cf put_async put_cf_async (key; value);
    /// Adds a merge operand to `key`, with the current time.
    merge merge_cf merge_async merge_cf_async (key; operand);
    /// Removes `key`. A missing key is no error.
    delete delete_cf delete_async delete_cf_async (key);
    /// Removes `key`, which was put at most once.
    single_delete single_delete_cf single_delete_async single_delete_cf_async (key);
    /// Removes all keys from `begin` (included) to `end` (excluded).
    delete_range delete_range_cf delete_range_async delete_range_cf_async (begin, end);
}
