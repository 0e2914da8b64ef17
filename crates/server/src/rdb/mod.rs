//! Values as DUMP has them: the encodings of Redis' RDB files, and a footer with version and
//! checksum.
//!
//! In: the elements of a value, or the bytes of a client. Out: bytes, or elements. Decoders accept
//! any bytes; no allocation follows an announced length.
//!
//! Read: strings, lists, sets, hashes, sorted sets and streams in all encodings that Redis 4 to 7.4
//! writes, so also those that pack a small collection into one string. Written: the encodings
//! without packing, which every version reads, and that of Redis 7.0 for streams; a hash with
//! expiries of fields is read by Redis 7.4. Whole files are read by [`FileReader`].

mod checksum;
mod file;
mod lzf;
mod packed;
mod streams;

pub(crate) use checksum::Checksum;
#[cfg(test)]
pub(crate) use file::tests as file_tests;
pub(crate) use file::{BadFile, FileKey, FilePart, FileReader, refused_type};
pub(crate) use streams::{
    PackedConsumer, PackedGroup, PackedPending, StreamPart, StreamReader, StreamTotals, StreamWriter,
};

use packed::{Form, Packed};
use std::borrow::Cow;

/// Latest version of RDB files that is read (Redis 7.4).
const VERSION_READ: u16 = 12;
/// Version that is written: the one of Redis 7.0, so that it reads what is written here.
const VERSION_WRITTEN: u16 = 10;
/// Version that is written with expiries of fields: the one of Redis 7.4.
const VERSION_OF_FIELDS: u16 = 12;
/// Bytes of version and checksum.
const FOOTER: usize = 10;
/// First byte of a hash with expiries of fields.
const METADATA: u8 = 24;
/// Maximum number of bytes of one value that its compressed strings have in all.
const EXPANDED_AT_MOST: usize = 512 << 20;

/// Opcode before the code of a library.
const LIBRARY: u8 = 245;

/// The payload is none of DUMP, or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadPayload;

type Result<T, E = BadPayload> = std::result::Result<T, E>;

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// One element.
    String,
    List,
    Set,
    /// Fields, each with its value behind it.
    Hash,
    /// Fields with expiries, by [`Reader::next_field`].
    ExpiringHash,
    /// Members, each with its score behind it, as text.
    SortedSet,
    /// Nodes, which [`StreamReader`] and [`StreamWriter`] know.
    Stream,
}

/// Splits the version and the checksum from a payload. Returns the rest, and the bytes and the
/// checksum that they are to have.
///
/// # Errors
/// It is too short, or of a later version.
pub(crate) fn split_footer(payload: &[u8]) -> Result<(&[u8], &[u8], u64)> {
    let body = payload.len().checked_sub(FOOTER).and_then(|end| payload.get(..end)).ok_or(BadPayload)?;
    let (summed, sum) = payload.split_last_chunk().ok_or(BadPayload)?;
    let (_, version) = summed.split_last_chunk().ok_or(BadPayload)?;
    match u16::from_le_bytes(*version) <= VERSION_READ {
        true => Ok((body, summed, u64::from_le_bytes(*sum))),
        false => Err(BadPayload),
    }
}

/// A payload that is written.
pub(crate) struct Writer(Vec<u8>, u16);

impl Writer {
    /// Begins a value of `elements` elements: of a hash and a sorted set, pairs.
    pub(crate) fn new(of: Type, elements: u64) -> Self {
        let start = vec![match of {
            Type::String => 0,
            Type::List => 1,
            Type::Set => 2,
            Type::Hash => 4,
            Type::SortedSet => 5,
            Type::ExpiringHash => METADATA,
            Type::Stream => 19,
        }];
        let mut writer = Self(start, VERSION_WRITTEN);
        if of != Type::String {
            writer.length(elements);
        }
        writer
    }

    /// Begins a hash of `fields` fields, of which at least one has an expiry, and none an earlier
    /// one.
    pub(crate) fn of_fields(fields: u64, earliest: i64) -> Self {
        let mut writer = Self(vec![METADATA], VERSION_OF_FIELDS);
        writer.0.extend(earliest.to_le_bytes());
        writer.length(fields);
        writer
    }

    /// Adds a field with its value and its expiry.
    pub(crate) fn field(&mut self, field: &[u8], value: &[u8], expiry: Option<i64>, earliest: i64) {
        // 0 is no expiry, and 1 the earliest one.
        let relative = expiry.map_or(0, |at| at.abs_diff(earliest).saturating_add(1));
        self.length(relative);
        self.string(field);
        self.string(value);
    }

    fn length(&mut self, length: u64) {
        match length {
            ..0x40 => self.0.push(length as u8),
            0x40..0x4000 => self.0.extend((0x4000 | length as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.0.push(0x80);
                self.0.extend((length as u32).to_be_bytes());
            }
            _ => {
                self.0.push(0x81);
                self.0.extend(length.to_be_bytes());
            }
        }
    }

    /// Adds an element, a field, a value or a member.
    pub(crate) fn string(&mut self, text: &[u8]) {
        match small_integer(text) {
            Some(number) => match (i8::try_from(number), i16::try_from(number)) {
                (Ok(number), _) => self.0.extend([0xc0, number.cast_unsigned()]),
                (_, Ok(number)) => {
                    self.0.push(0xc1);
                    self.0.extend(number.to_le_bytes());
                }
                _ => {
                    self.0.push(0xc2);
                    self.0.extend(number.to_le_bytes());
                }
            },
            None => self.raw(text),
        }
    }

    /// Adds bytes behind their length, as they are.
    fn raw(&mut self, bytes: &[u8]) {
        self.length(bytes.len() as u64);
        self.0.extend(bytes);
    }

    /// Adds the score of the member before.
    pub(crate) fn score(&mut self, score: f64) {
        self.0.extend(score.to_le_bytes());
    }

    /// Begins a payload of libraries.
    pub(crate) fn of_libraries() -> Self {
        Self(Vec::new(), VERSION_WRITTEN)
    }

    /// Adds the code of a library.
    pub(crate) fn library(&mut self, code: &[u8]) {
        self.0.push(LIBRARY);
        self.string(code);
    }

    /// Adds the version. The caller sums the bytes, and adds the sum by [`seal`](Self::seal).
    pub(crate) fn end(&mut self) -> &[u8] {
        self.0.extend(self.1.to_le_bytes());
        &self.0
    }

    /// Adds the version and the checksum of a payload that is summed in one piece.
    pub(crate) fn sealed(mut self) -> Vec<u8> {
        let mut sum = Checksum::default();
        sum.add(self.end());
        self.seal(sum.sum())
    }

    /// Adds the checksum.
    pub(crate) fn seal(mut self, sum: u64) -> Vec<u8> {
        self.0.extend(sum.to_le_bytes());
        self.0
    }
}

/// The integer of 32 bits that is printed as these bytes.
fn small_integer(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= 11)?;
    let number: i32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Bytes that are read from the front.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let count = usize::try_from(count).map_err(|_| BadPayload)?;
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BadPayload)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BadPayload)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A length, or the number of a special encoding.
    fn length_or_encoding(&mut self) -> Result<(u64, bool)> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3f);
        match first >> 6 {
            0 => Ok((low, false)),
            1 => Ok((low << 8 | u64::from(self.byte()?), false)),
            2 if first == 0x80 => Ok((u32::from_be_bytes(self.array()?).into(), false)),
            2 if first == 0x81 => Ok((u64::from_be_bytes(self.array()?), false)),
            3 => Ok((low, true)),
            _ => Err(BadPayload),
        }
    }

    fn length(&mut self) -> Result<u64> {
        match self.length_or_encoding()? {
            (length, false) => Ok(length),
            (_, true) => Err(BadPayload),
        }
    }

    /// A string, which takes of the bytes that compressed ones may still have.
    fn string(&mut self, room: &mut usize) -> Result<Cow<'a, [u8]>> {
        let bytes = self;
        let integer = |number: i32| Ok(Cow::Owned(number.to_string().into_bytes()));
        match bytes.length_or_encoding()? {
            (length, false) => bytes.take(length).map(Cow::Borrowed),
            (0, true) => integer(i8::from_le_bytes(bytes.array()?).into()),
            (1, true) => integer(i16::from_le_bytes(bytes.array()?).into()),
            (2, true) => integer(i32::from_le_bytes(bytes.array()?)),
            (3, true) => {
                let (compressed, length) = (bytes.length()?, bytes.length()?);
                let length = usize::try_from(length).map_err(|_| BadPayload)?;
                *room = room.checked_sub(length).ok_or(BadPayload)?;
                let compressed = bytes.take(compressed)?;
                lzf::expand(compressed, length).map(Cow::Owned).ok_or(BadPayload)
            }
            _ => Err(BadPayload),
        }
    }

    /// A score as text.
    fn score_text(&mut self) -> Result<&'a [u8]> {
        match self.byte()? {
            253 => Err(BadPayload),
            254 => Ok(b"inf"),
            255 => Ok(b"-inf"),
            length => self.take(length.into()),
        }
    }
}

/// A field of a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) name: Cow<'a, [u8]>,
    pub(crate) value: Cow<'a, [u8]>,
    /// Milliseconds since 1970.
    pub(crate) expiry: Option<i64>,
}

/// The elements of a value, one after the other.
pub(crate) struct Reader<'a> {
    bytes: Bytes<'a>,
    of: Type,
    layout: Layout,
    /// Strings, nodes or scores that are left.
    left: u64,
    /// The packed string that is read.
    node: Option<Packed<'a>>,
    /// Number of elements that were returned.
    count: u64,
    /// Bytes that compressed strings may still have.
    room: usize,
}

/// Form of the bytes that follow the type and the number of elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Strings.
    Strings,
    /// Members as strings, each with its score as text or binary.
    Scores { is_binary: bool },
    /// Packed strings.
    Packed(Form),
    /// Packed strings and plain ones, each behind its kind.
    Nodes,
    /// Expiries, 0 or relative to the earliest one, each with field and value behind it.
    Fields { earliest: i64 },
}

impl<'a> Reader<'a> {
    /// Begins to read a payload without its footer.
    pub(crate) fn new(body: &'a [u8]) -> Result<Self> {
        let mut bytes = Bytes(body);
        let packed = |form| Layout::Packed(form);
        let (of, layout, is_one) = match bytes.byte()? {
            0 => (Type::String, Layout::Strings, true),
            1 => (Type::List, Layout::Strings, false),
            2 => (Type::Set, Layout::Strings, false),
            3 => (Type::SortedSet, Layout::Scores { is_binary: false }, false),
            4 => (Type::Hash, Layout::Strings, false),
            5 => (Type::SortedSet, Layout::Scores { is_binary: true }, false),
            10 => (Type::List, packed(Form::ZipList), true),
            11 => (Type::Set, packed(Form::Integers), true),
            12 => (Type::SortedSet, packed(Form::ZipList), true),
            13 => (Type::Hash, packed(Form::ZipList), true),
            14 => (Type::List, packed(Form::ZipList), false),
            16 => (Type::Hash, packed(Form::ListPack), true),
            17 => (Type::SortedSet, packed(Form::ListPack), true),
            18 => (Type::List, Layout::Nodes, false),
            20 => (Type::Set, packed(Form::ListPack), true),
            METADATA => {
                let earliest = i64::from_le_bytes(bytes.array()?);
                (Type::ExpiringHash, Layout::Fields { earliest }, false)
            }
            25 => {
                // The earliest expiry is among those of the fields too.
                bytes.array::<8>()?;
                (Type::ExpiringHash, packed(Form::ListPack), true)
            }
            _ => return Err(BadPayload),
        };
        let left = if is_one { 1 } else { bytes.length()? };
        let has_pairs =
            matches!(layout, Layout::Scores { .. }) || of == Type::Hash && layout == Layout::Strings;
        let parts = match layout {
            Layout::Fields { .. } => 3,
            _ if has_pairs => 2,
            _ => 1,
        };
        let left = left.checked_mul(parts).ok_or(BadPayload)?;
        Ok(Self { bytes, of, layout, left, node: None, count: 0, room: EXPANDED_AT_MOST })
    }

    /// Type of the value.
    pub(crate) fn of(&self) -> Type {
        self.of
    }

    /// Returns the next field of an [`ExpiringHash`](Type::ExpiringHash) with its value and its
    /// expiry; `None` at the end.
    pub(crate) fn next_field(&mut self) -> Result<Option<Field<'a>>> {
        let Some(first) = self.next()? else { return Ok(None) };
        let mut part = || self.next()?.ok_or(BadPayload);
        let (second, third) = (part()?, part()?);
        let number = |text: &[u8]| {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
            number.ok_or(BadPayload)
        };
        let (name, value, expiry) = match self.layout {
            Layout::Fields { earliest } => {
                let at = |number: u64| {
                    earliest.checked_add_unsigned(number - 1).filter(|at| *at >= 0).ok_or(BadPayload)
                };
                let relative = Some(number(&first)?).filter(|number| *number > 0);
                (second, third, relative.map(at).transpose()?)
            }
            _ => {
                let at = Some(number(&third)?).filter(|number| *number > 0);
                (first, second, at.map(|at| i64::try_from(at).map_err(|_| BadPayload)).transpose()?)
            }
        };
        Ok(Some(Field { name, value, expiry }))
    }

    /// Returns the next element; `None` at the end, which is behind one element at least, behind a
    /// whole pair or field, and at the end of the bytes.
    pub(crate) fn next(&mut self) -> Result<Option<Cow<'a, [u8]>>> {
        let element = self.element()?;
        let parts = match self.of {
            Type::Hash | Type::SortedSet => 2,
            Type::ExpiringHash => 3,
            Type::String | Type::List | Type::Set | Type::Stream => 1,
        };
        match element {
            Some(_) => self.count += 1,
            None if self.count == 0 || !self.count.is_multiple_of(parts) || !self.bytes.0.is_empty() => {
                return Err(BadPayload);
            }
            None => {}
        }
        Ok(element)
    }

    fn element(&mut self) -> Result<Option<Cow<'a, [u8]>>> {
        loop {
            if let Some(node) = &mut self.node {
                match node.next()? {
                    Some(element) => return Ok(Some(element)),
                    None => self.node = None,
                }
            }
            if self.left == 0 {
                return Ok(None);
            }
            self.left -= 1;
            match self.layout {
                Layout::Strings => return self.string().map(Some),
                Layout::Scores { is_binary } if self.left.is_multiple_of(2) => {
                    return self.score(is_binary).map(Some);
                }
                Layout::Fields { .. } if self.left % 3 == 2 => {
                    let relative = self.bytes.length()?;
                    return Ok(Some(Cow::Owned(relative.to_string().into_bytes())));
                }
                Layout::Scores { .. } | Layout::Fields { .. } => return self.string().map(Some),
                Layout::Packed(form) => self.node = Some(Packed::new(form, self.string()?)?),
                Layout::Nodes => match self.bytes.length()? {
                    1 => return self.string().map(Some),
                    2 => self.node = Some(Packed::new(Form::ListPack, self.string()?)?),
                    _ => return Err(BadPayload),
                },
            }
        }
    }

    fn score(&mut self, is_binary: bool) -> Result<Cow<'a, [u8]>> {
        if !is_binary {
            return self.bytes.score_text().map(Cow::Borrowed);
        }
        let score = f64::from_le_bytes(self.bytes.array()?);
        match score.is_nan() {
            true => Err(BadPayload),
            false => Ok(Cow::Owned(score.to_string().into_bytes())),
        }
    }

    fn string(&mut self) -> Result<Cow<'a, [u8]>> {
        self.bytes.string(&mut self.room)
    }
}

/// Returns the code of the libraries of a payload without its footer.
///
/// # Errors
/// The body is no payload of libraries; the text is Redis'.
pub(crate) fn libraries(body: &[u8]) -> std::result::Result<Vec<Vec<u8>>, &'static str> {
    let mut bytes = Bytes(body);
    let (mut codes, mut room) = (Vec::new(), EXPANDED_AT_MOST);
    while !bytes.0.is_empty() {
        if bytes.byte() != Ok(LIBRARY) {
            return Err("given type is not a function");
        }
        let code = bytes.string(&mut room).map_err(|_| "failed loading the given functions payload")?;
        codes.push(code.into_owned());
    }
    Ok(codes)
}

#[cfg(test)]
mod tests;
