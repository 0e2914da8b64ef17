//! Metadata and properties of the database's files.

use super::Db;
use super::timestamps::stored;
use crate::properties::{self, ColumnFamilyMetaData, LiveFile};
use crate::read::sizes::KeyRange;
use karst_base::error::Result;
use karst_format::ids::Level;
use karst_format::properties::TableProperties;
use karst_lsm::FileMetadata;
use karst_lsm::level::{overlap, overlapping_in_turn};
use karst_storage::column_family::{ColumnFamily, Family};
use karst_storage::superversion::SuperVersion;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

/// Table properties by the path of the table.
pub type TablePropertiesCollection = BTreeMap<PathBuf, Arc<TableProperties>>;

impl Db {
    /// Returns one of RocksDB's properties, such as `rocksdb.stats`, of the default column family.
    /// `None` if there is no such property, or the database is closed. Some read table files and
    /// block.
    pub fn property(&self, name: &str) -> Option<String> {
        self.property_cf(&self.0.default_family, name)
    }

    /// Returns a property of a column family, like [`Db::property`].
    pub fn property_cf(&self, family: &ColumnFamily, name: &str) -> Option<String> {
        self.check_open().ok()?;
        properties::text(self.0.as_subject(), &family.0, name)
    }

    /// Returns a numeric property of the default column family.
    pub fn int_property(&self, name: &str) -> Option<u64> {
        self.int_property_cf(&self.0.default_family, name)
    }

    /// Returns a numeric property of a column family.
    pub fn int_property_cf(&self, family: &ColumnFamily, name: &str) -> Option<u64> {
        self.check_open().ok()?;
        properties::number(self.0.as_subject(), &family.0, name)
    }

    /// Returns every current table and blob file of the database, by column family and level.
    pub fn live_files(&self) -> Vec<LiveFile> {
        properties::live_files(self.0.as_subject())
    }

    /// Returns the names of the tables, blob files, CURRENT, MANIFEST and OPTIONS, relative to
    /// their directories, and the size of the MANIFEST in bytes. Logs are not included.
    ///
    /// Not enough for a backup of a database that is open for writing: compactions may remove files
    /// while they are copied, and entries that are not flushed are in logs.
    pub fn live_file_names(&self) -> (Vec<String>, u64) {
        properties::live_file_names(self.0.as_subject())
    }

    /// Waits until all lines sent to LOG so far are in the file, for callers that promise this.
    ///
    /// # Errors
    /// The database is open for reading only or closed.
    #[doc(hidden)]
    pub fn wait_for_info_log(&self) -> Result<()> {
        karst_io::block_on(self.env(), self.write_half()?.events.written());
        Ok(())
    }

    /// Returns the properties of all tables of a column family. Opens tables that are not open yet,
    /// and waits for that on the calling thread.
    ///
    /// # Errors
    /// The first table that cannot be opened, or is damaged. The column family belongs to another
    /// database.
    pub fn properties_of_all_tables(&self, family: &ColumnFamily) -> Result<TablePropertiesCollection> {
        karst_io::block_on(self.env(), self.properties_of_all_tables_async(family))
    }

    /// The asynchronous form of [`Db::properties_of_all_tables`].
    ///
    /// # Errors
    /// Those of [`Db::properties_of_all_tables`].
    pub async fn properties_of_all_tables_async(
        &self,
        family: &ColumnFamily,
    ) -> Result<TablePropertiesCollection> {
        let family = self.family(family)?;
        properties_of(family, &family.superversion(), |_, _, _| true).await
    }

    /// Returns the properties of the tables that may hold keys of the ranges. Like in RocksDB, a
    /// table that begins with the key at the end of a range is included. Otherwise like
    /// [`Db::properties_of_all_tables`].
    ///
    /// # Errors
    /// Those of [`Db::properties_of_all_tables`].
    pub fn properties_of_tables_in_range(
        &self,
        family: &ColumnFamily,
        ranges: &[KeyRange<'_>],
    ) -> Result<TablePropertiesCollection> {
        karst_io::block_on(self.env(), self.properties_of_tables_in_range_async(family, ranges))
    }

    /// The asynchronous form of [`Db::properties_of_tables_in_range`].
    ///
    /// # Errors
    /// Those of [`Db::properties_of_all_tables`].
    pub async fn properties_of_tables_in_range_async(
        &self,
        family: &ColumnFamily,
        ranges: &[KeyRange<'_>],
    ) -> Result<TablePropertiesCollection> {
        let family = self.family(family)?;
        let view = family.superversion();
        let version = view.version();
        let within = |level: Level, index: usize, _: &FileMetadata| {
            ranges.iter().any(|(start, end)| {
                let (start, end) = (stored(family, start), stored(family, end));
                let (lower, upper) = (Bound::Included(&*start), Bound::Included(&*end));
                version.levels()[level.index()].overlaps(version.comparator(), index, lower, upper)
            })
        };
        properties_of(family, &view, within).await
    }

    /// Returns the levels, tables and blob files of a column family, as the MANIFEST describes
    /// them. Reads no file.
    ///
    /// # Errors
    /// The database is closed. The column family belongs to another database.
    pub fn column_family_metadata(&self, family: &ColumnFamily) -> Result<ColumnFamilyMetaData> {
        let family = self.family(family)?;
        Ok(properties::column_family_metadata(self.0.as_subject(), family))
    }

    /// Returns the part of the metadata between two keys, both included, on one level or all:
    /// tables that overlap the range, and levels with such tables. No blob files. `None` is
    /// unbounded. On L0, a table that overlaps an included one is included too.
    ///
    /// # Errors
    /// Those of [`Db::column_family_metadata`].
    pub fn column_family_metadata_in_range(
        &self,
        family: &ColumnFamily,
        range: (Option<&[u8]>, Option<&[u8]>),
        level: Option<u32>,
    ) -> Result<ColumnFamilyMetaData> {
        let mut found = self.column_family_metadata(family)?;
        let comparator = &family.0.config.comparator;
        let (begin, end) =
            (range.0.map(|key| stored(&family.0, key)), range.1.map(|key| stored(&family.0, key)));
        let range = (begin.as_deref(), end.as_deref());
        found.levels.retain(|of| level.is_none_or(|level| of.level == level));
        for of in &mut found.levels {
            let files = std::mem::take(&mut of.files);
            let ends = |at: usize| (&files[at].smallest_key[..], &files[at].largest_key[..]);
            // Compat: RocksDB widens the range on L0 by the tables it finds there, until it adds
            // none.
            let counts = match of.level {
                0 => overlapping_in_turn(comparator, files.len(), ends, range),
                _ => (0..files.len()).filter(|at| overlap(comparator, ends(*at), range)).collect(),
            };
            let files = files.into_iter().enumerate();
            of.files = files.filter(|(at, _)| counts.contains(at)).map(|(_, file)| file).collect();
            of.size_bytes = of.files.iter().map(|file| file.size_bytes).sum();
        }
        found.levels.retain(|of| !of.files.is_empty());
        found.size_bytes = found.levels.iter().map(|of| of.size_bytes).sum();
        found.file_count = found.levels.iter().map(|of| of.files.len()).sum();
        (found.blob_files, found.blob_file_size_bytes) = (Vec::new(), 0);
        Ok(found)
    }

    /// Returns a property of a column family as a map from names to texts; `None` if the property
    /// is no map, or if its source cannot be read. Those of tables open them, which blocks.
    pub fn map_property_cf(&self, family: &ColumnFamily, name: &str) -> Option<BTreeMap<String, String>> {
        self.check_open().ok()?;
        properties::map(self.0.as_subject(), &family.0, name)
    }

    /// Returns a map property of the default column family.
    pub fn map_property(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.map_property_cf(&self.0.default_family, name)
    }

    /// Returns the sum of a numeric property over all column families; `None` if one of them has no
    /// value. Like in RocksDB, the block cache, which they share, counts once.
    pub fn aggregated_int_property(&self, name: &str) -> Option<u64> {
        self.check_open().ok()?;
        if name.starts_with("rocksdb.block-cache-") {
            return self.int_property(name);
        }
        properties::aggregated_number(self.0.as_subject(), name)
    }
}

async fn properties_of(
    family: &Arc<Family>,
    view: &SuperVersion,
    wanted: impl Fn(Level, usize, &FileMetadata) -> bool,
) -> Result<TablePropertiesCollection> {
    let tables = &family.tables;
    let mut all = TablePropertiesCollection::new();
    for level in view.version().levels() {
        for (index, file) in level.files().iter().enumerate() {
            if !wanted(level.level(), index, file) {
                continue;
            }
            let opened = tables.opened(file).cloned().or_else(|| tables.lookup(file));
            let table = match opened {
                Some(table) => table,
                None => tables.clone().open(file, u32::from(level.level().0)).await?,
            };
            let path = tables.shared.table_path(file.number, file.path_id)?;
            all.insert(path, table.properties().clone());
        }
    }
    Ok(all)
}
