//! Tests of ranges: the numbers they hide, the readers concerned, and their removal from the list.

use super::*;

#[test]
fn a_range_hides_until_it_is_decided_and_from_older_readers_for_good() {
    let pending = PendingRanges::new();
    assert!(pending.pin(|| 5).1.is_none());
    let range = pending.add(6, 2, 5);
    let (at, list) = pending.pin(|| 9);
    let list = list.expect("there is a range");
    let hidden = |at| (5..9).map(|number| list.hides(number, at)).collect::<Vec<_>>();
    assert_eq!((at, hidden(9)), (9, vec![false, true, true, false]));
    range.decide(12);
    assert_eq!((hidden(9), hidden(11)), (vec![false, true, true, false], vec![false, true, true, false]));
    assert_eq!(hidden(12), [false; 4]);
    pending.remove_decided(11);
    assert!(pending.pin(|| 11).1.is_some());
    pending.remove_decided(12);
    assert!(pending.pin(|| 12).1.is_none());
    assert_eq!(hidden(9), [false, true, true, false]);
}

#[test]
#[cfg_attr(miri, ignore = "minutes in its interpreter, and nothing unsafe")]
fn many_ranges_are_told_apart() {
    // In ascending order, as in normal use, and in mixed orders, as an open may find them.
    let ascending: Vec<u64> = (0..1000).collect();
    let mixed: Vec<u64> = (0..1000).map(|n| n * 7 % 1000).collect();
    for order in [ascending, mixed, (0..1000).rev().collect()] {
        are_told_apart(&order);
    }
}

fn are_told_apart(order: &[u64]) {
    let pending = PendingRanges::new();
    let ranges: Vec<_> = order.iter().map(|n| pending.add(10 + n * 10, 3, 0)).collect();
    let firsts: Vec<u64> = pending.now().iter().map(|range| range.first()).collect();
    assert!(firsts.is_sorted() && firsts.len() == 1000);
    let (_, list) = pending.pin(|| 20_000);
    let list = list.expect("there are ranges");
    for number in 0..10_020 {
        let inside = (10..10_010).contains(&number) && number % 10 < 3;
        assert_eq!(list.hides(number, 20_000), inside, "{number}");
    }
    pending.withdraw(ranges.iter().max_by_key(|range| range.first()).expect("there are ranges"));
    assert_eq!((pending.now().len(), list.len()), (999, 1000));
    assert_eq!(pending.now().first(), Some(10));
    ranges.iter().filter(|range| range.first() < 5000).for_each(|range| range.decide(20_000));
    pending.add(30_000, 1, 20_000);
    pending.remove_decided(20_000);
    assert_eq!((pending.now().len(), pending.now().first()), (501, Some(5000)));
}

#[test]
fn decided_ranges_go_with_the_last_or_when_many_are() {
    let pending = PendingRanges::new();
    let stays = pending.add(1, 1, 0);
    for number in 0..MANY_DECIDED as u64 {
        assert_eq!(pending.now().len() as u64, number + 1);
        let range = pending.add(10 + number, 1, 0);
        range.decide(100 + number);
        pending.remove_decided(200);
    }
    assert_eq!(pending.now().len(), 1);
    stays.decide(300);
    pending.remove_decided(299);
    assert_eq!(pending.now().len(), 1);
    pending.remove_decided(300);
    assert!(pending.now().is_empty());
}
