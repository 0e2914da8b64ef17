//! Every interleaving of two threads on a small skiplist. The crate documentation has the command.

use super::insert::height_for;
use super::*;
use loom::sync::Arc;
use loom::thread;

type List = SkipList<fn(&[u8], &[u8]) -> cmp::Ordering>;

fn list(keys: &[&[u8]]) -> Arc<List> {
    let list: List = SkipList::new(|a, b| a.cmp(b));
    for key in keys {
        assert!(list.insert(key, key));
    }
    Arc::new(list)
}

fn keys(list: &List) -> Vec<Vec<u8>> {
    std::iter::successors(list.first(), |p| list.next(*p)).map(|p| list.key(p).to_vec()).collect()
}

/// Returns a key with this first byte whose tower has the wanted height.
fn key_of_height(first: u8, height: usize) -> Vec<u8> {
    (0u8..).map(|i| vec![first, i]).find(|k| height_for(k, &[]) == height).unwrap()
}

#[test]
fn loom_two_inserts_at_one_place_both_stay() {
    for heights in [(1, 1), (2, 2), (1, 2)] {
        loom::model(move || {
            let (a, b) = (key_of_height(b'b', heights.0), key_of_height(b'c', heights.1));
            let list = list(&[b"a", b"d"]);
            let other = {
                let (list, a) = (list.clone(), a.clone());
                thread::spawn(move || assert!(list.insert(&a, b"1")))
            };
            assert!(list.insert(&b, b"2"));
            other.join().unwrap();
            assert_eq!(keys(&list), [b"a".to_vec(), a.clone(), b.clone(), b"d".to_vec()]);
            assert_eq!(list.value(list.get(&a).unwrap()), b"1");
            assert_eq!(list.value(list.get(&b).unwrap()), b"2");
            assert_eq!(list.seek_lt(&b).map(|p| list.key(p)), Some(&a[..]));
            assert_eq!(list.len(), 4);
        });
    }
}

#[test]
fn loom_of_two_equal_inserts_one_wins() {
    for height in [1, 2] {
        loom::model(move || {
            let key = key_of_height(b'k', height);
            let list = list(&[]);
            let other = {
                let (list, key) = (list.clone(), key.clone());
                thread::spawn(move || list.insert(&key, b"1"))
            };
            let mine = list.insert(&key, b"2");
            let theirs = other.join().unwrap();
            assert!(mine != theirs);
            assert_eq!(keys(&list), [key.clone()]);
            assert_eq!(list.value(list.get(&key).unwrap()), if mine { b"2" } else { b"1" });
        });
    }
}

#[test]
fn loom_a_reader_sees_whole_nodes_in_order() {
    loom::model(|| {
        let (low, high) = (key_of_height(b'b', 2), key_of_height(b'c', 1));
        let list = list(&[b"d"]);
        let writer = {
            let (list, low, high) = (list.clone(), low.clone(), high.clone());
            thread::spawn(move || {
                assert!(list.insert(&high, &high));
                assert!(list.insert(&low, &low));
            })
        };
        // The list seen at any time is one of these, because the inserts happen in this order.
        let d = b"d".to_vec();
        let all = [vec![d.clone()], vec![high.clone(), d.clone()], vec![low.clone(), high.clone(), d]];
        let found = keys(&list);
        // A scan may pass the place of the second key before it is inserted.
        assert!(all.contains(&found), "{found:?}");
        for key in &found {
            assert_eq!(list.value(list.get(key).unwrap()), key);
            assert_eq!(list.seek_le(key).map(|p| list.key(p)), Some(&key[..]));
        }
        writer.join().unwrap();
        assert_eq!(keys(&list), all[2]);
    });
}

#[test]
fn loom_a_finger_that_another_insert_makes_old_does_no_harm() {
    for heights in [(1, 1), (2, 1), (1, 2)] {
        loom::model(move || {
            let (a, b) = (key_of_height(b'b', heights.0), key_of_height(b'c', heights.1));
            // The finger is right behind `a`, the place of both keys.
            let list = list(&[b"d", b"a"]);
            let other = {
                let (list, b) = (list.clone(), b.clone());
                thread::spawn(move || assert!(list.insert(&b, &b)))
            };
            assert!(list.insert(&a, &a));
            other.join().unwrap();
            assert_eq!(keys(&list), [b"a".to_vec(), a, b, b"d".to_vec()]);
        });
    }
}
