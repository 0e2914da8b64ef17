//! A checker of linearizability: whether concurrent calls can have taken effect one after the
//! other, each at a moment between its call and its return.
//!
//! The history is walked in the order of its moments. A configuration is a state of the object and
//! the open calls that have taken effect in it; a return keeps the configurations in which its call
//! has taken effect with the output that it had. A history without a configuration left is refuted.
//! A call without an output (its client lost the connection, or the machine its power) may take
//! effect until it ends, or never.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::hash::Hash;

/// Maximum number of configurations; more of them need a history with fewer open calls.
const CONFIGURATIONS: usize = 1 << 20;

/// One call of a history.
#[derive(Clone, Debug)]
pub struct Call<I, O> {
    /// Operation and arguments.
    pub input: I,
    /// Moment of the call. Moments of calls and returns are unique numbers of one clock.
    pub called: u64,
    /// Moment of the return; of a call without an output, the moment after which it has no effect.
    pub ended: u64,
    /// Result, or `None` if the caller has not received it.
    pub output: Option<O>,
}

/// A history that no order of its calls explains.
#[derive(Debug)]
pub struct Refuted<S> {
    /// Index of the first call whose return no order explains.
    pub call: usize,
    /// Indices of the calls that were open at that return.
    pub open: Vec<usize>,
    /// States that were possible before that return, at most ten of them.
    pub states: Vec<S>,
}

/// State, and indices of the open calls that have taken effect.
type Configuration<S> = (S, BTreeSet<usize>);

/// Returns all states that the object can have after `calls`, from any of the states in `initial`.
/// `step` returns the possible effects of an input on a state: next state and output.
///
/// # Errors
/// No order of the calls explains their outputs.
///
/// # Panics
/// More than 2^20 configurations are possible at a moment.
pub fn states_after<S, I, O>(
    initial: HashSet<S>,
    calls: &[Call<I, O>],
    step: impl Fn(&S, &I) -> Vec<(S, O)>,
) -> Result<HashSet<S>, Refuted<S>>
where
    S: Clone + Eq + Hash + Debug,
    O: PartialEq,
{
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        moments.extend([(call.called, false, index), (call.ended, true, index)]);
    }
    moments.sort_unstable();
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let mut possible: HashSet<Configuration<S>> =
        initial.into_iter().map(|state| (state, BTreeSet::new())).collect();
    for (_, is_end, index) in moments {
        if !is_end {
            open.insert(index);
            continue;
        }
        let is_optional = calls[index].output.is_none();
        let (mut next, mut seen) = (HashSet::new(), possible.clone());
        let mut left: Vec<Configuration<S>> = possible.iter().cloned().collect();
        while let Some((state, done)) = left.pop() {
            let is_done = done.contains(&index);
            if is_done || is_optional {
                let mut done = done.clone();
                done.remove(&index);
                next.insert((state.clone(), done));
            }
            if is_done {
                // Later effects of other calls are tried at their own ends.
                continue;
            }
            for other in open.iter().filter(|other| !done.contains(other)) {
                for (state, output) in step(&state, &calls[*other].input) {
                    if calls[*other].output.as_ref().is_some_and(|wanted| *wanted != output) {
                        continue;
                    }
                    let mut done = done.clone();
                    done.insert(*other);
                    if seen.insert((state.clone(), done.clone())) {
                        left.push((state, done));
                    }
                }
            }
            assert!(seen.len() <= CONFIGURATIONS, "too many calls are open: {open:?}");
        }
        if next.is_empty() {
            let states = possible.into_iter().map(|(state, _)| state).take(10).collect();
            return Err(Refuted { call: index, open: open.into_iter().collect(), states });
        }
        open.remove(&index);
        possible = next;
    }
    Ok(possible.into_iter().map(|(state, _)| state).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations of a register that counts.
    #[derive(Clone, Copy, Debug)]
    enum Op {
        Read,
        Add,
    }

    fn step(state: &u64, op: &Op) -> Vec<(u64, u64)> {
        match op {
            Op::Read => vec![(*state, *state)],
            Op::Add => vec![(state + 1, state + 1)],
        }
    }

    fn after(calls: &[(Op, u64, u64, Option<u64>)]) -> Result<Vec<u64>, usize> {
        let calls: Vec<_> = calls
            .iter()
            .map(|(input, called, ended, output)| Call {
                input: *input,
                called: *called,
                ended: *ended,
                output: *output,
            })
            .collect();
        let found = states_after(HashSet::from([0]), &calls, step).map_err(|refuted| refuted.call)?;
        let mut found: Vec<u64> = found.into_iter().collect();
        found.sort_unstable();
        Ok(found)
    }

    #[test]
    fn concurrent_calls_take_any_order_and_others_their_own() {
        // Both adds are open together: either may have been the first.
        assert_eq!(after(&[(Op::Add, 1, 4, Some(2)), (Op::Add, 2, 3, Some(1))]), Ok(vec![2]));
        // One had returned before the other was called.
        assert_eq!(after(&[(Op::Add, 1, 2, Some(2)), (Op::Add, 3, 4, Some(1))]), Err(0));
        // A read that began after an add had returned does not miss it.
        assert_eq!(after(&[(Op::Add, 1, 2, Some(1)), (Op::Read, 3, 4, Some(0))]), Err(1));
        // One that was open beside it may.
        assert_eq!(after(&[(Op::Add, 1, 3, Some(1)), (Op::Read, 2, 4, Some(0))]), Ok(vec![1]));
        // A later read does not go back behind an earlier one.
        let back = [(Op::Add, 1, 9, Some(1)), (Op::Read, 2, 3, Some(1)), (Op::Read, 4, 5, Some(0))];
        assert_eq!(after(&back), Err(2));
        // Two adds had one number.
        assert_eq!(after(&[(Op::Add, 1, 3, Some(1)), (Op::Add, 2, 4, Some(1))]), Err(1));
    }

    #[test]
    fn unanswered_calls_take_effect_once_or_never_until_they_end() {
        assert_eq!(after(&[(Op::Add, 1, 9, None)]), Ok(vec![0, 1]));
        let seen = |ended| [(Op::Add, 1, ended, None), (Op::Read, 4, 5, Some(0)), (Op::Read, 6, 7, Some(1))];
        assert_eq!(after(&seen(8)), Ok(vec![1]));
        assert_eq!(after(&seen(3)), Err(2), "it had ended before the read that missed it returned");
        let twice = [(Op::Add, 1, 9, None), (Op::Read, 2, 3, Some(2))];
        assert_eq!(after(&twice), Err(1));
        // An unanswered call takes effect before an answered one, and after it.
        let both = [(Op::Add, 1, 9, None), (Op::Add, 2, 3, Some(2)), (Op::Read, 4, 5, Some(2))];
        assert_eq!(after(&both), Ok(vec![2]));
    }
}
