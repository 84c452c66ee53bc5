//! Lists and sets (k8s.io/apiserver `pkg/cel/library/lists.go`, cel-go `ext/lists.go` and `ext/sets.go`).

use std::cmp::Ordering;

use crate::context::{Context, EvalError, Outcome};
use crate::value::{List, Val};

use super::standard;

fn one<'v, 'a>(args: &'v [Val<'a>]) -> Result<&'v List<'a>, EvalError> {
    match args {
        [Val::List(list)] => Ok(list),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn order(a: &Val<'_>, b: &Val<'_>) -> Result<Ordering, EvalError> {
    a.compare(b).ok_or(EvalError::NoSuchOverload)
}

pub(super) fn is_sorted<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let list = one(args)?;
    let mut before: Option<Val<'a>> = None;
    for element in list.iter() {
        if let Some(before) = &before {
            if order(before, &element)?.is_gt() {
                return Ok(Val::Bool(false));
            }
        }
        before = Some(element);
    }
    Ok(Val::Bool(true))
}

pub(super) fn sum<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let mut elements = one(args)?.iter();
    // For an empty list the type is known to the checker only; zero is equal to zero of any number type.
    let Some(mut sum) = elements.next() else { return Ok(Val::Int(0)) };
    for element in elements {
        sum = standard::add(context, &[sum, element])?;
    }
    Ok(sum)
}

pub(super) fn max<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    best(args, "max", Ordering::Less)
}

pub(super) fn min<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    best(args, "min", Ordering::Greater)
}

fn best<'a>(args: &[Val<'a>], name: &str, replace: Ordering) -> Outcome<'a> {
    let mut elements = one(args)?.iter();
    let mut best = elements.next().ok_or_else(|| EvalError::other(format!("{name} called on empty list")))?;
    for element in elements {
        if order(&best, &element)? == replace {
            best = element;
        }
    }
    Ok(best)
}

/// The index of an element, from the front or the back; -1 when there is none.
pub(super) fn position<'a>(
    context: &mut Context<'a>,
    list: &List<'a>,
    value: &Val<'a>,
    last: bool,
) -> Outcome<'a> {
    let len = list.len();
    for i in 0..len {
        let i = if last { len - 1 - i } else { i };
        let Some(element) = list.get(i) else { continue };
        if context.equal(&element, value)? {
            return Ok(Val::Int(i as i64));
        }
    }
    Ok(Val::Int(-1))
}

pub(super) fn slice<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = args else {
        return Err(EvalError::NoSuchOverload);
    };
    let cannot = |why: String| EvalError::other(format!("cannot slice({start}, {end}), {why}"));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(cannot("negative indexes not supported".into()));
    };
    if from > to {
        return Err(cannot("start index must be less than or equal to end index".into()));
    }
    if to > list.len() {
        return Err(cannot(format!("list is length {}", list.len())));
    }
    Ok(Val::list((from..to).filter_map(|i| list.get(i)).collect()))
}

pub(super) fn flatten<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (list, depth) = match args {
        [Val::List(list)] => (list, 1),
        [Val::List(list), Val::Int(depth)] => (list, *depth),
        _ => return Err(EvalError::NoSuchOverload),
    };
    if depth < 0 {
        return Err(EvalError::other("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(context, list, depth, &mut out)?;
    Ok(Val::list(out))
}

fn flatten_into<'a>(
    context: &mut Context<'a>,
    list: &List<'a>,
    depth: i64,
    out: &mut Vec<Val<'a>>,
) -> Result<(), EvalError> {
    plinth_codec::value::level(|| {
        context.work(list.len() as u64)?;
        for element in list.iter() {
            match element {
                Val::List(inner) if depth > 0 => flatten_into(context, &inner, depth - 1, out)?,
                other => out.push(other),
            }
        }
        Ok(())
    })
}

pub(super) fn sort<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let list = one(args)?;
    sorted(list, list)
}

pub(super) fn sort_by_keys<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::List(list), Val::List(keys)] = args else { return Err(EvalError::NoSuchOverload) };
    sorted(list, keys)
}

fn sorted<'a>(list: &List<'a>, keys: &List<'a>) -> Outcome<'a> {
    let other = |why: String| EvalError::other(why);
    if list.len() != keys.len() {
        return Err(other(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let mut keyed: Vec<(Val<'a>, Val<'a>)> = keys.iter().zip(list.iter()).collect();
    if let Some((first, _)) = keyed.first() {
        if first.compare(first).is_none() {
            return Err(other("list elements must be comparable".into()));
        }
        if keyed.iter().any(|(key, _)| key.type_name() != first.type_name()) {
            return Err(other("list elements must have the same type".into()));
        }
    }
    keyed.sort_by(|a, b| a.0.compare(&b.0).unwrap_or(Ordering::Equal));
    Ok(Val::list(keyed.into_iter().map(|(_, value)| value).collect()))
}

pub(super) fn range<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Int(n)] = args else { return Err(EvalError::NoSuchOverload) };
    Ok(Val::list((0..*n).map(Val::Int).collect()))
}

pub(super) fn reverse<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let list = one(args)?;
    Ok(Val::list((0..list.len()).rev().filter_map(|i| list.get(i)).collect()))
}

pub(super) fn distinct<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let mut seen: Vec<Val<'a>> = Vec::new();
    'elements: for element in one(args)?.iter() {
        for other in &seen {
            if context.equal(&element, other)? {
                continue 'elements;
            }
        }
        seen.push(element);
    }
    Ok(Val::list(seen))
}

fn two<'v, 'a>(args: &'v [Val<'a>]) -> Result<(&'v List<'a>, &'v List<'a>), EvalError> {
    match args {
        [Val::List(a), Val::List(b)] => Ok((a, b)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn all_in<'a>(context: &mut Context<'a>, part: &List<'a>, whole: &List<'a>) -> Result<bool, EvalError> {
    for element in part.iter() {
        if !context.contains(whole, &element)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn sets_contains<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (whole, part) = two(args)?;
    Ok(Val::Bool(all_in(context, part, whole)?))
}

pub(super) fn sets_equivalent<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (a, b) = two(args)?;
    Ok(Val::Bool(all_in(context, b, a)? && all_in(context, a, b)?))
}

pub(super) fn sets_intersects<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (a, b) = two(args)?;
    for element in a.iter() {
        if context.contains(b, &element)? {
            return Ok(Val::Bool(true));
        }
    }
    Ok(Val::Bool(false))
}
