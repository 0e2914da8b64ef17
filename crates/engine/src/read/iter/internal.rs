//! Iterator over every internal entry of a column family, older versions and deletions too, for
//! diagnostic tools.

use crate::read::View;
use crate::read::iter::index_position::To;
use crate::read::iter::merging::Merging;
use crate::read::iter::{Bounds, PrefixFilter, readahead_limits};
use karst_base::error::Result;
use karst_base::life::Life;
use karst_base::options::ReadOptions;
use karst_base::stats::HistogramKind;
use karst_format::key::{SeqNo, before_all_of};
use karst_storage::superversion::SuperVersion;
use karst_storage::table::cache::TableCache;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::drive::{self, Step};
use karst_storage::table::fetch::Fetches;
use karst_storage::table::needs::{Needs, Stop};
use std::sync::Arc;

/// A forward iterator over the internal entries of a column family. Blocks the calling thread while
/// it reads.
///
/// Compat: as in RocksDB's internal iterator, the entries include neither range tombstones nor
/// entries that range tombstones hide.
pub struct InternalIterator {
    tables: Arc<TableCache>,
    superversion: Arc<SuperVersion>,
    options: ReadOptions,
    merging: Merging,
    needs: Needs,
    fetches: Fetches,
    valid: bool,
    life: Arc<Life>,
}

struct Move<'a> {
    merging: &'a mut Merging,
    needs: &'a mut Needs,
}

impl Step for Move<'_> {
    type Out = ();

    fn step(&mut self, ctx: &ReadCtx<'_>) -> Result<(), Stop> {
        loop {
            self.merging.settle(ctx, self.needs, &PrefixFilter::default(), &Bounds::default())?;
            if !self.merging.valid() || !self.merging.hides_entry() {
                return Ok(());
            }
            self.merging.begin_advance()?;
        }
    }

    fn needs(&mut self) -> &mut Needs {
        self.needs
    }
}

impl InternalIterator {
    pub(crate) fn new(
        tables: Arc<TableCache>,
        superversion: Arc<SuperVersion>,
        options: ReadOptions,
        life: Arc<Life>,
    ) -> Self {
        let readahead = readahead_limits(&options, &superversion);
        let merging = Merging::new(&superversion, SeqNo::MAX, &Bounds::default(), readahead, true);
        let fetches = Fetches::new(&options, HistogramKind::FileReadDbIteratorMicros);
        InternalIterator {
            tables,
            superversion,
            options,
            merging,
            needs: Needs::new(),
            fetches,
            valid: false,
            life,
        }
    }

    /// Returns true if the iterator is at an entry.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The internal key of the entry.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn key(&self) -> &[u8] {
        assert!(self.valid, "key() of an iterator that is not valid");
        self.merging.key()
    }

    /// The value as it is stored.
    ///
    /// # Panics
    /// When the iterator is not valid.
    pub fn value(&self) -> &[u8] {
        assert!(self.valid, "value() of an iterator that is not valid");
        self.merging.value()
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.check_open()?;
        self.merging.begin(To::First, &[], &mut self.needs);
        self.settle()
    }

    /// Moves to the newest entry of `user_key`, or to the first entry behind the key.
    pub fn seek(&mut self, user_key: impl AsRef<[u8]>) -> Result<()> {
        let comparator = self.superversion.version().comparator();
        let target = before_all_of(&comparator.with_greatest_timestamp(user_key.as_ref()));
        self.check_open()?;
        self.merging.begin(To::AtOrAfter, &target, &mut self.needs);
        self.settle()
    }

    /// Moves to the next entry.
    ///
    /// # Panics
    /// When the iterator is not valid.
    #[allow(clippy::should_implement_trait, reason = "the field's name for it")]
    pub fn next(&mut self) -> Result<()> {
        self.check_open()?;
        assert!(self.valid, "next() of an iterator that is not valid");
        self.valid = false;
        self.merging.begin_advance()?;
        self.settle()
    }

    /// Fails a move once the database is closed, and then makes the iterator invalid.
    fn check_open(&mut self) -> Result<()> {
        let open = self.life.check();
        self.valid &= open.is_ok();
        open
    }

    fn settle(&mut self) -> Result<()> {
        self.valid = false;
        let InternalIterator { tables, superversion, options, merging, needs, fetches, .. } = self;
        let ctx = View::new(tables, superversion, options).ctx;
        let mut step = Move { merging, needs };
        match step.step(&ctx) {
            Ok(()) => {}
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Need) => drive::wait_with(ctx, &mut step, fetches)?,
        }
        self.valid = self.merging.valid();
        Ok(())
    }
}

impl std::fmt::Debug for InternalIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InternalIterator").field("valid", &self.valid).finish_non_exhaustive()
    }
}
