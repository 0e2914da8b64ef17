//! Crashes of the process or the power at any change of the disk: within prepare, commit and
//! rollback, flushes behind them, and the opening that follows. Acknowledged writes are there,
//! unfinished ones are whole or absent, prepared transactions have their locks and no other lock
//! exists, and each can be decided.

use crate::beside::{Beside, Early};
use crate::ledger::{Known, Step, User, check_lock_count, open, options};
use crate::{each_seed, long};
use karst_engine::FlushOptions;
use karst_engine::io::{Crash, CrashStates, Priority, Simulation};
use karst_testkit::random::Random;
use karst_txn::TransactionDb;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

type Shared = Arc<Mutex<Known>>;

fn shared(users: usize) -> Vec<Shared> {
    (0..users).map(|_| Shared::default()).collect()
}

/// Runs one life: open, work with that many users at once, and with plain writers if there are
/// several, close. Ends early, anywhere, if the power fails.
async fn live(
    simulation: &Simulation,
    (known, beside): (&[Shared], &Beside),
    steps: u64,
    sync: bool,
    seed: u64,
) {
    let fs = simulation.fs().clone();
    let mut random = Random::new(seed);
    let options = options(simulation.env());
    let Ok(db) = open(&options) else {
        assert!(fs.is_off(), "opening failed");
        return std::future::pending().await;
    };
    let users = known.len();
    let mut tasks = Vec::new();
    // A user alone has small writes gathered.
    for _ in 0..if users > 1 { 0 } else { random.below(3) } {
        if beside.write(&db, sync, false).await.is_err() {
            assert!(fs.is_off(), "the power is on");
            return std::future::pending().await;
        }
    }
    for (number, known) in known.iter().enumerate() {
        let mut user = User::new(number, &db, sync, random.fork());
        user.blocking = users == 1;
        let (known, fs, db) = (known.clone(), fs.clone(), db.clone());
        let mut flushes = random.fork();
        let work = async move {
            for _ in 0..steps {
                let step = user.draw(&known.lock().unwrap().clone());
                let outcome = user.step(step, &known).await;
                if outcome.is_err() && fs.is_off() {
                    return std::future::pending().await;
                }
                outcome.unwrap_or_else(|e| panic!("{step:?}: {e}"));
                if flushes.one_in(8) {
                    let asked = db.db().flush_async(&FlushOptions::default()).await;
                    assert!(asked.is_ok() || fs.is_off(), "flush: {asked:?}");
                }
            }
        };
        // A single user's work is no task, because a blocking job may linger on a task's thread,
        // and blocking calls would wait for it.
        match users {
            1 => work.await,
            _ => tasks.push(simulation.env().spawn(Priority::Low, work)),
        }
    }
    for _ in 1..users {
        let (beside, fs, db, mut looks) = (beside.clone(), fs.clone(), db.clone(), random.fork());
        tasks.push(simulation.env().spawn(Priority::Low, async move {
            for _ in 0..steps {
                if beside.write(&db, sync, looks.one_in(4)).await.is_err() {
                    assert!(fs.is_off(), "the power is on");
                    return std::future::pending().await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap_or_else(|e| panic!("{e}"));
    }
    let closed = db.db().close();
    assert!(closed.is_ok() || fs.is_off(), "close: {closed:?}");
}

/// Checks the contents, decides the prepared transactions if asked, and closes. `None` if the power
/// failed meanwhile.
fn look(
    simulation: &Simulation,
    (known, beside): (&[Shared], &Beside),
    decide: bool,
    seed: u64,
    when: &str,
) -> Option<()> {
    let opening = options(simulation.env());
    simulation.run(async {
        let db = match open(&opening) {
            Ok(db) => db,
            Err(_) if simulation.fs().is_off() => return std::future::pending().await,
            Err(e) => panic!("{when}: {e}"),
        };
        let mut random = Random::new(seed);
        let mut users: Vec<User> =
            (0..known.len()).map(|number| User::new(number, &db, true, random.fork())).collect();
        settle(&db, &mut users, known, when).await;
        // All acknowledged writes must be there, because they were synced or the power has not
        // failed.
        beside.settle(&db, when).await.unwrap_or_else(|e| panic!("{when}: {e}"));
        if decide {
            for (user, known) in users.iter_mut().zip(known) {
                while !known.lock().unwrap().certain.prepared.is_empty() {
                    let step = if random.one_in(2) { Step::Commit } else { Step::Rollback };
                    user.step(step, known).await.unwrap_or_else(|e| panic!("{when}: {step:?}: {e}"));
                }
            }
            settle(&db, &mut users, known, when).await;
            assert!(db.lock_status().is_empty(), "{when}: {:?}", db.lock_status());
        }
        drop(users);
        db.db().close().unwrap_or_else(|e| panic!("{when}: {e}"));
    })
}

async fn settle(db: &TransactionDb, users: &mut [User], known: &[Shared], when: &str) {
    let mut states = Vec::new();
    for (user, known) in users.iter_mut().zip(known) {
        let before = known.lock().unwrap().clone();
        let found = user.find(&before).await.unwrap_or_else(|e| panic!("{when}: {e}"));
        known.lock().unwrap().settle(&found, when);
        states.push(found);
    }
    check_lock_count(db, &states.iter().collect::<Vec<_>>());
    for (user, state) in users.iter().zip(&states) {
        user.check_locks(state).await;
    }
}

/// Runs a life, the crash at its change number `at`, and all checks afterwards. Returns the number
/// of changes of the life.
///
/// `live` gets its number of steps, and a seed. `look` gets true if it should decide the
/// transactions it finds, and a seed; it returns `None` if the power failed meanwhile.
pub(crate) fn crash_at(
    seed: u64,
    at: u64,
    crash: Crash,
    live: impl AsyncFn(&Simulation, u64, u64),
    look: impl Fn(&Simulation, bool, u64, &str) -> Option<()>,
) -> u64 {
    let simulation = Simulation::new(seed);
    // A life that ends well leaves tables, logs and prepared transactions for the next one.
    simulation.run(live(&simulation, 6, seed)).expect("the power is on");
    let simulation = simulation.restart(Crash::Process, seed + 1);
    let before = simulation.fs().changes();
    simulation.fs().lose_power_after(at);
    let done = simulation.run(live(&simulation, 8, seed + 2));
    let changes = simulation.fs().changes() - before;
    assert_eq!(done.is_none(), changes > at || simulation.fs().is_off(), "at {at} of {changes}");
    let when = &format!("seed {seed}, {crash:?} at {at}");
    let mut simulation = simulation.restart(crash, seed + 3);
    // The next two openings crash too; the contents they find must not have changed.
    let mut random = Random::new(seed * 1000 + at);
    for again in 0..2 {
        simulation.fs().lose_power_after(random.below(40));
        let _ = look(&simulation, false, seed, when);
        simulation = simulation.restart(crash, seed + 4 + again);
    }
    look(&simulation, true, seed + at, when).expect("the power is on");
    let simulation = simulation.restart(Crash::Power, seed + 9);
    look(&simulation, true, seed, &format!("{when}, after all was decided")).expect("the power is on");
    changes
}

/// Runs [`crash_at`] with `users` users, each with keys of its own. Also returns the counts of
/// early acknowledgements.
fn crash_users_at(seed: u64, users: usize, at: u64, crash: Crash) -> (u64, Early) {
    let (known, beside) = (shared(users), Beside::default());
    let sync = crash == Crash::Power;
    let changes = crash_at(
        seed,
        at,
        crash,
        async |simulation, steps, seed| live(simulation, (&known, &beside), steps, sync, seed).await,
        |simulation, decide, seed, when| {
            look(simulation, (&known, &beside), decide, seed, &format!("{when}, {users} users"))
        },
    );
    (changes, beside.early())
}

#[test]
fn a_crash_at_every_change_of_the_disk_leaves_transactions_whole() {
    let (mut tried, mut early) = (0, Early::default());
    let step = if long() { 1 } else { 8 };
    each_seed("a_crash_at_every_change_of_the_disk_leaves_transactions_whole", 4, 8, |seed| {
        for (users, crash) in [(1, Crash::Power), (1, Crash::Process), (3, Crash::Power)] {
            let (changes, _) = crash_users_at(seed, users, u64::MAX / 2, crash);
            assert!(changes > 20, "{changes} changes only");
            // In the short form not from 0, so that each seed begins elsewhere.
            for at in (seed * 3 % step..changes).step_by(step as usize) {
                let (_, seen) = crash_users_at(seed, users, at, crash);
                early.gathered += seen.gathered;
                early.overtaking += seen.overtaking;
                tried += 1;
            }
        }
    });
    println!("{tried} crashes; {early:?}");
    let one = crate::number("KARST_SEED").is_some();
    assert!(one || tried > 60, "{tried} crashes only");
    assert!(one || (early.gathered > 10 && early.overtaking > 10), "{early:?}");
}

/// The power fails at change number `at` of a second life: checks every possible state of the disk,
/// or some of them drawn by the seed. Returns the number of the life's changes, of the states, and
/// of those checked.
fn states_at(seed: u64, users: usize, at: u64, most: usize) -> (u64, usize, usize) {
    let (known, beside) = (shared(users), Beside::default());
    let simulation = Simulation::new(seed);
    simulation.fs().record();
    simulation.run(live(&simulation, (&known, &beside), 4, true, seed)).expect("the power is on");
    let simulation = simulation.restart(Crash::Process, seed + 1);
    let before = simulation.fs().changes();
    simulation.fs().lose_power_after(at);
    let _ = simulation.run(live(&simulation, (&known, &beside), 8, true, seed + 2));
    let changes = simulation.fs().changes() - before;
    let journal = simulation.fs().take_journal().expect("it is recorded");
    drop(simulation);
    let is_info_log =
        |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"));
    let mut states = CrashStates::new(&journal, is_info_log);
    while states.advance() {}
    let point = states.point(seed);
    let mut random = Random::new(seed * 1000 + at);
    let drawn: BTreeSet<usize> = (0..most).map(|_| random.index(point.len())).collect();
    // Left out for the reasons in docs/decisions/crash-states.md.
    let is_manifest = |path: &Path| path.to_string_lossy().contains("/MANIFEST-");
    let drawn = drawn.into_iter().filter(|state| !point.damaged(*state).is_some_and(is_manifest));
    let mut looked = 0;
    for state in drawn {
        let known: Vec<Shared> =
            known.iter().map(|known| Arc::new(Mutex::new(known.lock().unwrap().clone()))).collect();
        let when = format!(
            "seed {seed}, {users} users, power lost at {at}, after {}, state {state}: {}",
            states.last_change(),
            point.what(state)
        );
        let simulation = Simulation::with_image(&point.image(state), seed);
        look(&simulation, (&known, &beside.copy()), true, seed + at, &when).expect("the power is on");
        looked += 1;
    }
    (changes, point.len(), looked)
}

#[test]
fn any_state_that_a_power_failure_may_leave_has_transactions_whole() {
    let (mut boundaries, mut states, mut looked) = (0, 0, 0);
    let (step, most) = if long() { (1, 12) } else { (9, 5) };
    each_seed("any_state_that_a_power_failure_may_leave_has_transactions_whole", 2, 3, |seed| {
        for users in [1, 3] {
            let (changes, _, _) = states_at(seed, users, u64::MAX / 2, 1);
            for at in (seed * 4 % step..changes).step_by(step as usize) {
                let (_, there, seen) = states_at(seed, users, at, most);
                boundaries += 1;
                states += there;
                looked += seen;
            }
        }
    });
    println!("{boundaries} boundaries, {looked} of {states} states");
    assert!(crate::number("KARST_SEED").is_some() || looked > 60, "{looked} states only");
}
