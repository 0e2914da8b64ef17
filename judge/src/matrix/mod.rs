//! The matrix that RocksDB 11.8 writes: one small database per cell, and beside it RocksDB's own
//! answers after it reopened the database read-only.
//!
//! In a folder: `CELL/` (the database) and `CELL.expected` (a recorded [`Expectation`]).

pub(crate) mod cells;
pub(crate) mod features;

use crate::karst::{Form, Karst};
use crate::rocks::{Rocks, descriptors, options};
use cells::{Cell, cells};
use karst_engine::read::iter::Direction;
use karst_testkit::Entry;
use karst_testkit::expectation::{Expectation, Inquiry};
use karst_testkit::matrix::Family;
use karst_testkit::random::Random;
use rocksdb::{
    ColumnFamily, DB, IngestExternalFileOptions, SstFileWriter, TransactionDB, TransactionDBOptions,
    TransactionOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::fs;
use std::path::{Path, PathBuf};

/// Writes every cell into a folder that does not exist or is empty.
pub(crate) fn make(dir: &Path) -> Result<(), String> {
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut failures = Vec::new();
    for cell in cells() {
        let expectation = match cell.build(&dir.join(&cell.name)) {
            Ok(expectation) => expectation,
            Err(e) => {
                failures.push(format!("cell {}: {e}", cell.name));
                continue;
            }
        };
        let entries: usize = expectation.families.iter().map(|f| f.entries.len()).sum();
        let file = expectation_file(dir, &cell.name);
        fs::write(&file, expectation.encode()).map_err(|e| format!("{}: {e}", file.display()))?;
        println!("made {:32} {entries:6} entries", cell.name);
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Reads every cell of a folder that [`make`] filled, and compares.
pub(crate) fn check(dir: &Path) -> Result<(), String> {
    let mut failures = 0;
    for cell in cells() {
        let file = expectation_file(dir, &cell.name);
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let expectation = Expectation::decode(&bytes).map_err(|e| format!("{}: {e}", file.display()))?;
        for form in Form::ALL {
            let compared = Karst::open(&dir.join(&cell.name), form).and_then(|store| {
                let compared = expectation.check(&store)?;
                (form != Form::Async)
                    .then_some(())
                    .map_or_else(|| check_streams(&store, &expectation), Ok)?;
                Ok(compared)
            });
            match compared {
                Ok(c) => println!(
                    "read {:32} {form:?}: {} entries, {} keys, {} moves",
                    cell.name, c.entries, c.keys, c.moves
                ),
                Err(message) => {
                    failures += 1;
                    eprintln!("FAILED {} {form:?}: {message}", cell.name);
                }
            }
        }
    }
    if failures == 0 { Ok(()) } else { Err(format!("{failures} readings differ from RocksDB's")) }
}

fn check_streams(store: &Karst, expectation: &Expectation) -> Result<(), String> {
    for family in &expectation.families {
        let forward = store.stream(&family.name, Direction::Forward)?;
        let mut backward = store.stream(&family.name, Direction::Backward)?;
        backward.reverse();
        if forward != family.entries || backward != family.entries {
            return Err(format!("column family {}: the streams differ", family.name));
        }
    }
    Ok(())
}

/// Runs [`make`] and [`check`] in a temporary folder.
pub(crate) fn make_and_check() -> Result<(), String> {
    let dir = std::env::temp_dir().join(format!("karst-judge-{}", std::process::id()));
    let result = make(&dir).and_then(|()| check(&dir));
    let removed = fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()));
    result.and(removed)
}

fn expectation_file(dir: &Path, cell: &str) -> PathBuf {
    dir.join(format!("{cell}.expected"))
}

impl Cell {
    fn option_strings(&self) -> Vec<(String, String)> {
        self.families.iter().map(|f| (f.name.to_string(), option_string(f))).collect()
    }

    /// Option string of the database. A close flushes nothing, because the log's tail must stay in
    /// the log.
    fn db_option_string(&self) -> String {
        let mut lines = vec!["avoid_flush_during_shutdown=true".to_string()];
        lines.extend(self.db_options.iter().cloned());
        lines.join(";")
    }

    fn build(&self, path: &Path) -> Result<Expectation, String> {
        let mut random = Random::new(self.name.bytes().fold(11, |h, b| h.wrapping_mul(31) + u64::from(b)));
        let mut probes: Vec<Vec<Vec<u8>>> = vec![Vec::new(); self.families.len()];
        {
            let mut options = options(&self.db_option_string())?;
            options.create_if_missing(true);
            options.create_missing_column_families(true);
            let db = DB::open_cf_descriptors(&options, path, descriptors(&self.option_strings())?)
                .map_err(|e| e.to_string())?;
            for (family, probes) in self.families.iter().zip(&mut probes) {
                let cf = db.cf_handle(family.name).ok_or("the family was just made")?;
                let writer = Writer { db: &db, cf, family, cell: self };
                writer.bulk(&mut random)?;
                writer.newer(path, probes, &mut random)?;
            }
            self.prove_levels(&db)?;
        }
        if self.two_phase {
            self.write_transactions(path)?;
        }
        features::prove(self, path)?;
        let prefixed = self.families.iter().filter(|f| f.prefix.is_some()).map(|f| f.name.to_string());
        let store =
            Rocks::open(path, &self.db_options.join(";"), &self.option_strings(), prefixed.collect())?;
        let inquiries: Vec<Inquiry> = self
            .families
            .iter()
            .zip(probes)
            .map(|(family, probes)| Inquiry {
                column_family: family.name.into(),
                order: family.order,
                prefix: family.prefix,
                probes,
                walks: 48,
            })
            .collect();
        Expectation::record(&store, &inquiries, random.next_u64())
    }

    fn prove_levels(&self, db: &DB) -> Result<(), String> {
        let levels = levels(db, "default")?;
        let filled = levels.iter().filter(|n| **n > 0).count();
        if filled < self.levels || levels[0] < 2 {
            return Err(format!("files per level: {levels:?}; {} levels are wanted", self.levels));
        }
        Ok(())
    }

    /// Writes committed, rolled back and undecided transactions to a log that is not replayed.
    fn write_transactions(&self, path: &Path) -> Result<(), String> {
        let options = options(&self.db_option_string())?;
        let families = descriptors(&self.option_strings())?;
        let db: TransactionDB =
            TransactionDB::open_cf_descriptors(&options, &TransactionDBOptions::default(), path, families)
                .map_err(|e| e.to_string())?;
        for number in 0..30_u64 {
            let transaction = db.transaction_opt(&WriteOptions::default(), &TransactionOptions::default());
            let step = || -> Result<(), rocksdb::Error> {
                transaction.set_name(format!("transaction-{number}").as_bytes())?;
                for key in number * 20..number * 20 + 20 {
                    let key = self.families[0].keys.key(key);
                    if number % 7 == 3 {
                        transaction.delete(&key)?
                    } else {
                        transaction.put(&key, b"decided")?
                    }
                }
                transaction.prepare()
            };
            step().map_err(|e| e.to_string())?;
            match number % 3 {
                0 => transaction.commit(),
                1 => transaction.rollback(),
                // Left prepared. It keeps its locks, so no two transactions use the same key.
                _ => {
                    std::mem::forget(transaction);
                    Ok(())
                }
            }
            .map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// Number of live table files in each level of a family.
fn levels(db: &DB, family: &str) -> Result<Vec<usize>, String> {
    let mut levels = vec![0; 8];
    for file in db.live_files().map_err(|e| e.to_string())? {
        if file.column_family_name == family {
            levels[file.level as usize] += 1;
        }
    }
    Ok(levels)
}

/// One string with all options of a family.
pub(crate) fn option_string(family: &Family) -> String {
    let mut text = family.option_lines().join(";");
    text.push_str(";block_based_table_factory={");
    text.push_str(&family.table.join(";"));
    text.push_str(";}");
    text
}

/// Writes one family of one cell.
struct Writer<'a> {
    db: &'a DB,
    cf: &'a ColumnFamily,
    family: &'a Family,
    cell: &'a Cell,
}

/// Types of write batch records that the C API has no call for.
const ENTITY_RECORD: u8 = 0x16;
const FAMILY_ENTITY_RECORD: u8 = 0x17;
const TIMED_PUT_RECORD: u8 = 0x18;
const FAMILY_TIMED_PUT_RECORD: u8 = 0x19;

impl Writer<'_> {
    /// Writes all keys once, in random order and many batches, and waits for compactions; then
    /// rewrites some until enough levels below L0 hold files for the cell.
    fn bulk(&self, random: &mut Random) -> Result<(), String> {
        let error = |e: rocksdb::Error| e.to_string();
        let mut entries = self.family.entries(0, self.family.bulk, random);
        for version in 10..40 {
            for chunk in entries.chunks(40) {
                self.write(chunk, random)?;
            }
            self.flush()?;
            self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(error)?;
            let filled = levels(self.db, self.family.name)?.iter().skip(1).filter(|n| **n > 0).count();
            if filled + 1 >= self.cell.levels || self.family.name != "default" {
                break;
            }
            entries = self.family.entries(version, self.family.bulk / 5, random);
        }
        self.db.set_options_cf(self.cf, &[("disable_auto_compactions", "true")]).map_err(error)
    }

    /// Writes three L0 files and a log tail, with every operation of the cell.
    fn newer(&self, path: &Path, probes: &mut Vec<Vec<u8>>, random: &mut Random) -> Result<(), String> {
        for version in 1..=4 {
            let count = self.family.bulk / 12;
            for chunk in self.family.entries(version, count, random).chunks(20) {
                self.write(chunk, random)?;
            }
            let mut batch = WriteBatch::default();
            for _ in 0..25 {
                let key = self.family.keys.key(random.below(self.family.bulk));
                batch.delete_cf(self.cf, &key);
                probes.push(key);
            }
            self.commit(batch)?;
            if self.cell.delete_ranges {
                self.delete_ranges(version, probes, random)?;
            }
            if self.cell.single_deletes {
                self.single_deletes(version, probes)?;
            }
            if self.cell.ingest && version == 2 {
                self.ingest(path, random)?;
            }
            if version < 4 {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes puts, some of them replaced by other operations of the cell.
    fn write(&self, entries: &[Entry], random: &mut Random) -> Result<(), String> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            if self.cell.merges && !random.one_in(3) {
                batch.merge_cf(self.cf, key, value);
            } else if self.cell.entities && random.one_in(2) {
                self.commit(std::mem::take(&mut batch))?;
                let columns = columns_of(value, random);
                self.commit(self.raw_batch(
                    ENTITY_RECORD,
                    FAMILY_ENTITY_RECORD,
                    key,
                    &encode_entity(&columns),
                ))?;
            } else if self.cell.timed_puts && random.one_in(2) {
                self.commit(std::mem::take(&mut batch))?;
                let mut timed = value.clone();
                timed.extend_from_slice(&1_700_000_000_u64.to_le_bytes());
                self.commit(self.raw_batch(TIMED_PUT_RECORD, FAMILY_TIMED_PUT_RECORD, key, &timed))?;
            } else {
                batch.put_cf(self.cf, key, value);
            }
        }
        self.commit(batch)
    }

    fn commit(&self, batch: WriteBatch) -> Result<(), String> {
        self.db.write(batch).map_err(|e| e.to_string())
    }

    fn flush(&self) -> Result<(), String> {
        self.db.flush_cf(self.cf).map_err(|e| e.to_string())
    }

    fn delete_ranges(
        &self,
        version: u64,
        probes: &mut Vec<Vec<u8>>,
        random: &mut Random,
    ) -> Result<(), String> {
        let mut batch = WriteBatch::default();
        for width in [1, 10, 50, 400] {
            let width = width.min(self.family.bulk / 4);
            let from = random.below(self.family.bulk - width);
            let mut ends = [self.family.keys.key(from), self.family.keys.key(from + width)];
            ends.sort_by(|a, b| self.family.order.compare(a, b));
            // A wide range of ragged keys can span all keys, so it is deleted only once.
            if width == 400 && version != 2 {
                continue;
            }
            batch.delete_range_cf(self.cf, &ends[0], &ends[1]);
            probes.extend(ends);
        }
        self.commit(batch)
    }

    /// Writes keys that are put once each, because a single delete is defined only for these.
    fn single_deletes(&self, version: u64, probes: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let own = |i: u64| [b"single/".as_slice(), &self.family.keys.key(i)].concat();
        let mut batch = WriteBatch::default();
        for i in 0..60 {
            batch.put_cf(self.cf, own(version * 100 + i), b"once");
            // Half of the last version's keys and a few of this one's are deleted, in another file
            // than the put and in the same.
            if i % 2 == 0 && version > 1 {
                batch.single_delete_cf(self.cf, own((version - 1) * 100 + i));
                probes.push(own((version - 1) * 100 + i));
            } else if i % 9 == 1 {
                batch.single_delete_cf(self.cf, own(version * 100 + i));
                probes.push(own(version * 100 + i));
            }
        }
        self.commit(batch)
    }

    /// Ingests a file, whose keys get their sequence number from the MANIFEST.
    fn ingest(&self, path: &Path, random: &mut Random) -> Result<(), String> {
        let mut entries = self.family.entries(9, self.family.bulk / 10, random);
        entries.sort_by(|a, b| self.family.order.compare(&a.0, &b.0));
        entries.dedup_by(|a, b| a.0 == b.0);
        let options = options(&option_string(self.family))?;
        let file = path.with_extension("ingest.sst");
        let error = |e: rocksdb::Error| e.to_string();
        let mut writer = SstFileWriter::create(&options);
        writer.open(&file).map_err(error)?;
        for (key, value) in &entries {
            writer.put(key, value).map_err(error)?;
        }
        writer.finish().map_err(error)?;
        let mut how = IngestExternalFileOptions::default();
        how.set_move_files(true);
        self.db.ingest_external_file_cf_opts(self.cf, &how, vec![&file]).map_err(error)?;
        // Errors are ignored, because ingestion moved or copied the file.
        let _ = fs::remove_file(&file);
        Ok(())
    }

    /// Encodes a batch of one record: header (sequence, count), type, column family, key, value.
    fn raw_batch(&self, record: u8, family_record: u8, key: &[u8], value: &[u8]) -> WriteBatch {
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        let id = self.cell.families.iter().position(|f| f.name == self.family.name).unwrap_or_default();
        if id == 0 {
            bytes.push(record);
        } else {
            bytes.push(family_record);
            put_varint(&mut bytes, id as u64);
        }
        put_varint(&mut bytes, key.len() as u64);
        bytes.extend_from_slice(key);
        put_varint(&mut bytes, value.len() as u64);
        bytes.extend_from_slice(value);
        WriteBatch::from_data(&bytes)
    }
}

/// Draws columns sorted by name; the default column's name is empty, and it may be missing.
fn columns_of(value: &[u8], random: &mut Random) -> Vec<Entry> {
    let mut columns = Vec::new();
    if !random.one_in(4) {
        columns.push((Vec::new(), value.to_vec()));
    }
    columns.push((b"colour".to_vec(), b"grey".to_vec()));
    if random.one_in(2) {
        columns.push((b"origin".to_vec(), random.bytes(30)));
    }
    columns
}

/// Encodes an entity, version 1: count, then each column's name and value length, then all values.
fn encode_entity(columns: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, 1);
    put_varint(&mut bytes, columns.len() as u64);
    for (name, value) in columns {
        put_varint(&mut bytes, name.len() as u64);
        bytes.extend_from_slice(name);
        put_varint(&mut bytes, value.len() as u64);
    }
    columns.iter().for_each(|(_, value)| bytes.extend_from_slice(value));
    bytes
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
