//! The starter of an environment's threads.
//!
//! Takes a name and a body; returns the thread, scheduled as an ordinary one even if the caller is
//! not (see [`giving_way`]), or the error that prevented it.

use crate::giving_way;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{AtomicUsize, Ordering};
use std::io;
use std::sync::Arc;

/// Number of threads that an environment may still start, for tests; beyond it the start of a
/// thread fails as if the operating system had no more.
#[derive(Debug, Default)]
pub struct ThreadAllowance(AtomicUsize);

impl ThreadAllowance {
    /// Allows `threads` threads.
    #[must_use]
    pub fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(threads)))
    }

    /// Allows `threads` more threads from now on.
    pub fn set(&self, threads: usize) {
        self.0.store(threads, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

/// Starts threads. Clones share the allowance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starter {
    allowance: Option<Arc<ThreadAllowance>>,
}

impl Starter {
    /// Returns a starter limited by `allowance`.
    pub(crate) fn within(allowance: Option<Arc<ThreadAllowance>>) -> Self {
        Self { allowance }
    }

    pub(crate) fn start<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        if self.allowance.as_ref().is_some_and(|allowance| !allowance.take()) {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let ordinary = giving_way::for_child();
        thread::Builder::new().name(name.into()).spawn(move || {
            ordinary();
            body()
        })
    }
}
