//! URLs (k8s.io/apiserver `pkg/cel/library/urls.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::arguments::text;
use crate::context::{Context, EvalError, Outcome};
use crate::opaque::{unescape, OpaqueValue, Url};
use crate::value::{Key, Table, Val};

fn of<'v>(args: &'v [Val<'_>]) -> Result<&'v Url, EvalError> {
    match args.first().and_then(|v| v.as_opaque()) {
        Some(OpaqueValue::Url(url)) => Ok(url),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn url<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let url = Url::parse_request(text(args)?)
        .map_err(|why| EvalError::other(format!("URL parse error during conversion from string: {why}")))?;
    Ok(Val::opaque(OpaqueValue::Url(url)))
}

pub(super) fn is_url<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let text = text(args)?;
    context.work(text.len() as u64 / 16)?;
    Ok(Val::Bool(Url::parse_request(text).is_ok()))
}

pub(super) fn scheme_of<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::text(of(args)?.scheme.as_str()))
}

pub(super) fn host_of<'a>(args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::text(of(args)?.host.as_str()))
}

/// The host and the port, apart.
fn host_and_port(host: &str) -> (&str, &str) {
    let (name, port) = match host.rfind(':').filter(|i| !host[*i..].contains(']')) {
        Some(i) => (&host[..i], &host[i + 1..]),
        None => (host, ""),
    };
    let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    (name, port)
}

pub(super) fn hostname<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::text(host_and_port(&of(args)?.host).0))
}

pub(super) fn port<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::text(host_and_port(&of(args)?.host).1))
}

pub(super) fn escaped_path<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::text(of(args)?.path.as_str()))
}

pub(super) fn query<'a>(context: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let query = &of(args)?.query;
    context.text(query.len())?;
    let mut lists: BTreeMap<String, Vec<Val<'a>>> = BTreeMap::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        // Go drops malformed pairs.
        if pair.contains(';') || plinth_codec::url::check_escapes(pair).is_err() {
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| unescape(&text.replace('+', " "));
        lists.entry(decode(key)).or_default().push(Val::text(decode(value)));
    }
    let entries = lists.into_iter().map(|(key, values)| {
        let key = smol_str::SmolStr::from(key);
        (Key::String(key.clone()), (Val::text(key), Val::list(values)))
    });
    Ok(Val::Map(Table::Computed(Arc::new(entries.collect()))))
}
