//! Replay of the queries of a trace against a database.
//!
//! In: a trace, a database, and its column families that the trace refers to by id. Out: the
//! database's answers. A replay takes one record after the other, waits until its time has come at
//! the chosen pace, and runs its query. With several threads each takes the next record, so a slow
//! query does not delay the others, and writes may be reordered.
//!
//! Invariant: while a thread holds the lock on the trace (`Feed`), it waits only for the trace's
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

/// Longest sleep before a thread checks for cancellation.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A record of a trace.
#[derive(Clone, Debug)]
pub struct TraceRecord {
    version: Version,
    prefix: Prefix,
    /// The whole record, including its prefix.
    bytes: Vec<u8>,
}

impl TraceRecord {
    /// Time of the query, in microseconds since 1970.
    pub fn micros(&self) -> u64 {
        self.prefix.micros
    }

    /// The recorded query.
    ///
    /// # Errors
    /// `NotSupported`: the record is not of a kind of query. `Corruption`: it does not decode.
    pub fn query(&self) -> Result<Query<'_>> {
        let kind = self.prefix.kind;
        let query = Query::decode(self.version, kind, &self.bytes[PREFIX_BYTES..]).map_err(damaged)?;
        query.ok_or_else(|| Error::not_supported(format!("a record of a trace of kind {kind}")))
    }
}

fn damaged(corruption: Corruption) -> Error {
    Error::new(ErrorKind::Corruption, format!("a record of a trace: {corruption}"))
}

/// The database's answer to a query of a trace.
#[derive(Debug)]
pub enum TraceAnswer {
    /// The batch is written.
    Written,
    /// The value of the key, or None.
    Value(Option<Value>),
    /// The iterator's entry, or None.
    Entry(Option<(Vec<u8>, Value)>),
    /// The value of each key, or None.
    Values(Vec<Option<Value>>),
}

/// Options of a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayOptions {
    /// Number of threads that run queries; 0 counts as 1. Default: 1.
    pub num_threads: u32,
    /// Speed relative to the trace, above 0. Default: 1.0, the traced speed.
    pub fast_forward: f64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { num_threads: 1, fast_forward: 1.0 }
    }
}

/// Replays a trace. Each call that may wait has a blocking and an asynchronous form.
pub struct Replayer {
    target: Target,
    feed: Arc<Mutex<Feed>>,
}

/// The trace being read.
struct Feed {
    reader: Box<dyn TraceReader>,
    /// Version of the trace, once its header is read.
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
        // Compat: a trace without an end record is no error.
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
    /// Creates a replayer of the trace in `reader`. Queries of a column family run against the one
    /// of `families` with that id; writes go to all that the database has open. Nothing is read
    /// before [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// A column family belongs to another database, or the database is closed.
    pub fn new(db: &Db, families: &[ColumnFamily], reader: Box<dyn TraceReader>) -> Result<Self> {
        let mut by_id = BTreeMap::new();
        for family in families {
            by_id.insert(db.family(family)?.id(), family.clone());
        }
        let feed = Feed { reader, version: None, header_micros: 0, ended: false };
        Ok(Self { target: Target { db: db.clone(), families: by_id }, feed: Arc::new(Mutex::new(feed)) })
    }

    /// Moves to the beginning of the trace. Blocks.
    ///
    /// # Errors
    /// The trace cannot be read, or the file is not a trace.
    pub fn prepare(&self) -> Result<()> {
        self.feed.lock().prepare()
    }

    /// Asynchronous form of [`prepare`](Self::prepare).
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub async fn prepare_async(&self) -> Result<()> {
        let feed = self.feed.clone();
        self.target.db.env().run_blocking(move |_| feed.lock().prepare()).await
    }

    /// Returns the trace's start time, in microseconds since 1970; 0 before the replayer was
    /// prepared.
    pub fn header_timestamp(&self) -> u64 {
        self.feed.lock().header_micros
    }

    /// Returns the next record; `None` at the end. Blocks.
    ///
    /// # Errors
    /// `Incomplete`: the replayer was not prepared. Otherwise the trace cannot be read, or is
    /// truncated.
    pub fn next(&self) -> Result<Option<TraceRecord>> {
        self.feed.lock().next()
    }

    /// Asynchronous form of [`next`](Self::next).
    ///
    /// # Errors
    /// Those of [`next`](Self::next).
    pub async fn next_async(&self) -> Result<Option<TraceRecord>> {
        let feed = self.feed.clone();
        self.target.db.env().run_blocking(move |_| feed.lock().next()).await
    }

    /// Runs a record's query immediately. Blocks like the query.
    ///
    /// # Errors
    /// The record is not a query, its column family was not passed to the replayer, or the query
    /// fails. A missing key is no error.
    pub fn execute(&self, record: &TraceRecord) -> Result<TraceAnswer> {
        finish(self.target.ask(Caller::Thread, record))
    }

    /// Asynchronous form of [`execute`](Self::execute).
    ///
    /// # Errors
    /// Those of [`execute`](Self::execute).
    pub async fn execute_async(&self, record: &TraceRecord) -> Result<TraceAnswer> {
        self.target.ask(Caller::Task, record).await
    }

    /// Runs the rest of the trace, each query when its time has come, and passes the database's
    /// answers to `answered`. Records that are not queries are reported as `NotSupported` and
    /// skipped. Blocks until the end of the trace or the first error: one thread runs all queries
    /// on the calling thread, several run on threads of their own.
    ///
    /// # Errors
    /// `InvalidArgument`: the pace is not above 0. `Incomplete`: the replayer was not prepared, or
    /// is at the end. Otherwise the first error of a query or of the trace.
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

    /// Asynchronous form of [`replay`](Self::replay): on `num_threads` threads of its own, which
    /// stop when the future is dropped.
    ///
    /// # Errors
    /// Those of [`replay`](Self::replay), and if the threads cannot be started.
    pub async fn replay_async(
        &self,
        options: &ReplayOptions,
        answered: impl FnMut(&TraceRecord, Result<TraceAnswer>) + Send + 'static,
    ) -> Result<()> {
        let replay = self.begin(options, answered)?;
        // Stops the threads if this future is dropped, or if not all of them can be started.
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
        // `partial_cmp`, because NaN is not above 0 either.
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

/// Callback with each record and its answer.
type Answered = Box<dyn FnMut(&TraceRecord, Result<TraceAnswer>) + Send>;

/// A replay in progress, shared by its threads.
struct Replay {
    target: Target,
    feed: Arc<Mutex<Feed>>,
    began: Duration,
    header_micros: u64,
    fast_forward: f64,
    stopped: AtomicBool,
    /// The error of the oldest failed record, with its time in microseconds.
    failed: Mutex<Option<(u64, Error)>>,
    answered: Mutex<Answered>,
}

/// Stops a replay on drop.
struct Stops<'a>(&'a Replay);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

impl Replay {
    /// Runs queries until the trace ends or the replay is stopped.
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

    /// Sleeps until a record's time has come.
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

/// The database that runs the queries.
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

    /// Creates an iterator with these bounds; an empty one counts as unset.
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
