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
        assert_eq!(field, [format!("metadata.namespace: Invalid value: \"{bad}\": {DNS_LABEL_RULE}")]);
        assert_eq!(
            name(&namespaces, bad),
            [format!("metadata.name: Invalid value: \"{bad}\": {DNS_LABEL_RULE}")]
        );
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
    assert!(found[2].contains(r#""a/b/c": a qualified name must consist of"#), "{}", found[2]);
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
