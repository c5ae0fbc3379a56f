//! RFC 3339 times as Kubernetes writes and reads them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time in whole seconds, UTC: `2026-01-02T15:04:05Z`. Times before 1970 are shown as 1970.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is a year's last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Whether clients read a text as a time: `YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm)`.
pub(super) fn is_rfc3339(text: &str) -> bool {
    unix_seconds(text).is_some()
}

/// Seconds since 1970 of such a text, fractions cut off; `None` if it is not one.
pub(crate) fn unix_seconds(text: &str) -> Option<i64> {
    let (head, mut rest) = text.as_bytes().split_at_checked(19)?;
    let number = |from: usize, to: usize| -> Option<u32> {
        head[from..to]
            .iter()
            .try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(at, byte)| head[*at] != *byte) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=days).contains(&day) || hour >= 24 || minute >= 60 || second >= 60 {
        return None;
    }
    if let [b'.', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        rest = &fraction[digits..];
    }
    let in_day = i64::from(hour * 3600 + minute * 60 + second);
    Some(day_number(year, month, day) * 86_400 + in_day - offset(rest)?)
}

/// Seconds by which a time zone is ahead of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = zone else { return (zone == b"Z").then_some(0) };
    let two = |a: &u8, b: &u8| {
        (a.is_ascii_digit() && b.is_ascii_digit()).then(|| i64::from((a - b'0') * 10 + b - b'0'))
    };
    let (hours, minutes) = (two(h1, h2)?, two(m1, m2)?);
    let ahead = hours * 3600 + minutes * 60;
    (hours < 24 && minutes < 60).then_some(if *sign == b'+' { ahead } else { -ahead })
}

/// The day counted from 1970-01-01; the inverse of [`civil`].
fn day_number(year: u32, month: u32, day: u32) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_767_225_600), "2026-01-01T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(at(1_785_512_345), "2026-07-31T15:39:05Z");
    }

    #[test]
    fn a_time_that_is_written_is_read_as_itself() {
        for seconds in (0..5_000_000_000).step_by(86_399 * 7) {
            let text = rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(unix_seconds(&text), Some(seconds as i64), "{text}");
        }
        assert_eq!(unix_seconds("0001-01-01T00:00:00Z"), Some(-62_135_596_800));
        assert_eq!(unix_seconds("1970-01-01T01:30:00+01:30"), Some(0));
        assert_eq!(unix_seconds("1969-12-31T23:59:59.9Z"), Some(-1));
    }

    #[test]
    fn only_times_that_every_client_reads_are_times() {
        for good in [
            "2026-01-02T15:04:05Z",
            "2024-02-29T00:00:00Z",
            "2026-01-02T15:04:05.123456789Z",
            "2026-01-02T15:04:05+02:00",
            "0001-01-01T00:00:00Z",
        ] {
            assert!(is_rfc3339(good), "{good}");
        }
        for bad in [
            "",
            "now",
            "2026-01-02",
            "2026-01-02 15:04:05Z",
            "2026-01-02T15:04:05",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+2:00",
            "2026-01-01T00:00:00z",
            "2026-01-01t00:00:00Z",
            "+026-01-01T00:00:00Z",
            "２０２６-01-01T00:00:00Z",
        ] {
            assert!(!is_rfc3339(bad), "{bad}");
        }
    }
}
