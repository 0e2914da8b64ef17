//! Gathered small writes: visible to every reader, and never in the way of other writes.

use super::*;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

fn memtable_of(bench: &Bench) -> Arc<MemTable> {
    bench.memtables.lock()[&CF].clone()
}

/// Returns the number of entries linked in the memtable, without settling the pipeline.
fn linked(bench: &Bench) -> usize {
    entries(&memtable_of(bench), SeqNo::MAX).len()
}

#[test]
fn small_writes_are_inserted_in_groups_or_when_someone_asks() {
    let bench = Bench::new(rules());
    for n in 1..=7 {
        bench.put(&format!("k{n}"), "").unwrap();
    }
    assert_eq!((linked(&bench), memtable_of(&bench).entry_count()), (0, 7));
    bench.put("k8", "").unwrap();
    assert_eq!(linked(&bench), 8);
    bench.write(&WriteOptions::unlogged(), Op::Delete { cf: CF, key: b"k9" }).unwrap();
    assert_eq!((linked(&bench), memtable_of(&bench).delete_count()), (8, 1));
    assert_eq!((bench.pipeline.visible_seq(), linked(&bench)), (SeqNo(9), 9));
    // After a reader, writes insert their own entries for a while.
    bench.put("k10", "").unwrap();
    assert_eq!(linked(&bench), 10);
}

#[test]
fn what_waits_is_inserted_before_its_memtable_is_flushed_and_behind_any_larger_write() {
    let bench = Bench::new(rules());
    bench.put("a", "").unwrap();
    let old = bench.seal(2)[&CF].clone();
    bench.put("b", "").unwrap();
    assert_eq!(entries(&old, SeqNo::MAX), ["a@1="]);
    bench.put("c", "").unwrap();
    let old = bench.seal(3)[&CF].clone();
    karst_io::block_on(&bench.env, bench.pipeline.wait_until_visible(old.sealed().unwrap().largest_seq));
    assert_eq!(entries(&old, SeqNo::MAX), ["b@2=", "c@3="]);
    bench.put("d", "").unwrap();
    let mut batch = WriteBatch::new();
    (0..20).for_each(|n| batch.put(format!("e{n}"), "").unwrap());
    bench.pipeline.write(&WriteOptions::new(), Source::Batch(&batch)).unwrap();
    assert_eq!(linked(&bench), 21);
}

/// Reads are rare, so that writes of every kind meet gathered ones; futures are dropped and
/// memtables sealed in between.
#[test]
fn stress_writes_of_every_kind_get_past_those_that_wait() {
    let bench = Bench::new(rules());
    let (threads, each) = (4u64, 3000u64);
    let large: Vec<String> = (0..12).map(|n| format!("large{n}")).collect();
    let mut sealed: Vec<(Arc<MemTable>, SeqNo)> = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (bench, large) = (&bench, &large);
            scope.spawn(move || {
                for n in 0..each {
                    let key = format!("{thread}-{n}");
                    let one = || Source::one(put(key.as_bytes(), b"")).unwrap();
                    let options = WriteOptions { disable_wal: n % 3 == 0, ..WriteOptions::new() };
                    match (n * 7 + thread) % 29 {
                        0 => {
                            let mut batch = WriteBatch::new();
                            large.iter().for_each(|key| batch.put(key, "").unwrap());
                            bench.pipeline.write(&options, Source::Batch(&batch)).unwrap();
                        }
                        1 => {
                            let mut write = pin!(bench.pipeline.write_async(&options, one()));
                            let _ = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        }
                        2 => {
                            let write = bench.pipeline.write_async(&options, one());
                            karst_io::block_on(&bench.env, write).unwrap();
                        }
                        _ => bench.pipeline.write(&options, one()).unwrap(),
                    }
                    if n % 1000 == 999 {
                        bench.pipeline.visible_seq();
                    }
                }
            });
        }
        for log in 2..22 {
            let old = bench.seal(log)[&CF].clone();
            let seq = old.sealed().unwrap().largest_seq;
            karst_io::block_on(&bench.env, bench.pipeline.wait_until_visible(seq));
            assert_eq!(entries(&old, seq).len() as u64, old.entry_count());
            sealed.push((old, seq));
        }
    });
    let seq = {
        let seal = bench.seal(30)[&CF].clone();
        let seq = seal.sealed().unwrap().largest_seq;
        sealed.push((seal, seq));
        seq
    };
    karst_io::block_on(&bench.env, bench.pipeline.wait_until_visible(seq));
    let found: u64 = sealed.iter().map(|(memtable, seq)| entries(memtable, *seq).len() as u64).sum();
    assert_eq!((found, bench.pipeline.visible_seq()), (seq.0, seq));
}
