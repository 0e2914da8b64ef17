//! Walks of their own, each over one part of the engines that the main walk leaves out: a seed is
//! one database or one set of texts, and a walk continues with the next seed.

use super::{fifo, texts};
use crate::timestamps;
use std::path::{Path, PathBuf};

/// Runs one seed in a folder, and returns the number of units that were compared.
type Walk = fn(seed: u64, folder: &Path) -> Result<usize, String>;

/// A walk: its name, the unit that `--ops` counts, and how many are compared by default.
struct Kind {
    name: &'static str,
    unit: &'static str,
    units: usize,
    walk: Walk,
}

const KINDS: &[Kind] = &[
    Kind { name: "fifo", unit: "files", units: 200, walk: fifo::run },
    Kind { name: "options", unit: "texts", units: 8_000, walk: texts::run },
    Kind { name: "timestamps", unit: "rows", units: 20_000, walk: timestamps::lockstep::run },
];

/// Runs the named walk, with `--ops N`, `--seed S` and `--folder DIR`; None if there is no such
/// one.
pub(super) fn run(name: &str, args: &[&str]) -> Option<Result<(), String>> {
    KINDS.iter().find(|kind| kind.name == name).map(|kind| kind.run(args))
}

impl Kind {
    fn run(&self, args: &[&str]) -> Result<(), String> {
        let (mut units, mut seed, mut folder) = (self.units, 1, std::env::temp_dir());
        for pair in args.chunks(2) {
            let [word, value] = pair else { return Err(format!("{}: which?", pair.join(" "))) };
            match *word {
                "--ops" => units = value.parse().map_err(|e| format!("--ops {value}: {e}"))?,
                "--seed" => seed = value.parse().map_err(|e| format!("--seed {value}: {e}"))?,
                "--folder" => folder = PathBuf::from(value),
                _ => return Err(format!("lockstep {} takes no {word}", self.name)),
            }
        }
        let folder = folder.join(format!("karst-judge-{}-{}", self.name, std::process::id()));
        println!("lockstep {}: seed {seed}, in {}", self.name, folder.display());
        let (mut total, begun) = (0, seed);
        while total < units {
            let walked = (self.walk)(seed, &folder.join(seed.to_string()));
            total += walked.map_err(|e| {
                format!("seed {seed}: {e}\nagain: karst-judge lockstep {} --seed {seed} --ops 1", self.name)
            })?;
            seed += 1;
        }
        println!("lockstep {}: {total} {} of {} seeds", self.name, self.unit, seed - begun);
        std::fs::remove_dir_all(&folder).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(format!("{}: {e}", folder.display())),
        })
    }
}
