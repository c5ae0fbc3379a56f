//! resourceVersions: one text for one version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardcache_proxy::http::options::GetOptions;
use shardcache_storage::{ResourceVersion, TAG_BITS, Tag};

fuzz_target!(|text: &str| {
    if let Ok(version) = ResourceVersion::parse(text) {
        assert_eq!(version.to_string(), text);
        let tag = version.tag().map_or(0, Tag::value);
        assert_eq!(version.revision().0 << TAG_BITS | u64::from(tag), version.value());
    }
    let _ = GetOptions::parse(text);
    let _ = GetOptions::parse(&format!("resourceVersion={text}"));
});
