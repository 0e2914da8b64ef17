//! Merge operands in a job: collected from newest to oldest, inside one stripe, until the entry
//! below them is known.
//!
//! | below the operands | they become |
//! |---|---|
//! | a value, a reference to one, an entity | the result of a full merge, as a value (or entity) |
//! | a deletion, or an entry that a range tombstone hides | a full merge without a base value |
//! | nothing, and nothing older can exist | a full merge without a base value |
//! | an entry of an older stripe, or nothing known | one operand, if the operator can; else unchanged |
//!
//! Invariant: the result has the newest operand's sequence number, or each operand its own.

use super::by_user::OperandFate;
use super::{EntryFilter, EntrySink, Flow, Held, Stripe, Wanted};
use karst_base::error::Result;
use karst_base::merge_operator::{self, Merged};
use karst_format::key::{SeqNo, TRAILER_BYTES, ValueType};
use karst_format::write_batch::split_packed_value;
use smallvec::SmallVec;

/// Operands, newest first, their bytes concatenated. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct Operands {
    bytes: Vec<u8>,
    /// Sequence number and end offset of each operand.
    ends: Vec<(SeqNo, usize)>,
}

impl Operands {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, seq: SeqNo, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push((seq, self.bytes.len()));
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, index: usize) -> (SeqNo, &[u8]) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (seq, end) = self.ends[index];
        (seq, &self.bytes[start..end])
    }

    pub(super) fn newest_seq(&self) -> SeqNo {
        self.ends[0].0
    }

    fn oldest_first(&self) -> SmallVec<[&[u8]; 8]> {
        (0..self.len()).rev().map(|index| self.get(index).1).collect()
    }
}

/// Result of a full merge.
pub(super) enum Outcome {
    Bytes(Vec<u8>),
    /// The base is the result, unchanged.
    Base,
}

impl EntryFilter<'_> {
    /// Starts collecting with the first operand of a stripe.
    pub(super) fn begin_operands(&mut self, seq: SeqNo, stripe: Stripe, operand: &[u8]) -> Result<()> {
        self.config.merge_operator()?;
        self.operands.clear();
        self.add_operand(seq, stripe, operand)
    }

    fn add_operand(&mut self, seq: SeqNo, stripe: Stripe, operand: &[u8]) -> Result<()> {
        self.held = Held::Operands { stripe };
        let fate = self.filter_operand(seq, operand)?;
        if let OperandFate::Skips = fate {
            self.operands.clear();
            self.held = Held::Nothing;
            return Ok(());
        }
        if self.is_covered(seq, stripe) {
            return Ok(());
        }
        match fate {
            OperandFate::Stays => self.operands.push(seq, operand),
            OperandFate::Becomes(new) => self.operands.push(seq, &new),
            OperandFate::Goes | OperandFate::Skips => {}
        }
        Ok(())
    }

    /// Takes an older entry of the operands' stripe.
    pub(super) fn add_below_operands(
        &mut self,
        stripe: Stripe,
        seq: SeqNo,
        kind: ValueType,
        value: &[u8],
        sink: &mut impl EntrySink,
    ) -> Result<Flow> {
        if kind == ValueType::Merge {
            self.add_operand(seq, stripe, value)?;
            return Ok(Flow::Consumed);
        }
        if self.operands.is_empty() {
            // The filter has dropped all operands, so none of them hides the entry below.
            self.uncover();
            return Ok(Flow::GoOn);
        }
        let base = match kind {
            _ if self.is_covered(seq, stripe) => None,
            ValueType::Value => Some(value),
            ValueType::ValuePreferredSeqno => match split_packed_value(value) {
                Some((value, _)) => Some(value),
                None => return Err(self.corrupt("a timed put without its time")),
            },
            ValueType::BlobIndex => {
                self.want(Wanted::MergeBase, value);
                return Ok(Flow::NeedsBlob);
            }
            ValueType::WideColumnEntity => return self.merge_with_entity(value, sink),
            _ => None,
        };
        self.merge_fully(base, sink)?;
        Ok(Flow::Consumed)
    }

    /// Emits the operands on `base` as a value.
    pub(super) fn merge_fully(&mut self, base: Option<&[u8]>, sink: &mut impl EntrySink) -> Result<()> {
        let seq = self.operands.newest_seq();
        self.counts.operands_merged += self.operands.len() as u64;
        match self.full_merge(base)? {
            Outcome::Bytes(bytes) => self.emit(seq, ValueType::Value, &bytes, sink),
            Outcome::Base => self.emit(seq, ValueType::Value, base.unwrap_or_default(), sink),
        }
    }

    pub(super) fn full_merge(&self, base: Option<&[u8]>) -> Result<Outcome> {
        let operator = self.config.merge_operator()?;
        let operands = self.operands.oldest_first();
        Ok(match merge_operator::full_merge(&**operator, self.user_key(), base, &operands)? {
            Merged::Bytes(bytes) => Outcome::Bytes(bytes),
            Merged::Operand(index) => Outcome::Bytes(operands[index].to_vec()),
            Merged::Existing => Outcome::Base,
        })
    }

    /// Ends the collected operands, because the job has no more entries of their stripe; `was_last`
    /// is true if it has no more entries of the key either.
    pub(super) fn end_operands(&mut self, was_last: bool, sink: &mut impl EntrySink) -> Result<()> {
        if self.operands.is_empty() {
            self.uncover();
            return Ok(());
        }
        if was_last && self.bottommost {
            return self.merge_fully(None, sink);
        }
        let operator = self.config.merge_operator()?;
        if self.operands.len() > 1 || operator.allow_single_operand() {
            let user_key = &self.key[..self.key.len() - TRAILER_BYTES];
            let merged = operator.partial_merge(user_key, &self.operands.oldest_first());
            if let Some(merged) = merged {
                let seq = self.operands.newest_seq();
                self.counts.operands_merged += self.operands.len() as u64 - 1;
                return self.emit(seq, ValueType::Merge, &merged, sink);
            }
        }
        self.emit_operands(sink)
    }

    /// Emits the operands unchanged.
    fn emit_operands(&mut self, sink: &mut impl EntrySink) -> Result<()> {
        let operands = std::mem::take(&mut self.operands);
        for index in 0..operands.len() {
            let (seq, operand) = operands.get(index);
            self.emit(seq, ValueType::Merge, operand, sink)?;
        }
        self.operands = operands;
        Ok(())
    }
}
