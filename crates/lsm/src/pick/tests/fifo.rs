//! FIFO picks on handwritten trees.

use super::*;
use karst_format::version_edit::BlobFileAddition;

const MIB: u64 = 1 << 20;

/// Returns a tree with files of L0 of these sizes in MiB, oldest first.
fn tree(options: &str, sizes: &[u64]) -> TestTree {
    let mut tree = TestTree::new(&format!("compaction_style=kCompactionStyleFIFO;num_levels=3;{options}"));
    for size in sizes {
        tree.file(0, "a", "z", size * MIB).oldest_ancestor_time_s = NOW_S - 100;
    }
    tree
}

const TEN: &str = "compaction_options_fifo={max_table_files_size=10M}";

#[test]
fn the_oldest_go_when_there_is_too_much() {
    assert_eq!(tree(TEN, &[4, 3, 3]).picked(), "nothing");
    let mut tree = tree(TEN, &[4, 3, 3, 3]);
    let compaction = tree.run().unwrap();
    assert_eq!(shown(&compaction), "L0[1] -> L0 delete");
    assert_eq!(compaction.reason, CompactionReason::FifoMaxSize);
    assert_eq!(tree.picked(), "nothing", "one at a time");
}

#[test]
fn the_expired_go() {
    let mut tree = tree(&format!("{TEN};ttl=1000"), &[1, 1, 1, 1]);
    assert!(!tree.with(needs_compaction));
    for (index, age) in [2000, 1001, 1000, 5000].into_iter().enumerate() {
        tree.edit.new_files[index].1.oldest_ancestor_time_s = NOW_S - age;
    }
    assert!(tree.with(needs_compaction));
    let compaction = tree.pick().unwrap();
    assert_eq!(shown(&compaction), "L0[2 1] -> L0 delete", "no file goes before an older one that stays");
    assert_eq!(compaction.reason, CompactionReason::FifoTtl);
    // The newest key's time takes precedence over the time at which the oldest data was written.
    let version = tree.version();
    version.files(Level(0))[3]
        .learn_counts(crate::FileCounts { newest_key_time_s: NOW_S - 5, ..crate::FileCounts::default() });
    let context = PickContext {
        version: &version,
        options: &tree.options,
        running: &tree.running,
        oldest_snapshot: SeqNo(0),
        now_s: tree.now_s,
    };
    assert!(pick(context).is_none());
}

#[test]
fn a_file_that_does_not_say_when_its_newest_key_was_written_is_as_old_as_itself() {
    let mut tree = tree(&format!("{TEN};ttl=1000"), &[1]);
    let file = &mut tree.edit.new_files[0].1;
    (file.oldest_ancestor_time_s, file.creation_time_s) = (NOW_S - 5000, NOW_S - 1000);
    assert_eq!(tree.picked(), "nothing", "it was merged, and may have newer keys");
    tree.edit.new_files[0].1.creation_time_s = NOW_S - 1001;
    assert_eq!(tree.picked(), "L0[1] -> L0 delete");
}

#[test]
fn size_takes_over_where_age_does_not_free_enough() {
    let mut tree = tree(&format!("{TEN};ttl=1000"), &[1, 7, 7]);
    tree.edit.new_files[0].1.oldest_ancestor_time_s = NOW_S - 2000;
    let compaction = tree.pick().unwrap();
    assert_eq!(
        (&*shown(&compaction), compaction.reason),
        ("L0[2 1] -> L0 delete", CompactionReason::FifoMaxSize)
    );
}

#[test]
fn blobs_count_if_asked_for() {
    let mut tree =
        tree("compaction_options_fifo={max_table_files_size=10M;max_data_files_size=100M}", &[4, 4, 4]);
    assert_eq!(tree.picked(), "nothing", "the limit is the other one");
    for index in 0..3 {
        tree.edit.new_files[index].1.oldest_blob_file = Some(FileNumber(9));
    }
    tree.edit.blob_file_additions.push(BlobFileAddition {
        number: FileNumber(9),
        total_count: 1,
        total_bytes: 110 * MIB,
        ..BlobFileAddition::default()
    });
    assert_eq!(tree.picked(), "L0[1] -> L0 delete", "each table holds a third of 122 MiB");
}

#[test]
fn deeper_levels_of_a_former_tree_go_first() {
    let mut tree = tree(TEN, &[4]);
    tree.file(2, "a", "c", 5 * MIB);
    tree.file(2, "d", "f", 5 * MIB);
    assert!(tree.with(needs_compaction));
    assert_eq!(tree.picked(), "L2[2] -> L2 delete");
}

#[test]
fn small_files_are_merged_if_asked_for() {
    let merging = "level0_file_num_compaction_trigger=4;write_buffer_size=4M;\
                   compaction_options_fifo={max_table_files_size=100M;allow_compaction=true}";
    assert_eq!(tree(merging, &[2, 2, 2]).picked(), "nothing");
    let compaction = tree(merging, &[2, 2, 2, 2]).pick().unwrap();
    assert_eq!(shown(&compaction), "L0[4 3 2 1] -> L0");
    assert_eq!(
        (compaction.reason, compaction.target_file_size),
        (CompactionReason::FifoReduceNumFiles, 16 * MIB)
    );
    assert_eq!(tree(merging, &[9, 2, 2, 2, 2]).picked(), "L0[5 4 3 2] -> L0", "merged before");
    assert_eq!(tree(merging, &[9, 9, 9, 9]).picked(), "nothing");
    assert_eq!(tree("", &[2, 2, 2, 2]).picked(), "nothing");
}
