//! The end of a database: background work ends, and the lock on the directory is released.
//!
//! In: an open database that is closed or dropped. Out: what failed, if there is a caller to tell.
//! Closing blocks, except where the last handle is dropped inside a background job, which leaves it
//! to a thread.

use super::Inner;
use super::trace::Traces;
use crate::write_half::WriteHalf;
use karst_io::report;
use std::path::Path;

/// The end of a database whose last handle was dropped, where nobody can be told what failed.
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
            // Why leaked, all of it: what its end would wait for stayed with the parent, and the
            // files and the lock are the parent's.
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
        // Why on a thread of its own: the job that this is a part of may be one that has to end
        // first.
        let apart = move || end_unseen(write.as_ref(), &traces, &path);
        if let Err(error) = self.read.env.run_apart("karst-close", apart) {
            report!(error, %error, "a database is not closed in order: there is no thread for it");
        }
    }
}
