//! A column family that one lane exports, imports under another name, clips to a range of its keys
//! and drops, again and again, while everything else goes on.
//!
//! The family is made of a [`Further`] family. Its steps are recorded beside the expected state
//! before and after, as that family's are.

use super::blob_garbage;
use super::calls::{Store, family_named};
use super::counts::{Count, Counts};
use super::further::{Further, KEYS};
use super::options::Drawn;
use super::place::beside;
use super::wrong::{Wrong, shown};
use crate::random::Random;
use karst_engine::{
    BottommostLevelCompaction, Checkpoint, ColumnFamily, CompactRangeOptions, Error, ErrorKind,
    ImportColumnFamilyOptions, ReadOptions,
};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PREFIX: &str = "imported";

/// Number of the last family that was about to be imported, imported, about to be clipped, clipped,
/// about to be dropped, and dropped; `source` is the number of the [`Further`] family that the last
/// one was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps {
    importing: u64,
    imported: u64,
    clipping: u64,
    clipped: u64,
    dropping: u64,
    dropped: u64,
    source: u64,
}

pub(crate) struct Imports {
    file: File,
    steps: Steps,
    seed: u64,
}

fn failed(error: Error) -> Wrong {
    Wrong::Failed(format!("an imported column family: {error}"))
}

impl Imports {
    pub(crate) fn open(folder: &Path, seed: u64) -> io::Result<Imports> {
        let path = folder.join("imports");
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(56)?;
        let mut bytes = [0; 56];
        file.read_exact_at(&mut bytes, 0)?;
        let number = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("8 bytes"));
        let steps = Steps {
            importing: number(0),
            imported: number(1),
            clipping: number(2),
            clipped: number(3),
            dropping: number(4),
            dropped: number(5),
            source: number(6),
        };
        Ok(Imports { file, steps, seed })
    }

    fn note(&mut self, change: impl FnOnce(&mut Steps)) -> io::Result<()> {
        change(&mut self.steps);
        let s = self.steps;
        let all = [s.importing, s.imported, s.clipping, s.clipped, s.dropping, s.dropped, s.source];
        self.file.write_all_at(&all.map(u64::to_le_bytes).concat(), 0)
    }

    /// Returns the numbers of the keys that the family of this number is clipped to; may be empty.
    fn range(&self, number: u64) -> Range<u64> {
        let mut random = Random::of(&[self.seed, 15, number]);
        let ends = [random.below(KEYS + 1), random.below(KEYS + 1)];
        ends[0].min(ends[1])..ends[0].max(ends[1])
    }

    fn family(&self, store: &Store, number: u64) -> Result<ColumnFamily, Wrong> {
        family_named(store.db(), &format!("{PREFIX}{number}"))
    }

    /// Runs the next step: imports a family, or drops the one that exists.
    pub(crate) fn import(
        &mut self,
        store: &Store,
        drawn: &Drawn,
        counts: &Counts,
        further: &Further,
        random: &mut Random,
    ) -> Result<(), Wrong> {
        let (db, number) = (store.db(), self.steps.imported);
        if self.steps.dropped < number {
            let family = self.family(store, number)?;
            self.check(store, &family, number, further)?;
            self.note(|steps| steps.dropping = number)?;
            db.drop_column_family(&family).map_err(failed)?;
            self.note(|steps| steps.dropped = number)?;
            return Ok(());
        }
        let Some((source, family)) = further.filled(store)? else { return Ok(()) };
        let folder = beside(db.path(), ".copy-exported");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let checkpoint = Checkpoint::new(db).map_err(failed)?;
        let exported = match checkpoint.export_column_family(&family, &folder) {
            // Export is not supported for families with blob files, nor under WritePrepared.
            Err(e) if e.kind() == ErrorKind::NotSupported => return Ok(()),
            exported => exported.map_err(failed)?,
        };
        let number = self.steps.importing + 1;
        self.note(|steps| (steps.importing, steps.source) = (number, source))?;
        let how = ImportColumnFamilyOptions { move_files: random.one_in(2) };
        let options = imported_family(drawn, number)?;
        let made =
            db.create_column_family_with_import(&format!("{PREFIX}{number}"), &options, &how, &exported);
        let family = made.map_err(failed)?;
        // An earlier import, if it got so far, was dropped.
        self.note(|steps| {
            (steps.imported, steps.clipping, steps.clipped) = (number, number - 1, number - 1);
            (steps.dropping, steps.dropped) = (number - 1, number - 1);
        })?;
        counts.add(Count::Imports, 1);
        self.check(store, &family, number, further)
    }

    /// Clips the imported family, if one exists.
    pub(crate) fn clip(&mut self, store: &Store, counts: &Counts, further: &Further) -> Result<(), Wrong> {
        let number = self.steps.imported;
        if self.steps.dropped >= number {
            return Ok(());
        }
        let (family, range) = (self.family(store, number)?, self.range(number));
        if number % 4 < 2 {
            // The compaction moves the values of tables that the clip deletes into blob files.
            let all = CompactRangeOptions {
                bottommost_level_compaction: BottommostLevelCompaction::Force,
                ..CompactRangeOptions::default()
            };
            store.db().compact_range_cf(&all, &family, None, None).map_err(failed)?;
        }
        self.note(|steps| steps.clipping = number)?;
        let (begin, end) = (format!("{:03}", range.start), format!("{:03}", range.end));
        store.db().clip_column_family(&family, begin, end).map_err(failed)?;
        self.note(|steps| steps.clipped = number)?;
        counts.add(Count::Clips, 1);
        self.check(store, &family, number, further)?;
        blob_garbage::check(store.db(), &family)
    }

    /// Checks that a family has all keys of its source, or those that clipping leaves, depending on
    /// its recorded steps.
    fn check(
        &self,
        store: &Store,
        family: &ColumnFamily,
        number: u64,
        further: &Further,
    ) -> Result<(), Wrong> {
        let o = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut iter = store.db().iter_cf(&o, family).map_err(failed)?;
        let mut found = Vec::new();
        iter.seek_to_first().map_err(failed)?;
        while iter.valid() {
            found.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next().map_err(failed)?;
        }
        let all = |keys: Range<u64>| -> Vec<(Vec<u8>, Vec<u8>)> {
            keys.map(|key| (format!("{key:03}").into_bytes(), further.value(self.steps.source, key)))
                .collect()
        };
        let mut possible = Vec::new();
        if self.steps.clipped < number {
            possible.push(all(0..KEYS));
        }
        if self.steps.clipping >= number {
            possible.push(all(self.range(number)));
        }
        if possible.contains(&found) {
            return Ok(());
        }
        let right = &possible[0];
        let at = found.iter().zip(right).take_while(|(a, b)| a == b).count();
        let of = |entry: Option<&(Vec<u8>, Vec<u8>)>| match entry {
            None => "the end".to_string(),
            Some((key, value)) => format!("key {} with {}", key.escape_ascii(), shown(Some(value))),
        };
        Err(Wrong::Mismatch(format!(
            "by an iterator: column family {}, which has {} entries: at place {at} expected {}, found {}",
            family.name(),
            found.len(),
            of(right.get(at)),
            of(found.get(at))
        )))
    }

    /// Checks after opening that families exist, are absent or are clipped as their recorded steps
    /// require. With `clean_up`, drops them.
    pub(crate) fn verify(&mut self, store: &Store, further: &Further, clean_up: bool) -> Result<(), Wrong> {
        let (steps, mut present) = (self.steps, Vec::new());
        for family in store.db().column_families() {
            let Some(text) = family.name().strip_prefix(PREFIX) else { continue };
            let number = text.parse().unwrap_or(0);
            if number <= steps.dropped || number > steps.importing {
                return Err(Wrong::Mismatch(format!(
                    "of column family {}: expected not to be there, as it was dropped or never made",
                    family.name()
                )));
            }
            self.check(store, &family, number, further)?;
            present.push(family);
        }
        if present.is_empty() && steps.imported > steps.dropping {
            self.family(store, steps.imported)?;
        }
        if clean_up {
            self.note(|steps| steps.dropping = steps.importing)?;
            for family in &present {
                store.db().drop_column_family(family).map_err(failed)?;
            }
            self.note(|steps| {
                let all = steps.importing;
                (steps.imported, steps.clipping, steps.clipped) = (all, all, all);
                (steps.dropping, steps.dropped) = (all, all);
            })?;
        }
        Ok(())
    }
}

/// Returns the options of an imported family: in one of two, compactions move values into blob
/// files.
fn imported_family(drawn: &Drawn, number: u64) -> Result<karst_engine::Options, Wrong> {
    let blobs = if number.is_multiple_of(2) { "true" } else { "false" };
    // Two fixed numbers are used because a further family of another one may be FIFO, which has one
    // level.
    let options = drawn.further_family(1 + number % 2).map_err(Wrong::Failed)?;
    options
        .set_all(&format!("enable_blob_files={blobs};min_blob_size=100;target_file_size_base=400;block_based_table_factory={{block_size=200}};"))
        .map_err(failed)
}
