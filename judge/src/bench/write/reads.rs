//! readwhilewriting: reads that mostly miss the block cache, and go to the device or to the page
//! cache, beside a writer at a fixed rate.

use super::load::{self, End, Keys, Load};
use super::store::Store;
use super::table::{Column, Row, Table};
use super::{ENTRY_BYTES, NO_WAL, WAL};
use crate::bench::Settings;
use crate::bench::measure::{Deadline, Meter};
use crate::bench::record::Label;
use karst_engine::Db;
use karst_io::{Reactor, spawn_local};
use karst_testkit::latency::Latencies;
use karst_testkit::random::Random;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const READS: [Column; 6] = [
    Column { name: "reads/s", digits: 0, ratio: true },
    Column { name: "CPU us/read", digits: 2, ratio: true },
    Column { name: "p50 us", digits: 1, ratio: true },
    Column { name: "p99 us", digits: 1, ratio: true },
    Column { name: "worst ms", digits: 1, ratio: false },
    Column { name: "writes/s", digits: 0, ratio: true },
];

const KEYS: u64 = 8_000_000;
const WRITES_PER_SECOND: f64 = 20_000.0;

/// Concurrency of the readers.
#[derive(Clone, Copy)]
enum Readers {
    /// This number of threads, each with one read at a time.
    Threads(usize),
    /// This number of reads in flight: RocksDB has a thread for each, KarstDB one reactor thread
    /// for all.
    InFlight(usize),
}

pub(super) fn while_writing(settings: &Settings) -> Result<(), String> {
    for (how, direct) in [("direct reads", true), ("data in the page cache", false)] {
        let options = format!("use_direct_reads={direct};");
        let title = format!(
            "readwhilewriting: {:.0} MB of data, {how}, 32 MiB block cache, one writer at {WRITES_PER_SECOND:.0} keys/s",
            KEYS as f64 * ENTRY_BYTES / 1e6
        );
        let mut table = Table::new(title, &READS);
        for (label, in_flight, readers) in [
            ("1 reader", 1, Readers::Threads(1)),
            ("8 readers", 8, Readers::Threads(8)),
            ("64 reads in flight: threads, KarstDB one reactor thread", 64, Readers::InFlight(64)),
        ] {
            let label = Label::at(label, &[("in flight", f64::from(in_flight))]);
            table.compare(settings, label, |engine| {
                settings.with_store(engine, &options, |store| {
                    super::load(Keys::Sequential, 1, 64, NO_WAL, End::Keys(KEYS)).run(store)?;
                    store.settle()?;
                    beside_a_writer(store, readers, settings.seconds * 2.0)
                })
            })?;
        }
        table.print(settings, "write-reads")?;
    }
    Ok(())
}

fn beside_a_writer(store: &Store, readers: Readers, seconds: f64) -> Result<Row, String> {
    let stop = AtomicBool::new(false);
    let writes = Load {
        pace: Some(WRITES_PER_SECOND),
        ..super::load(Keys::Random(KEYS), 1, 1, WAL, End::Seconds(f64::INFINITY))
    };
    let meter = Meter::start();
    let deadline = Deadline::after(seconds);
    let (latencies, writes) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| writes.run_until(store, &stop));
        let latencies = match (readers, store) {
            (Readers::InFlight(reads), Store::Karst(db)) => on_a_reactor(db, reads, deadline),
            (Readers::InFlight(threads) | Readers::Threads(threads), _) => {
                on_threads(store, threads, deadline)
            }
        };
        stop.store(true, Ordering::Relaxed);
        let writes = writer.join().unwrap_or_else(|_| Err("the writer panicked".into()));
        (latencies, writes)
    });
    let (latencies, writes) = (latencies?, writes?);
    let figures = meter.stop(latencies.count());
    Ok(vec![
        figures.rate(),
        figures.cpu_us(),
        latencies.percentile_us(50.0),
        latencies.percentile_us(99.0),
        latencies.worst_us() / 1000.0,
        writes.keys as f64 / writes.seconds,
    ])
}

fn on_threads(store: &Store, threads: usize, deadline: Deadline) -> Result<Latencies, String> {
    std::thread::scope(|scope| {
        let read = |reader: usize| {
            let (mut random, mut latencies) = (Random::new(reader as u64 + 5), Latencies::new());
            while !deadline.passed() {
                let start = Instant::now();
                store.get(&load::key(random.below(KEYS)))?;
                latencies.add(start.elapsed().as_nanos() as u64);
            }
            Ok::<Latencies, String>(latencies)
        };
        let handles: Vec<_> = (0..threads).map(|reader| scope.spawn(move || read(reader))).collect();
        let mut all = Latencies::new();
        for handle in handles {
            all.merge(&handle.join().unwrap_or_else(|_| Err("a reader panicked".into()))?);
        }
        Ok(all)
    })
}

fn on_a_reactor(db: &Db, in_flight: usize, deadline: Deadline) -> Result<Latencies, String> {
    let reactor = Reactor::builder(db.env()).build().map_err(|e| e.to_string())?;
    let store = db.clone();
    let all = move || async move {
        let latencies = Rc::new(RefCell::new(Latencies::new()));
        let tasks: Vec<_> = (0..in_flight)
            .map(|reader| {
                let (db, latencies) = (store.clone(), latencies.clone());
                spawn_local(async move {
                    let mut random = Random::new(reader as u64 + 5);
                    while !deadline.passed() {
                        let start = Instant::now();
                        let value = db.get_async(&load::key(random.below(KEYS))).await;
                        value.map_err(|e| e.to_string())?.ok_or("a key was not found")?;
                        latencies.borrow_mut().add(start.elapsed().as_nanos() as u64);
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.map_err(|e| format!("{e:?}"))??;
        }
        let all = latencies.borrow().clone();
        Ok::<Latencies, String>(all)
    };
    reactor.spawn(all).join().map_err(|e| format!("{e:?}"))?
}
