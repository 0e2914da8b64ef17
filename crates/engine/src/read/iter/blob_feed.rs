//! Readahead of the blob values that a scan needs.
//!
//! In: each value that a scan needs, in its order. Out: the value. Once a scan has needed a few,
//! the feed walks ahead of it through the references in the scan's current data block, and requests
//! their values in large reads: neighbouring values in a blob file, as flushes and compactions
//! write them, make a *run*, which is one read. A value is cut out of its run, verified and
//! decompressed when the scan reaches it.
//!
//! A value whose reference turns out to be hidden by a newer entry was read in vain. Each child of
//! the merge has its own runs, requested when the child has given the scan a value, and dropped
//! when the scan has moved beyond them.
//!
//! Invariants:
//! - Runs of one child are in the order of the scan.
//! - No readahead from a file that is not open: the walk stays before the file's first reference
//!   until the scan has read that value, and so opened and checked the file.

use crate::read::View;
use crate::read::found_value::read_blob;
use crate::read::iter::Bounds;
use crate::read::iter::merging::Merging;
use crate::read::iter::readahead::{ReadaheadLimits, Window};
use crate::read::iter::run::Run;
use karst_base::error::Result;
use karst_format::ids::FileNumber;
use karst_format::key::{InternalKey, SeqNo, ValueType};
use karst_storage::blob::{BlobFile, BlobNeed};
use karst_storage::block::BlockRef;
use karst_storage::table::needs::{Needs, Stop};
use std::ops::Range;
use std::sync::Arc;

/// Neighbouring values of a blob file, read in one request.
#[derive(Debug)]
struct BlobRun {
    run: Run,
    child: u32,
    file: Arc<BlobFile>,
    number_of_file: FileNumber,
    /// Bytes of its values that the scan has not reached.
    left: u64,
}

/// The blob readahead of one scan.
#[derive(Debug)]
pub(super) struct BlobFeed {
    window: Window,
    forward: bool,
    runs: Vec<BlobRun>,
}

/// Position of a scan, and the data that it may see.
#[derive(Clone, Copy)]
pub(super) struct Scanned<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) bounds: &'a Bounds,
    pub(super) snapshot: SeqNo,
    /// The child of the merge in which the reference was found.
    pub(super) child: u32,
}

impl BlobFeed {
    pub(super) fn new(limits: ReadaheadLimits) -> Self {
        BlobFeed { window: Window::new(limits), forward: true, runs: Vec::new() }
    }

    /// Drops all requests and closes the window, because the scan moves elsewhere, in direction
    /// `forward`.
    #[inline]
    pub(super) fn close(&mut self, forward: bool, needs: &mut Needs) {
        self.window.close();
        self.forward = forward;
        self.runs.drain(..).for_each(|of| of.run.give_up(needs));
    }

    /// Returns the value that the scan needs now; stops while it is not in memory.
    pub(super) fn value(
        &mut self,
        scanned: Scanned<'_>,
        needs: &mut Needs,
        merging: &mut Merging,
        need: BlobNeed,
    ) -> Result<BlockRef, Stop> {
        let ctx = &scanned.view.ctx;
        let verify = ctx.options.verify_checksums;
        let mut run = self.run_of(&need, verify);
        if run.is_none() && self.window.is_open() {
            if self.window.is_held_back() && !need.is_cached() {
                // Drop the rest of the child's runs: newer entries hide it, and it would keep the
                // child from requesting more.
                self.keep_runs(needs, |_, of| of.child != scanned.child);
            }
            // The scan has just entered the block: request the value together with those behind it.
            self.refill(scanned, needs, merging);
            run = self.run_of(&need, verify);
        }
        let value = match run {
            Some((at, range)) => self.take(scanned, needs, at, &need, range)?,
            None => read_blob(ctx, needs, need)?,
        };
        self.window.note_block(ctx);
        self.refill(scanned, needs, merging);
        Ok(value)
    }

    /// Drops all runs except those for which `stays` returns true, given index and run.
    fn keep_runs(&mut self, needs: &mut Needs, stays: impl Fn(usize, &BlobRun) -> bool) {
        let mut at = 0;
        self.runs.retain(|of| {
            let stays = stays(at, of);
            at += 1;
            if !stays {
                of.run.give_up(needs);
            }
            stays
        });
    }

    /// Returns the index of the run that holds a value, and the file range to read for the value.
    fn run_of(&self, need: &BlobNeed, verify: bool) -> Option<(usize, Range<u64>)> {
        self.runs.iter().enumerate().find_map(|(at, of)| {
            if of.number_of_file != need.file_number() {
                return None;
            }
            let (start, length) = need.range_in(&of.file, verify).ok()?;
            let range = start..start + length as u64;
            (of.run.start <= range.start && range.end <= of.run.end).then_some((at, range))
        })
    }

    fn take(
        &mut self,
        scanned: Scanned<'_>,
        needs: &mut Needs,
        at: usize,
        need: &BlobNeed,
        range: Range<u64>,
    ) -> Result<BlockRef, Stop> {
        let ctx = &scanned.view.ctx;
        let BlobRun { run, child, file, left, .. } = &mut self.runs[at];
        let start = run.start;
        let bytes = run.bytes(ctx, needs, &mut self.window)?;
        // If the file is truncated, the missing bytes are detected when the record is checked.
        let [from, to] = [range.start, range.end].map(|at| ((at - start) as usize).min(bytes.len()));
        let value = need.value_in(file, &bytes[from..to], ctx.options)?;
        let length = range.end - range.start;
        ctx.count_prefetch_hit(length);
        *left = left.saturating_sub(length);
        let (child, through) = (*child, *left == 0);
        // The scan has passed all earlier requests of this child.
        self.keep_runs(needs, |index, of| of.child != child || index > at || (index == at && !through));
        Ok(value)
    }

    /// Requests the child's next values, if the window has room for more.
    fn refill(&mut self, scanned: Scanned<'_>, needs: &mut Needs, merging: &mut Merging) {
        if !self.window.is_open() {
            return;
        }
        let (view, comparator) = (scanned.view, scanned.view.version().comparator());
        let (ctx, verify) = (&view.ctx, view.ctx.options.verify_checksums);
        let child = scanned.child;
        let Some(cursor) = merging.table_at_entry(child) else { return };
        let mut ahead: u64 = self.runs.iter().filter(|of| of.child == child).map(|of| of.left).sum();
        let Some(more) = self.window.refill(ctx, ahead) else { return };
        let up_to = ahead + more;
        let asked_for = self.runs.len();
        while ahead < up_to
            && let Some((key, reference)) = cursor.entry_ahead(self.forward)
        {
            let Ok(InternalKey { user_key, seq, kind }) = InternalKey::parse(key) else { break };
            let outside = match self.forward {
                true => scanned.bounds.upper_excludes(comparator, user_key),
                false => scanned.bounds.lower_excludes(comparator, user_key),
            };
            if outside {
                break;
            }
            // Errors of a reference are left to the scan, in case it gets there.
            if kind == ValueType::BlobIndex
                && !view.hides(seq, scanned.snapshot)
                && let Ok(need) = BlobNeed::new(ctx.blobs(), view.version(), user_key, reference)
                && !need.is_cached()
            {
                let Some(file) = need.opened() else { break };
                if let Ok((start, length)) = need.range_in(&file, verify) {
                    ahead += length as u64;
                    self.add_to_run(child, asked_for, &need, file, start, length as u64);
                }
            }
            cursor.pass_entry_ahead(self.forward);
        }
        if self.runs.len() == asked_for {
            return;
        }
        self.runs[asked_for..].iter_mut().for_each(|of| of.run.ask(ctx, needs, of.file.file(), None));
        self.window.grow();
    }

    fn add_to_run(
        &mut self,
        child: u32,
        asked_for: usize,
        need: &BlobNeed,
        file: Arc<BlobFile>,
        start: u64,
        length: u64,
    ) {
        let (end, number_of_file) = (start + length, need.file_number());
        if let Some(last) = self.runs[asked_for..].last_mut()
            && last.number_of_file == number_of_file
            && last.run.is_close_to(start, end, self.forward)
            && last.run.len() + length <= self.window.request_bytes()
        {
            last.run.extend(start, end);
            last.left += length;
            return;
        }
        self.runs.push(BlobRun { run: Run::new(start, end), child, file, number_of_file, left: length });
    }
}
