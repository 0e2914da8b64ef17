//! Files of RDB, versions 1 to 12: what the server that wrote them held, key by key.
//!
//! | bytes | content |
//! |---|---|
//! | 5, 4 | `REDIS`, the version as four digits |
//! | ... | opcodes with what follows them, and keys: type (1), name, value |
//! | 1, 8 | 255, the checksum of all before it; 0: none was made; not in versions below 5 |
//!
//! In: any bytes of a [`Read`]. Out: libraries, and keys with the bytes of their values, as
//! [`Reader`](super::Reader) and [`StreamReader`](super::StreamReader) take them. A value is walked
//! to find its end and not decoded. Memory holds one value, and grows with the bytes that were
//! read, not with lengths that they announce.

use super::{Bytes, Checksum, EXPANDED_AT_MOST, LIBRARY, METADATA, VERSION_READ};
use std::borrow::Cow;
use std::io::{ErrorKind, Read};

/// Bytes that are read at once.
const AT_ONCE: usize = 256 << 10;

/// Opcodes.
const SLOT_INFO: u8 = 244;
const OLD_LIBRARY: u8 = 246;
const OF_MODULE: u8 = 247;
const IDLE: u8 = 248;
const FREQUENCY: u8 = 249;
const NOTE: u8 = 250;
const SIZES: u8 = 251;
const MILLISECONDS: u8 = 252;
const SECONDS: u8 = 253;
const SELECT: u8 = 254;
const END: u8 = 255;

/// A file that is damaged, ends too early, or has what is not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadFile {
    /// Offset of the opcode, of the type of the key, or of the end of a file that is too short.
    pub(crate) offset: u64,
    /// Database and name of the key.
    pub(crate) key: Option<(u64, Vec<u8>)>,
    pub(crate) why: Cow<'static, str>,
}

/// A key of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileKey {
    /// Number of its database.
    pub(crate) db: u64,
    pub(crate) name: Vec<u8>,
    /// Milliseconds since 1970.
    pub(crate) expiry: Option<i64>,
    /// Type and value: a payload without its footer.
    pub(crate) body: Vec<u8>,
    /// Offset of its type.
    pub(crate) offset: u64,
}

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FilePart {
    Key(FileKey),
    /// The code of a library.
    Library(Vec<u8>),
}

type Result<T, E = Cow<'static, str>> = std::result::Result<T, E>;

/// The bytes of a file, their sum, and the offset.
struct Source<R> {
    from: R,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken, and those of them that are in the sum.
    taken: usize,
    summed: usize,
    /// Bytes of the file before the buffer.
    before: u64,
    sum: Checksum,
}

impl<R: Read> Source<R> {
    fn offset(&self) -> u64 {
        self.before + self.taken as u64
    }

    /// The sum of the bytes that were taken.
    fn sum(&mut self) -> u64 {
        self.sum.add(self.buffer.get(self.summed..self.taken).unwrap_or_default());
        self.summed = self.taken;
        self.sum.sum()
    }

    /// Returns bytes that were not taken; none at the end of the file.
    fn fill(&mut self) -> Result<&[u8]> {
        if self.taken == self.buffer.len() {
            self.sum();
            self.before += self.buffer.len() as u64;
            self.buffer.resize(AT_ONCE, 0);
            let read = loop {
                match self.from.read(&mut self.buffer) {
                    Ok(read) => break read,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.buffer.clear();
                        (self.taken, self.summed) = (0, 0);
                        return Err(format!("it cannot be read: {error}").into());
                    }
                }
            };
            self.buffer.truncate(read);
            (self.taken, self.summed) = (0, 0);
        }
        Ok(self.buffer.get(self.taken..).unwrap_or_default())
    }

    /// Takes `count` bytes and adds them to others.
    fn take(&mut self, mut count: u64, into: &mut Vec<u8>) -> Result<()> {
        while count > 0 {
            let bytes = self.fill()?;
            let some = usize::try_from(count).map_or(bytes.len(), |count| bytes.len().min(count));
            if some == 0 {
                return Err("the file ends too early".into());
            }
            into.extend_from_slice(bytes.get(..some).unwrap_or_default());
            self.taken += some;
            count -= some as u64;
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = Vec::with_capacity(N);
        self.take(N as u64, &mut bytes)?;
        bytes.try_into().map_err(|_| "the file ends too early".into())
    }

    fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Takes a length or the number of a special encoding, and adds its bytes to others.
    fn length_or_encoding(&mut self, into: &mut Vec<u8>) -> Result<(u64, bool)> {
        let begin = into.len();
        self.take(1, into)?;
        let more = match into.get(begin).copied().unwrap_or_default() {
            0x40..0x80 => 1,
            0x80 => 4,
            0x81 => 8,
            _ => 0,
        };
        self.take(more, into)?;
        let mut bytes = Bytes(into.get(begin..).unwrap_or_default());
        bytes.length_or_encoding().map_err(|_| "a length of no known form".into())
    }

    fn length(&mut self, into: &mut Vec<u8>) -> Result<u64> {
        match self.length_or_encoding(into)? {
            (length, false) => Ok(length),
            (_, true) => Err("an encoding in place of a length".into()),
        }
    }

    /// Takes a string as it is encoded.
    fn string(&mut self, into: &mut Vec<u8>) -> Result<()> {
        let count = match self.length_or_encoding(into)? {
            (length, false) => length,
            (0, true) => 1,
            (1, true) => 2,
            (2, true) => 4,
            (3, true) => {
                let compressed = self.length(into)?;
                self.length(into)?;
                compressed
            }
            (encoding, true) => return Err(format!("a string of the unknown encoding {encoding}").into()),
        };
        self.take(count, into)
    }

    /// Takes a string and decodes it.
    fn text(&mut self) -> Result<Vec<u8>> {
        let mut encoded = Vec::new();
        self.string(&mut encoded)?;
        let text = Bytes(&encoded).string(&mut { EXPANDED_AT_MOST }).map(Cow::into_owned);
        text.map_err(|_| "a compressed string is damaged, or has more than 512 MiB".into())
    }

    /// Takes the value behind a type.
    fn value(&mut self, of: u8, into: &mut Vec<u8>) -> Result<()> {
        match of {
            0 | 10..=13 | 16 | 17 | 20 => return self.string(into),
            15 | 19 | 21 => return self.stream(of, into),
            METADATA => self.take(8, into)?,
            25 => {
                self.take(8, into)?;
                return self.string(into);
            }
            1..=5 | 14 | 18 => {}
            _ => return Err(self.refused(of)?.into()),
        }
        for _ in 0..self.length(into)? {
            if matches!(of, 18 | METADATA) {
                self.length(into)?;
            }
            self.string(into)?;
            match of {
                3 => {
                    let begin = into.len();
                    self.take(1, into)?;
                    let length = into.get(begin).copied().unwrap_or_default();
                    if length < 253 {
                        self.take(length.into(), into)?;
                    }
                }
                4 | METADATA => self.string(into)?,
                5 => self.take(8, into)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn stream(&mut self, of: u8, into: &mut Vec<u8>) -> Result<()> {
        let (has_counts, has_times) = (of >= 19, of >= 21);
        for _ in 0..self.length(into)? {
            self.string(into)?;
            self.string(into)?;
        }
        // Number of entries and last id; first id, largest deleted id and number of entries ever.
        for _ in 0..if has_counts { 8 } else { 3 } {
            self.length(into)?;
        }
        for _ in 0..self.length(into)? {
            self.string(into)?;
            for _ in 0..if has_counts { 3 } else { 2 } {
                self.length(into)?;
            }
            for _ in 0..self.length(into)? {
                self.take(16 + 8, into)?;
                self.length(into)?;
            }
            for _ in 0..self.length(into)? {
                self.string(into)?;
                self.take(if has_times { 16 } else { 8 }, into)?;
                for _ in 0..self.length(into)? {
                    self.take(16, into)?;
                }
            }
        }
        Ok(())
    }

    /// Why a value of a type is not read.
    fn refused(&mut self, of: u8) -> Result<String> {
        let mut id = Vec::new();
        if of == 7 {
            self.length(&mut id)?;
        }
        Ok(refused(of, &id))
    }
}

/// Returns why a payload is not read that begins with these bytes; `None` if its type is read.
pub(crate) fn refused_type(body: &[u8]) -> Option<String> {
    let (of, rest) = body.split_first()?;
    let is_read = matches!(*of, 0..=5 | 10..=21 | METADATA | 25);
    (!is_read).then(|| refused(*of, rest))
}

/// Why a value of a type is not read, of which the bytes behind the type are given.
fn refused(of: u8, rest: &[u8]) -> String {
    match of {
        6 => "a value of a module, as Redis 4.0 before its release wrote it".to_owned(),
        7 => format!("a value of the module type {}", module(Bytes(rest).length().unwrap_or_default())),
        9 => "a hash as Redis before 2.6 wrote it".to_owned(),
        22 | 23 => "a hash with expiries of fields, as Redis 7.4 before its release wrote it".to_owned(),
        _ => format!("a value of the unknown type {of}"),
    }
}

/// Name of a module's type: nine characters of six bits each, above ten bits of a version.
fn module(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let character = |place: u64| char::from(CHARACTERS[(id >> (10 + 6 * place) & 0x3f) as usize]);
    (0..9).rev().map(character).collect()
}

/// A file that is read.
pub(crate) struct FileReader<R> {
    source: Source<R>,
    version: u16,
    db: u64,
    /// Expiry of the next key.
    expiry: Option<i64>,
    is_at_end: bool,
}

impl<R: Read> FileReader<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    /// It is no file of RDB, or of a version that is not read.
    pub(crate) fn new(from: R) -> Result<Self, BadFile> {
        let (buffer, sum) = (Vec::new(), Checksum::default());
        let mut source = Source { from, buffer, taken: 0, summed: 0, before: 0, sum };
        let version = version(&mut source).map_err(|why| BadFile { offset: 0, key: None, why })?;
        Ok(Self { source, version, db: 0, expiry: None, is_at_end: false })
    }

    /// Number of bytes that were read.
    pub(crate) fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// Returns the next part; `None` at the end, which has been checked. After an error the reader
    /// is at no beginning of a part.
    ///
    /// # Errors
    /// The file is damaged, ends too early, cannot be read, or has what is not read.
    pub(crate) fn next(&mut self) -> Result<Option<FilePart>, BadFile> {
        let (mut offset, mut name) = (self.source.offset(), None);
        self.part(&mut offset, &mut name).map_err(|why| {
            let is_short = self.source.buffer.is_empty() && self.source.taken == 0;
            let offset = if is_short { self.source.before } else { offset };
            BadFile { offset, key: name.map(|name| (self.db, name)), why }
        })
    }

    /// Reads up to the next part. Tells the offset of its opcode, and the name of its key.
    fn part(&mut self, offset: &mut u64, name: &mut Option<Vec<u8>>) -> Result<Option<FilePart>> {
        let (source, mut skipped) = (&mut self.source, Vec::new());
        while !self.is_at_end {
            *offset = source.offset();
            skipped.clear();
            match source.byte()? {
                SLOT_INFO => {
                    for _ in 0..3 {
                        source.length(&mut skipped)?;
                    }
                }
                LIBRARY => return Ok(Some(FilePart::Library(source.text()?))),
                OLD_LIBRARY => {
                    return Err("a library of functions, as Redis 7.0 before its release wrote it".into());
                }
                OF_MODULE => {
                    let id = source.length(&mut skipped)?;
                    return Err(format!("data of the module of the type {}", module(id)).into());
                }
                IDLE => drop(source.length(&mut skipped)?),
                FREQUENCY => drop(source.byte()?),
                NOTE => {
                    source.string(&mut skipped)?;
                    source.string(&mut skipped)?;
                }
                SIZES => {
                    source.length(&mut skipped)?;
                    source.length(&mut skipped)?;
                }
                MILLISECONDS => self.expiry = Some(i64::from_le_bytes(source.array()?)),
                SECONDS => {
                    self.expiry = Some(i64::from(i32::from_le_bytes(source.array()?)) * 1000);
                }
                SELECT => self.db = source.length(&mut skipped)?,
                END => {
                    self.end()?;
                    self.is_at_end = true;
                    break;
                }
                of => {
                    if of >= 0x80 {
                        return Err(format!("the unknown opcode {of}").into());
                    }
                    let key = source.text()?;
                    *name = Some(key.clone());
                    let mut body = vec![of];
                    source.value(of, &mut body)?;
                    let (db, expiry, offset) = (self.db, self.expiry.take(), *offset);
                    return Ok(Some(FilePart::Key(FileKey { db, name: key, expiry, body, offset })));
                }
            }
        }
        Ok(None)
    }

    /// Checks the checksum, and that nothing follows it.
    fn end(&mut self) -> Result<()> {
        if self.version >= 5 {
            let sum = self.source.sum();
            let expected = u64::from_le_bytes(self.source.array()?);
            if expected != 0 && expected != sum {
                return Err(
                    format!("the checksum is {expected:016x}, and that of the bytes {sum:016x}").into()
                );
            }
        }
        match self.source.fill()? {
            [] => Ok(()),
            _ => Err("bytes follow the end, such as the commands of an append-only file".into()),
        }
    }
}

/// Reads the beginning of a file.
fn version<R: Read>(source: &mut Source<R>) -> Result<u16> {
    let magic: [u8; 5] = source.array()?;
    match &magic {
        b"REDIS" => {}
        b"VALKE" => return Err("a file of Valkey 9 or later, whose form is not read".into()),
        _ => return Err("no RDB file: it does not begin with REDIS".into()),
    }
    let digits: [u8; 4] = source.array()?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u16>().ok();
    let version = digits.iter().all(u8::is_ascii_digit).then(|| number(&digits)).flatten();
    match version {
        Some(version @ 1..=VERSION_READ) => Ok(version),
        Some(version) => {
            Err(format!("an RDB file of version {version}; 1 to {VERSION_READ} are read").into())
        }
        None => Err("no RDB file: REDIS is followed by no version".into()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
