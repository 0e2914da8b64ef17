//! Mutants of KarstDB's source, and the suite that finds each. See docs/decisions/mutants.md.
//!
//! Half of them are drawn by a commit's hash from the places that `sites` finds, the others are
//! patches that restore a past defect (`planted`). All are compiled at once into a copy of the
//! tree, each behind a switch (`weave`). For each mutant the tests that reach it run with its
//! switch on, the cheapest first (`suites`).

mod planted;
mod report;
mod sites;
mod suites;
mod weave;

use planted::Planted;
use report::{Found, Row};
use sites::Site;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use suites::{Build, EXPLORED, Journal, Outcome, STAGES, Suite, Test, stage_of};
use weave::{Edits, Woven};

/// Folders that mutants are drawn from.
const DRAWN_FROM: [&str; 6] = [
    "crates/commit/src/",
    "crates/engine/src/flush/",
    "crates/engine/src/versions/",
    "crates/engine/src/compact/",
    "crates/engine/src/read/",
    "crates/txn/src/",
];

/// Packages whose tests are run. The others contain no mutated code, and need an allocator built.
const TESTED: [&str; 18] = [
    "-p",
    "karst-format",
    "-p",
    "karst-mem",
    "-p",
    "karst-io",
    "-p",
    "karst-lsm",
    "-p",
    "karst-base",
    "-p",
    "karst-storage",
    "-p",
    "karst-commit",
    "-p",
    "karst-engine",
    "-p",
    "karst-txn",
];
/// Targets of these packages that hold tests.
const TESTS: [&str; 3] = ["--lib", "--bins", "--tests"];

const HELP: &str =
    "karst-mutants [--count N] [--seed HASH] [--planted] [--suite NAME] [--only ID] [--at-most SECONDS]

  --count N          so many are drawn (60)
  --seed HASH        draw by this and not by the commit's hash
  --planted          the patches only; none are drawn
  --suite NAME       this suite only, as `engine lib` or `txn simulation`
  --only ID          this mutant only: its number, or its patch's name; more than one with commas
  --at-most SECONDS  for a mutant, tests that take so long together when no mutant is on

The copy of the tree, what is built of it, the journal of what was run and the report are in
$KARST_CACHE/mutants, else ~/.cache/karstdb/mutants.";

struct Options {
    count: usize,
    seed: Option<String>,
    suite: Option<String>,
    only: Option<BTreeSet<String>>,
    at_most: f64,
}

fn options() -> Result<Options, String> {
    let mut o = Options { count: 60, seed: None, suite: None, only: None, at_most: f64::INFINITY };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n\n{HELP}"));
        match arg.as_str() {
            "--planted" => o.count = 0,
            "--count" => o.count = value()?.parse().map_err(|e| format!("--count: {e}"))?,
            "--seed" => o.seed = Some(value()?),
            "--suite" => o.suite = Some(value()?),
            "--only" => o.only = Some(value()?.split(',').map(str::to_string).collect()),
            "--at-most" => o.at_most = value()?.parse().map_err(|e| format!("--at-most: {e}"))?,
            _ => return Err(HELP.into()),
        }
    }
    Ok(o)
}

fn main() -> ExitCode {
    match options().and_then(|o| run(&o)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let output =
        Command::new("git").args(args).current_dir(root).output().map_err(|e| format!("git: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// A mutant that is compiled into the copy.
enum Mutant {
    Drawn(Site),
    Planted(usize),
}

struct Copy {
    cache: PathBuf,
    /// All files of the tree, by path.
    bytes: BTreeMap<String, Vec<u8>>,
    /// Sources of the crates, by path.
    sources: BTreeMap<String, String>,
    planted: Vec<Planted>,
}

fn run(o: &Options) -> Result<(), String> {
    let root = PathBuf::from(git(Path::new("."), &["rev-parse", "--show-toplevel"])?);
    let home = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache/karstdb"));
    let cache = std::env::var_os("KARST_CACHE").map(PathBuf::from).or(home).ok_or("no HOME")?.join("mutants");
    std::fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    let commit = git(&root, &["rev-parse", "HEAD"])?;
    let seed = o.seed.clone().unwrap_or_else(|| commit.clone());

    let mut bytes = BTreeMap::new();
    for path in git(&root, &["ls-files", "--cached", "--others", "--exclude-standard"])?.lines() {
        if let Ok(content) = std::fs::read(root.join(path)) {
            bytes.insert(path.to_string(), content);
        }
    }
    let sources = bytes.iter().filter(|(p, _)| p.starts_with("crates/") && p.ends_with(".rs"));
    let sources = sources.map(|(p, b)| (p.clone(), String::from_utf8_lossy(b).into_owned())).collect();
    let planted = planted::read_all(&root, &cache.join("patched"))?;
    let copy = Copy { cache, bytes, sources, planted };

    let drawn = copy.draw(&seed)?;
    println!(
        "{} sites to draw {} from with seed {seed}, {} patches",
        drawn.len(),
        o.count,
        copy.planted.len()
    );
    let (mutants, apart) = copy.compiled(drawn, o.count)?;
    let wanted = |id: u32, name: &str| {
        o.only.as_ref().is_none_or(|only| only.contains(&id.to_string()) || only.contains(name))
    };
    let mut rows: BTreeMap<u32, Row> = BTreeMap::new();
    for (id, mutant) in &mutants {
        let row = match mutant {
            Mutant::Drawn(site) => Row::drawn(*id, site),
            Mutant::Planted(n) => Row::planted(*id, &copy.planted[*n]),
        };
        if wanted(*id, &row.name) {
            rows.insert(*id, row);
        }
    }

    let journal = Journal::open(&copy.cache);
    let tree = copy.cache.join("tree");
    let suites = suites::build(&tree, &copy.cache, Build::Plain, &[&TESTED[..], &TESTS].concat())?;
    let is_known = |name: &str| name == EXPLORED || suites.iter().any(|suite| suite.name == name);
    let unknown = |patch: &&Planted| !is_known(&patch.suite);
    if let Some(patch) = copy.planted.iter().find(unknown) {
        return Err(format!("{}: there is no suite {}", patch.name, patch.suite));
    }
    let rows = Mutex::new(rows);
    let say = |rows: &BTreeMap<u32, Row>| report::write(&copy.cache, &commit, &seed, rows);
    // Runs tests on the mutants that no test has found yet and that `whose` accepts with the test.
    let try_on = |tests: &[Test], at_most: f64, whose: &(dyn Fn(&Row, &Test) -> bool + Sync)| {
        let known = rows.lock().expect("no panic");
        let ids: Vec<u32> = known.values().filter(|r| r.found.is_none()).map(|r| r.id).collect();
        drop(known);
        suites::each(ids, |worker, id| {
            let mut row = rows.lock().expect("no panic")[&id].clone();
            let reaching = tests.iter().filter(|t| t.reached.contains(&id) && whose(&row, t));
            let reaching: Vec<&Test> = reaching.collect();
            if reaching.is_empty() {
                return;
            }
            row.try_all(&journal, worker, &reaching, at_most);
            println!("{row}");
            let mut rows = rows.lock().expect("no panic");
            rows.insert(id, row);
            let _ = say(&rows);
        });
    };
    let is_asked = |suite: &Suite| o.suite.as_ref().is_none_or(|name| suite.is(name));
    let baseline = |what: &str, suites: Vec<Suite>| {
        let tests = journal.baseline(&suites)?;
        let time: f64 = tests.iter().map(|t| t.seconds).sum();
        println!("{what}: {} tests, {time:.0} s without a mutant", tests.len());
        Ok::<_, String>(tests)
    };
    // First the suites that patches name, each for its patches and without a time limit; then all,
    // by stages.
    let is_named = |suite: &Suite| rows.lock().expect("no panic").values().any(|r| r.expected == suite.name);
    let named = suites.iter().filter(|suite| is_asked(suite) && is_named(suite)).cloned().collect();
    let by_name = |row: &Row, test: &Test| row.expected == test.suite.name;
    try_on(&baseline("suites that are named", named)?, f64::INFINITY, &by_name);
    for stage in 0..STAGES {
        let of_stage = suites.iter().filter(|suite| is_asked(suite) && stage_of(&suite.name) == stage);
        let tests = baseline(&format!("stage {stage}"), of_stage.cloned().collect())?;
        try_on(&tests, o.at_most, &|row, test| row.expected != test.suite.name && row.expected != EXPLORED);
    }
    // Only for patches that name this suite, because its tests take minutes each and explore the
    // schedules of threads only.
    if rows.lock().expect("no panic").values().any(|row| row.expected == EXPLORED) {
        let explored = suites::build(&tree, &copy.cache, Build::Shuttle, &target_of(EXPLORED))?;
        let explored = explored.into_iter().filter(is_asked).collect();
        try_on(&baseline("explored threads", explored)?, f64::INFINITY, &by_name);
    }
    let mut rows = rows.into_inner().expect("no panic");
    for (n, patch) in apart.iter().map(|n| (*n, &copy.planted[*n])) {
        let id = 10_000 + u32::try_from(n).unwrap_or(0);
        if !wanted(id, &patch.name) {
            continue;
        }
        let mut row = Row::planted(id, patch);
        copy.alone(patch, &journal, &mut row, o)?;
        println!("{row}");
        rows.insert(id, row);
        say(&rows)?;
    }
    say(&rows)?;
    println!("\n{}", report::summary(&rows));
    Ok(())
}

impl Copy {
    /// Returns all sites in the order in which the seed draws them.
    fn draw(&self, seed: &str) -> Result<Vec<Site>, String> {
        let mut all = Vec::new();
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        for (path, source) in &self.sources {
            let test = path.contains("/tests") || path.ends_with("tests.rs");
            if test || !DRAWN_FROM.iter().any(|from| path.starts_with(from)) {
                continue;
            }
            for site in sites::sites(path, source)? {
                // The key has no line number, so that the draw stays the same if only tests or
                // comments change.
                let key = format!("{path} {} {}", site.function, site.what);
                let nth = seen.entry(key.clone()).or_default();
                *nth += 1;
                all.push((twox_hash::XxHash64::oneshot(0, format!("{seed} {key} {nth}").as_bytes()), site));
            }
        }
        all.sort_by_key(|(key, _)| *key);
        Ok(all.into_iter().map(|(_, site)| site).collect())
    }

    /// Writes the copy with drawn sites and patches in it, and replaces sites that do not compile
    /// by the next ones. Also returns the patches that must be built alone.
    fn compiled(
        &self,
        drawn: Vec<Site>,
        count: usize,
    ) -> Result<(BTreeMap<u32, Mutant>, BTreeSet<usize>), String> {
        // The list of refused sites is kept, because a second run then writes, and so builds, no
        // file again.
        let list = self.cache.join("refused");
        let known = std::fs::read_to_string(&list).unwrap_or_default();
        let known: BTreeSet<&str> = known.lines().collect();
        let name = |site: &Site| format!("{} {} {}", site.path, site.function, site.what);
        let is_known = |(n, site): (usize, &Site)| known.contains(&name(site)[..]).then_some(n);
        let names = self.planted.iter().enumerate().map(|(n, patch)| (n, patch.name.as_str()));
        let mut apart: BTreeSet<usize> =
            names.filter(|(_, name)| known.contains(name)).map(|(n, _)| n).collect();
        let mut refused: BTreeSet<usize> = drawn.iter().enumerate().filter_map(is_known).collect();
        loop {
            // A drawn site's number is its place in the draw, from 1; patches are numbered
            // from 5000.
            let mut edits: BTreeMap<String, Edits> = BTreeMap::new();
            let mut mutants = BTreeMap::new();
            for (n, site) in drawn.iter().enumerate() {
                if mutants.len() == count {
                    break;
                }
                let edits = edits.entry(site.path.clone()).or_default();
                if refused.contains(&n) || edits.touches(&site.range) {
                    continue;
                }
                let id = number(n + 1);
                edits.add_site(id, site, &self.sources[&site.path]);
                mutants.insert(id, Mutant::Drawn(site.clone()));
            }
            let mut bodies: BTreeMap<(String, usize, usize), Vec<(u32, String)>> = BTreeMap::new();
            for (n, patch) in self.planted.iter().enumerate() {
                if apart.contains(&n) {
                    continue;
                }
                let Some(changed) = weave::bodies_of(&patch.files, &self.sources) else {
                    apart.insert(n);
                    continue;
                };
                for (path, range, body) in changed {
                    bodies.entry((path, range.start, range.end)).or_default().push((number(5000 + n), body));
                }
                mutants.insert(number(5000 + n), Mutant::Planted(n));
            }
            for ((path, start, end), bodies) in bodies {
                edits.entry(path).or_default().add_bodies(start..end, &bodies);
            }
            let woven: BTreeMap<String, Woven> =
                edits.into_iter().map(|(path, e)| (path.clone(), e.woven(&self.sources[&path]))).collect();
            let texts = woven.iter().map(|(path, w)| (path.clone(), w.text.clone())).collect();
            self.write(&texts)?;
            let wrong = self.wrong(&woven)?;
            if wrong.is_empty() {
                let sites = refused.iter().map(|n| name(&drawn[*n]));
                let names = sites.chain(apart.iter().map(|n| self.planted[*n].name.clone()));
                let names = names.collect::<Vec<_>>().join("\n");
                std::fs::write(&list, names).map_err(|e| format!("{}: {e}", list.display()))?;
                return Ok((mutants, apart));
            }
            println!("{} do not compile", wrong.len());
            for id in wrong {
                match id.checked_sub(5000) {
                    Some(n) => drop(apart.insert(n as usize)),
                    None => drop(refused.insert(id as usize - 1)),
                }
            }
        }
    }

    /// Returns the mutants that the compiler refuses.
    fn wrong(&self, woven: &BTreeMap<String, Woven>) -> Result<BTreeSet<u32>, String> {
        let (verb, tree) = (["check", "--keep-going"], self.cache.join("tree"));
        let (good, messages) = suites::cargo(&tree, &self.cache, Build::Plain, &verb, &TESTED)?;
        let mut wrong = BTreeSet::new();
        let mut unknown = Vec::new();
        for message in messages.iter().map(|m| &m["message"]).filter(|m| m["level"] == "error") {
            let spans = message["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
            let of_mutant = |span: &serde_json::Value| {
                let place = usize::try_from(span["byte_start"].as_u64()?).ok()?;
                woven.get(span["file_name"].as_str()?)?.mutant_at(place)
            };
            let primary = spans.iter().filter(|s| s["is_primary"] == true).find_map(of_mutant);
            match primary.or_else(|| spans.iter().find_map(of_mutant)) {
                Some(id) => drop(wrong.insert(id)),
                None if spans.is_empty() => {}
                None => unknown.push(message["rendered"].as_str().unwrap_or_default()),
            }
        }
        if !good && wrong.is_empty() {
            return Err(format!("the copy does not compile:\n{}", unknown.join("\n")));
        }
        Ok(wrong)
    }

    /// Writes the tree to the copy, with these files in place of its own and a switch in each of
    /// their crates.
    fn write(&self, instead: &BTreeMap<String, String>) -> Result<(), String> {
        let mut files = self.bytes.clone();
        for (path, text) in instead {
            files.insert(path.clone(), text.clone().into_bytes());
        }
        for folder in weave::crates_of(instead.keys()) {
            let root =
                files.get_mut(&format!("{folder}/src/lib.rs")).ok_or(format!("{folder}: no lib.rs"))?;
            root.extend_from_slice(b"\n#[allow(missing_docs, unreachable_pub)]\npub mod mutant;\n");
            files.insert(format!("{folder}/src/mutant.rs"), weave::switch(10_000).into_bytes());
        }
        weave::write_tree(&self.cache.join("tree"), &files)
    }

    /// Builds a patch alone and runs the suite that it names, then all suites if that one did not
    /// find it.
    fn alone(&self, patch: &Planted, journal: &Journal, row: &mut Row, o: &Options) -> Result<(), String> {
        self.write(&patch.files)?;
        let tree = self.cache.join("tree");
        let kind = if patch.suite == EXPLORED { Build::Shuttle } else { Build::Plain };
        let built = suites::build(&tree, &self.cache, kind, &target_of(&patch.suite))?;
        row.try_every(journal, &built, o.at_most)?;
        if row.found.is_none() && o.suite.is_none() {
            let suites = suites::build(&tree, &self.cache, Build::Plain, &[&TESTED[..], &TESTS].concat())?;
            for stage in 0..STAGES {
                let of_stage: Vec<Suite> =
                    suites.iter().filter(|s| stage_of(&s.name) == stage).cloned().collect();
                row.try_every(journal, &of_stage, o.at_most)?;
            }
        }
        Ok(())
    }
}

/// Cargo's arguments for a suite.
fn target_of(suite: &str) -> Vec<String> {
    let (package, target) = suite.split_once(' ').unwrap_or_default();
    let package = ["-p".to_string(), format!("karst-{package}")];
    let target = if target == "lib" { vec!["--lib"] } else { vec!["--test", target] };
    package.into_iter().chain(target.into_iter().map(str::to_string)).collect()
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than that")
}

impl Row {
    /// Runs tests with this mutant on until one fails, while they take no more than `at_most`
    /// seconds in total.
    fn try_all(&mut self, journal: &Journal, worker: usize, tests: &[&Test], at_most: f64) {
        for test in tests {
            if self.found.is_some() || self.time_of_tests + test.seconds > at_most {
                return;
            }
            self.tests += 1;
            if at_most.is_finite() {
                self.time_of_tests += test.seconds;
            }
            let (outcome, seconds) = journal.outcome(worker, test, self.id);
            self.seconds += seconds;
            if outcome != Outcome::Passes {
                let hangs = outcome == Outcome::Hangs;
                self.found = Some(Found { suite: test.suite.name.clone(), test: test.name.clone(), hangs });
            }
        }
    }

    /// Runs the tests of programs that contain only this mutant: the first test that fails has
    /// found it.
    fn try_every(&mut self, journal: &Journal, suites: &[Suite], at_most: f64) -> Result<(), String> {
        if self.found.is_some() || self.time_of_tests > at_most {
            return Ok(());
        }
        let (tests, noticed) = journal.alone(suites)?;
        self.tests += tests.len();
        self.seconds += tests.iter().sum::<f64>();
        self.time_of_tests = self.seconds;
        self.found = noticed;
        Ok(())
    }
}
