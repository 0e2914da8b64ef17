//! The keys that a transaction depends on.
//!
//! Each key that is written or read for update is tracked with the sequence number after which no
//! other writer may have changed it. A commit takes all of them; a rollback to a save point returns
//! those to be released.

use crate::undo::UndoLog;
use karst_engine::{ColumnFamily, Unchanged};
use std::collections::BTreeMap;

/// State of a tracked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// No other writer has changed the key, or may have, at a larger sequence number.
    pub(crate) since: u64,
    pub(crate) exclusive: bool,
}

#[derive(Debug)]
struct OfFamily {
    family: ColumnFamily,
    keys: BTreeMap<Box<[u8]>, Tracked>,
}

#[derive(Debug)]
struct Undo {
    family: u32,
    key: Box<[u8]>,
    before: Option<Tracked>,
}

/// Tracked keys of one transaction, with undo for save points.
#[derive(Debug, Default)]
pub(crate) struct TrackedKeys {
    families: BTreeMap<u32, OfFamily>,
    /// Previous state of each change since the first save point.
    undo: UndoLog<Undo>,
}

impl TrackedKeys {
    pub(crate) fn get(&self, family: u32, key: &[u8]) -> Option<Tracked> {
        self.families.get(&family)?.keys.get(key).copied()
    }

    /// Iterates over every key with its column family's id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.families
            .iter()
            .flat_map(|(family, of_family)| of_family.keys.keys().map(|key| (*family, &**key)))
    }

    /// Tracks a key; the stricter of the old and the new state stays.
    pub(crate) fn track(&mut self, family: &ColumnFamily, key: &[u8], new: Tracked) {
        let of_family = self
            .families
            .entry(family.id())
            .or_insert_with(|| OfFamily { family: family.clone(), keys: BTreeMap::new() });
        let before = of_family.keys.get(key).copied();
        let now = before.map_or(new, |before| Tracked {
            since: before.since.min(new.since),
            exclusive: before.exclusive || new.exclusive,
        });
        if before == Some(now) {
            return;
        }
        of_family.keys.insert(key.into(), now);
        if self.undo.is_kept() {
            self.undo.push(Undo { family: family.id(), key: key.into(), before });
        }
    }

    /// Undoes the last [`track`](Self::track) of a key, whose previous state was `before`.
    pub(crate) fn take_back(&mut self, family: u32, key: &[u8], before: Option<Tracked>) {
        let Some(of_family) = self.families.get_mut(&family).filter(|of| of.keys.get(key).copied() != before)
        else {
            return;
        };
        match before {
            Some(before) => drop(of_family.keys.insert(key.into(), before)),
            None => drop(of_family.keys.remove(key)),
        }
        if self.undo.is_kept() {
            self.undo.pop();
        }
    }

    pub(crate) fn set_save_point(&mut self) {
        self.undo.set_save_point();
    }

    /// Removes the last save point.
    pub(crate) fn pop_save_point(&mut self) {
        self.undo.pop_save_point();
    }

    /// Restores the state at the last save point. Calls `let_go` with each key that was not tracked
    /// then.
    pub(crate) fn rollback_to_save_point(&mut self, mut let_go: impl FnMut(u32, &[u8])) {
        for Undo { family, key, before } in self.undo.take_back() {
            let of_family = self.families.get_mut(&family).expect("what was noted has a family");
            match before {
                // `exclusive` is not restored, because the lock stays exclusive until it is
                // released.
                Some(before) => {
                    let exclusive = of_family.keys.get(&key).is_some_and(|now| now.exclusive);
                    of_family.keys.insert(key, Tracked { exclusive, ..before });
                }
                None => {
                    of_family.keys.remove(&key);
                    let_go(family, &key);
                }
            }
        }
    }

    /// Returns all tracked keys, for a conditional write.
    pub(crate) fn unchanged(&self) -> Vec<Unchanged> {
        let of_family = |of: &OfFamily| {
            let unchanged = |key: &[u8], tracked: &Tracked| Unchanged {
                family: of.family.clone(),
                key: key.to_vec(),
                since: tracked.since,
            };
            of.keys.iter().map(|(key, tracked)| unchanged(key, tracked)).collect::<Vec<_>>()
        };
        self.families.values().flat_map(of_family).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.families.values().map(|of| of.keys.len()).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.families.clear();
        self.undo.clear();
    }
}
