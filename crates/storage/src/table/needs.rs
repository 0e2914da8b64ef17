//! The needs of a read's step, and the data it already holds.
//!
//! Reads are plain code that is called again: a step requests a table, a block or a blob from
//! [`Needs`]; data in hand or in the cache is returned at once, other data is recorded as a need
//! and the step stops with [`Stop::Need`]. `drive` fetches every recorded need at the same time,
//! supplies the results, and steps again.
//!
//! Invariant: supplied data stays held until the step's owner releases it, so no step requests the
//! same data twice and every read ends even with a cache of size 0. A failed fetch is held as its
//! error: only a step that really needs the data fails.
//!
//! Called by: lookups, iterators (through `Table` and `BlobFiles`); `supply` and `take_needs` only
//! by the fetch loop.

use crate::blob::BlobNeed;
use crate::block::{BlockKind, BlockRef};
use crate::table::Table;
use crate::table::cache::TableCache;
use crate::table::context::ReadCtx;
use karst_base::error::{Error, ErrorKind};
use karst_base::options::ReadTier;
use karst_format::handle::BlockHandle;
use karst_io::{RandomAccessFile, ReadBuf};
use karst_lsm::FileMetadata;
use karst_mem::{CacheKey, Charge};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

/// The reason a step did not finish.
#[derive(Debug)]
pub enum Stop {
    /// A need recorded in the step's [`Needs`] has to be fetched first.
    Need,
    /// The read has failed.
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

/// An item to fetch from storage.
#[derive(Clone, Debug)]
pub enum Need {
    /// Open a table file. The level decides about pinning its metadata.
    #[allow(missing_docs)]
    Open { tables: Arc<TableCache>, file: Arc<FileMetadata>, level: u32 },
    /// Read one block of an open table.
    #[allow(missing_docs)]
    Block { table: Arc<Table>, handle: BlockHandle, kind: BlockKind },
    /// Read adjacent blocks, or blob records, in stored form, ahead of a scan. The range lies
    /// inside the file.
    Run(RunNeed),
    /// Read one value from a blob file.
    Blob(Arc<BlobNeed>),
}

/// A range of a file to read ahead; see [`Need::Run`].
#[derive(Clone, Debug)]
pub struct RunNeed {
    /// The open file.
    pub file: Arc<dyn RandomAccessFile>,
    /// The table, if the file is a table.
    pub table: Option<Arc<Table>>,
    /// Start of the run in the file, in bytes.
    pub start: u64,
    /// Length of the run, in bytes.
    pub len: usize,
    /// Held until the run has been read, even if the scan ends earlier.
    pub charge: Option<Arc<Charge>>,
}

/// Identifies a need within the process: (file, offset). Equal to the cache key for blocks.
pub type NeedKey = CacheKey;

/// The offset that stands for "the open file itself"; no block starts there.
const OPEN: u64 = u64::MAX;

/// The first half of the keys of runs; no file has this id.
const RUNS: u64 = u64::MAX;

/// Identifies a run requested by a scan; ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunNumber(u64);

/// A fetched item.
#[derive(Clone, Debug)]
pub enum Held {
    /// An open table.
    Table(Arc<Table>),
    /// A block or a blob value.
    Block(BlockRef),
    /// A run, in stored form.
    Bytes(ReadBuf),
}

/// A table in hand: borrowed from the version that keeps it open, or owned because it may be closed
/// meanwhile.
pub enum TableRef<'a> {
    /// Stays open with its file.
    Borrowed(&'a Arc<Table>),
    /// May be closed meanwhile.
    Owned(Arc<Table>),
}

impl Deref for TableRef<'_> {
    type Target = Arc<Table>;
    fn deref(&self) -> &Arc<Table> {
        match self {
            TableRef::Borrowed(table) => table,
            TableRef::Owned(table) => table,
        }
    }
}

#[derive(Debug)]
enum State {
    Needed(Need),
    InFlight,
    Held(Held),
    Failed(Error),
}

impl State {
    /// Takes the need if it has not been taken, and marks it as in flight.
    fn take_need(&mut self) -> Option<Need> {
        if !matches!(self, State::Needed(_)) {
            return None;
        }
        match std::mem::replace(self, State::InFlight) {
            State::Needed(need) => Some(need),
            _ => unreachable!("just looked"),
        }
    }
}

#[derive(Debug)]
struct Slot {
    key: NeedKey,
    state: State,
}

/// The needs of one step and the data it holds.
#[derive(Debug, Default)]
pub struct Needs {
    slots: SmallVec<[Slot; 3]>,
    /// Runs requested by scans, by number. Those not taken yet come last.
    runs: VecDeque<(RunNumber, State)>,
    next_run: u64,
    /// Number of needs in both that have not been taken. An iterator checks it after every move.
    untaken: usize,
    hold_hits: bool,
}

impl Needs {
    /// Creates an empty set.
    pub fn new() -> Self {
        Needs::default()
    }

    /// Returns the open table of `file`, from the version, the held data or the table cache;
    /// otherwise records the need.
    #[inline]
    pub fn table<'a>(
        &mut self,
        ctx: &ReadCtx<'_>,
        file: &'a Arc<FileMetadata>,
        level: u32,
    ) -> Result<TableRef<'a>, Stop> {
        if let Some(table) = ctx.tables.opened(file) {
            return Ok(TableRef::Borrowed(table));
        }
        self.table_slow(ctx, file, level).map(TableRef::Owned)
    }

    #[cold]
    fn table_slow(
        &mut self,
        ctx: &ReadCtx<'_>,
        file: &Arc<FileMetadata>,
        level: u32,
    ) -> Result<Arc<Table>, Stop> {
        let key = CacheKey(ctx.tables.file_id(file.number), OPEN);
        match self.held(key)? {
            Some(Held::Table(table)) => return Ok(table.clone()),
            Some(_) => unreachable!("no block has the offset of an open file"),
            None => {}
        }
        // Not held, because a hit must not allocate. If it is closed before the next step, that
        // step opens and then holds it; a small table cache can therefore cost a second open, but
        // cannot make a read start over endlessly.
        if let Some(table) = ctx.tables.lookup(file) {
            return Ok(table);
        }
        refuse_io(ctx)?;
        let need = Need::Open { tables: ctx.tables.clone(), file: file.clone(), level };
        Err(self.need(key, need))
    }

    /// Returns the block at `handle`, held or from the cache; otherwise records the need.
    #[inline]
    pub fn block(
        &mut self,
        ctx: &ReadCtx<'_>,
        table: &Arc<Table>,
        handle: BlockHandle,
        kind: BlockKind,
    ) -> Result<BlockRef, Stop> {
        let key = table.cache_key(handle);
        if !self.slots.is_empty()
            && let Some(Held::Block(block)) = self.held(key)?
        {
            return table.checked(block.clone(), handle, kind).map_err(Stop::from);
        }
        if let Some(block) = ctx.cache().get(key) {
            ctx.count_cache_hit(kind, &block, table.level());
            if self.hold_hits {
                self.slots.push(Slot { key, state: State::Held(Held::Block(block.clone())) });
            }
            return table.checked(block, handle, kind).map_err(Stop::from);
        }
        self.miss(ctx, key, table, handle, kind)
    }

    #[cold]
    fn miss(
        &mut self,
        ctx: &ReadCtx<'_>,
        key: NeedKey,
        table: &Arc<Table>,
        handle: BlockHandle,
        kind: BlockKind,
    ) -> Result<BlockRef, Stop> {
        ctx.count_cache_miss(kind, table.level());
        refuse_io(ctx)?;
        table.check_bounds(handle)?;
        Err(self.need(key, Need::Block { table: table.clone(), handle, kind }))
    }

    /// Records a need; returns the stop for the step.
    fn need(&mut self, key: NeedKey, need: Need) -> Stop {
        self.slots.push(Slot { key, state: State::Needed(need) });
        self.untaken += 1;
        Stop::Need
    }

    /// Returns the value described by `need`, held or from the blob cache; otherwise records the
    /// need.
    pub fn blob(&mut self, ctx: &ReadCtx<'_>, need: BlobNeed) -> Result<BlockRef, Stop> {
        let key = need.key();
        if let Some(Held::Block(value)) = self.held(key)? {
            return Ok(value.clone());
        }
        if let Some(value) = need.cached() {
            return Ok(value);
        }
        refuse_io(ctx)?;
        Err(self.need(key, Need::Blob(Arc::new(need))))
    }

    /// Returns true if any item is requested or held.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Holds the block with this key if the cache has it. Does not count as a cache access.
    pub(crate) fn hold_if_cached(&mut self, ctx: &ReadCtx<'_>, key: NeedKey) {
        if !self.slots.iter().any(|slot| slot.key == key)
            && let Some(block) = ctx.cache().get(key)
        {
            self.slots.push(Slot { key, state: State::Held(Held::Block(block)) });
        }
    }

    /// Turns holding of blocks found in the cache on or off. For readahead: the step that uses
    /// them later finds them here and does not count them again.
    pub fn hold_hits(&mut self, hold: bool) {
        self.hold_hits = hold;
    }

    /// Requests a range of an open file ahead of a scan. The range must lie inside the file.
    pub fn want_run(&mut self, run: RunNeed) -> RunNumber {
        let number = RunNumber(self.next_run);
        self.next_run += 1;
        self.runs.push_back((number, State::Needed(Need::Run(run))));
        self.untaken += 1;
        number
    }

    /// Takes the bytes of a requested run; stops while they have not arrived.
    pub fn take_run(&mut self, number: RunNumber) -> Result<ReadBuf, Stop> {
        let at = self.run_at(number).expect("a run is asked for before it is taken");
        match &self.runs[at].1 {
            State::Failed(error) => return Err(Stop::Error(error.clone())),
            State::Needed(_) | State::InFlight => return Err(Stop::Need),
            State::Held(_) => {}
        }
        match self.runs.remove(at) {
            Some((_, State::Held(Held::Bytes(bytes)))) => Ok(bytes),
            _ => unreachable!("a run is bytes"),
        }
    }

    /// Drops a run in any state. Has no effect if it has been taken.
    pub fn drop_run(&mut self, number: RunNumber) {
        if let Some((_, State::Needed(_))) = self.run_at(number).and_then(|at| self.runs.remove(at)) {
            self.untaken -= 1;
        }
    }

    fn run_at(&self, number: RunNumber) -> Option<usize> {
        self.runs.binary_search_by_key(&number, |run| run.0).ok()
    }

    /// Returns the item held under `key`. A recorded or pending need stops the step; a failed one
    /// fails it.
    fn held(&self, key: NeedKey) -> Result<Option<&Held>, Stop> {
        let Some(slot) = self.slots.iter().find(|slot| slot.key == key) else { return Ok(None) };
        match &slot.state {
            State::Held(held) => Ok(Some(held)),
            State::Failed(error) => Err(Stop::Error(error.clone())),
            State::Needed(_) | State::InFlight => Err(Stop::Need),
        }
    }

    /// Passes every recorded need to `start` and marks it as in flight.
    pub(crate) fn take_needs(&mut self, mut start: impl FnMut(NeedKey, Need)) {
        if std::mem::take(&mut self.untaken) == 0 {
            return;
        }
        for slot in &mut self.slots {
            if let Some(need) = slot.state.take_need() {
                start(slot.key, need);
            }
        }
        let taken = self.runs.iter().rev().take_while(|run| matches!(run.1, State::Needed(_))).count();
        let first = self.runs.len() - taken;
        for (number, state) in self.runs.range_mut(first..) {
            if let Some(need) = state.take_need() {
                start(CacheKey(RUNS, number.0), need);
            }
        }
    }

    /// Returns true if a recorded need has not been taken yet.
    #[inline]
    pub fn has_needs(&self) -> bool {
        self.untaken > 0
    }

    /// Holds a fetched item. Dropped if its request is gone.
    pub fn supply(&mut self, key: NeedKey, result: Result<Held, Error>) {
        let state = if key.0 == RUNS {
            self.run_at(RunNumber(key.1)).map(|at| &mut self.runs[at].1)
        } else {
            self.slots.iter_mut().find(|slot| slot.key == key).map(|slot| &mut slot.state)
        };
        if let Some(state) = state {
            *state = match result {
                Ok(held) => State::Held(held),
                Err(error) => State::Failed(error),
            };
        }
    }

    /// Drops one item, requested or held.
    pub fn release_key(&mut self, key: NeedKey) {
        if let Some(at) = self.slots.iter().position(|slot| slot.key == key)
            && let State::Needed(_) = self.slots.remove(at).state
        {
            self.untaken -= 1;
        }
    }
}

/// Returns an error if the read's options forbid storage access.
fn refuse_io(ctx: &ReadCtx<'_>) -> Result<(), Stop> {
    if ctx.options.read_tier == ReadTier::BlockCache {
        return Err(Stop::Error(Error::new(
            ErrorKind::Incomplete,
            "the answer is not in memory, and read_tier allows nothing else",
        )));
    }
    Ok(())
}
