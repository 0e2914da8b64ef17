//! Reads a possibly damaged database in every form, and compares the results with the written data.

use super::samples::{Contents, Sample};
use karst_engine::{ColumnFamily, Db, Error, Options, ReadOptions};
use karst_io::Env;
use karst_io::testing::foreign_block_on;
use std::path::PathBuf;

/// Number of keys looked up in each case, per column family and form.
const SAMPLED: usize = 24;

/// Reads one directory repeatedly.
pub(crate) struct Reader<'a> {
    env: Env,
    root: PathBuf,
    sample: &'a Sample,
}

/// Result of a case: the number of calls that returned an error, or the violated guarantee.
type Outcome<T = usize> = Result<T, String>;

impl<'a> Reader<'a> {
    pub(crate) fn new(env: Env, root: PathBuf, sample: &'a Sample) -> Self {
        Reader { env, root, sample }
    }

    /// Opens the database with one of several configurations, chosen by `case`, and reads it. With
    /// `loses`, keys may be missing.
    pub(crate) fn read(&self, case: usize, loses: bool) -> Outcome {
        let db = match Db::open_read_only(&self.root, &self.options(case)) {
            Ok(db) => db,
            Err(error) => return self.named(&error).map(|()| 1),
        };
        let mut errors = 0;
        for (name, contents) in &self.sample.families {
            let Some(family) = db.column_family(name) else {
                if loses {
                    continue;
                }
                return Err(format!("column family {name} is missing"));
            };
            let check = Check { reader: self, db: &db, family: &family, contents, loses };
            errors += check.lookups(case)?;
            errors += check.scan(true, true)?;
            errors += check.scan(false, true)?;
            errors += check.scan(true, false)?;
            errors += check.scan(false, false)?;
        }
        Ok(errors)
    }

    fn options(&self, case: usize) -> Options {
        let options = Options::new().env(self.env.clone());
        // Few open files in some configurations, because otherwise all tables are opened with the
        // database and damage is found only there.
        match case % 4 {
            0 => options,
            1 => options.block_cache_bytes(0).db(|db| db.max_open_files = 3),
            2 => {
                options.block_cache_bytes(20_000).db(|db| db.max_open_files = 100).column_families(|family| {
                    family.table_factory.block_based.cache_index_and_filter_blocks = true
                })
            }
            _ => options.block_cache_bytes(1 << 20).db(|db| {
                db.max_open_files = 100;
                db.use_direct_reads = true;
            }),
        }
    }

    /// Checks that the error names a file of the database.
    fn named(&self, error: &Error) -> Outcome<()> {
        let text = error.to_string();
        let root = format!("{}/", self.root.display());
        match text.split(&root).nth(1) {
            Some(rest) if rest.starts_with(|c: char| c.is_alphanumeric()) => Ok(()),
            _ => Err(format!("names no file: {text}")),
        }
    }
}

struct Check<'a> {
    reader: &'a Reader<'a>,
    db: &'a Db,
    family: &'a ColumnFamily,
    contents: &'a Contents,
    loses: bool,
}

impl Check<'_> {
    fn lookups(&self, case: usize) -> Outcome {
        let step = (self.contents.len() / SAMPLED).max(1);
        let mut keys: Vec<Vec<u8>> = self.contents.keys().skip(case % step).step_by(step).cloned().collect();
        let absent: Vec<_> = keys.iter().step_by(6).map(|key| [key, &b"+"[..]].concat()).collect();
        keys.extend(absent);
        let read = ReadOptions::default();
        let mut errors = 0;
        for (i, key) in keys.iter().enumerate() {
            let got = if i % 2 == 0 {
                self.db.get_cf(&read, self.family, key)
            } else {
                foreign_block_on(self.db.get_cf_async(&read, self.family, key))
            };
            errors += self.found(key, got.map(|v| v.map(|v| v.to_vec())), "get")?;
        }
        let one_by_one = ReadOptions { async_io: false, ..ReadOptions::default() };
        let by_level = ReadOptions { optimize_multiget_for_io: false, ..ReadOptions::default() };
        let read = [&read, &one_by_one, &by_level][case % 3];
        for awaited in [false, true] {
            let got = if awaited {
                foreign_block_on(self.db.multi_get_cf_async(read, self.family, &keys))
            } else {
                self.db.multi_get_cf(read, self.family, &keys)
            };
            if got.len() != keys.len() {
                return Err(format!("multi_get of {} keys gave {} results", keys.len(), got.len()));
            }
            for (key, got) in keys.iter().zip(got) {
                errors += self.found(key, got.map(|v| v.map(|v| v.to_vec())), "multi_get")?;
            }
        }
        Ok(errors)
    }

    /// Checks the result of looking up a key.
    fn found(&self, key: &[u8], got: Result<Option<Vec<u8>>, Error>, form: &str) -> Outcome {
        let got = match got {
            Ok(got) => got,
            Err(error) => return self.reader.named(&error).map(|()| 1),
        };
        let wanted = self.contents.get(key);
        if got.as_ref() == wanted || (got.is_none() && self.loses) {
            return Ok(0);
        }
        Err(format!("{form} of {}: {got:?}, expected {wanted:?}", key.escape_ascii()))
    }

    /// Checks that a scan shows every entry in order until it returns an error.
    fn scan(&self, forward: bool, blocking: bool) -> Outcome {
        let form = format!("scan, forward {forward}, blocking {blocking}");
        let mut iter = match self.db.iter_cf(&ReadOptions::default(), self.family) {
            Ok(iter) => iter,
            Err(error) => return self.reader.named(&error).map(|()| 1),
        };
        let mut moved = match (forward, blocking) {
            (true, true) => iter.seek_to_first(),
            (true, false) => foreign_block_on(iter.seek_to_first_async()),
            (false, true) => iter.seek_to_last(),
            (false, false) => foreign_block_on(iter.seek_to_last_async()),
        };
        let mut wanted: Box<dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>> =
            if forward { Box::new(self.contents.iter()) } else { Box::new(self.contents.iter().rev()) };
        loop {
            if let Err(error) = &moved {
                if iter.valid() || iter.status().is_ok() {
                    return Err(format!("{form}: valid, or of good status, after {error}"));
                }
                return self.reader.named(error).map(|()| 1);
            }
            if !iter.valid() {
                iter.status().map_err(|e| format!("{form}: status {e} without an error"))?;
                return match wanted.next() {
                    Some((key, _)) if !self.loses => {
                        Err(format!("{form}: ended before {}", key.escape_ascii()))
                    }
                    _ => Ok(0),
                };
            }
            let found = loop {
                match wanted.next() {
                    Some((key, value)) if key == iter.key() => break Some(value),
                    Some(_) if self.loses => {}
                    _ => break None,
                }
            };
            if found.map(Vec::as_slice) != Some(iter.value()) {
                return Err(format!(
                    "{form}: {} is missing, wrong or should not be there",
                    iter.key().escape_ascii()
                ));
            }
            moved = match (forward, blocking) {
                (true, true) => iter.next(),
                (true, false) => foreign_block_on(iter.next_async()),
                (false, true) => iter.prev(),
                (false, false) => foreign_block_on(iter.prev_async()),
            };
        }
    }
}
