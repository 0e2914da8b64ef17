//! Merge operators: how operands written by `merge` become a value.
//!
//! In: a key, the value below the operands if there is one, and the operands, oldest first. Out:
//! the value read. The operators RocksDB ships are found by the names in OPTIONS with
//! [`from_name`]; others are given by the user as `Arc<dyn MergeOperator>`. Operators are called by
//! lookups, iterators, flushes and compactions, from any thread, in no given order; they must be
//! deterministic.

mod builtin;
#[cfg(test)]
mod tests;

pub use builtin::{BytesXor, Max, Put, SortList, StringAppend, UInt64Add};

use crate::error::{Error, ErrorKind, Shown};
use std::fmt::Debug;
use std::sync::Arc;

/// What a merge yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// New bytes.
    Bytes(Vec<u8>),
    /// One of the operands, by its index, unchanged; nothing is copied.
    Operand(usize),
    /// The existing value, unchanged. Only when there was one.
    Existing,
}

/// Why an operator gave no value. The read that needed it fails with a corruption error that
/// carries this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeFailed(pub String);

impl std::fmt::Display for MergeFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "merge operator failed: {}", self.0)
    }
}

impl std::error::Error for MergeFailed {}

/// Turns operands into a value.
pub trait MergeOperator: Send + Sync + Debug {
    /// The name kept in OPTIONS; a database is read with the operator of the name it was written
    /// with.
    fn name(&self) -> &str;

    /// The value of `key`: `existing` (none after a deletion, or when nothing was ever put) with
    /// `operands`, oldest first, applied. There is at least one operand.
    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed>;

    /// Several operands, oldest first, as one, without the value below them; `None` when that
    /// cannot be said.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }

    /// Whether `partial_merge` may be asked about a single operand.
    fn allow_single_operand(&self) -> bool {
        false
    }

    /// Asked during a lookup with the operands found so far, **newest first**: whether they
    /// suffice, so that nothing older is read. The merge is then made without a value below.
    fn should_merge(&self, operands: &[&[u8]]) -> bool {
        let _ = operands;
        false
    }
}

/// The outcome of [`MergeOperator::full_merge`], which may be relied on: it names an operand that
/// was given, and an existing value only where there is one.
///
/// # Errors
/// `Corruption`, with the operator and the key: it failed, or chose what it was not given.
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

/// A merge operator whose operands are values: merging is one function of two of them, and it is
/// associative, as sums, unions and maxima are. Wrapped in [`Associative`] it is a
/// [`MergeOperator`] that also merges operands before the value below them is known.
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
    /// The name kept in OPTIONS; a database is read with the operator of the name it was written
    /// with.
    fn name(&self) -> &str;

    /// `operand` applied to the value, or to the merged operands, before it; `existing` is none
    /// when there is nothing before it.
    fn merge(&self, key: &[u8], existing: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, MergeFailed>;
}

/// The [`MergeOperator`] that an [`AssociativeMergeOperator`] makes.
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

/// The operator RocksDB ships under `name`: its class name (as OPTIONS has it), its short name, or
/// an option string such as `{id=StringAppendOperator;delimiter=|;}`.
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
    // Compat: OPTIONS has `\:` for a colon.
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
