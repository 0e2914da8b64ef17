//! Reads a database from a foreign executor: `cargo run --example any_executor`.
//!
//! The executor here is minimal (`pollster`, one future per thread); the futures are `Send`, so any
//! other will do.

use futures_core::Stream;
use karstdb::{BulkLoader, Db, Direction, Options, ReadOptions};
use std::future::poll_fn;
use std::pin::Pin;

async fn sum(db: Db) -> karstdb::Result<u64> {
    let options = ReadOptions::new();
    let mut iter = db.iter(&options)?;
    iter.seek_async("key00100").await?;
    let mut stream = iter.into_stream(Direction::Forward);
    let mut sum = 0;
    while let Some(entry) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
        let (_, value) = entry?;
        sum += value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let mut loader = BulkLoader::create(directory.path(), &Options::new())?;
    for i in 0..1000u64 {
        loader.put(format!("key{i:05}").as_bytes(), &i.to_le_bytes())?;
    }
    loader.finish()?;
    let db = Db::open_read_only(directory.path(), &Options::new())?;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            std::thread::spawn(move || pollster::block_on(sum(db)))
        })
        .collect();
    for task in tasks {
        println!("sum of the last 900 values: {}", task.join().expect("the task does not panic")?);
    }
    let value = pollster::block_on(db.get_async(b"key00042"))?;
    println!("key00042 has {} bytes", value.map_or(0, |value| value.len()));
    Ok(())
}
