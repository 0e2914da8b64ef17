//! Checks the states at the boundaries of a run.

use crate::check::{Outcome, State, check};
use crate::workload::{Known, Plan, record};
use karst_io::{CrashStates, Image, Simulation};
use karst_testkit::asked::{long, number};
use karst_testkit::panics::panics;
use karst_testkit::random::Random;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// One in this many states is checked in the short form; below, in the long form.
const SHARE: u64 = 48;
const LONG_SHARE: u64 = 8;
/// Number of changes that are printed before a state that is checked alone.
const CHANGES_SHOWN: usize = 40;
/// After one in this many states the power fails again, while the database is opened.
const AGAIN: u64 = 4;

/// Returns the boundary and the state that `KARST_STATE` names.
fn one_state() -> Option<(usize, usize)> {
    let text = std::env::var("KARST_STATE").ok()?;
    let parts = text.split_once('.').and_then(|(at, state)| Some((at.parse().ok()?, state.parse().ok()?)));
    Some(parts.unwrap_or_else(|| panic!("KARST_STATE={text} is not boundary.state")))
}

/// Returns true for files that opening a database does not read.
fn indifferent(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
}

#[derive(Debug, Default)]
struct Count {
    boundaries: usize,
    /// Numbers of distinct states and of checked ones.
    states: usize,
    checked: usize,
    refused: usize,
    /// States at whose opening the power failed again.
    again: usize,
    /// States that lack acknowledged unsynced batches.
    losing: usize,
    /// Writes and syncs of the log that tasks carried while the run was recorded.
    carried: u64,
}

/// Records a run for each seed and checks its states.
pub(crate) fn explore(plan: &Plan) {
    let seeds = match number("KARST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KARST_SEEDS").unwrap_or(1),
    };
    let mut count = Count::default();
    let begin = std::time::Instant::now();
    for seed in seeds {
        explore_one(plan, seed, &mut count);
    }
    println!("{}: {count:?} in {:.1?}", plan.name, begin.elapsed());
    let one = number("KARST_SEED").is_some();
    assert!(one || (count.boundaries > 200 && count.checked > 50), "nothing was tried: {count:?}");
    assert!(one || count.losing > 0, "no state has lost anything: {count:?}");
    assert!(one || count.carried > 0, "all rounds of the log were led by jobs: {count:?}");
}

fn explore_one(plan: &Plan, seed: u64, count: &mut Count) {
    let run = record(plan, seed);
    let share = match () {
        () if one_state().is_some() || number("KARST_SEEDS").is_some() => 1,
        () if long() => LONG_SHARE,
        () => SHARE,
    };
    let mut states = CrashStates::new(&run.journal, indifferent);
    let mut seen = HashSet::new();
    loop {
        let at = states.boundary();
        if let Some((wanted, _)) = one_state() {
            if at <= wanted && at + CHANGES_SHOWN > wanted {
                eprintln!("{at}: {}", states.last_change());
            }
            if at != wanted {
                if states.advance() {
                    continue;
                }
                break;
            }
        }
        let point = states.point(seed);
        let (strength, known) = run.known(at);
        for state in 0..point.len() {
            let wanted = match one_state() {
                Some(one) => one == (at, state),
                None => seen.insert((point.hash(state), strength)),
            };
            if !wanted {
                continue;
            }
            count.states += 1;
            if !point.hash(state).is_multiple_of(share) {
                continue;
            }
            count.checked += 1;
            let before = panics();
            let one = AssertUnwindSafe(|| {
                let simulation = Simulation::with_image(&point.image(state), seed);
                if one_state().is_some() {
                    simulation.keep_trace();
                }
                let kind = State { whole: point.is_whole(state), damaged: point.damaged(state) };
                let outcome = check(plan, known, kind, &simulation);
                if outcome != Outcome::Refused && (point.hash(state) / share).is_multiple_of(AGAIN) {
                    crash_again(plan, known, &point.image(state), point.hash(state));
                    count.again += 1;
                }
                assert_eq!(panics(), before, "a task panicked");
                outcome
            });
            match catch_unwind(one) {
                Ok(Outcome::Refused) => count.refused += 1,
                Ok(Outcome::Recovered { lost }) => count.losing += usize::from(lost > 0),
                Err(panic) => {
                    eprintln!(
                        "\n{} fails at boundary {at} of {} (after {}), state {state}: {}\n{:?}\nto replay it:\n  \
                         KARST_SEED={seed} KARST_STATE={at}.{state} cargo test -p karst-engine --test crash_states {}\n",
                        plan.name,
                        run.journal.len(),
                        states.last_change(),
                        point.what(state),
                        point.image(state),
                        plan.name,
                    );
                    resume_unwind(panic);
                }
            }
        }
        if !states.advance() {
            break;
        }
    }
    count.boundaries += run.journal.len() + 1;
    count.carried += run.carried;
}

/// Fails the power again while the database is opened, at a random boundary of the opening, and
/// checks one of the states there.
fn crash_again(plan: &Plan, known: &Known, image: &Image, seed: u64) {
    let simulation = Simulation::with_image(image, seed);
    simulation.fs().record();
    let options = plan.options(simulation.env());
    let journal = simulation.run(async {
        let opened = plan.open(&options);
        let journal = simulation.fs().take_journal().expect("it is recorded");
        opened.unwrap_or_else(|e| panic!("opening to fail: {e}"));
        journal
    });
    let journal = journal.expect("the power is on");
    let mut random = Random::new(seed);
    let mut states = CrashStates::new(&journal, indifferent);
    for _ in 0..random.index(journal.len() + 1) {
        states.advance();
    }
    let point = states.point(seed);
    let state = random.index(point.len());
    let after = states.last_change();
    let _told = Told(format!(
        "while it was opened, at boundary {} of {} (after {after}): {}",
        states.boundary(),
        journal.len(),
        point.what(state)
    ));
    let kind = State { whole: false, damaged: point.damaged(state) };
    check(plan, known, kind, &Simulation::with_image(&point.image(state), seed));
}

/// Text that is printed if the thread panics.
struct Told(String);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
