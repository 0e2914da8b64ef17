//! RocksDB's properties: numbers and texts about the database under `rocksdb.` names.
//!
//! In: a column family's current superversion. Out: numbers and texts in RocksDB's format.
//! Properties about tables read their properties blocks and block for it. If a name stands for
//! something that KarstDB does not have (yet), the answer is that of an idle RocksDB, or none if
//! any answer would be a guess.

mod cache_entries;
mod database_stats;
mod family_metadata;
mod family_stats;
mod live;
mod stats_history;
mod table_text;
mod tables;
mod tree;

pub(crate) use family_metadata::column_family_metadata;
pub use family_metadata::{BlobMetaData, ColumnFamilyMetaData, LevelMetaData};
pub use live::LiveFile;
pub(crate) use live::{live_file_names, live_files};
pub(crate) use stats_history::StatsHistory;
pub use stats_history::StatsSlice;
pub use table_text::table_properties_text;

use crate::background::compaction_options;
use crate::open::ReadHalf;
use crate::write_half::WriteHalf;
use cache_entries::Asks;
pub(crate) use cache_entries::CacheEntries;
pub(crate) use database_stats::LastAsked;
use family_stats::Activity;
use karst_base::events::LogLevel;
use karst_base::snapshot::Snapshots;
use karst_base::stats::write_counts::WriteCounts;
use karst_format::file_name::FileName;
use karst_format::ids::{FileNumber, Level};
use karst_lsm::pick::{self, LevelTargets};
use karst_storage::column_family::Family;
use karst_storage::superversion::SuperVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The parts of an open database that properties read.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) read: &'a ReadHalf,
    /// `None` if it is open for reading only.
    pub(crate) write: Option<&'a WriteHalf>,
    pub(crate) snapshots: &'a Snapshots,
    pub(crate) opened_at: Duration,
    pub(crate) last_asked: &'a LastAsked,
    pub(crate) cache_entries: &'a CacheEntries,
}

impl Subject<'_> {
    /// Returns the MANIFEST in force and its size in bytes.
    pub(crate) fn manifest(self) -> (FileName, u64) {
        let now = self.write.map(|write| write.ownership.versions.manifest());
        let now = now.or_else(|| Some(self.read.secondary.as_ref()?.view().manifest));
        now.unwrap_or((self.read.manifest, self.read.manifest_bytes))
    }

    /// Returns the numbers of the logs with entries that are not in tables, ascending.
    pub(crate) fn logs(self) -> Vec<FileNumber> {
        let now = self.write.map(|write| write.ownership.versions.logs());
        let now = now.or_else(|| Some(self.read.secondary.as_ref()?.view().logs.clone()));
        now.unwrap_or_else(|| self.read.logs.clone())
    }

    /// Returns the oldest log that may be needed.
    pub(crate) fn min_log_number(self) -> FileNumber {
        let now = self.write.map(|write| write.ownership.versions.min_log_number());
        let now = now.or_else(|| Some(self.read.secondary.as_ref()?.view().min_log_number));
        now.unwrap_or(self.read.min_log_number)
    }

    /// Returns true if obsolete files are removed: neither the user nor a copy prevents it.
    pub(crate) fn removes_files(self) -> bool {
        self.write.is_none_or(|write| write.ownership.versions.obsolete().is_enabled())
    }

    /// Returns the OPTIONS file written last.
    pub(crate) fn options_file(self) -> Option<FileName> {
        let now = self.write.map(|write| write.ownership.options_file());
        let now = now.or_else(|| Some(self.read.secondary.as_ref()?.view().options_file));
        now.unwrap_or(self.read.options_file)
    }

    /// Returns the tables of a family that are being compacted now.
    pub(crate) fn being_compacted(self, family: &Arc<Family>) -> BTreeSet<FileNumber> {
        self.write.map(|write| write.background.being_compacted(family)).unwrap_or_default()
    }
}

/// Returns a property that is a number.
pub(crate) fn number(db: Subject<'_>, family: &Arc<Family>, name: &str) -> Option<u64> {
    let view = family.superversion();
    let name = name.strip_prefix("rocksdb.")?;
    let of_jobs = || in_background(db, family, name);
    in_memory(db, family, &view, name).or_else(|| in_tree(&view, name)).or_else(of_jobs).or_else(
        || match name {
            "estimate-num-keys" => tables::estimate_num_keys(family, &view).ok(),
            "estimate-table-readers-mem" => Some(tables::open_tables_bytes(family, &view)),
            "is-file-deletions-enabled" => Some(u64::from(db.removes_files())),
            "num-live-versions" => Some(family.live_versions().len() as u64),
            "total-sst-files-size" => Some(tree::all_table_bytes(&family.live_versions())),
            "total-blob-file-size" => Some(tree::all_blob_bytes(&family.live_versions())),
            "base-level" | "estimate-pending-compaction-bytes" => Some(by_rules(db, family, &view, name)),
            // Compat: RocksDB's answer while no job writes tables; unknown if jobs may run.
            "min-obsolete-sst-number-to-keep" => db.write.is_none().then_some(u64::MAX),
            "min-log-number-to-keep" => Some(db.min_log_number().0),
            _ => None,
        },
    )
}

fn in_memory(db: Subject<'_>, family: &Family, view: &SuperVersion, name: &str) -> Option<u64> {
    let sum = |of: fn(&karst_storage::memtable::MemTable) -> u64| {
        view.immutable().iter().map(|m| of(m)).sum::<u64>()
    };
    let cache = || &db.read.shared.cache;
    let blob_cache = || family.tables.blobs.cache();
    Some(match name {
        "num-immutable-mem-table" => view.immutable().len() as u64,
        "cur-size-active-mem-table" => view.mem().memory_bytes() as u64,
        "cur-size-all-mem-tables" | "size-all-mem-tables" => {
            view.memtables().map(|m| m.memory_bytes() as u64).sum()
        }
        "num-entries-active-mem-table" => view.mem().entry_count(),
        "num-entries-imm-mem-tables" => sum(|m| m.entry_count()),
        "num-deletes-active-mem-table" => view.mem().delete_count(),
        "num-deletes-imm-mem-tables" => sum(|m| m.delete_count()),
        "current-super-version-number" => view.number(),
        "num-snapshots" => db.snapshots.count_and_oldest_s().0 as u64,
        "oldest-snapshot-time" => db.snapshots.count_and_oldest_s().1.unwrap_or(0),
        "oldest-snapshot-sequence" => db.snapshots.oldest().map_or(0, |seq| seq.0),
        "blob-cache-capacity" => blob_cache()?.capacity_bytes() as u64,
        "blob-cache-usage" => blob_cache()?.usage_bytes() as u64,
        "blob-cache-pinned-usage" => blob_cache()?.pinned_bytes() as u64,
        "block-cache-capacity" => cache().capacity_bytes() as u64,
        "block-cache-usage" => cache().usage_bytes() as u64,
        "block-cache-pinned-usage" => cache().pinned_bytes() as u64,
        _ => return None,
    })
}

/// Writes the statistics of the database and of every column family to the LOG file.
pub(crate) fn dump_stats(db: Subject<'_>) {
    let Some(write) = db.write else { return };
    let families = db.read.families.all();
    let by_family: String =
        families.iter().filter_map(|family| text(db, family, "rocksdb.cfstats")).collect();
    // `rocksdb.dbstats` once, instead of `rocksdb.stats` of each family, because its interval is
    // the time since the last query.
    let database =
        families.first().and_then(|family| text(db, family, "rocksdb.dbstats")).unwrap_or_default();
    write.events.log(LogLevel::Info, format_args!("------- DUMPING STATS -------\n{database}{by_family}"));
}

/// Returns a property of background work; that of an idle one if the database is open for reading
/// only.
fn in_background(db: Subject<'_>, family: &Arc<Family>, name: &str) -> Option<u64> {
    let write = db.write;
    let of = |count: &dyn Fn(&WriteHalf) -> u64| write.map_or(0, count);
    Some(match name {
        "mem-table-flush-pending" => of(&|write| u64::from(write.background.flush_pending(family))),
        "compaction-pending" => of(&|write| u64::from(write.background.compaction_pending(family))),
        "background-errors" => of(&|write| write.health.reported()),
        "num-running-flushes" => of(&|write| write.background.running().0 as u64),
        "num-running-compactions" => of(&|write| write.background.running().1 as u64),
        "num-running-compaction-sorted-runs" => of(&|write| write.background.compacted_runs() as u64),
        "actual-delayed-write-rate" => of(&|write| write.stalls.actual_delayed_rate()),
        "is-write-stopped" => of(&|write| u64::from(write.stalls.is_stopped())),
        // Compat: a memtable is removed by the install of its table.
        "num-immutable-mem-table-flushed" => 0,
        _ => return None,
    })
}

fn in_tree(view: &SuperVersion, name: &str) -> Option<u64> {
    let blobs = || tree::blob_totals(view.version());
    Some(match name {
        "live-sst-files-size" => view.version().size_bytes(),
        "estimate-live-data-size" => tree::estimate_live_data_bytes(view.version()),
        "num-blob-files" => view.version().blob_files().len() as u64,
        "live-blob-file-size" => blobs().file_bytes,
        "live-blob-file-garbage-size" => blobs().garbage_bytes,
        _ => return None,
    })
}

/// Returns sums of a family's jobs, and its pending compactions.
fn activity(db: Subject<'_>, family: &Arc<Family>) -> Activity {
    let mut activity = Activity { jobs: family.jobs.sums(), ..Activity::default() };
    if let Some(write) = db.write {
        activity.stalls = write.stalls.family(family.id()).1;
        (activity.scores, activity.being_compacted, activity.pending_bytes) =
            write.background.compaction_state(family);
    }
    activity
}

fn family_stats(db: Subject<'_>, family: &Arc<Family>, view: &SuperVersion, uptime: Duration) -> String {
    family_stats::family_stats(view, &activity(db, family), uptime)
}

/// Returns a property as a map from names to texts.
pub(crate) fn map(db: Subject<'_>, family: &Arc<Family>, name: &str) -> Option<BTreeMap<String, String>> {
    let view = family.superversion();
    match name.strip_prefix("rocksdb.")? {
        "cfstats" => Some(family_stats::family_stats_map(&view, &activity(db, family))),
        "cf-write-stall-stats" => Some(family_stats::stall_map(&activity(db, family).stalls)),
        "db-write-stall-stats" => Some(database_stats::stall_map(budget_stops(db))),
        "dbstats" => {
            let uptime = db.read.env.now().saturating_sub(db.opened_at);
            Some(database_stats::database_map(uptime, &write_counts(db), budget_stops(db)))
        }
        "aggregated-table-properties" => tables::aggregated_map(family, &view, None).ok(),
        "block-cache-entry-stats" => Some(cache_entries_map(db, Asks::Now)),
        "fast-block-cache-entry-stats" => Some(cache_entries_map(db, Asks::Fast)),
        name => {
            let level = name.strip_prefix("aggregated-table-properties-at-level")?;
            let level = level.parse().ok().filter(|n| usize::from(*n) < view.version().levels().len())?;
            tables::aggregated_map(family, &view, Some(Level(level))).ok()
        }
    }
}

fn cache_entries_map(db: Subject<'_>, asks: Asks) -> BTreeMap<String, String> {
    db.cache_entries.map(&db.read.shared.cache, asks, || db.read.env.now())
}

fn cache_entries_text(db: Subject<'_>, asks: Asks) -> String {
    db.cache_entries.text(&db.read.shared.cache, asks, || db.read.env.now())
}

/// Returns the sum of a number over all column families; `None` if it is unknown for one of them.
pub(crate) fn aggregated_number(db: Subject<'_>, name: &str) -> Option<u64> {
    let families = db.read.families.all();
    let mut numbers = families.iter().filter(|family| !family.is_dropped()).map(|of| number(db, of, name));
    numbers.try_fold(0u64, |sum, number| Some(sum.wrapping_add(number?)))
}

/// Returns a property computed from the tree and its compaction options.
fn by_rules(db: Subject<'_>, family: &Family, view: &SuperVersion, name: &str) -> u64 {
    let options = match db.write {
        Some(write) => write.background.compaction_options(family),
        None => Arc::new(compaction_options(&db.read.db_options.get(), family)),
    };
    if name == "base-level" {
        let base = LevelTargets::new(view.version(), &options).base_level;
        // Compat: RocksDB's -1 as an unsigned number.
        return base.map_or(u64::MAX, |level| level as u64);
    }
    pick::estimated_pending_compaction_bytes(view.version(), &options)
}

fn budget_stops(db: Subject<'_>) -> u64 {
    db.write.map_or(0, |write| write.stalls.budget_stops())
}

fn write_counts(db: Subject<'_>) -> WriteCounts {
    db.write.map(|write| write.pipeline.write_counts()).unwrap_or_default()
}

fn database_stats(db: Subject<'_>, uptime: impl Fn() -> Duration) -> String {
    database_stats::database_stats(db.last_asked, || (uptime(), write_counts(db)), budget_stops(db))
}

/// Returns a property as text, also if it is a number.
pub(crate) fn text(db: Subject<'_>, family: &Arc<Family>, name: &str) -> Option<String> {
    let view = family.superversion();
    let short = name.strip_prefix("rocksdb.")?;
    let uptime = || db.read.env.now().saturating_sub(db.opened_at);
    match short {
        "levelstats" => return Some(tree::level_stats(view.version())),
        "sstables" => return Some(tree::tables(&view)),
        "cfstats" | "cfstats-no-file-histogram" => return Some(family_stats(db, family, &view, uptime())),
        "dbstats" => return Some(database_stats(db, uptime)),
        "stats" => {
            return Some(family_stats(db, family, &view, uptime()) + &database_stats(db, uptime));
        }
        "cf-write-stall-stats" => {
            let stalls = db.write.map(|write| write.stalls.family(family.id()).1);
            return Some(family_stats::stall_text(&stalls.unwrap_or_default()));
        }
        "db-write-stall-stats" => return Some(database_stats::stall_text(budget_stops(db))),
        "block-cache-entry-stats" => return Some(cache_entries_text(db, Asks::Now)),
        "fast-block-cache-entry-stats" => return Some(cache_entries_text(db, Asks::Fast)),
        "blob-stats" => return Some(tree::blob_stats(view.version())),
        "options-statistics" => {
            let statistics = &db.read.statistics;
            return Some(if statistics.enabled() { statistics.to_string() } else { String::new() });
        }
        "aggregated-table-properties" => return tables::aggregated(family, &view, None).ok(),
        _ => {}
    }
    // Compat: a number at the end of a name is its argument, a level.
    let stem = short.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() < short.len() {
        let argument = &short[stem.len()..];
        if stem == "live-sst-files-size-at-temperature" {
            let temperature = argument.parse().ok()?;
            return Some(tree::table_bytes_at_temperature(view.version(), temperature).to_string());
        }
        let level: usize = argument.parse().ok()?;
        let level = Level(u8::try_from(level).ok().filter(|_| level < view.version().levels().len())?);
        match stem {
            "num-files-at-level" => return Some(view.version().files(level).len().to_string()),
            "compression-ratio-at-level" => return tables::compression_ratio(family, &view, level).ok(),
            "aggregated-table-properties-at-level" => {
                return tables::aggregated(family, &view, Some(level)).ok();
            }
            _ => {}
        }
    }
    number(db, family, name).map(|n| n.to_string())
}
