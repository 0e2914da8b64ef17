//! KarstDB as a store that a history is applied to, by the real write path alone. The judge of
//! RocksDB 11.8 compiles this file too.

use crate::writing::batch;
use karst_engine::{
    ColumnFamily, CompactRangeOptions, Db, FlushOptions, Options, WaitForCompactOptions, WriteOptions,
};
use karst_format::options::OptionSet;
use karst_testkit::matrix::Family;
use karst_testkit::script::{Step, Writes};
use std::path::{Path, PathBuf};

/// An open database and the families of its plan, in order.
pub(crate) struct KarstWriter {
    path: PathBuf,
    options: Options,
    names: Vec<String>,
    /// Invariant: absent only between closing and opening.
    open: Option<(Db, Vec<ColumnFamily>)>,
}

/// Returns the options of a database with these families, spelled as in OPTIONS files.
pub(crate) fn options_of(db: &[String], families: &[Family]) -> Result<Options, String> {
    let error = |e: karst_engine::Error| e.to_string();
    let mut options = Options::new();
    for line in
        ["create_if_missing=true", "create_missing_column_families=true", "avoid_flush_during_shutdown=true"]
            .into_iter()
            .chain(db.iter().flat_map(|lines| lines.split(';')))
    {
        let (name, value) = line.split_once('=').ok_or_else(|| format!("no option: {line}"))?;
        options = options.set(name, value).map_err(error)?;
    }
    for family in families {
        let (own, table) = (family.option_lines(), family.table.clone());
        options = options.column_family(family.name, move |cf| {
            for line in &own {
                let (name, value) = line.split_once('=').expect("name=value");
                cf.set(name, value).unwrap_or_else(|e| panic!("{line}: {e}"));
            }
            for line in &table {
                let (name, value) = line.split_once('=').expect("name=value");
                cf.table_factory.block_based.set(name, value).unwrap_or_else(|e| panic!("{line}: {e}"));
            }
        });
    }
    Ok(options)
}

impl KarstWriter {
    /// Opens the database in `path`; creates it and its families if they are missing.
    pub(crate) fn open(path: &Path, db: &[String], families: &[Family]) -> Result<Self, String> {
        let mut writer = KarstWriter {
            path: path.to_path_buf(),
            options: options_of(db, families)?,
            names: families.iter().map(|f| f.name.to_string()).collect(),
            open: None,
        };
        writer.reopen()?;
        Ok(writer)
    }

    fn reopen(&mut self) -> Result<(), String> {
        let error = |e: karst_engine::Error| e.to_string();
        if let Some((db, families)) = self.open.take() {
            drop(families);
            db.close().map_err(error)?;
        }
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let db = Db::open_cf(&self.path, &self.options, &names).map_err(error)?;
        let family = |name: &&str| db.column_family(name).ok_or_else(|| format!("no column family {name}"));
        let families = names.iter().map(family).collect::<Result<Vec<_>, String>>()?;
        self.open = Some((db, families));
        Ok(())
    }

    /// Returns the open database, to read its content.
    pub(crate) fn db(&self) -> &Db {
        &self.open.as_ref().expect("it is open").0
    }

    /// Waits until no flush or compaction is left.
    pub(crate) fn settle(&self) -> Result<(), String> {
        self.db().wait_for_compact(&WaitForCompactOptions::default()).map_err(|e| e.to_string())
    }

    /// Disables automatic compactions until the next opening, so that the newest entries stay in
    /// the level that they are flushed to.
    pub(crate) fn keep_newest(&self) -> Result<(), String> {
        let (db, families) = self.open.as_ref().expect("it is open");
        let families: Vec<&ColumnFamily> = families.iter().collect();
        db.disable_auto_compaction(&families).map_err(|e| e.to_string())
    }

    /// Closes the database without a flush.
    pub(crate) fn close(mut self) -> Result<(), String> {
        let (db, families) = self.open.take().expect("it is open");
        drop(families);
        db.close().map_err(|e| e.to_string())
    }
}

impl Writes for KarstWriter {
    fn name(&self) -> String {
        "KarstDB".into()
    }

    fn apply(&mut self, step: &Step) -> Result<(), String> {
        if *step == Step::Reopen {
            return self.reopen();
        }
        let (db, families) = self.open.as_ref().expect("it is open");
        match step {
            Step::Write(writes) => {
                batch(families, writes).and_then(|batch| db.write(&WriteOptions::default(), &batch))
            }
            Step::Flush(family) => db.flush_cfs(&FlushOptions::default(), &[&families[*family]]),
            Step::Compact(family) => {
                db.compact_range_cf(&CompactRangeOptions::default(), &families[*family], None, None)
            }
            Step::CompactRange { family, begin, end } => {
                let (begin, end) = (Some(begin.as_slice()), Some(end.as_slice()));
                db.compact_range_cf(&CompactRangeOptions::default(), &families[*family], begin, end)
            }
            Step::Reopen => unreachable!("done above"),
        }
        .map_err(|e| e.to_string())
    }
}
