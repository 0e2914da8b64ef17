//! Applies the user's compaction filter: selects the entries to pass to it, and executes its
//! decisions.
//!
//! In: the job's newest entry of a user key. Out: the entry unchanged, another entry, or none.
//! Values in blob files are fetched first, unless the filter decides by the key.
//!
//! Invariant: an entry is passed to the filter at most once.
//! Compat: RocksDB's rules, see `CompactionIterator::InvokeFilterIfNeeded` and
//! `MergeHelper::FilterMerge`.

use super::{EntryFilter, EntrySink, Pushed, Wanted};
use karst_base::compaction_filter::{CompactionFilter, FilterDecision, FilterInput};
use karst_base::error::{Error, Result, Shown};
use karst_format::blob::BlobIndex;
use karst_format::key::{SeqNo, ValueType};
use karst_format::wide_column::{self, WideColumn};
use std::sync::Arc;

/// A compaction filter and the level to pass to it.
#[derive(Clone, Debug)]
pub(crate) struct UserFilter {
    filter: Arc<dyn CompactionFilter>,
    level: u32,
}

impl UserFilter {
    /// Creates the filter of a job that starts from `level`.
    ///
    /// # Errors
    /// `NotSupported` if the filter's `ignore_snapshots` is false.
    pub(crate) fn new(filter: Arc<dyn CompactionFilter>, level: u32) -> Result<UserFilter> {
        if !filter.ignore_snapshots() {
            let text = format!("compaction filter {:?}: ignore_snapshots() = false", filter.name());
            return Err(Error::not_supported(text));
        }
        Ok(UserFilter { filter, level })
    }

    fn ask(&self, user_key: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        self.filter.filter(self.level, user_key, entry)
    }
}

/// State of the user's filter between entries.
#[derive(Debug, Default)]
pub(super) struct Filtering {
    pub(super) user: Option<UserFilter>,
    /// Entries of keys below this one are dropped.
    skip_until: Option<Vec<u8>>,
    /// Operands with sequence numbers up to this one are not filtered.
    newest_snapshot: SeqNo,
    /// The stored entity to pass to the filter, and the values of its columns fetched so far.
    entity: Vec<u8>,
    brought: Vec<Vec<u8>>,
}

/// Result of filtering a merge operand.
pub(super) enum OperandFate {
    Stays,
    Goes,
    Becomes(Vec<u8>),
    /// It is dropped, with all other operands and all of the key.
    Skips,
}

impl Filtering {
    pub(super) fn new(user: Option<UserFilter>, newest_snapshot: SeqNo) -> Filtering {
        Filtering { user, newest_snapshot, ..Filtering::default() }
    }
}

impl EntryFilter<'_> {
    /// Returns true if entries of the key are being skipped.
    #[inline]
    pub(super) fn skips(&mut self, user_key: &[u8]) -> bool {
        let Some(until) = &self.filtering.skip_until else { return false };
        if self.comparator.compare_user(user_key, until).is_lt() {
            return true;
        }
        self.filtering.skip_until = None;
        false
    }

    /// Passes the newest entry of the current key to the filter, and executes its decision. Out of
    /// line, because databases without filters never come here.
    #[cold]
    #[inline(never)]
    pub(super) fn take_filtered(
        &mut self,
        seq: SeqNo,
        kind: ValueType,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        let Some(user) = &self.filtering.user else { return self.take(seq, kind, value, sink) };
        let decision = match kind {
            ValueType::Value => user.ask(self.user_key(), FilterInput::Value(value)),
            ValueType::BlobIndex => match user.filter.filter_blob_by_key(user.level, self.user_key()) {
                Some(decision) => decision,
                None => {
                    if let BlobIndex::InlinedTtl { .. } = self.decode_reference(value)? {
                        return self.take(seq, kind, value, sink);
                    }
                    self.want(Wanted::FilteredValue { seq }, value);
                    return Ok(Pushed::NeedsBlob);
                }
            },
            ValueType::WideColumnEntity => {
                self.filtering.entity.clear();
                self.filtering.entity.extend_from_slice(value);
                self.filtering.brought.clear();
                return self.show_entity(seq, sink);
            }
            _ => return self.take(seq, kind, value, sink),
        };
        self.follow(decision, seq, kind, value, sink)
    }

    /// Passes the blob value that was fetched for the filter to it.
    pub(super) fn filter_brought(
        &mut self,
        seq: SeqNo,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        let user = self.filtering.user.as_ref().expect("only a filter wants it");
        let decision = user.ask(self.user_key(), FilterInput::Value(value));
        if decision != FilterDecision::Keep {
            return self.follow(decision, seq, ValueType::BlobIndex, &[], sink);
        }
        let reference = std::mem::take(&mut self.reference);
        let pushed = self.take(seq, ValueType::BlobIndex, &reference, sink)?;
        if pushed == Pushed::NeedsBlob {
            // The blob file is being emptied: the value to rewrite is already in memory.
            return self.bring(value, sink);
        }
        self.reference = reference;
        Ok(pushed)
    }

    /// Takes the next fetched column of the current entity.
    pub(super) fn column_brought(
        &mut self,
        seq: SeqNo,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        self.filtering.brought.push(value.to_vec());
        self.show_entity(seq, sink)
    }

    /// Passes the entity to the filter once all its columns are fetched; until then requests the
    /// next one.
    fn show_entity(&mut self, seq: SeqNo, sink: &mut impl EntrySink) -> Result<Pushed> {
        let entity = std::mem::take(&mut self.filtering.entity);
        let columns = self.columns(&entity)?;
        let mut brought = self.filtering.brought.iter();
        let mut shown = Vec::with_capacity(columns.len());
        let mut wanted = None;
        for column in &columns {
            let value = match (column.is_blob, column.is_blob.then(|| brought.next()).flatten()) {
                (false, _) => column.value,
                (true, Some(value)) => &value[..],
                (true, None) => {
                    wanted = Some(column.value.to_vec());
                    break;
                }
            };
            shown.push((column.name, value));
        }
        if let Some(reference) = wanted {
            self.want(Wanted::FilteredColumn { seq }, &reference);
            self.filtering.entity = entity;
            return Ok(Pushed::NeedsBlob);
        }
        let user = self.filtering.user.as_ref().expect("only a filter is shown entities");
        let decision = user.ask(self.user_key(), FilterInput::Entity(&shown));
        let pushed = self.follow(decision, seq, ValueType::WideColumnEntity, &entity, sink);
        self.filtering.entity = entity;
        pushed
    }

    fn follow(
        &mut self,
        decision: FilterDecision,
        seq: SeqNo,
        kind: ValueType,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        match decision {
            FilterDecision::Keep => self.take(seq, kind, value, sink),
            FilterDecision::Remove => {
                self.counts.dropped_user += 1;
                self.take(seq, ValueType::Deletion, &[], sink)
            }
            FilterDecision::Purge => {
                self.counts.dropped_user += 1;
                self.take(seq, ValueType::SingleDeletion, &[], sink)
            }
            FilterDecision::ChangeValue(new) => self.take(seq, ValueType::Value, &new, sink),
            FilterDecision::ChangeEntity(mut new) => {
                new.sort();
                if new.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                    return Err(self.misused("gave an entity two columns of one name"));
                }
                let column = |(name, value)| WideColumn { name, value, is_blob: false };
                let columns: Vec<_> =
                    new.iter().map(|(name, value)| column((&name[..], &value[..]))).collect();
                let mut encoded = Vec::new();
                wide_column::encode_into(&columns, &mut encoded);
                self.take(seq, ValueType::WideColumnEntity, &encoded, sink)
            }
            FilterDecision::RemoveAndSkipUntil(until) => {
                if !self.skip_to(until) {
                    return self.take(seq, kind, value, sink);
                }
                Ok(Pushed::Done)
            }
        }
    }

    /// Skips all keys below `until`. Compat: a key that is not above the current one has no effect.
    fn skip_to(&mut self, until: Vec<u8>) -> bool {
        let ahead = self.comparator.compare_user(&until, self.user_key()).is_gt();
        if ahead {
            self.filtering.skip_until = Some(until);
        }
        ahead
    }

    /// Returns the filter's decision about an operand of the current key.
    pub(super) fn filter_operand(&mut self, seq: SeqNo, operand: &[u8]) -> Result<OperandFate> {
        let Some(user) = &self.filtering.user else { return Ok(OperandFate::Stays) };
        if seq <= self.filtering.newest_snapshot || self.stripes.is_undecided(seq) {
            return Ok(OperandFate::Stays);
        }
        Ok(match user.ask(self.user_key(), FilterInput::MergeOperand(operand)) {
            FilterDecision::Keep => OperandFate::Stays,
            FilterDecision::Remove | FilterDecision::Purge => {
                self.counts.dropped_user += 1;
                OperandFate::Goes
            }
            FilterDecision::ChangeValue(new) => OperandFate::Becomes(new),
            FilterDecision::ChangeEntity(_) => {
                return Err(self.misused("made an entity of a merge operand"));
            }
            FilterDecision::RemoveAndSkipUntil(until) => match self.skip_to(until) {
                true => OperandFate::Skips,
                false => OperandFate::Stays,
            },
        })
    }

    fn misused(&self, what: &str) -> Error {
        let name = self.filtering.user.as_ref().map_or("", |user| user.filter.name());
        let key = Shown(self.user_key());
        Error::invalid_argument(format!("key {key}: compaction filter {name:?} {what}"))
    }

    /// Marks the entry below as not yet filtered, because the entries above it were dropped.
    pub(super) fn uncover(&mut self) {
        self.last = None;
        self.unseen = true;
    }
}
