//! An extra column family that one lane creates, fills and drops again and again, while everything
//! else goes on.
//!
//! Its steps are recorded beside the expected state before and after, so that the next process
//! knows if the family must exist, must not or may, and what it holds.

use super::calls::{Store, family_named};
use super::options::Drawn;
use super::wrong::{Wrong, shown};
use crate::random::Random;
use karst_engine::{ColumnFamily, Error, FlushOptions, ReadOptions, WriteBatch, WriteOptions};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PREFIX: &str = "further";
pub(crate) const KEYS: u64 = 60;

/// Number of the last family that was about to be created, created, filled, about to be dropped,
/// and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps {
    making: u64,
    made: u64,
    filled: u64,
    dropping: u64,
    dropped: u64,
}

pub(crate) struct Further {
    file: File,
    steps: Steps,
    seed: u64,
}

/// Returns the number in the name of such a family.
fn number_in(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

fn failed(error: Error) -> Wrong {
    Wrong::Failed(format!("a further column family: {error}"))
}

impl Further {
    pub(crate) fn open(folder: &Path, seed: u64) -> io::Result<Further> {
        let path = folder.join("further");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(40)?;
        let mut bytes = [0; 40];
        file.read_exact_at(&mut bytes, 0)?;
        let number = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("8 bytes"));
        let steps = Steps {
            making: number(0),
            made: number(1),
            filled: number(2),
            dropping: number(3),
            dropped: number(4),
        };
        Ok(Further { file, steps, seed })
    }

    fn note(&mut self, change: impl FnOnce(&mut Steps)) -> io::Result<()> {
        change(&mut self.steps);
        let s = self.steps;
        let bytes = [s.making, s.made, s.filled, s.dropping, s.dropped].map(u64::to_le_bytes).concat();
        self.file.write_all_at(&bytes, 0)
    }

    pub(crate) fn value(&self, number: u64, key: u64) -> Vec<u8> {
        let mut random = Random::of(&[self.seed, 5, number, key]);
        let len = random.below(400) as usize;
        format!("{number}.{key};").into_bytes().into_iter().chain(std::iter::repeat_n(b'f', len)).collect()
    }

    /// Runs the next step: creates a family, fills it, or drops it.
    pub(crate) fn step(&mut self, store: &Store, drawn: &Drawn) -> Result<(), Wrong> {
        let (db, number) = (store.db(), self.steps.made);
        if self.steps.dropped == number {
            let number = number + 1;
            self.note(|steps| steps.making = number)?;
            let options = drawn.further_family(number).map_err(Wrong::Failed)?;
            db.create_column_family(&format!("{PREFIX}{number}"), &options).map_err(failed)?;
            self.note(|steps| steps.made = number)?;
            return Ok(());
        }
        let family = self.family(store, number)?;
        if self.steps.filled < number {
            let mut batch = WriteBatch::new();
            for key in 0..KEYS {
                let value = self.value(number, key);
                batch.put_cf(&family, format!("{key:03}"), value).map_err(failed)?;
            }
            store.front.write(&WriteOptions::default(), &batch).map_err(failed)?;
            if drawn.manual_wal_flush {
                db.flush_wal(false).map_err(failed)?;
            }
            self.note(|steps| steps.filled = number)?;
            return self.check_one(store, &family, number);
        }
        self.check_one(store, &family, number)?;
        if number.is_multiple_of(2) {
            db.flush_cfs(&FlushOptions::default(), &[&family]).map_err(failed)?;
            self.check_one(store, &family, number)?;
        }
        self.note(|steps| steps.dropping = number)?;
        db.drop_column_family(&family).map_err(failed)?;
        self.note(|steps| steps.dropped = number)?;
        Ok(())
    }

    /// Returns the family that exists and is filled, with its number.
    pub(crate) fn filled(&self, store: &Store) -> Result<Option<(u64, ColumnFamily)>, Wrong> {
        let number = self.steps.made;
        match self.steps.filled == number && self.steps.dropping < number {
            true => Ok(Some((number, self.family(store, number)?))),
            false => Ok(None),
        }
    }

    fn family(&self, store: &Store, number: u64) -> Result<ColumnFamily, Wrong> {
        family_named(store.db(), &format!("{PREFIX}{number}"))
    }

    /// Checks that a family has all of its keys, or none if it is not known to be filled.
    fn check_one(&self, store: &Store, family: &ColumnFamily, number: u64) -> Result<(), Wrong> {
        let o = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut iter = store.db().iter_cf(&o, family).map_err(failed)?;
        iter.seek_to_first().map_err(failed)?;
        if !iter.valid() && self.steps.filled < number {
            return Ok(());
        }
        for key in 0..KEYS {
            let (name, right) = (format!("{key:03}"), self.value(number, key));
            let found = (iter.valid() && iter.key() == name.as_bytes()).then(|| iter.value().to_vec());
            if found.as_deref() != Some(&right) {
                return Err(Wrong::Mismatch(format!(
                    "by an iterator: column family {}, key {name}: expected {}, found {}",
                    family.name(),
                    shown(Some(&right)),
                    shown(found.as_deref())
                )));
            }
            iter.next().map_err(failed)?;
        }
        Ok(())
    }

    /// Checks after opening that a family exists if it must, does not if it must not, and holds all
    /// of its keys. With `clean_up`, drops it.
    pub(crate) fn verify(&mut self, store: &Store, clean_up: bool) -> Result<(), Wrong> {
        let steps = self.steps;
        let mut present = Vec::new();
        for family in store.db().column_families() {
            let Some(number) = number_in(family.name()) else { continue };
            if number <= steps.dropped || number > steps.making {
                let name = family.name();
                return Err(Wrong::Mismatch(format!(
                    "of column family {name}: expected not to be there, as it was dropped or never made"
                )));
            }
            self.check_one(store, &family, number)?;
            present.push(family);
        }
        if present.is_empty() && steps.made > steps.dropping {
            self.family(store, steps.made)?;
        }
        if clean_up {
            // Recorded before and after, because this process too may be killed in between.
            self.note(|steps| steps.dropping = steps.making)?;
            for family in &present {
                store.db().drop_column_family(family).map_err(failed)?;
            }
            self.note(|steps| {
                let all = steps.making;
                *steps = Steps { making: all, made: all, filled: all, dropping: all, dropped: all };
            })?;
        }
        Ok(())
    }
}
