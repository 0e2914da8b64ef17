//! One life of the database, in a process of its own that may be killed at any moment: opens,
//! decides prepared transactions, verifies, then runs operations until they are done or standard
//! input ends.
//!
//! In: flags, the number of the life, the expected state's folder. Out: lines on standard output
//! (`opened MILLISECONDS`, `counts NUMBERS`, `ended`), and an exit code; a mismatch or failure is
//! written to the file `failure` beside the expected state and to standard error.

use super::blob_garbage;
use super::calls::{Calls, Store, run_blocking};
use super::counts::{Count, Counts};
use super::executor::run_all;
use super::expected::Expected;
use super::extras::{self, Extras};
use super::flags::Flags;
use super::lane::{Lane, Shared};
use super::memtables;
use super::options::{Drawn, FrontKind, takes_direct_io};
use super::place::{ProgressLine, Site};
use super::rows::{Shape, family_name};
use super::verify::{Whole, check_files, decide, settle};
use super::whole_copies::{self, Copying};
use super::wrong::Wrong;
use crate::bench::Front;
use crate::output::note;
use crate::random::Random;
use karst_engine::{ColumnFamily, Db, Options};
use karst_io::Reactor;
use std::future::Future;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Exit codes of a life that found a mismatch, and of one in which a call failed.
pub(crate) const MISMATCH: i32 = 3;
pub(crate) const FAILED: i32 = 4;
/// Interval at which a life prints its counts.
const SAID_EVERY: Duration = Duration::from_millis(100);

/// Runs the life of this number.
pub(crate) fn live(flags: Flags, place: &Site, life: u64) -> Result<(), String> {
    let shape = place.shape()?;
    let life = Life { place: place.clone(), shape, life, flags };
    match life.live() {
        Ok(()) => Ok(()),
        Err(wrong) => die(place, &wrong),
    }
}

/// Exits the process at once, because further work would change the state that has to be examined.
fn die(place: &Site, wrong: &Wrong) -> ! {
    let text = wrong.text();
    note!("{text}");
    let _ = std::fs::write(place.failure(), &text);
    std::process::exit(match wrong {
        Wrong::Mismatch(_) => MISMATCH,
        Wrong::Failed(_) => FAILED,
    })
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // An error is ignored because the reader may be gone, and then this process ends soon.
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}

struct Life {
    place: Site,
    shape: Shape,
    life: u64,
    flags: Flags,
}

impl Life {
    fn live(self) -> Result<(), Wrong> {
        let failed = |e: std::io::Error| Wrong::Failed(format!("{}: {e}", self.place.expected.display()));
        let direct = takes_direct_io(&self.place.expected);
        let mut drawn = Drawn::of(&self.shape, &self.flags, self.life, direct, self.place.has_timestamps());
        if self.flags.check_only {
            // A life that only verifies opens the database in the mode of the life before.
            drawn.front = self.place.front().unwrap_or(FrontKind::Plain);
        }
        std::fs::write(self.place.options_of(self.life), drawn.text()).map_err(failed)?;
        let options = drawn.options(&self.flags).map_err(Wrong::Failed)?;
        let mut random = Random::of(&[self.shape.seed, 17, self.life]);
        let mut restored = false;
        if self.copies_all() {
            let begins = !self.flags.check_only && random.one_in(self.flags.restore_in_place_one_in);
            restored = whole_copies::restore(&self.place, begins, &mut random)?;
        }
        let shared = Arc::new(Shared {
            expected: Expected::open(&self.place.expected, self.shape)?,
            ordered: self.shape.ordered(),
            counts: Counts::default(),
            over: AtomicBool::new(false),
            life: self.life,
            flags: self.flags.clone(),
            drawn,
        });
        shared.counts.add(Count::Restores, u64::from(restored));
        let said = shared.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(SAID_EVERY);
                say(&ProgressLine::Counts(said.counts.numbers()).line());
            }
        });
        if !self.flags.check_only {
            // Not in a life that only verifies, because a copy with a mismatch must stay for
            // examination.
            super::loads::check_left(&self.place.db)?;
            super::copies::remove_left(&self.place.db).map_err(failed)?;
        }
        let kind = shared.drawn.front;
        match self.place.front() {
            Some(before) if before.locks() && before != kind => {
                // Transactions that a life left prepared are decided under its write policy first.
                let calls = self.open(&options, before, &shared)?;
                calls.store.db().close().map_err(closing)?;
            }
            _ => {}
        }
        self.place.note_front(kind).map_err(failed)?;
        let calls = self.open(&options, kind, &shared)?;
        let whole = Whole {
            expected: &shared.expected,
            ordered: &shared.ordered,
            counts: &shared.counts,
            seed: self.shape.seed ^ self.life,
        };
        whole.verify(&calls)?;
        let mut extras =
            Extras::open(&self.place.expected, self.shape.seed, self.life, self.place.has_timestamps())?;
        extras.verify(&calls.store, !self.flags.check_only)?;
        let copies = self.copies_all() && random.one_in(self.flags.whole_copy_one_in);
        if self.flags.check_only || copies {
            for family in &calls.store.families {
                blob_garbage::check(calls.store.db(), family)?;
            }
        }
        if self.flags.check_only {
            calls.store.db().close().map_err(closing)?;
            check_files(calls.store.db())?;
            drop(calls);
            self.read_only(&options, &whole)?;
        } else {
            if copies {
                let families = self.shape.families;
                let copying = Copying { place: &self.place, options: &options, whole: &whole, families };
                copying.copy(calls.store.db(), &mut extras, &mut random)?;
                shared.counts.add(Count::WholeCopies, 1);
            }
            self.operate(&shared, &calls, extras)?;
            calls.store.db().close().map_err(closing)?;
            check_files(calls.store.db())?;
        }
        say(&ProgressLine::Counts(shared.counts.numbers()).line());
        say(&ProgressLine::Ended.line());
        Ok(())
    }

    /// Returns true if all files of the database are in its own directory, which a backup that
    /// replaces it requires.
    fn copies_all(&self) -> bool {
        !self
            .flags
            .options
            .iter()
            .any(|(name, _)| ["wal_dir", "db_paths", "cf_paths"].contains(&name.as_str()))
    }

    /// Opens the database, decides prepared transactions, and settles the operations that the life
    /// before left undecided.
    fn open(&self, options: &Options, kind: FrontKind, shared: &Shared) -> Result<Calls, Wrong> {
        let names: Vec<String> = (0..self.shape.families).map(family_name).collect();
        let started = Instant::now();
        let store = Store::open(
            &self.place.db,
            options,
            kind,
            &names,
            extras::kept_families(self.place.has_timestamps()),
        )
        .map_err(|e| Wrong::Failed(format!("opening the database: {e}")))?;
        say(&ProgressLine::Opened(started.elapsed().as_millis() as u64).line());
        let calls = Calls { store: Arc::new(store), asynchronous: false };
        decide(&calls, &shared.expected, &shared.counts, self.shape.seed)?;
        settle(&calls, &shared.expected)?;
        Ok(calls)
    }

    /// Opens the database read-only, and verifies all rows and the checksums of all blocks.
    fn read_only(&self, options: &Options, whole: &Whole<'_>) -> Result<(), Wrong> {
        let opening = |e| Wrong::Failed(format!("opening the database read-only: {e}"));
        let db = Db::open_read_only(&self.place.db, options).map_err(opening)?;
        let families: Option<Vec<ColumnFamily>> =
            (0..self.shape.families).map(|family| db.column_family(&family_name(family))).collect();
        let families =
            families.ok_or_else(|| Wrong::Mismatch("of column families: one is not there".into()))?;
        db.verify_checksum().map_err(|e| Wrong::Mismatch(format!("of checksums: {e}")))?;
        let store = Store { front: Front::Plain(db), families };
        whole.verify(&Calls { store: Arc::new(store), asynchronous: false })
    }

    /// Runs all lanes to their ends.
    fn operate(&self, shared: &Arc<Shared>, calls: &Calls, extras: Extras) -> Result<(), Wrong> {
        let watched = shared.clone();
        std::thread::spawn(move || {
            // Nothing is written to standard input: it ends when the watching process closes it to
            // end this life, or is gone.
            let _ = std::io::stdin().read(&mut [0]);
            watched.over.store(true, Ordering::Relaxed);
        });
        let flags = &self.flags;
        let (store, place) = (Arc::downgrade(&calls.store), self.place.clone());
        let writers = flags.threads + flags.async_threads * flags.async_jobs;
        std::thread::spawn(move || {
            // The thread ends with the process or with the database.
            if let Err(wrong) = memtables::watch(&store, writers) {
                die(&place, &wrong);
            }
        });
        let blocking = (flags.threads - flags.async_threads) as usize;
        let jobs = flags.async_jobs as usize;
        let most = |share: u64| (flags.ops_per_thread > 0).then(|| flags.ops_per_thread.div_ceil(share));
        let mut extras = Some(extras).filter(|_| blocking > 0);
        let reactor = (shared.drawn.reactor && flags.async_threads > 0)
            .then(|| {
                let reactor = Reactor::builder(calls.store.db().env()).carries_writes(true);
                reactor.threads(flags.async_threads as usize).build()
            })
            .transpose()
            .map_err(|e| Wrong::Failed(format!("a reactor: {e}")))?;
        std::thread::scope(|scope| {
            for lane in 0..blocking {
                let lane = Lane::new(shared.clone(), calls.clone(), lane, extras.take());
                scope.spawn(move || self.or_die(run_blocking(lane.run(most(1)))));
            }
            let mut handles = Vec::new();
            for thread in 0..flags.async_threads as usize {
                let first = blocking + thread * jobs;
                let calls = Calls { asynchronous: true, ..calls.clone() };
                let lanes = (first..first + jobs).map({
                    let (shared, calls) = (shared.clone(), calls.clone());
                    move |lane| Lane::new(shared.clone(), calls.clone(), lane, None)
                });
                match &reactor {
                    Some(reactor) => handles.extend(lanes.map(|lane| {
                        let share = most(jobs as u64);
                        reactor.spawn_on(thread, move || lane.run(share))
                    })),
                    None => {
                        scope.spawn(move || {
                            let share = most(jobs as u64);
                            let one = |lane: Lane| -> Pin<Box<dyn Future<Output = ()> + '_>> {
                                Box::pin(async move { self.or_die(lane.run(share).await) })
                            };
                            run_all(lanes.map(one).collect());
                        });
                    }
                }
            }
            for handle in handles {
                let ended = handle.join().map_err(|e| Wrong::Failed(format!("a future: {e:?}")));
                self.or_die(ended.and_then(|ended| ended));
            }
        });
        Ok(())
    }

    fn or_die(&self, ended: Result<(), Wrong>) {
        if let Err(wrong) = ended {
            die(&self.place, &wrong);
        }
    }
}

fn closing(error: karst_engine::Error) -> Wrong {
    Wrong::Failed(format!("closing the database: {error}"))
}
