//! Manual compactions: their steps on handwritten trees, and in the simulator beside other
//! compactions.

use super::simulator::Simulator;
use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const SMALL: &str = "max_bytes_for_level_base=1G;num_levels=4;target_file_size_base=1M;\
                     level_compaction_dynamic_level_bytes=false";

fn manual(tree: &TestTree, range: (&str, &str), options: CompactRangeOptions) -> ManualCompaction {
    let bound = |key: &'static str| (!key.is_empty()).then_some(key.as_bytes());
    let (begin, end) = (range.0.to_owned().leak(), range.1.to_owned().leak());
    ManualCompaction::new(bound(begin), bound(end), options, &tree.options, FileNumber(1000)).unwrap()
}

/// Returns all steps, each applied to the tree: inputs are removed, and one file over their range
/// takes their place, unless they move.
fn steps(tree: &mut TestTree, mut manual: ManualCompaction) -> Vec<String> {
    let mut text = Vec::new();
    loop {
        match tree.with(|context| manual.next(context)) {
            ManualStep::Run(compaction) => {
                text.push(shown(&compaction));
                carry_out(tree, &compaction);
            }
            ManualStep::Wait => text.push("wait".to_owned()),
            ManualStep::Done(level) => {
                text.push(level.map_or("nothing to do".to_owned(), |level| format!("done on {level}")));
                return text;
            }
            ManualStep::Refused(refused) => {
                text.push(refused.to_string());
                return text;
            }
        }
        assert!(text.len() < 50, "{text:?}");
    }
}

fn carry_out(tree: &mut TestTree, compaction: &Compaction) {
    let inputs: Vec<FileNumber> = compaction.input_files().map(|(_, file)| file.number).collect();
    if compaction.work == CompactionWork::Move {
        for (level, file) in &mut tree.edit.new_files {
            if inputs.contains(&file.number) {
                *level = compaction.output_level;
            }
        }
        return;
    }
    tree.edit.new_files.retain(|(_, file)| !inputs.contains(&file.number));
    let key = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    let (from, to) = (key(&compaction.smallest_user_key), key(&compaction.largest_user_key));
    tree.file(compaction.output_level.0, &from, &to, compaction.input_bytes());
    // Numbered as if written after the manual compaction began.
    let (level, mut file) = tree.edit.new_files.pop().unwrap();
    file.number.0 += 1000;
    tree.edit.new_files.push((level, file));
}

fn three_levels() -> TestTree {
    let mut tree = TestTree::new(SMALL);
    tree.file(2, "a", "m", MIB);
    tree.file(2, "n", "z", MIB);
    tree.file(1, "c", "d", MIB);
    tree.file(1, "x", "y", MIB);
    tree.file(0, "b", "c", MIB);
    tree
}

#[test]
fn a_range_goes_down_level_by_level() {
    let mut tree = three_levels();
    let all = manual(&tree, ("", ""), CompactRangeOptions::default());
    assert_eq!(steps(&mut tree, all), ["L0[5] L1[3] -> L1", "L1[1006 4] L2[1 2] -> L2", "done on L2"],);
    let mut tree = three_levels();
    let ranged = manual(&tree, ("n", "x"), CompactRangeOptions::default());
    assert_eq!(
        steps(&mut tree, ranged),
        ["L1[4] L2[2] -> L2", "done on L2"],
        "from the first level that has any of it"
    );
    let outside = manual(&tree, ("zz", ""), CompactRangeOptions::default());
    assert_eq!(steps(&mut tree, outside), ["nothing to do"]);
}

#[test]
fn dynamic_levels_go_down_to_the_last() {
    let mut tree =
        TestTree::new("max_bytes_for_level_base=10M;num_levels=5;level0_file_num_compaction_trigger=20");
    tree.file(0, "a", "c", MIB);
    tree.file(0, "b", "e", MIB);
    let all = manual(&tree, ("", ""), CompactRangeOptions::default());
    assert_eq!(steps(&mut tree, all), ["L0[2 1] -> L4", "done on L4"]);
    let mut tree =
        TestTree::new("max_bytes_for_level_base=10M;num_levels=5;level0_file_num_compaction_trigger=20");
    tree.file(4, "x", "z", 600 * MIB);
    tree.file(0, "a", "c", MIB);
    let all = manual(&tree, ("a", "d"), CompactRangeOptions::default());
    assert_eq!(
        steps(&mut tree, all),
        ["L0[2] -> L2 move", "L2[2] -> L3 move", "L3[2] -> L4 move", "done on L4"],
    );
}

#[test]
fn the_level_that_is_kept_free_is_left_alone() {
    for dynamic in [true, false] {
        let text = format!("num_levels=5;level_compaction_dynamic_level_bytes={dynamic}");
        let forced = BottommostLevelCompaction::Force;
        let refit = CompactRangeOptions {
            change_level: true,
            bottommost_level_compaction: forced,
            ..CompactRangeOptions::default()
        };
        let mut tree = TestTree::new(&text);
        tree.options.allow_ingest_behind = true;
        tree.file(4, "a", "z", 600 * MIB);
        let all = manual(&tree, ("", ""), refit.clone());
        assert_eq!(steps(&mut tree, all), ["nothing to do"]);
        tree.file(3, "a", "c", MIB);
        let all = manual(&tree, ("", ""), CompactRangeOptions { change_level: false, ..refit.clone() });
        assert_eq!(steps(&mut tree, all), ["L3[2] -> L3", "done on L3"]);
        let to_last = CompactRangeOptions { target_level: Some(4), ..refit };
        let refused = ManualCompaction::new(None, None, to_last, &tree.options, FileNumber(1000));
        assert!(refused.unwrap_err().why.contains("is reserved"));
    }
}

#[test]
fn the_deepest_level_is_rewritten_if_asked_for() {
    let of = |policy, options: &str| {
        let mut tree = TestTree::new(&format!("{SMALL};{options}"));
        tree.file(2, "a", "m", MIB);
        tree.file(2, "n", "z", MIB);
        tree.file(1, "n", "o", MIB);
        let options = CompactRangeOptions { bottommost_level_compaction: policy, ..Default::default() };
        let all = manual(&tree, ("", ""), options);
        steps(&mut tree, all)[1..].to_vec()
    };
    use BottommostLevelCompaction::*;
    assert_eq!(of(Skip, "compaction_filter=my.Filter"), ["done on L2"]);
    assert_eq!(of(IfHaveCompactionFilter, ""), ["done on L2"]);
    assert_eq!(of(IfHaveCompactionFilter, "compaction_filter=my.Filter"), ["L2[1] -> L2", "done on L2"]);
    assert_eq!(of(ForceOptimized, ""), ["L2[1] -> L2", "done on L2"], "the other one has just been written");
    assert_eq!(of(Force, ""), ["L2[1 1004] -> L2", "done on L2"]);
}

#[test]
fn the_only_file_of_a_universal_tree_is_rewritten_if_asked_for() {
    use BottommostLevelCompaction::*;
    let of = |policy, low: Option<&[u8]>| {
        let mut tree = TestTree::new("compaction_style=kCompactionStyleUniversal;num_levels=4");
        tree.file(0, "a", "z", MIB);
        let options = CompactRangeOptions {
            bottommost_level_compaction: policy,
            full_history_ts_low: low.map(<[u8]>::to_vec),
            ..Default::default()
        };
        let all = manual(&tree, ("", ""), options);
        steps(&mut tree, all)
    };
    for policy in [Skip, IfHaveCompactionFilter] {
        assert_eq!(of(policy, None), ["L0[1] -> L3 move", "done on L3"]);
    }
    for (policy, low) in [(Force, None), (ForceOptimized, None), (IfHaveCompactionFilter, Some(&[1; 8][..]))]
    {
        assert_eq!(of(policy, low), ["L0[1] -> L3", "done on L3"]);
    }
}

#[test]
fn history_that_is_given_up_is_looked_for_on_the_deepest_level_too() {
    let mut tree = TestTree::new(SMALL);
    tree.file(2, "a", "m", MIB);
    let options = CompactRangeOptions { full_history_ts_low: Some(vec![1; 8]), ..Default::default() };
    let all = manual(&tree, ("", ""), options);
    assert_eq!(steps(&mut tree, all), ["L2[1] -> L2", "done on L2"]);
}

#[test]
fn a_file_that_another_compaction_moves_down_meanwhile_is_rewritten_too() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=2M"));
    for (smallest, largest) in [("a", "b"), ("c", "d"), ("e", "f")] {
        tree.file(2, smallest, largest, MIB);
    }
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..Default::default()
    };
    let mut all = manual(&tree, ("", ""), options);
    let ManualStep::Run(first) = tree.with(|context| all.next(context)) else {
        panic!("a file is rewritten")
    };
    assert_eq!(shown(&first), "L2[1] -> L2");
    carry_out(&mut tree, &first);
    let moved = tree.edit.new_files.iter_mut().find(|(_, file)| file.number == FileNumber(3)).unwrap();
    moved.0 = Level(3);
    assert_eq!(steps(&mut tree, all), ["L2[2] -> L2", "L3[3] -> L3", "done on L3"]);
}

#[test]
fn files_that_were_just_written_hide_no_older_ones_behind_them() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=2M"));
    tree.file(2, "a", "b", MIB).number = FileNumber(2000);
    tree.file(2, "c", "d", MIB);
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
        ..Default::default()
    };
    let all = manual(&tree, ("", ""), options);
    assert_eq!(steps(&mut tree, all), ["L2[2] -> L2", "done on L2"]);
}

#[test]
fn a_large_level_goes_in_pieces() {
    let mut tree = TestTree::new(&format!("{SMALL};max_compaction_bytes=6M"));
    for (smallest, largest) in [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j")] {
        tree.file(1, smallest, largest, MIB);
        tree.file(2, smallest, largest, 2 * MIB);
    }
    let all = manual(&tree, ("b", "i"), CompactRangeOptions::default());
    assert_eq!(
        steps(&mut tree, all),
        ["L1[1 3] L2[2 4] -> L2", "L1[5 7] L2[6 8] -> L2", "L1[9] L2[10] -> L2", "done on L2"],
    );
}

#[test]
fn others_in_the_way_are_waited_for() {
    let mut tree = three_levels();
    tree.options.family.level0_file_num_compaction_trigger = 1;
    let running = tree.run().unwrap();
    assert_eq!(shown(&running), "L0[5] L1[3] -> L1");
    let mut all = manual(&tree, ("", ""), CompactRangeOptions::default());
    assert!(matches!(tree.with(|context| all.next(context)), ManualStep::Wait));
    // Other compactions are no obstacle outside of the range, unless the option demands
    // exclusivity.
    let mut ranged = manual(&tree, ("x", "z"), CompactRangeOptions::default());
    assert!(matches!(tree.with(|context| ranged.next(context)), ManualStep::Run(_)));
    let alone = CompactRangeOptions { exclusive_manual_compaction: true, ..Default::default() };
    let mut exclusive = manual(&tree, ("x", "z"), alone);
    assert!(matches!(tree.with(|context| exclusive.next(context)), ManualStep::Wait));
    tree.running = Running::new();
    assert!(matches!(tree.with(|context| exclusive.next(context)), ManualStep::Run(_)));
}

#[test]
fn levels_can_be_changed() {
    let refit =
        |target| CompactRangeOptions { change_level: true, target_level: target, ..Default::default() };
    let mut tree = TestTree::new(SMALL);
    tree.file(2, "a", "m", MIB);
    tree.file(2, "n", "z", MIB);
    let up = manual(&tree, ("", ""), refit(None));
    assert_eq!(steps(&mut tree, up), ["L2[1 2] -> L1 move", "done on L1"], "the uppermost that holds it");
    let down = manual(&tree, ("", ""), refit(Some(3)));
    assert_eq!(steps(&mut tree, down), ["L1[1 2] -> L3 move", "done on L3"]);
    let top = manual(&tree, ("", ""), refit(Some(0)));
    assert!(steps(&mut tree, top)[0].contains("more than one file"));
    tree.file(1, "a", "b", MIB);
    let blocked = manual(&tree, ("x", "y"), refit(Some(1)));
    assert!(steps(&mut tree, blocked)[0].contains("not empty"));
    let family = options("compaction_style=kCompactionStyleFIFO");
    let refused = |family: &CompactionOptions, options| {
        ManualCompaction::new(None, None, options, family, FileNumber(1)).unwrap_err().why
    };
    assert!(refused(&family, refit(None)).contains("FIFO"));
    assert!(refused(&tree.options, refit(Some(4))).contains("number of levels"));
    let path = CompactRangeOptions { target_path_id: 1, ..Default::default() };
    assert!(refused(&tree.options, path).contains("no path 1"));
}

#[test]
fn universal_compacts_everything() {
    let mut tree = TestTree::new("compaction_style=kCompactionStyleUniversal;num_levels=4");
    tree.file(3, "a", "m", MIB);
    tree.file(2, "n", "z", MIB);
    tree.file(0, "b", "c", MIB);
    tree.file(0, "b", "c", MIB);
    let ranged = manual(&tree, ("b", "c"), CompactRangeOptions::default());
    assert_eq!(steps(&mut tree, ranged), ["L0[4 3] L2[2] L3[1] -> L3", "done on L3"]);
    let mut one = TestTree::new("compaction_style=kCompactionStyleUniversal;num_levels=1");
    one.file(0, "b", "c", MIB);
    one.file(0, "b", "c", MIB);
    let all = manual(&one, ("", ""), CompactRangeOptions::default());
    assert_eq!(steps(&mut one, all), ["L0[2 1] -> L0", "done on L0"]);
}

#[test]
fn fifo_does_what_it_would_do_anyhow() {
    let mut tree = TestTree::new(
        "compaction_style=kCompactionStyleFIFO;compaction_options_fifo={max_table_files_size=1M}",
    );
    tree.file(0, "b", "c", MIB);
    tree.file(0, "b", "c", MIB);
    let mut all = manual(&tree, ("", ""), CompactRangeOptions::default());
    let ManualStep::Run(compaction) = tree.with(|context| all.next(context)) else {
        panic!("two are too many")
    };
    assert_eq!(shown(&compaction), "L0[1] -> L0 delete");
    assert!(matches!(tree.with(|context| all.next(context)), ManualStep::Done(Some(Level(0)))));
}

#[test]
fn how_blobs_are_collected_can_be_said() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "a", "m", MIB).oldest_blob_file = Some(FileNumber(11));
    for number in 11..15 {
        tree.edit.blob_file_additions.push(karst_format::version_edit::BlobFileAddition {
            number: FileNumber(number),
            total_count: 1,
            total_bytes: 1,
            ..Default::default()
        });
    }
    let cutoff = |tree: &TestTree, policy, age_cutoff| {
        let options = CompactRangeOptions {
            blob_garbage_collection_policy: policy,
            blob_garbage_collection_age_cutoff: age_cutoff,
            bottommost_level_compaction: BottommostLevelCompaction::Force,
            ..Default::default()
        };
        let mut all = manual(tree, ("", ""), options);
        let ManualStep::Run(compaction) = tree.with(|context| all.next(context)) else { panic!("a step") };
        compaction.blob_garbage_collection_cutoff
    };
    use BlobGarbageCollectionPolicy as Policy;
    assert_eq!(cutoff(&tree, Policy::UseDefault, None), FileNumber(0));
    assert_eq!(cutoff(&tree, Policy::UseDefault, Some(1.0)), FileNumber(0));
    assert_eq!(cutoff(&tree, Policy::Force, None), FileNumber(12), "a quarter");
    assert_eq!(cutoff(&tree, Policy::Force, Some(0.5)), FileNumber(13));
    assert_eq!(cutoff(&tree, Policy::Force, Some(1.0)), FileNumber(u64::MAX));
    tree.options.family.enable_blob_garbage_collection = true;
    assert_eq!(cutoff(&tree, Policy::UseDefault, Some(0.5)), FileNumber(13));
    assert_eq!(cutoff(&tree, Policy::Disable, Some(0.5)), FileNumber(0));
}

#[test]
fn named_files_take_along_what_has_to_go() {
    let mut tree = TestTree::new(SMALL);
    tree.file(1, "c", "d", MIB);
    tree.file(1, "x", "y", MIB);
    tree.file(2, "a", "c", MIB);
    tree.file(2, "e", "z", MIB);
    tree.file(0, "a", "b", MIB);
    tree.file(0, "c", "e", MIB);
    let named = |tree: &TestTree, files: &[u64], level| {
        let files: Vec<FileNumber> = files.iter().copied().map(FileNumber).collect();
        let options = CompactFilesOptions::default();
        tree.with(|context| match compact_files(context, &files, level, &options) {
            Ok(compaction) => shown(&compaction),
            Err(refused) => format!("{}{}", if refused.busy { "busy: " } else { "" }, refused.why),
        })
    };
    assert_eq!(named(&tree, &[2], 1), "L1[2] -> L1");
    assert_eq!(named(&tree, &[2], 2), "L1[2] L2[4] -> L2");
    assert_eq!(named(&tree, &[6], 0), "L0[6] -> L0");
    assert_eq!(named(&tree, &[6], 1), "L0[6 5] L1[1] -> L1", "the older one of L0 goes along");
    assert_eq!(named(&tree, &[6, 2], 2), "L0[6 5] L1[1 2] L2[3 4] -> L2");
    assert_eq!(named(&tree, &[5, 4], 3), "L0[5] L2[3 4] -> L3");
    assert!(named(&tree, &[3], 1).contains("below the output level"));
    assert!(named(&tree, &[77], 1).contains("#77 is not in the tree"));
    assert!(named(&tree, &[], 1).contains("at least one"));
    assert!(named(&tree, &[1], 4).contains("exceeds 3"));
    tree.options.family.level0_file_num_compaction_trigger = 1;
    tree.run().unwrap();
    assert!(named(&tree, &[6], 1).starts_with("busy: table file #5"));
    assert_eq!(named(&tree, &[2], 2), "L1[2] L2[4] -> L2");
}

const STYLES: [&str; 4] = [
    "",
    "level_compaction_dynamic_level_bytes=false",
    "compaction_style=kCompactionStyleUniversal",
    "compaction_style=kCompactionStyleUniversal;num_levels=1",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// For any tree and any compactions beside it, a manual compaction ends, and then every key of
    /// its range has one entry, and none above the level it reports.
    #[test]
    fn a_manual_compaction_ends(
        style in 0..STYLES.len(),
        seed in any::<u32>(),
        flushes in 1u32..25,
        bounds in proptest::option::of((0u32..3000, 0u32..3000)),
        force in any::<bool>(),
    ) {
        let options = options(&format!(
            "target_file_size_base=2000;max_bytes_for_level_base=8000;max_bytes_for_level_multiplier=4;num_levels=5;\
             level0_file_num_compaction_trigger=3;max_compaction_bytes=12000;{}", STYLES[style]
        ));
        let leveled = style < 2;
        let mut simulator = Simulator::new(options);
        let mut random = seed | 1;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random
        };
        for _ in 0..flushes {
            let keys: Vec<u32> = (0..40).map(|_| next() % 3000).collect();
            simulator.flush(keys);
            if next() % 2 == 0 {
                simulator.start();
            }
            if next() % 3 == 0 && simulator.running_count() > 0 {
                simulator.finish(0);
            }
        }
        let range = bounds.map(|(a, b)| (a.min(b), a.max(b)));
        let (begin, end) = (range.map(|r| r.0.to_be_bytes()), range.map(|r| r.1.to_be_bytes()));
        let policy = if force { BottommostLevelCompaction::Force } else { BottommostLevelCompaction::Skip };
        let request = CompactRangeOptions { bottommost_level_compaction: policy, ..Default::default() };
        let mut manual = ManualCompaction::new(
            begin.as_ref().map(|k| &k[..]),
            end.as_ref().map(|k| &k[..]),
            request,
            &simulator.options,
            simulator.next_file(),
        ).unwrap();
        let mut rounds = 0;
        let reached = loop {
            rounds += 1;
            prop_assert!(rounds < 10_000, "{}", simulator.shape());
            match manual.next(simulator.context()) {
                ManualStep::Run(compaction) => {
                    simulator.start_picked(*compaction);
                    simulator.finish(simulator.running_count() - 1);
                }
                ManualStep::Wait => {
                    prop_assert!(simulator.running_count() > 0, "it waits for nothing: {}", simulator.shape());
                    simulator.finish(0);
                }
                ManualStep::Done(level) => break level,
                ManualStep::Refused(refused) => prop_assert!(false, "{}", refused),
            }
        };
        while simulator.running_count() > 0 {
            simulator.finish(0);
        }
        let within = |key: &u32| !leveled || range.is_none_or(|(from, to)| (from..=to).contains(key));
        for (key, entries) in simulator.keys() {
            prop_assert!(!within(&key) || entries == 1, "{} has {} entries: {}", key, entries, simulator.shape());
        }
        let reached = reached.map_or(0, |level| level.index());
        for (level, key) in simulator.placed_keys() {
            prop_assert!(!within(&key) || level >= reached, "{} on L{}: {}", key, level, simulator.shape());
        }
    }
}

#[test]
fn reasons_have_rocksdbs_numbers() {
    use crate::pick::CompactionReason::{
        self, ForcedBlobGc, ManualCompaction, PeriodicCompaction, RefitLevel, RoundRobinTtl,
    };
    let reasons = [ManualCompaction, PeriodicCompaction, ForcedBlobGc, RoundRobinTtl, RefitLevel];
    assert_eq!(reasons.map(CompactionReason::number), [9, 15, 17, 18, 19]);
}
