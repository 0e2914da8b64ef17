//! A sorted run: ascending entries in, table files of about the target size out.
//!
//! Invariants: all entries of a user key are in one file, so that files of a level do not share user keys. A range tombstone is cut where
//! files are cut, so that each file holds what concerns its own range of keys.

use crate::error::{Error, Result};
use crate::range_del::Fragments;
use karst_format::comparator::Comparator;
use karst_format::key::{self, SeqNo};
use karst_format::table_builder::{FinishedTable, TableBuildError, TableBuilder, TableOptions};
use karst_io::{FileSystem, WritableFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Written bytes are handed to the file in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// A table file that is complete and synced.
#[derive(Debug)]
pub(super) struct WrittenTable {
    pub(super) number: u64,
    pub(super) table: FinishedTable,
}

/// Makes the next file of the run: its number, its path and its table's options.
pub(super) type NextFile<'a> = dyn FnMut() -> Result<(u64, PathBuf, TableOptions)> + 'a;

/// Writes one sorted run.
pub(super) struct RunWriter {
    fs: Arc<dyn FileSystem>,
    comparator: Comparator,
    target_bytes: u64,
    current: Option<OpenTable>,
    last_user_key: Vec<u8>,
    tombstones: Option<Arc<Fragments>>,
    /// Where the current file's range of keys begins; from the start of the run at first.
    lower: Option<Vec<u8>>,
    written: Vec<WrittenTable>,
}

struct OpenTable {
    number: u64,
    file: Box<dyn WritableFile>,
    builder: TableBuilder,
    /// Bytes that the file has already.
    handed_over: u64,
}

impl RunWriter {
    /// An empty run of files of about `target_bytes`, over which `tombstones` lie.
    pub(super) fn new(
        fs: Arc<dyn FileSystem>,
        comparator: Comparator,
        target_bytes: u64,
        tombstones: Option<Arc<Fragments>>,
    ) -> Self {
        let (current, lower) = (None, None);
        Self {
            fs,
            comparator,
            target_bytes,
            current,
            last_user_key: Vec::new(),
            tombstones,
            lower,
            written: Vec::new(),
        }
    }

    /// Adds an entry. Internal keys must ascend.
    pub(super) fn add(&mut self, internal_key: &[u8], value: &[u8], next: &mut NextFile<'_>) -> Result<()> {
        let user_key = key::user_key(internal_key);
        let full = |open: &OpenTable| open.builder.estimated_file_bytes() >= self.target_bytes;
        if self.current.as_ref().is_some_and(full)
            && self.comparator.compare_user(&self.last_user_key, user_key).is_ne()
        {
            self.close(Some(user_key))?;
        }
        let open = match &mut self.current {
            Some(open) => open,
            none => none.insert(OpenTable::create(self.fs.as_ref(), next)?),
        };
        open.builder.add(internal_key, value).map_err(build_error)?;
        open.write_pieces(PIECE_BYTES)?;
        self.last_user_key.clear();
        self.last_user_key.extend_from_slice(user_key);
        Ok(())
    }

    /// Ends the run.
    pub(super) fn finish(mut self, next: &mut NextFile<'_>) -> Result<Vec<WrittenTable>> {
        let left = match &self.tombstones {
            Some(fragments) => {
                !fragments.overlapping(&self.comparator, self.lower.as_deref(), None).is_empty()
            }
            None => false,
        };
        if self.current.is_none() && left {
            self.current = Some(OpenTable::create(self.fs.as_ref(), next)?);
        }
        self.close(None)?;
        Ok(self.written)
    }

    /// Ends the current file, whose range of keys ends before `upper`.
    fn close(&mut self, upper: Option<&[u8]>) -> Result<()> {
        let Some(mut open) = self.current.take() else { return Ok(()) };
        if let Some(fragments) = self.tombstones.clone() {
            self.add_tombstones(&mut open.builder, &fragments, upper)?;
        }
        let table = open.builder.finish();
        open.write_pieces(0)?;
        open.file.sync().map_err(Error::from)?;
        self.written.push(WrittenTable { number: open.number, table });
        self.lower = upper.map(<[u8]>::to_vec);
        Ok(())
    }

    /// Adds the parts of the tombstones from the current lower bound up to `upper`.
    fn add_tombstones(
        &self,
        builder: &mut TableBuilder,
        fragments: &Fragments,
        upper: Option<&[u8]>,
    ) -> Result<()> {
        let lower = self.lower.as_deref();
        for i in fragments.overlapping(&self.comparator, lower, upper) {
            let (mut start, mut end) = (fragments.start(i), fragments.end(i));
            if let Some(lower) = lower.filter(|lower| self.comparator.compare_user(start, lower).is_lt()) {
                start = lower;
            }
            if let Some(upper) = upper.filter(|upper| self.comparator.compare_user(end, upper).is_gt()) {
                end = upper;
            }
            for seq in fragments.seqs(i) {
                builder.add_range_deletion(start, end, SeqNo(seq.0)).map_err(build_error)?;
            }
        }
        Ok(())
    }
}

impl OpenTable {
    fn create(fs: &dyn FileSystem, next: &mut NextFile<'_>) -> Result<OpenTable> {
        let (number, path, options) = next()?;
        let builder = TableBuilder::new(options).map_err(build_error)?;
        Ok(OpenTable { number, file: create(fs, &path)?, builder, handed_over: 0 })
    }

    /// Hands what was written to the file once it is more than `beyond` bytes.
    fn write_pieces(&mut self, beyond: u64) -> Result<()> {
        if self.builder.file_bytes() - self.handed_over > beyond {
            self.file.append(&self.builder.take_output()).map_err(Error::from)?;
            self.handed_over = self.builder.file_bytes();
        }
        Ok(())
    }
}

fn create(fs: &dyn FileSystem, path: &Path) -> Result<Box<dyn WritableFile>> {
    fs.create(path).map_err(Error::from)
}

fn build_error(error: TableBuildError) -> Error {
    let text = error.to_string();
    Error::with_source(crate::error::ErrorKind::InvalidArgument, text, error)
}
