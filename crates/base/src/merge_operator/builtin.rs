//! The merge operators RocksDB ships.
//!
//! Compat: each gives byte for byte what RocksDB's operator of that name gives, its treatment of
//! bad operands included, unless RocksDB's would run off the end of the operand.

use super::{AssociativeMergeOperator, MergeFailed, MergeOperator, Merged};

/// Joins the existing value and the operands with a delimiter (`,` unless given).
#[derive(Clone, Debug)]
pub struct StringAppend {
    name: &'static str,
    delimiter: Vec<u8>,
}

impl StringAppend {
    /// RocksDB's `StringAppendOperator`.
    pub fn new(delimiter: impl Into<Vec<u8>>) -> Self {
        Self { name: "StringAppendOperator", delimiter: delimiter.into() }
    }

    /// RocksDB's `StringAppendTESTOperator`: the same values, but operands are never merged before
    /// they are read.
    pub fn test_variant(delimiter: impl Into<Vec<u8>>) -> Self {
        Self { name: "StringAppendTESTOperator", delimiter: delimiter.into() }
    }

    fn join(&self, parts: &mut dyn Iterator<Item = &[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, part) in parts.enumerate() {
            if i > 0 {
                out.extend_from_slice(&self.delimiter);
            }
            out.extend_from_slice(part);
        }
        out
    }
}

impl MergeOperator for StringAppend {
    fn name(&self) -> &str {
        self.name
    }

    fn full_merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        if existing.is_none() && operands.len() == 1 {
            return Ok(Merged::Operand(0));
        }
        Ok(Merged::Bytes(self.join(&mut existing.into_iter().chain(operands.iter().copied()))))
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        (self.name == "StringAppendOperator").then(|| self.join(&mut operands.iter().copied()))
    }
}

/// Adds 8-byte little-endian integers, wrapping. An operand of another length counts as 0.
#[derive(Clone, Copy, Debug)]
pub struct UInt64Add;

impl AssociativeMergeOperator for UInt64Add {
    fn name(&self) -> &str {
        "UInt64AddOperator"
    }

    fn merge(&self, _key: &[u8], existing: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, MergeFailed> {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        Ok(existing.map_or(0, number).wrapping_add(number(operand)).to_le_bytes().to_vec())
    }
}

/// Replaces the value with the newest operand.
#[derive(Clone, Copy, Debug)]
pub struct Put;

impl MergeOperator for Put {
    fn name(&self) -> &str {
        "PutOperator"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        _existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        Ok(Merged::Operand(operands.len() - 1))
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.last().map(|newest| newest.to_vec())
    }
}

/// Returns the bytewise largest of the existing value and the operands.
#[derive(Clone, Copy, Debug)]
pub struct Max;

impl MergeOperator for Max {
    fn name(&self) -> &str {
        "MaxOperator"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        let mut largest = existing.unwrap_or_default();
        let mut which = existing.map(|_| Merged::Existing);
        for (i, operand) in operands.iter().enumerate() {
            if which.is_none() || *operand > largest {
                (largest, which) = (operand, Some(Merged::Operand(i)));
            }
        }
        which.ok_or_else(|| MergeFailed("no operand".into()))
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.iter().max().map(|largest| largest.to_vec())
    }
}

/// Exclusive-or, byte by byte; the tail of the longer one is kept.
#[derive(Clone, Copy, Debug)]
pub struct BytesXor;

impl AssociativeMergeOperator for BytesXor {
    fn name(&self) -> &str {
        "BytesXOR"
    }

    fn merge(&self, _key: &[u8], existing: Option<&[u8]>, operand: &[u8]) -> Result<Vec<u8>, MergeFailed> {
        let existing = existing.unwrap_or_default();
        let (longer, shorter) =
            if existing.len() < operand.len() { (operand, existing) } else { (existing, operand) };
        let mut out = longer.to_vec();
        out.iter_mut().zip(shorter).for_each(|(to, from)| *to ^= from);
        Ok(out)
    }
}

/// Merges sorted lists of decimal integers, separated by commas. Compat: the existing value is
/// ignored, as RocksDB's operator does.
#[derive(Clone, Copy, Debug)]
pub struct SortList;

impl SortList {
    fn numbers(operand: &[u8]) -> Result<Vec<i32>, MergeFailed> {
        let text = std::str::from_utf8(operand).ok();
        let list = text.and_then(|t| t.split(',').map(|n| n.trim().parse().ok()).collect());
        list.ok_or_else(|| MergeFailed("sortlist: the operand is no list of integers".into()))
    }

    fn merge(operands: &[&[u8]]) -> Result<Vec<u8>, MergeFailed> {
        let mut left: Vec<i32> = Vec::new();
        for operand in operands {
            let right = Self::numbers(operand)?;
            let mut merged = Vec::with_capacity(left.len() + right.len());
            let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
            while let (Some(a), Some(b)) = (l.peek(), r.peek()) {
                merged.extend(if a < b { l.next() } else { r.next() });
            }
            merged.extend(l.chain(r));
            left = merged;
        }
        let text: Vec<String> = left.iter().map(i32::to_string).collect();
        Ok(text.join(",").into_bytes())
    }
}

impl MergeOperator for SortList {
    fn name(&self) -> &str {
        "MergeSortOperator"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        _existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        Self::merge(operands).map(Merged::Bytes)
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Self::merge(operands).ok()
    }
}
