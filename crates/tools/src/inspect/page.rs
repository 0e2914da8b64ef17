//! The tree as an HTML page: one file, without scripts or external resources.

use super::tree::{Family, Level, TableRow, Tree};
use super::{cost, key_text, size_text};
use std::fmt::Write;

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1c2430; background: #fff }
h1 { font-size: 1.4rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
svg { width: 100%; height: auto; display: block } text { font: 11px system-ui, sans-serif; fill: #5a6675 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums } th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e3e8ee }
th:first-child, td:first-child, .left { text-align: left } th { color: #5a6675; font-weight: 600 } code { font-size: .9em }
.bar { fill: #3f7cac } .bar:hover { fill: #e07a3f } .ground { fill: #f0f3f6 } .bad { color: #b3261e } details { margin: 1rem 0 }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #dfe5ec } .ground { fill: #222931 } th, td { border-color: #2c343d } text, th { fill: #9aa7b5; color: #9aa7b5 } }
";

/// Returns the whole page.
pub(super) fn draw(tree: &Tree) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = draw_into(&mut out, tree);
    out
}

fn draw_into(out: &mut String, tree: &Tree) -> std::fmt::Result {
    let path = escape(&tree.path);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{path}</title><style>{STYLE}</style>\n<h1>{path}</h1><p>Last sequence number in the MANIFEST: {}. Logs that are needed: {} with {}.</p>\n",
        tree.last_sequence,
        tree.logs.files,
        size_text(tree.logs.bytes)
    )?;
    for message in &tree.logs.unreadable {
        writeln!(out, "<p class=bad>unreadable: {}</p>", escape(message))?;
    }
    for family in &tree.families {
        draw_family(out, family)?;
    }
    out.push_str("</html>\n");
    Ok(())
}

fn draw_family(out: &mut String, family: &Family) -> std::fmt::Result {
    let entries: u64 = family.levels.iter().map(Level::entries).sum();
    let files: usize = family.levels.iter().map(|level| level.files.len()).sum();
    writeln!(
        out,
        "<h2>Column family <code>{}</code></h2><p>{files} tables with {} and {entries} entries, ordered by <code>{}</code>.</p>",
        escape(&family.name),
        size_text(family.size_bytes()),
        escape(&family.comparator)
    )?;
    if let Some(text) = family.in_logs_only() {
        writeln!(out, "<p>{text}.</p>")?;
    }
    if files == 0 {
        return Ok(());
    }
    draw_picture(out, family)?;
    draw_cost(out, family)?;
    writeln!(
        out,
        "<table><tr><th>level<th>files<th>size<th>entries<th>deletions<th>range deletions<th>index<th>filters<th class=left>compression<th>compressed to</tr>"
    )?;
    for level in &family.levels {
        let sum = |of: fn(&super::tree::Facts) -> u64| level.facts().map(of).sum::<u64>();
        let filter_bytes: u64 = level.facts().filter_map(|f| f.filter.as_ref()).map(|f| f.bytes).sum();
        let (data, raw) = (sum(|f| f.data_bytes), sum(|f| f.raw_bytes).max(1));
        writeln!(
            out,
            "<tr><td>L{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td class=left>{}<td>{:.0} %</tr>",
            level.number,
            level.files.len(),
            size_text(level.size_bytes()),
            level.entries(),
            sum(|f| f.deletions),
            sum(|f| f.range_deletions),
            size_text(sum(|f| f.index_bytes)),
            size_text(filter_bytes),
            escape(&level.kinds(|f| f.compression.clone())),
            data as f64 * 100.0 / raw as f64
        )?;
    }
    out.push_str("</table>\n");
    draw_blobs(out, family)?;
    draw_files(out, family)
}

const LEFT: f64 = 40.0;
const WIDE: f64 = 960.0;
const ROW: f64 = 18.0;

fn draw_picture(out: &mut String, family: &Family) -> std::fmt::Result {
    let rows: usize = family.levels.iter().map(rows_of).sum();
    let height = rows as f64 * ROW + 8.0;
    writeln!(
        out,
        "<svg viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"files by key range\">",
        LEFT + WIDE
    )?;
    let mut row = 0;
    for level in &family.levels {
        let y = row as f64 * ROW;
        writeln!(out, "<text x=\"4\" y=\"{}\">L{}</text>", y + 12.0, level.number)?;
        for (number, file) in level.files.iter().enumerate() {
            let y = if level.number == 0 { (row + number) as f64 * ROW } else { y };
            if level.number == 0 || number == 0 {
                writeln!(
                    out,
                    "<rect class=ground x=\"{LEFT}\" y=\"{y}\" width=\"{WIDE}\" height=\"{}\"/>",
                    ROW - 4.0
                )?;
            }
            let (from, to) = family.span(file);
            writeln!(
                out,
                "<rect class=bar x=\"{:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" stroke=\"#fff\" stroke-width=\".5\"><title>{}</title></rect>",
                LEFT + from * WIDE,
                ((to - from) * WIDE).max(1.0),
                ROW - 4.0,
                escape(&tooltip(file))
            )?;
        }
        row += rows_of(level);
    }
    out.push_str("</svg>\n");
    Ok(())
}

fn rows_of(level: &Level) -> usize {
    if level.number == 0 { level.files.len() } else { 1 }
}

fn tooltip(file: &TableRow) -> String {
    let mut text = format!(
        "{}: {}\n{} .. {}",
        file.name,
        size_text(file.size_bytes),
        key_text(&file.smallest),
        key_text(&file.largest)
    );
    if let Ok(facts) = &file.facts {
        text +=
            &format!("\n{} entries in {} blocks, {}", facts.entries, facts.data_blocks, facts.compression);
    }
    text
}

fn draw_cost(out: &mut String, family: &Family) -> std::fmt::Result {
    let (hit, miss) = cost::lookup(family);
    writeln!(
        out,
        "<table><tr><th>reads of a point lookup, on average<th>key there<th>key not there</tr>\
         <tr><td>index and filters in memory<td>{:.2}<td>{:.2}</tr>\
         <tr><td>nothing in memory but open files<td>{:.2}<td>{:.2}</tr></table><br>",
        hit.warm, miss.warm, hit.cold, miss.cold
    )
}

fn draw_blobs(out: &mut String, family: &Family) -> std::fmt::Result {
    if family.blobs.is_empty() {
        return Ok(());
    }
    out.push_str("<br><table><tr><th>blob file<th>blobs<th>size<th>garbage</tr>\n");
    for blob in &family.blobs {
        writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{:.0} %</tr>",
            escape(&blob.name),
            blob.count,
            size_text(blob.bytes),
            blob.garbage_bytes as f64 * 100.0 / blob.bytes.max(1) as f64
        )?;
    }
    out.push_str("</table>\n");
    Ok(())
}

fn draw_files(out: &mut String, family: &Family) -> std::fmt::Result {
    out.push_str(
        "<details><summary>All tables</summary><table><tr><th>table<th>level<th>size<th>entries<th>filter<th>format<th class=left>keys</tr>\n",
    );
    for level in &family.levels {
        for file in &level.files {
            let keys = format!("{} .. {}", key_text(&file.smallest), key_text(&file.largest));
            let (name, number, size) = (escape(&file.name), level.number, size_text(file.size_bytes));
            match &file.facts {
                Ok(facts) => {
                    let filter = facts.filter.as_ref().map_or("none".to_string(), |filter| {
                        format!("{} {:.1} bits/key", filter.policy, filter.bits_per_key)
                    });
                    writeln!(
                        out,
                        "<tr><td>{name}<td>L{number}<td>{size}<td>{}<td>{}<td>{}<td class=left><code>{}</code></tr>",
                        facts.entries,
                        escape(&filter),
                        facts.format_version,
                        escape(&keys)
                    )?;
                }
                Err(reason) => writeln!(
                    out,
                    "<tr><td>{name}<td>L{number}<td>{size}<td colspan=4 class=\"left bad\">{}</tr>",
                    escape(reason)
                )?,
            }
        }
    }
    out.push_str("</table></details>\n");
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::logs::Logs;
    use super::*;

    #[test]
    fn names_cannot_break_the_page() {
        let tree = Tree {
            path: "<script>\"&".into(),
            last_sequence: 1,
            logs: Logs::default(),
            families: Vec::new(),
        };
        let page = draw(&tree);
        assert!(page.contains("&lt;script&gt;&quot;&amp;") && !page.contains("<script>"));
    }
}
