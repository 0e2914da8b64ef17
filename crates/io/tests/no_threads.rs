//! Without threads from the operating system, reads and jobs still run, never under a lock of their
//! caller, and errors are passed on.

use karst_io::testing::{ThreadAllowance, foreign_block_on};
use karst_io::{Env, MemoryFileSystem, OpenOptions, Priority, TransportKind, block_on, open, read, sleep};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn env(allowance: &Arc<ThreadAllowance>) -> Env {
    Env::builder().transport(TransportKind::Threads).thread_allowance(allowance.clone()).build()
}

#[test]
fn a_job_without_a_thread_is_done_by_who_awaits_it_and_not_under_its_locks() {
    let env = env(&ThreadAllowance::new(0));
    let lock = Arc::new(Mutex::new(()));
    let in_job = lock.clone();
    let held = lock.lock().unwrap();
    let first = env.run_blocking(move |_| in_job.try_lock().is_ok());
    let unseen = Arc::new(Mutex::new(0));
    let in_job = unseen.clone();
    drop(env.run_blocking(move |_| *in_job.try_lock().unwrap() += 1));
    let second = env.run_blocking(|_| 7);
    drop(held);
    assert!(!first.is_done());
    assert_eq!((block_on(&env, first), foreign_block_on(second)), (true, 7));
    assert_eq!(*unseen.lock().unwrap(), 1, "whoever awaits does what was queued before");
}

#[test]
fn files_are_read_without_threads() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"limestone").unwrap();
    let env = env(&ThreadAllowance::new(0));
    let opened = block_on(&env, open(&env, file.path(), OpenOptions::default())).unwrap();
    assert_eq!(&*block_on(&env, read(&env, &opened, 4, 5)).unwrap(), b"stone");
    // Files that are not the operating system's work too.
    let files = MemoryFileSystem::new();
    files.write_file(Path::new("/table"), b"limestone".to_vec()).unwrap();
    let env = Env::builder().file_system(Arc::new(files)).thread_allowance(ThreadAllowance::new(0)).build();
    let opened = block_on(&env, open(&env, Path::new("/table"), OpenOptions::default())).unwrap();
    assert_eq!(&*block_on(&env, read(&env, &opened, 0, 4)).unwrap(), b"lime");
}

#[test]
fn the_threads_that_are_ensured_do_everything() {
    let allowance = ThreadAllowance::new(0);
    let env = env(&allowance);
    for threads in [0, 1] {
        allowance.set(threads);
        let e = env.ensure_threads().unwrap_err();
        assert!(e.to_string().contains("start thread"), "{e}");
    }
    allowance.set(1);
    env.ensure_threads().unwrap();
    env.ensure_threads().expect("they are there");
    for priority in Priority::ALL {
        let of_job = env.clone();
        let job = env.spawn(priority, async move {
            sleep(&of_job, Duration::from_millis(1)).await;
            of_job.run_blocking(|_| 7).await
        });
        assert_eq!(block_on(&env, job).unwrap(), 7);
    }
    allowance.set(1);
    let job = env.spawn(Priority::Low, async { std::thread::current().name().map(str::to_owned) });
    assert_eq!(block_on(&env, job).unwrap().as_deref(), Some("karst-low"), "once there is one to be had");
}

#[test]
fn a_driver_that_could_not_start_is_started_by_the_next_read() {
    let allowance = ThreadAllowance::new(0);
    let env = env(&allowance);
    let refused = foreign_block_on(open(&env, Path::new("/nowhere"), OpenOptions::default())).unwrap_err();
    assert!(refused.to_string().contains("cannot start"), "{refused}");
    allowance.set(2);
    let missing = foreign_block_on(open(&env, Path::new("/nowhere"), OpenOptions::default())).unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
}
