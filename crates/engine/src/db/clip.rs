//! Clipping a column family to a range of keys.

use super::Db;
use karst_base::error::{Result, check_range};
use karst_base::options::ReadOptions;
use karst_base::sync::Guard;
use karst_commit::{WriteBatch, WriteOptions};
use karst_format::key::user_key;
use karst_lsm::pick::{BottommostLevelCompaction, CompactRangeOptions};
use karst_storage::column_family::ColumnFamily;

impl Db {
    /// Removes all keys outside `begin..end` from a column family, and their bytes from the disk.
    /// Blocks until it is done.
    ///
    /// All keys outside disappear at once. Then files that lie entirely outside are deleted, and
    /// the others are compacted. Existing snapshots still see the keys; entries that only snapshots
    /// need stay on disk, as after any deletion. Keys that are written outside the range meanwhile
    /// may stay.
    ///
    /// # Errors
    /// `end` is before `begin`; those of [`Db::delete_range_cf`] and [`Db::compact_range_cf`].
    /// After an error of a compaction the keys are gone, and the next call completes the rest.
    pub fn clip_column_family(
        &self,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.clip_blocking(family, begin.as_ref(), end.as_ref())
    }

    /// Not generic, for the reason that `Db::write_one` states.
    fn clip_blocking(&self, family: &ColumnFamily, begin: &[u8], end: &[u8]) -> Result<()> {
        karst_io::block_on(self.env(), self.clip_column_family_async(family, begin, end))
    }

    /// The asynchronous form of [`Db::clip_column_family`]. If it is dropped, all keys outside have
    /// been removed, or none; a running compaction is cancelled, and the next call completes the
    /// rest.
    ///
    /// # Errors
    /// Those of [`Db::clip_column_family`].
    pub async fn clip_column_family_async(
        &self,
        family: &ColumnFamily,
        begin: &[u8],
        end: &[u8],
    ) -> Result<()> {
        self.writable(family)?;
        check_range(&family.0.config.comparator, begin, end)?;
        let outside = self.outside(family, begin, end).await?;
        if !outside.is_empty() {
            // Synced, because if the deletions were lost after files are gone, older entries would
            // reappear.
            self.write_async(&WriteOptions::synced(), &outside).await?;
        }
        // Only without snapshots, because deleting a whole file removes its keys for snapshots too.
        // Snapshots taken from now on do not see them in any case.
        if self.0.snapshots.readers().snapshots.is_empty() {
            let ranges = [(None, Some(begin)), (Some(end), None)];
            self.delete_files_in_ranges_async(family, &ranges, false).await?;
        }
        let compact = CompactRangeOptions {
            bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
            ..CompactRangeOptions::default()
        };
        self.compact_range_cf_async(&compact, family, None, Some(begin)).await?;
        self.compact_range_cf_async(&compact, family, Some(end), None).await
    }

    /// Returns deletions of all keys outside the range that a memtable or a table may hold.
    ///
    /// They also cover keys that are already deleted, because tables that lie outside are deleted
    /// as a whole afterwards: such a table may hold the deletion of a key whose older entry is in a
    /// table that stays for now.
    async fn outside(&self, family: &ColumnFamily, begin: &[u8], end: &[u8]) -> Result<WriteBatch> {
        let (of, pinned, at) = self.view(&ReadOptions::default(), family)?;
        let view = Guard::into_inner(pinned);
        if let Some(gate) = self.gate(at.seq) {
            gate.await;
        }
        let order = &of.config.comparator;
        let memtables = view.memtables().flat_map(|mem| {
            let ends = [mem.first(), mem.last()].into_iter().flatten();
            ends.map(|position| user_key(mem.key(position)))
        });
        let tables = view.version().all_files();
        let tables = tables.flat_map(|(_, file)| [file.smallest_user_key(), file.largest_user_key()]);
        let keys: Vec<&[u8]> = memtables.chain(tables).collect();
        let mut outside = WriteBatch::new();
        let smallest = keys.iter().min_by(|a, b| order.compare_user(a, b));
        if let Some(smallest) = smallest.filter(|key| order.compare_user(key, begin).is_lt()) {
            outside.delete_range_cf(family, smallest, begin)?;
        }
        let largest = keys.iter().max_by(|a, b| order.compare_user(a, b));
        if let Some(largest) = largest.filter(|key| order.compare_user(key, end).is_ge()) {
            // Two operations, because a range excludes its end.
            outside.delete_range_cf(family, end, largest)?;
            outside.delete_cf(family, largest)?;
        }
        Ok(outside)
    }
}
