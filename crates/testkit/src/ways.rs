//! Comparison of a column family read in four ways: get, `multi_get`, an iterator forward and one
//! backward. They must agree with each other and with the expected entries.

use crate::show;
use crate::subject::{Move, ReadSettings, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Returns a line of text for every key for which some way differs from `right`. Looks up all
/// present or expected keys, and `besides`.
///
/// # Errors
/// The store cannot be read, or an iterator moves in the wrong direction.
pub fn differences(
    store: &dyn Subject,
    family: &str,
    right: &BTreeMap<Vec<u8>, Vec<u8>>,
    besides: BTreeSet<Vec<u8>>,
) -> Result<Vec<String>, String> {
    let forward = scan(store, family, false)?;
    let backward = scan(store, family, true)?;
    let mut keys = besides;
    for entries in [right, &forward, &backward] {
        keys.extend(entries.keys().cloned());
    }
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    let many = store.multi_get(family, &keys)?;
    let mut wrong = Vec::new();
    for (key, many) in keys.iter().zip(many) {
        let one = store.get(family, key)?;
        let right = right.get(key);
        let ways = [
            ("get", one.as_ref()),
            ("multi_get", many.as_ref()),
            ("forward", forward.get(key)),
            ("backward", backward.get(key)),
        ];
        if ways.iter().any(|(_, found)| *found != right) {
            let said = |(way, found): &(&str, Option<&Vec<u8>>)| format!("{way} {}", value(*found));
            let said: Vec<String> = ways.iter().map(said).collect();
            wrong.push(format!("{family} {}: {}; right is {}", show(key), said.join(", "), value(right)));
        }
    }
    Ok(wrong)
}

/// Returns all entries that an iterator finds.
fn scan(store: &dyn Subject, family: &str, backward: bool) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let mut cursor = store.cursor(family, &ReadSettings::default())?;
    let (start, step) = if backward { (Move::Last, Move::Prev) } else { (Move::First, Move::Next) };
    let (mut all, mut before) = (BTreeMap::new(), None);
    cursor.apply(&start)?;
    while let Some((key, value)) = cursor.current() {
        let key = key.to_vec();
        let in_order =
            before.as_ref().is_none_or(|before| if backward { key < *before } else { key > *before });
        if !in_order {
            return Err(format!(
                "{family}: the iterator goes from {} to {}",
                show(&before.unwrap()),
                show(&key)
            ));
        }
        all.insert(key.clone(), value.to_vec());
        before = Some(key);
        cursor.apply(&step)?;
    }
    Ok(all)
}

/// Formats a value for a message: counters as numbers.
fn value(value: Option<&Vec<u8>>) -> String {
    let Some(bytes) = value else { return "nothing".into() };
    match <[u8; 8]>::try_from(&bytes[..]) {
        Ok(number) if !bytes.iter().all(u8::is_ascii_graphic) => u64::from_le_bytes(number).to_string(),
        _ => show(bytes),
    }
}
