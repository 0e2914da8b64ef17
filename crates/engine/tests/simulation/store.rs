//! The configuration of a simulated database, and the calls that open it.

use karst_engine::{
    ColumnFamily, Db, DbPath, OptionSet, Options, SstFileManager, SstPartitionerFixedPrefixFactory,
};
use karst_io::Env;
use karst_testkit::random::Random;
use karst_testkit::tally;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const DIRECTORY: &str = "/db";
/// Directory of logs that are not in the database's own.
const LOGS: &str = "/logs";

const NAMES: [&str; 3] = ["default", "second", "third"];
/// Family of the writes that only follow a dropped write; its entries are not checked.
const BEHIND: &str = "behind";
/// Prefix of the names of families that are created and dropped at run time. A life finds those
/// that an earlier one left.
pub(crate) const PASSING: &str = "passing";
/// Prefix of the names of imported families.
pub(crate) const IMPORTED: &str = "imported";

/// Configuration drawn for a seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) families: usize,
    pub(crate) writers: usize,
    /// True if writer 0 does not log its writes, which are all to the first column family.
    pub(crate) unlogged_writer: bool,
    pub(crate) sync_one_in: u64,
    /// True if all families are flushed together.
    pub(crate) atomic_flush: bool,
    /// True if writers also write to the tally, which has families of its own.
    pub(crate) counts: bool,
    /// True if opening keeps the entries of the logs there (`avoid_flush_during_recovery`).
    pub(crate) keeps_logs: bool,
    /// Directories of tables by column family; `None` for all families without their own.
    paths: Vec<(Option<&'static str>, Vec<DbPath>)>,
    /// True if the logs have a directory of their own.
    logs_apart: bool,
    /// Settings for removing obsolete files slowly; `None`: they are removed at once.
    trash: Option<Trash>,
    /// Length of the key prefixes at whose borders tables are cut.
    partition_prefix: Option<usize>,
    options: String,
    cache_bytes: usize,
}

/// Settings of an `SstFileManager`.
#[derive(Clone, Copy, Debug)]
struct Trash {
    bytes_per_second: u64,
    max_db_ratio: f64,
}

impl Plan {
    /// Returns true if a flush of one family alone would tear unlogged batches.
    pub(crate) fn flushes_all_together(&self) -> bool {
        self.unlogged_writer && self.atomic_flush && self.counts
    }

    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut options = String::from("create_if_missing=true;create_missing_column_families=true;");
        // Periodic work is off because it would hide a task that only the passing of time wakes.
        options += "stats_dump_period_sec=0;ttl=0;periodic_compaction_seconds=0;";
        let mut set = |name: &str, values: &[&str]| {
            options += &format!("{name}={};", values[random.index(values.len())]);
        };
        set("write_buffer_size", &["8000", "30000", "200000"]);
        set("max_write_buffer_number", &["2", "4"]);
        set("min_write_buffer_number_to_merge", &["1", "2"]);
        set("target_file_size_base", &["4000", "20000"]);
        set("max_bytes_for_level_base", &["20000", "100000"]);
        set("level0_file_num_compaction_trigger", &["2", "4"]);
        set(
            "compaction_style",
            &["kCompactionStyleLevel", "kCompactionStyleLevel", "kCompactionStyleUniversal"],
        );
        set("level_compaction_dynamic_level_bytes", &["true", "false"]);
        set("block_size", &["300", "2000"]);
        set("max_background_jobs", &["2", "5"]);
        set("max_subcompactions", &["1", "3"]);
        set("max_open_files", &["-1", "5"]);
        set("compression", &["kNoCompression", "kLZ4Compression"]);
        set("enable_blob_files", &["false", "false", "true"]);
        set("min_blob_size", &["300"]);
        set("enable_blob_garbage_collection", &["true"]);
        set("max_manifest_file_size", &["1000", "1000000"]);
        set("max_total_wal_size", &["0", "20000"]);
        set("atomic_flush", &["false", "true"]);
        set("unordered_write", &["false", "true"]);
        set("memtable_prefix_bloom_size_ratio", &["0", "0.1"]);
        set("use_direct_io_for_flush_and_compaction", &["false", "true"]);
        set("use_direct_io_for_compaction_reads", &["false", "true"]);
        set("memtable_protection_bytes_per_key", &["0", "0", "4"]);
        set("max_sequential_skip_in_iterations", &["8", "0"]);
        set("prepopulate_block_cache", &["kDisable", "kFlushOnly", "kFlushAndCompaction"]);
        set("verify_compression", &["false", "true"]);
        set("merge_operator", &["{id=StringAppendOperator;delimiter=,;}"]);
        // `allow_mmap_writes` excludes direct I/O for flushes.
        if options.contains("use_direct_io_for_flush_and_compaction=false") && random.one_in(2) {
            options += "allow_mmap_writes=true;";
        }
        let keeps_logs = random.one_in(4);
        options += &format!("avoid_flush_during_recovery={keeps_logs};");
        // Unlogged writes exclude recycled logs.
        let unlogged_writer = random.one_in(3);
        let trash = random.one_in(2).then(|| Trash {
            bytes_per_second: [2_000, 50_000, 2_000_000][random.index(3)],
            max_db_ratio: [0.25, 100.0][random.index(2)],
        });
        let mut paths = Vec::new();
        for (family, one_in) in [(None, 3), (Some(NAMES[1]), 4), (Some(BEHIND), 6)] {
            if random.one_in(one_in) {
                paths.push((family, draw_paths(random)));
            }
        }
        let partition_prefix = random.one_in(3).then(|| 2 + random.index(5));
        let recycled = if !unlogged_writer && random.one_in(2) { 2 } else { 0 };
        options += &format!("recycle_log_file_num={recycled};");
        let logs_apart = random.one_in(3);
        Self {
            families: 1 + random.index(NAMES.len()),
            writers: 1 + random.index(5),
            unlogged_writer,
            sync_one_in: [2, 10, 1000][random.index(3)],
            atomic_flush: options.contains("atomic_flush=true"),
            counts: random.one_in(2),
            keeps_logs,
            paths,
            logs_apart,
            trash,
            partition_prefix,
            options,
            cache_bytes: [0, 20_000, 1 << 20][random.index(3)],
        }
    }

    /// Returns the options of the database in its directories, with a new `SstFileManager`.
    pub(crate) fn options(&self, env: &Env) -> Options {
        let options = self.options_with(env, DbPath::clone);
        match self.logs_apart {
            true => options.set("wal_dir", LOGS).expect("a directory"),
            false => options,
        }
    }

    /// Returns the options of a copy of the database, which has all files in one directory.
    pub(crate) fn options_of_copy(&self, env: &Env, directory: &Path) -> Options {
        let options = self.options_with(env, |path| DbPath::new(directory, path.target_size));
        options.set("wal_dir", &directory.to_string_lossy()).expect("a directory")
    }

    fn options_with(&self, env: &Env, place: impl Fn(&DbPath) -> DbPath) -> Options {
        let options =
            Options::new().set_all(&self.options).unwrap_or_else(|e| panic!("{}: {e}", self.options));
        let mut options = options.env(env.clone()).block_cache_bytes(self.cache_bytes);
        for (name, operator) in tally::FAMILIES.iter().filter(|_| self.counts) {
            options = options.column_family(*name, |cf| {
                cf.set("merge_operator", operator).unwrap();
            });
        }
        if let Some(trash) = self.trash {
            // Trash is not truncated in chunks, because secondary instances still read it.
            let manager = SstFileManager::with_bytes_max_delete_chunk(0);
            manager.set_delete_rate_bytes_per_second(trash.bytes_per_second);
            manager.set_max_trash_db_ratio(trash.max_db_ratio);
            options = options.sst_file_manager(manager);
        }
        if let Some(length) = self.partition_prefix {
            let factory = Arc::new(SstPartitionerFixedPrefixFactory { length });
            options = options.sst_partitioner_factory(None, factory);
        }
        let names = self.names();
        for (family, paths) in &self.paths {
            let paths = paths.iter().map(&place);
            options = match family {
                None => options.db_paths(paths),
                Some(family) if names.iter().any(|name| name == family) => {
                    options.cf_paths(Some(family), paths)
                }
                Some(_) => options,
            };
        }
        options
    }

    pub(crate) fn has_trash(&self) -> bool {
        self.trash.is_some()
    }

    pub(crate) fn log_directory(&self) -> &'static str {
        if self.logs_apart { LOGS } else { DIRECTORY }
    }

    /// Returns true if all files but logs are in one directory, which a restore in place requires.
    pub(crate) fn has_one_path(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns all directories that may have tables or logs, the database's own first.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let own = PathBuf::from(DIRECTORY);
        let others: BTreeSet<&PathBuf> =
            self.paths.iter().flat_map(|(_, paths)| paths.iter().map(|path| &path.path)).collect();
        let others: Vec<PathBuf> = others.into_iter().filter(|path| **path != own).cloned().collect();
        let logs = self.logs_apart.then(|| PathBuf::from(LOGS)).into_iter().collect();
        [vec![own], others, logs].concat()
    }

    /// Returns the names of the chronicle's families, then the tally's, then [`BEHIND`].
    pub(crate) fn names(&self) -> Vec<String> {
        let counting = tally::FAMILIES.iter().filter(|_| self.counts).map(|(name, _)| (*name).to_string());
        let own = NAMES[..self.families].iter().map(ToString::to_string);
        own.chain(counting).chain([BEHIND.to_string()]).collect()
    }
}

/// Draws some of a few directories, each with space for a few tables; one may occur more than once.
fn draw_paths(random: &mut Random) -> Vec<DbPath> {
    let places = [DIRECTORY, "/paths-0", "/paths-1", "/deep/paths-2"];
    (0..1 + random.index(4))
        .map(|_| DbPath::new(places[random.index(4)], [0, 20_000, 60_000, 500_000][random.index(4)]))
        .collect()
}

/// The column families, by number.
#[derive(Clone)]
pub(crate) struct Families(pub(crate) Vec<ColumnFamily>);

impl Families {
    pub(crate) fn of(db: &Db, plan: &Plan) -> Self {
        let named = |name: &String| db.column_family(name).unwrap_or_else(|| panic!("{name} is not open"));
        Self(plan.names().iter().map(named).collect())
    }
}

/// Opens a copy of the database.
pub(crate) fn open_copy(directory: &Path, options: &Options) -> karst_engine::Result<Db> {
    let mut options = options.clone();
    options = options.db(|db| {
        db.create_if_missing = false;
        db.create_missing_column_families = false;
    });
    Db::open(directory, &options)
}

/// Opens the database; creates a missing one.
pub(crate) fn open(options: &Options, plan: &Plan) -> karst_engine::Result<Db> {
    let mut names = plan.names();
    // An error is ignored because at first there is no database.
    let there = Db::list_column_families(DIRECTORY, options).unwrap_or_default();
    names.extend(
        there.into_iter().filter(|name| [PASSING, IMPORTED].iter().any(|begin| name.starts_with(begin))),
    );
    Db::open_cf(DIRECTORY, options, &names.iter().map(String::as_str).collect::<Vec<_>>())
}
