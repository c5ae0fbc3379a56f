//! Continue tokens: sent as they are, and as the JSON inside one.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use shardcache_proxy::http::continue_token::Token;
use shardcache_proxy::scope::{Part, Scope};
use shardcache_storage::TypeName;

fuzz_target!(|bytes: &[u8]| {
    let scope = Scope { shard: Part::One("amber".into()), cluster: Part::Any, namespace: None };
    for text in [String::from_utf8_lossy(bytes).into_owned(), URL_SAFE_NO_PAD.encode(bytes)] {
        if let Ok(token) = Token::decode(&text) {
            if token.check(&TypeName::new("g", "r"), &scope).is_ok() {
                assert!(token.after.starts_with("amber\0"));
            }
            assert_eq!(Token::decode(&token.encode()), Ok(token.clone()));
            assert_eq!(Token::decode(&token.inconsistent().encode()), Ok(token.inconsistent()));
        }
    }
});
