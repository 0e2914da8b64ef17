//! The io_uring transport: a thread's own ring.
//!
//! The ring is created by the thread that uses it (`SINGLE_ISSUER`), with completions delivered
//! only when that thread asks (`DEFER_TASKRUN`), or with the nearest features of older kernels. Its
//! completion queue is at least twice as long as the number of reads and opens in flight.
//! Completions of sockets beyond its length wait in the kernel (`IORING_FEAT_NODROP`), as long as
//! the kernel has memory for them.
//!
//! Invariant: `in_flight[token]` holds the op, and with it the buffer and the open file, from the
//! moment its entry is pushed until its completion has been seen. Dropping the ring waits for all
//! of them; a forked child leaks them.

use crate::buffer::{REGISTERED_CLASSES, Region};
use crate::file::{Backend, WriteBackend};
use crate::posix::{self, PosixFile};
use crate::report;
use crate::transport::{
    Alarm, Completion, Op, OpenOp, SocketAction, SocketOp, Transport, WriteAction, WriteOp,
};
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use socket2::Socket;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const ALARM: u64 = u64::MAX;
const PROBE: u64 = u64::MAX - 1;
/// User data of every request to cancel, whose own completion says nothing.
const CANCEL: u64 = u64::MAX - 2;
/// Maximum length of a single read or write handed to the kernel; a longer one is continued like a
/// short one.
const LONGEST: usize = 1 << 30;

/// An op that the kernel works on, with all the memory the kernel may touch.
enum Flying {
    Read(Op),
    Open(Box<Opening>),
    Write(WriteOp),
    Socket(SocketOp),
}

/// A file being opened: first `openat`, then `statx` of the descriptor.
struct Opening {
    op: OpenOp,
    fd: Option<OwnedFd>,
    found: libc::statx,
}

pub(crate) struct Ring {
    ring: IoUring,
    in_flight: Vec<Option<Flying>>,
    /// Reads, opens and writes in flight.
    count: usize,
    /// Operations on sockets in flight.
    sockets: usize,
    /// Tokens whose entries the kernel has not taken yet, oldest first.
    unsubmitted: VecDeque<u32>,
    /// Ops completed without the kernel, because the ring is broken.
    refused: Vec<Completion>,
    /// Tokens of opened files that await their `statx`; empty between calls.
    to_describe: Vec<u32>,
    alarm: Arc<Alarm>,
    alarm_armed: bool,
    regions: [Option<Arc<Region>>; REGISTERED_CLASSES],
    /// True once the kernel has refused an entry for good; ops it holds may never complete.
    broken: bool,
}

impl Ring {
    /// Returns a ring for up to `depth` ops in flight, after one successful round trip.
    ///
    /// # Errors
    /// io_uring is missing (`ENOSYS`), forbidden (`EPERM`), too old, or out of locked memory or
    /// descriptors.
    pub(crate) fn new(depth: u32) -> io::Result<Self> {
        Self::at_level(depth, 0)
    }

    /// Returns a ring with the features of kernels from `level` on; see [`build`].
    fn at_level(depth: u32, level: u32) -> io::Result<Self> {
        let entries = depth.clamp(8, 256).next_power_of_two();
        let completions = (depth * 2 + 8).next_power_of_two().max(entries * 2);
        let ring = build(entries, completions, level)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of this kernel is too old (before 5.11)",
            ));
        }
        let alarm = Alarm::with_eventfd(posix::eventfd()?);
        // Raised, because reads that a file system cannot start without blocking (FUSE, network) go
        // to kernel workers, by default four a CPU, which would cap the reads in flight. A failure
        // is ignored; such reads are then slower.
        let _ = ring.submitter().register_iowq_max_workers(&mut [depth.min(256), 0]);
        let mut made = Self {
            ring,
            in_flight: Vec::new(),
            count: 0,
            sockets: 0,
            unsubmitted: VecDeque::new(),
            refused: Vec::new(),
            to_describe: Vec::new(),
            alarm,
            alarm_armed: false,
            regions: Default::default(),
            broken: false,
        };
        made.probe()?;
        Ok(made)
    }

    /// Makes one round trip, because a sandbox may allow setting a ring up and forbid entering it.
    fn probe(&mut self) -> io::Result<()> {
        let nop = opcode::Nop::new().build().user_data(PROBE);
        // SAFETY: a no-op refers to nothing.
        unsafe { self.ring.submission().push(&nop) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        while self.ring.completion().next().is_some() {}
        Ok(())
    }

    fn push(&mut self, entry: &squeue::Entry, token: u32) {
        loop {
            if self.broken {
                return self.refuse(token, libc::EIO);
            }
            // SAFETY: all memory that an entry points at (a read's buffer, a write's data, an
            // open's path and `statx`) is owned by the op that `fly` has put into `in_flight`,
            // until it completes; the alarm's descriptor lives as long as `self`.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return self.unsubmitted.push_back(token);
            }
            if !self.enter() {
                // Kernels before 5.14 take nothing while completions have overflowed.
                let mut done = std::mem::take(&mut self.refused);
                self.reap(&mut done);
                self.refused = done;
                std::thread::yield_now();
            }
        }
    }

    /// Completes an op with an error; the kernel has not taken it, and never will.
    fn refuse(&mut self, token: u32, errno: i32) {
        if let Some(flying) = self.in_flight.get_mut(token as usize).and_then(Option::take) {
            *self.count_of(&flying) -= 1;
            self.refused.push(flying.fail(errno));
        }
    }

    /// Hands all pushed entries to the kernel. Returns false if it took none now and may later.
    fn enter(&mut self) -> bool {
        if self.broken {
            return false;
        }
        let before = self.unsubmitted.len();
        let result = self.ring.submit();
        self.entered(result.map(drop));
        self.unsubmitted.len() < before
    }

    /// Called after entering the kernel: records the entries that it took, and handles its error.
    fn entered(&mut self, result: io::Result<()>) {
        // Not the returned count, because a wait that times out or is interrupted returns an error
        // instead.
        let left = self.ring.submission().len();
        let taken = self.unsubmitted.len().saturating_sub(left);
        self.unsubmitted.drain(..taken);
        let Err(e) = result else { return };
        // Interrupted, or short of a resource for the moment: retried later.
        let passing = [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::ETIME];
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        if passing.contains(&errno) {
            return;
        }
        // Any other error means that the kernel will never take these entries: their reads fail.
        // Invariant: nothing is submitted after that, because the entries' memory returns to its
        // owners now.
        if !std::mem::replace(&mut self.broken, true) {
            report!(error, error = %e, "io_uring_enter failed");
        }
        for token in std::mem::take(&mut self.unsubmitted) {
            self.refuse(token, errno);
        }
    }

    fn arm_alarm(&mut self) {
        if self.alarm_armed {
            return;
        }
        let Some(eventfd) = self.alarm.eventfd() else { return };
        let fd = types::Fd(eventfd.as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build().user_data(ALARM);
        self.alarm_armed = true;
        self.push(&poll, u32::MAX);
    }

    fn reap(&mut self, done: &mut Vec<Completion>) {
        done.append(&mut self.refused);
        let mut struck = false;
        for entry in self.ring.completion() {
            if entry.user_data() == ALARM {
                struck = true;
                self.alarm_armed &= io_uring::cqueue::more(entry.flags());
                continue;
            }
            if entry.user_data() == CANCEL {
                continue;
            }
            let slot = self.in_flight.get_mut(entry.user_data() as usize);
            let Some(flying) = slot.and_then(Option::take) else {
                unreachable!("the kernel completed op {} twice", entry.user_data());
            };
            let result = match entry.result() {
                e if e < 0 => Err(io::Error::from_raw_os_error(-e)),
                n => Ok(n as usize),
            };
            let count = if matches!(flying, Flying::Socket(_)) { &mut self.sockets } else { &mut self.count };
            *count -= 1;
            match flying {
                Flying::Read(op) => done.push(Completion::Read { op, result }),
                Flying::Write(op) => done.push(Completion::Written { op, result }),
                Flying::Socket(op) => done.push(socket_completed(op, result)),
                Flying::Open(opening) => match opening.advance(result) {
                    Ok(opening) => {
                        let token = opening.op.token;
                        self.in_flight[token as usize] = Some(Flying::Open(opening));
                        self.to_describe.push(token);
                        self.count += 1;
                    }
                    Err(opened) => done.push(opened),
                },
            }
        }
        if struck {
            self.alarm.silence();
        }
        while let Some(token) = self.to_describe.pop() {
            self.describe(token);
        }
    }

    /// Keeps an op, and the memory the kernel uses for it, until it completes.
    fn fly(&mut self, token: u32, flying: Flying) {
        if self.in_flight.len() <= token as usize {
            self.in_flight.resize_with(token as usize + 1, || None);
        }
        *self.count_of(&flying) += 1;
        let before = self.in_flight[token as usize].replace(flying);
        assert!(before.is_none(), "token {token} is in flight already");
    }

    /// The counter of operations of this kind in flight.
    fn count_of(&mut self, flying: &Flying) -> &mut usize {
        if matches!(flying, Flying::Socket(_)) { &mut self.sockets } else { &mut self.count }
    }

    /// Starts the second half of an open, the `statx`.
    fn describe(&mut self, token: u32) {
        let Some(Flying::Open(opening)) = &mut self.in_flight[token as usize] else {
            unreachable!("only an open is described");
        };
        let Some(fd) = &opening.fd else { unreachable!("a file is described once it is open") };
        let fd = types::Fd(fd.as_raw_fd());
        let into: *mut libc::statx = &mut opening.found;
        let entry = opcode::Statx::new(fd, c"".as_ptr(), into.cast())
            .flags(posix::STATX_FLAGS)
            .mask(posix::STATX_MASK)
            .build();
        self.push(&entry.user_data(u64::from(token)), token);
    }

    /// Waits without submitting; ops that the kernel still works on may complete.
    fn wait_broken(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>) {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed, and nothing is submitted.
        let _ = unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, flags, None) };
        self.reap(done);
        if done.is_empty() {
            std::thread::sleep(timeout.unwrap_or(Duration::MAX).min(Duration::from_millis(1)));
        }
    }

    fn has_work_to_run(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }
}

/// An operation on a socket that the kernel has completed.
fn socket_completed(mut op: SocketOp, result: io::Result<usize>) -> Completion {
    match (&mut op.action, &result) {
        (SocketAction::Accept { accepted }, Ok(fd)) => {
            // SAFETY: the kernel has just made this descriptor for us, and no other code knows it.
            *accepted = Some(unsafe { Socket::from_raw_fd(*fd as i32) });
            return Completion::Socket { op, result: Ok(0) };
        }
        // Another process, or a thread without io_uring, has made the socket one that does not
        // block. The channel tries again, and then the kernel waits.
        (_, Err(e)) if e.kind() == io::ErrorKind::WouldBlock => drop(op.socket.set_nonblocking(false)),
        (SocketAction::Receive(buffer), Ok(received)) => {
            // SAFETY: the kernel has written that many bytes to the spare capacity, and no more
            // than fit.
            unsafe { buffer.set_len(buffer.len() + received) };
        }
        _ => {}
    }
    Completion::Socket { op, result }
}

impl Flying {
    fn fail(self, errno: i32) -> Completion {
        let result = Err(io::Error::from_raw_os_error(errno));
        match self {
            Self::Read(op) => Completion::Read { op, result },
            Self::Write(op) => Completion::Written { op, result },
            Self::Socket(op) => Completion::Socket { op, result },
            Self::Open(opening) => {
                Completion::Opened { token: opening.op.token, result: result.map(|_: usize| unreachable!()) }
            }
        }
    }
}

impl Opening {
    /// Handles the end of a step. `Ok`: continue with the next step; `Err`: the open's completion.
    fn advance(mut self: Box<Self>, result: io::Result<usize>) -> Result<Box<Self>, Completion> {
        let token = self.op.token;
        let fd = match (result, self.fd.take()) {
            (Err(e), _) => return Err(Completion::Opened { token, result: Err(e) }),
            (Ok(fd), None) => {
                // SAFETY: the kernel has just opened this descriptor for this op, and it has no
                // other owner.
                self.fd = Some(unsafe { OwnedFd::from_raw_fd(fd as i32) });
                return Ok(self);
            }
            (Ok(_), Some(fd)) => fd,
        };
        let path = Path::new(OsStr::from_bytes(self.op.path.as_bytes()));
        Err(Completion::Opened { token, result: PosixFile::new(fd, &self.found, path, self.op.options) })
    }
}

/// Builds a ring with all features that the kernel supports, starting at `level`.
fn build(entries: u32, completions: u32, level: u32) -> io::Result<IoUring> {
    let mut first_error = None;
    for attempt in level..3 {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(completions).setup_clamp();
        match attempt {
            // Linux 6.1: completions wait in a list until this thread asks for them.
            0 => drop(
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all(),
            ),
            // Linux 5.19: completions do not interrupt this thread.
            1 => drop(builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all()),
            _ => {}
        }
        match builder.build(entries) {
            Ok(ring) => return Ok(ring),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => first_error = first_error.or(Some(e)),
            Err(e) => return Err(e),
        }
    }
    Err(first_error.unwrap_or_else(|| io::ErrorKind::Unsupported.into()))
}

impl Transport for Ring {
    fn queue(&mut self, op: Op) {
        let Backend::Fd(fd) = op.file.backend() else { unreachable!("a soft file was sent to the kernel") };
        let fd = types::Fd(fd.as_raw_fd());
        assert!(op.start + op.len <= op.buffer.capacity());
        // SAFETY: inside the buffer as just checked.
        let into = unsafe { op.buffer.start().add(op.start) };
        let len = op.len.min(LONGEST) as u32;
        let registered =
            op.buffer.registered_class().filter(|class| self.regions[usize::from(*class)].is_some());
        let entry = match registered.filter(|_| op.file.alignment() > 1) {
            Some(class) => opcode::ReadFixed::new(fd, into, len, class).offset(op.offset).build(),
            None => opcode::Read::new(fd, into, len).offset(op.offset).build(),
        };
        let token = op.token;
        self.fly(token, Flying::Read(op));
        self.push(&entry.user_data(u64::from(token)), token);
    }

    fn queue_open(&mut self, op: OpenOp) {
        let token = op.token;
        // The path's bytes are on the heap and do not move with the op.
        let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), op.path.as_ptr())
            .flags(posix::open_flags(op.options))
            .build();
        let opening = Opening { op, fd: None, found: posix::blank_statx() };
        self.fly(token, Flying::Open(Box::new(opening)));
        self.push(&entry.user_data(u64::from(token)), token);
    }

    fn queue_write(&mut self, op: WriteOp) {
        let token = op.token;
        let WriteBackend::Fd(fd) = op.file.backend() else {
            unreachable!("a file without a descriptor was sent to the kernel")
        };
        let (raw, fd) = (fd, types::Fd(fd.as_raw_fd()));
        let mut refusal = None;
        let entry = match &op.action {
            // The data is on the heap, and does not move with the op.
            WriteAction::Write { data, start, offset } => {
                let rest = &data[*start..];
                let len = rest.len().min(op.at_most).min(LONGEST) as u32;
                opcode::Write::new(fd, rest.as_ptr(), len).offset(offset + *start as u64).build()
            }
            WriteAction::Sync { all } => {
                let flags = if *all { types::FsyncFlags::empty() } else { types::FsyncFlags::DATASYNC };
                opcode::Fsync::new(fd).flags(flags).build()
            }
            WriteAction::Reserve { offset, len } => {
                refusal = posix::may_reserve(raw, *offset, *len).err();
                opcode::Fallocate::new(fd, *len).offset(*offset).mode(libc::FALLOC_FL_KEEP_SIZE).build()
            }
        };
        self.fly(token, Flying::Write(op));
        match refusal {
            Some(e) => self.refuse(token, e.raw_os_error().unwrap_or(libc::EINVAL)),
            None => self.push(&entry.user_data(u64::from(token)), token),
        }
    }

    fn queue_socket(&mut self, mut op: SocketOp) {
        let fd = types::Fd(op.socket.as_raw_fd());
        let entry = match &mut op.action {
            SocketAction::Accept { .. } => {
                opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            // The address is boxed and the buffers are on the heap: none moves with the op.
            SocketAction::Connect(address) => {
                opcode::Connect::new(fd, address.as_ptr().cast(), address.len()).build()
            }
            SocketAction::Receive(buffer) => {
                let room = buffer.spare_capacity_mut();
                let len = room.len().min(LONGEST) as u32;
                opcode::Recv::new(fd, room.as_mut_ptr().cast(), len).build()
            }
            SocketAction::Send { data, start } => {
                let rest = &data[*start..];
                let len = rest.len().min(LONGEST) as u32;
                opcode::Send::new(fd, rest.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build()
            }
        };
        let token = op.token;
        self.fly(token, Flying::Socket(op));
        self.push(&entry.user_data(u64::from(token)), token);
    }

    fn cancel_socket(&mut self, token: u32) {
        let entry = opcode::AsyncCancel::new(u64::from(token)).build().user_data(CANCEL);
        self.push(&entry, u32::MAX);
    }

    fn submit(&mut self) -> bool {
        let any = !self.unsubmitted.is_empty();
        if any {
            self.enter();
        }
        any
    }

    fn poll(&mut self, done: &mut Vec<Completion>) {
        if self.has_work_to_run() {
            self.enter(); // submits the queue, and lets the kernel finish its deferred work
        }
        self.reap(done);
    }

    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Completion>) {
        self.arm_alarm();
        if self.broken {
            return self.wait_broken(timeout, done);
        }
        if !self.refused.is_empty() || !self.alarm.fall_asleep() {
            self.submit();
            return self.poll(done);
        }
        let entered = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(timeout) => {
                let span = types::Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&span))
            }
        };
        self.alarm.wake_up();
        self.entered(entered.map(drop));
        self.reap(done);
    }

    fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    fn in_flight(&self) -> usize {
        self.count
    }

    fn register(&mut self, regions: &[Arc<Region>]) -> bool {
        if regions.len() != REGISTERED_CLASSES {
            return false; // a class could not be mapped, and the index must equal the class
        }
        let vectors: Vec<_> =
            regions.iter().map(|r| libc::iovec { iov_base: r.base().cast(), iov_len: r.bytes() }).collect();
        // SAFETY: the regions are kept in `self` until the ring is gone.
        if let Err(e) = unsafe { self.ring.submitter().register_buffers(&vectors) } {
            report!(debug, error = %e, "reading into unregistered buffers");
            return false;
        }
        for (kept, region) in self.regions.iter_mut().zip(regions) {
            *kept = Some(region.clone());
        }
        true
    }

    fn is_broken(&self) -> bool {
        self.broken
    }

    fn abandon_after_fork(self: Box<Self>) {
        std::mem::forget(self);
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        let sockets =
            (0..).zip(&self.in_flight).filter(|(_, flying)| matches!(flying, Some(Flying::Socket(_))));
        let sockets: Vec<u32> = sockets.map(|(token, _)| token).collect();
        sockets.into_iter().for_each(|token| self.cancel_socket(token));
        while self.count + self.sockets > 0 && !self.broken {
            self.wait(Some(Duration::from_secs(1)), &mut done);
            done.clear();
        }
        if self.count + self.sockets > 0 {
            // Leaked, because the kernel may still write to these buffers, and the ring cannot be
            // waited on.
            std::mem::forget(std::mem::take(&mut self.in_flight));
        }
    }
}

#[cfg(test)]
mod tests;
