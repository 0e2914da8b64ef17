//! Any bytes as a value of RESTORE: with and without its footer. A value that is read comes back
//! from what is written of it.
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
use rdb::{
    BadPayload, Checksum, Field, Reader, StreamPart, StreamReader, StreamWriter, Type, Writer, split_footer,
};

/// Reads all elements.
fn elements(body: &[u8]) -> Result<(Type, Vec<Vec<u8>>), BadPayload> {
    let mut reader = Reader::new(body)?;
    let mut found = Vec::new();
    while let Some(element) = reader.next()? {
        found.push(element.into_owned());
    }
    Ok((reader.of(), found))
}

/// Reads all fields of a hash with expiries.
fn fields(body: &[u8]) -> Result<Vec<Field<'_>>, BadPayload> {
    let (mut reader, mut found) = (Reader::new(body)?, Vec::new());
    while let Some(field) = reader.next_field()? {
        found.push(field);
    }
    Ok(found)
}

/// Reads all parts of a stream; `None` if it is none.
fn stream(body: &[u8]) -> Result<Option<Vec<StreamPart<'_>>>, BadPayload> {
    let Some(mut reader) = StreamReader::new(body)? else { return Ok(None) };
    let mut parts = Vec::new();
    while let Some(part) = reader.next()? {
        if part != StreamPart::Deleted {
            parts.push(part);
        }
    }
    Ok(Some(parts))
}

/// Ends a payload, checks its footer, and returns it.
fn sealed(mut writer: Writer) -> Vec<u8> {
    let mut sum = Checksum::default();
    sum.add(writer.end());
    let payload = writer.seal(sum.sum());
    let (_, _, found) = split_footer(&payload).expect("a footer");
    assert_eq!(found, sum.sum());
    payload
}

/// Bytes of a payload without its footer.
fn body(payload: &[u8]) -> &[u8] {
    split_footer(payload).expect("a footer").0
}

fn rewrite_elements(of: Type, parts: Vec<Vec<u8>>) {
    assert!(!parts.is_empty());
    let has_pairs = match of {
        // A score is written as a number, and read as its text.
        Type::SortedSet => return,
        Type::Hash => true,
        Type::String | Type::List | Type::Set => false,
        Type::ExpiringHash | Type::Stream => unreachable!("read by their own readers"),
    };
    let mut writer = Writer::new(of, if has_pairs { parts.len() / 2 } else { parts.len() } as u64);
    parts.iter().for_each(|part| writer.string(part));
    let payload = sealed(writer);
    assert_eq!(elements(body(&payload)), Ok((of, parts)));
}

fn rewrite_fields(parts: &[Field<'_>]) {
    let Some(earliest) = parts.iter().filter_map(|field| field.expiry).min() else { return };
    let mut writer = Writer::of_fields(parts.len() as u64, earliest);
    parts.iter().for_each(|field| writer.field(&field.name, &field.value, field.expiry, earliest));
    let payload = sealed(writer);
    assert_eq!(fields(body(&payload)).as_deref(), Ok(parts));
}

fn rewrite_stream(parts: &[StreamPart<'_>]) {
    let groups: Vec<_> = parts
        .iter()
        .filter_map(|part| if let StreamPart::Group(group) = part { Some(group) } else { None })
        .collect();
    let mut writer = StreamWriter::new(3, 100);
    for part in parts {
        match part {
            StreamPart::Entry(id, fields) => {
                let fields: Vec<&[u8]> = fields.iter().map(|text| &text[..]).collect();
                writer.entry(*id, &fields);
            }
            StreamPart::Totals(totals) => {
                let mut writer = writer.totals(totals, groups.len());
                groups.iter().for_each(|group| StreamWriter::group(&mut writer, group));
                let payload = sealed(writer);
                let found = stream(body(&payload)).expect("a payload").expect("a stream");
                assert_eq!(found.len(), parts.len());
                for (found, part) in found.iter().zip(parts) {
                    match (found, part) {
                        // Written without the times at which consumers were active.
                        (StreamPart::Group(found), StreamPart::Group(part)) => {
                            assert_eq!((&found.name, &found.pending), (&part.name, &part.pending));
                            assert_eq!((found.last, found.read), (part.last, part.read));
                        }
                        _ => assert_eq!(found, part),
                    }
                }
                return;
            }
            StreamPart::Deleted | StreamPart::Group(_) => unreachable!("left out, or behind the totals"),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok((body, summed, _)) = split_footer(data) {
        Checksum::default().add(summed);
        let _refused_or_not = (elements(body), fields(body), stream(body));
    }
    match stream(data) {
        Ok(Some(parts)) => return rewrite_stream(&parts),
        Ok(None) => {}
        Err(BadPayload) => return,
    }
    let Ok(reader) = Reader::new(data) else { return };
    if reader.of() == Type::ExpiringHash {
        if let Ok(parts) = fields(data) {
            rewrite_fields(&parts);
        }
    } else if let Ok((of, parts)) = elements(data) {
        rewrite_elements(of, parts);
    }
});
