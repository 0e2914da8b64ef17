//! Column families with timestamps in lockstep: both engines take the same steps, each in a
//! directory of its own and with options drawn anew for each life, both are read as the turns are,
//! and the directories are swapped at each reopening.

use super::karst::Karst;
use super::model::{Model, check};
use super::order::Order;
use super::rocks::Rocks;
use super::{Cell, Duel, Family, Step, Writer};
use karst_testkit::random::Random;
use std::path::{Path, PathBuf};

/// Lives of one database.
const LIVES: u64 = 6;
/// Steps of one life, at most.
const STEPS: u64 = 60;
/// Steps from one comparison of all reads to the next.
const STEPS_UNREAD: u64 = 15;
const ORDERS: &[Order] =
    &[Order::U64, Order::U64, Order::ReverseU64, Order::Short, Order::Long, Order::Plain];

/// Order and options that a family keeps for all its lives.
struct Nature {
    name: &'static str,
    order: Order,
    style: &'static str,
    blobs: &'static str,
}

impl Nature {
    fn draw(name: &'static str, random: &mut Random) -> Self {
        let universal = "compaction_style=kCompactionStyleUniversal;num_levels=5";
        let style = if random.one_in(3) { universal } else { "num_levels=4" };
        let in_files = "enable_blob_files=true;min_blob_size=60;blob_file_size=8192;enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=1";
        let blobs = if random.one_in(4) { in_files } else { "min_blob_size=0" };
        Nature { name, order: ORDERS[random.index(ORDERS.len())], style, blobs }
    }

    /// Draws the options of one life.
    fn family(&self, random: &mut Random) -> Family {
        let mut one_of = |all: &[&'static str]| all[random.index(all.len())];
        let family = [
            "target_file_size_base=8192;max_bytes_for_level_base=32768",
            one_of(&["write_buffer_size=65536", "write_buffer_size=20000"]),
            one_of(&["level0_file_num_compaction_trigger=2", "level0_file_num_compaction_trigger=4"]),
            one_of(&["compression=kNoCompression", "compression=kLZ4Compression", "compression=kZSTD"]),
            one_of(&["memtable_prefix_bloom_size_ratio=0", "memtable_prefix_bloom_size_ratio=0.1"]),
            one_of(&["memtable_whole_key_filtering=true", "memtable_whole_key_filtering=false"]),
            one_of(&["memtable_protection_bytes_per_key=0", "memtable_protection_bytes_per_key=8"]),
            one_of(&["max_sequential_skip_in_iterations=8", "max_sequential_skip_in_iterations=100"]),
            one_of(&["min_write_buffer_number_to_merge=1", "min_write_buffer_number_to_merge=2"]),
            one_of(&["paranoid_file_checks=false", "paranoid_file_checks=true"]),
            self.style,
            self.blobs,
        ];
        let table = [
            "metadata_block_size=128",
            one_of(&["block_size=256", "block_size=1024"]),
            one_of(&["block_restart_interval=16", "block_restart_interval=1"]),
            one_of(&[
                "filter_policy=bloomfilter:10:false",
                "filter_policy=ribbonfilter:10:0",
                "whole_key_filtering=true",
            ]),
            one_of(&[
                "index_type=kBinarySearch",
                "index_type=kBinarySearchWithFirstKey",
                "index_type=kTwoLevelIndexSearch;partition_filters=true",
                "index_type=kTwoLevelIndexSearch;partition_filters=true;decouple_partitioned_filters=true",
            ]),
            one_of(&[
                "index_shortening=kNoShortening",
                "index_shortening=kShortenSeparators",
                "index_shortening=kShortenSeparatorsAndSuccessor",
            ]),
            one_of(&["format_version=2", "format_version=5", "format_version=7"]),
            one_of(&["cache_index_and_filter_blocks=true", "cache_index_and_filter_blocks=false"]),
            one_of(&["checksum=kXXH3", "checksum=kCRC32c"]),
        ];
        let options = format!("{};block_based_table_factory={{{};}}", family.join(";"), table.join(";"));
        Family { name: self.name, order: self.order, options }
    }
}

/// One life of both databases. Returns the number of rows that were compared.
fn live(duel: &mut Duel<'_>, paths: &[PathBuf; 2], db_options: &str) -> Result<usize, String> {
    let families = &duel.cell.families;
    let mut writers: [Box<dyn Writer>; 2] = [
        Box::new(Karst::open(&paths[0], db_options, families)?),
        Box::new(Rocks::open(&paths[1], db_options, families)?),
    ];
    let (mut rows, steps) = (0, 10 + duel.random.below(STEPS));
    for number in 1..=steps {
        let step = if number + 3 > steps { duel.batch() } else { duel.step() };
        let told = |name: String, e: String| format!("step {number}, {name}, {step:?}: {e}");
        for writer in &mut writers {
            writer.apply(&step).map_err(|e| told(writer.store().name(), e))?;
        }
        refused(duel, &mut writers)?;
        if number % STEPS_UNREAD != 0 && number != steps {
            continue;
        }
        for writer in &writers {
            let read = check(writer.store(), families, &duel.models, duel.seed + number);
            rows += read.map_err(|e| told(writer.store().name(), e))?.len();
        }
    }
    for writer in writers {
        writer.close()?;
    }
    Ok(rows)
}

/// Now and then asks both for a lower `full_history_ts_low`, which both must refuse.
fn refused(duel: &mut Duel<'_>, writers: &mut [Box<dyn Writer>; 2]) -> Result<(), String> {
    let family = duel.random.index(duel.models.len());
    let low = duel.models[family].low.and_then(|low| low.checked_sub(1));
    let Some(low) = low.filter(|_| duel.random.one_in(8)) else { return Ok(()) };
    for writer in writers {
        if writer.apply(&Step::Raise(family, low)).is_ok() {
            return Err(format!("{} lowers full_history_ts_low to {low}", writer.store().name()));
        }
    }
    Ok(())
}

/// Runs the lives of one database, and returns the number of rows that were compared.
pub(crate) fn run(seed: u64, folder: &Path) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let natures = ["default", "second", "third"].map(|name| Nature::draw(name, &mut random));
    let mut paths = ["a", "b"].map(|name| folder.join(name));
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (mut models, mut rows) = (vec![Model::default(); natures.len()], 0);
    for life in 0..LIVES {
        let families = natures.iter().map(|nature| nature.family(&mut random)).collect();
        let cell = Cell { name: "lockstep", db_options: "", families };
        let db_options = "create_if_missing=true;create_missing_column_families=true;max_subcompactions=2;";
        let flush = ["avoid_flush_during_shutdown=true", "avoid_flush_during_shutdown=false"];
        let db_options = format!("{db_options}{}", flush[random.index(2)]);
        let mut duel = Duel { cell: &cell, path: folder.to_owned(), models, random, seed: seed + life };
        let compared = live(&mut duel, &paths, &db_options);
        let told = |e: String| format!("life {life}: {e}\nfamilies: {:#?}", cell.families);
        rows += compared.map_err(told)?;
        (models, random) = (duel.models, duel.random);
        paths.reverse();
    }
    std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(rows)
}
