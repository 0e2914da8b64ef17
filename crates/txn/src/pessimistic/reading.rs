//! Reads of a transaction database: committed data, without locks.

use super::db::TransactionDb;
use karst_engine::{ColumnFamily, DbIterator, ReadOptions, Result, Snapshot, Value};
use std::future::Future;

impl TransactionDb {
    /// Forwards to [`Db::get`](karst_engine::Db::get).
    ///
    /// # Errors
    /// Those of `Db::get`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.db().get(key)
    }

    /// Forwards to [`Db::get_cf`](karst_engine::Db::get_cf).
    ///
    /// # Errors
    /// Those of `Db::get_cf`.
    pub fn get_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.db().get_cf(options, family, key)
    }

    /// Forwards to [`Db::get_async`](karst_engine::Db::get_async).
    pub fn get_async<'a>(
        &'a self,
        key: &'a [u8],
    ) -> impl Future<Output = Result<Option<Value>>> + Send + Unpin + 'a {
        self.db().get_async(key)
    }

    /// Forwards to [`Db::get_cf_async`](karst_engine::Db::get_cf_async).
    pub fn get_cf_async<'a>(
        &'a self,
        options: &'a ReadOptions,
        family: &'a ColumnFamily,
        key: &'a [u8],
    ) -> impl Future<Output = Result<Option<Value>>> + Send + Unpin + 'a {
        self.db().get_cf_async(options, family, key)
    }

    /// Forwards to [`Db::multi_get`](karst_engine::Db::multi_get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Value>>> {
        self.db().multi_get(keys)
    }

    /// Forwards to [`Db::multi_get_async`](karst_engine::Db::multi_get_async).
    pub fn multi_get_async<'a, K: AsRef<[u8]> + Sync>(
        &'a self,
        keys: &'a [K],
    ) -> impl Future<Output = Vec<Result<Option<Value>>>> + Send + Unpin + 'a {
        self.db().multi_get_async(keys)
    }

    /// Forwards to [`Db::multi_get_cf`](karst_engine::Db::multi_get_cf).
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.db().multi_get_cf(options, family, keys)
    }

    /// Forwards to [`Db::multi_get_cf_async`](karst_engine::Db::multi_get_cf_async).
    pub fn multi_get_cf_async<'a, K: AsRef<[u8]> + Sync>(
        &'a self,
        options: &'a ReadOptions,
        family: &'a ColumnFamily,
        keys: &'a [K],
    ) -> impl Future<Output = Vec<Result<Option<Value>>>> + Send + Unpin + 'a {
        self.db().multi_get_cf_async(options, family, keys)
    }

    /// Forwards to [`Db::multi_get_cfs`](karst_engine::Db::multi_get_cfs).
    ///
    /// # Panics
    /// When there are not as many column families as keys.
    pub fn multi_get_cfs<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        families: &[&ColumnFamily],
        keys: &[K],
    ) -> Vec<Result<Option<Value>>> {
        self.db().multi_get_cfs(options, families, keys)
    }

    /// Forwards to [`Db::multi_get_cfs_async`](karst_engine::Db::multi_get_cfs_async).
    ///
    /// # Panics
    /// When there are not as many column families as keys.
    pub fn multi_get_cfs_async<'a, K: AsRef<[u8]> + Sync>(
        &'a self,
        options: &'a ReadOptions,
        families: &'a [&'a ColumnFamily],
        keys: &'a [K],
    ) -> impl Future<Output = Vec<Result<Option<Value>>>> + Send + Unpin + 'a {
        self.db().multi_get_cfs_async(options, families, keys)
    }

    /// Forwards to [`Db::iter`](karst_engine::Db::iter).
    ///
    /// # Errors
    /// Those of `Db::iter`.
    pub fn iter(&self, options: &ReadOptions) -> Result<DbIterator> {
        self.db().iter(options)
    }

    /// Forwards to [`Db::iter_cf`](karst_engine::Db::iter_cf).
    ///
    /// # Errors
    /// Those of `Db::iter_cf`.
    pub fn iter_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<DbIterator> {
        self.db().iter_cf(options, family)
    }

    /// Forwards to [`Db::snapshot`](karst_engine::Db::snapshot).
    pub fn snapshot(&self) -> Snapshot {
        self.db().snapshot()
    }
}
