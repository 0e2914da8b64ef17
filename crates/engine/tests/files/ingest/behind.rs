//! Files that are ingested behind all others, into the last level, which is kept free for them:
//! their entries are older than all others. First examples, then random histories compared with a
//! map.

use super::*;
use karst_engine::{
    BottommostLevelCompaction, CompactRangeOptions, ErrorKind, FlushOptions, IngestExternalFileOptions,
    Result, Snapshot, WriteOptions,
};
use karst_testkit::asked::seeds;
use karst_testkit::random::Random;

const BEHIND: &str = "cf_allow_ingest_behind=true";

fn keeping_the_last_level(more: &str) -> Options {
    in_memory().set_all(&format!("{BEHIND};{more}")).unwrap()
}

/// Ingests `/file.sst` behind all other entries.
fn ingest_behind(db: &Db) -> Result<()> {
    let options = IngestExternalFileOptions { ingest_behind: true, ..Default::default() };
    db.ingest_external_file(&options, ["/file.sst"])
}

/// Returns all entries that a scan in one direction shows, including duplicates.
fn scan(db: &Db, options: &ReadOptions, forward: bool) -> Vec<(String, String)> {
    let mut iter = db.iter(options).unwrap();
    let mut found = Vec::new();
    if forward {
        iter.seek_to_first().unwrap()
    } else {
        iter.seek_to_last().unwrap()
    }
    while iter.valid() {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        found.push((text(iter.key()), text(iter.value())));
        if forward { iter.next().unwrap() } else { iter.prev().unwrap() }
    }
    if !forward {
        found.reverse();
    }
    found
}

/// Asserts that scans in both directions and gets find the expected entries.
fn check(db: &Db, options: &ReadOptions, expected: &Entries, what: &str) {
    let pairs: Vec<(String, String)> = expected.clone().into_iter().collect();
    assert_eq!(scan(db, options, true), pairs, "forward, {what}");
    assert_eq!(scan(db, options, false), pairs, "backward, {what}");
    for (key, value) in expected {
        let found = db.get_opt(options, key).unwrap();
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{key}, {what}");
    }
}

#[test]
fn changing_levels_leaves_the_last_level_alone() {
    for style in ["kCompactionStyleLevel", "kCompactionStyleUniversal"] {
        let how = keeping_the_last_level(&format!("compaction_style={style}"));
        let db = Db::open("/db", &how).unwrap();
        write_file(&how, "/file.sst", &[("key", "first")]);
        ingest_behind(&db).unwrap();
        assert_eq!(levels(&db), [6]);
        let refit = CompactRangeOptions { change_level: true, ..Default::default() };
        db.compact_range(&refit, None, None).unwrap();
        db.compact_range(&CompactRangeOptions { target_level: Some(1), ..refit.clone() }, None, None)
            .unwrap();
        assert_eq!(levels(&db), [6], "{style}");
        write_file(&how, "/file.sst", &[("key", "second")]);
        let error = ingest_behind(&db).unwrap_err();
        assert!(error.to_string().contains("the last level has tables"), "{error}");
        check(&db, &ReadOptions::new(), &entries(&[("key", "first")]), style);
        // Written entries are compacted into the level above it, and a change of level cannot bring
        // them there.
        db.put("key", "written").unwrap();
        db.flush(&FlushOptions::default()).unwrap();
        let forced = BottommostLevelCompaction::Force;
        let rewrite = CompactRangeOptions { bottommost_level_compaction: forced, ..Default::default() };
        db.compact_range(&rewrite, None, None).unwrap();
        assert_eq!(levels(&db), [6, 5], "{style}");
        let to_last = CompactRangeOptions { target_level: Some(6), ..refit };
        let error = db.compact_range(&to_last, None, None).unwrap_err();
        assert!(error.to_string().contains("is reserved"), "{error}");
        check(&db, &ReadOptions::new(), &entries(&[("key", "written")]), style);
    }
}

#[test]
fn compactions_of_their_own_leave_the_last_level_alone() {
    for more in [
        "",
        "level_compaction_dynamic_level_bytes=false;num_levels=3",
        "compaction_style=kCompactionStyleUniversal",
    ] {
        let how = keeping_the_last_level(&format!("level0_file_num_compaction_trigger=2;{more}"));
        let db = Db::open("/db", &how).unwrap();
        write_file(&how, "/file.sst", &[("a", "behind"), ("m", "behind"), ("z", "behind")]);
        ingest_behind(&db).unwrap();
        let behind = db.live_files();
        for round in 0..12 {
            db.put("m", format!("{round}")).unwrap();
            db.flush(&FlushOptions::default()).unwrap();
        }
        db.compact_range(&CompactRangeOptions::default(), None, None).unwrap();
        assert!(db.live_files().iter().any(|file| file.name == behind[0].name), "{more}");
        let last = behind[0].level;
        assert_eq!(db.live_files().iter().filter(|file| file.level == last).count(), 1, "{more}");
        check(&db, &ReadOptions::new(), &entries(&[("a", "behind"), ("m", "11"), ("z", "behind")]), more);
    }
}

#[test]
fn nothing_is_ingested_behind_entries_of_number_zero() {
    for deletes in [true, false] {
        let how = keeping_the_last_level("");
        let db = Db::open("/db", &how).unwrap();
        let mut writer = SstFileWriter::create(&how).unwrap();
        writer.open("/new.sst").unwrap();
        if deletes {
            writer.delete("key").unwrap()
        } else {
            writer.put("key", "new").unwrap()
        }
        writer.finish().unwrap();
        let unnumbered = IngestExternalFileOptions { allow_global_seqno: false, ..Default::default() };
        db.ingest_external_file(&unnumbered, ["/new.sst"]).unwrap();
        write_file(&how, "/file.sst", &[("key", "old")]);
        let error = ingest_behind(&db).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("/file.sst: table file "), "{error}");
        let expected = if deletes { Entries::new() } else { entries(&[("key", "new")]) };
        check(&db, &ReadOptions::new(), &expected, "nothing came");
        // Other keys are not affected.
        write_file(&how, "/file.sst", &[("z", "old")]);
        ingest_behind(&db).unwrap();
        assert_eq!(db.get("z").unwrap().as_deref(), Some(&b"old"[..]));
    }
}

#[test]
fn a_file_that_may_have_a_number_has_one_where_others_may_come_behind_it() {
    let how = keeping_the_last_level("");
    let db = Db::open("/db", &how).unwrap();
    write_file(&how, "/new.sst", &[("key", "new")]);
    let inconsistent = IngestExternalFileOptions { snapshot_consistency: false, ..Default::default() };
    db.ingest_external_file(&inconsistent, ["/new.sst"]).unwrap();
    write_file(&how, "/file.sst", &[("key", "old"), ("other", "old")]);
    ingest_behind(&db).unwrap();
    check(&db, &ReadOptions::new(), &entries(&[("key", "new"), ("other", "old")]), "both came");
}

#[test]
fn numbers_that_became_zero_meanwhile_are_in_the_way() {
    let how = keeping_the_last_level("compaction_style=kCompactionStyleUniversal;num_levels=4");
    let db = Db::open("/db", &how).unwrap();
    write_file(&how, "/file.sst", &[("key", "first")]);
    ingest_behind(&db).unwrap();
    db.put("key", "written").unwrap();
    db.close().unwrap();
    let off = how.clone().set("cf_allow_ingest_behind", "false").unwrap();
    let db = Db::open("/db", &off).unwrap();
    assert!(ingest_behind(&db).unwrap_err().to_string().contains("not reserved"));
    let forced = BottommostLevelCompaction::Force;
    let rewrite = CompactRangeOptions { bottommost_level_compaction: forced, ..Default::default() };
    db.compact_range(&rewrite, None, None).unwrap();
    db.close().unwrap();
    // This level is no longer the last one.
    let more = how.clone().set("num_levels", "7").unwrap();
    let db = Db::open("/db", &more).unwrap();
    let error = ingest_behind(&db).unwrap_err();
    assert!(error.to_string().contains("sequence number 0"), "{error}");
    check(&db, &ReadOptions::new(), &entries(&[("key", "written")]), "more levels");
}

#[test]
fn keys_with_timestamps_are_not_ingested_behind() {
    let how = keeping_the_last_level("comparator=leveldb.BytewiseComparator.u64ts");
    let db = Db::open("/db", &how).unwrap();
    let mut writer = SstFileWriter::create(&how).unwrap();
    writer.open("/file.sst").unwrap();
    writer.put_with_ts("key", 9u64.to_le_bytes(), "later").unwrap();
    writer.finish().unwrap();
    assert_eq!(ingest_behind(&db).unwrap_err().kind(), ErrorKind::NotSupported);
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq)]
enum Done {
    Put(String),
    Delete,
    Merge(String),
}

const KEYS: u64 = 30;

fn key(number: u64) -> String {
    format!("k{number:02}")
}

/// Changes of each key, the oldest first.
#[derive(Clone, Default)]
struct Model(BTreeMap<String, Vec<Done>>);

fn value_of(done: &[Done]) -> Option<String> {
    done.iter().fold(None, |value: Option<String>, done| match done {
        Done::Put(put) => Some(put.clone()),
        Done::Delete => None,
        Done::Merge(operand) => Some(value.map_or(operand.clone(), |value| format!("{value},{operand}"))),
    })
}

impl Model {
    fn add(&mut self, key: &str, done: Done) {
        self.0.entry(key.to_owned()).or_default().push(done);
    }

    fn entries(&self) -> Entries {
        self.0.iter().filter_map(|(key, done)| Some((key.clone(), value_of(done)?))).collect()
    }

    /// Adds the changes of a file ingested behind all others. Unless the last level was always kept
    /// free, compactions may have dropped deletions, and may have merged without the file's
    /// operands; `found` shows which of these states a key is in.
    fn add_behind(&mut self, file: &Model, kept_free: bool, found: impl Fn(&str) -> Option<String>) {
        for (key, done) in &file.0 {
            let own = self.0.entry(key.clone()).or_default();
            let with = [&done[..], &own[..]].concat();
            let after_deletion = own.iter().rposition(|done| *done == Done::Delete).map_or(0, |at| at + 1);
            let without_deletions = [&done[..], &own[after_deletion..]].concat();
            let merged = value_of(own).map_or(Done::Delete, Done::Put);
            let mut states = vec![with, without_deletions, vec![merged]];
            if !kept_free {
                let value = found(key);
                states.retain(|state| value_of(state) == value);
            }
            *own =
                states.into_iter().next().unwrap_or_else(|| panic!("{key}: {own:?}, then {done:?} behind"));
        }
    }
}

struct History {
    random: Random,
    how: Options,
    db: Db,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    files: u64,
    behind: bool,
    /// True if the last level has been kept free from the beginning.
    kept_free: bool,
    /// Numbers of files that were ingested behind, and that were refused.
    came: usize,
    refused: usize,
}

fn at(snapshot: &Snapshot) -> ReadOptions {
    ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::new() }
}

fn found(db: &Db, options: &ReadOptions, key: &str) -> Option<String> {
    db.get_opt(options, key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let styles = ["kCompactionStyleLevel", "kCompactionStyleLevel", "kCompactionStyleUniversal"];
        let text = format!(
            "compaction_style={};num_levels={};level0_file_num_compaction_trigger=3;target_file_size_base=1K;max_bytes_for_level_base=2K;\
             level_compaction_dynamic_level_bytes={};block_size=128;compression=kNoCompression",
            styles[random.index(3)],
            3 + random.below(5),
            random.one_in(2),
        );
        let operator = karst_engine::merge_operator::from_name("stringappend").unwrap();
        let how = keeping_the_last_level(&text).merge_operator(None, operator);
        let db = Db::open("/db", &how).unwrap();
        let (model, snapshots) = (Model::default(), Vec::new());
        Self {
            random,
            how,
            db,
            model,
            snapshots,
            files: 0,
            behind: true,
            kept_free: true,
            came: 0,
            refused: 0,
        }
    }

    /// Writes a file and returns its path and its changes.
    fn file(&mut self) -> (String, Model) {
        self.files += 1;
        let (path, id) = (format!("/{}.sst", self.files), self.files);
        let mut model = Model::default();
        let mut writer = SstFileWriter::create(&self.how).unwrap();
        writer.open(&path).unwrap();
        if self.random.one_in(4) {
            let from = self.random.below(KEYS);
            let to = from + 1 + self.random.below(5);
            writer.delete_range(key(from), key(to)).unwrap();
            (from..to.min(KEYS)).for_each(|number| model.add(&key(number), Done::Delete));
        }
        let mut number = self.random.below(KEYS);
        loop {
            let name = key(number);
            let done = match self.random.below(5) {
                0 => Done::Delete,
                1 => Done::Merge(format!("m{id}")),
                _ => Done::Put(format!("v{id}")),
            };
            match &done {
                Done::Put(value) => writer.put(&name, value).unwrap(),
                Done::Delete => writer.delete(&name).unwrap(),
                Done::Merge(operand) => writer.merge(&name, operand).unwrap(),
            }
            model.add(&name, done);
            number += 1 + self.random.below(3);
            if number >= KEYS || self.random.one_in(4) {
                break;
            }
        }
        writer.finish().unwrap();
        (path, model)
    }

    fn ingest(&mut self, options: IngestExternalFileOptions) {
        let (path, file) = self.file();
        let outcome = self.db.ingest_external_file(&options, [&path]);
        if let Err(error) = &outcome {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        }
        if !options.ingest_behind {
            if outcome.is_ok() {
                for (key, done) in file.0 {
                    self.model.0.entry(key).or_default().extend(done);
                }
            }
            return;
        }
        if outcome.is_err() {
            self.refused += 1;
            return;
        }
        assert!(self.behind, "the last level is not kept free");
        self.came += 1;
        let (db, kept_free) = (&self.db, self.kept_free);
        self.model.add_behind(&file, kept_free, |key| found(db, &ReadOptions::new(), key));
        for (snapshot, model) in &mut self.snapshots {
            model.add_behind(&file, kept_free, |key| found(db, &at(snapshot), key));
        }
    }

    fn compact(&mut self) {
        let policies = [
            BottommostLevelCompaction::Skip,
            BottommostLevelCompaction::Force,
            BottommostLevelCompaction::IfHaveCompactionFilter,
        ];
        let change_level = self.random.one_in(2);
        let target = self.random.index(8);
        let options = CompactRangeOptions {
            change_level,
            target_level: (change_level && self.random.one_in(2)).then_some(target),
            bottommost_level_compaction: policies[self.random.index(3)],
            ..Default::default()
        };
        let (from, to) = (key(self.random.below(KEYS)), key(self.random.below(KEYS)));
        let (mut begin, mut end) = (None, None);
        if self.random.one_in(3) && from < to {
            (begin, end) = (Some(from.as_bytes()), Some(to.as_bytes()));
        }
        if let Err(error) = self.db.compact_range(&options, begin, end) {
            assert!(change_level && error.kind() == ErrorKind::InvalidArgument, "{options:?}: {error}");
        }
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db.close().unwrap();
        self.behind = !self.random.one_in(4);
        self.kept_free &= self.behind;
        let levels = (3 + self.random.below(5)).to_string();
        let mut how = self.how.clone().set("cf_allow_ingest_behind", &self.behind.to_string()).unwrap();
        if self.random.one_in(3) {
            how = how.set("num_levels", &levels).unwrap();
        }
        self.db = Db::open("/db", &how).unwrap();
        self.how = how;
    }

    fn step(&mut self, number: u64) {
        let name = key(self.random.below(KEYS));
        let value = format!("w{number}");
        match self.random.below(24) {
            0..5 => {
                self.db.put(&name, &value).unwrap();
                self.model.add(&name, Done::Put(value));
            }
            5..7 => {
                self.db.delete(&name).unwrap();
                self.model.add(&name, Done::Delete);
            }
            7..9 => {
                self.db.merge(&name, &value).unwrap();
                self.model.add(&name, Done::Merge(value));
            }
            9 => {
                let (from, to) = (self.random.below(KEYS), self.random.below(KEYS));
                if from < to {
                    let family = self.db.default_column_family().clone();
                    self.db.delete_range_cf(&WriteOptions::new(), &family, key(from), key(to)).unwrap();
                    (from..to).for_each(|number| self.model.add(&key(number), Done::Delete));
                }
            }
            10..13 => self.ingest(IngestExternalFileOptions { ingest_behind: true, ..Default::default() }),
            13 => self.ingest(IngestExternalFileOptions::default()),
            14 => self.ingest(IngestExternalFileOptions { allow_global_seqno: false, ..Default::default() }),
            15 => {
                let snapshot_consistency = !self.snapshots.is_empty();
                self.ingest(IngestExternalFileOptions { snapshot_consistency, ..Default::default() });
            }
            16..18 => self.db.flush(&FlushOptions::default()).unwrap(),
            18..20 => self.compact(),
            20..22 => self.snapshots.push((self.db.snapshot(), self.model.clone())),
            22 if !self.snapshots.is_empty() => {
                let index = self.random.index(self.snapshots.len());
                drop(self.snapshots.swap_remove(index));
            }
            _ => self.reopen(),
        }
    }

    fn check(&self, what: &str) {
        check(&self.db, &ReadOptions::new(), &self.model.entries(), what);
        let keys: Vec<String> = (0..KEYS).map(key).collect();
        let expected = self.model.entries();
        for (name, found) in keys.iter().zip(self.db.multi_get(&keys)) {
            let found = found.unwrap();
            assert_eq!(found.as_deref(), expected.get(name).map(String::as_bytes), "{name}, {what}");
            assert_eq!(self.db.get(name).unwrap().as_deref(), found.as_deref(), "{name}, {what}");
        }
        for (snapshot, model) in &self.snapshots {
            check(&self.db, &at(snapshot), &model.entries(), &format!("in a snapshot, {what}"));
        }
    }
}

#[test]
fn random_histories_with_files_behind() {
    let (mut came, mut refused) = (0, 0);
    for seed in seeds(10, 400) {
        let mut history = History::new(seed);
        for number in 0..120 {
            history.step(number);
            history.check(&format!("KARST_SEED={seed}, after step {number}"));
        }
        came += history.came;
        refused += history.refused;
    }
    println!("{came} files came behind all others, {refused} were refused");
    assert!(came > 0 && refused > 0);
}
