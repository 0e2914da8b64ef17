//! A run: neighbouring pieces of a file that a scan needs, read in one request.
//!
//! In: pieces in the order of the scan, then the request for the bytes. Out: the read request, and
//! the bytes once they have arrived. `block_feed` and `blob_feed` create runs and cut their pieces
//! out of them.

use crate::read::iter::readahead::Window;
use karst_io::{RandomAccessFile, ReadBuf};
use karst_mem::Charge;
use karst_storage::table::Table;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::fetch::MAX_GAP_BYTES;
use karst_storage::table::needs::{Needs, RunNeed, RunNumber, Stop};
use std::sync::Arc;

/// A byte range of a file that one request reads.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Number of the requested run; None before the request.
    number: Option<RunNumber>,
    bytes: Option<ReadBuf>,
    /// Memory charge of the bytes, from the request on.
    charge: Option<Arc<Charge>>,
}

impl Run {
    pub(super) fn new(start: u64, end: u64) -> Self {
        Run { start, end, number: None, bytes: None, charge: None }
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns true if the piece from `start` to `end`, the next in the scan's direction, can still
    /// join the run.
    pub(super) fn is_close_to(&self, start: u64, end: u64, forward: bool) -> bool {
        let gap = if forward { start.checked_sub(self.end) } else { self.start.checked_sub(end) };
        self.number.is_none() && gap.is_some_and(|gap| gap <= MAX_GAP_BYTES)
    }

    /// Extends the run by a piece.
    pub(super) fn extend(&mut self, start: u64, end: u64) {
        (self.start, self.end) = (start.min(self.start), end.max(self.end));
    }

    /// Requests the run's bytes from `file`, which may be the file of `table`.
    pub(super) fn ask(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        file: &Arc<dyn RandomAccessFile>,
        table: Option<&Arc<Table>>,
    ) {
        let len = self.len() as usize;
        self.charge = ctx.tables.shared.charge_ahead(len);
        let (file, table, charge) = (file.clone(), table.cloned(), self.charge.clone());
        self.number = Some(needs.want_run(RunNeed { file, table, start: self.start, len, charge }));
    }

    /// Returns the run's bytes, fewer if the file ends inside it; stops while they are not in
    /// memory. Records a wait in `window`.
    pub(super) fn bytes(
        &mut self,
        ctx: &ReadCtx<'_>,
        needs: &mut Needs,
        window: &mut Window,
    ) -> Result<&ReadBuf, Stop> {
        if self.bytes.is_none() {
            let number = self.number.expect("runs are asked for when they are made");
            match needs.take_run(number) {
                Ok(bytes) => self.bytes = Some(bytes),
                Err(stop) => {
                    window.note_wait(ctx);
                    return Err(stop);
                }
            }
        }
        Ok(self.bytes.as_ref().expect("just looked"))
    }

    /// Drops the request, because the scan does not reach the rest of the run.
    pub(super) fn give_up(&self, needs: &mut Needs) {
        if let Some(number) = self.number {
            needs.drop_run(number);
        }
    }
}
