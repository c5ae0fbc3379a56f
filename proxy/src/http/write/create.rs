//! POST on a collection.

use std::time::SystemTime;

use ::http::{Response, StatusCode};
use rand::Rng;
use shardcache_storage::{Action, Change, Draft, Guard, Key, Object as Stored, Refusal};

use super::commit::{Committer, push_managed};
use super::heartbeat::{Heartbeat, contradict};
use super::modify::Before;
use super::{Place, WriteRequest, body, modify, respond};
use crate::body::Body;
use crate::http::accept::{self, Expected};
use crate::http::names;
use crate::http::options::{WriteKind, WriteOptions};
use crate::ingest::{Assigned, Object, SHARD_ANNOTATION, rfc3339};
use crate::service::Api;
use crate::status::ApiError;
use crate::types::TypeInfo;

/// Names that are tried for one `generateName`; kube-apiserver's bound.
const NAMES_TRIED: usize = 8;

/// Creates an object. 201 with the object, 409 `AlreadyExists`.
pub(super) async fn create(
    api: &Api,
    request: &WriteRequest,
    place: &Place<'_>,
) -> Result<Response<Body>, ApiError> {
    let representation = accept::negotiate(&request.headers, &request.query, Expected::Object)?;
    accept::body_format(&request.headers)?;
    let options = WriteOptions::parse(&request.query, WriteKind::Create)?;
    let mut warnings = Vec::new();
    let json = body::json(api, request)?;
    let object = body::decode(request, &json, options.field_validation, &mut warnings)?;
    let type_info = &request.type_info;
    body::check_place(&object, place, None)?;
    let generated = object.name().is_empty();
    let name = if generated { object.generate_name() } else { object.name() };
    let errors = names::validate(&object, &type_info.name, place.namespace, &object.name());
    body::invalid(type_info, &name, &errors)?;
    warnings.extend(names::finalizer_warnings(&object, &[]));
    if !matches!(&*object.resource_version(), "" | "0") {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let snapshot = api.cache.snapshot();
    modify::check_capacity(api, &snapshot, object.text().len())?;
    let assigned = Origin::of(&object);
    let committer = Committer::new(api, options.timeout);
    let mut tried = name.clone().into_owned();
    let mut taken = None;
    for _ in 0..if generated { NAMES_TRIED } else { 1 } {
        if generated {
            tried = names::generate(&name, |below| rand::rng().random_range(0..below));
        }
        let key = place.key(request, &tried)?;
        taken = snapshot.state.get(&type_info.name, key.as_str()).cloned();
        if taken.is_some() {
            continue;
        }
        let draft = assigned.encode(&object, &key, type_info)?;
        let heartbeat = Heartbeat::judge(api, request, &key, &object, None)?;
        if options.dry_run {
            let object = draft.preview(snapshot.resource_version());
            return respond::never_created(api, request, representation, &object, &warnings);
        }
        let guard = Guard { exists: Some(false), ..Guard::default() };
        contradict(api, &committer, &key, &type_info.name, &object, None).await?;
        let action = Action::Put(draft);
        let change = Change { type_name: type_info.name.clone(), key: key.clone(), guard, action };
        match committer.commit(change).await? {
            Ok(applied) => {
                let created = modify::written(&applied)?;
                contradict(api, &committer, &key, &type_info.name, &object, Some(created)).await?;
                if let Some(heartbeat) = heartbeat {
                    heartbeat.stored(api, created.resource_version());
                }
                return Ok(respond::object(
                    api,
                    request,
                    representation,
                    StatusCode::CREATED,
                    created,
                    &warnings,
                ));
            }
            Err(Refusal::AlreadyExists(object)) => taken = Some(object),
            Err(Refusal::PushManaged { holder }) => {
                return Err(push_managed(&type_info.name, &tried, &holder));
            }
            Err(refusal) => return Err(ApiError::internal(refusal)),
        }
    }
    Err(name_taken(type_info, &tried, generated, taken.as_ref()))
}

fn name_taken(type_info: &TypeInfo, name: &str, generated: bool, by: Option<&Stored>) -> ApiError {
    if generated {
        return ApiError::generate_name_conflict(&type_info.name, name);
    }
    let mut error = ApiError::already_exists(&type_info.name, name);
    if by.is_some_and(|object| Before::of(object).deletion_timestamp.is_some()) {
        error.message.insert_str(0, "object is being deleted: ");
    }
    error
}

/// Who gives a new object its identity.
enum Origin {
    /// It is a copy: what it brings along is kept, what is missing is filled in.
    Copy {
        /// Assigned if it brings none.
        uid: Option<String>,
        /// Assigned if it brings none.
        created: Option<String>,
    },
    /// It is made here.
    Here {
        /// New.
        uid: String,
        /// Now.
        created: String,
    },
}

impl Origin {
    fn of(object: &Object<'_>) -> Self {
        let uid = || uuid::Uuid::new_v4().to_string();
        if object.annotation(SHARD_ANNOTATION).is_none() {
            return Self::Here { uid: uid(), created: now() };
        }
        Self::Copy {
            uid: object.uid().is_empty().then(uid),
            created: object.creation_timestamp().is_empty().then(now),
        }
    }

    fn encode(&self, object: &Object<'_>, key: &Key, type_info: &TypeInfo) -> Result<Draft, ApiError> {
        let assigned = match self {
            Self::Copy { uid, created } => Assigned {
                uid: uid.as_deref(),
                creation_timestamp: created.as_deref(),
                generation: None,
                original: None,
            },
            Self::Here { uid, created } => Assigned {
                uid: Some(uid),
                creation_timestamp: Some(created),
                generation: Some(1),
                original: None,
            },
        };
        object.encode(key, assigned).map_err(|error| modify::too_large(&error, type_info, key))
    }
}

fn now() -> String {
    #[expect(clippy::disallowed_methods, reason = "creationTimestamp is the wall clock's, in whole seconds")]
    let now = SystemTime::now();
    rfc3339(now)
}
