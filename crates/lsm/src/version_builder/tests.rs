//! Effects of edits on a tree, and edits that contradict it.
use super::*;
use karst_format::key::{InternalKey, SeqNo, ValueType};

fn internal(user_key: &str, seq: u64) -> Vec<u8> {
    InternalKey { user_key: user_key.as_bytes(), seq: SeqNo(seq), kind: ValueType::Value }.to_vec()
}

fn file(number: u64, from: &str, to: &str, epoch: u64) -> NewFile {
    let (smallest, largest) = (internal(from, 2), internal(to, 1));
    let mut file = NewFile::new(FileNumber(number), 10, smallest, largest, SeqNo(1), SeqNo(2));
    file.epoch_number = epoch;
    file
}

fn add(level: u8, file: NewFile) -> VersionEdit {
    VersionEdit { new_files: vec![(Level(level), file)], ..VersionEdit::default() }
}

fn delete(level: u8, number: u64) -> VersionEdit {
    VersionEdit { deleted_files: vec![(Level(level), FileNumber(number))], ..VersionEdit::default() }
}

fn blob(number: u64, count: u64) -> VersionEdit {
    let addition = BlobFileAddition {
        number: FileNumber(number),
        total_count: count,
        total_bytes: count * 10,
        ..BlobFileAddition::default()
    };
    VersionEdit { blob_file_additions: vec![addition], ..VersionEdit::default() }
}

fn garbage(number: u64, count: u64) -> VersionEdit {
    let garbage = BlobFileGarbage { number: FileNumber(number), count, bytes: count * 10 };
    VersionEdit { blob_file_garbages: vec![garbage], ..VersionEdit::default() }
}

fn with_blob(mut edit: VersionEdit, blob_file: u64) -> VersionEdit {
    edit.new_files[0].1.oldest_blob_file = Some(FileNumber(blob_file));
    edit
}

fn builder(edits: &[VersionEdit]) -> Result<VersionBuilder, Inconsistent> {
    let mut builder = VersionBuilder::new();
    edits.iter().try_for_each(|edit| builder.apply(edit))?;
    Ok(builder)
}

fn build(edits: &[VersionEdit]) -> Result<Version, Inconsistent> {
    builder(edits)?.build(&TreeOptions::default())
}

fn numbers(version: &Version, level: u8) -> Vec<u64> {
    version.files(Level(level)).iter().map(|file| file.number.0).collect()
}

fn refused(edits: &[VersionEdit]) -> String {
    build(edits).unwrap_err().to_string()
}

#[test]
fn levels_are_ordered_by_age_or_by_key() {
    let version = build(&[
        add(0, file(4, "a", "c", 1)),
        add(0, file(5, "b", "d", 3)),
        add(0, file(6, "c", "e", 2)),
        add(1, file(7, "m", "n", 1)),
        add(1, file(8, "a", "b", 1)),
        add(1, file(9, "p", "q", 1)),
        delete(1, 9),
    ])
    .unwrap();
    assert_eq!(numbers(&version, 0), [5, 6, 4]);
    assert_eq!(numbers(&version, 1), [8, 7]);
    assert_eq!((version.levels().len(), version.file_count(), version.size_bytes()), (7, 5, 50));
    assert_eq!(version.find_file(FileNumber(7)).unwrap().0, Level(1));
    assert!(version.find_file(FileNumber(9)).is_none());
}

#[test]
fn a_tree_deeper_than_the_options_say_gets_the_levels_it_needs() {
    assert_eq!(build(&[add(9, file(4, "a", "b", 1))]).unwrap().levels().len(), 10);
}

#[test]
fn files_that_do_not_fit_are_named() {
    let file4 = || add(1, file(4, "a", "b", 1));
    assert_eq!(
        refused(&[file4(), add(2, file(4, "c", "d", 1))]),
        "table file #4 is added to L2 but is on L1 already"
    );
    assert_eq!(refused(&[delete(1, 4)]), "table file #4 is deleted from L1 but is not in the tree");
    assert_eq!(refused(&[file4(), delete(2, 4)]), "table file #4 is deleted from L2 but is on L1");
    assert_eq!(
        refused(&[file4(), delete(1, 4), delete(1, 4)]),
        "table file #4 is deleted from L1 but is not in the tree"
    );
    let mut twice = delete(1, 4);
    twice.deleted_files.push(twice.deleted_files[0]);
    assert_eq!(build(&[file4(), twice]).unwrap().file_count(), 0);
}

#[test]
fn a_tree_that_breaks_an_invariant_is_refused_unless_unchecked() {
    let overlapping = [add(1, file(4, "a", "m", 1)), add(1, file(5, "b", "z", 1))];
    assert!(refused(&overlapping).contains("table files #4 [a"), "{}", refused(&overlapping));
    assert!(refused(&overlapping).ends_with("overlap on L1"));
    let unchecked = TreeOptions { check_consistency: false, ..TreeOptions::default() };
    assert_eq!(builder(&overlapping).unwrap().build(&unchecked).unwrap().file_count(), 2);
    let same_epoch = [add(0, file(4, "a", "m", 7)), add(0, file(5, "b", "z", 7))];
    assert!(refused(&same_epoch).ends_with("overlap on L0"));
    build(&[add(0, file(4, "a", "m", 7)), add(0, file(5, "n", "z", 7))]).unwrap();
    assert!(refused(&[add(1, file(4, "b", "a", 1))]).contains("#4 on L1 has a smallest key b"));
    // Neighbours may share a user key as long as the first one's entries of it are newer.
    let mut second = file(5, "m", "z", 1);
    second.smallest = internal("m", 0).into();
    build(&[add(1, file(4, "a", "m", 1)), add(1, second)]).unwrap();
}

#[test]
fn missing_epochs_follow_from_sequence_numbers() {
    let with_seq = |number: u64, from: u64, to: u64| {
        let mut file = file(number, "a", "z", 0);
        (file.smallest_seq, file.largest_seq) = (SeqNo(from), SeqNo(to));
        file
    };
    let edits = [
        add(0, with_seq(4, 10, 19)),
        add(0, with_seq(5, 30, 39)),
        add(0, with_seq(6, 20, 29)),
        add(3, file(7, "a", "b", 0)),
        add(6, file(8, "a", "b", 9)),
    ];
    let version = build(&edits).unwrap();
    assert_eq!(numbers(&version, 0), [5, 6, 4]);
    let epochs =
        |version: &Version| -> Vec<u64> { version.all_files().map(|(_, file)| file.epoch_number).collect() };
    assert_eq!(epochs(&version), [5, 4, 3, 2, 1]);
    let behind = TreeOptions { allow_ingest_behind: true, ..TreeOptions::default() };
    assert_eq!(epochs(&builder(&edits).unwrap().build(&behind).unwrap()), [6, 5, 4, 3, 2]);
}

#[test]
fn what_an_edit_does_not_touch_is_shared_with_the_base() {
    let base =
        build(&[add(1, file(4, "a", "b", 1)), add(2, file(5, "a", "b", 1)), add(3, file(6, "a", "b", 1))])
            .unwrap();
    let base = Arc::new(base);
    base.files(Level(1))[0].attach(String::from("opened"));
    let mut moved = delete(1, 4);
    moved.new_files.push((Level(2), {
        let mut moved = file(4, "a", "b", 1);
        (moved.smallest, moved.largest) = (internal("c", 2).into(), internal("d", 1).into());
        moved
    }));
    let mut same = VersionBuilder::from_base(Arc::clone(&base));
    same.apply(&moved).unwrap();
    let next = same.build(&TreeOptions::default()).unwrap();
    assert_eq!((numbers(&next, 1), numbers(&next, 2)), (vec![], vec![5, 4]));
    assert!(Arc::ptr_eq(&next.levels()[3], &base.levels()[3]));
    assert!(!Arc::ptr_eq(&next.levels()[2], &base.levels()[2]));
    // A file whose keys changed is another file with the same number.
    assert_eq!(next.files(Level(2))[1].attachment::<String>(), None);

    let mut trivial = delete(1, 4);
    trivial.new_files.push((Level(4), file(4, "a", "b", 1)));
    let mut builder = VersionBuilder::from_base(Arc::clone(&base));
    builder.apply(&trivial).unwrap();
    let next = builder.build(&TreeOptions::default()).unwrap();
    assert_eq!(next.files(Level(4))[0].attachment::<String>().unwrap(), "opened");
    assert_eq!(next.files(Level(4))[0].attachment::<u64>(), None);
    assert_eq!(numbers(&base, 1), [4], "the base has not changed");
}

#[test]
fn blob_files_live_while_something_refers_to_them() {
    let edits = [
        blob(10, 4),
        blob(11, 4),
        blob(12, 4),
        with_blob(add(1, file(4, "a", "b", 1)), 11),
        garbage(11, 1),
        garbage(12, 4),
    ];
    let version = build(&edits).unwrap();
    let live: Vec<u64> = version.blob_files().keys().map(|number| number.0).collect();
    assert_eq!(live, [11], "10 is older than every reference, 12 is all garbage");
    let file = &version.blob_files()[&FileNumber(11)];
    assert_eq!((file.garbage_count, file.garbage_bytes), (1, 10));
    assert_eq!(file.linked_tables.iter().map(|number| number.0).collect::<Vec<_>>(), [4]);
    let mut next = VersionBuilder::from_base(Arc::new(version));
    next.apply(&delete(1, 4)).unwrap();
    assert!(next.build(&TreeOptions::default()).unwrap().blob_files().is_empty());
}

#[test]
fn blob_files_that_do_not_fit_are_named() {
    assert_eq!(refused(&[blob(10, 4), blob(10, 4)]), "blob file #10 is added a second time");
    assert_eq!(refused(&[garbage(10, 1)]), "garbage of blob file #10, which is not in the tree");
    for counts in [vec![5], vec![3, 2], vec![1, u64::MAX / 10]] {
        let mut edits = vec![blob(10, 4)];
        edits.extend(counts.into_iter().map(|count| garbage(10, count)));
        assert_eq!(refused(&edits), "blob file #10 gets more garbage than it has blobs");
    }
    let all_garbage = [blob(10, 4), with_blob(add(1, file(4, "a", "b", 1)), 10), garbage(10, 4)];
    assert_eq!(refused(&all_garbage), "blob file #10 is all garbage, but table file #4 refers to it");
    // A table may name a blob file that the MANIFEST does not track.
    build(&[with_blob(add(1, file(4, "a", "b", 1)), 10)]).unwrap();
}

#[test]
fn compact_cursors_are_kept_for_levels_that_exist() {
    let cursors = |level: u8, key: &str| (Level(level), internal(key, 1).into_boxed_slice());
    let edit =
        VersionEdit { compact_cursors: vec![cursors(1, "a"), cursors(20, "b")], ..VersionEdit::default() };
    let later = VersionEdit { compact_cursors: vec![cursors(1, "c")], ..VersionEdit::default() };
    let version = build(&[edit, later]).unwrap();
    assert_eq!(version.compact_cursors().iter().collect::<Vec<_>>(), [(&Level(1), &internal("c", 1).into())]);
}
