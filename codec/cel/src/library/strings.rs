//! cel-go's string extensions, version 2 (`ext/strings.go`). Positions count code points.

use plinth_codec::error::short_escape;

use crate::context::{Context, EvalError, Outcome};
use crate::value::{Text, Val};

use super::lists;

fn text<'v>(value: &'v Val<'_>) -> Result<&'v str, EvalError> {
    value.as_str().ok_or(EvalError::NoSuchOverload)
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::other(format!("index out of range: {index}"))
}

/// The byte offset of a code point; the index after the last one is the end.
fn byte_of(text: &str, index: i64) -> Result<usize, EvalError> {
    let place = usize::try_from(index).map_err(|_| out_of_range(index))?;
    if text.is_ascii() {
        return if place <= text.len() { Ok(place) } else { Err(out_of_range(index)) };
    }
    let mut offsets = text.char_indices().map(|(i, _)| i).chain(std::iter::once(text.len()));
    offsets.nth(place).ok_or_else(|| out_of_range(index))
}

fn chars_before(text: &str, byte: usize) -> i64 {
    text[..byte].chars().count() as i64
}

pub(super) fn char_at<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [string, Val::Int(index)] = args else { return Err(EvalError::NoSuchOverload) };
    let string = text(string)?;
    context.work(string.len() as u64 / 16)?;
    let at = byte_of(string, *index)?;
    let c: String = string[at..].chars().take(1).collect();
    Ok(Val::text(c))
}

pub(super) fn index_of<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (string, part, offset) = match args {
        [Val::List(list), value] => return lists::position(context, list, value, false),
        [string, part] => (text(string)?, text(part)?, 0),
        [string, part, Val::Int(offset)] => (text(string)?, text(part)?, *offset),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if part.is_empty() {
        return Ok(Val::Int(offset));
    }
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let Ok(from) = byte_of(string, offset) else { return Ok(Val::Int(-1)) };
    let found = string[from..].find(part);
    Ok(Val::Int(found.map_or(-1, |i| chars_before(string, from + i))))
}

pub(super) fn last_index_of<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (string, part, offset) = match args {
        [Val::List(list), value] => return lists::position(context, list, value, true),
        [string, part] => (text(string)?, text(part)?, None),
        [string, part, Val::Int(offset)] => (text(string)?, text(part)?, Some(*offset)),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let length = chars_before(string, string.len());
    if part.is_empty() {
        return Ok(Val::Int(offset.unwrap_or(length)));
    }
    let offset = offset.unwrap_or(length - 1);
    if offset < 0 {
        return match args.len() {
            3 => Err(out_of_range(offset)),
            _ => Ok(Val::Int(-1)),
        };
    }
    if offset >= length {
        return Ok(Val::Int(-1));
    }
    // A match begins at the offset or before.
    let end = byte_of(string, offset)?.saturating_add(part.len()).min(string.len());
    let mut end = end;
    while !string.is_char_boundary(end) {
        end += 1;
    }
    let found = string[..end].rmatch_indices(part).next().map(|(i, _)| chars_before(string, i));
    Ok(Val::Int(found.filter(|i| *i <= offset).unwrap_or(-1)))
}

pub(super) fn lower_ascii<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [string] = args else { return Err(EvalError::NoSuchOverload) };
    Ok(Val::text(text(string)?.to_ascii_lowercase()))
}

pub(super) fn upper_ascii<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [string] = args else { return Err(EvalError::NoSuchOverload) };
    Ok(Val::text(text(string)?.to_ascii_uppercase()))
}

pub(super) fn trim<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::String(Text::Data(s))] => Ok(Val::String(Text::Data(s.trim()))),
        [string] => Ok(Val::text(text(string)?.trim())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn substring<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (string, start, end) = match args {
        [string, Val::Int(start)] => (string, *start, None),
        [string, Val::Int(start), Val::Int(end)] => (string, *start, Some(*end)),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(EvalError::other(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let range = |s: &str| -> Result<(usize, usize), EvalError> {
        let from = byte_of(s, start)?;
        Ok((from, end.map_or(Ok(s.len()), |end| byte_of(s, end))?))
    };
    match string {
        Val::String(Text::Data(s)) => {
            let (from, to) = range(s)?;
            Ok(Val::String(Text::Data(&s[from..to])))
        }
        other => {
            let s = text(other)?;
            let (from, to) = range(s)?;
            Ok(Val::text(&s[from..to]))
        }
    }
}

pub(super) fn replace<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (string, old, new, n) = match args {
        [string, old, new] => (text(string)?, text(old)?, text(new)?, -1),
        [string, old, new, Val::Int(n)] => (text(string)?, text(old)?, text(new)?, *n),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let most = usize::try_from(n).unwrap_or(usize::MAX);
    // The replacement may be long: the result is charged before it is built.
    let count = string.matches(old).take(most).count();
    context.text(string.len().saturating_add(count.saturating_mul(new.len())))?;
    Ok(Val::text(string.replacen(old, new, most)))
}

pub(super) fn split<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (string, separator, n) = match args {
        [string, separator] => (string, text(separator)?, -1),
        [string, separator, Val::Int(n)] => (string, text(separator)?, *n),
        _ => return Err(EvalError::NoSuchOverload),
    };
    context.work(text(string)?.len() as u64)?;
    let parts = match string {
        Val::String(Text::Data(s)) => {
            split_text(s, separator, n).into_iter().map(|p| Val::String(Text::Data(p))).collect()
        }
        other => split_text(text(other)?, separator, n).into_iter().map(Val::text).collect(),
    };
    Ok(Val::list(parts))
}

/// As Go's `strings.SplitN`: no part when `n` is 0, all when it is negative.
fn split_text<'s>(string: &'s str, separator: &str, n: i64) -> Vec<&'s str> {
    let most = usize::try_from(n).unwrap_or(usize::MAX);
    if most == 0 {
        return Vec::new();
    }
    if !separator.is_empty() {
        return string.splitn(most, separator).collect();
    }
    // Between all code points.
    let mut parts = Vec::new();
    let mut rest = string;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == most {
            break;
        }
        let (part, after) = rest.split_at(c.len_utf8());
        parts.push(part);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

pub(super) fn join<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (list, separator) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), separator] => (list, text(separator)?),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let mut out = String::new();
    for (i, element) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        match element.as_str() {
            Some(s) => out.push_str(s),
            None => return Err(EvalError::other(format!("join: invalid input: {}", element.type_name()))),
        }
        if out.len() > MAX_TEXT {
            return Err(context.too_costly());
        }
    }
    context.text(out.len())?;
    Ok(Val::text(out))
}

/// Longer texts cost more than any evaluation may.
const MAX_TEXT: usize = 16 << 20;

/// A key as a step of a JSON pointer (k8s.io/apiserver `pkg/cel/library/jsonpatch.go`).
pub(super) fn escape_key<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [key] = args else { return Err(EvalError::NoSuchOverload) };
    let key = text(key)?;
    context.text(key.len())?;
    Ok(Val::text(key.replace('~', "~0").replace('/', "~1")))
}

pub(super) fn quote<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [string] = args else { return Err(EvalError::NoSuchOverload) };
    let string = text(string)?;
    context.text(string.len())?;
    let mut out = String::with_capacity(string.len() + 2);
    out.push('"');
    for c in string.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    Ok(Val::text(out))
}
