//! Reads a database from plain threads: `cargo run --example sync [DIRECTORY]`. Without a directory
//! it makes a small database first.

use karstdb::{BulkLoader, Db, Options, ReadOptions, Statistics, Ticker};
use std::path::PathBuf;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = match std::env::args().nth(1) {
        Some(path) => PathBuf::from(path),
        None => {
            let mut loader = BulkLoader::create(directory.path(), &Options::new())?;
            for i in 0..10_000 {
                loader.put(format!("key{i:05}").as_bytes(), format!("value {i}").as_bytes())?;
            }
            loader.finish()?;
            directory.path().to_owned()
        }
    };
    let statistics = Arc::new(Statistics::default());
    let db = Db::open_read_only(&path, &Options::new().statistics(statistics.clone()))?;
    for family in db.column_families() {
        let options = ReadOptions::new();
        let mut iter = db.iter_cf(&options, &family)?;
        iter.seek_to_first()?;
        for _ in 0..5 {
            if !iter.valid() {
                break;
            }
            println!("{}: {} = {}", family.name(), iter.key().escape_ascii(), iter.value().escape_ascii());
            iter.next()?;
        }
    }
    let keys: Vec<String> = (0..10_000).step_by(997).map(|i| format!("key{i:05}")).collect();
    let found = db.multi_get(&keys).into_iter().filter(|result| matches!(result, Ok(Some(_)))).count();
    println!(
        "{found} of {} keys found; {} blocks read",
        keys.len(),
        statistics.ticker(Ticker::BlockCacheMiss)
    );
    println!("{}", db.property("rocksdb.levelstats").unwrap_or_default());
    Ok(())
}
