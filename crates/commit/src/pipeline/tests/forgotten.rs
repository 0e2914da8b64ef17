//! Snapshots that are taken and released while commits are forgotten: each shows what it showed,
//! and jobs know of each.

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

/// Commits in all, plain writes among them.
const COMMITS: u64 = 60_000;
/// So many commits later a snapshot is released, if it is not at once.
const LATER: u64 = 500;
/// Transactions that a snapshot is asked about: the last that were prepared.
const LAST: usize = 48;
/// Transactions that a writer has prepared and not committed in the second thousand of three. In
/// the first it has none, so that all are decided, and forgotten, again and again; in the third
/// nothing is prepared but numbers go on.
const OPEN: usize = 8;
/// Jobs that are looked at: the last that asked.
const JOBS: usize = 4;

/// A transaction that is prepared.
struct Prepared {
    section: Arc<Section>,
    committed: AtomicBool,
}

impl Prepared {
    fn new(bench: &Bench, name: u64) -> Arc<Self> {
        let mut batch = WriteBatch::new();
        // One key twice has two numbers.
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

    /// Whether it is seen there, where everything is readable: all of it, if it was decided by
    /// then.
    fn is_seen(&self, at: &ReadAt) -> bool {
        let range = self.range();
        let seen = range.decided_at().is_some_and(|decided| decided <= at.seq.0);
        let numbers = [range.first(), range.end() - 1].map(|number| !at.hides(SeqNo(number)));
        assert_eq!(numbers, [seen; 2], "{range:?} at {}", at.seq);
        seen
    }
}

/// A snapshot, and what it showed when it was taken.
struct View {
    snapshot: Snapshot,
    shown: Vec<(Arc<Prepared>, bool)>,
    /// Before it was taken.
    commits: u64,
    /// For some time.
    kept: bool,
}

/// What a job knows that reads entries up to a number.
struct Job {
    visible: SeqNo,
    readers: Readers,
}

/// What all threads share.
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
            // Time for others between the number and what is done with it.
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
    /// It shows what it showed, and each job knows what it shows. It does not matter which was
    /// there first: a job that asked before knows what a later snapshot shows of what the job
    /// reads.
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
                    // To a job it is as if it had been written at its own number.
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
/// snapshots, one put an older list in the place of a newer. Then a commit left the cache that a
/// snapshot did not see, nobody knew, and from then on it did.
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
