//! Merging at read time: operands that were found, and what lies below them, become a value.

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, Result};
use crate::merge_operator::{MergeOperator, Merged};
use crate::read::View;
use crate::stats::{HistogramKind, Ticker};
use crate::table::Value;

/// Whether the operator is content with the operands found so far, newest first.
pub(crate) fn suffices(operator: &dyn MergeOperator, operands: &[Value]) -> bool {
    let operands: SmallVec<[&[u8]; 8]> = operands.iter().map(|operand| &**operand).collect();
    operator.should_merge(&operands)
}

/// The value of `user_key`: `existing` with `operands`, which are newest first, applied.
pub(crate) fn full(
    view: &View<'_>,
    user_key: &[u8],
    existing: Option<Value>,
    operands: &[Value],
) -> Result<Value> {
    let operator = view.superversion.config().merge_operator()?;
    let oldest_first: SmallVec<[&[u8]; 8]> = operands.iter().rev().map(|operand| &**operand).collect();
    let stats = view.ctx.stats();
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
