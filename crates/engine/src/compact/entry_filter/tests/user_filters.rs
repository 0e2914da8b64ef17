//! RocksDB's rules of compaction filters, one by one.

use super::*;
use karst_base::compaction_filter::{FilterDecision, FilterInput};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Decides by the key, and records the entries passed to it.
#[derive(Debug, Default)]
struct Scripted {
    decisions: BTreeMap<Vec<u8>, FilterDecision>,
    /// Decisions about values in blob files by key, without the values.
    by_key: BTreeMap<Vec<u8>, FilterDecision>,
    shown: Mutex<Vec<String>>,
}

impl Scripted {
    fn new(decisions: &[(&str, FilterDecision)]) -> Arc<Scripted> {
        let decisions = decisions.iter().map(|(key, decision)| (key.as_bytes().to_vec(), decision.clone()));
        Arc::new(Scripted { decisions: decisions.collect(), ..Scripted::default() })
    }

    fn shown(&self) -> Vec<String> {
        std::mem::take(&mut *self.shown.lock())
    }
}

impl CompactionFilter for Scripted {
    fn name(&self) -> &str {
        "Scripted"
    }

    fn filter(&self, level: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        assert_eq!(level, 3);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let shown = match entry {
            FilterInput::Value(value) => format!("{}={}", text(key), text(value)),
            FilterInput::MergeOperand(operand) => format!("{}+{}", text(key), text(operand)),
            FilterInput::Entity(columns) => {
                let columns: Vec<_> =
                    columns.iter().map(|(name, value)| format!("{}:{}", text(name), text(value))).collect();
                format!("{}={{{}}}", text(key), columns.join(","))
            }
            unknown => panic!("{unknown:?}"),
        };
        self.shown.lock().push(shown);
        self.decisions.get(key).cloned().unwrap_or(FilterDecision::Keep)
    }

    fn filter_blob_by_key(&self, _: u32, key: &[u8]) -> Option<FilterDecision> {
        self.by_key.get(key).cloned()
    }
}

fn entry(key: &str, seq: u64, kind: ValueType, value: impl AsRef<[u8]>) -> Entry {
    (key.as_bytes().to_vec(), seq, kind, value.as_ref().to_vec())
}

fn put(key: &str, seq: u64, value: &str) -> Entry {
    entry(key, seq, ValueType::Value, value)
}

fn job(filter: &Arc<Scripted>) -> Job {
    let user = Some(filter.clone() as Arc<dyn CompactionFilter>);
    let older = ["a", "b", "c", "d", "e", "f"].iter().map(|key| key.as_bytes().to_vec()).collect();
    Job { user, older, operator: "stringappend", ..Job::default() }
}

#[test]
fn the_newest_entry_of_a_key_is_shown_once_whatever_snapshots_see() {
    let filter = Scripted::new(&[("b", FilterDecision::Remove)]);
    let entries = [
        put("a", 9, "new"),
        put("a", 3, "old"),
        put("b", 8, "gone"),
        put("b", 2, "older"),
        entry("c", 7, ValueType::Deletion, ""),
        put("c", 1, "below a deletion"),
    ];
    let with_snapshots = Job { snapshots: vec![4, 20], ..job(&filter) };
    let (out, counts) = with_snapshots.run(&entries).unwrap();
    assert_eq!(filter.shown(), ["a=new", "b=gone"]);
    let expected = [
        put("a", 9, "new"),
        put("a", 3, "old"),
        entry("b", 8, ValueType::Deletion, ""),
        put("b", 2, "older"),
        entry("c", 7, ValueType::Deletion, ""),
        put("c", 1, "below a deletion"),
    ];
    assert_eq!(out, expected, "a snapshot that sees the value does not keep it");
    assert_eq!(counts.dropped_user, 1);
}

#[test]
fn what_is_removed_leaves_a_deletion_until_nothing_is_below() {
    let filter = Scripted::new(&[("a", FilterDecision::Remove), ("b", FilterDecision::Purge)]);
    let entries = [put("a", 9, "x"), put("a", 5, "y"), put("b", 8, "x")];
    let (out, _) = job(&filter).run(&entries).unwrap();
    let deletions = [entry("a", 9, ValueType::Deletion, ""), entry("b", 8, ValueType::SingleDeletion, "")];
    assert_eq!(out, deletions);
    let bottom = Job { bottommost: true, older: BTreeSet::new(), ..job(&filter) };
    let (out, counts) = bottom.run(&entries).unwrap();
    assert_eq!(out, []);
    assert_eq!((counts.dropped_user, counts.dropped_hidden), (2, 1));
    // A flush knows nothing about older data.
    let flush = Job { flush: true, ..job(&filter) };
    assert_eq!(flush.run(&entries).unwrap().0, deletions);
}

#[test]
fn values_and_entities_change_into_each_other() {
    let columns = |pairs: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
        pairs.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    };
    let filter = Scripted::new(&[
        ("a", FilterDecision::ChangeValue(b"changed".to_vec())),
        ("b", FilterDecision::ChangeValue(b"flat".to_vec())),
        ("c", FilterDecision::ChangeEntity(columns(&[("z", "1"), ("", "0")]))),
    ]);
    let entity = |pairs: &[(&str, &str)]| {
        let column = |(name, value): &(&'static str, &'static str)| WideColumn {
            name: name.as_bytes(),
            value: value.as_bytes(),
            is_blob: false,
        };
        let pairs: Vec<(&'static str, &'static str)> =
            pairs.iter().map(|(n, v)| (&*n.to_string().leak(), &*v.to_string().leak())).collect();
        let columns: Vec<_> = pairs.iter().map(column).collect();
        let mut encoded = Vec::new();
        wide_column::encode_into(&columns, &mut encoded);
        encoded
    };
    let two = entity(&[("", "d"), ("n", "v")]);
    let entries = [put("a", 9, "x"), entry("b", 8, ValueType::WideColumnEntity, &two), put("c", 7, "y")];
    let (out, counts) = job(&filter).run(&entries).unwrap();
    assert_eq!(filter.shown(), ["a=x", "b={:d,n:v}", "c=y"]);
    let expected = [
        put("a", 9, "changed"),
        put("b", 8, "flat"),
        entry("c", 7, ValueType::WideColumnEntity, entity(&[("", "0"), ("z", "1")])),
    ];
    assert_eq!(out, expected);
    assert_eq!(counts.dropped_user, 0);
    let twice = Scripted::new(&[("a", FilterDecision::ChangeEntity(columns(&[("n", "1"), ("n", "2")])))]);
    let error = job(&twice).run(&entries[..1]).unwrap_err().to_string();
    assert!(error.contains("two columns of one name") && error.contains("Scripted"), "{error}");
}

#[test]
fn skipped_keys_go_without_a_trace() {
    let filter = Scripted::new(&[
        ("b", FilterDecision::RemoveAndSkipUntil(b"d".to_vec())),
        ("e", FilterDecision::RemoveAndSkipUntil(b"e".to_vec())),
    ]);
    let entries = [
        put("a", 9, "1"),
        put("b", 8, "2"),
        put("b", 2, "older"),
        entry("b2", 7, ValueType::SingleDeletion, ""),
        entry("c", 6, ValueType::Merge, "operand"),
        put("d", 5, "3"),
        put("e", 4, "4"),
    ];
    let (out, counts) = job(&filter).run(&entries).unwrap();
    assert_eq!(filter.shown(), ["a=1", "b=2", "d=3", "e=4"], "nothing that is skipped is shown");
    assert_eq!(out, [put("a", 9, "1"), put("d", 5, "3"), put("e", 4, "4")]);
    assert_eq!((counts.input_records, counts.output_records), (7, 3));
}

#[test]
fn operands_are_shown_above_the_newest_snapshot_only() {
    let operand = |key: &str, seq: u64, text: &str| entry(key, seq, ValueType::Merge, text);
    let filter =
        Scripted::new(&[("a", FilterDecision::Remove), ("b", FilterDecision::ChangeValue(b"B".to_vec()))]);
    let entries = [
        operand("a", 9, "3"),
        operand("a", 8, "2"),
        operand("a", 4, "1"),
        operand("b", 9, "x"),
        put("b", 7, "base"),
    ];
    let with_snapshot = Job { snapshots: vec![5], ..job(&filter) };
    let (out, counts) = with_snapshot.run(&entries).unwrap();
    assert_eq!(
        filter.shown(),
        ["a+3", "a+2", "b+x"],
        "the operand that the snapshot sees is not shown, nor the base of a merge"
    );
    assert_eq!(out, [operand("a", 4, "1"), put("b", 9, "base,B")]);
    assert_eq!(counts.dropped_user, 2);
    // Once all operands are dropped, the value below is the newest entry of the key.
    let entries = [operand("a", 9, "3"), put("a", 7, "base")];
    let (out, _) = job(&filter).run(&entries).unwrap();
    assert_eq!(filter.shown(), ["a+3", "a=base"]);
    assert_eq!(out, [entry("a", 7, ValueType::Deletion, "")]);
    let skipping = Scripted::new(&[("a", FilterDecision::RemoveAndSkipUntil(b"b".to_vec()))]);
    let entries = [operand("a", 9, "3"), put("a", 7, "base"), put("b", 6, "v")];
    assert_eq!(job(&skipping).run(&entries).unwrap().0, [put("b", 6, "v")]);
}

#[test]
fn values_in_blob_files_are_read_unless_the_key_decides() {
    let blob = |key: &str, seq: u64, file: u64, text: &str| {
        entry(key, seq, ValueType::BlobIndex, reference(file, text.as_bytes()))
    };
    let mut filter = Scripted::default();
    filter.decisions.insert(b"b".to_vec(), FilterDecision::ChangeValue(b"new".to_vec()));
    filter.by_key.insert(b"c".to_vec(), FilterDecision::Remove);
    filter.by_key.insert(b"d".to_vec(), FilterDecision::Keep);
    let filter = Arc::new(filter);
    let entries = [
        blob("a", 9, 7, "v1"),
        blob("b", 8, 7, "v2"),
        blob("c", 7, 7, "v3"),
        blob("d", 6, 7, "v4"),
        blob("e", 5, 2, "v5"),
    ];
    let collects = Job { blob_cutoff: 5, ..job(&filter) };
    let (out, counts) = collects.run(&entries).unwrap();
    assert_eq!(filter.shown(), ["a=v1", "b=v2", "e=v5"]);
    let expected = [
        entries[0].clone(),
        put("b", 8, "new"),
        entry("c", 7, ValueType::Deletion, ""),
        entries[3].clone(),
        put("e", 5, "v5"),
    ];
    assert_eq!(out, expected);
    assert_eq!((counts.blobs_read, counts.blobs_relocated), (3, 1), "what is shown and moved is read once");
}

#[test]
fn columns_in_blob_files_are_read_for_the_filter() {
    let filter = Scripted::new(&[]);
    let (first, second) = (reference(7, b"one"), reference(7, b"two"));
    let columns = [
        WideColumn { name: b"", value: &first, is_blob: true },
        WideColumn { name: b"n", value: b"plain", is_blob: false },
        WideColumn { name: b"z", value: &second, is_blob: true },
    ];
    let mut encoded = Vec::new();
    wide_column::encode_into(&columns, &mut encoded);
    let entries = [entry("a", 9, ValueType::WideColumnEntity, &encoded)];
    let (out, counts) = job(&filter).run(&entries).unwrap();
    assert_eq!(filter.shown(), ["a={:one,n:plain,z:two}"]);
    assert_eq!(out, entries);
    assert_eq!(counts.blobs_read, 2);
}

#[test]
fn a_filter_that_would_be_asked_about_some_only_is_refused() {
    #[derive(Debug)]
    struct Partial;
    impl CompactionFilter for Partial {
        fn name(&self) -> &str {
            "Partial"
        }
        fn filter(&self, _: u32, _: &[u8], _: FilterInput<'_>) -> FilterDecision {
            FilterDecision::Keep
        }
        fn ignore_snapshots(&self) -> bool {
            false
        }
    }
    let error = UserFilter::new(Arc::new(Partial), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
}

#[test]
fn what_is_undecided_is_not_passed_over() {
    let filter = Scripted::new(&[("a", FilterDecision::RemoveAndSkipUntil(b"d".to_vec()))]);
    let pending = vec![(SeqNo(50), SeqNo(60), None)];
    let entries = [
        put("a", 51, "undecided"),
        put("a", 9, "shown"),
        put("a", 8, "older"),
        put("b", 7, "passed over"),
        put("c", 52, "undecided"),
        put("c", 6, "passed over"),
        entry("cc", 53, ValueType::Merge, "undecided"),
        put("d", 5, "stays"),
    ];
    let job = Job { pending, ..job(&filter) };
    let (output, _) = job.run(&entries).unwrap();
    assert_eq!(
        shown(&output),
        ["a@51 Value undecided", "c@52 Value undecided", "cc@53 Merge undecided", "d@5 Value stays"]
    );
    assert_eq!(filter.shown(), ["a=shown", "d=stays"]);
}
