//! The half of an open database that reads.
//!
//! In: what was loaded, and what its logs held. Out: the column families, and the names and numbers
//! of files as they were found. What changes while a database is open for writing, the
//! [write half](crate::write_half) knows; what changes for a secondary instance, that does.

use super::load::Loaded;
use super::secondary::Secondary;
use karst_base::error::Named;
use karst_base::life::Life;
use karst_base::options::CurrentDbOptions;
use karst_base::stats::Statistics;
use karst_commit::wal::doubts::Passed;
use karst_commit::wal::recovery::Recovered;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::key::SeqNo;
use karst_io::Env;
use karst_mem::PendingRanges;
use karst_storage::column_family::Families;
use karst_storage::open_files::Shared;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The half of an open database that reads: its files as they were found, and its column families.
#[derive(Debug)]
pub(crate) struct ReadHalf {
    pub(crate) env: Env,
    pub(crate) path: PathBuf,
    pub(crate) db_options: Arc<CurrentDbOptions>,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) life: Arc<Life>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) families: Arc<Families>,
    /// Column families that exist but were not asked for.
    pub(crate) unopened: Vec<String>,
    pub(crate) last_seq: SeqNo,
    pub(crate) manifest: FileName,
    pub(crate) manifest_bytes: u64,
    pub(crate) options_file: Option<FileName>,
    pub(crate) logs: Vec<FileNumber>,
    /// Where point-in-time recovery left out the rest of the logs, if it did.
    pub(crate) log_damage: Option<String>,
    /// What of the logs was passed over because tables have it, if anything was.
    pub(crate) log_duplicates: Option<String>,
    pub(crate) min_log_number: FileNumber,
    pub(crate) db_id: Option<String>,
    /// What was inserted and is not decided, if the database has any or may get any.
    pub(crate) pending: Option<Arc<PendingRanges>>,
    /// What a secondary instance has besides.
    pub(crate) secondary: Option<Arc<Secondary>>,
}

impl ReadHalf {
    /// What was read, its logs not replayed.
    pub(super) fn of(loaded: Loaded, path: &Path) -> ReadHalf {
        let set = loaded.set;
        ReadHalf {
            path: path.to_owned(),
            families: Arc::new(Families::new(loaded.families)),
            unopened: set.unopened.values().cloned().collect(),
            options_file: loaded.directory.newest_options(),
            log_damage: None,
            log_duplicates: None,
            min_log_number: set.min_log_number(),
            env: loaded.env,
            db_options: CurrentDbOptions::new(loaded.db_options),
            statistics: loaded.statistics,
            life: Arc::new(Life::new(false)),
            shared: loaded.shared,
            last_seq: set.last_sequence,
            manifest: loaded.manifest,
            manifest_bytes: loaded.manifest_bytes,
            logs: loaded.logs.numbers,
            db_id: loaded.db_id,
            pending: None,
            secondary: None,
        }
    }

    /// Takes note of what the logs held.
    pub(super) fn replayed(&mut self, recovered: Recovered) {
        self.last_seq = self.last_seq.max(SeqNo(recovered.next_seq.0.saturating_sub(1)));
        let damage = recovered.stopped.filter(|stopped| !stopped.is_plain_end());
        self.log_damage = damage.map(|stopped| stopped.to_string());
        let of_family = |passed: &Passed| {
            let family = self.families.get(passed.column_family);
            let name = Named(family.as_ref().map_or("", |family| &family.config.name));
            let (entries, through) = (passed.entries, passed.through);
            format!("column family {name:?}: {entries} entries up to sequence number {through}")
        };
        let told: Vec<String> = recovered.passed.iter().map(of_family).collect();
        self.log_duplicates = (!told.is_empty()).then(|| told.join("; "));
    }
}
