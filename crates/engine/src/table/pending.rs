//! What a step of a read is waiting for, and what it already holds.
//!
//! Reads are plain code that is called again: a step asks [`Pending`] for a table, a block or a blob; what is in hand or in
//! the cache is returned at once, what is not is recorded as a need and the step stops with [`Stop::Need`]. `drive`
//! fetches every recorded need at the same time, supplies the results, and steps again.
//!
//! Invariant: what has been supplied stays held until the step's owner releases it, so no step asks twice for the same
//! thing and every read ends even with a cache of size 0. A failed fetch is held as its error: only a step that really
//! needs the thing fails.
//!
//! Called by: lookups, iterators (through `Table` and `BlobFiles`); `supply` and `take_needs` only by the fetch loop.

use std::ops::Deref;
use std::sync::Arc;

use karst_format::handle::BlockHandle;
use karst_lsm::FileMetadata;
use karst_mem::CacheKey;
use smallvec::SmallVec;

use crate::blob::BlobNeed;
use crate::error::{Error, ErrorKind};
use crate::options::ReadTier;
use crate::table::cache::TableCache;
use crate::table::context::ReadCtx;
use crate::table::{BlockKind, BlockRef, Table};

/// Why a step did not finish.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something recorded in the step's [`Pending`] has to be fetched first.
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
pub(crate) enum Need {
    /// Open a table file. The level decides whether its metadata is pinned.
    Open { tables: Arc<TableCache>, file: Arc<FileMetadata>, level: u32 },
    /// Read one block of an open table.
    Block { table: Arc<Table>, handle: BlockHandle, kind: BlockKind },
    /// Read one value from a blob file.
    Blob(Arc<BlobNeed>),
}

/// Names a need within the process: (file, offset). Equal to the block's cache key for blocks.
pub(crate) type NeedKey = CacheKey;

/// The offset that stands for "the open file itself"; no block starts there.
const OPEN: u64 = u64::MAX;

/// Something fetched.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Table(Arc<Table>),
    Block(BlockRef),
}

/// A table in hand: borrowed from where the version keeps it open, or owned because it may be closed meanwhile.
pub(crate) enum TableRef<'a> {
    Borrowed(&'a Arc<Table>),
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

#[derive(Debug)]
struct Slot {
    key: NeedKey,
    state: State,
}

/// The needs and the holdings of one step.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    slots: SmallVec<[Slot; 3]>,
    hold_hits: bool,
}

impl Pending {
    pub(crate) fn new() -> Self {
        Pending::default()
    }

    /// The open table of `file`, from the version, from what is held, or from the table cache; else the need is recorded.
    #[inline]
    pub(crate) fn table<'a>(
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
            Some(Held::Block(_)) => unreachable!("no block has the offset of an open file"),
            None => {}
        }
        // Why it is not held: a hit shall not allocate. If it is closed before the next step, that step opens it again, and then it
        // is held; so a small table cache can cost a second open, but not make a read start over and over.
        if let Some(table) = ctx.tables.lookup(file) {
            return Ok(table);
        }
        refuse_io(ctx)?;
        self.slots.push(Slot {
            key,
            state: State::Needed(Need::Open { tables: ctx.tables.clone(), file: file.clone(), level }),
        });
        Err(Stop::Need)
    }

    /// The block at `handle`, from what is held or from the cache; else the need is recorded.
    #[inline]
    pub(crate) fn block(
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
            ctx.count_cache_hit(kind, &block);
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
        ctx.count_cache_miss(kind);
        refuse_io(ctx)?;
        table.check_bounds(handle)?;
        let need = Need::Block { table: table.clone(), handle, kind };
        self.slots.push(Slot { key, state: State::Needed(need) });
        Err(Stop::Need)
    }

    /// The value that `need` describes, from what is held or from the blob cache; else the need is recorded.
    pub(crate) fn blob(&mut self, ctx: &ReadCtx<'_>, need: BlobNeed) -> Result<BlockRef, Stop> {
        let key = need.key();
        if let Some(Held::Block(value)) = self.held(key)? {
            return Ok(value.clone());
        }
        if let Some(value) = need.cached() {
            return Ok(value);
        }
        refuse_io(ctx)?;
        self.slots.push(Slot { key, state: State::Needed(Need::Blob(Arc::new(need))) });
        Err(Stop::Need)
    }

    /// From now on, whether blocks found in the cache stay in hand. For looking ahead: the step that uses them later finds them here and
    /// does not count them again.
    pub(crate) fn hold_hits(&mut self, hold: bool) {
        self.hold_hits = hold;
    }

    /// Records the need for a table that a later step will ask for. True if it is in hand already.
    pub(crate) fn want_table(&mut self, ctx: &ReadCtx<'_>, file: &Arc<FileMetadata>, level: u32) -> bool {
        self.table(ctx, file, level).is_ok()
    }

    /// Records the need for a block that a later step will ask for. True if it is in hand already; a block found in the
    /// cache is held from now on.
    pub(crate) fn want_block(
        &mut self,
        ctx: &ReadCtx<'_>,
        table: &Arc<Table>,
        handle: BlockHandle,
        kind: BlockKind,
    ) -> bool {
        let before = std::mem::replace(&mut self.hold_hits, true);
        let found = self.block(ctx, table, handle, kind).is_ok();
        self.hold_hits = before;
        found
    }

    /// What is held under `key`. A need that is recorded or in flight stops the step; a failed one fails it.
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
        for slot in &mut self.slots {
            if matches!(slot.state, State::Needed(_))
                && let State::Needed(need) = std::mem::replace(&mut slot.state, State::InFlight)
            {
                start(slot.key, need);
            }
        }
    }

    /// True if something is recorded that has not been handed out yet.
    pub(crate) fn has_needs(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.state, State::Needed(_)))
    }

    /// True if something is being fetched.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.state, State::InFlight))
    }

    /// Puts a fetched thing in hand. Dropped if nobody waits for it any more.
    pub(crate) fn supply(&mut self, key: NeedKey, result: Result<Held, Error>) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.key == key) {
            slot.state = match result {
                Ok(held) => State::Held(held),
                Err(error) => State::Failed(error),
            };
        }
    }

    /// Lets go of everything in hand and of needs that nobody has taken; what is in flight stays expected. Called
    /// when an operation has finished and its owner goes on to the next.
    pub(crate) fn release(&mut self) {
        if !self.slots.is_empty() {
            self.slots.retain(|slot| matches!(slot.state, State::InFlight));
        }
    }

    /// Lets go of one thing in hand, of a need or of an expectation.
    pub(crate) fn release_key(&mut self, key: NeedKey) {
        self.slots.retain(|slot| slot.key != key);
    }

    /// Forgets everything, what is in flight included: its result will be dropped on arrival (and is in the cache then).
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
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
