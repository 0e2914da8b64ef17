//! Background jobs: they end with their value or panic, continue without a waiter, may wait for
//! each other on one thread, and end with the environment.

use karst_io::testing::foreign_block_on;
use karst_io::{Env, JoinError, Priority, block_on, in_background, sleep};
use std::collections::HashSet;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Counts its drops.
struct Bomb(Arc<AtomicUsize>);
impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_job_gives_its_value_or_its_panic_to_any_executor() {
    let env = Env::posix();
    for priority in Priority::ALL {
        assert_eq!(block_on(&env, env.spawn(priority, async { 7 })).unwrap(), 7);
        assert_eq!(foreign_block_on(env.spawn(priority, async { 8 })).unwrap(), 8);
        let panicked = block_on(&env, env.spawn(priority, async { assert_eq!(1, 2, "on purpose") }));
        let panicked = panicked.unwrap_err();
        assert!(matches!(&panicked, JoinError::Panicked(_)) && panicked.to_string().contains("on purpose"));
        let outer = env.clone();
        let nested = env.spawn(priority, async move { outer.spawn(priority, async { 9 }).await.unwrap() });
        assert_eq!(block_on(&env, nested).unwrap(), 9);
    }
}

#[test]
fn a_dropped_task_runs_on() {
    let env = Env::posix();
    let (send, received) = mpsc::channel();
    let e = env.clone();
    drop(env.spawn(Priority::Low, async move {
        sleep(&e, Duration::from_millis(1)).await;
        send.send(5).unwrap();
    }));
    assert_eq!(received.recv().unwrap(), 5);
}

/// A tree of jobs, each waiting for its children: more waiting jobs than threads.
fn tree(env: Env, depth: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if depth == 0 {
            sleep(&env, Duration::from_micros(100)).await;
            return 1;
        }
        let children = [(); 3].map(|()| env.spawn(Priority::Low, tree(env.clone(), depth - 1)));
        let mut sum = 1;
        for child in children {
            sum += child.await.unwrap();
        }
        sum
    })
}

#[test]
fn jobs_wait_for_jobs_of_the_same_pool() {
    for threads in [1, 3] {
        let env = Env::posix();
        env.set_background_threads(Priority::Low, threads);
        assert_eq!(env.background_threads(Priority::Low), threads);
        assert_eq!(block_on(&env, env.spawn(Priority::Low, tree(env.clone(), 4))).unwrap(), 121);
    }
}

/// Starts `count` jobs that all exist at the same time; returns the threads that run them.
fn together(env: &Env, priority: Priority, count: usize) -> HashSet<(String, std::thread::ThreadId)> {
    let (gate, opened) = event(count);
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (env, gate, opened) = (env.clone(), gate.clone(), opened.clone());
            env.clone().spawn(priority, async move {
                gate.fetch_sub(1, Ordering::SeqCst);
                while opened.load(Ordering::SeqCst) > 0 {
                    sleep(&env, Duration::from_micros(200)).await;
                }
                let thread = std::thread::current();
                (thread.name().unwrap().to_string(), thread.id())
            })
        })
        .collect();
    tasks.into_iter().map(|task| block_on(env, task).unwrap()).collect()
}

fn event(count: usize) -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let event = Arc::new(AtomicUsize::new(count));
    (event.clone(), event)
}

#[test]
fn threads_are_started_up_to_the_limit_and_each_priority_has_its_own() {
    let env = Env::posix();
    env.set_background_threads(Priority::Low, 3);
    assert_eq!(together(&env, Priority::Low, 1).len(), 1);
    assert_eq!(together(&env, Priority::Low, 3).len(), 3);
    assert_eq!(together(&env, Priority::Low, 20).len(), 3);
    env.set_background_threads(Priority::Low, 2);
    assert_eq!(together(&env, Priority::Low, 20).len(), 2);
    let high = together(&env, Priority::High, 4);
    assert_eq!(high.len(), 1);
    assert!(high.iter().all(|(name, _)| name == "karst-high"), "{high:?}");
}

#[test]
fn jobs_end_with_the_environment() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let env = Env::posix();
    env.set_background_threads(Priority::High, 2);
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let bomb = Bomb(dropped.clone());
            env.spawn(Priority::High, async move {
                let _bomb = bomb;
                pending::<()>().await
            })
        })
        .collect();
    drop(env);
    assert_eq!(dropped.load(Ordering::SeqCst), 6);
    for task in tasks {
        assert!(matches!(foreign_block_on(task), Err(JoinError::Cancelled)));
    }
}

#[test]
fn the_last_environment_may_go_inside_a_job() {
    let env = Env::posix();
    let inside = env.clone();
    let task = env.spawn(Priority::Low, async move {
        sleep(&inside, Duration::from_millis(5)).await;
        drop(inside);
        3
    });
    drop(env);
    assert_eq!(foreign_block_on(task).unwrap(), 3);
}

#[test]
fn code_knows_whether_it_is_a_part_of_a_job() {
    let env = Env::posix();
    assert!(!in_background());
    let inner = env.clone();
    let job = env.spawn(Priority::Low, async move {
        let before = in_background();
        let blocking = inner.run_blocking(|_| in_background()).await;
        before && blocking && in_background()
    });
    assert!(block_on(&env, job).unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    env.run_apart("apart", move || tell.send(in_background()).unwrap()).unwrap();
    assert!(!told.recv().unwrap() && !in_background());
}
