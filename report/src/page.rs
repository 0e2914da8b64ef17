//! The report as one HTML page without scripts and external files.

use crate::plot;
use crate::report::{Report, Section};
use std::fmt::Write;

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1c2430; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.5rem } code { font-size: .9em; overflow-wrap: anywhere }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } .wide { overflow-x: auto }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #e3e8ee } th { color: #5a6675 }
.word { text-align: left } .charts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0 }
.charts svg { flex: 1 1 26rem; max-width: 31rem; height: auto; border: 1px solid #e3e8ee; background: #fff } .date { color: #5a6675 }
";

pub(crate) fn draw(report: &Report) -> Result<String, String> {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>KarstDB: benchmarks</title>\
         <style>{STYLE}</style>\n<h1>KarstDB and RocksDB, side by side</h1>\n"
    );
    // Writing to a string cannot fail.
    let _ = draw_runs(&mut out, report);
    for section in &report.sections {
        let charts: Result<Vec<String>, String> = section.charts.iter().map(plot::draw).collect();
        let _ = draw_section(&mut out, section, &charts?);
    }
    out.push_str("</html>\n");
    Ok(out)
}

fn draw_runs(out: &mut String, report: &Report) -> std::fmt::Result {
    out.push_str("<p>Every figure is a median. The runs that it is of:</p><ul>\n");
    for run in &report.runs {
        let machine = &run.machine;
        writeln!(
            out,
            "<li>{}: commit <code>{}</code>, {} processors ({}), {:.0} GB of memory, Linux {}. <code>{}</code></li>",
            escape(&run.date),
            escape(&run.commit),
            machine.processors,
            escape(&machine.processor),
            machine.memory_bytes as f64 / 1e9,
            escape(&machine.kernel),
            escape(&run.command)
        )?;
    }
    writeln!(out, "</ul>")
}

fn draw_section(out: &mut String, section: &Section, charts: &[String]) -> std::fmt::Result {
    writeln!(out, "<h2>{}</h2><p class=date>{}</p>", escape(&section.title), escape(&section.date))?;
    if !section.conclusions.is_empty() {
        writeln!(out, "<ul>")?;
        for sentence in &section.conclusions {
            writeln!(out, "<li>{}</li>", escape(sentence))?;
        }
        writeln!(out, "</ul>")?;
    }
    if !charts.is_empty() {
        writeln!(out, "<div class=charts>{}</div>", charts.join("\n"))?;
    }
    let class = |column: usize| if column < section.places { " class=word" } else { "" };
    out.push_str("<div class=wide><table><tr>");
    for (column, name) in section.head.iter().enumerate() {
        write!(out, "<th{}>{}", class(column), escape(name))?;
    }
    out.push_str("</tr>\n");
    for row in &section.rows {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            write!(out, "<td{}>{}", class(column), escape(cell))?;
        }
        out.push_str("</tr>\n");
    }
    writeln!(out, "</table></div>")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use crate::report::Report;
    use crate::report::tests::{both, run};

    #[test]
    fn one_page_has_all_and_what_it_is_told_cannot_break_it() {
        let page = super::draw(&Report::of(vec![run("2026-11-25T10:00:00Z", both("<b>"))])).unwrap();
        assert!(page.contains("<h2>&lt;b&gt;</h2>") && page.contains("--rows point &lt;&amp;&gt;"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2, "throughput and CPU");
        for elsewhere in ["<script", "src=", "href=\"http"] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
        assert!(page.contains("<td>72,000<td>8<td>1.20</tr>"), "{page}");
    }
}
