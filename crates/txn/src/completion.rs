//! Futures that run to completion even if they are dropped.
//!
//! A [`Completion`] owns all data of its work. If it is dropped after its first poll, the
//! environment's background threads finish the work, so a commit that has begun never leaks locks
//! nor releases them before it is decided.

use karst_engine::io::{Env, Priority};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future whose work runs to completion even if it is dropped after its first poll.
#[must_use = "nothing is done before it is polled"]
pub(crate) struct Completion<T: Send + 'static> {
    work: Option<Work<T>>,
    env: Env,
    begun: bool,
}

/// Wraps `work` in a [`Completion`].
pub(crate) fn complete<T: Send + 'static>(
    env: &Env,
    work: impl Future<Output = T> + Send + 'static,
) -> Completion<T> {
    Completion { work: Some(Box::pin(work)), env: env.clone(), begun: false }
}

impl<T: Send + 'static> Future for Completion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.begun = true;
        let work = self.work.as_mut().expect("not polled after it has completed");
        let output = work.as_mut().poll(cx);
        if output.is_ready() {
            self.work = None;
        }
        output
    }
}

impl<T: Send + 'static> Drop for Completion<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.begun) {
            drop(self.env.spawn(Priority::High, async move { drop(work.await) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_engine::io::sleep;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    /// Otherwise dropping the completion would poll finished work again.
    #[test]
    fn what_has_completed_is_let_go_of() {
        let held = Arc::new(());
        let of_work = held.clone();
        let work = std::future::poll_fn(move |_| {
            assert_eq!(Arc::strong_count(&of_work), 2);
            Poll::Ready(())
        });
        let mut completion = std::pin::pin!(complete(&Env::posix(), work));
        assert!(completion.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn what_is_dropped_on_the_way_is_done_all_the_same() {
        let env = Env::posix();
        let (sender, receiver) = mpsc::channel();
        let (inner, mut cx) = (env.clone(), Context::from_waker(std::task::Waker::noop()));
        let mut work = complete(&env, async move {
            sleep(&inner, Duration::from_millis(1)).await;
            sender.send(7).unwrap();
        });
        assert!(Pin::new(&mut work).poll(&mut cx).is_pending());
        drop(work);
        assert_eq!(receiver.recv(), Ok(7));
    }

    #[test]
    fn what_was_not_begun_is_not_done() {
        let (sender, receiver) = mpsc::channel::<u32>();
        drop(complete(&Env::posix(), async move { sender.send(7) }));
        assert!(receiver.recv().is_err());
    }
}
