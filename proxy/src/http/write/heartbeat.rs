//! Writes of the Lease by which a shard that is not pushed speaks for itself ([`crate::freshness::lease`]):
//! judged before they are stored, so that no claim is in the store that was not proved.

use shardcache_storage::{
    Action, Cell, CellName, Change, Guard, Key, Object as Stored, ResourceVersion, Standing, TypeName,
};

use super::WriteRequest;
use super::commit::Committer;
use crate::cache::Snapshot;
use crate::freshness::keeper::Began;
use crate::freshness::lease::{self, ACKNOWLEDGED, Claim, Fault, Lease, Proof, READ_AFTER, WRITTEN};
use crate::freshness::vouchers::Renewal;
use crate::ingest::{ORIGINAL_VERSION_ANNOTATION, Object};
use crate::service::Api;
use crate::status::{ApiError, Cause};

/// A renewal that was judged and is about to be stored; `None` in its place for any other object.
pub(super) struct Heartbeat {
    shard: Box<str>,
    /// Before it is stored: who sees it in the store may not be faster than we are.
    began: Began,
    claim: Claim,
    proof: Proof,
    is_first: bool,
}

impl Heartbeat {
    /// Judges what is to be written under a key; `current` is the state that it is to replace.
    pub(super) fn judge(
        api: &Api,
        request: &WriteRequest,
        key: &Key,
        object: &Object<'_>,
        current: Option<&Stored>,
    ) -> Result<Option<Self>, ApiError> {
        if request.type_info.name != *lease::type_name() {
            return Ok(None);
        }
        let shard = key.parts().shard;
        let (written, read_after) = (object.annotation(WRITTEN), object.annotation(READ_AFTER));
        let place = lease::key(shard);
        if place.as_ref().map(Key::as_str) != Some(key.as_str()) {
            return match written.or(read_after) {
                None => Ok(None),
                Some(_) => Err(elsewhere(place.as_ref())),
            };
        }
        // Before anything is judged: whoever notices afterwards that the machine stood still makes it void.
        let began = api.freshness.begin();
        let snapshot = api.cache.snapshot();
        if let Some(current) = current {
            check_continuity(api, &snapshot, key, object, current)?;
        }
        let claim =
            Claim::read(written.as_deref(), read_after.as_deref()).map_err(|why| refused(key, why))?;
        for type_name in claim.written.keys() {
            check_type(&snapshot, shard, type_name)?;
        }
        let before = current.map(Lease::read);
        let before =
            before.as_ref().zip(current).map(|(lease, object)| (&lease.claim, object.resource_version()));
        let may_go = |type_name: &TypeName| check_type(&snapshot, shard, type_name).is_err();
        let vouchers = api.freshness.vouchers();
        let proof = vouchers.judge(shard, before, &claim, may_go).map_err(|why| refused(key, why))?;
        Ok(Some(Self { shard: shard.into(), began, claim, proof, is_first: current.is_none() }))
    }

    /// It is stored under a version.
    pub(super) fn stored(self, api: &Api, version: ResourceVersion) {
        let Self { shard, began, claim, proof, is_first } = self;
        api.freshness.renewed(&shard, began, &Renewal { version, claim, proof, is_first });
    }
}

/// Takes a shard's Lease away if the creation of an object shows that what it claims is not so. Before the
/// object is stored (`created` is `None`), so that nothing false is left if this process ends in between; and
/// once more afterwards, for what was claimed meanwhile.
pub(super) async fn contradict(
    api: &Api,
    committer: &Committer<'_>,
    key: &Key,
    type_name: &TypeName,
    object: &Object<'_>,
    created: Option<&Stored>,
) -> Result<(), ApiError> {
    let version = object.annotation(ORIGINAL_VERSION_ANNOTATION).and_then(|version| version.parse().ok());
    let (Some(version), shard) = (version, key.parts().shard) else { return Ok(()) };
    let snapshot = api.cache.snapshot();
    let Some(lease) = api.freshness.vouchers().lease(&snapshot.state, shard) else { return Ok(()) };
    let came_later = created.is_some_and(|created| created.revision() < lease.revision);
    if came_later || !lease.is_contradicted(type_name, version) {
        return Ok(());
    }
    let Some(key) = lease::key(shard) else { return Ok(()) };
    tracing::warn!(
        shard,
        %version,
        r#type = type_name.qualified(),
        name = &*object.name(),
        "an object is created that the shard's Lease says was here already: the Lease is deleted"
    );
    api.freshness.vouchers().distrust(shard);
    let change = Change {
        type_name: lease::type_name().clone(),
        key,
        guard: Guard::default(),
        action: Action::Delete,
    };
    // It may be gone already.
    let _ = committer.commit(change).await?;
    Ok(())
}

/// Whether an object is the Lease by which its shard speaks.
pub(super) fn is_heartbeat(type_name: &TypeName, key: &Key) -> bool {
    type_name == lease::type_name()
        && lease::key(key.parts().shard).is_some_and(|place| place.as_str() == key.as_str())
}

/// Refuses the first renewal since the server was opened unless the store still has what was answered last:
/// a backup that was restored may have the same Lease, and lack what was written after it.
fn check_continuity(
    api: &Api,
    snapshot: &Snapshot,
    key: &Key,
    object: &Object<'_>,
    current: &Stored,
) -> Result<(), ApiError> {
    let lineage = api.store.lineage();
    if current.revision() > lineage.current().start {
        return Ok(());
    }
    let conflict = |why: String| Err(ApiError::conflict(lease::type_name(), key.parts().name, why));
    let Some(newest) = object.annotation(ACKNOWLEDGED) else {
        return conflict(format!(
            "this server was opened since the last renewal: say in the annotation {ACKNOWLEDGED} which \
             resourceVersion is the newest that you were answered"
        ));
    };
    let version = ResourceVersion::parse(&newest)
        .map_err(|why| bad(ACKNOWLEDGED, &format!("{newest:?} is no resourceVersion: {why}")))?;
    match lineage.classify(version, snapshot.state.head()) {
        Standing::Issued(_) => Ok(()),
        Standing::Future | Standing::Foreign => conflict(format!(
            "this store never issued the version {version}: it was restored, and may lack what was written \
             since; delete the Lease and begin anew"
        )),
    }
}

/// Refuses a type that the shard cannot have written: nobody serves it, or only its pusher writes it.
fn check_type(snapshot: &Snapshot, shard: &str, type_name: &TypeName) -> Result<(), ApiError> {
    let name = type_name.qualified();
    if snapshot.types.known_in(shard, type_name).is_none() {
        return Err(bad(WRITTEN, &format!("{name} is not served")));
    }
    let cell = CellName::new(shard, type_name.clone());
    if snapshot.state.cell(&cell).is_some_and(Cell::is_managed) {
        return Err(bad(WRITTEN, &format!("{name} is written by the shard's pusher, not by requests")));
    }
    Ok(())
}

fn refused(key: &Key, fault: Fault) -> ApiError {
    match fault {
        Fault::Bad(annotation, problem) => bad(annotation, &problem),
        Fault::Forgotten(version) => {
            let why = format!(
                "this server does not remember the renewal {version}: renew without a new claim, and name that"
            );
            ApiError::conflict(lease::type_name(), key.parts().name, why)
        }
    }
}

fn elsewhere(place: Option<&Key>) -> ApiError {
    let Some(place) = place else { return bad(WRITTEN, "no Lease can speak for this shard") };
    let parts = place.parts();
    let (cluster, namespace, name) = (parts.cluster, parts.namespace, parts.name);
    let problem = format!(
        "only the Lease {name} in the namespace {namespace} of the logical cluster {cluster} speaks for this shard"
    );
    bad(WRITTEN, &problem)
}

fn bad(annotation: &str, problem: &str) -> ApiError {
    let field = format!("metadata.annotations[{annotation}]");
    let mut error = ApiError::bad_request(format!("{field}: {problem}"));
    error.details.causes.push(Cause { field, message: problem.into(), ..Cause::default() });
    error
}
