//! A run: what lies close together in a file and a scan comes to, read in one request.
//!
//! In: pieces in the order of the scan, then the wish for the bytes. Out: the request, and the
//! bytes once they are here. `block_feed` and `blob_feed` make runs and cut their pieces out of
//! them.

use crate::read::iter::readahead::Window;
use karst_io::{RandomAccessFile, ReadBuf};
use karst_mem::Charge;
use karst_storage::table::Table;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::fetch::MAX_GAP_BYTES;
use karst_storage::table::needs::{Needs, RunNeed, RunNumber, Stop};
use std::sync::Arc;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Once it has been asked for.
    number: Option<RunNumber>,
    bytes: Option<ReadBuf>,
    /// From then on.
    charge: Option<Arc<Charge>>,
}

impl Run {
    pub(super) fn new(start: u64, end: u64) -> Self {
        Run { start, end, number: None, bytes: None, charge: None }
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the piece from `start` to `end`, the next in the direction of the scan, may still be
    /// read with it.
    pub(super) fn is_close_to(&self, start: u64, end: u64, forward: bool) -> bool {
        let gap = if forward { start.checked_sub(self.end) } else { self.start.checked_sub(end) };
        self.number.is_none() && gap.is_some_and(|gap| gap <= MAX_GAP_BYTES)
    }

    /// Takes a piece in.
    pub(super) fn extend(&mut self, start: u64, end: u64) {
        (self.start, self.end) = (start.min(self.start), end.max(self.end));
    }

    /// Asks for it. It lies inside `file`, which may be that of a table.
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

    /// Its bytes, fewer if the file ends inside it; stops while they are not here. The window
    /// learns of a wait.
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

    /// The scan does not come to what is left of it.
    pub(super) fn give_up(&self, needs: &mut Needs) {
        if let Some(number) = self.number {
            needs.drop_run(number);
        }
    }
}
