//! The end of a database: background work ends, and the lock on the directory is released.
//!
//! In: an open database that is closed or dropped. Out: what failed, if there is a caller to tell.
//! Closing blocks, except where the last handle is dropped inside a background job, which leaves it
//! to a thread.

use super::Inner;
use crate::live::Live;
use crate::open::Writable;
use karst_base::error::Result;
use karst_io::report;
use std::path::Path;

/// Ends what goes on in the background and gives the lock back.
pub(super) fn end(live: Option<&Live>, writable: Option<&Writable>) -> Result<()> {
    // Why all, whatever fails: the lock has to be given back.
    let ended = live.map_or(Ok(()), Live::close);
    let closed = writable.map_or(Ok(()), Writable::close);
    ended.and(closed)
}

/// The end of a database whose last handle was dropped, where nobody can be told what failed.
fn end_unseen(live: Option<Live>, writable: Option<Writable>, path: &Path) {
    if let Err(error) = end(live.as_ref(), writable.as_ref()) {
        report!(warn, database = %path.display(), %error, "closing the database");
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let (live, writable) = (self.live.take(), self.opened.writable.take());
        let path = self.opened.path.clone();
        if live.is_none() && writable.is_none() {
            return;
        }
        if self.opened.life.is_left_behind() {
            // Why leaked, all of it: what its end would wait for stayed with the parent, and the
            // files and the lock are the parent's.
            return std::mem::forget((
                live,
                writable,
                self.opened.families.clone(),
                self.opened.shared.clone(),
            ));
        }
        if !karst_io::in_background() {
            return end_unseen(live, writable, &path);
        }
        // Why on a thread of its own: the job that this is a part of may be one that has to end
        // first.
        let apart = move || end_unseen(live, writable, &path);
        if let Err(error) = self.opened.env.run_apart("karst-close", apart) {
            report!(error, %error, "a database is not closed in order: there is no thread for it");
        }
    }
}
