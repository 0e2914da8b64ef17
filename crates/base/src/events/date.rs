//! Unix time as a date, for the LOG file.

use std::fmt;
use std::time::Duration;

/// Unix time, UTC, printed as RocksDB prints it in its LOG: `2026/11/21-18:57:14.000042`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Date(pub(super) Duration);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = civil(seconds / 86_400);
        let of_day = seconds % 86_400;
        write!(
            f,
            "{year:04}/{month:02}/{day:02}-{:02}:{:02}:{:02}.{:06}",
            of_day / 3_600,
            of_day / 60 % 60,
            of_day % 60,
            self.0.subsec_micros()
        )
    }
}

/// Converts days since 1 January 1970 to a Gregorian date.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from 1 March, so that the leap day is the last of the year. 719,468 days
    // lie between 1 March of year 0 and 1970.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_at_the_edges() {
        let cases = [
            (0, "1970/01/01-00:00:00.000000"),
            (951_782_399, "2000/02/28-23:59:59.000000"),
            (951_782_400, "2000/02/29-00:00:00.000000"),
            (951_868_800, "2000/03/01-00:00:00.000000"),
            (1_735_689_599, "2024/12/31-23:59:59.000000"),
            (1_735_689_600, "2025/01/01-00:00:00.000000"),
            (4_107_542_400, "2100/03/01-00:00:00.000000"),
        ];
        for (seconds, text) in cases {
            assert_eq!(Date(Duration::from_secs(seconds)).to_string(), text);
        }
        assert!(Date(Duration::from_micros(1_000_042)).to_string().ends_with("00:01.000042"));
    }
}
