//! One fault per run, in every operation on every kind of file, at each occurrence in a short
//! scripted use of a database on the simulated machine
//! ([docs/decisions/crash-states.md](../../../../docs/decisions/crash-states.md)).
//!
//! A first run counts the operations by kind of file. Then each combination of kind, operation and
//! fault is tried, at all occurrences or at some drawn with a seed. Checked in all: no panic and no
//! hang, an error names a file, and no value is ever wrong. After a fault that the operation
//! reports (an error, a short or late read) the database works again, if necessary after reopening,
//! and has lost nothing. After an unreported one (wrong bytes read or written) unreadable data
//! gives an error, except for the [`unseen`].
//!
//! | file | holds |
//! |---|---|
//! | `kinds` | kinds of files, the faults of each operation, and undetectable damage |
//! | `story` | the scripted use of the database, and recovery after an error |
//!
//! Environment: `KARST_LONG_TESTS=1` tries more occurrences; `KARST_OCCURRENCES=<n>` tries n of
//! each combination; `KARST_FAULT="Table Read Short 3"` tries that one only.

#[path = "../simulation/ingesting.rs"]
mod ingesting;
mod kinds;
#[path = "../kill/reading.rs"]
mod reading;
mod story;
#[path = "../kill/writing.rs"]
mod writing;

use karst_io::{Fault, Operation, Simulation};
use karst_testkit::asked::{long, number};
use karst_testkit::panics::panics;
use karst_testkit::random::Random;
use kinds::{Kind, Nature, faults, nature, unseen};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use story::{End, Story};

/// Number of occurrences of each combination that are tried.
const OCCURRENCES: u64 = 4;
const LONG_OCCURRENCES: u64 = 16;

/// Returns the only case to try, if `KARST_FAULT` names one.
fn one_case() -> Option<String> {
    std::env::var("KARST_FAULT").ok()
}

fn occurrences() -> u64 {
    if one_case().is_some() {
        return u64::MAX;
    }
    number("KARST_OCCURRENCES").unwrap_or(if long() { LONG_OCCURRENCES } else { OCCURRENCES })
}

type Census = BTreeMap<(Kind, Operation), u64>;

/// Returns the number of operations by kind of file in a run without faults.
fn census() -> Census {
    let counts: Arc<Mutex<Census>> = Arc::default();
    let simulation = Simulation::new(1);
    let counting = counts.clone();
    simulation.fs().set_faults(move |operation, path| {
        *counting.lock().unwrap().entry((Kind::of(path), operation)).or_default() += 1;
        None
    });
    assert_eq!(Story::new(Nature::Told).run(&simulation), End::Right);
    drop(simulation);
    let counts = counts.lock().unwrap();
    counts.clone()
}

/// A combination at one of its occurrences.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    operation: Operation,
    fault: Fault,
    occurrence: u64,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case { kind, operation, fault, occurrence } = self;
        write!(f, "{kind:?} {operation:?} {fault:?} {occurrence}")
    }
}

/// Runs a case. Returns its end and the errors before it.
fn try_case(case: Case) -> (End, Vec<String>) {
    let simulation = Simulation::new(1);
    let mut seen = 0;
    simulation.fs().set_faults(move |operation, path| {
        let strikes = operation == case.operation && Kind::of(path) == case.kind && {
            seen += 1;
            seen == case.occurrence
        };
        strikes.then_some(case.fault)
    });
    let mut story = Story::new(nature(case.fault));
    let end = story.run(&simulation);
    assert!(simulation.fs().failures() > 0, "the fault did not strike");
    (end, story.told)
}

/// Asserts that `case` may end like this, with these errors.
fn judge(case: Case, end: &End, errors: &[String]) {
    let of_a_place = matches!(case.operation, Operation::Read | Operation::Write);
    if let (true, Fault::Fail(_), Some(first)) = (of_a_place, case.fault, errors.first()) {
        assert!(first.contains("at offset"), "says no offset: {first}");
    }
    let allowed = match end {
        End::Right => true,
        End::Refused => nature(case.fault) == Nature::Silent,
        End::Lost { told } => {
            nature(case.fault) == Nature::Silent && (*told || unseen(case.kind, case.fault).is_some())
        }
    };
    assert!(allowed, "{end:?}");
}

/// Tries the combinations of the operations that `share` selects.
fn try_all(share: impl Fn(Operation) -> bool) {
    let census = census();
    let (mut combinations, mut tried, mut told) = (0, 0, 0);
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for (&(kind, operation), &count) in census.iter().filter(|((_, operation), _)| share(*operation)) {
        for &fault in faults(operation) {
            combinations += 1;
            let mut random = Random::new(count ^ combinations);
            let drawn: BTreeSet<u64> = match occurrences() {
                most if most < count => (0..most).map(|_| 1 + random.below(count)).collect(),
                _ => (1..=count).collect(),
            };
            for occurrence in drawn {
                // Flips a different bit at each occurrence.
                let fault = match fault {
                    Fault::Flip(bit) => Fault::Flip(bit * occurrence),
                    fault => fault,
                };
                let case = Case { kind, operation, fault, occurrence };
                if one_case().is_some_and(|wanted| wanted != case.to_string()) {
                    continue;
                }
                tried += 1;
                let before = panics();
                let one = AssertUnwindSafe(|| {
                    let (end, errors) = try_case(case);
                    assert_eq!(panics(), before, "a task panicked");
                    judge(case, &end, &errors);
                    told += u64::from(!errors.is_empty());
                    if one_case().is_some() {
                        println!("{case}: {end:?}; {errors:#?}");
                    }
                    let what =
                        if end == End::Right { String::new() } else { format!("{kind:?} {operation:?}: ") };
                    *ends.entry(format!("{what}{end:?}")).or_default() += 1;
                });
                if let Err(panic) = catch_unwind(one) {
                    eprintln!(
                        "\n{case} of {count} fails; to replay it:\n  KARST_FAULT=\"{case}\" cargo test -p karst-engine --test faults\n"
                    );
                    resume_unwind(panic);
                }
            }
        }
    }
    println!("{combinations} combinations, {tried} faults, {told} told of by an error; {ends:?}");
    assert!(
        one_case().is_some() || (tried >= combinations && told * 4 > tried),
        "{told} of {tried} were told of"
    );
}

#[test]
fn faults_of_reading() {
    use Operation::{List, Metadata, Open, Read, ReadAll};
    try_all(|operation| matches!(operation, Open | Read | ReadAll | List | Metadata));
}

#[test]
fn faults_of_writing() {
    use Operation::{OpenToWrite, Sync, Truncate, Write};
    try_all(|operation| matches!(operation, Write | Sync | Truncate | OpenToWrite));
}

#[test]
fn faults_of_names() {
    use Operation::{Create, CreateDirectory, Link, Lock, Remove, Rename, SyncDirectory};
    try_all(|operation| {
        matches!(operation, Create | Rename | Link | Remove | SyncDirectory | CreateDirectory | Lock)
    });
}
