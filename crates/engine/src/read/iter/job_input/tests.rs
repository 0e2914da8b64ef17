//! Tests of a job's input against the internal iterator of the same database, with various bounds
//! and readahead sizes.

use super::{InputOptions, JobInput};
use crate::ingest::BulkLoader;
use crate::{Db, Options, ReadOptions};
use karst_format::comparator::Comparator;
use karst_format::ids::ColumnFamilyId;
use karst_io::block_on;
use karst_lsm::pick::CompactionInput;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn key(i: usize) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Overwritten and deleted keys in `l0_files` files of L0, on level 2 and on level 5, each of these
/// levels with several files.
fn database(directory: &std::path::Path, compression: &str, l0_files: usize) -> Db {
    let options = format!("target_file_size_base=20K;write_buffer_size=64M;compression={compression}");
    let options = Options::new().set_all(&options).unwrap();
    let mut loader = BulkLoader::create(directory, &options).unwrap();
    let mut run = loader.sorted_run(ColumnFamilyId::DEFAULT, 5).unwrap();
    for i in 0..4000 {
        run.put(&key(i), format!("old{i}").as_bytes()).unwrap();
    }
    run.finish().unwrap();
    for i in (0..4000).step_by(3) {
        loader.put(&key(i), &vec![b'm'; i % 90]).unwrap();
    }
    loader.seal(2).unwrap();
    for part in 0..l0_files {
        for i in (part..4000).step_by(7 + part) {
            if i % 5 == 0 { loader.delete(&key(i)) } else { loader.put(&key(i), b"new") }.unwrap();
        }
        loader.seal(0).unwrap();
    }
    loader.finish().unwrap();
    Db::open_read_only(directory, &Options::new()).unwrap()
}

fn expected(db: &Db, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Entries {
    let mut iter = db.internal_iter(&ReadOptions::default(), db.default_column_family()).unwrap();
    match lower {
        Some(lower) => iter.seek(lower).unwrap(),
        None => iter.seek_to_first().unwrap(),
    }
    let mut entries = Vec::new();
    while iter.valid() && upper.is_none_or(|upper| &iter.key()[..iter.key().len() - 8] < upper) {
        entries.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    entries
}

/// Returns all files of a database, as the input of a job.
pub(in crate::read::iter) fn all_files(db: &Db) -> Vec<CompactionInput> {
    let superversion = db.default_column_family().0.superversion();
    let levels = superversion.version().levels().iter();
    levels.map(|level| CompactionInput { level: level.level(), files: level.files().to_vec() }).collect()
}

async fn read(db: &Db, readahead_bytes: u64, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Entries {
    let family = &db.default_column_family().0;
    let (lower, upper) = (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec));
    let options = InputOptions { readahead_bytes, verify_checksums: true, lower, upper };
    let mut input = JobInput::new(family.tables.clone(), &[], &all_files(db), options);
    input.start().await.unwrap();
    let mut entries = Vec::new();
    while input.valid() {
        let pinned = input.pinned_value();
        let (key, value) = input.entry();
        entries.push((key.to_vec(), value.to_vec()));
        if !input.advance().unwrap() {
            input.arrive().await.unwrap();
        }
        assert_eq!(*pinned, *entries.last().unwrap().1, "a pinned value stays");
    }
    entries
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn every_entry_within_the_bounds_in_order() {
    for compression in ["kNoCompression", "kSnappyCompression"] {
        let directory = tempfile::tempdir().unwrap();
        let db = database(directory.path(), compression, 3);
        let all = expected(&db, None, None);
        assert!(all.len() > 4000 + 1333 + 571, "{}", all.len());
        let (a, b) = (key(1000), key(2500));
        for readahead in [0, 1, 5000, 2 << 20] {
            for (lower, upper) in [
                (None, None),
                (Some(&*a), None),
                (None, Some(&*b)),
                (Some(&*a), Some(&*b)),
                (Some(&*b), Some(&*a)),
            ] {
                let found = block_on(db.env(), is_send(read(&db, readahead, lower, upper)));
                assert_eq!(found, expected(&db, lower, upper), "{readahead} {lower:?} {upper:?}");
            }
        }
        assert_eq!(db.int_property("rocksdb.block-cache-pinned-usage"), Some(0), "nothing stays pinned");
    }
}

/// Few and many runs are merged in different ways; both come in the order of internal keys, forward
/// and backward.
#[test]
fn however_many_runs_they_come_in_order() {
    for l0_files in [1, 3, 14, 15, 16, 40] {
        let directory = tempfile::tempdir().unwrap();
        let db = database(directory.path(), "kNoCompression", l0_files);
        let found = block_on(db.env(), read(&db, 2 << 20, None, None));
        let entries = (0..l0_files).map(|part| (part..4000).step_by(7 + part).count()).sum::<usize>();
        assert_eq!(found.len(), 4000 + 1334 + entries, "{l0_files} files");
        let before = |a: &[u8], b: &[u8]| Comparator::Bytewise.compare_internal(a, b).is_lt();
        assert!(found.is_sorted_by(|a, b| before(&a.0, &b.0)), "{l0_files} files");

        let mut iter = db.iter(&ReadOptions::default()).unwrap();
        let mut forwards = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            forwards.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next().unwrap();
        }
        let mut backwards = Vec::new();
        iter.seek_to_last().unwrap();
        while iter.valid() {
            backwards.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.prev().unwrap();
        }
        backwards.reverse();
        assert!(!forwards.is_empty() && forwards == backwards, "{l0_files} files");
    }
}
