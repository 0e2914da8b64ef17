//! The maintenance: its end at any moment, its cost, and repaired sizes.

use super::*;
use karstdb::io::{Simulation, sleep};
use karstdb::perf_context::{self, PerfLevel, PerfMetric};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const DUE: usize = 200;

async fn set_many(store: &Store, count: usize, lifetime: Lifetime) {
    let keys: Vec<Key> = (0..count).map(|index| key(&format!("{index:06}"))).collect();
    let mut access = store.change_at(&keys, 1).await;
    for key in &keys {
        access.set_string(key, b"x", lifetime).await.unwrap();
    }
    access.commit(Durability::Logged).await.unwrap();
}

#[test]
fn the_maintenance_ends_by_itself_with_what_it_has_begun() {
    let mut left = std::collections::BTreeSet::new();
    for polls in 0..100 {
        let simulation = Simulation::new(polls);
        let env = simulation.env().clone();
        let kept = simulation.run(async {
            let store = open(&env).await;
            set_many(&store, DUE, Lifetime::Until(store.now() + 1)).await;
            sleep(&env, Duration::from_millis(2)).await;
            let mut maintaining = pin!(store.maintain());
            let mut polled = 0;
            poll_fn(|context| {
                polled += 1;
                match polled > polls {
                    true => Poll::Ready(()),
                    false => maintaining.as_mut().poll(context),
                }
            })
            .await;
            store.end_maintenance();
            maintaining.await;
            store.check().await;
            store.size(0)
        });
        left.insert(kept);
    }
    assert!(left.len() > 2 && left.contains(&Some(0)), "it was ended in its midst: {left:?}");
}

#[test]
fn a_size_that_is_not_possible_is_counted() {
    with_store(|env, store| async move {
        set_many(&store, 10, Lifetime::Forever).await;
        let base = store.0.databases.now()[0].base;
        let wrong = (-3i64).to_le_bytes();
        store
            .db()
            .put_cf_async(&Default::default(), &store.0.server, &size_key(base)[..], &wrong)
            .await
            .unwrap();
        store.close().await.unwrap();
        let store = open(&env).await;
        assert_eq!(store.size(0), 10);
        store.check().await;
        store.close().await.unwrap();
        let store = open(&env).await;
        assert_eq!(store.size(0), 10);
    });
}

/// Deletes so many keys that are due at once, and returns how many deleted entries were passed.
fn cost_of(count: usize) -> u64 {
    let env = memory();
    block_on(&env, async {
        let store = open(&env).await;
        set_many(&store, count, Lifetime::Until(10)).await;
        perf_context::set_level(PerfLevel::EnableCount);
        perf_context::reset();
        store.delete_due(20).await.unwrap();
        let cost = perf_context::get(PerfMetric::InternalDeleteSkippedCount);
        perf_context::set_level(PerfLevel::Disable);
        assert_eq!(store.size(0), 0);
        store.check().await;
        cost
    })
}

#[test]
fn keys_that_are_due_at_once_cost_no_walk_over_those_before() {
    let passed = cost_of(5000);
    assert!(passed <= 5000, "{passed} deleted entries were passed");
}

#[test]
fn keys_that_are_due_earlier_are_found_after_later_ones() {
    with_store(|_, store| async move {
        store.set(&key("late"), "x", Lifetime::Until(1000), 1).await;
        store.delete_due(2000).await.unwrap();
        assert_eq!(store.size(0), 0);
        // The clock has gone back.
        store.set(&key("early"), "x", Lifetime::Until(10), 1).await;
        store.set(&key("later"), "x", Lifetime::Until(100), 1).await;
        store.delete_due(50).await.unwrap();
        assert_eq!((store.size(0), store.0.due[0].load(Ordering::Relaxed)), (1, 100));
        // A failure forgets nothing.
        store.db().cf(EXPIRIES).unwrap().put(layout::expiry_key(90, b""), b"").unwrap();
        store.0.due[0].store(90, Ordering::Relaxed);
        assert!(store.delete_due(200).await.is_err());
        store.db().cf(EXPIRIES).unwrap().delete(layout::expiry_key(90, b"")).unwrap();
        store.delete_due(200).await.unwrap();
        assert_eq!(store.size(0), 0);
        store.check().await;
    });
}

#[test]
fn only_elements_that_stay_count_as_dead() {
    with_store(|_, store| async move {
        let set = key("set");
        let mut access = store.change_at(std::slice::from_ref(&set), 1).await;
        let members = [b"a".to_vec(), b"b".to_vec()];
        let pairs = || members.iter().map(|member| (&member[..], &[][..]));
        for _ in 0..3 {
            access.put_elements(&set, Kind::Set, pairs()).await.unwrap();
            access.commit(Durability::Logged).await.unwrap();
            access.delete_elements(&set, Kind::Set, &members).await.unwrap();
            access.commit(Durability::Logged).await.unwrap();
        }
        assert_eq!(store.0.dead.release(None).elements, 0);
        access.put_elements(&set, Kind::Set, pairs()).await.unwrap();
        access.delete(&set).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        assert_eq!((store.0.dead.release(None).elements, store.size(0)), (2, 0));
        drop(access);
        store.check().await;
    });
}

#[test]
fn a_pinned_view_sees_the_size_of_its_snapshot() {
    with_store(|_, store| async move {
        set_many(&store, 10, Lifetime::Forever).await;
        let view = store.view(1);
        view.pin();
        store.set(&key("new"), "x", Lifetime::Forever, 1).await;
        assert_eq!((view.size_seen(0).await.unwrap(), view.size_seen(1).await.unwrap()), (10, 0));
        assert_eq!(store.view(1).size_seen(0).await.unwrap(), 11);
    });
}
