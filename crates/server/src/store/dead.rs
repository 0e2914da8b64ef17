//! Dead versions: collections that were deleted, and whose elements are still in the family
//! `elements`, and entries of their fields in `fields`. A compaction filter drops both.
//!
//! In: versions with the sequence number of a moment after their death. Out: the filter for
//! compactions, and the versions to forget after a compaction of both whole families.
//!
//! Invariant: filters drop entries that snapshots see too, so a version is filtered only once no
//! snapshot from before its death is left. Readers of a collection therefore take a snapshot before
//! they read its key.

use super::layout::version_at;
use karstdb::compaction_filter::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterInput,
};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// A dead version.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadVersion {
    pub(super) version: u64,
    /// Number of its elements when it died.
    pub(super) elements: u64,
}

/// Number of the dead versions that filters drop, and of their elements when they died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) versions: u64,
    pub(super) elements: u64,
}

/// Sets of dead versions. Each is at least twice as large as the next one, so there are few.
type Sets = Vec<Arc<HashSet<u64>>>;

/// The dead versions of a store.
#[derive(Debug, Default)]
pub(super) struct Dead {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Versions that older snapshots may see, each with a sequence number after its death, about in
    /// their order.
    seen: VecDeque<(DeadVersion, u64)>,
    /// Versions that filters drop, since the last [`Dead::begin`].
    fresh: Sets,
    fresh_load: Load,
    /// Those of before it, which are to be forgotten.
    compacted: Sets,
    compacted_load: Load,
    /// Held by the filters that were made since the last [`Dead::begin`].
    filters: Arc<()>,
}

/// The versions that a compaction of the whole family drops.
#[derive(Debug)]
pub(super) struct Compacted {
    sets: Sets,
    /// Held by the filters of before.
    older: Arc<()>,
}

impl Compacted {
    /// Returns true while a compaction runs that may drop fewer.
    pub(super) fn is_filtered_by_fewer(&self) -> bool {
        Arc::strong_count(&self.older) > 1
    }

    pub(super) fn versions(&self) -> impl Iterator<Item = u64> {
        self.sets.iter().flat_map(|set| set.iter().copied())
    }
}

impl Dead {
    /// Adds versions that nobody reads.
    pub(super) fn load(&self, versions: impl Iterator<Item = DeadVersion>) {
        self.state.lock().drop_from_now_on(versions);
    }

    /// Adds versions that died before `sequence`.
    pub(super) fn add(&self, versions: impl Iterator<Item = DeadVersion>, sequence: u64) {
        self.state.lock().seen.extend(versions.map(|version| (version, sequence)));
    }

    /// Returns true if versions wait for [`release`](Self::release).
    pub(super) fn waits(&self) -> bool {
        !self.state.lock().seen.is_empty()
    }

    /// Lets filters drop the versions that no snapshot can see; `oldest` is the sequence number of
    /// the oldest snapshot. Returns the number of all that filters drop from now on.
    pub(super) fn release(&self, oldest: Option<u64>) -> Load {
        let mut state = self.state.lock();
        let free =
            state.seen.iter().take_while(|(_, died)| oldest.is_none_or(|oldest| oldest >= *died)).count();
        let free: Vec<_> = state.seen.drain(..free).map(|(dead, _)| dead).collect();
        state.drop_from_now_on(free.into_iter());
        Load {
            versions: state.fresh_load.versions + state.compacted_load.versions,
            elements: state.fresh_load.elements.saturating_add(state.compacted_load.elements),
        }
    }

    /// Begins a compaction of the whole family, at whose end [`forget`](Self::forget) is called if
    /// it has dropped what is returned.
    pub(super) fn begin(&self) -> Compacted {
        let mut state = self.state.lock();
        let State { fresh, fresh_load, compacted, compacted_load, filters, .. } = &mut *state;
        compacted.append(fresh);
        let load = std::mem::take(fresh_load);
        compacted_load.versions += load.versions;
        compacted_load.elements = compacted_load.elements.saturating_add(load.elements);
        Compacted { sets: compacted.clone(), older: std::mem::take(filters) }
    }

    /// Forgets the versions of the last [`begin`](Self::begin), whose elements are all gone.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        state.compacted_load = Load::default();
        let gone = std::mem::take(&mut state.compacted);
        // Freed without the lock, which commits take.
        drop(state);
        drop(gone);
    }

    /// Makes a filter of the versions that are dropped from now on.
    fn filter(&self, offset: usize) -> DeadFilter {
        let state = self.state.lock();
        let sets = state.compacted.iter().chain(&state.fresh).cloned().collect();
        DeadFilter { sets, offset, _made: state.filters.clone() }
    }
}

impl State {
    fn drop_from_now_on(&mut self, versions: impl Iterator<Item = DeadVersion>) {
        let mut newest = HashSet::new();
        for DeadVersion { version, elements } in versions {
            newest.insert(version);
            self.fresh_load.versions += 1;
            self.fresh_load.elements = self.fresh_load.elements.saturating_add(elements);
        }
        if newest.is_empty() {
            return;
        }
        while let Some(last) = self.fresh.pop_if(|last| last.len() < 2 * newest.len()) {
            newest.extend(last.iter());
        }
        self.fresh.push(Arc::new(newest));
    }
}

/// Makes the filters of a family.
#[derive(Debug)]
pub(super) struct DeadElements {
    pub(super) dead: Arc<Dead>,
    /// Offset of the version in the family's keys.
    pub(super) offset: usize,
}

impl CompactionFilterFactory for DeadElements {
    fn name(&self) -> &str {
        "KarstServerDeadElements"
    }

    fn create(&self, _: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        // One without versions too, because it tells that its compaction runs.
        Some(Box::new(self.dead.filter(self.offset)))
    }
}

/// Drops the elements of these versions.
#[derive(Debug)]
struct DeadFilter {
    sets: Sets,
    offset: usize,
    /// Counts it; see [`Compacted::is_filtered_by_fewer`].
    _made: Arc<()>,
}

impl CompactionFilter for DeadFilter {
    fn name(&self) -> &str {
        "KarstServerDeadElements"
    }

    fn filter(&self, _: u32, key: &[u8], _: FilterInput<'_>) -> FilterDecision {
        let is_dead = |version| self.sets.iter().any(|set| set.contains(&version));
        match version_at(key, self.offset).is_some_and(is_dead) {
            true => FilterDecision::Remove,
            false => FilterDecision::Keep,
        }
    }

    fn filter_blob_by_key(&self, level: u32, key: &[u8]) -> Option<FilterDecision> {
        Some(self.filter(level, key, FilterInput::Value(&[])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: u64) -> DeadVersion {
        DeadVersion { version, elements: 10 * version }
    }

    fn filtered(dead: &Dead) -> Vec<u64> {
        let mut all: Vec<u64> = dead.filter(0).sets.iter().flat_map(|set| set.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn versions_are_dropped_once_no_snapshot_is_older() {
        let dead = Dead::default();
        dead.load([of(1)].into_iter());
        dead.add([of(2), of(3)].into_iter(), 10);
        dead.add([of(4)].into_iter(), 20);
        assert_eq!((dead.release(Some(9)), filtered(&dead)), (Load { versions: 1, elements: 10 }, vec![1]));
        dead.release(Some(10));
        assert_eq!(filtered(&dead), [1, 2, 3]);
        let compacted = dead.begin();
        assert_eq!(dead.release(None), Load { versions: 4, elements: 100 });
        assert_eq!(filtered(&dead), [1, 2, 3, 4]);
        assert_eq!(compacted.versions().collect::<HashSet<_>>(), HashSet::from([1, 2, 3]));
        dead.forget();
        assert_eq!((dead.release(None), filtered(&dead)), (Load { versions: 1, elements: 40 }, vec![4]));
    }

    #[test]
    fn a_compaction_waits_for_filters_of_before() {
        let dead = Dead::default();
        let older = dead.filter(0);
        dead.load([of(1)].into_iter());
        let compacted = dead.begin();
        let newer = dead.filter(0);
        assert!(compacted.is_filtered_by_fewer());
        drop(older);
        assert!(!compacted.is_filtered_by_fewer());
        drop(newer);
    }

    #[test]
    fn the_sets_are_few() {
        let dead = Dead::default();
        (0..1000).for_each(|version| dead.load([of(version)].into_iter()));
        assert!(dead.filter(0).sets.len() <= 11 && filtered(&dead).len() == 1000);
    }
}
