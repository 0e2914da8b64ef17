//! The loop that waits for storage on behalf of a step.
//!
//! In: a stopped step. Out: its result. Every need of the step is fetched at the same time; after
//! each arrival the step is called again, with the arrived data in hand and the rest still in
//! flight.
//!
//! Invariant: the loop ends. A stopped step has recorded a need or still awaits one (asserted), and
//! a step never requests data that it holds, so every round brings it forward by at least one
//! fetch.

use crate::table::context::ReadCtx;
use crate::table::fetch::{Fetches, Waiter};
use crate::table::needs::{Held, NeedKey, Needs, Stop};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::stats::HistogramKind;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A read as plain, repeatable code: called again from the start of its current phase after every
/// fetch.
pub trait Step {
    /// The result of the read.
    type Out;
    /// Proceeds as far as data in hand and in the cache allows.
    fn step(&mut self, ctx: &ReadCtx<'_>) -> Result<Self::Out, Stop>;
    /// Returns the step's needs.
    fn needs(&mut self) -> &mut Needs;
}

/// Fetches the needs of `step` and steps until it is done. `fetches` outlives the call if readahead
/// should continue between calls (iterators); its remaining fetches are dropped with it.
pub async fn drive<S: Step>(ctx: ReadCtx<'_>, step: &mut S, fetches: &mut Fetches) -> Result<S::Out> {
    loop {
        fetches.collect(step.needs());
        fetches.launch(&ctx);
        arrival(&ctx, fetches, |_, key, result| step.needs().supply(key, result)).await?;
        match step.step(&ctx) {
            Ok(out) => {
                // Readahead recorded by the last step starts now; the next call receives it.
                if step.needs().has_needs() {
                    start_async(ctx, step.needs(), fetches).await;
                }
                return Ok(out);
            }
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Need) => {}
        }
    }
}

/// Runs `step` to its end, awaiting its fetches.
pub async fn run<S: Step>(ctx: ReadCtx<'_>, step: &mut S) -> Result<S::Out> {
    match step.step(&ctx) {
        Ok(out) => Ok(out),
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::Need) => {
            let mut fetches = Fetches::new(ctx.options, HistogramKind::FileReadGetMicros);
            drive(ctx, step, &mut fetches).await
        }
    }
}

/// Waits until a fetch has been delivered, for at most the time the read may wait.
///
/// # Errors
/// `TimedOut`. Fetches in flight stay in `fetches`.
pub async fn arrival(
    ctx: &ReadCtx<'_>,
    fetches: &mut Fetches,
    mut deliver: impl FnMut(Waiter, NeedKey, Result<Held>),
) -> Result<()> {
    let mut alarm = ctx.longest_wait().map(|span| karst_io::sleep(&ctx.tables.shared.env, span));
    let began = ctx.start_timer();
    let arrived = poll_fn(|cx| match fetches.poll(cx, ctx, &mut deliver) {
        Poll::Ready(()) => Poll::Ready(Ok(())),
        Poll::Pending => match &mut alarm {
            Some(alarm) => Pin::new(alarm).poll(cx).map(|()| Err(late())),
            None => Poll::Pending,
        },
    })
    .await;
    ctx.measure_since(HistogramKind::PollWaitMicros, began);
    arrived
}

/// Returns the error of a read whose time is up.
#[cold]
pub fn late() -> Error {
    Error::new(
        ErrorKind::TimedOut,
        "storage has not answered by the read's deadline, or within its io_timeout",
    )
}

/// Runs a stopped `step` to its end on the calling thread, waiting on that thread's own ring.
#[cold]
pub fn wait<S: Step>(ctx: ReadCtx<'_>, step: &mut S) -> Result<S::Out> {
    wait_with(ctx, step, &mut Fetches::new(ctx.options, HistogramKind::FileReadGetMicros))
}

/// Runs a stopped `step` like [`wait`], with the caller's fetches, which continue between calls.
#[cold]
pub fn wait_with<S: Step>(ctx: ReadCtx<'_>, step: &mut S, fetches: &mut Fetches) -> Result<S::Out> {
    karst_io::block_on(&ctx.tables.shared.env, drive(ctx, step, fetches))
}

/// Starts the needs in `needs` and receives arrivals of earlier ones, without waiting. For
/// readahead between the moves of a blocking iterator.
#[cold]
pub fn start(ctx: ReadCtx<'_>, needs: &mut Needs, fetches: &mut Fetches) {
    karst_io::block_on(&ctx.tables.shared.env, start_async(ctx, needs, fetches));
}

/// Does the same as [`start`] on the caller's own executor.
#[cold]
pub async fn start_async(ctx: ReadCtx<'_>, needs: &mut Needs, fetches: &mut Fetches) {
    fetches.collect(needs);
    fetches.launch(&ctx);
    poll_fn(|cx| {
        fetches.poll_now(cx, &ctx, &mut |_, key, result| needs.supply(key, result));
        Poll::Ready(())
    })
    .await;
}

/// The outcome of the first step of an asynchronous operation.
pub enum Attempt<'a, T> {
    /// The result; everything was in memory.
    Done(T),
    /// The remaining operation, which waits.
    Waiting(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

/// An asynchronous operation that starts at its first poll. A hit is plain code inside that poll
/// and allocates nothing; only an operation that waits is boxed.
#[must_use = "futures do nothing unless polled"]
pub struct Lazy<'a, T, F> {
    start: Option<F>,
    waiting: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
}

impl<'a, T, F: FnOnce() -> Attempt<'a, T>> Lazy<'a, T, F> {
    /// Creates an operation that begins with `start`.
    #[inline]
    pub fn new(start: F) -> Self {
        Lazy { start: Some(start), waiting: None }
    }
}

// Sound because neither field is pinned in place; the awaited future has its own box.
impl<T, F> Unpin for Lazy<'_, T, F> {}

impl<'a, T, F: FnOnce() -> Attempt<'a, T>> Future for Lazy<'a, T, F> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(start) = self.start.take() {
            match start() {
                Attempt::Done(value) => return Poll::Ready(value),
                Attempt::Waiting(future) => self.waiting = Some(future),
            }
        }
        match &mut self.waiting {
            Some(future) => future.as_mut().poll(cx),
            None => panic!("polled after completion"),
        }
    }
}
