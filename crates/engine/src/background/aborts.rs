//! Compactions that are all stopped, by whomever they were asked for, and let go on.
//!
//! In: calls of the user. Out: compactions that end soon and leave nothing behind, and none that
//! begin, until each call was taken back. Flushes go on, and so do writers until they would have to
//! wait for a compaction.

use super::Background;
use karst_base::error::{Error, ErrorKind, Result};
use std::sync::Arc;

pub(super) fn aborted() -> Error {
    Error::new(ErrorKind::Incomplete, "compactions are aborted")
}

impl Background {
    /// Cancels the compactions that run, and lets none begin until
    /// [`resume_compactions`](Self::resume_compactions). When it returns, none runs.
    pub(crate) async fn abort_compactions(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            state.aborted += 1;
            state.families.values().flat_map(|jobs| &jobs.progress).for_each(|progress| progress.cancel());
        }
        // Why: those that wait for something to end are told.
        self.notify();
        let _hurry = self.hurry();
        let runs = || self.state.lock().families.values().any(|jobs| !jobs.progress.is_empty());
        self.wait_for(|| (!runs()).then_some(())).await;
    }

    /// Takes one [`abort_compactions`](Self::abort_compactions) back.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn resume_compactions(self: &Arc<Self>) -> Result<()> {
        {
            let mut state = self.state.lock();
            let left = state.aborted.checked_sub(1);
            state.aborted = left.ok_or_else(|| Error::invalid_argument("compactions are not aborted"))?;
        }
        self.notify();
        self.schedule();
        Ok(())
    }
}
