//! The read half: a database at rest, read by many tasks at once in every form, from a disk that is
//! slow and sometimes fails.

use crate::{each_seed, same_trace};
use karst_engine::{BulkLoader, Db, ErrorKind, Options, ReadOptions};
use karst_io::{Env, Priority, Simulation, Trouble, sleep};
use karst_testkit::random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 600;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn options(env: &Env, random: &mut Random) -> Options {
    let text = "target_file_size_base=8000;target_file_size_multiplier=1;block_size=512;format_version=6;\
                filter_policy=bloomfilter:10:false;index_type=kTwoLevelIndexSearch;partition_filters=true;\
                metadata_block_size=256;enable_blob_files=true;min_blob_size=300";
    let cache = [0, 10_000, 1 << 20][random.index(3)];
    let open_files = [-1, 3][random.index(2)];
    let options = Options::new().set_all(text).unwrap().env(env.clone()).block_cache_bytes(cache);
    options.db(move |db| db.max_open_files = open_files)
}

/// Bulk-loads three levels and L0; returns the entries.
fn load(options: &Options, random: &mut Random) -> Entries {
    let mut loader = BulkLoader::create("/db", options).unwrap();
    let mut entries = Entries::new();
    for (level, step) in [(5, 1), (3, 3), (1, 4), (0, 9)] {
        for number in (random.below(step)..KEYS).step_by(step as usize) {
            if level < 5 && random.one_in(5) {
                loader.delete(&key(number)).unwrap();
                entries.remove(&key(number));
            } else {
                let len = if random.one_in(10) { 900 } else { 60 };
                let value = random.bytes(len);
                loader.put(&key(number), &value).unwrap();
                entries.insert(key(number), value);
            }
        }
        loader.seal(level).unwrap();
    }
    loader.finish().unwrap();
    entries
}

/// Makes reads one after the other; returns the numbers that succeeded and failed.
async fn ask(db: Db, entries: Arc<Entries>, mut random: Random) -> (u64, u64) {
    let (mut answered, mut failed) = (0, 0);
    let env = db.env().clone();
    for _ in 0..40 {
        let result = match random.below(4) {
            0 | 1 => get(&db, &entries, &mut random).await,
            2 => multi_get(&db, &entries, &mut random).await,
            _ => walk(&db, &entries, &mut random).await,
        };
        match result {
            Ok(()) => answered += 1,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Io, "{e}");
                failed += 1;
            }
        }
        if random.one_in(4) {
            sleep(&env, Duration::from_micros(random.below(500))).await;
        }
    }
    (answered, failed)
}

async fn get(db: &Db, entries: &Entries, random: &mut Random) -> karst_engine::Result<()> {
    let key = key(random.below(KEYS + 20));
    let got = db.get_async(&key).await?;
    assert_eq!(got.as_deref(), entries.get(&key).map(Vec::as_slice), "{}", karst_testkit::show(&key));
    Ok(())
}

async fn multi_get(db: &Db, entries: &Entries, random: &mut Random) -> karst_engine::Result<()> {
    let keys: Vec<_> = (0..1 + random.below(20)).map(|_| key(random.below(KEYS + 20))).collect();
    for (key, got) in keys.iter().zip(db.multi_get_async(&keys).await) {
        assert_eq!(got?.as_deref(), entries.get(key).map(Vec::as_slice), "{}", karst_testkit::show(key));
    }
    Ok(())
}

async fn walk(db: &Db, entries: &Entries, random: &mut Random) -> karst_engine::Result<()> {
    let (from, steps) = (key(random.below(KEYS + 20)), random.below(60));
    let mut cursor = db.iter(&ReadOptions::default())?;
    let is_same = |cursor: &karst_engine::DbIterator, expected: Option<(&Vec<u8>, &Vec<u8>)>| {
        let got = cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
        assert_eq!(got.as_ref().map(|(key, value)| (key, value)), expected);
    };
    if random.one_in(2) {
        cursor.seek_async(&from).await?;
        for expected in entries.range(from..).take(steps as usize) {
            is_same(&cursor, Some(expected));
            cursor.next_async().await?;
        }
    } else {
        cursor.seek_for_prev_async(&from).await?;
        for expected in entries.range(..=from).rev().take(steps as usize) {
            is_same(&cursor, Some(expected));
            cursor.prev_async().await?;
        }
    }
    Ok(())
}

/// Results of one run.
struct Outcome {
    history: (u64, u64),
    trace: Vec<String>,
    answered: u64,
    failed: u64,
}

fn run(seed: u64, with_trace: bool) -> Outcome {
    let mut random = Random::new(seed);
    let simulation = Simulation::new(seed);
    if with_trace {
        simulation.keep_trace();
    }
    let options = options(simulation.env(), &mut random);
    let entries = Arc::new(load(&options, &mut random));
    let done = simulation.run(async {
        let env = simulation.env();
        let opened = env.spawn(Priority::Low, async move { Db::open_read_only("/db", &options) }).await;
        let db = opened.unwrap().unwrap();
        let trouble = if random.one_in(2) { 0.002 } else { 0.0 };
        simulation.fs().set_trouble(Trouble { read_error: trouble, ..Trouble::default() });
        let tasks: Vec<_> = (0..8)
            .map(|_| env.spawn(Priority::Low, ask(db.clone(), entries.clone(), random.fork())))
            .collect();
        let (mut answered, mut failed) = (0, 0);
        for task in tasks {
            let (right, wrong) = task.await.unwrap();
            (answered, failed) = (answered + right, failed + wrong);
        }
        (answered, failed)
    });
    let (answered, failed) = done.unwrap();
    // The reverse need not hold: a failed readahead that no read used is not seen.
    assert!(failed == 0 || simulation.fs().failures() > 0, "a failure was made up");
    Outcome { history: simulation.history(), trace: simulation.take_trace(), answered, failed }
}

#[test]
fn the_same_seed_reads_the_same_history() {
    each_seed("the_same_seed_reads_the_same_history", 3, 20, |seed| {
        let (first, second) = (run(seed, true), run(seed, true));
        same_trace(&first.trace, &second.trace);
        assert_eq!((first.history, first.answered), (second.history, second.answered));
        assert_ne!(first.history, run(seed + 1, false).history);
    });
}

#[test]
fn every_answer_is_right_or_says_that_the_disk_failed() {
    let (mut answered, mut failed) = (0, 0);
    each_seed("every_answer_is_right_or_says_that_the_disk_failed", 30, 600, |seed| {
        let outcome = run(seed, false);
        (answered, failed) = (answered + outcome.answered, failed + outcome.failed);
    });
    assert!(answered > 300 && (failed > 0 || crate::number("KARST_SEED").is_some()), "{answered} {failed}");
}
