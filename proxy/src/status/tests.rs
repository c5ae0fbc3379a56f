//! Golden bodies: what clients parse, byte for byte.

use shardcache_storage::TypeName;

use super::{ApiError, FieldError, quote};

const HEAD: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#;

/// The body after the fields every failure begins with.
fn assert_body(error: &ApiError, code: u16, rest: &str) {
    assert_eq!(error.code, code);
    assert_eq!(error.status().to_string(), format!("{HEAD}{rest},\"code\":{code}}}"));
}

fn exports() -> TypeName {
    TypeName::new("apis.kcp.io", "apiexports")
}

const ABOUT: &str = r#""details":{"name":"x","group":"apis.kcp.io","kind":"apiexports"}"#;

#[test]
fn errors_about_one_object() {
    let exports = exports();
    let conflict = "Operation cannot be fulfilled on apiexports.apis.kcp.io \\\"x\\\":";
    let table = [
        (
            ApiError::not_found(&exports, "x"),
            404,
            format!(r#""apiexports.apis.kcp.io \"x\" not found","reason":"NotFound",{ABOUT}"#),
        ),
        (
            ApiError::already_exists(&exports, "x"),
            409,
            format!(r#""apiexports.apis.kcp.io \"x\" already exists","reason":"AlreadyExists",{ABOUT}"#),
        ),
        (
            ApiError::generate_name_conflict(&exports, "x"),
            409,
            format!(
                r#""apiexports.apis.kcp.io \"x\" already exists, the server was not able to generate a unique name for the object","reason":"AlreadyExists",{}"#,
                ABOUT.replace('}', r#","retryAfterSeconds":1}"#)
            ),
        ),
        (
            ApiError::modified(&exports, "x"),
            409,
            format!(
                r#""{conflict} the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict",{ABOUT}"#
            ),
        ),
        (
            ApiError::uid_precondition(&exports, "x", "a", "b"),
            409,
            format!(
                r#""{conflict} Precondition failed: UID in precondition: a, UID in object meta: b","reason":"Conflict",{ABOUT}"#
            ),
        ),
        (
            ApiError::method_not_allowed(&exports, "create"),
            405,
            r#""create is not supported on resources of kind \"apiexports.apis.kcp.io\"","reason":"MethodNotAllowed","details":{"group":"apis.kcp.io","kind":"apiexports"}"#
                .to_owned(),
        ),
        (
            ApiError::not_found(&TypeName::new("", "namespaces"), "x"),
            404,
            r#""namespaces \"x\" not found","reason":"NotFound","details":{"name":"x","kind":"namespaces"}"#.to_owned(),
        ),
    ];
    for (error, code, rest) in table {
        assert_body(&error, code, &rest);
    }
}

#[test]
fn errors_about_a_request() {
    let table = [
        (ApiError::bad_request("why"), 400, r#""why","reason":"BadRequest""#),
        (ApiError::forbidden("why"), 403, r#""why","reason":"Forbidden""#),
        (
            ApiError::no_such_path(),
            404,
            r#""the server could not find the requested resource","reason":"NotFound""#,
        ),
        (ApiError::not_acceptable("why"), 406, r#""why","reason":"NotAcceptable""#),
        (
            ApiError::list_expired(),
            410,
            r#""The resourceVersion for the provided list is too old.","reason":"Expired""#,
        ),
        (
            ApiError::watch_expired(),
            410,
            r#""The resourceVersion for the provided watch is too old.","reason":"Expired""#,
        ),
        (
            ApiError::too_old_resource_version(5, 7),
            410,
            r#""too old resource version: 5 (7)","reason":"Expired""#,
        ),
        (
            ApiError::too_large(3_145_728),
            413,
            r#""Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge""#,
        ),
        (
            ApiError::unsupported_media_type(&["a/b", "c/d"]),
            415,
            r#""the body of the request was in an unknown format - accepted media types include: a/b, c/d","reason":"UnsupportedMediaType""#,
        ),
        (
            ApiError::too_many_requests("why", 1),
            429,
            r#""why","reason":"TooManyRequests","details":{"retryAfterSeconds":1}"#,
        ),
        (
            ApiError::internal("why"),
            500,
            r#""Internal error occurred: why","reason":"InternalError","details":{"causes":[{"message":"why"}]}"#,
        ),
        (
            ApiError::unavailable("why", 5),
            503,
            r#""why","reason":"ServiceUnavailable","details":{"retryAfterSeconds":5}"#,
        ),
        (ApiError::timeout("why", 0), 504, r#""Timeout: why","reason":"Timeout""#),
        (
            ApiError::too_large_resource_version(9, 7),
            504,
            r#""Timeout: Too large resource version: 9, current: 7","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}"#,
        ),
        (ApiError::insufficient_storage("why"), 507, r#""why","reason":"InsufficientStorage""#),
    ];
    for (error, code, rest) in table {
        assert_body(&error, code, rest);
    }
}

#[test]
fn an_expired_page_carries_the_token_to_go_on_with() {
    let status = ApiError::continue_expired("TOKEN".into()).status();
    assert_eq!(status["metadata"]["continue"], "TOKEN");
    assert_eq!((&status["code"], &status["reason"]), (&410.into(), &"Expired".into()));
    assert_eq!(
        status["message"],
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list."
    );
}

#[test]
fn invalid_objects_name_every_field_once() {
    let errors = [
        FieldError::required("metadata.name", "name or generateName is required"),
        FieldError::required("spec", ""),
        FieldError::invalid("metadata.labels", "a\"b", "rule"),
        FieldError::invalid_bare("metadata.resourceVersion", 0, "must be specified for an update"),
        FieldError::not_supported("dryRun", "x", &["All"]),
        FieldError::too_long("fieldManager", 128),
        FieldError::forbidden("force", "no"),
    ];
    assert_body(
        &ApiError::invalid("apis.kcp.io", "APIExport", "x", &errors[..1]),
        422,
        r#""APIExport.apis.kcp.io \"x\" is invalid: metadata.name: Required value: name or generateName is required","reason":"Invalid","details":{"name":"x","group":"apis.kcp.io","kind":"APIExport","causes":[{"reason":"FieldValueRequired","message":"Required value: name or generateName is required","field":"metadata.name"}]}"#,
    );
    let all = ApiError::invalid("", "Namespace", "", &[&errors[..], &errors[..1]].concat());
    assert_eq!(
        all.message,
        "Namespace \"\" is invalid: [metadata.name: Required value: name or generateName is required, \
         spec: Required value, metadata.labels: Invalid value: \"a\\\"b\": rule, \
         metadata.resourceVersion: Invalid value: 0: must be specified for an update, \
         dryRun: Unsupported value: \"x\": supported values: \"All\", \
         fieldManager: Too long: may not be more than 128 bytes, force: Forbidden: no]"
    );
    let reasons: Vec<_> = all.details.causes.iter().map(|cause| cause.reason).collect();
    assert_eq!(
        reasons,
        [
            "FieldValueRequired",
            "FieldValueRequired",
            "FieldValueInvalid",
            "FieldValueInvalid",
            "FieldValueNotSupported",
            "FieldValueTooLong",
            "FieldValueForbidden",
            "FieldValueRequired",
        ]
    );
}

#[test]
fn texts_are_quoted_as_go_quotes() {
    assert_eq!(quote("a\"b\\c\n\t\r\0\u{7f}é"), r#""a\"b\\c\n\t\r\x00\x7fé""#);
}
