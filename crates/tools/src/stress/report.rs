//! The report of a run, as text and as one line of JSON.

use super::counts::{Count, Counts};
use super::place::Site;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The failure of a life, with the commands to reproduce it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) life: u64,
    pub(crate) text: String,
    /// File with the options of that life.
    pub(crate) options: PathBuf,
    /// Command that repeats the run, and the one that only verifies the database as it is.
    pub(crate) again: String,
    pub(crate) look: String,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    seed: u64,
    place: Site,
    pub(crate) lives: u64,
    pub(crate) killed: u64,
    /// Lives killed before the database was open.
    pub(crate) killed_in_opening: u64,
    /// Lives that ended in order.
    pub(crate) closed: u64,
    pub(crate) counts: Vec<u64>,
    pub(crate) openings_ms: Vec<u64>,
    pub(crate) elapsed: Duration,
    /// Total size in bytes of the database's files at the end.
    size: u64,
    pub(crate) failure: Option<Failure>,
}

impl Report {
    pub(crate) fn new(seed: u64, place: &Site) -> Report {
        Report {
            seed,
            place: place.clone(),
            lives: 0,
            killed: 0,
            killed_in_opening: 0,
            closed: 0,
            counts: Counts::default().numbers(),
            openings_ms: Vec::new(),
            elapsed: Duration::ZERO,
            size: 0,
            failure: None,
        }
    }

    /// Adds the counts of one life.
    pub(crate) fn add(&mut self, counts: &[u64]) {
        self.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    pub(crate) fn measure(&mut self, place: &Site) {
        let files = std::fs::read_dir(&place.db).into_iter().flatten().flatten();
        self.size = files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum();
    }

    fn opening_ms(&self) -> (u64, u64, u64) {
        let mut all = self.openings_ms.clone();
        all.sort_unstable();
        let median = all.get(all.len() / 2).copied().unwrap_or(0);
        (all.first().copied().unwrap_or(0), median, all.last().copied().unwrap_or(0))
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let (least, median, most) = self.opening_ms();
        let _ = writeln!(
            text,
            "{:.1} s, seed {}: {} lives, {} killed ({} of them before the database was open), {} ended in order",
            self.elapsed.as_secs_f64(),
            self.seed,
            self.lives,
            self.killed,
            self.killed_in_opening,
            self.closed
        );
        let _ = writeln!(text, "opening took {least} to {most} ms, half of the times at most {median} ms");
        for (what, name) in Count::ALL {
            let number = self.counts[*what as usize];
            if number > 0 {
                let _ = writeln!(text, "{number:>14} {name}");
            }
        }
        if self.size > 0 {
            let _ = writeln!(text, "{:>14} bytes of files in the end", self.size);
        }
        match &self.failure {
            None => text.push_str("no errors\n"),
            Some(failure) => {
                let _ = writeln!(
                    text,
                    "\nFAILED in life {}: {}\n\nthe database:        {}\nits expected state:  {}\noptions of the life: {}\nto look again:       {}\nto do it all again:  {}",
                    failure.life,
                    failure.text,
                    self.place.db.display(),
                    self.place.expected.display(),
                    failure.options.display(),
                    failure.look,
                    failure.again
                );
            }
        }
        text
    }

    pub(crate) fn json(&self) -> String {
        let (least, median, most) = self.opening_ms();
        let counts: Map<String, Value> = Count::ALL
            .iter()
            .map(|(what, name)| (name.replace(' ', "_"), json!(self.counts[*what as usize])))
            .collect();
        let failure = self.failure.as_ref().map(|failure| {
            json!({
                "life": failure.life,
                "what": failure.text,
                "options": failure.options.display().to_string(),
                "look_again": failure.look,
                "do_again": failure.again,
            })
        });
        json!({
            "seed": self.seed,
            "seconds": self.elapsed.as_secs_f64(),
            "lives": self.lives,
            "killed": self.killed,
            "killed_in_opening": self.killed_in_opening,
            "closed": self.closed,
            "opening_ms": { "least": least, "median": median, "most": most },
            "counts": counts,
            "bytes_of_files": self.size,
            "db": self.place.db.display().to_string(),
            "expected_values_dir": self.place.expected.display().to_string(),
            "errors": u64::from(self.failure.is_some()),
            "failure": failure,
        })
        .to_string()
    }
}
