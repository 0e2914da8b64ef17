//! The suites: the test programs of the copy, each test of them as a process of its own, and what
//! came of it.
//!
//! Every outcome goes to a journal, so that a run that was ended goes on where it was. A test that
//! does not reach a mutant when all are off cannot find it, and is not run for it.

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
    /// The crate and the target, as `engine lib` or `txn simulation`.
    pub name: String,
    program: PathBuf,
    /// The crate's folder, in which cargo would run it.
    folder: PathBuf,
    /// A hash of the program: what was run of it counts as long as it is the same.
    built: u64,
}

/// How programs are built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    Plain,
    /// With shuttle in the place of threads and locks, for the suite that explores them.
    Shuttle,
}

/// The suite that is built so.
pub const EXPLORED: &str = "engine threads";

impl Suite {
    /// Whether it is called so, with its crate or without.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.name.split_once(' ').is_some_and(|(_, target)| target == name)
    }
}

/// A test, and what it does while no mutant is on.
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

/// When a suite's turn comes: the cheap ones first, what starts many processes last.
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

/// Whether cargo ended well, and its messages.
pub fn cargo(
    tree: &Path,
    cache: &Path,
    build: Build,
    verb: &[&str],
    args: &[impl AsRef<OsStr>],
) -> Result<(bool, Vec<Value>), String> {
    // Why not the same: what goes through thousands of schedules is worth the time to optimize it.
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
        // Why not the plain one: there are no tests in it.
        if (name == EXPLORED) == (build == Build::Shuttle) {
            suites.push(Suite { name, program: program.into(), folder, built });
        }
    }
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(suites)
}

/// What came of a test, its seconds, and the mutants that it reached if none was on.
type Ran = (Outcome, f64, BTreeSet<u32>);

/// All that has been run, by program, test and mutant.
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

    /// The tests of suites, each run once with all mutants off.
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

    /// The outcome of one test with one mutant on.
    pub fn outcome(&self, worker: usize, test: &Test, mutant: u32) -> (Outcome, f64) {
        let limit = Duration::from_secs_f64((test.seconds * 5.0).max(60.0));
        let (outcome, seconds, _) = self.run(worker, &test.suite, &test.name, mutant, limit);
        (outcome, seconds)
    }

    /// The times of the tests of programs that a mutant is compiled into for good, up to the first
    /// that fails.
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
        // A failure counts only if the same test passes a moment later without the mutant, and in a
        // third of the time that it was given with it: others may keep the machine busy.
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

/// The tests of suites that are run without being asked for.
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
    // Why a limit of memory: a loop that no longer ends must not take the machine with it.
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
    // The processes that it started go with it.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.wait();
    outcome
}

/// Does something with each of many, two at a time.
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
