//! RocksDB's `CompactOnDeletionCollector`: tables with many deletions ask for their compaction when
//! they are written.
//!
//! In: its options, as RocksDB writes them in OPTIONS; then each entry of a table. Out: whether the
//! table asks.
//! Compat: RocksDB also builds in `CompactForTieringCollector`, which is accepted without effect.
//! Others are code of the user that no file holds; a database whose OPTIONS name one opens, and its
//! new tables are made without it.

use crate::error::Result;
use crate::table_properties_collector::{
    CollectedEntry, TablePropertiesCollector, TablePropertiesCollectorContext,
    TablePropertiesCollectorFactory, UserCollectedProperties,
};
use karst_format::key::ValueType;
use karst_format::options::{Object, text};
use std::fmt::Write as _;

/// When a table asks for its compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompactOnDeletion {
    /// How many entries in a row are looked at; rounded up to a multiple of 128. 0 for none.
    pub window_size: u64,
    /// So many deletions among them are too many.
    pub deletion_trigger: u64,
    /// Deletions among all entries from which on there are too many; above 0 and at most 1, else
    /// none is.
    pub deletion_ratio: f64,
    /// Tables whose data takes fewer bytes do not ask.
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

    /// The collector that a value of the option names; `None` if it names none, or another one.
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

/// What a value of the option `table_properties_collectors` names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedCollectors {
    /// The collectors that look at tables.
    pub compact_on_deletion: Vec<CompactOnDeletion>,
    /// RocksDB's others, by name: they serve tiered storage, which is not there.
    pub without_effect: Vec<&'static str>,
    /// Texts of others, or of these with properties that they do not have.
    pub unknown: Vec<String>,
}

/// RocksDB's collector that tells tables whose entries belong on the last level.
const COMPACT_FOR_TIERING: &str = "CompactForTieringCollector";

impl NamedCollectors {
    /// The collectors in a value of the option: one, or several with colons between them.
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

    /// The value of the option as RocksDB writes it; `None` if that of the text is to be kept, as
    /// not all of it is known.
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

/// The window moves by a 128th of its size at a time.
const BUCKETS: usize = 128;

/// What was seen of one table.
#[derive(Clone, Debug)]
struct DeletionWatch {
    rule: CompactOnDeletion,
    bucket_entries: u64,
    /// Deletions, in a ring.
    buckets: [u64; BUCKETS],
    current: usize,
    /// Entries in the current bucket.
    in_current: u64,
    in_window: u64,
    most_in_window: u64,
    entries: u64,
    deletions: u64,
    /// What the file had at the last entry.
    file_bytes: u64,
}

impl DeletionWatch {
    /// One more entry.
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

    /// Whether the table asks.
    ///
    /// Compat: by the size of the file up to the last entry, which lacks the last block.
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
        // 128 entries hold ten deletions if every thirteenth is one, and never if every fifteenth
        // is.
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
