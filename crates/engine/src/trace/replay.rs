//! The queries of a trace, put to a database.
//!
//! In: a trace, a database, and the column families in it that the trace is about, by their ids.
//! Out: what the database answers. A replay takes one record after the other, waits until its time
//! has come, as the pace has it, and asks. With several threads each takes the next record there
//! is, so what one of them is slow to do does not hold up the others, and writes may change places.
//!
//! Invariant: no thread waits while it has the trace (`Feed`) locked, other than for the trace's
//! own bytes.

use super::file::TraceReader;
use crate::db::Db;
use crate::read::iter::DbIterator;
use karst_base::caller::{Caller, finish};
use karst_base::error::{Error, ErrorKind, Result};
use karst_base::options::ReadOptions;
use karst_base::sync::Mutex;
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_commit::{WriteBatch, WriteOptions};
use karst_format::Corruption;
use karst_format::ids::ColumnFamilyId;
use karst_format::trace::{self, END, PREFIX_BYTES, Prefix, Query, Version};
use karst_io::{block_on, sleep};
use karst_storage::column_family::ColumnFamily;
use karst_storage::value::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a thread sleeps before it looks whether it is still wanted.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A record of a trace.
#[derive(Clone, Debug)]
pub struct TraceRecord {
    version: Version,
    prefix: Prefix,
    /// All of it.
    bytes: Vec<u8>,
}

impl TraceRecord {
    /// When it was asked, in microseconds since 1970.
    pub fn micros(&self) -> u64 {
        self.prefix.micros
    }

    /// What was asked.
    ///
    /// # Errors
    /// `NotSupported`: the record is of a kind that is no query. `Corruption`: it does not decode.
    pub fn query(&self) -> Result<Query<'_>> {
        let kind = self.prefix.kind;
        let query = Query::decode(self.version, kind, &self.bytes[PREFIX_BYTES..]).map_err(damaged)?;
        query.ok_or_else(|| Error::not_supported(format!("a record of a trace of kind {kind}")))
    }
}

fn damaged(corruption: Corruption) -> Error {
    Error::new(ErrorKind::Corruption, format!("a record of a trace: {corruption}"))
}

/// What a database says to a query of a trace.
#[derive(Debug)]
pub enum TraceAnswer {
    /// It is written.
    Written,
    /// The value of the key, if it has one.
    Value(Option<Value>),
    /// Where the iterator stands, if anywhere.
    Entry(Option<(Vec<u8>, Value)>),
    /// The values of the keys that have any.
    Values(Vec<Option<Value>>),
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// How many threads ask. 0 is as 1. Default: 1.
    pub num_threads: u32,
    /// How many times as fast as it was traced. Default: 1.0, as fast.
    pub fast_forward: f64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { num_threads: 1, fast_forward: 1.0 }
    }
}

/// Replays a trace. Each call that may wait has a blocking form and an asynchronous one.
pub struct Replayer {
    target: Target,
    feed: Arc<Mutex<Feed>>,
}

/// A trace as it is read.
struct Feed {
    reader: Box<dyn TraceReader>,
    /// Its version, once the header was read.
    version: Option<Version>,
    header_micros: u64,
    ended: bool,
}

impl Feed {
    fn prepare(&mut self) -> Result<()> {
        self.version = None;
        self.reader.reset()?;
        let header = self.reader.read()?.unwrap_or_default();
        let (prefix, text) = trace::split(&header).map_err(damaged)?;
        self.version = Some(trace::version(prefix, text).map_err(damaged)?);
        (self.header_micros, self.ended) = (prefix.micros, false);
        Ok(())
    }

    fn prepared(&self) -> Result<Version> {
        self.version.ok_or_else(|| Error::new(ErrorKind::Incomplete, "the replayer was not prepared"))
    }

    fn next(&mut self) -> Result<Option<TraceRecord>> {
        let version = self.prepared()?;
        if self.ended {
            return Ok(None);
        }
        // Compat: it is no error if nobody ended the trace.
        let Some(bytes) = self.reader.read()? else {
            self.ended = true;
            return Ok(None);
        };
        let (prefix, _) = trace::split(&bytes).map_err(damaged)?;
        self.ended = prefix.kind == END;
        Ok((!self.ended).then_some(TraceRecord { version, prefix, bytes }))
    }
}

impl Replayer {
    /// Replays what `reader` reads. What a trace asks of a column family is asked of the one of
    /// `families` with the same id; writes go to all that the database has open. Nothing is read
    /// before [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// A column family is of another database, or the database is closed.
    pub fn new(db: &Db, families: &[ColumnFamily], reader: Box<dyn TraceReader>) -> Result<Self> {
        let mut by_id = BTreeMap::new();
        for family in families {
            by_id.insert(db.family(family)?.id(), family.clone());
        }
        let feed = Feed { reader, version: None, header_micros: 0, ended: false };
        Ok(Self { target: Target { db: db.clone(), families: by_id }, feed: Arc::new(Mutex::new(feed)) })
    }

    /// Goes to the beginning of the trace. Blocks.
    ///
    /// # Errors
    /// The trace cannot be read, or is none.
    pub fn prepare(&self) -> Result<()> {
        self.feed.lock().prepare()
    }

    /// The asynchronous form of [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub async fn prepare_async(&self) -> Result<()> {
        let feed = self.feed.clone();
        self.target.db.env().run_blocking(move |_| feed.lock().prepare()).await
    }

    /// When the trace began, in microseconds since 1970; 0 before the replayer was prepared.
    pub fn header_timestamp(&self) -> u64 {
        self.feed.lock().header_micros
    }

    /// The next record; `None` at the end. Blocks.
    ///
    /// # Errors
    /// `Incomplete`: the replayer was not prepared. Or the trace cannot be read, or is cut off.
    pub fn next(&self) -> Result<Option<TraceRecord>> {
        self.feed.lock().next()
    }

    /// The asynchronous form of [`next`](Self::next).
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_async(&self) -> Result<Option<TraceRecord>> {
        let feed = self.feed.clone();
        self.target.db.env().run_blocking(move |_| feed.lock().next()).await
    }

    /// Asks what a record says, at once. Blocks as the query does.
    ///
    /// # Errors
    /// The record says nothing that can be asked, it is about a column family that the replayer
    /// was not given, or the query fails. A key that is not there is no error.
    pub fn execute(&self, record: &TraceRecord) -> Result<TraceAnswer> {
        finish(self.target.ask(Caller::Thread, record))
    }

    /// The asynchronous form of [`execute`](Self::execute).
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn execute_async(&self, record: &TraceRecord) -> Result<TraceAnswer> {
        self.target.ask(Caller::Task, record).await
    }

    /// Asks what is left of the trace, each record when its time has come, and tells `answered`
    /// what the database said. Records that are no queries are told as `NotSupported` and passed
    /// over. Blocks until the end of the trace or the first error: with one thread all is asked on
    /// the calling one, with more on threads of their own.
    ///
    /// # Errors
    /// `InvalidArgument`: the pace is not above 0. `Incomplete`: the replayer was not prepared, or
    /// is at the end. Or the first error of a query or of the trace.
    pub fn replay(
        &self,
        options: &ReplayOptions,
        answered: impl FnMut(&TraceRecord, Result<TraceAnswer>) + Send + 'static,
    ) -> Result<()> {
        if options.num_threads > 1 {
            return block_on(self.target.db.env(), self.replay_async(options, answered));
        }
        let replay = self.begin(options, answered)?;
        replay.work();
        replay.outcome()
    }

    /// The asynchronous form of [`replay`](Self::replay): on threads of its own, as many as the
    /// options say. When it is dropped they stop.
    ///
    /// # Errors
    /// As [`replay`](Self::replay), and if there are no threads to be had.
    pub async fn replay_async(
        &self,
        options: &ReplayOptions,
        answered: impl FnMut(&TraceRecord, Result<TraceAnswer>) + Send + 'static,
    ) -> Result<()> {
        let replay = self.begin(options, answered)?;
        // Why: if this future is dropped, and if there are threads for some and not for all.
        let _stops = Stops(&replay);
        let mut workers = Vec::new();
        for _ in 0..options.num_threads.max(1) {
            let replay = replay.clone();
            let env = self.target.db.env();
            workers.push(env.run_apart_async("karst-replay", move || replay.work())?);
        }
        for worker in workers {
            worker.await;
        }
        replay.outcome()
    }

    fn begin(
        &self,
        options: &ReplayOptions,
        answered: impl FnMut(&TraceRecord, Result<TraceAnswer>) + Send + 'static,
    ) -> Result<Arc<Replay>> {
        // Why so: what is no number is not above 0 either.
        if options.fast_forward.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            let text = format!("fast_forward: {}; it has to be above 0", options.fast_forward);
            return Err(Error::invalid_argument(text));
        }
        let feed = self.feed.lock();
        feed.prepared()?;
        if feed.ended {
            return Err(Error::new(
                ErrorKind::Incomplete,
                "the trace is at its end; prepare the replayer anew",
            ));
        }
        Ok(Arc::new(Replay {
            target: self.target.clone(),
            feed: self.feed.clone(),
            began: self.target.db.env().now(),
            header_micros: feed.header_micros,
            fast_forward: options.fast_forward,
            stopped: AtomicBool::new(false),
            failed: Mutex::new(None),
            answered: Mutex::new(Box::new(answered)),
        }))
    }
}

/// What is told of each record.
type Answered = Box<dyn FnMut(&TraceRecord, Result<TraceAnswer>) + Send>;

/// A replay under way, which threads share.
struct Replay {
    target: Target,
    feed: Arc<Mutex<Feed>>,
    began: Duration,
    header_micros: u64,
    fast_forward: f64,
    stopped: AtomicBool,
    /// The error of the oldest record that has one, and that record's time.
    failed: Mutex<Option<(u64, Error)>>,
    answered: Mutex<Answered>,
}

/// Ends a replay when it is dropped.
struct Stops<'a>(&'a Replay);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

impl Replay {
    /// Takes records and asks, until there is nothing left to ask or the replay is over.
    fn work(&self) {
        while !self.is_stopped() {
            let record = match self.feed.lock().next() {
                Ok(Some(record)) => record,
                Ok(None) => return,
                Err(error) => return self.fail(u64::MAX, error),
            };
            self.wait_for(&record);
            if self.is_stopped() {
                return;
            }
            let passed_over = record.query().is_err_and(|error| error.kind() == ErrorKind::NotSupported);
            let answer = finish(self.target.ask(Caller::Thread, &record));
            if let Err(error) = &answer
                && !passed_over
            {
                self.fail(record.micros(), error.clone());
            }
            self.answered.lock()(&record, answer);
        }
    }

    /// Sleeps until the time of a record has come.
    fn wait_for(&self, record: &TraceRecord) {
        let since = Duration::from_micros(record.micros().saturating_sub(self.header_micros));
        let since = Duration::try_from_secs_f64(since.as_secs_f64() / self.fast_forward);
        let due = self.began.saturating_add(since.unwrap_or(Duration::MAX));
        let env = self.target.db.env();
        while let Some(left) = due.checked_sub(env.now()).filter(|left| !left.is_zero())
            && !self.is_stopped()
        {
            block_on(env, sleep(env, left.min(LONGEST_SLEEP)));
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn fail(&self, micros: u64, error: Error) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut failed = self.failed.lock();
        if failed.as_ref().is_none_or(|(of, _)| micros < *of) {
            *failed = Some((micros, error));
        }
    }

    fn outcome(&self) -> Result<()> {
        self.failed.lock().take().map_or(Ok(()), |(_, error)| Err(error))
    }
}

/// The database that is asked.
#[derive(Clone)]
struct Target {
    db: Db,
    families: BTreeMap<ColumnFamilyId, ColumnFamily>,
}

impl Target {
    fn family(&self, id: ColumnFamilyId) -> Result<&ColumnFamily> {
        self.families.get(&id).ok_or_else(|| {
            let text = format!("the trace asks column family {id}, which the replayer was not given");
            Error::invalid_argument(text)
        })
    }

    async fn ask(&self, by: Caller, record: &TraceRecord) -> Result<TraceAnswer> {
        let (db, plain) = (&self.db, ReadOptions::new());
        match record.query()? {
            Query::Write(batch) => {
                let (options, batch) = (WriteOptions::new(), WriteBatch::from_bytes(batch.to_vec())?);
                match by {
                    Caller::Thread => db.write(&options, &batch)?,
                    Caller::Task => db.write_async(&options, &batch).await?,
                }
                Ok(TraceAnswer::Written)
            }
            Query::Get { family, key } => {
                let family = self.family(family)?;
                Ok(TraceAnswer::Value(match by {
                    Caller::Thread => db.get_cf(&plain, family, key)?,
                    Caller::Task => db.get_cf_async(&plain, family, key).await?,
                }))
            }
            Query::Seek { family, key, lower, upper } => {
                let mut iter = self.iter(family, (lower, upper))?;
                match by {
                    Caller::Thread => iter.seek(key)?,
                    Caller::Task => iter.seek_async(key).await?,
                }
                Ok(entry(&iter))
            }
            Query::SeekForPrev { family, key, lower, upper } => {
                let mut iter = self.iter(family, (lower, upper))?;
                match by {
                    Caller::Thread => iter.seek_for_prev(key)?,
                    Caller::Task => iter.seek_for_prev_async(key).await?,
                }
                Ok(entry(&iter))
            }
            Query::MultiGet(pairs) => {
                let families: Result<Vec<_>> = pairs.iter().map(|(id, _)| self.family(*id)).collect();
                let (families, keys) = (families?, pairs.iter().map(|(_, key)| *key).collect::<Vec<_>>());
                let values = match by {
                    Caller::Thread => db.multi_get_cfs(&plain, &families, &keys),
                    Caller::Task => db.multi_get_cfs_async(&plain, &families, &keys).await,
                };
                Ok(TraceAnswer::Values(values.into_iter().collect::<Result<_>>()?))
            }
        }
    }

    /// An iterator with these bounds, of which one that is empty is none.
    fn iter(&self, family: ColumnFamilyId, (lower, upper): (&[u8], &[u8])) -> Result<DbIterator> {
        let bound = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
        let options = ReadOptions {
            iterate_lower_bound: bound(lower),
            iterate_upper_bound: bound(upper),
            ..ReadOptions::new()
        };
        self.db.iter_cf(&options, self.family(family)?)
    }
}

fn entry(iter: &DbIterator) -> TraceAnswer {
    TraceAnswer::Entry(iter.valid().then(|| (iter.key().to_vec(), iter.pinned_value())))
}
