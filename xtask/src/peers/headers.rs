//! Comparison of RocksDB's header with KarstDB's: a program that compiles with one compiles with
//! the other, and has the same meaning.
//!
//! In: both headers. Out: an error with their differences: functions or types that one of them
//! lacks, declarations that the compiler finds incompatible, and constants with other numbers.
//! `const` is ignored, because KarstDB's declarations have more of it.

use crate::run::Result;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn compare(theirs: &Path, ours: &Path, scratch: &Path) -> Result {
    let read = |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let (theirs, ours) = (read(theirs)?, read(ours)?);
    let (a, b) = (declared(&theirs), declared(&ours));
    let lacking: Vec<_> = a.difference(&b).collect();
    let besides: Vec<_> = b.difference(&a).filter(|name| !name.starts_with("karst_")).collect();
    if !lacking.is_empty() || !besides.is_empty() {
        return Err(format!("rocksdb/c.h lacks {lacking:?} and has besides {besides:?}"));
    }
    let scratch = Scratch { folder: scratch };
    let both = format!("{}{}", without_const(&theirs), without_const(&without_definitions(&ours)));
    scratch.compile(&both, &["-fsyntax-only"])?;

    let constants = constants(&theirs);
    let (a, b) = (scratch.numbers(&theirs, &constants)?, scratch.numbers(&ours, &constants)?);
    let other: Vec<_> = a.lines().zip(b.lines()).filter(|(a, b)| a != b).collect();
    if a.lines().count() != b.lines().count() || !other.is_empty() {
        return Err(format!("the headers have other numbers (RocksDB's, KarstDB's): {other:?}"));
    }
    println!(
        "\nrocksdb/c.h: as RocksDB's, {} names and {} constants",
        declared(&theirs).len(),
        constants.len()
    );
    Ok(())
}

/// Returns the code of a header without comments, C++ and preprocessor lines.
fn code(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some(start) = rest.find("/*") {
        text += &rest[..start];
        rest = rest[start..].split_once("*/").map_or("", |(_, after)| after);
    }
    text += rest;
    let mut continued = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        let of_preprocessor = continued || line.trim_start().starts_with('#');
        continued = of_preprocessor && line.ends_with('\\');
        if !of_preprocessor && line.trim() != "extern \"C\" {" {
            lines.push(line.split("//").next().unwrap_or_default());
        }
    }
    let text = lines.join(" ").replace("ROCKSDB_LIBRARY_API", "");
    // Joined because a pointer's name may be on the next line.
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( *", "(*")
}

fn words(text: &str) -> Vec<&str> {
    text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect()
}

/// Returns the names of functions and types.
fn declared(header: &str) -> BTreeSet<String> {
    let text = code(header);
    let mut names = BTreeSet::new();
    for statement in text.split(';').map(str::trim) {
        let name = if statement.starts_with("extern") {
            statement.split('(').next().and_then(|head| words(head).pop())
        } else if let Some((_, pointer)) =
            statement.split_once("(*").filter(|_| statement.starts_with("typedef"))
        {
            words(pointer).first().copied()
        } else if statement.starts_with("typedef") {
            words(statement).pop()
        } else {
            None
        };
        names.extend(name.map(str::to_owned));
    }
    names
}

/// Returns the names in `enum`s.
fn constants(header: &str) -> Vec<String> {
    let text = code(header);
    let bodies = text.split("enum").skip(1).filter_map(|after| after.split_once('{')?.1.split('}').next());
    let names = bodies.flat_map(|body| body.split(',')).filter_map(|entry| words(entry).first().copied());
    names.map(str::to_owned).collect()
}

/// Returns the header without `enum`s and struct bodies, which C accepts only once.
fn without_definitions(header: &str) -> String {
    let (mut text, mut inside) = (String::new(), false);
    for line in header.lines() {
        inside |= line.ends_with('{') && !line.starts_with("extern");
        if !inside {
            text += line;
            text.push('\n');
        }
        inside &= !line.starts_with('}');
    }
    text
}

fn without_const(header: &str) -> String {
    header.replace("const ", " ").replace(" const*", "*").replace("#pragma once", "")
}

struct Scratch<'a> {
    folder: &'a Path,
}

impl Scratch<'_> {
    /// Compiles a program and returns its path.
    fn compile(&self, text: &str, flags: &[&str]) -> Result<PathBuf> {
        let (source, program) = (self.folder.join("header.c"), self.folder.join("header"));
        fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()))?;
        let compiled = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-comment"])
            .args(flags)
            .args([source.as_os_str(), "-o".as_ref(), program.as_os_str()])
            .output()
            .map_err(|e| format!("cannot run cc: {e}"))?;
        let said = String::from_utf8_lossy(&compiled.stderr);
        if compiled.status.success() { Ok(program) } else { Err(format!("the headers differ:\n{said}")) }
    }

    /// Returns the values of the constants and the layout of a slice, one a line.
    fn numbers(&self, header: &str, constants: &[String]) -> Result<String> {
        let mut text =
            format!("#include <stdio.h>\n{}\nint main(void) {{\n", header.replace("#pragma once", ""));
        for name in constants {
            text += &format!("  printf(\"{name} %lld\\n\", (long long){name});\n");
        }
        text += "  rocksdb_slice_t slice = {NULL, 0};\n  printf(\"slice %zu %zu %zu %zu\\n\", sizeof slice, \
                 sizeof slice.size, offsetof(rocksdb_slice_t, data), offsetof(rocksdb_slice_t, size));\n  \
                 return 0;\n}\n";
        let program = self.compile(&text, &[])?;
        let ran = Command::new(&program).output().map_err(|e| format!("{}: {e}", program.display()))?;
        if ran.status.success() {
            Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
        } else {
            Err(format!("{} failed: {}", program.display(), ran.status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: &str = "#pragma once\n#include <stddef.h>\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\
        /* a; b */\ntypedef struct a_t a_t;\ntypedef int (\n    *call_cb)(a_t* a);\n\
        typedef struct rocksdb_slice_t {\n  const char* data;\n  size_t size;\n} rocksdb_slice_t;\n\
        extern void first(a_t* a,\n    const char* text);\nenum {\n  one = 1,\n  two,\n};\n\
        extern a_t* second(call_cb call); // c; d\n#ifdef __cplusplus\n}\n#endif\n";

    /// Compares RocksDB's header with the one that `change` makes of it.
    fn with(name: &str, change: impl Fn(String) -> String) -> Result {
        let folder = std::env::temp_dir().join(format!("karst-headers-{name}-{}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let (theirs, ours) = (folder.join("theirs.h"), folder.join("ours.h"));
        fs::write(&theirs, THEIRS).map_err(failed)?;
        fs::write(&ours, change(THEIRS.to_owned())).map_err(failed)?;
        let compared = compare(&theirs, &ours, &folder);
        fs::remove_dir_all(&folder).map_err(failed)?;
        compared
    }

    #[test]
    fn finds_what_is_there() {
        let names: Vec<_> = declared(THEIRS).into_iter().collect();
        assert_eq!(names, ["a_t", "call_cb", "data", "first", "second"]);
        assert_eq!(constants(THEIRS), ["one", "two"]);
    }

    #[test]
    fn a_difference_that_a_program_would_notice_is_an_error() {
        with("same", |text| text).unwrap();
        with("const", |text| text.replace("first(a_t*", "first(const a_t*")).unwrap();
        let wrong = |name: &str, from: &str, to: &str| {
            assert!(THEIRS.contains(from), "{from}");
            with(name, |text| text.replace(from, to)).unwrap_err()
        };
        assert!(wrong("number", "one = 1", "one = 2").contains("one 1"));
        assert!(wrong("lacks", "  two,\n", "").contains("two"));
        assert!(wrong("function", "first(", "third(").contains("lacks [\"first\"]"));
        assert!(wrong("type", "const char* text", "const int* text").contains("conflicting types"));
        assert!(wrong("returned", "a_t* second", "void second").contains("conflicting types"));
        assert!(
            wrong("callback", "int (\n    *call_cb", "long (\n    *call_cb").contains("conflicting types")
        );
        assert!(wrong("slice", "size_t size;", "int size;").contains("slice"));
    }
}
