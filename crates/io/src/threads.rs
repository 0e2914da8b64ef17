//! Where an environment's threads come from.
//!
//! In: a name and what the thread does. Out: the thread, an ordinary one whoever starts it (see
//! [`giving_way`]), or why there is none.

use crate::giving_way;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{AtomicUsize, Ordering};
use std::io;
use std::sync::Arc;

/// How many threads an environment may still start, for tests: beyond them it is as if the
/// operating system had none left.
#[derive(Debug, Default)]
pub struct ThreadAllowance(AtomicUsize);

impl ThreadAllowance {
    /// So many.
    #[must_use]
    pub fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self(AtomicUsize::new(threads)))
    }

    /// From now on so many.
    pub fn set(&self, threads: usize) {
        self.0.store(threads, Ordering::SeqCst);
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

/// Starts threads. Clones are as good.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starter {
    allowance: Option<Arc<ThreadAllowance>>,
}

impl Starter {
    /// One that starts as many threads as the allowance has.
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
