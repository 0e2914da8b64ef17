//! A database that begins as a bulk load, and then ingests files in front of its entries and behind
//! them, beside writes, while the power fails: acknowledged changes survive, the one under way
//! happened wholly or not at all. An unfinished load leaves no database.

use crate::{each_seed, torn_manifest};
use karst_engine::{
    BulkLoader, Db, ErrorKind, FlushOptions, IngestExternalFileOptions, Options, ReadOptions, Result,
    Snapshot, SstFileWriter, WriteBatch, WriteOptions,
};
use karst_io::{Crash, Env, FileSystem, Simulation};
use karst_testkit::random::Random;
use std::collections::BTreeMap;
use std::path::Path;

const KEYS: u64 = 40;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:02}").into_bytes()
}

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>),
    Delete,
    Merge(Vec<u8>),
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;
type Changes = Vec<(Vec<u8>, Change)>;

/// Changes of each key, the oldest first.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<Vec<u8>, Vec<Change>>);

impl Model {
    fn with(&self, changes: &Changes, behind: bool) -> Model {
        let mut model = self.clone();
        for (key, change) in changes {
            let own = model.0.entry(key.clone()).or_default();
            let at = if behind { 0 } else { own.len() };
            own.insert(at, change.clone());
        }
        model
    }

    fn entries(&self) -> Entries {
        let value = |changes: &[Change]| {
            changes.iter().fold(None, |value: Option<Vec<u8>>, change| match change {
                Change::Put(put) => Some(put.clone()),
                Change::Delete => None,
                Change::Merge(operand) => {
                    Some(value.map_or_else(|| operand.clone(), |value| [&value, &b","[..], operand].concat()))
                }
            })
        };
        self.0.iter().filter_map(|(key, changes)| Some((key.clone(), value(changes)?))).collect()
    }
}

/// Draws at most one change of each key, by key. Unless they are `behind`, they include a put of
/// their number under a key of its own, which shows after a crash if they were applied.
fn changes(number: u64, behind: bool, random: &mut Random) -> Changes {
    let mut changes = Vec::new();
    let mut at = random.below(KEYS);
    while at < KEYS && changes.len() < 12 {
        let len = if random.one_in(5) { 300 } else { 5 };
        let value = [format!("{number}:").as_bytes(), &vec![b'v'; random.index(len)]].concat();
        let change = match random.below(6) {
            0 => Change::Delete,
            1 => Change::Merge(value),
            _ => Change::Put(value),
        };
        changes.push((key(at), change));
        at += 1 + random.below(4);
    }
    if !behind {
        changes.push((b"number".to_vec(), Change::Put(number.to_string().into_bytes())));
    }
    changes
}

fn options(env: &Env, random: &mut Random) -> Options {
    let mut text = String::from(
        "create_if_missing=true;stats_dump_period_sec=0;ttl=0;periodic_compaction_seconds=0;\
        cf_allow_ingest_behind=true;merge_operator={id=StringAppendOperator;delimiter=,;};\
        write_buffer_size=4000;target_file_size_base=1000;max_bytes_for_level_base=3000;min_blob_size=200;",
    );
    let mut set = |name: &str, values: &[&str]| {
        text += &format!("{name}={};", values[random.index(values.len())]);
    };
    set("compaction_style", &["kCompactionStyleLevel", "kCompactionStyleUniversal"]);
    set("level_compaction_dynamic_level_bytes", &["true", "false"]);
    set("level0_file_num_compaction_trigger", &["2", "4"]);
    set("enable_blob_files", &["false", "true"]);
    set("wal_dir", &["/db", "/logs"]);
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
    let is_same = found.iter().map(|(k, v)| (k, v)).eq(expected.iter());
    let mut backward = Vec::new();
    iter.seek_to_last_async().await?;
    while iter.valid() {
        backward.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev_async().await?;
    }
    backward.reverse();
    assert_eq!(found, backward, "forward and backward differ");
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let family = db.default_column_family();
    let many = db.multi_get_cf_async(&options, family, &keys).await;
    let shown: Entries = found.into_iter().collect();
    for (key, many) in keys.iter().zip(many) {
        let one = db.get_cf_async(&options, family, key).await?;
        assert_eq!(one.as_deref(), shown.get(key).map(Vec::as_slice), "get and scan of {key:?} differ");
        assert_eq!(many?.as_deref(), one.as_deref(), "multi_get and get of {key:?} differ");
    }
    Ok(is_same)
}

/// Copies a file without syncing, as some programs do, and removes the original.
fn carry(fs: &dyn FileSystem, path: &str) -> karst_io::Result<String> {
    let carried = format!("{path}-carried");
    let bytes = fs.read_file(Path::new(path))?;
    fs.create(Path::new(&carried))?.append(&bytes)?;
    fs.remove(Path::new(path))?;
    Ok(carried)
}

#[derive(Default)]
struct History {
    certain: Model,
    /// State after the change that is under way.
    under_way: Option<Model>,
    number: u64,
    files: u64,
    came_behind: usize,
    /// True once the load has finished.
    loaded: bool,
    loads: usize,
    /// The power has failed since the database was last open.
    power_failed: bool,
}

impl History {
    /// Loads the database; first destroys the remains of an unfinished load.
    fn load(&mut self, options: &Options, random: &mut Random) -> Result<()> {
        self.loads += 1;
        let mut model = Model::default();
        let mut loader = match BulkLoader::create("/db", options) {
            // An earlier load has left files.
            Err(e) if e.kind() == ErrorKind::InvalidArgument => {
                assert!(e.to_string().contains("Db::destroy"), "{e}");
                Db::destroy("/db", options)?;
                BulkLoader::create("/db", options)?
            }
            made => made?,
        };
        for level in [4, 3, 0] {
            self.number += 1;
            let changes = changes(self.number, false, random);
            for (key, change) in &changes {
                match change {
                    Change::Put(value) => loader.put(key, value)?,
                    Change::Delete => loader.delete(key)?,
                    Change::Merge(operand) => loader.merge(key, operand)?,
                }
            }
            model = model.with(&changes, false);
            loader.seal(level)?;
        }
        self.under_way = Some(model);
        loader.finish()?;
        self.done();
        self.loaded = true;
        Ok(())
    }

    fn done(&mut self) {
        self.certain = self.under_way.take().expect("it was begun");
    }

    async fn ingest(
        &mut self,
        (db, options): (&Db, &Options),
        snapshots: &mut [(Snapshot, Model)],
        behind: bool,
        random: &mut Random,
    ) -> Result<()> {
        (self.number, self.files) = (self.number + 1, self.files + 1);
        let path = format!("/file-{}.sst", self.files);
        let changes = changes(self.number, behind, random);
        let mut writer = SstFileWriter::create(options)?;
        writer.open(&path)?;
        for (key, change) in &changes {
            match change {
                Change::Put(value) => writer.put(key, value)?,
                Change::Delete => writer.delete(key)?,
                Change::Merge(operand) => writer.merge(key, operand)?,
            }
        }
        writer.finish_async().await?;
        let path = if random.one_in(2) { carry(db.env().fs().as_ref(), &path)? } else { path };
        let move_files = random.one_in(2);
        let link_files = !move_files && random.one_in(2);
        let how =
            IngestExternalFileOptions { ingest_behind: behind, move_files, link_files, ..Default::default() };
        self.under_way = Some(self.certain.with(&changes, behind));
        match db.ingest_external_file_async(&how, [&path]).await {
            // The last level has an overlapping file, or entries with sequence number 0 lie above
            // it.
            Err(e) if behind && e.kind() == ErrorKind::InvalidArgument => self.under_way = None,
            ingested => {
                ingested?;
                self.done();
                if behind {
                    self.came_behind += 1;
                    // A file ingested behind is older than every snapshot.
                    for (_, model) in snapshots {
                        *model = model.with(&changes, true);
                    }
                }
            }
        }
        let _ = db.env().fs().remove(Path::new(&path));
        Ok(())
    }

    async fn live(&mut self, env: &Env, options: &Options, random: &mut Random) -> Result<()> {
        let fs = env.fs().clone();
        if !self.loaded && !fs.exists(Path::new("/db/CURRENT"))? {
            self.under_way = None;
            self.load(options, random)?;
        }
        self.loaded = true;
        let opening = || Db::open("/db", options);
        let db = torn_manifest::open(fs.as_ref(), "/db", self.power_failed, opening)?;
        self.power_failed = false;
        if !same(&db, None, &self.certain.entries()).await? {
            // The change stays under way until it was compared, because the power may fail while
            // the entries are read, and then the next life finds the change too.
            let other = self.under_way.clone().expect("what is there was never written");
            assert!(same(&db, None, &other.entries()).await?, "what is there was never written");
            self.certain = other;
        }
        self.under_way = None;
        let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
        for _ in 0..40 {
            match random.below(16) {
                0..7 => {
                    self.number += 1;
                    let changes = changes(self.number, false, random);
                    let mut batch = WriteBatch::new();
                    for (key, change) in &changes {
                        match change {
                            Change::Put(value) => batch.put(key, value)?,
                            Change::Delete => batch.delete(key)?,
                            Change::Merge(operand) => batch.merge(key, operand)?,
                        }
                    }
                    self.under_way = Some(self.certain.with(&changes, false));
                    db.write_async(&WriteOptions::synced(), &batch).await?;
                    self.done();
                }
                7..10 => self.ingest((&db, options), &mut snapshots, true, random).await?,
                10 => self.ingest((&db, options), &mut snapshots, false, random).await?,
                11..13 => db.flush_async(&FlushOptions::default()).await?,
                13 => db.compact_range_async(&Default::default(), None, None).await?,
                14 if snapshots.len() < 3 => snapshots.push((db.snapshot(), self.certain.clone())),
                _ if !snapshots.is_empty() => drop(snapshots.swap_remove(random.index(snapshots.len()))),
                _ => {}
            }
            if random.one_in(3) {
                assert!(same(&db, None, &self.certain.entries()).await?, "not what was written");
                for (snapshot, model) in &snapshots {
                    assert!(same(&db, Some(snapshot), &model.entries()).await?, "not what it was");
                }
            }
        }
        assert!(same(&db, None, &self.certain.entries()).await?, "not what was written");
        drop(snapshots);
        db.close()
    }
}

/// Returns the number of disk changes that the first load of a seed makes.
fn changes_of_a_load(seed: u64, random: &Random) -> u64 {
    let simulation = Simulation::new(seed);
    let options = options(simulation.env(), &mut Random::new(seed));
    let mut random = random.clone();
    simulation
        .run(async { History::default().load(&options, &mut random).unwrap() })
        .expect("the power is on");
    simulation.fs().changes()
}

fn run(seed: u64) -> [usize; 3] {
    let mut random = Random::new(seed);
    let (mut history, mut simulation, mut crashes) = (History::default(), Simulation::new(seed), 0);
    for life in 0..6 {
        // A load makes its database visible with its last changes.
        let ends_load = life == 0 && random.one_in(2);
        let end = random.below(6);
        let changes = [40, 70, 120, 400][random.index(4)];
        let after = random.below(changes);
        if ends_load {
            simulation.fs().lose_power_after(changes_of_a_load(seed, &random).saturating_sub(end));
        } else if life < 5 {
            simulation.fs().lose_power_after(after);
        }
        let env = simulation.env().clone();
        let options = options(&env, &mut Random::new(seed));
        match simulation.run(history.live(&env, &options, &mut random)) {
            Some(lived) => lived.unwrap(),
            None => crashes += 1,
        }
        drop((options, env));
        let crash = if random.one_in(3) { Crash::Process } else { Crash::Power };
        history.power_failed |= crash == Crash::Power;
        simulation = simulation.restart(crash, random.next_u64());
    }
    [history.loads, history.came_behind, crashes]
}

#[test]
fn what_is_loaded_and_what_comes_behind_it_outlives_the_power() {
    let mut total = [0; 3];
    each_seed("what_is_loaded_and_what_comes_behind_it_outlives_the_power", 8, 400, |seed| {
        total.iter_mut().zip(run(seed)).for_each(|(total, count)| *total += count);
    });
    let [loads, behind, crashes] = total;
    println!("{loads} loads, {behind} files behind all else, {crashes} crashes");
    let one_seed = crate::number("KARST_SEED").is_some() || crate::number("KARST_SEEDS").is_some();
    assert!(one_seed || (loads > 8 && behind > 5 && crashes > 10), "nothing was tried: {total:?}");
}
