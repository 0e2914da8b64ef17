//! Events for `tracing` subscribers. A subscriber is foreign code; its panic would unwind the
//! thread that reports, which may hold a lock that other threads wait for.
//! [`report!`](crate::report) therefore catches the panic, as `waking` does a waker's.
//!
//! [`report!`](crate::report) takes a level and the arguments of `tracing`'s macros. All events go
//! through it (`cargo xtask tidy` checks it).

use std::panic::{AssertUnwindSafe, catch_unwind};
pub use tracing;

/// Sends an event to the `tracing` subscriber: `report!(warn, %error, "what happened")`. Catches
/// its panic.
#[doc(hidden)]
#[macro_export]
macro_rules! report {
    ($level:ident, $($event:tt)+) => {
        $crate::reporting::contain(|| $crate::reporting::tracing::$level!($($event)+))
    };
}

/// Calls `report`, which may call the subscriber, and catches its panic.
pub fn contain(report: impl FnOnce()) {
    // Not reported, because the subscriber itself has just panicked. The panic hook has printed it.
    let _ = catch_unwind(AssertUnwindSafe(report));
}
