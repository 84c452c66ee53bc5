//! Cells: the content of a column in a row, and its source.

use super::age::Now;
use super::compute::pod;
use super::custom::CustomColumn;
use super::read::{at, count, int_at, items, join, pairs, scalar, str_at};
use crate::selector::LabelSelector;
use crate::Value;
use std::borrow::Cow;
use std::cell::OnceCell;

/// The content of one cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing: a custom column without a value.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Another number.
    Float(f64),
    /// Text.
    Text(Cow<'a, str>),
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Cell<'a> {
        Cell::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Cell<'_> {
    fn from(text: String) -> Self {
        Cell::Text(Cow::Owned(text))
    }
}

impl<'a> From<Cow<'a, str>> for Cell<'a> {
    fn from(text: Cow<'a, str>) -> Cell<'a> {
        Cell::Text(text)
    }
}

impl From<i64> for Cell<'_> {
    fn from(n: i64) -> Self {
        Cell::Int(n)
    }
}

/// The source of the cells of a built-in column. Paths are dotted keys from the root of the object.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// The scalar at a path as text; another text when absent or empty.
    Text(&'static str, &'static str),
    /// The integer at a path; 0 when absent.
    Int(&'static str),
    /// The truth value at a path; another one when absent.
    Bool(&'static str, bool),
    /// The integer at a path; a text when absent.
    IntOr(&'static str, &'static str),
    /// How long ago the timestamp at a path is; a text when absent.
    Age(&'static str, &'static str),
    /// Two integers with a slash between them.
    Ratio(&'static str, &'static str),
    /// The number of elements of the list or map at a path.
    Count(&'static str),
    /// The elements of a list of texts with commas between them, or one field of each element; a text when
    /// that gives nothing.
    Join { list: &'static str, field: Option<&'static str>, absent: &'static str },
    /// The labels at a path: `a=1,b=2`, `<none>`.
    Labels(&'static str),
    /// The selector object at a path, as text; the texts for an empty and for an invalid one.
    Selector(&'static str, &'static str, &'static str),
    /// The status of a condition, the list and the type given; `?` when there is none.
    Condition(&'static str, &'static str),
    /// A part of the summary of a pod.
    Pod(for<'a> fn(&pod::Summary<'a>, Now) -> Cell<'a>),
    /// Anything else.
    Computed(&'static Computation),
}

/// A cell that takes more than a path.
pub(super) struct Computation {
    /// The paths that it reads, in the syntax of [`super::project::Paths`].
    pub reads: &'static [&'static str],
    /// Computes the cell; defined for any object.
    pub cell: for<'a> fn(&'a Value, Now) -> Cell<'a>,
}

/// The object of a row.
pub(super) struct Row<'a> {
    pub object: &'a Value,
    pub now: Now,
    /// Three columns of pods show parts of one summary, which is computed once.
    pub pod: OnceCell<pod::Summary<'a>>,
}

impl<'a> Row<'a> {
    pub fn new(object: &'a Value, now: Now) -> Row<'a> {
        Row { object, now, pod: OnceCell::new() }
    }
}

impl Source {
    /// The paths that it reads, for the projection.
    pub fn reads(&self, mut read: impl FnMut(&str)) {
        match *self {
            Source::Text(path, _)
            | Source::Int(path)
            | Source::Bool(path, _)
            | Source::IntOr(path, _)
            | Source::Age(path, _)
            | Source::Labels(path)
            | Source::Selector(path, ..) => read(path),
            Source::Ratio(a, b) => {
                read(a);
                read(b);
            }
            Source::Count(path) => read(&format!("{path}#")),
            Source::Join { list, field: None, .. } => read(list),
            Source::Join { list, field: Some(field), .. } => read(&format!("{list}[].{field}")),
            Source::Condition(list, _) => {
                read(&format!("{list}[].type"));
                read(&format!("{list}[].status"));
            }
            Source::Pod(_) => pod::SUMMARY.iter().copied().for_each(read),
            Source::Computed(computation) => computation.reads.iter().copied().for_each(read),
        }
    }

    /// The cell of a row.
    pub fn cell<'a>(&self, row: &Row<'a>) -> Cell<'a> {
        let object = row.object;
        match *self {
            Source::Text(path, absent) => match at(object, path).map(scalar) {
                Some(text) if !text.is_empty() => Cell::Text(text),
                _ => absent.into(),
            },
            Source::Int(path) => int_at(object, path).into(),
            Source::Bool(path, absent) => {
                Cell::Bool(at(object, path).and_then(Value::as_bool).unwrap_or(absent))
            }
            Source::IntOr(path, absent) => match at(object, path).and_then(Value::as_int) {
                Some(n) => n.into(),
                None => absent.into(),
            },
            Source::Age(path, absent) => match str_at(object, path) {
                "" => absent.into(),
                timestamp => row.now.age(timestamp).into(),
            },
            Source::Ratio(a, b) => format!("{}/{}", int_at(object, a), int_at(object, b)).into(),
            Source::Count(path) => count(object, path).into(),
            Source::Join { list, field, absent } => {
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
            Source::Labels(path) => labels(object, path).into(),
            Source::Selector(path, empty, faulty) => {
                match LabelSelector::from_object(at(object, path)).map(|s| s.to_string()) {
                    Ok(text) if text.is_empty() => empty.into(),
                    Ok(text) => text.into(),
                    Err(_) => faulty.into(),
                }
            }
            Source::Condition(list, kind) => {
                super::read::condition(items(object, list), kind).map_or("?", |c| str_at(c, "status")).into()
            }
            Source::Pod(cell) => cell(row.pod.get_or_init(|| pod::Summary::of(object)), row.now),
            Source::Computed(computation) => (computation.cell)(object, row.now),
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
    Builtin(Source),
    /// A column of a custom resource.
    Custom(CustomColumn),
}

impl AnySource {
    pub fn cell<'a>(&self, row: &Row<'a>) -> Cell<'a> {
        match self {
            AnySource::Builtin(source) => source.cell(row),
            AnySource::Custom(column) => column.cell(row.object, row.now),
        }
    }
}
