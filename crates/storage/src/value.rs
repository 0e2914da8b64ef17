//! A value as returned to the user: bytes in their original place, and a pin on that place.

use crate::block::{BlockRef, CachedBlock};
use crate::memtable::{MemTable, ValueAt};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A value that was read. It pins the cached block or the memtable that holds it; nothing is
/// copied.
///
/// Cheap to clone (another pin), may be sent to and read on any thread, and may outlive the
/// database. Holding many for long keeps their blocks in memory, beyond the cache's capacity if
/// need be; copy values that are kept for long.
///
/// It derefs to `[u8]`, and compares with bytes and text:
///
/// ```
/// # use karst_storage::value::Value;
/// # let value = Value::from(b"ripe".to_vec());
/// assert!(value == "ripe" && value == b"ripe" && value.starts_with(b"r"));
/// println!("{}", value.escape_ascii());
/// let copy: Vec<u8> = value.to_vec(); // which pins nothing
/// # assert_eq!(value, copy[..]);
/// ```
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    Empty,
    Block { block: BlockRef, start: u32, end: u32 },
    Memtable { memtable: Arc<MemTable>, at: ValueAt },
    Owned(Arc<[u8]>),
}

impl Value {
    /// Creates a value from bytes of a data block.
    #[inline]
    #[doc(hidden)]
    pub fn in_block(block: BlockRef, range: Range<usize>) -> Self {
        // Invariant: blocks are smaller than 4 GiB, because `Block::parse` refuses others.
        Value(Repr::Block { block, start: range.start as u32, end: range.end as u32 })
    }

    /// Creates a value from all bytes of a blob value.
    #[doc(hidden)]
    pub fn whole_blob(block: BlockRef) -> Self {
        let end = match &*block {
            CachedBlock::Blob(bytes) => bytes.len() as u32,
            _ => unreachable!("a block's kind is checked before it is used"),
        };
        Value(Repr::Block { block, start: 0, end })
    }

    /// Creates a value from bytes of a memtable.
    #[inline]
    #[doc(hidden)]
    pub fn in_memtable(memtable: Arc<MemTable>, at: ValueAt) -> Self {
        Value(Repr::Memtable { memtable, at })
    }

    /// Creates a value that owns its bytes, for example the result of a merge.
    #[doc(hidden)]
    pub fn owned(bytes: impl Into<Arc<[u8]>>) -> Self {
        Value(Repr::Owned(bytes.into()))
    }

    /// Creates an empty value.
    #[doc(hidden)]
    pub fn empty() -> Self {
        Value(Repr::Empty)
    }

    /// Takes the value out, leaving an empty one.
    #[inline]
    #[doc(hidden)]
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Value::empty())
    }

    /// Returns a part of the value, as a byte range that must lie inside it.
    #[doc(hidden)]
    pub fn slice(&self, part: Range<usize>) -> Self {
        assert!(part.start <= part.end && part.end <= self.len());
        match &self.0 {
            Repr::Empty => Value::empty(),
            Repr::Block { block, start, .. } => Value(Repr::Block {
                block: block.clone(),
                start: start + part.start as u32,
                end: start + part.end as u32,
            }),
            Repr::Memtable { memtable, at } => {
                Value(Repr::Memtable { memtable: memtable.clone(), at: at.slice(part) })
            }
            Repr::Owned(bytes) => Value::owned(&bytes[part]),
        }
    }
}

impl From<Arc<[u8]>> for Value {
    fn from(bytes: Arc<[u8]>) -> Self {
        Value::owned(bytes)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::owned(bytes)
    }
}

/// Converts without a copy: the bytes stay in place, and stay pinned as long as any part of them
/// lives.
#[cfg(feature = "bytes")]
impl From<Value> for bytes::Bytes {
    fn from(value: Value) -> Self {
        bytes::Bytes::from_owner(value)
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Empty => &[],
            Repr::Block { block, start, end } => {
                let bytes = match &**block {
                    CachedBlock::Data(block) => block.contents(),
                    CachedBlock::Blob(bytes) => bytes,
                    CachedBlock::Index(_) | CachedBlock::Filter(_) => &[],
                };
                &bytes[*start as usize..*end as usize]
            }
            Repr::Memtable { memtable, at } => memtable.value(*at),
            Repr::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl PartialEq<str> for Value {
    fn eq(&self, other: &str) -> bool {
        **self == *other.as_bytes()
    }
}

impl<T: ?Sized> PartialEq<&T> for Value
where
    Value: PartialEq<T>,
{
    fn eq(&self, other: &&T) -> bool {
        *self == **other
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({:?})", self.as_ref().escape_ascii().to_string())
    }
}
