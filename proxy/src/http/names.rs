//! What metadata may say: names, namespaces, labels, annotations, owners and finalizers, with kube-apiserver's texts.
//!
//! Schemaless is about the payload, not about metadata. Names are DNS subdomains (RFC 1123), as for
//! custom resources, with two exceptions: RBAC objects have any name that can be a path segment (their
//! names hold colons), and a Namespace is a DNS label because it becomes one in paths.
//!
//! Pure. What `metadata` may look like as JSON is `ingest`'s business, and who may write what is nobody's
//! here.

mod references;

use shardcache_storage::TypeName;

pub(crate) use references::finalizer_warnings;

use crate::ingest::{CLUSTER_ANNOTATION, Object, SHARD_ANNOTATION};
use crate::selector::rules::{label_key_problems, label_value_problems, subdomain_problems};
use crate::status::FieldError;

/// Bytes of all annotation keys and values of one object.
const ANNOTATIONS_MAX: usize = 256 << 10;
/// Bytes of a namespace.
const LABEL_MAX: usize = 63;
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const DNS_LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
     must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Bytes of `generateName` that a generated name begins with.
const GENERATED_BASE_MAX: usize = 58;
/// Random characters after them.
const SUFFIX_LEN: usize = 5;
/// Kubernetes' alphabet: no vowels and no characters that look alike, so that no words come out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Every error in the metadata of an object that is to have this namespace (`""` if none), in
/// kube-apiserver's order. `name` is the object's, or the one generated for it.
pub(crate) fn validate(
    object: &Object<'_>,
    type_name: &TypeName,
    namespace: &str,
    name: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = object.generate_name();
    if !generate_name.is_empty() {
        let problems = prefix_problems(type_name, &generate_name);
        report(&mut errors, "metadata.generateName", &generate_name, problems);
    }
    if name.is_empty() && generate_name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if !name.is_empty() {
        report(&mut errors, "metadata.name", name, name_problems(type_name, name));
    }
    if !namespace.is_empty() {
        report(&mut errors, "metadata.namespace", namespace, dns_label_problems(namespace));
    }
    validate_labels(object, &mut errors);
    validate_annotations(object, &mut errors);
    references::validate(object, &mut errors);
    errors
}

fn report(errors: &mut Vec<FieldError>, field: &str, value: &str, problems: Vec<String>) {
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(field, value, problem)));
}

fn validate_labels(object: &Object<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in object.labels() {
        report(errors, "metadata.labels", &key, label_key_problems(&key));
        report(errors, "metadata.labels", &value, label_value_problems(&value));
    }
}

fn validate_annotations(object: &Object<'_>, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in object.annotations() {
        // As a label key, except that case does not matter.
        report(errors, "metadata.annotations", &key, label_key_problems(&key.to_lowercase()));
        // What the cache puts in must not make an object too large to be written back.
        if key != SHARD_ANNOTATION && key != CLUSTER_ANNOTATION {
            size += key.len() + value.len();
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_MAX));
    }
}

/// What is wrong with an object's name, empty if nothing is.
fn name_problems(type_name: &TypeName, name: &str) -> Vec<String> {
    match (type_name.group(), type_name.resource()) {
        (RBAC_GROUP, _) => segment_problems(name),
        ("", "namespaces") => dns_label_problems(name),
        _ => subdomain_problems(name),
    }
}

/// What is wrong with the beginning of a name.
fn prefix_problems(type_name: &TypeName, prefix: &str) -> Vec<String> {
    if type_name.group() == RBAC_GROUP {
        return content_problems(prefix);
    }
    // A trailing dash is followed by the generated part, so it may stand for any character.
    match prefix.strip_suffix('-') {
        Some(start) if !start.is_empty() => name_problems(type_name, &format!("{start}a")),
        _ => name_problems(type_name, prefix),
    }
}

/// Rules of a path segment, which everything that is named in a URL has to obey.
fn segment_problems(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    content_problems(name)
}

fn content_problems(name: &str) -> Vec<String> {
    // NUL joins the parts of a key; Kubernetes would store it, but nothing could address it.
    let bad = [("/", "'/'"), ("%", "'%'"), ("\0", "NUL")];
    let found = bad.into_iter().filter(|(text, _)| name.contains(text));
    found.map(|(_, shown)| format!("may not contain {shown}")).collect()
}

fn dns_label_problems(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_MAX {
        problems.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let framed = !text.is_empty() && !text.starts_with('-') && !text.ends_with('-');
    if text.contains('.') && subdomain_problems(text).is_empty() {
        problems.push("must not contain dots".to_owned());
    } else if !framed || !text.bytes().all(allowed) {
        problems.push(DNS_LABEL_RULE.to_owned());
    }
    problems
}

/// A name that begins as `generateName` says; `random` gives numbers below its argument.
pub(crate) fn generate(generate_name: &str, mut random: impl FnMut(usize) -> usize) -> String {
    let mut end = generate_name.len().min(GENERATED_BASE_MAX);
    while !generate_name.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = String::with_capacity(end + SUFFIX_LEN);
    name.push_str(&generate_name[..end]);
    name.extend((0..SUFFIX_LEN).map(|_| char::from(ALPHABET[random(ALPHABET.len())])));
    name
}

#[cfg(test)]
mod tests;
