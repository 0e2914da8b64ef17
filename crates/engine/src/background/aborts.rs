//! Aborting all compactions, automatic and manual, and resuming them.
//!
//! In: calls of the user. Out: running compactions end soon and remove their outputs, and none
//! begins, until each call was undone. Flushes continue, and so do writers until they would have to
//! wait for a compaction.

use super::Background;
use karst_base::error::{Error, ErrorKind, Result};
use std::sync::Arc;

pub(super) fn aborted() -> Error {
    Error::new(ErrorKind::Incomplete, "compactions are aborted")
}

impl Background {
    /// Cancels the running compactions, and starts none until
    /// [`resume_compactions`](Self::resume_compactions). None runs when it returns.
    pub(crate) async fn abort_compactions(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            state.aborted += 1;
            state.families.values().flat_map(|jobs| &jobs.progress).for_each(|progress| progress.cancel());
        }
        // Wakes compactions that wait for another job to end.
        self.notify();
        let _hurry = self.hurry();
        let runs = || self.state.lock().families.values().any(|jobs| !jobs.progress.is_empty());
        self.wait_for(|| (!runs()).then_some(())).await;
    }

    /// Undoes one [`abort_compactions`](Self::abort_compactions).
    ///
    /// # Errors
    /// Compactions are not aborted.
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
