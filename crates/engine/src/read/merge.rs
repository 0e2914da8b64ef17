//! Merging at read time: operands that were found, and what lies below them, become a value.

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};
use crate::merge_operator::{MergeOperator, Merged};
use crate::read::ColumnReader;
use crate::stats::{HistogramKind, Ticker};
use crate::table::Value;

/// The column family's merge operator. Operands without one cannot be read.
pub(crate) fn operator(column: &ColumnReader) -> Result<&dyn MergeOperator> {
    column.merge_operator.as_deref().ok_or_else(|| {
        Error::invalid_argument(
            "the column family has merge operands but is opened without a merge operator: set merge_operator",
        )
    })
}

/// Whether the operator is content with the operands found so far, newest first.
pub(crate) fn suffices(operator: &dyn MergeOperator, operands: &[Value]) -> bool {
    let operands: SmallVec<[&[u8]; 8]> = operands.iter().map(|operand| &**operand).collect();
    operator.should_merge(&operands)
}

/// The value of `user_key`: `existing` with `operands`, which are newest first, applied.
pub(crate) fn full(
    column: &ColumnReader,
    user_key: &[u8],
    existing: Option<Value>,
    operands: &[Value],
) -> Result<Value> {
    let operator = operator(column)?;
    let oldest_first: SmallVec<[&[u8]; 8]> = operands.iter().rev().map(|operand| &**operand).collect();
    let stats = &column.tables.shared.stats;
    stats.measure(HistogramKind::ReadNumMergeOperands, operands.len() as u64);
    let broken = |what: &str| {
        Error::new(
            ErrorKind::Corruption,
            format!("merge operator {}: {what}, for key {}", operator.name(), user_key.escape_ascii()),
        )
    };
    match operator.full_merge(user_key, existing.as_deref(), &oldest_first) {
        Ok(Merged::Bytes(bytes)) => Ok(Value::owned(bytes)),
        Ok(Merged::Operand(index)) => match operands.iter().rev().nth(index) {
            Some(operand) => Ok(operand.clone()),
            None => Err(broken("chose an operand that it was not given")),
        },
        Ok(Merged::Existing) => existing.ok_or_else(|| broken("chose an existing value where there is none")),
        Err(failed) => {
            stats.tick(Ticker::NumberMergeFailures);
            Err(broken(&failed.0))
        }
    }
}
