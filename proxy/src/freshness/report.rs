//! What an answer says of its own freshness (D43): headers, and a warning where something is to be feared.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::header::{HeaderMap, HeaderName, HeaderValue, WARNING};

use super::clock::Instant;
use super::keeper::whole_seconds;
use super::standing::Standing;
use super::view::{Complete, Doubtful, Seen, View};
use crate::represent::Annotation;

const AGE: HeaderName = HeaderName::from_static("x-cache-age");
const COMPLETE: HeaderName = HeaderName::from_static("x-cache-complete");
const SHARDS: HeaderName = HeaderName::from_static("x-cache-shards");
/// Shards that a warning names.
const NAMES_MAX: usize = 5;

/// Puts what is known into the headers of an answer.
pub(crate) fn annotate(headers: &mut HeaderMap, view: &View) {
    headers.insert(COMPLETE, HeaderValue::from_static(view.complete.as_str()));
    if !view.is_known() {
        return;
    }
    let age = view.age.map_or(HeaderValue::from_static("unknown"), |age| whole_seconds(age).into());
    headers.insert(AGE, age);
    let View { expected, synced, live, .. } = view;
    let shards = format!("expected={expected},synced={synced},live={live}");
    headers.insert(SHARDS, HeaderValue::try_from(shards).expect("digits and letters"));
    if let Some(text) = warning(view) {
        headers.insert(WARNING, text);
    }
}

/// What a bookmark says; nothing where nothing is pushed.
pub(crate) fn annotations(seen: &Seen, now: Instant) -> Vec<Annotation> {
    let view = &seen.view;
    if !view.is_known() {
        return vec![];
    }
    // It has aged since it was taken.
    let age = view.age.map(|age| whole_seconds(age + now.since(seen.at)).to_string());
    let mut annotations: Vec<Annotation> = vec![
        ("shardcache.dev/complete", view.complete.as_str().into()),
        ("shardcache.dev/max-age-seconds", age.map_or("unknown".into(), Cow::Owned)),
    ];
    if !view.doubtful.is_empty() {
        let names: Vec<_> = view.doubtful.iter().take(NAMES_MAX).map(|doubtful| &*doubtful.shard).collect();
        let more = view.doubtful.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        annotations.push(("shardcache.dev/unconfirmed", Cow::Owned(format!("{}{more}", names.join(",")))));
    }
    annotations
}

/// `299 - "cache: 1 of 10 shards unconfirmed: amber (37s)"`, if there is something to warn of.
fn warning(view: &View) -> Option<HeaderValue> {
    if view.doubtful.is_empty() {
        return None;
    }
    let names: Vec<_> = view.doubtful.iter().take(NAMES_MAX).map(name).collect();
    let more = if view.doubtful.len() > NAMES_MAX { ", …" } else { "" };
    let (doubtful, all) = (view.doubtful.len(), view.shards);
    let absent = if view.complete == Complete::No { ", objects are missing" } else { "" };
    let text = format!(
        "299 - \"cache: {doubtful} of {all} shards unconfirmed: {}{more}{absent}\"",
        names.join(", ")
    );
    HeaderValue::try_from(text.replace('…', "...")).ok()
}

fn name(doubtful: &Doubtful) -> String {
    let mut text = String::from(&*doubtful.shard);
    let age = doubtful.standing.age.map_or("unknown".to_owned(), |age| format!("{}s", whole_seconds(age)));
    let _ = write!(text, " ({age})");
    text
}

/// `Disconnected, last confirmed 37s ago`.
pub(crate) fn describe(standing: Standing) -> String {
    let condition = standing.condition.as_str();
    match standing.age {
        Some(age) => format!("{condition}, last confirmed {}s ago", whole_seconds(age)),
        None => format!("{condition}, not confirmed since this server has been open"),
    }
}
