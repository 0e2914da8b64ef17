//! The rows of transactions that read two keys for update and write them. Fills through databases
//! with transactions are in [`super::unordered`].

use super::contest::{Contender, Contest};
use super::load::{self, End, Keys};
use super::store::{Durability, Engine};
use super::table::{Column, Row};
use super::transaction_store::{Policy, TransactionStore};
use super::unordered::{PUBLISHED, THREADS};
use super::{NO_WAL, VALUE_BYTES, WAL};
use crate::bench::Settings;
use crate::bench::measure::{Deadline, Meter};
use crate::bench::record::Label;
use karst_testkit::latency::Latencies;
use karst_testkit::random::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Number of keys that transactions draw from.
const KEYS: u64 = 500_000;

const TRANSACTIONS: [Column; 5] = [
    Column { name: "transactions/s", digits: 0, ratio: true },
    Column { name: "CPU us/transaction", digits: 2, ratio: true },
    Column { name: "switches/1000", digits: 1, ratio: false },
    Column { name: "p99 us", digits: 0, ratio: false },
    Column { name: "met another, of 1000", digits: 2, ratio: false },
];

pub(super) fn run(settings: &Settings) -> Result<(), String> {
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
                ("KarstDB WritePrepared", run(Engine::KarstDb, LOCKING)),
            ];
            if !prepare {
                contenders.push(("RocksDB optimistic", run(Engine::RocksDb, Policy::Optimistic)));
                contenders.push(("KarstDB optimistic", run(Engine::KarstDb, Policy::Optimistic)));
            }
            let label = Label::at(format!("{threads} threads"), &[("threads", threads as f64)]);
            table.round(settings, label, contenders, &[])?;
        }
        table.print(settings, "transactions")?;
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
