//! One write, as a future that goes through the four steps.
//!
//! In: options and what is written. Out: the outcome. The same future serves both forms of the
//! call: a thread that may wait polls it without a waker first, spinning, since what it waits for
//! is a matter of microseconds, and sleeps only then; an executor polls it and gets woken.
//!
//! Invariant: whatever a writer does, its ticket is finished once. A future that has to be polled
//! again before its batch is applied leaves that with the pipeline (`orphans`) and takes it back
//! then, if nobody had to apply it meanwhile; one that is dropped leaves it for good.

use super::conflicts::Claim;
use super::gather::Gather;
use super::host::Host;
use super::options::WriteOptions;
use super::orphans::Orphan;
use super::pipeline::{NotOrdered, Ordered, Pipeline};
use super::source::{Pins, Source};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::health::BackgroundErrorReason;
use karst_base::pacing::Entry;
use karst_base::perf_context::{self, PerfLevel, PerfMetric, Timer};
use karst_base::stats::{HistogramKind, Ticker};
use karst_base::sync::atomic::Ordering;
use karst_format::ids::ColumnFamilyId;
use karst_format::key::SeqNo;
use karst_io::{Moments, block_on};
use karst_mem::commit::{Fate, Goals, Waiter};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Who leads when this write finds no leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// The thread that writes, which may block.
    Here,
    /// A thread that may block.
    Elsewhere,
}

type Wait<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

enum Stage<'a> {
    New,
    /// It waits at the door, or for room; the time of it counts for that.
    Waiting(Wait<'a>, PerfMetric),
    /// It may be ordered.
    Admitted,
    Ordered(Ordered),
    /// The batch is with the pipeline until its record is persisted.
    Left(Ordered),
    Applied {
        ticket: u64,
        last_seq: SeqNo,
        ahead: Goals,
        /// Somebody else has applied it, or is about to.
        by_other: bool,
    },
    /// It is acknowledged, and inserted before anyone asks what is visible.
    Gathered,
    Done,
}

/// See the module's head.
#[must_use = "nothing is written before it is polled"]
pub struct Commit<'a, H: Host> {
    pipeline: &'a Arc<Pipeline<H>>,
    options: WriteOptions,
    source: Source<'a>,
    /// What the write depends on.
    claim: Option<&'a Claim>,
    lead: Lead,
    stage: Stage<'a>,
    pins: Pins<H::Pin>,
    /// Set while it waits for what others have to apply.
    waiter: Option<Waiter<'a>>,
    /// This thread has led, and owes others a look.
    led: bool,
    /// It has led at some time, or had nothing to be led.
    by_self: bool,
    started: Option<Duration>,
    /// What its thread's time is counted for, if the thread takes times.
    times: Times,
}

/// When a write came in, and since when it waits, where its thread takes times.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    whole: Option<Timer>,
    waiting: Option<(Timer, PerfMetric)>,
    /// Nanoseconds of the whole that count for something else.
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
            times: Times::default(),
        }
    }

    /// The same, which depends on `claim`, if there is one.
    pub(super) fn claiming(mut self, claim: Option<&'a Claim>) -> Self {
        self.claim = claim;
        self
    }

    /// To the end, on this thread.
    pub(super) fn run(mut self) -> Result<()> {
        let mut moments = Moments::default();
        loop {
            if let Some(outcome) = self.advance(None) {
                return outcome;
            }
            if !self.pass(&mut moments) {
                return block_on(&self.pipeline.env, &mut self);
            }
        }
    }

    /// Passes a moment of waiting. `false` if it is better to sleep.
    fn pass(&self, moments: &mut Moments) -> bool {
        let Pipeline { ring, persist, standstill, .. } = &**self.pipeline;
        match self.stage {
            Stage::Waiting(..) => false,
            Stage::Applied { .. } => moments.pass(ring.published(), standstill),
            _ => moments.pass(persist.leadership.written(), persist.standstill()),
        }
    }

    /// As far as it goes. `None` if it has to wait; with a context it is woken then.
    #[inline]
    fn advance(&mut self, cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        if perf_context::level() >= PerfLevel::EnableWait {
            return self.advance_timed(cx);
        }
        self.go_on(cx)
    }

    #[cold]
    fn advance_timed(&mut self, cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        let env = self.pipeline.env.clone();
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
                        pipeline.ring.register(ticket, cx?.waker());
                        self.waiter.get_or_insert_with(|| pipeline.orphans.waiters().enter());
                        pipeline.settle_orphans();
                        if !pipeline.acknowledges(ticket, last_seq, ahead, self.source.only_logs()) {
                            return None;
                        }
                    }
                    let panicked = by_other
                        && pipeline.has_panicked.load(Ordering::Relaxed)
                        && pipeline.panicked.lock().contains(&ticket);
                    let outcome = match panicked {
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

    /// The door: checks that need no lock, and waiting where writers are held up.
    fn admit(&mut self) -> Result<()> {
        let pipeline = self.pipeline;
        if self.options.sync && self.options.disable_wal {
            return Err(Error::invalid_argument("a write cannot be synced without a log"));
        }
        // Compat: in logs that are recycled RocksDB tells damage by gaps between sequence numbers.
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
        pipeline.health.check_writes()?;
        self.started = pipeline.statistics.start_timer(&pipeline.env);
        let entry = Entry {
            bytes: self.source.bytes() as u64,
            no_slowdown: self.options.no_slowdown,
            low_pri: self.options.low_pri,
            timeout: self.options.timeout,
        };
        self.stage = if pipeline.stalls.is_open(&entry) {
            Stage::Admitted
        } else {
            let delay = Box::pin(pipeline.stalls.enter(&pipeline.env, &pipeline.statistics, entry));
            Stage::Waiting(delay, PerfMetric::WriteDelayTime)
        };
        Ok(())
    }

    fn order(&mut self) -> Result<()> {
        let pipeline = self.pipeline;
        self.pins.clear();
        match pipeline.order(&self.options, &self.source, self.claim, &mut self.pins, self.lead) {
            Ok((ordered, round)) => {
                self.stage = Stage::Ordered(ordered);
                if let Some(round) = round {
                    self.leads();
                    self.leading(|| pipeline.lead_round(round));
                } else if ordered.persists && self.lead == Lead::Elsewhere {
                    // Why at once: with no await between order and this, a dropped future leaves no
                    // record without a leader.
                    pipeline.lead_elsewhere();
                }
                Ok(())
            }
            Err(NotOrdered::Refused(error)) => Err(error),
            Err(NotOrdered::Full) => {
                let room = Box::pin(async move {
                    pipeline.wait_for_room(Pipeline::has_room).await;
                    Ok(())
                });
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
            // Why only these: a thread that blocks comes back by itself.
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
        self.pipeline.orphans.leave(ordered.ticket, Orphan { ordered, sync, source, pins });
    }

    /// Takes it back once its record is persisted, and applies it.
    fn take_back(&mut self, cx: Option<&mut Context<'_>>) -> Option<Result<()>> {
        let Stage::Left(ordered) = self.stage else { unreachable!("called in this stage only") };
        let fate = self.fate(ordered.ticket, cx)?;
        let Ordered { ticket, last_seq, ahead, .. } = ordered;
        match self.pipeline.orphans.take(ticket) {
            Ok(orphan) => {
                self.pins = orphan.pins;
                Some(self.apply(&ordered, fate))
            }
            // Why not `fate`: writing may have been resumed since.
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
                pipeline.finish(ticket);
                return Err(pipeline.failure());
            }
            Fate::Open => unreachable!("an open fate is waited for"),
        }
        // Why before the inserts: should they panic, the drop must not do them again.
        self.stage = Stage::Applied { ticket, last_seq, ahead, by_other: false };
        let timer = Timer::start_waiting(&pipeline.env);
        match pipeline.gather(&self.source, (ticket, first_seq, last_seq), &mut self.pins) {
            Gather::Waits => self.stage = Stage::Gathered,
            Gather::Inserted => pipeline.finish(ticket),
            Gather::No => pipeline.apply(ticket, &self.source, first_seq, &mut self.pins),
        }
        self.times.elsewhere += timer.stop(&pipeline.env, PerfMetric::WriteMemtableTime);
        if std::mem::take(&mut self.led) {
            self.leading(|| pipeline.lead_for_others());
        }
        Ok(())
    }

    /// What became of the record; `None` while it is open. Leads if nobody does.
    fn fate(&mut self, ticket: u64, cx: Option<&mut Context<'_>>) -> Option<Fate> {
        let leadership = &self.pipeline.persist.leadership;
        let mut registered = false;
        loop {
            let fate = leadership.fate(ticket, self.options.sync);
            if fate != Fate::Open {
                return Some(fate);
            }
            match self.lead {
                Lead::Here if leadership.try_lead() => {
                    self.leads();
                    let pipeline = self.pipeline;
                    self.leading(|| pipeline.lead());
                    continue;
                }
                Lead::Here => {}
                Lead::Elsewhere => self.pipeline.lead_elsewhere(),
            }
            if registered {
                return None;
            }
            self.pipeline.ring.register(ticket, cx.as_ref()?.waker());
            registered = true;
        }
    }

    /// Leads, and takes the time of it.
    fn leading(&mut self, lead: impl FnOnce()) {
        let timer = Timer::start(&self.pipeline.env);
        lead();
        self.times.elsewhere += timer.stop(&self.pipeline.env, PerfMetric::WriteWalTime);
    }

    /// Takes note that this thread leads. Before it does: it owes others a look also if that
    /// panics.
    fn leads(&mut self) {
        self.led = true;
        self.by_self = true;
    }

    fn end(&mut self, outcome: Result<()>) -> Result<()> {
        self.stage = Stage::Done;
        self.waiter = None;
        let statistics = &self.pipeline.statistics;
        if outcome.is_ok() && statistics.enabled() {
            let bytes = self.source.bytes() as u64;
            statistics.record(Ticker::NumberKeysWritten, u64::from(self.source.count()));
            statistics.record(Ticker::BytesWritten, bytes);
            statistics.tick(if self.by_self { Ticker::WriteDoneBySelf } else { Ticker::WriteDoneByOther });
            if !self.options.disable_wal {
                statistics.tick(Ticker::WriteWithWal);
            }
            statistics.measure(HistogramKind::BytesPerWrite, bytes);
            statistics.measure_since(&self.pipeline.env, &[HistogramKind::DbWrite], self.started);
        }
        outcome
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

/// A write, or why it was refused before it began.
#[must_use = "nothing is written before it is polled"]
pub struct WriteFuture<'a, H: Host>(Option<Result<Commit<'a, H>>>);

impl<'a, H: Host> WriteFuture<'a, H> {
    /// What `write_async` gave, or why it was not called.
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
                self.pipeline.orphans.abandon(ordered.ticket);
            }
            Stage::Left(ordered) => self.pipeline.orphans.abandon(ordered.ticket),
            _ => {
                if std::mem::take(&mut self.led) {
                    // Why elsewhere: it led and came no further, since its insert panicked.
                    self.pipeline.lead_elsewhere();
                }
                return;
            }
        }
        self.pipeline.settle_orphans();
        if std::mem::take(&mut self.led) {
            self.pipeline.lead_for_others();
        }
    }
}

impl<H: Host> Pipeline<H> {
    /// Whether a write that is applied, or being applied by somebody else, may return now. If so,
    /// every read that begins from now on sees it.
    ///
    /// Why it waits for what was ordered `ahead` to be persisted also with `unordered_write`: reads
    /// wait for everything up to what was acknowledged, and shall not wait for the device.
    /// Why it waits while a read sleeps: that read waits for a writer that has no processor, and
    /// would for as long as others keep theirs.
    #[inline]
    fn acknowledges(&self, ticket: u64, last_seq: SeqNo, ahead: Goals, only_logs: bool) -> bool {
        if self.ring.is_published(ticket, last_seq.0) {
            return true;
        }
        let early = (self.rules.unordered || (self.rules.two_queues && only_logs))
            && !self.ring.has_readers()
            && self.ring.is_finished(ticket)
            && self.persist.leadership.is_past(ahead);
        if early {
            self.ring.acknowledge(ticket, last_seq.0);
        }
        early
    }

    /// The apply step, and the end of the ticket. Lets go of the pins.
    ///
    /// # Panics
    /// A comparator does. The ticket is finished all the same, since everyone behind it waits for
    /// it, and the database takes no more writes.
    pub(super) fn apply(&self, ticket: u64, source: &Source<'_>, first_seq: SeqNo, pins: &mut Pins<H::Pin>) {
        if H::PUBLISHES_TOO_EARLY {
            self.ring.finish(ticket);
        }
        let inserting = Applying { pipeline: self, ticket, pins: &pins[..] };
        if let Some(phase) = source.phase() {
            self.phase_applies(phase);
        }
        // Invariant: no two entries have one number, so none can be there already.
        source.insert::<H>(first_seq, pins).expect("a sequence number is used once");
        std::mem::forget(inserting);
        let applying = Applying { pipeline: self, ticket, pins: &[] };
        self.applied(pins);
        if let Some(phase) = source.phase() {
            self.phase_applied(phase, first_seq);
        }
        std::mem::forget(applying);
        if !H::PUBLISHES_TOO_EARLY {
            self.finish(ticket);
        }
    }

    /// Says of each memtable that something was inserted. Lets go of the pins.
    pub(super) fn applied(&self, pins: &mut Pins<H::Pin>) {
        for (family, pin) in pins.drain(..) {
            self.host.applied(family, &pin);
        }
        if karst_mem::wants_blocks() {
            // Why detached: nobody waits for it; memtables that need memory sooner get it
            // themselves.
            let spare_bytes = self.stalls.spare_memory_bytes();
            drop(self.env.run_blocking(move |_| karst_mem::stock_blocks(spare_bytes)));
        }
    }

    /// Whether memtables have all that was inserted into them.
    ///
    /// # Errors
    /// An insert panicked, ever.
    pub fn check_inserts(&self) -> Result<()> {
        match self.has_panicked.load(Ordering::Relaxed) {
            true => Err(insert_panicked()),
            false => Ok(()),
        }
    }

    /// Takes no more writes, since an insert panicked, that of `ticket` if it is of one only; then
    /// `finish`es what was being inserted, and tells of it.
    ///
    /// Why fatal: a part of a batch may be in the memtable, where nobody reads any more. The log
    /// has all of it, and nothing is flushed any more; so it is whole when the database is opened
    /// anew.
    #[cold]
    pub(super) fn insert_panicked(&self, ticket: Option<u64>, finish: impl FnOnce()) {
        self.panicked.lock().extend(ticket);
        self.has_panicked.store(true, Ordering::Relaxed);
        let noted = self.health.note(&insert_panicked(), BackgroundErrorReason::MemTable);
        // Why caught: it inserts what waits behind, too, and a second panic would be the process's
        // end.
        let _ = catch_unwind(AssertUnwindSafe(finish));
        if let Some(noted) = noted {
            self.health.tell(noted);
        }
    }
}

fn insert_panicked() -> Error {
    Error::new(ErrorKind::Panicked, "inserting a batch into a memtable panicked, as a comparator may have")
}

/// A batch that is being inserted. Dropped if that panics.
pub(super) struct Applying<'a, H: Host> {
    pub(super) pipeline: &'a Pipeline<H>,
    pub(super) ticket: u64,
    /// The memtables that may have a part of it.
    pub(super) pins: &'a [(ColumnFamilyId, H::Pin)],
}

impl<H: Host> Drop for Applying<'_, H> {
    fn drop(&mut self) {
        // Why all: whichever it was, a reader of another would see half of the batch.
        self.pins.iter().for_each(|(_, pin)| H::memtable(pin).mark_broken());
        self.pipeline.insert_panicked(Some(self.ticket), || self.pipeline.finish(self.ticket));
    }
}
