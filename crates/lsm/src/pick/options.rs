//! The options that compaction decisions depend on, made consistent.
//!
//! In: a family's options as the user set them. Out: the options after the corrections that RocksDB
//! makes when it opens a family: zeros that stand for "choose a default" are replaced, and
//! contradictions are resolved.
//!
//! Callers: the engine, whenever a family's options are set; the result is passed to every
//! decision.

use super::offpeak::Offpeak;
use karst_format::options::choice::{CompactionStyle, Compression};
use karst_format::options::nested::CompressionOptions;
use karst_format::options::{ColumnFamilyOptions, DbOptions};

/// RocksDB's 0xfffffffffffffffe: not set by the user.
const DECIDE: u64 = u64::MAX - 1;
const THIRTY_DAYS_S: u64 = 30 * 24 * 60 * 60;

/// Options that picks depend on. Cheap to share, not to construct.
#[derive(Clone, Debug)]
pub struct CompactionOptions {
    /// The family's options, consistent.
    pub family: ColumnFamilyOptions,
    /// Maximum number of subcompactions of one compaction.
    pub max_subcompactions: u32,
    /// True if the last level is reserved for files that are ingested behind all others.
    pub allow_ingest_behind: bool,
    /// Daily time at which the database is little used.
    pub offpeak: Option<Offpeak>,
    /// Target bytes of each path, by path id. Never empty; the last path takes all files that fit
    /// nowhere else.
    pub path_target_sizes: Vec<u64>,
}

impl CompactionOptions {
    /// Makes the options consistent. An empty `path_target_sizes` stands for all files in the
    /// database's directory.
    pub fn new(
        db: &DbOptions,
        family: &ColumnFamilyOptions,
        path_target_sizes: Vec<u64>,
    ) -> CompactionOptions {
        let mut paths = path_target_sizes;
        if paths.is_empty() {
            paths.push(u64::MAX);
        }
        let mut family = family.clone();
        settle_levels(&mut family, db.allow_ingest_behind, paths.len());
        settle_triggers(&mut family);
        settle_ages(&mut family);
        let allow_ingest_behind = db.allow_ingest_behind || family.cf_allow_ingest_behind;
        CompactionOptions {
            family,
            max_subcompactions: db.max_subcompactions.max(1),
            allow_ingest_behind,
            // A text that is not a time was rejected when it was set.
            offpeak: Offpeak::parse(&db.daily_offpeak_time_utc).unwrap_or_default(),
            path_target_sizes: paths,
        }
    }

    /// Returns the number of levels of a tree with these options.
    pub fn level_count(&self) -> usize {
        // `settle_levels` has made it positive, and the option's own range bounds it.
        usize::try_from(self.family.num_levels).unwrap_or(1)
    }

    /// Returns the last level if it is reserved for files that are ingested behind all others.
    /// Trees of fewer than three levels reserve none.
    pub fn reserved_level(&self) -> Option<usize> {
        self.reserved_of(self.level_count())
    }

    /// Returns the reserved level of a tree with `level_count` levels.
    pub(crate) fn reserved_of(&self, level_count: usize) -> Option<usize> {
        (self.allow_ingest_behind && level_count > 2).then(|| level_count - 1)
    }

    /// Returns true if leveled compaction sizes its levels from the last one upwards.
    pub fn dynamic_level_bytes(&self) -> bool {
        self.family.level_compaction_dynamic_level_bytes
    }

    /// Returns true if a compaction filter is set.
    pub fn has_compaction_filter(&self) -> bool {
        self.family.compaction_filter.id().is_some() || self.family.compaction_filter_factory.id().is_some()
    }

    /// Returns the size in bytes at which files of `level` are cut. `base_level` is that of leveled
    /// compaction with dynamic level bytes.
    pub fn target_file_size(&self, level: usize, base_level: Option<usize>) -> u64 {
        let steps = match base_level {
            Some(base) if self.dynamic_level_bytes() && level >= base => level - base,
            _ => level,
        };
        if steps == 0 && self.family.compaction_style == CompactionStyle::Universal {
            return u64::MAX;
        }
        let multiplier = u64::try_from(self.family.target_file_size_multiplier).unwrap_or(1).max(1);
        (1..steps).fold(self.family.target_file_size_base, |size, _| size.saturating_mul(multiplier))
    }

    /// Returns the path that `level` of a leveled tree is written to: the first one that has room
    /// for it behind the levels above it.
    pub fn path_of_level(&self, level: usize) -> u8 {
        let paths = &self.path_target_sizes;
        let family = &self.family;
        // L0 is assumed to be as large as L1.
        let mut size = family.max_bytes_for_level_base;
        let (mut path, mut at) = (0, 0);
        let mut left = paths[0];
        while path + 1 < paths.len() {
            if size > left {
                path += 1;
                left = paths[path];
                continue;
            }
            if at == level {
                break;
            }
            left -= size;
            if at > 0 {
                let more = family.max_bytes_for_level_multiplier_additional.get(at).copied().unwrap_or(1);
                size = scaled(size, family.max_bytes_for_level_multiplier * f64::from(more));
            }
            at += 1;
        }
        u8::try_from(path).unwrap_or(u8::MAX)
    }

    /// Returns the compression of files on `level`, in a tree whose deepest non-empty level is
    /// `deepest` (`None` for an empty tree).
    pub fn compression(&self, level: usize, base_level: usize, deepest: Option<usize>) -> Compression {
        let family = &self.family;
        let bottommost = deepest.is_none_or(|deepest| level >= deepest);
        if bottommost && family.bottommost_compression != Compression::Disable {
            return family.bottommost_compression;
        }
        let index = if level == 0 { 0 } else { (level + 1).saturating_sub(base_level) };
        let per_level = family.compression_per_level.get(index).or(family.compression_per_level.last());
        per_level.copied().unwrap_or(family.compression)
    }

    /// Returns the options of the compression library on `level`.
    pub fn compression_options(&self, level: usize, deepest: Option<usize>) -> &CompressionOptions {
        let bottommost = deepest.is_none_or(|deepest| level >= deepest);
        if bottommost && self.family.bottommost_compression_opts.enabled {
            return &self.family.bottommost_compression_opts;
        }
        &self.family.compression_opts
    }
}

/// Returns `size` times `factor`, rounded down. Saturates; 0 for a factor that is not positive.
pub(crate) fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor) as u64
}

fn settle_levels(family: &mut ColumnFamilyOptions, ingest_behind: bool, paths: usize) {
    let fewest = match family.compaction_style {
        CompactionStyle::Level => 2,
        CompactionStyle::Universal if ingest_behind || family.cf_allow_ingest_behind => 3,
        _ => 1,
    };
    family.num_levels = family.num_levels.max(fewest);
    // Compat: RocksDB too sizes several paths by static targets only.
    if family.compaction_style != CompactionStyle::Level || paths > 1 {
        family.level_compaction_dynamic_level_bytes = false;
    }
    if !family.max_bytes_for_level_multiplier.is_finite() || family.max_bytes_for_level_multiplier <= 0.0 {
        family.max_bytes_for_level_multiplier = 1.0;
    }
    let sized_by_ratio = family.compaction_style == CompactionStyle::Fifo
        && family.compaction_options_fifo.use_kv_ratio_compaction;
    if family.max_compaction_bytes == 0 && !sized_by_ratio {
        family.max_compaction_bytes = family.target_file_size_base.saturating_mul(25);
    }
}

fn settle_triggers(family: &mut ColumnFamilyOptions) {
    if family.compaction_style == CompactionStyle::Fifo {
        family.level0_slowdown_writes_trigger = i32::MAX;
        family.level0_stop_writes_trigger = i32::MAX;
    }
    if family.level0_file_num_compaction_trigger == 0 {
        family.level0_file_num_compaction_trigger = 1;
    }
    family.level0_slowdown_writes_trigger =
        family.level0_slowdown_writes_trigger.max(family.level0_file_num_compaction_trigger);
    family.level0_stop_writes_trigger =
        family.level0_stop_writes_trigger.max(family.level0_slowdown_writes_trigger);
    let (soft, hard) =
        (family.soft_pending_compaction_bytes_limit, family.hard_pending_compaction_bytes_limit);
    if soft == 0 || (hard > 0 && soft > hard) {
        family.soft_pending_compaction_bytes_limit = hard;
    }
    family.max_write_buffer_number = family.max_write_buffer_number.max(2);
    let most = family.max_write_buffer_number - 1;
    family.min_write_buffer_number_to_merge = family.min_write_buffer_number_to_merge.min(most).max(1);
}

fn settle_ages(family: &mut ColumnFamilyOptions) {
    if family.ttl == DECIDE {
        family.ttl = THIRTY_DAYS_S;
    }
    let filtered = family.compaction_filter.id().is_some() || family.compaction_filter_factory.id().is_some();
    let periodic = &mut family.periodic_compaction_seconds;
    let undecided = *periodic == DECIDE;
    match family.compaction_style {
        CompactionStyle::Level if undecided && filtered => *periodic = THIRTY_DAYS_S,
        CompactionStyle::Universal => {
            if undecided {
                *periodic = THIRTY_DAYS_S;
            }
            // Both options have one meaning here, so the stricter one applies.
            if *periodic == 0 || (family.ttl != 0 && family.ttl < *periodic) {
                *periodic = family.ttl;
            }
        }
        _ if undecided => *periodic = 0,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_format::options::OptionSet;

    fn settled(text: &str) -> CompactionOptions {
        let mut family = ColumnFamilyOptions::default();
        family.set_all(text).unwrap();
        CompactionOptions::new(&DbOptions::default(), &family, Vec::new())
    }

    #[test]
    fn what_is_left_to_us_is_decided() {
        let options = settled("target_file_size_base=8M");
        assert_eq!(options.family.max_compaction_bytes, 200 << 20);
        assert_eq!(options.family.ttl, THIRTY_DAYS_S);
        assert_eq!(options.family.periodic_compaction_seconds, 0);
        assert!(options.dynamic_level_bytes());
        let filtered = settled("compaction_filter_factory=my.Factory");
        assert_eq!(filtered.family.periodic_compaction_seconds, THIRTY_DAYS_S);
        let universal = settled("compaction_style=kCompactionStyleUniversal;ttl=77");
        assert_eq!(universal.family.periodic_compaction_seconds, 77);
        assert!(!universal.dynamic_level_bytes());
        let universal =
            settled("compaction_style=kCompactionStyleUniversal;ttl=0;periodic_compaction_seconds=5");
        assert_eq!(universal.family.periodic_compaction_seconds, 5);
    }

    #[test]
    fn contradictions_are_settled() {
        let options = settled(
            "level0_file_num_compaction_trigger=30;num_levels=1;\
             soft_pending_compaction_bytes_limit=9;hard_pending_compaction_bytes_limit=5",
        );
        let family = &options.family;
        assert_eq!((family.level0_slowdown_writes_trigger, family.level0_stop_writes_trigger), (30, 36));
        assert_eq!(options.level_count(), 2);
        assert_eq!(family.soft_pending_compaction_bytes_limit, 5);
        let fifo = settled("compaction_style=kCompactionStyleFIFO;num_levels=1");
        assert_eq!(fifo.family.level0_stop_writes_trigger, i32::MAX);
        assert_eq!(fifo.level_count(), 1);
    }

    #[test]
    fn several_paths_have_static_levels() {
        let family = ColumnFamilyOptions::default();
        let options = CompactionOptions::new(&DbOptions::default(), &family, vec![1 << 30, u64::MAX]);
        assert!(!options.dynamic_level_bytes());
    }

    #[test]
    fn file_sizes_grow_from_the_base_level() {
        let options = settled("target_file_size_base=1M;target_file_size_multiplier=2");
        let sizes: Vec<u64> = (3..7).map(|level| options.target_file_size(level, Some(3)) >> 20).collect();
        assert_eq!(sizes, [1, 1, 2, 4]);
        let universal = settled("compaction_style=kCompactionStyleUniversal");
        assert_eq!(universal.target_file_size(0, None), u64::MAX);
        assert_eq!(universal.target_file_size(1, None), 64 << 20);
    }

    #[test]
    fn compression_is_chosen_by_level() {
        let options = settled(
            "compression_per_level=kNoCompression:kSnappyCompression:kZSTD;bottommost_compression=kLZ4Compression",
        );
        let chosen = |level| options.compression(level, 3, Some(6));
        assert_eq!(chosen(0), Compression::None);
        assert_eq!(chosen(3), Compression::Snappy);
        assert_eq!(chosen(4), Compression::Zstd);
        assert_eq!(chosen(5), Compression::Zstd);
        assert_eq!(chosen(6), Compression::Lz4);
        assert_eq!(options.compression(0, 3, None), Compression::Lz4);
    }
}
