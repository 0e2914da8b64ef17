//! KarstDB and RocksDB 11.8 in lockstep: the same random operations on both, with random options,
//! every answer compared with the other's and with a model's, and the directories swapped at each
//! reopening. docs/decisions/lockstep.md lists the compared operations and options.
//!
//! A seed determines one database of several lives; a run continues with the next seed.

mod draw;
mod engine;
mod fifo;
mod follow;
mod ingest;
mod karst;
mod known;
mod life;
mod options;
mod rocks;
mod state;
mod texts;
mod transfer;
mod walks;

use life::{Pair, Plan, Report};
use std::path::PathBuf;
use std::time::Instant;

const OPERATIONS: u64 = 1_000_000;

/// Kinds of operations that seeds are known to fail with.
///
/// - `open_secondary`: RocksDB 11.8's secondary may read a log for ever (`FragmentBufferedReader`,
///   seed 1).
/// - `import`: a manual flush of RocksDB 11.8 never ended once (seed 950001).
const ASKED_FOR: [&str; 2] = ["open_secondary", "import"];

/// The name of one of the [`walks`] and its arguments; or those of the main walk: `--ops N`,
/// `--seed S`, `--folder DIR`; to investigate one seed `--until N`, `--without KIND`,
/// `--set OPTION=VALUE`. [`ASKED_FOR`] are drawn only with `--with KIND`.
pub(crate) fn run(args: &[&str]) -> Result<(), String> {
    if let [name, rest @ ..] = args
        && let Some(result) = walks::run(name, rest)
    {
        return result;
    }
    let (mut operations, mut seed, mut folder) = (OPERATIONS, 1, std::env::temp_dir());
    let (mut until, mut without, mut set) = (None, ASKED_FOR.map(String::from).to_vec(), Vec::new());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: which?"))?;
        let number = || value.parse().map_err(|e| format!("{word} {value}: {e}"));
        match *word {
            "--ops" => operations = number()?,
            "--seed" => seed = number()?,
            "--folder" => folder = PathBuf::from(value),
            "--until" => until = Some(number()?),
            "--with" => without.retain(|kind| kind != value),
            "--without" => without.push((*value).to_string()),
            "--set" => {
                let (name, value) =
                    value.split_once('=').ok_or_else(|| format!("--set {value}: to what?"))?;
                set.push((name.to_string(), value.to_string()));
            }
            _ => return Err(format!("lockstep takes no {word}")),
        }
    }
    let folder = folder.join(format!("karst-judge-lockstep-{}", std::process::id()));
    println!("lockstep: seed {seed}, in {}", folder.display());
    let (mut report, started, mut told) = (Report::default(), Instant::now(), 0);
    let mut plan = Plan { seed, until: until.unwrap_or(u64::MAX), without, set, folder: PathBuf::new() };
    while report.total() < operations {
        plan.folder = folder.join(plan.seed.to_string());
        Pair::new(&plan, &mut report)?.live()?;
        if until.is_some() {
            break;
        }
        plan.seed += 1;
        if report.total() >= told + 50_000 {
            told = report.total();
            println!(
                "{told} of {operations} operations, {:.0} s, {} databases, {} reopenings",
                started.elapsed().as_secs_f64(),
                plan.seed - seed,
                report.reopened
            );
        }
    }
    println!("{} operations: {:?}", report.total(), report.operations);
    println!(
        "{} reopenings with swapped directories, {} of them as after a kill",
        report.reopened, report.killed
    );
    println!("refused by both: {:?}", report.refused);
    println!("explained by the list of what is known:");
    for (name, times) in &report.known {
        println!("{times:8} {name}: {}", known::why(name));
    }
    if until.is_some() {
        return Ok(());
    }
    std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}
