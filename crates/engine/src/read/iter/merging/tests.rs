//! Tests of the order of the merged children, against sorting all of their keys.

use super::*;
use crate::ingest::BulkLoader;
use crate::read::iter::job_input::Move;
use crate::read::iter::job_input::tests::all_files;
use crate::{Db, Options};
use karst_base::options::ReadOptions;
use karst_base::stats::HistogramKind;
use karst_format::key::{InternalKey, TRAILER_BYTES, ValueType};
use karst_storage::table::drive::{Step, wait_with};
use karst_storage::table::fetch::Fetches;
use proptest::prelude::*;

fn internal_key(user_key: &[u8], seq: u64) -> Vec<u8> {
    InternalKey { user_key, seq: SeqNo(seq), kind: ValueType::Value }.to_vec()
}

fn sorted(comparator: &Comparator, mut keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    keys.sort_by(|a, b| comparator.compare_internal(a, b));
    keys
}

proptest! {
    #[test]
    fn what_is_noted_orders_as_the_keys_do(
        prefix in proptest::collection::vec(prop_oneof![Just(0_u8), Just(b'k'), Just(0xff)], 0..4),
        keys in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(prop_oneof![4 => Just(0_u8), 1 => Just(b'k'), 1 => Just(0xff)], 0..22), 0_u64..3),
            2,
        ),
    ) {
        let shared = SharedPrefix(prefix.clone());
        let noted = keys.into_iter().map(|(in_table, rest, seq)| {
            let user_key = if in_table { [&prefix[..], &rest].concat() } else { rest };
            let key = internal_key(&user_key, seq);
            (if in_table { shared.note_within(&key) } else { shared.note(&key) }, key)
        });
        let [(a, key_a), (b, key_b)] = noted.collect::<Vec<_>>().try_into().unwrap();
        let by_keys = Comparator::Bytewise.compare_internal(&key_a, &key_b);
        if a.start != b.start {
            prop_assert_eq!(a.start.cmp(&b.start), by_keys);
        } else if let Some(order) = a.rest.order(&b.rest) {
            prop_assert_eq!(order, by_keys);
        } else {
            let is_whole = |key: &[u8]| key.starts_with(&prefix) && key.len() <= prefix.len() + 16 + TRAILER_BYTES;
            prop_assert!(!is_whole(&key_a) || !is_whole(&key_b), "short keys need not be read");
        }
    }
}

/// Returns all internal keys of memtables and a database's files in iteration order.
fn walk(db: &Db, comparator: &Comparator, memtables: &[Arc<MemTable>], to: To) -> Vec<Vec<u8>> {
    let family = &db.default_column_family().0;
    let mut merging = Merging::of_inputs(comparator, memtables, &all_files(db), ReadaheadLimits::off());
    let (options, mut needs) = (ReadOptions::default(), Needs::new());
    let mut fetches = Fetches::new(&options, HistogramKind::FileReadDbIteratorMicros);
    let mut settle = |merging: &mut Merging, needs: &mut Needs| {
        let ctx = ReadCtx::new(&family.tables, &options);
        let mut step = Move { merging, needs, bounds: &Bounds::default() };
        match step.step(&ctx) {
            Ok(()) => Ok(()),
            Err(Stop::Need) => wait_with(ctx, &mut step, &mut fetches),
            Err(Stop::Error(error)) => Err(error),
        }
    };
    let mut keys = Vec::new();
    merging.begin(to, &[], &mut needs);
    settle(&mut merging, &mut needs).unwrap();
    while merging.valid() {
        assert_eq!(merging.entry(), (merging.key(), merging.value()));
        keys.push(merging.key().to_vec());
        if !merging.advance_at_once().unwrap() {
            settle(&mut merging, &mut needs).unwrap();
        }
    }
    keys
}

/// Keys of memtables without the prefix that the keys of all files share, on both sides of it and
/// with equal bytes behind it, next to keys with the prefix.
#[test]
fn keys_of_memtables_outside_of_what_files_share_come_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut loader = BulkLoader::create(directory.path(), &Options::new()).unwrap();
    let rests: [&[u8]; 6] = [b"", b"a", b"a\0", b"abcdefgh", b"abcdefghijklmnop", b"abcdefghijklmnopq"];
    let in_files: Vec<Vec<u8>> = rests
        .iter()
        .chain(&[&b"\0\0\0\0\0\0\0\0"[..], &[0xff; 20]])
        .map(|rest| [b"prefix", *rest].concat())
        .collect();
    for _ in 0..2 {
        for key in &in_files {
            loader.put(key, b"in a file").unwrap();
        }
        loader.seal(0).unwrap();
    }
    loader.finish().unwrap();
    let db = Db::open_read_only(directory.path(), &Options::new()).unwrap();
    let of_files = walk(&db, &Comparator::Bytewise, &[], To::First);
    assert_eq!(of_files.len(), 2 * in_files.len());

    let memtables: Vec<_> = (0..3).map(|_| Arc::new(MemTable::new(Comparator::Bytewise))).collect();
    let mut all = of_files.clone();
    let mut seq = 1000;
    // The first memtable has the smallest of the equally long heads, but not in every round the
    // newest entries.
    let heads: [&[u8]; 10] = [
        b"aaaaaa",
        b"bbbbbb",
        b"oooooo",
        b"prefiw",
        b"prefix",
        b"prefiy",
        b"qqqqqq",
        b"zzzzzz",
        b"pre",
        b"\xff\xff\xff\xff\xff\xff",
    ];
    for round in 0..3 {
        for (number, head) in heads.iter().enumerate() {
            for rest in rests {
                seq += 1;
                let user_key = [*head, rest].concat();
                let memtable = &memtables[(number + round) % memtables.len()];
                memtable.add(SeqNo(seq), ValueType::Value, &user_key, b"in memory").unwrap();
                all.push(internal_key(&user_key, seq));
            }
        }
    }
    let mut expected = sorted(&Comparator::Bytewise, all);
    assert_eq!(walk(&db, &Comparator::Bytewise, &memtables, To::First), expected);
    expected.reverse();
    assert_eq!(walk(&db, &Comparator::Bytewise, &memtables, To::Last), expected);
}

/// More runs than [`FEW`], with keys of which digests hold much, little or nothing.
#[test]
fn many_runs_come_in_order_of_any_comparator() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), &Options::new().db(|db| db.create_if_missing = true)).unwrap();
    for comparator in [Comparator::Bytewise, Comparator::ReverseBytewise] {
        for long in [&b""[..], b"the same for so many bytes/"] {
            for runs in [3, FEW + 1, 3 * FEW] {
                let memtables: Vec<_> =
                    (0..runs).map(|_| Arc::new(MemTable::new(comparator.clone()))).collect();
                let mut random = karst_testkit::random::Random::new(runs as u64);
                let mut all = Vec::new();
                for seq in 1..2000 {
                    let user_key = [long, &random.below(300).to_string().into_bytes()].concat();
                    let memtable = &memtables[random.below(runs as u64) as usize];
                    memtable.add(SeqNo(seq), ValueType::Value, &user_key, b"").unwrap();
                    all.push(internal_key(&user_key, seq));
                }
                let mut expected = sorted(&comparator, all);
                assert_eq!(walk(&db, &comparator, &memtables, To::First), expected);
                expected.reverse();
                assert_eq!(walk(&db, &comparator, &memtables, To::Last), expected);
            }
        }
    }
}
