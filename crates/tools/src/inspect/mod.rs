//! `karst inspect DB`: the tree as a picture, in the terminal and as a page.
//!
//! In: a database directory, its MANIFEST and the properties of its tables. Out: text, and with `--html FILE` a self-contained page.
//! [`tree`] collects, [`cost`] estimates what a lookup reads, [`terminal`] and [`page`] draw.

mod cost;
mod page;
mod terminal;
mod tree;

use crate::ldb::arguments::Arguments;
use std::path::Path;

const HELP: &str = "karst inspect DB [--html=FILE] [--width=COLUMNS]

Shows levels, files, sizes, key ranges, filters, compression and blob files of a database, and what a point lookup in it costs in
reads. The database is only read; its logs are not replayed.
";

/// Run the program with the arguments after `inspect`; the error is for stderr.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    // `--html FILE` as well as `--html=FILE`.
    let mut joined: Vec<String> = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--html" || arg == "--width" {
            let value = rest.next().ok_or_else(|| format!("{arg} needs a value"))?;
            joined.push(format!("{arg}={value}"));
        } else {
            joined.push(arg.clone());
        }
    }
    let mut args = Arguments::parse(&joined);
    if args.take_flag("help")? {
        print!("{HELP}");
        return Ok(());
    }
    let db = args
        .take_value("db")
        .or_else(|| args.take_word())
        .ok_or_else(|| format!("which database?\n\n{HELP}"))?;
    let html = args.take_value("html");
    let width: usize = args.take_number("width")?.unwrap_or(72);
    args.finish("inspect")?;
    let tree = tree::collect(Path::new(&db))?;
    print!("{}", terminal::draw(&tree, width.clamp(20, 400)));
    if let Some(file) = html {
        std::fs::write(&file, page::draw(&tree)).map_err(|e| format!("{file}: {e}"))?;
        println!("page written to {file}");
    }
    Ok(())
}

/// A size as people say it.
fn size_text(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// A key as people can read it, shortened in the middle.
fn key_text(key: &[u8]) -> String {
    let printable = key.iter().all(|b| (0x20..0x7f).contains(b));
    let text = if printable {
        String::from_utf8_lossy(key).into_owned()
    } else {
        key.iter().map(|b| format!("{b:02X}")).collect()
    };
    if text.len() <= 40 { text } else { format!("{}..{}", &text[..24], &text[text.len() - 12..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_keys() {
        assert_eq!(size_text(512), "512 B");
        assert_eq!(size_text(3 << 20), "3.0 MiB");
        assert_eq!(key_text(b"user1"), "user1");
        assert_eq!(key_text(&[0, 1]), "0001");
        assert_eq!(key_text(&[b'x'; 100]).len(), 38);
    }
}
