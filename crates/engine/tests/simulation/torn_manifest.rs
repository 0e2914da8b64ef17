//! Opening a database whose MANIFEST ends with a record that a loss of power has damaged.
//!
//! A power failure before the sync of a record may keep the sector that its last bytes are in and
//! lose the one before that. Opening refuses such a MANIFEST, as RocksDB does, because nothing in
//! the file tells that record from one that was acknowledged and damaged later
//! (docs/decisions/crash-states.md). The simulations know more: the record was never acknowledged,
//! so the database without it has to have all that was.

use karst_engine::{Db, Error, ErrorKind, FlushOptions, Options, Result};
use karst_format::file_name::parse_current;
use karst_format::log::LogReader;
use karst_io::{FileSystem, Simulation};
use std::path::{Path, PathBuf};

/// Opens the database in `directory`. If `power_failed` since it was last open, and the MANIFEST is
/// refused, cuts the damaged record off and opens the database again.
pub(crate) fn open(
    fs: &dyn FileSystem,
    directory: impl AsRef<Path>,
    power_failed: bool,
    open: impl Fn() -> Result<Db>,
) -> Result<Db> {
    match open() {
        Err(e) if power_failed && e.kind() == ErrorKind::Corruption => {
            cut(fs, directory.as_ref(), e)?;
            open()
        }
        opened => opened,
    }
}

/// Cuts the MANIFEST behind its last sound record, or returns `refusal` if that was for something
/// else. The file is exchanged as a whole, because the power may fail meanwhile.
fn cut(fs: &dyn FileSystem, directory: &Path, refusal: Error) -> Result<()> {
    let (manifest, bytes) = manifest(fs, directory)?;
    let (mut reader, mut end) = (LogReader::manifest(&bytes), 0);
    let is_damaged = loop {
        match reader.next_record() {
            Some(Ok(record)) => end = record.end,
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    if !is_damaged || !refusal.to_string().contains(&*manifest.to_string_lossy()) {
        return Err(refusal);
    }
    let shorter = Path::new("/shorter-manifest");
    let mut file = fs.create(shorter)?;
    file.append(&bytes[..end as usize])?;
    file.sync()?;
    drop(file);
    fs.rename(shorter, &manifest)?;
    Ok(fs.sync_dir(directory)?)
}

/// Returns the path and the contents of the current MANIFEST.
fn manifest(fs: &dyn FileSystem, directory: &Path) -> Result<(PathBuf, Vec<u8>)> {
    let current = fs.read_file(&directory.join("CURRENT"))?;
    let path = directory.join(parse_current(&current).expect("the name of a MANIFEST").to_string());
    let bytes = fs.read_file(&path)?;
    Ok((path, bytes))
}

/// Returns the offset of a sound MANIFEST's last record.
fn last_record(bytes: &[u8]) -> usize {
    let (mut reader, mut last) = (LogReader::manifest(bytes), 0);
    while let Some(record) = reader.next_record() {
        last = record.expect("a sound record").offset as usize;
    }
    last
}

/// Without a record that was never acknowledged, all entries are there. Without an acknowledged
/// one, opening misses the logs that the record made obsolete.
#[test]
fn only_a_record_that_was_never_acknowledged_can_be_cut_off() {
    let simulation = Simulation::new(1);
    let text = "create_if_missing=true;stats_dump_period_sec=0";
    let options = Options::new().set_all(text).unwrap().env(simulation.env().clone());
    let fs = simulation.fs();
    let opening = || Db::open("/db", &options);
    let rewrite = |path: &Path, bytes: &[u8]| -> Result<()> {
        let mut file = fs.create(path)?;
        file.append(bytes)?;
        Ok(file.sync()?)
    };
    let ran = simulation.run(async {
        let db = opening()?;
        for key in ["first", "second"] {
            db.put(key, "value")?;
            db.flush_async(&FlushOptions::default()).await?;
        }
        db.close()?;
        drop(db);
        // Another record, the first bytes of whose header were in a sector that was lost.
        let (path, mut bytes) = manifest(fs, Path::new("/db"))?;
        let last = last_record(&bytes);
        let end = bytes.len();
        bytes.extend_from_within(last..);
        bytes[end..end + 6].fill(0);
        rewrite(&path, &bytes)?;
        let refused = open(fs, "/db", false, opening).expect_err("a record is damaged");
        assert_eq!(refused.kind(), ErrorKind::Corruption, "{refused}");
        assert_eq!(fs.read_file(&path)?, bytes, "it was cut, and no power had failed");
        let db = open(fs, "/db", true, opening)?;
        for key in ["first", "second"] {
            assert!(db.get(key)?.is_some(), "{key} is not there");
        }
        db.put("third", "value")?;
        db.flush_async(&FlushOptions::default()).await?;
        db.close()?;
        drop(db);
        let (path, mut bytes) = manifest(fs, Path::new("/db"))?;
        let last = last_record(&bytes);
        bytes[last..last + 6].fill(0);
        rewrite(&path, &bytes)?;
        let refused = open(fs, "/db", true, opening).expect_err("a log is missing");
        assert!(refused.to_string().contains("damage in a log"), "{refused}");
        Ok::<_, Error>(())
    });
    ran.expect("the power is on").unwrap();
}
