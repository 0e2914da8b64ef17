//! KarstDB as a [`Subject`], in each of its forms: synchronous, asynchronous on a foreign executor,
//! and in tasks of a reactor. The judge of RocksDB 11.8 compiles this file too and makes the same
//! comparisons.

use karst_engine::read::iter::{DbIterator, Direction};
use karst_engine::{BlockCache, ColumnFamily, Db, Options, ReadOptions, Value};
use karst_io::{Env, Reactor};
use karst_testkit::Entry;
use karst_testkit::subject::{Cursor, Move, ReadSettings, Subject};
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// Form in which KarstDB is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Synchronous calls.
    Sync,
    /// Asynchronous calls, polled by a foreign executor, without block cache and with direct reads,
    /// so that each call reads from storage.
    Async,
    /// Asynchronous calls in tasks of a reactor, with a block cache that is far too small and holds
    /// metadata too.
    Reactor,
}

impl Form {
    /// All forms.
    pub(crate) const ALL: [Form; 3] = [Form::Sync, Form::Async, Form::Reactor];
}

/// An open database.
pub(crate) struct Karst {
    db: Db,
    form: Form,
    reactor: Option<Reactor>,
}

impl Karst {
    /// Opens a database for one form. Its files must be unchanged since they were written.
    pub(crate) fn open(path: &Path, form: Form) -> Result<Self, String> {
        let env = Env::posix();
        let options = Options::new().env(env.clone());
        let options = match form {
            Form::Sync => options,
            Form::Async => options.block_cache(BlockCache::new(0)).db(|db| db.use_direct_reads = true),
            Form::Reactor => options
                .block_cache_bytes(64 << 10)
                .column_families(|cf| cf.table_factory.block_based.cache_index_and_filter_blocks = true),
        };
        let reactor = match form {
            Form::Reactor => Some(Reactor::builder(&env).build().map_err(|e| e.to_string())?),
            _ => None,
        };
        let db = Db::open_read_only(path, &options).map_err(|e| e.to_string())?;
        let karst = Karst { db, form, reactor };
        karst.verify()?;
        Ok(karst)
    }

    fn verify(&self) -> Result<(), String> {
        let db = self.db.clone();
        self.run(async move {
            db.verify_checksum_async().await?;
            db.verify_file_checksums_async().await.map(drop)
        })
        .map_err(|e: karst_engine::Error| e.to_string())
    }

    /// Wraps an open database.
    #[allow(dead_code, reason = "each program that includes this file uses what it needs")]
    pub(crate) fn of(db: Db, form: Form) -> Result<Self, String> {
        let reactor = match form {
            Form::Reactor => Some(Reactor::builder(db.env()).build().map_err(|e| e.to_string())?),
            _ => None,
        };
        Ok(Karst { db, form, reactor })
    }

    fn family(&self, name: &str) -> Result<ColumnFamily, String> {
        self.db.column_family(name).ok_or_else(|| format!("no column family {name}"))
    }

    /// Runs a future to its end as this form does.
    fn run<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match &self.reactor {
            Some(reactor) => reactor.spawn(move || future).join().expect("the task ends"),
            None => foreign_block_on(future),
        }
    }

    /// Returns every entry of a column family from the stream of an iterator.
    #[allow(dead_code, reason = "each program that includes this file uses what it needs")]
    pub(crate) fn stream(&self, family: &str, direction: Direction) -> Result<Vec<Entry>, String> {
        let iter = self.db.iter_cf(&total_order(), &self.family(family)?).map_err(|e| e.to_string())?;
        self.run(async move {
            let mut stream = pin!(iter.into_stream(direction));
            let mut entries = Vec::new();
            while let Some(entry) =
                std::future::poll_fn(|cx| futures_core::Stream::poll_next(stream.as_mut(), cx)).await
            {
                let (key, value) = entry.map_err(|e| e.to_string())?;
                entries.push((key.to_vec(), value.to_vec()));
            }
            Ok(entries)
        })
    }
}

fn total_order() -> ReadOptions {
    ReadOptions { total_order_seek: true, ..ReadOptions::default() }
}

fn owned(value: karst_engine::Result<Option<Value>>) -> Result<Option<Vec<u8>>, String> {
    value.map(|v| v.map(|v| v.to_vec())).map_err(|e| e.to_string())
}

impl Subject for Karst {
    fn name(&self) -> String {
        format!("KarstDB ({:?})", self.form)
    }

    fn column_families(&self) -> Result<Vec<String>, String> {
        Ok(self.db.column_families().iter().map(|f| f.name().to_string()).collect())
    }

    fn get(&self, column_family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let family = self.family(column_family)?;
        if self.form == Form::Sync {
            return owned(self.db.get_cf(&ReadOptions::default(), &family, key));
        }
        let (db, key) = (self.db.clone(), key.to_vec());
        self.run(async move { owned(db.get_cf_async(&ReadOptions::default(), &family, &key).await) })
    }

    fn multi_get(&self, column_family: &str, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, String> {
        let family = self.family(column_family)?;
        let found = if self.form == Form::Sync {
            self.db.multi_get_cf(&ReadOptions::default(), &family, keys)
        } else {
            let (db, keys) = (self.db.clone(), keys.to_vec());
            // Without `optimize_multiget_for_io`, one form reads level by level.
            let options = ReadOptions {
                optimize_multiget_for_io: self.form == Form::Reactor,
                ..ReadOptions::default()
            };
            self.run(async move { db.multi_get_cf_async(&options, &family, &keys).await })
        };
        found.into_iter().map(owned).collect()
    }

    fn cursor<'a>(
        &'a self,
        column_family: &str,
        settings: &ReadSettings,
    ) -> Result<Box<dyn Cursor + 'a>, String> {
        let options = ReadOptions {
            iterate_lower_bound: settings.lower_bound.clone(),
            iterate_upper_bound: settings.upper_bound.clone(),
            prefix_same_as_start: settings.prefix_same_as_start,
            total_order_seek: !settings.prefix_same_as_start,
            ..ReadOptions::default()
        };
        let iter = self.db.iter_cf(&options, &self.family(column_family)?).map_err(|e| e.to_string())?;
        Ok(Box::new(KarstCursor { store: self, iter: Some(iter) }))
    }
}

/// Invariant: the iterator is absent only while a task moves it.
struct KarstCursor<'a> {
    store: &'a Karst,
    iter: Option<DbIterator>,
}

impl Cursor for KarstCursor<'_> {
    fn apply(&mut self, step: &Move) -> Result<(), String> {
        let mut iter = self.iter.take().ok_or("the cursor's last move did not end")?;
        let (iter, moved) = if self.store.form == Form::Sync {
            let moved = match step {
                Move::First => iter.seek_to_first(),
                Move::Last => iter.seek_to_last(),
                Move::Seek(key) => iter.seek(key),
                Move::SeekForPrev(key) => iter.seek_for_prev(key),
                Move::Next => iter.next(),
                Move::Prev => iter.prev(),
            };
            (iter, moved)
        } else {
            let step = step.clone();
            self.store.run(async move {
                let moved = match &step {
                    Move::First => iter.seek_to_first_async().await,
                    Move::Last => iter.seek_to_last_async().await,
                    Move::Seek(key) => iter.seek_async(key).await,
                    Move::SeekForPrev(key) => iter.seek_for_prev_async(key).await,
                    Move::Next => iter.next_async().await,
                    Move::Prev => iter.prev_async().await,
                };
                (iter, moved)
            })
        };
        self.iter = Some(iter);
        moved.map_err(|e| e.to_string())
    }

    fn current(&self) -> Option<(&[u8], &[u8])> {
        let iter = self.iter.as_ref()?;
        iter.valid().then(|| (iter.key(), iter.value()))
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Minimal executor: polls one future and parks between polls.
pub(crate) fn foreign_block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future: Pin<&mut F> = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
