//! Leveled picks on handwritten trees.

use super::*;
use karst_format::version_edit::{BlobFileAddition, BlobFileGarbage};

const MIB: u64 = 1 << 20;
const SMALL: &str = "max_bytes_for_level_base=10M;num_levels=4;target_file_size_base=1M;\
                     level0_file_num_compaction_trigger=2;level_compaction_dynamic_level_bytes=false";
const DYNAMIC: &str = "max_bytes_for_level_base=10M;num_levels=4;target_file_size_base=1M;\
                       level0_file_num_compaction_trigger=2";

#[test]
fn an_empty_tree_and_a_tree_within_its_targets_need_nothing() {
    let mut tree = TestTree::new(SMALL);
    assert_eq!(tree.picked(), "nothing");
    assert!(!tree.with(needs_compaction));
    tree.file(0, "a", "b", MIB);
    tree.file(1, "a", "z", 9 * MIB);
    assert_eq!(tree.picked(), "nothing");
    assert!(!tree.with(needs_compaction));
}

#[test]
fn l0_takes_what_overlaps_with_it() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "c", MIB);
    tree.file(1, "d", "f", MIB);
    tree.file(1, "x", "z", MIB);
    tree.file(0, "b", "e", MIB);
    tree.file(0, "e", "g", MIB);
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L0[5 4] L1[1 2] -> L1");
    assert!(compaction.bottommost && !compaction.full);
    assert_eq!(compaction.reason, CompactionReason::LevelL0FilesNum);
    assert_eq!((&*compaction.smallest_user_key, &*compaction.largest_user_key), (&b"a"[..], &b"g"[..]));
    assert_eq!(compaction.target_file_size, MIB);
    assert_eq!(compaction.output_epoch(), 1);
    tree.options.family.disable_auto_compactions = true;
    assert_eq!(tree.picked(), "nothing");
}

#[test]
fn dynamic_levels_go_to_the_base_level() {
    let mut tree = TestTree::new(DYNAMIC);
    tree.file(0, "a", "e", MIB);
    tree.file(0, "b", "g", MIB);
    assert_eq!(tree.picked(), "L0[2 1] -> L3");
    tree.file(3, "a", "z", 50 * MIB);
    assert_eq!(tree.picked(), "L0[2 1] -> L2", "50 MiB below want 5 above them");
}

/// Only one compaction takes files of L0 at a time; meanwhile new files are merged within L0 once
/// they are many.
#[test]
fn l0_has_one_compaction_and_those_within_it() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "z", MIB);
    tree.file(0, "a", "z", MIB);
    tree.file(0, "a", "z", MIB);
    assert_eq!(shown(&tree.run().unwrap()), "L0[3 2] L1[1] -> L1");
    for _ in 0..3 {
        tree.file(0, "a", "z", MIB);
    }
    assert_eq!(tree.picked(), "nothing", "three are too few to merge");
    tree.file(0, "a", "z", MIB);
    let within = tree.run().unwrap();
    assert_eq!(shown(&within), "L0[7 6 5 4] -> L0");
    assert!(!within.bottommost);
    assert_eq!(within.output_epoch(), 104, "as old as the oldest of them");
    tree.file(0, "a", "z", MIB);
    assert_eq!(tree.picked(), "nothing");
}

#[test]
fn merging_within_l0_stops_where_it_gets_dearer() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "z", MIB);
    tree.file(0, "a", "z", MIB);
    tree.file(0, "a", "z", MIB);
    tree.run().unwrap();
    tree.file(0, "a", "z", 20 * MIB);
    for _ in 0..4 {
        tree.file(0, "a", "z", MIB);
    }
    assert_eq!(tree.picked(), "L0[8 7 6 5] -> L0", "the large one costs more than it saves");
}

/// A base level that is much larger than L0 would be rewritten for a small gain.
#[test]
fn a_small_l0_is_merged_within() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "z", 9 * MIB);
    tree.file(0, "a", "z", MIB / 10);
    tree.file(0, "a", "z", MIB / 10);
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L0[3 2] -> L0");
    assert_eq!(compaction.reason, CompactionReason::LevelL0FilesNum);
    tree.file(0, "a", "z", MIB);
    assert_eq!(tree.picked(), "L0[4 3 2] L1[1] -> L1", "large enough");
}

#[test]
fn files_of_a_sorted_load_move() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "b", MIB);
    tree.file(0, "c", "d", MIB);
    tree.file(0, "e", "f", MIB);
    tree.file(0, "a", "c", MIB);
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L0[3 2] -> L1 move", "the newest overlaps");
    // The base level is empty: all of L0 is compacted in one compaction, and a single file still
    // moves.
    let mut tree = TestTree::new(SMALL);
    tree.file(0, "a", "b", 11 * MIB);
    assert_eq!(tree.picked(), "L0[1] -> L1 move");
    tree.file(0, "c", "d", MIB);
    assert_eq!(tree.picked(), "L0[1] -> L1 move");
    // A different compression on the next level requires a rewrite.
    let mut tree = TestTree::new(&format!("{SMALL};compression_per_level=kNoCompression:kSnappyCompression"));
    tree.file(0, "a", "b", 11 * MIB);
    assert_eq!(tree.picked(), "L0[1] -> L1");
}

#[test]
fn the_file_that_costs_least_goes_first() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "c", 4 * MIB);
    tree.file(1, "d", "f", 5 * MIB);
    tree.file(1, "g", "i", 4 * MIB);
    tree.file(2, "a", "c", 9 * MIB);
    tree.file(2, "d", "e", 2 * MIB);
    tree.file(2, "f", "h", 7 * MIB);
    let picked_by = |tree: &mut TestTree, priority: &str| {
        tree.options = options(&format!("{SMALL};max_compaction_bytes=1;compaction_pri={priority}"));
        tree.picked()
    };
    assert_eq!(picked_by(&mut tree, "kMinOverlappingRatio"), "L1[3] L2[6] -> L2");
    assert_eq!(picked_by(&mut tree, "kByCompensatedSize"), "L1[2] L2[5 6] -> L2");
    assert_eq!(picked_by(&mut tree, "kOldestLargestSeqFirst"), "L1[1] L2[4] -> L2");
    tree.edit.new_files[1].1.smallest_seq = SeqNo(1);
    assert_eq!(picked_by(&mut tree, "kOldestSmallestSeqFirst"), "L1[2] L2[5 6] -> L2");
    tree.edit.new_files[0].1.marked_for_compaction = true;
    assert_eq!(picked_by(&mut tree, "kMinOverlappingRatio"), "L1[1] L2[4] -> L2", "marked ones first");
}

/// The nearer to its time to live, the cheaper a file counts; so it need not be compacted for its
/// age alone.
#[test]
fn age_makes_a_file_cheaper() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=1;ttl=100000"));
    tree.file(1, "a", "c", 6 * MIB).oldest_ancestor_time_s = NOW_S - 1000;
    tree.file(1, "d", "f", 6 * MIB).oldest_ancestor_time_s = NOW_S - 95_000;
    tree.file(2, "a", "c", 3 * MIB);
    tree.file(2, "d", "f", 9 * MIB);
    tree.file(3, "a", "z", MIB);
    assert_eq!(tree.picked(), "L1[2] L2[4] -> L2");
    tree.edit.new_files[1].1.oldest_ancestor_time_s = NOW_S - 1000;
    assert_eq!(tree.picked(), "L1[1] L2[3] -> L2");
}

#[test]
fn inputs_grow_only_where_it_is_free() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "b", "c", 9 * MIB);
    tree.file(1, "d", "e", MIB);
    tree.file(1, "h", "m", 2 * MIB);
    tree.file(2, "a", "f", MIB);
    tree.file(2, "k", "n", 9 * MIB);
    // The second file of L1 overlaps the file of L2 that is already an input; the third would add
    // one.
    assert_eq!(tree.picked(), "L1[1 2] L2[4] -> L2");
    tree.options.family.max_compaction_bytes = 5 * MIB;
    assert_eq!(tree.picked(), "L1[1] L2[4] -> L2", "10 MiB are the limit for a grown one");
}

#[test]
fn a_user_key_is_not_torn_apart() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "c", 6 * MIB);
    tree.file(1, "c", "e", 6 * MIB);
    tree.file(1, "g", "h", MIB);
    // The newer entries of a shared key are in the first file.
    tree.edit.new_files[0].1.largest =
        InternalKey { user_key: b"c", seq: SeqNo(900), kind: ValueType::Value }.to_vec().into();
    tree.file(2, "a", "a", MIB);
    tree.file(2, "g", "h", 20 * MIB);
    assert_eq!(tree.picked(), "L1[1 2] L2[4] -> L2");
    // A range tombstone's end is not an entry of its key.
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=1"));
    tree.file_to_tombstone_end(1, "a", "c", 6 * MIB);
    tree.file(1, "c", "e", 6 * MIB);
    tree.file(2, "a", "a", MIB);
    tree.file(2, "c", "d", 6 * MIB);
    assert_eq!(tree.picked(), "L1[1] L2[3] -> L2");
}

#[test]
fn what_overlaps_nothing_moves_with_its_neighbours() {
    let mut tree = TestTree::new(SMALL);
    for (smallest, largest) in [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j"), ("k", "l")] {
        tree.file(1, smallest, largest, 2 * MIB);
    }
    tree.file(2, "m", "n", MIB);
    assert_eq!(tree.picked(), "L1[1 2 3 4] -> L2 move", "four at most");
    tree.file(2, "f", "f", MIB);
    assert_eq!(tree.picked(), "L1[1 2] -> L2 move");
}

/// A file that overlaps much of the level after next is rewritten, so that it can be cut there.
#[test]
fn too_much_below_forbids_a_move() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=30M"));
    tree.file(1, "a", "m", 11 * MIB);
    tree.file(3, "a", "b", 15 * MIB);
    tree.file(3, "c", "d", 15 * MIB);
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L1[1] -> L2");
    assert_eq!(compaction.grandparents.len(), 2);
    assert_eq!(compaction.max_output_file_size, 2 * compaction.target_file_size);
    tree.options.family.max_compaction_bytes = 50 * MIB;
    assert_eq!(tree.picked(), "L1[1] -> L2 move");
}

#[test]
fn compactions_stay_out_of_each_others_way() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=1"));
    tree.file(1, "a", "c", 6 * MIB);
    tree.file(1, "d", "f", 6 * MIB);
    tree.file(1, "g", "i", 9 * MIB);
    tree.file(2, "a", "e", 3 * MIB);
    tree.file(2, "h", "i", 9 * MIB);
    assert_eq!(shown(&tree.run().unwrap()), "L1[1] L2[4] -> L2");
    assert_eq!(shown(&tree.run().unwrap()), "L1[3] L2[5] -> L2", "the second needs a file that is taken");
    assert_eq!(tree.picked(), "nothing");
}

/// Two outputs must not overlap even if no input does.
#[test]
fn the_output_range_of_another_is_taken() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=1"));
    tree.file(1, "a", "b", 6 * MIB);
    tree.file(1, "m", "n", 6 * MIB);
    tree.file(2, "x", "z", MIB);
    let mut other = tree.run().unwrap();
    assert_eq!(shown(&other), "L1[1] -> L2");
    tree.running = Running::new();
    other.largest_user_key = b"m".to_vec().into();
    tree.running.register(&other);
    assert_eq!(
        tree.picked(),
        "nothing",
        "L1 is within its target with the first file taken, and the second is blocked"
    );
}

#[test]
fn round_robin_goes_round() {
    let mut tree = TestTree::new(&format!("{SMALL};compaction_pri=kRoundRobin;max_compaction_bytes=8M"));
    for (smallest, largest) in [("a", "b"), ("c", "d"), ("e", "f")] {
        tree.file(1, smallest, largest, 4 * MIB);
        tree.file(2, smallest, largest, MIB);
    }
    let first = tree.pick().unwrap();
    assert_eq!(shown(&first), "L1[1] L2[2] -> L2", "4 MiB are enough to be within the target");
    let (level, cursor) = first.next_cursor.clone().unwrap();
    assert_eq!((level, karst_format::key::user_key(&cursor)), (Level(1), &b"c"[..]));
    tree.edit.compact_cursors.push((level, cursor));
    let second = tree.pick().unwrap();
    assert_eq!(shown(&second), "L1[3] L2[4] -> L2");
    tree.edit.compact_cursors[0] = second.next_cursor.unwrap();
    let third = tree.pick().unwrap();
    assert_eq!(shown(&third), "L1[5] L2[6] -> L2");
    assert_eq!(karst_format::key::user_key(&third.next_cursor.unwrap().1), b"a", "and round");
    // More files in one turn if the level is far above its target, as long as the compaction is not
    // too large.
    tree.edit.compact_cursors.clear();
    tree.options.family.max_bytes_for_level_base = MIB;
    tree.options.family.max_compaction_bytes = 11 * MIB;
    assert_eq!(tree.picked(), "L1[1 3] L2[2 4] -> L2");
    // A file that has to wait is not skipped.
    let mut taken = first;
    taken.inputs.truncate(1);
    tree.running.register(&taken);
    assert_eq!(tree.picked(), "nothing");
}

/// Outputs from above are cut at the cursor of the output level.
#[test]
fn round_robin_cuts_outputs_where_the_next_turn_begins() {
    let mut tree = TestTree::new(&format!("{SMALL};compaction_pri=kRoundRobin"));
    tree.file(1, "a", "m", 11 * MIB);
    tree.file(2, "a", "c", MIB);
    tree.file(2, "f", "z", MIB);
    let cursor = InternalKey { user_key: b"f", seq: SeqNo(399), kind: ValueType::Value }.to_vec();
    tree.edit.compact_cursors.push((Level(2), cursor.clone().into()));
    assert_eq!(tree.pick().unwrap().output_split_key.as_deref(), Some(&*cursor));
}

#[test]
fn marked_files_go_down_but_not_from_the_deepest_level() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "c", MIB);
    tree.file(2, "a", "d", MIB).marked_for_compaction = true;
    tree.file(3, "a", "b", MIB).marked_for_compaction = true;
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L2[2] L3[3] -> L3");
    assert_eq!(compaction.reason, CompactionReason::FilesMarkedForCompaction);
    tree.running.register(&compaction);
    assert!(!tree.with(needs_compaction));
}

#[test]
fn bottommost_files_are_rewritten_once_their_snapshots_are_gone() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "c", MIB);
    tree.file(2, "b", "d", MIB);
    tree.file(1, "x", "z", MIB);
    tree.oldest_snapshot = SeqNo(150);
    assert_eq!(
        tree.picked(),
        "nothing",
        "L1's first file has older data below, and snapshots need the others"
    );
    tree.oldest_snapshot = SeqNo(300);
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L2[2] -> L2");
    assert!(compaction.bottommost && compaction.work == CompactionWork::Merge);
    assert_eq!(compaction.reason, CompactionReason::BottommostFiles);
    tree.edit.new_files[1].1.largest_seq = SeqNo(0);
    tree.oldest_snapshot = SeqNo(400);
    assert_eq!(tree.picked(), "L1[3] -> L1");
    tree.options.family.bottommost_file_compaction_delay = 100;
    tree.edit.new_files[2].1.creation_time_s = NOW_S - 50;
    assert_eq!(tree.picked(), "nothing", "too young");
    tree.now_s += 50;
    assert_eq!(tree.picked(), "L1[3] -> L1");
    tree.options.allow_ingest_behind = true;
    assert_eq!(tree.picked(), "nothing", "what is ingested behind may be older");
}

#[test]
fn old_files_go_down() {
    let mut tree = TestTree::new(&format!("{SMALL};ttl=1000"));
    tree.file(1, "a", "c", MIB).oldest_ancestor_time_s = NOW_S - 1000;
    tree.file(2, "a", "c", MIB).oldest_ancestor_time_s = NOW_S - 5000;
    assert_eq!(tree.picked(), "nothing", "one is just within its time, the other has nowhere to go");
    tree.now_s += 1;
    let compaction = tree.pick().unwrap();
    assert_eq!((&*shown(&compaction), compaction.reason), ("L1[1] L2[2] -> L2", CompactionReason::Ttl));
}

#[test]
fn a_file_that_is_alone_in_l0_goes_down_when_it_is_old() {
    for options in [SMALL, DYNAMIC] {
        let mut tree = TestTree::new(&format!("{options};ttl=1000"));
        tree.file(0, "a", "c", MIB).oldest_ancestor_time_s = NOW_S - 1000;
        assert_eq!(tree.picked(), "nothing", "just within its time");
        tree.now_s += 1;
        let compaction = tree.pick().unwrap();
        assert_eq!(compaction.reason, CompactionReason::Ttl);
        assert!(compaction.output_level.index() > 0, "{}", shown(&compaction));
    }
}

#[test]
fn files_that_were_not_rewritten_for_long_are() {
    let mut tree = TestTree::new(&format!("{SMALL};periodic_compaction_seconds=1000"));
    tree.file(1, "a", "c", MIB).creation_time_s = NOW_S - 10;
    tree.file(2, "a", "c", MIB).creation_time_s = NOW_S - 1001;
    tree.file(2, "x", "z", MIB);
    assert_eq!(tree.picked(), "L2[2] -> L2", "the third does not say when it was written");
    let mut tree = TestTree::new(&format!("{DYNAMIC};periodic_compaction_seconds=1000"));
    tree.file(2, "a", "c", MIB).creation_time_s = NOW_S - 1001;
    tree.file(3, "a", "z", 50 * MIB).creation_time_s = NOW_S - 10;
    assert_eq!(tree.picked(), "L2[1] L3[2] -> L3", "dynamic levels take the chance to move it on");
}

#[test]
fn garbage_blobs_are_collected_by_force() {
    let mut tree = TestTree::new(&format!(
        "{SMALL};enable_blob_garbage_collection=true;blob_garbage_collection_age_cutoff=0.5;\
         blob_garbage_collection_force_threshold=0.6"
    ));
    for number in 11..15 {
        let addition = BlobFileAddition {
            number: FileNumber(number),
            total_count: 10,
            total_bytes: 1000,
            ..BlobFileAddition::default()
        };
        tree.edit.blob_file_additions.push(addition);
    }
    tree.file(2, "a", "c", MIB).oldest_blob_file = Some(FileNumber(11));
    tree.file(2, "d", "f", MIB).oldest_blob_file = Some(FileNumber(13));
    let garbage = |number, bytes| BlobFileGarbage { number: FileNumber(number), count: 1, bytes };
    tree.edit.blob_file_garbages = vec![garbage(11, 900), garbage(12, 290)];
    assert_eq!(tree.picked(), "nothing", "1190 of 2000 bytes");
    tree.edit.blob_file_garbages.push(garbage(12, 10));
    let compaction = tree.pick().unwrap();
    assert_eq!((&*shown(&compaction), compaction.reason), ("L2[1] -> L2", CompactionReason::ForcedBlobGc));
    assert_eq!(compaction.blob_garbage_collection_cutoff, FileNumber(13), "half of the four, oldest first");
    tree.options.family.enable_blob_garbage_collection = false;
    assert_eq!(tree.picked(), "nothing");
}

#[test]
fn paths_fill_up_from_the_first() {
    let mut tree = TestTree::new(SMALL);
    tree.options.path_target_sizes = vec![25 * MIB, 50 * MIB, 1];
    // L0 and L1 count 10 MiB each and fit the first path; L2 counts 100.
    tree.file(1, "a", "c", 20 * MIB);
    assert_eq!(tree.pick().unwrap().output_path_id, 2);
    assert_eq!(tree.picked(), "L1[1] -> L2", "another path is no move");
    tree.options.path_target_sizes = vec![25 * MIB, 150 * MIB, 1];
    assert_eq!(tree.pick().unwrap().output_path_id, 1);
}

#[test]
fn a_search_for_older_data_looks_below_the_output() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=1"));
    tree.file(1, "a", "z", 11 * MIB);
    tree.file(2, "a", "b", MIB);
    tree.file(3, "c", "e", MIB);
    tree.file(3, "m", "p", MIB);
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L1[1] L2[2] -> L2");
    let mut older = compaction.older_data();
    let keys = ["a", "b", "c", "d", "e", "f", "m", "p", "q"];
    let found: Vec<&str> = keys.into_iter().filter(|key| older.may_hold(key.as_bytes())).collect();
    assert_eq!(found, ["c", "d", "e", "m", "p"]);
    let mut older = compaction.older_data();
    assert!(!older.may_overlap(b"a", b"bzz"));
    assert!(older.may_overlap(b"b", b"c"));
    assert!(!older.may_overlap(b"f", b"lzz"));
}

#[test]
fn nothing_goes_to_the_level_that_is_kept_free() {
    let mut tree = TestTree::new("num_levels=4;level0_file_num_compaction_trigger=2;ttl=1000");
    tree.options.allow_ingest_behind = true;
    tree.file(0, "a", "c", MIB);
    tree.file(0, "b", "e", MIB);
    assert_eq!(tree.picked(), "L0[2 1] -> L2", "an empty tree begins with the level above");
    tree.file(3, "a", "z", MIB).oldest_ancestor_time_s = NOW_S - 5000;
    assert_eq!(tree.picked(), "L0[2 1] -> L2");
    tree.edit.new_files.drain(..2);
    tree.file(2, "a", "z", MIB).oldest_ancestor_time_s = NOW_S - 5000;
    assert_eq!(tree.picked(), "nothing", "old files have nowhere to go");
}
