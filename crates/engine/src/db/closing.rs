//! Closing a database: background work ends, and the lock on the directory is released.
//!
//! In: an open database that is closed or dropped. Out: errors, if there is a caller to return them
//! to. Closing blocks, except if the last handle is dropped inside a background job, which leaves
//! closing to a separate thread.

use super::Inner;
use super::trace::Traces;
use crate::write_half::WriteHalf;
use karst_io::report;
use std::path::Path;

/// Closes a database whose last handle was dropped, and reports errors because there is no caller
/// to return them to.
fn end_unseen(write: Option<&WriteHalf>, traces: &Traces, path: &Path) {
    if let Some(Err(error)) = write.map(WriteHalf::close) {
        report!(warn, database = %path.display(), %error, "closing the database");
    }
    if let Err(error) = traces.end() {
        report!(warn, database = %path.display(), %error, "ending the traces of the database");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let write = self.write.take();
        if self.read.life.is_left_behind() {
            // All of it is leaked, because closing would wait for threads that stayed with the
            // parent process, and the files and the lock belong to the parent.
            std::mem::forget((write, self.read.families.clone(), self.read.shared.clone()));
            return;
        }
        if write.is_none() && !self.traces.any() {
            return;
        }
        let (traces, path) = (self.traces.clone(), self.read.path.clone());
        if !karst_io::in_background() {
            return end_unseen(write.as_ref(), &traces, &path);
        }
        // On a separate thread, because the job that drops the handle may be one that closing waits
        // for.
        let apart = move || end_unseen(write.as_ref(), &traces, &path);
        if let Err(error) = self.read.env.run_apart("karst-close", apart) {
            report!(error, %error, "a database is not closed in order: there is no thread for it");
        }
    }
}
