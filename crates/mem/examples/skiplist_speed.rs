//! What an insert into the skiplist costs: `cargo run --release -p karst-mem --example skiplist_speed [entries] [threads]`.
//!
//! Keys as a memtable has them (16 bytes and a sequence number), in random order, values of 100 bytes.

use karst_mem::SkipList;
use std::cmp::Ordering;
use std::time::Instant;

fn order(a: &[u8], b: &[u8]) -> Ordering {
    let (a_key, a_seq) = a.split_at(a.len() - 8);
    let (b_key, b_seq) = b.split_at(b.len() - 8);
    a_key.cmp(b_key).then_with(|| {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        number(b_seq).cmp(&number(a_seq))
    })
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let entries = args.next().unwrap_or(450_000);
    let threads = args.next().unwrap_or(1);
    for _ in 0..3 {
        let list = SkipList::new(order as fn(&[u8], &[u8]) -> Ordering);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let list = &list;
                scope.spawn(move || {
                    let mut random = thread + 88172645463325252;
                    let mut key = [b'0'; 24];
                    for n in 0..entries / threads {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        key[..8].copy_from_slice(&(random % 10_000_000).to_be_bytes());
                        key[16..].copy_from_slice(&(n * threads + thread).to_le_bytes());
                        assert!(list.insert(&key, &[b'v'; 100]));
                    }
                });
            }
        });
        let inserted = start.elapsed();
        let per = inserted.as_nanos() as f64 / entries as f64;
        let found = Instant::now();
        let mut random = 42u64;
        let mut sum = 0;
        for _ in 0..200_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut key = [b'0'; 24];
            key[..8].copy_from_slice(&(random % 10_000_000).to_be_bytes());
            sum += list.seek_ge(&key).map_or(0, |p| list.key(p).len());
        }
        println!(
            "{entries} inserts by {threads} threads: {per:.0} ns each; seek {:.0} ns; {} MiB ({sum})",
            found.elapsed().as_nanos() as f64 / 200_000.0,
            list.memory_usage() >> 20
        );
    }
}
