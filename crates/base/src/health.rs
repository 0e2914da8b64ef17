//! Background errors: what went wrong behind the callers' backs, how bad it is, and what is refused
//! because of it.
//!
//! In: failures of flushes, compactions, log and MANIFEST writes. Out: whether writes and jobs go
//! on, an error that names the cause for those that do not, and whether it is worth trying again by
//! itself. `background` does the trying.
//!
//! Invariant: the worst error is the one that is kept. It goes away only by a recovery that
//! succeeded, and no recovery takes away a fatal one. Ordering: `refuses` is Release by whoever
//! reports, Acquire by writers; it is a shortcut for what the lock guards. Lock: its own; never
//! held while waiting.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, EventListener};
use std::sync::{Arc, OnceLock};

/// How bad a background error is. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Writes go on; compactions wait.
    Soft,
    /// Writes are refused until the database recovers, by itself or by `Db::resume`.
    Hard,
    /// Writes are refused until the database is opened anew.
    Fatal,
    /// Data is lost. Reads of what is there go on; restore the rest from elsewhere.
    Unrecoverable,
}

/// What was being done when it went wrong. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackgroundErrorReason {
    /// A flush; the log has what it did not write.
    Flush,
    /// A flush of entries that are in no log.
    FlushNoWal,
    /// A compaction.
    Compaction,
    /// A write to the log.
    WriteCallback,
    /// An insert into a memtable, of what is in the log already.
    MemTable,
    /// A write to the MANIFEST.
    ManifestWrite,
    /// A write to the MANIFEST for a flush of entries that are in no log.
    ManifestWriteNoWal,
}

impl BackgroundErrorReason {
    fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::FlushNoWal => "flush without log",
            Self::Compaction => "compaction",
            Self::WriteCallback => "write to the log",
            Self::MemTable => "insert into a memtable",
            Self::ManifestWrite => "write to the MANIFEST",
            Self::ManifestWriteNoWal => "write to the MANIFEST without log",
        }
    }

    /// Whether a job failed, which can be tried again.
    #[doc(hidden)]
    pub fn is_of_job(self) -> bool {
        matches!(self, Self::Flush | Self::FlushNoWal | Self::Compaction)
    }

    /// Whether it was the MANIFEST that could not be written.
    #[doc(hidden)]
    pub fn is_of_manifest(self) -> bool {
        matches!(self, Self::ManifestWrite | Self::ManifestWriteNoWal)
    }
}

/// A background error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackgroundError {
    /// What went wrong.
    pub error: Error,
    /// What was being done.
    pub reason: BackgroundErrorReason,
    /// How bad it is.
    pub severity: Severity,
}

impl BackgroundError {
    /// The error for a call that is refused because of it.
    fn refusal(&self, what: &str) -> Error {
        let how = match self.severity {
            Severity::Soft | Severity::Hard => "until the database recovers or Db::resume succeeds",
            Severity::Fatal => "until the database is opened anew",
            Severity::Unrecoverable => "since data is lost; restore the database",
        };
        self.error.clone().in_context(format_args!("{what} {how}; a {} failed", self.reason.name()))
    }
}

/// What kind of failure it is, as far as it matters for going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    NoSpace,
    SpaceLimit,
    Io,
    Corruption,
    Other,
}

fn cause_of(error: &Error) -> Cause {
    match error.kind() {
        ErrorKind::NoSpace => Cause::NoSpace,
        ErrorKind::SpaceLimit => Cause::SpaceLimit,
        ErrorKind::Io | ErrorKind::NotFound => Cause::Io,
        ErrorKind::Corruption => Cause::Corruption,
        _ => Cause::Other,
    }
}

/// How bad a failure is; `None` if it stops nothing, because whoever failed tries again.
///
/// Compat: as RocksDB sorts them, with every failed write taken as one of that file only (its
/// `kIOErrorScopeFile`), since no file is written again after a failure: what it held is written
/// anew to another. So an I/O error can be recovered from.
fn severity(reason: BackgroundErrorReason, cause: Cause, paranoid: bool) -> Option<Severity> {
    use BackgroundErrorReason as Reason;
    if !paranoid && reason.is_of_job() {
        return None;
    }
    match (reason, cause) {
        (Reason::Compaction, Cause::NoSpace) => Some(Severity::Soft),
        (Reason::Compaction, Cause::Io) => None,
        (Reason::ManifestWrite | Reason::ManifestWriteNoWal, Cause::Corruption) => Some(Severity::Fatal),
        (_, Cause::Corruption) => Some(Severity::Unrecoverable),
        (Reason::MemTable, _) | (_, Cause::Other) => Some(Severity::Fatal),
        (Reason::FlushNoWal | Reason::ManifestWriteNoWal, Cause::Io) => Some(Severity::Soft),
        (_, Cause::Io | Cause::NoSpace | Cause::SpaceLimit) => Some(Severity::Hard),
    }
}

/// The database's background errors.
pub struct Health {
    paranoid: bool,
    /// Whether writes are refused.
    refuses: AtomicBool,
    /// How many errors were reported since the database was opened.
    reported: AtomicU64,
    state: Mutex<State>,
    changed: Event,
    hook: OnceLock<Hook>,
    suppresses: OnceLock<Suppresses>,
}

/// Whether the failure of a job is to stop nothing.
type Suppresses = Box<dyn Fn(&BackgroundError) -> bool + Send + Sync>;

/// Is told of every error, with what is to be done about it.
type Hook = Box<dyn Fn(&BackgroundError, Reaction) + Send + Sync>;

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("current", &self.current()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    worst: Option<BackgroundError>,
    recovering: bool,
    /// Grows with every error; a recovery that sees it grow has failed.
    errors: u64,
}

/// What to do about a reported error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing was stopped; try again after a pause.
    Retry,
    /// Wait for [`Health::begin_recovery`] to succeed; it is worth trying by itself.
    Recover,
    /// Nothing helps but the user.
    Stop,
}

impl Health {
    /// `paranoid` is the option `paranoid_checks`.
    pub fn new(paranoid: bool) -> Self {
        Self {
            paranoid,
            refuses: AtomicBool::new(false),
            reported: AtomicU64::new(0),
            state: Mutex::default(),
            changed: Event::new(),
            hook: OnceLock::new(),
            suppresses: OnceLock::new(),
        }
    }

    /// Has `hook` told of every error that stops something, on the thread that reports it. The
    /// first call counts.
    pub fn connect(&self, hook: impl Fn(&BackgroundError, Reaction) + Send + Sync + 'static) {
        // Why ignored: a second hook would be a second scheduler, which no caller has.
        let _ = self.hook.set(Box::new(hook));
    }

    /// Has `suppresses` asked about each failure of a job, before it counts. The first call counts.
    pub fn ask(&self, suppresses: impl Fn(&BackgroundError) -> bool + Send + Sync + 'static) {
        // Why ignored: as in `connect`.
        let _ = self.suppresses.set(Box::new(suppresses));
    }

    /// Whether somebody wants the failure of a job to stop nothing.
    fn is_suppressed(&self, error: &Error, reason: BackgroundErrorReason) -> bool {
        let Some(suppresses) = self.suppresses.get().filter(|_| reason.is_of_job()) else { return false };
        severity(reason, cause_of(error), self.paranoid)
            .is_some_and(|severity| suppresses(&BackgroundError { error: error.clone(), reason, severity }))
    }

    /// Takes note of a failure, and tells of it. One of a job that somebody suppresses counts as
    /// one that stops nothing.
    pub fn report(&self, error: &Error, reason: BackgroundErrorReason) -> Reaction {
        if self.is_suppressed(error, reason) {
            self.reported.fetch_add(1, Ordering::Relaxed);
            return Reaction::Retry;
        }
        let noted = self.note(error, reason);
        noted.map_or(Reaction::Retry, |noted| self.tell(noted))
    }

    /// Takes note of a failure, from when on it counts. `None` if it is none that stays.
    pub fn note(&self, error: &Error, reason: BackgroundErrorReason) -> Option<Noted> {
        self.reported.fetch_add(1, Ordering::Relaxed);
        let severity = severity(reason, cause_of(error), self.paranoid)?;
        let noted = BackgroundError { error: error.clone(), reason, severity };
        let mut state = self.state.lock();
        state.errors += 1;
        if state.worst.as_ref().is_none_or(|worst| worst.severity < severity) {
            state.worst = Some(noted.clone());
        }
        let worst = state.worst.as_ref().map(|worst| worst.severity);
        self.refuses.store(worst >= Some(Severity::Hard), Ordering::Release);
        let reaction = if worst >= Some(Severity::Fatal) { Reaction::Stop } else { Reaction::Recover };
        Some(Noted(noted, reaction))
    }

    /// Tells those who listen, and the hook, which may take its time.
    pub fn tell(&self, Noted(error, reaction): Noted) -> Reaction {
        self.changed.notify(usize::MAX);
        if let Some(hook) = self.hook.get() {
            hook(&error, reaction);
        }
        reaction
    }

    /// Refuses writes while an error stands in their way. One atomic load if none does.
    ///
    /// # Errors
    /// The background error, with what can be done about it.
    #[inline]
    pub fn check_writes(&self) -> Result<()> {
        if self.refuses.load(Ordering::Acquire) { self.refusal() } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> Result<()> {
        match &self.state.lock().worst {
            Some(worst) if worst.severity >= Severity::Hard => Err(worst.refusal("writes are refused")),
            _ => Ok(()),
        }
    }

    /// Whether a flush may run: with no error, a soft one, or within a recovery.
    pub fn allows_flush(&self) -> bool {
        let state = self.state.lock();
        state.worst.as_ref().is_none_or(|worst| worst.severity < Severity::Hard)
    }

    /// Whether a compaction may run.
    pub fn allows_compaction(&self) -> bool {
        self.state.lock().worst.is_none()
    }

    /// The worst error that stands.
    pub fn current(&self) -> Option<BackgroundError> {
        self.state.lock().worst.clone()
    }

    /// Errors since the database was opened.
    pub fn reported(&self) -> u64 {
        self.reported.load(Ordering::Relaxed)
    }

    /// Resolves when an error came or went. Listen, look, then wait.
    pub fn listen(&self) -> EventListener {
        self.changed.listen()
    }

    /// Begins a recovery. `None` if another runs; wait for that one then.
    ///
    /// # Errors
    /// The error is one that nothing takes away.
    pub fn begin_recovery(self: &Arc<Self>) -> Result<Option<Recovery>> {
        let mut state = self.state.lock();
        if let Some(worst) = state.worst.as_ref().filter(|worst| worst.severity >= Severity::Fatal) {
            return Err(worst.refusal("the database cannot be resumed"));
        }
        if state.recovering {
            return Ok(None);
        }
        state.recovering = true;
        Ok(Some(Recovery { health: self.clone(), errors_before: state.errors, error: state.worst.clone() }))
    }
}

/// A failure that counts, and that nobody was told of.
#[derive(Debug)]
#[must_use = "those who listen are to be told"]
pub struct Noted(BackgroundError, Reaction);

/// A recovery that runs. Dropping it gives it up; the error stays.
#[derive(Debug)]
pub struct Recovery {
    health: Arc<Health>,
    errors_before: u64,
    error: Option<BackgroundError>,
}

impl Recovery {
    /// What it recovers from.
    pub fn error(&self) -> Option<&BackgroundError> {
        self.error.as_ref()
    }

    /// Takes the error away.
    ///
    /// # Errors
    /// Another came in the meantime; then the worst of them stays.
    pub fn succeed(self) -> Result<()> {
        let mut state = self.health.state.lock();
        if state.errors != self.errors_before {
            return match &state.worst {
                Some(worst) => Err(worst.refusal("the database could not be resumed")),
                None => Ok(()),
            };
        }
        state.worst = None;
        self.health.refuses.store(false, Ordering::Release);
        Ok(())
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.health.state.lock().recovering = false;
        self.health.changed.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::BackgroundErrorReason as Reason;
    use super::*;

    fn io_error(errno: i32) -> Error {
        let source = std::io::Error::from_raw_os_error(errno);
        Error::from(karst_io::Error::new("append to", "/db/000009.sst", source)).in_context("flushing")
    }

    #[test]
    fn errors_are_sorted_as_rocksdb_does() {
        let corrupt = Error::new(ErrorKind::Corruption, "x");
        let limit = Error::new(ErrorKind::SpaceLimit, "x");
        let cases = [
            (Reason::Flush, io_error(28), Reaction::Recover, Some(Severity::Hard)),
            (Reason::Flush, io_error(5), Reaction::Recover, Some(Severity::Hard)),
            (Reason::FlushNoWal, io_error(5), Reaction::Recover, Some(Severity::Soft)),
            (Reason::Compaction, io_error(28), Reaction::Recover, Some(Severity::Soft)),
            (Reason::Compaction, io_error(5), Reaction::Retry, None),
            (Reason::Compaction, limit.clone(), Reaction::Recover, Some(Severity::Hard)),
            (Reason::Flush, limit, Reaction::Recover, Some(Severity::Hard)),
            (Reason::Compaction, corrupt.clone(), Reaction::Stop, Some(Severity::Unrecoverable)),
            (Reason::ManifestWrite, corrupt, Reaction::Stop, Some(Severity::Fatal)),
            (Reason::WriteCallback, io_error(5), Reaction::Recover, Some(Severity::Hard)),
            (Reason::MemTable, io_error(5), Reaction::Stop, Some(Severity::Fatal)),
            (Reason::Flush, Error::invalid_argument("x"), Reaction::Stop, Some(Severity::Fatal)),
        ];
        for (reason, error, reaction, severity) in cases {
            let health = Health::new(true);
            assert_eq!(health.report(&error, reason), reaction, "{reason:?} {error}");
            assert_eq!(health.current().map(|e| e.severity), severity, "{reason:?} {error}");
            assert_eq!(health.check_writes().is_err(), severity >= Some(Severity::Hard));
            assert_eq!(health.allows_compaction(), severity.is_none());
            assert_eq!(health.reported(), 1);
        }
        let careless = Health::new(false);
        assert_eq!(careless.report(&io_error(5), Reason::Flush), Reaction::Retry);
        assert_eq!(careless.report(&io_error(5), Reason::WriteCallback), Reaction::Recover);
    }

    #[test]
    fn refusals_name_the_cause_until_a_recovery_succeeds() {
        let health = Arc::new(Health::new(true));
        health.report(&io_error(5), Reason::Flush);
        let refusal = health.check_writes().unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::Io);
        assert!(
            refusal.to_string().contains("/db/000009.sst") && refusal.to_string().contains("flush"),
            "{refusal}"
        );
        let given_up = health.begin_recovery().unwrap().unwrap();
        assert!(health.begin_recovery().unwrap().is_none());
        drop(given_up);
        let failed = health.begin_recovery().unwrap().unwrap();
        health.report(&io_error(5), Reason::Flush);
        failed.succeed().unwrap_err();
        health.check_writes().unwrap_err();
        health.begin_recovery().unwrap().unwrap().succeed().unwrap();
        health.check_writes().unwrap();
        assert!(health.allows_compaction() && health.current().is_none());
    }

    #[test]
    fn the_worst_error_stays_and_a_fatal_one_for_good() {
        let health = Arc::new(Health::new(true));
        health.report(&io_error(28), Reason::Compaction);
        health.check_writes().unwrap();
        health.report(&Error::invalid_argument("x"), Reason::Flush);
        health.report(&io_error(28), Reason::Flush);
        assert_eq!(health.current().unwrap().severity, Severity::Fatal);
        assert!(health.begin_recovery().unwrap_err().to_string().contains("opened anew"));
    }
}
