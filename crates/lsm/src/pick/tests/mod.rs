//! Tests of the pickers on handwritten trees, and in a simulator that executes the picks.
mod fifo;
mod ingest;
mod leveled;
mod manual;
mod scores;
mod simulated;
mod simulator;
mod universal;

use super::*;
use crate::version_builder::{TreeOptions, VersionBuilder};
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{InternalKey, RANGE_TOMBSTONE_SENTINEL, SeqNo, ValueType, append};
use karst_format::options::{ColumnFamilyOptions, DbOptions, OptionSet};
use karst_format::version_edit::{NewFile, VersionEdit};
use std::sync::Arc;

/// Parses options; nothing is due because of age unless the text sets it.
pub(crate) fn options(text: &str) -> CompactionOptions {
    let mut family = ColumnFamilyOptions::default();
    family.set_all("ttl=0;periodic_compaction_seconds=0").unwrap();
    family.set_all(text).unwrap();
    CompactionOptions::new(&DbOptions::default(), &family, Vec::new())
}

pub(crate) const NOW_S: u64 = 2_000_000_000;

/// A tree under construction. File numbers count up from 1 in the order of the calls; later files
/// of L0 are newer.
pub(crate) struct TestTree {
    pub(crate) options: CompactionOptions,
    pub(crate) edit: VersionEdit,
    pub(crate) running: Running,
    pub(crate) oldest_snapshot: SeqNo,
    pub(crate) now_s: u64,
    next: u64,
}

impl TestTree {
    pub(crate) fn new(text: &str) -> TestTree {
        TestTree {
            options: options(text),
            edit: VersionEdit::default(),
            running: Running::new(),
            oldest_snapshot: SeqNo(0),
            now_s: NOW_S,
            next: 1,
        }
    }

    /// Adds a file from `smallest` to `largest`, both inclusive. Its sequence numbers are 100 times
    /// its number, and up to 99 more.
    pub(crate) fn file(&mut self, level: u8, smallest: &str, largest: &str, bytes: u64) -> &mut NewFile {
        let number = self.next;
        self.next += 1;
        let (from, to) = (SeqNo(number * 100), SeqNo(number * 100 + 99));
        let key = |user_key: &str, seq| {
            InternalKey { user_key: user_key.as_bytes(), seq, kind: ValueType::Value }.to_vec()
        };
        let mut file =
            NewFile::new(FileNumber(number), bytes, key(smallest, to), key(largest, from), from, to);
        file.epoch_number = if level == 0 { number + 100 } else { 1 };
        self.edit.new_files.push((Level(level), file));
        &mut self.edit.new_files.last_mut().unwrap().1
    }

    /// Adds a file whose largest boundary is the end of a range tombstone.
    pub(crate) fn file_to_tombstone_end(&mut self, level: u8, smallest: &str, end: &str, bytes: u64) {
        let file = self.file(level, smallest, end, bytes);
        let mut largest = Vec::new();
        append(&mut largest, end.as_bytes(), RANGE_TOMBSTONE_SENTINEL);
        file.largest = largest.into();
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        let mut builder = VersionBuilder::new();
        builder.apply(&self.edit).unwrap();
        let tree = TreeOptions { level_count: self.options.level_count(), ..TreeOptions::default() };
        Arc::new(builder.build(&tree).unwrap())
    }

    pub(crate) fn with<T>(&self, ask: impl FnOnce(PickContext<'_>) -> T) -> T {
        let version = self.version();
        ask(PickContext {
            version: &version,
            options: &self.options,
            running: &self.running,
            oldest_snapshot: self.oldest_snapshot,
            now_s: self.now_s,
        })
    }

    pub(crate) fn pick(&self) -> Option<Compaction> {
        self.with(pick)
    }

    /// Picks a compaction and registers it as running.
    pub(crate) fn run(&mut self) -> Option<Compaction> {
        let compaction = self.pick()?;
        self.running.register(&compaction);
        Some(compaction)
    }

    /// Returns the pick as text: see [`shown`].
    pub(crate) fn picked(&self) -> String {
        self.pick().map_or("nothing".to_owned(), |compaction| shown(&compaction))
    }
}

/// Formats a compaction as `L0[3 2] L4[7] -> L5`, followed by its work unless that is a merge.
pub(crate) fn shown(compaction: &Compaction) -> String {
    let mut text = String::new();
    for input in &compaction.inputs {
        let numbers: Vec<String> = input.files.iter().map(|file| file.number.0.to_string()).collect();
        text += &format!("{}[{}] ", input.level, numbers.join(" "));
    }
    let work = match compaction.work {
        CompactionWork::Merge => "",
        CompactionWork::Move => " move",
        CompactionWork::Delete => " delete",
    };
    format!("{text}-> {}{work}", compaction.output_level)
}
