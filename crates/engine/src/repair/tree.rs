//! Builds a tree from tables whose levels are unknown.
//!
//! In: tables of a family, each with its range of keys and of sequence numbers. Out: the level of
//! each; some are merged first.
//!
//! A read takes the first entry of its key that it finds, from L0's newest table down. Of two
//! tables that share keys, the one searched first must therefore have the newer entries of each of
//! these keys. This holds if all sequence numbers in one table are larger than all in another: the
//! newest tables that are separated from all others in this way go to L0. For the rest only the
//! entries show which are newer. Tables that share no key with another lie side by side in the last
//! level; those that share keys are merged into a sorted run, which lies there too.
//!
//! Compat: RocksDB's repair puts all tables into L0, ordered by their largest sequence numbers, and
//! so may find an older entry first. Its releases before 7.9 refuse such an L0.
//!
//! An entry that is in two tables with one sequence number is taken once. If a compaction has
//! merged an operand into a value in one of them, the value is taken.

use super::tables::{Examined, References};
use crate::compact::inputs;
use crate::ingest::{Numbers, TargetSize};
use crate::read::iter::job_input::{InputOptions, JobInput};
use karst_base::error::Result;
use karst_base::options::{CompactionStyle, DbOptions, FamilyConfig};
use karst_base::stats::{Statistics, StatsLevel};
use karst_format::comparator::Comparator;
use karst_format::ids::Level;
use karst_format::key::{self, ValueType};
use karst_format::version_edit::NewFile;
use karst_io::{Env, block_on};
use karst_lsm::FileMetadata;
use karst_lsm::pick::CompactionInput;
use karst_storage::file_checksum::FileChecksumGenFactory;
use karst_storage::table::cache::TableCache;
use karst_storage::table::writer::{Identity, Outputs, RunFiles, RunWriter, TablePlace, writer_options};
use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes read ahead of each table.
const READAHEAD_BYTES: u64 = 1 << 20;

/// Placement of a family's tables.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Tables for L0, newest first.
    pub(super) level0: Vec<Examined>,
    /// Tables for the last level that share no keys with each other or with merged tables.
    pub(super) apart: Vec<Examined>,
    /// Groups of tables to merge, each into its own run.
    pub(super) groups: Vec<Vec<Examined>>,
}

impl Plan {
    /// Computes the placement. With `one_level` L0 is the only level, and tables not separated by
    /// sequence numbers are merged into one.
    pub(super) fn of(comparator: &Comparator, mut tables: Vec<Examined>, one_level: bool) -> Plan {
        tables.sort_by_key(|table| {
            let file = &table.file;
            (Reverse(file.largest_seq), Reverse(file.smallest_seq), Reverse(file.number))
        });
        let is_apart = |pair: &[Examined]| pair[0].file.smallest_seq > pair[1].file.largest_seq;
        let mut newest = tables.windows(2).take_while(|pair| is_apart(pair)).count();
        if newest + 1 == tables.len() {
            newest += 1;
        }
        let mut older = tables.split_off(newest);
        let mut plan = Plan { level0: tables, ..Plan::default() };
        if one_level && !older.is_empty() {
            plan.groups.push(older);
            return plan;
        }
        older.sort_by(|a, b| comparator.compare_user(a.smallest(), b.smallest()));
        let mut group: Vec<Examined> = Vec::new();
        let mut reach: Vec<u8> = Vec::new();
        for table in older {
            // Tables that only touch are merged too, because all versions of a key are in one table
            // of a level.
            let touches = !group.is_empty() && comparator.compare_user(table.smallest(), &reach).is_le();
            if !touches {
                plan.close(std::mem::take(&mut group));
                reach.clear();
            }
            if group.is_empty() || comparator.compare_user(table.largest(), &reach).is_gt() {
                table.largest().clone_into(&mut reach);
            }
            group.push(table);
        }
        plan.close(group);
        plan
    }

    fn close(&mut self, mut group: Vec<Examined>) {
        match group.len() {
            0 => {}
            1 => self.apart.append(&mut group),
            _ => self.groups.push(group),
        }
    }
}

/// Returns the last level that a family may use.
pub(super) fn last_level(db: &DbOptions, config: &FamilyConfig) -> Level {
    let options = &config.options;
    if options.compaction_style == CompactionStyle::Fifo {
        return Level(0);
    }
    let reserved = i32::from(db.allow_ingest_behind || options.cf_allow_ingest_behind);
    Level((options.num_levels - 1 - reserved).clamp(0, i32::from(u8::MAX)) as u8)
}

/// Inputs of a merge besides the tables.
#[derive(Debug)]
pub(super) struct Merging<'a> {
    pub(super) env: &'a Env,
    pub(super) db_options: &'a DbOptions,
    pub(super) file_checksums: Option<Arc<dyn FileChecksumGenFactory>>,
    pub(super) config: &'a Arc<FamilyConfig>,
    pub(super) tables: &'a Arc<TableCache>,
    pub(super) identity: &'a Arc<Identity>,
    pub(super) numbers: &'a Numbers,
    pub(super) directory: PathBuf,
    pub(super) level: Level,
}

/// The resulting tree of a family.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) files: Vec<(Level, NewFile)>,
    /// Blobs that the tables refer to.
    pub(super) references: References,
    /// Number of tables merged into others.
    pub(super) merged: u64,
}

impl Merging<'_> {
    /// Executes a plan. The tables that it writes are durable except for their names.
    ///
    /// # Errors
    /// A table cannot be read or written. Tables already written stay, unreferenced.
    pub(super) fn carry_out(&self, plan: Plan) -> Result<Tree> {
        let mut tree = Tree::default();
        let reserved =
            u64::from(self.db_options.allow_ingest_behind || self.config.options.cf_allow_ingest_behind);
        let mut epoch = 1 + reserved;
        for group in &plan.groups {
            let files = block_on(self.env, self.merge(group, epoch))?;
            tree.merged += group.len() as u64;
            tree.files.extend(files.tables.into_iter().map(|table| (self.level, table.file)));
        }
        for table in &plan.apart {
            let file = NewFile { epoch_number: epoch, ..table.file.clone() };
            tree.files.push((self.level, file));
        }
        for table in plan.level0.iter().rev() {
            epoch += 1;
            tree.files.push((Level(0), NewFile { epoch_number: epoch, ..table.file.clone() }));
        }
        let all = plan.level0.iter().chain(&plan.apart).chain(plan.groups.iter().flatten());
        for (number, (count, bytes)) in all.flat_map(|table| &table.references) {
            let sum = tree.references.entry(*number).or_default();
            *sum = (sum.0 + count, sum.1.saturating_add(*bytes));
        }
        Ok(tree)
    }

    async fn merge(&self, group: &[Examined], epoch: u64) -> Result<RunFiles> {
        let files: Vec<_> =
            group.iter().map(|table| Arc::new(FileMetadata::new(table.file.clone()))).collect();
        let inputs = [CompactionInput { level: Level(0), files }];
        let facts = inputs::look_at(self.tables, &inputs).await?;
        let newest = inputs[0].files.iter().map(|file| file.newest_key_time_s()).max();
        let oldest = group.iter().map(|table| table.file.oldest_ancestor_time_s).filter(|time| *time > 0);
        // Written without blob files, because a merged table must hold all its values itself, in
        // case the repair is interrupted and started again.
        let mut config = FamilyConfig::clone(self.config);
        config.options.enable_blob_files = false;
        let options = &self.config.options;
        let outputs = Outputs {
            env: self.env.clone(),
            config: Arc::new(config),
            identity: self.identity.clone(),
            new_files: Arc::new(self.numbers.clone()),
            table_directory: self.directory.clone(),
            path_id: 0,
            temperature: Default::default(),
            blob_directory: self.directory.clone(),
            place: TablePlace::in_level(self.level.index()),
            epoch,
            oldest_ancestor_time_s: oldest.min().unwrap_or(0),
            oldest_key_time_s: 0,
            newest_key_time_s: newest.unwrap_or(0),
            throttle: None,
            writing: writer_options(self.db_options),
            warming: None,
            blob_warming: None,
            memory: None,
            file_checksums: self.file_checksums.clone(),
            creations: None,
            space: None,
            stats: Arc::new(Statistics::new(StatsLevel::DisableAll)),
        };
        let target = if self.level == Level(0) { u64::MAX } else { options.target_file_size_base };
        let mut writer = RunWriter::new(outputs, TargetSize(target), facts.tombstones, (None, None))?;
        let reading = InputOptions {
            readahead_bytes: READAHEAD_BYTES,
            verify_checksums: true,
            lower: None,
            upper: None,
        };
        let mut input = JobInput::new(self.tables.clone(), &[], &inputs, reading);
        // The previous entry, which is not written yet.
        let mut held: Option<(Vec<u8>, Vec<u8>)> = None;
        input.start().await?;
        while input.valid() {
            let (internal_key, value) = input.entry();
            let is_same = held.as_ref().is_some_and(|(held, _)| is_one_write(held, internal_key));
            if !is_same && let Some((held_key, held_value)) = held.take() {
                writer.add(&held_key, &held_value)?;
            }
            // Takes the later entry if the first is an operand, because that entry is its merged
            // result.
            if !is_same || held.as_ref().is_some_and(|(held, _)| is_operand(held)) {
                held = Some((internal_key.to_vec(), value.to_vec()));
            }
            if writer.needs_room() {
                writer.make_room().await?;
            }
            if !input.advance()? {
                input.arrive().await?;
            }
        }
        if let Some((held_key, held_value)) = held {
            writer.add(&held_key, &held_value)?;
        }
        Ok(writer.finish().await?.0)
    }
}

/// Returns true if two entries come from one write: equal key and sequence number.
fn is_one_write(a: &[u8], b: &[u8]) -> bool {
    let ((a_key, a_trailer), (b_key, b_trailer)) = (key::split(a), key::split(b));
    a_key == b_key && a_trailer >> 8 == b_trailer >> 8
}

fn is_operand(internal_key: &[u8]) -> bool {
    key::split(internal_key).1 as u8 == ValueType::Merge as u8
}
