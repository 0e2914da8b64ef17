//! `karstdb inspect DB`: the tree as a picture, in the terminal and as an HTML page.
//!
//! Input: a database directory with its MANIFEST, the properties of its tables, and its logs.
//! Output: text, and with `--html FILE` a self-contained page. [`tree`] collects the data, using
//! [`logs`]; [`cost`] estimates the reads of a lookup; [`terminal`] and [`page`] draw.

mod cost;
mod logs;
mod page;
mod terminal;
mod tree;

use crate::output::{Fault, say};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;

const ABOUT: &str = "Show the tree as a picture: levels, files, filters, and the cost of a lookup";
const HELP: &str = "\
Shows levels, files, sizes, key ranges, filters, compression and blob files of a database, and the
number of reads that a point lookup takes. The database is only read, and its logs are not replayed:
entries that are only in a log are counted.";

/// Returns the definition of the command line.
pub(crate) fn command() -> Command {
    let db = Arg::new("DB").value_parser(value_parser!(PathBuf)).help("The database's directory");
    let named = db
        .clone()
        .id("db")
        .long("db")
        .value_name("DB")
        .help("The database's directory, as an option like ldb's");
    let html = Arg::new("html").long("html").value_name("FILE").value_parser(value_parser!(PathBuf));
    let width = Arg::new("width")
        .long("width")
        .value_name("COLUMNS")
        .value_parser(value_parser!(u16).range(20..=400));
    Command::new("inspect")
        .about(ABOUT)
        .long_about(HELP)
        .arg(db.required_unless_present("db").conflicts_with("db"))
        .arg(named)
        .arg(html.help("Write the picture as one self-contained HTML page"))
        .arg(width.default_value("72").help("Width of the picture of the key space"))
}

/// Runs the program.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Fault> {
    let path = |name: &str| matches.get_one::<PathBuf>(name);
    let db = path("DB").or(path("db")).expect("clap asks for one of both");
    let width = *matches.get_one::<u16>("width").expect("it has a default");
    let tree = tree::collect(db)?;
    say!("{}", terminal::draw(&tree, usize::from(width)).trim_end())?;
    if let Some(file) = path("html") {
        std::fs::write(file, page::draw(&tree)).map_err(|e| format!("{}: {e}", file.display()))?;
        say!("page written to {}", file.display())?;
    }
    Ok(())
}

/// Returns a size in a readable unit.
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

/// Returns a key in readable form, shortened in the middle.
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
