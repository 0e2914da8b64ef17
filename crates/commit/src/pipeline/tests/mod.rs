//! The pipeline without a database: memtables in a map, logs on a file system in memory, read back
//! by the real recovery.

mod broken;
mod failing;
mod forgotten;
mod gathering;
mod logs;
mod ordering;
mod prepared;
mod tasks;
mod timestamps;
mod unordered;

use super::*;
use crate::batch::WriteBatch;
use crate::wal::recovery::Recovery;
use crate::wal::replay::Target;
use crate::wal::writer::{LogOptions, NewLog};
use karst_base::error::Error;
use karst_base::health::Health;
use karst_base::pacing::{StallController, WriteBufferManager};
use karst_base::stats::{Statistics, StatsLevel};
use karst_base::trace::{TraceForm, Tracer};
use karst_format::comparator::Comparator;
use karst_format::file_name::FileName;
use karst_format::ids::{ColumnFamilyId, FileNumber};
use karst_format::key::{self, SeqNo};
use karst_format::log::RecoveryMode;
use karst_format::write_batch::Op;
use karst_io::{Env, FileSystem, MemoryFileSystem};
use karst_storage::memtable::MemTable;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CF: ColumnFamilyId = ColumnFamilyId::DEFAULT;
const DIRECTORY: &str = "/db";

type Memtables = Arc<Mutex<BTreeMap<ColumnFamilyId, Arc<MemTable>>>>;

#[derive(Default)]
struct TestHost {
    open: Memtables,
    failures: Arc<AtomicU64>,
    synced: Arc<Mutex<Vec<(FileNumber, u64)>>>,
    ended: Arc<Mutex<Vec<FileNumber>>>,
}

impl Host for TestHost {
    type Pin = Arc<MemTable>;
    fn pin(&self, family: ColumnFamilyId) -> Result<Option<Arc<MemTable>>> {
        Ok(self.open.lock().get(&family).cloned())
    }
    fn is_overfull(&self, _: ColumnFamilyId) -> bool {
        false
    }

    fn memtable(pin: &Arc<MemTable>) -> &Arc<MemTable> {
        pin
    }
    fn prepared(&self, _: FileNumber) {}

    fn applied(&self, _: ColumnFamilyId, _: &Arc<MemTable>) {}
    fn logs_grew(&self, _: u64) {}
    fn log_failed(&self, _: &Error) {
        self.failures.fetch_add(1, Ordering::SeqCst);
    }
    fn log_synced(&self, log: FileNumber, bytes: u64) {
        self.synced.lock().push((log, bytes));
    }
    fn log_ended(&self, log: FileNumber) {
        self.ended.lock().push(log);
    }
}

/// Returns a pipeline that begins with log 1.
fn pipeline_of<H: Host>(env: &Env, directory: &Path, rules: Rules, host: H) -> Arc<Pipeline<H>> {
    let health = Arc::new(Health::new(true));
    let stalls =
        StallController::new(health.clone(), WriteBufferManager::new(0, false), 1 << 20, Duration::MAX);
    let log = NewLog::create(env.fs(), directory, FileNumber(1), rules.log).unwrap();
    Pipeline::new(Parts {
        env: env.clone(),
        host,
        health,
        stalls: Arc::new(stalls),
        statistics: Arc::new(Statistics::new(StatsLevel::DisableAll)),
        tracer: Tracer::new(env.clone(), TraceForm::Queries),
        rules,
        pending: rules.two_queues.then(Arc::default),
        last_seq: SeqNo(0),
        log,
    })
}

fn memtable() -> Arc<MemTable> {
    Arc::new(MemTable::new(Comparator::Bytewise))
}

/// A pipeline and its surroundings.
struct Bench {
    env: Env,
    memtables: Memtables,
    failures: Arc<AtomicU64>,
    synced: Arc<Mutex<Vec<(FileNumber, u64)>>>,
    ended: Arc<Mutex<Vec<FileNumber>>>,
    pipeline: Arc<Pipeline<TestHost>>,
    directory: PathBuf,
}

impl Bench {
    fn new(rules: Rules) -> Self {
        let files = MemoryFileSystem::new();
        files.create_dir(Path::new(DIRECTORY)).unwrap();
        Self::on(Env::builder().file_system(Arc::new(files)).build(), Path::new(DIRECTORY), rules, &[CF])
    }

    fn on(env: Env, directory: &Path, rules: Rules, families: &[ColumnFamilyId]) -> Self {
        let host = TestHost::default();
        host.open.lock().extend(families.iter().map(|cf| (*cf, memtable())));
        let (memtables, failures, synced) = (host.open.clone(), host.failures.clone(), host.synced.clone());
        let ended = host.ended.clone();
        let pipeline = pipeline_of(&env, directory, rules, host);
        Self { env, memtables, failures, synced, ended, pipeline, directory: directory.to_owned() }
    }

    fn log_path(&self, number: u64) -> PathBuf {
        self.directory.join(FileName::Wal(FileNumber(number)).to_string())
    }

    fn log_bytes(&self, number: u64) -> Vec<u8> {
        self.env.fs().read_file(&self.log_path(number)).unwrap()
    }

    fn new_log(&self, number: u64) -> NewLog {
        let options = self.pipeline.log_options();
        NewLog::create(self.env.fs(), &self.directory, FileNumber(number), options).unwrap()
    }

    /// Exchanges all memtables and switches to log `log`; returns the sealed memtables.
    fn seal(&self, log: u64) -> BTreeMap<ColumnFamilyId, Arc<MemTable>> {
        self.seal_with(&mut Some(self.new_log(log))).unwrap().expect("there is a log")
    }

    fn seal_with(
        &self,
        spare: &mut Option<NewLog>,
    ) -> karst_base::error::Result<Option<BTreeMap<ColumnFamilyId, Arc<MemTable>>>> {
        self.pipeline.seal(spare, |seal| {
            let mut open = self.memtables.lock();
            let old = open.clone();
            for memtable in open.values_mut() {
                std::mem::replace(memtable, self::memtable()).seal(seal);
            }
            old
        })
    }

    fn put(&self, key: &str, value: &str) -> karst_base::error::Result<()> {
        self.write(&WriteOptions::new(), put(key.as_bytes(), value.as_bytes()))
    }

    fn write(&self, options: &WriteOptions, op: Op<'_>) -> karst_base::error::Result<()> {
        self.pipeline.write(options, Source::one(op).unwrap())
    }

    fn entries(&self) -> Vec<String> {
        entries(&self.memtables.lock()[&CF], self.pipeline.visible_seq())
    }
}

impl<H: Host> Pipeline<H> {
    /// Returns the visible sequence number, after gathered entries were inserted.
    fn visible_seq(&self) -> SeqNo {
        self.apply.settle();
        self.publish.visible()
    }
}

fn rules() -> Rules {
    Rules { log: LogOptions::default(), manual_flush: None, unordered: false, two_queues: false }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Op<'a> {
    Op::Put { cf: CF, key, value }
}

/// Returns the point entries up to `seq` as `key@seq=value`, in the order of their numbers.
fn entries(memtable: &MemTable, seq: SeqNo) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = memtable.first();
    while let Some(position) = at {
        let (user_key, trailer) = key::split(memtable.key(position));
        let value = memtable.value(memtable.value_at(position));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if SeqNo(trailer >> 8) <= seq {
            found.push((trailer >> 8, format!("{}@{}={}", text(user_key), trailer >> 8, text(value))));
        }
        at = memtable.next(position);
    }
    found.sort();
    found.into_iter().map(|(_, text)| text).collect()
}

/// Returns the entries and the next number that the real recovery finds in logs.
fn recover(logs: &[(u64, &[u8])], mode: RecoveryMode) -> karst_base::error::Result<(Vec<String>, SeqNo)> {
    let target = Target {
        cf: CF,
        log_number: FileNumber(0),
        memtable: memtable(),
        memory_bytes: usize::MAX,
        tables: None,
    };
    let first_needed = FileNumber(logs[0].0);
    let mut recovery = Recovery::new(mode, vec![target.clone()], (SeqNo(0), first_needed), false);
    for (number, bytes) in logs {
        recovery.log(FileNumber(*number), Path::new("log"), bytes, &mut |_| Ok(()))?;
    }
    let recovered = recovery.finish([])?;
    Ok((entries(&target.memtable, SeqNo::MAX), recovered.next_seq))
}
