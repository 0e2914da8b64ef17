//! A Markdown table of several contenders: medians over interleaved runs, with the ratios of their
//! first figure to that of named contenders. The ratios are medians of the ratios of single rounds,
//! because the processors' speed varies less within a round than between rounds.

use super::table::{Column, Row, median, named};
use crate::bench::Settings;
use crate::bench::record::Label;
use crate::bench::results::Measurement;

/// A contender: its name and its run.
pub(super) type Contender<'a> = (&'static str, Box<dyn FnMut() -> Result<Row, String> + 'a>);

/// A computed line: its name, and the function from the figures of a round's contenders, in their
/// order, to its own. NaN leaves a cell empty.
pub(super) type Derived<'a> = (&'static str, Box<dyn Fn(&[Row]) -> Row + 'a>);

pub(super) struct Contest {
    title: String,
    columns: &'static [Column],
    /// Names of the contenders that ratios refer to, one column each.
    baselines: &'static [&'static str],
    lines: Vec<String>,
    measured: Vec<Measurement>,
}

impl Contest {
    pub(super) fn new(
        title: impl Into<String>,
        columns: &'static [Column],
        baselines: &'static [&'static str],
    ) -> Self {
        Contest { title: title.into(), columns, baselines, lines: Vec::new(), measured: Vec::new() }
    }

    /// Runs all contenders in turn, `settings.repeat` times, and adds a line for each.
    pub(super) fn round(
        &mut self,
        settings: &Settings,
        label: impl Into<Label>,
        mut contenders: Vec<Contender<'_>>,
        derived: &[Derived<'_>],
    ) -> Result<(), String> {
        let label: Label = label.into();
        let names: Vec<&str> = contenders.iter().map(|c| c.0).chain(derived.iter().map(|d| d.0)).collect();
        let mut all: Vec<Vec<Row>> = vec![Vec::new(); names.len()];
        for round in 0..settings.repeat {
            let mut rows: Vec<Row> = Vec::with_capacity(names.len());
            for (name, run) in &mut contenders {
                let row = run().map_err(|e| format!("{}: {}: {name}: {e}", self.title, label.text))?;
                let unit = self.columns[0].name;
                let (round, text) = (round + 1, &label.text);
                eprintln!("  {text} [{round}/{}] {name}: {:.0} {unit}", settings.repeat, row[0]);
                rows.push(row);
            }
            let more: Vec<Row> = derived.iter().map(|(_, row)| row(&rows)).collect();
            all.iter_mut().zip(rows.into_iter().chain(more)).for_each(|(runs, row)| runs.push(row));
        }
        for (name, runs) in names.iter().zip(&all) {
            let mut line = format!("| {} | {name} |", label.text);
            let row = median(runs);
            let figures = named(self.columns, &row);
            self.measured.push(label.measurement(&self.title, name, settings.repeat, figures));
            for (column, figure) in self.columns.iter().zip(row) {
                let text =
                    if figure.is_nan() { String::new() } else { format!("{figure:.*}", column.digits) };
                line.push_str(&format!(" {text} |"));
            }
            for baseline in self.baselines {
                let at = names.iter().position(|name| name == baseline);
                let ratio = at.map(|at| format!("{:.2}", median_ratio(runs, &all[at])));
                line.push_str(&format!(" {} |", ratio.unwrap_or_default()));
            }
            self.lines.push(line);
        }
        Ok(())
    }

    /// Prints the table and records it under `rows`.
    pub(super) fn print(self, settings: &Settings, rows: &str) -> Result<(), String> {
        println!("\n### {}\n", self.title);
        let names: Vec<&str> = self.columns.iter().map(|c| c.name).collect();
        let ratios: String = self.baselines.iter().map(|name| format!(" x {name} |")).collect();
        println!("| | | {} |{ratios}", names.join(" | "));
        println!("|---|---|{}", "---:|".repeat(names.len() + self.baselines.len()));
        self.lines.iter().for_each(|line| println!("{line}"));
        settings.keep(rows, self.measured)
    }
}

/// Median over the rounds of the first figure of `runs` divided by that of `baseline`.
fn median_ratio(runs: &[Row], baseline: &[Row]) -> f64 {
    let ratios: Vec<Row> = runs.iter().zip(baseline).map(|(run, base)| vec![run[0] / base[0]]).collect();
    median(&ratios)[0]
}
