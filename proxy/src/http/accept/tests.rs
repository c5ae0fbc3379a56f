use http::HeaderMap;
use proptest::prelude::*;

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("legal"))).collect()
}

fn shape(accept: &str, expected: Expected) -> Result<Shape, String> {
    let negotiated = negotiate(&headers(&[("accept", accept)]), "", expected);
    negotiated.map(|representation| representation.shape).map_err(|error| {
        assert_eq!((error.code, error.reason), (406, "NotAcceptable"));
        error.message
    })
}

const METADATA: Shape = Shape::PartialMetadata(MetaVersion::V1);
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const ACCEPTED: &str = "only the following media types are accepted: application/json, application/yaml";
const ACCEPTED_STREAMS: &str = "only the following media types are accepted: application/json;stream=watch";

#[test]
fn clients_seen_in_the_wild_get_what_they_can_read() {
    let metadata = |kind: &str| {
        let parameters = format!("as={kind};g=meta.k8s.io;v=v1");
        format!("{PROTOBUF};{parameters},application/json;{parameters},application/json")
    };
    let kubectl = format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
    for expected in [Expected::Object, Expected::List, Expected::Watch] {
        assert_eq!(shape(&kubectl, expected), Ok(Shape::Table(MetaVersion::V1, IncludeObject::Metadata)));
        for accept in [
            "",
            "application/json",
            "APPLICATION/JSON; charset=utf-8",
            "*/*",
            "*",
            "application/*",
            "application/json, */*",
            "application/json;stream=watch",
            "application/json;profile=nopeer;unknown=1",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8",
            "application/cbor, application/json",
            &format!("{PARTIAL};q=0,application/json"),
            "application/json;sv=v2,application/json;q=0.1",
        ] {
            assert_eq!(shape(accept, expected), Ok(Shape::Object), "{accept:?} {expected:?}");
        }
    }
    let typed = format!("{PROTOBUF},application/json");
    assert_eq!(shape(&typed, Expected::List), Ok(Shape::UntypedItems));
    assert_eq!(shape(&typed, Expected::Object), Ok(Shape::Object));
    assert_eq!(shape(&typed, Expected::Watch), Ok(Shape::Object));
    for (kind, expected) in [
        ("PartialObjectMetadata", Expected::Object),
        ("PartialObjectMetadata", Expected::Watch),
        ("PartialObjectMetadataList", Expected::List),
        ("PartialObjectMetadataList", Expected::Watch),
    ] {
        assert_eq!(shape(&metadata(kind), expected), Ok(METADATA), "{kind} {expected:?}");
        let beta = metadata(kind).replace("v=v1", "v=v1beta1");
        let shown = shape(&beta, expected);
        assert_eq!(shown, Ok(Shape::PartialMetadata(MetaVersion::V1Beta1)), "{kind} {expected:?}");
    }
}

#[test]
fn yaml_is_written_for_who_prefers_it_and_never_on_watches() {
    let encoding = |accept: &str, expected| {
        negotiate(&headers(&[("accept", accept)]), "", expected).expect("acceptable").encoding
    };
    for (accept, expected) in [
        ("application/yaml", Encoding::Yaml),
        ("application/yaml,application/json", Encoding::Yaml),
        ("application/json,application/yaml", Encoding::Json),
        ("application/json;q=0.5,application/yaml", Encoding::Yaml),
        ("*/*,application/yaml", Encoding::Yaml),
        ("*/*", Encoding::Json),
        ("", Encoding::Json),
    ] {
        assert_eq!(encoding(accept, Expected::Object), expected, "{accept}");
        assert_eq!(encoding(accept, Expected::List), expected, "{accept}");
    }
    assert_eq!(encoding("application/yaml,application/json", Expected::Watch), Encoding::Json);
    let table = TABLE.replace("json", "yaml");
    assert_eq!(shape(&table, Expected::List), Ok(Shape::Table(MetaVersion::V1, IncludeObject::Metadata)));
    assert_eq!(encoding(&table, Expected::List), Encoding::Yaml);
    let error = |accept: &str| negotiate_error(&headers(&[("accept", accept)]), "").encoding;
    assert_eq!((error("application/yaml"), error("text/html")), (Encoding::Yaml, Encoding::Json));
}

#[test]
fn tables_come_in_two_versions_and_hold_what_is_asked_for() {
    let negotiated = |accept: &str, query: &str| {
        let negotiated = negotiate(&headers(&[("accept", accept)]), query, Expected::List);
        negotiated.map(|representation| representation.shape)
    };
    let beta = TABLE.replace("v=v1", "v=v1beta1");
    let table = |version, include| Ok(Shape::Table(version, include));
    assert_eq!(negotiated(&beta, ""), table(MetaVersion::V1Beta1, IncludeObject::Metadata));
    assert_eq!(negotiated(TABLE, "includeObject=Object"), table(MetaVersion::V1, IncludeObject::Object));
    assert_eq!(negotiated(TABLE, "a&includeObject=None"), table(MetaVersion::V1, IncludeObject::None));
    assert_eq!(negotiated(TABLE, "includeObject="), table(MetaVersion::V1, IncludeObject::Metadata));
    let refused = negotiated(TABLE, "includeObject=none").expect_err("unknown");
    assert_eq!(
        (refused.code, &*refused.message),
        (
            400,
            "Unable to convert to Table as requested: includeObject: Invalid value: \"none\": must be 'Metadata', \
             'Object', 'None', or empty"
        )
    );
    assert_eq!(negotiated("application/json", "includeObject=none"), Ok(Shape::Object));
}

#[test]
fn quality_orders_clauses_and_precision_breaks_ties() {
    let prefers = |accept: &str| shape(accept, Expected::Object);
    assert_eq!(prefers(&format!("application/json;q=0.5,{PARTIAL};q=0.9")), Ok(METADATA));
    assert_eq!(prefers(&format!("{PARTIAL};q=0.5,application/json")), Ok(Shape::Object));
    assert_eq!(prefers(&format!("*/*,{PARTIAL}")), Ok(METADATA));
    assert_eq!(prefers(&format!("{PARTIAL},application/json")), Ok(METADATA));
    let mut repeated = headers(&[("accept", PROTOBUF)]);
    repeated.append("accept", PARTIAL.parse().expect("legal"));
    let negotiated = negotiate(&repeated, "", Expected::Object).expect("acceptable");
    assert_eq!(negotiated.shape, METADATA);
}

#[test]
fn what_we_cannot_write_is_406() {
    for accept in [
        "text/html",
        "application/yaml;q=0",
        "application/yaml;as=Other;g=meta.k8s.io;v=v1",
        PROTOBUF,
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        "application/json;q=0",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1alpha1",
        "application/json;as=PartialObjectMetadata;g=other;v=v1",
        "application/json;as=Other;g=meta.k8s.io;v=v1",
        "application/json;stream=other",
        "application/json;sv=v2",
        ",;=",
    ] {
        assert_eq!(shape(accept, Expected::Object), Err(ACCEPTED.to_owned()), "{accept}");
        assert_eq!(shape(accept, Expected::Watch), Err(ACCEPTED_STREAMS.to_owned()), "{accept}");
    }
    assert_eq!(shape("application/yaml", Expected::Watch), Err(ACCEPTED_STREAMS.to_owned()));
    assert_eq!(
        shape(PARTIAL, Expected::List),
        Err("you requested PartialObjectMetadata, but the requested object is a list".to_owned())
    );
    assert_eq!(
        shape(&format!("{PARTIAL_LIST},application/json"), Expected::Object),
        Err("you requested PartialObjectMetadataList, but the requested object is not a list".to_owned())
    );
}

#[test]
fn pretty_printing_is_asked_for_or_for_humans_and_never_on_watches() {
    let pretty = |agent: &str, query: &str, accept: &str, expected| {
        let headers = headers(&[("user-agent", agent), ("accept", accept)]);
        negotiate(&headers, query, expected).expect("acceptable").pretty
    };
    for (agent, query, accept, expected) in [
        ("curl/8.1", "", "*/*", true),
        ("Wget/1.2", "", "*/*", true),
        ("Mozilla/5.0 (X11)", "", "*/*", true),
        ("curl/8.1", "pretty=false", "*/*", false),
        ("curl/8.1", "pretty=0", "*/*", false),
        ("curl/8.1", "pretty=", "*/*", true),
        ("kubectl/v1", "", "*/*", false),
        ("kubectl/v1", "pretty=true", "*/*", true),
        ("kubectl/v1", "a=b&pretty=1", "*/*", true),
        ("kubectl/v1", "pretty=yes", "*/*", false),
        ("kubectl/v1", "", "application/json;pretty=1", true),
    ] {
        assert_eq!(pretty(agent, query, accept, Expected::List), expected, "{agent} {query} {accept}");
        assert!(!pretty(agent, query, accept, Expected::Watch), "{agent} {query} {accept}");
    }
}

#[test]
fn gzip_is_taken_when_accepted_and_never_on_watches() {
    for (encoding, expected) in [
        ("gzip", true),
        ("deflate, GZIP;q=0.5", true),
        ("gzip;q=1.0, identity", true),
        ("gzip;q=0", false),
        ("gzip;q=0.000", false),
        ("br, deflate", false),
        ("xgzip", false),
        ("", false),
    ] {
        let headers = headers(&[("accept-encoding", encoding)]);
        let gzip = |expected| negotiate(&headers, "", expected).expect("acceptable").gzip;
        assert_eq!(gzip(Expected::List), expected, "{encoding}");
        assert_eq!(gzip(Expected::Object), expected, "{encoding}");
        assert!(!gzip(Expected::Watch), "{encoding}");
    }
}

#[test]
fn discovery_is_aggregated_for_those_who_ask_in_the_current_version() {
    let form = |accept: &str| {
        let chosen = negotiate_discovery(&headers(&[("accept", accept)]), "", true);
        chosen.map(|(form, representation)| (form, representation.encoding))
    };
    let yaml = AGGREGATED_DISCOVERY_YAML;
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
    for (accept, expected) in [
        (AGGREGATED_DISCOVERY.to_owned(), DiscoveryForm::Aggregated),
        (format!("{AGGREGATED_DISCOVERY},{beta},application/json"), DiscoveryForm::Aggregated),
        (format!("{AGGREGATED_DISCOVERY};profile=nopeer,{AGGREGATED_DISCOVERY}"), DiscoveryForm::Aggregated),
        (format!("{beta},application/json"), DiscoveryForm::Legacy),
        (format!("{PROTOBUF},application/json"), DiscoveryForm::Legacy),
        (format!("application/json,{AGGREGATED_DISCOVERY}"), DiscoveryForm::Legacy),
        ("*/*".to_owned(), DiscoveryForm::Legacy),
        (String::new(), DiscoveryForm::Legacy),
    ] {
        assert_eq!(form(&accept), Ok((expected, Encoding::Json)), "{accept}");
    }
    assert_eq!(
        form(&format!("{yaml},{AGGREGATED_DISCOVERY}")),
        Ok((DiscoveryForm::Aggregated, Encoding::Yaml))
    );
    assert_eq!(form("application/yaml"), Ok((DiscoveryForm::Legacy, Encoding::Yaml)));
    for accept in [beta, PROTOBUF, "text/html"] {
        assert_eq!(form(accept), Err(ApiError::not_acceptable(ACCEPTED)), "{accept}");
    }
    // A single group has one form.
    let of_a_group = |accept: &str| negotiate_discovery(&headers(&[("accept", accept)]), "", false);
    assert!(of_a_group(AGGREGATED_DISCOVERY).is_err());
    let fallback = of_a_group(&format!("{AGGREGATED_DISCOVERY},*/*")).expect("acceptable");
    assert_eq!(fallback.0, DiscoveryForm::Legacy);
}

#[test]
fn bodies_of_unknown_types_are_415_with_kube_s_texts() {
    let body = |value: &str| body_format(&headers(&[("content-type", value)]));
    assert_eq!(body_format(&HeaderMap::new()), Ok(BodyFormat::Json));
    assert_eq!(body("application/json; charset=utf-8"), Ok(BodyFormat::Json));
    assert_eq!(body("Application/YAML"), Ok(BodyFormat::Yaml));
    for value in [PROTOBUF, "text/plain", "application/cbor", "json"] {
        let error = body(value).expect_err(value);
        assert_eq!((error.code, error.reason), (415, "UnsupportedMediaType"));
        assert_eq!(
            error.message,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml"
        );
    }
    let patch = |value: &str| patch_format(&headers(&[("content-type", value)]));
    assert_eq!(patch("application/json-patch+json"), Ok(PatchFormat::Json));
    assert_eq!(patch("application/merge-patch+json;charset=UTF-8"), Ok(PatchFormat::Merge));
    for value in
        ["application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/json", ""]
    {
        let error = patch(value).expect_err(value);
        assert_eq!((error.code, error.reason), (415, "UnsupportedMediaType"));
        assert_eq!(
            error.message,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json"
        );
    }
    assert_eq!(patch_format(&HeaderMap::new()).expect_err("refused").code, 415);
}

proptest! {
    #[test]
    fn arbitrary_headers_never_panic(accept in "[a-z*/;=,q0.9 \"]{0,40}") {
        let headers = headers(&[("accept", &accept), ("accept-encoding", &accept), ("content-type", &accept)]);
        for expected in [Expected::Object, Expected::List, Expected::Watch] {
            let _ = negotiate(&headers, &accept, expected);
        }
        let _ = (negotiate_discovery(&headers, &accept, true), body_format(&headers), patch_format(&headers));
    }
}
