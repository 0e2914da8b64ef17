//! The rows: databases, options and engines that each compares.

use super::Settings;
use super::data::{Layout, VALUES};
use super::fio;
use super::measure::{Figures, Meter, Section};
use super::record::Label;
use super::slow::SlowMount;
use super::workload::{self, CACHED};
use super::write;
use crate::rocks;
use karst_engine::{BlockCache, Db, Options, ReadOptions};
use karst_io::{Env, OpenOptions, block_on, open};
use rocksdb::DB;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(super) fn run(settings: &Settings) -> Result<(), String> {
    for row in &settings.rows {
        match row.as_str() {
            "point" => point(settings)?,
            "metadata" => metadata(settings)?,
            "multiget" => multiget(settings)?,
            "cold" => cold(settings)?,
            "cached" => cached(settings)?,
            "tree" => published(settings)?,
            "write" => write::PARTS.iter().try_for_each(|part| write::run(settings, part))?,
            part if write::PARTS.contains(&part) || write::CONTESTS.contains(&part) => {
                write::run(settings, part)?;
            }
            _ => scan(settings)?,
        }
    }
    Ok(())
}

/// Options with which both engines open a database, by the same names.
#[derive(Clone, Copy)]
struct Opening<'a> {
    path: &'a Path,
    direct: bool,
    cache_bytes: usize,
    /// True if indexes and filters are in the block cache.
    cached_metadata: bool,
    table_options: &'a str,
}

impl Opening<'_> {
    fn rocks(&self) -> Result<DB, String> {
        let text = format!(
            "use_direct_reads={};db_log_dir={};block_based_table_factory={{{}block_cache={};\
             cache_index_and_filter_blocks={};}}",
            self.direct,
            std::env::temp_dir().display(),
            self.table_options,
            self.cache_bytes,
            self.cached_metadata
        );
        let options = rocks::options(&text)?;
        let family = rocks::descriptors(&[("default".into(), text)])?;
        DB::open_cf_descriptors_read_only(&options, self.path, family, false).map_err(|e| e.to_string())
    }

    fn karst(&self) -> Result<Db, String> {
        let (direct, cached_metadata) = (self.direct, self.cached_metadata);
        let options = Options::new()
            .db(move |db| db.use_direct_reads = direct)
            .column_families(move |cf| {
                cf.table_factory.block_based.cache_index_and_filter_blocks = cached_metadata;
            })
            .block_cache(BlockCache::new(self.cache_bytes));
        Db::open_read_only(self.path, &options).map_err(|e| e.to_string())
    }
}

/// Alignment of direct reads of these files, in bytes.
fn alignment(folder: &Path) -> Result<usize, String> {
    let env = Env::posix();
    let table = std::fs::read_dir(folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "sst"))
        .ok_or_else(|| format!("{}: no table files", folder.display()))?;
    let file = block_on(&env, open(&env, &table, OpenOptions { direct: true })).map_err(|e| e.to_string())?;
    Ok((file.alignment() as usize).max(512))
}

/// Mean request size of a run, rounded to the alignment, for fio.
fn request_bytes(figures: &Figures, align: usize) -> usize {
    let mean = figures.bytes.unwrap_or(0.0) / figures.reads.unwrap_or(1.0).max(1.0);
    ((mean / align as f64).round() as usize).max(1) * align
}

/// Numbers of reads in flight in the rows of point reads.
const IN_FLIGHT: [usize; 4] = [1, 4, 16, 64];

fn point(settings: &Settings) -> Result<(), String> {
    for layout in [Layout { blobs: false, partitioned: false }, Layout { blobs: true, partitioned: false }] {
        let path = settings.data.values(layout)?;
        let opening = Opening {
            path: &path,
            direct: true,
            cache_bytes: 0,
            cached_metadata: false,
            table_options: layout.table_options(),
        };
        let (rocks, karst) = (opening.rocks()?, opening.karst()?);
        let (rocks, karst) = (&rocks, &karst);
        let align = alignment(&path)?;
        let request = request_bytes(&workload::karst_reactor(karst, 64, 1.0)?, align);
        let seconds = settings.seconds;
        let title = format!(
            "Uncached point reads of 4 KB values ({}), O_DIRECT, metadata in memory; fio: {request} bytes aligned to {align}",
            layout.name()
        );
        let mut section = Section::new(title, "get");
        let job = fio::Job {
            folder: &path,
            endings: &[if layout.blobs { ".blob" } else { ".sst" }],
            sequential: false,
            direct: true,
            threads: 1,
            depth: 64,
            batch: 1,
            request_bytes: request,
            align_bytes: align,
            seconds,
        };
        section.part_of(format!("Uncached point reads of 4 KB values ({}), O_DIRECT", layout.name()));
        let at = |text: String, in_flight: usize| Label::at(text, &[("in flight", in_flight as f64)]);
        section.entry(at("fio io_uring, depth 64".into(), 64), || job.run());
        for threads in IN_FLIGHT {
            section.entry(at(format!("RocksDB Get, {threads} threads"), threads), move || {
                workload::rocks_get(rocks, threads, seconds)
            });
        }
        section.entry(at("KarstDB get, 1 thread, 1 in flight".into(), 1), || {
            workload::karst_get(karst, 1, seconds)
        });
        for reads in IN_FLIGHT.into_iter().skip(1) {
            section
                .entry(at(format!("KarstDB get, 1 reactor thread, {reads} in flight"), reads), move || {
                    workload::karst_reactor(karst, reads, seconds)
                });
        }
        section.run(settings, "point")?;
    }
    Ok(())
}

/// Total size of a database's indexes and filters, in bytes.
fn metadata_bytes(db: &DB) -> Result<usize, String> {
    let text = db
        .property_value("rocksdb.aggregated-table-properties")
        .map_err(|e| e.to_string())?
        .ok_or("RocksDB has no aggregated table properties")?;
    let field = |name: &str| {
        text.split(';').find_map(|part| {
            let (key, value) = part.trim().split_once('=')?;
            key.starts_with(name).then(|| value.trim().parse::<f64>().ok())?
        })
    };
    let sum = field("index block size").zip(field("filter block size")).map(|(i, f)| (i + f) as usize);
    sum.ok_or_else(|| format!("no index and filter sizes in: {text}"))
}

fn metadata(settings: &Settings) -> Result<(), String> {
    for layout in Layout::ALL {
        let path = settings.data.values(layout)?;
        let whole = Opening {
            path: &path,
            direct: true,
            cache_bytes: 0,
            cached_metadata: false,
            table_options: layout.table_options(),
        };
        let all = metadata_bytes(&whole.rocks()?)?;
        let sizes = [
            ("all of the metadata", all),
            ("half of the metadata", all / 2),
            ("a tenth of the metadata", all / 10),
            ("0", 0),
        ];
        for (name, cache_bytes) in sizes {
            let opening = Opening { cache_bytes, cached_metadata: true, ..whole };
            let seconds = settings.seconds;
            for in_flight in [1, 64] {
                let (rocks, karst) = (opening.rocks()?, opening.karst()?);
                let title = format!(
                    "Point reads of {} with a block cache of {name} ({cache_bytes} of {all} bytes), {in_flight} in flight",
                    layout.name()
                );
                let mut section = Section::new(title, "get");
                section.part_of(format!("Point reads of {} with metadata in the block cache", layout.name()));
                let share = cache_bytes as f64 * 100.0 / all as f64;
                let at = |text: String| {
                    Label::at(
                        text,
                        &[("in flight", in_flight as f64), ("% of metadata cached", share.round())],
                    )
                };
                section.entry(at(format!("RocksDB Get, {in_flight} threads")), || {
                    workload::rocks_get(&rocks, in_flight, seconds)
                });
                section.entry(at(format!("KarstDB get, 1 thread, {in_flight} in flight")), || {
                    if in_flight == 1 {
                        workload::karst_get(&karst, 1, seconds)
                    } else {
                        workload::karst_reactor(&karst, in_flight, seconds)
                    }
                });
                section.run(settings, "metadata")?;
            }
        }
    }
    Ok(())
}

/// The published tree on the device itself: db_bench's command lines, by db_bench and by the
/// workload here.
fn published(settings: &Settings) -> Result<(), String> {
    let tree = settings.data.tree()?;
    let (batch, stride, threads, seconds) = (8, 40_000, 4, settings.seconds);
    let opening = Opening {
        path: &tree,
        direct: false,
        cache_bytes: 300_000_000,
        cached_metadata: false,
        table_options: "filter_policy=bloomfilter:10:false;",
    };
    let opening = &opening;
    let mut section = Section::new("multireadrandom, batches of 8, stride 40000, 4 threads, buffered", "key");
    for async_io in [false, true] {
        let tree = &tree;
        section.entry(format!("RocksDB 7.8, Debian's db_bench, async_io={async_io}"), move || {
            db_bench(
                tree,
                "multireadrandom",
                seconds,
                &[
                    "-batch_size=8",
                    "-multiread_batched=true",
                    "-multiread_stride=40000",
                    "-threads=4",
                    "-ops_between_duration_checks=1",
                    if async_io { "-async_io=true" } else { "-async_io=false" },
                ],
            )
        });
        section.entry(format!("RocksDB 11.8 MultiGet, async_io={async_io}"), move || {
            workload::rocks_multi_get(&opening.rocks()?, async_io, batch, stride, threads, seconds)
        });
    }
    for (async_io, all_levels) in [(true, true), (true, false), (false, false)] {
        let label = format!("KarstDB multi_get, async_io={async_io}, optimize_multiget_for_io={all_levels}");
        let options =
            ReadOptions { async_io, optimize_multiget_for_io: all_levels, ..ReadOptions::default() };
        section.entry(label, move || {
            workload::karst_multi_get(&opening.karst()?, &options, batch, stride, threads, seconds)
        });
    }
    section.run(settings, "tree")?;

    let nexts = 65_536;
    let mut section =
        Section::new(format!("seekrandom, {nexts} nexts after each, 4 threads, buffered"), "next");
    for async_io in [false, true] {
        section.entry(format!("RocksDB 11.8, async_io={async_io}"), move || {
            workload::rocks_seeks(&opening.rocks()?, async_io, nexts, threads, seconds)
        });
    }
    section.entry("KarstDB, async_io=true", move || {
        workload::karst_seeks(&opening.karst()?, nexts, threads, seconds)
    });
    section.run(settings, "tree")
}

/// One run of Debian's db_bench on an existing database.
fn db_bench(path: &Path, benchmark: &str, seconds: f64, flags: &[&str]) -> Result<Figures, String> {
    let (name, duration) = (format!("-benchmarks={benchmark}"), format!("-duration={}", seconds.ceil()));
    let mut all = vec![
        name.as_str(),
        duration.as_str(),
        "-use_existing_db=true",
        "-readonly=true",
        "-key_size=32",
        "-value_size=512",
        "-num=5000000",
        "-cache_size=300000000",
        "-use_direct_reads=false",
        "-adaptive_readahead=true",
        "-bloom_bits=10",
    ];
    all.extend(flags);
    let meter = Meter::of_children();
    let out = karst_testkit::rocksdb_tools::db_bench(path, &all)?;
    let line = out.lines().find(|l| l.starts_with(benchmark)).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let before = |unit: &str| -> Option<f64> {
        let at = words.iter().position(|w| *w == unit)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    };
    let parsed = before("ops/sec").zip(before("seconds"));
    let (rate, seconds) = parsed.ok_or_else(|| format!("db_bench said:\n{out}"))?;
    Ok(meter.stop_children(rate * seconds, seconds))
}

fn slowfs(settings: &Settings) -> Result<PathBuf, String> {
    settings.slowfs.clone().filter(|program| program.is_file()).ok_or_else(|| {
        "slow storage is missing: give the slowfs program with --slowfs BIN or $KARST_SLOWFS, or leave \
         out the rows multiget and cold"
            .into()
    })
}

fn multiget(settings: &Settings) -> Result<(), String> {
    let tree = settings.data.tree()?;
    let mount = SlowMount::new(&slowfs(settings)?, &tree, 1000)?;
    let (batch, stride, threads, seconds) = (8, 40_000, 4, settings.seconds);
    for direct in [false, true] {
        let opening = Opening {
            path: &mount.path,
            direct,
            cache_bytes: 300_000_000,
            cached_metadata: false,
            table_options: "filter_policy=bloomfilter:10:false;",
        };
        // Each run opens the database again, because the block cache must not be warm from the run
        // before.
        let opening = &opening;
        let how = if direct { "direct" } else { "buffered" };
        let title = format!(
            "8-key MultiGet on the published tree, 1 ms a read, 4 threads, {how}; fio: 4096 bytes, batches of 8, 4 threads"
        );
        let mut section = Section::new(title, "key");
        let job = fio::Job {
            folder: &mount.path,
            endings: &[".sst"],
            sequential: false,
            direct,
            threads,
            depth: batch as usize,
            batch: batch as usize,
            request_bytes: 4096,
            align_bytes: 4096,
            seconds,
        };
        section.before_each(|| mount.warm());
        section.entry("fio io_uring", move || job.run());
        for async_io in [false, true] {
            section.entry(format!("RocksDB MultiGet, async_io={async_io}"), move || {
                workload::rocks_multi_get(&opening.rocks()?, async_io, batch, stride, threads, seconds)
            });
        }
        for (async_io, all_levels) in [(true, true), (true, false), (false, false)] {
            let label =
                format!("KarstDB multi_get, async_io={async_io}, optimize_multiget_for_io={all_levels}");
            let options =
                ReadOptions { async_io, optimize_multiget_for_io: all_levels, ..ReadOptions::default() };
            section.entry(label, move || {
                workload::karst_multi_get(&opening.karst()?, &options, batch, stride, threads, seconds)
            });
        }
        section.run(settings, "multiget")?;
    }
    Ok(())
}

fn cold(settings: &Settings) -> Result<(), String> {
    const LATENCY_MS: u64 = 5;
    const RUNS: usize = 5;
    for layout in [Layout { blobs: false, partitioned: true }, Layout { blobs: true, partitioned: true }] {
        let path = settings.data.values(layout)?;
        let mount = SlowMount::new(&slowfs(settings)?, &path, LATENCY_MS * 1000)?;
        let opening = Opening {
            path: &mount.path,
            direct: true,
            cache_bytes: 256 << 20,
            cached_metadata: true,
            table_options: layout.table_options(),
        };
        let opening = &opening;
        let title = format!(
            "64 cold keys of {VALUES} in {}, cold partitions, {LATENCY_MS} ms a read (round trips = batch ms / {LATENCY_MS})",
            layout.name()
        );
        let mut section = Section::new(title, "batch");
        section.before_each(|| mount.warm());
        for async_io in [false, true] {
            section.entry(format!("RocksDB MultiGet, async_io={async_io}"), move || {
                workload::cold_batch(RUNS, |keys| {
                    let db = opening.rocks()?;
                    let family = db.cf_handle("default").ok_or("no default column family")?;
                    let mut options = rocksdb::ReadOptions::default();
                    options.set_async_io(async_io);
                    let start = Instant::now();
                    for value in db.batched_multi_get_cf_opt(family, keys, true, &options) {
                        value.map_err(|e| e.to_string())?.ok_or("a key was not found")?;
                    }
                    Ok(start.elapsed())
                })
            });
        }
        section.entry("KarstDB multi_get, async_io=true", || {
            workload::cold_batch(RUNS, |keys| {
                let db = opening.karst()?;
                let start = Instant::now();
                for value in db.multi_get(keys) {
                    value.map_err(|e| e.to_string())?.ok_or("a key was not found")?;
                }
                Ok(start.elapsed())
            })
        });
        section.run(settings, "cold")?;
    }
    Ok(())
}

fn cached(settings: &Settings) -> Result<(), String> {
    let tree = settings.data.tree()?;
    let opening = Opening {
        path: &tree,
        direct: false,
        cache_bytes: 1 << 30,
        cached_metadata: false,
        table_options: "filter_policy=bloomfilter:10:false;",
    };
    let (rocks, karst) = (opening.rocks()?, opening.karst()?);
    workload::warm(|key| rocks.get_pinned(key).map(|v| v.is_some()).map_err(|e| e.to_string()))?;
    workload::warm(|key| karst.get(key).map(|v| v.is_some()).map_err(|e| e.to_string()))?;
    let seconds = settings.seconds;
    for batch in [1, 64] {
        let what = if batch == 1 { "get".to_string() } else { format!("multi_get of {batch} keys") };
        let mut section =
            Section::new(format!("Cached {what}, one thread, {CACHED} keys of the published tree"), "key");
        section.entry("RocksDB", || workload::rocks_cached(&rocks, batch, seconds));
        section.entry("KarstDB, synchronous", || workload::karst_cached(&karst, batch, false, seconds));
        section.entry("KarstDB, asynchronous", || workload::karst_cached(&karst, batch, true, seconds));
        section.run(settings, "cached")?;
    }
    Ok(())
}

fn scan(settings: &Settings) -> Result<(), String> {
    let layout = Layout { blobs: false, partitioned: false };
    let values = settings.data.values(layout)?;
    let tree = settings.data.tree()?;
    let seconds = settings.seconds;
    for (path, what) in [(&values, "4 KB values, not compressed"), (&tree, "the published tree, Snappy")] {
        let opening = Opening {
            path,
            direct: true,
            cache_bytes: 8 << 20,
            cached_metadata: false,
            table_options: layout.table_options(),
        };
        let (rocks, karst) = (opening.rocks()?, opening.karst()?);
        let (rocks, karst) = (&rocks, &karst);
        let options = ReadOptions { fill_cache: false, ..ReadOptions::default() };
        let align = alignment(path)?;
        let request = request_bytes(&workload::karst_scan(karst, &options, 1.0)?, align);
        let title = format!("Scan of uncached data ({what}), O_DIRECT; fio: {request} bytes at depth 8");
        let mut section = Section::new(title, "MB");
        let job = fio::Job {
            folder: path,
            endings: &[".sst"],
            sequential: true,
            direct: true,
            threads: 1,
            depth: 8,
            batch: 1,
            request_bytes: request,
            align_bytes: align,
            seconds,
        };
        section.entry("fio io_uring, sequential", || {
            let figures = job.run()?;
            Ok(Figures { operations: figures.bytes.unwrap_or(0.0) / 1e6, ..figures })
        });
        for (label, readahead, async_io) in [
            ("RocksDB iterator", 0, false),
            ("RocksDB iterator, readahead_size=2 MB, async_io", 2 << 20, true),
        ] {
            section.entry(label, move || {
                let mut options = rocksdb::ReadOptions::default();
                options.fill_cache(false);
                options.set_readahead_size(readahead);
                options.set_async_io(async_io);
                workload::rocks_scan(rocks, options, seconds)
            });
        }
        section.entry("KarstDB iterator", || workload::karst_scan(karst, &options, seconds));
        section.run(settings, "scan")?;
    }
    Ok(())
}
