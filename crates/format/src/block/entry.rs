//! One entry of a block: its header and the ranges of its key bytes and value. The byte tables are
//! in the parent module.
//!
//! In: a block and an offset. Out: [`Entry`], whose ranges all lie inside the block, or `None` for
//! bytes that are no entry.
//! Invariant: `next` is greater than the entry's offset, so every walk over a block ends.

use super::Block;
use crate::coding::{get_varint32, get_varint64};

/// Kind of the keys in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// Internal keys, with trailer.
    Internal,
    /// User keys, or names.
    User,
}

/// Encoding of the length of a block's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueLayout {
    /// A length in the entry's header.
    Sized,
    /// No length: a block handle, whole if the key shares nothing with the previous one, else a
    /// size difference.
    Handle,
    /// Like `Handle`, followed by the length-prefixed first key of the block.
    HandleAndFirstKey,
}

/// A decoded entry header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Key bytes taken from the previous key.
    pub(super) shared: usize,
    /// Offset of the stored key bytes.
    pub(super) key_start: usize,
    pub(super) key_end: usize,
    pub(super) value_start: usize,
    pub(super) value_end: usize,
    /// Offset of the following entry.
    pub(super) next: usize,
}

/// Decodes the entry at `at`.
///
/// `is_restart` is true if a restart point refers to the entry, `previous_value_end` is the end of
/// the previous value; both are used only if values are separated.
#[inline(always)]
pub(super) fn decode(
    block: &Block,
    at: usize,
    is_restart: bool,
    previous_value_end: usize,
    layout: ValueLayout,
) -> Option<Entry> {
    let keys = block.keys();
    let (shared, unshared, value_len, mut key_start) = lengths(keys, at, layout)?;
    let mut value_offset = None;
    if block.separated && is_restart {
        value_offset = Some(get_varint32(keys, &mut key_start)? as usize);
    }
    let key_end = key_start + unshared;
    if key_end > keys.len() {
        return None;
    }
    let (value_start, limit) = if !block.separated {
        (key_end, keys.len())
    } else {
        let start = value_offset.map_or(previous_value_end, |offset| keys.len() + offset);
        (start, block.restarts_start as usize)
    };
    let value_end = match layout {
        ValueLayout::Sized => value_start + value_len,
        _ => handle_end(block.contents.get(..limit)?, value_start, shared != 0, layout)?,
    };
    if value_end > limit {
        return None;
    }
    let next = if block.separated { key_end } else { value_end };
    Some(Entry { shared, key_start, key_end, value_start, value_end, next })
}

/// Returns the key at a restart point, which is stored whole.
#[inline(always)]
pub(super) fn restart_key(block: &Block, at: usize, layout: ValueLayout) -> Option<&[u8]> {
    let keys = block.keys();
    let (shared, unshared, _, mut key_start) = lengths(keys, at, layout)?;
    if shared != 0 {
        return None;
    }
    if block.separated {
        get_varint32(keys, &mut key_start)?;
    }
    keys.get(key_start..key_start + unshared)
}

/// Returns shared, unshared and value length, and the offset behind them.
#[inline(always)]
fn lengths(keys: &[u8], at: usize, layout: ValueLayout) -> Option<(usize, usize, usize, usize)> {
    let sized = layout == ValueLayout::Sized;
    if let Some(&[shared, unshared, value_len]) = keys.get(at..at.checked_add(3)?) {
        if sized && (shared | unshared) < 0x80 {
            if value_len < 0x80 {
                return Some((shared.into(), unshared.into(), value_len.into(), at + 3));
            }
            if let Some(&high) = keys.get(at + 3)
                && high < 0x80
            {
                let value_len = usize::from(value_len & 0x7f) | usize::from(high) << 7;
                return Some((shared.into(), unshared.into(), value_len, at + 4));
            }
        }
        if !sized && (shared | unshared) < 0x80 {
            return Some((shared.into(), unshared.into(), 0, at + 2));
        }
    }
    lengths_slow(keys, at, sized)
}

fn lengths_slow(keys: &[u8], mut at: usize, sized: bool) -> Option<(usize, usize, usize, usize)> {
    let shared = get_varint32(keys, &mut at)? as usize;
    let unshared = get_varint32(keys, &mut at)? as usize;
    let value_len = if sized { get_varint32(keys, &mut at)? as usize } else { 0 };
    Some((shared, unshared, value_len, at))
}

/// Returns the end of the handle at `at`, which has no stored length.
#[inline]
fn handle_end(bytes: &[u8], mut at: usize, is_delta: bool, layout: ValueLayout) -> Option<usize> {
    get_varint64(bytes, &mut at)?;
    if !is_delta {
        get_varint64(bytes, &mut at)?;
    }
    if layout == ValueLayout::HandleAndFirstKey {
        let n = get_varint32(bytes, &mut at)? as usize;
        at = at.checked_add(n)?;
    }
    Some(at)
}
