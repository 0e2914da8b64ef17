//! Benchmark of the operations of point lookups and scans in a cached block:
//! `cargo run --release -p karst-format --example block_speed`.

use karst_format::block::{Block, BlockBuilder, BlockCursor, BlockShape};
use karst_format::checksum::{self, ChecksumType};
use karst_format::comparator::Comparator;
use karst_format::compression::{self, CompressionType};
use karst_format::handle::BlockHandle;
use karst_format::index::{IndexBlock, IndexCursor, IndexLayout, encode_delta, encode_value};
use karst_format::key::{InternalKey, SeqNo, ValueType};
use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 300;
const CALLS: usize = 500;

fn main() {
    for (label, prefix, value_bytes) in [
        ("16-byte keys, 100-byte values", "", 100),
        ("36-byte keys, 4-byte values", "user/profile/0000/n/", 4),
    ] {
        for block_bytes in [4 << 10, 16 << 10, 32 << 10] {
            for hash in [false, true] {
                data_block(label, prefix, value_bytes, block_bytes, hash);
            }
        }
    }
    cold_data_blocks();
    for entries in [200, 10_000] {
        index_block(entries);
    }
    cold_index_blocks();
    checksums();
    decompression();
}

fn internal(user_key: &str, seq: u64) -> Vec<u8> {
    InternalKey { user_key: user_key.as_bytes(), seq: SeqNo(seq), kind: ValueType::Value }.to_vec()
}

/// Calls `work` with the numbers 0..count in scattered order; returns nanoseconds per call in the
/// best of many short runs, which excludes interference by other processes.
fn time(count: usize, mut work: impl FnMut(usize)) -> f64 {
    let mut at = 0;
    let mut best = f64::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..CALLS {
            at += 7919 % count;
            at -= if at >= count { count } else { 0 };
            work(at);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / CALLS as f64);
    }
    best
}

fn data_block(label: &str, prefix: &str, value_bytes: usize, block_bytes: usize, hash: bool) {
    let shape = BlockShape { hash_index_ratio: hash.then_some(0.75), ..BlockShape::plain(16) };
    let mut builder = BlockBuilder::new(shape);
    let mut targets = Vec::new();
    while builder.size_estimate() < block_bytes {
        let user = format!("{prefix}{:016}", targets.len() * 37);
        builder.add(&internal(&user, 5), &vec![b'v'; value_bytes]);
        targets.push(internal(&user, 9));
    }
    let block = Block::parse(builder.finish()).unwrap();
    let comparator = Comparator::Bytewise;
    let mut cursor = BlockCursor::new();
    let seek = time(targets.len(), |i| {
        cursor.seek_for_get(&block, &comparator, black_box(&targets[i])).unwrap();
        black_box(cursor.value(&block));
    });
    let mut cursor = BlockCursor::new();
    cursor.seek_to_first(&block).unwrap();
    let next = time(targets.len(), |_| {
        if !cursor.next(&block).unwrap() {
            cursor.seek_to_first(&block).unwrap();
        }
        black_box(cursor.key(&block));
    });
    cursor.seek_to_last(&block).unwrap();
    let prev = time(targets.len(), |_| {
        if !cursor.prev(&block).unwrap() {
            cursor.seek_to_last(&block).unwrap();
        }
        black_box(cursor.key(&block));
    });
    println!(
        "{label}, {:2} KiB, {:4} entries, hash index {hash:5}: get {seek:5.1} ns, next {next:4.1} ns, prev {prev:4.1} ns",
        block_bytes >> 10,
        targets.len()
    );
}

/// Lookups in blocks that are in memory but not in the processor's nearer caches.
fn cold_data_blocks() {
    for value_bytes in [20, 100, 400] {
        let mut builder = BlockBuilder::new(BlockShape::plain(16));
        let mut targets = Vec::new();
        while builder.size_estimate() < 4096 {
            let user = format!("{:016}", targets.len() * 37);
            builder.add(&internal(&user, 5), &vec![b'v'; value_bytes]);
            targets.push(internal(&user, 9));
        }
        let contents = builder.finish();
        let blocks: Vec<Block> = (0..50_000).map(|_| Block::parse(contents.clone()).unwrap()).collect();
        let comparator = Comparator::Bytewise;
        let mut cursor = BlockCursor::new();
        let mut which = 0;
        let seek = time(targets.len(), |i| {
            which = (which + 26_681) % blocks.len();
            cursor.seek_for_get(&blocks[which], &comparator, black_box(&targets[i])).unwrap();
            black_box(cursor.value(&blocks[which])[0]);
        });
        println!("cold 4 KiB blocks of {} entries: get {seek:.1} ns", targets.len());
    }
}

fn cold_index_blocks() {
    let (first, targets) = build_index(10_000);
    let copy = || IndexBlock::parse(first.block().contents().into(), first.layout()).unwrap();
    let blocks: Vec<IndexBlock> = (0..600).map(|_| copy()).collect();
    let comparator = Comparator::Bytewise;
    let mut which = 0;
    let find = time(targets.len(), |i| {
        which = (which + 377) % blocks.len();
        black_box(blocks[which].find(&comparator, black_box(&targets[i])).unwrap());
    });
    println!("cold index blocks of 10000 entries: find {find:.1} ns");
}

fn index_block(entries: usize) {
    let (index, targets) = build_index(entries);
    let comparator = Comparator::Bytewise;
    let mut cursor = IndexCursor::new();
    let seek = time(entries, |i| {
        cursor.seek(&index, &comparator, black_box(&targets[i])).unwrap();
        black_box(cursor.handle());
    });
    let find = time(entries, |i| {
        black_box(index.find(&comparator, black_box(&targets[i])).unwrap());
    });
    println!("index block of {entries} entries: seek {seek:.1} ns, find {find:.1} ns");
}

fn build_index(entries: usize) -> (IndexBlock, Vec<Vec<u8>>) {
    let layout = IndexLayout { user_keys: true, delta_handles: true, first_keys: false };
    let mut builder = BlockBuilder::new(BlockShape::plain(1));
    let mut previous = None;
    let mut targets = Vec::new();
    for i in 0..entries {
        let user = format!("{:016}", i * 3000);
        let handle = BlockHandle { offset: i as u64 * 4101, size: 4096 };
        let (mut whole, mut delta) = (Vec::new(), Vec::new());
        encode_value(&mut whole, handle, None);
        if let Some(previous) = previous {
            encode_delta(&mut delta, handle, previous, None);
        }
        previous = Some(handle);
        builder.add_undelimited(user.as_bytes(), &whole, &delta);
        targets.push(internal(&format!("{:016}", i * 3000 - i.min(1) * 1234), 9));
    }
    (IndexBlock::parse(builder.finish().into(), layout).unwrap(), targets)
}

fn checksums() {
    let block = vec![0x5a; 4096 + 5];
    for kind in [ChecksumType::Crc32c, ChecksumType::XxHash, ChecksumType::XxHash64, ChecksumType::Xxh3] {
        let ns = time(1, |_| {
            black_box(checksum::compute(kind, black_box(&block[..4097])));
        });
        println!("checksum of 4 KiB, {}: {ns:.0} ns", kind.name());
    }
}

fn decompression() {
    let text: Vec<u8> =
        (0..400u32).flat_map(|i| format!("key{:08}=value{:05};", i, i * i % 977).into_bytes()).collect();
    let text = &text[..4096.min(text.len())];
    for kind in CompressionType::ALL {
        let mut out = Vec::new();
        compression::compress_into(kind, None, text, None, &mut out);
        if kind == CompressionType::Bzip2 {
            continue;
        }
        let ns = time(1, |_| {
            black_box(compression::decompress(kind, black_box(&out), None, 6, 1 << 20).unwrap());
        });
        println!("decompression of 4 KiB, {}: {ns:.0} ns, from {} bytes", kind.name(), out.len());
    }
}
