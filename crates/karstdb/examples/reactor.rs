//! Many lookups in flight on one thread: `cargo run --release --example reactor`.
//!
//! A reactor's thread owns its ring: a lookup that has to read starts the read and lets the next
//! task run, so that one thread keeps the device busy.

use karstdb::io::Reactor;
use karstdb::{BulkLoader, Db, Options};

const KEYS: u64 = 50_000;
const TASKS: u64 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let mut loader = BulkLoader::create(directory.path(), &Options::new())?;
    for i in 0..KEYS {
        loader.put(&i.to_be_bytes(), &[i as u8; 400])?;
    }
    loader.finish()?;
    // A small cache, so that most lookups read.
    let db = Db::open_read_only(directory.path(), &Options::new().block_cache_bytes(1 << 20))?;
    let reactor = Reactor::builder(db.env()).threads(1).build()?;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let db = db.clone();
            reactor.spawn(move || async move {
                let mut found = 0;
                for i in 0..1000 {
                    // A fixed walk over the keys, different for each task.
                    let key = (task * 7919 + i * 104_729) % KEYS;
                    found += usize::from(db.get_async(&key.to_be_bytes()).await?.is_some());
                }
                Ok::<usize, karstdb::Error>(found)
            })
        })
        .collect();
    let mut found = 0;
    for task in tasks {
        found += task.join()??;
    }
    println!("{found} lookups, {} at a time, on one thread", TASKS);
    println!("{:?}", db.env().io_stats());
    Ok(())
}
