//! The loop that waits for storage on behalf of a step.
//!
//! In: a step that has stopped. Out: its result. Every need of the step is fetched at the same
//! time; as soon as something arrives the step is called again, with what has arrived in hand and
//! the rest still coming.
//!
//! Invariant: the loop ends. A step that stops has recorded or still expects something (asserted),
//! and a step never asks for what it holds, so every round brings it forward by at least one fetch.

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
    /// What it comes to.
    type Out;
    /// Goes on as far as what is in hand and in the cache allows.
    fn step(&mut self, ctx: &ReadCtx<'_>) -> Result<Self::Out, Stop>;
    /// What it waits for.
    fn needs(&mut self) -> &mut Needs;
}

/// Fetches what `step` has asked for and steps until it is done. `fetches` outlives the call where
/// reads ahead should go on between calls (iterators); whatever else is still in flight is dropped
/// with it.
pub async fn drive<S: Step>(ctx: ReadCtx<'_>, step: &mut S, fetches: &mut Fetches) -> Result<S::Out> {
    loop {
        fetches.collect(step.needs());
        fetches.launch(&ctx);
        arrival(&ctx, fetches, |_, key, result| step.needs().supply(key, result)).await?;
        match step.step(&ctx) {
            Ok(out) => {
                // Reads ahead recorded by the last step start now and are picked up by the next
                // call.
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

/// Runs `step` to its end, waiting as tasks do if it has to.
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

/// Waits until something has been delivered, for as long as the read may wait.
///
/// # Errors
/// `TimedOut`. What is in flight stays in `fetches`.
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

/// The error of a read that may wait no longer.
#[cold]
pub fn late() -> Error {
    Error::new(
        ErrorKind::TimedOut,
        "storage has not answered by the read's deadline, or within its io_timeout",
    )
}

/// Runs `step`, which has stopped, to its end on the calling thread, waiting on that thread's own
/// ring.
#[cold]
pub fn wait<S: Step>(ctx: ReadCtx<'_>, step: &mut S) -> Result<S::Out> {
    wait_with(ctx, step, &mut Fetches::new(ctx.options, HistogramKind::FileReadGetMicros))
}

/// The same with fetches of the caller's, which go on between calls.
#[cold]
pub fn wait_with<S: Step>(ctx: ReadCtx<'_>, step: &mut S, fetches: &mut Fetches) -> Result<S::Out> {
    karst_io::block_on(&ctx.tables.shared.env, drive(ctx, step, fetches))
}

/// Starts the needs in `needs` and takes in what has arrived of earlier ones, without waiting. For
/// reads ahead between the moves of an iterator that blocks.
#[cold]
pub fn start(ctx: ReadCtx<'_>, needs: &mut Needs, fetches: &mut Fetches) {
    karst_io::block_on(&ctx.tables.shared.env, start_async(ctx, needs, fetches));
}

/// The same where the caller's own executor polls.
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

/// What the first step of an asynchronous operation comes to.
pub enum Attempt<'a, T> {
    /// Everything was in memory.
    Done(T),
    /// The rest, which waits.
    Waiting(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

/// An asynchronous operation that starts at its first poll. A hit is plain code inside that poll
/// and allocates nothing; only what has to wait is boxed.
#[must_use = "futures do nothing unless polled"]
pub struct Lazy<'a, T, F> {
    start: Option<F>,
    waiting: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
}

impl<'a, T, F: FnOnce() -> Attempt<'a, T>> Lazy<'a, T, F> {
    /// An operation that begins with `start`.
    #[inline]
    pub fn new(start: F) -> Self {
        Lazy { start: Some(start), waiting: None }
    }
}

// Why it may: neither field is pinned in place; the future that is waited for has its own box.
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
