//! `block_on`: a future, polled on the calling thread, with the calling thread's own ring to wait
//! on.
//!
//! No other thread takes part in reads: the thread submits its reads and sleeps in the kernel until
//! they complete. The channel is made at a thread's first `block_on` with an environment. Inside a
//! reactor's task it works as well (on the thread's own channel, not the reactor's), and it keeps
//! the reactor waiting, as any blocking call would.
//!
//! A thread owns its channel, and ends it: together with the environment, if this thread drops the
//! last handle of that; otherwise at the thread's next `block_on` with any environment, or when the
//! thread ends. So an idle thread keeps two descriptors and at most 5 MiB for each environment that
//! it has read from and that others have ended.

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

/// Run `future` to its end on this thread and return its output.
///
/// Futures that wait for something else than this crate's operations work too: their wakers wake
/// this thread.
///
/// # Panics
/// In a simulation, if nothing can go on any more.
pub fn block_on<F: Future>(env: &Env, future: F) -> F::Output {
    let channel = thread_channel(env);
    if let Some(executor) = env.executor() {
        return executor.block_on(&channel, future);
    }
    let flag = CallFlag::take(&channel);
    let waker = Waker::from(flag.flag.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    let _entered = Enter::new(channel.clone());
    let _polled = Polled(&channel);
    if channel.has_left_overs() {
        channel.poll(); // what earlier calls have started may have arrived
    }
    loop {
        // Why first: our own completions have rung too, and the next wait shall not return for
        // that.
        channel.alarm().take();
        if flag.flag.woken.swap(false, Ordering::Acquire) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                // Reads that the future has started and left to a later call (readahead) start now,
                // not then.
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

/// Take in what this thread's abandoned operations have brought since, without blocking. A thread
/// that drops futures and then does no more I/O keeps their buffers until it ends, unless it calls
/// this.
pub fn reap(env: &Env) {
    thread_channel(env).poll();
}

/// A call during which the channel is polled.
struct Polled<'a>(&'a Channel);

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// Whether one call's future has been woken.
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
    /// How many environments had ended when this thread last looked.
    static ENDED_SEEN: Cell<u64> = const { Cell::new(0) };
}

/// How many environments of this process have ended.
static ENDED: counting::AtomicU64 = counting::AtomicU64::new(0);

struct OwnChannel {
    env: crate::env::WeakEnv,
    channel: Rc<Channel>,
}

pub(crate) fn thread_channel(env: &Env) -> Rc<Channel> {
    // Ordering: a hint; what is missed now is seen at the next call.
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

/// An environment has ended: so do its channels, this thread's at once.
pub(crate) fn env_ended() {
    // Ordering: whoever sees it sees that the environment has no owner any more.
    ENDED.fetch_add(1, Ordering::Release);
    end_channels();
}

/// Ends this thread's channels of environments that have ended, and lets go of those of a fork's
/// parent.
fn end_channels() {
    let seen = ENDED.load(Ordering::Acquire);
    let gone: Vec<OwnChannel> = CHANNELS
        .try_with(|list| {
            // Why try: who ends an environment may be anywhere. The next call looks again.
            let Ok(mut list) = list.try_borrow_mut() else { return Vec::new() };
            ENDED_SEEN.with(|last| last.set(seen));
            list.extract_if(.., |own| !own.env.is_alive() || own.channel.is_inherited()).collect()
        })
        .unwrap_or_default();
    let is_gone = |number: u64| gone.iter().any(|own| own.channel.outbox().channel == number);
    // Why: it keeps the channel's alarm, which is a descriptor.
    let flag = SPARE_FLAG.try_with(|spare| spare.borrow_mut().take_if(|(of, _)| is_gone(*of)));
    drop(flag);
    drop(gone); // drains their rings; those of a fork's parent are leaked
    current::forget_ended();
}

/// A flag for one call. Why not one a thread: a nested call would take the outer call's wake.
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
        // A stale waker may still set the flag: the next call then polls once more than it had to.
        let flag = self.flag.clone();
        let _ = SPARE_FLAG.try_with(|spare| *spare.borrow_mut() = Some((self.channel, flag)));
    }
}
