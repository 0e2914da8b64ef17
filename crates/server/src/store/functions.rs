//! The code of libraries of functions, in the family `server`, by the names of the libraries.

use super::{Durability, Store};
use crate::wrong::Wrong;
use karstdb::{ReadOptions, WriteBatch, WriteOptions};

/// Prefix of the keys of libraries.
const PREFIX: &[u8] = b"function:";
/// The first key behind those of libraries.
const BEHIND: &[u8] = b"function;";

fn stored(name: &str) -> Vec<u8> {
    [PREFIX, name.as_bytes()].concat()
}

impl Store {
    /// Returns names and code of all libraries, in the order of the names.
    ///
    /// # Errors
    /// The records could not be read.
    pub(crate) async fn libraries(&self) -> karstdb::Result<Vec<(String, Vec<u8>)>> {
        let options = ReadOptions { iterate_upper_bound: Some(BEHIND.to_vec()), ..ReadOptions::new() };
        let mut records = self.0.db.iter_cf(&options, &self.0.server)?;
        records.seek_async(PREFIX).await?;
        let mut found = Vec::new();
        while records.valid() {
            let name = records.key().get(PREFIX.len()..).unwrap_or_default();
            found.push((String::from_utf8_lossy(name).into_owned(), records.value().to_vec()));
            records.next_async().await?;
        }
        Ok(found)
    }

    /// Removes libraries and puts others, all or none.
    ///
    /// # Errors
    /// The write was refused or failed; nothing has changed.
    pub(crate) async fn change_libraries(
        &self,
        removed: &[&str],
        put: &[(&str, &[u8])],
        durability: Durability,
    ) -> Result<(), Wrong> {
        let (mut batch, server) = (WriteBatch::new(), &self.0.server);
        for name in removed {
            batch.delete_cf(server, stored(name))?;
        }
        for (name, code) in put {
            batch.put_cf(server, stored(name), code)?;
        }
        let options = WriteOptions { sync: durability == Durability::Synced, ..WriteOptions::new() };
        Ok(self.0.db.write_async(&options, &batch).await?)
    }
}
