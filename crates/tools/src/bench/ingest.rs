//! Workload ingestexternalfile: tables are made outside of the database and ingested.

use super::key::Keys;
use super::reads::Target;
use super::report::{OpKind, Ops};
use super::values::Values;
use karst_engine::{IngestExternalFileOptions, Options, Result, SstFileWriter};
use std::path::{Path, PathBuf};

/// Makes --ingest_external_file_num_batches times --ingest_external_file_batch_size tables of --num
/// keys, all with equal keys, and moves each batch into the default column family by one call.
///
/// Compat: as in db_bench, a call is an operation, whose time includes making its tables; the
/// histogram `rocksdb.ingest.external.file.micros` has the times of the calls alone.
pub(super) fn ingest(t: &Target<'_>, keys: &Keys, ops: &mut Ops) -> Result<()> {
    let fs = t.db.env().fs();
    let directory = t.db.path().join("ingest_tmp");
    fs.create_dir(&directory)?;
    let outcome = ingest_from(&directory, t, keys, ops);
    // Errors are ignored: only files that were not ingested are left, and `outcome` has the reason.
    let left = fs.list_dir(&directory).unwrap_or_default();
    left.iter().for_each(|name| drop(fs.remove(&directory.join(name))));
    let removed = fs.remove_dir(&directory);
    outcome?;
    Ok(removed?)
}

fn ingest_from(directory: &Path, t: &Target<'_>, keys: &Keys, ops: &mut Ops) -> Result<()> {
    let (db, flags) = (t.db, t.flags);
    let (files, batches) = (flags.ingest_external_file_batch_size, flags.ingest_external_file_num_batches);
    let family = db.default_column_family();
    let mut writer = SstFileWriter::for_column_family(&Options::new(), family)?;
    let options = IngestExternalFileOptions {
        move_files: true,
        fill_cache: flags.ingest_external_file_fill_cache,
        ..Default::default()
    };
    let (mut values, mut key) = (Values::new(flags), Vec::new());
    ops.expect(batches as u64);
    for batch in 0..batches {
        let paths: Vec<PathBuf> =
            (0..files).map(|file| directory.join(format!("ingest_{batch}_{file}.sst"))).collect();
        for path in &paths {
            writer.open(path)?;
            for number in 0..flags.num as u64 {
                keys.encode(number, &mut key);
                let value = values.next();
                writer.put(&key, value)?;
                ops.bytes += (key.len() + value.len()) as u64;
            }
            writer.finish()?;
        }
        db.ingest_external_file(&options, &paths)?;
        ops.finished(OpKind::Write, 1);
    }
    ops.message = format!("({batches} batches x {files} files, {} keys/file)", flags.num);
    Ok(())
}
