//! Any bytes as the records of a MANIFEST, each after its length, replayed into trees that are then
//! searched.
#![no_main]

use karst_format::coding::Reader;
use karst_format::key::SeqNo;
use karst_format::version_edit::VersionEdit;
use karst_lsm::{ManifestReplay, TreeOptions};
use libfuzzer_sys::fuzz_target;
use std::ops::Bound;

fuzz_target!(|data: &[u8]| {
    let mut records = Reader::new(data);
    let mut replay = ManifestReplay::new();
    let checked = data.first().is_some_and(|byte| byte & 1 == 0);
    while let Ok(record) = records.length_prefixed() {
        let Ok(edit) = VersionEdit::decode(record) else { return };
        if replay.add(edit).is_err() {
            return;
        }
    }
    let options = TreeOptions { check_consistency: checked, ..TreeOptions::default() };
    let Ok(state) = replay.finish(|_| Ok(Some(options.clone()))) else { return };
    for family in state.column_families.values() {
        let version = &family.version;
        for key in [&b""[..], b"key", data] {
            let found = version.candidates(key, SeqNo::MAX).count();
            assert!(found <= version.file_count());
            for level in version.levels() {
                let range = level.overlapping(version.comparator(), Bound::Included(key), Bound::Unbounded);
                assert!(range.end <= level.len());
            }
        }
    }
});
