//! Wide-column entities in a job: operands are merged with the default column, and columns in blob
//! files that are being emptied are moved back into the entity.
//!
//! In: an entity, and one by one its requested columns. Out: the entity to emit. Its other columns
//! stay as they are, in blob files or not.

use super::merging::Outcome;
use super::{EntryFilter, EntrySink, Flow, Pushed, Wanted};
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_format::blob::BlobIndex;
use karst_format::key::{SeqNo, ValueType};
use karst_format::wide_column::{self, WideColumn};

impl EntryFilter<'_> {
    /// Applies the operands to the entity's default column; the other columns stay, those in blob
    /// files too.
    ///
    /// Never deferred, because a file of the last level is rewritten until it holds no operands.
    pub(super) fn merge_with_entity(&mut self, entity: &[u8], sink: &mut impl EntrySink) -> Result<Flow> {
        let columns = self.columns(entity)?;
        if let Some(first) = columns.first().filter(|first| first.name.is_empty() && first.is_blob) {
            let reference = first.value;
            self.entity.clear();
            self.entity.extend_from_slice(entity);
            self.want(Wanted::MergeColumn, reference);
            return Ok(Flow::NeedsBlob);
        }
        self.merge_column(entity, None, sink)?;
        Ok(Flow::Consumed)
    }

    pub(super) fn columns<'e>(&self, entity: &'e [u8]) -> Result<Vec<WideColumn<'e>>> {
        wide_column::decode(entity).map_err(|c| {
            let text = format!("wide-column entity of key {}: {c}", Shown(self.user_key()));
            Error::new(ErrorKind::Corruption, text)
        })
    }

    /// Merges the operands with the default column of an entity, whose value is `brought` if it is
    /// in a blob file.
    pub(super) fn merge_column(
        &mut self,
        entity: &[u8],
        brought: Option<&[u8]>,
        sink: &mut impl EntrySink,
    ) -> Result<()> {
        let columns = self.columns(entity)?;
        let (default, others) = match columns.split_first() {
            Some((first, others)) if first.name.is_empty() => (brought.unwrap_or(first.value), others),
            _ => (&[][..], &columns[..]),
        };
        let merged = self.full_merge(Some(default))?;
        let value = match &merged {
            Outcome::Bytes(bytes) => bytes,
            Outcome::Base => default,
        };
        let mut merged = vec![WideColumn { name: b"", value, is_blob: false }];
        merged.extend_from_slice(others);
        let mut encoded = Vec::new();
        wide_column::encode_into(&merged, &mut encoded);
        self.counts.operands_merged += self.operands.len() as u64;
        let seq = self.operands.newest_seq();
        self.emit(seq, ValueType::WideColumnEntity, &encoded, sink)
    }

    /// Takes an entity that survives.
    ///
    /// Its columns move out of the blob file, because a blob file that is mostly garbage makes its
    /// tables due for compaction until no entry refers to it.
    pub(super) fn take_entity(
        &mut self,
        seq: SeqNo,
        entity: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        let columns = self.columns(entity)?;
        let Some(moving) = self.moving(&columns)? else {
            self.emit(seq, ValueType::WideColumnEntity, entity, sink)?;
            return Ok(Pushed::Done);
        };
        self.want(Wanted::MovedColumn { seq }, columns[moving].value);
        self.entity.clear();
        self.entity.extend_from_slice(entity);
        Ok(Pushed::NeedsBlob)
    }

    /// Replaces the reference to the requested column by the column's value.
    pub(super) fn column_moved(
        &mut self,
        seq: SeqNo,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        let entity = std::mem::take(&mut self.entity);
        let mut columns = self.columns(&entity)?;
        if let Some(moving) = self.moving(&columns)? {
            columns[moving] = WideColumn { name: columns[moving].name, value, is_blob: false };
        }
        let mut moved = Vec::new();
        wide_column::encode_into(&columns, &mut moved);
        self.counts.blobs_relocated += 1;
        self.counts.blob_bytes_relocated += value.len() as u64;
        self.take_entity(seq, &moved, sink)
    }

    /// Returns the first column in a blob file that is being emptied.
    fn moving(&self, columns: &[WideColumn<'_>]) -> Result<Option<usize>> {
        for (at, column) in columns.iter().enumerate().filter(|(_, column)| column.is_blob) {
            if let BlobIndex::Stored { file, .. } = self.decode_reference(column.value)?
                && file < self.blob_cutoff
            {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}
