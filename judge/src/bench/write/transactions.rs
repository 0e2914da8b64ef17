//! The rows of transactions: fills through a database with transactions, as published, and transactions that read two keys for update and write them.

use super::contest::{Contender, Contest};
use super::latency::Latencies;
use super::load::{self, End, Keys};
use super::store::{Durability, Engine, Store};
use super::table::{Column, Row};
use super::transaction_store::{Policy, TransactionStore};
use super::unordered::{DURABILITIES, FILL, PUBLISHED, THREADS, UNORDERED, fill};
use super::{NO_WAL, VALUE_BYTES, WAL};
use crate::bench::Settings;
use crate::bench::measure::{Deadline, Meter};
use karst_testkit::random::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Keys that transactions draw from.
const KEYS: u64 = 500_000;

const TRANSACTIONS: [Column; 5] = [
    Column { name: "transactions/s", digits: 0, ratio: true },
    Column { name: "CPU us/transaction", digits: 2, ratio: true },
    Column { name: "switches/1000", digits: 1, ratio: false },
    Column { name: "p99 us", digits: 0, ratio: false },
    Column { name: "met another, of 1000", digits: 2, ratio: false },
];

pub(super) fn run(settings: &Settings) -> Result<(), String> {
    // Why asked: without the policy its rows are left out, which is said.
    let prepared = settings.with_path(|path| {
        let policy = Policy::Prepared { locks: true };
        Ok(TransactionStore::open(Engine::KarstDb, policy, path, PUBLISHED)
            .and_then(TransactionStore::close)
            .map_err(|e| eprintln!("  KarstDB has no rows of WritePrepared: {e}"))
            .is_ok())
    })?;
    fills(settings, prepared)?;
    updates(settings, prepared)
}

/// fillrandom in batches of 8 through databases with transactions, beside the same without.
fn fills(settings: &Settings, prepared: bool) -> Result<(), String> {
    const LOCKLESS: Policy = Policy::Prepared { locks: false };
    for (name, durability) in DURABILITIES {
        let title = format!("fillrandom {name}, batches of 8, through databases with transactions");
        let baselines = &["RocksDB WriteCommitted", "RocksDB WritePrepared, unordered", "KarstDB unordered"];
        let mut table = Contest::new(title, &FILL, baselines);
        for threads in THREADS {
            let through = |engine, policy, more: &'static str| -> Box<dyn FnMut() -> Result<Row, String>> {
                Box::new(move || {
                    settings.with_path(|path| {
                        let store =
                            TransactionStore::open(engine, policy, path, &format!("{PUBLISHED}{more}"))?;
                        let row = fill(settings, &store, threads, durability);
                        store.close()?;
                        row
                    })
                })
            };
            let plain = |engine| -> Box<dyn FnMut() -> Result<Row, String>> {
                Box::new(move || {
                    settings.with_path(|path| {
                        let store = Store::open(engine, path, &format!("{PUBLISHED}{UNORDERED}"))?;
                        let row = fill(settings, &store, threads, durability);
                        store.close()?;
                        row
                    })
                })
            };
            let mut contenders: Vec<Contender<'_>> = vec![
                ("RocksDB unordered", plain(Engine::RocksDb)),
                ("RocksDB WriteCommitted", through(Engine::RocksDb, Policy::Committed, "")),
                ("RocksDB WritePrepared, unordered", through(Engine::RocksDb, LOCKLESS, UNORDERED)),
                ("KarstDB unordered", plain(Engine::KarstDb)),
                ("KarstDB WriteCommitted", through(Engine::KarstDb, Policy::Committed, "")),
            ];
            if prepared {
                let run = through(Engine::KarstDb, LOCKLESS, UNORDERED);
                contenders.push(("KarstDB WritePrepared, unordered", run));
            }
            table.round(settings, &format!("{threads} threads"), contenders)?;
        }
        table.print();
    }
    Ok(())
}

/// Transactions of two keys.
fn updates(settings: &Settings, prepared: bool) -> Result<(), String> {
    const LOCKING: Policy = Policy::Prepared { locks: true };
    for (prepare, title) in [
        (false, "Transactions that read two of 500,000 keys for update, write them and commit, with a log"),
        (true, "The same, prepared before they commit"),
    ] {
        let baselines: &[&str] = match prepare {
            false => &["RocksDB WriteCommitted", "RocksDB optimistic", "RocksDB WritePrepared"],
            true => &["RocksDB WriteCommitted", "RocksDB WritePrepared"],
        };
        let mut table = Contest::new(title, &TRANSACTIONS, baselines);
        for threads in THREADS {
            let run = |engine, policy| -> Box<dyn FnMut() -> Result<Row, String>> {
                Box::new(move || {
                    settings.with_path(|path| {
                        let store = TransactionStore::open(engine, policy, path, PUBLISHED)?;
                        let row = update(settings, &store, threads, prepare, WAL);
                        store.close()?;
                        row
                    })
                })
            };
            let mut contenders: Vec<Contender<'_>> = vec![
                ("RocksDB WriteCommitted", run(Engine::RocksDb, Policy::Committed)),
                ("RocksDB WritePrepared", run(Engine::RocksDb, LOCKING)),
                ("KarstDB WriteCommitted", run(Engine::KarstDb, Policy::Committed)),
            ];
            if prepared {
                contenders.push(("KarstDB WritePrepared", run(Engine::KarstDb, LOCKING)));
            }
            if !prepare {
                contenders.push(("RocksDB optimistic", run(Engine::RocksDb, Policy::Optimistic)));
                contenders.push(("KarstDB optimistic", run(Engine::KarstDb, Policy::Optimistic)));
            }
            table.round(settings, &format!("{threads} threads"), contenders)?;
        }
        table.print();
    }
    Ok(())
}

fn update(
    settings: &Settings,
    store: &TransactionStore,
    threads: usize,
    prepare: bool,
    durability: Durability,
) -> Result<Row, String> {
    super::load(Keys::Sequential, 1, 64, NO_WAL, End::Keys(KEYS)).run(store)?;
    let (meter, start) = (Meter::start(), Instant::now());
    let (deadline, met) = (Deadline::after(settings.seconds), AtomicU64::new(0));
    let work = |thread: usize| -> Result<Latencies, String> {
        let (mut random, mut latencies) = (Random::new(thread as u64 + 11), Latencies::new());
        let mut session = store.session(thread, durability, prepare);
        let value = [b'v'; VALUE_BYTES];
        while !deadline.passed() {
            let began = Instant::now();
            let first = random.below(KEYS);
            let keys = [load::key(first), load::key((first + 1 + random.below(KEYS - 1)) % KEYS)];
            match session.update(&keys, &value)? {
                true => latencies.add(began.elapsed().as_nanos() as u64),
                false => drop(met.fetch_add(1, Ordering::Relaxed)),
            }
        }
        Ok(latencies)
    };
    let mut all = Latencies::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().try_for_each(|worker| {
            let latencies = worker.join().unwrap_or_else(|_| Err("a worker panicked".into()))?;
            all.merge(&latencies);
            Ok::<(), String>(())
        })
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let figures = meter.stop(all.count());
    let met = met.into_inner() as f64;
    Ok(vec![
        all.count() as f64 / seconds,
        figures.cpu_us(),
        figures.switches * 1000.0 / figures.operations,
        all.percentile_us(99.0),
        met * 1000.0 / (met + figures.operations),
    ])
}
