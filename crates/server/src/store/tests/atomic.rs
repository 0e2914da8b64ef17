//! Views and writers beside exchanged databases; the time of accesses that wait; random elements.

use super::*;
use futures_util::future::join;
use karst_testkit::asked;
use karst_testkit::random::Random;
use karstdb::io::{Simulation, sleep, yield_now};
use karstdb::perf_context::{self, PerfLevel, PerfMetric};
use std::cell::Cell;
use std::time::Duration;

/// Sets a flag when it is dropped, also by a panic, for threads that would go on.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Flushes database 0 and swaps it with database 1, whose keys both say where they are.
async fn exchange(store: &Store, round: u64) {
    let (zero, one) = (key("where"), Key { db: 1, name: b"where".to_vec() });
    let mut access = store.change_all_at(1).await;
    if round.is_multiple_of(2) {
        access.swap(0, 1).await.unwrap();
    } else {
        access.flush(0).await.unwrap();
    }
    access.set_string(&zero, b"zero", Lifetime::Forever).await.unwrap();
    access.set_string(&key("round"), round.to_string().as_bytes(), Lifetime::Forever).await.unwrap();
    access.set_string(&one, b"one", Lifetime::Forever).await.unwrap();
    access.commit(Durability::Synced).await.unwrap();
}

/// Reads in a view in several ways; `pause` lets the exchange go on in between.
async fn look<F: Future<Output = ()>>(store: &Store, mut pause: impl FnMut() -> F) {
    let text = |value: Option<karstdb::Value>| value.map(|it| String::from_utf8(it.to_vec()).unwrap());
    let view = store.view(1);
    pause().await;
    assert_eq!(text(view.string(&key("where")).await.unwrap()).as_deref(), Some("zero"));
    let both = view.strings(&[key("where"), key("round")]).await.unwrap();
    assert_eq!(text(both[0].clone()).as_deref(), Some("zero"));
    assert!(both[1].is_some());
    pause().await;
    let mut names = Vec::new();
    view.names(0, b"", |name| names.push(name.to_vec())).await.unwrap();
    assert_eq!(names, [b"round".to_vec(), b"where".to_vec()]);
    let pinned = view.string(&key("round")).await.unwrap();
    pause().await;
    assert_eq!(view.string(&key("round")).await.unwrap(), pinned);
}

#[test]
fn no_view_sees_half_of_an_exchange_on_a_simulated_machine() {
    for seed in asked::seeds(20, 500) {
        println!("KARST_SEED={seed} cargo test -p karst-server --lib store::tests::atomic");
        let simulation = Simulation::new(seed);
        let env = simulation.env().clone();
        simulation.run(async {
            let store = open(&env).await;
            exchange(&store, 0).await;
            let has_ended = Cell::new(false);
            let writing = async {
                for round in 1..20 {
                    exchange(&store, round).await;
                }
                has_ended.set(true);
            };
            let mut random = Random::new(seed);
            let reading = async {
                while !has_ended.get() {
                    look(&store, || sleep(&env, Duration::from_micros(random.below(50)))).await;
                    yield_now().await;
                }
            };
            join(writing, reading).await;
            store.check().await;
        });
    }
}

#[test]
fn no_view_sees_half_of_an_exchange_on_threads() {
    let env = memory();
    let store = block_on(&env, open(&env));
    block_on(&env, exchange(&store, 0));
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&has_ended);
        for _ in 0..2 {
            scope.spawn(|| {
                block_on(&env, async {
                    while !has_ended.load(Ordering::Relaxed) {
                        look(&store, yield_now).await;
                    }
                })
            });
        }
        block_on(&env, async {
            for round in 1..300 {
                exchange(&store, round).await;
            }
        });
    });
    block_on(&env, store.check());
}

#[test]
fn a_failed_exchange_leaves_the_databases() {
    with_store(|_, store| async move {
        exchange(&store, 0).await;
        store.0.databases.freeze(store.db());
        let frozen = store.view(1);
        store.0.databases.thaw();
        store.set(&key("where"), "newer", Lifetime::Forever, 1).await;
        assert_eq!(store.fetch(&key("where"), 1).await.as_deref(), Some("newer"));
        assert_eq!(frozen.string(&key("where")).await.unwrap().unwrap().to_vec(), b"zero");
        exchange(&store, 1).await;
        look(&store, yield_now).await;
    });
}

#[test]
fn an_access_that_waited_has_the_time_behind_the_wait() {
    let simulation = Simulation::new(1);
    let env = simulation.env().clone();
    simulation.run(async {
        let store = open(&env).await;
        let names = [key("a")];
        let (begun, released) = (store.now(), Cell::new(0));
        let held = store.change(&names).await;
        let holder = async {
            sleep(&env, Duration::from_millis(10)).await;
            released.set(store.now());
            drop(held);
        };
        let waiter = async {
            let access = store.change(&names).await;
            assert!(released.get() > begun && access.now() >= released.get());
            drop(access);
            let held = store.change(&names).await;
            let holder = async {
                sleep(&env, Duration::from_millis(10)).await;
                released.set(store.now());
                drop(held);
            };
            let waiter = async { assert!(store.change_all().await.now() >= released.get()) };
            join(holder, waiter).await;
        };
        join(holder, waiter).await;
    });
}

#[test]
fn what_an_access_abandons_never_was() {
    with_store(|_, store| async move {
        exchange(&store, 0).await;
        store.add(&key("set"), &["m"]).await;
        let mut access = store.change_all_at(1).await;
        let empty = access.pending();
        access.delete(&key("set")).await.unwrap();
        access.set_string(&key("new"), b"1", Lifetime::Until(5)).await.unwrap();
        access.flush(0).await.unwrap();
        access.swap(0, 2).await.unwrap();
        assert!(access.pending() > empty);
        access.abandon();
        assert_eq!((access.size(0), access.pending()), (3, empty));
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        assert_eq!((store.members(&key("set")).await.len(), store.size(0), store.size(1)), (1, 3, 1));
        store.check().await;
    });
}

/// Runs `work`, and returns how many steps iterators have made in it on this thread.
async fn steps(work: impl Future<Output = ()>) -> u64 {
    perf_context::set_level(PerfLevel::EnableCount);
    perf_context::reset();
    work.await;
    let steps = perf_context::get(PerfMetric::IterNextCount);
    perf_context::set_level(PerfLevel::Disable);
    steps
}

#[test]
fn many_random_elements_are_taken_in_one_walk() {
    with_store(|_, store| async move {
        let set = key("set");
        let members: Vec<String> = (0..4000).map(|index| format!("m{index}")).collect();
        store.add(&set, &members.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let steps = steps(async {
            let found = store.view(1).random_elements(&set, Kind::Set, 900).await.unwrap();
            let different: std::collections::BTreeSet<_> = found.iter().map(|(name, _)| name).collect();
            assert_eq!(different.len(), 900);
            // By chance at all: the last ones of the order are among them.
            assert!(different.iter().any(|name| name.starts_with(b"m9")));
        });
        let steps = steps.await;
        assert!(steps <= 4000, "{steps} steps");
    });
}

#[test]
fn drawn_elements_are_kept_once() {
    with_store(|_, store| async move {
        let set = key("set");
        let members: Vec<String> = (0..300).map(|index| format!("m{index}")).collect();
        store.add(&set, &members.iter().map(String::as_str).collect::<Vec<_>>()).await;
        for (count, kept) in [(5, 5), (100_000, 300)] {
            let (elements, places) = store.view(1).draw_elements(&set, Kind::Set, count).await.unwrap();
            assert_eq!((elements.len(), places.len() as u64), (kept, count));
            assert!(places.iter().all(|place| *place < elements.len()));
        }
    });
}
