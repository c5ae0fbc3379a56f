//! One CustomResourceDefinition → the type it describes, or why it describes none.
//!
//! Reads what serving needs and nothing else: names, scope, served versions, selectable fields, printer
//! columns, schemas and the conversion strategy. Nothing is checked against a schema: objects of the type
//! are stored and served as sent; it is kept for those who ask what the type is.
//! A definition that kube-apiserver would have refused is refused here too, because whoever cached
//! it may not have asked an apiserver.

use serde::Deserialize;
use serde_json::value::RawValue;
use shardcache_storage::TypeName;

use super::columns::{Column, Written};
use super::schema::Schema;
use super::{TypeInfo, VersionInfo, version};

/// Columns that are shown; nobody reads more, and each costs every row something.
const COLUMNS_MAX: usize = 100;

/// Why a definition is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CrdError {
    /// The JSON has another shape.
    #[error("it cannot be read: {0}")]
    Shape(String),
    /// The name is not `<plural>.<group>` of the specification.
    #[error("its name is not spec.names.plural + \".\" + spec.group")]
    Name,
    /// Something in it is not legal.
    #[error("{0}")]
    Illegal(String),
}

#[derive(Deserialize)]
struct Crd {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    group: String,
    names: CrdNames,
    scope: Scope,
    versions: Vec<Version>,
    conversion: Option<Conversion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CrdNames {
    plural: String,
    kind: String,
    singular: Option<String>,
    list_kind: Option<String>,
    short_names: Option<Vec<String>>,
    categories: Option<Vec<String>>,
}

#[derive(Deserialize)]
enum Scope {
    Cluster,
    Namespaced,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    name: String,
    served: bool,
    storage: bool,
    selectable_fields: Option<Vec<SelectableField>>,
    additional_printer_columns: Option<Vec<Written>>,
    schema: Option<Validation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Validation {
    #[serde(rename = "openAPIV3Schema")]
    open_api_v3_schema: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SelectableField {
    json_path: String,
}

#[derive(Deserialize)]
struct Conversion {
    strategy: String,
}

/// The type that a definition of this name declares; `None` if no definition may have the name.
pub(super) fn declared_type(name: &str) -> Option<TypeName> {
    let (plural, group) = name.split_once('.')?;
    (!plural.is_empty() && !group.is_empty()).then(|| TypeName::new(group, plural))
}

/// Reads a definition called `name`.
pub(super) fn parse(name: &str, body: &[u8]) -> Result<TypeInfo, CrdError> {
    let Crd { spec } = serde_json::from_slice(body).map_err(|error| CrdError::Shape(error.to_string()))?;
    if name != format!("{}.{}", spec.names.plural, spec.group) {
        return Err(CrdError::Name);
    }
    let storage_version = storage_version(&spec.versions)?;
    let versions = served_versions(spec.versions, spec.conversion.as_ref(), &storage_version);
    let names = spec.names;
    let info = TypeInfo {
        name: TypeName::new(&spec.group, &names.plural),
        singular: filled(names.singular).unwrap_or_else(|| names.kind.to_lowercase()),
        list_kind: filled(names.list_kind).unwrap_or_else(|| format!("{}List", names.kind)),
        kind: names.kind,
        short_names: names.short_names.unwrap_or_default(),
        categories: names.categories.unwrap_or_default(),
        namespaced: matches!(spec.scope, Scope::Namespaced),
        versions,
        storage_version,
    };
    info.check().map_err(CrdError::Illegal)?;
    Ok(info)
}

/// Kubernetes' defaulting treats an empty name as an absent one.
fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn storage_version(versions: &[Version]) -> Result<String, CrdError> {
    let mut storage = versions.iter().filter(|version| version.storage);
    match (storage.next(), storage.next()) {
        (Some(one), None) => Ok(one.name.clone()),
        _ => Err(CrdError::Illegal("it has not exactly one storage version".to_owned())),
    }
}

/// The served versions, preferred first. Without the conversion `None` the versions of an object
/// differ in more than `apiVersion`, and only the stored one can be told truthfully (D45).
fn served_versions(
    versions: Vec<Version>,
    conversion: Option<&Conversion>,
    storage: &str,
) -> Vec<VersionInfo> {
    let convertible = conversion.is_none_or(|conversion| conversion.strategy == "None");
    let mut served: Vec<VersionInfo> = versions
        .into_iter()
        .filter(|version| version.served && (convertible || version.name == storage))
        .map(|version| VersionInfo {
            name: version.name,
            selectable_fields: version
                .selectable_fields
                .unwrap_or_default()
                .into_iter()
                .map(|field| field.json_path.trim_start_matches('.').to_owned())
                .collect(),
            columns: version
                .additional_printer_columns
                .unwrap_or_default()
                .into_iter()
                .map(Column::from)
                .take(COLUMNS_MAX)
                .collect(),
            schema: version
                .schema
                .and_then(|schema| schema.open_api_v3_schema)
                .and_then(|schema| Schema::parse(schema.get())),
        })
        .collect();
    served.sort_by(|a, b| version::by_preference(&a.name, &b.name));
    served
}
