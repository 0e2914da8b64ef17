//! Explores schedules of a scenario: half of them random, half by PCT, which changes the order of
//! threads only at a few random moments and so finds failures that need long undisturbed runs in
//! between.
//!
//! Input: a scenario, and the number of schedules from the environment. Output: the number of
//! schedules run, or the failure with its schedule as a string.

use karst_testkit::asked::number;
use karst_testkit::random::Random;
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, MaxSteps, Runner};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Default number of schedules of a scenario.
const SCHEDULES: usize = 1500;
/// One more than the number of moments at which PCT changes the running thread.
const DEPTH: usize = 4;
/// Number of steps that no schedule here reaches; a thread with more waits for an event that never
/// happens.
const MOST_STEPS: usize = 1_000_000;
/// Number of schedules of each scheduler before the other one takes over.
const IN_TURN: usize = 50;
const STACK_BYTES: usize = 1 << 20;

/// Explores schedules of `scenario`, which draws its operations from the generator it is given.
pub(crate) fn explore(name: &str, scenario: fn(&mut Random)) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    let steps = Arc::new(AtomicU64::new(0));
    let counted = steps.clone();
    // Drawn from shuttle, so that the numbers are part of the schedule.
    let (begun, begins) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let beginning = begun.clone();
    let body = move || {
        beginning.fetch_add(1, Ordering::Relaxed);
        scenario(&mut Random::new(shuttle::rand::thread_rng().next_u64()));
        counted.fetch_add(shuttle::current::context_switches() as u64, Ordering::Relaxed);
    };
    if let Ok(schedule) = std::env::var("KARST_SCHEDULE") {
        let schedule = match schedule.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}")),
            None => schedule,
        };
        return go(Again::of(&schedule), &config, &body);
    }
    let schedules = number("KARST_SCHEDULES").map_or(SCHEDULES, |n| n as usize);
    let seed = number("KARST_SEED").unwrap_or_else(fresh_seed);
    println!("{name}: {schedules} schedules from seed {seed}");
    let _told = Told { name, begun: &begun, began: begins };
    let mut seeds = Random::new(seed);
    for first in (0..schedules).step_by(2 * IN_TURN) {
        let both = (schedules - first).min(2 * IN_TURN);
        let seed = seeds.next_u64();
        go(Where(RandomScheduler::new_from_seed(seed, both / 2)), &config, &body);
        go(Where(PctScheduler::new_from_seed(seed, DEPTH, both - both / 2)), &config, &body);
    }
    println!("{name}: {} steps on average", steps.load(Ordering::Relaxed) / schedules.max(1) as u64);
}

/// Prints at the end, also after a failure, the number of schedules that were run.
struct Told<'a> {
    name: &'a str,
    begun: &'a AtomicU64,
    began: Instant,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let (begun, seconds) = (self.begun.load(Ordering::Relaxed), self.began.elapsed().as_secs_f64());
        let outcome = if std::thread::panicking() { "failed in" } else { "went through" };
        println!("{}: {outcome} {begun} schedules, {seconds:.1} s", self.name);
    }
}

std::thread_local! {
    /// True while scheduling decisions are explored. A thread-local of std, because it belongs to
    /// the executing thread, not to shuttle's threads.
    static EXPLORES: Cell<bool> = const { Cell::new(false) };
}

/// Explores the schedules of `body`. Outside of it, threads run one after the other, each as long
/// as it can, because otherwise preparation and checks would be most of the explored steps.
pub(crate) fn explored(body: impl FnOnce()) {
    EXPLORES.set(true);
    body();
    EXPLORES.set(false);
}

/// Scheduler that decides inside of [`explored`] only.
#[derive(Debug)]
struct Where<S>(S);

impl<S: Scheduler> Scheduler for Where<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        EXPLORES.set(false);
        self.0.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        if EXPLORES.get() {
            return self.0.next_task(runnable, current, yields);
        }
        let goes_on = |task: &&&Task| Some(task.id()) == current && !yields;
        let next = |task: &&&Task| Some(task.id()) > current;
        let first = runnable.iter().find(goes_on).or_else(|| runnable.iter().find(next));
        first.or(runnable.first()).map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Scheduler that replays a failed schedule up to its failure. Afterwards the threads take turns,
/// so that unwinding completes.
#[derive(Debug)]
struct Again {
    schedule: ReplayScheduler,
    turns: usize,
}

impl Again {
    fn of(schedule: &str) -> Self {
        let mut schedule = ReplayScheduler::new_from_encoded(schedule);
        schedule.set_allow_incomplete();
        Self { schedule, turns: 0 }
    }
}

impl Scheduler for Again {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.schedule.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        self.schedule.next_task(runnable, current, yields).or_else(|| {
            self.turns += 1;
            Some(runnable[self.turns % runnable.len()].id())
        })
    }

    fn next_u64(&mut self) -> u64 {
        self.schedule.next_u64()
    }
}

fn go(
    scheduler: impl Scheduler + 'static,
    config: &Config,
    body: &(impl Fn() + Clone + Send + Sync + 'static),
) {
    Runner::new(scheduler, config.clone()).run(body.clone());
}

/// Returns a different seed in each run.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
