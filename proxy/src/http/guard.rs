//! Who may knock: what the listener knows of a connection, and the browser guard of loopback (D52).
//!
//! On loopback everybody on the host is trusted, but a web page in a browser on that host is not
//! somebody on the host: a request with an `Origin`, or for a `Host` that is not a loopback name
//! (DNS rebinding), is refused. WebSocket upgrades whose Origin is the Host itself pass, because
//! fabric8 sends that header.

/// How a request came in; whoever accepts connections puts it into the request's extensions.
/// Requests without it are from this process and are trusted to read and write, but not to
/// administer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The connection came over TCP from this host, unauthenticated: the browser guard applies.
    pub loopback: bool,
    /// The caller may use the admin verbs.
    pub admin: bool,
}
