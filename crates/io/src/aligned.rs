//! Bytes aligned in memory to a power of two, which direct writes need.
//!
//! A vector with slack before the first byte, instead of an aligned allocation, because it needs no
//! `unsafe`.
//! Invariant: the vector does not grow, because growing would move the bytes.

/// A buffer of a fixed capacity whose bytes begin at a multiple of its alignment.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    alignment: usize,
}

impl AlignedBuffer {
    /// Returns an empty buffer with room for `capacity` bytes.
    pub(crate) fn new(alignment: usize, capacity: usize) -> Self {
        let mut memory: Vec<u8> = Vec::with_capacity(capacity + alignment);
        let start = memory.as_ptr().align_offset(alignment);
        assert!(start < alignment, "bytes can be aligned to {alignment}");
        memory.resize(start, 0);
        Self { memory, start, alignment }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        let bytes = &self.memory[self.start..];
        debug_assert!(bytes.as_ptr().addr().is_multiple_of(self.alignment));
        bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len() - self.start
    }

    /// Returns its capacity in bytes, including the bytes in it.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity() - self.start
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    /// The buffer has no room for them.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        assert!(self.len() + bytes.len() <= self.capacity(), "{} more bytes have no room", bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Appends zeros until the length is a multiple of the alignment.
    ///
    /// # Panics
    /// The buffer has no room for them.
    pub(crate) fn pad(&mut self) {
        let len = self.len().next_multiple_of(self.alignment);
        assert!(len <= self.capacity(), "{len} bytes have no room");
        self.memory.resize(self.start + len, 0);
    }

    pub(crate) fn clear(&mut self) {
        self.memory.truncate(self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::AlignedBuffer;

    #[test]
    fn bytes_stay_aligned_however_it_is_filled() {
        for alignment in [1, 512, 4096] {
            let mut buffer = AlignedBuffer::new(alignment, 10_000);
            assert!(buffer.capacity() >= 10_000 && buffer.len() == 0);
            for round in 0..3u8 {
                buffer.extend(&[round; 1000]);
                buffer.extend(&[9; 7]);
                buffer.pad();
                let bytes = buffer.as_slice();
                assert!(bytes.as_ptr().addr().is_multiple_of(alignment));
                assert_eq!(bytes.len(), 1007usize.next_multiple_of(alignment));
                assert!(bytes[..1000] == [round; 1000] && bytes[1000..1007] == [9; 7]);
                assert!(bytes[1007..].iter().all(|byte| *byte == 0));
                buffer.clear();
            }
        }
    }

    #[test]
    #[should_panic(expected = "no room")]
    fn it_does_not_grow() {
        AlignedBuffer::new(512, 100).extend(&[0; 5000]);
    }
}
