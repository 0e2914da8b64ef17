//! Waits of tasks for conditions that other tasks of any thread make true.

use event_listener::Event;

/// Waits until `holds` returns true. The task that makes it true notifies `event` afterwards.
pub(crate) async fn until(event: &Event, holds: impl Fn() -> bool) {
    while !holds() {
        let listener = event.listen();
        // Ordering: looked at again, because it may have become true before the listener was there.
        if !holds() {
            listener.await;
        }
    }
}
