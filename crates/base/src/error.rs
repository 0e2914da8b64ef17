//! Errors of the engine: their kind, grouped by what the user can do about them, and their place.
//!
//! In: corruptions from `format` (offsets within the bytes it was given) and failures from `io`.
//! Out: one cheap, cloneable [`Error`] that names the file, the offset in that file and the
//! expected contents, and keeps its cause as `source`.
//!
//! Invariant: one pointer wide, so that `Result<Option<Value>>` stays small on the hit path;
//! cloneable, so that every lookup of a batch that waited for one broken block gets its error.

use karst_format::Corruption;
use karst_format::comparator::Comparator;
use karst_io::JoinError;
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of a failure, grouped by what the user can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The data on disk is damaged or contradicts the rest of the database. Restore it from
    /// elsewhere.
    Corruption,
    /// The operating system or the device failed the operation. It may work when repeated.
    Io,
    /// The device is full, or a quota is used up (`ENOSPC`, `EDQUOT`). Free space; background work
    /// and writes then resume by themselves.
    NoSpace,
    /// Tables and blob files have reached, or would pass, the size that the database's
    /// `SstFileManager` allows. Raise the limit or delete data; background work and writes then
    /// resume by themselves.
    SpaceLimit,
    /// The call, an option or an argument is wrong. Change it.
    InvalidArgument,
    /// The data is valid but uses a feature that this build does not know. Use another version or
    /// register the extension.
    NotSupported,
    /// The database, column family or file does not exist.
    NotFound,
    /// The answer is not in memory, and the read's options forbid storage access.
    Incomplete,
    /// A limit that the caller set was reached (memory, value size). Ask for less or raise it.
    LimitReached,
    /// The caller's deadline has passed.
    TimedOut,
    /// Another transaction or write is in the way. Roll back and begin again.
    Busy,
    /// Another process, or another handle in this one, holds the lock (LOCK) on the database, on
    /// the backup directory, or on the copy being made. Nothing was changed. Close that handle, or
    /// wait until it finishes.
    Locked,
    /// A resource that the call depends on was changed, or is briefly held, by another operation.
    /// Nothing was changed. Retrying the same call may succeed.
    TryAgain,
    /// The lock waits form a cycle, so that waiting would never end. Roll back to let others
    /// proceed, and begin again.
    Deadlock,
    /// The transaction has outlived its time. Roll it back.
    Expired,
    /// The database is closed or closing.
    Closed,
    /// A job of the database panicked, for example in a comparator, merge operator or filter; the
    /// error has the panic's message. Fix the cause and reopen the database.
    Panicked,
}

impl ErrorKind {
    /// True if the operating system or the device failed: `Io`, `NoSpace`, and `SpaceLimit`, which
    /// RocksDB counts with them.
    pub fn is_io(self) -> bool {
        matches!(self, ErrorKind::Io) || self.lacks_space()
    }

    /// True if space is exhausted: `NoSpace` or `SpaceLimit`.
    pub fn lacks_space(self) -> bool {
        matches!(self, ErrorKind::NoSpace | ErrorKind::SpaceLimit)
    }

    /// Returns the kind of a failure in `io`.
    fn of(error: &karst_io::Error) -> Self {
        match error {
            error if error.is_not_found() => ErrorKind::NotFound,
            error if error.is_no_space() => ErrorKind::NoSpace,
            error if error.is_locked() => ErrorKind::Locked,
            _ => ErrorKind::Io,
        }
    }

    /// Returns the kind of a decoding failure in `format`.
    fn of_decoding(corruption: &Corruption) -> Self {
        match corruption.missing_feature {
            Some(_) => ErrorKind::NotSupported,
            None => ErrorKind::Corruption,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Corruption => "corruption",
            ErrorKind::Io => "I/O error",
            ErrorKind::NoSpace => "no space",
            ErrorKind::SpaceLimit => "space limit reached",
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotSupported => "not supported",
            ErrorKind::NotFound => "not found",
            ErrorKind::Incomplete => "incomplete",
            ErrorKind::LimitReached => "limit reached",
            ErrorKind::TimedOut => "timed out",
            ErrorKind::Busy => "busy",
            ErrorKind::Locked => "locked",
            ErrorKind::TryAgain => "try again",
            ErrorKind::Deadlock => "deadlock",
            ErrorKind::Expired => "expired",
            ErrorKind::Closed => "closed",
            ErrorKind::Panicked => "panicked",
        }
    }
}

/// A failure of the engine. Cloning is cheap and keeps the cause.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    context: Cow<'static, str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error of `kind`; `context` states what was attempted and what was found instead.
    pub fn new(kind: ErrorKind, context: impl Into<Cow<'static, str>>) -> Self {
        Error(Arc::new(Inner { kind, context: context.into(), source: None }))
    }

    /// Creates an error of `kind` that was caused by `source`.
    pub fn with_source(
        kind: ErrorKind,
        context: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Error(Arc::new(Inner { kind, context: context.into(), source: Some(source.into()) }))
    }

    /// Creates an error for damaged data in `file` at `offset` (bytes from the start of the file).
    pub fn corruption_at(file: &Path, offset: u64, what: impl fmt::Display) -> Self {
        Error::new(ErrorKind::Corruption, format!("{}, offset {offset}: {what}", file.display()))
    }

    /// Creates an error for damaged data found by `format` in the bytes of `file` that begin at
    /// `base` (bytes from the start of the file).
    #[doc(hidden)]
    pub fn in_file(file: &Path, base: u64, corruption: Corruption) -> Self {
        let offset = base.saturating_add(corruption.offset);
        Error::with_source(
            ErrorKind::of_decoding(&corruption),
            format!("{}, offset {offset}: {}", file.display(), corruption.what),
            corruption,
        )
    }

    /// Creates an error for damaged contents of the block of `file` that begins at `offset` (bytes
    /// from the start of the file). The corruption's own offset is within the contents, which may
    /// have been compressed.
    #[doc(hidden)]
    pub fn in_block(file: &Path, offset: u64, corruption: Corruption) -> Self {
        Error::with_source(
            ErrorKind::of_decoding(&corruption),
            format!(
                "{}, block at offset {offset}: {} (at {} in the block)",
                file.display(),
                corruption.what,
                corruption.offset
            ),
            corruption,
        )
    }

    /// Creates an error for an argument or option that cannot be honoured.
    pub fn invalid_argument(context: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorKind::InvalidArgument, context)
    }

    /// Creates an error for a valid request or format that this build does not support.
    pub fn not_supported(context: impl Into<Cow<'static, str>>) -> Self {
        Error::new(ErrorKind::NotSupported, context)
    }

    /// Returns the error for a task without a result: the task, described by `what`, panicked, or
    /// was dropped when the environment ended.
    #[doc(hidden)]
    pub fn of_task(what: &str, error: &JoinError) -> Self {
        let kind =
            if matches!(error, JoinError::Panicked(_)) { ErrorKind::Panicked } else { ErrorKind::Closed };
        Error::new(kind, format!("{what}: {error}"))
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the attempted action and the finding, with the file and the offset if known.
    pub fn context(&self) -> &str {
        &self.0.context
    }

    /// Prepends `context` to the error's text; the kind stays.
    #[must_use]
    pub fn in_context(self, context: impl fmt::Display) -> Self {
        let text = format!("{context}: {}", self.0.context);
        Error(Arc::new(Inner {
            kind: self.0.kind,
            context: text.into(),
            source: Some(Box::new(Cause(self.0))),
        }))
    }
}

impl Error {
    /// Appends `advice` to the error's text; the kind stays.
    #[doc(hidden)]
    pub fn with_advice(self, advice: impl fmt::Display) -> Self {
        let text = format!("{}; {advice}", self.0.context);
        Error(Arc::new(Inner {
            kind: self.0.kind,
            context: text.into(),
            source: Some(Box::new(Cause(self.0))),
        }))
    }
}

/// Refuses a range of user keys that ends before it begins.
///
/// # Errors
/// `InvalidArgument`: `end` is less than `begin`.
pub fn check_range(order: &Comparator, begin: &[u8], end: &[u8]) -> Result<()> {
    if order.compare_user(begin, end).is_le() {
        return Ok(());
    }
    let (begin, end) = (Shown(begin), Shown(end));
    Err(Error::invalid_argument(format!("the range begins at {begin} and ends before that, at {end}")))
}

/// Returns the result of `future`, or an error of kind `Panicked` if it panics; `what` names the
/// future in that error.
///
/// Panics are caught in jobs because a job's thread runs other jobs too, and the panic would go
/// unreported.
pub async fn caught<T>(what: &str, future: impl Future<Output = Result<T>>) -> Result<T> {
    let mut future = pin!(future);
    // Invariant: a future that has panicked is not polled again.
    let outcome = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(JoinError::Panicked(payload))),
    });
    outcome.await.unwrap_or_else(|panicked| Err(Error::of_task(what, &panicked)))
}

/// Shows a name, for example of a column family, in messages: quoted, and at most 80 characters of
/// it.
#[derive(Clone, Copy)]
pub struct Named<'a>(pub &'a str);

impl fmt::Debug for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_CHARS: usize = 80;
        match self.0.char_indices().nth(MOST_CHARS) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}... ({} bytes)", &self.0[..end], self.0.len()),
        }
    }
}

/// Shows a key or another byte string in messages: non-ASCII bytes escaped, and at most 80 bytes of
/// it.
#[derive(Clone, Copy)]
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_BYTES: usize = 80;
        match self.0.get(..MOST_BYTES) {
            Some(start) if self.0.len() > MOST_BYTES => {
                write!(f, "{}... ({} bytes)", start.escape_ascii(), self.0.len())
            }
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

/// Joins quoted names for a message, at most 20 of them.
pub fn named_list(names: &[&str]) -> String {
    listed(names, |name| format!("{:?}", Named(name)))
}

/// Joins unquoted names for a message with RocksDB's wording, at most 20 of them.
pub fn unquoted(names: &[&str]) -> String {
    listed(names, |name| Shown(name.as_bytes()).to_string())
}

fn listed(names: &[&str], shown: impl Fn(&str) -> String) -> String {
    const MOST: usize = 20;
    let mut shown: Vec<String> = names.iter().take(MOST).map(|name| shown(name)).collect();
    if names.len() > MOST {
        shown.push(format!("and {} more", names.len() - MOST));
    }
    shown.join(", ")
}

impl From<karst_io::Error> for Error {
    fn from(error: karst_io::Error) -> Self {
        Error::with_source(ErrorKind::of(&error), error.to_string(), error)
    }
}

/// Keeps the original error's chain when context is added in front of it.
struct Cause(Arc<Inner>);

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.context)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.context)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.as_str(), self.0.context)
    }
}

/// Prints the same text as `Display`, because `fn main() -> Result<(), Error>`, `unwrap` and
/// `expect` print `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|s| s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_file_and_offset_in_the_file() {
        let error =
            Error::in_file(Path::new("/db/000007.sst"), 4096, Corruption::new("bad restart count", 17u64));
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert_eq!(error.to_string(), "corruption: /db/000007.sst, offset 4113: bad restart count");
        assert!(error.source().is_some());
    }

    #[test]
    fn context_goes_in_front_and_the_cause_stays() {
        let error = Error::corruption_at(Path::new("a"), 1, "bad").in_context("opening column family x");
        assert_eq!(error.context(), "opening column family x: a, offset 1: bad");
        assert_eq!(error.source().unwrap().to_string(), "a, offset 1: bad");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }

    #[test]
    fn no_space_is_a_kind_of_its_own_below_any_context() {
        let of = |errno| {
            let source = std::io::Error::from_raw_os_error(errno);
            Error::from(karst_io::Error::new("append to", "/db/000009.sst", source)).in_context("flushing")
        };
        let (enospc, edquot, eio) = (28, 122, 5);
        assert_eq!(
            [of(enospc), of(edquot), of(eio)].map(|e| e.kind()),
            [ErrorKind::NoSpace, ErrorKind::NoSpace, ErrorKind::Io]
        );
        assert!(of(enospc).kind().is_io() && of(eio).kind().is_io() && !ErrorKind::NotFound.is_io());
        assert!(of(enospc).to_string().starts_with("no space: flushing: append to /db/000009.sst: "));
    }

    #[test]
    fn a_lock_that_somebody_has_is_a_kind_of_its_own() {
        let of =
            |op, kind: std::io::ErrorKind| Error::from(karst_io::Error::new(op, "/db/LOCK", kind.into()));
        let held = of("lock", std::io::ErrorKind::WouldBlock);
        assert_eq!(held.kind(), ErrorKind::Locked);
        assert!(held.to_string().starts_with("locked: lock /db/LOCK: "), "{held}");
        assert!(!held.kind().is_io(), "no device has failed");
        assert_eq!(of("read", std::io::ErrorKind::WouldBlock).kind(), ErrorKind::Io);
        assert_eq!(of("lock", std::io::ErrorKind::PermissionDenied).kind(), ErrorKind::Io);
    }

    #[test]
    fn long_names_and_long_lists_are_shortened() {
        assert_eq!(format!("{:?}", Named("users\n")), r#""users\n""#);
        let long = "ü".repeat(1000);
        let shown = format!("{:?}", Named(&long));
        assert_eq!(shown, format!("\"{}\"... (2000 bytes)", "ü".repeat(80)));
        assert_eq!(Shown(b"user\n").to_string(), r"user\n");
        assert_eq!(Shown(&[b'k'; 80]).to_string(), "k".repeat(80));
        assert_eq!(Shown(&[0; 81]).to_string(), format!("{}... (81 bytes)", r"\x00".repeat(80)));
        assert_eq!(named_list(&["a", "b"]), r#""a", "b""#);
        assert!(named_list(&["a"; 1000]).ends_with(r#""a", and 980 more"#));
    }

    #[test]
    fn is_one_pointer_wide() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
