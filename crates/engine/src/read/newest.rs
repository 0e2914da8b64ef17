//! Conflict check of transactions: tells if a key was written after a given point.
//!
//! In: a key and a point to read at; in a column family with timestamps optionally a timestamp.
//! Out: true if an entry of the key, or a range tombstone over it, is not visible at that point, or
//! if the key's newest entry is later than the timestamp. The search is that of a lookup, but ends
//! as soon as nothing can be newer: tables whose largest sequence number is not above the point are
//! not even opened, so it seldom reads.
//!
//! The caller holds a snapshot at or below the point, so that compactions neither zero the sequence
//! numbers it looks for nor drop deletions that carry them. (A put and the single delete that ends
//! it may vanish together; then the key is as it was.)
//!
//! Timestamps of one key do not decrease, so its newest entry is the first one in the first source
//! that has any. If they did decrease, that entry still decides, as in RocksDB.

use super::View;
use karst_base::error::Result;
use karst_base::options::ReadOptions;
use karst_base::snapshot::ReadAt;
use karst_format::block::BlockCursor;
use karst_format::comparator::Comparator;
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

/// The search: plain code that is called again once the block it requested has arrived.
struct Newest<'a> {
    view: View<'a>,
    /// Internal key that sorts before every entry of the user key.
    key: Vec<u8>,
    since: &'a ReadAt,
    /// Latest timestamp that the newest entry may have.
    until: Option<&'a [u8]>,
    position: SearchPosition,
    file: Option<(u8, u32)>,
    located: Option<BlockHandle>,
    hash: KeyHash,
    needs: Needs,
}

/// Point at which the first entry of the key in a source must be visible, and its latest timestamp.
#[derive(Clone, Copy)]
struct Limit<'a>(&'a ReadAt, Option<&'a [u8]>);

impl Limit<'_> {
    /// Returns true if an entry with this stored user key is newer, or None if older sources
    /// decide.
    fn is_passed(self, comparator: &Comparator, user_key: &[u8], seq: SeqNo) -> Option<bool> {
        let Limit(since, until) = self;
        if since.hides(seq) {
            return Some(true);
        }
        let (_, timestamp) = comparator.split_timestamp(user_key);
        Some(comparator.compare_timestamps(timestamp, until?).is_gt())
    }
}

impl Newest<'_> {
    fn in_memtables(&self) -> Result<Option<bool>> {
        let key = user_key(&self.key);
        for memtable in self.view.superversion.memtables().filter(|memtable| !memtable.is_empty()) {
            if memtable.covering_tombstone(key, SeqNo::MAX) > self.since.seq {
                return Ok(Some(true));
            }
            let newest = memtable.entries_of(&self.key)?.next().transpose()?;
            let limit = Limit(self.since, self.until);
            let decided = newest.and_then(|entry| {
                limit.is_passed(memtable.comparator(), memtable.user_key_of(entry.at), entry.seq)
            });
            if decided.is_some() {
                return Ok(decided);
            }
        }
        Ok(None)
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
            if let Some(decided) = self.in_file(level, index as usize)? {
                return Ok(decided);
            }
            self.file = None;
        }
    }

    fn in_file(&mut self, level: u8, index: usize) -> Result<Option<bool>, Stop> {
        let (view, limit) = (self.view, Limit(self.since, self.until));
        let file = &view.version().levels()[usize::from(level)].files()[index];
        if self.until.is_none() && file.largest_seq <= self.since.all_seen_to() {
            return Ok(None);
        }
        let table = self.needs.table(&view.ctx, file, u32::from(level))?;
        let tombstones = table.range_tombstones();
        let covered = |t: &Arc<karst_lsm::range_del::Fragments>| {
            t.covering_seq(table.comparator(), user_key(&self.key), SeqNo::MAX) > self.since.seq
        };
        if tombstones.is_some_and(covered) {
            return Ok(Some(true));
        }
        if !view.superversion.skips_filter(level)
            && table.key_may_match(&view.ctx, &mut self.needs, &self.key, &mut self.hash)? == Some(false)
        {
            return Ok(None);
        }
        let handle = match self.located {
            Some(handle) => handle,
            None => match table.locate(&view.ctx, &mut self.needs, &self.key)? {
                Some(handle) => *self.located.insert(handle),
                None => return Ok(None),
            },
        };
        let block = table.data_block(&view.ctx, &mut self.needs, handle)?;
        let mut cursor = BlockCursor::new();
        if !table.seek_point(&mut cursor, block.as_data(), &self.key, handle)? {
            return Ok(None);
        }
        let entry = table.entry(&cursor, block.as_data(), handle)?;
        let same = table.comparator().equal_user(entry.user_key, user_key(&self.key));
        Ok(if same { limit.is_passed(table.comparator(), entry.user_key, entry.seq) } else { None })
    }
}

impl Step for Newest<'_> {
    type Out = bool;

    fn step(&mut self, _: &ReadCtx<'_>) -> Result<bool, Stop> {
        let in_memtables = if self.file.is_none() { self.in_memtables()? } else { None };
        in_memtables.map_or_else(|| self.in_tables(), Ok)
    }

    fn needs(&mut self) -> &mut Needs {
        &mut self.needs
    }
}

/// Returns true if `key` (a stored user key) has an entry in `superversion` that is not visible at
/// `since`, or if its newest entry is later than the timestamp `until`. Waits asynchronously if it
/// has to read.
pub(crate) async fn written_since(
    tables: &Arc<TableCache>,
    superversion: &SuperVersion,
    key: &[u8],
    since: &ReadAt,
    until: Option<&[u8]>,
) -> Result<bool> {
    let options = ReadOptions::new();
    let mut search = Newest {
        view: View::new(tables, superversion, &options),
        key: superversion.version().comparator().before_all_of(key),
        since,
        until,
        position: SearchPosition::START,
        file: None,
        located: None,
        hash: KeyHash::default(),
        needs: Needs::new(),
    };
    let ctx = search.view.ctx;
    drive::run(ctx, &mut search).await
}
