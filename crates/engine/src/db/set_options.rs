//! Reading options, and changing them while the database is open.

use super::Db;
use crate::open::{change_db_options, change_family_options};
use karst_base::error::Result;
use karst_base::options::ColumnFamilyOptions;
use karst_storage::column_family::ColumnFamily;

impl Db {
    /// Returns the current options of a column family.
    ///
    /// # Errors
    /// The database is closed, or the column family belongs to another one.
    pub fn get_options(&self, family: &ColumnFamily) -> Result<ColumnFamilyOptions> {
        Ok(self.family(family)?.settings().options.clone())
    }

    /// Changes options of a column family, by RocksDB's names (`"write_buffer_size"`,
    /// `"compaction_options_fifo"`, `"block_based_table_factory"` with those of tables in braces).
    /// Either all of them change or none does. They apply to reads and jobs that begin after the
    /// call, are written to the OPTIONS file, and are used by the next opening unless that sets
    /// them itself. Running reads and jobs keep the old ones. Blocks.
    ///
    /// # Errors
    /// An option is unknown, or cannot change while the database is open or not to this value (the
    /// error names it); the database is open for reading only or closed; OPTIONS could not be
    /// written. No option has changed then.
    pub fn set_options(&self, family: &ColumnFamily, options: &[(&str, &str)]) -> Result<()> {
        let (family, write) = (self.family(family)?, self.write_half()?);
        {
            let _changing = write.ownership.changing_options.lock();
            self.check_open()?;
            let before = family.settings();
            let now = change_family_options(&self.0.read, &write.ownership, family, options)?;
            family.change_settings(now.clone());
            write.events.family_options_changed(&before, &now);
        }
        write.background.options_changed(std::slice::from_ref(family));
        Ok(())
    }

    /// Changes options of the database, by RocksDB's names. Otherwise like [`Db::set_options`].
    ///
    /// # Errors
    /// Those of [`Db::set_options`].
    pub fn set_db_options(&self, options: &[(&str, &str)]) -> Result<()> {
        let write = self.write_half()?;
        {
            let read = &self.0.read;
            let _changing = write.ownership.changing_options.lock();
            self.check_open()?;
            let before = read.db_options.get();
            read.db_options.set(change_db_options(read, &write.ownership, options)?);
            write.db_options_changed(read, &before);
            write.events.options_changed(&before, &read.db_options.get());
        }
        write.background.options_changed(&self.0.read.families.all());
        Ok(())
    }
}
