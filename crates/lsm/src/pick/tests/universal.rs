//! Universal picks on handwritten trees.

use super::*;

const MIB: u64 = 1 << 20;

/// Returns a tree with files of L0 of these sizes in MiB, the newest first as the pickers see them,
/// and levels below them with these sizes.
fn tree(text: &str, l0: &[u64], levels: &[(u8, u64)]) -> TestTree {
    let text = format!(
        "compaction_style=kCompactionStyleUniversal;num_levels=5;level0_file_num_compaction_trigger=3;{text}"
    );
    let mut tree = TestTree::new(&text);
    for (level, size) in levels {
        tree.file(*level, "a", "z", size * MIB);
    }
    for size in l0.iter().rev() {
        tree.file(0, "a", "z", size * MIB);
    }
    tree
}

fn picked(tree: &TestTree) -> String {
    let Some(compaction) = tree.pick() else { return "nothing".to_owned() };
    let reason = compaction.reason.name().trim_start_matches("Universal");
    format!("{} by {reason}", shown(&compaction))
}

/// The examples of RocksDB's documentation: sizes from the newest run on, and the runs that are
/// merged.
#[test]
fn runs_of_similar_size_are_merged() {
    // Size ratio 0 and a trigger of five, as on the page "Universal Compaction".
    let documented = |sizes: &[u64]| {
        let options = "level0_file_num_compaction_trigger=5;num_levels=1;compaction_options_universal=\
                       {size_ratio=0;max_size_amplification_percent=2500}";
        picked(&tree(options, sizes, &[]))
    };
    assert_eq!(documented(&[1, 1, 1, 1, 1]), "L0[5 4 3 2 1] -> L0 by SizeRatio");
    assert_eq!(documented(&[1, 1, 1, 1, 5]), "L0[5 4 3 2] -> L0 by SizeRatio");
    assert_eq!(documented(&[1, 4, 5]), "nothing");
    assert_eq!(documented(&[1, 1, 2, 4, 8]), "L0[5 4 3 2 1] -> L0 by SizeRatio");
    assert_eq!(
        documented(&[1, 2, 4, 8, 16, 32]),
        "L0[6 5] -> L0 by SortedRunNum",
        "no neighbours alike, but too many"
    );
}

#[test]
fn the_output_goes_just_above_the_next_older_run() {
    assert_eq!(picked(&tree("", &[2, 2, 2], &[])), "L0[3 2 1] -> L4 by SizeAmplification");
    assert_eq!(picked(&tree("", &[2, 2, 2], &[(4, 90)])), "L0[4 3 2] -> L3 by SizeRatio");
    assert_eq!(picked(&tree("", &[2, 2, 2], &[(1, 90), (4, 200)])), "L0[5 4 3] -> L0 by SizeRatio");
    assert_eq!(picked(&tree("", &[1, 2], &[(3, 3), (4, 90)])), "L0[4 3] -> L2 by SortedRunNum");
    assert_eq!(picked(&tree("", &[2, 1], &[(3, 3), (4, 90)])), "L0[4 3] L3[1] -> L3 by SizeRatio");
    let ingest = "cf_allow_ingest_behind=true";
    assert_eq!(picked(&tree(ingest, &[2, 2, 2], &[])), "L0[3 2 1] -> L3 by SizeAmplification");
}

#[test]
fn space_is_reclaimed_when_newer_runs_are_large() {
    let options = "compaction_options_universal={max_size_amplification_percent=50}";
    assert_eq!(
        picked(&tree(options, &[1, 2], &[(3, 12), (4, 30)])),
        "L0[4 3] L3[1] L4[2] -> L4 by SizeAmplification"
    );
    let compaction = tree(options, &[1, 2], &[(3, 12), (4, 30)]).pick().unwrap();
    assert!(compaction.full && compaction.bottommost);
    // A run that is being compacted bounds the runs that can be picked.
    let mut tree = tree(options, &[1, 1, 20, 9], &[(4, 30)]);
    let mut other = tree.pick().unwrap();
    assert_eq!(shown(&other), "L0[3 2] L4[1] -> L4", "the two small ones matter too little");
    other.inputs.truncate(1);
    other.inputs[0].files.truncate(1);
    tree.running.register(&other);
    assert_eq!(picked(&tree), "L0[5 4] -> L0 by SizeRatio", "9 of 30 are below the limit");
}

/// Near the number of runs at which writes stop, the newest files are left out of a long
/// compaction.
#[test]
fn new_files_are_left_out_near_the_stop() {
    let text = |stop| {
        format!(
            "level0_slowdown_writes_trigger=3;level0_stop_writes_trigger={stop};\
                 compaction_options_universal={{min_merge_width=2;max_merge_width=4}}"
        )
    };
    assert_eq!(
        picked(&tree(&text(100), &[1, 1, 50, 50], &[(4, 30)])),
        "L0[5 4 3 2] L4[1] -> L4 by SizeAmplification"
    );
    assert_eq!(
        picked(&tree(&text(5), &[1, 1, 50, 50], &[(4, 30)])),
        "L0[3 2] L4[1] -> L4 by SizeAmplification"
    );
    assert_eq!(
        picked(&tree(&text(7), &[1, 1, 50, 50], &[(4, 30)])),
        "L0[3 2] L4[1] -> L4 by SizeAmplification"
    );
    assert_eq!(
        picked(&tree(&text(9), &[1, 1, 50, 50], &[(4, 30)])),
        "L0[5 4 3 2] L4[1] -> L4 by SizeAmplification"
    );
}

#[test]
fn widths_and_styles_are_kept() {
    let of = |options: &str, l0: &[u64]| {
        let text =
            format!("compaction_options_universal={{max_size_amplification_percent=100000;{options}}}");
        picked(&tree(&text, l0, &[(4, 100)]))
    };
    assert_eq!(of("", &[2, 2, 2, 2, 2]), "L0[6 5 4 3 2] -> L3 by SizeRatio");
    assert_eq!(of("max_merge_width=3", &[2, 2, 2, 2, 2]), "L0[6 5 4] -> L0 by SizeRatio");
    assert_eq!(of("min_merge_width=3", &[9, 8, 20, 2, 2, 2]), "L0[5 4 3 2] -> L3 by SizeRatio");
    // By total size 1 + 1 + 2 reach 4; by similar size 4 is not similar to 2.
    assert_eq!(of("", &[1, 1, 2, 4]), "L0[5 4 3 2] -> L3 by SizeRatio");
    assert_eq!(of("stop_style=kCompactionStopStyleSimilarSize", &[1, 1, 2, 4]), "L0[5 4] -> L0 by SizeRatio");
    assert_eq!(of("size_ratio=100", &[1, 2, 5]), "L0[4 3 2] -> L3 by SizeRatio");
}

#[test]
fn how_many_runs_there_may_be() {
    let of = |options: &str| {
        let text = format!("write_buffer_size=1M;compaction_options_universal={{{options}}}");
        picked(&tree(&text, &[1, 2, 4, 8, 16], &[(4, 100)]))
    };
    assert_eq!(of(""), "L0[6 5 4 3] -> L0 by SortedRunNum", "the trigger is three: six runs less three");
    assert_eq!(of("max_read_amp=5"), "L0[6 5] -> L0 by SortedRunNum");
    assert_eq!(of("max_read_amp=6"), "nothing");
    // From 1 MiB on, doubling, eight runs reach 100.
    assert_eq!(of("max_read_amp=0"), "nothing");
}

#[test]
fn small_outputs_stay_uncompressed_if_asked_for() {
    let of = |percent: i32, l0: &[u64], levels: &[(u8, u64)]| {
        let text = format!("compaction_options_universal={{compression_size_percent={percent}}}");
        tree(&text, l0, levels).pick().unwrap().compression
    };
    use karst_format::options::choice::Compression::{None, Snappy};
    assert_eq!(of(-1, &[1, 1, 1], &[(4, 97)]), Snappy);
    assert_eq!(of(90, &[1, 1, 1], &[(4, 97)]), None);
    assert_eq!(of(98, &[1, 1, 1], &[(4, 97)]), Snappy);
    assert_eq!(of(0, &[3, 3, 3], &[]), Snappy, "the oldest run is compressed in any case");
}

#[test]
fn old_files_make_everything_be_rewritten() {
    let mut tree =
        tree("periodic_compaction_seconds=1000;level0_file_num_compaction_trigger=4", &[1, 1], &[(4, 97)]);
    assert_eq!(picked(&tree), "nothing");
    tree.edit.new_files[0].1.creation_time_s = NOW_S - 2000;
    assert_eq!(picked(&tree), "L0[3 2] L4[1] -> L4 by PeriodicCompaction");
    assert!(tree.with(needs_compaction));
}

#[test]
fn what_overlaps_nothing_moves_if_allowed() {
    let of = |options: &str| {
        let mut tree = tree(options, &[], &[]);
        tree.file(4, "a", "c", MIB);
        tree.file(0, "d", "e", MIB);
        tree.file(0, "f", "g", MIB);
        tree.picked()
    };
    assert_eq!(of(""), "L0[3 2] L4[1] -> L4");
    assert_eq!(of("compaction_options_universal={allow_trivial_move=true}"), "L0[3 2] L4[1] -> L4 move");
}

#[test]
fn marked_files_are_merged_with_what_is_older() {
    let mut several = tree("", &[1, 1], &[(3, 10), (4, 97)]);
    several.edit.new_files[0].1.marked_for_compaction = true;
    several.options.family.level0_file_num_compaction_trigger = 100;
    assert_eq!(several.picked(), "L3[1] L4[2] -> L4");
    several.edit.new_files[0].1.marked_for_compaction = false;
    several.edit.new_files[2].1.marked_for_compaction = true;
    assert_eq!(several.picked(), "L0[4 3] L3[1] -> L3", "both files of L0 overlap");
    let mut one = tree("num_levels=1;level0_file_num_compaction_trigger=100", &[1, 1, 1], &[]);
    one.edit.new_files[1].1.marked_for_compaction = true;
    assert_eq!(one.picked(), "L0[2 1] -> L0");
}

/// Runs added while a large compaction runs wait until there are enough of them, because merged two
/// by two they would be rewritten more often than necessary.
#[test]
fn runs_that_are_being_merged_do_not_make_new_ones_urgent() {
    let mut tree = tree("level0_file_num_compaction_trigger=5", &[2, 2, 2, 2, 2], &[(4, 90)]);
    let running = tree.pick().unwrap();
    assert_eq!(shown(&running), "L0[6 5 4 3 2] -> L3");
    tree.running.register(&running);
    // The last level is free and counts too.
    for expected in ["nothing", "nothing", "nothing", "L0[10 9 8 7] -> L0 by SizeRatio"] {
        tree.file(0, "a", "z", 2 * MIB);
        assert_eq!(picked(&tree), expected);
    }
}
