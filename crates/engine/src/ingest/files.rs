//! Ingestion of external tables into an open database.
//!
//! In: files with their options, each for a column family. Out: a database with their entries.
//! `prepare` does the steps that may fail without effect; `background/ingests` changes the
//! database. Both are one job of the database.

use super::arg::IngestExternalFileArg;
use super::prepare::prepare;
use crate::background::{Background, FamilyIngest};
use crate::versions::Versions;
use karst_base::error::{Error, Named, Result};
use karst_base::options::DbOptions;
use karst_base::stats::HistogramKind;
use karst_storage::column_family::Family;
use std::path::PathBuf;
use std::sync::Arc;

/// Ingests all files atomically; `args` has an element for each of `families`.
///
/// # Errors
/// A file is invalid, the options do not allow it, or it could not be installed. No file has been
/// ingested then.
pub(crate) async fn ingest(
    background: &Arc<Background>,
    versions: &Arc<Versions>,
    db_options: Arc<DbOptions>,
    args: Vec<(Arc<Family>, IngestExternalFileArg)>,
) -> Result<()> {
    for (index, (family, _)) in args.iter().enumerate() {
        if args[..index].iter().any(|(other, _)| other.id() == family.id()) {
            let name = Named(&family.config.name);
            let text = format!("ingesting files: column family {name:?} is named twice");
            return Err(Error::invalid_argument(text));
        }
    }
    if args.is_empty() {
        return Err(Error::invalid_argument("ingesting files: the list of files is empty"));
    }
    let moved = args.iter().filter(|(_, arg)| arg.options.move_files);
    let moved: Vec<PathBuf> = moved.flat_map(|(_, arg)| &arg.external_files).cloned().collect();
    let preparing = prepare_all(background.clone(), versions.clone(), db_options, args);
    background.ingest(preparing, moved).await
}

/// Prepares the files of all families; owns its arguments because it runs as a part of a job.
async fn prepare_all(
    background: Arc<Background>,
    versions: Arc<Versions>,
    db_options: Arc<DbOptions>,
    args: Vec<(Arc<Family>, IngestExternalFileArg)>,
) -> Result<Vec<FamilyIngest>> {
    let mut ingests = Vec::with_capacity(args.len());
    for (family, arg) in &args {
        let shared = &family.tables.shared;
        let began = shared.start_timer();
        ingests.push(prepare(&background, &versions, &db_options, family, arg).await?);
        shared.measure_since(HistogramKind::IngestExternalFilePrepareTime, began);
    }
    Ok(ingests)
}
