//! One small database per cell of the option matrix that RocksDB 7.8 can write: created by Debian's
//! `ldb` and `db_bench`, with expected contents from `ldb scan`, and features asserted from the
//! files themselves.
//!
//! In: a [`Cell`] and an empty folder. Out: a [`Built`] database in the state left by a process
//! that did not flush (several L0 files, lower levels if the style has them, a write-ahead log not
//! yet replayed).
//!
//! Invariant: a cell whose feature is not really in its files is an error, never a pass.

use crate::Entry;
use crate::dataset::{KeyShape, ValueShape};
use crate::expectation::{Expectation, Inquiry};
use crate::model::{Model, ModelFamily, Order, Prefix};
use crate::random::Random;
use crate::rocksdb_tools as tools;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod cells;
mod evidence;

pub use cells::cells;
pub use evidence::{Evidence, record_types};

/// One column family of a cell.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Lines of its `[CFOptions]` section, beyond those that keep a test database small.
    pub options: Vec<String>,
    /// Lines of its `[TableOptions/BlockBasedTable]` section.
    pub table: Vec<String>,
    /// Its comparator.
    pub order: Order,
    /// Its prefix extractor.
    pub prefix: Option<Prefix>,
    /// Shape of its keys.
    pub keys: KeyShape,
    /// Shape of its values.
    pub values: ValueShape,
    /// Number of entries loaded first.
    pub bulk: u64,
}

/// The tool that writes the bulk of a cell's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// `ldb load`, `query` and `deleterange`: our keys and values.
    Ldb,
    /// `db_bench` with these benchmarks and flags: its keys and values, and operations that ldb
    /// lacks (merge operands, single deletes, recycled logs). The last run repeats without
    /// compaction, for L0.
    DbBench {
        /// Arguments of the bulk load, with compaction.
        first: &'static [&'static str],
        /// Arguments of the newest writes.
        last: &'static [&'static str],
    },
}

/// One database of the matrix.
#[derive(Clone, Debug)]
pub struct Cell {
    /// A short name, unique in the matrix; also its folder.
    pub name: &'static str,
    /// Lines of the `[DBOptions]` section.
    pub db_options: Vec<&'static str>,
    /// Its column families; the first is `default`.
    pub families: Vec<Family>,
    /// The tool that writes it.
    pub writer: Writer,
    /// Flags for every ldb that writes: options that it takes from flags only, ignoring the options
    /// file.
    pub ldb_flags: Vec<&'static str>,
    /// True if ranges are deleted, in files and in the log.
    pub delete_ranges: bool,
    /// Minimum number of levels, L0 included, with files in the end.
    pub levels: usize,
    /// Evidence required in the files.
    pub evidence: Vec<Evidence>,
}

/// A database that was written.
#[derive(Debug)]
pub struct Built {
    /// Its folder.
    pub path: PathBuf,
    /// The queries for its column families.
    pub inquiries: Vec<Inquiry>,
    /// Its contents by `ldb scan`.
    pub model: Model,
}

impl Built {
    /// Records the queries' answers from the contents found by `ldb scan`.
    pub fn expectation(&self, seed: u64) -> Result<Expectation, String> {
        Expectation::record(&self.model, &self.inquiries, seed)
    }
}

/// Maximum number of builds of a cell that `db_bench` writes: its compactions may drop the
/// evidence, such as single deletions.
const BUILDS: usize = 3;
/// Maximum number of waits for the background compactions of a cell on a busy machine.
const SETTLE_TRIES: usize = 60;
const MORE_DATA_EVERY: usize = 6;
const SETTLE_STEP: Duration = Duration::from_millis(150);
const NO_COMPACTION: &str = "--auto_compaction=false";
const LEFT_ALONE: &str = "[CFOptions \"default\"]\n  disable_auto_compactions=true\n";

impl Cell {
    /// Writes the database into `parent/name` and reads its contents.
    pub fn build(&self, parent: &Path) -> Result<Built, String> {
        let path = parent.join(self.name);
        let mut built = self.build_inner(&path);
        for _ in 1..BUILDS {
            if built.is_ok() || self.writer == Writer::Ldb || !path.exists() {
                break;
            }
            fs::remove_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            built = self.build_inner(&path);
        }
        built.map_err(|e| format!("cell {}: {e}", self.name))
    }

    fn build_inner(&self, path: &Path) -> Result<Built, String> {
        let options_file = path.with_extension("options");
        fs::write(&options_file, self.options_text())
            .map_err(|e| format!("{}: {e}", options_file.display()))?;
        let options_flag = format!("-options_file={}", options_file.display());
        // Created with db_bench, which stores the options file's settings in the database.
        match self.writer {
            Writer::Ldb => tools::db_bench(path, &[&options_flag, "-num=1", "-benchmarks=levelstats"])?,
            Writer::DbBench { first, .. } => {
                tools::db_bench(path, &[&[options_flag.as_str()], first].concat())?
            }
        };
        for family in &self.families[1..] {
            tools::ldb(path, &["create_column_family", family.name], b"")?;
        }
        if self.families.len() > 1 {
            self.replace_options(path)?;
        }
        let mut random =
            Random::new(self.name.bytes().fold(7, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b))));
        let mut inquiries = Vec::new();
        if self.writer == Writer::Ldb {
            for family in &self.families {
                family.load(path, 0, family.bulk, &self.ldb_flags, &mut random)?;
            }
        }
        self.settle(path, &mut random)?;
        if let Writer::DbBench { last, .. } = self.writer {
            let text = self.options_text().replace("[CFOptions \"default\"]\n", LEFT_ALONE);
            fs::write(&options_file, text).map_err(|e| format!("{}: {e}", options_file.display()))?;
            tools::db_bench(path, &[&[options_flag.as_str(), "-use_existing_db"], last].concat())?;
        }
        for family in &self.families {
            let probes = self.add_newer_files(path, family, &mut random)?;
            inquiries.push(Inquiry {
                column_family: family.name.into(),
                order: family.order,
                prefix: family.prefix,
                probes,
                walks: 48,
            });
        }
        let mut families = Vec::new();
        for family in &self.families {
            families.push(ModelFamily {
                name: family.name.into(),
                order: family.order,
                prefix: family.prefix,
                entries: tools::ldb_scan(path, family.name)?,
            });
        }
        let built = Built { path: path.to_path_buf(), inquiries, model: Model::new(families)? };
        self.prove(path)?;
        Ok(built)
    }

    /// Writes a family's last entries: separate files in L0 and a log tail that no file holds yet.
    /// Returns the deleted keys, as probes.
    fn add_newer_files(
        &self,
        path: &Path,
        family: &Family,
        random: &mut Random,
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut probes = Vec::new();
        let flags = [self.ldb_flags.as_slice(), &[NO_COMPACTION]].concat();
        if self.writer != Writer::Ldb {
            return Ok(probes);
        }
        // Each ldb process that writes leaves a log; the next one to open replays it into one L0
        // file.
        for version in 1..=3 {
            family.load(path, version, family.bulk / 12, &flags, random)?;
            let deleted: Vec<Vec<u8>> = (0..25).map(|_| family.keys.key(random.below(family.bulk))).collect();
            tools::ldb_delete(path, family.name, &flags, &deleted)?;
            probes.extend(deleted);
            if self.delete_ranges {
                let mut ends = [0; 2].map(|_| family.keys.key(random.below(family.bulk)));
                if version < 3 {
                    // Two narrow ranges and, last, one that may span half the keys.
                    let from = random.below(family.bulk - 60);
                    ends = [family.keys.key(from), family.keys.key(from + 50)];
                }
                ends.sort_by(|a, b| family.order.compare(a, b));
                if ends[0] != ends[1] {
                    tools::ldb_delete_range(path, family.name, &flags, &ends[0], &ends[1])?;
                    probes.extend(ends);
                }
            }
        }
        family.load(path, 4, family.bulk / 30, &flags, random)?;
        Ok(probes)
    }

    /// Waits until compaction has filled as many levels as the cell requires.
    fn settle(&self, path: &Path, random: &mut Random) -> Result<(), String> {
        let mut levels = Vec::new();
        for attempt in 0..SETTLE_TRIES {
            // Compactions may have moved everything to one level, depending on their order. More
            // data starts again above it.
            if attempt % MORE_DATA_EVERY == MORE_DATA_EVERY - 1 && self.writer == Writer::Ldb {
                let family = &self.families[0];
                for _ in 0..4 {
                    family.load(path, 1, family.bulk / 8, &self.ldb_flags, random)?;
                }
            }
            levels = tools::live_files(path, "default")?.0;
            // Entries written later go to L0.
            if levels.iter().skip(1).filter(|n| **n > 0).count() + 1 >= self.levels {
                return Ok(());
            }
            // Waits double, to 19 seconds, because on a busy machine a slow compaction does not end
            // within the first steps, and restarts with each.
            tools::ldb_compact_in_background(path, SETTLE_STEP * (1 << (attempt / 4).min(7)))?;
        }
        Err(format!("files per level stay {levels:?}; {} levels are wanted", self.levels))
    }

    /// Checks that the files of a database that another store wrote for this cell show its options.
    pub fn prove_files(&self, path: &Path) -> Result<(), String> {
        let (_, blobs) = tools::live_files(path, "default")?;
        let seen = evidence::Seen::gather(path, blobs)?;
        self.evidence.iter().try_for_each(|wanted| seen.prove(wanted))
    }

    fn prove(&self, path: &Path) -> Result<(), String> {
        let (levels, blobs) = tools::live_files(path, "default")?;
        let filled = levels.iter().filter(|n| **n > 0).count();
        if filled < self.levels || levels[0] < 2 {
            return Err(format!("files per level: {levels:?}; {} levels are wanted", self.levels));
        }
        let seen = evidence::Seen::gather(path, blobs)?;
        self.evidence.iter().try_for_each(|wanted| seen.prove(wanted))
    }

    /// Replaces the options that ldb wrote by this cell's, with all column families.
    fn replace_options(&self, path: &Path) -> Result<(), String> {
        let mut files: Vec<PathBuf> = fs::read_dir(path)
            .and_then(|dir| dir.map(|e| e.map(|e| e.path())).collect())
            .map_err(|e| format!("{}: {e}", path.display()))?;
        files.retain(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with("OPTIONS-")));
        let newest = files.iter().max().ok_or("the database has no OPTIONS file")?;
        fs::write(newest, self.options_text()).map_err(|e| format!("{}: {e}", newest.display()))
    }

    /// Returns an OPTIONS file of this cell.
    fn options_text(&self) -> String {
        let mut text = String::from("[Version]\n  rocksdb_version=7.8.3\n  options_file_version=1.1\n\n");
        text.push_str("[DBOptions]\n  create_if_missing=true\n");
        for line in &self.db_options {
            text.push_str(&format!("  {line}\n"));
        }
        for family in &self.families {
            text.push_str(&format!("\n[CFOptions \"{}\"]\n", family.name));
            family.option_lines().iter().for_each(|line| text.push_str(&format!("  {line}\n")));
            text.push_str(&format!("[TableOptions/BlockBasedTable \"{}\"]\n", family.name));
            family.table.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text
    }
}

impl Family {
    /// Creates a family of 3,000 text keys with short values in blocks of 1 KiB.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Family {
            name,
            options: Vec::new(),
            table: vec!["block_size=1024".into()],
            order: Order::Bytewise,
            prefix: None,
            keys: KeyShape::Text,
            values: ValueShape::Phrases,
            bulk: 3000,
        }
    }

    /// Sets these table options, replacing earlier ones of the same name.
    #[must_use]
    pub fn table(mut self, lines: &[&str]) -> Self {
        replace_lines(&mut self.table, lines);
        self
    }

    /// Sets these column family options, replacing earlier ones of the same name.
    #[must_use]
    pub fn options(mut self, lines: &[&str]) -> Self {
        replace_lines(&mut self.options, lines);
        self
    }

    /// Sets this prefix extractor.
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = Some(prefix);
        self
    }

    /// Sets the shapes of keys and values.
    #[must_use]
    pub fn data(mut self, keys: KeyShape, values: ValueShape) -> Self {
        (self.keys, self.values) = (keys, values);
        self
    }

    /// Returns all lines of its `[CFOptions]` section: those that keep a test database small, then
    /// its own.
    #[must_use]
    pub fn option_lines(&self) -> Vec<String> {
        let order = match self.order {
            Order::Bytewise => "leveldb.BytewiseComparator",
            Order::ReverseBytewise => "rocksdb.ReverseBytewiseComparator",
        };
        let mut lines = vec![format!("comparator={order}")];
        match self.prefix {
            Some(Prefix::Fixed(n)) => lines.push(format!("prefix_extractor=rocksdb.FixedPrefix.{n}")),
            Some(Prefix::Capped(n)) => lines.push(format!("prefix_extractor=rocksdb.CappedPrefix.{n}")),
            None => {}
        }
        // Small buffers and files, so that a few hundred kilobytes fill several levels.
        let small = [
            "write_buffer_size=65536",
            "target_file_size_base=16384",
            "max_bytes_for_level_base=32768",
            "max_bytes_for_level_multiplier=3",
            "level0_file_num_compaction_trigger=2",
            "num_levels=5",
            "level_compaction_dynamic_level_bytes=false",
        ];
        lines.extend(small.map(String::from));
        let own: Vec<&str> = self.options.iter().map(String::as_str).collect();
        replace_lines(&mut lines, &own);
        lines
    }

    /// Returns `count` entries of this version: all keys of the bulk in a shuffled order for
    /// version 0, else a random choice, mostly of old keys, some beyond the bulk.
    #[must_use]
    pub fn entries(&self, version: u64, count: u64, random: &mut Random) -> Vec<Entry> {
        let mut numbers: Vec<u64> = if version == 0 {
            (0..count).collect()
        } else {
            (0..count).map(|_| random.below(self.bulk + self.bulk / 8)).collect()
        };
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, random.index(i + 1));
        }
        numbers.iter().map(|i| (self.keys.key(*i), self.values.value(*i, version))).collect()
    }

    fn load(
        &self,
        path: &Path,
        version: u64,
        count: u64,
        flags: &[&str],
        random: &mut Random,
    ) -> Result<(), String> {
        tools::ldb_load(path, self.name, flags, &self.entries(version, count, random))
    }
}

/// Adds `name=value` lines, replacing those of the same name.
fn replace_lines(lines: &mut Vec<String>, own: &[&str]) {
    for line in own {
        let name = line.split('=').next();
        lines.retain(|l| l.split('=').next() != name);
        lines.push((*line).into());
    }
}

#[cfg(test)]
mod tests;
