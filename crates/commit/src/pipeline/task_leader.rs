//! Leaders other than the writing thread: a task of its reactor, a job on a thread that may block,
//! and the caller that ends or replaces the files.
//!
//! The task writes and syncs the log on the ring of its thread. The reactor runs it to its end
//! ([`karst_io::attach`]), so it does not depend on the writer that started it, and other threads
//! may wait for it. It takes the records when it is first polled, behind the writers that were
//! ready, whose records are in its round.
//!
//! Between two rounds it has given the leadership up and lets the thread's tasks run, so the
//! writers that it has woken share the next round, another thread may lead it, and it holds its
//! thread no longer than a round. When the thread is about to block, it hands over to a job.
//!
//! Invariant: a leader that is dropped gives nothing up. Without a round, a job takes over; a round
//! that was begun fails, because it is unknown what the ring has done.

use super::Pipeline;
use super::write::Lead;
use crate::host::Host;
use crate::persist::{Carried, LockedFiles, panicked};
use karst_base::error::{Error, ErrorKind, Result};
use karst_io::{attach, carries_writes, yield_now};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// The leadership, held by a task.
pub(super) struct TaskLeader<H: Host> {
    pipeline: Arc<Pipeline<H>>,
    /// False once the leadership was given up, or is a job's.
    leads: bool,
    /// True between the end of a round and the check for further work.
    must_check: bool,
    round: Option<Box<Carried>>,
}

/// The leadership, held without a round by the caller that ends or replaces the files. The drop
/// gives it up, and has the log led if work has come meanwhile.
pub(super) struct SoleLeader<H: Host>(Arc<Pipeline<H>>);

/// The beginning of a round of a task.
enum Begun {
    Round(Box<Carried>),
    /// The log has failed, and the leadership was given up.
    Failed,
    /// A thread that may block must lead.
    Unsuited,
}

impl<H: Host> TaskLeader<H> {
    /// Returns a leader. The caller has taken the leadership.
    pub(super) fn new(pipeline: Arc<Pipeline<H>>) -> Self {
        Self { pipeline, leads: true, must_check: false, round: None }
    }

    /// Leads until no work is left, or a thread that may block must lead.
    pub(super) async fn lead(mut self) {
        loop {
            match self.pipeline.begin_round_of_task() {
                Begun::Round(round) => {
                    let round = self.round.insert(round);
                    let outcome = write(&self.pipeline, round).await;
                    self.end(outcome);
                }
                Begun::Failed => self.leads = false,
                Begun::Unsuited => return, // and the drop hands over
            }
            self.must_check = true;
            yield_now().await;
            self.must_check = false;
            self.leads = self.pipeline.persist.try_lead();
            if !self.leads || !carries_writes(&self.pipeline.around.env) {
                return; // and the drop hands over
            }
        }
    }

    fn end(&mut self, outcome: Result<()>) {
        if let Some(round) = self.round.take() {
            self.leads = false;
            self.pipeline.end_round(self.pipeline.persist.bring_back(*round, outcome));
        }
    }
}

/// Writes a round; a panic, of a user-supplied file system for instance, becomes a log failure.
async fn write<H: Host>(pipeline: &Pipeline<H>, round: &mut Carried) -> Result<()> {
    let mut writing = pin!(pipeline.persist.write_carried(round));
    // Unwind safe: after an error the files are only replaced.
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| writing.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(panicked())))
    })
    .await
}

impl<H: Host> Pipeline<H> {
    /// Checks for work after a round that the write with this `lead` led.
    pub(super) fn lead_after(self: &Arc<Self>, lead: Lead) {
        match lead {
            Lead::Here => self.lead_for_others(),
            Lead::AtOnce | Lead::Elsewhere => self.lead_elsewhere(),
        }
    }

    /// Has the log led until no work is left: by a task of the calling thread's reactor, if that
    /// carries writes, or by a job on a thread that may block. The pipeline owns either, so it does
    /// not depend on the caller.
    pub(super) fn lead_elsewhere(self: &Arc<Self>) {
        if self.persist.try_lead() {
            let env = &self.around.env;
            match carries_writes(env) && self.persist.may_suit_tasks() {
                true => attach(env, TaskLeader::new(self.clone()).lead()),
                false => self.lead_on_thread(),
            }
        }
    }

    /// Starts a job that leads until no work is left, on a thread that may block. The caller has
    /// taken the leadership, which is the job's from now on.
    pub(super) fn lead_on_thread(self: &Arc<Self>) {
        let pipeline = self.clone();
        drop(self.around.env.run_blocking(move |_| {
            loop {
                pipeline.lead();
                if !pipeline.persist.try_lead() {
                    return;
                }
            }
        }));
    }

    /// Waits until no leader is at work, and takes the leadership.
    pub(super) async fn lead_alone(self: &Arc<Self>) -> SoleLeader<H> {
        loop {
            self.persist.wait_for_leader().await;
            if self.persist.try_take_lead() {
                return SoleLeader(self.clone());
            }
        }
    }

    /// Begins a round if a task can lead it. The caller leads.
    fn begin_round_of_task(&self) -> Begun {
        // Locked first, because writers that have this lock try the files.
        let mut line = self.order.lock();
        let Some(files) = self.persist.try_files() else { return Begun::Unsuited };
        if !self.persist.suits_tasks(&files, &line) {
            return Begun::Unsuited;
        }
        match self.persist.take_round(files, &mut line) {
            Some(round) => Begun::Round(Box::new(round.carry())),
            None => Begun::Failed,
        }
    }
}

impl<H: Host> Drop for TaskLeader<H> {
    fn drop(&mut self) {
        let text = "the thread that wrote the log has ended";
        self.end(Err(Error::new(ErrorKind::Io, text)));
        if self.leads || (self.must_check && self.pipeline.persist.try_lead()) {
            self.pipeline.lead_on_thread();
        }
    }
}

impl<H: Host> SoleLeader<H> {
    /// Locks the files; waits at most for a caller that has tried the lock.
    pub(super) fn files(&self) -> LockedFiles<'_> {
        self.0.persist.files()
    }
}

impl<H: Host> Drop for SoleLeader<H> {
    fn drop(&mut self) {
        self.0.persist.leave();
        self.0.persist.tell();
        self.0.lead_elsewhere();
    }
}
