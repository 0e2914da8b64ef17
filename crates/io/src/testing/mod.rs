//! The contract of file systems as one test suite; and an executor without a channel.
//!
//! For tests only; no other part of this crate uses it. Each function panics if the contract is
//! broken.

mod at_offsets;
mod names;
mod network;
mod polls;
mod reads;
mod writes;

use crate::env::{Env, EnvBuilder};
use crate::file::FileSystem;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

pub use crate::threads::ThreadAllowance;
pub use network::network_contract;
pub use polls::{in_steps, poll_times};
pub use reads::{cancellations, pattern};

/// Runs the whole contract on `file_system`, in the existing and empty directory `dir`; `builder`
/// chooses the rest of the environment (its file system is replaced). `direct` is true if the
/// directory supports direct I/O.
pub fn file_system_contract(
    file_system: &Arc<dyn FileSystem>,
    dir: &Path,
    builder: EnvBuilder,
    direct: bool,
) {
    let env = builder.file_system(file_system.clone()).build();
    names::files_and_directories(&env, dir);
    names::errors_name_the_operation_and_the_path(&env, dir);
    names::locks_exclude(&env, dir);
    writes::appended_buffers_follow_each_other(&env, dir, direct);
    writes::files_are_cut_and_replaced(&env, dir, direct);
    writes::what_is_there_is_written_over(&env, dir);
    writes::stretches_are_mapped(&env, dir);
    at_offsets::any_offset_by_every_entry_form(&env, dir);
    at_offsets::failures_name_the_operation_the_path_and_the_offset(&env, dir);
    at_offsets::dropped_writes_leave_their_data(&env, dir);
    at_offsets::writes_stay_with_their_channel(&env, dir);
    let modes: &[bool] = if direct { &[false, true] } else { &[false] };
    for direct in modes {
        writes::appends_may_be_given_up(&env, dir, *direct);
        reads::every_offset_by_every_entry_form(&env, dir, *direct);
        reads::many_in_flight(&env, dir, *direct);
        reads::identical_reads_are_joined(&env, dir, *direct);
        reads::futures_may_move_and_go(&env, dir, *direct);
        reads::buffers_outlive_their_channel(&env, dir, *direct);
    }
    quiesce(&env);
}

/// Waits until no operation of `env` is in flight and no buffer is held; panics after 300 seconds.
pub fn quiesce(env: &Env) {
    let start = env.clock().now();
    loop {
        crate::block_on(env, async {}); // the thread's own abandoned reads
        crate::reap(env);
        let stats = env.io_stats();
        if stats.is_quiescent() {
            return;
        }
        assert!(env.clock().now().saturating_sub(start).as_secs() < 300, "leaked: {stats:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread like an executor without a channel: its reads go to the driver.
pub fn foreign_block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        std::thread::park();
    }
}
