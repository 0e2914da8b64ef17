//! A column family handle with its own calls. They do what the `_cf` and `_opt` calls of `Db` do,
//! with the family and the options of the handle.

use super::Db;
use crate::background::FlushOptions;
use crate::read::iter::{DbIterator, KeyBounds, Range};
use karst_base::error::{Error, Named, Result};
use karst_base::options::{ColumnFamilyOptions, ReadOptions};
use karst_commit::WriteOptions;
use karst_lsm::pick::CompactRangeOptions;
use karst_storage::column_family::ColumnFamily;
use karst_storage::value::Value;
use std::future::Future;

/// A column family of an open database, with the calls that read and write it. Created by
/// [`Db::cf`].
///
/// It holds a [`Db`], a [`ColumnFamily`] and the options of its reads and writes; these are the
/// defaults unless [`with_read_options`](Self::with_read_options) and
/// [`with_write_options`](Self::with_write_options) change them. It keeps the database open like
/// any handle. Cloning is cheap, and it may be used from any thread.
///
/// The plain calls block the calling thread if they have to; the `_async` ones never do, and are
/// `Send` futures for any executor. Errors are those of the [`Db`] calls of the same name.
///
/// ```
/// # use karst_engine::{Db, Options};
/// # let directory = tempfile::tempdir()?;
/// # let options = Options::new().db(|db| db.create_if_missing = true);
/// let db = Db::open(directory.path(), &options)?;
/// db.create_column_family("users", &Options::new())?;
///
/// let users = db.cf("users")?;
/// users.put("ada", "1815")?;
/// users.put("grace", "1906")?;
/// assert_eq!(users.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// for entry in users.range("b"..)? {
///     let (key, value) = entry?;
///     assert_eq!((&key[..], &value[..]), (&b"grace"[..], &b"1906"[..]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cf {
    db: Db,
    family: ColumnFamily,
    read: ReadOptions,
    write: WriteOptions,
}

impl Db {
    /// Returns the handle of an open column family.
    ///
    /// # Errors
    /// `InvalidArgument` if no open column family has this name; `Closed`.
    pub fn cf(&self, name: &str) -> Result<Cf> {
        self.check_open()?;
        match self.column_family(name) {
            Some(family) => Ok(self.cf_of(&family)),
            None if self.unopened_column_families().iter().any(|unopened| unopened == name) => {
                let text =
                    format!("column family {:?} was not opened: open it with Db::open_cf", Named(name));
                Err(Error::invalid_argument(text))
            }
            None => {
                let text = format!(
                    "there is no column family {:?}: make it with Db::create_column_family",
                    Named(name)
                );
                Err(Error::invalid_argument(text))
            }
        }
    }

    /// Returns the handle of this column family.
    pub fn cf_of(&self, family: &ColumnFamily) -> Cf {
        let (read, write) = (ReadOptions::default(), WriteOptions::default());
        Cf { db: self.clone(), family: family.clone(), read, write }
    }

    /// Returns the entries of the default column family whose keys are in `range`, in order, as of
    /// now: a double-ended [`Iterator`] that owns its state.
    ///
    /// `range` is any range of the standard library over bytes: `..`, `"a".."b"`, `key..`, or a
    /// pair of [`Bound`](std::ops::Bound)s. Does not block.
    ///
    /// ```
    /// # use karst_engine::{Db, Options};
    /// # let directory = tempfile::tempdir()?;
    /// # let options = Options::new().db(|db| db.create_if_missing = true);
    /// # let db = Db::open(directory.path(), &options)?;
    /// for key in ["apple", "banana", "cherry"] {
    ///     db.put(key, "ripe")?;
    /// }
    /// let last = db.range(.."cherry")?.next_back().transpose()?;
    /// assert_eq!(last.map(|(key, _)| key).as_deref(), Some(&b"banana"[..]));
    /// for key in db.range(..)?.rev().take(2) {
    ///     let (key, value) = key?;
    ///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` if the range ends before it begins; `Closed`.
    pub fn range(&self, range: impl KeyBounds) -> Result<Range> {
        self.range_of(&self.0.default_family, &self.0.default_read, range)
    }

    /// Returns the entries of the default column family whose keys begin with `prefix`, like
    /// [`Db::range`]. Needs no prefix extractor.
    ///
    /// # Errors
    /// `NotSupported` if the column family's comparator does not order by bytes; `Closed`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.prefix_of(&self.0.default_family, &self.0.default_read, prefix.as_ref())
    }

    fn range_of(&self, family: &ColumnFamily, options: &ReadOptions, range: impl KeyBounds) -> Result<Range> {
        let make = |options: &ReadOptions| self.iter_cf(options, family);
        Range::new(range, options, &family.0.config.comparator, make)
    }

    fn prefix_of(&self, family: &ColumnFamily, options: &ReadOptions, prefix: &[u8]) -> Result<Range> {
        let make = |options: &ReadOptions| self.iter_cf(options, family);
        Range::of_prefix(prefix, options, &family.0.config.comparator, make)
    }
}

impl Cf {
    /// Sets the options of reads.
    #[must_use]
    pub fn with_read_options(self, options: ReadOptions) -> Cf {
        Cf { read: options, ..self }
    }

    /// Sets the options of writes.
    #[must_use]
    pub fn with_write_options(self, options: WriteOptions) -> Cf {
        Cf { write: options, ..self }
    }

    /// Returns the database of the column family.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Returns the handle that batches and the `_cf` calls of [`Db`] take.
    #[must_use]
    pub fn column_family(&self) -> &ColumnFamily {
        &self.family
    }

    /// Returns the name of the column family.
    #[must_use]
    pub fn name(&self) -> &str {
        self.family.name()
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    /// Those of [`Db::get_cf`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.db.get_cf(&self.read, &self.family, key)
    }

    /// The asynchronous form of [`get`](Self::get).
    pub fn get_async<'a>(
        &'a self,
        key: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> impl Future<Output = Result<Option<Value>>> + Send + Unpin + 'a {
        self.db.get_cf_async(&self.read, &self.family, key)
    }

    /// Returns the values of `keys`, in the order of the keys, read concurrently.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>>> {
        self.db.multi_get_cf(&self.read, &self.family, keys)
    }

    /// The asynchronous form of [`multi_get`](Self::multi_get).
    pub fn multi_get_async<'a, K: AsRef<[u8]> + Sync>(
        &'a self,
        keys: &'a [K],
    ) -> impl Future<Output = Vec<Result<Option<Value>>>> + Send + Unpin + 'a {
        self.db.multi_get_cf_async(&self.read, &self.family, keys)
    }

    /// Returns an iterator over the column family, as of now.
    ///
    /// # Errors
    /// Those of [`Db::iter_cf`].
    pub fn iter(&self) -> Result<DbIterator> {
        self.db.iter_cf(&self.read, &self.family)
    }

    /// Returns the entries whose keys are in `range`; see [`Db::range`]. Bounds of the range
    /// override those of the read options.
    ///
    /// # Errors
    /// Those of [`Db::range`].
    pub fn range(&self, range: impl KeyBounds) -> Result<Range> {
        self.db.range_of(&self.family, &self.read, range)
    }

    /// Returns the entries whose keys begin with `prefix`; see [`Db::prefix`].
    ///
    /// # Errors
    /// Those of [`Db::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.db.prefix_of(&self.family, &self.read, prefix.as_ref())
    }

    /// Flushes its memtables to tables.
    ///
    /// # Errors
    /// Those of [`Db::flush_cfs`].
    pub fn flush(&self, options: &FlushOptions) -> Result<()> {
        self.db.flush_cfs(options, &[&self.family])
    }

    /// The asynchronous form of [`flush`](Self::flush).
    ///
    /// # Errors
    /// Those of [`Db::flush_cfs`].
    pub async fn flush_async(&self, options: &FlushOptions) -> Result<()> {
        self.db.flush_cfs_async(options, &[&self.family]).await
    }

    /// Compacts the keys from `begin` to `end`, both included; `None` is unbounded.
    ///
    /// # Errors
    /// Those of [`Db::compact_range_cf`].
    pub fn compact_range(
        &self,
        options: &CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.db.compact_range_cf(options, &self.family, begin, end)
    }

    /// The asynchronous form of [`compact_range`](Self::compact_range).
    ///
    /// # Errors
    /// Those of [`Db::compact_range_cf`].
    pub async fn compact_range_async(
        &self,
        options: &CompactRangeOptions,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.db.compact_range_cf_async(options, &self.family, begin, end).await
    }

    /// Returns one of RocksDB's properties of the column family.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<String> {
        self.db.property_cf(&self.family, name)
    }

    /// Returns one of RocksDB's numeric properties of the column family.
    #[must_use]
    pub fn int_property(&self, name: &str) -> Option<u64> {
        self.db.int_property_cf(&self.family, name)
    }

    /// Returns the options in effect now.
    ///
    /// # Errors
    /// Those of [`Db::get_options`].
    pub fn options(&self) -> Result<ColumnFamilyOptions> {
        self.db.get_options(&self.family)
    }

    /// Changes options that may change while the database is open, by RocksDB's names.
    ///
    /// # Errors
    /// Those of [`Db::set_options`].
    pub fn set_options(&self, options: &[(&str, &str)]) -> Result<()> {
        self.db.set_options(&self.family, options)
    }
}

/// The calls that write one operation.
macro_rules! calls {
    ($($(#[$doc:meta])* $plain:ident $asynchronous:ident $cf:ident $cf_async:ident ($($arg:ident),*);)*) => {
        impl Cf {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("Those of [`Db::", stringify!($cf), "`].")]
                pub fn $plain(&self, $($arg: impl AsRef<[u8]>),*) -> Result<()> {
                    self.db.$cf(&self.write, &self.family, $($arg),*)
                }

                #[doc = concat!("The asynchronous form of [`", stringify!($plain), "`](Self::", stringify!($plain), "). Dropping it before its first poll writes nothing; after that the write happens whole or not at all.")]
                pub fn $asynchronous<'a>(
                    &'a self,
                    $($arg: &'a (impl AsRef<[u8]> + ?Sized)),*
                ) -> impl Future<Output = Result<()>> + Send + Unpin + 'a {
                    self.db.$cf_async(&self.write, &self.family, $($arg),*)
                }
            )*
        }
    };
}

calls! {
    /// Sets `key` to `value`.
    put put_async put_cf put_cf_async (key, value);
    /// Removes `key`. Succeeds if the key does not exist.
    delete delete_async delete_cf delete_cf_async (key);
    /// Removes `key`, which must have been put at most once since its last removal, and never
    /// merged.
    single_delete single_delete_async single_delete_cf single_delete_cf_async (key);
    /// Adds a merge operand to `key`.
    merge merge_async merge_cf merge_cf_async (key, operand);
    /// Removes all keys from `begin` up to, not including, `end`.
    delete_range delete_range_async delete_range_cf delete_range_cf_async (begin, end);
}
