//! A family whose tables lie in any levels, with or without automatic compactions, clipped to
//! ranges again and again, beside snapshots, while the power fails. A clip removes all entries
//! outside of its range, or none; deleted entries stay deleted; each value in a blob file whose
//! table was removed counts as garbage.

use crate::blob_garbage::check_blob_garbage;
use crate::{each_seed, torn_manifest};
use karst_engine::{
    ColumnFamilyMetaData, CompactFilesOptions, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options,
    ReadOptions, Result, Snapshot, WaitForCompactOptions, WriteBatch, WriteOptions,
};
use karst_io::{Crash, Env, Simulation};
use karst_testkit::random::Random;
use std::collections::BTreeMap;

const KEYS: u64 = 30;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:02}").into_bytes()
}

/// Draws two keys in order, which may be equal.
fn range(random: &mut Random) -> [Vec<u8>; 2] {
    let mut ends = [(); 2].map(|()| key(random.below(KEYS + 1)));
    ends.sort();
    ends
}

fn options(env: &Env, random: &mut Random) -> Options {
    let mut text = String::from(
        "create_if_missing=true;stats_dump_period_sec=0;ttl=0;periodic_compaction_seconds=0;num_levels=5;\
        write_buffer_size=4000;max_bytes_for_level_base=3000;compression=kNoCompression;min_blob_size=100;\
        enable_blob_garbage_collection=true;",
    );
    let mut set = |name: &str, values: &[&str]| {
        text += &format!("{name}={};", values[random.index(values.len())]);
    };
    set("disable_auto_compactions", &["true", "true", "false"]);
    set("compaction_style", &["kCompactionStyleLevel", "kCompactionStyleLevel", "kCompactionStyleUniversal"]);
    set("level_compaction_dynamic_level_bytes", &["true", "false"]);
    set("level0_file_num_compaction_trigger", &["2", "4"]);
    set("target_file_size_base", &["300", "1000"]);
    set("blob_file_size", &["500", "2000"]);
    set("enable_blob_files", &["false", "true", "true"]);
    set("blob_garbage_collection_age_cutoff", &["0.25", "1.0"]);
    set("block_size", &["64", "300"]);
    Options::new().set_all(&text).unwrap_or_else(|e| panic!("{text}: {e}")).env(env.clone())
}

/// Compares a state of the database with the model, in all ways of reading.
async fn same(db: &Db, snapshot: Option<&Snapshot>, expected: &Entries) -> Result<bool> {
    let options = ReadOptions { snapshot: snapshot.cloned(), ..ReadOptions::default() };
    let mut iter = db.iter(&options)?;
    let mut found = Vec::new();
    iter.seek_to_first_async().await?;
    while iter.valid() {
        found.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next_async().await?;
    }
    let mut backward = Vec::new();
    iter.seek_to_last_async().await?;
    while iter.valid() {
        backward.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev_async().await?;
    }
    backward.reverse();
    assert_eq!(found, backward, "forward and backward differ");
    let shown: Entries = found.into_iter().collect();
    for number in 0..KEYS {
        let key = key(number);
        let one = db.get_cf_async(&options, db.default_column_family(), &key).await?;
        assert_eq!(one.as_deref(), shown.get(&key).map(Vec::as_slice), "get and scan of {key:?} differ");
    }
    Ok(shown == *expected)
}

fn show(entries: &Entries) -> String {
    let keys = entries.iter().map(|(key, value)| format!("{} ({})", karst_testkit::show(key), value.len()));
    keys.collect::<Vec<_>>().join(" ")
}

fn tables(tree: &ColumnFamilyMetaData) -> Vec<(u64, u32)> {
    let of_levels = tree.levels.iter();
    of_levels.flat_map(|level| level.files.iter().map(|file| (file.number, level.level))).collect()
}

#[derive(Default)]
struct History {
    certain: Entries,
    /// State after the change that is under way.
    under_way: Option<Entries>,
    steps: Vec<String>,
    clips: usize,
    moves: usize,
    /// The power has failed since the database was last open.
    power_failed: bool,
}

impl History {
    fn done(&mut self) {
        self.certain = self.under_way.take().expect("it was begun");
    }

    /// Writes puts, deletions, or the deletion of a range; synced.
    async fn write(&mut self, db: &Db, random: &mut Random) -> Result<()> {
        let (mut batch, mut after) = (WriteBatch::new(), self.certain.clone());
        let [begin, end] = range(random);
        match random.below(5) {
            0 if begin < end => {
                batch.delete_range(&begin, &end)?;
                after.retain(|key, _| *key < begin || *key >= end);
            }
            kind => {
                let first = random.below(KEYS);
                for number in first..(first + 1 + random.below(4)).min(KEYS) {
                    if kind < 3 {
                        batch.delete(key(number))?;
                        after.remove(&key(number));
                    } else {
                        let len = [10, 200][random.index(2)];
                        let value = random.bytes(len);
                        batch.put(key(number), &value)?;
                        after.insert(key(number), value);
                    }
                }
            }
        }
        self.steps.push(format!("write; {}", show(&after)));
        self.under_way = Some(after);
        db.write_async(&WriteOptions::synced(), &batch).await?;
        self.done();
        Ok(())
    }

    /// Compacts one table to a level below, by a trivial move if possible.
    async fn sink(&mut self, db: &Db, random: &mut Random) -> Result<()> {
        let family = db.default_column_family();
        let tree = db.column_family_metadata(family)?;
        let tables = tables(&tree);
        if tables.is_empty() {
            return Ok(());
        }
        let (number, level) = tables[random.index(tables.len())];
        let first = level.max(1) as usize;
        let to = first + random.index(tree.levels.len() - first);
        self.steps.push(format!("table {number} from level {level} to {to}"));
        let how = CompactFilesOptions { allow_trivial_move: true, ..CompactFilesOptions::default() };
        match db.compact_files_async(&how, family, &[number], to).await {
            Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::TryAgain) => Ok(()),
            sunk => {
                self.moves += 1;
                sunk.map(drop)
            }
        }
    }

    async fn clip(&mut self, db: &Db, is_alone: bool, random: &mut Random) -> Result<()> {
        let [begin, end] = range(random);
        let after = self.certain.iter().filter(|(key, _)| **key >= begin && **key < end);
        let after: Entries = after.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.steps.push(format!(
            "clip to {} .. {}; {}",
            karst_testkit::show(&begin),
            karst_testkit::show(&end),
            show(&after)
        ));
        self.under_way = Some(after);
        let family = db.default_column_family();
        db.clip_column_family_async(family, &begin, &end).await?;
        self.done();
        self.clips += 1;
        if is_alone {
            let tree = db.column_family_metadata(family)?;
            // Only deletions may still lie outside, because one compaction of a clip does not
            // rewrite the output of another.
            for file in tree.levels.iter().flat_map(|level| &level.files) {
                let is_outside = file.largest_key < begin || file.smallest_key >= end;
                assert!(
                    !is_outside || file.num_entries == file.num_deletions,
                    "not clipped: {file:?}\n{}",
                    self.told()
                );
            }
        }
        Ok(())
    }

    fn told(&self) -> String {
        self.steps.join("\n")
    }

    async fn live(&mut self, env: &Env, options: &Options, random: &mut Random) -> Result<()> {
        let (fs, opening) = (env.fs().as_ref(), || Db::open("/db", options));
        let db = torn_manifest::open(fs, "/db", self.power_failed, opening)?;
        self.power_failed = false;
        self.steps.push("opened".into());
        if !same(&db, None, &self.certain).await? {
            // The change stays under way until it was compared, because the power may fail while
            // the entries are read, and then the next life finds the change too.
            let other = self.under_way.clone().expect("what is there was never written");
            assert!(same(&db, None, &other).await?, "what is there was never written\n{}", self.told());
            self.certain = other;
        }
        self.under_way = None;
        let family = db.default_column_family();
        let mut snapshots: Vec<(Snapshot, Entries)> = Vec::new();
        for _ in 0..40 {
            match random.below(20) {
                0..7 => self.write(&db, random).await?,
                7..11 => {
                    self.steps.push("flush".into());
                    db.flush_async(&FlushOptions::default()).await?;
                }
                11..15 => self.sink(&db, random).await?,
                15 => {
                    let [begin, end] = range(random);
                    self.steps.push("compact_range".into());
                    let how = CompactRangeOptions::default();
                    db.compact_range_async(&how, Some(&begin), Some(&end)).await?;
                }
                16..18 => self.clip(&db, snapshots.is_empty(), random).await?,
                18 if snapshots.len() < 2 && random.one_in(3) => {
                    self.steps.push("snapshot".into());
                    snapshots.push((db.snapshot(), self.certain.clone()));
                }
                _ => snapshots.clear(),
            }
            assert!(same(&db, None, &self.certain).await?, "not what was written\n{}", self.told());
            for (snapshot, entries) in &snapshots {
                assert!(same(&db, Some(snapshot), entries).await?, "not what it was\n{}", self.told());
            }
            if random.one_in(3) {
                check_blob_garbage(&db, family).await?;
            }
        }
        drop(snapshots);
        db.wait_for_compact_async(&WaitForCompactOptions::default()).await?;
        check_blob_garbage(&db, family).await?;
        db.close()
    }
}

/// Returns the numbers of clips, of tables moved to other levels, and of crashes.
fn run(seed: u64) -> [usize; 3] {
    let mut random = Random::new(seed);
    let (mut history, mut simulation, mut crashes) = (History::default(), Simulation::new(seed), 0);
    for life in 0..4 {
        if life < 3 {
            simulation.fs().lose_power_after(random.below(600));
        }
        let env = simulation.env().clone();
        let options = options(&env, &mut Random::new(seed));
        match simulation.run(history.live(&env, &options, &mut random)) {
            Some(lived) => lived.unwrap_or_else(|e| panic!("{e}\n{}", history.told())),
            None => crashes += 1,
        }
        drop((options, env));
        let crash = if random.one_in(3) { Crash::Process } else { Crash::Power };
        history.power_failed |= crash == Crash::Power;
        simulation = simulation.restart(crash, random.next_u64());
    }
    [history.clips, history.moves, crashes]
}

#[test]
fn what_is_clipped_away_stays_away_whatever_the_tree_is() {
    let mut total = [0; 3];
    each_seed("what_is_clipped_away_stays_away_whatever_the_tree_is", 12, 600, |seed| {
        total.iter_mut().zip(run(seed)).for_each(|(total, count)| *total += count);
    });
    let [clips, moves, crashes] = total;
    println!("{clips} clips, {moves} tables to other levels, {crashes} crashes");
    let one_seed = crate::number("KARST_SEED").is_some() || crate::number("KARST_SEEDS").is_some();
    assert!(one_seed || (clips > 30 && moves > 30 && crashes > 8), "nothing was tried: {total:?}");
}
