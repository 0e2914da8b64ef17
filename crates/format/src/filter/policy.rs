//! Filter policies: the kind of filter that a new table gets, and its notation in options.
//!
//! | option string | older name | meaning |
//! |---|---|---|
//! | `bloomfilter:BITS:false` | `rocksdb.BloomFilter:BITS` | Bloom with BITS bits a key; `:true` once selected a filter that is no longer built, and means the same |
//! | `ribbonfilter:BITS:LEVEL` | `rocksdb.RibbonFilter:BITS` | Ribbon as accurate as that Bloom filter, on levels from LEVEL on; Bloom on levels below LEVEL |
//! | | `rocksdb.internal.DeprecatedBlockBasedBloomFilter:BITS`, `rocksdb.internal.LegacyBloomFilter:BITS`, `rocksdb.internal.FastLocalBloomFilter:BITS` | Bloom with BITS bits a key; the layout named is ignored |
//! | | `rocksdb.internal.Standard128RibbonFilter:BITS` | Ribbon on all levels |
//! | `rocksdb.BuiltinBloomFilter` | | reads filters, builds none (in OPTIONS files of old releases) |
//! | `nullptr` or nothing | | no policy: filters are not read either |
//!
//! OPTIONS files may use the form `{id=ribbonfilter:10:-1;bloom_before_level=-1;}`. Specified by
//! RocksDB's table/block_based/filter_policy.cc. All policies read all built-in filters.

use super::bits_per_key::BitsPerKey;
use super::builder::{Construction, FilterBitsBuilder};
use crate::corruption::Corruption;

/// Properties of the table that a filter is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterContext {
    /// The table's format_version.
    pub format_version: u32,
    /// Level that the table is written to, -1 for a flushed memtable; `None` if it is unknown or
    /// does not matter (FIFO).
    pub level: Option<i32>,
}

/// Kind of the filters in new tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterPolicy {
    /// Bloom filters: fast local from format_version 5 on, legacy before.
    Bloom(BitsPerKey),
    /// Ribbon filters as accurate as Bloom filters of this size, on levels from
    /// `bloom_before_level` on.
    Ribbon {
        /// Size of the equally accurate Bloom filter.
        bits_per_key: BitsPerKey,
        /// Bloom filters are built on levels below this one (-1 stands for flushes, `i32::MAX` for
        /// all).
        bloom_before_level: i32,
    },
    /// No filters are built, existing ones are read.
    ReadOnly,
}

impl FilterPolicy {
    /// Returns a Bloom policy.
    #[must_use]
    pub fn bloom(bits_per_key: f64) -> FilterPolicy {
        FilterPolicy::Bloom(BitsPerKey::new(bits_per_key))
    }

    /// Returns a Ribbon policy; RocksDB's default for `bloom_before_level` is 0: Bloom for flushes,
    /// Ribbon for compactions.
    #[must_use]
    pub fn ribbon(bits_per_key: f64, bloom_before_level: i32) -> FilterPolicy {
        FilterPolicy::Ribbon { bits_per_key: BitsPerKey::new(bits_per_key), bloom_before_level }
    }

    /// Parses an option string or the name in an OPTIONS file; `None` if it stands for no policy.
    ///
    /// # Errors
    /// If the policy is not one of RocksDB's, or is malformed.
    pub fn from_option_string(text: &str) -> Result<Option<FilterPolicy>, Corruption> {
        let text = text.trim();
        let unknown = || Corruption::new(format!("unknown filter policy `{text}`"), 0u64);
        if let Some(fields) = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')) {
            return Self::from_fields(fields)?.map_or_else(|| Err(unknown()), Ok);
        }
        match text {
            "" | "nullptr" => return Ok(None),
            super::COMPATIBILITY_NAME => return Ok(Some(FilterPolicy::ReadOnly)),
            _ => {}
        }
        if text.starts_with("id=") {
            return Self::from_fields(text)?.map_or_else(|| Err(unknown()), Ok);
        }
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let bits = parts.next().and_then(parse_bits).ok_or_else(unknown)?;
        let (last, more) = (parts.next(), parts.next());
        let policy = match (name, last) {
            ("bloomfilter" | "rocksdb.BloomFilter", None | Some("false" | "true")) => {
                FilterPolicy::bloom(bits)
            }
            (
                "rocksdb.internal.DeprecatedBlockBasedBloomFilter"
                | "rocksdb.internal.LegacyBloomFilter"
                | "rocksdb.internal.FastLocalBloomFilter",
                None,
            ) => FilterPolicy::bloom(bits),
            ("ribbonfilter" | "rocksdb.RibbonFilter", None) => FilterPolicy::ribbon(bits, 0),
            ("rocksdb.internal.Standard128RibbonFilter", None) => FilterPolicy::ribbon(bits, -1),
            ("ribbonfilter" | "rocksdb.RibbonFilter", Some(level)) => {
                FilterPolicy::ribbon(bits, level.parse().map_err(|_| unknown())?)
            }
            _ => return Err(unknown()),
        };
        if more.is_some() { Err(unknown()) } else { Ok(Some(policy)) }
    }

    /// Parses `id=...;bloom_before_level=...;`.
    fn from_fields(fields: &str) -> Result<Option<Option<FilterPolicy>>, Corruption> {
        let mut policy = None;
        let mut level = None;
        for field in fields.split(';').map(str::trim).filter(|f| !f.is_empty()) {
            match field.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
                Some(("id", id)) if !id.starts_with("id=") && !id.starts_with('{') => {
                    policy = Some(Self::from_option_string(id)?);
                }
                Some(("bloom_before_level", number)) => level = number.parse::<i32>().ok(),
                _ => return Ok(None),
            }
        }
        if let (Some(Some(FilterPolicy::Ribbon { bloom_before_level, .. })), Some(level)) =
            (&mut policy, level)
        {
            *bloom_before_level = level;
        }
        Ok(policy)
    }

    /// Returns the option string that RocksDB writes for the policy.
    #[must_use]
    pub fn to_option_string(&self) -> String {
        match self {
            FilterPolicy::Bloom(bits) => format!("bloomfilter:{bits}:false"),
            FilterPolicy::Ribbon { bits_per_key, bloom_before_level } => {
                format!("ribbonfilter:{bits_per_key}:{bloom_before_level}")
            }
            FilterPolicy::ReadOnly => super::COMPATIBILITY_NAME.to_owned(),
        }
    }

    /// Returns the name that the table property `rocksdb.filter.policy` records. (The metaindex has
    /// [`super::COMPATIBILITY_NAME`].)
    #[must_use]
    pub fn property_name(&self) -> &'static str {
        match self {
            FilterPolicy::Bloom(_) => "bloomfilter",
            FilterPolicy::Ribbon { .. } => "ribbonfilter",
            FilterPolicy::ReadOnly => super::COMPATIBILITY_NAME,
        }
    }

    /// Returns a builder for one filter, or for one partition after the other; `None` if the policy
    /// builds none.
    #[must_use]
    pub fn builder(&self, context: FilterContext) -> Option<FilterBitsBuilder> {
        let (bits, bloom_before_level) = match *self {
            FilterPolicy::Bloom(bits) => (bits, None),
            FilterPolicy::Ribbon { bits_per_key, bloom_before_level } => {
                (bits_per_key, Some(bloom_before_level))
            }
            FilterPolicy::ReadOnly => return None,
        };
        if bits.milli() == 0 {
            return None;
        }
        // Compat: an unknown level counts as the last one, so only a policy with
        // `bloom_before_level` `i32::MAX` builds Bloom.
        let level = context.level.unwrap_or(i32::MAX - 1);
        let construction = match bloom_before_level {
            None if context.format_version < 5 => Construction::LegacyBloom(bits),
            Some(before) if level >= before => Construction::Ribbon(bits),
            _ => Construction::FastBloom(bits),
        };
        Some(FilterBitsBuilder::new(construction))
    }
}

/// Parses a decimal number; RocksDB accepts no sign and no exponent.
fn parse_bits(text: &str) -> Option<f64> {
    let plain =
        text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.contains(|c: char| c.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_strings() {
        for (text, policy, back) in [
            ("bloomfilter:10:false", FilterPolicy::bloom(10.0), "bloomfilter:10:false"),
            ("bloomfilter:10:true", FilterPolicy::bloom(10.0), "bloomfilter:10:false"),
            ("bloomfilter:9.9", FilterPolicy::bloom(9.9), "bloomfilter:9.9:false"),
            ("rocksdb.BloomFilter:4.567:false", FilterPolicy::bloom(4.567), "bloomfilter:4.567:false"),
            ("bloomfilter:0.5", FilterPolicy::bloom(1.0), "bloomfilter:1:false"),
            ("bloomfilter:0.4", FilterPolicy::bloom(0.0), "bloomfilter:0:false"),
            ("bloomfilter:1000", FilterPolicy::bloom(100.0), "bloomfilter:100:false"),
            ("ribbonfilter:10", FilterPolicy::ribbon(10.0, 0), "ribbonfilter:10:0"),
            ("ribbonfilter:10.25:-1", FilterPolicy::ribbon(10.25, -1), "ribbonfilter:10.25:-1"),
            ("rocksdb.RibbonFilter:3:8", FilterPolicy::ribbon(3.0, 8), "ribbonfilter:3:8"),
            (
                "{id=ribbonfilter:10:-1;bloom_before_level=5;}",
                FilterPolicy::ribbon(10.0, 5),
                "ribbonfilter:10:5",
            ),
            (
                "rocksdb.internal.DeprecatedBlockBasedBloomFilter:10",
                FilterPolicy::bloom(10.0),
                "bloomfilter:10:false",
            ),
            ("rocksdb.internal.LegacyBloomFilter:5.5", FilterPolicy::bloom(5.5), "bloomfilter:5.5:false"),
            ("id=bloomfilter:12:false", FilterPolicy::bloom(12.0), "bloomfilter:12:false"),
            ("rocksdb.BuiltinBloomFilter", FilterPolicy::ReadOnly, "rocksdb.BuiltinBloomFilter"),
        ] {
            let parsed = FilterPolicy::from_option_string(text).unwrap().unwrap();
            assert_eq!(parsed, policy, "{text}");
            assert_eq!(parsed.to_option_string(), back);
            assert_eq!(FilterPolicy::from_option_string(back).unwrap(), Some(policy));
        }
        assert_eq!(FilterPolicy::from_option_string("nullptr").unwrap(), None);
        assert_eq!(FilterPolicy::from_option_string("").unwrap(), None);
        for bad in [
            "bloomfilter",
            "bloomfilter:",
            "bloomfilter:x",
            "bloomfilter:1e3",
            "bloomfilter:10:maybe",
            "bloomfilter:10:false:1",
            "ribbonfilter:10:x",
            "ribbonfilter:10:1:2",
            "myfilter:10",
            "{}",
            "{id={id={}}}",
            "{bloom_before_level=3}",
            "{id=bloomfilter:10;color=red}",
            "id=id=id=bloomfilter:10",
        ] {
            assert!(FilterPolicy::from_option_string(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rounding() {
        assert_eq!(BitsPerKey::new(f64::NAN).milli(), 100_000);
        assert_eq!(BitsPerKey::new(-1.0).milli(), 0);
        assert_eq!(BitsPerKey::new(9.5).whole(), 10);
        assert_eq!(BitsPerKey::new(7.499_999_999_999_9).whole(), 8);
        assert_eq!(BitsPerKey::new(7.499).whole(), 7);
    }

    #[test]
    fn which_filter_is_built() {
        let built = |policy: FilterPolicy, format_version, level| {
            let mut builder = policy.builder(FilterContext { format_version, level })?;
            (0..3000u32).for_each(|i| builder.add_key(&i.to_le_bytes()));
            let block = builder.finish();
            Some(block[block.len() - 5])
        };
        assert_eq!(built(FilterPolicy::ReadOnly, 6, None), None);
        assert_eq!(built(FilterPolicy::bloom(0.0), 6, None), None);
        assert_eq!(built(FilterPolicy::bloom(10.0), 6, Some(3)), Some(0xff));
        assert_eq!(built(FilterPolicy::bloom(10.0), 4, Some(3)), Some(6));
        for (before, level, marker) in [
            (0, Some(-1), 0xff),
            (0, Some(0), 0xfe),
            (-1, Some(-1), 0xfe),
            (3, Some(2), 0xff),
            (3, Some(3), 0xfe),
            (3, None, 0xfe),
            (i32::MAX, None, 0xff),
        ] {
            assert_eq!(
                built(FilterPolicy::ribbon(10.0, before), 4, level),
                Some(marker),
                "{before} {level:?}"
            );
        }
    }
}
