use super::*;

const EXPORTS: &str = r#"{"apiexports.apis.kcp.io":"70"}"#;

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::parse(&number.to_string()).expect("a version")
}

fn at(seconds: u64) -> Instant {
    Instant::after_boot(Duration::from_secs(seconds))
}

fn claim(written: &str, read_after: u64) -> Claim {
    Claim::read(Some(written), Some(&read_after.to_string())).expect("it can be read")
}

fn never(_: &TypeName) -> bool {
    false
}

fn is_bad(fault: &Fault, annotation: &str, part: &str) -> bool {
    matches!(fault, Fault::Bad(of, problem) if *of == annotation && problem.contains(part))
}

#[test]
fn types_are_named_as_kubectl_names_them() {
    assert_eq!(type_named("apiexports.apis.kcp.io"), Some(TypeName::new("apis.kcp.io", "apiexports")));
    assert_eq!(type_named("namespaces"), Some(TypeName::new("", "namespaces")));
    for text in ["", ".apis.kcp.io", "ApiExports", "a/b", "a b.c"] {
        assert_eq!(type_named(text), None, "{text}");
    }
}

#[test]
fn a_shard_has_one_lease_whatever_its_name() {
    let place = |shard| key(shard).expect("a key").as_str().to_owned();
    assert_eq!(place("amber"), "amber\0system:shardcache\0default\0shardcache-amber");
    assert_eq!(place("root:amber"), "root:amber\0system:shardcache\0default\0shardcache-root.amber");
}

#[test]
fn what_cannot_be_read_is_refused_with_the_annotation_named() {
    let read = |written, after| Claim::read(written, after).expect_err("illegal");
    for (text, part) in [
        ("", "JSON object"),
        ("[]", "JSON object"),
        (r#"{"apiexports.apis.kcp.io":70}"#, "JSON object"),
        (r#"{"apiexports.apis.kcp.io":"7a"}"#, "no version of a source"),
        (r#"{"apiexports.apis.kcp.io":"0"}"#, "no version of a source"),
        (r#"{"apiexports.apis.kcp.io":"+7"}"#, "no version of a source"),
        (r#"{"apiexports.apis.kcp.io":""}"#, "no version of a source"),
        (r#"{"apiexports.apis.kcp.io":"99999999999999999999"}"#, "no version of a source"),
        (r#"{"ApiExports":"7"}"#, "<plural>.<group>"),
    ] {
        assert!(is_bad(&read(Some(text), None), WRITTEN, part), "{text}: {:?}", read(Some(text), None));
    }
    assert!(is_bad(&read(None, Some("x")), READ_AFTER, "resourceVersion"));
    let many: BTreeMap<String, String> =
        (0..=TYPES_MAX).map(|index| (format!("type-{index}"), "1".to_owned())).collect();
    let many = serde_json::to_string(&many).expect("JSON");
    assert!(is_bad(&read(Some(&many), None), WRITTEN, "257 types"));
}

#[test]
fn d39_a_claim_proves_what_was_before_the_renewal_that_it_names() {
    let mut renewals = Renewals::default();
    renewals.acknowledged(version(1000), at(10));
    renewals.acknowledged(version(1001), at(20));
    renewals.acknowledged(version(1002), at(30));
    let nothing = Claim::default();
    let proof = judge(Some((&nothing, version(1002))), &claim(EXPORTS, 1001), never, &renewals);
    assert_eq!(proof, Ok(Some(at(20))), "not when it was written, nor when the last renewal came");
    // The same again is a heartbeat, and proves nothing.
    let before = claim(EXPORTS, 1001);
    assert_eq!(judge(Some((&before, version(1003))), &before.clone(), never, &renewals), Ok(None));
}

#[test]
fn claims_that_cannot_be_true_are_refused() {
    let mut renewals = Renewals::default();
    renewals.acknowledged(version(1000), at(10));
    let nothing = Claim::default();
    let new = judge(None, &claim(EXPORTS, 1000), never, &renewals).expect_err("nothing was written since");
    assert!(is_bad(&new, WRITTEN, "being created"), "{new:?}");
    assert_eq!(judge(None, &nothing, never, &renewals), Ok(None));
    let judged = |claim: &Claim| judge(Some((&nothing, version(1000))), claim, never, &renewals);
    let ahead = judged(&claim(EXPORTS, 1001)).expect_err("no such renewal yet");
    assert!(is_bad(&ahead, READ_AFTER, "no renewal of this Lease"), "{ahead:?}");
    let unnamed = judged(&Claim { read_after: None, ..claim(EXPORTS, 1000) }).expect_err("after which?");
    assert!(is_bad(&unnamed, READ_AFTER, "must name"), "{unnamed:?}");
    // One of an earlier life of the server, or of a Lease that was there before.
    assert_eq!(judged(&claim(EXPORTS, 999)), Err(Fault::Forgotten(version(999))));
}

#[test]
fn what_was_said_is_not_taken_back() {
    let mut renewals = Renewals::default();
    renewals.acknowledged(version(1000), at(10));
    let before = claim(EXPORTS, 1000);
    let judged =
        |claim: &Claim, may_go: bool| judge(Some((&before, version(1000))), claim, |_| may_go, &renewals);
    let less = claim(r#"{"apiexports.apis.kcp.io":"69"}"#, 1000);
    for may_go in [false, true] {
        assert!(is_bad(&judged(&less, may_go).expect_err("less"), WRITTEN, "says less"));
    }
    for gone in [Claim::default(), claim(r#"{"namespaces":"80"}"#, 1000)] {
        assert!(is_bad(&judged(&gone, false).expect_err("gone"), WRITTEN, "says less"));
        assert!(judged(&gone, true).is_ok(), "its pusher writes it now");
    }
    let more = claim(r#"{"apiexports.apis.kcp.io":"70","namespaces":"9"}"#, 1000);
    assert_eq!(judged(&more, false), Ok(Some(at(10))));
}

#[test]
fn few_renewals_are_remembered() {
    let mut renewals = Renewals::default();
    for number in 0..100 {
        renewals.acknowledged(version(1000 + number), at(number));
    }
    assert_eq!(renewals.0.len(), RENEWALS_MAX);
    assert_eq!(renewals.time_of(version(1099)), Some(at(99)));
    assert_eq!(renewals.time_of(version(1000)), None);
    assert_eq!(renewals.last(), Some(at(99)));
}

#[test]
fn an_object_that_should_have_been_there_contradicts() {
    let lease =
        Lease { revision: Revision::ZERO, uid: "u".into(), claim: claim(EXPORTS, 1000), duration: DURATION };
    let exports = TypeName::new("apis.kcp.io", "apiexports");
    assert!(lease.is_contradicted(&exports, 70) && lease.is_contradicted(&exports, 3));
    assert!(!lease.is_contradicted(&exports, 71), "made since");
    assert!(!lease.is_contradicted(&TypeName::new("", "namespaces"), 3), "nothing is said of it");
}
