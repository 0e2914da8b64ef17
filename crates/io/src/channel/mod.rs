//! The channel: one thread's unit of I/O. Its op slots, its buffers, its timer, and the transport below.
//!
//! In: requests of futures polled on this thread, or handed over by the driver. Out: outcomes, and wakers called.
//! A request takes a slot; while the transport is full, the slot waits its turn in the channel. So it is the operation
//! that queues, never the future: there is no waiter to lose when a future is dropped, and nobody to wake
//! when room appears (docs/decisions/io-slots.md).
//!
//! Invariants:
//! - One thread owns a channel. It is borrowed only inside this file, and wakers, which may run anything, are
//!   called after the borrow has ended.
//! - At most `depth` ops are with the transport, whose completion queue is twice as long.
//! - Identical reads in flight share a slot, each waiter counted. The slot lives until the last has its outcome or
//!   is gone *and* the buffer is back.

pub(crate) mod outbox;
pub(crate) mod slot;

use crate::buffer::{BufferPool, ReadBuf};
use crate::error::Failure;
use crate::file::Backend;
use crate::remote::RemoteOp;
use crate::stats::Counters;
use crate::transport::{Alarm, Completion, Op, Transport};
use outbox::Outbox;
use slot::{Held, Outcome, Phase, ReadKey, ReadWork, Request, Slot, Ticket, Waiter, Work};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A read interrupted more often than this in a row fails.
const INTERRUPTIONS_AT_MOST: u32 = 1000;

pub(crate) struct ChannelOptions {
    /// Ops with the transport at a time.
    pub(crate) depth: usize,
    /// Hand queued ops to the transport as soon as there are so many.
    pub(crate) submit_batch: usize,
    /// Divisor of the number of pooled buffers.
    pub(crate) pool_share: u32,
    /// Register buffers with the kernel for direct reads.
    pub(crate) register: bool,
}

pub(crate) struct Channel {
    outbox: Arc<Outbox>,
    alarm: Arc<Alarm>,
    fork_generation: u64,
    core: RefCell<Core>,
    /// Ops given to the transport since it was last told to submit.
    queued: Cell<usize>,
}

struct Core {
    /// Invariant: `Some` until the channel is dropped.
    transport: Option<Box<dyn Transport>>,
    pool: BufferPool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    joinable: HashMap<ReadKey, u32, BuildHasherDefault<KeyHasher>>,
    backlog: VecDeque<u32>,
    timer: BinaryHeap<Reverse<Due>>,
    completions: Vec<Completion>,
    wakers: Vec<Waker>,
    counters: Arc<Counters>,
    depth: usize,
    submit_batch: usize,
    register: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    slot: u32,
    generation: u32,
}

/// Mixes the three numbers of a [`ReadKey`]; they are small and not chosen by an adversary.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

impl Channel {
    pub(crate) fn new(
        transport: Box<dyn Transport>,
        counters: Arc<Counters>,
        options: &ChannelOptions,
    ) -> Self {
        let alarm = transport.alarm().clone();
        let core = Core {
            transport: Some(transport),
            pool: BufferPool::new(options.pool_share, counters.clone()),
            slots: Vec::new(),
            free: Vec::new(),
            joinable: HashMap::default(),
            backlog: VecDeque::new(),
            timer: BinaryHeap::new(),
            completions: Vec::new(),
            wakers: Vec::new(),
            counters,
            depth: options.depth.max(1),
            submit_batch: options.submit_batch.max(1),
            register: options.register,
        };
        Self {
            outbox: Arc::new(Outbox::new()),
            alarm,
            fork_generation: crate::posix::fork_generation(),
            core: RefCell::new(core),
            queued: Cell::new(0),
        }
    }

    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Whether it was made in a process that this one was forked from.
    pub(crate) fn is_inherited(&self) -> bool {
        self.fork_generation != crate::posix::fork_generation()
    }

    pub(crate) fn transport_name(&self) -> &'static str {
        self.core.borrow().transport.as_ref().map_or("", |t| t.name())
    }

    /// Begin an operation for a future polled on this thread, or join one in flight.
    pub(crate) fn start(&self, request: Request, waker: Waker) -> Ticket {
        self.begin(request, Waiter::Local(Some(waker)))
    }

    /// Begin an operation for a future polled elsewhere.
    pub(crate) fn start_remote(&self, op: Arc<RemoteOp>) {
        if let Some(request) = op.take_request() {
            self.begin(request, Waiter::Remote(op));
            self.wake_all();
        }
    }

    fn begin(&self, request: Request, waiter: Waiter) -> Ticket {
        let mut core = self.core.borrow_mut();
        let ticket = core.begin(request, waiter);
        core.issue_backlog(&self.queued);
        ticket
    }

    /// Fetch the outcome, or have the future's waker called when there is one.
    pub(crate) fn poll_ticket(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut old = None;
        let mut core = self.core.borrow_mut();
        let slot = core.claimed(ticket);
        if slot.phase != Phase::Done {
            let Waiter::Local(waker) = &mut slot.waiters[ticket.waiter as usize] else {
                unreachable!("a future's waiter is local until it is gone");
            };
            if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                old = waker.replace(cx.waker().clone());
            }
            drop(core);
            drop(old);
            return Poll::Pending;
        }
        Poll::Ready(core.fetch(ticket))
    }

    /// The outcome, if it is there; for a future polled while this channel is not the current one.
    pub(crate) fn fetch_if_done(&self, ticket: Ticket) -> Option<Outcome> {
        let mut core = self.core.borrow_mut();
        (core.claimed(ticket).phase == Phase::Done).then(|| core.fetch(ticket))
    }

    /// A future of this thread is gone.
    pub(crate) fn abandon(&self, ticket: Ticket) {
        let gone = self.core.borrow_mut().abandon(ticket);
        drop(gone); // wakers and outcomes may run anything when they are dropped
    }

    /// Hand what is queued to the transport.
    pub(crate) fn submit(&self) {
        if self.queued.get() > 0 {
            self.core.borrow_mut().submit(&self.queued);
        }
    }

    /// Take in what has completed and wake who waited. Never blocks.
    pub(crate) fn poll(&self) {
        self.take_in(|transport, done| transport.poll(done));
    }

    /// Submit, then block until something completes, the alarm rings, or `deadline`.
    pub(crate) fn wait(&self, deadline: Option<Instant>) {
        let next = self.core.borrow().timer.peek().map(|Reverse(due)| due.at);
        let until = match (deadline, next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let timeout = until.map(|at| at.saturating_duration_since(Instant::now()));
        if self.queued.replace(0) > 0 {
            Counters::bump(&self.core.borrow().counters.submits, 1);
        }
        self.take_in(|transport, done| match timeout {
            Some(Duration::ZERO) => {
                transport.submit();
                transport.poll(done);
            }
            _ => transport.wait(timeout, done),
        });
    }

    fn take_in(&self, receive: impl FnOnce(&mut dyn Transport, &mut Vec<Completion>)) {
        let abandoned = self.outbox.take();
        if !abandoned.is_empty() {
            let gone: Vec<_> = abandoned.into_iter().map(|t| self.core.borrow_mut().abandon(t)).collect();
            drop(gone);
        }
        {
            let mut core = self.core.borrow_mut();
            let mut done = std::mem::take(&mut core.completions);
            if let Some(transport) = &mut core.transport {
                receive(&mut **transport, &mut done);
            }
            for completion in done.drain(..) {
                core.landed(completion);
            }
            core.completions = done;
            core.fire_timer();
            core.issue_backlog(&self.queued);
            core.note_in_flight();
        }
        self.wake_all();
    }

    fn wake_all(&self) {
        let mut wakers = std::mem::take(&mut self.core.borrow_mut().wakers);
        wakers.drain(..).for_each(Waker::wake);
        let mut core = self.core.borrow_mut();
        if core.wakers.is_empty() {
            core.wakers = wakers; // keep its capacity
        }
    }
}

/// What an abandoned waiter leaves, to be dropped outside the borrow.
type Gone = (Option<Waiter>, Option<Outcome>);

impl Core {
    fn begin(&mut self, request: Request, waiter: Waiter) -> Ticket {
        match request {
            Request::Sleep(span) => {
                let index = self.allocate(Work::Sleep);
                let ticket = self.join(index, waiter);
                let at = Instant::now() + span;
                self.slots[index as usize].phase = Phase::Held;
                self.hold_until(index, at);
                ticket
            }
            Request::Read { file, offset, len } => {
                let key = ReadKey { file: file.id(), offset, len };
                if let Some(index) = self.joinable.get(&key).copied() {
                    Counters::bump(&self.counters.joined, 1);
                    return self.join(index, waiter);
                }
                Counters::bump(&self.counters.reads, 1);
                match ReadWork::new(file, offset, len) {
                    Ok(work) if len > 0 => {
                        let index = self.allocate(Work::Read(work));
                        self.joinable.insert(key, index);
                        let ticket = self.join(index, waiter);
                        self.slots[index as usize].phase = Phase::Waiting;
                        self.backlog.push_back(index);
                        ticket
                    }
                    Ok(_) => self.complete_at_once(waiter, Ok(ReadBuf::empty())),
                    Err(failure) => self.complete_at_once(waiter, Err(failure)),
                }
            }
        }
    }

    fn complete_at_once(&mut self, waiter: Waiter, outcome: Outcome) -> Ticket {
        let index = self.allocate(Work::None);
        let ticket = self.join(index, waiter);
        self.complete(index, outcome);
        ticket
    }

    fn allocate(&mut self, work: Work) -> u32 {
        Counters::shift(&self.counters.slots_in_use, 1);
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::new());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.phase == Phase::Free && slot.interested == 0 && slot.outcome.is_none());
        slot.work = work;
        index
    }

    fn join(&mut self, index: u32, waiter: Waiter) -> Ticket {
        let slot = &mut self.slots[index as usize];
        slot.waiters.push(waiter);
        slot.interested += 1;
        Ticket { slot: index, generation: slot.generation, waiter: slot.waiters.len() as u32 - 1 }
    }

    /// The slot a ticket still has a claim on.
    fn claimed(&mut self, ticket: Ticket) -> &mut Slot {
        let slot = &mut self.slots[ticket.slot as usize];
        assert_eq!(slot.generation, ticket.generation, "a slot was freed under its waiter");
        slot
    }

    fn fetch(&mut self, ticket: Ticket) -> Outcome {
        let slot = self.claimed(ticket);
        slot.waiters[ticket.waiter as usize] = Waiter::Gone;
        slot.interested -= 1;
        let outcome = if slot.interested == 0 { slot.outcome.take() } else { slot.outcome.clone() };
        if slot.interested == 0 {
            self.release(ticket.slot);
        }
        outcome.unwrap_or_else(|| unreachable!("a done slot holds its outcome"))
    }

    fn abandon(&mut self, ticket: Ticket) -> Gone {
        let slot = self.claimed(ticket);
        let waiter = std::mem::replace(&mut slot.waiters[ticket.waiter as usize], Waiter::Gone);
        slot.interested -= 1;
        let mut outcome = None;
        if slot.interested == 0 {
            outcome = slot.outcome.take();
            match slot.phase {
                Phase::Done => self.release(ticket.slot),
                Phase::Waiting | Phase::Flying | Phase::Held => self.forsake(ticket.slot),
                Phase::Free => unreachable!("a free slot has no waiters"),
            }
        }
        (Some(waiter), outcome)
    }

    /// Nobody waits for it any more. What the transport holds stays until it comes back.
    fn forsake(&mut self, index: u32) {
        Counters::bump(&self.counters.abandoned, 1);
        let phase = self.slots[index as usize].phase;
        if phase != Phase::Flying {
            // A waiting or held slot can go at once; its place in the backlog or timer is skipped by generation
            // and phase.
            self.forget_key(index);
            self.release(index);
        }
    }

    fn forget_key(&mut self, index: u32) {
        if let Work::Read(work) = &self.slots[index as usize].work {
            self.joinable.remove(&work.key);
        }
    }

    fn release(&mut self, index: u32) {
        Counters::shift(&self.counters.slots_in_use, -1);
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.phase = Phase::Free;
        slot.work = Work::None;
        slot.outcome = None;
        slot.waiters.clear();
        slot.interested = 0;
        self.free.push(index);
    }

    /// Store the outcome for local waiters, send it to remote ones.
    fn complete(&mut self, index: u32, outcome: Outcome) {
        match &outcome {
            Ok(bytes) => Counters::bump(&self.counters.bytes, bytes.len() as u64),
            Err(_) => Counters::bump(&self.counters.errors, 1),
        }
        self.forget_key(index);
        let slot = &mut self.slots[index as usize];
        slot.phase = Phase::Done;
        slot.work = Work::None;
        for waiter in &mut slot.waiters {
            match waiter {
                Waiter::Local(waker) => self.wakers.extend(waker.take()),
                Waiter::Remote(op) => {
                    self.wakers.extend(op.complete(outcome.clone()));
                    *waiter = Waiter::Gone;
                    slot.interested -= 1;
                }
                Waiter::Gone => {}
            }
        }
        slot.outcome = Some(outcome);
        if slot.interested == 0 {
            self.release(index);
        }
    }

    fn hold_until(&mut self, index: u32, at: Instant) {
        let generation = self.slots[index as usize].generation;
        self.timer.push(Reverse(Due { at, slot: index, generation }));
    }

    fn issue_backlog(&mut self, queued: &Cell<usize>) {
        while let Some(index) = self.backlog.pop_front() {
            if self.slots[index as usize].phase != Phase::Waiting {
                continue; // abandoned meanwhile
            }
            if !self.issue(index, queued) {
                self.backlog.push_front(index);
                return;
            }
            if queued.get() >= self.submit_batch {
                self.submit(queued);
            }
        }
    }

    /// Start the next step of a read. False: the transport is full.
    fn issue(&mut self, index: u32, queued: &Cell<usize>) -> bool {
        let Some(transport) = &mut self.transport else { return false };
        let slot = &mut self.slots[index as usize];
        let Work::Read(work) = &mut slot.work else { unreachable!("only reads are issued") };
        let is_soft = matches!(work.file.backend(), Backend::Soft(_));
        if !is_soft && transport.in_flight() >= self.depth {
            return false;
        }
        let offset = work.window_start + work.filled as u64;
        let mut len = work.window_len - work.filled;
        let disturbance = work.file.disturb(offset, len);
        let disturbed = disturbance.is_some();
        work.disturbance = disturbance.unwrap_or_default();
        if let Some(most) = work.disturbance.shorten_to {
            len = len.min(most.max(1).next_multiple_of(work.file.alignment().max(1) as usize));
        }
        let direct = work.file.alignment() > 1;
        if self.register && direct {
            self.register = false;
            let regions = self.pool.registrable();
            transport.register(&regions);
        }
        let buffer = work.buffer.take().unwrap_or_else(|| self.pool.take(work.window_len));
        if is_soft || disturbed && work.disturbance.fail.is_some() {
            work.buffer = Some(buffer);
            work.held = Held::Step(len);
            slot.phase = Phase::Held;
            let at = Instant::now() + work.disturbance.delay.unwrap_or_default();
            self.hold_until(index, at);
            return true;
        }
        let at = work.disturbance.delay.map(|delay| Instant::now() + delay);
        work.not_before = at;
        slot.phase = Phase::Flying;
        transport.queue(Op {
            token: index,
            file: work.file.clone(),
            buffer,
            start: work.filled,
            len,
            offset,
        });
        queued.set(queued.get() + 1);
        self.note_in_flight();
        true
    }

    fn note_in_flight(&self) {
        let count = self.transport.as_ref().map_or(0, |t| t.in_flight());
        self.counters.in_flight.store(count as i64, Ordering::Relaxed);
    }

    fn submit(&mut self, queued: &Cell<usize>) {
        queued.set(0);
        if self.transport.as_mut().is_some_and(|t| t.submit()) {
            Counters::bump(&self.counters.submits, 1);
        }
    }

    /// An op came back from the transport.
    fn landed(&mut self, Completion { op, result }: Completion) {
        let index = op.token;
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.phase, Phase::Flying, "a completion for a slot that flies not");
        let Work::Read(work) = &mut slot.work else { unreachable!("only reads fly") };
        work.buffer = Some(op.buffer);
        if slot.interested == 0 {
            self.forget_key(index);
            return self.release(index);
        }
        match work.not_before {
            Some(at) if at > Instant::now() => {
                work.held = Held::Landed(result);
                slot.phase = Phase::Held;
                self.hold_until(index, at);
            }
            _ => self.stepped(index, result),
        }
    }

    fn fire_timer(&mut self) {
        if self.timer.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(Reverse(due)) = self.timer.peek() {
            if due.at > now {
                return;
            }
            let Some(Reverse(due)) = self.timer.pop() else { return };
            let slot = &mut self.slots[due.slot as usize];
            if slot.generation != due.generation || slot.phase != Phase::Held {
                continue; // abandoned meanwhile
            }
            match &mut slot.work {
                Work::Sleep => self.complete(due.slot, Ok(ReadBuf::empty())),
                Work::Read(work) => {
                    let result = work.end_hold();
                    self.stepped(due.slot, result);
                }
                Work::None => unreachable!("a held slot has work"),
            }
        }
    }

    /// A step of a read ended: go on, or complete.
    fn stepped(&mut self, index: u32, result: io::Result<usize>) {
        let slot = &mut self.slots[index as usize];
        let Work::Read(work) = &mut slot.work else { unreachable!("only reads have steps") };
        match result {
            Ok(step) => {
                if let (Some(bit), Some(buffer)) = (work.disturbance.flip_bit, &mut work.buffer) {
                    buffer.flip_bit(work.filled, step, bit);
                }
                work.interruptions = 0;
                if work.is_complete_after(step) {
                    let bytes = work.finish();
                    return self.complete(index, Ok(bytes));
                }
            }
            Err(e) if is_passing(&e) && work.interruptions < INTERRUPTIONS_AT_MOST => work.interruptions += 1,
            Err(e) => return self.complete(index, Err(Failure::from(e))),
        }
        Counters::bump(&self.counters.continued, 1);
        slot.phase = Phase::Waiting;
        self.backlog.push_front(index);
    }
}

fn is_passing(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

impl Drop for Channel {
    fn drop(&mut self) {
        let core = self.core.get_mut();
        let Some(transport) = core.transport.take() else { return };
        if self.fork_generation != crate::posix::fork_generation() {
            transport.abandon_after_fork();
            return;
        }
        drop(transport); // waits for what is in flight
        core.note_in_flight();
        let used = core.slots.iter().filter(|s| s.phase != Phase::Free).count() as i64;
        Counters::shift(&core.counters.slots_in_use, -used);
        for slot in &mut core.slots {
            for waiter in &mut slot.waiters {
                if let Waiter::Remote(op) = waiter {
                    core.wakers.extend(op.fail("the I/O driver has ended"));
                }
            }
        }
        core.wakers.drain(..).for_each(Waker::wake);
    }
}
