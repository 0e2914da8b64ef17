//! A database of KarstDB as a [`Subject`], read with fixed options through the synchronous calls,
//! in its current state or as of a snapshot. Also compiled by the simulation and by the judge of
//! RocksDB 11.8.

use karst_engine::{ColumnFamily, Db, DbIterator, ReadOptions};
use karst_testkit::subject::{Cursor, Move, ReadSettings, Subject};

fn text(error: karst_engine::Error) -> String {
    error.to_string()
}

/// A database read with fixed options.
pub(crate) struct Reading<'a> {
    pub(crate) db: &'a Db,
    pub(crate) options: ReadOptions,
}

impl Reading<'_> {
    fn family(&self, name: &str) -> Result<ColumnFamily, String> {
        self.db.column_family(name).ok_or_else(|| format!("no column family {name}"))
    }
}

impl Subject for Reading<'_> {
    fn name(&self) -> String {
        "KarstDB".into()
    }

    fn column_families(&self) -> Result<Vec<String>, String> {
        Ok(self.db.column_families().iter().map(|f| f.name().to_string()).collect())
    }

    fn get(&self, column_family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let value = self.db.get_cf(&self.options, &self.family(column_family)?, key).map_err(text)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn multi_get(&self, column_family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let found = self.db.multi_get_cf(&self.options, &self.family(column_family)?, keys);
        found.into_iter().map(|v| v.map(|v| v.map(|v| v.to_vec())).map_err(text)).collect()
    }

    fn cursor<'a>(
        &'a self,
        column_family: &str,
        settings: &ReadSettings,
    ) -> Result<Box<dyn Cursor + 'a>, String> {
        let options = ReadOptions {
            iterate_lower_bound: settings.lower_bound.clone(),
            iterate_upper_bound: settings.upper_bound.clone(),
            ..self.options.clone()
        };
        let iter = self.db.iter_cf(&options, &self.family(column_family)?).map_err(text)?;
        Ok(Box::new(KarstCursor(iter)))
    }
}

struct KarstCursor(DbIterator);

impl Cursor for KarstCursor {
    fn apply(&mut self, step: &Move) -> Result<(), String> {
        match step {
            Move::First => self.0.seek_to_first(),
            Move::Last => self.0.seek_to_last(),
            Move::Seek(key) => self.0.seek(key),
            Move::SeekForPrev(key) => self.0.seek_for_prev(key),
            Move::Next => self.0.next(),
            Move::Prev => self.0.prev(),
        }
        .map_err(text)
    }

    fn current(&self) -> Option<(&[u8], &[u8])> {
        self.0.valid().then(|| (self.0.key(), self.0.value()))
    }
}
