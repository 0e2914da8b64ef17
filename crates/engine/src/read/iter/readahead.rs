//! Readahead of a scan: the window's size and the size of requests.
//!
//! In: each block that a scan enters in order, and the time it waited for it. Out: the size of the
//! window, when to refill it, and where to cut requests. `block_feed` issues the requests.
//!
//! The window opens when a scan has read a few blocks in order, doubles with each refill up to the
//! table option `max_auto_readahead_size`, and beyond that while the scan waits noticeably for
//! blocks it had requested (the storage has more latency than the window covers), up to
//! [`MOST_BYTES`] (for a job, up to its `compaction_readahead_size`). A seek closes it.

use karst_storage::table::context::ReadCtx;
use std::time::Duration;

/// Widest window, in bytes: 4 MiB in flight cover 1 ms at 4 GB/s.
pub(crate) const MOST_BYTES: u64 = 4 << 20;

/// Request sizes in bytes, as far as the window allows. Below the lower bound the device and the
/// kernel spend more on the request than on its bytes; beyond the upper bound nothing is gained,
/// and the I/O channel has no buffers of its own that large.
const REQUEST_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(256 << 10);

/// First window of a job, in bytes. Small because its inputs are read concurrently, and blocks that
/// wait to be merged should fit in a near CPU cache.
const JOB_BYTES: u64 = 256 << 10;

/// Shortest wait that shows that the window is too small. Copies from the page cache take less, and
/// a wider window would not speed them up.
const NOTICEABLE: Duration = Duration::from_micros(50);

/// Readahead limits of a scan, from the column family's table options and the read options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadaheadLimits {
    /// First window, in bytes.
    pub(crate) initial_bytes: u64,
    /// Widest window without evidence of waiting, in bytes.
    pub(crate) max_bytes: u64,
    /// Widest window with evidence of waiting, in bytes, if above `max_bytes`.
    pub(crate) waiting_bytes: u64,
    /// Number of blocks read in order before the window opens.
    pub(crate) blocks_before: u32,
    /// The bytes read ahead are certainly needed, so the memory budget does not limit them.
    pub(crate) is_needed: bool,
}

impl ReadaheadLimits {
    /// Returns limits with one window of `bytes` from the first block on.
    pub(crate) fn fixed(bytes: u64) -> Self {
        ReadaheadLimits {
            initial_bytes: bytes,
            max_bytes: bytes,
            waiting_bytes: MOST_BYTES,
            blocks_before: 0,
            is_needed: false,
        }
    }

    /// Returns limits for a job's input: a window from the first block on, which grows up to
    /// `bytes` on evidence of waiting.
    pub(crate) fn for_job(bytes: u64) -> Self {
        let first = bytes.min(JOB_BYTES);
        ReadaheadLimits { waiting_bytes: bytes, is_needed: true, ..ReadaheadLimits::fixed(first) }
    }

    /// Returns limits that disable readahead.
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

/// Current readahead state of one scan.
#[derive(Clone, Debug)]
pub(super) struct Window {
    limits: ReadaheadLimits,
    bytes: u64,
    max_bytes: u64,
    in_order: u32,
    /// The memory budget had less room than the last refill wanted; waits are then no evidence
    /// about the window.
    is_held_back: bool,
    /// Time at which the scan began to wait for a block it had requested ahead.
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

    /// Closes the window, because the scan moves elsewhere.
    pub(super) fn close(&mut self) {
        *self = Window::new(self.limits);
    }

    /// Returns the window for the file that the scan continues in, without closing it. With
    /// `adaptive_readahead` it is as wide as before, otherwise it grows from the initial size.
    pub(super) fn in_next_file(&self, adaptive: bool) -> Self {
        let bytes = if adaptive { self.bytes } else { self.limits.initial_bytes };
        Window { bytes, waiting_since: None, ..*self }
    }

    /// Returns true if the window is open before there is evidence of a scan.
    pub(super) fn starts_at_once(&self) -> bool {
        self.limits.blocks_before == 0
    }

    /// Returns true if the scan reads ahead.
    pub(super) fn is_open(&self) -> bool {
        self.in_order > self.limits.blocks_before
    }

    /// Returns true if the last refill was smaller than wanted, for lack of memory.
    pub(super) fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    /// Records that the scan waits for a block it had requested ahead.
    pub(super) fn note_wait(&mut self, ctx: &ReadCtx<'_>) {
        if self.waiting_since.is_none() {
            self.waiting_since = Some(ctx.tables.shared.env.now());
        }
    }

    /// Records that the scan has entered the next block in order.
    pub(super) fn note_block(&mut self, ctx: &ReadCtx<'_>) {
        self.in_order = self.in_order.saturating_add(1);
        if let Some(since) = self.waiting_since.take()
            && ctx.tables.shared.env.now().saturating_sub(since) > NOTICEABLE
            && !self.is_held_back
        {
            self.max_bytes = (self.max_bytes * 2).min(self.limits.waiting_bytes.max(self.limits.max_bytes));
        }
    }

    /// Returns the bytes to request in addition to the `ahead_bytes` in flight; `None` while those
    /// are enough.
    pub(super) fn refill(&mut self, ctx: &ReadCtx<'_>, ahead_bytes: u64) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        let more = self.bytes.saturating_sub(ahead_bytes);
        // Not refilled sooner, because bytes requested together are read in one request.
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
        // One request even without room: reading block after block would save hardly any memory and
        // take far longer.
        (ahead_bytes == 0).then(|| more.min(request))
    }

    /// Returns true if a refill that wants `left` more bytes and whose last request has
    /// `last_request` bytes (0 without a request) is complete.
    pub(super) fn is_filled(&self, left: u64, last_request: u64) -> bool {
        let request = self.request_bytes();
        // Complete before the last byte, because the few blocks left would be a request of their
        // own. The next refill takes them.
        left == 0 || last_request >= request && left < request / 2
    }

    /// Returns the size at which requests are cut, in bytes.
    pub(super) fn request_bytes(&self) -> u64 {
        (self.bytes / 4).clamp(*REQUEST_BYTES.start(), *REQUEST_BYTES.end())
    }

    /// Widens the window after a refill was requested.
    pub(super) fn grow(&mut self) {
        if !self.is_held_back {
            self.bytes = (self.bytes * 2).min(self.max_bytes);
        }
    }
}
