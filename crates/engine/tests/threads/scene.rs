//! A database, its book, and the threads of a schedule.

use crate::explorer::explored;
use crate::world::{Drawn, Found, Known, Ledger, PATH, World, check};
use karst_engine::{ColumnFamily, Db, ErrorKind, FlushOptions, Options, Result, WriteBatch};
use karst_io::{block_on, sleep};
use karst_testkit::random::Random;
use shuttle::thread;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often something is tried that fails, and how long it rests in between.
const TRIES: u32 = 300;
const PAUSE: Duration = Duration::from_millis(1);

/// What the threads of a scenario share.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) world: World,
    drawn: Drawn,
    pub(crate) db: Db,
    pub(crate) ledger: Arc<Ledger>,
    /// Whether writers have their batches logged.
    logged: bool,
    /// What crashes have left. Lock: nothing happens under it that shuttle knows of.
    images: Arc<Mutex<Vec<Image>>>,
}

/// A database that nobody has open, and what it must have.
struct Image {
    world: World,
    path: String,
    known: Known,
}

impl Scene {
    /// A new database whose options are drawn, then changed.
    pub(crate) fn new(random: &mut Random, change: impl FnOnce(&mut Drawn)) -> Self {
        let mut drawn = Drawn::new(random);
        change(&mut drawn);
        let world = World::new(random);
        let db = drawn.create(&world).unwrap();
        Self { world, drawn, db, ledger: Arc::default(), logged: true, images: Arc::default() }
    }

    /// One whose writers log nothing, and whose families are flushed together.
    pub(crate) fn unlogged(random: &mut Random) -> Self {
        Self { logged: false, ..Self::new(random, |drawn| drawn.be_unlogged()) }
    }

    pub(crate) fn options(&self) -> Options {
        self.drawn.on(&self.world)
    }

    /// A thread that does this.
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

    /// The next batch of a writer, with what this one has.
    pub(crate) fn write_beside(&self, random: &mut Random, writer: usize, batch: WriteBatch) -> Result<()> {
        self.ledger.write(&self.db, random, writer, self.logged, batch)
    }

    pub(crate) fn write(&self, random: &mut Random, writer: usize, batches: u64) {
        (0..batches).for_each(|_| self.write_one(random, writer).unwrap());
    }

    /// Flushes all families; what was acknowledged before is in tables then.
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

    /// Kills the process, as it were; this one goes on. What it leaves is looked at in the end.
    pub(crate) fn crash(&self) {
        let image = self.image();
        self.images.lock().unwrap().push(image);
    }

    fn image(&self) -> Image {
        let before = self.ledger.known_to_survive(self.logged);
        let world = self.world.crashed();
        Image { world, path: PATH.into(), known: before.up_to(&self.ledger.known()) }
    }

    /// A copy is there, which has at least what was known before. It is looked at in the end.
    pub(crate) fn copied(&self, path: &str, before: Known) {
        let (world, known) = (self.world.clone(), before.up_to(&self.ledger.known()));
        self.images.lock().unwrap().push(Image { world, path: path.into(), known });
    }

    /// The end of a schedule: all that was acknowledged is there, once, now, after each crash and
    /// after closing.
    pub(crate) fn settle(self) {
        self.settle_and(|_| {});
    }

    /// The same, and `look` looks at it too: now, after a crash now, and after closing.
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

    /// The end of a schedule in which the database was closed, and `look` looks at what is left
    /// too.
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

    /// Opens what is left of a database. A log may be damaged if one has failed.
    fn check_left(&self, left: &Image, when: &str, look: impl FnOnce(&Db, &Found)) {
        let db = self.drawn.open(&left.world, &left.path).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert_eq!(db.log_duplicates(), None, "{when}");
        look(&db, &check(&db, &left.known, when));
        db.close().unwrap();
    }

    /// Repeats something until it does not fail any more. Each time that it fails, the others have
    /// a turn.
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

/// Lets threads that were spawned run, to their ends. That is what is explored.
pub(crate) fn run(threads: Vec<Thread>) {
    explored(|| threads.into_iter().for_each(|thread| thread.0.join().unwrap()));
}
