//! `--ttl`: values followed by the time of their write, in the format of RocksDB's `DBWithTTL`.
//!
//! Input: `--ttl`, `--timestamp`, `--start_time`, `--end_time`, `--bucket`. Output: values without
//! their times, only those written within the given times, and counts by time.
//!
//! Compat: times are printed in UTC, where ldb uses the machine's time zone.

use super::arguments::Arguments;
use crate::output::Fault;
use karst_engine::DbWithTtl;
use std::fmt;
use std::io::Write;

/// Arguments about the times of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    is_on: bool,
    with_times: bool,
    start: i32,
    end: i32,
    bucket: i64,
}

/// Compat: when RocksDB's utility appeared; no value is older.
const FIRST: i32 = 1_368_146_402;

impl Times {
    /// Takes the arguments of `scan` and `dump`. Compat: without `--ttl` they have no effect.
    pub(super) fn take(args: &mut Arguments, is_on: bool) -> Result<Times, Fault> {
        let times = Times {
            is_on,
            with_times: args.take_flag("timestamp")?,
            start: args.take_number("start_time")?.unwrap_or(FIRST),
            end: args.take_number("end_time")?.unwrap_or(i32::MAX),
            bucket: args.take_number("bucket")?.unwrap_or(0),
        };
        if times.end < times.start {
            return Err(Fault::Usage("Error: End time can't be less than start time".into()));
        }
        Ok(times)
    }

    /// Returns the value and its time; `None` if it was written outside of the given times.
    pub(super) fn shown<'v>(&self, stored: &'v [u8]) -> Result<Option<(&'v [u8], i32)>, Fault> {
        if !self.is_on {
            return Ok(Some((stored, 0)));
        }
        let (value, time) = value_and_time(stored)?;
        Ok((self.start..self.end).contains(&time).then_some((value, time)))
    }

    /// Returns true if each entry is printed with its time.
    pub(super) fn are_printed(&self) -> bool {
        self.is_on && self.with_times
    }

    /// Writes the line before all entries.
    pub(super) fn write_head(&self, what: &str, out: &mut impl Write) -> Result<(), Fault> {
        let (start, end) = (Human(self.start.into()), Human(self.end.into()));
        writeln!(out, "{what} key-values from {start} to {end}").map_err(|e| Fault::of_output(&e))
    }

    /// Writes the time of an entry, before the entry.
    pub(super) fn write(&self, time: i32, out: &mut impl Write) -> Result<(), Fault> {
        write!(out, "{} ", Human(time.into())).map_err(|e| Fault::of_output(&e))
    }

    /// Returns the length of a bucket in seconds; `None` without buckets.
    fn span(&self) -> Option<i64> {
        let all = i64::from(self.end) - i64::from(self.start);
        (self.is_on && self.bucket > 0 && self.bucket < all).then_some(self.bucket)
    }

    pub(super) fn buckets(&self) -> Option<Buckets> {
        let (span, start, end) = (self.span()?, i64::from(self.start), i64::from(self.end));
        Some(Buckets { span, start, end, counts: std::collections::BTreeMap::new() })
    }
}

/// `dump --bucket`: numbers of keys by the time of their write.
#[derive(Debug)]
pub(super) struct Buckets {
    span: i64,
    start: i64,
    end: i64,
    counts: std::collections::BTreeMap<i64, u64>,
}

impl Buckets {
    pub(super) fn add(&mut self, time: i32) {
        *self.counts.entry((i64::from(time) - self.start) / self.span).or_default() += 1;
    }

    pub(super) fn write(&self, out: &mut impl Write) -> Result<(), Fault> {
        let mut from = self.start;
        while from < self.end {
            let to = (from + self.span).min(self.end);
            let count = self.counts.get(&((from - self.start) / self.span)).copied().unwrap_or(0);
            writeln!(out, "Keys in range {} to {} : {count}", Human(from), Human(to))
                .map_err(|e| Fault::of_output(&e))?;
            from = to;
        }
        Ok(())
    }
}

/// Splits a stored value into value and time.
fn value_and_time(stored: &[u8]) -> Result<(&[u8], i32), Fault> {
    let parts = stored.split_last_chunk::<{ DbWithTtl::STAMP_BYTES }>();
    let missing = || "a value does not end with a write time, which --ttl needs".to_string();
    let (value, time) = parts.ok_or_else(missing)?;
    Ok((value, i32::from_le_bytes(*time)))
}

/// Seconds since 1970, displayed in the format of `ctime`.
struct Human(i64);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (days, of_day) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        // Times have 32 bits, so the loops run for at most 68 years.
        let (mut year, mut left) = (1970, days);
        while left < 0 {
            year -= 1;
            left += 365 + i64::from(is_leap(year));
        }
        while left >= 365 + i64::from(is_leap(year)) {
            left -= 365 + i64::from(is_leap(year));
            year += 1;
        }
        let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        for length in &lengths[..11] {
            if left < *length {
                break;
            }
            left -= length;
            month += 1;
        }
        let weekday = DAYS[days.rem_euclid(7) as usize];
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        write!(f, "{weekday} {} {:2} {hour:02}:{minute:02}:{second:02} {year}", MONTHS[month], left + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_ctime_prints_them() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (-1, "Wed Dec 31 23:59:59 1969"),
            (1_368_146_402, "Fri May 10 00:40:02 2013"),
            (1_709_164_800, "Thu Feb 29 00:00:00 2024"),
            (1_735_689_599, "Tue Dec 31 23:59:59 2024"),
            (2_147_483_647, "Tue Jan 19 03:14:07 2038"),
        ] {
            assert_eq!(Human(seconds).to_string(), text);
        }
    }
}
