//! A stretch of a file as shared memory (`mmap`): what is put there is the kernel's, as after
//! `write`, without a system call.
//!
//! In: an open file and a range of it. Out: memory whose pages are all there and writable before
//! the first byte is put (`MADV_POPULATE_WRITE`, Linux 5.14), so that a file system without room
//! says so by an error. A page that the kernel has written back meanwhile is asked for once more; a
//! file system that fails then ends the process by a signal.

use crate::file::MappedRange;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

#[derive(Debug)]
pub(super) struct Mapping {
    memory: NonNull<u8>,
    start: u64,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, whichever thread has it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// The `len` bytes from `start` of a file that is open for reading and writing; it becomes at
    /// least that long.
    pub(super) fn new(file: &File, start: u64, len: usize) -> io::Result<Self> {
        let before = file.metadata()?.len();
        let end = start.checked_add(len as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if before < end {
            file.set_len(end)?;
        }
        let mapped = Self::of(file, start, len);
        if mapped.is_err() && before < end {
            file.set_len(before)?;
        }
        mapped
    }

    fn of(file: &File, start: u64, len: usize) -> io::Result<Self> {
        let (access, offset) = (libc::PROT_READ | libc::PROT_WRITE, super::file_offset(start)?);
        // SAFETY: the kernel chooses where, so no memory in use is touched; the descriptor is open.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::Other)?;
        let mapping = Self { memory, start, len };
        // SAFETY: the range was mapped just now.
        match unsafe { libc::madvise(memory.as_ptr().cast(), len, libc::MADV_POPULATE_WRITE) } {
            0 => Ok(mapping),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl MappedRange for Mapping {
    fn put(&mut self, offset: u64, data: &[u8]) {
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| at.checked_add(data.len()).is_some_and(|end| end <= self.len));
        let at = at.expect("the data lies within the stretch");
        // SAFETY: it does, as just checked; the memory is mapped until `self` is dropped, and
        // `data`, which is borrowed, is not in it.
        unsafe { self.memory.add(at).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `of` with this length, and nobody has a reference into it.
        let failed = unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
        debug_assert_eq!(failed, 0);
    }
}
