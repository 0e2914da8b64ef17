//! Column families that one lane handles beside its operations: extra ones, imported ones, one with
//! timestamps, one that ingests files behind its entries; and bulk loads.

use super::behind::Behind;
use super::calls::Store;
use super::counts::{Count, Counts};
use super::flags::Flags;
use super::further::Further;
use super::imports::Imports;
use super::loads;
use super::options::Drawn;
use super::place::beside;
use super::rows::{BEHIND_FAMILY, STAMPED_FAMILY};
use super::stamped::Stamped;
use super::wrong::Wrong;
use crate::random::Random;
use std::io;
use std::path::Path;

pub(crate) struct Extras {
    further: Further,
    imports: Imports,
    /// `None` if no family has timestamps.
    stamped: Option<Stamped>,
    behind: Behind,
    loads: u64,
}

/// Names of the column families that exist for the whole life of the database. `timestamps`: one of
/// them has timestamps.
pub(crate) fn kept_families(timestamps: bool) -> &'static [&'static str] {
    if timestamps { &[BEHIND_FAMILY, STAMPED_FAMILY] } else { &[BEHIND_FAMILY] }
}

impl Extras {
    pub(crate) fn open(folder: &Path, seed: u64, life: u64, timestamps: bool) -> io::Result<Extras> {
        Ok(Extras {
            further: Further::open(folder, seed)?,
            imports: Imports::open(folder, seed)?,
            stamped: timestamps.then(|| Stamped::open(folder, seed)).transpose()?,
            behind: Behind::open(folder, seed)?,
            loads: life << 32,
        })
    }

    /// Compares all these families with their expected states. With `clean_up`, undecided steps are
    /// decided, and families that are created and dropped at run time are dropped.
    pub(crate) fn verify(&mut self, store: &Store, clean_up: bool) -> Result<(), Wrong> {
        self.imports.verify(store, &self.further, clean_up)?;
        self.further.verify(store, clean_up)?;
        if let Some(stamped) = &mut self.stamped {
            stamped.verify(store.db(), clean_up)?;
        }
        self.behind.verify(store.db(), clean_up)
    }

    /// Runs each kind of step with the probability of its flag.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        flags: &Flags,
        drawn: &Drawn,
        counts: &Counts,
        random: &mut Random,
    ) -> Result<(), Wrong> {
        if random.one_in(flags.clear_column_family_one_in) {
            counts.add(Count::Families, 1);
            self.further.step(store, drawn)?;
        }
        if random.one_in(flags.import_column_family_one_in) {
            self.imports.import(store, drawn, counts, &self.further, random)?;
        }
        if random.one_in(flags.clip_column_family_one_in) {
            self.imports.clip(store, counts, &self.further)?;
        }
        if let Some(stamped) = &mut self.stamped
            && random.one_in(flags.timestamped_write_one_in)
        {
            counts.add(Count::Stamped, 1);
            stamped.step(store, drawn.manual_wal_flush, random)?;
        }
        if random.one_in(flags.ingest_behind_one_in) {
            counts.add(Count::Behind, 1);
            let folder = beside(store.db().path(), ".copy-of-behind");
            self.behind.step(store, &folder, drawn.manual_wal_flush, random)?;
        }
        if random.one_in(flags.bulk_load_one_in) {
            self.loads += 1;
            loads::load(store.db().path(), self.loads)?;
            counts.add(Count::Loads, 1);
        }
        Ok(())
    }
}
