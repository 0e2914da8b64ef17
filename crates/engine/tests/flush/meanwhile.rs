//! What comes between two steps of a flush or of a recovery: a column family that is created, a write
//! that fails. The simulated machine stops the flush or the recovery after each of its polls in turn,
//! so nothing is left to chance.

use super::all_of;
use karst_engine::{BackgroundError, Db, EventListener, Options, WaitForCompactOptions};
use karst_io::{Env, SimulatedFileSystem, Simulation, Trouble, sleep};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options(env: &Env) -> Options {
    Options::new().env(env.clone()).db(|db| {
        db.create_if_missing = true;
        db.bgerror_resume_retry_interval = 20_000;
    })
}

fn failing() -> Trouble {
    Trouble { write_error: 1.0, ..Trouble::default() }
}

/// Has a write fail just when the first recovery is told.
#[derive(Debug, Default)]
struct FailsAgain(Mutex<Option<(Db, SimulatedFileSystem)>>);

impl EventListener for FailsAgain {
    fn recovered(&self, _: &BackgroundError) {
        let Some((db, disk)) = self.0.lock().unwrap().take() else { return };
        disk.set_trouble(failing());
        db.put(b"refused", b"2").unwrap_err();
        disk.set_trouble(Trouble::default());
    }
}

#[test]
fn an_error_that_comes_while_a_recovery_is_told_is_recovered_from_too() {
    let simulation = Simulation::new(3);
    let listener = Arc::new(FailsAgain::default());
    let options = options(simulation.env()).event_listener(listener.clone());
    let db = Db::open("/db", &options).unwrap();
    *listener.0.lock().unwrap() = Some((db.clone(), simulation.fs().clone()));
    simulation.fs().set_trouble(failing());
    db.put(b"refused", b"1").unwrap_err();
    simulation.fs().set_trouble(Trouble::default());
    simulation.run(async {
        for _ in 0..1_000 {
            if db.background_error().is_none() && listener.0.lock().unwrap().is_none() {
                return;
            }
            sleep(db.env(), Duration::from_millis(5)).await;
        }
        panic!("nobody recovers from {:?}", db.background_error());
    });
    db.put(b"accepted", b"1").unwrap();
    db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
    assert_eq!(all_of(&db, "default").into_keys().collect::<Vec<_>>(), [b"accepted".to_vec()]);
}
