//! Integers and length-prefixed strings as every RocksDB file stores them.
//!
//! Fixed integers are little-endian. A varint holds seven bits a byte, lowest first, the top bit
//! set on all bytes but the last; 5 bytes at most for 32 bits, 10 for 64. A signed varint is
//! zig-zag coded first.
//!
//! In: a slice. Out: values, or a [`Corruption`] with the offset of the value that does not decode.
//! Invariant: no read passes the end of the slice, and nothing is allocated.
//! Used by every codec of the workspace.

use crate::corruption::Corruption;

/// Length of the longest encoding of a 32-bit varint, in bytes.
pub const MAX_VARINT32_BYTES: usize = 5;
/// Length of the longest encoding of a 64-bit varint, in bytes.
pub const MAX_VARINT64_BYTES: usize = 10;

/// Appends `v` in two bytes.
#[inline]
pub fn put_fixed16(out: &mut Vec<u8>, v: u16) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends `v` in four bytes.
#[inline]
pub fn put_fixed32(out: &mut Vec<u8>, v: u32) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends `v` in eight bytes.
#[inline]
pub fn put_fixed64(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends `v` in one to five bytes.
#[inline]
pub fn put_varint32(out: &mut Vec<u8>, v: u32) {
    put_varint64(out, u64::from(v));
}

/// Appends `v` in one to ten bytes.
#[inline]
pub fn put_varint64(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends `v` zig-zag coded, in one to ten bytes.
#[inline]
pub fn put_varsigned64(out: &mut Vec<u8>, v: i64) {
    put_varint64(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
///
/// # Panics
/// When `bytes` is 4 GiB long or longer; the format has no room for it.
#[inline]
pub fn put_length_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint32(out, u32::try_from(bytes.len()).expect("a length-prefixed string is shorter than 4 GiB"));
    out.extend_from_slice(bytes);
}

/// Returns the number of bytes that [`put_varint64`] appends for `v`.
#[inline]
#[must_use]
pub const fn varint_len(v: u64) -> usize {
    // The bits of v, at least one, in groups of seven.
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads the varint at `*pos` and moves `*pos` behind it; `None` if it is cut off or longer than 32
/// bits.
#[inline(always)]
pub fn get_varint32(bytes: &[u8], pos: &mut usize) -> Option<u32> {
    let first = *bytes.get(*pos)?;
    if first < 0x80 {
        *pos += 1;
        return Some(u32::from(first));
    }
    get_varint32_slow(bytes, pos)
}

fn get_varint32_slow(bytes: &[u8], pos: &mut usize) -> Option<u32> {
    let mut end = *pos;
    let v = u32::try_from(get_varint(bytes, &mut end, MAX_VARINT32_BYTES)?).ok()?;
    *pos = end;
    Some(v)
}

/// Reads the varint at `*pos` and moves `*pos` behind it; `None` if it is cut off or longer than 64
/// bits.
#[inline]
pub fn get_varint64(bytes: &[u8], pos: &mut usize) -> Option<u64> {
    get_varint(bytes, pos, MAX_VARINT64_BYTES)
}

fn get_varint(bytes: &[u8], pos: &mut usize, max: usize) -> Option<u64> {
    let rest = bytes.get(*pos..)?;
    let mut v = 0u64;
    for (i, &b) in rest.iter().take(max).enumerate() {
        if i == 9 && b > 1 {
            return None;
        }
        v |= u64::from(b & 0x7f) << (7 * i);
        if b < 0x80 {
            *pos += i + 1;
            return Some(v);
        }
    }
    None
}

/// Returns the little-endian 32-bit integer at `pos`; `None` if `bytes` ends before its last byte.
#[inline(always)]
#[must_use]
pub fn fixed32_at(bytes: &[u8], pos: usize) -> Option<u32> {
    let end = pos.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(pos..end)?.try_into().ok()?))
}

/// Returns the little-endian 64-bit integer at `pos`; `None` if `bytes` ends before its last byte.
#[inline(always)]
#[must_use]
pub fn fixed64_at(bytes: &[u8], pos: usize) -> Option<u64> {
    let end = pos.checked_add(8)?;
    Some(u64::from_le_bytes(bytes.get(pos..end)?.try_into().ok()?))
}

/// A cursor over a slice that decodes its values one after the other.
///
/// Each method either returns a value and moves behind it, or fails with the cursor's offset and
/// does not move.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    /// Returns a cursor at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, pos: 0 }
    }

    /// Returns the cursor's position, in bytes from the start.
    #[must_use]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Returns true if everything has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pos == self.bytes.len()
    }

    /// Returns the number of bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.pos
    }

    /// Returns the bytes not read yet; the cursor does not move.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.pos..]
    }

    /// Returns a [`Corruption`] at the cursor's position.
    #[cold]
    pub fn corruption(&self, what: impl Into<std::borrow::Cow<'static, str>>) -> Corruption {
        Corruption::new(what, self.pos)
    }

    /// Reads a byte.
    pub fn u8(&mut self) -> Result<u8, Corruption> {
        let b = *self.bytes.get(self.pos).ok_or_else(|| self.corruption("cut off: no byte left"))?;
        self.pos += 1;
        Ok(b)
    }

    /// Reads a two-byte integer.
    pub fn fixed16(&mut self) -> Result<u16, Corruption> {
        let b = self.bytes(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    /// Reads a four-byte integer.
    pub fn fixed32(&mut self) -> Result<u32, Corruption> {
        let v = fixed32_at(self.bytes, self.pos)
            .ok_or_else(|| self.corruption("cut off: no 32-bit integer left"))?;
        self.pos += 4;
        Ok(v)
    }

    /// Reads an eight-byte integer.
    pub fn fixed64(&mut self) -> Result<u64, Corruption> {
        let v = fixed64_at(self.bytes, self.pos)
            .ok_or_else(|| self.corruption("cut off: no 64-bit integer left"))?;
        self.pos += 8;
        Ok(v)
    }

    /// Reads a varint of at most 32 bits.
    pub fn varint32(&mut self) -> Result<u32, Corruption> {
        get_varint32(self.bytes, &mut self.pos).ok_or_else(|| self.corruption("bad 32-bit varint"))
    }

    /// Reads a varint of at most 64 bits.
    pub fn varint64(&mut self) -> Result<u64, Corruption> {
        get_varint64(self.bytes, &mut self.pos).ok_or_else(|| self.corruption("bad 64-bit varint"))
    }

    /// Reads a zig-zag coded varint.
    pub fn varsigned64(&mut self) -> Result<i64, Corruption> {
        let v = self.varint64()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// Reads `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Corruption> {
        if n > self.remaining() {
            return Err(self.corruption(format!("cut off: {n} bytes wanted, {} left", self.remaining())));
        }
        let b = &self.bytes[self.pos..self.pos + n];
        self.pos += n;
        Ok(b)
    }

    /// Reads a length-prefixed string.
    pub fn length_prefixed(&mut self) -> Result<&'a [u8], Corruption> {
        let start = self.pos;
        let n = self.varint32()? as usize;
        if n > self.remaining() {
            let error = self.corruption(format!("string of {n} bytes is cut off, {} left", self.remaining()));
            self.pos = start;
            return Err(error);
        }
        self.bytes(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(v: u64, s: i64, w: u32) {
            let mut out = Vec::new();
            put_varint64(&mut out, v);
            prop_assert_eq!(out.len(), varint_len(v));
            put_varsigned64(&mut out, s);
            put_varint32(&mut out, w);
            put_fixed16(&mut out, w as u16);
            put_fixed32(&mut out, w);
            put_fixed64(&mut out, v);
            put_length_prefixed(&mut out, b"abc");
            let mut r = Reader::new(&out);
            prop_assert_eq!(r.varint64().unwrap(), v);
            prop_assert_eq!(r.varsigned64().unwrap(), s);
            prop_assert_eq!(r.varint32().unwrap(), w);
            prop_assert_eq!(r.fixed16().unwrap(), w as u16);
            prop_assert_eq!(r.fixed32().unwrap(), w);
            prop_assert_eq!(r.fixed64().unwrap(), v);
            prop_assert_eq!(r.length_prefixed().unwrap(), b"abc");
            prop_assert!(r.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused_in_place(bytes: Vec<u8>) {
            let mut r = Reader::new(&bytes);
            let before = r.position();
            if r.varint32().is_err() { prop_assert_eq!(r.position(), before); }
            let before = r.position();
            if r.length_prefixed().is_err() { prop_assert_eq!(r.position(), before); }
            let before = r.position();
            if r.varint64().is_err() { prop_assert_eq!(r.position(), before); }
        }
    }

    #[test]
    fn varints_too_long_are_refused() {
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint32().is_ok());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint32().is_err());
        assert!(Reader::new(&[0x80; 5]).varint32().is_err());
        assert!(Reader::new(&[0x80; 4]).varint32().is_err());
        let mut longest = [0xff; 10];
        longest[9] = 1;
        assert_eq!(Reader::new(&longest).varint64().unwrap(), u64::MAX);
        longest[9] = 2;
        assert!(Reader::new(&longest).varint64().is_err());
    }

    #[test]
    fn corruption_names_the_place() {
        let mut r = Reader::new(&[1, 2, 3]);
        r.u8().unwrap();
        let e = r.fixed32().unwrap_err();
        assert_eq!(e.offset, 1);
        assert_eq!(e.clone().rebased(10).offset, 11);
        assert!(e.within("header").to_string().starts_with("header: "));
    }
}
