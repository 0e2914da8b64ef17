//! The I/O trace: a record of the operations on a database's files.
//!
//! In: operations reported by an environment ([`FileObserver`]). Out: records for a tracer.

use super::Tracer;
use karst_format::trace::{FILE_ACCESS, FileAccess};
use karst_io::{FileObserver, FileOperation, FileOperationInfo};
use std::path::PathBuf;
use std::sync::Arc;

/// Adds operations on files in some directories to a trace.
#[derive(Debug)]
pub struct IoObserver {
    tracer: Arc<Tracer>,
    directories: Vec<PathBuf>,
}

impl IoObserver {
    /// Creates an observer for a tracer of file operations.
    pub fn of(tracer: Arc<Tracer>, directories: Vec<PathBuf>) -> Arc<dyn FileObserver> {
        Arc::new(Self { tracer, directories })
    }
}

impl FileObserver for IoObserver {
    fn ended(&self, info: &FileOperationInfo<'_>) {
        // Filtered by directory because several databases may share an environment.
        if !self.directories.iter().any(|directory| info.path.starts_with(directory)) {
            return;
        }
        let (name, has_size, has_place) = match info.operation {
            FileOperation::Read => ("Read", false, true),
            FileOperation::Write => ("Append", false, true),
            FileOperation::Sync => ("Sync", false, false),
            FileOperation::RangeSync => ("RangeSync", false, true),
            FileOperation::Truncate => ("Truncate", true, false),
            FileOperation::Close => ("Close", false, false),
            _ => return,
        };
        let status = info.error.map_or_else(|| "OK".to_owned(), |error| format!("IO error: {error}"));
        let file_name = info.path.file_name().unwrap_or_default();
        let access = FileAccess {
            operation: name.as_bytes(),
            nanos: info.duration.as_nanos() as u64,
            status: status.as_bytes(),
            file_name: file_name.as_encoded_bytes(),
            size: has_size.then_some(info.offset),
            length: has_place.then_some(info.length),
            offset: has_place.then_some(info.offset),
        };
        self.tracer.add(FILE_ACCESS, |_| false, |out| access.put_payload(out));
    }
}
