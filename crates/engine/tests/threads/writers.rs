//! Writers beside flushes, crashes, readers and closing.

use crate::explorer::explore;
use crate::world::{Drawn, Known, Ledger, World, check_opened, settle};
use karst_engine::{Db, FlushOptions};
use karst_testkit::random::Random;
use shuttle::thread;
use std::sync::Arc;

/// What the threads of a scenario share.
#[derive(Clone)]
struct Scene {
    world: World,
    drawn: Drawn,
    db: Db,
    ledger: Arc<Ledger>,
}

impl Scene {
    fn new(random: &mut Random, drawn: Drawn) -> Self {
        let world = World::new(random);
        let db = drawn.open(&world).unwrap();
        Self { world, drawn, db, ledger: Arc::default() }
    }

    /// A thread that does this.
    fn spawn(&self, random: &mut Random, body: impl FnOnce(&Self, &mut Random) + Send + 'static) -> Thread {
        let (scene, mut random) = (self.clone(), random.fork());
        Thread(thread::spawn(move || body(&scene, &mut random)))
    }

    fn write(&self, random: &mut Random, writer: usize, batches: u64, logged: bool) {
        for _ in 0..batches {
            self.ledger.write(&self.db, random, writer, logged).unwrap();
        }
    }

    /// Flushes all families; what was acknowledged before is in tables then.
    fn flush(&self) {
        let known = self.ledger.known();
        let all = self.db.column_families();
        self.db.flush_cfs(&FlushOptions::default(), &all.iter().collect::<Vec<_>>()).unwrap();
        self.ledger.keep(&known);
    }

    /// Kills the process, as it were, and looks at what is left; this one goes on.
    fn crash(&self, logged: bool) {
        let before: Known = self.ledger.known_to_survive(logged);
        let crashed = self.world.crashed();
        let known = before.up_to(&self.ledger.known());
        check_opened(&crashed, &self.drawn, &known, "after a crash meanwhile");
    }

    fn settle(self, logged: bool) {
        settle(&self.world, &self.drawn, self.db, &self.ledger, logged);
    }
}

struct Thread(thread::JoinHandle<()>);

fn join(threads: impl IntoIterator<Item = Thread>) {
    threads.into_iter().for_each(|thread| thread.0.join().unwrap());
}

/// Two writers, somebody who flushes, and a crash.
fn merges_beside_flushes(random: &mut Random) {
    let drawn = Drawn::new(random);
    let scene = Scene::new(random, drawn);
    let mut threads = Vec::new();
    for writer in 0..2 {
        let batches = 1 + random.below(3);
        threads.push(scene.spawn(random, move |scene, random| scene.write(random, writer, batches, true)));
    }
    threads.push(scene.spawn(random, |scene, random| (0..1 + random.below(2)).for_each(|_| scene.flush())));
    if random.one_in(2) {
        threads.push(scene.spawn(random, |scene, _| scene.crash(true)));
    }
    join(threads);
    scene.settle(true);
}

#[test]
fn merges_count_once_beside_flushes_and_crashes() {
    explore("merges beside flushes", merges_beside_flushes);
}
