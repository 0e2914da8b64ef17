//! The task `soak`: every test that has a long form, in turns, with a new seed for each round, for
//! a given number of hours.
//!
//! In: hours, names of suites, optionally a first seed. Out: progress, the output of each failing
//! run in a folder, and a report; a failure does not stop the run, and makes the exit code 1. The
//! table [`SUITES`] has a line for each suite.

use crate::ci::install_judge;
use crate::run::{Result, cache_dir, fresh_seed, path_text, repository_root, since_epoch};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Program that runs a suite. `{seed}` in arguments and variables is replaced by the round's seed.
#[derive(Clone, Copy)]
enum Runner {
    /// `cargo test` with these arguments.
    Test(&'static [&'static str]),
    /// `cargo test` with these `RUSTFLAGS` and arguments, in a separate target directory.
    TestWith(&'static str, &'static [&'static str]),
    /// `karstdb` with these arguments.
    Karst(&'static [&'static str]),
    /// The judge of RocksDB 11.8 with these arguments.
    Judge(&'static [&'static str]),
    /// Each fuzz target, for this number of seconds.
    Fuzz(u64),
}

/// A test that has a long form.
struct Suite {
    name: &'static str,
    /// Description in lists.
    what: &'static str,
    /// Path in the repository that the suite needs.
    needs: &'static str,
    runner: Runner,
    env: &'static [(&'static str, &'static str)],
    /// Pattern of a count in its output, with `#` for the number.
    counts: &'static str,
}

const LONG: (&str, &str) = ("KARST_LONG_TESTS", "1");
const SEED: (&str, &str) = ("KARST_SEED", "{seed}");

/// All suites. A round of each takes minutes.
#[rustfmt::skip]
const SUITES: &[Suite] = &[
    Suite { name: "stress", what: "karstdb stress: threads, futures, transactions, kills, random options", needs: "crates/tools/src/stress", runner: Runner::Karst(&["stress", "-duration=5m", "-interval=8s", "-progress_every=0", "-seed={seed}"]), env: &[], counts: "# operations" },
    Suite { name: "kills", what: "processes of both engines on one directory are killed while they count", needs: "judge/src/kills.rs", runner: Runner::Judge(&["kills", "--kills", "300", "--seed", "{seed}"]), env: &[], counts: "killed: #" },
    Suite { name: "kill", what: "the same of KarstDB alone", needs: "crates/engine/tests/kill.rs", runner: Runner::Test(&["-p", "karst-engine", "--test", "kill"]), env: &[LONG, SEED, ("KARST_KILLS", "400")], counts: "killed: #" },
    Suite { name: "simulation", what: "the engine on a simulated machine: power failures, failing disks", needs: "crates/engine/tests/simulation", runner: Runner::Test(&["-p", "karst-engine", "--test", "simulation"]), env: &[LONG, SEED, ("KARST_SEEDS", "60")], counts: "# operations" },
    Suite { name: "txn_simulation", what: "transactions on the simulated machine", needs: "crates/txn/tests/simulation", runner: Runner::Test(&["-p", "karst-txn", "--test", "simulation"]), env: &[LONG, SEED, ("KARST_SEEDS", "40")], counts: "# crashes" },
    Suite { name: "commit_order", what: "10^8 reads held against the order of commits", needs: "crates/txn/tests/commit_order.rs", runner: Runner::Test(&["--release", "-p", "karst-txn", "--test", "commit_order"]), env: &[LONG, SEED], counts: "# keys in" },
    Suite { name: "recycled_logs", what: "power failures around the exchange of logs", needs: "crates/engine/tests/writes/recycled_logs.rs", runner: Runner::Test(&["-p", "karst-engine", "--test", "writes", "recycled_logs::"]), env: &[SEED, ("KARST_SEEDS", "2000")], counts: "# passed" },
    Suite { name: "flush_failures", what: "flushes whose disk fails", needs: "crates/engine/tests/writes/flush/failures.rs", runner: Runner::Test(&["-p", "karst-engine", "--test", "writes", "flush::failures::"]), env: &[SEED, ("KARST_SEEDS", "1000")], counts: "# passed" },
    Suite { name: "secondary", what: "a primary that is killed over and over, and a secondary in another process", needs: "crates/engine/tests/secondary", runner: Runner::Test(&["-p", "karst-engine", "--test", "secondary"]), env: &[LONG], counts: "# states of" },
    Suite { name: "damage", what: "damage to every byte range of every file", needs: "crates/engine/tests/damage", runner: Runner::Test(&["-p", "karst-engine", "--test", "damage"]), env: &[LONG, SEED], counts: "# cases" },
    Suite { name: "cancellation", what: "reads that are given up while the device is slow or fails", needs: "crates/engine/tests/cancellation.rs", runner: Runner::Test(&["-p", "karst-engine", "--test", "cancellation"]), env: &[LONG, SEED], counts: "given_up: #" },
    Suite { name: "written", what: "databases of KarstDB that RocksDB 7.8 reads and goes on with", needs: "crates/engine/tests/written", runner: Runner::Test(&["-p", "karst-engine", "--test", "written"]), env: &[LONG, SEED], counts: "# passed" },
    Suite { name: "matrix", what: "databases of RocksDB 11.8, one for each cell of the option matrix", needs: "judge/src/matrix/mod.rs", runner: Runner::Judge(&["matrix"]), env: &[], counts: "# entries" },
    Suite { name: "judge_written", what: "databases of KarstDB that RocksDB 11.8 reads and goes on with", needs: "judge/src/written.rs", runner: Runner::Judge(&["written"]), env: &[], counts: "# answers" },
    Suite { name: "prepared", what: "transactions that one engine prepares and the other decides", needs: "judge/src/prepared.rs", runner: Runner::Judge(&["prepared"]), env: &[], counts: "# lives" },
    Suite { name: "lockstep", what: "the same operations on both engines, every read compared", needs: "judge/src/lockstep/mod.rs", runner: Runner::Judge(&["lockstep", "--ops", "100000", "--seed", "{seed}"]), env: &[], counts: "# operations" },
    Suite { name: "threads", what: "schedules of threads, explored by shuttle", needs: "crates/engine/tests/threads", runner: Runner::TestWith("--cfg shuttle", &["--release", "-p", "karst-engine", "--test", "threads"]), env: &[SEED, ("KARST_SCHEDULES", "5000")], counts: "# schedules of" },
    Suite { name: "crash_states", what: "every state that a power failure may leave", needs: "crates/engine/tests/crash_states", runner: Runner::Test(&["-p", "karst-engine", "--test", "crash_states"]), env: &[LONG, SEED], counts: "checked: #" },
    Suite { name: "faults", what: "one fault at a time, of every kind of file", needs: "crates/engine/tests/faults", runner: Runner::Test(&["-p", "karst-engine", "--test", "faults"]), env: &[LONG, SEED], counts: "# passed" },
    Suite { name: "fuzz", what: "every decoder, from an empty corpus", needs: "fuzz/fuzz_targets", runner: Runner::Fuzz(30), env: &[], counts: "stat::number_of_executed_units: #" },
    Suite { name: "loom", what: "every interleaving of small scenarios", needs: "crates/mem", runner: Runner::TestWith("--cfg loom", &["--release", "-p", "karst-mem", "-p", "karst-io", "-p", "karst-commit", "-p", "karst-txn", "--lib", "loom"]), env: &[], counts: "# passed" },
];

/// Maximum time of a run; a longer one counts as hanging.
const LONGEST: Duration = Duration::from_secs(3 * 3600);
const LOOK: Duration = Duration::from_millis(200);

/// One command of a round.
struct Step {
    dir: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Step {
    /// The command as a shell line.
    fn line(&self) -> String {
        let quoted = |value: &str| if value.contains(' ') { format!("'{value}'") } else { value.to_string() };
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let args = self.args.iter().map(|arg| quoted(arg));
        let words: Vec<String> = env.chain(std::iter::once("cargo".to_string())).chain(args).collect();
        format!("cd {} && {}", self.dir.display(), words.join(" "))
    }
}

impl Suite {
    fn is_here(&self) -> bool {
        repository_root().join(self.needs).exists()
    }

    fn is_judges(&self) -> bool {
        matches!(self.runner, Runner::Judge(_))
    }

    /// True if a round depends on its seed.
    fn takes_seed(&self) -> bool {
        let in_args = match self.runner {
            Runner::Test(args) | Runner::TestWith(_, args) | Runner::Karst(args) | Runner::Judge(args) => {
                args
            }
            Runner::Fuzz(_) => return true,
        };
        in_args
            .iter()
            .copied()
            .chain(self.env.iter().map(|(_, value)| *value))
            .any(|text| text.contains("{seed}"))
    }

    /// The commands of a round.
    fn steps(&self, seed: u64) -> Result<Vec<Step>> {
        let root = repository_root();
        let with_seed = |text: &str| text.replace("{seed}", &seed.to_string());
        let mut env: Vec<(String, String)> =
            self.env.iter().map(|(name, value)| ((*name).to_string(), with_seed(value))).collect();
        // A release build is stripped, but the backtrace of a rare failure needs symbols and lines.
        let is_release = match self.runner {
            Runner::Test(args) | Runner::TestWith(_, args) => args.contains(&"--release"),
            Runner::Karst(_) => true,
            Runner::Judge(_) | Runner::Fuzz(_) => false,
        };
        if is_release {
            let symbols = [("STRIP", "none"), ("DEBUG", "line-tables-only")];
            env.extend(symbols.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value.into())));
        }
        let target = |name: &str| -> Result<(String, String)> {
            let dir = cache_dir().join(name);
            Ok(("CARGO_TARGET_DIR".into(), path_text(&dir)?.into()))
        };
        let all = |before: &[&str], args: &[&str], behind: &[&str]| -> Vec<String> {
            [before, args, behind].concat().iter().map(|arg| with_seed(arg)).collect()
        };
        let shown = ["--", "--nocapture"];
        let (dir, args) = match self.runner {
            Runner::Test(args) => (root, all(&["test"], args, &shown)),
            Runner::TestWith(flags, args) => {
                let name = flags.rsplit(' ').next().expect("a word");
                env.push(("RUSTFLAGS".into(), flags.into()));
                env.push(target(&format!("{name}-target"))?);
                (root, all(&["test"], args, &shown))
            }
            Runner::Karst(args) => (root, all(&["run", "--release", "-p", "karst-tools", "--"], args, &[])),
            Runner::Judge(args) => {
                env.push(target("judge-target")?);
                (root.join("judge"), all(&["run", "--release", "--locked", "--"], args, &[]))
            }
            Runner::Fuzz(seconds) => {
                let dir = root.join("fuzz");
                env.push(target("fuzz-target")?);
                let of = |name: String| {
                    let (time, seed) =
                        (format!("-max_total_time={seconds}"), format!("-seed={}", seed as u32));
                    let behind = ["--", &time, &seed, "-print_final_stats=1", "-verbosity=0"];
                    let args = all(&["run", "--release", "--locked", "--bin", &name], &[], &behind);
                    Step { dir: dir.clone(), args, env: env.clone() }
                };
                return Ok(crate::ci::fuzz_targets()?.into_iter().map(of).collect());
            }
        };
        Ok(vec![Step { dir, args, env }])
    }
}

/// Returns the sum of all numbers in `text` at the place of `#` in `pattern`.
fn counted(text: &str, pattern: &str) -> u64 {
    let (before, behind) = pattern.split_once('#').expect("a pattern has its number");
    let is_digit = |c: &char| c.is_ascii_digit();
    let mut sum = 0;
    if before.is_empty() {
        for (at, _) in text.match_indices(behind) {
            let digits: String = text[..at].chars().rev().take_while(is_digit).collect();
            sum += digits.chars().rev().collect::<String>().parse::<u64>().unwrap_or(0);
        }
        return sum;
    }
    for (at, _) in text.match_indices(before) {
        let rest = &text[at + before.len()..];
        let digits: String = rest.trim_start().chars().take_while(is_digit).collect();
        sum += digits.parse::<u64>().unwrap_or(0);
    }
    sum
}

/// Settings from the command line.
struct Asked {
    hours: f64,
    suites: Vec<&'static Suite>,
    /// Seed of the first round; from the clock if None.
    seed: Option<u64>,
    folder: PathBuf,
}

fn parse(args: &[String]) -> Result<Option<Asked>> {
    let (mut hours, mut names, mut seed) = (1.0, Vec::new(), None);
    let mut folder = cache_dir().join("soak").join(since_epoch().as_secs().to_string());
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        if word == "--list" {
            return Ok(None);
        }
        let value = rest.next().ok_or_else(|| format!("{word}: which?"))?;
        let wrong = |e: &dyn std::fmt::Display| format!("{word} {value}: {e}");
        match word.as_str() {
            "--hours" => hours = value.parse().map_err(|e| wrong(&e))?,
            "--suite" => names.extend(value.split(',').map(str::to_string)),
            "--seed" => seed = Some(value.parse().map_err(|e| wrong(&e))?),
            "--folder" => folder = PathBuf::from(value),
            _ => return Err(format!("soak takes --hours, --suite, --seed, --folder and --list, not {word}")),
        }
    }
    if !(hours > 0.0 && hours < 10_000.0) {
        return Err(format!("--hours {hours}: not a time"));
    }
    let mut suites = Vec::new();
    for name in &names {
        let suite = SUITES.iter().find(|suite| suite.name == name);
        let suite =
            suite.ok_or_else(|| format!("there is no suite {name}; `cargo xtask soak --list` shows all"))?;
        if !suite.is_here() {
            return Err(format!("suite {name}: {} is not there", suite.needs));
        }
        suites.push(suite);
    }
    if names.is_empty() {
        suites.extend(SUITES.iter().filter(|suite| suite.is_here()));
    }
    Ok(Some(Asked { hours, suites, seed, folder }))
}

fn list() -> String {
    let mut text = String::new();
    for suite in SUITES {
        let here = if suite.is_here() { "" } else { " (not there yet)" };
        let seed = if suite.takes_seed() { "" } else { ", the same in each round" };
        let _ = writeln!(text, "{:<16} {}{seed}{here}", suite.name, suite.what);
    }
    text
}

/// Results of a suite.
#[derive(Default)]
struct Outcome {
    rounds: u64,
    time: Duration,
    counted: u64,
    failures: Vec<Failure>,
}

struct Failure {
    seed: u64,
    line: String,
    log: PathBuf,
    what: String,
}

/// Runs suites in turns until the time is over.
pub(crate) fn soak(args: &[String]) -> Result {
    let Some(asked) = parse(args)? else {
        print!("{}", list());
        return Ok(());
    };
    if asked.suites.iter().any(|suite| suite.is_judges()) {
        install_judge()?;
    }
    std::fs::create_dir_all(&asked.folder).map_err(|e| format!("{}: {e}", asked.folder.display()))?;
    let names: Vec<&str> = asked.suites.iter().map(|suite| suite.name).collect();
    println!(
        "soak: {} hours of {}\nfailures are kept in {}",
        asked.hours,
        names.join(", "),
        asked.folder.display()
    );
    let (started, all) = (Instant::now(), Duration::from_secs_f64(asked.hours * 3600.0));
    let mut outcomes: Vec<Outcome> = asked.suites.iter().map(|_| Outcome::default()).collect();
    for round in 0.. {
        for (suite, outcome) in asked.suites.iter().zip(&mut outcomes) {
            let Some(left) = all.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) else {
                return told(&asked, &outcomes, started.elapsed());
            };
            let seed = asked.seed.map_or_else(fresh_seed, |first| first + round);
            println!(
                "round {}, {}, seed {seed}: {} after the beginning, {} left",
                round + 1,
                suite.name,
                clock(started.elapsed()),
                clock(left)
            );
            let before = (outcome.failures.len(), outcome.counted, Instant::now());
            one_round(suite, seed, &asked.folder, round, outcome)?;
            let ended = if outcome.failures.len() > before.0 { "FAILED" } else { "passed" };
            let what = suite.counts.replace('#', &(outcome.counted - before.1).to_string());
            println!("  {ended} in {:.0} s: {what}", before.2.elapsed().as_secs_f64());
        }
    }
    unreachable!("the time is over one day")
}

fn one_round(suite: &Suite, seed: u64, folder: &Path, round: u64, outcome: &mut Outcome) -> Result {
    let begun = Instant::now();
    for (number, step) in suite.steps(seed)?.into_iter().enumerate() {
        let log = folder.join(format!("round-{}-{}-{number}.log", round + 1, suite.name));
        let failed = run(&step, &log).err();
        let text = std::fs::read(&log).unwrap_or_default();
        outcome.counted += counted(&String::from_utf8_lossy(&text), suite.counts);
        match failed {
            None => drop(std::fs::remove_file(&log)),
            Some(what) => {
                println!("  {what}; its output is in {}\n  to repeat it: {}", log.display(), step.line());
                outcome.failures.push(Failure { seed, line: step.line(), log, what });
            }
        }
    }
    outcome.rounds += 1;
    outcome.time += begun.elapsed();
    Ok(())
}

/// Runs a command to its end, with its output in a file.
fn run(step: &Step, log: &Path) -> Result {
    let open = || File::create(log).map_err(|e| format!("{}: {e}", log.display()));
    let out = open()?;
    let err = out.try_clone().map_err(|e| format!("{}: {e}", log.display()))?;
    let mut command = Command::new("cargo");
    // The variables are removed for the reason given in `run::step_in`.
    for inherited in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
        command.env_remove(inherited);
    }
    command.args(&step.args).envs(step.env.iter().cloned()).current_dir(&step.dir);
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = command.spawn().map_err(|e| format!("cannot run cargo: {e}"))?;
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("it ended with {status}")),
            None if begun.elapsed() > LONGEST => {
                kill(&mut child);
                return Err(format!("it hangs: it was killed after {}", clock(LONGEST)));
            }
            None => std::thread::sleep(LOOK),
        }
    }
}

/// Kills a process and all its descendants.
fn kill(child: &mut Child) {
    let mut all = vec![child.id()];
    let mut at = 0;
    while at < all.len() {
        let children = children_of(all[at]);
        all.extend(children);
        at += 1;
    }
    for process in all.iter().rev() {
        let _ = Command::new("kill").args(["-KILL", &process.to_string()]).status();
    }
    let _ = child.wait();
}

fn children_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    // The name ends with the last parenthesis; the state and the parent's id follow.
    let is_child = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let behind = stat.rsplit(')').next().unwrap_or_default();
        behind.split_whitespace().nth(1).and_then(|word| word.parse().ok()) == Some(parent)
    };
    entries.filter_map(number).filter(is_child).collect()
}

/// Prints the report, and returns an error if a run failed.
fn told(asked: &Asked, outcomes: &[Outcome], elapsed: Duration) -> Result {
    println!("\n{}", report(asked, outcomes, elapsed));
    let failures: usize = outcomes.iter().map(|outcome| outcome.failures.len()).sum();
    match failures {
        0 => Ok(()),
        _ => Err(format!("{failures} runs failed; their output is in {}", asked.folder.display())),
    }
}

fn report(asked: &Asked, outcomes: &[Outcome], elapsed: Duration) -> String {
    let mut text = format!(
        "soak, {}:\n{:<16} {:>6} {:>9} {:>8}  counted\n",
        clock(elapsed),
        "suite",
        "rounds",
        "time",
        "failures"
    );
    for (suite, outcome) in asked.suites.iter().zip(outcomes) {
        let _ = writeln!(
            text,
            "{:<16} {:>6} {:>9} {:>8}  {}",
            suite.name,
            outcome.rounds,
            clock(outcome.time),
            outcome.failures.len(),
            suite.counts.replace('#', &outcome.counted.to_string())
        );
    }
    for (suite, outcome) in asked.suites.iter().zip(outcomes) {
        for failure in &outcome.failures {
            let Failure { seed, line, log, what } = failure;
            let _ = writeln!(
                text,
                "\n{} with seed {seed}: {what}\n  output: {}\n  repeat: {line}",
                suite.name,
                log.display()
            );
        }
    }
    text
}

/// Hours, minutes and seconds.
fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn numbers_are_found_where_the_pattern_has_them() {
        let text = "12 operations, 3 crashes\n9 operations\nReport { killed: 40, closed: 2 } operations";
        assert_eq!(counted(text, "# operations"), 21);
        assert_eq!(counted(text, "killed: #"), 40);
        assert_eq!(counted("stat::number_of_executed_units: 77\n", "stat::number_of_executed_units: #"), 77);
        assert_eq!(counted(text, "# cases"), 0);
    }

    #[test]
    fn suites_are_chosen_by_name() {
        let asked = parse(&words("--hours 0.5 --suite stress,kill --seed 7 --folder /f")).unwrap().unwrap();
        let names: Vec<&str> = asked.suites.iter().map(|suite| suite.name).collect();
        assert_eq!((names, asked.seed, asked.hours), (vec!["stress", "kill"], Some(7), 0.5));
        assert!(parse(&words("--list")).unwrap().is_none());
        for (line, said) in [
            ("--suite nosuch", "there is no suite nosuch"),
            ("--hours 0", "not a time"),
            ("--hours", "which?"),
            ("--minutes 3", "soak takes"),
        ] {
            let error = parse(&words(line)).err().unwrap_or_else(|| panic!("{line} is accepted"));
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn a_command_has_its_seed_and_can_be_typed() {
        let suite = |name: &str| SUITES.iter().find(|suite| suite.name == name).unwrap();
        for suite in SUITES.iter().filter(|suite| suite.is_here()) {
            for step in suite.steps(4711).unwrap() {
                assert!(!step.line().contains("{seed}"));
                assert_eq!(step.line().contains("4711"), suite.takes_seed(), "{}", step.line());
            }
        }
        let line = suite("simulation").steps(5).unwrap()[0].line();
        assert!(line.contains("KARST_SEED=5 KARST_SEEDS=60 cargo test -p karst-engine"), "{line}");
        let line = suite("loom").steps(5).unwrap()[0].line();
        assert!(line.contains("RUSTFLAGS='--cfg loom'"), "{line}");
        assert!(line.contains("CARGO_PROFILE_RELEASE_STRIP=none"), "{line}");
    }

    /// A failing command leaves its output and its line, and the next one still runs.
    #[test]
    fn a_failure_is_kept_and_told() {
        let suite = Suite {
            name: "fails",
            what: "",
            needs: "",
            runner: Runner::Test(&["--no-such-flag-{seed}"]),
            env: &[],
            counts: "# passed",
        };
        let folder = std::env::temp_dir().join(format!("karst-soak-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut outcome = Outcome::default();
        one_round(&suite, 3, &folder, 0, &mut outcome).unwrap();
        one_round(&suite, 4, &folder, 1, &mut outcome).unwrap();
        assert_eq!((outcome.rounds, outcome.failures.len()), (2, 2));
        let said = std::fs::read_to_string(&outcome.failures[1].log).unwrap();
        assert!(said.contains("--no-such-flag-4"), "{said}");
        let asked = Asked { hours: 1.0, suites: vec![&SUITES[0]], seed: None, folder: folder.clone() };
        let text = report(&asked, &[outcome], Duration::from_secs(3725));
        assert!(
            text.contains("1:02:05") && text.contains("with seed 4") && text.contains("repeat: cd "),
            "{text}"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
