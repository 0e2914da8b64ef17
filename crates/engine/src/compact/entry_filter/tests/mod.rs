//! Tests of the entry filter: with random histories, readers at a snapshot see equal results before
//! and after; and RocksDB's rules, one by one.

use super::super::tombstones::left_over;
use super::*;
use karst_base::compaction_filter::CompactionFilter;
use karst_base::merge_operator;
use karst_base::options::ColumnFamilyOptions;
use karst_base::snapshot::Readers;
use karst_format::ids::ColumnFamilyId;
use karst_format::wide_column::{self, WideColumn};
use karst_lsm::range_del::RangeTombstone;
use proptest::prelude::*;
use std::collections::BTreeSet;

mod pending;
mod timestamps;
mod user_filters;

type Entry = (Vec<u8>, u64, ValueType, Vec<u8>);

#[derive(Default)]
struct Collected(Vec<Entry>);

impl EntrySink for Collected {
    fn emit(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        let (user_key, trailer) = key::split(internal_key);
        let kind = ValueType::from_u8(trailer as u8).unwrap();
        self.0.push((user_key.to_vec(), trailer >> 8, kind, value.to_vec()));
        Ok(())
    }
}

/// The facts of a job, except its entries.
#[derive(Clone, Debug, Default)]
struct Job {
    snapshots: Vec<u64>,
    /// First number, end number, and the number of the decision, if any.
    pending: Vec<(SeqNo, SeqNo, Option<SeqNo>)>,
    write_prepared: bool,
    bottommost: bool,
    flush: bool,
    /// User keys that older files hold.
    older: BTreeSet<Vec<u8>>,
    tombstones: Vec<RangeTombstone>,
    operator: &'static str,
    write_conflict_snapshot: Option<u64>,
    blob_cutoff: u64,
    lax_single_deletes: bool,
    user: Option<Arc<dyn CompactionFilter>>,
    /// Keys have timestamps, and history from this one on is kept.
    history_low: Option<u64>,
}

impl Job {
    fn fragments(&self) -> Arc<Fragments> {
        Arc::new(Fragments::build(&Comparator::Bytewise, self.tombstones.clone()))
    }

    fn run(&self, entries: &[Entry]) -> Result<(Vec<Entry>, EntryCounts)> {
        let mut options = ColumnFamilyOptions::default();
        options.table_factory.block_based.format_version = 6;
        let instances = karst_base::options::Instances {
            merge_operator: merge_operator::from_name(self.operator),
            comparator: self.history_low.map(|_| Comparator::BytewiseU64Ts),
            ..Default::default()
        };
        let config = FamilyConfig::resolve(ColumnFamilyId(0), "default", options, None, instances).unwrap();
        let older = self.older.clone();
        let (bottommost, mut last) = (self.bottommost, Vec::new());
        let may_hold = move |user_key: &[u8]| {
            assert!(last <= user_key.to_vec(), "asked in order");
            last = user_key.to_vec();
            !bottommost && older.contains(user_key)
        };
        let mut filter = EntryFilter::new(FilterOptions {
            config: Arc::new(config),
            stripes: Stripes::of_readers(&Readers {
                snapshots: self.snapshots.iter().map(|s| SeqNo(*s)).collect(),
                pending: self.pending.clone(),
                may_have_rolled_back: self.write_prepared || !self.pending.is_empty(),
            }),
            tombstones: Some(self.fragments()),
            bottommost: self.bottommost,
            may_hold: (!self.flush).then(|| Box::new(may_hold) as MayHold<'_>),
            enforce_single_deletes: !self.lax_single_deletes,
            write_conflict_snapshot: self.write_conflict_snapshot.map_or(SeqNo::MAX, SeqNo),
            blob_cutoff: FileNumber(self.blob_cutoff),
            history_low: self.history_low.map(|low| low.to_le_bytes().to_vec()),
            trim_ts: None,
            user: self.user.clone().map(|filter| UserFilter::new(filter, 3).unwrap()),
        });
        let mut sink = Collected::default();
        for (user_key, seq, kind, value) in entries {
            let internal = key::InternalKey { user_key, seq: SeqNo(*seq), kind: *kind }.to_vec();
            let mut pushed = filter.push(&internal, value, &mut sink)?;
            while pushed == Pushed::NeedsBlob {
                let (wanted_key, reference) = filter.wanted();
                assert_eq!(wanted_key, user_key);
                let value = blob_value(reference);
                pushed = filter.supply(&value, &mut sink)?;
            }
        }
        filter.finish(&mut sink)?;
        Ok((sink.0, filter.counts().clone()))
    }

    /// Returns the tombstones to write.
    fn left(&self) -> Vec<RangeTombstone> {
        let fragments = self.fragments();
        let stripes = Stripes::new(self.snapshots.iter().map(|s| SeqNo(*s)));
        let left = left_over(&Comparator::Bytewise, &fragments, &stripes, |from, to| {
            self.flush || (!self.bottommost && self.older.range(from.to_vec()..=to.to_vec()).next().is_some())
        });
        let f = left.fragments;
        (0..f.len())
            .flat_map(|i| f.seqs(i).iter().map(move |seq| (i, *seq)))
            .map(|(i, seq)| RangeTombstone::new(f.start(i), f.end(i), seq))
            .collect()
    }
}

/// A reference whose fields encode the value's own bytes.
fn reference(file: u64, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let offset = text.iter().fold(1u64, |n, b| n * 256 + u64::from(*b));
    let compression = karst_format::compression::CompressionType::None;
    BlobIndex::Stored { file: FileNumber(file), offset, size: text.len() as u64, compression }
        .encode_into(&mut out);
    out
}

fn blob_value(reference: &[u8]) -> Vec<u8> {
    let BlobIndex::Stored { offset, size, .. } = BlobIndex::decode(reference).unwrap() else { panic!() };
    offset.to_be_bytes()[8 - size as usize..].to_vec()
}

/// Returns the value of `user_key` for a reader at `seq`: the definition, entry by entry.
fn read(entries: &[&Entry], tombstones: &[&RangeTombstone], user_key: &[u8], seq: u64) -> Option<Vec<u8>> {
    let mut visible: Vec<&&Entry> = entries.iter().filter(|e| e.0 == user_key && e.1 <= seq).collect();
    visible.sort_by_key(|e| std::cmp::Reverse(e.1));
    let covering = |t: &&&RangeTombstone| *t.start <= *user_key && *user_key < *t.end && t.seq.0 <= seq;
    let hidden_below = tombstones.iter().filter(covering).map(|t| t.seq.0).max().unwrap_or(0);
    let mut operands: Vec<&[u8]> = Vec::new();
    let mut base = None;
    for (_, at, kind, value) in visible {
        if *at < hidden_below {
            break;
        }
        match kind {
            ValueType::Merge => {
                operands.push(value);
                continue;
            }
            ValueType::Value => base = Some(value.clone()),
            ValueType::ValuePreferredSeqno => base = Some(value[..value.len() - 8].to_vec()),
            ValueType::BlobIndex => base = Some(blob_value(value)),
            ValueType::WideColumnEntity => {
                let columns = wide_column::decode(value).unwrap();
                base = Some(
                    columns.first().filter(|c| c.name.is_empty()).map_or(Vec::new(), |c| c.value.to_vec()),
                );
            }
            _ => {}
        }
        break;
    }
    // Merging appends, with a comma in between.
    for operand in operands.iter().rev() {
        base = Some(match base {
            None => operand.to_vec(),
            Some(base) => [&base[..], b",", operand].concat(),
        });
    }
    base
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8),
    Timed(u8, u8, u8),
    Blob(u8, u8, u8),
    Entity(u8, u8),
    Delete(u8),
    /// Puts or single-deletes a key that no other operation uses.
    Alternate(u8),
    Merge(u8, u8),
    /// Any operation on a key that all operations use, single deletions against their contract too.
    Mixed(u8, u8),
    DeleteRange(u8, u8),
    Snapshot,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..5u8, any::<u8>()).prop_map(|(k, v)| Op::Put(k, v)),
        1 => (0..5u8, any::<u8>(), 0..9u8).prop_map(|(k, v, t)| Op::Timed(k, v, t)),
        2 => (0..5u8, any::<u8>(), 1..9u8).prop_map(|(k, v, f)| Op::Blob(k, v, f)),
        1 => (0..5u8, any::<u8>()).prop_map(|(k, v)| Op::Entity(k, v)),
        3 => (0..5u8).prop_map(Op::Delete),
        4 => (5..8u8).prop_map(Op::Alternate),
        4 => (0..5u8, any::<u8>()).prop_map(|(k, v)| Op::Merge(k, v)),
        4 => (8..10u8, any::<u8>()).prop_map(|(k, v)| Op::Mixed(k, v)),
        2 => (0..10u8, 0..11u8).prop_map(|(a, b)| Op::DeleteRange(a, b)),
        2 => Just(Op::Snapshot),
    ]
}

#[derive(Clone, Debug, Default)]
struct History {
    entries: Vec<Entry>,
    tombstones: Vec<RangeTombstone>,
    snapshots: Vec<u64>,
    /// Number of operations before the job begins.
    job_begins: u64,
}

fn user_key(k: u8) -> Vec<u8> {
    vec![b'a' + k]
}

fn history(ops: &[Op], job_begins: u64) -> History {
    let mut history = History { job_begins, ..History::default() };
    let mut alive = [false; 8];
    for (i, op) in ops.iter().enumerate() {
        let seq = i as u64 + 1;
        let text = |v: &u8| vec![b'A' + v % 26, b'0' + v % 10];
        let mut add = |k: &u8, kind, value| history.entries.push((user_key(*k), seq, kind, value));
        match op {
            Op::Put(k, v) => add(k, ValueType::Value, text(v)),
            Op::Timed(k, v, back) => {
                let preferred = seq.saturating_sub(u64::from(*back) + 1);
                let packed = [text(v), preferred.to_le_bytes().to_vec()].concat();
                add(k, ValueType::ValuePreferredSeqno, packed);
            }
            Op::Blob(k, v, file) => add(k, ValueType::BlobIndex, reference(u64::from(*file), &text(v))),
            Op::Entity(k, v) => {
                let default = text(v);
                let columns = [
                    WideColumn { name: b"", value: &default, is_blob: false },
                    WideColumn { name: b"x", value: b"y", is_blob: false },
                ];
                let mut entity = Vec::new();
                wide_column::encode_into(&columns[usize::from(v % 2)..], &mut entity);
                add(k, ValueType::WideColumnEntity, entity);
            }
            Op::Delete(k) => add(k, ValueType::Deletion, Vec::new()),
            Op::Alternate(k) => {
                let alive = &mut alive[usize::from(*k)];
                *alive = !*alive;
                let put = *alive;
                add(
                    k,
                    if put { ValueType::Value } else { ValueType::SingleDeletion },
                    if put { text(&(i as u8)) } else { vec![] },
                );
            }
            Op::Merge(k, v) => add(k, ValueType::Merge, text(v)),
            Op::Mixed(k, v) => match v % 5 {
                0 => add(k, ValueType::Value, text(v)),
                1 => add(k, ValueType::Deletion, Vec::new()),
                2 => add(k, ValueType::Merge, text(v)),
                _ => add(k, ValueType::SingleDeletion, Vec::new()),
            },
            Op::DeleteRange(a, b) if a < b => {
                history.tombstones.push(RangeTombstone::new(&user_key(*a), &user_key(*b), SeqNo(seq)));
            }
            Op::DeleteRange(..) => {}
            Op::Snapshot => history.snapshots.push(seq),
        }
    }
    history.entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    history
}

impl History {
    fn check(&self, bottommost: bool, flush: bool, operator: &'static str, blob_cutoff: u64) {
        let bottommost = bottommost && !flush;
        let (newer, older): (Vec<&Entry>, Vec<&Entry>) =
            self.entries.iter().partition(|e| e.1 > self.job_begins || bottommost);
        let (newer_tombstones, older_tombstones): (Vec<&RangeTombstone>, Vec<&RangeTombstone>) =
            self.tombstones.iter().partition(|t| t.seq.0 > self.job_begins || bottommost);
        let job = Job {
            snapshots: self.snapshots.clone(),
            bottommost,
            flush,
            older: older.iter().map(|e| e.0.clone()).collect(),
            tombstones: newer_tombstones.iter().map(|t| (*t).clone()).collect(),
            operator,
            blob_cutoff,
            lax_single_deletes: true,
            ..Job::default()
        };
        let input: Vec<Entry> = newer.iter().map(|e| (*e).clone()).collect();
        let (output, counts) = job.run(&input).unwrap();
        assert_eq!((counts.input_records, counts.output_records), (input.len() as u64, output.len() as u64));
        let order = |e: &Entry| (e.0.clone(), std::cmp::Reverse((e.1, e.2 as u8)));
        assert!(output.windows(2).all(|w| order(&w[0]) < order(&w[1])), "output out of order: {output:?}");
        let left = job.left();
        let all: Vec<&Entry> = self.entries.iter().collect();
        let all_tombstones: Vec<&RangeTombstone> = self.tombstones.iter().collect();
        let after: Vec<&Entry> = output.iter().chain(older).collect();
        let after_tombstones: Vec<&RangeTombstone> = left.iter().chain(older_tombstones).collect();
        for seq in self.snapshots.iter().copied().chain([SeqNo::MAX.0]) {
            for k in 0..8 {
                let user_key = user_key(k);
                let before = read(&all, &all_tombstones, &user_key, seq);
                let after = read(&after, &after_tombstones, &user_key, seq);
                assert_eq!(before, after, "key {} at {seq}: {output:?}, {left:?}", user_key.escape_ascii());
            }
        }
        for (key, _, kind, value) in &output {
            if *kind == ValueType::BlobIndex {
                let BlobIndex::Stored { file, .. } = BlobIndex::decode(value).unwrap() else { panic!() };
                assert!(file.0 >= blob_cutoff, "{key:?} stays in a file that is to be emptied");
            }
        }
        if bottommost && self.snapshots.is_empty() {
            assert!(output.iter().all(|e| e.1 == 0), "{output:?}");
            assert!(left.is_empty());
            let mut keys: Vec<_> = output.iter().map(|e| &e.0).collect();
            keys.dedup();
            assert_eq!(keys.len(), output.len(), "one entry a key");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn readers_see_the_same_before_and_after(
        ops in proptest::collection::vec(op(), 0..40),
        begins in 0u64..40,
        bottommost: bool,
        flush: bool,
        cutoff in 0u64..6,
    ) {
        // The job begins late only without timed puts, because a value written with an older time
        // may pass a tombstone or a deletion in an older file, in RocksDB too.
        let timed = ops.iter().any(|op| matches!(op, Op::Timed(..)));
        let begins = if timed { 0 } else { begins };
        history(&ops, begins).check(bottommost, flush, "stringappend", cutoff);
    }
}

fn run(job: &Job, entries: &[(&str, u64, ValueType, &str)]) -> Vec<String> {
    let entry = |e: &(&str, u64, ValueType, &str)| (e.0.into(), e.1, e.2, e.3.into());
    let entries: Vec<Entry> = entries.iter().map(entry).collect();
    shown(&job.run(&entries).unwrap().0)
}

fn shown(output: &[Entry]) -> Vec<String> {
    let show = |e: &Entry| format!("{}@{} {:?} {}", e.0.escape_ascii(), e.1, e.2, e.3.escape_ascii());
    output.iter().map(show).collect()
}

use ValueType::{Deletion as Del, Merge, SingleDeletion as Single, Value as Put};

#[test]
fn single_deletions_take_their_entry_with_them() {
    let job = Job::default();
    let older = Job { older: [b"a".to_vec()].into(), ..Job::default() };
    let pair = [("a", 5, Single, ""), ("a", 4, Put, "x")];
    assert!(run(&job, &pair).is_empty());
    assert!(run(&older, &pair).is_empty(), "also where older files have the key");
    assert_eq!(run(&older, &pair[..1]), ["a@5 SingleDeletion "]);
    assert!(run(&job, &pair[..1]).is_empty(), "nothing is left to delete");
    let flush = Job { flush: true, ..Job::default() };
    assert_eq!(run(&flush, &pair[..1]), ["a@5 SingleDeletion "], "a flush cannot know");
    let snapshot = Job { snapshots: vec![4], ..older.clone() };
    assert_eq!(run(&snapshot, &pair), ["a@5 SingleDeletion ", "a@4 Value x"]);
    let three = [("a", 9, Put, "z"), ("a", 5, Single, ""), ("a", 4, Put, "x")];
    assert_eq!(run(&older, &three), ["a@9 Value z"]);
    assert_eq!(run(&older, &three[..2]), ["a@9 Value z", "a@5 SingleDeletion "]);
}

#[test]
fn transactions_find_that_a_key_was_written() {
    let job = Job { snapshots: vec![3], write_conflict_snapshot: Some(3), flush: true, ..Job::default() };
    let pair = [("a", 5, Single, ""), ("a", 4, Put, "x"), ("a", 2, Put, "y")];
    assert_eq!(run(&job, &pair), ["a@5 SingleDeletion ", "a@4 Value ", "a@2 Value y"]);
}

#[test]
fn mixtures_that_rocksdb_leaves_undefined_stay_deleted() {
    let older = Job { older: [b"a".to_vec()].into(), lax_single_deletes: true, ..Job::default() };
    assert_eq!(run(&older, &[("a", 5, Single, ""), ("a", 4, Del, "")]), ["a@4 Deletion "]);
    let merge = Job { operator: "stringappend", ..older.clone() };
    assert_eq!(run(&merge, &[("a", 5, Single, ""), ("a", 4, Merge, "x")]), ["a@5 Deletion "]);
    let twice = [("a", 5, Single, ""), ("a", 4, Put, "x"), ("a", 3, Del, ""), ("a", 2, Put, "y")];
    assert_eq!(run(&older, &twice), ["a@3 Deletion "]);
    let strict = Job { lax_single_deletes: false, ..older };
    let entries = [(b"a".to_vec(), 5, Single, vec![]), (b"a".to_vec(), 4, Del, vec![])];
    let error = strict.run(&entries).unwrap_err();
    assert!(
        error.to_string().contains("key a") && error.to_string().contains("enforce_single_del_contracts")
    );
}

#[test]
fn deletions_go_when_nothing_older_is_left() {
    let entries = [("a", 5, Del, ""), ("b", 7, Del, ""), ("b", 6, Put, "x"), ("c", 8, Del, "")];
    let job = Job { older: [b"b".to_vec()].into(), ..Job::default() };
    assert_eq!(run(&job, &entries), ["b@7 Deletion "]);
    assert_eq!(run(&Job { snapshots: vec![7], ..job }, &entries), ["b@7 Deletion ", "c@8 Deletion "]);
    let bottom = Job { bottommost: true, snapshots: vec![6], ..Job::default() };
    assert_eq!(run(&bottom, &entries), ["b@7 Deletion ", "b@0 Value x"], "the snapshot at 6 sees the value");
}

#[test]
fn operands_are_merged_as_far_as_is_known() {
    let entries = [("a", 5, Merge, "3"), ("a", 4, Merge, "2"), ("a", 3, Put, "1"), ("b", 6, Merge, "x")];
    let job = Job { operator: "stringappend", older: [b"b".to_vec()].into(), ..Job::default() };
    assert_eq!(run(&job, &entries), ["a@5 Value 1,2,3", "b@6 Merge x"]);
    assert_eq!(run(&job, &entries[..2]), ["a@5 Merge 2,3"], "partial merge");
    let bottom = Job { bottommost: true, ..job.clone() };
    assert_eq!(run(&bottom, &entries[..2]), ["a@0 Value 2,3"]);
    let snapshot = Job { snapshots: vec![4], ..job.clone() };
    assert_eq!(run(&snapshot, &entries[..3]), ["a@5 Merge 3", "a@4 Value 1,2"]);
    // This operator has no partial merges.
    let max = Job { operator: "put", ..job.clone() };
    assert_eq!(run(&max, &entries[..3]), ["a@5 Value 3"]);
    let none = Job { operator: "", ..job };
    let error = none.run(&[(b"a".to_vec(), 5, Merge, vec![1])]).unwrap_err();
    assert!(error.to_string().contains("no merge operator"), "{error}");
}

#[test]
fn operands_are_merged_with_entities_whose_columns_are_in_blob_files() {
    let encoded = |default: &[u8], is_blob: bool, other: &[u8]| {
        let columns = [
            WideColumn { name: b"", value: default, is_blob },
            WideColumn { name: b"z", value: other, is_blob: true },
        ];
        let mut entity = Vec::new();
        wide_column::encode_into(&columns, &mut entity);
        entity
    };
    let (one, two) = (reference(7, b"one"), reference(7, b"two"));
    for (default, is_blob) in [(&one[..], true), (b"one", false)] {
        let entry = |seq, kind, value: &[u8]| (b"a".to_vec(), seq, kind, value.to_vec());
        let entries = [
            entry(9, ValueType::Merge, b"more"),
            entry(5, ValueType::WideColumnEntity, &encoded(default, is_blob, &two)),
        ];
        let job = Job { bottommost: true, operator: "stringappend", ..Job::default() };
        let (out, counts) = job.run(&entries).unwrap();
        assert_eq!(out, [entry(0, ValueType::WideColumnEntity, &encoded(b"one,more", false, &two))]);
        assert_eq!((counts.blobs_read, counts.operands_merged), (u64::from(is_blob), 1));
    }
}

#[test]
fn columns_leave_blob_files_that_are_to_be_emptied() {
    fn encoded(columns: &[(&str, &[u8], bool)]) -> Vec<u8> {
        let column = |&(name, value, is_blob)| WideColumn { name: str::as_bytes(name), value, is_blob };
        let columns: Vec<_> = columns.iter().map(column).collect();
        let mut entity = Vec::new();
        wide_column::encode_into(&columns, &mut entity);
        entity
    }
    let (old, older, young) = (reference(7, b"old"), reference(6, b"older"), reference(9, b"young"));
    let entity =
        encoded(&[("", &old, true), ("x", b"plain", false), ("y", &young, true), ("z", &older, true)]);
    let entry = |value: &[u8]| (b"a".to_vec(), 5, ValueType::WideColumnEntity, value.to_vec());
    let job = Job { blob_cutoff: 8, ..Job::default() };
    let (out, counts) = job.run(&[entry(&entity)]).unwrap();
    let moved =
        encoded(&[("", b"old", false), ("x", b"plain", false), ("y", &young, true), ("z", b"older", false)]);
    assert_eq!(out, [entry(&moved)]);
    assert_eq!((counts.blobs_read, counts.blobs_relocated), (2, 2));
}

#[test]
fn a_merge_operator_that_fails_fails_the_job() {
    let job = Job { operator: "uint64add", ..Job::default() };
    let entries = [(b"a".to_vec(), 5, Merge, vec![1]), (b"a".to_vec(), 4, Put, vec![0; 8])];
    if let Err(error) = job.run(&entries) {
        assert!(error.to_string().contains("key a"), "{error}");
    } else {
        // Compat: RocksDB's operator reads an undecodable value as zero, as ours does; the result
        // is then a value.
        assert_eq!(job.run(&entries).unwrap().0.len(), 1);
    }
}

#[test]
fn what_is_no_entry_fails_the_job() {
    let job = Job::default();
    let error = job.run(&[(b"a".to_vec(), 5, ValueType::RangeDeletion, vec![])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// An entry that an earlier compaction gave number 0 is below every newer one, in the same stripe
/// if there is no snapshot.
#[test]
fn entries_with_number_zero_belong_to_the_lowest_stripe() {
    for snapshots in [vec![], vec![20]] {
        let job = Job { bottommost: true, operator: "stringappend", snapshots, ..Job::default() };
        let zero = (b"k".to_vec(), 0, ValueType::Value, b"old".to_vec());
        let above = |kind, value: &[u8]| vec![(b"k".to_vec(), 9, kind, value.to_vec()), zero.clone()];
        assert_eq!(job.run(&above(ValueType::Deletion, b"")).unwrap().0, []);
        assert_eq!(job.run(&above(ValueType::SingleDeletion, b"")).unwrap().0, []);
        let merged = (b"k".to_vec(), 0, ValueType::Value, b"old,new".to_vec());
        assert_eq!(job.run(&above(ValueType::Merge, b"new")).unwrap().0, [merged]);
    }
}
