//! Lives of a database in both engines, from one opening to the next: every operation runs on both,
//! and both answers are compared with the model's.

use super::draw::{Draw, Limits};
use super::engine::{Answer, Engine, Op, Opening, Policy};
use super::karst::Karst;
use super::known::{self, Met, Tally};
use super::options::{self, FamilyChoice, Lines, Nature};
use super::rocks::Rocks;
use super::state::State;
use karst_testkit::random::Random;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Counts of a run.
#[derive(Default)]
pub(super) struct Report {
    pub(super) operations: BTreeMap<&'static str, u64>,
    pub(super) reopened: u64,
    pub(super) killed: u64,
    /// Openings and operations that both engines refused with errors of the same kind.
    pub(super) refused: BTreeMap<&'static str, u64>,
    pub(super) known: Tally,
}

impl Report {
    pub(super) fn total(&self) -> u64 {
        self.operations.values().sum()
    }
}

/// Plan of a run, from the command line.
pub(super) struct Plan {
    pub(super) seed: u64,
    /// Number of operations after which the run ends and keeps its directories; `u64::MAX` for no
    /// limit.
    pub(super) until: u64,
    /// Kinds of operations that are not drawn.
    pub(super) without: Vec<String>,
    /// Options that override those drawn.
    pub(super) set: Vec<(String, String)>,
    pub(super) folder: PathBuf,
}

/// Lives of one database.
const LIVES: u64 = 12;
const OPERATIONS_OF_A_LIFE: u64 = 4000;
/// Maximum number of option draws for one opening while both engines refuse them.
const ATTEMPTS: usize = 50;

/// A database in both engines.
pub(super) struct Pair<'a> {
    plan: &'a Plan,
    report: &'a mut Report,
    state: State,
    draw: Draw,
    policy: Option<Policy>,
    /// Current directories of KarstDB and RocksDB.
    paths: [PathBuf; 2],
    /// The options of this life.
    opening: Option<Opening>,
    database: Lines,
    unlogged: bool,
    /// True if logs were recycled in an earlier life.
    recycled: bool,
    done: u64,
    life: u64,
    /// Log of this life's operations, one per line.
    log: Option<File>,
}

type Engines = [Box<dyn Engine>; 2];

impl<'a> Pair<'a> {
    pub(super) fn new(plan: &'a Plan, report: &'a mut Report) -> Result<Self, String> {
        let mut random = Random::new(plan.seed);
        let policy = match random.below(5) {
            0 => Some(Policy::WriteCommitted),
            1 => Some(Policy::WritePrepared),
            _ => None,
        };
        std::fs::create_dir_all(&plan.folder).map_err(|e| format!("{}: {e}", plan.folder.display()))?;
        Ok(Self {
            plan,
            report,
            state: State::default(),
            draw: Draw::new(random),
            policy,
            paths: ["a", "b"].map(|name| plan.folder.join(name)),
            opening: None,
            database: Lines::new(),
            unlogged: false,
            recycled: false,
            done: 0,
            life: 0,
            log: None,
        })
    }

    /// Runs all lives.
    pub(super) fn live(mut self) -> Result<(), String> {
        let natures = (0..3).map(|_| Nature::draw(&mut self.draw.random)).collect::<Vec<_>>();
        while self.life < LIVES && self.done < self.plan.until {
            self.one(&natures).map_err(|e| self.tell(&e))?;
            self.life += 1;
        }
        if self.plan.until != u64::MAX {
            return Ok(());
        }
        std::fs::remove_dir_all(&self.plan.folder).map_err(|e| format!("{}: {e}", self.plan.folder.display()))
    }

    fn one(&mut self, natures: &[Nature]) -> Result<(), String> {
        let mut engines = self.open(natures)?;
        let length = 200 + self.draw.random.below(OPERATIONS_OF_A_LIFE);
        self.scan_all();
        let end = (self.done + length).min(self.plan.until);
        while self.done < end || !self.draw.queue.is_empty() {
            let limits = Limits { database: &self.database, policy: self.policy, unlogged: self.unlogged };
            let mut op = self.draw.next(&self.state, &limits, &mut self.report.known);
            if let (Op::CreateFamily { options, .. } | Op::Import { options, .. }, Some((_, _, choice))) =
                (&mut op, &mut self.draw.created)
            {
                set(&mut [&mut choice.family, &mut choice.table], &self.plan.set);
                *options = choice.text();
            }
            if self.plan.without.iter().any(|kind| kind == op.kind()) {
                continue;
            }
            self.step(&mut engines, &op)?;
        }
        self.end(engines)
    }

    /// Queues scans of all families.
    fn scan_all(&mut self) {
        for family in self.state.live() {
            self.draw.scan(&self.state, family, None);
        }
    }

    /// Opens both engines; draws options until both accept them.
    fn open(&mut self, natures: &[Nature]) -> Result<Engines, String> {
        for _ in 0..ATTEMPTS {
            let mut database = options::database(
                &mut self.draw.random,
                (self.policy, self.recycled),
                &mut self.report.known,
            );
            self.unlogged = self.policy.is_none() && self.draw.random.one_in(4);
            let ignore_options_file = self.draw.random.one_in(2);
            let families: Vec<(usize, String, Nature)> = match self.life {
                0 => {
                    let names = ["default", "second", "third"].iter().zip(natures).enumerate();
                    names.map(|(number, (name, nature))| (number, (*name).into(), nature.clone())).collect()
                }
                _ => {
                    let live = self.state.live().into_iter();
                    live.map(|n| {
                        (n, self.state.families[n].name.clone(), self.state.families[n].nature.clone())
                    })
                    .collect()
                }
            };
            let mut choices = Vec::new();
            for (number, name, nature) in families {
                let mut choice =
                    nature.options(&mut self.draw.random, (&database, self.policy), &mut self.report.known);
                set(&mut [&mut choice.family, &mut choice.table], &self.plan.set);
                choices.push((number, name, nature, choice));
            }
            set(&mut [&mut database], &self.plan.set);
            let opening = Opening {
                database: options::text(&database),
                families: choices
                    .iter()
                    .map(|(number, name, _, choice)| (*number, name.clone(), choice.text()))
                    .collect(),
                directories: self.paths.clone(),
                transactions: self.policy,
                ignore_options_file,
                prepared: self
                    .state
                    .transactions
                    .iter()
                    .filter(|(_, t)| t.prepared)
                    .map(|(n, t)| (*n, t.name.clone()))
                    .collect(),
            };
            self.write_down(&opening)?;
            self.database = database;
            self.opening = Some(opening.clone());
            let karst = Karst::open(&self.paths[0], &opening);
            let rocks = Rocks::open(&self.paths[1], &opening);
            match (karst, rocks) {
                (Ok(karst), Ok(rocks)) => {
                    self.opened(choices);
                    return self.compare_prepared([karst, rocks]);
                }
                // The kinds may differ, because a conflict of options is "not supported" to one
                // engine and an "invalid argument" to the other.
                (Err(karst), Err(rocks)) if [&karst, &rocks].iter().all(|failure| failure.is_refusal()) => {
                    *self.report.refused.entry("open").or_default() += 1;
                }
                (karst, rocks) => {
                    let said = |result: Result<Box<dyn Engine>, _>| match result {
                        Ok(_) => "opened".to_string(),
                        Err(failure) => format!("{failure:?}"),
                    };
                    return Err(format!("opening: KarstDB {}\n  RocksDB {}", said(karst), said(rocks)));
                }
            }
        }
        Err(format!("both refuse {ATTEMPTS} openings in a row"))
    }

    fn opened(&mut self, choices: Vec<(usize, String, Nature, FamilyChoice)>) {
        self.recycled |= self.database["recycle_log_file_num"] != "0";
        if self.life == 0 {
            for (_, name, nature, choice) in choices {
                self.state.add_family(name, nature, choice);
            }
        } else {
            self.state.reopen(choices.into_iter().map(|(number, _, _, choice)| (number, choice)).collect());
        }
    }

    fn compare_prepared(&self, engines: Engines) -> Result<Engines, String> {
        let prepared = self.state.transactions.values().filter(|t| t.prepared);
        let mut names: Vec<String> = prepared.map(|transaction| transaction.name.clone()).collect();
        names.sort();
        let found = [engines[0].prepared(), engines[1].prepared()];
        if found.iter().all(|found| *found == names) {
            return Ok(engines);
        }
        Err(format!("prepared: KarstDB {:?}\n  RocksDB {:?}\n  model {names:?}", found[0], found[1]))
    }

    fn write_down(&mut self, opening: &Opening) -> Result<(), String> {
        let path = self.log_path();
        let io = |e: std::io::Error| format!("{}: {e}", path.display());
        let mut log = File::create(&path).map_err(io)?;
        writeln!(log, "life {}, KarstDB in {}\n{opening:#?}", self.life, self.paths[0].display())
            .map_err(io)?;
        self.log = Some(log);
        Ok(())
    }

    /// Path of this life's log. Each life has its own file, because the cause of an error is often
    /// in the life before.
    fn log_path(&self) -> PathBuf {
        self.plan.folder.join(format!("operations-{:02}", self.life))
    }

    fn step(&mut self, engines: &mut Engines, op: &Op) -> Result<(), String> {
        self.done += 1;
        *self.report.operations.entry(op.kind()).or_default() += 1;
        if let Some(log) = &mut self.log {
            writeln!(log, "{} {op:?}", self.done).map_err(|e| e.to_string())?;
        }
        let (model, defined) = match op {
            Op::Walk { number, moves } => self.state.walk(*number, &moves.0),
            _ => (self.state.answer(op), Vec::new()),
        };
        let [mut karst, mut rocks] = [0, 1].map(|engine| engines[engine].apply(op));
        for answer in [&mut karst, &mut rocks] {
            leave_out(answer, &model, &defined);
        }
        let refusable =
            matches!(op, Op::Write { unlogged: true, .. } | Op::SetOptions { .. } | Op::CreateFamily { .. });
        let refused = refusable && matches!(karst, Answer::Failed(_)) && karst == rocks;
        if agree(&karst, &model) && agree(&rocks, &model) {
            if !matches!(model, Answer::Failed(_)) {
                self.apply(op);
            }
            return Ok(());
        }
        if refused {
            *self.report.refused.entry(op.kind()).or_default() += 1;
            return Ok(());
        }
        let met = Met { op, karst: &karst, rocks: &rocks, model: &model, policy: self.policy };
        if known::explains(&met, &mut self.report.known) {
            self.apply(op);
            return Ok(());
        }
        let (mut karst, mut rocks, mut model) = (karst, rocks, model);
        only_differing(&mut karst, &mut rocks, &mut model);
        Err(format!("{op:?}:\n  KarstDB {karst:?}\n  RocksDB {rocks:?}\n  model   {model:?}"))
    }

    fn apply(&mut self, op: &Op) {
        if let Op::CreateFamily { .. } | Op::Import { .. } = op
            && let Some((name, nature, choice)) = self.draw.created.take()
        {
            self.state.add_family(name, nature, choice);
        }
        self.state.apply(op);
    }

    /// Ends the life by a close or as if killed, and swaps the directories.
    fn end(&mut self, mut engines: Engines) -> Result<(), String> {
        let killed = self.draw.random.one_in(2);
        let mut last = Vec::new();
        if self.unlogged {
            last.push(Op::Flush { families: self.state.live() });
        }
        last.push(Op::FlushWal { sync: false });
        for op in last {
            self.step(&mut engines, &op)?;
        }
        if let Some(log) = &mut self.log {
            writeln!(log, "{}", if killed { "killed" } else { "closed" }).map_err(|e| e.to_string())?;
        }
        for (engine, path) in engines.into_iter().zip(&self.paths) {
            end(engine, path, killed)?;
        }
        self.report.reopened += 1;
        self.report.killed += u64::from(killed);
        self.paths.reverse();
        Ok(())
    }

    /// Report of a failure: the error, the last operations, and the command that repeats it.
    fn tell(&self, error: &str) -> String {
        let log = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n  ");
        let set: Vec<String> =
            self.plan.set.iter().map(|(name, value)| format!(" --set {name}={value}")).collect();
        let without: Vec<String> =
            self.plan.without.iter().map(|kind| format!(" --without {kind}")).collect();
        format!(
            "seed {}, life {}, operation {}: {error}\nthe options: {:#?}\nthe last operations:\n  {last}\nKarstDB is in {}, RocksDB in {}; all operations of this life are in {}\nagain: karst-judge lockstep --seed {} --until {}{}{}",
            self.plan.seed,
            self.life,
            self.done,
            self.opening,
            self.paths[0].display(),
            self.paths[1].display(),
            self.log_path().display(),
            self.plan.seed,
            self.done,
            set.concat(),
            without.concat(),
        )
    }
}

/// Sets the options in each list that has them.
fn set(all: &mut [&mut Lines], options: &[(String, String)]) {
    for (name, value) in options {
        for lines in all.iter_mut() {
            if let Some(line) = lines.get_mut(name.as_str()) {
                value.clone_into(line);
            }
        }
    }
}

/// Replaces undefined positions of a walk by the model's.
fn leave_out(answer: &mut Answer, model: &Answer, defined: &[bool]) {
    if let (Answer::Walked(walked), Answer::Walked(right)) = (answer, model) {
        for ((at, right), defined) in walked.iter_mut().zip(right).zip(defined) {
            if !defined {
                at.clone_from(right);
            }
        }
    }
}

/// Shortens walks to the first step that differs.
fn only_differing(karst: &mut Answer, rocks: &mut Answer, model: &mut Answer) {
    let (Answer::Walked(karst), Answer::Walked(rocks), Answer::Walked(model)) = (karst, rocks, model) else {
        return;
    };
    let differs = |at: &usize| karst.get(*at) != model.get(*at) || rocks.get(*at) != model.get(*at);
    let longest = karst.len().max(rocks.len()).max(model.len());
    let first = (0..longest).find(differs).unwrap_or(0);
    for walked in [karst, rocks, model] {
        *walked = walked.drain(..).skip(first).take(1).collect();
    }
}

/// Returns true if an answer agrees with the model's.
pub(super) fn agree(answer: &Answer, model: &Answer) -> bool {
    match (answer, model) {
        // key_may_exist may only err towards true.
        (Answer::May(may, with), Answer::Value(value)) => {
            (*may || value.is_none()) && (with.is_none() || with == value)
        }
        _ => answer == model,
    }
}

fn end(mut engine: Box<dyn Engine>, path: &Path, killed: bool) -> Result<(), String> {
    let left = path.with_extension("killed");
    if killed {
        engine.copy_as_killed(path, &left)?;
    }
    engine.close().map_err(|failure| format!("closing {}: {failure:?}", path.display()))?;
    if killed {
        let io = |e: std::io::Error| format!("{}: {e}", path.display());
        std::fs::remove_dir_all(path).map_err(io)?;
        std::fs::rename(&left, path).map_err(io)?;
    }
    Ok(())
}
