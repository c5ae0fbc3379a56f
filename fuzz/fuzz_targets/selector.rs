//! Selectors: what parses has a canonical text that parses to an equal selector.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardcache_proxy::http::options::{ListOptions, WatchOptions};
use shardcache_proxy::selector::{FieldSelector, LabelSelector, ShardSelector};

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
    }
    if let Ok(selector) = ShardSelector::parse(text) {
        for range in selector.ranges() {
            assert!(selector.contains(*range.start()) && selector.contains(*range.end()));
        }
        assert_eq!(ShardSelector::parse(&selector.to_string()), Ok(selector));
    }
    let _ = ListOptions::parse(text).map(|options| options.labels.to_string());
    let _ = WatchOptions::parse(text).map(|options| options.fields.to_string());
});
