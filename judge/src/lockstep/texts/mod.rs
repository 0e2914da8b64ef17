//! Option strings in lockstep: RocksDB and KarstDB parse the same text, must both take it or both
//! refuse it, and must have the same options afterwards.
//!
//! In: a seed. Out: the number of texts that were compared; or each difference that [`known`] does
//! not name, with the shortest text that shows it.
//!
//! Texts are option strings of a database, of a column family, of block-based tables and of both
//! of the former, and OPTIONS files with and without unknown names; every tenth one is also opened.

mod draw;
mod flat;
mod known;
mod opened;
mod parse;
mod pools;

use draw::{Drawing, Text};
use flat::Flat;
use karst_testkit::random::Random;
use parse::Kind;
use std::collections::BTreeMap;
use std::path::Path;

/// Texts of one seed.
const TEXTS: usize = 2_000;
/// Number of texts of which one is opened with, too.
const OPENED: usize = 40;
/// Differences of one seed after which it ends.
const DIFFERENCES: usize = 100;

/// Options of each kind that no text has changed.
struct Defaults(BTreeMap<Kind, [Flat; 2]>);

impl Defaults {
    fn read() -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for kind in Kind::ALL {
            let flat = |outcome: Result<String, String>| outcome.and_then(|text| Flat::of(kind, &text));
            let rocks = flat(parse::rocks(kind, "", false)).map_err(|e| format!("RocksDB, {kind:?}: {e}"))?;
            let karst = flat(parse::karst(kind, "", false)).map_err(|e| format!("KarstDB, {kind:?}: {e}"))?;
            all.insert(kind, [rocks, karst]);
        }
        Ok(Self(all))
    }
}

/// Runs one seed.
pub(super) fn run(seed: u64, folder: &Path) -> Result<usize, String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let defaults = Defaults::read()?;
    let mut drawing = Drawing::new(Random::new(seed));
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut counts = known::Counts::default();
    for number in 0..TEXTS {
        let text = drawing.text();
        let difference = match number % OPENED {
            0 => opened::difference(&drawing.opened(), folder, &mut counts)?,
            _ => difference(&text, folder, &defaults, &mut counts)?,
        };
        if let Some((signature, shown)) = difference {
            found.entry(signature).or_insert(shown);
        }
        if found.len() >= DIFFERENCES {
            break;
        }
    }
    std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    counts.print();
    match found.is_empty() {
        true => Ok(TEXTS),
        false => Err(found.into_values().collect::<Vec<_>>().join("\n")),
    }
}

/// Compares one text; returns the difference, if any, by what it is about.
fn difference(
    text: &Text,
    folder: &Path,
    defaults: &Defaults,
    counts: &mut known::Counts,
) -> Result<Option<(String, String)>, String> {
    let whole = text.whole();
    // For the case that RocksDB ends the process.
    std::fs::write(folder.join("last"), format!("{:?} {whole}", text.kind)).map_err(|e| e.to_string())?;
    let rocks = parse::rocks(text.kind, &whole, text.ignore_unknown);
    let karst = parse::karst(text.kind, &whole, text.ignore_unknown);
    let what = match (&rocks, &karst) {
        (Err(error), _) if error.starts_with(parse::ENDED) => error.clone(),
        (Err(_), Err(_)) => {
            counts.refused += 1;
            return Ok(None);
        }
        (Ok(_), Err(error)) => format!("RocksDB takes it, KarstDB: {error}"),
        (Err(error), Ok(_)) => format!("KarstDB takes it, RocksDB: {error}"),
        (Ok(rocks), Ok(karst)) => {
            counts.taken += 1;
            let (Ok(rocks), Ok(karst)) = (Flat::of(text.kind, rocks), Flat::of(text.kind, karst)) else {
                counts.ambiguous += 1;
                return Ok(None);
            };
            let flat = [rocks, karst];
            match flat::differing(&flat, &defaults.0[&text.kind]) {
                None => return Ok(None),
                Some(what) => what,
            }
        }
    };
    if counts.explains(text, &rocks, &karst) {
        return Ok(None);
    }
    let signature = format!("{:?} {} {}", text.kind, text.names(), what.chars().take(24).collect::<String>());
    Ok(Some((signature, format!("{:?} {whole:?}\n    {what}", text.kind))))
}
