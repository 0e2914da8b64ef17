//! A database that takes writes: its commit pipeline and its background work, and how the two are
//! connected.
//!
//! In: what opening found. Out: [`Live`], made when a database was opened for writing, ended when
//! it is closed.
//!
//! ```text
//!   writer -> Pipeline -> DatabaseHost -> Triggers -> Background -> flush -> Versions
//!                ^                                        |
//!                +---------------- Sealer <---------------+
//! ```
//!
//! Invariant: background work knows the pipeline through the sealer only; the pipeline knows
//! background work through triggers and health only, which hold it weakly. So no circle of
//! references keeps anything alive.

use crate::background::{Background, Parts};
use crate::flush::{FlushContext, Triggers};
use crate::open::{Opened, Options, charged, manifest_options};
use crate::versions::{Change, ManifestOptions, Versions};
use crate::write::{DatabaseHost, Sealer};
use karst_base::error::{Error, Result};
use karst_base::events::{Events, InfoLog, LogLevel};
use karst_base::health::{BackgroundErrorReason, Health};
use karst_base::options::DbOptions;
use karst_base::pacing::{RateLimiter, StallController, WriteBufferManager};
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

/// Compat: what RocksDB slows writers down to where no option says it.
const DELAYED_WRITE_RATE: u64 = 16 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) pipeline: Arc<Pipeline<DatabaseHost>>,
    pub(crate) background: Arc<Background>,
    pub(crate) health: Arc<Health>,
    pub(crate) stalls: Arc<StallController>,
    pub(crate) events: Arc<Events>,
    /// Logs with prepared sections.
    pub(crate) prepared_logs: Arc<PreparedLogs>,
    rate_limiter: Option<RateLimiter>,
    env: Env,
}

impl Live {
    /// Begins the first log and takes writes. Blocks.
    ///
    /// # Errors
    /// The log cannot be made, or options cannot be followed.
    pub(crate) fn start(
        opened: &Opened,
        versions: &Arc<Versions>,
        first_log: FileNumber,
        options: &Options,
        snapshots: &Arc<Snapshots>,
    ) -> Result<Live> {
        let (env, db_options) = (opened.env.clone(), opened.db_options.get());
        let rules = Rules::of(&db_options)?;
        let wal_directory = match db_options.wal_dir.as_str() {
            "" => opened.path.clone(),
            elsewhere => PathBuf::from(elsewhere),
        };
        let health = Arc::new(Health::new(db_options.paranoid_checks));
        let budget = options.write_buffers();
        let limit_bytes = db_options.db_write_buffer_size;
        let write_buffers = budget.unwrap_or_else(|| match options.has_one_memory_budget() {
            true => WriteBufferManager::with_cache(limit_bytes, charged(&opened.shared.cache), false),
            false => WriteBufferManager::new(limit_bytes, false),
        });
        let rate_limiter = options.limiter();
        let rate = delayed_write_rate(&db_options, rate_limiter.as_ref());
        let patience = options.stopped_writes_patience();
        let stalls = StallController::new(health.clone(), write_buffers.clone(), rate, patience);
        let stalls = Arc::new(stalls);
        let info_log = InfoLog::open(&env, &opened.path, &db_options);
        let events = Arc::new(Events::new(Some(info_log), options.event_listeners()));
        events.opened(&opened.path, &db_options);
        versions.obsolete().tell(&events);
        opened.notes.iter().for_each(|note| events.log(LogLevel::Warn, format_args!("[database] {note}")));
        events.opened_families(opened.families.all().iter().map(|family| family.settings()));
        if let Some(damage) = &opened.log_damage {
            events.log(LogLevel::Warn, format_args!("recovered up to damage in a log: {damage}"));
        }
        if let Some(duplicates) = &opened.log_duplicates {
            let text = format_args!(
                "the logs had entries that tables have already, and they were passed over; {duplicates}"
            );
            events.log(LogLevel::Warn, text);
        }
        let triggers = Arc::new(Triggers::new(write_buffers.clone()));
        let largest = opened.families.largest_write_buffer();
        let log_bytes = reserve_bytes(largest, db_options.max_total_wal_size, write_buffers.limit_bytes());
        let log_options = rules.log.reserving(log_bytes);
        let log = NewLog::create(env.fs(), &wal_directory, first_log, log_options)?;
        versions.add_log(first_log);
        let pipeline = Pipeline::new(karst_commit::Parts {
            env: env.clone(),
            host: DatabaseHost {
                families: opened.families.clone(),
                triggers: triggers.clone(),
                on_log_failed: log_failed(&health),
                on_log_synced: log_synced(versions, &db_options),
                prepared_logs: versions.prepared_logs().clone(),
                retired_logs: versions.obsolete().retired_logs().clone(),
            },
            health: health.clone(),
            stalls: stalls.clone(),
            statistics: opened.statistics.clone(),
            rules,
            pending: opened.pending.clone(),
            last_seq: opened.last_seq,
            log,
        });
        let reports = health.clone();
        versions.on_failure(Box::new(move |error| {
            reports.report(error, BackgroundErrorReason::ManifestWrite);
        }));
        let background = Background::new(Parts {
            flush: FlushContext {
                env: env.clone(),
                shared: opened.shared.clone(),
                versions: versions.clone(),
                identity: versions.identity().clone(),
                families: opened.families.clone(),
                pipeline: Arc::new(Sealer::new(
                    pipeline.clone(),
                    versions.clone(),
                    wal_directory,
                    opened.db_options.clone(),
                    events.clone(),
                )),
                snapshots: snapshots.clone(),
                stats: opened.statistics.clone(),
                events: events.clone(),
                limiter: rate_limiter.clone(),
                cancelled: Arc::new(AtomicBool::new(false)),
                options: opened.db_options.clone(),
            },
            families: opened.families.clone(),
            health: health.clone(),
            stalls: stalls.clone(),
            triggers,
        });
        let prepared_logs = versions.prepared_logs().clone();
        Ok(Live { pipeline, background, health, stalls, events, prepared_logs, rate_limiter, env })
    }

    /// Puts in force what differs from `before`, where it is not looked up each time.
    pub(crate) fn db_options_changed(&self, opened: &Opened, before: &DbOptions) {
        let now = opened.db_options.get();
        if let Ok(limit) = usize::try_from(now.max_open_files) {
            opened.shared.open_files.set_limit(limit);
        }
        if let Some(writable) = &opened.writable {
            writable.versions.change_options(|options| {
                let tracks_wals = options.tracks_wals;
                *options = ManifestOptions { tracks_wals, ..manifest_options(&now) };
            });
        }
        if now.delayed_write_rate != before.delayed_write_rate {
            self.background.set_delayed_write_rate(delayed_write_rate(&now, self.rate_limiter.as_ref()));
        }
    }

    /// Takes no writes any more and ends background work. What is in the log stays there. Blocks.
    ///
    /// # Errors
    /// What had to be written could not be; everything has ended all the same.
    pub(crate) fn close(&self) -> Result<()> {
        let flushed = karst_io::block_on(&self.env, self.background.close());
        let logged = karst_io::block_on(&self.env, self.pipeline.close_log());
        flushed.and(logged)
    }
}

/// How fast delayed writers go at first, in bytes a second.
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

/// Records in the MANIFEST which logs are durable, where that is wanted.
fn log_synced(versions: &Arc<Versions>, options: &DbOptions) -> Box<dyn Fn(FileNumber, u64) + Send + Sync> {
    if !options.track_and_verify_wals_in_manifest {
        return Box::new(|_, _| {});
    }
    let versions = Arc::downgrade(versions);
    Box::new(move |log, bytes| {
        let Some(versions) = versions.upgrade() else { return };
        let addition = WalAddition { number: log, synced_size_bytes: Some(bytes) };
        let edit = VersionEdit { wal_additions: vec![addition], ..VersionEdit::default() };
        // Why not waited for: nothing depends on it; a MANIFEST that fails is reported by whoever
        // writes it.
        drop(versions.install(Change::edit(edit)));
    })
}
