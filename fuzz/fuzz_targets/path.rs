//! Paths: whatever is sent, a scope is what was written, and its canonical path means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardcache_proxy::http::path::{ResourcePath, ScopedPath, Target, parse};
use shardcache_proxy::scope::Part;

fuzz_target!(|path: &str| {
    let Ok(Target::Scoped { shard, cluster, path: scoped }) = parse(path) else { return };
    for name in [&shard, &cluster].into_iter().filter_map(Part::one) {
        assert!(!name.is_empty() && name != "*" && !name.contains(['/', '.', '%', '\0']));
    }
    let ScopedPath::Resource(resource) = &scoped else { return };
    let canonical = format!("/shards/{shard}/clusters/{cluster}{}", rest(resource));
    assert_eq!(parse(&canonical), Ok(Target::Scoped { shard, cluster, path: scoped.clone() }), "{canonical}");
});

fn rest(path: &ResourcePath) -> String {
    let mut segments = vec!["apis", if path.group.is_empty() { "core" } else { &path.group }, &path.version];
    segments.extend(path.legacy_watch.then_some("watch"));
    if let Some(namespace) = &path.namespace {
        segments.extend(["namespaces", namespace]);
    }
    let mut text: String = segments.into_iter().map(|segment| format!("/{}", encode(segment))).collect();
    text += &format!("/{}", encode(&path.resource));
    text += &path.identity.iter().map(|identity| format!(":{}", encode(identity))).collect::<String>();
    text += &path.name.iter().map(|name| format!("/{}", encode(name))).collect::<String>();
    let subresource = path.subresource.iter().flat_map(|subresource| subresource.split('/'));
    text + &subresource.map(|segment| format!("/{}", encode(segment))).collect::<String>()
}

fn encode(segment: &str) -> String {
    segment.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
