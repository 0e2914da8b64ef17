//! SCAN, KEYS and random keys: names of a database in their order.

use super::super::layout::{self, Head, split_stored};
use super::{Access, Kind};
use crate::wrong::Wrong;

/// Entries that a call of [`Access::scan`] looks at, for each that it is asked for: those that have
/// expired are not returned.
const LOOKS: usize = 16;

impl Access {
    /// Returns about `count` keys with their types from `cursor` on (0: from the first), and the
    /// cursor to go on with (0: that was all). Each key that exists throughout a whole scan is
    /// returned, also across a restart; some may come twice. The caller matches patterns.
    pub(crate) async fn scan(
        &self,
        db: u16,
        cursor: u64,
        count: usize,
    ) -> Result<(u64, Vec<(Vec<u8>, Kind)>), Wrong> {
        let prefix = self.base(db).to_be_bytes();
        let mut walk = self.walk(self.default_family(), &prefix)?;
        let position = if cursor == 0 { Vec::new() } else { self.store.0.cursors.lock().position(cursor) };
        walk.seek(&[&prefix[..], &position].concat()).await?;
        let (mut found, mut looks) = (Vec::new(), 0);
        while let Some((key, value)) = walk.entry() {
            let (_, name) = split_stored(key)?;
            if found.len() >= count || looks >= count.saturating_mul(LOOKS) {
                return Ok((self.cursor(name).await?, found));
            }
            let head = Head::decode(key, value)?;
            if !head.is_expired(self.now) {
                found.push((name.to_vec(), head.kind));
            }
            looks += 1;
            walk.next().await?;
        }
        Ok((0, found))
    }

    /// Returns a cursor for a position.
    pub(super) async fn cursor(&self, position: &[u8]) -> Result<u64, Wrong> {
        let inner = &self.store.0;
        loop {
            let number = inner.numbers.next(&inner.db, &inner.server).await?;
            if let Some(cursor) = inner.cursors.lock().add(number, position) {
                return Ok(cursor);
            }
        }
    }

    /// Calls `each` with every name that begins with `prefix` (KEYS), in order.
    pub(crate) async fn names(
        &self,
        db: u16,
        prefix: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Wrong> {
        let mut walk = self.walk(self.default_family(), &layout::stored_key(self.base(db), prefix))?;
        walk.first().await?;
        while let Some((key, value)) = walk.entry() {
            if !Head::decode(key, value)?.is_expired(self.now) {
                each(split_stored(key)?.1);
            }
            walk.next().await?;
        }
        Ok(())
    }

    /// Returns any key of a database. Names are not equally likely: those behind wide gaps in the
    /// order come more often.
    pub(crate) async fn random_key(&self, db: u16) -> Result<Option<Vec<u8>>, Wrong> {
        let prefix = self.base(db).to_be_bytes();
        let mut walk = self.walk(self.default_family(), &prefix)?;
        self.anywhere(&mut walk, prefix.len()).await?;
        // Twice, because the first round begins in the middle.
        for _ in 0..2 {
            while let Some((key, value)) = walk.entry() {
                if !Head::decode(key, value)?.is_expired(self.now) {
                    return Ok(Some(split_stored(key)?.1.to_vec()));
                }
                walk.next().await?;
            }
            walk.first().await?;
        }
        Ok(None)
    }
}
