//! Level targets: the target size of each level, and the level that L0 is compacted into.
//!
//! In: a version and its family's options. Out: [`LevelTargets`].
//!
//! With `level_compaction_dynamic_level_bytes` the targets follow from the size of the largest
//! level: each level above the last is smaller by the multiplier, up to the first one that would be
//! no larger than `max_bytes_for_level_base`. That one is the base level; those between L0 and it
//! stay empty. Thus nine tenths of the data are on the last level for any amount of data, and space
//! amplification stays near 1.1.

use super::options::{CompactionOptions, scaled};
use crate::version::Version;
use karst_format::options::choice::CompactionStyle;

/// Target sizes of a tree's levels, and the level that L0 is compacted into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTargets {
    /// The level that L0 is compacted into; `None` unless compaction is leveled.
    pub base_level: Option<usize>,
    /// Maximum bytes of each level, by level; `u64::MAX` for a level without limit. L0's is not
    /// used.
    pub max_bytes: Vec<u64>,
    /// Dynamic levels only: the deepest level that the data does not need; it and the levels
    /// between it and L0 are drained.
    pub lowest_unnecessary: Option<usize>,
}

impl LevelTargets {
    /// Returns the targets of `version`'s levels.
    pub fn new(version: &Version, options: &CompactionOptions) -> LevelTargets {
        let count = version.levels().len().max(options.level_count());
        // The last level has no target if no compaction writes to it.
        let count = options.reserved_of(count).unwrap_or(count);
        if options.dynamic_level_bytes() {
            let sizes: Vec<u64> = (0..count)
                .map(|level| version.levels().get(level).map_or(0, |files| files.size_bytes()))
                .collect();
            return dynamic(&sizes, options);
        }
        let leveled = options.family.compaction_style == CompactionStyle::Level;
        LevelTargets {
            base_level: leveled.then_some(1),
            max_bytes: fixed(count, options),
            lowest_unnecessary: None,
        }
    }

    /// Returns the target of one level.
    pub fn of(&self, level: usize) -> u64 {
        self.max_bytes.get(level).copied().unwrap_or(u64::MAX)
    }
}

fn fixed(count: usize, options: &CompactionOptions) -> Vec<u64> {
    let family = &options.family;
    let mut sizes = vec![family.max_bytes_for_level_base; count];
    for level in 2..count {
        let more = family.max_bytes_for_level_multiplier_additional.get(level - 1).copied().unwrap_or(1);
        let size = scaled(sizes[level - 1], family.max_bytes_for_level_multiplier);
        sizes[level] = scaled(size, f64::from(more));
    }
    sizes
}

/// Returns `size` divided by `divisor`, rounded down. The options' consistency makes it positive.
fn shrunk(size: u64, divisor: f64) -> u64 {
    (size as f64 / divisor) as u64
}

fn dynamic(sizes: &[u64], options: &CompactionOptions) -> LevelTargets {
    let count = sizes.len();
    let mut max_bytes = vec![u64::MAX; count];
    let largest = sizes[1..].iter().copied().max().unwrap_or(0);
    let first_non_empty = (1..count).find(|&level| sizes[level] > 0);
    let Some(first_non_empty) = first_non_empty else {
        // All levels below L0 are empty, so it is compacted into the last level directly.
        return LevelTargets { base_level: Some(count - 1), max_bytes, lowest_unnecessary: None };
    };
    let multiplier = options.family.max_bytes_for_level_multiplier;
    let base_bytes_max = options.family.max_bytes_for_level_base;
    let base_bytes_min = shrunk(base_bytes_max, multiplier);

    // The target of the first non-empty level if the last level's target were the size of the
    // largest level.
    let mut size = largest;
    let mut lowest_unnecessary = None;
    for level in (first_non_empty..count - 1).rev() {
        size = shrunk(size, multiplier);
        if lowest_unnecessary.is_none() && size <= base_bytes_min {
            lowest_unnecessary = Some(level);
        }
    }
    let mut base_level = first_non_empty;
    let base_size = if size <= base_bytes_min {
        base_bytes_min + 1
    } else {
        while base_level > 1 && size > base_bytes_max {
            base_level -= 1;
            size = shrunk(size, multiplier);
        }
        size.clamp(1, base_bytes_max.max(1))
    };
    let mut size = base_size;
    for (level, target) in max_bytes.iter_mut().enumerate().skip(base_level) {
        if level > base_level {
            size = scaled(size, multiplier);
        }
        // A level with a target below L0's limit would take precedence over L0, and L0 would fill
        // up.
        *target = size.max(base_bytes_max);
    }
    LevelTargets { base_level: Some(base_level), max_bytes, lowest_unnecessary }
}
