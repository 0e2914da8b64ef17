//! A range of a file as shared memory (`mmap`): bytes put there belong to the kernel, as after
//! `write`, without a system call.
//!
//! All pages are populated and writable before the first byte is put (`MADV_POPULATE_WRITE`, Linux
//! 5.14), which makes a file system without room return an error. A page that the kernel has
//! written back meanwhile is requested from the file system again; if the file system fails then,
//! the process dies of a signal.

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

// SAFETY: the memory belongs to this value alone, on any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes from `start` of a file that is open for reading and writing; extends the
    /// file to the end of the range if it is shorter.
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
        // SAFETY: the kernel chooses the address, which overlaps no memory in use; the descriptor
        // is open.
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
        // SAFETY: the bytes lie inside the range, as just checked; the memory is mapped until
        // `self` is dropped, and `data`, which is borrowed, does not overlap it.
        unsafe { self.memory.add(at).copy_from_nonoverlapping(NonNull::from(data).cast(), data.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `of` with this length, and no reference into it exists.
        let failed = unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len) };
        debug_assert_eq!(failed, 0);
    }
}
