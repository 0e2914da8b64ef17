//! Leaders other than the writing thread: a task of its reactor, or a job on a thread that may
//! block.
//!
//! The task writes and syncs the log on the ring of its thread. The reactor runs it to its end
//! ([`karst_io::attach`]), so it does not depend on the writer that started it, and other threads
//! may wait for it. It takes the records when it is first polled, behind the writers that were
//! ready, whose records are in its round.
//!
//! Invariant: a leader that is dropped gives nothing up. Without a round, a job takes over; a round
//! that was begun fails, because it is unknown what the ring has done.

use super::Pipeline;
use super::write::Lead;
use crate::host::Host;
use crate::persist::{Carried, panicked};
use karst_base::error::{Error, ErrorKind, Result};
use karst_io::{attach, carries_writes};
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
    round: Option<Box<Carried>>,
}

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
        Self { pipeline, leads: true, round: None }
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
            if !self.pipeline.persist.try_lead() {
                return;
            }
            self.leads = true;
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
            match carries_writes(env) {
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

    /// Begins a round if a task can lead it. The caller leads.
    fn begin_round_of_task(&self) -> Begun {
        let Some(files) = self.persist.try_files() else { return Begun::Unsuited };
        let mut line = self.order.lock();
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
        if self.leads {
            self.pipeline.lead_on_thread();
        }
    }
}
