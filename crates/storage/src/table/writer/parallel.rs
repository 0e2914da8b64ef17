//! Compression of one table's data blocks on several threads (`compression_opts.parallel_threads`).
//!
//! In: blocks as the builder closes them. Out: the compressed blocks, in the same order. Helpers
//! are jobs on threads that may block; each takes unstarted blocks until none is left, and ends.
//! The writer itself takes unstarted blocks whenever it would have to wait.
//!
//! Invariants:
//! - The writer waits only for a block that a helper is compressing at this moment, which takes
//!   microseconds; it never waits for a free thread, so its progress does not depend on their
//!   number.
//! - At most [`AHEAD`] blocks for each thread are in memory besides the builder's own.
//!
//! Compat: RocksDB estimates the sizes of blocks under way and therefore cuts files at other keys
//! than with one thread; here the files are the same.

use karst_base::sync::atomic::{AtomicUsize, Ordering};
use karst_base::sync::{Condvar, Mutex};
use karst_format::table_builder::{ClosedBlock, CompressedBlock, TableBuilder};
use karst_io::Env;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of blocks under way per thread. Large enough that a helper started for the first
/// block finds more to do when it runs.
const AHEAD: usize = 16;
/// Number of unstarted blocks at which a helper is started.
const WORTH_A_HELPER: usize = 2;

/// The blocks of one run that are being compressed.
#[derive(Debug)]
pub(super) struct Compressors {
    env: Env,
    /// Number of compressing threads, including the writer's own.
    threads: usize,
    /// Blocks under way, oldest first.
    under_way: VecDeque<Arc<Slot>>,
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Blocks that were not started when they were added.
    waiting: Mutex<VecDeque<Arc<Slot>>>,
    helpers: AtomicUsize,
}

#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    /// Signalled when the state becomes `Done` or `Failed`.
    ended: Condvar,
}

#[derive(Debug)]
enum State {
    Waiting(ClosedBlock),
    Begun,
    Done(CompressedBlock),
    /// A helper panicked while compressing it.
    Failed,
}

impl Slot {
    /// Compresses the block if it has not been started. Lock: not held meanwhile.
    fn work(&self) {
        let block = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, State::Begun) {
                State::Waiting(block) => block,
                other => return *state = other,
            }
        };
        /// Sets the final state, also after a panic.
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

    /// Returns the compressed block; compresses it here if it has not been started.
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
    /// Compresses waiting blocks until none is left.
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
    /// Returns `None` if only one thread is configured.
    pub(super) fn new(env: &Env, threads: u32) -> Option<Compressors> {
        let threads = usize::try_from(threads).unwrap_or(1);
        (threads > 1).then(|| Compressors {
            env: env.clone(),
            threads,
            under_way: VecDeque::new(),
            queue: Arc::default(),
        })
    }

    /// Takes closed blocks from the builder, and returns compressed ones.
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

    /// Returns all blocks to the builder.
    pub(super) fn settle(&mut self, builder: &mut TableBuilder) {
        self.pass_on(builder);
        while !self.under_way.is_empty() {
            self.give_back_oldest(builder);
        }
    }

    /// Returns true if blocks are under way, so that the file's size is unknown.
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
        // A late start is harmless, because the next block's caller starts another job, and the
        // writer takes the rest.
        drop(self.env.run_blocking(move |_| {
            /// Decrements the number of helpers, also after a panic.
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
