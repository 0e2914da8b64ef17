//! Daily time of little use (`daily_offpeak_time_utc`): work that would become due before the next
//! such time is done in the current one.
//!
//! In: the option's text, `HH:mm-HH:mm` in UTC. Out: the number of seconds to look ahead.

const DAY_S: u64 = 24 * 60 * 60;

/// A period of each day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offpeak {
    /// Start, in seconds after midnight.
    start_s: u64,
    end_s: u64,
}

impl Offpeak {
    /// Parses the option; `None` for an empty text.
    ///
    /// # Errors
    /// The expected format.
    pub fn parse(text: &str) -> Result<Option<Offpeak>, &'static str> {
        if text.is_empty() {
            return Ok(None);
        }
        let times = text.split_once('-').and_then(|(start, end)| Some((time_s(start)?, time_s(end)?)));
        match times {
            None => Err("must be in the form HH:mm-HH:mm, as 04:30-07:30"),
            Some((start, end)) if start == end => Err("must not end when it begins"),
            Some((start_s, end_s)) => Ok(Some(Offpeak { start_s, end_s })),
        }
    }

    /// Returns the seconds from `now_s`, in seconds since 1970, to the next start of the period, if
    /// `now_s` is within the period; else 0.
    ///
    /// Compat: the minute in which the period ends belongs to it.
    pub fn ahead_s(self, now_s: u64) -> u64 {
        let now_s = now_s % DAY_S;
        let minute_s = now_s / 60 * 60;
        let is_now = match self.start_s > self.end_s {
            true => self.start_s <= minute_s || minute_s <= self.end_s,
            false => self.start_s <= minute_s && minute_s <= self.end_s,
        };
        let next_s = if now_s < self.start_s { self.start_s } else { self.start_s + DAY_S };
        if is_now { next_s - now_s } else { 0 }
    }
}

/// Parses `HH:mm` to seconds.
fn time_s(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| digits && *number < below)
    };
    Some(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_it_one_looks_ahead_to_the_next() {
        let at = |text: &str, hour: u64, minute: u64| {
            Offpeak::parse(text).unwrap().unwrap().ahead_s(1000 * DAY_S + hour * 3600 + minute * 60 + 30)
        };
        assert_eq!(at("04:30-07:30", 4, 29), 0);
        assert_eq!(at("04:30-07:30", 4, 30), DAY_S - 30);
        assert_eq!(at("04:30-07:30", 7, 30), DAY_S - 3 * 3600 - 30);
        assert_eq!(at("04:30-07:30", 7, 31), 0);
        assert_eq!(at("23:30-01:00", 23, 30), DAY_S - 30);
        assert_eq!(at("23:30-01:00", 0, 30), 23 * 3600 - 30);
        assert_eq!(at("23:30-01:00", 12, 0), 0);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        assert_eq!(Offpeak::parse(""), Ok(None));
        for text in ["1", "4:30-07:30", "04:30", "04:60-05:00", "24:00-01:00", "04:30-04:30", "aa:bb-cc:dd"] {
            assert!(Offpeak::parse(text).is_err(), "{text}");
        }
    }
}
