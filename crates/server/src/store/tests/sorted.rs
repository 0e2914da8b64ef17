//! Sorted sets against a plain model: ranges by score, by member and by rank from both ends, counts
//! and ranks, in views and beside writes that are not committed.

use super::*;
use karst_testkit::asked;
use karst_testkit::random::Random;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Members with their scores; the order is that of an array of both.
type Plain = BTreeMap<Vec<u8>, f64>;

fn in_order(plain: &Plain) -> Vec<Scored> {
    // Scores are whole numbers, whose order is that of integers.
    let order: BTreeSet<(i64, &Vec<u8>)> = plain.iter().map(|(name, it)| (*it as i64, name)).collect();
    order.into_iter().map(|(score, name)| (name.clone(), score as f64)).collect()
}

fn random_name(random: &mut Random) -> Vec<u8> {
    (0..random.below(4)).map(|_| [0, b'a', b'b', 0xff][random.below(4) as usize]).collect()
}

fn random_score(random: &mut Random) -> f64 {
    random.below(41) as f64 - 20.0
}

fn bound<T>(random: &mut Random, value: T) -> Bound<T> {
    match random.below(8) {
        0 => Bound::Unbounded,
        1..4 => Bound::Excluded(value),
        _ => Bound::Included(value),
    }
}

fn is_between<T: PartialOrd>(value: &T, low: &Bound<T>, high: &Bound<T>) -> bool {
    let above = match low {
        Bound::Included(low) => value >= low,
        Bound::Excluded(low) => value > low,
        Bound::Unbounded => true,
    };
    above
        && match high {
            Bound::Included(high) => value <= high,
            Bound::Excluded(high) => value < high,
            Bound::Unbounded => true,
        }
}

/// A range, and its members by the model.
fn random_range(random: &mut Random, plain: &Plain) -> (SortedRange, Vec<Scored>) {
    if random.one_in(2) {
        let (low, high) = (random_score(random), random_score(random));
        let (low, high) = (bound(random, low), bound(random, high));
        let mut found = in_order(plain);
        found.retain(|(_, score)| is_between(score, &low, &high));
        return (SortedRange::Scores(low, high), found);
    }
    let (low, high) = (random_name(random), random_name(random));
    let (low, high) = (bound(random, low), bound(random, high));
    let mut found: Vec<Scored> = plain.iter().map(|(name, score)| (name.clone(), *score)).collect();
    found.retain(|(name, _)| is_between(name, &low, &high));
    (SortedRange::Names(low, high), found)
}

async fn check_reads(access: &Access, key: &Key, plain: &Plain, random: &mut Random) {
    let all = in_order(plain);
    for _ in 0..20 {
        let (range, mut expected) = random_range(random, plain);
        assert_eq!(access.count_sorted(key, &range).await.unwrap(), expected.len() as u64, "{range:?}");
        let (skip, take) = (random.below(10), if random.one_in(2) { u64::MAX } else { random.below(30) });
        let end = if random.one_in(2) { Side::Left } else { Side::Right };
        if end == Side::Right {
            expected.reverse();
        }
        let part: Vec<Scored> = expected.into_iter().skip(skip as usize).take(take as usize).collect();
        assert_eq!(access.sorted_range(key, &range, end, skip, take).await.unwrap(), part, "{range:?}");

        let (from, behind) = (random.below(90), random.below(90));
        let part: Vec<Scored> = all.iter().take(behind as usize).skip(from as usize).cloned().collect();
        assert_eq!(access.sorted_ranks(key, from..behind).await.unwrap(), part, "{from}..{behind}");

        let name = random_name(random);
        let place = all.iter().position(|(other, _)| *other == name);
        let rank = place.map(|place| (place as u64, all[place].1));
        assert_eq!(access.sorted_rank(key, &name, Side::Left).await.unwrap(), rank);
        let rank = rank.map(|(rank, score)| (all.len() as u64 - 1 - rank, score));
        assert_eq!(access.sorted_rank(key, &name, Side::Right).await.unwrap(), rank);
        let scores = access.scores(key, &[name.clone(), b"none".to_vec()]).await.unwrap();
        assert_eq!(scores, [plain.get(&name).copied(), None]);
    }
}

async fn change(access: &mut Access, key: &Key, plain: &mut Plain, random: &mut Random) {
    match random.below(10) {
        0..7 => {
            let mut pairs = Vec::new();
            for _ in 0..random.below(20) {
                pairs.push((random_name(random), random_score(random)));
            }
            let rule = ScoreRule { is_there: random.one_in(3).then_some(false), ..ScoreRule::default() };
            access.put_scores(key, &pairs, rule).await.unwrap();
            for (name, score) in pairs {
                let there = plain.entry(name).or_insert(score);
                if rule.is_there.is_none() {
                    *there = score;
                }
            }
        }
        7 => {
            let names: Vec<_> = (0..3).map(|_| random_name(random)).collect();
            access.remove_scored(key, &names).await.unwrap();
            plain.retain(|name, _| !names.contains(name));
        }
        8 => {
            let (range, gone) = random_range(random, plain);
            let removed = access.remove_range(key, &range).await.unwrap();
            assert_eq!(removed, gone.len() as u64);
            plain.retain(|name, _| !gone.iter().any(|(other, _)| other == name));
        }
        _ => {
            let end = if random.one_in(2) { Side::Left } else { Side::Right };
            let popped = access.pop_scored(key, end, random.below(4)).await.unwrap();
            let mut all = in_order(plain);
            if end == Side::Right {
                all.reverse();
            }
            assert_eq!(popped, all[..popped.len()]);
            plain.retain(|name, _| !popped.iter().any(|(other, _)| other == name));
        }
    }
}

#[test]
fn ranges_and_ranks_are_those_of_a_plain_model() {
    for seed in asked::seeds(10, 300) {
        println!("KARST_SEED={seed} cargo test -p karst-server --lib store::tests::sorted");
        with_store(|_, store| async move {
            let (mut random, mut plain, key) = (Random::new(seed), Plain::new(), key("z"));
            for _ in 0..30 {
                let mut access = store.change_at(std::slice::from_ref(&key), 1).await;
                for _ in 0..=random.below(3) {
                    change(&mut access, &key, &mut plain, &mut random).await;
                }
                check_reads(&access, &key, &plain, &mut random).await;
                access.commit(Durability::Logged).await.unwrap();
                check_reads(&store.view(1), &key, &plain, &mut random).await;
                assert_eq!(store.view(1).kind(&key).await.unwrap().is_some(), !plain.is_empty());
            }
            store.check().await;
        });
    }
}

#[test]
fn a_large_sorted_set_is_dropped_with_both_entries_of_each_member() {
    with_store(|_, store| async move {
        let key = key("z");
        let pairs: Vec<Scored> = (0..500u32).map(|it| (it.to_be_bytes().to_vec(), f64::from(it))).collect();
        let mut access = store.change_at(std::slice::from_ref(&key), 1).await;
        access.put_scores(&key, &pairs, ScoreRule::default()).await.unwrap();
        access.commit(Durability::Logged).await.unwrap();
        assert_eq!(store.entries(ELEMENTS).await.len(), 1000);
        assert_eq!(access.remove_ranks(&key, 0..u64::MAX).await.unwrap(), 500);
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        store.check().await;
        assert_eq!(store.0.dead.release(None), Load { versions: 1, elements: 1000 });
        store.drop_dead().await.unwrap();
        assert_eq!(store.entries(ELEMENTS).await.len(), 0);
    });
}

#[test]
fn a_sum_that_is_no_number_changes_nothing() {
    with_store(|_, store| async move {
        let key = key("z");
        let mut access = store.change_at(std::slice::from_ref(&key), 1).await;
        let rule = ScoreRule { adds: true, ..ScoreRule::default() };
        let infinite = [(b"a".to_vec(), f64::INFINITY), (b"b".to_vec(), -0.0)];
        let put = access.put_scores(&key, &infinite, rule).await.unwrap();
        assert!(put.added == 2 && put.last.is_some_and(f64::is_sign_positive));
        let opposite = [(b"c".to_vec(), 1.0), (b"a".to_vec(), f64::NEG_INFINITY)];
        assert!(access.put_scores(&key, &opposite, rule).await.is_err());
        assert_eq!(access.length(&key, Kind::SortedSet).await.unwrap(), 2);
        access.commit(Durability::Logged).await.unwrap();
        drop(access);
        store.check().await;
    });
}
