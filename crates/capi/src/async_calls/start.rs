//! Start of an operation, and the future that runs it.

use super::op::{Completion, Found, Op, Place};
use super::queue::Queue;
use super::reactor::Runner;
use super::status::{Status, Verdict};
use crate::boundary::message;
use karstdb::{Error, ErrorKind};
use libc::c_void;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A callback that receives completions.
pub(crate) type Callback = Option<unsafe extern "C" fn(*const Completion)>;

/// `karst_notify_t`: the queue or callback that receives an operation's completion.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Notify {
    /// The queue that gets the completion, or null.
    pub(crate) queue: *const Queue,
    /// Called with the completion if `queue` is null; or null.
    pub(crate) callback: Callback,
    /// Copied to the completion.
    pub(crate) user_data: *mut c_void,
}

/// The future of an operation, which completes it.
struct Running<F> {
    /// `None` once the operation is completed.
    op: Option<Arc<Op>>,
    /// `None` once it has ended. Pinned with the future.
    work: Option<F>,
    runner: Arc<Runner>,
}

impl<F> Running<F> {
    /// Drops the work and then completes the operation, so that all that the work held is free by
    /// then.
    fn end(&mut self, verdict: Verdict, found: Found) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.work = None));
        if let Some(op) = self.op.take() {
            self.runner.completed();
            op.complete(verdict, found);
        }
    }
}

impl<F: Future<Output = karstdb::Result<Found>>> Future for Running<F> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `work` is not moved from here on; it is dropped in place.
        let this = unsafe { self.get_unchecked_mut() };
        let Some(op) = &this.op else { return Poll::Ready(()) };
        if op.is_cancelled_or_wakes(cx.waker()) {
            this.end(Verdict::with(Status::Cancelled, "the operation was cancelled"), Found::Nothing);
            return Poll::Ready(());
        }
        let Some(work) = &mut this.work else { return Poll::Ready(()) };
        // SAFETY: as above.
        let work = unsafe { Pin::new_unchecked(work) };
        let outcome = match catch_unwind(AssertUnwindSafe(|| work.poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(panic) => Err(panicked(&*panic)),
        };
        match outcome {
            Ok(found) => this.end(Verdict::OK, found),
            Err(error) => this.end(Verdict::of(&error), Found::Nothing),
        }
        Poll::Ready(())
    }
}

impl<F> Drop for Running<F> {
    fn drop(&mut self) {
        if self.op.is_some() {
            let why = "the reactor ended before the operation";
            self.end(Verdict::with(Status::Cancelled, why), Found::Nothing);
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::new(ErrorKind::Panicked, message(panic).to_owned())
}

/// Starts an operation: `reactor` runs the future that `make` returns, or completes the operation
/// with its error. Returns null without calling `make` if `reactor` or `notify` is null, the
/// reactor is being destroyed, or `notify` has neither queue nor callback.
pub(crate) unsafe fn start<F>(
    reactor: *const Runner,
    notify: *const Notify,
    make: impl FnOnce() -> karstdb::Result<F>,
) -> *const Op
where
    F: Future<Output = karstdb::Result<Found>> + Send + 'static,
{
    let (Ok(reactor), Some(notify)) = (unsafe { Runner::alive(reactor) }, unsafe { notify.as_ref() }) else {
        return std::ptr::null();
    };
    let place = match (unsafe { Queue::share(notify.queue) }, notify.callback) {
        (Some(queue), _) => {
            queue.expect_one();
            Place::Queue(queue)
        }
        (None, Some(callback)) => Place::Callback(callback),
        (None, None) => return std::ptr::null(),
    };
    let op = Op::new(notify.user_data, place);
    let share = Arc::into_raw(op.clone());
    let (op, runner) = (Some(op), reactor.share());
    // Caught here because an operation that exists must be completed.
    let made = catch_unwind(AssertUnwindSafe(make));
    match made.unwrap_or_else(|panic| Err(panicked(&*panic))) {
        Ok(work) => reactor.run(Box::pin(Running { op, work: Some(work), runner })),
        Err(error) => {
            let work = Some(std::future::ready(Err(error)));
            reactor.run(Box::pin(Running { op, work, runner }));
        }
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::pin::pin;
    use std::sync::Mutex;
    use std::task::Waker;

    static ENDED: Mutex<Vec<(i32, String)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn ended(done: *const Completion) {
        // SAFETY: the completion is the operation's, which is released here.
        unsafe {
            let message = CStr::from_ptr((*done).message).to_str().unwrap().to_owned();
            ENDED.lock().unwrap().push(((*done).status, message));
            Op::release((*done).op);
        }
    }

    fn running<F>(work: F) -> Running<F> {
        let op = Op::new(std::ptr::null_mut(), Place::Callback(ended));
        let _share = Arc::into_raw(op.clone());
        Running { op: Some(op), work: Some(work), runner: Runner::of_one_thread() }
    }

    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("in a drop, on purpose");
        }
    }

    #[test]
    fn a_panic_is_the_operations_status_and_goes_no_further() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut first =
            pin!(running(std::future::poll_fn(|_| -> Poll<karstdb::Result<Found>> { panic!("on purpose") })));
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(()));
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(()), "it is not run again");
        let bomb = PanicsWhenDropped;
        drop(running(async move {
            let _bomb = bomb;
            Ok::<_, Error>(Found::Nothing)
        }));
        let ended = std::mem::take(&mut *ENDED.lock().unwrap());
        assert_eq!(ended.len(), 2, "each completes once: {ended:?}");
        assert!(ended[0].0 == Status::Panicked as i32 && ended[0].1.contains("on purpose"), "{ended:?}");
        assert_eq!(ended[1].0, Status::Cancelled as i32);
    }
}
