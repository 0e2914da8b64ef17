//! A database, its ledger and the threads of a schedule.

use crate::explorer::explored;
use crate::world::{Drawn, Found, Known, Ledger, PATH, World, check};
use karst_engine::{ColumnFamily, Db, ErrorKind, FlushOptions, Options, Result, WriteBatch};
use karst_io::{block_on, sleep};
use karst_testkit::random::Random;
use shuttle::thread;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of attempts of a failing call; below, the pause between them.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(1);

/// State that the threads of a scenario share.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) world: World,
    drawn: Drawn,
    pub(crate) db: Db,
    pub(crate) ledger: Arc<Ledger>,
    /// True if writers log their batches.
    logged: bool,
    /// Images that crashes have left. Lock: no operation that shuttle schedules happens under it.
    images: Arc<Mutex<Vec<Image>>>,
}

/// A closed database and its required content.
struct Image {
    world: World,
    path: String,
    known: Known,
}

impl Scene {
    /// Creates a database with random options, modified by `change`.
    pub(crate) fn new(random: &mut Random, change: impl FnOnce(&mut Drawn)) -> Self {
        let mut drawn = Drawn::new(random);
        change(&mut drawn);
        let world = World::new(random);
        let db = drawn.create(&world).unwrap();
        Self { world, drawn, db, ledger: Arc::default(), logged: true, images: Arc::default() }
    }

    /// Creates a database whose writers log nothing and whose families are flushed atomically.
    pub(crate) fn unlogged(random: &mut Random) -> Self {
        Self { logged: false, ..Self::new(random, |drawn| drawn.be_unlogged()) }
    }

    pub(crate) fn options(&self) -> Options {
        self.drawn.on(&self.world)
    }

    /// Starts a thread that runs `body`.
    pub(crate) fn spawn(
        &self,
        random: &mut Random,
        body: impl FnOnce(&Self, &mut Random) + Send + 'static,
    ) -> Thread {
        let (scene, mut random) = (self.clone(), random.fork());
        Thread(thread::spawn(move || body(&scene, &mut random)))
    }

    pub(crate) fn write_one(&self, random: &mut Random, writer: usize) -> Result<()> {
        self.write_beside(random, writer, WriteBatch::new())
    }

    /// Writes the next batch of a writer together with the entries of `batch`.
    pub(crate) fn write_beside(&self, random: &mut Random, writer: usize, batch: WriteBatch) -> Result<()> {
        self.ledger.write(&self.db, random, writer, self.logged, batch)
    }

    pub(crate) fn write(&self, random: &mut Random, writer: usize, batches: u64) {
        (0..batches).for_each(|_| self.write_one(random, writer).unwrap());
    }

    /// Flushes all families; entries acknowledged before are in tables afterwards.
    pub(crate) fn flush(&self) {
        self.try_flush().unwrap();
    }

    pub(crate) fn try_flush(&self) -> Result<()> {
        let known = self.ledger.known();
        let all = self.db.column_families();
        self.db.flush_cfs(&FlushOptions::default(), &all.iter().collect::<Vec<_>>())?;
        self.ledger.keep(&known);
        Ok(())
    }

    /// Records the state that a killed process would leave, for `settle` to check. This process
    /// continues.
    pub(crate) fn crash(&self) {
        let image = self.image();
        self.images.lock().unwrap().push(image);
    }

    fn image(&self) -> Image {
        let before = self.ledger.known_to_survive(self.logged);
        let world = self.world.crashed();
        Image { world, path: PATH.into(), known: before.up_to(&self.ledger.known()) }
    }

    /// Registers a copy, which has at least the entries known `before`. `settle` checks it.
    pub(crate) fn copied(&self, path: &str, before: Known) {
        let (world, known) = (self.world.clone(), before.up_to(&self.ledger.known()));
        self.images.lock().unwrap().push(Image { world, path: path.into(), known });
    }

    /// Ends a schedule: every acknowledged batch exists exactly once, now, after each crash and
    /// after closing.
    pub(crate) fn settle(self) {
        self.settle_and(|_| {});
    }

    /// Like `settle`, with `look` as a further check: now, after a crash now, and after closing.
    pub(crate) fn settle_and(self, look: impl Fn(&Db)) {
        let live = check(&self.db, &self.ledger.known(), "now");
        look(&self.db);
        self.check_left(&self.image(), "after a crash", |db, _| {
            assert_eq!(db.log_damage(), None);
            look(db);
        });
        self.db.close().unwrap();
        self.settle_closed(|db, closed| {
            assert_eq!(&live, closed, "now, and after closing");
            look(db);
        });
    }

    /// Ends a schedule in which the database was closed, with `look` as a further check of the
    /// reopened database.
    pub(crate) fn settle_closed(self, look: impl FnOnce(&Db, &Found)) {
        for image in self.images.lock().unwrap().drain(..) {
            self.check_left(&image, "after a crash, or in a copy", |_, _| {});
        }
        let closed = Image { world: self.world.clone(), path: PATH.into(), known: self.ledger.known() };
        self.check_left(&closed, "after closing", |db, found| {
            assert_eq!(db.log_damage(), None);
            look(db, found);
        });
    }

    /// Opens and checks a closed or crashed database. A log may be damaged if one has failed.
    fn check_left(&self, left: &Image, when: &str, look: impl FnOnce(&Db, &Found)) {
        let db = self.drawn.open(&left.world, &left.path).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert_eq!(db.log_duplicates(), None, "{when}");
        look(&db, &check(&db, &left.known, when));
        db.close().unwrap();
    }

    /// Repeats a call until it succeeds. After each failure the other threads get a turn.
    pub(crate) fn insist<T>(&self, what: &str, mut call: impl FnMut() -> Result<T>) -> T {
        for _ in 0..TRIES {
            match call() {
                Ok(done) => return done,
                Err(error) if error.kind() == ErrorKind::Closed => panic!("{what}: {error}"),
                Err(_) => block_on(&self.world.env, sleep(&self.world.env, PAUSE)),
            }
        }
        panic!("{what}: nobody recovers from {:?}", self.db.background_error());
    }

    /// Creates a family.
    pub(crate) fn create(&self, name: &str) -> Result<ColumnFamily> {
        self.db.create_column_family(name, &self.options())
    }
}

pub(crate) struct Thread(thread::JoinHandle<()>);

/// Lets spawned threads run to their ends. Only these steps are explored.
pub(crate) fn run(threads: Vec<Thread>) {
    explored(|| threads.into_iter().for_each(|thread| thread.0.join().unwrap()));
}
