//! An undo log: the records that undo changes since each save point.
//!
//! Records are returned newest first by a rollback to the last save point. Without a save point no
//! record is kept.

/// Undo records and save points.
#[derive(Debug)]
pub(crate) struct UndoLog<T> {
    /// Undo records since the first save point, oldest first.
    changes: Vec<T>,
    /// Number of records at each save point.
    save_points: Vec<usize>,
}

impl<T> Default for UndoLog<T> {
    fn default() -> Self {
        Self { changes: Vec::new(), save_points: Vec::new() }
    }
}

impl<T> UndoLog<T> {
    /// Returns true if changes must be pushed, because a save point is set.
    pub(crate) fn is_kept(&self) -> bool {
        !self.save_points.is_empty()
    }

    pub(crate) fn push(&mut self, change: T) {
        debug_assert!(self.is_kept());
        self.changes.push(change);
    }

    /// Removes the last record, because its change was undone.
    pub(crate) fn pop(&mut self) {
        debug_assert!(self.save_points.last().is_some_and(|before| *before < self.changes.len()));
        self.changes.pop();
    }

    pub(crate) fn set_save_point(&mut self) {
        self.save_points.push(self.changes.len());
    }

    /// Removes the last save point and keeps the changes since.
    pub(crate) fn pop_save_point(&mut self) {
        self.save_points.pop();
        if self.save_points.is_empty() {
            self.changes.clear();
        }
    }

    /// Removes the last save point, and removes and returns the records since, newest first.
    pub(crate) fn take_back(&mut self) -> impl Iterator<Item = T> {
        let kept = self.save_points.pop().unwrap_or(0);
        self.changes.drain(kept..).rev()
    }

    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.save_points.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_points_nest() {
        let mut log = UndoLog::default();
        assert!(!log.is_kept());
        log.set_save_point();
        log.push(1);
        log.set_save_point();
        log.push(2);
        log.push(3);
        assert_eq!(log.take_back().collect::<Vec<_>>(), [3, 2]);
        log.set_save_point();
        log.push(4);
        log.pop_save_point();
        assert_eq!(
            log.take_back().collect::<Vec<_>>(),
            [4, 1],
            "what a popped save point kept is the one's before it"
        );
        assert!(!log.is_kept());
    }
}
