//! Compressing the data blocks of one table on several threads
//! (`compression_opts.parallel_threads`).
//!
//! In: blocks as the builder closes them. Out: the same blocks compressed, in their order. Helpers
//! are jobs on threads that may block; each takes blocks as long as there are any that nobody has
//! begun, and ends. The writer itself takes what nobody has begun whenever it would have to wait.
//!
//! Invariants:
//! - The writer waits only for a block that a helper is compressing at this moment, which takes
//!   microseconds; it never waits for a thread to become free. So nothing depends on how many there
//!   are.
//! - At most [`AHEAD`] blocks for each thread are in memory besides the builder's own.
//!
//! Compat: RocksDB estimates the sizes of blocks under way, and cuts files elsewhere than with one
//! thread; here the files are the same.

use karst_base::sync::atomic::{AtomicUsize, Ordering};
use karst_base::sync::{Condvar, Mutex};
use karst_format::table_builder::{ClosedBlock, CompressedBlock, TableBuilder};
use karst_io::Env;
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks that may be under way for each thread. Why as many: a helper that was started for the
/// first has more to do when it runs.
const AHEAD: usize = 16;
/// Blocks that nobody has begun before a helper is started.
const WORTH_A_HELPER: usize = 2;

/// The blocks of one run that are being compressed.
#[derive(Debug)]
pub(super) struct Compressors {
    env: Env,
    /// Threads that compress, the writer's own among them.
    threads: usize,
    /// Oldest first.
    under_way: VecDeque<Arc<Slot>>,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Not begun by anybody when they were added.
    waiting: Mutex<VecDeque<Arc<Slot>>>,
    helpers: AtomicUsize,
}

#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    /// The state became `Done` or `Failed`.
    ended: Condvar,
}

#[derive(Debug)]
enum State {
    Waiting(ClosedBlock),
    Begun,
    Done(CompressedBlock),
    /// A helper panicked over it.
    Failed,
}

impl Slot {
    /// Compresses the block if nobody has begun. Lock: not held meanwhile.
    fn work(&self) {
        let block = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Begun) {
                State::Waiting(block) => block,
                other => return *state = other,
            }
        };
        /// Says how it ended, whichever way.
        struct Ending<'a>(&'a Slot, Option<CompressedBlock>);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                *self.0.state.lock() = self.1.take().map_or(State::Failed, State::Done);
                self.0.ended.notify_all();
            }
        }
        let mut ending = Ending(self, None);
        ending.1 = Some(block.compress());
    }

    fn is_done(&self) -> bool {
        matches!(*self.state.lock(), State::Done(_))
    }

    /// The compressed block, by this thread if by nobody else.
    fn take(&self) -> CompressedBlock {
        self.work();
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Begun) {
                State::Done(block) => return block,
                State::Failed => panic!("compressing a block panicked"),
                State::Waiting(_) => unreachable!("it was begun above at the latest"),
                State::Begun => self.ended.wait(&mut state),
            }
        }
    }
}

impl Queue {
    /// Takes blocks until there are none.
    fn help(&self) {
        loop {
            let next = self.waiting.lock().pop_front();
            match next {
                Some(slot) => slot.work(),
                None => return,
            }
        }
    }
}

impl Compressors {
    /// `None` where one thread is all there shall be.
    pub(super) fn new(env: &Env, threads: u32) -> Option<Compressors> {
        let threads = usize::try_from(threads).unwrap_or(1);
        (threads > 1).then(|| Compressors {
            env: env.clone(),
            threads,
            under_way: VecDeque::new(),
            queue: Arc::default(),
        })
    }

    /// Takes the blocks that the builder has closed, and gives back those that are done.
    pub(super) fn pass_on(&mut self, builder: &mut TableBuilder) {
        let most = AHEAD * self.threads;
        let blocks: Vec<ClosedBlock> = builder.take_closed().collect();
        for block in blocks {
            while self.under_way.len() >= most {
                self.give_back_oldest(builder);
            }
            let slot = Arc::new(Slot { state: Mutex::new(State::Waiting(block)), ended: Condvar::new() });
            self.under_way.push_back(slot.clone());
            self.queue.waiting.lock().push_back(slot);
            self.call_for_help();
        }
        while self.under_way.front().is_some_and(|slot| slot.is_done()) {
            self.give_back_oldest(builder);
        }
    }

    /// Gives everything back.
    pub(super) fn settle(&mut self, builder: &mut TableBuilder) {
        self.pass_on(builder);
        while !self.under_way.is_empty() {
            self.give_back_oldest(builder);
        }
    }

    /// Whether blocks are under way, so that the size of the file is not known.
    pub(super) fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    fn give_back_oldest(&mut self, builder: &mut TableBuilder) {
        let slot = self.under_way.pop_front().expect("a block is under way");
        builder.add_compressed(slot.take());
    }

    fn call_for_help(&self) {
        let queue = &self.queue;
        let helpers = queue.helpers.load(Ordering::Relaxed);
        if helpers + 1 >= self.threads || queue.waiting.lock().len() < WORTH_A_HELPER * (helpers + 1) {
            return;
        }
        queue.helpers.fetch_add(1, Ordering::Relaxed);
        let queue = queue.clone();
        // Why it may come too late: whoever adds the next block calls again, and the writer takes
        // what is left.
        drop(self.env.run_blocking(move |_| {
            /// Counts itself out, also when it panics.
            struct Helping<'a>(&'a AtomicUsize);
            impl Drop for Helping<'_> {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::Relaxed);
                }
            }
            let helping = Helping(&queue.helpers);
            queue.help();
            drop(helping);
        }));
    }
}
