//! Continue tokens: where the next page of a LIST starts, and at which version.
//!
//! A token is URL-safe base64 of a small JSON object. It holds everything the next page needs, so it
//! survives restarts; and nothing in it is trusted: it must name the type and scope of the request it
//! comes with, and a start key inside that scope.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use shardcache_storage::{KeyParts, ResourceVersion, TypeName};

use crate::scope::Scope;
use crate::selector::fnv1a64;
use crate::status::{ApiError, quote};

/// `v` of a token; another one is somebody else's, or a later program's.
const VERSION: &str = "cache.shardcache.dev/v1";

/// A decoded token. Independent of `limit` and of selectors, which may change from page to page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The version all pages show; `None` is the inconsistent continuation: the current state.
    pub at: Option<ResourceVersion>,
    /// Joined key of the last object returned: the next page starts strictly after it.
    pub after: Box<str>,
    /// Objects in the scope after `after` at version `at`, if they were counted when the token was
    /// made: saves counting them again for every page. Only ever shown as `remainingItemCount`, so a
    /// forged number deceives nobody but its sender.
    pub remaining: Option<u64>,
    scope: u64,
}

impl Token {
    /// The token that follows a page which ended with the object at joined key `after`.
    pub fn new(at: Option<ResourceVersion>, after: &str, type_name: &TypeName, scope: &Scope) -> Self {
        Self { at, after: after.into(), remaining: None, scope: fingerprint(type_name, scope) }
    }

    /// The same token with the count of the objects after it.
    #[must_use]
    pub fn with_remaining(self, remaining: Option<u64>) -> Self {
        Self { remaining, ..self }
    }

    /// Decodes a token; kube's 400 `invalid continue token: …` otherwise.
    pub fn decode(text: &str) -> Result<Self, ApiError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(invalid)?;
        let wire: Wire<'_> = serde_json::from_slice(&bytes).map_err(invalid)?;
        if wire.v != VERSION {
            let version = quote(&wire.v);
            return Err(invalid(format!("server does not recognize this encoded version {version}")));
        }
        let at = match wire.rv {
            0 => return Err(invalid(format!("incorrect encoded start resourceVersion (version {VERSION})"))),
            ..0 => None,
            version => Some(ResourceVersion::parse(&version.to_string()).map_err(invalid)?),
        };
        if wire.start.is_empty() {
            return Err(invalid(format!("encoded start key empty (version {VERSION})")));
        }
        if KeyParts::split(&wire.start).is_none() {
            return Err(invalid(format!("encoded start key malformed (version {VERSION})")));
        }
        Ok(Self { at, after: wire.start.into(), remaining: wire.remaining, scope: wire.scope })
    }

    /// The text clients send back.
    pub fn encode(&self) -> String {
        let wire = Wire {
            v: VERSION.into(),
            rv: self.at.map_or(-1, |at| at.value().cast_signed()),
            start: (&*self.after).into(),
            remaining: self.remaining,
            scope: self.scope,
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&wire).expect("texts and numbers always encode"))
    }

    /// Refuses (400) a token that was issued for another type or scope, or whose key lies outside it.
    pub fn check(&self, type_name: &TypeName, scope: &Scope) -> Result<(), ApiError> {
        let inside = KeyParts::split(&self.after).is_some_and(|key| scope.contains(key));
        if inside && self.scope == fingerprint(type_name, scope) {
            return Ok(());
        }
        Err(invalid("the token was issued for another list"))
    }

    /// The same position at whatever the state is then (kube's rv = −1).
    #[must_use]
    pub fn inconsistent(&self) -> Self {
        Self { at: None, remaining: None, ..self.clone() }
    }
}

/// A token as JSON.
#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: std::borrow::Cow<'a, str>,
    rv: i64,
    start: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    scope: u64,
}

/// Identifies a type and scope. Not a secret: [`Token::check`] compares the key with the scope as well.
fn fingerprint(type_name: &TypeName, scope: &Scope) -> u64 {
    // NUL parts what no name contains; the sign tells the empty namespace from all of them.
    let namespace = scope.namespace.as_deref().map(|namespace| format!("={namespace}")).unwrap_or_default();
    fnv1a64(&format!(
        "{}\0{}\0{}\0{}\0{}\0{namespace}",
        type_name.group(),
        type_name.resource(),
        type_name.identity(),
        scope.shard,
        scope.cluster,
    ))
}

fn invalid(why: impl std::fmt::Display) -> ApiError {
    ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
}

#[cfg(test)]
mod tests;
