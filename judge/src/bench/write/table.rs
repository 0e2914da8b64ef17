//! A Markdown table of both engines: medians over interleaved runs, with the ratio to RocksDB's
//! figure.

use super::store::Engine;
use crate::bench::Settings;
use crate::bench::record::{Label, figure};
use crate::bench::results::{Figure, Measurement};

/// One column of figures.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) digits: usize,
    /// True if the table shows KarstDB's figure divided by RocksDB's.
    pub(super) ratio: bool,
}

/// The figures of one run, in the order of the columns.
pub(super) type Row = Vec<f64>;

pub(super) struct Table {
    title: String,
    columns: &'static [Column],
    lines: Vec<String>,
    measured: Vec<Measurement>,
}

impl Table {
    pub(super) fn new(title: impl Into<String>, columns: &'static [Column]) -> Self {
        Table { title: title.into(), columns, lines: Vec::new(), measured: Vec::new() }
    }

    /// Runs both engines in turn, `settings.repeat` times, and adds a line for each.
    pub(super) fn compare(
        &mut self,
        settings: &Settings,
        label: impl Into<Label>,
        run: impl FnMut(Engine) -> Result<Row, String>,
    ) -> Result<(), String> {
        self.some(&Engine::BOTH, settings, label, run)
    }

    /// Runs `engines` in turn, `settings.repeat` times, and adds a line for each.
    pub(super) fn some(
        &mut self,
        engines: &[Engine],
        settings: &Settings,
        label: impl Into<Label>,
        mut run: impl FnMut(Engine) -> Result<Row, String>,
    ) -> Result<(), String> {
        let label = label.into();
        let mut runs: Vec<Vec<Row>> = vec![Vec::new(); engines.len()];
        for round in 0..settings.repeat {
            for (engine, runs) in engines.iter().zip(&mut runs) {
                let row = run(*engine)
                    .map_err(|e| format!("{}: {}, {}: {e}", self.title, label.text, engine.name()))?;
                eprintln!(
                    "  {} [{}/{}] {}: {:.0} {}",
                    label.text,
                    round + 1,
                    settings.repeat,
                    engine.name(),
                    row[0],
                    self.columns[0].name
                );
                runs.push(row);
            }
        }
        let medians: Vec<Row> = runs.iter().map(|runs| median(runs)).collect();
        for (engine, row) in engines.iter().zip(&medians) {
            let rocks = (*engine == Engine::KarstDb && engines.len() == 2).then(|| &medians[0]);
            self.lines.push(self.line(&label.text, *engine, row, rocks));
            let figures = named(self.columns, row);
            self.measured.push(label.measurement(&self.title, engine.name(), settings.repeat, figures));
        }
        Ok(())
    }

    fn line(&self, label: &str, engine: Engine, row: &Row, rocks: Option<&Row>) -> String {
        let mut line = format!("| {label} | {} |", engine.name());
        for (at, column) in self.columns.iter().enumerate() {
            line.push_str(&format!(" {:.*}", column.digits, row[at]));
            if let (Some(rocks), true) = (rocks, column.ratio) {
                line.push_str(&format!(" ({:.2}x)", row[at] / rocks[at]));
            }
            line.push_str(" |");
        }
        line
    }

    /// Prints the table and records it under `rows`.
    pub(super) fn print(self, settings: &Settings, rows: &str) -> Result<(), String> {
        println!("\n### {}\n", self.title);
        let names: Vec<&str> = self.columns.iter().map(|c| c.name).collect();
        println!("| | engine | {} |", names.join(" | "));
        println!("|---|---|{}", "---:|".repeat(names.len()));
        self.lines.iter().for_each(|line| println!("{line}"));
        settings.keep(rows, self.measured)
    }
}

/// The figures of a row by the names of their columns, without those that are not finite.
pub(super) fn named(columns: &[Column], row: &Row) -> Vec<Figure> {
    columns.iter().zip(row).filter_map(|(column, value)| figure(column.name, Some(*value))).collect()
}

/// The median of each column.
pub(super) fn median(runs: &[Row]) -> Row {
    let columns = runs.first().map_or(0, Vec::len);
    let middle = |column: usize| {
        let mut figures: Vec<f64> = runs.iter().map(|run| run[column]).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    (0..columns).map(middle).collect()
}
