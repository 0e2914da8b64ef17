//! Reports operations on a database's files to the listeners that ask for them.

use super::EventListener;
use karst_io::{FileObserver, FileOperation, FileOperationInfo, report};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// Forwards file operations in some directories to listeners.
#[derive(Debug)]
pub struct FileIoEvents {
    listeners: Vec<Arc<dyn EventListener>>,
    directories: Vec<PathBuf>,
}

impl FileIoEvents {
    /// Returns `None` if no listener wants file operations.
    pub fn of(
        mut listeners: Vec<Arc<dyn EventListener>>,
        directories: Vec<PathBuf>,
    ) -> Option<Arc<dyn FileObserver>> {
        listeners.retain(|listener| {
            // A panic counts as no: listeners' panics are caught everywhere.
            let asked = AssertUnwindSafe(|| listener.should_be_notified_on_file_io());
            catch_unwind(asked).unwrap_or_default()
        });
        (!listeners.is_empty()).then(|| Arc::new(FileIoEvents { listeners, directories }) as _)
    }
}

impl FileObserver for FileIoEvents {
    fn ended(&self, operation: &FileOperationInfo<'_>) {
        // Filtered by directory because several databases may share an environment.
        if !self.directories.iter().any(|directory| operation.path.starts_with(directory)) {
            return;
        }
        for listener in &self.listeners {
            let told = catch_unwind(AssertUnwindSafe(|| {
                match operation.operation {
                    FileOperation::Read => listener.file_read_finished(operation),
                    FileOperation::Write => listener.file_write_finished(operation),
                    FileOperation::Sync => listener.file_sync_finished(operation),
                    FileOperation::RangeSync => listener.file_range_sync_finished(operation),
                    FileOperation::Truncate => listener.file_truncate_finished(operation),
                    FileOperation::Close => listener.file_close_finished(operation),
                    _ => {}
                }
                if operation.error.is_some() {
                    listener.io_error(operation);
                }
            }));
            if told.is_err() {
                report!(error, ?listener, "an event listener panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_io::{Env, MemoryFileSystem};
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts calls; panics afterwards if `panics` is set.
    #[derive(Debug, Default)]
    struct Counts {
        wants: bool,
        panics: bool,
        writes: AtomicU64,
        errors: AtomicU64,
    }

    impl EventListener for Counts {
        fn should_be_notified_on_file_io(&self) -> bool {
            self.wants
        }
        fn file_write_finished(&self, _: &FileOperationInfo<'_>) {
            self.writes.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "the listener's own");
        }
        fn io_error(&self, operation: &FileOperationInfo<'_>) {
            assert!(operation.operation == FileOperation::Read && operation.error.is_some());
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_wants_to_know_is_told_of_the_databases_own_files() {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        let silent = Arc::new(Counts::default());
        assert!(FileIoEvents::of(vec![silent.clone()], vec!["/db".into()]).is_none());
        let bad = Arc::new(Counts { wants: true, panics: true, ..Counts::default() });
        let good = Arc::new(Counts { wants: true, ..Counts::default() });
        let listeners: Vec<Arc<dyn EventListener>> = vec![silent.clone(), bad.clone(), good.clone()];
        let observer = FileIoEvents::of(listeners, vec!["/db".into(), "/wal".into()]).unwrap();
        env.observe(&observer);
        for directory in ["/db", "/wal", "/other"] {
            env.fs().create_dir(Path::new(directory)).unwrap();
            let mut file = env.fs().create(&Path::new(directory).join("file")).unwrap();
            file.append(b"x").unwrap();
        }
        env.fs().read_file(Path::new("/db/none")).unwrap_err();
        env.fs().read_file(Path::new("/other/none")).unwrap_err();
        let counted = |of: &Counts| (of.writes.load(Ordering::Relaxed), of.errors.load(Ordering::Relaxed));
        assert_eq!([counted(&silent), counted(&bad), counted(&good)], [(0, 0), (2, 1), (2, 1)]);
    }
}
