//! Ages as kubectl prints them (`k8s.io/apimachinery/pkg/util/duration.HumanDuration`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ingest::unix_seconds;

/// The time since an RFC 3339 text: `<unknown>` for an empty one, `<invalid>` for another.
pub(super) fn since(text: &str, now: SystemTime) -> String {
    if matches!(text, "" | "null" | "0001-01-01T00:00:00Z") {
        return "<unknown>".to_owned();
    }
    let Some(then) = unix_seconds(text) else { return "<invalid>".to_owned() };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    human(i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(then))
}

/// Seconds in at most two units. Clocks may differ: a little before now is now.
fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => pair(days, 'd', hours % 24, 'h'),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => pair(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of apimachinery's own test, and the boundaries.
    #[test]
    fn ages_are_those_of_kubectl() {
        let (minute, hour, day, year) = (60, 3600, 86_400, 31_536_000);
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (70, "70s"),
            (119, "119s"),
            (190, "3m10s"),
            (2 * minute, "2m"),
            (10 * minute, "10m"),
            (70 * minute, "70m"),
            (179 * minute + 59, "179m"),
            (3 * hour, "3h"),
            (3 * hour + 10 * minute, "3h10m"),
            (47 * hour, "47h"),
            (49 * hour, "2d1h"),
            (2 * day, "2d"),
            (8 * day + 2 * hour, "8d"),
            (367 * day, "367d"),
            (year * 2, "2y"),
            (year * 2 + 5 * day, "2y5d"),
            (year * 8 + 5 * day, "8y"),
            (year * 20, "20y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn ages_count_from_the_time_that_is_written() {
        let now = UNIX_EPOCH + Duration::from_hours(490_896);
        for (text, expected) in [
            ("2025-12-31T23:59:00Z", "60s"),
            ("2026-01-01T00:59:00+01:00", "60s"),
            ("2025-12-31T18:59:00.5-05:00", "60s"),
            ("2024-02-29T00:00:00Z", "672d"),
            ("", "<unknown>"),
            ("yesterday", "<invalid>"),
            ("2025-02-29T00:00:00Z", "<invalid>"),
        ] {
            assert_eq!(since(text, now), expected, "{text}");
        }
    }
}
