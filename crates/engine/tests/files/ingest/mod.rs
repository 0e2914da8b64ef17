//! Files made for ingestion, and their ingestion: written files, refused ones, visibility to
//! readers, and RocksDB's tools on either side.

mod behind;
mod beside;
mod closing;
mod ingesting;
mod interop;
mod model;
mod refused;
mod writer;

use karst_engine::io::{Env, MemoryFileSystem};
use karst_engine::{Db, Options, ReadOptions, SstFileWriter};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries of a file or a database, by key.
pub(crate) type Entries = BTreeMap<String, String>;

/// Returns options of databases and files in memory.
pub(crate) fn in_memory() -> Options {
    let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
    Options::new().env(env).db(|db| db.create_if_missing = true)
}

/// Writes a file with these keys and values, in order.
pub(crate) fn write_file(options: &Options, path: &str, entries: &[(&str, &str)]) {
    let mut writer = SstFileWriter::create(options).unwrap();
    writer.open(path).unwrap();
    for (key, value) in entries {
        writer.put(key, value).unwrap();
    }
    writer.finish().unwrap();
}

/// Returns all entries that an iterator with these options finds in the default column family.
pub(crate) fn all_at(db: &Db, options: &ReadOptions) -> Entries {
    let mut iter = db.iter(options).unwrap();
    let mut found = Entries::new();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        found.insert(text(iter.key()), text(iter.value()));
        iter.next().unwrap();
    }
    found
}

pub(crate) fn all(db: &Db) -> Entries {
    all_at(db, &ReadOptions::new())
}

pub(crate) fn entries(pairs: &[(&str, &str)]) -> Entries {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Returns the level of each table, ordered by file number.
pub(crate) fn levels(db: &Db) -> Vec<u32> {
    let mut files = db.live_files();
    files.sort_by_key(|file| file.number);
    files.iter().filter_map(|file| file.level).collect()
}
