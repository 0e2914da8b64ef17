//! The half of an open database that writes: its tree, its lock, and its OPTIONS files.
//!
//! In: an open database, and options that are about to be in force. Out: an OPTIONS file that says
//! so. Closing gives the lock back, last.

use super::Opened;
use crate::versions::{Gone, Versions, write_synced};
use karst_base::error::{Error, Result};
use karst_base::options::{DbOptions, FamilyConfig};
use karst_base::sync::Mutex;
use karst_format::file_name::FileName;
use karst_format::ids::FileNumber;
use karst_format::options::changed_head;
use karst_io::{Env, FileLock, block_on, report};
use std::path::Path;
use std::sync::Arc;

/// Takes the lock on the database.
pub(crate) fn take_lock(env: &Env, path: &Path) -> Result<Box<dyn FileLock>> {
    let file = path.join(FileName::Lock.to_string());
    env.fs().lock(&file).map_err(|e| match e.is_locked() {
        true => {
            Error::from(e).with_advice("the database is open elsewhere, in another process or in this one")
        }
        false => Error::from(e),
    })
}

/// What a database open for writing has besides.
#[derive(Debug)]
pub(crate) struct Writable {
    pub(crate) versions: Arc<Versions>,
    /// The number of the first log, which the pipeline creates.
    pub(crate) first_log: FileNumber,
    /// The OPTIONS file written last. Lock: held to read or set it.
    pub(super) options_file: Mutex<Option<FileName>>,
    /// Lock: whoever changes options, or which families there are, holds it from reading what is in
    /// force until the new is, with the OPTIONS file written in between. All of that blocks, and
    /// nothing is awaited under it. Asks whether the database is closed once it has it: closing
    /// takes it before it gives LOCK back.
    pub(crate) changing_options: Mutex<()>,
}

impl Writable {
    /// Refuses further changes, waits for those that were begun, removes what nobody needs and
    /// gives the lock back. Blocks. A second time does nothing. The database's life has ended
    /// before.
    pub(crate) fn close(&self) -> Result<()> {
        // Why: whoever changes options has not seen that the database is closed, and writes OPTIONS
        // still.
        drop(self.changing_options.lock());
        let env = self.versions.env();
        let last = self.versions.close();
        let outcome = last.map_or(Ok(()), |last| block_on(env, last));
        self.versions.end_manifest();
        block_on(env, self.versions.obsolete().close());
        outcome
    }
}

impl Drop for Writable {
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
pub(super) fn write_options(opened: &Opened, changed: &OptionsInForce<'_>) -> Result<()> {
    const KEPT: usize = 2;
    let writable = opened.writable()?;
    // Invariant: first the number, then what is in effect; so a file with a larger number is not
    // older.
    let number = writable.versions.new_file_number();
    let db_options = opened.db_options.get();
    let mut text = changed_head(changed.db.unwrap_or(&db_options));
    for family in opened.families.all().iter() {
        let settings = family.settings();
        let settings = changed.family.filter(|changed| changed.id == settings.id).unwrap_or(&settings);
        text += settings.options_text();
    }
    let (fs, name) = (opened.env.fs(), FileName::Options(number));
    let temporary = opened.path.join(FileName::TempOptions(number).to_string());
    write_synced(fs.as_ref(), &temporary, text.as_bytes())?;
    let renamed = fs.rename(&temporary, &opened.path.join(name.to_string()));
    renamed.inspect_err(|_| drop(fs.remove(&temporary)))?;
    fs.sync_dir(&opened.path)?;
    let mut newest = writable.options_file.lock();
    *newest = (*newest).max(Some(name));
    drop(newest);
    let names = fs.list_dir(&opened.path)?;
    let mut all: Vec<FileName> = names.iter().filter_map(|name| FileName::parse(name)).collect();
    all.retain(|name| matches!(name, FileName::Options(_)));
    all.sort_unstable_by_key(|name| std::cmp::Reverse(name.number()));
    let old = all.into_iter().skip(KEPT).map(Gone::Named);
    writable.versions.obsolete().remove(old);
    Ok(())
}
