//! The columns of built-in resources, as data.

use smol_str::SmolStr;

use super::age::Now;
use super::cell::Cell;
use super::source::{CellSource, Parts};

/// The definition of a column, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// The column's title.
    pub name: SmolStr,
    /// `string`, `integer`, `number`, `boolean` or `date`. The cells of a `date` column of a custom resource
    /// are ages; some `string` columns of built-in kinds hold integers, as upstream has it.
    pub kind: SmolStr,
    /// `name` marks the column that identifies the row; mostly empty.
    pub format: SmolStr,
    /// The description; empty for built-in kinds.
    pub description: SmolStr,
    /// 0 for columns that are always shown, greater for those of wide output.
    pub priority: i64,
}

/// A column of a built-in resource: its definition and the source of its cells. Paths are dotted keys from
/// the root of the object.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i64,
    pub(super) source: CellSource,
}

impl Column {
    /// The name, which identifies the row.
    pub const NAME: Column = Column::text("Name", "metadata.name", "").identity();

    /// How long ago the object was created.
    pub const AGE: Column = Column::age("Age", "metadata.creationTimestamp", "<unknown>");

    /// The columns of resources without columns of their own.
    pub const NAME_AND_CREATION: &[Column] = &[
        Column::NAME,
        Column::text("Created At", "metadata.creationTimestamp", "0001-01-01T00:00:00Z").declared("date"),
    ];

    const fn new(name: &'static str, kind: &'static str, source: CellSource) -> Column {
        Column { name, kind, format: "", priority: 0, source }
    }

    /// The scalar at a path as text; another text when absent or empty.
    pub const fn text(name: &'static str, path: &'static str, absent: &'static str) -> Column {
        Column::new(name, "string", CellSource::Text(path, absent))
    }

    /// The integer at a path; 0 when absent.
    pub const fn int(name: &'static str, path: &'static str) -> Column {
        Column::new(name, "integer", CellSource::Int(path))
    }

    /// The integer at a path; a text when absent.
    pub const fn int_or(name: &'static str, path: &'static str, absent: &'static str) -> Column {
        Column::new(name, "string", CellSource::IntOr(path, absent))
    }

    /// The truth value at a path; another one when absent.
    pub const fn boolean(name: &'static str, path: &'static str, absent: bool) -> Column {
        Column::new(name, "boolean", CellSource::Bool(path, absent))
    }

    /// How long ago the timestamp at a path is; a text when absent.
    pub const fn age(name: &'static str, path: &'static str, absent: &'static str) -> Column {
        Column::new(name, "string", CellSource::Age(path, absent))
    }

    /// The number of elements of the list or map at a path.
    pub const fn count(name: &'static str, path: &'static str) -> Column {
        Column::new(name, "integer", CellSource::Count(path))
    }

    /// The integers at two paths with a slash between them.
    pub const fn ratio(name: &'static str, part: &'static str, whole: &'static str) -> Column {
        Column::new(name, "string", CellSource::Ratio(part, whole))
    }

    /// The elements of a list of texts with commas between them; a text when that gives nothing.
    pub const fn list(name: &'static str, list: &'static str, absent: &'static str) -> Column {
        Column::new(name, "string", CellSource::Join { list, field: None, absent })
    }

    /// One field of each element of a list, with commas between them.
    pub const fn each(name: &'static str, list: &'static str, field: &'static str) -> Column {
        Column::new(name, "string", CellSource::Join { list, field: Some(field), absent: "" })
    }

    /// The labels at a path: `a=1,b=2`, `<none>`.
    pub const fn labels(name: &'static str, path: &'static str) -> Column {
        Column::new(name, "string", CellSource::Labels(path))
    }

    /// The selector object at a path, as text; the texts for an empty and for an invalid one.
    pub const fn selector(
        name: &'static str,
        path: &'static str,
        empty: &'static str,
        invalid: &'static str,
    ) -> Column {
        Column::new(name, "string", CellSource::Selector(path, empty, invalid))
    }

    /// The status of the condition of that type in a list; `?` when there is none.
    pub const fn condition(name: &'static str, list: &'static str, kind: &'static str) -> Column {
        Column::new(name, "string", CellSource::Condition(list, kind))
    }

    /// A cell that takes more than a path. `reads` are the paths that `cell` reads, in the syntax of
    /// [`Paths`](super::Paths); `cell` must return for any object.
    pub const fn computed(
        name: &'static str,
        reads: &'static [&'static str],
        cell: for<'a> fn(&'a crate::Value, Now) -> Cell<'a>,
    ) -> Column {
        Column::new(name, "string", CellSource::Computed { reads, cell })
    }

    /// One of several cells that are computed together. A resource has at most one such group, and each of
    /// its cells at most one column.
    pub const fn part(name: &'static str, parts: &'static Parts, index: usize) -> Column {
        Column::new(name, "string", CellSource::Part(parts, index))
    }

    /// Shown in wide output only.
    pub const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    /// Identifies the row.
    pub const fn identity(self) -> Column {
        Column { format: "name", ..self }
    }

    /// Declared with another type than its cells have, as in upstream.
    pub const fn declared(self, kind: &'static str) -> Column {
        Column { kind, ..self }
    }

    pub(super) fn definition(&self) -> ColumnDefinition {
        ColumnDefinition {
            name: self.name.into(),
            kind: self.kind.into(),
            format: self.format.into(),
            description: Default::default(),
            priority: self.priority,
        }
    }
}
