//! The report as Markdown.

use crate::report::Report;
use std::fmt::Write;

const HEAD: &str = "\
# Benchmarks

`cargo xtask compare --report DIR` measures RocksDB and KarstDB in turns, on the same files and with
the same options, and makes this file and one in HTML, with plots. Every figure is a median of three
runs, or of as many as `--repeat` says, and CPU is that of the whole process. The last column is
KarstDB's first figure divided by RocksDB's; more is better.

\"In flight\" means threads for RocksDB, each with one read in flight, and futures on one thread for
KarstDB. RocksDB is built by the crate `rocksdb`, without coroutines, which its batches need to read
several levels at once. \"fio\" is the device with as many reads in flight.
";

pub(crate) fn write(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_into(&mut out, report);
    out
}

fn write_into(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "{HEAD}")?;
    writeln!(out, "| run | commit | processor | processors | memory GB | kernel |")?;
    writeln!(out, "|---|---|---|---:|---:|---|")?;
    for run in &report.runs {
        let machine = &run.machine;
        let memory = machine.memory_bytes as f64 / 1e9;
        let (processor, kernel) = (&machine.processor, &machine.kernel);
        writeln!(
            out,
            "| {} | {} | {processor} | {} | {memory:.0} | {kernel} |",
            run.date, run.commit, machine.processors
        )?;
    }
    for run in &report.runs {
        let versions: Vec<String> =
            run.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        writeln!(out, "\nRun {}, {}:\n\n    {}", run.date, versions.join(", "), run.command)?;
    }
    for section in &report.sections {
        writeln!(out, "\n## {}\n\nRun {}.\n", section.title, section.date)?;
        writeln!(out, "| {} |", section.head.join(" | "))?;
        let right = section.head.len() - section.places;
        writeln!(out, "|{}{}", "---|".repeat(section.places), "---:|".repeat(right))?;
        for row in &section.rows {
            writeln!(out, "| {} |", row.join(" | "))?;
        }
        if !section.conclusions.is_empty() {
            writeln!(out)?;
        }
        for sentence in &section.conclusions {
            writeln!(out, "- {sentence}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::report::Report;
    use crate::report::tests::{both, run};

    #[test]
    fn runs_tables_and_sentences_are_there() {
        let text = super::write(&Report::of(vec![run("2026-11-25T10:00:00Z", both("gets"))]));
        for line in [
            "| 2026-11-25T10:00:00Z | 0123abcd | A & B | 2 | 9 | 6.1 |",
            "    cargo xtask compare --rows point <&>",
            "## gets",
            "| in flight | engine | gets/s | CPU us/get | of RocksDB |",
            "|---|---|---:|---:|---:|",
            "| 64 | KarstDB | 72,000 | 8 | 1.20 |",
            "- With 1 in flight, KarstDB reaches 1.10 times RocksDB's gets/s, with 0.50 times its CPU us/get.",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }
}
