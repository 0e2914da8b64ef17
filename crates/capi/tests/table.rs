//! The list of functions: complete, exported, and documented in docs/c-api.md.
#![forbid(unsafe_code)]

use karst_capi::{Function, Served, asynchronous, functions, retired_functions, rocksdb_header};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Names of all functions of RocksDB 11.8's header.
const ALL: &str = include_str!("functions.txt");

/// Names of all symbols of Debian's `librocksdb.so.7.8` that begin with `rocksdb_`.
const OF_7_8: &str = include_str!("functions_7_8.txt");

#[test]
fn every_function_of_the_header_is_there_once_and_none_besides() {
    let all = functions();
    let names: BTreeSet<_> = all.iter().map(|function| function.name).collect();
    assert_eq!(names.len(), all.len(), "a function is listed twice");
    let wanted: BTreeSet<_> = ALL.lines().collect();
    assert_eq!(wanted.difference(&names).collect::<Vec<_>>(), Vec::<&&str>::new(), "missing");
    assert_eq!(names.difference(&wanted).collect::<Vec<_>>(), Vec::<&&str>::new(), "not in the header");
}

#[test]
fn every_symbol_of_rocksdb_7_8_is_there() {
    let (all, retired) = (functions(), retired_functions());
    let names: BTreeSet<_> = all.iter().map(|function| function.name).collect();
    let wanted: BTreeSet<_> = OF_7_8.lines().collect();
    let gone: Vec<_> = wanted.difference(&names).copied().collect();
    assert_eq!(gone, retired.iter().map(|function| function.name).collect::<Vec<_>>());
}

/// Returns the shared library, which lies beside the test or one directory up.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut found = test.ancestors().skip(1).take(2).map(|directory| directory.join("libkarst_capi.so"));
    found.find(|path| path.exists()).expect("cargo builds the library for its tests")
}

#[test]
fn the_library_exports_what_the_list_says() {
    let output = match Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: nm (binutils) is not installed");
            return;
        }
        Err(error) => panic!("nm: {error}"),
    };
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols = text.lines().filter_map(|line| line.split_whitespace().nth(2));
    let (ours, theirs): (BTreeSet<_>, BTreeSet<_>) = symbols
        .filter(|name| name.starts_with("rocksdb_") || name.starts_with("karst_"))
        .partition(|name| name.starts_with("karst_"));
    let retired = retired_functions();
    let wanted = ALL.lines().chain(retired.iter().map(|function| function.name));
    assert_eq!(theirs, wanted.collect(), "the symbols of the library");
    let wanted = asynchronous().into_iter().chain(["karst_write_headers"]);
    assert_eq!(ours, wanted.collect(), "the symbols of karst.h, and what `cargo xtask capi` calls");
}

#[test]
fn the_header_of_rocksdb_declares_every_function() {
    let text = rocksdb_header().unwrap();
    for function in functions() {
        let declared = text.contains(&format!(" {}(", function.name));
        assert!(declared, "{}", function.name);
    }
    // The compiler breaks the line before a name of this length.
    let long = "rocksdb_optimistictransactiondb_open_column_families_with_otxn_db_options(";
    let declared = text.lines().find(|line| line.contains(long)).unwrap();
    assert!(declared.ends_with("char** errptr);"), "{declared}");
}

/// Returns the tables of the page.
fn tables() -> String {
    let all = functions();
    let mut text = format!("\n## Asynchronous, in karst.h: {}\n\n", asynchronous().len());
    for name in asynchronous() {
        text += &format!("- `{name}`\n");
    }
    for (served, title) in
        [(Served::Yes, "Served"), (Served::NoEffect, "Without effect"), (Served::Refused, "Refused")]
    {
        let names: Vec<_> = all.iter().filter(|f| f.served == served).map(|f: &Function| f.name).collect();
        text += &format!("\n## {title}: {}\n\n", names.len());
        for name in names {
            text += &format!("- `{name}`\n");
        }
    }
    let retired = retired_functions();
    text += &format!("\n## Of RocksDB 7.8, in no header: {}\n\n", retired.len());
    for Function { name, served } in retired {
        let served = match served {
            Served::Yes => "served",
            Served::NoEffect => "without effect",
            Served::Refused => "refused",
        };
        text += &format!("- `{name}`: {served}\n");
    }
    text
}

/// Compares the page with the tables; with `KARST_WRITE_DOCS=1` (`cargo xtask capi --table`) writes
/// it.
#[test]
fn the_page_is_current() {
    const MARK: &str = "<!-- What follows is made by `cargo xtask capi --table`. -->\n";
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/c-api.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (head, listed) = text.split_once(MARK).expect("the page has the mark");
    if std::env::var_os("KARST_WRITE_DOCS").is_some() {
        std::fs::write(page, format!("{head}{MARK}{}", tables())).unwrap();
    } else {
        assert!(listed == tables(), "docs/c-api.md is not current: cargo xtask capi --table");
    }
}
