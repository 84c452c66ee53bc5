//! `'…'.format([…])` (cel-go `ext/formatting.go`).

use plinth_codec::error::quoted;
use plinth_codec::hex;

use super::standard::{double_text, duration_text, time_text};
use crate::context::{Context, EvalError, Outcome};
use crate::value::{Table, Val};

/// Most digits behind the point.
const MAX_PRECISION: usize = 1000;

pub(super) fn format<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::String(pattern), Val::List(values)] = args else { return Err(EvalError::NoSuchOverload) };
    let mut out = String::new();
    let mut rest = pattern.as_str();
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let clause = &rest[at + 1..];
        if let Some(after) = clause.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let value = values.get(next).ok_or_else(|| EvalError::other(format!("index {next} out of range")))?;
        next += 1;
        let (precision, clause) = precision(clause)?;
        let verb = clause.chars().next().ok_or_else(|| EvalError::other("unexpected end of string"))?;
        rest = &clause[verb.len_utf8()..];
        let before = out.len();
        write(context, &mut out, verb, precision, &value)?;
        context.text(out.len() - before)?;
    }
    out.push_str(rest);
    context.text(rest.len())?;
    Ok(Val::text(out))
}

/// The error of a literal pattern with literal arguments, and the index of the argument, as upstream reports
/// it at compilation. `arguments` are the types, `None` where they are known only at evaluation.
pub(crate) fn check(pattern: &str, arguments: &[Option<&str>]) -> Result<(), (String, Option<usize>)> {
    let mut rest = pattern;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        let clause = &rest[at + 1..];
        if let Some(after) = clause.strip_prefix('%') {
            rest = after;
            continue;
        }
        let unreadable = |e: EvalError| (format!("could not parse formatting clause: {e}"), None);
        let (_, clause) = precision(clause).map_err(unreadable)?;
        let verb =
            clause.chars().next().ok_or_else(|| unreadable(EvalError::other("unexpected end of string")))?;
        if !"sdfebxXo".contains(verb) {
            let why = EvalError::other(format!("unrecognized formatting clause \"{verb}\""));
            return Err(unreadable(why));
        }
        let Some(argument) = arguments.get(next) else {
            return Err((format!("index {next} out of range"), None));
        };
        let (name, only, fits) = clause_of(verb);
        if let Some(given) = argument.filter(|given| !fits.contains(given)) {
            let why = format!(
                "error during formatting: {name} clause can only be used on {only}, was given {given}"
            );
            return Err((why, Some(next)));
        }
        next += 1;
        rest = &clause[verb.len_utf8()..];
    }
    Ok(())
}

/// The name of a verb, its accepted types in words, and the types.
fn clause_of(verb: char) -> (&'static str, &'static str, &'static [&'static str]) {
    match verb {
        'd' => ("decimal", "integers", &["int", "uint"]),
        'f' => ("fixed-point", "doubles", &["double", "string"]),
        'e' => ("scientific", "doubles", &["double", "string"]),
        'b' => ("binary", "integers and bools", &["int", "uint", "bool"]),
        'x' | 'X' => ("hex", "integers, byte buffers, and strings", &["int", "uint", "string", "bytes"]),
        'o' => ("octal", "integers", &["int", "uint"]),
        _ => (
            "string",
            "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
            &[
                "string",
                "bool",
                "bytes",
                "int",
                "uint",
                "double",
                "map",
                "list",
                "type",
                "duration",
                "timestamp",
                "null",
            ],
        ),
    }
}

/// `.3` before a verb.
fn precision(clause: &str) -> Result<(Option<usize>, &str), EvalError> {
    let Some(rest) = clause.strip_prefix('.') else { return Ok((None, clause)) };
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(|| EvalError::other("could not find end of precision specifier"))?;
    let (digits, rest) = rest.split_at(end);
    match digits.parse() {
        _ if digits.is_empty() => Ok((Some(0), rest)),
        Ok(n) if n <= MAX_PRECISION => Ok((Some(n), rest)),
        _ => {
            Err(EvalError::other(format!("error while converting precision to integer: {}", quoted(digits))))
        }
    }
}

fn write<'a>(
    context: &mut Context<'a>,
    out: &mut String,
    verb: char,
    precision: Option<usize>,
    value: &Val<'a>,
) -> Result<(), EvalError> {
    let digits = precision.unwrap_or(6);
    let text = match (verb, value) {
        ('s', value) => return format_value(context, out, value, false),
        ('d', Val::Int(n)) => n.to_string(),
        ('d', Val::Uint(n)) => n.to_string(),
        ('f', value) => fixed(double(value)?.ok_or_else(|| wrong(verb, value))?, digits),
        ('e', value) => scientific(double(value)?.ok_or_else(|| wrong(verb, value))?),
        ('b', Val::Int(n)) => signed(*n, |n| format!("{n:b}")),
        ('b', Val::Uint(n)) => format!("{n:b}"),
        ('b', Val::Bool(b)) => u8::from(*b).to_string(),
        ('x', Val::Int(n)) => signed(*n, |n| format!("{n:x}")),
        ('X', Val::Int(n)) => signed(*n, |n| format!("{n:X}")),
        ('x', Val::Uint(n)) => format!("{n:x}"),
        ('X', Val::Uint(n)) => format!("{n:X}"),
        ('x', Val::String(s)) => hex::lower(s.as_str().as_bytes()),
        ('X', Val::String(s)) => hex::upper(s.as_str().as_bytes()),
        ('x', Val::Bytes(b)) => hex::lower(b),
        ('X', Val::Bytes(b)) => hex::upper(b),
        ('o', Val::Int(n)) => signed(*n, |n| format!("{n:o}")),
        ('o', Val::Uint(n)) => format!("{n:o}"),
        ('d' | 'b' | 'x' | 'X' | 'o', value) => return Err(wrong(verb, value)),
        (verb, _) => return Err(EvalError::other(format!("unrecognized formatting clause \"{verb}\""))),
    };
    out.push_str(&text);
    Ok(())
}

fn wrong(verb: char, value: &Val<'_>) -> EvalError {
    let (clause, only, _) = clause_of(verb);
    EvalError::other(format!(
        "error during formatting: {clause} clause can only be used on {only}, was given {}",
        value.type_name()
    ))
}

fn double(value: &Val<'_>) -> Result<Option<f64>, EvalError> {
    Ok(match value {
        Val::Double(n) => Some(*n),
        Val::String(s) => match s.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    })
}

fn signed(n: i64, digits: fn(u64) -> String) -> String {
    let sign = if n < 0 { "-" } else { "" };
    format!("{sign}{}", digits(n.unsigned_abs()))
}

fn special(n: f64) -> Option<String> {
    match n {
        n if n.is_nan() => Some("NaN".into()),
        n if n.is_infinite() => Some(if n > 0.0 { "\u{221e}" } else { "-\u{221e}" }.into()),
        _ => None,
    }
}

/// As in the English locale: with thousands separators.
fn fixed(n: f64, digits: usize) -> String {
    if let Some(text) = special(n) {
        return text;
    }
    let text = format!("{n:.digits$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = text.split_once('.').map_or((text, ""), |(whole, fraction)| (whole, fraction));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// As in the English locale: a product with a power of ten. Upstream takes a precision for a width, so there
/// are always six digits.
fn scientific(n: f64) -> String {
    if let Some(text) = special(n) {
        return text;
    }
    let text = format!("{n:.6e}");
    let (number, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |rest| ("\u{207b}", rest));
    let superscript = |c: char| match c {
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        c => char::from_u32(0x2070 + c.to_digit(10).unwrap_or(0)).unwrap_or(c),
    };
    let exponent: String = format!("{exponent:0>2}").chars().map(superscript).collect();
    format!("{number}\u{d7}10{sign}{exponent}")
}

/// A value as `%s` shows it; inside of lists and maps as it would be written.
fn format_value<'a>(
    context: &mut Context<'a>,
    out: &mut String,
    value: &Val<'a>,
    inside: bool,
) -> Result<(), EvalError> {
    plinth_codec::value::level(|| {
        context.work(1)?;
        match value {
            Val::Null => out.push_str("null"),
            Val::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Val::Int(n) => out.push_str(&n.to_string()),
            Val::Uint(n) => out.push_str(&n.to_string()),
            Val::Double(n) if inside => match special(*n) {
                Some(text) => out.push_str(&quoted(&text)),
                None => out.push_str(&format!("{n:.6}")),
            },
            Val::Double(n) => out.push_str(&double_text(*n)),
            Val::String(s) if inside => out.push_str(&quoted(s.as_str())),
            Val::String(s) => out.push_str(s.as_str()),
            Val::Bytes(b) => {
                let text = String::from_utf8_lossy(b);
                match inside {
                    true => out.push_str(&format!("b{}", quoted(&text))),
                    false => out.push_str(&text),
                }
            }
            Val::Timestamp(t) if inside => out.push_str(&format!("timestamp(\"{}\")", time_text(*t))),
            Val::Timestamp(t) => out.push_str(&time_text(*t)),
            Val::Duration(n) if inside => out.push_str(&format!("duration(\"{}\")", duration_text(*n))),
            Val::Duration(n) => out.push_str(&duration_text(*n)),
            Val::Type(name) => out.push_str(name),
            Val::List(list) => {
                out.push('[');
                for (i, element) in list.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    format_value(context, out, &element, true)?;
                    bounded(context, out)?;
                }
                out.push(']');
            }
            Val::Map(map) => format_map(context, out, map)?,
            Val::Object(members, _) => format_map(context, out, &Table::Data(members, None))?,
            other => {
                return Err(wrong('s', other));
            }
        }
        Ok(())
    })
}

fn bounded(context: &mut Context<'_>, out: &str) -> Result<(), EvalError> {
    // Longer texts cost more than any evaluation may.
    match out.len() > 16 << 20 {
        true => Err(context.too_costly()),
        false => context.work(1),
    }
}

fn format_map<'a>(context: &mut Context<'a>, out: &mut String, map: &Table<'a>) -> Result<(), EvalError> {
    let mut entries = Vec::with_capacity(map.len());
    for (key, value) in map.iter() {
        let (mut k, mut v) = (String::new(), String::new());
        format_value(context, &mut k, &key, true)?;
        format_value(context, &mut v, &value, true)?;
        entries.push((k, v));
    }
    entries.sort();
    out.push('{');
    for (i, (key, value)) in entries.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(key);
        out.push(':');
        out.push_str(value);
        bounded(context, out)?;
    }
    out.push('}');
    Ok(())
}
