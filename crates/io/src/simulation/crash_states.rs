//! The disk states that a crash may leave at any moment of a [`Journal`].
//!
//! [`CrashStates`] replays a journal change by change. Between two changes, [`CrashStates::point`]
//! lists the states that a crash at that moment may leave. A state is chosen in three steps: the
//! unsynced changes of names that have happened; unsynced content lost or kept; and one file that
//! is an exception, which may be lost, kept, torn or have a hole. Two files therefore never tear in
//! the same state, but each tears with the others lost and with the others kept.
//!
//! Synced data is in every state: bytes by a sync of their file, names by a sync of their
//! directory. A synced sector is never damaged by a write beside it, and no file has bytes of
//! another.

use super::inode::{Change, SECTOR};
use super::journal::{Effect, Entry, Image, Journal};
use super::names::{NameChange, Names, remove_orphans};
use crate::random::{Random, mix};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Unit in bytes that a file system writes completely or not at all.
const PAGE: usize = 4096;
/// Maximum number of unsynced changes of names of which every combination is listed.
const ALL_COMBINATIONS: usize = 3;
/// Number of combinations of each kind drawn if there are more changes.
const DRAWN: u64 = 4;

/// Replays a journal and lists the states that a crash may leave.
pub struct CrashStates<'a> {
    journal: &'a Journal,
    /// Selects files whose names and content do not matter to the program that opens the disk:
    /// their changes are always kept.
    indifferent: fn(&Path) -> bool,
    done: usize,
    files: BTreeMap<u64, Tracked>,
    names: Names<Entry>,
    durable: Names<Entry>,
    unsynced: Vec<NameChange<Entry>>,
}

/// A file's content in one of its possible states.
#[derive(Clone)]
struct Variant {
    what: String,
    bytes: Arc<Vec<u8>>,
    hash: u64,
    /// True if the content is neither an earlier one nor an earlier one with unwritten sectors at
    /// its end: it has a hole, or bytes that were never written.
    damaged: bool,
}

impl Variant {
    /// Returns content that the file had at some moment, or between the bytes of one write.
    fn earlier(what: impl Into<String>, bytes: impl Into<Arc<Vec<u8>>>) -> Self {
        let bytes = bytes.into();
        Self { what: what.into(), hash: hash(&bytes), bytes, damaged: false }
    }

    fn damaged(what: String, bytes: Vec<u8>) -> Self {
        Self { damaged: true, ..Self::earlier(what, bytes) }
    }
}

struct Tracked {
    durable: Variant,
    pending: Vec<Change>,
    /// Number of changes; the only input, beside the seed, of the draws for this file.
    changes: u64,
    /// Lost content, kept content, and others; made on first use. One alone if no change is
    /// pending.
    variants: Option<Arc<Vec<Variant>>>,
}

const LOST: usize = 0;
const KEPT: usize = 1;

impl Tracked {
    fn new(bytes: Arc<Vec<u8>>) -> Self {
        Self { durable: Variant::earlier("lost", bytes), pending: Vec::new(), changes: 0, variants: None }
    }

    fn change(&mut self, change: Change) {
        self.pending.push(change);
        self.changes += 1;
        self.variants = None;
    }

    fn sync(&mut self) {
        if !self.pending.is_empty() {
            let bytes = self.after(self.pending.len());
            self.pending.clear();
            self.durable = Variant::earlier("lost", bytes);
            self.variants = None;
        }
    }

    /// Returns the content after the first `changes` unsynced changes.
    fn after(&self, changes: usize) -> Vec<u8> {
        let mut bytes = self.durable.bytes.to_vec();
        self.pending[..changes].iter().for_each(|change| change.apply(&mut bytes, usize::MAX));
        bytes
    }

    fn variants(&mut self, seed: u64) -> Arc<Vec<Variant>> {
        if let Some(made) = &self.variants {
            return made.clone();
        }
        let mut random = Random::new(seed ^ mix(self.changes));
        let mut all = vec![self.durable.clone()];
        if !self.pending.is_empty() {
            all.push(Variant::earlier("kept", self.after(self.pending.len())));
            self.cut_between_writes(&mut random, &mut all);
            self.leave_one_out(&mut random, &mut all);
            self.tear_the_last(&mut random, &mut all);
        }
        let mut seen = BTreeSet::new();
        // The first two stay, because `LOST` and `KEPT` are their indices.
        let mut number = 0;
        all.retain(|variant| {
            number += 1;
            seen.insert(variant.hash) || number <= 2
        });
        self.variants.insert(Arc::new(all)).clone()
    }

    /// Adds variants in which the first writes happened and the others did not.
    fn cut_between_writes(&self, random: &mut Random, all: &mut Vec<Variant>) {
        let count = self.pending.len();
        let drawn: BTreeSet<usize> = match count {
            0..=4 => (1..count).collect(),
            _ => {
                let some = (0..2).map(|_| 1 + random.below(count as u64 - 1) as usize);
                some.chain([1, count - 1]).collect()
            }
        };
        all.extend(
            drawn
                .into_iter()
                .map(|n| Variant::earlier(format!("first {n} of {count} writes"), self.after(n))),
        );
    }

    /// Adds variants without one write that is not the last.
    fn leave_one_out(&self, random: &mut Random, all: &mut Vec<Variant>) {
        let count = self.pending.len();
        let drawn: BTreeSet<usize> = match count {
            0 | 1 => return,
            2..=4 => (0..count - 1).collect(),
            _ => [count - 2, random.below(count as u64 - 1) as usize].into(),
        };
        for out in drawn {
            let mut bytes = self.durable.bytes.to_vec();
            for (_, change) in self.pending.iter().enumerate().filter(|(number, _)| *number != out) {
                change.apply(&mut bytes, usize::MAX);
            }
            all.push(Variant::damaged(format!("without write {} of {count}", out + 1), bytes));
        }
    }

    /// Adds variants in which the last write happened in part.
    fn tear_the_last(&self, random: &mut Random, all: &mut Vec<Variant>) {
        let Some((last, earlier)) = self.pending.split_last() else { return };
        let Change::Write { offset, data } = last else { return };
        let (start, end) = (*offset, offset + data.len());
        let before = self.after(earlier.len());
        let up_to = |at: usize| {
            let mut bytes = before.clone();
            last.apply(&mut bytes, at - start);
            bytes
        };
        let mut ends = borders(start, end, SECTOR, random);
        ends.extend(borders(start, end, PAGE, random));
        all.extend(ends.iter().map(|at| Variant::earlier(format!("torn at {at}"), up_to(*at))));
        let whole = up_to(end);
        // The length is that of the whole write; its last sectors have their old content, or zeros.
        let drawn = ends.iter().nth(random.below(ends.len() as u64) as usize);
        for from in [Some(&start), drawn].into_iter().flatten() {
            let mut bytes = whole.clone();
            (*from..end).for_each(|at| bytes[at] = before.get(at).copied().unwrap_or(0));
            all.push(Variant::earlier(format!("as long, without what is from {from} on"), bytes));
        }
        // The sector being written has neither its old nor its new content.
        let from = start + random.below(data.len() as u64) as usize;
        let stop = ((from / SECTOR + 1) * SECTOR).min(end);
        for (what, noise) in [("zero", false), ("garbage", true)] {
            let mut bytes = up_to(stop);
            for byte in &mut bytes[from..stop] {
                *byte = if noise { random.next() as u8 } else { 0 };
            }
            all.push(Variant::damaged(format!("torn at {from}, {what} up to {stop}"), bytes));
        }
        // One sector was not written, although the sectors behind it were.
        let (first, behind) = (start / SECTOR, (end - 1) / SECTOR);
        if first < behind {
            let sector = first + random.below((behind - first) as u64) as usize;
            let hole = (sector * SECTOR).max(start)..((sector + 1) * SECTOR).min(end);
            let mut bytes = whole;
            hole.clone().for_each(|at| bytes[at] = before.get(at).copied().unwrap_or(0));
            all.push(Variant::damaged(format!("without {hole:?}"), bytes));
        }
    }
}

/// Returns some of the multiples of `unit` between two offsets.
fn borders(start: usize, end: usize, unit: usize, random: &mut Random) -> BTreeSet<usize> {
    let (first, last) = (start / unit + 1, (end - 1) / unit);
    if first > last {
        return BTreeSet::new();
    }
    let some = (0..2).map(|_| first + random.below((last - first + 1) as u64) as usize);
    some.chain([first, last]).map(|number| number * unit).collect()
}

fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| {
        (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    });
    rest.iter().fold(mix(sum), |sum, byte| mix(sum ^ u64::from(*byte)))
}

impl<'a> CrashStates<'a> {
    /// Returns the state before the first change. Files selected by `indifferent` do not matter to
    /// the program that opens the disk; their changes are kept, and do not distinguish states.
    pub fn new(journal: &'a Journal, indifferent: fn(&Path) -> bool) -> Self {
        let files = journal.base.values().flatten();
        let files = files.map(|(file, bytes)| (*file, Tracked::new(bytes.clone()))).collect();
        let names: Names<Entry> = journal
            .base
            .iter()
            .map(|(path, file)| (path.clone(), file.as_ref().map(|(id, _)| *id)))
            .collect();
        Self { journal, indifferent, done: 0, files, durable: names.clone(), names, unsynced: Vec::new() }
    }

    /// Returns the number of changes that have happened.
    pub fn boundary(&self) -> usize {
        self.done
    }

    /// Applies the next change; returns false at the end of the journal.
    pub fn advance(&mut self) -> bool {
        let Some(effect) = self.journal.effects.get(self.done) else { return false };
        self.done += 1;
        match effect {
            Effect::Name(change) => {
                if let NameChange::Put(_, Some(file)) = change {
                    // A file that gets a second name already exists.
                    self.files.entry(*file).or_insert_with(|| Tracked::new(Arc::default()));
                }
                change.apply(&mut self.names);
                self.unsynced.push(change.clone());
            }
            Effect::SyncDirectory(dir) => {
                for change in self.unsynced.extract_if(.., |change| change.is_in(dir)) {
                    change.apply(&mut self.durable);
                }
            }
            Effect::Change { file, change } => {
                self.files.get_mut(file).expect("it was made").change(change.clone());
            }
            Effect::Sync { file } => self.files.get_mut(file).expect("it was made").sync(),
        }
        true
    }

    /// Returns a description of the last change.
    pub fn last_change(&self) -> String {
        let name = |file: &u64| {
            let found = self.names.iter().find(|(_, entry)| **entry == Some(*file));
            found.map_or(format!("a file without a name ({file})"), |(path, _)| path.display().to_string())
        };
        match self.done.checked_sub(1).map(|last| &self.journal.effects[last]) {
            None => "nothing".into(),
            Some(Effect::Name(NameChange::Put(path, _))) => format!("create or link {}", path.display()),
            Some(Effect::Name(NameChange::Remove(path))) => format!("remove {}", path.display()),
            Some(Effect::Name(NameChange::Rename { from, to, .. })) => {
                format!("rename {} to {}", from.display(), to.display())
            }
            Some(Effect::SyncDirectory(dir)) => format!("sync directory {}", dir.display()),
            Some(Effect::Change { file, change: Change::Write { offset, data } }) => {
                format!("write {} {offset}+{}", name(file), data.len())
            }
            Some(Effect::Change { file, change: Change::Cut(size) }) => {
                format!("cut {} to {size}", name(file))
            }
            Some(Effect::Sync { file }) => format!("sync {}", name(file)),
        }
    }

    /// Returns the distinct states that a crash may leave now. `seed` draws a sample where there
    /// are too many.
    pub fn point(&mut self, seed: u64) -> CrashPoint {
        let mut point = CrashPoint::default();
        self.choose_names(seed, &mut point);
        for tree in &point.trees {
            for (_, file) in tree.names.iter().filter_map(|(path, file)| Some((path, (*file)?))) {
                let tracked = self.files.get_mut(&file).expect("it was made");
                let seed = seed ^ mix(file);
                point.variants.entry(file).or_insert_with(|| tracked.variants(seed));
            }
        }
        let mut seen = BTreeSet::new();
        for tree in 0..point.trees.len() {
            for kept in [false, true] {
                point.add(Choice { tree, kept, other: None }, &mut seen);
            }
        }
        // The first two trees have all unsynced names, and none of them.
        for tree in 0..point.trees.len().min(2) {
            let varied = point.trees[tree].varied(&point.variants, self.indifferent);
            for kept in [false, true] {
                for (file, variant) in &varied {
                    point.add(Choice { tree, kept, other: Some((*file, *variant)) }, &mut seen);
                }
            }
        }
        point
    }

    /// Adds the possible trees of names.
    fn choose_names(&self, seed: u64, point: &mut CrashPoint) {
        let matters = |change: &NameChange<Entry>| match change {
            NameChange::Put(path, _) | NameChange::Remove(path) => !(self.indifferent)(path),
            NameChange::Rename { from, to, .. } => !(self.indifferent)(from) || !(self.indifferent)(to),
        };
        let changes: Vec<bool> = self.unsynced.iter().map(matters).collect();
        let count = changes.iter().filter(|matters| **matters).count();
        let mut random = Random::new(seed ^ mix(self.done as u64));
        let mut combinations: Vec<Vec<bool>> = vec![vec![true; count], vec![false; count]];
        if count <= ALL_COMBINATIONS {
            combinations
                .extend((0..1u32 << count).map(|bits| (0..count).map(|n| bits >> n & 1 == 1).collect()));
        } else {
            for _ in 0..DRAWN {
                let at = random.below(count as u64) as usize;
                combinations.push((0..count).map(|n| n < at).collect());
                combinations.push((0..count).map(|n| n != at).collect());
                combinations.push((0..count).map(|n| n == at).collect());
                combinations.push((0..count).map(|_| random.chance(0.5)).collect());
            }
        }
        let mut seen = BTreeSet::new();
        for combination in combinations.into_iter().filter(|combination| seen.insert(combination.clone())) {
            let mut names = self.durable.clone();
            let mut drawn = combination.iter();
            let mut lost = String::new();
            for (change, matters) in self.unsynced.iter().zip(&changes) {
                if !matters || *drawn.next().expect("one for each that matters") {
                    change.apply(&mut names);
                } else {
                    let _ = write!(lost, " {change:?}");
                }
            }
            remove_orphans(&mut names, Option::is_none);
            let hashes = names
                .iter()
                .filter(|(path, _)| !(self.indifferent)(path))
                .map(|(path, file)| (hash(path.as_os_str().as_encoded_bytes()), *file))
                .collect();
            point.trees.push(Tree { names, hashes, lost });
        }
    }
}

/// The states that a crash may leave at one moment, by number.
#[derive(Default)]
pub struct CrashPoint {
    trees: Vec<Tree>,
    variants: BTreeMap<u64, Arc<Vec<Variant>>>,
    choices: Vec<(Choice, u64)>,
}

struct Tree {
    names: Names<Entry>,
    /// `names` without indifferent files, with their paths hashed.
    hashes: Vec<(u64, Entry)>,
    lost: String,
}

impl Tree {
    /// Returns each file that may be in several states, with the number of each.
    fn varied(
        &self,
        variants: &BTreeMap<u64, Arc<Vec<Variant>>>,
        indifferent: fn(&Path) -> bool,
    ) -> Vec<(u64, usize)> {
        let files = self.names.iter().filter(|(path, _)| !indifferent(path)).filter_map(|(_, file)| *file);
        files.flat_map(|file| (0..variants[&file].len()).map(move |number| (file, number))).collect()
    }
}

#[derive(Clone, Copy)]
struct Choice {
    tree: usize,
    kept: bool,
    /// The one file that is an exception to `kept`, and its variant.
    other: Option<(u64, usize)>,
}

impl Choice {
    fn variant(&self, file: u64, variants: &[Variant]) -> usize {
        match self.other {
            Some((other, number)) if other == file => number,
            _ if self.kept => KEPT.min(variants.len() - 1),
            _ => LOST,
        }
    }
}

impl CrashPoint {
    fn add(&mut self, choice: Choice, seen: &mut BTreeSet<u64>) {
        let sum = self.trees[choice.tree].hashes.iter().fold(0, |sum, (path, file)| {
            let content = file.map_or(0, |file| {
                let variants = &self.variants[&file];
                variants[choice.variant(file, variants)].hash
            });
            mix(mix(sum ^ path) ^ content)
        });
        if seen.insert(sum) {
            self.choices.push((choice, sum));
        }
    }

    /// Returns the number of states.
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    /// Returns true if there is no state; there always is one.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// Returns a hash that is equal for states that differ in indifferent files only, at any
    /// moment.
    pub fn hash(&self, state: usize) -> u64 {
        self.choices[state].1
    }

    /// Returns true if nothing is lost, which is the state after the process ends and the machine
    /// does not.
    pub fn is_whole(&self, state: usize) -> bool {
        let choice = &self.choices[state].0;
        choice.tree == 0 && choice.kept && choice.other.is_none()
    }

    /// Returns the damaged file of this state: its content never existed, because it is torn inside
    /// a sector or has a hole.
    pub fn damaged(&self, state: usize) -> Option<&Path> {
        let choice = &self.choices[state].0;
        let (file, number) = choice.other?;
        self.variants[&file][number].damaged.then(|| self.path_of(choice.tree, file))?
    }

    fn path_of(&self, tree: usize, file: u64) -> Option<&Path> {
        let mut names = self.trees[tree].names.iter();
        names.find(|(_, entry)| **entry == Some(file)).map(|(path, _)| &**path)
    }

    /// Returns the content of the disk in this state.
    pub fn image(&self, state: usize) -> Image {
        let choice = &self.choices[state].0;
        let content = |file: u64| {
            let variants = &self.variants[&file];
            variants[choice.variant(file, variants)].bytes.clone()
        };
        let names = self.trees[choice.tree].names.iter();
        Image { files: names.map(|(path, file)| (path.clone(), file.map(content))).collect() }
    }

    /// Returns a description of this state.
    pub fn what(&self, state: usize) -> String {
        let choice = &self.choices[state].0;
        let tree = &self.trees[choice.tree];
        let rest = if choice.kept { "kept" } else { "lost" };
        let mut text = format!("what was not synced is {rest}");
        if let Some((file, number)) = choice.other {
            let path = self.path_of(choice.tree, file).unwrap_or(Path::new(""));
            let _ = write!(text, ", but {} is {}", path.display(), self.variants[&file][number].what);
        }
        if !tree.lost.is_empty() {
            let _ = write!(text, "; names lost:{}", tree.lost);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileSystem;
    use crate::simulation::SimulatedFileSystem;

    /// Returns the states after the changes that `happen` makes on a new disk: the bytes of `/a`
    /// (`None` if it does not exist), the description, and true if damaged.
    fn states(happen: impl FnOnce(&SimulatedFileSystem)) -> Vec<(Option<Vec<u8>>, String, bool)> {
        let fs = SimulatedFileSystem::new(1);
        fs.record();
        happen(&fs);
        let journal = fs.take_journal().unwrap();
        let mut states = CrashStates::new(&journal, |_| false);
        while states.advance() {}
        let point = states.point(1);
        let bytes = |image: &Image| {
            image
                .files()
                .find(|(path, _)| *path == Path::new("/a"))
                .and_then(|(_, bytes)| bytes.map(<[u8]>::to_vec))
        };
        (0..point.len())
            .map(|state| (bytes(&point.image(state)), point.what(state), point.damaged(state).is_some()))
            .collect()
    }

    #[test]
    fn what_is_not_synced_is_lost_kept_torn_or_has_holes() {
        let all = states(|fs| {
            let mut file = fs.create(Path::new("/a")).unwrap();
            file.append(&[1; 700]).unwrap();
            file.sync().unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
            file.append(&[2; 600]).unwrap();
            file.append(&[3; 9000]).unwrap();
        });
        let found = |expected: &[(u8, usize)]| {
            let bytes: Vec<u8> = expected.iter().flat_map(|(byte, count)| vec![*byte; *count]).collect();
            all.iter().filter(|(found, _, _)| found.as_deref() == Some(&bytes)).count()
        };
        assert!(all.iter().all(|(bytes, _, _)| bytes.as_ref().is_some_and(|bytes| bytes[..700] == [1; 700])));
        assert_eq!(found(&[(1, 700)]), 1, "lost");
        assert_eq!(found(&[(1, 700), (2, 600), (3, 9000)]), 1, "kept");
        assert_eq!(found(&[(1, 700), (2, 600)]), 1, "between two writes");
        assert_eq!(found(&[(1, 700), (2, 600), (3, 1536 - 1300)]), 1, "torn at the first sector");
        assert_eq!(found(&[(1, 700), (2, 600), (3, 4096 - 1300)]), 1, "torn at the first page");
        assert_eq!(found(&[(1, 700), (0, 600), (3, 9000)]), 1, "without the first write");
        assert_eq!(found(&[(1, 700), (2, 600), (0, 9000)]), 1, "as long, without the bytes");
        assert!(all.iter().any(|(_, what, damaged)| *damaged && what.contains("garbage")));
        assert!(all.iter().any(|(_, what, damaged)| *damaged && what.contains("zero up to")));
    }

    #[test]
    fn a_second_name_is_lost_unless_its_directory_was_synced_and_never_the_bytes() {
        let linked = |synced: bool| {
            states(|fs| {
                fs.create_dir(Path::new("/d")).unwrap();
                let mut file = fs.create(Path::new("/d/first")).unwrap();
                file.append(&[1]).unwrap();
                file.sync().unwrap();
                fs.sync_dir(Path::new("/")).unwrap();
                fs.sync_dir(Path::new("/d")).unwrap();
                fs.link(Path::new("/d/first"), Path::new("/a")).unwrap();
                if synced {
                    fs.sync_dir(Path::new("/")).unwrap();
                }
            })
        };
        let bytes = |all: Vec<(Option<Vec<u8>>, String, bool)>| -> BTreeSet<Option<Vec<u8>>> {
            all.into_iter().map(|(bytes, _, _)| bytes).collect()
        };
        assert_eq!(bytes(linked(false)), BTreeSet::from([None, Some(vec![1])]));
        assert_eq!(bytes(linked(true)), BTreeSet::from([Some(vec![1])]));
    }

    #[test]
    fn names_that_are_not_synced_are_lost_in_each_combination() {
        let all = states(|fs| {
            for (name, byte) in [("/a", 1), ("/b", 2)] {
                let mut file = fs.create(Path::new(name)).unwrap();
                file.append(&[byte]).unwrap();
                file.sync().unwrap();
            }
            fs.sync_dir(Path::new("/")).unwrap();
            fs.rename(Path::new("/b"), Path::new("/a")).unwrap();
            fs.remove(Path::new("/a")).unwrap();
        });
        let mut contents: Vec<_> = all.into_iter().map(|(bytes, _, _)| bytes).collect();
        contents.sort();
        // Both changes, or neither; the removal alone leaves /b, the rename alone leaves no file.
        assert_eq!(contents, [None, None, Some(vec![1]), Some(vec![2])]);
    }

    #[test]
    fn machines_that_start_with_an_image_do_not_see_each_other() {
        let fs = SimulatedFileSystem::new(1);
        fs.record();
        let mut file = fs.create(Path::new("/a")).unwrap();
        file.append(&[1; 10]).unwrap();
        let journal = fs.take_journal().unwrap();
        let mut states = CrashStates::new(&journal, |_| false);
        while states.advance() {}
        let point = states.point(1);
        let whole = (0..point.len()).find(|state| point.is_whole(*state)).unwrap();
        let image = point.image(whole);
        let [one, other] = [1, 2].map(|seed| SimulatedFileSystem::with_image(&image, seed));
        one.append(Path::new("/a")).unwrap().append(&[2]).unwrap();
        assert_eq!(other.read_file(Path::new("/a")).unwrap(), [1; 10]);
        assert_eq!(one.read_file(Path::new("/a")).unwrap().len(), 11);
    }
}
