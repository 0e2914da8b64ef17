//! Settings of operation: limits of what is kept for operators, times, and rights of new users.

use super::integers::{Integers, NATURAL, Row, SIZE};
use crate::numbers::{float_argument, float_text};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// In the order of [`OperationSetting`].
const ROWS: [Row; 3] = [
    ("acllog-max-len", "acllog-max-len", 128, &SIZE),
    ("latency-monitor-threshold", "latency-monitor-threshold", 0, &SIZE),
    ("timeout", "timeout", 0, &NATURAL),
];

/// A setting, by its place in [`ROWS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum OperationSetting {
    /// Number of entries of ACL LOG.
    AclLogLength = 0,
    /// Milliseconds from which on LATENCY keeps a command; 0: none.
    LatencyThreshold = 1,
    /// Seconds after which an idle client is disconnected; 0: none.
    Timeout = 2,
}

/// A setting of two words: name, the word that switches it on, the other one, the default, and the
/// error text of other words.
type Switch = (&'static str, &'static str, &'static str, bool, &'static str);

/// In the order of [`SwitchSetting`].
const SWITCHES: [Switch; 2] = [
    (
        "acl-pubsub-default",
        "allchannels",
        "resetchannels",
        false,
        "argument(s) must be one of the following: allchannels, resetchannels",
    ),
    ("latency-tracking", "yes", "no", true, "argument must be 'yes' or 'no'"),
];

/// A setting of two words, by its place in [`SWITCHES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum SwitchSetting {
    /// New users may use all channels.
    AllChannels = 0,
    /// Times of commands are kept.
    LatencyTracking = 1,
}

/// Name of the setting of the percentiles in INFO.
const PERCENTILES: &str = "latency-tracking-info-percentiles";

/// Values of the settings. Lock: the mutex of the percentiles, for a copy or a replacement.
#[derive(Debug)]
pub(crate) struct OperationSettings {
    integers: Integers<3>,
    switches: [AtomicBool; SWITCHES.len()],
    percentiles: Mutex<Vec<f64>>,
}

impl Default for OperationSettings {
    fn default() -> Self {
        Self {
            integers: Integers::new(&ROWS),
            switches: SWITCHES.map(|(.., default, _)| AtomicBool::new(default)),
            percentiles: Mutex::new(vec![50.0, 99.0, 99.9]),
        }
    }
}

impl OperationSettings {
    pub(crate) fn get(&self, setting: OperationSetting) -> u64 {
        self.integers.get(setting as usize).unsigned_abs()
    }

    pub(crate) fn is_on(&self, setting: SwitchSetting) -> bool {
        self.switches[setting as usize].load(Ordering::Relaxed)
    }

    /// Percentiles of the times of commands that INFO has.
    pub(crate) fn percentiles(&self) -> Vec<f64> {
        self.percentiles.lock().clone()
    }

    /// All names with their values.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = self.integers.values();
        for ((name, on, off, ..), is_on) in SWITCHES.iter().zip(&self.switches) {
            values.push((*name, if is_on.load(Ordering::Relaxed) { *on } else { *off }.to_owned()));
        }
        let percentiles: Vec<String> = self.percentiles().into_iter().map(float_text).collect();
        values.push((PERCENTILES, percentiles.join(" ")));
        values
    }

    /// Sets one by its name, if `does`, or only checks the value.
    ///
    /// # Errors
    /// The reason that the value is refused, or `None` for an unknown setting.
    pub(super) fn assign(&self, name: &str, value: &[u8], does: bool) -> Result<(), Option<&'static str>> {
        if name == PERCENTILES {
            let percentiles = percentiles(value).map_err(Some)?;
            if does {
                *self.percentiles.lock() = percentiles;
            }
            return Ok(());
        }
        let mut switches = SWITCHES.iter().zip(&self.switches);
        let Some(((_, on, off, _, wrong), to)) = switches.find(|((known, ..), _)| *known == name) else {
            return self.integers.assign(name, value, does);
        };
        let is_on = value.eq_ignore_ascii_case(on.as_bytes());
        if !is_on && !value.eq_ignore_ascii_case(off.as_bytes()) {
            return Err(Some(wrong));
        }
        if does {
            to.store(is_on, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Parses numbers from 0 to 100.
fn percentiles(text: &[u8]) -> Result<Vec<f64>, &'static str> {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let number = |word: &[u8]| float_argument(word).ok().filter(|number| (0.0..=100.0).contains(number));
    let numbers: Option<Vec<f64>> = words.map(number).collect();
    numbers.ok_or("the percentiles must be numbers between 0.0 and 100.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_their_places_and_words() {
        let operation = OperationSettings::default();
        let set = |name, value: &str| operation.assign(name, value.as_bytes(), true);
        assert!(
            !operation.is_on(SwitchSetting::AllChannels) && operation.is_on(SwitchSetting::LatencyTracking)
        );
        set("timeout", "7").unwrap();
        set("acl-pubsub-default", "AllChannels").unwrap();
        set("latency-tracking", "no").unwrap();
        set("latency-tracking-info-percentiles", "0.0 50 100.0").unwrap();
        assert_eq!(operation.get(OperationSetting::Timeout), 7);
        assert!(
            operation.is_on(SwitchSetting::AllChannels) && !operation.is_on(SwitchSetting::LatencyTracking)
        );
        for (name, value) in [
            ("acl-pubsub-default", "some"),
            ("timeout", "-1"),
            ("latency-tracking", "1"),
            ("latency-tracking-info-percentiles", "50 a"),
            ("latency-tracking-info-percentiles", "101"),
        ] {
            assert!(set(name, value).is_err(), "{name} {value}");
        }
        assert_eq!(set("nothing", "1"), Err(None));
        assert_eq!(ROWS[OperationSetting::LatencyThreshold as usize].0, "latency-monitor-threshold");
        let values = operation.values();
        assert!(values.contains(&("acl-pubsub-default", "allchannels".to_owned())));
        assert!(values.contains(&("latency-tracking-info-percentiles", "0 50 100".to_owned())));
    }
}
