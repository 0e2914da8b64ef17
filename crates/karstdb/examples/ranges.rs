//! Ranges, prefixes and column families as Rust iterators: `cargo run --example ranges`.

use karstdb::{Db, Options, ReadOptions};

/// Returns the keys of the last two events; the iterator owns all that it reads from.
fn last_events(db: &Db, user: &str) -> karstdb::Result<impl Iterator<Item = karstdb::Result<Box<[u8]>>>> {
    let scan = ReadOptions { fill_cache: false, ..ReadOptions::new() };
    let events = db.cf("events")?.with_read_options(scan);
    Ok(events.prefix(format!("{user}:"))?.keys().rev().take(2))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::open(directory.path(), &Options::new().db(|db| db.create_if_missing = true))?;
    db.create_column_family("events", &Options::new())?;
    let events = db.cf("events")?;
    for number in 0..3 {
        for user in ["ada", "grace"] {
            events.put(format!("{user}:{number}"), format!("event {number} of {user}"))?;
        }
    }
    for entry in events.range("ada:1".."grace:2")? {
        let (key, value) = entry?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    for key in last_events(&db, "ada")? {
        println!("one of the last of ada: {}", key?.escape_ascii());
    }
    db.close()?;
    Ok(())
}
