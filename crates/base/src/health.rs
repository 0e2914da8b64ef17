//! Background errors: failures outside of any user call, their severity, and the operations they
//! refuse.
//!
//! In: failures of flushes, compactions, log and MANIFEST writes. Out: permission for writes and
//! jobs, or an error that names the cause; and the reaction, which tells if an automatic recovery
//! is worth trying. `background` performs it.
//!
//! Invariant: the worst error is kept. Only a successful recovery clears it, and no recovery clears
//! a fatal one. Ordering: reporters store `refuses` with Release, writers load it with Acquire; it
//! is a shortcut for the state under the lock. Lock: its own; never held while waiting.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Event, EventListener};
use std::sync::{Arc, OnceLock};

/// The severity of a background error. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Writes go on; compactions wait.
    Soft,
    /// Writes are refused until the database recovers, by itself or by `Db::resume`.
    Hard,
    /// Writes are refused until the database is opened anew.
    Fatal,
    /// Data is lost. Reads of the remaining data work; restore the rest from elsewhere.
    Unrecoverable,
}

/// The operation that failed. RocksDB's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackgroundErrorReason {
    /// A flush; its entries are still in the log.
    Flush,
    /// A flush of entries that are in no log.
    FlushNoWal,
    /// A compaction.
    Compaction,
    /// A write to the log.
    WriteCallback,
    /// An insert into a memtable of entries that are already in the log.
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

    /// True if a job failed, which can be retried.
    #[doc(hidden)]
    pub fn is_of_job(self) -> bool {
        matches!(self, Self::Flush | Self::FlushNoWal | Self::Compaction)
    }

    /// True if a MANIFEST write failed.
    #[doc(hidden)]
    pub fn is_of_manifest(self) -> bool {
        matches!(self, Self::ManifestWrite | Self::ManifestWriteNoWal)
    }
}

/// A background error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackgroundError {
    /// The failure.
    pub error: Error,
    /// The operation that failed.
    pub reason: BackgroundErrorReason,
    /// The severity.
    pub severity: Severity,
}

impl BackgroundError {
    /// Returns the error for a call that is refused because of this error.
    fn refusal(&self, what: &str) -> Error {
        let how = match self.severity {
            Severity::Soft | Severity::Hard => "until the database recovers or Db::resume succeeds",
            Severity::Fatal => "until the database is opened anew",
            Severity::Unrecoverable => "since data is lost; restore the database",
        };
        self.error.clone().in_context(format_args!("{what} {how}; a {} failed", self.reason.name()))
    }
}

/// The kind of a failure, as far as it affects recovery.
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

/// Returns the severity of a failure; `None` if it stops nothing, because the failed operation is
/// retried.
///
/// Compat: RocksDB's classification, with every failed write scoped to its file
/// (`kIOErrorScopeFile`), because a file is not written again after a failure: its contents are
/// rewritten to a new file. An I/O error is therefore recoverable.
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
    /// True while writes are refused.
    refuses: AtomicBool,
    /// Number of errors reported since the database was opened.
    reported: AtomicU64,
    state: Mutex<State>,
    changed: Event,
    hook: OnceLock<Hook>,
    suppresses: OnceLock<Suppresses>,
}

/// Returns true if a job's failure should stop nothing.
type Suppresses = Box<dyn Fn(&BackgroundError) -> bool + Send + Sync>;

/// Called for every error, with the reaction to it.
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
    /// Number of errors noted; a recovery during which it grows has failed.
    errors: u64,
}

/// The reaction to a reported error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing was stopped; retry after a pause.
    Retry,
    /// Recover through [`Health::begin_recovery`]; an automatic attempt is worthwhile.
    Recover,
    /// Only the user can help.
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

    /// Sets the hook called for every error that stops something, on the reporting thread. Only the
    /// first call has an effect.
    pub fn connect(&self, hook: impl Fn(&BackgroundError, Reaction) + Send + Sync + 'static) {
        // Ignored because a second hook would be a second scheduler, which no caller has.
        let _ = self.hook.set(Box::new(hook));
    }

    /// Sets the callback that may suppress a job's failure before it takes effect. Only the first
    /// call has an effect.
    pub fn ask(&self, suppresses: impl Fn(&BackgroundError) -> bool + Send + Sync + 'static) {
        // Ignored for the reason given in `connect`.
        let _ = self.suppresses.set(Box::new(suppresses));
    }

    /// Returns true if the callback suppresses the job's failure.
    fn is_suppressed(&self, error: &Error, reason: BackgroundErrorReason) -> bool {
        let Some(suppresses) = self.suppresses.get().filter(|_| reason.is_of_job()) else { return false };
        severity(reason, cause_of(error), self.paranoid)
            .is_some_and(|severity| suppresses(&BackgroundError { error: error.clone(), reason, severity }))
    }

    /// Records a failure and calls the hook. A suppressed failure of a job stops nothing.
    pub fn report(&self, error: &Error, reason: BackgroundErrorReason) -> Reaction {
        if self.is_suppressed(error, reason) {
            self.reported.fetch_add(1, Ordering::Relaxed);
            return Reaction::Retry;
        }
        let noted = self.note(error, reason);
        noted.map_or(Reaction::Retry, |noted| self.tell(noted))
    }

    /// Records a failure, which takes effect at once. Returns `None` if it stops nothing.
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

    /// Wakes waiters and calls the hook, which may block.
    pub fn tell(&self, Noted(error, reaction): Noted) -> Reaction {
        self.changed.notify(usize::MAX);
        if let Some(hook) = self.hook.get() {
            hook(&error, reaction);
        }
        reaction
    }

    /// Returns an error while a background error refuses writes. One atomic load otherwise.
    ///
    /// # Errors
    /// The background error, with advice.
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

    /// Returns true if a flush may run: there is no error, or a soft one.
    pub fn allows_flush(&self) -> bool {
        let state = self.state.lock();
        state.worst.as_ref().is_none_or(|worst| worst.severity < Severity::Hard)
    }

    /// Returns true if a compaction may run: there is no error.
    pub fn allows_compaction(&self) -> bool {
        self.state.lock().worst.is_none()
    }

    /// Returns the worst error in effect.
    pub fn current(&self) -> Option<BackgroundError> {
        self.state.lock().worst.clone()
    }

    /// Returns the number of errors since the database was opened.
    pub fn reported(&self) -> u64 {
        self.reported.load(Ordering::Relaxed)
    }

    /// Returns a listener that resolves when an error is reported or cleared. Listen, check, then
    /// wait.
    pub fn listen(&self) -> EventListener {
        self.changed.listen()
    }

    /// Begins a recovery. Returns `None` if another one runs; wait for that one.
    ///
    /// # Errors
    /// The error is fatal and cannot be cleared.
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

/// A recorded failure that has not been passed to the hook yet.
#[derive(Debug)]
#[must_use = "those who listen are to be told"]
pub struct Noted(BackgroundError, Reaction);

/// A running recovery. Dropping it abandons it; the error stays.
#[derive(Debug)]
pub struct Recovery {
    health: Arc<Health>,
    errors_before: u64,
    error: Option<BackgroundError>,
}

impl Recovery {
    /// The error it recovers from.
    pub fn error(&self) -> Option<&BackgroundError> {
        self.error.as_ref()
    }

    /// Clears the error.
    ///
    /// # Errors
    /// Another error was reported in the meantime; the worst one stays.
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
