//! Tables and PartialObjectMetadata: the representations of `meta.k8s.io`.
//!
//! A table is what kubectl prints. The columns of a built-in resource are data of its kind ([`Column`]): a
//! name, a type, a priority (0, or 1 for wide output), and a source, which is a path in most cases and a
//! function in the rest. A [`TableDefinition`] is made of them, or of the printer columns of a custom
//! resource. Upstream has them in `pkg/printers/internalversion`; its descriptions are left out.
//!
//! Rows are written one by one into a buffer, so a list streams. A row is made from the stored JSON body: the
//! paths of all columns are compiled into a tree, the body is scanned once and only what the columns need is
//! read.
//!
//! ```
//! use plinth_codec::negotiate::MetaVersion;
//! use plinth_codec::table::{Column, TableDefinition, TableMeta, Now, RowObject, Writer};
//!
//! let body = br#"{"metadata":{"name":"web","creationTimestamp":"2026-01-01T00:00:00Z"},"data":{"a":"1"}}"#;
//! let now = Now::from(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_767_225_900));
//! let definition = TableDefinition::new(&[Column::NAME, Column::count("Data", "data"), Column::AGE], None);
//! let mut out = Vec::new();
//! let mut table = Writer::new(&definition, MetaVersion::V1, now);
//! table.begin(Some(&TableMeta { resource_version: "41", ..TableMeta::default() }), true, &mut out);
//! table.row(body, "40", RowObject::None, &mut out).unwrap();
//! table.end(&mut out);
//! let text = String::from_utf8(out).unwrap();
//! assert!(text.starts_with(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"41"},"#));
//! assert!(text.ends_with(r#""rows":[{"cells":["web",1,"5m"],"object":null}]}"#));
//! ```

mod age;
mod cell;
mod column;
mod custom;
mod json;
mod partial;
mod project;
mod read;
mod source;
mod table_meta;
mod writer;

pub use age::{duration_between, Now};
pub use cell::Cell;
pub use column::{Column, ColumnDefinition};
pub use project::{MalformedJson, Paths};
pub use read::{condition, count, join, pairs};
pub use source::Parts;
pub use table_meta::TableMeta;
pub use writer::{RowObject, Writer};

use crate::Value;
use custom::CustomColumn;
use smol_str::SmolStr;
use source::{AnySource, Row};
use std::fmt;

/// The condition of a row; kubectl can hide rows that are `Completed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCondition {
    /// The type of the condition; its status is always `True`.
    pub kind: &'static str,
    /// The reason, in one word.
    pub reason: &'static str,
    /// Text for people.
    pub message: &'static str,
}

/// How the condition of a row is found.
#[derive(Clone, Copy, Debug)]
pub struct RowConditionSource {
    /// The paths that `condition` reads, in the syntax of [`Paths`].
    pub reads: &'static [&'static str],
    /// The condition; defined for any object.
    pub condition: fn(&Value) -> Option<RowCondition>,
}

/// The columns of one resource, with all that rows need. Immutable, shared by all requests.
pub struct TableDefinition {
    columns: Vec<ColumnDefinition>,
    sources: Vec<AnySource>,
    condition: Option<RowConditionSource>,
    paths: Paths,
}

impl fmt::Debug for TableDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns.iter().map(|column| &column.name)).finish()
    }
}

impl TableDefinition {
    /// The table of a built-in resource.
    pub fn new(columns: &[Column], condition: Option<RowConditionSource>) -> TableDefinition {
        let mut paths = Paths::default();
        for column in columns {
            column.source.reads(|path| paths.insert(path));
        }
        condition.iter().flat_map(|source| source.reads).for_each(|path| paths.insert(path));
        TableDefinition {
            columns: columns.iter().map(Column::definition).collect(),
            sources: columns.iter().map(|c| AnySource::Builtin(c.source)).collect(),
            condition,
            paths,
        }
    }

    /// The columns of a version of a custom resource: `Name`, then its `additionalPrinterColumns`, each an
    /// object with `name`, `type`, `jsonPath` and perhaps `format`, `description`, `priority`; without any,
    /// `Age`.
    pub fn custom(printer_columns: &[Value]) -> TableDefinition {
        let mut definition = TableDefinition::new(&[Column::NAME], None);
        for column in printer_columns {
            let text = |key: &str| SmolStr::from(read::str_at(column, key));
            let path = read::str_at(column, "jsonPath");
            let description = match text("description") {
                text if text.is_empty() => {
                    format!("Custom resource definition column (in JSONPath format): {path}").into()
                }
                text => text,
            };
            let head = ColumnDefinition {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                description,
                priority: read::int_at(column, "priority"),
            };
            definition.push(head, path);
        }
        if printer_columns.is_empty() {
            let head = ColumnDefinition {
                name: "Age".into(),
                kind: "date".into(),
                format: SmolStr::default(),
                description: SmolStr::default(),
                priority: 0,
            };
            definition.push(head, ".metadata.creationTimestamp");
        }
        definition
    }

    fn push(&mut self, head: ColumnDefinition, json_path: &str) {
        let source = CustomColumn::new(&head.kind, json_path);
        if let Some(path) = source.reads() {
            self.paths.insert(&path);
        }
        self.columns.push(head);
        self.sources.push(AnySource::Custom(source));
    }

    /// The column definitions.
    pub fn columns(&self) -> &[ColumnDefinition] {
        &self.columns
    }

    /// The cells of an object, one per column. Absent fields are shown as in upstream; defined for any
    /// object.
    pub fn cells<'a>(&'a self, object: &'a Value, now: Now) -> impl ExactSizeIterator<Item = Cell<'a>> {
        let row = Row::new(object, now);
        self.sources.iter().map(move |source| source.cell(&row))
    }

    /// The condition of an object's row.
    pub fn condition(&self, object: &Value) -> Option<RowCondition> {
        self.condition.and_then(|source| (source.condition)(object))
    }

    /// Whether a column shows `metadata.resourceVersion`, which stored bodies do not contain.
    fn shows_resource_version(&self) -> bool {
        self.paths.covers(&["metadata", "resourceVersion"])
    }

    /// The paths that the columns read.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }
}

/// The objects in the rows of a table: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// `null` in place of each object.
    None,
    /// The object as `PartialObjectMetadata`; the default.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// A wrong `includeObject`: 400 BadRequest with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
    crate::error::quoted(.0)
)]
pub struct InvalidIncludeObject(String);

impl IncludeObject {
    /// Reads the query parameter; absent and empty mean the metadata.
    pub fn parse(parameter: Option<&str>) -> Result<IncludeObject, InvalidIncludeObject> {
        match parameter {
            None | Some("" | "Metadata") => Ok(IncludeObject::Metadata),
            Some("None") => Ok(IncludeObject::None),
            Some("Object") => Ok(IncludeObject::Object),
            Some(other) => Err(InvalidIncludeObject(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
