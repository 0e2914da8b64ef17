//! Databases whose files are damaged or lost, repaired.
//!
//! | file | holds |
//! |---|---|
//! | `damage` | files of each kind lost, cut short or changed; recovered entries and reports |
//! | `interop` | RocksDB's databases repaired by KarstDB and read by RocksDB, and the reverse |
//! | `leveldb` | LevelDB's databases, which are refused |
//! | `paths` | losses with tables in several directories |
//! | `crashes` | power failures at every change of the disk during a repair; a full disk |

mod crashes;
mod damage;
mod interop;
mod leveldb;
mod paths;

use karst_engine::merge_operator::MergeOperator;
use karst_engine::{Db, FlushOptions, Options, ReadOptions, WriteBatch, WriteOptions};
use karst_io::{Env, FileSystem, MemoryFileSystem};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The column families of all databases here.
const FAMILIES: [&str; 3] = ["default", "second", "third"];

fn key(number: u64) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

/// Returns options that set nothing for families other than the default one.
fn plain(env: &Env, more: &str) -> Options {
    let text = format!("create_if_missing=true;stats_dump_period_sec=0;{more}");
    Options::new().env(env.clone()).set_all(&text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns options for small tables in several levels, with blob files in the second family and
/// sums in the third.
fn options(env: &Env, more: &str) -> Options {
    let text = format!(
        "create_missing_column_families=true;write_buffer_size=70000;target_file_size_base=20000;max_bytes_for_level_base=60000;\
         level0_file_num_compaction_trigger=3;{more}"
    );
    let options = plain(env, &text);
    let blobs = |family: &mut karst_engine::ColumnFamilyOptions| {
        family.enable_blob_files = true;
        family.min_blob_size = 120;
    };
    let sums: Arc<dyn MergeOperator> =
        karst_engine::merge_operator::from_name("uint64add").expect("it is built in");
    options.column_family("second", blobs).merge_operator(Some("third"), sums)
}

/// Returns all entries of a column family.
fn contents(db: &Db, family: &str) -> Contents {
    let family = db.column_family(family).unwrap_or_else(|| panic!("there is no family {family}"));
    let mut iter = db.iter_cf(&ReadOptions::new(), &family).unwrap();
    let mut all = Contents::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        all.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    // Gets too, because they search the levels in another way.
    for (key, value) in &all {
        let got = db.get_cf(&ReadOptions::new(), &family, key).unwrap();
        assert_eq!(got.as_deref(), Some(&value[..]), "{}", key.escape_ascii());
    }
    all
}

fn all(db: &Db) -> BTreeMap<String, Contents> {
    FAMILIES.map(|name| (name.to_owned(), contents(db, name))).into()
}

/// Writes `rounds` rounds of puts, deletions, range deletions, sums, flushes and compactions, and
/// last some entries that stay in the log. Returns all entries.
fn fill(path: &Path, options: &Options, rounds: u64) -> BTreeMap<String, Contents> {
    let db = Db::open_cf(path, options, &FAMILIES).unwrap();
    let families = FAMILIES.map(|name| db.column_family(name).unwrap());
    let write = WriteOptions::new();
    let mut seed = 1u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..rounds {
        for _ in 0..150 {
            let number = draw(400);
            let value = vec![b'a' + (draw(26) as u8); 60 + draw(150) as usize];
            match draw(12) {
                0 => db.delete_cf(&write, &families[0], key(number)).unwrap(),
                1 => db.delete_cf(&write, &families[1], key(number)).unwrap(),
                2 => db.delete_range_cf(&write, &families[0], key(number), key(number + 5)).unwrap(),
                3..=5 => {
                    let mut batch = WriteBatch::new();
                    batch.put_cf(&families[0], key(number), &value).unwrap();
                    batch.put_cf(&families[1], key(number), &value).unwrap();
                    db.write(&write, &batch).unwrap();
                }
                6 | 7 => {
                    db.merge_cf(&write, &families[2], key(number % 50), 1u64.to_le_bytes()).unwrap();
                }
                _ => db.put_cf(&write, &families[0], key(number), &value).unwrap(),
            }
        }
        if round + 1 < rounds {
            db.flush_cfs(&FlushOptions::default(), &families.iter().collect::<Vec<_>>()).unwrap();
        }
        if round == rounds / 2 {
            db.compact_range(&Default::default(), None, None).unwrap();
            // Later writes stay above the last level, independent of the speed of compactions.
            for family in &families {
                db.set_options(family, &[("disable_auto_compactions", "true")]).unwrap();
            }
        }
    }
    db.wait_for_compact(&Default::default()).unwrap();
    db.sync_wal().unwrap();
    let there = all(&db);
    db.close().unwrap();
    there
}

/// Returns an environment over files in memory, and these files.
fn memory() -> (Env, Arc<MemoryFileSystem>) {
    let files = Arc::new(MemoryFileSystem::new());
    (Env::builder().file_system(files.clone()).build(), files)
}

/// Returns the files of a directory whose names begin or end with `part`.
fn named(files: &dyn FileSystem, directory: &str, part: &str) -> Vec<PathBuf> {
    let mut names = files.list_dir(Path::new(directory)).unwrap();
    names.retain(|name| name.starts_with(part) || name.ends_with(part));
    names.sort();
    names.iter().map(|name| Path::new(directory).join(name)).collect()
}

/// Replaces a file's content.
fn rewrite(files: &dyn FileSystem, path: &Path, bytes: &[u8]) {
    let mut file = files.create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

fn flip(files: &dyn FileSystem, path: &Path, at: usize) {
    let mut bytes = files.read_file(path).unwrap();
    bytes[at] ^= 0x55;
    rewrite(files, path, &bytes);
}
