//! KarstDB with timestamps.

use super::model::{Bounds, Cursor, Found, Row, Store, View};
use super::order::Order;
use super::{Family, Step, Write, Writer};
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, ColumnFamilyOptions, CompactRangeOptions, Db, DbIterator,
    FlushOptions, OptionSet, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::path::Path;

pub(super) struct Karst {
    db: Db,
    families: Vec<(ColumnFamily, Order)>,
}

fn text(error: karst_engine::Error) -> String {
    error.to_string()
}

impl Karst {
    /// Opens the database read-only with no options but the users' comparators, and verifies its
    /// checksums.
    pub(super) fn open_read_only(path: &Path, families: &[Family]) -> Result<Karst, String> {
        let mut options = Options::new();
        for family in families.iter().filter(|family| matches!(family.order, Order::Short | Order::Long)) {
            options = options.comparator(Some(family.name), family.order.comparator());
        }
        let db = Db::open_read_only(path, &options).map_err(text)?;
        db.verify_checksum().map_err(text)?;
        Karst::of(db, families)
    }

    pub(super) fn open(path: &Path, db_options: &str, families: &[Family]) -> Result<Karst, String> {
        let mut options = Options::new().set_all(db_options).map_err(text)?;
        for family in families {
            ColumnFamilyOptions::default().set_all(&family.options).map_err(|e| e.to_string())?;
            let lines = family.options.clone();
            options = options.comparator(Some(family.name), family.order.comparator());
            options = options.column_family(family.name, move |cf| {
                cf.set_all(&lines).expect("it was tried before");
            });
        }
        let names: Vec<&str> = families.iter().map(|family| family.name).collect();
        Karst::of(Db::open_cf(path, &options, &names).map_err(text)?, families)
    }

    fn of(db: Db, families: &[Family]) -> Result<Karst, String> {
        let handle = |family: &Family| {
            let handle = db.column_family(family.name);
            handle.map(|handle| (handle, family.order)).ok_or_else(|| format!("no {}", family.name))
        };
        let families = families.iter().map(handle).collect::<Result<_, String>>()?;
        Ok(Karst { db, families })
    }

    fn options(&self, family: usize, view: View, bounds: Bounds<'_>) -> ReadOptions {
        let order = self.families[family].1;
        ReadOptions {
            timestamp: view.at.map(|at| order.stamp(at)),
            iter_start_ts: view.start.map(|start| order.stamp(start)),
            iterate_lower_bound: bounds.map(|(lower, _)| lower.to_vec()),
            iterate_upper_bound: bounds.map(|(_, upper)| upper.to_vec()),
            total_order_seek: true,
            ..ReadOptions::new()
        }
    }
}

impl Writer for Karst {
    fn apply(&mut self, step: &Step) -> Result<(), String> {
        let outcome = match step {
            Step::Write(writes) => {
                let mut batch = WriteBatch::new();
                let added = writes.iter().try_for_each(|write| {
                    let Write { family, key, at, value, single } = write;
                    let (handle, order) = &self.families[*family];
                    let stamp = order.stamp(*at);
                    match (value, single, *order == Order::Plain) {
                        (Some(value), _, true) => batch.put_cf(handle, key, value),
                        (None, true, true) => batch.single_delete_cf(handle, key),
                        (None, false, true) => batch.delete_cf(handle, key),
                        (Some(value), _, false) => batch.put_cf_with_ts(handle, key, stamp, value),
                        (None, true, false) => batch.single_delete_cf_with_ts(handle, key, stamp),
                        (None, false, false) => batch.delete_cf_with_ts(handle, key, stamp),
                    }
                });
                added.and_then(|()| self.db.write(&WriteOptions::default(), &batch))
            }
            Step::Flush(family) => self.db.flush_cfs(&FlushOptions::default(), &[&self.families[*family].0]),
            Step::Compact { family, low, range, force } => {
                let (handle, order) = &self.families[*family];
                let options = CompactRangeOptions {
                    full_history_ts_low: low.map(|low| order.stamp(low)),
                    bottommost_level_compaction: if *force {
                        BottommostLevelCompaction::Force
                    } else {
                        CompactRangeOptions::default().bottommost_level_compaction
                    },
                    ..CompactRangeOptions::default()
                };
                let (begin, end) = range.as_ref().map(|(begin, end)| (&begin[..], &end[..])).unzip();
                self.db.compact_range_cf(&options, handle, begin, end)
            }
            Step::Raise(family, low) => {
                let (handle, order) = &self.families[*family];
                self.db.increase_full_history_ts_low(handle, order.stamp(*low))
            }
        };
        outcome.map_err(text)
    }

    fn store(&self) -> &dyn Store {
        self
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        drop(self.families);
        self.db.close().map_err(text)
    }
}

impl Store for Karst {
    fn name(&self) -> String {
        "KarstDB".into()
    }

    fn get(&self, family: usize, view: View, key: &[u8]) -> Result<Found, String> {
        let (handle, options) = (&self.families[family].0, self.options(family, view, None));
        if view.at.is_none() {
            let found = self.db.get_cf(&options, handle, key).map_err(text)?;
            return Ok(found.map(|value| (value.to_vec(), Vec::new())));
        }
        let found = self.db.get_cf_with_ts(&options, handle, key).map_err(text)?;
        Ok(found.map(|(value, stamp)| (value.to_vec(), stamp.to_vec())))
    }

    fn multi_get(&self, family: usize, view: View, keys: &[Vec<u8>]) -> Result<Vec<Found>, String> {
        if view.at.is_none() {
            return keys.iter().map(|key| self.get(family, view, key)).collect();
        }
        let (handle, options) = (&self.families[family].0, self.options(family, view, None));
        let all = self.db.multi_get_cf_with_ts(&options, handle, keys).into_iter();
        let owned = |(value, stamp): (karst_engine::Value, Box<[u8]>)| (value.to_vec(), stamp.to_vec());
        all.map(|found| found.map(|found| found.map(owned)).map_err(text)).collect()
    }

    fn cursor(&self, family: usize, view: View, bounds: Bounds<'_>) -> Result<Box<dyn Cursor + '_>, String> {
        let options = self.options(family, view, bounds);
        let iter = self.db.iter_cf(&options, &self.families[family].0).map_err(text)?;
        Ok(Box::new(KarstCursor { iter, shows_all: view.start.is_some() }))
    }

    fn refuses_at_once(&self) -> bool {
        true
    }

    fn shows_all_backward(&self) -> bool {
        true
    }

    fn low(&self, family: usize) -> Result<Option<Vec<u8>>, String> {
        self.db.full_history_ts_low(&self.families[family].0).map_err(text)
    }
}

struct KarstCursor {
    iter: DbIterator,
    shows_all: bool,
}

impl Cursor for KarstCursor {
    fn first(&mut self) -> Result<(), String> {
        self.iter.seek_to_first().map_err(text)
    }

    fn last(&mut self) -> Result<(), String> {
        self.iter.seek_to_last().map_err(text)
    }

    fn seek(&mut self, key: &[u8]) -> Result<(), String> {
        self.iter.seek(key).map_err(text)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<(), String> {
        self.iter.seek_for_prev(key).map_err(text)
    }

    fn next(&mut self) -> Result<(), String> {
        self.iter.next().map_err(text)
    }

    fn prev(&mut self) -> Result<(), String> {
        self.iter.prev().map_err(text)
    }

    fn row(&self) -> Option<Row> {
        self.iter.valid().then(|| Row {
            key: self.iter.key().to_vec(),
            stamp: self.iter.timestamp().to_vec(),
            trailer: if self.shows_all { self.iter.trailer() } else { 0 },
            value: (!self.shows_all || !self.iter.is_deletion()).then(|| self.iter.value().to_vec()),
        })
    }
}
