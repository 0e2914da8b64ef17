//! The reading contract that every store under test is driven through: RocksDB, each form of
//! KarstDB, and the reference model. In: column family, key, cursor move. Out: owned answers, or an
//! error as text.
//!
//! Invariant: a [`Cursor`] is only moved by `Next` and `Prev` while it stands on an entry.

/// How a cursor reads: the options that change what it may return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSettings {
    /// The first key that may be returned.
    pub lower_bound: Option<Vec<u8>>,
    /// The first key that may no longer be returned.
    pub upper_bound: Option<Vec<u8>>,
    /// Stop at the end of the prefix of the key sought.
    pub prefix_same_as_start: bool,
}

/// One move of a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// To the first entry.
    First,
    /// To the last entry.
    Last,
    /// To the first entry at or after a key.
    Seek(Vec<u8>),
    /// To the last entry at or before a key.
    SeekForPrev(Vec<u8>),
    /// To the entry after this one.
    Next,
    /// To the entry before this one.
    Prev,
}

/// A store that is read.
pub trait Subject {
    /// What it is, for messages: "RocksDB 11.8", "KarstDB, asynchronous".
    fn name(&self) -> String;
    /// The names of its column families.
    fn column_families(&self) -> Result<Vec<String>, String>;
    /// The value of a key.
    fn get(&self, column_family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String>;
    /// The values of many keys, in the order of the keys; the first error of any.
    fn multi_get(&self, column_family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String>;
    /// A cursor, standing nowhere yet.
    fn cursor<'a>(
        &'a self,
        column_family: &str,
        settings: &ReadSettings,
    ) -> Result<Box<dyn Cursor + 'a>, String>;
}

/// A position in a store.
pub trait Cursor {
    /// Move it.
    fn apply(&mut self, step: &Move) -> Result<(), String>;
    /// The entry it stands on, if any.
    fn current(&self) -> Option<(&[u8], &[u8])>;
}
