//! What makes the directory ours while the database is open for writing: LOCK, the trees that the
//! MANIFEST describes, and the OPTIONS files.
//!
//! In: an open database, and options that are about to be in force. Out: an OPTIONS file that says
//! so. An opening that fails gives LOCK back, and so does [`Ownership::close`], last.

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
/// `Locked`: the database is open elsewhere. `InvalidArgument`: what is in the directory is another
/// database's, such as its logs.
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// The budget of memtables.
    pub(crate) write_buffers: WriteBufferManager,
    pub(crate) versions: Arc<Versions>,
    /// The number of the first log, which the pipeline creates.
    pub(crate) first_log: FileNumber,
    /// The OPTIONS file written last. Lock: held to read or set it.
    pub(super) options_file: Arc<Mutex<Option<FileName>>>,
    /// Lock: whoever changes options, or which families there are, holds it from reading what is in
    /// force until the new is, with the OPTIONS file written in between. All of that blocks, and
    /// nothing is awaited under it. Asks whether the database is closed once it has it: closing
    /// takes it before it gives LOCK back.
    pub(crate) changing_options: Arc<Mutex<()>>,
}

impl Ownership {
    /// Looks at the trees and at the OPTIONS file written last, as of one moment. Blocks while
    /// somebody changes options.
    ///
    /// Why a function of its own: a job that looks must not have a handle of the database, which it
    /// would close if that were the last one.
    pub(crate) fn look(&self) -> impl FnOnce() -> (Moment, Option<FileName>) + Send + use<> {
        let (versions, newest) = (self.versions.clone(), self.options_file.clone());
        let changing = self.changing_options.clone();
        move || {
            // Why: so that OPTIONS is not replaced in between.
            let _unchanged = changing.lock();
            (versions.moment(), *newest.lock())
        }
    }

    /// The OPTIONS file written last.
    pub(crate) fn options_file(&self) -> Option<FileName> {
        *self.options_file.lock()
    }

    /// Refuses further changes, waits for those that were begun, removes what nobody needs and
    /// gives the lock back. Blocks. A second time does nothing. The database's life has ended
    /// before.
    pub(crate) fn close(&self) -> Result<()> {
        // Why: whoever changes options has not seen that the database is closed, and writes OPTIONS
        // still.
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
        // Why: what fails between opening and the first write shall leave no lock behind either.
        if let Err(error) = self.close() {
            report!(warn, %error, "closing the database");
        }
    }
}

/// What is about to be in force in place of what is.
#[derive(Default)]
pub(super) struct OptionsInForce<'a> {
    pub(super) db: Option<&'a DbOptions>,
    pub(super) family: Option<&'a FamilyConfig>,
}

/// Writes an OPTIONS file with what is in effect, or is about to be, and removes all but the newest
/// two.
pub(super) fn write_options(
    read: &ReadHalf,
    ownership: &Ownership,
    changed: &OptionsInForce<'_>,
) -> Result<()> {
    const KEPT: usize = 2;
    // Invariant: first the number, then what is in effect; so a file with a larger number is not
    // older.
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
