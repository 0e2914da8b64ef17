//! Random histories of writes, ingestions, flushes, compactions, snapshots and reopenings, compared
//! with a map.

use super::*;
use karst_engine::{CompactRangeOptions, FlushOptions, IngestExternalFileOptions, Snapshot, WriteOptions};
use karst_testkit::random::Random;

/// Keys and values that the database must have.
#[derive(Clone, Default)]
struct Model(Entries);

impl Model {
    fn merge(&mut self, key: &str, operand: &str) {
        let value = self.0.entry(key.to_owned()).or_default();
        if !value.is_empty() {
            value.push(',');
        }
        value.push_str(operand);
    }

    fn delete_range(&mut self, from: &str, to: &str) {
        self.0.retain(|key, _| !(from <= key.as_str() && key.as_str() < to));
    }
}

const KEYS: u64 = 40;

fn key(number: u64) -> String {
    format!("k{number:02}")
}

struct History {
    random: Random,
    how: Options,
    db: Db,
    model: Model,
    snapshots: Vec<(Snapshot, Entries)>,
    files: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let styles = ["kCompactionStyleLevel", "kCompactionStyleLevel", "kCompactionStyleUniversal"];
        let style = styles[random.index(3)];
        let text = format!(
            "compaction_style={style};level0_file_num_compaction_trigger=3;target_file_size_base=2K;max_bytes_for_level_base=4K;\
             level_compaction_dynamic_level_bytes={};max_open_files={};unordered_write={};filter_policy=bloomfilter:10;block_size=128",
            random.one_in(2),
            if random.one_in(2) { 4 } else { -1 },
            random.one_in(3)
        );
        let operator = karst_engine::merge_operator::from_name("stringappend").unwrap();
        let how = in_memory().merge_operator(None, operator).set_all(&text).unwrap();
        let db = Db::open("/db", &how).unwrap();
        let (model, snapshots) = (Model::default(), Vec::new());
        Self { random, how, db, model, snapshots, files: 0 }
    }

    /// Writes a file, applies it to the model and returns its path.
    fn file(&mut self) -> String {
        self.files += 1;
        let (path, id) = (format!("/{}.sst", self.files), self.files);
        let mut writer = SstFileWriter::create(&self.how).unwrap();
        writer.open(&path).unwrap();
        let ranges = if self.random.one_in(3) { 1 + self.random.below(2) } else { 0 };
        for _ in 0..ranges {
            let from = self.random.below(KEYS);
            let to = from + 1 + self.random.below(6);
            writer.delete_range(key(from), key(to)).unwrap();
            self.model.delete_range(&key(from), &key(to));
        }
        let mut at = self.random.below(KEYS);
        loop {
            let name = key(at);
            match self.random.below(4) {
                0 => {
                    writer.delete(&name).unwrap();
                    self.model.0.remove(&name);
                }
                1 => {
                    writer.merge(&name, format!("m{id}")).unwrap();
                    self.model.merge(&name, &format!("m{id}"));
                }
                _ => {
                    writer.put(&name, format!("v{id}")).unwrap();
                    self.model.0.insert(name, format!("v{id}"));
                }
            }
            at += 1 + self.random.below(3);
            if at >= KEYS || self.random.one_in(4) {
                break;
            }
        }
        writer.finish().unwrap();
        path
    }

    fn step(&mut self, number: u64) {
        let name = key(self.random.below(KEYS));
        let value = format!("w{number}");
        match self.random.below(22) {
            0..6 => {
                self.db.put(&name, &value).unwrap();
                self.model.0.insert(name, value);
            }
            6..8 => {
                self.db.delete(&name).unwrap();
                self.model.0.remove(&name);
            }
            8..10 => {
                self.db.merge(&name, &value).unwrap();
                self.model.merge(&name, &value);
            }
            10 => {
                let to = key(self.random.below(KEYS));
                if name < to {
                    let family = self.db.default_column_family().clone();
                    self.db.delete_range_cf(&WriteOptions::new(), &family, &name, &to).unwrap();
                    self.model.delete_range(&name, &to);
                }
            }
            11..15 => {
                let files: Vec<String> = (0..1 + self.random.below(3)).map(|_| self.file()).collect();
                let options = IngestExternalFileOptions {
                    move_files: self.random.one_in(2),
                    verify_checksums_before_ingest: self.random.one_in(2),
                    ..Default::default()
                };
                self.db.ingest_external_file(&options, files).unwrap();
            }
            15..17 => self.db.flush(&FlushOptions::default()).unwrap(),
            17 => self.db.compact_range(&CompactRangeOptions::default(), None, None).unwrap(),
            18..20 => self.snapshots.push((self.db.snapshot(), self.model.0.clone())),
            20 if !self.snapshots.is_empty() => {
                let index = self.random.index(self.snapshots.len());
                drop(self.snapshots.swap_remove(index));
            }
            _ => {
                self.snapshots.clear();
                self.db.close().unwrap();
                self.db = Db::open("/db", &self.how).unwrap();
            }
        }
    }

    fn check(&mut self) {
        assert_eq!(all(&self.db), self.model.0);
        let keys: Vec<String> = (0..KEYS).map(key).collect();
        for (name, found) in keys.iter().zip(self.db.multi_get(&keys)) {
            let found = found.unwrap();
            assert_eq!(found.as_deref(), self.model.0.get(name).map(String::as_bytes), "{name}");
            assert_eq!(self.db.get(name).unwrap().as_deref(), found.as_deref(), "{name}");
        }
        for (snapshot, expected) in &self.snapshots {
            let options = ReadOptions { snapshot: Some(snapshot.clone()), ..ReadOptions::new() };
            assert_eq!(all_at(&self.db, &options), *expected);
        }
    }
}

#[test]
fn random_histories_with_ingestions() {
    let rounds: u64 = std::env::var("KARST_INGEST_ROUNDS").map_or(40, |text| text.parse().unwrap());
    let first: u64 = std::env::var("KARST_INGEST_SEED").map_or(1, |text| text.parse().unwrap());
    for seed in first..first + rounds {
        let one = std::panic::AssertUnwindSafe(|| {
            let mut history = History::new(seed);
            for number in 0..150 {
                history.step(number);
                if number % 5 == 0 {
                    history.check();
                }
            }
            history.check();
        });
        if let Err(panic) = std::panic::catch_unwind(one) {
            eprintln!("to replay it: KARST_INGEST_SEED={seed} KARST_INGEST_ROUNDS=1");
            std::panic::resume_unwind(panic);
        }
    }
}
