//! The options of a life, drawn from the seed: those of the database and of each column family, and
//! the kind of transactions in front of it.
//!
//! Options that decide the shape of the tree are the same in all lives of a database; all others
//! change from one life to the next. Options that exclude each other are not drawn together; a test
//! opens databases with hundreds of draws.

use super::flags::Flags;
use super::rows::{BEHIND_FAMILY, BLOCK_PREFIX, STAMPED_FAMILY, Shape, family_name, merge_operator};
use crate::random::Random;
use karst_engine::format::Comparator;
use karst_engine::{Options, RateLimiter};
use karst_io::Env;
use std::fmt::Write as _;
use std::path::Path;

/// The kind of transactions in front of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontKind {
    Plain,
    Optimistic,
    Locking,
    /// Pessimistic transactions with write policy WritePrepared.
    WritePrepared,
}

impl FrontKind {
    const ALL: [(FrontKind, &'static str); 4] = [
        (FrontKind::Plain, "plain"),
        (FrontKind::Optimistic, "optimistic"),
        (FrontKind::Locking, "locking"),
        (FrontKind::WritePrepared, "write_prepared"),
    ];

    pub(crate) fn name(self) -> &'static str {
        FrontKind::ALL.iter().find(|(kind, _)| *kind == self).expect("all are there").1
    }

    pub(crate) fn named(name: &str) -> Option<FrontKind> {
        FrontKind::ALL.iter().find(|(_, other)| *other == name).map(|(kind, _)| *kind)
    }

    pub(crate) fn locks(self) -> bool {
        matches!(self, FrontKind::Locking | FrontKind::WritePrepared)
    }
}

/// The options of a life.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) front: FrontKind,
    pub(crate) database: String,
    /// Options of each family, without its merge operator.
    pub(crate) families: Vec<String>,
    pub(crate) cache_bytes: usize,
    pub(crate) one_memory_budget: bool,
    /// Bytes a second.
    pub(crate) rate_limit: Option<u64>,
    /// True if futures run on a reactor of KarstDB's, false for an executor that knows nothing of
    /// it.
    pub(crate) reactor: bool,
    pub(crate) manual_wal_flush: bool,
    pub(crate) unlogged: bool,
    /// True if a family has timestamps.
    timestamps: bool,
}

/// A draw of options, appended to their text.
struct Draws<'a> {
    random: &'a mut Random,
    text: String,
}

impl Draws<'_> {
    fn one(&mut self, name: &str, values: &[&str]) -> String {
        let value = *self.random.pick(values);
        let _ = write!(self.text, "{name}={value};");
        value.to_string()
    }

    /// Draws a boolean that is true with a probability of 1 in `one_in`.
    fn rarely(&mut self, name: &str, one_in: u64) -> bool {
        let value = self.random.one_in(one_in);
        let _ = write!(self.text, "{name}={value};");
        value
    }
}

const COMPRESSIONS: [&str; 7] = [
    "kNoCompression",
    "kNoCompression",
    "kSnappyCompression",
    "kLZ4Compression",
    "kLZ4HCCompression",
    "kZSTD",
    "kZlibCompression",
];

/// Options of the family that ingests files behind its entries, and of the one with timestamps.
const BEHIND: &str = "cf_allow_ingest_behind=true;write_buffer_size=65536;target_file_size_base=4000;";
const STAMPED: &str = "write_buffer_size=65536;target_file_size_base=4000;max_bytes_for_level_base=20000;\
     level0_file_num_compaction_trigger=2;block_based_table_factory={block_size=300};";

impl Drawn {
    /// Draws the options of the life of this number. `direct`: the file system supports direct I/O;
    /// `timestamps`: a family has timestamps, which excludes write policy WritePrepared.
    pub(crate) fn of(shape: &Shape, flags: &Flags, life: u64, direct: bool, timestamps: bool) -> Drawn {
        let mut random = Random::of(&[shape.seed, 1, life]);
        let front = match random.below(100) < flags.txn_lives_percent {
            true => *random.pick(&[FrontKind::Optimistic, FrontKind::Locking, FrontKind::WritePrepared]),
            false => FrontKind::Plain,
        };
        let front = match front {
            FrontKind::WritePrepared if timestamps => FrontKind::Locking,
            front => front,
        };
        let mut drawn = Drawn {
            front,
            database: String::new(),
            families: vec![String::new(); shape.families],
            cache_bytes: 32 << 20,
            one_memory_budget: false,
            rate_limit: None,
            reactor: random.one_in(2),
            manual_wal_flush: false,
            unlogged: front == FrontKind::Plain,
            timestamps,
        };
        if flags.random_options {
            // The recovery mode is the same for all lives, because the next life has to accept the
            // tails of this one's logs, and in the tolerant mode those of mapped and recycled logs
            // look like damage.
            let tolerant = Random::of(&[shape.seed, 9]).one_in(4);
            drawn.draw_database(&mut random, direct, tolerant);
            for (family, text) in drawn.families.iter_mut().enumerate() {
                let mut of_database = Random::of(&[shape.seed, 2, family as u64]);
                *text = family_options(&mut of_database, &mut random);
            }
        }
        for (name, value) in &flags.options {
            match name.as_str() {
                "manual_wal_flush" => drawn.manual_wal_flush = value == "true",
                "recycle_log_file_num" => drawn.unlogged &= value == "0",
                _ => {}
            }
        }
        drawn
    }

    fn draw_database(&mut self, random: &mut Random, direct: bool, tolerant: bool) {
        self.cache_bytes = *random.pick(&[0, 200_000, 4 << 20, 32 << 20]);
        self.one_memory_budget = self.cache_bytes >= 4 << 20 && random.one_in(3);
        self.rate_limit = random.one_in(5).then(|| *random.pick(&[4 << 20, 40 << 20]));
        let mut draws = Draws { random, text: String::new() };
        draws.rarely("unordered_write", 2);
        let two_queues = draws.rarely("two_write_queues", 3);
        if self.front == FrontKind::WritePrepared && !two_queues {
            draws.rarely("two_write_queues", 2);
        }
        let mapped = draws.rarely("allow_mmap_writes", if tolerant { 0 } else { 3 });
        let recycles =
            draws.one("recycle_log_file_num", if tolerant { &["0"] } else { &["0", "0", "1", "3"] }) != "0";
        draws.one("wal_compression", &["kNoCompression", "kZSTD"]);
        draws.rarely("avoid_flush_during_recovery", 2);
        draws.rarely("avoid_flush_during_shutdown", 2);
        draws.rarely("atomic_flush", 2);
        self.manual_wal_flush = draws.rarely("manual_wal_flush", 5);
        draws.one("max_background_jobs", &["2", "4", "6"]);
        draws.one("max_subcompactions", &["1", "1", "3"]);
        draws.one("max_total_wal_size", &["0", "0", "500000"]);
        draws.one("db_write_buffer_size", &["0", "0", "1500000"]);
        draws.one("max_manifest_file_size", &["5000", "1000000"]);
        draws.rarely("use_direct_reads", if direct { 4 } else { 0 });
        draws.rarely("use_direct_io_for_flush_and_compaction", if direct && !mapped { 3 } else { 0 });
        draws.rarely("use_direct_io_for_compaction_reads", if direct { 6 } else { 0 });
        draws.one("compaction_readahead_size", &["0", "16384", "2097152"]);
        draws.one("bytes_per_sync", &["0", "0", "100000"]);
        draws.one("wal_bytes_per_sync", &["0", "0", "100000"]);
        draws.rarely("strict_bytes_per_sync", 3);
        draws.one("max_open_files", &["-1", "-1", "12"]);
        draws.rarely("track_and_verify_wals_in_manifest", 3);
        draws.rarely("track_and_verify_wals", 3);
        draws.one(
            "wal_recovery_mode",
            if tolerant { &["kTolerateCorruptedTailRecords"] } else { &["kPointInTimeRecovery"] },
        );
        draws.one("file_checksum_gen_factory", &["nullptr", "FileChecksumGenCrc32cFactory"]);
        draws.one("WAL_ttl_seconds", &["0", "0", "0", "30"]);
        draws.rarely("prefix_seek_opt_in_only", 4);
        self.unlogged &= !recycles;
        self.database = draws.text;
    }

    /// Returns the options with one line for each part, which is the form kept for repeating a
    /// life.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "front: {}\nblock cache: {} bytes, one_memory_budget {}\nrate limit: {:?}\nreactor: {}\n[DBOptions] {}\n",
            self.front.name(),
            self.cache_bytes,
            self.one_memory_budget,
            self.rate_limit,
            self.reactor,
            self.database
        );
        for (family, options) in self.families.iter().enumerate() {
            let _ = writeln!(text, "[CFOptions \"{}\"] {options}", family_name(family));
        }
        text
    }

    /// Returns the options for opening the database. The command line's options override drawn
    /// ones.
    pub(crate) fn options(&self, flags: &Flags) -> Result<Options, String> {
        let error = |e: karst_engine::Error| e.to_string();
        let mut options = Options::new()
            .block_cache_bytes(self.cache_bytes)
            .one_memory_budget(self.one_memory_budget)
            .db(|db| (db.create_if_missing, db.create_missing_column_families) = (true, true))
            .set_all(&self.database)
            .map_err(error)?;
        if let Some(bytes) = self.rate_limit {
            options = options.rate_limiter(RateLimiter::new(bytes));
        }
        for (family, text) in self.families.iter().enumerate() {
            options = family_with(options, &family_name(family), merge_operator(family), text)?;
        }
        options = family_with(options, BEHIND_FAMILY, "uint64add", BEHIND)?;
        if self.timestamps {
            options = family_with(options, STAMPED_FAMILY, "uint64add", STAMPED)?;
            options = options.comparator(Some(STAMPED_FAMILY), Comparator::BytewiseU64Ts);
        }
        for (name, value) in &flags.options {
            options = options.set(name, value).map_err(error)?;
        }
        Ok(options)
    }

    /// Returns the options of a further family. FIFO compaction drops no entry of it, because its
    /// size and age stay below the limits.
    pub(crate) fn further_family(&self, number: u64) -> Result<Options, String> {
        let style = match number % 3 {
            0 => {
                "compaction_style=kCompactionStyleFIFO;compaction_options_fifo={max_table_files_size=1099511627776};"
            }
            1 => "compaction_style=kCompactionStyleUniversal;",
            _ => "",
        };
        Options::new()
            .set_all(&format!("{style}write_buffer_size=65536;merge_operator=uint64add;"))
            .map_err(|e| e.to_string())
    }
}

/// Adds a family with these options, given as one text.
fn family_with(options: Options, name: &str, operator: &str, text: &str) -> Result<Options, String> {
    use karst_engine::OptionSet;
    let text = format!("merge_operator={operator};{text}");
    // The text is tried here because the closure below cannot return an error.
    karst_engine::ColumnFamilyOptions::default().set_all(&text).map_err(|e| format!("{text}: {e}"))?;
    Ok(options.column_family(name, move |family| {
        family.set_all(&text).expect("it was tried");
    }))
}

fn family_options(of_database: &mut Random, random: &mut Random) -> String {
    let mut shape = Draws { random: of_database, text: String::new() };
    shape.one(
        "compaction_style",
        &["kCompactionStyleLevel", "kCompactionStyleLevel", "kCompactionStyleUniversal"],
    );
    shape.rarely("level_compaction_dynamic_level_bytes", 2);
    let shape = shape.text;
    let mut draws = Draws { random, text: shape };
    draws.one("write_buffer_size", &["65536", "65536", "262144", "1048576"]);
    draws.one("max_write_buffer_number", &["2", "4"]);
    draws.one("min_write_buffer_number_to_merge", &["1", "1", "2"]);
    draws.one("level0_file_num_compaction_trigger", &["2", "4"]);
    draws.one("level0_slowdown_writes_trigger", &["8", "20"]);
    draws.one("target_file_size_base", &["30000", "200000", "2000000"]);
    draws.one("max_bytes_for_level_base", &["100000", "1000000"]);
    draws.one("max_bytes_for_level_multiplier", &["3", "10"]);
    let compressed = draws.one("compression", &COMPRESSIONS) != "kNoCompression";
    let at_bottom = draws
        .one("bottommost_compression", &["kDisableCompressionOption", "kDisableCompressionOption", "kZSTD"])
        != "kDisableCompressionOption";
    draws.one("compression_opts", &["{level=32767}", "{max_dict_bytes=4096}", "{parallel_threads=3}"]);
    draws.one(
        "compaction_pri",
        &[
            "kByCompensatedSize",
            "kOldestLargestSeqFirst",
            "kOldestSmallestSeqFirst",
            "kMinOverlappingRatio",
            "kRoundRobin",
        ],
    );
    draws.rarely("enable_blob_files", 3);
    draws.one("min_blob_size", &["100", "300"]);
    draws.one("blob_file_size", &["50000", "500000"]);
    draws.one("blob_compression_type", &["kNoCompression", "kLZ4Compression"]);
    draws.rarely("enable_blob_garbage_collection", 2);
    draws.one("blob_garbage_collection_age_cutoff", &["0.25", "1.0"]);
    draws.one("blob_garbage_collection_force_threshold", &["0.5", "1.0"]);
    draws.one("blob_file_starting_level", &["0", "0", "1"]);
    draws.one("memtable_prefix_bloom_size_ratio", &["0", "0.1"]);
    draws.rarely("memtable_whole_key_filtering", 2);
    draws.one("memtable_protection_bytes_per_key", &["0", "0", "8"]);
    draws.one("memtable_max_range_deletions", &["0", "0", "30"]);
    draws.one("periodic_compaction_seconds", &["18446744073709551614", "18446744073709551614", "5"]);
    draws.rarely("optimize_filters_for_hits", 4);
    draws.rarely("paranoid_file_checks", 4);
    let block = format!("fixed:{BLOCK_PREFIX}");
    let prefixes = draws.one("prefix_extractor", &["nullptr", &block, "fixed:7", "capped:9"]) != "nullptr";
    let mut table = Draws { random: draws.random, text: String::new() };
    let indexes = ["kBinarySearch", "kTwoLevelIndexSearch", "kBinarySearchWithFirstKey", "kHashSearch"];
    let index = table.one("index_type", if prefixes { &indexes } else { &indexes[..3] });
    table.rarely("partition_filters", if index == "kTwoLevelIndexSearch" { 2 } else { 0 });
    table.one("metadata_block_size", &["300", "4096"]);
    table.one("data_block_index_type", &["kDataBlockBinarySearch", "kDataBlockBinaryAndHash"]);
    table.one("filter_policy", &["nullptr", "bloomfilter:10", "ribbonfilter:8"]);
    table.rarely("detect_filter_construct_corruption", 4);
    table.rarely("whole_key_filtering", 2);
    table.one("format_version", &["5", "6", "7"]);
    table.one("checksum", &["kCRC32c", "kxxHash64", "kXXH3"]);
    table.one("block_size", &["512", "1024", "4096", "16384"]);
    table.one("block_restart_interval", &["1", "4", "16"]);
    table.one("index_block_restart_interval", &["1", "8"]);
    table.rarely("cache_index_and_filter_blocks", 2);
    table.rarely("pin_l0_filter_and_index_blocks_in_cache", 3);
    table.rarely("block_align", if compressed || at_bottom { 0 } else { 3 });
    table.rarely("enable_index_compression", 2);
    table.rarely("separate_key_value_in_data_block", 4);
    table.rarely("verify_compression", 4);
    table.one("index_shortening", &["kNoShortening", "kShortenSeparators", "kShortenSeparatorsAndSuccessor"]);
    table.one("prepopulate_block_cache", &["kDisable", "kDisable", "kFlushOnly", "kFlushAndCompaction"]);
    let table = table.text;
    let _ = write!(draws.text, "block_based_table_factory={{{table}}};");
    draws.text
}

/// Returns true if the file system of a folder supports direct I/O.
pub(crate) fn takes_direct_io(folder: &Path) -> bool {
    let probe = folder.join("direct");
    let taken = Env::posix().fs().create_direct(&probe).is_ok();
    let _ = std::fs::remove_file(probe);
    taken
}

/// Draws a change of an option for the open database: of a family, or of the database if `None`.
pub(crate) fn change(random: &mut Random, families: usize) -> (Option<usize>, &'static str, &'static str) {
    const OF_DATABASE: [(&str, &[&str]); 4] = [
        ("max_background_jobs", &["2", "4", "6"]),
        ("max_total_wal_size", &["0", "500000"]),
        ("bytes_per_sync", &["0", "100000"]),
        ("wal_bytes_per_sync", &["0", "100000"]),
    ];
    const OF_FAMILY: [(&str, &[&str]); 9] = [
        ("write_buffer_size", &["65536", "262144", "1048576"]),
        ("max_write_buffer_number", &["2", "4"]),
        ("level0_file_num_compaction_trigger", &["2", "4"]),
        ("target_file_size_base", &["30000", "200000"]),
        ("max_bytes_for_level_base", &["100000", "1000000"]),
        ("paranoid_file_checks", &["false", "true"]),
        ("enable_blob_files", &["false", "true"]),
        ("enable_blob_garbage_collection", &["false", "true"]),
        ("memtable_max_range_deletions", &["0", "30"]),
    ];
    let (family, table) = match random.one_in(3) {
        true => (None, &OF_DATABASE[..]),
        false => (Some(random.index(families)), &OF_FAMILY[..]),
    };
    let (name, values) = random.pick(table);
    (family, name, random.pick::<&str>(values))
}

#[cfg(test)]
mod tests {
    use super::super::extras::kept_families;
    use super::*;
    use karst_engine::Db;

    const SHAPE: Shape = Shape { seed: 11, families: 2, lanes: 1, rows: 128 };

    #[test]
    fn a_seed_draws_the_same_options_and_all_are_drawn_in_time() {
        let flags = Flags::default();
        let of = |seed, life| Drawn::of(&Shape { seed, ..SHAPE }, &flags, life, true, false);
        assert_eq!(of(3, 4), of(3, 4));
        assert_ne!(of(3, 4), of(3, 5));
        assert_ne!(of(3, 4), of(4, 4));
        let all: Vec<Drawn> = (0..300).map(|life| of(1, life)).collect();
        let some = |text: &str| all.iter().filter(|drawn| drawn.text().contains(text)).count();
        for wanted in ["front: plain", "front: optimistic", "front: locking", "front: write_prepared"] {
            assert!(some(wanted) > 20, "{wanted}");
        }
        for name in
            ["unordered_write", "atomic_flush", "allow_mmap_writes", "use_direct_reads", "manual_wal_flush"]
        {
            assert!(some(&format!("{name}=true")) > 20, "{name}");
        }
        assert!(some("one_memory_budget true") > 20 && some("rate limit: Some") > 20);
        let styles: Vec<_> = all.iter().map(|drawn| drawn.families[0].split(';').next()).collect();
        assert!(styles.windows(2).all(|two| two[0] == two[1]), "the shape of the tree changes");
    }

    /// No draw has options that exclude each other: one database opens with each draw in turn.
    #[test]
    fn a_database_opens_with_all_that_is_drawn() {
        let flags = Flags::default();
        for seed in 0..3 {
            let directory = tempfile::tempdir().unwrap();
            let shape = Shape { seed, ..SHAPE };
            let direct = takes_direct_io(directory.path());
            let timestamps = seed == 1;
            for life in 0..40 {
                let drawn = Drawn::of(&shape, &flags, life, direct, timestamps);
                let options = drawn.options(&flags).unwrap();
                let names = [&["default", "family1"], kept_families(timestamps)].concat();
                let db = Db::open_cf(directory.path(), &options, &names)
                    .unwrap_or_else(|e| panic!("seed {seed}, life {life}: {e}\n{}", drawn.text()));
                let family = db.column_family("family1").unwrap();
                let mut random = Random::of(&[seed, life]);
                match change(&mut random, 1) {
                    (None, name, value) => db.set_db_options(&[(name, value)]).unwrap(),
                    (Some(_), name, value) => db.set_options(&family, &[(name, value)]).unwrap(),
                }
                let further = drawn.further_family(life).unwrap();
                let further = db.create_column_family("further", &further).unwrap();
                db.drop_column_family(&further).unwrap();
                db.close().unwrap();
            }
        }
    }

    #[test]
    fn what_the_command_line_says_goes_before_what_is_drawn() {
        let mut flags = Flags::default();
        flags.options.push(("write_buffer_size".into(), "777777".into()));
        let directory = tempfile::tempdir().unwrap();
        let options = Drawn::of(&SHAPE, &flags, 0, false, false).options(&flags).unwrap();
        let names = [&["default", "family1"], kept_families(false)].concat();
        let db = Db::open_cf(directory.path(), &options, &names).unwrap();
        for family in db.column_families() {
            assert_eq!(db.get_options(&family).unwrap().write_buffer_size, 777_777);
        }
    }
}
