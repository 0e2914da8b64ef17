//! A database without I/O: tables are lists of keys in memory, compactions merge them at once, and
//! the bytes that they read and write are counted.
//!
//! A compaction starts (is picked and registered) and ends (its result is installed) at different
//! times, so that several run at once, with flushes in between. Every state is checked: no two
//! compactions share a file or write to the same range, inputs are clean cuts, levels stay sorted
//! and disjoint, and no newer entry of a key is below an older one.

use super::super::*;
use crate::file::FileMetadata;
use crate::output_cutter::{OpenOutput, OutputCutter};
use crate::version_builder::{TreeOptions, VersionBuilder};
use karst_format::ids::{FileNumber, Level};
use karst_format::key::{InternalKey, SeqNo, ValueType, user_key};
use karst_format::version_edit::{NewFile, VersionEdit};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u64 = 100;

/// A key and the sequence number of its entry.
type Entry = (u32, u64);

pub(crate) struct Simulator {
    pub(crate) options: CompactionOptions,
    pub(crate) version: Arc<Version>,
    pub(crate) running: Running,
    started: Vec<(RunningId, Compaction)>,
    tables: HashMap<FileNumber, Arc<Vec<Entry>>>,
    next_file: u64,
    next_epoch: u64,
    next_seq: u64,
    pub(crate) now_s: u64,
    pub(crate) flushed_bytes: u64,
    pub(crate) compacted_bytes: u64,
    pub(crate) moved_files: u64,
    pub(crate) most_running: usize,
    /// True if the order of all entries is checked after each compaction; for small trees.
    pub(crate) checks_entries: bool,
    /// Passed as [`PickContext::oldest_snapshot`].
    pub(crate) oldest_snapshot: SeqNo,
}

fn encoded(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

fn decoded(internal_key: &[u8]) -> u32 {
    u32::from_be_bytes(user_key(internal_key).try_into().unwrap())
}

fn internal((key, seq): Entry) -> Vec<u8> {
    InternalKey { user_key: &encoded(key), seq: SeqNo(seq), kind: ValueType::Value }.to_vec()
}

impl Simulator {
    pub(crate) fn new(options: CompactionOptions) -> Simulator {
        let version = Arc::new(Version::empty(Default::default(), options.level_count()));
        Simulator {
            options,
            version,
            running: Running::new(),
            started: Vec::new(),
            tables: HashMap::new(),
            next_file: 1,
            next_epoch: 1,
            next_seq: 1,
            now_s: super::NOW_S,
            flushed_bytes: 0,
            compacted_bytes: 0,
            moved_files: 0,
            most_running: 0,
            checks_entries: true,
            oldest_snapshot: SeqNo(0),
        }
    }

    pub(crate) fn context(&self) -> PickContext<'_> {
        PickContext {
            version: &self.version,
            options: &self.options,
            running: &self.running,
            oldest_snapshot: self.oldest_snapshot,
            now_s: self.now_s,
        }
    }

    fn table(&mut self, entries: Vec<Entry>, epoch: u64) -> NewFile {
        let number = FileNumber(self.next_file);
        self.next_file += 1;
        let bytes = entries.len() as u64 * ENTRY_BYTES;
        let (first, last) = (entries[0], entries[entries.len() - 1]);
        let seqs = || entries.iter().map(|(_, seq)| *seq);
        let (from, to) = (SeqNo(seqs().min().unwrap()), SeqNo(seqs().max().unwrap()));
        let mut file = NewFile::new(number, bytes, internal(first), internal(last), from, to);
        file.epoch_number = epoch;
        file.creation_time_s = self.now_s;
        file.oldest_ancestor_time_s = self.now_s;
        self.tables.insert(number, Arc::new(entries));
        file
    }

    /// Releases the last snapshot.
    pub(crate) fn release_snapshots(&mut self) {
        self.oldest_snapshot = SeqNo(self.next_seq);
    }

    /// Adds new entries for the keys, in one file of L0.
    pub(crate) fn flush(&mut self, keys: impl IntoIterator<Item = u32>) {
        let mut entries = BTreeMap::new();
        for key in keys {
            entries.insert(key, self.next_seq);
            self.next_seq += 1;
        }
        if entries.is_empty() {
            return;
        }
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let file = self.table(entries.into_iter().collect(), epoch);
        self.flushed_bytes += file.size_bytes;
        let mut edit = VersionEdit::default();
        edit.new_files.push((Level(0), file));
        self.install(&edit);
    }

    fn install(&mut self, edit: &VersionEdit) {
        let mut builder = VersionBuilder::from_base(Arc::clone(&self.version));
        builder.apply(edit).unwrap();
        let tree = TreeOptions { level_count: self.options.level_count(), ..TreeOptions::default() };
        self.version = Arc::new(builder.build(&tree).expect("levels stay disjoint"));
    }

    /// Starts the next compaction; returns false if none is due.
    pub(crate) fn start(&mut self) -> bool {
        let Some(compaction) = pick(self.context()) else { return false };
        self.start_picked(compaction);
        true
    }

    pub(crate) fn start_picked(&mut self, compaction: Compaction) {
        self.check_pick(&compaction);
        let id = self.running.register(&compaction);
        self.started.push((id, compaction));
        self.most_running = self.most_running.max(self.started.len());
    }

    pub(crate) fn running_count(&self) -> usize {
        self.started.len()
    }

    /// Ends the running compaction at `index` and installs its result.
    pub(crate) fn finish(&mut self, index: usize) {
        let (id, compaction) = self.started.swap_remove(index);
        self.running.release(id);
        let mut edit = VersionEdit::default();
        for (level, file) in compaction.input_files() {
            edit.deleted_files.push((level, file.number));
        }
        let output = compaction.output_level;
        match compaction.work {
            CompactionWork::Delete => {}
            CompactionWork::Move => {
                for (_, file) in compaction.input_files() {
                    edit.new_files.push((output, NewFile::clone(file)));
                    self.moved_files += 1;
                }
            }
            CompactionWork::Merge => {
                for entries in self.merged(&compaction) {
                    let file = self.table(entries, compaction.output_epoch());
                    self.compacted_bytes += file.size_bytes;
                    edit.new_files.push((output, file));
                }
            }
        }
        edit.compact_cursors.extend(compaction.next_cursor.clone());
        self.install(&edit);
        if self.checks_entries {
            self.check_order();
        }
    }

    /// Returns the outputs: the newest entry of each key, cut by the output cutter.
    fn merged(&self, compaction: &Compaction) -> Vec<Vec<Entry>> {
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        for (_, file) in compaction.input_files() {
            for &(key, seq) in &*self.tables[&file.number] {
                let at = newest.entry(key).or_insert(seq);
                *at = seq.max(*at);
            }
        }
        let mut cutter = OutputCutter::new(compaction);
        let mut outputs: Vec<Vec<Entry>> = Vec::new();
        let mut open: Option<OpenOutput> = None;
        for entry in newest {
            let (key, seq) = entry;
            if cutter.ends_before(&internal(entry), true, open) || open.is_none() {
                outputs.push(Vec::new());
                open = Some(OpenOutput::default());
            }
            // Without older data below and without a snapshot the sequence number is not needed.
            let seq = if compaction.bottommost { 0 } else { seq };
            if let (Some(output), Some(open)) = (outputs.last_mut(), &mut open) {
                output.push((key, seq));
                open.file_bytes += ENTRY_BYTES;
            }
        }
        outputs
    }

    /// Compacts until nothing is due. Returns the number of compactions.
    pub(crate) fn settle(&mut self) -> usize {
        let mut count = 0;
        loop {
            while !self.started.is_empty() {
                self.finish(0);
            }
            if !self.start() {
                return count;
            }
            count += 1;
            assert!(count < 100_000, "compaction does not come to an end: {}", self.shape());
        }
    }

    /// Formats files and bytes by level.
    pub(crate) fn shape(&self) -> String {
        let levels = self.version.levels().iter().filter(|level| !level.is_empty());
        let text: Vec<String> = levels
            .map(|level| format!("{}: {} files, {} bytes", level.level(), level.len(), level.size_bytes()))
            .collect();
        text.join("; ")
    }

    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.version.levels().get(level).map_or(0, |level| level.size_bytes())
    }

    /// Returns the bytes written per byte flushed, the flush included.
    pub(crate) fn write_amplification(&self) -> f64 {
        (self.flushed_bytes + self.compacted_bytes) as f64 / self.flushed_bytes.max(1) as f64
    }

    /// Checks the invariants of a pick of any strategy.
    fn check_pick(&self, compaction: &Compaction) {
        let shown = super::shown(compaction);
        assert!(!compaction.inputs.is_empty(), "{shown}");
        for pair in compaction.inputs.windows(2) {
            assert!(pair[0].level < pair[1].level, "levels ascend: {shown}");
        }
        for (_, file) in compaction.input_files() {
            assert!(!self.running.holds(file), "{} is taken: {shown}", file.number);
        }
        for input in &compaction.inputs {
            self.check_clean_cut(input, &shown);
        }
        if compaction.output_level.0 > 0 && compaction.work != CompactionWork::Delete {
            self.check_output_range(compaction, &shown);
        }
    }

    fn check_clean_cut(&self, input: &CompactionInput, shown: &str) {
        let level = self.version.files(input.level);
        let place =
            |number| level.iter().position(|file| file.number == number).expect("an input is in the tree");
        let places: Vec<usize> = input.files.iter().map(|file| place(file.number)).collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "level's order: {shown}");
        if input.level.0 == 0 {
            return;
        }
        assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "neighbours: {shown}");
        let (first, last) = (places[0], places[places.len() - 1]);
        if first > 0 {
            assert_ne!(decoded(&level[first - 1].largest), decoded(&level[first].smallest), "{shown}");
        }
        if let Some(next) = level.get(last + 1) {
            assert_ne!(decoded(&level[last].largest), decoded(&next.smallest), "{shown}");
        }
    }

    /// Checks that no remaining file overlaps the output on its level, or is older than an input
    /// and above the output; and that no running compaction may write there.
    fn check_output_range(&self, compaction: &Compaction, shown: &str) {
        let (from, to) = (&compaction.smallest_user_key, &compaction.largest_user_key);
        let stays = |file: &&Arc<FileMetadata>| {
            compaction.input_files().all(|(_, input)| input.number != file.number)
        };
        let apart = |a: &FileMetadata, from: &[u8], to: &[u8]| {
            a.smallest_user_key() > to || a.largest_user_key() < from
        };
        for file in self.version.files(compaction.output_level).iter().filter(stays) {
            assert!(apart(file, from, to), "{} overlaps the output: {shown}", file.number);
        }
        for level in 0..compaction.output_level.0 {
            for file in self.version.files(Level(level)).iter().filter(stays) {
                let newer = |(at, input): &(Level, &Arc<FileMetadata>)| {
                    at.0 < level || (level == 0 && at.0 == 0 && input.epoch_number > file.epoch_number)
                };
                for (_, input) in compaction.input_files().filter(newer) {
                    let apart = apart(file, input.smallest_user_key(), input.largest_user_key());
                    assert!(
                        apart,
                        "{} on L{level} would come to lie above what is newer: {shown}",
                        file.number
                    );
                }
            }
        }
        for (_, other) in &self.started {
            let apart = other.output_level != compaction.output_level
                || *other.largest_user_key < **from
                || *other.smallest_user_key > **to;
            assert!(apart, "{shown} writes to where {} does", super::shown(other));
        }
    }

    /// Checks for every key that newer entries are on higher levels.
    fn check_order(&self) {
        let mut newest: HashMap<u32, u64> = HashMap::new();
        for (level, file) in self.version.all_files() {
            for &(key, seq) in &*self.tables[&file.number] {
                if let Some(&above) = newest.get(&key) {
                    assert!(
                        above > seq,
                        "key {key} is older above {} on {level}: {}",
                        file.number,
                        self.shape()
                    );
                }
                newest.insert(key, seq);
            }
        }
    }

    pub(crate) fn next_file(&self) -> FileNumber {
        FileNumber(self.next_file)
    }

    /// Returns the level and key of every entry.
    pub(crate) fn placed_keys(&self) -> Vec<(usize, u32)> {
        let files = self.version.all_files();
        files
            .flat_map(|(level, file)| {
                self.tables[&file.number].iter().map(move |(key, _)| (level.index(), *key))
            })
            .collect()
    }

    /// Returns every key in the tree with the number of its entries.
    pub(crate) fn keys(&self) -> BTreeMap<u32, usize> {
        let mut keys = BTreeMap::new();
        for (_, file) in self.version.all_files() {
            for (key, _) in &*self.tables[&file.number] {
                *keys.entry(*key).or_insert(0) += 1;
            }
        }
        keys
    }
}
