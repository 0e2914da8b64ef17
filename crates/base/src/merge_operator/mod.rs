//! Merge operators: combine the operands written by `merge` into a value.
//!
//! In: a key, the value below the operands if it exists, and the operands, oldest first. Out: the
//! merged value. [`from_name`] finds the operators RocksDB ships by their names in OPTIONS; the
//! user supplies others as `Arc<dyn MergeOperator>`. Lookups, iterators, flushes and compactions
//! call operators from any thread, in no given order; they must be deterministic.

mod builtin;
#[cfg(test)]
mod tests;

pub use builtin::{BytesXor, Max, Put, SortList, StringAppend, UInt64Add};

use crate::error::{Error, ErrorKind, Shown};
use std::fmt::Debug;
use std::sync::Arc;

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// New bytes.
    Bytes(Vec<u8>),
    /// One of the operands, by its index, unchanged; nothing is copied.
    Operand(usize),
    /// The existing value, unchanged. Only valid if there was one.
    Existing,
}

/// The reason why an operator returned no value. The read that needed it fails with a corruption
/// error that has this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeFailed(pub String);

impl std::fmt::Display for MergeFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "merge operator failed: {}", self.0)
    }
}

impl std::error::Error for MergeFailed {}

/// Combines operands into a value.
pub trait MergeOperator: Send + Sync + Debug {
    /// The name written to OPTIONS; a database must be read with the operator it was written with.
    fn name(&self) -> &str;

    /// Applies `operands`, oldest first, to `existing` (`None` after a deletion, or if the key was
    /// never put). There is at least one operand.
    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed>;

    /// Combines operands, oldest first, into one without the value below them; `None` if that is
    /// not possible.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }

    /// Returns true if `partial_merge` may be called with a single operand.
    fn allow_single_operand(&self) -> bool {
        false
    }

    /// Called during a lookup with the operands found so far, **newest first**. Returns true if
    /// they suffice, so that nothing older is read; the merge is then made without a value below.
    fn should_merge(&self, operands: &[&[u8]]) -> bool {
        let _ = operands;
        false
    }
}

/// Calls [`MergeOperator::full_merge`] and checks the result: the operand it names was given, and
/// `Existing` only occurs if there is an existing value.
///
/// # Errors
/// `Corruption`, with the operator and the key: the operator failed, or its result fails the check.
pub fn full_merge(
    operator: &dyn MergeOperator,
    key: &[u8],
    existing: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Merged, Error> {
    let what = match operator.full_merge(key, existing, operands) {
        Ok(Merged::Operand(index)) if index >= operands.len() => {
            "chose an operand that it was not given".into()
        }
        Ok(Merged::Existing) if existing.is_none() => "chose an existing value where there is none".into(),
        Ok(merged) => return Ok(merged),
        Err(failed) => failed.0,
    };
    let (name, key) = (operator.name(), Shown(key));
    Err(Error::new(ErrorKind::Corruption, format!("merge operator {name}: {what}, for key {key}")))
}

/// A merge operator whose operands are values: it is one associative function of two values, like
/// sum, union or maximum. Wrapped in [`Associative`] it becomes a [`MergeOperator`] that can also
/// combine operands before the value below them is known.
///
/// ```
/// # use karst_base as karstdb;
/// use karstdb::merge_operator::{Associative, AssociativeMergeOperator, MergeFailed, MergeOperator};
///
/// #[derive(Debug)]
/// struct Longest;
///
/// impl AssociativeMergeOperator for Longest {
///     fn name(&self) -> &str {
///         "Longest"
///     }
///     fn merge(&self, _key: &[u8], existing: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, MergeFailed> {
///         let longest = existing.filter(|value| value.len() >= operand.len()).unwrap_or(operand);
///         Ok(longest.to_vec())
///     }
/// }
///
/// let operator = Associative(Longest);
/// assert_eq!(operator.partial_merge(b"key", &[b"a", b"ccc", b"bb"]).unwrap(), b"ccc");
/// ```
pub trait AssociativeMergeOperator: Send + Sync + Debug {
    /// The name written to OPTIONS; a database must be read with the operator it was written with.
    fn name(&self) -> &str;

    /// Applies `operand` to the value, or to the merged operands, before it; `existing` is `None`
    /// if there is neither.
    fn merge(&self, key: &[u8], existing: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, MergeFailed>;
}

/// Adapts an [`AssociativeMergeOperator`] to a [`MergeOperator`].
#[derive(Clone, Copy, Debug)]
pub struct Associative<T>(pub T);

impl<T: AssociativeMergeOperator> Associative<T> {
    fn fold(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeFailed> {
        let mut merged: Option<Vec<u8>> = None;
        for operand in operands {
            merged = Some(self.0.merge(key, merged.as_deref().or(existing), operand)?);
        }
        merged.ok_or_else(|| MergeFailed("no operand".into()))
    }
}

impl<T: AssociativeMergeOperator> MergeOperator for Associative<T> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        self.fold(key, existing, operands).map(Merged::Bytes)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.fold(key, None, operands).ok()
    }
}

/// Returns the operator RocksDB ships under `name`: its class name (as in OPTIONS), its short name,
/// or an option string such as `{id=StringAppendOperator;delimiter=|;}`.
pub fn from_name(name: &str) -> Option<Arc<dyn MergeOperator>> {
    let text = name.trim();
    let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let (mut id, mut delimiter) = (text, None);
    if text.contains('=') {
        id = "";
        for part in text.split(';') {
            match part.split_once('=') {
                Some(("id", value)) => id = value,
                Some(("delimiter", value)) => delimiter = Some(value),
                Some(_) => return None,
                None if part.trim().is_empty() => {}
                None => return None,
            }
        }
    }
    // Compat: OPTIONS escapes a colon as `\:`.
    let delimiter =
        delimiter.map_or(b",".to_vec(), |d| karst_format::options::text::unescape(d).into_bytes());
    Some(match id {
        // Compat: the short names are `MergeOperator::NickName`s; both string operators give the
        // same values.
        "StringAppendOperator" | "stringappend" => Arc::new(StringAppend::new(delimiter)),
        "StringAppendTESTOperator" | "stringappendtest" => Arc::new(StringAppend::test_variant(delimiter)),
        "UInt64AddOperator" | "uint64add" => Arc::new(Associative(UInt64Add)),
        "PutOperator" | "put" | "put_v1" => Arc::new(Put),
        "MaxOperator" | "max" => Arc::new(Max),
        "BytesXOR" | "bytesxor" => Arc::new(Associative(BytesXor)),
        "MergeSortOperator" | "sortlist" => Arc::new(SortList),
        _ => return None,
    })
}
