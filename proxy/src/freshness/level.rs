//! What a read asks for (D37), and what that means together with its resourceVersion.
//!
//! | said by | how | counts for |
//! |---|---|---|
//! | the query | `freshness=stale`, `store`, `source`; `maxStaleness=30s` | this request; 400 if its resourceVersion says otherwise |
//! | a header | `Cache-Freshness: stale`, `store`, `source`, `max-age=30` | reads whose resourceVersion is unset or `0` |
//! | the path | `/services/cache/profile/<the same as the header>/…` | the same |
//! | the server | `--unset-rv-concrete`, `--unset-rv-wildcard` | reads whose resourceVersion is unset |
//!
//! The first that says something is obeyed. A client that can set nothing but a URL sends `0` because its
//! library does, so a header or path raises that too; `stale` there lowers what is unset.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Serialize};

use crate::freshness::FreshnessConfig;
use crate::http::options::{Freshness, Query};
use crate::status::{ApiError, quote};

/// The header that says how fresh an answer has to be.
const CACHE_FRESHNESS: HeaderName = HeaderName::from_static("cache-freshness");
/// Longest staleness that can be asked for.
const STALENESS_MAX: Duration = Duration::from_hours(365 * 24);

/// A promise about what an answer contains. As text: `stale`, `store`, `source`, `max-age=<seconds>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Level {
    /// Some committed state, at once.
    Stale,
    /// Everything that this cache acknowledged before the request.
    Store,
    /// Every write that the source completed more than this before the request.
    Bounded(Duration),
    /// Every write that the source completed before the request.
    Source,
}

impl Level {
    /// How much older than the request a confirmation may be; `None`: none is needed.
    pub(crate) fn slack(self) -> Option<Duration> {
        match self {
            Self::Stale | Self::Store => None,
            Self::Bounded(slack) => Some(slack),
            Self::Source => Some(Duration::ZERO),
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "stale" => Ok(Self::Stale),
            "store" => Ok(Self::Store),
            "source" => Ok(Self::Source),
            _ => {
                let seconds = text.strip_prefix("max-age=").and_then(|seconds| seconds.parse().ok());
                let slack = seconds.map(Duration::from_secs).filter(|slack| *slack <= STALENESS_MAX);
                slack.map(Self::Bounded).ok_or_else(|| {
                    format!(
                        "{} is none of \"stale\", \"store\", \"source\", \"max-age=<seconds>\"",
                        quote(text)
                    )
                })
            }
        }
    }
}

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Level> for String {
    fn from(level: Level) -> Self {
        level.to_string()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("stale"),
            Self::Store => f.write_str("store"),
            Self::Source => f.write_str("source"),
            Self::Bounded(slack) => write!(f, "max-age={}", slack.as_secs()),
        }
    }
}

/// What a read's resourceVersion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Nothing.
    Unset,
    /// `0`: whatever is at hand.
    Any,
    /// At least this version.
    NotOlderThan,
    /// Exactly some version, or events after a version.
    Fixed,
    /// The next page of a list, whose first one was judged; or events from now on, which show no state.
    Open,
}

impl From<Freshness> for At {
    fn from(freshness: Freshness) -> Self {
        match freshness {
            Freshness::MostRecent => Self::Unset,
            Freshness::Any => Self::Any,
            Freshness::NotOlderThan(_) => Self::NotOlderThan,
        }
    }
}

/// What a request says about freshness, apart from its resourceVersion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// By the query, and which parameter said it.
    query: Option<(Level, &'static str)>,
    /// By a header or the path.
    standing: Option<Level>,
    /// Whether a view that lacks shards is wanted all the same.
    pub(crate) allow_incomplete: bool,
}

/// What a read needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// How much older than the request a confirmation by the source may be; `None`: none is needed.
    pub(crate) slack: Option<Duration>,
    /// Whether the client has asked for it itself.
    pub(crate) asked: bool,
}

impl Asked {
    /// Reads query, headers and the level of the path; 400 with the field named if one is not understood.
    pub(crate) fn parse(query: &str, headers: &HeaderMap, profile: Option<Level>) -> Result<Self, ApiError> {
        let query = Query::parse(query);
        let text = |name| query.get(name).filter(|value: &&str| !value.is_empty());
        let by_level = text("freshness").map(|value| match value {
            "stale" => Ok(Level::Stale),
            "store" => Ok(Level::Store),
            "source" => Ok(Level::Source),
            other => Err(ApiError::bad_request(format!(
                "freshness: {} is none of \"stale\", \"store\", \"source\"",
                quote(other)
            ))),
        });
        let by_age = text("maxStaleness").map(|value| {
            let slack = query.duration("maxStaleness").filter(|slack| *slack <= STALENESS_MAX);
            slack.map(Level::Bounded).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "maxStaleness: {} is not a duration such as \"30s\", of at most a year",
                    quote(value)
                ))
            })
        });
        let query_level = match (by_level.transpose()?, by_age.transpose()?) {
            (Some(_), Some(_)) => {
                return Err(ApiError::bad_request("maxStaleness: cannot be combined with freshness"));
            }
            (Some(level), None) => Some((level, "freshness")),
            (None, Some(level)) => Some((level, "maxStaleness")),
            (None, None) => None,
        };
        let allow_incomplete = match text("incomplete") {
            None => false,
            Some("allow") => true,
            Some(other) => {
                return Err(ApiError::bad_request(format!("incomplete: {} is not \"allow\"", quote(other))));
            }
        };
        let header = headers.get(CACHE_FRESHNESS).map(|value| {
            let text = value.to_str().map_err(|_| "is not text".to_owned());
            text.and_then(|text| text.trim().parse())
                .map_err(|why: String| ApiError::bad_request(format!("Cache-Freshness: {why}")))
        });
        Ok(Self { query: query_level, standing: header.transpose()?.or(profile), allow_incomplete })
    }

    /// What that means for a read; 400 if query and resourceVersion contradict each other.
    pub(crate) fn need(&self, at: At, concrete: bool, config: &FreshnessConfig) -> Result<Need, ApiError> {
        if let Some((level, field)) = self.query.filter(|_| at != At::Open) {
            let contradiction = match (level, at) {
                (_, At::Fixed) => Some("a version that is given exactly"),
                (Level::Bounded(_) | Level::Source, At::Any) => Some("resourceVersion \"0\""),
                (Level::Stale, At::NotOlderThan) => Some("a resourceVersion that the answer must contain"),
                _ => None,
            };
            return match contradiction {
                Some(what) => Err(ApiError::bad_request(format!("{field}: {level} contradicts {what}"))),
                None => Ok(Need { slack: level.slack(), asked: true }),
            };
        }
        match (self.standing, at) {
            (Some(level), At::Unset | At::Any) => Ok(Need { slack: level.slack(), asked: true }),
            (None, At::Unset) => {
                let level = if concrete { config.unset_concrete } else { config.unset_wildcard };
                Ok(Need { slack: level.slack(), asked: false })
            }
            _ => Ok(Need { slack: None, asked: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str, header: Option<&str>, profile: Option<Level>) -> Result<Asked, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(CACHE_FRESHNESS, header.parse().expect("a header"));
        }
        Asked::parse(query, &headers, profile)
    }

    fn slack(asked: &Asked, at: At, concrete: bool) -> Option<Duration> {
        asked.need(at, concrete, &FreshnessConfig::default()).expect("no contradiction").slack
    }

    const ZERO: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn d37_the_nearest_word_counts() {
        let silent = asked("", None, None).expect("legal");
        assert_eq!(slack(&silent, At::Unset, true), ZERO, "one shard: the source");
        assert_eq!(slack(&silent, At::Unset, false), None, "all shards: the store");
        for at in [At::Any, At::NotOlderThan, At::Fixed] {
            assert_eq!(slack(&silent, at, true), None);
        }
        let thirty = Some(Duration::from_secs(30));
        for (query, header, profile, expected) in [
            ("freshness=source", Some("stale"), Some(Level::Stale), ZERO),
            ("maxStaleness=30s", Some("source"), None, thirty),
            ("freshness=stale", Some("source"), None, None),
            ("", Some("max-age=30"), Some(Level::Source), thirty),
            ("", Some("stale"), None, None),
            ("", None, Some(Level::Source), ZERO),
        ] {
            let asked = asked(query, header, profile).expect("legal");
            assert_eq!(slack(&asked, At::Unset, true), expected, "{query} {header:?} {profile:?}");
        }
        let raised = asked("", None, Some(Level::Source)).expect("legal");
        assert_eq!(slack(&raised, At::Any, true), ZERO, "libraries send 0 by themselves");
        assert_eq!(slack(&raised, At::Fixed, true), None, "a watch goes on");
    }

    #[test]
    fn what_is_not_understood_is_400_with_the_field() {
        for (query, header, field) in [
            ("freshness=fresh", None, "freshness"),
            ("maxStaleness=soon", None, "maxStaleness"),
            ("maxStaleness=-3s", None, "maxStaleness"),
            ("maxStaleness=9000000h", None, "maxStaleness"),
            ("maxStaleness=3s&freshness=source", None, "maxStaleness"),
            ("incomplete=yes", None, "incomplete"),
            ("", Some("max-age=x"), "Cache-Freshness"),
            ("", Some("no-cache"), "Cache-Freshness"),
        ] {
            let error = asked(query, header, None).expect_err(query);
            assert_eq!(error.code, 400);
            assert!(error.message.starts_with(&format!("{field}: ")), "{}", error.message);
        }
    }

    #[test]
    fn a_level_must_not_contradict_the_version() {
        let config = FreshnessConfig::default();
        for (query, at) in [
            ("freshness=source", At::Any),
            ("maxStaleness=5s", At::Any),
            ("freshness=source", At::Fixed),
            ("freshness=stale", At::Fixed),
            ("freshness=stale", At::NotOlderThan),
        ] {
            let error = asked(query, None, None).expect("legal").need(at, true, &config).expect_err(query);
            assert_eq!(error.code, 400, "{query} {at:?}");
        }
        let both = asked("freshness=source", None, None).expect("legal");
        assert_eq!(slack(&both, At::NotOlderThan, false), ZERO, "both can be had");
    }

    #[test]
    fn levels_survive_the_round_trip() {
        for text in ["stale", "store", "source", "max-age=30"] {
            assert_eq!(text.parse::<Level>().map(|level| level.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "Source", "max-age=", "max-age=-1", "max-age=99999999999"] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }
}
