//! What a step of a read is waiting for, and what it already holds.
//!
//! Reads are plain code that is called again: a step asks [`Needs`] for a table, a block or a blob;
//! what is in hand or in the cache is returned at once, what is not is recorded as a need and the
//! step stops with [`Stop::Need`]. `drive` fetches every recorded need at the same time, supplies
//! the results, and steps again.
//!
//! Invariant: what has been supplied stays held until the step's owner releases it, so no step asks
//! twice for the same thing and every read ends even with a cache of size 0. A failed fetch is held
//! as its error: only a step that really needs the thing fails.
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

/// Why a step did not finish.
#[derive(Debug)]
pub enum Stop {
    /// Something recorded in the step's [`Needs`] has to be fetched first.
    Need,
    /// The read has failed.
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

/// Something to fetch from storage.
#[derive(Clone, Debug)]
pub enum Need {
    /// Open a table file. The level decides whether its metadata is pinned.
    #[allow(missing_docs)]
    Open { tables: Arc<TableCache>, file: Arc<FileMetadata>, level: u32 },
    /// Read one block of an open table.
    #[allow(missing_docs)]
    Block { table: Arc<Table>, handle: BlockHandle, kind: BlockKind },
    /// Read neighbouring blocks, or blob records, as they are stored, ahead of a scan. Lies inside
    /// the file.
    Run(RunNeed),
    /// Read one value from a blob file.
    Blob(Arc<BlobNeed>),
}

/// See [`Need::Run`].
#[derive(Clone, Debug)]
pub struct RunNeed {
    /// The open file.
    pub file: Arc<dyn RandomAccessFile>,
    /// The table that the file is, if it is one.
    pub table: Option<Arc<Table>>,
    /// Where the run begins, in bytes.
    pub start: u64,
    /// How long it is, in bytes.
    pub len: usize,
    /// Kept until it has been read, whether the scan comes to it or not.
    pub charge: Option<Arc<Charge>>,
}

/// Names a need within the process: (file, offset). Equal to the block's cache key for blocks.
pub type NeedKey = CacheKey;

/// The offset that stands for "the open file itself"; no block starts there.
const OPEN: u64 = u64::MAX;

/// The first half of the keys of runs; no file has this id.
const RUNS: u64 = u64::MAX;

/// Names a run that a scan has asked for; ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunNumber(u64);

/// Something fetched.
#[derive(Clone, Debug)]
pub enum Held {
    /// An open table.
    Table(Arc<Table>),
    /// A block, or a value.
    Block(BlockRef),
    /// A run, as it is stored.
    Bytes(ReadBuf),
}

/// A table in hand: borrowed from where the version keeps it open, or owned because it may be
/// closed meanwhile.
pub enum TableRef<'a> {
    /// One that stays open with its file.
    Borrowed(&'a Arc<Table>),
    /// One that may be closed meanwhile.
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
    /// The need, if nobody has taken it; from then on it counts as in flight.
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

/// The needs and the holdings of one step.
#[derive(Debug, Default)]
pub struct Needs {
    slots: SmallVec<[Slot; 3]>,
    /// What scans have asked for ahead of themselves, by number. Those that nobody has taken come
    /// last.
    runs: VecDeque<(RunNumber, State)>,
    next_run: u64,
    /// How many of both are needs that nobody has taken. An iterator asks after every move.
    untaken: usize,
    hold_hits: bool,
}

impl Needs {
    /// Nothing is asked for.
    pub fn new() -> Self {
        Needs::default()
    }

    /// The open table of `file`, from the version, from what is held, or from the table cache; else
    /// the need is recorded.
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
        // Why it is not held: a hit shall not allocate. If it is closed before the next step, that
        // step opens it again, and then it is held; so a small table cache can cost a second open,
        // but not make a read start over and over.
        if let Some(table) = ctx.tables.lookup(file) {
            return Ok(table);
        }
        refuse_io(ctx)?;
        let need = Need::Open { tables: ctx.tables.clone(), file: file.clone(), level };
        Err(self.need(key, need))
    }

    /// The block at `handle`, from what is held or from the cache; else the need is recorded.
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

    /// Records a need; the stop that follows from it.
    fn need(&mut self, key: NeedKey, need: Need) -> Stop {
        self.slots.push(Slot { key, state: State::Needed(need) });
        self.untaken += 1;
        Stop::Need
    }

    /// The value that `need` describes, from what is held or from the blob cache; else the need is
    /// recorded.
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

    /// Whether something has been asked for, or is held.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Keeps the block of this name in hand if the cache has it. Not counted as a use of the cache.
    pub(crate) fn hold_if_cached(&mut self, ctx: &ReadCtx<'_>, key: NeedKey) {
        if !self.slots.iter().any(|slot| slot.key == key)
            && let Some(block) = ctx.cache().get(key)
        {
            self.slots.push(Slot { key, state: State::Held(Held::Block(block)) });
        }
    }

    /// From now on, whether blocks found in the cache stay in hand. For looking ahead: the step
    /// that uses them later finds them here and does not count them again.
    pub fn hold_hits(&mut self, hold: bool) {
        self.hold_hits = hold;
    }

    /// Records the need for bytes of an open file, which must lie inside it: what a scan will come
    /// to.
    pub fn want_run(&mut self, run: RunNeed) -> RunNumber {
        let number = RunNumber(self.next_run);
        self.next_run += 1;
        self.runs.push_back((number, State::Needed(Need::Run(run))));
        self.untaken += 1;
        number
    }

    /// The bytes of a run that was asked for; stops while they are not here. They are the caller's
    /// from then on.
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

    /// Lets go of a run, wherever it is. Nothing happens if it has been taken.
    pub fn drop_run(&mut self, number: RunNumber) {
        if let Some((_, State::Needed(_))) = self.run_at(number).and_then(|at| self.runs.remove(at)) {
            self.untaken -= 1;
        }
    }

    fn run_at(&self, number: RunNumber) -> Option<usize> {
        self.runs.binary_search_by_key(&number, |run| run.0).ok()
    }

    /// What is held under `key`. A need that is recorded or in flight stops the step; a failed one
    /// fails it.
    fn held(&self, key: NeedKey) -> Result<Option<&Held>, Stop> {
        let Some(slot) = self.slots.iter().find(|slot| slot.key == key) else { return Ok(None) };
        match &slot.state {
            State::Held(held) => Ok(Some(held)),
            State::Failed(error) => Err(Stop::Error(error.clone())),
            State::Needed(_) | State::InFlight => Err(Stop::Need),
        }
    }

    /// Hands every recorded need to `start`; from then on they count as in flight.
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

    /// True if something is recorded that has not been handed out yet.
    #[inline]
    pub fn has_needs(&self) -> bool {
        self.untaken > 0
    }

    /// Puts a fetched thing in hand. Dropped if nobody waits for it any more.
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

    /// Lets go of one thing in hand, of a need or of an expectation.
    pub fn release_key(&mut self, key: NeedKey) {
        if let Some(at) = self.slots.iter().position(|slot| slot.key == key)
            && let State::Needed(_) = self.slots.remove(at).state
        {
            self.untaken -= 1;
        }
    }
}

/// A read that may not touch storage ends here.
fn refuse_io(ctx: &ReadCtx<'_>) -> Result<(), Stop> {
    if ctx.options.read_tier == ReadTier::BlockCache {
        return Err(Stop::Error(Error::new(
            ErrorKind::Incomplete,
            "the answer is not in memory, and read_tier allows nothing else",
        )));
    }
    Ok(())
}
