//! The suites: test programs of the copy, of which each test runs as its own process, and their
//! results.
//!
//! Every outcome goes to a journal, from which an interrupted run continues. A test that does not
//! reach a mutant while all are off cannot find it, and is not run for it.

use crate::report::Found;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A test program.
#[derive(Clone)]
pub struct Suite {
    /// The crate and the target, such as `engine lib` or `txn simulation`.
    pub name: String,
    program: PathBuf,
    /// The crate's folder, which is cargo's working directory for its tests.
    folder: PathBuf,
    /// Hash of the program; journal entries are valid for an equal hash.
    built: u64,
}

/// Kind of build.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    Plain,
    /// With shuttle in place of threads and locks, for [`EXPLORED`].
    Shuttle,
}

/// The suite that [`Build::Shuttle`] builds.
pub const EXPLORED: &str = "engine threads";

impl Suite {
    /// True if `name` is its name, with or without the crate.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.name.split_once(' ').is_some_and(|(_, target)| target == name)
    }
}

/// A test with its time, and the mutants that it reaches, while no mutant is on.
pub struct Test {
    pub suite: Suite,
    pub name: String,
    pub seconds: f64,
    pub reached: BTreeSet<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passes,
    Fails,
    Hangs,
}

/// Stage in which a suite runs: cheap suites first, those that start many processes last.
pub fn stage_of(suite: &str) -> usize {
    let last = ["engine kill", "engine written", "engine interop", "engine damage", "engine full_disk"];
    match suite {
        s if s.ends_with(" lib") => 0,
        "engine simulation" => 2,
        "txn simulation" | "txn commit_order" => 4,
        s if last.contains(&s) => 6,
        s if s.starts_with("engine ") => 1,
        s if s.starts_with("txn ") => 3,
        _ => 5,
    }
}
pub const STAGES: usize = 7;

/// Runs cargo. Returns true if it succeeded, and its messages.
pub fn cargo(
    tree: &Path,
    cache: &Path,
    build: Build,
    verb: &[&str],
    args: &[impl AsRef<OsStr>],
) -> Result<(bool, Vec<Value>), String> {
    // The shuttle build is optimized, because its tests run thousands of schedules.
    let (flags, target, level) = match build {
        Build::Plain => ("", "target", "0"),
        Build::Shuttle => ("--cfg shuttle", "target-shuttle", "1"),
    };
    let output = Command::new("cargo")
        .args(verb)
        .args(args)
        .arg("--message-format=json")
        .current_dir(tree)
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", cache.join(target))
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", level)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN")
        .stderr(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    let lines = String::from_utf8_lossy(&output.stdout);
    Ok((output.status.success(), lines.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()))
}

/// Builds test programs.
pub fn build(
    tree: &Path,
    cache: &Path,
    build: Build,
    args: &[impl AsRef<OsStr>],
) -> Result<Vec<Suite>, String> {
    let (good, messages) = cargo(tree, cache, build, &["test", "--no-run"], args)?;
    if !good {
        let said = messages.iter().filter(|m| m["message"]["level"] == "error");
        let said: Vec<&str> = said.filter_map(|m| m["message"]["rendered"].as_str()).collect();
        return Err(format!("the copy does not compile:\n{}", said.join("\n")));
    }
    let mut suites = Vec::new();
    for message in
        messages.iter().filter(|m| m["reason"] == "compiler-artifact" && m["profile"]["test"] == true)
    {
        let Some(program) = message["executable"].as_str() else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().unwrap_or(tree).to_path_buf();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let target = match message["target"]["kind"][0].as_str() {
            Some("test" | "bin") => message["target"]["name"].as_str().unwrap_or_default(),
            _ => "lib",
        };
        let built = std::fs::read(program).map_err(|e| format!("{program}: {e}"))?;
        let built = twox_hash::XxHash64::oneshot(0, &built);
        let name = format!("{package} {target}");
        // The plain build of this suite contains no tests.
        if (name == EXPLORED) == (build == Build::Shuttle) {
            suites.push(Suite { name, program: program.into(), folder, built });
        }
    }
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

/// A test's outcome, its seconds, and the mutants that it reached if none was on.
type Ran = (Outcome, f64, BTreeSet<u32>);

/// Results of all runs, by program, test and mutant.
pub struct Journal {
    cache: PathBuf,
    known: Mutex<BTreeMap<String, Ran>>,
}

impl Journal {
    pub fn open(cache: &Path) -> Journal {
        let text = std::fs::read_to_string(cache.join("journal")).unwrap_or_default();
        let entries = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()).filter_map(|v| {
            let outcome = match v["outcome"].as_str()? {
                "Passes" => Outcome::Passes,
                "Fails" => Outcome::Fails,
                _ => Outcome::Hangs,
            };
            let reached =
                v["reached"].as_array()?.iter().filter_map(|n| u32::try_from(n.as_u64()?).ok()).collect();
            Some((v["run"].as_str()?.to_string(), (outcome, v["seconds"].as_f64()?, reached)))
        });
        Journal { cache: cache.to_path_buf(), known: Mutex::new(entries.collect()) }
    }

    /// Returns the tests of suites, after running each once with all mutants off.
    pub fn baseline(&self, suites: &[Suite]) -> Result<Vec<Test>, String> {
        let names = listed(suites)?;
        let tests = Mutex::new(Vec::new());
        each(names, |worker, (suite, name)| {
            let (outcome, seconds, reached) = self.run(worker, &suite, &name, 0, Duration::from_secs(900));
            if outcome != Outcome::Passes {
                println!("{} {name}: {outcome:?} without a mutant; left out", suite.name);
                return;
            }
            tests.lock().expect("no panic").push(Test { suite, name, seconds, reached });
        });
        let mut tests = tests.into_inner().expect("no panic");
        tests.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Ok(tests)
    }

    /// Returns the outcome and the seconds of one test with one mutant on.
    pub fn outcome(&self, worker: usize, test: &Test, mutant: u32) -> (Outcome, f64) {
        let limit = Duration::from_secs_f64((test.seconds * 5.0).max(60.0));
        let (outcome, seconds, _) = self.run(worker, &test.suite, &test.name, mutant, limit);
        (outcome, seconds)
    }

    /// Runs tests of programs that contain a mutant without a switch, up to the first that fails.
    /// Returns their times and that test.
    pub fn alone(&self, suites: &[Suite]) -> Result<(Vec<f64>, Option<Found>), String> {
        let mut times = Vec::new();
        for (suite, test) in listed(suites)? {
            let (outcome, seconds, _) = self.run(0, &suite, &test, 0, Duration::from_secs(300));
            times.push(seconds);
            if outcome != Outcome::Passes {
                let found = Found { suite: suite.name.clone(), test, hangs: outcome == Outcome::Hangs };
                return Ok((times, Some(found)));
            }
        }
        Ok((times, None))
    }

    fn run(&self, worker: usize, suite: &Suite, test: &str, mutant: u32, limit: Duration) -> Ran {
        let run = format!("{} {} {} {test} {mutant}", suite.name, suite.program.display(), suite.built);
        if let Some(known) = self.known.lock().expect("no panic").get(&run) {
            return known.clone();
        }
        let scratch = self.cache.join(format!("scratch-{worker}"));
        let _ = std::fs::remove_dir_all(&scratch);
        let _ = std::fs::create_dir_all(&scratch);
        let list = scratch.join("reached");
        let started = Instant::now();
        let mut outcome = process(suite, test, mutant, limit, &scratch, &list);
        let seconds = started.elapsed().as_secs_f64();
        // A failure counts only if the same test then passes without the mutant in a third of the
        // time limit, because other processes may keep the machine busy.
        if mutant != 0 && outcome != Outcome::Passes {
            let started = Instant::now();
            let without = process(suite, test, 0, limit / 3, &scratch, &list);
            if without != Outcome::Passes {
                let took = started.elapsed().as_secs_f64();
                println!(
                    "{} {test}: {without:?} without a mutant too, now and then, after {took:.0} s",
                    suite.name
                );
                outcome = Outcome::Passes;
            }
        }
        let reached = std::fs::read_to_string(&list).unwrap_or_default();
        let reached: BTreeSet<u32> = reached.lines().filter_map(|l| l.parse().ok()).collect();
        let line =
            json!({"run": run, "outcome": format!("{outcome:?}"), "seconds": seconds, "reached": reached});
        let mut known = self.known.lock().expect("no panic");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(self.cache.join("journal"));
        let _ = file.and_then(|mut file| writeln!(file, "{line}"));
        known.insert(run, (outcome, seconds, reached.clone()));
        (outcome, seconds, reached)
    }
}

/// Returns the tests of suites that are not ignored.
fn listed(suites: &[Suite]) -> Result<Vec<(Suite, String)>, String> {
    let list = |suite: &Suite, more: &[&str]| {
        let output = Command::new(&suite.program).args(["--list", "--format", "terse"]).args(more).output();
        let output = output.map_err(|e| format!("{}: {e}", suite.name))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok::<_, String>(
            text.lines().filter_map(|l| Some(l.strip_suffix(": test")?.to_string())).collect::<Vec<_>>(),
        )
    };
    let mut all = Vec::new();
    for suite in suites {
        let ignored = list(suite, &["--ignored"])?;
        all.extend(
            list(suite, &[])?.into_iter().filter(|t| !ignored.contains(t)).map(|t| (suite.clone(), t)),
        );
    }
    Ok(all)
}

fn process(suite: &Suite, test: &str, mutant: u32, limit: Duration, scratch: &Path, list: &Path) -> Outcome {
    use std::os::unix::process::CommandExt;
    // Memory is limited, because an endless loop of a mutant must not exhaust the machine.
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c 0; ulimit -v 16000000; exec \"$0\" \"$@\""])
        .arg(&suite.program)
        .args(["--exact", test, "--test-threads=1"])
        .current_dir(&suite.folder)
        .env("CARGO_MANIFEST_DIR", &suite.folder)
        .env("KARST_MUTANT", mutant.to_string())
        .env("TMPDIR", scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    if mutant == 0 {
        command.env("KARST_MUTANTS_REACHED", list);
    }
    let Ok(mut child) = command.spawn() else { return Outcome::Fails };
    let started = Instant::now();
    let outcome = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break Outcome::Passes,
            Ok(Some(_)) | Err(_) => break Outcome::Fails,
            Ok(None) if started.elapsed() > limit => break Outcome::Hangs,
            Ok(None) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    // Kills the processes that it started too.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.wait();
    outcome
}

/// Calls `act` with each element, on two threads.
pub fn each<T: Send>(all: Vec<T>, act: impl Fn(usize, T) + Sync) {
    let all = Mutex::new(all.into_iter());
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (all, act) = (&all, &act);
            scope.spawn(move || {
                loop {
                    let Some(one) = all.lock().expect("no panic").next() else { return };
                    act(worker, one);
                }
            });
        }
    });
}
