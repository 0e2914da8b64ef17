//! Opening, and the creation and dropping of column families, on a machine whose power fails at any
//! change of the disk: acknowledged changes survive, the one under way happened or not, and no file
//! is left over.

use crate::{each_seed, torn_manifest};
use karst_engine::{Db, FlushOptions, Options, Result, WriteOptions};
use karst_io::{Crash, FileSystem, Simulation};
use karst_testkit::random::Random;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Column families, each with the number of keys that were written and synced.
type Families = BTreeMap<String, u64>;

/// Acknowledged state, and the state after the change that is under way.
#[derive(Debug)]
struct Known {
    certain: Families,
    under_way: Option<Families>,
    next_name: u64,
}

impl Known {
    fn begin(&mut self, change: impl FnOnce(&mut Families)) {
        let mut after = self.certain.clone();
        change(&mut after);
        self.under_way = Some(after);
    }

    fn done(&mut self) {
        self.certain = self.under_way.take().unwrap();
    }
}

fn options(simulation: &Simulation) -> Options {
    // Small, so that the MANIFEST is replaced often.
    let text = "create_if_missing=true;max_manifest_file_size=1000;\
                max_manifest_space_amp_pct=50;track_and_verify_wals_in_manifest=true";
    Options::new().set_all(text).unwrap().env(simulation.env().clone())
}

fn found(db: &Db) -> Result<Families> {
    let keys_of = |family: &karst_engine::ColumnFamily| -> Result<u64> {
        let mut cursor = db.iter_cf(&karst_engine::ReadOptions::default(), family)?;
        let mut count = 0;
        cursor.seek_to_first()?;
        while cursor.valid() {
            assert_eq!(cursor.key(), format!("{count:06}").as_bytes(), "{}", family.name());
            count += 1;
            cursor.next()?;
        }
        Ok(count)
    };
    db.column_families().iter().map(|family| Ok((family.name().to_owned(), keys_of(family)?))).collect()
}

/// Makes changes until the power fails, or for a while.
fn change(options: &Options, known: &RefCell<Known>, random: &mut Random) -> Result<()> {
    let db = Db::open("/some/db", options)?;
    assert_eq!(found(&db)?, known.borrow().certain);
    for _ in 0..random.below(20) {
        let names: Vec<String> = known.borrow().certain.keys().cloned().collect();
        let name = names[random.index(names.len())].clone();
        let family = db.column_family(&name).unwrap();
        match random.below(8) {
            0 | 1 => {
                let name = format!("family{}", known.borrow().next_name);
                known.borrow_mut().next_name += 1;
                known.borrow_mut().begin(|families| families.extend([(name.clone(), 0)]));
                db.create_column_family(&name, options)?;
                known.borrow_mut().done();
            }
            2 if name != "default" => {
                known.borrow_mut().begin(|families| families.retain(|other, _| *other != name));
                db.drop_column_family(&family)?;
                known.borrow_mut().done();
            }
            3 => db.flush_cfs(&FlushOptions::default(), &[&family])?,
            _ => {
                let key = format!("{:06}", known.borrow().certain[&name]);
                known.borrow_mut().begin(|families| *families.get_mut(&name).unwrap() += 1);
                db.put_cf(&WriteOptions::synced(), &family, key, b"value")?;
                known.borrow_mut().done();
            }
        }
    }
    db.close()
}

fn check_files(db: Db, options: &Options) {
    let fs = db.env().fs().clone();
    db.close().unwrap();
    let closed = Db::open_read_only("/some/db", options).unwrap();
    let live: BTreeSet<String> = closed.live_files().into_iter().map(|file| file.name).collect();
    let names = fs.list_dir(Path::new("/some/db")).unwrap();
    let with = |end: &str| names.iter().filter(|name| name.contains(end)).cloned().collect::<BTreeSet<_>>();
    assert_eq!(with(".sst"), live);
    assert_eq!((with("MANIFEST-").len(), with("dbtmp").len()), (1, 0), "{names:?}");
    assert!(with("OPTIONS-").len() <= 2, "{names:?}");
}

#[test]
fn families_and_their_keys_outlive_the_power() {
    each_seed("families_and_their_keys_outlive_the_power", 20, 600, |seed| {
        let mut random = Random::new(seed);
        let mut simulation = Simulation::new(seed);
        let fs = simulation.fs();
        fs.create_dir(Path::new("/some/db")).unwrap();
        for parent in ["/some", "/"] {
            fs.sync_dir(Path::new(parent)).unwrap();
        }
        let certain = Families::from([("default".to_owned(), 0)]);
        let known = RefCell::new(Known { certain, under_way: None, next_name: 0 });
        for life in 0..6 {
            let opening = options(&simulation);
            let changes = [20, 60, 300][random.index(3)];
            simulation.fs().lose_power_after(random.below(changes));
            let _ = simulation.run(async { change(&opening, &known, &mut random) });
            drop(opening);
            let crash = if random.one_in(3) { Crash::Process } else { Crash::Power };
            simulation = simulation.restart(crash, seed * 100 + life);
            let opening = options(&simulation);
            let state = simulation.run(async {
                let (fs, power_failed) = (simulation.fs(), crash == Crash::Power);
                let open = || Db::open("/some/db", &opening);
                let db = torn_manifest::open(fs, "/some/db", power_failed, open)
                    .unwrap_or_else(|e| panic!("life {life}: {e}"));
                let state = found(&db).unwrap();
                check_files(db, &opening);
                state
            });
            let state = state.unwrap();
            let mut known = known.borrow_mut();
            let under_way = known.under_way.take();
            assert!(
                state == known.certain || Some(&state) == under_way.as_ref(),
                "life {life}: {state:?}, but known is {:?} and under way {under_way:?}",
                known.certain
            );
            known.certain = state;
        }
    });
}
