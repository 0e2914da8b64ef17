//! One write, as a future that passes through the four steps.
//!
//! The future serves both forms of the call: a thread polls it without a waker first, spinning,
//! because it mostly waits for microseconds, and then sleeps; an executor polls it and gets woken.
//!
//! Invariant: the ticket of a write is finished exactly once. A future that must be polled again
//! before its batch is applied leaves the batch with the pipeline (`orphans`) and takes it back
//! then, unless another caller had to apply it meanwhile; a dropped future leaves it for good.

use super::Pipeline;
use crate::apply::{Gather, Orphan};
use crate::conflicts::Claim;
use crate::handoff::{Fate, Goals, Waiter};
use crate::host::{Around, Host, Pins};
use crate::options::WriteOptions;
use crate::order::{NotOrdered, Ordered};
use crate::source::Source;
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::pacing::{Entry, race};
use karst_base::perf_context::{self, PerfLevel, PerfMetric, Timer};
use karst_base::stats::{HistogramKind, Ticker};
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_io::{Moments, block_on, may_write_by_call};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Thread that leads when this write finds no leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    /// The writing thread, which may block.
    Here,
    /// The thread of the writing task if the round is short, else as `Elsewhere`.
    AtOnce,
    /// A task of the thread's reactor, or a background thread that may block.
    Elsewhere,
}

type Wait<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

enum Stage<'a> {
    New,
    /// Waiting for write-stall control, or for room; the metric counts the time.
    Waiting(Wait<'a>, PerfMetric),
    /// Ready to be ordered.
    Admitted,
    Ordered(Ordered),
    /// The pipeline holds the batch until its record is persisted.
    Left(Ordered),
    Applied {
        ticket: u64,
        last_seq: SeqNo,
        ahead: Goals,
        /// Another caller has applied it, or is about to.
        by_other: bool,
    },
    /// Acknowledged; inserted before any query for the visible sequence number.
    Gathered,
    Done,
}

/// One write, as a future. Nothing is written before it is polled.
#[must_use = "nothing is written before it is polled"]
pub struct Commit<'a, H: Host> {
    pipeline: &'a Arc<Pipeline<H>>,
    options: WriteOptions,
    source: Source<'a>,
    /// Condition of the write.
    claim: Option<&'a Claim>,
    lead: Lead,
    stage: Stage<'a>,
    pins: Pins<H::Pin>,
    /// Set while it waits for work of others.
    waiter: Option<Waiter<'a>>,
    /// True if this thread has led, and must still check for work left for a leader.
    led: bool,
    /// True if this write ever led, or is not logged.
    by_self: bool,
    started: Option<Duration>,
    /// Time of the first wait, for write-stall control or for room.
    waits_since: Option<Duration>,
    /// Timers of the write, if its thread measures times.
    times: Times,
}

/// Timers of a write, if its thread measures times.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    whole: Option<Timer>,
    waiting: Option<(Timer, PerfMetric)>,
    /// Nanoseconds of `whole` that count for other metrics.
    elsewhere: u64,
}

impl<'a, H: Host> Commit<'a, H> {
    pub(super) fn new(
        pipeline: &'a Arc<Pipeline<H>>,
        options: WriteOptions,
        source: Source<'a>,
        lead: Lead,
    ) -> Self {
        Self {
            pipeline,
            options,
            source,
            claim: None,
            lead,
            stage: Stage::New,
            pins: Pins::new(),
            waiter: None,
            led: false,
            by_self: options.disable_wal,
            started: None,
            waits_since: None,
            times: Times::default(),
        }
    }

    /// Makes the write depend on `claim`, if given.
    pub(super) fn claiming(mut self, claim: Option<&'a Claim>) -> Self {
        self.claim = claim;
        self
    }

    /// Runs the write to completion on this thread.
    pub(super) fn run(mut self) -> Result<()> {
        let mut moments = Moments::default();
        loop {
            if let Some(outcome) = self.advance(None) {
                return outcome;
            }
            if !self.pass(&mut moments) {
                return block_on(&self.pipeline.around.env, &mut self);
            }
        }
    }

    /// Spins for a moment. Returns false if the caller should sleep.
    fn pass(&self, moments: &mut Moments) -> bool {
        match self.stage {
            Stage::Waiting(..) => false,
            Stage::Applied { .. } => self.pipeline.publish.pass(moments),
            _ => self.pipeline.persist.pass(moments),
        }
    }

    /// Advances until the write is complete or must wait. Returns `None` if it waits; with a
    /// context it is woken then.
    #[inline]
    fn advance(&mut self, cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        if perf_context::level() >= PerfLevel::EnableWait {
            return self.advance_timed(cx);
        }
        self.go_on(cx)
    }

    #[cold]
    fn advance_timed(&mut self, cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        let env = self.pipeline.around.env.clone();
        let times = &mut self.times;
        if let Some((timer, metric)) = times.waiting.take() {
            times.elsewhere += timer.stop(&env, metric);
        }
        let whole = *times.whole.get_or_insert_with(|| Timer::start(&env));
        let outcome = self.go_on(cx);
        if outcome.is_none() {
            let metric = match self.stage {
                Stage::Waiting(_, metric) => metric,
                _ => PerfMetric::WriteThreadWaitNanos,
            };
            self.times.waiting = Some((Timer::start_waiting(&env), metric));
        } else {
            let rest = whole.nanos(&env).saturating_sub(self.times.elsewhere);
            perf_context::time(PerfMetric::WritePreAndPostProcessTime, rest);
        }
        outcome
    }

    fn go_on(&mut self, mut cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        loop {
            match &mut self.stage {
                Stage::New => {
                    if let Err(e) = self.admit() {
                        return Some(self.end(Err(e)));
                    }
                }
                Stage::Waiting(wait, _) => {
                    let cx = cx.as_deref_mut()?;
                    match wait.as_mut().poll(cx) {
                        Poll::Pending => return None,
                        Poll::Ready(Ok(())) => self.stage = Stage::Admitted,
                        Poll::Ready(Err(e)) => return Some(self.end(Err(e))),
                    }
                }
                Stage::Admitted => {
                    if let Err(e) = self.order() {
                        return Some(self.end(Err(e)));
                    }
                }
                Stage::Ordered(_) => {
                    if let Err(e) = self.persist_and_apply(cx.as_deref_mut())? {
                        return Some(self.end(Err(e)));
                    }
                }
                Stage::Left(_) => {
                    if let Err(e) = self.take_back(cx.as_deref_mut())? {
                        return Some(self.end(Err(e)));
                    }
                }
                Stage::Applied { ticket, last_seq, ahead, by_other } => {
                    let (ticket, last_seq, ahead, by_other) = (*ticket, *last_seq, *ahead, *by_other);
                    let pipeline = self.pipeline;
                    if !pipeline.acknowledges(ticket, last_seq, ahead, self.source.only_logs()) {
                        pipeline.publish.register(ticket, cx?.waker());
                        self.waiter.get_or_insert_with(|| pipeline.apply.waiters().enter());
                        pipeline.settle_orphans();
                        if !pipeline.acknowledges(ticket, last_seq, ahead, self.source.only_logs()) {
                            return None;
                        }
                    }
                    let outcome = match by_other && pipeline.apply.has_panicked(ticket) {
                        true => Err(Error::new(
                            ErrorKind::Panicked,
                            "the write is logged, but inserting it panicked",
                        )),
                        false => Ok(()),
                    };
                    return Some(self.end(outcome));
                }
                Stage::Gathered => return Some(self.end(Ok(()))),
                Stage::Done => panic!("a write was polled after it had completed"),
            }
        }
    }

    /// Runs the checks that need no lock, and enters write-stall control.
    fn admit(&mut self) -> Result<()> {
        let pipeline = self.pipeline;
        if self.options.sync && self.options.disable_wal {
            return Err(Error::invalid_argument("a write cannot be synced without a log"));
        }
        // Compat: RocksDB detects damage in recycled logs by gaps between sequence numbers, which
        // unlogged writes cause.
        if self.options.disable_wal && pipeline.rules.log.recyclable {
            return Err(Error::invalid_argument("disable_wal does not go with recycle_log_file_num"));
        }
        match self.options.protection_bytes_per_key {
            0 => {}
            8 => self.source = self.source.to_protected()?,
            other => {
                let text = format!("protection_bytes_per_key: {other}; there are 0 and 8");
                return Err(Error::invalid_argument(text));
            }
        }
        self.source.verify()?;
        let Around { env, health, stalls, statistics, .. } = &*pipeline.around;
        // Without the order lock: a write that passes may be ordered after an error was reported.
        // The order step checks again for a failed log.
        health.check_writes()?;
        self.started = statistics.start_timer(env);
        match stalls.is_open(&self.entry(self.options.timeout)) {
            true => self.stage = Stage::Admitted,
            false => self.wait_for_admission(),
        }
        Ok(())
    }

    /// Returns the write's request to write-stall control, which waits at most `timeout`.
    fn entry(&self, timeout: Option<Duration>) -> Entry {
        Entry {
            bytes: self.source.bytes() as u64,
            no_slowdown: self.options.no_slowdown,
            low_pri: self.options.low_pri,
            timeout,
        }
    }

    /// Returns the rest of the write's timeout, which starts at its first wait.
    fn patience(&mut self) -> Option<Duration> {
        let timeout = self.options.timeout?;
        let now = self.pipeline.around.env.now();
        let since = *self.waits_since.get_or_insert(now);
        Some(timeout.saturating_sub(now.saturating_sub(since)))
    }

    #[cold]
    fn wait_for_admission(&mut self) {
        let timeout = self.patience();
        let entry = self.entry(timeout);
        let Around { env, stalls, statistics, .. } = &*self.pipeline.around;
        let delay = Box::pin(stalls.enter(env, statistics, entry));
        self.stage = Stage::Waiting(delay, PerfMetric::WriteDelayTime);
    }

    fn order(&mut self) -> Result<()> {
        let pipeline = self.pipeline;
        self.pins.clear();
        let lead = match self.lead {
            Lead::Elsewhere if !self.options.sync && may_write_by_call(&pipeline.around.env) => Lead::AtOnce,
            lead => lead,
        };
        match pipeline.order(&self.options, &self.source, self.claim, &mut self.pins, lead) {
            Ok((ordered, round)) => {
                self.stage = Stage::Ordered(ordered);
                if pipeline.around.tracer.is_on() && !pipeline.around.tracer.preserves_write_order() {
                    pipeline.trace(&self.source);
                }
                if let Some(round) = round {
                    self.leads();
                    self.leading(|| pipeline.lead_round(round));
                } else if ordered.persists && self.lead == Lead::Elsewhere {
                    // Started at once: without an await between order and this, a dropped future
                    // leaves no record without a leader.
                    pipeline.lead_elsewhere();
                }
                Ok(())
            }
            Err(NotOrdered::Refused(error)) => Err(error),
            Err(NotOrdered::Stopped) => {
                self.pins.clear();
                self.wait_for_admission();
                Ok(())
            }
            Err(NotOrdered::Full) => {
                // Released, because the pinned memtable may be the one that must be sealed.
                self.pins.clear();
                let families = self.source.families().to_vec();
                let until = self.patience().map(|patience| pipeline.around.env.now() + patience);
                let room = Box::pin(async move { pipeline.wait_to_be_ordered(&families, until).await });
                self.stage = Stage::Waiting(room, PerfMetric::WriteThreadWaitNanos);
                Ok(())
            }
        }
    }

    fn persist_and_apply(&mut self, cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        let Stage::Ordered(ordered) = self.stage else { unreachable!("called in this stage only") };
        let fate = match ordered.persists {
            true => self.fate(ordered.ticket, cx),
            false => Some(Fate::Persisted),
        };
        match fate {
            // Only for asynchronous writes, because a blocking thread always comes back.
            None if self.lead == Lead::Elsewhere => {
                self.leave(ordered);
                Some(Ok(()))
            }
            fate => Some(self.apply(&ordered, fate?)),
        }
    }

    /// Leaves the batch with the pipeline.
    fn leave(&mut self, ordered: Ordered) {
        self.stage = Stage::Left(ordered);
        let (sync, source) = (self.options.sync, self.source.to_owned());
        let pins = std::mem::take(&mut self.pins);
        self.pipeline.apply.leave_orphan(Orphan { ordered, sync, source, pins });
    }

    /// Takes the batch back once its record is persisted, and applies it.
    fn take_back(&mut self, cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        let Stage::Left(ordered) = self.stage else { unreachable!("called in this stage only") };
        let fate = self.fate(ordered.ticket, cx)?;
        let Ordered { ticket, last_seq, ahead, .. } = ordered;
        match self.pipeline.apply.take_orphan(ticket) {
            Ok(orphan) => {
                self.pins = orphan.pins;
                Some(self.apply(&ordered, fate))
            }
            // Not decided by `fate`, because writes may have been resumed since.
            Err(Fate::Failed) => {
                self.stage = Stage::Done;
                Some(Err(self.pipeline.failure()))
            }
            Err(_) => {
                self.stage = Stage::Applied { ticket, last_seq, ahead, by_other: true };
                Some(Ok(()))
            }
        }
    }

    /// Applies the batch, or gives it up if its record failed.
    fn apply(&mut self, ordered: &Ordered, fate: Fate) -> Result<()> {
        let pipeline = self.pipeline;
        let Ordered { ticket, first_seq, last_seq, ahead, .. } = *ordered;
        match fate {
            Fate::Persisted => {}
            Fate::Failed => {
                self.stage = Stage::Done;
                self.pins.clear();
                pipeline.apply.finish(ticket);
                return Err(pipeline.failure());
            }
            Fate::Open => unreachable!("an open fate is waited for"),
        }
        // Set before the inserts, because the drop must not repeat them if they panic.
        self.stage = Stage::Applied { ticket, last_seq, ahead, by_other: false };
        let timer = Timer::start_waiting(&pipeline.around.env);
        match pipeline.apply.gather(&self.source, (ticket, first_seq, last_seq), &mut self.pins) {
            Gather::Waits => self.stage = Stage::Gathered,
            Gather::Inserted => pipeline.apply.finish(ticket),
            Gather::No => pipeline.apply.apply(ticket, &self.source, first_seq, &mut self.pins),
        }
        self.times.elsewhere += timer.stop(&pipeline.around.env, PerfMetric::WriteMemtableTime);
        if std::mem::take(&mut self.led) {
            let lead = self.lead;
            self.leading(|| pipeline.lead_after(lead));
        }
        Ok(())
    }

    /// Returns the fate of the record; `None` while it is open. Leads if no leader is at work.
    fn fate(&mut self, ticket: u64, cx: Option<&mut Context<'_>>) -> Option<Fate> {
        let persist = &self.pipeline.persist;
        let mut registered = false;
        loop {
            let fate = persist.fate(ticket, self.options.sync);
            if fate != Fate::Open {
                return Some(fate);
            }
            match self.lead {
                Lead::Here if persist.try_lead() => {
                    self.leads();
                    let pipeline = self.pipeline;
                    self.leading(|| pipeline.lead());
                    continue;
                }
                Lead::Here => {}
                Lead::Elsewhere | Lead::AtOnce => self.pipeline.lead_elsewhere(),
            }
            if registered {
                return None;
            }
            self.pipeline.publish.register(ticket, cx.as_ref()?.waker());
            registered = true;
        }
    }

    /// Calls `lead` and measures its time.
    fn leading(&mut self, lead: impl FnOnce()) {
        let timer = Timer::start(&self.pipeline.around.env);
        lead();
        self.times.elsewhere += timer.stop(&self.pipeline.around.env, PerfMetric::WriteWalTime);
    }

    /// Records that this thread leads. Called before it leads, because it must check for others'
    /// work even if that panics.
    fn leads(&mut self) {
        self.led = true;
        self.by_self = true;
    }

    fn end(&mut self, outcome: Result<()>) -> Result<()> {
        self.stage = Stage::Done;
        self.waiter = None;
        let Around { env, statistics, .. } = &*self.pipeline.around;
        if outcome.is_ok() && statistics.enabled() {
            let bytes = self.source.bytes() as u64;
            statistics.record(Ticker::NumberKeysWritten, u64::from(self.source.count()));
            statistics.record(Ticker::BytesWritten, bytes);
            statistics.tick(if self.by_self { Ticker::WriteDoneBySelf } else { Ticker::WriteDoneByOther });
            if !self.options.disable_wal {
                statistics.tick(Ticker::WriteWithWal);
            }
            statistics.measure(HistogramKind::BytesPerWrite, bytes);
            statistics.measure_since(env, &[HistogramKind::DbWrite], self.started);
        }
        outcome
    }
}

impl<H: Host> Pipeline<H> {
    /// Waits until there is room to order a write to `families`.
    ///
    /// # Errors
    /// Writes are refused, so room may never be made; or the time is `until`.
    async fn wait_to_be_ordered(&self, families: &[ColumnFamilyId], until: Option<Duration>) -> Result<()> {
        let _waiting = self.publish.wait_for_room();
        loop {
            let room = self.publish.listen_for_room();
            let health = self.around.health.listen();
            self.around.health.check_writes()?;
            self.settle_orphans();
            if self.has_room_for(families) {
                return Ok(());
            }
            let change = race(room, health);
            let Some(until) = until else {
                change.await;
                continue;
            };
            let left = until.saturating_sub(self.around.env.now());
            if left.is_zero() {
                let text = "the write has waited for room as long as its timeout";
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            race(change, karst_io::sleep(&self.around.env, left)).await;
        }
    }
}

impl<H: Host> Future for Commit<'_, H> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.advance(Some(cx)) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

/// A write, or the error that refused it before it began.
#[must_use = "nothing is written before it is polled"]
pub struct WriteFuture<'a, H: Host>(Option<Result<Commit<'a, H>>>);

impl<'a, H: Host> WriteFuture<'a, H> {
    /// Wraps the result of `write_async`, or the error that prevented the call.
    pub fn new(commit: Result<Commit<'a, H>>) -> Self {
        Self(Some(commit))
    }
}

impl<H: Host> Future for WriteFuture<'_, H> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match &mut self.0 {
            Some(Ok(commit)) => Pin::new(commit).poll(cx),
            refused => match refused.take() {
                Some(Err(error)) => Poll::Ready(Err(error)),
                _ => panic!("a write was polled after it had completed"),
            },
        }
    }
}

impl<H: Host> Drop for Commit<'_, H> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Ordered(ordered) => {
                self.leave(ordered);
                self.pipeline.apply.abandon(ordered.ticket);
            }
            Stage::Left(ordered) => self.pipeline.apply.abandon(ordered.ticket),
            _ => {
                if std::mem::take(&mut self.led) {
                    // On another thread, because this one led and its insert panicked.
                    self.pipeline.lead_elsewhere();
                }
                return;
            }
        }
        self.pipeline.settle_orphans();
        if std::mem::take(&mut self.led) {
            self.pipeline.lead_after(self.lead);
        }
    }
}
