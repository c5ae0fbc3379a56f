//! The query string itself.

use std::borrow::Cow;

/// Decoded parameters in the order of the request. Sloppy as kube-apiserver is: empty pairs are skipped,
/// the first value of a repeated parameter wins, unknown parameters are nobody's business.
#[derive(Clone, Debug, Default)]
pub struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Splits and decodes.
    pub fn parse(_query: &'a str) -> Self {
        todo!()
    }

    /// The first value of a parameter; `None` if absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    /// kube's rule for booleans: absent, `0` and `false` (any case) are false, all else is true.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}
