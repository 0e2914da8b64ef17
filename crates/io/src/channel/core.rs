//! The channel's plain state machine: slots, backlog, timer, and their transitions on each event.
//!
//! Called only by [`super::Channel`], which holds it in a `RefCell`. Nothing here calls or drops a
//! waker: wakers to be called are collected in `wakers`, wakers to be dropped are returned.

use super::ChannelOptions;
use super::outbox::Outbox;
use super::sharing::SharedReads;
use super::slot::{Answer, Held, Outcome, Phase, ReadKey, ReadWork, Request, Slot, Ticket, Waiter, Work};
use crate::buffer::{BufferPool, ReadBuf};
use crate::env::Clock;
use crate::error::Failure;
use crate::file::Backend;
use crate::stats::Counters;
use crate::sync::counting::Ordering;
use crate::transport::{Completion, Op, OpenOp, SocketAction, SocketOp, Transport, WriteOp};
use socket2::Socket;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::ffi::CString;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// Maximum number of interruptions in a row before a read or a write fails.
pub(super) const INTERRUPTIONS_AT_MOST: u32 = 1000;
/// Maximum length of a sleep, because clocks cannot count much further.
const LONGEST_SLEEP: Duration = Duration::from_secs(100 * 365 * 86_400);

pub(super) struct Core {
    /// Invariant: `Some` until the channel is dropped.
    pub(super) transport: Option<Box<dyn Transport>>,
    pool: BufferPool,
    pub(super) slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) joinable: HashMap<ReadKey, u32, BuildHasherDefault<KeyHasher>>,
    pub(super) backlog: VecDeque<u32>,
    timer: BinaryHeap<Reverse<Due>>,
    pub(super) completions: Vec<Completion>,
    pub(super) wakers: Vec<Waker>,
    pub(super) counters: Arc<Counters>,
    pub(super) depth: usize,
    submit_batch: usize,
    register: bool,
    /// Requests to cancel that were queued since the channel last looked.
    pub(super) cancels: usize,
    /// Clock of the timer: the operating system's, or a simulation's.
    clock: Arc<dyn Clock>,
    /// Inbox for messages of other channels and threads.
    pub(super) outbox: Arc<Outbox>,
    /// Reads in flight on all channels of the environment.
    pub(super) flights: Arc<SharedReads>,
    /// Number of reads that other channels can join.
    pub(super) open: usize,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Duration,
    slot: u32,
    generation: u32,
}

/// Uses a [`ReadKey`]'s own hash unchanged.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hash for ReadKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(ReadKey::hash(self));
    }
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are hashed as one number");
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// The remains of an abandoned waiter, to be dropped outside of the borrow.
pub(super) type Gone = (Option<Waiter>, Option<Outcome>);

impl Core {
    pub(super) fn new(
        transport: Box<dyn Transport>,
        outbox: Arc<Outbox>,
        counters: Arc<Counters>,
        options: &ChannelOptions,
    ) -> Self {
        Self {
            transport: Some(transport),
            pool: BufferPool::new(options.pool_share, options.slabs.clone(), counters.clone()),
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
            cancels: 0,
            clock: options.clock.clone(),
            outbox,
            flights: options.flights.clone(),
            open: 0,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Returns the time at which the next held op is due.
    pub(super) fn next_due(&mut self) -> Option<Duration> {
        loop {
            let Reverse(due) = self.timer.peek()?;
            let slot = &self.slots[due.slot as usize];
            if slot.generation == due.generation && matches!(slot.phase, Phase::Held | Phase::Joined) {
                return Some(due.at);
            }
            // Removed, because the thread need not wake up for an op that has ended meanwhile.
            self.timer.pop();
        }
    }

    pub(super) fn begin(&mut self, request: Request, waiter: Waiter) -> Ticket {
        match request {
            Request::Sleep(span) => {
                let index = self.allocate(Work::Sleep);
                let ticket = self.join(index, waiter);
                let at = self.clock.now() + span.min(LONGEST_SLEEP);
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
                match ReadWork::new(file, offset, len) {
                    Ok(work) if len > 0 => {
                        let index = self.allocate(Work::Read(work));
                        self.joinable.insert(key, index);
                        let ticket = self.join(index, waiter);
                        self.read_or_join(index);
                        ticket
                    }
                    Ok(_) => self.complete_at_once(waiter, Ok(Answer::Bytes(ReadBuf::empty()))),
                    Err(failure) => self.complete_at_once(waiter, Err(failure)),
                }
            }
            Request::Write { file, action } => {
                self.begin_write(WriteOp { token: 0, file, action, at_most: usize::MAX }, waiter)
            }
            Request::Open { path, options } => match CString::new(path.into_os_string().into_vec()) {
                Ok(path) => {
                    let index = self.allocate(Work::None);
                    let op = OpenOp { token: index, path, options };
                    self.slots[index as usize].work = Work::Open(Some(op));
                    self.slots[index as usize].phase = Phase::Waiting;
                    self.backlog.push_back(index);
                    self.join(index, waiter)
                }
                Err(_) => {
                    let failure = Failure::new(io::ErrorKind::InvalidInput, "the path contains a zero byte");
                    self.complete_at_once(waiter, Err(failure))
                }
            },
        }
    }

    pub(super) fn begin_socket(
        &mut self,
        socket: Arc<Socket>,
        action: SocketAction,
        waiter: Waiter,
    ) -> Ticket {
        let index = self.allocate(Work::Socket(Some(SocketOp { token: 0, socket, action })));
        // In front, because the transport has room for it even if reads wait.
        self.issue_next(index);
        self.join(index, waiter)
    }

    /// Queues a slot in front of those that wait.
    pub(super) fn issue_next(&mut self, index: u32) {
        self.slots[index as usize].phase = Phase::Waiting;
        self.backlog.push_front(index);
    }

    fn complete_at_once(&mut self, waiter: Waiter, outcome: Outcome) -> Ticket {
        let index = self.allocate(Work::None);
        let ticket = self.join(index, waiter);
        self.complete(index, outcome);
        ticket
    }

    pub(super) fn allocate(&mut self, work: Work) -> u32 {
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

    pub(super) fn join(&mut self, index: u32, waiter: Waiter) -> Ticket {
        let slot = &mut self.slots[index as usize];
        slot.waiters.push(waiter);
        slot.interested += 1;
        Ticket { slot: index, generation: slot.generation, waiter: slot.waiters.len() as u32 - 1 }
    }

    /// Returns the slot on which a ticket still has a claim.
    pub(super) fn claimed(&mut self, ticket: Ticket) -> &mut Slot {
        let slot = &mut self.slots[ticket.slot as usize];
        assert_eq!(slot.generation, ticket.generation, "a slot was freed under its waiter");
        slot
    }

    pub(super) fn fetch(&mut self, ticket: Ticket) -> Outcome {
        let slot = self.claimed(ticket);
        slot.waiters[ticket.waiter as usize] = Waiter::Gone;
        slot.interested -= 1;
        let outcome = if slot.interested == 0 { slot.outcome.take() } else { slot.outcome.clone() };
        if slot.interested == 0 {
            self.release(ticket.slot);
        }
        outcome.unwrap_or_else(|| unreachable!("a done slot holds its outcome"))
    }

    pub(super) fn abandon(&mut self, ticket: Ticket) -> Gone {
        let slot = self.claimed(ticket);
        let waiter = std::mem::replace(&mut slot.waiters[ticket.waiter as usize], Waiter::Gone);
        slot.interested -= 1;
        let mut outcome = None;
        if slot.interested == 0 {
            outcome = slot.outcome.take();
            match slot.phase {
                Phase::Done => self.release(ticket.slot),
                Phase::Waiting | Phase::Flying | Phase::Held | Phase::Joined => self.forsake(ticket.slot),
                Phase::Free => unreachable!("a free slot has no waiters"),
            }
        }
        (Some(waiter), outcome)
    }

    /// Called when the last waiter of this channel is gone. A slot with the transport stays until
    /// its op comes back.
    fn forsake(&mut self, index: u32) {
        Counters::bump(&self.counters.abandoned, 1);
        self.keep_private(index);
        let slot = &self.slots[index as usize];
        let phase = slot.phase;
        if phase == Phase::Flying && matches!(slot.work, Work::Socket(_)) {
            // It might stay in flight for ever.
            self.transport.iter_mut().for_each(|transport| transport.cancel_socket(index));
            self.cancels += 1;
        }
        if phase != Phase::Flying {
            // A waiting or held slot can be freed at once; its entry in the backlog or timer is
            // skipped by generation and phase.
            self.forget_key(index);
            self.release(index);
        }
    }

    fn forget_key(&mut self, index: u32) {
        if let Work::Read(work) = &self.slots[index as usize].work {
            self.joinable.remove(&work.key);
        }
    }

    pub(super) fn release(&mut self, index: u32) {
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

    /// Stores the outcome for local waiters, sends it to remote ones and to other channels.
    pub(super) fn complete(&mut self, index: u32, outcome: Outcome) {
        self.tell_joiners(index, &outcome);
        self.settle(index, outcome);
    }

    /// Stores the outcome for local waiters, sends it to remote ones.
    pub(super) fn settle(&mut self, index: u32, outcome: Outcome) {
        match &outcome {
            Ok(Answer::Bytes(bytes)) => Counters::bump(&self.counters.bytes, bytes.len() as u64),
            Ok(_) => {}
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

    pub(super) fn hold_until(&mut self, index: u32, at: Duration) {
        if self.timer.len() > 64 + 2 * self.slots.len() {
            // Abandoned sleeps would otherwise stay until they are due.
            let slots = &self.slots;
            self.timer.retain(|Reverse(due)| slots[due.slot as usize].generation == due.generation);
        }
        let generation = self.slots[index as usize].generation;
        self.timer.push(Reverse(Due { at, slot: index, generation }));
    }

    pub(super) fn issue_backlog(&mut self, queued: &Cell<usize>) {
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

    /// Starts an open, or the next step of a read or write. Returns false if the transport is full.
    fn issue(&mut self, index: u32, queued: &Cell<usize>) -> bool {
        let Some(transport) = &mut self.transport else { return false };
        let slot = &mut self.slots[index as usize];
        if let Work::Open(op) = &mut slot.work {
            if transport.in_flight() >= self.depth {
                return false;
            }
            let Some(op) = op.take() else { unreachable!("a waiting open has not flown") };
            slot.phase = Phase::Flying;
            transport.queue_open(op);
            queued.set(queued.get() + 1);
            self.note_in_flight();
            return true;
        }
        if let Work::Socket(op) = &mut slot.work {
            let Some(op) = op.take() else { unreachable!("a waiting operation has not flown") };
            slot.phase = Phase::Flying;
            transport.queue_socket(SocketOp { token: index, ..op });
            queued.set(queued.get() + 1);
            return true;
        }
        if matches!(slot.work, Work::Write(_)) {
            return self.issue_write(index, queued);
        }
        let Work::Read(work) = &mut slot.work else { unreachable!("only these are issued") };
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
            let at = self.clock.now() + work.disturbance.delay.unwrap_or_default();
            self.hold_until(index, at);
            return true;
        }
        let at = work.disturbance.delay.map(|delay| self.clock.now() + delay);
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

    /// Returns the number of ops with the transport, including queued ones.
    pub(super) fn in_flight(&self) -> usize {
        self.transport.as_ref().map_or(0, |t| t.in_flight())
    }

    pub(super) fn note_in_flight(&self) {
        self.counters.in_flight.store(self.in_flight() as i64, Ordering::Relaxed);
    }

    pub(super) fn submit(&mut self, queued: &Cell<usize>) {
        queued.set(0);
        if self.transport.as_mut().is_some_and(|t| t.submit()) {
            Counters::bump(&self.counters.submits, 1);
        }
    }

    /// Handles a completion of the transport.
    pub(super) fn landed(&mut self, completion: Completion) {
        match completion {
            Completion::Read { op, result } => self.read_landed(op, result),
            Completion::Opened { token, result } => {
                let slot = &self.slots[token as usize];
                assert!(slot.phase == Phase::Flying && matches!(slot.work, Work::Open(_)));
                if slot.interested == 0 {
                    return self.release(token); // drops the result, which closes the file
                }
                let file = result.map(|file| Answer::File(Arc::new(file)));
                self.complete(token, file.map_err(Failure::from));
            }
            Completion::Written { op, result } => self.write_landed(op, result),
            Completion::Socket { op, result } => self.socket_landed(op, result),
        }
    }

    fn socket_landed(&mut self, mut op: SocketOp, result: io::Result<usize>) {
        let index = op.token;
        let slot = &mut self.slots[index as usize];
        assert!(slot.phase == Phase::Flying && matches!(slot.work, Work::Socket(None)));
        if slot.interested == 0 {
            return self.release(index); // and a connection that was accepted is closed
        }
        let sent = match (result, &mut op.action) {
            (Ok(sent), SocketAction::Send { data, start }) => {
                *start += sent;
                *start == data.len()
            }
            (Ok(_), _) => true,
            // A connection that was interrupted goes on being made.
            (Err(e), action) if is_passing(&e) && !matches!(action, SocketAction::Connect(_)) => false,
            (Err(e), SocketAction::Receive(buffer)) => {
                Counters::bump(&self.counters.errors, 1);
                let answer = Answer::Received(std::mem::take(buffer), Some(Failure::from(e)));
                return self.complete(index, Ok(answer));
            }
            (Err(e), _) => return self.complete(index, Err(Failure::from(e))),
        };
        if !sent {
            Counters::bump(&self.counters.continued, 1);
            slot.work = Work::Socket(Some(op));
            return self.issue_next(index);
        }
        let answer = match op.action {
            SocketAction::Accept { accepted: Some(connection) } => Answer::Accepted(Arc::new(connection)),
            SocketAction::Accept { accepted: None } => {
                unreachable!("an accept that succeeds has a connection")
            }
            SocketAction::Connect(_) => Answer::Connected,
            SocketAction::Receive(buffer) => Answer::Received(buffer, None),
            SocketAction::Send { data, .. } => Answer::Sent(data),
        };
        self.complete(index, Ok(answer));
    }

    fn read_landed(&mut self, op: Op, result: io::Result<usize>) {
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
            Some(at) if at > self.clock.now() => {
                work.held = Held::Landed(result);
                slot.phase = Phase::Held;
                self.hold_until(index, at);
            }
            _ => self.stepped(index, result),
        }
    }

    pub(super) fn fire_timer(&mut self) {
        if self.timer.is_empty() {
            return;
        }
        let now = self.clock.now();
        while let Some(Reverse(due)) = self.timer.peek() {
            if due.at > now {
                return;
            }
            let Some(Reverse(due)) = self.timer.pop() else { return };
            let slot = &mut self.slots[due.slot as usize];
            if slot.generation != due.generation {
                continue; // abandoned meanwhile
            }
            match slot.phase {
                Phase::Held => {}
                Phase::Joined => {
                    self.look_after(due.slot);
                    continue;
                }
                _ => continue, // it was joined, and has moved on
            }
            match &mut slot.work {
                Work::Sleep => self.complete(due.slot, Ok(Answer::Slept)),
                Work::Read(work) => {
                    let result = work.end_hold();
                    self.stepped(due.slot, result);
                }
                Work::None | Work::Open(_) | Work::Write(_) | Work::Socket(_) => {
                    unreachable!("only reads and sleeps are held")
                }
            }
        }
    }

    /// Handles the end of a step of a read: continues or completes the read.
    fn stepped(&mut self, index: u32, result: io::Result<usize>) {
        let slot = &mut self.slots[index as usize];
        let Work::Read(work) = &mut slot.work else { unreachable!("only reads have steps") };
        match result {
            Ok(step) => {
                if let (Some(bit), Some(buffer)) = (work.disturbance.flip_bit, &mut work.buffer) {
                    buffer.flip_bit(work.filled, step, bit);
                }
                work.interruptions = 0;
                match work.is_complete_after(step) {
                    Ok(false) => {}
                    Ok(true) => {
                        let bytes = work.finish();
                        return self.complete(index, Ok(Answer::Bytes(bytes)));
                    }
                    Err(e) => return self.complete(index, Err(Failure::from(e))),
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

impl Core {
    /// Closes the channel: waits for the ops of the transport, and fails the remote operations that
    /// still wait.
    pub(super) fn close(&mut self) {
        self.keep_all_private();
        self.transport = None; // waits
        self.note_in_flight();
        let used = self.slots.iter().filter(|s| s.phase != Phase::Free).count() as i64;
        Counters::shift(&self.counters.slots_in_use, -used);
        for waiter in self.slots.iter_mut().flat_map(|slot| &mut slot.waiters) {
            if let Waiter::Remote(op) = waiter {
                self.wakers.extend(op.fail("the I/O driver has ended"));
            }
        }
    }
}

pub(super) fn is_passing(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}
