//! FIFO compaction with a `ttl`, in virtual time, through crashes: no entry is dropped before its
//! time, the newest entry of a key is dropped with or after the older ones, and in the end all are
//! dropped.

use crate::{each_seed, torn_manifest};
use karst_engine::{Db, FlushOptions, Options, ReadOptions, Result, WriteOptions};
use karst_io::{Crash, Env, Simulation, sleep};
use karst_testkit::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(1000);
/// Resolution of the times that tables record.
const SECOND: Duration = Duration::from_secs(1);

/// The newest value of each key, and the time of its write.
#[derive(Default)]
struct Model {
    newest: BTreeMap<String, (u64, Duration)>,
    /// A put that was begun and not acknowledged.
    under_way: Option<(String, u64)>,
    number: u64,
    /// Number of entries that were found dropped.
    gone: usize,
    /// The power has failed since the database was last open.
    power_failed: bool,
}

fn options(env: &Env, random: &mut Random) -> Options {
    let mut text = String::from(
        "create_if_missing=true;stats_dump_period_sec=0;compaction_style=kCompactionStyleFIFO;ttl=1000;\
        write_buffer_size=4000;target_file_size_base=2000;",
    );
    let mut set = |name: &str, values: &[&str]| {
        text += &format!("{name}={};", values[random.index(values.len())]);
    };
    set("level0_file_num_compaction_trigger", &["2", "3"]);
    set("max_open_files", &["-1", "5"]);
    set("skip_stats_update_on_db_open", &["false", "true"]);
    set("avoid_flush_during_recovery", &["false", "true"]);
    set("max_subcompactions", &["1", "3"]);
    set(
        "compaction_options_fifo",
        &[
            "{allow_compaction=true;max_table_files_size=1000000000}",
            "{allow_compaction=true;max_table_files_size=1000000000}",
            "{allow_compaction=false;max_table_files_size=1000000000}",
        ],
    );
    Options::new().set_all(&text).unwrap_or_else(|e| panic!("{text}: {e}")).env(env.clone())
}

impl Model {
    /// Compares all keys with the model. A dropped entry must not reappear.
    async fn check(&mut self, db: &Db, env: &Env) -> Result<()> {
        let mut iter = db.iter(&ReadOptions::default())?;
        let mut shown = BTreeMap::new();
        iter.seek_to_first_async().await?;
        while iter.valid() {
            shown.insert(iter.key().to_vec(), iter.value().to_vec());
            iter.next_async().await?;
        }
        let mut gone = Vec::new();
        for (key, (number, written)) in &self.newest {
            let age = env.unix_time().saturating_sub(*written);
            let text = number.to_string();
            for found in
                [db.get_async(key.as_bytes()).await?.map(|v| v.to_vec()), shown.remove(key.as_bytes())]
            {
                match found {
                    Some(value) => assert_eq!(value, text.as_bytes(), "{key}, {age:?} after it was written"),
                    None => {
                        assert!(age + SECOND >= TTL, "{key} is gone at the age of {age:?}");
                        gone.push(key.clone());
                    }
                }
            }
        }
        assert!(shown.is_empty(), "{shown:?} was gone, or never there");
        for key in gone {
            self.gone += usize::from(self.newest.remove(&key).is_some());
        }
        Ok(())
    }

    /// Decides whether the put took place during which the power failed.
    async fn settle(&mut self, db: &Db, env: &Env) -> Result<()> {
        if let Some((key, number)) = self.under_way.clone() {
            let found = db.get_async(key.as_bytes()).await?;
            // Only now, because the power may fail while the key is read.
            self.under_way = None;
            if found.as_deref() == Some(number.to_string().as_bytes()) {
                self.newest.insert(key, (number, env.unix_time()));
            }
        }
        Ok(())
    }

    fn open(&mut self, env: &Env, options: &Options) -> Result<Db> {
        let opening = || Db::open("/db", options);
        let db = torn_manifest::open(env.fs().as_ref(), "/db", self.power_failed, opening)?;
        self.power_failed = false;
        Ok(db)
    }

    async fn live(&mut self, env: Env, options: &Options, random: &mut Random) -> Result<()> {
        let db = self.open(&env, options)?;
        self.settle(&db, &env).await?;
        self.check(&db, &env).await?;
        for _ in 0..20 {
            for _ in 0..1 + random.below(12) {
                self.number += 1;
                let key = format!("key{:03}", random.below(400));
                self.under_way = Some((key.clone(), self.number));
                let value = self.number.to_string();
                let family = db.default_column_family();
                let before = env.unix_time();
                db.put_cf_async(&WriteOptions::synced(), family, key.as_bytes(), value.as_bytes()).await?;
                self.under_way = None;
                self.newest.insert(key, (self.number, before));
            }
            if random.one_in(2) {
                db.flush_async(&FlushOptions::default()).await?;
            }
            sleep(&env, Duration::from_secs(random.below(120))).await;
            self.check(&db, &env).await?;
        }
        db.close()
    }
}

fn run(seed: u64) -> [usize; 2] {
    let mut random = Random::new(seed);
    let (mut model, mut simulation, mut crashes) = (Model::default(), Simulation::new(seed), 0);
    for life in 0..5 {
        if life < 4 {
            simulation.fs().lose_power_after(random.below(1500));
        }
        let env = simulation.env().clone();
        let options = options(&env, &mut random);
        match simulation.run(model.live(env, &options, &mut random)) {
            Some(lived) => lived.unwrap(),
            None => crashes += 1,
        }
        drop(options);
        let crash = if random.one_in(3) { Crash::Process } else { Crash::Power };
        model.power_failed |= crash == Crash::Power;
        simulation = simulation.restart(crash, random.next_u64());
    }
    let options = options(&simulation.env().clone(), &mut random);
    let env = simulation.env().clone();
    let ended = simulation.run(async {
        let db = model.open(&env, &options)?;
        db.flush_async(&FlushOptions::default()).await?;
        sleep(&env, TTL * 3).await;
        db.wait_for_compact_async(&Default::default()).await?;
        model.check(&db, &env).await?;
        assert!(model.newest.is_empty(), "what is old stays: {:?}", model.newest);
        db.close()
    });
    ended.expect("the power is on").unwrap();
    [crashes, model.gone]
}

#[test]
fn no_entry_goes_before_its_time_and_all_go() {
    let (mut crashes, mut gone) = (0, 0);
    each_seed("no_entry_goes_before_its_time_and_all_go", 4, 300, |seed| {
        let [in_one, gone_in_one] = run(seed);
        crashes += in_one;
        gone += gone_in_one;
    });
    println!("{crashes} crashes, {gone} entries went");
    let one_seed = crate::number("KARST_SEED").is_some() || crate::number("KARST_SEEDS").is_some();
    assert!(one_seed || (crashes > 2 && gone > 200), "nothing was tried: {crashes}, {gone}");
}
