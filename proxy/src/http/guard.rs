//! The browser guard of loopback (D52): applies where [`crate::access::Access::is_loopback`] holds.
//!
//! On loopback everybody on the host is trusted, but a web page in a browser on that host is not
//! somebody on the host: a request with an `Origin`, or for a `Host` that is not a loopback name
//! (DNS rebinding), is refused. WebSocket upgrades whose Origin is the Host itself pass, because
//! fabric8 sends that header.
