//! Placement of ingested files.

use super::*;

fn key(user_key: &str, trailer: u64) -> Vec<u8> {
    let mut key = Vec::new();
    append(&mut key, user_key.as_bytes(), trailer);
    key
}

/// Returns the level of a file from `from` to `to`, both inclusive, with `!` if it overlaps
/// anything.
fn place(tree: &TestTree, from: &str, to: &str, above: Option<u8>) -> String {
    let bounds = (key(from, 1 << 8), key(to, 1 << 8));
    let found = tree.with(|context| place_ingested(context, (&bounds.0, &bounds.1), above.map(Level)));
    format!("{}{}", found.level, if found.overlaps { "!" } else { "" })
}

const FIXED: &str = "level_compaction_dynamic_level_bytes=false;num_levels=5";

#[test]
fn a_file_goes_as_deep_as_nothing_is_in_its_way() {
    let mut tree = TestTree::new(FIXED);
    assert_eq!(place(&tree, "a", "z", None), "L4");
    tree.file(3, "c", "f", 1);
    tree.file(3, "m", "p", 1);
    tree.file(0, "x", "y", 1);
    tree.file(0, "a", "b", 1);
    tree.file_to_tombstone_end(2, "r", "t", 1);
    assert_eq!(place(&tree, "g", "k", None), "L4");
    assert_eq!(place(&tree, "f", "k", None), "L2!");
    assert_eq!(place(&tree, "q", "s", None), "L1!");
    assert_eq!(place(&tree, "t", "u", None), "L4", "the end of a tombstone is not deleted");
    assert_eq!(place(&tree, "y", "z", None), "L0!");
    assert_eq!(place(&tree, "b", "bb", None), "L0!", "whatever the order of files in L0");
    assert_eq!(place(&tree, "a", "z", None), "L0!");
    assert_eq!(place(&tree, "g", "k", Some(4)), "L3");
    assert_eq!(place(&tree, "g", "k", Some(0)), "L0");
}

#[test]
fn levels_between_l0_and_the_base_level_are_left_out() {
    let mut tree = TestTree::new("level_compaction_dynamic_level_bytes=true;num_levels=7");
    assert_eq!(place(&tree, "a", "z", None), "L6");
    tree.file(6, "a", "m", 1 << 20);
    assert_eq!(place(&tree, "b", "c", None), "L0!", "the base level is the last one");
    assert_eq!(place(&tree, "n", "z", None), "L6");
}

#[test]
fn a_file_stays_above_what_is_about_to_be_written() {
    let mut tree = TestTree::new(&format!("{FIXED};level0_file_num_compaction_trigger=2"));
    tree.file(0, "a", "g", 1);
    tree.file(0, "f", "m", 1);
    let compaction = tree.run().unwrap();
    assert_eq!(shown(&compaction), "L0[2 1] -> L1");
    // The edit that removes the inputs and adds the output may be installed while the compaction is
    // still registered as running.
    tree.edit = VersionEdit::default();
    assert_eq!(place(&tree, "e", "f", None), "L0!");
    assert_eq!(place(&tree, "n", "z", None), "L4");
    tree.running.reserve(Level(3), b"p", b"q");
    assert_eq!(place(&tree, "n", "p", None), "L2!", "another file that is being ingested");
}

#[test]
fn nothing_is_compacted_to_where_a_file_is_about_to_be() {
    let mut tree = TestTree::new(&format!("{FIXED};level0_file_num_compaction_trigger=2"));
    tree.file(0, "a", "g", 1);
    tree.file(0, "f", "m", 1);
    let id = tree.running.reserve(Level(1), b"e", b"f");
    assert_eq!(tree.picked(), "nothing");
    tree.running.release(id);
    tree.running.reserve(Level(1), b"n", b"z");
    assert_eq!(tree.picked(), "L0[2 1] -> L1");
}

#[test]
fn other_styles_take_files_into_l0() {
    for style in ["kCompactionStyleUniversal", "kCompactionStyleFIFO"] {
        let levels = if style.ends_with("FIFO") { 1 } else { 7 };
        let mut tree = TestTree::new(&format!("compaction_style={style};num_levels={levels}"));
        assert_eq!(place(&tree, "a", "z", None), "L0");
        tree.file(levels - 1, "a", "m", 1);
        assert_eq!(place(&tree, "c", "d", None), "L0!");
        assert_eq!(place(&tree, "n", "o", None), "L0");
    }
}

#[test]
fn the_last_level_is_for_what_is_ingested_behind_if_it_is_kept_free() {
    let bounds = (key("c", 1 << 8), key("d", 1 << 8));
    let behind = |tree: &TestTree| tree.with(|context| place_behind(context, (&bounds.0, &bounds.1)));
    let mut tree = TestTree::new(FIXED);
    assert_eq!(behind(&tree), Err(NotBehind::NoLevel));
    tree.options.allow_ingest_behind = true;
    tree.file(1, "a", "z", 1);
    assert_eq!(behind(&tree), Ok(Level(4)));
    assert_eq!(place(&TestTree { edit: VersionEdit::default(), ..tree }, "a", "z", None), "L3");
    let mut tree = TestTree::new(FIXED);
    tree.options.allow_ingest_behind = true;
    tree.file(4, "d", "f", 1);
    assert_eq!(behind(&tree), Err(NotBehind::Occupied));
}

#[test]
fn nothing_is_ingested_behind_into_what_is_about_to_be_written() {
    let bounds = (key("m", 1 << 8), key("n", 1 << 8));
    let behind = |tree: &TestTree| tree.with(|context| place_behind(context, (&bounds.0, &bounds.1)));
    let mut tree = TestTree::new(FIXED);
    tree.options.allow_ingest_behind = true;
    let id = tree.running.reserve(Level(4), b"a", b"z");
    assert_eq!(behind(&tree), Err(NotBehind::Occupied));
    tree.running.release(id);
    tree.running.reserve(Level(3), b"a", b"z");
    assert_eq!(behind(&tree), Ok(Level(4)));
}

#[test]
fn no_manual_compaction_puts_files_into_a_level_that_is_kept_free() {
    let mut tree = TestTree::new(FIXED);
    tree.options.allow_ingest_behind = true;
    let number = tree.file(0, "a", "z", 1).number;
    let manual = |level, allow_trivial_move| {
        let options = CompactFilesOptions { allow_trivial_move, ..CompactFilesOptions::default() };
        tree.with(|context| compact_files(context, &[number], level, &options).map(|c| shown(&c)))
    };
    assert!(manual(4, true).unwrap_err().why.contains("exceeds 3"));
    assert_eq!(manual(3, true).unwrap(), "L0[1] -> L3 move");
    assert_eq!(manual(3, false).unwrap(), "L0[1] -> L3");
}

#[test]
fn nothing_is_ingested_behind_entries_of_number_zero() {
    let bounds = (key("c", 1 << 8), key("d", 1 << 8));
    let behind = |tree: &TestTree| tree.with(|context| place_behind(context, (&bounds.0, &bounds.1)));
    for level in 0..4 {
        let mut tree = TestTree::new(FIXED);
        tree.options.allow_ingest_behind = true;
        tree.file(level, "e", "f", 1).smallest_seq = SeqNo(0);
        assert_eq!(behind(&tree), Ok(Level(4)));
        tree.file(level, "a", "d", 1).smallest_seq = SeqNo(0);
        assert_eq!(behind(&tree), Err(NotBehind::Unnumbered(FileNumber(2))), "level {level}");
    }
}

#[test]
fn a_tree_of_two_levels_has_none_to_keep_free() {
    let bounds = (key("c", 1 << 8), key("d", 1 << 8));
    let mut tree = TestTree::new("level_compaction_dynamic_level_bytes=false;num_levels=2");
    tree.options.allow_ingest_behind = true;
    let behind = tree.with(|context| place_behind(context, (&bounds.0, &bounds.1)));
    assert_eq!(behind, Err(NotBehind::NoLevel));
}
