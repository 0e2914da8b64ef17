//! Column families whose keys have user-defined timestamps: KarstDB and RocksDB 11.8 write to one
//! database in turns, and after each turn both engines' reads, at many timestamps and by every
//! call, must agree with a model.
//!
//! A turn has random puts, deletions and single deletions at ascending or equal timestamps,
//! flushes, compactions, trimmed history, and a tail that stays in the log. The output is the seed,
//! which `--seed` repeats, and the number of compared rows.

mod karst;
pub(crate) mod lockstep;
mod model;
mod order;
mod rocks;

use karst::Karst;
use karst_testkit::random::Random;
use model::{Model, Store, check};
use order::Order;
use rocks::Rocks;
use std::path::{Path, PathBuf};

/// Number of turns.
const TURNS: u64 = 8;
/// Number of steps of one turn.
const STEPS: usize = 50;
const KEYS: u64 = 48;

/// A column family of a cell.
#[derive(Clone, Debug)]
struct Family {
    name: &'static str,
    order: Order,
    options: String,
}

impl Family {
    /// True if history may be trimmed. With blob files RocksDB 11.8 then changes the timestamps
    /// under which blobs are stored, and cannot read those blobs any more.
    fn may_forget(&self) -> bool {
        self.order != Order::Plain && !self.options.contains("enable_blob_files")
    }
}

struct Cell {
    name: &'static str,
    db_options: &'static str,
    families: Vec<Family>,
}

/// One operation.
#[derive(Clone, Debug)]
struct Write {
    family: usize,
    key: Vec<u8>,
    /// Timestamp; ignored in a family without timestamps.
    at: u64,
    /// The value; None for a deletion.
    value: Option<Vec<u8>>,
    /// True for a single deletion.
    single: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Write>),
    Flush(usize),
    Compact {
        family: usize,
        low: Option<u64>,
        range: Option<(Vec<u8>, Vec<u8>)>,
        force: bool,
    },
    /// Sets the `full_history_ts_low` of a family.
    Raise(usize, u64),
}

trait Writer {
    fn apply(&mut self, step: &Step) -> Result<(), String>;
    fn store(&self) -> &dyn Store;
    fn close(self: Box<Self>) -> Result<(), String>;
}

fn cells() -> Vec<Cell> {
    let small = "write_buffer_size=65536;target_file_size_base=8192;max_bytes_for_level_base=32768;level0_file_num_compaction_trigger=3;compression=kNoCompression";
    let family = |name, order, more: &str, table: &str| Family {
        name,
        order,
        options: [small, more, &format!("block_based_table_factory={{block_size=256;{table};}}")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(";"),
    };
    let bloom = "filter_policy=bloomfilter:10:false";
    let plain = || family("plain", Order::Plain, "", bloom);
    let cell = |name, db_options, families| Cell { name, db_options, families };
    vec![
        cell(
            "built-in",
            "",
            vec![
                family("default", Order::U64, "", bloom),
                plain(),
                family("reverse", Order::ReverseU64, "", "filter_policy=ribbonfilter:10:0"),
            ],
        ),
        cell(
            "partitioned",
            "wal_compression=kZSTD",
            vec![
                family("default", Order::Plain, "", bloom),
                family(
                    "two-level",
                    Order::U64,
                    "compression=kLZ4Compression",
                    "filter_policy=bloomfilter:10:false;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=128;format_version=5",
                ),
                family(
                    "reverse",
                    Order::ReverseU64,
                    "",
                    "filter_policy=ribbonfilter:10:0;index_type=kTwoLevelIndexSearch;partition_filters=true;decouple_partitioned_filters=true;metadata_block_size=128;format_version=7;cache_index_and_filter_blocks=true",
                ),
            ],
        ),
        cell(
            "blobs",
            "",
            vec![
                family(
                    "default",
                    Order::U64,
                    "enable_blob_files=true;min_blob_size=60;blob_file_size=8192;enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1",
                    bloom,
                ),
                plain(),
            ],
        ),
        cell(
            "tables",
            "recycle_log_file_num=2;track_and_verify_wals=true",
            vec![
                family(
                    "default",
                    Order::U64,
                    "prefix_extractor=rocksdb.FixedPrefix.3;memtable_prefix_bloom_size_ratio=0.1;memtable_whole_key_filtering=true",
                    "filter_policy=bloomfilter:10:false;data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0.75;format_version=7",
                ),
                family(
                    "first-keys",
                    Order::U64,
                    "",
                    "filter_policy=ribbonfilter:10:1;index_type=kBinarySearchWithFirstKey;index_shortening=kNoShortening;format_version=5",
                ),
                family(
                    "reverse",
                    Order::ReverseU64,
                    "",
                    "index_shortening=kShortenSeparatorsAndSuccessor;index_block_restart_interval=4;format_version=2",
                ),
            ],
        ),
        cell(
            "universal",
            "",
            vec![
                family(
                    "default",
                    Order::U64,
                    "compaction_style=kCompactionStyleUniversal;compression=kZSTD",
                    bloom,
                ),
                family("subcompactions", Order::U64, "memtable_protection_bytes_per_key=8", bloom),
            ],
        ),
        cell(
            "users-own",
            "",
            vec![
                family("default", Order::Short, "", bloom),
                family(
                    "long",
                    Order::Long,
                    "",
                    "filter_policy=bloomfilter:10:false;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=128",
                ),
                plain(),
            ],
        ),
    ]
}

/// Runs the command with `--seed S` and `--cell NAME`.
pub(crate) fn run(args: &[&str]) -> Result<(), String> {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let (mut seed, mut only) = (clock.map_or(1, |since| since.as_nanos() as u64 % 1_000_000), None);
    for pair in args.chunks(2) {
        match pair {
            ["--seed", text] => seed = text.parse().map_err(|e| format!("--seed {text}: {e}"))?,
            ["--cell", name] => only = Some(*name),
            _ => return Err(format!("timestamps takes --seed S and --cell NAME, not {}", pair.join(" "))),
        }
    }
    println!("timestamps: seed {seed}");
    let folder = std::env::temp_dir().join(format!("karst-judge-timestamps-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut failures = Vec::new();
    for cell in cells().into_iter().filter(|cell| only.is_none_or(|only| only == cell.name)) {
        match Duel::new(&cell, &folder, seed).fight() {
            Ok(rows) => println!("timestamps {:16} {rows} rows", cell.name),
            Err(e) => {
                eprintln!("FAILED timestamps {}: {e}", cell.name);
                failures.push(format!("cell {}: {e}", cell.name));
            }
        }
    }
    if failures.is_empty() {
        return std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()));
    }
    let (failures, folder) = (failures.join("\n"), folder.display());
    Err(format!("{failures}\nseed {seed}; the databases are left in {folder}"))
}

/// One cell.
struct Duel<'a> {
    cell: &'a Cell,
    path: PathBuf,
    models: Vec<Model>,
    random: Random,
    seed: u64,
}

impl<'a> Duel<'a> {
    fn new(cell: &'a Cell, folder: &Path, seed: u64) -> Self {
        let models = vec![Model::default(); cell.families.len()];
        let random = Random::new(cell.name.bytes().fold(seed, |h, b| h.wrapping_mul(31) + u64::from(b)));
        Duel { cell, path: folder.join(cell.name), models, random, seed }
    }

    fn fight(mut self) -> Result<usize, String> {
        let mut rows = 0;
        for turn in 0..TURNS {
            rows += self.turn(turn).map_err(|e| format!("turn {turn}: {e}"))?;
        }
        std::fs::remove_dir_all(&self.path).map_err(|e| format!("{}: {e}", self.path.display()))?;
        Ok(rows)
    }

    fn turn(&mut self, turn: u64) -> Result<usize, String> {
        let families = &self.cell.families;
        let options = format!(
            "create_if_missing=true;create_missing_column_families=true;avoid_flush_during_shutdown=true;max_subcompactions=2;{}",
            self.cell.db_options
        );
        let mut writer: Box<dyn Writer> = match turn % 2 {
            0 => Box::new(Rocks::open(&self.path, &options, families)?),
            _ => Box::new(Karst::open(&self.path, &options, families)?),
        };
        let said = |store: &dyn Store, e: String| format!("{} writes: {e}", store.name());
        for number in 0..STEPS {
            let step = self.step();
            writer.apply(&step).map_err(|e| said(writer.store(), format!("{step:?}: {e}")))?;
            if number % 20 == 19 {
                check(writer.store(), families, &self.models, self.seed + turn)
                    .map_err(|e| said(writer.store(), format!("step {number}: {e}")))?;
            }
        }
        for _ in 0..3 {
            let step = self.batch();
            writer.apply(&step).map_err(|e| said(writer.store(), format!("{step:?}: {e}")))?;
        }
        let (seed, of_writer) = (self.seed + turn, writer.store().name());
        writer.close()?;
        let after = |e: String| format!("after {of_writer}: {e}");
        let rocks = Rocks::open_read_only(&self.path, &options, families).map_err(after)?;
        let told_by_rocks = check(&rocks, families, &self.models, seed).map_err(after)?;
        drop(rocks);
        let karst = Karst::open_read_only(&self.path, families).map_err(after)?;
        let told_by_karst = check(&karst, families, &self.models, seed).map_err(after)?;
        // The rows also hold sequence numbers, kinds and trimmed timestamps, which the model does
        // not know.
        match told_by_rocks.iter().zip(&told_by_karst).find(|(a, b)| a != b) {
            None => Ok(told_by_rocks.len()),
            Some((rocks, karst)) => Err(after(format!("RocksDB shows {rocks:?}, KarstDB {karst:?}"))),
        }
    }

    /// Draws the next step and applies it to the models.
    fn step(&mut self) -> Step {
        let family = self.random.index(self.models.len());
        let Family { order, .. } = self.cell.families[family];
        let may_forget = self.cell.families[family].may_forget();
        match self.random.below(16) {
            0 | 1 => Step::Flush(family),
            2 => {
                let raise = may_forget && self.random.one_in(2);
                let low = if raise { Some(self.raise(family)) } else { None };
                Step::Compact { family, low, range: None, force: self.random.one_in(2) }
            }
            3 => {
                let (a, b) = (self.key(), self.key());
                let range = if order.compare(&a, &b).is_le() { (a, b) } else { (b, a) };
                Step::Compact { family, low: None, range: Some(range), force: false }
            }
            4 if may_forget => Step::Raise(family, self.raise(family)),
            _ => self.batch(),
        }
    }

    /// Raises the model's `full_history_ts_low` of a family and returns it.
    fn raise(&mut self, family: usize) -> u64 {
        let model = &mut self.models[family];
        let low = model.low.unwrap_or_default();
        let raised = low + 1 + self.random.below((model.latest.saturating_sub(low) / 3).max(1));
        model.low = Some(raised);
        raised
    }

    fn key(&mut self) -> Vec<u8> {
        let i = self.random.below(KEYS);
        match i % 4 {
            // The empty key, keys that are prefixes of others, and keys that end like timestamps.
            0 if i == 0 => Vec::new(),
            0 => format!("k{i}").into_bytes(),
            1 => format!("key{i:04}").into_bytes(),
            2 => [b"key", &[0xff; 9][..], &i.to_be_bytes()].concat(),
            _ => [b"key".as_slice(), &[0; 5], &i.to_le_bytes()].concat(),
        }
    }

    fn batch(&mut self) -> Step {
        let count = 1 + self.random.below(12);
        let mut writes = Vec::new();
        for _ in 0..count {
            let (family, key) = (self.random.index(self.models.len()), self.key());
            let model = &mut self.models[family];
            // These keys are only ever put once between single deletions. The deletion is later
            // than the put, because at equal timestamps RocksDB 11.8 drops the put, and then pairs
            // the remaining deletion with an earlier one and drops it although it may be read.
            let single = key.len() % 3 == 0;
            let (at, removes) = match self.cell.families[family].order {
                Order::Plain => (0, self.random.one_in(4)),
                // Timestamps of a key never descend.
                _ => {
                    let begun = model.latest_of(&key).max(model.low.unwrap_or_default());
                    (begun + u64::from(single) + self.random.below(3), self.random.one_in(4))
                }
            };
            let removes = if single { model.holds(&key) } else { removes };
            let value = (!removes).then(|| {
                let length = self.random.index(140);
                [at.to_string().into_bytes(), b"-".to_vec(), self.random.bytes(length)].concat()
            });
            model.write(&key, at, value.clone());
            writes.push(Write { family, key, at, value, single });
        }
        Step::Write(writes)
    }
}
