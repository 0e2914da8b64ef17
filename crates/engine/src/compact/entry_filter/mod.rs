//! The entry filter: decides which entries of a flush or a compaction survive, and in which form.
//!
//! In: internal keys in ascending order with their values ([`EntryFilter::push`]), and the job's
//! facts: the snapshots, the range tombstones of all inputs, and if older data can exist. Out:
//! entries in ascending order, into an [`EntrySink`]. Nothing is read and nothing waits here: if a
//! value in a blob file is needed, `push` returns [`Pushed::NeedsBlob`], and the caller passes the
//! value to [`EntryFilter::supply`].
//!
//! | entry | becomes |
//! |---|---|
//! | hidden by a newer one of its key in the same stripe | nothing |
//! | hidden by a range tombstone of its stripe | nothing |
//! | deletion that every reader sees, and nothing older can exist | nothing |
//! | single deletion and the entry it deletes, in one stripe | nothing; a deletion, if transactions may be rolled back after they have inserted |
//! | merge operands of one stripe on a value, or at the bottom | a value |
//! | merge operands of one stripe, nothing known below | one operand if the operator can, else unchanged |
//! | reference to a blob file that is being emptied | the value, which the sink stores anew |
//! | an entry that every reader sees, at the bottom | the entry with sequence number 0 |
//! | an entry inserted by an undecided transaction | unchanged |
//! | written before `history_low`, and hidden by a newer timestamp before it, for all readers | nothing |
//! | written after `trim_ts` | nothing |
//! | the newest of a key, if there is a compaction filter | the filter's decision (`by_user`) |
//!
//! With user-defined timestamps each timestamp of a key counts as a key of its own. Its operands
//! are not merged, and a deletion stays until `history_low` has passed it, because it hides earlier
//! timestamps, of which the job may have entries.
//!
//! Invariant: without a compaction filter, a reader at one of the snapshots, or above all entries,
//! sees equal results in the output and in the input, each together with the older data below.
//! (Tested as a property over random histories in `tests`.)
//! Compat: RocksDB's rules (db/compaction/compaction_iterator.cc, db/merge_helper.cc), except for
//! mixtures of single deletions with deletions or merges on one key, which RocksDB leaves
//! undefined: here the key stays deleted.
//!
//! Called by: flush and compaction jobs.

mod by_user;
mod counts;
mod entities;
mod merging;
#[cfg(test)]
mod tests;

pub(crate) use by_user::UserFilter;
pub(crate) use counts::EntryCounts;

use super::stripes::{Stripe, Stripes};
use super::tombstones::PassedTombstones;
use by_user::Filtering;
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_base::options::FamilyConfig;
use karst_format::blob::BlobIndex;
use karst_format::comparator::Comparator;
use karst_format::ids::FileNumber;
use karst_format::key::{self, SeqNo, TRAILER_BYTES, ValueType};
use karst_format::write_batch::split_packed_value;
use karst_lsm::range_del::Fragments;
use merging::Operands;
use std::sync::Arc;

/// Receives the surviving entries.
pub(crate) trait EntrySink {
    /// Takes the next entry. Internal keys ascend.
    fn emit(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()>;
}

/// Returns true if data older than the job's entries may hold a user key. Called in ascending
/// order.
pub(crate) type MayHold<'a> = Box<dyn FnMut(&[u8]) -> bool + Send + 'a>;

/// Facts that a job knows about its entries.
pub(crate) struct FilterOptions<'a> {
    /// Configuration of the column family: comparator, merge operator.
    pub(crate) config: Arc<FamilyConfig>,
    pub(crate) stripes: Stripes,
    /// All inputs' range tombstones, clipped to their files.
    pub(crate) tombstones: Option<Arc<Fragments>>,
    /// Nothing older than the job's entries exists in their range.
    pub(crate) bottommost: bool,
    /// `None` if it is unknown, so that older data must be assumed: in a flush, or while files may
    /// be ingested behind all others.
    pub(crate) may_hold: Option<MayHold<'a>>,
    /// A single deletion that meets a deletion fails the job (`enforce_single_del_contracts`).
    pub(crate) enforce_single_deletes: bool,
    /// Entries up to this sequence number need not be kept for the conflict checks of transactions;
    /// `SeqNo::MAX` without transactions.
    pub(crate) write_conflict_snapshot: SeqNo,
    /// Values in blob files below this number are rewritten; 0 for none.
    pub(crate) blob_cutoff: FileNumber,
    /// No reader uses timestamps before this one (`full_history_ts_low`). `None`: unknown, or the
    /// family has no timestamps.
    pub(crate) history_low: Option<Vec<u8>>,
    /// Entries with later timestamps are dropped, as if never written. `None`: none is dropped.
    pub(crate) trim_ts: Option<Vec<u8>>,
    /// The user's compaction filter.
    pub(crate) user: Option<UserFilter>,
}

/// Result of pushing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Pushed {
    /// The entry is completed; continue with the next.
    Done,
    /// The value that [`EntryFilter::wanted`] describes has to be [supplied](EntryFilter::supply)
    /// first.
    NeedsBlob,
}

/// An entry whose fate depends on the next.
#[derive(Clone, Copy, Debug)]
enum Held {
    Nothing,
    SingleDeletion {
        seq: SeqNo,
        stripe: Stripe,
    },
    /// At the bottom: dropped unless an older stripe has an entry of the key.
    Deletion {
        seq: SeqNo,
        stripe: Stripe,
    },
    /// Merge operands are being collected.
    Operands {
        stripe: Stripe,
    },
}

/// The purpose of a requested blob value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    /// To be stored anew with this sequence number.
    Relocation {
        seq: SeqNo,
    },
    /// To be the base of the collected operands.
    MergeBase,
    /// To be the base of the collected operands, as the default column of an entity.
    MergeColumn,
    /// To be moved into its entity, because its blob file is being emptied.
    MovedColumn {
        seq: SeqNo,
    },
    /// To be passed to the user's filter.
    FilteredValue {
        seq: SeqNo,
    },
    /// To be passed to the user's filter, as one column of an entity.
    FilteredColumn {
        seq: SeqNo,
    },
}

/// State of a family with timestamps.
struct History {
    low: Option<Vec<u8>>,
    trim: Option<Vec<u8>>,
    /// No reader uses timestamps before the current one of the current key.
    is_past: bool,
    /// Every reader sees an entry of the key that hides all with earlier timestamps.
    hides_earlier: bool,
}

/// The next step for an entry that follows a held one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The entry is completed.
    Consumed,
    /// The entry is processed like any other.
    GoOn,
    /// A value has to be supplied.
    NeedsBlob,
}

/// The filter of one job; see the module's table.
pub(crate) struct EntryFilter<'a> {
    comparator: Comparator,
    config: Arc<FamilyConfig>,
    stripes: Stripes,
    tombstones: Option<PassedTombstones>,
    bottommost: bool,
    may_hold: Option<MayHold<'a>>,
    enforce_single_deletes: bool,
    write_conflict_snapshot: SeqNo,
    blob_cutoff: FileNumber,
    /// An internal key: the current user key, and the trailer of the entry to emit.
    key: Vec<u8>,
    has_key: bool,
    /// The stripe of the current user key's last entry that hides older entries of its stripe.
    last: Option<Stripe>,
    has_emitted: bool,
    /// The last entry emitted for the user key has sequence number 0, so every reader sees it.
    zeroed: bool,
    /// Every reader sees an entry of the user key that hides all older ones, undecided ones too.
    ended: bool,
    /// The user's filter has not seen the current user key.
    unseen: bool,
    filtering: Filtering,
    /// In the current stripe a single deletion has met its entry, and both were dropped.
    annihilated: bool,
    held: Held,
    operands: Operands,
    history: Option<History>,
    wanted: Wanted,
    reference: Vec<u8>,
    /// The entity whose column is requested.
    entity: Vec<u8>,
    counts: EntryCounts,
}

impl<'a> EntryFilter<'a> {
    /// Creates a filter without entries.
    pub(crate) fn new(options: FilterOptions<'a>) -> Self {
        // Invariant: at the bottom no older data holds a key, so a deletion that every reader sees
        // is never emitted there.
        debug_assert!(!options.bottommost || options.may_hold.is_some(), "the bottom is known");
        let comparator = options.config.comparator.clone();
        let tombstones = options.tombstones.filter(|fragments| !fragments.is_empty());
        let comparator_has_timestamps = comparator.timestamp_size() > 0;
        EntryFilter {
            filtering: Filtering::new(options.user, options.stripes.latest()),
            unseen: false,
            tombstones: tombstones.map(|fragments| PassedTombstones::new(comparator.clone(), fragments)),
            comparator,
            config: options.config,
            stripes: options.stripes,
            bottommost: options.bottommost,
            may_hold: options.may_hold,
            enforce_single_deletes: options.enforce_single_deletes,
            write_conflict_snapshot: options.write_conflict_snapshot,
            blob_cutoff: options.blob_cutoff,
            key: Vec::new(),
            has_key: false,
            last: None,
            has_emitted: false,
            zeroed: false,
            ended: false,
            annihilated: false,
            held: Held::Nothing,
            operands: Operands::default(),
            history: (comparator_has_timestamps).then_some(History {
                low: options.history_low,
                trim: options.trim_ts,
                is_past: false,
                hides_earlier: false,
            }),
            wanted: Wanted::Nothing,
            reference: Vec::new(),
            entity: Vec::new(),
            counts: EntryCounts::default(),
        }
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> &EntryCounts {
        &self.counts
    }

    /// Takes the next entry. Internal keys must ascend.
    ///
    /// # Errors
    /// The key is not an internal key, a single deletion violates its contract, a merge operator is
    /// missing or failed, or the sink failed.
    #[inline]
    pub(crate) fn push(
        &mut self,
        internal_key: &[u8],
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        let (user_key, trailer) = key::split(internal_key);
        let (seq, kind) = (SeqNo(trailer >> 8), ValueType::from_u8(trailer as u8));
        let Some(mut kind) = kind.filter(|kind| kind.is_stored() && *kind != ValueType::RangeDeletion) else {
            return Err(not_an_entry(internal_key));
        };
        self.counts.note_input(kind, internal_key, value);
        let mut same = self.has_key && self.comparator.equal_user(user_key, self.user_key());
        if self.history.is_some() {
            if self.is_trimmed(user_key) {
                return Ok(Pushed::Done);
            }
            if kind == ValueType::DeletionWithTimestamp {
                kind = ValueType::Deletion;
            }
            let is_earlier =
                same && self.comparator.compare_with_timestamps(user_key, self.user_key()).is_ne();
            // Not a single deletion, because the entry it removes may lie below, and a later single
            // deletion must not uncover that entry.
            if is_earlier && self.hides_earlier() && kind != ValueType::SingleDeletion {
                self.counts.dropped_hidden += 1;
                return Ok(Pushed::Done);
            }
            same &= !is_earlier;
        }
        if !matches!(self.held, Held::Nothing) {
            match self.settle_held(Some((same, seq, kind, value)), sink)? {
                Flow::Consumed => return Ok(Pushed::Done),
                Flow::NeedsBlob => return Ok(Pushed::NeedsBlob),
                Flow::GoOn => {}
            }
        }
        // Not undecided entries, because the user's filter has not seen them, and it does not
        // decide if they become visible.
        if self.skips(user_key) && !self.stripes.is_undecided(seq) {
            return Ok(Pushed::Done);
        }
        if !same {
            self.begin_key(internal_key);
            self.begin_timestamp();
        }
        if self.unseen && !self.stripes.is_undecided(seq) {
            self.unseen = false;
            return self.take_filtered(seq, kind, value, sink);
        }
        self.take(seq, kind, value, sink)
    }

    /// Ends the entries.
    ///
    /// # Errors
    /// Those of [`EntryFilter::push`].
    pub(crate) fn finish(&mut self, sink: &mut impl EntrySink) -> Result<()> {
        assert!(self.wanted == Wanted::Nothing, "a value that was asked for has to be supplied");
        let flow = self.settle_held(None, sink)?;
        debug_assert_ne!(flow, Flow::NeedsBlob, "only an entry refers to a blob");
        self.has_key = false;
        Ok(())
    }

    /// Returns the user key and the reference of the requested blob value.
    ///
    /// # Panics
    /// When no value is requested.
    pub(crate) fn wanted(&self) -> (&[u8], &[u8]) {
        assert!(self.wanted != Wanted::Nothing, "no value is wanted");
        (self.user_key(), &self.reference)
    }

    /// Passes the requested blob value. Another one may be requested then.
    ///
    /// # Errors
    /// Those of [`EntryFilter::push`].
    pub(crate) fn supply(&mut self, value: &[u8], sink: &mut impl EntrySink) -> Result<Pushed> {
        self.counts.blobs_read += 1;
        self.counts.blob_bytes_read += value.len() as u64;
        self.bring(value, sink)
    }

    fn bring(&mut self, value: &[u8], sink: &mut impl EntrySink) -> Result<Pushed> {
        match std::mem::replace(&mut self.wanted, Wanted::Nothing) {
            Wanted::Nothing => panic!("no value is wanted"),
            Wanted::Relocation { seq } => {
                self.counts.blobs_relocated += 1;
                self.counts.blob_bytes_relocated += value.len() as u64;
                self.emit(seq, ValueType::Value, value, sink)?;
            }
            Wanted::MergeBase => self.merge_fully(Some(value), sink)?,
            Wanted::MergeColumn => {
                let entity = std::mem::take(&mut self.entity);
                self.merge_column(&entity, Some(value), sink)?;
                self.entity = entity;
            }
            Wanted::MovedColumn { seq } => return self.column_moved(seq, value, sink),
            Wanted::FilteredValue { seq } => return self.filter_brought(seq, value, sink),
            Wanted::FilteredColumn { seq } => return self.column_brought(seq, value, sink),
        }
        Ok(Pushed::Done)
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        &self.key[..self.key.len() - TRAILER_BYTES]
    }

    #[inline]
    fn begin_key(&mut self, internal_key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(internal_key);
        self.has_key = true;
        self.last = None;
        self.has_emitted = false;
        self.zeroed = false;
        self.ended = false;
        self.annihilated = false;
        self.unseen = self.filtering.user.is_some();
    }

    #[inline]
    fn begin_timestamp(&mut self) {
        let Some(history) = &mut self.history else { return };
        let user_key = &self.key[..self.key.len() - TRAILER_BYTES];
        let timestamp = self.comparator.split_timestamp(user_key).1;
        let is_past = |low: &Vec<u8>| self.comparator.compare_timestamps(timestamp, low).is_lt();
        history.is_past = history.low.as_ref().is_some_and(is_past);
        history.hides_earlier = false;
        // Not filtered while history is read, because readers at earlier timestamps would miss
        // entries that the filter removes or changes.
        self.unseen &= history.is_past;
    }

    fn is_trimmed(&self, user_key: &[u8]) -> bool {
        let Some(trim) = self.history.as_ref().and_then(|history| history.trim.as_ref()) else {
            return false;
        };
        self.comparator.compare_timestamps(self.comparator.split_timestamp(user_key).1, trim).is_gt()
    }

    fn hides_earlier(&self) -> bool {
        self.history.as_ref().is_some_and(|history| history.hides_earlier)
    }

    /// Returns true if a reader may use a timestamp before that of the current entry.
    #[inline]
    fn is_history_read(&self) -> bool {
        self.history.as_ref().is_some_and(|history| !history.is_past)
    }

    /// Processes an entry of the current user key, while no entry is held.
    #[inline]
    fn take(
        &mut self,
        seq: SeqNo,
        kind: ValueType,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Pushed> {
        let stripe = self.stripes.of(seq);
        let last = self.last.replace(stripe);
        if last != Some(stripe) {
            self.annihilated = false;
        }
        if let Some(history) = &mut self.history
            && history.is_past
            && kind != ValueType::Merge
        {
            history.hides_earlier |= self.stripes.seen_by_all(seq);
        }
        if kind == ValueType::SingleDeletion {
            self.held = Held::SingleDeletion { seq, stripe };
            return Ok(Pushed::Done);
        }
        if last == Some(stripe) {
            // Below a dropped pair a deletion is kept, because it still hides entries in older
            // files.
            if !(self.annihilated && kind == ValueType::Deletion) {
                self.counts.dropped_hidden += 1;
                return Ok(Pushed::Done);
            }
            self.annihilated = false;
        } else if self.ended || self.zeroed {
            // Every reader sees the entry above. This one was either decided before that was
            // written, and jobs do not use the decision yet, or no reader will ever see it.
            self.counts.dropped_hidden += 1;
            return Ok(Pushed::Done);
        }
        self.ended = self.stripes.have_pending() && kind != ValueType::Merge && self.stripes.seen_by_all(seq);
        match kind {
            ValueType::Deletion => self.take_deletion(seq, stripe, sink)?,
            ValueType::Merge if self.history.is_some() => {
                // The next entry of this timestamp belongs to the merge, so it is not hidden.
                self.last = None;
                self.emit(seq, ValueType::Merge, value, sink)?;
            }
            ValueType::Merge => self.begin_operands(seq, stripe, value)?,
            ValueType::ValuePreferredSeqno => self.take_timed_put(seq, stripe, value, sink)?,
            _ if self.is_covered(seq, stripe) => {}
            ValueType::BlobIndex => return self.take_reference(seq, value, sink),
            ValueType::WideColumnEntity if self.blob_cutoff.0 > 0 => {
                return self.take_entity(seq, value, sink);
            }
            _ => self.emit(seq, kind, value, sink)?,
        }
        Ok(Pushed::Done)
    }

    /// Returns true, and counts it, if a range tombstone hides an entry of the current key.
    #[inline]
    fn is_covered(&mut self, seq: SeqNo, stripe: Stripe) -> bool {
        let Some(tombstones) = &mut self.tombstones else { return false };
        let user_key = &self.key[..self.key.len() - TRAILER_BYTES];
        let covered = tombstones.hides(user_key, seq, stripe);
        if covered {
            self.counts.dropped_hidden += 1;
            self.counts.dropped_range_del += 1;
        }
        covered
    }

    /// Returns true if every reader sees `seq`, and no data older than the job's entries holds the
    /// current key.
    fn is_last_word(&mut self, seq: SeqNo) -> bool {
        if !self.stripes.seen_by_all(seq) || self.is_history_read() {
            return false;
        }
        let Some(may_hold) = &mut self.may_hold else { return false };
        !may_hold(&self.key[..self.key.len() - TRAILER_BYTES])
    }

    fn take_deletion(&mut self, seq: SeqNo, stripe: Stripe, sink: &mut impl EntrySink) -> Result<()> {
        if self.is_last_word(seq) {
            self.ended = true;
            self.counts.dropped_obsolete += 1;
            self.counts.dropped_optimized += u64::from(!self.bottommost);
            return Ok(());
        }
        // Not held with timestamps, because it hides entries with earlier timestamps that may
        // follow.
        if self.bottommost && self.history.is_none() {
            self.held = Held::Deletion { seq, stripe };
            return Ok(());
        }
        if self.is_covered(seq, stripe) {
            return Ok(());
        }
        self.emit(seq, ValueType::Deletion, &[], sink)
    }

    /// Processes a value with a preferred sequence number, which it gets once no reader can tell
    /// the difference.
    fn take_timed_put(
        &mut self,
        seq: SeqNo,
        stripe: Stripe,
        packed: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<()> {
        if self.is_covered(seq, stripe) {
            return Ok(());
        }
        if self.is_last_word(seq) {
            let Some((value, preferred)) = split_packed_value(packed) else {
                return Err(self.corrupt("a timed put without its time"));
            };
            let preferred = SeqNo(preferred).min(seq);
            let stripe = self.stripes.of(preferred);
            let user_key = &self.key[..self.key.len() - TRAILER_BYTES];
            let would_hide =
                |tombstones: &mut PassedTombstones| tombstones.hides(user_key, preferred, stripe);
            // It keeps its number if a tombstone older than the write would hide it.
            if !self.tombstones.as_mut().is_some_and(would_hide) {
                self.counts.timed_puts_swapped += 1;
                return self.emit(preferred, ValueType::Value, value, sink);
            }
        }
        self.emit(seq, ValueType::ValuePreferredSeqno, packed, sink)
    }

    fn take_reference(&mut self, seq: SeqNo, reference: &[u8], sink: &mut impl EntrySink) -> Result<Pushed> {
        if self.blob_cutoff.0 > 0
            && let BlobIndex::Stored { file, .. } = self.decode_reference(reference)?
            && file < self.blob_cutoff
        {
            self.want(Wanted::Relocation { seq }, reference);
            return Ok(Pushed::NeedsBlob);
        }
        self.emit(seq, ValueType::BlobIndex, reference, sink)?;
        Ok(Pushed::Done)
    }

    fn want(&mut self, wanted: Wanted, reference: &[u8]) {
        self.wanted = wanted;
        self.reference.clear();
        self.reference.extend_from_slice(reference);
    }

    fn decode_reference<'r>(&self, reference: &'r [u8]) -> Result<BlobIndex<'r>> {
        BlobIndex::decode(reference).map_err(|c| self.corrupt(format!("blob reference: {c}")))
    }

    /// Emits an entry of the current user key.
    #[inline]
    fn emit(&mut self, seq: SeqNo, kind: ValueType, value: &[u8], sink: &mut impl EntrySink) -> Result<()> {
        let zeroes = self.bottommost
            && kind != ValueType::Merge
            && self.stripes.seen_by_all(seq)
            && !self.is_history_read();
        debug_assert!(!zeroes || !matches!(kind, ValueType::Deletion | ValueType::SingleDeletion));
        let kind = match kind {
            ValueType::Deletion if self.history.is_some() => ValueType::DeletionWithTimestamp,
            kind => kind,
        };
        let seq = if zeroes { SeqNo::ZERO } else { seq };
        self.zeroed |= zeroes;
        self.has_emitted = true;
        self.counts.output_records += 1;
        let at = self.key.len() - TRAILER_BYTES;
        self.key[at..].copy_from_slice(&key::pack_trailer(seq, kind).to_le_bytes());
        sink.emit(&self.key, value)
    }

    /// Decides on the held entry, now that the next entry is known: of the same user key, of
    /// another, or none.
    fn settle_held(
        &mut self,
        next: Option<(bool, SeqNo, ValueType, &[u8])>,
        sink: &mut impl EntrySink,
    ) -> Result<Flow> {
        let next = next.filter(|(same, ..)| *same);
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => Ok(Flow::GoOn),
            Held::SingleDeletion { seq, stripe } => match next {
                Some((_, next_seq, next_kind, _)) => {
                    self.settle_single_deletion(seq, stripe, next_seq, next_kind, sink)
                }
                None => {
                    self.end_single_deletion(seq, sink)?;
                    Ok(Flow::GoOn)
                }
            },
            Held::Deletion { seq, stripe } => match next {
                Some((_, next_seq, ..)) if self.stripes.of(next_seq) == stripe => {
                    self.counts.dropped_hidden += 1;
                    self.held = Held::Deletion { seq, stripe };
                    Ok(Flow::Consumed)
                }
                Some(_) => {
                    self.emit(seq, ValueType::Deletion, &[], sink)?;
                    Ok(Flow::GoOn)
                }
                None => {
                    self.counts.dropped_obsolete += 1;
                    Ok(Flow::GoOn)
                }
            },
            Held::Operands { stripe } => match next {
                Some((_, next_seq, next_kind, value)) if self.stripes.of(next_seq) == stripe => {
                    self.add_below_operands(stripe, next_seq, next_kind, value, sink)
                }
                _ => {
                    self.end_operands(next.is_none(), sink)?;
                    Ok(Flow::GoOn)
                }
            },
        }
    }

    /// Decides on a single deletion above an entry of its key.
    fn settle_single_deletion(
        &mut self,
        seq: SeqNo,
        stripe: Stripe,
        next_seq: SeqNo,
        next_kind: ValueType,
        sink: &mut impl EntrySink,
    ) -> Result<Flow> {
        if self.zeroed {
            // Every reader sees the entry above, which has been emitted.
            self.counts.dropped_hidden += 1;
            self.counts.dropped_obsolete += 1;
            return Ok(Flow::Consumed);
        }
        // Compares stripes and not the stripe's lower end, because an entry that every reader sees
        // has number 0, which is above no snapshot.
        if self.stripes.of(next_seq) != stripe {
            // The entry below is undecided, or jobs do not use its decision yet. As below a
            // deletion, no reader will see it.
            if self.is_last_word(seq) {
                self.ended = true;
                self.counts.dropped_obsolete += 1;
                self.counts.dropped_optimized += u64::from(!self.bottommost);
                return Ok(Flow::GoOn);
            }
            self.emit(seq, ValueType::SingleDeletion, &[], sink)?;
            return Ok(Flow::GoOn);
        }
        match next_kind {
            ValueType::SingleDeletion => {
                self.counts.dropped_obsolete += 1;
                self.counts.single_deletes_mismatched += 1;
                Ok(Flow::GoOn)
            }
            ValueType::Deletion => {
                self.counts.dropped_obsolete += 1;
                self.counts.single_deletes_mismatched += 1;
                if self.enforce_single_deletes && !self.stripes.may_have_rolled_back() {
                    return Err(self.corrupt(
                        "a single deletion above a deletion; the two must not be mixed on one key (enforce_single_del_contracts)",
                    ));
                }
                // The deletion alone has the effect of both.
                self.last = None;
                Ok(Flow::GoOn)
            }
            ValueType::Merge => {
                self.counts.single_deletes_mismatched += 1;
                self.end_as_deletion(seq, stripe, sink)
            }
            _ if self.is_history_read() => {
                // It stays, because a reader at its timestamp must not see an earlier one.
                self.counts.dropped_hidden += 1;
                self.emit(seq, ValueType::SingleDeletion, &[], sink)?;
                Ok(Flow::Consumed)
            }
            // Not both dropped, because rolled back entries, or entries that the rollback restored,
            // may be below and would become visible.
            _ if self.stripes.may_have_rolled_back() => self.end_as_deletion(seq, stripe, sink),
            _ if self.has_emitted || seq <= self.write_conflict_snapshot || self.stripes.seen_by_all(seq) => {
                self.counts.dropped_hidden += 1;
                self.counts.dropped_obsolete += 1;
                self.annihilated = true;
                Ok(Flow::Consumed)
            }
            _ => {
                // Both stay, because a transaction that began before has to find that the key was
                // written. No reader will read the value itself, so it is emptied.
                self.emit(seq, ValueType::SingleDeletion, &[], sink)?;
                self.last = Some(self.stripes.of(next_seq));
                self.emit(next_seq, ValueType::Value, &[], sink)?;
                Ok(Flow::Consumed)
            }
        }
    }

    /// Turns a single deletion above an entry of its key and stripe into a deletion.
    fn end_as_deletion(&mut self, seq: SeqNo, stripe: Stripe, sink: &mut impl EntrySink) -> Result<Flow> {
        self.take_deletion(seq, stripe, sink)?;
        match self.held {
            Held::Nothing => Ok(Flow::GoOn),
            _ => {
                self.counts.dropped_hidden += 1;
                Ok(Flow::Consumed)
            }
        }
    }

    /// Decides on a single deletion below which the job has no entry of its key.
    fn end_single_deletion(&mut self, seq: SeqNo, sink: &mut impl EntrySink) -> Result<()> {
        if self.is_last_word(seq) {
            self.counts.dropped_obsolete += 1;
            self.counts.single_deletes_without_entry += 1;
            self.counts.dropped_optimized += u64::from(!self.bottommost);
            return Ok(());
        }
        if self.zeroed {
            self.counts.dropped_hidden += 1;
            self.counts.dropped_obsolete += 1;
            return Ok(());
        }
        self.emit(seq, ValueType::SingleDeletion, &[], sink)
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Corruption, format!("key {}: {what}", Shown(self.user_key())))
    }
}

#[cold]
fn not_an_entry(internal_key: &[u8]) -> Error {
    Error::new(
        ErrorKind::Corruption,
        format!("{} among the entries of a job is not the internal key of one", Shown(internal_key)),
    )
}

impl std::fmt::Debug for EntryFilter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryFilter")
            .field("held", &self.held)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
