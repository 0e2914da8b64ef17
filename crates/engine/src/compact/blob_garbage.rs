//! Blob garbage of a job: the number of values and bytes per blob file that it makes garbage.
//!
//! In: the references among input entries and among output entries; or tables that are deleted as a
//! whole. Out: the difference per blob file.
//! Invariant: values that the job itself stores are in new files, which are not counted, because no
//! input entry refers to them.

use crate::read::iter::job_input::{InputOptions, JobInput};
use karst_base::error::Result;
use karst_format::blob::RECORD_HEADER_BYTES;
use karst_format::ids::{FileNumber, Level};
use karst_format::key;
use karst_format::version_edit::BlobFileGarbage;
use karst_lsm::FileMetadata;
use karst_lsm::pick::CompactionInput;
use karst_storage::table::cache::TableCache;
use karst_storage::table::writer::visit_references;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes read ahead at a time from a table that is read only to count its references.
const READAHEAD_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    came: (u64, u64),
    went: (u64, u64),
}

/// The references that pass through a job, per blob file.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlobGarbage {
    files: BTreeMap<FileNumber, Flow>,
}

impl BlobGarbage {
    /// Counts an input entry; `kind` is its type's number.
    pub(crate) fn comes(&mut self, internal_key: &[u8], kind: u8, value: &[u8]) -> Result<()> {
        visit_references(internal_key, kind, value, |file, size| {
            let flow = self.files.entry(file).or_default();
            flow.came.0 += 1;
            flow.came.1 += record_bytes(internal_key, size);
        })
    }

    /// Counts all entries of a table. Calls `may_go_on` at intervals.
    ///
    /// # Errors
    /// The table cannot be read, or `may_go_on` failed.
    pub(crate) async fn comes_from(
        &mut self,
        tables: &Arc<TableCache>,
        (level, file): (Level, &Arc<FileMetadata>),
        may_go_on: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let inputs = [CompactionInput { level, files: vec![file.clone()] }];
        let options = InputOptions {
            readahead_bytes: READAHEAD_BYTES,
            verify_checksums: true,
            lower: None,
            upper: None,
        };
        let mut input = JobInput::new(tables.clone(), &[], &inputs, options);
        input.start().await?;
        while input.valid() {
            let (internal_key, value) = input.entry();
            self.comes(internal_key, internal_key[internal_key.len() - key::TRAILER_BYTES], value)?;
            if !input.advance()? {
                may_go_on()?;
                input.arrive().await?;
            }
        }
        Ok(())
    }

    /// Counts an output entry.
    pub(crate) fn goes(&mut self, internal_key: &[u8], kind: u8, value: &[u8]) -> Result<()> {
        visit_references(internal_key, kind, value, |file, size| {
            if let Some(flow) = self.files.get_mut(&file) {
                flow.went.0 += 1;
                flow.went.1 += record_bytes(internal_key, size);
            }
        })
    }

    /// Adds the counts of another part of the job.
    pub(crate) fn add(&mut self, other: &BlobGarbage) {
        for (file, theirs) in &other.files {
            let flow = self.files.entry(*file).or_default();
            flow.came = (flow.came.0 + theirs.came.0, flow.came.1 + theirs.came.1);
            flow.went = (flow.went.0 + theirs.went.0, flow.went.1 + theirs.went.1);
        }
    }

    /// Returns the values that became garbage, per blob file.
    pub(crate) fn total(&self) -> Vec<BlobFileGarbage> {
        let garbage = self.files.iter().map(|(number, flow)| BlobFileGarbage {
            number: *number,
            count: flow.came.0 - flow.went.0.min(flow.came.0),
            bytes: flow.came.1 - flow.went.1.min(flow.came.1),
        });
        garbage.filter(|garbage| garbage.count > 0).collect()
    }
}

fn record_bytes(internal_key: &[u8], size: u64) -> u64 {
    (RECORD_HEADER_BYTES + key::user_key(internal_key).len()) as u64 + size
}
