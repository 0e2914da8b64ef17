//! Snapshots taken and released while decided ranges are removed: each keeps showing the same, and
//! jobs know of each.

use super::prepared::{phase, readers, two_queues};
use super::*;
use crate::wal::sub_batches::SubBatches;
use crate::{Phase, Section};
use karst_base::snapshot::{ReadAt, Readers, Snapshot, Snapshots};
use karst_mem::pending::Range;
use karst_testkit::random::Random;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Total number of commits, plain writes included.
const COMMITS: u64 = 60_000;
/// Commits after which a snapshot is released, if not at once.
const LATER: u64 = 500;
/// Most recent transactions checked at a snapshot.
const LAST: usize = 48;
/// Open prepared transactions of a writer in the second thousand of every three. In the first there
/// are none, so that all ranges are decided and removed again and again; in the third none is
/// prepared but numbers advance.
const OPEN: usize = 8;
/// Most recent jobs that are checked.
const JOBS: usize = 4;

/// A prepared transaction.
struct Prepared {
    section: Arc<Section>,
    committed: AtomicBool,
}

impl Prepared {
    fn new(bench: &Bench, name: u64) -> Arc<Self> {
        let mut batch = WriteBatch::new();
        // A repeated key takes two numbers.
        (0..2).for_each(|_| batch.put(name.to_be_bytes(), "").unwrap());
        let numbers = SubBatches::of(batch.iter(), |_, a, b| a.cmp(b));
        let section = Arc::new(Section::new(&name.to_be_bytes(), batch, Some(numbers)));
        bench.pipeline.write(&WriteOptions::new(), phase(&section, Phase::Prepare)).unwrap();
        Arc::new(Self { section, committed: AtomicBool::new(false) })
    }

    fn commit(&self, bench: &Bench) {
        bench.pipeline.write(&WriteOptions::new(), phase(&self.section, Phase::Commit)).unwrap();
        self.committed.store(true, Ordering::SeqCst);
        bench.pipeline.forget_decided();
    }

    fn range(&self) -> &Range {
        self.section.range().expect("it is prepared")
    }

    /// Returns true if a reader at `at` sees it: all of it, if it was decided by then.
    fn is_seen(&self, at: &ReadAt) -> bool {
        let range = self.range();
        let seen = range.decided_at().is_some_and(|decided| decided <= at.seq.0);
        let numbers = [range.first(), range.end() - 1].map(|number| !at.hides(SeqNo(number)));
        assert_eq!(numbers, [seen; 2], "{range:?} at {}", at.seq);
        seen
    }
}

/// A snapshot, and the transactions it showed when it was taken.
struct View {
    snapshot: Snapshot,
    shown: Vec<(Arc<Prepared>, bool)>,
    /// Number of commits before it was taken.
    commits: u64,
    /// True if it is not released at once.
    kept: bool,
}

/// The readers known to a job that reads entries up to a number.
struct Job {
    visible: SeqNo,
    readers: Readers,
}

/// State shared by all threads.
struct Shared {
    bench: Bench,
    snapshots: Arc<Snapshots>,
    last: Mutex<VecDeque<Arc<Prepared>>>,
    jobs: Mutex<VecDeque<Arc<Job>>>,
    commits: AtomicU64,
}

fn push<T>(queue: &Mutex<VecDeque<T>>, new: T, most: usize) {
    let mut queue = queue.lock();
    queue.push_back(new);
    if queue.len() > most {
        queue.pop_front();
    }
}

impl Shared {
    fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    fn write(&self, writer: u64) {
        let (mut random, mut open) = (Random::new(writer), Vec::new());
        let mut names = (writer..).step_by(2);
        while self.commits() < COMMITS {
            let part = self.commits() / 1000 % 3;
            if part == 2 {
                self.bench.put("plain", "").unwrap();
                self.commits.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let prepared = Prepared::new(&self.bench, names.next().expect("there are more"));
            push(&self.last, prepared.clone(), LAST);
            open.push(prepared);
            while open.len() > if part == 0 { 0 } else { OPEN } {
                open.swap_remove(random.index(open.len())).commit(&self.bench);
                self.commits.fetch_add(1, Ordering::SeqCst);
            }
        }
        open.iter().for_each(|prepared| prepared.commit(&self.bench));
    }

    fn read(&self, reader: u64) {
        let (mut random, mut views) = (Random::new(reader), Vec::new());
        while self.commits() < COMMITS {
            views.push(self.view(&mut random));
            let visible = self.bench.pipeline.visible_seq();
            push(&self.jobs, Arc::new(Job { visible, readers: self.snapshots.readers() }), JOBS);
            let jobs: Vec<_> = self.jobs.lock().iter().cloned().collect();
            views.iter().for_each(|view| view.check(&jobs));
            let now = self.commits();
            views.retain(|view| view.kept && now < view.commits + LATER);
        }
    }

    fn view(&self, random: &mut Random) -> View {
        let last = self.last.lock().clone();
        let before: Vec<_> =
            last.into_iter().map(|one| (one.committed.load(Ordering::SeqCst), one)).collect();
        let commits = self.commits();
        let pipeline = &self.bench.pipeline;
        let dawdles = random.one_in(4);
        let newest = || {
            let seq = pipeline.read_seq();
            // Gives others time between reading the number and using it.
            if dawdles {
                std::thread::sleep(Duration::from_micros(10));
            }
            seq
        };
        let snapshot = self.snapshots.take(newest, 0, false).unwrap();
        let at = snapshot.read_at();
        pipeline.wait_until_readable(at.seq);
        let show = |(committed, one): (bool, Arc<Prepared>)| {
            let seen = one.is_seen(&at);
            assert!(seen || !committed, "{:?}, committed before, is not seen at {}", one.range(), at.seq);
            (one, seen)
        };
        let shown = before.into_iter().map(show).collect();
        View { snapshot, shown, commits, kept: random.one_in(8) }
    }
}

impl View {
    /// Checks that the snapshot shows the same as before, and that each job knows it. The order of
    /// the two does not matter: a job that began before a snapshot knows what it shows of the
    /// entries that the job reads.
    fn check(&self, jobs: &[Arc<Job>]) {
        let at = self.snapshot.read_at();
        for (one, shown) in &self.shown {
            assert_eq!(one.is_seen(&at), *shown, "{:?} at {}", one.range(), at.seq);
        }
        for Job { visible, readers } in jobs.iter().map(|job| &**job) {
            let listed = readers.snapshots.contains(&at.seq);
            assert!(listed || at.seq >= *visible, "a job that reads up to {visible} misses {}", at.seq);
            for (one, shown) in &self.shown {
                let first = SeqNo(one.range().first());
                if first > at.seq.min(*visible) {
                    continue;
                }
                let known = readers.pending.iter().find(|(pending, ..)| *pending == first);
                let is_told_apart = match known {
                    // A job treats it as written at its own number.
                    None => *shown,
                    Some((_, _, None)) => true,
                    Some((_, _, Some(decided))) => *shown == (*decided <= at.seq),
                };
                assert!(is_told_apart, "{known:?} is all a job knows of {:?} at {}", one.range(), at.seq);
            }
        }
    }
}

/// The other bug of RocksDB's pull request 14544: of two threads that refreshed the list of
/// snapshots, one replaced a newer list by an older one. A commit that a snapshot did not see was
/// then evicted from the cache unnoticed, and the snapshot saw it from then on.
#[test]
fn stress_a_snapshot_shows_the_same_and_jobs_know_it_however_many_commits_are_forgotten() {
    let bench = Bench::new(Rules { unordered: true, ..two_queues() });
    let shared = Shared {
        snapshots: readers(&bench),
        bench,
        last: Mutex::default(),
        jobs: Mutex::default(),
        commits: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let shared = &shared;
            scope.spawn(move || shared.write(thread));
            scope.spawn(move || shared.read(thread));
        }
    });
    let pending = shared.bench.pipeline.pending.as_ref().expect("there may be prepared transactions");
    assert!(pending.now().is_empty() && shared.snapshots.readers().pending.is_empty());
}
