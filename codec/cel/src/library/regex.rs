//! Regular expressions in RE2's syntax: [`plinth_codec::regexp`], which takes time in proportion to the text
//! as RE2 does.

use crate::context::{Context, EvalError, Outcome};
use crate::value::{Text, Val};

fn texts<'v, 'a>(args: &'v [Val<'a>]) -> Result<(&'v Text<'a>, &'v str), EvalError> {
    match args {
        [Val::String(text), Val::String(pattern), ..] => Ok((text, pattern.as_str())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn matches<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, pattern) = texts(args)?;
    let regex = context.regex(pattern)?;
    Ok(Val::Bool(regex.is_match(text.as_str())))
}

pub(super) fn find<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, pattern) = texts(args)?;
    let regex = context.regex(pattern)?;
    Ok(match text {
        Text::Data(text) => Val::String(Text::Data(regex.find(text).map_or("", |m| m.as_str()))),
        Text::Computed(text) => Val::text(regex.find(text).map_or("", |m| m.as_str())),
    })
}

pub(super) fn find_all<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let (text, pattern) = texts(args)?;
    let most = match args.get(2) {
        None => usize::MAX,
        Some(Val::Int(n)) => usize::try_from(*n).unwrap_or(usize::MAX),
        Some(_) => return Err(EvalError::NoSuchOverload),
    };
    let regex = context.regex(pattern)?;
    let found: Vec<Val<'a>> = match text {
        Text::Data(text) => {
            regex.find_iter(text).take(most).map(|m| Val::String(Text::Data(m.as_str()))).collect()
        }
        Text::Computed(text) => regex.find_iter(text).take(most).map(|m| Val::text(m.as_str())).collect(),
    };
    context.work(found.len() as u64)?;
    Ok(Val::list(found))
}
