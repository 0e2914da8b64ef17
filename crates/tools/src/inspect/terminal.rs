//! The tree in the terminal: one line per level, each file a stretch of the key space.

use super::tree::{Family, Level, Tree};
use super::{cost, key_text, size_text};
use std::fmt::Write;

/// Returns the whole picture.
pub(super) fn draw(tree: &Tree, width: usize) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = draw_into(&mut out, tree, width);
    out
}

fn draw_into(out: &mut String, tree: &Tree, width: usize) -> std::fmt::Result {
    writeln!(out, "{}  (last sequence number {} in the MANIFEST)", tree.path, tree.last_sequence)?;
    writeln!(out, "{} logs that are needed, {} in them", tree.logs.files, size_text(tree.logs.bytes))?;
    for message in &tree.logs.unreadable {
        writeln!(out, "unreadable: {message}")?;
    }
    for family in &tree.families {
        let files: usize = family.levels.iter().map(|level| level.files.len()).sum();
        let entries: u64 = family.levels.iter().map(Level::entries).sum();
        writeln!(out, "\ncolumn family {:?}, {}", family.name, family.comparator)?;
        writeln!(out, "{files} tables, {} in them, {entries} entries", size_text(family.size_bytes()))?;
        if let Some(text) = family.in_logs_only() {
            writeln!(out, "{text}")?;
        }
        if files == 0 {
            continue;
        }
        writeln!(
            out,
            "\n     {:<width$}  files       size    entries  filter            compression",
            "key space"
        )?;
        for level in &family.levels {
            draw_level(out, family, level, width)?;
        }
        draw_blobs(out, family)?;
        draw_cost(out, family)?;
        for file in family.levels.iter().flat_map(|level| &level.files) {
            if let Err(reason) = &file.facts {
                writeln!(out, "unreadable: {reason}")?;
            }
        }
    }
    Ok(())
}

fn draw_level(out: &mut String, family: &Family, level: &Level, width: usize) -> std::fmt::Result {
    let filter = level.kinds(|facts| match &facts.filter {
        None => "none".to_string(),
        Some(filter) => {
            format!(
                "{:.1} bits/key{}",
                filter.bits_per_key,
                if filter.partitioned { ", partitioned" } else { "" }
            )
        }
    });
    let compression = level.kinds(|facts| facts.compression.clone());
    // Files of L0 overlap, so each has a line, unless they are too many.
    let lines: Vec<Vec<usize>> = if level.number == 0 && level.files.len() <= 8 {
        (0..level.files.len()).map(|file| vec![file]).collect()
    } else {
        vec![(0..level.files.len()).collect()]
    };
    for (number, files) in lines.iter().enumerate() {
        let mut row = vec!['\u{b7}'; width];
        for (turn, &file) in files.iter().enumerate() {
            let (from, to) = family.span(&level.files[file]);
            let column = |place: f64| ((place * width as f64).round() as usize).min(width);
            // At least one column, so that the smallest table is shown too.
            let from = column(from).min(width.saturating_sub(1));
            for cell in &mut row[from..column(to).max(from + 1).min(width)] {
                *cell = if turn % 2 == 0 { '\u{2588}' } else { '\u{2593}' };
            }
        }
        let row: String = row.into_iter().collect();
        if number == 0 {
            writeln!(
                out,
                "L{:<3} {row}  {:>5} {:>10} {:>10}  {filter:<16}  {compression}",
                level.number,
                level.files.len(),
                size_text(level.size_bytes()),
                level.entries(),
            )?;
        } else {
            writeln!(out, "     {row}")?;
        }
    }
    let in_order = |a: &&Vec<u8>, b: &&Vec<u8>| family.order.compare_with_timestamps(a, b);
    if let (Some(first), Some(last)) = (
        level.files.iter().map(|f| &f.smallest).min_by(in_order),
        level.files.iter().map(|f| &f.largest).max_by(in_order),
    ) {
        writeln!(out, "     {} .. {}", key_text(first), key_text(last))?;
    }
    Ok(())
}

fn draw_blobs(out: &mut String, family: &Family) -> std::fmt::Result {
    if family.blobs.is_empty() {
        return Ok(());
    }
    let (count, bytes, garbage) = family
        .blobs
        .iter()
        .fold((0, 0, 0), |(c, b, g), blob| (c + blob.count, b + blob.bytes, g + blob.garbage_bytes));
    writeln!(
        out,
        "\n{} blob files, {} in {count} blobs, {} of it garbage",
        family.blobs.len(),
        size_text(bytes),
        size_text(garbage)
    )?;
    for blob in &family.blobs {
        let share = if blob.bytes == 0 { 0.0 } else { blob.garbage_bytes as f64 / blob.bytes as f64 };
        let filled = (20.0 * (1.0 - share)).round() as usize;
        let bar = format!("{}{}", "\u{2588}".repeat(filled), "\u{2591}".repeat(20 - filled));
        writeln!(
            out,
            "  {}  {bar}  {:>10}  {:.0} % garbage",
            blob.name,
            size_text(blob.bytes),
            share * 100.0
        )?;
    }
    Ok(())
}

fn draw_cost(out: &mut String, family: &Family) -> std::fmt::Result {
    let (hit, miss) = cost::lookup(family);
    writeln!(out, "\na point lookup reads, on average:      key there   key not there")?;
    writeln!(out, "  index and filters in memory          {:>9.2}  {:>14.2}", hit.warm, miss.warm)?;
    writeln!(out, "  nothing in memory but open files     {:>9.2}  {:>14.2}", hit.cold, miss.cold)
}
