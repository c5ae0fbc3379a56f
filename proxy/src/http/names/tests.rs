use super::*;
use crate::ingest;
use crate::status::ApiError;

fn widgets() -> TypeName {
    TypeName::new("example.dev", "widgets")
}

fn roles() -> TypeName {
    TypeName::new(RBAC_GROUP, "clusterroles")
}

fn errors(type_name: &TypeName, namespace: &str, metadata: &str) -> Vec<String> {
    let body = format!(r#"{{"metadata":{metadata}}}"#);
    let object = ingest::read(body.as_bytes()).expect("legal JSON");
    let name = object.name().into_owned();
    validate(&object, type_name, namespace, &name).iter().map(ToString::to_string).collect()
}

fn name(type_name: &TypeName, name: &str) -> Vec<String> {
    errors(type_name, "", &format!(r#"{{"name":"{name}"}}"#))
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[test]
fn names_are_dns_subdomains() {
    for good in ["a", "0", "a-b.c-d", "v1alpha1.apis.kcp.io", &"a".repeat(253)] {
        assert_eq!(name(&widgets(), good), [] as [&str; 0], "{good}");
    }
    for bad in ["A", "a_b", "-a", "a-", "a..b", ".a", "a.", "a:b", "a/b", "ä", "a b", "a\\u0000b"] {
        let wanted = format!(
            "metadata.name: Invalid value: {}: {SUBDOMAIN}",
            match bad {
                "a\\u0000b" => r#""a\x00b""#.to_owned(),
                bad => format!("{bad:?}"),
            }
        );
        assert_eq!(name(&widgets(), bad), [wanted], "{bad}");
    }
    let long = "a".repeat(254);
    let wanted = format!("metadata.name: Invalid value: \"{long}\": must be no more than 253 bytes");
    assert_eq!(name(&widgets(), &long), [wanted]);
}

#[test]
fn rbac_names_are_path_segments() {
    for good in ["system:kcp:admin", "A_b c", "...", "root|x"] {
        assert_eq!(name(&roles(), good), [] as [&str; 0], "{good}");
    }
    for (bad, why) in [
        (".", "may not be '.'"),
        ("..", "may not be '..'"),
        ("a/b", "may not contain '/'"),
        ("a%b", "may not contain '%'"),
    ] {
        assert_eq!(name(&roles(), bad), [format!("metadata.name: Invalid value: \"{bad}\": {why}")]);
    }
    let wanted = [r#"metadata.name: Invalid value: "a\x00b": may not contain NUL"#];
    assert_eq!(name(&roles(), "a\\u0000b"), wanted);
}

#[test]
fn namespaces_are_dns_labels() {
    let namespaces = TypeName::new("", "namespaces");
    assert_eq!(name(&namespaces, "kube-system"), [] as [&str; 0]);
    for bad in ["a.b", "A", "-a", "a-", ""] {
        let field = errors(&widgets(), bad, r#"{"name":"x"}"#);
        if bad.is_empty() {
            assert_eq!(field, [] as [&str; 0], "cluster-scoped");
            continue;
        }
        let rule = if bad.contains('.') { "must not contain dots" } else { DNS_LABEL_RULE };
        assert_eq!(field, [format!("metadata.namespace: Invalid value: \"{bad}\": {rule}")]);
        assert_eq!(name(&namespaces, bad), [format!("metadata.name: Invalid value: \"{bad}\": {rule}")]);
    }
    let long = "a".repeat(64);
    let wanted = format!("metadata.namespace: Invalid value: \"{long}\": must be no more than 63 bytes");
    assert_eq!(errors(&widgets(), &long, r#"{"name":"x"}"#), [wanted]);
}

#[test]
fn a_name_or_its_beginning_is_required() {
    let wanted = ["metadata.name: Required value: name or generateName is required"];
    for metadata in ["{}", "null", r#"{"name":"","generateName":null}"#] {
        assert_eq!(errors(&widgets(), "", metadata), wanted, "{metadata}");
    }
    for metadata in [r#"{"generateName":"a-"}"#, r#"{"generateName":"a"}"#, r#"{"generateName":"a.b-"}"#] {
        assert_eq!(errors(&widgets(), "", metadata), [] as [&str; 0], "{metadata}");
    }
    for bad in ["A-", "-", "a.", "a_"] {
        let wanted = format!("metadata.generateName: Invalid value: {bad:?}: {SUBDOMAIN}");
        assert_eq!(errors(&widgets(), "", &format!(r#"{{"generateName":"{bad}"}}"#)), [wanted], "{bad}");
    }
    assert_eq!(errors(&roles(), "", r#"{"generateName":".."}"#), [] as [&str; 0]);
}

#[test]
fn labels_and_annotations_have_kube_s_rules_and_texts() {
    let metadata = concat!(
        r#"{"name":"x","labels":{"":"","a/b/c":"","-":"ok","k":"-"},"#,
        r#""annotations":{"UPPER.example/Key":"any \n text","ä":"","kcp.io/cluster":"x"}}"#
    );
    let found = errors(&widgets(), "", metadata);
    assert!(found.iter().all(|text| text.starts_with("metadata.labels: Invalid value: \"")
        || text.starts_with("metadata.annotations: Invalid value: \"ä\": name part must consist of")));
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(found[0].starts_with(r#"metadata.labels: Invalid value: "": name part must be non-empty"#));
    assert!(found[2].contains(r#""a/b/c": a valid label key must consist of"#), "{}", found[2]);
    assert!(found[4].contains(r#""-": a valid label must be an empty string or consist of"#), "{}", found[4]);
}

#[test]
fn annotations_are_bounded_in_sum_without_what_the_cache_adds() {
    let sized = |bytes: usize, extra: &str| {
        let half = "v".repeat(bytes / 2 - 1);
        let metadata = format!(r#"{{"name":"x","annotations":{{"a":"{half}","b":"{half}"{extra}}}}}"#);
        errors(&widgets(), "", &metadata)
    };
    assert_eq!(sized(ANNOTATIONS_MAX, ""), [] as [&str; 0]);
    assert_eq!(sized(ANNOTATIONS_MAX, r#","kcp.io/shard":"amber","kcp.io/cluster":"root""#), [] as [&str; 0]);
    let wanted = ["metadata.annotations: Too long: may not be more than 262144 bytes"];
    assert_eq!(sized(ANNOTATIONS_MAX + 2, ""), wanted);
}

#[test]
fn several_errors_make_one_status_with_a_cause_each() {
    let object = ingest::read(br#"{"metadata":{"name":"A","labels":{"k":"-"}}}"#).expect("legal");
    let errors = validate(&object, &widgets(), "", "A");
    let status = ApiError::invalid("example.dev", "Widget", "A", &errors).status();
    let message = status["message"].as_str().expect("text");
    assert!(
        message.starts_with(r#"Widget.example.dev "A" is invalid: [metadata.name: Invalid value: "A": "#)
    );
    assert!(message.contains(r#", metadata.labels: Invalid value: "-": a valid label"#));
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueInvalid");
    assert_eq!(status["details"]["causes"][1]["field"], "metadata.labels");
    assert_eq!((&status["reason"], &status["code"]), (&"Invalid".into(), &422.into()));
}

#[test]
fn generated_names_are_cut_and_use_kube_s_alphabet() {
    let mut next = 0;
    let mut count = |below: usize| {
        next += 7;
        next % below
    };
    let short = generate("web-", &mut count);
    let (base, suffix) = short.split_at(4);
    assert_eq!((base, suffix.len()), ("web-", 5));
    assert!(suffix.bytes().all(|byte| ALPHABET.contains(&byte)), "{short}");
    let long = generate(&"a".repeat(100), &mut count);
    assert_eq!(long.len(), 63);
    assert!(long.starts_with(&"a".repeat(58)));
    let wide = generate(&"é".repeat(60), &mut count);
    assert_eq!(wide.chars().filter(|char| *char == 'é').count(), 29, "never cut inside a character");
    let tail: Vec<_> = (0..ALPHABET.len()).collect();
    let mut each = tail.into_iter();
    let all: String = (0..5).map(|_| generate("", |_| each.next().expect("enough"))).collect();
    assert_eq!(all, "bcdfghjklmnpqrstvwxz24567");
}

#[test]
fn owners_have_kube_s_rules_and_texts() {
    let owners = |list: &str| errors(&widgets(), "", &format!(r#"{{"name":"x","ownerReferences":{list}}}"#));
    let legal = r#"[{"apiVersion":"a.b/v1","kind":"A","name":"a","uid":"1","controller":true,"blockOwnerDeletion":true},
        {"apiVersion":"v1","kind":"B","name":"b","uid":"2","controller":false}]"#;
    assert_eq!(owners(legal), [] as [&str; 0]);
    assert_eq!(owners("null"), [] as [&str; 0]);
    let required =
        |field: &str| format!("metadata.ownerReferences[0].{field}: Required value: must not be empty");
    assert_eq!(owners("[{}]"), ["apiVersion", "kind", "name", "uid"].map(required));
    assert_eq!(
        owners(r#"[{"apiVersion":"a/b/c","kind":"A","name":"a","uid":"1"}]"#),
        [
            r#"metadata.ownerReferences[0].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>"#
        ]
    );
    let event = r#"{"apiVersion":"v1","kind":"Event","name":"a","uid":"1"}"#;
    assert_eq!(
        owners(&format!("[{event}]")),
        [format!(
            "metadata.ownerReferences[0]: Invalid value: {event}: /v1, Kind=Event is disallowed from being an owner"
        )]
    );
    let two = concat!(
        r#"[{"apiVersion":"v1","kind":"A","name":"a","uid":"1","controller":true},"#,
        r#"{"apiVersion":"v1","kind":"B","name":"b","uid":"2","controller":true}]"#
    );
    assert_eq!(
        owners(two),
        [format!(
            "metadata.ownerReferences: Invalid value: {two}: Only one reference can have Controller set to true. Found \
             \"true\" in references for A/a and B/b"
        )]
    );
}

#[test]
fn finalizers_have_kube_s_rules_and_texts() {
    let finalizers = |list: &str| errors(&widgets(), "", &format!(r#"{{"name":"x","finalizers":{list}}}"#));
    assert_eq!(finalizers(r#"["example.io/f","bare","orphan"]"#), [] as [&str; 0]);
    assert_eq!(
        finalizers(r#"["orphan","foregroundDeletion"]"#),
        [
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
        ]
    );
    let bad = finalizers(r#"["a b/x"]"#);
    assert!(
        bad[0].starts_with(r#"metadata.finalizers: Invalid value: "a b/x": prefix part a lowercase"#),
        "{bad:?}"
    );

    let body = br#"{"metadata":{"finalizers":["bare","orphan","example.io/f","known"]}}"#;
    let object = ingest::read(body).expect("legal");
    let warnings = finalizer_warnings(&object, &["known".to_owned()]);
    assert_eq!(
        warnings,
        [
            r#"metadata.finalizers: "bare": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"#
        ]
    );
}
