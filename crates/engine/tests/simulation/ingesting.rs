//! Ingestion of a writer's batch as files instead of a write: equal changes, atomic and durable.
//! The suite of faults compiles this file too.

use karst_engine::{
    ColumnFamily, Db, IngestExternalFileArg, IngestExternalFileOptions, Options, Result, SstFileWriter,
};
use karst_testkit::random::Random;
use karst_testkit::script::Write;
use std::collections::BTreeMap;

/// One file: at most one change of each key, which is newer than the file's range deletions.
#[derive(Default)]
struct File {
    points: BTreeMap<Vec<u8>, Write>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Returns files with these changes in order; a new file begins where a change does not fit into
/// the one before it.
fn files<'a>(changes: impl Iterator<Item = &'a Write>) -> Vec<File> {
    let mut files = vec![File::default()];
    for change in changes {
        let fits = |file: &File| match change {
            Write::DeleteRange { .. } => file.points.is_empty(),
            change => !file.points.contains_key(key_of(change)),
        };
        if !files.last().is_some_and(fits) {
            files.push(File::default());
        }
        let file = files.last_mut().expect("there is one");
        match change {
            Write::DeleteRange { begin, end, .. } => file.ranges.push((begin.clone(), end.clone())),
            change => drop(file.points.insert(key_of(change).to_vec(), change.clone())),
        }
    }
    files
}

fn key_of(change: &Write) -> &[u8] {
    match change {
        Write::Put { key, .. }
        | Write::Delete { key, .. }
        | Write::SingleDelete { key, .. }
        | Write::Merge { key, .. }
        | Write::DeleteRange { begin: key, .. } => key,
    }
}

fn family_of(change: &Write) -> usize {
    match change {
        Write::Put { family, .. }
        | Write::Delete { family, .. }
        | Write::SingleDelete { family, .. }
        | Write::Merge { family, .. }
        | Write::DeleteRange { family, .. } => *family,
    }
}

async fn write(file: &File, family: &ColumnFamily, path: &str) -> Result<()> {
    let mut writer = SstFileWriter::for_column_family(&Options::new(), family)?;
    writer.open(path)?;
    for (begin, end) in &file.ranges {
        if family.comparator().compare_user(begin, end).is_lt() {
            writer.delete_range(begin, end)?;
        }
    }
    let mut points: Vec<_> = file.points.iter().collect();
    points.sort_by(|(a, _), (b, _)| family.comparator().compare_user(a, b));
    for (key, change) in points {
        match change {
            Write::Put { value, .. } => writer.put(key, value)?,
            Write::Merge { operand, .. } => writer.merge(key, operand)?,
            _ => writer.delete(key)?,
        }
    }
    writer.finish_async().await.map(drop)
}

/// Ingests `changes` as files whose names begin with `name`.
pub(crate) async fn ingest(
    db: &Db,
    families: &[ColumnFamily],
    changes: &[Write],
    name: &str,
    random: &mut Random,
) -> Result<()> {
    let mut args = Vec::new();
    for (number, family) in families.iter().enumerate() {
        let mut paths = Vec::new();
        for (index, file) in files(changes.iter().filter(|c| family_of(c) == number)).iter().enumerate() {
            let path = format!("{name}-{number}-{index}.sst");
            if file.points.is_empty() && file.ranges.is_empty() {
                continue;
            }
            match write(file, family, &path).await {
                Ok(()) => paths.push(path),
                // An empty range leaves nothing to write.
                Err(e) if e.to_string().contains("has no entry") => {}
                Err(e) => return Err(e),
            }
        }
        let options = IngestExternalFileOptions {
            link_files: random.one_in(3),
            verify_checksums_before_ingest: random.one_in(2),
            ..Default::default()
        };
        let options =
            IngestExternalFileOptions { move_files: !options.link_files && random.one_in(2), ..options };
        if !paths.is_empty() {
            args.push(IngestExternalFileArg::new(family, paths, options));
        }
    }
    match args.is_empty() {
        true => Ok(()),
        false => db.ingest_external_files_async(&args).await,
    }
}
