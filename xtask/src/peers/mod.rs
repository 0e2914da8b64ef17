//! The task `peers`: the tests of published bindings of RocksDB's C API, linked with KarstDB.
//!
//! First it compares the two headers (`headers`), and runs one program with both libraries by turns
//! (`switched`). RocksDB's own test of its C API is run by phases (`c_test`).
//!
//! In: the list of expected failures in `docs/peers.md`. Out: each failed test, by program; the
//! counts; and an error if the failures differ from the expected ones, in either direction. Each
//! test has a process of its own and a time limit, so that a crash or a hang is one failure. The
//! sources come from the registry, and stay in the cache; those for Go come from its proxy (`go`).
//! The programs are linked with an empty library under the name of RocksDB 11's and load KarstDB's
//! at run time, as do programs that were linked with RocksDB.

mod c_test;
mod go;
mod headers;
mod redis;
mod switched;

use crate::capi;
use crate::run::{Result, cache_dir, repository_root, step_in};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A published crate whose tests are run, in the version of `docs/peers.md`.
struct Peer {
    name: &'static str,
    version: &'static str,
    /// Crates that its tests need and its published manifest lacks, as they are unpublished
    /// neighbours in its repository: name and version.
    tests_need: &'static [(&'static str, &'static str)],
}

impl Peer {
    const fn of(name: &'static str, version: &'static str) -> Peer {
        Peer { name, version, tests_need: &[] }
    }
}

const PEERS: &[Peer] = &[
    Peer::of("rocksdb", "0.25.0"),
    Peer::of("librocksdb-sys", "0.19.0+11.8.1"),
    Peer { name: "kvdb-rocksdb", version: "0.21.0", tests_need: &[("kvdb-shared-tests", "0.11.0")] },
    Peer::of("openraft-rocksstore", "0.9.21"),
];

/// Time limit of a test; the longest takes 20 s.
const LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(10);
/// The list of expected failures.
const EXPECTED: &str = "docs/peers.md";

/// Arguments of the task.
#[derive(Default)]
struct Asked {
    /// The folder of an installed library; `None` builds one.
    library: Option<PathBuf>,
    debug: bool,
    /// Text that the tests' names contain; if it begins with the name of a program, only that one
    /// is built.
    only: Option<String>,
    /// The program `karstdb` for the suites of servers; `None` builds one.
    karst: Option<PathBuf>,
}

impl Asked {
    /// Returns true if the tests of a program are selected.
    fn wants(&self, program: &str) -> bool {
        let bindings = go::BINDINGS.iter().map(|go| go.name);
        let mut programs =
            PEERS.iter().map(|peer| peer.name).chain(bindings).chain([c_test::NAME, redis::NAME]);
        let first = self.only.as_deref().and_then(|only| only.split(' ').next());
        first.is_none_or(|first| first == program || !programs.any(|name| name == first))
    }
}

fn asked(args: &[String]) -> Result<Asked> {
    let mut asked = Asked::default();
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{flag} takes a value"));
        match flag.as_str() {
            "--library" => asked.library = Some(value()?.into()),
            "--debug" => asked.debug = true,
            "--only" => asked.only = Some(value()?),
            "--karst" => asked.karst = Some(value()?.into()),
            _ => {
                return Err(format!(
                    "peers knows --library DIR, --debug, --only TEXT and --karst FILE, not {flag}"
                ));
            }
        }
    }
    Ok(asked)
}

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Passed,
    /// Skipped by the program itself.
    Ignored,
    /// Not run, by `docs/peers.md`.
    LeftOut,
    Failed(String),
}

/// Expectation of `docs/peers.md` for a test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Fails,
    /// It fails or passes, depending on the speed of a background job.
    MayFail,
    NotRun,
}

pub(crate) fn peers(args: &[String]) -> Result {
    let asked = asked(args)?;
    if asked.only.as_deref().and_then(|only| only.split(' ').next()) == Some(redis::NAME) {
        return redis::run(asked.only.as_deref(), asked.karst);
    }
    let list = repository_root().join(EXPECTED);
    let text = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let said = said(&text)?;
    let root = cache_dir().join("peers");
    fs::create_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    let library = match &asked.library {
        Some(library) => library.clone(),
        None => {
            let prefix = root.join("prefix");
            capi::install(&prefix, if asked.debug { "dev" } else { "release" }, &[])?;
            prefix.join("lib")
        }
    };
    let library = fs::canonicalize(&library).map_err(|e| format!("{}: {e}", library.display()))?;
    let tmp = root.join("tmp");
    let _ = fs::remove_dir_all(&tmp);
    fs::create_dir_all(&tmp).map_err(|e| format!("{}: {e}", tmp.display()))?;
    let stand_in = stand_in(&root.join("stand-in"))?;
    let place = Place { library, stand_in, target: root.join("target"), tmp, logs: root.join("logs") };

    let sys = source(&root, &PEERS[1])?;
    let ours = place.library.with_file_name("include");
    headers::compare(&sys.join("rocksdb/include/rocksdb/c.h"), &ours.join("rocksdb/c.h"), &place.tmp)?;
    switched::run(&place.library, &place.tmp)?;

    let mut outcomes = BTreeMap::new();
    if asked.wants(c_test::NAME) {
        let found = c_test::run(&root, &place, asked.only.as_deref())?;
        println!("{}: {}", c_test::NAME, counts(found.values()));
        outcomes.extend(found);
    }
    let mut run = |name: &str, mut tests: Vec<Test>| {
        if let Some(only) = &asked.only {
            tests.retain(|test| test.name.contains(only.as_str()));
        }
        let found = place.run(&said, tests);
        println!("\n{name}: {}", counts(found.values()));
        outcomes.extend(found);
    };
    for peer in PEERS.iter().filter(|peer| asked.wants(peer.name)) {
        let source = source(&root, peer)?;
        let mut tests = Vec::new();
        for binary in place.build(&source, peer.tests_need.is_empty())? {
            tests.extend(place.tests(peer.name, &source, &binary)?);
        }
        run(&format!("{} {}", peer.name, peer.version), tests);
    }
    for binding in go::BINDINGS.iter().filter(|binding| asked.wants(binding.name)) {
        run(binding.name, go::tests(&root, &place, binding)?);
    }
    let _ = fs::remove_dir_all(&place.tmp);
    println!();
    for (name, outcome) in &outcomes {
        if let Outcome::Failed(why) = outcome {
            let expected = if said.contains_key(name) { "expected" } else { "NOT EXPECTED" };
            println!("failed, {expected}: {name}: {why}");
        }
    }
    println!("\nall programs: {}; output in {}", counts(outcomes.values()), place.logs.display());
    let wrong = differences(&said, &outcomes, asked.only.is_none());
    if wrong.is_empty() { Ok(()) } else { Err(format!("{EXPECTED} does not agree:\n{}", wrong.join("\n"))) }
}

/// Builds an empty version of each function of RocksDB's C API into a library with the name of
/// RocksDB 11's, and returns its folder.
fn stand_in(folder: &Path) -> Result<PathBuf> {
    const FUNCTIONS: &str = include_str!("../../../crates/capi/tests/functions.txt");
    /// Those of Debian's 7.8, of which later releases have removed some.
    const BEFORE: &str = include_str!("../../../crates/capi/tests/functions_7_8.txt");
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let source = folder.join("stand_in.c");
    let all: BTreeSet<&str> = FUNCTIONS.lines().chain(BEFORE.lines()).collect();
    let text: String = all.iter().map(|name| format!("void {name}(void) {{}}\n")).collect();
    fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()))?;
    let (source, library) = (source.to_string_lossy(), folder.join("librocksdb.so"));
    let named = "-Wl,-soname,librocksdb.so.11";
    let args = ["-shared", "-fPIC", "-O0", named, &source, "-o", &library.to_string_lossy()];
    crate::run::step("cc", &args, &[])?;
    Ok(folder.to_path_buf())
}

/// Formats `12 passed, 1 failed, 3 skipped` and the share of those run that passed.
fn counts<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> String {
    let (mut passed, mut failed, mut skipped) = (0_u32, 0_u32, 0_u32);
    for outcome in outcomes {
        match outcome {
            Outcome::Passed => passed += 1,
            Outcome::Failed(_) => failed += 1,
            Outcome::Ignored | Outcome::LeftOut => skipped += 1,
        }
    }
    let share = f64::from(passed) * 100.0 / f64::from((passed + failed).max(1));
    format!("{passed} passed, {failed} failed, {skipped} skipped ({share:.1} % of those that ran passed)")
}

/// Reads the rows of the table in `text`: `| program | binary | test | fails, may fail or not run |
/// reason |`.
fn said(text: &str) -> Result<BTreeMap<String, Said>> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [program, binary, test, what, reason] = cells[..] else { continue };
        let said = match what {
            "fails" => Said::Fails,
            "may fail" => Said::MayFail,
            "not run" => Said::NotRun,
            _ => continue,
        };
        let name = [program, binary, test].map(|cell| cell.trim_matches('`')).join(" ");
        if reason.is_empty() {
            return Err(format!("{EXPECTED}: {name} has no reason"));
        }
        if rows.insert(name.clone(), said).is_some() {
            return Err(format!("{EXPECTED} names {name} twice"));
        }
    }
    Ok(rows)
}

/// Returns the differences between the list and the outcomes. A row without a test counts only if
/// `all` tests were run.
fn differences(
    said: &BTreeMap<String, Said>,
    outcomes: &BTreeMap<String, Outcome>,
    all: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, outcome) in outcomes {
        match (outcome, said.get(name)) {
            (Outcome::Failed(why), None) => wrong.push(format!("{name} failed: {why}")),
            (Outcome::Passed, Some(Said::Fails | Said::NotRun)) => {
                wrong.push(format!("{name} passed, and is listed"))
            }
            (Outcome::Ignored, Some(_)) => wrong.push(format!("{name} is left out by itself, and is listed")),
            _ => {}
        }
    }
    if all {
        let gone = said.keys().filter(|name| !outcomes.contains_key(*name));
        wrong.extend(gone.map(|name| format!("{name} is listed, and there is no such test")));
    }
    wrong
}

fn failed(path: &Path, e: std::io::Error) -> String {
    format!("{}: {e}", path.display())
}

/// Runs a command with its output in `log`, until it ends or `limit` has passed. `None`: it has
/// not ended. Its process group is killed, because it may have started other processes.
fn run_for(command: &mut Command, log: &Path, limit: Duration) -> Result<Option<ExitStatus>> {
    let output = File::create(log).map_err(|e| failed(log, e))?;
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(|e| failed(log, e))?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .map_err(|e| format!("cannot run {command:?}: {e}"))?;
    let status = loop {
        let status = child.try_wait().map_err(|e| failed(log, e))?;
        if status.is_some() || start.elapsed() > limit {
            break status;
        }
        std::thread::sleep(LOOK);
    };
    let group = format!("-{}", child.id());
    let _none_is_left = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
    let _is_known = child.wait();
    Ok(status)
}

/// Returns the sources of a published crate, copied into the cache.
fn source(root: &Path, peer: &Peer) -> Result<PathBuf> {
    let name = format!("{}-{}", peer.name, peer.version);
    let copy = root.join(&name);
    if copy.is_dir() {
        return Ok(copy);
    }
    let from = fetched(root, peer)?;
    let part = root.join(format!("{name}.part"));
    let _ = fs::remove_dir_all(&part);
    copy_folder(&from, &part).map_err(|e| failed(&part, e))?;
    let manifest = part.join("Cargo.toml");
    let mut text = fs::read_to_string(&manifest).map_err(|e| failed(&manifest, e))?;
    for (name, version) in peer.tests_need {
        text += &format!("\n[dev-dependencies.{name}]\nversion = \"={version}\"\n");
    }
    fs::write(&manifest, text).map_err(|e| failed(&manifest, e))?;
    fs::rename(&part, &copy).map_err(|e| failed(&copy, e))?;
    Ok(copy)
}

/// Downloads a published crate by cargo, and returns the folder of its sources.
fn fetched(root: &Path, peer: &Peer) -> Result<PathBuf> {
    let name = format!("{}-{}", peer.name, peer.version);
    // A folder for each, because two crates that link the same library cannot share a manifest.
    let scratch = root.join("scratch").join(&name);
    fs::create_dir_all(scratch.join("src")).map_err(|e| failed(&scratch, e))?;
    let version = peer.version.split('+').next().unwrap_or_default();
    let manifest = format!(
        "[package]\nname = \"scratch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         {} = {{ version = \"={version}\", default-features = false }}\n",
        peer.name
    );
    for (file, text) in [("Cargo.toml", manifest.as_str()), ("src/lib.rs", "")] {
        let file = scratch.join(file);
        fs::write(&file, text).map_err(|e| failed(&file, e))?;
    }
    step_in(&scratch, "cargo", &["fetch"], &[])?;
    let metadata =
        cargo(&scratch).args(["metadata", "--format-version", "1"]).stderr(Stdio::inherit()).output();
    let metadata = metadata.map_err(|e| format!("cannot run cargo: {e}"))?;
    let text = String::from_utf8_lossy(&metadata.stdout);
    let end = format!("/{name}/Cargo.toml");
    let found = strings(&text, "manifest_path").find(|path| path.ends_with(&end));
    let found = found.ok_or_else(|| format!("cargo did not fetch {name}"))?;
    Ok(Path::new(&found).parent().expect("a manifest is in a folder").to_path_buf())
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Returns the strings under `key` in a JSON text, without support for escapes.
fn strings<'a>(json: &'a str, key: &str) -> impl Iterator<Item = String> + use<'a> {
    let before = format!("\"{key}\":\"");
    let starts: Vec<usize> = json.match_indices(&before).map(|(at, _)| at + before.len()).collect();
    starts.into_iter().filter_map(|start| json[start..].split('"').next().map(str::to_string))
}

/// Returns a command of cargo without the variables of this program's package. The toolchain stays
/// this one, although the package's own file may name another.
fn cargo(dir: &Path) -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name == "CARGO"
            || name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_MANIFEST_")
            || ["RUSTC", "RUSTDOC"].contains(&name.as_str())
        {
            command.env_remove(name);
        }
    }
    command.current_dir(dir);
    command
}

/// A test of a program.
struct Test {
    /// `program binary test`, the form of the list.
    name: String,
    binary: PathBuf,
    /// Arguments that run this test alone.
    args: Vec<String>,
    dir: PathBuf,
    ignored: bool,
}

/// Folders in which programs are built and run.
struct Place {
    library: PathBuf,
    /// The folder of the library that programs are linked with.
    stand_in: PathBuf,
    target: PathBuf,
    tmp: PathBuf,
    logs: PathBuf,
}

impl Place {
    fn env(&self, command: &mut Command) {
        command
            .env("ROCKSDB_LIB_DIR", &self.stand_in)
            .env("LD_LIBRARY_PATH", &self.library)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            .env("TMPDIR", &self.tmp);
    }

    /// Builds the tests of a crate, and returns the paths of its programs. With `locked` all
    /// dependencies are those of its lock file.
    fn build(&self, source: &Path, locked: bool) -> Result<Vec<PathBuf>> {
        println!("\n==> the tests of {}", source.display());
        let mut command = cargo(source);
        self.env(&mut command);
        let built = command
            .args(["test", "--no-run", "--lib", "--tests", "--message-format=json"])
            .args(locked.then_some("--locked"))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| format!("cannot run cargo: {e}"))?;
        let text = String::from_utf8_lossy(&built.stdout);
        if !built.status.success() {
            let errors: Vec<String> = text
                .lines()
                .filter(|line| line.contains("\"level\":\"error\""))
                .flat_map(|line| strings(line, "rendered"))
                .collect();
            return Err(format!("cannot build the tests of {}:\n{}", source.display(), errors.join("\n")));
        }
        let tests = text.lines().filter(|line| line.contains("\"test\":true"));
        let programs: Vec<PathBuf> =
            tests.flat_map(|line| strings(line, "executable")).map(PathBuf::from).collect();
        if programs.is_empty() { Err(format!("{} has no tests", source.display())) } else { Ok(programs) }
    }

    /// Returns the tests that a program lists.
    fn tests(&self, peer: &str, source: &Path, binary: &Path) -> Result<Vec<Test>> {
        let list = |args: &[&str]| -> Result<Vec<String>> {
            let mut command = Command::new(binary);
            self.env(&mut command);
            let listed = command.args(args).args(["--list", "--format", "terse"]).output();
            let listed = listed.map_err(|e| format!("{}: {e}", binary.display()))?;
            if !listed.status.success() {
                let said = String::from_utf8_lossy(&listed.stderr).into_owned();
                return Err(format!("{} does not start: {said}", binary.display()));
            }
            let text = String::from_utf8_lossy(&listed.stdout).into_owned();
            Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_string).collect())
        };
        let file = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let short = file.rsplit_once('-').map_or(file.as_str(), |(name, _)| name);
        let ignored = list(&["--ignored"])?;
        let test = |filter: String| Test {
            name: format!("{peer} {short} {filter}"),
            binary: binary.to_path_buf(),
            ignored: ignored.contains(&filter),
            args: vec!["--exact".into(), filter, "--test-threads=1".into()],
            dir: source.to_path_buf(),
        };
        Ok(list(&[])?.into_iter().map(test).collect())
    }

    /// Runs tests, two at a time, each in its own process.
    fn run(&self, said: &BTreeMap<String, Said>, tests: Vec<Test>) -> BTreeMap<String, Outcome> {
        let (waiting, outcomes) = (Mutex::new(VecDeque::from(tests)), Mutex::new(BTreeMap::new()));
        let next = || waiting.lock().expect("no test panics").pop_front();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(test) = next() {
                        let outcome = match said.get(&test.name) {
                            _ if test.ignored => Outcome::Ignored,
                            Some(Said::NotRun) => Outcome::LeftOut,
                            _ => self.one(&test).unwrap_or_else(Outcome::Failed),
                        };
                        outcomes.lock().expect("no test panics").insert(test.name, outcome);
                    }
                });
            }
        });
        outcomes.into_inner().expect("no test panics")
    }

    /// Returns the path of a test's output.
    fn log(&self, test: &Test) -> PathBuf {
        self.logs.join(format!("{}.log", test.name.replace([' ', ':', '/'], "-")))
    }

    fn one(&self, test: &Test) -> Result<Outcome> {
        fs::create_dir_all(&self.logs).map_err(|e| failed(&self.logs, e))?;
        let (log, mut command) = (self.log(test), Command::new(&test.binary));
        self.env(&mut command);
        command.args(&test.args).env("TEST_TMPDIR", &test.dir).current_dir(&test.dir);
        let Some(status) = run_for(&mut command, &log, LIMIT)? else {
            return Ok(Outcome::Failed(format!("hangs: not done after {} s", LIMIT.as_secs())));
        };
        if status.success() {
            return Ok(Outcome::Passed);
        }
        let ended = status.signal().map(|signal| format!("ended by signal {signal}; "));
        let text = String::from_utf8_lossy(&fs::read(&log).map_err(|e| failed(&log, e))?).into_owned();
        Ok(Outcome::Failed(format!("{}{}", ended.unwrap_or_default(), first_panic(&text))))
    }
}

/// Returns the place and message of the first panic in a test's output; or for Go the first line
/// that names a place or a panic, with the assertion's message if that is on another line.
fn first_panic(text: &str) -> String {
    let mut lines = text.lines();
    let short = |text: &str| -> String { text.trim().chars().take(200).collect() };
    let mut of_go = lines.clone().skip_while(|line| !line.contains(".go:") && !line.starts_with("panic: "));
    if let Some(line) = of_go.next() {
        let said = of_go.find_map(|line| line.trim().strip_prefix("Error:"));
        return match said.filter(|_| line.trim().ends_with(':')) {
            Some(said) => short(&format!("{} {}", line.trim(), said.trim())),
            None => short(line),
        };
    }
    let Some(line) = lines.find(|line| line.contains("' panicked at ") || line.contains(") panicked at "))
    else {
        return "no panic".into();
    };
    let at = line.split("panicked at ").nth(1).unwrap_or_default();
    let said = lines.next().unwrap_or_default();
    format!("{at} {said}").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "text\n\n| program | binary | test | what | reason |\n|---|---|---|---|---|\n\
        | `a` | `b` | `one` | fails | missing |\n| `a` | `b` | `two` | not run | no test of a library |\n\
        | `a` | `b` | `four` | may fail | a race |\n";

    fn outcomes(of: &[(&str, Outcome)]) -> BTreeMap<String, Outcome> {
        of.iter().map(|(name, outcome)| (format!("a b {name}"), outcome.clone())).collect()
    }

    #[test]
    fn agrees_with_its_list_or_says_where_not() {
        let said = said(LIST).unwrap();
        let bad = || Outcome::Failed("why".into());
        let fine = outcomes(&[
            ("one", bad()),
            ("two", Outcome::LeftOut),
            ("three", Outcome::Passed),
            ("four", bad()),
        ]);
        assert_eq!(differences(&said, &fine, true), Vec::<String>::new());
        let worse = outcomes(&[("one", Outcome::Passed), ("three", bad()), ("four", Outcome::Passed)]);
        let wrong = differences(&said, &worse, true);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].contains("a b one passed") && wrong[1].contains("a b three failed: why"));
        assert!(wrong[2].contains("a b two is listed, and there is no such test"));
        assert_eq!(differences(&said, &worse, false).len(), 2);
        assert_eq!(counts(worse.values()), "2 passed, 1 failed, 0 skipped (66.7 % of those that ran passed)");
    }

    #[test]
    fn builds_one_program_if_it_is_named() {
        let wanted = |only: Option<&str>| {
            let asked = Asked { only: only.map(str::to_owned), ..Asked::default() };
            let names = ["rocksdb", "librocksdb-sys", "gorocksdb", "grocksdb", "c_test"];
            names.map(|name| asked.wants(name))
        };
        assert_eq!(wanted(None), [true; 5]);
        assert_eq!(wanted(Some("Iterator")), [true; 5]);
        assert_eq!(wanted(Some("rocksdb test_db")), [true, false, false, false, false]);
        assert_eq!(wanted(Some("grocksdb")), [false, false, false, true, false]);
        assert_eq!(wanted(Some("c_test 8.1.1")), [false, false, false, false, true]);
    }

    #[test]
    fn refuses_a_list_without_reasons_or_with_doubles() {
        assert!(said(&LIST.replace("missing", "")).unwrap_err().contains("no reason"));
        assert!(said(&LIST.replace("two", "one")).unwrap_err().contains("twice"));
    }

    #[test]
    fn reads_what_programs_say() {
        let text = "running 1 test\n\nthread 'x' (12) panicked at a.rs:1:2:\nleft is not right\nnote";
        assert_eq!(first_panic(text), "a.rs:1:2: left is not right");
        let text = "=== RUN   TestX\n    x_test.go:55: expected true\n--- FAIL: TestX (0.1s)\n";
        assert_eq!(first_panic(text), "x_test.go:55: expected true");
        let text = "    x_test.go:5: \n\t  Error Trace:\t/x_test.go:5\n\t  Error:  \tShould be false\n\t  Test: \tX\n";
        assert_eq!(first_panic(text), "x_test.go:5: Should be false");
        let text = "--- FAIL: TestX (0.05s)\npanic: nil pointer\n\tx_test.go:5 +0x232\n";
        assert_eq!(first_panic(text), "panic: nil pointer");
        let json = r#"{"executable":"/a/b-12","x":1}{"executable":null}{"executable":"/c"}"#;
        assert_eq!(strings(json, "executable").collect::<Vec<_>>(), ["/a/b-12", "/c"]);
    }
}
