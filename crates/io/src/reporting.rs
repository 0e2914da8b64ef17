//! Reports to whoever subscribes to `tracing`. A subscriber is code that this crate does not know;
//! one that panics does so on the thread of whoever reports, who may hold a place that others wait
//! for. So its panic ends here, as a waker's does in `waking`.
//!
//! In: a level and what `tracing`'s macros take. Out: [`report!`](crate::report), through which all
//! events go (`cargo xtask tidy` checks it).

use std::panic::{AssertUnwindSafe, catch_unwind};
pub use tracing;

/// Tells the subscriber of `tracing` something: `report!(warn, %error, "what happened")`. Its panic
/// goes no further.
#[doc(hidden)]
#[macro_export]
macro_rules! report {
    ($level:ident, $($event:tt)+) => {
        $crate::reporting::contain(|| $crate::reporting::tracing::$level!($($event)+))
    };
}

/// Calls what may call the subscriber.
pub fn contain(report: impl FnOnce()) {
    // Why not reported: whoever would hear of it has just panicked. The panic hook has told of it.
    let _ = catch_unwind(AssertUnwindSafe(report));
}
