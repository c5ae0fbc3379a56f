//! Durations and sizes as people write them: `90s`, `1h30m`, `64KiB`, `2GiB`.
//!
//! Both types print what they parse, so a printed configuration can be read back. Neither accepts a
//! bare number other than `0`: a unit that is missing is a unit that somebody guesses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A length of time with units `ms`, `s`, `m`, `h`, `d`, as in `1s`, `5m`, `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Time(pub Duration);

/// A number of bytes with units `B`, `KiB`, `MiB`, `GiB`, `TiB`, as in `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

/// Why a text is not a [`Time`] or a [`Size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a duration.
    #[error("expected a duration such as 30s, 5m, 1h30m (units ms, s, m, h, d)")]
    Time,
    /// Not a size.
    #[error("expected a size such as 64KiB, 3MiB, 2GiB (units B, KiB, MiB, GiB, TiB)")]
    Size,
}

const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Splits `12GiB…` into the number, the unit's factor and what follows.
fn take_quantity<'a>(text: &'a str, units: &[(&str, u64)]) -> Option<(u64, &'a str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let rest = &text[digits..];
    let unit_len = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_len);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some((number.checked_mul(*factor)?, rest))
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let (mut total_ms, mut rest) = take_quantity(text, &TIME_UNITS).ok_or(UnitError::Time)?;
        while !rest.is_empty() {
            let (ms, tail) = take_quantity(rest, &TIME_UNITS).ok_or(UnitError::Time)?;
            total_ms = total_ms.checked_add(ms).ok_or(UnitError::Time)?;
            rest = tail;
        }
        Ok(Self(Duration::from_millis(total_ms)))
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "0" {
            return Ok(Self(0));
        }
        match take_quantity(text, &SIZE_UNITS) {
            Some((bytes, "")) => Ok(Self(bytes)),
            _ => Err(UnitError::Size),
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest_ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest_ms == 0 {
            return f.write_str("0s");
        }
        for (unit, factor) in TIME_UNITS {
            if rest_ms >= factor {
                write!(f, "{}{unit}", rest_ms / factor)?;
                rest_ms %= factor;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0");
        }
        let (unit, factor) = SIZE_UNITS
            .into_iter()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl TryFrom<String> for Time {
    type Error = UnitError;

    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl TryFrom<String> for Size {
    type Error = UnitError;

    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_and_sizes_parse_as_people_write_them() {
        for (text, ms) in [("1s", 1000), ("5m", 300_000), ("1h30m", 5_400_000), ("250ms", 250), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Time(Duration::from_millis(ms))), "{text}");
        }
        for (text, bytes) in [("64KiB", 65_536), ("3MiB", 3 << 20), ("2GiB", 2 << 30), ("7B", 7), ("0", 0)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn a_missing_or_unknown_unit_is_refused() {
        for text in ["", "5", "s", "1x", "-1s", "1.5h", "1 s", "99999999999999999999s", "9999999999999999d"] {
            assert_eq!(text.parse::<Time>(), Err(UnitError::Time), "{text}");
        }
        for text in ["", "5", "KiB", "1KB", "1kib", "1GiB1MiB", "1.5GiB", "99999999999TiB"] {
            assert_eq!(text.parse::<Size>(), Err(UnitError::Size), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same(ms in 0..=u64::MAX / 2, bytes: u64) {
            let time = Time(Duration::from_millis(ms));
            prop_assert_eq!(time.to_string().parse(), Ok(time));
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }
}
