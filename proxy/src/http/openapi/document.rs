//! One OpenAPI 3.0 document: the operations and schemas of one group version.

use serde_json::{Map, Value, json};

use super::{TypeInfo, digest};
use crate::http::discovery::gv_path;
use crate::http::protobuf;
use crate::types::Schema;

/// A group version and its types at one scope.
pub(super) struct GroupVersion<'a> {
    group: &'a str,
    version: &'a str,
    /// Whether the scope is concrete, so that there is more than `list` and `watch`.
    writable: bool,
    pub(super) types: Vec<&'a TypeInfo>,
}

/// Query parameters by operation: name, JSON type, description.
type Parameter = (&'static str, &'static str, &'static str);

const PRETTY: Parameter = ("pretty", "string", "If 'true', the output is indented.");
const LIST: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean", "Asks for BOOKMARK events on a watch."),
    ("continue", "string", "The token of the page before."),
    ("fieldSelector", "string", "Selects by fields; defaults to everything."),
    ("labelSelector", "string", "Selects by labels; defaults to everything."),
    ("limit", "integer", "The most objects in one answer."),
    ("resourceVersion", "string", "The version to list at or to watch after."),
    ("resourceVersionMatch", "string", "How resourceVersion is applied to a list."),
    ("sendInitialEvents", "boolean", "Begins a watch with the present objects and a bookmark."),
    (
        "shardSelector",
        "string",
        "Selects by hash range, such as shardRange(object.metadata.uid, '0x0', '0x8000000000000000').",
    ),
    ("timeoutSeconds", "integer", "How long a list or watch may last."),
    ("watch", "boolean", "Watches instead of listing."),
];
const DRY_RUN: Parameter = ("dryRun", "string", "'All' answers as if the write had happened.");
const WRITE: &[Parameter] = &[
    DRY_RUN,
    ("fieldManager", "string", "The name of the actor; accepted and not recorded."),
    (
        "fieldValidation",
        "string",
        "What to do about duplicate fields: Ignore, Warn or Strict. No field is unknown.",
    ),
];
const DELETE: &[Parameter] = &[
    DRY_RUN,
    ("gracePeriodSeconds", "integer", "Accepted; deletion is always immediate."),
    ("orphanDependents", "boolean", "Accepted; dependents are not looked at."),
    ("propagationPolicy", "string", "Accepted; dependents are not looked at."),
];

impl<'a> GroupVersion<'a> {
    pub(super) fn new(group: &'a str, version: &'a str, writable: bool) -> Self {
        Self { group, version, writable, types: Vec::new() }
    }

    /// A hash of everything the document is made from, so that an index needs no documents.
    pub(super) fn hash(&self) -> String {
        let made_from = (env!("CARGO_PKG_VERSION"), self.group, self.version, self.writable, &self.types);
        digest(format!("{made_from:?}").as_bytes())
    }

    pub(super) fn json(&self) -> Value {
        let (mut paths, mut schemas) = (Map::new(), Map::new());
        for info in &self.types {
            self.add_paths(info, &mut paths);
            self.add_schemas(info, &mut schemas);
        }
        schemas.insert(OBJECT_META.into(), protobuf::object_meta());
        schemas.insert(LIST_META.into(), list_meta());
        json!({
            "openapi": "3.0.0",
            "info": {"title": "shardcache", "version": env!("CARGO_PKG_VERSION")},
            "paths": paths,
            "components": {"schemas": schemas},
        })
    }

    fn add_paths(&self, info: &TypeInfo, paths: &mut Map<String, Value>) {
        let root = format!("/{}", gv_path(self.group, self.version));
        let resource = info.name.resource();
        let everywhere = format!("{root}/{resource}");
        let collection = if info.namespaced {
            paths.insert(everywhere, self.path_item(info, &[], &["get"]));
            format!("{root}/namespaces/{{namespace}}/{resource}")
        } else {
            everywhere
        };
        let in_path: &[&str] = if info.namespaced { &["namespace"] } else { &[] };
        let written = self.writable && !info.is_own();
        let methods: &[&str] = if written { &["get", "post", "deletecollection"] } else { &["get"] };
        paths.insert(collection.clone(), self.path_item(info, in_path, methods));
        if self.writable {
            let in_path: &[&str] = if info.namespaced { &["name", "namespace"] } else { &["name"] };
            let methods: &[&str] = if written { &["get", "put", "patch", "delete"] } else { &["get"] };
            let object = self.path_item(info, in_path, methods);
            paths.insert(format!("{collection}/{{name}}"), object);
        }
    }

    fn path_item(&self, info: &TypeInfo, in_path: &[&str], methods: &[&str]) -> Value {
        let mut item = Map::new();
        let is_object = in_path.contains(&"name");
        for method in methods {
            let operation = self.operation(info, method, is_object, in_path.contains(&"namespace"));
            item.insert(method.replace("deletecollection", "delete"), operation);
        }
        let parameters = in_path.iter().map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
        });
        item.insert("parameters".into(), parameters.chain([query_parameter(PRETTY)]).collect());
        item.into()
    }

    fn operation(&self, info: &TypeInfo, method: &str, is_object: bool, in_namespace: bool) -> Value {
        let (action, parameters): (&str, &[&[Parameter]]) = match (method, is_object) {
            ("get", false) => ("list", &[LIST]),
            ("post", _) => ("post", &[WRITE]),
            ("put", _) => ("put", &[WRITE]),
            ("patch", _) => ("patch", &[WRITE]),
            ("delete", _) => ("delete", &[DELETE]),
            ("deletecollection", _) => ("deletecollection", &[LIST, DELETE]),
            _ => ("get", &[&[("resourceVersion", "string", "The version the object is read at.")]]),
        };
        let answered = match action {
            "list" => json!({"$ref": format!("#/components/schemas/{}", self.schema_name(&info.list_kind))}),
            "delete" | "deletecollection" => json!({"type": "object"}),
            _ => json!({"$ref": format!("#/components/schemas/{}", self.schema_name(&info.kind))}),
        };
        let mut operation = json!({
            "operationId": self.operation_id(info, action, in_namespace),
            "parameters": parameters.concat().into_iter().map(query_parameter).collect::<Vec<_>>(),
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answered}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": self.gvk(&info.kind),
        });
        if let Some(body) = self.request_body(info, action) {
            operation["requestBody"] = body;
        }
        operation
    }

    fn request_body(&self, info: &TypeInfo, action: &str) -> Option<Value> {
        let object =
            json!({"schema": {"$ref": format!("#/components/schemas/{}", self.schema_name(&info.kind))}});
        let any = |json_type: &str| json!({"schema": {"type": json_type}});
        let content = match action {
            "post" | "put" => json!({"application/json": object, "application/yaml": object}),
            "patch" => json!({
                "application/json-patch+json": {"schema": {"type": "array", "items": {"type": "object"}}},
                "application/merge-patch+json": any("object"),
            }),
            "delete" | "deletecollection" => {
                let options = any("object");
                return Some(json!({"content": {"application/json": options, "application/yaml": options}}));
            }
            _ => return None,
        };
        Some(json!({"required": true, "content": content}))
    }

    fn operation_id(&self, info: &TypeInfo, action: &str, in_namespace: bool) -> String {
        let title = |text: &str| {
            let mut chars = text.chars();
            chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect::<String>()
        };
        let group = if self.group.is_empty() { "core" } else { self.group };
        let group: String = group.split(['.', '-']).map(title).collect();
        let verb = match action {
            "post" => "create",
            "put" => "replace",
            "get" => "read",
            other => other,
        };
        let place = match (info.namespaced, in_namespace) {
            (false, _) => "",
            (true, true) => "Namespaced",
            (true, false) => "AllNamespaces",
        };
        format!("{verb}{group}{}{place}{}", title(self.version), info.kind)
    }

    /// The schemas of a type and of its list.
    fn add_schemas(&self, info: &TypeInfo, schemas: &mut Map<String, Value>) {
        let mut list = json!({
            "description": format!("A list of {}.", info.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": API_VERSION.text(),
                "kind": KIND.text(),
                "metadata": reference(LIST_META, "The version of the list, and how it goes on."),
                "items": {"type": "array", "items": {"$ref": format!("#/components/schemas/{}", self.schema_name(&info.kind))}},
            },
            "x-kubernetes-group-version-kind": [self.gvk(&info.list_kind)],
        });
        let object = self.object_schema(info);
        if let Some(selectable) = object.get(SELECTABLE) {
            list[SELECTABLE] = selectable.clone();
        }
        schemas.insert(self.schema_name(&info.kind), object);
        schemas.insert(self.schema_name(&info.list_kind), list);
    }

    /// What is known of a type: the schema of its CRD, or the fields that Kubernetes gives it, or else that
    /// it is an object.
    fn object_schema(&self, info: &TypeInfo) -> Value {
        let version = info.version(self.version);
        let declared = version.and_then(|version| version.schema.as_ref()).map(Schema::value);
        let known = || protobuf::schema_of(&info.api_version(self.version), &info.kind);
        let mut schema = declared.or_else(known).unwrap_or_else(|| {
            json!({
                "description": format!("{} as its owner wrote it; nothing is validated or pruned.", info.kind),
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
            })
        });
        for (name, property) in [
            ("apiVersion", API_VERSION.text()),
            ("kind", KIND.text()),
            ("metadata", reference(OBJECT_META, "Name, version, labels and what else every object has.")),
        ] {
            schema["properties"][name] = property;
        }
        schema["x-kubernetes-group-version-kind"] = json!([self.gvk(&info.kind)]);
        let selectable = version.map_or(&[][..], |version| &version.selectable_fields);
        if !selectable.is_empty() {
            let fields = selectable.iter().map(|field| json!({ "fieldPath": field }));
            schema[SELECTABLE] = fields.collect();
        }
        schema
    }

    fn gvk(&self, kind: &str) -> Value {
        json!({"group": self.group, "version": self.version, "kind": kind})
    }

    /// The group's labels reversed, as kube-apiserver names the schemas of CRDs.
    fn schema_name(&self, kind: &str) -> String {
        let group = if self.group.is_empty() { "core" } else { self.group };
        let reversed: Vec<&str> = group.rsplit('.').collect();
        format!("{}.{}.{kind}", reversed.join("."), self.version)
    }
}

/// A text that every object has.
struct Described(&'static str);

const API_VERSION: Described = Described("The group and version that the object is shown in.");
const KIND: Described = Described("The kind of the object.");

impl Described {
    fn text(&self) -> Value {
        json!({ "type": "string", "description": self.0 })
    }
}

/// Extension of objects and lists that have fields to be selected by.
const SELECTABLE: &str = "x-kubernetes-selectable-fields";

/// As Kubernetes names them, so that clients find them.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

fn reference(schema: &str, description: &str) -> Value {
    json!({ "description": description, "allOf": [{ "$ref": format!("#/components/schemas/{schema}") }], "default": {} })
}

fn list_meta() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "description": "What every list has.",
        "type": "object",
        "properties": {
            "resourceVersion": text("The version of the state that the list shows; a watch can go on from it."),
            "continue": text("The token of the next page, if there is one."),
            "remainingItemCount": {
                "type": "integer", "format": "int64",
                "description": "How many objects follow this page, where no selector hides it.",
            },
            "shardInfo": {
                "type": "object",
                "description": "The shardSelector that the list was chosen by, if one was.",
                "properties": {"selector": text("Its canonical text.")},
            },
        },
    })
}

fn query_parameter((name, json_type, description): Parameter) -> Value {
    json!({
        "name": name,
        "in": "query",
        "description": description,
        "schema": {"type": json_type, "uniqueItems": true},
    })
}
