//! Compiles the calls into RocksDB that its C API lacks (`shim`), against the headers of
//! `librocksdb-sys`, which the library that is linked has too.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=shim");
    let root = std::env::var("DEP_ROCKSDB_CARGO_MANIFEST_DIR").expect("librocksdb-sys says where it is");
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .warnings(false)
        .define("NDEBUG", None)
        .include(Path::new(&root).join("rocksdb/include"))
        .files(["shim/import.cc", "shim/options.cc"])
        .compile("karst_judge_shim");
}
