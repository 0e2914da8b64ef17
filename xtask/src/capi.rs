//! The task `capi`: installs RocksDB's C API and KarstDB's asynchronous one, as a library under
//! RocksDB's names, with headers.

use crate::run::{Result, UNOPTIMISED, cache_dir, repository_root, step, target_dir};
use std::path::Path;

/// Names of the library: those of RocksDB's builds and of Debian's packages.
const NAMES: &[&str] =
    &["librocksdb.a", "librocksdb.so", "librocksdb.so.11", "librocksdb.so.11.8", "librocksdb.so.7.8"];

/// System libraries that a program needs with the static library.
const SYSTEM_LIBRARIES: &str = "-lgcc_s -lpthread -lm -ldl -lrt -lutil";

pub(crate) fn capi(args: &[String]) -> Result {
    match args {
        [flag] if flag == "--table" => {
            let env = [("KARST_WRITE_DOCS", "1")];
            step("cargo", &["test", "-p", "karst-capi", "--test", "table"], &env)
        }
        [flag, prefix] if flag == "--prefix" => install(Path::new(prefix), "release", &[]),
        [flag, prefix, debug] if flag == "--prefix" && debug == "--debug" => {
            install(Path::new(prefix), "dev", &[])
        }
        [flag, prefix] if flag == "--check" => check(Path::new(prefix)),
        _ => Err("capi takes --prefix DIR [--debug], --check DIR, or --table".into()),
    }
}

/// Builds both kinds of library in one run of the optimiser, and installs them.
pub(crate) fn install(prefix: &Path, profile: &str, env: &[(&str, &str)]) -> Result {
    let build = ["rustc", "-p", "karst-capi", "--lib", "--locked", "--profile", profile];
    // Its own soname, so that linked programs find it under each of the names.
    let flags = ["--crate-type", "cdylib,staticlib", "--", "-C", "link-arg=-Wl,-soname,libkarstdb.so"];
    step("cargo", &[&build[..], &flags].concat(), env)?;
    let built = target_dir().join(if profile == "dev" { "debug" } else { profile });
    let lib = prefix.join("lib");
    let failed = |path: &Path| format!("cannot write {}", path.display());
    let include = prefix.join("include");
    let packages = lib.join("pkgconfig");
    std::fs::create_dir_all(&packages).map_err(|e| format!("{}: {e}", failed(&packages)))?;
    for (from, to) in [
        (built.join("libkarst_capi.so"), lib.join("libkarstdb.so")),
        (built.join("libkarst_capi.a"), lib.join("libkarstdb.a")),
    ] {
        // A new file, because running programs have the old one mapped.
        let fresh = to.with_extension("new");
        std::fs::copy(&from, &fresh).map_err(|e| format!("{}: {e}", failed(&fresh)))?;
        std::fs::rename(&fresh, &to).map_err(|e| format!("{}: {e}", failed(&to)))?;
    }
    for name in NAMES {
        let link = lib.join(name);
        match std::fs::remove_file(&link) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {e}", failed(&link)));
            }
            _ => {}
        }
        let to =
            if link.extension().is_some_and(|kind| kind == "a") { "libkarstdb.a" } else { "libkarstdb.so" };
        std::os::unix::fs::symlink(to, &link).map_err(|e| format!("{}: {e}", failed(&link)))?;
    }
    write_headers(&lib, &include)?;
    let whole = |path: &Path| std::fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()));
    let (lib, include) = (whole(&lib)?, whole(&include)?);
    for (name, about, version) in [
        ("rocksdb", "KarstDB under RocksDB's C API", "11.8.0"),
        ("karstdb", "KarstDB's C API: RocksDB's and asynchronous calls", env!("CARGO_PKG_VERSION")),
    ] {
        let text = format!(
            "Name: {name}\nDescription: {about}\nVersion: {version}\nCflags: -I{}\nLibs: -L{} -l{name}\n\
             Libs.private: {SYSTEM_LIBRARIES}\n",
            include.display(),
            lib.display()
        );
        let file = lib.join(format!("pkgconfig/{name}.pc"));
        std::fs::write(&file, text).map_err(|e| format!("{}: {e}", failed(&file)))?;
    }
    println!("installed in {}; programs find it with LD_LIBRARY_PATH={0}", lib.display());
    Ok(())
}

/// Writes the headers with a small program in C that calls the installed library. A program in Rust
/// would build the crate a second time.
fn write_headers(lib: &Path, include: &Path) -> Result {
    const PROGRAM: &str = "#include <stdio.h>\n\
        extern void karst_write_headers(const char* directory, char** errptr);\n\
        int main(int count, char** arguments) {\n\
        \x20 char* error = NULL;\n\
        \x20 if (count == 2) karst_write_headers(arguments[1], &error);\n\
        \x20 if (error) fprintf(stderr, \"%s\\n\", error);\n\
        \x20 return count != 2 || error;\n\
        }\n";
    let place = std::env::temp_dir().join(format!("karst-capi-headers-{}", std::process::id()));
    std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let (source, program) = (place.join("headers.c"), place.join("headers"));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let written = std::fs::write(&source, PROGRAM).map_err(|e| format!("{}: {e}", source.display()));
    let written = written.and_then(|()| {
        let search = format!("-L{}", lib.display());
        step("cc", &["-std=c99", &text(&source), &search, "-lkarstdb", "-o", &text(&program)], &[])?;
        step(&text(&program), &[&text(include)], &[("LD_LIBRARY_PATH", &text(lib))])
    });
    let _ = std::fs::remove_dir_all(&place);
    written
}

/// Installs without optimisation, and compiles and runs a program in C against it.
pub(crate) fn installed() -> Result {
    let prefix = cache_dir().join("capi-prefix");
    install(&prefix, "dev", &UNOPTIMISED)?;
    check(&prefix)
}

/// Compiles the tests' program in C against the installation, with the shared and with the static
/// library, and runs both.
fn check(prefix: &Path) -> Result {
    let source = repository_root().join("crates/capi/tests/c/async.c");
    let place = std::env::temp_dir().join(format!("karst-capi-check-{}", std::process::id()));
    std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let checked = ["shared", "static"].into_iter().try_for_each(|kind| {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (program, database) = (text(&place.join(kind)), text(&place.join(format!("{kind}-db"))));
        let (include, lib) = (text(&prefix.join("include")), text(&prefix.join("lib")));
        let library = if kind == "static" { format!("{lib}/libkarstdb.a") } else { "-lkarstdb".into() };
        let source = text(&source);
        let mut compile = vec!["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror"];
        compile.extend(["-I", &include, &source, "-L", &lib, &library, "-o", &program]);
        compile.extend(SYSTEM_LIBRARIES.split(' '));
        step("cc", &compile, &[])?;
        step(&program, &[&database], &[("LD_LIBRARY_PATH", &lib)])
    });
    let _ = std::fs::remove_dir_all(&place);
    checked
}
