//! A file that accepts aligned writes only, like one opened with `O_DIRECT`.

use crate::error::{Error, Result};
use crate::file::PositionalFile;
use crate::soft::errno;
use std::path::Path;

/// `inner`, with `EINVAL` for writes that a device would refuse.
#[derive(Debug)]
pub(crate) struct UnalignedRefused<F> {
    inner: F,
    alignment: usize,
}

impl<F> UnalignedRefused<F> {
    pub(crate) fn new(inner: F, alignment: usize) -> Self {
        Self { inner, alignment }
    }
}

impl<F: PositionalFile> PositionalFile for UnalignedRefused<F> {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn alignment(&self) -> usize {
        self.alignment
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let aligned = [data.len(), data.as_ptr().addr()].iter().all(|n| n.is_multiple_of(self.alignment));
        if !aligned || !offset.is_multiple_of(self.alignment as u64) {
            return Err(Error::at("write", self.path(), offset, errno(libc::EINVAL)));
        }
        self.inner.write_at(offset, data)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn sync_all(&self) -> Result<()> {
        self.inner.sync_all()
    }
    fn sync_range(&self, offset: u64, len: u64, strict: bool) -> Result<()> {
        self.inner.sync_range(offset, len, strict)
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.reserve(offset, len)
    }
    fn truncate(&self, size: u64) -> Result<()> {
        self.inner.truncate(size)
    }
}
