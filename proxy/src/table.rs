//! `Table` (`meta.k8s.io`): what `kubectl get` prints of a type.
//!
//! The columns are those of [`crate::types::Column`]; where a request spans shards or logical clusters,
//! columns for those follow the first one, because a name alone does not say which object a row is.
//! Rows are made when they are sent: an age is that of the moment. An object is parsed for its row, and
//! only its metadata where no column needs more; nothing of that happens for anybody who does not ask
//! for a `Table`.
//!
//! Pure, but for the wall clock that ages are counted by.

mod age;
mod cell;
mod path;

use std::time::SystemTime;

use serde_json::{Value, json};
use shardcache_storage::{KeyParts, Spans};

use crate::scope::{Part, Scope};
use crate::types::{Column, ColumnSource, Computed, VersionInfo};
use path::Path;

/// The columns of one request.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Prepared>,
    /// Whether a column needs more than the metadata.
    whole: bool,
}

#[derive(Debug)]
struct Prepared {
    column: Column,
    cell: Cell,
}

#[derive(Debug)]
enum Cell {
    Name,
    Shard,
    Cluster,
    Path(Path),
    Computed(Computed),
    /// The path was not understood: there is nothing to show.
    Nothing,
}

impl Table {
    /// The columns of a type in a version, as seen from a scope.
    pub(crate) fn new(version: Option<&VersionInfo>, scope: Option<&Scope>) -> Self {
        let age =
            [Column { description: "The time since the object was created.".to_owned(), ..Column::age() }];
        let declared = match version {
            Some(version) if !version.columns.is_empty() => &version.columns[..],
            _ => &age,
        };
        let mut columns = Vec::with_capacity(declared.len() + 3);
        if !declared.iter().any(|column| column.source == ColumnSource::Computed(Computed::Name)) {
            columns.push(name());
        }
        columns.extend(declared.iter().map(Prepared::from));
        let whole = declared.iter().any(|column| match &column.source {
            ColumnSource::Path(path) => !path::is_metadata(path),
            ColumnSource::Computed(computed) => !matches!(computed, Computed::Name | Computed::CreatedAt),
        });
        if let Some(scope) = scope {
            let cluster = (scope.cluster == Part::Any).then(|| place("Cluster", Cell::Cluster));
            let shard = (scope.shard == Part::Any).then(|| place("Shard", Cell::Shard));
            cluster.into_iter().chain(shard).for_each(|column| columns.insert(1, column));
        }
        Self { columns, whole }
    }

    /// `columnDefinitions`, a JSON list.
    pub(crate) fn definitions(&self) -> Value {
        let definition = |Prepared { column, .. }: &Prepared| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": column.format,
                "description": description(column),
                "priority": column.priority,
            })
        };
        self.columns.iter().map(definition).collect()
    }

    /// The cells of an object's row, a JSON list. A bookmark has no key.
    pub(crate) fn cells(&self, key: Option<KeyParts<'_>>, body: &[u8], spans: Spans) -> Value {
        #[expect(clippy::disallowed_methods, reason = "ages are counted from the wall clock")]
        let now = SystemTime::now();
        let object = if self.whole {
            serde_json::from_slice(body)
        } else {
            serde_json::from_slice(&body[spans.metadata.range()])
                .map(|metadata: Value| json!({ "metadata": metadata }))
        };
        // What is stored was validated at ingest.
        let object = object.unwrap_or_default();
        self.columns.iter().map(|prepared| prepared.cell(key, &object, now)).collect()
    }
}

impl From<&Column> for Prepared {
    fn from(column: &Column) -> Self {
        let cell = match &column.source {
            ColumnSource::Path(text) => Path::parse(text).map_or(Cell::Nothing, Cell::Path),
            ColumnSource::Computed(computed) => Cell::Computed(*computed),
        };
        Self { column: column.clone(), cell }
    }
}

impl Prepared {
    fn cell(&self, key: Option<KeyParts<'_>>, object: &Value, now: SystemTime) -> Value {
        match &self.cell {
            Cell::Name => key.map_or("", |key| key.name).into(),
            Cell::Shard => key.map_or("", |key| key.shard).into(),
            Cell::Cluster => key.map_or("", |key| key.cluster).into(),
            Cell::Path(path) => {
                path.first(object).map_or(Value::Null, |found| cell::of_type(&self.column.kind, found, now))
            }
            Cell::Computed(computed) => cell::computed(*computed, object, now),
            Cell::Nothing => Value::Null,
        }
    }
}

/// The first column of most types.
fn name() -> Prepared {
    let column = Column {
        format: "name".to_owned(),
        description: "The name of the object, unique within a namespace of a logical cluster of a shard."
            .to_owned(),
        ..Column::path("Name", "string", ".metadata.name")
    };
    Prepared { column, cell: Cell::Name }
}

/// A column that says where an object is.
fn place(name: &str, cell: Cell) -> Prepared {
    let column = Column {
        description: format!(
            "The {} that the object is in.",
            if name == "Shard" { "shard" } else { "logical cluster" }
        ),
        ..Column::path(name, "string", ".metadata.annotations")
    };
    Prepared { column, cell }
}

/// What a column says of itself, or else where its cells come from, as kube-apiserver does.
fn description(column: &Column) -> String {
    match (&*column.description, &column.source) {
        ("", ColumnSource::Path(path)) => {
            format!("Custom resource definition column (in JSONPath format): {path}")
        }
        (text, _) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
