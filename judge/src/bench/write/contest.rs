//! A Markdown table of several contenders: medians over interleaved runs, with the ratios of their first figure to that of named contenders.

use super::table::{Column, Row, median};
use crate::bench::Settings;

/// One who takes part: a name, and a run.
pub(super) type Contender<'a> = (&'static str, Box<dyn FnMut() -> Result<Row, String> + 'a>);

pub(super) struct Contest {
    title: String,
    columns: &'static [Column],
    /// To whose first figure the others' are compared, each in a column of its own.
    baselines: &'static [&'static str],
    lines: Vec<String>,
}

impl Contest {
    pub(super) fn new(
        title: impl Into<String>,
        columns: &'static [Column],
        baselines: &'static [&'static str],
    ) -> Self {
        Contest { title: title.into(), columns, baselines, lines: Vec::new() }
    }

    /// Run all in turn, as often as the settings say, and add a line for each.
    pub(super) fn round(
        &mut self,
        settings: &Settings,
        label: &str,
        mut contenders: Vec<Contender<'_>>,
    ) -> Result<(), String> {
        let mut runs: Vec<Vec<Row>> = vec![Vec::new(); contenders.len()];
        for round in 0..settings.repeat {
            for ((name, run), runs) in contenders.iter_mut().zip(&mut runs) {
                let row = run().map_err(|e| format!("{}: {label}: {name}: {e}", self.title))?;
                let unit = self.columns[0].name;
                eprintln!("  {label} [{}/{}] {name}: {:.0} {unit}", round + 1, settings.repeat, row[0]);
                runs.push(row);
            }
        }
        let medians: Vec<Row> = runs.iter().map(|runs| median(runs)).collect();
        for ((name, _), row) in contenders.iter().zip(&medians) {
            let mut line = format!("| {label} | {name} |");
            for (column, figure) in self.columns.iter().zip(row) {
                line.push_str(&format!(" {figure:.*} |", column.digits));
            }
            for baseline in self.baselines {
                let at = contenders.iter().position(|(name, _)| name == baseline);
                let ratio = at.map(|at| format!("{:.2}", row[0] / medians[at][0]));
                line.push_str(&format!(" {} |", ratio.unwrap_or_default()));
            }
            self.lines.push(line);
        }
        Ok(())
    }

    pub(super) fn print(&self) {
        println!("\n### {}\n", self.title);
        let names: Vec<&str> = self.columns.iter().map(|c| c.name).collect();
        let ratios: String = self.baselines.iter().map(|name| format!(" x {name} |")).collect();
        println!("| | | {} |{ratios}", names.join(" | "));
        println!("|---|---|{}", "---:|".repeat(names.len() + self.baselines.len()));
        self.lines.iter().for_each(|line| println!("{line}"));
    }
}
