//! URLs, read as Go's `url.ParseRequestURI` reads them (k8s.io/apiserver `pkg/cel/library/urls.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::program::{Context, EvalError};
use crate::value::{Key, Table, Val};

use super::opaque::OpaqueValue;

type Outcome<'a> = Result<Val<'a>, EvalError>;

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    scheme: String,
    /// With the port, brackets and all.
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// Reads an absolute URL or an absolute path.
    pub(crate) fn parse_request(text: &str) -> Result<Url, String> {
        let url = plinth_codec::url::parse(text, true)?;
        Ok(Url {
            scheme: url.scheme,
            host: unescape(url.host),
            path: escape_path(url.path),
            query: url.query.to_owned(),
        })
    }
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&b) = bytes.get(i) {
        let digits = bytes.get(i + 1..i + 3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.filter(|_| b == b'%').and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(b);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Escapes characters that a path must not have; existing escapes are kept.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(b as char),
            b if b"-._~$&+,/:;=@%!'()*[]".contains(&b) => out.push(b as char),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

fn of<'v>(args: &'v [Val<'_>]) -> Result<&'v Url, EvalError> {
    match args.first().and_then(|v| v.as_opaque()) {
        Some(OpaqueValue::Url(url)) => Ok(url),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn text<'v>(args: &'v [Val<'_>]) -> Result<&'v str, EvalError> {
    match args {
        [Val::String(s)] => Ok(s.as_str()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn url<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let url = Url::parse_request(text(args)?).map_err(|why| {
        EvalError::Other(format!("URL parse error during conversion from string: {why}").into())
    })?;
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
