//! What `ownerReferences` and `finalizers` may say: apimachinery's rules and texts, and kube-apiserver's
//! warning.

use serde::{Deserialize, Serialize};

use super::report;
use crate::ingest::Object;
use crate::selector::rules::label_key_problems;
use crate::status::FieldError;

const OWNERS: &str = "metadata.ownerReferences";
const FINALIZERS: &str = "metadata.finalizers";
/// Finalizers that have no domain because Kubernetes itself has them.
const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// One owner, in the order in which an error shows it.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_owner_deletion: Option<bool>,
}

pub(super) fn validate(object: &Object<'_>, errors: &mut Vec<FieldError>) {
    validate_owners(&read(object.owner_references()), errors);
    let finalizers: Vec<String> = read(object.finalizers());
    for finalizer in &finalizers {
        report(errors, FINALIZERS, finalizer, label_key_problems(finalizer));
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid_bare(FINALIZERS, json(&finalizers), why));
    }
}

/// What a client should be told about finalizers that are legal, and not among the `known` ones that
/// the object had before.
pub(crate) fn finalizer_warnings(object: &Object<'_>, known: &[String]) -> Vec<String> {
    let finalizers: Vec<String> = read(object.finalizers());
    let is_bare = |name: &&String| !name.contains('/') && !STANDARD.contains(&name.as_str());
    let bare = finalizers.iter().filter(|name| !known.contains(*name)).filter(is_bare);
    let warn = |name: &String| {
        format!(
            "{FINALIZERS}: {name:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other \
             finalizer writers"
        )
    };
    bare.map(warn).collect()
}

fn validate_owners(owners: &[Owner], errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    for (index, owner) in owners.iter().enumerate() {
        let at = format!("{OWNERS}[{index}]");
        let fields = [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ];
        for (field, value) in fields {
            match value.as_deref().unwrap_or_default() {
                "" => errors.push(FieldError::required(format!("{at}.{field}"), "must not be empty")),
                version if field == "apiVersion" && !is_group_version(version) => {
                    let why = "must be <group>/<version> or <version>";
                    errors.push(FieldError::invalid(format!("{at}.{field}"), version, why));
                }
                _ => {}
            }
        }
        if (owner.api_version.as_deref(), owner.kind.as_deref()) == (Some("v1"), Some("Event")) {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid_bare(at, json(owner), why));
        }
        if owner.controller == Some(true) {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let this = format!("{}/{}", text(&owner.kind), text(&owner.name));
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    );
                    errors.push(FieldError::invalid_bare(OWNERS, json(owners), why));
                }
            }
        }
    }
}

fn is_group_version(text: &str) -> bool {
    text.matches('/').count() < 2 && !text.ends_with('/')
}

/// A list whose types were checked when the object was read; absent and null are empty.
fn read<'a, T: Deserialize<'a>>(list: Option<&'a [u8]>) -> Vec<T> {
    list.and_then(|list| serde_json::from_slice::<Option<Vec<T>>>(list).ok()).flatten().unwrap_or_default()
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
