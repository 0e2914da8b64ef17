//! The index of a batch: maps each key of a column family, in the family's order, to the batch's
//! updates of it.
//!
//! It also computes the result of a key's updates, with or without a value below them.

use karst_engine::format::Comparator;
use karst_engine::merge_operator::{Merged, full_merge};
use karst_engine::{ColumnFamily, Error, Result, Value};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// One operation on a key.
#[derive(Clone, Debug)]
pub(super) enum Update {
    Put(Arc<[u8]>),
    Delete,
    SingleDelete,
    Merge(Arc<[u8]>),
    Entity {
        /// The entity as the batch encodes it.
        entity: Arc<[u8]>,
        /// The value that a plain read returns.
        value: Arc<[u8]>,
    },
}

/// Updates of one key, oldest first.
pub(super) type Updates = Vec<Update>;

/// A key that compares in the order of its column family.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) bytes: Arc<[u8]>,
    order: Comparator,
}

/// A key to look up: owned or borrowed.
trait Probe {
    fn parts(&self) -> (&[u8], &Comparator);
}

impl Probe for Key {
    fn parts(&self) -> (&[u8], &Comparator) {
        (&self.bytes, &self.order)
    }
}

impl Probe for (&[u8], &Comparator) {
    fn parts(&self) -> (&[u8], &Comparator) {
        *self
    }
}

impl<'a> Borrow<dyn Probe + 'a> for Key {
    fn borrow(&self) -> &(dyn Probe + 'a) {
        self
    }
}

impl Ord for dyn Probe + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((a, order), (b, _)) = (self.parts(), other.parts());
        order.compare_bare(a, b)
    }
}

impl PartialOrd for dyn Probe + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Probe + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Probe + '_ {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.compare_bare(&self.bytes, &other.bytes)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

/// Index of a batch's updates in one column family.
#[derive(Clone, Debug)]
pub(super) struct FamilyIndex {
    order: Comparator,
    keys: BTreeMap<Key, Updates>,
}

/// Start of a walk: an end of the index, a key, or the neighbour of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    End,
    At(&'a [u8]),
    Beyond(&'a [u8]),
}

impl FamilyIndex {
    pub(super) fn new(order: &Comparator) -> Self {
        Self { order: order.clone(), keys: BTreeMap::new() }
    }

    pub(super) fn order(&self) -> &Comparator {
        &self.order
    }

    /// Adds an update. If `remember`, returns the key and the updates it had before.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        update: Update,
        overwrite: bool,
        remember: bool,
    ) -> Option<(Arc<[u8]>, Option<Updates>)> {
        let order = &self.order;
        if let Some(updates) = self.keys.get_mut(&(key, order) as &dyn Probe) {
            let before = remember.then(|| (key.into(), Some(updates.clone())));
            // Not for operands, because their result depends on the updates below them.
            if overwrite && !matches!(update, Update::Merge(_)) {
                updates.clear();
            }
            updates.push(update);
            return before;
        }
        let bytes: Arc<[u8]> = key.into();
        self.keys.insert(Key { bytes: bytes.clone(), order: order.clone() }, vec![update]);
        remember.then_some((bytes, None))
    }

    /// Restores the updates that [`add`](Self::add) returned for the key.
    pub(super) fn restore(&mut self, key: Arc<[u8]>, before: Option<Updates>) {
        let key = Key { bytes: key, order: self.order.clone() };
        match before {
            Some(updates) => self.keys.insert(key, updates),
            None => self.keys.remove(&key),
        };
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Updates> {
        self.keys.get(&(key, &self.order) as &dyn Probe)
    }

    /// Returns the first key from `from` on, in the family's order or against it.
    pub(super) fn walk(&self, from: From<'_>, forward: bool) -> Option<(&Key, &Updates)> {
        let order = &self.order;
        let probe = match from {
            From::End => None,
            From::At(key) | From::Beyond(key) => Some((key, order)),
        };
        let bound: Bound<&dyn Probe> = match (&probe, from) {
            (Some(probe), From::At(_)) => Bound::Included(probe),
            (Some(probe), _) => Bound::Excluded(probe),
            (None, _) => Bound::Unbounded,
        };
        match forward {
            true => self.keys.range::<dyn Probe, _>((bound, Bound::Unbounded)).next(),
            false => self.keys.range::<dyn Probe, _>((Bound::Unbounded, bound)).next_back(),
        }
    }
}

/// Result of a key's updates.
pub(super) enum Amount {
    Value(Arc<[u8]>),
    Deleted,
    /// Merge operands, oldest first, to be applied to the database's value.
    Operands(Vec<Arc<[u8]>>),
}

/// Returns the result of `updates` of `key`. Merging needs `family` for its merge operator.
pub(super) fn amount(family: Option<&ColumnFamily>, key: &[u8], updates: &[Update]) -> Result<Amount> {
    let base = updates.iter().rposition(|update| !matches!(update, Update::Merge(_)));
    let operands: Vec<Arc<[u8]>> = updates[base.map_or(0, |base| base + 1)..]
        .iter()
        .map(|update| match update {
            Update::Merge(operand) => operand.clone(),
            _ => unreachable!("behind the last that is none"),
        })
        .collect();
    let existing = match base.map(|base| &updates[base]) {
        None => return Ok(Amount::Operands(operands)),
        Some(Update::Put(value) | Update::Entity { value, .. }) => Some(value),
        Some(_) => None,
    };
    if operands.is_empty() {
        return Ok(existing.map_or(Amount::Deleted, |value| Amount::Value(value.clone())));
    }
    let existing = existing.map(|value| Value::from(value.clone()));
    let Some(family) = family else {
        let text = "a merge into a batch without a database needs a column family";
        return Err(Error::invalid_argument(text));
    };
    Ok(Amount::Value(merged(family, key, existing, &operands)?.to_vec().into()))
}

/// Merges `operands`, oldest first, into `existing`.
pub(super) fn merged(
    family: &ColumnFamily,
    key: &[u8],
    existing: Option<Value>,
    operands: &[Arc<[u8]>],
) -> Result<Value> {
    let operator = family.merge_operator()?;
    let oldest_first: Vec<&[u8]> = operands.iter().map(|operand| &**operand).collect();
    Ok(match full_merge(&*operator, key, existing.as_deref(), &oldest_first)? {
        Merged::Bytes(bytes) => Value::from(bytes),
        Merged::Operand(index) => Value::from(operands[index].clone()),
        Merged::Existing => existing.expect("it was given one"),
    })
}
