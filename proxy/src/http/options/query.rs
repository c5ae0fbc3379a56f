//! The query string itself.

use std::borrow::Cow;
use std::time::Duration;

use crate::status::{ApiError, quote};

/// Decoded parameters in the order of the request. Sloppy as kube-apiserver is: empty pairs are skipped,
/// the first value of a repeated parameter wins, unknown parameters are nobody's business.
///
/// Unlike there, a value with a broken escape is kept as it stands and not dropped: a selector that
/// disappears selects everything, a strange one is refused.
#[derive(Clone, Debug, Default)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Splits and decodes.
    pub fn parse(query: &'a str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let split = |pair: &'a str| pair.split_once('=').unwrap_or((pair, ""));
        Self(pairs.map(split).map(|(name, value)| (decode(name), decode(value))).collect())
    }

    /// The first value of a parameter; `None` if absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of a parameter.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// The first value of a parameter, `""` if absent.
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// kube's rule for booleans: absent, `0` and `false` (any case) are false, all else is true.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    /// The same, `None` if absent.
    pub(super) fn optional_flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A decimal parameter; 400 with Go's text if it is there and is not one.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|error: std::num::ParseIntError| {
            let why = match error.kind() {
                std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                    "value out of range"
                }
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quote(value)))
        })
    }

    /// A Go duration that is not negative; `None` if the parameter is absent or is none.
    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        go_duration(self.get(name)?).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// The client's deadline in `timeout`; zero and negative mean none.
    pub(super) fn timeout(&self) -> Result<Option<Duration>, ApiError> {
        let text = self.text("timeout");
        if text.is_empty() {
            return Ok(None);
        }
        let seconds = go_duration(text)
            .ok_or_else(|| ApiError::bad_request("invalid timeout specified in the request URL"))?;
        Ok(Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero()))
    }
}

/// Go's `time.ParseDuration`, in seconds: `1m30s`, `1.5h`, `-2ms`, `0`.
fn go_duration(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if rest == "0" {
        return Some(0.0);
    }
    let mut seconds = 0.0;
    loop {
        let digits = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        if tail.is_empty() {
            // Go's durations end at 2⁶³ nanoseconds.
            return (seconds < 9.3e9).then_some(sign * seconds);
        }
        rest = tail;
    }
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => match tail.split_first_chunk::<2>().map(|(digits, after)| (hex(*digits), after)) {
                Some((Some(byte), after)) => {
                    bytes.push(byte);
                    rest = after;
                }
                _ => return Cow::Borrowed(text),
            },
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn hex(digits: [u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(digits[0])? << 4 | digit(digits[1])?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sloppy_queries_mean_what_clients_mean() {
        let query = Query::parse("&&a=1&b=x+y%2C%3d&a=2&c&=d&e=%zz&f=%ff&&");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("b"), Some("x y,="));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!(query.get("d"), None);
        assert_eq!(query.get("e"), Some("%zz"));
        assert_eq!(query.get("f"), Some("%ff"));
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn flags_follow_kube_s_rule() {
        for (query, expected) in [
            ("", None),
            ("f=0", Some(false)),
            ("f=false", Some(false)),
            ("f=FALSE", Some(false)),
            ("f", Some(true)),
            ("f=", Some(true)),
            ("f=1", Some(true)),
            ("f=True", Some(true)),
            ("f=no", Some(true)),
            ("f=00", Some(true)),
        ] {
            assert_eq!(Query::parse(query).optional_flag("f"), expected, "{query}");
            assert_eq!(Query::parse(query).flag("f"), expected.unwrap_or(false), "{query}");
        }
    }

    #[test]
    fn numbers_are_int64_with_go_s_errors() {
        assert_eq!(Query::parse("n=-5").number("n"), Ok(Some(-5)));
        assert_eq!(Query::parse("").number("n"), Ok(None));
        for (query, message) in [
            ("n=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            ("n=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("n=1.5", "strconv.ParseInt: parsing \"1.5\": invalid syntax"),
            (
                "n=9223372036854775808",
                "strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
            ),
        ] {
            assert_eq!(Query::parse(query).number("n"), Err(ApiError::bad_request(message)), "{query}");
        }
    }

    #[test]
    fn timeouts_are_go_durations() {
        let timeout = |text: &str| Query::parse(&format!("timeout={text}")).timeout();
        for (text, expected) in [
            ("", None),
            ("0", None),
            ("0s", None),
            ("-5s", None),
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("250ms", Some(250)),
            ("1h1m1s1ms", Some(3_661_001)),
        ] {
            assert_eq!(timeout(text), Ok(expected.map(Duration::from_millis)), "{text}");
        }
        for text in ["5", "s", "x", "1d", "1s2", ".s", "1..5s", "99999999h", "%zz"] {
            let error = timeout(text).expect_err(text);
            assert_eq!(
                (error.code, &*error.message),
                (400, "invalid timeout specified in the request URL"),
                "{text}"
            );
        }
    }
}
