//! Cuts along handwritten next levels and sizes.

use super::*;
use crate::pick::tests::TestTree;
use karst_format::key::{InternalKey, SeqNo, ValueType};

const KIB: u64 = 1 << 10;

/// Returns a compaction from L1 to L2 with target size 100 KiB, over files of L3 with these ranges
/// and sizes in KiB.
fn compaction(grandparents: &[(&str, &str, u64)]) -> Compaction {
    let mut tree = TestTree::new(
        "level_compaction_dynamic_level_bytes=false;max_bytes_for_level_base=1;target_file_size_base=100K;num_levels=5;\
         max_compaction_bytes=1M",
    );
    tree.file(1, "a", "zz", 10 * KIB);
    tree.file(2, "a", "zz", 10 * KIB);
    for (smallest, largest, kib) in grandparents {
        tree.file(3, smallest, largest, kib * KIB);
    }
    tree.options.family.max_bytes_for_level_multiplier = 1e12;
    tree.pick().unwrap()
}

fn key(user_key: &str) -> Vec<u8> {
    InternalKey { user_key: user_key.as_bytes(), seq: SeqNo(7), kind: ValueType::Value }.to_vec()
}

/// Returns the keys that begin a new output, with entries of `entry_kib` KiB.
fn cuts(compaction: &Compaction, keys: &[&str], entry_kib: u64) -> Vec<String> {
    let mut cutter = OutputCutter::new(compaction);
    let mut file_bytes = 0;
    let mut cuts = Vec::new();
    for user_key in keys {
        let open = (file_bytes > 0).then_some(OpenOutput { file_bytes, tail_bytes: 0 });
        let by_size = cutter.goes_by_size(&key(user_key), open.unwrap_or_default());
        let smaller = OpenOutput { file_bytes: file_bytes / 2, tail_bytes: 0 };
        let as_smaller = cutter.clone().ends_before(&key(user_key), true, open.map(|_| smaller));
        let ends = cutter.ends_before(&key(user_key), true, open);
        assert!(by_size || ends == as_smaller, "{user_key}: the size decides, and it was not said so");
        if ends {
            cuts.push((*user_key).to_owned());
            file_bytes = 0;
        }
        file_bytes += entry_kib * KIB;
    }
    cuts
}

const LETTERS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

#[test]
fn without_a_next_level_files_are_cut_at_their_size() {
    assert_eq!(cuts(&compaction(&[]), &LETTERS, 25), ["e", "i"]);
    let mut to_l0 = compaction(&[]);
    to_l0.output_level.0 = 0;
    assert_eq!(cuts(&to_l0, &LETTERS, 25), [""; 0]);
}

#[test]
fn half_full_files_end_at_a_boundary_below() {
    // The second file begins at f; by then the output has 50 KiB, and has passed one boundary, the
    // end of the first file.
    let below = compaction(&[("a", "c", 10), ("f", "z", 10)]);
    assert_eq!(cuts(&below, &LETTERS[..6], 10), [""; 0], "passing two boundaries wants 60 percent");
    assert_eq!(cuts(&below, &LETTERS[..6], 12), ["f"]);
    // The more boundaries were passed, the fuller the output must be; between boundaries it may
    // grow to twice its target.
    assert_eq!(cuts(&compaction(&[("a", "z", 10)]), &LETTERS, 25), ["i"]);
    let many: Vec<(&str, &str, u64)> = LETTERS.iter().map(|key| (*key, *key, 1)).collect();
    assert_eq!(cuts(&compaction(&many), &LETTERS, 10), ["j"], "90 percent at most");
}

/// The example of RocksDB's source: without a cut, one output would make every later compaction
/// read a file in the middle that it has no key in.
#[test]
fn a_file_below_that_no_key_falls_into_is_left_out() {
    let below = compaction(&[("c", "e", 20), ("m", "p", 20), ("w", "y", 20)]);
    assert_eq!(cuts(&below, &["a", "d", "v", "x"], 1), ["v"]);
    let small = compaction(&[("c", "e", 20), ("m", "p", 12), ("w", "y", 20)]);
    assert_eq!(cuts(&small, &["a", "d", "v", "x"], 1), [""; 0], "too small to matter");
}

#[test]
fn an_output_does_not_overlap_too_much() {
    let below: Vec<(&str, &str, u64)> = LETTERS.iter().map(|key| (*key, *key, 300)).collect();
    assert_eq!(
        cuts(&compaction(&below), &LETTERS[..8], 1),
        ["d", "g"],
        "1 MiB is three files of 300 KiB and not four"
    );
}

#[test]
fn old_inputs_of_the_output_level_are_cut_out() {
    let mut with_old = compaction(&[]);
    let mut tree = TestTree::new("");
    tree.file(2, "d", "fz", KIB);
    tree.file(2, "k", "kz", KIB);
    with_old.ttl_cuts = tree.version().files(karst_format::ids::Level(2)).to_vec();
    assert_eq!(cuts(&with_old, &LETTERS, 1), ["d", "g", "k", "l"]);
}

#[test]
fn the_next_turn_of_the_output_level_begins_with_a_file() {
    let mut by_turn = compaction(&[]);
    by_turn.output_split_key = Some(key("e").into());
    assert_eq!(cuts(&by_turn, &LETTERS, 1), ["e"]);
}

#[test]
fn entries_of_one_user_key_stay_together() {
    let compaction = compaction(&[]);
    let mut cutter = OutputCutter::new(&compaction);
    let full = Some(OpenOutput { file_bytes: 200 * KIB, tail_bytes: 0 });
    assert!(!cutter.ends_before(&key("a"), true, None), "nothing is open");
    assert!(!cutter.ends_before(&key("a"), false, full));
    assert!(cutter.ends_before(&key("b"), true, full));
    // The bytes behind the data count if `size_includes_tail` is set.
    let mut upper = compaction.clone();
    upper.size_includes_tail = true;
    let with_tail = Some(OpenOutput { file_bytes: 90 * KIB, tail_bytes: 10 * KIB });
    assert!(OutputCutter::new(&upper).ends_before(&key("b"), true, with_tail));
    assert!(!OutputCutter::new(&compaction).ends_before(&key("b"), true, with_tail));
}
