//! Writes `karst.h` and `rocksdb/c.h` into a directory, made from the functions themselves;
//! `cargo xtask capi --prefix` calls this.
#![forbid(unsafe_code)]

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from).ok_or("which directory?")?;
    std::fs::create_dir_all(directory.join("rocksdb"))?;
    std::fs::write(directory.join("karst.h"), karst_capi::karst_header()?)?;
    std::fs::write(directory.join("rocksdb/c.h"), karst_capi::rocksdb_header()?)?;
    Ok(())
}
