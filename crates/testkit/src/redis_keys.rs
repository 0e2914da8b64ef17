//! Histories of keys of a server for clients of Redis, for the checker of
//! [`linear`](crate::linear): operations as commands, replies as outputs, and the model of the
//! keys.
//!
//! A group is [`KEYS`] keys that transactions change together, and is one object of the checker.
//! Values are numbers. Time is the server's, in milliseconds since 1970: each call has the window
//! in which it can have taken effect, and a key is expired for a window behind its deadline, alive
//! for one before it, and either within. A read leaves an expired key in the model's state, because
//! a write decides by the time of its beginning, and is visible later: a reader in between sees the
//! key expire before the write.

use crate::linear::{Call, states_after};
use crate::random::Random;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Milliseconds by which the windows of calls are wider on both sides, because a client's clock and
/// the server's may begin their milliseconds at different moments.
const CLOCK_ERROR: u64 = 1;

/// Number of keys in a group.
pub const KEYS: usize = 3;

/// A reply in RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status, a number or an error, with its first byte.
    Line(String),
    /// A string, or null.
    Bulk(Option<String>),
    /// An array, or null.
    Many(Option<Vec<Reply>>),
}

/// Takes one reply from the beginning of `bytes`. Returns it with its length, or `None` if it is
/// not complete.
///
/// # Panics
/// The bytes are no reply.
#[must_use]
pub fn reply(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = std::str::from_utf8(&bytes[..end]).expect("a line of text");
    let mut at = end + 2;
    let count = || line[1..].parse::<i64>().unwrap_or_else(|_| panic!("no count: {line}"));
    let found = match bytes[0] {
        b'$' if count() < 0 => Reply::Bulk(None),
        b'$' => {
            let len = count() as usize;
            let text = bytes.get(at..at + len + 2)?;
            at += len + 2;
            Reply::Bulk(Some(String::from_utf8_lossy(&text[..len]).into_owned()))
        }
        b'*' if count() < 0 => Reply::Many(None),
        b'*' => {
            let mut replies = Vec::new();
            for _ in 0..count() {
                let (found, len) = reply(&bytes[at..])?;
                replies.push(found);
                at += len;
            }
            Reply::Many(Some(replies))
        }
        b'+' | b'-' | b':' => Reply::Line(line.to_owned()),
        _ => panic!("no reply: {line}"),
    };
    Some((found, at))
}

/// Way in which a transfer is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// MULTI and EXEC.
    Exec,
    /// EVAL.
    Script,
}

/// An operation on a group. Keys are indices below [`KEYS`].
#[derive(Clone, Debug)]
pub enum Op {
    /// GET.
    Get(usize),
    /// MGET of all keys.
    GetAll,
    /// SET, without a deadline or with one (PXAT).
    Set(usize, i64, Option<u64>),
    /// INCR.
    Increment(usize),
    /// GETDEL.
    Take(usize),
    /// DEL of all keys.
    DeleteAll,
    /// DECR of one key and INCR of another.
    Transfer(By, [usize; 2]),
    /// SET of a key that was watched when it had this value: MULTI, SET, EXEC.
    Exchange(usize, Option<i64>, i64),
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Values and numbers; `None` is null.
    Numbers(Vec<Option<i64>>),
    /// It was done.
    Done,
    /// A watched key had changed.
    Aborted,
}

/// An operation with the window of time in which it can have taken effect.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The operation.
    pub op: Op,
    /// First and last millisecond.
    pub window: (u64, u64),
}

/// The keys of a group: value and deadline of each.
pub type State = [Option<(i64, Option<u64>)>; KEYS];

/// A call on a group.
pub type GroupCall = Call<Timed, Output>;

impl Op {
    /// Draws an operation, other than an exchange. `unique` is the value of a SET; `now` the
    /// server's time.
    pub fn draw(random: &mut Random, unique: i64, now: u64, scripts: bool) -> Self {
        let key = random.index(KEYS);
        match random.below(10) {
            0 | 1 => Self::Get(key),
            2 => Self::GetAll,
            3 => Self::Set(key, unique, None),
            4 => Self::Set(key, unique, Some(now + 1 + random.below(30))),
            5 | 6 => Self::Increment(key),
            7 if random.one_in(4) => Self::DeleteAll,
            7 => Self::Take(key),
            8 if scripts => Self::Transfer(By::Script, [key, (key + 1) % KEYS]),
            _ => Self::Transfer(By::Exec, [key, (key + 1) % KEYS]),
        }
    }

    /// Returns the commands, as inline commands, and the number of their replies.
    #[must_use]
    pub fn commands(&self, group: &str) -> (String, usize) {
        let key = |at: &usize| format!("{{{group}}}:{at}");
        let all = || (0..KEYS).map(|at| key(&at)).collect::<Vec<_>>().join(" ");
        match self {
            Self::Get(at) => (format!("GET {}\r\n", key(at)), 1),
            Self::GetAll => (format!("MGET {}\r\n", all()), 1),
            Self::Set(at, value, None) => (format!("SET {} {value}\r\n", key(at)), 1),
            Self::Set(at, value, Some(deadline)) => {
                (format!("SET {} {value} PXAT {deadline}\r\n", key(at)), 1)
            }
            Self::Increment(at) => (format!("INCR {}\r\n", key(at)), 1),
            Self::Take(at) => (format!("GETDEL {}\r\n", key(at)), 1),
            Self::DeleteAll => (format!("DEL {}\r\n", all()), 1),
            Self::Transfer(By::Exec, [from, to]) => {
                (format!("MULTI\r\nDECR {}\r\nINCR {}\r\nEXEC\r\n", key(from), key(to)), 4)
            }
            Self::Transfer(By::Script, [from, to]) => {
                let script = "return {redis.call('decr', KEYS[1]), redis.call('incr', KEYS[2])}";
                (format!("EVAL \"{script}\" 2 {} {}\r\n", key(from), key(to)), 1)
            }
            Self::Exchange(at, _, value) => (format!("MULTI\r\nSET {} {value}\r\nEXEC\r\n", key(at)), 3),
        }
    }

    /// Returns the result that replies to the commands have.
    ///
    /// # Panics
    /// The replies are not those of the commands.
    #[must_use]
    pub fn output(&self, replies: &[Reply]) -> Output {
        let number = |reply: &Reply| match reply {
            Reply::Bulk(None) => None,
            Reply::Bulk(Some(text)) => Some(text.parse().unwrap_or_else(|_| panic!("{self:?}: {text}"))),
            Reply::Line(line) if line.starts_with(':') => Some(line[1..].parse().expect("a number")),
            other => panic!("{self:?}: {other:?}"),
        };
        let last = replies.last().expect("an operation has a reply");
        match (self, last) {
            (Self::Set(..), Reply::Line(line)) if line == "+OK" => Output::Done,
            (Self::DeleteAll, Reply::Line(line)) if line.starts_with(':') => Output::Done,
            (Self::Exchange(..), Reply::Many(None)) => Output::Aborted,
            (Self::Exchange(..), Reply::Many(Some(_))) => Output::Done,
            (Self::GetAll | Self::Transfer(..), Reply::Many(Some(replies))) => {
                Output::Numbers(replies.iter().map(number).collect())
            }
            (Self::Get(_) | Self::Increment(_) | Self::Take(_), one) => Output::Numbers(vec![number(one)]),
            (_, other) => panic!("{self:?}: {other:?}"),
        }
    }
}

/// Returns the states in which expired keys are gone: one, or several if a deadline is within the
/// window.
fn expired(state: &State, window: (u64, u64)) -> Vec<State> {
    let mut states = vec![*state];
    for at in 0..KEYS {
        let Some((_, Some(deadline))) = state[at] else { continue };
        if deadline > window.1 {
            continue;
        }
        let gone = states.iter().map(|state| {
            let mut state = *state;
            state[at] = None;
            state
        });
        let gone: Vec<State> = gone.collect();
        if deadline < window.0 {
            states.clear();
        }
        states.extend(gone);
    }
    states
}

/// Returns the possible effects of an operation.
fn step(before: &State, timed: &Timed) -> Vec<(State, Output)> {
    let mut effects = Vec::new();
    for state in expired(before, timed.window) {
        let mut next = state;
        let value = |at: usize| state[at].map(|(value, _)| value);
        let mut add = |at: usize, by: i64| {
            let (value, deadline) = next[at].unwrap_or_default();
            next[at] = Some((value + by, deadline));
            Some(value + by)
        };
        let output = match &timed.op {
            Op::Get(at) => Output::Numbers(vec![value(*at)]),
            Op::GetAll => Output::Numbers((0..KEYS).map(value).collect()),
            Op::Set(at, value, deadline) => {
                next[*at] = Some((*value, *deadline));
                Output::Done
            }
            Op::Increment(at) => Output::Numbers(vec![add(*at, 1)]),
            Op::Take(at) => {
                next[*at] = None;
                Output::Numbers(vec![value(*at)])
            }
            Op::DeleteAll => {
                next = State::default();
                Output::Done
            }
            Op::Transfer(_, [from, to]) => Output::Numbers(vec![add(*from, -1), add(*to, 1)]),
            Op::Exchange(at, expected, new) => {
                // The key may have changed and changed back, so that an abort is always possible.
                effects.push((*before, Output::Aborted));
                if value(*at) != *expected {
                    continue;
                }
                next[*at] = Some((*new, None));
                Output::Done
            }
        };
        let is_read = matches!(timed.op, Op::Get(_) | Op::GetAll);
        effects.push((if is_read { *before } else { next }, output));
    }
    effects
}

/// Returns the states of a group that are possible after `calls`, from any of `initial`.
///
/// # Panics
/// No order of the calls explains their outputs; the message has the calls that were open.
#[must_use]
pub fn checked(initial: HashSet<State>, calls: &[GroupCall]) -> HashSet<State> {
    states_after(initial, calls, step).unwrap_or_else(|refuted| {
        let lines =
            |calls: &[&GroupCall]| calls.iter().map(|call| format!("  {call:?}\n")).collect::<String>();
        let open: Vec<&GroupCall> = refuted.open.iter().map(|at| &calls[*at]).collect();
        let of = &calls[refuted.call];
        let mut earlier: Vec<&GroupCall> = calls.iter().filter(|call| call.ended < of.ended).collect();
        earlier.sort_unstable_by_key(|call| std::cmp::Reverse(call.ended));
        earlier.truncate(10);
        panic!(
            "not linearizable: {of:?}\nopen calls:\n{}states before: {:?}\nlast returns:\n{}",
            lines(&open),
            refuted.states,
            lines(&earlier)
        )
    })
}

/// Calls of concurrent clients on one group, as they are made.
#[derive(Debug, Default)]
pub struct History {
    calls: Mutex<Vec<GroupCall>>,
    /// Number of moments so far.
    moments: AtomicU64,
}

impl History {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<GroupCall>> {
        self.calls.lock().expect("no holder of the lock panics")
    }

    /// Adds a call that is made now, at this time of the server, and returns its index.
    pub fn begin(&self, op: Op, now: u64) -> usize {
        let input = Timed { op, window: (now.saturating_sub(CLOCK_ERROR), u64::MAX) };
        let mut calls = self.calls();
        calls.push(Call { input, called: self.moment(), ended: u64::MAX, output: None });
        calls.len() - 1
    }

    /// Adds the replies to a call, which have come now, and returns their output.
    ///
    /// # Panics
    /// The replies are not those of the call's commands.
    pub fn end(&self, call: usize, now: u64, replies: &[Reply]) -> Output {
        let mut calls = self.calls();
        let call = &mut calls[call];
        let output = call.input.op.output(replies);
        call.input.window.1 = now + CLOCK_ERROR;
        (call.ended, call.output) = (self.moment(), Some(output.clone()));
        output
    }

    /// Ends all calls without replies now, when the server's process or machine has ended: they
    /// have had their effect before its next life, or never. Returns their number.
    pub fn end_unanswered(&self) -> usize {
        let mut calls = self.calls();
        let unanswered = calls.iter_mut().filter(|call| call.output.is_none());
        unanswered.map(|call| call.ended = self.moment()).count()
    }

    /// Number of calls.
    pub fn len(&self) -> usize {
        self.calls().len()
    }

    /// True if there is no call.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of exchanges that were done.
    pub fn exchanged(&self) -> usize {
        let is_done = |call: &&GroupCall| {
            matches!(call.input.op, Op::Exchange(..)) && call.output == Some(Output::Done)
        };
        self.calls().iter().filter(is_done).count()
    }

    /// Returns the states of the group that are possible after the calls, from any of `initial`.
    ///
    /// # Panics
    /// Those of [`checked`].
    #[must_use]
    pub fn states_after(&self, initial: HashSet<State>) -> HashSet<State> {
        checked(initial, &self.calls())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_once_complete() {
        let bytes = b"*3\r\n:4\r\n$-1\r\n$2\r\n17\r\n+OK\r\n";
        for len in 0..21 {
            assert_eq!(reply(&bytes[..len]), None, "{len}");
        }
        let many = vec![Reply::Line(":4".into()), Reply::Bulk(None), Reply::Bulk(Some("17".into()))];
        assert_eq!(reply(bytes), Some((Reply::Many(Some(many)), 21)));
        assert_eq!(reply(&bytes[21..]), Some((Reply::Line("+OK".into()), 5)));
    }

    fn calls(ops: &[(Op, u64, Output)]) -> Vec<GroupCall> {
        let call = |(at, (op, now, output)): (usize, &(Op, u64, Output))| Call {
            input: Timed { op: op.clone(), window: (*now, *now + 1) },
            called: at as u64 * 2,
            ended: at as u64 * 2 + 1,
            output: Some(output.clone()),
        };
        ops.iter().enumerate().map(call).collect()
    }

    fn numbers(numbers: &[Option<i64>]) -> Output {
        Output::Numbers(numbers.to_vec())
    }

    #[test]
    fn deadlines_hold_outside_of_their_windows() {
        let read =
            |now, found| [(Op::Set(0, 7, Some(10)), 1, Output::Done), (Op::Get(0), now, numbers(&[found]))];
        let holds = |now, found| {
            let calls = calls(&read(now, found));
            states_after(HashSet::from([State::default()]), &calls, step).is_ok()
        };
        assert!(holds(8, Some(7)) && !holds(8, None), "before the deadline");
        assert!(holds(9, Some(7)) && holds(9, None) && holds(10, Some(7)) && holds(10, None));
        assert!(!holds(11, Some(7)) && holds(11, None), "after it");
    }

    #[test]
    fn transfers_and_exchanges_are_atomic() {
        let history = [
            (Op::Increment(0), 1, numbers(&[Some(1)])),
            (Op::Transfer(By::Exec, [0, 1]), 2, numbers(&[Some(0), Some(1)])),
            (Op::Exchange(1, Some(1), 5), 3, Output::Done),
            (Op::Exchange(1, Some(1), 6), 4, Output::Aborted),
            (Op::Take(0), 5, numbers(&[Some(0)])),
            (Op::GetAll, 6, numbers(&[None, Some(5), None])),
        ];
        let found = checked(HashSet::from([State::default()]), &calls(&history));
        assert_eq!(found, HashSet::from([[None, Some((5, None)), None]]));
    }

    #[test]
    #[should_panic(expected = "not linearizable")]
    fn a_lost_update_is_refuted() {
        let history =
            [(Op::Set(1, 4, None), 1, Output::Done), (Op::Exchange(1, Some(3), 5), 2, Output::Done)];
        let _ = checked(HashSet::from([State::default()]), &calls(&history));
    }
}
