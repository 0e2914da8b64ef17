//! Any bytes as a value of RESTORE: with and without its footer. A value that is read comes back
//! from what is written of it.
#![no_main]

// By its path, because it needs nothing of the server, and the server needs the whole engine.
#[allow(dead_code)]
#[path = "../../crates/server/src/rdb/mod.rs"]
mod rdb;

use libfuzzer_sys::fuzz_target;
use rdb::{BadPayload, Checksum, Reader, Type, Writer, split_footer};

/// Reads all elements.
fn elements(body: &[u8]) -> Result<(Type, Vec<Vec<u8>>), BadPayload> {
    let mut reader = Reader::new(body)?;
    let mut found = Vec::new();
    while let Some(element) = reader.next()? {
        found.push(element.into_owned());
    }
    Ok((reader.of(), found))
}

fuzz_target!(|data: &[u8]| {
    if let Ok((body, summed, _)) = split_footer(data) {
        Checksum::default().add(summed);
        let _refused_or_not = elements(body);
    }
    let Ok((of, parts)) = elements(data) else { return };
    assert!(!parts.is_empty());
    let has_pairs = match of {
        // A score is written as a number, and read as its text.
        Type::SortedSet => return,
        Type::Hash => true,
        Type::String | Type::List | Type::Set => false,
    };
    let mut writer = Writer::new(of, if has_pairs { parts.len() / 2 } else { parts.len() } as u64);
    parts.iter().for_each(|part| writer.string(part));
    let mut sum = Checksum::default();
    sum.add(writer.end());
    let payload = writer.seal(sum.sum());
    let (body, _, found) = split_footer(&payload).expect("a footer");
    assert_eq!(found, sum.sum());
    assert_eq!(elements(body), Ok((of, parts)));
});
