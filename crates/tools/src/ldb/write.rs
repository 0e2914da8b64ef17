//! ldb's commands that write: put, batchput, delete, singledelete, deleterange, load,
//! write_extern_sst, ingest_extern_sst, compact, create_column_family, drop_column_family.
//!
//! Each opens the database for writing, performs one operation, and closes it. Options on the
//! command line change the database's own, as in ldb.

use super::arguments::Arguments;
use super::data::{failed, take_db};
use crate::bench::translate;
use crate::output::{Fault, note};
use crate::text::{Form, parse_bytes};
use karst_engine::{
    BottommostLevelCompaction, ColumnFamily, CompactRangeOptions, Db, DbWithTtl, FlushOptions,
    IngestExternalFileArg, IngestExternalFileOptions, Options, SstFileWriter, WriteBatch, WriteOptions,
};
use std::io::{BufRead, Write};
use std::time::Duration;

/// A database open for one command.
struct Session {
    db: Db,
    /// The database with expiring entries, with `--ttl`. Compat: no entry expires while ldb has it
    /// open.
    ttl: Option<DbWithTtl>,
    family: ColumnFamily,
    options: Options,
    key_form: Form,
    value_form: Form,
}

/// ldb's arguments that are options of the database: ldb's name, the option's.
const RENAMED: [(&str, &str); 9] = [
    ("write_buffer_size", "write_buffer_size"),
    ("file_size", "target_file_size_base"),
    ("db_write_buffer_size", "db_write_buffer_size"),
    ("block_size", "block_size"),
    ("min_blob_size", "min_blob_size"),
    ("blob_file_size", "blob_file_size"),
    ("blob_garbage_collection_age_cutoff", "blob_garbage_collection_age_cutoff"),
    ("blob_garbage_collection_force_threshold", "blob_garbage_collection_force_threshold"),
    ("compression_max_dict_bytes", "compression_opts.max_dict_bytes"),
];

/// Options of a bulk load: no compactions, and no stalls.
const BULK_LOAD: [(&str, &str); 6] = [
    ("disable_auto_compactions", "true"),
    ("level0_file_num_compaction_trigger", "1073741824"),
    ("level0_slowdown_writes_trigger", "1073741824"),
    ("level0_stop_writes_trigger", "1073741824"),
    ("soft_pending_compaction_bytes_limit", "0"),
    ("hard_pending_compaction_bytes_limit", "0"),
];

/// Returns the options of the database, changed by the command line.
fn take_options(args: &mut Arguments) -> Result<Options, Fault> {
    let mut named: Vec<(String, String)> = Vec::new();
    for (own, option) in RENAMED {
        named.extend(args.take_value(own).map(|value| (option.to_string(), value)));
    }
    for own in ["compression_type", "blob_compression_type"] {
        if let Some(value) = args.take_value(own) {
            named.extend(translate(own, &value).transpose().map_err(Fault::Usage)?.into_iter().flatten());
        }
    }
    if let Some(bits) = args.take_number::<u32>("bloom_bits")? {
        named.push(("filter_policy".into(), format!("bloomfilter:{bits}:false")));
    }
    if let Some(length) = args.take_number::<u32>("fix_prefix_len")? {
        named.push(("prefix_extractor".into(), format!("fixed:{length}")));
    }
    if let Some(on) = args.take_value("auto_compaction") {
        let off = match on.as_str() {
            "true" => "false",
            "false" => "true",
            _ => {
                let message = format!("--auto_compaction has a value that is neither true nor false: {on}");
                return Err(Fault::Usage(message));
            }
        };
        named.push(("disable_auto_compactions".into(), off.into()));
    }
    for flag in ["enable_blob_files", "enable_blob_garbage_collection"] {
        if args.take_flag(flag)? {
            named.push((flag.into(), "true".into()));
        }
    }
    if args.take_flag("disable_consistency_checks")? {
        named.push(("force_consistency_checks".into(), "false".into()));
    }
    named
        .into_iter()
        .try_fold(args.opening.clone(), |options, (name, value)| options.set(&name, &value))
        .map_err(|e| Fault::Usage(e.to_string()))
}

impl Session {
    /// Takes the remaining arguments and opens the database. An unknown argument is an error before
    /// anything is opened.
    fn open(args: Arguments, command: &str, change: &[(&str, &str)]) -> Result<Session, Fault> {
        Self::open_with(args, command, change, false)
    }

    fn open_with(
        mut args: Arguments,
        command: &str,
        change: &[(&str, &str)],
        has_ttl: bool,
    ) -> Result<Session, Fault> {
        let path = take_db(&mut args)?;
        let (key_form, value_form) = args.take_forms()?;
        let create = args.take_flag("create_if_missing")?;
        let mut options = take_options(&mut args)?;
        let name = args.take_value("column_family").unwrap_or_else(|| "default".to_string());
        args.finish(command)?;
        let create = [("create_if_missing", if create { "true" } else { "false" })];
        for (name, value) in create.iter().chain(change) {
            options = options.set(name, value)?;
        }
        let ttl = match has_ttl {
            true => Some(DbWithTtl::open(&path, &options, Duration::ZERO)?),
            false => None,
        };
        let db = match &ttl {
            Some(ttl) => ttl.db().clone(),
            None => Db::open(&path, &options)?,
        };
        let family =
            db.column_family(&name).ok_or_else(|| format!("{path}: there is no column family `{name}`"))?;
        Ok(Session { db, ttl, family, options, key_form, value_form })
    }

    fn key(&self, text: &str) -> Result<Vec<u8>, Fault> {
        parse_bytes(text, self.key_form).map_err(Fault::Usage)
    }

    fn value(&self, text: &str) -> Result<Vec<u8>, Fault> {
        parse_bytes(text, self.value_form).map_err(Fault::Usage)
    }

    fn write(&self, batch: &WriteBatch) -> Result<(), Fault> {
        match &self.ttl {
            Some(ttl) => ttl.write(&WriteOptions::default(), batch)?,
            None => self.db.write(&WriteOptions::default(), batch)?,
        }
        Ok(())
    }

    /// Calls `with` for each line `key ==> value` of standard input. Lines of another form are
    /// counted and skipped.
    fn each_line(&self, mut with: impl FnMut(Vec<u8>, Vec<u8>) -> Result<(), Fault>) -> Result<u64, Fault> {
        let mut bad = 0;
        for line in std::io::stdin().lock().split(b'\n') {
            let line = line.map_err(|e| format!("cannot read standard input: {e}"))?;
            let parsed = std::str::from_utf8(&line)
                .ok()
                .and_then(|line| line.split_once(" ==> "))
                .and_then(|(key, value)| Some((self.key(key).ok()?, self.value(value).ok()?)));
            match parsed {
                Some((key, value)) => with(key, value)?,
                None if line.is_empty() => {}
                None => bad += 1,
            }
        }
        Ok(bad)
    }

    fn close(self, out: &mut impl Write, say: &str) -> Result<(), Fault> {
        let Session { db, family, .. } = self;
        drop(family);
        db.close()?;
        out.write_all(say.as_bytes()).map_err(failed)
    }
}

const OK: &str = "OK\n";

fn needs(command: &str, what: &str) -> Fault {
    Fault::Usage(format!("{command} needs {what}"))
}

pub(crate) fn put(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let words = args.take_words();
    let [key, value] = words.as_slice() else { return Err(needs("put", "a key and a value")) };
    batch_put(args, &[(key.clone(), value.clone())], out)
}

pub(crate) fn batchput(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let words = args.take_words();
    if words.is_empty() || !words.len().is_multiple_of(2) {
        return Err(needs("batchput", "pairs of a key and a value, at least one"));
    }
    let pairs: Vec<_> = words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    batch_put(args, &pairs, out)
}

fn batch_put(mut args: Arguments, pairs: &[(String, String)], out: &mut impl Write) -> Result<(), Fault> {
    let has_ttl = args.take_flag("ttl")?;
    let s = Session::open_with(args, "put", &[], has_ttl)?;
    let mut batch = WriteBatch::new();
    for (key, value) in pairs {
        batch.put_cf(&s.family, s.key(key)?, s.value(value)?)?;
    }
    s.write(&batch)?;
    s.close(out, OK)
}

pub(crate) fn delete(mut args: Arguments, single: bool, out: &mut impl Write) -> Result<(), Fault> {
    let word = args.take_word().ok_or_else(|| needs("delete", "a key"))?;
    let s = Session::open(args, "delete", &[])?;
    let mut batch = WriteBatch::new();
    if single {
        batch.single_delete_cf(&s.family, s.key(&word)?)?;
    } else {
        batch.delete_cf(&s.family, s.key(&word)?)?;
    }
    s.write(&batch)?;
    s.close(out, OK)
}

pub(crate) fn deleterange(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let words = args.take_words();
    let [begin, end] = words.as_slice() else { return Err(needs("deleterange", "two keys")) };
    let s = Session::open(args, "deleterange", &[])?;
    let mut batch = WriteBatch::new();
    batch.delete_range_cf(&s.family, s.key(begin)?, s.key(end)?)?;
    s.write(&batch)?;
    s.close(out, OK)
}

/// Loads lines `key ==> value` from standard input. Lines of another form are counted and skipped.
pub(crate) fn load(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let disable_wal = args.take_flag("disable_wal")?;
    let bulk = args.take_flag("bulk_load")?;
    let compact = args.take_flag("compact")?;
    let s = Session::open(args, "load", if bulk { &BULK_LOAD } else { &[] })?;
    let options = WriteOptions { disable_wal, ..WriteOptions::default() };
    let mut batch = WriteBatch::new();
    let bad = s.each_line(|key, value| {
        batch.put_cf(&s.family, key, value)?;
        s.db.write(&options, &batch)?;
        batch.clear();
        Ok(())
    })?;
    if disable_wal {
        s.db.flush_cfs(&FlushOptions::default(), &[&s.family])?;
    }
    if compact {
        s.db.compact_range_cf(&CompactRangeOptions::default(), &s.family, None, None)?;
    }
    s.close(out, &warning(bad))
}

fn warning(bad_lines: u64) -> String {
    if bad_lines > 0 { format!("Warning: {bad_lines} bad lines ignored.\n") } else { String::new() }
}

/// Writes the lines of standard input to a file in the format of the database's tables.
///
/// Compat: these two commands print their messages to standard error, like ldb.
pub(crate) fn write_extern_sst(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = args.take_word().ok_or_else(|| needs("write_extern_sst", "the path of the file"))?;
    let s = Session::open(args, "write_extern_sst", &[])?;
    let mut writer = SstFileWriter::for_column_family(&s.options, &s.family)?;
    writer.open(&path).map_err(|e| format!("failed to open SST file: {e}"))?;
    let bad = s.each_line(|key, value| {
        Ok(writer.put(key, value).map_err(|e| format!("failed to write record to file: {e}"))?)
    })?;
    writer.finish().map_err(|e| format!("Failed to finish writing to file: {e}"))?;
    s.close(out, "")?;
    note!("{}external SST file written to {path}", warning(bad));
    Ok(())
}

pub(crate) fn ingest_extern_sst(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = args.take_word().ok_or_else(|| needs("ingest_extern_sst", "the path of the file"))?;
    let mut is_on = |name: &str, by_itself: bool| match args.take_value(name).as_deref() {
        None => Ok(args.take_flag(name)? || by_itself),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => {
            let text = format!("--{name} has a value that is neither true nor false: {other}");
            Err(Fault::Usage(text))
        }
    };
    let options = IngestExternalFileOptions {
        move_files: is_on("move_files", false)?,
        snapshot_consistency: is_on("snapshot_consistency", true)?,
        allow_global_seqno: is_on("allow_global_seqno", true)?,
        allow_blocking_flush: is_on("allow_blocking_flush", true)?,
        ingest_behind: is_on("ingest_behind", false)?,
        ..IngestExternalFileOptions::default()
    };
    let s = Session::open(args, "ingest_extern_sst", &[])?;
    let arg = IngestExternalFileArg::new(&s.family, [path], options);
    s.db.ingest_external_files(&[arg]).map_err(|e| format!("failed to ingest external SST: {e}"))?;
    s.close(out, "")?;
    note!("external SST files ingested");
    Ok(())
}

pub(crate) fn compact(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let from = args.take_value("from");
    let to = args.take_value("to");
    let s = Session::open(args, "compact", &[])?;
    let from = from.map(|key| s.key(&key)).transpose()?;
    let to = to.map(|key| s.key(&key)).transpose()?;
    let options = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::ForceOptimized,
        ..CompactRangeOptions::default()
    };
    s.db.compact_range_cf(&options, &s.family, from.as_deref(), to.as_deref())
        .map_err(|e| format!("Compaction failed: {e}"))?;
    s.close(out, "")
}

pub(crate) fn create_column_family(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let name = args.take_word().ok_or_else(|| needs("create_column_family", "a name"))?;
    let s = Session::open(args, "create_column_family", &[])?;
    s.db.create_column_family(&name, &s.options)
        .map_err(|e| format!("Fail to create new column family: {e}"))?;
    s.close(out, OK)
}

pub(crate) fn drop_column_family(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let name = args.take_word().ok_or_else(|| needs("drop_column_family", "a name"))?;
    let s = Session::open(args, "drop_column_family", &[])?;
    let family =
        s.db.column_family(&name).ok_or_else(|| format!("Column family: {name} doesn't exist in db."))?;
    s.db.drop_column_family(&family).map_err(|e| format!("Fail to drop column family: {e}"))?;
    drop(family);
    s.close(out, OK)
}
