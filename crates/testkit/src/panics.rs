//! Number of panics on this thread, including background jobs: in a simulation they run on the
//! test's thread, and their executor catches panics, which would otherwise go unnoticed.

use std::cell::Cell;

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of panics on this thread since the first call in this process.
#[must_use]
pub fn panics() -> u64 {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with(|count| count.set(count.get() + 1));
            before(info);
        }));
    });
    PANICS.with(Cell::get)
}
