//! Transactions on a simulated machine: one thread, virtual time, a disk whose power fails or whose
//! log cannot be written, all determined by a seed (`karst_io::Simulation`).
//!
//! Environment: `KARST_SEED` runs one seed only, `KARST_SEEDS` that many from there on,
//! `KARST_LONG_TESTS=1` the long form.

mod appends;
mod beside;
mod contention;
mod crashes;
mod ledger;
mod log_failures;
mod optimistic;
mod reading;
mod stamped;
mod unsynced;

use karst_engine::io::{Env, sleep};
use karst_testkit::asked::{self, long, number};
use karst_testkit::random::Random;
use karst_txn::WritePolicy;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

thread_local! {
    /// Write policy of new databases. A simulation has one thread.
    static POLICY: Cell<WritePolicy> = const { Cell::new(WritePolicy::WriteCommitted) };
    /// `unordered_write` and `two_write_queues`.
    static EARLY: Cell<(bool, bool)> = const { Cell::new((false, false)) };
}

fn policy() -> WritePolicy {
    POLICY.get()
}

/// Returns `unordered_write`, and `two_write_queues`. The published command sets both with the
/// policy WritePrepared.
fn early() -> (bool, bool) {
    EARLY.get()
}

/// Runs `future` for at most `after`, with at least one poll. `None` if it was dropped.
async fn give_up<F: Future>(env: &Env, after: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut alarm) = (pin!(future), pin!(sleep(env, after)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => alarm.as_mut().poll(cx).map(|_| None),
    })
    .await
}

fn micros(random: &mut Random, most: u64) -> Duration {
    Duration::from_micros(random.below(most))
}

/// Runs `test` with each seed and each write policy; the seed decides when writes return. Prints
/// the command that repeats a failure.
fn each_seed(name: &str, short: u64, in_long: u64, test: impl FnMut(u64)) {
    each_seed_of(&[WritePolicy::WriteCommitted, WritePolicy::WritePrepared], name, short, in_long, test);
}

/// Runs `test` like [`each_seed`] with some of the policies.
fn each_seed_of(policies: &[WritePolicy], name: &str, short: u64, in_long: u64, mut test: impl FnMut(u64)) {
    for (seed, policy) in
        asked::seeds(short, in_long).flat_map(|seed| policies.iter().map(move |policy| (seed, *policy)))
    {
        POLICY.set(policy);
        EARLY.set([(false, false), (true, true), (false, true), (true, false)][seed as usize % 4]);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            let form = if long() { "KARST_LONG_TESTS=1 " } else { "" };
            eprintln!(
                "\nseed {seed} fails with {policy:?}; to replay it:\n  {form}KARST_SEED={seed} cargo test -p karst-txn --test simulation {name}\n"
            );
            resume_unwind(panic);
        }
    }
}
