//! The report's contents: tables with one number per cell, curves, and conclusions.
//!
//! In: runs, the oldest first. Out: a [`Section`] for each workload, in the order in which they
//! were measured.

use crate::results::{Measurement, Run};
use std::collections::{BTreeMap, BTreeSet};

/// The whole report.
pub(crate) struct Report {
    /// The runs that sections show, the oldest first.
    pub(crate) runs: Vec<Run>,
    pub(crate) sections: Vec<Section>,
}

/// A workload.
pub(crate) struct Section {
    pub(crate) title: String,
    /// The date of its run.
    pub(crate) date: String,
    pub(crate) head: Vec<String>,
    /// A row's cells, each a word or one number.
    pub(crate) rows: Vec<Vec<String>>,
    /// Number of columns at the left that hold words or places, not figures.
    pub(crate) places: usize,
    pub(crate) conclusions: Vec<String>,
    pub(crate) charts: Vec<Chart>,
}

/// A chart of one figure over one of the numbers by which measurements differ.
pub(crate) struct Chart {
    pub(crate) over: String,
    pub(crate) figure: String,
    pub(crate) curves: Vec<Curve>,
}

/// The curve of one engine, all other numbers being equal.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) engine: String,
    /// Points in ascending order of x.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Report {
    pub(crate) fn of(runs: Vec<Run>) -> Report {
        // The newest run that measured a workload, and the order in which workloads came up first.
        let mut newest: BTreeMap<&str, usize> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            for measurement in &run.measurements {
                if newest.insert(&measurement.workload, number).is_none() {
                    order.push(&measurement.workload);
                }
            }
        }
        let section = |workload: &&str| {
            let run = &runs[newest[workload]];
            let of = run.measurements.iter().filter(|m| m.workload == **workload);
            Section::of(workload, &run.date, &of.collect::<Vec<_>>())
        };
        let sections = order.iter().map(section).collect();
        let used: BTreeSet<usize> = newest.into_values().collect();
        let runs = runs.into_iter().enumerate().filter(|(number, _)| used.contains(number));
        Report { runs: runs.map(|(_, run)| run).collect(), sections }
    }
}

impl Section {
    fn of(title: &str, date: &str, all: &[&Measurement]) -> Section {
        let keys: BTreeSet<&String> = all.iter().flat_map(|m| m.at.keys()).collect();
        let has_variants = all.iter().any(|m| !m.variant.is_empty());
        let mut figures: Vec<&String> = Vec::new();
        for name in all.iter().flat_map(|m| &m.figures).map(|figure| &figure.name) {
            if !figures.contains(&name) {
                figures.push(name);
            }
        }
        let mut head: Vec<String> = keys.iter().map(|key| (*key).clone()).collect();
        head.extend(has_variants.then(|| "how".to_string()));
        head.push("engine".into());
        let places = head.len();
        head.extend(figures.iter().map(|name| (*name).clone()));
        head.push("of RocksDB".into());
        let row = |m: &&Measurement| {
            let mut cells: Vec<String> =
                keys.iter().map(|key| m.at.get(*key).map_or(String::new(), |value| number(*value))).collect();
            cells.extend(has_variants.then(|| m.variant.clone()));
            cells.push(m.engine.clone());
            cells.extend(figures.iter().map(|name| figure(m, name).map_or(String::new(), number)));
            let ratio = rival(m, all).and_then(|rocks| Some(first(m)? / first(rocks)?));
            cells.push(ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
            cells
        };
        let rows = all.iter().map(row).collect();
        let conclusions = all.iter().filter_map(|m| conclusion(m, rival(m, all)?)).collect();
        Section {
            title: title.into(),
            date: date.into(),
            head,
            rows,
            places,
            conclusions,
            charts: charts(all),
        }
    }
}

/// Returns the RocksDB measurement to compare one of KarstDB with: in the same place and of the
/// same variant, or the only one if RocksDB has no variants.
fn rival<'m>(m: &Measurement, all: &[&'m Measurement]) -> Option<&'m Measurement> {
    if m.engine != "KarstDB" {
        return None;
    }
    let beside = || all.iter().copied().filter(|other| other.engine == "RocksDB" && other.at == m.at);
    let only = beside().next().filter(|only| only.variant.is_empty() && beside().count() == 1);
    beside().find(|other| other.variant == m.variant).or(only)
}

fn figure(m: &Measurement, name: &str) -> Option<f64> {
    m.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
}

fn first(m: &Measurement) -> Option<f64> {
    m.figures.first().map(|figure| figure.value)
}

/// Name of the figure of CPU time.
fn cpu_name(m: &Measurement) -> Option<&str> {
    m.figures.iter().map(|figure| figure.name.as_str()).find(|name| name.starts_with("CPU us"))
}

/// Returns a sentence that compares both engines in one place.
fn conclusion(karst: &Measurement, rocks: &Measurement) -> Option<String> {
    let (unit, ratio) = (&karst.figures.first()?.name, first(karst)? / first(rocks)?);
    let mut place: Vec<String> =
        karst.at.iter().map(|(key, value)| format!("{} {key}", number(*value))).collect();
    place.extend((!karst.variant.is_empty()).then(|| karst.variant.clone()));
    let place = if place.is_empty() { String::new() } else { format!("With {}, ", place.join(", ")) };
    let cpu = cpu_name(karst).and_then(|name| Some((figure(karst, name)? / figure(rocks, name)?, name)));
    let cpu = cpu.map_or(String::new(), |(cpu, name)| format!(", with {cpu:.2} times its {name}"));
    Some(format!("{place}KarstDB reaches {ratio:.2} times RocksDB's {unit}{cpu}."))
}

/// Returns a chart of throughput and one of CPU over each number that has several values. If one
/// has more than two, numbers with two appear in the names of the curves instead.
fn charts(all: &[&Measurement]) -> Vec<Chart> {
    let mut charts = Vec::new();
    let mut values: BTreeMap<&String, BTreeSet<u64>> = BTreeMap::new();
    for (key, value) in all.iter().flat_map(|m| &m.at) {
        values.entry(key).or_default().insert(value.to_bits());
    }
    let least = values.values().map(BTreeSet::len).max().unwrap_or(0).min(3);
    let keys: Vec<&String> =
        values.into_iter().filter(|(_, values)| values.len() >= least).map(|(key, _)| key).collect();
    let throughput = all.first().and_then(|m| m.figures.first()).map(|figure| figure.name.as_str());
    let figures = throughput.into_iter().chain(all.first().and_then(|m| cpu_name(m)));
    let pairs = figures.flat_map(|name| keys.iter().map(move |key| (name, *key)));
    for (name, over) in pairs {
        let mut curves: Vec<Curve> = Vec::new();
        for m in all {
            let (Some(x), Some(y)) = (m.at.get(over), figure(m, name)) else { continue };
            let mut parts = vec![m.engine.clone()];
            parts.extend((!m.variant.is_empty()).then(|| m.variant.clone()));
            let others = m.at.iter().filter(|(key, _)| *key != over);
            parts.extend(others.map(|(key, value)| format!("{} {key}", number(*value))));
            let curve = parts.join(", ");
            match curves.iter_mut().find(|known| known.name == curve) {
                Some(known) => known.points.push((*x, y)),
                None => curves.push(Curve { name: curve, engine: m.engine.clone(), points: vec![(*x, y)] }),
            }
        }
        curves.retain(|curve| curve.points.len() > 1);
        curves.iter_mut().for_each(|curve| curve.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        if !curves.is_empty() {
            charts.push(Chart { over: over.clone(), figure: name.into(), curves });
        }
    }
    charts
}

/// Formats a number with three significant digits and separated thousands.
pub(crate) fn number(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1000.0 {
        return format!("{value:.0}");
    }
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut apart = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    format!("{sign}{apart}{rest}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::results::{Figure, Machine};

    pub(crate) fn measured(engine: &str, workload: &str, in_flight: f64, rate: f64, cpu: f64) -> Measurement {
        let figure = |name: &str, value| Figure { name: name.into(), value };
        Measurement {
            rows: "point".into(),
            workload: workload.into(),
            engine: engine.into(),
            variant: String::new(),
            at: BTreeMap::from([("in flight".to_string(), in_flight)]),
            runs: 3,
            figures: vec![figure("gets/s", rate), figure("CPU us/get", cpu)],
        }
    }

    pub(crate) fn run(date: &str, measurements: Vec<Measurement>) -> Run {
        Run {
            date: date.into(),
            commit: "0123abcd".into(),
            command: "cargo xtask compare --rows point <&>".into(),
            machine: Machine {
                processor: "A & B".into(),
                processors: 2,
                memory_bytes: 8 << 30,
                kernel: "6.1".into(),
            },
            versions: BTreeMap::from([("RocksDB".to_string(), "11.8.1".to_string())]),
            measurements,
        }
    }

    pub(crate) fn both(workload: &str) -> Vec<Measurement> {
        let rates = [("RocksDB", 1.0, 13_000.0, 40.0), ("KarstDB", 1.0, 14_300.0, 20.0)];
        let more = [("RocksDB", 64.0, 60_000.0, 16.0), ("KarstDB", 64.0, 72_000.0, 8.0)];
        let all = rates.into_iter().chain(more);
        all.map(|(engine, at, rate, cpu)| measured(engine, workload, at, rate, cpu)).collect()
    }

    #[test]
    fn tables_have_one_number_a_cell_and_sentences_compare() {
        let report = Report::of(vec![run("2026-11-25T10:00:00Z", both("gets"))]);
        let section = &report.sections[0];
        assert_eq!(section.head, ["in flight", "engine", "gets/s", "CPU us/get", "of RocksDB"]);
        assert_eq!(section.rows[2], ["64", "RocksDB", "60,000", "16", ""]);
        assert_eq!(section.rows[3], ["64", "KarstDB", "72,000", "8", "1.20"]);
        let said =
            "With 64 in flight, KarstDB reaches 1.20 times RocksDB's gets/s, with 0.50 times its CPU us/get.";
        assert_eq!(section.conclusions[1], said);
        for cell in section.rows.iter().flatten() {
            assert!(cell.len() <= 100 && cell.split_whitespace().count() <= 1, "{cell}");
        }
        let charts: Vec<_> = section.charts.iter().map(|c| (c.figure.as_str(), c.over.as_str())).collect();
        assert_eq!(charts, [("gets/s", "in flight"), ("CPU us/get", "in flight")]);
        assert_eq!(section.charts[0].curves[1].points, [(1.0, 14_300.0), (64.0, 72_000.0)]);
    }

    #[test]
    fn the_newest_run_of_a_workload_counts_and_others_stay() {
        let old = run("2026-11-24T10:00:00Z", [both("gets"), both("scans")].concat());
        let unused = run("2026-11-24T20:00:00Z", both("gets"));
        let mut measured_again = both("gets");
        measured_again[3].figures[0].value = 120_000.0;
        let new = run("2026-11-25T10:00:00Z", measured_again);
        let report = Report::of(vec![old, unused, new]);
        let dates: Vec<&str> = report.runs.iter().map(|run| run.date.as_str()).collect();
        assert_eq!(dates, ["2026-11-24T10:00:00Z", "2026-11-25T10:00:00Z"]);
        let titles: Vec<&str> = report.sections.iter().map(|section| section.title.as_str()).collect();
        assert_eq!(titles, ["gets", "scans"]);
        assert_eq!(report.sections[0].rows[3][4], "2.00");
        assert_eq!(report.sections[1].date, "2026-11-24T10:00:00Z");
    }

    #[test]
    fn without_a_rival_in_the_same_place_nothing_is_compared() {
        let mut all = both("gets");
        all[2].at.insert("in flight".into(), 32.0);
        let report = Report::of(vec![run("2026-11-25T10:00:00Z", all)]);
        assert_eq!(report.sections[0].rows[3][4], "");
        assert_eq!(report.sections[0].conclusions.len(), 1);
    }

    #[test]
    fn a_choice_that_rocksdb_does_not_have_is_compared_with_its_only_way() {
        let rocks = measured("RocksDB", "gets", 1.0, 100.0, 4.0);
        let mut karst = ["synchronous", "asynchronous"].map(|variant| Measurement {
            variant: variant.into(),
            ..measured("KarstDB", "gets", 1.0, 200.0, 2.0)
        });
        let of = |rocks: &Measurement, karst: &[Measurement; 2]| {
            let all = [rocks.clone(), karst[0].clone(), karst[1].clone()].to_vec();
            let report = Report::of(vec![run("2026-11-25T10:00:00Z", all)]);
            [1, 2].map(|row| report.sections[0].rows[row].last().cloned().unwrap())
        };
        assert_eq!(of(&rocks, &karst), ["2.00", "2.00"]);
        let mut otherwise = rocks.clone();
        otherwise.variant = "7.8".into();
        assert_eq!(of(&otherwise, &karst), ["", ""], "another way is no rival");
        karst[1].variant = "7.8".into();
        assert_eq!(of(&otherwise, &karst), ["", "2.00"]);
    }

    #[test]
    fn charts_are_over_what_has_many_values() {
        let mut all = Vec::new();
        for batch in [1.0, 8.0] {
            for writers in [1.0, 2.0, 8.0] {
                let mut m = measured("KarstDB", "puts", writers, 100.0, 4.0);
                m.at.insert("keys a batch".into(), batch);
                all.push(m);
            }
        }
        let over = |all: &[Measurement]| -> Vec<String> {
            let report = Report::of(vec![run("2026-11-25T10:00:00Z", all.to_vec())]);
            report.sections[0].charts.iter().map(|chart| chart.over.clone()).collect()
        };
        assert_eq!(over(&all), ["in flight", "in flight"], "throughput and CPU");
        all.retain(|m| m.at["in flight"] < 8.0);
        assert_eq!(over(&all), ["in flight", "keys a batch", "in flight", "keys a batch"]);
        all.retain(|m| m.at["in flight"] == 1.0 && m.at["keys a batch"] == 1.0);
        assert!(over(&all).is_empty());
    }

    #[test]
    fn numbers_have_the_digits_that_count() {
        let shown = [0.0, 3.0, 0.1234, 1.2345, 12.345, 999.4, 1234.5, 1_234_567.0, -4321.0].map(number);
        assert_eq!(shown, ["0", "3", "0.123", "1.23", "12.3", "999", "1,234", "1,234,567", "-4,321"]);
    }
}
