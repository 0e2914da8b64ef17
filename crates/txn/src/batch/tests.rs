//! The batch over a database against a model: the same operations, applied to a map.

use super::*;
use karst_engine::ErrorKind;
use karst_engine::{Options, ReadOptions, WriteOptions};
use std::collections::BTreeMap;

fn open(directory: &tempfile::TempDir) -> Db {
    let options =
        Options::new().db(|db| db.create_if_missing = true).set("merge_operator", "stringappend").unwrap();
    Db::open(directory.path(), &options).unwrap()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

/// Performs one random operation on the batch and on the model.
fn operate(random: &mut Random, batch: &mut WriteBatchWithIndex, model: &mut Model, round: u64) {
    let key = key(random.below(40));
    let value = format!("{round}").into_bytes();
    match random.below(4) {
        0 | 1 => {
            batch.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        2 => {
            batch.delete(&key).unwrap();
            model.remove(&key);
        }
        _ => {
            batch.merge(&key, &value).unwrap();
            let merged = match model.get(&key) {
                Some(existing) => [existing, &b","[..], &value].concat(),
                None => value,
            };
            model.insert(key, merged);
        }
    }
}

fn forward(iter: &mut BatchDbIterator) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    found
}

fn backward(iter: &mut BatchDbIterator) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    iter.seek_to_last().unwrap();
    while iter.valid() {
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev().unwrap();
    }
    found.reverse();
    found
}

/// Checks that every read of `batch` over `db` returns what `model` has.
fn compare(random: &mut Random, db: &Db, batch: &WriteBatchWithIndex, model: &Model) {
    let read = ReadOptions::new();
    let keys: Vec<Vec<u8>> = (0..40).map(key).collect();
    let got = batch.multi_get_from_batch_and_db_cf(db, &read, db.default_column_family(), &keys);
    for (key, got) in keys.iter().zip(got) {
        let expected = model.get(key).map(Vec::as_slice);
        assert_eq!(got.unwrap().as_deref(), expected);
        assert_eq!(batch.get_from_batch_and_db(db, &read, key).unwrap().as_deref(), expected);
    }
    let all: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut iter = batch.iter_with_base(db, &read).unwrap();
    assert_eq!(forward(&mut iter), all);
    assert_eq!(backward(&mut iter), all);
    let (a, b) = (key(random.below(40)), key(random.below(40)));
    let (lower, upper) = (a.clone().min(b.clone()), a.max(b));
    let bounded = ReadOptions {
        iterate_lower_bound: Some(lower.clone()),
        iterate_upper_bound: Some(upper.clone()),
        ..ReadOptions::new()
    };
    let within: Vec<_> = all.iter().filter(|(k, _)| (&lower..&upper).contains(&k)).cloned().collect();
    let mut bounded = batch.iter_with_base(db, &bounded).unwrap();
    assert_eq!(forward(&mut bounded), within);
    assert_eq!(backward(&mut bounded), within);
    wander(random, &mut iter, &all);
}

/// Steps to and fro around a position in the list.
fn wander(random: &mut Random, iter: &mut BatchDbIterator, all: &[(Vec<u8>, Vec<u8>)]) {
    for _ in 0..10 {
        let target = key(random.below(42));
        let mut at: Option<usize> = if random.below(2) == 0 {
            iter.seek(&target).unwrap();
            Some(all.partition_point(|(k, _)| k < &target)).filter(|at| *at < all.len())
        } else {
            iter.seek_for_prev(&target).unwrap();
            all.partition_point(|(k, _)| k <= &target).checked_sub(1)
        };
        for _ in 0..12 {
            assert_eq!(iter.valid(), at.is_some());
            let Some(position) = at else { break };
            assert_eq!((iter.key(), iter.value()), (&all[position].0[..], &all[position].1[..]));
            if random.below(2) == 0 {
                iter.next().unwrap();
                at = Some(position + 1).filter(|at| *at < all.len());
            } else {
                iter.prev().unwrap();
                at = position.checked_sub(1);
            }
        }
    }
}

fn as_a_model_has_it(overwrite_key: bool, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    let mut random = Random(seed);
    let mut base = WriteBatchWithIndex::new(&db, overwrite_key);
    let mut model = Model::new();
    for round in 0..60 {
        operate(&mut random, &mut base, &mut model, round);
    }
    db.write(&WriteOptions::new(), base.write_batch()).unwrap();
    let mut batch = WriteBatchWithIndex::new(&db, overwrite_key);
    let mut points: Vec<Model> = Vec::new();
    for round in 100..220 {
        operate(&mut random, &mut batch, &mut model, round);
        match random.below(8) {
            0 => {
                batch.set_save_point();
                points.push(model.clone());
            }
            1 if !points.is_empty() => {
                batch.rollback_to_save_point().unwrap();
                model = points.pop().unwrap();
            }
            2 if !points.is_empty() => {
                batch.pop_save_point().unwrap();
                points.pop();
            }
            _ => {}
        }
        if round % 10 == 0 {
            compare(&mut random, &db, &batch, &model);
        }
    }
    compare(&mut random, &db, &batch, &model);
    db.write(&WriteOptions::new(), batch.write_batch()).unwrap();
    let nothing = WriteBatchWithIndex::new(&db, overwrite_key);
    compare(&mut random, &db, &nothing, &model);
}

#[test]
fn reads_over_the_database_are_what_writing_the_batch_would_bring() {
    for seed in 1..=4 {
        as_a_model_has_it(true, seed);
        as_a_model_has_it(false, seed);
    }
}

#[test]
fn the_batch_alone_says_what_it_knows() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    db.put("merged", "db").unwrap();
    let mut batch = WriteBatchWithIndex::new(&db, true);
    batch.put("put", "1").unwrap();
    batch.single_delete("gone").unwrap();
    batch.merge("merged", "a").unwrap();
    batch.merge("merged", "b").unwrap();
    assert!(matches!(batch.get_from_batch("other").unwrap(), InBatch::Absent));
    assert!(matches!(batch.get_from_batch("gone").unwrap(), InBatch::Deleted));
    assert!(matches!(batch.get_from_batch("put").unwrap(), InBatch::Value(v) if &*v == b"1"));
    assert!(matches!(batch.get_from_batch("merged").unwrap(), InBatch::Operands(o) if o.len() == 2));
    let got = batch.get_from_batch_and_db(&db, &ReadOptions::new(), "merged").unwrap();
    assert_eq!(got.as_deref(), Some(&b"db,a,b"[..]));
    assert_eq!(batch.delete_range("a", "b").unwrap_err().kind(), ErrorKind::NotSupported);
    assert_eq!(batch.rollback_to_save_point().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(batch.count(), 4, "what was refused left the batch as it was");
}

#[test]
fn an_iterator_shows_the_batch_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    let mut batch = WriteBatchWithIndex::new(&db, true);
    batch.put("a", "1").unwrap();
    let mut iter = batch.iter_with_base(&db, &ReadOptions::new()).unwrap();
    batch.put("b", "2").unwrap();
    batch.delete("a").unwrap();
    assert_eq!(forward(&mut iter), vec![(b"a".to_vec(), b"1".to_vec())]);
    let mut now = batch.iter_with_base(&db, &ReadOptions::new()).unwrap();
    assert_eq!(forward(&mut now), vec![(b"b".to_vec(), b"2".to_vec())]);
}

type Operations = Vec<(Vec<u8>, BatchEntryKind, Vec<u8>)>;

/// Performs one random operation on the batch and on the list of operations that it shows.
fn note(random: &mut Random, batch: &mut WriteBatchWithIndex, shown: &mut Operations, round: u64) {
    let (key, value) = (key(random.below(8)), format!("{round}").into_bytes());
    let (kind, value) = match random.below(4) {
        0 => (BatchEntryKind::Put, value),
        1 => (BatchEntryKind::Delete, Vec::new()),
        2 => (BatchEntryKind::SingleDelete, Vec::new()),
        _ => (BatchEntryKind::Merge, value),
    };
    match kind {
        BatchEntryKind::Put => batch.put(&key, &value),
        BatchEntryKind::Delete => batch.delete(&key),
        BatchEntryKind::SingleDelete => batch.single_delete(&key),
        BatchEntryKind::Merge => batch.merge(&key, &value),
        BatchEntryKind::PutEntity => unreachable!("transactions of an earlier life alone have entities"),
    }
    .unwrap();
    if batch.overwrite_key && kind != BatchEntryKind::Merge {
        shown.retain(|(other, ..)| *other != key);
    }
    shown.push((key, kind, value));
}

fn current(iter: &BatchIterator) -> (Vec<u8>, BatchEntryKind, Vec<u8>) {
    let BatchEntry { kind, key, value } = iter.entry();
    (key.to_vec(), kind, value.to_vec())
}

/// Checks that the iterator shows these operations in order, forward and backward, and from each
/// key.
fn shows(iter: &mut BatchIterator, all: &Operations) {
    let (mut forward, mut backward) = (Operations::new(), Operations::new());
    iter.seek_to_first();
    while iter.valid() {
        forward.push(current(iter));
        iter.next();
    }
    iter.seek_to_last();
    while iter.valid() {
        backward.push(current(iter));
        iter.prev();
    }
    backward.reverse();
    assert_eq!((&forward, &backward), (all, all));
    for key in (0..9).map(key) {
        let begin = all.partition_point(|(other, ..)| *other < key);
        let end = all.partition_point(|(other, ..)| *other <= key);
        iter.seek(&key);
        assert_eq!(iter.valid().then(|| current(iter)), all.get(begin).cloned());
        if iter.valid() {
            iter.prev();
            let before = begin.checked_sub(1).map(|at| all[at].clone());
            assert_eq!(iter.valid().then(|| current(iter)), before);
        }
        iter.seek_for_prev(&key);
        assert_eq!(iter.valid().then(|| current(iter)), end.checked_sub(1).map(|at| all[at].clone()));
        if iter.valid() {
            iter.next();
            assert_eq!(iter.valid().then(|| current(iter)), all.get(end).cloned());
        }
    }
}

#[test]
fn the_batch_alone_shows_its_operations_in_the_order_of_their_keys() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    db.put(key(3), "of the database").unwrap();
    for (overwrite_key, seed) in [(true, 1), (false, 2)] {
        let (mut random, mut shown) = (Random(seed), Operations::new());
        let mut batch = WriteBatchWithIndex::new(&db, overwrite_key);
        let (mut points, mut before): (Vec<Operations>, Operations) = Default::default();
        let mut older = batch.iter();
        for round in 0..100 {
            note(&mut random, &mut batch, &mut shown, round);
            match random.below(8) {
                0 => {
                    batch.set_save_point();
                    points.push(shown.clone());
                }
                1 if !points.is_empty() => {
                    batch.rollback_to_save_point().unwrap();
                    shown = points.pop().unwrap();
                }
                _ => {}
            }
            shows(&mut older, &before);
            let mut sorted = shown.clone();
            sorted.sort_by(|(a, ..), (b, ..)| a.cmp(b));
            let mut iter = batch.iter_cf(db.default_column_family()).unwrap();
            shows(&mut iter, &sorted);
            (older, before) = (iter, sorted);
        }
    }
}

#[test]
fn a_family_of_another_database_is_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, foreign) = (open(&one), open(&other));
    let mut batch = WriteBatchWithIndex::new(&db, true);
    let refused = batch.put_cf(foreign.default_column_family(), "a", "1").unwrap_err();
    assert_eq!((refused.kind(), batch.is_empty()), (ErrorKind::InvalidArgument, true));
    let refused = batch.iter_cf(foreign.default_column_family()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    // One foreign family among several.
    db.put("a", "1").unwrap();
    let families = [foreign.default_column_family(), db.default_column_family()];
    let read = ReadOptions::new();
    let got = batch.multi_get_from_batch_and_db_cfs(&db, &read, &families, &["a", "a"]);
    assert_eq!(got[0].as_ref().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(got[1].as_ref().unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_batch_that_may_not_grow_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    let family = db.default_column_family();
    let mut batch = WriteBatchWithIndex::with_limit(&db, true, 60);
    batch.put("a", "1").unwrap();
    let large = "x".repeat(60);
    for with_save_point in [false, true] {
        if with_save_point {
            batch.set_save_point();
        }
        let before = (batch.count(), batch.data_size());
        let refused = [
            batch.put("a", &large),
            batch.put_cf(family, "b", &large),
            batch.delete(&large),
            batch.single_delete_cf(family, &large),
            batch.merge("a", &large),
            batch.put_log_data(&large),
        ];
        let refused = refused.map(|outcome| outcome.unwrap_err().kind());
        assert_eq!(refused, [ErrorKind::LimitReached; 6]);
        assert_eq!((batch.count(), batch.data_size()), before);
        assert!(matches!(batch.get_from_batch("a").unwrap(), InBatch::Value(v) if &*v == b"1"));
        assert!(matches!(batch.get_from_batch_cf(family, "b").unwrap(), InBatch::Absent));
        assert!(matches!(batch.get_from_batch(&large).unwrap(), InBatch::Absent));
    }
    batch.put("b", "2").unwrap();
    assert_eq!(batch.data_size(), batch.write_batch().as_bytes().len());
    batch.rollback_to_save_point().unwrap();
    assert_eq!(batch.count(), 1);
    batch.set_save_point();
    batch.clear();
    assert!(batch.is_empty() && matches!(batch.get_from_batch("a").unwrap(), InBatch::Absent));
    assert_eq!(batch.pop_save_point().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_batch_for_no_database_is_for_the_one_it_is_read_with() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, foreign) = (open(&one), open(&other));
    let family = db.create_column_family("side", &Options::new()).unwrap();
    db.put("a", "below").unwrap();
    let read = ReadOptions::new();
    let mut batch =
        WriteBatchWithIndex::with_params(BatchParams { overwrite_key: true, ..Default::default() });
    batch.put("b", "1").unwrap();
    batch.merge("a", "above").unwrap();
    let merged = batch.get_from_batch_and_db(&db, &read, "a").unwrap();
    assert_eq!(merged.as_deref(), Some(&b"below,above"[..]));
    assert!(matches!(batch.get_from_batch("b").unwrap(), InBatch::Value(value) if &*value == b"1"));
    let merged = batch.get_from_batch_and_db(&foreign, &read, "a").unwrap();
    assert_eq!(merged.as_deref(), Some(&b"above"[..]), "it is for no database yet");

    // Operands over a value in the batch are merged if the family names an operator.
    batch.merge("b", "2").unwrap();
    assert_eq!(batch.get_from_batch("b").unwrap_err().kind(), ErrorKind::InvalidArgument);
    let InBatch::Value(value) = batch.get_from_batch_cf(db.default_column_family(), "b").unwrap() else {
        panic!("it is merged within the batch");
    };
    assert_eq!(&*value, b"1,2");

    // The first family that is named binds the batch to its database, until the batch is cleared.
    batch.put_cf(&family, "c", "3").unwrap();
    let refused = batch.put_cf(foreign.default_column_family(), "d", "4").unwrap_err();
    assert_eq!((refused.kind(), batch.count()), (ErrorKind::InvalidArgument, 4));
    assert!(batch.get_from_batch_and_db(&foreign, &read, "a").is_err());
    assert_eq!(batch.iter().entries(), ["Merge a above", "Put b 1", "Merge b 2"]);
    db.write(&WriteOptions::new(), batch.write_batch()).unwrap();
    assert_eq!(db.get("b").unwrap().as_deref(), Some(&b"1,2"[..]));
    batch.clear();
    batch.put_cf(foreign.default_column_family(), "d", "4").unwrap();
}

impl BatchIterator {
    fn entries(mut self) -> Vec<String> {
        let mut found = Vec::new();
        self.seek_to_first();
        while self.valid() {
            let BatchEntry { kind, key, value } = self.entry();
            found.push(format!("{kind:?} {} {}", key.escape_ascii(), value.escape_ascii()));
            self.next();
        }
        found
    }
}

#[derive(Debug)]
struct Backward;

impl karst_engine::format::UserComparator for Backward {
    fn name(&self) -> &str {
        "test.Backward"
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }
}

#[test]
fn the_parameters_of_a_batch_for_no_database_have_their_effects() {
    let comparator = Comparator::Custom(Arc::new(Backward));
    let params = BatchParams {
        reserved_bytes: 100,
        max_bytes: 60,
        is_protected: true,
        comparator,
        ..Default::default()
    };
    let mut batch = WriteBatchWithIndex::with_params(params);
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "3")] {
        batch.put(key, value).unwrap();
    }
    // In the comparator's order, and nothing is overwritten.
    assert_eq!(batch.iter().entries(), ["Put b 2", "Put a 1", "Put a 3"]);
    assert!(batch.write_batch().is_protected());
    let refused = batch.put("c", [b'v'; 60]).unwrap_err();
    assert_eq!((refused.kind(), batch.count()), (ErrorKind::LimitReached, 3));

    // Lookups of a family in another order would be wrong.
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory);
    let refused = batch.put_cf(db.default_column_family(), "c", "").unwrap_err();
    assert_eq!((refused.kind(), batch.count()), (ErrorKind::InvalidArgument, 3));
}

#[test]
fn an_iterator_that_there_is_gets_the_batch_over_it() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, foreign) = (open(&directory), open(&other));
    for (key, value) in [("b", "below"), ("d", "below"), ("f", "below")] {
        db.put(key, value).unwrap();
    }
    let mut batch = WriteBatchWithIndex::with_params(BatchParams::default());
    for key in ["a", "c", "g"] {
        batch.put(key, "above").unwrap();
    }
    batch.delete("d").unwrap();
    batch.merge("b", "above").unwrap();
    let family = db.default_column_family();
    let base = || db.iter_cf(&ReadOptions::new(), family).unwrap();
    let keys = |iter: &mut BatchDbIterator| {
        let found = forward(iter).into_iter();
        found
            .map(|(key, value)| String::from_utf8([&key[..], b"=", &value].concat()).unwrap())
            .collect::<Vec<_>>()
    };
    let mut whole = batch.iter_over(base(), family, (None, None)).unwrap();
    assert_eq!(keys(&mut whole), ["a=above", "b=below,above", "c=above", "f=below", "g=above"]);
    // The bounds apply to the batch's keys only.
    let mut bounded = batch.iter_over(base(), family, (Some(b"b".to_vec()), Some(b"g".to_vec()))).unwrap();
    assert_eq!(keys(&mut bounded), ["b=below,above", "c=above", "f=below"]);
    // The position of `base` does not matter.
    let mut sent = base();
    sent.seek_to_last().unwrap();
    assert_eq!(keys(&mut batch.iter_over(sent, family, (None, None)).unwrap()).len(), 5);

    let bound = WriteBatchWithIndex::new(&foreign, true);
    let refused = bound.iter_over(base(), family, (None, None)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}
