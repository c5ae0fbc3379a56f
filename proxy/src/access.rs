//! Who asks, and what they may do (D49–D52): decided from the request's head, before a body is read.
//!
//! The listener turns what a connection or a request proves (a client certificate, a bearer token, the
//! admin socket, loopback) into an [`Access`] and puts it into the request's extensions; the service asks
//! [`Access::check`] once the path is parsed. A denial is the same whether the object, the type or the
//! shard exists or not. Nothing here reads certificates or files.

use crate::scope::{Part, Scope};
use crate::status::{ApiError, Cause, Details};

/// Group whose members administer everything, as in kcp.
pub const MASTERS: &str = "system:masters";
/// Group of the certificates that write for a shard.
pub const SHARDS: &str = "system:cache:shards";
/// Start of the user name of such a certificate; the shard's name follows.
pub const SHARD_USER_PREFIX: &str = "system:cache:shard:";
/// Path of a SPIFFE id that writes for a shard; the shard's name follows.
const SPIFFE_SHARD_PATH: &str = "/cache/shard/";

/// What somebody has proved about themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User name; the CN of a certificate.
    pub user: String,
    /// Groups; the Os of a certificate.
    pub groups: Vec<String>,
    /// URI names of a certificate.
    pub uris: Vec<String>,
}

/// The shards somebody may write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writes {
    /// All of them.
    All,
    /// Exactly these; possibly none.
    Only(Vec<Box<str>>),
}

/// What a request may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// User name; `None` if nothing was proved.
    user: Option<Box<str>>,
    /// Whether everything may be read; narrower readers do not exist yet.
    reads: bool,
    writes: Writes,
    admin: bool,
    /// Came over plain TCP from this host.
    loopback: bool,
}

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent<'a> {
    /// Kubernetes' verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: &'a str,
    /// API group; `""` is the core group.
    pub group: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Object name; `""` for collections.
    pub name: &'a str,
    /// Where.
    pub scope: &'a Scope,
}

impl Identity {
    /// Somebody known by name only.
    pub fn named(user: &str, groups: &[&str]) -> Self {
        Self {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            uris: vec![],
        }
    }

    /// The writer of one shard, as its certificate would say.
    pub fn shard(shard: &str) -> Self {
        Self::named(&format!("{SHARD_USER_PREFIX}{shard}"), &[SHARDS])
    }

    /// An administrator.
    pub fn admin() -> Self {
        Self::named("system:admin", &[MASTERS])
    }

    /// The shards that are literally named in the identity.
    fn shards(&self) -> Vec<Box<str>> {
        let mut shards: Vec<&str> = Vec::new();
        if self.groups.iter().any(|group| group == SHARDS)
            && let Some(shard) = self.user.strip_prefix(SHARD_USER_PREFIX)
        {
            shards.push(shard);
        }
        shards.extend(self.uris.iter().filter_map(|uri| spiffe_shard(uri)));
        // A wildcard or a path in a certificate names no shard.
        shards.retain(|shard| !shard.is_empty() && !shard.contains(['*', '/', '%']));
        shards.into_iter().map(Into::into).collect()
    }
}

/// The shard of `spiffe://<domain>/cache/shard/<name>`.
fn spiffe_shard(uri: &str) -> Option<&str> {
    let rest = uri.strip_prefix("spiffe://")?;
    let path = &rest[rest.find('/')?..];
    path.strip_prefix(SPIFFE_SHARD_PATH)
}

impl Access {
    /// The roles of an identity: `system:masters` administers, shard identities write to their shards,
    /// everybody authenticated reads.
    pub fn of(identity: &Identity) -> Self {
        let admin = identity.groups.iter().any(|group| group == MASTERS);
        Self {
            user: Some(identity.user.as_str().into()),
            reads: true,
            writes: if admin { Writes::All } else { Writes::Only(identity.shards()) },
            admin,
            loopback: false,
        }
    }

    /// Anonymous on loopback: reads and writes everything, administers nothing (D52).
    pub fn loopback() -> Self {
        Self { reads: true, writes: Writes::All, loopback: true, ..Self::nobody() }
    }

    /// A caller in this process, or one that the operating system let through to the admin socket.
    pub fn internal() -> Self {
        Self::of(&Identity::admin())
    }

    /// The same, over plain TCP from this host: then the browser guard of D52 applies.
    #[must_use]
    pub fn on_loopback(self, loopback: bool) -> Self {
        Self { loopback, ..self }
    }

    /// Whether the request came over plain TCP from this host, so that it may be a browser's.
    pub fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether admin verbs are allowed.
    pub fn is_admin(&self) -> bool {
        self.admin
    }

    /// Nothing was proved where something must be: every check is answered 401.
    pub fn nobody() -> Self {
        Self { user: None, reads: false, writes: Writes::Only(vec![]), admin: false, loopback: false }
    }

    /// User name, for logs and messages.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("system:anonymous")
    }

    /// Whether admin verbs (backup and the like) are allowed.
    pub fn check_admin(&self, what: &str) -> Result<(), ApiError> {
        if self.admin {
            return Ok(());
        }
        self.check_known()?;
        Err(ApiError::new(403, "Forbidden", format!("forbidden: User \"{}\" cannot {what}", self.user())))
    }

    /// Whether paths that belong to no shard (discovery, metrics) may be read.
    pub fn check_read(&self, path: &str) -> Result<(), ApiError> {
        if self.reads {
            return Ok(());
        }
        self.check_known()?;
        let message = format!("forbidden: User \"{}\" cannot get path \"{path}\"", self.user());
        Err(ApiError::new(403, "Forbidden", message))
    }

    /// Whether the intent is allowed: 401 if nothing is known of the caller, 403 otherwise.
    pub fn check(&self, intent: &Intent<'_>) -> Result<(), ApiError> {
        let allowed = match intent.verb {
            "get" | "list" | "watch" => self.reads,
            _ => match (&self.writes, &intent.scope.shard) {
                (Writes::All, _) => true,
                (Writes::Only(shards), Part::One(shard)) => shards.iter().any(|own| **own == **shard),
                (Writes::Only(_), Part::Any) => false,
            },
        };
        if allowed {
            return Ok(());
        }
        self.check_known()?;
        Err(self.forbidden(intent))
    }

    fn check_known(&self) -> Result<(), ApiError> {
        if self.user.is_some() { Ok(()) } else { Err(ApiError::new(401, "Unauthorized", "Unauthorized")) }
    }

    fn forbidden(&self, intent: &Intent<'_>) -> ApiError {
        let qualified = if intent.group.is_empty() {
            intent.resource.to_owned()
        } else {
            format!("{}.{}", intent.resource, intent.group)
        };
        let object = if intent.name.is_empty() { String::new() } else { format!(" \"{}\"", intent.name) };
        let may = match &self.writes {
            Writes::All => "identity may not read".to_owned(),
            Writes::Only(shards) => format!("identity may write shards [{}] only", shards.join(", ")),
        };
        let message = format!(
            "{qualified}{object} is forbidden: User \"{}\" cannot {} resource \"{}\" in API group \"{}\" in \
             cluster \"{}\" on shard \"{}\": {may}",
            self.user(),
            intent.verb,
            intent.resource,
            intent.group,
            intent.scope.cluster,
            intent.scope.shard,
        );
        let cause =
            Cause { reason: "ShardNotOwned", message: intent.scope.shard.to_string(), field: "shard".into() };
        ApiError::new(403, "Forbidden", message).with_details(Details {
            name: intent.name.into(),
            group: intent.group.into(),
            kind: intent.resource.into(),
            causes: vec![cause],
            ..Details::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn may(access: &Access, verb: &str, shard: &str) -> Result<(), u16> {
        let shard = if shard == "*" { Part::Any } else { Part::One(shard.into()) };
        let scope = Scope { shard, cluster: Part::One("root".into()), namespace: None };
        let intent =
            Intent { verb, group: "apis.kcp.io", resource: "apiexports", name: "foo", scope: &scope };
        access.check(&intent).map_err(|error| error.code)
    }

    #[test]
    fn d50_allowed_is_exactly_what_the_table_says() {
        let amber = Access::of(&Identity::shard("amber"));
        let spiffe = Access::of(&Identity {
            uris: vec!["spiffe://corp/cache/shard/amber".into()],
            ..Identity::named("x", &[])
        });
        let reader = Access::of(&Identity::named("system:cache:shard:amber", &["developers"]));
        for (access, verb, shard, expected) in [
            (&amber, "create", "amber", Ok(())),
            (&amber, "create", "ambe", Err(403)),
            (&amber, "delete", "sapphire", Err(403)),
            (&amber, "update", "*", Err(403)),
            (&amber, "list", "*", Ok(())),
            (&spiffe, "patch", "amber", Ok(())),
            (&spiffe, "patch", "sapphire", Err(403)),
            (&reader, "get", "amber", Ok(())),
            (&reader, "create", "amber", Err(403)),
            (&Access::of(&Identity::admin()), "delete", "sapphire", Ok(())),
            (&Access::loopback(), "create", "amber", Ok(())),
            (&Access::nobody(), "list", "amber", Err(401)),
            (&Access::nobody(), "create", "amber", Err(401)),
        ] {
            assert_eq!(may(access, verb, shard), expected, "{access:?} {verb} {shard}");
        }
    }

    #[test]
    fn d52_admin_verbs_need_an_administrator() {
        assert!(Access::of(&Identity::admin()).check_admin("back up").is_ok());
        let code = |access: Access| access.check_admin("back up").map_err(|error| error.code);
        assert_eq!(code(Access::loopback()), Err(401));
        assert_eq!(code(Access::of(&Identity::shard("amber"))), Err(403));
    }

    #[test]
    fn a_denial_names_user_resource_cluster_and_shard() {
        let access = Access::of(&Identity::shard("amber"));
        let scope = Scope {
            shard: Part::One("sapphire".into()),
            cluster: Part::One("root:org".into()),
            namespace: None,
        };
        let intent = Intent {
            verb: "update",
            group: "apis.kcp.io",
            resource: "apiexports",
            name: "foo",
            scope: &scope,
        };
        let error = access.check(&intent).expect_err("not its shard");
        assert_eq!(
            error.message,
            "apiexports.apis.kcp.io \"foo\" is forbidden: User \"system:cache:shard:amber\" cannot update \
             resource \"apiexports\" in API group \"apis.kcp.io\" in cluster \"root:org\" on shard \
             \"sapphire\": identity may write shards [amber] only"
        );
    }

    proptest! {
        /// D49: no identity maps to a shard that is not literally named in it.
        #[test]
        fn d49_no_identity_writes_to_a_shard_it_does_not_name(
            user in "(system:cache:shard:)?[a-z*/%:.]{0,8}",
            group in "(system:cache:shards|system:cache:shard|x)",
            uri in "(spiffe:/{1,3})?[a-z]{0,3}(/cache/shard/)?[a-z*/%.]{0,6}",
            shard in "[a-z]{1,4}",
        ) {
            let identity = Identity { user, groups: vec![group], uris: vec![uri] };
            let named = identity.user == format!("{SHARD_USER_PREFIX}{shard}")
                || identity.uris.iter().any(|uri| uri.ends_with(&format!("/cache/shard/{shard}")));
            if may(&Access::of(&identity), "create", &shard).is_ok() {
                prop_assert!(named, "{identity:?} wrote to {shard}");
            }
        }
    }
}
