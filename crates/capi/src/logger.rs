//! Loggers that receive the lines of LOG in place of the file: a user's function, or stderr.

use crate::boundary::*;
use crate::options::OptionsHandle;
use karstdb::{LogLevel, Logger};
use libc::{c_char, c_int, c_uint, c_void};
use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;

/// `rocksdb_logger_t`; `None` if options have none.
#[derive(Debug)]
pub struct LoggerHandle(Option<Arc<dyn Logger>>);

type LogLine = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_char, usize);

/// Returns RocksDB's number of a level.
fn number(level: LogLevel) -> c_uint {
    match level {
        LogLevel::Debug => 0,
        LogLevel::Info => 1,
        LogLevel::Warn => 2,
        LogLevel::Error => 3,
        LogLevel::Fatal => 4,
        LogLevel::Header => 5,
    }
}

fn level(number: c_int) -> LogLevel {
    match number {
        ..=0 => LogLevel::Debug,
        1 => LogLevel::Info,
        2 => LogLevel::Warn,
        3 => LogLevel::Error,
        4 => LogLevel::Fatal,
        _ => LogLevel::Header,
    }
}

#[derive(Debug)]
struct UserLogger {
    least: LogLevel,
    log: LogLine,
    state: *mut c_void,
}

// SAFETY: the callback is called from any thread, several at once, as with RocksDB; the user
// protects the state.
unsafe impl Send for UserLogger {}
// SAFETY: as above.
unsafe impl Sync for UserLogger {}

impl Logger for UserLogger {
    fn log(&self, level: LogLevel, text: &str) {
        // Copied because the callback may write into the line, and because it must end with 0.
        let mut line = [text.as_bytes(), &[0]].concat();
        // SAFETY: the user's own function; the bytes are valid during the call.
        unsafe { (self.log)(self.state, number(level), line.as_mut_ptr().cast(), text.len()) }
    }

    fn level(&self) -> LogLevel {
        self.least
    }
}

#[derive(Debug)]
struct Stderr {
    least: LogLevel,
    prefix: String,
}

impl Logger for Stderr {
    fn log(&self, level: LogLevel, text: &str) {
        let mark = match level {
            LogLevel::Debug => "[DEBUG] ",
            LogLevel::Warn => "[WARN] ",
            LogLevel::Error => "[ERROR] ",
            LogLevel::Fatal => "[FATAL] ",
            LogLevel::Info | LogLevel::Header => "",
        };
        let blank = if self.prefix.is_empty() { "" } else { " " };
        let line = format!("{} {}{blank}{mark}{text}\n", now(), self.prefix);
        // One write, so that lines of several threads do not mix. Its error is ignored, because
        // there is no other place to report it.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn level(&self) -> LogLevel {
        self.least
    }
}

/// Returns the local time and the thread, in the form of RocksDB's lines.
fn now() -> String {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let seconds = libc::time_t::try_from(since.as_secs()).unwrap_or_default();
    // SAFETY: zero is a valid value of the struct of numbers and a pointer that is not read here;
    // both calls get valid arguments.
    let (local, thread) = unsafe {
        let mut local = std::mem::zeroed::<libc::tm>();
        libc::localtime_r(&seconds, &mut local);
        (local, libc::pthread_self())
    };
    format!(
        "{:04}/{:02}/{:02}-{:02}:{:02}:{:02}.{:06} {thread:x}",
        local.tm_year + 1900,
        local.tm_mon + 1,
        local.tm_mday,
        local.tm_hour,
        local.tm_min,
        local.tm_sec,
        since.subsec_micros()
    )
}

capi! {
    call rocksdb_logger_create_stderr_logger(log_level: c_int, prefix: *const c_char) -> *mut LoggerHandle {
        let prefix = text(prefix).unwrap_or_default().to_owned();
        give(LoggerHandle(Some(Arc::new(Stderr { least: level(log_level), prefix }))))
    }
    call rocksdb_logger_create_callback_logger(log_level: c_int, log: Option<LogLine>, state: *mut c_void) -> *mut LoggerHandle {
        // Without a function the lines are dropped; LOG is not written either.
        unsafe extern "C" fn nowhere(_: *mut c_void, _: c_uint, _: *mut c_char, _: usize) {}
        give(LoggerHandle(Some(Arc::new(UserLogger { least: level(log_level), log: log.unwrap_or(nowhere), state }))))
    }
    call rocksdb_logger_destroy(logger: *mut LoggerHandle) { end(logger); }
    call rocksdb_options_set_info_log(options: *mut OptionsHandle, logger: *const LoggerHandle) {
        if let (Some(options), Some(logger)) = (options.as_mut(), logger.as_ref()) { options.logger = logger.0.clone() }
    }
    /// Returns a new handle for the options' logger, which the caller destroys.
    call rocksdb_options_get_info_log(options: *const OptionsHandle) -> *mut LoggerHandle {
        give(LoggerHandle(options.as_ref().and_then(|options| options.logger.clone())))
    }
}
