//! Writes and reads a database from tokio's tasks: `cargo run --example tokio`.
//!
//! No call blocks a thread of the executor, and no thread of KarstDB is involved in a task's I/O.

use futures_core::Stream;
use karstdb::{Db, Direction, Options, ReadOptions};
use std::future::poll_fn;
use std::pin::Pin;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let options = Options::new().db(|db| db.create_if_missing = true);
    let db = Db::open_async(directory.path(), &options).await?;

    let writers: Vec<_> = (0..4u32)
        .map(|writer| {
            let db = db.clone();
            tokio::spawn(async move {
                for n in 0..250 {
                    let key = format!("{writer}-{n:03}");
                    db.put_async(key.as_bytes(), &n.to_string().into_bytes()).await?;
                }
                Ok::<(), karstdb::Error>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await??;
    }

    let value = db.get_async(b"2-042").await?.ok_or("not found")?;
    println!("2-042 is {}", String::from_utf8_lossy(&value));
    let mut entries = db.iter(&ReadOptions::new())?.into_stream(Direction::Forward);
    let mut count = 0;
    while let Some(entry) = poll_fn(|cx| Pin::new(&mut entries).poll_next(cx)).await {
        entry?;
        count += 1;
    }
    println!("{count} keys");
    drop(entries);
    db.close_async().await?;
    Ok(())
}
