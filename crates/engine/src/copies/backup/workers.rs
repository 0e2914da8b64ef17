//! Running jobs of a backup engine, which may still write after their caller was dropped.

use karst_base::sync::{Event, Mutex};
use karst_io::FileLock;
use std::sync::Arc;

/// Number of running jobs, and the event of their end.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers(Arc<(Mutex<usize>, Event)>);

/// A running job, with the lock on the directory, so that the next engine waits for its end too.
pub(super) struct AtWork {
    workers: Workers,
    lock: Option<Arc<Box<dyn FileLock>>>,
}

impl Workers {
    pub(super) fn enter(&self, lock: Option<Arc<Box<dyn FileLock>>>) -> AtWork {
        *self.0.0.lock() += 1;
        AtWork { workers: self.clone(), lock }
    }

    /// Waits until no job runs.
    pub(super) async fn wait(&self) {
        loop {
            let ended = self.0.1.listen();
            if self.count() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn count(&self) -> usize {
        *self.0.0.lock()
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        // Invariant: released before the count decreases, because a waiter for that may drop the
        // engine, and the directory must then be free at once.
        self.lock = None;
        *self.workers.0.0.lock() -= 1;
        self.workers.0.1.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[derive(Debug)]
    struct CountedLock(Workers, Arc<Mutex<Vec<usize>>>);

    impl FileLock for CountedLock {
        fn path(&self) -> &Path {
            Path::new("/backups/BACKUP_LOCK")
        }
    }

    impl Drop for CountedLock {
        fn drop(&mut self) {
            self.1.lock().push(self.0.count());
        }
    }

    #[test]
    fn the_lock_is_let_go_before_the_last_worker_counts_as_ended() {
        let (workers, at_work_then) = (Workers::default(), Arc::new(Mutex::new(Vec::new())));
        let lock: Box<dyn FileLock> = Box::new(CountedLock(workers.clone(), at_work_then.clone()));
        let lock = Arc::new(lock);
        let both = [workers.enter(Some(lock.clone())), workers.enter(Some(lock))];
        both.into_iter().for_each(drop);
        assert_eq!(*at_work_then.lock(), [1], "the directory would still be locked");
        assert_eq!(workers.count(), 0);
    }
}
