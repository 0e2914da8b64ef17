//! The half of an open database that writes: its commit pipeline, its background work, their
//! connections, and the ownership of the directory.
//!
//! In: the half that reads, and the ownership. Out: [`WriteHalf`], created when a database is
//! opened for writing, ended when it is closed.
//!
//! ```text
//!   writer -> Pipeline -> DatabaseHost -> Triggers -> Background -> flush -> Versions
//!                ^                                        |
//!                +---------------- Sealer <---------------+
//! ```
//!
//! Invariant: background work refers to the pipeline only through the sealer; the pipeline refers
//! to background work only through triggers and health, which hold it weakly. Therefore no
//! reference cycle keeps anything alive.

use crate::background::{Background, Parts};
use crate::flush::{FlushContext, Triggers};
use crate::open::{Options, Ownership, ReadHalf, manifest_options};
use crate::pipeline_host::{DatabaseHost, Sealer};
use crate::versions::{Change, ManifestOptions, Versions};
use karst_base::error::{Error, Result};
use karst_base::events::{Events, InfoLog, LogLevel};
use karst_base::health::{BackgroundErrorReason, Health};
use karst_base::options::DbOptions;
use karst_base::pacing::{RateLimiter, StallController};
use karst_base::snapshot::Snapshots;
use karst_base::sync::atomic::AtomicBool;
use karst_commit::wal::prepared::PreparedLogs;
use karst_commit::wal::writer::{NewLog, reserve_bytes};
use karst_commit::{Pipeline, Rules};
use karst_format::ids::FileNumber;
use karst_format::version_edit::{VersionEdit, WalAddition};
use karst_io::Env;
use std::path::PathBuf;
use std::sync::Arc;

/// Compat: the rate in bytes per second to which RocksDB slows writers down by default.
const DELAYED_WRITE_RATE: u64 = 16 << 20;

/// The writing half of an open database; see the module.
#[derive(Debug)]
pub(crate) struct WriteHalf {
    pub(crate) pipeline: Arc<Pipeline<DatabaseHost>>,
    pub(crate) background: Arc<Background>,
    pub(crate) health: Arc<Health>,
    pub(crate) stalls: Arc<StallController>,
    pub(crate) events: Arc<Events>,
    /// Logs with prepared sections.
    pub(crate) prepared_logs: Arc<PreparedLogs>,
    rate_limiter: Option<RateLimiter>,
    env: Env,
    pub(crate) ownership: Ownership,
}

impl WriteHalf {
    /// Begins the first log and accepts writes. Blocks.
    ///
    /// # Errors
    /// The log cannot be created, or options cannot be applied.
    pub(crate) fn start(
        read: &ReadHalf,
        ownership: Ownership,
        notes: &[String],
        options: &Options,
        snapshots: &Arc<Snapshots>,
    ) -> Result<WriteHalf> {
        let versions = &ownership.versions;
        let (env, db_options) = (read.env.clone(), read.db_options.get());
        let rules = Rules::of(&db_options)?;
        let wal_directory = match db_options.wal_dir.as_str() {
            "" => read.path.clone(),
            elsewhere => PathBuf::from(elsewhere),
        };
        let health = Arc::new(Health::new(db_options.paranoid_checks));
        let write_buffers = ownership.write_buffers.clone();
        let rate_limiter = options.limiter();
        let rate = delayed_write_rate(&db_options, rate_limiter.as_ref());
        let patience = options.stopped_writes_patience();
        let stalls = StallController::new(health.clone(), write_buffers.clone(), rate, patience);
        let stalls = Arc::new(stalls);
        let info_log = options.users_log().unwrap_or_else(|| InfoLog::open(&env, &read.path, &db_options));
        let events = Arc::new(Events::new(Some(info_log), options.event_listeners()));
        if events.has_listeners() {
            let asked = events.clone();
            health.ask(move |error| asked.suppresses(error));
        }
        events.opened(&read.path, &db_options);
        versions.obsolete().tell(&events);
        notes.iter().for_each(|note| events.log(LogLevel::Warn, format_args!("[database] {note}")));
        events.opened_families(read.families.all().iter().map(|family| family.settings()));
        if let Some(damage) = &read.log_damage {
            events.log(LogLevel::Warn, format_args!("recovered up to damage in a log: {damage}"));
        }
        if let Some(duplicates) = &read.log_duplicates {
            let text = format_args!(
                "the logs had entries that tables have already, which were skipped; {duplicates}"
            );
            events.log(LogLevel::Warn, text);
        }
        let triggers = Arc::new(Triggers::new(write_buffers.clone()));
        let largest = read.families.largest_write_buffer();
        let log_bytes = reserve_bytes(largest, db_options.max_total_wal_size, write_buffers.limit_bytes());
        let log_options = rules.log.reserving(log_bytes);
        let log = NewLog::create(env.fs(), &wal_directory, ownership.first_log, log_options)?;
        versions.add_log(ownership.first_log);
        let pipeline = Pipeline::new(karst_commit::Parts {
            env: env.clone(),
            host: DatabaseHost {
                env: env.clone(),
                families: read.families.clone(),
                triggers: triggers.clone(),
                on_log_failed: log_failed(&health),
                on_log_synced: log_synced(versions, &db_options),
                prepared_logs: versions.prepared_logs().clone(),
                retired_logs: versions.obsolete().retired_logs().clone(),
            },
            health: health.clone(),
            stalls: stalls.clone(),
            statistics: read.statistics.clone(),
            tracer: read.shared.tracer.clone(),
            rules,
            pending: read.pending.clone(),
            last_seq: read.last_seq,
            log,
        });
        let reports = health.clone();
        versions.on_failure(Box::new(move |error, reason| {
            reports.report(error, reason);
        }));
        let background = Background::new(Parts {
            flush: FlushContext {
                env: env.clone(),
                shared: read.shared.clone(),
                versions: versions.clone(),
                identity: versions.identity().clone(),
                families: read.families.clone(),
                pipeline: Arc::new(Sealer::new(
                    pipeline.clone(),
                    versions.clone(),
                    wal_directory,
                    read.db_options.clone(),
                    events.clone(),
                )),
                snapshots: snapshots.clone(),
                stats: read.statistics.clone(),
                events: events.clone(),
                limiter: rate_limiter.clone(),
                cancelled: Arc::new(AtomicBool::new(false)),
                options: read.db_options.clone(),
            },
            families: read.families.clone(),
            health: health.clone(),
            stalls: stalls.clone(),
            triggers,
        });
        let prepared_logs = versions.prepared_logs().clone();
        Ok(WriteHalf {
            pipeline,
            background,
            health,
            stalls,
            events,
            prepared_logs,
            rate_limiter,
            env,
            ownership,
        })
    }

    /// Applies options that differ from `before` and are not read at each use.
    pub(crate) fn db_options_changed(&self, read: &ReadHalf, before: &DbOptions) {
        let now = read.db_options.get();
        if let Ok(limit) = usize::try_from(now.max_open_files) {
            read.shared.open_files.set_limit(limit);
        }
        self.ownership.versions.change_options(|options| {
            let tracks_wals = options.tracks_wals;
            *options = ManifestOptions { tracks_wals, ..manifest_options(&now) };
        });
        if now.delayed_write_rate != before.delayed_write_rate {
            self.background.set_delayed_write_rate(delayed_write_rate(&now, self.rate_limiter.as_ref()));
        }
    }

    /// Stops writes, ends background work and releases the lock on the directory. The contents of
    /// the log stay there. Blocks. A second call does nothing.
    ///
    /// # Errors
    /// Pending data could not be written; everything has ended regardless.
    pub(crate) fn close(&self) -> Result<()> {
        self.events.db_shutdown_begun();
        let flushed = karst_io::block_on(&self.env, self.background.close());
        let logged = karst_io::block_on(&self.env, self.pipeline.close_log());
        // Closed even after an error, because the lock must be released.
        let closed = self.ownership.close();
        flushed.and(logged).and(closed)
    }
}

/// Returns the initial rate of delayed writers, in bytes per second.
fn delayed_write_rate(options: &DbOptions, limiter: Option<&RateLimiter>) -> u64 {
    match (options.delayed_write_rate, limiter) {
        (0, Some(limiter)) => limiter.bytes_per_sec(),
        (0, None) => DELAYED_WRITE_RATE,
        (rate, _) => rate,
    }
}

fn log_failed(health: &Arc<Health>) -> Box<dyn Fn(&Error) + Send + Sync> {
    let health = health.clone();
    Box::new(move |error| {
        health.report(error, BackgroundErrorReason::WriteCallback);
    })
}

/// Returns a callback that records in the MANIFEST which logs are durable, if the options require
/// it.
fn log_synced(versions: &Arc<Versions>, options: &DbOptions) -> Box<dyn Fn(FileNumber, u64) + Send + Sync> {
    if !options.track_and_verify_wals_in_manifest {
        return Box::new(|_, _| {});
    }
    let versions = Arc::downgrade(versions);
    Box::new(move |log, bytes| {
        let Some(versions) = versions.upgrade() else { return };
        let addition = WalAddition { number: log, synced_size_bytes: Some(bytes) };
        let edit = VersionEdit { wal_additions: vec![addition], ..VersionEdit::default() };
        // Not awaited, because nothing depends on it; a failing MANIFEST is reported by its
        // writers.
        drop(versions.install(Change::edit(edit)));
    })
}
