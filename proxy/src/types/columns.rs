//! What a `Table` shows of a type besides names: its columns.
//!
//! A CRD's columns are its `additionalPrinterColumns`. Built-in types have those of kube-apiserver's
//! printers, some of which no JSON path can express; they are [`Computed`].

use serde::Deserialize;

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// JSON type of the cells: `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// Format of the type, such as `int32`; may be empty.
    pub format: String,
    /// Text for people; may be empty.
    pub description: String,
    /// `0` is always shown, more only in wide output.
    pub priority: i32,
    /// Where the cells come from.
    pub source: ColumnSource,
}

/// Where the cells of a column come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnSource {
    /// The first value at a JSON path, in the dialect of kubectl.
    Path(String),
    /// Something that a JSON path cannot say.
    Computed(Computed),
}

/// Cells of built-in types that are made of several fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Computed {
    /// The object's name, where it is not the first column.
    Name,
    /// The creation time as it is written.
    CreatedAt,
    /// Number of elements of the list at a JSON pointer.
    Count(&'static str),
    /// `kind/name` of a binding's role.
    Role,
    /// Names of a binding's subjects of a kind.
    Subjects(&'static str),
    /// `apiVersion/kind` of an admission policy's parameters.
    ParamKind,
    /// `namespace/name` or selector of an admission binding's parameters.
    ParamRef,
    /// Age of an event's last occurrence.
    LastSeen,
    /// Age of an event's first occurrence.
    FirstSeen,
    /// `kind/name` of the object of an event.
    EventObject,
    /// Who reported an event.
    EventSource,
    /// How often an event occurred.
    EventCount,
}

/// A column as a CRD writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Written {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    format: Option<String>,
    description: Option<String>,
    priority: Option<i32>,
    json_path: String,
}

impl From<Written> for Column {
    fn from(written: Written) -> Self {
        Self {
            name: written.name,
            kind: written.kind,
            format: written.format.unwrap_or_default(),
            description: written.description.unwrap_or_default(),
            priority: written.priority.unwrap_or_default(),
            source: ColumnSource::Path(written.json_path),
        }
    }
}

impl Column {
    /// A column of the values at a JSON path.
    pub fn path(name: &str, kind: &str, json_path: &str) -> Self {
        let source = ColumnSource::Path(json_path.to_owned());
        Self { source, ..Self::computed(name, kind, Computed::Name) }
    }

    /// A column that no JSON path can express.
    pub(super) fn computed(name: &str, kind: &str, computed: Computed) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            source: ColumnSource::Computed(computed),
        }
    }

    /// The age of the object: what a type without columns of its own has.
    pub fn age() -> Self {
        Self::path("Age", "date", ".metadata.creationTimestamp")
    }

    /// The same column with a text for people.
    pub(super) fn described(self, description: &str) -> Self {
        Self { description: description.to_owned(), ..self }
    }

    /// The same column, in wide output only.
    pub(super) fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}
