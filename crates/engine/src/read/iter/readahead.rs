//! Reading ahead of a scan: how much, and in how large requests.
//!
//! In: each block that a scan enters in order, and how long it waited for it. Out: the size of the
//! window, when it wants to be filled again, and where to cut requests. `block_feed` does the
//! asking.
//!
//! The window opens when a scan has read a few blocks in order, doubles with each refill up to the
//! table option `max_auto_readahead_size`, and beyond that for as long as the scan waits noticeably
//! for blocks it had asked for (the storage has more latency than the window covers), up to
//! [`MOST_BYTES`] (for a job, up to its `compaction_readahead_size`). A seek closes it.

use karst_storage::table::context::ReadCtx;
use std::time::Duration;

/// The widest window, in bytes. Why: 4 MiB in flight cover 1 ms at 4 GB/s.
pub(crate) const MOST_BYTES: u64 = 4 << 20;

/// Requests are this large where the window allows, in bytes. Why: below the first a device and the
/// kernel spend more on the request than on its bytes; beyond the second nothing is gained, and the
/// I/O channel has no buffers of its own that large.
const REQUEST_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(256 << 10);

/// The first window of a job, in bytes. Why: its inputs are read side by side, and what waits to be
/// merged should lie in a near cache of the processor.
const JOB_BYTES: u64 = 256 << 10;

/// A wait longer than this is evidence that the window is too small. Why: what only has to be
/// copied from the page cache takes less, and a wider window would not make it faster.
const NOTICEABLE: Duration = Duration::from_micros(50);

/// How a column family's scans read ahead: its table options and the read's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadaheadLimits {
    /// The first window, in bytes.
    pub(crate) initial_bytes: u64,
    /// The widest window that needs no evidence of waiting, in bytes.
    pub(crate) max_bytes: u64,
    /// The widest window, in bytes, if that is more.
    pub(crate) waiting_bytes: u64,
    /// Blocks read in order before the window opens.
    pub(crate) blocks_before: u32,
    /// Whether what is read ahead is needed for certain, so that the budget of memory does not hold
    /// it back.
    pub(crate) is_needed: bool,
}

impl ReadaheadLimits {
    /// One window of this size from the first block on.
    pub(crate) fn fixed(bytes: u64) -> Self {
        ReadaheadLimits {
            initial_bytes: bytes,
            max_bytes: bytes,
            waiting_bytes: MOST_BYTES,
            blocks_before: 0,
            is_needed: false,
        }
    }

    /// For the input of a job: a window from the first block on, which grows up to this size on
    /// evidence of waiting.
    pub(crate) fn for_job(bytes: u64) -> Self {
        let first = bytes.min(JOB_BYTES);
        ReadaheadLimits { waiting_bytes: bytes, is_needed: true, ..ReadaheadLimits::fixed(first) }
    }

    /// No reading ahead.
    pub(crate) fn off() -> Self {
        ReadaheadLimits {
            initial_bytes: 0,
            max_bytes: 0,
            waiting_bytes: 0,
            blocks_before: u32::MAX,
            is_needed: false,
        }
    }
}

/// How far one scan reads ahead now.
#[derive(Clone, Debug)]
pub(super) struct Window {
    limits: ReadaheadLimits,
    bytes: u64,
    max_bytes: u64,
    in_order: u32,
    /// The budget of memory had less room than was wanted. Then waits tell nothing about the
    /// window.
    is_held_back: bool,
    /// Since when the scan waits for something it had asked for ahead.
    waiting_since: Option<Duration>,
}

impl Window {
    pub(super) fn new(limits: ReadaheadLimits) -> Self {
        Window {
            limits,
            bytes: limits.initial_bytes,
            max_bytes: limits.max_bytes,
            in_order: 0,
            is_held_back: false,
            waiting_since: None,
        }
    }

    /// The scan goes elsewhere: start small again.
    pub(super) fn close(&mut self) {
        *self = Window::new(self.limits);
    }

    /// The window for the file that the scan goes on in. It is known to be a scan there; with
    /// `adaptive_readahead` the window is as wide as it was, else it grows again from the start.
    pub(super) fn in_next_file(&self, adaptive: bool) -> Self {
        let bytes = if adaptive { self.bytes } else { self.limits.initial_bytes };
        Window { bytes, waiting_since: None, ..*self }
    }

    /// Whether it is open before there is evidence of a scan.
    pub(super) fn starts_at_once(&self) -> bool {
        self.limits.blocks_before == 0
    }

    /// Whether anything is asked for ahead.
    pub(super) fn is_open(&self) -> bool {
        self.in_order > self.limits.blocks_before
    }

    /// Whether the last refill was less than was wanted, for want of room.
    pub(super) fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    /// The scan has to wait for something it had asked for.
    pub(super) fn note_wait(&mut self, ctx: &ReadCtx<'_>) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(ctx.tables.shared.env.now());
        }
    }

    /// The scan has entered the next block in order.
    pub(super) fn note_block(&mut self, ctx: &ReadCtx<'_>) {
        self.in_order = self.in_order.saturating_add(1);
        if let Some(since) = self.waiting_since.take()
            && ctx.tables.shared.env.now().saturating_sub(since) > NOTICEABLE
            && !self.is_held_back
        {
            self.max_bytes = (self.max_bytes * 2).min(self.limits.waiting_bytes.max(self.limits.max_bytes));
        }
    }

    /// How many bytes more to ask for while `ahead_bytes` are asked for; `None` while that is
    /// enough.
    pub(super) fn refill(&mut self, ctx: &ReadCtx<'_>, ahead_bytes: u64) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        let more = self.bytes.saturating_sub(ahead_bytes);
        // Why not sooner: what is asked for together is read in one request.
        if more < self.request_bytes().min(self.bytes.div_ceil(2)) {
            return None;
        }
        let room = ctx.tables.shared.room_ahead_bytes();
        self.is_held_back = more > room && !self.limits.is_needed;
        if !self.is_held_back {
            return Some(more);
        }
        let request = *REQUEST_BYTES.start();
        if room >= request {
            return Some(room);
        }
        // Why one request all the same, when there is none: block after block would take hardly
        // less memory, and far longer.
        (ahead_bytes == 0).then(|| more.min(request))
    }

    /// Whether a refill is done that wants `left` bytes more and whose last request has
    /// `last_request` bytes (0: it has none).
    pub(super) fn is_filled(&self, left: u64, last_request: u64) -> bool {
        let request = self.request_bytes();
        // Why before the last byte: the few blocks that are left would be a request of their own.
        // The next refill takes them.
        left == 0 || last_request >= request && left < request / 2
    }

    /// Where requests are cut, in bytes.
    pub(super) fn request_bytes(&self) -> u64 {
        (self.bytes / 4).clamp(*REQUEST_BYTES.start(), *REQUEST_BYTES.end())
    }

    /// A refill has been asked for.
    pub(super) fn grow(&mut self) {
        if !self.is_held_back {
            self.bytes = (self.bytes * 2).min(self.max_bytes);
        }
    }
}
