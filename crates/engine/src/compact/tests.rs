//! Tests of whole compactions of databases on disk: reads return equal results afterwards, old
//! files are gone, and a job that fails or is cancelled changes nothing.

use super::job::{CompactionJob, CompactionSummary, JobSurroundings};
use super::progress::Progress;
use crate::ingest::BulkLoader;
use crate::versions::{ManifestOptions, ObsoleteFiles, Start, Versions};
use crate::{Db, Options};
use karst_base::error::{ErrorKind, Result};
use karst_base::snapshot::Readers;
use karst_format::ids::{ColumnFamilyId, FileNumber, Level};
use karst_format::key::{SeqNo, ValueType};
use karst_format::options::choice::{CompactionStyle, Compression};
use karst_format::version_edit::Temperature;
use karst_io::{Env, Priority};
use karst_lsm::pick::{Compaction, CompactionInput, CompactionReason, CompactionWork};
use karst_lsm::{ColumnFamilyState, VersionSet};
use karst_storage::column_family::{Families, Family};
use karst_storage::table::writer::Identity;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A database opened for jobs only.
struct Workshop {
    family: Arc<Family>,
    surroundings: Arc<JobSurroundings>,
}

impl Workshop {
    fn open(path: &Path, options: &Options) -> Workshop {
        let opened = crate::open::read_only(path, options, None).unwrap().read;
        let family = opened.families.get(ColumnFamilyId::DEFAULT).unwrap();
        let version = family.superversion().version().clone();
        let numbers = std::fs::read_dir(path).unwrap().filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.trim_start_matches(|c: char| !c.is_ascii_digit()).split('.').next()?.parse::<u64>().ok()
        });
        let next_file = FileNumber(numbers.max().unwrap() + 1);
        let next_epoch = version.all_files().map(|(_, f)| f.epoch_number).max().unwrap_or(0) + 1;
        let state = ColumnFamilyState {
            id: family.id(),
            name: "default".into(),
            log_number: FileNumber(0),
            version,
            next_epoch_number: next_epoch,
            full_history_ts_low: None,
            persist_user_defined_timestamps: true,
        };
        let set = VersionSet {
            db_id: None,
            next_file_number: next_file,
            last_sequence: opened.last_seq,
            prev_log_number: FileNumber(0),
            min_log_number_to_keep: FileNumber(0),
            max_column_family: ColumnFamilyId(0),
            wals: BTreeMap::new(),
            last_compacted_manifest_file_size: None,
            column_families: [(family.id(), state)].into(),
            unopened: BTreeMap::new(),
        };
        let env = opened.env.clone();
        let lock = env.fs().lock(&path.join("LOCK")).unwrap();
        let shared = opened.shared.clone();
        let obsolete = ObsoleteFiles::new(
            shared,
            path.to_owned(),
            path.to_owned(),
            Arc::new(karst_commit::wal::retired::RetiredLogs::new(
                &karst_base::options::DbOptions::default(),
                path,
            )),
            (lock, Default::default()),
        );
        let identity = Arc::new(Identity {
            db_id: opened.db_id.clone().unwrap(),
            session_id: "T".repeat(20),
            host_id: "".into(),
        });
        let versions = Versions::new(Start {
            path: path.to_owned(),
            options: ManifestOptions {
                max_file_bytes: 1 << 30,
                growth_percent: 500,
                reserve_bytes: 0,
                fsync: false,
                writes_db_id: true,
                tracks_wals: false,
                allow_ingest_behind: false,
                verifies_on_close: false,
            },
            identity: identity.clone(),
            set,
            families: Arc::new(Families::new(vec![family.clone()])),
            obsolete,
            shared: opened.shared.clone(),
            next_file,
            logs: Default::default(),
            manifest: (FileNumber(1), 0),
        });
        let surroundings = Arc::new(JobSurroundings {
            versions,
            options: opened.db_options.clone(),
            identity,
            limiter: None,
        });
        Workshop { family, surroundings }
    }

    /// Closes the database; returns once the last file has been removed, which is when the lock is
    /// released.
    fn close(self, path: &Path) {
        self.surroundings.versions.close();
        karst_io::block_on(&Env::posix(), self.surroundings.versions.obsolete().close());
        drop(self);
        while Env::posix().fs().lock(&path.join("LOCK")).is_err() {
            std::thread::yield_now();
        }
    }

    /// Returns a compaction of all files of these levels into `output`.
    fn compaction(&self, levels: &[u8], output: u8, bottommost: bool) -> Compaction {
        let version = self.family.superversion().version().clone();
        let inputs: Vec<CompactionInput> = levels
            .iter()
            .map(|level| CompactionInput {
                level: Level(*level),
                files: version.files(Level(*level)).to_vec(),
            })
            .filter(|input| !input.files.is_empty())
            .collect();
        let files = || inputs.iter().flat_map(|input| &input.files);
        Compaction {
            output_level: Level(output),
            output_path_id: 0,
            work: CompactionWork::Merge,
            reason: CompactionReason::ManualCompaction,
            score: -1.0,
            target_file_size: 20_000,
            max_output_file_size: 20_000,
            size_includes_tail: false,
            max_compaction_bytes: u64::MAX / 2,
            max_subcompactions: 3,
            grandparents: version.files(Level(output + 1)).to_vec(),
            bottommost,
            full: false,
            smallest_user_key: files().map(|f| f.smallest_user_key()).min().unwrap().into(),
            largest_user_key: files().map(|f| f.largest_user_key()).max().unwrap().into(),
            compression: Compression::None,
            compression_options: Default::default(),
            output_temperature: Temperature::Unknown,
            blob_garbage_collection_cutoff: FileNumber(0),
            output_split_key: None,
            next_cursor: None,
            ttl_cuts: Vec::new(),
            style: CompactionStyle::Level,
            inputs,
            version,
        }
    }

    fn run(
        &self,
        compaction: Compaction,
        snapshots: &[u64],
        progress: Arc<Progress>,
    ) -> Result<CompactionSummary> {
        let job = CompactionJob {
            creations: None,
            pre_commit: None,
            surroundings: self.surroundings.clone(),
            family: self.family.clone(),
            compaction: Arc::new(compaction),
            readers: Readers {
                snapshots: snapshots.iter().map(|s| SeqNo(*s)).collect(),
                ..Readers::default()
            },
            logs: None,
            progress,
            priority: Priority::Low,
        };
        karst_io::block_on(&Env::posix(), job.run())
    }
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Builds a database with one deep level and several runs above it: small and large values,
/// deletions, merges, range deletions.
fn build(path: &Path, options: &Options) -> u64 {
    let mut loader = BulkLoader::create(path, options).unwrap();
    let cf = ColumnFamilyId::DEFAULT;
    let mut state = 12345u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for (level, count) in [(6usize, 4000), (3, 2000), (0, 700), (0, 700)] {
        for _ in 0..count {
            let k = random(3000);
            match random(20) {
                0..3 => loader.delete(&key(k)).unwrap(),
                3..6 => loader.merge(&key(k), format!("m{}", random(100)).as_bytes()).unwrap(),
                6 if random(5) == 0 => loader.delete_range(&key(k), &key(k + random(60))).unwrap(),
                _ => {
                    let length = if random(4) == 0 { 300 } else { 30 };
                    loader.put(&key(k), &vec![b'a' + (random(26) as u8); length]).unwrap();
                }
            }
        }
        loader.write(cf, ValueType::Value, &key(9000 + level as u64), b"mark").unwrap();
        loader.seal(level).unwrap();
    }
    loader.finish().unwrap();
    state
}

fn contents(path: &Path, options: &Options) -> Vec<(Vec<u8>, Vec<u8>)> {
    let db = Db::open_read_only(path, options).unwrap();
    let mut iter = db.iter(&crate::ReadOptions::new()).unwrap();
    let mut all = Vec::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        all.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next().unwrap();
    }
    for (key, value) in all.iter().step_by(7) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{}", key.escape_ascii());
    }
    all
}

fn options(text: &str) -> Options {
    let options = Options::new().set_all(text).unwrap();
    options.set_all("merge_operator=stringappend;target_file_size_base=16K").unwrap()
}

fn files_on_disk(path: &Path, suffix: &str) -> usize {
    let names =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(suffix)).count()
}

fn check(text: &str, change: impl Fn(&mut Compaction)) {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path(), options(text));
    build(path, &options);
    let before = contents(path, &options);
    assert!(before.len() > 1000);
    for (levels, output, bottommost) in
        [(&[0u8][..], 1u8, false), (&[1, 3], 4, false), (&[0, 1, 3, 4, 6], 6, true)]
    {
        let workshop = Workshop::open(path, &options);
        let mut compaction = workshop.compaction(levels, output, bottommost);
        change(&mut compaction);
        let progress = Arc::new(Progress::default());
        let summary = workshop.run(compaction, &[], progress.clone()).unwrap();
        assert!(summary.counts.input_records > 500 && !summary.tables.is_empty(), "{summary:?}");
        assert_eq!(progress.part_done(), 1.0);
        let version = workshop.family.superversion().version().clone();
        assert_eq!(version.files(Level(output)).len(), summary.tables.len());
        assert!(!bottommost || version.all_files().all(|(_, file)| file.largest_seq == SeqNo(0)));
        drop(version);
        workshop.close(path);
        assert_eq!(contents(path, &options), before, "after compacting {levels:?} to {output}");
    }
    let db = Db::open_read_only(path, &options).unwrap();
    let files = db.live_files();
    assert!(files.iter().all(|file| file.level == Some(6) || file.level.is_none()));
}

#[test]
fn everything_reads_the_same() {
    check("compression=kNoCompression", |_| {});
}

#[test]
fn everything_reads_the_same_in_one_part_with_partitions_and_a_limit_on_open_files() {
    let text = "max_open_files=12;block_based_table_factory={index_type=kTwoLevelIndexSearch;filter_policy=bloomfilter:10:false;partition_filters=true}";
    check(text, |compaction| {
        compaction.max_subcompactions = 1;
        compaction.compression = Compression::Lz4;
    });
}

#[test]
fn a_compaction_is_cut_into_as_many_parts_as_are_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let options = options("");
    build(directory.path(), &options);
    let workshop = Workshop::open(directory.path(), &options);
    let compaction = workshop.compaction(&[0, 3, 6], 6, true);
    let comparator = &workshop.family.settings().comparator;
    for parts in 1..4 {
        let cuts = super::inputs::boundaries(comparator, &compaction.inputs, parts);
        assert_eq!(cuts.len() + 1, parts as usize, "{cuts:?}");
        assert!(
            cuts.is_sorted_by(|a, b| a < b) && cuts.iter().all(|cut| *cut > compaction.smallest_user_key)
        );
    }
}

#[test]
fn blobs_stay_or_move_and_garbage_is_counted() {
    let text = "enable_blob_files=true;min_blob_size=100;blob_file_size=30K";
    check(text, |_| {});
    check(text, |compaction| compaction.blob_garbage_collection_cutoff = FileNumber(u64::MAX));
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path(), options(text));
    build(path, &options);
    let workshop = Workshop::open(path, &options);
    let old_blobs: Vec<_> = workshop.family.superversion().version().blob_files().keys().copied().collect();
    let mut compaction = workshop.compaction(&[0, 3, 6], 6, true);
    compaction.blob_garbage_collection_cutoff = FileNumber(u64::MAX);
    let summary = workshop.run(compaction, &[], Arc::default()).unwrap();
    assert!(summary.counts.blobs_relocated > 100 && summary.written_bytes.1 > 30_000, "{summary:?}");
    let version = workshop.family.superversion().version().clone();
    assert!(old_blobs.iter().all(|number| !version.blob_files().contains_key(number)), "all emptied");
    assert!(version.blob_files().values().all(|file| file.garbage_count == 0));
    let stored: u64 = version.blob_files().values().map(|file| file.file.total_count).sum();
    assert!(stored >= summary.counts.blobs_relocated, "results of merges may be large too");
}

#[test]
fn a_snapshot_keeps_what_it_sees() {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path(), options(""));
    let mut loader = BulkLoader::create(path, &options).unwrap();
    for round in 0..3 {
        for i in 0..500 {
            loader.put(&key(i), format!("{round}").as_bytes()).unwrap();
        }
        loader.seal(0).unwrap();
    }
    loader.delete_range(&key(0), &key(600)).unwrap();
    loader.finish().unwrap();
    let workshop = Workshop::open(path, &options);
    let summary = workshop.run(workshop.compaction(&[0], 6, true), &[500, 1000], Arc::default()).unwrap();
    assert_eq!((summary.counts.output_records, summary.counts.dropped_range_del), (1000, 500));
    workshop.close(path);
    assert_eq!(contents(path, &options), []);
}

#[test]
fn a_cancelled_or_failed_job_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path(), options("compression=kNoCompression"));
    build(path, &options);
    let before = contents(path, &options);
    let tables = files_on_disk(path, ".sst");
    let workshop = Workshop::open(path, &options);
    let progress = Arc::new(Progress::default());
    progress.cancel();
    let error = workshop.run(workshop.compaction(&[0, 3, 6], 6, true), &[], progress).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incomplete);
    // Damages the middle of a table.
    let victim = workshop.family.superversion().version().files(Level(6))[1].number;
    let victim_path = path.join(format!("{:06}.sst", victim.0));
    let whole = std::fs::read(&victim_path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 3] ^= 0x10;
    std::fs::write(&victim_path, &damaged).unwrap();
    let error = workshop.run(workshop.compaction(&[0, 3, 6], 6, true), &[], Arc::default()).unwrap_err();
    assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains(".sst"), "{error}");
    std::fs::write(&victim_path, &whole).unwrap();
    workshop.close(path);
    assert_eq!(files_on_disk(path, ".sst"), tables, "what was begun has been removed");
    assert_eq!(contents(path, &options), before);
}

#[test]
fn moves_and_deletions_are_edits_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (path, options) = (directory.path(), options(""));
    build(path, &options);
    let before = contents(path, &options);
    let workshop = Workshop::open(path, &options);
    let mut compaction = workshop.compaction(&[3], 4, false);
    compaction.work = CompactionWork::Move;
    let moved: Vec<_> = compaction.inputs[0].files.iter().map(|file| file.number).collect();
    workshop.run(compaction, &[], Arc::default()).unwrap();
    let version = workshop.family.superversion().version().clone();
    assert!(version.files(Level(3)).is_empty());
    assert_eq!(version.files(Level(4)).iter().map(|file| file.number).collect::<Vec<_>>(), moved);
    drop(version);
    workshop.close(path);
    assert_eq!(contents(path, &options), before);
    let workshop = Workshop::open(path, &options);
    let mut compaction = workshop.compaction(&[0, 4, 6], 6, false);
    compaction.work = CompactionWork::Delete;
    workshop.run(compaction, &[], Arc::default()).unwrap();
    workshop.close(path);
    assert_eq!(contents(path, &options), []);
}
