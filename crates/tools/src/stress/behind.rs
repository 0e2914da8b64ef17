//! A column family with `cf_allow_ingest_behind`, written by one lane with batches, files ingested
//! on top and files ingested behind, and compared with a model that holds the visible value of each
//! key.

use super::calls::{Store, family_named};
use super::outcomes::Outcomes;
use super::rows::BEHIND_FAMILY as NAME;
use super::wrong::{Wrong, shown};
use crate::random::Random;
use karst_engine::{
    Db, Error, ErrorKind, FlushOptions, IngestExternalFileArg, IngestExternalFileOptions, Options,
    ReadOptions, SstFileWriter, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const KEYS: u64 = 60;

fn name(key: u64) -> Vec<u8> {
    format!("{key:03}").into_bytes()
}

fn failed(error: Error) -> Wrong {
    Wrong::Failed(format!("column family {NAME}: {error}"))
}

/// Ways in which a step's changes reach the family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Batch,
    File,
    FileBehind,
}

/// A step, derived from the seed and its number: at most one change of each key, by key.
struct Step {
    way: Way,
    changes: BTreeMap<u64, Option<Vec<u8>>>,
}

fn step_of(seed: u64, number: u64) -> Step {
    let mut random = Random::of(&[seed, 14, number]);
    let way = *random.pick(&[Way::Batch, Way::Batch, Way::File, Way::FileBehind]);
    let mut changes = BTreeMap::new();
    for _ in 0..1 + random.below(8) {
        let value = (way == Way::FileBehind || !random.one_in(4)).then(|| {
            let len = *random.pick(&[0, 20, 500]);
            format!("{number};").into_bytes().into_iter().chain(std::iter::repeat_n(b'b', len)).collect()
        });
        changes.insert(random.below(KEYS), value);
    }
    Step { way, changes }
}

pub(crate) struct Behind {
    outcomes: Outcomes,
    seed: u64,
    /// Newest change of each key; `None` for a deletion.
    shown: BTreeMap<u64, Option<Vec<u8>>>,
}

impl Behind {
    pub(crate) fn open(folder: &Path, seed: u64) -> io::Result<Behind> {
        let mut behind =
            Behind { outcomes: Outcomes::open(&folder.join(NAME))?, seed, shown: BTreeMap::new() };
        let done: Vec<u64> = behind.outcomes.done().collect();
        done.into_iter().for_each(|number| behind.apply(number));
        Ok(behind)
    }

    /// Applies a step that took place to the model.
    fn apply(&mut self, number: u64) {
        let step = step_of(self.seed, number);
        for (key, value) in step.changes {
            match step.way {
                Way::FileBehind => drop(self.shown.entry(key).or_insert(value)),
                Way::Batch | Way::File => drop(self.shown.insert(key, value)),
            }
        }
    }

    fn value(&self, key: u64) -> Option<&[u8]> {
        self.shown.get(&key)?.as_deref()
    }

    /// Runs the next step. Files are made in `folder`.
    pub(crate) fn step(
        &mut self,
        store: &Store,
        folder: &Path,
        flush_log: bool,
        random: &mut Random,
    ) -> Result<(), Wrong> {
        let (db, family) = (store.db(), family_named(store.db(), NAME)?);
        let number = self.outcomes.begin()?;
        let Step { way, changes } = step_of(self.seed, number);
        let mut done = true;
        if way == Way::Batch {
            let mut batch = WriteBatch::new();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.put_cf(&family, name(key), value),
                    None => batch.delete_cf(&family, name(key)),
                }
                .map_err(failed)?;
            }
            store.front.write(&WriteOptions::default(), &batch).map_err(failed)?;
            if flush_log {
                db.flush_wal(false).map_err(failed)?;
            }
        } else {
            std::fs::create_dir_all(folder)?;
            let path = folder.join("behind.sst");
            let mut writer = SstFileWriter::for_column_family(&Options::new(), &family).map_err(failed)?;
            writer.open(&path).map_err(failed)?;
            for (key, value) in changes {
                match value {
                    Some(value) => writer.put(name(key), value),
                    None => writer.delete(name(key)),
                }
                .map_err(failed)?;
            }
            writer.finish().map_err(failed)?;
            let ingest_behind = way == Way::FileBehind;
            let move_files = random.one_in(2);
            let how = IngestExternalFileOptions { ingest_behind, move_files, ..Default::default() };
            match db.ingest_external_files(&[IngestExternalFileArg::new(&family, [&path], how)]) {
                // The last level has an overlapping file, or entries with sequence number 0 lie
                // above it.
                Err(e) if ingest_behind && e.kind() == ErrorKind::InvalidArgument => done = false,
                ingested => ingested.map_err(failed)?,
            }
        }
        self.outcomes.end(number, done)?;
        if done {
            self.apply(number);
        }
        if random.one_in(8) {
            db.flush_cfs(&FlushOptions::default(), &[&family]).map_err(failed)?;
        }
        self.check(db)
    }

    /// Decides whether the last step of a killed process took place, as a whole.
    fn settle(&mut self, db: &Db) -> Result<(), Wrong> {
        let Some(number) = self.outcomes.undecided() else { return Ok(()) };
        let (step, family) = (step_of(self.seed, number), family_named(db, NAME)?);
        let mut done = None;
        for (key, value) in &step.changes {
            let hidden = step.way == Way::FileBehind && self.shown.contains_key(key);
            if hidden || value.as_deref() == self.value(*key) {
                continue;
            }
            let found = db.get_cf(&ReadOptions::default(), &family, name(*key)).map_err(failed)?;
            done = Some(found.as_deref() == value.as_deref());
            break;
        }
        // If no key tells, both outcomes show the same.
        let done = done.unwrap_or(true);
        self.outcomes.end(number, done)?;
        if done {
            self.apply(number);
        }
        Ok(())
    }

    /// Compares the family with the model. With `settle`, an undecided step is decided first;
    /// without it, the comparison is skipped while one is undecided.
    pub(crate) fn verify(&mut self, db: &Db, settle: bool) -> Result<(), Wrong> {
        if settle {
            self.settle(db)?;
        }
        if self.outcomes.undecided().is_some() {
            return Ok(());
        }
        self.check(db)
    }

    /// Compares all keys with the model, by get and by an iterator.
    fn check(&self, db: &Db) -> Result<(), Wrong> {
        let family = family_named(db, NAME)?;
        let o = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
        let mut iter = db.iter_cf(&o, &family).map_err(failed)?;
        iter.seek_to_first().map_err(failed)?;
        for key in 0..KEYS {
            let (key, right) = (name(key), self.value(key));
            let got = db.get_cf(&o, &family, &key).map_err(failed)?;
            let is_here = iter.valid() && iter.key() == key;
            let walked = is_here.then(|| iter.value().to_vec());
            for (way, found) in [("get", got.as_deref()), ("an iterator", walked.as_deref())] {
                if found != right {
                    return Err(Wrong::Mismatch(format!(
                        "by {way}: column family {NAME}, key {}: expected {}, found {}",
                        key.escape_ascii(),
                        shown(right),
                        shown(found)
                    )));
                }
            }
            if is_here {
                iter.next().map_err(failed)?;
            }
        }
        match iter.valid() {
            false => Ok(()),
            true => Err(Wrong::Mismatch(format!(
                "by an iterator: column family {NAME}, key {}: expected nothing, as it was never written",
                iter.key().escape_ascii()
            ))),
        }
    }
}
