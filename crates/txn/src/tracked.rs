//! The keys that a transaction depends on.
//!
//! In: each key that is written or read for update, with the sequence number from which on nobody
//! else may have written it. Out: all of them, at commit; those that are let go, when the
//! transaction goes back to a save point.

use crate::undo::UndoLog;
use karst_engine::{ColumnFamily, Unchanged};
use std::collections::BTreeMap;

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// Nobody else has written it, or may have, with a larger sequence number.
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

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct TrackedKeys {
    families: BTreeMap<u32, OfFamily>,
    /// What was known before each change.
    undo: UndoLog<Undo>,
}

impl TrackedKeys {
    pub(crate) fn get(&self, family: u32, key: &[u8]) -> Option<Tracked> {
        self.families.get(&family)?.keys.get(key).copied()
    }

    /// Every key with its column family's id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.families
            .iter()
            .flat_map(|(family, of_family)| of_family.keys.keys().map(|key| (*family, &**key)))
    }

    /// Takes note of a key; what was known and is stricter stays.
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

    /// Takes back what was just [tracked](Self::track) of a key, of which `before` was known.
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

    /// Forgets the last save point.
    pub(crate) fn pop_save_point(&mut self) {
        self.undo.pop_save_point();
    }

    /// Goes back to the last save point. `let_go` is called with each key that was not known then.
    pub(crate) fn rollback_to_save_point(&mut self, mut let_go: impl FnMut(u32, &[u8])) {
        for Undo { family, key, before } in self.undo.take_back() {
            let of_family = self.families.get_mut(&family).expect("what was noted has a family");
            match before {
                // Why exclusive stays: a lock that was made exclusive is, until it is let go.
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

    /// All of them, for a write that depends on them.
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
