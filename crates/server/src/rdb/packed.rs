//! Collections that are packed into one string: listpacks, ziplists and sets of integers.

use super::{BadPayload, Bytes, Result};
use std::borrow::Cow;

/// Form of a packed collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Length (4), number of elements (2); elements with their length behind them; 0xff.
    ListPack,
    /// Length (4), offset of the last element (4), number of elements (2); elements with the length
    /// of the one before in front; 0xff.
    ZipList,
    /// Width of an integer (4), number of integers (4); integers.
    Integers,
}

/// The byte behind the last element of a listpack or a ziplist.
const END: u8 = 0xff;

/// A packed collection that is read.
pub(super) struct Packed<'a> {
    bytes: Cow<'a, [u8]>,
    at: usize,
    form: Form,
    /// Width of an integer.
    width: usize,
}

/// An element: an integer, or a part of the bytes.
enum Element {
    Integer(i64),
    Text(usize),
}

impl<'a> Packed<'a> {
    /// Checks the head of a packed string.
    pub(super) fn new(form: Form, bytes: Cow<'a, [u8]>) -> Result<Self> {
        let (mut head, length) = (Bytes(&bytes), bytes.len() as u64);
        let first = u64::from(u32::from_le_bytes(head.array()?));
        let mut width = 0;
        match form {
            Form::ListPack | Form::ZipList => {
                head.take(if form == Form::ZipList { 6 } else { 2 })?;
                if first != length || head.0.last() != Some(&END) {
                    return Err(BadPayload);
                }
            }
            Form::Integers => {
                let count = u64::from(u32::from_le_bytes(head.array()?));
                if !matches!(first, 2 | 4 | 8) || count * first != head.0.len() as u64 {
                    return Err(BadPayload);
                }
                width = first as usize;
            }
        }
        let at = bytes.len() - head.0.len();
        Ok(Self { bytes, at, form, width })
    }

    /// Returns the next element; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Cow<'a, [u8]>>> {
        let rest = self.bytes.get(self.at..).ok_or(BadPayload)?;
        match (self.form, rest) {
            (Form::Integers, []) | (Form::ListPack | Form::ZipList, [END]) => return Ok(None),
            _ => {}
        }
        let mut behind = Bytes(rest);
        let element = match self.form {
            Form::ListPack => listpack_element(&mut behind)?,
            Form::ZipList => ziplist_element(&mut behind)?,
            Form::Integers => Element::Integer(signed(behind.take(self.width as u64)?)),
        };
        let begins = self.bytes.len() - behind.0.len();
        let length = if let Element::Text(length) = element { length } else { 0 };
        behind.take(length as u64)?;
        if self.form == Form::ListPack {
            let size = rest.len() - behind.0.len();
            behind.take(length_bytes(size))?;
        }
        self.at = self.bytes.len() - behind.0.len();
        Ok(Some(match (element, &self.bytes) {
            (Element::Integer(number), _) => Cow::Owned(number.to_string().into_bytes()),
            (Element::Text(length), Cow::Borrowed(bytes)) => {
                Cow::Borrowed(bytes.get(begins..begins + length).ok_or(BadPayload)?)
            }
            (Element::Text(length), Cow::Owned(bytes)) => {
                Cow::Owned(bytes.get(begins..begins + length).ok_or(BadPayload)?.to_vec())
            }
        }))
    }
}

/// A listpack that is written.
#[derive(Default)]
pub(super) struct ListPack {
    bytes: Vec<u8>,
    count: usize,
}

impl ListPack {
    /// Number of bytes of its elements.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn integer(&mut self, number: i64) {
        let begin = self.bytes.len();
        let bytes = number.to_le_bytes();
        match number {
            0..=127 => self.bytes.push(bytes[0]),
            -4096..=4095 => self.bytes.extend([0xc0 | (bytes[1] & 0x1f), bytes[0]]),
            -32_768..=32_767 => self.wide(0xf1, &bytes[..2]),
            -8_388_608..=8_388_607 => self.wide(0xf2, &bytes[..3]),
            -2_147_483_648..=2_147_483_647 => self.wide(0xf3, &bytes[..4]),
            _ => self.wide(0xf4, &bytes),
        }
        self.end_element(begin);
    }

    fn wide(&mut self, mark: u8, bytes: &[u8]) {
        self.bytes.push(mark);
        self.bytes.extend(bytes);
    }

    /// Adds bytes, of which there are less than 4 GiB.
    pub(super) fn text(&mut self, text: &[u8]) {
        let begin = self.bytes.len();
        match text.len() {
            length @ ..64 => self.bytes.push(0x80 | length as u8),
            length @ 64..4096 => self.bytes.extend([0xe0 | (length >> 8) as u8, length as u8]),
            length => self.wide(0xf0, &(length as u32).to_le_bytes()),
        }
        self.bytes.extend(text);
        self.end_element(begin);
    }

    /// Adds the length of the element that began there, in groups of 7 bits from the highest one
    /// on, of which all but the first are marked.
    fn end_element(&mut self, begin: usize) {
        let size = self.bytes.len() - begin;
        let groups = length_bytes(size);
        for group in (0..groups).rev() {
            let mark = if group + 1 == groups { 0 } else { 0x80 };
            self.bytes.push((size >> (7 * group)) as u8 & 0x7f | mark);
        }
        self.count += 1;
    }

    /// Adds the elements of another one.
    pub(super) fn append(&mut self, other: &Self) {
        self.bytes.extend(&other.bytes);
        self.count += other.count;
    }

    /// Returns the whole listpack.
    pub(super) fn end(self) -> Vec<u8> {
        let length = self.bytes.len() + 7;
        let mut whole = Vec::with_capacity(length);
        whole.extend((length as u32).to_le_bytes());
        // 65535 stands for a number that is not kept.
        whole.extend(u16::try_from(self.count).unwrap_or(u16::MAX).to_le_bytes());
        whole.extend(self.bytes);
        whole.push(END);
        whole
    }
}

/// An integer of up to 8 bytes, little-endian.
fn signed(bytes: &[u8]) -> i64 {
    let unsigned = bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * bytes.len().clamp(1, 8) as u32;
    (unsigned << unused).cast_signed() >> unused
}

/// Reads what stands before the bytes of an element of a listpack.
fn listpack_element(bytes: &mut Bytes<'_>) -> Result<Element> {
    let first = bytes.byte()?;
    Ok(match first {
        ..0x80 => Element::Integer(first.into()),
        0x80..0xc0 => Element::Text(usize::from(first & 0x3f)),
        0xc0..0xe0 => {
            let number = i64::from(first & 0x1f) << 8 | i64::from(bytes.byte()?);
            Element::Integer(number << 51 >> 51)
        }
        0xe0..0xf0 => Element::Text(usize::from(first & 0xf) << 8 | usize::from(bytes.byte()?)),
        0xf0 => Element::Text(u32::from_le_bytes(bytes.array()?) as usize),
        0xf1 => Element::Integer(signed(bytes.take(2)?)),
        0xf2 => Element::Integer(signed(bytes.take(3)?)),
        0xf3 => Element::Integer(signed(bytes.take(4)?)),
        0xf4 => Element::Integer(signed(bytes.take(8)?)),
        _ => return Err(BadPayload),
    })
}

/// Number of bytes in which a listpack says the size of an element, behind it.
fn length_bytes(size: usize) -> u64 {
    match size {
        ..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Reads what stands before the bytes of an element of a ziplist.
fn ziplist_element(bytes: &mut Bytes<'_>) -> Result<Element> {
    match bytes.byte()? {
        END => return Err(BadPayload),
        0xfe => drop(bytes.take(4)?),
        _ => {}
    }
    let first = bytes.byte()?;
    Ok(match first {
        ..0x40 => Element::Text(usize::from(first)),
        0x40..0x80 => Element::Text(usize::from(first & 0x3f) << 8 | usize::from(bytes.byte()?)),
        0x80 => Element::Text(u32::from_be_bytes(bytes.array()?) as usize),
        0xc0 => Element::Integer(signed(bytes.take(2)?)),
        0xd0 => Element::Integer(signed(bytes.take(4)?)),
        0xe0 => Element::Integer(signed(bytes.take(8)?)),
        0xf0 => Element::Integer(signed(bytes.take(3)?)),
        0xfe => Element::Integer(signed(bytes.take(1)?)),
        0xf1..=0xfd => Element::Integer(i64::from(first & 0xf) - 1),
        _ => return Err(BadPayload),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listpacks_come_back() {
        let mut pack = ListPack::default();
        let mut expected = Vec::new();
        for number in
            [0, 1, 127, 128, -1, 4095, 4096, -4096, -4097, 32_767, -32_768, 32_768, 1 << 22, 1 << 23]
        {
            for number in [number, -number, number << 9, number << 40, i64::MIN, i64::MAX] {
                pack.integer(number);
                expected.push(number.to_string().into_bytes());
            }
        }
        for length in [0, 1, 63, 64, 100, 125, 126, 127, 4095, 4096, 16_381, 16_382, 16_383, 2_097_151] {
            pack.text(&vec![b'x'; length]);
            expected.push(vec![b'x'; length]);
        }
        let mut packed = Packed::new(Form::ListPack, Cow::Owned(pack.end())).unwrap();
        let mut found = Vec::new();
        while let Some(element) = packed.next().unwrap() {
            found.push(element.into_owned());
        }
        assert!(found == expected);
    }
}
