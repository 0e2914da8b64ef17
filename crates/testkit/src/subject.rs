//! The reading interface implemented by every store under test: RocksDB, each form of KarstDB, and
//! the reference model. In: column family, key, cursor move. Out: owned answers, or an error as
//! text.
//!
//! Invariant: a [`Cursor`] is moved by `Next` and `Prev` only while it is at an entry.

/// Options that limit the entries a cursor returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSettings {
    /// Lower bound, inclusive.
    pub lower_bound: Option<Vec<u8>>,
    /// Upper bound, exclusive.
    pub upper_bound: Option<Vec<u8>>,
    /// Stops at the end of the prefix of the key sought.
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
    /// Returns the store's name, for messages: "RocksDB 11.8", "KarstDB, asynchronous".
    fn name(&self) -> String;
    /// Returns the names of its column families.
    fn column_families(&self) -> Result<Vec<String>, String>;
    /// Returns the value of a key.
    fn get(&self, column_family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String>;
    /// Returns the values of several keys, in their order; or the first error.
    fn multi_get(&self, column_family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String>;
    /// Creates a cursor without a position.
    fn cursor<'a>(
        &'a self,
        column_family: &str,
        settings: &ReadSettings,
    ) -> Result<Box<dyn Cursor + 'a>, String>;
}

/// A position in a store.
pub trait Cursor {
    /// Moves it.
    fn apply(&mut self, step: &Move) -> Result<(), String>;
    /// Returns the entry at its position, if any.
    fn current(&self) -> Option<(&[u8], &[u8])>;
}
