//! Any bytes as an RDB file, and any value inside of one: its end is found where its reader ends.
#![no_main]

// By their paths, because they need nothing of the server, and the server needs the whole engine.
#[allow(dead_code)]
#[path = "../../crates/server/src/entry_id.rs"]
mod entry_id;
#[allow(dead_code, unused_imports)]
#[path = "../../crates/server/src/rdb/mod.rs"]
mod rdb;
#[allow(dead_code)]
#[path = "../../crates/server/src/wrong.rs"]
mod wrong;

use libfuzzer_sys::fuzz_target;
use rdb::{BadFile, BadPayload, FileKey, FilePart, FileReader, Reader, StreamReader, Type};

/// Reads a value as a whole.
fn read(body: &[u8]) -> Result<(), BadPayload> {
    if let Some(mut reader) = StreamReader::new(body)? {
        while reader.next()?.is_some() {}
        return Ok(());
    }
    let mut reader = Reader::new(body)?;
    if reader.of() == Type::ExpiringHash {
        while reader.next_field()?.is_some() {}
    } else {
        while reader.next()?.is_some() {}
    }
    Ok(())
}

fn parts(file: &[u8]) -> Result<Vec<FilePart>, BadFile> {
    let mut reader = FileReader::new(file)?;
    let mut found = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(part)) => found.push(part),
            Ok(None) => return Ok(found),
            Err(error) => {
                assert!(error.offset <= file.len() as u64 && reader.offset() <= file.len() as u64);
                return Err(error);
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    for part in parts(data).unwrap_or_default() {
        if let FilePart::Key(key) = part {
            let _refused_or_not = read(&key.body);
        }
    }
    // Without the beginning, which a fuzzer finds last; and without a checksum.
    let _refused_or_not = parts(&[b"REDIS0012", data].concat());
    if let Some((of, rest)) = data.split_first()
        && read(data).is_ok()
    {
        let file = [b"REDIS0012", &[*of, 1, b'k'][..], rest, b"\xff\0\0\0\0\0\0\0\0"].concat();
        let found = parts(&file).expect("a value that is read");
        let name = b"k".to_vec();
        let key = FileKey { db: 0, name, expiry: None, body: data.to_vec(), offset: 9 };
        assert_eq!(found, [FilePart::Key(key)]);
    }
});
