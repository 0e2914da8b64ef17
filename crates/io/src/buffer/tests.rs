//! Tests of the pool: classes, exhaustion, sharing, and returns from other threads.

use super::*;
use crate::stats::IoStats;

fn pool() -> (BufferPool, Arc<Counters>) {
    let counters = Arc::new(Counters::default());
    (BufferPool::new(1, Arc::default(), counters.clone()), counters)
}

fn out(counters: &Counters) -> i64 {
    IoStats::of(counters).buffers_out
}

fn filled(pool: &mut BufferPool, len: usize, byte: u8) -> ReadBuf {
    let mut buffer = pool.take(len);
    buffer.zeroed_slice(0, len).fill(byte);
    buffer.freeze(0, len)
}

#[test]
fn each_size_gets_an_aligned_buffer_that_holds_it() {
    let (mut pool, counters) = pool();
    for len in [1, 4096, 8192, 8193, 24 << 10, 70_000, 264 << 10, (264 << 10) + 1, 5 << 20] {
        let buffer = pool.take(len);
        assert!(buffer.capacity() >= len && buffer.start().addr() % MEMORY_ALIGNMENT == 0, "{len}");
        let is_pooled = CLASSES.iter().any(|c| c.each >= len);
        assert_eq!(matches!(buffer.0, Memory::Pooled { .. }), is_pooled, "{len}");
        assert_eq!(buffer.registered_class().is_some(), len <= CLASSES[REGISTERED_CLASSES - 1].each, "{len}");
    }
    assert_eq!(out(&counters), 0);
}

#[test]
fn no_two_buffers_overlap_and_the_heap_takes_over_when_a_class_is_out() {
    let (mut pool, counters) = pool();
    let count = CLASSES[0].count as usize + 10;
    let held: Vec<_> = (0..count).map(|i| filled(&mut pool, 4096, i as u8)).collect();
    assert_eq!(out(&counters), count as i64);
    assert_eq!(held.iter().filter(|b| matches!(b.memory, Memory::Heap(_))).count(), 10);
    for (i, bytes) in held.iter().enumerate() {
        assert!(bytes.iter().all(|b| *b == i as u8), "buffer {i} was overwritten");
    }
    drop(held);
    assert_eq!(out(&counters), 0);
    assert!(matches!(pool.take(4096).0, Memory::Pooled { .. }), "returned buffers are used again");
}

#[test]
fn a_buffer_returns_with_its_last_owner_from_any_thread() {
    let (mut pool, counters) = pool();
    for round in 0..200 {
        let shared: Vec<_> = (0..64).map(|i| filled(&mut pool, 100, i ^ round)).collect();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    for (i, bytes) in shared.into_iter().enumerate() {
                        assert!(bytes.iter().all(|b| *b == i as u8 ^ round));
                    }
                })
            })
            .collect();
        drop(shared);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(out(&counters), 0);
    }
}

#[test]
fn bytes_outlive_the_pool() {
    let (mut pool, counters) = pool();
    let bytes = filled(&mut pool, 10, 7);
    drop(pool);
    assert_eq!(*bytes.clone().into_boxed(), [7; 10]);
    drop(bytes);
    assert_eq!(out(&counters), 0);
}

#[test]
fn regions_of_channels_that_come_and_go_share_slabs_and_never_overlap() {
    let (slabs, counters) = (Arc::new(Slabs::default()), Arc::new(Counters::default()));
    let mut kept: Vec<(ReadBuf, u8)> = Vec::new();
    for round in 0..40_u8 {
        let mut pool = BufferPool::new(4, slabs.clone(), counters.clone());
        let held: Vec<_> = (0..40)
            .map(|i| (filled(&mut pool, [100, 20_000, 70_000][i % 3], round ^ i as u8), round ^ i as u8))
            .collect();
        for (bytes, byte) in held.iter().chain(&kept) {
            assert!(bytes.iter().all(|b| b == byte), "round {round}");
        }
        // Some buffers outlive their channel, whose region then stays mapped.
        kept.extend(held.into_iter().step_by(7));
        if round % 3 == 0 {
            kept.drain(..kept.len() / 2);
        }
    }
    for (bytes, byte) in &kept {
        assert!(bytes.iter().all(|b| b == byte));
    }
}

#[test]
fn small_regions_lie_in_aligned_slabs_and_large_ones_alone() {
    let slabs = Slabs::default();
    let slab_of = |slice: &slab::Slice| slice.base().as_ptr().addr() >> 21;
    let first = slabs.cut(1 << 20, true).unwrap();
    let large = slabs.cut(1 << 20, false).unwrap();
    let second = slabs.cut((1 << 20) - 100, true).unwrap();
    assert_eq!(slab_of(&first), slab_of(&second));
    assert_ne!(slab_of(&first), slab_of(&large));
    let third = slabs.cut(4097, true).unwrap();
    assert_ne!(slab_of(&first), slab_of(&third), "the first is full");
    let fourth = slabs.cut(1, true).unwrap();
    assert_eq!(fourth.base().as_ptr().addr() - third.base().as_ptr().addr(), 2 * MEMORY_ALIGNMENT);
    assert!(slabs.cut((2 << 20) + 1, true).is_some(), "larger than a slab");
    let whole = slabs.cut(2 << 20, true).unwrap();
    assert_eq!(whole.base().as_ptr().addr() % (2 << 20), 0);
    let at = third.base();
    drop((third, fourth));
    assert_eq!(slabs.cut(1 << 20, true).unwrap().base(), at, "nobody uses what was cut from this one");
}

#[test]
fn memory_is_counted_for_as_long_as_anybody_has_it() {
    let (mut pool, counters) = pool();
    let counted = || IoStats::of(&counters).buffer_bytes;
    let region = (CLASSES[0].each * CLASSES[0].count as usize) as i64;
    assert_eq!(counted(), 0);
    let small = filled(&mut pool, 4096, 1);
    assert_eq!(counted(), region, "a class at a time");
    let large = filled(&mut pool, 1 << 20, 2);
    assert_eq!(counted(), region + (1 << 20));
    drop((large, pool));
    assert_eq!(counted(), region);
    drop(small);
    assert_eq!(counted(), 0);
}
