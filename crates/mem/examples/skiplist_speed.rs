//! Measures the cost of an insert into the skiplist: `cargo run --release -p karst-mem --example
//! skiplist_speed [entries] [threads] [batch]`.
//!
//! Keys like those of a memtable (16 bytes and a sequence number), in random order, values of 100
//! bytes.

use karst_mem::SkipList;
use std::cmp::Ordering;
use std::time::Duration;

fn order(a: &[u8], b: &[u8]) -> Ordering {
    let (a_key, a_seq) = a.split_at(a.len() - 8);
    let (b_key, b_seq) = b.split_at(b.len() - 8);
    a_key.cmp(b_key).then_with(|| {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        number(b_seq).cmp(&number(a_seq))
    })
}

/// Returns the CPU time of this process, which excludes other load on the machine.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|i| fields[*i].parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let entries = args.next().unwrap_or(450_000);
    let threads = args.next().unwrap_or(1);
    let batch = args.next().unwrap_or(1) as usize;
    for _ in 0..3 {
        let list = SkipList::new(order as fn(&[u8], &[u8]) -> Ordering);
        let start = cpu();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let list = &list;
                scope.spawn(move || {
                    let mut random = thread + 88172645463325252;
                    let mut keys = vec![[b'0'; 24]; batch];
                    for n in 0..entries / threads / batch as u64 {
                        for (i, key) in keys.iter_mut().enumerate() {
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            key[..8].copy_from_slice(&(random % 10_000_000).to_be_bytes());
                            let number = (n * batch as u64 + i as u64) * threads + thread;
                            key[16..].copy_from_slice(&number.to_le_bytes());
                        }
                        let entries = keys.iter().map(|k| list.prepare(&k[..16], &k[16..], &[b'v'; 100]));
                        assert_eq!(list.link_all(entries), 0);
                    }
                });
            }
        });
        let per = (cpu() - start).as_nanos() as f64 / entries as f64;
        let found = cpu();
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
            (cpu() - found).as_nanos() as f64 / 200_000.0,
            list.memory_usage() >> 20
        );
    }
}
