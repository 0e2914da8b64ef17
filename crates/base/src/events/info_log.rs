//! The LOG file: lines for humans, in the database's directory.
//!
//! In: lines from any thread; adding one does not block. Out: the file, written by one job at a
//! time that may block. The file is renamed to `LOG.old.<microseconds>` when the database is
//! reopened and when LOG exceeds its size or age limit; `keep_log_file_num` limits the number of
//! files. A user's [`Logger`] replaces the file: it is called on the thread that logs.
//!
//! Invariant: lines are written in the order in which they were added. At most one job writes the
//! file. A logger is not called after the database's last handle is dropped.
//! Lock: the queue's; never held during file writes or logger calls.

use super::LogLevel;
use super::date::Date;
use crate::stats::micros;
use crate::sync::Event;
use crate::sync::Mutex;
use karst_format::file_name::FileName;
use karst_format::options::{DbOptions, InfoLogLevel};
use karst_io::{Env, WritableFile, report};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of queued bytes; while the disk is behind, further lines are dropped and counted.
const QUEUE_BYTES: usize = 4 << 20;

/// Receives the lines of LOG in place of the file.
pub trait Logger: Send + Sync + std::fmt::Debug {
    /// Receives a line without line end or date; the line about all options of a family contains
    /// several. Any thread may call it, several at once, possibly while holding locks of the
    /// database: it must not call the database, and it delays its caller. Panics are caught.
    fn log(&self, level: LogLevel, text: &str);

    /// The least important level it receives; the database's `info_log_level` is ignored.
    fn level(&self) -> LogLevel {
        LogLevel::Info
    }
}

/// The LOG file or the user's logger; see the module.
#[derive(Debug)]
pub struct InfoLog(To);

#[derive(Debug)]
enum To {
    File(Arc<Shared>),
    User(Arc<dyn Logger>),
}

#[derive(Debug)]
struct Shared {
    env: Env,
    least: LogLevel,
    queue: Mutex<Queue>,
    drained: Event,
}

#[derive(Debug)]
struct Queue {
    text: String,
    dropped_lines: u64,
    /// `None` while a job is writing.
    sink: Option<Sink>,
}

/// The LOG file and its state; used by one job at a time.
#[derive(Debug)]
struct Sink {
    place: Place,
    file: Option<Box<dyn WritableFile>>,
    /// True if the last lines were lost because the file could not be created or written.
    fails: bool,
    opened_at: Duration,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum size in bytes; 0 for no limit.
    bytes: u64,
    /// Maximum age; zero for no limit.
    age: Duration,
    files: usize,
}

/// Directory and name prefix of LOG files: `LOG` in the database's directory; in another directory,
/// the database's path before `_LOG`.
#[derive(Clone, Debug)]
struct Place {
    directory: PathBuf,
    prefix: String,
}

impl Place {
    fn new(database: &Path, options: &DbOptions) -> Self {
        if options.db_log_dir.is_empty() {
            return Self { directory: database.to_owned(), prefix: String::new() };
        }
        let path = database.to_string_lossy();
        let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let prefix =
            path.trim_start_matches('/').chars().map(|c| if keep(c) { c } else { '_' }).collect::<String>();
        Self { directory: PathBuf::from(&options.db_log_dir), prefix: prefix + "_" }
    }

    fn path(&self, name: FileName) -> PathBuf {
        self.directory.join(format!("{}{name}", self.prefix))
    }

    /// Returns the timestamps of the existing old logs, ascending.
    fn old(&self, env: &Env) -> karst_io::Result<Vec<u64>> {
        let names = env.fs().list_dir(&self.directory)?;
        let parsed = names.iter().filter_map(|name| FileName::parse(name.strip_prefix(&*self.prefix)?));
        let mut times: Vec<u64> = parsed
            .filter_map(|name| match name {
                FileName::OldInfoLog(Some(time)) => Some(time),
                _ => None,
            })
            .collect();
        times.sort_unstable();
        Ok(times)
    }
}

impl InfoLog {
    /// Creates a log that passes lines to `logger`.
    pub fn of(logger: Arc<dyn Logger>) -> Self {
        Self(To::User(logger))
    }

    /// Renames an earlier LOG and creates a new one. Blocks.
    pub fn open(env: &Env, database: &Path, options: &DbOptions) -> Self {
        let limits = Limits {
            bytes: options.max_log_file_size as u64,
            age: Duration::from_secs(options.log_file_time_to_roll as u64),
            files: options.keep_log_file_num.max(1),
        };
        let place = Place::new(database, options);
        let mut sink = Sink { place, file: None, fails: false, opened_at: env.unix_time(), limits };
        sink.roll(env);
        Self(To::File(Arc::new(Shared {
            env: env.clone(),
            least: least(options.info_log_level),
            queue: Mutex::new(Queue { text: String::new(), dropped_lines: 0, sink: Some(sink) }),
            drained: Event::new(),
        })))
    }

    /// Adds a line. Does not block unless the user's logger does.
    pub fn write(&self, level: LogLevel, text: std::fmt::Arguments<'_>) {
        match &self.0 {
            To::File(file) if level >= file.least => file.write(level, text),
            // The logger's panics are caught here because they would take down the thread that
            // logs.
            To::User(logger) if level >= logger.level() => {
                let text = text.to_string();
                if catch_unwind(AssertUnwindSafe(|| logger.log(level, &text))).is_err() {
                    report!(error, ?logger, "a logger panicked");
                }
            }
            _ => {}
        }
    }

    /// Waits until all lines added before are in the file.
    pub async fn written(&self) {
        if let To::File(file) = &self.0 {
            file.written().await;
        }
    }
}

impl Shared {
    fn write(self: &Arc<Self>, level: LogLevel, text: std::fmt::Arguments<'_>) {
        let now = Date(self.env.unix_time());
        let mut queue = self.queue.lock();
        if queue.text.len() > QUEUE_BYTES {
            queue.dropped_lines += 1;
            return;
        }
        let mark = match level {
            LogLevel::Debug => " [DEBUG]",
            LogLevel::Warn => " [WARN]",
            LogLevel::Error => " [ERROR]",
            LogLevel::Fatal => " [FATAL]",
            LogLevel::Info | LogLevel::Header => "",
        };
        let _ = writeln!(queue.text, "{now} 0{mark} {text}");
        if let Some(sink) = queue.sink.take() {
            drop(queue);
            let shared = self.clone();
            drop(self.env.run_blocking(move |env| shared.drain(env, sink)));
        }
    }

    async fn written(&self) {
        loop {
            let drained = self.drained.listen();
            // Sufficient because the sink is put back only when the queue is empty.
            if self.queue.lock().sink.is_some() {
                return;
            }
            drained.await;
        }
    }

    fn drain(&self, env: &Env, mut sink: Sink) {
        loop {
            let text = {
                let mut queue = self.queue.lock();
                if queue.text.is_empty() {
                    queue.sink = Some(sink);
                    drop(queue);
                    self.drained.notify(usize::MAX);
                    return;
                }
                if queue.dropped_lines > 0 {
                    let dropped = std::mem::take(&mut queue.dropped_lines);
                    let now = Date(env.unix_time());
                    let _ = writeln!(
                        queue.text,
                        "{now} 0 [WARN] {dropped} lines were dropped, because writes to LOG were too slow"
                    );
                }
                std::mem::take(&mut queue.text)
            };
            sink.append(env, &text);
        }
    }
}

impl Sink {
    fn append(&mut self, env: &Env, text: &str) {
        if self.file.is_none() {
            // Retried each time because creation may succeed once a full disk has room again.
            self.roll(env);
        }
        let Some(file) = &mut self.file else { return };
        let too_long =
            self.limits.bytes > 0 && file.size() > 0 && file.size() + text.len() as u64 > self.limits.bytes;
        let age = env.unix_time().saturating_sub(self.opened_at);
        if too_long || (!self.limits.age.is_zero() && age >= self.limits.age) {
            self.roll(env);
        }
        let Some(file) = &mut self.file else { return };
        // Writing continues after a failure because a truncated line still serves humans, and the
        // next lines report the outcome.
        match file.append(text.as_bytes()) {
            Ok(()) => self.fails = false,
            Err(e) => self.failed("the LOG file cannot be written; the database continues without it", &e),
        }
    }

    /// Reports the first of consecutive failures.
    fn failed(&mut self, what: &str, error: &karst_io::Error) {
        if !std::mem::replace(&mut self.fails, true) {
            report!(warn, %error, "{what}");
        }
    }

    /// Renames the current file, creates another, and removes the oldest.
    fn roll(&mut self, env: &Env) {
        self.file = None;
        match self.try_roll(env) {
            Ok(file) => self.file = Some(file),
            Err(e) => self.failed("the LOG file cannot be created; the database continues without it", &e),
        }
        self.opened_at = env.unix_time();
    }

    fn try_roll(&self, env: &Env) -> karst_io::Result<Box<dyn WritableFile>> {
        let fs = env.fs();
        fs.create_dir(&self.place.directory)?;
        let current = self.place.path(FileName::InfoLog);
        let mut old = self.place.old(env)?;
        if fs.exists(&current)? {
            let now = micros(env.unix_time());
            // Uses the maximum because two files may be renamed in one microsecond, and clocks may
            // be set back.
            let time = now.max(old.last().map_or(0, |last| last + 1));
            fs.rename(&current, &self.place.path(FileName::OldInfoLog(Some(time))))?;
            old.push(time);
        }
        let file = fs.create(&current)?;
        let gone = (old.len() + 1).saturating_sub(self.limits.files);
        for time in &old[..gone] {
            fs.remove(&self.place.path(FileName::OldInfoLog(Some(*time))))?;
        }
        Ok(file)
    }
}

fn least(option: InfoLogLevel) -> LogLevel {
    match option {
        InfoLogLevel::Debug => LogLevel::Debug,
        InfoLogLevel::Info => LogLevel::Info,
        InfoLogLevel::Warn => LogLevel::Warn,
        InfoLogLevel::Error => LogLevel::Error,
        InfoLogLevel::Fatal => LogLevel::Fatal,
        InfoLogLevel::Header => LogLevel::Header,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_format::options::OptionSet;
    use karst_io::{FileSystem, MemoryFileSystem};

    fn env() -> Env {
        let files = MemoryFileSystem::new();
        files.create_dir(Path::new("/db")).unwrap();
        Env::builder().file_system(Arc::new(files)).build()
    }

    fn options(text: &str) -> DbOptions {
        let mut options = DbOptions::default();
        options.set_all(text).unwrap();
        options
    }

    fn read(env: &Env, path: &str) -> String {
        String::from_utf8(env.fs().read_file(Path::new(path)).unwrap()).unwrap()
    }

    fn info_logs(env: &Env, directory: &str) -> Vec<String> {
        env.fs().list_dir(Path::new(directory)).unwrap()
    }

    #[test]
    fn lines_come_in_order_and_the_level_counts() {
        let env = env();
        let log = InfoLog::open(&env, Path::new("/db"), &options("info_log_level=WARN_LEVEL"));
        for i in 0..200 {
            log.write(LogLevel::Info, format_args!("quiet {i}"));
            log.write(LogLevel::Error, format_args!("line {i}"));
        }
        karst_io::block_on(&env, log.written());
        let text = read(&env, "/db/LOG");
        let ends: Vec<&str> = text.lines().map(|line| line.split("[ERROR] ").nth(1).unwrap()).collect();
        assert_eq!(ends, (0..200).map(|i| format!("line {i}")).collect::<Vec<_>>());
    }

    #[test]
    fn opening_puts_the_last_one_aside_and_keeps_so_many() {
        let env = env();
        for i in 0..6 {
            let log = InfoLog::open(&env, Path::new("/db"), &options("keep_log_file_num=3"));
            log.write(LogLevel::Info, format_args!("opened {i}"));
            karst_io::block_on(&env, log.written());
        }
        let names = info_logs(&env, "/db");
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(read(&env, "/db/LOG").ends_with("opened 5\n"));
        assert!(read(&env, &format!("/db/{}", names[1])).ends_with("opened 3\n"), "{names:?}");
    }

    #[test]
    fn a_log_that_is_old_is_put_aside() {
        let simulation = karst_io::Simulation::new(1);
        let env = simulation.env().clone();
        simulation.run(async {
            env.fs().create_dir(Path::new("/db")).unwrap();
            let log = InfoLog::open(&env, Path::new("/db"), &options("log_file_time_to_roll=100"));
            for minute in 0..6 {
                log.write(LogLevel::Info, format_args!("minute {minute}"));
                log.written().await;
                karst_io::sleep(&env, Duration::from_secs(60)).await;
            }
            let names = info_logs(&env, "/db");
            let lines: Vec<usize> =
                names.iter().map(|name| read(&env, &format!("/db/{name}")).lines().count()).collect();
            assert_eq!(lines, [2, 2, 2], "{names:?}");
            assert!(read(&env, "/db/LOG").ends_with("minute 5\n"));
        });
    }

    #[test]
    fn lines_are_lost_on_a_full_disk_and_come_again_once_there_is_room() {
        let simulation = karst_io::Simulation::new(1);
        let (env, fs) = (simulation.env().clone(), simulation.fs());
        for fails_from_the_start in [true, false] {
            fs.set_capacity(Some(0).filter(|_| fails_from_the_start));
            fs.set_full(fails_from_the_start.then_some(|path| path.ends_with("LOG")));
            let log = InfoLog::open(&env, Path::new("/db"), &options(""));
            let lines = |names: [&str; 2]| {
                for name in names {
                    log.write(LogLevel::Info, format_args!("{name}"));
                    karst_io::block_on(&env, log.written());
                }
            };
            lines(["a", "b"]);
            fs.set_capacity(Some(100));
            lines(["lost in part, as there is no room for all of it, which is long", "lost"]);
            fs.set_capacity(None);
            fs.set_full(None);
            lines(["later", "last"]);
            let text = read(&env, "/db/LOG");
            assert!(text.ends_with(" 0 last\n") && text.contains(" 0 later\n"), "{text}");
            assert_eq!(text.contains(" 0 b\n"), !fails_from_the_start, "{text}");
        }
    }

    #[test]
    fn a_long_file_is_rolled_and_another_directory_has_other_names() {
        let env = env();
        let log = InfoLog::open(&env, Path::new("/db"), &options("max_log_file_size=100;db_log_dir=/logs"));
        for i in 0..3 {
            log.write(LogLevel::Info, format_args!("{i:0>80}"));
            karst_io::block_on(&env, log.written());
        }
        let names = info_logs(&env, "/logs");
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("db_LOG")), "{names:?}");
        assert_eq!(info_logs(&env, "/db"), Vec::<String>::new());
    }
}
