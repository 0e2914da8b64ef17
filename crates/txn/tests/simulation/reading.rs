//! Reads the contents of a database in four forms that must agree: `get`, `multi_get`, and an
//! iterator forward and backward.

use crate::ledger::LISTING;
use karst_engine::{ColumnFamily, Db, ReadOptions, Result};
use std::collections::BTreeMap;

/// Keys and values of one column family.
type Entries = BTreeMap<String, String>;

/// Returns a value as text: lists are text, counters are numbers.
pub(crate) fn text(family: usize, value: &[u8]) -> String {
    match family < LISTING {
        true => String::from_utf8(value.to_vec()).expect("what is written is text"),
        false => i64::from_le_bytes(value.try_into().expect("a counter")).to_string(),
    }
}

/// Reads these keys of family `number`. No other key may begin with `prefix`.
pub(crate) async fn read(
    db: &Db,
    options: &ReadOptions,
    (number, family): (usize, &ColumnFamily),
    prefix: &str,
    keys: &[String],
) -> Result<Entries> {
    let (mut ones, mut many) = (Entries::new(), Entries::new());
    for (key, value) in keys.iter().zip(db.multi_get_cf_async(options, family, keys).await) {
        if let Some(value) = value? {
            many.insert(key.clone(), text(number, &value));
        }
    }
    for key in keys {
        if let Some(value) = db.get_cf_async(options, family, key.as_bytes()).await? {
            ones.insert(key.clone(), text(number, &value));
        }
    }
    let [forward, backward] = [
        scan(db, options, (number, family), prefix, false).await?,
        scan(db, options, (number, family), prefix, true).await?,
    ];
    assert_eq!(ones, many, "get and multi_get");
    assert_eq!(ones, forward, "get and an iterator");
    assert_eq!(forward, backward, "an iterator forward and backward");
    Ok(ones)
}

async fn scan(
    db: &Db,
    options: &ReadOptions,
    (number, family): (usize, &ColumnFamily),
    prefix: &str,
    backward: bool,
) -> Result<Entries> {
    let (mut iter, mut entries) = (db.iter_cf(options, family)?, Entries::new());
    match backward {
        false => iter.seek_async(prefix.as_bytes()).await?,
        // Behind all letters and digits.
        true => iter.seek_for_prev_async(format!("{prefix}~").as_bytes()).await?,
    }
    while iter.valid() && iter.key().starts_with(prefix.as_bytes()) {
        let key = String::from_utf8(iter.key().to_vec()).expect("keys are text");
        let again = entries.insert(key, text(number, iter.value()));
        assert_eq!(again, None, "an iterator comes by a key twice");
        match backward {
            false => iter.next_async().await?,
            true => iter.prev_async().await?,
        }
    }
    Ok(entries)
}
