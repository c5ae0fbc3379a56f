//! Continue tokens: where the next page of a LIST starts, and at which version.
//!
//! A token is URL-safe base64 of a small JSON object. It holds everything the next page needs, so it
//! survives restarts; and nothing in it is trusted: it must name the type and scope of the request it
//! comes with, and a start key inside that scope.

use shardcache_storage::{ResourceVersion, TypeName};

use crate::scope::Scope;
use crate::status::ApiError;

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
        let _ = (at, after, type_name, scope);
        todo!()
    }

    /// The same token with the count of the objects after it.
    #[must_use]
    pub fn with_remaining(self, remaining: Option<u64>) -> Self {
        Self { remaining, ..self }
    }

    /// Decodes a token; kube's 400 `invalid continue token: …` otherwise.
    pub fn decode(_text: &str) -> Result<Self, ApiError> {
        todo!()
    }

    /// The text clients send back.
    pub fn encode(&self) -> String {
        todo!()
    }

    /// Refuses (400) a token that was issued for another type or scope, or whose key lies outside it.
    pub fn check(&self, _type_name: &TypeName, _scope: &Scope) -> Result<(), ApiError> {
        todo!()
    }

    /// The same position at whatever the state is then (kube's rv = −1).
    #[must_use]
    pub fn inconsistent(&self) -> Self {
        Self { at: None, remaining: None, ..self.clone() }
    }
}
