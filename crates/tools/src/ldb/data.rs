//! ldb's commands that read an open database: scan, dump, get, multi_get, idump, checkconsistency,
//! list_column_families.

use super::arguments::Arguments;
use super::manifest;
use super::ttl::Times;
use crate::output::Fault;
use crate::text::{Form, parse_bytes, write_bare, write_bytes, write_internal_key};
use karst_engine::stats::Histogram;
use karst_engine::{ColumnFamily, Db, DbWithTtl, ReadOptions, Value};
use karst_format::comparator::Comparator;
use karst_lsm::ManifestReplay;
use std::io::Write;
use std::path::Path;

/// Arguments of every command on a database: `--db`, `--column_family`, and the forms of bytes.
pub(crate) struct Session {
    pub(crate) db: Db,
    pub(crate) family: ColumnFamily,
    pub(crate) key_form: Form,
    pub(crate) value_form: Form,
    /// The database with expiring entries, with `--ttl`.
    ttl: Option<DbWithTtl>,
}

impl Session {
    pub(crate) fn open(args: &mut Arguments) -> Result<Session, Fault> {
        Self::open_with(args, false)
    }

    /// Opens the database for a command that accepts `--ttl`.
    fn open_or_expiring(args: &mut Arguments) -> Result<Session, Fault> {
        let has_ttl = args.take_flag("ttl")?;
        Self::open_with(args, has_ttl)
    }

    fn open_with(args: &mut Arguments, has_ttl: bool) -> Result<Session, Fault> {
        let path = take_db(args)?;
        let (key_form, value_form) = args.take_forms()?;
        // Compat: ldb gives a secondary a directory of its own too, and leaves it behind.
        let secondary = args.take_value("secondary_path");
        let ttl = match &secondary {
            Some(_) if has_ttl => return Err(Fault::Usage("--secondary_path does not go with --ttl".into())),
            _ if has_ttl => Some(DbWithTtl::open_read_only(&path, &args.opening)?),
            _ => None,
        };
        let db = match (&ttl, secondary) {
            (Some(ttl), _) => ttl.db().clone(),
            (None, Some(own)) => Db::open_as_secondary(&path, own, &args.opening)?,
            (None, None) => Db::open_read_only(&path, &args.opening)?,
        };
        let name = args.take_value("column_family").unwrap_or_else(|| "default".to_string());
        let family =
            db.column_family(&name).ok_or_else(|| format!("{path}: there is no column family `{name}`"))?;
        Ok(Session { db, family, key_form, value_form, ttl })
    }

    /// Returns a stored value without its timestamp.
    fn shown(&self, stored: Value) -> karst_engine::Result<Value> {
        match &self.ttl {
            Some(ttl) => ttl.shown(stored),
            None => Ok(stored),
        }
    }

    fn key(&self, text: &str) -> Result<Vec<u8>, Fault> {
        parse_bytes(text, self.key_form).map_err(Fault::Usage)
    }
}

/// Returns the path of `--db=PATH`.
pub(crate) fn take_db(args: &mut Arguments) -> Result<String, Fault> {
    args.take_value("db").ok_or_else(|| Fault::Usage("--db=PATH must be given".into()))
}

pub(crate) fn failed(e: std::io::Error) -> Fault {
    Fault::of_output(&e)
}

pub(crate) fn scan(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open_or_expiring(&mut args)?;
    let times = Times::take(&mut args, s.ttl.is_some())?;
    let from = args.take_key("from", s.key_form)?;
    let to = args.take_key("to", s.key_form)?;
    let max_keys: Option<u64> = args.take_number("max_keys")?;
    let no_value = args.take_flag("no_value")?;
    args.finish("scan")?;
    let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
    let mut iter = s.db.iter_cf(&options, &s.family)?;
    let mut moved = match &from {
        Some(key) => iter.seek(key),
        None => iter.seek_to_first(),
    };
    if times.are_printed() {
        times.write_head("Scanning", out)?;
    }
    let mut left = max_keys.unwrap_or(u64::MAX);
    while moved.is_ok() && iter.valid() && left > 0 {
        // Compat: ldb compares bytes here, for any comparator.
        if to.as_deref().is_some_and(|to| iter.key() >= to) {
            break;
        }
        let Some((value, time)) = times.shown(iter.value())? else {
            moved = iter.next();
            continue;
        };
        if times.are_printed() {
            times.write(time, out)?;
        }
        write_bytes(out, iter.key(), s.key_form).map_err(failed)?;
        if !no_value {
            out.write_all(b" : ").map_err(failed)?;
            write_bytes(out, value, s.value_form).map_err(failed)?;
        }
        out.write_all(b"\n").map_err(failed)?;
        left -= 1;
        moved = iter.next();
    }
    Ok(moved?)
}

/// Prints entries like scan, in the form that `load` reads; or the number of keys and the lengths
/// of their values.
pub(crate) fn dump(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open_or_expiring(&mut args)?;
    let times = Times::take(&mut args, s.ttl.is_some())?;
    let from = args.take_key("from", s.key_form)?;
    let to = args.take_key("to", s.key_form)?;
    // Compat: a negative number means no limit.
    let max_keys: Option<i64> = args.take_number("max_keys")?;
    let count_only = args.take_flag("count_only")?;
    let delimiter = match args.take_value("count_delim") {
        Some(text) => Some(text.bytes().next().unwrap_or(0)),
        None => args.take_flag("count_delim")?.then_some(b'.'),
    };
    if args.take_flag("stats")? {
        let stats = s.db.property_cf(&s.family, "rocksdb.stats").unwrap_or_default();
        writeln!(out, "{stats}").map_err(failed)?;
    }
    args.finish("dump")?;
    let options = ReadOptions { total_order_seek: true, ..ReadOptions::default() };
    let mut iter = s.db.iter_cf(&options, &s.family)?;
    let mut moved = match &from {
        Some(key) => iter.seek(key),
        None => iter.seek_to_first(),
    };
    let comparator = Comparator::from_name(s.family.comparator_name()).unwrap_or(Comparator::Bytewise);
    let (mut count, mut sizes, mut groups) = (0_u64, Histogram::new(), Groups::default());
    let mut buckets = times.buckets();
    if times.are_printed() && !count_only && delimiter.is_none() {
        times.write_head("Dumping", out)?;
    }
    while moved.is_ok() && iter.valid() {
        let past = to.as_deref().is_some_and(|to| comparator.compare_user(iter.key(), to).is_ge());
        if past || max_keys.is_some_and(|most| most >= 0 && count >= most as u64) {
            break;
        }
        let Some((value, time)) = times.shown(iter.value())? else {
            moved = iter.next();
            continue;
        };
        count += 1;
        if let Some(buckets) = &mut buckets {
            buckets.add(time);
        }
        if let Some(delimiter) = delimiter {
            groups.add(iter.key(), value, delimiter, out)?;
        }
        if count_only {
            sizes.add(value.len() as u64);
        } else if delimiter.is_none() {
            if times.are_printed() {
                times.write(time, out)?;
            }
            write_bytes(out, iter.key(), s.key_form).map_err(failed)?;
            out.write_all(b" ==> ").map_err(failed)?;
            write_bytes(out, value, s.value_form).map_err(failed)?;
            out.write_all(b"\n").map_err(failed)?;
        }
        moved = iter.next();
    }
    moved.map_err(|e| format!("Iterator error: {e}"))?;
    match (buckets, delimiter) {
        (Some(buckets), _) => buckets.write(out)?,
        (None, Some(_)) => groups.write(out)?,
        (None, None) => writeln!(out, "Keys in range: {count}").map_err(failed)?,
    }
    if count_only {
        writeln!(out, "Value size distribution: \n{sizes}").map_err(failed)?;
    }
    Ok(())
}

/// `dump --count_delim`: counts of neighbouring keys that are equal up to the delimiter.
#[derive(Default)]
struct Groups {
    name: Vec<u8>,
    count: u64,
    bytes: usize,
}

impl Groups {
    fn add(&mut self, key: &[u8], value: &[u8], delimiter: u8, out: &mut impl Write) -> Result<(), Fault> {
        let end = key.iter().position(|b| *b == delimiter || *b == 0).unwrap_or(key.len());
        // Compat: an empty name never ends a group.
        if !self.name.is_empty() && self.name != key[..end] {
            self.write(out)?;
            (self.count, self.bytes) = (0, 0);
        }
        self.name = key[..end].to_vec();
        self.count += 1;
        self.bytes += key.len() + value.len();
        Ok(())
    }

    fn write(&self, out: &mut impl Write) -> Result<(), Fault> {
        out.write_all(&self.name).map_err(failed)?;
        writeln!(out, " => count:{}\tsize:{}", self.count, self.bytes).map_err(failed)
    }
}

pub(crate) fn get(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open_or_expiring(&mut args)?;
    let key = s.key(&args.take_word().ok_or_else(|| Fault::Usage("get needs a key".into()))?)?;
    args.finish("get")?;
    let found = s.db.get_cf(&ReadOptions::default(), &s.family, &key)?;
    match found.map(|stored| s.shown(stored)).transpose()? {
        Some(value) => write_bytes(out, &value, s.value_form).map_err(failed)?,
        None => out.write_all(b"Key not found").map_err(failed)?,
    }
    out.write_all(b"\n").map_err(failed)
}

pub(crate) fn multi_get(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open_or_expiring(&mut args)?;
    let keys = args.take_words().iter().map(|word| s.key(word)).collect::<Result<Vec<_>, _>>()?;
    args.finish("multi_get")?;
    if keys.is_empty() {
        return Err(Fault::Usage("multi_get needs at least one key".into()));
    }
    let mut bad = Vec::new();
    for (result, key) in s.db.multi_get_cf(&ReadOptions::default(), &s.family, &keys).into_iter().zip(&keys) {
        let shown = result.and_then(|found| found.map(|stored| s.shown(stored)).transpose());
        match shown {
            Ok(Some(value)) => {
                write_bytes(out, key, s.key_form).map_err(failed)?;
                out.write_all(b" : ").map_err(failed)?;
                write_bytes(out, &value, s.value_form).map_err(failed)?;
            }
            Ok(None) => {
                out.write_all(b"Key not found: ").map_err(failed)?;
                write_bytes(out, key, s.key_form).map_err(failed)?;
            }
            Err(e) => {
                bad.push(e.to_string());
                continue;
            }
        }
        out.write_all(b"\n").map_err(failed)?;
    }
    if bad.is_empty() { Ok(()) } else { Err(bad.join("\n").into()) }
}

/// Prints every internal entry of the database, also those that newer ones hide.
pub(crate) fn idump(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let s = Session::open(&mut args)?;
    let input_form = Form::hex_if(args.take_flag("input_key_hex")? || s.key_form == Form::Hex);
    let from = args.take_key("from", input_form)?;
    let to = args.take_key("to", input_form)?;
    let max_keys: u64 = args.take_number("max_keys")?.filter(|n| *n > 0).unwrap_or(u64::MAX);
    let count_only = args.take_flag("count_only")?;
    args.finish("idump")?;
    let mut iter = s.db.internal_iter(&ReadOptions::default(), &s.family)?;
    let mut moved = match &from {
        Some(key) => iter.seek(key),
        None => iter.seek_to_first(),
    };
    let comparator = Comparator::from_name(s.family.comparator_name()).unwrap_or(Comparator::Bytewise);
    let mut count = 0u64;
    while moved.is_ok() && iter.valid() && count < max_keys {
        let user_key = karst_format::key::user_key(iter.key());
        if to.as_deref().is_some_and(|to| comparator.compare_user(user_key, to).is_ge()) {
            break;
        }
        count += 1;
        if !count_only {
            write_internal_key(out, iter.key(), s.key_form).map_err(failed)?;
            out.write_all(b" => ").map_err(failed)?;
            write_bare(out, iter.value(), s.value_form).map_err(failed)?;
            out.write_all(b"\n").map_err(failed)?;
        }
        moved = iter.next();
    }
    moved?;
    writeln!(out, "Internal keys in range: {count}").map_err(failed)
}

/// Opens the database, which checks the MANIFEST, the files' presence and their sizes, and compares
/// the logs with the tables.
pub(crate) fn check_consistency(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    let opening = args.opening.clone();
    args.finish("checkconsistency")?;
    let db = Db::open_read_only(&path, &opening)?;
    if let Some(duplicates) = db.log_duplicates() {
        return Err(format!("{path}: the logs have entries that tables have already; {duplicates}").into());
    }
    writeln!(out, "OK").map_err(failed)
}

pub(crate) fn list_column_families(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    args.finish("list_column_families")?;
    let edits = manifest::edits(&manifest::current(Path::new(&path))?)?;
    let mut replay = ManifestReplay::new();
    for edit in edits {
        replay.add(edit).map_err(|e| format!("{path}: {e}"))?;
    }
    let names: Vec<&str> = replay.column_families().map(|family| family.name).collect();
    writeln!(out, "Column families in {path}: \n{{{}}}", names.join(", ")).map_err(failed)
}
