use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use shardcache_storage::{ResourceVersion, TypeName};

use super::Token;
use crate::scope::{Part, Scope};

fn scope(shard: &str, cluster: &str, namespace: Option<&str>) -> Scope {
    let part = |name: &str| if name == "*" { Part::Any } else { Part::One(name.into()) };
    Scope { shard: part(shard), cluster: part(cluster), namespace: namespace.map(Into::into) }
}

fn type_name() -> TypeName {
    TypeName::new("apis.kcp.io", "apiexports")
}

fn version() -> ResourceVersion {
    ResourceVersion::parse("1234567890123456789").expect("a number")
}

const KEY: &str = "amber\0root\0\0x";

/// Decodes a token with this JSON.
fn decode(json: &str) -> Result<Token, String> {
    Token::decode(&URL_SAFE_NO_PAD.encode(json)).map_err(|error| {
        assert_eq!((error.code, error.reason), (400, "BadRequest"));
        let prefix = "invalid continue token: continue key is not valid: ";
        error.message.strip_prefix(prefix).expect("the prefix").to_owned()
    })
}

#[test]
fn d26_a_token_outlives_the_process_that_issued_it() {
    // Committed text: a later program must go on reading it.
    let text = "eyJ2IjoiY2FjaGUuc2hhcmRjYWNoZS5kZXYvdjEiLCJydiI6MTIzNDU2Nzg5MDEyMzQ1Njc4OSwic3RhcnQiOiJhbWJlclx1MDAwMHJ\
                vb3RcdTAwMDBcdTAwMDB4IiwicmVtYWluaW5nIjo3LCJzY29wZSI6MzE3MDk2MjU5MjM3NjMwNzE1NH0";
    let scope = scope("amber", "*", None);
    let token = Token::new(Some(version()), KEY, &type_name(), &scope).with_remaining(Some(7));
    assert_eq!(token.encode(), text);
    assert_eq!(Token::decode(text), Ok(token.clone()));
    assert_eq!(token.check(&type_name(), &scope), Ok(()));
}

#[test]
fn d26_a_token_moved_to_another_scope_or_type_is_400() {
    let wide = scope("*", "*", None);
    let token = Token::new(Some(version()), KEY, &type_name(), &wide);
    assert_eq!(token.check(&type_name(), &wide), Ok(()));
    for other in [
        scope("amber", "*", None),
        scope("*", "root", None),
        scope("amber", "root", None),
        scope("*", "*", Some("")),
        scope("*", "*", Some("ns")),
        scope("beryl", "*", None),
    ] {
        let error = token.check(&type_name(), &other).expect_err("another scope");
        assert_eq!((error.code, error.reason), (400, "BadRequest"), "{other:?}");
    }
    for other in [
        TypeName::new("apis.kcp.io", "apibindings"),
        TypeName::new("", "apiexports"),
        TypeName::with_identity("apis.kcp.io", "apiexports", "abc"),
    ] {
        assert_eq!(token.check(&other, &wide).expect_err("another type").code, 400, "{other:?}");
    }
    // The right fingerprint with a key outside the scope, as a forger would send it.
    let narrow = scope("amber", "root", None);
    let forged = Token::new(Some(version()), "beryl\0root\0\0x", &type_name(), &narrow);
    assert_eq!(forged.check(&type_name(), &narrow).expect_err("outside").code, 400);
}

#[test]
fn the_inconsistent_form_goes_on_at_the_same_key_without_a_version() {
    let token =
        Token::new(Some(version()), KEY, &type_name(), &scope("*", "*", None)).with_remaining(Some(3));
    let inconsistent = token.inconsistent();
    assert_eq!((inconsistent.at, inconsistent.remaining), (None, None));
    assert_eq!(Token::decode(&inconsistent.encode()), Ok(inconsistent.clone()));
    assert_eq!(inconsistent.after, token.after);
}

#[test]
fn broken_tokens_are_refused_with_kube_s_reasons() {
    let good = r#"{"v":"cache.shardcache.dev/v1","rv":5,"start":"a\u0000b\u0000\u0000x","scope":1}"#;
    assert!(decode(good).is_ok());
    let table = [
        (
            good.replace(":5", ":0"),
            "incorrect encoded start resourceVersion (version cache.shardcache.dev/v1)",
        ),
        (
            good.replace("/v1", "/v9"),
            "server does not recognize this encoded version \"cache.shardcache.dev/v9\"",
        ),
        (
            good.replace(r"a\u0000b\u0000\u0000x", ""),
            "encoded start key empty (version cache.shardcache.dev/v1)",
        ),
        (good.replace(r"\u0000x", ""), "encoded start key malformed (version cache.shardcache.dev/v1)"),
        (
            good.replace(r"\u0000x", r"\u0000x\u0000y"),
            "encoded start key malformed (version cache.shardcache.dev/v1)",
        ),
    ];
    for (json, why) in table {
        assert_eq!(decode(&json), Err(why.to_owned()), "{json}");
    }
    // Kubernetes' own token, cut JSON, other JSON.
    for json in [r#"{"v":"meta.k8s.io/v1","rv":1,"start":"x"}"#, "{", "[]", "", &good.replace(":5", ":\"5\"")]
    {
        assert!(decode(json).is_err(), "{json}");
    }
    for text in ["", "!", "e", "e===", "a b"] {
        assert_eq!(Token::decode(text).expect_err(text).code, 400);
    }
}

proptest! {
    #[test]
    fn tokens_survive_the_round_trip(rv in prop::option::of(1_u64..1 << 63), name in "[a-z.é\"\\\\]{1,20}", count in any::<Option<u64>>()) {
        let at = rv.map(|rv| ResourceVersion::parse(&rv.to_string()).expect("a number"));
        let key = format!("amber\0root\0ns\0{name}");
        let token = Token::new(at, &key, &type_name(), &scope("*", "*", None)).with_remaining(count);
        let text = token.encode();
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')));
        prop_assert_eq!(Token::decode(&text), Ok(token));
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,40}") {
        let _ = Token::decode(&text).map(|token| token.encode());
    }
}
