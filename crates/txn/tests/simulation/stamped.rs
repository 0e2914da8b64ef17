//! A family whose keys have timestamps: crashes within prepare and commit, with flushes between.
//! Committed writes are visible at their timestamp and not before, whole or absent; prepared
//! transactions that are found get their timestamp then.

use crate::crashes::crash_at;
use crate::ledger::PATH;
use crate::{each_seed_of, long};
use karst_engine::format::Comparator;
use karst_engine::io::{Crash, Simulation};
use karst_engine::{ColumnFamily, DbOptions, FlushOptions, Options, ReadOptions, Result, WriteOptions};
use karst_testkit::random::Random;
use karst_txn::{TransactionDb, TransactionDbOptions, TransactionOptions, WritePolicy};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// State of the transaction that commits at a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Nothing,
    Prepared,
    Committed,
    /// One of the two, because the power failed during its prepare or decision.
    Either(Kind, Kind),
}

/// State after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nothing,
    Prepared,
    Committed,
}

type Known = RefCell<BTreeMap<u64, Is>>;

fn stamped_options(simulation: &Simulation) -> Options {
    let text = "create_if_missing=true;create_missing_column_families=true;stats_dump_period_sec=0;ttl=0;\
        periodic_compaction_seconds=0;write_buffer_size=20000;max_manifest_file_size=2000;\
        merge_operator={id=StringAppendOperator;delimiter=,;}";
    let (unordered, two_queues) = crate::early();
    let early = move |db: &mut DbOptions| (db.unordered_write, db.two_write_queues) = (unordered, two_queues);
    let options = Options::new().set_all(text).unwrap().db(early).env(simulation.env().clone());
    options.comparator(Some("stamped"), Comparator::BytewiseU64Ts)
}

fn open(simulation: &Simulation) -> Result<(TransactionDb, ColumnFamily)> {
    let transactions =
        TransactionDbOptions { transaction_lock_timeout: 0, ..TransactionDbOptions::default() };
    let options = stamped_options(simulation);
    let db = TransactionDb::open_cf(PATH, &options, &transactions, &["default", "stamped"])?;
    let family = db.db().column_family("stamped").expect("it was opened");
    Ok((db, family))
}

/// Prepares, commits at once, or commits a prepared transaction, at a timestamp.
async fn step(
    (db, family): (&TransactionDb, &ColumnFamily),
    known: &Known,
    at: u64,
    (prepares, commits): (bool, bool),
    sync: bool,
) -> Result<()> {
    let write = if sync { WriteOptions::synced() } else { WriteOptions::new() };
    let name = at.to_string();
    let mut transaction = db.begin(&write, &TransactionOptions::default());
    transaction.set_name(&name)?;
    let own = format!("own {at}");
    transaction.put_cf_async(family, own.as_bytes(), name.as_bytes()).await?;
    transaction.put_async(own.as_bytes(), name.as_bytes()).await?;
    if commits {
        // A key that every committed one writes. Those that stay prepared would keep its lock.
        transaction.put_cf_async(family, b"shared", name.as_bytes()).await?;
        transaction.merge_cf_async(family, b"shared", b"+").await?;
        transaction.set_commit_timestamp(at)?;
    }
    let set = |is| {
        known.borrow_mut().insert(at, is);
    };
    if prepares {
        set(Is::Either(Kind::Nothing, Kind::Prepared));
        transaction.prepare_async().await?;
        set(Is::Prepared);
    }
    if commits {
        let before = if prepares { Kind::Prepared } else { Kind::Nothing };
        set(Is::Either(before, Kind::Committed));
        transaction.commit_async().await?;
        set(Is::Committed);
    }
    Ok(())
}

async fn live(simulation: &Simulation, known: &Known, steps: u64, sync: bool, seed: u64) {
    let fs = simulation.fs().clone();
    let mut random = Random::new(seed);
    let (db, family) = match open(simulation) {
        Ok(opened) => opened,
        Err(e) => {
            assert!(fs.is_off(), "opening failed: {e}");
            return std::future::pending().await;
        }
    };
    for _ in 0..steps {
        let at = known.borrow().keys().next_back().copied().unwrap_or(0) + 1 + random.below(3);
        let how = [(false, true), (true, true), (true, false)][random.index(3)];
        let outcome = step((&db, &family), known, at, how, sync).await;
        if outcome.is_ok() && random.one_in(4) {
            let asked = db.db().flush_cfs_async(&FlushOptions::default(), &[&family]).await;
            assert!(asked.is_ok() || fs.is_off(), "flush: {asked:?}");
        }
        if fs.is_off() {
            return std::future::pending().await;
        }
        outcome.unwrap_or_else(|e| panic!("{how:?} at {at}: {e}"));
    }
    let closed = db.db().close();
    assert!(closed.is_ok() || fs.is_off(), "close: {closed:?}");
}

/// Returns the value of a key at a timestamp.
async fn read(db: &TransactionDb, family: &ColumnFamily, key: &str, at: u64) -> Option<String> {
    let options = ReadOptions { timestamp: Some(at.to_le_bytes().to_vec()), ..ReadOptions::new() };
    let value = db.get_cf_async(&options, family, key.as_bytes()).await.unwrap();
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

/// Returns the state of one transaction, and checks that it is whole.
async fn found(db: &TransactionDb, family: &ColumnFamily, at: u64, when: &str) -> Kind {
    let (own, name) = (format!("own {at}"), at.to_string());
    assert_eq!(read(db, family, &own, at - 1).await, None, "{when}: {at} is there too early");
    let (stamped, plain) = (read(db, family, &own, at).await, db.get_async(own.as_bytes()).await.unwrap());
    assert_eq!(stamped.is_some(), plain.is_some(), "{when}: {at} is there in part");
    let prepared = db.get_all_prepared_transactions().contains(&name.clone().into_bytes());
    match (stamped, prepared) {
        (Some(value), false) => {
            assert_eq!(value, name, "{when}");
            Kind::Committed
        }
        (None, true) => Kind::Prepared,
        (None, false) => Kind::Nothing,
        (Some(_), true) => panic!("{when}: {at} is committed and prepared"),
    }
}

fn look(simulation: &Simulation, known: &Known, decide: bool, seed: u64, when: &str) -> Option<()> {
    simulation.run(async {
        let (db, family) = match open(simulation) {
            Ok(opened) => opened,
            Err(_) if simulation.fs().is_off() => return std::future::pending().await,
            Err(e) => panic!("{when}: {e}"),
        };
        let mut random = Random::new(seed);
        let expected = known.borrow().clone();
        let mut shared = None;
        for (at, is) in expected {
            let now = found(&db, &family, at, when).await;
            let may_be = match is {
                Is::Nothing => now == Kind::Nothing,
                Is::Prepared => now == Kind::Prepared,
                Is::Committed => now == Kind::Committed,
                Is::Either(a, b) => now == a || now == b,
            };
            assert!(may_be, "{when}: {at} is {now:?}, and was {is:?}");
            let settled = match now {
                Kind::Nothing => Is::Nothing,
                Kind::Prepared => Is::Prepared,
                Kind::Committed => Is::Committed,
            };
            known.borrow_mut().insert(at, settled);
            // The last transaction at or before a timestamp determines the shared key.
            let here = read(&db, &family, "shared", at).await;
            if here != shared {
                assert_eq!(here, Some(format!("{at},+")), "{when}: at {at}");
                assert_eq!(now, Kind::Committed, "{when}: {at} has written the shared key");
            }
            shared = here;
            if decide && now == Kind::Prepared {
                let mut transaction = db.get_transaction_by_name(at.to_string()).unwrap();
                assert_eq!(transaction.commit_timestamp(), None, "{when}");
                let after = match random.one_in(2) {
                    true => {
                        transaction.set_commit_timestamp(at).unwrap();
                        transaction.commit_async().await.unwrap_or_else(|e| panic!("{when}: {e}"));
                        Kind::Committed
                    }
                    false => {
                        transaction.rollback_async().await.unwrap_or_else(|e| panic!("{when}: {e}"));
                        Kind::Nothing
                    }
                };
                assert_eq!(found(&db, &family, at, when).await, after, "{when}");
                let after = if after == Kind::Committed { Is::Committed } else { Is::Nothing };
                known.borrow_mut().insert(at, after);
                shared = read(&db, &family, "shared", at).await;
            }
        }
        if decide {
            assert!(db.lock_status().is_empty(), "{when}: {:?}", db.lock_status());
        }
        db.db().close().unwrap_or_else(|e| panic!("{when}: {e}"));
    })
}

fn stamped_at(seed: u64, at: u64, crash: Crash) -> (u64, usize) {
    let known = Known::default();
    let sync = crash == Crash::Power;
    let changes = crash_at(
        seed,
        at,
        crash,
        async |simulation, steps, seed| live(simulation, &known, steps, sync, seed).await,
        |simulation, decide, seed, when| look(simulation, &known, decide, seed, when),
    );
    let committed = known.borrow().values().filter(|is| **is == Is::Committed).count();
    (changes, committed)
}

#[test]
fn a_crash_leaves_timestamps_whole() {
    let (mut tried, mut committed) = (0, 0);
    let step = if long() { 1 } else { 6 };
    each_seed_of(&[WritePolicy::WriteCommitted], "a_crash_leaves_timestamps_whole", 4, 12, |seed| {
        for crash in [Crash::Power, Crash::Process] {
            let (changes, _) = stamped_at(seed, u64::MAX / 2, crash);
            for at in (seed * 5 % step..changes).step_by(step as usize) {
                committed += stamped_at(seed, at, crash).1;
                tried += 1;
            }
        }
    });
    println!("{tried} crashes, {committed} were committed");
    assert!(
        crate::number("KARST_SEED").is_some() || (tried > 30 && committed > 2 * tried),
        "{tried}, {committed}"
    );
}
