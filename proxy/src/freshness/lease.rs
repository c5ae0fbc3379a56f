//! What a shard that writes by ordinary requests may say of itself, and what it proves. Pure.
//!
//! Nobody can ask such a shard how far its source is. It can say so, in the annotations of one Lease
//! ([`key`]): "of this type, everything up to this version of my source is here, and I read that version
//! after the renewal that has this resourceVersion was acknowledged". The server knows, on its own clock,
//! when that renewal came; so every write that the source had completed by then is here. No other clock
//! counts, and a renewal that says nothing new proves nothing but that somebody is there.
//!
//! A claim is judged when it is written ([`judge`]) and refused if it cannot be true; so what is found in the
//! store was proved once, and stands until it is withdrawn, contradicted ([`Lease::is_contradicted`]), or the
//! shard begins to push the type.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use shardcache_storage::{Cell, CellName, Key, Object, ResourceVersion, Revision, Source, State, TypeName};

use super::clock::Instant;

/// Annotation: versions of the source up to which everything is written, as a JSON object by
/// `<plural>.<group>`.
pub(crate) const WRITTEN: &str = "shardcache.dev/written";
/// Annotation: resourceVersion of the renewal after whose acknowledgement these versions were read.
pub(crate) const READ_AFTER: &str = "shardcache.dev/read-after";
/// Annotation: newest resourceVersion that the renewer was answered, of whatever; asked for by the first renewal
/// since the server was opened.
pub(crate) const ACKNOWLEDGED: &str = "shardcache.dev/acknowledged";
/// Logical cluster and namespace of the Lease, in the shard's partition.
pub(crate) const CLUSTER: &str = "system:shardcache";
pub(crate) const NAMESPACE: &str = "default";
/// Types that one Lease may speak for.
pub(crate) const TYPES_MAX: usize = 256;
/// Renewals that are remembered.
const RENEWALS_MAX: usize = 16;
/// How long after a renewal somebody is believed to be there, if the Lease does not say.
const DURATION: Duration = Duration::from_secs(15);

/// The type of Leases.
pub(crate) fn type_name() -> &'static TypeName {
    static NAME: std::sync::LazyLock<TypeName> =
        std::sync::LazyLock::new(|| TypeName::new("coordination.k8s.io", "leases"));
    &NAME
}

/// Where a shard's Lease is; names of shards may have a colon, names of objects may not.
pub(crate) fn key(shard: &str) -> Option<Key> {
    Key::new(shard, CLUSTER, NAMESPACE, &format!("shardcache-{}", shard.replace(':', "."))).ok()
}

/// What a Lease says of its shard's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The version up to which everything is written, by type.
    pub(crate) written: BTreeMap<TypeName, u64>,
    /// The renewal after which these versions were read.
    pub(crate) read_after: Option<ResourceVersion>,
}

/// A Lease in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) revision: Revision,
    /// Another uid is another Lease, of which nothing that was said before counts.
    pub(crate) uid: Box<str>,
    pub(crate) claim: Claim,
    /// How long after a renewal somebody is believed to be there.
    pub(crate) duration: Duration,
}

/// Why a claim is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It cannot be true, or cannot be read: what is wrong with which annotation.
    Bad(&'static str, String),
    /// It names a renewal that this server does not remember.
    Forgotten(ResourceVersion),
}

impl Claim {
    /// Reads the two annotations.
    pub(crate) fn read(written: Option<&str>, read_after: Option<&str>) -> Result<Self, Fault> {
        let bad = |problem: String| Fault::Bad(WRITTEN, problem);
        let read_after = read_after
            .map(|text| {
                let error = |why| Fault::Bad(READ_AFTER, format!("{text:?} is no resourceVersion: {why}"));
                ResourceVersion::parse(text).map_err(error)
            })
            .transpose()?;
        let Some(text) = written else { return Ok(Self { written: BTreeMap::new(), read_after }) };
        let by_type: BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|why| bad(format!("is no JSON object of versions by <plural>.<group>: {why}")))?;
        if by_type.len() > TYPES_MAX {
            return Err(bad(format!("speaks for {} types, and may for {TYPES_MAX}", by_type.len())));
        }
        let mut versions = BTreeMap::new();
        for (name, version) in by_type {
            let type_name =
                type_named(&name).ok_or_else(|| bad(format!("{name:?} is not <plural>.<group>")))?;
            let is_number = !version.starts_with('0') && version.bytes().all(|byte| byte.is_ascii_digit());
            let number = version.parse().ok().filter(|_| is_number);
            let number =
                number.ok_or_else(|| bad(format!("{name}: {version:?} is no version of a source")))?;
            versions.insert(type_name, number);
        }
        Ok(Self { written: versions, read_after })
    }
}

impl Lease {
    /// The Lease of a shard, if it has one. One that came by a push stream says nothing: nobody has judged it.
    pub(crate) fn find<'a>(state: &'a State, shard: &str) -> Option<&'a Object> {
        let leases = state.objects(type_name()).filter(|leases| !leases.is_empty())?;
        let is_pushed = state.cell(&CellName::new(shard, type_name().clone())).is_some_and(Cell::is_managed);
        leases.get(key(shard)?.as_str()).filter(|_| !is_pushed)
    }

    /// Reads a Lease of the store. What cannot be read claims nothing; nor does what came by a push stream, even
    /// after its type was released: nobody has judged it.
    pub(crate) fn read(object: &Object) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Body {
            metadata: Metadata,
            spec: Value,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            annotations: Option<BTreeMap<String, Option<String>>>,
        }
        let body: Body = serde_json::from_slice(object.body_bytes()).unwrap_or_default();
        let annotations = body.metadata.annotations.unwrap_or_default();
        let annotation = |name| annotations.get(name).and_then(Option::as_deref);
        let claim = Claim::read(annotation(WRITTEN), annotation(READ_AFTER)).unwrap_or_default();
        let is_pushed = object.source() != Source::default();
        let claim = if is_pushed { Claim::default() } else { claim };
        let seconds = body.spec.get("leaseDurationSeconds").and_then(Value::as_u64);
        let duration = seconds.map_or(DURATION, Duration::from_secs);
        Self { revision: object.revision(), uid: object.uid().into(), claim, duration }
    }

    /// Whether the creation of an object with this version at the source shows that what is claimed is not
    /// so: everything up to the claimed version was said to be here, and this was not.
    pub(crate) fn is_contradicted(&self, type_name: &TypeName, version: u64) -> bool {
        self.claim.written.get(type_name).is_some_and(|written| version <= *written)
    }
}

/// When the last renewals of a shard's Lease came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewals(VecDeque<(ResourceVersion, Instant)>);

impl Renewals {
    /// A renewal that came no earlier than `before` was acknowledged under a version.
    pub(crate) fn acknowledged(&mut self, version: ResourceVersion, before: Instant) {
        if self.0.len() == RENEWALS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((version, before));
    }

    /// An instant before which the renewal was not acknowledged.
    pub(crate) fn time_of(&self, version: ResourceVersion) -> Option<Instant> {
        self.0.iter().find(|(known, _)| *known == version).map(|(_, time)| *time)
    }

    /// When the last one came.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.0.back().map(|(_, time)| *time)
    }
}

/// What a claim proves: up to this instant the source's writes of these types are here. `None`: nothing new.
pub(crate) type Proof = Option<Instant>;

/// Judges what a Lease is to say, given what it says, and under which version (`None`: it is being created).
/// What it says of a type only ever grows, unless the type `may_go`.
pub(crate) fn judge(
    before: Option<(&Claim, ResourceVersion)>,
    claim: &Claim,
    may_go: impl Fn(&TypeName) -> bool,
    renewals: &Renewals,
) -> Result<Proof, Fault> {
    let Some((before, version)) = before else {
        if claim.written.is_empty() {
            return Ok(None);
        }
        let problem = "a Lease that is being created cannot say what was written since it was";
        return Err(Fault::Bad(WRITTEN, problem.into()));
    };
    if claim == before {
        return Ok(None);
    }
    let lesser = before.written.iter().find(|(name, known)| match claim.written.get(*name) {
        Some(version) => version < *known,
        None => !may_go(name),
    });
    if let Some((name, known)) = lesser {
        let name = name.qualified();
        let problem = format!("says less of {name} than {known}: delete the Lease to take it back");
        return Err(Fault::Bad(WRITTEN, problem));
    }
    if claim.written.is_empty() {
        return Ok(None);
    }
    let Some(read_after) = claim.read_after else {
        let problem = "must name the renewal after which the versions were read";
        return Err(Fault::Bad(READ_AFTER, problem.into()));
    };
    if read_after > version {
        let problem = format!("{read_after} is no renewal of this Lease: the last one is {version}");
        return Err(Fault::Bad(READ_AFTER, problem));
    }
    match renewals.time_of(read_after) {
        Some(time) => Ok(Some(time)),
        None => Err(Fault::Forgotten(read_after)),
    }
}

/// `<plural>.<group>`, or the plural alone for the core group.
pub(crate) fn type_named(text: &str) -> Option<TypeName> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    let plain = |part: &str, dot: bool| {
        let legal = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || (dot && byte == b'.')
        };
        part.bytes().all(legal)
    };
    (!resource.is_empty() && plain(resource, false) && plain(group, true))
        .then(|| TypeName::new(group, resource))
}

#[cfg(test)]
#[path = "lease/tests.rs"]
mod tests;
