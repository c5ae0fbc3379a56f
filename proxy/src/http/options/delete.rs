//! Options of DELETE and DELETECOLLECTION, from the query and the body.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::query::Query;
use super::write::dry_run_error;
use crate::status::{ApiError, FieldError};

/// What becomes of dependents. Recorded, not acted upon: the source's garbage collector does that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Delete dependents afterwards.
    Background,
    /// Delete dependents first.
    Foreground,
    /// Leave dependents.
    Orphan,
}

/// What must hold of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Preconditions {
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`, compared as text.
    pub resource_version: Option<String>,
}

/// Options of DELETE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Validate and answer, remove nothing.
    pub dry_run: bool,
    /// `gracePeriodSeconds`, not negative.
    pub grace_period_seconds: Option<u64>,
    /// `propagationPolicy`, or what `orphanDependents` says in its place.
    pub propagation: Option<Propagation>,
    /// What must hold.
    pub preconditions: Preconditions,
    /// The client's deadline (`timeout=`), uncapped.
    pub timeout: Option<Duration>,
}

impl DeleteOptions {
    /// Parses and validates; a body that is not empty wins over the query, except that a dry run asked for
    /// in either place is one. `body` is JSON, decoded from whatever the `Content-Type` said. 400 or 422
    /// as kube-apiserver.
    pub fn parse(query: &str, body: Option<&Value>) -> Result<Self, ApiError> {
        let query = Query::parse(query);
        let timeout = query.timeout()?;
        let asked = match body {
            Some(body) => Asked::of_body(body)?,
            None => Asked::of_query(&query)?,
        };
        let mut errors = Vec::new();
        let policy = asked.propagation_policy.as_deref();
        if let (Some(_), Some(policy)) = (asked.orphan_dependents, policy) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", policy, why));
        }
        let propagation = match (policy, asked.orphan_dependents) {
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, None) => None,
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", other, &supported));
                None
            }
        };
        let in_query: Vec<_> = query.all("dryRun").map(str::to_owned).collect();
        let dry_run = [asked.dry_run, in_query].concat();
        errors.extend(dry_run_error(&dry_run));
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            // kube reads a negative grace period as one second.
            grace_period_seconds: asked
                .grace_period_seconds
                .map(|seconds| u64::try_from(seconds).unwrap_or(1)),
            propagation,
            preconditions: asked.preconditions,
            timeout,
        })
    }
}

/// `DeleteOptions` as written, in the body or in the query.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    orphan_dependents: Option<bool>,
    #[serde(deserialize_with = "null_is_default")]
    preconditions: Preconditions,
    #[serde(deserialize_with = "null_is_default")]
    dry_run: Vec<String>,
}

impl Asked {
    fn of_body(body: &Value) -> Result<Self, ApiError> {
        if !body.is_object() {
            return Err(ApiError::bad_request("the body is not a DeleteOptions object"));
        }
        if let Some(kind) = body.get("kind").filter(|kind| *kind != "DeleteOptions" && *kind != "") {
            return Err(ApiError::bad_request(format!(
                "decoded object cannot be converted to DeleteOptions: {kind}"
            )));
        }
        Self::deserialize(body).map_err(|why| ApiError::bad_request(format!("invalid DeleteOptions: {why}")))
    }

    fn of_query(query: &Query<'_>) -> Result<Self, ApiError> {
        Ok(Self {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            propagation_policy: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.optional_flag("orphanDependents"),
            ..Self::default()
        })
    }
}

fn null_is_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(query: &str, body: impl Into<Option<Value>>) -> Result<DeleteOptions, ApiError> {
        DeleteOptions::parse(query, body.into().as_ref())
    }

    #[test]
    fn query_and_body_say_the_same() {
        let expected = DeleteOptions {
            dry_run: true,
            grace_period_seconds: Some(30),
            propagation: Some(Propagation::Foreground),
            preconditions: Preconditions::default(),
            timeout: None,
        };
        let query = "gracePeriodSeconds=30&propagationPolicy=Foreground&dryRun=All";
        assert_eq!(parse(query, None), Ok(expected.clone()));
        let body = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 30,
            "propagationPolicy": "Foreground", "dryRun": ["All"], "unknown": 1});
        assert_eq!(parse("", Some(body)), Ok(expected));
        assert_eq!(parse("", None), Ok(DeleteOptions::default()));
        assert_eq!(
            parse("", Some(json!({"preconditions": null, "dryRun": null}))),
            Ok(DeleteOptions::default())
        );
    }

    #[test]
    fn the_body_wins_but_a_dry_run_asked_for_anywhere_is_one() {
        let options = parse("gracePeriodSeconds=5&dryRun=All", Some(json!({"propagationPolicy": "Orphan"})));
        let options = options.expect("legal");
        assert_eq!((options.grace_period_seconds, options.propagation), (None, Some(Propagation::Orphan)));
        assert!(options.dry_run);
    }

    #[test]
    fn preconditions_and_legacy_fields() {
        let body = json!({"preconditions": {"uid": "u", "resourceVersion": "7"}, "orphanDependents": true,
            "gracePeriodSeconds": -1});
        let options = parse("", Some(body)).expect("legal");
        let preconditions = Preconditions { uid: Some("u".into()), resource_version: Some("7".into()) };
        assert_eq!(options.preconditions, preconditions);
        assert_eq!((options.propagation, options.grace_period_seconds), (Some(Propagation::Orphan), Some(1)));
        let options = parse("orphanDependents=false", None).expect("legal");
        assert_eq!(options.propagation, Some(Propagation::Background));
    }

    #[test]
    fn bad_options_are_422_with_kube_s_texts() {
        let table = [
            (
                "orphanDependents=true&propagationPolicy=Background",
                "propagationPolicy: Invalid value: \"Background\": orphanDependents and deletionPropagation cannot be \
                 both set",
            ),
            (
                "propagationPolicy=now",
                "propagationPolicy: Unsupported value: \"now\": supported values: \"Foreground\", \"Background\", \
                 \"Orphan\", \"nil\"",
            ),
            ("dryRun=no", "dryRun: Unsupported value: [\"no\"]: supported values: \"All\""),
        ];
        for (query, message) in table {
            let error = parse(query, None).expect_err(query);
            assert_eq!((error.code, error.reason), (422, "Invalid"));
            assert_eq!(error.message, format!("DeleteOptions.meta.k8s.io \"\" is invalid: {message}"));
        }
    }

    #[test]
    fn bodies_of_another_shape_are_400() {
        for body in [
            json!([]),
            json!("x"),
            json!({"kind": "Pod"}),
            json!({"gracePeriodSeconds": "x"}),
            json!({"dryRun": "All"}),
            json!({"preconditions": {"uid": 1}}),
        ] {
            assert_eq!(parse("", Some(body.clone())).expect_err("refused").code, 400, "{body}");
        }
        assert_eq!(parse("gracePeriodSeconds=x", None).expect_err("refused").code, 400);
    }
}
