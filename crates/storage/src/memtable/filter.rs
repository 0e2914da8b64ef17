//! The filter of a memtable: lets lookups skip a memtable that does not have the key.
//!
//! In: the user keys added, and those looked up. Out: true if the memtable may have a key.
//! Invariant: a key is added to the filter before the memtable.

use karst_base::options::FamilyConfig;
use karst_base::perf_context::{self, PerfMetric};
use karst_format::filter::hash64;
use karst_format::slice_transform::PrefixExtractor;
use karst_mem::Bloom;

/// A Bloom filter of whole keys, prefixes, or both.
#[derive(Debug)]
pub(super) struct Filter {
    bloom: Bloom,
    whole_keys: bool,
    prefixes: Option<PrefixExtractor>,
}

impl Filter {
    /// Compat: `memtable_prefix_bloom_size_ratio` is capped at 0.25; without a prefix extractor and
    /// `memtable_whole_key_filtering` there is no filter.
    pub(super) fn of(config: &FamilyConfig) -> Option<Self> {
        let options = &config.options;
        let part = options.memtable_prefix_bloom_size_ratio.min(0.25);
        let whole_keys = options.memtable_whole_key_filtering;
        let prefixes = config.prefix_extractor.clone();
        let bytes = (options.write_buffer_size as f64 * part) as usize;
        let filters = part > 0.0 && (whole_keys || prefixes.is_some());
        filters.then(|| Self { bloom: Bloom::new(bytes), whole_keys, prefixes })
    }

    #[inline]
    pub(super) fn add(&self, user_key: &[u8]) {
        if let Some(prefix) = self.prefixes.as_ref().and_then(|prefixes| prefixes.prefix(user_key)) {
            self.bloom.add(hash64(prefix));
        }
        if self.whole_keys {
            self.bloom.add(hash64(user_key));
        }
    }

    #[inline]
    pub(super) fn may_hold(&self, user_key: &[u8]) -> bool {
        let asked = match &self.prefixes {
            _ if self.whole_keys => Some(user_key),
            Some(prefixes) => prefixes.prefix(user_key),
            None => None,
        };
        let Some(asked) = asked else { return true };
        let may = self.bloom.may_contain(hash64(asked));
        let counted =
            if may { PerfMetric::BloomMemtableHitCount } else { PerfMetric::BloomMemtableMissCount };
        perf_context::count(counted, 1);
        may
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bloom.memory_bytes()
    }
}
