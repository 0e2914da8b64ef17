//! The simulated machine: equal seeds give equal runs, other seeds give other runs, time jumps, and
//! power failures keep synced data.

use karst_io::testing::poll_times;
use karst_io::{
    Crash, Env, FileSystem, FileWriter, OpenOptions, Priority, Reactor, Simulation, Trouble, WriterOptions,
    block_on, open, read, reserve_space, sleep, sync_file, write_at, yield_now,
};
use std::future::pending;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs tasks with mixed operations; returns their observations, in order.
async fn mixture(env: Env) -> Vec<String> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..6u64)
        .map(|number| {
            let (env, log) = (env.clone(), log.clone());
            let say = move |text: String| log.lock().unwrap().push(format!("{number} {text}"));
            env.clone().spawn(Priority::Low, async move {
                let path = format!("/file-{number}");
                let mut file =
                    FileWriter::create(&env, Path::new(&path), WriterOptions::default()).await.unwrap();
                for round in 0..5u8 {
                    let span = Duration::from_nanos(env.random_seed() % 1_000_000_000);
                    sleep(&env, span).await;
                    file.append(vec![round; 1000]).await.unwrap();
                    say(format!("appended at {:?}", env.now()));
                    yield_now().await;
                    file.flush().await.unwrap();
                    let file = open(&env, Path::new(&path), OpenOptions::BUFFERED).await.unwrap();
                    let offset = u64::from(round) * 1000;
                    let (a, b) = (read(&env, &file, offset, 10), read(&env, &file, 5, 1));
                    assert_eq!((*a.await.unwrap()).to_vec(), [round; 10]);
                    assert_eq!((*b.await.unwrap()).to_vec(), [0]);
                    let listed = env.run_blocking(|env| env.fs().list_dir(Path::new("/")).unwrap()).await;
                    say(format!("sees {listed:?} at {:?}", env.unix_time()));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    Arc::into_inner(log).unwrap().into_inner().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let run = |seed| {
        let simulation = Simulation::new(seed);
        let log = simulation.run(mixture(simulation.env().clone())).unwrap();
        (log, simulation.history(), simulation.env().now())
    };
    let (first, second, other) = (run(1), run(1), run(2));
    assert_eq!(first, second);
    assert_ne!(first.0, other.0);
    assert_ne!(first.1, other.1);
    assert!(first.2 > Duration::from_secs(1), "time jumped to {:?} only", first.2);
}

#[test]
fn time_jumps_when_nothing_can_go_on() {
    let simulation = Simulation::new(1);
    let env = simulation.env().clone();
    // More than a day of the machine's time; a sleep of the thread would end the test by its limit.
    block_on(&env, sleep(&env, Duration::from_secs(100_000)));
    assert!(env.now() >= Duration::from_secs(100_000));
    assert!(env.unix_time() > Duration::from_secs(1_600_000_000));
}

#[test]
fn block_on_nests_and_panics_stay_in_their_tasks() {
    let simulation = Simulation::new(1);
    let env = simulation.env().clone();
    let inner = env.clone();
    let nested = env.spawn(Priority::High, async move {
        block_on(&inner, async { inner.spawn(Priority::High, async { 5 }).await.unwrap() })
    });
    assert_eq!(block_on(&env, nested).unwrap(), 5);
    let panics = env.spawn(Priority::High, async { panic!("on purpose") });
    assert!(block_on(&env, panics).unwrap_err().to_string().contains("on purpose"));
}

#[test]
#[should_panic(expected = "the simulation is stuck")]
fn waiting_for_nothing_is_found_out() {
    let simulation = Simulation::new(1);
    simulation.run(pending::<()>());
}

#[test]
fn there_are_no_threads() {
    let simulation = Simulation::new(1);
    let env = simulation.env();
    assert_eq!(env.spawn_thread("t", || ()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(Reactor::builder(env).build().unwrap_err().kind(), ErrorKind::Unsupported);
    // A read on a foreign executor fails too.
    let e = karst_io::testing::foreign_block_on(async {
        simulation.fs().create(Path::new("/file")).unwrap();
        let file = simulation.fs().open_random(Path::new("/file"), OpenOptions::BUFFERED).unwrap();
        read(env, &file, 0, 1).await.unwrap_err()
    });
    assert!(e.to_string().contains("outside of the simulation"), "{e}");
}

#[test]
fn tasks_end_with_the_simulation() {
    let simulation = Simulation::new(1);
    let task = simulation.env().spawn(Priority::Low, pending::<()>());
    drop(simulation);
    assert!(task.is_finished());
}

/// A file is written without blocking, some writes are given up half-way and begun again, and it is
/// synced now and then; the power fails at every change in turn.
#[test]
fn what_was_written_without_blocking_survives_once_it_is_synced() {
    const PIECE: u64 = 1000;
    let (mut torn, mut failures) = (0, 0);
    for after in 0..150 {
        let simulation = Simulation::new(after);
        let env = simulation.env().clone();
        simulation.fs().lose_power_after(after);
        let durable = Arc::new(Mutex::new(0));
        let theirs = durable.clone();
        let end = simulation.run(async move {
            let file = env.fs().create_positional(Path::new("/log"))?;
            env.fs().sync_dir(Path::new("/"))?;
            for number in 0..40u64 {
                let (offset, data) = (number * PIECE, Arc::new(vec![number as u8 + 1; PIECE as usize]));
                reserve_space(&env, &file, offset, PIECE).await?;
                let begun = pin!(write_at(&env, &file, offset, data.clone()));
                poll_times(begun, number % 3).await.transpose()?;
                write_at(&env, &file, offset, data).await?;
                if number % 4 == 3 {
                    sync_file(&env, &file, number % 8 == 3).await?;
                    *theirs.lock().unwrap() = offset + PIECE;
                }
            }
            assert!(env.io_stats().writes > 90, "{:?}", env.io_stats());
            Ok::<_, karst_io::Error>(())
        });
        failures += u64::from(end.is_none());
        let durable = *durable.lock().unwrap();
        let simulation = simulation.restart(Crash::Power, after);
        let bytes = simulation.fs().read_file(Path::new("/log")).unwrap_or_default();
        assert!(bytes.len() as u64 >= durable, "{} of {durable} bytes after {after}", bytes.len());
        for (at, byte) in bytes.iter().enumerate() {
            let wanted = (at as u64 / PIECE) as u8 + 1;
            assert!(*byte == wanted || (*byte == 0 && at as u64 >= durable), "at {at} after {after}");
        }
        torn += u64::from(!(bytes.len() as u64).is_multiple_of(PIECE) || bytes.contains(&0));
    }
    assert!(failures > 50 && torn > 10, "{failures} failures, {torn} files with a torn end");
}

/// Files are made durable one after the other, each with its directory, while others are written
/// and not synced; the power fails at every change in turn.
#[test]
fn what_was_synced_survives_at_every_change() {
    let (mut names_lost, mut names_kept, mut tails_lost) = (0, 0, 0);
    for after in 0..400 {
        let simulation = Simulation::new(after);
        let env = simulation.env().clone();
        simulation.fs().lose_power_after(after);
        let durable = Arc::new(Mutex::new((0u32, 0u64)));
        let theirs = durable.clone();
        let end = simulation.run(async move {
            let (root, mut log) = (Path::new("/"), env.fs().create(Path::new("/log"))?);
            env.fs().sync_dir(root)?;
            for number in 0..60u32 {
                let path = format!("/{number}");
                let options = WriterOptions { direct: number % 2 == 0, ..WriterOptions::default() };
                let mut file = FileWriter::create(&env, Path::new(&path), options).await?;
                file.append(vec![number as u8; 700]).await?;
                log.append(&[number as u8; 100])?;
                if number % 3 == 0 {
                    file.sync().await?;
                    file.finish().await?;
                    let renamed = format!("/done-{number}");
                    env.fs().rename(Path::new(&path), Path::new(&renamed))?;
                    env.fs().sync_dir(root)?;
                    theirs.lock().unwrap().0 = number + 1;
                    log.sync()?;
                    theirs.lock().unwrap().1 = u64::from(number + 1) * 100;
                }
            }
            Ok::<_, karst_io::Error>(())
        });
        let (files, log_bytes) = *durable.lock().unwrap();
        assert!(end.is_none() || files == 58, "{after}");
        let crash = if after % 4 == 0 { Crash::Process } else { Crash::Power };
        let simulation = simulation.restart(crash, after);
        let fs = simulation.fs();
        for number in (0..files).step_by(3) {
            let path = format!("/done-{number}");
            assert_eq!(
                fs.read_file(Path::new(&path)).unwrap(),
                vec![number as u8; 700],
                "{path} after {after}"
            );
        }
        for number in files..60 {
            let is_there = fs.exists(Path::new(&format!("/{number}"))).unwrap();
            if crash == Crash::Power {
                *(if is_there { &mut names_kept } else { &mut names_lost }) += 1;
            }
        }
        let log = fs.read_file(Path::new("/log")).unwrap_or_default();
        assert!(log.len() as u64 >= log_bytes);
        tails_lost += u32::from(log.len() as u64 == log_bytes);
        assert!(log[..log_bytes as usize].iter().enumerate().all(|(at, b)| usize::from(*b) == at / 100));
        // The machine works again.
        let env = simulation.env().clone();
        let mut file = env.fs().create(Path::new("/again")).unwrap();
        file.append(b"x").unwrap();
        file.sync().unwrap();
    }
    assert!(names_lost > 50 && names_kept > 50 && tails_lost > 50, "{names_lost} {names_kept} {tails_lost}");
}

#[test]
fn handles_of_an_earlier_life_are_dead_and_locks_are_free() {
    let simulation = Simulation::new(1);
    let path = Path::new("/file");
    let fs = simulation.fs().clone();
    let lock = fs.lock(Path::new("/LOCK")).unwrap();
    assert_eq!(fs.lock(Path::new("/LOCK")).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut file = fs.create(path).unwrap();
    file.append(b"kept").unwrap();
    let simulation = simulation.restart(Crash::Process, 2);
    assert!(file.append(b"x").is_err() && file.sync().is_err());
    assert_eq!(fs.read_file(path).unwrap(), b"kept");
    let second = fs.lock(Path::new("/LOCK")).unwrap();
    drop(lock);
    assert!(fs.lock(Path::new("/LOCK")).is_err(), "a lock of an earlier life released ours");
    drop((second, simulation));
}

#[test]
fn trouble_comes_as_often_as_told() {
    let simulation = Simulation::new(1);
    let fs = simulation.fs();
    let mut file = fs.create(Path::new("/file")).unwrap();
    fs.set_trouble(Trouble { write_error: 0.3, no_space: 0.5, ..Trouble::default() });
    let (mut full, mut broken, mut good) = (0, 0, 0);
    for _ in 0..1000 {
        match file.append(&[1; 100]) {
            Ok(()) => good += 1,
            Err(e) if e.kind() == ErrorKind::StorageFull => full += 1,
            Err(_) => broken += 1,
        }
    }
    assert_eq!(file.size(), good * 100);
    assert!(
        fs.read_file(Path::new("/file")).unwrap().len() as u64 > good * 100,
        "no failed write left a part"
    );
    assert_eq!(fs.failures(), 1000 - good);
    assert!((500..900).contains(&good) && full > 50 && broken > 50, "{good} {full} {broken}");
    fs.set_trouble(Trouble { sync_error: 1.0, ..Trouble::default() });
    assert!(file.sync().is_err() && fs.sync_dir(Path::new("/")).is_err());
    fs.set_trouble(Trouble { read_error: 1.0, name_error: 1.0, ..Trouble::default() });
    assert!(fs.read_file(Path::new("/file")).is_err() && fs.create(Path::new("/other")).is_err());
    assert!(fs.remove(Path::new("/file")).is_err() && fs.exists(Path::new("/file")).unwrap());
}

#[test]
fn a_full_disk_takes_what_there_is_room_for_and_has_room_again_when_files_go() {
    let simulation = Simulation::new(1);
    let fs = simulation.fs();
    let (path, other) = (Path::new("/file"), Path::new("/other"));
    assert_eq!(fs.free_bytes(path.parent().unwrap()).unwrap(), None);
    let mut file = fs.create(path).unwrap();
    fs.set_capacity(Some(1000));
    file.append(&[1; 700]).unwrap();
    let writer = fs.create_positional(other).unwrap();
    let refused = writer.write_at(0, &[2; 400]).unwrap_err();
    assert!(refused.is_no_space() && fs.read_file(other).unwrap() == [2; 300], "{refused}");
    assert_eq!(fs.free_bytes(other).unwrap(), Some(0));
    writer.write_at(100, &[3; 200]).unwrap();
    fs.remove(other).unwrap();
    file.append(&[1; 300]).unwrap();
    fs.set_full(Some(|path| path.ends_with("other")));
    fs.set_capacity(None);
    assert!(fs.create(other).unwrap_err().is_no_space());
    fs.set_full(None);
    fs.create(other).unwrap().append(&[4; 5000]).unwrap();
}

/// Creates a file in a job, and logs the job's number before and after.
async fn creation(env: Env, number: u64, log: Arc<Mutex<Vec<(u64, bool)>>>) {
    let job = move |env: &Env| {
        log.lock().unwrap().push((number, false));
        env.fs().create(Path::new(&format!("/file-{number}"))).map(drop).unwrap();
        log.lock().unwrap().push((number, true));
    };
    env.run_blocking(job).await;
}

#[test]
fn a_job_that_begins_first_may_end_last() {
    let run = |seed| {
        let simulation = Simulation::new(seed);
        let (env, log) = (simulation.env(), Arc::default());
        let task = |number| env.spawn(Priority::Low, creation(env.clone(), number, Arc::clone(&log)));
        let tasks = [task(1), task(2)];
        simulation
            .run(async {
                for task in tasks {
                    task.await.unwrap()
                }
            })
            .unwrap();
        let log = log.lock().unwrap().clone();
        let at = |what| log.iter().position(|noted| *noted == what).unwrap();
        at((1, false)) < at((2, false)) && at((2, true)) < at((1, true))
    };
    let overtaken = (0..200).filter(|seed| run(*seed)).count();
    assert!(overtaken > 2 && overtaken < 100, "{overtaken} of 200");
    assert!((0..20).all(|seed| run(seed) == run(seed)));
}

/// With room for the written bytes, and less than is reserved ahead of them.
#[test]
fn a_writer_needs_no_room_for_its_reservation() {
    for direct in [false, true] {
        let simulation = Simulation::new(1);
        let env = simulation.env().clone();
        simulation.fs().set_capacity(Some(100_000));
        let written = simulation.run(async move {
            let options = WriterOptions { direct, reserve: 1 << 20, ..WriterOptions::default() };
            let mut file = FileWriter::create(&env, Path::new("/file"), options).await?;
            for _ in 0..8 {
                file.append(vec![1; 10_000]).await?;
            }
            file.finish().await
        });
        assert_eq!(written.unwrap().unwrap(), 80_000, "direct: {direct}");
    }
}
