//! The database under test: created, destroyed and created anew, or opened as it is.
//!
//! Input: flags. Output: a [`Bench`], which removes a database in a temporary directory when
//! dropped.

use super::database_options::NEW_DATABASE;
use super::flags::Flags;
use super::front::{self, Front};
use crate::output::{Fault, note, say};
use karst_engine::perf_context::{self, PerfLevel};
use karst_engine::{ColumnFamily, Db, Options, ReadOptions, Statistics, StatsLevel};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The database under test.
pub(crate) struct Bench {
    pub(crate) front: Front,
    pub(crate) families: Vec<ColumnFamily>,
    path: PathBuf,
    options: Options,
    kind: front::DbKind,
    write_prepared: bool,
    /// True if the database is in a temporary directory, which is removed at the end.
    made: bool,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.made {
            self.families.clear();
            // Errors are ignored, because a directory left in the temporary folder does no harm.
            let _ = self.db().close();
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl Bench {
    /// Opens the database that `--db` names, or an empty one in a temporary directory. `writes` is
    /// true if some workload writes; otherwise the database is opened read-only and its directory
    /// stays unchanged.
    pub(crate) fn open(flags: &Flags, writes: bool) -> Result<Bench, Fault> {
        let made = flags.db.is_empty();
        let path = if made { temporary() } else { PathBuf::from(&flags.db) };
        if made {
            note!("no --db given: the database is made in {} and removed at the end", path.display());
        }
        let existing = flags.use_existing_db && !made;
        if !writes && !existing {
            return Err(Fault::Usage(
                "--db without --use_existing_db=true begins with an empty database, and no workload fills it"
                    .into(),
            ));
        }
        if writes && flags.readonly {
            return Err(Fault::Usage("--readonly, but a workload writes".into()));
        }
        let kind = front::DbKind::of(flags);
        if kind != front::DbKind::Plain && flags.readonly {
            return Err(Fault::Usage("--readonly does not go with a database with transactions".into()));
        }
        // Compat: as in db_bench, a database with transactions is opened for writing, for any
        // workloads.
        let writes = writes || kind != front::DbKind::Plain;
        let statistics =
            flags.statistics.then(|| Arc::new(Statistics::new(StatsLevel::ExceptDetailedTimers)));
        let options = options(flags, existing, statistics)?;
        let error = |e: karst_engine::Error| e.to_string();
        if !existing {
            Db::destroy(&path, &options).map_err(error)?;
        }
        let write_prepared = front::write_prepared(kind, &flags.options);
        let front = match writes {
            true => Front::open(kind, &path, &options, write_prepared),
            false => Db::open_read_only(&path, &options).map(Front::Plain),
        };
        let mut bench = Bench {
            front: front.map_err(error)?,
            families: Vec::new(),
            path,
            options,
            kind,
            write_prepared,
            made,
        };
        bench.find_families(flags, writes)?;
        Ok(bench)
    }

    /// Returns the database, for all operations other than writes.
    pub(crate) fn db(&self) -> &Db {
        self.front.db()
    }

    /// Closes the database. Returns errors of background work.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        self.families.clear();
        self.db().close().map_err(|e| e.to_string())
    }

    /// Replaces the database by an empty one; `more` options apply until the next call.
    pub(crate) fn renew(&mut self, flags: &Flags, more: &[(&str, &str)]) -> Result<(), String> {
        let error = |e: karst_engine::Error| e.to_string();
        self.families.clear();
        self.db().close().map_err(error)?;
        Db::destroy(&self.path, &self.options).map_err(error)?;
        let mut options = self.options.clone();
        for (name, value) in more {
            options = options.set(name, value).map_err(error)?;
        }
        self.front = Front::open(self.kind, &self.path, &options, self.write_prepared).map_err(error)?;
        self.find_families(flags, true)
    }

    /// Finds the column families that the flags want; creates missing ones if `create` is true.
    fn find_families(&mut self, flags: &Flags, create: bool) -> Result<(), String> {
        self.families = vec![self.db().default_column_family().clone()];
        for number in 1..flags.num_column_families {
            let name = format!("column_family_name_{number:06}");
            let family = match self.db().column_family(&name) {
                None if create => {
                    self.db().create_column_family(&name, &self.options).map_err(|e| e.to_string())?
                }
                family => family
                    .ok_or_else(|| format!("{}: there is no column family {name}", self.path.display()))?,
            };
            self.families.push(family);
        }
        Ok(())
    }
}

/// Returns the options of the database: its own OPTIONS file, or db_bench's options of a new one,
/// changed by the given flags.
fn options(flags: &Flags, existing: bool, statistics: Option<Arc<Statistics>>) -> Result<Options, String> {
    let cache_bytes = if flags.cache_size < 0 { 8 << 20 } else { flags.cache_size };
    let damaged =
        flags.damaged_options.parse().map_err(|e: karst_engine::Error| format!("--{}", e.context()))?;
    let mut options = Options::new().block_cache_bytes(cache_bytes as usize).damaged_options(damaged);
    if let Some(statistics) = statistics {
        options = options.statistics(statistics);
    }
    let mut named: Vec<(&str, String)> = Vec::new();
    if !existing {
        named.push(("create_if_missing", "true".into()));
        named.extend(NEW_DATABASE.map(|(name, value)| (name, value.to_string())));
    }
    if flags.bloom_bits == 0.0 {
        named.push(("filter_policy", "nullptr".into()));
    } else if flags.bloom_bits > 0.0 {
        let bits = flags.bloom_bits;
        let policy = if flags.use_ribbon_filter {
            format!("ribbonfilter:{bits}")
        } else {
            format!("bloomfilter:{bits}:false")
        };
        named.push(("filter_policy", policy));
    }
    if flags.prefix_size > 0 {
        named.push(("prefix_extractor", format!("fixed:{}", flags.prefix_size)));
    }
    named.extend(flags.options.iter().map(|(name, value)| (name.as_str(), value.clone())));
    if front::write_prepared(front::DbKind::of(flags), &flags.options) {
        named.push(("two_write_queues", "true".into()));
    }
    for (name, value) in named {
        options = options.set(name, &value).map_err(|e| e.to_string())?;
    }
    Ok(options)
}

fn temporary() -> PathBuf {
    std::env::temp_dir().join(format!("karst-bench-{}-{:x}", std::process::id(), clock_seed()))
}

/// Returns the options of each read.
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

/// Sets this thread's perf level to `--perf_level`.
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

/// Prints db_bench's lines before the results.
pub(crate) fn print_header(flags: &Flags, bench: &Bench) -> Result<(), Fault> {
    let (key, value, num) = (f64::from(flags.key_size), f64::from(flags.value_size), flags.num as f64);
    say!("KarstDB:    version {}", env!("CARGO_PKG_VERSION"))?;
    say!("Keys:       {} bytes each (+ 0 bytes user-defined timestamp)", flags.key_size)?;
    say!(
        "Values:     {} bytes each ({} bytes after compression)",
        flags.value_size,
        (value * flags.compression_ratio + 0.5) as u64
    )?;
    say!("Entries:    {}", flags.num)?;
    say!("Prefix:    {} bytes", flags.prefix_size)?;
    say!("Keys per prefix:    {}", flags.keys_per_prefix)?;
    say!("RawSize:    {:.1} MB (estimated)", (key + value) * num / 1_048_576.0)?;
    say!("FileSize:   {:.1} MB (estimated)", (key + value * flags.compression_ratio) * num / 1_048_576.0)?;
    say!("Perf Level: {}", flags.perf_level)?;
    say!("------------------------------------------------")?;
    say!("DB path: [{}]", bench.path.display())
}
