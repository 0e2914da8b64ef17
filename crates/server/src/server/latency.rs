//! Events that took longer than `latency-monitor-threshold`, for LATENCY.
//!
//! Lock: one mutex, for a sample or a copy.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Samples that are kept of each kind of event.
const SAMPLES_AT_MOST: usize = 160;

/// A kind of event's samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    /// Seconds of the environment's clock, and milliseconds that the event took; oldest first. The
    /// longest one of a second is kept.
    pub(crate) list: VecDeque<(u64, u64)>,
    /// Longest time in milliseconds.
    pub(crate) longest: u64,
}

/// Samples of all kinds of events.
#[derive(Debug, Default)]
pub(crate) struct LatencyLog(Mutex<BTreeMap<&'static str, Samples>>);

impl LatencyLog {
    /// Adds an event that has ended at a time of the environment's clock.
    pub(crate) fn add(&self, event: &'static str, now: Duration, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut events = self.0.lock();
        let samples = events.entry(event).or_default();
        samples.longest = samples.longest.max(millis);
        match samples.list.back_mut() {
            Some((second, longest)) if *second == now.as_secs() => *longest = millis.max(*longest),
            _ => samples.list.push_back((now.as_secs(), millis)),
        }
        if samples.list.len() > SAMPLES_AT_MOST {
            samples.list.pop_front();
        }
    }

    /// Samples of all kinds.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, Samples> {
        self.0.lock().clone()
    }

    /// Forgets the kinds for which `is_chosen` holds. Returns their number.
    pub(crate) fn reset(&self, is_chosen: impl Fn(&str) -> bool) -> usize {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|event, _| !is_chosen(event));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_event_of_a_second_is_kept() {
        let log = LatencyLog::default();
        for (second, millis) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            log.add("command", Duration::from_secs(second), Duration::from_millis(millis));
        }
        let samples = &log.all()["command"];
        assert_eq!((&samples.list, samples.longest), (&VecDeque::from([(1, 9), (2, 3)]), 9));
        (0..200).for_each(|second| log.add("command", Duration::from_secs(second), Duration::ZERO));
        assert_eq!(log.all()["command"].list.len(), SAMPLES_AT_MOST);
        assert_eq!((log.reset(|event| event == "none"), log.reset(|_| true)), (0, 1));
        assert!(log.all().is_empty());
    }
}
