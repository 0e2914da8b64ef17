//! Ownership of the directory while the database is open for writing: LOCK, the trees that the
//! MANIFEST describes, and the OPTIONS files.
//!
//! In: an open database, and new options. Out: an OPTIONS file with them. A failed opening releases
//! LOCK, and so does [`Ownership::close`], as its last step.

use super::ReadHalf;
use crate::claims::Claimant;
use crate::versions::{Gone, Moment, Versions, write_synced};
use karst_base::error::{Error, Result};
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::pacing::WriteBufferManager;
use karst_base::sync::Mutex;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::options::changed_head;
use karst_io::{Env, FileLock, block_on, report};
use std::path::Path;
use std::sync::Arc;

/// Takes the lock on the database.
///
/// # Errors
/// `Locked`: the database is open elsewhere. `InvalidArgument`: the directory holds another
/// database's files, such as its logs.
pub(crate) fn take_lock(env: &Env, path: &Path) -> Result<Box<dyn FileLock>> {
    let file = path.join(FileName::Lock.to_string());
    let lock = env.fs().lock(&file).map_err(|e| match e.is_locked() {
        true => {
            Error::from(e).with_advice("the database is open elsewhere, in another process or in this one")
        }
        false => Error::from(e),
    })?;
    Claimant { path, id: None }.check_owner(env, path)?;
    Ok(lock)
}

/// A writer's ownership of the directory; see the module.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// The budget of memtables.
    pub(crate) write_buffers: WriteBufferManager,
    pub(crate) versions: Arc<Versions>,
    /// Number of the first log, which the pipeline creates.
    pub(crate) first_log: FileNumber,
    /// The newest OPTIONS file. Lock: held to read or set it.
    pub(super) options_file: Arc<Mutex<Option<FileName>>>,
    /// Lock: held during a change of options or of the set of families, from reading the current
    /// state until the new one is in effect, with the OPTIONS file written in between. All of that
    /// blocks, and no future is awaited under it. After taking it, a change checks that the
    /// database is open, because closing takes it before it releases LOCK.
    pub(crate) changing_options: Arc<Mutex<()>>,
}

impl Ownership {
    /// Returns a function that returns the trees and the newest OPTIONS file, as of one moment. It
    /// blocks during a change of options.
    ///
    /// A separate function, because a job that runs it must not hold a handle of the database,
    /// which it would close if that were the last one.
    pub(crate) fn look(&self) -> impl FnOnce() -> (Moment, Option<FileName>) + Send + use<> {
        let (versions, newest) = (self.versions.clone(), self.options_file.clone());
        let changing = self.changing_options.clone();
        move || {
            // Locked so that OPTIONS is not replaced in between.
            let _unchanged = changing.lock();
            (versions.moment(), *newest.lock())
        }
    }

    /// Returns the newest OPTIONS file.
    pub(crate) fn options_file(&self) -> Option<FileName> {
        *self.options_file.lock()
    }

    /// Refuses further changes, waits for those in progress, removes obsolete files and releases
    /// the lock. Blocks. A second call does nothing. The database's life must have ended before.
    pub(crate) fn close(&self) -> Result<()> {
        // Waits for a change of options that began before the database was closed, and still writes
        // OPTIONS.
        drop(self.changing_options.lock());
        let env = self.versions.env();
        let verified = self.versions.verify_manifest();
        let last = self.versions.close();
        let outcome = last.map_or(Ok(()), |last| block_on(env, last)).and(verified);
        self.versions.end_manifest();
        block_on(env, self.versions.obsolete().close());
        outcome
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        // Closed on drop, so that an error between the opening and the first write leaves no lock
        // behind either.
        if let Err(error) = self.close() {
            report!(warn, %error, "closing the database");
        }
    }
}

/// New options that are about to replace the current ones.
#[derive(Default)]
pub(super) struct OptionsInForce<'a> {
    pub(super) db: Option<&'a DbOptions>,
    pub(super) family: Option<&'a FamilyConfig>,
}

/// Writes an OPTIONS file with the current options, replaced by those of `changed`, and removes all
/// but the newest two.
pub(super) fn write_options(
    read: &ReadHalf,
    ownership: &Ownership,
    changed: &OptionsInForce<'_>,
) -> Result<()> {
    const KEPT: usize = 2;
    // Invariant: the number is taken before the options are read, so a file with a larger number is
    // not older.
    let number = ownership.versions.new_file_number();
    let db_options = read.db_options.get();
    let mut text = changed_head(changed.db.unwrap_or(&db_options));
    for family in read.families.all().iter() {
        let settings = family.settings();
        let settings = changed.family.filter(|changed| changed.id == settings.id).unwrap_or(&settings);
        text += settings.options_text();
    }
    let (fs, name) = (read.env.fs(), FileName::Options(number));
    let temporary = read.path.join(FileName::TempOptions(number).to_string());
    write_synced(fs.as_ref(), &temporary, text.as_bytes())?;
    let renamed = fs.rename(&temporary, &read.path.join(name.to_string()));
    renamed.inspect_err(|_| drop(fs.remove(&temporary)))?;
    fs.sync_dir(&read.path)?;
    let mut newest = ownership.options_file.lock();
    *newest = (*newest).max(Some(name));
    drop(newest);
    let names = fs.list_dir(&read.path)?;
    let mut all: Vec<FileName> = names.iter().filter_map(|name| FileName::parse(name)).collect();
    all.retain(|name| matches!(name, FileName::Options(_)));
    all.sort_unstable_by_key(|name| std::cmp::Reverse(name.number()));
    let old = all.into_iter().skip(KEPT).map(Gone::Named);
    ownership.versions.obsolete().remove(old);
    Ok(())
}
