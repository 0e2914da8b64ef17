//! Whether a key was written after some moment, whatever was written: for transactions that depend
//! on it.
//!
//! In: a key and where somebody reads. Out: whether there is an entry of the key, or a range
//! tombstone over it, that is not seen there. The search is that of a lookup, but ends where
//! nothing can be newer: tables whose largest sequence number is not above are not even opened, so
//! it seldom reads anything.
//!
//! The caller holds a snapshot at or below that place, so that compactions neither zero the numbers
//! it looks for nor drop deletions that carry them. (A put and the single delete that ends it may
//! vanish together; then the key is as it was.)

use super::View;
use karst_base::error::Result;
use karst_base::options::ReadOptions;
use karst_base::snapshot::ReadAt;
use karst_format::block::BlockCursor;
use karst_format::handle::BlockHandle;
use karst_format::key::{SeqNo, user_key};
use karst_lsm::SearchPosition;
use karst_storage::superversion::SuperVersion;
use karst_storage::table::KeyHash;
use karst_storage::table::cache::TableCache;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::drive::{self, Step};
use karst_storage::table::needs::{Needs, Stop};
use std::sync::Arc;

/// The search. Plain code that is called again when what it asked for is there.
struct Newest<'a> {
    view: View<'a>,
    /// The internal key that sorts before every entry of the user key.
    key: Vec<u8>,
    since: &'a ReadAt,
    position: SearchPosition,
    file: Option<(u8, u32)>,
    located: Option<BlockHandle>,
    hash: KeyHash,
    needs: Needs,
}

impl Newest<'_> {
    fn in_memtables(&self) -> Result<bool> {
        let key = user_key(&self.key);
        for memtable in self.view.superversion.memtables().filter(|memtable| !memtable.is_empty()) {
            if memtable.covering_tombstone(key, SeqNo::MAX) > self.since.seq {
                return Ok(true);
            }
            let newest = memtable.entries_of(&self.key)?.next().transpose()?;
            if newest.is_some_and(|entry| self.since.hides(entry.seq)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn in_tables(&mut self) -> Result<bool, Stop> {
        let version = self.view.version();
        loop {
            let (level, index) = match self.file {
                Some(file) => file,
                None => {
                    let key = user_key(&self.key);
                    let Some(next) = version.next_candidate(key, SeqNo::MAX, &mut self.position) else {
                        return Ok(false);
                    };
                    self.located = None;
                    *self.file.insert((next.level.0, next.index as u32))
                }
            };
            if self.in_file(level, index as usize)? {
                return Ok(true);
            }
            self.file = None;
        }
    }

    fn in_file(&mut self, level: u8, index: usize) -> Result<bool, Stop> {
        let view = self.view;
        let file = &view.version().levels()[usize::from(level)].files()[index];
        if file.largest_seq <= self.since.all_seen_to() {
            return Ok(false);
        }
        let table = self.needs.table(&view.ctx, file, u32::from(level))?;
        let tombstones = table.range_tombstones();
        let covered = |t: &Arc<karst_lsm::range_del::Fragments>| {
            t.covering_seq(table.comparator(), user_key(&self.key), SeqNo::MAX) > self.since.seq
        };
        if tombstones.is_some_and(covered) {
            return Ok(true);
        }
        if !view.superversion.skips_filter(level)
            && table.key_may_match(&view.ctx, &mut self.needs, &self.key, &mut self.hash)? == Some(false)
        {
            return Ok(false);
        }
        let handle = match self.located {
            Some(handle) => handle,
            None => match table.locate(&view.ctx, &mut self.needs, &self.key)? {
                Some(handle) => *self.located.insert(handle),
                None => return Ok(false),
            },
        };
        let block = table.data_block(&view.ctx, &mut self.needs, handle)?;
        let mut cursor = BlockCursor::new();
        if !table.seek_point(&mut cursor, block.as_data(), &self.key, handle)? {
            return Ok(false);
        }
        let entry = table.entry(&cursor, block.as_data(), handle)?;
        let same = table.comparator().equal_user(entry.user_key, user_key(&self.key));
        Ok(same && self.since.hides(entry.seq))
    }
}

impl Step for Newest<'_> {
    type Out = bool;

    fn step(&mut self, _: &ReadCtx<'_>) -> Result<bool, Stop> {
        Ok((self.file.is_none() && self.in_memtables()?) || self.in_tables()?)
    }

    fn needs(&mut self) -> &mut Needs {
        &mut self.needs
    }
}

/// Whether `key` was written and is not seen at `since`, as far as `superversion` tells. Waits as
/// tasks do if it has to read.
pub(crate) async fn written_since(
    tables: &Arc<TableCache>,
    superversion: &SuperVersion,
    key: &[u8],
    since: &ReadAt,
) -> Result<bool> {
    let options = ReadOptions::new();
    let mut search = Newest {
        view: View::new(tables, superversion, &options),
        key: superversion.version().comparator().before_all_of(key),
        since,
        position: SearchPosition::START,
        file: None,
        located: None,
        hash: KeyHash::default(),
        needs: Needs::new(),
    };
    let ctx = search.view.ctx;
    drive::run(ctx, &mut search).await
}
