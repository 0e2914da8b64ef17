//! Wide-column entities: a value made of named columns.
//!
//! | version 1: bytes | content |
//! |---|---|
//! | 1-5 | version, varint32 |
//! | 1-5 | number of columns n, varint32 |
//! | n times | name (length-prefixed), length of the value (varint32) |
//! | ... | the values, concatenated |
//!
//! | version 2: bytes | content |
//! |---|---|
//! | 1-5, 1-5 | version, number of columns n |
//! | 3 times 1-5 | lengths in bytes of the parts "name lengths", "value lengths" and "names", varint32 each |
//! | n | type of each value: a [`ValueType`], value or blob reference |
//! | | name lengths, n varint32 |
//! | | value lengths, n varint32 |
//! | | names |
//! | | values; those of type blob reference are a [`crate::blob::BlobIndex`] |
//!
//! Columns are sorted by name, without duplicates. A column with the empty name, always first, is
//! the default column, whose value a plain read of the key returns. Specified by RocksDB's
//! db/wide/wide_column_serialization.h.
//!
//! In: the value of an entry of type wide-column entity. Out: its columns, borrowed, or
//! [`Corruption`].
//! Invariant: a value that decodes has no bytes left over, its columns are sorted and lie inside
//! it; memory is bounded by its length.

use crate::coding::{self, Reader};
use crate::corruption::Corruption;
use crate::key::ValueType;
use std::ops::Range;

/// All values are inline.
const VERSION_1: u32 = 1;
/// Values may be blob references; RocksDB 11 writes it if large columns go to blob files.
const VERSION_2: u32 = 2;

/// A column of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WideColumn<'a> {
    /// Its name; empty for the default column.
    pub name: &'a [u8],
    /// Its value, or the reference to a blob.
    pub value: &'a [u8],
    /// True if the value is a [`crate::blob::BlobIndex`].
    pub is_blob: bool,
}

/// Location of the default column's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultColumn {
    /// The entity has no default column; a plain read returns an empty value.
    Absent,
    /// Range of the value in the entity.
    Inline(Range<usize>),
    /// Range in the entity of a [`crate::blob::BlobIndex`].
    Blob(Range<usize>),
}

/// Decodes the columns of an entity, in order.
pub fn decode(entity: &[u8]) -> Result<Vec<WideColumn<'_>>, Corruption> {
    let mut columns = Vec::new();
    visit(entity, |name, value, is_blob| {
        columns.push(WideColumn { name: &entity[name], value: &entity[value], is_blob });
    })?;
    Ok(columns)
}

/// Returns the default column of an entity. Allocates nothing; checks the rest of the entity too.
pub fn default_column(entity: &[u8]) -> Result<DefaultColumn, Corruption> {
    let mut found = DefaultColumn::Absent;
    visit(entity, |name, value, is_blob| {
        if name.is_empty() {
            found = if is_blob { DefaultColumn::Blob(value) } else { DefaultColumn::Inline(value) };
        }
    })?;
    Ok(found)
}

/// Returns true if a value must be fetched from a blob file.
pub fn has_blobs(entity: &[u8]) -> Result<bool, Corruption> {
    let mut any = false;
    visit(entity, |_, _, is_blob| any |= is_blob)?;
    Ok(any)
}

/// Calls `column` with the ranges of name and value of each column, in order, and true for a blob
/// reference.
fn visit(entity: &[u8], mut column: impl FnMut(Range<usize>, Range<usize>, bool)) -> Result<(), Corruption> {
    let mut r = Reader::new(entity);
    let version = r.varint32()?;
    let count = r.varint32()? as usize;
    // Every column takes at least two bytes; the check bounds the loop by the length of the value.
    if count > r.remaining() / 2 {
        return Err(r.corruption(format!("entity of {count} columns in {} bytes", entity.len())));
    }
    match version {
        VERSION_1 => visit_version_1(entity, r, count, &mut column),
        VERSION_2 => visit_version_2(entity, r, count, &mut column),
        _ => Err(Corruption::new(format!("wide-column entity of unknown version {version}"), 0u64)),
    }
}

/// Invariant: names are in ascending order, without duplicates.
struct Order<'a> {
    last: Option<&'a [u8]>,
}

impl<'a> Order<'a> {
    fn next(&mut self, name: &'a [u8], at: usize) -> Result<(), Corruption> {
        match self.last.replace(name) {
            Some(last) if last >= name => Err(Corruption::new("wide columns are not sorted", at)),
            _ => Ok(()),
        }
    }
}

fn visit_version_1(
    entity: &[u8],
    start: Reader<'_>,
    count: usize,
    column: &mut impl FnMut(Range<usize>, Range<usize>, bool),
) -> Result<(), Corruption> {
    // The offset of the values is known only after the last name.
    let mut names = start.clone();
    let mut order = Order { last: None };
    let mut total = 0usize;
    for _ in 0..count {
        let at = names.position();
        let name = names.length_prefixed()?;
        order.next(name, at)?;
        total = total.saturating_add(names.varint32()? as usize);
    }
    if total != names.remaining() {
        return Err(
            names.corruption(format!("values of {total} bytes in an entity that has {}", names.remaining()))
        );
    }
    let mut value_at = entity.len() - total;
    let mut r = start;
    for _ in 0..count {
        let name = r.length_prefixed()?.len();
        let name_end = r.position();
        let value_end = value_at + r.varint32()? as usize;
        column(name_end - name..name_end, value_at..value_end, false);
        value_at = value_end;
    }
    Ok(())
}

fn visit_version_2(
    entity: &[u8],
    mut r: Reader<'_>,
    count: usize,
    column: &mut impl FnMut(Range<usize>, Range<usize>, bool),
) -> Result<(), Corruption> {
    let (name_lengths, value_lengths, names) =
        (r.varint32()? as usize, r.varint32()? as usize, r.varint32()? as usize);
    let types_at = r.position();
    let types = r.bytes(count)?;
    let mut part = |bytes| {
        let start = r.position();
        r.bytes(bytes).map(|part| (Reader::new(part), start))
    };
    let (mut name_lengths, name_lengths_at) = part(name_lengths)?;
    let (mut value_lengths, value_lengths_at) = part(value_lengths)?;
    let (_, names_at) = part(names)?;
    let values_at = r.position();
    let (mut name_at, mut value_at) = (names_at, values_at);
    let mut order = Order { last: None };
    for (i, kind) in types.iter().enumerate() {
        let is_blob = match ValueType::from_u8(*kind) {
            Some(ValueType::Value) => false,
            Some(ValueType::BlobIndex) => true,
            _ => return Err(Corruption::new(format!("wide column of type {kind:#04x}"), types_at + i)),
        };
        let name_bytes = name_lengths.varint32().map_err(|c| c.rebased(name_lengths_at as u64))? as usize;
        let value_bytes = value_lengths.varint32().map_err(|c| c.rebased(value_lengths_at as u64))? as usize;
        if name_bytes > values_at - name_at {
            return Err(Corruption::new("wide column name is cut off", name_at));
        }
        if value_bytes > entity.len() - value_at {
            return Err(Corruption::new("wide column value is cut off", value_at));
        }
        let name = name_at..name_at + name_bytes;
        order.next(&entity[name.clone()], name_at)?;
        column(name, value_at..value_at + value_bytes, is_blob);
        name_at += name_bytes;
        value_at += value_bytes;
    }
    let filled = name_lengths.is_empty()
        && value_lengths.is_empty()
        && name_at == values_at
        && value_at == entity.len();
    if filled {
        Ok(())
    } else {
        Err(Corruption::new("parts of a wide-column entity are longer than its columns", value_at))
    }
}

/// Appends an entity of these columns: version 1, or 2 if a value is a blob reference.
///
/// # Panics
/// When the columns are not sorted by name without duplicates, or a part is 4 GiB long or longer.
pub fn encode_into(columns: &[WideColumn<'_>], out: &mut Vec<u8>) {
    let length = |bytes: usize| u32::try_from(bytes).expect("a wide column is shorter than 4 GiB");
    assert!(columns.is_sorted_by(|a, b| a.name < b.name), "wide columns are sorted by name");
    let version = if columns.iter().any(|c| c.is_blob) { VERSION_2 } else { VERSION_1 };
    coding::put_varint32(out, version);
    coding::put_varint32(out, length(columns.len()));
    if version == VERSION_1 {
        for c in columns {
            coding::put_length_prefixed(out, c.name);
            coding::put_varint32(out, length(c.value.len()));
        }
    } else {
        let (mut name_lengths, mut value_lengths) = (Vec::new(), Vec::new());
        for c in columns {
            coding::put_varint32(&mut name_lengths, length(c.name.len()));
            coding::put_varint32(&mut value_lengths, length(c.value.len()));
        }
        let names: usize = columns.iter().map(|c| c.name.len()).sum();
        for part in [name_lengths.len(), value_lengths.len(), names] {
            coding::put_varint32(out, length(part));
        }
        let kind = |is_blob| if is_blob { ValueType::BlobIndex } else { ValueType::Value };
        out.extend(columns.iter().map(|c| kind(c.is_blob) as u8));
        out.extend_from_slice(&name_lengths);
        out.extend_from_slice(&value_lengths);
        columns.iter().for_each(|c| out.extend_from_slice(c.name));
    }
    columns.iter().for_each(|c| out.extend_from_slice(c.value));
}

#[cfg(test)]
mod tests;
