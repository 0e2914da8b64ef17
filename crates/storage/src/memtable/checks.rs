//! Checks of a memtable: that it accepts writes, that entries match their checksums, and that they
//! are in order.

use super::MemTable;
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_format::key;
use karst_mem::skiplist::Position;

impl MemTable {
    /// Checks that the memtable accepts writes.
    ///
    /// # Errors
    /// `InvalidArgument`: `disallow_memtable_writes` is set.
    #[inline]
    pub fn check_takes_writes(&self) -> Result<()> {
        match self.refuses_writes {
            false => Ok(()),
            true => Err(Error::invalid_argument("this column family has disallow_memtable_writes=true")),
        }
    }

    /// Compares an entry with its checksum, if it has one.
    #[inline]
    pub fn check(&self, position: Position) -> Result<()> {
        if self.protection.is_on() { self.check_protected(position) } else { Ok(()) }
    }

    #[inline(never)]
    fn check_protected(&self, position: Position) -> Result<()> {
        let (user_key, trailer) = key::split(self.list.key(position));
        if self.protection.matches(user_key, trailer, self.list.value(position)) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corruption,
            format!(
                "memtable entry in memory, key {}, sequence number {}, type {}: does not match its checksum",
                Shown(user_key),
                trailer >> 8,
                trailer as u8
            ),
        ))
    }

    #[inline(never)]
    pub(super) fn checked_seek_ge(&self, internal_key: &[u8]) -> Result<Option<Position>> {
        let mut before: Option<Position> = None;
        self.list.try_seek_ge(internal_key, |position| {
            if self.checks_searches {
                self.check_protected(position)?;
            }
            if self.checks_order {
                before.map_or(Ok(()), |before| self.check_step(before, position))?;
                if self.comparator.compare_internal(self.list.key(position), internal_key).is_lt() {
                    before = Some(position);
                }
            }
            Ok(())
        })
    }

    /// With `paranoid_memory_checks`: checks that an entry is greater than the one from which the
    /// list led to it.
    ///
    /// # Errors
    /// It is not: a key has changed in memory.
    #[inline]
    pub fn check_step(&self, before: Position, after: Position) -> Result<()> {
        if self.checks_order { self.check_order(before, after) } else { Ok(()) }
    }

    #[inline(never)]
    fn check_order(&self, before: Position, after: Position) -> Result<()> {
        let (before, after) = (self.list.key(before), self.list.key(after));
        if self.comparator.compare_internal(before, after).is_lt() {
            return Ok(());
        }
        let (before, after) = (Shown(key::user_key(before)), Shown(key::user_key(after)));
        let text = format!("memtable entries in memory out of order: key {after} after key {before}");
        Err(Error::new(ErrorKind::Corruption, text))
    }
}
