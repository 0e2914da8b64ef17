//! Reads of both kinds of transactions: every call in its blocking and its asynchronous form, over
//! one implementation.
//!
//! A transaction type provides `default_family`, and `get_by` and `multi_get_by` with the kind of
//! caller as an argument.

/// Defines the reads of a transaction type; `$refused` is the state in which they fail.
macro_rules! reads {
    ($transaction:ty, $refused:literal) => {
        impl $transaction {
            /// Returns the value of a key of the default column family, as the transaction sees it.
            ///
            /// # Errors
            #[doc = concat!("Those of [`Db::get_opt`](karst_engine::Db::get_opt); ", $refused, ".")]
            pub fn get(&self, options: &ReadOptions, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.get_cf(options, self.default_family(), key)
            }

            /// The asynchronous form of [`get`](Self::get).
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub async fn get_async(&self, options: &ReadOptions, key: &[u8]) -> Result<Option<Value>> {
                self.get_cf_async(options, self.default_family(), key).await
            }

            /// Returns the value of a key of a column family; see [`get`](Self::get).
            ///
            /// # Errors
            /// Those of [`get`](Self::get), and if the column family is of another database.
            pub fn get_cf(
                &self,
                options: &ReadOptions,
                family: &ColumnFamily,
                key: impl AsRef<[u8]>,
            ) -> Result<Option<Value>> {
                self.get_blocking(options, family, key.as_ref())
            }

            /// Not generic, so that it is compiled here and not in each crate that calls it.
            fn get_blocking(
                &self,
                options: &ReadOptions,
                family: &ColumnFamily,
                key: &[u8],
            ) -> Result<Option<Value>> {
                finish(self.get_by(Caller::Thread, options, family, key))
            }

            /// The asynchronous form of [`get_cf`](Self::get_cf).
            ///
            /// # Errors
            /// Those of [`get_cf`](Self::get_cf).
            pub async fn get_cf_async(
                &self,
                options: &ReadOptions,
                family: &ColumnFamily,
                key: &[u8],
            ) -> Result<Option<Value>> {
                self.get_by(Caller::Task, options, family, key).await
            }

            /// Returns the values of keys of the default column family, as the transaction sees
            /// them. Keys that need the database are read in one `multi_get`.
            pub fn multi_get<K: AsRef<[u8]> + Sync>(
                &self,
                options: &ReadOptions,
                keys: &[K],
            ) -> Vec<Result<Option<Value>>> {
                self.multi_get_cf(options, self.default_family(), keys)
            }

            /// The asynchronous form of [`multi_get`](Self::multi_get).
            pub async fn multi_get_async<K: AsRef<[u8]> + Sync>(
                &self,
                options: &ReadOptions,
                keys: &[K],
            ) -> Vec<Result<Option<Value>>> {
                self.multi_get_cf_async(options, self.default_family(), keys).await
            }

            /// Returns the values of keys of a column family; see [`multi_get`](Self::multi_get).
            pub fn multi_get_cf<K: AsRef<[u8]> + Sync>(
                &self,
                options: &ReadOptions,
                family: &ColumnFamily,
                keys: &[K],
            ) -> Vec<Result<Option<Value>>> {
                finish(self.multi_get_by(Caller::Thread, options, Families::One(family), keys))
            }

            /// The asynchronous form of [`multi_get_cf`](Self::multi_get_cf).
            pub async fn multi_get_cf_async<K: AsRef<[u8]> + Sync>(
                &self,
                options: &ReadOptions,
                family: &ColumnFamily,
                keys: &[K],
            ) -> Vec<Result<Option<Value>>> {
                self.multi_get_by(Caller::Task, options, Families::One(family), keys).await
            }

            /// Returns the values of keys, each in its own column family, as the transaction sees
            /// them. All keys that need the database are read at one sequence number.
            ///
            /// # Panics
            /// When there are not as many column families as keys.
            pub fn multi_get_cfs<K: AsRef<[u8]> + Sync>(
                &self,
                options: &ReadOptions,
                families: &[&ColumnFamily],
                keys: &[K],
            ) -> Vec<Result<Option<Value>>> {
                finish(self.multi_get_by(Caller::Thread, options, Families::OfEach(families), keys))
            }

            /// The asynchronous form of [`multi_get_cfs`](Self::multi_get_cfs).
            ///
            /// # Panics
            /// When there are not as many column families as keys.
            pub async fn multi_get_cfs_async<K: AsRef<[u8]> + Sync>(
                &self,
                options: &ReadOptions,
                families: &[&ColumnFamily],
                keys: &[K],
            ) -> Vec<Result<Option<Value>>> {
                self.multi_get_by(Caller::Task, options, Families::OfEach(families), keys).await
            }
        }
    };
}

pub(crate) use reads;
