//! Text forms of keys and values in RocksDB's tools: raw bytes or upper-case hex, and internal keys
//! in quotes.

use karst_format::key;
use std::io::{self, Write};

/// Form of bytes: raw or upper-case hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Raw,
    Hex,
}

impl Form {
    pub(crate) fn hex_if(hex: bool) -> Form {
        if hex { Form::Hex } else { Form::Raw }
    }
}

/// Writes `bytes` without a prefix, like RocksDB inside of an internal key.
pub(crate) fn write_bare(out: &mut impl Write, bytes: &[u8], form: Form) -> io::Result<()> {
    match form {
        Form::Raw => out.write_all(bytes),
        Form::Hex => {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let mut text = Vec::with_capacity(bytes.len() * 2);
            for b in bytes {
                text.extend([DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
            }
            out.write_all(&text)
        }
    }
}

/// Writes `bytes`, with `0x` before hex, like ldb for a user key or a value.
pub(crate) fn write_bytes(out: &mut impl Write, bytes: &[u8], form: Form) -> io::Result<()> {
    if form == Form::Hex {
        out.write_all(b"0x")?;
    }
    write_bare(out, bytes, form)
}

/// Writes `'key' seq:5, type:1`.
pub(crate) fn write_internal_key(out: &mut impl Write, internal_key: &[u8], form: Form) -> io::Result<()> {
    if internal_key.len() < key::TRAILER_BYTES {
        out.write_all(b"(bad)")?;
        return write_bare(out, internal_key, form);
    }
    let (user_key, trailer) = key::split(internal_key);
    out.write_all(b"'")?;
    write_bare(out, user_key, form)?;
    write!(out, "' seq:{}, type:{}", trailer >> 8, trailer & 0xff)
}

/// Writes `'key' seq:1, type:1 => value`.
pub(crate) fn write_entry(out: &mut impl Write, key: &[u8], value: &[u8], form: Form) -> io::Result<()> {
    write_internal_key(out, key, form)?;
    out.write_all(b" => ")?;
    write_bare(out, value, form)?;
    out.write_all(b"\n")
}

/// Returns the bytes of `text`: its own, or in hex those of text such as `0x6B31`.
pub(crate) fn parse_bytes(text: &str, form: Form) -> Result<Vec<u8>, String> {
    if form == Form::Raw {
        return Ok(text.as_bytes().to_vec());
    }
    let digits =
        text.strip_prefix("0x").ok_or_else(|| format!("`{text}` is not hex: it must start with 0x"))?;
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return Err(format!("`{text}` is not hex: an odd number of digits"));
    }
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).map_err(|_| format!("`{text}` is not hex")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_as_rocksdb_prints_them() {
        let mut internal = b"k1".to_vec();
        internal.extend_from_slice(&(5u64 << 8 | 1).to_le_bytes());
        assert_eq!(shown(|o| write_internal_key(o, &internal, Form::Raw)), "'k1' seq:5, type:1");
        assert_eq!(shown(|o| write_internal_key(o, &internal, Form::Hex)), "'6B31' seq:5, type:1");
        assert_eq!(shown(|o| write_bytes(o, b"k1", Form::Hex)), "0x6B31");
        assert_eq!(shown(|o| write_internal_key(o, b"short", Form::Raw)), "(bad)short");
    }

    #[test]
    fn hex_read_back() {
        assert_eq!(parse_bytes("0x6B31", Form::Hex).unwrap(), b"k1");
        assert_eq!(parse_bytes("0x6B31", Form::Raw).unwrap(), b"0x6B31");
        for bad in ["6B31", "0x6B3", "0x6BZZ", "0x\u{e9}"] {
            assert!(parse_bytes(bad, Form::Hex).is_err(), "{bad}");
        }
    }
}
