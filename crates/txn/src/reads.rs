//! How transactions of both kinds are read: every call in its two forms, over one implementation.
//!
//! A kind of transaction has `default_family`, and `get_by` and `multi_get_by`, which are told who
//! calls.

/// The reads of a kind of transaction, which are refused once `$refused`.
macro_rules! reads {
    ($transaction:ty, $refused:literal) => {
        impl $transaction {
            /// The value of a key of the default column family, as the transaction sees it.
            ///
            /// # Errors
            #[doc = concat!("As [`Db::get_opt`](karst_engine::Db::get_opt); ", $refused, ".")]
            pub fn get(&self, options: &ReadOptions, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.get_cf(options, self.default_family(), key)
            }

            /// The asynchronous form of [`get`](Self::get).
            ///
            /// # Errors
            /// The same.
            pub async fn get_async(&self, options: &ReadOptions, key: &[u8]) -> Result<Option<Value>> {
                self.get_cf_async(options, self.default_family(), key).await
            }

            /// The same of a column family.
            ///
            /// # Errors
            /// As [`get`](Self::get), and if the column family is of another database.
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
            /// The same.
            pub async fn get_cf_async(
                &self,
                options: &ReadOptions,
                family: &ColumnFamily,
                key: &[u8],
            ) -> Result<Option<Value>> {
                self.get_by(Caller::Task, options, family, key).await
            }

            /// The values of keys of the default column family, as the transaction sees them. What
            /// has to be read is read at the same time.
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

            /// The same of a column family.
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

            /// The values of keys, each of its own column family, as the transaction sees them;
            /// what it has not written as of the same moment.
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
