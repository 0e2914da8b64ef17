//! RocksDB's `CompactOnDeletionCollector`: marks tables with many deletions for compaction when
//! they are written.
//!
//! In: its options, as RocksDB writes them in OPTIONS; then each entry of a table. Out: true if the
//! table needs compaction.
//! Compat: RocksDB's other built-in collector, `CompactForTieringCollector`, is accepted without
//! effect. Any other collector is user code that no file holds; a database whose OPTIONS name one
//! opens, and its new tables are written without it.

use crate::error::Result;
use crate::table_properties_collector::{
    CollectedEntry, TablePropertiesCollector, TablePropertiesCollectorContext,
    TablePropertiesCollectorFactory, UserCollectedProperties,
};
use karst_format::key::ValueType;
use karst_format::options::{Object, text};
use std::fmt::Write as _;

/// The rule that marks a table for compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompactOnDeletion {
    /// Number of consecutive entries in the window; rounded up to a multiple of 128. 0 disables the
    /// window.
    pub window_size: u64,
    /// Number of deletions in the window that marks the table.
    pub deletion_trigger: u64,
    /// Share of deletions among all entries that marks the table; above 0 and at most 1, other
    /// values disable it.
    pub deletion_ratio: f64,
    /// Minimum file size, in bytes, of a table that may be marked.
    pub min_file_size: u64,
}

impl CompactOnDeletion {
    /// RocksDB's name of the collector.
    pub const NAME: &str = "CompactOnDeletionCollector";

    /// The value of the option `table_properties_collectors`.
    #[must_use]
    pub fn option_text(&self) -> String {
        let mut text = format!("{{id={};window_size={}", Self::NAME, self.window_size);
        let _ = write!(text, ";deletion_trigger={}", self.deletion_trigger);
        let _ = write!(text, ";deletion_ratio={:.6}", self.deletion_ratio);
        let _ = write!(text, ";min_file_size={};}}", self.min_file_size);
        text
    }

    /// Parses a value of the option; `None` if it names no collector, or another one.
    #[must_use]
    pub fn from_option_text(text: &str) -> Option<CompactOnDeletion> {
        let mut inner = text.trim();
        while let Some(less) = inner.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            inner = less;
        }
        let mut collector = CompactOnDeletion::default();
        let mut named = inner == Self::NAME;
        for part in inner.split(';').map(str::trim).filter(|part| !part.is_empty() && part.contains('=')) {
            let (name, value) = part.split_once('=')?;
            match name {
                "id" => named = value == Self::NAME,
                "window_size" => collector.window_size = value.parse().ok()?,
                "deletion_trigger" => collector.deletion_trigger = value.parse().ok()?,
                "deletion_ratio" => collector.deletion_ratio = value.parse().ok()?,
                "min_file_size" => collector.min_file_size = value.parse().ok()?,
                _ => return None,
            }
        }
        named.then_some(collector)
    }

    fn watch(&self) -> DeletionWatch {
        DeletionWatch {
            rule: *self,
            bucket_entries: self.window_size.div_ceil(BUCKETS as u64),
            buckets: [0; BUCKETS],
            current: 0,
            in_current: 0,
            in_window: 0,
            most_in_window: 0,
            entries: 0,
            deletions: 0,
            file_bytes: 0,
        }
    }
}

/// The collectors named by a value of the option `table_properties_collectors`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedCollectors {
    /// The collectors that watch for deletions.
    pub compact_on_deletion: Vec<CompactOnDeletion>,
    /// RocksDB's other collectors, by name: they serve tiered storage, which KarstDB does not have.
    pub without_effect: Vec<&'static str>,
    /// Texts of unknown collectors, or of these with unknown properties.
    pub unknown: Vec<String>,
}

/// RocksDB's collector that marks tables whose entries belong on the last level.
const COMPACT_FOR_TIERING: &str = "CompactForTieringCollector";

impl NamedCollectors {
    /// Parses the collectors in a value of the option: one, or several separated by colons.
    #[must_use]
    pub fn in_option_text(value: &str) -> NamedCollectors {
        let mut named = NamedCollectors::default();
        for item in text::split_list(text::strip_braces(value)) {
            match CompactOnDeletion::from_option_text(item) {
                Some(rule) => named.compact_on_deletion.push(rule),
                None if item == "nullptr" => {}
                None if Object::new(item).id() == Some(COMPACT_FOR_TIERING) => {
                    named.without_effect.push(COMPACT_FOR_TIERING);
                }
                None => named.unknown.push(item.to_owned()),
            }
        }
        named
    }

    /// Returns the option's value as RocksDB writes it; `None` if the original text must be kept
    /// because parts of it are unknown, or if it names no collector.
    #[must_use]
    pub fn option_text(&self) -> Option<String> {
        if !(self.without_effect.is_empty() && self.unknown.is_empty()) {
            return None;
        }
        let texts: Vec<String> =
            self.compact_on_deletion.iter().map(CompactOnDeletion::option_text).collect();
        match &*texts {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("{{{}}}", several.join(":"))),
        }
    }
}

impl TablePropertiesCollectorFactory for CompactOnDeletion {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn create(&self, _: &TablePropertiesCollectorContext) -> Option<Box<dyn TablePropertiesCollector>> {
        Some(Box::new(self.watch()))
    }
}

/// Number of buckets in a window, which advances by one bucket at a time.
const BUCKETS: usize = 128;

/// Counts of one table's entries and deletions.
#[derive(Clone, Debug)]
struct DeletionWatch {
    rule: CompactOnDeletion,
    bucket_entries: u64,
    /// Deletions per bucket, in a ring.
    buckets: [u64; BUCKETS],
    current: usize,
    /// Entries in the current bucket.
    in_current: u64,
    in_window: u64,
    most_in_window: u64,
    entries: u64,
    deletions: u64,
    /// Size of the file at the last entry, in bytes.
    file_bytes: u64,
}

impl DeletionWatch {
    /// Counts an entry.
    fn note(&mut self, is_deletion: bool) {
        self.entries += 1;
        self.deletions += u64::from(is_deletion);
        if self.bucket_entries == 0 {
            return;
        }
        if self.in_current == self.bucket_entries {
            self.current = (self.current + 1) % BUCKETS;
            self.in_window -= std::mem::take(&mut self.buckets[self.current]);
            self.in_current = 0;
        }
        self.in_current += 1;
        if is_deletion {
            self.buckets[self.current] += 1;
            self.in_window += 1;
            self.most_in_window = self.most_in_window.max(self.in_window);
        }
    }

    /// Returns true if the table is marked for compaction.
    ///
    /// Compat: uses the file's size at the last entry, which lacks the last block.
    fn asks(&self) -> bool {
        let rule = &self.rule;
        let in_window = self.bucket_entries > 0 && self.most_in_window >= rule.deletion_trigger;
        let by_ratio = rule.deletion_ratio > 0.0
            && rule.deletion_ratio <= 1.0
            && self.deletions as f64 >= rule.deletion_ratio * self.entries as f64;
        self.entries > 0 && self.file_bytes >= rule.min_file_size && (in_window || by_ratio)
    }
}

impl TablePropertiesCollector for DeletionWatch {
    fn add(&mut self, entry: &CollectedEntry<'_>) -> Result<()> {
        self.file_bytes = entry.file_bytes;
        self.note(matches!(
            entry.entry_type,
            ValueType::Deletion | ValueType::SingleDeletion | ValueType::DeletionWithTimestamp
        ));
        Ok(())
    }

    fn finish(&mut self) -> Result<UserCollectedProperties> {
        Ok(UserCollectedProperties::new())
    }

    fn need_compact(&self) -> bool {
        self.asks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(rule: CompactOnDeletion, entries: impl IntoIterator<Item = bool>) -> bool {
        let mut watch = rule.watch();
        entries.into_iter().for_each(|is_deletion| watch.note(is_deletion));
        watch.file_bytes = 1000;
        watch.asks()
    }

    #[test]
    fn deletions_count_within_the_window() {
        let rule = CompactOnDeletion { window_size: 128, deletion_trigger: 10, ..Default::default() };
        let spread = |every: u64, count: u64| (0..count).map(move |i| i % every == 0);
        assert!(asks(rule, spread(2, 20)) && !asks(rule, spread(2, 18)));
        // A window of 128 entries holds ten deletions if every thirteenth is one, and never if
        // every fifteenth is.
        assert!(asks(rule, spread(13, 10_000)) && !asks(rule, spread(15, 10_000)));
        assert!(!asks(CompactOnDeletion { min_file_size: 1001, ..rule }, spread(2, 20)));
        assert!(!asks(CompactOnDeletion::default(), spread(1, 1000)), "no window, no ratio");
    }

    #[test]
    fn the_ratio_counts_over_the_table() {
        let rule = CompactOnDeletion { deletion_ratio: 0.5, ..Default::default() };
        assert!(asks(rule, (0..100).map(|i| i < 50)) && !asks(rule, (0..100).map(|i| i < 49)));
        assert!(!asks(CompactOnDeletion { deletion_ratio: 1.5, ..rule }, [true; 10]), "above 1 is none");
        assert!(!asks(rule, []));
    }

    #[test]
    fn several_collectors_are_told_apart() {
        let rule = CompactOnDeletion { window_size: 128, deletion_trigger: 50, ..Default::default() };
        let text = rule.option_text();
        let one = NamedCollectors { compact_on_deletion: vec![rule], ..Default::default() };
        let two = NamedCollectors { compact_on_deletion: vec![rule; 2], ..Default::default() };
        for (value, expected) in [
            ("".to_owned(), &NamedCollectors::default()),
            ("nullptr".into(), &NamedCollectors::default()),
            ("{}".into(), &NamedCollectors::default()),
            (text.clone(), &one),
            (format!("{{{{{text}}}}}"), &one),
            (format!("{text}:{text}"), &two),
            (format!("{{{text}:{text}}}"), &two),
        ] {
            let named = NamedCollectors::in_option_text(&value);
            assert_eq!(named, *expected, "{value}");
            let written = named.option_text().unwrap_or_default();
            assert_eq!(NamedCollectors::in_option_text(&written), *expected, "{value}: {written}");
        }
        let mixed = format!("{text}:{{id=CompactForTieringCollector;compaction_trigger_ratio=0.1}}:my.Own");
        let named = NamedCollectors::in_option_text(&mixed);
        assert_eq!(named.compact_on_deletion, [rule]);
        assert_eq!(named.without_effect, [COMPACT_FOR_TIERING]);
        assert_eq!((&*named.unknown, named.option_text()), (&["my.Own".to_owned()][..], None));
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        let rule = CompactOnDeletion {
            window_size: 1000,
            deletion_trigger: 50,
            deletion_ratio: 0.25,
            min_file_size: 7,
        };
        assert_eq!(CompactOnDeletion::from_option_text(&rule.option_text()), Some(rule));
        assert_eq!(
            CompactOnDeletion::from_option_text("CompactOnDeletionCollector"),
            Some(Default::default())
        );
        for other in
            ["", "nullptr", "{id=my.Collector;window_size=1}", "{id=CompactOnDeletionCollector;more=1}"]
        {
            assert_eq!(CompactOnDeletion::from_option_text(other), None, "{other}");
        }
    }
}
