//! The language's own operators, conversions and functions (cel-go `common/stdlib`, `common/types`).

use std::cmp::Ordering;
use std::sync::Arc;

use plinth_codec::time::{civil_from_days, days_from_civil, parse_duration, Timestamp};
use smol_str::SmolStr;

use crate::context::{Context, EvalError, Outcome};
use crate::opaque::OpaqueValue;
use crate::types::ListKind;
use crate::value::{find_by_keys, List, Table, Text, Val};

const SECOND: i64 = 1_000_000_000;
/// Years 1 to 9999, in seconds since 1970.
const TIMES: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Table entry of operators that the program evaluates itself.
pub(super) fn unreachable<'a>(_: &mut Context<'a>, _: &[Val<'a>]) -> Outcome<'a> {
    Err(EvalError::NoSuchOverload)
}

pub(super) fn not<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Bool(b)] => Ok(Val::Bool(!b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn equals<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [a, b] => Ok(Val::Bool(context.equal(a, b)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn not_equals<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [a, b] => Ok(Val::Bool(!context.equal(a, b)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn ordered<'a>(args: &[Val<'a>], holds: fn(Ordering) -> bool) -> Outcome<'a> {
    let [a, b] = args else { return Err(EvalError::NoSuchOverload) };
    match a.compare(b) {
        Some(order) => Ok(Val::Bool(holds(order))),
        None if matches!((a, b), (Val::Double(_), _) | (_, Val::Double(_))) => {
            Err(EvalError::other("NaN values cannot be ordered"))
        }
        None => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn less<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_lt)
}

pub(super) fn less_equals<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_le)
}

pub(super) fn greater<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_gt)
}

pub(super) fn greater_equals<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    ordered(args, Ordering::is_ge)
}

fn int<'a>(result: Option<i64>) -> Outcome<'a> {
    result.map(Val::Int).ok_or(EvalError::Overflow("integer"))
}

fn uint<'a>(result: Option<u64>) -> Outcome<'a> {
    result.map(Val::Uint).ok_or(EvalError::Overflow("unsigned integer"))
}

fn duration<'a>(result: Option<i64>) -> Outcome<'a> {
    result.map(Val::Duration).ok_or(EvalError::Overflow("duration"))
}

/// The time plus a number of nanoseconds.
fn later<'a>(time: Timestamp, nanos: Option<i64>) -> Outcome<'a> {
    let nanos =
        nanos.map(|n| i128::from(n) + i128::from(time.nanos) + i128::from(time.seconds) * i128::from(SECOND));
    let later = nanos.and_then(|n| {
        let seconds = i64::try_from(n.div_euclid(i128::from(SECOND))).ok()?;
        let nanos = u32::try_from(n.rem_euclid(i128::from(SECOND))).ok()?;
        TIMES.contains(&seconds).then_some(Timestamp { seconds, nanos })
    });
    later.map(Val::Timestamp).ok_or(EvalError::Overflow("timestamp"))
}

pub(super) fn add<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(a), Val::Int(b)] => int(a.checked_add(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_add(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a + b)),
        [Val::String(a), Val::String(b)] => {
            let mut sum = String::with_capacity(a.as_str().len() + b.as_str().len());
            sum.push_str(a.as_str());
            sum.push_str(b.as_str());
            Ok(Val::text(sum))
        }
        [Val::Bytes(a), Val::Bytes(b)] => Ok(Val::Bytes([&**a, &**b].concat().into())),
        [Val::Duration(a), Val::Duration(b)] => duration(a.checked_add(*b)),
        [Val::Timestamp(time), Val::Duration(d)] | [Val::Duration(d), Val::Timestamp(time)] => {
            later(*time, Some(*d))
        }
        [Val::List(a), Val::List(b)] => add_lists(context, a, b),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Sets and lists of type map are merged: elements of the second that the first does not have are appended,
/// and elements with the same keys are replaced.
fn add_lists<'a>(context: &mut Context<'a>, a: &List<'a>, b: &List<'a>) -> Outcome<'a> {
    let mut out: Vec<Val<'a>>;
    match a.kind().clone() {
        ListKind::Atomic => {
            let (sum, copied) = a.clone().plus(b.clone()).ok_or_else(|| context.too_costly())?;
            context.work(copied as u64)?;
            return Ok(Val::List(sum));
        }
        ListKind::Set => {
            out = a.iter().collect();
            for element in b.iter() {
                if !context.contains(a, &element)? {
                    out.push(element);
                }
            }
        }
        ListKind::Map(keys) => {
            out = a.iter().collect();
            let own = List::made(out.clone());
            for element in b.iter() {
                let found =
                    context.counting(|visited, limit| find_by_keys(&own, &element, &keys, visited, limit))?;
                let place = match found {
                    Some(found) => own_place(context, &own, &found)?,
                    None => None,
                };
                match place.and_then(|i| out.get_mut(i)) {
                    Some(slot) => *slot = element,
                    None => out.push(element),
                }
            }
        }
    }
    context.work(out.len() as u64)?;
    Ok(Val::list(out))
}

fn own_place<'a>(
    context: &mut Context<'a>,
    list: &List<'a>,
    value: &Val<'a>,
) -> Result<Option<usize>, EvalError> {
    for (i, element) in list.iter().enumerate() {
        if context.equal(&element, value)? {
            return Ok(Some(i));
        }
    }
    Ok(None)
}

pub(super) fn subtract<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(a), Val::Int(b)] => int(a.checked_sub(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_sub(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a - b)),
        [Val::Duration(a), Val::Duration(b)] => duration(a.checked_sub(*b)),
        [Val::Timestamp(time), Val::Duration(d)] => later(*time, d.checked_neg()),
        [Val::Timestamp(a), Val::Timestamp(b)] => {
            let seconds = a.seconds.checked_sub(b.seconds).and_then(|s| s.checked_mul(SECOND));
            let nanos = i64::from(a.nanos) - i64::from(b.nanos);
            duration(seconds.and_then(|s| s.checked_add(nanos)))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn multiply<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(a), Val::Int(b)] => int(a.checked_mul(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_mul(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a * b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn divide<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => {
            Err(EvalError::other("division by zero"))
        }
        [Val::Int(a), Val::Int(b)] => int(a.checked_div(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_div(*b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a / b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn modulo<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => Err(EvalError::other("modulus by zero")),
        [Val::Int(a), Val::Int(b)] => int(a.checked_rem(*b)),
        [Val::Uint(a), Val::Uint(b)] => uint(a.checked_rem(*b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn negate<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(n)] => int(n.checked_neg()),
        [Val::Double(n)] => Ok(Val::Double(-n)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// An element or entry; `None` when there is none.
fn lookup<'a>(container: &Val<'a>, key: &Val<'a>) -> Result<Option<Val<'a>>, EvalError> {
    match (container, key) {
        (Val::List(list), key) => {
            let index = match key {
                Val::Int(i) => Some(i128::from(*i)),
                Val::Uint(i) => Some(i128::from(*i)),
                Val::Double(d) if d.fract() == 0.0 => Some(*d as i128),
                _ => None,
            };
            let index = index.ok_or(EvalError::NoSuchOverload)?;
            Ok(usize::try_from(index).ok().and_then(|i| list.get(i)))
        }
        (Val::Map(map), key) => Ok(map.get(key)),
        (Val::Object(members, declared), Val::String(name)) => {
            let field = declared.field(name.as_str());
            Ok(field.and_then(|f| members.get(&f.name).map(|v| Val::of_data(v, &f.declared))))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn absent(container: &Val<'_>, key: &Val<'_>) -> EvalError {
    match (container, key) {
        (Val::List(_), Val::Int(i)) => EvalError::other(format!("index out of bounds: {i}")),
        (Val::List(_), _) => EvalError::other("index out of bounds"),
        (_, Val::String(s)) => EvalError::NoSuchKey(SmolStr::new(s.as_str())),
        (_, Val::Int(n)) => EvalError::NoSuchKey(smol_str::format_smolstr!("{n}")),
        (_, Val::Uint(n)) => EvalError::NoSuchKey(smol_str::format_smolstr!("{n}")),
        (_, Val::Bool(b)) => EvalError::NoSuchKey(smol_str::format_smolstr!("{b}")),
        (_, key) => EvalError::NoSuchKey(SmolStr::new(key.type_name())),
    }
}

pub(super) fn index<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Optional(Some(inner)), key] => optional_index(context, &[Val::clone(inner), key.clone()]),
        [Val::Optional(None), _] => Ok(Val::Optional(None)),
        [container, key] => lookup(container, key)?.ok_or_else(|| absent(container, key)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn optional_index<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Optional(Some(inner)), key] => Ok(Val::optional(lookup(inner, key)?)),
        [Val::Optional(None), _] => Ok(Val::Optional(None)),
        [container, key] => Ok(Val::optional(lookup(container, key)?)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn contains_in<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [value, Val::List(list)] => Ok(Val::Bool(context.contains(list, value)?)),
        [key, Val::Map(map)] => Ok(Val::Bool(map.get(key).is_some())),
        [Val::String(name), Val::Object(members, declared)] => {
            Ok(Val::Bool(declared.field(name.as_str()).is_some_and(|f| members.contains(&f.name))))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn map_insert<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (map, more) = match args {
        [Val::Map(map), key, value] => (map, vec![(key.clone(), value.clone())]),
        [Val::Map(map), Val::Map(more)] => {
            context.work(more.len() as u64)?;
            (map, more.iter().collect())
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    context.work(map.len() as u64)?;
    let mut entries = match map {
        Table::Computed(entries) => entries.clone(),
        Table::Data(..) => Arc::new(map.iter().filter_map(|(k, v)| Some((k.to_key()?, (k, v)))).collect()),
    };
    for (key, value) in more {
        context.insert(Arc::make_mut(&mut entries), key, value)?;
    }
    Ok(Val::Map(Table::Computed(entries)))
}

pub(super) fn size<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let size = match args {
        [Val::String(s)] => {
            context.work(s.as_str().len() as u64 / 64)?;
            s.as_str().chars().count()
        }
        [Val::Bytes(b)] => b.len(),
        [Val::List(list)] => list.len(),
        [Val::Map(map)] => map.len(),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Val::Int(size as i64))
}

pub(super) fn type_of<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [value] => Ok(Val::Type(SmolStr::new_static(value.type_name()))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn to_dyn<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    args.first().cloned().ok_or(EvalError::NoSuchOverload)
}

fn conversion(from: &Val<'_>, to: &str) -> EvalError {
    EvalError::other(format!("type conversion error from '{}' to '{to}'", from.type_name()))
}

pub(super) fn to_bool<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Bool(b)] => Ok(Val::Bool(*b)),
        [value @ Val::String(s)] => match s.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Val::Bool(false)),
            _ => Err(conversion(value, "bool")),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn to_bytes<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [bytes @ Val::Bytes(_)] => Ok(bytes.clone()),
        [Val::String(s)] => Ok(Val::Bytes(s.as_str().as_bytes().into())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn to_double<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Double(n)] => Ok(Val::Double(*n)),
        [Val::Int(n)] => Ok(Val::Double(*n as f64)),
        [Val::Uint(n)] => Ok(Val::Double(*n as f64)),
        [value @ Val::String(s)] => {
            s.as_str().parse().map(Val::Double).map_err(|_| conversion(value, "double"))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn to_int<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Int(n)] => Ok(Val::Int(*n)),
        [Val::Uint(n)] => int(i64::try_from(*n).ok()),
        // The largest double below 2^63, as upstream: the bounds themselves are refused.
        [Val::Double(n)] => int((n.abs() < 9_223_372_036_854_775_807.0).then_some(*n as i64)),
        [Val::Duration(n)] => Ok(Val::Int(*n)),
        [Val::Timestamp(t)] => Ok(Val::Int(t.seconds)),
        [value @ Val::String(s)] => s.as_str().parse().map(Val::Int).map_err(|_| conversion(value, "int")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn to_uint<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Uint(n)] => Ok(Val::Uint(*n)),
        [Val::Int(n)] => uint(u64::try_from(*n).ok()),
        [Val::Double(n)] => uint((*n >= 0.0 && *n < 18_446_744_073_709_551_615.0).then_some(*n as u64)),
        [value @ Val::String(s)] => s.as_str().parse().map(Val::Uint).map_err(|_| conversion(value, "uint")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn to_duration<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Duration(n)] | [Val::Int(n)] => Ok(Val::Duration(*n)),
        [value @ Val::String(s)] => parse_duration(s.as_str())
            .map(Val::Duration)
            .map_err(|_| conversion(value, "google.protobuf.Duration")),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn to_timestamp<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::Timestamp(t)] => Ok(Val::Timestamp(*t)),
        [Val::Int(seconds)] => later(Timestamp { seconds: *seconds, nanos: 0 }, Some(0)),
        [value @ Val::String(s)] => {
            let time =
                Timestamp::parse(s.as_str()).map_err(|_| conversion(value, "google.protobuf.Timestamp"))?;
            later(time, Some(0))
        }
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// A time as RFC 3339, with its fraction if there is one.
pub(crate) fn time_text(time: Timestamp) -> String {
    let text = time.to_rfc3339();
    match time.nanos {
        0 => text.to_string(),
        nanos => {
            let fraction = format!("{nanos:09}");
            format!("{}.{}Z", text.trim_end_matches('Z'), fraction.trim_end_matches('0'))
        }
    }
}

/// A duration in seconds: `90s`, `1.5s`.
pub(crate) fn duration_text(nanos: i64) -> String {
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let (seconds, rest) = (nanos / SECOND as u64, nanos % SECOND as u64);
    match rest {
        0 => format!("{sign}{seconds}s"),
        rest => format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}

/// A double as Go's `strconv.FormatFloat` with `g` writes it: with an exponent from a million on.
pub(crate) fn double_text(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{n:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.parse::<i32>() {
        Ok(-4..=5) | Err(_) => format!("{n}"),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

pub(super) fn to_string<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(match args {
        [text @ Val::String(_)] => text.clone(),
        [Val::Bool(b)] => Val::text(if *b { "true" } else { "false" }),
        [Val::Int(n)] => Val::text(smol_str::format_smolstr!("{n}")),
        [Val::Uint(n)] => Val::text(smol_str::format_smolstr!("{n}")),
        [Val::Double(n)] => Val::text(double_text(*n)),
        [Val::Bytes(b)] => match std::str::from_utf8(b) {
            Ok(s) => Val::text(s),
            Err(_) => return Err(EvalError::other("invalid UTF-8 in bytes, cannot convert to string")),
        },
        [Val::Duration(n)] => Val::text(duration_text(*n)),
        [Val::Timestamp(t)] => Val::text(time_text(*t)),
        [Val::Opaque(thing)] => match &**thing {
            OpaqueValue::Ip(ip) => Val::text(ip.to_string()),
            OpaqueValue::Network(network) => Val::text(network.to_string()),
            _ => return Err(EvalError::NoSuchOverload),
        },
        _ => return Err(EvalError::NoSuchOverload),
    })
}

fn texts<'v>(args: &'v [Val<'_>]) -> Result<(&'v str, &'v str), EvalError> {
    match args {
        [Val::String(a), Val::String(b)] => Ok((a.as_str(), b.as_str())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn starts_with<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, part) = texts(args)?;
    Ok(Val::Bool(text.starts_with(part)))
}

pub(super) fn ends_with<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, part) = texts(args)?;
    Ok(Val::Bool(text.ends_with(part)))
}

pub(super) fn contains<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, part) = texts(args)?;
    Ok(Val::Bool(text.contains(part)))
}

const DAY: i64 = 86_400;

/// The parts of a time, or of a duration.
pub(super) fn part_of_time<'a>(_: &mut Context<'a>, args: &[Val<'a>], part: &str) -> Outcome<'a> {
    let (time, zone) = match args {
        [Val::Duration(nanos)] => {
            return Ok(Val::Int(match part {
                "getHours" => nanos / (3600 * SECOND),
                "getMinutes" => nanos / (60 * SECOND),
                "getSeconds" => nanos / SECOND,
                "getMilliseconds" => nanos / 1_000_000,
                _ => return Err(EvalError::NoSuchOverload),
            }));
        }
        [Val::Timestamp(time)] => (time, 0),
        [Val::Timestamp(time), Val::String(zone)] => (time, offset_of(zone)?),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let seconds = time.seconds.saturating_add(zone);
    let (day, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, of_month) = civil_from_days(day);
    Ok(Val::Int(match part {
        "getFullYear" => year,
        "getMonth" => month - 1,
        "getDayOfMonth" => of_month - 1,
        "getDate" => of_month,
        "getDayOfYear" => day - days_from_civil(year, 1, 1),
        "getDayOfWeek" => (day + 4).rem_euclid(7),
        "getHours" => second / 3600,
        "getMinutes" => second / 60 % 60,
        "getSeconds" => second % 60,
        "getMilliseconds" => i64::from(time.nanos) / 1_000_000,
        _ => return Err(EvalError::NoSuchOverload),
    }))
}

/// Seconds east of UTC. Offsets and UTC are supported; names of time zones are not, since the program carries
/// no time zone data.
fn offset_of(zone: &Text<'_>) -> Result<i64, EvalError> {
    let zone = zone.as_str();
    let unknown = || EvalError::other(format!("unknown time zone {zone}"));
    if matches!(zone, "" | "UTC" | "Etc/UTC" | "Z") {
        return Ok(0);
    }
    let (hours, minutes) = zone.split_once(':').ok_or_else(unknown)?;
    let (negative, hours) = match hours.strip_prefix('-') {
        Some(hours) => (true, hours),
        None => (false, hours.strip_prefix('+').unwrap_or(hours)),
    };
    let number = |text: &str| text.parse::<u8>().map(i64::from).map_err(|_| unknown());
    let seconds = number(hours)? * 3600 + number(minutes)? * 60;
    Ok(if negative { -seconds } else { seconds })
}
