//! How many panics there were on this thread, those of background jobs included: in a simulation
//! they run on the thread of the test, and whoever polls them catches what they panic with, so they
//! would otherwise go unseen.

use std::cell::Cell;

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// The panics of this thread since the first call of anyone in this process.
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
