//! Databases that are bulk-loaded beside the stressed one. Each is opened, compared with the loaded
//! entries, and removed; one left by a killed process must be complete or no database.

use super::place::{all_beside, beside, remove_database};
use super::wrong::{Wrong, shown};
use crate::random::Random;
use karst_engine::{BulkLoader, Db, Error, Options, ReadOptions};
use std::collections::BTreeMap;
use std::path::Path;

/// Suffix of their directories after the database's name, before the load's number.
const NAME: &str = ".copy-loaded-";
const KEYS: u64 = 400;

fn failed(error: Error) -> Wrong {
    Wrong::Failed(format!("a bulk load: {error}"))
}

fn options() -> Result<Options, Wrong> {
    let small = "create_if_missing=true;target_file_size_base=4000;enable_blob_files=true;min_blob_size=300";
    Options::new().set_all(small).map_err(failed)
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:04}").into_bytes()
}

/// Values by the numbers of their keys; `None` is a deletion.
type Changes = BTreeMap<u64, Option<Vec<u8>>>;

/// Returns the changes of a load by level, derived from its number; the deepest level first.
fn changes(number: u64) -> Vec<(usize, Changes)> {
    let mut random = Random::of(&[number, 16]);
    let level = |(level, count): (usize, u64)| {
        let mut changes = Changes::new();
        for _ in 0..count {
            let value = (level == 6 || !random.one_in(4)).then(|| {
                let len = *random.pick(&[0, 30, 700]);
                format!("{number};").into_bytes().into_iter().chain(std::iter::repeat_n(b'l', len)).collect()
            });
            changes.insert(random.below(KEYS), value);
        }
        (level, changes)
    };
    [(6, KEYS), (4, 100), (0, 20)].map(level).into()
}

/// Loads the database of this number, verifies it and removes it.
pub(crate) fn load(db: &Path, number: u64) -> Result<(), Wrong> {
    let directory = beside(db, &format!("{NAME}{number}"));
    let mut loader = BulkLoader::create(&directory, &options()?).map_err(failed)?;
    for (level, changes) in changes(number) {
        for (number, value) in changes {
            match value {
                Some(value) => loader.put(&key(number), &value),
                None => loader.delete(&key(number)),
            }
            .map_err(failed)?;
        }
        loader.seal(level).map_err(failed)?;
    }
    loader.finish().map_err(failed)?;
    check(&directory, number)?;
    remove_database(&directory)?;
    Ok(())
}

/// Checks that each load left by a killed process is complete or no database.
pub(crate) fn check_left(db: &Path) -> Result<(), Wrong> {
    for (directory, number) in all_beside(db, NAME)? {
        let Ok(number) = number.parse() else { continue };
        if directory.join("CURRENT").exists() {
            check(&directory, number)?;
        } else if Db::open_read_only(&directory, &Options::new()).is_ok() {
            return Err(Wrong::Mismatch(format!(
                "of {}: an unfinished load can be opened as a database",
                directory.display()
            )));
        }
    }
    Ok(())
}

fn check(directory: &Path, number: u64) -> Result<(), Wrong> {
    let mut right = BTreeMap::new();
    for (number, value) in changes(number).into_iter().flat_map(|(_, changes)| changes) {
        right.insert(key(number), value);
    }
    right.retain(|_, value| value.is_some());
    let db = Db::open(directory, &options()?).map_err(failed)?;
    let mut iter = db.iter(&ReadOptions::default()).map_err(failed)?;
    iter.seek_to_first().map_err(failed)?;
    for (key, value) in &right {
        let found = (iter.valid() && iter.key() == key).then(|| iter.value().to_vec());
        if found != *value {
            return Err(Wrong::Mismatch(format!(
                "of a bulk load, {}: key {}: expected {}, found {}",
                directory.display(),
                key.escape_ascii(),
                shown(value.as_deref()),
                shown(found.as_deref())
            )));
        }
        iter.next().map_err(failed)?;
    }
    if iter.valid() {
        return Err(Wrong::Mismatch(format!(
            "of a bulk load, {}: key {}: expected nothing, as it was not loaded",
            directory.display(),
            iter.key().escape_ascii()
        )));
    }
    drop(iter);
    db.close().map_err(failed)
}
