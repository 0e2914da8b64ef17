//! Damages every file of small databases in turn and reads each damaged database in every form.
//!
//! Input: a sample database in a file system of its own, and a damage to one of its files. Checked:
//! no panic, hang or unbounded allocation; a returned value is the undamaged one; an existing key
//! is missing only if [`may_lose`] returns true; every error names a file; afterwards every byte of
//! the directory is unchanged.
//!
//! The default run takes a share of the cases, in seconds. `KARST_LONG_TESTS=1` (set by
//! `cargo xtask ci`) takes thousands.

mod damages;
mod reading;
mod samples;
mod watch;

use damages::Damage;
use karst_format::file_name::FileName;
use karst_io::{Env, FileSystem, MemoryFileSystem, PosixFileSystem};
use karst_testkit::asked::{long, seed};
use reading::Reader;
use samples::Sample;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use watch::Watchdog;

#[global_allocator]
static COUNTING: watch::Counting = watch::Counting;

/// Maximum bytes that a case may allocate at a time, beyond those allocated before it.
const MOST_BYTES: usize = 256 << 20;
/// Time after which a case counts as hung; a case takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(60);
/// Number of violations that are printed before the rest is only counted.
const TOLD: usize = 25;

/// The bytes of a database's files, by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Returns true if keys may silently be missing, because RocksDB too cannot distinguish the damage
/// from a shorter history.
///
/// Logs end where the machine stopped, so under point-in-time recovery all records after the first
/// damage count as never written. The MANIFEST is a log too, whose last record may be torn; a
/// MANIFEST of the bulk loader has its file numbers in that record and is refused without it, so
/// this applies only to one that RocksDB appended to.
fn may_lose(sample: &Sample, file: &str, damage: &Damage) -> bool {
    match FileName::parse(file) {
        Some(FileName::Wal(_)) => true,
        Some(FileName::Manifest(_)) => sample.appended_manifest && damage.looks_torn(),
        _ => false,
    }
}

/// Returns true if the file's content is read; damage to other files has no effect.
fn is_read(file: &str) -> bool {
    !matches!(
        FileName::parse(file),
        None | Some(FileName::InfoLog | FileName::OldInfoLog(_) | FileName::Lock)
    )
}

/// Outcomes of a sweep.
#[derive(Debug, Default)]
struct Tally {
    cases: usize,
    /// Cases in which a call returned an error.
    told: usize,
    broken: Vec<String>,
}

/// Damages every file of `sample` in about `cases` ways each, in the directory `root` of `fs`.
fn sweep(sample: &Sample, fs: &Arc<dyn FileSystem>, root: &Path, cases: usize, seed: u64) -> Tally {
    let env = Env::builder().file_system(fs.clone()).seed(seed).build();
    let reader = Reader::new(env, root.to_owned(), sample);
    let watchdog = Watchdog::start(DEADLINE);
    write_all(fs.as_ref(), root, &sample.files);
    let mut tally = Tally::default();
    reader.read(0, false).map(|errors| assert_eq!(errors, 0, "errors without damage")).unwrap();
    for (name, bytes) in &sample.files {
        let cases = if is_read(name) { cases } else { 3 };
        for damage in damages::of(sample, name, bytes, cases, seed) {
            let case = format!("{}: {name} ({} bytes): {damage:?}", sample.name, bytes.len());
            let changed = damage.apply(sample, name);
            for (file, bytes) in &changed {
                put(fs.as_ref(), &root.join(file), bytes.as_deref());
            }
            tally.cases += 1;
            watchdog.begin(&case);
            watch::reset_peak();
            let loses = may_lose(sample, name, &damage);
            let result = catch_unwind(AssertUnwindSafe(|| reader.read(tally.cases, loses)));
            let peak = watch::peak();
            watchdog.end();
            match result {
                Ok(Ok(errors)) => tally.told += usize::from(errors > 0),
                Ok(Err(broken)) => tally.broken.push(format!("{case}: {broken}")),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                    tally.broken.push(format!("{case}: panicked: {}", text.unwrap_or("?")));
                }
            }
            if peak > MOST_BYTES {
                tally.broken.push(format!("{case}: {peak} bytes allocated at a time"));
            }
            let mut expected = sample.files.clone();
            for (file, bytes) in changed {
                match bytes {
                    Some(bytes) => drop(expected.insert(file, bytes)),
                    None => drop(expected.remove(&file)),
                }
            }
            if read_all(fs.as_ref(), root) != expected {
                tally.broken.push(format!("{case}: reading changed the directory"));
            }
            for file in expected.keys().filter(|file| !sample.files.contains_key(*file)) {
                put(fs.as_ref(), &root.join(file), None);
            }
            for (file, bytes) in &sample.files {
                if expected.get(file) != Some(bytes) {
                    put(fs.as_ref(), &root.join(file), Some(bytes));
                }
            }
        }
    }
    tally
}

/// Gives a file these bytes, or removes it.
fn put(fs: &dyn FileSystem, path: &Path, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => fs.create(path).and_then(|mut file| file.append(bytes)).unwrap(),
        None => fs.remove(path).unwrap(),
    }
}

fn write_all(fs: &dyn FileSystem, root: &Path, files: &Files) {
    fs.create_dir(root).unwrap();
    for (name, bytes) in files {
        put(fs, &root.join(name), Some(bytes));
    }
}

/// Returns every file of a directory.
pub(crate) fn read_all(fs: &dyn FileSystem, root: &Path) -> Files {
    let names = fs.list_dir(root).unwrap();
    names.into_iter().map(|name| (name.clone(), fs.read_file(&root.join(name)).unwrap())).collect()
}

/// Sweeps in memory, where thousands of cases take seconds, and a few cases on files of the
/// operating system.
fn check(sample: &Sample, least_told: usize) {
    let memory: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let cases = if long() { 60 } else { 5 };
    let directory = tempfile::tempdir().unwrap();
    let posix: Arc<dyn FileSystem> = Arc::new(PosixFileSystem);
    let tallies = [
        sweep(sample, &memory, Path::new("/db"), cases, 1 + seed()),
        sweep(sample, &posix, &directory.path().join("db"), if long() { 30 } else { 1 }, 2 + seed()),
    ];
    for tally in tallies {
        println!("{}: {} cases, {} gave an error", sample.name, tally.cases, tally.told);
        let count = tally.broken.len();
        let told = tally.broken[..count.min(TOLD)].join("\n");
        assert!(tally.broken.is_empty(), "{count} of {} cases:\n{told}", tally.cases);
        // A sweep without errors has damaged nothing.
        assert!(tally.told * 100 >= tally.cases * least_told, "only {} of {}", tally.told, tally.cases);
    }
}

#[test]
fn a_tree_with_partitioned_metadata() {
    check(
        &samples::loaded(
            "partitioned",
            "format_version=6;index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=128;\
             filter_policy=ribbonfilter:10:-1;compression=kZSTD;checksum=kXXH3",
        ),
        50,
    );
}

#[test]
fn a_tree_whose_footers_have_no_checksum() {
    check(
        &samples::loaded(
            "format_version 5",
            "format_version=5;filter_policy=bloomfilter:10:false;compression=kNoCompression;checksum=kCRC32c;\
             data_block_index_type=kDataBlockBinaryAndHash",
        ),
        50,
    );
}

#[test]
fn blob_files_and_a_log() {
    check(&samples::blobs_and_log(), 30);
}
