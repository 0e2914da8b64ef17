//! Writes, prepares and decisions that are not synced, in all column families, with flushes and
//! compactions in between; then the power fails. The contents are the state after some write at or
//! behind the last synced one: a lost decision has left no entries in tables that its transaction,
//! now prepared again, would tear or show. Meanwhile a secondary instance shows all committed
//! writes whenever it has caught up, and nothing else.

use crate::beside::Beside;
use crate::each_seed;
use crate::ledger::{Known, PATH, Step, User, check_lock_count, open, options};
use karst_engine::io::{Crash, Simulation};
use karst_engine::{
    BottommostLevelCompaction, CompactFilesOptions, CompactRangeOptions, Db, ErrorKind, FlushOptions,
    LiveFile, Options, ReadOptions, Result,
};
use karst_testkit::random::Random;
use karst_txn::TransactionDb;
use std::sync::Mutex;

/// Prepared entries come into tables, and a job acts on an unsynced decision: non-empty memtables
/// release its log, and files are compacted without a flush before.
async fn jobs_go_by_a_decision(
    db: &TransactionDb,
    user: &mut User,
    known: &Mutex<Known>,
    random: &mut Random,
) -> Result<()> {
    db.db().flush_async(&FlushOptions::default()).await?;
    user.step(Step::Write, known).await?;
    let decision = if random.one_in(2) { Step::Commit } else { Step::Rollback };
    user.step(decision, known).await?;
    let is_table = |file: &LiveFile| file.level.is_some() && file.column_family == "default";
    let files: Vec<u64> = db.db().live_files().into_iter().filter(is_table).map(|file| file.number).collect();
    let family = db.db().default_column_family();
    match db.db().compact_files_async(&CompactFilesOptions::default(), family, &files, 6).await {
        // Another compaction has these files.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::TryAgain) => Ok(()),
        done => done.map(drop),
    }
}

/// Opens a secondary instance or catches it up; checks that it shows the certain state.
async fn follow(
    secondary: &mut Option<Db>,
    options: &Options,
    (user, known): (&User, &Mutex<Known>),
    when: &str,
) -> Result<u64> {
    let there = match secondary.take() {
        Some(db) => db.try_catch_up_with_primary_async().await.map(|()| db),
        None => {
            // With a limit, files that it has not opened yet may be removed.
            let options = options.clone().set("max_open_files", "-1")?;
            Db::open_as_secondary_async(PATH, "/secondary", &options).await
        }
    };
    let db = match there {
        // A log or a table was removed meanwhile.
        Err(e) if e.kind() == ErrorKind::TryAgain => return Ok(0),
        there => there?,
    };
    let found = user.read_from(&db, &ReadOptions::new()).await?;
    assert_eq!(found, known.lock().unwrap().certain.data, "{when}, in a secondary");
    *secondary = Some(db);
    Ok(1)
}

/// Flushes a decision; its log is removed with that of the prepared section.
async fn a_decision_goes_with_its_log(
    db: &TransactionDb,
    user: &mut User,
    known: &Mutex<Known>,
    random: &mut Random,
) -> Result<()> {
    let decision = if random.one_in(3) { Step::Rollback } else { Step::Commit };
    user.step(decision, known).await?;
    let families = db.db().column_families();
    let families: Vec<_> = families.iter().collect();
    for _ in 0..2 {
        user.step(Step::Write, known).await?;
        db.db().flush_cfs_async(&FlushOptions::default(), &families).await?;
    }
    Ok(())
}

/// Runs one life: checks the contents; then works until the power fails or `steps` steps are done.
async fn live(
    simulation: &Simulation,
    (known, beside): (&Mutex<Known>, &Beside),
    steps: u64,
    seed: u64,
    when: &str,
) -> u64 {
    let fs = simulation.fs().clone();
    let mut random = Random::new(seed);
    let opening = options(simulation.env());
    let db = match open(&opening) {
        Ok(db) => db,
        Err(_) if fs.is_off() => return std::future::pending().await,
        Err(e) => panic!("{when}: {e}"),
    };
    let mut user = User::new(0, &db, false, random.fork());
    user.wavers = true;
    let before = known.lock().unwrap().clone();
    let found = match user.find(&before).await {
        Ok(found) => found,
        Err(_) if fs.is_off() => return std::future::pending().await,
        Err(e) => panic!("{when}: {e}"),
    };
    known.lock().unwrap().settle(&found, when);
    match beside.settle(&db, when).await {
        Err(_) if fs.is_off() => return std::future::pending().await,
        settled => settled.unwrap_or_else(|e| panic!("{when}: {e}")),
    }
    check_lock_count(&db, &[&found]);
    let (mut secondary, mut followed) = (None, 0);
    let flush = || async { db.db().flush_async(&FlushOptions::default()).await };
    for _ in 0..steps {
        let state = known.lock().unwrap().clone();
        let burst = if random.one_in(3) {
            beside.burst(simulation.env(), &db, false, &mut random)
        } else {
            Vec::new()
        };
        // Not beside others; see [`User::blocking`].
        user.blocking = burst.is_empty();
        let mut outcome = match random.below(10) {
            0 => flush().await,
            1 => {
                let bottommost_level_compaction = BottommostLevelCompaction::Force;
                let all =
                    CompactRangeOptions { bottommost_level_compaction, ..CompactRangeOptions::default() };
                db.db().compact_range_async(&all, None, None).await
            }
            2..5 if !state.certain.prepared.is_empty() => {
                jobs_go_by_a_decision(&db, &mut user, known, &mut random).await
            }
            5 if !state.certain.prepared.is_empty() => {
                let caught_up = follow(&mut secondary, &opening, (&user, known), when).await;
                match caught_up {
                    Ok(caught_up) => {
                        followed += caught_up;
                        a_decision_goes_with_its_log(&db, &mut user, known, &mut random).await
                    }
                    Err(e) => Err(e),
                }
            }
            _ => {
                let step = user.draw(&state);
                user.step(step, known).await
            }
        };
        for write in burst {
            let written = write.await.unwrap_or_else(|e| panic!("{e}"));
            outcome = outcome.and(written);
        }
        if outcome.is_err() && fs.is_off() {
            return std::future::pending().await;
        }
        outcome.unwrap_or_else(|e| panic!("{when}: {e}"));
        if random.one_in(5) {
            match follow(&mut secondary, &opening, (&user, known), when).await {
                Err(_) if fs.is_off() => return std::future::pending().await,
                caught_up => followed += caught_up.unwrap_or_else(|e| panic!("{when}, in a secondary: {e}")),
            }
        }
    }
    followed
}

#[test]
fn a_decision_that_is_lost_has_left_nothing_in_tables() {
    let (mut lives, mut lost, mut overtaking, mut followed) = (0, 0, 0, 0);
    each_seed("a_decision_that_is_lost_has_left_nothing_in_tables", 60, 1500, |seed| {
        let mut simulation = Simulation::new(seed);
        let (known, beside) = (Mutex::new(Known::default()), Beside::default());
        let mut random = Random::new(seed + 77);
        for life in 0..5 {
            let when = format!("seed {seed}, life {life}");
            if life > 0 && random.one_in(2) {
                simulation.fs().lose_power_after(random.below(120));
            }
            let (steps, parts) = (8 + random.below(25), (&known, &beside));
            let done = simulation.run(live(&simulation, parts, steps, seed * 100 + life, &when));
            lost += u64::from(done.is_none());
            followed += done.unwrap_or(0);
            lives += 1;
            let crash = if random.one_in(4) { Crash::Process } else { Crash::Power };
            beside.crashed(crash);
            simulation = simulation.restart(crash, seed * 100 + life + 50);
        }
        let when = format!("seed {seed}, at the end");
        simulation.run(live(&simulation, (&known, &beside), 0, seed, &when)).expect("the power is on");
        overtaking += beside.early().overtaking;
    });
    println!(
        "{lives} lives, of which {lost} ended where the power failed; {overtaking} writes were acknowledged before older ones were inserted; a secondary caught up {followed} times"
    );
    let one_seed = crate::number("KARST_SEED").is_some();
    assert!(one_seed || (overtaking > 10 && followed > 50), "{overtaking} and {followed} only");
}
