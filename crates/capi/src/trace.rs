//! Traces of a database's operations: recording, reading and replay.

use crate::boundary::*;
use crate::cache::Environment;
use crate::call_options::EnvOptions;
use crate::family::Family;
use crate::handle::Database;
use karstdb::io::Env;
use karstdb::{
    ColumnFamily, ErrorKind, FileTraceReader, FileTraceWriter, ReplayOptions, Replayer, TraceFilter,
    TraceOptions, TraceReader,
};
use libc::{c_char, c_uchar};

/// `rocksdb_trace_options_t`.
#[derive(Debug, Default)]
pub struct TraceSettings(TraceOptions);

/// `rocksdb_trace_reader_t`; `None` once it is closed.
#[derive(Debug)]
pub struct TraceReaderHandle(Option<FileTraceReader>);

/// `rocksdb_replay_options_t`.
#[derive(Debug, Default)]
pub struct ReplaySettings(ReplayOptions);

/// `rocksdb_replayer_t`.
pub struct ReplayerHandle(Replayer);

/// Returns the environment of a handle; the database's for null.
unsafe fn env_or_own(env: *const Environment, db: &Database) -> &Env {
    unsafe { env.as_ref() }.map_or(db.db.env(), |env| &env.0)
}

/// Creates the file of a trace of `db`.
unsafe fn writer(
    db: &Database,
    env: *const Environment,
    trace_path: *const c_char,
) -> karstdb::Result<FileTraceWriter> {
    unsafe { FileTraceWriter::create(env_or_own(env, db), path(trace_path)?) }
}

/// Returns the reader of a handle; fails if it is closed.
unsafe fn open_reader<'a>(reader: *mut TraceReaderHandle) -> karstdb::Result<&'a mut FileTraceReader> {
    unsafe { of_mut(reader)? }.0.as_mut().ok_or_else(|| invalid("the reader of the trace is closed"))
}

/// Returns a field of options; the default for null.
unsafe fn field<T: Default, V>(options: *const T, get: impl FnOnce(&T) -> V) -> V {
    match unsafe { options.as_ref() } {
        Some(options) => get(options),
        None => get(&T::default()),
    }
}

/// Changes options, unless they are null.
unsafe fn change<T>(options: *mut T, set: impl FnOnce(&mut T)) {
    if let Some(options) = unsafe { options.as_mut() } {
        set(options);
    }
}

capi! {
    call rocksdb_trace_options_create() -> *mut TraceSettings { give(TraceSettings::default()) }
    call rocksdb_trace_options_destroy(options: *mut TraceSettings) { end(options); }
    call rocksdb_trace_options_set_max_trace_file_size(options: *mut TraceSettings, bytes: u64) { change(options, |options| options.0.max_trace_file_size = bytes) }
    call rocksdb_trace_options_get_max_trace_file_size(options: *mut TraceSettings) -> u64 { field(options, |options| options.0.max_trace_file_size) }
    call rocksdb_trace_options_set_sampling_frequency(options: *mut TraceSettings, one_of: u64) { change(options, |options| options.0.sampling_frequency = one_of) }
    call rocksdb_trace_options_get_sampling_frequency(options: *mut TraceSettings) -> u64 { field(options, |options| options.0.sampling_frequency) }
    call rocksdb_trace_options_set_filter(options: *mut TraceSettings, filter: u64) { change(options, |options| options.0.filter = TraceFilter(filter)) }
    call rocksdb_trace_options_get_filter(options: *mut TraceSettings) -> u64 { field(options, |options| options.0.filter.0) }
    call rocksdb_trace_options_set_preserve_write_order(options: *mut TraceSettings, yes: c_uchar) { change(options, |options| options.0.preserve_write_order = yes != 0) }
    call rocksdb_trace_options_get_preserve_write_order(options: *mut TraceSettings) -> c_uchar { field(options, |options| options.0.preserve_write_order.into()) }

    attempt rocksdb_start_trace(db: *const Database, env: *const Environment, _env_options: *const EnvOptions, options: *const TraceSettings, trace_path: *const c_char) {
        let db = of(db)?;
        // Compat: a running trace is abandoned, and its error dropped, as in RocksDB. Here it is
        // ended first, because the new trace may have the same file.
        drop(db.db.end_trace());
        db.db.start_trace(field(options, |options| options.0), Box::new(writer(db, env, trace_path)?))
    }
    attempt rocksdb_end_trace(db: *const Database) { of(db)?.db.end_trace() }

    attempt rocksdb_start_io_trace(db: *const Database, env: *const Environment, _env_options: *const EnvOptions, options: *const TraceSettings, trace_path: *const c_char) {
        let db = of(db)?;
        db.db.start_io_trace(field(options, |options| options.0), Box::new(writer(db, env, trace_path)?))
    }
    attempt rocksdb_end_io_trace(db: *const Database) {
        match of(db)?.db.end_io_trace() {
            // Compat: it is no error if no trace runs.
            Err(error) if error.kind() == ErrorKind::InvalidArgument => Ok(()),
            outcome => outcome,
        }
    }

    attempt rocksdb_trace_reader_create(env: *const Environment, _env_options: *const EnvOptions, trace_path: *const c_char) -> *mut TraceReaderHandle {
        Ok(give(TraceReaderHandle(Some(FileTraceReader::open(&of(env)?.0, path(trace_path)?)?))))
    }
    attempt rocksdb_trace_reader_read(reader: *mut TraceReaderHandle, size: *mut usize) -> *mut c_char {
        put(size, 0);
        Ok(value_out(open_reader(reader)?.read()?, size))
    }
    attempt rocksdb_trace_reader_reset(reader: *mut TraceReaderHandle) { open_reader(reader)?.reset() }
    attempt rocksdb_trace_reader_close(reader: *mut TraceReaderHandle) {
        of_mut(reader)?.0 = None;
        Ok(())
    }
    call rocksdb_trace_reader_destroy(reader: *mut TraceReaderHandle) { end(reader); }

    call rocksdb_replay_options_create() -> *mut ReplaySettings { give(ReplaySettings::default()) }
    call rocksdb_replay_options_destroy(options: *mut ReplaySettings) { end(options); }
    call rocksdb_replay_options_set_num_threads(options: *mut ReplaySettings, threads: u32) { change(options, |options| options.0.num_threads = threads) }
    call rocksdb_replay_options_get_num_threads(options: *mut ReplaySettings) -> u32 { field(options, |options| options.0.num_threads) }
    call rocksdb_replay_options_set_fast_forward(options: *mut ReplaySettings, times: f64) { change(options, |options| options.0.fast_forward = times) }
    call rocksdb_replay_options_get_fast_forward(options: *mut ReplaySettings) -> f64 { field(options, |options| options.0.fast_forward) }

    attempt rocksdb_new_default_replayer(db: *const Database, families: *mut *mut Family, count: usize, env: *const Environment, _env_options: *const EnvOptions, trace_path: *const c_char) -> *mut ReplayerHandle {
        let db = of(db)?;
        if families.is_null() && count > 0 { return Err(invalid("column_families is null, and their number is not 0")) }
        let mut given: Vec<ColumnFamily> = Vec::new();
        for family in list(families.cast_const(), count) {
            given.push(of(*family)?.0.clone());
        }
        if given.is_empty() { given.push(db.db.default_column_family().clone()) }
        let reader = FileTraceReader::open(env_or_own(env, db), path(trace_path)?)?;
        Ok(give(ReplayerHandle(Replayer::new(&db.db, &given, Box::new(reader))?)))
    }
    attempt rocksdb_replayer_prepare(replayer: *mut ReplayerHandle) { of(replayer)?.0.prepare() }
    call rocksdb_replayer_get_header_timestamp(replayer: *const ReplayerHandle) -> u64 {
        of(replayer).map_or(0, |replayer| replayer.0.header_timestamp())
    }
    attempt rocksdb_replayer_replay(replayer: *mut ReplayerHandle, options: *const ReplaySettings) {
        of(replayer)?.0.replay(&field(options, |options| options.0), |_, _| ())
    }
    call rocksdb_replayer_destroy(replayer: *mut ReplayerHandle) { end(replayer); }
}
