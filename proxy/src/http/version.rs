//! `/version`: which Kubernetes this server's surface corresponds to.
//!
//! `gitVersion` is semver with the program's own version as build metadata. Helm, kubectl and some
//! operators parse it and gate features on it, so it names the Kubernetes release whose wire contract
//! is followed. `kubectl version` warns when the client is more than one minor version away; nothing
//! else in kubectl looks at the difference.

use ::http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::accept::negotiate_json;
use super::respond;
use crate::body::Body;
use crate::status::ApiError;

/// Major version of the Kubernetes whose wire contract is followed.
const MAJOR: &str = "1";
/// Its minor version.
const MINOR: &str = "37";

/// The minor version before, whose clients and servers may be beside it.
const MIN_COMPATIBILITY_MINOR: &str = "36";

/// Answers a GET of `/version`, in a scope or not; 406 for who cannot read JSON.
pub fn respond(headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    negotiate_json(headers)?;
    Ok(respond::value(StatusCode::OK, &document()))
}

/// Every field of Kubernetes' `version.Info`; clients require all of them to be texts.
fn document() -> Value {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MIN_COMPATIBILITY_MINOR,
        "gitVersion": format!("v{MAJOR}.{MINOR}.0+shardcache.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{arch}", std::env::consts::OS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_a_text_and_the_version_is_semver() {
        let document = document();
        let fields = document.as_object().expect("an object");
        assert!(fields.values().all(Value::is_string), "{document}");
        let version = document["gitVersion"].as_str().expect("text");
        let (core, build) = version.strip_prefix('v').and_then(|v| v.split_once('+')).expect("v…+…");
        assert_eq!(core.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3, "{version}");
        assert!(build.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-'), "{version}");
    }
}
