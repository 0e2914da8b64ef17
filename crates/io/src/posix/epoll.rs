//! System calls for sockets that `std` and `socket2` do not offer: epoll, and receiving into
//! uninitialised memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Events taken from the kernel in one call.
const EVENTS: usize = 64;

/// An epoll instance.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, and owned by nothing else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd` for `events`, which come with `data`.
    ///
    /// # Errors
    /// The descriptor cannot be watched, is watched already, or the kernel has no memory.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), events, data)
    }

    /// Does as [`Self::add`] for a descriptor without a lifetime.
    ///
    /// # Errors
    /// Those of [`Self::add`].
    pub(crate) fn add_raw(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    /// Changes what a watched descriptor is watched for.
    ///
    /// # Errors
    /// The descriptor is not watched.
    pub(crate) fn modify(&self, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, data)
    }

    /// Forgets a descriptor.
    ///
    /// # Errors
    /// The descriptor is not watched.
    pub(crate) fn delete(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: the call reads `event` only.
        let failed = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &mut event) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for events, each with its data, for `timeout` at most; rounded up to milliseconds.
    ///
    /// # Errors
    /// A signal came (`Interrupted`).
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<(u32, u64)>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let timeout = timeout
            .map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: the kernel writes at most `EVENTS` events to the array.
        let found =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, timeout) };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(events[..found as usize].iter().map(|event| (event.events, event.u64)).collect())
    }
}

/// Receives into the spare capacity of `buffer` without blocking, and makes it longer by what came.
/// Returns the number of bytes, 0 once the peer sends no more.
///
/// # Errors
/// Nothing has come yet (`WouldBlock`), or the connection has failed.
pub(crate) fn receive_into(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    // SAFETY: the kernel writes at most `room.len()` bytes there.
    let received =
        unsafe { libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = received as usize;
    // SAFETY: the kernel has written that many bytes.
    unsafe { buffer.set_len(buffer.len() + received) };
    Ok(received)
}
