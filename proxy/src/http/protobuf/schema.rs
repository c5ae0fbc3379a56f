//! The messages of the built-in types that typed Go clients send as protobuf.
//!
//! One line per field, as in the struct tags of `k8s.io/api` and `k8s.io/apimachinery` v0.37: number in
//! protobuf, name in JSON, type. What Go's JSON leaves out when it is zero is left out here too, so that
//! an object is stored alike in whichever encoding it came. `CustomResourceDefinition` is missing: its
//! schema's JSON follows no tags, and nobody is known to send it this way.

use super::Field;
use super::Kind::{Bool, Bytes, Int, Json, Map, MicroTime, Of, Text, Time};
use super::field::{inline, kept, list, nullable_list, omitted};

/// The fields of one message.
pub(super) type Message = &'static [Field];

/// The message of a kind; `DeleteOptions` exist in every group.
pub(super) fn message(api_version: &str, kind: &str) -> Option<Message> {
    Some(match (api_version, kind) {
        (_, "DeleteOptions") => DELETE_OPTIONS,
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "Event") => EVENT,
        ("coordination.k8s.io/v1", "Lease") => LEASE,
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => CLUSTER_ROLE,
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => CLUSTER_ROLE_BINDING,
        ("rbac.authorization.k8s.io/v1", "Role") => ROLE,
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => ROLE_BINDING,
        ("admissionregistration.k8s.io/v1", kind) => admission(kind)?,
        _ => return None,
    })
}

fn admission(kind: &str) -> Option<Message> {
    Some(match kind {
        "MutatingAdmissionPolicy" => MUTATING_ADMISSION_POLICY,
        "MutatingAdmissionPolicyBinding" => MUTATING_ADMISSION_POLICY_BINDING,
        "MutatingWebhookConfiguration" => MUTATING_WEBHOOK_CONFIGURATION,
        "ValidatingAdmissionPolicy" => VALIDATING_ADMISSION_POLICY,
        "ValidatingAdmissionPolicyBinding" => VALIDATING_ADMISSION_POLICY_BINDING,
        "ValidatingWebhookConfiguration" => VALIDATING_WEBHOOK_CONFIGURATION,
        _ => return None,
    })
}

static NAMESPACE: Message = &[
    kept(1, "metadata", Of(&OBJECT_META)),
    kept(2, "spec", Of(&NAMESPACE_SPEC)),
    kept(3, "status", Of(&NAMESPACE_STATUS)),
];

pub(super) static OBJECT_META: Message = &[
    omitted(1, "name", Text),
    omitted(2, "generateName", Text),
    omitted(3, "namespace", Text),
    omitted(4, "selfLink", Text),
    omitted(5, "uid", Text),
    omitted(6, "resourceVersion", Text),
    omitted(7, "generation", Int),
    kept(8, "creationTimestamp", Time),
    kept(9, "deletionTimestamp", Time),
    kept(10, "deletionGracePeriodSeconds", Int),
    kept(11, "labels", Map),
    kept(12, "annotations", Map),
    list(13, "ownerReferences", Of(&OWNER_REFERENCE)),
    list(14, "finalizers", Text),
    list(17, "managedFields", Of(&MANAGED_FIELDS_ENTRY)),
];

static OWNER_REFERENCE: Message = &[
    kept(1, "kind", Text),
    kept(3, "name", Text),
    kept(4, "uid", Text),
    kept(5, "apiVersion", Text),
    kept(6, "controller", Bool),
    kept(7, "blockOwnerDeletion", Bool),
];

static MANAGED_FIELDS_ENTRY: Message = &[
    omitted(1, "manager", Text),
    omitted(2, "operation", Text),
    omitted(3, "apiVersion", Text),
    kept(4, "time", Time),
    omitted(6, "fieldsType", Text),
    kept(7, "fieldsV1", Json),
    omitted(8, "subresource", Text),
];

static NAMESPACE_SPEC: Message = &[list(1, "finalizers", Text)];

static NAMESPACE_STATUS: Message =
    &[omitted(1, "phase", Text), list(2, "conditions", Of(&NAMESPACE_CONDITION))];

static NAMESPACE_CONDITION: Message = &[
    kept(1, "type", Text),
    kept(2, "status", Text),
    kept(4, "lastTransitionTime", Time),
    omitted(5, "reason", Text),
    omitted(6, "message", Text),
];

static EVENT: Message = &[
    kept(1, "metadata", Of(&OBJECT_META)),
    kept(2, "involvedObject", Of(&OBJECT_REFERENCE)),
    omitted(3, "reason", Text),
    omitted(4, "message", Text),
    kept(5, "source", Of(&EVENT_SOURCE)),
    kept(6, "firstTimestamp", Time),
    kept(7, "lastTimestamp", Time),
    omitted(8, "count", Int),
    omitted(9, "type", Text),
    kept(10, "eventTime", MicroTime),
    kept(11, "series", Of(&EVENT_SERIES)),
    omitted(12, "action", Text),
    kept(13, "related", Of(&OBJECT_REFERENCE)),
    kept(14, "reportingComponent", Text),
    kept(15, "reportingInstance", Text),
];

static OBJECT_REFERENCE: Message = &[
    omitted(1, "kind", Text),
    omitted(2, "namespace", Text),
    omitted(3, "name", Text),
    omitted(4, "uid", Text),
    omitted(5, "apiVersion", Text),
    omitted(6, "resourceVersion", Text),
    omitted(7, "fieldPath", Text),
];

static EVENT_SOURCE: Message = &[omitted(1, "component", Text), omitted(2, "host", Text)];

static EVENT_SERIES: Message = &[omitted(1, "count", Int), kept(2, "lastObservedTime", MicroTime)];

static LEASE: Message = &[kept(1, "metadata", Of(&OBJECT_META)), kept(2, "spec", Of(&LEASE_SPEC))];

static LEASE_SPEC: Message = &[
    kept(1, "holderIdentity", Text),
    kept(2, "leaseDurationSeconds", Int),
    kept(3, "acquireTime", MicroTime),
    kept(4, "renewTime", MicroTime),
    kept(5, "leaseTransitions", Int),
    kept(6, "strategy", Text),
    kept(7, "preferredHolder", Text),
];

static CLUSTER_ROLE: Message = &[
    kept(1, "metadata", Of(&OBJECT_META)),
    nullable_list(2, "rules", Of(&POLICY_RULE)),
    kept(3, "aggregationRule", Of(&AGGREGATION_RULE)),
];

static POLICY_RULE: Message = &[
    nullable_list(1, "verbs", Text),
    list(2, "apiGroups", Text),
    list(3, "resources", Text),
    list(4, "resourceNames", Text),
    list(5, "nonResourceURLs", Text),
];

static AGGREGATION_RULE: Message = &[list(1, "clusterRoleSelectors", Of(&LABEL_SELECTOR))];

static LABEL_SELECTOR: Message =
    &[kept(1, "matchLabels", Map), list(2, "matchExpressions", Of(&LABEL_SELECTOR_REQUIREMENT))];

static LABEL_SELECTOR_REQUIREMENT: Message =
    &[kept(1, "key", Text), kept(2, "operator", Text), list(3, "values", Text)];

static CLUSTER_ROLE_BINDING: Message = &[
    kept(1, "metadata", Of(&OBJECT_META)),
    list(2, "subjects", Of(&SUBJECT)),
    kept(3, "roleRef", Of(&ROLE_REF)),
];

static SUBJECT: Message = &[
    kept(1, "kind", Text),
    omitted(2, "apiGroup", Text),
    kept(3, "name", Text),
    omitted(4, "namespace", Text),
];

static ROLE_REF: Message = &[kept(1, "apiGroup", Text), kept(2, "kind", Text), kept(3, "name", Text)];

static ROLE: Message = &[kept(1, "metadata", Of(&OBJECT_META)), nullable_list(2, "rules", Of(&POLICY_RULE))];

static ROLE_BINDING: Message = &[
    kept(1, "metadata", Of(&OBJECT_META)),
    list(2, "subjects", Of(&SUBJECT)),
    kept(3, "roleRef", Of(&ROLE_REF)),
];

static MUTATING_ADMISSION_POLICY: Message =
    &[kept(1, "metadata", Of(&OBJECT_META)), kept(2, "spec", Of(&MUTATING_ADMISSION_POLICY_SPEC))];

static MUTATING_ADMISSION_POLICY_SPEC: Message = &[
    kept(1, "paramKind", Of(&PARAM_KIND)),
    kept(2, "matchConstraints", Of(&MATCH_RESOURCES)),
    list(3, "variables", Of(&VARIABLE)),
    list(4, "mutations", Of(&MUTATION)),
    kept(5, "failurePolicy", Text),
    list(6, "matchConditions", Of(&MATCH_CONDITION)),
    omitted(7, "reinvocationPolicy", Text),
];

static PARAM_KIND: Message = &[omitted(1, "apiVersion", Text), omitted(2, "kind", Text)];

static MATCH_RESOURCES: Message = &[
    kept(1, "namespaceSelector", Of(&LABEL_SELECTOR)),
    kept(2, "objectSelector", Of(&LABEL_SELECTOR)),
    list(3, "resourceRules", Of(&NAMED_RULE_WITH_OPERATIONS)),
    list(4, "excludeResourceRules", Of(&NAMED_RULE_WITH_OPERATIONS)),
    kept(7, "matchPolicy", Text),
];

static NAMED_RULE_WITH_OPERATIONS: Message =
    &[list(1, "resourceNames", Text), inline(2, Of(&RULE_WITH_OPERATIONS))];

static RULE_WITH_OPERATIONS: Message = &[list(1, "operations", Text), inline(2, Of(&RULE))];

static RULE: Message = &[
    list(1, "apiGroups", Text),
    list(2, "apiVersions", Text),
    list(3, "resources", Text),
    kept(4, "scope", Text),
];

static VARIABLE: Message = &[kept(1, "name", Text), kept(2, "expression", Text)];

static MUTATION: Message = &[
    kept(2, "patchType", Text),
    kept(3, "applyConfiguration", Of(&APPLY_CONFIGURATION)),
    kept(4, "jsonPatch", Of(&JSON_PATCH)),
];

static APPLY_CONFIGURATION: Message = &[omitted(1, "expression", Text)];

static JSON_PATCH: Message = &[omitted(1, "expression", Text)];

static MATCH_CONDITION: Message = &[kept(1, "name", Text), kept(2, "expression", Text)];

static MUTATING_ADMISSION_POLICY_BINDING: Message =
    &[kept(1, "metadata", Of(&OBJECT_META)), kept(2, "spec", Of(&MUTATING_ADMISSION_POLICY_BINDING_SPEC))];

static MUTATING_ADMISSION_POLICY_BINDING_SPEC: Message = &[
    omitted(1, "policyName", Text),
    kept(2, "paramRef", Of(&PARAM_REF)),
    kept(3, "matchResources", Of(&MATCH_RESOURCES)),
];

static PARAM_REF: Message = &[
    omitted(1, "name", Text),
    omitted(2, "namespace", Text),
    kept(3, "selector", Of(&LABEL_SELECTOR)),
    kept(4, "parameterNotFoundAction", Text),
];

static MUTATING_WEBHOOK_CONFIGURATION: Message =
    &[kept(1, "metadata", Of(&OBJECT_META)), list(2, "webhooks", Of(&MUTATING_WEBHOOK))];

static MUTATING_WEBHOOK: Message = &[
    kept(1, "name", Text),
    kept(2, "clientConfig", Of(&WEBHOOK_CLIENT_CONFIG)),
    list(3, "rules", Of(&RULE_WITH_OPERATIONS)),
    kept(4, "failurePolicy", Text),
    kept(5, "namespaceSelector", Of(&LABEL_SELECTOR)),
    kept(6, "sideEffects", Text),
    kept(7, "timeoutSeconds", Int),
    nullable_list(8, "admissionReviewVersions", Text),
    kept(9, "matchPolicy", Text),
    kept(10, "reinvocationPolicy", Text),
    kept(11, "objectSelector", Of(&LABEL_SELECTOR)),
    list(12, "matchConditions", Of(&MATCH_CONDITION)),
];

static WEBHOOK_CLIENT_CONFIG: Message =
    &[kept(1, "service", Of(&SERVICE_REFERENCE)), omitted(2, "caBundle", Bytes), kept(3, "url", Text)];

static SERVICE_REFERENCE: Message =
    &[kept(1, "namespace", Text), kept(2, "name", Text), kept(3, "path", Text), kept(4, "port", Int)];

static VALIDATING_ADMISSION_POLICY: Message = &[
    kept(1, "metadata", Of(&OBJECT_META)),
    kept(2, "spec", Of(&VALIDATING_ADMISSION_POLICY_SPEC)),
    kept(3, "status", Of(&VALIDATING_ADMISSION_POLICY_STATUS)),
];

static VALIDATING_ADMISSION_POLICY_SPEC: Message = &[
    kept(1, "paramKind", Of(&PARAM_KIND)),
    kept(2, "matchConstraints", Of(&MATCH_RESOURCES)),
    list(3, "validations", Of(&VALIDATION)),
    kept(4, "failurePolicy", Text),
    list(5, "auditAnnotations", Of(&AUDIT_ANNOTATION)),
    list(6, "matchConditions", Of(&MATCH_CONDITION)),
    list(7, "variables", Of(&VARIABLE)),
];

static VALIDATION: Message = &[
    kept(1, "expression", Text),
    omitted(2, "message", Text),
    kept(3, "reason", Text),
    omitted(4, "messageExpression", Text),
];

static AUDIT_ANNOTATION: Message = &[kept(1, "key", Text), kept(2, "valueExpression", Text)];

static VALIDATING_ADMISSION_POLICY_STATUS: Message = &[
    omitted(1, "observedGeneration", Int),
    kept(2, "typeChecking", Of(&TYPE_CHECKING)),
    list(3, "conditions", Of(&CONDITION)),
];

static TYPE_CHECKING: Message = &[list(1, "expressionWarnings", Of(&EXPRESSION_WARNING))];

static EXPRESSION_WARNING: Message = &[kept(2, "fieldRef", Text), kept(3, "warning", Text)];

static CONDITION: Message = &[
    kept(1, "type", Text),
    kept(2, "status", Text),
    omitted(3, "observedGeneration", Int),
    kept(4, "lastTransitionTime", Time),
    kept(5, "reason", Text),
    kept(6, "message", Text),
];

static VALIDATING_ADMISSION_POLICY_BINDING: Message =
    &[kept(1, "metadata", Of(&OBJECT_META)), kept(2, "spec", Of(&VALIDATING_ADMISSION_POLICY_BINDING_SPEC))];

static VALIDATING_ADMISSION_POLICY_BINDING_SPEC: Message = &[
    omitted(1, "policyName", Text),
    kept(2, "paramRef", Of(&PARAM_REF)),
    kept(3, "matchResources", Of(&MATCH_RESOURCES)),
    list(4, "validationActions", Text),
];

static VALIDATING_WEBHOOK_CONFIGURATION: Message =
    &[kept(1, "metadata", Of(&OBJECT_META)), list(2, "webhooks", Of(&VALIDATING_WEBHOOK))];

static VALIDATING_WEBHOOK: Message = &[
    kept(1, "name", Text),
    kept(2, "clientConfig", Of(&WEBHOOK_CLIENT_CONFIG)),
    list(3, "rules", Of(&RULE_WITH_OPERATIONS)),
    kept(4, "failurePolicy", Text),
    kept(5, "namespaceSelector", Of(&LABEL_SELECTOR)),
    kept(6, "sideEffects", Text),
    kept(7, "timeoutSeconds", Int),
    nullable_list(8, "admissionReviewVersions", Text),
    kept(9, "matchPolicy", Text),
    kept(10, "objectSelector", Of(&LABEL_SELECTOR)),
    list(11, "matchConditions", Of(&MATCH_CONDITION)),
];

static DELETE_OPTIONS: Message = &[
    kept(1, "gracePeriodSeconds", Int),
    kept(2, "preconditions", Of(&PRECONDITIONS)),
    kept(3, "orphanDependents", Bool),
    kept(4, "propagationPolicy", Text),
    list(5, "dryRun", Text),
    kept(6, "ignoreStoreReadErrorWithClusterBreakingPotential", Bool),
];

static PRECONDITIONS: Message = &[kept(1, "uid", Text), kept(2, "resourceVersion", Text)];
