//! Aligned, owned, pooled buffers: the memory that reads land in.
//!
//! A channel has one [`BufferPool`]: a few size classes, each a region got from [`slab`] at first
//! use and cut into equal buffers, and a heap allocation of the exact size if a class has run out
//! or the read is large. A [`Buffer`] has one owner and is written by the kernel;
//! [`Buffer::freeze`] turns it into a [`ReadBuf`], which is only read, can be cloned (joined reads
//! share one) and may be dropped on any thread.
//!
//! Invariant: a buffer of a region is in exactly one place: the owner's `free` list, the region's
//! stack of returned buffers, or behind `refs > 0` owners. Only its reference count moves it.
//! Ordering: dropping the last owner is `Release`, and taking the returned stack is `Acquire`; the
//! thread that reuses the memory sees the end of all earlier use.

pub(crate) mod slab;

use crate::stats::Counters;
use slab::{Slabs, Slice};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Alignment of every buffer in bytes: the strictest memory alignment of a device for direct I/O.
pub(crate) const MEMORY_ALIGNMENT: usize = 4096;

/// Size and number of a class's buffers for a reactor or driver, by class.
///
/// Chosen because a block of 4 KiB at an odd offset needs 8 KiB of 4096-byte units; 16 and 64 KiB
/// blocks likewise need one unit or two more; scans read 256 KiB at once. The transfer dominates
/// the cost of larger reads.
pub(crate) const CLASSES: [Class; 4] = [
    Class { each: 8 << 10, count: 256 },
    Class { each: 24 << 10, count: 64 },
    Class { each: 72 << 10, count: 32 },
    Class { each: 264 << 10, count: 16 },
];
/// Number of [`CLASSES`], from the smallest, that are worth registering with the kernel.
pub(crate) const REGISTERED_CLASSES: usize = 2;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) each: usize,
    pub(crate) count: u32,
}

/// Memory cut into `count` buffers of `each` bytes.
pub(crate) struct Region {
    memory: Slice,
    each: usize,
    class: u16,
    refs: Box<[AtomicU32]>,
    next: Box<[AtomicU32]>,
    returned: AtomicU32,
    counters: Arc<Counters>,
}

// SAFETY: `memory` belongs to this value alone; bytes of a buffer are written only through its
// single `Buffer` owner and read only through shared owners, which the reference counts order.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; all shared state is atomic.
unsafe impl Sync for Region {}

impl Region {
    fn new(class: u16, of: Class, slabs: &Slabs, counters: Arc<Counters>) -> Option<Arc<Self>> {
        let Class { each, count } = of;
        let atomics = |value| (0..count).map(|_| AtomicU32::new(value)).collect();
        let bytes = each * count as usize;
        let memory = slabs.cut(bytes, usize::from(class) < REGISTERED_CLASSES)?;
        counters.memory_got(bytes);
        Some(Arc::new(Self {
            memory,
            each,
            class,
            refs: atomics(0),
            next: atomics(NONE),
            returned: AtomicU32::new(NONE),
            counters,
        }))
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.memory.base().as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.each * self.refs.len()
    }

    fn start_of(&self, index: u32) -> *mut u8 {
        assert!((index as usize) < self.refs.len());
        // SAFETY: the index was just checked, so the result is inside the memory.
        unsafe { self.base().add(index as usize * self.each) }
    }

    fn give_back(&self, index: u32) {
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            self.next[index as usize].store(head, Ordering::Relaxed);
            // No ABA problem, because the only taker takes the whole stack at once.
            match self.returned.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn take_returned(&self, free: &mut Vec<u32>) {
        let mut index = self.returned.swap(NONE, Ordering::Acquire);
        while index != NONE {
            free.push(index);
            index = self.next[index as usize].load(Ordering::Relaxed);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.counters.memory_given_back(self.bytes());
    }
}

/// A heap allocation for one buffer.
struct HeapMemory {
    base: NonNull<u8>,
    layout: Layout,
    counters: Arc<Counters>,
}

// SAFETY: an owned allocation; written only while it has one owner, then only read.
unsafe impl Send for HeapMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    fn new(capacity: usize, counters: Arc<Counters>) -> Arc<Self> {
        let layout = Layout::from_size_align(capacity.max(1), MEMORY_ALIGNMENT)
            .unwrap_or_else(|_| panic!("a read of {capacity} bytes"));
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        counters.memory_got(layout.size());
        Arc::new(Self { base, layout, counters })
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        self.counters.buffer_returned();
        self.counters.memory_given_back(self.layout.size());
        // SAFETY: allocated with this layout in `new`, freed once here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

enum Memory {
    None,
    Pooled { region: Arc<Region>, index: u32 },
    Heap(Arc<HeapMemory>),
}

impl Memory {
    fn start(&self) -> *mut u8 {
        match self {
            Self::None => NonNull::<u8>::dangling().as_ptr(),
            Self::Pooled { region, index } => region.start_of(*index),
            Self::Heap(heap) => heap.base.as_ptr(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Pooled { region, .. } => region.each,
            Self::Heap(heap) => heap.layout.size(),
        }
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Pooled { region, index } => {
                region.refs[*index as usize].fetch_add(1, Ordering::Relaxed);
                Self::Pooled { region: region.clone(), index: *index }
            }
            Self::Heap(heap) => Self::Heap(heap.clone()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Self::Pooled { region, index } = self
            && region.refs[*index as usize].fetch_sub(1, Ordering::Release) == 1
        {
            // Ordering: Acquire; all use by other owners comes before the next use.
            region.refs[*index as usize].load(Ordering::Acquire);
            region.counters.buffer_returned();
            region.give_back(*index);
        }
    }
}

/// The destination of a read: memory with one owner.
pub(crate) struct Buffer(Memory);

impl Buffer {
    pub(crate) fn start(&self) -> *mut u8 {
        self.0.start()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the class of registered memory that this buffer lies in.
    pub(crate) fn registered_class(&self) -> Option<u16> {
        match &self.0 {
            Memory::Pooled { region, .. } if usize::from(region.class) < REGISTERED_CLASSES => {
                Some(region.class)
            }
            _ => None,
        }
    }

    /// Returns `len` bytes from `start`, zeroed, for a reader in this process.
    pub(crate) fn zeroed_slice(&mut self, start: usize, len: usize) -> &mut [u8] {
        assert!(start + len <= self.capacity());
        // SAFETY: inside the buffer as just checked; `&mut self` is its only owner; zeroing
        // initialises all of it.
        unsafe {
            let at = self.start().add(start);
            at.write_bytes(0, len);
            std::slice::from_raw_parts_mut(at, len)
        }
    }

    /// Flips a bit in the `len` bytes from `start` that a read has filled: bit number `bit` modulo
    /// their number of bits.
    pub(crate) fn flip_bit(&mut self, start: usize, len: usize, bit: u64) {
        assert!(start + len <= self.capacity());
        if len > 0 {
            let bit = bit % (len as u64 * 8);
            // SAFETY: inside the buffer as just checked, filled by a read, and `&mut self` is its
            // only owner.
            unsafe { *self.start().add(start + (bit / 8) as usize) ^= 1 << (bit % 8) };
        }
    }

    /// Ends the exclusive phase: a read has filled `len` bytes from `start`, which are shared from
    /// now on.
    pub(crate) fn freeze(self, start: usize, len: usize) -> ReadBuf {
        assert!(start + len <= self.capacity());
        ReadBuf { memory: self.0, start, len }
    }
}

/// The bytes that a read returned. Cheap to clone; may be sent to and dropped on any thread.
///
/// It holds a buffer of the channel that read it (about 4 KiB to 256 KiB, or an allocation of its
/// own). Holding many for long is safe, but makes later reads allocate.
#[derive(Clone)]
pub struct ReadBuf {
    memory: Memory,
    start: usize,
    len: usize,
}

impl ReadBuf {
    pub(crate) fn empty() -> Self {
        Self { memory: Memory::None, start: 0, len: 0 }
    }

    /// Copies the bytes and returns the buffer to its pool.
    pub fn into_boxed(self) -> Box<[u8]> {
        self.as_ref().into()
    }
}

impl Deref for ReadBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `freeze` checked the range against the capacity; the bytes were filled by a read
        // and are not written until the last owner is gone.
        unsafe { std::slice::from_raw_parts(self.memory.start().add(self.start), self.len) }
    }
}

impl AsRef<[u8]> for ReadBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for ReadBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadBuf({} bytes)", self.len)
    }
}

struct ClassPool {
    region: Option<Arc<Region>>,
    free: Vec<u32>,
    class: Class,
    unmappable: bool,
}

/// The buffers of one channel. Taken by the channel's thread, returned by any thread.
pub(crate) struct BufferPool {
    classes: [ClassPool; CLASSES.len()],
    slabs: Arc<Slabs>,
    counters: Arc<Counters>,
}

impl BufferPool {
    /// Returns an empty pool. `share` divides the number of buffers of each class, because a
    /// channel with few reads in flight needs fewer.
    pub(crate) fn new(share: u32, slabs: Arc<Slabs>, counters: Arc<Counters>) -> Self {
        let classes = CLASSES.map(|class| ClassPool {
            region: None,
            free: Vec::new(),
            class: Class { count: (class.count / share).max(2), ..class },
            unmappable: false,
        });
        Self { classes, slabs, counters }
    }

    /// Returns a buffer of at least `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        self.counters.buffer_taken();
        let pooled = self.classes.iter_mut().enumerate().find(|(_, c)| c.class.each >= len);
        if let Some((number, class)) = pooled
            && let Some(memory) = class.take(number as u16, &self.slabs, &self.counters)
        {
            return Buffer(memory);
        }
        let capacity = len.next_multiple_of(MEMORY_ALIGNMENT);
        Buffer(Memory::Heap(HeapMemory::new(capacity, self.counters.clone())))
    }

    /// Returns the regions that the transport may register; maps them if necessary.
    pub(crate) fn registrable(&mut self) -> Vec<Arc<Region>> {
        let (slabs, counters) = (&self.slabs, &self.counters);
        let classes = self.classes.iter_mut().take(REGISTERED_CLASSES).enumerate();
        classes.filter_map(|(number, class)| class.region(number as u16, slabs, counters).cloned()).collect()
    }
}

impl ClassPool {
    fn region(&mut self, number: u16, slabs: &Slabs, counters: &Arc<Counters>) -> Option<&Arc<Region>> {
        if self.region.is_none() && !self.unmappable {
            self.region = Region::new(number, self.class, slabs, counters.clone());
            self.unmappable = self.region.is_none();
            self.free = (0..self.class.count).rev().collect();
        }
        self.region.as_ref()
    }

    fn take(&mut self, number: u16, slabs: &Slabs, counters: &Arc<Counters>) -> Option<Memory> {
        let region = self.region(number, slabs, counters)?.clone();
        if self.free.is_empty() {
            region.take_returned(&mut self.free);
        }
        let index = self.free.pop()?;
        let before = region.refs[index as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a buffer in the free list had an owner");
        Some(Memory::Pooled { region, index })
    }
}

#[cfg(test)]
mod tests;
