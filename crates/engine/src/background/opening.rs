//! Opening all tables in the background (`open_files_async`).
//!
//! In: the trees with which the database was opened. Out: open tables, and a line in LOG for a tree
//! with a table that cannot be opened; reads of that table return the error again.
//!
//! Invariant: the trees are held meanwhile, so that no file is removed while it is being opened.

use super::Background;
use karst_base::events::LogLevel;
use karst_base::pacing::{Raced, race};
use karst_io::Priority;
use karst_lsm::Version;
use karst_storage::column_family::Family;
use std::sync::{Arc, Weak};

impl Background {
    /// Starts opening all tables, at most `together` at a time.
    pub(super) fn open_files(self: &Arc<Self>, together: usize) {
        self.state.lock().opens_files = true;
        let tree = |family: &Arc<Family>| (family.clone(), family.superversion().version().clone());
        let trees = self.parts.families.all().iter().map(tree).collect();
        let slot = OpeningSlot(Arc::downgrade(self));
        drop(self.env().spawn(Priority::High, open_files(slot, trees, together)));
    }
}

async fn open_files(slot: OpeningSlot, trees: Vec<(Arc<Family>, Arc<Version>)>, together: usize) {
    for (family, version) in trees {
        let mut opening = Box::pin(family.tables.open_all(&version, together));
        let outcome = loop {
            let Some(background) = slot.0.upgrade() else { return };
            let changed = background.changed.listen();
            if background.state.lock().closing {
                return;
            }
            drop(background);
            match race(opening.as_mut(), changed).await {
                Raced::First(outcome) => break outcome,
                Raced::Second(()) => {}
            }
        };
        if let (Err(error), Some(background)) = (outcome, slot.0.upgrade()) {
            let text = format_args!("[{}] a table cannot be opened: {error}", family.config.name);
            background.parts.flush.events.log(LogLevel::Warn, text);
        }
    }
}

/// Marks the task as ended when dropped.
struct OpeningSlot(Weak<Background>);

impl Drop for OpeningSlot {
    fn drop(&mut self) {
        if let Some(background) = self.0.upgrade() {
            background.state.lock().opens_files = false;
            background.notify();
        }
    }
}
