//! Column families, counters, logs and atomic groups over a MANIFEST's edits.
use super::*;
use karst_format::comparator::Comparator;
use karst_format::ids::Level;
use karst_format::key::{InternalKey, ValueType};
use karst_format::version_edit::NewFile;

fn edit() -> VersionEdit {
    VersionEdit::default()
}

/// The fields that every MANIFEST has.
fn basics() -> VersionEdit {
    VersionEdit {
        log_number: Some(FileNumber(3)),
        next_file_number: Some(FileNumber(10)),
        last_sequence: Some(SeqNo(100)),
        ..edit()
    }
}

fn add_family(id: u32, name: &str) -> VersionEdit {
    let column_family = ColumnFamilyId(id);
    VersionEdit { column_family, column_family_add: Some(name.to_owned()), ..edit() }
}

fn add_file(family: u32, number: u64) -> VersionEdit {
    let key = InternalKey { user_key: b"k", seq: SeqNo(1), kind: ValueType::Value }.to_vec();
    let mut file = NewFile::new(FileNumber(number), 1, key.clone(), key, SeqNo(1), SeqNo(1));
    file.epoch_number = number;
    VersionEdit { column_family: ColumnFamilyId(family), new_files: vec![(Level(0), file)], ..edit() }
}

fn in_group(mut edit: VersionEdit, remaining: u32) -> VersionEdit {
    edit.remaining_in_atomic_group = Some(remaining);
    edit
}

fn replay(edits: impl IntoIterator<Item = VersionEdit>) -> Result<ManifestReplay, Inconsistent> {
    let mut replay = ManifestReplay::new();
    edits.into_iter().try_for_each(|edit| replay.add(edit))?;
    Ok(replay)
}

fn finish(edits: impl IntoIterator<Item = VersionEdit>) -> Result<VersionSet, Inconsistent> {
    replay(edits)?.finish(|_| Ok(Some(TreeOptions::default())))
}

fn refused(edits: impl IntoIterator<Item = VersionEdit>) -> String {
    finish(edits).unwrap_err().to_string()
}

#[test]
fn counters_and_families_come_together() {
    let later = VersionEdit {
        column_family: ColumnFamilyId(1),
        log_number: Some(FileNumber(7)),
        prev_log_number: Some(FileNumber(0)),
        next_file_number: Some(FileNumber(20)),
        min_log_number_to_keep: Some(FileNumber(2)),
        max_column_family: Some(ColumnFamilyId(4)),
        last_sequence: Some(SeqNo(50)),
        db_id: Some(b"id".to_vec()),
        last_compacted_manifest_file_size: Some(9),
        ..edit()
    };
    let backwards = VersionEdit { log_number: Some(FileNumber(1)), ..edit() };
    let state = finish([basics(), add_family(1, "one"), add_file(1, 5), later, backwards]).unwrap();
    assert_eq!(state.next_file_number, FileNumber(21));
    assert_eq!(state.last_sequence, SeqNo(100), "it never goes back");
    assert_eq!(state.max_column_family, ColumnFamilyId(4));
    assert_eq!(
        (state.db_id.as_deref(), state.last_compacted_manifest_file_size),
        (Some(&b"id"[..]), Some(9))
    );
    let (default, one) = (state.column_family("default").unwrap(), state.column_family("one").unwrap());
    assert_eq!((default.log_number, one.log_number), (FileNumber(3), FileNumber(7)));
    assert_eq!((default.version.file_count(), one.version.file_count()), (0, 1));
    assert_eq!((default.next_epoch_number, one.next_epoch_number), (1, 6));
    assert_eq!(state.min_log_number(), FileNumber(3));
    assert!(state.column_family("two").is_none());
}

#[test]
fn a_manifest_must_have_what_every_manifest_has() {
    let without = |forget: fn(&mut VersionEdit)| {
        let mut edit = basics();
        forget(&mut edit);
        refused([edit])
    };
    assert_eq!(without(|edit| edit.log_number = None), "the MANIFEST has no log number");
    assert_eq!(without(|edit| edit.next_file_number = None), "the MANIFEST has no next file number");
    assert_eq!(without(|edit| edit.last_sequence = None), "the MANIFEST has no last sequence number");
}

#[test]
fn families_are_added_once_and_dropped_once() {
    let drop = |id| VersionEdit { column_family: ColumnFamilyId(id), column_family_drop: true, ..edit() };
    let state =
        finish([basics(), add_family(1, "one"), add_file(1, 5), drop(1), add_family(2, "one")]).unwrap();
    assert_eq!(state.column_family("one").unwrap().id, ColumnFamilyId(2));
    assert_eq!(state.column_family("one").unwrap().version.file_count(), 0);
    assert!(
        refused([add_family(1, "one"), add_family(1, "two")]).contains("\"two\" (1) is added a second time")
    );
    assert!(refused([add_family(1, "one"), add_family(2, "one")]).contains("second time"));
    assert!(refused([add_family(0, "default")]).contains("second time"));
    assert_eq!(refused([drop(1)]), "column family 1 is dropped but does not exist");
    assert_eq!(refused([add_file(1, 5)]), "an edit is about column family 1, which does not exist");
    let twice = refused([add_family(1, "one"), add_file(1, 5), add_file(1, 5)]);
    assert_eq!(twice, "column family \"one\": table file #5 is added to L0 but is on L0 already");
}

#[test]
fn comparators_are_checked_and_families_may_stay_closed() {
    let mut one = add_family(1, "one");
    one.comparator = Some("rocksdb.ReverseBytewiseComparator".to_owned());
    let replay = replay([basics(), one]).unwrap();
    let found: Vec<_> =
        replay.column_families().map(|found| (found.id.0, found.name, found.comparator)).collect();
    assert_eq!(found, [(0, "default", None), (1, "one", Some("rocksdb.ReverseBytewiseComparator"))]);
    let error = replay.clone().finish(|_| Ok(Some(TreeOptions::default()))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column family \"one\" is ordered by comparator \"rocksdb.ReverseBytewiseComparator\", not by \"leveldb.BytewiseComparator\""
    );
    let by_name = |found: FoundFamily<'_>| {
        let comparator = found.comparator.and_then(Comparator::from_name).unwrap_or_default();
        Ok(Some(TreeOptions { comparator, ..TreeOptions::default() }))
    };
    assert_eq!(replay.clone().finish(by_name).unwrap().column_families.len(), 2);
    let state = replay.finish(|found| Ok((found.name == "default").then(TreeOptions::default))).unwrap();
    assert_eq!(state.unopened.into_iter().collect::<Vec<_>>(), [(ColumnFamilyId(1), "one".to_owned())]);
}

#[test]
fn an_atomic_group_counts_when_it_is_complete() {
    let group = || [in_group(add_file(0, 5), 2), in_group(add_file(0, 6), 1), in_group(add_file(0, 7), 0)];
    let files = |edits: Vec<VersionEdit>| {
        finish(edits).unwrap().column_family("default").unwrap().version.file_count()
    };
    let with = |taken: usize| {
        let mut edits = vec![basics()];
        edits.extend(group().into_iter().take(taken));
        edits
    };
    assert_eq!((files(with(1)), files(with(2)), files(with(3))), (0, 0, 3));
    assert!(replay(with(2)).unwrap().in_atomic_group());
    assert!(!replay(with(3)).unwrap().in_atomic_group());
    let interrupted = [in_group(add_file(0, 5), 1), add_file(0, 6)];
    assert!(refused(interrupted).contains("interrupted"));
    for wrong in [2, 0, 3] {
        let edits = [in_group(add_file(0, 5), 2), in_group(add_file(0, 6), wrong)];
        assert!(refused(edits).contains("goes on with"), "{wrong}");
    }
    assert_eq!(files(vec![basics(), in_group(add_file(0, 5), 0), in_group(add_file(0, 6), 0)]), 2);
    assert!(replay([in_group(add_file(0, 5), u32::MAX)]).is_ok());
}

#[test]
fn logs_are_tracked_where_the_manifest_does() {
    let wal = |number, size| WalAddition { number: FileNumber(number), synced_size_bytes: size };
    let added = |wals: &[WalAddition]| VersionEdit { wal_additions: wals.to_vec(), ..edit() };
    let gone = |below| VersionEdit { wal_deletion: Some(FileNumber(below)), ..edit() };
    let state = finish([
        basics(),
        added(&[wal(4, None), wal(5, None)]),
        added(&[wal(4, Some(10))]),
        added(&[wal(4, Some(7))]),
        gone(4),
        added(&[wal(3, None)]),
        added(&[wal(6, None)]),
    ])
    .unwrap();
    let wals: Vec<_> = state.wals.iter().map(|(number, size)| (number.0, *size)).collect();
    assert_eq!(wals, [(4, Some(10)), (5, None), (6, None)]);
    assert_eq!(finish([basics(), added(&[wal(4, None)]), gone(9)]).unwrap().wals.len(), 0);
    assert_eq!(refused([added(&[wal(4, None)]), added(&[wal(4, None)])]), "log #4 is created a second time");
}

/// Replays with missing files; returns the files of each tree, and the names of the families that
/// were set back.
fn whole(edits: Vec<VersionEdit>, missing: &[u64]) -> (BTreeMap<String, Vec<u64>>, Vec<String>) {
    let mut replay = whole::WholeReplay::new();
    for edit in edits {
        replay
            .add(edit, |_, file| {
                let number = match file {
                    whole::AddedFile::Table(table) => table.number,
                    whole::AddedFile::Blob(number) => number,
                };
                Ok::<_, ()>(!missing.contains(&number.0))
            })
            .unwrap();
    }
    let (replay, set_back) = replay.into_replay();
    let set = replay.finish(|_| Ok(Some(TreeOptions::default()))).unwrap();
    let files = |state: &ColumnFamilyState| {
        let mut files: Vec<u64> = state.version.all_files().map(|(_, file)| file.number.0).collect();
        files.sort_unstable();
        (state.name.clone(), files)
    };
    (set.column_families.values().map(files).collect(), set_back)
}

fn delete_file(family: u32, number: u64) -> VersionEdit {
    VersionEdit {
        column_family: ColumnFamilyId(family),
        deleted_files: vec![(Level(0), FileNumber(number))],
        ..edit()
    }
}

fn blob_edit(number: u64) -> VersionEdit {
    let mut table = add_file(0, number);
    table.new_files[0].1.oldest_blob_file = Some(FileNumber(number + 1));
    table.blob_file_additions = vec![karst_format::version_edit::BlobFileAddition {
        number: FileNumber(number + 1),
        total_count: 1,
        total_bytes: 10,
        ..Default::default()
    }];
    table
}

#[test]
fn each_family_is_set_back_to_where_its_files_are_all_there() {
    let edits = || {
        vec![
            basics(),
            add_family(1, "other"),
            add_file(0, 11),
            add_file(1, 12),
            add_file(0, 13),
            add_file(0, 14),
            add_file(1, 15),
        ]
    };
    let expected = |default: &[u64], other: &[u64]| {
        BTreeMap::from([("default".to_owned(), default.to_vec()), ("other".to_owned(), other.to_vec())])
    };
    assert_eq!(whole(edits(), &[]), (expected(&[11, 13, 14], &[12, 15]), vec![]));
    assert_eq!(whole(edits(), &[13]), (expected(&[11], &[12, 15]), vec!["default".into()]));
    let both = vec!["default".into(), "other".into()];
    assert_eq!(whole(edits(), &[12, 14]), (expected(&[11, 13], &[]), both));
    // A missing file that is no longer in the tree has no effect.
    let mut compacted = edits();
    compacted.push(VersionEdit { deleted_files: delete_file(0, 13).deleted_files, ..add_file(0, 16) });
    assert_eq!(whole(compacted.clone(), &[13]), (expected(&[11, 14, 16], &[12, 15]), vec![]));
    // The state before a compaction, whose inputs still exist.
    assert_eq!(whole(compacted, &[16]), (expected(&[11, 13, 14], &[12, 15]), vec!["default".into()]));
}

#[test]
fn what_an_atomic_group_did_is_in_all_of_its_families_or_in_none() {
    let edits = || {
        vec![
            basics(),
            add_family(1, "other"),
            add_file(0, 11),
            add_file(1, 12),
            in_group(add_file(0, 13), 1),
            in_group(add_file(1, 14), 0),
            add_file(0, 15),
        ]
    };
    let (trees, set_back) = whole(edits(), &[14]);
    assert_eq!((&trees["default"], &trees["other"]), (&vec![11], &vec![12]));
    assert_eq!(set_back, ["default", "other"]);
    // Both families are complete again.
    let mut later = edits();
    later.push(delete_file(1, 14));
    let (trees, set_back) = whole(later, &[14]);
    assert_eq!((&trees["default"], &trees["other"]), (&vec![11, 13, 15], &vec![12]));
    assert!(set_back.is_empty());
    // A dropped family does not tie others.
    let mut dropped = edits();
    dropped.push(VersionEdit { column_family: ColumnFamilyId(1), column_family_drop: true, ..edit() });
    let (trees, set_back) = whole(dropped, &[14]);
    assert_eq!((trees.get("other"), set_back.len()), (None, 0));
    assert_eq!(trees["default"], [11, 13, 15]);
    // A group that is cut short has no effect.
    let (trees, set_back) = whole(edits()[..5].to_vec(), &[13]);
    assert_eq!((&trees["default"], set_back.len()), (&vec![11], 0));
}

#[test]
fn a_blob_file_counts_while_a_table_may_refer_to_it() {
    let edits = || vec![basics(), add_file(0, 11), blob_edit(20), blob_edit(30)];
    let (trees, set_back) = whole(edits(), &[31]);
    assert_eq!((&trees["default"][..], set_back.len()), (&[11, 20][..], 1));
    let (trees, _) = whole(edits(), &[21]);
    assert_eq!(trees["default"], [11]);
    let mut later = edits();
    later.push(delete_file(0, 20));
    let (trees, set_back) = whole(later, &[21]);
    assert_eq!((&trees["default"][..], set_back.len()), (&[11, 30][..], 0));
}
