//! Opening the database that a benchmark reads, or making a small one.
//!
//! In: flags. Out: a [`Bench`]; a database that was made here goes with it.

use super::flags::Flags;
use super::key::{Keys, Random};
use karst_engine::perf_context::{self, PerfLevel};
use karst_engine::{BulkLoader, ColumnFamily, Db, Options, ReadOptions, Statistics, StatsLevel};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The database under test.
pub(crate) struct Bench {
    pub(crate) db: Db,
    pub(crate) families: Vec<ColumnFamily>,
    path: PathBuf,
    made: bool,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.made {
            // Why no complaint: a directory that stays behind in the temporary folder harms nobody.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Open what `--db` names, or a small database made for this run.
pub(crate) fn open(flags: &Flags) -> Result<Bench, String> {
    let made = flags.db.is_empty();
    let path = if made {
        make(flags)?
    } else {
        if !flags.use_existing_db {
            return Err(
                "--db without --use_existing_db=true would make a new database there; KarstDB's bench only reads ones that exist"
                    .into(),
            );
        }
        PathBuf::from(&flags.db)
    };
    let db = Db::open_read_only(&path, &options(flags)?).map_err(|e| e.to_string())?;
    let mut families = vec![db.default_column_family().clone()];
    for number in 1..flags.num_column_families {
        let name = format!("column_family_name_{number:06}");
        let family = db.column_family(&name);
        families.push(family.ok_or_else(|| format!("{}: there is no column family {name}", path.display()))?);
    }
    Ok(Bench { db, families, path, made })
}

/// The options of the database: its own OPTIONS file, changed by the flags that were given.
fn options(flags: &Flags) -> Result<Options, String> {
    let cache_bytes = if flags.cache_size < 0 { 8 << 20 } else { flags.cache_size };
    let mut options = Options::new().block_cache_bytes(cache_bytes as usize);
    if flags.statistics {
        options = options.statistics(Arc::new(Statistics::new(StatsLevel::ExceptDetailedTimers)));
    }
    let (open_files, direct) = (flags.open_files, flags.use_direct_reads);
    options = options.db(move |db| {
        db.max_open_files = open_files;
        db.use_direct_reads = direct;
    });
    let f = flags.clone();
    options = options.column_families(move |family| {
        let table = &mut family.table_factory.block_based;
        table.cache_index_and_filter_blocks = f.cache_index_and_filter_blocks;
        table.pin_l0_filter_and_index_blocks_in_cache = f.pin_l0_filter_and_index_blocks_in_cache;
        table.pin_top_level_index_and_filter = f.pin_top_level_index_and_filter;
    });
    if flags.prefix_size > 0 {
        let extractor = format!("fixed:{}", flags.prefix_size);
        options = options.set("prefix_extractor", &extractor).map_err(|e| e.to_string())?;
    }
    if !flags.merge_operator.is_empty() {
        options = options.set("merge_operator", &flags.merge_operator).map_err(|e| e.to_string())?;
    }
    Ok(options)
}

/// The options of each read.
pub(crate) fn read_options(flags: &Flags) -> ReadOptions {
    ReadOptions {
        verify_checksums: flags.verify_checksum,
        total_order_seek: flags.total_order_seek,
        prefix_same_as_start: flags.prefix_same_as_start,
        auto_prefix_mode: flags.auto_prefix_mode,
        readahead_size: flags.readahead_size as usize,
        adaptive_readahead: flags.adaptive_readahead,
        async_io: flags.async_io,
        optimize_multiget_for_io: flags.optimize_multiget_for_io,
        ..ReadOptions::default()
    }
}

/// This thread's perf context, as `--perf_level` has it.
pub(crate) fn set_perf_level(flags: &Flags) {
    perf_context::set_level(match flags.perf_level {
        i32::MIN..=1 => PerfLevel::Disable,
        2 => PerfLevel::EnableCount,
        _ => PerfLevel::EnableTime,
    });
    perf_context::reset();
}

pub(crate) fn clock_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
}

/// How many keys lie on each level of a database made here, in 64ths: a tree that has been compacted, as most are.
const LEVEL_SHARES: [(usize, u64); 3] = [(3, 58), (2, 5), (0, 1)];

/// Make a database of `--num` keys in a fresh temporary directory, on several levels.
fn make(flags: &Flags) -> Result<PathBuf, String> {
    let path = std::env::temp_dir().join(format!("karst-bench-{}-{:x}", std::process::id(), clock_seed()));
    eprintln!(
        "no --db given: making {} keys of {} bytes with values of {} bytes in {}",
        flags.num,
        flags.key_size,
        flags.value_size,
        path.display()
    );
    let fill = fill(flags, &path);
    if fill.is_err() {
        let _ = std::fs::remove_dir_all(&path);
    }
    fill.map(|()| path).map_err(|e| e.to_string())
}

fn fill(flags: &Flags, path: &Path) -> karst_engine::Result<()> {
    let (block_size, bits) = (flags.block_size, flags.bloom_bits);
    let mut options = Options::new().column_families(move |family| {
        family.table_factory.block_based.block_size = block_size as u64;
    });
    if bits >= 0.0 {
        options = options.set("filter_policy", &format!("bloomfilter:{bits}:false"))?;
    }
    let mut loader = BulkLoader::create(path, &options)?;
    let keys = Keys::new(flags, 0);
    let (mut key, mut values) = (Vec::new(), Values::new(flags));
    let mut written = 0u64;
    let (total, step) = (flags.num as u64, (flags.num as u64 / 10).max(1));
    for (level, share) in LEVEL_SHARES {
        let family = karst_format::ids::ColumnFamilyId::DEFAULT;
        let mut run = loader.sorted_run(family, level)?;
        for number in (0..total).filter(|number| level_of(*number) == share) {
            keys.encode(number, &mut key);
            run.put(&key, values.next())?;
            written += 1;
            if written.is_multiple_of(step) && flags.progress_reports {
                eprint!("... written {written} of {total} keys{:20}\r", "");
            }
        }
        run.finish()?;
    }
    loader.finish()?;
    eprintln!("... written {total} keys{:30}", "");
    Ok(())
}

/// The share, and by it the level, that a key belongs to: scattered, so that every level covers the whole range of keys.
fn level_of(number: u64) -> u64 {
    match (Random::new(number).next()) % 64 {
        0 => 1,
        1..=5 => 5,
        _ => 58,
    }
}

/// Values that compress by --compression_ratio.
struct Values {
    pool: Vec<u8>,
    at: usize,
    size: usize,
}

impl Values {
    fn new(flags: &Flags) -> Values {
        let size = flags.value_size as usize;
        let mut random = Random::new(301);
        let mut pool = Vec::new();
        while pool.len() < (1 << 20) + size {
            let fresh = ((100.0 * flags.compression_ratio) as usize).clamp(1, 100);
            let piece: Vec<u8> = (0..fresh).map(|_| b' ' + (random.next() % 95) as u8).collect();
            pool.extend(piece.iter().cycle().take(100));
        }
        Values { pool, at: 0, size }
    }

    fn next(&mut self) -> &[u8] {
        if self.at + self.size > self.pool.len() {
            self.at = 0;
        }
        self.at += self.size;
        &self.pool[self.at - self.size..self.at]
    }
}

/// What db_bench prints before its results.
pub(crate) fn print_header(flags: &Flags, bench: &Bench) {
    let (key, value, num) = (f64::from(flags.key_size), f64::from(flags.value_size), flags.num as f64);
    println!("KarstDB:    version {}", env!("CARGO_PKG_VERSION"));
    println!("Keys:       {} bytes each (+ 0 bytes user-defined timestamp)", flags.key_size);
    println!(
        "Values:     {} bytes each ({} bytes after compression)",
        flags.value_size,
        (value * flags.compression_ratio + 0.5) as u64
    );
    println!("Entries:    {}", flags.num);
    println!("Prefix:    {} bytes", flags.prefix_size);
    println!("Keys per prefix:    {}", flags.keys_per_prefix);
    println!("RawSize:    {:.1} MB (estimated)", (key + value) * num / 1_048_576.0);
    println!("FileSize:   {:.1} MB (estimated)", (key + value * flags.compression_ratio) * num / 1_048_576.0);
    println!("Perf Level: {}", flags.perf_level);
    println!("------------------------------------------------");
    println!("DB path: [{}]", bench.path.display());
}
