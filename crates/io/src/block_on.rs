//! `block_on`: polls a future on the calling thread, which waits on its own ring.
//!
//! No other thread takes part in reads: the thread submits its reads and sleeps in the kernel until
//! they complete. A thread's first `block_on` with an environment makes the channel. Inside a
//! reactor's task `block_on` works too (on the thread's own channel, not the reactor's), and blocks
//! the reactor for its duration like any other blocking call. Work that is
//! [attached](crate::attach) to the reactor is finished first, because `future` may wait for it.
//!
//! A thread owns its channel and ends it: together with the environment, if this thread drops the
//! last handle of that; otherwise at the thread's next `block_on` with any environment, or when the
//! thread ends. An idle thread therefore keeps two descriptors and at most 5 MiB for each
//! environment that it has read from and that other threads have ended.

use crate::channel::Channel;
use crate::current::{self, Enter};
use crate::env::{Env, Purpose};
use crate::sync::{AtomicBool, Ordering, counting, thread_local};
use crate::transport::Alarm;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Runs `future` to its end on this thread and returns its output.
///
/// Futures that wait for other things than this crate's operations work too: their wakers wake this
/// thread.
///
/// # Panics
/// In a simulation, if no task can make progress.
pub fn block_on<F: Future>(env: &Env, future: F) -> F::Output {
    let channel = thread_channel(env);
    if let Some(executor) = env.executor() {
        return executor.block_on(&channel, future);
    }
    current::finish_attached();
    let flag = CallFlag::take(&channel);
    let waker = Waker::from(flag.flag.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    let _entered = Enter::new(channel.clone());
    let _polled = Polled(&channel);
    if channel.has_left_overs() {
        channel.poll(); // completions of earlier calls' reads may have arrived
    }
    loop {
        // Cleared before polling, because this thread's own completions have rung the alarm too,
        // and the next wait must not return for those.
        channel.alarm().take();
        if flag.flag.woken.swap(false, Ordering::Acquire) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                // Submits readahead that the future has started for a later call; otherwise it
                // would start only with that call.
                channel.submit();
                return output;
            }
            if flag.flag.woken.load(Ordering::Relaxed) {
                channel.submit();
                channel.poll();
                continue;
            }
        }
        channel.wait(None);
    }
}

/// Reaps the completions of this thread's abandoned operations without blocking. A thread that
/// drops futures and then does no more I/O keeps their buffers until it ends, unless it calls this.
pub fn reap(env: &Env) {
    let channel = thread_channel(env);
    channel.submit(); // requests to cancel
    channel.poll();
}

/// Marks the channel as polled for the duration of a call.
struct Polled<'a>(&'a Channel);

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// Wake-up flag of one call's future.
struct Flag {
    woken: AtomicBool,
    alarm: Arc<Alarm>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.alarm.ring();
        }
    }
}

thread_local! {
    static CHANNELS: RefCell<Vec<OwnChannel>> = const { RefCell::new(Vec::new()) };
    static SPARE_FLAG: RefCell<Option<(u64, Arc<Flag>)>> = const { RefCell::new(None) };
    /// Value of [`ENDED`] when this thread last looked.
    static ENDED_SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Number of environments of this process that have ended.
static ENDED: counting::AtomicU64 = counting::AtomicU64::new(0);

struct OwnChannel {
    env: crate::env::WeakEnv,
    channel: Rc<Channel>,
}

pub(crate) fn thread_channel(env: &Env) -> Rc<Channel> {
    // Ordering: Relaxed is enough, because a missed end is seen at the next call.
    if ENDED_SEEN.with(Cell::get) != ENDED.load(Ordering::Relaxed) {
        end_channels();
    }
    let found = CHANNELS.with(|list| {
        let list = list.borrow();
        list.iter().find(|own| own.env.is(env) && !own.channel.is_inherited()).map(|own| own.channel.clone())
    });
    found.unwrap_or_else(|| {
        end_channels();
        let channel = Rc::new(env.maker().make(Purpose::Calls));
        current::announce(&channel);
        let own = OwnChannel { env: env.downgrade(), channel: channel.clone() };
        CHANNELS.with(|list| list.borrow_mut().push(own));
        channel
    })
}

/// Called when an environment ends: ends this thread's channels of it at once.
pub(crate) fn env_ended() {
    // Ordering: Release; a thread that sees the count also sees that the environment has no owner.
    ENDED.fetch_add(1, Ordering::Release);
    end_channels();
}

/// Ends this thread's channels of environments that have ended, and leaks those of a fork's parent.
fn end_channels() {
    let seen = ENDED.load(Ordering::Acquire);
    let gone: Vec<OwnChannel> = CHANNELS
        .try_with(|list| {
            // `try_borrow_mut`, because the drop that ends an environment may happen while the list
            // is borrowed. The next call looks again.
            let Ok(mut list) = list.try_borrow_mut() else { return Vec::new() };
            ENDED_SEEN.with(|last| last.set(seen));
            list.extract_if(.., |own| !own.env.is_alive() || own.channel.is_inherited()).collect()
        })
        .unwrap_or_default();
    let is_gone = |number: u64| gone.iter().any(|own| own.channel.outbox().channel == number);
    // Dropped, because the flag keeps the channel's alarm, which is a descriptor.
    let flag = SPARE_FLAG.try_with(|spare| spare.borrow_mut().take_if(|(of, _)| is_gone(*of)));
    drop(flag);
    drop(gone); // drains their rings; those of a fork's parent are leaked
    current::forget_ended();
}

/// A wake-up flag for one call. Not one per thread, because a nested call would take the outer
/// call's wake.
struct CallFlag {
    channel: u64,
    flag: Arc<Flag>,
}

impl CallFlag {
    fn take(channel: &Rc<Channel>) -> Self {
        let number = channel.outbox().channel;
        let spare = SPARE_FLAG.with(|spare| spare.borrow_mut().take_if(|(of, _)| *of == number));
        let flag = match spare {
            Some((_, flag)) => {
                flag.woken.store(true, Ordering::Relaxed);
                flag
            }
            None => Arc::new(Flag { woken: AtomicBool::new(true), alarm: channel.alarm().clone() }),
        };
        Self { channel: number, flag }
    }
}

impl Drop for CallFlag {
    fn drop(&mut self) {
        // A stale waker may still set the flag: the next call then polls one time too many.
        let flag = self.flag.clone();
        let _ = SPARE_FLAG.try_with(|spare| *spare.borrow_mut() = Some((self.channel, flag)));
    }
}
