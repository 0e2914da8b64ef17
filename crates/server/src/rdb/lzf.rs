//! LZF, as strings in payloads are compressed: runs of bytes, and copies of earlier ones.
//!
//! | bytes | meaning |
//! |---|---|
//! | `000nnnnn` | n + 1 bytes follow |
//! | `nnnooooo oooooooo` | n + 2 bytes from o + 1 bytes before; n is neither 0 nor 7 |
//! | `111ooooo nnnnnnnn oooooooo` | the same with n + 7 in place of n |

/// Room that is made before anything is known of the bytes.
const ROOM: usize = 64 << 10;

/// Expands bytes that are to become `length` bytes; `None` if they do not.
pub(super) fn expand(mut bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut expanded = Vec::with_capacity(length.min(ROOM));
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        if first < 0x20 {
            let (literal, rest) = bytes.split_at_checked(usize::from(first) + 1)?;
            bytes = rest;
            expanded.extend_from_slice(literal);
        } else {
            let mut count = usize::from(first >> 5);
            if count == 7 {
                let (&more, rest) = bytes.split_first()?;
                bytes = rest;
                count += usize::from(more);
            }
            let (&low, rest) = bytes.split_first()?;
            bytes = rest;
            let distance = (usize::from(first & 0x1f) << 8 | usize::from(low)) + 1;
            let begin = expanded.len().checked_sub(distance)?;
            // What is copied may be a part of the copy.
            for from in begin..begin + count + 2 {
                expanded.push(*expanded.get(from)?);
            }
        }
        if expanded.len() > length {
            return None;
        }
    }
    (expanded.len() == length).then_some(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_may_overlap() {
        assert_eq!(expand(b"\x00a\xe0\x05\x00", 15).as_deref(), Some(&b"aaaaaaaaaaaaaaa"[..]));
        assert_eq!(expand(b"\x01ab\x20\x01", 5).as_deref(), Some(&b"ababa"[..]));
    }

    #[test]
    fn other_bytes_are_refused() {
        for (bytes, length) in [
            (&b"\x01a"[..], 2),
            (b"\x20\x00", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a", 2),
            (b"\x00a\xe0\x05\x00", 9),
        ] {
            assert_eq!(expand(bytes, length), None, "{bytes:?}");
        }
    }
}
