//! Futures that are polled a given number of times, or at given intervals.

use crate::{Env, sleep};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// Maximum time between two polls of a future.
const STEP: Duration = Duration::from_micros(100);

/// Polls a future up to `times` times, at each wake; returns its output if it ends by then.
pub async fn poll_times<F: Future>(mut future: Pin<&mut F>, times: u64) -> Option<F::Output> {
    let mut left = times;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Polls a future at least every 100 microseconds, because most of the jobs it waits for wake it
/// only at their ends.
pub async fn in_steps<F: Future>(env: &Env, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut alarm = Box::pin(sleep(env, STEP));
    poll_fn(move |cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        while alarm.as_mut().poll(cx).is_ready() {
            alarm = Box::pin(sleep(env, STEP));
        }
        Poll::Pending
    })
    .await
}
