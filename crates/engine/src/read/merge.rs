//! Merging at read time: combines operands and the value below them.

use crate::read::View;
use karst_base::error::Result;
use karst_base::merge_operator::{self, MergeOperator, Merged};
use karst_base::perf_context::{self, PerfMetric};
use karst_base::stats::{HistogramKind, Statistics, Ticker};
use karst_io::Env;
use karst_storage::value::Value;
use smallvec::SmallVec;

/// Returns true if the operator needs no more operands than these, newest first.
pub(crate) fn suffices(operator: &dyn MergeOperator, operands: &[Value]) -> bool {
    let operands: SmallVec<[&[u8]; 8]> = operands.iter().map(|operand| &**operand).collect();
    operator.should_merge(&operands)
}

/// Runs a merge and records its time if timers are enabled.
fn timed<R>(stats: &Statistics, env: &Env, merge: impl FnOnce() -> R) -> R {
    let counts = stats.timers_enabled();
    let (merged, nanos) = perf_context::timed(env, PerfMetric::MergeOperatorTimeNanos, counts, merge);
    if counts {
        stats.record(Ticker::MergeOperationTotalTime, nanos);
    }
    merged
}

/// Returns the value of `user_key`: `existing` with `operands` (newest first) applied.
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
    let merged = timed(stats, &view.ctx.tables.shared.env, || {
        merge_operator::full_merge(&**operator, user_key, existing.as_deref(), &oldest_first)
    })
    .inspect_err(|_| stats.tick(Ticker::NumberMergeFailures))?;
    Ok(match merged {
        Merged::Bytes(bytes) => Value::owned(bytes),
        Merged::Operand(index) => operands[operands.len() - 1 - index].clone(),
        Merged::Existing => existing.expect("it was given one"),
    })
}
