//! Sources of cells: how the columns of a row are made from its object.

use super::age::Now;
use super::cell::Cell;
use super::custom::CustomColumn;
use super::read::{at, condition, count, int_at, items, join, pairs, str_at};
use crate::selector::LabelSelector;
use crate::Value;
use std::cell::RefCell;

/// The source of the cells of a built-in column; see the constructors of [`Column`](super::Column).
#[derive(Clone, Copy, Debug)]
pub(super) enum CellSource {
    Text(&'static str, &'static str),
    Int(&'static str),
    Bool(&'static str, bool),
    IntOr(&'static str, &'static str),
    Age(&'static str, &'static str),
    Ratio(&'static str, &'static str),
    Count(&'static str),
    Join { list: &'static str, field: Option<&'static str>, absent: &'static str },
    Labels(&'static str),
    Selector(&'static str, &'static str, &'static str),
    Condition(&'static str, &'static str),
    Computed { reads: &'static [&'static str], cell: for<'a> fn(&'a Value, Now) -> Cell<'a> },
    Part(&'static Parts, usize),
}

/// Cells of one row that are computed together.
#[derive(Debug)]
pub struct Parts {
    /// The paths that `cells` reads, in the syntax of [`Paths`](super::Paths).
    pub reads: &'static [&'static str],
    /// Computes the cells; defined for any object.
    pub cells: for<'a> fn(&'a Value, Now) -> [Cell<'a>; Parts::COUNT],
}

impl Parts {
    /// Number of cells.
    pub const COUNT: usize = 3;
}

/// The object of a row.
pub(super) struct Row<'a> {
    pub object: &'a Value,
    pub now: Now,
    /// Cells computed together that no column has taken yet.
    parts: RefCell<Option<[Cell<'a>; Parts::COUNT]>>,
}

impl<'a> Row<'a> {
    pub(super) fn new(object: &'a Value, now: Now) -> Row<'a> {
        Row { object, now, parts: RefCell::new(None) }
    }
}

impl CellSource {
    /// The paths that it reads, for the projection.
    pub(super) fn reads(&self, mut read: impl FnMut(&str)) {
        match *self {
            CellSource::Text(path, _)
            | CellSource::Int(path)
            | CellSource::Bool(path, _)
            | CellSource::IntOr(path, _)
            | CellSource::Age(path, _)
            | CellSource::Labels(path)
            | CellSource::Selector(path, ..) => read(path),
            CellSource::Ratio(a, b) => {
                read(a);
                read(b);
            }
            CellSource::Count(path) => read(&format!("{path}#")),
            CellSource::Join { list, field: None, .. } => read(list),
            CellSource::Join { list, field: Some(field), .. } => read(&format!("{list}[].{field}")),
            CellSource::Condition(list, _) => {
                read(&format!("{list}[].type"));
                read(&format!("{list}[].status"));
            }
            CellSource::Computed { reads, .. } | CellSource::Part(&Parts { reads, .. }, _) => {
                reads.iter().copied().for_each(read);
            }
        }
    }

    /// The cell of a row.
    pub(super) fn cell<'a>(&self, row: &Row<'a>) -> Cell<'a> {
        let object = row.object;
        match *self {
            CellSource::Text(path, absent) => match at(object, path).map(Value::scalar_text) {
                Some(text) if !text.is_empty() => Cell::Text(text),
                _ => absent.into(),
            },
            CellSource::Int(path) => int_at(object, path).into(),
            CellSource::Bool(path, absent) => {
                Cell::Bool(at(object, path).and_then(Value::as_bool).unwrap_or(absent))
            }
            CellSource::IntOr(path, absent) => match at(object, path).and_then(Value::as_int) {
                Some(n) => n.into(),
                None => absent.into(),
            },
            CellSource::Age(path, absent) => match str_at(object, path) {
                "" => absent.into(),
                timestamp => row.now.age(timestamp).into(),
            },
            CellSource::Ratio(a, b) => format!("{}/{}", int_at(object, a), int_at(object, b)).into(),
            CellSource::Count(path) => count(object, path).into(),
            CellSource::Join { list, field, absent } => {
                let text = |item: &'a Value| match field {
                    Some(field) => str_at(item, field),
                    None => item.as_str().unwrap_or_default(),
                };
                let joined = join(items(object, list).iter().map(text), ",");
                if joined.is_empty() {
                    absent.into()
                } else {
                    joined.into()
                }
            }
            CellSource::Labels(path) => labels(object, path).into(),
            CellSource::Selector(path, empty, invalid) => {
                match LabelSelector::from_object(at(object, path)).map(|s| s.to_string()) {
                    Ok(text) if text.is_empty() => empty.into(),
                    Ok(text) => text.into(),
                    Err(_) => invalid.into(),
                }
            }
            CellSource::Condition(list, kind) => {
                condition(items(object, list), kind).map_or("?", |c| str_at(c, "status")).into()
            }
            CellSource::Computed { cell, .. } => cell(object, row.now),
            CellSource::Part(parts, index) => {
                let mut cells = row.parts.borrow_mut();
                let cells = cells.get_or_insert_with(|| (parts.cells)(object, row.now));
                cells.get_mut(index).map_or(Cell::Null, |cell| std::mem::replace(cell, Cell::Null))
            }
        }
    }
}

/// Labels as text. Upstream sorts the finished pairs, so `a-b=1` stands before `a=1`.
fn labels(object: &Value, path: &str) -> String {
    let mut pairs: Vec<_> = pairs(object, path).map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() {
        return "<none>".to_owned();
    }
    pairs.sort_unstable();
    pairs.join(",")
}

/// The source of the cells of any column.
pub(super) enum AnySource {
    /// A column of a built-in kind.
    Builtin(CellSource),
    /// A column of a custom resource.
    Custom(CustomColumn),
}

impl AnySource {
    pub(super) fn cell<'a>(&self, row: &Row<'a>) -> Cell<'a> {
        match self {
            AnySource::Builtin(source) => source.cell(row),
            AnySource::Custom(column) => column.cell(row.object, row.now),
        }
    }
}
