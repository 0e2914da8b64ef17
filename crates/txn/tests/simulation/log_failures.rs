//! Log failures while transactions are prepared, committed and rolled back: the call fails and
//! leaves the transaction as it was, with its locks and invisible. The next opening finds the
//! acknowledged state, with or without the change of the failed call.

use crate::beside::{Beside, Early};
use crate::each_seed;
use crate::ledger::{Known, Step, User, check_lock_count, open, options};
use karst_engine::io::{Crash, Simulation, Trouble};
use karst_engine::{BackgroundErrorReason, ErrorKind, FlushOptions, ReadOptions, Severity};
use karst_testkit::random::Random;
use karst_txn::TransactionDb;
use std::sync::Mutex;

async fn found(user: &mut User, known: &Mutex<Known>) -> crate::ledger::State {
    let before = known.lock().unwrap().clone();
    user.find(&before).await.unwrap()
}

/// Runs `step` while the log fails; checks that it fails and changes nothing visible.
async fn fail(simulation: &Simulation, user: &mut User, known: &Mutex<Known>, step: Step, trouble: Trouble) {
    simulation.fs().set_trouble(trouble);
    let error = user.step(step, known).await.expect_err("the log fails");
    // Another writer may have met the failure first, so that this step is refused.
    let is_refused = !user.blocking && error.kind() == ErrorKind::InvalidArgument;
    assert!(is_refused || error.kind() == ErrorKind::Io, "{step:?}: {error}");
    simulation.fs().set_trouble(Trouble::default());
    let state = found(user, known).await;
    assert_eq!(state, known.lock().unwrap().certain, "{step:?} failed, and shows");
}

/// Runs one life. Returns true if the database resumed, and the last acknowledged sequence number.
async fn live(
    simulation: &Simulation,
    (known, beside): (&Mutex<Known>, &Beside),
    seed: u64,
    least: u64,
) -> (bool, u64) {
    let mut random = Random::new(seed);
    let db = open(&options(simulation.env())).unwrap();
    assert!(db.db().latest_sequence_number() >= least, "sequence numbers went back over an opening");
    let mut user = User::new(0, &db, true, random.fork());
    let state = found(&mut user, known).await;
    known.lock().unwrap().settle(&state, &format!("seed {seed}"));
    beside.settle(&db, &format!("seed {seed}")).await.unwrap();
    check_lock_count(&db, &[&state]);
    // In some lives the log fails at once, because a lone writer has small writes gathered until it
    // meets another.
    let at_once = random.one_in(3);
    for _ in 0..if at_once { 0 } else { 3 + random.below(6) } {
        let burst = if random.one_in(2) {
            beside.burst(simulation.env(), &db, true, &mut random)
        } else {
            Vec::new()
        };
        // Not beside others; see [`User::blocking`].
        user.blocking = burst.is_empty();
        let step = user.draw(&known.lock().unwrap().clone());
        user.step(step, known).await.unwrap();
        for write in burst {
            write.await.unwrap_or_else(|e| panic!("{e}")).unwrap();
        }
        if random.one_in(6) {
            db.db().flush_async(&FlushOptions::default()).await.unwrap();
        }
    }
    // In half of the other lives no transaction is prepared when the log fails.
    let none = !at_once && random.one_in(2);
    while none && !known.lock().unwrap().certain.prepared.is_empty() {
        let step = if random.one_in(2) { Step::Commit } else { Step::Rollback };
        user.step(step, known).await.unwrap();
    }
    user.let_go();
    let prepared = !known.lock().unwrap().certain.prepared.is_empty();
    let last = db.db().latest_sequence_number();
    let steps: &[Step] = match prepared {
        true if !known.lock().unwrap().certain.has_free_keys() => &[Step::Commit, Step::Rollback],
        true => &[Step::Write, Step::Transaction, Step::Prepare, Step::Commit, Step::Rollback],
        false => &[Step::Write, Step::Transaction, Step::Prepare],
    };
    let step = steps[random.index(steps.len())];
    let trouble = match random.one_in(2) {
        true => Trouble { write_error: 1.0, ..Trouble::default() },
        false => Trouble { sync_error: 1.0, ..Trouble::default() },
    };
    let snapshot = db.db().snapshot();
    let before = known.lock().unwrap().certain.clone();
    let burst = match at_once {
        true => {
            for _ in 0..random.below(4) {
                beside.write(&db, true, false).await.unwrap();
            }
            Vec::new()
        }
        false => beside.burst(simulation.env(), &db, true, &mut random),
    };
    user.blocking = burst.is_empty();
    fail(simulation, &mut user, known, step, trouble).await;
    for write in burst {
        // Writes that came after the database resumed by itself have succeeded.
        let _ = write.await.unwrap_or_else(|e| panic!("{e}"));
    }
    assert!(db.db().latest_sequence_number() >= last, "sequence numbers went back when the log failed");
    check_lock_count(&db, &[&known.lock().unwrap().certain]);
    let certain = known.lock().unwrap().certain.clone();
    user.check_locks(&certain).await;

    // Prepared transactions, and one being prepared, decide if it resumes. Otherwise a switch of
    // memtables failed in the MANIFEST before the log had a record of the step.
    let log_failed =
        db.db().background_error().is_some_and(|e| e.reason == BackgroundErrorReason::WriteCallback);
    let resumed = db.db().resume_async().await.is_ok();
    if prepared && log_failed {
        assert!(!resumed, "it resumed with transactions prepared, and its log in doubt");
        let severity = db.db().background_error().map(|error| error.severity);
        assert!(severity >= Some(Severity::Fatal), "{severity:?}");
    }
    let more = db.db().latest_sequence_number();
    assert!(more >= last, "sequence numbers went back when the database resumed");
    if resumed {
        beside.refused();
        goes_on(&db, &mut user, known, &snapshot, &before, more).await;
    } else {
        let refused = db.put_async(b"nobody's", b"1").await;
        assert!(refused.is_err(), "it takes writes after a failed log");
    }
    drop(snapshot);
    // Not the latest number, because numbers of failed writes, which no file has, may be reused by
    // the next life.
    let last = if resumed { db.db().latest_sequence_number() } else { last };
    user.let_go();
    // Some lives end with a crash.
    if random.one_in(2) {
        let _ = db.db().close();
    }
    (resumed, last)
}

/// Checks a database that has resumed: the failed change did not happen and will not, new writes
/// have larger numbers than all others, and old snapshots are unchanged.
async fn goes_on(
    db: &TransactionDb,
    user: &mut User,
    known: &Mutex<Known>,
    snapshot: &karst_engine::Snapshot,
    before: &crate::ledger::State,
    mut last: u64,
) {
    known.lock().unwrap().refused();
    for _ in 0..6 {
        let step = user.draw(&known.lock().unwrap().clone());
        user.step(step, known).await.unwrap_or_else(|e| panic!("{step:?} after the log was replaced: {e}"));
        let now = db.db().latest_sequence_number();
        // A prepare and a rollback take no number.
        assert!(now > last || matches!(step, Step::Prepare | Step::Rollback), "{step:?} took no number");
        last = now;
    }
    let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::new() };
    let seen = user.read(&options).await.unwrap();
    assert_eq!(seen, before.data, "an old snapshot shows what was written later");
}

#[test]
fn a_log_that_fails_leaves_transactions_as_they_were() {
    let (mut resumed, mut opened_anew, mut early) = (0, 0, Early::default());
    each_seed("a_log_that_fails_leaves_transactions_as_they_were", 20, 400, |seed| {
        let mut simulation = Simulation::new(seed);
        let (known, beside, mut last) = (Mutex::new(Known::default()), Beside::default(), 0);
        for life in 0..5 {
            let lived = simulation.run(live(&simulation, (&known, &beside), seed * 100 + life, last));
            let (has_resumed, largest) = lived.expect("the power is on");
            last = largest;
            if has_resumed {
                resumed += 1
            } else {
                opened_anew += 1
            }
            // Acknowledged writes were synced, so they survive a loss of power too.
            let crash = if (seed + life).is_multiple_of(2) { Crash::Power } else { Crash::Process };
            simulation = simulation.restart(crash, seed * 100 + life + 50);
        }
        early.gathered += beside.early().gathered;
        early.overtaking += beside.early().overtaking;
    });
    println!("{early:?}; the database resumed {resumed} times and had to be opened anew {opened_anew} times");
    let one = crate::number("KARST_SEED").is_some();
    assert!(one || (resumed > 10 && opened_anew > 10), "{resumed} and {opened_anew}");
    assert!(one || (early.gathered > 10 && early.overtaking > 10), "{early:?}");
}
